//! Appending: answers, losses, echoes, doubt, leaving, budgets.

use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Code, Command, Epoch, FailureKind, Fault, Generation, Input, Lane, LeaveReason, NextOffset,
    Notice, Place, RowFault, StorageCode, StreamName,
};

use crate::bench::*;

#[test]
fn a_stream_that_is_left_is_said_why() {
    assert_eq!(
        LeaveReason::Idle.to_string(),
        "it was idle for days, and BigQuery drops idle streams"
    );
    assert_eq!(
        LeaveReason::InDoubt.to_string(),
        "rows were refused while it is not known what became of requests on it"
    );
}

#[test]
fn a_stream_is_created_with_the_first_rows_and_not_before() {
    // Invariants 2 and 12: an epoch without rows costs no RPC.
    let mut bench = Bench::new();
    let commands = bench.tell(Input::Barrier { epoch: Epoch(1) });
    assert!(
        matches!(commands.as_slice(), [Command::Prepared { commit, .. }] if commit.0.is_empty()),
        "{commands:?}"
    );
    assert_eq!(
        bench.tell(commit(1, &[(0, list(&[]))])),
        [Command::Committed {
            epoch: Epoch(1),
            rows: Default::default()
        }]
    );
    assert_eq!(bench.tell(batch(1)), [create(0)]);
    assert_eq!(bench.tell(created("s1")), [connect(1, "s1"), append(1, 1, 0, 1)]);
}

#[test]
fn requests_are_pipelined_and_acknowledged_in_order() {
    let mut bench = Bench::flowing();
    assert_eq!(bench.tell(batch(2)), [append(1, 2, 1, 2)]);
    assert_eq!(bench.tell(batch(3)), [append(1, 3, 2, 3)]);
    assert_eq!(
        bench.tell(acked(1, 2, 1)),
        [Command::Release { batch: BatchId(2) }]
    );
    assert_eq!(
        bench.tell(acked(1, 3, 2)),
        [Command::Release { batch: BatchId(3) }]
    );
    assert_eq!(bench.core.inflight_bytes(), 0);
}

#[test]
fn the_first_request_of_a_connection_goes_alone() {
    // It carries the schema, and its answer shows that the server's end is not stale.
    let mut bench = Bench::open();
    assert_eq!(bench.tell(batch(2)), []);
    assert_eq!(
        bench.tell(acked(1, 1, 0)),
        [Command::Release { batch: BatchId(1) }, append(1, 2, 1, 2)]
    );
}

#[test]
fn a_wrong_offset_or_order_of_answers_fails_the_subtask() {
    for answer in [acked(1, 2, 5), acked(1, 3, 2)] {
        let mut bench = Bench::flowing();
        bench.tell(batch(2));
        bench.tell(batch(3));
        let failure = failure(&bench.tell(answer)).unwrap();
        assert_eq!(failure.kind, FailureKind::Restart);
    }
}

#[test]
fn after_a_loss_the_first_request_goes_alone_and_the_same() {
    // Invariants 4 and 6.
    let mut bench = Bench::flowing();
    bench.tell(batch(2));
    bench.tell(batch(3));
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), []);
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 4, 1, 2)]);
    assert_eq!(
        acts(bench.tell(acked(2, 4, 1))),
        [Command::Release { batch: BatchId(2) }, append(2, 5, 2, 3)]
    );
}

#[test]
fn an_own_resend_that_was_stored_is_a_success() {
    // Invariant 5.
    let mut bench = Bench::open();
    bench.tell(lost(1, Code::Aborted));
    bench.wake();
    let commands = bench.tell(refused(2, 2, offset_fault(Code::AlreadyExists, 1)));
    assert_eq!(notices(&commands), [Notice::OwnResendStored]);
    assert_eq!(acts(commands), [Command::Release { batch: BatchId(1) }]);
}

#[test]
fn an_offset_taken_by_somebody_else_makes_the_subtask_leave_the_stream() {
    // Invariant 5: never sent before, or sent but not stored whole.
    let mut bench = Bench::open();
    bench.tell(acked(1, 1, 0));
    bench.tell(batch(2));
    let commands = bench.tell(refused(1, 2, offset_fault(Code::AlreadyExists, 2)));
    assert_eq!(
        acts(commands),
        [
            Command::Disconnect {
                connection: Generation(1)
            },
            create(0)
        ]
    );
    assert_eq!(bench.tell(created("s2")), [connect(2, "s2"), append(2, 3, 0, 2)]);
    bench.tell(acked(2, 3, 0));
    let commands = bench.tell(Input::Barrier { epoch: Epoch(1) });
    // Invariant 7: what the left stream holds of ours is published, and no more.
    assert!(
        matches!(commands.as_slice(), [Command::Prepared { commit, .. }] if *commit == list(&[info("s1", 0, 0), info("s2", 0, 0)])),
        "{commands:?}"
    );
}

