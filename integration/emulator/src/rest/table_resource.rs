//! The table resource: what of it is stored, what is computed, and how a call changes it.

use axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use crate::catalog::{Table, TableRef};
use crate::rest::error::ApiError;
use crate::rest::fields::write_schema;
use crate::rest::jobs::table_reference;
use crate::schema::size::logical_bytes;

/// Fields of the resource that the server computes.
const COMPUTED: [&str; 15] = [
    "kind",
    "etag",
    "id",
    "selfLink",
    "tableReference",
    "numBytes",
    "numLongTermBytes",
    "numTotalLogicalBytes",
    "numActiveLogicalBytes",
    "numRows",
    "creationTime",
    "lastModifiedTime",
    "type",
    "location",
    "streamingBuffer",
];
/// Fields that make something else than a table or a view of it.
const OTHER_KINDS: [&str; 6] = [
    "materializedView",
    "externalDataConfiguration",
    "snapshotDefinition",
    "cloneDefinition",
    "biglakeConfiguration",
    "tableReplicationInfo",
];

/// Takes out of a body what is not the caller's to set.
///
/// # Errors
/// 501: it describes something that this emulator does not have.
pub(super) fn clean(body: &mut Map<String, Value>) -> Result<(), ApiError> {
    let is_set = |field: &&&str| body.get(**field).is_some_and(|value| !value.is_null());
    if let Some(field) = OTHER_KINDS.iter().find(is_set) {
        return Err(not_supported(field));
    }
    COMPUTED.iter().for_each(|field| drop(body.remove(*field)));
    Ok(())
}

/// The query of a body that describes a view.
///
/// # Errors
/// It is none that this emulator can run.
pub(super) fn view_query(body: &Map<String, Value>) -> Result<Option<String>, ApiError> {
    let Some(view) = body.get("view").filter(|view| !view.is_null()) else {
        return Ok(None);
    };
    // Legacy SQL is the default here, in BigQuery as well.
    if view.get("useLegacySql").and_then(Value::as_bool) != Some(false) {
        let text = "This emulator speaks GoogleSQL only: set view.useLegacySql to false";
        return Err(ApiError::new(501, "notImplemented", text));
    }
    let set = |field: &str| {
        view.get(field)
            .is_some_and(|value| value.as_array().is_some_and(|list| !list.is_empty()))
    };
    if set("userDefinedFunctionResources") {
        return Err(not_supported("view.userDefinedFunctionResources"));
    }
    match view.get("query").and_then(Value::as_str) {
        Some(query) => Ok(Some(query.to_owned())),
        None => Err(ApiError::new(
            400,
            "required",
            "Required parameter is missing: view.query",
        )),
    }
}

fn not_supported(field: &str) -> ApiError {
    let text = format!("This emulator does not support {field}");
    ApiError::new(501, "notImplemented", text)
}

/// Changes what a patch names: null takes away, maps are changed entry by entry, all else is replaced.
pub(super) fn merge(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (fields.get_mut(&name), value) {
            (_, Value::Null) => drop(fields.remove(&name)),
            (Some(Value::Object(inner)), Value::Object(patch)) => merge(inner, patch),
            (_, Value::Object(patch)) => {
                let mut inner = Map::new();
                merge(&mut inner, patch);
                fields.insert(name, Value::Object(inner));
            }
            (_, value) => drop(fields.insert(name, value)),
        }
    }
}

/// Whether a call that changes something knows its present state, if it says which one it knows.
///
/// # Errors
/// 412 `conditionNotMet`.
pub(super) fn check_etag(headers: &HeaderMap, etag: &str) -> Result<(), ApiError> {
    let Some(wanted) = headers.get(header::IF_MATCH) else {
        return Ok(());
    };
    let wanted = wanted.to_str().unwrap_or_default();
    let mut wanted = wanted.split(',').map(|etag| etag.trim().trim_matches('"'));
    if wanted.any(|wanted| wanted == "*" || wanted == etag) {
        return Ok(());
    }
    Err(ApiError::new(
        412,
        "conditionNotMet",
        "Precondition check failed.",
    ))
}

/// The entry of a list.
pub(super) fn entry(name: &TableRef, table: &Table) -> Value {
    let mut json = json!({
        "kind": "bigquery#table",
        "id": name.to_string(),
        "tableReference": table_reference(name),
        "type": kind(table),
        "creationTime": table.created_ms.to_string(),
    });
    for field in [
        "friendlyName",
        "labels",
        "timePartitioning",
        "rangePartitioning",
        "clustering",
        "expirationTime",
        "requirePartitionFilter",
    ] {
        if let Some(value) = table.rest.get(field) {
            json[field] = value.clone();
        }
    }
    if table.is_view() {
        json["view"] = json!({ "useLegacySql": false });
    }
    json
}

/// The whole resource.
pub(super) fn resource(name: &TableRef, table: &Table, location: &str) -> Value {
    let mut json = table.rest.clone();
    let bytes = logical_bytes(table.rows(), &table.schema).to_string();
    let computed = json!({
        "kind": "bigquery#table",
        "etag": table.etag(),
        "id": name.to_string(),
        "selfLink": format!("https://bigquery.googleapis.com/bigquery/v2/{}", name.path()),
        "tableReference": table_reference(name),
        "schema": write_schema(&table.schema),
        "numBytes": bytes,
        "numLongTermBytes": "0",
        "numRows": table.row_count().to_string(),
        "creationTime": table.created_ms.to_string(),
        "lastModifiedTime": table.modified_ms.to_string(),
        "type": kind(table),
        "location": location,
    });
    if let Value::Object(computed) = computed {
        json.extend(computed);
    }
    Value::Object(json)
}

fn kind(table: &Table) -> &'static str {
    if table.is_view() { "VIEW" } else { "TABLE" }
}
