//! Rows in REST's JSON: `{"f": [{"v": ...}]}`, every scalar as a string.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};

use crate::rest::error::ApiError;

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
        let null = if matches!(array.data_type(), DataType::List(_)) { "[]" } else { "null" };
        out.push_str(null);
        return Ok(());
    }
    match array.data_type() {
        DataType::Struct(_) => return write_row(out, array.as_struct().columns(), row, format),
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
        DataType::Decimal128(_, scale) => {
            decimal_text(&array.as_primitive::<Decimal128Type>().value(row).to_string(), *scale)
        }
        DataType::Decimal256(_, scale) => {
            decimal_text(&array.as_primitive::<Decimal256Type>().value(row).to_string(), *scale)
        }
        DataType::Binary => STANDARD.encode(array.as_binary::<i32>().value(row)),
        DataType::Date32 => date_text(array.as_primitive::<Date32Type>().value(row))?,
        DataType::Time64(TimeUnit::Microsecond) => {
            time_text(array.as_primitive::<Time64MicrosecondType>().value(row))?
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            match (zone, format) {
                (None, _) => datetime_text(micros)?,
                (Some(_), TimestampFormat::Int64) => micros.to_string(),
                (Some(_), TimestampFormat::Float64) => seconds_text(micros),
                (Some(_), TimestampFormat::Iso8601) => format!("{}Z", datetime_text(micros)?),
            }
        }
        _ => return None,
    })
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An unscaled integer as a decimal without trailing zeros.
fn decimal_text(unscaled: &str, scale: i8) -> String {
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |digits| ("-", digits));
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
