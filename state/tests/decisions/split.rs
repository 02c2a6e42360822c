//! Requests that BigQuery refuses as too large (reports.md 72 and 74): cut in two until they fit, under the offsets their rows had.

use bigquery_sink_state::{
    BatchId, Code, Command, Destination, FailureKind, Fault, Generation, Input, Notice, Place, RowCount,
    RowErrorPolicy, RowFault, StreamName,
};

use crate::bench::*;

pub(crate) const TEXT: &str = "AppendRows request too large: 11854265 limit 10485760";

pub(crate) fn too_large(place: Place) -> Fault {
    Fault {
        message: TEXT.into(),
        ..fault(Code::InvalidArgument, place)
    }
}

pub(crate) fn rows(id: u64, rows: u64) -> Input {
    Input::Batch {
        destination: Destination::Table,
        id: BatchId(id),
        rows: RowCount(rows),
        bytes: rows * 100,
    }
}

pub(crate) fn split(batch: u64) -> Command {
    Command::Split {
        batch: BatchId(batch),
    }
}

/// The request keeps so many rows, the others get a number of their own.
pub(crate) fn was_split(batch: u64, rows: u64, rest: u64) -> Input {
    Input::BatchSplit {
        batch: BatchId(batch),
        rows: RowCount(rows),
        bytes: rows * 100,
        rest: BatchId(rest),
        rest_bytes: 100,
    }
}

fn ended(connection: u64) -> Input {
    Input::ConnectionLost {
        connection: Generation(connection),
        fault: too_large(Place::RpcEnd),
    }
}

/// Behind one acknowledged row, requests 2 and 3 of four and two rows are under way at offsets 1 and 5.
fn two_under_way() -> Bench {
    let mut bench = Bench::flowing();
    bench.tell(rows(2, 4));
    bench.tell(rows(3, 2));
    bench
}

#[test]
fn a_request_is_halved_until_it_fits_and_no_row_changes_its_offset() {
    // Invariant 4: a resend may be split.
    let mut bench = two_under_way();
    let notice = Notice::RequestTooLarge {
        bytes: 400,
        fault: too_large(Place::InBand),
    };
    let commands = bench.tell(refused(1, 2, too_large(Place::InBand)));
    assert_eq!(commands, [Command::Notice(notice), split(2)]);
    assert_eq!(bench.tell(was_split(2, 2, 20)), [], "the answer behind is due");
    let echo = bench.tell(refused(1, 3, offset_fault(Code::OutOfRange, 1)));
    assert_eq!(acts(echo), [append(1, 4, 1, 2)]);
    let commands = bench.tell(refused(1, 4, too_large(Place::InBand)));
    assert_eq!(acts(commands), [split(2)]);
    assert_eq!(bench.tell(was_split(2, 1, 21)), [append(1, 5, 1, 2)]);
    let rest = [append(1, 6, 2, 21), append(1, 7, 3, 20), append(1, 8, 5, 3)];
    let commands = bench.tell(acked(1, 5, 1));
    assert_eq!(commands[1..], rest);
    for (request, offset) in [(6, 2), (7, 3), (8, 5)] {
        bench.tell(acked(1, request, offset));
    }
    assert_eq!(bench.core.inflight_bytes(), 0);
}

#[test]
fn as_the_end_of_the_call_it_counts_where_it_can_be_about_one_request_only() {
    let mut bench = two_under_way();
    assert_eq!(acts(bench.tell(ended(1))), []);
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 4, 1, 2)]);
    assert_eq!(acts(bench.tell(ended(2))), [split(2)]);
    assert_eq!(
        bench.tell(was_split(2, 2, 20)),
        [connect(3, "s1"), append(3, 5, 1, 2)],
        "the stream is kept: no offset changes its rows"
    );
    // The whole had been stored after all: both parts meet their own rows (invariant 5).
    let taken = |request| refused(3, request, offset_fault(Code::AlreadyExists, 5));
    let commands = bench.tell(taken(5));
    assert_eq!(notices(&commands), [Notice::OwnResendStored]);
    assert_eq!(acts(commands)[1..], [append(3, 6, 3, 20), append(3, 7, 5, 3)]);
    assert_eq!(notices(&bench.tell(taken(6))), [Notice::OwnResendStored]);
}

