//! Any batch that fits arrives as it was: random schemas and values, sliced, converted, encoded, decoded, compared value by value.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, TimeUnit};
use bigquery_write_proto::rows::{RowEncoder, batch_bytes};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::{REFUSE, column, decode, record, repeated, schema, table};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A value as BigQuery would hold it.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    Decimal(i256),
    List(Vec<Self>),
    Struct(Vec<Self>),
}

/// A column: the pipeline's type, the table's, and what it may hold.
#[derive(Clone, Debug)]
enum Shape {
    Leaf(Leaf),
    List(Box<Self>),
    Struct(Vec<Self>),
}

/// Values `low..=high`, in steps, of whatever the type counts.
#[derive(Clone, Debug)]
struct Leaf {
    input: DataType,
    r#type: Type,
    low: i64,
    high: i64,
    step: i64,
}

fn leaves() -> Vec<Leaf> {
    use TimeUnit::*;
    let leaf = |input, r#type, low, high, step| Leaf {
        input,
        r#type,
        low,
        high,
        step,
    };
    let whole = |input, r#type| leaf(input, r#type, i64::MIN, i64::MAX, 1);
    let dictionary = |value| DataType::Dictionary(Box::new(DataType::Int32), Box::new(value));
    let stamp = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
    let (first, last) = (-62_135_596_800_000_000, 253_402_300_799_999_999);
    let day = 86_400_000_000;
    let mut leaves = vec![
        leaf(DataType::Boolean, Type::Bool, 0, 1, 1),
        leaf(DataType::Int8, Type::Int64, -128, 127, 1),
        leaf(DataType::Int32, Type::Int64, -1 << 31, (1 << 31) - 1, 1),
        whole(DataType::Int64, Type::Int64),
        whole(dictionary(DataType::Int64), Type::Int64),
        leaf(DataType::UInt32, Type::Int64, 0, u32::MAX.into(), 1),
        leaf(DataType::UInt64, Type::Int64, 0, i64::MAX, 1),
        leaf(DataType::Float32, Type::Double, -1000, 1000, 1),
        whole(DataType::Float64, Type::Double),
        leaf(DataType::Date32, Type::Date, -719_162, 2_932_896, 1),
        leaf(DataType::Date64, Type::Date, -719_162, 2_932_896, 1),
        leaf(DataType::Time32(Millisecond), Type::Time, 0, day - 1000, 1000),
        leaf(DataType::Time64(Nanosecond), Type::Time, 0, day - 1, 1),
        leaf(
            stamp(Second, None),
            Type::Timestamp,
            first,
            last - 999_999,
            1_000_000,
        ),
        leaf(
            stamp(Millisecond, Some("UTC")),
            Type::Datetime,
            first,
            last - 999,
            1_000,
        ),
        leaf(
            stamp(Microsecond, Some("Asia/Tokyo")),
            Type::Timestamp,
            first,
            last,
            1,
        ),
        leaf(stamp(Microsecond, None), Type::Datetime, first, last, 1),
        leaf(
            stamp(Nanosecond, None),
            Type::Timestamp,
            -9_000_000_000_000_000,
            9_000_000_000_000_000,
            1,
        ),
        whole(DataType::Decimal128(38, 9), Type::Numeric),
        leaf(
            DataType::Decimal128(20, 2),
            Type::Numeric,
            -(1 << 60),
            1 << 60,
            10_000_000,
        ),
        leaf(
            DataType::Decimal256(50, 20),
            Type::Numeric,
            -(1 << 60),
            1 << 60,
            1,
        ),
        leaf(
            DataType::Int16,
            Type::Numeric,
            -32_000_000_000_000,
            32_000_000_000_000,
            1_000_000_000,
        ),
        whole(DataType::Decimal256(76, 38), Type::Bignumeric),
        leaf(DataType::Int32, Type::Double, -1 << 31, (1 << 31) - 1, 1),
        leaf(
            DataType::Duration(Second),
            Type::Interval,
            -9_223_372_036_000_000_000,
            9_223_372_036_000_000_000,
            1_000_000_000,
        ),
        leaf(
            DataType::Duration(Nanosecond),
            Type::Interval,
            i64::MIN,
            i64::MAX,
            1_000,
        ),
    ];
    for input in [
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        dictionary(DataType::Utf8),
    ] {
        leaves.push(whole(input.clone(), Type::String));
        leaves.push(whole(input.clone(), Type::Geography));
        leaves.push(whole(input, Type::Json));
    }
    for input in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
        leaves.push(whole(input, Type::Bytes));
    }
    leaves
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = select(leaves()).prop_map(Shape::Leaf);
    let field = |value: BoxedStrategy<Shape>| prop_oneof![3 => value.clone(), 1 => value.prop_map(|shape| Shape::List(Box::new(shape)))];
    let flat = field(leaf.clone().boxed());
    let inner = vec(flat, 1..4).prop_map(Shape::Struct);
    let nested = field(prop_oneof![2 => leaf.clone(), 1 => inner].boxed());
    let outer = vec(nested, 1..4).prop_map(Shape::Struct);
    field(prop_oneof![3 => leaf, 1 => outer].boxed())
}

