//! Real folders: the lock, the files, and the errors a user meets.

use std::fs;

use super::*;

fn folder(path: &Path) -> StoreLocation {
    StoreLocation::Folder(path.to_owned())
}

#[tokio::test]
async fn a_state_dir_is_created_and_outlives_the_run() {
    let home = tempfile::tempdir().unwrap();
    let location = folder(&home.path().join("new/state"));
    {
        let (mut lease, restored) = host(&Store::open(&location).await.unwrap()).await;
        assert!(restored.is_none());
        checkpoint(&mut lease, 1).await.unwrap();
    }
    let (lease, restored) = host(&Store::open(&location).await.unwrap()).await;
    assert_eq!(restored.unwrap().manifest, manifest_of(1, 1, 1));
    assert_eq!(lease.generation(), 2);
    assert_eq!(
        files_in(&home.path().join("new/state")),
        ["checkpoints", "generations", "lock"]
    );
    assert_eq!(
        files_in(&home.path().join("new/state/checkpoints")),
        [
            "0001-0000000001-g0000001-01.manifest",
            "0001-0000000001.claim",
            "0001-0000000001.committed",
        ]
    );
    assert_eq!(
        files_in(&home.path().join("new/state/generations")),
        ["0000001", "0000002"]
    );
}

#[tokio::test]
async fn a_second_run_is_told_who_holds_the_state() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(&folder(home.path())).await.unwrap();
    let first = store.take_over(0, TakeOver::Refuse).await.unwrap();
    let refused = Store::open(&folder(home.path()))
        .await
        .unwrap()
        .take_over(0, TakeOver::Refuse)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "state dir {} is in use by process {}; stop that process first, or take over from it if it hangs",
            home.path().display(),
            std::process::id()
        )
    );
    assert!(!refused.restart_may_help());
    drop(first);
    store.take_over(0, TakeOver::Refuse).await.unwrap();
}

#[tokio::test]
async fn a_forced_take_over_supersedes_the_holder_and_keeps_the_lock() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(&folder(home.path())).await.unwrap();
    let mut stopped = store.take_over(0, TakeOver::Refuse).await.unwrap();
    stopped.restore().await.unwrap();
    let (mut newer, restored) = {
        let mut lease = store.take_over(0, TakeOver::Force).await.unwrap();
        let restored = lease.restore().await.unwrap();
        (lease, restored)
    };
    assert!(restored.is_none());
    checkpoint(&mut newer, 1).await.unwrap();
    let woken = stopped.complete(&manifest(&stopped, 1)).await.unwrap_err();
    assert!(woken.is_superseded(), "{woken}");
    assert_eq!(
        woken.to_string(),
        format!(
            "another host has taken over the state at {} (generation 2; this one is 1); this run stops",
            home.path().display()
        )
    );
    // The end of the superseded host frees nothing.
    drop(stopped);
    let refused = store.take_over(0, TakeOver::Refuse).await.unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    newer.still_ours().await.unwrap();
    assert_eq!(files_in(home.path()), ["checkpoints", "generations", "lock"]);
}

#[tokio::test]
async fn a_state_dir_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    for place in ["file", "file/state"] {
        let place = home.path().join(place);
        let error = Store::open(&folder(&place)).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("state dir {} is not writable: ", place.display())),
            "{text}"
        );
        assert!(!error.restart_may_help());
    }
    assert_eq!(fs::read_to_string(home.path().join("file")).unwrap(), "x");
}

#[tokio::test]
async fn looking_creates_nothing_and_needs_no_lock() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing");
    let error = Store::open_existing(&folder(&missing)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "state location {:?} cannot be used: there is no state in it",
            missing.display().to_string()
        )
    );
    assert!(!missing.exists());

    let (mut lease, _) = host(&Store::open(&folder(home.path())).await.unwrap()).await;
    checkpoint(&mut lease, 1).await.unwrap();
    let listed = Store::open_existing(&folder(home.path()))
        .unwrap()
        .list()
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].manifest.as_ref().unwrap(), &manifest_of(1, 1, 1));
}

#[tokio::test]
async fn leftovers_of_torn_writes_are_swept_and_foreign_files_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let (mut lease, _) = host(&Store::open(&folder(home.path())).await.unwrap()).await;
    let inside = home.path().join("checkpoints");
    fs::write(inside.join(".0001-0000000001.claim.0123.tmp"), "to").unwrap();
    fs::write(inside.join("notes.txt"), "mine").unwrap();
    assert!(lease.restore().await.unwrap().is_none());
    checkpoint(&mut lease, 1).await.unwrap();
    assert_eq!(
        files_in(&inside),
        [
            "0001-0000000001-g0000001-01.manifest",
            "0001-0000000001.claim",
            "0001-0000000001.committed",
            "notes.txt",
        ]
    );
}

