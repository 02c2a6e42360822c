//! Requests that BigQuery refuses as too large (reports.md 72 and 74).

use bigquery_sink_state::{
    BatchId, Code, Command, Destination, FailureKind, Generation, Input, Notice, Place, RowCount,
    RowErrorPolicy, RowFault,
};

use super::*;
use crate::split::{TEXT, rows, split, too_large, was_split};

/// Behind one acknowledged row, requests 2 and 3 of four and two rows are under way.
fn two_under_way(policy: RowErrorPolicy) -> Bench {
    let mut bench = Bench::with(|config| config.row_errors = policy);
    bench.tell(batch(1));
    bench.tell(acked(1, 1));
    bench.tell(rows(2, 4));
    bench.tell(rows(3, 2));
    bench
}

#[test]
fn a_request_is_halved_until_it_fits_and_nothing_waits_for_it() {
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    let notice = Notice::RequestTooLarge {
        bytes: 400,
        fault: too_large(Place::InBand),
    };
    let commands = bench.tell(refused(1, 2, too_large(Place::InBand)));
    assert_eq!(commands, [Command::Notice(notice), split(2)]);
    assert_eq!(
        bench.tell(rows(4, 1)),
        [append(1, 4, 4)],
        "nothing waits for the driver"
    );
    assert_eq!(bench.tell(acked(1, 3)), [release(3)]);
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    assert_eq!(
        bench.tell(acked(1, 4)),
        [release(4)],
        "the cut one is not acknowledged"
    );
    assert_eq!(
        bench.tell(was_split(2, 2, 20)),
        [append(1, 5, 2), append(1, 6, 20)],
        "both parts, in order"
    );
    assert_eq!(
        acts(bench.tell(refused(1, 5, too_large(Place::InBand)))),
        [split(2)]
    );
    assert_eq!(
        bench.tell(was_split(2, 1, 21)),
        [append(1, 7, 2), append(1, 8, 21)]
    );
    for (request, id) in [(6, 20), (7, 2)] {
        assert_eq!(bench.tell(acked(1, request)), [release(id)]);
    }
    let now = bench.now;
    assert_eq!(bench.tell(acked(1, 8)), [release(21), prepared(1, 8, now)]);
    assert_eq!(bench.core.inflight_bytes(), 0);
}

#[test]
fn parts_keep_their_place_before_newer_rows() {
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    bench.tell(refused(1, 2, too_large(Place::InBand)));
    bench.tell(lost(1, Code::Unavailable));
    bench.tell(was_split(2, 3, 20));
    assert_eq!(bench.wake(), [connect(2, TABLE), append(2, 4, 2)]);
    assert_eq!(
        bench.tell(acked(2, 4)),
        [release(2), append(2, 5, 20), append(2, 6, 3)]
    );
}

#[test]
fn as_the_end_of_the_call_it_counts_where_one_request_was_under_way() {
    let end = |connection| Input::ConnectionLost {
        connection: Generation(connection),
        fault: too_large(Place::RpcEnd),
    };
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    assert_eq!(acts(bench.tell(end(1))), [], "two were under way");
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 4, 2)]);
    assert_eq!(
        acts(bench.tell(end(2))),
        [split(2), connect(3, TABLE), append(3, 5, 3)]
    );
    assert_eq!(bench.tell(was_split(2, 2, 20)), []);
    let rest = [release(3), append(3, 6, 2), append(3, 7, 20)];
    assert_eq!(bench.tell(acked(3, 5)), rest);
}

#[test]
fn a_single_row_that_is_too_large_does_not_fit() {
    let alone = |policy| {
        let mut bench = Bench::with(|config| config.row_errors = policy);
        bench.tell(batch(1));
        bench.tell(refused(1, 1, too_large(Place::InBand)))
    };
    assert_eq!(
        failure(&alone(RowErrorPolicy::Fail)),
        Some(Failure {
            kind: FailureKind::User,
            message: format!(
                "a row for {TABLE} takes 100 bytes, which BigQuery does not take: {TEXT}; shorten its values, or let such rows become \
                 dead letters (option 'row_errors')"
            )
        })
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
    let failure = failure(&bench.tell(refused(1, 1, too_large(Place::InBand)))).unwrap();
    let start = "appending dead letters failed: InvalidArgument: AppendRows request too large";
    assert!(failure.message.starts_with(start), "{}", failure.message);
}

#[test]
fn a_cut_that_was_not_asked_for_or_cuts_nothing_is_the_drivers_mistake() {
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    let unasked = [host_failure("request 2 was cut in two, which was not asked for")];
    assert_eq!(bench.tell(was_split(2, 2, 20)), unasked);
    for rows in [0, 4] {
        let mut bench = two_under_way(RowErrorPolicy::Fail);
        bench.tell(refused(1, 2, too_large(Place::InBand)));
        let nothing = format!("a request of 4 rows was cut after {rows}");
        assert_eq!(bench.tell(was_split(2, rows, 20)), [host_failure(&nothing)]);
    }
}
