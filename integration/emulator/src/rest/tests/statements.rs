//! Statements other than SELECT, through jobs.

use bigquery_write_proto::wire::{CreateWriteStreamRequest, WriteStream, write_stream::Type};

use super::*;
use crate::machine::CallMeta;

impl World {
    /// `statistics.query` of a statement's job.
    async fn execute(&self, sql: &str) -> Value {
        let body =
            json!({ "configuration": { "query": { "query": sql, "defaultDataset": { "datasetId": "d" } } } });
        let job = self.post("jobs", body).await;
        assert_eq!(job["status"], json!({ "state": "DONE" }), "{sql}");
        job["statistics"]["query"].clone()
    }

    /// The rows of a query, each as a list of its values.
    async fn rows(&self, sql: &str) -> Value {
        let body = json!({ "query": sql, "defaultDataset": { "datasetId": "d" } });
        let answer = self.post("queries", body).await;
        let cells = |row: &Value| {
            let cells = row["f"].as_array().unwrap().iter();
            cells.map(|cell| cell["v"].clone()).collect::<Value>()
        };
        answer["rows"].as_array().unwrap().iter().map(cells).collect()
    }

    async fn fails(&self, sql: &str) -> String {
        let body = json!({ "query": sql, "defaultDataset": { "datasetId": "d" } });
        let body = self.refused("POST", "queries", body).await;
        body["error"]["message"].as_str().unwrap().to_owned()
    }
}

fn did(statement: &str, operation: &str, table: &str) -> Value {
    json!({
        "statementType": statement,
        "ddlOperationPerformed": operation,
        "ddlTargetTable": { "projectId": "p", "datasetId": "d", "tableId": table },
        "totalBytesProcessed": "0",
        "totalBytesBilled": "0",
        "cacheHit": false,
    })
}

#[tokio::test]
async fn a_table_is_made_as_its_statement_says() {
    let world = World::with_rows(0).await;
    let sql = "CREATE TABLE d.events (
            id INT64 NOT NULL OPTIONS(description='the key'),
            at TIMESTAMP DEFAULT CURRENT_TIMESTAMP(),
            name STRING(20),
            place STRUCT<city STRING, tags ARRAY<STRING>>,
            PRIMARY KEY (id) NOT ENFORCED
        ) PARTITION BY TIMESTAMP_TRUNC(at, HOUR) CLUSTER BY name
        OPTIONS(description='Events', labels=[('team', 'a')], max_staleness=INTERVAL 15 MINUTE,
            partition_expiration_days=1, require_partition_filter=TRUE)";
    assert_eq!(world.execute(sql).await, did("CREATE_TABLE", "CREATE", "events"));
    let table = world.get("datasets/d/tables/events").await;
    let inner = json!([
        { "name": "city", "type": "STRING", "mode": "NULLABLE" },
        { "name": "tags", "type": "STRING", "mode": "REPEATED" },
    ]);
    let fields = json!([
        { "name": "id", "type": "INTEGER", "mode": "REQUIRED", "description": "the key" },
        { "name": "at", "type": "TIMESTAMP", "mode": "NULLABLE", "defaultValueExpression": "CURRENT_TIMESTAMP()" },
        { "name": "name", "type": "STRING", "mode": "NULLABLE", "maxLength": "20" },
        { "name": "place", "type": "RECORD", "mode": "NULLABLE", "fields": inner },
    ]);
    let want = json!({
        "kind": "bigquery#table",
        "etag": table["etag"],
        "id": "p:d.events",
        "selfLink": "https://bigquery.googleapis.com/bigquery/v2/projects/p/datasets/d/tables/events",
        "tableReference": { "projectId": "p", "datasetId": "d", "tableId": "events" },
        "schema": { "fields": fields },
        "description": "Events",
        "labels": { "team": "a" },
        "maxStaleness": "0-0 0 0:15:0",
        "timePartitioning": { "type": "HOUR", "field": "at", "expirationMs": "86400000" },
        "requirePartitionFilter": true,
        "clustering": { "fields": ["name"] },
        "tableConstraints": { "primaryKey": { "columns": ["id"] } },
        "numBytes": "0",
        "numLongTermBytes": "0",
        "numRows": "0",
        "creationTime": NOW.to_string(),
        "lastModifiedTime": NOW.to_string(),
        "type": "TABLE",
        "location": "US",
    });
    assert_eq!(table, want);
    assert_eq!(
        world.fails("CREATE TABLE events (a INT64)").await,
        "Already Exists: Table p:d.events"
    );
    let skipped = world.execute("CREATE TABLE IF NOT EXISTS events (a INT64)").await;
    assert_eq!(skipped, did("CREATE_TABLE", "SKIP", "events"));
    let replaced = world.execute("CREATE OR REPLACE TABLE events (a INT64)").await;
    assert_eq!(replaced, did("CREATE_TABLE", "REPLACE", "events"));
    let fields = json!([{ "name": "a", "type": "INTEGER", "mode": "NULLABLE" }]);
    let table = world.get("datasets/d/tables/events").await;
    assert_eq!((&table["schema"]["fields"], table.get("labels")), (&fields, None));
    let dropped = world.execute("DROP TABLE events").await;
    assert_eq!(dropped, did("DROP_TABLE", "DROP", "events"));
    let skipped = world.execute("DROP TABLE IF EXISTS events").await;
    assert_eq!(skipped, did("DROP_TABLE", "SKIP", "events"));
    assert_eq!(
        world.fails("DROP TABLE events").await,
        "Not found: Table p:d.events was not found in location US"
    );
}

