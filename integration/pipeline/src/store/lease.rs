//! The right of one host to complete checkpoints, and the steps in which it does so.
//!
//! ```text
//! take_over ──> restore ──> complete(N) ──> still_ours ──> commits are sent ──> mark_committed ──> complete(N+1)
//!  claims a      newest      1 newest generation?                                 marker, then
//!  generation    claim       2 manifest, under a name of this attempt             older ones are deleted
//!                            3 claim of epoch N, create-if-absent
//!                            4 newest generation?
//! ```
//!
//! Why step 4: a host that takes over writes its generation before it reads the claims, and we write our claim before
//! we read the generations, so at least one of the two sees the other. And since each epoch is claimed once and
//! epochs have no gaps, a host that was stopped anywhere in between either loses its claim or wins one that the
//! newer host then loses; a checkpoint is never replaced by another of its number.

use std::sync::Arc;

use bigquery_sink::{Mutant, Mutation};
use bigquery_sink_state::Epoch;

use super::decide::{
    Catalog, Claim, KEEP, Newest, Standing, newest_generation, outdated_generations, standing,
};
use super::lock::FolderLock;
use super::names::{self, CHECKPOINTS, CheckpointId, FileName, GENERATIONS};
use super::objects::Objects;
use super::records::{Claimed, CommitMarker, EpochClaim, GenerationRecord, ManifestRef, Record};
use super::{Damage, HostIdentity, Manifest, OrderRule, StoreError, reading};

/// Hosts that may take a generation before us while we try to.
const TAKE_OVER_TRIES: usize = 32;

/// One host's generation on a store. The newest generation wins; an older one finds out at its next step.
#[derive(Debug)]
pub struct Lease {
    pub(super) objects: Objects,
    location: Arc<str>,
    generation: u64,
    record: Vec<u8>,
    attempts: u64,
    pub(super) progress: Option<Progress>,
    /// A mistake made on purpose, in builds for that.
    pub(super) mutation: Mutation,
    _lock: Option<FolderLock>,
}

/// What this host knows of the newest complete checkpoint; unknown before `restore` and after any failed step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) newest: CheckpointId,
    pub(super) committed: bool,
}

/// Proof that a checkpoint is complete and that its commit may be sent; only the store makes one.
#[derive(Debug)]
pub struct CommitPermit {
    id: CheckpointId,
    manifest: ManifestRef,
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
    /// Claims the next generation.
    pub(super) async fn take(
        objects: Objects,
        location: Arc<str>,
        lock: Option<FolderLock>,
        host: HostIdentity,
        now_micros: u64,
    ) -> Result<Self, StoreError> {
        objects.settle().await?;
        for _ in 0..TAKE_OVER_TRIES {
            let names = objects.list(GENERATIONS).await?;
            let generation = newest_generation(&names).unwrap_or(0).saturating_add(1);
            let record = GenerationRecord {
                generation,
                owner: host.owner,
                process: host.process,
                started_at_micros: now_micros,
            }
            .to_bytes();
            let name = names::generation(generation);
            if let Claim::OtherBytes(_) = objects.claim(GENERATIONS, &name, &record).await? {
                continue;
            }
            sweep(&objects, GENERATIONS, &outdated_generations(generation, &names)).await;
            return Ok(Self {
                objects,
                location,
                generation,
                record,
                attempts: 0,
                progress: None,
                mutation: Mutation::default(),
                _lock: lock,
            });
        }
        Err(StoreError::Storage {
            doing: "take over",
            file: location.to_string(),
            source: format!("{TAKE_OVER_TRIES} times another host was faster").into(),
        })
    }

