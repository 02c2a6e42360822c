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
async fn functions_that_readers_use_give_bigquerys_values() {
    for (sql, want) in [
        (
            "7 / 2, 6 / 3, 1.5 / 2",
            "f0_ FLOAT64, f1_ FLOAT64, f2_ FLOAT64;3.5,2.0,0.75",
        ),
        (
            "NUMERIC '1' / NUMERIC '3', NUMERIC '-1' / 2",
            "f0_ NUMERIC, f1_ NUMERIC;0.333333333,-0.500000000",
        ),
        (
            "DIV(7, 2), MOD(7, 2), ABS(-3), SAFE_DIVIDE(1, 0)",
            "f0_ INT64, f1_ INT64, f2_ INT64, f3_ FLOAT64;3,1,3,",
        ),
        (
            "ROUND(2.5), FLOOR(-1.5), CEIL(1.2)",
            "f0_ FLOAT64, f1_ FLOAT64, f2_ FLOAT64;3.0,-2.0,2.0",
        ),
        (
            "IFNULL(NULL, 'x'), COALESCE(NULL, 2), NULLIF(1, 1)",
            "f0_ STRING, f1_ INT64, f2_ INT64;x,2,",
        ),
        (
            "SAFE_CAST('x' AS INT64), SAFE_CAST('7' AS INT64)",
            "f0_ INT64, f1_ INT64;,7",
        ),
        (
            "[1, 2][OFFSET(1)], [1, 2][ORDINAL(1)], [1, 2][SAFE_OFFSET(5)], [1, 2][0]",
            "f0_ INT64, f1_ INT64, f2_ INT64, f3_ INT64;2,1,,1",
        ),
        (
            "ARRAY_LENGTH([1, 2]), GENERATE_ARRAY(1, 5, 2)",
            "f0_ INT64, f1_ INT64[];2,[1, 3, 5]",
        ),
        (
            "TIMESTAMP_MILLIS(1500), TIMESTAMP_SECONDS(2), TIMESTAMP_MICROS(7)",
            "f0_ TIMESTAMP, f1_ TIMESTAMP, f2_ TIMESTAMP;1970-01-01T00:00:01.500Z,1970-01-01T00:00:02Z,1970-01-01T00:00:00.000007Z",
        ),
        (
            "UNIX_MILLIS(TIMESTAMP_MICROS(-1)), UNIX_SECONDS(TIMESTAMP '1970-01-01 00:01:00+00'), UNIX_DATE(DATE '1970-02-01')",
            "f0_ INT64, f1_ INT64, f2_ INT64;-1,60,31",
        ),
        (
            "TIMESTAMP_ADD(TIMESTAMP '2024-02-28 00:00:00+00', INTERVAL 1 DAY), DATE_SUB(DATE '2024-03-01', INTERVAL 1 DAY)",
            "f0_ TIMESTAMP, f1_ DATE;2024-02-29T00:00:00Z,2024-02-29",
        ),
        (
            "TIMESTAMP_DIFF(TIMESTAMP '2024-01-02 00:00:00+00', TIMESTAMP '2024-01-01 01:00:00+00', HOUR), DATE_DIFF(DATE '2024-03-01', DATE '2024-02-01', DAY)",
            "f0_ INT64, f1_ INT64;23,29",
        ),
        (
            "FORMAT_TIMESTAMP('%F %H:%M:%E3S', TIMESTAMP_MILLIS(1500)), FORMAT_DATE('%d.%m.%Y', DATE '2024-02-29')",
            "f0_ STRING, f1_ STRING;1970-01-01 00:00:01.500,29.02.2024",
        ),
        (
            "CURRENT_TIMESTAMP(), CURRENT_DATE(), CURRENT_DATETIME()",
            "f0_ TIMESTAMP, f1_ DATE, f2_ DATETIME;1970-01-01T00:00:00Z,1970-01-01,1970-01-01T00:00:00",
        ),
        (
            "EXTRACT(YEAR FROM DATE '2024-02-29'), TIMESTAMP_TRUNC(TIMESTAMP_SECONDS(3700), HOUR)",
            "f0_ INT64, f1_ TIMESTAMP;2024,1970-01-01T01:00:00Z",
        ),
        ("STRING_AGG(x) FROM UNNEST(['a', 'b']) AS x", "f0_ STRING;a,b"),
        (
            "REGEXP_CONTAINS('abc', 'b.'), SPLIT('a-b', '-'), STARTS_WITH('abc', 'ab')",
            "f0_ BOOL, f1_ STRING[], f2_ BOOL;true,[a, b],true",
        ),
        ("STRUCT(1 AS a, 'x' AS b).B", "B STRING;x"),
        (
            "TO_JSON_STRING(STRUCT(1 AS a, [true] AS b, NULL AS c, 1.5 AS d, 'q\"' AS e))",
            r#"f0_ STRING;{"a":1,"b":[true],"c":null,"d":1.5,"e":"q\""}"#,
        ),
        (
            "TO_JSON_STRING(9007199254740993), TO_JSON_STRING(NUMERIC '1.50'), TO_JSON_STRING(DATE '2024-02-29'), TO_JSON_STRING(JSON '{\"a\": 1}')",
            r#"f0_ STRING, f1_ STRING, f2_ STRING, f3_ STRING;"9007199254740993","1.5","2024-02-29",{"a":1}"#,
        ),
        (
            "JSON_VALUE('{\"a\": [1, {\"b\": \"x\"}]}', '$.a[1].b'), JSON_QUERY(JSON '{\"a\": {\"b\": 1}}', '$.a'), JSON_VALUE(JSON '{}', '$.a')",
            r#"f0_ STRING, f1_ JSON, f2_ STRING;x,{"b":1},"#,
        ),
        ("ST_GEOGPOINT(1.5, 2)", "f0_ GEOGRAPHY;POINT(1.5 2)"),
    ] {
        let got = lines(&format!("SELECT {sql}")).await.join(";");
        assert_eq!(got, want, "{sql}");
    }
    let error = run("SELECT 1 / 0").await.unwrap_err().to_string();
    assert!(error.contains("division by zero"), "{error}");
    assert_eq!(
        lines("SELECT LENGTH(GENERATE_UUID()) AS n").await,
        ["n INT64", "36"]
    );
}

