//! Arrow values of INTERVAL, RANGE and TIMESTAMP(12) columns, whose canonical form no arrow cast gives.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
    TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, StructArray, new_null_array};
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};

use super::checks::{Bad, Checks};
use super::fit::Fit;
use super::values::{Place, convert_each, members, unexpected};
use crate::schema::{Column, Mode, RangeElement};
use crate::values::interval::{self, Interval};
use crate::values::{picoseconds, range};

/// An INTERVAL, from any of Arrow's three or from the canonical text.
pub(super) fn interval(source: &ArrayRef, place: &mut Place<'_>) -> Result<ArrayRef, ArrowError> {
    let mut values = Vec::with_capacity(source.len());
    for at in 0..source.len() {
        let value = if source.is_null(at) {
            None
        } else {
            Some(interval_at(source, at, place.checks)?)
        };
        values.push(value.and_then(|value| value.map_err(|bad| place.bad(at, &bad)).ok()));
    }
    Ok(Arc::new(interval::array(values)))
}

fn interval_at(source: &ArrayRef, at: usize, checks: Checks) -> Result<Result<Interval, Bad>, ArrowError> {
    let parts = match source.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => (
            source.as_primitive::<IntervalYearMonthType>().value(at).into(),
            0,
            0,
        ),
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = source.as_primitive::<IntervalDayTimeType>().value(at);
            (0, value.days.into(), i64::from(value.milliseconds) * 1_000)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = source.as_primitive::<IntervalMonthDayNanoType>().value(at);
            if value.nanoseconds % 1_000 != 0 {
                // UNCONFIRMED: BigQuery may cut the nanoseconds off instead.
                return Ok(Err(Bad::new(
                    "Interval field value has a fraction of a microsecond",
                )));
            }
            (value.months.into(), value.days.into(), value.nanoseconds / 1_000)
        }
        DataType::Utf8 => {
            return Ok(checks.interval_text(source.as_string::<i32>().value(at)));
        }
        _ => return Err(unexpected(source)),
    };
    Ok(checks.interval(parts.0, parts.1, parts.2))
}

/// A RANGE, from a struct of `start` and `end`; a NULL bound is no bound.
pub(super) fn range(
    source: &ArrayRef,
    fit: &Fit,
    element: RangeElement,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let bounds = ["start", "end"].map(|name| Column::new(name, element.into(), Mode::Nullable));
    let (arrays, nulls) = members(source, fit, &bounds, place)?;
    let [start, end] = arrays.as_slice() else {
        return Err(unexpected(source));
    };
    for at in 0..source.len() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at))
            && let Err(bad) = place.checks.range(bound(start, at), bound(end, at))
        {
            place.bad(at, &bad);
        }
    }
    let fields = range::fields(element);
    match StructArray::try_new(fields.clone(), arrays, nulls) {
        Ok(array) => Ok(Arc::new(array)),
        Err(_) if place.failed() => Ok(new_null_array(&DataType::Struct(fields), source.len())),
        Err(error) => Err(error),
    }
}

fn bound(array: &ArrayRef, at: usize) -> Option<i64> {
    array
        .is_valid(at)
        .then(|| match array.as_primitive_opt::<Date32Type>() {
            Some(dates) => dates.value(at).into(),
            None => array.as_primitive::<TimestampMicrosecondType>().value(at),
        })
}

/// A TIMESTAMP(12), from Arrow's µs or ns.
pub(super) fn picoseconds(source: &ArrayRef, place: &mut Place<'_>) -> Result<ArrayRef, ArrowError> {
    let array: PrimitiveArray<Decimal128Type> = match source.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let values = source.as_primitive::<TimestampNanosecondType>();
            // All that 64 bits of nanoseconds can say is within the years 1 to 9999.
            convert_each(values, place, |nanos| Ok(i128::from(nanos) * 1_000))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let values = source.as_primitive::<TimestampMicrosecondType>();
            let checks = place.checks;
            convert_each(values, place, |micros| {
                let micros = checks.timestamp(micros)?;
                Ok(i128::from(micros) * picoseconds::MICROSECOND)
            })
        }
        _ => return Err(unexpected(source)),
    };
    Ok(Arc::new(array.with_data_type(picoseconds::DATA_TYPE)))
}
