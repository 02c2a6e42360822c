//! Rows, barriers and commits in the engine's order.

use bigquery_sink::CloseReason;
use bigquery_sink::engine::{Controller, STATE_TABLE, StateTable};
use bigquery_write_emulator::faults::Rpc;

use crate::engine::{CONTROLLERS, Engine, ids, sizes};

#[tokio::test(start_paused = true)]
async fn rows_become_visible_with_each_commit_and_not_before() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(2).await;
        for epoch in 1..=3 {
            let first = i64::from(epoch) * 10;
            job.give(0, first..first + 5).await;
            job.give(1, first + 5..first + 10).await;
            let checkpoint = job.checkpoint(epoch).await;
            assert_eq!(engine.visible(), ids(10, first), "a barrier publishes nothing");
            job.commit(&checkpoint).await;
            assert_eq!(engine.visible(), ids(10, first + 10));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t3_a_commit_may_come_after_rows_of_the_next_epoch() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    job.give(0, 0..5).await;
    let first = job.checkpoint(1).await;
    job.give(0, 5..9).await;
    job.commit(&first).await;
    assert_eq!(engine.visible(), ids(0, 5));
    let second = job.checkpoint(2).await;
    job.commit(&second).await;
    assert_eq!(engine.visible(), ids(0, 9));
}

#[tokio::test(start_paused = true)]
async fn t3_rows_may_come_before_the_replayed_commit() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(2).await;
        job.give(0, 0..3).await;
        job.give(1, 3..6).await;
        let first = job.checkpoint(1).await;
        drop(job);
        let mut job = engine.restore(2, &first).await;
        job.give(0, 6..8).await;
        job.give(1, 8..10).await;
        assert_eq!(engine.visible(), ids(0, 0));
        job.replay(&first).await;
        assert_eq!(engine.visible(), ids(0, 6));
        let second = job.checkpoint(2).await;
        job.commit(&second).await;
        assert_eq!(engine.visible(), ids(0, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn t4_every_subtask_acknowledges_every_epoch_also_without_rows() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(3).await;
        job.give(1, 0..4).await;
        for epoch in 1..=3 {
            let checkpoint = job.checkpoint(epoch).await;
            for subtask in 0..3 {
                let acknowledged = job.say_commit_to(subtask, &checkpoint).await.unwrap();
                assert_eq!(acknowledged, [u32::try_from(subtask).unwrap()]);
            }
        }
        assert_eq!(engine.visible(), ids(0, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn t5_the_table_is_committed_where_the_sink_is_committing() {
    let state = StateTable {
        name: STATE_TABLE,
        description: "write streams of each subtask",
        is_committed: false,
    };
    let of = |mode| {
        let engine = Engine::with(Controller::Controller, &[("write.mode", mode)]);
        let sink = engine.sink(bigquery_sink::engine::Declared::default());
        (sink.is_committing(), sink.tables())
    };
    let (is_committing, tables) = of("exactly_once");
    let committed: Vec<_> = tables
        .iter()
        .map(|table| (table.name, table.is_committed))
        .collect();
    assert_eq!(
        (is_committing, committed),
        (true, vec![("s", false), ("c", true)])
    );
    assert_eq!(of("at_least_once"), (false, vec![state]));
}

#[tokio::test(start_paused = true)]
async fn t6_and_t7_every_epoch_has_state_and_commit_data_also_without_rows() {
    let engine = Engine::new(Controller::Worker);
    let mut job = engine.start(2).await;
    job.give(0, 0..3).await;
    let mut newest = job.checkpoint(1).await;
    job.commit(&newest).await;
    for epoch in 2..=4 {
        newest = job.checkpoint(epoch).await;
        assert_eq!(
            (newest.states.len(), newest.commits.len()),
            (2, 2),
            "epoch {epoch}"
        );
        job.commit(&newest).await;
    }
    assert_eq!(
        engine
            .handle
            .calls()
            .iter()
            .filter(|call| call.rpc == Rpc::FlushRows)
            .count(),
        1
    );
    // What the engine has of an epoch is what was given in that epoch.
    let mut job = engine.restore(2, &newest).await;
    job.give(1, 3..6).await;
    let next = job.checkpoint(5).await;
    job.commit(&next).await;
    assert_eq!(engine.visible(), ids(0, 6));
}

#[tokio::test(start_paused = true)]
async fn t12_commit_data_and_state_stay_small() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(2).await;
    for epoch in 1..=200 {
        let first = i64::from(epoch) * 100;
        job.give(0, first..first + 100).await;
        let checkpoint = job.checkpoint(epoch).await;
        job.commit(&checkpoint).await;
        for size in sizes(&checkpoint.commits)
            .values()
            .chain(sizes(&checkpoint.states).values())
        {
            assert!(*size < 1024, "{size} bytes in epoch {epoch}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_least_once_goes_on_without_any_commit() {
    let engine = Engine::with(Controller::Controller, &[("write.mode", "at_least_once")]);
    let mut job = engine.start(2).await;
    let mut newest = None;
    // More epochs than may wait for a commit.
    for epoch in 1..=20 {
        let first = i64::from(epoch) * 10;
        job.give(0, first..first + 5).await;
        job.give(1, first + 5..first + 10).await;
        let checkpoint = job.checkpoint(epoch).await;
        assert!(checkpoint.commits.is_empty());
        assert_eq!(engine.visible(), ids(10, first + 10));
        newest = Some(checkpoint);
    }
    drop(job);
    let mut job = engine.restore(3, &newest.unwrap()).await;
    for epoch in 21..=30 {
        let first = i64::from(epoch) * 10;
        job.give(2, first..first + 10).await;
        job.checkpoint(epoch).await;
        assert_eq!(engine.visible(), ids(10, first + 10));
    }
    job.close(CloseReason::EndOfData).await;
    assert_eq!(engine.visible(), ids(10, 310));
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_a_checkpoint_and_a_restart_lose_and_double_nothing() {
    for controller in CONTROLLERS {
        let engine = Engine::new(controller);
        let mut job = engine.start(2).await;
        job.give(0, 0..5).await;
        job.give(1, 5..10).await;
        let last = job.barrier(1, true).await;
        // Rows have ended, ticks and the commit still come.
        for sink in &mut job.subtasks {
            sink.handle_tick().await.unwrap();
        }
        job.commit(&last).await;
        job.close(CloseReason::Interrupted).await;
        assert_eq!(engine.visible(), ids(0, 10));
        let mut job = engine.restore(2, &last).await;
        job.give(1, 10..12).await;
        let next = job.checkpoint(2).await;
        job.commit(&next).await;
        assert_eq!(engine.visible(), ids(0, 12));
    }
}
