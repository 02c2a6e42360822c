//! What outlives every process: BigQuery, the checkpoint store's objects, the clock; and who watches them.

mod door;
mod objects;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigquery_sink_pipeline::store::{HostIdentity, Store};
use bigquery_write_emulator::Handle;
use bigquery_write_emulator::machine::{Exchange, Refusal, Visibility};
use futures::FutureExt as _;
use object_store::path::Path;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::engine::Rows;
use crate::oracle::{Change, Checkpoints, Published};
use crate::point::{Called, Hit, Point};
use crate::predicate::Predicate;
use crate::scenario::{ConnectionFault, ConnectionFaultKind, End, Scenario, StoreFault, WriteMode};
pub(crate) use door::Door;
use objects::Objects;
pub(crate) use watch::Site;
pub(crate) use wire::Inside;
use wire::{Outside, Wire};

/// Wall clock at the begin of every run, in milliseconds since 1970.
pub(crate) const BEGIN_MS: i64 = 1_800_000_000_000;

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The surroundings of one run.
pub(crate) struct World {
    pub(crate) handle: Handle,
    begin: Instant,
    objects: Objects,
    accept: mpsc::Sender<std::io::Result<Outside>>,
    connections: Mutex<Connections>,
    record: Mutex<Record>,
    mode: WriteMode,
}

/// Every connection there ever was, and what is to happen to them.
#[derive(Default)]
struct Connections {
    /// In the order in which BigQuery accepted them.
    wires: Vec<Wire>,
    faults: Vec<ConnectionFault>,
    calls: BTreeMap<Called, u64>,
    /// Faults that came true.
    fired: Vec<ConnectionFault>,
    /// Those who let go of what is held.
    waiting: Vec<AbortHandle>,
}

/// What was seen.
#[derive(Default)]
struct Record {
    trace: String,
    violations: Vec<String>,
    predicates: BTreeMap<Predicate, u64>,
    hits: Vec<Vec<Hit>>,
    sites: Vec<Arc<Site>>,
    checkpoints: Checkpoints,
    published: Published,
    /// What subtasks publish without a checkpoint, by process and subtask.
    ends: BTreeMap<(usize, u32), Rows>,
    /// Changes of what is visible so far.
    changes: u64,
}

impl World {
    /// Attaches the watchers. The receiver's connections are to be served by the emulator.
    pub(crate) fn new(
        handle: Handle,
        scenario: &Scenario,
    ) -> (Arc<Self>, mpsc::Receiver<std::io::Result<Outside>>) {
        let (accept, accepted) = mpsc::channel(BACKLOG);
        let world = Arc::new(Self {
            handle: handle.clone(),
            begin: Instant::now(),
            objects: Objects::new(scenario.store_faults.clone()),
            accept,
            connections: Mutex::new(Connections {
                faults: scenario.connection_faults.clone(),
                ..Connections::default()
            }),
            record: Mutex::default(),
            mode: scenario.workload.mode,
        });
        let watcher = Arc::downgrade(&world);
        handle.observe(move |change| {
            if let Some(world) = watcher.upgrade() {
                world.visible(change);
            }
        });
        let watcher = Arc::downgrade(&world);
        handle.observe_exchanges(move |exchange| {
            if let Some(world) = watcher.upgrade() {
                world.exchanged(exchange);
            }
        });
        (world, accepted)
    }

    /// The next process's place in it.
    pub(crate) fn site(self: &Arc<Self>, end: End) -> Arc<Site> {
        let mut record = self.record();
        let site = Arc::new(Site::new(Arc::clone(self), record.sites.len(), end));
        record.sites.push(Arc::clone(&site));
        record.hits.push(Vec::new());
        site
    }

    /// The index of the process that began last.
    pub(crate) fn newest_site(&self) -> Option<usize> {
        self.record().sites.len().checked_sub(1)
    }

