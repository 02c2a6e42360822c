//! Tables that a run creates or changes as its SQL asks.

use arrow_array::Array as _;
use bigquery_write_emulator::catalog::TableRef;

use crate::bad_input::{COLUMNS, Job, THREE_ROWS, said};
use crate::support::tool;

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_which_columns_a_run_would_add_and_the_run_adds_them() {
    let job = Job::new().await;
    let columns = format!("{COLUMNS}, weight DOUBLE");
    let sql = job.sql(COLUMNS, &columns, "id, name, amount, 2.5", "t");
    job.write(
        "job.sql",
        &sql.replace("'table' = 't'", "'table' = 't', 'schema.update' = 'add_columns'"),
    );
    job.write("feed.ndjson", THREE_ROWS);
    let mut command = tool();
    command.arg("check").arg(job.path("job.sql")).arg("--connect");
    let checked = command.output().unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    let last =
        "ok; the table lacks columns, which will be added ('schema.update' = 'add_columns'): weight FLOAT64";
    assert_eq!(
        (checked.status.code(), told.lines().last()),
        (Some(0), Some(last))
    );
    let run = job.run_file("job.sql", &[]).await;
    assert_eq!(said(&job, &run), (Some(0), String::new()));
    let rows = job.emulator.handle().rows(&TableRef::new("p", "d", "t")).unwrap();
    let weights = rows.column_by_name("weight").unwrap();
    assert_eq!(
        (weights.len(), weights.null_count()),
        (4, 1),
        "the row of before has none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_and_the_layout_that_the_pipeline_asks_for_are_those_of_the_created_table() {
    let job = Job::new().await;
    let sink = COLUMNS.replace("id BIGINT NOT NULL", "id BIGINT NOT NULL PRIMARY KEY");
    let sql = job.sql(COLUMNS, &sink, "id, name, amount", "made");
    let layout = "'table' = 'made', 'table.create' = 'if_missing', 'table.partition_type' = 'day', 'table.cluster_by' = 'name'";
    job.write("job.sql", &sql.replace("'table' = 'made'", layout));
    job.write("feed.ndjson", THREE_ROWS);
    let run = job.run_file("job.sql", &[]).await;
    assert_eq!(said(&job, &run), (Some(0), String::new()));
    let rest = job.emulator.handle().shared().with(|machine| {
        let table = machine.catalog().table(&TableRef::new("p", "d", "made")).unwrap();
        serde_json::Value::Object(table.rest.clone())
    });
    let expected = serde_json::json!({
        "timePartitioning": {"type": "DAY"},
        "clustering": {"fields": ["name"]},
        "tableConstraints": {"primaryKey": {"columns": ["id"]}},
    });
    assert_eq!(rest, expected);
}
