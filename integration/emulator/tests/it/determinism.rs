//! The same seed, clock and calls give the same bytes, in two emulators and in two processes; and an emulator that is
//! gone leaves nothing behind. All of it over pipes: there is no socket here.

use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Handle};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::grpc::{Client, create, flush, open, prepare, visible};

/// Says to a process of these tests into which file to write its transcript.
const CHILD: &str = "EMULATOR_TRANSCRIPT";

/// Everything that went over pipes, both ways, in the order in which it did.
type Transcript = Arc<Mutex<Vec<u8>>>;

/// An emulator that is reached over pipes alone.
struct Emulated {
    handle: Handle,
    transcript: Transcript,
    grpc: mpsc::Sender<std::io::Result<Recorded>>,
    rest: mpsc::Sender<std::io::Result<Recorded>>,
    servers: [JoinHandle<()>; 2],
}

impl Emulated {
    fn new(seed: u128, faults: &str) -> Self {
        let begin = Instant::now();
        let config = Config {
            clock: Some(Arc::new(move || {
                1_700_000_000_000 + begin.elapsed().as_millis() as i64
            })),
            faults: FaultPlan::parse(faults).unwrap(),
            seed: Some(seed),
            ..Config::default()
        };
        let handle = Handle::new(&config).unwrap();
        prepare(&handle);
        let ((grpc, grpc_pipes), (rest, rest_pipes)) = (mpsc::channel(8), mpsc::channel(8));
        let (first, second) = (handle.clone(), handle.clone());
        let servers = [
            tokio::spawn(async move {
                let pipes = ReceiverStream::new(grpc_pipes);
                first.serve(pipes, std::future::pending()).await;
            }),
            tokio::spawn(async move {
                let pipes = ReceiverStream::new(rest_pipes);
                second.serve_rest(pipes, std::future::pending()).await;
            }),
        ];
        Self {
            handle,
            transcript: Transcript::default(),
            grpc,
            rest,
            servers,
        }
    }

    fn client(&self) -> Client {
        let (accept, transcript) = (self.grpc.clone(), Arc::clone(&self.transcript));
        let connector = tower::service_fn(move |_| {
            let (accept, transcript) = (accept.clone(), Arc::clone(&transcript));
            async move {
                let (ours, theirs) = recorded(transcript);
                accept.send(Ok(theirs)).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(ours))
            }
        });
        let channel: Channel = Endpoint::from_static("http://pipe").connect_with_connector_lazy(connector);
        Client::new(channel)
    }

    /// A connection of its own for one request, which is sent.
    async fn ask(&self, method: &str, path: &str, body: &str) -> DuplexStream {
        let (mut ours, theirs) = recorded(Arc::clone(&self.transcript));
        self.rest.send(Ok(theirs)).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} /bigquery/v2/projects/p/{path} HTTP/1.1\r\nhost: pipe\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        ours.write_all(request.as_bytes()).await.unwrap();
        ours
    }

    async fn rest(&self, method: &str, path: &str, body: &str) -> String {
        let mut answer = String::new();
        let mut asked = self.ask(method, path, body).await;
        asked.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        answer
    }
}

fn recorded(transcript: Transcript) -> (DuplexStream, Recorded) {
    let (ours, pipe) = duplex(1 << 20);
    (ours, Recorded { pipe, transcript })
}

