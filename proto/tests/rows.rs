//! Values on their way to the wire: what is cast, what is refused and at which row, and the messages' bytes.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StringDictionaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Int8Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, TimeUnit};
use arrow_select::concat::concat_batches;
use bigquery_write_proto::rows::{
    ConvertError, EncodeError, RowEncoder, RowError, RowErrors, RowReason, batch_bytes,
};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::*;

const MIN_MICROS: i64 = -62_135_596_800_000_000;
const MAX_MICROS: i64 = 253_402_300_799_999_999;

fn numeric(precision: i64, scale: i64) -> TableFieldSchema {
    TableFieldSchema {
        precision,
        scale,
        ..column("x", Type::Numeric)
    }
}

fn limited(r#type: Type, max_length: i64) -> TableFieldSchema {
    TableFieldSchema {
        max_length,
        ..column("x", r#type)
    }
}

fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(
        Decimal128Array::from(values)
            .with_precision_and_scale(precision, scale)
            .unwrap(),
    )
}

fn wide_decimals(values: &[&str], scale: i8) -> ArrayRef {
    let values = values.iter().map(|text| i256::from_string(text).unwrap());
    Arc::new(
        Decimal256Array::from_iter_values(values)
            .with_precision_and_scale(76, scale)
            .unwrap(),
    )
}

