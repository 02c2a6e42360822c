//! Rows that BigQuery refuses: taken out, moved up or taken along to a new stream, and owed as dead letters.

use bigquery_sink_state::{
    BatchId, Code, Command, CoreConfig, Destination, Epoch, FailureKind, Fault, Generation, Input, Lane,
    LeaveReason, NextOffset, Notice, Place, RowCount, RowErrorPolicy, RowFault, StreamName,
};

use crate::bench::*;

/// Names rows as bad.
fn bad_rows(indexes: &[u64]) -> Fault {
    let row = |&index: &u64| RowFault {
        index,
        message: format!("bad {index}"),
    };
    Fault {
        row_errors: indexes.iter().map(row).collect(),
        ..fault(Code::InvalidArgument, Place::InBand)
    }
}

fn rows(id: u64, rows: u64) -> Input {
    Input::Batch {
        destination: Destination::Table,
        id: BatchId(id),
        rows: RowCount(rows),
        bytes: rows * 100,
    }
}

fn dead_letters(id: u64, rows: u64) -> Input {
    Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(id),
        rows: RowCount(rows),
        bytes: rows * 150,
    }
}

fn remove(batch: u64, indexes: &[u64]) -> Command {
    Command::RemoveRows {
        batch: BatchId(batch),
        rows: bad_rows(indexes).row_errors,
    }
}

fn removed(batch: u64, left: u64, dead_letters: u64) -> Input {
    Input::RowsRemoved {
        batch: BatchId(batch),
        rows: RowCount(left),
        bytes: left * 100,
        dead_letters: RowCount(dead_letters),
    }
}

fn release(batch: u64) -> Command {
    Command::Release {
        batch: BatchId(batch),
    }
}

fn disconnect(connection: u64) -> Command {
    Command::Disconnect {
        connection: Generation(connection),
    }
}

fn create_for_dead_letters() -> Command {
    Command::CreateStream {
        lane: Lane(1),
        destination: Destination::DeadLetters,
    }
}

fn created_for_dead_letters(stream: &str) -> Input {
    Input::StreamCreated {
        lane: Lane(1),
        stream: StreamName(stream.into()),
    }
}

fn policy(change: impl FnOnce(&mut CoreConfig)) -> Bench {
    Bench::with(|config| {
        config.row_errors = RowErrorPolicy::DeadLetter;
        change(config);
    })
}

/// Stream `s1` has one row acknowledged; requests 2, 3 and 4, of three, two and one rows, are under way behind it at offsets 1, 4 and 6.
fn three_under_way() -> Bench {
    let mut bench = policy(|_| {});
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(acked(1, 1, 0));
    for (id, count, offset) in [(2, 3, 1), (3, 2, 4), (4, 1, 6)] {
        assert_eq!(bench.tell(rows(id, count)), [append(1, id, offset, id)]);
    }
    bench
}

/// One request of three rows is under way, the first of its stream.
fn one_under_way() -> Bench {
    let mut bench = policy(|_| {});
    bench.tell(rows(1, 3));
    bench.tell(created("s1"));
    bench
}

fn echo(bench: &mut Bench, request: u64) -> Vec<Command> {
    bench.tell(refused(1, request, offset_fault(Code::OutOfRange, 1)))
}

#[test]
fn what_stands_behind_refused_rows_moves_up_when_every_answer_is_in() {
    // Invariant 4: nothing is in doubt.
    let mut bench = three_under_way();
    assert_eq!(bench.tell(refused(1, 2, bad_rows(&[1]))), []);
    assert_eq!(echo(&mut bench, 3), [Command::Notice(Notice::EchoDiscarded)]);
    let rejected = Notice::RowsRejected {
        stream: StreamName("s1".into()),
        rows: RowCount(1),
    };
    assert_eq!(
        echo(&mut bench, 4),
        [
            Command::Notice(Notice::EchoDiscarded),
            Command::Notice(rejected),
            remove(2, &[1])
        ]
    );
    assert_eq!(bench.core.next_wake(), None, "the driver is not waited for");
    assert_eq!(bench.tell(removed(2, 2, 1)), [append(1, 5, 1, 2)]);
    assert_eq!(
        bench.tell(acked(1, 5, 1)),
        [release(2), append(1, 6, 3, 3), append(1, 7, 5, 4)]
    );
    assert_eq!(bench.tell(acked(1, 6, 3)), [release(3)]);
    assert_eq!(bench.tell(acked(1, 7, 5)), [release(4)]);
}