/// The emulator's end of a pipe.
struct Recorded {
    pipe: DuplexStream,
    transcript: Transcript,
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.pipe).poll_read(context, buffer);
        self.transcript
            .lock()
            .unwrap()
            .extend_from_slice(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.pipe).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            let mut transcript = self.transcript.lock().unwrap();
            transcript.extend_from_slice(&bytes[..written]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// Calls of every kind: streams, answers that are held back and lost, rows that draw and that name several unknown
/// fields, jobs without an id, queries of the time and of chance.
async fn run(seed: u128) -> Vec<u8> {
    let faults = r#"{"rules": [
        {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "delay", "ms": 700}},
        {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer"}}
    ]}"#;
    let emulated = Emulated::new(seed, faults);
    let mut client = emulated.client();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let stream = create(&mut client).await;
        let call = open(&mut client).await;
        for at in 0..4 {
            call.send(&stream, at * 10, at * 10, 10).await;
        }
        calls.push((stream, call));
    }
    for (stream, call) in &mut calls {
        for at in 0..4 {
            assert_eq!(call.answer().await.unwrap(), Some(at * 10));
        }
        call.send(stream, 0, 0, 10).await;
        call.answer().await.unwrap_err();
        // The first answer is lost.
        drop(flush(&mut client, stream, 15).await);
        drop(flush(&mut client, stream, 39).await);
    }
    assert_eq!(visible(&emulated.handle).len(), 3 * 40);
    let query = |sql: &str| serde_json::json!({ "query": sql, "useLegacySql": false }).to_string();
    for sql in [
        "CREATE TABLE d.u (id STRING DEFAULT GENERATE_UUID(), r FLOAT64 DEFAULT RAND(), n INT64, at TIMESTAMP DEFAULT \
         CURRENT_TIMESTAMP())",
        "INSERT INTO d.u (n) SELECT n FROM d.t",
        "SELECT *, GENERATE_UUID() AS drawn, RAND() AS chance, CURRENT_TIMESTAMP() AS now FROM d.u",
        "SELECT MOD(n, 7) AS k, COUNT(*) AS c, MIN(id) AS least FROM d.u GROUP BY k",
    ] {
        let answer = emulated.rest("POST", "queries", &query(sql)).await;
        assert!(answer.contains("\"jobComplete\":true"), "{sql}: {answer}");
    }
    let rows = r#"{"rows": [{"json": {"n": 1}}, {"json": {"z": 1, "y": 2, "x": 3, "w": 4}}, {"json": {"n": 2}}], "skipInvalidRows": true}"#;
    emulated.rest("POST", "datasets/d/tables/u/insertAll", rows).await;
    for path in ["jobs", "datasets/d/tables/u/data", "datasets/d/tables"] {
        emulated.rest("GET", path, "").await;
    }
    drop(client);
    drop(calls);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let transcript = emulated.transcript.lock().unwrap().clone();
    assert!(transcript.len() > 20_000, "{}", transcript.len());
    transcript
}

/// In a thread and a runtime of its own, under simulated time.
fn transcript(seed: u128) -> Vec<u8> {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    };
    let thread = std::thread::spawn(move || runtime().block_on(run(seed)));
    thread.join().unwrap()
}

/// Where two transcripts first differ: what is around it in both.
fn difference(one: &[u8], other: &[u8]) -> Option<[String; 2]> {
    let length = one.len().max(other.len());
    let at = (0..length).find(|at| one.get(*at) != other.get(*at))?;
    Some([one, other].map(|bytes| {
        let around = &bytes[at.saturating_sub(100).min(bytes.len())..bytes.len().min(at + 100)];
        String::from_utf8_lossy(around).into_owned()
    }))
}

