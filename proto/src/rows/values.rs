//! The leaves of a conversion: each value checked against its column's range and brought into its wire type.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::{ScalarBuffer, i256};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use serde::de::IgnoredAny;

use super::plan::{DecimalBounds, Step};
use super::refusal::{Place, Report, RowReason};
use super::surrogates::lone_surrogate;
use super::{RowOptions, SubMicroseconds};

/// 0001-01-01 and 9999-12-31 in days since 1970 (write-api.md 5.1).
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// The same two days' first and last microsecond.
const INSTANTS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

const DAY_MICROS: i64 = 86_400_000_000;
const DAY_MILLIS: i64 = 86_400_000;

/// One array without children on its way to the wire.
#[derive(Debug)]
pub(super) struct Leaf<'a> {
    pub(super) path: &'a str,
    pub(super) place: Place<'a>,
    pub(super) wire: &'a DataType,
    pub(super) options: RowOptions,
    pub(super) report: &'a mut Report,
}

/// The wire value, or why there is none.
pub(super) type Value<T> = Result<T, RowReason>;

impl Leaf<'_> {
    /// Carries out a step of the plan that made the array's type a known one.
    pub(super) fn value(mut self, step: &Step, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match step {
            Step::Cast => cast(array, self.wire),
            Step::Unsigned => Ok(self.map::<UInt64Type, Int64Type>(array, |value| {
                i64::try_from(value).map_err(|_| RowReason::OutOfRange("INT64"))
            })),
            Step::Text(None) | Step::Bytes(None) => cast(array, self.wire),
            Step::Text(Some(max)) => self.text(array, |text| has_characters_over(text, *max)),
            Step::Json => self.text(array, json_fault),
            Step::Bytes(Some(max)) => self.bytes(array, *max),
            Step::Days => Ok(self.check::<Date32Type>(array, |days| in_range(i64::from(days), DAYS, "DATE"))),
            Step::DayMillis => Ok(self.map::<Date64Type, Date32Type>(array, whole_day)),
            Step::Instant(unit) => Ok(self.instant(array, *unit)),
            Step::Clock(unit) => Ok(self.clock(array, *unit)),
            Step::Decimal { from_scale, bounds } => self.decimal(array, *from_scale, *bounds),
            Step::Interval(unit) => Ok(self.interval(array, *unit)),
            Step::Duration(unit) => Ok(self.duration(array, *unit)),
            Step::Nulls | Step::List(_) | Step::Struct(_) | Step::Range(_) => Err(ArrowError::SchemaError(
                format!("{} is not a leaf", array.data_type()),
            )),
        }
    }

    fn text(
        &mut self,
        array: &ArrayRef,
        fault: impl Fn(&str) -> Option<RowReason>,
    ) -> Result<ArrayRef, ArrowError> {
        let array = cast(array, self.wire)?;
        for (position, text) in array.as_string::<i32>().iter().enumerate() {
            if let Some(reason) = text.and_then(&fault) {
                self.refuse(position, reason);
            }
        }
        Ok(array)
    }

    fn bytes(&mut self, array: &ArrayRef, max: u64) -> Result<ArrayRef, ArrowError> {
        let array = cast(array, self.wire)?;
        for (position, bytes) in array.as_binary::<i32>().iter().enumerate() {
            if bytes.is_some_and(|bytes| bytes.len() as u64 > max) {
                self.refuse(position, RowReason::TooManyBytes(max));
            }
        }
        Ok(array)
    }

    fn instant(&mut self, array: &ArrayRef, unit: TimeUnit) -> ArrayRef {
        if matches!(self.wire, DataType::Timestamp(TimeUnit::Nanosecond, _)) {
            // TIMESTAMP(12) takes them as they are: 64 bits of nanoseconds are within its years.
            return self.labelled(array.as_primitive::<TimestampNanosecondType>().clone());
        }
        let name = if matches!(self.wire, DataType::Timestamp(_, None)) {
            "DATETIME"
        } else {
            "TIMESTAMP"
        };
        let scaled = move |value: i64, factor: i64| {
            let micros = value
                .checked_mul(factor)
                .filter(|micros| INSTANTS.contains(micros));
            micros.ok_or(RowReason::OutOfRange(name))
        };
        match unit {
            TimeUnit::Second => {
                self.map::<TimestampSecondType, TimestampMicrosecondType>(array, |v| scaled(v, 1_000_000))
            }
            TimeUnit::Millisecond => {
                self.map::<TimestampMillisecondType, TimestampMicrosecondType>(array, |v| scaled(v, 1_000))
            }
            TimeUnit::Microsecond => {
                self.check::<TimestampMicrosecondType>(array, |v| in_range(v, INSTANTS, name))
            }
            // 64 bits of nanoseconds reach from 1677 to 2262.
            TimeUnit::Nanosecond => {
                self.nanos::<TimestampNanosecondType, TimestampMicrosecondType>(array, Ok)
            }
        }
    }

    fn clock(&mut self, array: &ArrayRef, unit: TimeUnit) -> ArrayRef {
        let of_day = |micros: i64| {
            if (0..DAY_MICROS).contains(&micros) {
                Ok(micros)
            } else {
                Err(RowReason::OutOfRange("TIME"))
            }
        };
        match unit {
            TimeUnit::Second => self
                .map::<Time32SecondType, Time64MicrosecondType>(array, |v| of_day(i64::from(v) * 1_000_000)),
            TimeUnit::Millisecond => self
                .map::<Time32MillisecondType, Time64MicrosecondType>(array, |v| of_day(i64::from(v) * 1_000)),
            TimeUnit::Microsecond => self.check::<Time64MicrosecondType>(array, |v| of_day(v).err()),
            TimeUnit::Nanosecond => self.nanos::<Time64NanosecondType, Time64MicrosecondType>(array, of_day),
        }
    }

    /// Cuts nanoseconds towards the past, as one cuts the digits of their text, before and after 1970 alike.
    fn nanos<I, O>(&mut self, array: &ArrayRef, check: impl Fn(i64) -> Value<i64>) -> ArrayRef
    where
        I: ArrowPrimitiveType<Native = i64>,
        O: ArrowPrimitiveType<Native = i64>,
    {
        let refuse = self.options.sub_microseconds == SubMicroseconds::Refuse;
        let mut truncated = 0;
        let micros = self.map::<I, O>(array, |nanos| {
            let micros = check(nanos.div_euclid(1_000))?;
            if nanos.rem_euclid(1_000) != 0 {
                if refuse {
                    return Err(RowReason::SubMicroseconds);
                }
                truncated += 1;
            }
            Ok(micros)
        });
        self.report.count_truncated(truncated);
        micros
    }

    fn decimal(&mut self, array: &ArrayRef, from: i8, bounds: DecimalBounds) -> Result<ArrayRef, ArrowError> {
        let wide = matches!(self.wire, DataType::Decimal256(_, _));
        Ok(match array.data_type() {
            DataType::Decimal128(_, 9) if !wide => {
                self.check::<Decimal128Type>(array, |v| rescale128(v, from, bounds).err())
            }
            DataType::Decimal128(_, _) if !wide => {
                self.map::<Decimal128Type, Decimal128Type>(array, |v| rescale128(v, from, bounds))
            }
            DataType::Decimal128(_, _) => self.map::<Decimal128Type, Decimal256Type>(array, |v| {
                rescale256(i256::from_i128(v), from, bounds)
            }),
            DataType::Decimal256(_, _) if !wide => self.map::<Decimal256Type, Decimal128Type>(array, |v| {
                rescale256(v, from, bounds)?
                    .to_i128()
                    .ok_or(RowReason::IntegerDigits(bounds.integer))
            }),
            DataType::Decimal256(_, _) if i32::from(from) == bounds.scale as i32 => {
                self.check::<Decimal256Type>(array, |v| rescale256(v, from, bounds).err())
            }
            DataType::Decimal256(_, _) => {
                self.map::<Decimal256Type, Decimal256Type>(array, |v| rescale256(v, from, bounds))
            }
            // Every integer of 64 bits has at most 20 digits.
            _ => return self.decimal(&cast(array, &DataType::Decimal128(20, 0))?, from, bounds),
        })
    }

    /// Maps every value that is not null; what lies under a null is nobody's value.
    pub(super) fn map<I: ArrowPrimitiveType, O: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        mut value: impl FnMut(I::Native) -> Value<O::Native>,
    ) -> ArrayRef {
        let array = array.as_primitive::<I>();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let mut out = Vec::with_capacity(array.len());
        for (position, &input) in array.values().iter().enumerate() {
            let mapped = match nulls {
                Some(nulls) if nulls.is_null(position) => Ok(O::Native::default()),
                _ => value(input),
            };
            out.push(mapped.unwrap_or_else(|reason| {
                self.refuse(position, reason);
                O::Native::default()
            }));
        }
        self.labelled(PrimitiveArray::<O>::new(
            ScalarBuffer::from(out),
            array.nulls().cloned(),
        ))
    }

    /// Judges every value that is not null, for columns whose values stay as they are.
    pub(super) fn check<I: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        fault: impl Fn(I::Native) -> Option<RowReason>,
    ) -> ArrayRef {
        let array = array.as_primitive::<I>();
        for (position, &value) in array.values().iter().enumerate() {
            if let Some(reason) = fault(value)
                && array.is_valid(position)
            {
                self.refuse(position, reason);
            }
        }
        self.labelled(array.clone())
    }

    /// Zone and precision are the wire's; the values are the same.
    pub(super) fn labelled<T: ArrowPrimitiveType>(&self, array: PrimitiveArray<T>) -> ArrayRef {
        Arc::new(array.with_data_type(self.wire.clone()))
    }

    pub(super) fn refuse(&mut self, position: usize, reason: RowReason) {
        self.report.refuse(self.place.row(position), self.path, reason);
    }
}

