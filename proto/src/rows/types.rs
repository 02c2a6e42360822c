//! Names of types as users write them, the pipeline's in SQL, the table's in BigQuery's dialect; and what is in lists and dictionaries.

use arrow_schema::{DataType, Fields};

use super::mapping::{PipelineType, TableType};
use crate::wire::TableFieldSchema;
use crate::wire::table_field_schema::{Mode, Type};

/// The pipeline's type as its SQL spells it; Arrow's own name where SQL has none.
pub(super) fn pipeline_type(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INT UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 | DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BYTEA"
        }
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Interval(_) => "INTERVAL",
        DataType::Timestamp(_, Some(zone)) => return format!("TIMESTAMP WITH TIME ZONE '{zone}'"),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            return format!("DECIMAL({precision}, {scale})");
        }
        DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) => {
            return pipeline_type(unpacked(data_type));
        }
        DataType::Struct(fields) => return format!("STRUCT<{}>", struct_fields(fields)),
        DataType::Map(entries, _) => return format!("MAP<{}>", map_types(entries.data_type())),
        DataType::Union(_, _) => "UNION",
        DataType::Duration(_) => return PipelineType::of(data_type).to_string(),
        other => match list_element(other) {
            Some(element) => return format!("{}[]", pipeline_type(element)),
            None => return other.to_string(),
        },
    };
    name.to_owned()
}

fn map_types(entry: &DataType) -> String {
    let DataType::Struct(fields) = entry else {
        return pipeline_type(entry);
    };
    let types: Vec<String> = fields
        .iter()
        .map(|field| pipeline_type(field.data_type()))
        .collect();
    types.join(", ")
}

fn struct_fields(fields: &Fields) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|field| format!("{} {}", field.name(), pipeline_type(field.data_type())))
        .collect();
    fields.join(", ")
}

/// The table's type as BigQuery's SQL spells it, without mode.
#[must_use]
pub fn table_type(column: &TableFieldSchema) -> String {
    let TableFieldSchema {
        max_length,
        precision,
        scale,
        ..
    } = column;
    let name = match column.r#type() {
        Type::Double => "FLOAT64".to_owned(),
        Type::String | Type::Bytes if *max_length > 0 => {
            format!("{}({max_length})", column.r#type().as_str_name())
        }
        Type::Numeric | Type::Bignumeric if *precision > 0 && *scale > 0 => {
            format!("{}({precision}, {scale})", column.r#type().as_str_name())
        }
        Type::Numeric | Type::Bignumeric if *precision > 0 => {
            format!("{}({precision})", column.r#type().as_str_name())
        }
        Type::Struct => {
            let fields: Vec<String> = column
                .fields
                .iter()
                .map(|field| format!("{} {}", field.name, table_type(field)))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        plain => TableType::of_value(column).map_or_else(
            || plain.as_str_name().to_owned(),
            |table_type| table_type.to_string(),
        ),
    };
    if column.mode() == Mode::Repeated {
        format!("ARRAY<{name}>")
    } else {
        name
    }
}

/// The element's type of any kind of list; a map's is the STRUCT of key and value.
pub(super) fn list_element(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => Some(field.data_type()),
        _ => None,
    }
}

/// The type behind any number of dictionaries and run-end encodings.
pub(super) fn unpacked(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => unpacked(value),
        DataType::RunEndEncoded(_, value) => unpacked(value.data_type()),
        plain => plain,
    }
}

/// Equal in all that conversion depends on: not in nullability, metadata, or the name of a list's element.
pub(super) fn same_shape(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && same_shape(a.data_type(), b.data_type()))
        }
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::LargeList(b))
        | (DataType::ListView(a), DataType::ListView(b))
        | (DataType::LargeListView(a), DataType::LargeListView(b)) => {
            same_shape(a.data_type(), b.data_type())
        }
        (DataType::FixedSizeList(a, m), DataType::FixedSizeList(b, n)) => {
            m == n && same_shape(a.data_type(), b.data_type())
        }
        (DataType::Map(a, _), DataType::Map(b, _)) => same_shape(a.data_type(), b.data_type()),
        (DataType::Dictionary(k, a), DataType::Dictionary(l, b)) => k == l && same_shape(a, b),
        (DataType::RunEndEncoded(k, a), DataType::RunEndEncoded(l, b)) => {
            k.data_type() == l.data_type() && same_shape(a.data_type(), b.data_type())
        }
        (a, b) => a == b,
    }
}
