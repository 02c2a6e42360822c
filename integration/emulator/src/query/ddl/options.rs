//! `OPTIONS(...)` as the fields of REST's resources.

use datafusion::sql::sqlparser::ast::{
    Array, DataType, DateTimeField, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    Interval as SqlInterval, UnaryOperator, Value as SqlValue, ValueWithSpan,
};
use serde_json::{Map, Value, json};

use super::Options;
use crate::catalog::Millis;
use crate::description::ROUNDING;
use crate::query::QueryError;
use crate::query::parameters::timestamp;
use crate::schema::Column;
use crate::values::interval::{Interval, Part};

const DAY: f64 = 86_400_000.0;

/// Sets what `OPTIONS` of a column say.
pub(in crate::query) fn column(column: &mut Column, options: &Options) -> Result<(), QueryError> {
    for (name, value) in options {
        match name.as_str() {
            "description" => column.description = text(name, value)?.unwrap_or_default(),
            "rounding_mode" => {
                let mode = text(name, value)?.unwrap_or_default();
                if !ROUNDING.contains(&mode.as_str()) {
                    let (name, rule) = (&column.name, "digits are rounded half away from zero");
                    let text = format!(
                        "This emulator does not support rounding_mode {mode} (column {name}): {rule}"
                    );
                    return Err(QueryError::Invalid(text));
                }
            }
            _ => return Err(unknown(name)),
        }
    }
    Ok(())
}

/// Sets what `OPTIONS` of a table or view say. NULL takes a field away.
pub(in crate::query) fn table(
    rest: &mut Map<String, Value>,
    options: &Options,
    now: Millis,
) -> Result<(), QueryError> {
    for (name, value) in options {
        let (field, value) = match name.as_str() {
            "description" => ("description", text(name, value)?.map(Value::from)),
            "friendly_name" => ("friendlyName", text(name, value)?.map(Value::from)),
            "labels" => ("labels", labels(name, value)?),
            "expiration_timestamp" => {
                let at = instant(name, value, now)?;
                ("expirationTime", at.map(|at| at.to_string().into()))
            }
            "require_partition_filter" => ("requirePartitionFilter", boolean(name, value)?.map(Value::from)),
            "max_staleness" => {
                let staleness = interval(name, value)?;
                (
                    "maxStaleness",
                    staleness.map(|interval| interval.to_string().into()),
                )
            }
            "default_rounding_mode" => ("defaultRoundingMode", text(name, value)?.map(Value::from)),
            "kms_key_name" => {
                let key = text(name, value)?;
                (
                    "encryptionConfiguration",
                    key.map(|key| json!({ "kmsKeyName": key })),
                )
            }
            "partition_expiration_days" => {
                partition_expiration(rest, number(name, value)?)?;
                continue;
            }
            _ => return Err(unknown(name)),
        };
        set(rest, field, value);
    }
    Ok(())
}

/// Sets what `OPTIONS` of a dataset say, but for its location.
pub(in crate::query) fn dataset(rest: &mut Map<String, Value>, options: &Options) -> Result<(), QueryError> {
    for (name, value) in options {
        let days = |field| -> Result<_, QueryError> {
            let ms = number(name, value)?.map(milliseconds).transpose()?;
            Ok((field, ms.map(|ms| ms.to_string().into())))
        };
        let (field, value) = match name.as_str() {
            "location" => continue,
            "description" => ("description", text(name, value)?.map(Value::from)),
            "friendly_name" => ("friendlyName", text(name, value)?.map(Value::from)),
            "labels" => ("labels", labels(name, value)?),
            "default_table_expiration_days" => days("defaultTableExpirationMs")?,
            "default_partition_expiration_days" => days("defaultPartitionExpirationMs")?,
            "is_case_insensitive" => ("isCaseInsensitive", boolean(name, value)?.map(Value::from)),
            "max_time_travel_hours" => {
                let hours = number(name, value)?;
                ("maxTimeTravelHours", hours.map(|hours| hours.to_string().into()))
            }
            "storage_billing_model" => ("storageBillingModel", text(name, value)?.map(Value::from)),
            "default_rounding_mode" => ("defaultRoundingMode", text(name, value)?.map(Value::from)),
            _ => return Err(unknown(name)),
        };
        set(rest, field, value);
    }
    Ok(())
}

