//! Turns a writer's arrays into the table's canonical ones, value by value where a value can be wrong.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Int32Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, ListArray, PrimitiveArray, StructArray, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, i256};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use arrow_select::take::take;

use super::RowErrors;
use super::fit::Fit;
use super::ipc::Columns;
use super::spans::{interval, picoseconds, range};
use crate::schema::{Column, Kind, Mode};

/// 0001-01-01 and 9999-12-31, in days since 1970 (write-api.md 5.1).
const DATES: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
/// 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999, in µs since 1970.
pub(super) const INSTANTS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;
const DAY_US: i64 = 86_400_000_000;
/// NUMERIC is ±(10^29 - 10^-9): 38 nines at scale 9.
const NUMERIC_MAX: u128 = 10_u128.pow(38) - 1;

/// Converts all columns. Bad values go to `errors` (the arrays are then of no use).
///
/// # Errors
/// What only a message that contradicts itself brings about.
pub(super) fn convert(
    source: &Columns,
    fits: &[Fit],
    columns: &[Column],
    errors: &mut RowErrors,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut place = Place {
        rows: Rows::Same,
        name: Cow::Borrowed(""),
        errors,
    };
    fields(&source.arrays, source.rows, fits, columns, &mut place)
}

/// Which row of the request each value belongs to.
enum Rows<'a> {
    /// The value's own index.
    Same,
    /// By index; [`DEAD`] for a value under a null, which nobody sees.
    Of(&'a [u32]),
}

const DEAD: u32 = u32::MAX;

/// Where we are: rows, dotted name of the column, and where errors go.
pub(super) struct Place<'a> {
    rows: Rows<'a>,
    name: Cow<'a, str>,
    errors: &'a mut RowErrors,
}

impl Place<'_> {
    fn row(&self, at: usize) -> Option<usize> {
        match self.rows {
            Rows::Same => Some(at),
            Rows::Of(rows) => rows.get(at).filter(|row| **row != DEAD).map(|row| *row as usize),
        }
    }

    /// A bad value at `at`; nothing if it lies under a null.
    pub(super) fn bad(&mut self, at: usize, text: impl Display) {
        if let Some(row) = self.row(at) {
            let name = &self.name;
            self.errors.add(row, || format!("{text} on field {name}."));
        }
    }

    /// Whether there is an error anywhere, so that the arrays are of no use.
    pub(super) fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    fn inner<'b>(&'b mut self, rows: &'b [u32], name: String) -> Place<'b> {
        Place {
            rows: Rows::Of(rows),
            name: Cow::Owned(name),
            errors: &mut *self.errors,
        }
    }
}

fn fields(
    sources: &[ArrayRef],
    len: usize,
    fits: &[Fit],
    columns: &[Column],
    place: &mut Place<'_>,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let prefix = if place.name.is_empty() {
        String::new()
    } else {
        format!("{}.", place.name)
    };
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, fit) in columns.iter().zip(fits) {
        let Some(source) = fit.source.and_then(|at| sources.get(at)) else {
            arrays.push(absent(column, len));
            continue;
        };
        let mut place = Place {
            rows: match place.rows {
                Rows::Same => Rows::Same,
                Rows::Of(rows) => Rows::Of(rows),
            },
            name: Cow::Owned(format!("{prefix}{}", column.name)),
            errors: &mut *place.errors,
        };
        arrays.push(match column.mode {
            Mode::Repeated => repeated(source, fit, column, &mut place)?,
            mode => value(source, fit, &column.kind, mode == Mode::Required, &mut place)?,
        });
    }
    Ok(arrays)
}

/// A column that the writer left out: NULL, or no elements.
fn absent(column: &Column, len: usize) -> ArrayRef {
    let field = column.arrow();
    match field.data_type() {
        DataType::List(item) => {
            let values = arrow_array::new_empty_array(item.data_type());
            let offsets = OffsetBuffer::new_zeroed(len);
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, None))
        }
        kind => new_null_array(kind, len),
    }
}

