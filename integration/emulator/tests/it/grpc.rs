//! The same machine over real connections: order, fencing, lost answers, trailers, TLS, pipes.

use std::path::Path;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::Switches;
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_emulator::{Config, Emulator, Handle, StartError, TlsFiles};
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BigQueryWriteClient, CreateWriteStreamRequest, FlushRowsRequest,
    GetWriteStreamRequest, ROUTING_HEADER, RpcStatus, StorageError, WriteStream,
    append_rows_response::Response, storage_error::StorageErrorCode, write_stream::Type,
};
use bytes::BufMut;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::world::{TABLE, ints, request};

pub(crate) type Client = BigQueryWriteClient<Channel>;

fn table() -> TableRef {
    TableRef::new("p", "d", "t")
}

pub(crate) fn prepare(handle: &Handle) {
    handle.create_dataset(&DatasetRef::new("p", "d"), "").unwrap();
    let schema = Schema {
        columns: vec![Column::new("n", Kind::Int64, Mode::Nullable)],
    };
    handle.create_table(&table(), schema).unwrap();
}

async fn start(faults: &str) -> (Emulator, Client) {
    let faults = FaultPlan::parse(faults).unwrap();
    let emulator = Emulator::start(Config {
        faults,
        ..Config::default()
    })
    .await
    .unwrap();
    prepare(&emulator.handle());
    let client = connect(&emulator).await.unwrap();
    (emulator, client)
}

pub(crate) async fn connect(emulator: &Emulator) -> Result<Client, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{}", emulator.grpc_addr())).unwrap();
    endpoint.connect().await.map(Client::new)
}

pub(crate) async fn create(client: &mut Client) -> String {
    let write_stream = Some(WriteStream {
        r#type: Type::Buffered as i32,
        ..WriteStream::default()
    });
    let request = CreateWriteStreamRequest {
        parent: TABLE.to_owned(),
        write_stream,
    };
    client
        .create_write_stream(request)
        .await
        .unwrap()
        .into_inner()
        .name
}

pub(crate) async fn flush(client: &mut Client, stream: &str, offset: i64) -> Result<i64, Status> {
    let request = FlushRowsRequest {
        write_stream: stream.to_owned(),
        offset: Some(offset),
    };
    client
        .flush_rows(request)
        .await
        .map(|answer| answer.into_inner().offset)
}

/// An open call.
pub(crate) struct Call {
    pub(crate) requests: mpsc::Sender<AppendRowsRequest>,
    pub(crate) answers: Streaming<AppendRowsResponse>,
}

pub(crate) async fn open(client: &mut Client) -> Call {
    let (requests, sent) = mpsc::channel(100);
    let answers = client
        .append_rows(ReceiverStream::new(sent))
        .await
        .unwrap()
        .into_inner();
    Call { requests, answers }
}

