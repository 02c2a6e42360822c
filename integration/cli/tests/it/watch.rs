//! `run --metrics`: what is served while a pipeline runs, against what the emulator and the summary say; `--log json`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::support::{World, finish, signal, summary, tool};

const ROWS: u64 = 3_000;
const LIMIT: Duration = Duration::from_secs(60);

/// A run with `--metrics`, and where it serves them.
struct Watched {
    child: Child,
    address: String,
    stderr: BufReader<ChildStderr>,
}

impl Watched {
    /// At so many rows a second, that it can be looked at.
    fn start(world: &World, rate: &str) -> Self {
        let arguments = ["--metrics", "127.0.0.1:0", "--source-rate", rate];
        let mut child = world.run(&arguments).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let told = line.strip_prefix("the run shows itself at http://").unwrap();
        let address = told.strip_suffix("/, its metrics at /metrics\n").unwrap();
        Self {
            address: address.to_owned(),
            child,
            stderr,
        }
    }

    async fn status(&self) -> Value {
        let (head, body) = get(&self.address, "/status.json", "127.0.0.1").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    async fn metrics(&self) -> BTreeMap<String, f64> {
        let (head, body) = get(&self.address, "/metrics", "127.0.0.1").await;
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        samples(&body)
    }

    /// Waits until so many checkpoints are confirmed.
    async fn confirmed(&self, epochs: u64) {
        let begun = Instant::now();
        while self.status().await["epoch"].as_u64().unwrap() < epochs {
            assert!(begun.elapsed() < LIMIT, "no checkpoint {epochs}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Head and body of an answer.
async fn get(address: &str, path: &str, host: &str) -> (String, String) {
    try_get(address, path, host).await.unwrap()
}

/// The same of a server that may be about to end; what it does not end is an empty text.
async fn try_get(address: &str, path: &str, host: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let site = if host.starts_with("127.") {
        "none"
    } else {
        "same-origin"
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: {site}\r\nSec-Fetch-Mode: cors\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.to_owned(), body.to_owned()))
}

/// The sink's series of its one subtask.
fn sink_series(name: &str) -> String {
    format!(r#"arroyo_worker_bigquery_{name}{{node_id="1",operator_name="sink",subtask_idx="0"}}"#)
}

/// Values by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_shows_how_far_it_is_and_ends_its_server_with_itself() {
    let world = World::new(ROWS, "{}").await;
    let watched = Watched::start(&world, "500");
    watched.confirmed(3).await;
    let status = watched.status().await;
    let graph = status["pipeline"]["graph"].as_array().unwrap();
    let nodes: Vec<_> = graph.iter().map(|node| (&node["kind"], &node["name"])).collect();
    assert_eq!(
        format!("{nodes:?}"),
        r#"[(String("source"), String("source")), (String("query"), String("SELECT")), (String("sink"), String("sink"))]"#
    );
    assert_eq!(graph[0]["what"], "single_file");
    assert_eq!(graph[2]["what"], "bigquery, p.d.t");
    let newest_first = status["checkpoints"].as_array().unwrap();
    let third = newest_first
        .iter()
        .find(|checkpoint| checkpoint["epoch"] == 3)
        .unwrap();
    let times = ["prepared_seconds", "durable_seconds", "committed_seconds"];
    let times = times.map(|time| third[time].as_f64().unwrap());
    assert!(times.is_sorted() && times[2] < 30.0, "{third}");
    assert!(third["rows"].as_u64().unwrap() > 0, "{third}");
    assert_eq!(status["failures"], Value::Array(Vec::new()));
    let subtask = &status["subtasks"][0];
    let streams = world.emulator.handle().streams();
    let names: Vec<_> = streams
        .iter()
        .map(|stream| Value::from(stream.name.as_str()))
        .collect();
    assert_eq!([subtask["streams"][0]["stream"].clone()].as_slice(), names);
    let of_stream = |name: &str| subtask["streams"][0][name].as_u64().unwrap();
    let (next_offset, flushed) = (of_stream("next_offset"), of_stream("flushed"));
    assert!(status["rows_visible"].as_u64().unwrap() <= flushed && flushed <= next_offset);
    assert_eq!(subtask["rows_waiting"], next_offset - flushed);

    let metrics = watched.metrics().await;
    let visible = metrics["arroyo_worker_bigquery_host_rows_visible"];
    assert!(metrics["arroyo_worker_bigquery_host_checkpoints_total"] >= 3.0);
    assert!(metrics["arroyo_worker_bigquery_host_last_confirmed_epoch"] >= 3.0);
    assert_eq!(metrics["arroyo_worker_bigquery_host_restarts_total"], 0.0);
    let since = chrono::Utc::now().timestamp() as f64
        - metrics["arroyo_worker_bigquery_host_last_checkpoint_timestamp_seconds"];
    assert!((-1.0..60.0).contains(&since), "{since} s ago");
    let of_sink = |name: &str| metrics[&sink_series(name)];
    assert!(visible <= of_sink("rows_committed_total"), "{metrics:?}");
    assert!(of_sink("rows_committed_total") <= of_sink("rows_appended_total"));
    assert_eq!(of_sink("streams_created_total"), 1.0);
    assert!(
        of_sink("rows_committed_total") <= world.visible_ids().len() as f64,
        "counted before they were visible"
    );
    assert!(
        visible >= status["rows_visible"].as_f64().unwrap(),
        "rows visible fell"
    );

    let address = watched.address.clone();
    let Watched { child, stderr, .. } = watched;
    drop(stderr);
    let summary = summary(&finish(child, LIMIT).await);
    assert_eq!(summary["rows_committed"], ROWS);
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the server outlives the run"
    );
}

/// Killed at a quiet moment, a run has counted what is visible, and the next one begins at 0: none of its rows counts twice.
#[tokio::test(flavor = "multi_thread")]
async fn rows_committed_over_all_incarnations_are_the_visible_rows() {
    let world = World::new(40_000, "{}").await;
    let committed = sink_series("rows_committed_total");
    let mut counted = 0.0;
    for _ in 0..3 {
        let mut watched = Watched::start(&world, "800");
        watched.confirmed(2).await;
        counted += quiet(&world, &watched, &committed, counted).await;
        watched.child.kill().unwrap();
        watched.child.wait().unwrap();
        assert_eq!(counted, world.visible_ids().len() as f64);
    }
    summary(&finish(world.run(&[]).spawn().unwrap(), LIMIT).await);
    world.assert_whole().await;
}

/// Stops the process where what it has counted, beyond `before`, is all that a reader sees.
async fn quiet(world: &World, watched: &Watched, series: &str, before: f64) -> f64 {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < LIMIT, "no quiet moment");
        let own = watched.metrics().await[series];
        signal(&watched.child, "STOP");
        if own > 0.0 && world.visible_ids().len() as f64 == before + own {
            return own;
        }
        signal(&watched.child, "CONT");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_reads_nothing() {
    let world = World::new(ROWS, "{}").await;
    let mut watched = Watched::start(&world, "500");
    for path in ["/", "/metrics", "/status.json"] {
        let (head, body) = get(&watched.address, path, "evil.example").await;
        assert!(head.starts_with("HTTP/1.1 403 "), "{path}: {head}");
        assert_eq!(body, "A page of another site cannot read this.\n");
        let (head, _) = get(&watched.address, path, "127.0.0.1:1").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    }
    watched.child.kill().unwrap();
    watched.child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_ends_the_run_before_the_first_row() {
    let world = World::new(10, "{}").await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let child = world.run(&["--metrics", &address]).spawn().unwrap();
    let output = finish(child, LIMIT).await;
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let start = format!("error: --metrics {address}: cannot listen there: ");
    assert!(stderr.starts_with(&start), "{stderr}");
    assert!(
        stderr.ends_with("; name another port, or 0 for any that is free\n"),
        "{stderr}"
    );
    assert!(world.visible_ids().is_empty());
    assert!(!world.state().exists(), "the state was touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_are_json_objects_where_that_is_asked_for() {
    let world = World::new(10, "{}").await;
    let mut command = world.run(&["--log", "json"]);
    command.env("RUST_LOG", "info").stderr(Stdio::piped());
    let output = finish(command.spawn().unwrap(), LIMIT).await;
    assert_eq!(summary(&output)["rows_committed"], 10);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let created = lines
        .iter()
        .find(|line| line["fields"]["message"] == "created a write stream");
    let created = created.unwrap_or_else(|| panic!("{stderr}"));
    assert_eq!(created["level"], "INFO");
    assert_eq!(created["target"], "bigquery_sink::sink::driver");
    let stream = created["fields"]["stream"].as_str().unwrap();
    assert!(
        stream.starts_with("projects/p/datasets/d/tables/t/streams/"),
        "{stream}"
    );
    let refused = tool().args(["--log", "xml", "types"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}
