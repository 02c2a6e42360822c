//! Committing, restoring, and the end of data.

use std::collections::BTreeMap;
use std::time::Duration;

use bigquery_sink_state::{
    Code, Command, Epoch, FailureKind, FlushId, FlushOffset, Incarnation, Input, Notice, Place, Replay,
    RestoreError, RestoredUnion, RowCount, StreamName, SubtaskIndex, Unprovable,
};

use crate::bench::*;

fn flush(id: u64, stream: &str, offset: u64) -> Command {
    Command::Flush {
        flush: FlushId(id),
        stream: StreamName(stream.into()),
        offset: FlushOffset(offset),
    }
}

fn flushed(id: u64, offset: i64) -> Input {
    Input::FlushDone {
        flush: FlushId(id),
        offset,
    }
}

fn flush_failed(id: u64, code: Code) -> Input {
    Input::FlushFailed {
        flush: FlushId(id),
        fault: fault(code, Place::RpcEnd),
    }
}

fn committed(epoch: u64, rows: u64) -> Command {
    Command::Committed {
        epoch: Epoch(epoch),
        rows: RowCount(rows),
    }
}

#[test]
fn nothing_is_flushed_before_the_host_says_commit() {
    // Invariant 1.
    let mut bench = Bench::prepared(|_| {});
    assert_eq!(bench.later(Duration::from_secs(60), Input::Tick), []);
    assert_eq!(
        bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))])),
        [flush(1, "s1", 0)]
    );
    assert_eq!(bench.tell(flushed(1, 0)), [committed(1, 1)]);
}

#[test]
fn a_commit_can_come_after_rows_of_the_next_epoch_and_covers_none_of_them() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(batch(2));
    bench.tell(acked(1, 2, 1));
    assert_eq!(
        bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))])),
        [flush(1, "s1", 0)]
    );
    bench.tell(flushed(1, 0));
    let commands = bench.tell(Input::Barrier { epoch: Epoch(2) });
    assert!(
        matches!(commands.as_slice(), [Command::Prepared { commit, .. }] if *commit == list(&[info("s1", 1, 1)])),
        "{commands:?}"
    );
}

#[test]
fn a_commit_said_again_changes_nothing() {
    // Invariant 10.
    let mut bench = Bench::prepared(|_| {});
    let again = commit(1, &[(0, list(&[info("s1", 0, 0)]))]);
    bench.tell(again.clone());
    bench.tell(flushed(1, 0));
    assert_eq!(bench.tell(again), [flush(2, "s1", 0)]);
    let commands = bench.tell(flush_failed(2, Code::AlreadyExists));
    assert_eq!(
        commands,
        [Command::Notice(Notice::AlreadyFlushed), committed(1, 1)]
    );
}

#[test]
fn a_commit_of_other_rows_than_were_prepared_is_refused() {
    let mut bench = Bench::prepared(|_| {});
    let failure = failure(&bench.tell(commit(1, &[(0, list(&[info("s1", 0, 7)]))]))).unwrap();
    assert_eq!(failure.kind, FailureKind::Host);
    assert_eq!(
        failure.message,
        "commit 1 names other rows for subtask 0 than it prepared; another incarnation wrote one of them"
    );
}

#[test]
fn a_commit_of_no_known_checkpoint_is_refused() {
    // Invariant 1.
    let mut bench = Bench::open();
    let unknown = failure(&bench.tell(commit(5, &[(0, list(&[info("x", 0, 0)]))]))).unwrap();
    assert_eq!(
        unknown.message,
        "commit 5 belongs to no checkpoint this subtask prepared or restored"
    );
    let mut bench = Bench::new();
    let commits = list(&[info("old", 0, 4)]);
    bench.tell(restored(
        9,
        vec![state(9, 0, 1, commits.clone())],
        Replay::Expected,
    ));
    let failure = failure(&bench.tell(commit(8, &[(0, commits)]))).unwrap();
    assert_eq!(
        failure.message,
        "commit 8 belongs to no checkpoint this subtask prepared or restored"
    );
}

