//! The store as a whole: hosts that stop and wake, answers that get lost, power that goes, files that rot.

mod crash;
mod crash_disk;
mod damage;
mod folder;
mod hosts;
mod object_double;
mod rules;

use super::*;

/// What a test host writes as a checkpoint: everything in it follows from the epoch and the writer.
fn manifest(lease: &Lease, epoch: u64) -> Manifest {
    manifest_of(lease.lineage(), epoch, lease.generation())
}

fn manifest_of(lineage: u64, epoch: u64, generation: u64) -> Manifest {
    let subtask = |index: u64| SubtaskCheckpoint {
        state: format!("state {index} of epoch {epoch} by generation {generation}").into_bytes(),
        commit: format!("commit {index} of epoch {epoch} by generation {generation}").into_bytes(),
        rows: 10 * epoch + index,
    };
    Manifest {
        epoch: Epoch(epoch),
        generation,
        lineage,
        fingerprint: PipelineFingerprint("earthquakes -> demo".to_owned()),
        parallelism: 2,
        subtasks: vec![subtask(0), subtask(1)],
        sources: vec![SourcePosition {
            name: "earthquakes".to_owned(),
            bytes: epoch.to_le_bytes().to_vec(),
        }],
        rows_read: 30 * epoch,
        rows_committed: 20 * epoch,
        rows_rejected: epoch,
        input_ended: false,
        created_at_micros: 1_700_000_000_000_000 + epoch,
    }
}

/// A whole checkpoint, as a host without trouble takes it.
async fn checkpoint(lease: &mut Lease, epoch: u64) -> Result<CommitMark, StoreError> {
    let permit = lease.complete(&manifest(lease, epoch)).await?;
    lease.still_ours().await?;
    lease.mark_committed(&permit).await
}

async fn checkpoints(lease: &mut Lease, epochs: std::ops::RangeInclusive<u64>) {
    for epoch in epochs {
        assert_eq!(checkpoint(lease, epoch).await.unwrap(), CommitMark::Created);
    }
}

/// A lease that has restored from a store without a lock.
async fn host(store: &Store) -> (Lease, Option<RestoredCheckpoint>) {
    let mut lease = store
        .take_over(1_700_000_000_000_000, TakeOver::Refuse)
        .await
        .unwrap();
    let restored = lease.restore().await.unwrap();
    (lease, restored)
}
