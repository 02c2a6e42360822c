//! Row errors: which rows of a batch do not fit, in which column and why; never their values.

use std::error::Error;
use std::fmt;

/// How many errors are told in full, to a person at least.
pub(super) const LISTED: usize = 10;

/// The rows of a batch that do not fit the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowErrors {
    /// The first errors by row, at most ten unless more were asked for.
    pub errors: Vec<RowError>,
    /// Number of errors, listed or not. A row may have several.
    pub total: u64,
    /// Index of every refused row, ascending.
    pub rows: Vec<usize>,
}

/// One value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// Index of the row in the batch.
    pub row: usize,
    /// Dotted path of the column, as the pipeline spells it.
    pub column: String,
    /// Why.
    pub reason: RowReason,
}

/// Why a value does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowReason {
    /// NULL in a REQUIRED column.
    NullInRequired,
    /// NULL as an element of a REPEATED column.
    NullElement,
    /// Beyond the range of the type named.
    OutOfRange(&'static str),
    /// More digits before the decimal point than the column takes.
    IntegerDigits(u32),
    /// More digits behind the decimal point than the column takes.
    FractionDigits(u32),
    /// Digits below a microsecond, under `write.sub_microseconds = 'refuse'`.
    SubMicroseconds,
    /// A date that carries a time of day.
    TimeOfDay,
    /// A RANGE whose start is not before its end.
    EmptyRange,
    /// Text that is not JSON; where its parser stopped, counted from 1.
    InvalidJson {
        /// Line of the text.
        line: usize,
        /// Column of the line, in bytes.
        column: usize,
    },
    /// More characters than the column takes.
    TooManyCharacters(u64),
    /// More bytes than the column takes.
    TooManyBytes(u64),
}

/// Gathers the errors of one batch.
#[derive(Debug)]
pub(super) struct Report {
    rows: usize,
    /// Most errors told in full.
    listed: usize,
    /// One mark per row; empty until the first error.
    refused: Vec<bool>,
    errors: Vec<RowError>,
    total: u64,
    truncated: u64,
}

/// Where a value of a (nested) array stands in the batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// Its position is the row.
    Row,
    /// It is an element of a list, which has a place of its own.
    Element { offsets: &'a [i32], list: &'a Self },
}

impl Report {
    pub(super) fn new(rows: usize, listed: usize) -> Self {
        Self {
            rows,
            listed,
            refused: Vec::new(),
            errors: Vec::new(),
            total: 0,
            truncated: 0,
        }
    }

    pub(super) fn refuse(&mut self, row: usize, column: &str, reason: RowReason) {
        if self.refused.is_empty() {
            self.refused.resize(self.rows, false);
        }
        if let Some(mark) = self.refused.get_mut(row) {
            *mark = true;
        }
        self.total += 1;
        let error = || RowError {
            row,
            column: column.to_owned(),
            reason,
        };
        if self.errors.len() < self.listed {
            self.errors.push(error());
        } else if let Some(last) = self.errors.iter_mut().max_by_key(|error| error.row)
            && row < last.row
        {
            *last = error();
        }
    }

    /// Whether something is wrong with a row already.
    pub(super) fn is_refused(&self, row: usize) -> bool {
        self.refused.get(row).copied().unwrap_or_default()
    }

    pub(super) fn count_truncated(&mut self, values: u64) {
        self.truncated += values;
    }

    pub(super) fn truncated(&self) -> u64 {
        self.truncated
    }

    pub(super) fn finish(mut self) -> Result<(), RowErrors> {
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|error| error.row);
        let rows = self
            .refused
            .iter()
            .enumerate()
            .filter_map(|(row, &refused)| refused.then_some(row));
        Err(RowErrors {
            rows: rows.collect(),
            errors: self.errors,
            total: self.total,
        })
    }
}

impl Place<'_> {
    pub(super) fn row(&self, position: usize) -> usize {
        match self {
            Self::Row => position,
            Self::Element { offsets, list } => {
                let begun = offsets.partition_point(|&start| start as usize <= position);
                list.row(begun.saturating_sub(1))
            }
        }
    }
}

impl fmt::Display for RowErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows.len() {
            1 => f.write_str("1 row does not fit the table")?,
            count => write!(f, "{count} rows do not fit the table")?,
        }
        let told = &self.errors[..self.errors.len().min(LISTED)];
        for (number, error) in told.iter().enumerate() {
            f.write_str(if number == 0 { ": " } else { "; " })?;
            error.fmt(f)?;
        }
        match self.total.saturating_sub(told.len() as u64) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl Error for RowErrors {}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Counted from 1: this is for people.
        let number = self.row + 1;
        write!(
            f,
            "row {number} of the batch, column `{}`: {}",
            self.column, self.reason
        )
    }
}

impl fmt::Display for RowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NullInRequired => f.write_str("NULL in a REQUIRED column"),
            Self::NullElement => f.write_str("NULL as an element of a REPEATED column"),
            Self::OutOfRange(name) => write!(f, "out of the range of {name}"),
            Self::IntegerDigits(digits) => write!(f, "more than {digits} digits before the decimal point"),
            Self::FractionDigits(digits) => write!(f, "more than {digits} digits behind the decimal point"),
            Self::SubMicroseconds => f.write_str("digits below a microsecond"),
            Self::EmptyRange => f.write_str("a RANGE whose start is not before its end"),
            Self::TimeOfDay => f.write_str("a time of day in a DATE"),
            Self::InvalidJson { line, column } => write!(f, "not JSON (line {line}, column {column})"),
            Self::TooManyCharacters(max) => write!(f, "longer than {max} characters"),
            Self::TooManyBytes(max) => write!(f, "longer than {max} bytes"),
        }
    }
}
