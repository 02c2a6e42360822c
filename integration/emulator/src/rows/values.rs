//! Turns a writer's arrays into the table's canonical ones, value by value where a value can be wrong.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Int32Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, ListArray, PrimitiveArray, StructArray, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use arrow_select::take::take;

use super::checks::{Bad, Checks};
use super::fit::Fit;
use super::ipc::Columns;
use super::spans::{interval, picoseconds, range};
use super::{Memory, RowErrors};
use crate::schema::{Column, Kind, Mode};
use crate::values::literal::ten;

/// Converts all columns; `None` is one that the writer lacks. In those to be `filled` NULL may stand wherever it is: a
/// default value will take its place. Bad values go to `errors` (the arrays are then of no use).
///
/// # Errors
/// What only a message that contradicts itself brings about.
pub(super) fn convert(
    source: &Columns,
    fits: &[Fit],
    columns: &[Column],
    filled: &[bool],
    checks: Checks,
    memory: &Memory,
    errors: &mut RowErrors,
) -> Result<Vec<Option<ArrayRef>>, ArrowError> {
    let mut place = Place {
        rows: Rows::Same,
        name: Cow::Borrowed(""),
        checks,
        memory,
        errors,
    };
    fields(&source.arrays, fits, columns, filled, &mut place)
}

/// Which row of the request each value belongs to.
enum Rows<'a> {
    /// The value's own index.
    Same,
    /// By index; [`DEAD`] for a value under a null, which nobody sees.
    Of(&'a [u32]),
}

const DEAD: u32 = u32::MAX;

/// Where we are: rows, dotted name of the column, the checks in force, and where errors go.
pub(super) struct Place<'a> {
    rows: Rows<'a>,
    name: Cow<'a, str>,
    pub(super) checks: Checks,
    memory: &'a Memory,
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
    pub(super) fn bad(&mut self, at: usize, bad: &Bad) {
        if let Some(row) = self.row(at) {
            let name = &self.name;
            self.errors.add(row, || bad.on(name));
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
            checks: self.checks,
            memory: self.memory,
            errors: &mut *self.errors,
        }
    }
}

/// The columns of a table or STRUCT; `None` is one that the writer lacks.
fn fields(
    sources: &[ArrayRef],
    fits: &[Fit],
    columns: &[Column],
    filled: &[bool],
    place: &mut Place<'_>,
) -> Result<Vec<Option<ArrayRef>>, ArrowError> {
    let prefix = if place.name.is_empty() {
        String::new()
    } else {
        format!("{}.", place.name)
    };
    let mut arrays = Vec::with_capacity(columns.len());
    for (at, (column, fit)) in columns.iter().zip(fits).enumerate() {
        let filled = filled.get(at).copied().unwrap_or_default();
        let Some(source) = fit.source.and_then(|at| sources.get(at)) else {
            arrays.push(None);
            continue;
        };
        let mut place = Place {
            rows: match place.rows {
                Rows::Same => Rows::Same,
                Rows::Of(rows) => Rows::Of(rows),
            },
            name: Cow::Owned(format!("{prefix}{}", column.name)),
            checks: place.checks,
            memory: place.memory,
            errors: &mut *place.errors,
        };
        arrays.push(Some(match column.mode {
            Mode::Repeated => repeated(source, fit, column, filled, &mut place)?,
            mode => {
                let required = mode == Mode::Required && !filled;
                value(source, fit, &column.kind, required, &mut place)?
            }
        }));
    }
    Ok(arrays)
}

