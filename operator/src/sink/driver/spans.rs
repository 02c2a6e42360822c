//! What the driver does as tracing spans: one for each epoch from its first rows to its commit, and within it one for each request and each
//! flush. They name streams, offsets and sizes, never a row's values.

use std::collections::BTreeMap;

use bigquery_sink_state::{Epoch, FlushOffset, NextOffset, RowCount, StreamName, SubtaskIndex};
use tracing::field::{Empty, display};
use tracing::{Span, debug_span, info_span};

/// The spans of epochs that are not over.
#[derive(Debug)]
pub(super) struct Spans {
    subtask: SubtaskIndex,
    /// What no barrier has ended.
    open: Span,
    /// What waits for its commit.
    prepared: BTreeMap<Epoch, Span>,
    /// What is being published.
    committing: Option<Epoch>,
}

impl Spans {
    pub(super) fn new(subtask: SubtaskIndex) -> Self {
        Self {
            subtask,
            open: epoch(subtask),
            prepared: BTreeMap::new(),
            committing: None,
        }
    }

    /// A request on its way, until its answer.
    pub(super) fn append(
        &self,
        stream: &StreamName,
        offset: Option<NextOffset>,
        rows: RowCount,
        bytes: u64,
    ) -> Span {
        let span = debug_span!(parent: &self.open, "append", %stream, offset = Empty, rows = rows.0, bytes, result = Empty);
        if let Some(offset) = offset {
            span.record("offset", offset.0);
        }
        span
    }

    /// A call of FlushRows, until its end. A commit of an earlier life has no epoch here.
    pub(super) fn flush(&self, stream: &StreamName, offset: FlushOffset) -> Span {
        let epoch = match self.committing {
            None => Some(&self.open),
            Some(epoch) => self.prepared.get(&epoch),
        };
        let parent = epoch.and_then(Span::id);
        debug_span!(parent: parent, "flush", %stream, offset = offset.0, rows = Empty, result = Empty)
    }

    pub(super) fn prepared(&mut self, number: Epoch, rows: RowCount) {
        let span = std::mem::replace(&mut self.open, epoch(self.subtask));
        span.record("epoch", display(number)).record("rows", rows.0);
        self.prepared.insert(number, span);
    }

    pub(super) fn committing(&mut self, epoch: Epoch) {
        self.committing = Some(epoch);
    }

    pub(super) fn committed(&mut self, epoch: Epoch) {
        self.prepared.retain(|prepared, _| *prepared > epoch);
        self.committing = None;
    }
}

fn epoch(subtask: SubtaskIndex) -> Span {
    info_span!("epoch", %subtask, epoch = Empty, rows = Empty)
}
