//! `INFORMATION_SCHEMA`: views on the catalog itself.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use serde_json::Value;

use crate::catalog::{Catalog, Dataset, DatasetRef, Entity, Millis, Table, TableRef};
use crate::description::integer;
use crate::query::QueryError;
use crate::query::names::is_region;
use crate::schema::{Column, Kind, Mode, Schema};

/// Whether the name is that of such a view; see [`super::names::Names::table`].
pub(super) fn is(name: &TableRef) -> bool {
    name.table.starts_with("INFORMATION_SCHEMA.")
}

/// A view's rows as of now.
///
/// # Errors
/// `NotFound`, `Invalid`: there is no such view here, or it needs a dataset.
pub(super) fn read(catalog: &Catalog, name: &TableRef) -> Result<(Schema, RecordBatch), QueryError> {
    let view = name.table.trim_start_matches("INFORMATION_SCHEMA.");
    let columns = match view {
        "SCHEMATA" => SCHEMATA,
        "TABLES" => TABLES,
        "COLUMNS" => COLUMNS,
        "TABLE_OPTIONS" => TABLE_OPTIONS,
        "TABLE_CONSTRAINTS" => TABLE_CONSTRAINTS,
        "KEY_COLUMN_USAGE" => KEY_COLUMN_USAGE,
        "VIEWS" => VIEWS,
        _ => {
            let text = format!(
                "INFORMATION_SCHEMA.{view} is not supported by this emulator. Supported are SCHEMATA, TABLES, COLUMNS, \
                 TABLE_OPTIONS, TABLE_CONSTRAINTS, KEY_COLUMN_USAGE and VIEWS."
            );
            return Err(QueryError::Invalid(text));
        }
    };
    let mut rows = Vec::new();
    for (name, dataset) in datasets(catalog, name, view)? {
        if view == "SCHEMATA" {
            rows.push(schemata(name, dataset));
            continue;
        }
        for (id, table) in &dataset.tables {
            let head = [&name.project, &name.dataset, id].map(|text| Cell::text(text));
            let add = |row: Vec<Cell>| rows.push(head.iter().cloned().chain(row).collect());
            match view {
                "TABLES" => std::iter::once(described(table)).for_each(add),
                "COLUMNS" => of_columns(table).into_iter().for_each(add),
                "TABLE_OPTIONS" => options(table).into_iter().for_each(add),
                "VIEWS" => of_view(table).into_iter().for_each(add),
                _ => {
                    let keys = keys(name, id, table);
                    let keys = keys.into_iter();
                    rows.extend(if view == "TABLE_CONSTRAINTS" {
                        keys.map(|key| key.constraint).collect::<Vec<_>>()
                    } else {
                        keys.flat_map(|key| key.columns).collect()
                    });
                }
            }
        }
    }
    build(columns, &rows)
}

/// The datasets that a view is about.
fn datasets<'a>(
    catalog: &'a Catalog,
    name: &'a TableRef,
    view: &str,
) -> Result<Vec<(&'a DatasetRef, &'a Dataset)>, QueryError> {
    if let Some(region) = name
        .dataset
        .get("region-".len()..)
        .filter(|_| is_region(&name.dataset))
    {
        let all = catalog.datasets_of(&name.project);
        return Ok(all
            .filter(|(_, dataset)| dataset.location.eq_ignore_ascii_case(region))
            .collect());
    }
    if view == "SCHEMATA" {
        return Ok(catalog.datasets_of(&name.project).collect());
    }
    if name.dataset.is_empty() {
        let text = format!(
            "Table \"{}\" must be qualified with a dataset (e.g. dataset.{}) or a region",
            name.table, name.table
        );
        return Err(QueryError::Invalid(text));
    }
    let wanted = name.dataset_ref();
    match catalog.datasets.get_key_value(&wanted) {
        Some(found) => Ok(vec![found]),
        None => Err(QueryError::NotFound {
            entity: Entity::Dataset(wanted),
            location: "US".to_owned(),
        }),
    }
}

const SCHEMATA: &[(&str, Kind)] = &[
    ("catalog_name", TEXT),
    ("schema_name", TEXT),
    ("schema_owner", TEXT),
    ("creation_time", Kind::Timestamp),
    ("last_modified_time", Kind::Timestamp),
    ("location", TEXT),
    ("default_collation_name", TEXT),
];

const TABLES: &[(&str, Kind)] = &[
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("table_type", TEXT),
    ("is_insertable_into", TEXT),
    ("is_typed", TEXT),
    ("is_change_history_enabled", TEXT),
    ("creation_time", Kind::Timestamp),
    ("default_collation_name", TEXT),
];

const COLUMNS: &[(&str, Kind)] = &[
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("column_name", TEXT),
    ("ordinal_position", Kind::Int64),
    ("is_nullable", TEXT),
    ("data_type", TEXT),
    ("is_generated", TEXT),
    ("generation_expression", TEXT),
    ("is_stored", TEXT),
    ("is_hidden", TEXT),
    ("is_updatable", TEXT),
    ("is_system_defined", TEXT),
    ("is_partitioning_column", TEXT),
    ("clustering_ordinal_position", Kind::Int64),
    ("collation_name", TEXT),
    ("column_default", TEXT),
    ("rounding_mode", TEXT),
];

