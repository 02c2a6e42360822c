//! `table.*` and `schema.update`: what a created table is to be beside its columns, and what may be changed of one that exists.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_schema::SchemaRef;
use bigquery_write_proto::names::TableName;
use bigquery_write_proto::rows::table_schema_for;
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::{Mode, Type};

use super::{Accepts, CreateTable, OptionProblem, Reader, SinkOptions, spec, values};

/// BigQuery's limits: clustering columns, columns of a primary key, partitions by ranges, labels, and the length of a label's key or value
/// and of a description, in characters.
const MOST_CLUSTERING: usize = 4;
const MOST_KEY_COLUMNS: usize = 16;
const MOST_RANGES: i128 = 10_000;
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 63;
const LONGEST_DESCRIPTION: usize = 16_384;

/// Options that say how a created table is to be.
const LAYOUT: [&str; 7] = [
    "table.partition_by",
    "table.partition_type",
    "table.partition_range",
    "table.partition_expiration",
    "table.cluster_by",
    "table.description",
    "table.labels",
];

/// What a created table is to have beside its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLayout {
    /// `table.partition_*`.
    pub partitioning: Option<Partitioning>,
    /// `table.cluster_by`, in this order.
    pub clustering: Vec<String>,
    /// `table.description`.
    pub description: Option<String>,
    /// `table.labels`.
    pub labels: BTreeMap<String, String>,
}

/// How a table is partitioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// By time.
    Time {
        /// The column; none for the time of ingestion.
        column: Option<String>,
        /// Length of a partition.
        unit: PartitionUnit,
        /// Age at which a partition is dropped.
        expiration: Option<Duration>,
    },
    /// By ranges of an INT64 column.
    Range {
        /// The column.
        column: String,
        /// Start of the first range, inclusive.
        start: i64,
        /// End of the last range, exclusive.
        end: i64,
        /// Width of a range.
        interval: i64,
    },
}

/// `table.partition_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PartitionUnit {
    Hour,
    Day,
    Month,
    Year,
}

/// `schema.update`: how the sink may change a table that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaUpdate {
    /// Columns that the pipeline writes and the table lacks are added.
    pub add_columns: bool,
}

impl PartitionUnit {
    /// BigQuery's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }
}

impl SinkOptions {
    /// Whether the columns that the options and the primary key name are there, and of types that BigQuery takes for it. Says nothing
    /// where no table is created, nor of columns for which no table can be (the start tells those).
    ///
    /// # Errors
    /// Every problem.
    pub fn check_columns(&self, columns: &SchemaRef) -> Result<(), Vec<OptionProblem>> {
        let Ok(schema) = table_schema_for(columns) else {
            return Ok(());
        };
        if self.create == CreateTable::Never {
            return Ok(());
        }
        let mut check = ColumnCheck {
            columns: &schema.fields,
            problems: Vec::new(),
        };
        check.partitioning(self.layout.partitioning.as_ref());
        for name in &self.layout.clustering {
            check.column("table.cluster_by", name, "clustering is by", CLUSTERS);
        }
        check.primary_key(&self.primary_key);
        if check.problems.is_empty() {
            Ok(())
        } else {
            Err(check.problems)
        }
    }
}

/// Types that a table can be partitioned by, clustered by, and keyed by.
const TIMES: &[Type] = &[Type::Date, Type::Timestamp, Type::Datetime];
const TIMES_OF_DAY: &[Type] = &[Type::Timestamp, Type::Datetime];
const CLUSTERS: &[Type] = &[
    Type::Int64,
    Type::Numeric,
    Type::Bignumeric,
    Type::String,
    Type::Bool,
    Type::Date,
    Type::Datetime,
    Type::Timestamp,
    Type::Geography,
    Type::Range,
];
const KEYS: &[Type] = &[
    Type::Int64,
    Type::Numeric,
    Type::Bignumeric,
    Type::String,
    Type::Bool,
    Type::Date,
    Type::Datetime,
    Type::Timestamp,
];

struct ColumnCheck<'a> {
    columns: &'a [TableFieldSchema],
    problems: Vec<OptionProblem>,
}

