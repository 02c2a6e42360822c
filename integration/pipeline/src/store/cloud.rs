//! An object store as storage: create-if-absent puts, and doubt about every put whose answer did not come.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::time::timeout;
use url::Url;

use super::objects::{Backend, Put, READ_LIMIT};
use super::{StorageFailure, StoreError};

/// Limit of one request with all the client's own retries.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Environment variables that are handed to the client; each cloud's own names.
const ENVIRONMENT: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// A prefix of an object store.
#[derive(Clone, Debug)]
pub(super) struct CloudBackend {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
}

impl CloudBackend {
    /// Opens a URL with credentials from the environment.
    pub(super) fn open(url: &Url, shown: &str) -> Result<Self, StoreError> {
        let environment = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        let options = environment.filter(|(key, _)| ENVIRONMENT.iter().any(|prefix| key.starts_with(prefix)));
        let (store, prefix) =
            object_store::parse_url_opts(url, options).map_err(|error| StoreError::Location {
                location: shown.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Self::new(Arc::from(store), prefix, shown))
    }

    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: Path, shown: &str) -> Self {
        Self {
            store,
            prefix,
            shown: shown.trim_end_matches('/').to_owned(),
        }
    }

    fn path(&self, folder: &str, name: &str) -> Path {
        self.prefix.clone().join(folder).join(name)
    }
}

#[async_trait]
impl Backend for CloudBackend {
    async fn settle(&self) -> Result<(), StorageFailure> {
        Ok(())
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageFailure> {
        let prefix = self.prefix.clone().join(folder);
        let listed = timeout(REQUEST_LIMIT, self.store.list_with_delimiter(Some(&prefix))).await??;
        let names = listed
            .objects
            .iter()
            .filter_map(|object| object.location.filename().map(str::to_owned));
        Ok(names.collect())
    }

    async fn read(&self, folder: &str, name: &str) -> Result<Option<Vec<u8>>, StorageFailure> {
        let path = self.path(folder, name);
        let reading = async {
            let found = self.store.get(&path).await?;
            let end = found.meta.size.min(READ_LIMIT);
            if end < found.meta.size {
                return Ok(self.store.get_range(&path, 0..end).await?.to_vec());
            }
            Ok(found.bytes().await?.to_vec())
        };
        match timeout(REQUEST_LIMIT, reading).await? {
            Err(Error::NotFound { .. }) => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    async fn create(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<Put, StorageFailure> {
        let path = self.path(folder, name);
        let put = self
            .store
            .put_opts(&path, PutPayload::from(bytes.to_vec()), PutMode::Create.into());
        match timeout(REQUEST_LIMIT, put).await {
            Ok(Ok(_)) => Ok(Put::Created),
            // S3 answers a lost race with either, by version of its interface.
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Ok(Put::Exists),
            Ok(Err(error)) if is_refusal(&error) => Err(error.into()),
            Ok(Err(error)) => Ok(Put::InDoubt(error.into())),
            Err(elapsed) => Ok(Put::InDoubt(elapsed.into())),
        }
    }

    async fn delete(&self, folder: &str, names: &[String]) -> Result<(), StorageFailure> {
        for name in names {
            match timeout(REQUEST_LIMIT, self.store.delete(&self.path(folder, name))).await? {
                Err(Error::NotFound { .. }) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn show(&self, folder: &str, name: &str) -> String {
        format!("{}/{folder}/{name}", self.shown)
    }
}

/// Answers that say the put was not applied and never will be.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}