#[test]
fn each_kind_of_value_that_does_not_fit_is_a_row_error_with_its_row_and_reason() {
    use RowReason::*;
    let ten = |exponent: u32| 10_i128.pow(exponent);
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1)]),
        None,
        Some(vec![Some(1), None]),
    ]);
    let utf8 = |values: &[Option<&str>]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let cases: Vec<(ArrayRef, TableFieldSchema, Vec<(usize, RowReason)>)> = vec![
        (
            Arc::new(Int64Array::from(vec![Some(1), None])),
            required(column("x", Type::Int64)),
            vec![(1, NullInRequired)],
        ),
        (
            Arc::new(NullArray::new(2)),
            required(column("x", Type::Int64)),
            vec![(0, NullInRequired), (1, NullInRequired)],
        ),
        (
            Arc::new(list),
            repeated(column("x", Type::Int64)),
            vec![(2, NullElement)],
        ),
        (
            Arc::new(UInt64Array::from(vec![
                Some(i64::MAX as u64),
                None,
                Some(i64::MAX as u64 + 1),
            ])),
            column("x", Type::Int64),
            vec![(2, OutOfRange("INT64"))],
        ),
        (
            Arc::new(Date32Array::from(vec![-719_162, 2_932_896, -719_163, 2_932_897])),
            column("x", Type::Date),
            vec![(2, OutOfRange("DATE")), (3, OutOfRange("DATE"))],
        ),
        (
            Arc::new(Date64Array::from(vec![-86_400_000, 1, i64::MAX])),
            column("x", Type::Date),
            vec![(1, TimeOfDay), (2, OutOfRange("DATE"))],
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![
                MIN_MICROS,
                MIN_MICROS - 1,
                MAX_MICROS,
                MAX_MICROS + 1,
            ])),
            column("x", Type::Timestamp),
            vec![(1, OutOfRange("TIMESTAMP")), (3, OutOfRange("TIMESTAMP"))],
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![
                MAX_MICROS / 1000,
                MAX_MICROS / 1000 + 1,
            ])),
            column("x", Type::Datetime),
            vec![(1, OutOfRange("DATETIME"))],
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![
                Some(i64::MAX),
                None,
                Some(i64::MIN),
                Some(0),
            ])),
            column("x", Type::Timestamp),
            vec![(0, OutOfRange("TIMESTAMP")), (2, OutOfRange("TIMESTAMP"))],
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![1_000, 1_001, -1])),
            column("x", Type::Timestamp),
            vec![(1, SubMicroseconds), (2, SubMicroseconds)],
        ),
        (
            Arc::new(Time64NanosecondArray::from(vec![
                86_399_999_999_000,
                86_400_000_000_000,
                -1_000,
                1,
            ])),
            column("x", Type::Time),
            vec![
                (1, OutOfRange("TIME")),
                (2, OutOfRange("TIME")),
                (3, SubMicroseconds),
            ],
        ),
        (
            Arc::new(Time32SecondArray::from(vec![0, i32::MAX, i32::MIN])),
            column("x", Type::Time),
            vec![(1, OutOfRange("TIME")), (2, OutOfRange("TIME"))],
        ),
        (
            utf8(&[
                Some("{}"),
                None,
                Some("{\n\"a\":"),
                Some("{} x"),
                Some("null"),
                Some(""),
            ]),
            column("x", Type::Json),
            vec![
                (2, InvalidJson { line: 2, column: 4 }),
                (3, InvalidJson { line: 1, column: 4 }),
                (5, InvalidJson { line: 1, column: 0 }),
            ],
        ),
        (
            utf8(&[Some("äöü"), Some("äöüß"), None]),
            limited(Type::String, 3),
            vec![(1, TooManyCharacters(3))],
        ),
        (
            Arc::new(BinaryArray::from_vec(vec![b"ab", b"abc"])),
            limited(Type::Bytes, 2),
            vec![(1, TooManyBytes(2))],
        ),
        (
            decimals(
                vec![
                    Some(ten(29) - 1),
                    Some(ten(29)),
                    None,
                    Some(1 - ten(29)),
                    Some(-ten(29)),
                ],
                38,
                0,
            ),
            column("x", Type::Numeric),
            vec![(1, IntegerDigits(29)), (4, IntegerDigits(29))],
        ),
        (
            decimals(vec![Some(10), Some(1), Some(0)], 38, 10),
            column("x", Type::Numeric),
            vec![(1, FractionDigits(9))],
        ),
        (
            decimals(vec![Some(1), Some(0)], 38, -38),
            column("x", Type::Numeric),
            vec![(0, IntegerDigits(29))],
        ),
        (
            wide_decimals(
                &[
                    "0",
                    "1",
                    "100000000000000000000000000000000000000",
                    "-99999999999999999999999999999000000000000000000",
                ],
                18,
            ),
            column("x", Type::Numeric),
            vec![(1, FractionDigits(9))],
        ),
        (
            decimals(vec![Some(99_999), Some(100_000), Some(-99_999)], 38, 2),
            numeric(5, 2),
            vec![(1, IntegerDigits(3))],
        ),
        (
            decimals(vec![Some(10), Some(1)], 38, 3),
            numeric(5, 2),
            vec![(1, FractionDigits(2))],
        ),
        (
            decimals(vec![Some(10_000_000), Some(1_000_000)], 38, 9),
            numeric(5, 2),
            vec![(1, FractionDigits(2))],
        ),
        (
            Arc::new(Int32Array::from(vec![999, 1000, -1000])),
            numeric(3, 0),
            vec![(1, IntegerDigits(3)), (2, IntegerDigits(3))],
        ),
        (
            wide_decimals(
                &[
                    "1",
                    "10000000000000000000000000000000000000000000000000000000000000000000000000",
                ],
                -3,
            ),
            column("x", Type::Bignumeric),
            vec![(1, IntegerDigits(38))],
        ),
        (
            wide_decimals(&["10", "1"], 39),
            column("x", Type::Bignumeric),
            vec![(1, FractionDigits(38))],
        ),
    ];
    for (array, target, expected) in cases {
        let input = array.data_type().clone();
        let found = convert(array, target.clone(), REFUSE).expect_err("a row error");
        let errors: Vec<RowError> = expected
            .iter()
            .map(|&(row, reason)| RowError {
                row,
                column: "x".to_owned(),
                reason,
            })
            .collect();
        let mut rows: Vec<usize> = expected.iter().map(|(row, _)| *row).collect();
        rows.dedup();
        assert_eq!(found, RowErrors { errors, rows }, "{input} into {target:?}");
    }
}

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

/// Column `s`: STRUCT<l ARRAY<STRUCT<r STRING(3) NOT NULL>>>.
fn nested() -> TableFieldSchema {
    let leaf = required(TableFieldSchema {
        max_length: 3,
        ..column("r", Type::String)
    });
    record("x", vec![repeated(record("l", vec![leaf]))])
}

