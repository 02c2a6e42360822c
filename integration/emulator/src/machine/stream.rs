//! One write stream: its end, what of it is visible, and the rows held back (write-api.md 2).

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use bigquery_write_proto::wire::write_stream::Type;
use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;
use super::names::Target;
use super::switches::Switches;
use crate::catalog::Millis;
use crate::schema::{Schema, conform};

/// Kind of an application-created stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StreamKind {
    /// Visible when appended.
    Committed,
    /// Visible when flushed.
    Buffered,
    /// Visible when committed.
    Pending,
}

/// An application-created stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stream {
    pub(super) target: Target,
    pub(super) table_id: u64,
    pub(super) kind: StreamKind,
    pub(super) created_ms: Millis,
    pub(super) traffic_ms: Millis,
    pub(super) end: u64,
    /// Rows 0..visible have been published.
    pub(super) visible: u64,
    pub(super) finalized: bool,
    /// When, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finalized_ms: Option<Millis>,
    pub(super) committed_ms: Option<Millis>,
    /// Rows visible..end.
    #[serde(skip)]
    held: VecDeque<Held>,
}

/// Rows, and when their partition begins, of a table that is partitioned by the time of ingestion.
pub(super) type Held = (RecordBatch, Option<Millis>);

/// A stream as the handle and the pages show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamInfo {
    /// Full name.
    pub name: String,
    /// Kind.
    pub kind: StreamKind,
    /// Rows accepted: the offset at which the next append goes.
    pub end: u64,
    /// Rows visible. For a BUFFERED stream, one more than the offset flushed last.
    pub flushed: u64,
    /// No more appends or flushes.
    pub finalized: bool,
    /// A PENDING stream that was committed.
    pub committed: bool,
    /// An `AppendRows` call is open on it.
    pub connected: bool,
    /// When it was created.
    pub created_ms: Millis,
    /// When it had traffic last.
    pub traffic_ms: Millis,
}

impl StreamKind {
    pub(super) fn from_wire(kind: Type) -> Option<Self> {
        match kind {
            Type::Committed => Some(Self::Committed),
            Type::Buffered => Some(Self::Buffered),
            Type::Pending => Some(Self::Pending),
            Type::Unspecified => None,
        }
    }

    pub(super) fn to_wire(self) -> Type {
        match self {
            Self::Committed => Type::Committed,
            Self::Buffered => Type::Buffered,
            Self::Pending => Type::Pending,
        }
    }
}

impl Stream {
    pub(super) fn new(target: Target, table_id: u64, kind: StreamKind, now: Millis) -> Self {
        Self {
            target,
            table_id,
            kind,
            created_ms: now,
            traffic_ms: now,
            end: 0,
            visible: 0,
            finalized: false,
            finalized_ms: None,
            committed_ms: None,
            held: VecDeque::new(),
        }
    }

    /// Its description alone, as if the rows held back had not come yet.
    pub(super) fn without_rows(&self) -> Self {
        Self {
            target: self.target.clone(),
            end: self.visible,
            held: VecDeque::new(),
            ..*self
        }
    }

    /// The rows held back, oldest first.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    pub(super) fn expired(&self, switches: &Switches, now: Millis) -> bool {
        let life = match self.kind {
            StreamKind::Committed => switches.committed_ttl_ms,
            StreamKind::Buffered => switches.buffered_ttl_ms,
            StreamKind::Pending => switches.pending_ttl_ms,
        };
        let from_creation = self.kind == StreamKind::Pending && switches.pending_ttl_from_creation;
        let since = if from_creation {
            self.created_ms
        } else {
            self.traffic_ms
        };
        let idle = now.saturating_sub(since) > life && switches.keeps(Behaviour::StreamsExpire);
        idle || self.held_too_long(switches, now)
    }

    /// write-api.md 2: a PENDING stream that is finalized waits only some hours for its commit.
    fn held_too_long(&self, switches: &Switches, now: Millis) -> bool {
        let waits = self.kind == StreamKind::Pending && self.committed_ms.is_none();
        let since = self.finalized_ms.filter(|_| waits);
        since.is_some_and(|since| now.saturating_sub(since) > switches.pending_finalized_ttl_ms)
            && switches.keeps(Behaviour::FinalizedPendingExpires)
    }

    /// It takes no more rows.
    pub(super) fn finalize(&mut self, now: Millis) {
        self.finalized = true;
        self.finalized_ms = Some(now);
    }

    /// Takes rows at the end.
    pub(super) fn hold(&mut self, rows: RecordBatch, partition: Option<Millis>) {
        self.end += rows.num_rows() as u64;
        self.held.push_back((rows, partition));
    }

    /// Counts rows at the end that are not kept.
    pub(super) fn pass(&mut self, rows: u64) {
        self.end += rows;
    }

    /// Makes rows up to `to` (exclusive, at most the end) visible and hands them out; each row once.
    pub(super) fn publish(&mut self, to: u64) -> Vec<Held> {
        let mut published = Vec::new();
        while self.visible < to.min(self.end) {
            let Some((batch, partition)) = self.held.pop_front() else {
                // Those not kept.
                self.visible = to.min(self.end);
                break;
            };
            let wanted = usize::try_from(to - self.visible)
                .unwrap_or(usize::MAX)
                .min(batch.num_rows());
            if wanted < batch.num_rows() {
                let rest = batch.slice(wanted, batch.num_rows() - wanted);
                self.held.push_front((rest, partition));
            }
            self.visible += wanted as u64;
            published.push((batch.slice(0, wanted), partition));
        }
        published
    }

    /// Whether the rows held back can take these columns.
    pub(super) fn takes(&self, schema: &Schema) -> bool {
        self.held.iter().all(|(rows, _)| conform(rows, schema).is_ok())
    }

    /// Whether the rows held back have these columns.
    pub(super) fn fits(&self, schema: &Schema) -> bool {
        self.held.iter().all(|(rows, _)| rows.schema() == schema.arrow())
    }

    /// Gives the rows held back the columns of their table.
    pub(super) fn conform(&mut self, schema: &Schema) -> Result<(), String> {
        for (rows, _) in &mut self.held {
            *rows = conform(rows, schema).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(super) fn info(&self, connected: bool) -> StreamInfo {
        StreamInfo {
            name: self.target.name.clone(),
            kind: self.kind,
            end: self.end,
            flushed: self.visible,
            finalized: self.finalized,
            committed: self.committed_ms.is_some(),
            connected,
            created_ms: self.created_ms,
            traffic_ms: self.traffic_ms,
        }
    }
}
