//! What goes into the core and what comes out: plain data, so that a test can compare it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::checkpoint::{CommitList, RestoredUnion, SubtaskState};
use crate::fault::{Fault, RowFault};
use crate::ids::{
    BatchId, Epoch, FlushId, FlushOffset, Generation, Lane, Micros, NextOffset, RequestNumber, RowCount,
    StreamName, SubtaskIndex,
};
use crate::mutant::Mutation;

/// What one subtask's core must know from the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoreConfig {
    /// The table, as `projects/p/datasets/d/tables/t`.
    pub table: String,
    /// This subtask.
    pub subtask: SubtaskIndex,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Streams written to the table side by side, at least one. With [`RowErrorPolicy::DeadLetter`] there is one more lane, the last one,
    /// for the stream of dead letters.
    pub streams: usize,
    /// `row_errors`.
    pub row_errors: RowErrorPolicy,
    /// Wall clock at the start of this attempt: the incarnation, unless a restored one is larger.
    pub started_at: Micros,
    /// Bounds of every wait and queue (invariant 13).
    pub limits: Limits,
    /// A mistake to be made on purpose; none in a normal build.
    pub mutation: Mutation,
}

/// Bounds; each is an option of design.md section 9.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// `write.append.bytes`: size of a full request.
    pub append_bytes: u64,
    /// `write.inflight.bytes`, over all streams of the subtask.
    pub inflight_bytes: u64,
    /// `write.inflight.requests`, over all streams of the subtask.
    pub inflight_requests: usize,
    /// `write.inflight.time`: what the measured rate of acknowledgements drains in this time.
    pub inflight_time: Duration,
    /// `append.timeout`: longest time without progress of an append.
    pub append_timeout: Duration,
    /// `commit.timeout`: longest time for one commit.
    pub commit_timeout: Duration,
    /// `quota.timeout`: longest time without progress while quotas are used up.
    pub quota_timeout: Duration,
    /// Longest time during which BigQuery may say that the table is not there, or does not let us in, before that is believed: minutes
    /// for a table made just now (write-api.md 3.4).
    pub unknown_table: Duration,
    /// `commit.unprovable`.
    pub unprovable: Unprovable,
}

/// What to do about a commit that cannot be shown to be visible (invariant 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unprovable {
    /// Stop the job.
    Fail,
    /// Count it as done: the operator has looked.
    AssumeVisible,
    /// Count its rows as lost and go on.
    AcceptLoss,
}