fn values(shape: &Shape) -> BoxedStrategy<Value> {
    match shape {
        Shape::Leaf(leaf) => leaf_values(leaf.clone()),
        Shape::List(element) => vec(values(element), 0..4).prop_map(Value::List).boxed(),
        Shape::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(nullable).collect();
            fields.prop_map(Value::Struct).boxed()
        }
    }
}

fn nullable(shape: &Shape) -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 4 => values(shape)].boxed()
}

fn leaf_values(leaf: Leaf) -> BoxedStrategy<Value> {
    let Leaf {
        r#type,
        low,
        high,
        step,
        ..
    } = leaf;
    let number =
        prop_oneof![4 => low..=high, 1 => Just(low), 1 => Just(high)].prop_map(move |n| n / step * step);
    match r#type {
        Type::String | Type::Geography => ".{0,20}".prop_map(Value::Text).boxed(),
        Type::Json => number
            .prop_map(|n| Value::Text(format!("{{\"a\": [{n}, \"é\"]}}")))
            .boxed(),
        Type::Bytes => vec(any::<u8>(), 0..20).prop_map(Value::Bytes).boxed(),
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Double if leaf.input.is_integer() => {
            number.prop_map(|n| Value::Float((n as f64).to_bits())).boxed()
        }
        Type::Double if leaf.input == DataType::Float32 => number
            .prop_map(|n| Value::Float((n as f64 / 8.0).to_bits()))
            .boxed(),
        Type::Double => any::<f64>()
            .prop_map(|float| Value::Float(float.to_bits()))
            .boxed(),
        Type::Numeric | Type::Bignumeric => number.prop_map(|n| Value::Decimal(n.into())).boxed(),
        _ => number.prop_map(Value::Int).boxed(),
    }
}

