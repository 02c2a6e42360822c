//! `insertAll`: rows, errors, and rows that come again.

use super::*;

const PATH: &str = "datasets/d/tables/t/insertAll";

fn rows(rows: &[(&str, Value)]) -> Value {
    let row = |(id, json): &(&str, Value)| match *id {
        "" => json!({ "json": json }),
        id => json!({ "insertId": id, "json": json }),
    };
    rows.iter().map(row).collect()
}

fn answer(errors: &[(usize, &str, &str, &str)]) -> Value {
    let mut answer = json!({ "kind": "bigquery#tableDataInsertAllResponse" });
    if !errors.is_empty() {
        let entry = |(index, reason, location, message): &(usize, &str, &str, &str)| {
            let error =
                json!({ "reason": reason, "location": location, "debugInfo": "", "message": message });
            json!({ "index": index, "errors": [error] })
        };
        answer["insertErrors"] = errors.iter().map(entry).collect();
    }
    answer
}

impl World {
    async fn ids(&self) -> Vec<String> {
        let rows = self.get("datasets/d/tables/t/data").await["rows"].take();
        let id = |row: &Value| row["f"][0]["v"].as_str().unwrap().to_owned();
        rows.as_array().unwrap().iter().map(id).collect()
    }
}

#[tokio::test]
async fn rows_are_inserted_and_one_bad_row_stops_all() {
    let world = World::with_rows(0).await;
    let good = rows(&[
        ("", json!({ "id": 1, "at": "1970-01-01 00:00:01" })),
        ("", json!({ "ID": "2" })),
    ]);
    assert_eq!(world.post(PATH, json!({ "rows": good })).await, answer(&[]));
    let data = world.get("datasets/d/tables/t/data").await["rows"].take();
    assert_eq!(
        data,
        json!([{ "f": [{ "v": "1" }, { "v": "1.0" }] }, { "f": [{ "v": "2" }, { "v": null }] }])
    );
    let mixed = rows(&[
        ("", json!({ "id": 3 })),
        ("", json!({ "id": 4, "nope": true })),
        ("", json!({ "at": null })),
    ]);
    let refused = world.post(PATH, json!({ "rows": mixed })).await;
    let want = answer(&[
        (0, "stopped", "", ""),
        (1, "invalid", "nope", "no such field: nope."),
        (2, "invalid", "id", "Missing required field: id."),
    ]);
    assert_eq!(refused, want);
    assert_eq!(world.ids().await, ["1", "2"]);
    let skipping = json!({ "rows": mixed, "skipInvalidRows": true });
    let want = answer(&[
        (1, "invalid", "nope", "no such field: nope."),
        (2, "invalid", "id", "Missing required field: id."),
    ]);
    assert_eq!(world.post(PATH, skipping).await, want);
    assert_eq!(world.ids().await, ["1", "2", "3"]);
    let ignoring = json!({ "rows": mixed, "skipInvalidRows": true, "ignoreUnknownValues": true });
    let want = answer(&[(2, "invalid", "id", "Missing required field: id.")]);
    assert_eq!(world.post(PATH, ignoring).await, want);
    assert_eq!(world.ids().await, ["1", "2", "3", "3", "4"]);
}

