//! The engine's checkpoint storage: in memory, and older than every process.
//!
//! A process takes a generation when it begins; only the newest may declare a checkpoint complete or its commit
//! confirmed, as in the engine (arroyo.md 4.5).

use std::collections::{BTreeMap, BTreeSet};

use bigquery_sink::{Epoch, Prepared, SubtaskIndex};
use bytes::Bytes;

use super::plan::RestoreFrom;

/// What is stored.
#[derive(Debug, Default)]
pub(crate) struct Store {
    generation: u64,
    checkpoints: Vec<Checkpoint>,
    /// Epochs of which some subtask prepared its part, and in which generation.
    attempts: BTreeSet<(Epoch, u64)>,
    /// Those that were declared complete.
    completed: BTreeSet<(Epoch, u64)>,
}

/// A checkpoint's place in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointId(usize);

/// One checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) epoch: Epoch,
    /// Of the process that took it.
    pub(crate) generation: u64,
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) parts: BTreeMap<SubtaskIndex, Prepared>,
    /// How far each key was read.
    pub(crate) positions: Vec<u64>,
    pub(crate) status: Status,
}

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// All parts are there.
    Stored,
    /// It is the one to go on from.
    Complete,
    /// Its rows are visible.
    Confirmed,
    /// An older one was gone on from.
    GivenUp,
}

/// A newer process has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded;

/// What a process begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) generation: u64,
    pub(crate) from: Option<CheckpointId>,
    /// It became complete only now.
    pub(crate) adopted: bool,
}

impl Store {
    /// A process begins; those before it are superseded.
    pub(crate) fn begin(&mut self, restore: RestoreFrom) -> Begun {
        self.generation += 1;
        let mut from = self.newest();
        let mut adopted = false;
        match restore {
            RestoreFrom::Newest => {}
            RestoreFrom::Older { back } => {
                let confirmed = self.ids(|checkpoint| checkpoint.status == Status::Confirmed);
                if let Some(older) = confirmed.len().checked_sub(back + 1).map(|at| confirmed[at]) {
                    for newer in &mut self.checkpoints[older.0 + 1..] {
                        newer.status = Status::GivenUp;
                    }
                    from = Some(older);
                }
            }
            RestoreFrom::Adopted => {
                let follows = |checkpoint: &Checkpoint| {
                    checkpoint.status == Status::Stored && checkpoint.parent == from
                };
                if self.may_follow(from)
                    && let Some(&stored) = self.ids(follows).last()
                {
                    self.complete(stored);
                    from = Some(stored);
                    adopted = true;
                }
            }
        }
        Begun {
            generation: self.generation,
            from,
            adopted,
        }
    }

    /// The newest complete checkpoint.
    pub(crate) fn newest(&self) -> Option<CheckpointId> {
        let complete =
            |checkpoint: &Checkpoint| matches!(checkpoint.status, Status::Complete | Status::Confirmed);
        self.ids(complete).last().copied()
    }

    pub(crate) fn get(&self, id: CheckpointId) -> &Checkpoint {
        &self.checkpoints[id.0]
    }

    /// A subtask prepared its part.
    pub(crate) fn attempted(&mut self, epoch: Epoch, generation: u64) {
        self.attempts.insert((epoch, generation));
    }

    /// Whether an older generation began a checkpoint of the same number, and it came to nothing.
    pub(crate) fn was_attempted_before(&self, checkpoint: &Checkpoint) -> bool {
        let (epoch, generation) = (checkpoint.epoch, checkpoint.generation);
        self.attempts
            .difference(&self.completed)
            .any(|&(other, older)| other == epoch && older < generation)
    }

    /// All parts are there. A superseded process may still write them, to a place of its own.
    pub(crate) fn store(&mut self, checkpoint: Checkpoint) -> CheckpointId {
        self.checkpoints.push(checkpoint);
        CheckpointId(self.checkpoints.len() - 1)
    }

    pub(crate) fn declare_complete(&mut self, id: CheckpointId, generation: u64) -> Result<(), Superseded> {
        if generation != self.generation {
            return Err(Superseded);
        }
        assert!(
            self.may_follow(self.get(id).parent),
            "the commit before is confirmed, or the engine broke its contract"
        );
        self.complete(id);
        Ok(())
    }

    pub(crate) fn confirm(&mut self, id: CheckpointId, generation: u64) -> Result<(), Superseded> {
        if generation != self.generation {
            return Err(Superseded);
        }
        self.checkpoints[id.0].status = Status::Confirmed;
        Ok(())
    }

    /// A checkpoint is declared complete when the one before is confirmed.
    fn may_follow(&self, parent: Option<CheckpointId>) -> bool {
        parent == self.newest() && parent.is_none_or(|parent| self.get(parent).status == Status::Confirmed)
    }

    fn complete(&mut self, id: CheckpointId) {
        let checkpoint = &mut self.checkpoints[id.0];
        checkpoint.status = Status::Complete;
        self.completed.insert((checkpoint.epoch, checkpoint.generation));
    }

    fn ids(&self, which: impl Fn(&Checkpoint) -> bool) -> Vec<CheckpointId> {
        let ids = (0..self.checkpoints.len()).map(CheckpointId);
        ids.filter(|id| which(self.get(*id))).collect()
    }
}

impl Checkpoint {
    pub(crate) fn parallelism(&self) -> u32 {
        u32::try_from(self.parts.len()).expect("the parallelism is a u32")
    }

    /// What `handle_commit` is given.
    pub(crate) fn entries(&self) -> BTreeMap<SubtaskIndex, Bytes> {
        let entry = |(&subtask, part): (&SubtaskIndex, &Prepared)| (subtask, part.commit.clone());
        self.parts.iter().map(entry).collect()
    }

    /// What `on_start` is given.
    pub(crate) fn states(&self) -> BTreeMap<SubtaskIndex, Bytes> {
        let state = |(&subtask, part): (&SubtaskIndex, &Prepared)| (subtask, part.state.clone());
        self.parts.iter().map(state).collect()
    }
}
