//! Queries over real tables, by their full results.

use std::sync::Arc;
use std::task::Poll;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_cast::pretty::pretty_format_batches;
use serde_json::Map;

use super::*;
use crate::machine::Machine;
use crate::schema::{Column, Kind, Mode};

/// `p.d.Users` (userId, Name, tags, payload, score) of three rows, and `p.d.orders` (id, user_id) of two.
fn shared() -> Shared {
    let mut machine = Machine::default();
    machine
        .create_dataset(&DatasetRef::new("p", "d"), "EU", Map::new(), 0)
        .unwrap();
    let text = || Kind::String { max_length: None };
    let score = vec![
        Column::new("Points", Kind::Int64, Mode::Nullable),
        Column::new("note", Kind::Json, Mode::Nullable),
    ];
    let users = Schema {
        columns: vec![
            Column::new("userId", Kind::Int64, Mode::Required),
            Column::new("Name", text(), Mode::Nullable),
            Column::new("tags", text(), Mode::Repeated),
            Column::new("payload", Kind::Json, Mode::Nullable),
            Column::new("score", Kind::Struct(score), Mode::Nullable),
        ],
    };
    let orders = Schema {
        columns: vec![
            Column::new("id", Kind::Int64, Mode::Nullable),
            Column::new("user_id", Kind::Int64, Mode::Nullable),
        ],
    };
    let users_ref = TableRef::new("p", "d", "Users");
    let orders_ref = TableRef::new("p", "d", "orders");
    let users_rows = json_rows(
        &users,
        r#"{"userId": 1, "Name": "ann", "tags": ["x", "y"], "payload": "{\"a\":1}", "score": {"Points": 5, "note": "1"}}
           {"userId": 2, "Name": null, "tags": [], "payload": null, "score": null}
           {"userId": 3, "Name": "bob", "tags": ["z"], "payload": "null", "score": {"Points": 7, "note": null}}"#,
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![10, 11])),
        Arc::new(Int64Array::from(vec![Some(3), None])),
    ];
    let orders_rows = RecordBatch::try_new(orders.arrow(), columns).unwrap();
    machine.create_table(&users_ref, users, Map::new(), 0).unwrap();
    machine.create_table(&orders_ref, orders, Map::new(), 0).unwrap();
    for row in 0..3 {
        machine.publish(&users_ref, users_rows.slice(row, 1), 0).unwrap();
    }
    machine.publish(&orders_ref, orders_rows, 0).unwrap();
    Shared::new(machine, Arc::new(|| 0))
}

fn json_rows(schema: &Schema, lines: &str) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(schema.arrow())
        .build_decoder()
        .unwrap();
    decoder.decode(lines.as_bytes()).unwrap();
    decoder.flush().unwrap().unwrap()
}

async fn run(sql: &str) -> Result<QueryOutput, QueryError> {
    query(&shared(), "p", Some(&DatasetRef::new("p", "d")), sql).await
}

/// Column names with types, then rows, as lines.
async fn lines(sql: &str) -> Vec<String> {
    let output = run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(output.rows.schema(), output.schema.arrow(), "{sql}");
    let types = output.schema.columns.iter().map(|column| {
        let list = if column.mode == Mode::Repeated { "[]" } else { "" };
        format!("{} {}{list}", column.name, column.kind.sql_name())
    });
    let head = types.collect::<Vec<_>>().join(", ");
    let table = pretty_format_batches(&[output.rows]).unwrap().to_string();
    let rows = table.lines().skip(3).filter(|line| line.starts_with('|'));
    let row = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(",")
    };
    std::iter::once(head).chain(rows.map(row)).collect()
}

#[tokio::test]
async fn select_star_returns_declared_names_types_and_rows_in_their_order() {
    let want = [
        "userId INT64, Name STRING, tags STRING[], payload JSON, score STRUCT",
        r#"1,ann,[x, y],{"a":1},{Points: 5, note: 1}"#,
        "2,,[],,",
        "3,bob,[z],null,{Points: 7, note: }",
    ];
    for sql in [
        "SELECT * FROM Users",
        "SELECT * FROM `p.d.Users`",
        "SELECT u.* FROM d.Users AS u",
    ] {
        assert_eq!(lines(sql).await, want, "{sql}");
    }
}

