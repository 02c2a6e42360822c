//! What goes wrong in the world: each time a message that names the thing, nothing lost, and after mending the same command goes on.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_emulator::{Config, Emulator};
use tempfile::TempDir;

use crate::support::{endpoints, finish, printed, signal, tool};

const LIMIT: Duration = Duration::from_secs(60);
/// Columns that fit the table.
pub(crate) const COLUMNS: &str = "id BIGINT NOT NULL, name TEXT, amount DECIMAL(38, 2)";
pub(crate) const THREE_ROWS: &str = r#"{"id": 1, "name": "a", "amount": "1.5"}
{"id": 2, "name": "b", "amount": "-99999999999999999999999999999.25"}
{"id": 3, "name": null, "amount": null}
"#;
const THREE: [&str; 3] = [
    "1|a|1.500000000",
    "2|b|-99999999999999999999999999999.250000000",
    "3|NULL|NULL",
];
const GOES_ON: &str = "Nothing is lost: what is visible stays, and once this is mended the same command goes on from the newest \
                       checkpoint in FOLDER/job.state.\n";

/// A folder with `job.sql` and `feed.ndjson`, and table p.d.t (id INT64 REQUIRED, name STRING, amount NUMERIC), which holds one row
/// of before.
pub(crate) struct Job {
    pub(crate) emulator: Emulator,
    folder: TempDir,
    endpoints: String,
}