#[tokio::test]
async fn a_table_takes_the_rows_of_a_query() {
    let world = World::with_rows(2).await;
    let made = world
        .execute("CREATE TABLE u CLUSTER BY n AS SELECT id + 1 AS n, 'x' AS t, [id] AS list FROM t")
        .await;
    assert_eq!(made, did("CREATE_TABLE_AS_SELECT", "CREATE", "u"));
    let want = json!([["1", "x", [{ "v": "0" }]], ["2", "x", [{ "v": "1" }]]]);
    assert_eq!(world.rows("SELECT * FROM u").await, want);
    world
        .execute(
            "CREATE OR REPLACE TABLE u (m NUMERIC NOT NULL, d DATE) AS SELECT n, DATE '2024-02-29' FROM u",
        )
        .await;
    let want = json!([["1", "2024-02-29"], ["2", "2024-02-29"]]);
    assert_eq!(world.rows("SELECT * FROM u ORDER BY m").await, want);
    assert_eq!(
        world.fails("CREATE TABLE v (a STRING) AS SELECT 1 AS x").await,
        "Query column 1 has type INT64 which cannot be inserted into column a, which has type STRING"
    );
}

#[tokio::test]
async fn an_alter_changes_columns_and_options() {
    let world = World::with_rows(1).await;
    let sql = "ALTER TABLE t
        ADD COLUMN tags ARRAY<STRING>, ADD COLUMN IF NOT EXISTS AT INT64,
        ALTER COLUMN id DROP NOT NULL, ALTER COLUMN id SET DEFAULT 7, ALTER COLUMN id SET OPTIONS (description = 'key'),
        SET OPTIONS (description = 'text', max_staleness = INTERVAL '1:30' HOUR TO MINUTE),
        ADD PRIMARY KEY (id) NOT ENFORCED";
    assert_eq!(world.execute(sql).await, did("ALTER_TABLE", "ALTER", "t"));
    let table = world.get("datasets/d/tables/t").await;
    let fields = json!([
        {
            "name": "id",
            "type": "INTEGER",
            "mode": "NULLABLE",
            "description": "key",
            "defaultValueExpression": "7",
        },
        { "name": "at", "type": "TIMESTAMP", "mode": "NULLABLE" },
        { "name": "tags", "type": "STRING", "mode": "REPEATED" },
    ]);
    assert_eq!(table["schema"]["fields"], fields);
    assert_eq!(
        (
            &table["description"],
            &table["maxStaleness"],
            &table["tableConstraints"]
        ),
        (
            &json!("text"),
            &json!("0-0 0 1:30:0"),
            &json!({ "primaryKey": { "columns": ["id"] } })
        )
    );
    assert_eq!(world.rows("SELECT * FROM t").await, json!([["0", "0.0", []]]));
    world
        .execute(
            "ALTER TABLE t ALTER COLUMN id DROP DEFAULT, SET OPTIONS (description = NULL), DROP PRIMARY KEY",
        )
        .await;
    let table = world.get("datasets/d/tables/t").await;
    assert_eq!(table["schema"]["fields"][0].get("defaultValueExpression"), None);
    assert_eq!(table.get("description"), None);
    let skipped = world
        .execute("ALTER TABLE IF EXISTS nope ADD COLUMN a INT64")
        .await;
    assert_eq!(skipped, did("ALTER_TABLE", "SKIP", "nope"));
    for (sql, text) in [
        ("ALTER TABLE t ADD COLUMN id STRING", "Column already exists: id"),
        (
            "ALTER TABLE t ADD COLUMN n INT64 NOT NULL",
            "Provided Schema does not match Table p:d.t. Cannot add required fields to an existing schema. (field: n)",
        ),
        (
            "ALTER TABLE t ALTER COLUMN id DROP NOT NULL",
            "Column id does not have a NOT NULL constraint",
        ),
        (
            "ALTER TABLE t ALTER COLUMN nope DROP DEFAULT",
            "Column not found: nope",
        ),
        (
            "ALTER TABLE nope ADD COLUMN a INT64",
            "Not found: Table p:d.nope was not found in location US",
        ),
    ] {
        assert_eq!(world.fails(sql).await, text);
    }
}

