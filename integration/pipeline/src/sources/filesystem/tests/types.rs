//! Types through Parquet files: what a column reads as under each declared type, and which are refused.

use arrow_array::builder::{ListBuilder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use parquet::basic::Compression as Codec;

use super::*;

const NANOS: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const MILLIS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const TIME: DataType = DataType::Time64(TimeUnit::Nanosecond);

fn array(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

/// What the rows of a column v are under this declared type.
async fn read(column: ArrayRef, declared: DataType) -> Result<Vec<String>, String> {
    let mut world = World::new(FileFormat::Parquet, &[("v", declared)]);
    let batch = RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap();
    write_batch(&world.path("a"), &batch, 2, Codec::SNAPPY);
    world.read().await
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("field", item, true)))
}

fn struct_of(fields: &[(&str, DataType)]) -> DataType {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
    DataType::Struct(fields.iter().map(field).collect::<Fields>())
}

fn people() -> ArrayRef {
    let ages = array(Int32Array::from(vec![Some(30), None, Some(5)]));
    let names = array(StringArray::from(vec![Some("a"), Some("b"), None]));
    let fields = vec![
        Field::new("name", DataType::Utf8, true),
        Field::new("age", DataType::Int32, true),
    ];
    let valid = NullBuffer::from(vec![true, true, false]);
    array(StructArray::try_new(fields.into(), vec![names, ages], Some(valid)).unwrap())
}

