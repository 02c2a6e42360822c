//! Rows that travel as Arrow and rows that travel as protobuf are the same rows in the table, and those that went in: random
//! schemas and values through both encoders into the emulator, which reads them by code of its own.

#![allow(
    clippy::unwrap_used,
    reason = "clippy lets test functions unwrap, but not their helpers"
)]

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::machine::{CallMeta, Event};
use bigquery_write_emulator::schema::Schema;
use bigquery_write_emulator::{Config, Handle};
use bigquery_write_proto::rows::{
    Format, MeasuredRows, MissingValues, RowEncoder, RowOptions, SubMicroseconds, Wire,
};
use bigquery_write_proto::wire::append_rows_response::Response;
use bigquery_write_proto::wire::table_field_schema::{FieldElementType, Mode, Type};
use bigquery_write_proto::wire::{AppendRowsRequest, TableFieldSchema, TableSchema};
use proptest::prelude::*;
use proptest::sample::select;
use prost::Message as _;

/// A column of the table, or a field of a STRUCT.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    mode: Mode,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Leaf(Leaf),
    Struct(Vec<Column>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Bool,
    Int64,
    Float64,
    String,
    Json,
    Geography,
    Bytes,
    Date,
    Time,
    Datetime,
    Timestamp,
    Picoseconds,
    Interval,
    Numeric,
    BigNumeric,
    Range(Bound),
    /// NUMERIC of so many digits before the point, and behind it.
    BoundedNumeric(u8, u8),
    /// STRING of at most so many characters.
    BoundedString(u8),
}

/// What a RANGE is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Date,
    Datetime,
    Timestamp,
}

impl Bound {
    fn leaf(self) -> Leaf {
        match self {
            Self::Date => Leaf::Date,
            Self::Datetime => Leaf::Datetime,
            Self::Timestamp => Leaf::Timestamp,
        }
    }
}

const LEAVES: [Leaf; 18] = [
    Leaf::Bool,
    Leaf::Int64,
    Leaf::Float64,
    Leaf::String,
    Leaf::Json,
    Leaf::Geography,
    Leaf::Bytes,
    Leaf::Date,
    Leaf::Time,
    Leaf::Datetime,
    Leaf::Timestamp,
    Leaf::Picoseconds,
    Leaf::Interval,
    Leaf::Numeric,
    Leaf::BigNumeric,
    Leaf::Range(Bound::Date),
    Leaf::Range(Bound::Datetime),
    Leaf::Range(Bound::Timestamp),
];

/// A value as BigQuery holds it; an INTERVAL is its months, days and microseconds, a RANGE its bounds.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    /// Whatever is counted: numbers, days, microseconds; nanoseconds for TIMESTAMP(12).
    Int(i64),
    /// A float's bits.
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    Decimal(i256),
    List(Vec<Self>),
    Struct(Vec<Self>),
}

// Schemas.

/// Columns under names that differ in more than case; some of them no protobuf field can have. STRUCTs in different places have
/// fields of the same names.
fn columns(depth: u32) -> BoxedStrategy<Vec<Column>> {
    let modes = select(vec![
        Mode::Nullable,
        Mode::Nullable,
        Mode::Required,
        Mode::Repeated,
    ]);
    let bounded = prop_oneof![
        (1_u8..=29, 0_u8..=9).prop_map(|(integer, fraction)| Leaf::BoundedNumeric(integer, fraction)),
        (1_u8..=10).prop_map(Leaf::BoundedString),
    ];
    let leaf = prop_oneof![9 => select(LEAVES.to_vec()), 1 => bounded].prop_map(Kind::Leaf);
    let kind = match depth {
        0 => leaf.boxed(),
        _ => prop_oneof![3 => leaf, 1 => columns(depth - 1).prop_map(Kind::Struct)].boxed(),
    };
    let names = ["a", "B_2", "größe", "with space", "Struct1", "col_3", "Row"];
    proptest::collection::vec((modes, kind), 1..=5)
        .prop_map(move |columns| {
            let named = columns.into_iter().zip(names).map(|((mode, kind), name)| Column {
                name: name.to_owned(),
                mode,
                kind,
            });
            named.collect()
        })
        .boxed()
}

