//! Rows in the format they travel in: what a connection is told of them, how large they are, and their bytes.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use thiserror::Error;

use super::protobuf::{Messages, ProtoBatch};
use super::{RowEncoder, batch_bytes, changes, ipc};
use crate::wire::append_rows_request::{ArrowData, ProtoData, Rows};
use crate::wire::{ArrowRecordBatch, ArrowSchema, ProtoRows, ProtoSchema, TableFieldSchema, TableSchema};

/// How rows travel (`write.format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One Arrow record batch for each request.
    Arrow,
    /// One protobuf message for each row.
    Proto,
}

/// Writes one table's converted rows in one format.
#[derive(Debug)]
pub struct Wire {
    schema: SchemaRef,
    /// The table's columns that are written, with the fields that are.
    columns: Vec<TableFieldSchema>,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Arrow {
        /// Bytes of a message without rows.
        empty: usize,
        writer_schema: Bytes,
    },
    Proto(Messages),
}

/// What the first request of a connection says of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterSchema {
    /// One encapsulated IPC Schema message.
    Arrow(Bytes),
    /// One serialized `DescriptorProto`.
    Proto(Bytes),
}

/// Converted rows whose size in a request is known.
#[derive(Clone, Debug)]
pub struct MeasuredRows {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Arrow {
        batch: RecordBatch,
        /// Bytes of a message without rows.
        empty: usize,
        /// Bytes of these rows' message beyond that.
        bytes: usize,
    },
    Proto {
        /// The rows as they are sent.
        written: ProtoBatch,
        /// What they were written from, if that is kept.
        batch: Option<RecordBatch>,
    },
}

/// The rows of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedRows {
    /// One encapsulated IPC RecordBatch message: no schema, no compression, no end of stream.
    Arrow(Bytes),
    /// A message for each row.
    Proto(ProtoBatch),
}

/// Why a batch was not encoded.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// The batch is not one of the encoder's converted ones.
    #[error("the batch is not under the writer schema; convert it first")]
    Schema,
    /// Arrow cannot write it.
    #[error("the batch cannot be written as an IPC message: {0}")]
    Arrow(#[from] ArrowError),
    /// The wire schema has a type that is not written as protobuf.
    #[error("column {column} has the type {data_type}, which has no protobuf type")]
    Type {
        /// The column.
        column: String,
        /// Its type in the wire schema.
        data_type: DataType,
    },
}

impl Wire {
    /// For the rows of an encoder for that table.
    ///
    /// # Errors
    /// [`EncodeError::Type`].
    pub fn new(format: Format, encoder: &RowEncoder, table: &TableSchema) -> Result<Self, EncodeError> {
        let schema = SchemaRef::clone(encoder.wire_schema());
        let inner = match format {
            Format::Arrow => Inner::Arrow {
                empty: batch_bytes(&RecordBatch::new_empty(SchemaRef::clone(&schema))),
                writer_schema: ipc::schema_message(&schema),
            },
            Format::Proto => Inner::Proto(Messages::new(&schema, table)?),
        };
        let columns = changes::written(schema.fields(), &table.fields);
        Ok(Self {
            schema,
            columns,
            inner,
        })
    }

    /// What the first request of a connection says of the rows.
    #[must_use]
    pub fn writer_schema(&self) -> WriterSchema {
        match &self.inner {
            Inner::Arrow { writer_schema, .. } => WriterSchema::Arrow(writer_schema.clone()),
            Inner::Proto(messages) => WriterSchema::Proto(messages.descriptor().clone()),
        }
    }

    /// Which of the columns that are written have another type now, each with both types. Rows of this would not be refused there
    /// as a rule, but misread: INT64, TIMESTAMP, TIME and DATETIME are one type in protobuf, and so are NUMERIC and BIGNUMERIC.
    #[must_use]
    pub fn retyped(&self, table: &TableSchema) -> Vec<String> {
        changes::retyped(&self.columns, table)
    }

    /// Whether a table whose columns are of other types may take these rows for other values: protobuf's, whose numbers and bytes do not say
    /// what they are. Arrow's do.
    #[must_use]
    pub fn may_be_misread(&self) -> bool {
        matches!(self.inner, Inner::Proto(_))
    }

    /// Bytes that a request's rows take besides the rows themselves.
    #[must_use]
    pub fn overhead(&self) -> usize {
        match &self.inner {
            Inner::Arrow { empty, .. } => *empty,
            Inner::Proto(_) => 0,
        }
    }

    /// Measures converted rows. What they take as protobuf is known once they are written, so that is done here.
    ///
    /// # Errors
    /// [`EncodeError::Schema`].
    pub fn measure(&self, batch: RecordBatch) -> Result<MeasuredRows, EncodeError> {
        if !Arc::ptr_eq(batch.schema_ref(), &self.schema) && batch.schema_ref() != &self.schema {
            return Err(EncodeError::Schema);
        }
        let form = match &self.inner {
            Inner::Arrow { empty, .. } => Form::arrow(batch, *empty),
            Inner::Proto(messages) => Form::Proto {
                written: messages.write(&batch),
                batch: Some(batch),
            },
        };
        Ok(MeasuredRows { form })
    }