#[test]
fn a_single_row_that_is_too_large_does_not_fit() {
    let alone = |policy| {
        let mut bench = Bench::with(|config| config.row_errors = policy);
        bench.tell(batch(1));
        bench.tell(created("s1"));
        bench.tell(refused(1, 1, too_large(Place::InBand)))
    };
    let failure = failure(&alone(RowErrorPolicy::Fail)).unwrap();
    assert_eq!(failure.kind, FailureKind::User);
    assert_eq!(
        failure.message,
        format!(
            "the row at offset 0 of s1 takes 100 bytes, which BigQuery does not take: {TEXT}; shorten its values, or let such rows \
             become dead letters (option 'row_errors')"
        )
    );
    let removed = Command::RemoveRows {
        batch: BatchId(1),
        rows: vec![RowFault {
            index: 0,
            message: format!("takes 100 bytes, which BigQuery does not take: {TEXT}"),
        }],
    };
    assert_eq!(acts(alone(RowErrorPolicy::DeadLetter)), [removed]);
}

#[test]
fn a_dead_letter_that_is_too_large_ends_the_job() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(Input::RowsRefused { rows: RowCount(1) });
    bench.tell(Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(1),
        rows: RowCount(1),
        bytes: 100,
    });
    bench.tell(Input::StreamCreated {
        lane: bigquery_sink_state::Lane(1),
        stream: StreamName("dead/s1".into()),
    });
    let failure = failure(&bench.tell(refused(1, 1, too_large(Place::InBand)))).unwrap();
    assert_eq!(failure.kind, FailureKind::User);
    assert!(
        failure
            .message
            .starts_with("appending dead letters failed: InvalidArgument: AppendRows request too large"),
        "{}",
        failure.message
    );
}

#[test]
fn halving_uses_up_no_budget_and_ends() {
    let mut bench = Bench::new();
    bench.tell(rows(1, 1 << 20));
    bench.tell(created("s1"));
    let mut request = 1;
    for half in (0..20).rev() {
        let refused = refused(1, request, too_large(Place::InBand));
        let commands = bench.later(std::time::Duration::from_secs(60), refused);
        assert_eq!(acts(commands), [split(1)]);
        request += 1;
        let commands = bench.tell(was_split(1, 1 << half, 100 + half));
        assert_eq!(commands, [append(1, request, 0, 1)]);
    }
    let single = failure(&bench.tell(refused(1, request, too_large(Place::InBand)))).unwrap();
    assert!(
        single.message.starts_with("the row at offset 0 of s1 "),
        "{}",
        single.message
    );
}

#[test]
fn a_cut_that_was_not_asked_for_or_cuts_nothing_is_the_drivers_mistake() {
    let mut bench = two_under_way();
    let unasked = failure(&bench.tell(was_split(2, 2, 20))).unwrap();
    assert_eq!(unasked.kind, FailureKind::Host);
    assert_eq!(
        unasked.message,
        "request 2 was cut in two, which was not asked for"
    );
    for rows in [0, 4] {
        let mut bench = two_under_way();
        bench.tell(refused(1, 2, too_large(Place::InBand)));
        let failure = failure(&bench.tell(was_split(2, rows, 20))).unwrap();
        assert_eq!(
            failure.message,
            format!("a request of 4 rows was cut after {rows}")
        );
    }
}

#[test]
fn a_stream_that_ends_meanwhile_gives_both_parts_to_the_next() {
    let mut bench = Bench::new();
    bench.tell(rows(1, 3));
    bench.tell(created("s1"));
    bench.tell(refused(1, 1, too_large(Place::InBand)));
    assert_eq!(acts(bench.tell(lost(1, Code::FailedPrecondition))), []);
    assert_eq!(bench.tell(was_split(1, 1, 20)), [create(0)]);
    let commands = bench.tell(created("s2"));
    assert_eq!(acts(commands), [connect(2, "s2"), append(2, 2, 0, 1)]);
    assert_eq!(bench.tell(acked(2, 2, 0))[1..], [append(2, 3, 1, 20)]);
    bench.tell(acked(2, 3, 1));
    assert_eq!(bench.core.inflight_bytes(), 0);
}
