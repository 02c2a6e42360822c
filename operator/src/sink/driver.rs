//! The sink's own task: carries out the core's commands and tells it what happened. It decides nothing.

mod rows;

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Command, CommitList, Destination, Epoch, FlushId, Generation, Input, Lane, Micros, Mutant,
    Mutation, NextOffset, Protocol, RequestNumber, RowCount, StreamName, SubtaskIndex, SubtaskState,
};
use bigquery_write_proto::names::{self, TableName};
use bigquery_write_proto::rows::{MissingValues, Wire};
use futures::future::{AbortHandle, Abortable};
use futures::stream::{BoxStream, SelectAll, StreamExt as _, unfold};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};

use self::rows::Unacknowledged;
use super::aftermath::Aftermath;
use super::coalesce::Coalescer;
use super::dead_letters::DeadLetters;
use super::refused::Sifted;
use super::{Counters, Environment, notice, translate};
use crate::error::SinkError;
use crate::options::SinkOptions;
use crate::probe::{CommandKind, Moment, Probe};
use crate::transport::{
    AppendEvent, AppendReceiver, AppendRequest, AppendSender, CallError, SendError, TRACE_ID, Transport,
};

/// Flushes under way at a time: 128 streams commit within two round trips (design.md section 11), on one HTTP/2 connection.
const PARALLEL_FLUSHES: usize = 64;

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
}

/// May overtake rows: it comes while rows of the next epoch wait for room.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) epoch: Epoch,
    pub(super) entries: BTreeMap<SubtaskIndex, CommitList>,
    pub(super) reply: oneshot::Sender<RowCount>,
}

/// Time as the core is told it: the host's wall clock at the start, moved on by a clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started_at: Micros,
    pub(super) started: Instant,
}

impl Clock {
    pub(super) fn now(&self) -> Micros {
        self.started_at.after(self.started.elapsed())
    }

    fn instant(&self, at: Micros) -> Instant {
        self.started + at.since(self.started_at)
    }
}

/// The sending half of an open append call.
#[derive(Debug)]
struct Connection {
    sender: AppendSender,
    /// Numbers of the requests that were sent, in order: the answers carry none.
    unanswered: VecDeque<RequestNumber>,
    /// Before the first acknowledgement it is open whether the server has kept stream and writer schema.
    acknowledged: bool,
    abort: AbortHandle,
}

/// A call that was answered.
enum Done {
    Created {
        lane: Lane,
        result: Result<names::StreamName, CallError>,
    },
    Flushed {
        flush: FlushId,
        result: Result<i64, CallError>,
    },
}

pub(super) struct Driver {
    core: Protocol,
    clock: Clock,
    table: TableName,
    wire: Arc<Wire>,
    transport: Transport,
    counters: Arc<Counters>,
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
    payloads: BTreeMap<BatchId, Unacknowledged>,
    next_batch: u64,
    connections: BTreeMap<Generation, Connection>,
    mutation: Mutation,
    answers: SelectAll<BoxStream<'static, (Generation, AppendEvent)>>,
    calls: JoinSet<Done>,
    flushes_waiting: VecDeque<(FlushId, StreamName, i64)>,
    flushes_running: usize,
    /// Came behind rows that are not handed over yet.
    mark: Option<Mark>,
    prepared: Option<oneshot::Sender<Prepared>>,
    committed: Option<oneshot::Sender<RowCount>>,
    closed: Option<oneshot::Sender<()>>,
}

impl Driver {
    pub(super) fn new(
        core: Protocol,
        clock: Clock,
        subtask: SubtaskIndex,
        wire: Arc<Wire>,
        dead_letters: Option<DeadLetters>,
        options: &Arc<SinkOptions>,
        environment: &Environment,
    ) -> Self {
        let coalescer = Coalescer::new(Arc::clone(&wire), options.append_bytes);
        Self {
            core,
            clock,
            table: options.table.clone(),
            wire,
            transport: environment.transport.clone(),
            counters: Arc::clone(&environment.counters),
            subtask,
            options: Arc::clone(options),
            environment: environment.clone(),
            aftermath: Aftermath::default(),
            probe: environment.probe.clone(),
            linger: options.append_linger,
            missing_values: options.missing_values,
            window_requests: options.inflight_requests,
            coalescer,
            dead_letters,
            payloads: BTreeMap::new(),
            next_batch: 0,
            connections: BTreeMap::new(),
            mutation: environment.mutation,
            answers: SelectAll::new(),
            calls: JoinSet::new(),
            flushes_waiting: VecDeque::new(),
            flushes_running: 0,
            mark: None,
            prepared: None,
            committed: None,
            closed: None,
        }
    }

