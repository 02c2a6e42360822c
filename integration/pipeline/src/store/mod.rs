//! The checkpoint store: a folder or an object store that says which checkpoint is complete and whose it is.

mod error;
mod lease;
mod location;
mod records;

pub use error::{Damage, OrderRule, StorageFailure, StoreError};
pub use lease::{CommitMark, CommitPermit, Lease, RestoredCheckpoint};
pub use location::StoreLocation;
pub use records::{Manifest, PipelineFingerprint, SourcePosition, SubtaskCheckpoint};

use bigquery_sink_state::Epoch;

/// An open store.
#[derive(Clone, Debug)]
pub struct Store {
    location: StoreLocation,
}

/// What to do about a host that still holds the folder's lock, perhaps stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Give way: [`StoreError::InUse`].
    Refuse,
    /// Take the state over; the old host finds out at its next step and stops.
    Force,
}

/// One checkpoint as `checkpoint list` and `show` print it.
#[derive(Clone, Debug)]
pub struct CheckpointInfo {
    /// Its lineage.
    pub lineage: u64,
    /// Its number.
    pub epoch: Epoch,
    /// Generation of the host that wrote it.
    pub generation: u64,
    /// Whether its epoch was claimed for it.
    pub complete: bool,
    /// Whether its commit is confirmed.
    pub committed: bool,
    /// Its manifest, or why that cannot be read.
    pub manifest: Result<Manifest, String>,
    /// Name of the manifest's file.
    pub file: String,
}

impl Store {
    /// Opens a store; a folder is created if it is missing.
    ///
    /// # Errors
    /// [`StoreError::NotWritable`], [`StoreError::Location`].
    pub async fn open(location: StoreLocation) -> Result<Self, StoreError> {
        Ok(Self { location })
    }

    /// Takes a new generation, the newest. `now_micros` is the wall clock, for the record only.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process runs on this folder and `how` is [`TakeOver::Refuse`].
    pub async fn take_over(&self, now_micros: u64, how: TakeOver) -> Result<Lease, StoreError> {
        let _ = (now_micros, how);
        Err(StoreError::Location {
            location: self.location.to_string(),
            reason: "not served yet".into(),
        })
    }

    /// Every checkpoint, oldest first, without taking the state over.
    ///
    /// # Errors
    /// [`StoreError::Storage`]; a damaged file is no error here but shown.
    pub async fn list(&self) -> Result<Vec<CheckpointInfo>, StoreError> {
        Ok(Vec::new())
    }
}
