//! One AppendRows call: requests go in at one half, answers come out at the other.

use std::sync::Arc;

use bigquery_write_proto::names::StreamName;
use bigquery_write_proto::rows::{EncodedRows, WriterSchema};
use bigquery_write_proto::status::{OffsetMismatch, Refusal};
use bigquery_write_proto::wire::append_rows_request::MissingValueInterpretation;
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, RowError, StorageError, TableSchema, append_rows_response,
};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Request, Status, Streaming};

use super::channels::Place;
use super::error::{CallError, offsets};
use super::{Inner, client, encode};
use crate::credentials::Token;

/// An open append call. Dropping both halves closes it at once.
#[derive(Debug)]
pub struct AppendConnection {
    /// Where requests go in.
    pub sender: AppendSender,
    /// Where answers come out.
    pub receiver: AppendReceiver,
}

/// Rows for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRequest {
    /// Offset of the first row; none on a default stream, which refuses one (write-api.md 2).
    pub offset: Option<i64>,
    /// The rows, in the format of the connection's writer schema; shared, not copied.
    pub rows: EncodedRows,
}

/// What happened on the call.
#[derive(Debug)]
pub enum AppendEvent {
    /// The server answered the oldest unanswered request.
    Answer(AppendAnswer),
    /// The call is over: cleanly (the sender was dropped and all was answered), or for the given reason.
    /// Whatever is unanswered is in doubt. Every further event is `Ended(Ok(()))`.
    Ended(Result<(), CallError>),
}

/// The server's answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendAnswer {
    /// Offset of the request's first row, which the default stream does not tell; or why it was refused.
    pub result: Result<Option<i64>, AppendRefusal>,
    /// The table's columns, if they have changed; a new connection sees the new ones.
    pub updated_schema: Option<TableSchema>,
}

/// A refused request; none of its rows were taken.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendRefusal {
    /// The gRPC code.
    pub code: Code,
    /// The server's text.
    pub message: String,
    /// BigQuery's own code and entity, if the server told them.
    pub storage_error: Option<StorageError>,
    /// Which rows are wrong; the server may cut the list.
    pub row_errors: Vec<RowError>,
}

impl AppendRefusal {
    /// The offsets an offset error tells.
    #[must_use]
    pub fn offsets(&self) -> Option<OffsetMismatch> {
        offsets(self.code, &self.message, self.storage_error.as_ref())
    }
}

/// Why a request was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The call is over; the receiver says why.
    #[error("the append call is over")]
    Over,
    /// As many requests wait as the call has capacity for.
    #[error("the append call's queue is full")]
    Full,
}

/// The sending half. Dropping it lets the server answer what was sent and end the call.
#[derive(Debug)]
pub struct AppendSender {
    requests: mpsc::Sender<Queued>,
    /// What the first request carries besides its rows (write-api.md 1.2).
    opening: Opening,
    opens: bool,
}

/// A request that waits for the connection. In the form that goes on the wire it has a handle for each row, which one at a time need.
#[derive(Debug)]
struct Queued {
    request: AppendRequest,
    opening: Option<Opening>,
}

#[derive(Clone, Debug)]
struct Opening {
    stream: String,
    writer_schema: WriterSchema,
    trace_id: String,
    missing_values: MissingValueInterpretation,
}

/// The receiving half.
pub struct AppendReceiver {
    inner: Arc<Inner>,
    call: Call,
    /// The place on the connection is kept as long as the call.
    _place: Place,
}

enum Call {
    /// Headers go out at once; the server's may come with its first answer only.
    Opening(AbortOnDropHandle<Result<Box<Answers>, CallError>>),
    Open(Box<Answers>),
    Over,
}

struct Answers {
    stream: Streaming<AppendRowsResponse>,
    token: Option<Token>,
}

/// Opens the call in the background, so that neither half has to be driven for the other to get on.
pub(super) fn open(
    after: impl Future<Output = ()> + Send + 'static,
    inner: Arc<Inner>,
    stream: &StreamName,
    writer_schema: WriterSchema,
    trace_id: &str,
    capacity: usize,
) -> AppendConnection {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let place = inner.channels.append();
    let stream = stream.to_string();
    let route = format!("write_stream={}", encode(&stream));
    let opening = {
        let (inner, channel) = (Arc::clone(&inner), place.channel.clone());
        async move {
            after.await;
            let (headers, token) = inner.caller.headers(&route).await?;
            let mut request = Request::new(ReceiverStream::new(receiver).map(Queued::into_wire));
            *request.metadata_mut() = headers;
            match client(channel).append_rows(request).await {
                Ok(answer) => {
                    let stream = answer.into_inner();
                    Ok(Box::new(Answers { stream, token }))
                }
                Err(status) => Err(inner.ended(status, token.as_ref())),
            }
        }
    };
    let call = Call::Opening(AbortOnDropHandle::new(tokio::spawn(opening)));
    let opening = Opening {
        stream,
        writer_schema,
        trace_id: trace_id.to_owned(),
        missing_values: MissingValueInterpretation::Unspecified,
    };
    AppendConnection {
        sender: AppendSender {
            requests: sender,
            opening,
            opens: true,
        },
        receiver: AppendReceiver {
            inner,
            call,
            _place: place,
        },
    }
}