fn target(name: &str, shape: &Shape) -> TableFieldSchema {
    match shape {
        Shape::Leaf(leaf) => column(name, leaf.r#type),
        Shape::List(element) => repeated(target(name, element)),
        Shape::Struct(fields) => record(
            name,
            fields
                .iter()
                .enumerate()
                .map(|(i, field)| target(&format!("f{i}"), field))
                .collect(),
        ),
    }
}

/// The pipeline's array, by way of Arrow's own casts out of the wire's types.
fn build(shape: &Shape, values: &[Value]) -> ArrayRef {
    let valid: Vec<bool> = values.iter().map(|value| *value != Value::Null).collect();
    match shape {
        Shape::Leaf(leaf) => {
            let options = CastOptions {
                safe: false,
                ..Default::default()
            };
            cast_with_options(&build_leaf(leaf.r#type, values), &leaf.input, &options).unwrap()
        }
        Shape::List(element) => {
            let lists: Vec<&[Value]> = values
                .iter()
                .map(|value| {
                    if let Value::List(list) = value {
                        list.as_slice()
                    } else {
                        &[]
                    }
                })
                .collect();
            let elements = build(element, &lists.concat());
            let field = Arc::new(Field::new("field", elements.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
            Arc::new(ListArray::new(
                field,
                offsets,
                elements,
                Some(NullBuffer::from(valid)),
            ))
        }
        Shape::Struct(shapes) => {
            let child = |index: usize| {
                let values: Vec<Value> = values
                    .iter()
                    .map(|value| {
                        if let Value::Struct(fields) = value {
                            fields[index].clone()
                        } else {
                            Value::Null
                        }
                    })
                    .collect();
                build(&shapes[index], &values)
            };
            let children: Vec<ArrayRef> = (0..shapes.len()).map(child).collect();
            let fields: Vec<Field> = children
                .iter()
                .enumerate()
                .map(|(i, child)| Field::new(format!("F{i}"), child.data_type().clone(), true))
                .collect();
            Arc::new(StructArray::new(
                fields.into(),
                children,
                Some(NullBuffer::from(valid)),
            ))
        }
    }
}

fn build_leaf(r#type: Type, values: &[Value]) -> ArrayRef {
    let ints = || {
        values
            .iter()
            .map(|value| if let Value::Int(n) = value { Some(*n) } else { None })
    };
    let decimals = || {
        values.iter().map(|value| {
            if let Value::Decimal(n) = value {
                Some(*n)
            } else {
                None
            }
        })
    };
    match r#type {
        Type::Bool => Arc::new(BooleanArray::from_iter(values.iter().map(|value| {
            if let Value::Bool(b) = value {
                Some(*b)
            } else {
                None
            }
        }))),
        Type::Double => Arc::new(Float64Array::from_iter(values.iter().map(|value| {
            if let Value::Float(f) = value {
                Some(f64::from_bits(*f))
            } else {
                None
            }
        }))),
        Type::String | Type::Json | Type::Geography => {
            Arc::new(StringArray::from_iter(values.iter().map(|value| {
                if let Value::Text(text) = value {
                    Some(text)
                } else {
                    None
                }
            })))
        }
        Type::Bytes => Arc::new(BinaryArray::from_iter(values.iter().map(|value| {
            if let Value::Bytes(bytes) = value {
                Some(bytes)
            } else {
                None
            }
        }))),
        Type::Date => Arc::new(Date32Array::from_iter(ints().map(|n| n.map(|n| n as i32)))),
        Type::Interval => Arc::new(DurationNanosecondArray::from_iter(ints())),
        Type::Time => Arc::new(Time64MicrosecondArray::from_iter(ints())),
        Type::Timestamp => Arc::new(TimestampMicrosecondArray::from_iter(ints()).with_timezone("UTC")),
        Type::Datetime => Arc::new(TimestampMicrosecondArray::from_iter(ints())),
        Type::Numeric => {
            let array = Decimal128Array::from_iter(decimals().map(|n| n.and_then(i256::to_i128)));
            Arc::new(array.with_precision_and_scale(38, 9).unwrap())
        }
        Type::Bignumeric => Arc::new(
            Decimal256Array::from_iter(decimals())
                .with_precision_and_scale(76, 38)
                .unwrap(),
        ),
        _ => Arc::new(Int64Array::from_iter(ints())),
    }
}

/// Reads an array of the wire back.
fn read(array: &dyn Array) -> Vec<Value> {
    (0..array.len())
        .map(|i| {
            if array.is_null(i) {
                Value::Null
            } else {
                read_one(array, i)
            }
        })
        .collect()
}

fn read_one(array: &dyn Array, i: usize) -> Value {
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(i)),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(i)),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(i).to_bits()),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(i).to_owned()),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(i).to_vec()),
        DataType::Date32 => Value::Int(array.as_primitive::<Date32Type>().value(i).into()),
        DataType::Time64(TimeUnit::Microsecond) => {
            Value::Int(array.as_primitive::<Time64MicrosecondType>().value(i))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Value::Int(array.as_primitive::<TimestampMicrosecondType>().value(i))
        }
        DataType::Interval(_) => Value::Int(
            array
                .as_primitive::<IntervalMonthDayNanoType>()
                .value(i)
                .nanoseconds,
        ),
        DataType::Decimal128(38, 9) => {
            Value::Decimal(i256::from_i128(array.as_primitive::<Decimal128Type>().value(i)))
        }
        DataType::Decimal256(76, 38) => Value::Decimal(array.as_primitive::<Decimal256Type>().value(i)),
        DataType::List(_) => Value::List(read(array.as_list::<i32>().value(i).as_ref())),
        DataType::Struct(_) => {
            let row = array.as_struct().slice(i, 1);
            Value::Struct(
                row.columns()
                    .iter()
                    .map(|child| read(child.as_ref()).remove(0))
                    .collect(),
            )
        }
        other => panic!("{other} is no wire type"),
    }
}