impl ColumnCheck<'_> {
    fn partitioning(&mut self, partitioning: Option<&Partitioning>) {
        let option = "table.partition_by";
        match partitioning {
            Some(Partitioning::Time {
                column: Some(column),
                unit: PartitionUnit::Hour,
                ..
            }) => self.column(option, column, "partitions of an hour are by", TIMES_OF_DAY),
            Some(Partitioning::Time {
                column: Some(column), ..
            }) => self.column(option, column, "partitions of time are by", TIMES),
            Some(Partitioning::Range { column, .. }) => {
                self.column(option, column, "partitions of ranges are by", &[Type::Int64]);
            }
            Some(Partitioning::Time { column: None, .. }) | None => {}
        }
    }

    fn primary_key(&mut self, key: &[String]) {
        if key.len() > MOST_KEY_COLUMNS {
            let message = format!(
                "the primary key has {} columns; BigQuery takes at most {MOST_KEY_COLUMNS}",
                key.len()
            );
            self.problem("table.create", message);
        }
        for name in key {
            self.column("PRIMARY KEY", name, "a key is of", KEYS);
        }
    }

    fn column(&mut self, option: &str, name: &str, what: &str, types: &[Type]) {
        let subject = if option == "PRIMARY KEY" {
            option.to_owned()
        } else {
            format!("option '{option}'")
        };
        let named = |column: &&TableFieldSchema| column.name.to_lowercase() == name.to_lowercase();
        let Some(column) = self.columns.iter().find(named) else {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let message = format!(
                "{subject}: the pipeline writes no column '{name}' at the top level; it writes {}",
                names.join(", ")
            );
            return self.problem(option, message);
        };
        let repeated = column.mode() == Mode::Repeated;
        if !repeated && types.contains(&column.r#type()) {
            return;
        }
        let kind = column.r#type();
        let is = match kind {
            Type::Double => "FLOAT64",
            kind => kind.as_str_name(),
        };
        let is = if repeated {
            format!("ARRAY<{is}>")
        } else {
            is.to_owned()
        };
        let types: Vec<&str> = types.iter().map(Type::as_str_name).collect();
        let message = format!("{subject}: column '{name}' is {is}; {what} {}", types.join(", "));
        self.problem(option, message);
    }

    fn problem(&mut self, option: &str, message: String) {
        self.problems.push(OptionProblem {
            option: option.to_owned(),
            message,
        });
    }
}

impl Reader<'_> {
    /// `table.*` beside `table.create`.
    pub(super) fn layout(&mut self, create: CreateTable, table: Option<&TableName>) -> TableLayout {
        if create == CreateTable::Never {
            for name in LAYOUT {
                if self.given.contains_key(name) {
                    let message = format!(
                        "option '{name}' has no use without table.create = 'if_missing': a table that exists keeps what it has"
                    );
                    self.problem(name, message);
                }
            }
            return TableLayout::default();
        }
        let layout = TableLayout {
            partitioning: self.partitioning(),
            clustering: self.clustering(),
            description: self.description(),
            labels: self.labels(),
        };
        self.check_decorator(table, layout.partitioning.as_ref());
        layout
    }

    /// `schema.update`.
    pub(super) fn schema_update(&mut self) -> SchemaUpdate {
        let mut update = SchemaUpdate::default();
        let words: Vec<&str> = self.text("schema.update").split(',').map(str::trim).collect();
        for word in &words {
            match *word {
                "add_columns" => update.add_columns = true,
                "none" if words.len() == 1 => {}
                "relax_required" | "max_staleness" => {
                    let message = format!(
                        "option 'schema.update': '{word}' is not yet supported; use 'none' or 'add_columns'"
                    );
                    self.problem("schema.update", message);
                }
                _ => return self.wrong_given("schema.update", update),
            }
        }
        update
    }

    fn partitioning(&mut self) -> Option<Partitioning> {
        let column = self
            .given
            .get("table.partition_by")
            .map(|name| name.trim().to_owned());
        if column.as_deref() == Some("") {
            return self.wrong_given("table.partition_by", None);
        }
        let expiration = self.given.contains_key("table.partition_expiration");
        let expiration = expiration.then(|| self.time("table.partition_expiration"));
        let unit = self
            .given
            .get("table.partition_type")
            .map(|word| match word.trim() {
                "hour" => PartitionUnit::Hour,
                "month" => PartitionUnit::Month,
                "year" => PartitionUnit::Year,
                // `check_known` has reported a wrong one.
                _ => PartitionUnit::Day,
            });
        if self.given.contains_key("table.partition_range") {
            return self.ranges(column, unit, expiration);
        }
        if column.is_none() && unit.is_none() {
            if expiration.is_some() {
                let message = "option 'table.partition_expiration' needs partitions of time: say 'table.partition_by', or \
                               'table.partition_type' for the time of ingestion";
                self.problem("table.partition_expiration", message.to_owned());
            }
            return None;
        }
        Some(Partitioning::Time {
            column,
            unit: unit.unwrap_or(PartitionUnit::Day),
            expiration,
        })
    }

    fn ranges(
        &mut self,
        column: Option<String>,
        unit: Option<PartitionUnit>,
        expiration: Option<Duration>,
    ) -> Option<Partitioning> {
        if unit.is_some() {
            let message = "options 'table.partition_range' and 'table.partition_type' do not go together: partitions are ranges of a \
                           number or lengths of time";
            self.problem("table.partition_type", message.to_owned());
        }
        if expiration.is_some() {
            let message = "option 'table.partition_expiration' has no use beside 'table.partition_range': only partitions of time expire";
            self.problem("table.partition_expiration", message.to_owned());
        }
        let Some(column) = column else {
            let message = "option 'table.partition_range' needs 'table.partition_by', the INT64 column";
            self.problem("table.partition_range", message.to_owned());
            return None;
        };
        let numbers = self
            .text("table.partition_range")
            .split(',')
            .map(|part| part.trim().parse());
        let numbers: Result<Vec<i64>, _> = numbers.collect();
        let Some(&[start, end, interval]) = numbers.as_deref().ok().filter(|numbers| are_ranges(numbers))
        else {
            return self.wrong_given("table.partition_range", None);
        };
        Some(Partitioning::Range {
            column,
            start,
            end,
            interval,
        })
    }

    fn clustering(&mut self) -> Vec<String> {
        let Some(text) = self.given.get("table.cluster_by") else {
            return Vec::new();
        };
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let distinct = |at: usize| {
            let again = |other: &String| other.to_lowercase() == names[at].to_lowercase();
            !names[..at].iter().any(again)
        };
        let good = names.len() <= MOST_CLUSTERING
            && names.iter().all(|name| !name.is_empty())
            && (0..names.len()).all(distinct);
        if good {
            names
        } else {
            self.wrong_given("table.cluster_by", Vec::new())
        }
    }

    fn description(&mut self) -> Option<String> {
        let text = (*self.given.get("table.description")?).to_owned();
        let length = text.chars().count();
        if length > LONGEST_DESCRIPTION {
            let message = format!(
                "option 'table.description' has {length} characters; BigQuery takes at most {LONGEST_DESCRIPTION}"
            );
            self.problem("table.description", message);
        }
        Some(text)
    }

    fn labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        let Some(text) = self.given.get("table.labels") else {
            return labels;
        };
        let mut fault = None;
        for label in text.split(',') {
            let Some((key, value)) = label.split_once('=') else {
                fault = Some(format!("'{}' has no '='", values::shown(label.trim())));
                break;
            };
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            fault = label_fault(&key, &value);
            if fault.is_none() && labels.contains_key(&key) {
                fault = Some(format!("key '{key}' is given twice"));
            }
            if fault.is_some() {
                break;
            }
            labels.insert(key, value);
        }
        if fault.is_none() && labels.len() > MOST_LABELS {
            fault = Some(format!(
                "there are {} of them; BigQuery takes at most {MOST_LABELS}",
                labels.len()
            ));
        }
        if let Some(fault) = fault {
            let accepts = spec("table.labels").accepts.describe();
            let message = format!("option 'table.labels': {fault}; accepted is {accepts}");
            self.problem("table.labels", message);
        }
        labels
    }

    /// A day of a table can be written only if the table, which may be created, is partitioned by the day of ingestion.
    fn check_decorator(&mut self, table: Option<&TableName>, partitioning: Option<&Partitioning>) {
        let Some(day) = table.and_then(|table| table.table().decorator()) else {
            return;
        };
        let by_day = matches!(
            partitioning,
            Some(Partitioning::Time {
                column: None,
                unit: PartitionUnit::Day,
                ..
            })
        );
        if !by_day {
            let message = format!(
                "option 'table': ${day} is a day of a table that is partitioned by the day of ingestion; create it so, with \
                 table.partition_type = 'day' and without 'table.partition_by' and 'table.partition_range', or leave out ${day}"
            );
            self.problem("table", message);
        }
    }
}

