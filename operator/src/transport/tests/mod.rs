//! The transport against a server that keeps what it is sent and answers from a script.

mod against_emulator;
mod script;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use bigquery_write_proto::rows::EncodedRows;
use bigquery_write_proto::wire::append_rows_request::{ArrowData, Rows};
use bigquery_write_proto::wire::append_rows_response::{self, AppendResult};
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BigQueryWriteServer, RowError,
    RpcStatus, StorageError, row_error, storage_error,
};
use bytes::Bytes;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use super::*;
use crate::credentials::CredentialError;
use crate::options::{Credentials, SinkOptions};
use crate::testing::{Certificates, TokenServer};
use script::{Pipes, Reply, Script, Scripted, pipes, schema, tls};

const TABLE: &str = "projects/shop/datasets/sales/tables/orders";
const STREAM: &str = "projects/shop/datasets/sales/tables/orders/streams/Cis1";

fn endpoints(grpc: &Endpoint, ca: Option<&Certificates>) -> Endpoints {
    Endpoints {
        grpc: grpc.clone(),
        http: grpc.clone(),
        ca: ca.map(|certificates| certificates.ca.path().to_owned()),
    }
}

fn table() -> TableName {
    TABLE.parse().unwrap()
}

fn stream() -> StreamName {
    STREAM.parse().unwrap()
}

/// Must not be asked.
#[derive(Debug)]
struct NoTokens;

#[async_trait::async_trait]
impl TokenSource for NoTokens {
    async fn token(&self) -> Result<Token, CredentialError> {
        panic!("a credential was looked up for a plaintext endpoint");
    }

    fn refused(&self, _: &Token) {}
}

#[tokio::test]
async fn every_call_carries_the_routing_header_its_method_asks_for() {
    let script = Arc::new(Script::default());
    let Pipes { transport, .. } = pipes(&script, None, Some("billing"));
    let created = transport.create_stream(&table()).await.unwrap();
    assert_eq!(
        created,
        CreatedStream {
            name: stream(),
            schema: Some(schema())
        }
    );
    assert_eq!(transport.table_schema(&table()).await.unwrap(), schema());
    assert_eq!(transport.flush_rows(&stream(), 41).await.unwrap(), 41);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert!(matches!(append.next_event().await, AppendEvent::Ended(Ok(()))));

    let some = |text: String| Some(text);
    assert_eq!(
        script.header("x-goog-request-params"),
        [
            ("create", some(format!("parent={TABLE}"))),
            ("get", some(format!("name={TABLE}/streams/_default"))),
            ("flush", some(format!("write_stream={STREAM}"))),
            ("append", some(format!("write_stream={STREAM}"))),
        ]
    );
    for (method, project) in script.header("x-goog-user-project") {
        assert_eq!(project.as_deref(), Some("billing"), "{method}");
    }
    for (method, agent) in script.header("user-agent") {
        let agent = agent.unwrap();
        assert!(
            agent.starts_with(concat!("arroyo-bigquery/", env!("CARGO_PKG_VERSION"))),
            "{method}: {agent}"
        );
    }
}

#[tokio::test]
async fn a_name_no_header_can_carry_is_percent_encoded() {
    let script = Arc::new(Script::default());
    let Pipes { transport, .. } = pipes(&script, None, None);
    let table: TableName = "projects/ex.com:shop/datasets/d_1/tables/tägliche zahlen$20240131"
        .parse()
        .unwrap();
    transport.create_stream(&table).await.unwrap();
    let expected = "parent=projects/ex.com:shop/datasets/d_1/tables/t%C3%A4gliche%20zahlen$20240131";
    assert_eq!(
        script.header("x-goog-request-params"),
        [("create", Some(expected.to_owned()))]
    );
}

#[tokio::test]
async fn a_plaintext_endpoint_is_sent_no_credential_and_none_is_looked_up() {
    let script = Arc::new(Script::default());
    let Pipes { transport, .. } = pipes(&script, Some(Arc::new(NoTokens)), None);
    transport.flush_rows(&stream(), 0).await.unwrap();
    assert_eq!(script.header("authorization"), [("flush", None)]);
}

