//! The gRPC shell: carries requests to the machine and its answers back, over TCP, TLS or any pipe.

use std::time::Duration;

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse,
    BigQueryWrite, BigQueryWriteServer, CreateWriteStreamRequest, FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse, GetWriteStreamRequest, ROUTING_HEADER,
    WriteStream,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status, Streaming};

use crate::catalog::Millis;
use crate::machine::{CallMeta, Event, Machine, Output, Refusal, Reply};
use crate::shared::Shared;
use append::Doors;
use transport::Connections;

mod append;
mod transport;

/// Node reads a bare `StorageError` here (write-api.md 3.1).
const STORAGE_ERROR_TRAILER: &str = "google.cloud.bigquery.storage.v1.storageerror-bin";
/// Above every request limit of the machine, which answers with Google's text.
const MAX_MESSAGE: usize = 64 << 20;
/// HTTP/2 headers are small; a text that lists a thousand fields is cut.
const MAX_TEXT: usize = 4096;

/// The service, cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Shared,
    doors: Doors,
    connections: Connections,
}

impl Service {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            doors: Doors::default(),
            connections: Connections::default(),
        }
    }

    /// Tells the client of every connection to go away: its calls go on, new ones need another connection.
    pub(crate) fn go_away(&self) {
        self.connections.go_away();
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.connections.cut();
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.count()
    }

    fn server(&self) -> BigQueryWriteServer<Self> {
        BigQueryWriteServer::new(self.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
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
        Ok(Response::new(append::answers(self, id, request.into_inner())))
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
