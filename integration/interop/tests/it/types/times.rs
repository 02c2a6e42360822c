//! DATE, TIME, DATETIME, TIMESTAMP, TIMESTAMP(12), INTERVAL and RANGE.

use std::sync::Arc;

use arrow_array::types::{IntervalDayTime, IntervalMonthDayNano};
use arrow_array::*;
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use bigquery_write_proto::rows::TableType;
use serde_json::{Value, json};

use super::world::{Case, column, reasons, refused};

/// The first second of year 1 and the last of year 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            column(TableType::Date),
            Date32Array::from(vec![Some(-719_162), Some(2_932_896), Some(0), Some(19_782), None]),
            json!(["0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29", null]),
        ),
        Case::new(
            column(TableType::Date),
            Date64Array::from(vec![
                Some(FIRST * 1_000),
                Some(2_932_896 * 86_400_000),
                Some(-86_400_000),
                None,
            ]),
            json!(["0001-01-01", "9999-12-31", "1969-12-31", null]),
        ),
    ];
    cases.extend(clocks());
    cases.extend(instants());
    cases.extend(picoseconds());
    cases.extend(intervals());
    cases.extend(ranges());
    cases
}

fn clocks() -> Vec<Case> {
    let into = |array: ArrayRef, expected| Case::of(column(TableType::Time), array, expected);
    vec![
        into(
            Arc::new(Time32SecondArray::from(vec![Some(0), Some(86_399), None])),
            json!(["00:00:00", "23:59:59", null]),
        ),
        into(
            Arc::new(Time32MillisecondArray::from(vec![0, 86_399_999])),
            json!(["00:00:00", "23:59:59.999000"]),
        ),
        into(
            Arc::new(Time64MicrosecondArray::from(vec![0, 86_399_999_999])),
            json!(["00:00:00", "23:59:59.999999"]),
        ),
        into(
            Arc::new(Time64NanosecondArray::from(vec![1_000, 86_399_999_999_000])),
            json!(["00:00:00.000001", "23:59:59.999999"]),
        ),
    ]
}

/// Timestamps of every unit at their edges, and the civil times that they are in UTC.
fn stamps() -> Vec<(ArrayRef, Vec<&'static str>)> {
    vec![
        (
            Arc::new(TimestampSecondArray::from(vec![FIRST, LAST, 0, -1])),
            vec![
                "0001-01-01T00:00:00",
                "9999-12-31T23:59:59",
                "1970-01-01T00:00:00",
                "1969-12-31T23:59:59",
            ],
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![
                FIRST * 1_000,
                LAST * 1_000 + 999,
                -1,
            ])),
            vec![
                "0001-01-01T00:00:00",
                "9999-12-31T23:59:59.999000",
                "1969-12-31T23:59:59.999000",
            ],
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![
                FIRST * 1_000_000,
                LAST * 1_000_000 + 999_999,
                -1,
            ])),
            vec![
                "0001-01-01T00:00:00",
                "9999-12-31T23:59:59.999999",
                "1969-12-31T23:59:59.999999",
            ],
        ),
        (
            // 64 bits of nanoseconds reach no further.
            Arc::new(TimestampNanosecondArray::from(vec![
                -9_223_372_036_854_775_000,
                9_223_372_036_854_775_000,
                -1_000,
            ])),
            vec![
                "1677-09-21T00:12:43.145225",
                "2262-04-11T23:47:16.854775",
                "1969-12-31T23:59:59.999999",
            ],
        ),
    ]
}

/// The same numbers, in a zone or in none.
fn in_zone(array: &ArrayRef, zone: Option<&str>) -> ArrayRef {
    let DataType::Timestamp(unit, _) = array.data_type() else {
        panic!("{} is no timestamp", array.data_type());
    };
    let data = array.to_data().into_builder();
    let data_type = DataType::Timestamp(*unit, zone.map(Into::into));
    make_array(data.data_type(data_type).build().unwrap())
}

fn instants() -> Vec<Case> {
    let mut cases = Vec::new();
    for (array, texts) in stamps() {
        let utc: Value = texts.iter().map(|text| format!("{text}Z")).collect();
        for zone in [None, Some("UTC"), Some("America/New_York")] {
            cases.push(Case::of(
                column(TableType::Timestamp),
                in_zone(&array, zone),
                utc.clone(),
            ));
        }
        for zone in [None, Some("+00:00")] {
            let civil = texts.iter().copied().collect();
            cases.push(Case::of(
                column(TableType::Datetime),
                in_zone(&array, zone),
                civil,
            ));
        }
    }
    // Instants know no daylight saving time: an hour that New York has twice, and one that it lacks.
    let hours = TimestampSecondArray::from(vec![
        Some(1_730_610_000),
        Some(1_730_613_600),
        Some(1_710_054_000),
        None,
    ]);
    cases.push(Case::new(
        column(TableType::Timestamp),
        hours.with_timezone("America/New_York"),
        json!([
            "2024-11-03T05:00:00Z",
            "2024-11-03T06:00:00Z",
            "2024-03-10T07:00:00Z",
            null
        ]),
    ));
    cases
}

