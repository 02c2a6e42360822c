//! The gRPC shell: carries requests to the machine and its answers back, over TCP, TLS or any pipe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse,
    BigQueryWrite, BigQueryWriteServer, CreateWriteStreamRequest, FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse, GetWriteStreamRequest, ROUTING_HEADER,
    WriteStream,
};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::server::{Router, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use crate::catalog::Millis;
use crate::machine::{CallMeta, ConnectionId, Event, Machine, Output, Refusal, Reply};
use crate::shared::Shared;

/// Node reads a bare `StorageError` here (write-api.md 3.1).
const STORAGE_ERROR_TRAILER: &str = "google.cloud.bigquery.storage.v1.storageerror-bin";
/// Above every request limit of the machine, which answers with Google's text.
const MAX_MESSAGE: usize = 64 << 20;
/// Answers held for a client that does not read them.
const ANSWERS: usize = 1024;
/// Google's servers take 100 calls on a connection.
const CALLS_PER_CONNECTION: u32 = 100;
/// HTTP/2 headers are small; a text that lists a thousand fields is cut.
const MAX_TEXT: usize = 4096;

/// The service, cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Shared,
    doors: Doors,
}

/// How a connection is told from elsewhere that it is over.
#[derive(Clone, Debug, Default)]
struct Doors(Arc<Mutex<HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>>>);

/// An answer and when it may go.
struct Held {
    due: Option<Instant>,
    answer: Result<AppendRowsResponse, Status>,
}

/// One `AppendRows` call.
struct Conversation {
    service: Service,
    id: ConnectionId,
    answers: mpsc::Sender<Held>,
    over: oneshot::Receiver<Option<Refusal>>,
}

impl Service {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            doors: Doors::default(),
        }
    }

    /// A server with the service on it, ready to be given connections.
    pub(crate) fn router(&self, tls: Option<ServerTlsConfig>) -> Result<Router, tonic::transport::Error> {
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls)?;
        }
        // Windows as large as requests, so that a client is held up by the machine and not by the protocol.
        let server = server
            .initial_stream_window_size(16 << 20)
            .initial_connection_window_size(64 << 20)
            .max_frame_size(1 << 20)
            .max_concurrent_streams(CALLS_PER_CONNECTION)
            .tcp_nodelay(true);
        let service = BigQueryWriteServer::new(self.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let mut server = server;
        Ok(server.add_service(service))
    }

    /// Lets time pass in the machine, and tells the connections that it closed.
    pub(crate) fn tick(&self) {
        let now = self.shared.now();
        self.dispatch(self.shared.with(|machine| machine.tick(now)));
    }

    /// Ends every call.
    pub(crate) fn close_all(&self, refusal: &Refusal) {
        self.dispatch(self.shared.with(|machine| machine.close_all(refusal)));
    }

    /// Outputs for connections that did not ask: only ends.
    fn dispatch(&self, outputs: Vec<Output>) {
        for output in outputs {
            if let Event::End(refusal) = output.event {
                self.doors.close(output.connection, refusal);
            }
        }
    }

    async fn unary<T>(
        &self,
        act: impl FnOnce(&mut Machine, Millis) -> Reply<T>,
    ) -> Result<Response<T>, Status> {
        let now = self.shared.now();
        let reply = self.shared.with(|machine| act(machine, now));
        if reply.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
        }
        reply
            .result
            .map(Response::new)
            .map_err(|refusal| status(&refusal))
    }
}

#[tonic::async_trait]
impl BigQueryWrite for Service {
    async fn create_write_stream(
        &self,
        request: Request<CreateWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        let meta = meta(request.metadata());
        self.unary(|machine, now| machine.create_write_stream(now, &meta, request.get_ref()))
            .await
    }

    type AppendRowsStream = BoxStream<'static, Result<AppendRowsResponse, Status>>;

