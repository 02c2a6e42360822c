//! `tables.insert`, `get`, `list`, `delete`, and `tabledata.list`.

use arrow_array::RecordBatch;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::catalog::{DatasetRef, Table, TableRef};
use crate::machine::Machine;
use crate::rest::datasets::list_page;
use crate::rest::error::ApiError;
use crate::rest::fields::{read_schema, write_schema};
use crate::rest::request::{Body, Params, page_token, take_reference};
use crate::rest::{Api, rows, with_rows};
use crate::schema::Schema;

/// Fields of the resource that the server computes.
const COMPUTED: [&str; 12] = [
    "kind",
    "etag",
    "id",
    "selfLink",
    "numBytes",
    "numLongTermBytes",
    "numRows",
    "creationTime",
    "lastModifiedTime",
    "type",
    "location",
    "streamingBuffer",
];
/// Fields that make something else than a table of it.
const NOT_A_TABLE: [&str; 3] = ["view", "materializedView", "externalDataConfiguration"];

pub(super) async fn insert(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
    Body(mut body): Body,
) -> Result<Json<Value>, ApiError> {
    let path = [("projectId", project.as_str()), ("datasetId", dataset.as_str())];
    let id = take_reference(&mut body, "tableReference", "tableId", &path)?;
    if let Some(field) = NOT_A_TABLE
        .iter()
        .find(|field| body.get(**field).is_some_and(|value| !value.is_null()))
    {
        return Err(ApiError::new(
            501,
            "notImplemented",
            format!("This emulator does not support {field}"),
        ));
    }
    let schema = read_schema(&body.remove("schema").unwrap_or(Value::Null))?;
    COMPUTED.iter().for_each(|field| drop(body.remove(*field)));
    let name = TableRef::new(project, dataset, id);
    let now = api.shared.now();
    api.shared.with(|machine| {
        machine.create_table(&name, schema, body, now)?;
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
) -> Result<StatusCode, ApiError> {
    let name = TableRef::new(project, dataset, table);
    api.shared.with(|machine| machine.delete_table(&name))?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(
    State(api): State<Api>,
    Path((project, dataset)): Path<(String, String)>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let dataset = DatasetRef::new(project, dataset);
    let entries: Vec<Value> = api.shared.with(|machine| {
        let tables = &machine.catalog().dataset(&dataset)?.tables;
        let name = |table| TableRef::new(&dataset.project, &dataset.dataset, table);
        Ok::<_, ApiError>(tables.iter().map(|(id, table)| entry(&name(id), table)).collect())
    })?;
    let total = entries.len();
    let (entries, next) = list_page(entries, &params)?;
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
    let (start, most) = (params.start()?, params.number("maxResults")?);
    let (batches, total, etag, selected) = api.shared.with(|machine| {
        let table = machine.catalog().table(&name)?;
        let selected = params
            .text("selectedFields")
            .map(|fields| select(&table.schema, fields));
        Ok::<_, ApiError>((
            table.rows().to_vec(),
            table.row_count(),
            table.etag(),
            selected.transpose()?,
        ))
    })?;
    let batches = match selected {
        None => batches,
        Some(columns) => project_all(&batches, &columns)?,
    };
    let page = rows::page(&batches, start, most, params.timestamps())?;
    let mut head = json!({
        "kind": "bigquery#tableDataList",
        "etag": etag,
        "totalRows": total.to_string(),
    });
    if page.next < total {
        head["pageToken"] = page_token(page.next).into();
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

fn reference(name: &TableRef) -> Value {
    json!({ "projectId": name.project, "datasetId": name.dataset, "tableId": name.table })
}

fn entry(name: &TableRef, table: &Table) -> Value {
    let mut json = json!({
        "kind": "bigquery#table",
        "id": name.to_string(),
        "tableReference": reference(name),
        "type": "TABLE",
        "creationTime": table.created_ms.to_string(),
    });
    for field in [
        "friendlyName",
        "labels",
        "timePartitioning",
        "rangePartitioning",
        "clustering",
        "expirationTime",
    ] {
        if let Some(value) = table.rest.get(field) {
            json[field] = value.clone();
        }
    }
    json
}

fn resource(name: &TableRef, table: &Table, location: &str) -> Value {
    let mut json = table.rest.clone();
    let computed = json!({
        "kind": "bigquery#table",
        "etag": table.etag(),
        "id": name.to_string(),
        "selfLink": format!("https://bigquery.googleapis.com/bigquery/v2/{}", name.path()),
        "tableReference": reference(name),
        "schema": write_schema(&table.schema),
        "numBytes": "0",
        "numLongTermBytes": "0",
        "numRows": table.row_count().to_string(),
        "creationTime": table.created_ms.to_string(),
        "lastModifiedTime": table.modified_ms.to_string(),
        "type": "TABLE",
        "location": location,
    });
    if let Value::Object(computed) = computed {
        json.extend(computed);
    }
    Value::Object(json)
}