#[test]
fn an_answer_below_the_asked_offset_is_not_done() {
    // Invariant 10.
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    assert_eq!(acts(bench.tell(flushed(1, -1))), []);
    assert_eq!(bench.wake(), [flush(1, "s1", 0)]);
    assert_eq!(bench.tell(flushed(1, 5)), [committed(1, 1)]);
}

#[test]
fn a_commit_that_cannot_be_shown_to_be_visible_fails_loudly() {
    // Invariant 11: NOT_FOUND for minutes, OUT_OF_RANGE for seconds, a finalized stream at once.
    for (code, least, most) in [
        (Code::NotFound, 400, 600),
        (Code::OutOfRange, 15, 30),
        (Code::InvalidArgument, 0, 0),
    ] {
        let mut bench = Bench::prepared(|_| {});
        bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
        let failure = loop {
            if let Some(failure) = failure(&bench.tell(flush_failed(1, code))) {
                break failure;
            }
            assert_eq!(bench.wake(), [flush(1, "s1", 0)]);
        };
        assert_eq!(failure.kind, FailureKind::Unprovable);
        assert!(
            failure
                .message
                .starts_with("rows 0 to 0 of stream s1 cannot be shown to be visible for checkpoint 1"),
            "{failure}"
        );
        let waited = bench.now.since(START).as_secs();
        assert!((least..=most).contains(&waited), "{code:?}: {waited} s");
    }
}

#[test]
fn only_the_operator_can_accept_an_unprovable_commit() {
    // Invariant 11.
    for (unprovable, lost) in [(Unprovable::AssumeVisible, false), (Unprovable::AcceptLoss, true)] {
        let mut bench = Bench::prepared(|config| config.limits.unprovable = unprovable);
        bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
        let notice = Notice::UnprovableAccepted {
            stream: StreamName("s1".into()),
            epoch: Some(Epoch(1)),
            rows: RowCount(1),
            lost,
        };
        assert_eq!(
            bench.tell(flush_failed(1, Code::InvalidArgument)),
            [Command::Notice(notice), committed(1, 1)]
        );
    }
}

#[test]
fn passing_faults_of_a_flush_are_retried_until_it_is_done() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    for code in [
        Code::Unavailable,
        Code::DeadlineExceeded,
        Code::Internal,
        Code::ResourceExhausted,
        Code::Aborted,
    ] {
        assert_eq!(acts(bench.tell(flush_failed(1, code))), []);
        assert_eq!(bench.wake(), [flush(1, "s1", 0)]);
    }
    assert_eq!(bench.tell(flushed(1, 0)), [committed(1, 1)]);
}

#[test]
fn old_entries_are_flushed_by_index_modulo_the_new_parallelism() {
    // Invariant 10, after a rescale from three to two.
    let entries: Vec<_> = (0..3)
        .map(|i| (i, list(&[info(&format!("old{i}"), 0, 4)])))
        .collect();
    let union = || {
        let states = entries
            .iter()
            .map(|(i, list)| state(9, *i, 3, list.clone()))
            .collect();
        restored(9, states, Replay::Expected)
    };
    let mut first = Bench::with(|config| config.parallelism = 2);
    first.tell(union());
    assert_eq!(
        first.tell(commit(9, &entries)),
        [flush(1, "old0", 4), flush(2, "old2", 4)]
    );
    let mut second = Bench::with(|config| (config.subtask, config.parallelism) = (SubtaskIndex(1), 2));
    second.tell(union());
    assert_eq!(second.tell(commit(9, &entries)), [flush(1, "old1", 4)]);
}

#[test]
fn a_replayed_commit_that_differs_from_the_restored_copy_is_refused() {
    let mut bench = Bench::new();
    let ours = list(&[info("old", 0, 4)]);
    bench.tell(restored(9, vec![state(9, 0, 1, ours)], Replay::Expected));
    let failure = failure(&bench.tell(commit(9, &[(0, list(&[info("old", 0, 5)]))]))).unwrap();
    assert_eq!(failure.kind, FailureKind::Host);
    assert!(
        failure
            .message
            .contains("differs from the restored state's copy for subtask 0"),
        "{failure}"
    );
}

