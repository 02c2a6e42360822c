//! Joins small batches and cuts large ones into payloads of about `write.append.bytes`.

use std::collections::VecDeque;
use std::sync::Arc;

use bigquery_write_proto::rows::{EncodedRows, MeasuredRows, Wire};
use tokio::time::Instant;

use crate::error::SinkError;

/// BigQuery still refuses more than 10 MiB here and there, although its documentation says 20 MB (write-api.md 4).
const LARGEST_REQUEST: usize = 10 << 20;

/// What a request holds besides rows: stream, offset, trace id. The writer schema comes on top, since any request may become the
/// first of a connection.
const ENVELOPE: usize = 64 << 10;

/// Where the writer schema is small, as it is but for tables of thousands of columns, rows get what is left of this.
const SCHEMA: usize = (512 << 10) - ENVELOPE;

/// So many tiny pieces in a row become one: alone, their headers and paddings would weigh more than their rows.
const MERGED: usize = 64;
/// Tiny is what this many of do not fill a request.
const TINY: usize = 4 * MERGED;

/// Into so many requests at least the window is parted that is filled by what is kept beside them.
const PARTS: usize = 8;

/// Converted rows that were not sent yet: less than one request's, and the batch that came last.
#[derive(Debug)]
pub(super) struct Coalescer {
    wire: Arc<Wire>,
    pieces: VecDeque<Piece>,
    /// Of all pieces.
    bytes: usize,
    /// Of memory beside that.
    kept: usize,
    /// Tiny pieces at the end.
    tiny: usize,
    target: usize,
    /// Most bytes of a request's rows.
    limit: usize,
    /// Most bytes of memory that are kept beside a request's rows, if they are more than one.
    most_kept: usize,
}

#[derive(Debug)]
struct Piece {
    rows: MeasuredRows,
    since: Instant,
}

/// Rows as one request carries them.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) rows: usize,
    pub(super) encoded: EncodedRows,
    /// The rows before that; they share their memory with the batches that they came with.
    pub(super) measured: Vec<MeasuredRows>,
}

/// Most bytes of a request's rows.
pub(super) fn largest(wire: &Wire) -> usize {
    let schema = wire.writer_schema().bytes().len();
    LARGEST_REQUEST.saturating_sub(ENVELOPE + schema.max(SCHEMA))
}

impl Coalescer {
    /// Payloads of about `target` bytes, and of no more than the largest request holds. `window` is what all of them may take in memory,
    /// of which what is kept beside one takes a part.
    pub(super) fn new(wire: Arc<Wire>, target: usize, window: usize) -> Self {
        let limit = largest(&wire);
        Self {
            wire,
            pieces: VecDeque::new(),
            bytes: 0,
            kept: 0,
            tiny: 0,
            target: target.min(limit),
            limit,
            most_kept: window / PARTS,
        }
    }

    /// Takes rows, at least one, none of them larger than a request may be.
    ///
    /// # Errors
    /// A broken promise of our own.
    pub(super) fn push(&mut self, rows: MeasuredRows) -> Result<(), SinkError> {
        let bytes = rows.bytes();
        self.bytes += bytes;
        self.kept += rows.kept_bytes();
        self.tiny = if bytes * TINY < self.target {
            self.tiny + 1
        } else {
            0
        };
        let since = Instant::now();
        self.pieces.push_back(Piece { rows, since });
        if self.tiny == MERGED { self.merge() } else { Ok(()) }
    }

    /// From now on payloads are no larger than that: a larger one was refused.
    pub(super) fn lower_target(&mut self, bytes: usize) {
        self.target = self.target.min(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a full request is waiting.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.target || self.kept > self.most_kept
    }

    /// Since when the oldest rows have been waiting.
    pub(super) fn since(&self) -> Option<Instant> {
        self.pieces.front().map(|piece| piece.since)
    }

    /// The next request's payload, if rows are waiting: a full one, or all there is.
    ///
    /// # Errors
    /// A broken promise of our own.
    pub(super) fn take(&mut self) -> Result<Option<Payload>, SinkError> {
        let taken = self.take_pieces();
        if taken.is_empty() {
            return Ok(None);
        }
        let encoded = self
            .wire
            .encode(&taken)
            .map_err(|error| SinkError::internal("rows could not be encoded").with_source(error))?;
        let (bytes, limit) = (encoded.bytes(), self.limit);
        if bytes > limit {
            return Err(SinkError::internal(format!(
                "rows of {bytes} bytes were joined where a request holds {limit}"
            )));
        }
        Ok(Some(Payload {
            rows: taken.iter().map(MeasuredRows::num_rows).sum(),
            encoded,
            measured: taken,
        }))
    }

    fn take_pieces(&mut self) -> Vec<MeasuredRows> {
        let mut taken = Vec::new();
        let (mut room, mut kept_room) = (self.target, self.most_kept);
        while let Some(Piece { rows, since }) = self.pieces.pop_front() {
            let bytes = rows.bytes();
            let kept = rows.kept_bytes();
            self.bytes -= bytes;
            self.kept -= kept;
            if bytes <= room && kept <= kept_room {
                room -= bytes;
                kept_room -= kept;
                taken.push(rows);
                continue;
            }
            // A row above the target goes alone.
            let first = usize::from(taken.is_empty());
            // Of what is kept, every row's share is the same.
            let of_row = kept.div_ceil(rows.num_rows());
            let fitting = kept_room.checked_div(of_row).unwrap_or(usize::MAX);
            let fitting = fitting.min(rows.fitting(room));
            let (fitting, rest) = rows.split_at(fitting.max(first));
            if fitting.num_rows() > 0 {
                taken.push(fitting);
            }
            if rest.num_rows() > 0 {
                self.bytes += rest.bytes();
                self.kept += rest.kept_bytes();
                self.pieces.push_front(Piece { rows: rest, since });
            }
            break;
        }
        self.tiny = self.tiny.min(self.pieces.len());
        taken
    }

    /// Makes one piece of the tiny ones at the end.
    fn merge(&mut self) -> Result<(), SinkError> {
        let tiny = self.pieces.split_off(self.pieces.len() - self.tiny);
        self.tiny = 0;
        let Some(since) = tiny.front().map(|piece| piece.since) else {
            return Ok(());
        };
        let rows: Vec<_> = tiny.into_iter().map(|piece| piece.rows).collect();
        self.bytes -= rows.iter().map(MeasuredRows::bytes).sum::<usize>();
        self.kept -= rows.iter().map(MeasuredRows::kept_bytes).sum::<usize>();
        let rows = self.wire.join(&rows).map_err(|error| {
            SinkError::internal("batches of one schema could not be joined").with_source(error)
        })?;
        let rows = rows.compact();
        self.bytes += rows.bytes();
        self.kept += rows.kept_bytes();
        self.pieces.push_back(Piece { rows, since });
        Ok(())
    }
}
