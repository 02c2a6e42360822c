//! Kills at every step of the host, alone and in pairs; another parallelism after the kill.

use bigquery_sink_pipeline::{Control, Step};

use crate::fake::World;
use crate::{impulse, numbers};

const COUNT: u64 = 24;

/// Steps of a run of `COUNT` rows a subtask that nothing disturbs.
async fn steps_of_a_whole_run(parallelism: u32) -> usize {
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), parallelism);
    world.run(&impulse(Some(COUNT)), Control::new()).await.unwrap();
    assert_eq!(world.visible(), numbers(u64::from(parallelism), COUNT));
    world.steps().len()
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_step_neither_loses_nor_repeats_a_row() {
    for parallelism in [1, 2] {
        let steps = steps_of_a_whole_run(parallelism).await;
        assert!(steps >= 20, "{steps}");
        for at in 0..steps {
            let state = tempfile::tempdir().unwrap();
            let world = World::new(state.path(), parallelism);
            assert!(
                !world.run_and_kill(&impulse(Some(COUNT)), at).await,
                "step {at} of {steps} did not come"
            );
            let seen = world.visible();
            world.run(&impulse(Some(COUNT)), Control::new()).await.unwrap();
            let after = world.visible();
            assert_eq!(
                after,
                numbers(u64::from(parallelism), COUNT),
                "killed at {at}, {:?}",
                world.steps()[at]
            );
            assert!(
                seen.iter().all(|row| after.contains(row)),
                "a row disappeared after a kill at {at}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_kill_during_the_recovery_neither_loses_nor_repeats_a_row() {
    let steps = steps_of_a_whole_run(2).await;
    for first in (3..steps).step_by(4) {
        for second in (0..12).step_by(2) {
            let state = tempfile::tempdir().unwrap();
            let world = World::new(state.path(), 2);
            assert!(!world.run_and_kill(&impulse(Some(COUNT)), first).await);
            world.run_and_kill(&impulse(Some(COUNT)), second).await;
            world.run(&impulse(Some(COUNT)), Control::new()).await.unwrap();
            assert_eq!(
                world.visible(),
                numbers(2, COUNT),
                "killed at {first}, then at {second}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_with_another_parallelism_flushes_what_the_old_subtasks_had_and_goes_on() {
    for (before, after) in [(1, 3), (3, 1), (2, 5), (5, 2), (3, 3)] {
        let state = tempfile::tempdir().unwrap();
        let whole = steps_of_a_whole_run(before).await;
        // Right after a checkpoint was completed, and right before its commit was recorded.
        for wanted in ["Completed", "Published"] {
            let world = World {
                state: state.path().join(wanted),
                ..World::new(state.path(), before)
            };
            let at = find_step(before, wanted, whole).await;
            assert!(!world.run_and_kill(&impulse(Some(COUNT)), at).await);
            assert!(matches!(
                world.steps().last(),
                Some(Step::Completed(_) | Step::Published(_))
            ));
            let world = World {
                parallelism: after,
                ..world
            };
            world.run(&impulse(Some(COUNT)), Control::new()).await.unwrap();
            assert_eq!(
                world.visible(),
                numbers(u64::from(before.max(after)), COUNT),
                "{before} to {after}, {wanted}"
            );
        }
    }
}

/// Number of the first step of this name in a whole run.
async fn find_step(parallelism: u32, name: &str, whole: usize) -> usize {
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), parallelism);
    world.run(&impulse(Some(COUNT)), Control::new()).await.unwrap();
    let steps = world.steps();
    assert_eq!(steps.len(), whole);
    let named = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| format!("{step:?}").starts_with(name));
    named.map(|(at, _)| at).next().unwrap()
}
