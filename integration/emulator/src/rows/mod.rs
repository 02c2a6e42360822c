//! Decodes and checks appended rows, by code of the emulator's own: what BigQuery would refuse is refused here.

use std::cell::Cell;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_schema::{ArrowError, Fields};
use bigquery_write_proto::wire::{
    RowError, append_rows_request::Rows, row_error::RowErrorCode, storage_error::StorageErrorCode,
};
use bytes::Bytes;

use crate::defaults::Moment;
use crate::machine::{Behaviour, Code, Refusal, Switches};
use crate::schema::{Column, Kind, Schema};
pub(crate) use checks::{Bad, Checks};
use fit::{Misfit, Takes};
use missing::Shown;
use proto::{Descriptor, DescriptorError};

pub(crate) use missing::Missing;

mod checks;
mod fit;
mod ipc;
mod missing;
mod proto;
mod spans;
mod values;

/// What a connection says its rows look like.
#[derive(Clone, Debug)]
pub(crate) enum Writer {
    /// Arrow fields.
    Arrow(Fields),
    /// A protobuf message.
    Proto(Box<Descriptor>),
}

/// A request's rows as they came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serialized<'a> {
    /// A record batch.
    Arrow(&'a Bytes),
    /// A message for each row.
    Proto(&'a [Bytes]),
}

/// Rows in the table's canonical form.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    /// The rows.
    pub(crate) rows: RecordBatch,
    /// `_CHANGE_TYPE` of each, if the writer has it. Only protobuf rows do (write-api.md 6).
    pub(crate) change_types: Option<StringArray>,
    /// `_CHANGE_SEQUENCE_NUMBER` of each, if the writer has it.
    pub(crate) sequence_numbers: Option<StringArray>,
}

impl Writer {
    /// Reads the writer schema that comes with rows; `None` if none does.
    pub(crate) fn read(rows: &Rows, switches: &Switches, stream: &str) -> Option<Result<Self, Refusal>> {
        Some(match rows {
            Rows::ArrowRows(data) => {
                let schema = &data.writer_schema.as_ref()?.serialized_schema;
                Some(schema).filter(|schema| !schema.is_empty())?;
                let any = switches.keeps(Behaviour::NonNullableFieldsTaken);
                let read = ipc::read_schema(schema, any).map(Self::Arrow);
                read.map_err(|error| malformed(&error, stream))
            }
            Rows::ProtoRows(data) => {
                let descriptor = &data.writer_schema.as_ref()?.proto_descriptor;
                Some(descriptor).filter(|descriptor| !descriptor.is_empty())?;
                let read = Descriptor::read(descriptor, switches);
                let read = read.map(|descriptor| Self::Proto(Box::new(descriptor)));
                read.map_err(|error| error.refusal(stream))
            }
        })
    }

    /// Whether its rows can say that they change others (write-api.md 6).
    pub(crate) fn says_changes(&self) -> bool {
        match self {
            Self::Arrow(_) => false,
            Self::Proto(descriptor) => descriptor.says_changes(),
        }
    }

    /// What a connection is told whose first request has no writer schema.
    pub(crate) fn none(rows: &Rows, switches: &Switches, stream: &str) -> Refusal {
        match rows {
            _ if !switches.keeps(Behaviour::FirstRequestNeedsSchema) => {
                Refusal::new(Code::Unknown, "no schema")
            }
            Rows::ArrowRows(_) => Refusal::invalid(format!(
                "The first request of a connection must have a writer schema. Entity: {stream}"
            )),
            Rows::ProtoRows(_) => DescriptorError::nameless().refusal(stream),
        }
    }

