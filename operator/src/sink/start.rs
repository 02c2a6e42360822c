//! The start: the table is there or made, and the columns fit it, before the first row.

use std::time::{Duration, SystemTime};

use arrow_schema::SchemaRef;
use bigquery_write_proto::rows::{self, ColumnProblem, RowEncoder, RowOptions, Wire};
use bigquery_write_proto::wire::TableSchema;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Code;

use super::{Environment, TableLook};
use crate::error::SinkError;
use crate::options::SinkOptions;
use crate::tables::{Change, Outlook, administers, look_ahead, make_ready};
use crate::transport::CallError;

/// All that a start may take: an engine reschedules the job when its tasks have not started within two minutes (arroyo.md 2.2). What
/// takes longer is waited for with the first rows: until BigQuery knows a new table everywhere, or a new column.
const BUDGET: Duration = Duration::from_secs(15);

/// What the start found.
#[derive(Debug)]
pub(super) struct Started {
    /// For the table's columns.
    pub(super) encoder: RowEncoder,
    /// For the encoder's rows.
    pub(super) wire: Wire,
    /// The table is so new that BigQuery may say for minutes that it does not exist.
    pub(super) table_is_young: bool,
    /// When the table was created, where the REST API was asked.
    pub(super) table_created_at: Option<SystemTime>,
}

/// Looks the table up, and creates or changes it first if the options ask for it. `now` is in µs since 1970.
pub(super) async fn start(
    options: &SinkOptions,
    columns: &SchemaRef,
    environment: &Environment,
    now: u64,
) -> Result<Started, SinkError> {
    let deadline = Instant::now() + BUDGET;
    check_columns(options, columns)?;
    if !administers(options) {
        let schema = table_schema(options, environment, deadline).await;
        let schema = schema.map_err(|error| lookup_error(options, error))?;
        let (encoder, wire) = fit(options, columns, &schema)?;
        return Ok(Started {
            encoder,
            wire,
            table_is_young: false,
            table_created_at: None,
        });
    }
    let wanted = wanted(options, columns)?;
    let fits = |schema: &TableSchema| fit(options, columns, schema).map(drop);
    let ready = make_ready(options, environment.tokens.clone(), &wanted, fits, now);
    let ready = timeout_at(deadline, ready)
        .await
        .unwrap_or_else(|_| Err(no_answer(options)))?;
    match &ready.change {
        Change::None => {}
        Change::Created => tracing::info!(table = %options.table, "created the table"),
        Change::Added(columns) => {
            tracing::info!(table = %options.table, columns = columns.join(", "), "added columns to the table");
        }
    }
    check_writable(options, environment, ready.is_young, deadline).await?;
    let (encoder, wire) = fit(options, columns, &ready.schema)?;
    Ok(Started {
        encoder,
        wire,
        table_is_young: ready.is_young,
        table_created_at: Some(ready.created_at),
    })
}

/// The table's columns as the Storage Write API tells them; none where there is no table yet that the start would create.
pub(super) async fn columns(
    options: &SinkOptions,
    environment: &Environment,
) -> Result<Option<TableSchema>, SinkError> {
    let deadline = Instant::now() + BUDGET;
    match table_schema(options, environment, deadline).await {
        Ok(schema) => Ok(Some(schema)),
        Err(error)
            if administers(options) && matches!(error.code, Code::NotFound | Code::PermissionDenied) =>
        {
            Ok(None)
        }
        Err(error) => Err(lookup_error(options, error)),
    }
}

/// As [`start`], looking only.
pub(super) async fn look(
    options: &SinkOptions,
    columns: &SchemaRef,
    environment: &Environment,
) -> Result<TableLook, SinkError> {
    let deadline = Instant::now() + BUDGET;
    check_columns(options, columns)?;
    if !administers(options) {
        let schema = table_schema(options, environment, deadline).await;
        let schema = schema.map_err(|error| lookup_error(options, error))?;
        return fit(options, columns, &schema).map(|_| TableLook::Fits);
    }
    let wanted = wanted(options, columns)?;
    let fits = |schema: &TableSchema| fit(options, columns, schema).map(drop);
    let outlook = look_ahead(options, environment.tokens.clone(), &wanted, fits);
    let outlook = timeout_at(deadline, outlook)
        .await
        .unwrap_or_else(|_| Err(no_answer(options)))?;
    check_writable(options, environment, outlook == Outlook::Creates, deadline).await?;
    Ok(match outlook {
        Outlook::Creates => TableLook::WillBeCreated,
        Outlook::Adds(columns) if columns.is_empty() => TableLook::Fits,
        Outlook::Adds(columns) => TableLook::WillGain(columns),
    })
}

/// The table that the pipeline's columns ask for.
fn wanted(options: &SinkOptions, columns: &SchemaRef) -> Result<TableSchema, SinkError> {
    rows::table_schema_for(columns).map_err(|problems| column_problems(options, &problems))
}

fn check_columns(options: &SinkOptions, columns: &SchemaRef) -> Result<(), SinkError> {
    options.check_columns(columns).map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        SinkError::user(texts.join("\n"))
    })
}

/// Asks the Storage Write API about a table that the REST API has told of: whether it can be reached, and lets the sink in. It may not know
/// the table yet (write-api.md 3.4); the first rows wait for that.
async fn check_writable(
    options: &SinkOptions,
    environment: &Environment,
    is_young: bool,
    deadline: Instant,
) -> Result<(), SinkError> {
    match table_schema(options, environment, deadline).await {
        Ok(_) => Ok(()),
        Err(error) if error.code == Code::NotFound || (is_young && error.code == Code::PermissionDenied) => {
            tracing::debug!(table = %options.table, %error, "the Storage Write API does not know the table yet");
            Ok(())
        }
        Err(error) => Err(lookup_error(options, error)),
    }
}

fn no_answer(options: &SinkOptions) -> SinkError {
    SinkError::external(format!(
        "table {} cannot be looked up: {} did not answer within {} s",
        options.table,
        options.endpoints.http,
        BUDGET.as_secs()
    ))
}

fn fit(
    options: &SinkOptions,
    columns: &SchemaRef,
    table: &TableSchema,
) -> Result<(RowEncoder, Wire), SinkError> {
    let row_options = RowOptions {
        sub_microseconds: options.sub_microseconds,
        missing_values: options.missing_values,
    };
    let encoder = RowEncoder::new(columns, table, row_options)
        .map_err(|problems| column_problems(options, &problems))?;
    let wire = Wire::new(options.format, &encoder, table).map_err(|error| {
        SinkError::internal("the rows cannot be described to BigQuery").with_source(error)
    })?;
    Ok((encoder, wire))
}

/// The table's schema as the default stream tells it (`GetWriteStream`, view FULL). Retries what passes.
async fn table_schema(
    options: &SinkOptions,
    environment: &Environment,
    deadline: Instant,
) -> Result<TableSchema, CallError> {
    let mut pause = Duration::from_millis(100);
    loop {
        let schema = environment.transport.table_schema(&options.table);
        let error = match timeout_at(deadline, schema).await {
            Ok(Ok(schema)) => return Ok(schema),
            Ok(Err(error)) => error,
            Err(_) => {
                let endpoint = environment.transport.endpoint();
                let message = format!("{endpoint} did not answer within {} s", BUDGET.as_secs());
                return Err(CallError::new(Code::DeadlineExceeded, message));
            }
        };
        let passing = !error.needs_change()
            && matches!(
                error.code,
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Internal
                    | Code::Unknown
                    | Code::Aborted
                    | Code::ResourceExhausted
                    | Code::Cancelled
            );
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