#[tokio::test]
async fn queries_a_reader_writes_give_their_values() {
    for (sql, want) in [
        ("SELECT count(*) FROM Users", vec!["f0_ INT64", "3"]),
        (
            "SELECT COUNT(*), COUNT(*) AS n, 1.5, NULL",
            vec!["f0_ INT64, n INT64, f1_ FLOAT64, f2_ INT64", "1,1,1.5,"],
        ),
        ("SELECT USERID, NAME FROM users_ AS x", vec![]),
        (
            "SELECT USERID FROM `d.Users` WHERE userid >= 2 ORDER BY UserId DESC",
            vec!["USERID INT64", "3", "2"],
        ),
        (
            "SELECT SCORE.points, payload p FROM Users ORDER BY points",
            vec!["points INT64, p JSON", ",", "5,{\"a\":1}", "7,null"],
        ),
        (
            "SELECT t.score.note AS note, name FROM Users t WHERE t.Score.POINTS = 5",
            vec!["note JSON, name STRING", "1,ann"],
        ),
        (
            "WITH Users AS (SELECT userId FROM Users WHERE userId > 1) SELECT MAX(userid) AS top FROM users",
            vec!["top INT64", "3"],
        ),
        (
            "SELECT o.id, u.Name FROM orders o JOIN Users u ON o.user_id = u.userId",
            vec!["id INT64, Name STRING", "10,bob"],
        ),
        (
            "SELECT Name, COUNT(*) c FROM Users GROUP BY name HAVING c > 0 ORDER BY name",
            vec!["Name STRING, c INT64", ",1", "ann,1", "bob,1"],
        ),
        (
            "SELECT payload FROM Users GROUP BY payload ORDER BY payload LIMIT 1",
            vec!["payload JSON", ""],
        ),
        (
            "SELECT * EXCEPT (tags, score, PAYLOAD) FROM Users LIMIT 1",
            vec!["userId INT64, Name STRING", "1,ann"],
        ),
        (
            "SELECT DISTINCT u.userId > 1 AS big FROM Users u ORDER BY big",
            vec!["big BOOL", "false", "true"],
        ),
        ("SELECT x FROM UNNEST([1, 2]) AS x", vec!["x INT64", "1", "2"]),
        (
            "SELECT tag FROM (SELECT UNNEST(tags) AS tag FROM Users)",
            vec!["tag STRING", "x", "y", "z"],
        ),
        (
            "SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a",
            vec!["a INT64", "1", "2"],
        ),
        (
            "SELECT COUNTIF(userId > 1), IF(true, 'y', 'n') FROM Users",
            vec!["f0_ INT64, f1_ STRING", "2,y"],
        ),
        (
            "SELECT CAST('7' AS INT64) + 1, CAST(1.25 AS NUMERIC)",
            vec!["f0_ INT64, f1_ NUMERIC", "8,1.250000000"],
        ),
        (
            "SELECT TIMESTAMP '2024-01-02 03:04:05+00'",
            vec!["f0_ TIMESTAMP", "2024-01-02T03:04:05Z"],
        ),
        (
            "SELECT DATETIME '2024-01-02 03:04:05'",
            vec!["f0_ DATETIME", "2024-01-02T03:04:05"],
        ),
        (
            "SELECT DATE '2024-01-02', \"a\", b'a'",
            vec!["f0_ DATE, f1_ STRING, f2_ BYTES", "2024-01-02,a,61"],
        ),
        ("SELECT userId FROM Users WHERE FALSE", vec!["userId INT64"]),
        (
            "SELECT ARRAY_AGG(userId) AS ids FROM Users",
            vec!["ids INT64[]", "[1, 2, 3]"],
        ),
    ] {
        if want.is_empty() {
            let error = run(sql).await.unwrap_err().to_string();
            assert_eq!(error, "Not found: Table p:d.users_ was not found in location EU");
            continue;
        }
        assert_eq!(lines(sql).await, want, "{sql}");
    }
}

