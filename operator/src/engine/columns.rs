//! What the sink's rows look like: types from the batches, and from the DDL what the engine's planner drops on the way (T18): JSON-ness
//! and NOT NULL. A batch's column is nullable, and not marked as JSON, wherever the query's expression says so.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use crate::error::SinkError;

/// The engine's event time, a column of every batch.
pub const TIMESTAMP: &str = "_timestamp";

/// What the DDL says of the columns.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The columns, none if they are inferred from the query.
    pub columns: Vec<FieldRef>,
    /// Those of the primary key, in the order of the columns.
    pub primary_key: Vec<String>,
}

impl Declared {
    /// The columns as a schema; none if they are inferred.
    #[must_use]
    pub fn schema(&self) -> Option<SchemaRef> {
        let schema = || Arc::new(Schema::new(self.columns.clone()));
        (!self.columns.is_empty()).then(schema)
    }
}

/// The columns that rows are written with, and where they are in a batch.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    /// Which of the batch's; none for all of them.
    taken: Option<Vec<usize>>,
}

impl Columns {
    /// Those of the batches, without the engine's own unless the table has one of that name.
    pub(super) fn new(input: &SchemaRef, declared: &Declared, has_timestamp: bool) -> Self {
        let is_taken = |field: &Field| has_timestamp || field.name() != TIMESTAMP;
        let taken: Vec<usize> = (0..input.fields().len())
            .filter(|&index| is_taken(input.field(index)))
            .collect();
        let fields = taken.iter().map(|&index| {
            let field = &input.fields()[index];
            let of_ddl = declared
                .columns
                .iter()
                .find(|column| column.name() == field.name());
            of_ddl.map_or_else(|| Arc::clone(field), |column| Arc::new(joined(field, column)))
        });
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Fields>())),
            taken: (taken.len() < input.fields().len()).then_some(taken),
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The columns to write of a batch. Arrays are shared, not copied.
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, SinkError> {
        let Some(taken) = &self.taken else {
            return Ok(batch.clone());
        };
        batch.project(taken).map_err(|error| {
            SinkError::internal("a batch has fewer columns than the engine announced").with_source(error)
        })
    }
}

/// A column of the batch, as it was declared.
fn joined(input: &Field, declared: &Field) -> Field {
    let data_type = joined_type(input.data_type(), declared.data_type());
    let mut metadata = input.metadata().clone();
    let of_ddl = declared.metadata().iter();
    metadata.extend(of_ddl.map(|(key, value)| (key.clone(), value.clone())));
    Field::new(input.name(), data_type, declared.is_nullable()).with_metadata(metadata)
}

fn joined_type(input: &DataType, declared: &DataType) -> DataType {
    match (input, declared) {
        (DataType::Struct(input), DataType::Struct(declared)) => {
            let field = |field: &FieldRef| {
                let of_ddl = declared.iter().find(|declared| declared.name() == field.name());
                of_ddl.map_or_else(|| Arc::clone(field), |declared| Arc::new(joined(field, declared)))
            };
            DataType::Struct(input.iter().map(field).collect())
        }
        (DataType::List(input), DataType::List(declared)) => {
            DataType::List(Arc::new(joined(input, declared)))
        }
        (input, _) => input.clone(),
    }
}
