//! The sink's own task: carries out the core's commands and tells it what happened. It decides nothing.

mod calls;
mod counts;
mod rows;
mod spans;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink_state::{
    Command, CommitList, Destination, Epoch, Fault, FlushId, FlushOffset, Generation, Input, Lane, Mutant,
    Mutation, Notice, Protocol, RequestNumber, RowCount, StreamName, SubtaskIndex, SubtaskState,
};
use bigquery_write_proto::names::TableName;
use bigquery_write_proto::rows::{MissingValues, Wire};
use futures::future::AbortHandle;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use self::counts::Undecided;
use self::rows::Payloads;
use self::spans::Spans;
use self::types::Unfit;
use super::aftermath::Aftermath;
use super::coalesce::Coalescer;
use super::dead_letters::DeadLetters;
use super::refused::Sifted;
use super::{Environment, notice, translate};
use crate::clock::Clock;
use crate::error::SinkError;
use crate::metrics::{Counter, FlushResult, Histogram, SubtaskMetrics};
use crate::options::SinkOptions;
use crate::probe::{CommandKind, Moment, Probe};
use crate::transport::{AppendEvent, AppendSender, CallError, CreatedStream, Transport};

/// What comes in order.
#[derive(Debug)]
pub(super) enum Feed {
    Rows(Sifted),
    Mark(Mark),
}

/// Asks for an answer when everything fed before it is acknowledged.
#[derive(Debug)]
pub(super) enum Mark {
    Barrier {
        epoch: Epoch,
        since: Instant,
        reply: oneshot::Sender<Prepared>,
    },
    EndOfData {
        reply: oneshot::Sender<()>,
    },
}

/// A subtask's part of a checkpoint, as the core reports it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) state: SubtaskState,
    pub(super) commit: CommitList,
    /// Rows that are visible with the commit at the latest.
    pub(super) rows: RowCount,
    /// Those of them that are dead letters.
    pub(super) dead_letters: RowCount,
}

/// May overtake rows: it comes while rows of the next epoch wait for room.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) epoch: Epoch,
    pub(super) entries: BTreeMap<SubtaskIndex, CommitList>,
    pub(super) since: Instant,
    pub(super) reply: oneshot::Sender<RowCount>,
}

/// The sending half of an open append call.
#[derive(Debug)]
struct Connection {
    sender: AppendSender,
    stream: StreamName,
    destination: Destination,
    /// The requests that were sent, in order: the answers carry no number.
    unanswered: VecDeque<Sent>,
    /// Before the first acknowledgement it is open whether the server has kept stream and writer schema.
    acknowledged: bool,
    abort: AbortHandle,
}

/// A request on its way.
#[derive(Debug)]
struct Sent {
    request: RequestNumber,
    at: Instant,
    span: Span,
}

/// A call that was answered.
enum Done {
    Created {
        lane: Lane,
        destination: Destination,
        result: Result<CreatedStream, Unfit>,
    },
    /// The table was asked about before a connection is opened.
    Asked {
        connection: Generation,
        /// Opens it.
        opens: oneshot::Sender<()>,
        result: Result<(), Unfit>,
    },
    Flushed {
        flush: Flush,
        span: Span,
        took: Duration,
        result: Result<i64, CallError>,
    },
}

/// What is asked of FlushRows.
#[derive(Debug)]
struct Flush {
    id: FlushId,
    stream: StreamName,
    /// The last row, inclusive.
    offset: FlushOffset,
}

pub(super) struct Driver {
    core: Protocol,
    clock: Clock,
    table: TableName,
    wire: Arc<Wire>,
    transport: Transport,
    metrics: SubtaskMetrics,
    spans: Spans,
    subtask: SubtaskIndex,
    options: Arc<SinkOptions>,
    environment: Environment,
    aftermath: Aftermath,
    probe: Probe,
    linger: Duration,
    missing_values: MissingValues,
    window_requests: usize,
    coalescer: Coalescer,
    dead_letters: Option<DeadLetters>,
    payloads: Payloads,
    next_batch: u64,
    connections: BTreeMap<Generation, Connection>,
    /// Streams that were created and not yet connected to: their table was told of just now.
    fresh: BTreeSet<StreamName>,
    mutation: Mutation,
    answers: SelectAll<BoxStream<'static, (Generation, AppendEvent)>>,
    calls: JoinSet<Done>,
    flushes_waiting: VecDeque<Flush>,
    flushes_running: usize,
    undecided: Undecided,
    /// Came behind rows that are not handed over yet.
    mark: Option<Mark>,
    prepared: Option<(oneshot::Sender<Prepared>, Instant)>,
    committed: Option<(oneshot::Sender<RowCount>, Instant)>,
    closed: Option<oneshot::Sender<()>>,
}