#[tokio::test]
async fn a_row_that_comes_again_with_its_id_is_inserted_once() {
    let world = World::with_rows(0).await;
    let body = |list: &[(&str, Value)]| json!({ "rows": rows(list) });
    let (a, b, c) = (json!({ "id": 1 }), json!({ "id": 2 }), json!({ "id": 3 }));
    world
        .post(PATH, body(&[("a", a.clone()), ("a", a.clone()), ("", b.clone())]))
        .await;
    // A row that was refused is not known.
    let bad = body(&[("b", b.clone()), ("x", json!({}))]);
    world.post(PATH, bad).await;
    world
        .post(PATH, body(&[("a", a.clone()), ("b", b.clone()), ("c", c)]))
        .await;
    assert_eq!(world.ids().await, ["1", "2", "2", "3"]);
    // Nor does it use up the id of a good one in the same request.
    let mut mixed = body(&[
        ("y", json!({})),
        ("y", json!({ "id": 4 })),
        ("y", json!({ "id": 5 })),
    ]);
    mixed["skipInvalidRows"] = true.into();
    let bad = answer(&[(0, "invalid", "id", "Missing required field: id.")]);
    assert_eq!(world.post(PATH, mixed).await, bad);
    assert_eq!(world.ids().await, ["1", "2", "2", "3", "4"]);
    world.shared.advance(60_000);
    world.post(PATH, body(&[("a", a.clone())])).await;
    world.shared.advance(1);
    world.post(PATH, body(&[("a", a), ("b", b)])).await;
    assert_eq!(world.ids().await, ["1", "2", "2", "3", "4", "1", "2"]);
}

#[tokio::test]
async fn rows_are_inserted_into_a_day_and_a_query_tells_which() {
    let world = World::with_rows(0).await;
    let sql = |text: &str| json!({ "query": text, "useLegacySql": false });
    world
        .post(
            "queries",
            sql("CREATE TABLE d.daily (id INT64) PARTITION BY _PARTITIONDATE"),
        )
        .await;
    // The clock says 2023-11-14.
    for (table, id) in [("daily$20231110", 1), ("daily", 2)] {
        let body = json!({ "rows": rows(&[("", json!({ "id": id }))]) });
        world
            .post(&format!("datasets/d/tables/{table}/insertAll"), body)
            .await;
    }
    let found = world
        .post(
            "queries",
            sql("SELECT id, _PARTITIONDATE AS day FROM d.daily ORDER BY id"),
        )
        .await;
    let row = |id: &str, day: &str| json!({ "f": [{ "v": id }, { "v": day }] });
    assert_eq!(
        found["rows"],
        json!([row("1", "2023-11-10"), row("2", "2023-11-14")])
    );
}

#[tokio::test]
async fn what_cannot_be_inserted_is_refused() {
    let world = World::with_rows(0).await;
    let one = json!({ "rows": rows(&[("", json!({ "id": 1 }))]) });
    let mut suffixed = one.clone();
    suffixed["templateSuffix"] = "_x".into();
    let many: Vec<Value> = vec![json!({ "json": {} }); 50_001];
    world
        .post("queries", json!({ "query": "CREATE VIEW d.v AS SELECT 1 AS id" }))
        .await;
    for (path, body, code, status, reason, text) in [
        (
            PATH,
            json!({}),
            400,
            "INVALID_ARGUMENT",
            "invalid",
            "No rows present in the request.",
        ),
        (
            PATH,
            json!({ "rows": many }),
            400,
            "INVALID_ARGUMENT",
            "invalid",
            "Too many rows present in the request, limit: 50000 row count: 50001.",
        ),
        (
            PATH,
            suffixed,
            501,
            "UNIMPLEMENTED",
            "notImplemented",
            "This emulator does not support templateSuffix: create the table before",
        ),
        (
            "datasets/d/tables/nope/insertAll",
            one.clone(),
            404,
            "NOT_FOUND",
            "notFound",
            "Not found: Table p:d.nope",
        ),
        (
            "datasets/d/tables/v/insertAll",
            one.clone(),
            400,
            "INVALID_ARGUMENT",
            "invalid",
            "Cannot insert rows into a view.",
        ),
        (
            "datasets/d/tables/t$20231114/insertAll",
            one,
            400,
            "INVALID_ARGUMENT",
            "invalid",
            "Partition decorator $20231114 cannot be used: the table is not partitioned by the day of ingestion",
        ),
    ] {
        assert_eq!(
            world.refused("POST", path, body).await,
            error(code, status, reason, text)
        );
    }
}
