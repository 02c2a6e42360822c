//! Rows that do not fit, found before they are part of a request: the good ones of their batch go on without them.

use std::collections::BTreeMap;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use bigquery_sink_state::RowFault;
use bigquery_write_proto::rows::{ConvertError, Converted, MeasuredRows, RowEncoder, RowErrors, Wire};

use super::translate;
use crate::error::SinkError;
use crate::metrics::{Counter, RejectedBy, Subtask};

/// How many rows an error tells of.
const LISTED: usize = 10;
/// Longest reason of a row, in bytes: arrays may have many elements that are wrong.
const LONGEST: usize = 1024;

/// Rows that were refused, by the sink or by BigQuery.
#[derive(Debug)]
pub(super) struct Refused {
    /// As the pipeline brought them; those that BigQuery refused as they were converted.
    pub(super) rows: RecordBatch,
    /// One for each row.
    pub(super) reasons: Vec<Reason>,
}

/// Why a row was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    /// Dotted path of the column, where one is to blame and known.
    pub(super) column: Option<String>,
    /// For the dead letter, which holds the row anyway.
    pub(super) text: String,
    /// For errors and logs, where BigQuery's text may quote a value.
    told: Option<String>,
}

/// A batch, parted.
#[derive(Debug)]
pub(super) struct Sifted {
    /// The rows that fit, converted.
    pub(super) good: Option<MeasuredRows>,
    /// The others.
    pub(super) refused: Option<Refused>,
}

/// What parting a batch takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sieve<'a> {
    pub(super) encoder: &'a RowEncoder,
    pub(super) wire: &'a Wire,
    /// Most bytes of a request's rows.
    pub(super) limit: usize,
    pub(super) metrics: &'a Subtask,
}

impl Sieve<'_> {
    /// Converts a batch whose every row must fit (`row_errors = 'fail'`).
    ///
    /// # Errors
    /// Some rows do not fit, or the batch as a whole.
    pub(super) fn all(self, batch: &RecordBatch) -> Result<Sifted, SinkError> {
        let converted = self.encoder.convert(batch).map_err(|error| {
            if let ConvertError::Rows(errors) = &error {
                self.count_refused(errors.rows.len());
            }
            translate::convert_error(error)
        })?;
        let good = self.measured(converted)?;
        let over = good.rows_over(self.limit);
        if !over.is_empty() {
            self.count_refused(over.len());
            return Err(rows_too_large(&over, self.limit));
        }
        Ok(Sifted {
            // Nothing asks for rows again that cannot become dead letters.
            good: Some(good.without_batch()),
            refused: None,
        })
    }

    /// Parts a batch into rows that fit and rows that do not (`row_errors = 'dead_letter'`).
    ///
    /// # Errors
    /// The batch as a whole cannot be converted, or a broken promise of our own.
    pub(super) fn part(self, batch: &RecordBatch) -> Result<Sifted, SinkError> {
        let mut reasons = BTreeMap::new();
        let converted = match self.encoder.convert_listing(batch, usize::MAX) {
            Err(ConvertError::Rows(errors)) => {
                reasons = reasons_of(&errors);
                let good = without(batch, &errors.rows)?;
                self.encoder.convert(&good)
            }
            other => other,
        };
        let mut good = self.measured(converted.map_err(translate::convert_error)?)?;
        let over = good.rows_over(self.limit);
        if !over.is_empty() {
            let fitting = (0..batch.num_rows()).filter(|row| !reasons.contains_key(row));
            let fitting: Vec<usize> = fitting.collect();
            for &(row, bytes) in &over {
                reasons.insert(fitting[row], Reason::too_large(bytes, self.limit));
            }
            let over: Vec<usize> = over.into_iter().map(|(row, _)| row).collect();
            let without = good.without(&over);
            good = without.map_err(|error| {
                SinkError::internal("rows could not be taken out of a batch").with_source(error)
            })?;
        }
        let mut refused = None;
        if !reasons.is_empty() {
            self.count_refused(reasons.len());
            let rows: Vec<usize> = reasons.keys().copied().collect();
            refused = Some(Refused {
                rows: only(batch, &rows)?,
                reasons: reasons.into_values().collect(),
            });
        }
        Ok(Sifted {
            good: (good.num_rows() > 0).then_some(good),
            refused,
        })
    }

    fn measured(self, converted: Converted) -> Result<MeasuredRows, SinkError> {
        self.metrics.add(Counter::ValuesTruncated, converted.truncated);
        let measured = self.wire.measure(converted.batch);
        measured.map_err(|error| SinkError::internal("rows could not be measured").with_source(error))
    }

    fn count_refused(self, rows: usize) {
        self.metrics
            .add(Counter::RowsRejected(RejectedBy::Sink), rows as u64);
    }
}