#[tokio::test]
async fn rows_are_inserted_with_defaults_and_checked() {
    let world = World::with_rows(0).await;
    world
        .execute(
            "CREATE TABLE u (id INT64 NOT NULL, n NUMERIC(4, 2) DEFAULT 1.5, day DATE, t STRING(3), list ARRAY<INT64>,
             s STRUCT<a INT64, b STRING>)",
        )
        .await;
    let statistics = world
        .execute(
            "INSERT INTO u (id, n, day, t, list, s) VALUES
             (1, 12.25, '2024-02-29', 'abc', [1, 2], STRUCT(7, 'x')), (2, DEFAULT, NULL, NULL, [], NULL)",
        )
        .await;
    let want = json!({
        "statementType": "INSERT",
        "numDmlAffectedRows": "2",
        "dmlStats": { "insertedRowCount": "2" },
        "totalBytesProcessed": "0",
        "totalBytesBilled": "0",
        "cacheHit": false,
    });
    assert_eq!(statistics, want);
    world
        .execute("INSERT u (T, ID) SELECT 'y', id + 2 FROM u WHERE id = 1")
        .await;
    let s = json!({ "f": [{ "v": "7" }, { "v": "x" }] });
    let want = json!([
        ["1", "12.25", "2024-02-29", "abc", [{ "v": "1" }, { "v": "2" }], s],
        ["2", "1.5", null, null, [], null],
        ["3", "1.5", null, "y", [], null],
    ]);
    assert_eq!(world.rows("SELECT * FROM u ORDER BY id").await, want);
    for (sql, text) in [
        ("INSERT u (t) VALUES ('a')", "Required field id cannot be null"),
        ("INSERT u (id) VALUES (NULL)", "Required field id cannot be null"),
        (
            "INSERT u (id) VALUES ('a')",
            "Value has type STRING which cannot be inserted into column id, which has type INT64",
        ),
        (
            "INSERT u (id, day) SELECT 1, 'x'",
            "Query column 2 has type STRING which cannot be inserted into column day, which has type DATE",
        ),
        (
            "INSERT u (id, t) VALUES (1, 'abcd')",
            "Field t: STRING(3) has maximum length 3 but got a value with length 4 on field t.",
        ),
        (
            "INSERT u (id, nope) VALUES (1, 2)",
            "Column nope is not present in table u",
        ),
        (
            "INSERT u (id, ID) VALUES (1, 2)",
            "INSERT has columns with duplicate name: ID",
        ),
        (
            "INSERT u (id) VALUES (1, 2)",
            "Inserted row has wrong column count; Has 2, expected 1",
        ),
        (
            "INSERT nope (id) VALUES (1)",
            "Not found: Table p:d.nope was not found in location US",
        ),
    ] {
        assert_eq!(world.fails(sql).await, text, "{sql}");
    }
    let statistics = world.execute("TRUNCATE TABLE u").await;
    assert_eq!(
        (&statistics["statementType"], &statistics["dmlStats"]),
        (&json!("TRUNCATE_TABLE"), &json!({ "deletedRowCount": "3" }))
    );
    assert_eq!(world.rows("SELECT COUNT(*) FROM u").await, json!([["0"]]));
}

