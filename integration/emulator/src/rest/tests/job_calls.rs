//! Jobs: parameters, dry runs, lists, and what a second call sees.

use super::*;

fn int(value: Value) -> Value {
    json!({ "parameterType": { "type": "INT64" }, "parameterValue": { "value": value } })
}

fn cells(values: &[&str]) -> Value {
    json!({ "f": values.iter().map(|value| json!({ "v": value })).collect::<Vec<_>>() })
}

#[tokio::test]
async fn parameters_stand_for_values() {
    let world = World::with_rows(5).await;
    let mut least = int(json!("3"));
    least["name"] = "least".into();
    let ids = json!({
        "name": "IDS",
        "parameterType": { "type": "ARRAY", "arrayType": { "type": "INT64" } },
        "parameterValue": { "arrayValues": [{ "value": "1" }, { "value": "4" }] },
    });
    let body = json!({
        "query": "SELECT id FROM d.t WHERE id >= @least OR id IN UNNEST(@ids) ORDER BY id LIMIT @Least",
        "parameterMode": "NAMED",
        "queryParameters": [least, ids],
    });
    let rows = world.post("queries", body).await["rows"].take();
    assert_eq!(rows, json!([cells(&["1"]), cells(&["3"]), cells(&["4"])]));
    let moment = json!({
        "parameterType": { "type": "TIMESTAMP" },
        "parameterValue": { "value": "1970-01-01 00:00:04.500000+00:00" },
    });
    let text = json!({
        "parameterType": { "type": "STRING" },
        "parameterValue": { "value": "it's ? and @x" },
    });
    let body = json!({
        "query": "SELECT id, ? AS t FROM d.t WHERE at >= ? AND id < ?",
        "parameterMode": "POSITIONAL",
        "queryParameters": [text, moment, int(json!("4"))],
    });
    let rows = world.post("queries", body).await["rows"].take();
    assert_eq!(rows, json!([cells(&["3", "it's ? and @x"])]));
    let body = json!({ "query": "SELECT @x", "queryParameters": [] });
    let want = error(
        400,
        "INVALID_ARGUMENT",
        "invalidQuery",
        "Query parameter '@x' not found",
    );
    assert_eq!(world.refused("POST", "queries", body).await, want);
    let body = json!({ "query": "SELECT ?", "queryParameters": [int(json!("x"))] });
    let text = "Query parameter 1 is not a valid INT64 value";
    let want = error(400, "INVALID_ARGUMENT", "invalid", text);
    assert_eq!(world.refused("POST", "queries", body).await, want);
}

#[tokio::test]
async fn parameters_of_every_type_come_back_as_they_went() {
    let world = World::new();
    let int_type = json!({ "type": "INT64" });
    let list_type = json!({ "type": "ARRAY", "arrayType": { "type": "STRING" } });
    let pair = json!({ "type": "STRUCT", "structTypes": [
        { "name": "n", "type": int_type },
        { "name": "list", "type": list_type },
    ] });
    for (kind, value, field, want) in [
        ("BOOL", "true", "BOOLEAN", "true"),
        ("INT64", "-9", "INTEGER", "-9"),
        ("FLOAT64", "1.5", "FLOAT", "1.5"),
        ("FLOAT64", "NaN", "FLOAT", "NaN"),
        ("STRING", "é\n'", "STRING", "é\n'"),
        ("BYTES", "AP8=", "BYTES", "AP8="),
        ("NUMERIC", "-12.5", "NUMERIC", "-12.5"),
        (
            "BIGNUMERIC",
            "0.00000000000000000001",
            "BIGNUMERIC",
            "0.00000000000000000001",
        ),
        ("DATE", "2024-02-29", "DATE", "2024-02-29"),
        ("TIME", "01:02:03.000004", "TIME", "01:02:03.000004"),
        (
            "DATETIME",
            "2024-02-29 01:02:03",
            "DATETIME",
            "2024-02-29T01:02:03",
        ),
        ("TIMESTAMP", "1970-01-01T00:00:01.5Z", "TIMESTAMP", "1.5"),
    ] {
        let parameter = json!({ "parameterType": { "type": kind }, "parameterValue": { "value": value } });
        let body = json!({ "query": "SELECT ? AS x", "queryParameters": [parameter] });
        let answer = world.post("queries", body).await;
        assert_eq!(answer["schema"]["fields"][0]["type"], field, "{kind}");
        assert_eq!(answer["rows"], json!([cells(&[want])]), "{kind}");
    }
    let value = json!({ "structValues": {
        "n": { "value": "7" },
        "list": { "arrayValues": [{ "value": "a" }, { "value": "b" }] },
    } });
    let parameter = json!({ "parameterType": pair, "parameterValue": value });
    let body = json!({ "query": "SELECT ? AS x", "queryParameters": [parameter] });
    let rows = world.post("queries", body).await["rows"].take();
    let list = json!([{ "v": "a" }, { "v": "b" }]);
    let inner = json!({ "f": [{ "v": "7" }, { "v": list }] });
    assert_eq!(rows, json!([{ "f": [{ "v": inner }] }]));
    let absent = json!({ "name": "x", "parameterType": { "type": "DATE" }, "parameterValue": {} });
    let body = json!({ "query": "SELECT @x AS x", "queryParameters": [absent] });
    let answer = world.post("queries", body).await;
    assert_eq!(answer["schema"]["fields"][0]["type"], "DATE");
    assert_eq!(answer["rows"], json!([{ "f": [{ "v": null }] }]));
}

