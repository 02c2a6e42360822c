//! One stream at a time, from its creation to its leaving: connection, window, resend, and what it owes.

mod leave;
mod rows;
mod split;

use std::collections::VecDeque;
use std::time::Duration;

use crate::checkpoint::BigQuerySinkState;
use crate::failures::failure;
use crate::fault::{Code, Fault, Phase, Place, Reaction, classify};
use crate::ids::{Generation, Lane as LaneId, Micros, NextOffset, RequestNumber, StreamName};
use crate::io::{Command, Destination, Failure, FailureKind, LeaveReason, Limits, Notice, RowErrorPolicy};
use crate::ledger::{Batch, Ledger};
use crate::mutant::{LateAcks, Mutant};
use crate::open_stream::{Connection, Flow, Open, Outcome, Shared, answer_timeout};
use crate::trouble::{Next, Over, Patience};

use self::leave::LeftStream;
use self::rows::{Refused, Window};

/// A BUFFERED stream lives seven idle days (write-api.md 2); long before that a new one is cheaper than the doubt.
const LEAVE_IDLE_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

/// A place for one current stream and the payloads that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    id: LaneId,
    destination: Destination,
    /// Payloads without an offset: no stream is open.
    waiting: VecDeque<Batch>,
    stream: Stream,
    left: Vec<LeftStream>,
    patience: Patience,
    window: Window,
    refused: Refused,
    late: LateAcks,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stream {
    None,
    Creating,
    CreateAt(Micros),
    Open(Box<Open>),
}

/// A stream as a checkpoint sees it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) stream: StreamName,
    pub(crate) from: NextOffset,
    pub(crate) next_offset: NextOffset,
    pub(crate) last_append: Micros,
}

impl Lane {
    pub(crate) fn new(id: LaneId, destination: Destination) -> Self {
        Self {
            id,
            destination,
            waiting: VecDeque::new(),
            stream: Stream::None,
            left: Vec::new(),
            patience: Patience::default(),
            window: Window::default(),
            refused: Refused::None,
            late: LateAcks::default(),
        }
    }

    // What it holds.

    pub(crate) fn takes(&self, destination: Destination) -> bool {
        self.destination == destination
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.waiting.iter().map(|batch| batch.bytes).sum::<u64>() + self.ledger().map_or(0, Ledger::bytes)
    }

    pub(crate) fn queued_requests(&self) -> usize {
        self.waiting.len() + self.ledger().map_or(0, Ledger::len)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.ledger().is_none_or(Ledger::is_empty)
    }

    fn ledger(&self) -> Option<&Ledger> {
        match &self.stream {
            Stream::Open(open) => Some(&open.ledger),
            Stream::None | Stream::Creating | Stream::CreateAt(_) => None,
        }
    }

    fn open_mut(&mut self) -> Option<&mut Open> {
        match &mut self.stream {
            Stream::Open(open) => Some(open),
            Stream::None | Stream::Creating | Stream::CreateAt(_) => None,
        }
    }

    pub(crate) fn is_live(&self, connection: Generation) -> bool {
        matches!(&self.stream, Stream::Open(open)
            if matches!(open.connection, Connection::Live { generation, .. } if generation == connection))
    }

    /// Whether a connection is live.
    pub(crate) fn has_connection(&self) -> bool {
        matches!(&self.stream, Stream::Open(open) if open.generation().is_some())
    }

    /// When this lane wants to be told the time again.
    pub(crate) fn next_wake(&self, limits: &Limits) -> Option<Micros> {
        match &self.stream {
            // The driver comes next, without anything to wait for.
            _ if self.waits_for_driver() => None,
            Stream::None | Stream::Creating => None,
            Stream::CreateAt(at) => Some(*at),
            // Without rows there is nothing to connect for, whenever that could be.
            Stream::Open(open) if open.ledger.is_empty() => None,
            Stream::Open(open) => match open.connection {
                Connection::Closed => None,
                Connection::OpenAt(at) => Some(at),
                Connection::Live {
                    flow: Flow::Draining { resend_at },
                    ..
                } if open.ledger.is_answered() => Some(resend_at),
                Connection::Live { .. } => open.answer_deadline(limits),
            },
        }
    }

    // Rows and time.

