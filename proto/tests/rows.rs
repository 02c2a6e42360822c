//! Values on their way to the wire: what is cast, what is shared, and the messages' bytes.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::sync::Arc;

use arrow_array::builder::{
    Int32Builder, MapBuilder, MapFieldNames, StringBuilder, StringDictionaryBuilder, StringViewBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Int8Type, Int64Type, IntervalDayTime, IntervalMonthDayNano,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, TimeUnit};
use arrow_select::concat::concat_batches;
use bigquery_write_proto::rows::{
    ConvertError, EncodeError, MissingValues, RowEncoder, RowOptions, batch_bytes,
};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::*;

#[test]
fn values_are_cast_exactly_where_the_wire_has_another_type() {
    let cast = |array: ArrayRef, target: TableFieldSchema| {
        Arc::clone(convert(array, target, TRUNCATE).unwrap().batch.column(0))
    };
    let text: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        None,
        Some("a long text that no view holds inline"),
    ]));
    let views = StringViewArray::from_iter(text.as_string::<i32>().iter());
    let large = LargeStringArray::from_iter(text.as_string::<i32>().iter());
    let mut dictionary = StringDictionaryBuilder::<Int8Type>::new();
    dictionary.extend(text.as_string::<i32>().iter());
    for array in [
        Arc::new(views) as ArrayRef,
        Arc::new(large),
        Arc::new(dictionary.finish()),
        Arc::clone(&text),
    ] {
        assert_eq!(&cast(array, column("x", Type::String)), &text);
    }

    let bytes: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(b"abc"), None]));
    let fixed =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some(b"abc"), None].into_iter(), 3).unwrap();
    let views = BinaryViewArray::from_iter([Some(b"abc"), None]);
    let large = LargeBinaryArray::from_opt_vec(vec![Some(b"abc"), None]);
    for array in [Arc::new(fixed) as ArrayRef, Arc::new(views), Arc::new(large)] {
        assert_eq!(&cast(array, column("x", Type::Bytes)), &bytes);
    }

    let ints = cast(
        Arc::new(UInt8Array::from(vec![Some(255), None])),
        column("x", Type::Int64),
    );
    assert_eq!(
        ints.as_primitive::<Int64Type>(),
        &Int64Array::from(vec![Some(255), None])
    );
    let floats = cast(
        Arc::new(Float32Array::from(vec![0.1, f32::NAN])),
        column("x", Type::Double),
    );
    assert_eq!(
        floats.as_primitive::<types::Float64Type>().value(0),
        f64::from(0.1_f32)
    );
    assert!(floats.as_primitive::<types::Float64Type>().value(1).is_nan());

    let days = cast(
        Arc::new(Date64Array::from(vec![-86_400_000])),
        column("x", Type::Date),
    );
    assert_eq!(days.as_primitive::<Date32Type>().values(), &[-1]);
    let clock = cast(
        Arc::new(Time32MillisecondArray::from(vec![86_399_999])),
        column("x", Type::Time),
    );
    assert_eq!(
        clock.as_primitive::<Time64MicrosecondType>().values(),
        &[86_399_999_000]
    );
    let nulls = cast(Arc::new(NullArray::new(2)), repeated(column("x", Type::Bool)));
    assert_eq!(
        (
            nulls.len(),
            nulls.null_count(),
            nulls.as_list::<i32>().values().len()
        ),
        (2, 0, 0)
    );

    let money = cast(decimals(vec![Some(-15), None], 10, 1), column("x", Type::Numeric));
    assert_eq!(money.data_type(), &DataType::Decimal128(38, 9));
    assert_eq!(money.as_primitive::<Decimal128Type>().value(0), -1_500_000_000);
    let money = cast(
        Arc::new(UInt64Array::from(vec![u64::MAX])),
        column("x", Type::Numeric),
    );
    assert_eq!(
        money.as_primitive::<Decimal128Type>().value_as_string(0),
        "18446744073709551615.000000000"
    );
    let big = cast(decimals(vec![Some(15)], 38, 38), column("x", Type::Bignumeric));
    assert_eq!(big.data_type(), &DataType::Decimal256(76, 38));
    assert_eq!(big.as_primitive::<Decimal256Type>().value(0), i256::from_i128(15));
    let small = cast(wide_decimals(&["-25000000000"], 10), numeric(5, 2));
    assert_eq!(small.as_primitive::<Decimal128Type>().value(0), -2_500_000_000);
}

