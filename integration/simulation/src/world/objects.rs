//! The checkpoint store's objects: in memory, outliving every process, and failing as the scenario says.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::watch::Site;
use crate::faults::Fired;
use crate::point::{Object, Point, StoreOp, When};
use crate::predicate::Predicate;
use crate::scenario::{StoreFault, StoreFaultKind};

/// How long an operation takes. Not nothing: empty checkpoints back to back would keep the clock from ever moving.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// How long bytes stay sound that will not.
const ROTTEN_AFTER: Duration = Duration::from_millis(50);

/// How long something takes that comes late.
const LATE: Duration = Duration::from_secs(10);

/// What all processes share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) inner: InMemory,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<StoreFault>,
    /// Of each process, and over all.
    seen: BTreeMap<(Option<usize>, StoreOp), u64>,
    /// Those that came true.
    fired: Vec<Fired<StoreFault>>,
    /// Objects that were put, while the answer was lost.
    unheard: BTreeSet<String>,
    /// The process that claimed an epoch, by the claim's name.
    claimed_by: BTreeMap<String, usize>,
}

/// The store as one process reaches it.
#[derive(Debug)]
pub(crate) struct Reached {
    objects: Objects,
    site: Arc<Site>,
}

impl Objects {
    pub(crate) fn new(faults: Vec<StoreFault>) -> Self {
        Self {
            inner: InMemory::new(),
            plan: Arc::new(Mutex::new(Plan {
                faults,
                ..Plan::default()
            })),
        }
    }

    pub(crate) fn reached(&self, site: Arc<Site>) -> Reached {
        Reached {
            objects: self.clone(),
            site,
        }
    }

    /// The faults that came true.
    pub(crate) fn fired(&self) -> Vec<Fired<StoreFault>> {
        self.plan().fired.clone()
    }

