//! Partitioning and clustering.

use chrono::{DateTime, Datelike as _, NaiveDate, Timelike as _};
use serde_json::{Map, Value, json};

use super::{Invalid, integer, refuse};
use crate::catalog::Millis;
use crate::schema::{Column, Kind, Mode, Schema};

/// BigQuery's limit on clustering columns.
const MOST_CLUSTERING: usize = 4;
/// BigQuery's limit on partitions of one table by ranges.
const MOST_RANGES: i64 = 10_000;
/// How far back and ahead single days are written (write-api.md 1.3).
const OLDEST_DAYS: i64 = 31;
const LATEST_DAYS: i64 = 16;

/// Checks `timePartitioning`, `rangePartitioning`, `clustering` and `requirePartitionFilter`. The texts are not
/// confirmed by a source.
pub(super) fn check(schema: &Schema, rest: &mut Map<String, Value>) -> Result<(), Invalid> {
    if let Some(time) = rest.get("timePartitioning") {
        let time = check_time(schema, time)?;
        rest.insert("timePartitioning".to_owned(), time);
    }
    if let Some(range) = rest.get("rangePartitioning") {
        let range = check_range(schema, range)?;
        rest.insert("rangePartitioning".to_owned(), range);
    }
    let partitioned = match (rest.get("timePartitioning"), rest.get("rangePartitioning")) {
        (Some(_), Some(_)) => {
            return refuse("A table cannot have both timePartitioning and rangePartitioning".to_owned());
        }
        (None, None) => false,
        _ => true,
    };
    match rest.get("requirePartitionFilter") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) if partitioned => {}
        Some(Value::Bool(true)) => {
            return refuse("requirePartitionFilter can only be set on a partitioned table".to_owned());
        }
        Some(_) => {
            return refuse("Invalid value for requirePartitionFilter: it must be a boolean".to_owned());
        }
    }
    rest.get("clustering")
        .map_or(Ok(()), |clustering| check_clustering(schema, clustering))
}

/// How a table is partitioned is fixed at its creation; how it is clustered is not.
pub(super) fn check_change(old: &Map<String, Value>, new: &Map<String, Value>) -> Result<(), Invalid> {
    let (before, after) = (interval(old), interval(new));
    if before == after {
        return Ok(());
    }
    let said = |interval: Option<String>| interval.unwrap_or_else(|| "none".to_owned());
    if before.is_none() {
        let text = "Cannot convert non partitioned/clustered table to partitioned/clustered table.";
        return refuse(text.to_owned());
    }
    refuse(format!(
        "Incompatible table partitioning specification. Expects partitioning specification {}, but input partitioning \
         specification is {}",
        said(before),
        said(after)
    ))
}

/// Whether rows can be written to one day of a table: `table$20240131` (write-api.md 1.3).
///
/// # Errors
/// The table has no such partitions, or the day is too far away. The texts are UNCONFIRMED.
pub(crate) fn check_day(rest: &Map<String, Value>, day: &str, now: Millis) -> Result<(), Invalid> {
    let time = rest.get("timePartitioning");
    let by_day = time.is_some_and(|time| time["type"] == "DAY" && time.get("field").is_none());
    if !by_day {
        return refuse(format!(
            "Partition decorator ${day} cannot be used: the table is not partitioned by the day of ingestion"
        ));
    }
    let date = NaiveDate::parse_from_str(day, "%Y%m%d")
        .ok()
        .filter(|_| day.len() == 8);
    let Some(date) = date else {
        return refuse(format!(
            "Invalid partition decorator ${day}: it is no day, such as $20240131"
        ));
    };
    let today = DateTime::from_timestamp_millis(now).map_or(date, |now| now.date_naive());
    if !(-OLDEST_DAYS..=LATEST_DAYS).contains(&(date - today).num_days()) {
        return refuse(format!(
            "Partition decorator ${day} is out of range: rows can be written {OLDEST_DAYS} days back to {LATEST_DAYS} \
             days ahead"
        ));
    }
    Ok(())
}

