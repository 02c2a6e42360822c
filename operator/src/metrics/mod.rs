//! What an operator watches: counters, gauges and histograms in a Prometheus registry, and a snapshot of every subtask.
//!
//! The registry is the host's: Arroyo and the command have the default one. Counters are told by the driver, per request, per flush and per
//! barrier, never per row. Gauges are worked out when somebody gathers, so that ages grow while nothing moves.

mod families;
mod live;
mod status;
mod subtask;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bigquery_sink_state::{NextOffset, StreamName};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

pub(crate) use families::code_name;
pub use families::{
    AppendResult, Counter, Discarded, Family, FlushResult, Gauge, Histogram, Kind, LABELS, PREFIX,
    RejectedBy, describe, families, values,
};
pub use status::{Destination, StreamPhase, StreamStatus, SubtaskStatus, Trouble};
pub(crate) use subtask::{Subtask, SubtaskMetrics};

use crate::clock::Clock;
use crate::host::Task;
use subtask::Identity;

/// Of so many streams it is known how far they were counted as visible: those of the newest checkpoint, whose commit may be repeated.
const COUNTED_STREAMS: usize = 4096;

/// The metrics of every sink of a process, or of those that share a registry.
pub struct Metrics {
    counters: BTreeMap<String, IntCounterVec>,
    gauges: BTreeMap<Gauge, GaugeVec>,
    histograms: BTreeMap<Histogram, HistogramVec>,
    subtasks: Mutex<BTreeMap<Identity, Arc<Subtask>>>,
    instances: AtomicU64,
    counted: Mutex<Counted>,
    /// Gauges are made anew for whoever gathers: one at a time.
    gathering: Mutex<()>,
}

/// How far streams were counted as visible, so that a commit that is repeated after a restart counts once.
#[derive(Debug, Default)]
struct Counted {
    ends: HashMap<StreamName, NextOffset>,
    oldest_first: VecDeque<StreamName>,
}