/// What BigQuery holds of a value: no array is NULL.
fn held(shape: &Shape, value: &Value) -> Value {
    match (shape, value) {
        (Shape::List(_), Value::Null) => Value::List(Vec::new()),
        (Shape::List(element), Value::List(list)) => {
            Value::List(list.iter().map(|value| held(element, value)).collect())
        }
        (Shape::Struct(shapes), Value::Struct(fields)) => Value::Struct(
            shapes
                .iter()
                .zip(fields)
                .map(|(shape, value)| held(shape, value))
                .collect(),
        ),
        (_, value) => value.clone(),
    }
}

fn batches() -> impl Strategy<Value = (Vec<Shape>, Vec<Vec<Value>>, usize, usize)> {
    (vec(shapes(), 1..5), 0_usize..20).prop_flat_map(|(shapes, rows)| {
        let columns: Vec<_> = shapes
            .iter()
            .map(|shape| vec(nullable(shape), rows..=rows))
            .collect();
        (Just(shapes), columns, 0..=rows, 0..=rows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_batch_that_fits_arrives_value_by_value((shapes, columns, a, b) in batches()) {
        let (start, end) = (a.min(b), a.max(b));
        let arrays: Vec<ArrayRef> =
            shapes.iter().zip(&columns).map(|(shape, values)| build(shape, values)).collect();
        let fields = arrays.iter().enumerate();
        let fields = fields.map(|(i, array)| Field::new(format!("C{i}"), array.data_type().clone(), true));
        let whole = RecordBatch::try_new(schema(fields.collect()), arrays).unwrap();
        let targets = shapes.iter().enumerate().map(|(i, shape)| target(&format!("c{i}"), shape));
        let encoder = RowEncoder::new(&whole.schema(), &table(targets.collect()), REFUSE).unwrap();

        let converted = encoder.convert(&whole.slice(start, end - start)).unwrap();
        prop_assert_eq!(converted.truncated, 0);
        let message = encoder.encode(&converted.batch).unwrap();
        let estimate = batch_bytes(&converted.batch);
        prop_assert!(estimate >= message.len(), "{} for {}", estimate, message.len());
        prop_assert!(estimate <= message.len() + 300, "{} for {}", estimate, message.len());

        let decoded = decode(&encoder, &message);
        prop_assert_eq!(decoded.num_rows(), end - start);
        for ((shape, values), array) in shapes.iter().zip(&columns).zip(decoded.columns()) {
            let expected: Vec<Value> = values[start..end].iter().map(|value| held(shape, value)).collect();
            prop_assert_eq!(read(array.as_ref()), expected);
        }

        // Converted first and sliced then: the same rows.
        let sliced = encoder.convert(&whole).unwrap().batch.slice(start, end - start);
        prop_assert_eq!(decode(&encoder, &encoder.encode(&sliced).unwrap()), decoded);
    }
}