    /// The checkpoint store as that process reaches it.
    pub(crate) fn store(&self, site: &Arc<Site>) -> Store {
        let host = HostIdentity {
            owner: (site.index as u128 + 1).to_be_bytes(),
            process: 1000 + u32::try_from(site.index).unwrap_or(u32::MAX),
        };
        let reached = Arc::new(self.objects.reached(Arc::clone(site)));
        Store::from_object_store(reached, Path::from("state"), "simulated:state").with_host(host)
    }

    /// A new connection from behind this door.
    pub(crate) fn connect(&self, door: &Door) -> std::io::Result<Inside> {
        let (inside, outside, wire) = wire::connection(door);
        self.accept.try_send(Ok(outside)).map_err(std::io::Error::other)?;
        self.connections().wires.push(wire);
        Ok(inside)
    }

    pub(crate) fn now_ms(&self) -> i64 {
        BEGIN_MS + i64::try_from(self.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, what: impl fmt::Display) {
        let ms = self.elapsed().as_millis();
        let mut record = self.record();
        writeln!(record.trace, "{ms:>8} {what}").expect("a text takes what is written to it");
    }

    /// What must not be is.
    pub(crate) fn violation(&self, what: impl fmt::Display) {
        self.note(format_args!("VIOLATION {what}"));
        self.record().violations.push(what.to_string());
    }

    pub(crate) fn saw(&self, predicate: Predicate) {
        *self.record().predicates.entry(predicate).or_default() += 1;
    }

    pub(crate) fn predicates(&self) -> BTreeMap<Predicate, u64> {
        self.record().predicates.clone()
    }

    pub(crate) fn trace(&self) -> String {
        self.record().trace.clone()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.record().violations.clone()
    }

    pub(crate) fn hits(&self) -> Vec<Vec<Hit>> {
        self.record().hits.clone()
    }

    pub(crate) fn published(&self) -> Published {
        self.record().published.clone()
    }

    pub(crate) fn checkpoints(&self) -> Checkpoints {
        self.record().checkpoints.clone()
    }

    /// Faults of the store that came true.
    pub(crate) fn store_faults(&self) -> Vec<StoreFault> {
        self.objects.fired()
    }

    /// Faults of connections that came true.
    pub(crate) fn connection_faults(&self) -> Vec<ConnectionFault> {
        self.connections().fired.clone()
    }

    /// What is held or lost arrives after all: the run is over.
    pub(crate) fn let_go(&self) {
        let mut connections = self.connections();
        for waiting in connections.waiting.drain(..) {
            waiting.abort();
        }
        connections.wires.iter().for_each(Wire::let_go);
    }

    /// Streams with rows that nobody sees.
    pub(crate) fn unread_streams(&self) -> usize {
        let streams = self.handle.streams();
        streams
            .iter()
            .filter(|stream| stream.end > stream.flushed)
            .count()
    }

    /// Lets go of the sites, which hold the world.
    pub(crate) fn close(&self) {
        self.record().sites.clear();
    }

    /// Looks what the store says is complete now. It is asked past all faults.
    pub(crate) fn store_changed(&self) {
        let store = Store::from_object_store(
            Arc::new(self.objects.inner.clone()),
            Path::from("state"),
            "simulated:state",
        );
        let Some(listed) = store.list().now_or_never() else {
            return self.violation("the store in memory did not answer at once");
        };
        match listed {
            Err(error) => self.violation(format_args!("the store in memory cannot be listed: {error}")),
            Ok(listed) => {
                let said = self.record().checkpoints.update(listed);
                self.say(said);
            }
        }
    }

    /// The engine declared a checkpoint complete, with the parts (state and commit entry) of its subtasks in order.
    pub(crate) fn declared<'a>(&self, epoch: u64, parts: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        let said = self.record().checkpoints.declare(epoch, parts);
        self.say(said);
    }

    /// The engine knows that the newest checkpoint's rows are visible.
    pub(crate) fn confirmed(&self) {
        self.record().checkpoints.confirm();
    }

    /// A subtask may publish these rows from now on, though no checkpoint covers them (invariant 1's exception).
    pub(crate) fn end_begins(&self, process: usize, subtask: u32, rows: Rows) {
        self.record().ends.insert((process, subtask), rows);
    }