/// What makes requests of rows, and of those that are refused.
pub(super) struct Writers {
    pub(super) wire: Arc<Wire>,
    pub(super) dead_letters: Option<DeadLetters>,
}

impl Driver {
    pub(super) fn new(
        core: Protocol,
        subtask: SubtaskIndex,
        metrics: SubtaskMetrics,
        Writers { wire, dead_letters }: Writers,
        aftermath: Aftermath,
        options: &Arc<SinkOptions>,
        environment: &Environment,
    ) -> Self {
        let coalescer = Coalescer::new(Arc::clone(&wire), options.append_bytes, options.inflight_bytes);
        Self {
            core,
            clock: metrics.clock(),
            table: options.table.clone(),
            wire,
            transport: environment.transport.clone(),
            metrics,
            spans: Spans::new(subtask),
            subtask,
            options: Arc::clone(options),
            environment: environment.clone(),
            aftermath,
            probe: environment.probe.clone(),
            linger: options.append_linger,
            missing_values: options.missing_values,
            window_requests: options.inflight_requests,
            coalescer,
            dead_letters,
            payloads: Payloads::default(),
            next_batch: 0,
            connections: BTreeMap::new(),
            fresh: BTreeSet::new(),
            mutation: environment.mutation,
            answers: SelectAll::new(),
            calls: JoinSet::new(),
            flushes_waiting: VecDeque::new(),
            flushes_running: 0,
            undecided: Undecided::default(),
            mark: None,
            prepared: None,
            committed: None,
            closed: None,
        }
    }

    /// Runs until the host goes away or something fails.
    pub(super) async fn run(
        mut self,
        feeds: mpsc::Receiver<Feed>,
        commits: mpsc::Receiver<Commit>,
    ) -> Result<(), SinkError> {
        let result = self.work(feeds, commits).await;
        if let Err(error) = &result {
            self.metrics.trouble(&error.to_string());
        }
        result
    }

    /// The host's commits and BigQuery's answers go before rows: they end waits, rows begin them.
    async fn work(
        &mut self,
        mut feeds: mpsc::Receiver<Feed>,
        mut commits: mpsc::Receiver<Commit>,
    ) -> Result<(), SinkError> {
        loop {
            self.pass_mark();
            self.carry_out().await?;
            let sends = self.next_to_send();
            // One full request is held beside the window, and nothing is fed behind a mark: the host's call waits for its answer.
            let takes = sends.is_none() && self.coalescers().all(|coalescer| !coalescer.is_full());
            let wake = self.wake_at(sends.is_some());
            tokio::select! {
                biased;
                Some(commit) = commits.recv() => self.commit(commit),
                Some(done) = self.calls.join_next() => self.done(done)?,
                Some((connection, event)) = self.answers.next() => self.answer(connection, event)?,
                () = until(wake) => self.tell(Input::Tick),
                // One request at a time, and the connection's task gets its turn in between: a large batch is on its way with its
                // first part, and its answers are not kept waiting.
                () = yield_now(), if sends.is_some() => self.send(sends)?,
                feed = feeds.recv(), if takes => match feed {
                    Some(Feed::Rows(sifted)) => self.take(sifted)?,
                    Some(Feed::Mark(mark)) => self.mark = Some(mark),
                    None => return Ok(()),
                },
            }
        }
    }

    fn tell(&mut self, input: Input) {
        if let Input::CreateFailed { fault, .. }
        | Input::AppendFailed { fault, .. }
        | Input::ConnectionLost { fault, .. }
        | Input::FlushFailed { fault, .. } = &input
        {
            self.aftermath.saw(fault);
        }
        self.note_refused_rows(&input);
        self.core.handle(self.clock.now(), input);
    }

    // From the host.

    /// Where the next request goes: one that is full, or has waited long enough, or that a mark waits for, if there is room. Dead letters
    /// first, since a barrier or the end of data may wait for them.
    fn next_to_send(&self) -> Option<Destination> {
        if !self.has_room() {
            return None;
        }
        let is_due = |coalescer: &Coalescer, waited_for: bool| {
            let over = || {
                coalescer
                    .since()
                    .is_some_and(|since| since + self.linger <= Instant::now())
            };
            !coalescer.is_empty() && (waited_for || coalescer.is_full() || over())
        };
        let letters = self.dead_letters.as_ref().map(|letters| &letters.coalescer);
        if letters.is_some_and(|letters| is_due(letters, self.core.wants_dead_letters())) {
            return Some(Destination::DeadLetters);
        }
        is_due(&self.coalescer, self.mark.is_some()).then_some(Destination::Table)
    }

