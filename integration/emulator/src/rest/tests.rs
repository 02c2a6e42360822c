//! The REST API through its router, by full answers.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::jobs::{Done, Job};
use super::*;
use crate::catalog::TableRef;
use crate::machine::Machine;

mod bq;
mod changes;
mod control;
mod insert_all;
mod job_calls;
mod statements;

const NOW: i64 = 1_700_000_000_000;

struct World {
    shared: Shared,
    router: Router,
}

impl World {
    fn new() -> Self {
        let shared = Shared::new(Machine::default(), Arc::new(|| NOW));
        let router = router(Api::new(Service::new(shared.clone())));
        Self { shared, router }
    }

    /// With dataset `p.d` and table `p.d.t` (id INT64, at TIMESTAMP) of rows 0, 1, 2...
    async fn with_rows(rows: i64) -> Self {
        let world = Self::new();
        world
            .post("datasets", json!({ "datasetReference": { "datasetId": "d" } }))
            .await;
        let fields = json!([
            { "name": "id", "type": "INTEGER", "mode": "REQUIRED" },
            { "name": "at", "type": "TIMESTAMP" },
        ]);
        let body = json!({ "tableReference": { "tableId": "t" }, "schema": { "fields": fields } });
        world.post("datasets/d/tables", body).await;
        let table = TableRef::new("p", "d", "t");
        for id in 0..rows {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(vec![id])),
                Arc::new(TimestampMicrosecondArray::from(vec![id * 1_500_000]).with_timezone("UTC")),
            ];
            world.shared.with(|machine| {
                let schema = machine.catalog().table(&table).unwrap().schema.arrow();
                let batch = RecordBatch::try_new(schema, columns).unwrap();
                machine.publish(&table, batch, NOW).unwrap();
            });
        }
        world
    }

    async fn call(&self, method: &str, path: &str, body: Body) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/bigquery/v2/projects/p/{path}"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 64 << 20).await.unwrap();
        if status == StatusCode::NO_CONTENT {
            assert!(bytes.is_empty());
            return (204, Value::Null);
        }
        (status.as_u16(), serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, Body::empty()).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.call("POST", path, Body::from(body.to_string())).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn refused(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, body) = self.call(method, path, Body::from(body.to_string())).await;
        assert_eq!(body["error"]["code"], status, "{body}");
        body
    }
}

fn error(code: u16, status: &str, reason: &str, message: &str) -> Value {
    json!({ "error": {
        "code": code,
        "message": message,
        "errors": [{ "message": message, "domain": "global", "reason": reason }],
        "status": status,
    } })
}

fn row(cells: [&str; 2]) -> Value {
    json!({ "f": [{ "v": cells[0] }, { "v": cells[1] }] })
}

#[tokio::test]
async fn a_dataset_is_made_found_listed_and_deleted() {
    let world = World::new();
    let body = json!({
        "datasetReference": { "projectId": "p", "datasetId": "d" },
        "labels": { "a": "b" },
        "location": "EU",
    });
    let made = world.post("datasets", body.clone()).await;
    let mut expected = json!({
        "kind": "bigquery#dataset",
        "etag": made["etag"],
        "id": "p:d",
        "selfLink": "https://bigquery.googleapis.com/bigquery/v2/projects/p/datasets/d",
        "datasetReference": { "projectId": "p", "datasetId": "d" },
        "labels": { "a": "b" },
        "location": "EU",
        "creationTime": NOW.to_string(),
        "lastModifiedTime": NOW.to_string(),
        "type": "DEFAULT",
    });
    assert_eq!(made, expected);
    assert_eq!(world.get("datasets/d").await, expected);
    for field in ["etag", "selfLink", "creationTime", "lastModifiedTime", "type"] {
        expected.as_object_mut().unwrap().remove(field);
    }
    let list = json!({ "kind": "bigquery#datasetList", "etag": "list", "datasets": [expected] });
    assert_eq!(world.get("datasets").await, list);
    let twice = error(409, "ALREADY_EXISTS", "duplicate", "Already Exists: Dataset p:d");
    assert_eq!(world.refused("POST", "datasets", body).await, twice);
    assert_eq!(world.call("DELETE", "datasets/d", Body::empty()).await.0, 204);
    let gone = error(404, "NOT_FOUND", "notFound", "Not found: Dataset p:d");
    assert_eq!(world.refused("GET", "datasets/d", Value::Null).await, gone);
}