#[test]
fn a_resend_that_the_end_does_not_cover_is_no_success() {
    let mut bench = Bench::new();
    bench.tell(Input::Batch {
        destination: bigquery_sink_state::Destination::Table,
        id: BatchId(1),
        rows: bigquery_sink_state::RowCount(5),
        bytes: 100,
    });
    bench.tell(created("s1"));
    bench.tell(lost(1, Code::Aborted));
    bench.wake();
    let commands = bench.tell(refused(2, 2, offset_fault(Code::AlreadyExists, 3)));
    assert!(matches!(
        notices(&commands).as_slice(),
        [Notice::StreamLeft {
            flushable: NextOffset(0),
            ..
        }]
    ));
}

#[test]
fn answers_behind_a_failed_request_are_echoes() {
    // Invariant 6.
    let mut bench = Bench::flowing();
    for id in 2..=4 {
        bench.tell(batch(id));
    }
    assert_eq!(
        acts(bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)))),
        []
    );
    for request in [3, 4] {
        let echo = refused(1, request, offset_fault(Code::OutOfRange, 1));
        assert_eq!(notices(&bench.tell(echo)), [Notice::EchoDiscarded]);
    }
    assert_eq!(acts(bench.wake()), [append(1, 5, 1, 2)]);
    assert_eq!(
        acts(bench.tell(acked(1, 5, 1))),
        [
            Command::Release { batch: BatchId(2) },
            append(1, 6, 2, 3),
            append(1, 7, 3, 4)
        ]
    );
}

#[test]
fn a_failed_request_that_was_applied_all_the_same_is_found_with_those_behind_it() {
    // Invariant 5: INTERNAL is no word that nothing was stored, and the OK behind it shows that it was.
    let mut bench = Bench::flowing();
    bench.tell(batch(2));
    bench.tell(batch(3));
    bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)));
    assert_eq!(notices(&bench.tell(acked(1, 3, 2))), [Notice::EchoDiscarded]);
    assert_eq!(acts(bench.wake()), [append(1, 4, 1, 2)]);
    let taken = |request| refused(1, request, offset_fault(Code::AlreadyExists, 3));
    assert_eq!(
        acts(bench.tell(taken(4))),
        [Command::Release { batch: BatchId(2) }, append(1, 5, 2, 3)]
    );
    assert_eq!(
        acts(bench.tell(taken(5))),
        [Command::Release { batch: BatchId(3) }]
    );
}

#[test]
fn out_of_range_is_retried_for_seconds_and_then_the_job_restarts() {
    // Invariant 6: never success.
    let mut bench = Bench::open();
    let mut request = 1;
    let failed = loop {
        let commands = bench.tell(refused(1, request, offset_fault(Code::OutOfRange, 0)));
        if let Some(failure) = failure(&commands) {
            break failure;
        }
        bench.wake();
        request += 1;
    };
    assert_eq!(failed.kind, FailureKind::Restart);
    let waited = bench.now.since(START);
    assert!(
        waited > Duration::from_secs(15) && waited <= Duration::from_secs(30),
        "{waited:?}"
    );
}

#[test]
fn answers_of_an_older_connection_are_dropped() {
    // Invariant 8.
    let mut bench = Bench::open();
    bench.tell(lost(1, Code::Aborted));
    bench.wake();
    assert_eq!(
        bench.tell(acked(1, 1, 0)),
        [Command::Notice(Notice::StaleAnswerDropped)]
    );
    assert_eq!(
        bench.tell(lost(1, Code::Aborted)),
        [Command::Notice(Notice::StaleAnswerDropped)]
    );
}

#[test]
fn an_idle_close_is_normal_and_the_next_rows_open_a_new_connection() {
    let mut bench = Bench::open();
    bench.tell(acked(1, 1, 0));
    assert_eq!(
        acts(bench.later(Duration::from_secs(600), lost(1, Code::Aborted))),
        []
    );
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(2)), [connect(2, "s1"), append(2, 2, 1, 2)]);
}

#[test]
fn a_stream_that_was_idle_for_days_is_left_while_it_can_still_be_flushed() {
    let mut bench = Bench::open();
    bench.tell(acked(1, 1, 0));
    let commands = bench.later(Duration::from_secs(4 * 24 * 3600), batch(2));
    assert_eq!(
        acts(commands),
        [
            Command::Disconnect {
                connection: Generation(1)
            },
            create(0)
        ]
    );
}