    fn has_room(&self) -> bool {
        self.core.has_room() && self.payloads.have_room(self.options.inflight_bytes)
    }

    fn coalescers(&self) -> impl Iterator<Item = &Coalescer> {
        let letters = self.dead_letters.as_ref().map(|letters| &letters.coalescer);
        std::iter::once(&self.coalescer).chain(letters)
    }

    /// When to go on if nothing comes; the end of the linger only where something can be done about it.
    fn wake_at(&self, sends: bool) -> Option<Instant> {
        let core = self.core.next_wake().map(|at| self.clock.instant(at));
        let linger = self
            .coalescers()
            .filter_map(|coalescer| Some(coalescer.since()? + self.linger));
        let linger = linger.min().filter(|_| !sends && self.has_room());
        core.into_iter().chain(linger).min()
    }

    fn commit(&mut self, commit: Commit) {
        let Commit {
            epoch,
            entries,
            since,
            reply,
        } = commit;
        self.committed = Some((reply, since));
        self.spans.committing(epoch);
        self.tell(Input::Commit { epoch, entries });
    }

    /// Tells the core of a mark when everything before it is handed over.
    fn pass_mark(&mut self) {
        if !self.coalescer.is_empty() {
            return;
        }
        match self.mark.take() {
            None => {}
            Some(Mark::Barrier { epoch, since, reply }) => {
                self.prepared = Some((reply, since));
                self.tell(Input::Barrier { epoch });
            }
            Some(Mark::EndOfData { reply }) => {
                self.closed = Some(reply);
                self.tell(Input::EndOfData);
            }
        }
    }

    // From BigQuery.

    fn done(&mut self, done: Result<Done, JoinError>) -> Result<(), SinkError> {
        let done =
            done.map_err(|error| SinkError::internal("a call to BigQuery broke off").with_source(error))?;
        match done {
            Done::Created {
                lane,
                destination,
                result: Ok(created),
            } => {
                tracing::info!(stream = %created.name, "created a write stream");
                let stream = StreamName(created.name.to_string());
                self.metrics.add(Counter::StreamsCreated, 1);
                self.metrics.opened(&stream, destination);
                self.fresh.insert(stream.clone());
                self.tell(Input::StreamCreated { lane, stream });
            }
            Done::Created {
                lane,
                destination,
                result: Err(unfit),
            } => {
                let fault = self.fault_of(destination, unfit)?;
                self.metrics.fault("CreateWriteStream", &fault);
                self.tell(Input::CreateFailed { lane, fault });
            }
            Done::Asked {
                connection,
                opens,
                result,
            } => match (result, self.connections.get(&connection)) {
                (Ok(()), _) => drop(opens.send(())),
                (Err(unfit), Some(open)) => {
                    let fault = self.fault_of(open.destination, unfit)?;
                    self.lost(connection, fault);
                }
                // It was given up meanwhile; the next one asks again.
                (Err(_), None) => {}
            },
            Done::Flushed {
                flush,
                span,
                took,
                result,
            } => span.in_scope(|| self.flushed(&flush, &span, took, result)),
        }
        Ok(())
    }

    fn flushed(&mut self, flush: &Flush, span: &Span, took: Duration, result: Result<i64, CallError>) {
        self.flushes_running -= 1;
        let result = result.map_err(|error| translate::call_fault(&error));
        self.count_flush(flush, span, took, result.as_ref().copied());
        let flush = flush.id;
        self.tell(match result {
            Ok(offset) => Input::FlushDone { flush, offset },
            Err(fault) => Input::FlushFailed { flush, fault },
        });
    }