#[test]
fn intervals_durations_and_picoseconds_keep_their_parts() {
    let wire = |array: ArrayRef, target: TableFieldSchema| {
        let converted = convert(array, target, TRUNCATE).unwrap();
        (Arc::clone(converted.batch.column(0)), converted.truncated)
    };
    let parts = |months, days, nanos| IntervalMonthDayNano::new(months, days, nanos);
    let interval = || column("x", Type::Interval);
    let intervals = |values: Vec<Option<IntervalMonthDayNano>>| {
        Arc::new(IntervalMonthDayNanoArray::from(values)) as ArrayRef
    };
    let months: ArrayRef = Arc::new(IntervalYearMonthArray::from(vec![Some(-14), None]));
    let expected = intervals(vec![Some(parts(-14, 0, 0)), None]);
    assert_eq!(wire(months, interval()), (expected, 0));
    let days = IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, -2)]);
    let expected = intervals(vec![Some(parts(0, 1, -2_000_000))]);
    assert_eq!(wire(Arc::new(days), interval()), (expected, 0));

    let all = intervals(vec![Some(parts(1, -2, 3_000)), None]);
    let (same, _) = wire(Arc::clone(&all), interval());
    assert_eq!(
        same.as_primitive::<types::IntervalMonthDayNanoType>()
            .values()
            .as_ptr(),
        all.as_primitive::<types::IntervalMonthDayNanoType>()
            .values()
            .as_ptr(),
        "shared, not copied"
    );
    // Digits are cut as those of a text, towards zero.
    let fine = intervals(vec![Some(parts(1, 2, -1_999)), Some(parts(0, 0, 1_999)), None]);
    let expected = intervals(vec![Some(parts(1, 2, -1_000)), Some(parts(0, 0, 1_000)), None]);
    assert_eq!(wire(fine, interval()), (expected, 2));
    let nanos = DurationNanosecondArray::from(vec![-1_999]);
    let expected = intervals(vec![Some(parts(0, 0, -1_000))]);
    assert_eq!(wire(Arc::new(nanos), interval()), (expected, 1));
    let seconds = DurationSecondArray::from(vec![9_223_372_036]);
    let expected = intervals(vec![Some(parts(0, 0, 9_223_372_036_000_000_000))]);
    assert_eq!(wire(Arc::new(seconds), interval()), (expected, 0));

    let picoseconds = || TableFieldSchema {
        timestamp_precision: Some(12),
        ..column("x", Type::Timestamp)
    };
    let nanos = TimestampNanosecondArray::from(vec![i64::MIN, 1, i64::MAX]);
    let expected: ArrayRef = Arc::new(nanos.clone().with_timezone("UTC"));
    assert_eq!(wire(Arc::new(nanos), picoseconds()), (expected, 0));
    // What nanoseconds do not reach goes as microseconds.
    let seconds = TimestampSecondArray::from(vec![253_402_300_799]);
    let expected: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![253_402_300_799_000_000]).with_timezone("UTC"));
    assert_eq!(wire(Arc::new(seconds), picoseconds()), (expected, 0));
}

#[test]
fn the_39th_digit_of_a_bignumeric_is_reached_at_scale_37() {
    let most = "578960446186580977117854925043439539266";
    let decimals = wide_decimals(&[most, "-1"], 0);
    let converted = convert(decimals, column("x", Type::Bignumeric), TRUNCATE).unwrap();
    let array = converted.batch.column(0);
    assert_eq!(array.data_type(), &DataType::Decimal256(76, 37));
    let array = array.as_primitive::<Decimal256Type>();
    assert_eq!(array.value(0).to_string(), format!("{most}{}", "0".repeat(37)));
    assert_eq!(array.value(1).to_string(), format!("-1{}", "0".repeat(37)));
    // A column that says how many digits it takes never has 39.
    let limited = TableFieldSchema {
        precision: 3,
        ..column("x", Type::Bignumeric)
    };
    let error = convert(wide_decimals(&["999", "1000"], 0), limited, TRUNCATE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 row does not fit the table: row 2 of the batch, column `x`: more than 3 digits before the decimal point"
    );
}