/// How long the partitions are of a table that is partitioned by the time of ingestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IngestionUnit {
    Hour,
    Day,
    Month,
    Year,
}

impl IngestionUnit {
    /// Of a table that is partitioned so.
    pub(crate) fn of(rest: &Map<String, Value>) -> Option<Self> {
        let time = rest
            .get("timePartitioning")
            .filter(|time| time.get("field").is_none())?;
        match time["type"].as_str()? {
            "HOUR" => Some(Self::Hour),
            "DAY" => Some(Self::Day),
            "MONTH" => Some(Self::Month),
            "YEAR" => Some(Self::Year),
            _ => None,
        }
    }

    /// When the partition begins that a time is in.
    pub(crate) fn begin(self, at: Millis) -> Millis {
        let Some(at) = DateTime::from_timestamp_millis(at) else {
            return at;
        };
        let (date, hour) = (at.date_naive(), at.hour());
        let (date, hour) = match self {
            Self::Hour => (Some(date), hour),
            Self::Day => (Some(date), 0),
            Self::Month => (date.with_day(1), 0),
            Self::Year => (date.with_ordinal(1), 0),
        };
        date.and_then(|date| date.and_hms_opt(hour, 0, 0))
            .map_or(at.timestamp_millis(), |begin| begin.and_utc().timestamp_millis())
    }

    /// When the partition of a day begins, such as that of `20240131`.
    pub(crate) fn of_day(day: &str) -> Option<Millis> {
        let date = NaiveDate::parse_from_str(day, "%Y%m%d").ok()?;
        Some(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_millis())
    }
}

/// What identifies a partitioning, as BigQuery prints it: `interval(type:day,field:at)`.
fn interval(rest: &Map<String, Value>) -> Option<String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_lowercase);
    if let Some(time) = rest.get("timePartitioning") {
        let unit = text(time, "type").unwrap_or_default();
        let field = text(time, "field").map(|field| format!(",field:{field}"));
        return Some(format!("interval(type:{unit}{})", field.unwrap_or_default()));
    }
    let ranges = rest.get("rangePartitioning")?;
    let bound = |key| {
        ranges
            .pointer(&format!("/range/{key}"))
            .and_then(integer)
            .unwrap_or(0)
    };
    let field = text(ranges, "field").unwrap_or_default();
    let (start, end, step) = (bound("start"), bound("end"), bound("interval"));
    Some(format!(
        "range(field:{field},start:{start},end:{end},interval:{step})"
    ))
}

fn check_time(schema: &Schema, given: &Value) -> Result<Value, Invalid> {
    let unit = given.get("type").and_then(Value::as_str).unwrap_or_default();
    let unit = unit.to_ascii_uppercase();
    if !["HOUR", "DAY", "MONTH", "YEAR"].contains(&unit.as_str()) {
        let text =
            format!("Invalid value for timePartitioning.type: \"{unit}\" is not DAY, HOUR, MONTH or YEAR");
        return refuse(text);
    }
    let mut time = json!({ "type": unit });
    if let Some(field) = given.get("field").and_then(Value::as_str) {
        let column = partitioning_column(schema, field)?;
        let name = &column.name;
        match column.kind {
            Kind::Timestamp | Kind::Datetime => {}
            Kind::Date if unit != "HOUR" => {}
            Kind::Date => {
                return refuse(format!(
                    "Field {name} has type DATE and cannot be partitioned by HOUR"
                ));
            }
            _ => {
                let kind = column.kind.sql_name();
                return refuse(format!(
                    "The field specified for time partitioning must be of type DATE, TIMESTAMP or DATETIME; {name} is {kind}"
                ));
            }
        }
        time["field"] = name.as_str().into();
    }
    match given.get("expirationMs") {
        None | Some(Value::Null) => {}
        Some(value) => match integer(value) {
            Some(0) => {}
            Some(ms) if ms > 0 => time["expirationMs"] = ms.to_string().into(),
            _ => return refuse("Invalid value for timePartitioning.expirationMs".to_owned()),
        },
    }
    if let Some(Value::Bool(required)) = given.get("requirePartitionFilter") {
        time["requirePartitionFilter"] = (*required).into();
    }
    Ok(time)
}

