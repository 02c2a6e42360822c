//! The emulator's memory on disk: every lasting change is a record in an append-only file before it happens.
//!
//! A data directory holds `lock`, which the running emulator has locked, and `journal`: a head and records (see
//! [`record`]), each an [`Effect`]. At the start they are applied again, and a journal that says much more than is true
//! now is replaced by a shorter one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::catalog::Millis;
use crate::machine::{Effect, Machine, size_of_rows};
use reader::{Found, Reader};

mod reader;
mod record;

#[cfg(test)]
mod tests;

/// A journal of fewer records and bytes stays as it is.
const SHORT: (u64, u64) = (1000, 16 << 20);
/// Records, and bytes, for each that is needed, from which on a journal is worth replacing.
const SURPLUS: (u64, u64) = (4, 2);

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The file system refuses.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{} is in use by another emulator: stop that one, or give this one a directory of its own", .directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// Not a journal at all.
    #[error("{} is not the journal of an emulator: give the emulator a directory of its own", .path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// A form that is not known yet.
    #[error("{} was written by a newer emulator (format {version}; this one reads format {}): use that one, or another directory", .path.display(), record::VERSION)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Not what was written.
    #[error("{} is damaged at byte {offset}: {reason}. Put back a copy of it; or, to lose everything from there on, cut it there (truncate --size={offset})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the bad record begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// What the journal needs of a file that only grows.
trait Disk: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Comes back when what was appended outlives the machine's power.
    fn sync(&mut self) -> io::Result<()>;
}

/// A journal that is being written.
struct Journal<D> {
    disk: D,
    path: PathBuf,
    /// Where the next record goes.
    end: u64,
}

/// What a journal's records came to.
#[derive(Debug, Default)]
struct Replayed {
    records: u64,
    /// One past the last whole record.
    end: u64,
    last_ms: Option<Millis>,
}

/// Gives a machine that has nothing yet what the directory holds, and keeps there what changes from now on. Returns the
/// time of the last change.
///
/// # Errors
/// [`DataDirError`].
pub(crate) fn open(directory: &Path, machine: &mut Machine) -> Result<Option<Millis>, DataDirError> {
    create(directory).map_err(failed("create", directory))?;
    let lock = lock(directory)?;
    let path = directory.join("journal");
    let mut replayed = Replayed::default();
    let there = path.try_exists().map_err(failed("look for", &path))?;
    let disk = if there {
        let (file, told) = go_on(&path, machine)?;
        replayed = told;
        file
    } else {
        let (file, end) = write_anew(&path, machine)?;
        replayed.end = end;
        file
    };
    let mut journal = Journal {
        disk,
        path,
        end: replayed.end,
    };
    if is_worth_replacing(&replayed, machine) {
        let (file, end) = write_anew(&journal.path, machine)?;
        let shown = journal.path.display();
        tracing::info!("{shown}: {} bytes that are true now replace {}", end, journal.end);
        (journal.disk, journal.end) = (file, end);
    }
    machine.attach_journal(move |effect| {
        // The lock is held as long as anything may be written.
        let _held = &lock;
        journal.keep(effect)
    });
    Ok(replayed.last_ms)
}

impl<D: Disk> Journal<D> {
    /// Comes back when the effect is on disk.
    fn keep(&mut self, effect: &Effect) -> Result<(), String> {
        let record = record::encode(effect, self.end)?;
        let written = self.disk.append(&record).and_then(|()| self.disk.sync());
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        self.end += record.len() as u64;
        Ok(())
    }
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens a journal that is there: applies it, and cuts off what was being written when its writer ended.
fn go_on(path: &Path, machine: &mut Machine) -> Result<(File, Replayed), DataDirError> {
    let file = OpenOptions::new().read(true).append(true).open(path);
    let file = file.map_err(failed("open", path))?;
    let length = file.metadata().map_err(failed("look at", path))?.len();
    let replayed = replay(&file, length, path, machine)?;
    if replayed.end < length {
        let lost = length - replayed.end;
        tracing::warn!(
            "{}: the last {lost} bytes are a record that was never completed, so nobody was told that it is done; they are cut off",
            path.display()
        );
        file.set_len(replayed.end).map_err(failed("cut", path))?;
        file.sync_all().map_err(failed("write", path))?;
    }
    Ok((file, replayed))
}

/// Applies a journal's records to a machine that has nothing yet.
fn replay(
    source: impl Read,
    length: u64,
    path: &Path,
    machine: &mut Machine,
) -> Result<Replayed, DataDirError> {
    let mut reader = Reader::open(source, length, path)?;
    let mut replayed = Replayed::default();
    loop {
        let offset = reader.offset();
        let damaged = |reason: String| DataDirError::Damaged {
            path: path.to_owned(),
            offset,
            reason,
        };
        match reader.next().map_err(failed("read", path))? {
            Found::Record(payload) => {
                let effect = record::decode(&payload).map_err(damaged)?;
                machine
                    .replay(&effect)
                    .map_err(|reason| damaged(format!("it does not fit what stands before it: {reason}")))?;
                replayed.records += 1;
                replayed.last_ms = replayed.last_ms.max(effect.at_ms());
            }
            Found::End | Found::Torn => {
                replayed.end = offset;
                return Ok(replayed);
            }
            Found::Damaged(reason) => return Err(damaged(reason.to_owned())),
        }
    }
}

fn is_worth_replacing(replayed: &Replayed, machine: &Machine) -> bool {
    if replayed.records <= SHORT.0 && replayed.end <= SHORT.1 {
        return false;
    }
    let (mut records, mut bytes) = (0, 0);
    for effect in machine.snapshot() {
        records += 1;
        bytes += effect.batches().into_iter().map(size_of_rows).sum::<usize>() as u64;
    }
    replayed.records > SHORT.0.max(SURPLUS.0 * records) || replayed.end > SHORT.1.max(SURPLUS.1 * bytes)
}

/// Writes what is true now beside the journal, and puts it in the journal's place. Returns the file and its length.
fn write_anew(path: &Path, machine: &Machine) -> Result<(File, u64), DataDirError> {
    let beside = path.with_extension("new");
    let written = || -> io::Result<(File, u64)> {
        let file = File::create(&beside)?;
        let mut out = BufWriter::new(file);
        out.write_all(&record::head())?;
        let mut end = record::HEAD as u64;
        for effect in machine.snapshot() {
            let record = record::encode(&effect, end).map_err(io::Error::other)?;
            out.write_all(&record)?;
            end += record.len() as u64;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok((file, end))
    };
    let written = written().map_err(failed("write", &beside))?;
    fs::rename(&beside, path).map_err(failed("put in place", path))?;
    sync_folder(path.parent()).map_err(failed("write the folder of", path))?;
    Ok(written)
}

/// The lock of a data directory, which the system frees when the process dies.
fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse {
            directory: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
    }
}

/// Creates a directory and those above it, so that they outlive the machine's power.
fn create(directory: &Path) -> io::Result<()> {
    // Of anything else that stands there, making something in it says what is wrong.
    if directory.exists() {
        return Ok(());
    }
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    above.map_or(Ok(()), create)?;
    fs::create_dir(directory)?;
    sync_folder(above)
}

fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> DataDirError + use<'a> {
    move |source| DataDirError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