fn repeated(
    source: &ArrayRef,
    fit: &Fit,
    column: &Column,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let list = source.as_list_opt::<i32>().ok_or_else(|| unexpected(source))?;
    // Only the elements of visible lists are taken: what lies under a null, or between lists, is nobody's.
    let mut picked = Vec::with_capacity(list.values().len());
    let mut rows = Vec::with_capacity(list.values().len());
    let mut lengths = Vec::with_capacity(list.len());
    for (at, range) in list.value_offsets().windows(2).enumerate() {
        let row = place.row(at).filter(|_| list.is_valid(at));
        if list.is_null(at) {
            place.bad(at, "REPEATED field cannot be NULL, an empty list is needed");
        }
        let elements = if row.is_some() { range[0]..range[1] } else { 0..0 };
        lengths.push(elements.len());
        rows.extend(elements.clone().map(|_| row.map_or(DEAD, |row| row as u32)));
        picked.extend(elements.map(|element| element as u32));
    }
    let whole = picked.len() == list.values().len() && picked.first().is_none_or(|first| *first == 0);
    let elements = if whole {
        Arc::clone(list.values())
    } else {
        take(list.values(), &UInt32Array::from(picked), None)?
    };
    let name = place.name.clone().into_owned();
    let values = value(&elements, fit, &column.kind, true, &mut place.inner(&rows, name))?;
    if place.failed() {
        return Ok(absent(column, list.len()));
    }
    let item = Arc::new(Field::new("item", column.kind.arrow(), false));
    Ok(Arc::new(ListArray::try_new(
        item,
        OffsetBuffer::from_lengths(lengths),
        values,
        None,
    )?))
}

/// One value a place: a column's, or the elements of a list.
fn value(
    source: &ArrayRef,
    fit: &Fit,
    kind: &Kind,
    required: bool,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    if required {
        nulls(source, place);
    }
    let source = &listed(source, kind)?;
    match kind {
        Kind::Bool | Kind::Int64 | Kind::Float64 => cast(source, &kind.arrow()),
        Kind::Struct(columns) => structure(source, fit, columns, place),
        Kind::Numeric { precision, scale } => numeric(source, *precision, *scale, place),
        Kind::BigNumeric { precision, scale } => big_numeric(source, *precision, *scale, place),
        Kind::String { max_length } => {
            if let Some(max) = *max_length {
                text(source, place, |text| {
                    too_long("STRING", max, text.chars().count())
                })?;
            }
            Ok(Arc::clone(source))
        }
        Kind::Json => {
            text(source, place, |text| {
                let parsed = serde_json::from_str::<serde::de::IgnoredAny>(text);
                parsed.map(drop).map_err(|_| "Invalid JSON".to_owned())
            })?;
            Ok(Arc::clone(source))
        }
        Kind::Geography => {
            text(source, place, geography)?;
            Ok(Arc::clone(source))
        }
        Kind::Bytes { max_length } => {
            if let Some(max) = *max_length {
                let bytes = source.as_binary_opt::<i32>().ok_or_else(|| unexpected(source))?;
                each(bytes.len(), bytes.nulls(), place, |at| {
                    too_long("BYTES", max, bytes.value(at).len())
                });
            }
            Ok(Arc::clone(source))
        }
        Kind::Date => date(source, place),
        Kind::Time => {
            in_range::<Time64MicrosecondType>(source, 0..=DAY_US - 1, "Time", place)?;
            Ok(Arc::clone(source))
        }
        Kind::Datetime => {
            in_range::<TimestampMicrosecondType>(source, INSTANTS, "Datetime", place)?;
            Ok(Arc::clone(source))
        }
        Kind::Timestamp => {
            let values = in_range::<TimestampMicrosecondType>(source, INSTANTS, "Timestamp", place)?;
            Ok(Arc::new(values.clone().with_timezone("UTC")))
        }
        Kind::TimestampPicoseconds => picoseconds(source, place),
        Kind::Interval => interval(source, place),
        Kind::Range(element) => range(source, fit, *element, place),
    }
}

fn structure(
    source: &ArrayRef,
    fit: &Fit,
    columns: &[Column],
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let (arrays, nulls) = members(source, fit, columns, place)?;
    let into = columns.iter().map(Column::arrow).collect::<Fields>();
    if place.failed() {
        return Ok(new_null_array(&DataType::Struct(into), source.len()));
    }
    Ok(Arc::new(StructArray::try_new(into, arrays, nulls)?))
}

/// The fields of a struct, and where it is null itself.
pub(super) fn members(
    source: &ArrayRef,
    fit: &Fit,
    columns: &[Column],
    place: &mut Place<'_>,
) -> Result<(Vec<ArrayRef>, Option<NullBuffer>), ArrowError> {
    let source = source.as_struct_opt().ok_or_else(|| unexpected(source))?;
    let rows: Vec<u32> = (0..source.len())
        .map(|at| {
            place
                .row(at)
                .filter(|_| source.is_valid(at))
                .map_or(DEAD, |row| row as u32)
        })
        .collect();
    let name = place.name.clone().into_owned();
    let mut inner = place.inner(&rows, name);
    let arrays = fields(source.columns(), source.len(), &fit.inner, columns, &mut inner)?;
    // What lies under a null is null itself, so that its REQUIRED fields need no value.
    let valid = BooleanBuffer::collect_bool(rows.len(), |at| rows[at] != DEAD);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok((arrays, nulls))
}

