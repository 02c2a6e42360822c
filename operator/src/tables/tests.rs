//! Table creation against a REST server that keeps what it is sent and answers from a script.

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
    let what = format!("{} {}", request.method(), request.uri().path());
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

/// The result of one creation, and the requests it took.
async fn create(
    table: &str,
    answers: &[(u16, Value)],
) -> (Result<Creation, SinkError>, Vec<(String, Value)>) {
    let shared = Arc::new(Rest {
        answers: Mutex::new(answers.to_vec()),
        ..Rest::default()
    });
    let address = testing::serve(Router::new().fallback(rest).with_state(Arc::clone(&shared))).await;
    let options = options(table, &format!("http://{address}"));
    let result = create_table_if_missing(&options, None, &schema()).await;
    let requests = shared.requests.lock().unwrap().clone();
    (result, requests)
}

fn options(table: &str, http: &str) -> SinkOptions {
    let pairs = [
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", table),
        ("table.create", "if_missing"),
        ("endpoint.grpc", http),
        ("endpoint.http", http),
    ];
    SinkOptions::parse(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap()
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
    json!({"kind": "bigquery#table", "id": "shop:sales.orders"})
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
    assert_eq!(result.unwrap(), Creation::Created);
    let plain = |name: &str, kind: &str| json!({"name": name, "type": kind, "mode": "NULLABLE"});
    let expected = json!({
        "tableReference": {"projectId": "shop", "datasetId": "sales", "tableId": "orders"},
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
    assert_eq!(result.unwrap(), Creation::Existed);
    assert_eq!(requests, [(LOOKUP.to_owned(), Value::Null)]);
}

#[tokio::test]
async fn a_subtask_that_loses_the_race_to_create_is_content() {
    let answers = [
        google_error(404, "Not found: Table"),
        google_error(409, "Already Exists: Table"),
    ];
    assert_eq!(create("orders", &answers).await.0.unwrap(), Creation::Existed);
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
    let denied = google_error(403, "Access Denied: sink@shop");
    assert_user_error(
        create("orders", std::slice::from_ref(&denied)).await.0,
        "cannot look up table projects/shop/datasets/sales/tables/orders: permission bigquery.tables.get is missing: Access Denied: \
         sink@shop; grant it, or create the table yourself and leave out option 'table.create'",
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
    let options = options("orders", &format!("http://127.0.0.1:{port}"));
    let error = create_table_if_missing(&options, None, &schema())
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
fn assert_user_error(result: Result<Creation, SinkError>, expected: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
}
