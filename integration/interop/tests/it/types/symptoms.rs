//! What users of other sinks reported of types, values and names (reports.md E and F), each by its smallest input.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bigquery_write_proto::rows::{Format, RowEncoder, TableType, table_schema_for};
use bigquery_write_proto::wire::TableFieldSchema;
use serde_json::{Value, json};

use super::world::{
    World, array_of, batch, column, named, reasons, refused, required, struct_of, table_schema, truncating,
};

/// What a reader finds of one column, the same in both formats.
async fn arrives(column: TableFieldSchema, array: impl Array + 'static) -> Value {
    let array: ArrayRef = Arc::new(array);
    let mut world = World::new();
    let arrow = world.arrives(&column, &array, Format::Arrow).await;
    let proto = world.arrives(&column, &array, Format::Proto).await;
    assert_eq!(arrow, proto);
    arrow
}

/// What is said before the first row.
fn problem(column: TableFieldSchema, input: DataType) -> String {
    let input = Arc::new(Schema::new(vec![Field::new("x", input, true)]));
    let problems = RowEncoder::new(&input, &table_schema(vec![column]), truncating()).unwrap_err();
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    problem.to_string()
}

/// The type of the column that is made for a pipeline's.
fn made_for(input: DataType) -> TableType {
    let input = Arc::new(Schema::new(vec![Field::new("x", input, true)]));
    TableType::of(&table_schema_for(&input).unwrap().fields[0]).unwrap()
}

/// reports.md 60
#[tokio::test]
async fn a_datetime_of_a_whole_minute_does_not_restart_the_job() {
    let noon = TimestampNanosecondArray::from(vec![1_704_112_440_000_000_000]);
    assert_eq!(
        arrives(column(TableType::Datetime), noon).await,
        json!(["2024-01-01T12:34:00"])
    );
}

/// reports.md 61
#[test]
fn a_long_of_milliseconds_is_refused_with_its_column_before_the_first_row() {
    for (table, name) in [
        (TableType::Timestamp, "TIMESTAMP"),
        (TableType::Datetime, "DATETIME"),
    ] {
        assert_eq!(
            problem(column(table), DataType::Int64),
            format!(
                "column `x`: the pipeline writes BIGINT, the table has {name}; say the unit, for example to_timestamp_millis(x)"
            )
        );
    }
}

/// reports.md 62
#[tokio::test]
async fn milliseconds_are_not_read_as_microseconds() {
    let millis = TimestampMillisecondArray::from(vec![1_690_825_888_386]);
    assert_eq!(
        arrives(column(TableType::Timestamp), millis).await,
        json!(["2023-07-31T17:51:28.386000Z"])
    );
}

/// reports.md 62: a double on the way, which the command's tests write as the remedy says.
#[test]
fn seconds_with_a_fraction_are_refused_with_what_keeps_it() {
    let said = "column `x`: the pipeline writes DOUBLE, the table has TIMESTAMP; say the unit; where it counts seconds, for example \
                to_timestamp_micros(CAST(round(x * 1000000) AS BIGINT))";
    assert_eq!(problem(column(TableType::Timestamp), DataType::Float64), said);
}

/// reports.md 63
#[tokio::test]
async fn the_column_says_whether_microseconds_are_a_datetime_or_a_timestamp() {
    let micros = || TimestampMicrosecondArray::from(vec![1_690_825_888_386_999]);
    assert_eq!(
        arrives(column(TableType::Datetime), micros()).await,
        json!(["2023-07-31T17:51:28.386999"])
    );
    assert_eq!(
        arrives(column(TableType::Timestamp), micros()).await,
        json!(["2023-07-31T17:51:28.386999Z"])
    );
    let clock = Time64MicrosecondArray::from(vec![64_288_386_999]);
    assert_eq!(
        arrives(column(TableType::Time), clock).await,
        json!(["17:51:28.386999"])
    );
}

/// reports.md 64
#[test]
fn a_text_that_is_a_time_is_refused_with_the_cast_that_reads_it() {
    assert_eq!(
        problem(column(TableType::Timestamp), DataType::Utf8),
        "column `x`: the pipeline writes TEXT, the table has TIMESTAMP; cast it, for example CAST(x AS TIMESTAMP)"
    );
}

