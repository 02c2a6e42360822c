//! The error table, row by row.

use std::collections::BTreeSet;

use bigquery_sink_state::{Code, Fault, Phase, Place, RULES, Reaction, RowFault, StorageCode, classify};

use Code::*;
use Phase::{Append, Create, DefaultAppend, Flush};
use Place::{InBand, RpcEnd};
use Reaction as R;

type Row = (Phase, Place, Code, Option<StorageCode>, bool, Reaction);

const NONE: Option<StorageCode> = None;

/// Phase, place, code, StorageError, with row errors -> reaction (write-api.md 3).
#[rustfmt::skip]
const EXPECTED: &[Row] = &[
    (Append, InBand, AlreadyExists, Some(StorageCode::OffsetAlreadyExists), false, R::OffsetTaken),
    (Append, RpcEnd, AlreadyExists, NONE, false, R::OffsetTaken),
    (Append, InBand, OutOfRange, Some(StorageCode::OffsetOutOfRange), false, R::OffsetBeyondEnd),
    (Append, InBand, OutOfRange, NONE, false, R::OffsetBeyondEnd),
    (Flush, RpcEnd, AlreadyExists, NONE, false, R::Success),
    (Flush, RpcEnd, OutOfRange, NONE, false, R::OffsetBeyondEnd),
    (Append, InBand, InvalidArgument, Some(StorageCode::StreamFinalized), false, R::Gone),
    (Append, InBand, FailedPrecondition, Some(StorageCode::StreamFinalized), false, R::Gone),
    (Flush, RpcEnd, InvalidArgument, Some(StorageCode::StreamFinalized), false, R::Gone),
    (Flush, RpcEnd, InvalidArgument, NONE, false, R::Gone),
    (Create, RpcEnd, NotFound, Some(StorageCode::TableNotFound), false, R::FailSoon),
    (Append, InBand, NotFound, Some(StorageCode::StreamNotFound), false, R::MaybeGone),
    (Append, RpcEnd, NotFound, NONE, false, R::MaybeGone),
    (Flush, RpcEnd, NotFound, NONE, false, R::MaybeGone),
    (Append, RpcEnd, FailedPrecondition, NONE, false, R::Gone),
    (Create, RpcEnd, FailedPrecondition, NONE, false, R::Resend),
    (Flush, RpcEnd, FailedPrecondition, NONE, false, R::Resend),
    (Append, InBand, InvalidArgument, NONE, true, R::RejectRows),
    (Append, RpcEnd, InvalidArgument, Some(StorageCode::SchemaMismatchExtraFields), false, R::SchemaLag),
    (Create, RpcEnd, InvalidArgument, Some(StorageCode::SchemaMismatchExtraFields), false, R::SchemaLag),
    (Append, InBand, InvalidArgument, Some(StorageCode::KmsServiceError), false, R::Resend),
    (Append, InBand, FailedPrecondition, Some(StorageCode::KmsServiceError), false, R::Resend),
    (Flush, RpcEnd, InvalidArgument, Some(StorageCode::KmsServiceError), false, R::Resend),
    (Append, InBand, InvalidArgument, NONE, false, R::FailForGood),
    (Append, RpcEnd, InvalidArgument, NONE, false, R::FailForGood),
    (Create, RpcEnd, InvalidArgument, NONE, false, R::FailForGood),
    (Append, InBand, ResourceExhausted, NONE, false, R::BackOff),
    (Create, RpcEnd, ResourceExhausted, NONE, false, R::BackOff),
    (Flush, RpcEnd, ResourceExhausted, NONE, false, R::BackOff),
    (Append, InBand, Aborted, NONE, false, R::Resend),
    (Append, InBand, Unavailable, NONE, false, R::Resend),
    (Append, InBand, Internal, NONE, false, R::Resend),
    (Append, InBand, Unknown, NONE, false, R::Resend),
    (Append, InBand, Cancelled, NONE, false, R::Resend),
    (Append, InBand, DeadlineExceeded, NONE, false, R::Resend),
    (Append, RpcEnd, Ok, NONE, false, R::Reconnect),
    (Append, RpcEnd, Aborted, NONE, false, R::Reconnect),
    (Append, RpcEnd, Unavailable, NONE, false, R::Reconnect),
    (Append, RpcEnd, Internal, NONE, false, R::Reconnect),
    (Append, RpcEnd, Unknown, NONE, false, R::Reconnect),
    (Append, RpcEnd, Cancelled, NONE, false, R::Reconnect),
    (Append, RpcEnd, DeadlineExceeded, NONE, false, R::Reconnect),
    (Flush, RpcEnd, Aborted, NONE, false, R::Resend),
    (Create, RpcEnd, Unavailable, NONE, false, R::Resend),
    (Flush, RpcEnd, Internal, NONE, false, R::Resend),
    (Flush, RpcEnd, Unknown, NONE, false, R::Resend),
    (Create, RpcEnd, Cancelled, NONE, false, R::Resend),
    (Flush, RpcEnd, DeadlineExceeded, NONE, false, R::Resend),
    (Append, RpcEnd, Unauthenticated, NONE, false, R::RefreshCredentials),
    (Flush, RpcEnd, PermissionDenied, NONE, false, R::FailSoon),
    (Append, RpcEnd, PermissionDenied, NONE, false, R::FailSoon),
    (Append, RpcEnd, Unimplemented, NONE, false, R::FailForGood),
    (Append, InBand, DataLoss, NONE, false, R::Restart),
    (DefaultAppend, InBand, AlreadyExists, Some(StorageCode::OffsetAlreadyExists), false, R::Restart),
    (DefaultAppend, InBand, OutOfRange, Some(StorageCode::OffsetOutOfRange), false, R::Restart),
    (DefaultAppend, InBand, InvalidArgument, Some(StorageCode::StreamFinalized), false, R::Gone),
    (DefaultAppend, InBand, InvalidArgument, Some(StorageCode::SchemaMismatchExtraFields), false, R::SchemaLag),
    (DefaultAppend, InBand, InvalidArgument, Some(StorageCode::KmsServiceError), false, R::Resend),
    (DefaultAppend, InBand, NotFound, Some(StorageCode::TableNotFound), false, R::FailSoon),
    (DefaultAppend, RpcEnd, FailedPrecondition, NONE, false, R::Resend),
    (DefaultAppend, InBand, InvalidArgument, NONE, true, R::RejectRows),
    (DefaultAppend, RpcEnd, InvalidArgument, NONE, false, R::FailForGood),
    (DefaultAppend, InBand, ResourceExhausted, NONE, false, R::BackOff),
    (DefaultAppend, RpcEnd, Ok, NONE, false, R::Reconnect),
    (DefaultAppend, RpcEnd, Unavailable, NONE, false, R::Reconnect),
    (DefaultAppend, InBand, Internal, NONE, false, R::Resend),
    (DefaultAppend, RpcEnd, Unauthenticated, NONE, false, R::RefreshCredentials),
    (DefaultAppend, RpcEnd, PermissionDenied, NONE, false, R::FailSoon),
];

