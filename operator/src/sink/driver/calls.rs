//! The driver's calls to BigQuery: streams, append calls and what goes out on them, flushes.

use std::collections::VecDeque;
use std::sync::Arc;

use bigquery_sink_state::{
    BatchId, Destination, Fault, Generation, Lane, Mutant, NextOffset, RequestNumber, StreamName,
};
use bigquery_write_proto::names;
use bigquery_write_proto::rows::MissingValues;
use bigquery_write_proto::wire::TableSchema;
use futures::future::{AbortHandle, Abortable};
use futures::stream::{BoxStream, StreamExt as _, unfold};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::types::{Types, Unfit};
use super::{Connection, Done, Driver, Sent};
use crate::error::SinkError;
use crate::metrics::Counter;
use crate::transport::{AppendEvent, AppendReceiver, AppendRequest, SendError, TRACE_ID};

/// Flushes under way at a time: 128 streams commit within two round trips (design.md section 11), on one HTTP/2 connection.
const PARALLEL_FLUSHES: usize = 64;

impl Driver {
    pub(super) fn create_stream(&mut self, lane: Lane, destination: Destination) {
        let types = self.types(destination);
        self.calls.spawn(async move {
            Done::Created {
                lane,
                destination,
                result: types.create().await,
            }
        });
    }

    /// What is written where.
    fn types(&self, destination: Destination) -> Types {
        let letters = self
            .dead_letters
            .as_ref()
            .filter(|_| destination == Destination::DeadLetters);
        let (table, wire) = letters.map_or((&self.table, &self.wire), |letters| {
            (&letters.table, &letters.wire)
        });
        Types {
            table: table.clone(),
            wire: Arc::clone(wire),
            options: Arc::clone(&self.options),
            environment: self.environment.clone(),
        }
    }

    /// Whether a table takes what is written for it still: it may be another one than at the start, and of rows that are written for
    /// other types BigQuery refuses some and misreads others. For those who append know: what they tell is so.
    pub(super) fn check_types(
        &self,
        destination: Destination,
        schema: &TableSchema,
    ) -> Result<(), SinkError> {
        let retyped = self.types(destination).wire.retyped(schema);
        if retyped.is_empty() {
            return Ok(());
        }
        self.fault_of(destination, Unfit::Retyped(retyped)).map(drop)
    }

    /// What the core is told of it, if it is for the core to decide.
    pub(super) fn fault_of(&self, destination: Destination, unfit: Unfit) -> Result<Fault, SinkError> {
        let retyped = match unfit {
            Unfit::Fault(fault) => return Ok(fault),
            Unfit::Retyped(retyped) => retyped,
        };
        let table = self.types(destination).table;
        Err(SinkError::external(format!(
            "table {table} is another one than at the start, or was changed: its column {}; the job restarts from its checkpoint and \
             looks whether its columns fit. {}",
            retyped.join(", and "),
            self.aftermath.rows(self.options.mode)
        )))
    }