impl Call {
    pub(crate) async fn send(&self, stream: &str, offset: i64, from: i64, rows: usize) {
        self.requests
            .send(request(stream, Some(offset), &ints(from, rows)))
            .await
            .unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Result<Option<i64>, Status> {
        match self.answers.message().await?.and_then(|answer| answer.response) {
            Some(Response::AppendResult(result)) => Ok(result.offset),
            Some(Response::Error(error)) => Err(Status::new(Code::from_i32(error.code), error.message)),
            None => Ok(None),
        }
    }
}

pub(crate) fn visible(handle: &Handle) -> Vec<i64> {
    handle
        .rows(&table())
        .unwrap()
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[tokio::test]
async fn pipelined_appends_are_answered_in_order_and_a_flush_shows_an_exact_prefix() {
    let (emulator, mut client) = start("{}").await;
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    for at in 0..50 {
        call.send(&stream, at * 3, at * 3, 3).await;
    }
    for at in 0..50 {
        assert_eq!(call.answer().await.unwrap(), Some(at * 3));
    }
    assert_eq!(visible(&emulator.handle()), Vec::<i64>::new());
    assert_eq!(flush(&mut client, &stream, 100).await.unwrap(), 100);
    assert_eq!(visible(&emulator.handle()), (0..101).collect::<Vec<_>>());
    drop(call.requests);
    assert_eq!(call.answers.message().await.unwrap(), None);
    let info = &emulator.handle().streams()[0];
    assert_eq!(
        (info.end, info.flushed, info.connected, info.finalized),
        (150, 101, false, false)
    );
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_newer_connection_ends_the_older_one() {
    let (emulator, mut client) = start("{}").await;
    let stream = create(&mut client).await;
    let mut old = open(&mut client).await;
    old.send(&stream, 0, 0, 1).await;
    assert_eq!(old.answer().await.unwrap(), Some(0));
    let mut other = connect(&emulator).await.unwrap();
    let mut new = open(&mut other).await;
    new.send(&stream, 1, 1, 1).await;
    assert_eq!(new.answer().await.unwrap(), Some(1));
    let ended = old.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::FailedPrecondition);
    assert!(
        ended.message().ends_with(&format!("Entity: {stream}")),
        "{}",
        ended.message()
    );
    new.send(&stream, 2, 2, 1).await;
    assert_eq!(new.answer().await.unwrap(), Some(2));
    emulator.shutdown().await;
}

#[tokio::test]
async fn lost_answers_were_applied_and_resends_are_told_so() {
    let plan = r#"{"rules": [
        {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "lose_answer"}},
        {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer", "code": "DEADLINE_EXCEEDED"}}
    ]}"#;
    let (emulator, mut client) = start(plan).await;
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
    }
    assert_eq!(call.answer().await.unwrap(), Some(0));
    assert_eq!(call.answer().await.unwrap_err().code(), Code::Unavailable);
    let mut call = open(&mut client).await;
    for at in 1..3 {
        call.send(&stream, at, at, 1).await;
    }
    let exists = call.answer().await.unwrap_err();
    assert_eq!(
        (exists.code(), exists.message()),
        (
            Code::AlreadyExists,
            "The offset is within stream, expected offset 2, received 1"
        )
    );
    assert_eq!(call.answer().await.unwrap(), Some(2));
    assert_eq!(
        flush(&mut client, &stream, 2).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    assert_eq!(visible(&emulator.handle()), [0, 1, 2]);
    assert_eq!(flush(&mut client, &stream, 2).await.unwrap(), 2);
    assert_eq!(visible(&emulator.handle()), [0, 1, 2]);
    let counts: Vec<_> = emulator
        .handle()
        .faults()
        .iter()
        .map(|rule| (rule.fired, rule.seen))
        .collect();
    assert_eq!(counts, [(1, 4), (1, 2)]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_refused_call_carries_the_storage_error_in_both_trailers() {
    let (emulator, mut client) = start("{}").await;
    let name = format!("{TABLE}/streams/gone");
    let refused = client
        .get_write_stream(GetWriteStreamRequest {
            name: name.clone(),
            view: 0,
        })
        .await
        .unwrap_err();
    let expected = StorageError {
        code: StorageErrorCode::StreamNotFound as i32,
        entity: name.clone(),
        error_message: format!("Requested entity was not found. Entity: {name}"),
    };
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, expected.error_message.as_str())
    );
    let details = RpcStatus::decode(refused.details()).unwrap();
    assert_eq!((details.code, &details.message), (5, &expected.error_message));
    assert_eq!(
        StorageError::decode(details.details[0].value.as_slice()).unwrap(),
        expected
    );
    let trailer = refused
        .metadata()
        .get_bin("google.cloud.bigquery.storage.v1.storageerror-bin")
        .unwrap();
    assert_eq!(
        StorageError::decode(trailer.to_bytes().unwrap()).unwrap(),
        expected
    );

    let mut call = open(&mut client).await;
    call.send(&name, 0, 0, 1).await;
    let ended = call.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::NotFound);
    let trailer = ended
        .metadata()
        .get_bin("google.cloud.bigquery.storage.v1.storageerror-bin")
        .unwrap();
    assert_eq!(
        StorageError::decode(trailer.to_bytes().unwrap()).unwrap(),
        expected
    );
    emulator.shutdown().await;
}