fn table_field(column: &Column) -> TableFieldSchema {
    let mut field = TableFieldSchema {
        name: column.name.clone(),
        mode: column.mode.into(),
        ..Default::default()
    };
    let r#type = match &column.kind {
        Kind::Struct(fields) => {
            field.fields = fields.iter().map(table_field).collect();
            Type::Struct
        }
        Kind::Leaf(leaf) => match leaf {
            Leaf::Bool => Type::Bool,
            Leaf::Int64 => Type::Int64,
            Leaf::Float64 => Type::Double,
            Leaf::String => Type::String,
            Leaf::Json => Type::Json,
            Leaf::Geography => Type::Geography,
            Leaf::Bytes => Type::Bytes,
            Leaf::Date => Type::Date,
            Leaf::Time => Type::Time,
            Leaf::Datetime => Type::Datetime,
            Leaf::Timestamp => Type::Timestamp,
            Leaf::Picoseconds => {
                field.timestamp_precision = Some(12);
                Type::Timestamp
            }
            Leaf::Interval => Type::Interval,
            Leaf::Numeric => Type::Numeric,
            Leaf::BigNumeric => Type::Bignumeric,
            Leaf::Range(bound) => {
                let r#type = match bound {
                    Bound::Date => Type::Date,
                    Bound::Datetime => Type::Datetime,
                    Bound::Timestamp => Type::Timestamp,
                };
                let r#type = r#type.into();
                field.range_element_type = Some(FieldElementType { r#type });
                Type::Range
            }
            Leaf::BoundedNumeric(integer, fraction) => {
                field.precision = i64::from(integer + fraction);
                field.scale = i64::from(*fraction);
                Type::Numeric
            }
            Leaf::BoundedString(characters) => {
                field.max_length = i64::from(*characters);
                Type::String
            }
        },
    };
    field.r#type = r#type.into();
    field
}

/// The pipeline's type of a value.
fn data_type(kind: &Kind) -> DataType {
    match kind {
        Kind::Struct(columns) => DataType::Struct(fields(columns)),
        Kind::Leaf(leaf) => match leaf {
            Leaf::Bool => DataType::Boolean,
            Leaf::Int64 => DataType::Int64,
            Leaf::Float64 => DataType::Float64,
            Leaf::String | Leaf::BoundedString(_) | Leaf::Json | Leaf::Geography => DataType::Utf8,
            Leaf::Bytes => DataType::Binary,
            Leaf::Date => DataType::Date32,
            Leaf::Time => DataType::Time64(TimeUnit::Microsecond),
            Leaf::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
            Leaf::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Leaf::Picoseconds => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Leaf::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Leaf::Numeric | Leaf::BoundedNumeric(..) => DataType::Decimal128(38, 9),
            Leaf::BigNumeric => DataType::Decimal256(76, 38),
            Leaf::Range(bound) => DataType::Struct(fields(&bounds(*bound))),
        },
    }
}

/// The fields of a RANGE as the pipeline has it.
fn bounds(of: Bound) -> [Column; 2] {
    ["start", "end"].map(|name| Column {
        name: name.to_owned(),
        mode: Mode::Nullable,
        kind: Kind::Leaf(of.leaf()),
    })
}

fn fields(columns: &[Column]) -> Fields {
    let field = |column: &Column| {
        let value = data_type(&column.kind);
        let data_type = match column.mode {
            Mode::Repeated => DataType::new_list(value, true),
            _ => value,
        };
        Field::new(&column.name, data_type, true)
    };
    columns.iter().map(field).collect()
}

// Values.