impl Job {
    pub(crate) async fn new() -> Self {
        let emulator = Emulator::start(Config::default()).await.unwrap();
        let handle = emulator.handle();
        handle.create_dataset(&DatasetRef::new("p", "d"), "US").unwrap();
        let endpoints = endpoints(&emulator);
        let job = Self {
            emulator,
            folder: tempfile::tempdir().unwrap(),
            endpoints,
        };
        job.create_table("t");
        let seed = job.sql(COLUMNS, COLUMNS, "id, name, amount", "t");
        job.write("seed.sql", &seed.replace("feed.ndjson", "seed.ndjson"));
        job.write("seed.ndjson", r#"{"id": 0, "name": "before", "amount": 0}"#);
        let seeded = job.run_file("seed.sql", &[]).await;
        assert_eq!(said(&job, &seeded), (Some(0), String::new()));
        assert_eq!(job.rows().await, ["0|before|0.000000000"]);
        job
    }

    fn create_table(&self, name: &str) {
        let numeric = Kind::Numeric {
            precision: None,
            scale: None,
        };
        let columns = vec![
            Column::new("id", Kind::Int64, Mode::Required),
            Column::new("name", Kind::String { max_length: None }, Mode::Nullable),
            Column::new("amount", numeric, Mode::Nullable),
        ];
        let table = TableRef::new("p", "d", name);
        let handle = self.emulator.handle();
        handle.create_table(&table, Schema { columns }).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn sql(&self, feed: &str, sink: &str, select: &str, table: &str) -> String {
        format!(
            "CREATE TABLE feed ({feed}) WITH (connector = 'single_file', path = 'feed.ndjson', format = 'json');\n\
             CREATE TABLE sink ({sink}) WITH (connector = 'bigquery', project = 'p', dataset = 'd', 'table' = '{table}',\n\
             {});\n\
             INSERT INTO sink SELECT {select} FROM feed;\n",
            self.endpoints
        )
    }

    fn write_sql(&self, feed: &str, sink: &str, select: &str) {
        self.write("job.sql", &self.sql(feed, sink, select, "t"));
    }

    fn write_good_sql(&self) {
        self.write_sql(COLUMNS, COLUMNS, "id, name, amount");
    }

    pub(crate) async fn run_file(&self, file: &str, arguments: &[&str]) -> Output {
        let mut command = tool();
        command
            .arg("run")
            .arg(self.path(file))
            .arg("--json")
            .args(arguments);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        finish(child, LIMIT).await
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.run_file("job.sql", arguments).await
    }

    async fn rows(&self) -> Vec<String> {
        self.rows_of("t").await
    }

    async fn rows_of(&self, table: &str) -> Vec<String> {
        let sql = format!("SELECT id, name, amount FROM `p.d.{table}` ORDER BY id");
        let output = self.emulator.handle().query("p", None, &sql).await.unwrap();
        printed(&output.rows)
    }

    /// The run must fail so, and change nothing.
    async fn fails(&self, arguments: &[&str], code: i32, stderr: &str) {
        let before = self.rows().await;
        let output = self.run(arguments).await;
        assert_eq!(said(self, &output), (Some(code), stderr.to_owned()));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        assert_eq!(self.rows().await, before);
    }

    /// The run must end well, with these rows behind the one of before.
    async fn succeeds_with(&self, arguments: &[&str], rows: &[impl AsRef<str>]) {
        let output = self.run(arguments).await;
        assert_eq!(said(self, &output), (Some(0), String::new()));
        let mut expected = vec!["0|before|0.000000000".to_owned()];
        expected.extend(rows.iter().map(|row| row.as_ref().to_owned()));
        assert_eq!(self.rows().await, expected);
    }
}

/// Exit code and stderr, with what differs from run to run named.
pub(crate) fn said(job: &Job, output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let folder = job.folder.path().to_str().unwrap();
    (output.status.code(), stderr.replace(folder, "FOLDER"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_line_is_named_by_its_number() {
    let job = Job::new().await;
    job.write_good_sql();
    job.write(
        "feed.ndjson",
        &THREE_ROWS.replace("\"amount\": null}", "\"amount\": null"),
    );
    let error = "error: FOLDER/feed.ndjson, line 3: it is not JSON: EOF while parsing an object at column 38; mend the line, or set \
                 bad_data = 'drop' to leave such lines out\n";
    job.fails(&[], 1, &format!("{error}{GOES_ON}")).await;
    // What was read anew is not to be read anew once more.
    let goes_on = GOES_ON.replace("same command", "same command without --new-state");
    job.fails(&["--new-state"], 1, &format!("{error}{goes_on}")).await;
    job.write("feed.ndjson", THREE_ROWS);
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_line_behind_checkpoints_loses_and_repeats_nothing() {
    let job = Job::new().await;
    job.write_good_sql();
    let line = |id: u32| format!("{{\"id\": {id}, \"name\": \"n{id}\"}}\n");
    let good: String = (1..=60).map(line).collect();
    let bad = good.replace("\"n50\"}", "\"n50\", }");
    let paced = ["--source-rate", "100", "--checkpoint-interval", "50ms"];
    job.write("feed.ndjson", &bad);
    let output = job.run(&paced).await;
    let error = "error: FOLDER/feed.ndjson, line 50: it is not JSON: key must be a string at column 27; mend the line, or set bad_data = \
                 'drop' to leave such lines out\n";
    assert_eq!(said(&job, &output), (Some(1), format!("{error}{GOES_ON}")));
    let expected: Vec<String> = (1..=60).map(|id| format!("{id}|n{id}|NULL")).collect();
    let visible = job.rows().await;
    assert!((1..50).contains(&visible.len()), "{visible:?}");
    assert_eq!(visible[1..], expected[..visible.len() - 1]);
    job.write("feed.ndjson", &good);
    job.succeeds_with(&paced, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_not_of_their_type_are_named_by_line_and_column_and_never_shown() {
    let job = Job::new().await;
    job.write_good_sql();
    let behind = "; mend the line, or set bad_data = 'drop' to leave such lines out\n";
    let cases = [
        (
            THREE_ROWS.replace("\"id\": 2", "\"id\": \"secret\""),
            "line 2: column id is not BIGINT",
        ),
        (
            THREE_ROWS.replace("\"id\": 2", "\"id\": 2.5"),
            "line 2: column id is not BIGINT",
        ),
        (
            THREE_ROWS.replace("\"id\": 3, ", ""),
            "line 3: column id is NOT NULL but missing or null",
        ),
        (
            THREE_ROWS.replace("\"b\"", "[\"secret\"]"),
            "line 2: column name is not TEXT",
        ),
        (
            THREE_ROWS.replace("\"1.5\"", "\"secret\""),
            "line 1: column amount is not DECIMAL(38, 2)",
        ),
        (
            format!("\n{THREE_ROWS}[1]\n"),
            "line 5: it is JSON, but not an object",
        ),
    ];
    for (text, error) in cases {
        job.write("feed.ndjson", &text);
        job.fails(
            &[],
            1,
            &format!("error: FOLDER/feed.ndjson, {error}{behind}{GOES_ON}"),
        )
        .await;
    }
    job.write("feed.ndjson", THREE_ROWS);
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_that_does_not_fit_the_table_is_told_before_the_first_row() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    let (feed, sink) = (COLUMNS, "name BIGINT, color TEXT, amount TEXT");
    job.write_sql(feed, sink, "id AS name, name AS color, CAST(amount AS TEXT)");
    let error = "error: 4 columns of the pipeline do not fit table projects/p/datasets/d/tables/t:\n  \
        column `name`: the pipeline writes BIGINT, the table has STRING; cast it, for example CAST(name AS TEXT)\n  \
        column `color`: the pipeline writes TEXT, the table has no such column; add it to the table, or rename or drop it in the query\n  \
        column `amount`: the pipeline writes TEXT, the table has NUMERIC; cast it, for example CAST(amount AS DECIMAL(38, 9))\n  \
        column `id`: the table requires INT64 NOT NULL without default, the pipeline does not write it; add it to the query, or make it \
        nullable\n";
    job.fails(&[], 2, error).await;
    assert!(!job.path("job.state").exists());
    job.write_good_sql();
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_for_an_int64_is_told_at_its_place_in_the_query_or_against_the_table() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    job.write_sql(COLUMNS, COLUMNS, "name, name AS n, amount");
    let error = "error: the pipeline cannot run:\n\
                 FOLDER/job.sql:4:25: column id is BIGINT but is given TEXT; write CAST(... AS BIGINT) if that is meant, or change the column\n";
    job.fails(&[], 2, error).await;

    let sink = COLUMNS.replace("id BIGINT", "id TEXT");
    job.write_sql(COLUMNS, &sink, "CAST(id AS TEXT), name, amount");
    let error = "error: 1 column of the pipeline does not fit table projects/p/datasets/d/tables/t:\n  \
                 column `id`: the pipeline writes TEXT, the table has INT64; cast it, for example CAST(id AS BIGINT)\n";
    job.fails(&[], 2, error).await;
    job.write_good_sql();
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_beyond_numeric_is_named_by_row_and_column_without_its_value() {
    let job = Job::new().await;
    job.write_good_sql();
    job.write(
        "feed.ndjson",
        &THREE_ROWS.replace(
            "-99999999999999999999999999999.25",
            "123456789012345678901234567890",
        ),
    );
    let error = "error: subtask 0 of the sink: 1 row does not fit the table: row 2 of the batch, column `amount`: more than 29 digits before \
                 the decimal point\n";
    job.fails(&[], 1, &format!("{error}{GOES_ON}")).await;
    job.write("feed.ndjson", THREE_ROWS);
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_named_with_the_option_that_makes_it() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    job.write(
        "job.sql",
        &job.sql(COLUMNS, COLUMNS, "id, name, amount", "absent"),
    );
    let error = "error: table projects/p/datasets/d/tables/absent does not exist; create it, or let the sink do so with option 'table.create' = \
                 'if_missing' (Requested entity was not found. Entity: projects/p/datasets/d/tables/absent (NotFound))\n";
    job.fails(&[], 2, error).await;
    job.create_table("absent");
    let output = job.run(&[]).await;
    assert_eq!(said(&job, &output), (Some(0), String::new()));
    assert_eq!(job.rows_of("absent").await, THREE);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_options_are_all_told_at_their_places() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    let good = job.sql(COLUMNS, COLUMNS, "id, name, amount", "t");
    let bad = good.replace(
        "'table' = 't',\n",
        "'table' = 't', 'write.moed' = 'exactly_once',\n  'write.append.linger' = 'soon',\n",
    );
    job.write("job.sql", &bad);
    let output = job.run(&[]).await;
    let (code, stderr) = said(&job, &output);
    assert_eq!(code, Some(2), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert_eq!(lines[0], "error: the pipeline cannot run:");
    assert_eq!(
        lines[1],
        "FOLDER/job.sql:2:149: there is no option 'write.moed'; did you mean 'write.mode'?"
    );
    assert!(
        lines[2].starts_with("FOLDER/job.sql:3:3: option 'write.append.linger': "),
        "{stderr}"
    );
    assert_eq!(job.rows().await, ["0|before|0.000000000"]);
    job.write("job.sql", &good);
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_where_nobody_answers_is_named_and_works_once_somebody_does() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    // A port that was free a moment ago; the emulator below takes it.
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let http = job.emulator.http_addr();
    let good = job.sql(COLUMNS, COLUMNS, "id, name, amount", "t");
    let moved = good.replace(
        &job.endpoints,
        &format!("'endpoint.grpc' = 'http://{address}', 'endpoint.http' = 'http://{http}'"),
    );
    job.write("job.sql", &moved);
    let output = job.run(&[]).await;
    let (code, stderr) = said(&job, &output);
    assert_eq!(code, Some(1), "{stderr}");
    let error = format!(
        "error: table projects/p/datasets/d/tables/t cannot be read: cannot reach http://{address}: Connection refused (os error 111) \
         (Unavailable); is the address right ('endpoint.grpc', 'endpoint.http'), and is the network up?"
    );
    assert!(stderr.lines().any(|line| line == error), "{stderr}");
    assert_eq!(job.rows().await, ["0|before|0.000000000"]);
    assert!(!job.path("job.state").exists());

    let other = Emulator::start(Config {
        grpc: address,
        ..Config::default()
    });
    let other = other.await.unwrap();
    other
        .handle()
        .create_dataset(&DatasetRef::new("p", "d"), "US")
        .unwrap();
    let there = Job {
        emulator: other,
        ..job
    };
    there.create_table("t");
    let output = there.run(&[]).await;
    assert_eq!(said(&there, &output), (Some(0), String::new()));
    assert_eq!(there.rows().await, THREE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_dir_that_cannot_be_written_is_named_before_anything_is_read() {
    let job = Job::new().await;
    job.write_good_sql();
    job.write("feed.ndjson", THREE_ROWS);
    job.write("occupied", "a file");
    let state = job.path("occupied/state");
    let state = state.to_str().unwrap();
    let error = |folder: &str| {
        format!(
            "error: state dir {folder} is not writable: Not a directory (os error 20); mend its permissions or name another with --state-dir\n"
        )
    };
    job.fails(&["--state-dir", state], 2, &error("FOLDER/occupied/state"))
        .await;
    job.fails(&["--state-dir", "/dev/null/state"], 2, &error("/dev/null/state"))
        .await;
    std::fs::remove_file(job.path("occupied")).unwrap();
    job.succeeds_with(&["--state-dir", state], &THREE).await;
}

/// Leaves a job stopped between its first and its last row, with checkpoints.
async fn stopped_midway(job: &Job, arguments: &[&str]) {
    let mut command = tool();
    command
        .arg("run")
        .arg(job.path("job.sql"))
        .arg("--json")
        .args(arguments);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while job.rows().await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    signal(&child, "TERM");
    let output = finish(child, LIMIT).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(job.rows().await.len() < 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_of_the_newest_checkpoint_stops_the_run_and_its_good_copy_lets_it_go_on() {
    let job = Job::new().await;
    job.write_good_sql();
    let line = |id: u32| format!("{{\"id\": {id}, \"name\": \"n{id}\"}}\n");
    job.write("feed.ndjson", &(1..=100).map(line).collect::<String>());
    let paced = ["--source-rate", "50", "--checkpoint-interval", "50ms"];
    stopped_midway(&job, &paced).await;
    for kind in ["manifest", "claim", "committed"] {
        let file = newest_file(&job, kind);
        let shown = file
            .to_str()
            .unwrap()
            .replace(job.folder.path().to_str().unwrap(), "FOLDER");
        let good = std::fs::read(&file).unwrap();
        let (half, all) = (good.len() / 2, good.len());
        std::fs::write(&file, &good[..half]).unwrap();
        let damaged = |damage: &str| {
            format!(
                "error: checkpoint file {shown} is damaged: {damage}; put back a good copy of it, or start anew with --new-state\n"
            )
        };
        let cut = format!("truncated: {half} bytes where {all} were written");
        job.fails(&paced, 1, &damaged(&cut)).await;

        let mut flipped = good.clone();
        flipped[half] ^= 1;
        std::fs::write(&file, &flipped).unwrap();
        let crc = |bytes: &[u8]| u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        let mut content = flipped[..12].to_vec();
        content.extend_from_slice(&flipped[16..]);
        let flipped = format!(
            "its CRC-32C is {:08x}, {:08x} was written",
            crc32c(&content),
            crc(&good)
        );
        job.fails(&paced, 1, &damaged(&flipped)).await;
        std::fs::write(&file, &good).unwrap();
    }
    let expected: Vec<String> = (1..=100).map(|id| format!("{id}|n{id}|NULL")).collect();
    job.succeeds_with(&["--checkpoint-interval", "50ms"], &expected)
        .await;
}

fn newest_file(job: &Job, extension: &str) -> PathBuf {
    let files = std::fs::read_dir(job.path("job.state/checkpoints")).unwrap();
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .max()
        .unwrap()
}

/// By the definition: polynomial 0x1EDC6F41, reflected.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_file_that_is_none_is_wrong_usage() {
    let job = Job::new().await;
    let cases: [(&[u8], &str); 3] = [
        (
            b"SELECT",
            "FOLDER/job.sql:1:7: Expected: an expression, found: the end",
        ),
        (
            b"\xff\xfe",
            "FOLDER/job.sql:1:1: cannot read the pipeline's file: stream did not contain valid UTF-8",
        ),
        (b"", "FOLDER/job.sql:1:1: "),
    ];
    for (bytes, error) in cases {
        std::fs::write(job.path("job.sql"), bytes).unwrap();
        let output = job.run(&[]).await;
        let (code, stderr) = said(&job, &output);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(
            stderr.starts_with(&format!("error: the pipeline cannot run:\n{error}")),
            "{stderr}"
        );
    }
    std::fs::remove_file(job.path("job.sql")).unwrap();
    let error = "error: the pipeline cannot run:\n\
                 FOLDER/job.sql:1:1: cannot read the pipeline's file: No such file or directory (os error 2)\n";
    job.fails(&[], 2, error).await;
    job.write_good_sql();
    job.write("feed.ndjson", THREE_ROWS);
    job.succeeds_with(&[], &THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_created_is_told_by_check_and_run_alike() {
    let job = Job::new().await;
    job.write("feed.ndjson", THREE_ROWS);
    let made = |endpoints: &str, dataset: &str| {
        job.sql(COLUMNS, COLUMNS, "id, name, amount", "absent")
            .replace(
                &job.endpoints,
                &format!("'table.create' = 'if_missing', {endpoints}"),
            )
            .replace("dataset = 'd'", &format!("dataset = '{dataset}'"))
    };
    let check = || {
        let mut command = tool();
        command.arg("check").arg(job.path("job.sql")).arg("--connect");
        command.output().unwrap()
    };
    job.write("job.sql", &made(&job.endpoints, "d"));
    let output = check();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    assert!(
        stdout
            .ends_with("ok; the table does not exist and will be created ('table.create' = 'if_missing')\n"),
        "{stdout}"
    );

    job.write("job.sql", &made(&job.endpoints, "nowhere"));
    let error = "cannot create table projects/p/datasets/nowhere/tables/absent: dataset 'nowhere' does not exist in project 'p'; create the \
                 dataset first";
    for output in [check(), job.run(&[]).await] {
        let (code, stderr) = said(&job, &output);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.starts_with(&format!("error: {error}")), "{stderr}");
    }

    // The rows' address answers, the administration's does not.
    let (grpc, nobody) = (
        job.emulator.grpc_addr(),
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(),
    );
    let half = format!("'endpoint.grpc' = 'http://{grpc}', 'endpoint.http' = 'http://{nobody}'");
    job.write("job.sql", &made(&half, "d"));
    for output in [check(), job.run(&[]).await] {
        let (code, stderr) = said(&job, &output);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(
            stderr.contains(&format!("cannot reach http://{nobody}")),
            "{stderr}"
        );
    }
    assert!(!job.path("job.state").exists());
}