#[test]
fn after_a_row_error_one_request_is_under_way_then_twice_as_many_with_each_that_is_acknowledged() {
    // Invariant 13.
    let mut bench = policy(|config| config.limits.inflight_requests = 16);
    bench.tell(rows(1, 2));
    for id in 2..=15 {
        bench.tell(batch(id));
    }
    bench.tell(created("s1"));
    bench.tell(refused(1, 1, bad_rows(&[0])));
    assert_eq!(bench.tell(removed(1, 1, 1)), [append(1, 2, 0, 1)]);
    let (mut answered, mut sent) = (2, 2);
    let mut under_way = Vec::new();
    while answered < 17 {
        let commands = bench.tell(acked(1, answered, answered - 2));
        answered += 1;
        sent += commands
            .iter()
            .filter(|command| matches!(command, Command::Append { .. }))
            .count() as u64;
        under_way.push(sent + 1 - answered);
    }
    assert_eq!(under_way, [2, 4, 8, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert!(bench.core.has_room());
    // The limits are the usual ones again.
    for id in 16..=31 {
        assert_eq!(bench.tell(batch(id)).len(), 1);
    }
    assert!(!bench.core.has_room());
}

#[test]
fn a_request_without_rows_left_is_released_and_never_sent() {
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[0, 1, 2])));
    echo(&mut bench, 3);
    assert_eq!(acts(echo(&mut bench, 4)), [remove(2, &[0, 1, 2])]);
    assert_eq!(bench.tell(removed(2, 0, 3)), [release(2), append(1, 5, 1, 3)]);
    assert_eq!(bench.tell(acked(1, 5, 1)), [release(3), append(1, 6, 3, 4)]);
}

#[test]
fn a_stream_that_is_empty_again_takes_the_next_rows_at_its_end() {
    let mut bench = one_under_way();
    bench.tell(refused(1, 1, bad_rows(&[0, 1, 2])));
    assert_eq!(bench.tell(removed(1, 0, 3)), [release(1)]);
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.core.inflight_bytes(), 0);
    assert_eq!(bench.tell(rows(2, 1)), [append(1, 2, 0, 2)]);
}

#[test]
fn rows_do_not_move_up_while_a_request_behind_is_in_doubt() {
    // Invariants 4 and 7: it may be stored at its old offset.
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[2])));
    bench.tell(refused(1, 3, fault(Code::Internal, Place::InBand)));
    let commands = echo(&mut bench, 4);
    let left = Notice::StreamLeft {
        stream: StreamName("s1".into()),
        flushable: NextOffset(1),
        reason: LeaveReason::InDoubt,
    };
    let rejected = Notice::RowsRejected {
        stream: StreamName("s1".into()),
        rows: RowCount(1),
    };
    assert_eq!(notices(&commands), [Notice::EchoDiscarded, left, rejected]);
    assert_eq!(acts(commands), [disconnect(1), remove(2, &[2])]);
    assert_eq!(bench.tell(Input::Tick), []);
    assert_eq!(bench.core.inflight_bytes(), 600);
    assert_eq!(bench.tell(removed(2, 2, 1)), [create(0)]);
    assert_eq!(bench.core.inflight_bytes(), 500, "the window counts what is left");
    assert_eq!(bench.tell(created("s2")), [connect(2, "s2"), append(2, 5, 0, 2)]);
    assert_eq!(
        bench.tell(acked(2, 5, 0)),
        [release(2), append(2, 6, 2, 3), append(2, 7, 4, 4)]
    );
}

#[test]
fn a_connection_lost_before_every_answer_is_in_makes_the_subtask_leave_the_stream() {
    // Invariants 4 and 7.
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[0])));
    echo(&mut bench, 3);
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), [remove(2, &[0])]);
    assert_eq!(bench.tell(removed(2, 2, 1)), [], "a loss is followed by a pause");
    assert_eq!(bench.wake(), [create(0)]);
    assert_eq!(bench.tell(created("s2")), [connect(2, "s2"), append(2, 5, 0, 2)]);
}

#[test]
fn a_refused_request_that_was_in_doubt_makes_the_subtask_leave_the_stream() {
    // Invariants 4 and 7.
    let mut bench = one_under_way();
    bench.tell(lost(1, Code::Aborted));
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 2, 0, 1)]);
    let commands = bench.tell(refused(2, 2, bad_rows(&[1])));
    assert_eq!(acts(commands), [disconnect(2), remove(1, &[1])]);
    assert_eq!(bench.tell(removed(1, 2, 1)), [create(0)]);
}