const TABLE_OPTIONS: &[(&str, Kind)] = &[
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("option_name", TEXT),
    ("option_type", TEXT),
    ("option_value", TEXT),
];

const VIEWS: &[(&str, Kind)] = &[
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("view_definition", TEXT),
    ("check_option", TEXT),
    ("use_standard_sql", TEXT),
];

const TABLE_CONSTRAINTS: &[(&str, Kind)] = &[
    ("constraint_catalog", TEXT),
    ("constraint_schema", TEXT),
    ("constraint_name", TEXT),
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("constraint_type", TEXT),
    ("is_deferrable", TEXT),
    ("initially_deferred", TEXT),
    ("enforced", TEXT),
];

const KEY_COLUMN_USAGE: &[(&str, Kind)] = &[
    ("constraint_catalog", TEXT),
    ("constraint_schema", TEXT),
    ("constraint_name", TEXT),
    ("table_catalog", TEXT),
    ("table_schema", TEXT),
    ("table_name", TEXT),
    ("column_name", TEXT),
    ("ordinal_position", Kind::Int64),
    ("position_in_unique_constraint", Kind::Int64),
];

const TEXT: Kind = Kind::String { max_length: None };

fn schemata(name: &DatasetRef, dataset: &Dataset) -> Vec<Cell> {
    vec![
        Cell::text(&name.project),
        Cell::text(&name.dataset),
        Cell::Null,
        Cell::instant(dataset.created_ms),
        Cell::instant(dataset.modified_ms),
        Cell::text(&dataset.location),
        Cell::field(dataset.rest.get("defaultCollation")),
    ]
}

fn described(table: &Table) -> Vec<Cell> {
    let (kind, insertable) = if table.is_view() {
        ("VIEW", "NO")
    } else {
        ("BASE TABLE", "YES")
    };
    vec![
        Cell::text(kind),
        Cell::text(insertable),
        Cell::text("NO"),
        Cell::text("NO"),
        Cell::instant(table.created_ms),
        Cell::field(table.rest.get("defaultCollation")),
    ]
}

fn of_columns(table: &Table) -> Vec<Vec<Cell>> {
    let yes = |flag: bool| Cell::text(if flag { "YES" } else { "NO" });
    let field = |path: &str| table.rest.get(path)?.get("field")?.as_str();
    let partitioning = field("timePartitioning").or_else(|| field("rangePartitioning"));
    let clustering = table.rest.get("clustering").and_then(|json| json.get("fields"));
    let clustering: Vec<&str> = clustering
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let row = |(i, column): (usize, &Column)| {
        let clustered = clustering.iter().position(|name| column.is_named(name));
        vec![
            Cell::text(&column.name),
            Cell::position(i),
            yes(column.mode != Mode::Required),
            Cell::text(&column.sql_type()),
            Cell::text("NEVER"),
            Cell::Null,
            Cell::Null,
            yes(false),
            Cell::Null,
            yes(false),
            yes(partitioning.is_some_and(|name| column.is_named(name))),
            clustered.map_or(Cell::Null, Cell::position),
            Cell::Null,
            column
                .default_value_expression
                .as_deref()
                .map_or(Cell::Null, Cell::text),
            Cell::Null,
        ]
    };
    table.schema.columns.iter().enumerate().map(row).collect()
}

/// The options that are set, as `OPTIONS` would say them.
fn options(table: &Table) -> Vec<Vec<Cell>> {
    let rest = &table.rest;
    let text = |field: &str| rest.get(field).and_then(Value::as_str);
    let days = |ms: i64| format!("{:?}", ms as f64 / 86_400_000.0);
    let time = |field: &str| rest.get("timePartitioning").and_then(|time| time.get(field));
    let required = rest
        .get("requirePartitionFilter")
        .or_else(|| time("requirePartitionFilter"));
    let instant = |ms| chrono::DateTime::from_timestamp_millis(ms);
    let values = [
        ("description", "STRING", text("description").map(quoted)),
        (
            "expiration_timestamp",
            "TIMESTAMP",
            rest.get("expirationTime")
                .and_then(integer)
                .and_then(instant)
                .map(|at| format!("TIMESTAMP \"{}\"", at.format("%Y-%m-%dT%H:%M:%S%.3fZ"))),
        ),
        ("friendly_name", "STRING", text("friendlyName").map(quoted)),
        (
            "labels",
            "ARRAY<STRUCT<STRING, STRING>>",
            rest.get("labels").and_then(labels),
        ),
        (
            "max_staleness",
            "INTERVAL",
            text("maxStaleness").map(|text| format!("INTERVAL \"{text}\" YEAR TO SECOND")),
        ),
        (
            "partition_expiration_days",
            "FLOAT64",
            time("expirationMs").and_then(integer).map(days),
        ),
        (
            "require_partition_filter",
            "BOOL",
            required.and_then(Value::as_bool).map(|flag| flag.to_string()),
        ),
    ];
    let set = values.into_iter().filter_map(|(name, kind, value)| {
        Some(
            [name, kind]
                .map(Cell::text)
                .into_iter()
                .chain([Cell::Text(value?)])
                .collect(),
        )
    });
    set.collect()
}