#[tokio::test]
async fn failures_say_what_is_wrong_in_bigquerys_words() {
    for (sql, want) in [
        ("SELECT nme FROM Users", "Unrecognized name: nme"),
        (
            "SELECT * FROM nope",
            "Not found: Table p:d.nope was not found in location EU",
        ),
        (
            "SELECT * FROM x.y",
            "Not found: Dataset p:x was not found in location US",
        ),
        (
            "SELECT userId AS a, name AS A FROM Users",
            "Duplicate column names in the result are not supported.",
        ),
        ("SELECT 1 +", "Syntax error: "),
        (
            "SELECT CAST('x' AS INT64)",
            "Cannot cast string 'x' to value of Int64 type",
        ),
        (
            "INSERT INTO Users VALUES (1)",
            "Inserted row has wrong column count; Has 1, expected 5",
        ),
        (
            "SELECT u.userId, tag FROM Users u, UNNEST(u.tags) AS tag",
            "Subqueries that refer to columns of the query around them",
        ),
        ("SELECT frob(1)", "Function not found: frob"),
        (
            "SELECT [[1]] AS a",
            "Column a has a type that BigQuery does not have: ARRAY of ARRAY",
        ),
    ] {
        let error = run(sql).await.unwrap_err().to_string();
        assert!(error.contains(want), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_query_sees_one_moment_and_leaves_the_machine_free_while_it_runs() {
    let shared = shared();
    let table = TableRef::new("p", "d", "orders");
    let rows = shared.with(|machine| machine.catalog().table(&table).unwrap().all_rows());
    for _ in 0..9 {
        shared
            .with(|machine| machine.publish(&table, rows.clone(), 1))
            .unwrap();
    }
    let slow = ["a", "b", "c", "d"]
        .map(|alias| format!("d.orders {alias}"))
        .join(", ");
    let sql = format!("SELECT count(*) AS n FROM {slow}");
    let mut running = Box::pin(query(&shared, "p", None, &sql));
    let mut published = 0;
    let output = loop {
        if let Poll::Ready(output) = futures::poll!(&mut running) {
            break output.unwrap();
        }
        shared
            .with(|machine| machine.publish(&table, rows.slice(0, 1), 1))
            .unwrap();
        published += 1;
        tokio::task::yield_now().await;
    };
    let count = output.rows.column(0).as_primitive::<Int64Type>().value(0);
    let seen = (20..=20 + published).find(|rows: &i64| rows.pow(4) == count);
    assert!(
        seen.is_some(),
        "{count} is the fourth power of no number of rows there was"
    );
}

#[tokio::test]
async fn as_deep_a_query_as_is_allowed_does_not_cost_the_stack() {
    let sum = format!("SELECT 1{} AS x", " + 1".repeat(98));
    assert_eq!(lines(&sum).await, ["x INT64", "99"]);
    let union = format!("SELECT 1 AS x{}", " UNION ALL SELECT 1".repeat(99));
    assert_eq!(
        lines(&format!("SELECT SUM(x) AS s FROM ({union})")).await,
        ["s INT64", "100"]
    );
}

#[tokio::test]
async fn a_query_that_takes_too_long_ends_with_an_error() {
    let shared = shared();
    let request = Request {
        sql: "SELECT 1".to_owned(),
        project: "p".to_owned(),
        default_dataset: None,
        parameters: Parameters::default(),
        dry_run: false,
    };
    let all = TURNS.acquire_many(QUERIES_AT_A_TIME as u32).await.unwrap();
    let waited = run_within(Duration::from_millis(1), &shared, request).await;
    drop(all);
    assert_eq!(waited, Err(QueryError::TimedOut));
}