impl AppendConnection {
    /// See [`AppendSender::send`].
    pub async fn send(&mut self, request: AppendRequest) -> Result<(), SendError> {
        self.sender.send(request).await
    }

    /// See [`AppendReceiver::next_event`].
    pub async fn next_event(&mut self) -> AppendEvent {
        self.receiver.next_event().await
    }
}

impl AppendSender {
    /// Hands over a request; waits while `capacity` of them wait. Requests reach the server in this order.
    /// Cancel-safe: a send that was dropped has not happened. A fault after this shows at the receiver.
    ///
    /// # Errors
    /// [`SendError::Over`].
    pub async fn send(&mut self, request: AppendRequest) -> Result<(), SendError> {
        let place = self
            .requests
            .clone()
            .reserve_owned()
            .await
            .map_err(|_| SendError::Over)?;
        place.send(self.queued(request));
        Ok(())
    }

    /// As [`send`](Self::send), without waiting: any number in one turn of a task, which `send` is not good for, since it yields to
    /// other tasks now and then.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn try_send(&mut self, request: AppendRequest) -> Result<(), SendError> {
        let place = self
            .requests
            .clone()
            .try_reserve_owned()
            .map_err(|error| match error {
                TrySendError::Closed(_) => SendError::Over,
                TrySendError::Full(_) => SendError::Full,
            })?;
        place.send(self.queued(request));
        Ok(())
    }

    fn queued(&mut self, request: AppendRequest) -> Queued {
        let opens = std::mem::take(&mut self.opens);
        Queued {
            request,
            opening: opens.then(|| self.opening.clone()),
        }
    }

    /// NULL stands for the column's default value. Said before the first request, it holds for all (write-api.md 7.1).
    pub fn take_defaults_for_null(&mut self) {
        self.opening.missing_values = MissingValueInterpretation::DefaultValue;
    }

    /// The next request opens the call again: stream, writer schema and trace id go with it. For after a refusal of the first
    /// request, since the server may not have kept what came with it.
    pub fn open_again(&mut self) {
        self.opens = true;
    }
}

impl Queued {
    fn into_wire(self) -> AppendRowsRequest {
        let AppendRequest { offset, rows } = self.request;
        let mut wire = AppendRowsRequest {
            offset,
            ..Default::default()
        };
        // Later requests leave these out: the server would check or parse them again (write-api.md 1.2).
        let mut schema = None;
        if let Some(opening) = self.opening {
            schema = Some(opening.writer_schema);
            wire.write_stream = opening.stream;
            wire.trace_id = opening.trace_id;
            wire.default_missing_value_interpretation = opening.missing_values.into();
        }
        wire.rows = Some(rows.into_request(schema));
        wire
    }
}

impl AppendReceiver {
    /// The next answer, or the end. Cancel-safe.
    pub async fn next_event(&mut self) -> AppendEvent {
        loop {
            match &mut self.call {
                Call::Opening(opening) => match opening.await {
                    Ok(Ok(answers)) => self.call = Call::Open(answers),
                    Ok(Err(error)) => return self.over(Err(error)),
                    Err(error) => {
                        let error = CallError::new(Code::Internal, "opening the append call broke off")
                            .with_source(error);
                        return self.over(Err(error));
                    }
                },
                Call::Open(answers) => match answers.stream.next().await {
                    Some(Ok(response)) => match answer(response) {
                        Ok(answer) => return AppendEvent::Answer(answer),
                        Err(error) => return self.over(Err(error)),
                    },
                    Some(Err(status)) => {
                        let error = self.inner.ended(status, answers.token.as_ref());
                        return self.over(Err(error));
                    }
                    None => return self.over(Ok(())),
                },
                Call::Over => return AppendEvent::Ended(Ok(())),
            }
        }
    }

    fn over(&mut self, result: Result<(), CallError>) -> AppendEvent {
        self.call = Call::Over;
        AppendEvent::Ended(result)
    }
}

impl Inner {
    /// A token that was refused is not used for the next call.
    fn ended(&self, status: Status, token: Option<&Token>) -> CallError {
        self.caller.drop_refused(&status, token);
        CallError::from_status(status, &self.endpoint)
    }
}

impl std::fmt::Debug for AppendReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.call {
            Call::Opening(_) => "opening",
            Call::Open(_) => "open",
            Call::Over => "over",
        };
        f.debug_struct("AppendReceiver")
            .field("call", &state)
            .finish_non_exhaustive()
    }
}

fn answer(response: AppendRowsResponse) -> Result<AppendAnswer, CallError> {
    use append_rows_response::Response;
    let updated_schema = response.updated_schema;
    let result = match response.response {
        Some(Response::AppendResult(result)) => Ok(result.offset),
        Some(Response::Error(error)) => {
            let Refusal {
                code,
                message,
                storage,
            } = Refusal::from_answer(&error);
            Err(AppendRefusal {
                code,
                message,
                storage_error: storage,
                row_errors: response.row_errors,
            })
        }
        None => {
            return Err(CallError::new(
                Code::Internal,
                "AppendRows answered neither with a result nor with an error",
            ));
        }
    };
    Ok(AppendAnswer {
        result,
        updated_schema,
    })
}