#[tokio::test]
async fn the_first_request_opens_the_stream_and_the_others_carry_rows_only() {
    let mismatch = StorageError {
        code: storage_error::StorageErrorCode::OffsetOutOfRange.into(),
        entity: STREAM.to_owned(),
        error_message: "The offset is beyond stream, expected offset 3, received 9".to_owned(),
    };
    let detail = prost_types::Any {
        type_url: "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError".to_owned(),
        value: mismatch.encode_to_vec(),
    };
    let row_error = RowError {
        index: 4,
        code: row_error::RowErrorCode::FieldsError.into(),
        message: "too long".to_owned(),
    };
    let replies = [
        answered(0),
        AppendRowsResponse {
            updated_schema: Some(schema()),
            ..answered(1)
        },
        refused(Code::OutOfRange, "beyond", vec![detail]),
        AppendRowsResponse {
            row_errors: vec![row_error.clone()],
            ..refused(Code::InvalidArgument, "bad rows", vec![])
        },
    ];
    let script = Arc::new(Script {
        replies: Mutex::new(replies.map(Reply::Answer).into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 4);
    for offset in 0..4 {
        append.send(request(offset, b"rows")).await.unwrap();
    }
    assert_eq!(
        answer(&mut append).await,
        AppendAnswer {
            result: Ok(Some(0)),
            updated_schema: None
        }
    );
    assert_eq!(
        answer(&mut append).await,
        AppendAnswer {
            result: Ok(Some(1)),
            updated_schema: Some(schema())
        }
    );
    let refusal = answer(&mut append).await.result.unwrap_err();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (Code::OutOfRange, "beyond")
    );
    assert_eq!(refusal.storage_error, Some(mismatch));
    assert_eq!(
        refusal
            .offsets()
            .map(|offsets| (offsets.expected, offsets.received)),
        Some((3, 9))
    );
    let refusal = answer(&mut append).await.result.unwrap_err();
    assert_eq!(
        (refusal.code, refusal.row_errors),
        (Code::InvalidArgument, vec![row_error])
    );

    // Half-closed: what was sent is answered, then the call ends cleanly, and stays so.
    let AppendConnection { sender, mut receiver } = append;
    drop(sender);
    for _ in 0..2 {
        assert!(matches!(receiver.next_event().await, AppendEvent::Ended(Ok(()))));
    }

    let wire = |offset: i64, first: bool| AppendRowsRequest {
        write_stream: if first { STREAM.to_owned() } else { String::new() },
        offset: Some(offset),
        trace_id: if first { TRACE_ID.to_owned() } else { String::new() },
        rows: Some(Rows::ArrowRows(ArrowData {
            writer_schema: first.then(|| ArrowSchema {
                serialized_schema: Bytes::from_static(b"schema"),
            }),
            rows: Some(ArrowRecordBatch {
                serialized_record_batch: Bytes::from_static(b"rows"),
                ..Default::default()
            }),
        })),
        ..Default::default()
    };
    let sent = script.appended.lock().unwrap().clone();
    assert_eq!(
        sent,
        [wire(0, true), wire(1, false), wire(2, false), wire(3, false)]
    );
    assert_eq!(TRACE_ID, concat!("arroyo-bigquery:", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn an_answer_that_says_nothing_ends_the_call() {
    let script = Arc::new(Script {
        replies: Mutex::new([Reply::Answer(AppendRowsResponse::default())].into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(
        ended(&mut append).await,
        "AppendRows answered neither with a result nor with an error (Internal)"
    );
}

#[tokio::test]
async fn a_call_the_server_ends_tells_why_and_takes_no_more_rows() {
    let text = "Closing the stream because it has been inactive for 600 seconds.";
    let script = Arc::new(Script {
        replies: Mutex::new([Reply::Answer(answered(0)), Reply::End(Status::aborted(text))].into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 2);
    append.send(request(0, b"rows")).await.unwrap();
    append.send(request(1, b"rows")).await.unwrap();
    assert_eq!(answer(&mut append).await.result, Ok(Some(0)));
    assert_eq!(ended(&mut append).await, format!("{text} (Aborted)"));
    let AppendConnection { mut sender, receiver } = append;
    drop(receiver);
    while sender.send(request(2, b"rows")).await.is_ok() {}
}

#[tokio::test]
async fn waiting_for_an_event_may_be_given_up_without_losing_one() {
    let script = Arc::new(Script {
        replies: Mutex::new([Reply::Answer(answered(0))].into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    for _ in 0..20 {
        assert!(futures::FutureExt::now_or_never(append.next_event()).is_none());
        tokio::task::yield_now().await;
    }
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(answer(&mut append).await.result, Ok(Some(0)));
}

#[tokio::test]
async fn dropping_an_append_call_closes_it_at_the_server() {
    let script = Arc::new(Script {
        replies: Mutex::new([Reply::Answer(answered(0))].into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(answer(&mut append).await.result, Ok(Some(0)));
    assert_eq!(Arc::strong_count(&script.open), 2);
    drop(append);
    while Arc::strong_count(&script.open) > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_fifty_first_append_call_gets_a_connection_of_its_own() {
    let replies = (0..102).map(|_| Reply::Answer(answered(0))).collect();
    let script = Arc::new(Script {
        replies: Mutex::new(replies),
        ..Script::default()
    });
    let Pipes {
        transport,
        connections,
    } = pipes(&script, None, None);
    let mut open = Vec::new();
    for number in 1..=51 {
        open.push(append_one(&transport).await);
        assert_eq!(
            connections.load(Ordering::Relaxed),
            if number <= 50 { 1 } else { 2 }
        );
    }
    // A place that is free again is taken before another connection is made.
    open.truncate(10);
    for _ in 0..51 {
        open.push(append_one(&transport).await);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    // Calls that are no appends have a connection to themselves.
    transport.flush_rows(&stream(), 0).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

async fn append_one(transport: &Transport) -> AppendConnection {
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(answer(&mut append).await.result, Ok(Some(0)));
    append
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_is_given_up_after_its_deadline() {
    let script = Arc::new(Script {
        flush_delay: Duration::from_secs(3600),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let start = Instant::now();
    let error = transport.flush_rows(&stream(), 0).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "http://pipe did not answer within 60 s (DeadlineExceeded)"
    );
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn the_servers_own_code_is_read_out_of_a_failed_call() {
    let gone = StorageError {
        code: storage_error::StorageErrorCode::StreamNotFound.into(),
        entity: STREAM.to_owned(),
        error_message: "gone".to_owned(),
    };
    let detail = prost_types::Any {
        type_url: "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError".to_owned(),
        value: gone.encode_to_vec(),
    };
    let rpc = RpcStatus {
        code: 5,
        message: "gone".to_owned(),
        details: vec![detail],
    };
    let status = Status::with_details(
        Code::NotFound,
        "Requested entity was not found.",
        rpc.encode_to_vec().into(),
    );
    let script = Arc::new(Script {
        refusals: Mutex::new([status].into()),
        ..Script::default()
    });
    let Pipes { transport, .. } = pipes(&script, None, None);
    let error = transport.flush_rows(&stream(), 0).await.unwrap_err();
    assert_eq!(error.to_string(), "Requested entity was not found. (NotFound)");
    assert_eq!(error.storage_error, Some(gone));
    assert!(!error.needs_change());
}

#[tokio::test]
async fn an_endpoint_where_nobody_listens_is_named() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let transport = Transport::connect(&endpoints(&endpoint, None), None, None).unwrap();
    let expected =
        format!("cannot reach http://127.0.0.1:{port}: Connection refused (os error 111) (Unavailable)");
    assert_eq!(
        transport.table_schema(&table()).await.unwrap_err().to_string(),
        expected
    );
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(ended(&mut append).await, expected);
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_from_one_that_was_never_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let transport = Transport::connect(&endpoints(&endpoint, None), None, None).unwrap();
    let error = transport.flush_rows(&stream(), 0).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("lost the connection to {endpoint}: ")),
        "{error}"
    );
    assert!(!error.needs_change());
}

#[tokio::test]
async fn over_tls_a_key_becomes_a_token_and_a_refused_token_is_replaced_once() {
    let (script, certificates) = (Arc::new(Script::default()), Certificates::new());
    let endpoint = tls(&script, &certificates).await;
    let tokens = TokenServer::start(&["one", "two", "three", "four"]).await;
    let key = tokens.key_file();
    let transport = transport(&endpoint, &certificates, key.path().to_str().unwrap());

    assert_eq!(transport.flush_rows(&stream(), 1).await.unwrap(), 1);
    script
        .refusals
        .lock()
        .unwrap()
        .push_back(Status::unauthenticated("expired"));
    assert_eq!(transport.flush_rows(&stream(), 2).await.unwrap(), 2);
    let bearer = |token: &str| ("flush", Some(format!("Bearer {token}")));
    assert_eq!(
        script.header("authorization"),
        [bearer("one"), bearer("one"), bearer("two")]
    );

    // Twice in one call is no matter of time.
    script
        .refusals
        .lock()
        .unwrap()
        .extend([Status::unauthenticated("a"), Status::unauthenticated("b")]);
    let error = transport.flush_rows(&stream(), 3).await.unwrap_err();
    assert_eq!(error.to_string(), "b (Unauthenticated)");
    assert_eq!(
        script.header("authorization")[3..],
        [bearer("two"), bearer("three")]
    );

    // An append call is not repeated here, but the next one has a new token.
    script
        .refusals
        .lock()
        .unwrap()
        .push_back(Status::unauthenticated("again"));
    script
        .replies
        .lock()
        .unwrap()
        .push_back(Reply::Answer(answered(0)));
    let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
    append.send(request(0, b"rows")).await.unwrap();
    assert_eq!(ended(&mut append).await, "again (Unauthenticated)");
    let error = {
        let mut append = transport.open_append(&stream(), arrow_schema(), TRACE_ID, 1);
        append.send(request(0, b"rows")).await.unwrap();
        ended(&mut append).await
    };
    assert_eq!(
        error,
        "no credentials: no access token: token request failed (Unavailable)"
    );
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_an_error_that_names_the_option() {
    let (script, certificates, others) = (
        Arc::new(Script::default()),
        Certificates::new(),
        Certificates::new(),
    );
    let endpoint = tls(&script, &certificates).await;
    for ca in [None, Some(&others)] {
        let transport = Transport::connect(&endpoints(&endpoint, ca), None, None).unwrap();
        let error = transport.table_schema(&table()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot reach {endpoint}: TLS failed: its certificate is signed by an authority that is not trusted; give the \
                 authority's PEM file as option 'endpoint.ca' (Unavailable)"
            )
        );
        assert!(error.needs_change());
    }
    assert!(script.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_plaintext_server_behind_an_https_address_is_explained() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let script = Arc::new(Script::default());
    let server = Server::builder().add_service(BigQueryWriteServer::new(Scripted(script)));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let transport = Transport::connect(&endpoints(&endpoint, None), None, None).unwrap();
    let error = transport.table_schema(&table()).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot reach {endpoint}: TLS failed: ")),
        "{error}"
    );
    assert!(
        error.contains("if the server speaks plaintext there, its address begins with http://"),
        "{error}"
    );
}

#[test]
fn an_authority_file_that_is_none_is_named() {
    let endpoint = Endpoint::parse("https://127.0.0.1:1").unwrap();
    let file = crate::testing::file("no certificate");
    for (path, what) in [
        (file.path(), "holds no certificate in PEM form"),
        (
            std::path::Path::new("/nowhere/ca.pem"),
            "cannot be read: No such file or directory (os error 2)",
        ),
    ] {
        let endpoints = Endpoints {
            grpc: endpoint.clone(),
            http: endpoint.clone(),
            ca: Some(path.to_owned()),
        };
        let error = Transport::connect(&endpoints, None, None).unwrap_err();
        let expected = format!(
            "option 'endpoint.ca': '{}' {what} (InvalidArgument)",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn neither_transport_nor_errors_print_a_token() {
    let mut text = String::new();
    let error = CallError::from_credentials(CredentialError::new("no access token", false));
    write!(text, "{error} {error:?} {:?}", Token::new("hunter2")).unwrap();
    assert!(!text.contains("hunter2"));
    assert!(error.needs_change());
}

fn transport(endpoint: &Endpoint, certificates: &Certificates, key: &str) -> Transport {
    let ca = certificates.ca.path().to_str().unwrap();
    let pairs = [
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", "orders"),
        ("endpoint.grpc", endpoint.as_str()),
        ("endpoint.ca", ca),
        ("credentials", key),
    ];
    let pairs: Vec<_> = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let options = SinkOptions::parse(&pairs).unwrap();
    assert_eq!(options.credentials, Credentials::File(key.to_owned()));
    Transport::connect(
        &options.endpoints,
        crate::credentials::token_source(&options),
        None,
    )
    .unwrap()
}

fn request(offset: i64, rows: &'static [u8]) -> AppendRequest {
    AppendRequest {
        offset: Some(offset),
        rows: EncodedRows::Arrow(Bytes::from_static(rows)),
    }
}

fn arrow_schema() -> WriterSchema {
    WriterSchema::Arrow(Bytes::from_static(b"schema"))
}

fn answered(offset: i64) -> AppendRowsResponse {
    let result = append_rows_response::Response::AppendResult(AppendResult { offset: Some(offset) });
    AppendRowsResponse {
        response: Some(result),
        ..Default::default()
    }
}

fn refused(code: Code, message: &str, details: Vec<prost_types::Any>) -> AppendRowsResponse {
    let status = RpcStatus {
        code: code.into(),
        message: message.to_owned(),
        details,
    };
    AppendRowsResponse {
        response: Some(append_rows_response::Response::Error(status)),
        ..Default::default()
    }
}

async fn answer(append: &mut AppendConnection) -> AppendAnswer {
    match append.next_event().await {
        AppendEvent::Answer(answer) => answer,
        AppendEvent::Ended(end) => panic!("the call ended: {end:?}"),
    }
}

async fn ended(append: &mut AppendConnection) -> String {
    match append.next_event().await {
        AppendEvent::Ended(Err(error)) => error.to_string(),
        other => panic!("no failure: {other:?}"),
    }
}
