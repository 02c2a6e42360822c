//! Between the words of the wire, the options and the core.

use std::time::Duration;

use bigquery_sink_state::{
    Code, Failure, FailureKind, Fault, Limits, Place, Replay, RowFault, StorageCode, Unprovable,
};
use bigquery_write_proto::rows::ConvertError;
use bigquery_write_proto::wire::StorageError;

use crate::error::{Blame, Retry, SinkError};
use crate::host::CommitReplay;
use crate::options::{SinkOptions, UnprovableCommit};
use crate::transport::{AppendRefusal, CallError};

/// What BigQuery says of a table that it may not know yet passes within a minute, if it was not made just now (write-api.md 3.4).
const KNOWN_TABLE: Duration = Duration::from_secs(60);

pub(super) fn limits(options: &SinkOptions, table_is_young: bool) -> Limits {
    let unknown_table = if table_is_young {
        KNOWN_TABLE.max(options.append_timeout)
    } else {
        KNOWN_TABLE
    };
    Limits {
        unknown_table,
        append_bytes: options.append_bytes as u64,
        inflight_bytes: options.inflight_bytes as u64,
        inflight_requests: options.inflight_requests,
        inflight_time: options.inflight_time,
        append_timeout: options.append_timeout,
        commit_timeout: options.commit_timeout,
        quota_timeout: options.quota_timeout,
        unprovable: match options.unprovable {
            UnprovableCommit::Fail => Unprovable::Fail,
            UnprovableCommit::AssumeVisible => Unprovable::AssumeVisible,
            UnprovableCommit::AcceptLoss => Unprovable::AcceptLoss,
        },
    }
}

pub(super) fn replay(replay: CommitReplay) -> Replay {
    match replay {
        CommitReplay::Expected => Replay::Expected,
        CommitReplay::Confirmed => Replay::Confirmed,
        CommitReplay::Unknown => Replay::Unknown,
    }
}

/// The error that ended a call.
pub(super) fn call_fault(error: &CallError) -> Fault {
    Fault {
        code: Code::from_number(error.code.into()),
        storage_code: storage_code(error.storage_error.as_ref()),
        place: Place::RpcEnd,
        expected_offset: error.offsets().map(|offsets| offsets.expected),
        row_errors: Vec::new(),
        message: error.message.clone(),
    }
}

/// A call that the server ended without an error.
pub(super) fn clean_end() -> Fault {
    Fault {
        code: Code::Ok,
        storage_code: None,
        place: Place::RpcEnd,
        expected_offset: None,
        row_errors: Vec::new(),
        message: "the server closed the connection".into(),
    }
}

/// An in-band refusal.
pub(super) fn refusal_fault(refusal: &AppendRefusal) -> Fault {
    let row = |error: &bigquery_write_proto::wire::RowError| RowFault {
        // A negative one names no row of the request.
        index: u64::try_from(error.index).unwrap_or(u64::MAX),
        message: error.message.clone(),
    };
    Fault {
        code: Code::from_number(refusal.code.into()),
        storage_code: storage_code(refusal.storage_error.as_ref()),
        place: Place::InBand,
        expected_offset: refusal.offsets().map(|offsets| offsets.expected),
        row_errors: refusal.row_errors.iter().map(row).collect(),
        message: refusal.message.clone(),
    }
}

fn storage_code(error: Option<&StorageError>) -> Option<StorageCode> {
    error.and_then(|error| StorageCode::from_number(error.code))
}

/// `aftermath` is what else is to be said of the rows.
pub(super) fn failure(failure: &Failure, aftermath: &str) -> SinkError {
    let (blame, retry) = match failure.kind {
        FailureKind::Restart => (Blame::External, Retry::Restart),
        FailureKind::User => (Blame::User, Retry::Never),
        FailureKind::Unprovable => (Blame::External, Retry::Never),
        FailureKind::Host => (Blame::Internal, Retry::Never),
    };
    SinkError::new(blame, retry, format!("{}{aftermath}", failure.message))
}

/// With `row_errors = 'fail'` the job stops at rows that do not fit, since a restart would meet them again.
pub(super) fn convert_error(error: ConvertError) -> SinkError {
    let text = error.to_string();
    match error {
        ConvertError::Rows(_) | ConvertError::Batch { .. } => SinkError::user(text),
        ConvertError::Schema { .. } => SinkError::internal(text),
    }
    .with_source(error)
}