#[test]
fn a_new_stream_is_made_only_if_rows_are_left_for_it() {
    // Invariant 2.
    let mut bench = one_under_way();
    bench.tell(lost(1, Code::Aborted));
    bench.wake();
    bench.tell(refused(2, 2, bad_rows(&[0, 1, 2])));
    assert_eq!(bench.tell(removed(1, 0, 3)), [release(1)]);
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(rows(2, 1)), [create(0)]);
}

#[test]
fn a_connection_lost_while_rows_are_taken_out_puts_nothing_in_doubt() {
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[0])));
    echo(&mut bench, 3);
    echo(&mut bench, 4);
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), []);
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(removed(2, 2, 1)), []);
    assert_eq!(bench.wake(), [connect(2, "s1"), append(2, 5, 1, 2)]);
    assert_eq!(
        bench.tell(acked(2, 5, 1)),
        [release(2), append(2, 6, 3, 3), append(2, 7, 5, 4)]
    );
}

#[test]
fn without_rows_a_lost_connection_is_nothing_to_wait_for() {
    // Invariant 13: a time to be woken at that passes and stays due would keep the driver from everything else.
    let mut bench = one_under_way();
    assert_eq!(
        acts(bench.tell(refused(1, 1, bad_rows(&[0, 1, 2])))),
        [remove(1, &[0, 1, 2])]
    );
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), []);
    assert_eq!(bench.tell(removed(1, 0, 3)), [release(1)]);
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(rows(2, 1)), [], "the pause after the loss holds");
    assert_eq!(bench.wake(), [connect(2, "s1"), append(2, 2, 0, 2)]);
}

#[test]
fn a_stream_that_may_be_gone_is_not_left_with_rows_that_are_owed() {
    // Invariant 7.
    let mut bench = three_under_way();
    bench.tell(lost(1, Code::NotFound));
    bench.wake();
    let failure = failure(&bench.tell(refused(2, 5, bad_rows(&[0])))).unwrap();
    assert_eq!(failure.kind, FailureKind::Restart);
    assert_eq!(
        failure.message,
        "stream s1 is gone with rows 0 to 0 acknowledged but not visible (InvalidArgument: text; row 1 of the request: bad 0); \
         the job restarts from its checkpoint"
    );
}

#[test]
fn an_echo_that_says_the_stream_is_gone_is_no_reason_to_leave_it_with_rows_that_are_owed() {
    // Invariant 7: the same echo is met again where rows can move up.
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[0])));
    bench.tell(refused(1, 3, fault(Code::NotFound, Place::InBand)));
    let internal = fault(Code::Internal, Place::InBand);
    let failure = failure(&bench.tell(refused(1, 4, internal))).unwrap();
    assert_eq!(failure.kind, FailureKind::Restart);
    assert_eq!(
        failure.message,
        "stream s1 is gone with rows 0 to 0 acknowledged but not visible (NotFound: text); the job restarts from its checkpoint"
    );
    let mut bench = three_under_way();
    bench.tell(refused(1, 2, bad_rows(&[0])));
    bench.tell(refused(1, 3, fault(Code::NotFound, Place::InBand)));
    assert_eq!(acts(echo(&mut bench, 4)), [remove(2, &[0])]);
}

#[test]
fn a_row_error_as_the_end_of_the_call_counts_where_it_can_be_about_one_request_only() {
    let end = |connection| Input::ConnectionLost {
        connection: Generation(connection),
        fault: Fault {
            place: Place::RpcEnd,
            ..bad_rows(&[1])
        },
    };
    // Two more are under way: which one has bad rows is not told.
    let mut bench = three_under_way();
    assert_eq!(acts(bench.tell(end(1))), []);
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 5, 1, 2)]);
    assert_eq!(acts(bench.tell(end(2))), [remove(2, &[1])]);
    assert_eq!(bench.tell(removed(2, 2, 1)), [create(0)]);
}

#[test]
fn rows_are_named_once_in_order_and_within_the_request() {
    let mut bench = one_under_way();
    let commands = bench.tell(refused(1, 1, bad_rows(&[2, 0, 7, 2, u64::MAX])));
    assert_eq!(acts(commands), [remove(1, &[0, 2])]);
}

