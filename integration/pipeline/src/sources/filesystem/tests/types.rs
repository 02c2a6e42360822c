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
        let error = format!("FOLDER/in/a: row group 1: column v has a value that {name} cannot hold");
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

/// A time as INT96 has it, with days from 1970 on.
type DayAndNanosecond = Option<(i64, u64)>;
/// The declared type, times, and their rows, or the type that does not hold one.
type Case<'a> = (DataType, &'a [DayAndNanosecond], Result<&'a [&'a str], &'a str>);

/// A file of two columns, times as INT96 and numbers, two rows to a row group; perhaps with the schema that its writer had in memory.
fn write_int96(path: &std::path::Path, times: &[DayAndNanosecond], embedded: Option<DataType>) {
    use parquet::data_type::{Int32Type, Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message m { optional int96 v; required int32 n; }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut properties = WriterProperties::default();
    if let Some(v) = embedded {
        let fields = vec![Field::new("v", v, true), Field::new("n", DataType::Int32, false)];
        parquet::arrow::add_encoded_arrow_schema_to_metadata(&Schema::new(fields), &mut properties);
    }
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, properties.into()).unwrap();
    for rows in times.chunks(2) {
        let int96 = |(day, nanosecond): &(i64, u64)| {
            let julian = u32::try_from(day + 2_440_588).unwrap();
            Int96::from(vec![*nanosecond as u32, (nanosecond >> 32) as u32, julian])
        };
        let values: Vec<_> = rows.iter().flatten().map(int96).collect();
        let levels: Vec<_> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        let mut row_group = writer.next_row_group().unwrap();
        let mut column = row_group.next_column().unwrap().unwrap();
        column
            .typed::<Int96Type>()
            .write_batch(&values, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        let mut column = row_group.next_column().unwrap().unwrap();
        column
            .typed::<Int32Type>()
            .write_batch(&vec![7; rows.len()], None, None)
            .unwrap();
        column.close().unwrap();
        row_group.close().unwrap();
    }
    writer.close().unwrap();
}

#[tokio::test(start_paused = true)]
async fn int96_is_read_to_its_last_digit_or_refused() {
    let (year_9999, last_nanosecond) = (2_932_896, 86_399_999_999_999);
    let cases: [Case<'_>; 9] = [
        (
            NANOS,
            &[
                Some((0, 1)),
                None,
                Some((-1, last_nanosecond)),
                Some((15_706, 36_000_000_000_000)),
            ],
            Ok(&[
                "7|1970-01-01T00:00:00.000000001",
                "7|NULL",
                "7|1969-12-31T23:59:59.999999999",
                "7|2013-01-01T10:00:00",
            ]),
        ),
        (
            MICROS,
            &[Some((year_9999, 86_399_999_999_000)), Some((-719_162, 0))],
            Ok(&["7|9999-12-31T23:59:59.999999", "7|0001-01-01T00:00:00"]),
        ),
        (
            MILLIS,
            &[Some((year_9999, 86_399_999_000_000))],
            Ok(&["7|9999-12-31T23:59:59.999"]),
        ),
        (
            NANOS,
            &[Some((106_751, 85_636_854_775_807))],
            Ok(&["7|2262-04-11T23:47:16.854775807"]),
        ),
        (NANOS, &[Some((106_751, 85_636_854_775_808))], Err("TIMESTAMP")),
        (NANOS, &[Some((year_9999, 0))], Err("TIMESTAMP")),
        (MICROS, &[Some((0, 1))], Err("TIMESTAMP(6)")),
        (MILLIS, &[Some((0, 1000))], Err("TIMESTAMP(3)")),
        (MICROS, &[Some((0, u64::MAX))], Err("TIMESTAMP(6)")),
    ];
    let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let embedded = [None, Some(MICROS), Some(NANOS), Some(zoned)];
    let cases = embedded
        .iter()
        .flat_map(|embedded| cases.iter().map(move |case| (embedded.clone(), case.clone())));
    for (embedded, (declared, times, expected)) in cases {
        let mut world =
            World::new(FileFormat::Parquet, &[("n", DataType::Int32), ("v", declared)]).with_batches(1.0);
        write_int96(&world.path("a"), times, embedded);
        let expected = match expected {
            Ok(rows) => Ok(rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>()),
            Err(name) => Err(format!(
                "FOLDER/in/a: row group 0: column v has a value that {name} cannot hold"
            )),
        };
        assert_eq!(world.read().await, expected);
        if let Ok(rows) = expected {
            for batches in 0..=rows.len() {
                world.stored.clear();
                let mut read = world.read_batches(batches).await;
                read.extend(world.read().await.unwrap());
                assert_eq!(read, rows, "behind batch {batches}");
            }
        }
    }
    let mut world = World::new(FileFormat::Parquet, &[("v", DataType::Int64)]);
    write_int96(&world.path("a"), &[None], None);
    let error = "FOLDER/in/a: column v is TIMESTAMP in the file, which does not go into the declared BIGINT with all its values; declare a \
                 type that holds them";
    assert_eq!(world.read().await.unwrap_err(), error);

    let schema = "message m { optional group v { optional int96 at; } }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut world = World::new(FileFormat::Parquet, &[("v", struct_of(&[("at", NANOS)]))]);
    let file = File::create(world.path("a")).unwrap();
    let writer = parquet::file::writer::SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    writer.close().unwrap();
    let error = "FOLDER/in/a: column v holds times as INT96 within, which is not read; write them as TIMESTAMP_MICROS";
    assert_eq!(world.read().await.unwrap_err(), error);
}