#[tokio::test]
async fn an_idle_call_is_aborted_when_the_clock_is_put_forward() {
    let (emulator, mut client) = start("{}").await;
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    emulator.handle().advance(600_000);
    let ended = call.answer().await.unwrap_err();
    assert_eq!(
        (ended.code(), ended.message().to_owned()),
        (
            Code::Aborted,
            format!("Closing the stream because it has been inactive for 600 seconds. Entity: {stream}")
        )
    );
    assert_eq!(emulator.handle().connections(), 0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_open_calls_as_a_restarting_server_does() {
    let (emulator, mut client) = start("{}").await;
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let (ended, ()) = tokio::join!(call.answer(), emulator.shutdown());
    let ended = ended.unwrap_err();
    assert_eq!(ended.code(), Code::Aborted);
    assert!(
        ended
            .message()
            .starts_with("Closing the stream because server is restarted."),
        "{}",
        ended.message()
    );
}

#[tokio::test]
async fn a_request_of_nearly_twenty_megabytes_goes_through_and_a_larger_one_gets_googles_text() {
    let (emulator, mut client) = start("{}").await;
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 2_400_000).await;
    call.send(&stream, 2_400_000, 0, 2_700_000).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let ended = call.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::InvalidArgument);
    assert_eq!(
        ended.message(),
        "AppendRows request too large: 21937980 limit 20971520"
    );
    emulator.shutdown().await;
}

#[tokio::test]
async fn tls_and_tokens_are_asked_for_and_what_came_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    let ca = Certificate::from_pem(std::fs::read(&files.cert).unwrap());
    let switches = Switches {
        require_token: Some(vec!["secret".to_owned()]),
        ..Switches::default()
    };
    let config = Config {
        tls: Some(files),
        switches,
        ..Config::default()
    };
    let emulator = Emulator::start(config).await.unwrap();
    prepare(&emulator.handle());
    let endpoint =
        Endpoint::from_shared(format!("https://localhost:{}", emulator.grpc_addr().port())).unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(ca);
    let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
    let mut client = Client::new(channel);
    let ask = || GetWriteStreamRequest {
        name: format!("{TABLE}/_default"),
        view: 0,
    };
    assert_eq!(
        client.get_write_stream(ask()).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let mut request = Request::new(ask());
    request
        .metadata_mut()
        .insert("authorization", "Bearer secret".parse().unwrap());
    request
        .metadata_mut()
        .insert(ROUTING_HEADER, "name=x".parse().unwrap());
    client.get_write_stream(request).await.unwrap();
    let calls = emulator.handle().calls();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.authorization.as_deref(), call.routing.as_deref()))
        .collect();
    assert_eq!(seen, [(None, None), (Some("Bearer secret"), Some("name=x"))]);

    let plain = connect(&emulator).await;
    let refused = match plain {
        Ok(mut plain) => plain.get_write_stream(ask()).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "plaintext was answered on a TLS port");
    emulator.shutdown().await;
}

fn certificate(folder: &Path) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        cert: folder.join("cert.pem"),
        key: folder.join("key.pem"),
    };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    files
}

