//! Creates a missing table from the pipeline's columns (`table.create = 'if_missing'`), through Google's own client.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bigquery_write_proto::names::TableName;
use bigquery_write_proto::wire::{self, table_field_schema};
use google_cloud_bigquery_v2::client::{DatasetService, TableService};
use google_cloud_bigquery_v2::model::table_field_schema::FieldElementType;
use google_cloud_bigquery_v2::model::{Table, TableFieldSchema, TableReference, TableSchema};
use google_cloud_gax::retry_policy::{Aip194Strict, RetryPolicyExt as _};

use crate::credentials::{TokenSource, google_credentials};
use crate::error::SinkError;
use crate::options::{Endpoint, SinkOptions};

/// Longest wait for one attempt, and how many there are while the server is away: a minute at most.
const ATTEMPT: Duration = Duration::from_secs(15);
const ATTEMPTS: u32 = 4;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The table was there, or another subtask was quicker.
    Existed,
    /// It was created.
    Created,
}

/// Creates the table if it is missing. What exists is left as it is; whether it fits is for others to check.
///
/// Needs `bigquery.tables.get`, and `bigquery.tables.create` if the table is missing. The error says which was lacking, or that
/// the dataset is missing.
pub async fn create_table_if_missing(
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
    schema: &wire::TableSchema,
) -> Result<Creation, SinkError> {
    // A partition belongs to its table: `events$20240131` is created as `events`.
    let name = options.table.without_decorator();
    let admin = Administration::connect(options, tokens).await?;
    if admin.exists(&name).await? {
        return Ok(Creation::Existed);
    }
    admin.create(&name, schema).await
}

/// Looks whether a missing table could be created: is the REST API there, and the dataset?
///
/// Needs `bigquery.datasets.get`; without it nothing is said, since creating tables does not take it.
pub async fn check_dataset(
    options: &SinkOptions,
    tokens: Option<Arc<dyn TokenSource>>,
) -> Result<(), SinkError> {
    let name = options.table.without_decorator();
    Administration::connect(options, tokens)
        .await?
        .check_dataset(&name)
        .await
}

/// The REST API as far as it is needed.
struct Administration<'a> {
    tables: TableService,
    datasets: DatasetService,
    endpoint: &'a Endpoint,
}

/// What was attempted, for errors: the words and the permission it takes.
#[derive(Clone, Copy)]
struct Attempt {
    what: &'static str,
    permission: &'static str,
}

const LOOK: Attempt = Attempt {
    what: "look up",
    permission: "bigquery.tables.get",
};
const CREATE: Attempt = Attempt {
    what: "create",
    permission: "bigquery.tables.create",
};

impl<'a> Administration<'a> {
    async fn connect(
        options: &'a SinkOptions,
        tokens: Option<Arc<dyn TokenSource>>,
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
            .with_retry_policy(Aip194Strict.with_attempt_limit(ATTEMPTS))
            .build()
            .await
            .map_err(unusable)?;
        let datasets = DatasetService::builder()
            .with_endpoint(endpoint.as_str())
            .with_credentials(credentials)
            .with_attempt_timeout(ATTEMPT)
            .with_retry_policy(Aip194Strict.with_attempt_limit(ATTEMPTS))
            .build()
            .await
            .map_err(unusable)?;
        Ok(Self {
            tables,
            datasets,
            endpoint,
        })
    }

    async fn exists(&self, name: &TableName) -> Result<bool, SinkError> {
        let result = self
            .tables
            .get_table()
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table_id(name.table().as_str())
            .send()
            .await;
        match result {
            Ok(_) => Ok(true),
            // The dataset may be what is missing; creating the table tells.
            Err(error) if error.http_status_code() == Some(404) => Ok(false),
            Err(error) => Err(self.failed(LOOK, name, error)),
        }
    }

    async fn check_dataset(&self, name: &TableName) -> Result<(), SinkError> {
        let get = self.datasets.get_dataset();
        let get = get
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str());
        match get.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.http_status_code() == Some(403) => Ok(()),
            Err(error) if error.http_status_code() == Some(404) => {
                Err(missing_dataset(name).with_source(error))
            }
            Err(error) => Err(self.failed(LOOK, name, error)),
        }
    }

    async fn create(&self, name: &TableName, schema: &wire::TableSchema) -> Result<Creation, SinkError> {
        let fields = schema.fields.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let reference = TableReference::new()
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table_id(name.table().as_str());
        let table = Table::new()
            .set_table_reference(reference)
            .set_schema(TableSchema::new().set_fields(fields));
        let result = self
            .tables
            .insert_table()
            .set_project_id(name.project().as_str())
            .set_dataset_id(name.dataset().as_str())
            .set_table(table)
            .send()
            .await;
        match result {
            Ok(_) => Ok(Creation::Created),
            // Another subtask, or our own attempt whose answer was lost.
            Err(error) if error.http_status_code() == Some(409) => Ok(Creation::Existed),
            Err(error) if error.http_status_code() == Some(404) => {
                Err(missing_dataset(name).with_source(error))
            }
            Err(error) => Err(self.failed(CREATE, name, error)),
        }
    }

    fn failed(
        &self,
        attempt: Attempt,
        name: &TableName,
        error: google_cloud_bigquery_v2::Error,
    ) -> SinkError {
        let Attempt { what, permission } = attempt;
        let server = error
            .status()
            .map_or_else(String::new, |status| format!(": {}", status.message));
        match error.http_status_code() {
            Some(401) => SinkError::user(format!(
                "cannot {what} table {name}: {} does not accept the credentials{server}; see option 'credentials'",
                self.endpoint
            )),
            Some(403) => SinkError::user(format!(
                "cannot {what} table {name}: permission {permission} is missing{server}; grant it, or create the table yourself and leave \
                 out option 'table.create'"
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

/// A column as the REST API spells it.
fn field(column: &wire::TableFieldSchema) -> Result<TableFieldSchema, SinkError> {
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
        .set_scale(column.scale);
    if let Some(element) = &column.range_element_type {
        let element = type_name(element.r#type()).ok_or_else(|| wrong("a range without element type"))?;
        result = result.set_range_element_type(FieldElementType::new().set_type(element));
    }
    Ok(result)
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