#[tokio::test]
async fn a_table_is_made_found_listed_and_deleted() {
    let world = World::with_rows(2).await;
    let table = world.get("datasets/d/tables/t").await;
    let expected = json!({
        "kind": "bigquery#table",
        "etag": table["etag"],
        "id": "p:d.t",
        "selfLink": "https://bigquery.googleapis.com/bigquery/v2/projects/p/datasets/d/tables/t",
        "tableReference": { "projectId": "p", "datasetId": "d", "tableId": "t" },
        "schema": { "fields": [
            { "name": "id", "type": "INTEGER", "mode": "REQUIRED" },
            { "name": "at", "type": "TIMESTAMP", "mode": "NULLABLE" },
        ] },
        "numBytes": "32",
        "numLongTermBytes": "0",
        "numRows": "2",
        "creationTime": NOW.to_string(),
        "lastModifiedTime": NOW.to_string(),
        "type": "TABLE",
        "location": "US",
    });
    assert_eq!(table, expected);
    let list = world.get("datasets/d/tables").await;
    let entry = json!({
        "kind": "bigquery#table",
        "id": "p:d.t",
        "tableReference": { "projectId": "p", "datasetId": "d", "tableId": "t" },
        "type": "TABLE",
        "creationTime": NOW.to_string(),
    });
    let expected =
        json!({ "kind": "bigquery#tableList", "etag": "list", "tables": [entry], "totalItems": 1 });
    assert_eq!(list, expected);
    let in_use = error(
        400,
        "INVALID_ARGUMENT",
        "resourceInUse",
        "Dataset p:d is still in use",
    );
    assert_eq!(world.refused("DELETE", "datasets/d", Value::Null).await, in_use);
    assert_eq!(
        world.call("DELETE", "datasets/d/tables/t", Body::empty()).await.0,
        204
    );
    let gone = error(404, "NOT_FOUND", "notFound", "Not found: Table p:d.t");
    assert_eq!(
        world.refused("DELETE", "datasets/d/tables/t", Value::Null).await,
        gone
    );
}

#[tokio::test]
async fn what_a_table_was_made_with_is_given_back() {
    let world = World::with_rows(0).await;
    let given = json!({
        "tableReference": { "projectId": "p", "datasetId": "d", "tableId": "u" },
        "schema": { "fields": [{ "name": "day", "type": "DATE" }] },
        "description": "text",
        "labels": { "a": "b" },
        "timePartitioning": { "type": "DAY", "field": "day" },
        "numRows": "77",
    });
    let made = world.post("datasets/d/tables", given.clone()).await;
    for field in ["description", "labels", "timePartitioning", "tableReference"] {
        assert_eq!(made[field], given[field], "{field}");
    }
    assert_eq!(made["numRows"], "0");
    let twice = error(409, "ALREADY_EXISTS", "duplicate", "Already Exists: Table p:d.u");
    assert_eq!(world.refused("POST", "datasets/d/tables", given).await, twice);
}

