//! Values that do not fit: refused with row, path and reason, and never with the value.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalDayTime, IntervalMonthDayNano};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use bigquery_write_proto::rows::{ConvertError, RowEncoder, RowError, RowErrors, RowReason};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::*;

const MIN_MICROS: i64 = -62_135_596_800_000_000;
const MAX_MICROS: i64 = 253_402_300_799_999_999;

/// A struct of start and end.
fn dates(start: &[Option<i32>], end: &[Option<i32>]) -> ArrayRef {
    let bound = |name, values: &[Option<i32>]| {
        let array = Arc::new(Date32Array::from(values.to_vec())) as ArrayRef;
        (Arc::new(Field::new(name, DataType::Date32, true)), array)
    };
    Arc::new(StructArray::from(vec![bound("start", start), bound("end", end)]))
}

/// What is written where, and who is refused.
type Case = (ArrayRef, TableFieldSchema, Vec<(usize, RowReason)>);

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
    let cases: Vec<Case> = vec![
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
            vec![(1, IntegerDigits(39))],
        ),
        (
            wide_decimals(
                &[
                    "578960446186580977117854925043439539266",
                    "578960446186580977117854925043439539267",
                    "-578960446186580977117854925043439539266",
                    "-578960446186580977117854925043439539267",
                    "1000000000000000000000000000000000000000",
                ],
                0,
            ),
            column("x", Type::Bignumeric),
            vec![
                (1, OutOfRange("BIGNUMERIC")),
                (3, OutOfRange("BIGNUMERIC")),
                (4, IntegerDigits(39)),
            ],
        ),
        (
            Arc::new(IntervalYearMonthArray::from(vec![120_000, -120_001, 120_001])),
            column("x", Type::Interval),
            vec![(1, OutOfRange("INTERVAL")), (2, OutOfRange("INTERVAL"))],
        ),
        (
            Arc::new(IntervalDayTimeArray::from(vec![
                IntervalDayTime::new(-3_660_000, i32::MIN),
                IntervalDayTime::new(3_660_001, 0),
            ])),
            column("x", Type::Interval),
            vec![(1, OutOfRange("INTERVAL"))],
        ),
        (
            Arc::new(IntervalMonthDayNanoArray::from(vec![
                IntervalMonthDayNano::new(0, 0, 1_000),
                IntervalMonthDayNano::new(120_001, 0, 0),
            ])),
            column("x", Type::Interval),
            vec![(1, OutOfRange("INTERVAL"))],
        ),
        (
            Arc::new(IntervalMonthDayNanoArray::from(vec![
                IntervalMonthDayNano::new(0, 0, -1),
                IntervalMonthDayNano::new(0, -3_660_001, 1),
                IntervalMonthDayNano::new(0, 0, 1_000),
            ])),
            column("x", Type::Interval),
            vec![(0, SubMicroseconds), (1, OutOfRange("INTERVAL"))],
        ),
        (
            Arc::new(DurationSecondArray::from(vec![
                Some(9_223_372_036),
                Some(9_223_372_037),
                None,
            ])),
            column("x", Type::Interval),
            vec![(1, OutOfRange("INTERVAL"))],
        ),
        (
            Arc::new(DurationNanosecondArray::from(vec![i64::MIN, 0])),
            column("x", Type::Interval),
            vec![(0, SubMicroseconds)],
        ),
        (
            // Forward, empty, backward, unbounded on either side.
            dates(
                &[Some(0), Some(1), Some(2), None, Some(0)],
                &[Some(1), Some(1), Some(1), Some(1), None],
            ),
            range(Type::Date),
            vec![(1, EmptyRange), (2, EmptyRange)],
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
        let total = errors.len() as u64;
        assert_eq!(
            found,
            RowErrors { errors, total, rows },
            "{input} into {target:?}"
        );
    }
}

