//! INTERVAL, RANGE and TIMESTAMP(12) columns: what Arrow types they take, and the exact values they keep.

use std::sync::Arc;

use arrow_array::types::{IntervalDayTime, IntervalMonthDayNano};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, IntervalDayTimeArray,
    IntervalMonthDayNanoArray, IntervalYearMonthArray, StringArray, StructArray, TimestampMicrosecondArray,
    TimestampNanosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement};

use crate::rows::{GENERIC, append, bad, batch, column};

/// Appends one column, and what is kept of it.
fn kept(kind: &Kind, values: ArrayRef) -> ArrayRef {
    let (said, rows) = append(vec![column("v", kind.clone())], &batch(vec![("v", values)]));
    assert_eq!(said, "appended");
    assert_eq!(*rows.column(0).data_type(), kind.arrow());
    Arc::clone(rows.column(0))
}

fn refused(kind: Kind, values: ArrayRef) -> String {
    let (said, rows) = append(vec![column("v", kind)], &batch(vec![("v", values)]));
    assert_eq!(rows.num_rows(), 0);
    said
}

/// A canonical struct: `parts` are its fields.
fn canonical(kind: &Kind, parts: Vec<ArrayRef>, nulls: Option<Vec<bool>>) -> ArrayRef {
    let DataType::Struct(fields) = kind.arrow() else {
        panic!("{kind:?}")
    };
    Arc::new(StructArray::new(fields, parts, nulls.map(NullBuffer::from)))
}

fn intervals(months: Vec<i32>, days: Vec<i32>, micros: Vec<i64>, valid: Vec<bool>) -> ArrayRef {
    let parts: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(months)),
        Arc::new(Int32Array::from(days)),
        Arc::new(Int64Array::from(micros)),
    ];
    canonical(&Kind::Interval, parts, Some(valid))
}

#[test]
fn an_interval_comes_in_each_of_arrows_units_and_as_text() {
    let kept = |values: ArrayRef| kept(&Kind::Interval, values);
    let valid = || vec![true, false, true];
    let none = || vec![0, 0, 0];
    assert_eq!(
        &kept(Arc::new(IntervalYearMonthArray::from(vec![
            Some(14),
            None,
            Some(-120_000)
        ]))),
        &intervals(vec![14, 0, -120_000], none(), vec![0; 3], valid())
    );
    let day_time = |days, millis| Some(IntervalDayTime::new(days, millis));
    assert_eq!(
        &kept(Arc::new(IntervalDayTimeArray::from(vec![
            day_time(3_660_000, -1),
            None,
            day_time(-2, i32::MAX)
        ]))),
        &intervals(
            none(),
            vec![3_660_000, 0, -2],
            vec![-1_000, 0, 2_147_483_647_000],
            valid()
        )
    );
    let nanos = |months, days, nanos| Some(IntervalMonthDayNano::new(months, days, nanos));
    assert_eq!(
        &kept(Arc::new(IntervalMonthDayNanoArray::from(vec![
            nanos(1, -2, 3_000),
            None,
            nanos(0, 0, i64::MIN / 1_000 * 1_000)
        ]))),
        &intervals(
            vec![1, 0, 0],
            vec![-2, 0, 0],
            vec![3, 0, i64::MIN / 1_000],
            valid()
        )
    );
    // Beyond what any of Arrow's units can say.
    assert_eq!(
        &kept(Arc::new(StringArray::from(vec![
            Some("-1-2 3 87840000:0:0"),
            None,
            Some("0-0 0 -0:0:0.000001")
        ]))),
        &intervals(
            vec![-14, 0, 0],
            vec![3, 0, 0],
            vec![316_224_000_000_000_000, 0, -1],
            valid()
        )
    );
}

#[test]
fn an_interval_out_of_range_is_a_row_error() {
    let nanos = |months, days, nanos| {
        let values = vec![
            IntervalMonthDayNano::new(0, 0, 0),
            IntervalMonthDayNano::new(months, days, nanos),
        ];
        bad(Kind::Interval, Arc::new(IntervalMonthDayNanoArray::from(values)))
    };
    let range = "row 1 FIELDS_ERROR: Interval field value is out of range on field v.";
    assert_eq!(nanos(120_001, 0, 0), range);
    assert_eq!(nanos(0, -3_660_001, 0), range);
    assert_eq!(
        nanos(0, 0, 1),
        "row 1 FIELDS_ERROR: Interval field value has a fraction of a microsecond on field v."
    );
    assert_eq!(
        bad(
            Kind::Interval,
            Arc::new(StringArray::from(vec![
                "0-0 0 0:0:0",
                "1 day",
                "0-0 3660001 0:0:0"
            ]))
        ),
        "row 1 FIELDS_ERROR: Invalid interval on field v.; row 2 FIELDS_ERROR: Invalid interval on field v."
    );
}

