//! What outlives every process: BigQuery, the checkpoint store's objects, the clock; and who watches them.

mod door;
mod objects;
mod watch;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
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
use crate::faults::Fired;
use crate::oracle::{self, Change, Checkpoints, Published};
use crate::point::{Called, Hit, Point, StepKind};
use crate::predicate::Predicate;
use crate::scenario::{
    ConnectionFault, ConnectionFaultKind, Incarnation, Scenario, StoreFault, Way, WriteMode,
};
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
    /// In the order in which BigQuery accepted them, with the process whose each is.
    wires: Vec<(usize, Wire)>,
    faults: Vec<ConnectionFault>,
    calls: BTreeMap<Called, u64>,
    /// Faults that came true.
    fired: Vec<Fired<ConnectionFault>>,
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
    /// Streams whose rows became visible since the last call, and whether a checkpoint covers those.
    changed: Vec<(String, bool)>,
    /// When processes were killed, cut off or overtaken, and when they came back.
    ends_ms: Vec<u64>,
    starts_ms: Vec<u64>,
    /// Who appended to a stream first, by stream.
    writers: BTreeMap<String, usize>,
    /// Processes that ended by themselves.
    ended: BTreeSet<usize>,
    /// Rows of commits that more than one process may have carried out.
    replayed: u64,
    /// Where rows stand that a zombie appended when another process had begun: stream and offset.
    late_rows: Vec<(String, u64)>,
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
    pub(crate) fn site(self: &Arc<Self>, incarnation: &Incarnation) -> Arc<Site> {
        let now = self.passed_ms();
        let mut record = self.record();
        let site = Arc::new(Site::new(Arc::clone(self), record.sites.len(), incarnation));
        record.starts_ms.push(now);
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

    /// A process's new connection.
    pub(crate) fn connect(&self, site: &Site) -> std::io::Result<Inside> {
        let (inside, outside, wire) = wire::connection(&site.door);
        self.accept.try_send(Ok(outside)).map_err(std::io::Error::other)?;
        self.connections().wires.push((site.index, wire));
        if self.is_superseded(site.index) {
            self.saw(Predicate::ZombieReconnected);
        }
        Ok(inside)
    }

    /// A process is cut off for good from what it had opened, and does not hear of it.
    pub(super) fn lose_connections(&self, process: usize) {
        let connections = self.connections();
        let own = connections.wires.iter().filter(|(of, _)| *of == process);
        own.for_each(|(_, wire)| wire.close(Way::Both));
    }

    /// Another process has begun after this one.
    fn is_superseded(&self, process: usize) -> bool {
        process + 1 < self.record().sites.len()
    }

    pub(crate) fn now_ms(&self) -> i64 {
        BEGIN_MS + i64::try_from(self.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Since the run began.
    pub(crate) fn passed_ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A process is killed, cut off or overtaken, or is back.
    pub(crate) fn turns(&self) {
        let now = self.passed_ms();
        self.record().ends_ms.push(now);
    }

    /// When processes began.
    pub(crate) fn starts_ms(&self) -> Vec<u64> {
        self.record().starts_ms.clone()
    }

    /// When processes were killed, cut off or overtaken, or came back.
    pub(crate) fn ends_ms(&self) -> Vec<u64> {
        self.record().ends_ms.clone()
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
    pub(crate) fn store_faults(&self) -> Vec<Fired<StoreFault>> {
        self.objects.fired()
    }

    /// Faults of connections that came true.
    pub(crate) fn connection_faults(&self) -> Vec<Fired<ConnectionFault>> {
        self.connections().fired.clone()
    }

    /// What is held or lost arrives after all: the run is over.
    pub(crate) fn let_go(&self) {
        let mut connections = self.connections();
        for waiting in connections.waiting.drain(..) {
            waiting.abort();
        }
        connections.wires.iter().for_each(|(_, wire)| wire.let_go());
    }

    /// Whether nobody sees some of the rows that zombies appended late.
    pub(crate) fn has_late_rows_unseen(&self) -> bool {
        let streams = self.handle.streams();
        let is_unseen = |(name, at): &(String, u64)| {
            let mut of = streams.iter().filter(|stream| stream.name == *name);
            of.any(|stream| stream.flushed <= *at)
        };
        self.record().late_rows.iter().any(is_unseen)
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
                let said = {
                    let record = &mut *self.record();
                    record.checkpoints.update(listed, &record.published)
                };
                self.say(said);
            }
        }
    }

    /// A subtask prepared its part of a checkpoint, which may be gone on from later if it is stored.
    pub(crate) fn prepared(&self, site: &Site, state: &[u8], commit: &[u8]) {
        let (state_crc, commit_crc) = (crc32c::crc32c(state), crc32c::crc32c(commit));
        site.note(format_args!(
            "prepared state crc {state_crc:08x}, commit crc {commit_crc:08x}"
        ));
        self.say(oracle::unreadable("what was prepared", state, commit));
    }

    /// The engine declared a checkpoint complete, with the parts (state and commit entry) of its subtasks in order.
    pub(crate) fn declared<'a>(&self, epoch: u64, parts: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        let said = self.record().checkpoints.declare(epoch, parts);
        self.say(said);
    }

    /// The engine knows that the rows of a checkpoint with these commit entries are visible.
    pub(crate) fn confirmed<'a>(&self, entries: impl Iterator<Item = &'a [u8]>) {
        let said = {
            let record = &mut *self.record();
            record.checkpoints.confirm(entries, &record.published)
        };
        self.say(said);
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
        let covered = record.checkpoints.covers(&stream, to);
        // Only who wrote a stream knows more of it than checkpoints do.
        let writer = record.writers.get(&stream).copied();
        let site = writer.and_then(|writer| record.sites.get(writer));
        let parallelism = site.map_or(0, |site| site.parallelism);
        let ends = record
            .ends
            .iter()
            .filter(|((process, _), _)| Some(*process) == writer);
        let ends: Vec<_> = ends.map(|(_, rows)| rows.clone()).collect();
        let is_end = !covered && !ends.is_empty();
        record.changed.push((stream.clone(), covered));
        record.published.changes.push(Change {
            stream: stream.clone(),
            rows: from..to,
            without_checkpoint: is_end.then_some(ends),
            parallelism,
        });
        drop(record);
        if !covered && !is_end && self.mode == WriteMode::ExactlyOnce {
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
            transport,
            ..
        } = exchange;
        let called = Called::of(*rpc);
        self.note(format_args!("{rpc:?} {} {request} -> {answer}", short(target)));
        let Some(called) = called else {
            // P9 (invariant 9).
            return self.violation(format_args!("P9: {rpc:?} was called on {}", short(target)));
        };
        if self.mode == WriteMode::AtLeastOnce
            && matches!(called, Called::CreateWriteStream | Called::FlushRows)
        {
            self.violation(format_args!(
                "P9: {rpc:?} was called on {}, where rows go to the default stream",
                short(target)
            ));
        }
        let caller = self.caller(*transport);
        let changed = std::mem::take(&mut self.record().changed);
        if let Some(site) = &caller {
            match called {
                Called::AppendRows if self.mode == WriteMode::ExactlyOnce => self.appended(site, exchange),
                Called::FlushRows => self.flushed(site, exchange, &changed),
                _ => {}
            }
            site.hit(Point::Applied(called), None);
        } else {
            self.violation(format_args!("P6: {rpc:?} came on a connection of no process"));
        }
        self.disturb(called, *transport);
    }

    /// The process whose connection that is.
    fn caller(&self, transport: u64) -> Option<Arc<Site>> {
        let at = usize::try_from(transport).ok()?.checked_sub(1)?;
        let process = self.connections().wires.get(at)?.0;
        self.record().sites.get(process).cloned()
    }

    fn appended(&self, site: &Site, exchange: &Exchange) {
        let stream = &exchange.target;
        let writer = *self.record().writers.entry(stream.clone()).or_insert(site.index);
        if writer != site.index {
            // P6 (invariant 2).
            self.violation(format_args!(
                "P6: process {} appended to {}, the stream of process {}",
                site.index + 1,
                short(stream),
                writer + 1
            ));
        }
        let at = exchange.answer.strip_prefix("at ").and_then(|at| at.parse().ok());
        if let Some(at) = at
            && self.is_superseded(site.index)
            && !site.door.is_dead()
        {
            self.record().late_rows.push((stream.clone(), at));
        }
    }

    /// `changed` became visible by it.
    fn flushed(&self, site: &Site, exchange: &Exchange, changed: &[(String, bool)]) {
        let stream = &exchange.target;
        let record = self.record();
        let writer = record
            .writers
            .get(stream)
            .and_then(|writer| record.sites.get(*writer));
        let writer = writer.cloned();
        drop(record);
        let Some(writer) = writer.filter(|writer| writer.index != site.index) else {
            return;
        };
        let uncovered = |(of, covered): &(String, bool)| of == stream && !covered;
        if changed.iter().any(uncovered) {
            // P5: the end of data is its own process's to publish.
            self.violation(format_args!(
                "P5: process {} published rows of {}, the stream of process {}, that no complete checkpoint covers",
                site.index + 1,
                short(stream),
                writer.index + 1
            ));
        }
        if !exchange.refused {
            if changed.is_empty() {
                self.saw(Predicate::FlushedAlready);
            }
            if writer.parallelism != site.parallelism {
                self.saw(Predicate::CommitAfterRescale);
            }
        }
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
        let wire = number.checked_sub(1).and_then(|at| connections.wires.get(at));
        let Some((_, wire)) = wire.cloned() else {
            return;
        };
        let at_ms = self.passed_ms();
        connections.fired.push(Fired { at_ms, fault });
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

    /// Rows of commits that more than one process may have carried out.
    pub(crate) fn replayed(&self) -> u64 {
        self.record().replayed
    }

    /// That process has ended by itself.
    pub(super) fn ends(&self, process: usize) {
        self.record().ended.insert(process);
    }

    pub(super) fn record_hit(&self, site: usize, hit: Hit) -> usize {
        let mut record = self.record();
        if hit.point == Point::Step(StepKind::Restored)
            && let Some(newest) = record.checkpoints.newest
        {
            // Who is alive besides may confirm it meanwhile.
            let mut others = record.sites[..site].iter();
            let is_shared = others.any(|other| !other.door.is_dead() && !record.ended.contains(&other.index));
            if is_shared || !newest.committed {
                record.replayed += newest.rows;
            }
        }
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