/// reports.md 65
#[test]
fn a_year_beyond_9999_is_an_error_of_its_row() {
    let days = Date32Array::from(vec![2_932_897, 0, -719_163]);
    let errors = refused(column(TableType::Date), days);
    assert_eq!(
        errors.to_string(),
        "2 rows do not fit the table: row 1 of the batch, column `x`: out of the range of DATE; row 3 of the batch, \
         column `x`: out of the range of DATE"
    );
    assert_eq!(errors.rows, [0, 2], "and the others can go on");
}

/// reports.md 66
#[tokio::test]
async fn a_decimal_goes_where_its_digits_fit() {
    for (precision, scale, table) in [
        (38, 9, TableType::Numeric),
        (38, 15, TableType::BigNumeric),
        (15, 10, TableType::BigNumeric),
        (38, 6, TableType::BigNumeric),
        (29, 0, TableType::Numeric),
        (30, 0, TableType::BigNumeric),
    ] {
        assert_eq!(made_for(DataType::Decimal128(precision, scale)), table);
    }
    let value = Decimal128Array::from(vec![12_345_678_901_234_567_890_123_456_789_012_345_678]);
    let value = value.with_precision_and_scale(38, 15).unwrap();
    assert_eq!(
        arrives(column(TableType::BigNumeric), value.clone()).await,
        json!(["12345678901234567890123.456789012345678"])
    );
    assert_eq!(
        reasons(&refused(column(TableType::Numeric), value)),
        [(1, "more than 9 digits behind the decimal point".to_owned())]
    );
}

/// reports.md 67
#[tokio::test]
async fn zero_false_and_the_empty_text_do_not_arrive_as_null() {
    let all: [(TableType, ArrayRef, &str); 8] = [
        (TableType::Float64, Arc::new(Float64Array::from(vec![0.0])), "0.0"),
        (
            TableType::Bool,
            Arc::new(BooleanArray::from(vec![false])),
            "false",
        ),
        (TableType::Int64, Arc::new(Int64Array::from(vec![0])), "0"),
        (TableType::String, Arc::new(StringArray::from(vec![""])), ""),
        (TableType::Bytes, Arc::new(BinaryArray::from_vec(vec![b""])), ""),
        (
            TableType::Date,
            Arc::new(Date32Array::from(vec![0])),
            "1970-01-01",
        ),
        (
            TableType::Time,
            Arc::new(Time64MicrosecondArray::from(vec![0])),
            "00:00:00",
        ),
        (TableType::Numeric, Arc::new(Int64Array::from(vec![0])), "0"),
    ];
    let mut world = World::new();
    for (table, array, text) in all {
        for format in [Format::Arrow, Format::Proto] {
            let said = world.arrives(&column(table), &array, format).await;
            assert_eq!(said, json!([text]), "{table} in {format:?}");
        }
    }
}

/// reports.md 68
#[tokio::test]
async fn a_record_that_is_null_needs_none_of_its_required_fields() {
    let number: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    let fields = vec![Field::new("a", DataType::Int64, true)];
    let records = StructArray::new(
        fields.into(),
        vec![number],
        Some(NullBuffer::from(vec![false, true])),
    );
    // The table's array is one that the pipeline does not write.
    let target = struct_of(
        &["a", "l"],
        &[
            required(column(TableType::Int64)),
            array_of(column(TableType::String)),
        ],
    );
    assert_eq!(
        arrives(target, records).await,
        json!([null, { "f": [{ "v": "1" }, { "v": [] }] }])
    );
}

/// reports.md 69
#[tokio::test]
async fn a_null_array_is_empty_and_a_null_element_is_an_error_of_its_row() {
    let list = |valid: Vec<bool>| {
        ListArray::new(
            Arc::new(Field::new("item", DataType::Int64, true)),
            OffsetBuffer::from_lengths([2, 0]),
            Arc::new(Int64Array::from(vec![Some(1), None])),
            Some(NullBuffer::from(valid)),
        )
    };
    let target = || array_of(column(TableType::Int64));
    assert_eq!(arrives(target(), list(vec![false, false])).await, json!([[], []]));
    assert_eq!(
        reasons(&refused(target(), list(vec![true, false]))),
        [(1, "NULL as an element of a REPEATED column".to_owned())]
    );
}