#[test]
fn every_fault_has_the_reaction_its_source_asks_for() {
    for &(phase, place, code, storage_code, rows, reaction) in EXPECTED {
        let verdict = classify(phase, &fault(place, code, storage_code, rows));
        assert_eq!(
            verdict.reaction, reaction,
            "{phase:?} {place:?} {code:?} {storage_code:?}"
        );
    }
}

#[test]
fn every_row_of_the_table_decides_a_test_row() {
    let mut deciding: BTreeSet<usize> = EXPECTED
        .iter()
        .filter_map(|&(phase, place, code, storage_code, rows, ..)| {
            let fault = fault(place, code, storage_code, rows);
            RULES.iter().position(|rule| rule.fits(phase, &fault))
        })
        .collect();
    let too_large = RULES
        .iter()
        .position(|rule| rule.fits(Append, &too_large(RpcEnd)));
    deciding.extend(too_large);
    assert_eq!(deciding, (0..RULES.len()).collect());
}

#[test]
fn a_request_that_is_too_large_is_told_by_its_text() {
    for place in [InBand, RpcEnd] {
        assert_eq!(classify(Append, &too_large(place)).reaction, R::Split);
        assert_eq!(classify(Create, &too_large(place)).reaction, R::FailForGood);
    }
}

fn too_large(place: Place) -> Fault {
    Fault {
        message: "AppendRows request too large: 11854265 limit 10485760".to_owned(),
        ..fault(place, InvalidArgument, NONE, false)
    }
}