/// A RANGE as a writer sends it: `start` and `end`, in the order given.
fn bounds(parts: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> ArrayRef {
    let fields: Fields = parts
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = parts.into_iter().map(|(_, array)| array).collect();
    Arc::new(StructArray::new(fields, arrays, nulls.map(NullBuffer::from)))
}

#[test]
fn a_range_is_a_struct_of_bounds_and_null_is_unbounded() {
    let dates = |values: [Option<i32>; 4]| -> ArrayRef { Arc::new(Date32Array::from(values.to_vec())) };
    let (start, end) = (
        dates([Some(1), None, Some(-719_162), Some(9)]),
        dates([Some(2), Some(2_932_896), None, Some(9)]),
    );
    // What lies under a null is not looked at.
    let nulls = || Some(vec![true, true, true, false]);
    let kind = Kind::Range(RangeElement::Date);
    assert_eq!(
        &kept(
            &kind,
            bounds(
                vec![("start", Arc::clone(&start)), ("end", Arc::clone(&end))],
                nulls()
            )
        ),
        &canonical(&kind, vec![Arc::clone(&start), Arc::clone(&end)], nulls())
    );
    // Names go without regard to case and order.
    assert_eq!(
        &kept(
            &kind,
            bounds(
                vec![("END", Arc::clone(&end)), ("Start", Arc::clone(&start))],
                nulls()
            )
        ),
        &canonical(&kind, vec![start, end], nulls())
    );

    let micros = |values: Vec<Option<i64>>| TimestampMicrosecondArray::from(values);
    let (start, end) = (
        vec![Some(-62_135_596_800_000_000), None],
        vec![Some(253_402_300_799_999_999), None],
    );
    let kind = Kind::Range(RangeElement::Datetime);
    let parts = || -> Vec<ArrayRef> { vec![Arc::new(micros(start.clone())), Arc::new(micros(end.clone()))] };
    let sent = bounds(["start", "end"].into_iter().zip(parts()).collect(), None);
    assert_eq!(&kept(&kind, sent), &canonical(&kind, parts(), None));
    let kind = Kind::Range(RangeElement::Timestamp);
    let parts = || -> Vec<ArrayRef> {
        let utc =
            |values: &Vec<Option<i64>>| Arc::new(micros(values.clone()).with_timezone("UTC")) as ArrayRef;
        vec![utc(&start), utc(&end)]
    };
    let sent = bounds(["start", "end"].into_iter().zip(parts()).collect(), None);
    assert_eq!(&kept(&kind, sent), &canonical(&kind, parts(), None));
}

#[test]
fn a_range_that_does_not_go_forward_is_a_row_error() {
    let dates = |values: Vec<i32>| -> ArrayRef { Arc::new(Date32Array::from(values)) };
    let sent = bounds(
        vec![
            ("start", dates(vec![1, 5, 6, -719_163, 0])),
            ("end", dates(vec![2, 5, 5, 0, 2_932_897])),
        ],
        None,
    );
    assert_eq!(
        bad(Kind::Range(RangeElement::Date), sent),
        "row 1 FIELDS_ERROR: Range start element must be smaller than range end element on field v.; row 2 \
         FIELDS_ERROR: Range start element must be smaller than range end element on field v.; row 3 FIELDS_ERROR: \
         Date field value is out of range: -719163 on field v.start.; row 4 FIELDS_ERROR: Date field value is out of \
         range: 2932897 on field v.end."
    );
}

#[test]
fn a_range_takes_only_the_one_struct_of_its_element() {
    let dates = || -> ArrayRef { Arc::new(Date32Array::from(vec![1])) };
    let ints = || -> ArrayRef { Arc::new(Int32Array::from(vec![2])) };
    let stamps = || -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![3]).with_timezone("UTC")) };
    let date = || Kind::Range(RangeElement::Date);
    let said = |kind, parts| {
        let said = refused(kind, bounds(parts, None));
        let incompatible = said.starts_with("ended InvalidArgument: Found incompatible fields: 'v' (Struct(");
        assert!(incompatible && said.ends_with(" for RANGE) Entity: W"), "{said}");
    };
    said(date(), vec![("start", dates())]);
    said(date(), vec![("start", dates()), ("stop", dates())]);
    said(
        date(),
        vec![("start", dates()), ("end", dates()), ("step", dates())],
    );
    // A DATE column takes int32, a RANGE<DATE> does not.
    said(date(), vec![("start", ints()), ("end", ints())]);
    said(date(), vec![("start", stamps()), ("end", stamps())]);
    said(
        Kind::Range(RangeElement::Datetime),
        vec![("start", stamps()), ("end", stamps())],
    );
    assert_eq!(
        refused(
            date(),
            Arc::new(StringArray::from(vec!["[1970-01-01, UNBOUNDED)"]))
        ),
        "ended InvalidArgument: Found incompatible fields: 'v' (Utf8 for RANGE) Entity: W"
    );
}