#[test]
fn nulls_maps_and_runs_arrive_as_what_they_stand_for() {
    let wire = |array: ArrayRef, target: TableFieldSchema| {
        Arc::clone(convert(array, target, TRUNCATE).unwrap().batch.column(0))
    };
    let inner = vec![column("a", Type::Int64), repeated(column("l", Type::Bool))];
    let nulls = wire(Arc::new(NullArray::new(2)), record("x", inner));
    let nulls = nulls.as_struct();
    assert_eq!((nulls.len(), nulls.null_count()), (2, 2));
    assert_eq!(nulls.column(1).null_count(), 0, "a list is empty, never NULL");
    let nulls = wire(Arc::new(NullArray::new(1)), range(Type::Datetime));
    assert_eq!((nulls.len(), nulls.null_count()), (1, 1));

    let mut maps = MapBuilder::new(
        Some(MapFieldNames {
            entry: "entries".to_owned(),
            key: "key".to_owned(),
            value: "value".to_owned(),
        }),
        StringBuilder::new(),
        Int32Builder::new(),
    );
    maps.keys().append_value("a");
    maps.values().append_value(1);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    maps.keys().append_value("b");
    maps.values().append_null();
    maps.append(true).unwrap();
    let target = repeated(record(
        "x",
        vec![column("key", Type::String), column("value", Type::Int64)],
    ));
    let whole = wire(Arc::new(maps.finish()), target);
    let lists = whole.as_list::<i32>();
    assert_eq!(
        (lists.value_offsets(), lists.null_count()),
        (&[0, 1, 1, 2][..], 0)
    );
    let entries = lists.values().as_struct();
    assert_eq!(
        entries.column(0).as_string::<i32>(),
        &StringArray::from(vec!["a", "b"])
    );
    assert_eq!(
        entries.column(1).as_primitive::<Int64Type>(),
        &Int64Array::from(vec![Some(1), None])
    );

    let values = StringArray::from(vec![Some("a"), None, Some("b")]);
    let runs = RunArray::<types::Int16Type>::try_new(&Int16Array::from(vec![2, 3, 5]), &values).unwrap();
    let text = |texts: Vec<Option<&str>>| Arc::new(StringArray::from(texts)) as ArrayRef;
    assert_eq!(
        &wire(Arc::new(runs.clone()), column("x", Type::String)),
        &text(vec![Some("a"), Some("a"), None, Some("b"), Some("b")])
    );
    assert_eq!(
        &wire(Arc::new(runs.slice(1, 3)), column("x", Type::String)),
        &text(vec![Some("a"), None, Some("b")])
    );
    let error = convert(Arc::new(runs), required(column("x", Type::String)), TRUNCATE).unwrap_err();
    assert_eq!(error.rows, [2]);
}

#[test]
fn timestamps_of_every_unit_and_zone_become_microseconds_of_utc() {
    let micros = |array: ArrayRef, target: Type| {
        let converted = convert(array, column("x", target), TRUNCATE).unwrap();
        let array = converted
            .batch
            .column(0)
            .as_primitive::<TimestampMicrosecondType>()
            .clone();
        (
            array.values().to_vec(),
            array.data_type().clone(),
            converted.truncated,
        )
    };
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let civil = DataType::Timestamp(TimeUnit::Microsecond, None);
    let seconds = TimestampSecondArray::from(vec![-1]).with_timezone("America/New_York");
    assert_eq!(
        micros(Arc::new(seconds), Type::Timestamp),
        (vec![-1_000_000], instant.clone(), 0)
    );
    let millis = TimestampMillisecondArray::from(vec![1]).with_timezone("+00:00");
    assert_eq!(
        micros(Arc::new(millis), Type::Datetime),
        (vec![1_000], civil.clone(), 0)
    );
    let nanos = || {
        Arc::new(TimestampNanosecondArray::from(vec![
            Some(1_999),
            Some(2_000),
            None,
            Some(-1),
            Some(i64::MIN),
        ]))
    };
    let expected = vec![1, 2, 0, -1, -9_223_372_036_854_776];
    assert_eq!(micros(nanos(), Type::Timestamp), (expected.clone(), instant, 3));
    assert_eq!(micros(nanos(), Type::Datetime), (expected, civil, 3));
}

