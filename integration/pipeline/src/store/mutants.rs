//! Mistakes of a store, made on purpose ([`Mutant`]) to see that the simulation notices them. Never in a normal build.

use bigquery_sink::Mutant;

use super::decide::Catalog;
use super::lease::{Lease, Progress};
use super::names::{CHECKPOINTS, CheckpointId};
use super::records::{Manifest, Record as _};
use super::{RestoredCheckpoint, reading};

impl Lease {
    /// What a host restores that makes the mistake; `None` if it makes none here.
    pub(super) async fn mistaken_restore(&mut self, catalog: &Catalog) -> Option<RestoredCheckpoint> {
        if self.mutation.is(Mutant::NewestStateThoughNotComplete) {
            return self.newest_manifest(catalog).await;
        }
        if self.mutation.is(Mutant::StepBackPastDamage) {
            return self.newest_sound(catalog).await;
        }
        None
    }

    /// The newest state, whether its epoch was claimed or not; its commit is taken for done.
    async fn newest_manifest(&mut self, catalog: &Catalog) -> Option<RestoredCheckpoint> {
        let (id, name) = catalog.manifests().last()?;
        if catalog.claims().any(|claimed| claimed >= *id) {
            return None;
        }
        let bytes = self.objects.read(CHECKPOINTS, name).await.ok()??;
        let manifest = Manifest::from_bytes(&bytes).ok()?;
        self.go_on_after(*id);
        Some(RestoredCheckpoint {
            manifest,
            pending_commit: None,
        })
    }

    /// The newest checkpoint that can be read, if a newer one cannot.
    async fn newest_sound(&mut self, catalog: &Catalog) -> Option<RestoredCheckpoint> {
        for (at, id) in catalog.claims().rev().enumerate() {
            let Ok(read) = reading::checkpoint(&self.objects, catalog, id).await else {
                continue;
            };
            if at == 0 {
                return None;
            }
            let (manifest, _) = read.manifest?;
            self.go_on_after(id);
            return Some(RestoredCheckpoint {
                manifest,
                pending_commit: None,
            });
        }
        None
    }

    fn go_on_after(&mut self, newest: CheckpointId) {
        self.progress = Some(Progress {
            newest,
            committed: true,
        });
    }
}