fn picoseconds() -> Vec<Case> {
    let mut cases = Vec::new();
    let digits = |text: &&str| match text.split_once('.') {
        Some((seconds, fraction)) => format!("{seconds}.{fraction}000000Z"),
        None => format!("{text}.000000000000Z"),
    };
    for (array, texts) in stamps() {
        let expected: Value = texts.iter().map(digits).collect();
        for zone in [None, Some("UTC"), Some("Asia/Tokyo")] {
            cases.push(Case::of(
                column(TableType::TimestampPicoseconds),
                in_zone(&array, zone),
                expected.clone(),
            ));
        }
    }
    cases.push(Case::new(
        column(TableType::TimestampPicoseconds),
        TimestampNanosecondArray::from(vec![
            Some(i64::MIN),
            Some(i64::MAX),
            Some(-1),
            Some(1_735_734_896_123_456_789),
            None,
        ]),
        json!([
            "1677-09-21T00:12:43.145224192000Z",
            "2262-04-11T23:47:16.854775807000Z",
            "1969-12-31T23:59:59.999999999000Z",
            "2025-01-01T12:34:56.123456789000Z",
            null
        ]),
    ));
    cases
}

fn intervals() -> Vec<Case> {
    let into = |array: ArrayRef, expected| Case::of(column(TableType::Interval), array, expected);
    let parts = |months, days, nanos| Some(IntervalMonthDayNano::new(months, days, nanos));
    vec![
        into(
            Arc::new(IntervalYearMonthArray::from(vec![
                Some(14),
                Some(-1),
                Some(120_000),
                Some(-120_000),
                Some(0),
                None,
            ])),
            json!([
                "1-2 0 0:0:0",
                "-0-1 0 0:0:0",
                "10000-0 0 0:0:0",
                "-10000-0 0 0:0:0",
                "0-0 0 0:0:0",
                null
            ]),
        ),
        into(
            Arc::new(IntervalDayTimeArray::from(vec![
                IntervalDayTime::new(1, -2),
                IntervalDayTime::new(-3_660_000, 3_723_004),
            ])),
            json!(["0-0 1 -0:0:0.002", "0-0 -3660000 1:2:3.004"]),
        ),
        into(
            Arc::new(IntervalMonthDayNanoArray::from(vec![
                parts(14, -3, 3_723_004_005_000),
                parts(-120_000, 3_660_000, -1_000),
                parts(0, 0, 9_223_372_036_854_775_000),
                parts(0, 0, 0),
                None,
            ])),
            json!([
                "1-2 -3 1:2:3.004005",
                "-10000-0 3660000 -0:0:0.000001",
                "0-0 0 2562047:47:16.854775",
                "0-0 0 0:0:0",
                null
            ]),
        ),
        into(
            Arc::new(DurationSecondArray::from(vec![
                Some(9_223_372_036),
                Some(-1),
                None,
            ])),
            json!(["0-0 0 2562047:47:16", "0-0 0 -0:0:1", null]),
        ),
        into(
            Arc::new(DurationMillisecondArray::from(vec![86_400_000, -5])),
            json!(["0-0 0 24:0:0", "0-0 0 -0:0:0.005"]),
        ),
        into(
            Arc::new(DurationMicrosecondArray::from(vec![3_600_000_001, 0])),
            json!(["0-0 0 1:0:0.000001", "0-0 0 0:0:0"]),
        ),
        into(
            Arc::new(DurationNanosecondArray::from(vec![61_000_000_000, -1_000])),
            json!(["0-0 0 0:1:1", "0-0 0 -0:0:0.000001"]),
        ),
    ]
}

/// A struct of two bounds, the end first as it may be; NULL in the last row.
fn bounds(start: ArrayRef, end: ArrayRef) -> StructArray {
    let fields = Fields::from(vec![
        Field::new("END", end.data_type().clone(), true),
        Field::new("Start", start.data_type().clone(), true),
    ]);
    let valid: Vec<bool> = (1..=start.len()).map(|row| row < start.len()).collect();
    StructArray::new(fields, vec![end, start], Some(NullBuffer::from(valid)))
}

