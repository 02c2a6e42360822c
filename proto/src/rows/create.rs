//! The table a pipeline's columns ask for (`table.create = 'if_missing'`).

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields, SchemaRef};

use super::mapping::{ARRAY_OF_ARRAYS, PipelineType, TableType, created};
use super::names::{fault, folded, join_path};
use super::problem::{ColumnProblem, ColumnProblemKind};
use super::types::{list_element, pipeline_type, unpacked};
use crate::wire::table_field_schema::Mode;
use crate::wire::{TableFieldSchema, TableSchema};

/// Metadata key under which a field says that its text is JSON, and the names that say so: the engine's and Arrow's own.
const EXTENSION: &str = "ARROW:extension:name";
const JSON_EXTENSIONS: [&str; 2] = ["arroyo.json", "arrow.json"];

/// How deep STRUCTs may be nested.
const DEEPEST: usize = 15;

/// The table that takes a pipeline's rows whole.
///
/// NOT NULL becomes REQUIRED, a list REPEATED, a struct STRUCT. Timestamps become TIMESTAMP, with or without a zone: to this
/// pipeline they are instants. Decimals become NUMERIC where every value of their type fits, else BIGNUMERIC. Unsigned integers
/// become INT64; what does not fit is a row error. Durations become INTERVAL, a map an array of its entries.
///
/// # Errors
/// Every column that has no type in BigQuery, or no valid name there.
pub fn table_schema_for(input: &SchemaRef) -> Result<TableSchema, Vec<ColumnProblem>> {
    let mut problems = Vec::new();
    let fields = columns(input.fields(), "", 0, &mut problems);
    if problems.is_empty() {
        Ok(TableSchema { fields })
    } else {
        Err(problems)
    }
}

fn columns(
    inputs: &Fields,
    parent: &str,
    depth: usize,
    problems: &mut Vec<ColumnProblem>,
) -> Vec<TableFieldSchema> {
    let mut names: HashMap<String, &str> = HashMap::new();
    let mut columns = Vec::with_capacity(inputs.len());
    for field in inputs {
        let path = join_path(parent, field.name());
        if let Some(reason) = fault(field.name()) {
            problems.push(ColumnProblem::new(&path, ColumnProblemKind::Name { reason }));
        }
        if let Some(other) = names.insert(folded(field.name()), field.name()) {
            let other = join_path(parent, other);
            problems.push(ColumnProblem::new(&path, ColumnProblemKind::Collision { other }));
        }
        columns.extend(column(field, &path, depth, problems));
    }
    columns
}

fn column(
    field: &Field,
    path: &str,
    depth: usize,
    problems: &mut Vec<ColumnProblem>,
) -> Option<TableFieldSchema> {
    let data_type = unpacked(field.data_type());
    let (value, json, mode) = match list_element(data_type) {
        Some(element) => (
            unpacked(element),
            is_json(field) || element_is_json(data_type),
            Mode::Repeated,
        ),
        None if field.is_nullable() => (data_type, is_json(field), Mode::Nullable),
        None => (data_type, is_json(field), Mode::Required),
    };
    let column = |table_type: TableType, fields| TableFieldSchema {
        mode: mode.into(),
        fields,
        ..table_type.column(field.name())
    };
    let mut problem = |kind| problems.push(ColumnProblem::new(path, kind));
    if let DataType::Struct(inputs) = value
        && !inputs.is_empty()
    {
        if depth == DEEPEST {
            problem(ColumnProblemKind::TooDeep { most: DEEPEST });
            return None;
        }
        return Some(column(
            TableType::Struct,
            columns(inputs, path, depth + 1, problems),
        ));
    }
    let Some(table_type) = column_type(value, json) else {
        let remedy = if list_element(value).is_some() {
            ARRAY_OF_ARRAYS
        } else {
            "cast it to another type in the query"
        };
        problem(ColumnProblemKind::NoColumnType {
            pipeline: pipeline_type(data_type),
            remedy,
        });
        return None;
    };
    Some(column(table_type, Vec::new()))
}

fn column_type(value: &DataType, json: bool) -> Option<TableType> {
    created(PipelineType::of(value))
        .iter()
        .copied()
        .find(|&candidate| match candidate {
            TableType::Json => json,
            // NUMERIC holds 29 digits before the point and 9 behind it, BIGNUMERIC 38 and 38 (reports.md 66).
            TableType::Numeric => has_digits(value, 29, 9),
            TableType::BigNumeric => has_digits(value, 38, 38),
            TableType::Struct | TableType::Array => false,
            _ => true,
        })
}

fn has_digits(decimal: &DataType, integer: i16, fraction: i16) -> bool {
    match decimal {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            let (precision, scale) = (i16::from(*precision), i16::from(*scale));
            precision - scale <= integer && scale <= fraction
        }
        _ => false,
    }
}

fn is_json(field: &Field) -> bool {
    field
        .metadata()
        .get(EXTENSION)
        .is_some_and(|name| JSON_EXTENSIONS.contains(&name.as_str()))
}

fn element_is_json(list: &DataType) -> bool {
    match list {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => is_json(element),
        _ => false,
    }
}