fn check_range(schema: &Schema, given: &Value) -> Result<Value, Invalid> {
    let field = given.get("field").and_then(Value::as_str).unwrap_or_default();
    let column = partitioning_column(schema, field)?;
    if column.kind != Kind::Int64 {
        let (name, kind) = (&column.name, column.kind.sql_name());
        return refuse(format!(
            "The field specified for range partitioning must be of type INT64; {name} is {kind}"
        ));
    }
    let bound = |key: &str| {
        let value = given.pointer(&format!("/range/{key}")).and_then(integer);
        value.ok_or_else(|| Invalid(format!("Invalid value for rangePartitioning.range.{key}")))
    };
    let (start, end, step) = (bound("start")?, bound("end")?, bound("interval")?);
    let span = end.checked_sub(start).filter(|span| *span > 0 && step > 0);
    match span.map(|span| (span - 1) / step + 1) {
        Some(partitions) if partitions <= MOST_RANGES => {}
        Some(partitions) => {
            return refuse(format!(
                "rangePartitioning gives {partitions} partitions; the most is {MOST_RANGES}"
            ));
        }
        None => {
            let text = "rangePartitioning.range needs an end after its start and an interval above 0";
            return refuse(text.to_owned());
        }
    }
    Ok(json!({
        "field": column.name,
        "range": { "start": start.to_string(), "end": end.to_string(), "interval": step.to_string() },
    }))
}

fn partitioning_column<'a>(schema: &'a Schema, field: &str) -> Result<&'a Column, Invalid> {
    let Some(column) = schema.column(field) else {
        return refuse(format!(
            "The field specified for partitioning cannot be found in the schema: {field}"
        ));
    };
    if column.mode == Mode::Repeated {
        return refuse(format!(
            "The field specified for partitioning cannot be REPEATED: {field}"
        ));
    }
    Ok(column)
}

fn check_clustering(schema: &Schema, clustering: &Value) -> Result<(), Invalid> {
    let fields = clustering.get("fields").and_then(Value::as_array);
    let fields = fields.map(Vec::as_slice).unwrap_or_default();
    if fields.is_empty() || fields.len() > MOST_CLUSTERING {
        let given = fields.len();
        return refuse(format!(
            "Clustering is possible by 1 to {MOST_CLUSTERING} columns; {given} are given"
        ));
    }
    let mut seen: Vec<&str> = Vec::new();
    for field in fields {
        let name = field.as_str().unwrap_or_default();
        let Some(column) = schema.column(name) else {
            return refuse(format!(
                "The field specified for clustering cannot be found in the schema: {name}"
            ));
        };
        if seen.contains(&column.name.as_str()) {
            return refuse(format!("Duplicate clustering column: {name}"));
        }
        seen.push(&column.name);
        if column.mode == Mode::Repeated || !can_cluster(&column.kind) {
            let kind = column.kind.sql_name();
            let mode = if column.mode == Mode::Repeated {
                "REPEATED "
            } else {
                ""
            };
            return refuse(format!(
                "Clustering is not possible by {name}: it is {mode}{kind}"
            ));
        }
    }
    Ok(())
}

fn can_cluster(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Bool
            | Kind::Int64
            | Kind::Numeric { .. }
            | Kind::BigNumeric { .. }
            | Kind::String { .. }
            | Kind::Date
            | Kind::Datetime
            | Kind::Timestamp
            | Kind::Geography
            | Kind::Range(_)
    )
}
