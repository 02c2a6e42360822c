//! The table a pipeline's columns ask for (`table.create = 'if_missing'`).

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields, SchemaRef};

use super::plan::{folded, join_path};
use super::problem::{ColumnProblem, ColumnProblemKind};
use super::types::{list_element, pipeline_type, unpacked};
use crate::wire::table_field_schema::{Mode, Type};
use crate::wire::{TableFieldSchema, TableSchema};

/// Metadata key under which a field says that its text is JSON, and the names that say so: the engine's and Arrow's own.
const EXTENSION: &str = "ARROW:extension:name";
const JSON_EXTENSIONS: [&str; 2] = ["arroyo.json", "arrow.json"];

/// Prefixes that BigQuery keeps for itself, folded (reports.md 77).
const RESERVED: [&str; 7] = [
    "_table_",
    "_file_",
    "_partition",
    "_row_timestamp",
    "__root__",
    "_colidentifier",
    "_change_",
];

/// Longest name of a column, in characters.
const NAME_LENGTH: usize = 300;

/// Characters that no column's name holds, not even a flexible one.
const NOT_IN_NAMES: &str = "!\"$()*,./;?@[\\]^`{}~";

/// The table that takes a pipeline's rows whole.
///
/// NOT NULL becomes REQUIRED, a list REPEATED, a struct STRUCT. Timestamps become TIMESTAMP, with or without a zone: to this
/// pipeline they are instants. Decimals become NUMERIC where every value of their type fits, else BIGNUMERIC. Unsigned integers
/// become INT64; what does not fit is a row error.
///
/// # Errors
/// Every column that has no type in BigQuery, or no valid name there.
pub fn table_schema_for(input: &SchemaRef) -> Result<TableSchema, Vec<ColumnProblem>> {
    let mut problems = Vec::new();
    let fields = columns(input.fields(), "", &mut problems);
    if problems.is_empty() {
        Ok(TableSchema { fields })
    } else {
        Err(problems)
    }
}

fn columns(inputs: &Fields, parent: &str, problems: &mut Vec<ColumnProblem>) -> Vec<TableFieldSchema> {
    let mut names: HashMap<String, &str> = HashMap::new();
    let mut columns = Vec::with_capacity(inputs.len());
    for field in inputs {
        let path = join_path(parent, field.name());
        if let Some(reason) = name_fault(field.name()) {
            problems.push(ColumnProblem::new(&path, ColumnProblemKind::Name { reason }));
        }
        if let Some(other) = names.insert(folded(field.name()), field.name()) {
            let other = join_path(parent, other);
            problems.push(ColumnProblem::new(&path, ColumnProblemKind::Collision { other }));
        }
        columns.extend(column(field, &path, problems));
    }
    columns
}

fn column(field: &Field, path: &str, problems: &mut Vec<ColumnProblem>) -> Option<TableFieldSchema> {
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
    let column = |r#type: Type, fields| TableFieldSchema {
        name: field.name().clone(),
        r#type: r#type.into(),
        mode: mode.into(),
        fields,
        ..TableFieldSchema::default()
    };
    if let DataType::Struct(inputs) = value
        && !inputs.is_empty()
    {
        return Some(column(Type::Struct, columns(inputs, path, problems)));
    }
    let Some(r#type) = column_type(value, json) else {
        let pipeline = pipeline_type(data_type);
        problems.push(ColumnProblem::new(
            path,
            ColumnProblemKind::NoColumnType { pipeline },
        ));
        return None;
    };
    Some(column(r#type, Vec::new()))
}

fn column_type(value: &DataType, json: bool) -> Option<Type> {
    Some(match value {
        DataType::Boolean => Type::Bool,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Type::Double,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if json => Type::Json,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Type::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            Type::Bytes
        }
        DataType::Date32 | DataType::Date64 => Type::Date,
        DataType::Time32(_) | DataType::Time64(_) => Type::Time,
        DataType::Timestamp(_, _) => Type::Timestamp,
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            return decimal_type(i32::from(*precision), i32::from(*scale));
        }
        integer if integer.is_integer() => Type::Int64,
        _ => return None,
    })
}

/// NUMERIC holds 29 digits before the point and 9 behind it, BIGNUMERIC 38 and 38 (reports.md 66).
fn decimal_type(precision: i32, scale: i32) -> Option<Type> {
    match (precision - scale, scale) {
        (..=29, ..=9) => Some(Type::Numeric),
        (..=38, ..=38) => Some(Type::Bignumeric),
        _ => None,
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

fn name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.chars().count() > NAME_LENGTH {
        return Some(format!("it is longer than {NAME_LENGTH} characters"));
    }
    if let Some(c) = name
        .chars()
        .find(|&c| NOT_IN_NAMES.contains(c) || (c.is_control() && c != '\t'))
    {
        return Some(format!("{c:?} is not allowed"));
    }
    let name = folded(name);
    let prefix = RESERVED.iter().find(|prefix| name.starts_with(**prefix))?;
    Some(format!("the prefix {} is reserved", prefix.to_uppercase()))
}
