//! The ends of a job: of its data, by a stop, by a failure elsewhere.

use bigquery_sink::CloseReason;
use bigquery_sink::engine::Controller;

use crate::engine::{CONTROLLERS, Engine, ids};

#[tokio::test(start_paused = true)]
async fn t1_at_the_end_of_data_what_waits_for_its_commit_and_the_tail_are_published() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(2).await;
    job.give(0, 0..5).await;
    job.give(1, 5..10).await;
    let first = job.checkpoint(1).await;
    job.commit(&first).await;
    job.give(0, 10..15).await;
    // Its commit will never come: a source has ended.
    job.checkpoint(2).await;
    job.give(1, 15..20).await;
    assert_eq!(engine.visible(), ids(0, 10));
    job.close(CloseReason::EndOfData).await;
    assert_eq!(engine.visible(), ids(0, 20));
}

#[tokio::test(start_paused = true)]
async fn t1_an_end_right_after_a_restore_publishes_the_restored_commit_too() {
    for controller in CONTROLLERS {
        for (before, after) in [(2, 2), (3, 1), (1, 3)] {
            let engine = Engine::new(controller);
            let mut job = engine.start(before).await;
            for subtask in 0..i64::from(before) {
                job.give(usize::try_from(subtask).unwrap(), subtask * 10..subtask * 10 + 10)
                    .await;
            }
            let first = job.checkpoint(1).await;
            drop(job);
            let old = i64::from(before) * 10;
            let mut job = engine.restore(after, &first).await;
            job.give(0, old..old + 3).await;
            // No replay has come, and none will.
            job.close(CloseReason::EndOfData).await;
            assert_eq!(engine.visible(), ids(0, old + 3), "{before} to {after}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t1_an_end_after_the_replay_publishes_everything_once() {
    let engine = Engine::new(Controller::Worker);
    let mut job = engine.start(2).await;
    job.give(0, 0..5).await;
    let first = job.checkpoint(1).await;
    drop(job);
    let mut job = engine.restore(1, &first).await;
    job.give(0, 5..7).await;
    job.replay(&first).await;
    job.close(CloseReason::EndOfData).await;
    assert_eq!(engine.visible(), ids(0, 7));
}

#[tokio::test(start_paused = true)]
async fn t2_no_other_end_publishes_anything() {
    for reason in [CloseReason::Stop, CloseReason::Interrupted] {
        let engine = Engine::new(Controller::Controller);
        let mut job = engine.start(2).await;
        job.give(0, 0..5).await;
        let first = job.checkpoint(1).await;
        job.give(1, 5..9).await;
        job.close(reason).await;
        drop(job);
        assert_eq!(engine.visible(), ids(0, 0), "{reason:?}");
        // And takes nothing away.
        let mut job = engine.restore(2, &first).await;
        job.replay(&first).await;
        assert_eq!(engine.visible(), ids(0, 5), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t2_a_sink_that_is_dropped_publishes_nothing() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    job.give(0, 0..5).await;
    job.checkpoint(1).await;
    job.give(0, 5..9).await;
    drop(job);
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(engine.visible(), ids(0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_sibling_leaves_the_others_their_commit() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(2).await;
    job.give(0, 0..5).await;
    job.give(1, 5..10).await;
    let first = job.checkpoint(1).await;
    // Subtask 1 has failed and is gone; the engine goes on with subtask 0 until it has noticed.
    drop(job.subtasks.pop());
    assert_eq!(job.say_commit_to(0, &first).await.unwrap(), [0]);
    job.give(0, 10..20).await;
    job.close(CloseReason::Interrupted).await;
    assert_eq!(engine.visible(), ids(0, 5));
    let mut job = engine.restore(2, &first).await;
    job.give(0, 10..20).await;
    job.replay(&first).await;
    let second = job.checkpoint(2).await;
    job.commit(&second).await;
    assert_eq!(engine.visible(), ids(0, 20));
}
