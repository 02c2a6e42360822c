//! The interface a host drives: the engine's contract (design.md section 6) in the engine's own words.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use bigquery_sink_state::{Epoch, RowCount, SubtaskIndex};
use bytes::Bytes;

use crate::error::SinkError;

/// One parallel instance of the sink. A host calls its methods one at a time.
///
/// Order of calls: `on_start` once; then any mix of `process_batch`, `handle_tick`, `handle_checkpoint` and `handle_commit`; then
/// `on_close` once, unless a method failed: after an error nothing more is called, and the host restarts from its newest completed checkpoint.
///
/// What a host must keep to: checkpoint N+1 is not declared complete before the commit of N is confirmed by *every* subtask;
/// `handle_commit(N)` is called only after checkpoint N is durable and declared complete; the commit of N may come after rows of N+1; the
/// commit of a restored checkpoint that was not confirmed is replayed, with the old subtasks' entries, to all new subtasks.
#[async_trait]
pub trait SinkOperator: Send {
    /// Takes the restored state, looks at the table, checks the columns. Creates no stream.
    async fn on_start(&mut self, restored: Option<Restored>) -> Result<(), SinkError>;

    /// Takes rows; waits while the window is full, which is the engine's backpressure.
    async fn process_batch(&mut self, batch: RecordBatch) -> Result<(), SinkError>;

    /// Sends what is buffered, waits for every acknowledgement, and says what checkpoint `barrier.epoch` holds. Publishes nothing.
    async fn handle_checkpoint(&mut self, barrier: Barrier) -> Result<Prepared, SinkError>;

    /// Publishes what checkpoint `epoch` covers. `commits` holds the entries of *all* subtasks that took part in that checkpoint, which after a
    /// restore with another parallelism are not ours by index: entry `i` is flushed by subtask `i % parallelism`. May be called
    /// again for the same epoch, also after it succeeded in part or whole: it changes nothing then.
    async fn handle_commit(
        &mut self,
        epoch: Epoch,
        commits: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<Committed, SinkError>;

    /// Called now and then (about once a second) so that a failure of the sink's own task shows without new rows.
    async fn handle_tick(&mut self) -> Result<(), SinkError>;

    /// Ends this instance; see [`CloseReason`] for what is published.
    async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError>;
}

/// Which instance this is.
#[derive(Clone, Debug)]
pub struct Task {
    /// This instance's index, below `parallelism`.
    pub subtask: SubtaskIndex,
    /// Number of instances.
    pub parallelism: u32,
    /// Wall clock in µs since 1970 at the start of this attempt; larger for every attempt (see `Incarnation`).
    pub started_at_micros: u64,
    /// Name of the sink in metrics and logs: the table's name in the pipeline.
    pub operator_name: String,
    /// The operator's number in the pipeline's graph, for metrics.
    pub node_id: u32,
}

/// What a restore brings: the union of all old subtasks' states of the newest *completed* checkpoint.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The checkpoint restored from.
    pub epoch: Epoch,
    /// State bytes by old subtask.
    pub states: BTreeMap<SubtaskIndex, Bytes>,
    /// Whether the commit of that checkpoint will be replayed.
    pub replay: CommitReplay,
}

/// What the host knows about the commit of the restored checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitReplay {
    /// It was not confirmed: `handle_commit` will come with the old subtasks' entries.
    Expected,
    /// It was confirmed: no replay comes.
    Confirmed,
    /// The host cannot tell (Arroyo): a replay may come.
    Unknown,
}

/// The call to prepare a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Number of the checkpoint.
    pub epoch: Epoch,
    /// No rows follow; the commit still does.
    pub then_stop: bool,
}

/// One subtask's part of a checkpoint, opaque to the host. Both are to be made durable, also when they tell of no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// State for a restore ("what did this subtask have on which stream").
    pub state: Bytes,
    /// Entry of this subtask for `handle_commit` ("what becomes visible").
    pub commit: Bytes,
    /// Rows that become visible with this entry, or are visible already where the sink writes at least once.
    pub rows: RowCount,
    /// Those of `rows` that the dead-letter table gets.
    pub dead_letters: RowCount,
}

/// A confirmed commit: every row of this subtask's share of the entries is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Rows named by the entries this subtask flushed; where the sink writes at least once, those it prepared.
    pub rows: RowCount,
}

/// Why an instance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// All input ended and the host takes no final checkpoint (Arroyo): drain and publish what is pending. At-least-once from there on.
    EndOfData,
    /// A stop; rows since the last checkpoint are read again. Publishes nothing.
    Stop,
    /// A failure elsewhere. Publishes nothing.
    Interrupted,
}
