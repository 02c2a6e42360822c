//! Named byte strings that are created once and never changed: what both kinds of storage offer, and the rule for
//! answers that get lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bigquery_sink_state::envelope::PAYLOAD_LIMIT;

use super::decide::{Answer, Claim, judge_claim};
use super::{StorageFailure, StoreError};

/// Bytes read of one object at most; a whole one is never longer, and a longer one shows as damaged.
pub(super) const READ_LIMIT: u64 = PAYLOAD_LIMIT as u64 + 64;

/// Tries of one create-if-absent whose answer stays unknown.
const TRIES: u32 = 4;
/// Wait before the second try; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A storage. It decides nothing: what an answer means is judged in `decide`.
#[async_trait]
pub(super) trait Backend: std::fmt::Debug + Send + Sync {
    /// Makes what is visible now survive a loss of power, also what a process that died had written.
    async fn settle(&self) -> Result<(), StorageFailure>;

    /// Names directly in a folder, in no order; a missing folder has none.
    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageFailure>;

    /// The bytes, up to [`READ_LIMIT`]; `None` if the name is not there.
    async fn read(&self, folder: &str, name: &str) -> Result<Option<Vec<u8>>, StorageFailure>;

    /// Writes the name with all its bytes or not at all, unless it is there. An error says that it is not applied, or
    /// that trying again is of no use.
    async fn create(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<Put, StorageFailure>;

    /// Deletes names, in this order, durably; missing ones are no error.
    async fn delete(&self, folder: &str, names: &[String]) -> Result<(), StorageFailure>;

    /// A name as people find it.
    fn show(&self, folder: &str, name: &str) -> String;
}

/// Answer to [`Backend::create`].
#[derive(Debug)]
pub(super) enum Put {
    Created,
    Exists,
    InDoubt(StorageFailure),
}

/// A storage with its errors named.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    backend: Arc<dyn Backend>,
}

impl Objects {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    pub(super) fn show(&self, folder: &str, name: &str) -> String {
        self.backend.show(folder, name)
    }

    pub(super) async fn settle(&self) -> Result<(), StoreError> {
        self.backend
            .settle()
            .await
            .map_err(|source| self.failure("sync", "", "", source))
    }

    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.backend
            .list(folder)
            .await
            .map_err(|source| self.failure("list", folder, "", source))
    }

    pub(super) async fn read(&self, folder: &str, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.backend
            .read(folder, name)
            .await
            .map_err(|source| self.failure("read", folder, name, source))
    }

    pub(super) async fn delete(&self, folder: &str, names: &[String]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        self.backend
            .delete(folder, names)
            .await
            .map_err(|source| self.failure("delete old files in", folder, "", source))
    }

    /// Creates a name if it is absent, and finds out whose it is when the answer is lost or the name is there.
    pub(super) async fn claim(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<Claim, StoreError> {
        let mut wait = FIRST_WAIT;
        let mut doubt: StorageFailure = "it is reported to exist and to be missing in turn".into();
        for tried in 1..=TRIES {
            let put = self.backend.create(folder, name, bytes).await;
            let answer = match put.map_err(|source| self.failure("write", folder, name, source))? {
                Put::Created => Answer::Created,
                Put::Exists => Answer::Exists,
                Put::InDoubt(failure) => {
                    doubt = failure;
                    Answer::InDoubt
                }
            };
            let found = match answer {
                Answer::Created => None,
                // A failed read-back leaves the same doubt; the next try settles it, or the last one gives up.
                Answer::Exists | Answer::InDoubt => {
                    self.backend.read(folder, name).await.unwrap_or_else(|failure| {
                        doubt = failure;
                        None
                    })
                }
            };
            if let Some(claim) = judge_claim(answer, bytes, found) {
                return Ok(claim);
            }
            if tried < TRIES {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
        }
        Err(self.failure("write", folder, name, doubt))
    }

    fn failure(&self, doing: &'static str, folder: &str, name: &str, source: StorageFailure) -> StoreError {
        StoreError::Storage {
            doing,
            file: self.show(folder, name),
            source,
        }
    }
}