    /// Runs until the host goes away or something fails.
    ///
    /// The host's commits and BigQuery's answers go before rows: they end waits, rows begin them.
    pub(super) async fn run(
        mut self,
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
        self.core.handle(self.clock.now(), input);
    }

    // From the host.

    /// Where the next request goes: one that is full, or has waited long enough, or that a mark waits for, if there is room. Dead letters
    /// first, since a barrier or the end of data may wait for them.
    fn next_to_send(&self) -> Option<Destination> {
        if !self.core.has_room() {
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
        let linger = linger.min().filter(|_| !sends && self.core.has_room());
        core.into_iter().chain(linger).min()
    }

    fn commit(&mut self, commit: Commit) {
        let Commit {
            epoch,
            entries,
            reply,
        } = commit;
        self.committed = Some(reply);
        self.tell(Input::Commit { epoch, entries });
    }

    /// Tells the core of a mark when everything before it is handed over.
    fn pass_mark(&mut self) {
        if !self.coalescer.is_empty() {
            return;
        }
        match self.mark.take() {
            None => {}
            Some(Mark::Barrier { epoch, reply }) => {
                self.prepared = Some(reply);
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
                result: Ok(stream),
            } => {
                Counters::add(&self.counters.streams_created, 1);
                tracing::info!(%stream, "created a write stream");
                self.tell(Input::StreamCreated {
                    lane,
                    stream: StreamName(stream.to_string()),
                });
            }
            Done::Created {
                lane,
                result: Err(error),
            } => {
                self.tell(Input::CreateFailed {
                    lane,
                    fault: translate::call_fault(&error),
                });
            }
            Done::Flushed { flush, result } => {
                self.flushes_running -= 1;
                self.tell(match result {
                    Ok(offset) => Input::FlushDone { flush, offset },
                    Err(error) => Input::FlushFailed {
                        flush,
                        fault: translate::call_fault(&error),
                    },
                });
            }
        }
        Ok(())
    }

    fn answer(&mut self, connection: Generation, event: AppendEvent) -> Result<(), SinkError> {
        let input = match event {
            AppendEvent::Answer(answer) => {
                let connection = self.counted_on(connection);
                let Some(open) = self.connections.get_mut(&connection) else {
                    return Ok(());
                };
                let Some(request) = open.unanswered.pop_front() else {
                    let table = &self.table;
                    return Err(SinkError::external(format!(
                        "BigQuery answered a request to append to {table} that was not sent"
                    )));
                };
                match answer.result {
                    Ok(offset) => {
                        open.acknowledged = true;
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
                        Input::AppendFailed {
                            connection,
                            request,
                            fault,
                        }
                    }
                }
            }
            AppendEvent::Ended(result) => {
                self.drop_connection(connection);
                let fault =
                    result.map_or_else(|error| translate::call_fault(&error), |()| translate::clean_end());
                Input::ConnectionLost { connection, fault }
            }
        };
        self.tell(input);
        Ok(())
    }

    /// The connection whose requests an answer is counted on: its own.
    fn counted_on(&self, connection: Generation) -> Generation {
        let newest = self.connections.last_key_value().map(|(newest, _)| *newest);
        match newest {
            Some(newest) if self.mutation.is(Mutant::QueuePositionAcrossConnections) => newest,
            _ => connection,
        }
    }

    /// Ends a call that may still owe answers.
    fn give_up(&mut self, connection: Generation) {
        if let Some(open) = self.connections.get(&connection) {
            Counters::add(&self.counters.stale_answers_dropped, open.unanswered.len() as u64);
        }
        self.drop_connection(connection);
    }

    fn drop_connection(&mut self, connection: Generation) {
        if let Some(open) = self.connections.remove(&connection)
            && !self.mutation.is(Mutant::QueuePositionAcrossConnections)
        {
            open.abort.abort();
        }
    }

    // The core's commands.

    async fn carry_out(&mut self) -> Result<(), SinkError> {
        while let Some(command) = self.core.poll() {
            let kind = CommandKind::of(&command);
            self.probe.pass(self.subtask, Moment::Before(kind)).await;
            if let Command::Fail(failure) = &command {
                let started_at = self.clock.started_at;
                let aftermath = self
                    .aftermath
                    .of(failure, started_at, &self.options, &self.environment);
                return Err(translate::failure(failure, &aftermath.await));
            }
            self.perform(command)?;
            self.probe.pass(self.subtask, Moment::After(kind)).await;
        }
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
            Command::Release { batch } => self.release(batch),
            Command::RemoveRows { batch, rows } => self.remove_rows(batch, &rows)?,
            Command::Split { batch } => self.split(batch)?,
            Command::Prepared {
                epoch,
                state,
                commit,
                rows,
            } => {
                self.aftermath.prepared(epoch);
                if let Some(letters) = &mut self.dead_letters {
                    letters.prepared(epoch);
                }
                let prepared = Prepared { state, commit, rows };
                reply(self.prepared.take(), prepared);
            }
            Command::Flush {
                flush,
                stream,
                offset,
            } => {
                let offset = i64::try_from(offset.0).expect("the core keeps offsets within i64");
                self.flushes_waiting.push_back((flush, stream, offset));
            }
            Command::Committed { epoch, rows } => {
                self.aftermath.published(epoch);
                reply(self.committed.take(), rows);
            }
            Command::Closed => reply(self.closed.take(), ()),
            // The transport has dropped the refused token already; the next call asks for a new one.
            Command::RefreshCredentials => {
                tracing::info!("BigQuery did not take the token; getting another");
            }
            Command::Notice(notice) => notice::tell(&notice, &self.counters),
            // Seen to before.
            Command::Fail(_) => {}
        }
        Ok(())
    }