#[test]
fn a_number_grpc_does_not_know_is_unknown() {
    assert_eq!(Code::from_number(16), Unauthenticated);
    assert_eq!((Code::from_number(17), Code::from_number(-1)), (Unknown, Unknown));
}

#[test]
fn storage_codes_have_the_numbers_of_the_wire() {
    let known: Vec<(i32, StorageCode)> = (-1..=20)
        .filter_map(|number| Some((number, StorageCode::from_number(number)?)))
        .collect();
    assert_eq!(
        known,
        [
            (1, StorageCode::TableNotFound),
            (3, StorageCode::StreamNotFound),
            (6, StorageCode::StreamFinalized),
            (7, StorageCode::SchemaMismatchExtraFields),
            (8, StorageCode::OffsetAlreadyExists),
            (9, StorageCode::OffsetOutOfRange),
            (13, StorageCode::KmsServiceError),
        ]
    );
}

#[test]
fn ten_bad_rows_are_shown_and_the_others_counted() {
    let shown = |rows: u64| {
        let row = |index| RowFault {
            index,
            message: "bad".into(),
        };
        let fault = Fault {
            row_errors: (0..rows).map(row).collect(),
            ..fault(InBand, InvalidArgument, NONE, false)
        };
        fault.to_string()
    };
    // Counted from 1, as the sink counts the rows of a batch.
    let ten: String = (1..=10)
        .map(|row| format!("; row {row} of the request: bad"))
        .collect();
    let ten = format!("InvalidArgument{ten}");
    assert_eq!(shown(10), ten);
    assert_eq!(shown(12), format!("{ten}; and 2 more rows"));
}

/// reports.md 90
#[test]
fn a_text_of_a_megabyte_is_told_in_few_words_and_the_rows_are_counted() {
    let row = |index| RowFault {
        index,
        message: format!("Field a: {}", "\u{e4}".repeat(1 << 19)),
    };
    let fault = Fault {
        row_errors: (0..5_000).map(row).collect(),
        message: "\u{e4}".repeat(1 << 19),
        ..fault(InBand, InvalidArgument, NONE, false)
    };
    let text = fault.to_string();
    assert!(text.len() < 9_000, "{} bytes", text.len());
    assert!(text.starts_with("InvalidArgument: \u{e4}\u{e4}"), "{text}");
    assert!(
        text.contains("\u{e4}… (1048576 bytes in all); row 1 of the request: Field a: \u{e4}"),
        "{text}"
    );
    assert!(
        text.ends_with("\u{e4}… (1048585 bytes in all); and 4990 more rows"),
        "{text}"
    );
}

/// Errors and logs hold no values of rows; BigQuery's texts do.
#[test]
fn what_a_server_says_of_a_row_is_told_without_its_value() {
    let kept = [
        "Field foo: STRING(10) has maximum length 10 but got a value with length 12 on field foo.",
        "Field foo: STRING(65536) has maximum length 65536 but got a value with length 70000 on field foo.",
        "NULL value is not allowed on field a.b.",
        "it doesn't fit",
        "",
    ];
    let cut = [
        (
            "Timestamp field value is out of range: 1690825888385999872 on field at.",
            "Timestamp field value is out of range: … on field at.",
        ),
        ("Invalid NUMERIC value: 12.5", "Invalid NUMERIC value: …"),
        (
            "Field a: Invalid date: 31.12. on field a.",
            "Field a: Invalid date: … on field a.",
        ),
        (
            "Could not convert value 'my secret' to integer.",
            "Could not convert value '…' to integer.",
        ),
        (
            "It didn't take \"a \"secret\" one\" here",
            "It didn't take \"…\" here",
        ),
        ("Bad `secret and on", "Bad `…"),
        ("Cannot parse 2024-01-31 as DATE", "Cannot parse … as DATE"),
        ("Cannot parse -123456.5 as INT64", "Cannot parse -… as INT64"),
        ("Bad value: 'on field x' on field y.", "Bad value: … on field y."),
    ];
    let cases = kept.into_iter().map(|text| (text, text)).chain(cut);
    for (said, told) in cases {
        let row = RowFault {
            index: 0,
            message: said.to_owned(),
        };
        assert_eq!(row.text(), told, "{said}");
        let fault = Fault {
            row_errors: vec![row],
            ..fault(InBand, InvalidArgument, NONE, false)
        };
        assert_eq!(
            fault.to_string(),
            format!("InvalidArgument; row 1 of the request: {told}")
        );
    }
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
