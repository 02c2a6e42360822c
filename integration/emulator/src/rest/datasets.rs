//! `datasets.insert`, `get`, `patch`, `update`, `list`, `delete`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use crate::catalog::{Dataset, DatasetRef};
use crate::description::{check_labels, check_values_as_written, integer};
use crate::rest::Api;
use crate::rest::error::ApiError;
use crate::rest::paging::list_page;
use crate::rest::request::{Body, Params, take_reference};
use crate::rest::table_resource::{check_etag, merge};

/// Fields of the resource that the server computes.
const COMPUTED: [&str; 8] = [
    "kind",
    "etag",
    "id",
    "selfLink",
    "location",
    "creationTime",
    "lastModifiedTime",
    "type",
];

pub(super) async fn insert(
    State(api): State<Api>,
    Path(project): Path<String>,
    Body(mut body): Body,
) -> Result<Json<Value>, ApiError> {
    let id = take_reference(
        &mut body,
        "datasetReference",
        "datasetId",
        &[("projectId", &project)],
    )?;
    let location = body
        .get("location")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    COMPUTED.iter().for_each(|field| drop(body.remove(*field)));
    let body = check(body)?;
    let name = DatasetRef::new(project, id);
    let now = api.shared.now();
    api.shared.with(|machine| {
        let dataset = machine.create_dataset(&name, &location, body, now)?;
        Ok(Json(resource(&name, dataset)))
    })
}

pub(super) async fn patch(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    change(&api, path, &headers, body, true)
}

/// As `patch`, but what is not named goes.
pub(super) async fn update(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    change(&api, path, &headers, body, false)
}

/// A POST that says by a header which method it means: not every HTTP library has PATCH.
pub(super) async fn overridden(
    api: State<Api>,
    path: Path<(String, String)>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let method = headers.get("x-http-method-override");
    match method.and_then(|method| method.to_str().ok()) {
        Some("PATCH") => Ok(patch(api, path, headers, body).await?.into_response()),
        Some("PUT") => Ok(update(api, path, headers, body).await?.into_response()),
        Some("DELETE") => Ok(delete(api, path, params, headers).await?.into_response()),
        _ => Err(ApiError::new(
            404,
            "notFound",
            "This emulator does not serve POST here without X-HTTP-Method-Override",
        )),
    }
}

fn change(
    api: &Api,
    (project, dataset): (String, String),
    headers: &HeaderMap,
    mut body: Map<String, Value>,
    keep: bool,
) -> Result<Json<Value>, ApiError> {
    let name = DatasetRef::new(project, dataset);
    body.remove("datasetReference");
    let location = body.remove("location");
    COMPUTED.iter().for_each(|field| drop(body.remove(*field)));
    let now = api.shared.now();
    api.shared.with(|machine| {
        let dataset = machine.catalog().dataset(&name)?;
        check_etag(headers, &dataset.etag())?;
        let moved = |to: &str| !to.eq_ignore_ascii_case(&dataset.location);
        if location.as_ref().and_then(Value::as_str).is_some_and(moved) {
            return Err(ApiError::invalid("A dataset's location cannot be changed"));
        }
        let mut rest = if keep { dataset.rest.clone() } else { Map::new() };
        merge(&mut rest, body);
        let rest = check(rest)?;
        let dataset = machine.update_dataset(&name, rest, now)?;
        Ok(Json(resource(&name, dataset)))
    })
}

/// The fields in the form in which they are given back.
fn check(mut rest: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    rest.retain(|_, value| !value.is_null());
    check_labels(rest.get("labels"))?;
    check_values_as_written(&rest)?;
    for field in ["defaultTableExpirationMs", "defaultPartitionExpirationMs"] {
        let Some(value) = rest.get(field) else {
            continue;
        };
        let Some(ms) = integer(value).filter(|ms| *ms >= 0) else {
            let text = format!("Invalid value for {field}: it must be a number of milliseconds");
            return Err(ApiError::invalid(text));
        };
        rest.insert(field.to_owned(), ms.to_string().into());
    }
    Ok(rest)
}

pub(super) async fn get(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let name = DatasetRef::new(project, dataset);
    api.shared
        .with(|machine| Ok(Json(resource(&name, machine.catalog().dataset(&name)?))))
}

pub(super) async fn delete(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
    params: Params,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let name = DatasetRef::new(project, dataset);
    let with_tables = params.flag("deleteContents");
    api.shared.with(|machine| {
        check_etag(&headers, &machine.catalog().dataset(&name)?.etag())?;
        Ok::<_, ApiError>(machine.delete_dataset(&name, with_tables)?)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(
    State(api): State<Api>,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let entries = api.shared.with(|machine| {
        let datasets = machine.catalog().datasets_of(&project);
        let keyed = |(name, dataset): (&DatasetRef, &Dataset)| (name.dataset.clone(), entry(name, dataset));
        datasets.map(keyed).collect()
    });
    let (entries, next) = list_page(&format!("datasets {project}"), entries, &params)?;
    let mut json = json!({ "kind": "bigquery#datasetList", "etag": "list", "datasets": entries });
    if let Some(next) = next {
        json["nextPageToken"] = next.into();
    }
    Ok(Json(json))
}

fn entry(name: &DatasetRef, dataset: &Dataset) -> Value {
    let mut json = json!({
        "kind": "bigquery#dataset",
        "id": name.to_string(),
        "datasetReference": { "projectId": name.project, "datasetId": name.dataset },
        "location": dataset.location,
    });
    for field in ["labels", "friendlyName"] {
        if let Some(value) = dataset.rest.get(field) {
            json[field] = value.clone();
        }
    }
    json
}

fn resource(name: &DatasetRef, dataset: &Dataset) -> Value {
    let mut json = dataset.rest.clone();
    let (project, id) = (&name.project, &name.dataset);
    let computed = json!({
        "kind": "bigquery#dataset",
        "etag": dataset.etag(),
        "id": name.to_string(),
        "selfLink": format!("https://bigquery.googleapis.com/bigquery/v2/projects/{project}/datasets/{id}"),
        "datasetReference": { "projectId": project, "datasetId": id },
        "location": dataset.location,
        "creationTime": dataset.created_ms.to_string(),
        "lastModifiedTime": dataset.modified_ms.to_string(),
        "type": "DEFAULT",
    });
    if let Value::Object(computed) = computed {
        json.extend(computed);
    }
    Value::Object(json)
}
