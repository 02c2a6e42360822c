//! The checkpoint store: a folder or an object store that says which checkpoint is complete and whose it is.
//!
//! Everything in it is created once and never changed (`objects`), under names that `names` forms. What the names and
//! bytes mean is decided in `decide`, without I/O; `lease` carries it out. Two storages serve: `local`, over the file
//! operations of `disk`, and `cloud`.

mod cloud;
mod decide;
mod disk;
mod error;
mod lease;
mod local;
mod location;
mod lock;
#[cfg(feature = "mutants")]
mod mutants;
mod names;
mod objects;
mod reading;
mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bigquery_sink::Mutation;
use bigquery_sink_state::Epoch;
use object_store::ObjectStore;

use cloud::CloudBackend;
use decide::Catalog;
use disk::RealDisk;
pub use error::{Damage, OrderRule, StorageFailure, StoreError};
pub use lease::{CommitMark, CommitPermit, Lease, RestoredCheckpoint};
use local::LocalBackend;
pub use location::StoreLocation;
use lock::FolderLock;
use names::CHECKPOINTS;
use objects::Objects;
pub use records::{Manifest, PipelineFingerprint, SourcePosition, SubtaskCheckpoint};

/// An open store.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Objects,
    location: Arc<str>,
    /// The folder to lock; an object store has none.
    folder: Option<PathBuf>,
    /// Who takes it over, where a simulation says so.
    host: Option<HostIdentity>,
    /// A mistake made on purpose, in builds for that.
    mutation: Mutation,
}

/// What tells one host's claim of a generation from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Never the same for two hosts.
    pub owner: [u8; 16],
    /// Its process, for people.
    pub process: u32,
}

/// What to do about a host that still holds the folder's lock, perhaps stopped.
///
/// An object store has no lock: there every new host takes over, and the old one finds out at its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Give way: [`StoreError::InUse`].
    Refuse,
    /// Take the state over; the old host finds out at its next step and stops.
    Force,
}

/// One checkpoint as `checkpoint list` and `show` print it.
#[derive(Debug)]
pub struct CheckpointInfo {
    /// Its lineage.
    pub lineage: u64,
    /// Its number.
    pub epoch: Epoch,
    /// Whether its epoch was claimed for it; otherwise it is what a broken attempt left, and does not count.
    pub complete: bool,
    /// Whether its commit is confirmed.
    pub committed: bool,
    /// Its manifest, or why that cannot be read.
    pub manifest: Result<Manifest, StoreError>,
    /// Path or object name of its manifest; of its claim if that cannot be read.
    pub file: String,
}

impl Store {
    /// Opens a store to run on; a folder is created if it is missing, and tried out.
    ///
    /// # Errors
    /// [`StoreError::NotWritable`], [`StoreError::Location`].
    pub async fn open(location: &StoreLocation) -> Result<Self, StoreError> {
        match location {
            StoreLocation::Folder(folder) => {
                let folder = absolute(folder)?;
                let backend = LocalBackend::prepare(folder.clone(), Arc::new(RealDisk)).await?;
                Ok(Self::on_folder(backend, folder))
            }
            StoreLocation::Url(_) => Self::open_existing(location),
        }
    }

    /// Opens a store to look at; nothing is created.
    ///
    /// # Errors
    /// [`StoreError::Location`] for a folder that is not there or a URL that no storage serves.
    pub fn open_existing(location: &StoreLocation) -> Result<Self, StoreError> {
        match location {
            StoreLocation::Folder(folder) => {
                let folder = absolute(folder)?;
                if !folder.join(CHECKPOINTS).is_dir() {
                    return Err(StoreError::Location {
                        location: location.to_string(),
                        reason: "there is no state in it".to_owned(),
                    });
                }
                Ok(Self::on_folder(
                    LocalBackend::existing(folder.clone(), Arc::new(RealDisk)),
                    folder,
                ))
            }
            StoreLocation::Url(url) => {
                let shown = location.to_string();
                let backend = CloudBackend::open(url, &shown)?;
                Ok(Self::on(Objects::new(Arc::new(backend)), &shown))
            }
        }
    }

