//! Which files a job reads: listed once, at its first start, in the order of their names.

use std::path::{Path, PathBuf};

use regex::Regex;
use walkdir::WalkDir;

use super::super::SourceError;
use super::super::lines::{WAY_OUT, not_regular};

/// Names stay in memory, and in the position that every checkpoint stores: so many bytes of them, and of what goes with each.
const LIST_BYTES: usize = 8 << 20;
const ENTRY_BYTES: usize = 16;

/// A folder, or one file, and what is to be read of it.
#[derive(Debug)]
pub(super) struct FileList {
    pub(super) root: PathBuf,
    pub(super) files: Vec<ListedFile>,
}

/// A file as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedFile {
    /// Its path in the folder; empty if the root itself is the file.
    pub(super) name: String,
    /// In bytes.
    pub(super) size: u64,
}

impl FileList {
    /// Lists a folder, or the one file that `root` is. With a pattern the folders in it are searched too, as Arroyo does, and the pattern is
    /// looked for in the path that leads from the folder to the file.
    pub(super) fn list(root: PathBuf, pattern: Option<&str>) -> Result<Self, SourceError> {
        let matcher = pattern.map(Regex::new).transpose();
        let matcher =
            matcher.map_err(|_| file_error(&root, "its 'source.regex_pattern' is too large".into()))?;
        let metadata = std::fs::metadata(&root).map_err(|source| open_error(&root, source))?;
        if !metadata.is_dir() {
            if let Some(reason) = not_regular(metadata.file_type()) {
                return Err(file_error(&root, reason));
            }
            let size = metadata.len();
            let files = vec![ListedFile {
                name: String::new(),
                size,
            }];
            return Ok(Self { root, files });
        }
        let (mut files, mut bytes) = (Vec::new(), 0);
        let depth = if matcher.is_some() { usize::MAX } else { 1 };
        for entry in WalkDir::new(&root)
            .follow_links(true)
            .min_depth(1)
            .max_depth(depth)
        {
            let entry = entry.map_err(|error| walk_error(&root, error))?;
            let inside = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            let shown = inside.to_string_lossy();
            if entry.file_type().is_dir() || matcher.as_ref().is_some_and(|matcher| !matcher.is_match(&shown))
            {
                continue;
            }
            if let Some(reason) = not_regular(entry.file_type()) {
                let reason = format!("{reason}; leave it out by the option 'source.regex_pattern'");
                return Err(file_error(entry.path(), reason));
            }
            let Some(name) = inside.to_str() else {
                return Err(file_error(
                    entry.path(),
                    "its name is not UTF-8; rename it".into(),
                ));
            };
            bytes += name.len() + ENTRY_BYTES;
            if bytes > LIST_BYTES {
                let reason = format!(
                    "has too many files for one job: more than {} can be kept in a checkpoint; read fewer by the option \
                     'source.regex_pattern'",
                    files.len()
                );
                return Err(file_error(&root, reason));
            }
            let size = entry.metadata().map_err(|error| walk_error(&root, error))?.len();
            files.push(ListedFile {
                name: name.to_owned(),
                size,
            });
        }
        if files.is_empty() {
            // Were it an end like any other, the state would say for good that everything was read.
            let which = pattern.map_or(String::new(), |pattern| format!(" that matches '{pattern}'"));
            return Err(file_error(
                &root,
                format!("has no file{which}; put the files there before the job starts"),
            ));
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root, files })
    }

    /// Whether the files of a stored position are still there as they were listed. Of the first, what was read of it tells.
    pub(super) fn check(&self) -> Result<(), SourceError> {
        for (at, file) in self.files.iter().enumerate() {
            let path = file.path(&self.root);
            let found = match std::fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let reason =
                        "is gone since the job listed its files; put it back, or start anew with --new-state"
                            .to_owned();
                    return Err(file_error(&path, reason));
                }
                Err(error) => return Err(open_error(&path, error)),
            };
            if at > 0 && found != file.size {
                let reason = format!(
                    "has {found} bytes, but had {} when the job listed its files; {WAY_OUT}",
                    file.size
                );
                return Err(file_error(&path, reason));
            }
        }
        Ok(())
    }
}

impl ListedFile {
    pub(super) fn path(&self, root: &Path) -> PathBuf {
        if self.name.is_empty() {
            root.to_owned()
        } else {
            root.join(&self.name)
        }
    }
}

fn walk_error(root: &Path, error: walkdir::Error) -> SourceError {
    let path = error.path().unwrap_or(root).to_owned();
    if error.loop_ancestor().is_some() {
        return file_error(
            &path,
            "leads back to a folder that it is in; remove the link".into(),
        );
    }
    let source = error.into_io_error();
    open_error(&path, source.unwrap_or_else(|| std::io::ErrorKind::Other.into()))
}

pub(super) fn file_error(path: &Path, reason: String) -> SourceError {
    SourceError::File {
        file: path.display().to_string(),
        reason,
    }
}

pub(super) fn open_error(path: &Path, source: std::io::Error) -> SourceError {
    SourceError::Io {
        doing: "open",
        file: path.display().to_string(),
        source,
    }
}