    fn create_stream(&mut self, lane: Lane, destination: Destination) {
        let letters = self
            .dead_letters
            .as_ref()
            .filter(|_| destination == Destination::DeadLetters);
        let table = letters.map_or(&self.table, |letters| &letters.table).clone();
        let transport = self.transport.clone();
        self.calls.spawn(async move {
            let result = transport.create_stream(&table).await.map(|created| created.name);
            Done::Created { lane, result }
        });
    }

    fn connect(&mut self, generation: Generation, stream: &StreamName) -> Result<(), SinkError> {
        let stream = parse(stream)?;
        // As many as may be unanswered, so that handing one over never waits.
        let capacity = self.window_requests + 1;
        let letters = self
            .dead_letters
            .as_ref()
            .filter(|letters| letters.table == *stream.table());
        let schema = letters
            .map_or(&self.wire, |letters| &letters.wire)
            .writer_schema();
        let mut opened = self.transport.open_append(&stream, schema, TRACE_ID, capacity);
        if letters.is_none() && self.missing_values == MissingValues::Default {
            opened.sender.take_defaults_for_null();
        }
        let (events, abort) = events(generation, opened.receiver);
        self.answers.push(events);
        let connection = Connection {
            sender: opened.sender,
            unanswered: VecDeque::new(),
            acknowledged: false,
            abort,
        };
        self.connections.insert(generation, connection);
        Ok(())
    }

    fn append(
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
            .get(&batch)
            .expect("the core appends what it was given and has not released");
        let offset = offset.map(|offset| i64::try_from(offset.0).expect("the core keeps offsets within i64"));
        let append = AppendRequest {
            offset,
            rows: payload.encoded.clone(),
        };
        match connection.sender.try_send(append) {
            Ok(()) => connection.unanswered.push_back(request),
            // The receiver says why; the core then sends everything again.
            Err(SendError::Over) => {}
            Err(error @ SendError::Full) => {
                let message = "more requests were sent than may be unanswered";
                return Err(SinkError::internal(message).with_source(error));
            }
        }
        Ok(())
    }

    fn start_flushes(&mut self) -> Result<(), SinkError> {
        while self.flushes_running < PARALLEL_FLUSHES
            && let Some((flush, stream, offset)) = self.flushes_waiting.pop_front()
        {
            let (transport, stream) = (self.transport.clone(), parse(&stream)?);
            self.flushes_running += 1;
            self.calls.spawn(async move {
                Done::Flushed {
                    flush,
                    result: transport.flush_rows(&stream, offset).await,
                }
            });
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

/// A host that no longer waits does not need the answer.
fn reply<T>(to: Option<oneshot::Sender<T>>, value: T) {
    if let Some(to) = to {
        drop(to.send(value));
    }
}
