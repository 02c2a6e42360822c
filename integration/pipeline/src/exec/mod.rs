//! Runs the query: one subtask each with its own input and sink, one bounded execution of the plan an epoch.

mod column;
mod input;
mod query;
mod subtask;

use bigquery_sink::{Epoch, Prepared, RowCount, SinkError};

pub(crate) use input::{EpochInput, Item, input_table};
pub(crate) use query::Query;
pub(crate) use subtask::{Command, Subtask};

use crate::sources::{SourceError, SourceSnapshot};

/// What subtasks and readers tell the coordinator.
#[derive(Debug)]
pub(crate) enum Event {
    /// A sink has started.
    Started { subtask: usize },
    /// A sink has prepared its part of a checkpoint.
    Prepared {
        subtask: usize,
        epoch: Epoch,
        prepared: Prepared,
    },
    /// A sink has published its share of a checkpoint.
    Committed {
        subtask: usize,
        epoch: Epoch,
        rows: RowCount,
    },
    /// A reader has passed a barrier.
    Snapshot { reader: usize, snapshot: SourceSnapshot },
    /// A reader has nothing left to read.
    SourceEnded { reader: usize },
}

/// Why a task ended early.
#[derive(Debug)]
pub(crate) enum TaskError {
    Sink(SinkError),
    Source(SourceError),
    Query(QueryError),
    /// The coordinator or a reader went away first; its own error is the one to show.
    Orphaned,
}

/// The query failed on rows. The text holds no values.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A NOT NULL column of the sink got a null.
    #[error(
        "column {column} of the sink is NOT NULL but the query gave a null; filter such rows out, or use coalesce()"
    )]
    NullInRequired {
        /// The column.
        column: String,
    },
    /// An expression that makes a column failed.
    #[error("column {column}: the query failed on a row: {reason}")]
    FailedInColumn {
        /// The column, as the SELECT names it.
        column: String,
        /// What kind of failure, and what to do.
        reason: String,
    },
    /// The query ended although its input had not; a plan like that is refused when it is read.
    #[error(
        "the query does not read its source to the end; write it so that every row of the source is looked at"
    )]
    InputNotRead,
    /// An expression failed.
    #[error("the query failed on a row: {reason}")]
    Failed {
        /// What kind of failure, and what to do.
        reason: String,
    },
}
