//! An object store in memory that follows a script: it loses answers, applies late, and stops its caller.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::Store;

/// What happens to a put or to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not applied, and an error.
    Refuse,
    /// Applied, and an error.
    LoseAnswer,
    /// Applied, and "already exists": the client's own retry met the first try.
    AnswerExists,
    /// An error now, applied when [`ObjectDouble::apply_late`] is called.
    Late,
    /// Not applied, and an error that no retry mends.
    Forbid,
}

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub(super) struct ObjectDouble {
    inner: InMemory,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    /// For the next request on a name with this ending.
    puts: VecDeque<(&'static str, Fault)>,
    reads: VecDeque<&'static str>,
    late: Vec<(Path, PutPayload, PutOptions)>,
    requests: usize,
    pause: Option<(usize, Pause)>,
}

impl ObjectDouble {
    /// A store on it.
    pub(super) fn store(&self) -> Store {
        Store::from_object_store(Arc::new(self.clone()), Path::from("state"), "mem://state")
    }

    /// Another door to the same objects, without a script.
    pub(super) fn sound(&self) -> Store {
        Store::from_object_store(Arc::new(self.inner.clone()), Path::from("state"), "mem://state")
    }

    pub(super) fn at_put(&self, ending: &'static str, fault: Fault) {
        self.script().puts.push_back((ending, fault));
    }

    pub(super) fn fail_read(&self, ending: &'static str) {
        self.script().reads.push_back(ending);
    }

    /// Lets something happen right before request number `at`, counted from now.
    pub(super) fn pause_at(&self, at: usize, pause: impl Future<Output = ()> + Send + 'static) {
        let mut script = self.script();
        script.pause = Some((script.requests + at, Box::pin(pause)));
    }

    /// Whether the pause has not come.
    pub(super) fn is_pause_left(&self) -> bool {
        self.script().pause.is_some()
    }

    pub(super) async fn apply_late(&self) {
        let late = std::mem::take(&mut self.script().late);
        for (path, payload, options) in late {
            // Whether it still applies is the store's to say; its sender is long gone.
            self.inner.put_opts(&path, payload, options).await.ok();
        }
    }

    /// Whether every scripted fault has happened.
    pub(super) fn is_played(&self) -> bool {
        let script = self.script();
        script.puts.is_empty() && script.reads.is_empty()
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self) {
        let due = {
            let mut script = self.script();
            script.requests += 1;
            let now = script.requests;
            script.pause.take_if(|(at, _)| *at == now)
        };
        if let Some((_, pause)) = due {
            pause.await;
        }
    }

    fn next_fault(&self, path: &Path) -> Option<Fault> {
        let mut script = self.script();
        let matches = script
            .puts
            .front()
            .is_some_and(|(ending, _)| path.as_ref().ends_with(ending));
        if matches {
            script.puts.pop_front().map(|(_, fault)| fault)
        } else {
            None
        }
    }
}

#[async_trait]
impl ObjectStore for ObjectDouble {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.request().await;
        let Some(fault) = self.next_fault(path) else {
            return self.inner.put_opts(path, payload, options).await;
        };
        match fault {
            Fault::Refuse => {}
            Fault::LoseAnswer | Fault::AnswerExists => {
                let before = self.inner.put_opts(path, payload, options).await;
                if fault == Fault::AnswerExists || before.is_err() {
                    return Err(Error::AlreadyExists {
                        path: path.to_string(),
                        source: "met its first try".into(),
                    });
                }
            }
            Fault::Late => self.script().late.push((path.clone(), payload, options)),
            Fault::Forbid => {
                return Err(Error::PermissionDenied {
                    path: path.to_string(),
                    source: "no right to create objects".into(),
                });
            }
        }
        Err(lost())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.request().await;
        let fails = {
            let mut script = self.script();
            let fails = script
                .reads
                .front()
                .is_some_and(|ending| path.as_ref().ends_with(ending));
            if fails {
                script.reads.pop_front();
            }
            fails
        };
        if fails {
            Err(lost())
        } else {
            self.inner.get_opts(path, options).await
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request().await;
        self.inner.list_with_delimiter(prefix).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn lost() -> Error {
    Error::Generic {
        store: "double",
        source: "connection reset".into(),
    }
}

impl fmt::Debug for ObjectDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectDouble")
    }
}

impl fmt::Display for ObjectDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("double")
    }
}