#[tokio::test]
async fn every_type_that_holds_all_values_is_read() {
    let dictionary = {
        let mut values = StringDictionaryBuilder::<Int32Type>::new();
        for value in [Some("a"), None, Some("b"), Some("a")] {
            values.append_option(value);
        }
        array(values.finish())
    };
    let numbers = || vec![Some(1), None, Some(-3)];
    let lists = {
        let mut lists = ListBuilder::new(Int32Array::builder(4));
        lists.append_value([Some(1), None]);
        lists.append_null();
        lists.append_value([]);
        array(lists.finish())
    };
    let large: LargeListArray =
        LargeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let fixed =
        FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)]), None], 2);
    let bytes = [Some(&[1, 2][..]), None];
    let decimal = Decimal128Array::from(vec![Some(-1250), None])
        .with_precision_and_scale(10, 2)
        .unwrap();
    let micros = |zone: &str| {
        TimestampMicrosecondArray::from(vec![Some(1_357_034_400_000_001), None]).with_timezone(zone)
    };
    let cases: Vec<(ArrayRef, DataType, &[&str])> = vec![
        (
            array(BooleanArray::from(vec![Some(true), None])),
            DataType::Boolean,
            &["true", "NULL"],
        ),
        (array(Int8Array::from(vec![-128])), DataType::Int64, &["-128"]),
        (
            array(Int32Array::from(numbers())),
            DataType::Int32,
            &["1", "NULL", "-3"],
        ),
        (
            array(Int32Array::from(numbers())),
            DataType::Int64,
            &["1", "NULL", "-3"],
        ),
        (
            array(Int32Array::from(numbers())),
            DataType::Float64,
            &["1.0", "NULL", "-3.0"],
        ),
        (
            array(UInt64Array::from(vec![u64::MAX])),
            DataType::UInt64,
            &["18446744073709551615"],
        ),
        (
            array(UInt32Array::from(vec![u32::MAX])),
            DataType::Int64,
            &["4294967295"],
        ),
        (
            array(Int64Array::from(vec![i64::MAX])),
            DataType::Decimal128(19, 0),
            &["9223372036854775807"],
        ),
        (array(Float32Array::from(vec![1.5])), DataType::Float64, &["1.5"]),
        (
            array(Float64Array::from(vec![Some(0.1), None])),
            DataType::Float64,
            &["0.1", "NULL"],
        ),
        (
            array(decimal.clone()),
            DataType::Decimal128(10, 2),
            &["-12.50", "NULL"],
        ),
        (
            array(decimal.clone()),
            DataType::Decimal128(38, 10),
            &["-12.5000000000", "NULL"],
        ),
        (
            array(StringArray::from(vec![Some("é"), None])),
            DataType::Utf8,
            &["é", "NULL"],
        ),
        (
            array(LargeStringArray::from(vec![Some("x"), None])),
            DataType::Utf8,
            &["x", "NULL"],
        ),
        (
            array(StringViewArray::from(vec![Some("longer than twelve"), None])),
            DataType::Utf8,
            &["longer than twelve", "NULL"],
        ),
        (dictionary, DataType::Utf8, &["a", "NULL", "b", "a"]),
        (
            array(BinaryArray::from(bytes.to_vec())),
            DataType::Binary,
            &["0102", "NULL"],
        ),
        (
            array(FixedSizeBinaryArray::from(bytes.to_vec())),
            DataType::Binary,
            &["0102", "NULL"],
        ),
        (
            array(Date32Array::from(vec![Some(-1), None])),
            DataType::Date32,
            &["1969-12-31", "NULL"],
        ),
        (array(Time32SecondArray::from(vec![86_399])), TIME, &["23:59:59"]),
        (
            array(Time32MillisecondArray::from(vec![1])),
            TIME,
            &["00:00:00.001"],
        ),
        (
            array(Time64MicrosecondArray::from(vec![1])),
            TIME,
            &["00:00:00.000001"],
        ),
        (
            array(Time64NanosecondArray::from(vec![1])),
            TIME,
            &["00:00:00.000000001"],
        ),
        (
            array(TimestampMillisecondArray::from(vec![-1])),
            NANOS,
            &["1969-12-31T23:59:59.999"],
        ),
        (
            array(TimestampNanosecondArray::from(vec![i64::MAX])),
            NANOS,
            &["2262-04-11T23:47:16.854775807"],
        ),
        (
            array(micros("UTC")),
            MICROS,
            &["2013-01-01T10:00:00.000001", "NULL"],
        ),
        (
            array(micros("+02:00")),
            NANOS,
            &["2013-01-01T10:00:00.000001", "NULL"],
        ),
        (
            array(micros("Europe/Berlin")),
            MICROS,
            &["2013-01-01T10:00:00.000001", "NULL"],
        ),
        (
            Arc::clone(&lists),
            list(DataType::Int32),
            &["[1, NULL]", "NULL", "[]"],
        ),
        (lists, list(DataType::Int64), &["[1, NULL]", "NULL", "[]"]),
        (array(large), list(DataType::Int64), &["[1, NULL]", "NULL"]),
        (array(fixed), list(DataType::Int32), &["[1, 2]", "NULL"]),
        (
            people(),
            struct_of(&[("name", DataType::Utf8), ("age", DataType::Int32)]),
            &["{name: a, age: 30}", "{name: b, age: NULL}", "NULL"],
        ),
        (
            people(),
            struct_of(&[("age", DataType::Int64), ("name", DataType::Utf8)]),
            &["{age: 30, name: a}", "{age: NULL, name: b}", "NULL"],
        ),
        (
            people(),
            struct_of(&[("age", DataType::Int64)]),
            &["{age: 30}", "{age: NULL}", "NULL"],
        ),
        (array(NullArray::new(2)), DataType::Int64, &["NULL", "NULL"]),
    ];
    for (column, declared, expected) in cases {
        let from = column.data_type().clone();
        assert_eq!(
            read(column, declared.clone()).await,
            Ok(expected.iter().map(|v| (*v).to_owned()).collect()),
            "{from} as {declared}"
        );
    }
}

