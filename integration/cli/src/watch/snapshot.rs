//! Everything that the page and `/status.json` show, at one moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigquery_sink::metrics::{Destination, Metrics, StreamPhase, StreamStatus, SubtaskStatus};
use bigquery_sink::options::SinkOptions;
use bigquery_sink_pipeline::{
    CheckpointRecord, Control, FailureRecord, History, Pipeline, Progress, SourceConfig,
};
use bigquery_write_proto::names::TableName;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::samples::{Rates, Sample, Samples};

/// A run that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    described: Described,
    progress: watch::Receiver<Progress>,
    pub(super) history: History,
    metrics: Arc<Metrics>,
    began: Instant,
    samples: Mutex<Samples>,
}

/// What does not change while a pipeline runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Described {
    file: String,
    /// From the source to the sink.
    graph: Vec<Node>,
    parallelism: u32,
    checkpoint_interval_seconds: f64,
    guarantee: &'static str,
    version: &'static str,
}

/// A step that rows go through.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Node {
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// A connector, or an expression of the query.
    pub(super) what: String,
    /// How many work side by side.
    pub(super) instances: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) pipeline: Described,
    pub(super) now: String,
    pub(super) running_seconds: f64,
    /// What the host does.
    pub(super) phase: &'static str,
    pub(super) rows_read: u64,
    pub(super) rows_visible: u64,
    pub(super) rows_per_second: f64,
    /// Rows that BigQuery has acknowledged and nobody sees.
    pub(super) rows_waiting: u64,
    /// How long the oldest of them has waited.
    pub(super) oldest_waiting_seconds: Option<f64>,
    pub(super) epoch: u64,
    pub(super) restarts: u32,
    pub(super) subtasks: Vec<Subtask>,
    /// Newest first.
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Newest first.
    pub(super) failures: Vec<Failed>,
    pub(super) rates: Rates,
}

/// A parallel instance of the sink.
#[derive(Debug, Serialize)]
pub(super) struct Subtask {
    pub(super) subtask: u32,
    pub(super) is_running: bool,
    pub(super) rows_waiting: u64,
    pub(super) oldest_waiting_seconds: Option<f64>,
    pub(super) inflight_bytes: u64,
    pub(super) inflight_requests: usize,
    pub(super) streams: Vec<Stream>,
    /// Newest first.
    pub(super) troubles: Vec<Trouble>,
}

#[derive(Debug, Serialize)]
pub(super) struct Stream {
    pub(super) stream: String,
    pub(super) is_for_dead_letters: bool,
    /// Exclusive end of the rows that BigQuery acknowledged.
    pub(super) next_offset: u64,
    /// Exclusive end of the rows that are visible.
    pub(super) flushed: u64,
    /// `open`, or `left` where it gets no more rows.
    pub(super) phase: &'static str,
}

/// Something that went wrong in a subtask; the work goes on.
#[derive(Debug, Serialize)]
pub(super) struct Trouble {
    pub(super) at: String,
    pub(super) text: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Checkpoint {
    pub(super) epoch: u64,
    pub(super) began: String,
    /// An earlier attempt made it, and only its commit was repeated.
    pub(super) replayed: bool,
    pub(super) prepared_seconds: Option<f64>,
    pub(super) durable_seconds: Option<f64>,
    pub(super) committed_seconds: Option<f64>,
    pub(super) rows: u64,
    pub(super) state_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) at: String,
    pub(super) error: String,
    pub(super) restart_after_seconds: Option<f64>,
}

