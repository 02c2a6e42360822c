//! Columns that the pipeline writes and a table lacks (`schema.update = 'add_columns'`).

use bigquery_write_proto::wire;
use bigquery_write_proto::wire::table_field_schema::Mode;
use google_cloud_bigquery_v2::model::{TableFieldSchema, TableSchema};

use super::describe::field;
use crate::error::SinkError;

/// A table's columns with what is missing added.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Completed {
    /// All columns: those that are there as they are, with all that this build does not know of them, and the added ones behind.
    pub(super) schema: TableSchema,
    /// The added ones: dotted path and type.
    pub(super) added: Vec<String>,
}

/// The table's columns and those that the pipeline writes beyond them, nested ones too. What is there is left as it is.
///
/// An added column is NULLABLE or REPEATED, whatever the pipeline promises: the rows that are there do not have it, and BigQuery adds no
/// other.
pub(super) fn completed(there: &TableSchema, wanted: &wire::TableSchema) -> Result<Completed, SinkError> {
    let mut added = Vec::new();
    let fields = complete(&there.fields, &wanted.fields, "", &mut added)?;
    let schema = there.clone().set_fields(fields);
    Ok(Completed { schema, added })
}

fn complete(
    there: &[TableFieldSchema],
    wanted: &[wire::TableFieldSchema],
    parent: &str,
    added: &mut Vec<String>,
) -> Result<Vec<TableFieldSchema>, SinkError> {
    let mut fields = there.to_vec();
    for column in wanted {
        let named = |field: &TableFieldSchema| field.name.to_lowercase() == column.name.to_lowercase();
        let path = format!("{parent}{}", column.name);
        match fields.iter_mut().find(|field| named(field)) {
            None => {
                let new = field(&nullable(column))?;
                added.push(format!("{path} {}", shown(&new)));
                fields.push(new);
            }
            // Where the types differ nothing is added, and the check of the columns tells.
            Some(there) if !there.fields.is_empty() && !column.fields.is_empty() => {
                let inner = complete(&there.fields, &column.fields, &format!("{path}."), added)?;
                *there = there.clone().set_fields(inner);
            }
            Some(_) => {}
        }
    }
    Ok(fields)
}

fn nullable(column: &wire::TableFieldSchema) -> wire::TableFieldSchema {
    let mut column = column.clone();
    if column.mode() == Mode::Required {
        column.mode = Mode::Nullable.into();
    }
    column.fields = column.fields.iter().map(nullable).collect();
    column
}

fn shown(field: &TableFieldSchema) -> String {
    let kind = if field.r#type == "RECORD" {
        "STRUCT"
    } else {
        &field.r#type
    };
    if field.mode == "REPEATED" {
        format!("ARRAY<{kind}>")
    } else {
        kind.to_owned()
    }
}
