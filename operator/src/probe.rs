//! Moments at which a crash test may stop the sink's own task: before and after each command of the core.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use bigquery_sink_state::{Command, SubtaskIndex};

/// A handle that is asked at every moment; by default nobody asks.
///
/// Where the answer is true the task stands still for ever, as if the process had been killed there.
#[derive(Clone, Default)]
pub struct Probe(Option<Arc<Ask>>);

type Ask = dyn Fn(SubtaskIndex, Moment) -> bool + Send + Sync;

/// Before or after a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// The core has asked for it, nothing is done.
    Before(CommandKind),
    /// It is handed over: sent, answered, or dropped. What the server makes of it may still be open.
    After(CommandKind),
}

/// What the core asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandKind {
    /// Create a stream.
    CreateStream,
    /// Open an append call.
    Connect,
    /// End an append call.
    Disconnect,
    /// Send a request.
    Append,
    /// Drop an acknowledged request.
    Release,
    /// Take bad rows out of a request.
    RemoveRows,
    /// Cut a request in two. Not in [`Self::ALL`]: no request is too large but where a test makes BigQuery take less.
    Split,
    /// Hand a checkpoint's part to the host.
    Prepared,
    /// Publish rows.
    Flush,
    /// Tell the host that its commit is done.
    Committed,
    /// Tell the host that everything is published at the end of data.
    Closed,
    /// Get another token.
    RefreshCredentials,
    /// Count or log something.
    Notice,
    /// End the task with an error.
    Fail,
}

impl Probe {
    /// Asks `ask` at every moment of every subtask that shares this handle.
    pub fn new(ask: impl Fn(SubtaskIndex, Moment) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Returns, or stands still.
    pub(crate) async fn pass(&self, subtask: SubtaskIndex, moment: Moment) {
        if self.0.as_ref().is_some_and(|ask| ask(subtask, moment)) {
            pending::<()>().await;
        }
    }
}

impl CommandKind {
    /// Every kind that a run can come by.
    pub const ALL: [Self; 13] = [
        Self::CreateStream,
        Self::Connect,
        Self::Disconnect,
        Self::Append,
        Self::Release,
        Self::RemoveRows,
        Self::Prepared,
        Self::Flush,
        Self::Committed,
        Self::Closed,
        Self::RefreshCredentials,
        Self::Notice,
        Self::Fail,
    ];

    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::CreateStream { .. } => Self::CreateStream,
            Command::Connect { .. } => Self::Connect,
            Command::Disconnect { .. } => Self::Disconnect,
            Command::Append { .. } => Self::Append,
            Command::Release { .. } => Self::Release,
            Command::RemoveRows { .. } => Self::RemoveRows,
            Command::Split { .. } => Self::Split,
            Command::Prepared { .. } => Self::Prepared,
            Command::Flush { .. } => Self::Flush,
            Command::Committed { .. } => Self::Committed,
            Command::Closed => Self::Closed,
            Command::RefreshCredentials => Self::RefreshCredentials,
            Command::Notice(_) => Self::Notice,
            Command::Fail(_) => Self::Fail,
        }
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Probe(asked)"
        } else {
            "Probe(none)"
        })
    }
}
