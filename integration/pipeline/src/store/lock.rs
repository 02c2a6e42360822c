//! One run per folder: a lock file that the system frees when its process dies.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::names::{self, LOCK};
use super::{StoreError, TakeOver};

/// Times the lock file may be replaced while we take it.
const TRIES: usize = 16;

/// The held lock; dropping it frees it.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Locks the folder.
    ///
    /// A stopped process keeps its lock. [`TakeOver::Force`] puts a new lock file, locked by us, in the place of the
    /// old one: the holder keeps a lock on a file without a name, and the next host meets ours.
    pub(super) fn acquire(root: &Path, how: TakeOver) -> Result<Self, StoreError> {
        let path = root.join(LOCK);
        let attempt = match try_lock(&path) {
            Ok(Attempt::Held(_)) if how == TakeOver::Force => replace(root, &path).map(Attempt::Ours),
            attempt => attempt,
        };
        match attempt {
            Ok(Attempt::Ours(file)) => Ok(Self { _file: file }),
            Ok(Attempt::Held(holder)) => Err(StoreError::InUse {
                folder: root.display().to_string(),
                holder,
            }),
            Err(error) => Err(StoreError::Storage {
                doing: "lock",
                file: path.display().to_string(),
                source: error.into(),
            }),
        }
    }
}

enum Attempt {
    Ours(File),
    Held(String),
}

fn try_lock(path: &Path) -> io::Result<Attempt> {
    for _ in 0..TRIES {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if let Some(attempt) = try_opened(file, path)? {
            return Ok(attempt);
        }
    }
    Err(io::Error::other("the lock file is replaced again and again"))
}

/// `None`: it was replaced since it was opened, so its lock says nothing.
fn try_opened(mut file: File, path: &Path) -> io::Result<Option<Attempt>> {
    match file.try_lock() {
        Ok(()) if is_still_named(&file, path)? => {
            write_holder(&mut file)?;
            Ok(Some(Attempt::Ours(file)))
        }
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(Attempt::Held(holder(&mut file)))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn replace(root: &Path, path: &Path) -> io::Result<File> {
    let beside = root.join(names::temporary(LOCK));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&beside)?;
    file.lock()?;
    write_holder(&mut file)?;
    fs::rename(&beside, path)?;
    Ok(file)
}

/// Whether the name still leads to this file.
fn is_still_named(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

/// The process id in a lock file; it is for people, so anything else reads as unknown.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    let process = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    process.map_or_else(|| "unknown".to_owned(), |process| process.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_was_replaced_after_it_was_opened_is_not_taken_for_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let forced = FolderLock::acquire(folder.path(), TakeOver::Refuse).unwrap();
        let late = open();
        let _newer = FolderLock::acquire(folder.path(), TakeOver::Force).unwrap();
        drop(forced);
        assert!(try_opened(late, &path).unwrap().is_none());
        assert!(matches!(
            try_opened(open(), &path).unwrap(),
            Some(Attempt::Held(_))
        ));
    }

    #[test]
    fn a_lock_file_that_names_no_process_reads_as_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let held = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(folder.path().join(LOCK))
            .unwrap();
        held.lock().unwrap();
        match FolderLock::acquire(folder.path(), TakeOver::Refuse) {
            Err(StoreError::InUse { holder, .. }) => assert_eq!(holder, "unknown"),
            other => panic!("{other:?}"),
        }
    }
}