#[tokio::test]
async fn a_view_is_read_as_its_query() {
    let world = World::with_rows(3).await;
    let made = world
        .execute("CREATE VIEW v (n OPTIONS(description='N'), x) OPTIONS(labels=[('a', 'b')]) AS SELECT id, at FROM d.t WHERE id > 0")
        .await;
    assert_eq!(made, did("CREATE_VIEW", "CREATE", "v"));
    let view = world.get("datasets/d/tables/v").await;
    assert_eq!(
        (&view["type"], &view["view"]),
        (
            &json!("VIEW"),
            &json!({ "query": "SELECT id, at FROM d.t WHERE id > 0", "useLegacySql": false })
        )
    );
    let fields = json!([
        { "name": "n", "type": "INTEGER", "mode": "NULLABLE", "description": "N" },
        { "name": "x", "type": "TIMESTAMP", "mode": "NULLABLE" },
    ]);
    assert_eq!(view["schema"]["fields"], fields);
    let want = json!([["1", "1.5"], ["2", "3.0"]]);
    assert_eq!(world.rows("SELECT N, X FROM v ORDER BY n").await, want);
    let query = "SELECT SUM(n) AS total FROM p.d.v";
    let body = json!({
        "tableReference": { "tableId": "w" },
        "view": { "query": query, "useLegacySql": false },
    });
    let made = world.post("datasets/d/tables", body).await;
    let total = json!([{ "name": "total", "type": "INTEGER", "mode": "NULLABLE" }]);
    assert_eq!(
        (&made["type"], &made["schema"]["fields"]),
        (&json!("VIEW"), &total)
    );
    assert_eq!(world.rows("SELECT * FROM w").await, json!([["3"]]));
    let list = world.get("datasets/d/tables").await;
    let kinds: Vec<_> = list["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| &table["type"])
        .collect();
    assert_eq!(kinds, ["TABLE", "VIEW", "VIEW"]);
    let data = world
        .refused("GET", "datasets/d/tables/v/data", Value::Null)
        .await;
    assert_eq!(data["error"]["message"], "Cannot list a table of type VIEW.");
    for (sql, text) in [
        (
            "CREATE OR REPLACE VIEW v AS SELECT * FROM d.w",
            "View p:d.v reads itself",
        ),
        (
            "CREATE VIEW x AS SELECT * FROM t",
            "Table \"t\" must be qualified with a dataset (e.g. dataset.table).",
        ),
        (
            "CREATE VIEW x AS SELECT * FROM d.nope",
            "Not found: Table p:d.nope was not found in location US",
        ),
        (
            "INSERT v (n) VALUES (1)",
            "p:d.v is a VIEW: use INSERT INTO VIEW in place of INSERT INTO TABLE",
        ),
        (
            "DROP TABLE v",
            "p:d.v is a VIEW: use DROP VIEW in place of DROP TABLE",
        ),
        (
            "CREATE OR REPLACE TABLE v (a INT64)",
            "p:d.v is a VIEW: use CREATE OR REPLACE VIEW in place of CREATE OR REPLACE TABLE",
        ),
        (
            "DROP VIEW t",
            "p:d.t is a TABLE: use DROP TABLE in place of DROP VIEW",
        ),
        (
            "CREATE VIEW x (a, b) AS SELECT 1",
            "The view has 2 column names, but its query has 1 columns",
        ),
    ] {
        assert_eq!(world.fails(sql).await, text, "{sql}");
    }
    let request = CreateWriteStreamRequest {
        parent: "projects/p/datasets/d/tables/v".to_owned(),
        write_stream: Some(WriteStream {
            r#type: Type::Buffered as i32,
            ..WriteStream::default()
        }),
    };
    let stream = world
        .shared
        .with(|machine| machine.create_write_stream(NOW, &CallMeta::default(), &request));
    assert_eq!(
        stream.result.unwrap_err().message,
        "Cannot write to projects/p/datasets/d/tables/v: it is a view"
    );
    let replaced = world.execute("CREATE OR REPLACE VIEW v AS SELECT 9 AS n").await;
    assert_eq!(replaced, did("CREATE_VIEW", "REPLACE", "v"));
    assert_eq!(world.rows("SELECT * FROM w").await, json!([["9"]]));
    assert_eq!(world.execute("DROP VIEW v").await, did("DROP_VIEW", "DROP", "v"));
    assert_eq!(
        world.fails("SELECT * FROM w").await,
        "Not found: Table p:d.v was not found in location US"
    );
}

#[tokio::test]
async fn names_in_a_view_are_of_the_views_project() {
    let world = World::with_rows(1).await;
    let dataset = json!({ "query": "CREATE SCHEMA q.d" });
    world.post("queries", dataset).await;
    let view = json!({ "query": "CREATE VIEW q.d.v AS SELECT * FROM d.u" });
    let refused = world.refused("POST", "queries", view.clone()).await;
    assert_eq!(
        refused["error"]["message"],
        "Not found: Table q:d.u was not found in location US"
    );
    world
        .post(
            "queries",
            json!({ "query": "CREATE TABLE q.d.u AS SELECT 'q' AS x" }),
        )
        .await;
    world.post("queries", view).await;
    assert_eq!(world.rows("SELECT * FROM q.d.v").await, json!([["q"]]));
}

#[tokio::test]
async fn datasets_are_made_changed_and_dropped() {
    let world = World::with_rows(0).await;
    let did = |statement: &str, operation: &str| {
        json!({
            "statementType": statement,
            "ddlOperationPerformed": operation,
            "ddlTargetDataset": { "projectId": "p", "datasetId": "e" },
            "totalBytesProcessed": "0",
            "totalBytesBilled": "0",
            "cacheHit": false,
        })
    };
    let made = world
        .execute("CREATE SCHEMA e OPTIONS(location='eu', default_table_expiration_days=1.5)")
        .await;
    assert_eq!(made, did("CREATE_SCHEMA", "CREATE"));
    let dataset = world.get("datasets/e").await;
    assert_eq!(
        (&dataset["location"], &dataset["defaultTableExpirationMs"]),
        (&json!("eu"), &json!("129600000"))
    );
    let skipped = world.execute("CREATE SCHEMA IF NOT EXISTS e").await;
    assert_eq!(skipped, did("CREATE_SCHEMA", "SKIP"));
    let altered = world.execute("ALTER SCHEMA e SET OPTIONS(description='E')").await;
    assert_eq!(altered, did("ALTER_SCHEMA", "ALTER"));
    assert_eq!(world.get("datasets/e").await["description"], "E");
    world.execute("CREATE TABLE e.t (a INT64)").await;
    assert_eq!(world.fails("DROP SCHEMA e").await, "Dataset p:e is still in use");
    assert_eq!(
        world.execute("DROP SCHEMA e CASCADE").await,
        did("DROP_SCHEMA", "DROP")
    );
    assert_eq!(
        world.execute("DROP SCHEMA IF EXISTS e").await,
        did("DROP_SCHEMA", "SKIP")
    );
}

#[tokio::test]
async fn information_schema_tells_of_tables_columns_and_options() {
    let world = World::with_rows(0).await;
    world
        .execute(
            "CREATE TABLE u (id INT64 NOT NULL, day DATE DEFAULT CURRENT_DATE(), list ARRAY<STRUCT<a STRING(3)>>,
             PRIMARY KEY (id) NOT ENFORCED) PARTITION BY day CLUSTER BY id
             OPTIONS(description='a \"b\"', labels=[('k', 'v')], max_staleness=INTERVAL 15 MINUTE, partition_expiration_days=2)",
        )
        .await;
    world.execute("CREATE VIEW v AS SELECT 1 AS x").await;
    let tables = "SELECT table_name, table_type, is_insertable_into FROM d.INFORMATION_SCHEMA.TABLES ORDER BY table_name";
    let want = json!([
        ["t", "BASE TABLE", "YES"],
        ["u", "BASE TABLE", "YES"],
        ["v", "VIEW", "NO"]
    ]);
    assert_eq!(world.rows(tables).await, want);
    let columns = "SELECT column_name, ordinal_position, is_nullable, data_type, is_partitioning_column,
                   clustering_ordinal_position, column_default
                   FROM `p.d.INFORMATION_SCHEMA.COLUMNS` WHERE table_name = 'u' ORDER BY 2";
    let want = json!([
        ["id", "1", "NO", "INT64", "NO", "1", null],
        ["day", "2", "YES", "DATE", "YES", null, "CURRENT_DATE()"],
        ["list", "3", "YES", "ARRAY<STRUCT<a STRING(3)>>", "NO", null, null],
    ]);
    assert_eq!(world.rows(columns).await, want);
    let options =
        "SELECT option_name, option_type, option_value FROM d.INFORMATION_SCHEMA.TABLE_OPTIONS ORDER BY 1";
    let want = json!([
        ["description", "STRING", "\"a \\\"b\\\"\""],
        [
            "labels",
            "ARRAY<STRUCT<STRING, STRING>>",
            "[STRUCT(\"k\", \"v\")]"
        ],
        [
            "max_staleness",
            "INTERVAL",
            "INTERVAL \"0-0 0 0:15:0\" YEAR TO SECOND"
        ],
        ["partition_expiration_days", "FLOAT64", "2.0"],
    ]);
    assert_eq!(world.rows(options).await, want);
    let datasets = "SELECT schema_name, location FROM INFORMATION_SCHEMA.SCHEMATA";
    assert_eq!(world.rows(datasets).await, json!([["d", "US"]]));
    let region = "SELECT COUNT(*) FROM `region-us`.INFORMATION_SCHEMA.TABLES";
    assert_eq!(world.rows(region).await, json!([["3"]]));
    let keys = "SELECT constraint_name, column_name FROM d.INFORMATION_SCHEMA.KEY_COLUMN_USAGE";
    assert_eq!(world.rows(keys).await, json!([["u.pk$", "id"]]));
    let kinds = "SELECT constraint_type, enforced FROM d.INFORMATION_SCHEMA.TABLE_CONSTRAINTS";
    assert_eq!(world.rows(kinds).await, json!([["PRIMARY KEY", "NO"]]));
    let views = "SELECT table_name, view_definition FROM d.INFORMATION_SCHEMA.VIEWS";
    assert_eq!(world.rows(views).await, json!([["v", "SELECT 1 AS x"]]));
    for (sql, text) in [
        (
            "SELECT * FROM d.INFORMATION_SCHEMA.PARTITIONS",
            "INFORMATION_SCHEMA.PARTITIONS is not supported by this emulator. Supported are SCHEMATA, TABLES, COLUMNS, \
             TABLE_OPTIONS, TABLE_CONSTRAINTS, KEY_COLUMN_USAGE and VIEWS.",
        ),
        (
            "SELECT * FROM nope.INFORMATION_SCHEMA.TABLES",
            "Not found: Dataset p:nope was not found in location US",
        ),
    ] {
        assert_eq!(world.fails(sql).await, text);
    }
}