/// `location` of a dataset.
pub(in crate::query) fn location(options: &Options) -> Result<Option<String>, QueryError> {
    let location = options.iter().find(|(name, _)| name == "location");
    location.map_or(Ok(None), |(name, value)| text(name, value))
}

fn set(rest: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(rest.insert(field.to_owned(), value)),
        None => drop(rest.remove(field)),
    }
}

fn partition_expiration(rest: &mut Map<String, Value>, days: Option<f64>) -> Result<(), QueryError> {
    let Some(Value::Object(time)) = rest.get_mut("timePartitioning") else {
        let text = "partition_expiration_days can only be set on a table that is partitioned by time";
        return Err(QueryError::Invalid(text.to_owned()));
    };
    let ms = days.map(milliseconds).transpose()?;
    set(time, "expirationMs", ms.map(|ms| ms.to_string().into()));
    Ok(())
}

fn milliseconds(days: f64) -> Result<i64, QueryError> {
    let ms = (days * DAY).round();
    if (1.0..1e18).contains(&ms) {
        // Within the bounds of i64.
        return Ok(ms as i64);
    }
    Err(QueryError::Invalid(
        "An expiration in days must be above 0".to_owned(),
    ))
}

fn unknown(name: &str) -> QueryError {
    QueryError::Invalid(format!("Unknown option: {name}"))
}

fn wrong(name: &str, kind: &str) -> QueryError {
    QueryError::Invalid(format!("Option {name} must be a constant of type {kind}"))
}

fn is_null(value: &Expr) -> bool {
    matches!(
        value,
        Expr::Value(ValueWithSpan {
            value: SqlValue::Null,
            ..
        })
    )
}

fn text(name: &str, value: &Expr) -> Result<Option<String>, QueryError> {
    if is_null(value) {
        return Ok(None);
    }
    literal(value).map(Some).ok_or_else(|| wrong(name, "STRING"))
}

/// A string literal in any of its quotes.
pub(in crate::query) fn literal(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(ValueWithSpan { value, .. }) => string(value),
        _ => None,
    }
}

fn string(value: &SqlValue) -> Option<String> {
    match value {
        SqlValue::SingleQuotedString(text)
        | SqlValue::DoubleQuotedString(text)
        | SqlValue::TripleSingleQuotedString(text)
        | SqlValue::TripleDoubleQuotedString(text)
        | SqlValue::SingleQuotedRawStringLiteral(text)
        | SqlValue::DoubleQuotedRawStringLiteral(text)
        | SqlValue::TripleSingleQuotedRawStringLiteral(text)
        | SqlValue::TripleDoubleQuotedRawStringLiteral(text) => Some(text.clone()),
        _ => None,
    }
}

fn boolean(name: &str, value: &Expr) -> Result<Option<bool>, QueryError> {
    match value {
        value if is_null(value) => Ok(None),
        Expr::Value(ValueWithSpan {
            value: SqlValue::Boolean(flag),
            ..
        }) => Ok(Some(*flag)),
        _ => Err(wrong(name, "BOOL")),
    }
}

fn number(name: &str, value: &Expr) -> Result<Option<f64>, QueryError> {
    if is_null(value) {
        return Ok(None);
    }
    let digits = digits(value).and_then(|digits| digits.parse().ok());
    digits.map(Some).ok_or_else(|| wrong(name, "FLOAT64"))
}

/// A number with its sign.
pub(in crate::query) fn digits(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(ValueWithSpan {
            value: SqlValue::Number(digits, _),
            ..
        }) => Some(digits.clone()),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => digits(expr).map(|digits| format!("-{digits}")),
        Expr::Nested(inner) => digits(inner),
        _ => None,
    }
}

