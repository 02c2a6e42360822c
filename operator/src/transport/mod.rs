//! The Storage Write API as the sink uses it: channels, headers, deadlines, and the append call. No retries: those are decisions.

mod append;
mod channels;
mod error;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use bigquery_write_proto::names::{StreamName, TableName};
use bigquery_write_proto::rows::WriterSchema;
use bigquery_write_proto::wire::{
    BigQueryWriteClient, CreateWriteStreamRequest, FlushRowsRequest, GetWriteStreamRequest, ROUTING_HEADER,
    TableSchema, WriteStream, WriteStreamView, write_stream,
};
use http::{HeaderMap, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tower::Service;

use self::channels::Channels;
use crate::credentials::{Token, TokenSource};
use crate::options::{Endpoint, Endpoints};

pub use self::append::{
    AppendAnswer, AppendConnection, AppendEvent, AppendReceiver, AppendRefusal, AppendRequest, AppendSender,
    SendError,
};
pub use self::error::CallError;

/// CreateWriteStream answers after more than 25 s when many streams are created at once (write-api.md 4).
const CREATE_DEADLINE: Duration = Duration::from_secs(60);
const GET_DEADLINE: Duration = Duration::from_secs(30);
const FLUSH_DEADLINE: Duration = Duration::from_secs(60);

/// Answers are small, except that one may list an error for every row of a 20 MB request.
const MAX_ANSWER: usize = 20 << 20;

/// The `trace_id` of append calls, in the form `A:B` that Google's tools expect (write-api.md 1.2).
pub const TRACE_ID: &str = concat!("arroyo-bigquery:", env!("CARGO_PKG_VERSION"));

/// A stream that was just created.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedStream {
    /// Its name, chosen by the server.
    pub name: StreamName,
    /// The table's schema as the server told it with the stream; may lag behind the table.
    pub schema: Option<TableSchema>,
}

/// A connection to the Storage Write API, shared by clones. Connects with the first call; holds at most 50
/// append calls on one HTTP/2 connection and opens another beyond that.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    channels: Channels,
    caller: Caller,
}

/// Who is calling: goes into the headers.
struct Caller {
    /// None for a plaintext endpoint.
    tokens: Option<Arc<dyn TokenSource>>,
    quota_project: Option<HeaderValue>,
}

impl Transport {
    /// A transport for the given endpoints. Opens no connection; reads the file of `endpoint.ca` if there is one.
    ///
    /// `tokens` is not asked for a plaintext endpoint. The error names the endpoint or the file.
    pub fn connect(
        endpoints: &Endpoints,
        tokens: Option<Arc<dyn TokenSource>>,
        quota_project: Option<&str>,
    ) -> Result<Self, CallError> {
        let channels = Channels::tcp(&endpoints.grpc, endpoints.ca.as_deref())?;
        Self::new(endpoints.grpc.clone(), channels, tokens, quota_project)
    }

    /// As [`Transport::connect`], over connections of another kind: pipes in memory, a simulated network.
    pub fn with_connector<C>(
        endpoint: Endpoint,
        connector: C,
        tokens: Option<Arc<dyn TokenSource>>,
        quota_project: Option<&str>,
    ) -> Result<Self, CallError>
    where
        C: Service<http::Uri> + Clone + Send + Sync + 'static,
        C::Response: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static,
    {
        let channels = Channels::over(&endpoint, connector)?;
        Self::new(endpoint, channels, tokens, quota_project)
    }

    fn new(
        endpoint: Endpoint,
        channels: Channels,
        tokens: Option<Arc<dyn TokenSource>>,
        quota_project: Option<&str>,
    ) -> Result<Self, CallError> {
        let quota_project = quota_project
            .map(HeaderValue::try_from)
            .transpose()
            .map_err(|_| {
                CallError::misconfigured("option 'quota_project' holds characters that no header can carry")
            })?;
        // A plaintext endpoint is never sent a credential (design.md section 9), whoever is asked to give one.
        let tokens = tokens.filter(|_| !endpoint.is_plaintext());
        Ok(Self {
            inner: Arc::new(Inner {
                endpoint,
                channels,
                caller: Caller {
                    tokens,
                    quota_project,
                },
            }),
        })
    }

