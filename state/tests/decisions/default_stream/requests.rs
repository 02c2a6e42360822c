//! Requests, their answers, and what becomes of them when a connection is lost.

use std::time::Duration;

use bigquery_sink_state::{
    Code, Command, Epoch, Failure, FailureKind, Fault, Input, Notice, Place, RowCount, StorageCode,
};

use super::*;

#[test]
fn rows_go_to_the_default_stream_without_offsets_the_first_request_alone() {
    let mut bench = Bench::new();
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    assert_eq!(bench.tell(batch(2)), []);
    assert_eq!(bench.tell(batch(3)), []);
    assert_eq!(
        bench.tell(acked(1, 1)),
        [release(1), append(1, 2, 2), append(1, 3, 3)]
    );
    assert_eq!(bench.tell(batch(4)), [append(1, 4, 4)]);
}

#[test]
fn a_barrier_waits_for_every_acknowledgement_and_its_commit_costs_no_call() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(batch(2));
    assert_eq!(bench.tell(Input::Barrier { epoch: Epoch(1) }), []);
    assert_eq!(bench.tell(acked(1, 1)), [release(1), append(1, 2, 2)]);
    let now = bench.now;
    assert_eq!(bench.tell(acked(1, 2)), [release(2), prepared(1, 2, now)]);
    let committed = |rows| Command::Committed {
        epoch: Epoch(1),
        rows: RowCount(rows),
    };
    assert_eq!(bench.tell(commit(1, &[(0, list(&[]))])), [committed(2)]);
    // Invariant 10: said again, it changes nothing.
    assert_eq!(bench.tell(commit(1, &[(0, list(&[]))])), [committed(2)]);
    assert_eq!(
        bench.tell(Input::Barrier { epoch: Epoch(2) }),
        [prepared(2, 0, now)],
        "rows are counted for one checkpoint"
    );
}

#[test]
fn a_lost_connection_has_everything_unanswered_sent_again_in_order() {
    let mut bench = Bench::flowing();
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), []);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
    assert_eq!(
        bench.tell(acked(2, 5)),
        [release(2), append(2, 6, 3), append(2, 7, 4)]
    );
    assert_eq!(
        bench.tell(acked(1, 3)),
        [Command::Notice(Notice::StaleAnswerDropped)],
        "an answer of the older connection (invariant 8)"
    );
}

#[test]
fn an_idle_connection_that_ends_is_opened_again_by_the_next_rows_only() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(acked(1, 1));
    let end = fault(Code::Ok, Place::RpcEnd);
    assert_eq!(
        bench.tell(lost(1, Code::Ok)),
        [Command::Notice(Notice::Reconnect { fault: end })]
    );
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(2)), [connect(2, TABLE), append(2, 2, 2)]);
}

#[test]
fn a_request_that_fails_goes_out_again_alone_while_those_behind_it_are_stored() {
    let mut bench = Bench::flowing();
    let passing = fault(Code::Internal, Place::InBand);
    let refusal = bench.tell(refused(1, 2, passing.clone()));
    assert!(
        matches!(notices(&refusal).as_slice(), [Notice::Retry { fault, .. }] if *fault == passing),
        "{refusal:?}"
    );
    assert_eq!(acts(refusal), []);
    assert_eq!(
        bench.tell(acked(1, 3)),
        [release(3)],
        "it is stored, whatever came before it"
    );
    assert_eq!(bench.tell(refused(1, 4, passing)), [], "one pause for both");
    assert_eq!(acts(bench.wake()), [append(1, 5, 2)]);
    assert_eq!(bench.tell(acked(1, 5)), [release(2), append(1, 6, 4)]);
    assert_eq!(bench.tell(acked(1, 6)), [release(4)]);
}

#[test]
fn a_second_passing_fault_in_a_row_is_met_on_a_new_connection() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(refused(1, 1, fault(Code::Internal, Place::InBand)));
    assert_eq!(acts(bench.wake()), [append(1, 2, 1)]);
    assert_eq!(
        acts(bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)))),
        [disconnect(1)]
    );
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 3, 1)]);
}