    pub(crate) fn push(&mut self, batch: Batch, shared: &mut Shared) {
        let now = shared.now;
        let idle = self
            .open_mut()
            .is_some_and(|open| open.ledger.is_empty() && now.since(open.last_append) > LEAVE_IDLE_AFTER);
        if idle {
            self.leave(LeaveReason::Idle, shared);
        }
        self.waiting.push_back(batch);
        self.advance(shared);
    }

    /// Does whatever can be done now.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if self.waits_for_driver() {
            return;
        }
        match &mut self.stream {
            Stream::None if !self.waiting.is_empty() => self.create(shared),
            Stream::CreateAt(at) if *at <= shared.now => self.create(shared),
            Stream::None | Stream::Creating | Stream::CreateAt(_) => {}
            Stream::Open(open) => {
                for batch in self.waiting.drain(..) {
                    open.ledger.push(batch);
                }
                open.pump(self.window.most(), shared);
            }
        }
    }

    pub(crate) fn tick(&mut self, shared: &mut Shared) -> Outcome {
        let overdue = self.open_mut().and_then(|open| {
            let deadline = open.answer_deadline(&shared.limits)?;
            (deadline <= shared.now).then(|| open.generation()).flatten()
        });
        if let Some(connection) = overdue {
            shared.emit(Command::Disconnect { connection });
            let fault = Fault {
                code: Code::DeadlineExceeded,
                storage_code: None,
                place: Place::RpcEnd,
                expected_offset: None,
                row_errors: Vec::new(),
                message: format!("no answer for {} s", answer_timeout(&shared.limits).as_secs()),
            };
            return self.connection_lost(&fault, shared);
        }
        self.advance(shared);
        Ok(())
    }

    // Creation.

    fn create(&mut self, shared: &mut Shared) {
        self.stream = Stream::Creating;
        shared.emit(Command::CreateStream {
            lane: self.id,
            destination: self.destination,
        });
    }

    pub(crate) fn created(&mut self, name: StreamName, shared: &mut Shared) {
        if !matches!(self.stream, Stream::Creating) {
            return;
        }
        self.patience.created();
        self.stream = Stream::Open(Box::new(Open {
            name,
            ledger: Ledger::default(),
            connection: Connection::Closed,
            prepared: NextOffset(0),
            committed: NextOffset(0),
            last_append: shared.now,
            last_answer: shared.now,
        }));
        self.advance(shared);
    }

    pub(crate) fn create_failed(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        if !matches!(self.stream, Stream::Creating) {
            return Ok(());
        }
        let pause = match self.next(Phase::Create, fault, shared) {
            Ok(pause) => pause,
            Err(over) => return Err(failure(over, "creating a write stream", Phase::Create, fault)),
        };
        shared.notice(Notice::Retry {
            fault: fault.clone(),
            pause,
        });
        self.stream = Stream::CreateAt(shared.now.after(pause));
        Ok(())
    }

    // Answers.

    pub(crate) fn acked(
        &mut self,
        request: RequestNumber,
        offset: Option<u64>,
        shared: &mut Shared,
    ) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let request = due(request, open, shared);
        open.answer(request, shared.now)?;
        if open.is_draining() {
            // The first request failed in doubt and was applied all the same; this one's resend will meet its own rows.
            open.ledger.doubt(request);
            shared.notice(Notice::EchoDiscarded);
            return self.drained(shared);
        }
        let head = open.ledger.head().filter(|_| open.ledger.is_head(request));
        let expected = head.map(|entry| entry.offset.0);
        if expected.is_none() || offset != expected {
            return Err(Failure {
                kind: FailureKind::Restart,
                message: format!(
                    "BigQuery acknowledged offset {offset:?} of {} where {expected:?} was sent; the job restarts from its checkpoint",
                    open.name
                ),
            });
        }
        self.accept_head(shared);
        Ok(())
    }

    fn accept_head(&mut self, shared: &mut Shared) {
        let Some(open) = self.open_mut() else { return };
        let entry = open.ledger.accept_head();
        open.last_append = shared.now;
        if let Connection::Live { flow, .. } = &mut open.connection
            && *flow == Flow::Alone
        {
            *flow = Flow::Free;
        }
        shared.emit(Command::Release {
            batch: entry.batch.id,
        });
        self.patience.progress();
        self.window.acknowledged(&shared.limits);
        self.advance(shared);
    }

    pub(crate) fn append_failed(
        &mut self,
        request: RequestNumber,
        fault: &Fault,
        shared: &mut Shared,
    ) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let request = due(request, open, shared);
        open.answer(request, shared.now)?;
        let head_in_doubt = open.ledger.head().is_some_and(|entry| entry.in_doubt);
        let reaction = classify(Phase::Append, fault).reaction;
        if reaction == Reaction::Resend {
            open.ledger.doubt(request);
        }
        if open.is_draining() {
            self.note_echo(reaction, fault);
            shared.notice(Notice::EchoDiscarded);
            return self.drained(shared);
        }
        match reaction {
            Reaction::RejectRows => self.rows_refused(fault, shared),
            Reaction::Split => self.too_large(fault, shared),
            Reaction::OffsetTaken => self.offset_taken(head_in_doubt, fault, shared),
            Reaction::Gone => self.gone(fault, shared),
            Reaction::OffsetBeyondEnd if shared.mutation.is(Mutant::OutOfRangeAsSuccess) => {
                self.accept_head(shared);
                Ok(())
            }
            // What a new connection may mend: its routing, its schema, its token, its server.
            Reaction::Reconnect
            | Reaction::SchemaLag
            | Reaction::MaybeGone
            | Reaction::RefreshCredentials => self.reconnect(fault, shared),
            Reaction::Resend if self.patience.has_passing() => self.reconnect(fault, shared),
            _ => self.resend(fault, shared),
        }
    }

    fn reconnect(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        self.disconnect(shared);
        self.connection_lost(fault, shared)
    }

    /// Sends the failed request again once every answer behind it is in.
    fn resend(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let pause = match self.next(Phase::Append, fault, shared) {
            Ok(pause) => pause,
            Err(over) => return Err(failure(over, "appending", Phase::Append, fault)),
        };
        shared.notice(Notice::Retry {
            fault: fault.clone(),
            pause,
        });
        let resend_at = shared.now.after(pause);
        if let Some(Open {
            connection: Connection::Live { flow, .. },
            ..
        }) = self.open_mut()
        {
            *flow = Flow::Draining { resend_at };
        }
        self.drained(shared)
    }

    /// Goes on behind a failed request once every answer is in.
    fn drained(&mut self, shared: &mut Shared) -> Outcome {
        if !self.ledger().is_some_and(Ledger::is_answered) {
            return Ok(());
        }
        if self.is_named() {
            return self.settle(shared);
        }
        self.advance(shared);
        Ok(())
    }

    /// ALREADY_EXISTS: success for our own resend only, and only if the end covers it (invariant 5).
    fn offset_taken(&mut self, sent_before: bool, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let covered = open.ledger.head().is_some_and(|entry| {
            fault
                .expected_offset
                .is_none_or(|expected| expected >= entry.end().0)
        });
        if sent_before && covered || shared.mutation.is(Mutant::SwallowAlreadyExists) {
            shared.notice(Notice::OwnResendStored);
            self.accept_head(shared);
            return Ok(());
        }
        if self.owes_and_may_be_gone() {
            return self.gone(fault, shared);
        }
        // Somebody else's rows are where ours should be: what was acknowledged before is ours and stays flushable.
        self.replace(LeaveReason::ForeignRows(fault.clone()), fault, shared)
    }

    // Losses.

    pub(crate) fn connection_lost(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        // Asked before the loss puts everything unanswered in doubt.
        let head_in_doubt = open.ledger.head().is_some_and(|entry| entry.in_doubt);
        let head_alone = open.ledger.awaits_head_alone();
        let not_before = open.resend_at();
        open.connection = Connection::Closed;
        open.ledger.lose_connection();
        let idle = open.ledger.is_empty();
        match classify(Phase::Append, fault).reaction {
            Reaction::Gone => return self.gone(fault, shared),
            // Behind a row error it is about an echo.
            Reaction::OffsetTaken if !idle && !self.is_named() => {
                return self.offset_taken(head_in_doubt, fault, shared);
            }
            // Of several requests nothing tells which one has these rows, or is too large; after a reconnect the first goes alone.
            Reaction::RejectRows if head_alone => return self.rows_refused(fault, shared),
            Reaction::Split if head_alone => return self.too_large(fault, shared),
            _ if idle => {
                // An idle close is normal life, and the next rows will meet what is really wrong.
                shared.notice(Notice::Reconnect { fault: fault.clone() });
                return Ok(());
            }
            _ => {}
        }
        let pause = match self.next(Phase::Append, fault, shared) {
            Ok(pause) => pause,
            Err(Over::Gone) => return self.gone(fault, shared),
            Err(over) => return Err(failure(over, "appending", Phase::Append, fault)),
        };
        shared.notice(Notice::Reconnect { fault: fault.clone() });
        let at = shared.now.after(pause).max(not_before);
        if let Some(open) = self.open_mut() {
            open.connection = Connection::OpenAt(at);
        }
        if self.is_named() {
            self.settle(shared)?;
            if matches!(self.stream, Stream::None) {
                self.stream = Stream::CreateAt(at);
            }
        }
        Ok(())
    }

    fn disconnect(&mut self, shared: &mut Shared) {
        if let Some(connection) = self.open_mut().and_then(|open| open.generation()) {
            shared.emit(Command::Disconnect { connection });
        }
    }

    /// The pause before the next try, or how patience ended.
    fn next(&mut self, phase: Phase, fault: &Fault, shared: &mut Shared) -> Result<Duration, Over> {
        let salt = self.salt(shared);
        let reaction = match classify(phase, fault).reaction {
            Reaction::RejectRows if shared.row_errors == RowErrorPolicy::DeadLetter => Reaction::Reconnect,
            reaction => reaction,
        };
        match self
            .patience
            .next(phase, reaction, &shared.limits, shared.now, salt)
        {
            Next::Retry(pause) => Ok(pause),
            Next::Refresh => {
                shared.emit(Command::RefreshCredentials);
                Ok(Duration::ZERO)
            }
            Next::Over(over) => Err(over),
        }
    }

    fn salt(&self, shared: &Shared) -> u64 {
        shared.salt.wrapping_add(self.id.0 as u64)
    }

    // Checkpoints.

    /// What a checkpoint says of this lane's streams; only when drained.
    pub(crate) fn snapshot(&mut self, shared: &Shared) -> Vec<Snapshot> {
        assert!(
            self.is_drained(),
            "a barrier is reported only when every row is acknowledged (invariant 3)"
        );
        if shared.mutation.is(Mutant::ForgetFirstOfTwoStreams) {
            self.left.clear();
        }
        let mut snapshots: Vec<Snapshot> = self
            .left
            .drain(..)
            .map(|left| Snapshot {
                stream: left.name,
                from: left.prepared,
                next_offset: left.acked,
                last_append: left.last_append,
            })
            .collect();
        if let Some(open) = self.open_mut() {
            let mut next_offset = open.ledger.acked();
            if shared.mutation.is(Mutant::AckOffByOne) {
                next_offset = NextOffset(next_offset.0.saturating_sub(1));
            }
            snapshots.push(Snapshot {
                stream: open.name.clone(),
                from: open.prepared,
                next_offset,
                last_append: open.last_append,
            });
            open.prepared = next_offset;
        }
        snapshots
    }

    /// Rows of a stream are visible up to here.
    pub(crate) fn flushed(&mut self, stream: &StreamName, end: NextOffset) {
        if let Some(open) = self.open_mut().filter(|open| open.name == *stream) {
            open.committed = open.committed.max(end);
        }
    }

    // Mistakes made on purpose.

    /// Goes on with a stream of an earlier life.
    pub(crate) fn adopt(&mut self, stream: &BigQuerySinkState, shared: &Shared) {
        self.stream = Stream::Open(Box::new(Open {
            name: stream.stream.clone(),
            ledger: Ledger::beginning_at(stream.next_offset),
            connection: Connection::Closed,
            prepared: stream.next_offset,
            committed: stream.next_offset,
            last_append: shared.now,
            last_answer: shared.now,
        }));
    }

    /// Moves the frozen target of a stream that was left.
    pub(crate) fn late_ack(&mut self, request: RequestNumber) {
        if let Some((stream, end)) = self.late.take(request) {
            let left = self.left.iter_mut().find(|left| left.name == stream);
            left.into_iter().for_each(|left| left.acked = left.acked.max(end));
        }
    }
}

/// The request that was answered.
fn due(answered: RequestNumber, open: &Open, shared: &Shared) -> RequestNumber {
    if shared.mutation.is(Mutant::NoGenerationCheck) {
        return open.ledger.due().unwrap_or(answered);
    }
    answered
}