#[tokio::test]
async fn rows_of_a_table_come_in_pages() {
    let world = World::with_rows(5).await;
    let path = "datasets/d/tables/t/data?maxResults=2&prettyPrint=false";
    let first = world.get(path).await;
    let expected = json!({
        "kind": "bigquery#tableDataList",
        "etag": first["etag"],
        "totalRows": "5",
        "pageToken": first["pageToken"],
        "rows": [row(["0", "0.0"]), row(["1", "1.5"])],
    });
    assert_eq!(first, expected);
    let token = first["pageToken"].as_str().unwrap();
    let second = world.get(&format!("{path}&pageToken={token}")).await;
    assert_eq!(second["rows"], json!([row(["2", "3.0"]), row(["3", "4.5"])]));
    let token = second["pageToken"].as_str().unwrap();
    let last = world
        .get(&format!(
            "{path}&pageToken={token}&formatOptions.useInt64Timestamp=True"
        ))
        .await;
    assert_eq!(last["rows"], json!([row(["4", "6000000"])]));
    assert_eq!(last.get("pageToken"), None);
    let chosen = world
        .get("datasets/d/tables/t/data?startIndex=3&selectedFields=ID")
        .await;
    assert_eq!(
        chosen["rows"],
        json!([{ "f": [{ "v": "3" }] }, { "f": [{ "v": "4" }] }])
    );
    let iso = world
        .get(&format!(
            "{path}&formatOptions.timestampOutputFormat=ISO8601_STRING&startIndex=1"
        ))
        .await;
    assert_eq!(iso["rows"][0], row(["1", "1970-01-01T00:00:01.500000Z"]));
}

#[tokio::test]
async fn a_table_counts_discarded_rows_and_lists_those_that_are_there() {
    let world = World::with_rows(2).await;
    world.shared.with(|machine| {
        machine.discard_rows();
        let table = TableRef::new("p", "d", "t");
        let rows = machine.catalog().table(&table).unwrap().all_rows();
        machine.publish(&table, rows, NOW).unwrap();
    });
    assert_eq!(world.get("datasets/d/tables/t").await["numRows"], "4");
    let listed = world.get("datasets/d/tables/t/data").await;
    let expected = json!({
        "kind": "bigquery#tableDataList",
        "etag": listed["etag"],
        "totalRows": "2",
        "rows": [row(["0", "0.0"]), row(["1", "1.5"])],
    });
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn a_query_answers_at_once_and_its_job_pages_through_the_rest() {
    let world = World::with_rows(5).await;
    let body = json!({
        "query": "SELECT id, at AS moment FROM t WHERE id > 0 ORDER BY id DESC",
        "defaultDataset": { "datasetId": "d" },
        "maxResults": 3,
        "useLegacySql": false,
        "formatOptions": { "useInt64Timestamp": true },
    });
    let answer = world.post("queries", body).await;
    let id = answer["jobReference"]["jobId"].as_str().unwrap().to_owned();
    let mut expected = json!({
        "kind": "bigquery#queryResponse",
        "etag": "results",
        "schema": { "fields": [
            { "name": "id", "type": "INTEGER", "mode": "NULLABLE" },
            { "name": "moment", "type": "TIMESTAMP", "mode": "NULLABLE" },
        ] },
        "jobReference": { "projectId": "p", "jobId": id, "location": "US" },
        "totalRows": "4",
        "totalBytesProcessed": "0",
        "jobComplete": true,
        "cacheHit": false,
        "pageToken": answer["pageToken"],
        "rows": [row(["4", "6000000"]), row(["3", "4500000"]), row(["2", "3000000"])],
    });
    assert_eq!(answer, expected);
    let token = answer["pageToken"].as_str().unwrap();
    let rest = world.get(&format!("queries/{id}?pageToken={token}")).await;
    expected["kind"] = "bigquery#getQueryResultsResponse".into();
    expected["rows"] = json!([row(["1", "1.5"])]);
    expected.as_object_mut().unwrap().remove("pageToken");
    assert_eq!(rest, expected);
    let none = world
        .get(&format!("queries/{id}?maxResults=0&timeoutMs=10000&location=US"))
        .await;
    assert_eq!((none.get("rows"), none.get("pageToken")), (None, None));
    // A token is good for what it was given for.
    let wrong = error(
        400,
        "INVALID_ARGUMENT",
        "invalid",
        &format!("Invalid page token: {token}"),
    );
    for path in [
        "datasets/d/tables/t/data",
        "datasets",
        "datasets/d/tables",
        "jobs",
    ] {
        let path = format!("{path}?pageToken={token}");
        assert_eq!(world.refused("GET", &path, Value::Null).await, wrong);
    }
}

#[tokio::test]
async fn pages_of_a_list_lose_nothing_when_entries_come_and_go_between_them() {
    let world = World::with_rows(1).await;
    let body = |id: &str| {
        let fields = json!([{ "name": "a", "type": "INTEGER" }]);
        json!({ "tableReference": { "tableId": id }, "schema": { "fields": fields } })
    };
    for id in ["a", "b", "c"] {
        world.post("datasets/d/tables", body(id)).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let tables = page["tables"].as_array().unwrap().iter();
        let id = |table: &Value| table["tableReference"]["tableId"].as_str().unwrap().to_owned();
        tables.map(id).collect()
    };
    let first = world.get("datasets/d/tables?maxResults=2").await;
    assert_eq!(ids(&first), ["a", "b"]);
    assert_eq!(
        world.call("DELETE", "datasets/d/tables/a", Body::empty()).await.0,
        204
    );
    let token = first["nextPageToken"].as_str().unwrap();
    let rest = world.get(&format!("datasets/d/tables?pageToken={token}")).await;
    assert_eq!(
        (ids(&rest), rest.get("nextPageToken")),
        (vec!["c".to_owned(), "t".to_owned()], None)
    );
    let all = world.get("datasets/d/tables?maxResults=0").await;
    assert_eq!((ids(&all).len(), all.get("nextPageToken")), (3, None));
    let page = world.get("datasets/d/tables/t/data?maxResults=0").await;
    assert_eq!((page.get("rows"), page.get("pageToken")), (None, None));
}

#[tokio::test]
async fn what_is_deleted_is_in_the_state_that_the_caller_knows() {
    let world = World::with_rows(0).await;
    let delete = |path: &'static str, etag: String| {
        let request = Request::builder()
            .method("DELETE")
            .uri(format!("/bigquery/v2/projects/p/{path}"))
            .header("if-match", etag)
            .body(Body::empty())
            .unwrap();
        let router = world.router.clone();
        async move { router.oneshot(request).await.unwrap().status().as_u16() }
    };
    for path in ["datasets/d/tables/t", "datasets/d"] {
        let etag = world.get(path).await["etag"].as_str().unwrap().to_owned();
        assert_eq!(delete(path, "other".to_owned()).await, 412);
        assert_eq!(delete(path, etag).await, 204);
    }
}