    /// Makes one of several, in their order. Protobuf's share their buffers with those.
    ///
    /// # Errors
    /// [`EncodeError::Arrow`]: a column of all of them ends beyond 2 GiB.
    pub fn join(&self, rows: &[MeasuredRows]) -> Result<MeasuredRows, EncodeError> {
        let batches: Option<Vec<&RecordBatch>> = rows.iter().map(MeasuredRows::batch).collect();
        let batch = batches.map(|batches| concat_batches(&self.schema, batches));
        let form = match (&self.inner, batch.transpose()?) {
            (Inner::Arrow { empty, .. }, Some(batch)) => Form::arrow(batch, *empty),
            (Inner::Arrow { .. }, None) => return Err(EncodeError::Schema),
            (Inner::Proto(messages), batch) => Form::Proto {
                written: messages.joined(rows),
                batch,
            },
        };
        Ok(MeasuredRows { form })
    }

    /// Cuts the rows of a request in two: the first half of them, rounded down, and the others.
    ///
    /// # Errors
    /// [`EncodeError::Arrow`]: these are not rows that this encoded.
    pub fn halve(&self, rows: &EncodedRows) -> Result<(EncodedRows, EncodedRows), EncodeError> {
        Ok(match rows {
            EncodedRows::Arrow(message) => {
                let batch = ipc::read_batch(self.writer_schema().bytes(), message)?;
                let (half, all) = (batch.num_rows() / 2, batch.num_rows());
                let part = |from: usize, to: usize| ipc::batch_message(&batch.slice(from, to - from));
                (
                    EncodedRows::Arrow(part(0, half)?),
                    EncodedRows::Arrow(part(half, all)?),
                )
            }
            EncodedRows::Proto(batch) => {
                let (first, second) = batch.split_at(batch.num_rows() / 2);
                (EncodedRows::Proto(first), EncodedRows::Proto(second))
            }
        })
    }

    /// Makes the rows of one request, in their order. Protobuf's are written already.
    ///
    /// # Errors
    /// [`EncodeError::Arrow`]: one message cannot hold them.
    pub fn encode(&self, rows: &[MeasuredRows]) -> Result<EncodedRows, EncodeError> {
        Ok(match &self.inner {
            Inner::Arrow { .. } => EncodedRows::Arrow(match rows {
                [
                    MeasuredRows {
                        form: Form::Arrow { batch, .. },
                    },
                ] => ipc::batch_message(batch)?,
                _ => match self.join(rows)?.form {
                    Form::Arrow { batch, .. } => ipc::batch_message(&batch)?,
                    Form::Proto { .. } => return Err(EncodeError::Schema),
                },
            }),
            Inner::Proto(messages) => EncodedRows::Proto(messages.joined(rows)),
        })
    }
}

impl Messages {
    /// The rows of all, as they were written.
    fn joined(&self, rows: &[MeasuredRows]) -> ProtoBatch {
        let written = rows.iter().map(|rows| match &rows.form {
            Form::Proto { written, .. } => written.clone(),
            // Measured for the other format.
            Form::Arrow { batch, .. } => self.write(batch),
        });
        ProtoBatch::joined(written)
    }
}

impl WriterSchema {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Arrow(bytes) | Self::Proto(bytes) => bytes,
        }
    }
}

