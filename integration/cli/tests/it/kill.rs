//! kill -9 at random moments, a reader watching all the while.

use std::collections::BTreeSet;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::{World, finish, summary};

/// Flushes are done at once but answered late: half the time a checkpoint is complete and its commit not confirmed.
const SLOW_FLUSHES: &str = r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "delay", "ms": 150}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn one_subtask_survives_kill_9_at_random_moments() {
    let world = World::new(40_000, SLOW_FLUSHES).await;
    survives(world, &["1"], 0x5eed_0001, 22).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_subtasks_survive_kill_9_and_changes_of_parallelism() {
    let world = World::new(40_000, SLOW_FLUSHES).await;
    survives(world, &["3", "3", "1", "3", "4", "2"], 0x5eed_0003, 22).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_parquet_files_is_read_once_through_kill_9() {
    let world = World::of_parquet(20_000, SLOW_FLUSHES).await;
    survives(world, &["1", "2"], 0x5eed_0005, 8).await;
}

/// What the kills met.
#[derive(Debug, Default)]
struct Kills {
    /// The life that ended had completed a checkpoint.
    after_a_checkpoint: u32,
    /// The newest checkpoint was complete and its commit not confirmed.
    inside_a_commit: u32,
}

async fn survives(world: World, parallelisms: &[&str], seed: u64, lives: u32) {
    let world = Arc::new(world);
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(watch(Arc::clone(&world), Arc::clone(&done)));
    let mut kills = Kills::default();
    let mut random = seed;
    for life in 0..lives {
        let parallelism = parallelisms[life as usize % parallelisms.len()];
        let child = world
            .run(&["--parallelism", parallelism, "--source-rate", "1500"])
            .spawn()
            .unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        kill_after(
            &world,
            child,
            Duration::from_millis(100 + (random >> 33) % 900),
            &mut kills,
        )
        .await;
    }
    assert!(
        (world.visible_ids().len() as u64) < world.rows,
        "the kills must land in the work"
    );
    assert!(kills.after_a_checkpoint >= lives * 10 / 22, "{kills:?}");
    assert!(kills.inside_a_commit >= lives * 3 / 22, "{kills:?}");
    let last = world.run(&["--parallelism", parallelisms[0]]).spawn().unwrap();
    let summary = summary(&finish(last, Duration::from_secs(60)).await);
    assert_eq!(summary["rows_rejected"], 0);
    done.store(true, Ordering::Relaxed);
    let polls = reader.await.unwrap();
    assert!(polls > 100, "the reader looked {polls} times");
    world.assert_whole().await;
}

/// Kills once the time is over, counted from the life's first sign of work, so that slow machines meet the same moments.
async fn kill_after(world: &World, mut child: Child, time: Duration, kills: &mut Kills) {
    let before = newest(world).await;
    let limit = Instant::now() + Duration::from_secs(30);
    let connections = world.emulator.handle().connections();
    while world.emulator.handle().connections() == connections && newest(world).await == before {
        assert!(
            child.try_wait().unwrap().is_none(),
            "ended: {:?}",
            child.wait_with_output()
        );
        assert!(Instant::now() < limit, "the run does not begin");
        sleep(Duration::from_millis(2)).await;
    }
    sleep(time).await;
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.code().is_none(),
        "it was to be killed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after = world.checkpoints().await;
    let newest = after.iter().rfind(|checkpoint| checkpoint.complete);
    let epoch = newest.map_or(0, |checkpoint| checkpoint.epoch.0);
    kills.after_a_checkpoint += u32::from(epoch > before);
    kills.inside_a_commit += u32::from(newest.is_some_and(|checkpoint| !checkpoint.committed));
}

async fn newest(world: &World) -> u64 {
    world
        .checkpoints()
        .await
        .iter()
        .filter(|checkpoint| checkpoint.complete)
        .map(|checkpoint| checkpoint.epoch.0)
        .max()
        .unwrap_or(0)
}

/// Reads again and again: no row twice, none disappears, none that no completed checkpoint covers (invariants 1 and 10).
async fn watch(world: Arc<World>, done: Arc<AtomicBool>) -> u32 {
    let mut polls = 0;
    let mut before = BTreeSet::new();
    while !done.load(Ordering::Relaxed) {
        let visible = world.visible_ids();
        assert!(before.is_subset(&visible), "a row disappeared");
        let checkpoints = world.checkpoints().await;
        let covered = checkpoints
            .iter()
            .filter(|checkpoint| checkpoint.complete)
            .filter_map(|checkpoint| {
                checkpoint
                    .manifest
                    .as_ref()
                    .ok()
                    .map(|manifest| manifest.rows_read)
            });
        let covered = covered.max().unwrap_or(0);
        if let Some(last) = visible.last() {
            assert!(
                (*last as u64) < covered,
                "row {last} is visible, completed checkpoints cover {covered} rows"
            );
        }
        before = visible;
        polls += 1;
        sleep(Duration::from_millis(15)).await;
    }
    polls
}