#[test]
fn a_column_of_the_wire_type_is_shared_not_copied() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let inner: ArrayRef = Arc::new(StructArray::from(vec![(
        Arc::new(Field::new("T", DataType::Utf8, false)),
        Arc::clone(&text),
    )]));
    let list: ArrayRef = Arc::new(ListArray::new(
        Arc::new(Field::new("field", inner.data_type().clone(), false)),
        OffsetBuffer::from_lengths([1, 1]),
        inner,
        None,
    ));
    let days: ArrayRef = Arc::new(Date32Array::from(vec![1, 2]));
    let fields = [("t", &text), ("l", &list), ("d", &days)]
        .map(|(name, array)| Field::new(name, array.data_type().clone(), false));
    let batch = RecordBatch::try_new(
        schema(fields.to_vec()),
        vec![Arc::clone(&text), list, Arc::clone(&days)],
    )
    .unwrap();
    let target = table(vec![
        column("t", Type::String),
        repeated(record("l", vec![required(column("t", Type::String))])),
        required(column("d", Type::Date)),
    ]);
    let encoder = RowEncoder::new(&batch.schema(), &target, TRUNCATE).unwrap();
    let wire = encoder.convert(&batch).unwrap().batch;
    let pointer = |array: &dyn Array| array.to_data().buffers().last().map(|buffer| buffer.as_ptr());
    assert_eq!(pointer(wire.column(0)), pointer(&text));
    assert_eq!(pointer(wire.column(2)), pointer(&days));
    let inside = wire.column(1).as_list::<i32>().values().as_struct().column(0);
    assert_eq!(pointer(inside), pointer(&text));
}

#[test]
fn values_of_every_wire_type_are_shared() {
    let micros = || TimestampMicrosecondArray::from(vec![1]);
    let picoseconds = TableFieldSchema {
        timestamp_precision: Some(12),
        ..column("x", Type::Timestamp)
    };
    let intervals = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3_000)]);
    let nanos = TimestampNanosecondArray::from(vec![1]).with_timezone("UTC");
    let columns: Vec<(ArrayRef, TableFieldSchema)> = vec![
        (Arc::new(Int64Array::from(vec![1])), column("x", Type::Int64)),
        (Arc::new(Float64Array::from(vec![1.0])), column("x", Type::Double)),
        (Arc::new(StringArray::from(vec!["1"])), column("x", Type::Json)),
        (
            Arc::new(StringArray::from(vec!["POINT(1 2)"])),
            column("x", Type::Geography),
        ),
        (
            Arc::new(BinaryArray::from_vec(vec![b"1"])),
            limited(Type::Bytes, 1),
        ),
        (
            Arc::new(Time64MicrosecondArray::from(vec![1])),
            column("x", Type::Time),
        ),
        (Arc::new(micros()), column("x", Type::Datetime)),
        (
            Arc::new(micros().with_timezone("Asia/Tokyo")),
            column("x", Type::Timestamp),
        ),
        (Arc::new(nanos), picoseconds),
        (Arc::new(intervals), column("x", Type::Interval)),
        (decimals(vec![Some(1)], 38, 9), column("x", Type::Numeric)),
        (wide_decimals(&["1"], 38), column("x", Type::Bignumeric)),
    ];
    let pointer = |array: &dyn Array| array.to_data().buffers().last().map(|buffer| buffer.as_ptr());
    for (array, target) in columns {
        let name = array.data_type().clone();
        let converted = convert(Arc::clone(&array), target, REFUSE).unwrap().batch;
        assert_eq!(pointer(converted.column(0)), pointer(&array), "{name}");
    }
}

