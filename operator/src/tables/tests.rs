//! Table creation and change against a REST server that keeps what it is sent and answers from a script.

use std::sync::Mutex;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bigquery_write_proto::wire::table_field_schema::{FieldElementType as WireElementType, Mode, Type};
use serde_json::{Value, json};

use super::*;
use crate::error::{Blame, Retry};
use crate::testing;

/// What one request was, and what it gets.
#[derive(Default)]
struct Rest {
    requests: Mutex<Vec<(String, Value)>>,
    answers: Mutex<Vec<(u16, Value)>>,
}

async fn rest(State(rest): State<Arc<Rest>>, request: Request<Body>) -> Response {
    assert!(
        !request.headers().contains_key(header::AUTHORIZATION),
        "a credential on a plaintext endpoint"
    );
    let mut what = format!("{} {}", request.method(), request.uri().path());
    if let Some(etag) = request.headers().get(header::IF_MATCH) {
        what.push_str(&format!(" if {}", etag.to_str().unwrap()));
    }
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).unwrap()
    };
    rest.requests.lock().unwrap().push((what, body));
    let (code, body) = rest.answers.lock().unwrap().remove(0);
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

/// The result of one start that may create the table, and the requests it took.
async fn create(
    table: &str,
    answers: &[(u16, Value)],
) -> (Result<ReadyTable, SinkError>, Vec<(String, Value)>) {
    let day: &[_] = if table.contains('$') {
        &[("table.partition_type", "day")]
    } else {
        &[]
    };
    prepare(&[&[("table", table), CREATES], day].concat(), &schema(), answers).await
}

const CREATES: (&str, &str) = ("table.create", "if_missing");
const ADDS: (&str, &str) = ("schema.update", "add_columns");
/// 2027-01-15 08:00:00 UTC, in µs.
const NOW: u64 = 1_800_000_000_000_000;

async fn prepare(
    options: &[(&str, &str)],
    wanted: &wire::TableSchema,
    answers: &[(u16, Value)],
) -> (Result<ReadyTable, SinkError>, Vec<(String, Value)>) {
    let (rest, http) = serve(answers).await;
    let result = make_ready(&self::options(options, &http), None, wanted, |_| Ok(()), NOW).await;
    let requests = rest.requests.lock().unwrap().clone();
    (result, requests)
}

async fn serve(answers: &[(u16, Value)]) -> (Arc<Rest>, String) {
    let rest = Arc::new(Rest {
        answers: Mutex::new(answers.to_vec()),
        ..Rest::default()
    });
    let address = testing::serve(Router::new().fallback(self::rest).with_state(Arc::clone(&rest))).await;
    (rest, format!("http://{address}"))
}

fn options(options: &[(&str, &str)], http: &str) -> SinkOptions {
    let pairs = [
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", "orders"),
        ("endpoint.grpc", http),
        ("endpoint.http", http),
    ];
    let pairs = pairs
        .into_iter()
        .filter(|(name, _)| options.iter().all(|(other, _)| other != name));
    let pairs: Vec<_> = pairs
        .chain(options.iter().copied())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    SinkOptions::parse(&pairs).unwrap()
}

fn column(name: &str, kind: Type, mode: Mode) -> wire::TableFieldSchema {
    wire::TableFieldSchema {
        name: name.to_owned(),
        r#type: kind.into(),
        mode: mode.into(),
        ..Default::default()
    }
}