#[test]
fn a_bound_that_does_not_fit_is_told_once_and_by_its_own_name() {
    let array = dates(&[Some(0), Some(3_000_000)], &[Some(1), Some(0)]);
    let lists = ListArray::new(
        Arc::new(Field::new("item", array.data_type().clone(), true)),
        OffsetBuffer::from_lengths([0, 2]),
        array,
        None,
    );
    assert_eq!(
        convert(Arc::new(lists), repeated(range(Type::Date)), TRUNCATE)
            .unwrap_err()
            .to_string(),
        "1 row does not fit the table: row 2 of the batch, column `x.start`: out of the range of DATE"
    );
    let backwards = dates(&[Some(2)], &[Some(1)]);
    assert_eq!(
        convert(backwards, range(Type::Date), TRUNCATE)
            .unwrap_err()
            .to_string(),
        "1 row does not fit the table: row 1 of the batch, column `x`: a RANGE whose start is not before its end"
    );
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
        total: 2,
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

    // The value itself is NULL over a number that would not fit.
    let over = |fits: i64, wrong: i64| {
        (
            ScalarBuffer::from(vec![fits, wrong]),
            NullBuffer::from(vec![true, false]),
        )
    };
    let (values, nulls) = over(0, i64::MAX);
    let micros = TimestampMicrosecondArray::new(values.clone(), Some(nulls.clone()));
    let seconds = TimestampSecondArray::new(values, Some(nulls));
    for array in [Arc::new(micros) as ArrayRef, Arc::new(seconds)] {
        let batch = convert(array, column("x", Type::Timestamp), REFUSE)
            .unwrap()
            .batch;
        assert_eq!(
            (batch.column(0).is_valid(0), batch.column(0).is_null(1)),
            (true, true)
        );
    }
    let (values, nulls) = over(1_000, 1_001);
    let nanos = TimestampNanosecondArray::new(values, Some(nulls));
    assert_eq!(
        convert(Arc::new(nanos), column("x", Type::Timestamp), TRUNCATE)
            .unwrap()
            .truncated,
        0
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
    assert_eq!(errors.total, 45);
    let text = errors.to_string();
    assert!(text.ends_with("; and 35 more"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert!(
        text.starts_with("30 rows do not fit the table: row 1 of the batch, column `x`: not JSON (line 1, column 1); row 1 of"),
        "{text}"
    );
}

#[test]
fn the_errors_told_are_the_first_by_row_over_all_columns() {
    let late = (0..20).map(|row| if row < 8 { None } else { Some("x") });
    let early = (0..20).map(|row| if row < 5 { Some("x") } else { None });
    let columns: [(&str, ArrayRef); 2] = [
        ("a", Arc::new(StringArray::from_iter(late))),
        ("b", Arc::new(StringArray::from_iter(early))),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
    let target = table(vec![column("a", Type::Json), column("b", Type::Json)]);
    let encoder = RowEncoder::new(&batch.schema(), &target, TRUNCATE).unwrap();
    let Err(ConvertError::Rows(errors)) = encoder.convert(&batch) else {
        panic!("row errors")
    };
    let told: Vec<_> = errors
        .errors
        .iter()
        .map(|error| (error.column.as_str(), error.row))
        .collect();
    let expected = [
        ("b", 0),
        ("b", 1),
        ("b", 2),
        ("b", 3),
        ("b", 4),
        ("a", 8),
        ("a", 9),
        ("a", 10),
        ("a", 11),
        ("a", 12),
    ];
    assert_eq!(told, expected);
    assert_eq!((errors.total, errors.rows.len()), (17, 17));
    // For a caller that goes on without these rows: each error, and the same words for people.
    let Err(ConvertError::Rows(all)) = encoder.convert_listing(&batch, usize::MAX) else {
        panic!("row errors")
    };
    let late = (8..20).map(|row| (row, "a"));
    let mut expected: Vec<_> = (0..5).map(|row| (row, "b")).chain(late).collect();
    expected.sort_unstable();
    let listed: Vec<_> = all
        .errors
        .iter()
        .map(|error| (error.row, error.column.as_str()))
        .collect();
    assert_eq!(listed, expected);
    assert_eq!(all.to_string(), errors.to_string());
}
