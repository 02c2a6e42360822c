//! BigQuery's REST API (v2): datasets, tables, their rows, and queries, as Google's clients call them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde_json::Value;

use crate::grpc::Service;
use crate::shared::Shared;

use error::ApiError;
use insert_all::Inserted;
use jobs::Jobs;

mod control;
mod datasets;
mod error;
mod fields;
mod insert_all;
mod jobs;
mod origin;
mod page;
mod paging;
mod projects;
mod queries;
mod request;
mod rows;
mod serve;
mod table_resource;
mod tables;

#[cfg(test)]
mod tests;

pub use origin::is_of_another_site;
pub(crate) use serve::serve;

/// Largest request body, in bytes; BigQuery's own limit for such calls.
const LARGEST_BODY: usize = 10 << 20;

/// What every handler sees; one for an emulator.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    shared: Shared,
    service: Service,
    jobs: Arc<Jobs>,
    inserted: Arc<Inserted>,
}

impl Api {
    pub(crate) fn new(service: Service) -> Self {
        Self {
            shared: service.shared().clone(),
            service,
            jobs: Arc::new(Jobs::default()),
            inserted: Arc::new(Inserted::default()),
        }
    }

    /// Ends the jobs that run.
    pub(crate) fn stop(&self) {
        self.jobs.stop();
    }
}

/// The REST API under `/bigquery/v2`, and what is the emulator's own beside it.
pub(crate) fn router(api: Api) -> Router {
    let project = Router::new()
        .route("/datasets", get(datasets::list).post(datasets::insert))
        .route(
            "/datasets/{dataset}",
            get(datasets::get)
                .patch(datasets::patch)
                .put(datasets::update)
                .delete(datasets::delete)
                .post(datasets::overridden),
        )
        .route(
            "/datasets/{dataset}/tables",
            get(tables::list).post(tables::insert),
        )
        .route(
            "/datasets/{dataset}/tables/{table}",
            get(tables::get)
                .patch(tables::patch)
                .put(tables::update)
                .delete(tables::delete)
                .post(tables::overridden),
        )
        .route("/datasets/{dataset}/tables/{table}/data", get(tables::data))
        .route(
            "/datasets/{dataset}/tables/{table}/insertAll",
            post(insert_all::insert_all),
        )
        .route("/serviceAccount", get(projects::service_account))
        .route("/jobs", get(queries::list).post(queries::insert))
        .route("/jobs/{job}", get(queries::get))
        .route("/jobs/{job}/cancel", post(queries::cancel))
        .route("/jobs/{job}/delete", delete(queries::delete))
        .route("/queries", post(queries::query))
        .route("/queries/{job}", get(queries::results));
    Router::new()
        .route("/", get(page::page))
        .route("/bigquery/v2/projects", get(projects::list))
        .route(
            "/upload/bigquery/v2/projects/{project}/jobs",
            post(queries::upload),
        )
        .nest("/bigquery/v2/projects/{project}", project.clone())
        // Node's client takes BIGQUERY_EMULATOR_HOST for everything before `/projects`, and Go's its endpoint.
        .route("/projects", get(projects::list))
        .nest("/projects/{project}", project)
        .nest("/emulator", control::router())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_path)
        .layer(from_fn_with_state(api.clone(), check_token))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn(origin::refuse_other_sites))
        .with_state(api)
}

async fn no_such_path(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::new(
        404,
        "notFound",
        format!("This emulator does not serve {method} {path}"),
    )
}

/// Lets in who has a token, if the emulator asks for one.
async fn check_token(State(api): State<Api>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let good = api
        .shared
        .with(|machine| match &machine.switches().require_token {
            None => true,
            Some(tokens) => given.is_some_and(|given| tokens.iter().any(|token| token == given)),
        });
    if good {
        return next.run(request).await;
    }
    let text = "Request had invalid authentication credentials. Expected OAuth 2 access token.";
    ApiError::new(401, "authError", text).into_response()
}

/// A JSON object as an answer, with a field `rows` that is encoded already. As in BigQuery there is none without rows:
/// Google's Python client takes an answer that has the field for the first page, and one without a page token for the last.
fn with_rows(head: &Value, rows: &str) -> Response {
    let mut body = head.to_string();
    if rows != "[]" {
        body.truncate(body.len() - 1);
        body.push_str(",\"rows\":");
        body.push_str(rows);
        body.push('}');
    }
    ([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], body).into_response()
}