/// `safe: false`: a cast that cannot hold a value is an error, never a null.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    cast_with_options(
        array,
        to,
        &CastOptions {
            safe: false,
            ..CastOptions::default()
        },
    )
}

fn in_range(value: i64, range: std::ops::RangeInclusive<i64>, name: &'static str) -> Option<RowReason> {
    (!range.contains(&value)).then_some(RowReason::OutOfRange(name))
}

fn whole_day(millis: i64) -> Value<i32> {
    let days = millis.div_euclid(DAY_MILLIS);
    if !DAYS.contains(&days) {
        return Err(RowReason::OutOfRange("DATE"));
    }
    if millis.rem_euclid(DAY_MILLIS) != 0 {
        return Err(RowReason::TimeOfDay);
    }
    i32::try_from(days).map_err(|_| RowReason::OutOfRange("DATE"))
}

/// BigQuery counts Unicode characters; no text has more of them than bytes.
fn has_characters_over(text: &str, max: u64) -> Option<RowReason> {
    let over = text.len() as u64 > max && text.chars().count() as u64 > max;
    over.then_some(RowReason::TooManyCharacters(max))
}

fn json_fault(text: &str) -> Option<RowReason> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let (line, column) = (error.line(), error.column());
        return Some(RowReason::InvalidJson { line, column });
    }
    let before = &text.as_bytes()[..lone_surrogate(text.as_bytes())?];
    let lines = before.iter().filter(|&&byte| byte == b'\n').count();
    let of_line = before.iter().rev().take_while(|&&byte| byte != b'\n').count();
    Some(RowReason::InvalidJson {
        line: lines + 1,
        column: of_line + 1,
    })
}