/// Bits that follow from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Between the two, and often at an edge or zero.
    fn between(&mut self, least: i64, most: i64) -> i64 {
        match self.below(5) {
            0 => least,
            1 => most,
            2 => 0.clamp(least, most),
            3 => (self.next() as i64 >> 40).clamp(least, most),
            _ => {
                let width = i128::from(most) - i128::from(least) + 1;
                (i128::from(least) + i128::from(self.next()) % width) as i64
            }
        }
    }

    /// At most 10^digits - 1, with either sign.
    fn decimal(&mut self, digits: u32) -> Value {
        let ten = i256::from_i128(10);
        let most = ten.checked_pow(digits).unwrap().wrapping_sub(i256::from_i128(1));
        let drawn = i256::from_parts(
            u128::from(self.next()) << 64 | u128::from(self.next()),
            i128::from(self.next() >> 2),
        );
        let value = match self.below(5) {
            0 => most,
            1 => i256::ZERO,
            2 => i256::from_i128(i128::from(self.next() >> 30)).wrapping_rem(most),
            _ => drawn.wrapping_rem(most),
        };
        Value::Decimal(if self.below(2) == 0 {
            value
        } else {
            value.wrapping_neg()
        })
    }

    fn text(&mut self) -> String {
        let length = self.one_of(&[0, 1, 5, 40, 200]);
        self.text_of(length)
    }

    fn text_of(&mut self, characters: usize) -> String {
        (0..characters)
            .map(|_| self.one_of(&['a', 'ß', '\0', '日', '💥', '"']))
            .collect()
    }

    fn row(&mut self, columns: &[Column]) -> Vec<Value> {
        columns.iter().map(|column| self.column(column)).collect()
    }

    fn column(&mut self, column: &Column) -> Value {
        match column.mode {
            Mode::Repeated if self.below(6) == 0 => Value::Null,
            Mode::Repeated => {
                let length = self.below(4);
                Value::List((0..length).map(|_| self.value(&column.kind)).collect())
            }
            Mode::Nullable if self.below(4) == 0 => Value::Null,
            _ => self.value(&column.kind),
        }
    }

    fn value(&mut self, kind: &Kind) -> Value {
        let leaf = match kind {
            Kind::Struct(columns) => return Value::Struct(self.row(columns)),
            Kind::Leaf(leaf) => leaf,
        };
        match leaf {
            Leaf::Bool => Value::Bool(self.below(2) == 0),
            Leaf::Int64 => Value::Int(self.between(i64::MIN, i64::MAX)),
            Leaf::Float64 => {
                let drawn = f64::from_bits(self.next());
                let some = [0.0, -0.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, 0.1, drawn];
                Value::Float(self.one_of(&some).to_bits())
            }
            Leaf::String => Value::Text(self.text()),
            Leaf::Json => Value::Text(self.one_of(&["1", "\"x\"", "[]", "{\"a\":[true]}"]).to_owned()),
            Leaf::Geography => Value::Text(self.one_of(&["POINT(1 2)", "POINT(-70.5 0)"]).to_owned()),
            Leaf::Bytes => Value::Bytes(self.text().into_bytes()),
            Leaf::Date | Leaf::Datetime | Leaf::Timestamp => {
                let (first, last) = ends(*leaf);
                Value::Int(self.between(first, last))
            }
            Leaf::Time => Value::Int(self.between(0, 86_399_999_999)),
            Leaf::Picoseconds => Value::Int(self.between(i64::MIN, i64::MAX)),
            Leaf::Interval => Value::Struct(vec![
                Value::Int(self.between(-120_000, 120_000)),
                Value::Int(self.between(-3_660_000, 3_660_000)),
                Value::Int(self.between(i64::MIN / 1_000, i64::MAX / 1_000)),
            ]),
            Leaf::Numeric => self.decimal(38),
            Leaf::BigNumeric => self.decimal(76),
            Leaf::BoundedNumeric(integer, fraction) => {
                let Value::Decimal(value) = self.decimal(u32::from(integer + fraction)) else {
                    unreachable!("a decimal");
                };
                let unit = i256::from_i128(10_i128.pow(u32::from(9 - fraction)));
                Value::Decimal(value.wrapping_mul(unit))
            }
            Leaf::BoundedString(most) => {
                let characters = self.below(usize::from(*most) + 1);
                Value::Text(self.text_of(characters))
            }
            Leaf::Range(bound) => {
                let (first, last) = ends(bound.leaf());
                let start = self.between(first, last - 1);
                let end = self.between(start + 1, last);
                let mut bound = |at| {
                    if self.below(3) == 0 {
                        Value::Null
                    } else {
                        Value::Int(at)
                    }
                };
                Value::Struct(vec![bound(start), bound(end)])
            }
        }
    }
}