#[tokio::test]
async fn numbers_go_into_numeric_columns_as_they_are_written_and_are_rounded_to_the_declared_digits() {
    let world = World::with_rows(0).await;
    world
        .execute("CREATE TABLE u (n NUMERIC, b BIGNUMERIC, d NUMERIC(5, 2), p NUMERIC(3))")
        .await;
    world
        .execute(
            "INSERT INTO u VALUES (123456789012345678.123456789, 0.12345678901234567890123456789, 1.005, 1.5), \
             (-0.1, -0.3, -1.005, -2.5), (0.30, 7, 2, 3)",
        )
        .await;
    let rows = world.get("datasets/d/tables/u/data").await["rows"].take();
    let row = |values: [&str; 4]| json!({ "f": values.map(|value| json!({ "v": value })) });
    let want = json!([
        row([
            "123456789012345678.123456789",
            "0.12345678901234567890123456789",
            "1.01",
            "2"
        ]),
        row(["-0.1", "-0.3", "-1.01", "-3"]),
        row(["0.3", "7", "2", "3"]),
    ]);
    assert_eq!(rows, want);
    // So are those of a query.
    world
        .execute("CREATE TABLE v (d NUMERIC(5, 2)) AS SELECT n / 3 FROM u WHERE n < 1 AND n > 0")
        .await;
    let rows = world.get("datasets/d/tables/v/data").await["rows"].take();
    assert_eq!(rows, json!([{ "f": [{ "v": "0.1" }] }]));
}