fn nested_array(
    texts: Vec<Option<&str>>,
    items: Option<Vec<bool>>,
    lengths: &[usize],
    lists: Option<Vec<bool>>,
    structs: Option<Vec<bool>>,
) -> ArrayRef {
    let leaf = Arc::new(StringArray::from(texts)) as ArrayRef;
    let item = StructArray::new(
        vec![Field::new("r", DataType::Utf8, true)].into(),
        vec![leaf],
        items.map(NullBuffer::from),
    );
    let list = ListArray::new(
        Arc::new(Field::new("field", item.data_type().clone(), true)),
        OffsetBuffer::from_lengths(lengths.iter().copied()),
        Arc::new(item),
        lists.map(NullBuffer::from),
    );
    let fields = vec![Field::new("l", list.data_type().clone(), true)];
    Arc::new(StructArray::new(
        fields.into(),
        vec![Arc::new(list)],
        structs.map(NullBuffer::from),
    ))
}

#[test]
fn errors_inside_lists_and_structs_name_the_row_of_the_batch_and_the_dotted_path() {
    // Rows: 0 empty, 1 two good, 2 empty, 3 [good, too long], 4 [null], 5 good.
    let array = nested_array(
        vec![Some("a"), Some("b"), Some("c"), Some("long"), None, Some("d")],
        None,
        &[0, 2, 0, 2, 1, 1],
        None,
        None,
    );
    let expected = |shift: usize| RowErrors {
        errors: vec![
            RowError {
                row: 3 - shift,
                column: "x.l.r".to_owned(),
                reason: RowReason::TooManyCharacters(3),
            },
            RowError {
                row: 4 - shift,
                column: "x.l.r".to_owned(),
                reason: RowReason::NullInRequired,
            },
        ],
        rows: vec![3 - shift, 4 - shift],
    };
    assert_eq!(
        convert(Arc::clone(&array), nested(), TRUNCATE).unwrap_err(),
        expected(0)
    );
    assert_eq!(
        convert(array.slice(2, 4), nested(), TRUNCATE).unwrap_err(),
        expected(2)
    );
}

#[test]
fn what_lies_under_a_null_parent_is_nobodys_value() {
    // Row 0: the list is NULL over a bad element. Row 1: the struct is NULL over a good list with a bad element. Row 2 is good.
    let array = nested_array(
        vec![Some("too long"), Some("too long"), Some("ok")],
        None,
        &[1, 1, 1],
        Some(vec![false, true, true]),
        Some(vec![true, false, true]),
    );
    let batch = convert(array, nested(), TRUNCATE).unwrap().batch;
    let outer = batch.column(0).as_struct();
    assert_eq!(
        outer.nulls().unwrap().iter().collect::<Vec<_>>(),
        [true, false, true]
    );
    let list = outer.column(0).as_list::<i32>();
    assert_eq!((list.value_offsets(), list.null_count()), (&[0, 0, 0, 1][..], 0));
    assert_eq!(
        list.values().as_struct().column(0).as_string::<i32>().value(0),
        "ok"
    );

    // A NULL element of the list is an error of its own, and hides the field below it.
    let array = nested_array(vec![Some("too long")], Some(vec![false]), &[1], None, None);
    let reason = RowReason::NullElement;
    assert_eq!(
        convert(array, nested(), TRUNCATE).unwrap_err().errors,
        [RowError {
            row: 0,
            column: "x.l".to_owned(),
            reason
        }]
    );
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
fn the_first_ten_errors_by_row_are_told_and_every_bad_row_but_no_value() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..40 {
        lists.append_value([
            Some(if row % 2 == 0 { "secret-1" } else { "[]" }),
            Some("secret-2"),
        ]);
    }
    let errors = convert(
        Arc::new(lists.finish().slice(10, 30)),
        repeated(column("x", Type::Json)),
        TRUNCATE,
    )
    .unwrap_err();
    assert_eq!(errors.rows, (0..30).collect::<Vec<_>>());
    assert_eq!(
        errors.errors.iter().map(|error| error.row).collect::<Vec<_>>(),
        [0, 0, 1, 2, 2, 3, 4, 4, 5, 6]
    );
    let text = errors.to_string();
    assert!(!text.contains("secret"), "{text}");
    assert!(
        text.starts_with("30 row(s) of the batch do not fit the table: row 0, column `x`: not JSON (line 1, column 1); row 0,"),
        "{text}"
    );
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