fn numeric(
    source: &ArrayRef,
    precision: Option<u8>,
    scale: Option<u8>,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let values = source
        .as_primitive_opt::<Decimal128Type>()
        .ok_or_else(|| unexpected(source))?;
    let factor = 10_i128.pow(u32::try_from(9 - values.scale()).unwrap_or(0));
    let step = 10_i128.pow(u32::from(9 - scale.unwrap_or(9).min(9)));
    // NUMERIC(P, S) has P - S integer digits; without parameters 29.
    let max = precision.map_or(NUMERIC_MAX, |precision| {
        let digits = precision.saturating_sub(scale.unwrap_or(0)).min(29);
        10_u128.pow(u32::from(digits) + 9) - 1
    });
    convert_each::<_, Decimal128Type>(values, place, |value| {
        let value = value.checked_mul(factor).map(|value| round(value, step));
        value
            .filter(|value| value.unsigned_abs() <= max)
            .ok_or_else(|| "Invalid NUMERIC value: out of range".to_owned())
    })
    .with_precision_and_scale(38, 9)
    .map(|array| Arc::new(array) as ArrayRef)
}

fn big_numeric(
    source: &ArrayRef,
    precision: Option<u8>,
    scale: Option<u8>,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let values = source
        .as_primitive_opt::<Decimal256Type>()
        .ok_or_else(|| unexpected(source))?;
    let ten = |digits: u32| i256::from_i128(10).wrapping_pow(digits);
    let factor = ten(u32::try_from(38 - values.scale()).unwrap_or(0));
    let step = ten(u32::from(38 - scale.unwrap_or(38).min(38)));
    // BIGNUMERIC's whole range is that of 256 bits at scale 38 (write-api.md 5.3).
    let limit = precision
        .map(|precision| precision.saturating_sub(scale.unwrap_or(0)))
        .filter(|digits| *digits < 38)
        .map(|digits| ten(u32::from(digits) + 38));
    convert_each::<_, Decimal256Type>(values, place, |value| {
        let value = value.checked_mul(factor).and_then(|value| round_big(value, step));
        let within = |value: &i256| {
            limit
                .is_none_or(|limit| *value < limit && limit.checked_neg().is_some_and(|least| *value > least))
        };
        value
            .filter(within)
            .ok_or_else(|| "Invalid BIGNUMERIC value: out of range".to_owned())
    })
    .with_precision_and_scale(76, 38)
    .map(|array| Arc::new(array) as ArrayRef)
}

/// Half away from zero, as BigQuery rounds into NUMERIC(P, S). UNCONFIRMED for the Write API.
fn round(value: i128, step: i128) -> i128 {
    let rest = value % step;
    let down = value - rest;
    if rest.unsigned_abs() * 2 >= step.unsigned_abs() && step > 1 {
        down + step * rest.signum()
    } else {
        down
    }
}

fn round_big(value: i256, step: i256) -> Option<i256> {
    if step == i256::ONE {
        return Some(value);
    }
    let rest = value.checked_rem(step)?;
    let down = value.checked_sub(rest)?;
    let twice = rest.checked_mul(i256::from_i128(2))?;
    if twice >= step {
        down.checked_add(step)
    } else if twice <= step.checked_neg()? {
        down.checked_sub(step)
    } else {
        Some(down)
    }
}

fn date(source: &ArrayRef, place: &mut Place<'_>) -> Result<ArrayRef, ArrowError> {
    let days = |days: i32| {
        let good = DATES.contains(&days);
        good.then_some(days)
            .ok_or_else(|| format!("Date field value is out of range: {days}"))
    };
    Ok(match source.data_type() {
        DataType::Utf8 => {
            let texts = source.as_string_opt::<i32>().ok_or_else(|| unexpected(source))?;
            let mut into = Vec::with_capacity(texts.len());
            for at in 0..texts.len() {
                let text = if texts.is_valid(at) {
                    texts.value(at)
                } else {
                    "1970-01-01"
                };
                let parsed = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d");
                let since = parsed.map(|date| (date - chrono::NaiveDate::default()).num_days());
                match since
                    .ok()
                    .and_then(|days| i32::try_from(days).ok())
                    .filter(|days| DATES.contains(days))
                {
                    Some(days) => into.push(days),
                    None => {
                        place.bad(at, "Invalid date");
                        into.push(0);
                    }
                }
            }
            Arc::new(PrimitiveArray::<Date32Type>::new(
                into.into(),
                texts.nulls().cloned(),
            ))
        }
        DataType::Int32 => {
            let values = source
                .as_primitive_opt::<Int32Type>()
                .ok_or_else(|| unexpected(source))?;
            Arc::new(convert_each::<_, Date32Type>(values, place, days))
        }
        _ => {
            let values = source
                .as_primitive_opt::<Date32Type>()
                .ok_or_else(|| unexpected(source))?;
            Arc::new(convert_each::<_, Date32Type>(values, place, days))
        }
    })
}

