//! Rows in REST's JSON: `{"f": [{"v": ...}]}`, every scalar as a string.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Fields, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};

use crate::rest::error::ApiError;
use crate::values::{interval, picoseconds, range};

/// Encoded bytes after which a page ends, so that a reader of a large table needs several.
const PAGE_BYTES: usize = 10 << 20;
/// Rows after which a page ends.
const PAGE_ROWS: u64 = 100_000;

/// How TIMESTAMP values are written (`formatOptions`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimestampFormat {
    /// Seconds with a fraction, as a double is printed: `1.4E9`.
    #[default]
    Float64,
    /// Microseconds.
    Int64,
    /// `2024-01-02T03:04:05.000006Z`.
    Iso8601,
}

/// Some rows, encoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// A JSON array.
    pub(crate) rows: String,
    /// Index of the first row after this page.
    pub(crate) next: u64,
}

/// Encodes rows from `start` on: `most` of them, or fewer if a page is full before.
///
/// # Errors
/// A value that JSON cannot carry: a date beyond the calendar, which only a computed column can hold.
pub(crate) fn page(
    batches: &[RecordBatch],
    start: u64,
    most: Option<u64>,
    format: TimestampFormat,
) -> Result<Page, ApiError> {
    let mut left = most.unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
    let mut page = Page {
        rows: "[".to_owned(),
        next: start,
    };
    let mut skip = start;
    for batch in batches {
        let rows = batch.num_rows() as u64;
        if skip >= rows {
            skip -= rows;
            continue;
        }
        for row in skip..rows {
            if left == 0 || page.rows.len() >= PAGE_BYTES {
                page.rows.push(']');
                return Ok(page);
            }
            if page.next > start {
                page.rows.push(',');
            }
            // A batch's rows are counted in usize.
            write_row(&mut page.rows, batch.columns(), row as usize, format)?;
            page.next += 1;
            left -= 1;
        }
        skip = 0;
    }
    page.rows.push(']');
    Ok(page)
}

fn write_row(
    out: &mut String,
    columns: &[arrow_array::ArrayRef],
    row: usize,
    format: TimestampFormat,
) -> Result<(), ApiError> {
    out.push_str(r#"{"f":["#);
    for (i, column) in columns.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_cell(out, column, row, format)?;
    }
    out.push_str("]}");
    Ok(())
}

