//! `types`: the mapping table as it is printed; and a run that writes what its rarer rows say.

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement, Schema};
use serde_json::{Value, json};

use crate::support::{World, endpoints, printed, tool};

fn types(arguments: &[&str]) -> String {
    let output = tool().arg("types").args(arguments).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn types_prints_what_is_written_and_what_is_refused() {
    let printed = types(&[]);
    // Cells are wrapped to what the terminal has; words stay.
    let words = |text: &str| {
        text.replace(['│', '┆'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let said = words(&printed);
    for line in [
        "Written:",
        "INT64 UInt64 Int64 int64 the same number; above 9223372036854775807: a row error",
        "JSON all text Utf8 string the same text; not one JSON value: a row error",
        "Refused, before the first row:",
        "DATETIME timestamps of another zone cast it to TIMESTAMP without time zone, in the zone that is meant",
        "DATETIME, TIMESTAMP, TIMESTAMP(12) all integers say the unit, for example to_timestamp_millis(x)",
    ] {
        assert!(said.contains(line), "{line}: {printed}");
    }
}

#[test]
fn types_as_json_is_one_object_a_cell() {
    let cells: Vec<Value> = types(&["--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(cells.len(), 20 * 55);
    let cell = |column: &str, pipeline: &str| {
        let mut found = cells
            .iter()
            .filter(|cell| cell["column"] == column && cell["pipeline"] == pipeline);
        let cell = found.next().unwrap_or_else(|| panic!("{pipeline} into {column}"));
        assert!(found.next().is_none());
        cell.clone()
    };
    assert_eq!(
        cell("TIMESTAMP(12)", "Timestamp(ns)"),
        json!({
            "column": "TIMESTAMP(12)", "pipeline": "Timestamp(ns)", "sql": "TIMESTAMP", "created": false,
            "sent_as": { "arrow": "Timestamp(ns, UTC)", "proto": "string" }, "arrives": "the same instant, without a zone in UTC",
        })
    );
    assert_eq!(
        cell("INT64", "UInt64"),
        json!({
            "column": "INT64", "pipeline": "UInt64", "sql": "BIGINT UNSIGNED", "created": true,
            "sent_as": { "arrow": "Int64", "proto": "int64" }, "arrives": "the same number; above 9223372036854775807: a row error",
        })
    );
    assert_eq!(
        cell("DATE", "Int64"),
        json!({
            "column": "DATE", "pipeline": "Int64", "sql": "BIGINT", "created": false,
            "remedy": "say the unit, for example CAST(to_timestamp_millis(x) AS DATE)",
        })
    );
}

/// One pipeline from a row of texts and numbers to a sink whose columns are the query's.
fn sql(world: &World, table: &str, format: &str, query: &str) -> String {
    let endpoints = endpoints(&world.emulator);
    format!(
        "CREATE TABLE source (id BIGINT NOT NULL, geo TEXT, at TIMESTAMP(9), until TIMESTAMP(9), took TEXT, doc JSON,
             big DECIMAL(38, 0), clock TIME, day DATE)
             WITH (connector = 'single_file', type = 'source', path = 'rows.ndjson', format = 'json');
         CREATE TABLE sink WITH (connector = 'bigquery', type = 'sink', project = 'p', dataset = 'd', 'table' = '{table}',
             'table.create' = 'if_missing', 'write.format' = '{format}', {endpoints});
         INSERT INTO sink SELECT {query} FROM source;"
    )
}

async fn run(world: &World, table: &str, format: &str, query: &str) {
    std::fs::write(world.pipeline(), sql(world, table, format, query)).unwrap();
    let mut command = world.run(&["--new-state"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
}

/// What `query --json` prints.
async fn queried(world: &World, sql: &str) -> Vec<Value> {
    let mut command = tool();
    let http = world.emulator.http_addr().to_string();
    command.args(["query", "--http", &http, "--project", "p", "--json", sql]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const ROWS: [&str; 2] = [
    r#"{"id": 1, "geo": "POINT(1 2)", "at": "2024-02-29T23:59:59.123456789Z", "until": null, "took": "14 months -3 days 1 hour 2 minutes 3.5 seconds", "doc": {"a": [1]}, "big": "99999999999999999999999999999999999999", "clock": "23:59:59.999999", "day": "2024-02-29"}"#,
    r#"{"id": 2}"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_run_writes_the_types_that_no_sql_column_declares_in_both_formats() {
    let world = World::new(0, "{}").await;
    std::fs::write(world.folder.path().join("rows.ndjson"), ROWS.join("\n")).unwrap();
    let numeric = Kind::BigNumeric {
        precision: None,
        scale: None,
    };
    for format in ["arrow", "proto"] {
        let columns = [
            ("id", Kind::Int64, Mode::Required),
            ("geo", Kind::Geography, Mode::Nullable),
            ("span", Kind::Range(RangeElement::Timestamp), Mode::Nullable),
            ("pico", Kind::TimestampPicoseconds, Mode::Nullable),
            ("civil", Kind::Datetime, Mode::Nullable),
            ("took", Kind::Interval, Mode::Nullable),
            ("doc", Kind::Json, Mode::Nullable),
            ("big", numeric.clone(), Mode::Nullable),
            ("clock", Kind::Time, Mode::Nullable),
            ("days", Kind::Date, Mode::Repeated),
        ];
        let columns = columns
            .map(|(name, kind, mode)| Column::new(name, kind, mode))
            .to_vec();
        let table = TableRef::new("p", "d", format);
        world
            .emulator
            .handle()
            .create_table(&table, Schema { columns })
            .unwrap();
        let query = "id, geo, CASE WHEN at IS NULL THEN NULL ELSE named_struct('start', at, 'end', until) END AS span, at AS pico,
             at AS civil, CAST(took AS INTERVAL) AS took, doc, big, clock, CASE WHEN day IS NULL THEN NULL ELSE make_array(day, day) END AS days";
        run(&world, format, format, query).await;
        let rows = printed(&world.emulator.handle().rows(&table).unwrap());
        let expected = [
            "1|POINT(1 2)|{start: 2024-02-29T23:59:59.123456Z, end: NULL}|1709251199.123456789000|2024-02-29T23:59:59.123456|\
             {months: 14, days: -3, microseconds: 3723500000}|{\"a\": [1]}|\
             99999999999999999999999999999999999999.00000000000000000000000000000000000000|23:59:59.999999|\
             [2024-02-29, 2024-02-29]",
            "2|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|[]",
        ];
        assert_eq!(rows, expected, "{format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_makes_a_table_for_intervals_arrays_and_structs() {
    let world = World::new(0, "{}").await;
    std::fs::write(world.folder.path().join("rows.ndjson"), ROWS.join("\n")).unwrap();
    let query = "id, at, big, clock, doc, CAST(took AS INTERVAL) AS took, make_array(day) AS \"days-of\",
         named_struct('a', id, 'b', named_struct('a', geo)) AS nested";
    let query = format!("{query} FROM source WHERE day IS NOT NULL; --");
    run(&world, "t", "arrow", &query).await;
    let columns = "SELECT column_name, data_type FROM `p.d.INFORMATION_SCHEMA.COLUMNS` WHERE table_name = 't' ORDER BY ordinal_position";
    let columns: Vec<(Value, Value)> = queried(&world, columns)
        .await
        .into_iter()
        .map(|row| (row["column_name"].clone(), row["data_type"].clone()))
        .collect();
    let expected = [
        ("id", "INT64"),
        ("at", "TIMESTAMP"),
        ("big", "BIGNUMERIC"),
        ("clock", "TIME"),
        ("doc", "JSON"),
        ("took", "INTERVAL"),
        ("days-of", "ARRAY<DATE>"),
        ("nested", "STRUCT<a INT64, b STRUCT<a STRING>>"),
    ];
    assert_eq!(columns, expected.map(|(name, kind)| (json!(name), json!(kind))));
    assert_eq!(
        queried(&world, "SELECT * FROM `p.d.t`").await,
        [json!({
            "id": 1, "at": "2024-02-29T23:59:59.123456Z", "big": "99999999999999999999999999999999999999",
            "clock": "23:59:59.999999", "doc": { "a": [1] }, "took": "1-2 -3 1:2:3.500", "days-of": ["2024-02-29"],
            "nested": { "a": 1, "b": { "a": "POINT(1 2)" } },
        })]
    );
}

/// What a run says of a query whose columns do not fit the table, or of none.
async fn outcome(world: &World, table: &TableRef, query: &str) -> String {
    let endpoints = endpoints(&world.emulator);
    let sql = format!(
        "CREATE TABLE source (seconds DOUBLE, utc TEXT, plain TEXT, ahead TEXT)
             WITH (connector = 'single_file', type = 'source', path = 'rows.ndjson', format = 'json');
         CREATE TABLE sink WITH (connector = 'bigquery', type = 'sink', project = 'p', dataset = 'd', 'table' = '{}', {endpoints});
         INSERT INTO sink SELECT {query} FROM source;",
        table.table
    );
    std::fs::write(world.pipeline(), sql).unwrap();
    let mut command = world.run(&["--new-state"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_are_numbers_or_texts_arrive_when_they_are_written_as_the_error_says() {
    // reports.md 62 and 64.
    let world = World::new(0, "{}").await;
    let row = r#"{"seconds": 1690825888.386, "utc": "2024-01-01T00:00:00Z", "plain": "2024-01-01T00:00:00", "ahead": "2024-01-01T02:00:00+02:00"}"#;
    std::fs::write(world.folder.path().join("rows.ndjson"), row).unwrap();
    let table = TableRef::new("p", "d", "times");
    let names = ["seconds", "utc", "plain", "ahead"];
    let columns = names.map(|name| Column::new(name, Kind::Timestamp, Mode::Nullable));
    let schema = Schema {
        columns: columns.to_vec(),
    };
    world.emulator.handle().create_table(&table, schema).unwrap();
    let said = outcome(&world, &table, "seconds, utc, plain, ahead").await;
    let remedies: Vec<String> = said
        .lines()
        .filter_map(|line| Some(line.split_once("for example ")?.1.to_owned()))
        .collect();
    assert_eq!(
        remedies,
        [
            "to_timestamp_micros(CAST(round(seconds * 1000000) AS BIGINT))",
            "CAST(utc AS TIMESTAMP)",
            "CAST(plain AS TIMESTAMP)",
            "CAST(ahead AS TIMESTAMP)",
        ],
        "{said}"
    );
    let query: Vec<String> = remedies
        .iter()
        .zip(names)
        .map(|(remedy, name)| format!("{remedy} AS {name}"))
        .collect();
    assert_eq!(outcome(&world, &table, &query.join(", ")).await, "");
    let new_year = "2024-01-01T00:00:00.000000Z";
    assert_eq!(
        printed(&world.emulator.handle().rows(&table).unwrap()),
        [format!(
            "2023-07-31T17:51:28.386000Z|{new_year}|{new_year}|{new_year}"
        )]
    );
}
