//! `jobs.insert`, `get`, `list`, `cancel`, `delete`, `query` and `getQueryResults`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use crate::catalog::DatasetRef;
use crate::query::{Answer, Parameters, Request, run};
use crate::rest::error::ApiError;
use crate::rest::fields::write_schema;
use crate::rest::jobs::{Done, Job, dry_run_statistics, query_statistics};
use crate::rest::paging::{first_row, list_page, next_rows};
use crate::rest::request::{Body, Params, timestamp_format};
use crate::rest::rows::{self, TimestampFormat};
use crate::rest::{Api, with_rows};

/// Options of a query that would change what it means or does, so that they cannot be ignored. Those that only matter
/// for its cost or its speed are (`useQueryCache`, `priority`, `maximumBytesBilled`...), and those of legacy SQL.
const NOT_SUPPORTED: [&str; 17] = [
    "connectionProperties",
    "continuous",
    "createDisposition",
    "createSession",
    "clustering",
    "destinationEncryptionConfiguration",
    "destinationTable",
    "rangePartitioning",
    "schemaUpdateOptions",
    "scriptOptions",
    "systemVariables",
    "tableDefinitions",
    "timePartitioning",
    "userDefinedFunctionResources",
    "userDefinedFunctions",
    "writeDisposition",
    "writeIncrementalResults",
];
/// Their values that are the default.
const DEFAULTS: [&str; 2] = ["CREATE_IF_NEEDED", "WRITE_EMPTY"];
/// Jobs that this emulator does not run.
const OTHER_JOBS: [&str; 3] = ["load", "copy", "extract"];
/// How long a call waits for a job, unless it says so itself.
const WAIT: Duration = Duration::from_secs(10);
/// The longest that a call can ask to wait, in milliseconds.
const LONGEST_WAIT: u64 = 200_000;

/// Waits a while for the job's end, since nearly every query is done at once.
pub(super) async fn insert(
    State(api): State<Api>,
    Path(project): Path<String>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let reference = body.get("jobReference").unwrap_or(&Value::Null);
    let configuration = body.get("configuration").cloned().unwrap_or(Value::Null);
    let Some(Value::Object(query)) = configuration.get("query") else {
        return Err(no_query(&configuration));
    };
    let mut asked = Asked::read(project, query, configuration.clone())?;
    asked.id = text(reference, "jobId").map(str::to_owned);
    asked.request.location = text(reference, "location").map(str::to_owned);
    if is_true(configuration.get("dryRun")) {
        return asked.dry_run(&api).await.map(|(job, _)| Json(job));
    }
    let job = asked.start(&api)?;
    job.wait(WAIT).await;
    Ok(Json(job.resource()))
}

/// A load job with its data, which ends no other way than one without.
pub(super) async fn upload() -> ApiError {
    other_job("load")
}

fn no_query(configuration: &Value) -> ApiError {
    match OTHER_JOBS.iter().find(|kind| configuration.get(**kind).is_some()) {
        Some(kind) => other_job(kind),
        None => {
            let text = "This emulator runs query jobs only: configuration.query is missing";
            ApiError::new(400, "required", text)
        }
    }
}

fn other_job(kind: &str) -> ApiError {
    let text = format!("This emulator runs query jobs only, no {kind} jobs");
    ApiError::new(501, "notImplemented", text)
}

pub(super) async fn get(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(api.jobs.get(&project, &job)?.resource()))
}

pub(super) async fn list(
    State(api): State<Api>,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let states: Vec<String> = params.all("stateFilter").map(str::to_uppercase).collect();
    // Creation times are not negative.
    let time = |name| {
        Ok::<_, ApiError>(
            params
                .number(name)?
                .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        )
    };
    let (least, most) = (time("minCreationTime")?, time("maxCreationTime")?);
    let full = params
        .text("projection")
        .is_some_and(|text| text.eq_ignore_ascii_case("full"));
    let wanted = |job: &Arc<Job>| {
        (states.is_empty() || states.iter().any(|state| state == job.state()))
            && least.is_none_or(|least| job.started_ms >= least)
            && most.is_none_or(|most| job.started_ms <= most)
            && params.text("parentJobId").is_none()
    };
    let entry = |job: Arc<Job>| {
        let mut entry = job.summary();
        if full {
            entry["configuration"] = job.configuration.clone();
        }
        // Newest first.
        (format!("{:020}", u64::MAX - job.number), entry)
    };
    let jobs = api.jobs.of(&project).into_iter();
    let (jobs, next) = list_page(
        &format!("jobs {project}"),
        jobs.filter(wanted).map(entry).collect(),
        &params,
    )?;
    let mut json = json!({ "kind": "bigquery#jobList", "etag": "list", "jobs": jobs });
    if let Some(next) = next {
        json["nextPageToken"] = next.into();
    }
    Ok(Json(json))
}

