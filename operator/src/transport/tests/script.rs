//! A Storage Write API that keeps what it is sent and answers from a script.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse,
    BigQueryWrite, BigQueryWriteServer, FinalizeWriteStreamRequest, FinalizeWriteStreamResponse,
    FlushRowsResponse, TableFieldSchema, table_field_schema,
};
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Streaming;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use super::super::*;
use crate::testing::Certificates;

/// What one request of the script's calls gets.
pub(super) enum Reply {
    Answer(AppendRowsResponse),
    End(Status),
}

/// A Storage Write API of one table.
#[derive(Default)]
pub(super) struct Script {
    /// Method and headers of every call.
    pub(super) calls: Mutex<Vec<(&'static str, HeaderMap)>>,
    pub(super) appended: Mutex<Vec<AppendRowsRequest>>,
    /// Statuses that unary calls and append calls get before anything else.
    pub(super) refusals: Mutex<VecDeque<Status>>,
    pub(super) replies: Mutex<VecDeque<Reply>>,
    pub(super) flush_delay: Duration,
    pub(super) open: Arc<()>,
}

type Answer<T> = Result<Response<T>, Status>;

impl Script {
    fn call<T>(&self, method: &'static str, request: &Request<T>) -> Result<(), Status> {
        self.calls
            .lock()
            .unwrap()
            .push((method, request.metadata().clone().into_headers()));
        self.refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    /// Method and one header of every call, in order.
    pub(super) fn header(&self, name: &str) -> Vec<(&'static str, Option<String>)> {
        let calls = self.calls.lock().unwrap();
        let value = |headers: &HeaderMap| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        calls
            .iter()
            .map(|(method, headers)| (*method, value(headers)))
            .collect()
    }
}

pub(super) fn schema() -> TableSchema {
    let column = TableFieldSchema {
        name: "id".to_owned(),
        r#type: table_field_schema::Type::Int64.into(),
        mode: table_field_schema::Mode::Required.into(),
        ..Default::default()
    };
    TableSchema { fields: vec![column] }
}

pub(super) struct Scripted(pub(super) Arc<Script>);

#[tonic::async_trait]
impl BigQueryWrite for Scripted {
    type AppendRowsStream = Pin<Box<dyn Stream<Item = Result<AppendRowsResponse, Status>> + Send>>;

    async fn create_write_stream(&self, request: Request<CreateWriteStreamRequest>) -> Answer<WriteStream> {
        self.0.call("create", &request)?;
        let request = request.into_inner();
        let kind = request.write_stream.unwrap().r#type();
        assert_eq!(kind, write_stream::Type::Buffered);
        let name = format!("{}/streams/Cis1", request.parent);
        Ok(Response::new(WriteStream {
            name,
            table_schema: Some(schema()),
            ..Default::default()
        }))
    }

    async fn append_rows(
        &self,
        request: Request<Streaming<AppendRowsRequest>>,
    ) -> Answer<Self::AppendRowsStream> {
        self.0.call("append", &request)?;
        let script = Arc::clone(&self.0);
        let open = Arc::clone(&self.0.open);
        let answers = request.into_inner().map_while(move |request| {
            let _open = &open;
            script.appended.lock().unwrap().push(request.ok()?);
            match script.replies.lock().unwrap().pop_front()? {
                Reply::Answer(answer) => Some(Ok(answer)),
                Reply::End(status) => Some(Err(status)),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_write_stream(&self, request: Request<GetWriteStreamRequest>) -> Answer<WriteStream> {
        self.0.call("get", &request)?;
        let request = request.into_inner();
        let table_schema = (request.view() == WriteStreamView::Full).then(schema);
        Ok(Response::new(WriteStream {
            name: request.name,
            table_schema,
            ..Default::default()
        }))
    }

    async fn flush_rows(&self, request: Request<FlushRowsRequest>) -> Answer<FlushRowsResponse> {
        self.0.call("flush", &request)?;
        tokio::time::sleep(self.0.flush_delay).await;
        Ok(Response::new(FlushRowsResponse {
            offset: request.into_inner().offset.unwrap(),
        }))
    }

    async fn finalize_write_stream(
        &self,
        _: Request<FinalizeWriteStreamRequest>,
    ) -> Answer<FinalizeWriteStreamResponse> {
        Err(Status::unimplemented("the sink never finalizes"))
    }

    async fn batch_commit_write_streams(
        &self,
        _: Request<BatchCommitWriteStreamsRequest>,
    ) -> Answer<BatchCommitWriteStreamsResponse> {
        Err(Status::unimplemented("the sink has no PENDING streams"))
    }
}

/// The script behind pipes in memory; counts connections.
pub(super) struct Pipes {
    pub(super) transport: Transport,
    pub(super) connections: Arc<AtomicUsize>,
}

pub(super) fn pipes(
    script: &Arc<Script>,
    tokens: Option<Arc<dyn TokenSource>>,
    quota_project: Option<&str>,
) -> Pipes {
    let (accept, accepted) = mpsc::channel::<Result<DuplexStream, Infallible>>(8);
    let server = Server::builder().add_service(BigQueryWriteServer::new(Scripted(Arc::clone(script))));
    tokio::spawn(server.serve_with_incoming(ReceiverStream::new(accepted)));
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let connector = tower::service_fn(move |_: http::Uri| {
        count.fetch_add(1, Ordering::Relaxed);
        let accept = accept.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            accept.send(Ok(theirs)).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(ours)
        }
    });
    let endpoint = Endpoint::parse("http://pipe").unwrap();
    Pipes {
        transport: Transport::with_connector(endpoint, connector, tokens, quota_project).unwrap(),
        connections,
    }
}

/// The script behind TLS on loopback; the endpoints trust the given authority.
pub(super) async fn tls(script: &Arc<Script>, certificates: &Certificates) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (chain, key) = &certificates.server;
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(Identity::from_pem(chain, key)))
        .unwrap()
        .add_service(BigQueryWriteServer::new(Scripted(Arc::clone(script))));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Endpoint::parse(&format!("https://localhost:{port}")).unwrap()
}