#[test]
fn a_connection_without_answers_is_given_up() {
    // Invariant 13: every wait has a limit.
    let mut bench = Bench::open();
    let commands = bench.wake();
    assert_eq!(bench.now.since(START), Duration::from_secs(150));
    assert!(
        commands.contains(&Command::Disconnect {
            connection: Generation(1)
        }),
        "{commands:?}"
    );
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 2, 0, 1)]);
}

#[test]
fn a_stream_that_another_took_is_replaced_if_it_owes_nothing_and_restarts_the_job_else() {
    // Invariants 2 and 7: nothing says that such a stream can still be flushed (write-api.md 2.6).
    let mut owes_nothing = Bench::open();
    let commands = owes_nothing.tell(lost(1, Code::FailedPrecondition));
    assert_eq!(acts(commands), [create(0)]);
    let mut owes = Bench::flowing();
    let failure = failure(&owes.tell(lost(1, Code::FailedPrecondition))).unwrap();
    assert_eq!(failure.kind, FailureKind::Restart);
}

#[test]
fn rows_of_somebody_else_are_not_taken_for_ours_when_the_call_ends_with_their_offset() {
    // Invariant 5: the request went out once, and the loss of its answer does not make it a resend.
    let mut bench = Bench::open();
    let taken = Fault {
        place: Place::RpcEnd,
        ..offset_fault(Code::AlreadyExists, 7)
    };
    let commands = bench.tell(Input::ConnectionLost {
        connection: Generation(1),
        fault: taken,
    });
    assert_eq!(acts(commands), [create(0)]);
}

#[test]
fn streams_that_are_lost_one_after_the_other_end_the_subtask() {
    // Invariant 13.
    let finalized = Fault {
        storage_code: Some(StorageCode::StreamFinalized),
        ..fault(Code::InvalidArgument, Place::InBand)
    };
    let causes = [
        fault(Code::FailedPrecondition, Place::InBand),
        finalized,
        fault(Code::NotFound, Place::InBand),
        offset_fault(Code::AlreadyExists, 9),
    ];
    for cause in causes {
        let mut bench = Bench::open();
        let failure = bench.exhaust(&cause);
        assert_eq!(failure.kind, FailureKind::Restart, "{failure}");
        assert!(
            bench.now.since(START) <= Duration::from_secs(400),
            "{:?}",
            bench.now.since(START)
        );
    }
}

#[test]
fn an_outage_leaves_the_patience_for_what_follows_it() {
    let causes = [
        (fault(Code::Unavailable, Place::RpcEnd), 360),
        (
            Fault {
                place: Place::RpcEnd,
                ..offset_fault(Code::OutOfRange, 0)
            },
            60,
        ),
        (fault(Code::PermissionDenied, Place::RpcEnd), 120),
        (fault(Code::NotFound, Place::RpcEnd), 60),
    ];
    for (cause, seconds) in causes {
        let mut bench = Bench::flowing();
        bench.tell(batch(2));
        let mut connection = 1;
        let mut lose = |bench: &mut Bench, fault: Fault| {
            let lost = Input::ConnectionLost {
                connection: Generation(connection),
                fault,
            };
            let commands = bench.tell(lost);
            assert_eq!(failure(&commands), None);
            bench.wake();
            connection += 1;
        };
        lose(&mut bench, cause.clone());
        while bench.now.since(START).as_secs() < seconds {
            lose(&mut bench, fault(Code::ResourceExhausted, Place::RpcEnd));
        }
        lose(&mut bench, cause);
    }
}

#[test]
fn a_pause_for_a_quota_outlasts_the_connection() {
    let mut bench = Bench::open();
    for request in 1..8 {
        bench.tell(refused(1, request, fault(Code::ResourceExhausted, Place::InBand)));
        bench.wake();
    }
    bench.tell(refused(1, 8, fault(Code::ResourceExhausted, Place::InBand)));
    let due = bench.core.next_wake().unwrap();
    bench.tell(lost(1, Code::Aborted));
    assert!(bench.core.next_wake().unwrap() >= due);
}

#[test]
fn a_token_refused_in_band_is_replaced_on_a_new_connection() {
    let mut bench = Bench::open();
    let commands = bench.tell(refused(1, 1, fault(Code::Unauthenticated, Place::InBand)));
    assert_eq!(
        acts(commands),
        [
            Command::Disconnect {
                connection: Generation(1)
            },
            Command::RefreshCredentials
        ]
    );
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 2, 0, 1)]);
}