#[test]
fn an_answer_that_does_not_come_is_a_lost_connection() {
    let mut bench = Bench::flowing();
    assert_eq!(
        bench.core.next_wake().map(|at| at.since(START)),
        Some(Duration::from_secs(150))
    );
    assert_eq!(acts(bench.wake()), [disconnect(1)]);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
}

#[test]
fn a_token_that_is_not_taken_is_replaced_once() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    let refusal = fault(Code::Unauthenticated, Place::RpcEnd);
    let lost = || Input::ConnectionLost {
        connection: Generation(1),
        fault: refusal.clone(),
    };
    assert_eq!(acts(bench.tell(lost())), [Command::RefreshCredentials]);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 2, 1)]);
    let again = Input::ConnectionLost {
        connection: Generation(2),
        fault: refusal.clone(),
    };
    assert_eq!(
        failure(&bench.tell(again)),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: Unauthenticated: text (the token is not taken)".into()
        })
    );
}

#[test]
fn an_offset_error_is_a_clear_failure() {
    for (code, storage_code) in [
        (Code::AlreadyExists, StorageCode::OffsetAlreadyExists),
        (Code::OutOfRange, StorageCode::OffsetOutOfRange),
    ] {
        let mut bench = Bench::flowing();
        let refusal = Fault {
            storage_code: Some(storage_code),
            ..fault(code, Place::InBand)
        };
        let message = format!(
            "appending failed: {code:?}/{storage_code:?}: text (a request without an offset can meet no other rows, and BigQuery has said \
             that it does); the job restarts from its checkpoint"
        );
        assert_eq!(
            failure(&bench.tell(refused(1, 2, refusal))),
            Some(Failure {
                kind: FailureKind::Restart,
                message
            })
        );
        assert_eq!(bench.core.next_wake(), None);
    }
}

#[test]
fn every_fault_that_stays_ends_within_its_budget() {
    // Invariant 13.
    use FailureKind::{Restart, User};
    for (code, kind, budget, reason) in [
        (
            Code::Unavailable,
            Restart,
            300,
            "a passing fault of the server or the network",
        ),
        (Code::ResourceExhausted, Restart, 900, "a quota is used up"),
        (
            Code::NotFound,
            User,
            60,
            "the table is not there, or was made just now",
        ),
        (Code::InvalidArgument, User, 0, "the request is wrong"),
    ] {
        let (failure, took) = Bench::new().exhaust(&fault(code, Place::InBand));
        let next = if kind == Restart {
            "; the job restarts from its checkpoint"
        } else {
            ""
        };
        let message = format!("appending failed: {code:?}: text ({reason}){next}");
        assert_eq!(failure, Failure { kind, message });
        let budget = Duration::from_secs(budget);
        assert!(took <= budget && took >= budget / 2, "{code:?}: {took:?}");
    }
}

#[test]
fn a_young_table_and_a_column_that_is_not_noticed_yet_are_waited_for_on_new_connections() {
    let lag = Fault {
        storage_code: Some(StorageCode::SchemaMismatchExtraFields),
        ..fault(Code::InvalidArgument, Place::RpcEnd)
    };
    for unknown in [fault(Code::NotFound, Place::RpcEnd), lag] {
        let young = || Bench::with(|config| config.limits.unknown_table = Duration::from_secs(300));
        let lost = |connection| Input::ConnectionLost {
            connection: Generation(connection),
            fault: unknown.clone(),
        };
        // Known at last.
        let mut bench = young();
        bench.tell(batch(1));
        for connection in 1..=5 {
            assert_eq!(acts(bench.tell(lost(connection))), [], "{unknown}");
            let again = [
                connect(connection + 1, TABLE),
                append(connection + 1, connection + 1, 1),
            ];
            assert_eq!(acts(bench.wake()), again, "{unknown}");
        }
        assert_eq!(bench.tell(acked(6, 6)), [release(1)], "{unknown}");

        // Never.
        let mut bench = young();
        bench.tell(batch(1));
        let mut connection = 1;
        let failure = loop {
            let commands = bench.tell(lost(connection));
            if let Some(failure) = failure(&commands) {
                break failure;
            }
            connection += 1;
            bench.wake();
        };
        assert_eq!(failure.kind, FailureKind::User, "{unknown}");
        let took = bench.now.since(START).as_secs();
        assert!((150..=300).contains(&took), "{unknown}: {took} s");
    }
}

