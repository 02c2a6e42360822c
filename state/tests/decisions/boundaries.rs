//! Where one decision ends and the next begins: limits to the microsecond, and answers that look alike.

use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Code, Command, Epoch, FailureKind, Fault, Generation, Input, Lane, Micros, Notice, Place,
    RowCount, RowErrorPolicy, RowFault,
};

use crate::bench::*;

/// Well within the seven days BigQuery keeps an idle stream.
const THREE_DAYS: Duration = Duration::from_secs(259_200);

fn ended(connection: u64, fault: Fault) -> Input {
    Input::ConnectionLost {
        connection: Generation(connection),
        fault,
    }
}

fn bad_row(place: Place) -> Fault {
    let row_errors = vec![RowFault {
        index: 0,
        message: "too long".into(),
    }];
    Fault {
        row_errors,
        ..fault(Code::InvalidArgument, place)
    }
}

/// Rows 2 and 3 are under way behind an acknowledged one.
fn two_under_way(row_errors: RowErrorPolicy) -> Bench {
    let mut bench = Bench::with(|config| config.row_errors = row_errors);
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(acked(1, 1, 0));
    bench.tell(batch(2));
    bench.tell(batch(3));
    bench
}

#[test]
fn a_stream_is_left_only_when_it_was_idle_for_more_than_three_days() {
    let mut kept = Bench::flowing();
    assert_eq!(kept.later(THREE_DAYS, batch(2)), [append(1, 2, 1, 2)]);
    let mut left = Bench::flowing();
    let commands = left.later(THREE_DAYS + Duration::from_micros(1), batch(2));
    let disconnect = Command::Disconnect {
        connection: Generation(1),
    };
    assert_eq!(acts(commands), [disconnect, create(0)]);
}

#[test]
fn a_resend_is_waited_for_only_when_every_answer_behind_it_is_in() {
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)));
    // The answer to request 3 is due until half of append.timeout is over.
    let silence = START.after(Duration::from_secs(150));
    assert_eq!(bench.core.next_wake(), Some(silence));
    bench.tell(refused(1, 3, offset_fault(Code::OutOfRange, 1)));
    let pause = |wake: Micros| wake.since(START) <= Duration::from_millis(100);
    assert!(bench.core.next_wake().is_some_and(pause));
    assert_eq!(bench.wake(), [append(1, 4, 1, 2)]);
}

#[test]
fn a_passing_fault_that_stays_takes_a_new_connection() {
    let passing = || fault(Code::Internal, Place::InBand);
    let mut bench = Bench::open();
    assert_eq!(acts(bench.tell(refused(1, 1, passing()))), []);
    assert_eq!(bench.wake(), [append(1, 2, 0, 1)]);
    let disconnect = Command::Disconnect {
        connection: Generation(1),
    };
    assert_eq!(acts(bench.tell(refused(1, 2, passing()))), [disconnect]);
    assert_eq!(bench.wake(), [connect(2, "s1"), append(2, 3, 0, 1)]);
}

#[test]
fn faults_before_a_stream_was_created_take_no_patience_from_its_appends() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(Input::CreateFailed {
        lane: Lane(0),
        fault: fault(Code::Unavailable, Place::RpcEnd),
    });
    assert_eq!(bench.wake(), [create(0)]);
    bench.tell(created("s1"));
    // It is the first passing fault of the stream: no reason for a new connection.
    let refusal = refused(1, 1, fault(Code::Internal, Place::InBand));
    assert_eq!(acts(bench.tell(refusal)), []);
    assert_eq!(bench.wake(), [append(1, 2, 0, 1)]);
}

#[test]
fn an_offset_that_is_taken_when_nothing_is_under_way_is_an_idle_close() {
    let taken = Fault {
        place: Place::RpcEnd,
        ..offset_fault(Code::AlreadyExists, 1)
    };
    let mut bench = Bench::flowing();
    assert_eq!(
        bench.tell(ended(1, taken.clone())),
        [Command::Notice(Notice::Reconnect { fault: taken })]
    );
    assert_eq!(bench.tell(batch(2)), [connect(2, "s1"), append(2, 2, 1, 2)]);
}

#[test]
fn bad_rows_that_may_be_of_either_request_fail_a_job_without_dead_letters_at_once() {
    let mut bench = two_under_way(RowErrorPolicy::Fail);
    let failure = failure(&bench.tell(ended(1, bad_row(Place::RpcEnd)))).unwrap();
    assert_eq!(failure.kind, FailureKind::User);
    assert_eq!(
        failure.to_string(),
        "appending failed: InvalidArgument: text; row 1 of the request: too long (rows of the request are bad)"
    );
}

#[test]
fn bad_rows_of_a_request_behind_a_failed_one_are_not_looked_for_in_the_failed_one() {
    let mut bench = two_under_way(RowErrorPolicy::DeadLetter);
    bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)));
    // The one answer that is due is not the first unacknowledged request's.
    let bad = bad_row(Place::RpcEnd);
    assert_eq!(
        bench.tell(ended(1, bad.clone())),
        [Command::Notice(Notice::Reconnect { fault: bad })]
    );
    assert_eq!(bench.wake(), [connect(2, "s1"), append(2, 4, 1, 2)]);
}

#[test]
fn a_call_that_ends_with_an_offset_beyond_the_end_is_no_reason_to_replace_the_stream() {
    // Rows that are lost stay lost: only a restart reads them again.
    let beyond = Fault {
        place: Place::RpcEnd,
        ..offset_fault(Code::OutOfRange, 0)
    };
    let mut bench = Bench::open();
    let mut connection = 1;
    let failed = loop {
        let commands = bench.tell(ended(connection, beyond.clone()));
        if let Some(failure) = failure(&commands) {
            break failure;
        }
        connection += 1;
        assert_eq!(
            bench.wake(),
            [connect(connection, "s1"), append(connection, connection, 0, 1)]
        );
    };
    assert_eq!(failed.kind, FailureKind::Restart);
    assert_eq!(
        failed.message,
        "appending failed: OutOfRange: text (the offset is beyond the stream's end); the job restarts from its checkpoint"
    );
}

#[test]
fn a_stream_that_was_left_and_owes_nothing_is_in_no_checkpoint() {
    let mut bench = Bench::open();
    bench.tell(lost(1, Code::FailedPrecondition));
    bench.tell(created("s2"));
    bench.tell(acked(2, 2, 0));
    let commands = bench.tell(Input::Barrier { epoch: Epoch(1) });
    let [Command::Prepared { state, .. }] = commands.as_slice() else {
        panic!("{commands:?}");
    };
    let streams: Vec<&str> = state
        .streams
        .iter()
        .map(|stream| stream.state.stream.0.as_ref())
        .collect();
    assert_eq!(streams, ["s2"]);
}

#[test]
fn a_second_stream_that_is_left_without_rows_is_replaced_by_the_next_rows_only() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(lost(1, Code::FailedPrecondition));
    bench.tell(created("s2"));
    bench.tell(refused(2, 2, bad_row(Place::InBand)));
    bench.tell(Input::RowsRemoved {
        batch: BatchId(1),
        rows: RowCount(0),
        bytes: 0,
        dead_letters: RowCount(1),
    });
    assert_eq!(acts(bench.tell(lost(2, Code::FailedPrecondition))), []);
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(2)), [create(0)]);
}
