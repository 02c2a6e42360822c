//! Changes of tables and datasets: what they answer, and what they refuse.

use super::*;

impl World {
    /// As `call`, with an `If-Match` header.
    async fn change(&self, method: &str, path: &str, etag: Option<&Value>, body: Value) -> (u16, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/bigquery/v2/projects/p/{path}"))
            .header("content-type", "application/json");
        if let Some(etag) = etag {
            request = request.header("if-match", etag.as_str().unwrap());
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 64 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn patch(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.change("PATCH", path, None, body).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

const TABLE: &str = "datasets/d/tables/t";

fn fields() -> Vec<Value> {
    vec![
        json!({ "name": "id", "type": "INTEGER", "mode": "REQUIRED" }),
        json!({ "name": "at", "type": "TIMESTAMP", "mode": "NULLABLE" }),
    ]
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_the_etag() {
    let world = World::with_rows(1).await;
    let first = world
        .patch(
            TABLE,
            json!({ "description": "text", "labels": { "a": "b", "c": "d" } }),
        )
        .await;
    let before = world.get(TABLE).await;
    assert_eq!(first, before);
    assert_eq!(first["labels"], json!({ "a": "b", "c": "d" }));
    let second = world
        .patch(
            TABLE,
            json!({ "labels": { "a": null, "e": "f" }, "friendlyName": "T" }),
        )
        .await;
    let mut want = before.clone();
    want["labels"] = json!({ "c": "d", "e": "f" });
    want["friendlyName"] = "T".into();
    want["etag"] = second["etag"].clone();
    assert_eq!(second, want);
    assert_ne!(second["etag"], before["etag"]);
    let third = world.patch(TABLE, json!({ "description": null })).await;
    assert_eq!(third.get("description"), None);
    assert_eq!(third["friendlyName"], "T");
}

#[tokio::test]
async fn a_change_of_another_state_than_the_one_known_is_refused() {
    let world = World::with_rows(0).await;
    let first = world.get(TABLE).await["etag"].clone();
    let (status, second) = world
        .change("PATCH", TABLE, Some(&first), json!({ "description": "one" }))
        .await;
    assert_eq!((status, &second["description"]), (200, &json!("one")));
    // Rows are no change of a table's description.
    world
        .post("queries", json!({ "query": "INSERT d.t (id) VALUES (1)" }))
        .await;
    let unchanged = json!({ "description": "one" });
    let (status, again) = world
        .change("PATCH", TABLE, Some(&second["etag"]), unchanged)
        .await;
    assert_eq!((status, &again["numRows"]), (200, &json!("1")));
    let message = "Precondition check failed.";
    let mut refused = error(412, "FAILED_PRECONDITION", "conditionNotMet", message);
    refused["error"]["errors"][0]["locationType"] = "header".into();
    refused["error"]["errors"][0]["location"] = "If-Match".into();
    for method in ["PATCH", "PUT"] {
        let body = json!({ "description": "two" });
        let got = world.change(method, TABLE, Some(&first), body).await;
        assert_eq!(got, (412, refused.clone()), "{method}");
    }
    assert_eq!(world.get(TABLE).await["description"], "one");
    let dataset = world.get("datasets/d").await["etag"].clone();
    let body = || json!({ "description": "three" });
    assert_eq!(
        world
            .change("PATCH", "datasets/d", Some(&dataset), body())
            .await
            .0,
        200
    );
    assert_eq!(
        world.change("PATCH", "datasets/d", Some(&dataset), body()).await,
        (412, refused)
    );
    let any = json!("*");
    assert_eq!(world.change("PUT", "datasets/d", Some(&any), body()).await.0, 200);
}

#[tokio::test]
async fn an_update_replaces_the_description_and_keeps_the_columns() {
    let world = World::with_rows(1).await;
    world
        .patch(TABLE, json!({ "description": "text", "labels": { "a": "b" } }))
        .await;
    let (status, table) = world
        .change("PUT", TABLE, None, json!({ "friendlyName": "T" }))
        .await;
    assert_eq!(status, 200);
    assert_eq!((table.get("description"), table.get("labels")), (None, None));
    assert_eq!(table["friendlyName"], "T");
    assert_eq!(table["schema"]["fields"], Value::from(fields()));
    assert_eq!(table["numRows"], "1");
    world.patch("datasets/d", json!({ "labels": { "a": "b" } })).await;
    let (_, dataset) = world
        .change(
            "PUT",
            "datasets/d",
            None,
            json!({ "description": "D", "location": "us" }),
        )
        .await;
    assert_eq!(
        (dataset.get("labels"), &dataset["description"]),
        (None, &json!("D"))
    );
    assert_eq!(dataset["location"], "US");
}

#[tokio::test]
async fn a_post_can_stand_for_a_patch() {
    let world = World::with_rows(0).await;
    for path in [TABLE, "datasets/d"] {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/bigquery/v2/projects/p/{path}"))
            .header("x-http-method-override", "PATCH")
            .body(Body::from(json!({ "description": "text" }).to_string()))
            .unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(world.get(path).await["description"], "text");
    }
}

#[tokio::test]
async fn added_columns_are_null_or_empty_in_rows_that_are_there() {
    let world = World::with_rows(2).await;
    let mut columns = fields();
    columns[0]["mode"] = "NULLABLE".into();
    let inner = json!([{ "name": "x", "type": "STRING", "mode": "REQUIRED" }]);
    columns.push(json!({ "name": "tags", "type": "STRING", "mode": "REPEATED" }));
    columns.push(json!({ "name": "s", "type": "RECORD", "mode": "NULLABLE", "fields": inner }));
    let table = world
        .patch(TABLE, json!({ "schema": { "fields": columns } }))
        .await;
    assert_eq!(table["schema"]["fields"], Value::from(columns));
    let rows = world.get(&format!("{TABLE}/data")).await["rows"].take();
    let row = |id: &str, at: &str| json!({ "f": [{ "v": id }, { "v": at }, { "v": [] }, { "v": null }] });
    assert_eq!(rows, json!([row("0", "0.0"), row("1", "1.5")]));
    let query = json!({ "query": "SELECT COUNT(s) AS s, COUNT(*) AS n FROM d.t" });
    let counts = world.post("queries", query).await["rows"].take();
    assert_eq!(counts, json!([{ "f": [{ "v": "0" }, { "v": "2" }] }]));
}

#[tokio::test]
async fn other_changes_of_columns_are_refused_in_googles_words() {
    let world = World::with_rows(1).await;
    let changed = |i: usize, key: &str, value: &str| {
        let mut fields = fields();
        fields[i][key] = value.into();
        Value::from(fields)
    };
    let mut added = fields();
    added.push(json!({ "name": "n", "type": "INTEGER", "mode": "REQUIRED" }));
    for (fields, reason) in [
        (json!([fields()[0]]), "Field at is missing in new schema"),
        (
            changed(1, "type", "STRING"),
            "Field at has changed type from TIMESTAMP to STRING",
        ),
        (
            changed(1, "mode", "REQUIRED"),
            "Field at has changed mode from NULLABLE to REQUIRED",
        ),
        (
            Value::from(added),
            "Cannot add required fields to an existing schema. (field: n)",
        ),
    ] {
        let body = json!({ "schema": { "fields": fields } });
        let text = format!("Provided Schema does not match Table p:d.t. {reason}");
        let want = error(400, "INVALID_ARGUMENT", "invalid", &text);
        assert_eq!(world.refused("PATCH", TABLE, body).await, want);
    }
}

#[tokio::test]
async fn how_a_table_is_laid_out_is_checked_and_given_back() {
    let world = World::with_rows(0).await;
    let columns = json!([
        { "name": "id", "type": "INTEGER" },
        { "name": "Day", "type": "DATE" },
        { "name": "name", "type": "STRING" },
        { "name": "list", "type": "INTEGER", "mode": "REPEATED" },
        { "name": "price", "type": "FLOAT" },
    ]);
    let mut body = json!({
        "tableReference": { "tableId": "u" },
        "schema": { "fields": columns },
        "timePartitioning": { "type": "day", "field": "day", "expirationMs": 86400000 },
        "clustering": { "fields": ["id", "name"] },
        "requirePartitionFilter": true,
        "tableConstraints": { "primaryKey": { "columns": ["id"] } },
        "maxStaleness": "0-0 0 0:15:0",
        "expirationTime": 1_900_000_000_000_i64,
        "defaultCollation": "",
    });
    let made = world.post("datasets/d/tables", body.clone()).await;
    body["timePartitioning"] = json!({ "type": "DAY", "field": "Day", "expirationMs": "86400000" });
    body["expirationTime"] = "1900000000000".into();
    for field in [
        "timePartitioning",
        "clustering",
        "requirePartitionFilter",
        "tableConstraints",
        "maxStaleness",
        "expirationTime",
        "defaultCollation",
    ] {
        assert_eq!(made[field], body[field], "{field}");
    }
    for (field, value, text) in [
        (
            "timePartitioning",
            json!({ "type": "WEEK" }),
            "Invalid value for timePartitioning.type: \"WEEK\" is not DAY, HOUR, MONTH or YEAR",
        ),
        (
            "timePartitioning",
            json!({ "type": "DAY", "field": "nope" }),
            "The field specified for partitioning cannot be found in the schema: nope",
        ),
        (
            "timePartitioning",
            json!({ "type": "DAY", "field": "name" }),
            "The field specified for time partitioning must be of type DATE, TIMESTAMP or DATETIME; name is STRING",
        ),
        (
            "timePartitioning",
            json!({ "type": "HOUR", "field": "Day" }),
            "Field Day has type DATE and cannot be partitioned by HOUR",
        ),
        (
            "rangePartitioning",
            json!({ "field": "id", "range": { "start": "0", "end": "100", "interval": "0" } }),
            "rangePartitioning.range needs an end after its start and an interval above 0",
        ),
        (
            "clustering",
            json!({ "fields": ["id", "name", "Day", "id", "name"] }),
            "Clustering is possible by 1 to 4 columns; 5 are given",
        ),
        (
            "clustering",
            json!({ "fields": ["list"] }),
            "Clustering is not possible by list: it is REPEATED INT64",
        ),
        (
            "clustering",
            json!({ "fields": ["price"] }),
            "Clustering is not possible by price: it is FLOAT64",
        ),
        (
            "requirePartitionFilter",
            json!(true),
            "requirePartitionFilter can only be set on a partitioned table",
        ),
        (
            "tableConstraints",
            json!({ "primaryKey": { "columns": ["list"] } }),
            "Column list cannot be in a primary key: it is ARRAY",
        ),
        (
            "tableConstraints",
            json!({ "primaryKey": { "columns": ["nope"] } }),
            "Column nope of the primary key cannot be found in the schema",
        ),
        (
            "maxStaleness",
            json!("15 minutes"),
            "Invalid value for maxStaleness: \"15 minutes\" is no INTERVAL in the format [Y-M D H:M:S], such as \"0-0 0 0:15:0\"",
        ),
        (
            "expirationTime",
            json!("1600000000000"),
            "Invalid value for expirationTime: the expiration time must be in the future",
        ),
        (
            "labels",
            json!({ "A": "b" }),
            "Invalid field value \"A\". Label keys and values may only contain lowercase letters, numbers, dashes and \
             underscores, and have at most 63 characters.",
        ),
    ] {
        let mut body = json!({ "tableReference": { "tableId": "v" }, "schema": { "fields": columns } });
        body[field] = value.clone();
        let want = error(400, "INVALID_ARGUMENT", "invalid", text);
        assert_eq!(
            world.refused("POST", "datasets/d/tables", body).await,
            want,
            "{field}: {value}"
        );
    }
}

#[tokio::test]
async fn partitioning_is_fixed_and_clustering_is_not() {
    let world = World::with_rows(0).await;
    let clustered = world
        .patch(TABLE, json!({ "clustering": { "fields": ["id"] } }))
        .await;
    assert_eq!(clustered["clustering"], json!({ "fields": ["id"] }));
    let text = "Cannot convert non partitioned/clustered table to partitioned/clustered table.";
    let want = error(400, "INVALID_ARGUMENT", "invalid", text);
    let day = json!({ "timePartitioning": { "type": "DAY", "field": "at" } });
    assert_eq!(world.refused("PATCH", TABLE, day.clone()).await, want);
    let mut body = json!({
        "tableReference": { "tableId": "u" },
        "schema": { "fields": fields() },
    });
    body["timePartitioning"] = day["timePartitioning"].clone();
    world.post("datasets/d/tables", body).await;
    let path = "datasets/d/tables/u";
    let expiring = world
        .patch(path, json!({ "timePartitioning": { "expirationMs": "5" } }))
        .await;
    let expected = json!({ "type": "DAY", "field": "at", "expirationMs": "5" });
    assert_eq!(expiring["timePartitioning"], expected);
    let hour = json!({ "timePartitioning": { "type": "HOUR" } });
    let text = "Incompatible table partitioning specification. Expects partitioning specification \
                interval(type:day,field:at), but input partitioning specification is interval(type:hour,field:at)";
    let want = error(400, "INVALID_ARGUMENT", "invalid", text);
    assert_eq!(world.refused("PATCH", path, hour).await, want);
}

#[tokio::test]
async fn a_datasets_defaults_are_those_of_its_new_tables() {
    let world = World::with_rows(0).await;
    let dataset = world
        .patch(
            "datasets/d",
            json!({ "defaultTableExpirationMs": 5000, "labels": { "a": "b" } }),
        )
        .await;
    assert_eq!(dataset["defaultTableExpirationMs"], "5000");
    assert_eq!(dataset["labels"], json!({ "a": "b" }));
    let body = json!({ "tableReference": { "tableId": "u" }, "schema": { "fields": fields() } });
    let made = world.post("datasets/d/tables", body).await;
    assert_eq!(made["expirationTime"], (NOW + 5000).to_string());
    let moved = json!({ "location": "EU" });
    let want = error(
        400,
        "INVALID_ARGUMENT",
        "invalid",
        "A dataset's location cannot be changed",
    );
    assert_eq!(world.refused("PATCH", "datasets/d", moved).await, want);
}

#[tokio::test]
async fn projects_are_those_that_have_datasets() {
    let world = World::with_rows(0).await;
    let get = |path: &'static str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let router = world.router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap();
            let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            serde_json::from_slice::<Value>(&bytes).unwrap()
        }
    };
    let list = get("/bigquery/v2/projects").await;
    let entry = json!({
        "kind": "bigquery#project",
        "id": "p",
        "numericId": list["projects"][0]["numericId"],
        "projectReference": { "projectId": "p" },
        "friendlyName": "p",
    });
    let want =
        json!({ "kind": "bigquery#projectList", "etag": "list", "projects": [entry], "totalItems": 1 });
    assert_eq!(list, want);
    let account = get("/bigquery/v2/projects/p/serviceAccount").await;
    let want = json!({ "kind": "bigquery#getServiceAccountResponse", "email": "bq-p@localhost" });
    assert_eq!(account, want);
}

#[tokio::test]
async fn what_would_change_values_and_is_not_done_here_is_refused_by_name() {
    let world = World::with_rows(0).await;
    let table = |key: &str, value: Value| {
        let mut field = json!({ "name": "a", "type": "STRING" });
        field[key] = value;
        json!({ "tableReference": { "tableId": "u" }, "schema": { "fields": [field] } })
    };
    for (key, value) in [
        ("collation", json!("und:ci")),
        (
            "policyTags",
            json!({ "names": ["projects/p/locations/us/taxonomies/1/policyTags/2"] }),
        ),
        ("roundingMode", json!("ROUND_HALF_EVEN")),
        ("dataPolicies", json!([{ "name": "x" }])),
    ] {
        let text = format!("This emulator does not support {key} (field a)");
        let want = error(501, "UNIMPLEMENTED", "notImplemented", &text);
        assert_eq!(
            world
                .refused("POST", "datasets/d/tables", table(key, value))
                .await,
            want
        );
    }
    for (key, value) in [("collation", json!("")), ("policyTags", json!({ "names": [] }))] {
        world.post("datasets/d/tables", table(key, value)).await;
        world.call("DELETE", "datasets/d/tables/u", Body::empty()).await;
    }
    let bad = |text: &str| error(400, "INVALID_ARGUMENT", "invalid", text);
    let list = json!({ "tableReference": { "tableId": "u" }, "schema": [{ "name": "a", "type": "STRING" }] });
    let want = bad("Invalid schema: it must be an object with the list fields");
    assert_eq!(world.refused("POST", "datasets/d/tables", list).await, want);
    for (field, value) in [
        ("defaultCollation", json!("und:ci")),
        ("defaultRoundingMode", json!("ROUND_HALF_EVEN")),
    ] {
        let want = bad(&format!("This emulator does not support {field}"));
        let patch = json!({ field: value });
        assert_eq!(world.refused("PATCH", TABLE, patch.clone()).await, want);
        assert_eq!(world.refused("PATCH", "datasets/d", patch).await, want);
    }
    let want = bad("This emulator does not support isCaseInsensitive");
    assert_eq!(
        world
            .refused("PATCH", "datasets/d", json!({ "isCaseInsensitive": true }))
            .await,
        want
    );
    for (sql, text) in [
        (
            "CREATE TABLE d.u (a STRING COLLATE 'und:ci')",
            "This emulator does not support COLLATE (column a)",
        ),
        (
            "CREATE TABLE d.u (a NUMERIC(5, 2) OPTIONS (rounding_mode = 'ROUND_HALF_EVEN'))",
            "This emulator does not support rounding_mode ROUND_HALF_EVEN (column a): digits are rounded half away from \
             zero",
        ),
        (
            "CREATE TABLE d.u (a STRING) DEFAULT COLLATE 'und:ci'",
            "This emulator does not support defaultCollation",
        ),
        (
            "CREATE SCHEMA e OPTIONS (is_case_insensitive = TRUE)",
            "This emulator does not support isCaseInsensitive",
        ),
        (
            "ALTER SCHEMA d SET OPTIONS (default_rounding_mode = 'ROUND_HALF_EVEN')",
            "This emulator does not support defaultRoundingMode",
        ),
        (
            "INSERT INTO d.t (id) VALUES (1,)",
            "Syntax error: Expected: an expression, found: ) at Line: 1, Column: 32",
        ),
    ] {
        let want = error(400, "INVALID_ARGUMENT", "invalidQuery", text);
        assert_eq!(
            world.refused("POST", "queries", json!({ "query": sql })).await,
            want,
            "{sql}"
        );
    }
}