fn write_cell(
    out: &mut String,
    array: &dyn Array,
    row: usize,
    format: TimestampFormat,
) -> Result<(), ApiError> {
    out.push_str(r#"{"v":"#);
    write_value(out, array, row, format)?;
    out.push('}');
    Ok(())
}

fn write_value(
    out: &mut String,
    array: &dyn Array,
    row: usize,
    format: TimestampFormat,
) -> Result<(), ApiError> {
    if array.is_null(row) {
        // An ARRAY is never NULL to a reader, only empty.
        let null = if matches!(array.data_type(), DataType::List(_)) {
            "[]"
        } else {
            "null"
        };
        out.push_str(null);
        return Ok(());
    }
    match array.data_type() {
        DataType::Struct(fields) if !is_scalar(fields) => {
            return write_row(out, array.as_struct().columns(), row, format);
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            out.push('[');
            for i in 0..items.len() {
                if i > 0 {
                    out.push(',');
                }
                write_cell(out, &items, i, format)?;
            }
            out.push(']');
        }
        DataType::Utf8 => out.push_str(&quoted(array.as_string::<i32>().value(row))),
        _ => {
            let text = scalar(array, row, format)
                .ok_or_else(|| ApiError::invalid("A value is out of its type's range"))?;
            out.push('"');
            out.push_str(&text);
            out.push('"');
        }
    }
    Ok(())
}

/// A scalar's text, which needs no escaping; `None` if its type has no such value.
fn scalar(array: &dyn Array, row: usize, format: TimestampFormat) -> Option<String> {
    Some(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => float_text(array.as_primitive::<Float64Type>().value(row)),
        picoseconds if *picoseconds == picoseconds::DATA_TYPE => {
            picoseconds_text(array.as_primitive::<Decimal128Type>().value(row), format)?
        }
        DataType::Struct(fields) if interval::is(fields) => interval::at(array.as_struct(), row).to_string(),
        DataType::Struct(_) => range_text(array.as_struct(), row, format)?,
        DataType::Decimal128(_, scale) => decimal_text(
            &array.as_primitive::<Decimal128Type>().value(row).to_string(),
            *scale,
        ),
        DataType::Decimal256(_, scale) => decimal_text(
            &array.as_primitive::<Decimal256Type>().value(row).to_string(),
            *scale,
        ),
        DataType::Binary => STANDARD.encode(array.as_binary::<i32>().value(row)),
        DataType::Date32 => date_text(array.as_primitive::<Date32Type>().value(row))?,
        DataType::Time64(TimeUnit::Microsecond) => {
            time_text(array.as_primitive::<Time64MicrosecondType>().value(row))?
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            datetime_text(array.as_primitive::<TimestampMicrosecondType>().value(row))?
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => timestamp_text(
            array.as_primitive::<TimestampMicrosecondType>().value(row),
            format,
        )?,
        _ => return None,
    })
}

/// Whether a struct of these fields is one value, not a STRUCT.
fn is_scalar(fields: &Fields) -> bool {
    interval::is(fields) || range::element(fields).is_some()
}

/// `[2020-01-01, UNBOUNDED)`. The bounds of a RANGE<TIMESTAMP> are written as TIMESTAMPs are (Python's client reads
/// them so).
fn range_text(array: &StructArray, row: usize, format: TimestampFormat) -> Option<String> {
    let bound = |column: usize| match array.column(column) {
        bounds if bounds.is_null(row) => Some("UNBOUNDED".to_owned()),
        bounds => scalar(bounds, row, format),
    };
    Some(format!("[{}, {})", bound(0)?, bound(1)?))
}

fn timestamp_text(micros: i64, format: TimestampFormat) -> Option<String> {
    Some(match format {
        TimestampFormat::Int64 => micros.to_string(),
        TimestampFormat::Float64 => seconds_text(micros),
        TimestampFormat::Iso8601 => format!("{}Z", datetime_text(micros)?),
    })
}

/// All twelve digits in ISO 8601; the older formats end at microseconds.
fn picoseconds_text(picos: i128, format: TimestampFormat) -> Option<String> {
    if format != TimestampFormat::Iso8601 {
        return timestamp_text(
            i64::try_from(picos.div_euclid(picoseconds::MICROSECOND)).ok()?,
            format,
        );
    }
    let seconds = i64::try_from(picos.div_euclid(picoseconds::SECOND)).ok()?;
    let when = DateTime::from_timestamp(seconds, 0)?;
    let fraction = picos.rem_euclid(picoseconds::SECOND);
    Some(format!("{}.{fraction:012}Z", when.format("%Y-%m-%dT%H:%M:%S")))
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An unscaled integer as a decimal without trailing zeros.
fn decimal_text(unscaled: &str, scale: i8) -> String {
    let (sign, digits) = unscaled
        .strip_prefix('-')
        .map_or(("", unscaled), |digits| ("-", digits));
    let scale = usize::from(scale.max(0).unsigned_abs());
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

/// The shortest digits that give the same double again, laid out as BigQuery does.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{}", layout(&digits, exponent.parse().unwrap_or(0)))
}

/// Microseconds as seconds, exact to the last digit.
fn seconds_text(micros: i64) -> String {
    let digits = micros.unsigned_abs().to_string();
    // A u64 has at most 20 digits.
    let exponent = digits.len() as i32 - 1 - 6;
    let exponent = if micros == 0 { 0 } else { exponent };
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", layout(digits, exponent))
}

/// `d.ddd * 10^exponent`: plain from 10^-3 to 10^7, scientific beyond, always with a fraction.
fn layout(digits: &str, exponent: i32) -> String {
    let all = |zeros: i32| "0".repeat(zeros.max(0).unsigned_abs() as usize);
    let len = digits.len() as i32;
    match exponent {
        -3..=-1 => format!("0.{}{digits}", all(-exponent - 1)),
        0..=6 if len <= exponent + 1 => format!("{digits}{}.0", all(exponent + 1 - len)),
        0..=6 => {
            let (whole, fraction) = digits.split_at((exponent + 1).unsigned_abs() as usize);
            format!("{whole}.{fraction}")
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let rest = if rest.is_empty() { "0" } else { rest };
            format!("{first}.{rest}E{exponent}")
        }
    }
}

fn date_text(days: i32) -> Option<String> {
    let date = NaiveDate::default().checked_add_signed(TimeDelta::try_days(days.into())?)?;
    Some(date.format("%Y-%m-%d").to_string())
}

fn time_text(micros: i64) -> Option<String> {
    let micros = u64::try_from(micros).ok()?;
    let seconds = u32::try_from(micros / 1_000_000).ok()?;
    // A remainder of a million, times a thousand, fits.
    let nanos = (micros % 1_000_000) as u32 * 1_000;
    NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos)
        .map(|time| format!("{}{}", time.format("%H:%M:%S"), fraction_text(nanos)))
}

fn datetime_text(micros: i64) -> Option<String> {
    let when = DateTime::from_timestamp_micros(micros)?;
    let fraction = fraction_text(when.timestamp_subsec_nanos());
    Some(format!("{}{fraction}", when.format("%Y-%m-%dT%H:%M:%S")))
}

/// Nothing, or six digits.
fn fraction_text(nanos: u32) -> String {
    if nanos == 0 {
        return String::new();
    }
    format!(".{:06}", nanos / 1_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int64Builder, ListBuilder, StructBuilder};
    use arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float64Array,
        Int64Array, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    };
    use arrow_buffer::i256;
    use arrow_schema::Field;
    use serde_json::{Value, json};

    use super::*;
    use crate::schema::RangeElement;
    use crate::values::interval::Interval;

    fn cells(array: impl Array + 'static, format: TimestampFormat) -> Vec<Value> {
        let array: ArrayRef = Arc::new(array);
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let page = page(&[batch], 0, None, format).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&page.rows).unwrap();
        let cell = |row: &Value| {
            let cells = row["f"].as_array().unwrap();
            assert_eq!(cells.len(), 1);
            cells[0]["v"].clone()
        };
        rows.iter().map(cell).collect()
    }

    #[test]
    fn every_type_is_written_as_bigquery_writes_it() {
        let plain = TimestampFormat::default();
        let check = |got: Vec<Value>, want: Vec<Value>| assert_eq!(got, want);
        check(
            cells(BooleanArray::from(vec![Some(true), Some(false), None]), plain),
            vec![json!("true"), json!("false"), Value::Null],
        );
        check(
            cells(Int64Array::from(vec![i64::MIN, 0]), plain),
            vec![json!("-9223372036854775808"), json!("0")],
        );
        let numeric = Decimal128Array::from(vec![1_500_000_000, -1, 0, -100_000_000_000]);
        check(
            cells(numeric.with_precision_and_scale(38, 9).unwrap(), plain),
            vec![json!("1.5"), json!("-0.000000001"), json!("0"), json!("-100")],
        );
        let big = Decimal256Array::from(vec![i256::from_i128(1), i256::from_i128(10).wrapping_pow(38)]);
        check(
            cells(big.with_precision_and_scale(76, 38).unwrap(), plain),
            vec![json!("0.00000000000000000000000000000000000001"), json!("1")],
        );
        check(
            cells(StringArray::from(vec!["a\"b\\\n\u{1}é", ""]), plain),
            vec![json!("a\"b\\\n\u{1}é"), json!("")],
        );
        check(
            cells(BinaryArray::from(vec![b"\x00\xff".as_slice(), b""]), plain),
            vec![json!("AP8="), json!("")],
        );
        check(
            cells(Date32Array::from(vec![0, -719_162, 2_932_896]), plain),
            vec![json!("1970-01-01"), json!("0001-01-01"), json!("9999-12-31")],
        );
        check(
            cells(
                Time64MicrosecondArray::from(vec![0, 86_399_999_999, 45_296_500_000]),
                plain,
            ),
            vec![
                json!("00:00:00"),
                json!("23:59:59.999999"),
                json!("12:34:56.500000"),
            ],
        );
        let datetime = TimestampMicrosecondArray::from(vec![0, -1, 253_402_300_799_999_999]);
        check(
            cells(datetime, plain),
            vec![
                json!("1970-01-01T00:00:00"),
                json!("1969-12-31T23:59:59.999999"),
                json!("9999-12-31T23:59:59.999999"),
            ],
        );
    }

    #[test]
    fn floats_are_written_shortest_with_a_fraction() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1234567.0, "1234567.0"),
            (9999999.5, "9999999.5"),
            (1e7, "1.0E7"),
            (123456789.25, "1.2345678925E8"),
            (0.001, "0.001"),
            (0.000123, "1.23E-4"),
            (f64::MAX, "1.7976931348623157E308"),
            (5e-324, "5.0E-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let got = cells(Float64Array::from(vec![value]), TimestampFormat::default());
            assert_eq!(got, [json!(text)]);
        }
    }

    #[test]
    fn timestamps_are_written_as_asked() {
        for (micros, seconds, iso) in [
            (0, "0.0", "1970-01-01T00:00:00Z"),
            (1, "1.0E-6", "1970-01-01T00:00:00.000001Z"),
            (-1_500_000, "-1.5", "1969-12-31T23:59:58.500000Z"),
            (
                1_481_126_487_123_456,
                "1.481126487123456E9",
                "2016-12-07T16:01:27.123456Z",
            ),
            (
                253_402_300_799_999_999,
                "2.53402300799999999E11",
                "9999-12-31T23:59:59.999999Z",
            ),
        ] {
            let array = || TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
            assert_eq!(cells(array(), TimestampFormat::Float64), [json!(seconds)]);
            assert_eq!(
                cells(array(), TimestampFormat::Int64),
                [json!(micros.to_string())]
            );
            assert_eq!(cells(array(), TimestampFormat::Iso8601), [json!(iso)]);
        }
    }

    #[test]
    fn picoseconds_are_written_in_full_in_iso_8601_only() {
        for (picos, seconds, micros, iso) in [
            (0, "0.0", "0", "1970-01-01T00:00:00.000000000000Z"),
            (
                1_735_734_896_123_456_789_123,
                "1.735734896123456E9",
                "1735734896123456",
                "2025-01-01T12:34:56.123456789123Z",
            ),
            (-1, "-1.0E-6", "-1", "1969-12-31T23:59:59.999999999999Z"),
            (
                253_402_300_799_999_999_999_999,
                "2.53402300799999999E11",
                "253402300799999999",
                "9999-12-31T23:59:59.999999999999Z",
            ),
        ] {
            let array = || Decimal128Array::from(vec![picos]).with_data_type(picoseconds::DATA_TYPE);
            assert_eq!(cells(array(), TimestampFormat::Float64), [json!(seconds)]);
            assert_eq!(cells(array(), TimestampFormat::Int64), [json!(micros)]);
            assert_eq!(cells(array(), TimestampFormat::Iso8601), [json!(iso)]);
        }
    }

    #[test]
    fn intervals_and_ranges_are_one_text() {
        let interval = interval::array([Interval::parse("-1-2 3 -4:5:6.7"), None]);
        assert_eq!(
            cells(interval, TimestampFormat::Int64),
            [json!("-1-2 3 -4:5:6.700"), Value::Null]
        );
        let range = |element, start: ArrayRef, end: ArrayRef| {
            let nulls = Some(vec![true, true, false].into());
            StructArray::new(range::fields(element), vec![start, end], nulls)
        };
        let dates = range(
            RangeElement::Date,
            Arc::new(Date32Array::from(vec![Some(0), None, None])),
            Arc::new(Date32Array::from(vec![Some(18_262), None, None])),
        );
        assert_eq!(
            cells(dates, TimestampFormat::Int64),
            [
                json!("[1970-01-01, 2020-01-01)"),
                json!("[UNBOUNDED, UNBOUNDED)"),
                Value::Null
            ]
        );
        let micros = || TimestampMicrosecondArray::from(vec![Some(-1_500_000), None, None]);
        let none = || TimestampMicrosecondArray::new_null(3);
        let datetimes = range(RangeElement::Datetime, Arc::new(micros()), Arc::new(none()));
        assert_eq!(
            cells(datetimes, TimestampFormat::Int64)[0],
            json!("[1969-12-31T23:59:58.500000, UNBOUNDED)")
        );
        for (format, text) in [
            (TimestampFormat::Int64, "[UNBOUNDED, -1500000)"),
            (TimestampFormat::Float64, "[UNBOUNDED, -1.5)"),
            (
                TimestampFormat::Iso8601,
                "[UNBOUNDED, 1969-12-31T23:59:58.500000Z)",
            ),
        ] {
            let (start, end) = (none().with_timezone("UTC"), micros().with_timezone("UTC"));
            let stamps = range(RangeElement::Timestamp, Arc::new(start), Arc::new(end));
            assert_eq!(cells(stamps, format)[0], json!(text));
        }
    }

    #[test]
    fn structs_and_arrays_nest() {
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let structs = StructBuilder::new(vec![field], vec![Box::new(Int64Builder::new())]);
        let mut lists = ListBuilder::new(structs);
        for value in [Some(7), None] {
            lists
                .values()
                .field_builder::<Int64Builder>(0)
                .unwrap()
                .append_option(value);
            lists.values().append(true);
        }
        lists.append(true);
        lists.append(false);
        let want = [
            json!([{ "v": { "f": [{ "v": "7" }] } }, { "v": { "f": [{ "v": null }] } }]),
            json!([]),
        ];
        assert_eq!(cells(lists.finish(), TimestampFormat::default()), want);
    }

    #[test]
    fn pages_run_over_batches_without_a_gap() {
        let batch = |values: Vec<i64>| {
            let array: ArrayRef = Arc::new(Int64Array::from(values));
            RecordBatch::try_from_iter([("c", array)]).unwrap()
        };
        let batches = [
            batch(vec![0, 1, 2]),
            batch(vec![]),
            batch(vec![3]),
            batch(vec![4, 5]),
        ];
        for size in 1..8 {
            let (mut start, mut all) = (0, Vec::new());
            while start < 6 {
                let page = page(&batches, start, Some(size), TimestampFormat::default()).unwrap();
                let rows: Vec<Value> = serde_json::from_str(&page.rows).unwrap();
                assert_eq!(page.next, start + rows.len() as u64);
                assert_eq!(rows.len() as u64, size.min(6 - start));
                all.extend(
                    rows.iter()
                        .map(|row| row["f"][0]["v"].as_str().unwrap().to_owned()),
                );
                start = page.next;
            }
            assert_eq!(all, ["0", "1", "2", "3", "4", "5"], "{size} rows a page");
        }
        let none = page(&batches, 0, Some(0), TimestampFormat::default()).unwrap();
        assert_eq!(
            none,
            Page {
                rows: "[]".to_owned(),
                next: 0
            }
        );
        let beyond = page(&batches, 9, None, TimestampFormat::default()).unwrap();
        assert_eq!(
            beyond,
            Page {
                rows: "[]".to_owned(),
                next: 9
            }
        );
    }

    #[test]
    fn a_page_ends_when_it_is_large() {
        let text = "x".repeat(1 << 20);
        let array: ArrayRef = Arc::new(StringArray::from(vec![text.as_str(); 15]));
        let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
        let page = page(&[batch], 0, None, TimestampFormat::default()).unwrap();
        assert_eq!(page.next, 10);
    }

    #[test]
    fn a_date_beyond_the_calendar_is_an_error() {
        let array: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX]));
        let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
        let error = page(&[batch], 0, None, TimestampFormat::default()).unwrap_err();
        assert_eq!(error, ApiError::invalid("A value is out of its type's range"));
    }
}