    /// The endpoint the calls go to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Creates a BUFFERED stream.
    pub async fn create_stream(&self, table: &TableName) -> Result<CreatedStream, CallError> {
        let stream = WriteStream {
            r#type: write_stream::Type::Buffered.into(),
            ..Default::default()
        };
        let request = CreateWriteStreamRequest {
            parent: table.to_string(),
            write_stream: Some(stream),
        };
        let route = format!("parent={}", encode(&request.parent));
        let answer = self
            .unary(
                CREATE_DEADLINE,
                &route,
                request,
                |mut client, request| async move { client.create_write_stream(request).await },
            )
            .await?;
        let name = answer.name.parse().map_err(|error| {
            CallError::new(
                Code::Internal,
                format!("CreateWriteStream answered with a name that is none: {error}"),
            )
        })?;
        Ok(CreatedStream {
            name,
            schema: answer.table_schema,
        })
    }

    /// The table's schema, asked of its default stream. BigQuery may answer with a schema that lags behind the table.
    pub async fn table_schema(&self, table: &TableName) -> Result<TableSchema, CallError> {
        self.stream_schema(&table.default_stream()).await
    }

    /// The schema of a stream's table, which may lag behind it.
    pub async fn stream_schema(&self, stream: &StreamName) -> Result<TableSchema, CallError> {
        let name = stream.to_string();
        let route = format!("name={}", encode(&name));
        let request = GetWriteStreamRequest {
            name,
            view: WriteStreamView::Full.into(),
        };
        let answer = self
            .unary(GET_DEADLINE, &route, request, |mut client, request| async move {
                client.get_write_stream(request).await
            })
            .await?;
        answer.table_schema.ok_or_else(|| {
            let table = stream.table();
            CallError::new(
                Code::Internal,
                format!("GetWriteStream of {table} answered without the table's schema"),
            )
        })
    }

    /// Publishes the rows of a BUFFERED stream up to `offset`, inclusive; answers with the offset up to which rows are visible.
    pub async fn flush_rows(&self, stream: &StreamName, offset: i64) -> Result<i64, CallError> {
        let request = FlushRowsRequest {
            write_stream: stream.to_string(),
            offset: Some(offset),
        };
        let route = format!("write_stream={}", encode(&request.write_stream));
        let answer = self
            .unary(
                FLUSH_DEADLINE,
                &route,
                request,
                |mut client, request| async move { client.flush_rows(request).await },
            )
            .await?;
        Ok(answer.offset)
    }

    /// Finalizes a stream, which the sink never does (invariant 9).
    #[cfg(feature = "mutants")]
    pub(crate) async fn finalize_stream(&self, stream: &StreamName) -> Result<(), CallError> {
        let name = stream.to_string();
        let route = format!("name={}", encode(&name));
        let request = bigquery_write_proto::wire::FinalizeWriteStreamRequest { name };
        let finalize = |mut client: BigQueryWriteClient<Channel>, request| async move {
            client.finalize_write_stream(request).await
        };
        self.unary(GET_DEADLINE, &route, request, finalize)
            .await
            .map(drop)
    }

    /// Opens an append call. Returns at once; the call is made in the background (within a tokio runtime), and
    /// what becomes of it is told by the receiver. BigQuery refuses a call that ends without a request
    /// (write-api.md 2.1), so open it with rows at hand.
    ///
    /// `capacity` is the number of requests that wait in memory, beyond what the HTTP/2 connection buffers.
    #[must_use]
    pub fn open_append(
        &self,
        stream: &StreamName,
        writer_schema: WriterSchema,
        trace_id: &str,
        capacity: usize,
    ) -> AppendConnection {
        append::open(
            ready(()),
            Arc::clone(&self.inner),
            stream,
            writer_schema,
            trace_id,
            capacity,
        )
    }

