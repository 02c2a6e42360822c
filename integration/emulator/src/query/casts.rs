//! Casts that DataFusion does otherwise than BigQuery: to INT64, which rounds, and to STRING.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_buffer::i256;
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Timelike};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Signature;

use crate::query::scalar::{Argument, Returns, Scalar, VOLATILE};

/// `rounded(number)`, `text_of(value)` and `safe_text_of(value)`.
pub(super) fn functions() -> [Scalar; 3] {
    let signature = || Signature::any(1, VOLATILE);
    let text = Returns::Marked("STRING");
    [
        Scalar::new("rounded", signature(), Returns::Of(0), rounded),
        Scalar::new("text_of", signature(), text, |args| text_of(args, false)),
        Scalar::new("safe_text_of", signature(), text, |args| text_of(args, true)),
    ]
}

/// Without a fraction, half away from zero; what has none stays as it is.
fn rounded(args: &[Argument]) -> Result<ArrayRef> {
    let [value] = args else {
        return exec_err!("CAST takes one value");
    };
    let array = &value.array;
    Ok(match array.data_type() {
        DataType::Float64 => Arc::new(
            array
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(f64::round),
        ),
        DataType::Decimal128(..) | DataType::Decimal256(..) => round_decimals(array, 0),
        _ => Arc::clone(array),
    })
}

/// Decimals with no more digits after the point than that, half away from zero, in the same type.
pub(super) fn round_decimals(array: &ArrayRef, digits: i8) -> ArrayRef {
    let unit = |scale: i8| i256::from_i128(10).wrapping_pow((scale - digits).max(0).unsigned_abs().into());
    let round = |value: i256, unit: i256| {
        let half = unit.wrapping_div(i256::from_i128(2));
        let rest = value.wrapping_rem(unit);
        let down = value.wrapping_sub(rest);
        // A unit of 1 has no half.
        if half == i256::ZERO || rest.wrapping_abs() < half {
            down
        } else if value.is_negative() {
            down.wrapping_sub(unit)
        } else {
            down.wrapping_add(unit)
        }
    };
    match array.data_type() {
        DataType::Decimal128(_, scale) => {
            let unit = unit(*scale);
            let values = array.as_primitive::<Decimal128Type>();
            // What is beyond 128 bits is beyond NUMERIC too, and found by who checks the digits.
            let round = |value| round(i256::from_i128(value), unit).to_i128().unwrap_or(value);
            Arc::new(
                values
                    .unary::<_, Decimal128Type>(round)
                    .with_data_type(array.data_type().clone()),
            )
        }
        DataType::Decimal256(_, scale) => {
            let unit = unit(*scale);
            let values = array.as_primitive::<Decimal256Type>();
            let round = |value| round(value, unit);
            Arc::new(
                values
                    .unary::<_, Decimal256Type>(round)
                    .with_data_type(array.data_type().clone()),
            )
        }
        _ => Arc::clone(array),
    }
}

fn text_of(args: &[Argument], safe: bool) -> Result<ArrayRef> {
    let [value] = args else {
        return exec_err!("CAST takes one value");
    };
    let array = &value.array;
    let all = |text: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        let text = |row| if array.is_null(row) { None } else { text(row) };
        Arc::new((0..array.len()).map(text).collect::<StringArray>())
    };
    Ok(match array.data_type() {
        DataType::Utf8 => Arc::clone(array),
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            all(&|row| Some(double(values.value(row))))
        }
        DataType::Timestamp(_, zone) => {
            let (plain, suffix) = (
                cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
                if zone.is_some() { "+00" } else { "" },
            );
            let values = plain.as_primitive::<TimestampMicrosecondType>();
            all(&|row| {
                let at = DateTime::from_timestamp_micros(values.value(row))?;
                Some(format!("{} {}{suffix}", at.format("%Y-%m-%d"), clock(at.time())))
            })
        }
        DataType::Time64(_) => {
            let plain = cast(array, &DataType::Time64(TimeUnit::Microsecond))?;
            let values = plain.as_primitive::<Time64MicrosecondType>();
            all(&|row| {
                let since = TimeDelta::microseconds(values.value(row));
                Some(clock(NaiveTime::MIN.overflowing_add_signed(since).0))
            })
        }
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>();
            let first = NaiveDate::default();
            all(&|row| {
                let day = first.checked_add_signed(TimeDelta::days(values.value(row).into()))?;
                Some(day.format("%Y-%m-%d").to_string())
            })
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            let text = |row: usize| std::str::from_utf8(values.value(row)).ok().map(str::to_owned);
            if !safe && (0..array.len()).any(|row| !array.is_null(row) && text(row).is_none()) {
                return exec_err!("Invalid cast of bytes to UTF8 string");
            }
            all(&text)
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let options = FormatOptions::default();
            let format = ArrayFormatter::try_new(array, &options)?;
            all(&|row| {
                let text = format.value(row).to_string();
                let short = text.trim_end_matches('0').trim_end_matches('.');
                Some(if text.contains('.') {
                    short.to_owned()
                } else {
                    text
                })
            })
        }
        kind if kind.is_nested() => return exec_err!("Invalid cast from {kind} to STRING"),
        _ => cast(array, &DataType::Utf8)?,
    })
}

/// `03:04:05`, with three or six digits of the second if need be.
fn clock(time: NaiveTime) -> String {
    let micros = time.nanosecond() / 1_000;
    let format = match (micros, micros % 1_000) {
        (0, _) => "%H:%M:%S",
        (_, 0) => "%H:%M:%S%.3f",
        _ => "%H:%M:%S%.6f",
    };
    time.format(format).to_string()
}

/// As C's `%.15g` prints it, or `%.17g` if that says more: `1`, `1.5`, `1e+20`.
fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let written = format!("{value:e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let most = if digits.trim_start_matches('-').replace('.', "").len() > 15 {
        17
    } else {
        15
    };
    if (-4..most).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
