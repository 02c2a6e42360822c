//! The right of one host to complete checkpoints, and the steps in which it does so.

use bigquery_sink_state::Epoch;

use super::{Manifest, OrderRule, StoreError};

/// One host's generation on a store. The newest generation wins; an older one finds out at its next step.
#[derive(Debug)]
pub struct Lease {
    generation: u64,
    lineage: u64,
}

/// Proof that a checkpoint is complete and its claim is this host's to commit; only the store makes one.
#[derive(Debug)]
pub struct CommitPermit {
    epoch: Epoch,
}

/// What a host goes on from.
#[derive(Debug)]
pub struct RestoredCheckpoint {
    /// The newest completed checkpoint.
    pub manifest: Manifest,
    /// The right to replay its commit, if that is not confirmed.
    pub pending_commit: Option<CommitPermit>,
}

/// What [`Lease::mark_committed`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMark {
    /// The marker was written now.
    Created,
    /// It was there before.
    AlreadyThere,
}

impl Lease {
    /// Reads the newest completed checkpoint of the newest lineage. May be called again, after a failed attempt.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if that checkpoint is: never a step back to an older one.
    pub async fn restore(&mut self) -> Result<Option<RestoredCheckpoint>, StoreError> {
        Ok(None)
    }

    /// Writes the manifest, claims the epoch for it, and makes sure that no newer host has taken over.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] and [`StoreError::ClaimLost`] when another host was faster,
    /// [`StoreError::OutOfOrder`] while the commit of the epoch before is not confirmed.
    pub async fn complete(&mut self, manifest: &Manifest) -> Result<CommitPermit, StoreError> {
        Err(StoreError::OutOfOrder {
            epoch: manifest.epoch,
            rule: OrderRule::NotRestored,
        })
    }

    /// Makes sure that no newer host has taken over; called right before commits are sent.
    ///
    /// # Errors
    /// [`StoreError::Superseded`].
    pub async fn still_ours(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records that everything of the checkpoint is visible. May be repeated.
    ///
    /// # Errors
    /// [`StoreError::Storage`]; the same permit may then be tried again.
    pub async fn mark_committed(&mut self, permit: &CommitPermit) -> Result<CommitMark, StoreError> {
        Ok(if permit.epoch.0 == 0 {
            CommitMark::AlreadyThere
        } else {
            CommitMark::Created
        })
    }

    /// Opens a new lineage that begins with a copy of an older, committed checkpoint, and restores from it.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBase`] if it is gone or not committed.
    pub async fn begin_lineage_from(&mut self, epoch: Epoch) -> Result<RestoredCheckpoint, StoreError> {
        Err(StoreError::NoSuchBase {
            location: String::new(),
            epoch,
            reason: "it is not there",
        })
    }

    /// Number the next checkpoint must have; 1 on an empty store.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        Epoch(1)
    }

    /// This host's generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The lineage this host adds to, known after `restore`; 1 on an empty store.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.lineage
    }
}

impl CommitPermit {
    /// The checkpoint it is for.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl RestoredCheckpoint {
    /// Whether its commit is confirmed.
    #[must_use]
    pub fn committed(&self) -> bool {
        self.pending_commit.is_none()
    }
}