    /// Decodes one request's rows into the table's canonical form, or refuses the whole request.
    pub(crate) fn decode(
        &self,
        rows: Serialized<'_>,
        schema: &Schema,
        missing: &Missing,
        moment: &mut Moment<'_>,
        switches: &Switches,
        stream: &str,
    ) -> Result<Decoded, Refusal> {
        let columns = &schema.columns;
        let misfit = |misfit: Misfit| misfit.refusal(stream).in_band(switches.schema_error_in_band);
        let filled = missing.filled();
        let memory = Memory::of(switches);
        let mut errors = RowErrors::default();
        let (len, arrays, pseudo, shown) = match (self, rows) {
            (Self::Arrow(fields), Serialized::Arrow(batch)) => {
                let fits = fit::fit(fields, columns, Takes::of(switches)).map_err(misfit)?;
                let batch = if switches.keeps(Behaviour::OneArrowMessageOnly) {
                    batch
                } else {
                    &ipc::after_schema(batch)
                };
                let inflates =
                    switches.arrow_compression || !switches.keeps(Behaviour::CompressedArrowRefused);
                let batch = ipc::read_batch(batch, fields, inflates, &memory)
                    .map_err(|error| malformed(&error, stream))?;
                let checks = Checks::of(switches);
                let arrays = values::convert(&batch, &fits, columns, &filled, checks, &memory, &mut errors);
                (batch.rows, arrays, [None, None], Shown::Null)
            }
            (Self::Proto(descriptor), Serialized::Proto(rows)) => {
                let read = proto::read(descriptor, rows, columns, &filled, switches, &memory, &mut errors)
                    .map_err(misfit)?;
                let (arrays, pseudo) = match read {
                    Ok(read) => (Ok(read.columns), read.pseudo),
                    Err(error) => (Err(error), [None, None]),
                };
                (rows.len(), arrays, pseudo, Shown::NullOrEmpty)
            }
            // The connection has seen to it that a writer's rows have its format.
            _ => return Err(format_changed(stream)),
        };
        if !errors.is_empty() {
            return Err(errors.refused(switches, stream));
        }
        let broken = |error: ArrowError| match error {
            ArrowError::MemoryError(text) => {
                Refusal::invalid(format!("{text}. Entity: {stream}")).in_band(true)
            }
            error => malformed(&error, stream),
        };
        let arrays = arrays.map_err(broken)?;
        memory.unsent(len, &arrays).map_err(broken)?;
        let arrays = missing.settle(columns, arrays, len, shown, moment);
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        let rows = RecordBatch::try_new_with_options(schema.arrow(), arrays.map_err(broken)?, &options);
        let [change_types, sequence_numbers] = pseudo.map(|array| Some(array?.as_string_opt()?.clone()));
        Ok(Decoded {
            rows: rows.map_err(broken)?,
            change_types,
            sequence_numbers,
        })
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
    let checks = Checks::of(switches);
    let memory = Memory::of(switches);
    let converted = values::convert(&columns_of, &fits, &columns, &[], checks, &memory, &mut errors);
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

impl<'a> Serialized<'a> {
    /// The rows of a request's data; a batch or a list that is absent is an empty one.
    pub(crate) fn of(rows: &'a Rows) -> Self {
        static NO_BATCH: Bytes = Bytes::new();
        match rows {
            Rows::ArrowRows(data) => {
                let batch = data.rows.as_ref().map(|rows| &rows.serialized_record_batch);
                Self::Arrow(batch.unwrap_or(&NO_BATCH))
            }
            Rows::ProtoRows(data) => {
                let rows = data.rows.as_ref().map(|rows| rows.serialized_rows.as_slice());
                Self::Proto(rows.unwrap_or_default())
            }
        }
    }
}

/// A row that is to change or delete another, where rows can only be inserted [PROD debezium-server-bigquery #268].
pub(crate) fn change_refused(stream: &str) -> Refusal {
    Misfit::Extra(vec!["_change_type".to_owned()]).refusal(stream)
}

/// write-api.md 1.2: the first request's format is the connection's.
pub(crate) fn format_changed(stream: &str) -> Refusal {
    Refusal::invalid(format!(
        "The data format cannot change in a connection. Entity: {stream}"
    ))
}

/// Memory that a request's rows may still take when they are read: a few bytes can stand for many, by default values,
/// names of enums, messages that are empty, columns that are not sent.
#[derive(Debug)]
struct Memory {
    most: u64,
    left: Cell<u64>,
}

impl Memory {
    fn of(switches: &Switches) -> Self {
        let most = switches.max_decoded_bytes;
        Self {
            most,
            left: Cell::new(most),
        }
    }

    fn spend(&self, bytes: u64) -> Result<(), ArrowError> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            let most = self.most;
            ArrowError::MemoryError(format!(
                "the rows take more than {most} bytes of memory when they are read; send fewer in one request"
            ))
        })?;
        self.left.set(left);
        Ok(())
    }

    /// For the columns that the writer lacks: about what so many values of them take.
    fn unsent(&self, len: usize, columns: &[Option<ArrayRef>]) -> Result<(), ArrowError> {
        let unsent = columns.iter().filter(|column| column.is_none()).count();
        self.spend((len as u64).saturating_mul(unsent as u64).saturating_mul(32))
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

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// As these switches have it.
    pub(crate) fn refused(self, switches: &Switches, stream: &str) -> Refusal {
        let mut refusal = self
            .refusal(stream)
            .in_band(switches.keeps(Behaviour::RowErrorsInBand));
        if !switches.keeps(Behaviour::RowErrorsListed) {
            refusal.row_errors.clear();
        }
        refusal
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

impl DescriptorError {
    fn refusal(&self, stream: &str) -> Refusal {
        Refusal::invalid(format!("{self} Entity: {stream}"))
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
            // [PROD beam #21247, google-cloud-go #5097].
            Self::Mismatched { field, found, column } => Refusal::invalid(format!(
                "The proto field mismatched with BigQuery field at {field}, the proto field type {found}, BigQuery \
                 field type {column} Entity: {stream}"
            )),
            // Of the family that supabase/etl matches.
            Self::MissingInMessage(names) => Refusal::invalid(format!(
                "The required field '{}' is missing in the proto message Entity: {stream}",
                names.join(",")
            )),
            Self::Twice(name) => Refusal::invalid(format!(
                "Input schema has the field '{name}' twice Entity: {stream}"
            )),
        }
    }
}

fn malformed(error: &dyn std::fmt::Display, stream: &str) -> Refusal {
    Refusal::invalid(format!("Invalid Arrow data: {error}. Entity: {stream}"))
}