#[tokio::test]
async fn arrays_are_joined_with_their_rows() {
    for (sql, want) in [
        (
            "SELECT u.userId, tag FROM Users u, UNNEST(u.tags) AS tag ORDER BY 1, 2",
            vec!["userId INT64, tag STRING", "1,x", "1,y", "3,z"],
        ),
        (
            "SELECT Name, tag, place FROM Users CROSS JOIN UNNEST(tags) AS tag WITH OFFSET AS place WHERE place > 0",
            vec!["Name STRING, tag STRING, place INT64", "ann,y,1"],
        ),
        (
            "SELECT COUNT(*) AS n FROM orders o JOIN Users u ON o.user_id = u.userId, UNNEST(u.tags) t WHERE t = 'z'",
            vec!["n INT64", "1"],
        ),
        (
            "WITH nested AS (SELECT [STRUCT(1 AS a, ['x', 'y'] AS list), STRUCT(2 AS a, ['z'] AS list)] AS items)
             SELECT item.a, x FROM nested, UNNEST(nested.items) AS item, UNNEST(item.list) AS x",
            vec!["a INT64, x STRING", "1,x", "1,y", "2,z"],
        ),
    ] {
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
            "SELECT userId, (SELECT COUNT(*) FROM UNNEST(u.tags) AS tag) AS n FROM Users u",
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
        location: None,
    };
    let turns = shared.turns();
    let all = turns
        .acquire_many(turns.available_permits() as u32)
        .await
        .unwrap();
    let waited = run_within(Duration::from_millis(1), &shared, request).await;
    drop(all);
    assert_eq!(waited, Err(QueryError::TimedOut));
}

