//! `query`: a SELECT against an emulator or BigQuery, through Google's own client.

mod cell;

use std::time::{Duration, Instant};

use bigquery_sink::credentials::{google_credentials, tokens_of};
use bigquery_sink::options::{Credentials, Endpoint};
use google_cloud_bigquery_v2::Error;
use google_cloud_bigquery_v2::client::JobService;
use google_cloud_bigquery_v2::model::{
    DataFormatOptions, GetQueryResultsResponse, JobReference, QueryRequest, QueryResponse, TableFieldSchema,
    TableSchema,
};
use google_cloud_gax::error::rpc::StatusDetails;
use google_cloud_gax::retry_policy::{Aip194Strict, RetryPolicyExt as _};
use serde_json::{Map, Value};

use self::cell::{Cell, csv_line};
use crate::args::QueryArguments;
use crate::failure::Failure;
use crate::output::print;
use crate::table::render;

/// Longest wait for one answer; the emulator gives a query 30 s.
const ATTEMPT: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 4;
/// So long BigQuery holds an answer back while the query runs.
const SERVER_WAIT_MS: u32 = 10_000;
/// A query that takes longer is cancelled by BigQuery, and no longer waited for.
const QUERY_LIMIT: Duration = Duration::from_secs(15 * 60);

pub(crate) async fn query(arguments: QueryArguments) -> Result<(), Failure> {
    let endpoint = endpoint(&arguments.http)?;
    let service = Service::connect(endpoint, arguments.project).await?;
    let mut printer = Printer::new(arguments.json, arguments.csv);
    let begun = Instant::now();
    let mut page = service.start(arguments.sql).await?;
    let job = page.job.take();
    loop {
        if page.complete {
            printer.page(&page.columns, &page.rows)?;
            if page.next.is_empty() {
                return printer.end();
            }
        } else if begun.elapsed() > QUERY_LIMIT {
            let minutes = QUERY_LIMIT.as_secs() / 60;
            return Err(Failure::running(format!(
                "the query did not end within {minutes} minutes"
            )));
        }
        let Some(job) = &job else {
            return Err(Failure::running(format!(
                "{} announced more rows without naming the job that has them",
                service.endpoint
            )));
        };
        page = service.next(job, page.next).await?;
    }
}

/// `127.0.0.1:9050` means http.
fn endpoint(text: &str) -> Result<Endpoint, Failure> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    Endpoint::parse(&full).map_err(|reason| {
        Failure::usage(format!(
            "--http: {reason}; give host:port, http://host:port or https://host"
        ))
    })
}

/// The REST API as far as queries go.
struct Service {
    jobs: JobService,
    endpoint: Endpoint,
    project: String,
}

/// Some rows of the result.
struct Page {
    columns: Vec<TableFieldSchema>,
    rows: Vec<Map<String, Value>>,
    /// Token of the next page; empty after the last.
    next: String,
    complete: bool,
    job: Option<JobReference>,
}

impl Service {
    async fn connect(endpoint: Endpoint, project: String) -> Result<Self, Failure> {
        let tokens = (!endpoint.is_plaintext()).then(|| tokens_of(&Credentials::Adc));
        let jobs = JobService::builder()
            .with_endpoint(endpoint.as_str())
            .with_credentials(google_credentials(tokens, None))
            .with_attempt_timeout(ATTEMPT)
            .with_retry_policy(Aip194Strict.with_attempt_limit(ATTEMPTS))
            .build()
            .await
            .map_err(|error| Failure::usage(format!("--http: {endpoint} cannot be used")).because(&error))?;
        Ok(Self {
            jobs,
            endpoint,
            project,
        })
    }

    async fn start(&self, sql: String) -> Result<Page, Failure> {
        let limit_ms = i64::try_from(QUERY_LIMIT.as_millis()).unwrap_or(i64::MAX);
        let request = QueryRequest::new()
            .set_query(sql)
            .set_use_legacy_sql(false)
            .set_timeout_ms(SERVER_WAIT_MS)
            .set_job_timeout_ms(limit_ms)
            .set_format_options(format_options());
        let response = self
            .jobs
            .query()
            .set_project_id(&self.project)
            .set_query_request(request)
            .send()
            .await;
        response
            .map(Page::from)
            .map_err(|error| failed(&self.endpoint, &error))
    }

    async fn next(&self, job: &JobReference, token: String) -> Result<Page, Failure> {
        let response = self
            .jobs
            .get_query_results()
            .set_project_id(&job.project_id)
            .set_job_id(&job.job_id)
            .set_location(job.location.clone().unwrap_or_default())
            .set_page_token(token)
            .set_timeout_ms(SERVER_WAIT_MS)
            .set_format_options(format_options())
            .send()
            .await;
        response
            .map(Page::from)
            .map_err(|error| failed(&self.endpoint, &error))
    }
}

