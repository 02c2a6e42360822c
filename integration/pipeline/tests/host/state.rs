//! What a run does about its state: a disk that gives no answer, a newest checkpoint that is damaged, an end reached before.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigquery_sink::Epoch;
use bigquery_sink_pipeline::store::StoreError;
use bigquery_sink_pipeline::{Control, HostError, Start, Step};

use crate::fake::World;
use crate::{impulse, numbers};

/// A file whose opening never returns, as on a mount whose server is gone; it does at the end of the test.
struct Hung(PathBuf);

impl Hung {
    fn at(file: PathBuf) -> Self {
        std::fs::remove_file(&file).ok();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        Self(file)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Both ends at once: whoever waits for the other end goes on.
        drop(OpenOptions::new().read(true).write(true).open(&self.0));
    }
}

fn checkpoint_file(state: &Path, name: &str) -> PathBuf {
    state.join("checkpoints").join(name)
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_while_the_state_is_read_is_left_at_the_stop() {
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 1);
    world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    let _hung = Hung::at(checkpoint_file(state.path(), "0001-0000000001.claim"));
    let control = Control::new();
    control.shutdown.cancel();
    let stopped = tokio::spawn(async move { world.run(&impulse(Some(5)), control).await });
    while !stopped.is_finished() {
        // The clock stands still while a thread waits for the disk.
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let error = stopped.await.unwrap().unwrap_err();
    let expected = format!(
        "stopped before the state at {} was read: the storage gave no answer; whether a checkpoint is still to be published is known \
         once it does, so run it again on the same state, without --new-state",
        state.path().display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!error.restart_may_help());
}

#[tokio::test]
async fn a_disk_that_hangs_while_a_lineage_is_opened_fails_after_the_stall_limit() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), 1);
    world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    let _hung = Hung::at(checkpoint_file(state.path(), "0001-0000000001.claim"));
    world.change = Arc::new(move |config| {
        config.stall_limit = Duration::from_secs(1);
        config.start = Start::Checkpoint(Epoch(1));
    });
    let error = world.run(&impulse(Some(5)), Control::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "no answer for 1 s while opening a new lineage");
}

#[tokio::test]
async fn a_disk_that_hangs_while_a_checkpoint_is_completed_fails_the_attempt_after_the_stall_limit() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), 1);
    let hung = Arc::new(Mutex::new(None));
    let control = Control::new();
    let (shutdown, pipe) = (control.shutdown.clone(), Arc::clone(&hung));
    let claim = checkpoint_file(state.path(), "0001-0000000001.claim");
    world.change = Arc::new(move |config| {
        config.stall_limit = Duration::from_secs(1);
        let (shutdown, pipe, claim) = (shutdown.clone(), Arc::clone(&pipe), claim.clone());
        config.freeze = Some(Arc::new(move |step| {
            if step == Step::Collected(Epoch(1)) {
                // Whose the claim is has to be read, and that never ends.
                *pipe.lock().unwrap() = Some(Hung::at(claim.clone()));
                // So that the failed attempt is not followed by another.
                shutdown.cancel();
            }
            false
        }));
    });
    let ended = world.run(&impulse(Some(5)), control).await;
    drop(hung.lock().unwrap().take());
    let expected = "no answer for 1 s while completing a checkpoint";
    assert_eq!(ended.unwrap_err().to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_older_checkpoint_can_be_gone_back_to_though_the_newest_is_damaged() {
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 2);
    world.run(&impulse(Some(30)), Control::new()).await.unwrap();
    let newest = world
        .steps()
        .iter()
        .filter_map(|step| match step {
            Step::Marked(epoch) => Some(epoch.0),
            _ => None,
        })
        .max()
        .unwrap();
    let claim = checkpoint_file(state.path(), &format!("0001-{newest:010}.claim"));
    std::fs::write(&claim, b"rot").unwrap();
    let error = world.run(&impulse(Some(30)), Control::new()).await.unwrap_err();
    assert!(
        matches!(error, HostError::Store(StoreError::Damaged { .. })),
        "{error}"
    );
    let mut back = world.clone();
    back.change = Arc::new(|config| config.start = Start::Checkpoint(Epoch(2)));
    let other = back.run(&impulse(Some(31)), Control::new()).await.unwrap_err();
    assert!(matches!(other, HostError::Changed { .. }), "{other}");
    back.run(&impulse(Some(30)), Control::new()).await.unwrap();
    let mut visible = back.visible();
    visible.dedup();
    assert_eq!(visible, numbers(2, 30));
}

#[tokio::test(start_paused = true)]
async fn a_run_after_the_end_says_at_which_checkpoint_that_was() {
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 2);
    let first = world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    assert_eq!((first.rows_committed, first.already_ended), (10, None));
    let again = world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    assert_eq!(
        (again.rows_read, again.rows_committed, again.already_ended),
        (0, 0, Some(first.checkpoints))
    );
}