/// A column that the writer left out: NULL, or no elements.
pub(super) fn absent(column: &Column, len: usize) -> ArrayRef {
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
    filled: bool,
    place: &mut Place<'_>,
) -> Result<ArrayRef, ArrowError> {
    let list = source.as_list_opt::<i32>().ok_or_else(|| unexpected(source))?;
    // Only the elements of visible lists are taken: what lies under a null, or between lists, is nobody's.
    let mut picked = Vec::with_capacity(list.values().len());
    let mut rows = Vec::with_capacity(list.values().len());
    let mut lengths = Vec::with_capacity(list.len());
    for (at, range) in list.value_offsets().windows(2).enumerate() {
        let row = place.row(at).filter(|_| list.is_valid(at));
        if list.is_null(at)
            && !filled
            && let Err(bad) = place.checks.null_list()
        {
            place.bad(at, &bad);
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
        list.nulls().filter(|_| filled).cloned(),
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
    let source = &listed(source, kind, place.memory)?;
    let checks = place.checks;
    match kind {
        Kind::Bool | Kind::Int64 | Kind::Float64 => cast(source, &kind.arrow()),
        Kind::Struct(columns) => structure(source, fit, columns, place),
        Kind::Numeric { precision, scale } => numeric(source, *precision, *scale, place),
        Kind::BigNumeric { precision, scale } => big_numeric(source, *precision, *scale, place),
        Kind::String { max_length } => {
            if max_length.is_some() {
                text(source, place, |text| checks.string(*max_length, text))?;
            }
            Ok(Arc::clone(source))
        }
        Kind::Json => {
            text(source, place, |text| checks.json(text))?;
            Ok(Arc::clone(source))
        }
        Kind::Geography => {
            text(source, place, |text| checks.geography(text))?;
            Ok(Arc::clone(source))
        }
        Kind::Bytes { max_length } => {
            if max_length.is_some() {
                let bytes = source.as_binary_opt::<i32>().ok_or_else(|| unexpected(source))?;
                each(bytes.len(), bytes.nulls(), place, |at| {
                    checks.bytes(*max_length, bytes.value(at))
                });
            }
            Ok(Arc::clone(source))
        }
        Kind::Date => date(source, place),
        Kind::Time => {
            checked::<Time64MicrosecondType>(source, place, |micros| checks.time(micros))?;
            Ok(Arc::clone(source))
        }
        Kind::Datetime => {
            checked::<TimestampMicrosecondType>(source, place, |micros| checks.datetime(micros))?;
            Ok(Arc::clone(source))
        }
        Kind::Timestamp => {
            let values =
                checked::<TimestampMicrosecondType>(source, place, |micros| checks.timestamp(micros))?;
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
    let arrays = fields(source.columns(), &fit.inner, columns, &[], &mut inner)?;
    place.memory.unsent(source.len(), &arrays)?;
    let arrays = arrays.into_iter().zip(columns);
    let arrays = arrays.map(|(array, column)| array.unwrap_or_else(|| absent(column, source.len())));
    // What lies under a null is null itself, so that its REQUIRED fields need no value.
    let valid = BooleanBuffer::collect_bool(rows.len(), |at| rows[at] != DEAD);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok((arrays.collect(), nulls))
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
    let numeric = place.checks.numeric(precision, scale);
    convert_each::<_, Decimal128Type>(values, place, |value| numeric.take(value.checked_mul(factor)))
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
    let factor = ten(u32::try_from(38 - values.scale()).unwrap_or(0));
    let numeric = place.checks.big_numeric(precision, scale);
    convert_each::<_, Decimal256Type>(values, place, |value| numeric.take(value.checked_mul(factor)))
        .with_precision_and_scale(76, 38)
        .map(|array| Arc::new(array) as ArrayRef)
}

fn date(source: &ArrayRef, place: &mut Place<'_>) -> Result<ArrayRef, ArrowError> {
    let checks = place.checks;
    Ok(match source.data_type() {
        DataType::Utf8 => {
            let texts = source.as_string_opt::<i32>().ok_or_else(|| unexpected(source))?;
            let mut into = Vec::with_capacity(texts.len());
            for at in 0..texts.len() {
                let days = if texts.is_valid(at) {
                    checks.date_text(texts.value(at))
                } else {
                    Ok(0)
                };
                into.push(days.unwrap_or_else(|bad| {
                    place.bad(at, &bad);
                    0
                }));
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
            Arc::new(convert_each::<_, Date32Type>(values, place, |days| {
                checks.date(days.into())
            }))
        }
        _ => {
            let values = source
                .as_primitive_opt::<Date32Type>()
                .ok_or_else(|| unexpected(source))?;
            Arc::new(convert_each::<_, Date32Type>(values, place, |days| {
                checks.date(days.into())
            }))
        }
    })
}

fn nulls(source: &ArrayRef, place: &mut Place<'_>) {
    let rows = if source.null_count() > 0 { source.len() } else { 0 };
    for at in 0..rows {
        if source.is_null(at) {
            place.bad(at, &Bad::null());
        }
    }
}

fn text(
    source: &ArrayRef,
    place: &mut Place<'_>,
    check: impl Fn(&str) -> Result<(), Bad>,
) -> Result<(), ArrowError> {
    let texts = source.as_string_opt::<i32>().ok_or_else(|| unexpected(source))?;
    each(texts.len(), texts.nulls(), place, |at| check(texts.value(at)));
    Ok(())
}

fn checked<'a, T: ArrowPrimitiveType<Native = i64>>(
    source: &'a ArrayRef,
    place: &mut Place<'_>,
    check: impl Fn(i64) -> Result<i64, Bad>,
) -> Result<&'a PrimitiveArray<T>, ArrowError> {
    let values = source.as_primitive_opt::<T>().ok_or_else(|| unexpected(source))?;
    each(values.len(), values.nulls(), place, |at| {
        check(values.value(at)).map(drop)
    });
    Ok(values)
}

fn each(
    len: usize,
    nulls: Option<&NullBuffer>,
    place: &mut Place<'_>,
    check: impl Fn(usize) -> Result<(), Bad>,
) {
    for at in 0..len {
        if nulls.is_none_or(|nulls| nulls.is_valid(at))
            && let Err(bad) = check(at)
        {
            place.bad(at, &bad);
        }
    }
}

/// Converts each value; a bad one becomes zero, and an error.
pub(super) fn convert_each<From: ArrowPrimitiveType, To: ArrowPrimitiveType>(
    values: &PrimitiveArray<From>,
    place: &mut Place<'_>,
    convert: impl Fn(From::Native) -> Result<To::Native, Bad>,
) -> PrimitiveArray<To> {
    let mut into = Vec::with_capacity(values.len());
    for at in 0..values.len() {
        let converted = if values.is_valid(at) {
            convert(values.value(at))
        } else {
            Ok(To::Native::default())
        };
        into.push(converted.unwrap_or_else(|bad| {
            place.bad(at, &bad);
            To::Native::default()
        }));
    }
    PrimitiveArray::new(into.into(), values.nulls().cloned())
}

/// Brings an unlisted Arrow type (a switch) to the listed one.
fn listed(source: &ArrayRef, kind: &Kind, memory: &Memory) -> Result<ArrayRef, ArrowError> {
    match (kind, source.data_type()) {
        (_, DataType::Utf8View | DataType::BinaryView) => {
            copied(source, memory)?;
            cast(source, &kind.arrow())
        }
        (_, DataType::FixedSizeBinary(_)) => cast(source, &kind.arrow()),
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

/// Views of the same bytes are many texts: what they take, which must also fit arrow's 32-bit offsets.
fn copied(views: &ArrayRef, memory: &Memory) -> Result<(), ArrowError> {
    // A view's first 32 bits are its length.
    let sum = |views: &[u128]| views.iter().map(|view| u64::from(*view as u32)).sum::<u64>();
    let texts = views.as_string_view_opt().map(|views| sum(views.views()));
    let bytes = || views.as_binary_view_opt().map(|views| sum(views.views()));
    let length = texts.or_else(bytes).unwrap_or(0);
    memory.spend(length)?;
    i32::try_from(length).map(drop).map_err(|_| {
        let text = "a column has more than 2 GiB of text; send fewer rows in one request";
        ArrowError::MemoryError(text.to_owned())
    })
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