    /// Reads the newest completed checkpoint of the newest lineage. May be called again, after a failed attempt.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if that checkpoint is: never a step back to an older one.
    pub async fn restore(&mut self) -> Result<Option<RestoredCheckpoint>, StoreError> {
        self.progress = None;
        // A host killed between a link and the folder's sync left a claim that we would build on and power could take.
        self.objects.settle().await?;
        let catalog = Catalog::of(self.objects.list(CHECKPOINTS).await?);
        #[cfg(feature = "mutants")]
        if let Some(mistaken) = self.mistaken_restore(&catalog).await {
            return Ok(Some(mistaken));
        }
        let id = match catalog.newest() {
            Newest::Nothing => {
                self.progress = Some(Progress::at_start(1));
                return Ok(None);
            }
            Newest::Complete { id, .. } => id,
            Newest::ClaimGone(id) => {
                return Err(StoreError::Damaged {
                    file: self.objects.show(CHECKPOINTS, &FileName::Claim(id).to_string()),
                    damage: Damage::Missing {
                        named_by: FileName::Committed(id).to_string(),
                    },
                });
            }
        };
        let read = reading::checkpoint(&self.objects, &catalog, id).await?;
        let Some((manifest, reference)) = read.manifest else {
            self.progress = Some(Progress::at_start(id.lineage));
            return Ok(None);
        };
        self.progress = Some(Progress {
            newest: id,
            committed: read.committed,
        });
        let pending_commit = (!read.committed).then_some(CommitPermit {
            id,
            manifest: reference,
        });
        Ok(Some(RestoredCheckpoint {
            manifest,
            pending_commit,
        }))
    }

    /// Writes the manifest, claims the epoch for it, and makes sure that no newer host has taken over.
    ///
    /// After an error the checkpoint may or may not be complete; `restore` tells, and comes before the next `complete`.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] and [`StoreError::ClaimLost`] when another host was faster,
    /// [`StoreError::OutOfOrder`] while the commit of the epoch before is not confirmed, which changes nothing.
    pub async fn complete(&mut self, manifest: &Manifest) -> Result<CommitPermit, StoreError> {
        let id = self.next_in_order(manifest)?;
        self.progress = None;
        self.still_ours().await?;
        let reference = self.write_manifest(id, manifest).await?;
        self.claim(id, Claimed::Checkpoint(reference.clone())).await?;
        self.still_ours().await?;
        self.progress = Some(Progress {
            newest: id,
            committed: false,
        });
        Ok(CommitPermit {
            id,
            manifest: reference,
        })
    }

    /// Makes sure that no newer host has taken over; called right before commits are sent.
    ///
    /// # Errors
    /// [`StoreError::Superseded`], or [`StoreError::Replaced`] if the state was removed under this host.
    pub async fn still_ours(&self) -> Result<(), StoreError> {
        if self.mutation.is(Mutant::NoEpochClaim) {
            return Ok(());
        }
        let name = names::generation(self.generation);
        let record = self.objects.read(GENERATIONS, &name).await?;
        let names = self.objects.list(GENERATIONS).await?;
        match standing(self.generation, &names, record.as_ref() == Some(&self.record)) {
            Standing::Ours => Ok(()),
            Standing::SupersededBy(by) => Err(StoreError::Superseded {
                location: self.location.to_string(),
                ours: self.generation,
                by,
            }),
            Standing::RecordGone => Err(StoreError::Replaced {
                location: self.location.to_string(),
                ours: self.generation,
            }),
        }
    }

    /// Records that everything of the checkpoint is visible, then deletes what is older than the last ten. May be
    /// repeated. That it is visible is true whoever says it, so a superseded host may still say it.
    ///
    /// # Errors
    /// [`StoreError::Storage`]; the same permit may then be tried again.
    pub async fn mark_committed(&mut self, permit: &CommitPermit) -> Result<CommitMark, StoreError> {
        let id = permit.id;
        let marker = CommitMarker {
            lineage: id.lineage,
            epoch: id.epoch,
            manifest: permit.manifest.clone(),
        };
        let name = FileName::Committed(id).to_string();
        let mark = match self.objects.claim(CHECKPOINTS, &name, &marker.to_bytes()).await? {
            Claim::Created => CommitMark::Created,
            Claim::SameBytes => CommitMark::AlreadyThere,
            Claim::OtherBytes(_) => {
                return Err(StoreError::Damaged {
                    file: self.objects.show(CHECKPOINTS, &name),
                    damage: Damage::Mismatch {
                        named_by: FileName::Claim(id).to_string(),
                        what: "manifest",
                    },
                });
            }
        };
        if let Some(progress) = self.progress.as_mut().filter(|progress| progress.newest == id) {
            progress.committed = true;
        }
        self.delete_older().await;
        Ok(mark)
    }