    /// As [`open_append`](Self::open_append), with the call made when it is let, and given up with the sender of that.
    pub(crate) fn open_append_after(
        &self,
        opening: oneshot::Receiver<()>,
        stream: &StreamName,
        writer_schema: WriterSchema,
        trace_id: &str,
        capacity: usize,
    ) -> AppendConnection {
        let opening = async {
            // Given up: whoever did that has dropped the connection, or is about to.
            if opening.await.is_err() {
                pending::<()>().await;
            }
        };
        append::open(
            opening,
            Arc::clone(&self.inner),
            stream,
            writer_schema,
            trace_id,
            capacity,
        )
    }

    /// One call with a deadline, which is ours alone: a call given up is reset, and the server sees that.
    /// A refused token is replaced once: the clock that says it is good may be wrong.
    async fn unary<Q, A, F, R>(
        &self,
        deadline: Duration,
        route: &str,
        request: Q,
        call: F,
    ) -> Result<A, CallError>
    where
        Q: Clone,
        F: Fn(BigQueryWriteClient<Channel>, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let Inner {
            endpoint,
            channels,
            caller,
        } = &*self.inner;
        let attempts = async {
            let mut renewed = false;
            loop {
                let (headers, token) = caller.headers(route).await?;
                let mut attempt = Request::new(request.clone());
                *attempt.metadata_mut() = headers;
                let status = match call(client(channels.unary()), attempt).await {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => status,
                };
                if !caller.drop_refused(&status, token.as_ref()) || renewed {
                    return Err(CallError::from_status(status, endpoint));
                }
                renewed = true;
            }
        };
        timeout(deadline, attempts).await.unwrap_or_else(|_| {
            let message = format!("{endpoint} did not answer within {} s", deadline.as_secs());
            Err(CallError::new(Code::DeadlineExceeded, message))
        })
    }
}

impl Caller {
    /// The headers of one call, and the token among them.
    async fn headers(&self, route: &str) -> Result<(MetadataMap, Option<Token>), CallError> {
        let mut headers = HeaderMap::new();
        let route = HeaderValue::try_from(route).expect("`encode` leaves printable ASCII only");
        headers.insert(ROUTING_HEADER, route);
        if let Some(project) = &self.quota_project {
            headers.insert("x-goog-user-project", project.clone());
        }
        let mut used = None;
        if let Some(tokens) = &self.tokens {
            let token = tokens.token().await.map_err(CallError::from_credentials)?;
            headers.insert(
                header::AUTHORIZATION,
                token.header().map_err(CallError::from_credentials)?,
            );
            used = Some(token);
        }
        Ok((MetadataMap::from_headers(headers), used))
    }

    /// Whether the call failed for its token, which is then not used again.
    fn drop_refused(&self, status: &Status, token: Option<&Token>) -> bool {
        match (&self.tokens, token) {
            (Some(tokens), Some(token)) if status.code() == Code::Unauthenticated => {
                tokens.refused(token);
                true
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("endpoint", &self.inner.endpoint)
            .finish_non_exhaustive()
    }
}

fn client(channel: Channel) -> BigQueryWriteClient<Channel> {
    BigQueryWriteClient::new(channel).max_decoding_message_size(MAX_ANSWER)
}

/// Google's hand-written clients send the routing value raw, the generated ones percent-encoded, and both work
/// (write-api.md 3.7). Raw where names are plain; encoded where a header could not carry them or the value would
/// fall apart.
fn encode(name: &str) -> impl fmt::Display + '_ {
    const KEEP: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b':')
        .remove(b'$');
    utf8_percent_encode(name, KEEP)
}