    /// All of them are visible.
    pub(crate) fn end_is_over(&self, process: usize, subtask: u32) {
        self.record().ends.remove(&(process, subtask));
    }

    fn say(&self, said: Vec<(bool, String)>) {
        for (violates, line) in said {
            if violates {
                self.violation(line);
            } else {
                self.note(line);
            }
        }
    }

    fn visible(&self, change: &Visibility) {
        let stream = change.stream.clone().unwrap_or_default();
        let (from, to) = (change.from, change.to);
        self.note(format_args!("visible {} {from}..{to}", short(&stream)));
        let mut record = self.record();
        record.changes += 1;
        let mut covered = record.checkpoints.covers(&stream, to);
        let mut without_checkpoint = None;
        if !covered && !record.ends.is_empty() {
            covered = true;
            without_checkpoint = Some(record.ends.values().cloned().collect());
        }
        record.published.changes.push(Change {
            stream: stream.clone(),
            rows: from..to,
            without_checkpoint,
        });
        drop(record);
        if !covered && self.mode == WriteMode::ExactlyOnce {
            // P5 (invariant 1).
            self.violation(format_args!(
                "P5: rows {from}..{to} of {} became visible, and no complete checkpoint covers them",
                short(&stream)
            ));
        }
    }

    fn exchanged(&self, exchange: &Exchange) {
        let Exchange {
            rpc,
            target,
            request,
            answer,
            refused,
            ..
        } = exchange;
        let target = short(target);
        let transport = exchange.transport;
        self.note(format_args!("{rpc:?} {target} {request} -> {answer}"));
        let Some(called) = Called::of(*rpc) else {
            // P9 (invariant 9).
            return self.violation(format_args!("P9: {rpc:?} was called on {target}"));
        };
        if self.mode == WriteMode::AtLeastOnce
            && matches!(called, Called::CreateWriteStream | Called::FlushRows)
        {
            self.violation(format_args!(
                "P9: {rpc:?} was called on {target}, where rows go to the default stream"
            ));
        }
        let (site, changed) = {
            let mut record = self.record();
            let changed = std::mem::take(&mut record.changes) > 0;
            (record.sites.last().cloned(), changed)
        };
        if called == Called::FlushRows && !refused && !changed {
            self.saw(Predicate::FlushedAlready);
        }
        if let Some(site) = site {
            site.hit(Point::Applied(called), None);
        }
        self.disturb(called, transport);
    }

    /// Lets happen to the connection what is to happen with this call on it.
    fn disturb(&self, called: Called, transport: u64) {
        let mut connections = self.connections();
        let nth = connections.calls.entry(called).or_default();
        *nth += 1;
        let nth = *nth;
        let due = |fault: &&ConnectionFault| fault.called == called && fault.nth == nth;
        let Some(fault) = connections.faults.iter().find(due).copied() else {
            return;
        };
        let number = usize::try_from(transport).unwrap_or_default();
        let Some(wire) = number
            .checked_sub(1)
            .and_then(|at| connections.wires.get(at))
            .cloned()
        else {
            return;
        };
        connections.fired.push(fault);
        self.note(format_args!("connection {transport}: {:?}", fault.kind));
        match fault.kind {
            ConnectionFaultKind::Closed { way } => wire.close(way),
            ConnectionFaultKind::Lost { way } => wire.hold(way),
            ConnectionFaultKind::Held { way, ms } => {
                wire.hold(way);
                let waiting = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    wire.let_go();
                });
                connections.waiting.push(waiting.abort_handle());
            }
            ConnectionFaultKind::CallsEnd { code } => {
                // Not from within BigQuery, which has not answered the call yet.
                let handle = self.handle.clone();
                tokio::spawn(async move { handle.end_calls(&Refusal::new(code, "simulated")) });
            }
        }
    }

    pub(super) fn record_hit(&self, site: usize, hit: Hit) -> usize {
        let mut record = self.record();
        let hits = &mut record.hits[site];
        hits.push(hit);
        hits.len() - 1
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// The last part of a stream's or table's name.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
