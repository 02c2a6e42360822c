//! Commits that come again, in part, to others, late, and of epochs whose number is used twice.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bigquery_sink::engine::{Controller, Declared, acknowledged};
use bigquery_sink::{Blame, CloseReason, Retry};

use crate::engine::{CONTROLLERS, Engine, edge, ids, told};

#[tokio::test(start_paused = true)]
async fn t8_a_replay_reaches_old_subtasks_entries_under_any_parallelism() {
    for controller in CONTROLLERS {
        for (before, after) in [(3, 1), (3, 2), (2, 2), (2, 5), (1, 4)] {
            let engine = Engine::new(controller);
            let mut job = engine.start(before).await;
            for subtask in 0..i64::from(before) {
                job.give(usize::try_from(subtask).unwrap(), subtask * 10..subtask * 10 + 10)
                    .await;
            }
            let first = job.checkpoint(1).await;
            drop(job);
            let mut job = engine.restore(after, &first).await;
            // Fails where the engine would wait for ever.
            job.replay(&first).await;
            let old = i64::from(before) * 10;
            assert_eq!(engine.visible(), ids(0, old), "{before} to {after}");
            job.give(0, old..old + 5).await;
            let second = job.checkpoint(2).await;
            job.commit(&second).await;
            assert_eq!(engine.visible(), ids(0, old + 5), "{before} to {after}");
        }
    }
}

#[test]
fn t8_old_subtasks_are_acknowledged_by_one_subtask_each() {
    for (before, after) in [(1, 1), (7, 3), (8, 1), (3, 7)] {
        let of = |own, controller| acknowledged(own, after, controller, 0..before);
        let by_worker: Vec<u32> = (0..after).flat_map(|own| of(own, Controller::Worker)).collect();
        let all: BTreeSet<u32> = by_worker.iter().copied().collect();
        assert_eq!(by_worker.len(), all.len(), "each once");
        assert_eq!(all, (0..before.max(after)).collect());
        let by_controller: Vec<u32> = (0..after)
            .flat_map(|own| of(own, Controller::Controller))
            .collect();
        assert_eq!(by_controller, (0..after).collect::<Vec<_>>());
    }
    assert_eq!(
        acknowledged(1, 3, Controller::Worker, [0, 1, 2, 4, 5, 7].into_iter()),
        [1, 4, 7]
    );
}

#[tokio::test(start_paused = true)]
async fn t9_a_commit_may_be_repeated_and_be_applied_in_part() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(3).await;
        for subtask in 0..3 {
            job.give(usize::try_from(subtask).unwrap(), subtask * 10..subtask * 10 + 10)
                .await;
        }
        let first = job.checkpoint(1).await;
        // One subtask hears of it, then the process dies.
        job.say_commit_to(1, &first).await.unwrap();
        assert_eq!(engine.visible(), ids(10, 20));
        drop(job);
        let mut job = engine.restore(3, &first).await;
        job.replay(&first).await;
        job.replay(&first).await;
        assert_eq!(engine.visible(), ids(0, 30));
        drop(job);
        // The acknowledgement was lost, too.
        let mut job = engine.restore(2, &first).await;
        job.replay(&first).await;
        assert_eq!(engine.visible(), ids(0, 30));
    }
}

#[tokio::test(start_paused = true)]
async fn t9_a_process_thought_dead_may_commit_the_same_epoch() {
    let engine = Engine::new(Controller::Controller);
    let mut zombie = engine.start(2).await;
    zombie.give(0, 0..5).await;
    zombie.give(1, 5..10).await;
    let first = zombie.checkpoint(1).await;
    zombie.give(0, 10..12).await;
    let mut job = engine.restore(2, &first).await;
    job.give(0, 10..12).await;
    job.say_commit_to(0, &first).await.unwrap();
    zombie.commit(&first).await;
    job.replay(&first).await;
    zombie.commit(&first).await;
    let second = job.checkpoint(2).await;
    job.commit(&second).await;
    assert_eq!(engine.visible(), ids(0, 12));
}