impl MeasuredRows {
    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        match &self.form {
            Form::Arrow { batch, .. } => batch.num_rows(),
            Form::Proto { written, .. } => written.num_rows(),
        }
    }

    /// Bytes that the rows take in a request, without [`Wire::overhead`]. Exact for protobuf; for Arrow a little more at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Arrow { bytes, .. } => *bytes,
            Form::Proto { written, .. } => written.bytes(),
        }
    }

    /// The converted rows themselves, unless they were let go of.
    #[must_use]
    pub fn batch(&self) -> Option<&RecordBatch> {
        match &self.form {
            Form::Arrow { batch, .. } => Some(batch),
            Form::Proto { batch, .. } => batch.as_ref(),
        }
    }

    /// Bytes of memory that the converted rows take beside the written ones. None for Arrow, where they are what is written.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match &self.form {
            Form::Arrow { .. } => 0,
            Form::Proto { batch, .. } => batch.as_ref().map_or(0, batch_bytes),
        }
    }

    /// Lets go of the converted rows where the written ones suffice.
    #[must_use]
    pub fn without_batch(mut self) -> Self {
        if let Form::Proto { batch, .. } = &mut self.form {
            *batch = None;
        }
        self
    }

    /// The same rows, written in buffers of their own, which keep no other rows alive.
    #[must_use]
    pub fn compact(mut self) -> Self {
        if let Form::Proto { written, .. } = &mut self.form {
            *written = written.compact();
        }
        self
    }

    /// The rows that could not go even alone into a request whose rows may take `limit` bytes: the index of each, ascending, and what it
    /// takes. As exact as [`bytes`](Self::bytes).
    #[must_use]
    pub fn rows_over(&self, limit: usize) -> Vec<(usize, usize)> {
        let (sizes, overhead): (Box<dyn Iterator<Item = usize>>, _) = match &self.form {
            Form::Arrow { batch, empty, .. } => {
                let alone = |row| batch_bytes(&batch.slice(row, 1));
                (Box::new((0..self.num_rows()).map(alone)), *empty)
            }
            Form::Proto { written, .. } => (Box::new(written.sizes()), 0),
        };
        if self.bytes() + overhead <= limit {
            return Vec::new();
        }
        sizes.enumerate().filter(|(_, bytes)| *bytes > limit).collect()
    }

    /// How many of the first rows take at most `room` bytes. Rows differ in size, so it is not guessed.
    #[must_use]
    pub fn fitting(&self, room: usize) -> usize {
        match &self.form {
            Form::Arrow { batch, empty, bytes } => {
                if *bytes <= room {
                    return self.num_rows();
                }
                let (mut fits, mut too_many) = (0, self.num_rows());
                while too_many - fits > 1 {
                    let middle = usize::midpoint(fits, too_many);
                    if batch_bytes(&batch.slice(0, middle)) <= room + empty {
                        fits = middle;
                    } else {
                        too_many = middle;
                    }
                }
                fits
            }
            Form::Proto { written, .. } => written.fitting(room),
        }
    }

    /// Cuts the rows in two: the first `rows`, at most all of them, and the others. Nothing is copied.
    #[must_use]
    pub fn split_at(&self, rows: usize) -> (Self, Self) {
        let rows = rows.min(self.num_rows());
        let cut = |batch: &RecordBatch| {
            let rest = batch.num_rows() - rows;
            (batch.slice(0, rows), batch.slice(rows, rest))
        };
        let (first, second) = match &self.form {
            Form::Arrow { batch, empty, .. } => {
                let (first, second) = cut(batch);
                (Form::arrow(first, *empty), Form::arrow(second, *empty))
            }
            Form::Proto { written, batch } => {
                let (front, behind) = batch.as_ref().map(cut).unzip();
                let (first, second) = written.split_at(rows);
                let part = |written, batch| Form::Proto { written, batch };
                (part(first, front), part(second, behind))
            }
        };
        (Self { form: first }, Self { form: second })
    }

    /// The rows without these, by ascending index.
    ///
    /// # Errors
    /// [`EncodeError::Arrow`]: there is no row of such an index.
    pub fn without(&self, rows: &[usize]) -> Result<Self, EncodeError> {
        let mut stays = vec![true; self.num_rows()];
        for &row in rows {
            *stays
                .get_mut(row)
                .ok_or_else(|| ArrowError::InvalidArgumentError(format!("there is no row {row}")))? = false;
        }
        let stays = BooleanArray::from(stays);
        let filter = |batch: &RecordBatch| filter_record_batch(batch, &stays);
        let form = match &self.form {
            Form::Arrow { batch, empty, .. } => Form::arrow(filter(batch)?, *empty),
            Form::Proto { written, batch } => Form::Proto {
                written: written.without(rows),
                batch: batch.as_ref().map(filter).transpose()?,
            },
        };
        Ok(Self { form })
    }
}

impl Form {
    fn arrow(batch: RecordBatch, empty: usize) -> Self {
        let bytes = batch_bytes(&batch).saturating_sub(empty);
        Self::Arrow { batch, empty, bytes }
    }
}

impl EncodedRows {
    /// Bytes that the rows take in a request.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Arrow(message) => message.len(),
            Self::Proto(batch) => batch.bytes(),
        }
    }

    /// As a request holds them; a connection's first request with the writer schema.
    #[must_use]
    pub fn into_request(self, writer_schema: Option<WriterSchema>) -> Rows {
        let schema = writer_schema.map(|schema| schema.bytes().clone());
        match self {
            Self::Arrow(message) => Rows::ArrowRows(ArrowData {
                writer_schema: schema.map(|serialized_schema| ArrowSchema { serialized_schema }),
                rows: Some(ArrowRecordBatch {
                    serialized_record_batch: message,
                    ..Default::default()
                }),
            }),
            Self::Proto(batch) => Rows::ProtoRows(ProtoData {
                writer_schema: schema.map(|proto_descriptor| ProtoSchema { proto_descriptor }),
                rows: Some(ProtoRows {
                    serialized_rows: batch.rows().collect(),
                }),
            }),
        }
    }
}