/// TIMESTAMPs as microseconds: the default is a double, which cannot hold them.
fn format_options() -> DataFormatOptions {
    DataFormatOptions::new().set_use_int64_timestamp(true)
}

fn columns(schema: Option<TableSchema>) -> Vec<TableFieldSchema> {
    schema.map(|schema| schema.fields).unwrap_or_default()
}

impl From<QueryResponse> for Page {
    fn from(response: QueryResponse) -> Self {
        Self {
            columns: columns(response.schema),
            rows: response.rows,
            next: response.page_token,
            complete: response.job_complete.unwrap_or_default(),
            job: response.job_reference,
        }
    }
}

impl From<GetQueryResultsResponse> for Page {
    fn from(response: GetQueryResultsResponse) -> Self {
        Self {
            columns: columns(response.schema),
            rows: response.rows,
            next: response.page_token,
            complete: response.job_complete.unwrap_or_default(),
            job: response.job_reference,
        }
    }
}

/// BigQuery's own words where it has any; a wrong query is wrong usage.
fn failed(endpoint: &Endpoint, error: &Error) -> Failure {
    if let Some(status) = error.status() {
        let message = &status.message;
        let wrong_query = status
            .details
            .iter()
            .any(|detail| matches!(detail, StatusDetails::ErrorInfo(info) if info.reason == "invalidQuery"));
        if wrong_query {
            return Failure::usage(message);
        }
        let code = error
            .http_status_code()
            .map_or_else(|| status.code.to_string(), |code| code.to_string());
        return Failure::running(format!("{endpoint} answered {code}: {message}"));
    }
    if error.is_authentication() {
        return Failure::running(format!("no credentials for {endpoint}: {}", innermost(error)));
    }
    if let Some(code) = error.http_status_code() {
        let hint = "is that BigQuery's REST API? --http says where it is";
        return Failure::running(format!(
            "{endpoint} answered {code} without an explanation; {hint}"
        ));
    }
    if error.is_timeout() || error.is_deserialization() {
        return Failure::running(format!("{endpoint} did not answer as BigQuery does")).because(error);
    }
    Failure::running(format!(
        "cannot reach {endpoint}: {}; 'arroyo-bigquery emulator' starts an emulator, --http says where one is",
        innermost(error)
    ))
}

/// What went wrong at the bottom; the client's own words above it say less.
fn innermost(error: &Error) -> &dyn std::error::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// Rows in the form that was asked for. Lines are printed as pages come; a table needs all rows for its widths.
enum Printer {
    Json,
    Csv {
        header_printed: bool,
    },
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

impl Printer {
    fn new(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (true, _) => Self::Json,
            (_, true) => Self::Csv {
                header_printed: false,
            },
            _ => Self::Table {
                header: Vec::new(),
                rows: Vec::new(),
            },
        }
    }

    fn page(&mut self, columns: &[TableFieldSchema], page: &[Map<String, Value>]) -> Result<(), Failure> {
        let names = columns.iter().map(|column| column.name.as_str());
        let rows = page.iter().map(|row| Cell::row(row, columns));
        let mut text = String::new();
        match self {
            Self::Json => {
                for row in rows {
                    let fields = names.clone().map(str::to_owned).zip(row).collect();
                    text.push_str(&Cell::Struct(fields).json());
                    text.push('\n');
                }
            }
            Self::Csv { header_printed } => {
                if !*header_printed && !columns.is_empty() {
                    *header_printed = true;
                    text.push_str(&csv_line(names.map(|name| Some(name.to_owned()))));
                }
                for row in rows {
                    text.push_str(&csv_line(row.iter().map(Cell::text)));
                }
            }
            Self::Table { header, rows: kept } => {
                *header = names.map(str::to_owned).collect();
                let or_null = |cell: &Cell| cell.text().unwrap_or_else(|| "NULL".to_owned());
                kept.extend(rows.map(|row| row.iter().map(or_null).collect()));
                return Ok(());
            }
        }
        print(&text)
    }

    fn end(self) -> Result<(), Failure> {
        match self {
            Self::Table { header, rows } if !header.is_empty() => {
                let count = rows.len();
                let plural = if count == 1 { "" } else { "s" };
                print(&format!("{}\n{count} row{plural}\n", render(header, rows)))
            }
            _ => Ok(()),
        }
    }
}
