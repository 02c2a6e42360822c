//! One subtask's share of the metrics, told by its driver what happened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigquery_sink_state::{Destination, Epoch, Fault, NextOffset, RowCount, StreamName, SubtaskState};

use super::Metrics;
use super::families::{Counter, Discarded, Gauge, Histogram, code_name};
use super::live::Live;
use super::status::{SubtaskStatus, Trouble};
use crate::clock::Clock;
use crate::host::Task;

/// So many troubles are kept.
const TROUBLES: usize = 16;
/// Longest text of one, in bytes.
const LONGEST: usize = 1024;

/// Whose series they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) operator_name: String,
    pub(super) node_id: u32,
    pub(super) subtask: u32,
}

/// What goes on when a subtask starts anew within the process: its counters, and what went wrong.
#[derive(Debug)]
pub(crate) struct Subtask {
    identity: Identity,
    counters: BTreeMap<Counter, prometheus::IntCounter>,
    histograms: BTreeMap<Histogram, prometheus::Histogram>,
    running: Mutex<Option<Running>>,
    troubles: Mutex<VecDeque<Trouble>>,
}

#[derive(Debug)]
struct Running {
    /// Which of the instances with this identity: the newest one is told of.
    instance: u64,
    clock: Clock,
    live: Live,
}

/// A running subtask. With its end the gauges are gone.
#[derive(Debug)]
pub(crate) struct SubtaskMetrics {
    metrics: Arc<Metrics>,
    subtask: Arc<Subtask>,
    instance: u64,
    clock: Clock,
}

impl Identity {
    pub(super) fn of(task: &Task) -> Self {
        Self {
            operator_name: task.operator_name.clone(),
            node_id: task.node_id,
            subtask: task.subtask.0,
        }
    }

    /// The values of [`super::LABELS`].
    pub(super) fn labels(&self) -> [String; 3] {
        [
            self.node_id.to_string(),
            self.subtask.to_string(),
            self.operator_name.clone(),
        ]
    }
}

