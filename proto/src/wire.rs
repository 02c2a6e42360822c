//! Google's message types of the Storage Write API, and client and server stubs over them.
//!
//! Messages on the way to a protobuf descriptor are our own: Google's published types hold it as
//! `prost_types::DescriptorProto`, and prost drops extensions when it decodes. One of them, `column_name` on a field,
//! says which column the field goes to (write-api.md 1.2). So [`ProtoSchema`] keeps the descriptor's bytes as they
//! came, and what holds a [`ProtoSchema`] is written here again, with Google's names and numbers. On the wire nothing
//! differs.

use std::collections::HashMap;

use bytes::Bytes;

pub use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1::{
    AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BatchCommitWriteStreamsRequest,
    BatchCommitWriteStreamsResponse, CreateWriteStreamRequest, FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse, GetWriteStreamRequest, ProtoRows,
    RowError, StorageError, TableFieldSchema, TableSchema, WriteStream, WriteStreamView,
    append_rows_response, row_error, storage_error, table_field_schema, write_stream,
};
pub use googleapis_tonic_google_rpc::google::rpc::Status as RpcStatus;

pub use stubs::big_query_write_client::BigQueryWriteClient;
pub use stubs::big_query_write_server::{BigQueryWrite, BigQueryWriteServer};

/// Metadata key of the routing header every call carries (write-api.md 3.7).
pub const ROUTING_HEADER: &str = "x-goog-request-params";

/// A request of `AppendRows`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRowsRequest {
    /// Stream to append to. Needed on the first request of a connection, and on all once it has switched streams.
    #[prost(string, tag = "1")]
    pub write_stream: String,
    /// The request is taken only if this is the stream's end; without it, wherever the end is.
    #[prost(message, optional, tag = "2")]
    pub offset: Option<i64>,
    /// For telemetry; the first request's counts.
    #[prost(string, tag = "6")]
    pub trace_id: String,
    /// By top-level column, what a missing value in this request's rows means.
    #[prost(
        map = "string, enumeration(append_rows_request::MissingValueInterpretation)",
        tag = "7"
    )]
    pub missing_value_interpretations: HashMap<String, i32>,
    /// What a missing value means in all other columns, from this request on.
    #[prost(enumeration = "append_rows_request::MissingValueInterpretation", tag = "8")]
    pub default_missing_value_interpretation: i32,
    /// A `ClientStats`, serialized: telemetry that nobody reads, but that counts for the size of the request.
    #[prost(bytes = "bytes", tag = "9")]
    pub client_stats: Bytes,
    /// The rows.
    #[prost(oneof = "append_rows_request::Rows", tags = "4, 5")]
    pub rows: Option<append_rows_request::Rows>,
}

/// What an [`AppendRowsRequest`] holds.
pub mod append_rows_request {
    pub use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1::append_rows_request::{
        ArrowData, MissingValueInterpretation,
    };

    /// Rows in either format.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Rows {
        /// Serialized protobuf messages.
        #[prost(message, tag = "4")]
        ProtoRows(ProtoData),
        /// An Arrow record batch.
        #[prost(message, tag = "5")]
        ArrowRows(ArrowData),
    }

    /// Protobuf rows and how to read them.
    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
    pub struct ProtoData {
        /// Needed on a connection's first request, and when destination or schema change.
        #[prost(message, optional, tag = "1")]
        pub writer_schema: Option<super::ProtoSchema>,
        /// The rows.
        #[prost(message, optional, tag = "2")]
        pub rows: Option<super::ProtoRows>,
    }
}

/// How protobuf rows are to be read.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ProtoSchema {
    /// A `google.protobuf.DescriptorProto`, serialized; it describes one row and holds all types it uses.
    #[prost(bytes = "bytes", tag = "1")]
    pub proto_descriptor: Bytes,
}

/// Code that `tonic-build` wrote; the workspace's lints are ours, not its.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    rust_2018_idioms,
    clippy::all,
    clippy::clone_on_ref_ptr,
    clippy::let_underscore_must_use,
    clippy::redundant_clone,
    clippy::uninlined_format_args,
    clippy::unwrap_used,
    clippy::use_self
)]
mod stubs {
    include!(concat!(
        env!("OUT_DIR"),
        "/google.cloud.bigquery.storage.v1.BigQueryWrite.rs"
    ));
}