#[tokio::test]
async fn what_prevents_a_start_is_named() {
    let emulator = Emulator::start(Config::default()).await.unwrap();
    let taken = emulator.grpc_addr();
    let refused = Emulator::start(Config {
        grpc: taken,
        ..Config::default()
    })
    .await
    .unwrap_err();
    assert!(
        matches!(&refused, StartError::Bind { what: "gRPC", addr, .. } if *addr == taken),
        "{refused}"
    );
    let files = TlsFiles {
        cert: "no-such-cert.pem".into(),
        key: "no-such-key.pem".into(),
    };
    let refused = Emulator::start(Config {
        tls: Some(files),
        ..Config::default()
    })
    .await
    .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("cannot read \"no-such-cert.pem\": "),
        "{refused}"
    );
    emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_runs_over_a_pipe_under_simulated_time_and_holds_answers_back() {
    let faults = r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "delay", "ms": 60000}},
                              {"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "delay", "ms": 500}}]}"#;
    let begin = tokio::time::Instant::now();
    let clock = std::sync::Arc::new(move || begin.elapsed().as_millis() as i64);
    let config = Config {
        faults: FaultPlan::parse(faults).unwrap(),
        clock: Some(clock),
        seed: Some(1),
        ..Config::default()
    };
    let handle = Handle::new(&config).unwrap();
    prepare(&handle);
    let (near, far) = tokio::io::duplex(1 << 20);
    let server = handle.clone();
    // The end of the connections to come would be a shutdown.
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far)).chain(tokio_stream::pending());
    tokio::spawn(async move { server.serve(incoming, std::future::pending()).await });
    let mut near = Some(hyper_util::rt::TokioIo::new(near));
    let connector = tower::service_fn(move |_| {
        let near = near.take();
        async move { near.ok_or_else(|| std::io::Error::other("one connection only")) }
    });
    let channel = Endpoint::from_static("http://pipe")
        .connect_with_connector(connector)
        .await
        .unwrap();
    let mut client = Client::new(channel);
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 2).await;
    call.send(&stream, 2, 2, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    assert_eq!(begin.elapsed(), Duration::from_millis(500));
    assert_eq!(call.answer().await.unwrap(), Some(2));
    assert_eq!(begin.elapsed(), Duration::from_millis(500));
    let mut flusher = client.clone();
    let flushed = {
        let stream = stream.clone();
        tokio::spawn(async move { flush(&mut flusher, &stream, 1).await })
    };
    tokio::time::sleep(Duration::from_millis(10)).await;
    // Applied at once, answered a minute later.
    assert_eq!(visible(&handle), [0, 1]);
    assert!(!flushed.is_finished());
    assert_eq!(flushed.await.unwrap().unwrap(), 1);
    assert_eq!(begin.elapsed().as_secs(), 60);
    // Left alone, the call ends after its ten idle minutes.
    let ended = call.answer().await.unwrap_err();
    assert_eq!((ended.code(), begin.elapsed().as_secs()), (Code::Aborted, 600));
}

/// Sends bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_ends_the_call_with_the_reason() {
    let (emulator, _) = start("{}").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", emulator.grpc_addr())).unwrap();
    let mut raw = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    let mut said = Vec::new();
    // A field of a wire type that there is not; more than any message may have.
    for bytes in [vec![0x0f], vec![0; (64 << 20) + 1]] {
        raw.ready().await.unwrap();
        let path = "/google.cloud.bigquery.storage.v1.BigQueryWrite/AppendRows"
            .parse()
            .unwrap();
        let sent = Request::new(tokio_stream::iter([bytes]).chain(tokio_stream::pending()));
        let ended = match raw.streaming(sent, path, Raw).await {
            Ok(answers) => answers.into_inner().message().await.unwrap_err(),
            Err(ended) => ended,
        };
        said.push((ended.code(), ended.message().to_owned()));
    }
    let text = "The request cannot be read as an AppendRowsRequest: ";
    assert_eq!(said[0].0, Code::InvalidArgument);
    assert!(
        said[0].1.starts_with(text) && said[0].1.len() > text.len(),
        "{}",
        said[0].1
    );
    assert_eq!(
        said[1],
        (
            Code::InvalidArgument,
            "AppendRows request too large: more than 67108864 limit 20971520".to_owned()
        )
    );
    assert_eq!(emulator.handle().connections(), 0);
    emulator.shutdown().await;
}
