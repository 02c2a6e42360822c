//! Refusals as the API gives them: code, message and `StorageError`, from wherever the server put them (write-api.md 3.1).

use std::error::Error;
use std::fmt;

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

use crate::wire::{RpcStatus, StorageError};

/// Trailer that holds a bare `StorageError`; Google's Node client reads it.
pub const STORAGE_ERROR_TRAILER: &str = "google.cloud.bigquery.storage.v1.storageerror-bin";

/// Full name of the message in a detail's type URL.
const STORAGE_ERROR: &str = "google.cloud.bigquery.storage.v1.StorageError";

/// What the server said about one failed request, or about the call as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// The message, with the transport's own causes where there are any.
    pub message: String,
    /// BigQuery's own detail. Its number may be one that this build does not know: `code()` says Unspecified then.
    pub storage: Option<StorageError>,
}

/// The two numbers of an offset error's text (write-api.md 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetMismatch {
    /// The offset the server would have taken: the stream's end.
    pub expected: u64,
    /// The offset the request named.
    pub received: u64,
}

impl Refusal {
    /// Reads the status that ended a call: details out of `grpc-status-details-bin` or out of [`STORAGE_ERROR_TRAILER`].
    pub fn from_call(status: &Status) -> Self {
        let storage = RpcStatus::decode(status.details())
            .ok()
            .and_then(|rpc| storage_error(&rpc.details))
            .or_else(|| trailing_error(status));
        Self {
            code: status.code(),
            message: message_with_causes(status),
            storage,
        }
    }

    /// Reads an in-band error, `AppendRowsResponse.error`.
    pub fn from_answer(status: &RpcStatus) -> Self {
        Self {
            code: Code::from(status.code),
            message: status.message.clone(),
            storage: storage_error(&status.details),
        }
    }

    /// The offsets an offset error tells, out of the detail's text or else the message.
    pub fn offsets(&self) -> Option<OffsetMismatch> {
        let detail = self
            .storage
            .as_ref()
            .and_then(|storage| parse_offsets(&storage.error_message));
        detail.or_else(|| parse_offsets(&self.message))
    }
}

fn storage_error(details: &[Any]) -> Option<StorageError> {
    details
        .iter()
        .filter(|any| any.type_url.rsplit('/').next() == Some(STORAGE_ERROR))
        .find_map(|any| StorageError::decode(any.value.as_slice()).ok())
}

fn trailing_error(status: &Status) -> Option<StorageError> {
    let value = status.metadata().get_bin(STORAGE_ERROR_TRAILER)?;
    StorageError::decode(value.to_bytes().ok()?).ok()
}

