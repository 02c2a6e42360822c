//! Power is lost at every file operation, with every part of what was not synced: the old or the new checkpoint is
//! there, whole, and never less than was promised.

use std::sync::Arc;

use super::crash_disk::{BYTES_KEPT, CrashDisk, Death, NAMES_KEPT};
use super::*;

const ROOT: &str = "/states/state";

/// What a host was told before it died.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    attempted: u64,
    complete: u64,
    committing: u64,
    committed: u64,
}

async fn open(disk: &CrashDisk) -> Result<Store, StoreError> {
    let backend = LocalBackend::prepare(PathBuf::from(ROOT), Arc::new(disk.clone())).await?;
    Ok(Store::on(Objects::new(Arc::new(backend)), ROOT))
}

/// A host's life: it starts, replays what is pending, and takes checkpoints up to `last`.
async fn live(disk: &CrashDisk, last: u64, promised: &mut Promised) -> Result<(), StoreError> {
    let store = open(disk).await?;
    let mut lease = store.take_over(7, TakeOver::Refuse).await?;
    if let Some(pending) = lease
        .restore()
        .await?
        .and_then(|restored| restored.pending_commit)
    {
        lease.mark_committed(&pending).await?;
    }
    while lease.next_epoch().0 <= last {
        let epoch = lease.next_epoch().0;
        promised.attempted = epoch;
        let permit = lease.complete(&manifest(&lease, epoch)).await?;
        promised.complete = epoch;
        lease.still_ours().await?;
        promised.committing = epoch;
        lease.mark_committed(&permit).await?;
        promised.committed = epoch;
    }
    Ok(())
}

/// Restores on what is left and compares with the promise; the next checkpoint must go through.
async fn judge(disk: &CrashDisk, before: u64, promised: Promised, place: &str) {
    let store = open(disk)
        .await
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut lease = store.take_over(8, TakeOver::Refuse).await.unwrap();
    let restored = lease
        .restore()
        .await
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    let epoch = restored.as_ref().map_or(0, |restored| restored.manifest.epoch.0);
    let least = promised.complete.max(before);
    assert!(
        (least..=promised.attempted.max(before)).contains(&epoch),
        "{place}: epoch {epoch} after {promised:?}"
    );
    if let Some(restored) = restored {
        let writer = restored.manifest.generation;
        assert_eq!(restored.manifest, manifest_of(1, epoch, writer), "{place}");
        assert!(
            restored.committed() || epoch > promised.committed.max(before),
            "{place}: commit forgotten"
        );
        assert!(
            !restored.committed() || epoch <= promised.committing.max(before),
            "{place}: commit invented"
        );
        if let Some(permit) = &restored.pending_commit {
            lease.mark_committed(permit).await.unwrap();
        }
    }
    checkpoint(&mut lease, epoch + 1)
        .await
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(
        lease.restore().await.unwrap().unwrap().manifest,
        manifest(&lease, epoch + 1),
        "{place}"
    );
}

/// Kills a host at every operation of its life, and judges every state that a loss of power can leave.
async fn lose_power_everywhere(start: &CrashDisk, before: u64, last: u64) -> usize {
    let whole = start.copy(None);
    live(&whole, last, &mut Promised::default()).await.unwrap();
    let operations = whole.done();
    for (at, operation) in operations.iter().enumerate() {
        for applied in [false, true] {
            let disk = start.copy(Some(Death { at, applied }));
            let mut promised = Promised::default();
            // A cleanup or a temporary file that fails does not stop a host.
            live(&disk, last, &mut promised).await.ok();
            for (kept_names, names) in NAMES_KEPT.iter().enumerate() {
                for (kept_bytes, bytes) in BYTES_KEPT.iter().enumerate() {
                    let left = disk.after_power_loss(*names, *bytes);
                    let place =
                        format!("{at} {operation} applied {applied} names {kept_names} bytes {kept_bytes}");
                    judge(&left, before, promised, &place).await;
                }
            }
        }
    }
    operations.len()
}