    async fn append_rows(
        &self,
        request: Request<Streaming<AppendRowsRequest>>,
    ) -> Result<Response<Self::AppendRowsStream>, Status> {
        let (meta, now) = (meta(request.metadata()), self.shared.now());
        let id = self.shared.with(|machine| machine.open_append(now, meta));
        let (answers, held) = mpsc::channel(ANSWERS);
        let over = self.doors.open(id);
        let conversation = Conversation {
            service: self.clone(),
            id,
            answers,
            over,
        };
        tokio::spawn(conversation.run(request.into_inner()));
        let answers = ReceiverStream::new(held).then(|Held { due, answer }| async move {
            if let Some(due) = due {
                tokio::time::sleep_until(due).await;
            }
            answer
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn get_write_stream(
        &self,
        request: Request<GetWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        let meta = meta(request.metadata());
        self.unary(|machine, now| machine.get_write_stream(now, &meta, request.get_ref()))
            .await
    }

    async fn finalize_write_stream(
        &self,
        request: Request<FinalizeWriteStreamRequest>,
    ) -> Result<Response<FinalizeWriteStreamResponse>, Status> {
        let meta = meta(request.metadata());
        self.unary(|machine, now| machine.finalize_write_stream(now, &meta, request.get_ref()))
            .await
    }

    async fn batch_commit_write_streams(
        &self,
        request: Request<BatchCommitWriteStreamsRequest>,
    ) -> Result<Response<BatchCommitWriteStreamsResponse>, Status> {
        let meta = meta(request.metadata());
        self.unary(|machine, now| machine.batch_commit_write_streams(now, &meta, request.get_ref()))
            .await
    }

    async fn flush_rows(
        &self,
        request: Request<FlushRowsRequest>,
    ) -> Result<Response<FlushRowsResponse>, Status> {
        let meta = meta(request.metadata());
        self.unary(|machine, now| machine.flush_rows(now, &meta, request.get_ref()))
            .await
    }
}

impl Conversation {
    async fn run(mut self, mut requests: Streaming<AppendRowsRequest>) {
        let shared = self.service.shared.clone();
        loop {
            let idle = shared
                .with(|machine| machine.idle_deadline(self.id))
                .unwrap_or(Millis::MAX);
            let wait = u64::try_from(idle.saturating_sub(shared.now()))
                .unwrap_or(0)
                .saturating_add(1);
            let outputs = tokio::select! {
                biased;
                () = self.answers.closed() => break,
                over = &mut self.over => {
                    self.finish(over.ok().flatten(), 0).await;
                    break;
                }
                request = requests.message() => match request {
                    Ok(Some(request)) => {
                        let now = shared.now();
                        shared.with(|machine| machine.append(now, self.id, &request))
                    }
                    Ok(None) => shared.with(|machine| machine.half_close(self.id)),
                    Err(_) => break,
                },
                // A year is as good as never, and tokio's timer takes no more than two.
                () = tokio::time::sleep(Duration::from_millis(wait.min(365 * 86_400_000))) => {
                    self.service.tick();
                    continue;
                }
            };
            if !self.send(outputs).await {
                break;
            }
        }
        self.service.doors.forget(self.id);
        shared.with(|machine| machine.lost(self.id));
    }

    /// Sends this connection's own outputs and passes the others on; `false` when the call is over.
    async fn send(&self, outputs: Vec<Output>) -> bool {
        let (own, others) = outputs
            .into_iter()
            .partition(|output| output.connection == self.id);
        self.service.dispatch(others);
        for Output { delay_ms, event, .. } in own {
            match event {
                Event::Answer(answer) => {
                    if !self.hold(Ok(*answer), delay_ms).await {
                        return false;
                    }
                }
                Event::End(refusal) => {
                    self.finish(refusal, delay_ms).await;
                    return false;
                }
            }
        }
        true
    }

    async fn finish(&self, refusal: Option<Refusal>, delay_ms: u64) {
        if let Some(refusal) = refusal {
            self.hold(Err(status(&refusal)), delay_ms).await;
        }
    }

    async fn hold(&self, answer: Result<AppendRowsResponse, Status>, delay_ms: u64) -> bool {
        let due = (delay_ms > 0).then(|| Instant::now() + Duration::from_millis(delay_ms));
        self.answers.send(Held { due, answer }).await.is_ok()
    }
}

impl Doors {
    fn open(&self, id: ConnectionId) -> oneshot::Receiver<Option<Refusal>> {
        let (door, over) = oneshot::channel();
        self.lock().insert(id, door);
        over
    }

    fn close(&self, id: ConnectionId, refusal: Option<Refusal>) {
        if let Some(door) = self.lock().remove(&id) {
            // The call may have ended by itself in the meantime.
            drop(door.send(refusal));
        }
    }

    fn forget(&self, id: ConnectionId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn meta(metadata: &MetadataMap) -> CallMeta {
    let text = |key| {
        metadata
            .get(key)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    CallMeta {
        authorization: text("authorization"),
        routing: text(ROUTING_HEADER),
    }
}

/// As a gRPC status: the details in both trailers that clients look into.
fn status(refusal: &Refusal) -> Status {
    let text: String = refusal.message.chars().take(MAX_TEXT).collect();
    let mut metadata = MetadataMap::new();
    let mut details = Bytes::new();
    if let Some(mut error) = refusal.storage_error() {
        error.error_message.clone_from(&text);
        let value = MetadataValue::from_bytes(&error.encode_to_vec());
        metadata.insert_bin(STORAGE_ERROR_TRAILER, value);
        details = refusal.status().encode_to_vec().into();
    }
    Status::with_details_and_metadata(
        tonic::Code::from_i32(refusal.code as i32),
        text,
        details,
        metadata,
    )
}