/// `[("key", "value"), ...]`, each pair with STRUCT before it or not.
fn labels(name: &str, value: &Expr) -> Result<Option<Value>, QueryError> {
    let pairs = match value {
        value if is_null(value) => return Ok(None),
        Expr::Array(Array { elem, .. }) => elem,
        _ => return Err(wrong(name, "ARRAY<STRUCT<STRING, STRING>>")),
    };
    let pair = |pair: &Expr| {
        let (Expr::Tuple(parts) | Expr::Struct { values: parts, .. }) = pair else {
            return None;
        };
        let [key, value] = parts.as_slice() else {
            return None;
        };
        Some((literal(key)?, Value::from(literal(value)?)))
    };
    let labels: Option<Map<String, Value>> = pairs.iter().map(pair).collect();
    let labels = labels.ok_or_else(|| wrong(name, "ARRAY<STRUCT<STRING, STRING>>"))?;
    Ok(Some(Value::Object(labels)).filter(|_| !pairs.is_empty()))
}

/// `INTERVAL 15 MINUTE`, `INTERVAL '0:15:0' HOUR TO SECOND`.
fn interval(name: &str, value: &Expr) -> Result<Option<Interval>, QueryError> {
    match value {
        value if is_null(value) => Ok(None),
        Expr::Interval(interval) => read_interval(interval)
            .map(Some)
            .ok_or_else(|| wrong(name, "INTERVAL")),
        _ => Err(wrong(name, "INTERVAL")),
    }
}

fn read_interval(interval: &SqlInterval) -> Option<Interval> {
    let from = part(interval.leading_field.as_ref()?)?;
    if let Some(text) = literal(&interval.value) {
        let to = interval.last_field.as_ref().map_or(Some(from), part)?;
        return Interval::parse_parts(&text, from, to);
    }
    let count: i64 = digits(&interval.value)?.parse().ok()?;
    let micros = |unit: i64| Interval::new(0, 0, count.checked_mul(unit)?);
    match from {
        Part::Year => Interval::new(count.checked_mul(12)?, 0, 0),
        Part::Month => Interval::new(count, 0, 0),
        Part::Day => Interval::new(0, count, 0),
        Part::Hour => micros(3_600_000_000),
        Part::Minute => micros(60_000_000),
        Part::Second => micros(1_000_000),
    }
}

fn part(field: &DateTimeField) -> Option<Part> {
    Some(match field {
        DateTimeField::Year => Part::Year,
        DateTimeField::Month => Part::Month,
        DateTimeField::Day => Part::Day,
        DateTimeField::Hour => Part::Hour,
        DateTimeField::Minute => Part::Minute,
        DateTimeField::Second => Part::Second,
        _ => return None,
    })
}

/// `TIMESTAMP '...'`, a plain string, or `TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL ...)`, in milliseconds.
fn instant(name: &str, value: &Expr, now: Millis) -> Result<Option<Millis>, QueryError> {
    if is_null(value) {
        return Ok(None);
    }
    let written = match value {
        Expr::TypedString {
            data_type: DataType::Timestamp(..),
            value,
        } => string(value),
        other => literal(other),
    };
    let at = match written {
        Some(text) => timestamp(&text).map(|at| at.timestamp_millis()),
        None => from_now(value, now),
    };
    at.map(Some).ok_or_else(|| {
        let text = format!(
            "Option {name} must be a TIMESTAMP literal or TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL ...)"
        );
        QueryError::Invalid(text)
    })
}

fn from_now(value: &Expr, now: Millis) -> Option<Millis> {
    let Expr::Function(function) = value else {
        return None;
    };
    if !function.name.to_string().eq_ignore_ascii_case("TIMESTAMP_ADD") {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(base))),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Interval(interval))),
    ] = list.args.as_slice()
    else {
        return None;
    };
    if !base.name.to_string().eq_ignore_ascii_case("CURRENT_TIMESTAMP") {
        return None;
    }
    let (months, days, micros) = read_interval(interval)?.parts();
    let days = i64::from(days).checked_mul(86_400_000)?;
    // TIMESTAMP_ADD takes no months.
    (months == 0).then_some(())?;
    now.checked_add(days)?.checked_add(micros / 1_000)
}