fn ranges() -> Vec<Case> {
    let starts = vec![Some(-719_162), None, Some(0), None, Some(5)];
    let ends = vec![Some(2_932_896), Some(0), None, None, Some(1)];
    let millis = |days: &[Option<i32>]| -> ArrayRef {
        let day: ArrayRef = Arc::new(Date32Array::from(days.to_vec()));
        cast(&day, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap()
    };
    vec![
        Case::new(
            column(TableType::RangeOfDate),
            bounds(
                Arc::new(Date32Array::from(starts.clone())),
                Arc::new(Date32Array::from(ends.clone())),
            ),
            json!([
                "[0001-01-01, 9999-12-31)",
                "[UNBOUNDED, 1970-01-01)",
                "[1970-01-01, UNBOUNDED)",
                "[UNBOUNDED, UNBOUNDED)",
                null
            ]),
        ),
        Case::new(
            column(TableType::RangeOfDatetime),
            bounds(millis(&starts), millis(&ends)),
            json!([
                "[0001-01-01T00:00:00, 9999-12-31T00:00:00)",
                "[UNBOUNDED, 1970-01-01T00:00:00)",
                "[1970-01-01T00:00:00, UNBOUNDED)",
                "[UNBOUNDED, UNBOUNDED)",
                null
            ]),
        ),
        Case::new(
            column(TableType::RangeOfTimestamp),
            // As a window of the engine has them.
            bounds(
                Arc::new(TimestampNanosecondArray::from(vec![Some(0), None, Some(0)])),
                Arc::new(TimestampNanosecondArray::from(vec![
                    Some(5_000_000_000),
                    Some(1_000),
                    None,
                ])),
            ),
            json!([
                "[1970-01-01T00:00:00Z, 1970-01-01T00:00:05Z)",
                "[UNBOUNDED, 1970-01-01T00:00:00.000001Z)",
                null
            ]),
        ),
    ]
}

#[test]
fn times_beyond_their_column_are_row_errors() {
    let said = |table: TableType, array: ArrayRef| reasons(&refused(column(table), array));
    let beyond = |rows: &[usize], what: &str| -> Vec<(usize, String)> {
        rows.iter().map(|&row| (row, what.to_owned())).collect()
    };
    // Year 0, year 10000, and years far from all.
    for (table, name) in [
        (TableType::Timestamp, "TIMESTAMP"),
        (TableType::TimestampPicoseconds, "TIMESTAMP"),
        (TableType::Datetime, "DATETIME"),
    ] {
        let out = format!("out of the range of {name}");
        let seconds = TimestampSecondArray::from(vec![FIRST - 1, FIRST, LAST, LAST + 1, i64::MAX, i64::MIN]);
        assert_eq!(said(table, Arc::new(seconds)), beyond(&[1, 4, 5, 6], &out));
        let micros = TimestampMicrosecondArray::from(vec![FIRST * 1_000_000 - 1, (LAST + 1) * 1_000_000]);
        assert_eq!(said(table, Arc::new(micros)), beyond(&[1, 2], &out));
    }
    let days = Date32Array::from(vec![-719_163, -719_162, 2_932_896, 2_932_897]);
    assert_eq!(
        said(TableType::Date, Arc::new(days)),
        beyond(&[1, 4], "out of the range of DATE")
    );
    let noon = Date64Array::from(vec![0, 43_200_000]);
    assert_eq!(
        said(TableType::Date, Arc::new(noon)),
        beyond(&[2], "a time of day in a DATE")
    );
    // The leap second 23:59:60, which BigQuery does not have.
    let leap = Time32SecondArray::from(vec![86_399, 86_400, -1]);
    assert_eq!(
        said(TableType::Time, Arc::new(leap)),
        beyond(&[2, 3], "out of the range of TIME")
    );
    let months = IntervalYearMonthArray::from(vec![120_001, -120_001]);
    assert_eq!(
        said(TableType::Interval, Arc::new(months)),
        beyond(&[1, 2], "out of the range of INTERVAL")
    );
    let seconds = DurationSecondArray::from(vec![9_223_372_037]);
    assert_eq!(
        said(TableType::Interval, Arc::new(seconds)),
        beyond(&[1], "out of the range of INTERVAL")
    );
    let days = |days: Vec<i32>| Arc::new(Date32Array::from(days)) as ArrayRef;
    // The last row is NULL, whatever lies under it.
    assert_eq!(
        said(
            TableType::RangeOfDate,
            Arc::new(bounds(days(vec![0, 1, 2, 9]), days(vec![1, 1, 1, 0])))
        ),
        beyond(&[2, 3], "a RANGE whose start is not before its end")
    );
}
