//! What queries do to rows: filters that let none pass, and values that their types cannot hold.

use std::path::Path;

use bigquery_sink_pipeline::{Control, HostError, Pipeline, Summary};

use crate::fake::World;

/// Reads `lines` as rows of (n BIGINT NOT NULL, d DATE, j BIGINT) and writes what the query gives into `columns`.
async fn run(lines: &str, columns: &str, query: &str) -> (Result<Summary, HostError>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.csv"), format!("n,d,j\n{lines}")).unwrap();
    let world = World::new(&folder.path().join("state"), 2);
    let pipeline = pipeline(folder.path(), columns, query);
    let ended = world.run(&pipeline, Control::new()).await;
    (ended, world.visible())
}

fn pipeline(folder: &Path, columns: &str, query: &str) -> Pipeline {
    let sql = format!(
        "CREATE TABLE lines (n BIGINT NOT NULL, d DATE, j BIGINT) WITH (connector = 'single_file', path = 'in.csv', format = 'csv');
         CREATE TABLE unread WITH (connector = 'impulse', event_rate = '1');
         CREATE TABLE out ({columns}) WITH (connector = 'bigquery');
         INSERT INTO out {query}"
    );
    Pipeline::parse(&sql, &folder.join("p.sql")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_never_true_reads_everything_and_writes_nothing() {
    let lines = "1,2020-01-01,1\n2,,\n3,,3\n";
    for filter in ["false", "n IS NULL", "1 = 2", "NULL", "n > 1 AND false", "n <> n"] {
        let (ended, visible) = run(lines, "n BIGINT", &format!("SELECT n FROM lines WHERE {filter}")).await;
        let summary = ended.unwrap();
        assert_eq!(
            (summary.rows_read, summary.rows_committed, summary.restarts),
            (3, 0, 0),
            "{filter}"
        );
        assert_eq!(visible, Vec::<String>::new(), "{filter}");
    }
    let nested = "SELECT a FROM (SELECT 7 AS a FROM lines WHERE false) t WHERE a > 1";
    let (ended, visible) = run(lines, "n BIGINT", nested).await;
    assert_eq!((ended.unwrap().rows_read, visible.len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_only_an_unused_with_names_is_not_the_one_read() {
    let query = "WITH other AS (SELECT counter FROM unread) SELECT n FROM lines";
    let (ended, visible) = run("5,,\n", "n BIGINT", query).await;
    assert_eq!((ended.unwrap().rows_read, visible), (1, vec!["5".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_date_beyond_a_timestamp_ends_the_run_with_its_column_and_no_restart() {
    let message =
        "column moment: the query failed on a row: the result of an operation is out of its type's range";
    for (column, query) in [
        ("moment TIMESTAMP", "SELECT d FROM lines"),
        ("moment TIMESTAMP", "SELECT CAST(d AS TIMESTAMP) FROM lines"),
        (
            "moment TEXT",
            "SELECT CAST(CAST(d AS TIMESTAMP) AS TEXT) FROM lines",
        ),
        ("moment BOOLEAN", "SELECT d = CAST(d AS TIMESTAMP) FROM lines"),
        ("moment TIMESTAMP", "SELECT date_trunc('day', d) FROM lines"),
    ] {
        let (ended, visible) = run("1,2020-01-01,\n2,2263-01-01,\n", column, query).await;
        assert_eq!(
            ended.map_err(|e| e.to_string()),
            Err(message.to_owned()),
            "{query}"
        );
        assert_eq!(visible, Vec::<String>::new(), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn dates_that_fit_become_the_midnight_they_begin_with() {
    let lines = "1,1677-09-22,\n2,1969-12-31,\n3,,\n4,2262-04-11,\n";
    let columns = "n BIGINT, nanos TIMESTAMP, micros TIMESTAMP(6), tried TIMESTAMP";
    let query = "SELECT n, d, d AS e, TRY_CAST(d AS TIMESTAMP) AS t FROM lines";
    let (ended, visible) = run(lines, columns, query).await;
    ended.unwrap();
    let row = |n: u64, day: &str| format!("{n}|{day}|{day}|{day}");
    assert_eq!(
        visible,
        [
            row(1, "1677-09-22T00:00:00"),
            row(2, "1969-12-31T00:00:00"),
            row(3, "NULL"),
            row(4, "2262-04-11T00:00:00"),
        ]
    );
    let (ended, visible) = run(
        "1,9999-12-31,\n",
        "far TIMESTAMP(6), tried TIMESTAMP",
        "SELECT d, TRY_CAST(d AS TIMESTAMP) AS t FROM lines",
    )
    .await;
    ended.unwrap();
    assert_eq!(visible, ["9999-12-31T00:00:00|NULL"]);
}

#[tokio::test(start_paused = true)]
async fn an_expression_that_fails_or_panics_is_named_and_never_tried_again() {
    let (ended, _) = run("1,2020-01-01,0\n", "q BIGINT", "SELECT n / j AS made FROM lines").await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "column q: the query failed on a row: a division by zero; guard it with nullif(divisor, 0)"
    );
    let panicking = "SELECT n FROM lines WHERE d + INTERVAL '300000 years' > d";
    let (ended, _) = run("1,2020-01-01,0\n", "q BIGINT", panicking).await;
    assert!(matches!(ended, Err(HostError::Query(_))), "{ended:?}");
}
