//! `check`, `query` and `checkpoint`: what they print.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bigquery_sink_pipeline::store::CheckpointInfo;
use bigquery_write_emulator::Emulator;
use serde_json::{Value, json};

use crate::support::{World, finish, signal, summary, tool};

const LIMIT: Duration = Duration::from_secs(60);

/// Exit code, stdout and stderr.
async fn output(mut command: Command) -> (Option<i32>, String, String) {
    // Read while it runs: a result may be larger than a pipe holds.
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::time::timeout(LIMIT, ended).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn ok(stdout: &str) -> (Option<i32>, String, String) {
    (Some(0), stdout.to_owned(), String::new())
}

fn error(code: i32, stderr: &str) -> (Option<i32>, String, String) {
    (Some(code), String::new(), stderr.to_owned())
}

fn query(emulator: &Emulator, arguments: &[&str], sql: &str) -> Command {
    let mut command = tool();
    let http = emulator.http_addr().to_string();
    command
        .args(["query", "--http", &http, "--project", "p"])
        .args(arguments)
        .arg(sql);
    command
}

/// Rows with every kind of value, written by a pipeline.
async fn with_values() -> World {
    const TYPES: &str = "id BIGINT NOT NULL, name TEXT, number DOUBLE, amount DECIMAL(38, 9), flag BOOLEAN, at TIMESTAMP(6), day DATE, \
                         tags TEXT[], place STRUCT<city TEXT, height BIGINT>";
    let world = World::new(0, "{}").await;
    let rows = [
        r#"{"id": 9007199254740993, "name": "a, \"b\"\nc", "number": 0.1, "amount": "12345678901234567890.123456789", "flag": true, "at": "2026-01-02T03:04:05.000006", "day": "2026-01-02", "tags": ["x", ""], "place": {"city": "Z\u00fcrich", "height": 408}}"#,
        r#"{"id": -1, "name": "", "number": 3, "amount": 0, "flag": false, "at": "1969-12-31T23:59:59", "day": "1970-01-01", "tags": [], "place": {"city": null, "height": null}}"#,
        r#"{"id": 7}"#,
    ];
    let folder = world.folder.path();
    std::fs::write(folder.join("rows.ndjson"), rows.join("\n")).unwrap();
    let sql = std::fs::read_to_string(world.pipeline()).unwrap();
    let sql = sql.replace(crate::support::COLUMNS, TYPES).replace(
        "id, name, amount, happened_at, tags, place",
        "id, name, number, amount, flag, at, day, tags, place",
    );
    std::fs::write(world.pipeline(), sql).unwrap();
    let (code, _, stderr) = output(world.run(&[])).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_prints_every_value_as_lines_of_json() {
    let world = with_values().await;
    let sql = "SELECT * FROM `p.d.t` ORDER BY id";
    let place = r#"{"city":null,"height":null}"#;
    let lines = [
        format!(
            r#"{{"id":-1,"name":"","number":3.0,"amount":"0","flag":false,"at":"1969-12-31T23:59:59Z","day":"1970-01-01","tags":[],"place":{place}}}"#
        ),
        r#"{"id":7,"name":null,"number":null,"amount":null,"flag":null,"at":null,"day":null,"tags":[],"place":null}"#.to_owned(),
        r#"{"id":9007199254740993,"name":"a, \"b\"\nc","number":0.1,"amount":"12345678901234567890.123456789","flag":true,"at":"2026-01-02T03:04:05.000006Z","day":"2026-01-02","tags":["x",""],"place":{"city":"Zürich","height":408}}"#.to_owned(),
        String::new(),
    ];
    assert_eq!(
        output(query(&world.emulator, &["--json"], sql)).await,
        ok(&lines.join("\n"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_prints_csv_with_a_header_and_quotes_what_needs_it() {
    let world = with_values().await;
    let sql = "SELECT id, name, number, amount, flag, at, day, tags, place FROM `p.d.t` ORDER BY id";
    let expected = "id,name,number,amount,flag,at,day,tags,place\n\
        -1,\"\",3.0,0,false,1969-12-31T23:59:59Z,1970-01-01,[],\"{\"\"city\"\":null,\"\"height\"\":null}\"\n\
        7,,,,,,,[],\n\
        9007199254740993,\"a, \"\"b\"\"\nc\",0.1,12345678901234567890.123456789,true,2026-01-02T03:04:05.000006Z,2026-01-02,\
        \"[\"\"x\"\",\"\"\"\"]\",\"{\"\"city\"\":\"\"Zürich\"\",\"\"height\"\":408}\"\n";
    assert_eq!(
        output(query(&world.emulator, &["--csv"], sql)).await,
        ok(expected)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_prints_a_table_with_null_spelled_out() {
    let world = with_values().await;
    let sql = "SELECT id, number, flag, tags, place FROM `p.d.t` ORDER BY id";
    let expected = "\
┌──────────────────┬────────┬───────┬──────────┬────────────────────────────────┐
│ id               ┆ number ┆ flag  ┆ tags     ┆ place                          │
╞══════════════════╪════════╪═══════╪══════════╪════════════════════════════════╡
│ -1               ┆ 3.0    ┆ false ┆ []       ┆ {\"city\":null,\"height\":null}    │
│ 7                ┆ NULL   ┆ NULL  ┆ []       ┆ NULL                           │
│ 9007199254740993 ┆ 0.1    ┆ true  ┆ [\"x\",\"\"] ┆ {\"city\":\"Zürich\",\"height\":408} │
└──────────────────┴────────┴───────┴──────────┴────────────────────────────────┘
3 rows
";
    assert_eq!(output(query(&world.emulator, &[], sql)).await, ok(expected));
    let count = "SELECT COUNT(*) AS n FROM `p.d.t` WHERE id > 100000000000000000";
    assert_eq!(
        output(query(&world.emulator, &["--csv"], count)).await,
        ok("n\n0\n")
    );
    let none = "SELECT id FROM `p.d.t` WHERE FALSE";
    let empty = "┌────┐\n│ id │\n╞════╡\n└────┘\n0 rows\n";
    assert_eq!(output(query(&world.emulator, &[], none)).await, ok(empty));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_result_has_several_pages_prints_them_all() {
    // More rows than the emulator puts on a page.
    let world = World::new(317, "{}").await;
    let (code, _, stderr) = output(world.run(&[])).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let sql = "SELECT a.id * 317 + b.id AS n FROM `p.d.t` AS a CROSS JOIN `p.d.t` AS b ORDER BY n";
    let (code, stdout, stderr) = output(query(&world.emulator, &["--csv"], sql)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "n");
    let numbers: Vec<u32> = lines[1..].iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..100_489).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_fails_says_why_with_its_exit_code() {
    let world = World::new(0, "{}").await;
    let http = world.emulator.http_addr();
    let run = |sql: &'static str| output(query(&world.emulator, &[], sql));
    let (code, stdout, stderr) = run("SELEKT 1").await;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.starts_with("error: Syntax error: "), "{stderr}");
    let missing = format!(
        "error: http://{http} answered 404: Not found: Table p:d.absent was not found in location US\n"
    );
    assert_eq!(run("SELECT 1 AS one FROM `p.d.absent`").await, error(1, &missing));

    let elsewhere = |address: &str| {
        let mut command = tool();
        command.args(["query", "--http", address, "SELECT 1"]);
        output(command)
    };
    let unreachable = "error: cannot reach http://127.0.0.1:1: Connection refused (os error 111); 'arroyo-bigquery emulator' starts an emulator, \
                       --http says where one is\n";
    assert_eq!(elsewhere("127.0.0.1:1").await, error(1, unreachable));
    let wrong =
        "error: --http: it must end after host and port; give host:port, http://host:port or https://host\n";
    assert_eq!(elsewhere("http://127.0.0.1:1/bigquery").await, error(2, wrong));
    let scheme =
        "error: --http: 'ftp' is neither http nor https; give host:port, http://host:port or https://host\n";
    assert_eq!(elsewhere("ftp://127.0.0.1").await, error(2, scheme));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_looked_for_with_https_only() {
    let world = World::new(0, "{}").await;
    let mut plain = query(&world.emulator, &["--csv"], "SELECT 1 AS one");
    plain.env("GOOGLE_APPLICATION_CREDENTIALS", "/absent/key.json");
    assert_eq!(output(plain).await, ok("one\n1\n"));
    let mut secure = tool();
    secure.args(["query", "--http", "https://127.0.0.1:1", "SELECT 1"]);
    secure.env("GOOGLE_APPLICATION_CREDENTIALS", "/absent/key.json");
    let absent = "error: no credentials for https://127.0.0.1:1: cannot read the key file '/absent/key.json': No such file or directory \
                  (os error 2)\n";
    assert_eq!(output(secure).await, error(1, absent));
}

fn check(file: &Path) -> Command {
    let mut command = tool();
    command.arg("check").arg(file);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_where_digits_below_a_microsecond_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("times.sql");
    let checked = async |option: &str| {
        let sql = format!(
            "CREATE TABLE src (id BIGINT, at TIMESTAMP, plain TIMESTAMP(6), clock TIME, days TIMESTAMP[], inside STRUCT<t TIMESTAMP, x BIGINT>)
                 WITH (connector = 'single_file', type = 'source', path = 'x.json', format = 'json');
             CREATE TABLE snk WITH (connector = 'bigquery', type = 'sink', project = 'p', dataset = 'd', 'table' = 't'{option});
             INSERT INTO snk SELECT id, at, plain, clock, days, inside FROM src;"
        );
        std::fs::write(&file, sql).unwrap();
        let (code, told, stderr) = output(check(&file)).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        told.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let ok = "ok; --connect also looks at the table";
    let note = "note: digits below a microsecond are cut off in at, clock, days, inside.t, unless the table's column is a TIMESTAMP(12); \
                'write.sub_microseconds' = 'refuse' makes such rows errors";
    assert_eq!(checked("").await, [note, ok]);
    assert_eq!(checked(", 'write.sub_microseconds' = 'refuse'").await, [ok]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_what_the_pipeline_does_and_with_connect_whether_the_table_fits() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let file = examples.join("earthquakes.sql");
    let expected = format!(
        "{}: source 'feed', sink projects/demo/datasets/geology/tables/earthquakes, 8 columns, each row exactly once\nok; --connect also looks at the table\n",
        file.display()
    );
    assert_eq!(output(check(&file)).await, ok(&expected));
    let mut connect = check(&file);
    connect.arg("--connect");
    let refused =
        "error: --connect has no use with endpoint = 'emulator', which 'run' starts anew each time\n";
    let (code, _, stderr) = output(connect).await;
    assert_eq!((code, stderr.as_str()), (Some(2), refused));

    let world = World::new(0, "{}").await;
    let mut connect = check(&world.pipeline());
    connect.arg("--connect");
    let expected = format!(
        "{}: source 'source', sink projects/p/datasets/d/tables/t, 6 columns, each row exactly once\nok; the table does not exist and will be created ('table.create' = 'if_missing')\n",
        world.pipeline().display()
    );
    assert_eq!(output(connect).await, ok(&expected));
    assert!(!world.state().exists());
    let child = world.run(&[]).spawn().unwrap();
    finish(child, Duration::from_secs(60)).await;
    let mut connect = check(&world.pipeline());
    connect.arg("--connect");
    let (code, told, _) = output(connect).await;
    assert_eq!(
        (code, told.lines().last()),
        (Some(0), Some("ok; the columns fit the table"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_all_mistakes_at_once_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.sql");
    let good = "CREATE TABLE feed (id BIGINT) WITH (connector = 'single_file', path = 'x', format = 'json');\n\
                CREATE TABLE sink (id BIGINT) WITH (connector = 'bigquery', project = 'p', dataset = 'd', 'table' = 't');\n\
                INSERT INTO sink SELECT id FROM feed;\n";
    let cases = [
        (
            ("'json'", "'xml', speed = 'fast'"),
            "FILE:1:76: option 'format' is 'xml'; it must be 'json' or 'csv'\n\
             FILE:1:92: connector single_file has no option 'speed'\n",
        ),
        (
            ("SELECT id", "SELECT idd"),
            "FILE:3:25: there is no column idd; did you mean 'id'?; known are: id\n",
        ),
        (
            (
                "'table' = 't'",
                "'table' = 't', 'table.create' = 'if_missing', 'table.cluster_by' = 'id, zone'",
            ),
            "FILE:2:137: option 'table.cluster_by': the pipeline writes no column 'zone' at the top level; it writes id\n",
        ),
        (
            ("project =", "projekt ="),
            "FILE:2:14: option 'project' is required\n\
             FILE:2:61: there is no option 'projekt'; did you mean 'project'?\n",
        ),
    ];
    for ((from, to), told) in cases {
        std::fs::write(&file, good.replace(from, to)).unwrap();
        let told = told.replace("FILE", file.to_str().unwrap());
        let expected = error(2, &format!("error: the pipeline cannot run:\n{told}"));
        assert_eq!(output(check(&file)).await, expected);
    }
}

fn checkpoint(arguments: &[&str], world: &World) -> Command {
    let mut command = tool();
    command
        .arg("checkpoint")
        .args(arguments)
        .arg("--state-dir")
        .arg(world.state());
    command
}

/// A run of two seconds with two subtasks and about four checkpoints: two at least, and no more than the ten that are kept.
async fn with_checkpoints() -> (World, Vec<CheckpointInfo>) {
    let world = World::new(40, "{}").await;
    let arguments = [
        "--parallelism",
        "2",
        "--source-rate",
        "20",
        "--checkpoint-interval",
        "600ms",
    ];
    let mut command = tool();
    command
        .arg("run")
        .arg(world.pipeline())
        .arg("--json")
        .args(arguments);
    let (code, _, stderr) = output(command).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let checkpoints = world.checkpoints().await;
    assert!(
        checkpoints.len() >= 2 && checkpoints[0].epoch.0 == 1,
        "{checkpoints:?}"
    );
    (world, checkpoints)
}

/// `created` as the tool has to print it.
fn created(info: &CheckpointInfo) -> String {
    let micros = info.manifest.as_ref().unwrap().created_at_micros;
    let time = std::time::UNIX_EPOCH + Duration::from_micros(micros);
    humantime::format_rfc3339_micros(time).to_string()
}

fn rows(info: &CheckpointInfo) -> u64 {
    info.manifest
        .as_ref()
        .unwrap()
        .subtasks
        .iter()
        .map(|subtask| subtask.rows)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_listed_oldest_first() {
    let (world, checkpoints) = with_checkpoints().await;
    assert_eq!(checkpoints.iter().map(rows).sum::<u64>(), 40);
    let expected: Vec<Value> = checkpoints
        .iter()
        .map(|info| {
            json!({
                "epoch": info.epoch.0, "lineage": 1, "generation": 1, "complete": true, "committed": true,
                "created": created(info), "parallelism": 2, "rows": rows(info), "file": info.file,
            })
        })
        .collect();
    let (code, stdout, stderr) = output(checkpoint(&["list", "--json"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, expected);

    let (code, stdout, stderr) = output(checkpoint(&["list"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let cells = |line: &str| {
        line.split(['│', '┆'])
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let lines: Vec<Vec<String>> = stdout
        .lines()
        .filter(|line| line.starts_with('│'))
        .map(cells)
        .collect();
    let header = [
        "epoch",
        "lineage",
        "generation",
        "complete",
        "committed",
        "created",
        "parallelism",
        "rows",
    ];
    assert_eq!(lines[0], header);
    for (line, info) in lines[1..].iter().zip(&checkpoints) {
        let (epoch, rows) = (info.epoch.to_string(), rows(info).to_string());
        assert_eq!(
            *line,
            [&epoch, "1", "1", "yes", "yes", &created(info), "2", &rows]
        );
    }
    assert_eq!(lines.len(), checkpoints.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_shown_with_streams_offsets_and_source_positions() {
    let (world, checkpoints) = with_checkpoints().await;
    let newest = checkpoints.last().unwrap();
    let (code, stdout, stderr) = output(checkpoint(&["show", "--json"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let shown: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(shown["epoch"], newest.epoch.0);
    assert_eq!(
        (
            &shown["rows_read"],
            &shown["rows_committed"],
            &shown["rows_rejected"]
        ),
        (&json!(40), &json!(40), &json!(0))
    );
    assert_eq!(shown["input_ended"], true);
    let bytes = std::fs::metadata(world.folder.path().join("rows.ndjson"))
        .unwrap()
        .len();
    let position = format!("byte {bytes}, after line 40");
    assert_eq!(
        shown["sources"],
        json!([{ "source": "source", "position": position }])
    );
    let subtasks = shown["subtasks"].as_array().unwrap();
    assert_eq!(subtasks.len(), 2);
    let mut ends = 0;
    let mut streams: Vec<(String, u64)> = Vec::new();
    for (index, subtask) in subtasks.iter().enumerate() {
        assert_eq!(subtask["subtask"], index);
        assert_eq!(subtask["table"], "projects/p/datasets/d/tables/t");
        for stream in subtask["streams"].as_array().unwrap() {
            let next = stream["next_offset"].as_u64().unwrap();
            ends += next;
            streams.push((stream["stream"].as_str().unwrap().to_owned(), next));
        }
        for commit in subtask["commit"].as_array().unwrap() {
            let (name, next) = streams.last().unwrap();
            assert_eq!(commit["stream"], *name.as_str());
            assert_eq!(commit["flush_offset"], next - 1);
            assert!(commit["from_offset"].as_u64().unwrap() < *next);
        }
    }
    assert_eq!(ends, 40, "all rows are on these streams");
    let mut known: Vec<String> = world
        .emulator
        .handle()
        .streams()
        .into_iter()
        .map(|stream| stream.name)
        .collect();
    known.sort();
    let mut named: Vec<String> = streams.iter().map(|(name, _)| name.clone()).collect();
    named.sort();
    assert_eq!(named, known);

    let (code, stdout, stderr) = output(checkpoint(&["show", "--epoch", "1"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let oldest = &checkpoints[0];
    let head = format!(
        "checkpoint   1 (complete and committed)\nfile         {}\ncreated      {}\nlineage      1, generation 1, parallelism 2\n\
         table        projects/p/datasets/d/tables/t\nrows         {} with this checkpoint; in all ",
        oldest.file,
        created(oldest),
        rows(oldest)
    );
    assert!(stdout.starts_with(&head), "{stdout}");
    assert!(stdout.contains("\nsource       source: byte "), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_listed_with_the_others_and_named() {
    let (world, checkpoints) = with_checkpoints().await;
    let damaged = &checkpoints[0];
    let good = std::fs::read(&damaged.file).unwrap();
    std::fs::write(&damaged.file, &good[..good.len() / 2]).unwrap();
    let reason = format!(
        "checkpoint file {} is damaged: truncated: {} bytes where {} were written; put back a good copy of it, or start anew with --new-state",
        damaged.file,
        good.len() / 2,
        good.len()
    );
    let (code, stdout, stderr) = output(checkpoint(&["list", "--json"], &world)).await;
    let all = checkpoints.len();
    assert_eq!(
        (code, stderr),
        (
            Some(1),
            format!("error: 1 of {all} checkpoints is damaged:\n  epoch 1: {reason}\n")
        )
    );
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), all);
    let expected = json!({
        "epoch": 1, "lineage": 1, "complete": true, "committed": true, "file": damaged.file, "damaged": reason,
    });
    assert_eq!(lines[0], expected);
    assert_eq!(lines[1]["created"], created(&checkpoints[1]));

    let shown = output(checkpoint(&["show", "--epoch", "1"], &world)).await;
    assert_eq!(
        shown,
        error(1, &format!("error: checkpoint 1 cannot be shown: {reason}\n"))
    );
    let (code, _, stderr) = output(checkpoint(&["show"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_is_looked_at_while_a_run_holds_it() {
    let world = World::new(100_000, "{}").await;
    let mut run = world.run(&["--source-rate", "1000"]);
    let child = run.spawn().unwrap();
    while world.checkpoints().await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (code, stdout, stderr) = output(checkpoint(&["list", "--json"], &world)).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.lines().count() >= 3, "{stdout}");
    signal(&child, "TERM");
    summary(&finish(child, LIMIT).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_that_is_none_or_lacks_the_checkpoint_is_wrong_usage() {
    let world = World::new(0, "{}").await;
    let missing = format!(
        "error: state location {:?} cannot be used: there is no state in it\n",
        world.state().to_str().unwrap()
    );
    assert_eq!(output(checkpoint(&["list"], &world)).await, error(2, &missing));
    assert_eq!(output(checkpoint(&["show"], &world)).await, error(2, &missing));
    assert!(!world.state().exists(), "looking creates nothing");

    let (world, checkpoints) = with_checkpoints().await;
    let there: Vec<String> = checkpoints.iter().map(|info| info.epoch.to_string()).collect();
    let absent = format!(
        "error: there is no checkpoint 99 in {}; there are {}\n",
        world.state().display(),
        there.join(", ")
    );
    assert_eq!(
        output(checkpoint(&["show", "--epoch", "99"], &world)).await,
        error(2, &absent)
    );
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended by itself if all went well.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulator_of_its_own_announces_where_it_answers() {
    let child = tool()
        .args(["emulator", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut emulator = Running(child);
    let mut lines = BufReader::new(emulator.0.stdout.take().unwrap()).lines();
    let grpc = lines.next().unwrap().unwrap();
    assert!(grpc.starts_with("Storage Write API  http://127.0.0.1:"), "{grpc}");
    let http = lines.next().unwrap().unwrap();
    let http = http.strip_prefix("REST API           ").unwrap();
    let mut command = tool();
    command.args([
        "query",
        "--http",
        http,
        "--json",
        "SELECT 1 AS one, 'a' AS letter",
    ]);
    assert_eq!(output(command).await, ok("{\"one\":1,\"letter\":\"a\"}\n"));
    signal(&emulator.0, "TERM");
    assert!(emulator.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_is_no_failure() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for command in [
        "check bigquery.sql",
        "run earthquakes.sql",
        "run earthquakes.sql --json",
    ] {
        let script = format!("\"$0\" {command} | true; exit ${{PIPESTATUS[0]}}");
        let output = std::process::Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_arroyo-bigquery")])
            .current_dir(examples)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.contains("panicked")),
            (Some(0), false),
            "{command}: {stderr}"
        );
    }
}