/// What to do about rows that BigQuery refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowErrorPolicy {
    /// Stop the job.
    Fail,
    /// Take them out of their request and write them to the dead-letter table, inside the same checkpoint and commit.
    DeadLetter,
}

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The table of the job.
    Table,
    /// The dead-letter table.
    DeadLetters,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The host restored a completed checkpoint; at most once, before anything else.
    Restored {
        /// All old subtasks' states.
        union: RestoredUnion,
        /// Whether its commit will be replayed.
        replay: Replay,
    },
    /// A payload for one append; only while [`crate::Core::has_room`]. Those for the table come only while no barrier is open. Those for
    /// the dead-letter table hold rows that are owed, come before others for which there is room, and are due while
    /// [`crate::Core::wants_dead_letters`].
    Batch {
        /// Where it goes.
        destination: Destination,
        /// Its number; never used twice.
        id: BatchId,
        /// Its rows, at least one.
        rows: RowCount,
        /// Its size on the wire.
        bytes: u64,
    },
    /// Rows that the sink itself refused before they were part of a payload: as many dead letters are owed from now on. Only while no barrier
    /// is open.
    RowsRefused {
        /// How many, at least one.
        rows: RowCount,
    },
    /// Bad rows were taken out of a payload, as `RemoveRows` asked; the rest is encoded anew under the same number.
    RowsRemoved {
        /// Which payload.
        batch: BatchId,
        /// Rows left in it; without any it is released and never sent.
        rows: RowCount,
        /// Its size on the wire now.
        bytes: u64,
        /// Dead letters owed for the rows taken out, one for each.
        dead_letters: RowCount,
    },
    /// A payload was cut in two, as `Split` asked: its first rows keep its number.
    BatchSplit {
        /// Which payload.
        batch: BatchId,
        /// Rows left in it, at least one.
        rows: RowCount,
        /// Its size on the wire now.
        bytes: u64,
        /// The payload of its other rows, at least one: a number never used before.
        rest: BatchId,
        /// That one's size on the wire.
        rest_bytes: u64,
    },
    /// The host's barrier: everything before it is handed over, but for dead letters that are owed.
    Barrier {
        /// Number of the checkpoint.
        epoch: Epoch,
    },
    /// A stream was created for a lane.
    StreamCreated {
        /// Where it belongs.
        lane: Lane,
        /// Its name.
        stream: StreamName,
    },
    /// A stream could not be created.
    CreateFailed {
        /// Where it would have belonged.
        lane: Lane,
        /// Why.
        fault: Fault,
    },
    /// The server took a request.
    AppendAcked {
        /// The connection the answer came on.
        connection: Generation,
        /// The request, by the order of answers.
        request: RequestNumber,
        /// The offset of its first row, as answered.
        offset: Option<u64>,
    },
    /// The server refused a request in-band.
    AppendFailed {
        /// The connection the answer came on.
        connection: Generation,
        /// The request, by the order of answers.
        request: RequestNumber,
        /// The refusal.
        fault: Fault,
    },
    /// The AppendRows call ended.
    ConnectionLost {
        /// Which.
        connection: Generation,
        /// Its status; code `Ok` for an end without error.
        fault: Fault,
    },
    /// Time has passed.
    Tick,
    /// The host declared the checkpoint complete and says commit; entries of *all* subtasks that took part in it.
    Commit {
        /// The checkpoint.
        epoch: Epoch,
        /// Commit lists by (old) subtask.
        entries: BTreeMap<SubtaskIndex, CommitList>,
    },
    /// A flush was answered.
    FlushDone {
        /// Which.
        flush: FlushId,
        /// The offset in the answer.
        offset: i64,
    },
    /// A flush failed.
    FlushFailed {
        /// Which.
        flush: FlushId,
        /// Why.
        fault: Fault,
    },
    /// All input ended and no further checkpoint comes: publish what is pending (invariant 1's exception).
    EndOfData,
}

/// What the host knows about the commit of the restored checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replay {
    /// It will come.
    Expected,
    /// It was confirmed before; none comes.
    Confirmed,
    /// It may come.
    Unknown,
}

/// What to do. `CreateStream` and `Flush` are asked for by [`crate::Core`] alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// CreateWriteStream, type BUFFERED; answered by `StreamCreated` or `CreateFailed`.
    CreateStream {
        /// For which lane.
        lane: Lane,
        /// Of which table.
        destination: Destination,
    },
    /// Open an AppendRows call.
    Connect {
        /// Number of the connection.
        connection: Generation,
        /// The stream.
        stream: StreamName,
    },
    /// End an AppendRows call; nothing more is heard of it.
    Disconnect {
        /// Which.
        connection: Generation,
    },
    /// Send a payload on a connection.
    Append {
        /// Where.
        connection: Generation,
        /// Number of the request.
        request: RequestNumber,
        /// Offset of its first row; none for a default stream, which takes none.
        offset: Option<NextOffset>,
        /// The payload.
        batch: BatchId,
    },
    /// The payload is acknowledged, or has no rows left, and can be dropped.
    Release {
        /// Which.
        batch: BatchId,
    },
    /// Take bad rows out of a payload that is not under way, and keep them as dead letters; answered by `RowsRemoved`. The payload is not
    /// sent before.
    RemoveRows {
        /// Which payload.
        batch: BatchId,
        /// The rows, at least one: within the payload, by ascending index, each once.
        rows: Vec<RowFault>,
    },
    /// Cut a payload in two, since BigQuery refused it as too large; answered by `BatchSplit`. The payload is not sent before.
    Split {
        /// Which payload; it has two rows at least.
        batch: BatchId,
    },
    /// The checkpoint's part of this subtask, to be made durable before commit.
    Prepared {
        /// The checkpoint.
        epoch: Epoch,
        /// State.
        state: SubtaskState,
        /// Commit list.
        commit: CommitList,
        /// Rows acknowledged since the checkpoint before; visible with the commit, or already on a default stream.
        rows: RowCount,
    },
    /// FlushRows; answered by `FlushDone` or `FlushFailed`.
    Flush {
        /// Number of the flush, the same for every attempt.
        flush: FlushId,
        /// The stream.
        stream: StreamName,
        /// Last row to publish, inclusive.
        offset: FlushOffset,
    },
    /// This subtask's share of the commit is visible.
    Committed {
        /// The checkpoint.
        epoch: Epoch,
        /// Rows its entries name; on a default stream, which has none, those that were acknowledged for the checkpoint.
        rows: RowCount,
    },
    /// Everything pending at the end of data is visible.
    Closed,
    /// Drop the token in use and get another.
    RefreshCredentials,
    /// Something an operator may want to count or log; the work goes on.
    Notice(Notice),
    /// The subtask has failed; nothing more is done.
    Fail(Failure),
}

