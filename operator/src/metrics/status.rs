//! A snapshot of the subtasks, for people.

use std::time::Duration;

pub use bigquery_sink_state::Destination;

/// One subtask of the sink, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskStatus {
    /// The operator's number in the pipeline's graph.
    pub node_id: u32,
    /// The sink's name in the pipeline.
    pub operator_name: String,
    /// Its index among the parallel instances.
    pub subtask: u32,
    /// Whether it runs; if not, it has ended or failed, and what follows but for the troubles is empty.
    pub is_running: bool,
    /// The streams that rows go to, and those that still hold rows nobody sees, by name.
    pub streams: Vec<StreamStatus>,
    /// Rows and dead letters that BigQuery acknowledged and nobody sees yet.
    pub uncommitted_rows: u64,
    /// How long ago the first of those of the oldest checkpoint was acknowledged.
    pub oldest_uncommitted: Option<Duration>,
    /// The newest checkpoint known to be committed.
    pub last_committed_epoch: Option<u64>,
    /// Bytes in requests to append that are not acknowledged.
    pub inflight_bytes: u64,
    /// Such requests.
    pub inflight_requests: usize,
    /// What went wrong last, the newest last; from before the last restart too, within this process.
    pub troubles: Vec<Trouble>,
}

/// A write stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// Its full name.
    pub stream: String,
    /// Which table its rows are of.
    pub destination: Destination,
    /// Exclusive end of the rows that BigQuery acknowledged; on a default stream those that this subtask sent.
    pub next_offset: u64,
    /// Exclusive end of the rows that are visible.
    pub flushed: u64,
    /// Whether rows still go to it.
    pub phase: StreamPhase,
}

/// Where a stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPhase {
    /// Rows go to it.
    Open,
    /// It gets no more rows, and is still to be flushed.
    Left,
}

/// A fault or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// When, in µs since 1970.
    pub at_micros: u64,
    /// What; never with row values.
    pub text: String,
}