    fn answer(&mut self, connection: Generation, event: AppendEvent) -> Result<(), SinkError> {
        let input = match event {
            AppendEvent::Answer(answer) => {
                let connection = self.counted_on(connection);
                if let (Some(schema), Some(open)) =
                    (&answer.updated_schema, self.connections.get(&connection))
                {
                    self.check_types(open.destination, schema)?;
                }
                let Some(open) = self.connections.get_mut(&connection) else {
                    return Ok(());
                };
                let Some(Sent { request, at, span }) = open.unanswered.pop_front() else {
                    let table = &self.table;
                    return Err(SinkError::external(format!(
                        "BigQuery answered a request to append to {table} that was not sent"
                    )));
                };
                match answer.result {
                    Ok(offset) => {
                        open.acknowledged = true;
                        self.count_answer(at, &span, Ok(()));
                        let offset = offset.and_then(|offset| u64::try_from(offset).ok());
                        Input::AppendAcked {
                            connection,
                            request,
                            offset,
                        }
                    }
                    Err(refusal) => {
                        if !open.acknowledged {
                            open.sender.open_again();
                        }
                        let fault = translate::refusal_fault(&refusal);
                        self.count_answer(at, &span, Err(&fault));
                        Input::AppendFailed {
                            connection,
                            request,
                            fault,
                        }
                    }
                }
            }
            AppendEvent::Ended(result) => {
                let fault =
                    result.map_or_else(|error| translate::call_fault(&error), |()| translate::clean_end());
                self.lost(connection, fault);
                return Ok(());
            }
        };
        self.tell(input);
        Ok(())
    }

    fn lost(&mut self, connection: Generation, fault: Fault) {
        self.count_lost(connection, &fault);
        self.drop_connection(connection);
        self.tell(Input::ConnectionLost { connection, fault });
    }

    /// The connection whose requests an answer is counted on: its own.
    fn counted_on(&self, connection: Generation) -> Generation {
        let newest = self.connections.last_key_value().map(|(newest, _)| *newest);
        match newest {
            Some(newest) if self.mutation.is(Mutant::QueuePositionAcrossConnections) => newest,
            _ => connection,
        }
    }

    // The core's commands.

    async fn carry_out(&mut self) -> Result<(), SinkError> {
        while let Some(command) = self.core.poll() {
            let kind = CommandKind::of(&command);
            self.probe.pass(self.subtask, Moment::Before(kind)).await;
            if let Command::Fail(failure) = &command {
                self.count_failure(failure);
                let aftermath = self.aftermath.of(failure, &self.options, &self.environment);
                return Err(translate::failure(failure, &aftermath.await));
            }
            self.perform(command)?;
            self.probe.pass(self.subtask, Moment::After(kind)).await;
        }
        self.count_refused_flush(FlushResult::Retry);
        self.tell_inflight();
        self.start_flushes()
    }

    fn perform(&mut self, command: Command) -> Result<(), SinkError> {
        match command {
            Command::CreateStream { lane, destination } => self.create_stream(lane, destination),
            Command::Connect { connection, stream } => self.connect(connection, &stream)?,
            Command::Disconnect { connection } => self.give_up(connection),
            Command::Append {
                connection,
                request,
                offset,
                batch,
            } => {
                self.append(connection, request, offset, batch)?;
            }
            Command::Release { batch } => {
                self.release(batch);
                self.tell_inflight();
            }
            Command::RemoveRows { batch, rows } => self.remove_rows(batch, &rows)?,
            Command::Split { batch } => self.split(batch)?,
            Command::Prepared {
                epoch,
                state,
                commit,
                rows,
            } => {
                self.aftermath.prepared(epoch);
                let letters = self.dead_letters.as_mut();
                let prepared = Prepared {
                    state,
                    commit,
                    rows,
                    dead_letters: letters.map_or(RowCount(0), |letters| letters.prepared(epoch)),
                };
                self.metrics.prepared();
                self.spans.prepared(epoch, rows);
                let host = self.prepared.take();
                self.reply_timed(Histogram::CheckpointDrain, host, prepared);
            }
            Command::Flush {
                flush,
                stream,
                offset,
            } => {
                self.metrics.flush_asked(&stream, offset.next_offset());
                let id = flush;
                self.flushes_waiting.push_back(Flush { id, stream, offset });
            }
            Command::Committed { epoch, rows } => {
                self.aftermath.published(epoch);
                self.metrics.committed(epoch);
                self.spans.committed(epoch);
                let host = self.committed.take();
                self.reply_timed(Histogram::CommitDuration, host, rows);
            }
            Command::Closed => reply(self.closed.take(), ()),
            // The transport has dropped the refused token already; the next call asks for a new one.
            Command::RefreshCredentials => {
                tracing::info!("BigQuery did not take the token; getting another");
            }
            Command::Notice(notice) => {
                if matches!(notice, Notice::UnprovableAccepted { .. }) {
                    self.count_refused_flush(FlushResult::Failed);
                }
                notice::tell(&notice, &self.metrics);
            }
            // Seen to before.
            Command::Fail(_) => {}
        }
        Ok(())
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// A host that no longer waits does not need the answer.
fn reply<T>(to: Option<oneshot::Sender<T>>, value: T) {
    if let Some(to) = to {
        drop(to.send(value));
    }
}