#[tokio::test]
async fn types_that_would_lose_something_are_refused_with_file_and_column() {
    let decimal = Decimal128Array::from(vec![1250])
        .with_precision_and_scale(10, 2)
        .unwrap();
    let wide = Decimal256Array::from_iter_values([arrow_buffer::i256::ONE])
        .with_precision_and_scale(50, 2)
        .unwrap();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let cases: Vec<(ArrayRef, DataType, &str)> = vec![
        (
            array(Int64Array::from(vec![1])),
            DataType::Int32,
            "v is BIGINT in the file, which does not go into the declared INT",
        ),
        (
            array(Int64Array::from(vec![1])),
            DataType::Float64,
            "v is BIGINT in the file, which does not go into the declared DOUBLE",
        ),
        (
            array(Int64Array::from(vec![1])),
            DataType::Utf8,
            "v is BIGINT in the file, which does not go into the declared TEXT",
        ),
        (
            array(Float64Array::from(vec![1.0])),
            DataType::Float32,
            "v is DOUBLE in the file, which does not go into the declared REAL",
        ),
        (
            array(decimal),
            DataType::Decimal128(10, 1),
            "v is DECIMAL(10, 2) in the file, which does not go into the declared DECIMAL(10, 1)",
        ),
        (
            array(wide),
            DataType::Decimal128(38, 2),
            "v is Decimal256(50, 2) in the file, which does not go into the declared DECIMAL(38, 2)",
        ),
        (
            array(StringArray::from(vec!["1"])),
            DataType::Int64,
            "v is TEXT in the file, which does not go into the declared BIGINT",
        ),
        (
            array(TimestampMicrosecondArray::from(vec![1])),
            MILLIS,
            "v is TIMESTAMP(6) in the file, which does not go into the declared TIMESTAMP(3)",
        ),
        (
            array(Date32Array::from(vec![1])),
            NANOS,
            "v is DATE in the file, which does not go into the declared TIMESTAMP",
        ),
        (
            array(lists.clone()),
            list(DataType::Utf8),
            "v is INT in the file, which does not go into the declared TEXT",
        ),
        (
            array(lists),
            DataType::Int32,
            "v is INT[] in the file, which does not go into the declared INT",
        ),
        (
            people(),
            struct_of(&[("age", DataType::Utf8)]),
            "v.age is INT in the file, which does not go into the declared TEXT",
        ),
    ];
    for (column, declared, reason) in cases {
        let error =
            format!("FOLDER/in/a: column {reason} with all its values; declare a type that holds them");
        assert_eq!(read(column, declared).await, Err(error));
    }
    let error = "FOLDER/in/a: v.size: the file's STRUCT has no column size; it has name, age";
    assert_eq!(
        read(people(), struct_of(&[("size", DataType::Int64)])).await,
        Err(error.to_owned())
    );
}

#[tokio::test]
async fn values_beyond_a_declared_range_are_named_without_being_told() {
    for (column, declared, name) in [
        (
            array(TimestampMillisecondArray::from(vec![0, 1, i64::MAX])),
            NANOS,
            "TIMESTAMP",
        ),
        (
            array(Time32MillisecondArray::from(vec![0, 1, 86_400_000])),
            TIME,
            "TIME",
        ),
        (
            array(Time64MicrosecondArray::from(vec![0, 1, i64::MAX])),
            TIME,
            "TIME",
        ),
    ] {
        let error =
            format!("FOLDER/in/a: row group 1: column v has a value that is beyond the range of {name}");
        assert_eq!(read(column, declared).await, Err(error));
    }
}

#[tokio::test]
async fn columns_are_found_by_their_names_with_their_case() {
    let columns = || {
        let text = |value| array(StringArray::from(vec![value]));
        [
            ("b", text("1")),
            ("B", text("2")),
            ("a", text("3")),
            ("unused", text("4")),
        ]
    };
    let batch = RecordBatch::try_from_iter(columns()).unwrap();
    let text = DataType::Utf8;
    let mut world = World::new(
        FileFormat::Parquet,
        &[("a", text.clone()), ("B", text.clone()), ("b", text.clone())],
    );
    write_batch(&world.path("x"), &batch, 2, Codec::SNAPPY);
    assert_eq!(world.read().await.unwrap(), ["3|2|1"]);
    let mut world = World::new(FileFormat::Parquet, &[("A", text)]);
    write_batch(&world.path("x"), &batch, 2, Codec::SNAPPY);
    assert_eq!(
        world.read().await.unwrap_err(),
        "FOLDER/in/x: has no column A; it has b, B, a, unused"
    );
}

#[tokio::test]
async fn a_null_in_a_required_column_is_named_with_its_row_group() {
    let mut world = World::new(FileFormat::Parquet, &[]);
    world.columns = Arc::new(arrow_schema::Schema::new(vec![Field::new(
        "v",
        DataType::Int64,
        false,
    )]));
    let batch = |values: Vec<Option<i64>>| {
        RecordBatch::try_from_iter_with_nullable([("v", array(Int64Array::from(values)), true)]).unwrap()
    };
    write_batch(
        &world.path("a"),
        &batch(vec![Some(1), Some(2), Some(3), None]),
        2,
        Codec::SNAPPY,
    );
    let error = "FOLDER/in/a: row group 1: column v is NOT NULL but has a null";
    assert_eq!(world.read().await.unwrap_err(), error);
    write_batch(&world.path("a"), &batch(vec![Some(1), Some(2)]), 2, Codec::SNAPPY);
    assert_eq!(world.read().await.unwrap(), ["1", "2"]);
}