    fn fault(&self, at_ms: u64, process: usize, op: StoreOp) -> Option<StoreFaultKind> {
        let mut plan = self.plan();
        for of in [None, Some(process)] {
            *plan.seen.entry((of, op)).or_default() += 1;
        }
        let due = |fault: &&StoreFault| {
            let of = fault.process.is_none_or(|wanted| wanted == process);
            fault.op == op && of && plan.seen[&(fault.process, op)] == fault.nth
        };
        let fault = plan.faults.iter().find(due).copied();
        plan.fired.extend(fault.map(|fault| Fired { at_ms, fault }));
        fault.map(|fault| fault.kind)
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reached {
    /// One operation: the points before and after it, and what goes wrong with it. A put that is late is the caller's to do.
    async fn operation<T>(&self, op: StoreOp, what: &str, act: impl Future<Output = Result<T>>) -> Result<T> {
        self.enter(op).await;
        let fault = self.fault(op);
        self.site.note(format_args!("store {op:?} {what}{}", told(fault)));
        let result = match fault {
            Some(StoreFaultKind::Refused) => Err(lost()),
            Some(StoreFaultKind::Slow) => {
                tokio::time::sleep(LATE).await;
                self.site.door.pass().await;
                act.await
            }
            Some(StoreFaultKind::AppliedThenError) => act.await.and(Err(lost())),
            None | Some(StoreFaultKind::Late | StoreFaultKind::Torn | StoreFaultKind::Rot) => act.await,
        };
        self.leave(op).await;
        result
    }

    fn fault(&self, op: StoreOp) -> Option<StoreFaultKind> {
        let now = self.site.world.passed_ms();
        self.objects.fault(now, self.site.index, op)
    }

    async fn enter(&self, op: StoreOp) {
        self.site.door.pass().await;
        self.site.stop_at(Point::Store(When::Before, op), None).await;
        tokio::time::sleep(ROUND_TRIP).await;
        self.site.door.pass().await;
    }

    async fn leave(&self, op: StoreOp) {
        self.site.stop_at(Point::Store(When::After, op), None).await;
        self.site.door.pass().await;
    }

    /// The bytes go bad a while after they were written.
    fn rot(&self, path: &Path, bytes: bytes::Bytes) {
        let (objects, path) = (self.objects.inner.clone(), path.clone());
        tokio::spawn(async move {
            tokio::time::sleep(ROTTEN_AFTER).await;
            let mut bytes = bytes.to_vec();
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            // It may have been deleted meanwhile.
            if objects.get_opts(&path, GetOptions::default()).await.is_ok() {
                objects
                    .put_opts(&path, bytes.into(), PutOptions::default())
                    .await
                    .ok();
            }
        });
    }

    /// A manifest says what a checkpoint holds, a claim makes it complete, a marker confirms its commit.
    async fn put(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.objects.inner.put_opts(path, payload, options).await;
        let name = path.filename().unwrap_or_default();
        let object = Object::of(name);
        if object == Object::Claim {
            self.claimed(name, put.is_ok());
        }
        if matches!(object, Object::Manifest | Object::Claim | Object::Marker) {
            self.site.world.store_changed();
        }
        put
    }

    /// Somebody may have claimed it before.
    fn claimed(&self, name: &str, is_new: bool) {
        let mut plan = self.objects.plan();
        let own = self.site.index;
        if is_new {
            plan.claimed_by.insert(name.to_owned(), own);
        } else if let Some(other) = plan.claimed_by.get(name) {
            match other.cmp(&own) {
                Ordering::Less => self.site.world.saw(Predicate::ClaimLostToZombie),
                Ordering::Greater => self.site.world.saw(Predicate::ZombieLostClaim),
                Ordering::Equal => {}
            }
        }
    }
}

#[async_trait]
impl ObjectStore for Reached {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let name = path.filename().unwrap_or_default();
        let op = StoreOp::Put(Object::of(name));
        self.enter(op).await;
        let fault = self.fault(op);
        let crc = payload
            .iter()
            .fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        self.site
            .note(format_args!("store {op:?} {name} crc {crc:08x}{}", told(fault)));
        let result = match fault {
            None => self.put(path, payload, options).await,
            Some(StoreFaultKind::Refused) => Err(lost()),
            Some(StoreFaultKind::AppliedThenError) => {
                self.objects.plan().unheard.insert(name.to_owned());
                self.put(path, payload, options).await.and(Err(lost()))
            }
            Some(StoreFaultKind::Torn) => {
                let bytes = bytes::Bytes::from(payload);
                let half = bytes.slice(..bytes.len() / 2);
                self.put(path, half.into(), options).await.and(Err(lost()))
            }
            Some(StoreFaultKind::Rot) => {
                let bytes = bytes::Bytes::from(payload);
                self.rot(path, bytes.clone());
                self.put(path, bytes.into(), options).await
            }
            Some(StoreFaultKind::Slow) => {
                tokio::time::sleep(LATE).await;
                self.site.door.pass().await;
                self.put(path, payload, options).await
            }
            Some(StoreFaultKind::Late) => {
                let (objects, world) = (self.objects.clone(), Arc::clone(&self.site.world));
                let path = path.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    let put = objects.inner.put_opts(&path, payload, options).await;
                    world.note(format_args!("store: late put of {path}: {}", put.is_ok()));
                    world.store_changed();
                });
                Err(lost())
            }
        };
        self.leave(op).await;
        result
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let name = path.filename().unwrap_or_default();
        let op = StoreOp::Read(Object::of(name));
        if self.objects.plan().unheard.remove(name) {
            self.site.world.saw(Predicate::PutFoundApplied);
        }
        self.operation(op, name, self.objects.inner.get_opts(path, options))
            .await
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let what = prefix.map_or("", |prefix| prefix.as_ref());
        self.operation(
            StoreOp::List,
            what,
            self.objects.inner.list_with_delimiter(prefix),
        )
        .await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (objects, site) = (self.objects.clone(), Arc::clone(&self.site));
        let deleted = paths.then(move |path| {
            let reached = objects.reached(Arc::clone(&site));
            async move {
                let path = path?;
                let name = path.filename().unwrap_or_default().to_owned();
                let one = futures::stream::iter([Ok(path.clone())]).boxed();
                let mut deleting = reached.objects.inner.delete_stream(one);
                let act = async { deleting.next().await.unwrap_or(Ok(path)) };
                reached.operation(StoreOp::Delete, &name, act).await
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.inner.list(prefix)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.inner.put_multipart_opts(path, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.inner.copy_opts(from, to, options).await
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated store")
    }
}

fn told(fault: Option<StoreFaultKind>) -> String {
    fault.map(|fault| format!(" ({fault:?})")).unwrap_or_default()
}

fn lost() -> Error {
    Error::Generic {
        store: "simulation",
        source: "connection reset".into(),
    }
}
