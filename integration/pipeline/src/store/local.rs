//! A folder as storage: written beside, synced, linked to its name, folder synced, in that order.
//!
//! The link is a rename that refuses to replace, so that every write is also a create-if-absent; and since the bytes
//! are synced before they have their name, no loss of power leaves a name with torn bytes.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::disk::{Disk, NewFile};
use super::names::{self, CHECKPOINTS, GENERATIONS};
use super::objects::{Backend, Put, READ_LIMIT};
use super::{StorageFailure, StoreError};

/// Times that another host's cleanup may take the file being written for a leftover.
const LINK_TRIES: usize = 8;

/// A folder.
#[derive(Clone, Debug)]
pub(super) struct LocalBackend {
    root: Arc<PathBuf>,
    disk: Arc<dyn Disk>,
}

impl LocalBackend {
    /// Serves an existing folder; for reading only.
    pub(super) fn existing(root: PathBuf, disk: Arc<dyn Disk>) -> Self {
        Self {
            root: Arc::new(root),
            disk,
        }
    }

    /// Creates what is missing and makes sure that the folder can be written.
    pub(super) async fn prepare(root: PathBuf, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let backend = Self::existing(root, disk);
        backend
            .blocking(|this| this.create_folders())
            .await
            .map_err(|failure| StoreError::NotWritable {
                folder: backend.root.display().to_string(),
                source: failure,
            })?;
        Ok(backend)
    }

    fn create_folders(&self) -> io::Result<()> {
        self.create_durably(&self.root)?;
        for folder in [CHECKPOINTS, GENERATIONS] {
            self.create_durably(&self.root.join(folder))?;
            self.try_out(&self.root.join(folder))?;
        }
        Ok(())
    }

    /// Creates a folder, after its parents, and makes its name durable.
    fn create_durably(&self, folder: &Path) -> io::Result<()> {
        let parent = folder.parent();
        let created = match self.disk.create_folder(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && parent.is_some() => {
                self.create_durably(parent.unwrap_or(folder))?;
                self.disk.create_folder(folder)
            }
            first => first,
        };
        let Some(parent) = parent else { return created };
        match created {
            Ok(()) => self.disk.sync_folder(parent),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // A process killed between the two steps left it so. A parent that we may not open is older than us.
                self.disk.sync_folder(parent).ok();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Does once what every write does, so that a folder that cannot do it (no space, no hard links) is found at start.
    fn try_out(&self, folder: &Path) -> io::Result<()> {
        let probe = folder.join(names::temporary("probe"));
        for _ in 0..LINK_TRIES {
            match self.write_and_link(folder, "probe", b"probe", &probe) {
                Err(LinkError::Swept(_)) => {}
                Err(LinkError::Other(error)) => return Err(error),
                Ok(_) => break,
            }
        }
        // A host that cleans up may have been faster, with either.
        match self.disk.remove(&probe) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write_beside(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut new: Box<dyn NewFile> = self.disk.create_file(file)?;
        new.write_all(bytes)?;
        new.sync()
    }

    fn create_now(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<Put> {
        let folder = self.root.join(folder);
        let named = folder.join(name);
        for _ in 1..LINK_TRIES {
            match self.write_and_link(&folder, name, bytes, &named) {
                // Another host's cleanup took it for a leftover before it had its name: nothing was written.
                Err(LinkError::Swept(_)) => {}
                Err(LinkError::Other(error)) => return Err(error),
                Ok(put) => return Ok(put),
            }
        }
        self.write_and_link(&folder, name, bytes, &named)
            .map_err(|(LinkError::Swept(error) | LinkError::Other(error))| error)
    }

    fn write_and_link(
        &self,
        folder: &Path,
        name: &str,
        bytes: &[u8],
        named: &Path,
    ) -> Result<Put, LinkError> {
        let beside = folder.join(names::temporary(name));
        let put = self
            .write_beside(&beside, bytes)
            .map_err(LinkError::Other)
            .and_then(|()| match self.disk.link(&beside, named) {
                Ok(()) => Ok(Put::Created),
                Err(error) => match error.kind() {
                    ErrorKind::AlreadyExists => Ok(Put::Exists),
                    ErrorKind::NotFound => Err(LinkError::Swept(error)),
                    _ => Err(LinkError::Other(error)),
                },
            });
        // Also where the name was there: whoever wrote it may have died before this step.
        let put = put.and_then(|put| {
            self.disk
                .sync_folder(folder)
                .map(|()| put)
                .map_err(LinkError::Other)
        });
        // What stays is swept with the next cleanup.
        self.disk.remove(&beside).ok();
        put
    }

    fn delete_now(&self, folder: &str, names: &[String]) -> io::Result<()> {
        let folder = self.root.join(folder);
        for name in names {
            match self.disk.remove(&folder.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.disk.sync_folder(&folder)
    }

    /// Runs file operations off the executor's threads; they end even if the caller no longer waits.
    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || run(&this))
            .await
            .map_err(io::Error::other)?
    }
}

#[async_trait]
impl Backend for LocalBackend {
    async fn settle(&self) -> Result<(), StorageFailure> {
        self.blocking(|this| {
            this.disk.sync_folder(&this.root.join(CHECKPOINTS))?;
            this.disk.sync_folder(&this.root.join(GENERATIONS))
        })
        .await
        .map_err(Into::into)
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageFailure> {
        let folder = self.root.join(folder);
        let listed = self.blocking(move |this| this.disk.list(&folder)).await;
        absent_is(Vec::new(), listed)
    }

    async fn read(&self, folder: &str, name: &str) -> Result<Option<Vec<u8>>, StorageFailure> {
        let file = self.root.join(folder).join(name);
        absent_is(
            None,
            self.blocking(move |this| this.disk.read(&file, READ_LIMIT).map(Some))
                .await,
        )
    }

    async fn create(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<Put, StorageFailure> {
        let (folder, name, bytes) = (folder.to_owned(), name.to_owned(), bytes.to_owned());
        self.blocking(move |this| this.create_now(&folder, &name, &bytes))
            .await
            .map_err(Into::into)
    }

    async fn delete(&self, folder: &str, names: &[String]) -> Result<(), StorageFailure> {
        let (folder, names) = (folder.to_owned(), names.to_owned());
        self.blocking(move |this| this.delete_now(&folder, &names))
            .await
            .map_err(Into::into)
    }

    fn show(&self, folder: &str, name: &str) -> String {
        self.root.join(folder).join(name).display().to_string()
    }
}

/// Why a file did not get its name.
enum LinkError {
    Swept(io::Error),
    Other(io::Error),
}

fn absent_is<T>(absent: T, result: io::Result<T>) -> Result<T, StorageFailure> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(absent),
        result => result.map_err(Into::into),
    }
}