#[test]
fn a_refusal_that_names_no_row_of_its_request_ends_the_job() {
    // Each round takes out one row at least.
    let outside = failure(&one_under_way().tell(refused(1, 1, bad_rows(&[3])))).unwrap();
    assert_eq!(outside.kind, FailureKind::User);
    assert_eq!(
        outside.message,
        "appending failed: InvalidArgument: text; row 4 of the request: bad 3; the refused request to s1 holds rows 1 to 3, \
         so that nothing tells which to leave out"
    );
    let none = failure(&one_under_way().tell(refused(1, 1, bad_rows(&[])))).unwrap();
    assert_eq!(none.kind, FailureKind::User);
    assert_eq!(
        none.message,
        "appending failed: InvalidArgument: text (the request is wrong)"
    );
}

#[test]
fn row_errors_use_up_no_budget() {
    let mut bench = policy(|_| {});
    bench.tell(rows(1, 1_000));
    bench.tell(created("s1"));
    for left in (1..1_000).rev() {
        let request = 1_000 - left;
        let commands = bench.later(
            std::time::Duration::from_secs(60),
            refused(1, request, bad_rows(&[0])),
        );
        assert_eq!(acts(commands), [remove(1, &[0])]);
        assert_eq!(bench.tell(removed(1, left, 1)), [append(1, request + 1, 0, 1)]);
    }
}

#[test]
fn dead_letters_have_a_stream_of_their_own_in_the_same_checkpoint() {
    let mut bench = one_under_way();
    bench.tell(refused(1, 1, bad_rows(&[1])));
    bench.tell(removed(1, 2, 1));
    assert_eq!(bench.tell(dead_letters(2, 1)), [create_for_dead_letters()]);
    assert_eq!(
        bench.tell(created_for_dead_letters("dead/s1")),
        [connect(2, "dead/s1"), append(2, 3, 0, 2)]
    );
    bench.tell(acked(1, 2, 0));
    assert_eq!(bench.tell(Input::Barrier { epoch: Epoch(1) }), []);
    let commands = bench.tell(acked(2, 3, 0));
    let [Command::Release { .. }, Command::Prepared { state, commit, .. }] = commands.as_slice() else {
        panic!("{commands:?}");
    };
    assert_eq!(*commit, list(&[info("s1", 0, 1), info("dead/s1", 0, 0)]));
    let ends: Vec<_> = state
        .streams
        .iter()
        .map(|stream| (stream.state.stream.0.as_str(), stream.state.next_offset.0))
        .collect();
    assert_eq!(ends, [("s1", 2), ("dead/s1", 1)]);
    let flushes = bench.tell(crate::bench::commit(1, &[(0, commit.clone())]));
    assert_eq!(flushes.len(), 2, "{flushes:?}");
}

#[test]
fn a_barrier_waits_for_the_dead_letters_that_are_owed() {
    let mut bench = one_under_way();
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    assert!(!bench.core.wants_dead_letters(), "none is owed");
    bench.tell(refused(1, 1, bad_rows(&[0, 2])));
    assert_eq!(bench.tell(removed(1, 1, 2)), [append(1, 2, 0, 1)]);
    assert!(bench.core.wants_dead_letters());
    assert_eq!(bench.tell(acked(1, 2, 0)), [release(1)], "two are owed");
    assert_eq!(bench.tell(dead_letters(2, 1)), [create_for_dead_letters()]);
    bench.tell(created_for_dead_letters("dead/s1"));
    assert_eq!(bench.tell(acked(2, 3, 0)), [release(2)], "one is owed");
    assert!(bench.core.wants_dead_letters());
    assert_eq!(bench.tell(dead_letters(3, 1)), [append(2, 4, 1, 3)]);
    assert!(!bench.core.wants_dead_letters());
    let commands = bench.tell(acked(2, 4, 1));
    assert!(
        matches!(commands.last(), Some(Command::Prepared { commit, .. }) if *commit == list(&[info("s1", 0, 0), info("dead/s1", 0, 1)])),
        "{commands:?}"
    );
}

#[test]
fn the_end_of_data_waits_for_the_dead_letters_that_are_owed() {
    let mut bench = one_under_way();
    bench.tell(Input::EndOfData);
    bench.tell(refused(1, 1, bad_rows(&[0, 1, 2])));
    assert_eq!(bench.tell(removed(1, 0, 3)), [release(1)]);
    assert!(bench.core.wants_dead_letters());
    bench.tell(dead_letters(2, 3));
    bench.tell(created_for_dead_letters("dead/s1"));
    let commands = bench.tell(acked(2, 2, 0));
    assert!(
        matches!(commands.as_slice(), [Command::Release { .. }, Command::Flush { stream, offset, .. }] if stream.0 == "dead/s1" && offset.0 == 2),
        "{commands:?}"
    );
}

