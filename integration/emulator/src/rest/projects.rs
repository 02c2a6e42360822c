//! `projects.list` and `projects.getServiceAccount`. A project is there as soon as it has a dataset.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::rest::Api;
use crate::rest::error::ApiError;
use crate::rest::paging::list_page;
use crate::rest::request::Params;

pub(super) async fn list(State(api): State<Api>, params: Params) -> Result<Json<Value>, ApiError> {
    let projects: BTreeSet<String> = api.shared.with(|machine| {
        let datasets = machine.catalog().datasets.keys();
        datasets.map(|name| name.project.clone()).collect()
    });
    let total = projects.len();
    let entries = projects.into_iter().map(|id| (id.clone(), entry(&id))).collect();
    let (projects, next) = list_page("projects", entries, &params)?;
    let mut json = json!({
        "kind": "bigquery#projectList",
        "etag": "list",
        "projects": projects,
        "totalItems": total,
    });
    if let Some(next) = next {
        json["nextPageToken"] = next.into();
    }
    Ok(Json(json))
}

fn entry(id: &str) -> Value {
    // Projects have numbers too; here one that the id gives.
    let number = crc32c::crc32c(id.as_bytes());
    json!({
        "kind": "bigquery#project",
        "id": id,
        "numericId": number.to_string(),
        "projectReference": { "projectId": id },
        "friendlyName": id,
    })
}

pub(super) async fn service_account(Path(project): Path<String>) -> Json<Value> {
    Json(json!({
        "kind": "bigquery#getServiceAccountResponse",
        "email": format!("bq-{project}@localhost"),
    }))
}
