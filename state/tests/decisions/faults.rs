//! The error table, row by row.

use std::collections::BTreeSet;

use bigquery_sink_state::{Code, Fault, Phase, Place, RULES, Reaction, RowFault, StorageCode, classify};

use Code::*;
use Phase::{Append, Create, Flush};
use Place::{InBand, RpcEnd};
use Reaction as R;

type Row = (Phase, Place, Code, Option<StorageCode>, bool, Reaction, bool);

const NONE: Option<StorageCode> = None;

/// Phase, place, code, StorageError, with row errors -> reaction, in doubt (write-api.md 3).
const EXPECTED: &[Row] = &[
    (
        Append,
        InBand,
        AlreadyExists,
        Some(StorageCode::OffsetAlreadyExists),
        false,
        R::OffsetTaken,
        false,
    ),
    (Append, RpcEnd, AlreadyExists, NONE, false, R::OffsetTaken, false),
    (
        Append,
        InBand,
        OutOfRange,
        Some(StorageCode::OffsetOutOfRange),
        false,
        R::OffsetBeyondEnd,
        false,
    ),
    (Flush, RpcEnd, AlreadyExists, NONE, false, R::Success, false),
    (Flush, RpcEnd, OutOfRange, NONE, false, R::OffsetBeyondEnd, false),
    (
        Append,
        InBand,
        InvalidArgument,
        Some(StorageCode::StreamFinalized),
        false,
        R::Gone,
        false,
    ),
    (
        Flush,
        RpcEnd,
        InvalidArgument,
        Some(StorageCode::StreamFinalized),
        false,
        R::Gone,
        false,
    ),
    (Flush, RpcEnd, InvalidArgument, NONE, false, R::Gone, false),
    (
        Create,
        RpcEnd,
        NotFound,
        Some(StorageCode::TableNotFound),
        false,
        R::FailSoon,
        false,
    ),
    (Create, RpcEnd, NotFound, NONE, false, R::FailSoon, false),
    (
        Append,
        InBand,
        NotFound,
        Some(StorageCode::StreamNotFound),
        false,
        R::MaybeGone,
        false,
    ),
    (Append, RpcEnd, NotFound, NONE, false, R::MaybeGone, false),
    (Flush, RpcEnd, NotFound, NONE, false, R::MaybeGone, false),
    (
        Append,
        RpcEnd,
        FailedPrecondition,
        NONE,
        false,
        R::LeaveStream,
        true,
    ),
    (Create, RpcEnd, FailedPrecondition, NONE, false, R::Resend, true),
    (Append, InBand, InvalidArgument, NONE, true, R::RejectRows, false),
    (
        Append,
        RpcEnd,
        InvalidArgument,
        Some(StorageCode::SchemaMismatchExtraFields),
        false,
        R::Reconnect,
        false,
    ),
    (
        Append,
        InBand,
        InvalidArgument,
        Some(StorageCode::KmsServiceError),
        false,
        R::Resend,
        true,
    ),
    (
        Append,
        InBand,
        InvalidArgument,
        NONE,
        false,
        R::FailForGood,
        false,
    ),
    (
        Append,
        RpcEnd,
        InvalidArgument,
        NONE,
        false,
        R::FailForGood,
        false,
    ),
    (
        Create,
        RpcEnd,
        InvalidArgument,
        NONE,
        false,
        R::FailForGood,
        false,
    ),
    (Append, InBand, ResourceExhausted, NONE, false, R::BackOff, false),
    (Create, RpcEnd, ResourceExhausted, NONE, false, R::BackOff, false),
    (Flush, RpcEnd, ResourceExhausted, NONE, false, R::BackOff, false),
    (Append, InBand, Aborted, NONE, false, R::Resend, true),
    (Append, InBand, Unavailable, NONE, false, R::Resend, true),
    (Append, InBand, Internal, NONE, false, R::Resend, true),
    (Append, InBand, Unknown, NONE, false, R::Resend, true),
    (Append, InBand, Cancelled, NONE, false, R::Resend, true),
    (Append, InBand, DeadlineExceeded, NONE, false, R::Resend, true),
    (Append, RpcEnd, Ok, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, Aborted, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, Unavailable, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, Internal, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, Unknown, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, Cancelled, NONE, false, R::Reconnect, true),
    (Append, RpcEnd, DeadlineExceeded, NONE, false, R::Reconnect, true),
    (Flush, RpcEnd, Aborted, NONE, false, R::Resend, true),
    (Create, RpcEnd, Unavailable, NONE, false, R::Resend, true),
    (Flush, RpcEnd, Internal, NONE, false, R::Resend, true),
    (Flush, RpcEnd, Unknown, NONE, false, R::Resend, true),
    (Create, RpcEnd, Cancelled, NONE, false, R::Resend, true),
    (Flush, RpcEnd, DeadlineExceeded, NONE, false, R::Resend, true),
    (
        Append,
        RpcEnd,
        Unauthenticated,
        NONE,
        false,
        R::RefreshCredentials,
        false,
    ),
    (Flush, RpcEnd, PermissionDenied, NONE, false, R::FailSoon, false),
    (Append, RpcEnd, PermissionDenied, NONE, false, R::FailSoon, false),
    (Append, RpcEnd, Unimplemented, NONE, false, R::FailForGood, false),
    (Append, InBand, DataLoss, NONE, false, R::FailForGood, false),
];

#[test]
fn every_fault_has_the_reaction_its_source_asks_for() {
    for &(phase, place, code, storage_code, rows, reaction, in_doubt) in EXPECTED {
        let verdict = classify(phase, &fault(place, code, storage_code, rows));
        assert_eq!(
            (verdict.reaction, verdict.in_doubt),
            (reaction, in_doubt),
            "{phase:?} {place:?} {code:?} {storage_code:?}"
        );
    }
}

#[test]
fn every_row_of_the_table_is_met_by_a_test_row() {
    let met: BTreeSet<&str> = EXPECTED
        .iter()
        .map(|&(phase, place, code, storage_code, rows, ..)| {
            classify(phase, &fault(place, code, storage_code, rows))
        })
        .map(|verdict| verdict.reason)
        .collect();
    let missing: Vec<&str> = RULES
        .iter()
        .map(|rule| rule.verdict().reason)
        .filter(|reason| !met.contains(reason))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn a_number_grpc_does_not_know_is_unknown() {
    assert_eq!(Code::from_number(16), Unauthenticated);
    assert_eq!((Code::from_number(17), Code::from_number(-1)), (Unknown, Unknown));
}

fn fault(place: Place, code: Code, storage_code: Option<StorageCode>, rows: bool) -> Fault {
    let row_errors = if rows {
        vec![RowFault {
            index: 3,
            message: "too long".into(),
        }]
    } else {
        vec![]
    };
    Fault {
        code,
        storage_code,
        place,
        expected_offset: None,
        row_errors,
        message: String::new(),
    }
}
