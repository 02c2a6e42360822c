//! The calls that the `bq` command makes, as it makes them.

use super::*;

impl World {
    async fn bq(&self, method: &str, path: &str, body: Value) -> Value {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let (status, answer) = self.call(method, &format!("{path}alt=json"), body).await;
        assert!(status == 200 || status == 204, "{method} {path}: {answer}");
        answer
    }
}

#[tokio::test]
async fn a_table_is_made_filled_queried_shown_changed_and_removed() {
    let world = World::new();
    // bq mk --dataset p:d
    let reference = json!({ "datasetReference": { "projectId": "p", "datasetId": "d" } });
    world.bq("POST", "datasets?", reference).await;
    // bq mk --table --time_partitioning_field at --clustering_fields id p:d.t id:INTEGER,at:TIMESTAMP
    let table = json!({ "projectId": "p", "datasetId": "d", "tableId": "t" });
    let made = world
        .bq(
            "POST",
            "datasets/d/tables?",
            json!({
                "tableReference": table,
                "schema": { "fields": [
                    { "name": "id", "type": "INTEGER" },
                    { "name": "at", "type": "TIMESTAMP" },
                ] },
                "timePartitioning": { "type": "DAY", "field": "at" },
                "clustering": { "fields": ["id"] },
            }),
        )
        .await;
    assert_eq!(made["numRows"], "0");
    // bq insert p:d.t rows.json
    let rows = json!([
        { "insertId": "bq_1", "json": { "id": "1", "at": "1970-01-01 00:00:01.5 UTC" } },
        { "insertId": "bq_2", "json": { "id": 2, "at": "1970-01-01T00:00:03Z" } },
    ]);
    let inserted = world
        .bq("POST", "datasets/d/tables/t/insertAll?", json!({ "rows": rows }))
        .await;
    assert_eq!(inserted, json!({ "kind": "bigquery#tableDataInsertAllResponse" }));
    // bq head p:d.t
    let head = world
        .bq(
            "GET",
            "datasets/d/tables/t/data?maxResults=100&startIndex=0&formatOptions.useInt64Timestamp=true&",
            Value::Null,
        )
        .await;
    let row = |id: &str, at: &str| json!({ "f": [{ "v": id }, { "v": at }] });
    assert_eq!(head["rows"], json!([row("1", "1500000"), row("2", "3000000")]));
    // bq query --use_legacy_sql=false
    let query = json!({ "query": "SELECT id, at FROM d.t WHERE id > 1", "useLegacySql": false, "priority": "INTERACTIVE" });
    let job = world
        .bq(
            "POST",
            "jobs?",
            json!({
                "jobReference": { "projectId": "p", "jobId": "bqjob_r1_1", "location": "US" },
                "configuration": { "query": query, "dryRun": false },
            }),
        )
        .await;
    assert_eq!(job["status"]["state"], "DONE");
    let results = world
        .bq(
            "GET",
            "queries/bqjob_r1_1?maxResults=100&startIndex=0&timeoutMs=0&location=US&formatOptions.useInt64Timestamp=true&",
            Value::Null,
        )
        .await;
    assert_eq!(
        (&results["totalRows"], &results["rows"]),
        (&json!("1"), &json!([row("2", "3000000")]))
    );
    // bq show, bq update --description
    let shown = world.bq("GET", "datasets/d/tables/t?", Value::Null).await;
    assert_eq!(shown["numRows"], "2");
    let changed = world
        .bq(
            "PATCH",
            "datasets/d/tables/t?",
            json!({ "tableReference": table, "description": "text" }),
        )
        .await;
    assert_eq!(changed["description"], "text");
    // bq mk --view
    let view = json!({
        "tableReference": { "projectId": "p", "datasetId": "d", "tableId": "v" },
        "view": { "query": "SELECT COUNT(*) AS n FROM `p.d.t`", "useLegacySql": false },
    });
    world.bq("POST", "datasets/d/tables?", view).await;
    // bq ls, bq ls -j
    let listed = world
        .bq("GET", "datasets/d/tables?maxResults=50&", Value::Null)
        .await;
    let ids: Vec<_> = listed["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| &table["id"])
        .collect();
    assert_eq!(ids, ["p:d.t", "p:d.v"]);
    let jobs = world
        .bq(
            "GET",
            "jobs?projection=full&maxResults=50&allUsers=false&",
            Value::Null,
        )
        .await;
    assert_eq!(jobs["jobs"][0]["configuration"]["query"], query);
    // bq rm -r -f p:d
    world
        .bq("DELETE", "datasets/d?deleteContents=true&", Value::Null)
        .await;
    assert_eq!(world.get("datasets").await["datasets"], json!([]));
}