fn schema() -> wire::TableSchema {
    let numeric = wire::TableFieldSchema {
        precision: 10,
        scale: 2,
        ..column("price", Type::Numeric, Mode::Nullable)
    };
    let text = wire::TableFieldSchema {
        max_length: 40,
        ..column("note", Type::String, Mode::Unspecified)
    };
    let items = wire::TableFieldSchema {
        fields: vec![
            column("sku", Type::Bytes, Mode::Required),
            column("at", Type::Datetime, Mode::Repeated),
        ],
        ..column("items", Type::Struct, Mode::Repeated)
    };
    let range = wire::TableFieldSchema {
        range_element_type: Some(WireElementType {
            r#type: Type::Date.into(),
        }),
        ..column("valid", Type::Range, Mode::Nullable)
    };
    let plain = [
        ("a", Type::Double),
        ("b", Type::Bool),
        ("c", Type::Timestamp),
        ("d", Type::Date),
        ("e", Type::Time),
        ("f", Type::Geography),
        ("g", Type::Bignumeric),
        ("h", Type::Interval),
        ("i", Type::Json),
    ];
    let plain = plain.map(|(name, kind)| column(name, kind, Mode::Nullable));
    let fields = [
        column("id", Type::Int64, Mode::Required),
        numeric,
        text,
        items,
        range,
    ]
    .into_iter()
    .chain(plain);
    wire::TableSchema {
        fields: fields.collect(),
    }
}

fn google_error(code: u16, message: &str) -> (u16, Value) {
    (
        code,
        json!({"error": {"code": code, "message": message, "errors": [{"reason": "x", "message": message}]}}),
    )
}

fn table_resource() -> Value {
    let id = json!({"name": "id", "type": "INTEGER", "mode": "REQUIRED"});
    json!({
        "kind": "bigquery#table",
        "id": "shop:sales.orders",
        "etag": "one",
        "creationTime": "1700000000000",
        "schema": {"fields": [id]},
    })
}

const LOOKUP: &str = "GET /bigquery/v2/projects/shop/datasets/sales/tables/orders";
const INSERT: &str = "POST /bigquery/v2/projects/shop/datasets/sales/tables";

#[tokio::test]
async fn a_missing_table_is_created_with_the_pipelines_columns() {
    // The partition that rows are written to is no part of the name.
    let (result, requests) = create(
        "orders$20240131",
        &[google_error(404, "Not found: Table"), (200, table_resource())],
    )
    .await;
    let ready = result.unwrap();
    assert_eq!((ready.change, ready.is_young), (Change::Created, true));
    assert_eq!(
        ready.schema.fields,
        [column("id", Type::Int64, Mode::Required)],
        "as BigQuery answered"
    );
    let plain = |name: &str, kind: &str| json!({"name": name, "type": kind, "mode": "NULLABLE"});
    let expected = json!({
        "tableReference": {"projectId": "shop", "datasetId": "sales", "tableId": "orders"},
        "timePartitioning": {"type": "DAY"},
        "schema": {"fields": [
            {"name": "id", "type": "INT64", "mode": "REQUIRED"},
            {"name": "price", "type": "NUMERIC", "mode": "NULLABLE", "precision": "10", "scale": "2"},
            {"name": "note", "type": "STRING", "mode": "NULLABLE", "maxLength": "40"},
            {"name": "items", "type": "RECORD", "mode": "REPEATED", "fields": [
                {"name": "sku", "type": "BYTES", "mode": "REQUIRED"},
                {"name": "at", "type": "DATETIME", "mode": "REPEATED"},
            ]},
            {"name": "valid", "type": "RANGE", "mode": "NULLABLE", "rangeElementType": {"type": "DATE"}},
            plain("a", "FLOAT64"),
            plain("b", "BOOL"),
            plain("c", "TIMESTAMP"),
            plain("d", "DATE"),
            plain("e", "TIME"),
            plain("f", "GEOGRAPHY"),
            plain("g", "BIGNUMERIC"),
            plain("h", "INTERVAL"),
            plain("i", "JSON"),
        ]},
    });
    assert_eq!(
        requests,
        [(LOOKUP.to_owned(), Value::Null), (INSERT.to_owned(), expected)]
    );
}

#[tokio::test]
async fn a_table_that_exists_is_left_alone() {
    let (result, requests) = create("orders", &[(200, table_resource())]).await;
    let ready = result.unwrap();
    assert_eq!((ready.change, ready.is_young), (Change::None, false));
    assert_eq!(requests, [(LOOKUP.to_owned(), Value::Null)]);
}

