//! What a restore needs, also across modes.

use std::collections::BTreeMap;

use bigquery_sink_state::{
    Command, Core, Epoch, Failure, FailureKind, Incarnation, Input, Replay, RestoreError, RestoredUnion,
    RowCount, SubtaskIndex, SubtaskState,
};

use super::*;

#[test]
fn a_restore_goes_on_with_a_larger_incarnation_and_confirms_the_replay() {
    let mut bench = Bench::new();
    let far = Incarnation(START.0 + 70);
    let states = vec![
        at_least_once(5, 0, 2, Incarnation(7), START),
        at_least_once(5, 1, 2, far, START),
    ];
    assert_eq!(bench.tell(restored(states, Replay::Expected)), []);
    assert_eq!(bench.core.incarnation(), Incarnation(START.0 + 71));
    let replay = commit(5, &[(0, list(&[])), (1, list(&[]))]);
    let committed = Command::Committed {
        epoch: Epoch(5),
        rows: RowCount(0),
    };
    assert_eq!(bench.tell(replay), [committed]);
    bench.tell(Input::Barrier { epoch: Epoch(6) });
    let committed = Command::Committed {
        epoch: Epoch(6),
        rows: RowCount(0),
    };
    assert_eq!(bench.tell(commit(6, &[])), [committed]);
    assert_eq!(
        bench.tell(Input::Barrier { epoch: Epoch(5) }),
        [host_failure("barrier 5 came out of order, after Some(Epoch(6))")]
    );
}

#[test]
fn an_own_commit_comes_after_the_replayed_one() {
    let mut bench = Bench::new();
    let states = vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    bench.tell(restored(states, Replay::Expected));
    bench.tell(Input::Barrier { epoch: Epoch(6) });
    assert_eq!(
        bench.tell(commit(6, &[(0, list(&[]))])),
        [host_failure(
            "commit 6 came before the replayed commit of checkpoint 5"
        )]
    );
}

#[test]
fn a_replayed_commit_is_that_of_the_restored_state() {
    let mut bench = Bench::new();
    let states = vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    bench.tell(restored(states, Replay::Unknown));
    assert_eq!(
        bench.tell(commit(5, &[(0, list(&[info("s1", 0, 0)]))])),
        [host_failure(
            "the replayed commit 5 differs from the restored state's copy; another incarnation wrote one of them"
        )]
    );
}

#[test]
fn the_mode_changes_only_where_every_commit_is_confirmed() {
    let message = |old: &str, new: &str| {
        format!(
            "checkpoint 5 was taken with write.mode = '{old}', and its commit is not known to be confirmed; the mode can change only where \
             every commit is. Start with '{old}' again, stop with a checkpoint, and change to '{new}' then; where the host cannot tell what \
             was confirmed, start the new mode as a new pipeline"
        )
    };
    let exactly_once = || vec![state(5, 0, 1, list(&[info("s1", 0, 3)]))];
    let at_least_once = || vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    for replay in [Replay::Expected, Replay::Unknown] {
        let refused = Failure {
            kind: FailureKind::User,
            message: message("exactly_once", "at_least_once"),
        };
        assert_eq!(
            Bench::new().tell(restored(exactly_once(), replay)),
            [Command::Fail(refused)]
        );
        let refused = Failure {
            kind: FailureKind::User,
            message: message("at_least_once", "exactly_once"),
        };
        let mut core = Core::new(config());
        core.handle(START, restored(at_least_once(), replay));
        assert_eq!(core.poll(), Some(Command::Fail(refused)));
    }
    let mut bench = Bench::new();
    assert_eq!(bench.tell(restored(exactly_once(), Replay::Confirmed)), []);
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    let mut core = Core::new(config());
    core.handle(START, restored(at_least_once(), Replay::Confirmed));
    assert_eq!(core.poll(), None);
}

#[test]
fn states_of_both_modes_are_no_checkpoint() {
    let states = BTreeMap::from([
        (SubtaskIndex(0), state(5, 0, 2, list(&[]))),
        (SubtaskIndex(1), at_least_once(5, 1, 2, Incarnation(7), START)),
    ]);
    assert_eq!(
        RestoredUnion::new("t", Epoch(5), states),
        Err(RestoreError::Incomplete(
            "subtask 0 wrote with write.mode = 'exactly_once', subtask 1 with 'at_least_once'".into()
        ))
    );
}

#[test]
fn a_state_is_written_in_the_form_that_every_build_reads() {
    let state = at_least_once(5, 0, 1, Incarnation(7), START);
    assert_eq!(SubtaskState::decode(&state.encode()), Ok(state));
}