fn labels(labels: &Value) -> Option<String> {
    let pair = |(key, value): (&String, &Value)| {
        format!(
            "STRUCT({}, {})",
            quoted(key),
            quoted(value.as_str().unwrap_or_default())
        )
    };
    let pairs: Vec<String> = labels.as_object()?.iter().map(pair).collect();
    Some(format!("[{}]", pairs.join(", "))).filter(|_| !pairs.is_empty())
}

/// A string literal; JSON's escapes are SQL's too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn of_view(table: &Table) -> Option<Vec<Cell>> {
    let query = table.view_query()?;
    Some(vec![Cell::text(query), Cell::Null, Cell::text("YES")])
}

/// One key of a table, in the rows of both views on keys.
struct Key {
    constraint: Vec<Cell>,
    columns: Vec<Vec<Cell>>,
}

fn keys(dataset: &DatasetRef, id: &str, table: &Table) -> Vec<Key> {
    let constraints = table.rest.get("tableConstraints").unwrap_or(&Value::Null);
    let names = |list: Option<&Value>| -> Vec<String> {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let mut keys = Vec::new();
    let primary = names(constraints.pointer("/primaryKey/columns"));
    if !primary.is_empty() {
        keys.push(key(dataset, id, "PRIMARY KEY", &format!("{id}.pk$"), &primary));
    }
    let foreign = constraints.get("foreignKeys").and_then(Value::as_array);
    for (i, foreign) in foreign.into_iter().flatten().enumerate() {
        let name = foreign.get("name").and_then(Value::as_str);
        let name = name.map_or_else(|| format!("fk${}", i + 1), str::to_owned);
        let references = foreign.get("columnReferences").and_then(Value::as_array);
        let of = |reference: &Value| reference.get("referencingColumn").cloned();
        let columns: Value = references.into_iter().flatten().filter_map(of).collect();
        let columns = names(Some(&columns));
        keys.push(key(dataset, id, "FOREIGN KEY", &format!("{id}.{name}"), &columns));
    }
    keys
}

fn key(dataset: &DatasetRef, id: &str, kind: &str, name: &str, columns: &[String]) -> Key {
    let place = [&dataset.project, &dataset.dataset].map(|text| Cell::text(text));
    let head = |more: Vec<Cell>| -> Vec<Cell> {
        let constraint = place.iter().cloned().chain([Cell::text(name)]);
        let table = place.iter().cloned().chain([Cell::text(id)]);
        constraint.chain(table).chain(more).collect()
    };
    let column = |(i, column): (usize, &String)| {
        let unique = if kind == "FOREIGN KEY" {
            Cell::position(i)
        } else {
            Cell::Null
        };
        head(vec![Cell::text(column), Cell::position(i), unique])
    };
    Key {
        constraint: head(vec![
            Cell::text(kind),
            Cell::text("NO"),
            Cell::text("NO"),
            Cell::text("NO"),
        ]),
        columns: columns.iter().enumerate().map(column).collect(),
    }
}

#[derive(Clone, Debug)]
enum Cell {
    Null,
    Text(String),
    Number(i64),
}

impl Cell {
    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn field(value: Option<&Value>) -> Self {
        value.and_then(Value::as_str).map_or(Self::Null, Self::text)
    }

    /// Counted from 1.
    fn position(index: usize) -> Self {
        // No table has so many columns that a 64-bit number could not count them.
        Self::Number(index as i64 + 1)
    }

    fn instant(ms: Millis) -> Self {
        Self::Number(ms.saturating_mul(1000))
    }
}

fn build(columns: &[(&str, Kind)], rows: &[Vec<Cell>]) -> Result<(Schema, RecordBatch), QueryError> {
    let text = |row: &Vec<Cell>, i: usize| match row.get(i) {
        Some(Cell::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let number = |row: &Vec<Cell>, i: usize| match row.get(i) {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    };
    let array = |(i, (_, kind)): (usize, &(&str, Kind))| -> ArrayRef {
        match kind {
            Kind::Int64 => Arc::new(rows.iter().map(|row| number(row, i)).collect::<Int64Array>()),
            Kind::Timestamp => {
                let instants = rows.iter().map(|row| number(row, i));
                Arc::new(
                    instants
                        .collect::<TimestampMicrosecondArray>()
                        .with_timezone("UTC"),
                )
            }
            _ => Arc::new(rows.iter().map(|row| text(row, i)).collect::<StringArray>()),
        }
    };
    let arrays = columns.iter().enumerate().map(array).collect();
    let column = |(name, kind): &(&str, Kind)| Column::new(*name, kind.clone(), Mode::Nullable);
    let schema = Schema {
        columns: columns.iter().map(column).collect(),
    };
    let batch = RecordBatch::try_new(schema.arrow(), arrays);
    Ok((
        schema,
        batch.map_err(|error| QueryError::Internal(error.to_string()))?,
    ))
}