/// A job that is done cannot be cancelled, and BigQuery says so by returning it.
pub(super) async fn cancel(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let job = api.jobs.get(&project, &job)?;
    job.cancel();
    job.wait(WAIT).await;
    Ok(Json(
        json!({ "kind": "bigquery#jobCancelResponse", "job": job.resource() }),
    ))
}

pub(super) async fn delete(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    api.jobs.delete(&project, &job)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn query(
    State(api): State<Api>,
    Path(project): Path<String>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let most = number(&body, "maxResults")?;
    let limit = number(&body, "timeoutMs")?.map_or(WAIT, milliseconds);
    let options = body.get("formatOptions").unwrap_or(&Value::Null);
    let output = text(options, "timestampOutputFormat").unwrap_or_default();
    let format = timestamp_format(is_true(options.get("useInt64Timestamp")), output);
    let request_id = body.get("requestId").and_then(Value::as_str);
    let request_id = request_id.filter(|id| !id.is_empty()).map(str::to_owned);
    let mut asked = Asked::read(project, &body, configuration(&body))?;
    let location = body.get("location").and_then(Value::as_str);
    asked.request.location = location.filter(|text| !text.is_empty()).map(str::to_owned);
    if is_true(body.get("dryRun")) {
        let (job, answer) = asked.dry_run(&api).await?;
        let mut head = head("bigquery#queryResponse", &job["jobReference"], &answer);
        if let Some(output) = &answer.output {
            head["schema"] = write_schema(&output.schema);
        }
        return Ok(Json(head).into_response());
    }
    asked.request_id = request_id;
    let job = asked.start(&api)?;
    let done = job.wait(limit).await;
    answer(&job, done.as_deref(), "bigquery#queryResponse", 0, most, format)
}

/// The configuration of the job that `jobs.query` makes.
fn configuration(body: &Map<String, Value>) -> Value {
    let mut query = json!({ "query": body.get("query"), "useLegacySql": false });
    for field in [
        "defaultDataset",
        "parameterMode",
        "queryParameters",
        "maximumBytesBilled",
    ] {
        if let Some(value) = body.get(field) {
            query[field] = value.clone();
        }
    }
    let mut configuration = json!({ "jobType": "QUERY", "query": query });
    if let Some(labels) = body.get("labels") {
        configuration["labels"] = labels.clone();
    }
    configuration
}

pub(super) async fn results(
    State(api): State<Api>,
    Path((project, job)): Path<(String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let job = api.jobs.get(&project, &job)?;
    let start = first_row(&rows_of(&job), &params)?;
    let most = params.number("maxResults")?;
    let limit = params.number("timeoutMs")?.map_or(WAIT, milliseconds);
    let done = job.wait(limit).await;
    let kind = "bigquery#getQueryResultsResponse";
    answer(&job, done.as_deref(), kind, start, most, params.timestamps())
}

fn answer(
    job: &Job,
    done: Option<&Done>,
    kind: &str,
    start: u64,
    most: Option<u64>,
    format: TimestampFormat,
) -> Result<Response, ApiError> {
    let Some(done) = done else {
        let head = json!({ "kind": kind, "jobReference": job.reference(), "jobComplete": false });
        return Ok(Json(head).into_response());
    };
    let answer = done.outcome.as_ref().map_err(ApiError::clone)?;
    let mut head = head(kind, &job.reference(), answer);
    let Some(output) = &answer.output else {
        return Ok(Json(head).into_response());
    };
    let total = output.rows.num_rows() as u64;
    let page = rows::page(std::slice::from_ref(&output.rows), start, most, format)?;
    head["schema"] = write_schema(&output.schema);
    head["totalRows"] = total.to_string().into();
    if let Some(token) = next_rows(&rows_of(job), page.next, total, most) {
        head["pageToken"] = token.into();
    }
    Ok(with_rows(&head, &page.rows))
}

/// What the page tokens of its results are good for.
fn rows_of(job: &Job) -> String {
    format!("results {} {}", job.project, job.number)
}

/// What every answer about a query that is done says, but for its rows.
fn head(kind: &str, reference: &Value, answer: &Answer) -> Value {
    let mut head = json!({
        "kind": kind,
        "etag": "results",
        "jobReference": reference,
        "totalBytesProcessed": "0",
        "jobComplete": true,
        "cacheHit": false,
    });
    let statistics = query_statistics(answer);
    for field in ["numDmlAffectedRows", "dmlStats"] {
        if let Some(value) = statistics.get(field) {
            head[field] = value.clone();
        }
    }
    head
}

/// A query as it was asked for.
struct Asked {
    request: Request,
    configuration: Value,
    id: Option<String>,
    request_id: Option<String>,
}

impl Asked {
    fn read(project: String, query: &Map<String, Value>, configuration: Value) -> Result<Self, ApiError> {
        let is_set = |value: Option<&Value>| match value {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !DEFAULTS.contains(&text.as_str()) && !text.is_empty(),
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
        // BigQuery takes a query that does not say what it is for legacy SQL; every client of Google's says it. Here it
        // is GoogleSQL.
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
        let parameters = query.get("queryParameters").unwrap_or(&Value::Null);
        Ok(Self {
            request: Request {
                sql: sql.to_owned(),
                project,
                default_dataset,
                parameters: Parameters::read(parameters).map_err(ApiError::invalid)?,
                dry_run: false,
                location: None,
            },
            configuration,
            id: None,
            request_id: None,
        })
    }

    /// Where it runs: where it is told to; or where the default dataset is, or all datasets of the project; or in the
    /// US.
    fn location(&self, api: &Api) -> String {
        if let Some(location) = &self.request.location {
            return location.clone();
        }
        api.shared.with(|machine| {
            let catalog = machine.catalog();
            let default = self.request.default_dataset.as_ref();
            let default = default.and_then(|dataset| catalog.dataset(dataset).ok());
            let mut all = catalog
                .datasets_of(&self.request.project)
                .map(|(_, dataset)| dataset);
            let only = all.next().filter(|first| {
                let mut others = all;
                others.all(|other| other.location.eq_ignore_ascii_case(&first.location))
            });
            let dataset = default.or(only);
            dataset.map_or("US", |dataset| &dataset.location).to_owned()
        })
    }

    /// Starts it. A query that fails is a job too, as in BigQuery.
    fn start(self, api: &Api) -> Result<Arc<Job>, ApiError> {
        let location = self.location(api);
        let (shared, request) = (api.shared.clone(), self.request);
        let mut job = Job::new(
            request.project.clone(),
            self.id
                .unwrap_or_else(|| format!("job_{}", shared.draw().uuid().replace('-', ""))),
            location,
            self.configuration,
            shared.now(),
        );
        job.request_id = self.request_id;
        let run = async move { run(&shared, request).await };
        api.jobs.start(job, &api.shared, run)
    }

    /// What would come of it: a job that is kept nowhere, and the columns of its rows.
    async fn dry_run(mut self, api: &Api) -> Result<(Value, Answer), ApiError> {
        self.request.dry_run = true;
        let (project, now) = (self.request.project.clone(), api.shared.now());
        let location = self.location(api);
        let answer = run(&api.shared, self.request).await?;
        let mut query = dry_run_statistics(&answer);
        query["totalBytesProcessed"] = "0".into();
        query["cacheHit"] = false.into();
        let job = json!({
            "kind": "bigquery#job",
            "etag": "job",
            "id": format!("{project}:{location}."),
            "user_email": "emulator@localhost",
            "jobReference": { "projectId": project, "location": location },
            "configuration": self.configuration,
            "status": { "state": "DONE" },
            "statistics": {
                "creationTime": now.to_string(),
                "totalBytesProcessed": "0",
                "query": query,
            },
        });
        Ok((job, answer))
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

/// A number that is not negative, as a number or as text.
fn number(body: &Map<String, Value>, key: &str) -> Result<Option<u64>, ApiError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(number) => number
            .as_u64()
            .or_else(|| number.as_str()?.parse().ok())
            .map(Some)
            .ok_or_else(|| ApiError::invalid(format!("Invalid value for {key}: it must be a number >= 0"))),
    }
}

fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms.min(LONGEST_WAIT))
}
