//! Joins small batches and splits large ones into payloads of about `write.append.bytes`.

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

/// Converted rows that were not sent yet.
#[derive(Debug)]
pub(super) struct Coalescer {
    pieces: VecDeque<RecordBatch>,
    bytes: usize,
    target: usize,
    since: Option<Instant>,
}

/// Rows as one request carries them.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) rows: usize,
    pub(super) message: Bytes,
}

impl Coalescer {
    pub(super) fn new(target: usize) -> Self {
        Self {
            pieces: VecDeque::new(),
            bytes: 0,
            target,
            since: None,
        }
    }

    pub(super) fn push(&mut self, batch: RecordBatch) {
        self.bytes += batch_bytes(&batch);
        self.pieces.push_back(batch);
        self.since.get_or_insert_with(Instant::now);
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
        self.since
    }

    /// The next request's payloads: one, or several where one would be too large.
    ///
    /// # Errors
    /// A single row that is larger than a request may be.
    pub(super) fn take(
        &mut self,
        schema: &SchemaRef,
        encoder: &RowEncoder,
    ) -> Result<Vec<Payload>, SinkError> {
        let rows = self.take_rows(schema)?;
        let mut payloads = Vec::with_capacity(1);
        encode_split(rows, encoder, &mut payloads)?;
        Ok(payloads)
    }

    fn take_rows(&mut self, schema: &SchemaRef) -> Result<RecordBatch, SinkError> {
        let mut taken = Vec::new();
        let mut room = self.target;
        while let Some(piece) = self.pieces.pop_front() {
            let bytes = batch_bytes(&piece);
            if bytes > room && (!taken.is_empty() || piece.num_rows() > 1) {
                let fitting = (piece.num_rows() as u128 * room as u128 / bytes as u128) as usize;
                let fitting = if taken.is_empty() { fitting.max(1) } else { fitting };
                if fitting < piece.num_rows() {
                    self.pieces
                        .push_front(piece.slice(fitting, piece.num_rows() - fitting));
                }
                if fitting > 0 {
                    taken.push(piece.slice(0, fitting));
                }
                break;
            }
            room = room.saturating_sub(bytes);
            taken.push(piece);
            if room == 0 {
                break;
            }
        }
        self.bytes = self.pieces.iter().map(batch_bytes).sum();
        if self.pieces.is_empty() {
            self.since = None;
        }
        match taken.as_slice() {
            [single] => Ok(single.clone()),
            _ => concat_batches(schema, &taken).map_err(|error| {
                SinkError::internal("batches of one schema could not be joined").with_source(error)
            }),
        }
    }
}

fn encode_split(
    rows: RecordBatch,
    encoder: &RowEncoder,
    payloads: &mut Vec<Payload>,
) -> Result<(), SinkError> {
    let message = encoder
        .encode(&rows)
        .map_err(|error| SinkError::internal("rows could not be encoded").with_source(error))?;
    if message.len() <= LARGEST_REQUEST {
        payloads.push(Payload {
            rows: rows.num_rows(),
            message,
        });
        return Ok(());
    }
    if rows.num_rows() == 1 {
        return Err(SinkError::user(format!(
            "a row takes {} bytes, more than the {LARGEST_REQUEST} bytes of the largest request; shorten its values",
            message.len()
        )));
    }
    let half = rows.num_rows() / 2;
    encode_split(rows.slice(0, half), encoder, payloads)?;
    encode_split(rows.slice(half, rows.num_rows() - half), encoder, payloads)
}