#[tokio::test]
async fn a_query_job_is_done_when_it_is_inserted() {
    let world = World::with_rows(1).await;
    let configuration =
        json!({ "query": { "query": "SELECT COUNT(*) FROM `p.d.t`", "useLegacySql": false } });
    let reference = json!({ "projectId": "p", "jobId": "mine" });
    let body = json!({ "jobReference": reference, "configuration": configuration });
    let job = world.post("jobs", body.clone()).await;
    let expected = json!({
        "kind": "bigquery#job",
        "etag": "job",
        "id": "p:US.mine",
        "selfLink": "https://bigquery.googleapis.com/bigquery/v2/projects/p/jobs/mine",
        "user_email": "emulator@localhost",
        "jobReference": { "projectId": "p", "jobId": "mine", "location": "US" },
        "configuration": configuration,
        "status": { "state": "DONE" },
        "statistics": {
            "creationTime": NOW.to_string(),
            "startTime": NOW.to_string(),
            "endTime": NOW.to_string(),
            "totalBytesProcessed": "0",
            "query": {
                "statementType": "SELECT",
                "totalBytesProcessed": "0",
                "totalBytesBilled": "0",
                "cacheHit": false,
            },
        },
    });
    assert_eq!(job, expected);
    assert_eq!(world.get("jobs/mine?projection=full").await, expected);
    let cancelled = world.post("jobs/mine/cancel", json!({})).await;
    assert_eq!(
        cancelled,
        json!({ "kind": "bigquery#jobCancelResponse", "job": expected })
    );
    let twice = error(
        409,
        "ALREADY_EXISTS",
        "duplicate",
        "Already Exists: Job p:US.mine",
    );
    assert_eq!(world.refused("POST", "jobs", body).await, twice);
    let rows = world.get("queries/mine").await["rows"].take();
    assert_eq!(rows, json!([{ "f": [{ "v": "1" }] }]));
}

