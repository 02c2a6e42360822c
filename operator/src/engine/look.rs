//! What a person in the engine's console sees before there is a pipeline: whether the table is there, and which there are.

use std::sync::Arc;
use std::time::Duration;

use bigquery_write_proto::rows::table_type;
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Mode;
use tokio::time::timeout;

use super::{Declared, Form, options};
use crate::credentials::token_source;
use crate::error::SinkError;
use crate::options::CreateTable;
use crate::sink::{BigQuerySink, Environment, TableLook};
use crate::tables::{self, Names};

/// Whoever fills in a form does not wait longer for names.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks the table up and says what was found, a sentence to a line; with declared columns also whether they fit. Changes nothing.
///
/// # Errors
/// What is wrong with the options, the table or the columns.
pub async fn look(profile: &Form, table: &Form, declared: &Declared) -> Result<Vec<String>, SinkError> {
    let options = options(profile, table, declared).map_err(SinkError::user)?;
    let environment = Environment::new(&options, Arc::default())?;
    let mut told = Vec::new();
    let found = BigQuerySink::table_columns(&options, &environment).await?;
    if let Some(table) = &found {
        let columns: Vec<String> = table.fields.iter().map(column).collect();
        told.push(format!("table {} has {}", options.table, columns.join(", ")));
    }
    let Some(columns) = declared.schema() else {
        return match (found, options.create) {
            (Some(_), _) => Ok(told),
            (None, CreateTable::IfMissing) => Ok(vec![outcome(
                &options.table.to_string(),
                TableLook::WillBeCreated,
            )]),
            (None, CreateTable::Never) => Err(SinkError::user(format!(
                "table {} does not exist, or BigQuery does not know it everywhere yet",
                options.table
            ))),
        };
    };
    let looks = BigQuerySink::check(&options, &columns, &environment).await?;
    told.push(outcome(&options.table.to_string(), looks.table));
    if let (Some(look), Some(letters)) = (looks.dead_letters, options.for_dead_letters()) {
        told.push(outcome(&letters.table.to_string(), look));
    }
    Ok(told)
}

/// The names of datasets and tables of the profile's project.
///
/// # Errors
/// A profile without project, or that BigQuery does not take.
pub async fn suggestions(profile: &Form) -> Result<Names, SinkError> {
    if profile.text("project").is_none() {
        return Err(SinkError::user(
            "the profile names no project; names are listed of one",
        ));
    }
    // The options of a table are not there yet.
    let placeholders = [("dataset", "d"), ("table", "t")];
    let placeholders = placeholders.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (_, table) = Form::split(placeholders.into()).map_err(SinkError::user)?;
    let options = options(profile, &table, &Declared::default()).map_err(SinkError::user)?;
    let names = tables::names(&options, token_source(&options));
    timeout(PATIENCE, names).await.unwrap_or_else(|_| {
        let endpoint = &options.endpoints.http;
        Err(SinkError::external(format!(
            "{endpoint} did not answer within {} s",
            PATIENCE.as_secs()
        )))
    })
}

fn outcome(table: &str, look: TableLook) -> String {
    match look {
        TableLook::Fits => format!("the columns fit table {table}"),
        TableLook::WillGain(added) => format!("table {table} will gain {}", added.join(", ")),
        TableLook::WillBeCreated => format!("table {table} does not exist; it will be created"),
    }
}

fn column(column: &TableFieldSchema) -> String {
    let required = if column.mode() == Mode::Required {
        " NOT NULL"
    } else {
        ""
    };
    format!("{} {}{required}", column.name, table_type(column))
}