#[test]
fn an_answer_out_of_order_ends_the_attempt() {
    let mut bench = Bench::flowing();
    assert_eq!(
        failure(&bench.tell(acked(1, 3))),
        Some(Failure {
            kind: FailureKind::Restart,
            message: "an answer on t/streams/_default is not the one that is due; BigQuery answers in order. The job restarts from its \
                      checkpoint"
                .into()
        })
    );
}

#[test]
fn the_window_is_bounded_in_requests_and_bytes() {
    let mut bench = Bench::with(|config| config.limits.inflight_requests = 2);
    bench.tell(batch(1));
    assert!(bench.core.has_room());
    bench.tell(batch(2));
    assert!(!bench.core.has_room(), "two requests");
    bench.tell(acked(1, 1));
    assert!(bench.core.has_room());

    let mut bench = Bench::new();
    for id in 1..=39 {
        bench.tell(batch(id));
    }
    assert!(bench.core.has_room());
    bench.tell(batch(40));
    assert_eq!(bench.core.inflight_bytes(), 4_000);
    assert!(
        !bench.core.has_room(),
        "four requests' worth, before a rate is measured"
    );
}

#[test]
fn several_connections_share_the_rows() {
    let mut bench = Bench::with(|config| config.streams = 2);
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    assert_eq!(bench.tell(batch(2)), [connect(2, TABLE), append(2, 2, 2)]);
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    let now = bench.now;
    assert_eq!(bench.tell(acked(2, 2)), [release(2)]);
    assert_eq!(bench.tell(acked(1, 1)), [release(1), prepared(1, 2, now)]);
}

#[test]
fn what_is_paused_is_waited_for_only_when_every_answer_is_in() {
    let mut bench = Bench::flowing();
    bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)));
    // The answer to request 3 is due until half of append.timeout is over.
    assert_eq!(
        bench.core.next_wake(),
        Some(START.after(Duration::from_secs(150)))
    );
    bench.tell(acked(1, 3));
    bench.tell(acked(1, 4));
    let pause = bench.core.next_wake().map(|wake| wake.since(START));
    assert!(
        pause.is_some_and(|pause| pause <= Duration::from_millis(100)),
        "{pause:?}"
    );
}

#[test]
fn a_connection_that_answers_is_not_given_up() {
    let mut bench = Bench::flowing();
    // Answers come every 100 s; only 150 s of silence are too long.
    for request in 2..=4 {
        bench.now = bench.now.after(Duration::from_secs(100));
        assert_eq!(bench.tell(Input::Tick), []);
        assert_eq!(bench.tell(acked(1, request)), [release(request)]);
    }
}

#[test]
fn a_pause_for_a_quota_outlasts_the_connection() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    for request in 1..8 {
        bench.tell(refused(1, request, fault(Code::ResourceExhausted, Place::InBand)));
        assert_eq!(acts(bench.wake()), [append(1, request + 1, 1)]);
    }
    bench.tell(refused(1, 8, fault(Code::ResourceExhausted, Place::InBand)));
    let due = bench.core.next_wake();
    bench.tell(lost(1, Code::Aborted));
    assert_eq!(bench.core.next_wake(), due);
}

#[test]
fn bad_rows_that_may_be_of_any_request_fail_a_job_without_dead_letters_at_once() {
    let mut bench = Bench::flowing();
    let end = Input::ConnectionLost {
        connection: Generation(1),
        fault: Fault {
            place: Place::RpcEnd,
            ..bad_rows(&[0])
        },
    };
    assert_eq!(
        failure(&bench.tell(end)),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 1 of the request: bad 0 (rows of the request are bad)".into()
        })
    );
}

#[test]
fn an_answer_of_an_older_connection_is_dropped() {
    let mut bench = Bench::flowing();
    bench.tell(lost(1, Code::Unavailable));
    bench.wake();
    assert_eq!(
        bench.tell(acked(1, 2)),
        [Command::Notice(Notice::StaleAnswerDropped)]
    );
}

#[test]
fn nothing_more_is_done_after_a_failure_or_the_end() {
    let mut bench = Bench::flowing();
    bench.tell(acked(1, 3));
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(5)), []);
}
