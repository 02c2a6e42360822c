//! A table before its first row, through Google's own client: looked up, created (`table.create = 'if_missing'`), and given the columns it
//! lacks (`schema.update = 'add_columns'`).

mod columns;
mod describe;
mod list;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bigquery_write_proto::names::TableName;
use bigquery_write_proto::wire;
use google_cloud_bigquery_v2::client::{DatasetService, TableService};
use google_cloud_bigquery_v2::model::{Table, TableSchema};
use google_cloud_gax::options::RequestOptionsBuilder as _;
use google_cloud_gax::retry_policy::{Aip194Strict, RetryPolicyExt as _};
use http::{HeaderValue, header};
use tokio::time::sleep;

use self::columns::completed;
use self::describe::{layout_difference, new_table, partitioning_of, wire_schema};
pub use self::list::{Names, names};
use crate::credentials::{TokenSource, google_credentials};
use crate::error::SinkError;
use crate::options::{CreateTable, Endpoint, SinkOptions};

/// Longest wait for one attempt, and how many there are while the server is away.
const ATTEMPT: Duration = Duration::from_secs(6);
const ATTEMPTS: u32 = 3;
/// How often others may be quicker to create or to change the table; each time they have come further.
const ROUNDS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// For so long after a table's creation BigQuery may say here and there that it does not exist (write-api.md 3.4).
const YOUNG: Duration = Duration::from_secs(15 * 60);

/// A table that is ready for rows, as far as the REST API knows.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadyTable {
    /// Its columns.
    pub schema: wire::TableSchema,
    /// What was done to it.
    pub change: Change,
    /// It was created so recently that the Storage Write API may not know it yet.
    pub is_young: bool,
    /// When it was created, by BigQuery's clock.
    pub created_at: SystemTime,
}

/// What was done to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it was there with all that is needed, or another subtask was quicker.
    None,
    /// It was created.
    Created,
    /// These columns were added, each a dotted path and a type.
    Added(Vec<String>),
}

/// What the start would do.
#[derive(Clone, Debug, PartialEq)]
pub enum Outlook {
    /// Create the table.
    Creates,
    /// Add these columns, if any.
    Adds(Vec<String>),
}

/// Whether the options let the sink create or change tables.
#[must_use]
pub fn administers(options: &SinkOptions) -> bool {
    options.create == CreateTable::IfMissing || options.schema_update.add_columns
}

/// Creates the table if it is missing, and adds the columns it lacks, as the options say. `wanted` are the pipeline's columns as a
/// table; `fits` is asked about the table's columns as they are to be before anything is changed. `now` is in µs since 1970.
///
/// Any number of subtasks may do so at once: one creates the table, and each change says which state of the table it knows.
///
/// Needs `bigquery.tables.get`, and `bigquery.tables.create` or `bigquery.tables.update` if there is something to do.
///
/// # Errors
/// What is lacking: a permission, the dataset, the table; or what `fits` says.
pub async fn make_ready(
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
    wanted: &wire::TableSchema,
    fits: impl Fn(&wire::TableSchema) -> Result<(), SinkError>,
    now: u64,
) -> Result<ReadyTable, SinkError> {
    // A partition belongs to its table: `events$20240131` is created as `events`.
    let name = options.table.without_decorator();
    let admin = Administration::connect(options, tokens, ATTEMPTS).await?;
    for round in 0..ROUNDS {
        if round > 0 {
            sleep(PAUSE).await;
        }
        let Some(table) = admin.look_up(&name).await? else {
            if options.create == CreateTable::Never {
                return Err(missing_table(&name));
            }
            fits(wanted)?;
            match admin.create(&name, new_table(options, wanted)?).await? {
                Some(table) => return Ok(ready(&table, Change::Created, now)),
                None => continue,
            }
        };
        check_day(options, &table)?;
        let (completed, added) = lacking(options, &table, wanted)?;
        fits(&wire_schema(&completed))?;
        if added.is_empty() {
            warn_of_difference(options, &table);
            return Ok(ready(&table, Change::None, now));
        }
        let schema = completed.schema.unwrap_or_default();
        if let Some(table) = admin.change_columns(&name, &table.etag, schema).await? {
            return Ok(ready(&table, Change::Added(added), now));
        }
    }
    Err(SinkError::external(format!(
        "table {name} was changed by others {ROUNDS} times while the sink prepared it"
    )))
}

/// What [`make_ready`] would do, with the same errors as far as they can be foreseen; changes nothing. A missing permission to look at
/// the dataset is no error, since creating tables does not take it.
///
/// # Errors
/// As [`make_ready`].
pub async fn look_ahead(
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
    wanted: &wire::TableSchema,
    fits: impl Fn(&wire::TableSchema) -> Result<(), SinkError>,
) -> Result<Outlook, SinkError> {
    let name = options.table.without_decorator();
    let admin = Administration::connect(options, tokens, ATTEMPTS).await?;
    let Some(table) = admin.look_up(&name).await? else {
        if options.create == CreateTable::Never {
            return Err(missing_table(&name));
        }
        fits(wanted)?;
        admin.check_dataset(&name).await?;
        return Ok(Outlook::Creates);
    };
    check_day(options, &table)?;
    warn_of_difference(options, &table);
    let (completed, added) = lacking(options, &table, wanted)?;
    fits(&wire_schema(&completed))?;
    Ok(Outlook::Adds(added))
}

