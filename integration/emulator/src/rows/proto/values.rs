//! One column's values as rows bring them, checked and in the canonical Arrow type.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, Float64Builder,
    Int64Builder, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow_buffer::i256;

use super::civil;
use super::descriptor::Enum;
use super::raw::Raw;
use crate::rows::checks::{Bad, BigNumeric, Checks, Numeric};
use crate::schema::Kind;
use crate::values::interval::{self, Interval};
use crate::values::literal::{self, ten};
use crate::values::picoseconds;

const SECOND_US: i64 = 1_000_000;

/// Values of one type.
#[derive(Debug)]
pub(super) struct Values<'a> {
    into: Into,
    checks: Checks,
    /// If they come as an enum, its names.
    names: Option<&'a Enum>,
}

#[derive(Debug)]
enum Into {
    Bool(BooleanBuilder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    Numeric(Numeric, Decimal128Builder),
    BigNumeric(BigNumeric, Decimal256Builder),
    String(Option<i64>, StringBuilder),
    Json(StringBuilder),
    Geography(StringBuilder),
    Bytes(Option<i64>, BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Datetime(TimestampMicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Picoseconds(Decimal128Builder),
    Interval(Vec<Option<Interval>>),
}

impl<'a> Values<'a> {
    /// `None` for STRUCT and RANGE, which are made of several columns.
    pub(super) fn new(kind: &Kind, checks: Checks, names: Option<&'a Enum>) -> Option<Self> {
        let into = match kind {
            Kind::Bool => Into::Bool(BooleanBuilder::new()),
            Kind::Int64 => Into::Int64(Int64Builder::new()),
            Kind::Float64 => Into::Float64(Float64Builder::new()),
            Kind::Numeric { precision, scale } => Into::Numeric(
                checks.numeric(*precision, *scale),
                Decimal128Builder::new().with_data_type(kind.arrow()),
            ),
            Kind::BigNumeric { precision, scale } => Into::BigNumeric(
                checks.big_numeric(*precision, *scale),
                Decimal256Builder::new().with_data_type(kind.arrow()),
            ),
            Kind::String { max_length } => Into::String(*max_length, StringBuilder::new()),
            Kind::Json => Into::Json(StringBuilder::new()),
            Kind::Geography => Into::Geography(StringBuilder::new()),
            Kind::Bytes { max_length } => Into::Bytes(*max_length, BinaryBuilder::new()),
            Kind::Date => Into::Date(Date32Builder::new()),
            Kind::Time => Into::Time(Time64MicrosecondBuilder::new()),
            Kind::Datetime => Into::Datetime(TimestampMicrosecondBuilder::new()),
            Kind::Timestamp => Into::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            Kind::TimestampPicoseconds => {
                Into::Picoseconds(Decimal128Builder::new().with_data_type(picoseconds::DATA_TYPE))
            }
            Kind::Interval => Into::Interval(Vec::new()),
            Kind::Struct(_) | Kind::Range(_) => return None,
        };
        Some(Self { into, checks, names })
    }

    /// What a value will take in memory, about.
    pub(super) fn width(&self, raw: Option<Raw<'_>>) -> u64 {
        let name = |number| self.names.and_then(|names| names.get(&number));
        let more = match raw {
            Some(Raw::Text(bytes) | Raw::Bytes(bytes)) => bytes.len(),
            Some(Raw::Enum(number)) => name(number).map_or(0, String::len),
            _ => 0,
        };
        // The widest has 32 bytes; what is narrower is not worth telling apart.
        32 + more as u64
    }

    /// Takes a value; a bad one leaves the column as it is.
    pub(super) fn push(&mut self, raw: Raw<'_>) -> Result<(), Bad> {
        let checks = self.checks;
        match (&mut self.into, raw) {
            (Into::Bool(into), Raw::Bool(value)) => into.append_value(value),
            (Into::Bool(into), Raw::Int(value)) => into.append_value(value != 0),
            (Into::Bool(into), Raw::Uint(value)) => into.append_value(value != 0),
            (Into::Int64(into), Raw::Int(value)) => into.append_value(value),
            (Into::Int64(into), Raw::Enum(value)) => into.append_value(value.into()),
            (Into::Int64(into), Raw::Uint(value)) => {
                into.append_value(i64::try_from(value).map_err(|_| Bad::new("Integer out of range"))?);
            }
            (Into::Float64(into), Raw::Double(value)) => into.append_value(value),
            (Into::Numeric(numeric, into), raw) => {
                into.append_value(
                    numeric.take(decimal(raw, 9, 16, "NUMERIC", checks)?.and_then(i256::to_i128))?,
                );
            }
            (Into::BigNumeric(numeric, into), raw) => {
                into.append_value(numeric.take(decimal(raw, 38, 32, "BIGNUMERIC", checks)?)?);
            }
            (Into::String(max, into), Raw::Text(bytes)) => {
                let text = utf8(bytes)?;
                checks.string(*max, text)?;
                into.append_value(text);
            }
            (Into::String(max, into), Raw::Enum(number)) => {
                let text = self.names.and_then(|names| names.get(&number));
                let text = text.ok_or_else(unexpected)?;
                let text = if checks.enum_names {
                    Cow::Borrowed(text.as_str())
                } else {
                    Cow::Owned(number.to_string())
                };
                checks.string(*max, &text)?;
                into.append_value(text);
            }
            (Into::Json(into), Raw::Text(bytes)) => {
                let text = utf8(bytes)?;
                checks.json(text)?;
                into.append_value(text);
            }
            (Into::Geography(into), Raw::Text(bytes)) => {
                let text = utf8(bytes)?;
                checks.geography(text)?;
                into.append_value(text);
            }
            (Into::Bytes(max, into), Raw::Bytes(bytes)) => {
                checks.bytes(*max, bytes)?;
                into.append_value(bytes);
            }
            (Into::Bytes(max, into), Raw::Text(bytes)) => {
                utf8(bytes)?;
                checks.bytes(*max, bytes)?;
                into.append_value(bytes);
            }
            (Into::Date(into), Raw::Int(days)) => into.append_value(checks.date(days)?),
            (Into::Date(into), Raw::Text(bytes)) => into.append_value(checks.date_text(utf8(bytes)?)?),
            (Into::Time(into), Raw::Int(packed)) => {
                into.append_value(checks.parts(civil::time(packed), packed, "Time")?);
            }
            (Into::Time(into), Raw::Text(bytes)) => into.append_value(checks.time_text(utf8(bytes)?)?),
            (Into::Datetime(into), Raw::Int(packed)) => {
                into.append_value(checks.parts(civil::datetime(packed), packed, "Datetime")?);
            }
            (Into::Datetime(into), Raw::Text(bytes)) => {
                into.append_value(checks.datetime_text(utf8(bytes)?)?);
            }
            (Into::Timestamp(into), Raw::Int(micros)) => into.append_value(checks.timestamp(micros)?),
            (Into::Timestamp(into), Raw::Uint(micros)) => {
                // A uint32 fits; no other comes here.
                into.append_value(checks.timestamp(micros as i64)?);
            }
            (Into::Timestamp(into), Raw::Text(bytes)) => {
                into.append_value(checks.timestamp_text(utf8(bytes)?)?);
            }
            (Into::Timestamp(into), Raw::Seconds(seconds, nanos)) => {
                // What is finer than a microsecond is cut off. UNCONFIRMED.
                let micros = whole(seconds, nanos, 1_000_000_000)?;
                into.append_value(checks.timestamp(micros)?);
            }
            (Into::Picoseconds(into), Raw::Text(bytes)) => {
                into.append_value(checks.picoseconds_text(utf8(bytes)?)?);
            }
            (Into::Picoseconds(into), Raw::Seconds(seconds, picos)) => {
                if !(0..1_000_000_000_000).contains(&picos) {
                    return Err(fraction());
                }
                let value = i128::from(seconds) * picoseconds::SECOND + i128::from(picos);
                into.append_value(checks.picoseconds(value)?);
            }
            (Into::Interval(into), Raw::Text(bytes)) => into.push(Some(checks.interval_text(utf8(bytes)?)?)),
            (Into::Interval(into), Raw::Seconds(seconds, nanos)) => {
                // google.protobuf.Duration: both parts have the same sign.
                let good = nanos.unsigned_abs() < 1_000_000_000 && seconds.signum() * nanos.signum() >= 0;
                let micros = seconds
                    .checked_mul(SECOND_US)
                    .filter(|_| good)
                    .ok_or_else(fraction)?;
                into.push(Some(checks.interval(
                    0,
                    0,
                    micros.saturating_add(nanos / 1_000),
                )?));
            }
            _ => return Err(unexpected()),
        }
        Ok(())
    }

    pub(super) fn push_null(&mut self) {
        match &mut self.into {
            Into::Bool(into) => into.append_null(),
            Into::Int64(into) => into.append_null(),
            Into::Float64(into) => into.append_null(),
            Into::Numeric(_, into) | Into::Picoseconds(into) => into.append_null(),
            Into::BigNumeric(_, into) => into.append_null(),
            Into::String(_, into) | Into::Json(into) | Into::Geography(into) => into.append_null(),
            Into::Bytes(_, into) => into.append_null(),
            Into::Date(into) => into.append_null(),
            Into::Time(into) => into.append_null(),
            Into::Datetime(into) | Into::Timestamp(into) => into.append_null(),
            Into::Interval(into) => into.push(None),
        }
    }

    /// The last value, of a type that ranges are of.
    pub(super) fn last(&self) -> Option<i64> {
        match &self.into {
            Into::Date(into) => last(into.values_slice(), into.validity_slice()).map(i64::from),
            Into::Datetime(into) | Into::Timestamp(into) => last(into.values_slice(), into.validity_slice()),
            _ => None,
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self.into {
            Into::Bool(mut into) => Arc::new(into.finish()),
            Into::Int64(mut into) => Arc::new(into.finish()),
            Into::Float64(mut into) => Arc::new(into.finish()),
            Into::Numeric(_, mut into) | Into::Picoseconds(mut into) => Arc::new(into.finish()),
            Into::BigNumeric(_, mut into) => Arc::new(into.finish()),
            Into::String(_, mut into) | Into::Json(mut into) | Into::Geography(mut into) => {
                Arc::new(into.finish())
            }
            Into::Bytes(_, mut into) => Arc::new(into.finish()),
            Into::Date(mut into) => Arc::new(into.finish()),
            Into::Time(mut into) => Arc::new(into.finish()),
            Into::Datetime(mut into) | Into::Timestamp(mut into) => Arc::new(into.finish()),
            Into::Interval(into) => Arc::new(interval::array(into)),
        }
    }
}

/// A decimal as an integer at `scale`; `Ok(None)` is one that 256 bits do not hold.
fn decimal(
    raw: Raw<'_>,
    scale: u32,
    most_bytes: usize,
    kind: &str,
    checks: Checks,
) -> Result<Option<i256>, Bad> {
    let invalid = || Bad::new(format!("Invalid {kind} value"));
    Ok(match raw {
        Raw::Int(value) => i256::from_i128(value.into()).checked_mul(ten(scale)),
        Raw::Uint(value) => i256::from_i128(value.into()).checked_mul(ten(scale)),
        // All digits of the double, which are not those of its shortest text.
        Raw::Double(value) if value.is_finite() && value.abs() < 1e40 => {
            literal::decimal(&format!("{value:.60}"), scale as i32).ok_or_else(invalid)?
        }
        Raw::Double(value) if value.is_finite() => None,
        Raw::Text(bytes) => literal::decimal(utf8(bytes)?, scale as i32).ok_or_else(invalid)?,
        // write-api.md 5.3: two's complement, little endian.
        Raw::Bytes(bytes) if (1..=most_bytes).contains(&bytes.len()) => {
            let mut bytes = bytes.to_vec();
            if !checks.little_endian {
                bytes.reverse();
            }
            let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut all = if negative { [0xff; 32] } else { [0; 32] };
            all[..bytes.len()].copy_from_slice(&bytes);
            Some(i256::from_le_bytes(all))
        }
        _ => return Err(invalid()),
    })
}

/// Seconds and a positive fraction of them as µs, rounded down.
fn whole(seconds: i64, part: i64, parts: i64) -> Result<i64, Bad> {
    if !(0..parts).contains(&part) {
        return Err(fraction());
    }
    let micros = seconds.checked_mul(SECOND_US).ok_or_else(fraction)?;
    Ok(micros.saturating_add(part / (parts / SECOND_US)))
}

fn fraction() -> Bad {
    Bad::new("Seconds and their fraction are out of range")
}

fn utf8(bytes: &[u8]) -> Result<&str, Bad> {
    std::str::from_utf8(bytes).map_err(|_| Bad::new("Invalid UTF-8"))
}

fn last<T: Copy>(values: &[T], validity: Option<&[u8]>) -> Option<T> {
    let at = values.len().checked_sub(1)?;
    let valid = validity.is_none_or(|bits| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1));
    values.get(at).copied().filter(|_| valid)
}

/// What the fit of fields to columns has ruled out.
fn unexpected() -> Bad {
    Bad::new("The value has another type than the column")
}