#[test]
fn rows_that_the_sink_itself_refused_are_owed_too() {
    let mut bench = policy(|_| {});
    assert_eq!(bench.tell(Input::RowsRefused { rows: RowCount(2) }), []);
    assert!(!bench.core.wants_dead_letters(), "no barrier is open");
    assert_eq!(bench.tell(Input::Barrier { epoch: Epoch(1) }), []);
    assert!(bench.core.wants_dead_letters());
    assert_eq!(bench.tell(dead_letters(1, 2)), [create_for_dead_letters()]);
}

#[test]
fn a_dead_letter_that_is_refused_itself_ends_the_job_for_good() {
    for place in [Place::InBand, Place::RpcEnd] {
        let mut bench = policy(|_| {});
        bench.tell(Input::RowsRefused { rows: RowCount(1) });
        bench.tell(dead_letters(1, 1));
        bench.tell(created_for_dead_letters("dead/s1"));
        let refusal = Fault {
            place,
            ..bad_rows(&[0])
        };
        let input = match place {
            Place::InBand => refused(1, 1, refusal),
            Place::RpcEnd => Input::ConnectionLost {
                connection: Generation(1),
                fault: refusal,
            },
        };
        let failure = failure(&bench.tell(input)).unwrap();
        assert_eq!(failure.kind, FailureKind::User);
        assert_eq!(
            failure.message,
            "appending dead letters failed: InvalidArgument: text; row 1 of the request: bad 0; a dead letter that is refused itself can go nowhere. \
             Change the dead-letter table so that it takes what the sink writes there, or name another one, and start again"
        );
    }
}

#[test]
fn what_the_driver_says_of_refused_rows_is_checked() {
    let mut unasked = one_under_way();
    let mut wrong_sum = one_under_way();
    wrong_sum.tell(refused(1, 1, bad_rows(&[1])));
    let mut nothing_removed = one_under_way();
    nothing_removed.tell(refused(1, 1, bad_rows(&[1])));
    let mut not_owed = policy(|_| {});
    not_owed.tell(Input::RowsRefused { rows: RowCount(1) });
    let mut behind_the_barrier = one_under_way();
    behind_the_barrier.tell(Input::Barrier { epoch: Epoch(1) });
    let mut after_the_end = one_under_way();
    after_the_end.tell(Input::EndOfData);
    let behind = "rows came behind a barrier that is not reported yet, or after the end of data";
    let cases = [
        (
            unasked.tell(removed(1, 2, 1)),
            "rows were taken out of request 1, which was not asked for",
        ),
        (
            wrong_sum.tell(removed(1, 2, 2)),
            "2 rows were left and 2 became dead letters of a request of 3 rows",
        ),
        (
            nothing_removed.tell(removed(1, 3, 0)),
            "3 rows were left and 0 became dead letters of a request of 3 rows",
        ),
        (
            not_owed.tell(dead_letters(1, 2)),
            "2 dead letters were handed over where 1 are owed",
        ),
        (
            behind_the_barrier.tell(Input::RowsRefused { rows: RowCount(1) }),
            behind,
        ),
        (behind_the_barrier_batch(), behind),
        (
            after_the_end.tell(Input::RowsRefused { rows: RowCount(1) }),
            behind,
        ),
        (
            Bench::new().tell(dead_letters(1, 1)),
            "1 dead letters were handed over where 0 are owed",
        ),
        (
            Bench::new().tell(Input::RowsRefused { rows: RowCount(1) }),
            "the sink refused rows as dead letters, though row errors end the job",
        ),
    ];
    for (commands, message) in cases {
        let failure = failure(&commands).unwrap();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (FailureKind::Host, message)
        );
    }
}

/// Rows for the table, while the barrier waits for dead letters.
fn behind_the_barrier_batch() -> Vec<Command> {
    let mut bench = policy(|_| {});
    bench.tell(Input::RowsRefused { rows: RowCount(1) });
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    bench.tell(rows(1, 1))
}

#[test]
fn dead_letters_are_bounded_by_the_same_window() {
    // Invariant 13.
    let mut bench = policy(|config| config.limits.inflight_requests = 2);
    bench.tell(Input::RowsRefused { rows: RowCount(2) });
    bench.tell(batch(1));
    assert!(bench.core.has_room());
    bench.tell(dead_letters(2, 2));
    assert!(!bench.core.has_room());
    assert_eq!(bench.core.inflight_bytes(), 400);
}
