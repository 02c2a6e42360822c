//! Joins small batches and cuts large ones into payloads of about `write.append.bytes`.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use bigquery_write_proto::rows::{RowEncoder, batch_bytes};
use bytes::Bytes;
use tokio::time::Instant;

use crate::error::SinkError;

/// BigQuery still refuses more than 10 MiB here and there, although its documentation says 20 MB (write-api.md 4).
const LARGEST_REQUEST: usize = 19 << 19;

/// So many tiny pieces in a row become one: alone, their headers and paddings would weigh more than their rows.
const MERGED: usize = 64;
/// Tiny is what this many of do not fill a request.
const TINY: usize = 4 * MERGED;

/// Converted rows that were not sent yet: less than one request's, and the batch that came last.
#[derive(Debug)]
pub(super) struct Coalescer {
    schema: SchemaRef,
    pieces: VecDeque<Piece>,
    /// Of all pieces.
    bytes: usize,
    /// Tiny pieces at the end.
    tiny: usize,
    target: usize,
    /// What a message takes besides its rows.
    overhead: usize,
}

#[derive(Debug)]
struct Piece {
    rows: RecordBatch,
    /// Bytes in a message, without the message's overhead.
    bytes: usize,
    since: Instant,
}

/// Rows as one request carries them.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) rows: usize,
    pub(super) message: Bytes,
}

impl Coalescer {
    /// For rows under the schema, in payloads of about `target` bytes.
    pub(super) fn new(schema: SchemaRef, target: usize) -> Self {
        Self {
            overhead: batch_bytes(&RecordBatch::new_empty(SchemaRef::clone(&schema))),
            schema,
            pieces: VecDeque::new(),
            bytes: 0,
            tiny: 0,
            target,
        }
    }

    /// Takes rows, at least one.
    ///
    /// # Errors
    /// A broken promise of our own.
    pub(super) fn push(&mut self, rows: RecordBatch) -> Result<(), SinkError> {
        let piece = self.piece(rows, Instant::now());
        self.bytes += piece.bytes;
        self.tiny = if piece.bytes * TINY < self.target {
            self.tiny + 1
        } else {
            0
        };
        self.pieces.push_back(piece);
        if self.tiny == MERGED { self.merge() } else { Ok(()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a full request is waiting.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.target
    }

    /// Since when the oldest rows have been waiting.
    pub(super) fn since(&self) -> Option<Instant> {
        self.pieces.front().map(|piece| piece.since)
    }

    /// The next request's payload, if rows are waiting: a full one, or all there is.
    ///
    /// # Errors
    /// A single row that is larger than a request may be.
    pub(super) fn take(&mut self, encoder: &RowEncoder) -> Result<Option<Payload>, SinkError> {
        let taken = self.take_pieces();
        let rows = match taken.as_slice() {
            [] => return Ok(None),
            [single] => single.clone(),
            several => self.joined(several)?,
        };
        let message = encoder
            .encode(&rows)
            .map_err(|error| SinkError::internal("rows could not be encoded").with_source(error))?;
        if message.len() > LARGEST_REQUEST {
            return Err(SinkError::user(format!(
                "a row takes {} bytes, more than the {LARGEST_REQUEST} bytes of the largest request; shorten its values",
                message.len()
            )));
        }
        Ok(Some(Payload {
            rows: rows.num_rows(),
            message,
        }))
    }

    fn take_pieces(&mut self) -> Vec<RecordBatch> {
        let mut taken = Vec::new();
        let mut room = self.target;
        while let Some(piece) = self.pieces.pop_front() {
            if piece.bytes <= room {
                room -= piece.bytes;
                self.bytes -= piece.bytes;
                taken.push(piece.rows);
                continue;
            }
            let (rows, since) = (piece.rows, piece.since);
            let first = usize::from(taken.is_empty());
            let fitting = self.fitting(&rows, room).max(first);
            self.bytes -= piece.bytes;
            if fitting > 0 {
                taken.push(rows.slice(0, fitting));
            }
            if fitting < rows.num_rows() {
                let rest = self.piece(rows.slice(fitting, rows.num_rows() - fitting), since);
                self.bytes += rest.bytes;
                self.pieces.push_front(rest);
            }
            break;
        }
        self.tiny = self.tiny.min(self.pieces.len());
        taken
    }

    /// How many of the first rows take at most `room` bytes, where all of them take more. Rows differ in size, so it is measured.
    fn fitting(&self, rows: &RecordBatch, room: usize) -> usize {
        let (mut fits, mut too_many) = (0, rows.num_rows());
        while too_many - fits > 1 {
            let middle = usize::midpoint(fits, too_many);
            if batch_bytes(&rows.slice(0, middle)) <= room + self.overhead {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits
    }

    /// Makes one piece of the tiny ones at the end.
    fn merge(&mut self) -> Result<(), SinkError> {
        let tiny = self.pieces.split_off(self.pieces.len() - self.tiny);
        self.tiny = 0;
        let Some(since) = tiny.front().map(|piece| piece.since) else {
            return Ok(());
        };
        self.bytes -= tiny.iter().map(|piece| piece.bytes).sum::<usize>();
        let rows: Vec<_> = tiny.into_iter().map(|piece| piece.rows).collect();
        let merged = self.piece(self.joined(&rows)?, since);
        self.bytes += merged.bytes;
        self.pieces.push_back(merged);
        Ok(())
    }

    fn piece(&self, rows: RecordBatch, since: Instant) -> Piece {
        Piece {
            bytes: batch_bytes(&rows).saturating_sub(self.overhead),
            rows,
            since,
        }
    }

    fn joined(&self, batches: &[RecordBatch]) -> Result<RecordBatch, SinkError> {
        concat_batches(&self.schema, batches).map_err(|error| {
            SinkError::internal("batches of one schema could not be joined").with_source(error)
        })
    }
}