impl Reason {
    /// For a row that not even a request of its own holds.
    pub(super) fn too_large(bytes: usize, limit: usize) -> Self {
        Self::of_sink(None, too_large(bytes, limit))
    }

    /// In the sink's words, which never hold a value.
    pub(super) fn of_sink(column: Option<String>, text: String) -> Self {
        Self {
            column,
            text,
            told: None,
        }
    }

    /// The text without the row's values.
    pub(super) fn told(&self) -> &str {
        self.told.as_deref().unwrap_or(&self.text)
    }

    /// Whether the row was too large, by the words of BigQuery, whose limit may be any.
    pub(super) fn is_of_size(&self) -> bool {
        self.text.contains("request too large")
    }

    /// In BigQuery's words. It names a column at the end of its text, if at all (write-api.md 3.5).
    pub(super) fn of_server(fault: &RowFault, wire: &RecordBatch) -> Self {
        let text = &fault.message;
        let named = text.trim_end_matches('.').rsplit_once(" on field ");
        let named = named.map(|(_, column)| column);
        // Only what is a column, since the text promises nothing. Its case may be the table's.
        let known = |column: &&str| {
            let top = column.split('.').next().unwrap_or_default().to_lowercase();
            let mut fields = wire.schema_ref().fields().iter();
            fields.any(|field| field.name().to_lowercase() == top)
        };
        Self {
            column: named.filter(known).map(str::to_owned),
            text: text.clone(),
            told: Some(fault.text()),
        }
    }
}

/// One reason for each row: its first error, and what else is wrong with it behind that, each once.
fn reasons_of(errors: &RowErrors) -> BTreeMap<usize, Reason> {
    let mut reasons: BTreeMap<usize, Reason> = BTreeMap::new();
    for error in &errors.errors {
        let (column, text) = (Some(error.column.clone()), error.reason.to_string());
        let Some(reason) = reasons.get_mut(&error.row) else {
            reasons.insert(error.row, Reason::of_sink(column, text));
            continue;
        };
        let more = format!("; column `{}`: {text}", error.column);
        let is_said = reason.column == column && reason.text.starts_with(&text);
        if !is_said && !reason.text.contains(&more) && reason.text.len() + more.len() < LONGEST {
            reason.text.push_str(&more);
        }
    }
    reasons
}

fn too_large(bytes: usize, limit: usize) -> String {
    format!("takes {bytes} bytes, more than the {limit} bytes of the largest request")
}

fn rows_too_large(over: &[(usize, usize)], limit: usize) -> SinkError {
    // Counted from 1: this is for people.
    let told = over.iter().take(LISTED);
    let told = told.map(|&(row, bytes)| format!("row {} of the batch {}", row + 1, too_large(bytes, limit)));
    let told: Vec<String> = told.collect();
    let more = match over.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    SinkError::user(format!(
        "{}{more}; shorten the values, or let such rows become dead letters (option 'row_errors')",
        told.join("; ")
    ))
}

/// The batch without these rows.
pub(super) fn without(batch: &RecordBatch, rows: &[usize]) -> Result<RecordBatch, SinkError> {
    chosen(batch, rows, false)
}

/// These rows of the batch.
pub(super) fn only(batch: &RecordBatch, rows: &[usize]) -> Result<RecordBatch, SinkError> {
    chosen(batch, rows, true)
}

fn chosen(batch: &RecordBatch, rows: &[usize], named: bool) -> Result<RecordBatch, SinkError> {
    let mut mask = vec![!named; batch.num_rows()];
    for &row in rows {
        mask[row] = named;
    }
    filter_record_batch(batch, &BooleanArray::from(mask))
        .map_err(|error| SinkError::internal("rows could not be taken out of a batch").with_source(error))
}
