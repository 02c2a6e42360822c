//! Columns and layout as the REST API spells them, and back.

use bigquery_write_proto::wire::{self, table_field_schema};
use google_cloud_bigquery_v2::model::range_partitioning::Range;
use google_cloud_bigquery_v2::model::table_field_schema::FieldElementType;
use google_cloud_bigquery_v2::model::{
    Clustering, PrimaryKey, RangePartitioning, Table, TableConstraints, TableFieldSchema, TableReference,
    TableSchema, TimePartitioning,
};

use crate::error::SinkError;
use crate::options::{Partitioning, SinkOptions};

/// The table that is to be created.
pub(super) fn new_table(options: &SinkOptions, schema: &wire::TableSchema) -> Result<Table, SinkError> {
    let name = options.table.without_decorator();
    let reference = TableReference::new()
        .set_project_id(name.project().as_str())
        .set_dataset_id(name.dataset().as_str())
        .set_table_id(name.table().as_str());
    let fields = schema.fields.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let layout = &options.layout;
    let mut table = Table::new()
        .set_table_reference(reference)
        .set_schema(TableSchema::new().set_fields(fields))
        .set_labels(&layout.labels);
    if let Some(text) = &layout.description {
        table = table.set_description(text.as_str());
    }
    match &layout.partitioning {
        None => {}
        Some(Partitioning::Time {
            column,
            unit,
            expiration,
        }) => {
            let mut time = TimePartitioning::new().set_type(unit.as_str());
            if let Some(column) = column {
                time = time.set_field(column.as_str());
            }
            if let Some(age) = expiration {
                time = time.set_expiration_ms(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            }
            table = table.set_time_partitioning(time);
        }
        Some(Partitioning::Range {
            column,
            start,
            end,
            interval,
        }) => {
            let range = Range::new()
                .set_start(start.to_string())
                .set_end(end.to_string())
                .set_interval(interval.to_string());
            table = table.set_range_partitioning(RangePartitioning::new().set_field(column).set_range(range));
        }
    }
    if !layout.clustering.is_empty() {
        table = table.set_clustering(Clustering::new().set_fields(&layout.clustering));
    }
    if !options.primary_key.is_empty() {
        let key = PrimaryKey::new().set_columns(&options.primary_key);
        table = table.set_table_constraints(TableConstraints::new().set_primary_key(key));
    }
    Ok(table)
}

/// What of the layout that the options ask for an existing table does not have; none if all is there. Names of columns ignore case.
pub(super) fn layout_difference(options: &SinkOptions, table: &Table) -> Option<String> {
    let layout = &options.layout;
    let mut said = Vec::new();
    if let Some(partitioning) = &layout.partitioning {
        let (asked, there) = (asked_partitioning(partitioning), partitioning_of(table));
        if asked.to_lowercase() != there.to_lowercase() {
            said.push(format!("the options ask for {asked}, it has {there}"));
        }
    }
    let there: &[String] = table
        .clustering
        .as_ref()
        .map_or(&[], |clustering| &clustering.fields);
    if !layout.clustering.is_empty() && folded(&layout.clustering) != folded(there) {
        let (asked, there) = (clustering(&layout.clustering), clustering(there));
        said.push(format!("the options ask for {asked}, it has {there}"));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

fn folded(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_lowercase()).collect()
}

fn clustering(columns: &[String]) -> String {
    if columns.is_empty() {
        return "no clustering".to_owned();
    }
    format!("clustering by {}", columns.join(", "))
}

fn asked_partitioning(partitioning: &Partitioning) -> String {
    match partitioning {
        Partitioning::Time {
            column,
            unit,
            expiration,
        } => {
            let age = expiration.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            by_time(column.as_deref(), unit.as_str(), age)
        }
        Partitioning::Range {
            column,
            start,
            end,
            interval,
        } => format!("ranges of {column} from {start} to {end} by {interval}"),
    }
}

/// How a table is partitioned, in words.
pub(super) fn partitioning_of(table: &Table) -> String {
    if let Some(time) = &table.time_partitioning {
        return by_time(time.field.as_deref(), &time.r#type, time.expiration_ms);
    }
    match &table.range_partitioning {
        None => "no partitions".to_owned(),
        Some(by) => {
            let range = by.range.clone().unwrap_or_default();
            format!(
                "ranges of {} from {} to {} by {}",
                by.field, range.start, range.end, range.interval
            )
        }
    }
}

fn by_time(column: Option<&str>, unit: &str, expiration_ms: Option<i64>) -> String {
    let by = column.unwrap_or("the time of ingestion");
    let expires = expiration_ms.filter(|ms| *ms > 0).map_or_else(String::new, |ms| {
        format!(", dropped after {} h", ms as f64 / 3_600_000.0)
    });
    format!("partitions of one {unit} by {by}{expires}")
}

/// A column as the REST API spells it.
pub(super) fn field(column: &wire::TableFieldSchema) -> Result<TableFieldSchema, SinkError> {
    use table_field_schema::Mode;
    let wrong = |what: &str| {
        SinkError::internal(format!(
            "column '{}' of the schema to create has {what}",
            column.name
        ))
    };
    let mode = match column.mode() {
        Mode::Required => "REQUIRED",
        Mode::Repeated => "REPEATED",
        Mode::Nullable | Mode::Unspecified => "NULLABLE",
    };
    let mut result = TableFieldSchema::new()
        .set_name(&column.name)
        .set_type(type_name(column.r#type()).ok_or_else(|| wrong("no type"))?)
        .set_mode(mode)
        .set_fields(column.fields.iter().map(field).collect::<Result<Vec<_>, _>>()?)
        .set_max_length(column.max_length)
        .set_precision(column.precision)
        .set_scale(column.scale)
        .set_or_clear_timestamp_precision(column.timestamp_precision);
    if let Some(element) = &column.range_element_type {
        let element = type_name(element.r#type()).ok_or_else(|| wrong("a range without element type"))?;
        result = result.set_range_element_type(FieldElementType::new().set_type(element));
    }
    Ok(result)
}

/// The columns as the Storage Write API tells them. A type that this build does not know is unspecified, which no column of a pipeline fits.
pub(super) fn wire_schema(table: &Table) -> wire::TableSchema {
    let fields = table.schema.as_ref().map_or(&[][..], |schema| &schema.fields);
    wire::TableSchema {
        fields: fields.iter().map(wire_field).collect(),
    }
}

fn wire_field(field: &TableFieldSchema) -> wire::TableFieldSchema {
    use table_field_schema::{FieldElementType, Mode};
    let mode = match field.mode.as_str() {
        "REQUIRED" => Mode::Required,
        "REPEATED" => Mode::Repeated,
        _ => Mode::Nullable,
    };
    wire::TableFieldSchema {
        name: field.name.clone(),
        r#type: type_of(&field.r#type).into(),
        mode: mode.into(),
        fields: field.fields.iter().map(wire_field).collect(),
        max_length: field.max_length,
        precision: field.precision,
        scale: field.scale,
        default_value_expression: field.default_value_expression.clone().unwrap_or_default(),
        timestamp_precision: field.timestamp_precision,
        range_element_type: field.range_element_type.as_ref().map(|element| FieldElementType {
            r#type: type_of(&element.r#type).into(),
        }),
        ..Default::default()
    }
}

/// REST spells some types in two ways (INTEGER and INT64).
fn type_of(name: &str) -> table_field_schema::Type {
    use table_field_schema::Type;
    match name {
        "RECORD" | "STRUCT" => Type::Struct,
        "FLOAT" | "FLOAT64" => Type::Double,
        "INTEGER" => Type::Int64,
        "BOOLEAN" => Type::Bool,
        name => Type::from_str_name(name).unwrap_or(Type::Unspecified),
    }
}

fn type_name(kind: table_field_schema::Type) -> Option<&'static str> {
    use table_field_schema::Type;
    Some(match kind {
        Type::Unspecified => return None,
        Type::Struct => "RECORD",
        Type::Double => "FLOAT64",
        Type::String
        | Type::Int64
        | Type::Bytes
        | Type::Bool
        | Type::Timestamp
        | Type::Date
        | Type::Time
        | Type::Datetime
        | Type::Geography
        | Type::Numeric
        | Type::Bignumeric
        | Type::Interval
        | Type::Json
        | Type::Range => kind.as_str_name(),
    })
}
