//! An emulator in this process, and a way through it: rows converted and encoded as the sink does, appended, and read by REST.

use std::fmt;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch, RunArray};
use arrow_schema::{DataType, Field, Schema};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::machine::{CallMeta, Event};
use bigquery_write_emulator::{Config, Handle, schema};
use bigquery_write_proto::rows::{
    ConvertError, Format, MissingValues, PipelineType, RowEncoder, RowErrors, RowOptions, SubMicroseconds,
    TableType, Wire,
};
use bigquery_write_proto::wire::append_rows_response::Response;
use bigquery_write_proto::wire::table_field_schema::{FieldElementType, Mode, Type};
use bigquery_write_proto::wire::{AppendRowsRequest, GetWriteStreamRequest, TableFieldSchema, TableSchema};
use serde_json::Value;
use tower::ServiceExt as _;

/// One column of values, where it goes, and what a reader must find there: of each row REST's `v`.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) column: TableFieldSchema,
    pub(super) array: ArrayRef,
    pub(super) expected: Value,
}

impl Case {
    pub(super) fn new(column: TableFieldSchema, array: impl Array + 'static, expected: Value) -> Self {
        Self::of(column, Arc::new(array), expected)
    }

    pub(super) fn of(column: TableFieldSchema, array: ArrayRef, expected: Value) -> Self {
        Self {
            column,
            array,
            expected,
        }
    }

    /// Which cell of the mapping table it is about.
    pub(super) fn cell(&self) -> (PipelineType, TableType) {
        (
            PipelineType::of(self.array.data_type()),
            TableType::of(&self.column).unwrap(),
        )
    }

    /// The same values as a dictionary, if Arrow can take values of the type by index.
    pub(super) fn in_dictionary(&self) -> Option<ArrayRef> {
        let keys = Int32Array::from_iter_values(0..self.array.len() as i32);
        let values = Arc::clone(&self.array);
        self.is_indexed()
            .then(|| Arc::new(DictionaryArray::<Int32Type>::new(keys, values)) as ArrayRef)
    }

    /// The same values as runs of one.
    pub(super) fn in_runs(&self) -> Option<ArrayRef> {
        let ends = Int32Array::from_iter_values(1..=self.array.len() as i32);
        let runs = || RunArray::<Int32Type>::try_new(&ends, &self.array).unwrap();
        self.is_indexed().then(|| Arc::new(runs()) as ArrayRef)
    }

    /// Arrow 55 takes nothing from views of lists.
    fn is_indexed(&self) -> bool {
        !matches!(
            self.array.data_type(),
            DataType::ListView(_) | DataType::LargeListView(_)
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pipeline, table) = self.cell();
        write!(f, "{pipeline} into {table}")
    }
}

/// An emulator with dataset `p.d`, and how many tables were made.
pub(super) struct World {
    handle: Handle,
    tables: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let handle = Handle::new(&Config::default()).unwrap();
        handle.create_dataset(&DatasetRef::new("p", "d"), "US").unwrap();
        Self { handle, tables: 0 }
    }

    /// Appends one column `x` to a new table of such a column, and reads the table.
    pub(super) async fn arrives(
        &mut self,
        column: &TableFieldSchema,
        array: &ArrayRef,
        format: Format,
    ) -> Value {
        let table = self.table(vec![column.clone()]);
        self.append(&table, &batch(array), format);
        self.rows(&table).await
    }

    /// A new table.
    pub(super) fn table(&mut self, columns: Vec<TableFieldSchema>) -> TableRef {
        self.tables += 1;
        let name = TableRef::new("p", "d", format!("t{}", self.tables));
        let schema = schema::Schema::from_wire(&table_schema(columns)).unwrap();
        self.handle.create_table(&name, schema).unwrap();
        name
    }

    /// Appends a batch as the sink would: by the schema that the stream tells.
    pub(super) fn append(&self, table: &TableRef, batch: &RecordBatch, format: Format) {
        let schema = self.told(table);
        let encoder = RowEncoder::new(&batch.schema(), &schema, truncating()).unwrap();
        let converted = encoder.convert(batch).unwrap();
        assert_eq!(converted.truncated, 0);
        let wire = Wire::new(format, &encoder, &schema).unwrap();
        let rows = wire.encode(&[wire.measure(converted.batch).unwrap()]).unwrap();
        let request = AppendRowsRequest {
            write_stream: stream(table),
            rows: Some(rows.into_request(Some(wire.writer_schema()))),
            ..AppendRowsRequest::default()
        };
        let now = self.handle.shared().now();
        let outputs = self.handle.shared().with(|machine| {
            let connection = machine.open_append(now, CallMeta::default());
            let mut outputs = machine.append(now, connection, &request);
            outputs.extend(machine.half_close(connection));
            outputs
        });
        let answer = outputs.first().map(|output| &output.event);
        let taken = matches!(
            answer,
            Some(Event::Answer(answer)) if matches!(answer.response, Some(Response::AppendResult(_)))
        );
        assert!(taken, "{format:?} of {}: {outputs:?}", encoder.wire_schema());
    }

    /// A table's schema, as the Write API tells it.
    pub(super) fn told(&self, table: &TableRef) -> TableSchema {
        let now = self.handle.shared().now();
        let request = GetWriteStreamRequest {
            name: stream(table),
            // FULL.
            view: 2,
        };
        let reply = self
            .handle
            .shared()
            .with(|machine| machine.get_write_stream(now, &CallMeta::default(), &request));
        reply.result.unwrap().table_schema.unwrap()
    }

    /// What `tabledata.list` says of each row: the value, if there is one column, or the list of them.
    pub(super) async fn rows(&self, table: &TableRef) -> Value {
        let path = format!(
            "/bigquery/v2/projects/p/datasets/d/tables/{}/data?formatOptions.timestampOutputFormat=ISO8601_STRING",
            table.table
        );
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = self.handle.rest().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let row = |row: &Value| match row["f"].as_array().unwrap().as_slice() {
            [cell] => cell["v"].clone(),
            cells => cells.iter().map(|cell| cell["v"].clone()).collect(),
        };
        body["rows"]
            .as_array()
            .map(|rows| rows.iter().map(row).collect())
            .unwrap_or_default()
    }
}

