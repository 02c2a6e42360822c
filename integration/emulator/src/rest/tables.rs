//! `tables.insert`, `get`, `patch`, `update`, `list`, `delete`, and `tabledata.list`.

use arrow_array::RecordBatch;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use crate::catalog::{DatasetRef, TableRef};
use crate::description::Description;
use crate::machine::Machine;
use crate::query::view_schema;
use crate::rest::error::ApiError;
use crate::rest::fields::read_schema;
use crate::rest::paging::{first_row, list_page, next_rows};
use crate::rest::request::{Body, Params, take_reference};
use crate::rest::table_resource::{check_etag, clean, entry, merge, resource, view_query};
use crate::rest::{Api, rows, with_rows};
use crate::schema::Schema;

pub(super) async fn insert(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
    Body(mut body): Body,
) -> Result<Json<Value>, ApiError> {
    let path = [("projectId", project.as_str()), ("datasetId", dataset.as_str())];
    let id = take_reference(&mut body, "tableReference", "tableId", &path)?;
    clean(&mut body)?;
    let given = body.remove("schema").unwrap_or(Value::Null);
    let name = TableRef::new(project, dataset, id);
    let schema = match view_query(&body)? {
        None => read_schema(&given)?,
        Some(query) => view_schema(&api.shared, &name, &query).await?,
    };
    let now = api.shared.now();
    let description = Description { schema, rest: body }.check(now)?;
    api.shared.with(|machine| {
        let Description { schema, rest } = description.with_defaults(machine.catalog(), &name, now);
        machine.create_table(&name, schema, rest, now)?;
        described(machine, &name)
    })
}