#[test]
fn a_stream_that_is_gone_with_acknowledged_rows_restarts_the_job() {
    // Invariant 7.
    let mut bench = Bench::open();
    bench.tell(acked(1, 1, 0));
    bench.tell(batch(2));
    let finalized = Fault {
        storage_code: Some(StorageCode::StreamFinalized),
        ..fault(Code::InvalidArgument, Place::InBand)
    };
    let failure = failure(&bench.tell(refused(1, 2, finalized))).unwrap();
    assert_eq!(failure.kind, FailureKind::Restart);
    assert!(
        failure
            .message
            .starts_with("stream s1 is gone with rows 0 to 0 acknowledged but not visible"),
        "{failure}"
    );
}

#[test]
fn a_stream_that_is_gone_and_owes_nothing_is_replaced() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    bench.tell(Input::FlushDone {
        flush: bigquery_sink_state::FlushId(1),
        offset: 0,
    });
    bench.tell(batch(2));
    let finalized = Fault {
        storage_code: Some(StorageCode::StreamFinalized),
        ..fault(Code::InvalidArgument, Place::InBand)
    };
    assert_eq!(
        acts(bench.tell(refused(1, 2, finalized))),
        [
            Command::Disconnect {
                connection: Generation(1)
            },
            create(0)
        ]
    );
}

#[test]
fn quotas_are_waited_out_for_minutes_and_other_faults_for_append_timeout() {
    // Invariant 13.
    for (code, limit) in [(Code::ResourceExhausted, 900), (Code::Unavailable, 300)] {
        let mut bench = Bench::open();
        let failure = bench.exhaust(&fault(code, Place::InBand));
        assert_eq!(failure.kind, FailureKind::Restart);
        let waited = bench.now.since(START).as_secs();
        assert!(waited > limit * 3 / 4 && waited <= limit, "{code:?}: {waited} s");
    }
}

#[test]
fn a_token_that_is_not_taken_is_replaced_once() {
    let mut bench = Bench::open();
    assert_eq!(
        acts(bench.tell(lost(1, Code::Unauthenticated))),
        [Command::RefreshCredentials]
    );
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 2, 0, 1)]);
    let failure = failure(&bench.tell(lost(2, Code::Unauthenticated))).unwrap();
    assert_eq!(failure.kind, FailureKind::User);
}

#[test]
fn bad_rows_are_named_by_index_and_reason() {
    let mut bench = Bench::open();
    let row_errors = vec![RowFault {
        index: 3,
        message: "Field a: too long".into(),
    }];
    let refusal = Fault {
        row_errors,
        ..fault(Code::InvalidArgument, Place::InBand)
    };
    let failure = failure(&bench.tell(refused(1, 1, refusal))).unwrap();
    assert_eq!(failure.kind, FailureKind::User);
    assert_eq!(
        failure.message,
        "appending failed: InvalidArgument: text; row 4 of the request: Field a: too long (rows of the request are bad)"
    );
}

#[test]
fn a_stream_that_cannot_be_created_is_retried_then_the_reason_is_told() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    let missing = || Input::CreateFailed {
        lane: Lane(0),
        fault: fault(Code::NotFound, Place::RpcEnd),
    };
    let failure = loop {
        if let Some(failure) = failure(&bench.tell(missing())) {
            break failure;
        }
        assert_eq!(bench.wake(), [create(0)]);
    };
    assert_eq!(failure.kind, FailureKind::User);
    assert!(
        failure
            .message
            .starts_with("creating a write stream failed: NotFound: text"),
        "{failure}"
    );
    assert!(bench.now.since(START) <= Duration::from_secs(60));
}

#[test]
fn the_window_is_bounded_in_requests_and_bytes() {
    // Invariant 13.
    let mut few = Bench::with(|config| config.limits.inflight_requests = 2);
    few.tell(batch(1));
    assert!(few.core.has_room());
    few.tell(batch(2));
    assert!(!few.core.has_room());
    let mut small = Bench::with(|config| config.limits.inflight_bytes = 150);
    small.tell(batch(1));
    assert!(small.core.has_room());
    small.tell(batch(2));
    assert!(!small.core.has_room());
}

