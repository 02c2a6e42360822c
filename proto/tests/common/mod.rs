//! What the tests of `rows` share: tables in a line, and a decoder that knows nothing of the encoder.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)] // shared by tests that use a part each

use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, Decimal256Array, RecordBatch};
use arrow_buffer::{Buffer, i256};
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{Field, Schema, SchemaRef};
use bigquery_write_proto::rows::{
    ConvertError, Converted, MissingValues, RowEncoder, RowErrors, RowOptions, SubMicroseconds,
};
use bigquery_write_proto::wire::table_field_schema::{FieldElementType, Mode, Type};
use bigquery_write_proto::wire::{TableFieldSchema, TableSchema};

pub const TRUNCATE: RowOptions = RowOptions {
    sub_microseconds: SubMicroseconds::Truncate,
    missing_values: MissingValues::Null,
};
pub const REFUSE: RowOptions = RowOptions {
    sub_microseconds: SubMicroseconds::Refuse,
    missing_values: MissingValues::Null,
};

/// A nullable column.
pub fn column(name: &str, r#type: Type) -> TableFieldSchema {
    TableFieldSchema {
        name: name.to_owned(),
        r#type: r#type.into(),
        mode: Mode::Nullable.into(),
        ..Default::default()
    }
}

pub fn required(mut column: TableFieldSchema) -> TableFieldSchema {
    column.mode = Mode::Required.into();
    column
}

pub fn repeated(mut column: TableFieldSchema) -> TableFieldSchema {
    column.mode = Mode::Repeated.into();
    column
}

pub fn record(name: &str, fields: Vec<TableFieldSchema>) -> TableFieldSchema {
    TableFieldSchema {
        fields,
        ..column(name, Type::Struct)
    }
}

/// A column `x`.
pub fn range(element: Type) -> TableFieldSchema {
    TableFieldSchema {
        range_element_type: Some(FieldElementType {
            r#type: element.into(),
        }),
        ..column("x", Type::Range)
    }
}

pub fn table(fields: Vec<TableFieldSchema>) -> TableSchema {
    TableSchema { fields }
}

pub fn schema(fields: Vec<Field>) -> SchemaRef {
    Arc::new(Schema::new(fields))
}

/// A batch of one nullable column `x`.
pub fn batch(array: ArrayRef) -> RecordBatch {
    let schema = schema(vec![Field::new("x", array.data_type().clone(), true)]);
    RecordBatch::try_new(schema, vec![array]).unwrap()
}

/// Converts one column `x`.
pub fn convert(
    array: ArrayRef,
    column: TableFieldSchema,
    options: RowOptions,
) -> Result<Converted, RowErrors> {
    let batch = batch(array);
    let encoder = RowEncoder::new(&batch.schema(), &table(vec![column]), options).unwrap();
    encoder.convert(&batch).map_err(|error| match error {
        ConvertError::Rows(rows) => rows,
        other => panic!("{other}"),
    })
}

/// What a server sees: the schema's bytes and the batch's bytes, one behind the other.
pub fn decode(encoder: &RowEncoder, message: &[u8]) -> RecordBatch {
    // The decoder wants bytes behind an empty body.
    const END: [u8; 8] = [255, 255, 255, 255, 0, 0, 0, 0];
    let mut bytes = Buffer::from([encoder.writer_schema(), message, &END].concat());
    let mut decoder = StreamDecoder::new();
    let batch = decoder.decode(&mut bytes).unwrap().expect("a whole record batch");
    assert_eq!(decoder.schema().as_ref(), Some(encoder.wire_schema()));
    assert_eq!(bytes.as_slice(), END, "nothing follows the batch");
    batch
}

pub fn numeric(precision: i64, scale: i64) -> TableFieldSchema {
    TableFieldSchema {
        precision,
        scale,
        ..column("x", Type::Numeric)
    }
}

pub fn limited(r#type: Type, max_length: i64) -> TableFieldSchema {
    TableFieldSchema {
        max_length,
        ..column("x", r#type)
    }
}

pub fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(
        Decimal128Array::from(values)
            .with_precision_and_scale(precision, scale)
            .unwrap(),
    )
}

pub fn wide_decimals(values: &[&str], scale: i8) -> ArrayRef {
    let values = values.iter().map(|text| i256::from_string(text).unwrap());
    Arc::new(
        Decimal256Array::from_iter_values(values)
            .with_precision_and_scale(76, scale)
            .unwrap(),
    )
}