    /// The checkpoint that [`Self::begin_lineage_from`] would begin with, so that it can be judged first; newer ones may be damaged.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBase`] if it is gone or not committed, [`StoreError::Damaged`] if it is itself.
    pub async fn base(&self, epoch: Epoch) -> Result<Manifest, StoreError> {
        self.objects.settle().await?;
        let catalog = Catalog::of(self.objects.list(CHECKPOINTS).await?);
        self.base_in(&catalog, epoch).await.map(|(_, manifest)| manifest)
    }

    async fn base_in(&self, catalog: &Catalog, epoch: Epoch) -> Result<(CheckpointId, Manifest), StoreError> {
        let refuse = |reason| StoreError::NoSuchBase {
            location: self.location.to_string(),
            epoch,
            reason,
        };
        let base = catalog
            .claims()
            .rev()
            .find(|id| id.epoch == epoch)
            .ok_or_else(|| refuse("it is not kept any more"))?;
        let read = reading::checkpoint(&self.objects, catalog, base).await?;
        match read.manifest.filter(|_| read.committed) {
            Some((manifest, _)) => Ok((base, manifest)),
            None => Err(refuse("its commit is not confirmed")),
        }
    }

    /// Opens a new lineage that begins with a copy of an older, committed checkpoint, and restores from it. Of several
    /// of that number the one of the newest lineage is taken. Rows committed since become visible again.
    ///
    /// # Errors
    /// As [`Self::base`]; else as [`Self::complete`].
    pub async fn begin_lineage_from(&mut self, epoch: Epoch) -> Result<RestoredCheckpoint, StoreError> {
        self.objects.settle().await?;
        let catalog = Catalog::of(self.objects.list(CHECKPOINTS).await?);
        let (base, manifest) = self.base_in(&catalog, epoch).await?;
        let id = CheckpointId {
            lineage: catalog.next_lineage(),
            epoch,
        };
        let manifest = Manifest {
            lineage: id.lineage,
            generation: self.generation,
            ..manifest
        };
        self.progress = None;
        self.still_ours().await?;
        let reference = self.write_manifest(id, &manifest).await?;
        let content = Claimed::Copy {
            of_lineage: base.lineage,
            manifest: reference,
        };
        self.open_lineage(id, content).await?;
        Ok(RestoredCheckpoint {
            manifest,
            pending_commit: None,
        })
    }