#[tokio::test]
async fn words_that_mean_something_else_to_the_engine_mean_what_they_mean_in_bigquery() {
    for (sql, want) in [
        (
            "CAST(1.5 AS INT64), CAST(-1.5 AS INT64), CAST(2.4 AS INT64), CAST(NUMERIC '2.5' AS INT64), SAFE_CAST(-0.5 AS INT64)",
            "2,-2,2,3,-1",
        ),
        (
            "CAST('7' AS INT64), CAST(TRUE AS INT64), SAFE_CAST('x' AS INT64)",
            "7,1,",
        ),
        (
            "CAST(1.0 AS STRING), CAST(0.1 AS STRING), CAST(1e20 AS STRING), CAST(NUMERIC '1.50' AS STRING), CAST(7 AS STRING)",
            "1,0.1,1e+20,1.5,7",
        ),
        (
            "CAST(TIMESTAMP '2024-01-02 03:04:05.5+00' AS STRING), CAST(DATETIME '2024-01-02 03:04:05' AS STRING)",
            "2024-01-02 03:04:05.500+00,2024-01-02 03:04:05",
        ),
        (
            "CAST(DATE '2024-01-02' AS STRING), CAST(TRUE AS STRING), CAST(b'ab' AS STRING), SAFE_CAST(b'\\xff' AS STRING)",
            "2024-01-02,true,ab,",
        ),
        ("ROUND(LOG(8, 2)), LOG(1), LOG10(100)", "3.0,0.0,2.0"),
        ("POW(2, 3), POWER(2, -1)", "8.0,0.5"),
        (
            "CONCAT('a', 'b'), CONCAT('a', NULL), CONCAT('a', CAST(NULL AS STRING), 'b')",
            "ab,,",
        ),
        (
            "GREATEST(1, 3, 2), LEAST(1, 3, 2), GREATEST(1, NULL), LEAST(NULL, 1)",
            "3,1,,",
        ),
        (
            "SUBSTR('héllo', -2), SUBSTR('héllo', 2, 2), SUBSTR('abc', 0, 2), SUBSTR('abc', -9, 2), SUBSTR('abc', 9), \
             SUBSTRING('abc', 2)",
            "lo,él,ab,ab,,bc",
        ),
        ("SUBSTR(b'abc', -2, 1), SUBSTR(NULL, 1)", "62,"),
        ("REGEXP_REPLACE('a-b-c', '-', '+')", "a+b+c"),
        (
            "DATE_TRUNC(DATE '2024-05-15', WEEK), DATE_TRUNC(DATE '2024-05-15', WEEK(TUESDAY)), DATE_TRUNC(DATE '2024-05-12', ISOWEEK)",
            "2024-05-12,2024-05-14,2024-05-06",
        ),
        (
            "DATE_TRUNC(DATE '2024-05-15', QUARTER), DATE_TRUNC(DATE '2024-12-30', ISOYEAR), DATE_TRUNC(DATE '2024-05-15', YEAR)",
            "2024-04-01,2024-12-30,2024-01-01",
        ),
        (
            "TIMESTAMP_TRUNC(TIMESTAMP '2024-05-15 10:11:12.123456+00', MILLISECOND), DATETIME_TRUNC(DATETIME '2024-05-15 10:11:12', WEEK)",
            "2024-05-15T10:11:12.123Z,2024-05-12T00:00:00",
        ),
        (
            "EXTRACT(WEEK FROM DATE '2024-01-06'), EXTRACT(WEEK FROM DATE '2024-01-07'), EXTRACT(WEEK(MONDAY) FROM DATE '2024-01-01'), \
             EXTRACT(ISOWEEK FROM DATE '2021-01-01'), EXTRACT(ISOYEAR FROM DATE '2021-01-01')",
            "0,1,1,53,2020",
        ),
        (
            "EXTRACT(DAYOFWEEK FROM DATE '2024-01-07'), EXTRACT(DAYOFYEAR FROM DATE '2024-02-01'), EXTRACT(QUARTER FROM DATE '2024-05-15')",
            "1,32,2",
        ),
        (
            "EXTRACT(SECOND FROM TIMESTAMP '2024-05-15 10:11:12.123456+00'), EXTRACT(MILLISECOND FROM TIMESTAMP '2024-05-15 10:11:12.123456+00'), \
             EXTRACT(MICROSECOND FROM DATETIME '2024-05-15 10:11:12.123456'), EXTRACT(HOUR FROM TIME '10:11:12')",
            "12,123,123456,10",
        ),
        (
            "EXTRACT(DATE FROM TIMESTAMP '2024-05-15 10:11:12+00'), EXTRACT(TIME FROM DATETIME '2024-05-15 10:11:12'), CURRENT_TIME()",
            "2024-05-15,10:11:12,00:00:00",
        ),
        (
            r#"b'\x00\xfF\101a', TO_JSON_STRING('\x41\u00e9\U0001F600\t'), "it's", 'a\'b', r'a\d', '''x'y'''"#,
            r#"00ff4161,"Aé😀\t",it's,a'b,a\d,x'y"#,
        ),
        (
            "LENGTH(GENERATE_UUID()), RAND() < 1, RAND() != RAND()",
            "36,true,true",
        ),
    ] {
        let got = lines(&format!("SELECT {sql}")).await;
        assert_eq!(got[1..], [want], "{sql}");
    }
    let head = lines(
        "SELECT DATE_TRUNC(DATE '2024-05-15', MONTH) AS a, DATETIME_TRUNC(DATETIME '2024-05-15 10:11:12', DAY) AS b, \
         TIMESTAMP_TRUNC(TIMESTAMP '2024-05-15 10:11:12+00', DAY) AS c, POW(2, 3) AS d",
    );
    assert_eq!(head.await[0], "a DATE, b DATETIME, c TIMESTAMP, d FLOAT64");
}