/// The first and the last day or microsecond.
fn ends(leaf: Leaf) -> (i64, i64) {
    match leaf {
        Leaf::Date => (-719_162, 2_932_896),
        _ => (-62_135_596_800_000_000, 253_402_300_799_999_999),
    }
}

/// What BigQuery keeps of a row: an array that is NULL is empty.
fn kept(columns: &[Column], row: &[Value]) -> Vec<Value> {
    let pairs = columns.iter().zip(row);
    let value = |(column, value): (&Column, &Value)| match (value, &column.kind) {
        (Value::Null, _) if column.mode == Mode::Repeated => Value::List(Vec::new()),
        (Value::List(elements), Kind::Struct(fields)) => {
            let element = |element: &Value| kept_struct(fields, element);
            Value::List(elements.iter().map(element).collect())
        }
        (value, Kind::Struct(fields)) => kept_struct(fields, value),
        (value, Kind::Leaf(_)) => value.clone(),
    };
    pairs.map(value).collect()
}

fn kept_struct(fields: &[Column], value: &Value) -> Value {
    match parts(value) {
        Some(parts) => Value::Struct(kept(fields, parts)),
        None => value.clone(),
    }
}

// Arrays of values.

fn batch(columns: &[Column], rows: &[Vec<Value>]) -> RecordBatch {
    let arrays = (0..columns.len()).map(|at| {
        let values: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        array(&columns[at], &values)
    });
    let schema = Arc::new(arrow_schema::Schema::new(fields(columns)));
    RecordBatch::try_new(schema, arrays.collect()).unwrap()
}

fn array(column: &Column, values: &[&Value]) -> ArrayRef {
    if column.mode != Mode::Repeated {
        return single(&column.kind, values);
    }
    let lists: Vec<&[Value]> = values
        .iter()
        .map(|value| match value {
            Value::List(elements) => elements.as_slice(),
            _ => &[],
        })
        .collect();
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
    let elements: Vec<&Value> = lists.iter().copied().flatten().collect();
    let item = Arc::new(Field::new_list_field(data_type(&column.kind), true));
    let nulls = NullBuffer::from_iter(values.iter().map(|value| **value != Value::Null));
    Arc::new(ListArray::new(
        item,
        offsets,
        single(&column.kind, &elements),
        Some(nulls),
    ))
}