#[tokio::test]
async fn a_failed_query_is_a_done_job_with_an_error_and_has_no_results() {
    let world = World::with_rows(0).await;
    let query = json!({ "query": "SELECT * FROM d.missing" });
    let body = json!({ "jobReference": { "jobId": "bad" }, "configuration": { "query": query } });
    let job = world.post("jobs", body).await;
    let text = "Not found: Table p:d.missing was not found in location US";
    let proto = json!({ "reason": "notFound", "message": text });
    assert_eq!(
        job["status"],
        json!({ "state": "DONE", "errorResult": proto, "errors": [proto] })
    );
    let refused = error(404, "NOT_FOUND", "notFound", text);
    assert_eq!(world.refused("GET", "queries/bad", Value::Null).await, refused);
    assert_eq!(world.refused("POST", "queries", query).await, refused);
}

#[tokio::test]
async fn bad_calls_are_refused_in_googles_shape() {
    let world = World::with_rows(1).await;
    let reference = json!({ "tableReference": { "tableId": "v" } });
    let with = |field: &str, value: Value| {
        let mut body = reference.clone();
        body[field] = value;
        body
    };
    let bad = "INVALID_ARGUMENT";
    for (method, path, body, expected) in [
        (
            "GET",
            "nowhere",
            Value::Null,
            error(
                404,
                "NOT_FOUND",
                "notFound",
                "This emulator does not serve GET /bigquery/v2/projects/p/nowhere",
            ),
        ),
        (
            "PUT",
            "datasets",
            Value::Null,
            error(
                404,
                "NOT_FOUND",
                "notFound",
                "This emulator does not serve PUT /bigquery/v2/projects/p/datasets",
            ),
        ),
        (
            "POST",
            "datasets",
            json!({}),
            error(400, bad, "required", "Required parameter is missing: datasetId"),
        ),
        (
            "POST",
            "datasets",
            json!([]),
            error(
                400,
                bad,
                "parseError",
                "Invalid JSON payload received. invalid type: sequence, expected a map at line 1 column 0",
            ),
        ),
        (
            "POST",
            "datasets",
            json!({ "datasetReference": { "datasetId": "a-b" } }),
            error(
                400,
                bad,
                "invalid",
                "Invalid dataset ID \"a-b\". Dataset IDs must be alphanumeric (plus underscores) and must be at most 1024 characters long.",
            ),
        ),
        (
            "POST",
            "datasets/d/tables",
            json!({ "tableReference": { "tableId": "v", "datasetId": "e" } }),
            error(
                400,
                bad,
                "invalid",
                "Value 'e' of tableReference.datasetId is not that of the path: 'd'",
            ),
        ),
        (
            "POST",
            "datasets/e/tables",
            reference.clone(),
            error(404, "NOT_FOUND", "notFound", "Not found: Dataset p:e"),
        ),
        (
            "POST",
            "datasets/d/tables",
            with("view", json!({ "query": "SELECT 1" })),
            error(
                501,
                "UNIMPLEMENTED",
                "notImplemented",
                "This emulator speaks GoogleSQL only: set view.useLegacySql to false",
            ),
        ),
        (
            "POST",
            "datasets/d/tables",
            with("schema", json!({ "fields": [{ "name": "a", "type": "X" }] })),
            error(
                400,
                bad,
                "invalid",
                "Invalid value for type: X is not a valid value (field a)",
            ),
        ),
        (
            "POST",
            "datasets/d/tables",
            with(
                "schema",
                json!({ "fields": [{ "name": "_table_suffix", "type": "STRING" }] }),
            ),
            error(
                400,
                bad,
                "invalid",
                "Invalid field name \"_table_suffix\". Field names are not allowed to start with the (case-insensitive) \
                 prefixes _PARTITION, _TABLE_, _FILE_, _ROW_TIMESTAMP, __ROOT__ and _COLIDENTIFIER",
            ),
        ),
        (
            "GET",
            "datasets/d/tables/t/data?pageToken=x",
            Value::Null,
            error(400, bad, "invalid", "Invalid page token: x"),
        ),
        (
            "GET",
            "datasets/d/tables/t/data?maxResults=-1",
            Value::Null,
            error(
                400,
                bad,
                "invalid",
                "Invalid value for maxResults: it must be a number >= 0",
            ),
        ),
        (
            "GET",
            "datasets/d/tables/t/data?selectedFields=id,x",
            Value::Null,
            error(
                400,
                bad,
                "invalid",
                "Invalid selected field: x is not a top-level column",
            ),
        ),
        (
            "GET",
            "jobs/none",
            Value::Null,
            error(404, "NOT_FOUND", "notFound", "Not found: Job p:none"),
        ),
        (
            "POST",
            "jobs",
            json!({ "configuration": {} }),
            error(
                400,
                bad,
                "required",
                "This emulator runs query jobs only: configuration.query is missing",
            ),
        ),
        (
            "POST",
            "queries",
            json!({ "query": "SELECT 1", "useLegacySql": true }),
            error(
                501,
                "UNIMPLEMENTED",
                "notImplemented",
                "This emulator speaks GoogleSQL only: set useLegacySql to false",
            ),
        ),
        (
            "POST",
            "queries",
            json!({ "query": "SELECT 1", "queryParameters": [{}] }),
            error(400, bad, "invalid", "Query parameter 1 has no type"),
        ),
        (
            "POST",
            "queries",
            json!({ "query": "SELECT 1", "destinationTable": { "tableId": "u" } }),
            error(
                501,
                "UNIMPLEMENTED",
                "notImplemented",
                "This emulator does not support destinationTable",
            ),
        ),
        (
            "POST",
            "queries",
            json!({ "query": "SELECT x" }),
            error(400, bad, "invalidQuery", "Unrecognized name: x"),
        ),
    ] {
        assert_eq!(
            world.refused(method, path, body).await,
            expected,
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let world = World::new();
    let body = Body::from(vec![b' '; LARGEST_BODY + 1]);
    let (status, answer) = world.call("POST", "datasets", body).await;
    assert_eq!(status, 413);
    let text = "Request payload size exceeds the limit";
    assert_eq!(answer, error(413, "INVALID_ARGUMENT", "uploadTooLarge", text));
}

#[tokio::test]
async fn a_token_is_asked_for_if_the_emulator_wants_one() {
    let world = World::new();
    world
        .shared
        .with(|machine| machine.switches_mut().require_token = Some(vec!["good".to_owned()]));
    for (token, expected) in [(None, 401), (Some("Bearer bad"), 401), (Some("Bearer good"), 200)] {
        let mut request = Request::builder().uri("/bigquery/v2/projects/p/datasets");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{token:?}");
    }
}

#[tokio::test]
async fn many_pollers_are_served_at_a_time() {
    let world = World::with_rows(3).await;
    let poll = |_| world.post("queries", json!({ "query": "SELECT SUM(id) FROM d.t" }));
    let answers = futures::future::join_all((0..40).map(poll)).await;
    for answer in answers {
        assert_eq!(answer["rows"], json!([{ "f": [{ "v": "3" }] }]));
    }
}

#[test]
fn the_oldest_jobs_go_first() {
    let jobs = Jobs::default();
    for i in 0..1001 {
        let job = Job::new("p".to_owned(), i.to_string(), "US".to_owned(), Value::Null, 0);
        let (job, _) = jobs.add(job).unwrap();
        let outcome = Err(ApiError::invalid(""));
        jobs.finish(&job, Done { ended_ms: 0, outcome });
    }
    assert_eq!(jobs.get("p", "0").unwrap_err(), ApiError::not_found("Job p:0"));
    assert_eq!(jobs.get("p", "1").unwrap().id, "1");
}

#[tokio::test]
async fn clients_that_leave_out_the_version_are_served() {
    let world = World::with_rows(3).await;
    for (path, kind) in [
        ("/projects", "bigquery#projectList"),
        ("/projects/p/datasets/d/tables/t", "bigquery#table"),
    ] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body["kind"], kind, "{body}");
    }
}