/// Brings an unscaled value from one scale to the wire's, exactly.
fn rescale128(value: i128, from: i8, bounds: DecimalBounds) -> Value<i128> {
    let DecimalBounds {
        scale,
        integer,
        fraction,
    } = bounds;
    let (too_big, too_fine) = (
        RowReason::IntegerDigits(integer),
        RowReason::FractionDigits(fraction),
    );
    let power = |exponent: u32| 10_i128.checked_pow(exponent);
    let shift = scale as i32 - i32::from(from);
    let scaled = match power(shift.unsigned_abs()) {
        _ if value == 0 => return Ok(0),
        Some(factor) if shift >= 0 => value.checked_mul(factor).ok_or(too_big)?,
        Some(factor) if value % factor == 0 => value / factor,
        None if shift >= 0 => return Err(too_big),
        _ => return Err(too_fine),
    };
    if fraction < scale && power(scale - fraction).is_some_and(|unit| scaled % unit != 0) {
        return Err(too_fine);
    }
    let limit = power(integer + scale).unwrap_or(i128::MAX);
    if scaled.unsigned_abs() < limit.unsigned_abs() {
        Ok(scaled)
    } else {
        Err(too_big)
    }
}

/// The same in 256 bits.
fn rescale256(value: i256, from: i8, bounds: DecimalBounds) -> Value<i256> {
    let DecimalBounds {
        scale,
        integer,
        fraction,
    } = bounds;
    let (too_big, too_fine) = (
        RowReason::IntegerDigits(integer),
        RowReason::FractionDigits(fraction),
    );
    let power = |exponent: u32| i256::from_i128(10).checked_pow(exponent);
    let shift = scale as i32 - i32::from(from);
    let scaled = match power(shift.unsigned_abs()) {
        _ if value == i256::ZERO => return Ok(i256::ZERO),
        Some(factor) if shift >= 0 => value.checked_mul(factor).ok_or(too_big)?,
        Some(factor) if value.wrapping_rem(factor) == i256::ZERO => value.wrapping_div(factor),
        None if shift >= 0 => return Err(too_big),
        _ => return Err(too_fine),
    };
    if fraction < scale && power(scale - fraction).is_some_and(|unit| scaled.wrapping_rem(unit) != i256::ZERO)
    {
        return Err(too_fine);
    }
    let limit = power(integer + scale).unwrap_or(i256::MAX);
    if scaled >= limit || scaled <= limit.wrapping_neg() {
        return Err(too_big);
    }
    // BIGNUMERIC ends where its 256 bits of scale 38 do, within the 39th digit (write-api.md 5.3).
    if scale < 38 && scaled.checked_mul(i256::from_i128(10)).is_none() {
        return Err(RowReason::OutOfRange("BIGNUMERIC"));
    }
    Ok(scaled)
}
