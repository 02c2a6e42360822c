//! What a run has done so far: numbers of its manifests, so that rows read again after a restart count once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::{Manifest, RestoredCheckpoint};

/// A run as it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Rows read by this run; after a restart it falls back to the checkpoint.
    pub rows_read: u64,
    /// Rows this run made visible in the table.
    pub rows_committed: u64,
    /// The newest confirmed checkpoint.
    pub epoch: u64,
    /// Restarts so far.
    pub restarts: u32,
    /// Rows read a second, over about the last second.
    pub rows_per_second: f64,
}

/// A run that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Rows read, each counted once.
    pub rows_read: u64,
    /// Rows made visible in the table, also those of a commit that an earlier run left unconfirmed.
    pub rows_committed: u64,
    /// Rows that are not in the table: left out by `bad_data = 'drop'`, or dead letters.
    pub rows_rejected: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Restarts after failures.
    pub restarts: u32,
    /// Write streams created.
    pub streams_created: u64,
    /// The checkpoint at which an earlier run had read everything and committed it, so that nothing was left for this one; `None` if
    /// there was anything to do.
    pub already_ended: Option<u64>,
    /// How long it took.
    pub seconds: f64,
}

/// Counts since the state began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) read: u64,
    pub(super) committed: u64,
    pub(super) rejected: u64,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    /// When the run began; known after the first restore.
    at_start: Option<Counts>,
    /// At the newest completed checkpoint; its rows count as committed once that is confirmed.
    completed: Counts,
    confirmed: Counts,
    checkpoints: u64,
    restarts: u32,
    epoch: u64,
    ended: Option<u64>,
    pace: Option<(Instant, u64, f64)>,
}

impl Counts {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self {
            read: manifest.rows_read,
            committed: manifest.rows_committed,
            rejected: manifest.rows_rejected,
        }
    }
}

impl Totals {
    /// An attempt goes on from here.
    pub(super) fn restored(&mut self, restored: Option<&RestoredCheckpoint>) {
        let (completed, pending) = match restored {
            None => (Counts::default(), 0),
            Some(restored) => {
                let rows: u64 = restored
                    .manifest
                    .subtasks
                    .iter()
                    .map(|subtask| subtask.rows)
                    .sum();
                (
                    Counts::of(&restored.manifest),
                    if restored.committed() { 0 } else { rows },
                )
            }
        };
        self.completed = completed;
        self.confirmed = Counts {
            committed: completed.committed.saturating_sub(pending),
            ..completed
        };
        self.at_start.get_or_insert(self.confirmed);
    }

    /// A restored checkpoint says that nothing is left to do.
    pub(super) fn had_ended(&mut self, epoch: u64) {
        self.ended = Some(epoch);
    }

    /// A checkpoint is durable.
    pub(super) fn completed(&mut self, counts: Counts) {
        self.completed = counts;
        self.checkpoints += 1;
    }

    /// Its commit is confirmed.
    pub(super) fn confirmed(&mut self, epoch: u64) {
        self.confirmed = self.completed;
        self.epoch = epoch;
    }

    pub(super) fn counts(&self) -> Counts {
        self.completed
    }

    pub(super) fn restarted(&mut self, progress: &watch::Sender<Progress>) {
        self.restarts += 1;
        self.pace = None;
        self.report(self.completed.read, progress);
    }

    /// Tells the caller; `read` counts rows since the state began.
    pub(super) fn report(&mut self, read: u64, progress: &watch::Sender<Progress>) {
        let now = Instant::now();
        let (since, then, rate) = *self.pace.get_or_insert((now, read, 0.0));
        let seconds = (now - since).as_secs_f64();
        let rate = if seconds >= 1.0 {
            read.saturating_sub(then) as f64 / seconds
        } else {
            rate
        };
        self.pace = Some(if seconds >= 1.0 {
            (now, read, rate)
        } else {
            (since, then, rate)
        });
        let start = self.at_start.unwrap_or_default();
        progress.send_replace(Progress {
            rows_read: read.saturating_sub(start.read),
            rows_committed: self.confirmed.committed.saturating_sub(start.committed),
            epoch: self.epoch,
            restarts: self.restarts,
            rows_per_second: rate,
        });
    }

    pub(super) fn summary(&self, streams_created: u64, took: Duration) -> Summary {
        let start = self.at_start.unwrap_or_default();
        // After a restart the end may be this run's own.
        let worked = self.checkpoints > 0 || self.confirmed != start;
        Summary {
            rows_read: self.completed.read.saturating_sub(start.read),
            rows_committed: self.confirmed.committed.saturating_sub(start.committed),
            rows_rejected: self.completed.rejected.saturating_sub(start.rejected),
            checkpoints: self.checkpoints,
            restarts: self.restarts,
            streams_created,
            already_ended: self.ended.filter(|_| !worked),
            seconds: took.as_secs_f64(),
        }
    }
}