#[tokio::test]
async fn a_dry_run_says_what_would_come_and_leaves_no_job() {
    let world = World::with_rows(2).await;
    let query = json!({ "query": "SELECT id, at FROM d.t" });
    let columns = json!([
        { "name": "id", "type": "INTEGER", "mode": "NULLABLE" },
        { "name": "at", "type": "TIMESTAMP", "mode": "NULLABLE" },
    ]);
    let mut body = query.clone();
    body["dryRun"] = true.into();
    let want = json!({
        "kind": "bigquery#queryResponse",
        "etag": "results",
        "schema": { "fields": columns },
        "jobReference": { "projectId": "p", "location": "US" },
        "totalBytesProcessed": "0",
        "jobComplete": true,
        "cacheHit": false,
    });
    assert_eq!(world.post("queries", body).await, want);
    let configuration = json!({ "query": query, "dryRun": true });
    let job = world
        .post("jobs", json!({ "configuration": configuration }))
        .await;
    let want = json!({
        "kind": "bigquery#job",
        "etag": "job",
        "id": "p:US.",
        "user_email": "emulator@localhost",
        "jobReference": { "projectId": "p", "location": "US" },
        "configuration": configuration,
        "status": { "state": "DONE" },
        "statistics": {
            "creationTime": NOW.to_string(),
            "totalBytesProcessed": "0",
            "query": {
                "statementType": "SELECT",
                "totalBytesProcessed": "0",
                "cacheHit": false,
                "schema": { "fields": columns },
            },
        },
    });
    assert_eq!(job, want);
    let body = json!({ "query": "CREATE TABLE d.u (a INT64)", "dryRun": true });
    world.post("queries", body).await;
    assert_eq!(world.get("datasets/d/tables").await["totalItems"], 1);
    let bad = json!({ "configuration": { "query": { "query": "SELECT nope" }, "dryRun": true } });
    let want = error(400, "INVALID_ARGUMENT", "invalidQuery", "Unrecognized name: nope");
    assert_eq!(world.refused("POST", "jobs", bad).await, want);
    let list = json!({ "kind": "bigquery#jobList", "etag": "list", "jobs": [] });
    assert_eq!(world.get("jobs").await, list);
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_deleted() {
    let world = World::with_rows(0).await;
    for id in ["a", "b", "c"] {
        let sql = if id == "b" { "SELECT nope" } else { "SELECT 1" };
        let configuration = json!({ "query": { "query": sql }, "labels": { "job": id } });
        let body = json!({ "jobReference": { "jobId": id }, "configuration": configuration });
        world.post("jobs", body).await;
    }
    let ids = |list: &Value| -> Vec<String> {
        let jobs = list["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["jobReference"]["jobId"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = world
        .get("jobs?maxResults=2&projection=full&stateFilter=done")
        .await;
    assert_eq!(ids(&page), ["c", "b"]);
    assert_eq!(page["jobs"][0]["configuration"]["labels"], json!({ "job": "c" }));
    let failed = &page["jobs"][1];
    let proto = json!({ "reason": "invalidQuery", "message": "Unrecognized name: nope" });
    assert_eq!(
        (&failed["state"], &failed["errorResult"]),
        (&json!("DONE"), &proto)
    );
    assert_eq!(failed["status"]["errorResult"], proto);
    let token = page["nextPageToken"].as_str().unwrap();
    assert_eq!(ids(&world.get(&format!("jobs?pageToken={token}")).await), ["a"]);
    assert_eq!(ids(&world.get("jobs?stateFilter=running").await), [""; 0]);
    assert_eq!(
        ids(&world.get(&format!("jobs?minCreationTime={}", NOW + 1)).await),
        [""; 0]
    );
    assert_eq!(world.call("DELETE", "jobs/b/delete", Body::empty()).await.0, 204);
    assert_eq!(ids(&world.get("jobs").await), ["c", "a"]);
    let gone = error(404, "NOT_FOUND", "notFound", "Not found: Job p:b");
    assert_eq!(world.refused("GET", "jobs/b", Value::Null).await, gone);
    assert_eq!(world.refused("DELETE", "jobs/b/delete", Value::Null).await, gone);
}

#[tokio::test]
async fn a_request_that_comes_again_does_nothing_again() {
    let world = World::with_rows(1).await;
    let body = json!({ "query": "INSERT INTO d.t (id) VALUES (7)", "requestId": "once" });
    let first = world.post("queries", body.clone()).await;
    let want = json!({
        "kind": "bigquery#queryResponse",
        "etag": "results",
        "jobReference": first["jobReference"],
        "totalBytesProcessed": "0",
        "jobComplete": true,
        "cacheHit": false,
        "numDmlAffectedRows": "1",
        "dmlStats": { "insertedRowCount": "1" },
    });
    assert_eq!(first, want);
    assert_eq!(world.post("queries", body).await, want);
    assert_eq!(world.get("datasets/d/tables/t").await["numRows"], "2");
}

#[tokio::test]
async fn options_that_would_change_what_a_query_does_are_refused_by_name() {
    let world = World::with_rows(1).await;
    for (option, value) in [
        ("destinationTable", json!({ "tableId": "x" })),
        (
            "connectionProperties",
            json!([{ "key": "session_id", "value": "x" }]),
        ),
        ("createSession", json!(true)),
        ("writeDisposition", json!("WRITE_TRUNCATE")),
        ("createDisposition", json!("CREATE_NEVER")),
        ("schemaUpdateOptions", json!(["ALLOW_FIELD_ADDITION"])),
        ("clustering", json!({ "fields": ["id"] })),
        ("scriptOptions", json!({ "statementTimeoutMs": "1" })),
    ] {
        let text = format!("This emulator does not support {option}");
        let want = error(501, "UNIMPLEMENTED", "notImplemented", &text);
        let mut query = json!({ "query": "SELECT 1" });
        query[option] = value;
        assert_eq!(world.refused("POST", "queries", query.clone()).await, want);
        let job = json!({ "configuration": { "query": query } });
        assert_eq!(world.refused("POST", "jobs", job).await, want);
    }
    let harmless = json!({
        "query": "SELECT 1",
        "connectionProperties": [],
        "createSession": false,
        "writeDisposition": "WRITE_EMPTY",
        "createDisposition": "CREATE_IF_NEEDED",
        "useQueryCache": true,
        "priority": "BATCH",
    });
    assert_eq!(world.post("queries", harmless).await["totalRows"], "1");
}

#[tokio::test]
async fn a_job_runs_where_its_datasets_are() {
    let world = World::new();
    let location = |answer: &Value| answer["jobReference"]["location"].as_str().unwrap().to_owned();
    let select = json!({ "query": "SELECT 1" });
    assert_eq!(location(&world.post("queries", select.clone()).await), "US");
    for (id, place) in [("e", "EU"), ("a", "asia-east1")] {
        let body = json!({ "datasetReference": { "datasetId": id }, "location": place });
        world.post("datasets", body).await;
        world
            .post(
                "queries",
                json!({ "query": format!("CREATE TABLE {id}.t (n INT64)"), "location": place }),
            )
            .await;
        if id == "e" {
            assert_eq!(location(&world.post("queries", select.clone()).await), "EU");
        }
    }
    assert_eq!(location(&world.post("queries", select).await), "US");
    let default = json!({ "query": "SELECT * FROM t", "defaultDataset": { "datasetId": "a" } });
    assert_eq!(location(&world.post("queries", default).await), "asia-east1");
    for sql in [
        "SELECT * FROM e.t",
        "INSERT INTO e.t (n) VALUES (1)",
        "DROP TABLE e.t",
        "DROP SCHEMA e",
    ] {
        let text = "Not found: Dataset p:e was not found in location US";
        let want = error(404, "NOT_FOUND", "notFound", text);
        let body = json!({ "query": sql, "location": "US" });
        assert_eq!(world.refused("POST", "queries", body).await, want, "{sql}");
    }
    world
        .post(
            "queries",
            json!({ "query": "SELECT * FROM e.t", "location": "eu" }),
        )
        .await;
}

#[test]
fn calls_with_one_request_id_make_one_job_even_at_the_same_time() {
    let jobs = jobs::Jobs::default();
    let job = |id: &str, query: &str, at| {
        let configuration = json!({ "query": { "query": query } });
        let mut job = Job::new("p".to_owned(), id.to_owned(), "US".to_owned(), configuration, at);
        job.request_id = Some("once".to_owned());
        job
    };
    let ids: Vec<String> = (0..16).map(|i| i.to_string()).collect();
    let barrier = std::sync::Barrier::new(ids.len());
    let made: Vec<(String, bool)> = std::thread::scope(|scope| {
        let add = |id| {
            barrier.wait();
            let (job, is_new) = jobs.add(job(id, "SELECT 1", 0)).unwrap();
            (job.id.clone(), is_new)
        };
        let threads: Vec<_> = ids.iter().map(|id| scope.spawn(move || add(id))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = made.iter().find(|(_, is_new)| *is_new).unwrap();
    assert_eq!(made.iter().filter(|(_, is_new)| *is_new).count(), 1);
    assert!(made.iter().all(|(id, _)| *id == first.0), "{made:?}");
    // Another query, and one that comes after BigQuery has forgotten the first.
    for (query, at, is_new) in [
        ("SELECT 2", 0, true),
        ("SELECT 1", 900_000, false),
        ("SELECT 1", 900_001, true),
    ] {
        let id = format!("{query} at {at}");
        assert_eq!(jobs.add(job(&id, query, at)).unwrap().1, is_new, "{id}");
    }
}

#[tokio::test]
async fn a_call_that_does_not_wait_is_answered_before_the_job_is_done() {
    let world = World::with_rows(1).await;
    let answer = world
        .post(
            "queries",
            json!({ "query": "SELECT id FROM d.t", "timeoutMs": 0 }),
        )
        .await;
    let reference = answer["jobReference"].clone();
    let want = json!({ "kind": "bigquery#queryResponse", "jobReference": reference, "jobComplete": false });
    assert_eq!(answer, want);
    let id = reference["jobId"].as_str().unwrap();
    let rest = world.get(&format!("queries/{id}")).await;
    assert_eq!(
        (&rest["jobComplete"], &rest["rows"]),
        (&json!(true), &json!([cells(&["0"])]))
    );
}

#[tokio::test]
async fn other_kinds_of_jobs_are_refused() {
    let world = World::new();
    for kind in ["load", "copy", "extract"] {
        let mut configuration = json!({});
        configuration[kind] = json!({});
        let body = json!({ "configuration": configuration });
        let text = format!("This emulator runs query jobs only, no {kind} jobs");
        let want = error(501, "UNIMPLEMENTED", "notImplemented", &text);
        assert_eq!(world.refused("POST", "jobs", body).await, want);
    }
    let upload = Request::builder()
        .method("POST")
        .uri("/upload/bigquery/v2/projects/p/jobs?uploadType=multipart")
        .body(Body::empty())
        .unwrap();
    let response = world.router.clone().oneshot(upload).await.unwrap();
    assert_eq!(response.status(), 501);
}
