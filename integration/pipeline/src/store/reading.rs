//! Reads one checkpoint whole: claim, manifest and marker, each checked against the one that names it.

use super::decide::Catalog;
use super::names::{CHECKPOINTS, CheckpointId, FileName};
use super::objects::Objects;
use super::records::{Claimed, CommitMarker, EpochClaim, ManifestRef, Record};
use super::{CheckpointInfo, Damage, Manifest, StoreError};

/// A claimed checkpoint whose files belong together.
#[derive(Debug)]
pub(super) struct ReadCheckpoint {
    /// `None` for a lineage that begins with nothing.
    pub(super) manifest: Option<(Manifest, ManifestRef)>,
    pub(super) committed: bool,
}

/// Reads a checkpoint that the catalog lists as claimed.
pub(super) async fn checkpoint(
    objects: &Objects,
    catalog: &Catalog,
    id: CheckpointId,
) -> Result<ReadCheckpoint, StoreError> {
    let claim = claim(objects, id).await?;
    let Some(reference) = claim.manifest() else {
        return Ok(ReadCheckpoint {
            manifest: None,
            committed: true,
        });
    };
    let manifest = manifest(objects, id, &claim, reference).await?;
    let committed = match claim.content {
        Claimed::Copy { .. } | Claimed::Nothing => true,
        Claimed::Checkpoint(_) if catalog.is_marked(id) => {
            marker(objects, id, reference).await?;
            true
        }
        Claimed::Checkpoint(_) => false,
    };
    Ok(ReadCheckpoint {
        manifest: Some((manifest, reference.clone())),
        committed,
    })
}

/// Reads an epoch's claim.
pub(super) async fn claim(objects: &Objects, id: CheckpointId) -> Result<EpochClaim, StoreError> {
    let name = FileName::Claim(id).to_string();
    let claim: EpochClaim = record(objects, &name, "the folder's listing").await?.1;
    if (claim.lineage, claim.epoch) != (id.lineage, id.epoch) {
        return Err(mismatch(objects, &name, "its name", "epoch"));
    }
    Ok(claim)
}

async fn manifest(
    objects: &Objects,
    id: CheckpointId,
    claim: &EpochClaim,
    reference: &ManifestRef,
) -> Result<Manifest, StoreError> {
    let claim_name = FileName::Claim(id).to_string();
    let (bytes, manifest): (_, Manifest) = record(objects, &reference.name, &claim_name).await?;
    if ManifestRef::of(reference.name.clone(), &bytes) != *reference {
        return Err(mismatch(objects, &reference.name, &claim_name, "content"));
    }
    if (manifest.lineage, manifest.epoch, manifest.generation) != (id.lineage, id.epoch, claim.generation) {
        return Err(mismatch(
            objects,
            &reference.name,
            &claim_name,
            "epoch or generation",
        ));
    }
    Ok(manifest)
}

async fn marker(objects: &Objects, id: CheckpointId, reference: &ManifestRef) -> Result<(), StoreError> {
    let name = FileName::Committed(id).to_string();
    let marker: CommitMarker = record(objects, &name, "the folder's listing").await?.1;
    let wanted = CommitMarker {
        lineage: id.lineage,
        epoch: id.epoch,
        manifest: reference.clone(),
    };
    if marker != wanted {
        return Err(mismatch(
            objects,
            &name,
            &FileName::Claim(id).to_string(),
            "manifest",
        ));
    }
    Ok(())
}

/// Reads and opens a file that must be there, since `named_by` says so.
pub(super) async fn record<T: Record>(
    objects: &Objects,
    name: &str,
    named_by: &str,
) -> Result<(Vec<u8>, T), StoreError> {
    let damaged = |damage| StoreError::Damaged {
        file: objects.show(CHECKPOINTS, name),
        damage,
    };
    let bytes = objects.read(CHECKPOINTS, name).await?.ok_or_else(|| {
        damaged(Damage::Missing {
            named_by: named_by.to_owned(),
        })
    })?;
    let value = T::from_bytes(&bytes).map_err(|error| damaged(error.into()))?;
    Ok((bytes, value))
}

fn mismatch(objects: &Objects, name: &str, named_by: &str, what: &'static str) -> StoreError {
    StoreError::Damaged {
        file: objects.show(CHECKPOINTS, name),
        damage: Damage::Mismatch {
            named_by: named_by.to_owned(),
            what,
        },
    }
}

/// Describes a claimed checkpoint, damaged or not; `None` for the start of an empty lineage.
pub(super) async fn info(objects: &Objects, catalog: &Catalog, id: CheckpointId) -> Option<CheckpointInfo> {
    let claim = claim(objects, id).await.ok();
    if claim
        .as_ref()
        .is_some_and(|claim| claim.content == Claimed::Nothing)
    {
        return None;
    }
    let copied = claim
        .as_ref()
        .is_some_and(|claim| matches!(claim.content, Claimed::Copy { .. }));
    let manifest_name = claim
        .as_ref()
        .and_then(|claim| Some(claim.manifest()?.name.clone()));
    let name = manifest_name.unwrap_or_else(|| FileName::Claim(id).to_string());
    let manifest = match checkpoint(objects, catalog, id).await {
        Ok(ReadCheckpoint { manifest, .. }) => Ok(manifest?.0),
        Err(error) => Err(error),
    };
    Some(CheckpointInfo {
        lineage: id.lineage,
        epoch: id.epoch,
        complete: true,
        committed: copied || catalog.is_marked(id),
        manifest,
        file: objects.show(CHECKPOINTS, &name),
    })
}

/// Describes a manifest that no claim names.
pub(super) async fn leftover(objects: &Objects, id: CheckpointId, name: &str) -> CheckpointInfo {
    CheckpointInfo {
        lineage: id.lineage,
        epoch: id.epoch,
        complete: false,
        committed: false,
        manifest: record(objects, name, "the folder's listing")
            .await
            .map(|(_, manifest)| manifest),
        file: objects.show(CHECKPOINTS, name),
    }
}