fn single(kind: &Kind, values: &[&Value]) -> ArrayRef {
    let leaf = match kind {
        Kind::Struct(columns) => return structs(columns, values),
        Kind::Leaf(leaf) => leaf,
    };
    let ints = || values.iter().map(|value| int(value));
    let texts = || {
        values.iter().map(|value| {
            if let Value::Text(text) = value {
                Some(text)
            } else {
                None
            }
        })
    };
    let decimals = || {
        values.iter().map(|value| {
            if let Value::Decimal(value) = value {
                Some(*value)
            } else {
                None
            }
        })
    };
    match leaf {
        Leaf::Bool => Arc::new(BooleanArray::from_iter(values.iter().map(|value| {
            if let Value::Bool(value) = value {
                Some(*value)
            } else {
                None
            }
        }))),
        Leaf::Int64 => Arc::new(Int64Array::from_iter(ints())),
        Leaf::Float64 => Arc::new(Float64Array::from_iter(values.iter().map(|value| match value {
            Value::Float(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }))),
        Leaf::String | Leaf::BoundedString(_) | Leaf::Json | Leaf::Geography => {
            Arc::new(StringArray::from_iter(texts()))
        }
        Leaf::Bytes => Arc::new(BinaryArray::from_iter(values.iter().map(|value| {
            if let Value::Bytes(bytes) = value {
                Some(bytes)
            } else {
                None
            }
        }))),
        Leaf::Date => Arc::new(Date32Array::from_iter(
            ints().map(|days| days.map(|days| days as i32)),
        )),
        Leaf::Time => Arc::new(Time64MicrosecondArray::from_iter(ints())),
        Leaf::Datetime => Arc::new(TimestampMicrosecondArray::from_iter(ints())),
        Leaf::Timestamp => Arc::new(TimestampMicrosecondArray::from_iter(ints()).with_timezone("UTC")),
        Leaf::Picoseconds => Arc::new(TimestampNanosecondArray::from_iter(ints()).with_timezone("UTC")),
        Leaf::Interval => Arc::new(IntervalMonthDayNanoArray::from_iter(values.iter().map(|value| {
            let parts = parts(value)?;
            let [months, days, micros] = [0, 1, 2].map(|at| int(&parts[at]).unwrap());
            Some(IntervalMonthDayNano::new(
                months as i32,
                days as i32,
                micros * 1_000,
            ))
        }))),
        Leaf::Numeric | Leaf::BoundedNumeric(..) => {
            let values = decimals().map(|value| value.map(|value| value.to_i128().unwrap()));
            Arc::new(
                Decimal128Array::from_iter(values)
                    .with_precision_and_scale(38, 9)
                    .unwrap(),
            )
        }
        Leaf::BigNumeric => Arc::new(
            Decimal256Array::from_iter(decimals())
                .with_precision_and_scale(76, 38)
                .unwrap(),
        ),
        Leaf::Range(bound) => structs(&bounds(*bound), values),
    }
}

fn structs(columns: &[Column], values: &[&Value]) -> ArrayRef {
    let nulls = NullBuffer::from_iter(values.iter().map(|value| **value != Value::Null));
    let arrays = columns.iter().enumerate().map(|(at, column)| {
        let inner: Vec<&Value> = values
            .iter()
            .map(|value| parts(value).map_or(&Value::Null, |parts| &parts[at]))
            .collect();
        array(column, &inner)
    });
    Arc::new(StructArray::new(fields(columns), arrays.collect(), Some(nulls)))
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        _ => None,
    }
}

fn parts(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Struct(parts) => Some(parts),
        _ => None,
    }
}

// Values of the emulator's arrays.

fn rows_of(columns: &[Column], batch: &RecordBatch) -> Vec<Vec<Value>> {
    (0..batch.num_rows())
        .map(|row| {
            let pairs = columns.iter().zip(batch.columns());
            pairs
                .map(|(column, array)| read(column, array.as_ref(), row))
                .collect()
        })
        .collect()
}

fn read(column: &Column, array: &dyn Array, row: usize) -> Value {
    if column.mode != Mode::Repeated {
        return read_single(&column.kind, array, row);
    }
    let elements = array.as_list::<i32>().value(row);
    Value::List(
        (0..elements.len())
            .map(|at| read_single(&column.kind, elements.as_ref(), at))
            .collect(),
    )
}

fn read_single(kind: &Kind, array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    let int_at = |array: &dyn Array| match array.data_type() {
        DataType::Int32 => i64::from(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row),
        DataType::Date32 => i64::from(array.as_primitive::<Date32Type>().value(row)),
        DataType::Time64(_) => array.as_primitive::<Time64MicrosecondType>().value(row),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row)
        }
        other => panic!("{other} is no number"),
    };
    let leaf = match kind {
        Kind::Struct(columns) => {
            let inner = columns.iter().zip(array.as_struct().columns());
            return Value::Struct(
                inner
                    .map(|(column, array)| read(column, array.as_ref(), row))
                    .collect(),
            );
        }
        Kind::Leaf(leaf) => leaf,
    };
    match leaf {
        Leaf::Bool => Value::Bool(array.as_boolean().value(row)),
        Leaf::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row).to_bits()),
        Leaf::String | Leaf::BoundedString(_) | Leaf::Json | Leaf::Geography => {
            Value::Text(array.as_string::<i32>().value(row).to_owned())
        }
        Leaf::Bytes => Value::Bytes(array.as_binary::<i32>().value(row).to_owned()),
        Leaf::Int64 | Leaf::Date | Leaf::Time | Leaf::Datetime | Leaf::Timestamp => Value::Int(int_at(array)),
        Leaf::Picoseconds => {
            let picoseconds = array.as_primitive::<Decimal128Type>().value(row);
            assert_eq!(picoseconds % 1_000, 0);
            Value::Int((picoseconds / 1_000).try_into().unwrap())
        }
        Leaf::Numeric | Leaf::BoundedNumeric(..) => {
            Value::Decimal(i256::from_i128(array.as_primitive::<Decimal128Type>().value(row)))
        }
        Leaf::BigNumeric => Value::Decimal(array.as_primitive::<Decimal256Type>().value(row)),
        Leaf::Interval | Leaf::Range(_) => {
            let parts = array
                .as_struct()
                .columns()
                .iter()
                .map(|part| match part.is_null(row) {
                    true => Value::Null,
                    false => Value::Int(int_at(part.as_ref())),
                });
            Value::Struct(parts.collect())
        }
    }
}