    /// Opens a new lineage that begins with nothing: the state starts anew, old checkpoints no longer count.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn begin_empty_lineage(&mut self) -> Result<(), StoreError> {
        self.objects.settle().await?;
        let catalog = Catalog::of(self.objects.list(CHECKPOINTS).await?);
        self.progress = None;
        self.still_ours().await?;
        let start = Progress::at_start(catalog.next_lineage());
        self.open_lineage(start.newest, Claimed::Nothing).await
    }

    /// Number the next checkpoint must have; 1 on an empty store.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        let newest = self.progress.map_or(0, |progress| progress.newest.epoch.0);
        Epoch(newest.saturating_add(1))
    }

    /// This host's generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The lineage this host adds to, known after `restore`; 1 on an empty store.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.progress.map_or(1, |progress| progress.newest.lineage)
    }

    fn next_in_order(&self, manifest: &Manifest) -> Result<CheckpointId, StoreError> {
        let refuse = |rule| StoreError::OutOfOrder {
            epoch: manifest.epoch,
            rule,
        };
        let progress = self.progress.ok_or_else(|| refuse(OrderRule::NotRestored))?;
        if !progress.committed {
            return Err(refuse(OrderRule::CommitPending(progress.newest.epoch)));
        }
        if manifest.epoch != self.next_epoch() {
            return Err(refuse(OrderRule::NextIs(self.next_epoch())));
        }
        if (manifest.generation, manifest.lineage) != (self.generation, self.lineage()) {
            return Err(refuse(OrderRule::ForeignManifest));
        }
        Ok(CheckpointId {
            lineage: manifest.lineage,
            epoch: manifest.epoch,
        })
    }

    /// Writes a manifest under a name of its own: an attempt that failed may still be on its way to the store.
    async fn write_manifest(
        &mut self,
        id: CheckpointId,
        manifest: &Manifest,
    ) -> Result<ManifestRef, StoreError> {
        self.attempts += 1;
        let name = FileName::Manifest {
            id,
            generation: self.generation,
            attempt: self.attempts,
        }
        .to_string();
        let bytes = manifest.to_bytes();
        match self.objects.claim(CHECKPOINTS, &name, &bytes).await? {
            Claim::Created | Claim::SameBytes => Ok(ManifestRef::of(name, &bytes)),
            Claim::OtherBytes(_) => Err(StoreError::Storage {
                doing: "write",
                file: self.objects.show(CHECKPOINTS, &name),
                source: "another file has the name that only this run uses".into(),
            }),
        }
    }

    async fn claim(&self, id: CheckpointId, content: Claimed) -> Result<(), StoreError> {
        let claim = EpochClaim {
            lineage: id.lineage,
            epoch: id.epoch,
            generation: self.generation,
            content,
        };
        let name = FileName::Claim(id).to_string();
        let Claim::OtherBytes(theirs) = self.objects.claim(CHECKPOINTS, &name, &claim.to_bytes()).await?
        else {
            return Ok(());
        };
        if self.mutation.is(Mutant::NoEpochClaim) || self.mutation.is(Mutant::StepBackPastDamage) {
            return Ok(());
        }
        // A newer host is the reason to stop; otherwise an older one slipped in, and its checkpoint is now the newest.
        self.still_ours().await?;
        let theirs = EpochClaim::from_bytes(&theirs).map_err(|error| StoreError::Damaged {
            file: self.objects.show(CHECKPOINTS, &name),
            damage: error.into(),
        })?;
        Err(StoreError::ClaimLost {
            location: self.location.to_string(),
            epoch: id.epoch,
            by: theirs.generation,
        })
    }

    async fn open_lineage(&mut self, id: CheckpointId, content: Claimed) -> Result<(), StoreError> {
        self.claim(id, content).await?;
        self.still_ours().await?;
        self.progress = Some(Progress {
            newest: id,
            committed: true,
        });
        Ok(())
    }

    /// Deletes old checkpoints. A failure costs space, not truth: the next commit tries again.
    async fn delete_older(&self) {
        let names = match self.objects.list(CHECKPOINTS).await {
            Ok(names) => names,
            Err(error) => return tracing::warn!(%error, "old checkpoints stay for now"),
        };
        let plan = Catalog::of(names).cleanup(KEEP);
        if sweep(&self.objects, CHECKPOINTS, &plan.first).await {
            sweep(&self.objects, CHECKPOINTS, &plan.then).await;
        }
    }
}

impl Progress {
    /// Before the first checkpoint of a lineage.
    fn at_start(lineage: u64) -> Self {
        Self {
            newest: CheckpointId {
                lineage,
                epoch: Epoch(0),
            },
            committed: true,
        }
    }
}

impl CommitPermit {
    /// The checkpoint it is for.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.id.epoch
    }
}

impl RestoredCheckpoint {
    /// Whether its commit is confirmed.
    #[must_use]
    pub fn committed(&self) -> bool {
        self.pending_commit.is_none()
    }
}

async fn sweep(objects: &Objects, folder: &str, names: &[String]) -> bool {
    let deleted = objects.delete(folder, names).await;
    if let Err(error) = &deleted {
        tracing::warn!(%error, "old checkpoints stay for now");
    }
    deleted.is_ok()
}