/// A disk beside another host that cleans up: files being written lose their first name before they get their second.
#[derive(Debug)]
struct SweptDisk(std::sync::atomic::AtomicUsize);

impl disk::Disk for SweptDisk {
    fn create_folder(&self, folder: &Path) -> std::io::Result<()> {
        disk::RealDisk.create_folder(folder)
    }

    fn create_file(&self, file: &Path) -> std::io::Result<Box<dyn disk::NewFile>> {
        disk::RealDisk.create_file(file)
    }

    fn link(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let swept = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if swept.is_ok() {
            disk::RealDisk.remove(from)?;
        }
        disk::RealDisk.link(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> std::io::Result<()> {
        disk::RealDisk.sync_folder(folder)
    }

    fn remove(&self, file: &Path) -> std::io::Result<()> {
        disk::RealDisk.remove(file)
    }

    fn list(&self, folder: &Path) -> std::io::Result<Vec<String>> {
        disk::RealDisk.list(folder)
    }

    fn read(&self, file: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
        disk::RealDisk.read(file, limit)
    }
}

#[tokio::test]
async fn a_write_goes_on_though_another_hosts_cleanup_takes_its_file_for_a_leftover() {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(SweptDisk(3.into()));
    let shared: Arc<dyn disk::Disk> = Arc::<SweptDisk>::clone(&disk);
    let backend = LocalBackend::prepare(home.path().to_owned(), shared)
        .await
        .unwrap();
    let store = Store::on_folder(backend, home.path().to_owned());
    disk.0.store(2, std::sync::atomic::Ordering::Relaxed);
    let (mut lease, _) = host(&store).await;
    for epoch in 1..=3 {
        disk.0.store(5, std::sync::atomic::Ordering::Relaxed);
        checkpoint(&mut lease, epoch).await.unwrap();
    }
    assert_eq!(
        lease.restore().await.unwrap().unwrap().manifest,
        manifest_of(1, 3, 1)
    );
    assert_eq!(files_in(&home.path().join("checkpoints")).len(), 9);

    disk.0.store(usize::MAX, std::sync::atomic::Ordering::Relaxed);
    let error = lease.complete(&manifest(&lease, 4)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("cannot write "), "{text}");
    assert!(text.ends_with("No such file or directory (os error 2)"), "{text}");
    assert!(error.restart_may_help());
}

#[tokio::test]
async fn an_object_store_client_on_a_folder_keeps_the_same_files() {
    let home = tempfile::tempdir().unwrap();
    let files = object_store::local::LocalFileSystem::new_with_prefix(home.path())
        .unwrap()
        .with_fsync(true);
    let store = Store::from_object_store(Arc::new(files), object_store::path::Path::default(), "files");
    let (mut lease, _) = host(&store).await;
    checkpoints(&mut lease, 1..=12).await;
    let (_, restored) = host(&Store::open(&folder(home.path())).await.unwrap()).await;
    assert_eq!(restored.unwrap().manifest, manifest_of(1, 12, 1));
    assert_eq!(files_in(&home.path().join("checkpoints")).len(), 30);
}

#[test]
fn locations_are_folders_or_urls_and_print_without_secrets() {
    let parse = |text: &str| {
        StoreLocation::parse(text)
            .map(|location| location.to_string())
            .map_err(|e| e.to_string())
    };
    assert_eq!(StoreLocation::parse("state").unwrap(), folder(Path::new("state")));
    assert_eq!(
        StoreLocation::parse("file:///var/state").unwrap(),
        folder(Path::new("/var/state"))
    );
    assert_eq!(parse("gs://bucket/flights"), Ok("gs://bucket/flights".into()));
    assert_eq!(
        parse("abfss://box@account.dfs.core.windows.net/x"),
        Ok("abfss://box@account.dfs.core.windows.net/x".into())
    );
    assert_eq!(
        parse(""),
        Err("state location \"\" cannot be used: it is empty".into())
    );
    for secret in [
        "s3://key:hunter2@bucket/x",
        "https://account.blob.core.windows.net/x?sig=hunter2",
    ] {
        let error = parse(secret).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(error.contains("credentials come from the environment"), "{error}");
    }
}

#[tokio::test]
async fn a_url_no_storage_serves_is_refused_at_start() {
    for text in ["ftp://host/x", "redis://host"] {
        let error = Store::open(&StoreLocation::parse(text).unwrap())
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("state location {text:?} cannot be used: ")),
            "{error}"
        );
    }
    // No request is made: a bucket that cannot be reached shows at the first take-over.
    Store::open(&StoreLocation::parse("s3://bucket/prefix").unwrap())
        .await
        .unwrap();
    Store::open(&StoreLocation::parse("gs://bucket/prefix").unwrap())
        .await
        .unwrap();
}

fn files_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
