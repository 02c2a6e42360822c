//! One stream at a time, from its creation to its leaving: connection, window, resend, and what it owes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::fault::{Code, Fault, Phase, Place, Reaction, StorageCode, Verdict, classify};
use crate::ids::{Generation, Lane as LaneId, Micros, NextOffset, RequestNumber, StreamName};
use crate::io::{Command, Failure, FailureKind, Limits, Notice};
use crate::ledger::{Batch, Ledger};
use crate::open_stream::{Connection, Flow, Open, Outcome, Shared, answer_timeout};
use crate::trouble::{Budget, Class, Trouble};

/// After a reconnect the server's end may be stale for seconds (write-api.md 2.7).
const STALE_END: Duration = Duration::from_secs(30);
/// NOT_FOUND may be stale routing; a stream that is gone stays gone.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// What BigQuery says of things it made just now passes within a minute.
const FAIL_SOON: Duration = Duration::from_secs(60);
/// A BUFFERED stream lives seven idle days (write-api.md 2); long before that a new one is cheaper than the doubt.
const LEAVE_IDLE_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

/// A place for one current stream and the payloads that wait for it.
#[derive(Debug)]
pub(crate) struct Lane {
    id: LaneId,
    /// Payloads without an offset: no stream is open.
    waiting: VecDeque<Batch>,
    stream: Stream,
    left: Vec<LeftStream>,
    trouble: Trouble,
    /// A new token was asked for and nothing has moved since.
    refreshed: bool,
}

#[derive(Debug)]
enum Stream {
    None,
    Creating,
    CreateAt(Micros),
    Open(Box<Open>),
}

