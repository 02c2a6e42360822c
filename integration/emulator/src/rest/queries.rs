//! `jobs.insert`, `get`, `cancel`, `query` and `getQueryResults`. A query runs at once, so every job is done.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::catalog::DatasetRef;
use crate::query::query as run_query;
use crate::rest::error::ApiError;
use crate::rest::fields::write_schema;
use crate::rest::jobs::Job;
use crate::rest::request::{Body, Params, page_token, timestamp_format};
use crate::rest::rows::{self, TimestampFormat};
use crate::rest::{Api, with_rows};

/// Options of a query that would change its meaning, so that they cannot be ignored.
const NOT_SUPPORTED: [&str; 4] = [
    "destinationTable",
    "queryParameters",
    "userDefinedFunctions",
    "tableDefinitions",
];

pub(super) async fn insert(
    State(api): State<Api>,
    Path(project): Path<String>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let reference = body.get("jobReference").unwrap_or(&Value::Null);
    let configuration = body.get("configuration").cloned().unwrap_or(Value::Null);
    let Some(Value::Object(query)) = configuration.get("query") else {
        let text = "This emulator runs query jobs only: configuration.query is missing";
        return Err(ApiError::new(400, "required", text));
    };
    if is_true(configuration.get("dryRun")) {
        return Err(ApiError::new(
            501,
            "notImplemented",
            "This emulator does not support dryRun",
        ));
    }
    let mut asked = Asked::read(project, query)?;
    asked.id = text(reference, "jobId").map(str::to_owned);
    asked.location = text(reference, "location").map(str::to_owned);
    let job = asked.run(&api, configuration.clone()).await?;
    Ok(Json(job.resource()))
}

pub(super) async fn get(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.jobs.get(&project, &job)?.resource()))
}

/// A job that is done cannot be cancelled, and BigQuery says so by returning it.
pub(super) async fn cancel(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let job = api.jobs.get(&project, &job)?.resource();
    Ok(Json(json!({ "kind": "bigquery#jobCancelResponse", "job": job })))
}

pub(super) async fn query(
    State(api): State<Api>,
    Path(project): Path<String>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    if is_true(body.get("dryRun")) {
        return Err(ApiError::new(
            501,
            "notImplemented",
            "This emulator does not support dryRun",
        ));
    }
    let mut asked = Asked::read(project, &body)?;
    asked.location = body.get("location").and_then(Value::as_str).map(str::to_owned);
    let most = match body.get("maxResults") {
        None | Some(Value::Null) => None,
        Some(number) => Some(
            number
                .as_u64()
                .or_else(|| number.as_str()?.parse().ok())
                .ok_or_else(|| ApiError::invalid("Invalid value for maxResults: it must be a number >= 0"))?,
        ),
    };
    let options = body.get("formatOptions").unwrap_or(&Value::Null);
    let output = text(options, "timestampOutputFormat").unwrap_or_default();
    let format = timestamp_format(is_true(options.get("useInt64Timestamp")), output);
    let configuration = json!({ "jobType": "QUERY", "query": { "query": asked.sql, "useLegacySql": false } });
    let job = asked.run(&api, configuration).await?;
    answer(&job, "bigquery#queryResponse", 0, most, format)
}

pub(super) async fn results(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let job = api.jobs.get(&project, &job)?;
    let (start, most) = (params.start()?, params.number("maxResults")?);
    answer(
        &job,
        "bigquery#getQueryResultsResponse",
        start,
        most,
        params.timestamps(),
    )
}

fn answer(
    job: &Job,
    kind: &str,
    start: u64,
    most: Option<u64>,
    format: TimestampFormat,
) -> Result<Response, ApiError> {
    let output = job.outcome.as_ref().map_err(ApiError::clone)?;
    let total = output.rows.num_rows() as u64;
    let page = rows::page(std::slice::from_ref(&output.rows), start, most, format)?;
    let mut head = json!({
        "kind": kind,
        "etag": "results",
        "schema": write_schema(&output.schema),
        "jobReference": job.reference(),
        "totalRows": total.to_string(),
        "totalBytesProcessed": "0",
        "jobComplete": true,
        "cacheHit": false,
    });
    if page.next < total {
        head["pageToken"] = page_token(page.next).into();
    }
    Ok(with_rows(&head, &page.rows))
}

/// A query as it was asked for.
struct Asked {
    project: String,
    sql: String,
    default_dataset: Option<DatasetRef>,
    id: Option<String>,
    location: Option<String>,
}

impl Asked {
    fn read(project: String, query: &Map<String, Value>) -> Result<Self, ApiError> {
        let is_set = |value: Option<&Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        };
        if let Some(field) = NOT_SUPPORTED.iter().find(|field| is_set(query.get(**field))) {
            return Err(ApiError::new(
                501,
                "notImplemented",
                format!("This emulator does not support {field}"),
            ));
        }
        if is_true(query.get("useLegacySql")) {
            let text = "This emulator speaks GoogleSQL only: set useLegacySql to false";
            return Err(ApiError::new(501, "notImplemented", text));
        }
        let Some(sql) = query.get("query").and_then(Value::as_str) else {
            return Err(ApiError::new(
                400,
                "required",
                "Required parameter is missing: query",
            ));
        };
        let default = query.get("defaultDataset").unwrap_or(&Value::Null);
        let default_dataset = text(default, "datasetId")
            .map(|dataset| DatasetRef::new(text(default, "projectId").unwrap_or(&project), dataset));
        Ok(Self {
            sql: sql.to_owned(),
            default_dataset,
            id: None,
            location: None,
            project,
        })
    }

    /// Runs it. A query that fails is a job too, as in BigQuery.
    async fn run(self, api: &Api, configuration: Value) -> Result<Arc<Job>, ApiError> {
        let id = self
            .id
            .unwrap_or_else(|| format!("job_{}", uuid::Uuid::new_v4().simple()));
        api.jobs.check_new(&self.project, &id)?;
        let started_ms = api.shared.now();
        let outcome = run_query(
            &api.shared,
            &self.project,
            self.default_dataset.as_ref(),
            &self.sql,
        )
        .await;
        api.jobs.add(Job {
            project: self.project,
            id,
            location: self.location.unwrap_or_else(|| "US".to_owned()),
            configuration,
            started_ms,
            ended_ms: api.shared.now(),
            outcome: outcome.map_err(ApiError::from),
        })
    }
}

/// `true`, as a boolean or as text.
fn is_true(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn text<'a>(json: &'a Value, key: &str) -> Option<&'a str> {
    json.get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}
