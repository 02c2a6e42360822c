//! What became of the latest checkpoints and of attempts that failed, for whoever watches a run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigquery_sink::Epoch;
use tokio::time::Instant;

/// Checkpoints that are remembered.
const CHECKPOINTS: usize = 60;
/// Failures that are remembered.
const FAILURES: usize = 20;

/// A run's memory of itself, shared with those who watch it. It is written a few times a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    phase: &'static str,
    checkpoints: VecDeque<(Instant, CheckpointRecord)>,
    failures: VecDeque<FailureRecord>,
    confirmed: u64,
}

/// What a run remembers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRecord {
    /// What is under way, such as `committing`; empty before the first attempt.
    pub phase: &'static str,
    /// The latest checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointRecord>,
    /// The latest failures, oldest first.
    pub failures: Vec<FailureRecord>,
    /// Checkpoints whose commit this run confirmed.
    pub confirmed: u64,
}

/// One checkpoint. Durations count from its begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Its number.
    pub epoch: Epoch,
    /// When its barrier was sent, or the replay of its commit began: wall clock, µs since 1970.
    pub began_micros: u64,
    /// An earlier attempt made it, and only its commit was repeated.
    pub replayed: bool,
    /// When every subtask had prepared its part.
    pub prepared: Option<Duration>,
    /// When it was stored and claimed.
    pub durable: Option<Duration>,
    /// When every subtask had confirmed its commit, and that was recorded.
    pub committed: Option<Duration>,
    /// Rows and dead letters that become visible with it.
    pub rows: u64,
    /// Bytes of the sink's states and commit entries.
    pub state_bytes: u64,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// Wall clock, µs since 1970.
    pub at_micros: u64,
    /// Why.
    pub error: String,
    /// The pause before the next attempt; `None` where this was the last.
    pub restart_after: Option<Duration>,
}

impl History {
    /// What is remembered now.
    #[must_use]
    pub fn record(&self) -> HistoryRecord {
        let memory = self.memory();
        HistoryRecord {
            phase: memory.phase,
            checkpoints: memory
                .checkpoints
                .iter()
                .map(|(_, checkpoint)| checkpoint.clone())
                .collect(),
            failures: memory.failures.iter().cloned().collect(),
            confirmed: memory.confirmed,
        }
    }

    pub(super) fn phase(&self, phase: &'static str) {
        self.memory().phase = phase;
    }

    /// The barrier of a checkpoint was sent.
    pub(super) fn began(&self, epoch: Epoch, at_micros: u64) {
        self.memory().begin(epoch, at_micros, false);
    }

    pub(super) fn prepared(&self, epoch: Epoch, rows: u64, state_bytes: u64) {
        self.memory().change(epoch, |checkpoint, after| {
            checkpoint.prepared = Some(after);
            (checkpoint.rows, checkpoint.state_bytes) = (rows, state_bytes);
        });
    }

    pub(super) fn durable(&self, epoch: Epoch) {
        self.memory()
            .change(epoch, |checkpoint, after| checkpoint.durable = Some(after));
    }

    /// A commit that an earlier attempt left unconfirmed is repeated.
    pub(super) fn replays(&self, epoch: Epoch, at_micros: u64, rows: u64, state_bytes: u64) {
        let mut memory = self.memory();
        memory.begin(epoch, at_micros, true);
        memory.change(epoch, |checkpoint, _| {
            (checkpoint.rows, checkpoint.state_bytes) = (rows, state_bytes);
        });
    }

    pub(super) fn committed(&self, epoch: Epoch) {
        let mut memory = self.memory();
        memory.change(epoch, |checkpoint, after| checkpoint.committed = Some(after));
        memory.confirmed += 1;
    }

    pub(super) fn failed(&self, at_micros: u64, error: String, restart_after: Option<Duration>) {
        let mut memory = self.memory();
        if memory.failures.len() == FAILURES {
            memory.failures.pop_front();
        }
        memory.failures.push_back(FailureRecord {
            at_micros,
            error,
            restart_after,
        });
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing of it is ever half-written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn begin(&mut self, epoch: Epoch, began_micros: u64, replayed: bool) {
        if self.checkpoints.len() == CHECKPOINTS {
            self.checkpoints.pop_front();
        }
        let checkpoint = CheckpointRecord {
            epoch,
            began_micros,
            replayed,
            prepared: None,
            durable: None,
            committed: None,
            rows: 0,
            state_bytes: 0,
        };
        self.checkpoints.push_back((Instant::now(), checkpoint));
    }

    /// Changes the newest attempt at a checkpoint.
    fn change(&mut self, epoch: Epoch, change: impl FnOnce(&mut CheckpointRecord, Duration)) {
        let mut newest_first = self.checkpoints.iter_mut().rev();
        if let Some((began, checkpoint)) = newest_first.find(|(_, checkpoint)| checkpoint.epoch == epoch) {
            change(checkpoint, began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_checkpoint_is_told_with_its_times_and_a_failed_one_stays_as_it_was() {
        let history = History::default();
        history.began(Epoch(1), 10);
        tokio::time::advance(Duration::from_millis(3)).await;
        history.prepared(Epoch(1), 7, 90);
        history.failed(20, "cut off".into(), Some(Duration::from_millis(500)));
        history.began(Epoch(1), 30);
        for step in [
            |history: &History| history.prepared(Epoch(1), 8, 91),
            |history: &History| history.durable(Epoch(1)),
            |history: &History| history.committed(Epoch(1)),
        ] {
            tokio::time::advance(Duration::from_millis(2)).await;
            step(&history);
        }
        let ms = |ms| Some(Duration::from_millis(ms));
        let first = CheckpointRecord {
            epoch: Epoch(1),
            began_micros: 10,
            replayed: false,
            prepared: ms(3),
            durable: None,
            committed: None,
            rows: 7,
            state_bytes: 90,
        };
        let second = CheckpointRecord {
            began_micros: 30,
            prepared: ms(2),
            durable: ms(4),
            committed: ms(6),
            rows: 8,
            state_bytes: 91,
            ..first
        };
        let failure = FailureRecord {
            at_micros: 20,
            error: "cut off".into(),
            restart_after: ms(500),
        };
        let record = HistoryRecord {
            phase: "",
            checkpoints: vec![first, second],
            failures: vec![failure],
            confirmed: 1,
        };
        assert_eq!(history.record(), record);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_run_takes_no_more_room_than_a_short_one() {
        let history = History::default();
        for epoch in 1..=1_000 {
            history.began(Epoch(epoch), epoch);
            history.committed(Epoch(epoch));
            history.failed(epoch, String::new(), None);
        }
        let HistoryRecord {
            checkpoints,
            failures,
            confirmed,
            ..
        } = history.record();
        assert_eq!((checkpoints.len(), failures.len(), confirmed), (60, 20, 1_000));
        let oldest = (checkpoints[0].epoch, failures[0].at_micros);
        assert_eq!(oldest, (Epoch(941), 981));
    }
}
