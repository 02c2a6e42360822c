//! Primary and foreign keys: declared, never enforced.

use serde_json::{Map, Value};

use super::{Invalid, refuse};
use crate::schema::{Column, Kind, Mode, Schema};

/// Columns of a primary key (write-api.md 6), and BigQuery's limit on those of a foreign one.
const MOST_COLUMNS: usize = 16;

/// Checks `tableConstraints`. The texts are not confirmed by a source.
pub(super) fn check(schema: &Schema, rest: &Map<String, Value>) -> Result<(), Invalid> {
    let Some(constraints) = rest.get("tableConstraints") else {
        return Ok(());
    };
    if let Some(key) = constraints.get("primaryKey").filter(|key| !key.is_null()) {
        let columns = names(key.get("columns"))?;
        check_columns(schema, "primary key", &columns)?;
    }
    let foreign = constraints.get("foreignKeys").and_then(Value::as_array);
    for key in foreign.into_iter().flatten() {
        let references = key.get("columnReferences").and_then(Value::as_array);
        let of = |reference: &Value| reference.get("referencingColumn").cloned().unwrap_or_default();
        let columns: Value = references.into_iter().flatten().map(of).collect();
        check_columns(schema, "foreign key", &names(Some(&columns))?)?;
    }
    Ok(())
}

fn names(columns: Option<&Value>) -> Result<Vec<&str>, Invalid> {
    let columns = columns.and_then(Value::as_array).into_iter().flatten();
    let names: Option<Vec<&str>> = columns.map(Value::as_str).collect();
    names
        .ok_or_else(|| Invalid("Invalid value for tableConstraints: column names must be strings".to_owned()))
}

fn check_columns(schema: &Schema, key: &str, columns: &[&str]) -> Result<(), Invalid> {
    if columns.is_empty() || columns.len() > MOST_COLUMNS {
        let given = columns.len();
        return refuse(format!(
            "A {key} has 1 to {MOST_COLUMNS} columns; {given} are given"
        ));
    }
    let mut seen: Vec<&str> = Vec::new();
    for name in columns {
        let Some(column) = schema.column(name) else {
            return refuse(format!(
                "Column {name} of the {key} cannot be found in the schema"
            ));
        };
        if seen.contains(&column.name.as_str()) {
            return refuse(format!("Column {name} is in the {key} twice"));
        }
        seen.push(&column.name);
        if !can_be_key(column) {
            let kind = if column.mode == Mode::Repeated {
                "ARRAY"
            } else {
                column.kind.sql_name()
            };
            return refuse(format!("Column {name} cannot be in a {key}: it is {kind}"));
        }
    }
    Ok(())
}

fn can_be_key(column: &Column) -> bool {
    let kind = matches!(
        column.kind,
        Kind::Bool
            | Kind::Int64
            | Kind::Numeric { .. }
            | Kind::BigNumeric { .. }
            | Kind::String { .. }
            | Kind::Date
            | Kind::Datetime
            | Kind::Timestamp
    );
    kind && column.mode != Mode::Repeated
}