#[tokio::test]
async fn power_lost_anywhere_in_the_life_of_a_new_state_leaves_the_old_or_the_new_checkpoint() {
    assert!(lose_power_everywhere(&CrashDisk::new(), 0, 2).await > 50);
}

#[tokio::test]
async fn power_lost_anywhere_while_old_checkpoints_are_deleted_leaves_the_old_or_the_new_checkpoint() {
    let disk = CrashDisk::new();
    live(&disk, 10, &mut Promised::default()).await.unwrap();
    assert!(lose_power_everywhere(&disk, 10, 12).await > 50);
}

#[tokio::test]
async fn what_a_restart_has_seen_after_a_kill_survives_a_loss_of_power() {
    let start = CrashDisk::new();
    live(&start, 1, &mut Promised::default()).await.unwrap();
    let whole = start.copy(None);
    live(&whole, 2, &mut Promised::default()).await.unwrap();
    for at in 0..whole.done().len() {
        let disk = start.copy(Some(Death { at, applied: true }));
        live(&disk, 2, &mut Promised::default()).await.ok();
        // The process is gone, the power is not: all it wrote is seen, and built upon.
        let alive = disk.copy(None);
        let seen = host(&open(&alive).await.unwrap()).await.1.unwrap();
        let left = alive.after_power_loss(NAMES_KEPT[0], BYTES_KEPT[0]);
        let again = host(&open(&left).await.unwrap()).await.1.unwrap();
        assert_eq!(
            (&again.manifest, again.committed()),
            (&seen.manifest, seen.committed()),
            "{}",
            whole.done()[at]
        );
    }
}

#[tokio::test]
async fn a_file_is_synced_before_it_has_its_name_and_the_folder_after() {
    let disk = CrashDisk::new();
    let (mut lease, _) = host(&open(&disk).await.unwrap()).await;
    let before = disk.done().len();
    lease.complete(&manifest(&lease, 1)).await.unwrap();
    let folder = format!("{ROOT}/checkpoints");
    let steps = |name: &str| {
        let beside = format!("{folder}/.{name}.*.tmp");
        [
            format!("create {beside}"),
            format!("write {beside}"),
            format!("sync {beside}"),
            format!("link {beside} to {folder}/{name}"),
            format!("sync folder {folder}"),
            format!("remove {beside}"),
        ]
    };
    let expected = [
        steps("0001-0000000001-g0000001-01.manifest"),
        steps("0001-0000000001.claim"),
    ]
    .concat();
    assert_eq!(disk.done()[before..], expected);
}

#[tokio::test]
async fn a_new_state_dir_is_named_durably_with_all_its_parents() {
    let disk = CrashDisk::new();
    open(&disk).await.unwrap();
    let left = disk.after_power_loss(NAMES_KEPT[0], BYTES_KEPT[0]);
    assert_eq!(
        disk::Disk::list(&left, Path::new(ROOT)).unwrap(),
        ["checkpoints", "generations"]
    );
}

#[tokio::test]
async fn a_write_that_fails_is_an_error_and_never_counted_as_done() {
    let start = CrashDisk::new();
    live(&start, 1, &mut Promised::default()).await.unwrap();
    let whole = start.copy(None);
    let mut promised = Promised::default();
    live(&whole, 2, &mut promised).await.unwrap();
    let last_write = whole
        .done()
        .iter()
        .rposition(|operation| operation.starts_with("sync folder"))
        .unwrap();
    for at in 0..=last_write {
        let disk = start.copy(Some(Death { at, applied: false }));
        let mut promised = Promised::default();
        let ended = live(&disk, 2, &mut promised).await;
        let at_old_parents = whole.done()[at] == "sync folder /" || whole.done()[at] == "sync folder /states";
        assert!(
            ended.is_err() || at_old_parents,
            "{} failed unnoticed",
            whole.done()[at]
        );
    }
}
