//! Rows of a pipeline (Arrow batches) on their way into `arrow_rows` or `proto_rows`: columns checked once, values checked and
//! converted per batch, then written in the format asked for ([`Wire`]; write-api.md 5).

mod changes;
mod convert;
mod create;
mod format;
mod intervals;
mod ipc;
mod mapping;
mod names;
mod plain;
mod plan;
mod problem;
mod protobuf;
mod refusal;
mod surrogates;
mod types;
mod values;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use bytes::Bytes;
use std::sync::Arc;
use thiserror::Error;

pub use create::table_schema_for;
pub use format::{EncodeError, EncodedRows, Format, MeasuredRows, Wire, WriterSchema};
pub use ipc::batch_bytes;
pub use mapping::{
    Mapping, MappingLine, PipelineType, TableType, Treatment, Zone, describe, mapping, mapping_lines,
};
pub use plain::plain;
pub use problem::{ColumnProblem, ColumnProblemKind};
pub use protobuf::ProtoBatch;
pub use refusal::{RowError, RowErrors, RowReason};
pub use surrogates::lone_surrogate;
pub use types::table_type;

use crate::wire::TableSchema;
use convert::Conversion;
use plan::ColumnPlan;
use refusal::Report;

/// Turns batches of one pipeline into record batch messages for one table.
#[derive(Debug)]
pub struct RowEncoder {
    input: SchemaRef,
    columns: Vec<ColumnPlan>,
    wire_schema: SchemaRef,
    writer_schema: Bytes,
    options: RowOptions,
}

/// How values are treated where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowOptions {
    /// What happens to digits below a microsecond (`write.sub_microseconds`).
    pub sub_microseconds: SubMicroseconds,
    /// What a NULL in a column with a default value means (`write.missing_values`).
    pub missing_values: MissingValues,
}

/// What happens to digits below a microsecond, which BigQuery's types do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubMicroseconds {
    /// They are cut off, towards the past, and counted.
    Truncate,
    /// They are a row error.
    Refuse,
}

/// What a NULL means in a top-level column that has a default value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingValues {
    /// NULL.
    Null,
    /// The value is missing: BigQuery puts the default value there, if it is told to (write-api.md 7.1). A NULL array too; an
    /// empty array is a value.
    Default,
}

/// A batch whose every value fits the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The rows under [`RowEncoder::wire_schema`].
    pub batch: RecordBatch,
    /// Number of values that lost digits below a microsecond.
    pub truncated: u64,
}

/// Why a batch was not converted.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// Some rows do not fit the table; the others do.
    #[error(transparent)]
    Rows(#[from] RowErrors),
    /// The batch is not of the schema the encoder was made for.
    #[error("the batch's column {column} is {found}, but the pipeline's schema says {expected}")]
    Schema {
        /// Name of the column, or its number where the batch has none.
        column: String,
        /// The type announced.
        expected: String,
        /// The type that came.
        found: String,
    },
    /// The batch as a whole cannot be held in plain Arrow arrays, whose columns end at 2 GiB; smaller batches can.
    #[error("column {column} of a batch of {rows} rows cannot be converted, send smaller batches: {source}")]
    Batch {
        /// The column's dotted path.
        column: String,
        /// Number of rows in the batch.
        rows: usize,
        /// What Arrow says.
        source: ArrowError,
    },
}

impl RowEncoder {
    /// Checks the pipeline's columns against the table's and plans their conversion.
    ///
    /// Names are matched without regard to case. Columns that the table has and the pipeline lacks are left out of the writer
    /// schema, so that their defaults apply (write-api.md 7.1).
    ///
    /// # Errors
    /// Every problem of every column, nested ones with dotted paths.
    pub fn new(
        input: &SchemaRef,
        table: &TableSchema,
        options: RowOptions,
    ) -> Result<Self, Vec<ColumnProblem>> {
        let columns = plan::plan_columns(input.fields(), &table.fields, options.missing_values)?;
        let fields: Vec<_> = columns.iter().map(|column| Arc::clone(&column.field)).collect();
        let wire_schema = Arc::new(Schema::new(fields));
        let writer_schema = ipc::schema_message(&wire_schema);
        Ok(Self {
            input: Arc::clone(input),
            columns,
            wire_schema,
            writer_schema,
            options,
        })
    }

    /// The writer schema of a connection's first request: one encapsulated IPC Schema message.
    pub fn writer_schema(&self) -> &Bytes {
        &self.writer_schema
    }

    /// The schema of converted batches: the table's spelling of names, BigQuery's Arrow types, everything nullable.
    pub fn wire_schema(&self) -> &SchemaRef {
        &self.wire_schema
    }

    /// Checks every value and brings it into its wire type. Columns that need neither are shared, not copied.
    ///
    /// # Errors
    /// [`ConvertError::Rows`] names the rows that do not fit; nothing is changed silently but what `options` allow.
    pub fn convert(&self, batch: &RecordBatch) -> Result<Converted, ConvertError> {
        self.convert_listing(batch, refusal::LISTED)
    }

    /// As [`convert`](Self::convert), with at most so many row errors told in full; with `usize::MAX` each, for a caller that goes on
    /// without the refused rows.
    ///
    /// # Errors
    /// As [`convert`](Self::convert).
    pub fn convert_listing(&self, batch: &RecordBatch, listed: usize) -> Result<Converted, ConvertError> {
        self.check_shape(batch)?;
        let mut report = Report::new(batch.num_rows(), listed);
        let mut conversion = Conversion::new(&mut report, self.options);
        let mut columns = Vec::with_capacity(self.columns.len());
        for plan in &self.columns {
            let column = conversion
                .column(plan, batch.column(plan.index))
                .map_err(|failed| ConvertError::Batch {
                    column: failed.column,
                    rows: batch.num_rows(),
                    source: failed.source,
                })?;
            columns.push(column);
        }
        let truncated = report.truncated();
        report.finish()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.wire_schema), columns, &options)
            .map_err(|source| ConvertError::Batch {
                column: "*".to_owned(),
                rows: batch.num_rows(),
                source,
            })?;
        Ok(Converted { batch, truncated })
    }

    /// Writes a converted batch as one bare encapsulated RecordBatch message: no schema, no compression, no end of stream.
    ///
    /// # Errors
    /// The batch is not under [`wire_schema`](Self::wire_schema), or one message cannot hold it.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Bytes, EncodeError> {
        if !Arc::ptr_eq(batch.schema_ref(), &self.wire_schema) && batch.schema_ref() != &self.wire_schema {
            return Err(EncodeError::Schema);
        }
        ipc::batch_message(batch)
    }

    /// The plans downcast by the announced types, so a batch of other types must not reach them.
    fn check_shape(&self, batch: &RecordBatch) -> Result<(), ConvertError> {
        let fields = self.input.fields();
        let describe =
            |data_type: Option<&DataType>| data_type.map_or("absent".to_owned(), ToString::to_string);
        for index in 0..fields.len().max(batch.num_columns()) {
            let expected = fields.get(index).map(|field| field.data_type());
            let found = batch.columns().get(index).map(|column| column.data_type());
            if !matches!((expected, found), (Some(expected), Some(found)) if types::same_shape(expected, found))
            {
                return Err(ConvertError::Schema {
                    column: fields
                        .get(index)
                        .map_or(format!("{index}"), |field| field.name().clone()),
                    expected: describe(expected),
                    found: describe(found),
                });
            }
        }
        Ok(())
    }
}