#[test]
fn a_restored_subtask_writes_a_stream_of_its_own() {
    // Invariant 2.
    let mut bench = Bench::new();
    assert_eq!(
        bench.tell(restored(
            9,
            vec![state(9, 0, 1, list(&[info("old", 0, 4)]))],
            Replay::Expected
        )),
        []
    );
    assert_eq!(bench.tell(batch(1)), [create(0)]);
}

#[test]
fn the_incarnation_grows_with_the_clock_and_beyond_every_restored_one() {
    let mut bench = Bench::new();
    assert_eq!(bench.core.incarnation(), Incarnation(START.0));
    let mut ahead = state(9, 0, 1, list(&[]));
    ahead.incarnation = Incarnation(START.0 + 50);
    bench.tell(restored(9, vec![ahead], Replay::Confirmed));
    assert_eq!(bench.core.incarnation(), Incarnation(START.0 + 51));
}

#[test]
fn a_union_that_no_job_was_ever_in_is_refused() {
    let union = |states: Vec<_>| {
        let states: BTreeMap<_, _> = states
            .into_iter()
            .enumerate()
            .map(|(i, s)| (SubtaskIndex(i as u32), s))
            .collect();
        RestoredUnion::new("t", Epoch(9), states).unwrap_err()
    };
    let empty = list(&[]);
    assert_eq!(
        union(vec![state(9, 0, 2, empty.clone()), state(8, 1, 2, empty.clone())]),
        RestoreError::MixedCheckpoints {
            expected: Epoch(9),
            subtask: SubtaskIndex(1),
            found: Epoch(8)
        }
    );
    assert_eq!(
        union(vec![state(9, 0, 2, empty.clone())]).to_string(),
        "the restored states do not fit together: checkpoint 9 was taken by 2 subtasks, 1 states are here"
    );
    let mut other = state(9, 0, 1, empty);
    other.table = "u".into();
    assert_eq!(
        union(vec![other]),
        RestoreError::OtherTable {
            expected: "t".into(),
            found: "u".into()
        }
    );
}

#[test]
fn barriers_come_in_order() {
    let mut bench = Bench::new();
    bench.tell(restored(9, vec![state(9, 0, 1, list(&[]))], Replay::Confirmed));
    let failure = failure(&bench.tell(Input::Barrier { epoch: Epoch(9) })).unwrap();
    assert_eq!(failure.kind, FailureKind::Host);
}

#[test]
fn the_end_of_data_flushes_the_restored_list_then_own_epochs_then_the_tail() {
    // The named exception of invariant 1.
    let mut bench = Bench::new();
    bench.tell(restored(
        9,
        vec![state(9, 0, 1, list(&[info("old", 0, 4)]))],
        Replay::Unknown,
    ));
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(acked(1, 1, 0));
    bench.tell(Input::Barrier { epoch: Epoch(10) });
    bench.tell(batch(2));
    assert_eq!(bench.tell(Input::EndOfData), [], "the tail is drained first");
    assert_eq!(
        acts(bench.tell(acked(1, 2, 1))),
        [
            Command::Release {
                batch: bigquery_sink_state::BatchId(2)
            },
            flush(1, "old", 4)
        ]
    );
    assert_eq!(bench.tell(flushed(1, 4)), [flush(2, "s1", 0)]);
    assert_eq!(bench.tell(flushed(2, 0)), [flush(3, "s1", 1)]);
    assert_eq!(bench.tell(flushed(3, 1)), [Command::Closed]);
}

#[test]
fn at_the_end_of_data_the_end_of_an_append_call_is_no_reason_to_restart() {
    // Invariant 1's exception: a restart now would repeat rows that other subtasks have published.
    for code in [Code::FailedPrecondition, Code::NotFound, Code::Unavailable] {
        let mut bench = Bench::open();
        bench.tell(acked(1, 1, 0));
        assert_eq!(bench.tell(Input::EndOfData), [flush(1, "s1", 0)]);
        assert_eq!(bench.tell(lost(1, code)), []);
        assert_eq!(bench.tell(flushed(1, 0)), [Command::Closed]);
    }
}

