//! Everything that the page and `/status.json` show, at one moment.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bigquery_sink::options::SinkOptions;
use bigquery_sink_pipeline::{CheckpointRecord, FailureRecord, History, Pipeline, Progress, SourceConfig};
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
    pub(super) epoch: u64,
    pub(super) restarts: u32,
    /// Newest first.
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Newest first.
    pub(super) failures: Vec<Failed>,
    pub(super) rates: Rates,
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
    pub(crate) fn new(described: Described, progress: watch::Receiver<Progress>, history: History) -> Self {
        Self {
            described,
            progress,
            history,
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
            rows_waiting: 0,
        };
        self.samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sample);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let progress = self.progress();
        let history = self.history.record();
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
            epoch: progress.epoch,
            restarts: progress.restarts,
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
