//! Decodes and checks appended rows, by code of the emulator's own: what BigQuery would refuse is refused here.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::Fields;
use bigquery_write_proto::wire::{
    RowError, append_rows_request::Rows, row_error::RowErrorCode, storage_error::StorageErrorCode,
};
use bytes::Bytes;

use crate::machine::{Behaviour, Code, Refusal, Switches};
use crate::schema::{Column, Kind, Schema};
pub(crate) use checks::{Bad, Checks};
use fit::{Misfit, Takes};

mod checks;
mod fit;
mod ipc;
mod spans;
mod values;

/// What a connection says its rows look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Arrow fields.
    Arrow(Fields),
}

impl Writer {
    /// Reads a serialized Arrow schema.
    pub(crate) fn arrow(serialized: &Bytes, stream: &str, switches: &Switches) -> Result<Self, Refusal> {
        ipc::read_schema(serialized, switches.keeps(Behaviour::NonNullableFieldsTaken))
            .map(Self::Arrow)
            .map_err(|error| malformed(&error, stream))
    }

    /// Decodes one request's rows into the table's canonical form, or refuses the whole request.
    pub(crate) fn decode(
        &self,
        serialized: &Bytes,
        schema: &Schema,
        stream: &str,
        switches: &Switches,
    ) -> Result<RecordBatch, Refusal> {
        let Self::Arrow(fields) = self;
        let fits = fit::fit(fields, &schema.columns, Takes::of(switches))
            .map_err(|misfit| misfit.refusal(stream).in_band(switches.schema_error_in_band))?;
        let serialized = if switches.keeps(Behaviour::OneArrowMessageOnly) {
            serialized
        } else {
            &ipc::after_schema(serialized)
        };
        let columns = ipc::read_batch(serialized, fields).map_err(|error| malformed(&error, stream))?;
        let mut errors = RowErrors::default();
        let checks = Checks::of(switches);
        let arrays = values::convert(&columns, &fits, &schema.columns, checks, &mut errors);
        if !errors.is_empty() {
            return Err(errors.refusal(stream));
        }
        let arrays = arrays.map_err(|error| malformed(&error, stream))?;
        let options = RecordBatchOptions::new().with_row_count(Some(columns.rows));
        RecordBatch::try_new_with_options(schema.arrow(), arrays, &options)
            .map_err(|error| malformed(&error, stream))
    }
}

/// Judges rows that are in the canonical types of some columns already, as a query gives them: lengths, digits and
/// ranges, which the types do not say.
///
/// # Errors
/// The first thing that is wrong, without its row.
pub(crate) fn check(rows: &RecordBatch, columns: &[Column], switches: &Switches) -> Result<(), String> {
    // What has no parameters is as it should be, and has canonical types that no writer sends.
    let is_free = |column: &Column| {
        matches!(
            column.kind,
            Kind::TimestampPicoseconds | Kind::Interval | Kind::Range(_)
        )
    };
    let judged = columns.iter().zip(rows.columns());
    let judged = judged.filter(|(column, _)| !is_free(column));
    let (columns, arrays): (Vec<Column>, Vec<ArrayRef>) = judged
        .map(|(column, array)| (column.clone(), Arc::clone(array)))
        .unzip();
    let fields: Fields = columns.iter().map(Column::arrow).collect();
    let fits = fit::fit(&fields, &columns, Takes::LISTED).map_err(|misfit| misfit.refusal("").message)?;
    let columns_of = ipc::Columns {
        arrays,
        rows: rows.num_rows(),
    };
    let mut errors = RowErrors::default();
    let converted = values::convert(&columns_of, &fits, &columns, Checks::of(switches), &mut errors);
    if let Some(text) = errors.errors.into_values().next() {
        return Err(text);
    }
    converted.map(drop).map_err(|error| error.to_string())
}

/// How many rows a request brings, as it says itself; none if that cannot be read.
pub(crate) fn count(rows: &Rows) -> u64 {
    match rows {
        Rows::ArrowRows(data) => data
            .rows
            .as_ref()
            .and_then(|rows| ipc::count_rows(&rows.serialized_record_batch).ok())
            .unwrap_or(0),
        Rows::ProtoRows(data) => data
            .rows
            .as_ref()
            .map_or(0, |rows| rows.serialized_rows.len() as u64),
    }
}

/// What is wrong with single rows: one error a row, the first of it.
#[derive(Debug, Default)]
pub(crate) struct RowErrors {
    errors: std::collections::BTreeMap<usize, String>,
}

impl RowErrors {
    /// The list is cut there; Google's "may not be complete".
    const LIMIT: usize = 1000;

    pub(crate) fn add(&mut self, row: usize, text: impl FnOnce() -> String) {
        if self.errors.len() < Self::LIMIT {
            self.errors.entry(row).or_insert_with(text);
        }
    }

    fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// write-api.md 3.5.
    pub(crate) fn refusal(self, stream: &str) -> Refusal {
        let mut refusal = Refusal::invalid(format!(
            "Errors found while processing rows. Please refer to the row_errors field for details. The list may \
             not be complete because of the size limitations. Entity: {stream}"
        ));
        let code = RowErrorCode::FieldsError as i32;
        let errors = self.errors.into_iter();
        refusal.row_errors = errors
            .map(|(row, message)| RowError {
                index: row as i64,
                code,
                message,
            })
            .collect();
        refusal.in_band(true)
    }
}

impl Misfit {
    /// write-api.md 7.2; the texts other than that of extra fields are UNCONFIRMED.
    fn refusal(self, stream: &str) -> Refusal {
        match self {
            Self::Extra(names) => Refusal::invalid(format!(
                "Input schema has more fields than BigQuery schema, extra fields: '{}' Entity: {stream}",
                names.join(",")
            ))
            .with(StorageErrorCode::SchemaMismatchExtraFields, stream),
            Self::Incompatible(fields) => Refusal::invalid(format!(
                "Found incompatible fields: {} Entity: {stream}",
                fields.join(", ")
            )),
            Self::Missing(names) => Refusal::invalid(format!(
                "Input schema lacks required fields: '{}' Entity: {stream}",
                names.join(",")
            )),
            Self::Default(names) => Refusal::new(
                Code::Unimplemented,
                format!(
                    "the emulator does not evaluate default values yet; send the fields '{}' Entity: {stream}",
                    names.join(",")
                ),
            ),
            Self::Twice(name) => Refusal::invalid(format!(
                "Input schema has the field '{name}' twice Entity: {stream}"
            )),
        }
    }
}

fn malformed(error: &dyn std::fmt::Display, stream: &str) -> Refusal {
    Refusal::invalid(format!("Invalid Arrow data: {error}. Entity: {stream}"))
}