/// A coarse check of WKT or GeoJSON: the emulator keeps the text and knows no geometry.
fn geography(text: &str) -> Result<(), String> {
    const SHAPES: [&str; 8] = [
        "POINT",
        "LINESTRING",
        "POLYGON",
        "MULTIPOINT",
        "MULTILINESTRING",
        "MULTIPOLYGON",
        "GEOMETRYCOLLECTION",
        "FULLGLOBE",
    ];
    let text = text.trim_start();
    let word = text
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    let geo_json = || {
        let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
        value.is_some_and(|value| value.get("type").is_some_and(serde_json::Value::is_string))
    };
    let good = SHAPES.iter().any(|shape| shape.eq_ignore_ascii_case(word)) || geo_json();
    good.then_some(()).ok_or_else(|| "Invalid geography".to_owned())
}

/// JIT testRowErrors' text.
fn too_long(kind: &str, max: i64, length: usize) -> Result<(), String> {
    if i64::try_from(length).is_ok_and(|length| length <= max) {
        return Ok(());
    }
    Err(format!(
        "{kind}({max}) has maximum length {max} but got a value with length {length}"
    ))
}

fn nulls(source: &ArrayRef, place: &mut Place<'_>) {
    let rows = if source.null_count() > 0 { source.len() } else { 0 };
    for at in 0..rows {
        if source.is_null(at) {
            place.bad(at, "NULL value is not allowed");
        }
    }
}

fn text(
    source: &ArrayRef,
    place: &mut Place<'_>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<(), ArrowError> {
    let texts = source.as_string_opt::<i32>().ok_or_else(|| unexpected(source))?;
    each(texts.len(), texts.nulls(), place, |at| check(texts.value(at)));
    Ok(())
}

fn in_range<'a, T: ArrowPrimitiveType<Native = i64>>(
    source: &'a ArrayRef,
    range: std::ops::RangeInclusive<i64>,
    what: &str,
    place: &mut Place<'_>,
) -> Result<&'a PrimitiveArray<T>, ArrowError> {
    let values = source.as_primitive_opt::<T>().ok_or_else(|| unexpected(source))?;
    each(values.len(), values.nulls(), place, |at| {
        let value = values.value(at);
        let good = range.contains(&value);
        good.then_some(())
            .ok_or_else(|| format!("{what} field value is out of range: {value}"))
    });
    Ok(values)
}

fn each(
    len: usize,
    nulls: Option<&NullBuffer>,
    place: &mut Place<'_>,
    check: impl Fn(usize) -> Result<(), String>,
) {
    for at in 0..len {
        if nulls.is_none_or(|nulls| nulls.is_valid(at))
            && let Err(text) = check(at)
        {
            place.bad(at, text);
        }
    }
}

/// Converts each value; a bad one becomes zero, and an error.
pub(super) fn convert_each<From: ArrowPrimitiveType, To: ArrowPrimitiveType>(
    values: &PrimitiveArray<From>,
    place: &mut Place<'_>,
    convert: impl Fn(From::Native) -> Result<To::Native, String>,
) -> PrimitiveArray<To> {
    let mut into = Vec::with_capacity(values.len());
    for at in 0..values.len() {
        let converted = if values.is_valid(at) {
            convert(values.value(at))
        } else {
            Ok(To::Native::default())
        };
        into.push(converted.unwrap_or_else(|text| {
            place.bad(at, text);
            To::Native::default()
        }));
    }
    PrimitiveArray::new(into.into(), values.nulls().cloned())
}

/// Brings an unlisted Arrow type (a switch) to the listed one.
fn listed(source: &ArrayRef, kind: &Kind) -> Result<ArrayRef, ArrowError> {
    match (kind, source.data_type()) {
        (_, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64)
        | (_, DataType::LargeUtf8 | DataType::LargeBinary | DataType::Date64 | DataType::Time32(_)) => {
            cast(source, &kind.arrow())
        }
        (Kind::Time | Kind::Datetime, _) => cast(source, &kind.arrow()),
        (Kind::Timestamp, DataType::Timestamp(_, zone)) => cast(
            source,
            &DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, zone.clone()),
        ),
        _ => Ok(Arc::clone(source)),
    }
}

fn cast(source: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if source.data_type() == to {
        return Ok(Arc::clone(source));
    }
    cast_with_options(
        source,
        to,
        &CastOptions {
            safe: false,
            ..CastOptions::default()
        },
    )
}

pub(super) fn unexpected(source: &ArrayRef) -> ArrowError {
    ArrowError::SchemaError(format!("{} where another type was agreed", source.data_type()))
}