#[test]
fn one_seed_and_one_list_of_calls_give_the_same_bytes_in_every_emulator_and_process() {
    let first = transcript(7);
    if let Some(file) = std::env::var_os(CHILD) {
        std::fs::write(file, first).unwrap();
        return;
    }
    let other_seed = std::thread::spawn(|| transcript(8));
    assert_eq!(difference(&first, &transcript(7)), None);
    assert_ne!(difference(&first, &other_seed.join().unwrap()), None);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("transcript");
    let name =
        "determinism::one_seed_and_one_list_of_calls_give_the_same_bytes_in_every_emulator_and_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(CHILD, &file)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert_eq!(difference(&first, &std::fs::read(&file).unwrap()), None);
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// What is aborted ends when its turn comes. A query holds simulated time, so that this takes real one.
async fn nothing_is_left() {
    let begin = std::time::Instant::now();
    while alive() > 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{} tasks are left",
            alive()
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_emulator_that_is_gone_leaves_no_task_behind() {
    let year = r#"{"rules": [
        {"rpc": "FlushRows", "action": {"kind": "stall"}},
        {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "stall"}},
        {"rpc": "GetWriteStream", "action": {"kind": "apply_late", "ms": 100000000}}
    ]}"#;
    let emulated = Emulated::new(1, year);
    let mut client = emulated.client();
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
    }
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let mut waiting = client.clone();
    let stalled = tokio::spawn(async move { drop(flush(&mut waiting, &stream, 1).await) });
    // A connection that stays open, one with half a request, and a job that would take long.
    let (idle, theirs) = recorded(Arc::clone(&emulated.transcript));
    emulated.rest.send(Ok(theirs)).await.unwrap();
    let (mut half, theirs) = recorded(Arc::clone(&emulated.transcript));
    emulated.rest.send(Ok(theirs)).await.unwrap();
    half.write_all(
        b"POST /bigquery/v2/projects/p/queries HTTP/1.1\r\nhost: pipe\r\ncontent-length: 100\r\n\r\n{",
    )
    .await
    .unwrap();
    let slow =
        "SELECT COUNT(*) FROM UNNEST(GENERATE_ARRAY(1, 200000)) a, UNNEST(GENERATE_ARRAY(1, 200000)) b";
    let body = serde_json::json!({ "query": slow, "timeoutMs": 0, "useLegacySql": false }).to_string();
    let mut answer = String::new();
    let mut asked = emulated.ask("POST", "queries", &body).await;
    asked.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"jobComplete\":false"), "{answer}");
    assert!(alive() > 5, "{}", alive());

    let Emulated { handle, servers, .. } = emulated;
    servers.iter().for_each(JoinHandle::abort);
    drop((handle, call, client, idle, half));
    stalled.await.unwrap();
    nothing_is_left().await;
}

#[tokio::test]
async fn an_emulator_that_is_stopped_leaves_no_task_behind() {
    for is_waited_for in [true, false] {
        let emulator = bigquery_write_emulator::Emulator::start(Config::default())
            .await
            .unwrap();
        let handle = emulator.handle();
        prepare(&handle);
        let mut client = crate::grpc::connect(&emulator).await.unwrap();
        let stream = create(&mut client).await;
        let mut call = open(&mut client).await;
        call.send(&stream, 0, 0, 1).await;
        assert_eq!(call.answer().await.unwrap(), Some(0));
        let mut kept = tokio::net::TcpStream::connect(emulator.http_addr())
            .await
            .unwrap();
        kept.write_all(b"GET /emulator/clock HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 15];
        kept.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        if is_waited_for {
            emulator.shutdown().await;
        } else {
            drop(emulator);
        }
        drop((call, client));
        nothing_is_left().await;
        // The handle lives on.
        assert_eq!(handle.streams().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_simulation_reads_rows_and_what_became_visible_without_a_thread_or_a_wait() {
    let emulated = Emulated::new(1, "{}");
    let (handle, table) = (&emulated.handle, TableRef::new("p", "d", "t"));
    let mut client = emulated.client();
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observer = Arc::clone(&seen);
    handle.observe(move |change| observer.lock().unwrap().push((change.from, change.to)));
    for at in 0..3 {
        call.send(&stream, at * 2, at * 2, 2).await;
        call.answer().await.unwrap();
    }
    for to in [2, 4] {
        flush(&mut client, &stream, to).await.unwrap();
    }
    let after = |from| -> Vec<i64> {
        let batches = handle.rows_after(&table, from).unwrap();
        let columns = batches.iter().map(|batch| batch.column(0).to_data());
        columns
            .flat_map(|column| arrow_array::Int64Array::from(column).values().to_vec())
            .collect()
    };
    assert_eq!(
        [0, 1, 3, 5, 9].map(after),
        [&[0, 1, 2, 3, 4][..], &[1, 2, 3, 4], &[3, 4], &[], &[]]
    );
    assert_eq!(*seen.lock().unwrap(), [(0, 3), (3, 5)]);
    let log = |from| -> Vec<(u64, u64)> {
        let changes = handle.visible_after(from).into_iter();
        changes.map(|change| (change.from, change.to)).collect()
    };
    assert_eq!(
        [log(0), log(1), log(2), log(3)],
        [&[(0, 3), (3, 5)][..], &[(3, 5)], &[], &[]]
    );
    assert!(handle.rows_after(&TableRef::new("p", "d", "nope"), 0).is_err());
}