/// When the table was created; none if it does not exist. Needs `bigquery.tables.get`. Asks once.
///
/// # Errors
/// It cannot be known.
pub async fn creation_time(
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
) -> Result<Option<SystemTime>, SinkError> {
    let admin = Administration::connect(options, tokens, 1).await?;
    let table = admin.look_up(&options.table.without_decorator()).await?;
    Ok(table.as_ref().map(created_at))
}

/// The table's columns now; none if it does not exist. Needs `bigquery.tables.get`. Asks once.
///
/// # Errors
/// They cannot be known.
pub async fn columns_of(
    table: &TableName,
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
) -> Result<Option<wire::TableSchema>, SinkError> {
    let admin = Administration::connect(options, tokens, 1).await?;
    let table = admin.look_up(&table.without_decorator()).await?;
    Ok(table.as_ref().map(wire_schema))
}

fn created_at(table: &Table) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(table.creation_time).unwrap_or(0))
}

/// Says in the log where an existing table is not laid out as the options ask; it is left so.
fn warn_of_difference(options: &SinkOptions, table: &Table) {
    if let Some(difference) = layout_difference(options, table) {
        tracing::warn!(table = %options.table, "the table exists and stays as it is: {difference}");
    }
}

/// A day of a table can be written to only if the table is partitioned by the day of ingestion (write-api.md 1.3).
fn check_day(options: &SinkOptions, table: &Table) -> Result<(), SinkError> {
    let Some(day) = options.table.table().decorator() else {
        return Ok(());
    };
    let time = table.time_partitioning.as_ref();
    if time.is_some_and(|time| time.r#type == "DAY" && time.field.is_none()) {
        return Ok(());
    }
    let name = options.table.without_decorator();
    let there = partitioning_of(table);
    Err(SinkError::user(format!(
        "option 'table': ${day} is a day of a table that is partitioned by the day of ingestion, and table {name} has {there}; leave out ${day}"
    )))
}

/// The table with the columns that the options let the sink add, and which those are.
fn lacking(
    options: &SinkOptions,
    table: &Table,
    wanted: &wire::TableSchema,
) -> Result<(Table, Vec<String>), SinkError> {
    if !options.schema_update.add_columns {
        return Ok((table.clone(), Vec::new()));
    }
    let there = table.schema.clone().unwrap_or_default();
    let completed = completed(&there, wanted)?;
    Ok((table.clone().set_schema(completed.schema), completed.added))
}

fn ready(table: &Table, change: Change, now: u64) -> ReadyTable {
    let created_at = created_at(table);
    let now = SystemTime::UNIX_EPOCH + Duration::from_micros(now);
    let age = now.duration_since(created_at).unwrap_or_default();
    ReadyTable {
        schema: wire_schema(table),
        is_young: change == Change::Created || age < YOUNG,
        created_at,
        change,
    }
}

/// The REST API as far as it is needed.
struct Administration<'a> {
    tables: TableService,
    datasets: DatasetService,
    endpoint: &'a Endpoint,
}

/// What was attempted, for errors: the words, the permission it takes, and how to do without.
#[derive(Clone, Copy)]
struct Attempt {
    what: &'static str,
    permission: &'static str,
    otherwise: &'static str,
}

const LOOK: Attempt = Attempt {
    what: "look up",
    permission: "bigquery.tables.get",
    otherwise: "see to the table yourself and leave out options 'table.create' and 'schema.update'",
};
const CREATE: Attempt = Attempt {
    what: "create",
    permission: "bigquery.tables.create",
    otherwise: "create the table yourself and leave out option 'table.create'",
};
const CHANGE: Attempt = Attempt {
    what: "add columns to",
    permission: "bigquery.tables.update",
    otherwise: "add the columns yourself and leave out option 'schema.update'",
};

/// The calls' futures are boxed: they hold kilobytes, and every future around them would too.
impl<'a> Administration<'a> {
    async fn connect(
        options: &'a SinkOptions,
        tokens: Option<Arc<dyn TokenSource>>,
        attempts: u32,
    ) -> Result<Self, SinkError> {
        let endpoint = &options.endpoints.http;
        let tokens = tokens.filter(|_| !endpoint.is_plaintext());
        let quota_project = options.quota_project.as_ref().map(|project| project.as_str());
        let credentials = google_credentials(tokens, quota_project);
        let unusable = |error| {
            SinkError::user(format!("option 'endpoint.http': {endpoint} cannot be used")).with_source(error)
        };
        let tables = TableService::builder()
            .with_endpoint(endpoint.as_str())
            .with_credentials(credentials.clone())
            .with_attempt_timeout(ATTEMPT)
            .with_retry_policy(Aip194Strict.with_attempt_limit(attempts))
            .build()
            .await
            .map_err(unusable)?;
        let datasets = DatasetService::builder()
            .with_endpoint(endpoint.as_str())
            .with_credentials(credentials)
            .with_attempt_timeout(ATTEMPT)
            .with_retry_policy(Aip194Strict.with_attempt_limit(attempts))
            .build()
            .await
            .map_err(unusable)?;
        Ok(Self {
            tables,
            datasets,
            endpoint,
        })
    }