#[test]
fn the_end_of_data_repeats_nothing_that_is_confirmed() {
    let mut bench = Bench::new();
    bench.tell(restored(
        9,
        vec![state(9, 0, 1, list(&[info("old", 0, 4)]))],
        Replay::Confirmed,
    ));
    bench.tell(batch(1));
    bench.tell(created("s1"));
    bench.tell(acked(1, 1, 0));
    bench.tell(Input::Barrier { epoch: Epoch(10) });
    bench.tell(commit(10, &[(0, list(&[info("s1", 0, 0)]))]));
    bench.tell(flushed(1, 0));
    assert_eq!(bench.tell(Input::EndOfData), [Command::Closed]);
}

#[test]
fn rows_that_can_still_be_flushed_are_never_given_up() {
    // Invariant 11: an outage, a quota, a permission or a token is no reason to count rows as visible or lost.
    let causes = [
        (Code::Unavailable, FailureKind::Restart),
        (Code::ResourceExhausted, FailureKind::Restart),
        (Code::PermissionDenied, FailureKind::User),
        (Code::Unauthenticated, FailureKind::User),
    ];
    for unprovable in [Unprovable::Fail, Unprovable::AcceptLoss] {
        for (code, kind) in causes {
            let mut bench = Bench::prepared(|config| config.limits.unprovable = unprovable);
            bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
            let failure = loop {
                let commands = bench.tell(flush_failed(1, code));
                if let Some(failure) = failure(&commands) {
                    break failure;
                }
                if acts(commands)
                    .iter()
                    .all(|command| !matches!(command, Command::Flush { .. }))
                {
                    bench.wake();
                }
            };
            assert_eq!(failure.kind, kind, "{failure}");
            assert!(
                failure
                    .message
                    .starts_with("flushing rows 0 to 0 of stream s1 for checkpoint 1 failed"),
                "{failure}"
            );
        }
    }
}

#[test]
fn a_retried_flush_is_told() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    assert!(matches!(
        notices(&bench.tell(flush_failed(1, Code::NotFound))).as_slice(),
        [Notice::Retry { .. }]
    ));
}

#[test]
fn an_own_commit_flushes_what_was_prepared_and_nothing_else_in_the_message() {
    // Invariant 1.
    let mut bench = Bench::prepared(|_| {});
    let entries = [
        (0, list(&[info("s1", 0, 0)])),
        (1, list(&[info("zombie", 0, 99)])),
    ];
    assert_eq!(bench.tell(commit(1, &entries)), [flush(1, "s1", 0)]);
}

#[test]
fn a_commit_without_an_own_entry_is_refused() {
    let mut bench = Bench::prepared(|_| {});
    let failure = failure(&bench.tell(commit(1, &[(1, list(&[]))]))).unwrap();
    assert_eq!(failure.kind, FailureKind::Host);
}

#[test]
fn a_commit_that_skips_an_older_one_is_refused() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(batch(2));
    bench.tell(acked(1, 2, 1));
    bench.tell(Input::Barrier { epoch: Epoch(2) });
    let failure = failure(&bench.tell(commit(2, &[(0, list(&[info("s1", 1, 1)]))]))).unwrap();
    assert_eq!(failure.message, "commit 2 came before the commit of checkpoint 1");
}

#[test]
fn an_own_commit_before_the_expected_replay_is_refused() {
    let mut bench = Bench::new();
    bench.tell(restored(
        9,
        vec![state(9, 0, 1, list(&[info("old", 0, 4)]))],
        Replay::Expected,
    ));
    bench.tell(Input::Barrier { epoch: Epoch(10) });
    let failure = failure(&bench.tell(commit(10, &[(0, list(&[]))]))).unwrap();
    assert_eq!(
        failure.message,
        "commit 10 came before the replayed commit of checkpoint 9"
    );
}