#[tokio::test]
async fn what_the_engine_would_leave_out_without_a_word_is_refused() {
    for (sql, want) in [
        (
            "SELECT AS STRUCT 1 AS a, 2 AS b",
            "SELECT AS STRUCT is not supported by this emulator",
        ),
        (
            "SELECT 1 AS x UNION ALL SELECT AS VALUE 1",
            "SELECT AS VALUE is not supported by this emulator",
        ),
        (
            "SELECT CAST('abc' AS STRING(2))",
            "CAST AS STRING(2) is not supported by this emulator",
        ),
        (
            "SELECT CAST(b'abc' AS BYTES(2))",
            "CAST AS BYTES(2) is not supported by this emulator",
        ),
        (
            "SELECT * FROM Users TABLESAMPLE SYSTEM (10 PERCENT)",
            "TABLESAMPLE is not supported by this emulator",
        ),
        ("SELECT NOW()", "Function not found: now"),
        ("SELECT RANDOM()", "Function not found: random"),
        (
            "SELECT CURRENT_DATE('Europe/Paris')",
            "Function not found: current_date",
        ),
        (
            "SELECT SUBSTR('abc', 1, -1)",
            "Third argument in SUBSTR() cannot be negative",
        ),
        (
            "SELECT CAST(b'\\xff' AS STRING)",
            "Invalid cast of bytes to UTF8 string",
        ),
        (
            "SELECT EXTRACT(HOUR FROM DATE '2024-01-02')",
            "EXTRACT of HOUR takes another type than Date32",
        ),
        (
            "SELECT EXTRACT(CENTURY FROM DATE '2024-01-02')",
            "EXTRACT of CENTURY is not supported by this emulator",
        ),
        ("SELECT '\\z'", "Syntax error: Illegal escape sequence: \\z"),
        ("SELECT b'\\u0041'", "Syntax error: Illegal escape sequence: \\u"),
        ("SELECT '\\xg1'", "Syntax error: Illegal escape sequence: \\x"),
        (
            "SELECT 'a''b'",
            "Syntax error: Concatenated string literals need to be separated by whitespace or comments",
        ),
    ] {
        let error = run(sql).await.unwrap_err().to_string();
        assert!(error.ends_with(want), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_query_that_is_given_up_ends() {
    let shared = shared();
    let numbers = "UNNEST(GENERATE_ARRAY(1, 100000))";
    let request = Request {
        sql: format!("SELECT COUNT(*) FROM {numbers} a, {numbers} b"),
        project: "p".to_owned(),
        default_dataset: None,
        parameters: Parameters::default(),
        dry_run: false,
        location: None,
    };
    let given_up = run_within(Duration::from_millis(100), &shared, request).await;
    assert_eq!(given_up, Err(QueryError::TimedOut));
    // Its thread holds its turn for as long as it runs.
    let turns = shared.turns();
    let all = turns.acquire_many(8);
    assert!(
        timeout(Duration::from_secs(5), all).await.is_ok(),
        "it still runs"
    );
}
