//! Failures that both protocols end with.

use crate::fault::{Fault, Phase, classify};
use crate::ids::{BatchId, RowCount, StreamName};
use crate::io::{Failure, FailureKind};
use crate::trouble::Over;

/// The host broke the order of calls.
pub(crate) fn host(message: &str) -> Failure {
    Failure {
        kind: FailureKind::Host,
        message: message.into(),
    }
}

/// A fault that nothing more is tried about.
pub(crate) fn failure(over: Over, doing: &str, phase: Phase, fault: &Fault) -> Failure {
    let (kind, next) = match over {
        Over::Restart | Over::Gone => (FailureKind::Restart, "; the job restarts from its checkpoint"),
        Over::User => (FailureKind::User, ""),
    };
    let reason = classify(phase, fault).reason;
    Failure {
        kind,
        message: format!("{doing} failed: {fault} ({reason}){next}"),
    }
}

pub(crate) fn out_of_order(stream: &StreamName) -> Failure {
    Failure {
        kind: FailureKind::Restart,
        message: format!(
            "an answer on {stream} is not the one that is due; BigQuery answers in order. The job restarts from its checkpoint"
        ),
    }
}

/// Rows were refused, and none of them is one of the request's.
pub(crate) fn names_no_row(fault: &Fault, rows: RowCount, stream: &StreamName) -> Failure {
    Failure {
        kind: FailureKind::User,
        message: format!(
            "appending failed: {fault}; the refused request to {stream} holds rows 1 to {rows}, so that nothing tells which to leave out"
        ),
    }
}

pub(crate) fn dead_letter_refused(fault: &Fault) -> Failure {
    Failure {
        kind: FailureKind::User,
        message: format!(
            "appending dead letters failed: {fault}; a dead letter that is refused itself can go nowhere. \
             Change the dead-letter table so that it takes what the sink writes there, or name another one, and start again"
        ),
    }
}

/// What was taken out of a request and what was left of it are not what it held.
pub(crate) fn check_removal(
    request: RowCount,
    left: RowCount,
    dead_letters: RowCount,
) -> Result<(), Failure> {
    if dead_letters.0 > 0 && left.0.checked_add(dead_letters.0) == Some(request.0) {
        return Ok(());
    }
    Err(host(&format!(
        "{left} rows were left and {dead_letters} became dead letters of a request of {request} rows"
    )))
}

/// What is wrong with a row that makes a request too large by itself.
pub(crate) fn too_large_text(bytes: u64, fault: &Fault) -> String {
    format!(
        "takes {bytes} bytes, which BigQuery does not take: {}",
        fault.text()
    )
}

pub(crate) fn row_too_large(row: &str, bytes: u64, fault: &Fault) -> Failure {
    Failure {
        kind: FailureKind::User,
        message: format!(
            "{row} {}; shorten its values, or let such rows become dead letters (option 'row_errors')",
            too_large_text(bytes, fault)
        ),
    }
}

/// The rows of the second part of a request that was cut; both have some.
pub(crate) fn check_cut(whole: RowCount, first: RowCount) -> Result<RowCount, Failure> {
    match whole.0.checked_sub(first.0) {
        Some(rest) if rest > 0 && first.0 > 0 => Ok(RowCount(rest)),
        _ => Err(host(&format!("a request of {whole} rows was cut after {first}"))),
    }
}

pub(crate) fn cut_unasked(batch: BatchId) -> Failure {
    host(&format!(
        "request {} was cut in two, which was not asked for",
        batch.0
    ))
}

pub(crate) fn not_asked_for(batch: BatchId) -> Failure {
    host(&format!(
        "rows were taken out of request {}, which was not asked for",
        batch.0
    ))
}
