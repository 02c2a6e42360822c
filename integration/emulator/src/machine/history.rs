//! The history of what became visible: the hook on which a test hangs its oracle.

use std::collections::VecDeque;
use std::fmt;

use crate::catalog::{Millis, TableRef};
use crate::faults::Rpc;

/// Rows became visible, or were changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// When, by the emulator's clock.
    pub at_ms: Millis,
    /// Where.
    pub table: TableRef,
    /// The application stream's full name; `None` for the default stream and for rows inserted by REST.
    pub stream: Option<String>,
    /// They are changes by primary key, not rows: they are counted as they came, and what of them is visible depends on
    /// their ranks.
    pub changes: bool,
    /// First row: its offset in the stream, or without a stream its place in the table. Of changes, how many the table
    /// had taken before; a data directory that is opened again may remember fewer.
    pub from: u64,
    /// One past the last row, or change.
    pub to: u64,
}

/// What became visible, in order: the newest [`VisibilityLog::LIMIT`] entries, and every one to the observer.
#[derive(Default)]
pub struct VisibilityLog {
    entries: VecDeque<Visibility>,
    dropped: u64,
    observer: Option<Observer>,
}

/// Is told of each change.
type Observer = Box<dyn FnMut(&Visibility) + Send>;

impl VisibilityLog {
    /// Entries kept.
    pub const LIMIT: usize = 100_000;

    /// The entries kept, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Visibility> {
        self.entries.iter()
    }

    /// How many older entries are no longer kept.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Calls `observer` at each change from now on, at the very moment at which rows become visible and before
    /// the answer leaves. It must be quick and must not call back into the emulator.
    pub fn observe(&mut self, observer: impl FnMut(&Visibility) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    pub(crate) fn record(&mut self, change: Visibility) {
        if change.from == change.to {
            return;
        }
        if let Some(observer) = &mut self.observer {
            observer(&change);
        }
        if self.entries.len() == Self::LIMIT {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(change);
    }
}

impl fmt::Debug for VisibilityLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibilityLog")
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

/// A call that came in; an `AppendRows` call with its first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When.
    pub at_ms: Millis,
    /// Which.
    pub rpc: Rpc,
    /// The table or stream it names, as it came.
    pub target: String,
    /// `authorization`, as it came.
    pub authorization: Option<String>,
    /// `x-goog-request-params`, as it came.
    pub routing: Option<String>,
    /// `trace_id` of an append.
    pub trace_id: String,
    /// As in [`CallMeta::transport`](super::CallMeta::transport).
    pub transport: u64,
}

/// The newest [`CallLog::LIMIT`] calls.
#[derive(Debug, Default)]
pub struct CallLog {
    calls: VecDeque<Call>,
}

impl CallLog {
    /// Calls kept.
    pub const LIMIT: usize = 1000;

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }

    pub(super) fn record(&mut self, call: Call) {
        if self.calls.len() == Self::LIMIT {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }
}

/// A request and its answer, as a person reads them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Exchange {
    /// When.
    pub at_ms: Millis,
    /// Which call.
    pub rpc: Rpc,
    /// The table or stream it is about.
    pub target: String,
    /// What was asked beside that.
    pub request: String,
    /// What was answered.
    pub answer: String,
    /// The answer is an error.
    pub refused: bool,
    /// As in [`CallMeta::transport`](super::CallMeta::transport).
    #[serde(skip)]
    pub transport: u64,
}

type ExchangeObserver = Box<dyn FnMut(&Exchange) + Send>;

/// The newest exchanges, and every one to the observer.
#[derive(Default)]
pub(super) struct Exchanges {
    kept: VecDeque<Exchange>,
    observer: Option<ExchangeObserver>,
}

impl Exchanges {
    const LIMIT: usize = 200;

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Exchange> {
        self.kept.iter()
    }

    pub(super) fn observe(&mut self, observer: impl FnMut(&Exchange) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    pub(super) fn record(&mut self, exchange: Exchange) {
        if let Some(observer) = &mut self.observer {
            observer(&exchange);
        }
        if self.kept.len() == Self::LIMIT {
            self.kept.pop_front();
        }
        self.kept.push_back(exchange);
    }
}

impl fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchanges")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}
