//! The gRPC shell: carries requests to the machine and its answers back, over TCP, TLS or any pipe.

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse,
    BigQueryWrite, BigQueryWriteServer, CreateWriteStreamRequest, FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse, GetWriteStreamRequest, ROUTING_HEADER,
    WriteStream,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use prost::Message;
use tokio::sync::watch;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Extensions, Request, Response, Status, Streaming};

use crate::catalog::Millis;
use crate::machine::{Behaviour, CallMeta, Event, Machine, Output, Passage, Refusal, Reply};
use crate::shared::Shared;
use append::Doors;
use hold::Gate;
use transport::{Connections, Line};

mod append;
mod hold;
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
    gate: Gate,
    /// When the machine has late work to do next.
    late: watch::Sender<Option<Millis>>,
}

impl Service {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            doors: Doors::default(),
            connections: Connections::default(),
            gate: Gate::default(),
            late: watch::Sender::default(),
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

    /// The machine and the clock.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Puts the clock forward; what becomes too old by it ends.
    pub(crate) fn advance(&self, ms: u32) {
        self.shared.advance(ms);
        self.tick();
    }

    /// Lets time pass in the machine, and tells the connections that it closed.
    pub(crate) fn tick(&self) {
        let now = self.shared.now();
        self.dispatch(self.shared.with(|machine| machine.tick(now)));
        self.note_late();
    }

    /// Lets go every answer that is stalled now.
    pub(crate) fn release(&self) {
        self.gate.release();
    }

    /// Milliseconds between a request and its answer, at least.
    pub(crate) fn latency_ms(&self) -> u64 {
        self.gate.latency_ms()
    }

    pub(crate) fn set_latency_ms(&self, ms: u64) {
        self.gate.set_latency_ms(ms);
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

    /// The machine may have put something off, or done it.
    fn note_late(&self) {
        let due = self.shared.with(|machine| machine.late_deadline());
        self.late
            .send_if_modified(|noted| std::mem::replace(noted, due) != due);
    }

    async fn unary<M, T>(
        &self,
        request: Request<M>,
        act: impl FnOnce(&mut Machine, Millis, &CallMeta, &M) -> Reply<T>,
    ) -> Result<Response<T>, Status> {
        let line = line(request.extensions());
        let meta = meta(request.metadata(), &line);
        let now = self.shared.now();
        let request = request.get_ref();
        let Reply { delivery, result } = self.shared.with(|machine| act(machine, now, &meta, request));
        self.note_late();
        if delivery.go_away {
            line.connection().go_away();
        }
        match delivery.passage {
            Passage::Whole => self.gate.turn(&delivery).come().await,
            Passage::Reset => return Err(line.break_off()),
            Passage::Cut => line.cut().await,
            Passage::Never => std::future::pending().await,
        }
        result.map(Response::new).map_err(|refusal| self.status(&refusal))
    }

    /// As a gRPC status: the `StorageError` in both trailers that clients look into.
    fn status(&self, refusal: &Refusal) -> Status {
        let text: String = refusal.message.chars().take(MAX_TEXT).collect();
        let mut metadata = MetadataMap::new();
        let mut details = Bytes::new();
        if let Some(mut error) = refusal.storage_error() {
            let keeps = |behaviour| self.shared.with(|machine| machine.switches().keeps(behaviour));
            error.error_message.clone_from(&text);
            if keeps(Behaviour::StorageErrorInTrailer) {
                let value = MetadataValue::from_bytes(&error.encode_to_vec());
                metadata.insert_bin(STORAGE_ERROR_TRAILER, value);
            }
            if keeps(Behaviour::StorageErrorInDetails) {
                details = refusal.status().encode_to_vec().into();
            }
        }
        Status::with_details_and_metadata(
            tonic::Code::from_i32(refusal.code as i32),
            text,
            details,
            metadata,
        )
    }
}

#[tonic::async_trait]
impl BigQueryWrite for Service {
    async fn create_write_stream(
        &self,
        request: Request<CreateWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        self.unary(request, Machine::create_write_stream).await
    }

    type AppendRowsStream = BoxStream<'static, Result<AppendRowsResponse, Status>>;

    async fn append_rows(
        &self,
        request: Request<Streaming<AppendRowsRequest>>,
    ) -> Result<Response<Self::AppendRowsStream>, Status> {
        let line = line(request.extensions());
        let meta = meta(request.metadata(), &line);
        let now = self.shared.now();
        let id = self.shared.with(|machine| machine.open_append(now, meta));
        Ok(Response::new(append::answers(
            self,
            line,
            id,
            request.into_inner(),
        )))
    }

    async fn get_write_stream(
        &self,
        request: Request<GetWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        self.unary(request, Machine::get_write_stream).await
    }

    async fn finalize_write_stream(
        &self,
        request: Request<FinalizeWriteStreamRequest>,
    ) -> Result<Response<FinalizeWriteStreamResponse>, Status> {
        self.unary(request, Machine::finalize_write_stream).await
    }

    async fn batch_commit_write_streams(
        &self,
        request: Request<BatchCommitWriteStreamsRequest>,
    ) -> Result<Response<BatchCommitWriteStreamsResponse>, Status> {
        self.unary(request, Machine::batch_commit_write_streams).await
    }

    async fn flush_rows(
        &self,
        request: Request<FlushRowsRequest>,
    ) -> Result<Response<FlushRowsResponse>, Status> {
        self.unary(request, Machine::flush_rows).await
    }
}

fn line(extensions: &Extensions) -> Line {
    extensions.get::<Line>().cloned().unwrap_or_default()
}

fn meta(metadata: &MetadataMap, line: &Line) -> CallMeta {
    let text = |key| {
        metadata
            .get(key)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    CallMeta {
        authorization: text("authorization"),
        routing: text(ROUTING_HEADER),
        transport: line.number(),
    }
}
