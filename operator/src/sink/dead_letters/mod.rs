//! The dead-letter table: what is written of rows that were refused, and when too many are (docs/dead_letters.md).

mod json;
mod ratio;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bigquery_sink_state::{Epoch, Micros, RowCount, SubtaskIndex};
use bigquery_write_proto::names::TableName;
use bigquery_write_proto::rows::{RowEncoder, Wire};

use super::coalesce::Coalescer;
use super::refused::{Reason, Refused};
use super::translate;
use crate::error::SinkError;
use crate::options::{RowErrors, SinkOptions};
use ratio::Ratio;

/// Longest reason that is kept, in bytes.
const LONGEST_REASON: usize = 64 << 10;
/// Longest row that is kept whole where its size is what it was refused for, in bytes: the letter would be too large too.
const LONGEST_OF_SIZE: usize = 64 << 10;
/// Letters are made in parts of about this size, whatever is refused at once.
const PART: usize = 8 << 20;

/// The columns that a dead-letter table has, in the order of a created one.
pub(super) fn columns() -> SchemaRef {
    let json = HashMap::from([("ARROW:extension:name".to_owned(), "arrow.json".to_owned())]);
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("row", DataType::Utf8, false).with_metadata(json),
        Field::new("reason", DataType::Utf8, false),
        Field::new("column", DataType::Utf8, true),
        Field::new("epoch", DataType::Int64, false),
        Field::new("subtask", DataType::Int64, false),
        Field::new("rejected_at", instant, false),
        Field::new("table", DataType::Utf8, false),
    ]))
}

/// Dead letters on their way, and what they say of this subtask.
#[derive(Debug)]
pub(super) struct DeadLetters {
    /// Where they go.
    pub(super) table: TableName,
    pub(super) wire: Arc<Wire>,
    pub(super) coalescer: Coalescer,
    encoder: RowEncoder,
    ratio: Ratio,
    /// Where the rows should have gone.
    refused_by: TableName,
    subtask: SubtaskIndex,
    /// The checkpoint that will cover the next ones, as far as is known.
    epoch: Epoch,
    /// Letters made since the newest checkpoint.
    made: RowCount,
}

impl DeadLetters {
    /// For the rows of a subtask whose newest checkpoint is that, if there is one; `None` without a dead-letter table.
    pub(super) fn new(
        options: &SinkOptions,
        subtask: SubtaskIndex,
        newest: Option<Epoch>,
        (encoder, wire): (RowEncoder, Wire),
    ) -> Option<Self> {
        let RowErrors::DeadLetter { table, max_ratio } = &options.row_errors else {
            return None;
        };
        let wire = Arc::new(wire);
        Some(Self {
            table: table.clone(),
            coalescer: Coalescer::new(Arc::clone(&wire), options.append_bytes, options.inflight_bytes),
            wire,
            encoder,
            ratio: Ratio::new(*max_ratio),
            refused_by: options.table.clone(),
            subtask,
            epoch: newest.map_or(Epoch(1), |newest| Epoch(newest.0 + 1)),
            made: RowCount(0),
        })
    }

    /// The checkpoint is reported, which covers every letter made before it: how many those were. What comes belongs to the next one.
    pub(super) fn prepared(&mut self, epoch: Epoch) -> RowCount {
        self.epoch = Epoch(epoch.0 + 1);
        std::mem::take(&mut self.made)
    }

    /// Counts rows that came, some of which were refused.
    ///
    /// # Errors
    /// Too many of the newest rows were refused.
    pub(super) fn count(&mut self, rows: usize, reasons: &[Reason]) -> Result<(), SinkError> {
        self.ratio.count(rows as u64, reasons)
    }

    /// Makes letters of refused rows; they are handed over with [`Self::coalescer`].
    ///
    /// # Errors
    /// The dead-letter table takes no such letters, or a broken promise of our own.
    pub(super) fn bury(&mut self, refused: &Refused, now: Micros) -> Result<(), SinkError> {
        let documents = json::Documents::of(&refused.rows);
        let mut part = Part::default();
        for (row, reason) in refused.reasons.iter().enumerate() {
            let longest = if reason.is_of_size() {
                LONGEST_OF_SIZE
            } else {
                json::LONGEST
            };
            part.add(documents.row(row, longest)?, reason);
            if part.bytes >= PART {
                self.hand_over(std::mem::take(&mut part), now)?;
            }
        }
        self.hand_over(part, now)
    }

    fn hand_over(&mut self, part: Part, now: Micros) -> Result<(), SinkError> {
        let rows = part.documents.len();
        if rows == 0 {
            return Ok(());
        }
        self.made.0 += rows as u64;
        let number = |number: u64| Int64Array::from(vec![i64::try_from(number).unwrap_or(i64::MAX); rows]);
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(part.documents)),
            Arc::new(StringArray::from(part.reasons)),
            Arc::new(StringArray::from(part.columns)),
            Arc::new(number(self.epoch.0)),
            Arc::new(number(self.subtask.0.into())),
            Arc::new(TimestampMicrosecondArray::from(vec![now; rows]).with_timezone("UTC")),
            Arc::new(StringArray::from(vec![self.refused_by.to_string(); rows])),
        ];
        let internal = |error| SinkError::internal("dead letters could not be made").with_source(error);
        let letters = RecordBatch::try_new(columns(), arrays).map_err(internal)?;
        let converted = self.encoder.convert(&letters).map_err(|error| {
            let table = &self.table;
            let error = translate::convert_error(error);
            SinkError::new(
                error.blame(),
                error.retry(),
                format!("dead letters do not fit table {table}: {error}"),
            )
            .with_source(error)
        })?;
        let letters = self.wire.measure(converted.batch);
        let letters = letters
            .map_err(|error| SinkError::internal("dead letters could not be measured").with_source(error))?;
        self.coalescer.push(letters.without_batch())
    }
}

/// Letters in the making.
#[derive(Debug, Default)]
struct Part {
    documents: Vec<String>,
    reasons: Vec<String>,
    columns: Vec<Option<String>>,
    bytes: usize,
}

impl Part {
    fn add(&mut self, document: String, reason: &Reason) {
        let text = shortened(&reason.text);
        self.bytes += document.len() + text.len();
        self.documents.push(document);
        self.reasons.push(text.to_owned());
        self.columns.push(reason.column.clone());
    }
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_REASON);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
