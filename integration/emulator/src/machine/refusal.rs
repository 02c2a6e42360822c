//! How the service says no: a gRPC code, a text, and a `StorageError` where Google sends one.

use bigquery_write_proto::wire::{RowError, RpcStatus, StorageError, storage_error::StorageErrorCode};
use prost::Message;
use serde::{Deserialize, Serialize};

/// gRPC status codes other than OK, named in fault plans as gRPC names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(i32)]
#[expect(missing_docs, reason = "gRPC's own names")]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// A refused request, or the end of an `AppendRows` call.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// gRPC code.
    pub code: Code,
    /// Text; Google's where clients match it.
    pub message: String,
    /// Code and entity of the `StorageError` in the details; its text is `message`.
    pub storage: Option<(StorageErrorCode, String)>,
    /// Bad rows of an append.
    pub row_errors: Vec<RowError>,
    /// On an append: answered inside the stream, which lives on (write-api.md 3.1), not by ending the call.
    pub in_band: bool,
}

impl Refusal {
    /// Ends the call, without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            storage: None,
            row_errors: Vec::new(),
            in_band: false,
        }
    }

    /// INVALID_ARGUMENT, without details.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// How calls end when the server restarts (write-api.md 3.6).
    pub fn restarted() -> Self {
        let text = "Closing the stream because server is restarted. This is expected and client is advised to reconnect.";
        Self::new(Code::Aborted, text)
    }

    /// How calls end when the server drains its connections (write-api.md 3.6).
    pub fn draining() -> Self {
        Self::new(Code::Unavailable, "the connection is draining")
    }

    /// Adds a `StorageError`.
    #[must_use]
    pub fn with(mut self, code: StorageErrorCode, entity: impl Into<String>) -> Self {
        self.storage = Some((code, entity.into()));
        self
    }

    /// Says where an append's refusal goes: inside the stream, or as the call's status.
    #[must_use]
    pub fn in_band(mut self, in_band: bool) -> Self {
        self.in_band = in_band;
        self
    }

    /// The `StorageError`, if there is one.
    pub fn storage_error(&self) -> Option<StorageError> {
        let (code, entity) = self.storage.as_ref()?;
        let (code, entity) = (*code as i32, entity.clone());
        Some(StorageError {
            code,
            entity,
            error_message: self.message.clone(),
        })
    }

    /// As `google.rpc.Status`, the `StorageError` packed in its details.
    pub fn status(&self) -> RpcStatus {
        let details = self.storage_error().into_iter().map(|error| prost_types::Any {
            type_url: "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError".to_owned(),
            value: error.encode_to_vec(),
        });
        RpcStatus {
            code: self.code as i32,
            message: self.message.clone(),
            details: details.collect(),
        }
    }
}

/// The refusals whose texts clients know.
pub(crate) mod known {
    use std::fmt::Display;

    use super::{Code, Refusal, StorageErrorCode};

    /// write-api.md 3.3: Java reads the expected offset out of this text.
    pub(crate) fn offset_beyond(stream: &str, expected: u64, received: i64) -> Refusal {
        let text = format!(
            "The offset is beyond stream, expected offset {expected}, received {received} Entity: {stream}"
        );
        Refusal::new(Code::OutOfRange, text)
            .with(StorageErrorCode::OffsetOutOfRange, stream)
            .in_band(true)
    }

    /// write-api.md 3.2: the server leaves the entity out of this one's text.
    pub(crate) fn offset_within(stream: &str, expected: u64, received: i64) -> Refusal {
        let text = format!("The offset is within stream, expected offset {expected}, received {received}");
        Refusal::new(Code::AlreadyExists, text)
            .with(StorageErrorCode::OffsetAlreadyExists, stream)
            .in_band(true)
    }

    /// write-api.md 2.1 and 2.2: the same text for appends and flushes.
    pub(crate) fn finalized(stream: &str) -> Refusal {
        let text = format!("Stream has been finalized and cannot be appended: {stream} Entity: {stream}");
        Refusal::invalid(text).with(StorageErrorCode::StreamFinalized, stream)
    }

    /// write-api.md 2.2, beam #30177.
    pub(crate) fn flush_beyond(stream: &str, offset: i64) -> Refusal {
        let text = format!("Offset {offset} is beyond the end of the stream Entity: {stream}");
        Refusal::new(Code::OutOfRange, text).with(StorageErrorCode::OffsetOutOfRange, stream)
    }

    /// write-api.md 3.4.
    pub(crate) fn stream_not_found(stream: &str) -> Refusal {
        let text = format!("Requested entity was not found. Entity: {stream}");
        Refusal::new(Code::NotFound, text).with(StorageErrorCode::StreamNotFound, stream)
    }

    /// write-api.md 2.7: a stream whose life is over, where it is not simply unknown.
    pub(crate) fn stream_expired(stream: &str, code: Code) -> Refusal {
        let text = format!("The stream has expired. Entity: {stream}");
        Refusal::new(code, text).with(StorageErrorCode::StreamNotFound, stream)
    }

    /// write-api.md 3.4: what an old stream hears when its table was deleted and created again.
    pub(crate) fn table_recreated(table: &str, stream: &str) -> Refusal {
        let text = format!("Table {table} is re-created. Entity: {stream}");
        Refusal::new(Code::NotFound, text).with(StorageErrorCode::StreamNotFound, stream)
    }

    /// write-api.md 3.2.
    pub(crate) fn table_not_found(table: &str) -> Refusal {
        let text = format!("Requested entity was not found. Entity: {table}");
        Refusal::new(Code::NotFound, text).with(StorageErrorCode::TableNotFound, table)
    }

    /// write-api.md 3.4: a missing table, a missing right and a missing routing header look alike.
    pub(crate) fn permission_denied(table: &str) -> Refusal {
        let text =
            format!("Permission 'TABLES_UPDATE_DATA' denied on resource '{table}' (or it may not exist).");
        Refusal::new(Code::PermissionDenied, text)
    }

    /// write-api.md 2: the operation does not exist for this kind of stream.
    pub(crate) fn wrong_kind(text: String, stream: &str) -> Refusal {
        Refusal::invalid(text).with(StorageErrorCode::InvalidStreamType, stream)
    }

    /// write-api.md 2.1, nodejs-bigquery-storage #348.
    pub(crate) fn no_route() -> Refusal {
        Refusal::invalid("Cannot route on empty project id ''")
    }

    /// write-api.md 3.6.
    pub(crate) fn idle(seconds: i64, stream: &str) -> Refusal {
        let text = format!(
            "Closing the stream because it has been inactive for {seconds} seconds. Entity: {stream}"
        );
        Refusal::new(Code::Aborted, text)
    }

    /// write-api.md 2.6; code and text are switches.
    pub(crate) fn fenced(stream: &str, code: Code, text: &str) -> Refusal {
        Refusal::new(code, format!("{text} Entity: {stream}"))
    }

    /// write-api.md 4.
    pub(crate) fn too_large(size: impl Display, limit: u64) -> Refusal {
        Refusal::invalid(format!("AppendRows request too large: {size} limit {limit}"))
    }
}
