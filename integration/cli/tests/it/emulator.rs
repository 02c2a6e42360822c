//! `emulator`: what it keeps through kill -9, and what its options do.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BigQueryWriteClient,
    CreateWriteStreamRequest, FinalizeWriteStreamRequest, FlushRowsRequest, WriteStream,
    append_rows_request::{ArrowData, Rows},
    append_rows_response::Response,
    write_stream::Type,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::support::tool;

const TABLE: &str = "projects/p/datasets/d/tables/t";
/// Rows of a request.
const BATCH: i64 = 10;
/// Requests on their way at a time.
const IN_FLIGHT: i64 = 16;

/// An emulator as a process.
struct Process {
    child: Child,
    grpc: String,
    http: String,
    third_line: String,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = emulator(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = |start: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(start).unwrap().to_owned()
        };
        let (grpc, http) = (line("Storage Write API  "), line("REST API           "));
        Self {
            child,
            grpc,
            http,
            third_line: line(""),
        }
    }

    fn on(directory: &Path) -> Self {
        let directory = directory.to_str().unwrap();
        Self::start(&["--data-dir", directory, "--project", "p", "--dataset", "d"])
    }

    async fn client(&self) -> BigQueryWriteClient<Channel> {
        let endpoint = Endpoint::from_shared(self.grpc.clone()).unwrap();
        BigQueryWriteClient::new(endpoint.connect().await.unwrap())
    }

    /// What `query` prints.
    fn query(&self, sql: &str) -> String {
        let mut command = tool();
        let output = command
            .args(["query", "--http", &self.http, "--project", "p", "--csv", sql])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{sql}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Numbers that a reader of the table sees.
    fn visible(&self) -> Vec<i64> {
        let printed = self.query("SELECT n FROM `p.d.t`");
        printed
            .lines()
            .skip(1)
            .map(|line| line.parse().unwrap())
            .collect()
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), None);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended by itself, or was killed, if all went well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn emulator(arguments: &[&str]) -> Command {
    let mut command = tool();
    command
        .args(["emulator", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(arguments);
    command
}

/// An open AppendRows call.
struct Call {
    requests: mpsc::Sender<AppendRowsRequest>,
    answers: Streaming<AppendRowsResponse>,
}

impl Call {
    async fn open(client: &mut BigQueryWriteClient<Channel>) -> Self {
        let (requests, sent) = mpsc::channel(IN_FLIGHT as usize);
        let answers = client.append_rows(ReceiverStream::new(sent)).await.unwrap();
        let answers = answers.into_inner();
        Self { requests, answers }
    }

    /// Where rows were taken; or where they are expected, if not here.
    async fn answer(&mut self) -> Result<i64, i64> {
        let answer = self.answers.message().await.unwrap().unwrap();
        match answer.response.unwrap() {
            Response::AppendResult(result) => Ok(result.offset.unwrap()),
            Response::Error(error) => {
                let expected = error.message.split("expected offset ").nth(1);
                let digits = expected.and_then(|text| text.split(',').next());
                Err(digits
                    .unwrap_or_else(|| panic!("{}", error.message))
                    .parse()
                    .unwrap())
            }
        }
    }
}

/// Rows whose numbers are their offsets.
fn rows(stream: &str, offset: i64) -> AppendRowsRequest {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(offset..offset + BATCH));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let schema = writer.get_ref().clone();
    writer.write(&batch).unwrap();
    let batch = writer.get_ref()[schema.len()..].to_vec();
    AppendRowsRequest {
        write_stream: stream.to_owned(),
        offset: Some(offset),
        rows: Some(Rows::ArrowRows(ArrowData {
            writer_schema: Some(ArrowSchema {
                serialized_schema: schema.into(),
            }),
            rows: Some(ArrowRecordBatch {
                serialized_record_batch: batch.into(),
                ..ArrowRecordBatch::default()
            }),
        })),
        ..AppendRowsRequest::default()
    }
}

async fn flush(client: &mut BigQueryWriteClient<Channel>, stream: &str, offset: i64) -> i64 {
    let request = FlushRowsRequest {
        write_stream: stream.to_owned(),
        offset: Some(offset),
    };
    client.flush_rows(request).await.unwrap().into_inner().offset
}

/// Appends from `end` on, many at a time, until so many requests were answered; then kills the emulator with the others
/// on their way. Returns the end of what was answered.
async fn append_until_killed(process: Process, stream: &str, end: i64, answered: i64) -> i64 {
    let mut client = process.client().await;
    let mut call = Call::open(&mut client).await;
    for request in 0..IN_FLIGHT {
        call.requests
            .send(rows(stream, end + request * BATCH))
            .await
            .unwrap();
    }
    for request in 0..answered {
        assert_eq!(call.answer().await, Ok(end + request * BATCH));
        let next = rows(stream, end + (IN_FLIGHT + request) * BATCH);
        call.requests.send(next).await.unwrap();
    }
    process.kill();
    end + answered * BATCH
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_append_survives_kill_9_and_offsets_go_on_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("data");
    let process = Process::on(&directory);
    assert!(
        process.third_line.ends_with(&format!(
            "Ctrl-C stops; {} keeps everything.",
            directory.display()
        )),
        "{}",
        process.third_line
    );
    process.query("CREATE TABLE `p.d.t` (n INT64)");
    let mut client = process.client().await;
    let request = CreateWriteStreamRequest {
        parent: TABLE.to_owned(),
        write_stream: Some(WriteStream {
            r#type: Type::Buffered as i32,
            ..WriteStream::default()
        }),
    };
    let stream = client
        .create_write_stream(request)
        .await
        .unwrap()
        .into_inner()
        .name;
    let (mut process, mut end, mut flushed) = (process, 0, 0);
    for answered in [1, 40, 3, 25] {
        let acknowledged = append_until_killed(process, &stream, end, answered).await;
        process = Process::on(&directory);
        assert_eq!(process.visible(), (0..flushed).collect::<Vec<_>>());
        let mut client = process.client().await;
        let mut call = Call::open(&mut client).await;
        // What was on its way is there or not, request by request; what was answered is there.
        call.requests.send(rows(&stream, 1 << 40)).await.unwrap();
        end = call.answer().await.unwrap_err();
        assert!(
            (acknowledged..=acknowledged + IN_FLIGHT * BATCH).contains(&end),
            "{acknowledged} {end}"
        );
        assert_eq!(end % BATCH, 0);
        call.requests.send(rows(&stream, end)).await.unwrap();
        assert_eq!(call.answer().await, Ok(end));
        end += BATCH;
        flushed = end - 3;
        assert_eq!(flush(&mut client, &stream, flushed - 1).await, flushed - 1);
        assert_eq!(process.visible(), (0..flushed).collect::<Vec<_>>());
    }
    let mut client = process.client().await;
    assert_eq!(flush(&mut client, &stream, end - 1).await, end - 1);
    assert_eq!(process.visible(), (0..end).collect::<Vec<_>>());
    let request = FinalizeWriteStreamRequest { name: stream };
    let finalized = client.finalize_write_stream(request).await.unwrap();
    assert_eq!(finalized.into_inner().row_count, end);
    // The dataset that was asked for each time was made once.
    let datasets = process.query("SELECT schema_name FROM `p`.INFORMATION_SCHEMA.SCHEMATA");
    assert_eq!(datasets, "schema_name\nd\n");
}

/// Exit code and stderr of an emulator that does not start.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = emulator(arguments).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn options_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let error = |code, text: String| (Some(code), format!("error: {text}\n"));
    let data = path("data");
    let process = Process::start(&[
        "--data-dir",
        &data,
        "--project",
        "p",
        "--dataset",
        "d:EU",
        "--dataset",
        "d",
    ]);
    assert_eq!(
        refused(&["--data-dir", &data]),
        error(
            1,
            format!(
                "{data} is in use by another emulator: stop that one, or give this one a directory of its own"
            )
        )
    );
    process.kill();
    assert_eq!(
        refused(&["--data-dir", &data, "--project", "p", "--dataset", "d:US"]),
        error(
            2,
            "dataset p:d is there already, in EU: a dataset cannot move to US".to_owned()
        )
    );
    assert_eq!(
        refused(&["--data-dir", &path("other"), "--discard"]),
        error(
            2,
            "--discard with --data-dir: rows cannot be discarded and kept in a data directory: give only one of the two"
                .to_owned()
        )
    );
    assert!(!folder.path().join("other").exists());
    let switches = path("switches.json");
    assert_eq!(
        refused(&["--switches", &switches]),
        error(
            2,
            format!("{switches}: the switches cannot be read: No such file or directory (os error 2)")
        )
    );
    std::fs::write(&switches, r#"{"idle_close_ms": "soon"}"#).unwrap();
    assert_eq!(
        refused(&["--switches", &switches]),
        error(
            2,
            format!(
                "{switches}: cannot read the switches: invalid type: string \"soon\", expected i64 at line 1 column 24"
            )
        )
    );
    std::fs::write(&switches, r#"{"idle_close": 1}"#).unwrap();
    let (code, text) = refused(&["--switches", &switches]);
    assert_eq!(code, Some(2));
    let start =
        format!("error: {switches}: cannot read the switches: unknown field `idle_close`, expected one of ");
    assert!(text.starts_with(&start), "{text}");
    let (code, text) = refused(&["--dataset", "d:"]);
    assert_eq!(code, Some(2));
    assert!(
        text.starts_with(
            "error: invalid value 'd:' for '--dataset <NAME[:LOCATION]>': the location is missing"
        ),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_and_latency_take_effect() {
    let folder = tempfile::tempdir().unwrap();
    let switches = folder.path().join("switches.json");
    std::fs::write(&switches, r#"{"missing_table": "permission_denied"}"#).unwrap();
    let process = Process::start(&["--switches", switches.to_str().unwrap(), "--latency", "150ms"]);
    let mut client = process.client().await;
    let started = Instant::now();
    let request = CreateWriteStreamRequest {
        parent: TABLE.to_owned(),
        write_stream: None,
    };
    let status = client.create_write_stream(request).await.unwrap_err();
    assert!(
        started.elapsed() >= Duration::from_millis(150),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        status.message(),
        format!("Permission 'TABLES_UPDATE_DATA' denied on resource '{TABLE}' (or it may not exist).")
    );
}