/// reports.md 70
#[tokio::test]
async fn a_required_column_that_the_pipeline_does_not_write_gets_its_default() {
    let mut world = World::new();
    let defaulted = TableFieldSchema {
        default_value_expression: "7".to_owned(),
        ..required(named("a", column(TableType::Int64)))
    };
    let nullable = || named("n", column(TableType::Int64));
    let row: ArrayRef = Arc::new(StringArray::from(vec!["b"]));
    for format in [Format::Arrow, Format::Proto] {
        let table = world.table(vec![defaulted.clone(), column(TableType::String), nullable()]);
        world.append(&table, &batch(&row), format);
        assert_eq!(world.rows(&table).await, json!([["7", "b", null]]), "{format:?}");
    }
    let without = required(named("a", column(TableType::Int64)));
    let input = Schema::new(vec![Field::new("x", DataType::Utf8, true)]);
    let table = table_schema(vec![without, column(TableType::String)]);
    let problems = RowEncoder::new(&input.into(), &table, truncating()).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "column `a`: the table requires INT64 NOT NULL without default, the pipeline does not write it; add it to the \
         query, or make it nullable"
    );
}

/// reports.md 86: types are compared by their family, then each value by the bounds.
#[tokio::test]
async fn a_numeric_of_20_digits_takes_every_number_that_is_within() {
    let target = || TableFieldSchema {
        precision: 20,
        scale: 4,
        ..column(TableType::Numeric)
    };
    let decimal = |unscaled: i128, precision: u8, scale: i8| {
        let array = Decimal128Array::from(vec![unscaled]);
        array.with_precision_and_scale(precision, scale).unwrap()
    };
    let largest = decimal(99_999_999_999_999_999_999, 20, 4);
    assert_eq!(arrives(target(), largest).await, json!(["9999999999999999.9999"]));
    assert_eq!(arrives(target(), decimal(-199, 10, 2)).await, json!(["-1.99"]));
    let integer = Int64Array::from(vec![9_999_999_999_999_999]);
    assert_eq!(arrives(target(), integer).await, json!(["9999999999999999"]));

    let digits = "more than 16 digits before the decimal point";
    let over = Int64Array::from(vec![10_000_000_000_000_000, 1]);
    assert_eq!(reasons(&refused(target(), over)), [(1, digits.to_owned())]);
    let over = decimal(-1_000_000_000_000_000_000_000, 22, 5);
    assert_eq!(reasons(&refused(target(), over)), [(1, digits.to_owned())]);
    let finer = decimal(12_345, 38, 5);
    assert_eq!(
        reasons(&refused(target(), finer)),
        [(1, "more than 4 digits behind the decimal point".to_owned())]
    );
}

/// reports.md 75
#[test]
fn id_and_id_in_capitals_are_one_column() {
    let input = Arc::new(Schema::new(vec![
        Field::new("Id", DataType::Int64, true),
        Field::new("id", DataType::Int64, true),
    ]));
    let said =
        "column `id`: BigQuery does not tell it from `Id`, names differ in case only; rename one of them";
    let table = table_schema(vec![named("ID", column(TableType::Int64))]);
    let problems = RowEncoder::new(&input, &table, truncating()).unwrap_err();
    assert_eq!(problems[0].to_string(), said);
    assert_eq!(table_schema_for(&input).unwrap_err()[0].to_string(), said);
}

/// reports.md 76
#[tokio::test]
async fn a_name_with_a_hyphen_and_an_accent_is_written() {
    let target = named("naïve-col", column(TableType::Int64));
    let array: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let row = RecordBatch::try_from_iter_with_nullable([("naïve-col", array, true)]).unwrap();
    let mut world = World::new();
    for format in [Format::Arrow, Format::Proto] {
        let table = world.table(vec![target.clone()]);
        world.append(&table, &row, format);
        assert_eq!(world.rows(&table).await, json!(["1"]), "{format:?}");
    }
}

/// reports.md 77
#[test]
fn a_reserved_prefix_is_told_before_the_first_row() {
    let input = Arc::new(Schema::new(vec![Field::new(
        "_table_x",
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        true,
    )]));
    assert_eq!(
        table_schema_for(&input).unwrap_err()[0].to_string(),
        "column `_table_x`: BigQuery does not take this name: the prefix _TABLE_ is reserved; rename it in the query"
    );
}