#[test]
fn the_window_follows_the_measured_rate() {
    let mut bench = Bench::with(|config| {
        config.limits.inflight_bytes = 1_000_000;
        config.limits.inflight_requests = 100_000;
    });
    // 100 bytes every 10 ms are 10,000 B/s, of which 2 s are 20,000 bytes.
    bench.tell(batch(1));
    bench.tell(created("s1"));
    for n in 1..=100 {
        bench.tell(batch(n + 1));
        bench.later(Duration::from_millis(10), acked(1, n, n - 1));
    }
    let mut id = 1_000;
    while bench.core.has_room() {
        id += 1;
        bench.tell(batch(id));
    }
    let window = bench.core.inflight_bytes();
    assert!((18_000..=22_000).contains(&window), "{window}");
}

#[test]
fn rows_behind_an_open_barrier_are_the_hosts_mistake() {
    let mut bench = Bench::open();
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    let failure = failure(&bench.tell(batch(2))).unwrap();
    assert_eq!(failure.kind, FailureKind::Host);
}

#[test]
fn two_streams_side_by_side_are_both_in_the_commit_list() {
    let mut bench = Bench::with(|config| config.streams = 2);
    bench.tell(batch(1));
    bench.tell(batch(2));
    for lane in 0..2 {
        bench.tell(Input::StreamCreated {
            lane: Lane(lane),
            stream: StreamName(format!("s{lane}")),
        });
    }
    bench.tell(acked(1, 1, 0));
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    let commands = bench.tell(acked(2, 2, 0));
    assert!(
        matches!(commands.last(), Some(Command::Prepared { commit, .. }) if *commit == list(&[info("s0", 0, 0), info("s1", 0, 0)])),
        "{commands:?}"
    );
}

#[test]
fn a_stream_that_may_be_gone_is_not_left_as_flushable() {
    // Invariant 7: after NOT_FOUND, somebody's rows at its end are no proof that ours are still there.
    let mut bench = Bench::flowing();
    bench.tell(batch(2));
    bench.tell(lost(1, Code::NotFound));
    bench.wake();
    let failure = failure(&bench.tell(refused(2, 3, offset_fault(Code::AlreadyExists, 1)))).unwrap();
    assert_eq!(failure.kind, FailureKind::Restart);
}

#[test]
fn a_token_can_be_replaced_again_after_progress() {
    let mut bench = Bench::open();
    bench.tell(lost(1, Code::Unauthenticated));
    bench.wake();
    bench.tell(acked(2, 2, 0));
    bench.tell(batch(2));
    assert_eq!(
        acts(bench.tell(lost(2, Code::Unauthenticated))),
        [Command::RefreshCredentials]
    );
}

#[test]
fn a_connection_that_answers_is_not_given_up() {
    let mut bench = Bench::flowing();
    for id in 2..=4 {
        bench.tell(batch(id));
    }
    // Answers come every 100 s; only 150 s of silence are too long.
    for request in 2..=4 {
        let commands = bench.later(Duration::from_secs(100), Input::Tick);
        assert_eq!(commands, []);
        bench.tell(acked(1, request, request - 1));
    }
}

#[test]
fn a_column_that_bigquery_has_not_noticed_takes_a_new_connection_each_time() {
    // write-api.md 7.3: the writer schema of a stream changes with its connection only.
    let lag = Fault {
        storage_code: Some(StorageCode::SchemaMismatchExtraFields),
        ..fault(Code::InvalidArgument, Place::InBand)
    };
    let mut bench = Bench::open();
    assert_eq!(
        acts(bench.tell(refused(1, 1, lag.clone()))),
        [Command::Disconnect {
            connection: Generation(1)
        }]
    );
    assert_eq!(acts(bench.wake()), [connect(2, "s1"), append(2, 2, 0, 1)]);
    let failure = Bench::open().exhaust(&lag);
    assert_eq!(failure.kind, FailureKind::User);
}

#[test]
fn quiet_time_is_no_part_of_the_rate() {
    let large = |id| Input::Batch {
        destination: bigquery_sink_state::Destination::Table,
        id: BatchId(id),
        rows: bigquery_sink_state::RowCount(1),
        bytes: 1_000,
    };
    let mut bench = Bench::with(|config| {
        config.limits.inflight_bytes = 1_000_000;
        config.limits.inflight_requests = 100_000;
    });
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(acked(1, 1, 0));
    // An hour of nothing, then 1,000 bytes in 100 ms: 10,000 B/s, of which 2 s are 20,000 bytes.
    bench.later(Duration::from_secs(3_600), large(2));
    bench.later(Duration::from_millis(100), acked(1, 2, 1));
    let mut id = 2;
    while bench.core.has_room() {
        id += 1;
        bench.tell(large(id));
    }
    assert_eq!(bench.core.inflight_bytes(), 20_000);
}