#[tokio::test]
async fn a_subtask_that_loses_the_race_to_create_is_content() {
    let answers = [
        google_error(404, "Not found: Table"),
        google_error(409, "Already Exists: Table"),
        (200, table_resource()),
    ];
    let (result, requests) = create("orders", &answers).await;
    assert_eq!(result.unwrap().change, Change::None);
    let asked: Vec<_> = requests.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(asked, [LOOKUP, INSERT, LOOKUP]);
}

#[tokio::test]
async fn a_missing_dataset_is_named() {
    let answers = [
        google_error(404, "Not found: Dataset"),
        google_error(404, "Not found: Dataset"),
    ];
    assert_user_error(
        create("orders", &answers).await.0,
        "cannot create table projects/shop/datasets/sales/tables/orders: dataset 'sales' does not exist in project 'shop'; create the \
         dataset first",
    );
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    // reports.md 49.
    let denied = google_error(403, "Access Denied: sink@shop");
    assert_user_error(
        create("orders", std::slice::from_ref(&denied)).await.0,
        "cannot look up table projects/shop/datasets/sales/tables/orders: permission bigquery.tables.get is missing: Access Denied: \
         sink@shop; grant it, or see to the table yourself and leave out options 'table.create' and 'schema.update'",
    );
    assert_user_error(
        create("orders", &[google_error(404, "Not found: Table"), denied])
            .await
            .0,
        "cannot create table projects/shop/datasets/sales/tables/orders: permission bigquery.tables.create is missing: Access Denied: \
         sink@shop; grant it, or create the table yourself and leave out option 'table.create'",
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_endpoint_is_named_and_may_be_back_later() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let options = options(&[CREATES], &format!("http://127.0.0.1:{port}"));
    let error = make_ready(&options, None, &schema(), |_| Ok(()), NOW)
        .await
        .unwrap_err();
    let start = format!(
        "cannot look up table {}: cannot reach http://127.0.0.1:{port}; ",
        options.table
    );
    assert!(error.to_string().starts_with(&start), "{error}");
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
}

#[track_caller]
fn assert_user_error<T: std::fmt::Debug>(result: Result<T, SinkError>, expected: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
}

const PATCH: &str = "PATCH /bigquery/v2/projects/shop/datasets/sales/tables/orders if one";

#[tokio::test]
async fn a_table_is_laid_out_as_the_options_and_the_primary_key_say() {
    let missing = google_error(404, "Not found: Table");
    let wanted = wire::TableSchema {
        fields: vec![
            column("id", Type::Int64, Mode::Required),
            column("at", Type::Timestamp, Mode::Nullable),
        ],
    };
    let by = ("table.partition_by", "at");
    for (layout, expected) in [
        (
            vec![
                by,
                ("table.partition_type", "hour"),
                ("table.partition_expiration", "90 days"),
            ],
            json!({"timePartitioning": {"type": "HOUR", "field": "at", "expirationMs": "7776000000"}}),
        ),
        (
            vec![("table.partition_type", "month")],
            json!({"timePartitioning": {"type": "MONTH"}}),
        ),
        (
            vec![by, ("table.partition_type", "year")],
            json!({"timePartitioning": {"type": "YEAR", "field": "at"}}),
        ),
        (
            vec![("table.partition_type", "day")],
            json!({"timePartitioning": {"type": "DAY"}}),
        ),
        (
            vec![
                ("table.partition_by", "id"),
                ("table.partition_range", "-5, 100, 10"),
            ],
            json!({"rangePartitioning": {"field": "id", "range": {"start": "-5", "end": "100", "interval": "10"}}}),
        ),
        (
            vec![
                ("table.cluster_by", "id, at"),
                ("table.description", "Orders"),
                ("table.labels", "team=sales, stage="),
            ],
            json!({
                "clustering": {"fields": ["id", "at"]},
                "description": "Orders",
                "labels": {"team": "sales", "stage": ""},
            }),
        ),
    ] {
        let (rest, http) = serve(&[missing.clone(), (200, table_resource())]).await;
        let mut options = options(&[&[CREATES], layout.as_slice()].concat(), &http);
        options.primary_key = vec!["id".to_owned(), "at".to_owned()];
        make_ready(&options, None, &wanted, |_| Ok(()), NOW)
            .await
            .unwrap();
        let mut sent = rest.requests.lock().unwrap()[1].1.clone();
        let sent = sent.as_object_mut().unwrap();
        for fixed in ["tableReference", "schema"] {
            assert!(sent.remove(fixed).is_some());
        }
        let key = sent.remove("tableConstraints");
        assert_eq!(key, Some(json!({"primaryKey": {"columns": ["id", "at"]}})));
        assert_eq!(&Value::Object(sent.clone()), &expected);
    }
}

/// A table with a nested column and things this build does not know.
fn wide_resource() -> Value {
    json!({
        "etag": "one",
        "creationTime": "1799999999000",
        "schema": {"fields": [
            {"name": "ID", "type": "INTEGER", "mode": "REQUIRED", "policyTags": {"names": ["secret"]}, "newProperty": {"x": [1]}},
            {"name": "place", "type": "RECORD", "mode": "REPEATED", "description": "where", "fields": [
                {"name": "city", "type": "STRING", "mode": "NULLABLE", "defaultValueExpression": "'x'"},
            ]},
        ]},
    })
}

fn wider() -> wire::TableSchema {
    let place = wire::TableFieldSchema {
        fields: vec![
            column("street", Type::String, Mode::Required),
            column("City", Type::String, Mode::Nullable),
        ],
        ..column("place", Type::Struct, Mode::Repeated)
    };
    let origin = wire::TableFieldSchema {
        fields: vec![column("at", Type::Date, Mode::Required)],
        ..column("origin", Type::Struct, Mode::Required)
    };
    wire::TableSchema {
        fields: vec![
            column("price", Type::Double, Mode::Required),
            column("id", Type::Int64, Mode::Nullable),
            place,
            column("tags", Type::String, Mode::Repeated),
            origin,
        ],
    }
}

#[tokio::test]
async fn missing_columns_are_added_and_everything_else_is_left_as_it_is() {
    // Policy tags too (reports.md 59).
    let mut after = wide_resource();
    after["etag"] = "two".into();
    let (result, requests) = prepare(&[ADDS], &wider(), &[(200, wide_resource()), (200, after)]).await;
    let ready = result.unwrap();
    let added = [
        "price FLOAT64",
        "place.street STRING",
        "tags ARRAY<STRING>",
        "origin STRUCT",
    ];
    assert_eq!(ready.change, Change::Added(added.map(str::to_owned).to_vec()));
    assert!(ready.is_young, "a second old");
    let new = |name: &str, kind: &str, mode: &str| json!({"name": name, "type": kind, "mode": mode});
    let mut expected = wide_resource()["schema"]["fields"].clone();
    expected[1]["fields"]
        .as_array_mut()
        .unwrap()
        .push(new("street", "STRING", "NULLABLE"));
    let mut origin = new("origin", "RECORD", "NULLABLE");
    origin["fields"] = json!([new("at", "DATE", "NULLABLE")]);
    for field in [
        new("price", "FLOAT64", "NULLABLE"),
        new("tags", "STRING", "REPEATED"),
        origin,
    ] {
        expected.as_array_mut().unwrap().push(field);
    }
    assert_eq!(
        requests,
        [
            (LOOKUP.to_owned(), Value::Null),
            (PATCH.to_owned(), json!({"schema": {"fields": expected}}))
        ]
    );
}

#[tokio::test]
async fn the_dead_letter_table_gets_no_policy_tags_of_the_table() {
    // reports.md 59: whoever may not read them would be refused for ever.
    let created = json!({"etag": "one", "creationTime": "1799999999000", "schema": {"fields": []}});
    let answers = [
        (200, wide_resource()),
        google_error(404, "Not found: Table"),
        (200, created),
    ];
    let (rest, http) = serve(&answers).await;
    let options = [
        CREATES,
        ("table.cluster_by", "id"),
        ("table.labels", "team=sales"),
        ("row_errors", "dead_letter"),
        ("dead_letter.table", "refused"),
    ];
    let options = self::options(&options, &http);
    let ready = make_ready(&options, None, &schema(), |_| Ok(()), NOW)
        .await
        .unwrap();
    assert_eq!(ready.change, Change::None);
    let letters = options.for_dead_letters().unwrap();
    let wanted = wire::TableSchema {
        fields: vec![column("row", Type::Json, Mode::Required)],
    };
    let ready = make_ready(&letters, None, &wanted, |_| Ok(()), NOW)
        .await
        .unwrap();
    assert_eq!(ready.change, Change::Created);
    let expected = json!({
        "tableReference": {"projectId": "shop", "datasetId": "sales", "tableId": "refused"},
        "schema": {"fields": [{"name": "row", "type": "JSON", "mode": "REQUIRED"}]},
    });
    let requests = rest.requests.lock().unwrap();
    assert_eq!(requests[2], (INSERT.to_owned(), expected));
}

#[tokio::test]
async fn a_change_by_someone_else_in_between_is_looked_at_before_the_next_try() {
    let changed = google_error(412, "Precondition check failed.");
    let mut after = wide_resource();
    after["etag"] = "two".into();
    let fields = after["schema"]["fields"].as_array_mut().unwrap();
    fields.push(json!({"name": "price", "type": "FLOAT", "mode": "NULLABLE"}));
    let wanted = wire::TableSchema {
        fields: vec![column("price", Type::Double, Mode::Nullable)],
    };
    let answers = [(200, wide_resource()), changed.clone(), (200, after.clone())];
    let (result, requests) = prepare(&[ADDS], &wanted, &answers).await;
    assert_eq!(result.unwrap().change, Change::None, "the other added it");
    let asked: Vec<_> = requests.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(asked, [LOOKUP, PATCH, LOOKUP]);

    // Who is never first gives up, and may be luckier after a restart.
    let answers: Vec<_> = (0..ROUNDS)
        .flat_map(|_| [(200, wide_resource()), changed.clone()])
        .collect();
    let error = prepare(&[ADDS], &wanted, &answers).await.0.unwrap_err();
    let text = "table projects/shop/datasets/sales/tables/orders was changed by others 20 times while the sink prepared it";
    assert_eq!(error.to_string(), text);
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
}

#[tokio::test]
async fn nothing_is_changed_for_columns_that_do_not_fit_anyway() {
    let (rest, http) = serve(&[(200, wide_resource())]).await;
    let misfit = |schema: &wire::TableSchema| {
        let names: Vec<_> = schema.fields.iter().map(|field| field.name.clone()).collect();
        Err(SinkError::user(names.join(" ")))
    };
    let result = make_ready(&options(&[ADDS], &http), None, &wider(), misfit, NOW).await;
    assert_user_error(result, "ID place price tags origin");
    assert_eq!(rest.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_permission_that_is_missing_to_add_columns_is_named_and_a_quota_is_none() {
    let denied = [
        (200, wide_resource()),
        google_error(403, "Access Denied: sink@shop"),
    ];
    assert_user_error(
        prepare(&[ADDS], &wider(), &denied).await.0,
        "cannot add columns to table projects/shop/datasets/sales/tables/orders: permission bigquery.tables.update is missing: Access \
         Denied: sink@shop; grant it, or add the columns yourself and leave out option 'schema.update'",
    );
    let quota = "Exceeded rate limits: too many table update operations for this table.";
    let busy = [(200, wide_resource()), google_error(403, quota)];
    let error = prepare(&[ADDS], &wider(), &busy).await.0.unwrap_err();
    assert!(error.to_string().ends_with(quota), "{error}");
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
}

#[tokio::test]
async fn without_leave_to_create_it_a_missing_table_is_an_error() {
    assert_user_error(
        prepare(&[ADDS], &wider(), &[google_error(404, "Not found: Table")])
            .await
            .0,
        "table projects/shop/datasets/sales/tables/orders does not exist; create it, or let the sink do so with option 'table.create' = \
         'if_missing'",
    );
}

#[test]
fn a_layout_that_differs_is_told_with_both() {
    let difference = |layout: &[(&str, &str)], table: Value| {
        let options = options(&[&[CREATES], layout].concat(), "http://127.0.0.1:1");
        layout_difference(&options, &serde_json::from_value(table).unwrap())
    };
    let by_day =
        json!({"timePartitioning": {"type": "DAY", "field": "At"}, "clustering": {"fields": ["ID"]}});
    let (by, cluster) = (("table.partition_by", "at"), ("table.cluster_by", "id"));
    assert_eq!(difference(&[], by_day.clone()), None, "nothing is asked for");
    assert_eq!(difference(&[by, cluster], by_day.clone()), None);
    let hour = ("table.partition_type", "hour");
    assert_eq!(
        difference(&[by, hour, ("table.cluster_by", "id, at")], by_day).as_deref(),
        Some(
            "the options ask for partitions of one HOUR by at, it has partitions of one DAY by At; the options ask for clustering by id, \
             at, it has clustering by ID"
        )
    );
    let expires = json!({"timePartitioning": {"type": "DAY", "expirationMs": "86400000"}});
    assert_eq!(
        difference(&[("table.partition_type", "day")], expires).as_deref(),
        Some(
            "the options ask for partitions of one DAY by the time of ingestion, it has partitions of one DAY by the time of ingestion, \
             dropped after 24 h"
        )
    );
    let ranges =
        json!({"rangePartitioning": {"field": "id", "range": {"start": "0", "end": "10", "interval": "1"}}});
    let range = |text| [("table.partition_by", "id"), ("table.partition_range", text)];
    assert_eq!(difference(&range("0, 10, 1"), ranges.clone()), None);
    assert_eq!(
        difference(&range("0, 20, 1"), ranges).as_deref(),
        Some("the options ask for ranges of id from 0 to 20 by 1, it has ranges of id from 0 to 10 by 1")
    );
    assert_eq!(
        difference(&[by, cluster], json!({})).as_deref(),
        Some(
            "the options ask for partitions of one DAY by at, it has no partitions; the options ask for clustering by id, it has no \
             clustering"
        )
    );
}

#[test]
fn the_columns_that_are_created_are_the_columns_that_are_written() {
    // reports.md 58: one mapping for both.
    let options = options(&[CREATES], "http://127.0.0.1:1");
    let mut wanted = schema();
    wanted.fields.push(wire::TableFieldSchema {
        timestamp_precision: Some(12),
        ..column("j", Type::Timestamp, Mode::Nullable)
    });
    // Unspecified is NULLABLE.
    let note = &mut wanted.fields[2];
    note.mode = Mode::Nullable.into();
    let sent = serde_json::to_value(new_table(&options, &wanted).unwrap()).unwrap();
    let mut older = sent.to_string();
    for (new, old) in [
        ("INT64", "INTEGER"),
        ("FLOAT64", "FLOAT"),
        ("BOOL", "BOOLEAN"),
        ("RECORD", "STRUCT"),
    ] {
        older = older.replace(&format!("\"{new}\""), &format!("\"{old}\""));
    }
    for spelling in [sent.to_string(), older] {
        let table: Table = serde_json::from_str(&spelling).unwrap();
        assert_eq!(wire_schema(&table), wanted);
    }
}