impl Subtask {
    pub(super) fn new(
        identity: Identity,
        counters: BTreeMap<Counter, prometheus::IntCounter>,
        histograms: BTreeMap<Histogram, prometheus::Histogram>,
    ) -> Self {
        Self {
            identity,
            counters,
            histograms,
            running: Mutex::default(),
            troubles: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        if let Some(series) = self.counters.get(&counter) {
            series.inc_by(count);
        }
    }

    /// Keeps what went wrong for the status page.
    pub(crate) fn trouble(&self, clock: Clock, text: &str) {
        let mut end = text.len().min(LONGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut troubles = lock(&self.troubles);
        if troubles.len() == TROUBLES {
            troubles.pop_front();
        }
        troubles.push_back(Trouble {
            at_micros: clock.now().0,
            text: text[..end].to_owned(),
        });
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(&counter).map_or(0, prometheus::IntCounter::get)
    }

    /// What the gauges say, as far as they say anything.
    pub(super) fn gauges(&self) -> Vec<(Gauge, f64)> {
        let running = lock(&self.running);
        let Some(Running { clock, live, .. }) = &*running else {
            return Vec::new();
        };
        let now = clock.now();
        let gauges = Gauge::ALL.into_iter();
        gauges
            .filter_map(|gauge| Some((gauge, live.gauge(gauge, now)?)))
            .collect()
    }

    pub(super) fn status(&self) -> SubtaskStatus {
        let troubles = lock(&self.troubles).iter().cloned().collect();
        let Identity {
            operator_name,
            node_id,
            subtask,
        } = self.identity.clone();
        let running = lock(&self.running);
        let live = running.as_ref().map(|running| &running.live);
        let (inflight_bytes, inflight_requests) = live.map_or((0, 0), |live| live.inflight);
        SubtaskStatus {
            node_id,
            operator_name,
            subtask,
            is_running: live.is_some(),
            streams: live.map_or_else(Vec::new, Live::streams),
            uncommitted_rows: live.map_or(0, Live::unseen_rows),
            oldest_uncommitted: running
                .as_ref()
                .and_then(|running| running.live.oldest_unseen(running.clock.now())),
            last_committed_epoch: live.and_then(Live::last_committed).map(|epoch| epoch.0),
            inflight_bytes,
            inflight_requests,
            troubles,
        }
    }

    /// The streams that an instance leaves behind get no more rows.
    fn add_ended(&self, live: &Live) {
        self.add(
            Counter::StreamsDiscarded(Discarded::Ended),
            live.open_streams() as u64,
        );
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        lock(&self.running)
    }
}

impl SubtaskMetrics {
    /// From now on this one is told of, and no other of the same identity.
    pub(super) fn new(metrics: Arc<Metrics>, subtask: Arc<Subtask>, instance: u64, clock: Clock) -> Self {
        let running = Running {
            instance,
            clock,
            live: Live::default(),
        };
        let before = subtask.running().replace(running);
        if let Some(Running { live, .. }) = before {
            subtask.add_ended(&live);
        }
        Self {
            metrics,
            subtask,
            instance,
            clock,
        }
    }

    /// For whoever counts beside the driver.
    pub(crate) fn subtask(&self) -> &Arc<Subtask> {
        &self.subtask
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.subtask.add(counter, count);
    }

    pub(crate) fn observe(&self, histogram: Histogram, took: Duration) {
        if let Some(series) = self.subtask.histograms.get(&histogram) {
            series.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn trouble(&self, text: &str) {
        self.subtask.trouble(self.clock, text);
    }

    /// A refusal or a loss. Texts of single rows are left out.
    pub(crate) fn fault(&self, what: &str, fault: &Fault) {
        let Fault { code, message, .. } = fault;
        let rows = match fault.row_errors.len() {
            0 => String::new(),
            rows => format!(" ({rows} rows)"),
        };
        self.trouble(&format!("{what}: {}: {message}{rows}", code_name(*code)));
    }

    /// What the restored checkpoint may still owe: the states whose commit lists this subtask flushes.
    pub(crate) fn restored(
        &self,
        states: &[&SubtaskState],
        is_expected: bool,
        of: impl Fn(&StreamName) -> Destination,
    ) {
        self.with(|running| running.live.restored(states, is_expected, of));
    }

    pub(crate) fn opened(&self, stream: &StreamName, of: Destination) {
        self.with(|running| running.live.opened(stream, of, running.clock.now()));
    }

    /// A request was acknowledged that ends there; without an end on a default stream.
    pub(crate) fn acknowledged(
        &self,
        stream: &StreamName,
        of: Destination,
        end: Option<NextOffset>,
        (rows, bytes): (RowCount, u64),
    ) {
        match of {
            Destination::Table => {
                self.add(Counter::RowsAppended, rows.0);
                self.add(Counter::BytesAppended, bytes);
                if end.is_none() {
                    self.add(Counter::RowsCommitted, rows.0);
                }
            }
            Destination::DeadLetters => self.add(Counter::DeadLettersWritten, rows.0),
        }
        self.with(|running| {
            let now = running.clock.now();
            running.live.acknowledged(stream, end, rows, now);
        });
    }

    pub(crate) fn inflight(&self, bytes: u64, requests: usize) {
        self.with(|running| running.live.inflight = (bytes, requests));
    }

    pub(crate) fn prepared(&self) {
        self.with(|running| running.live.prepared());
    }

    pub(crate) fn left(&self, stream: &StreamName, reason: Discarded) {
        self.add(Counter::StreamsDiscarded(reason), 1);
        self.with(|running| running.live.left(stream));
    }

    /// A flush up to there is asked for.
    pub(crate) fn flush_asked(&self, stream: &StreamName, end: NextOffset) {
        self.with(|running| running.live.asked(stream, end));
    }

    /// Rows are visible up to there; gives how many were not known to be before.
    pub(crate) fn flushed(&self, stream: &StreamName, end: NextOffset) -> RowCount {
        let Some(Some(shown)) = self.with(|running| running.live.flushed(stream, end)) else {
            return RowCount(0);
        };
        let before = self.metrics.shown(stream, end);
        let rows = end.0.saturating_sub(before.max(shown.from).0);
        if shown.of == Destination::Table {
            self.add(Counter::RowsCommitted, rows);
        }
        RowCount(rows)
    }

    /// What was asked for counts as done (`commit.unprovable`).
    pub(crate) fn accepted(&self, stream: &StreamName, rows: RowCount, lost: bool) {
        let counter = if lost {
            Counter::RowsLost
        } else {
            Counter::RowsAssumedVisible
        };
        self.add(counter, rows.0);
        self.with(|running| running.live.accepted(stream));
    }

    pub(crate) fn committed(&self, epoch: Epoch) {
        self.with(|running| running.live.committed(epoch));
    }

    /// Looks after what the gauges say, if it is this instance that they tell of.
    fn with<T>(&self, act: impl FnOnce(&mut Running) -> T) -> Option<T> {
        let mut running = self.subtask.running();
        let running = running.as_mut();
        running
            .filter(|running| running.instance == self.instance)
            .map(act)
    }
}

impl Drop for SubtaskMetrics {
    fn drop(&mut self) {
        let mut running = self.subtask.running();
        if let Some(ended) = running.take_if(|running| running.instance == self.instance) {
            self.subtask.add_ended(&ended.live);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