#[test]
fn lists_of_every_kind_become_plain_lists() {
    let target = || repeated(column("x", Type::Int64));
    let expected = vec![vec![1, 2], vec![], vec![3]];
    let read = |array: ArrayRef| -> Vec<Vec<i64>> {
        let batch = convert(array, target(), TRUNCATE).unwrap().batch;
        let list = batch.column(0).as_list::<i32>().clone();
        assert_eq!(list.null_count(), 0);
        (0..list.len())
            .map(|i| list.value(i).as_primitive::<Int64Type>().values().to_vec())
            .collect()
    };
    let rows = || vec![Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3)])];
    assert_eq!(
        read(Arc::new(
            ListArray::from_iter_primitive::<Int64Type, _, _>(rows())
        )),
        expected
    );
    assert_eq!(
        read(Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(
            rows()
        ))),
        expected
    );
    let field = || Arc::new(Field::new_list_field(DataType::Int64, true));
    let views = ListViewArray::new(
        field(),
        ScalarBuffer::from(vec![1, 0, 0]),
        ScalarBuffer::from(vec![2, 3, 1]),
        Arc::new(Int64Array::from(vec![3, 1, 2])),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    assert_eq!(read(Arc::new(views)), expected);
    let fixed = FixedSizeListArray::new(
        field(),
        1,
        Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    assert_eq!(read(Arc::new(fixed)), [vec![1], vec![], vec![3]]);
}

#[test]
fn a_batch_of_another_schema_is_refused_before_it_is_read() {
    let first = batch(Arc::new(Int64Array::from(vec![1])));
    let encoder = RowEncoder::new(&first.schema(), &table(vec![column("x", Type::Int64)]), TRUNCATE).unwrap();
    let other = batch(Arc::new(StringArray::from(vec!["1"])));
    let error = encoder.convert(&other).unwrap_err();
    assert!(matches!(&error, ConvertError::Schema { column, .. } if column == "x"));
    assert_eq!(
        error.to_string(),
        "the batch's column x is Utf8, but the pipeline's schema says Int64"
    );
    let none = RecordBatch::new_empty(schema(vec![])).project(&[]).unwrap();
    assert!(matches!(encoder.convert(&none), Err(ConvertError::Schema { .. })));
    assert!(matches!(encoder.encode(&other), Err(EncodeError::Schema)));
}

#[test]
fn messages_of_slices_and_of_joined_batches_hold_their_rows_and_nothing_else() {
    let views = {
        let mut views = StringViewBuilder::new();
        for row in 0..1_000 {
            views.append_value(format!("row {row} with a text beyond twelve bytes"));
        }
        views.finish()
    };
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..1_000).map(|row| Some(vec![Some(row); (row % 3) as usize])),
    );
    let flags = BooleanArray::from_iter((0..1_000).map(|row| (row % 5 != 0).then_some(row % 2 == 0)));
    let arrays: [(&str, ArrayRef); 3] = [
        ("t", Arc::new(views)),
        ("l", Arc::new(lists)),
        ("b", Arc::new(flags)),
    ];
    let whole =
        RecordBatch::try_from_iter_with_nullable(arrays.map(|(name, array)| (name, array, true))).unwrap();
    let target = table(vec![
        column("t", Type::String),
        repeated(column("l", Type::Int64)),
        column("b", Type::Bool),
    ]);
    let encoder = RowEncoder::new(&whole.schema(), &target, TRUNCATE).unwrap();
    let wire = encoder.convert(&whole).unwrap().batch;

    let all = encoder.encode(&wire).unwrap();
    assert_eq!(decode(&encoder, &all), wire);
    for (start, len) in [(0, 1), (3, 7), (997, 3), (10, 0)] {
        let slice = wire.slice(start, len);
        let message = encoder.encode(&slice).unwrap();
        assert_eq!(decode(&encoder, &message), slice);
        assert!(message.len() < 1_600, "{} bytes for {len} rows", message.len());
        let converted = encoder.convert(&whole.slice(start, len)).unwrap().batch;
        assert_eq!(converted, slice);
        assert_eq!(
            encoder.encode(&converted).unwrap(),
            message,
            "the same rows are the same bytes"
        );
        let estimate = batch_bytes(&slice);
        assert!(
            (message.len()..message.len() + 300).contains(&estimate),
            "{estimate} for {}",
            message.len()
        );
    }
    let parts: Vec<RecordBatch> = (0..100).map(|part| wire.slice(part * 10, 10)).collect();
    let joined = concat_batches(encoder.wire_schema(), &parts).unwrap();
    assert_eq!(
        encoder.encode(&joined).unwrap(),
        all,
        "the same rows are the same bytes"
    );
}

#[test]
fn nulls_that_stand_for_a_default_value_stay_nulls() {
    let defaults = RowOptions {
        missing_values: MissingValues::Default,
        ..TRUNCATE
    };
    let with_default = |column: TableFieldSchema| TableFieldSchema {
        default_value_expression: "x".to_owned(),
        ..column
    };
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([None, Some(vec![]), Some(vec![Some(1)])]);
    let list: ArrayRef = Arc::new(list);
    let target = || with_default(repeated(column("x", Type::Int64)));
    let nulls = |target: TableFieldSchema, options| {
        let converted = convert(Arc::clone(&list), target, options).unwrap();
        converted.batch.column(0).null_count()
    };
    assert_eq!(nulls(target(), TRUNCATE), 0);
    assert_eq!(nulls(target(), defaults), 1);
    assert_eq!(
        nulls(repeated(column("x", Type::Int64)), defaults),
        0,
        "no default"
    );

    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let target = || with_default(required(column("x", Type::Int64)));
    assert!(convert(Arc::clone(&ints), target(), TRUNCATE).is_err());
    assert_eq!(
        convert(Arc::clone(&ints), target(), defaults)
            .unwrap()
            .batch
            .column(0),
        &ints
    );
    assert!(convert(ints, required(column("x", Type::Int64)), defaults).is_err());

    let nothing: ArrayRef = Arc::new(NullArray::new(2));
    let target = with_default(repeated(column("x", Type::Int64)));
    assert_eq!(
        convert(nothing, target, defaults)
            .unwrap()
            .batch
            .column(0)
            .null_count(),
        2
    );
}