pub(super) async fn patch(
    State(api): State<Api>,
    Path(path): Path<(String, String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    change(&api, path, &headers, body, true).await
}

/// As `patch`, but what is not named goes, the columns excepted.
pub(super) async fn update(
    State(api): State<Api>,
    Path(path): Path<(String, String, String)>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    change(&api, path, &headers, body, false).await
}

/// A POST that says by a header which method it means: not every HTTP library has PATCH.
pub(super) async fn overridden(
    api: State<Api>,
    path: Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let method = headers.get("x-http-method-override");
    match method.and_then(|method| method.to_str().ok()) {
        Some("PATCH") => Ok(patch(api, path, headers, body).await?.into_response()),
        Some("PUT") => Ok(update(api, path, headers, body).await?.into_response()),
        Some("DELETE") => Ok(delete(api, path, headers).await?.into_response()),
        _ => Err(ApiError::new(
            404,
            "notFound",
            "This emulator does not serve POST here without X-HTTP-Method-Override",
        )),
    }
}

async fn change(
    api: &Api,
    (project, dataset, table): (String, String, String),
    headers: &HeaderMap,
    mut body: Map<String, Value>,
    keep: bool,
) -> Result<Json<Value>, ApiError> {
    let name = TableRef::new(project, dataset, table);
    clean(&mut body)?;
    let given = body.remove("schema").filter(|schema| !schema.is_null());
    let schema = match view_query(&body)? {
        None => given.as_ref().map(read_schema).transpose()?,
        Some(query) => Some(view_schema(&api.shared, &name, &query).await?),
    };
    let now = api.shared.now();
    api.shared.with(|machine| {
        let table = machine.catalog().table(&name)?;
        check_etag(headers, &table.etag())?;
        let mut rest = if keep { table.rest.clone() } else { Map::new() };
        merge(&mut rest, body);
        let schema = schema.unwrap_or_else(|| table.schema.clone());
        let new = Description { schema, rest }.check_change(&name, table, now)?;
        machine.update_table(&name, new.schema, new.rest, now)?;
        described(machine, &name)
    })
}

pub(super) async fn get(
    State(api): State<Api>,
    Path((project, dataset, table)): Path<(String, String, String)>,
) -> Result<Json<Value>, ApiError> {
    let name = TableRef::new(project, dataset, table);
    api.shared.with(|machine| described(machine, &name))
}

pub(super) async fn delete(
    State(api): State<Api>,
    Path((project, dataset, table)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let name = TableRef::new(project, dataset, table);
    api.shared.with(|machine| {
        check_etag(&headers, &machine.catalog().table(&name)?.etag())?;
        Ok::<_, ApiError>(machine.delete_table(&name)?)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let dataset = DatasetRef::new(project, dataset);
    let entries: Vec<_> = api.shared.with(|machine| {
        let tables = &machine.catalog().dataset(&dataset)?.tables;
        let name = |table: &str| TableRef::new(&dataset.project, &dataset.dataset, table);
        let keyed = |(id, table): (&String, _)| (id.clone(), entry(&name(id), table));
        Ok::<_, ApiError>(tables.iter().map(keyed).collect())
    })?;
    let total = entries.len();
    let (entries, next) = list_page(&format!("tables {dataset}"), entries, &params)?;
    let mut json = json!({
        "kind": "bigquery#tableList",
        "etag": "list",
        "tables": entries,
        "totalItems": total,
    });
    if let Some(next) = next {
        json["nextPageToken"] = next.into();
    }
    Ok(Json(json))
}

pub(super) async fn data(
    State(api): State<Api>,
    Path((project, dataset, table)): Path<(String, String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let name = TableRef::new(project, dataset, table);
    let most = params.number("maxResults")?;
    let (batches, total, id, etag, selected) = api.shared.with(|machine| {
        let table = machine.catalog().table(&name)?;
        if table.is_view() {
            return Err(ApiError::invalid("Cannot list a table of type VIEW."));
        }
        let selected = params
            .text("selectedFields")
            .map(|fields| select(&table.schema, fields));
        let rows = table.rows().to_vec();
        // The table may count rows that it does not keep.
        let total: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
        Ok::<_, ApiError>((rows, total, table.id, table.etag(), selected.transpose()?))
    })?;
    let batches = match selected {
        None => batches,
        Some(columns) => project_all(&batches, &columns)?,
    };
    // A table that is made again is another one.
    let what = format!("rows {id}");
    let start = first_row(&what, &params)?;
    let page = rows::page(&batches, start, most, params.timestamps())?;
    let mut head = json!({
        "kind": "bigquery#tableDataList",
        "etag": etag,
        "totalRows": total.to_string(),
    });
    if let Some(token) = next_rows(&what, page.next, total, most) {
        head["pageToken"] = token.into();
    }
    Ok(with_rows(&head, &page.rows))
}

/// Indices of the selected columns, in the table's order.
fn select(schema: &Schema, fields: &str) -> Result<Vec<usize>, ApiError> {
    let wanted: Vec<&str> = fields.split(',').map(str::trim).collect();
    if let Some(unknown) = wanted.iter().find(|name| schema.column(name).is_none()) {
        return Err(ApiError::invalid(format!(
            "Invalid selected field: {unknown} is not a top-level column"
        )));
    }
    let columns = schema.columns.iter().enumerate();
    let chosen = columns.filter(|(_, column)| wanted.iter().any(|name| column.is_named(name)));
    Ok(chosen.map(|(i, _)| i).collect())
}

fn project_all(batches: &[RecordBatch], columns: &[usize]) -> Result<Vec<RecordBatch>, ApiError> {
    let projected = batches
        .iter()
        .map(|batch| batch.project(columns))
        .collect::<Result<_, _>>();
    projected.map_err(|error| ApiError::new(500, "internalError", error.to_string()))
}

fn described(machine: &Machine, name: &TableRef) -> Result<Json<Value>, ApiError> {
    let table = machine.catalog().table(name)?;
    let location = &machine.catalog().dataset(&name.dataset_ref())?.location;
    Ok(Json(resource(name, table, location)))
}