#[test]
fn picoseconds_come_as_nanoseconds_or_microseconds() {
    let kind = Kind::TimestampPicoseconds;
    let picos = |values: Vec<Option<i128>>| -> ArrayRef {
        Arc::new(
            Decimal128Array::from(values)
                .with_precision_and_scale(24, 12)
                .unwrap(),
        )
    };
    let nanos = TimestampNanosecondArray::from(vec![
        Some(1_735_734_896_123_456_789),
        None,
        Some(i64::MIN),
        Some(-1),
    ]);
    assert_eq!(
        &kept(&kind, Arc::new(nanos.with_timezone("UTC"))),
        &picos(vec![
            Some(1_735_734_896_123_456_789_000),
            None,
            Some(-9_223_372_036_854_775_808_000),
            Some(-1_000)
        ])
    );
    let micros = TimestampMicrosecondArray::from(vec![-62_135_596_800_000_000, 253_402_300_799_999_999]);
    assert_eq!(
        &kept(&kind, Arc::new(micros)),
        &picos(vec![
            Some(-62_135_596_800_000_000_000_000),
            Some(253_402_300_799_999_999_000_000)
        ])
    );
    assert_eq!(
        bad(
            kind.clone(),
            Arc::new(TimestampMicrosecondArray::from(vec![0, 253_402_300_800_000_000]))
        ),
        "row 1 FIELDS_ERROR: Timestamp field value is out of range: 253402300800000000 on field v."
    );
    assert_eq!(
        refused(
            kind,
            Arc::new(StringArray::from(vec!["2025-01-01T12:34:56.123456789123Z"]))
        ),
        "ended InvalidArgument: Found incompatible fields: 'v' (Utf8 for TIMESTAMP) Entity: W"
    );
}

#[test]
fn nulls_and_lists_of_the_three_are_judged_as_those_of_others() {
    let required = |kind| vec![Column::new("v", kind, Mode::Required)];
    let sent: ArrayRef = Arc::new(IntervalYearMonthArray::from(vec![Some(1), None]));
    assert_eq!(
        append(required(Kind::Interval), &batch(vec![("v", sent)])).0,
        format!("{GENERIC}row 1 FIELDS_ERROR: NULL value is not allowed on field v.")
    );
    let dates = || -> ArrayRef { Arc::new(Date32Array::from(vec![1, 5])) };
    let sent = bounds(
        vec![("start", dates()), ("end", Arc::new(Date32Array::new_null(2)))],
        Some(vec![false, true]),
    );
    assert_eq!(
        append(
            required(Kind::Range(RangeElement::Date)),
            &batch(vec![("v", sent)])
        )
        .0,
        format!("{GENERIC}row 0 FIELDS_ERROR: NULL value is not allowed on field v.")
    );
    // A column that the writer leaves out is NULL.
    let columns = vec![
        column("i", Kind::Interval),
        column("r", Kind::Range(RangeElement::Date)),
        column("p", Kind::TimestampPicoseconds),
        column("n", Kind::Int64),
    ];
    let (said, rows) = append(columns, &batch(vec![("n", Arc::new(Int64Array::from(vec![1])))]));
    assert_eq!(said, "appended");
    assert_eq!(
        (0..3).map(|at| rows.column(at).null_count()).collect::<Vec<_>>(),
        [1, 1, 1]
    );
}
