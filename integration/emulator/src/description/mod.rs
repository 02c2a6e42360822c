//! What a table's description says beside its columns, and how columns and description may change: the rules that REST
//! and DDL share.

use serde_json::{Map, Value};

use crate::catalog::{Catalog, Millis, Table, TableRef};
use crate::schema::Schema;
use crate::values::interval::Interval;

pub(crate) use partitioning::{IngestionUnit, check_day};

mod constraints;
mod evolution;
mod partitioning;

/// BigQuery's limit on labels of one resource.
const MOST_LABELS: usize = 64;
/// BigQuery's limit on a label's key or value, in characters.
const LONGEST_LABEL: usize = 63;

/// A table as it is to be: its columns, and every other field of the REST resource that the caller sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    /// Columns.
    pub(crate) schema: Schema,
    /// By REST's names: description, labels, timePartitioning...
    pub(crate) rest: Map<String, Value>,
}

/// A description that BigQuery refuses; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Invalid(pub(crate) String);

impl Description {
    /// Checks a new table, and brings its fields into the form in which they are given back.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check(mut self, now: Millis) -> Result<Self, Invalid> {
        self.schema.check().map_err(|error| Invalid(error.to_string()))?;
        self.rest.retain(|_, value| !value.is_null());
        self.texts()?;
        partitioning::check(&self.schema, &mut self.rest)?;
        constraints::check(&self.schema, &self.rest)?;
        check_labels(self.rest.get("labels"))?;
        self.expiration(now)?;
        self.staleness()?;
        Ok(self)
    }

    /// Checks a table as it is to be in place of what it is: as a new one, and what may change. Columns that are there
    /// keep their order; added ones follow.
    ///
    /// # Errors
    /// The first thing that is wrong; schema changes with Google's text.
    pub(crate) fn check_change(mut self, name: &TableRef, old: &Table, now: Millis) -> Result<Self, Invalid> {
        // A date that has passed by now was in the future once.
        let kept = self.rest.get("expirationTime") == old.rest.get("expirationTime");
        let now = if kept { Millis::MIN } else { now };
        // A view's columns are those of its query.
        if !old.is_view() {
            self.schema = evolution::check(name, &old.schema, self.schema)?;
        }
        if old.is_view() != self.rest.contains_key("view") {
            return refuse(format!("{name} cannot become a view, nor a view a table"));
        }
        let new = self.check(now)?;
        partitioning::check_change(&old.rest, &new.rest)?;
        Ok(new)
    }

    /// What a new table has from its dataset: `defaultTableExpirationMs`, or for a table that is partitioned by time
    /// `defaultPartitionExpirationMs`.
    pub(crate) fn with_defaults(mut self, catalog: &Catalog, name: &TableRef, now: Millis) -> Self {
        let Ok(dataset) = catalog.dataset(&name.dataset_ref()) else {
            return self;
        };
        let default = |field: &str| dataset.rest.get(field).and_then(integer).filter(|ms| *ms > 0);
        let partitions = default("defaultPartitionExpirationMs");
        if let (Some(Value::Object(time)), Some(ms)) = (self.rest.get_mut("timePartitioning"), partitions) {
            time.entry("expirationMs")
                .or_insert_with(|| ms.to_string().into());
            return self;
        }
        if let Some(ms) = default("defaultTableExpirationMs") {
            let expires = now.saturating_add(ms).to_string();
            self.rest
                .entry("expirationTime")
                .or_insert_with(|| expires.into());
        }
        self
    }

    fn texts(&self) -> Result<(), Invalid> {
        for field in ["description", "friendlyName"] {
            if let Some(value) = self.rest.get(field)
                && !value.is_string()
            {
                return refuse(format!("Invalid value for {field}: it must be a string"));
            }
        }
        check_values_as_written(&self.rest)
    }

    fn expiration(&mut self, now: Millis) -> Result<(), Invalid> {
        let Some(value) = self.rest.get("expirationTime") else {
            return Ok(());
        };
        let Some(at) = integer(value) else {
            return refuse("Invalid value for expirationTime: it must be milliseconds since 1970".to_owned());
        };
        if at <= now {
            let text = "Invalid value for expirationTime: the expiration time must be in the future";
            return refuse(text.to_owned());
        }
        self.rest
            .insert("expirationTime".to_owned(), at.to_string().into());
        Ok(())
    }

    fn staleness(&mut self) -> Result<(), Invalid> {
        let Some(value) = self.rest.get("maxStaleness") else {
            return Ok(());
        };
        let interval = value.as_str().and_then(Interval::parse);
        let Some(interval) = interval else {
            let text = format!(
                "Invalid value for maxStaleness: {value} is no INTERVAL in the format [Y-M D H:M:S], such as \"0-0 0 0:15:0\""
            );
            return refuse(text);
        };
        self.rest
            .insert("maxStaleness".to_owned(), interval.to_string().into());
        Ok(())
    }
}

/// Labels of a table or a dataset.
///
/// # Errors
/// They are no map of strings, too many, or of characters that labels do not have.
pub(crate) fn check_labels(labels: Option<&Value>) -> Result<(), Invalid> {
    let labels = match labels {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(labels)) => labels,
        Some(_) => return refuse("Invalid value for labels: they must be a map of strings".to_owned()),
    };
    if labels.len() > MOST_LABELS {
        return refuse(format!(
            "Too many labels: {}, the most is {MOST_LABELS}",
            labels.len()
        ));
    }
    let allowed = |c: char| (c.is_alphanumeric() && !c.is_uppercase()) || c == '_' || c == '-';
    let good = |text: &str| text.chars().count() <= LONGEST_LABEL && text.chars().all(allowed);
    for (key, value) in labels {
        let value = value.as_str().unwrap_or("?");
        if let Some(bad) = [key.as_str(), value].into_iter().find(|text| !good(text)) {
            return refuse(format!(
                "Invalid field value \"{bad}\". Label keys and values may only contain lowercase letters, numbers, \
                 dashes and underscores, and have at most {LONGEST_LABEL} characters."
            ));
        }
        if key.is_empty() {
            return refuse("Label keys must not be empty".to_owned());
        }
    }
    Ok(())
}

/// REST writes 64-bit numbers as strings; clients also send plain ones.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    }
}

fn refuse<T>(text: String) -> Result<T, Invalid> {
    Err(Invalid(text))
}

/// How digits are rounded here.
pub(crate) const ROUNDING: [&str; 3] = ["", "ROUNDING_MODE_UNSPECIFIED", "ROUND_HALF_AWAY_FROM_ZERO"];

/// Fields of a table or dataset that would make values, or names, equal that are not, or round them otherwise: this
/// emulator has nothing of the kind, and does not pretend to.
///
/// # Errors
/// One is set.
pub(crate) fn check_values_as_written(rest: &Map<String, Value>) -> Result<(), Invalid> {
    let set = |field: &str, defaults: &[&str]| match rest.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !defaults.contains(&text.as_str()),
        Some(_) => true,
    };
    for (field, defaults) in [
        ("defaultCollation", &[""][..]),
        ("defaultRoundingMode", &ROUNDING),
        ("isCaseInsensitive", &[]),
    ] {
        if set(field, defaults) {
            return refuse(format!("This emulator does not support {field}"));
        }
    }
    Ok(())
}
