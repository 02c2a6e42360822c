//! Values of the column that a table is partitioned by (write-api.md 2.5).

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use chrono::{DateTime, Months, NaiveDate};
use serde_json::Value;

use crate::catalog::{Millis, Table};
use crate::rows::RowErrors;
use crate::schema::Column;

const DAY_US: i64 = 86_400_000_000;
/// How far a value may lie from the day of the append.
const PAST: Months = Months::new(10 * 12);
const FUTURE: Months = Months::new(12);

/// Rows whose day is too far away are bad; the text is UNCONFIRMED.
pub(super) fn check(rows: &RecordBatch, table: &Table, now: Millis, errors: &mut RowErrors) {
    let field = table
        .rest
        .get("timePartitioning")
        .and_then(|time| time.get("field"));
    let column = field
        .and_then(Value::as_str)
        .and_then(|name| table.schema.column(name));
    let Some((column, values)) = column.and_then(|column| Some((column, values_of(rows, column)?))) else {
        return;
    };
    let Some((first, last)) = days_around(now) else {
        return;
    };
    let far = |days: i64| !(first..=last).contains(&days);
    for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
        if day(values, row).is_some_and(far) {
            errors.add(row, || {
                let name = &column.name;
                format!(
                    "The value of a partitioning column must lie within 10 years in the past and 1 year in the future on \
                     field {name}."
                )
            });
        }
    }
}

/// The rows have the columns that those who append know, which may be others than the table's.
fn values_of<'a>(rows: &'a RecordBatch, column: &Column) -> Option<&'a ArrayRef> {
    let schema = rows.schema();
    let place = schema
        .fields()
        .iter()
        .position(|field| column.is_named(field.name()))?;
    rows.columns().get(place)
}

/// The first and the last day that can be written, in days since 1970.
fn days_around(now: Millis) -> Option<(i64, i64)> {
    let today = DateTime::from_timestamp_millis(now)?.date_naive();
    let days = |date: NaiveDate| (date - NaiveDate::default()).num_days();
    let (first, last) = (today.checked_sub_months(PAST)?, today.checked_add_months(FUTURE)?);
    Some((days(first), days(last)))
}

/// Days since 1970 of a DATE, DATETIME or TIMESTAMP.
fn day(values: &ArrayRef, row: usize) -> Option<i64> {
    let days = values
        .as_primitive_opt::<Date32Type>()
        .map(|dates| dates.value(row).into());
    days.or_else(|| {
        let micros = values.as_primitive_opt::<TimestampMicrosecondType>()?;
        Some(micros.value(row).div_euclid(DAY_US))
    })
}