impl Described {
    pub(crate) fn new(
        pipeline: &Pipeline,
        options: &SinkOptions,
        parallelism: u32,
        checkpoint_interval: Duration,
    ) -> Self {
        let (connector, readers) = match pipeline.source.config {
            SourceConfig::Filesystem(_) => ("filesystem", 1),
            SourceConfig::Impulse(_) => ("impulse", parallelism),
            SourceConfig::SingleFile(_) => ("single_file", 1),
        };
        let node = |kind, name: &str, what: String, instances| Node {
            kind,
            name: name.to_owned(),
            what,
            instances,
        };
        let graph = vec![
            node("source", &pipeline.source.name, connector.to_owned(), readers),
            node("query", "SELECT", pipeline.query(), parallelism),
            node(
                "sink",
                &pipeline.sink.name,
                format!("bigquery, {}", dotted(&options.table)),
                parallelism,
            ),
        ];
        Self {
            file: pipeline.file.display().to_string(),
            graph,
            parallelism,
            checkpoint_interval_seconds: checkpoint_interval.as_secs_f64(),
            guarantee: options.mode.guarantee(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn graph(&self) -> &[Node] {
        &self.graph
    }

    pub(super) fn guarantee(&self) -> &'static str {
        self.guarantee
    }
}

impl Watched {
    pub(crate) fn new(described: Described, control: &Control, metrics: Arc<Metrics>) -> Self {
        Self {
            described,
            progress: control.progress.subscribe(),
            history: control.history.clone(),
            metrics,
            began: Instant::now(),
            samples: Mutex::default(),
        }
    }

    /// The run's progress as it stands.
    pub(super) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    pub(super) fn sample(&self) {
        let progress = self.progress();
        let sample = Sample {
            at: self.began.elapsed().as_secs_f64(),
            rows_read: progress.rows_read,
            rows_visible: progress.rows_committed,
            rows_waiting: rows_waiting(&self.metrics.subtasks()),
        };
        self.samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sample);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let progress = self.progress();
        let history = self.history.record();
        let subtasks = self.metrics.subtasks();
        let oldest = subtasks
            .iter()
            .filter_map(|subtask| subtask.oldest_uncommitted)
            .max();
        let rates = self
            .samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .rates();
        Snapshot {
            pipeline: self.described.clone(),
            now: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            running_seconds: self.began.elapsed().as_secs_f64(),
            phase: if history.phase.is_empty() {
                "starting"
            } else {
                history.phase
            },
            rows_read: progress.rows_read,
            rows_visible: progress.rows_committed,
            rows_per_second: progress.rows_per_second,
            rows_waiting: rows_waiting(&subtasks),
            oldest_waiting_seconds: oldest.map(|oldest| oldest.as_secs_f64()),
            epoch: progress.epoch,
            restarts: progress.restarts,
            subtasks: subtasks.iter().map(subtask).collect(),
            checkpoints: history.checkpoints.iter().rev().map(checkpoint).collect(),
            failures: history.failures.iter().rev().map(failed).collect(),
            rates,
        }
    }
}

/// As SQL names it.
fn dotted(table: &TableName) -> String {
    let (project, dataset) = (table.project().as_str(), table.dataset().as_str());
    format!("{project}.{dataset}.{}", table.table().as_str())
}

fn rows_waiting(subtasks: &[SubtaskStatus]) -> u64 {
    subtasks.iter().map(|subtask| subtask.uncommitted_rows).sum()
}

fn subtask(status: &SubtaskStatus) -> Subtask {
    let stream = |stream: &StreamStatus| Stream {
        stream: stream.stream.clone(),
        is_for_dead_letters: stream.destination == Destination::DeadLetters,
        next_offset: stream.next_offset,
        flushed: stream.flushed,
        phase: match stream.phase {
            StreamPhase::Open => "open",
            StreamPhase::Left => "left",
        },
    };
    let newest_first = status.troubles.iter().rev();
    Subtask {
        subtask: status.subtask,
        is_running: status.is_running,
        rows_waiting: status.uncommitted_rows,
        oldest_waiting_seconds: status.oldest_uncommitted.map(|oldest| oldest.as_secs_f64()),
        inflight_bytes: status.inflight_bytes,
        inflight_requests: status.inflight_requests,
        streams: status.streams.iter().map(stream).collect(),
        troubles: newest_first
            .map(|trouble| Trouble {
                at: time(trouble.at_micros),
                text: trouble.text.clone(),
            })
            .collect(),
    }
}

fn checkpoint(record: &CheckpointRecord) -> Checkpoint {
    let seconds = |after: Option<Duration>| after.map(|after| after.as_secs_f64());
    Checkpoint {
        epoch: record.epoch.0,
        began: time(record.began_micros),
        replayed: record.replayed,
        prepared_seconds: seconds(record.prepared),
        durable_seconds: seconds(record.durable),
        committed_seconds: seconds(record.committed),
        rows: record.rows,
        state_bytes: record.state_bytes,
    }
}

fn failed(record: &FailureRecord) -> Failed {
    Failed {
        at: time(record.at_micros),
        error: record.error.clone(),
        restart_after_seconds: record.restart_after.map(|after| after.as_secs_f64()),
    }
}

fn time(micros: u64) -> String {
    let time = i64::try_from(micros)
        .ok()
        .and_then(DateTime::from_timestamp_micros);
    time.map_or_else(
        || format!("{micros} us"),
        |time| time.to_rfc3339_opts(SecondsFormat::Millis, true),
    )
}
