//! The file operations the local storage is made of, one by one, so that a test can lose power between any two.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A file system.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Creates one folder; fails if it is there.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Creates an empty file; fails if it is there.
    fn create_file(&self, file: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Gives a file a second name; fails if that is taken. A rename that never replaces.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, file: &Path) -> io::Result<()>;

    /// Names in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The first `limit` bytes of a file.
    fn read(&self, file: &Path, limit: u64) -> io::Result<Vec<u8>>;
}

/// A file being written.
pub(super) trait NewFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the bytes durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The real one.
#[derive(Clone, Copy, Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    fn create_file(&self, file: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(file)?;
        Ok(Box::new(RealFile(file)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            // A name that is not UTF-8 is not ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, file: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(file)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

struct RealFile(File);

impl NewFile for RealFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}
