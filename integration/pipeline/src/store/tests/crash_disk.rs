//! A disk in memory that loses power at a chosen operation and keeps only what was synced, or any part of the rest.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::disk::{Disk, NewFile};

/// A disk; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CrashDisk(Arc<Mutex<Contents>>);

/// When the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// The writing operation it dies at, from 0.
    pub(super) at: usize,
    /// Whether that operation still takes effect.
    pub(super) applied: bool,
}

/// Which of the unsynced folder changes a loss of power spares, by their order.
pub(super) const NAMES_KEPT: [fn(usize) -> bool; 4] = [
    |_| false,
    |_| true,
    |change| change % 2 == 0,
    |change| change % 2 == 1,
];

/// How much of unsynced bytes it spares: what was synced before, half, all.
pub(super) const BYTES_KEPT: [fn(usize) -> usize; 3] = [|_| 0, |length| length / 2, |length| length];

#[derive(Clone, Debug, Default)]
struct Contents {
    folders: BTreeMap<PathBuf, Folder>,
    files: Vec<File>,
    done: Vec<String>,
    death: Option<Death>,
}

#[derive(Clone, Debug, Default)]
struct Folder {
    now: BTreeMap<String, Entry>,
    synced: BTreeMap<String, Entry>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    File(usize),
}

#[derive(Clone, Debug)]
enum Change {
    Add(String, Entry),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct File {
    now: Vec<u8>,
    synced: Option<Vec<u8>>,
}

impl CrashDisk {
    /// An empty disk with a root folder.
    pub(super) fn new() -> Self {
        let disk = Self::default();
        disk.contents()
            .folders
            .insert(PathBuf::from("/"), Folder::default());
        disk
    }

    /// A copy that shares nothing, with no operation done, that will die as told.
    pub(super) fn copy(&self, death: Option<Death>) -> Self {
        let mut contents = self.contents().clone();
        contents.done.clear();
        contents.death = death;
        Self(Arc::new(Mutex::new(contents)))
    }

    /// What a loss of power leaves of it.
    pub(super) fn after_power_loss(&self, names: fn(usize) -> bool, bytes: fn(usize) -> usize) -> Self {
        let mut contents = self.contents().clone();
        contents.done.clear();
        contents.death = None;
        for file in &mut contents.files {
            let unsynced = std::mem::take(&mut file.now);
            let kept = unsynced[..bytes(unsynced.len())].to_vec();
            file.now = file.synced.clone().unwrap_or(kept);
            file.synced = Some(file.now.clone());
        }
        for folder in contents.folders.values_mut() {
            let unsynced = std::mem::take(&mut folder.unsynced);
            for (_, change) in unsynced.into_iter().enumerate().filter(|(at, _)| names(*at)) {
                change.apply(&mut folder.synced);
            }
            folder.now = folder.synced.clone();
        }
        contents.forget_unnamed_folders();
        Self(Arc::new(Mutex::new(contents)))
    }

    /// The writing operations so far, in order.
    pub(super) fn done(&self) -> Vec<String> {
        self.contents().done.clone()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a writing operation and carries it out unless the process is dead.
    fn write<T>(&self, what: String, apply: impl FnOnce(&mut Contents) -> io::Result<T>) -> io::Result<T> {
        let mut contents = self.contents();
        let at = contents.done.len();
        contents.done.push(what);
        match contents.death {
            Some(death) if at > death.at || (at == death.at && !death.applied) => Err(dead()),
            Some(death) if at == death.at => apply(&mut contents).and(Err(dead())),
            _ => apply(&mut contents),
        }
    }
}

impl Contents {
    fn folder(&mut self, path: &Path) -> io::Result<&mut Folder> {
        self.folders
            .get_mut(path)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn entry(&mut self, path: &Path) -> io::Result<Option<Entry>> {
        let (folder, name) = split(path);
        Ok(self.folder(folder)?.now.get(&name).copied())
    }

    fn add(&mut self, path: &Path, entry: Entry) -> io::Result<()> {
        if self.entry(path)?.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (folder, name) = split(path);
        self.folder(folder)?.change(Change::Add(name, entry));
        Ok(())
    }

    fn forget_unnamed_folders(&mut self) {
        let paths: Vec<_> = self
            .folders
            .keys()
            .filter(|path| path.parent().is_some())
            .cloned()
            .collect();
        // Parents come before what is in them.
        for path in paths {
            if self.entry(&path).ok().flatten() != Some(Entry::Folder) {
                self.folders.remove(&path);
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.now);
        self.unsynced.push(change);
    }
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, Entry>) {
        match self {
            Self::Add(name, entry) => names.insert(name, entry),
            Self::Remove(name) => names.remove(&name),
        };
    }
}

impl Disk for CrashDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.write(format!("create folder {}", shown(folder)), |contents| {
            contents.add(folder, Entry::Folder)?;
            contents.folders.insert(folder.to_owned(), Folder::default());
            Ok(())
        })
    }

    fn create_file(&self, file: &Path) -> io::Result<Box<dyn NewFile>> {
        self.write(format!("create {}", shown(file)), |contents| {
            let number = contents.files.len();
            contents.add(file, Entry::File(number))?;
            contents.files.push(File::default());
            let new = OpenFile {
                disk: self.clone(),
                number,
                shown: shown(file),
            };
            Ok(Box::new(new) as Box<dyn NewFile>)
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write(
            format!("link {} to {}", shown(from), shown(to)),
            |contents| match contents.entry(from)? {
                Some(entry) => contents.add(to, entry),
                None => Err(ErrorKind::NotFound.into()),
            },
        )
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.write(format!("sync folder {}", shown(folder)), |contents| {
            let folder = contents.folder(folder)?;
            folder.synced = folder.now.clone();
            folder.unsynced.clear();
            Ok(())
        })
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        self.write(format!("remove {}", shown(file)), |contents| {
            if contents.entry(file)?.is_none() {
                return Err(ErrorKind::NotFound.into());
            }
            let (folder, name) = split(file);
            contents.folder(folder)?.change(Change::Remove(name));
            Ok(())
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        Ok(self.contents().folder(folder)?.now.keys().cloned().collect())
    }

    fn read(&self, file: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut contents = self.contents();
        match contents.entry(file)? {
            Some(Entry::File(number)) => Ok(contents.files[number]
                .now
                .iter()
                .take(usize::try_from(limit).unwrap())
                .copied()
                .collect()),
            Some(Entry::Folder) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }
}

struct OpenFile {
    disk: CrashDisk,
    number: usize,
    shown: String,
}

impl NewFile for OpenFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(format!("write {}", self.shown), |contents| {
            contents.files[self.number].now.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.write(format!("sync {}", self.shown), |contents| {
            let file = &mut contents.files[self.number];
            file.synced = Some(file.now.clone());
            Ok(())
        })
    }
}

fn split(path: &Path) -> (&Path, String) {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    (path.parent().unwrap_or(path), name)
}

/// A path without the random part of temporary names.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match text.strip_suffix(".tmp").and_then(|stem| stem.rsplit_once('.')) {
        Some((stem, _)) => format!("{stem}.*.tmp"),
        None => text,
    }
}

fn dead() -> io::Error {
    io::Error::other("the power is gone")
}