    /// Serves a prefix of an object store that the caller has opened; `shown` names it in errors.
    #[must_use]
    pub fn from_object_store(
        store: Arc<dyn ObjectStore>,
        prefix: object_store::path::Path,
        shown: &str,
    ) -> Self {
        Self::on(
            Objects::new(Arc::new(CloudBackend::new(store, prefix, shown))),
            shown,
        )
    }

    /// Takes it over as this host, in place of an identity drawn at each [`Store::take_over`]: two runs of one
    /// simulation write the same bytes.
    #[must_use]
    pub fn with_host(mut self, host: HostIdentity) -> Self {
        self.host = Some(host);
        self
    }

    /// Makes a mistake on purpose, in builds for that.
    #[must_use]
    pub fn with_mutation(mut self, mutation: Mutation) -> Self {
        self.mutation = mutation;
        self
    }

    /// A store that is gone with the process, for runs against the in-process emulator.
    #[must_use]
    pub fn in_memory() -> Self {
        let memory = Arc::new(object_store::memory::InMemory::new());
        Self::from_object_store(memory, object_store::path::Path::default(), "memory:")
    }

    /// Takes a new generation, the newest. `now_micros` is the wall clock, for the record only.
    ///
    /// On a folder the lease holds a lock until it is dropped; a restart within the process drops its lease first, or
    /// goes on with it by `restore`.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process runs on this folder and `how` is [`TakeOver::Refuse`].
    pub async fn take_over(&self, now_micros: u64, how: TakeOver) -> Result<Lease, StoreError> {
        let lock = match self.folder.clone() {
            Some(folder) => Some(lock(folder, how).await?),
            None => None,
        };
        let host = self.host.unwrap_or_else(HostIdentity::draw);
        let location = Arc::clone(&self.location);
        let mut lease = Lease::take(self.objects.clone(), location, lock, host, now_micros).await?;
        lease.mutation = self.mutation;
        Ok(lease)
    }

    /// Every checkpoint, oldest first, without taking the state over; a host may run meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Storage`]; a damaged file is no error here but shown.
    pub async fn list(&self) -> Result<Vec<CheckpointInfo>, StoreError> {
        let catalog = Catalog::of(self.objects.list(CHECKPOINTS).await?);
        let mut listed: Vec<CheckpointInfo> = Vec::new();
        for id in catalog.claims() {
            listed.extend(reading::info(&self.objects, &catalog, id).await);
        }
        let complete: BTreeSet<String> = listed.iter().map(|info| info.file.clone()).collect();
        for (id, name) in catalog.manifests() {
            if !complete.contains(&self.objects.show(CHECKPOINTS, name)) {
                listed.push(reading::leftover(&self.objects, *id, name).await);
            }
        }
        listed.sort_by_key(|info| (info.lineage, info.epoch));
        Ok(listed)
    }

    fn on_folder(backend: LocalBackend, folder: PathBuf) -> Self {
        let shown = folder.display().to_string();
        Self {
            folder: Some(folder),
            ..Self::on(Objects::new(Arc::new(backend)), &shown)
        }
    }

    fn on(objects: Objects, shown: &str) -> Self {
        Self {
            objects,
            location: shown.into(),
            folder: None,
            host: None,
            mutation: Mutation::default(),
        }
    }
}

impl HostIdentity {
    fn draw() -> Self {
        Self {
            owner: uuid::Uuid::new_v4().into_bytes(),
            process: std::process::id(),
        }
    }
}

/// Off the executor's threads: a disk that hangs must not hold up who waits with a limit.
async fn lock(folder: PathBuf, how: TakeOver) -> Result<FolderLock, StoreError> {
    let shown = folder.display().to_string();
    let locked = tokio::task::spawn_blocking(move || FolderLock::acquire(&folder, how)).await;
    locked.unwrap_or_else(|error| {
        Err(StoreError::Storage {
            doing: "lock",
            file: shown,
            source: error.into(),
        })
    })
}

fn absolute(folder: &Path) -> Result<PathBuf, StoreError> {
    std::path::absolute(folder).map_err(|error| StoreError::Location {
        location: folder.display().to_string(),
        reason: error.to_string(),
    })
}
