//! The start: the table is there or made, and the columns fit it, before the first row.

use std::time::Duration;

use arrow_schema::SchemaRef;
use bigquery_write_proto::rows::{self, ColumnProblem, RowEncoder, RowOptions};
use bigquery_write_proto::wire::TableSchema;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::{Environment, TableLook};
use crate::error::SinkError;
use crate::options::{CreateTable, SinkOptions};
use crate::tables::{check_dataset, create_table_if_missing};
use crate::transport::CallError;

/// For so long what passes is retried; with the deadline of the last call and the creation of a table it stays within the two minutes
/// that an engine allows a start (arroyo.md 2.2).
const BUDGET: Duration = Duration::from_secs(15);

/// The encoder for the table's schema, which the default stream tells (`GetWriteStream`, view FULL). A missing table is made first if
/// the options ask for it.
pub(super) async fn row_encoder(
    options: &SinkOptions,
    columns: &SchemaRef,
    environment: &Environment,
) -> Result<RowEncoder, SinkError> {
    let creates = options.create == CreateTable::IfMissing;
    if creates {
        let schema =
            rows::table_schema_for(columns).map_err(|problems| column_problems(options, &problems))?;
        create_table_if_missing(options, environment.tokens.clone(), &schema).await?;
    }
    let schema = table_schema(options, environment, creates).await;
    fit(
        options,
        columns,
        &schema.map_err(|error| lookup_error(options, error))?,
    )
}

/// As [`row_encoder`], looking only.
pub(super) async fn look(
    options: &SinkOptions,
    columns: &SchemaRef,
    environment: &Environment,
) -> Result<TableLook, SinkError> {
    let creates = options.create == CreateTable::IfMissing;
    match table_schema(options, environment, false).await {
        Ok(schema) => fit(options, columns, &schema).map(|_| TableLook::Fits),
        // The table would be made from these very columns.
        Err(error) if creates && error.code == Code::NotFound => {
            let schema =
                rows::table_schema_for(columns).map_err(|problems| column_problems(options, &problems))?;
            fit(options, columns, &schema)?;
            check_dataset(options, environment.tokens.clone()).await?;
            Ok(TableLook::WillBeCreated)
        }
        Err(error) => Err(lookup_error(options, error)),
    }
}

fn fit(options: &SinkOptions, columns: &SchemaRef, table: &TableSchema) -> Result<RowEncoder, SinkError> {
    let row_options = RowOptions {
        sub_microseconds: options.sub_microseconds,
    };
    RowEncoder::new(columns, table, row_options).map_err(|problems| column_problems(options, &problems))
}

/// Retries what passes, within the start's budget; a table made just now may not be known everywhere yet (write-api.md 3.4).
async fn table_schema(
    options: &SinkOptions,
    environment: &Environment,
    made_just_now: bool,
) -> Result<TableSchema, CallError> {
    let deadline = Instant::now() + BUDGET;
    let mut pause = Duration::from_millis(100);
    loop {
        let error = match environment.transport.table_schema(&options.table).await {
            Ok(schema) => return Ok(schema),
            Err(error) => error,
        };
        let passing = !error.needs_change()
            && match error.code {
                Code::NotFound | Code::PermissionDenied => made_just_now,
                Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Internal
                | Code::Unknown
                | Code::Aborted => true,
                Code::ResourceExhausted | Code::Cancelled => true,
                _ => false,
            };
        if !passing || Instant::now() + pause > deadline {
            return Err(error);
        }
        tracing::warn!(table = %options.table, %error, "the table's schema could not be read yet; trying again");
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(3));
    }
}

fn lookup_error(options: &SinkOptions, error: CallError) -> SinkError {
    let table = &options.table;
    let needs_change = error.needs_change();
    match error.code {
        _ if needs_change => SinkError::user(format!("table {table} cannot be read: {error}")),
        Code::NotFound => SinkError::user(format!(
            "table {table} does not exist; create it, or let the sink do so with option 'table.create' = 'if_missing' ({error})"
        )),
        Code::PermissionDenied => SinkError::user(format!(
            "table {table} cannot be written: it does not exist, or the permissions bigquery.tables.get and \
             bigquery.tables.updateData are missing ({error})"
        )),
        Code::Unauthenticated => {
            SinkError::user(format!("table {table} cannot be read: {error}; see option 'credentials'"))
        }
        Code::InvalidArgument | Code::Unimplemented => SinkError::user(format!("table {table} cannot be read: {error}")),
        _ => SinkError::external(format!("table {table} cannot be read: {error}")),
    }
    .with_source(error)
}

fn column_problems(options: &SinkOptions, problems: &[ColumnProblem]) -> SinkError {
    let list: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    let (count, plural) = (problems.len(), if problems.len() == 1 { "" } else { "s" });
    SinkError::user(format!(
        "{count} column{plural} of the pipeline do{} not fit table {}:{}",
        if problems.len() == 1 { "es" } else { "" },
        options.table,
        list.concat()
    ))
}
