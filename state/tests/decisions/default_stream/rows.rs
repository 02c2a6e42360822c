//! Rows that BigQuery refuses.

use bigquery_sink_state::{
    BatchId, Command, Destination, Epoch, Failure, FailureKind, Fault, Generation, Input, Notice, Place,
    RowCount, RowErrorPolicy, StreamName,
};

use super::*;

#[test]
fn refused_rows_end_the_job_where_that_is_the_policy() {
    let mut bench = Bench::flowing();
    assert_eq!(
        failure(&bench.tell(refused(1, 2, bad_rows(&[0])))),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 1 of the request: bad 0 (rows of the request are bad)".into()
        })
    );
}

#[test]
fn refused_rows_leave_their_request_and_are_owed_as_dead_letters() {
    let mut bench = Bench::flowing_with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    let three = Input::Batch {
        destination: Destination::Table,
        id: BatchId(5),
        rows: RowCount(3),
        bytes: 300,
    };
    assert_eq!(bench.tell(three), [append(1, 5, 5)]);
    for request in 2..=4 {
        bench.tell(acked(1, request));
    }
    let rejected = Notice::RowsRejected {
        stream: StreamName(TABLE.into()),
        rows: RowCount(2),
    };
    assert_eq!(
        bench.tell(refused(1, 5, bad_rows(&[2, 7, 0]))),
        [
            Command::Notice(rejected),
            Command::RemoveRows {
                batch: BatchId(5),
                rows: bad_rows(&[0, 2]).row_errors
            }
        ]
    );
    assert_eq!(
        bench.tell(batch(6)),
        [append(1, 6, 6)],
        "nothing waits for the driver"
    );
    let removed = |rows, dead_letters| Input::RowsRemoved {
        batch: BatchId(5),
        rows: RowCount(rows),
        bytes: 100,
        dead_letters: RowCount(dead_letters),
    };
    assert_eq!(bench.tell(removed(1, 2)), [append(1, 7, 5)]);
    bench.tell(acked(1, 6));
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    assert!(bench.core.wants_dead_letters());
    assert_eq!(bench.tell(acked(1, 7)), [release(5)], "two dead letters are owed");
    let letters = Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(7),
        rows: RowCount(2),
        bytes: 300,
    };
    assert_eq!(bench.tell(letters), [connect(2, DEAD_LETTERS), append(2, 8, 7)]);
    assert!(!bench.core.wants_dead_letters());
    let now = bench.now;
    assert_eq!(bench.tell(acked(2, 8)), [release(7), prepared(1, 8, now)]);
}

#[test]
fn a_request_without_good_rows_is_never_sent_again() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(batch(1));
    bench.tell(refused(1, 1, bad_rows(&[0])));
    let removed = |batch, rows, dead_letters| Input::RowsRemoved {
        batch: BatchId(batch),
        rows: RowCount(rows),
        bytes: 0,
        dead_letters: RowCount(dead_letters),
    };
    assert_eq!(bench.tell(removed(1, 0, 1)), [release(1)]);
    assert_eq!(bench.core.inflight_bytes(), 0);
    assert_eq!(
        bench.tell(removed(1, 0, 1)),
        [host_failure(
            "rows were taken out of request 1, which was not asked for"
        )]
    );
}

#[test]
fn a_refusal_that_names_no_row_of_the_request_or_a_dead_letter_ends_the_job() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(batch(1));
    assert_eq!(
        failure(&bench.tell(refused(1, 1, bad_rows(&[1])))),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 2 of the request: bad 1; the refused request to t/streams/_default holds rows 1 to 1, \
                      so that nothing tells which to leave out"
                .into()
        })
    );
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(Input::RowsRefused { rows: RowCount(1) });
    bench.tell(Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(1),
        rows: RowCount(1),
        bytes: 100,
    });
    assert_eq!(
        failure(&bench.tell(refused(1, 1, bad_rows(&[0])))).map(|failure| failure.message),
        Some(
            "appending dead letters failed: InvalidArgument: text; row 1 of the request: bad 0; a dead letter that is refused itself can go nowhere. Change \
             the dead-letter table so that it takes what the sink writes there, or name another one, and start again"
                .into()
        )
    );
}

#[test]
fn row_errors_at_the_end_of_a_call_count_where_one_request_was_under_way() {
    let end = |connection| Input::ConnectionLost {
        connection: Generation(connection),
        fault: Fault {
            place: Place::RpcEnd,
            ..bad_rows(&[0])
        },
    };
    let mut bench = Bench::flowing_with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    assert_eq!(acts(bench.tell(end(1))), [], "three were under way");
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
    assert_eq!(
        acts(bench.tell(end(2))),
        [
            Command::RemoveRows {
                batch: BatchId(2),
                rows: bad_rows(&[0]).row_errors
            },
            connect(3, TABLE),
            append(3, 6, 3)
        ]
    );
}