/// An end after the start, an interval above 0, and not too many of them.
fn are_ranges(numbers: &[i64]) -> bool {
    let &[start, end, interval] = numbers else {
        return false;
    };
    let span = i128::from(end) - i128::from(start);
    span > 0 && interval > 0 && (span - 1) / i128::from(interval) < MOST_RANGES
}

/// What BigQuery would say of a label: lower-case letters (of any script), digits, `_` and `-`; a key begins with a letter.
fn label_fault(key: &str, value: &str) -> Option<String> {
    let allowed = |c: char| (c.is_alphanumeric() && !c.is_uppercase()) || matches!(c, '_' | '-');
    if key.is_empty() {
        return Some(format!("the value '{}' has no key", values::shown(value)));
    }
    if !key.starts_with(|c: char| c.is_alphabetic() && !c.is_uppercase()) {
        return Some(format!(
            "key '{}' does not begin with a lower-case letter",
            values::shown(key)
        ));
    }
    for (what, text) in [("key", key), ("value", value)] {
        if let Some(c) = text.chars().find(|&c| !allowed(c)) {
            return Some(format!(
                "{c:?} is not allowed in {what} '{}'",
                values::shown(text)
            ));
        }
        if text.chars().count() > LONGEST_LABEL {
            return Some(format!(
                "{what} '{}' has more than {LONGEST_LABEL} characters",
                values::shown(text)
            ));
        }
    }
    None
}

/// What the options of this page accept, in words.
pub(super) const RANGES: Accepts = Accepts::Text(
    "three whole numbers `start, end, interval`, with end above start and at most 10,000 intervals",
);
pub(super) const CLUSTER: Accepts = Accepts::Text("one to four different columns such as `customer, region`");
pub(super) const LABELS: Accepts = Accepts::Text(
    "`key=value, ...`: lower-case letters, digits, `_` and `-`, at most 63 characters each, keys beginning with a letter",
);
