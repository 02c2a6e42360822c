//! Google's message types of the Storage Write API, and client and server stubs over them.

pub use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BatchCommitWriteStreamsRequest,
    BatchCommitWriteStreamsResponse, CreateWriteStreamRequest, FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse, GetWriteStreamRequest, ProtoRows,
    ProtoSchema, RowError, StorageError, TableFieldSchema, TableSchema, WriteStream, WriteStreamView,
    append_rows_request, append_rows_response, row_error, storage_error, table_field_schema, write_stream,
};
pub use googleapis_tonic_google_rpc::google::rpc::Status as RpcStatus;

pub use stubs::big_query_write_client::BigQueryWriteClient;
pub use stubs::big_query_write_server::{BigQueryWrite, BigQueryWriteServer};

/// Metadata key of the routing header every call carries (write-api.md 3.7).
pub const ROUTING_HEADER: &str = "x-goog-request-params";

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