#[test]
fn checkpoints_that_wait_for_their_commit_are_bounded() {
    // Invariant 13.
    let mut bench = Bench::new();
    let mut epoch = 0;
    let failure = loop {
        epoch += 1;
        if let Some(failure) = failure(&bench.tell(Input::Barrier { epoch: Epoch(epoch) })) {
            break failure;
        }
    };
    assert_eq!((epoch, failure.kind), (9, FailureKind::Host));
}

#[test]
fn a_commit_that_comes_while_the_end_is_drained_is_finished_first() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(batch(2));
    bench.tell(Input::EndOfData);
    assert_eq!(
        bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))])),
        [flush(1, "s1", 0)]
    );
    bench.tell(acked(1, 2, 1));
    assert_eq!(bench.tell(flushed(1, 0)), [committed(1, 1)]);
    assert_eq!(bench.tell(Input::Tick), [flush(2, "s1", 1)]);
    assert_eq!(bench.tell(flushed(2, 1)), [Command::Closed]);
}

#[test]
fn calls_out_of_order_are_the_hosts_mistake() {
    let mut ended = Bench::open();
    ended.tell(Input::EndOfData);
    assert_eq!(
        failure(&ended.tell(Input::Barrier { epoch: Epoch(1) }))
            .unwrap()
            .kind,
        FailureKind::Host
    );
    let mut begun = Bench::flowing();
    let late = restored(9, vec![state(9, 0, 1, list(&[]))], Replay::Confirmed);
    assert_eq!(
        failure(&begun.tell(late)).unwrap().message,
        "state was restored after the start"
    );
}

#[test]
fn the_end_of_data_comes_inside_no_checkpoint_and_no_commit() {
    let mut in_checkpoint = Bench::open();
    in_checkpoint.tell(Input::Barrier { epoch: Epoch(1) });
    let mut in_commit = Bench::prepared(|_| {});
    in_commit.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    for mut bench in [in_checkpoint, in_commit] {
        let failure = failure(&bench.tell(Input::EndOfData)).unwrap();
        assert_eq!(failure.kind, FailureKind::Host);
        assert!(
            failure
                .message
                .contains("end of data came inside a checkpoint or a commit"),
            "{failure}"
        );
    }
}

#[test]
fn the_rows_of_a_commit_are_counted_from_its_first_new_one() {
    assert_eq!(info("s1", 5, 9).rows(), RowCount(5));
    assert_eq!(list(&[info("s1", 5, 9), info("s2", 3, 3)]).rows(), RowCount(6));
}

#[test]
fn numbers_at_their_ends_are_no_panic() {
    let end = i64::MAX as u64 - 1;
    let huge = list(&[info("a", 0, end), info("b", 0, end), info("c", 0, end)]);
    assert_eq!(huge.rows(), RowCount(u64::MAX));
    let mut last = state(9, 0, 1, list(&[]));
    last.incarnation = Incarnation(u64::MAX);
    let mut bench = Bench::new();
    bench.tell(restored(9, vec![last], Replay::Confirmed));
    assert_eq!(bench.core.incarnation(), Incarnation(u64::MAX));
}

#[test]
fn a_commit_older_than_the_last_confirmed_one_is_behind_it_for_ever() {
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    bench.tell(flushed(1, 0));
    bench.tell(Input::Barrier { epoch: Epoch(2) });
    assert_eq!(bench.tell(commit(2, &[(0, list(&[]))])), [committed(2, 0)]);
    let failure = failure(&bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]))).unwrap();
    assert_eq!(
        failure.message,
        "commit 1 belongs to no checkpoint this subtask prepared or restored"
    );
}

#[test]
fn a_quota_of_flushes_is_waited_out_no_longer_than_the_commit_may_take() {
    // Invariant 13: commit.timeout is 600 s here, quota.timeout 900 s.
    let mut bench = Bench::prepared(|_| {});
    bench.tell(commit(1, &[(0, list(&[info("s1", 0, 0)]))]));
    while failure(&bench.tell(flush_failed(1, Code::ResourceExhausted))).is_none() {
        bench.wake();
    }
    let waited = bench.now.since(START).as_secs();
    assert!((450..=600).contains(&waited), "{waited} s");
}