    pub(super) fn connect(&mut self, generation: Generation, name: &StreamName) -> Result<(), SinkError> {
        let stream = parse(name)?;
        // As many as may be unanswered, so that handing one over never waits.
        let capacity = self.window_requests + 1;
        let letters = self
            .dead_letters
            .as_ref()
            .filter(|letters| letters.table == *stream.table());
        let destination = match letters {
            Some(_) => Destination::DeadLetters,
            None => Destination::Table,
        };
        let types = self.types(destination);
        let schema = types.wire.writer_schema();
        // A default stream is there without being created.
        self.metrics.opened(name, destination);
        // What a connection does not tell of is what changed before it.
        let asks = !self.fresh.remove(name) && types.wire.may_be_misread();
        let mut opened = if asks {
            let (opens, opening) = oneshot::channel();
            let name = stream.clone();
            self.calls.spawn(async move {
                Done::Asked {
                    connection: generation,
                    opens,
                    result: types.ask(&name).await,
                }
            });
            self.transport
                .open_append_after(opening, &stream, schema, TRACE_ID, capacity)
        } else {
            self.transport.open_append(&stream, schema, TRACE_ID, capacity)
        };
        if destination == Destination::Table && self.missing_values == MissingValues::Default {
            opened.sender.take_defaults_for_null();
        }
        let (events, abort) = events(generation, opened.receiver);
        self.answers.push(events);
        let connection = Connection {
            sender: opened.sender,
            stream: name.clone(),
            destination,
            unanswered: VecDeque::new(),
            acknowledged: false,
            abort,
        };
        self.connections.insert(generation, connection);
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        generation: Generation,
        request: RequestNumber,
        offset: Option<NextOffset>,
        batch: BatchId,
    ) -> Result<(), SinkError> {
        let Some(connection) = self.connections.get_mut(&generation) else {
            return Ok(());
        };
        let payload = self
            .payloads
            .get(batch)
            .expect("the core appends what it was given and has not released");
        let append = AppendRequest {
            offset: offset.map(|offset| i64::try_from(offset.0).expect("the core keeps offsets within i64")),
            rows: payload.encoded.clone(),
        };
        match connection.sender.try_send(append) {
            Ok(()) => {
                let at = Instant::now();
                let span = self
                    .spans
                    .append(&connection.stream, offset, payload.rows, payload.bytes());
                connection.unanswered.push_back(Sent { request, at, span });
                let sent_before = self.payloads.sent(batch, (connection.stream.clone(), offset));
                if sent_before.is_some() {
                    self.metrics.add(Counter::RequestsResent, 1);
                }
            }
            // The receiver says why; the core then sends everything again.
            Err(SendError::Over) => {}
            Err(error @ SendError::Full) => {
                let message = "more requests were sent than may be unanswered";
                return Err(SinkError::internal(message).with_source(error));
            }
        }
        Ok(())
    }

    pub(super) fn start_flushes(&mut self) -> Result<(), SinkError> {
        while self.flushes_running < PARALLEL_FLUSHES
            && let Some(flush) = self.flushes_waiting.pop_front()
        {
            let (transport, stream) = (self.transport.clone(), parse(&flush.stream)?);
            let offset = i64::try_from(flush.offset.0).expect("the core keeps offsets within i64");
            self.flushes_running += 1;
            let span = self.spans.flush(&flush.stream, flush.offset);
            self.calls.spawn(async move {
                let begin = Instant::now();
                let call = transport.flush_rows(&stream, offset);
                let result = call.instrument(span.clone()).await;
                Done::Flushed {
                    flush,
                    span,
                    took: begin.elapsed(),
                    result,
                }
            });
        }
        Ok(())
    }

    /// Ends a call that may still owe answers.
    pub(super) fn give_up(&mut self, connection: Generation) {
        self.count_given_up(connection);
        self.drop_connection(connection);
    }

    pub(super) fn drop_connection(&mut self, connection: Generation) {
        if let Some(open) = self.connections.remove(&connection)
            && !self.mutation.is(Mutant::QueuePositionAcrossConnections)
        {
            open.abort.abort();
        }
    }
}

/// The answers of one call, ended by the abort handle.
fn events(
    generation: Generation,
    receiver: AppendReceiver,
) -> (BoxStream<'static, (Generation, AppendEvent)>, AbortHandle) {
    let (abort, registration) = AbortHandle::new_pair();
    let events = unfold(Some(receiver), move |receiver| async move {
        let mut receiver = receiver?;
        let event = receiver.next_event().await;
        let rest = matches!(event, AppendEvent::Answer(_)).then_some(receiver);
        Some(((generation, event), rest))
    });
    (Abortable::new(events, registration).boxed(), abort)
}

fn parse(stream: &StreamName) -> Result<names::StreamName, SinkError> {
    stream.0.parse().map_err(|error| {
        SinkError::user(format!(
            "'{stream}', which a checkpoint names, is no write stream: {error}"
        ))
    })
}