    async fn look_up(&self, name: &TableName) -> Result<Option<Table>, SinkError> {
        let get = self.tables.get_table();
        let get = get
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table_id(name.table().as_str());
        match Box::pin(get.send()).await {
            Ok(table) => Ok(Some(table)),
            // The dataset may be what is missing; creating the table tells.
            Err(error) if error.http_status_code() == Some(404) => Ok(None),
            Err(error) => Err(self.failed(LOOK, name, error)),
        }
    }

    async fn check_dataset(&self, name: &TableName) -> Result<(), SinkError> {
        let get = self.datasets.get_dataset();
        let get = get
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str());
        match Box::pin(get.send()).await {
            Ok(_) => Ok(()),
            Err(error) if error.http_status_code() == Some(403) => Ok(()),
            Err(error) if error.http_status_code() == Some(404) => {
                Err(missing_dataset(name).with_source(error))
            }
            Err(error) => Err(self.failed(LOOK, name, error)),
        }
    }

    /// The table, or none if it was there.
    async fn create(&self, name: &TableName, table: Table) -> Result<Option<Table>, SinkError> {
        let insert = self.tables.insert_table();
        let insert = insert
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table(table)
            .with_idempotency(true);
        match Box::pin(insert.send()).await {
            Ok(table) => Ok(Some(table)),
            // Another subtask, or our own attempt whose answer was lost.
            Err(error) if error.http_status_code() == Some(409) => Ok(None),
            Err(error) if error.http_status_code() == Some(404) => {
                Err(missing_dataset(name).with_source(error))
            }
            Err(error) => Err(self.failed(CREATE, name, error)),
        }
    }

    /// The table with the new columns, or none if it is no longer the one of that etag.
    async fn change_columns(
        &self,
        name: &TableName,
        etag: &str,
        schema: TableSchema,
    ) -> Result<Option<Table>, SinkError> {
        let etag = HeaderValue::try_from(etag).map_err(|error| {
            SinkError::internal(format!("the etag of table {name} is none")).with_source(error)
        })?;
        let patch = self.tables.patch_table();
        let patch = patch
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table_id(name.table().as_str())
            .set_table(Table::new().set_schema(schema))
            .with_custom_header(header::IF_MATCH, etag)
            .with_idempotency(true);
        match Box::pin(patch.send()).await {
            Ok(table) => Ok(Some(table)),
            // Changed, or dropped, by another subtask or a person; or by our own attempt whose answer was lost.
            Err(error) if matches!(error.http_status_code(), Some(412 | 404)) => Ok(None),
            Err(error) => Err(self.failed(CHANGE, name, error)),
        }
    }

    fn failed(
        &self,
        attempt: Attempt,
        name: &TableName,
        error: google_cloud_bigquery_v2::Error,
    ) -> SinkError {
        let Attempt {
            what,
            permission,
            otherwise,
        } = attempt;
        let server = error
            .status()
            .map_or_else(String::new, |status| format!(": {}", status.message));
        match error.http_status_code() {
            Some(401) => SinkError::user(format!(
                "cannot {what} table {name}: {} does not accept the credentials{server}; see option 'credentials'",
                self.endpoint
            )),
            // BigQuery says so of quotas too, such as five changes of a table in ten seconds.
            Some(403) if ["Exceeded rate limits", "Quota exceeded"].iter().any(|text| server.contains(text)) => {
                SinkError::external(format!("cannot {what} table {name}: {} answered 403{server}", self.endpoint))
            }
            Some(403) => SinkError::user(format!(
                "cannot {what} table {name}: permission {permission} is missing{server}; grant it, or {otherwise}"
            )),
            Some(code @ (408 | 429 | 500..)) => {
                SinkError::external(format!("cannot {what} table {name}: {} answered {code}{server}", self.endpoint))
            }
            Some(code) => SinkError::user(format!("cannot {what} table {name}: {} answered {code}{server}", self.endpoint)),
            None if error.is_authentication() => {
                SinkError::user(format!("cannot {what} table {name}: no credentials; see option 'credentials'"))
            }
            None => SinkError::external(format!(
                "cannot {what} table {name}: cannot reach {}; option 'endpoint.http' says where, and a private certificate authority must \
                 be known to the system (SSL_CERT_FILE), since 'endpoint.ca' is for 'endpoint.grpc'",
                self.endpoint
            )),
        }
        .with_source(error)
    }
}

fn missing_dataset(name: &TableName) -> SinkError {
    let (project, dataset) = (name.project(), name.dataset());
    SinkError::user(format!(
        "cannot create table {name}: dataset '{dataset}' does not exist in project '{project}'; create the dataset first"
    ))
}

fn missing_table(name: &TableName) -> SinkError {
    SinkError::user(format!(
        "table {name} does not exist; create it, or let the sink do so with option 'table.create' = 'if_missing'"
    ))
}