#[tokio::test(start_paused = true)]
async fn t10_an_epoch_that_came_to_nothing_is_used_again_with_other_rows() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(2).await;
        job.give(0, 0..5).await;
        let first = job.checkpoint(1).await;
        job.commit(&first).await;
        job.give(0, 5..10).await;
        job.give(1, 100..103).await;
        // Prepared by all, and never complete.
        job.checkpoint(2).await;
        drop(job);
        let mut job = engine.restore(2, &first).await;
        job.give(1, 5..12).await;
        let again = job.checkpoint(2).await;
        job.commit(&again).await;
        assert_eq!(engine.visible(), ids(0, 12));
    }
}

#[tokio::test(start_paused = true)]
async fn t10_states_of_different_checkpoints_are_refused() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(2).await;
    let first = job.checkpoint(1).await;
    job.commit(&first).await;
    let second = job.checkpoint(2).await;
    let mixed = HashMap::from([(0, first.states[&0].clone()), (1, second.states[&1].clone())]);
    let mut sink = engine.sink(Declared::default());
    let refused = sink
        .on_start(engine.task(0, 2), &edge(&[]), &mixed)
        .await
        .unwrap_err();
    let text = "the restored states belong to different checkpoints, of which no job ever was in both: checkpoint 1 (subtask 0), checkpoint 2 (subtask 1)";
    assert_eq!(told(&refused), (Blame::User, Retry::Never, text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_restored_state_that_is_damaged_is_refused() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    let mut first = job.checkpoint(1).await;
    first.states.get_mut(&0).unwrap()[20] ^= 1;
    let mut sink = engine.sink(Declared::default());
    let refused = sink
        .on_start(engine.task(0, 1), &edge(&[]), &first.states)
        .await
        .unwrap_err();
    let (blame, retry, text) = told(&refused);
    assert_eq!((blame, retry), (Blame::User, Retry::Never));
    assert!(
        text.starts_with("the restored state of subtask 0 cannot be read: "),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_replayed_commit_that_differs_from_the_restored_copy_is_refused() {
    let engine = Engine::new(Controller::Worker);
    let mut job = engine.start(1).await;
    job.give(0, 0..5).await;
    let first = job.checkpoint(1).await;
    drop(job);
    let mut other = engine.start(1).await;
    other.give(0, 0..5).await;
    let zombie = other.checkpoint(1).await;
    let mut job = engine.restore(1, &first).await;
    let refused = job.say_commit_to(0, &zombie).await.unwrap_err();
    let (blame, retry, text) = told(&refused);
    assert_eq!((blame, retry), (Blame::Internal, Retry::Never));
    assert!(
        text.contains("the replayed commit 1 differs from the restored state's copy"),
        "{text}"
    );
    assert_eq!(engine.visible(), ids(0, 0));
}

#[tokio::test(start_paused = true)]
async fn t26_rows_of_a_stopped_job_can_be_published_days_later_and_not_after_a_week() {
    for (days, is_kept) in [(6, true), (8, false)] {
        let engine = Engine::new(Controller::Controller);
        let mut job = engine.start(1).await;
        job.give(0, 0..5).await;
        let first = job.checkpoint(1).await;
        job.close(CloseReason::Interrupted).await;
        drop(job);
        tokio::time::sleep(Duration::from_secs(days * 24 * 3600)).await;
        let mut job = engine.restore(1, &first).await;
        if is_kept {
            job.replay(&first).await;
            assert_eq!(engine.visible(), ids(0, 5));
            continue;
        }
        let lost = job.say_commit_to(0, &first).await.unwrap_err();
        let (blame, retry, text) = told(&lost);
        assert_eq!((blame, retry), (Blame::External, Retry::Never), "{text}");
        assert!(
            text.starts_with("rows 0 to 4 of stream ") && text.contains("for checkpoint 1"),
            "{text}"
        );
    }
}