/// tonic's text for a broken connection is "transport error"; what broke is in the causes.
fn message_with_causes(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

/// `expected offset <n>, received <m>`, looked for before "Entity", whose stream name is not ours to parse.
fn parse_offsets(text: &str) -> Option<OffsetMismatch> {
    let text = text.split("Entity").next()?;
    let (_, rest) = text.split_once("expected offset ")?;
    let (expected, rest) = leading_number(rest)?;
    let (received, _) = leading_number(rest.strip_prefix(", received ")?)?;
    Some(OffsetMismatch { expected, received })
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)?;
        let Some(storage) = &self.storage else {
            return Ok(());
        };
        write!(f, " ({}", storage.code().as_str_name())?;
        if !storage.error_message.is_empty() && !self.message.contains(&storage.error_message) {
            write!(f, ": {}", storage.error_message)?;
        }
        if !storage.entity.is_empty() {
            write!(f, ", {}", storage.entity)?;
        }
        f.write_str(")")
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use tonic::metadata::{BinaryMetadataValue, MetadataMap};

    use super::*;
    use crate::wire::storage_error::StorageErrorCode;

    const STREAM: &str = "projects/p/datasets/d/tables/t/streams/s";

    fn detail(text: &str) -> StorageError {
        StorageError {
            code: StorageErrorCode::OffsetOutOfRange.into(),
            entity: STREAM.to_owned(),
            error_message: text.to_owned(),
        }
    }

    fn any(type_url: &str, value: Vec<u8>) -> Any {
        Any {
            type_url: type_url.to_owned(),
            value,
        }
    }

    /// A detail of another kind first, as other services in the path add them.
    fn rpc(storage: &StorageError) -> RpcStatus {
        RpcStatus {
            code: Code::OutOfRange.into(),
            message: "The offset is beyond stream".to_owned(),
            details: vec![
                any("type.googleapis.com/google.rpc.DebugInfo", vec![0xff]),
                any(
                    "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError",
                    storage.encode_to_vec(),
                ),
            ],
        }
    }

    #[test]
    fn the_detail_is_found_in_band_in_the_status_details_and_in_its_own_trailer() {
        let storage = detail("expected offset 0, received 10");
        let rpc = rpc(&storage);
        let expected = Refusal {
            code: Code::OutOfRange,
            message: "The offset is beyond stream".to_owned(),
            storage: Some(storage.clone()),
        };
        assert_eq!(Refusal::from_answer(&rpc), expected);

        let status = Status::with_details(Code::OutOfRange, &*rpc.message, rpc.encode_to_vec().into());
        assert_eq!(Refusal::from_call(&status), expected);

        let mut metadata = MetadataMap::new();
        let value = BinaryMetadataValue::from_bytes(&storage.encode_to_vec());
        metadata.insert_bin(STORAGE_ERROR_TRAILER, value);
        let status = Status::with_metadata(Code::OutOfRange, &*rpc.message, metadata);
        assert_eq!(Refusal::from_call(&status), expected);
    }

    #[test]
    fn a_detail_that_is_broken_or_of_another_kind_is_no_detail() {
        let broken = Status::with_details(Code::Aborted, "x", vec![0xff, 0xff].into());
        assert_eq!(Refusal::from_call(&broken).storage, None);
        let other = RpcStatus {
            details: vec![any("a/b.StorageError", vec![])],
            ..Default::default()
        };
        assert_eq!(Refusal::from_answer(&other).storage, None);
    }

    #[test]
    fn a_storage_code_of_the_future_is_kept_as_a_number() {
        let storage = StorageError {
            code: 99,
            ..Default::default()
        };
        let refusal = Refusal::from_answer(&rpc(&storage));
        let found = refusal.storage.unwrap();
        assert_eq!((found.code, found.code()), (99, StorageErrorCode::Unspecified));
    }

    #[test]
    fn offsets_are_read_before_the_entity_and_only_in_their_own_form() {
        let cases = [
            (
                "The offset is beyond stream, expected offset 0, received 10 Entity: s",
                Some((0, 10)),
            ),
            (
                "The offset is within stream, expected offset 18446744073709551615, received 0",
                Some((u64::MAX, 0)),
            ),
            ("expected offset 18446744073709551616, received 0", None),
            ("Entity: expected offset 1, received 2", None),
            ("expected offset -1, received 2", None),
            ("expected offset 1; received 2", None),
            ("expected offset 1, received ", None),
            ("", None),
        ];
        for (text, numbers) in cases {
            let expected = numbers.map(|(expected, received)| OffsetMismatch { expected, received });
            assert_eq!(
                Refusal::from_answer(&rpc(&detail(text))).offsets(),
                expected,
                "{text}"
            );
            let plain = RpcStatus {
                message: text.to_owned(),
                ..Default::default()
            };
            assert_eq!(Refusal::from_answer(&plain).offsets(), expected, "{text}");
        }
    }

    #[test]
    fn a_refusal_prints_code_text_and_entity_once() {
        let refusal = Refusal::from_answer(&rpc(&detail("The offset is beyond stream")));
        assert_eq!(
            refusal.to_string(),
            format!("OutOfRange: The offset is beyond stream (OFFSET_OUT_OF_RANGE, {STREAM})")
        );
        let bare = Refusal::from_call(&Status::aborted("drained"));
        assert_eq!(bare.to_string(), "Aborted: drained");
    }

    #[test]
    fn what_broke_a_connection_is_part_of_the_message() {
        let status = Status::from_error(Box::new(std::io::Error::other("reset by peer")));
        assert!(Refusal::from_call(&status).message.contains("reset by peer"));
    }
}