// The emulator.

/// What a table holds after it was sent rows in one format: those before the second cut in a request, joined of the pieces before and
/// behind the first; then the others.
fn stored(
    handle: &Handle,
    name: &str,
    schema: &TableSchema,
    batch: &RecordBatch,
    format: Format,
    cuts: [usize; 2],
) -> RecordBatch {
    let table = TableRef::new("p", "d", name);
    handle
        .create_table(&table, Schema::from_wire(schema).unwrap())
        .unwrap();
    let options = RowOptions {
        sub_microseconds: SubMicroseconds::Refuse,
        missing_values: MissingValues::Null,
    };
    let encoder = RowEncoder::new(&batch.schema(), schema, options).unwrap();
    let wire = Wire::new(format, &encoder, schema).unwrap();
    let measured = |batch: RecordBatch| wire.measure(encoder.convert(&batch).unwrap().batch).unwrap();
    let cuts = cuts.map(|cut| cut.min(batch.num_rows()));
    let (first, second) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
    let front = measured(batch.slice(0, first));
    let (middle, last) = measured(batch.slice(first, batch.num_rows() - first)).split_at(second - first);
    let filled = |rows: &MeasuredRows| rows.num_rows() > 0;
    let requests: Vec<Vec<MeasuredRows>> = [vec![front, middle], vec![last]]
        .into_iter()
        .map(|pieces| pieces.into_iter().filter(filled).collect())
        .filter(|pieces: &Vec<_>| !pieces.is_empty())
        .collect();
    handle.shared().with(|machine| {
        let connection = machine.open_append(0, CallMeta::default());
        for (at, rows) in requests.into_iter().enumerate() {
            let request = AppendRowsRequest {
                write_stream: format!("projects/p/datasets/d/tables/{name}/streams/_default"),
                rows: Some(wire.encode(&rows).unwrap().into_request((at == 0).then(|| wire.writer_schema()))),
                ..Default::default()
            };
            let request = AppendRowsRequest::decode(request.encode_to_vec().as_slice()).unwrap();
            let outputs = machine.append(0, connection, &request);
            let answered = |event: &Event| {
                matches!(event, Event::Answer(answer) if matches!(answer.response, Some(Response::AppendResult(_))))
            };
            assert!(outputs.iter().all(|output| answered(&output.event)), "{format:?}: {outputs:?}");
        }
        machine.half_close(connection);
    });
    handle.rows(&table).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_the_same_in_either_format_and_those_that_went_in(
        columns in columns(4),
        seed in any::<u64>(),
        count in 1_usize..12,
        cuts in [0_usize..12, 0..12],
    ) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let rows: Vec<Vec<Value>> = (0..count).map(|_| random.row(&columns)).collect();
        let batch = batch(&columns, &rows);
        let schema = TableSchema { fields: columns.iter().map(table_field).collect() };
        let handle = Handle::new(&Config::default()).unwrap();
        handle.create_dataset(&DatasetRef::new("p", "d"), "US").unwrap();
        let arrow = stored(&handle, "a", &schema, &batch, Format::Arrow, cuts);
        let proto = stored(&handle, "p", &schema, &batch, Format::Proto, cuts);
        let kept: Vec<_> = rows.iter().map(|row| kept(&columns, row)).collect();
        prop_assert_eq!(&rows_of(&columns, &proto), &kept);
        prop_assert_eq!(proto, arrow);
    }
}