/// A stream that is never appended to again; its flush target is frozen (invariant 7).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftStream {
    pub(crate) name: StreamName,
    pub(crate) prepared: NextOffset,
    pub(crate) acked: NextOffset,
    pub(crate) last_append: Micros,
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
    pub(crate) fn new(id: LaneId) -> Self {
        Self {
            id,
            waiting: VecDeque::new(),
            stream: Stream::None,
            left: Vec::new(),
            trouble: Trouble::default(),
            refreshed: false,
        }
    }

    // What it holds.

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

    /// When this lane wants to be told the time again.
    pub(crate) fn next_wake(&self, limits: &Limits) -> Option<Micros> {
        match &self.stream {
            Stream::None | Stream::Creating => None,
            Stream::CreateAt(at) => Some(*at),
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
            self.leave("it was idle for days, and BigQuery drops idle streams", shared);
        }
        self.waiting.push_back(batch);
        self.advance(shared);
    }

    /// Does whatever can be done now.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        match &mut self.stream {
            Stream::None if !self.waiting.is_empty() => self.create(shared),
            Stream::CreateAt(at) if *at <= shared.now => self.create(shared),
            Stream::None | Stream::Creating | Stream::CreateAt(_) => {}
            Stream::Open(open) => {
                for batch in self.waiting.drain(..) {
                    open.ledger.push(batch);
                }
                open.pump(shared);
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
        shared.emit(Command::CreateStream { lane: self.id });
    }

    pub(crate) fn created(&mut self, name: StreamName, shared: &mut Shared) {
        if !matches!(self.stream, Stream::Creating) {
            return;
        }
        self.progress();
        self.stream = Stream::Open(Box::new(Open {
            name,
            ledger: Ledger::default(),
            connection: Connection::Closed,
            connected_before: false,
            prepared: NextOffset(0),
            committed: NextOffset(0),
            last_append: shared.now,
            last_answer: shared.now,
        }));
        self.advance(shared);
    }

    pub(crate) fn create_failed(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let verdict = classify(Phase::Create, fault);
        let pause = self.pause(verdict, fault, "creating a write stream", shared)?;
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
        open.answer(request, shared.now)?;
        if open.is_draining() {
            // The first request failed in doubt and was applied all the same; this one's resend will meet its own rows.
            open.ledger.doubt(request);
            shared.notice(Notice::EchoDiscarded);
            self.drained(shared);
            return Ok(());
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
        self.progress();
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
        open.answer(request, shared.now)?;
        let verdict = classify(Phase::Append, fault);
        if verdict.in_doubt {
            open.ledger.doubt(request);
        }
        if open.is_draining() {
            shared.notice(Notice::EchoDiscarded);
            self.drained(shared);
            return Ok(());
        }
        match verdict.reaction {
            Reaction::OffsetTaken => self.offset_taken(fault, shared),
            Reaction::LeaveStream => self.leave_for(verdict, fault, &fault.to_string(), shared),
            Reaction::Gone => self.gone(fault, shared),
            Reaction::Reconnect => {
                self.disconnect(shared);
                self.connection_lost(fault, shared)
            }
            _ => self.resend(verdict, fault, shared),
        }
    }

    /// Sends the failed request again once every answer behind it is in.
    fn resend(&mut self, verdict: Verdict, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(pause) = self.pause_or_gone(verdict, fault, shared)? else {
            return Ok(());
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
        self.drained(shared);
        Ok(())
    }

    fn drained(&mut self, shared: &mut Shared) {
        if self.open_mut().is_some_and(|open| open.ledger.is_answered()) {
            self.advance(shared);
        }
    }

    /// ALREADY_EXISTS: success for our own resend only, and only if the end covers it (invariant 5).
    fn offset_taken(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let stored = open.ledger.head().is_some_and(|entry| {
            entry.in_doubt
                && fault
                    .expected_offset
                    .is_none_or(|expected| expected >= entry.end().0)
        });
        if stored {
            shared.notice(Notice::OwnResendStored);
            self.accept_head(shared);
            return Ok(());
        }
        // Somebody else's rows are where ours should be: what was acknowledged before is ours and stays flushable.
        let verdict = classify(Phase::Append, fault);
        let reason = format!("rows that are not ours stand at its end ({fault})");
        self.leave_for(verdict, fault, &reason, shared)
    }

    // Losses.

    pub(crate) fn connection_lost(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let verdict = classify(Phase::Append, fault);
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        open.connection = Connection::Closed;
        open.ledger.lose_connection();
        shared.notice(Notice::Reconnect { fault: fault.clone() });
        if open.ledger.is_empty() && !matches!(verdict.reaction, Reaction::Gone | Reaction::LeaveStream) {
            // Nothing was under way: an idle close is normal life, and the next rows will meet what is really wrong.
            return Ok(());
        }
        match verdict.reaction {
            Reaction::OffsetTaken => return self.offset_taken(fault, shared),
            Reaction::LeaveStream => {
                return self.leave_for(verdict, fault, &fault.to_string(), shared);
            }
            Reaction::Gone => return self.gone(fault, shared),
            _ => {}
        }
        let Some(pause) = self.pause_or_gone(verdict, fault, shared)? else {
            return Ok(());
        };
        let at = shared.now.after(pause);
        if let Some(open) = self.open_mut() {
            open.connection = Connection::OpenAt(at);
        }
        Ok(())
    }

    fn disconnect(&mut self, shared: &mut Shared) {
        if let Some(connection) = self.open_mut().and_then(|open| open.generation()) {
            shared.emit(Command::Disconnect { connection });
        }
    }

    /// Leaves the stream with its flush target frozen; what was not acknowledged goes to a new one (invariant 7).
    fn leave(&mut self, reason: &str, shared: &mut Shared) {
        self.disconnect(shared);
        let Stream::Open(open) = std::mem::replace(&mut self.stream, Stream::None) else {
            return;
        };
        let Open {
            name,
            ledger,
            prepared,
            last_append,
            ..
        } = *open;
        let acked = ledger.acked();
        shared.notice(Notice::StreamLeft {
            stream: name.clone(),
            flushable: acked,
            reason: reason.into(),
        });
        if acked > prepared {
            self.left.push(LeftStream {
                name,
                prepared,
                acked,
                last_append,
            });
        }
        let newer = std::mem::take(&mut self.waiting);
        self.waiting = ledger.into_unacknowledged().chain(newer).collect();
    }

    /// Leaves the stream for a fault, unless it may be gone and owes rows: then nothing says that it can be flushed (invariant 7).
    fn leave_for(&mut self, verdict: Verdict, fault: &Fault, reason: &str, shared: &mut Shared) -> Outcome {
        let owes = self
            .open_mut()
            .is_some_and(|open| open.ledger.acked() > open.committed);
        if owes && self.trouble.has(Class::MaybeGone) {
            return self.gone(fault, shared);
        }
        self.leave(reason, shared);
        self.count_left(verdict, fault, shared)?;
        self.advance(shared);
        Ok(())
    }

    /// The stream is over: bearable only if it owes nothing (invariant 7).
    fn gone(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let (acked, committed) = (open.ledger.acked(), open.committed);
        if acked > committed {
            return Err(Failure {
                kind: FailureKind::Restart,
                message: format!(
                    "stream {} is gone with rows {committed} to {} acknowledged but not visible ({fault}); the job restarts from its checkpoint",
                    open.name,
                    acked.0 - 1
                ),
            });
        }
        self.leave(&format!("it is gone and owed nothing ({fault})"), shared);
        self.advance(shared);
        Ok(())
    }

    // Budgets.

    fn progress(&mut self) {
        self.trouble.clear();
        self.refreshed = false;
    }

    /// The pause before the next try, or `None` if the stream was taken as gone.
    fn pause_or_gone(
        &mut self,
        verdict: Verdict,
        fault: &Fault,
        shared: &mut Shared,
    ) -> Result<Option<Duration>, Failure> {
        if verdict.reaction != Reaction::MaybeGone {
            return self.pause(verdict, fault, "appending", shared).map(Some);
        }
        let pause = self.next_pause(Budget::new(Class::MaybeGone, GONE_AFTER), shared);
        if pause.is_none() {
            self.gone(fault, shared)?;
        }
        Ok(pause)
    }

    /// A stream was left: bounded, as every retry is.
    fn count_left(&mut self, verdict: Verdict, fault: &Fault, shared: &mut Shared) -> Outcome {
        let budget = Budget::new(Class::LeftStream, shared.limits.append_timeout);
        match self.next_pause(budget, shared) {
            Some(_) => Ok(()),
            None => Err(failure(FailureKind::Restart, "appending", verdict, fault)),
        }
    }

    fn pause(
        &mut self,
        verdict: Verdict,
        fault: &Fault,
        doing: &str,
        shared: &mut Shared,
    ) -> Result<Duration, Failure> {
        let limits = &shared.limits;
        let schema_lag = fault.storage_code == Some(StorageCode::SchemaMismatchExtraFields);
        let (budget, kind) = match verdict.reaction {
            Reaction::BackOff => (
                Budget::new(Class::Quota, limits.quota_timeout),
                FailureKind::Restart,
            ),
            Reaction::OffsetBeyondEnd => (Budget::new(Class::StaleEnd, STALE_END), FailureKind::Restart),
            Reaction::FailSoon => (Budget::new(Class::FailSoon, FAIL_SOON), FailureKind::User),
            Reaction::RefreshCredentials if !self.refreshed => {
                self.refreshed = true;
                shared.emit(Command::RefreshCredentials);
                return Ok(Duration::ZERO);
            }
            Reaction::RefreshCredentials | Reaction::FailForGood | Reaction::RejectRows => {
                return Err(failure(FailureKind::User, doing, verdict, fault));
            }
            _ => {
                let kind = if schema_lag {
                    FailureKind::User
                } else {
                    FailureKind::Restart
                };
                (Budget::new(Class::Passing, limits.append_timeout), kind)
            }
        };
        self.next_pause(budget, shared)
            .ok_or_else(|| failure(kind, doing, verdict, fault))
    }

    fn next_pause(&mut self, budget: Budget, shared: &Shared) -> Option<Duration> {
        let salt = shared.salt.wrapping_add(self.id.0 as u64);
        self.trouble.next_pause(budget, shared.now, salt)
    }

    // Checkpoints.

    /// What a checkpoint says of this lane's streams; only when drained.
    pub(crate) fn snapshot(&mut self) -> Vec<Snapshot> {
        assert!(
            self.is_drained(),
            "a barrier is reported only when every row is acknowledged (invariant 3)"
        );
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
            let next_offset = open.ledger.acked();
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
}

fn failure(kind: FailureKind, doing: &str, verdict: Verdict, fault: &Fault) -> Failure {
    let next = match kind {
        FailureKind::Restart => "; the job restarts from its checkpoint",
        FailureKind::User | FailureKind::Unprovable | FailureKind::Host => "",
    };
    Failure {
        kind,
        message: format!("{doing} failed: {fault} ({}){next}", verdict.reason),
    }
}