/// Events that are normal life or accepted by the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A connection ended and will be opened again when there are rows.
    Reconnect {
        /// Why.
        fault: Fault,
    },
    /// A request is sent again.
    Retry {
        /// Why.
        fault: Fault,
        /// After this pause.
        pause: Duration,
    },
    /// Our own resend met its rows (invariant 5).
    OwnResendStored,
    /// An answer behind an unresolved failed request was an echo (invariant 6).
    EchoDiscarded,
    /// An answer or loss of an older connection was dropped (invariant 8).
    StaleAnswerDropped,
    /// A stream was left; what it holds up to `flushable` will be published (invariant 7).
    StreamLeft {
        /// The stream.
        stream: StreamName,
        /// Exclusive end of what is published of it.
        flushable: NextOffset,
        /// Why.
        reason: LeaveReason,
    },
    /// BigQuery refused a request as too large; it is cut in two.
    RequestTooLarge {
        /// Its size on the wire.
        bytes: u64,
        /// The refusal.
        fault: Fault,
    },
    /// BigQuery refused rows of a request; they become dead letters.
    RowsRejected {
        /// The stream they were sent to.
        stream: StreamName,
        /// How many.
        rows: RowCount,
    },
    /// A flush had been done before.
    AlreadyFlushed,
    /// A commit that cannot be shown to be visible was accepted by `commit.unprovable`.
    UnprovableAccepted {
        /// The stream.
        stream: StreamName,
        /// The checkpoint, if the flush belonged to one.
        epoch: Option<Epoch>,
        /// Its rows.
        rows: RowCount,
        /// Whether they count as lost.
        lost: bool,
    },
}

/// Why a stream is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaveReason {
    /// It was idle for days, and BigQuery drops idle streams.
    Idle,
    /// It is gone and owed nothing.
    Gone(Fault),
    /// Rows that are not ours stand at its end.
    ForeignRows(Fault),
    /// Rows were refused while it is not known what became of requests on it.
    InDoubt,
}

/// Why a subtask has failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Whose fault it is and whether a restart helps.
    pub kind: FailureKind,
    /// What happened, where, and what to do.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// A fault outside; the job restarts from its newest completed checkpoint.
    Restart,
    /// A person has to change the pipeline, the table or a permission.
    User,
    /// A commit cannot be shown to be visible (invariant 11): only an operator can decide.
    Unprovable,
    /// The host broke the order of calls, or brought state that cannot be.
    Host,
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("it was idle for days, and BigQuery drops idle streams"),
            Self::Gone(fault) => write!(f, "it is gone and owed nothing ({fault})"),
            Self::ForeignRows(fault) => write!(f, "rows that are not ours stand at its end ({fault})"),
            Self::InDoubt => {
                f.write_str("rows were refused while it is not known what became of requests on it")
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