impl Default for Metrics {
    /// Metrics that nobody gathers: they count all the same.
    fn default() -> Self {
        let valid = "names, labels and bounds of the table are valid; a test registers them";
        let opts = |family: &Family| Opts::new(family.name(), family.help);
        let counters = Counter::all().into_iter().map(Counter::family);
        let counters = counters.map(|family| {
            let vec = IntCounterVec::new(opts(&family), &family.labels()).expect(valid);
            (family.name(), vec)
        });
        let gauges = Gauge::ALL.map(|gauge| {
            let family = gauge.family();
            (
                gauge,
                GaugeVec::new(opts(&family), &family.labels()).expect(valid),
            )
        });
        let histograms = Histogram::ALL.map(|histogram| {
            let family = histogram.family();
            let opts = HistogramOpts::from(opts(&family)).buckets(histogram.buckets());
            (histogram, HistogramVec::new(opts, &family.labels()).expect(valid))
        });
        Self {
            counters: counters.collect(),
            gauges: gauges.into(),
            histograms: histograms.into(),
            subtasks: Mutex::default(),
            instances: AtomicU64::new(0),
            counted: Mutex::default(),
            gathering: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Metrics in this registry.
    ///
    /// They are for all sinks that this registry tells of, in this life of the job and in the next ones: whoever registers hands the same
    /// value to each of them.
    ///
    /// # Errors
    /// The registry has metrics of these names already.
    pub fn register(registry: &Registry) -> Result<Arc<Self>, prometheus::Error> {
        let metrics = Arc::new(Self::default());
        registry.register(Box::new(Gathered(Arc::clone(&metrics))))?;
        Ok(metrics)
    }

    /// Those in Prometheus' default registry: the same ones for whoever asks, so that a job that starts anew within its process goes on
    /// counting.
    #[must_use]
    pub fn of_default_registry() -> Arc<Self> {
        static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
        let metrics = METRICS.get_or_init(|| {
            Self::register(prometheus::default_registry()).unwrap_or_else(|error| {
                // Another copy of this crate in the same program. No job fails for want of metrics.
                tracing::warn!(%error, "the sink's metrics are not in the default registry");
                Arc::default()
            })
        });
        Arc::clone(metrics)
    }

    /// A counter's value, over all subtasks.
    #[must_use]
    pub fn total(&self, counter: Counter) -> u64 {
        self.sum(|other| other == counter)
    }

    /// The sum of these counters, over all subtasks: of those of one family, say.
    pub fn sum(&self, wanted: impl Fn(Counter) -> bool) -> u64 {
        let wanted: Vec<Counter> = Counter::all().into_iter().filter(|one| wanted(*one)).collect();
        let of = |subtask: &Arc<Subtask>| -> u64 { wanted.iter().map(|one| subtask.count(*one)).sum() };
        lock(&self.subtasks).values().map(of).sum()
    }

    /// What every subtask is doing, by operator and index; of those too that have ended.
    #[must_use]
    pub fn subtasks(&self) -> Vec<SubtaskStatus> {
        let subtasks: Vec<Arc<Subtask>> = lock(&self.subtasks).values().cloned().collect();
        subtasks.iter().map(|subtask| subtask.status()).collect()
    }

    /// A subtask that starts; an older one of the same labels is not told of any more.
    pub(crate) fn start(self: &Arc<Self>, task: &Task, clock: Clock) -> SubtaskMetrics {
        let identity = Identity::of(task);
        let subtask = {
            let mut subtasks = lock(&self.subtasks);
            let known = subtasks.entry(identity.clone());
            Arc::clone(known.or_insert_with(|| Arc::new(self.subtask(identity))))
        };
        let instance = self.instances.fetch_add(1, Ordering::Relaxed);
        SubtaskMetrics::new(Arc::clone(self), subtask, instance, clock)
    }

    /// All its series, at 0.
    fn subtask(&self, identity: Identity) -> Subtask {
        let labels = identity.labels();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let counters = Counter::all().into_iter().filter_map(|counter| {
            let vec = self.counters.get(&counter.family().name())?;
            let values: Vec<&str> = labels.iter().copied().chain(counter.value()).collect();
            Some((counter, vec.with_label_values(&values)))
        });
        let histograms = self.histograms.iter();
        let histograms = histograms.map(|(&histogram, vec)| (histogram, vec.with_label_values(&labels)));
        Subtask::new(identity, counters.collect(), histograms.collect())
    }

    /// Takes note that a stream is visible up to there; gives how far it had been counted.
    fn shown(&self, stream: &StreamName, end: NextOffset) -> NextOffset {
        lock(&self.counted).shown(stream, end)
    }

    /// Makes the gauges say what is now.
    fn refresh_gauges(&self) {
        self.gauges.values().for_each(GaugeVec::reset);
        for subtask in lock(&self.subtasks).values() {
            let labels = subtask.identity().labels();
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            for (gauge, value) in subtask.gauges() {
                self.gauges[&gauge].with_label_values(&labels).set(value);
            }
        }
    }

    fn collectors(&self) -> impl Iterator<Item = &dyn Collector> {
        let counters = self.counters.values().map(|vec| vec as &dyn Collector);
        let gauges = self.gauges.values().map(|vec| vec as &dyn Collector);
        let histograms = self.histograms.values().map(|vec| vec as &dyn Collector);
        counters.chain(gauges).chain(histograms)
    }
}

impl Counted {
    fn shown(&mut self, stream: &StreamName, end: NextOffset) -> NextOffset {
        if let Some(counted) = self.ends.get_mut(stream) {
            let before = *counted;
            *counted = before.max(end);
            return before;
        }
        if self.oldest_first.len() == COUNTED_STREAMS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.ends.remove(&oldest);
        }
        self.oldest_first.push_back(stream.clone());
        self.ends.insert(stream.clone(), end);
        NextOffset(0)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("subtasks", &self.subtasks())
            .finish_non_exhaustive()
    }
}

/// What a registry holds.
struct Gathered(Arc<Metrics>);

impl Collector for Gathered {
    fn desc(&self) -> Vec<&Desc> {
        self.0.collectors().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one_at_a_time = lock(&self.0.gathering);
        self.0.refresh_gauges();
        self.0.collectors().flat_map(Collector::collect).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