fn stream(table: &TableRef) -> String {
    format!("projects/p/datasets/d/tables/{}/streams/_default", table.table)
}

/// What the default options are.
pub(super) fn truncating() -> RowOptions {
    RowOptions {
        sub_microseconds: SubMicroseconds::Truncate,
        missing_values: MissingValues::Null,
    }
}

/// A batch of one nullable column `x`.
pub(super) fn batch(array: &ArrayRef) -> RecordBatch {
    let field = Field::new("x", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(array)]).unwrap()
}

/// What is said of rows that do not fit.
pub(super) fn refused(column: TableFieldSchema, array: impl Array + 'static) -> RowErrors {
    let batch = batch(&(Arc::new(array) as ArrayRef));
    let encoder = RowEncoder::new(&batch.schema(), &table_schema(vec![column]), truncating()).unwrap();
    match encoder.convert(&batch).unwrap_err() {
        ConvertError::Rows(errors) => errors,
        other => panic!("{other}"),
    }
}

/// Rows that do not fit, counted from 1, and why.
pub(super) fn reasons(errors: &RowErrors) -> Vec<(usize, String)> {
    let errors = errors.errors.iter();
    errors
        .map(|error| (error.row + 1, error.reason.to_string()))
        .collect()
}

pub(super) fn table_schema(fields: Vec<TableFieldSchema>) -> TableSchema {
    TableSchema { fields }
}

/// A nullable column `x`; not of an array or a STRUCT.
pub(super) fn column(table: TableType) -> TableFieldSchema {
    let range = |element: Type| (Type::Range, Some(element));
    let (r#type, element) = match table {
        TableType::Bool => (Type::Bool, None),
        TableType::Int64 => (Type::Int64, None),
        TableType::Float64 => (Type::Double, None),
        TableType::Numeric => (Type::Numeric, None),
        TableType::BigNumeric => (Type::Bignumeric, None),
        TableType::String => (Type::String, None),
        TableType::Bytes => (Type::Bytes, None),
        TableType::Date => (Type::Date, None),
        TableType::Time => (Type::Time, None),
        TableType::Datetime => (Type::Datetime, None),
        TableType::Timestamp | TableType::TimestampPicoseconds => (Type::Timestamp, None),
        TableType::Interval => (Type::Interval, None),
        TableType::Json => (Type::Json, None),
        TableType::Geography => (Type::Geography, None),
        TableType::RangeOfDate => range(Type::Date),
        TableType::RangeOfDatetime => range(Type::Datetime),
        TableType::RangeOfTimestamp => range(Type::Timestamp),
        TableType::Struct | TableType::Array => panic!("{table} needs fields or elements"),
    };
    TableFieldSchema {
        name: "x".to_owned(),
        r#type: r#type.into(),
        mode: Mode::Nullable.into(),
        range_element_type: element.map(|element| FieldElementType {
            r#type: element.into(),
        }),
        timestamp_precision: (table == TableType::TimestampPicoseconds).then_some(12),
        ..TableFieldSchema::default()
    }
}

pub(super) fn named(name: &str, column: TableFieldSchema) -> TableFieldSchema {
    TableFieldSchema {
        name: name.to_owned(),
        ..column
    }
}

pub(super) fn required(mut column: TableFieldSchema) -> TableFieldSchema {
    column.mode = Mode::Required.into();
    column
}

pub(super) fn array_of(mut element: TableFieldSchema) -> TableFieldSchema {
    element.mode = Mode::Repeated.into();
    element
}

/// A STRUCT `x`.
pub(super) fn struct_of(names: &[&str], columns: &[TableFieldSchema]) -> TableFieldSchema {
    let fields = names.iter().zip(columns);
    TableFieldSchema {
        name: "x".to_owned(),
        r#type: Type::Struct.into(),
        mode: Mode::Nullable.into(),
        fields: fields.map(|(name, column)| named(name, column.clone())).collect(),
        ..TableFieldSchema::default()
    }
}

/// NUMERIC or BIGNUMERIC of so many digits, so many of them behind the point.
pub(super) fn digits(table: TableType, precision: i64, scale: i64) -> TableFieldSchema {
    TableFieldSchema {
        precision,
        scale,
        ..column(table)
    }
}

/// STRING or BYTES of so many characters or bytes.
pub(super) fn at_most(table: TableType, max_length: i64) -> TableFieldSchema {
    TableFieldSchema {
        max_length,
        ..column(table)
    }
}
