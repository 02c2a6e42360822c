//! One connection to a default stream, and the payloads that go out on it.
//!
//! Requests carry no offset, so each stands for itself: one that is refused goes out again while those behind it are stored, and nothing
//! tells whether one whose answer was lost is stored too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::failures::{check_removal, dead_letter_refused, failure, names_no_row, out_of_order};
use crate::fault::{Code, Fault, Phase, Place, Reaction, classify};
use crate::ids::{BatchId, Generation, Micros, RequestNumber, RowCount, StreamName};
use crate::io::{Command, Destination, Failure, Limits, Notice, RowErrorPolicy};
use crate::ledger::Batch;
use crate::open_stream::{Outcome, Shared, answer_timeout};
use crate::trouble::{Next, Over, Patience};

/// A place for one connection. Payloads keep their place in the order in which they came, wherever they are: what goes out again goes
/// out before newer ones. A place is the number of the payload's first row, so that both parts of one that is cut have theirs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    salt: u64,
    destination: Destination,
    pub(super) stream: StreamName,
    next_place: u64,
    /// To be sent, for the first time or again.
    pub(super) waiting: BTreeMap<u64, Batch>,
    /// Sent on the live connection, in the order of the answers that are due.
    under_way: VecDeque<Sent>,
    /// The driver takes bad rows out of these.
    removing: BTreeMap<u64, Batch>,
    /// The driver cuts these in two.
    pub(super) splitting: BTreeMap<u64, Batch>,
    connection: Connection,
    /// Last answer on the live connection, or when it was opened.
    last_answer: Micros,
    patience: Patience,
    /// Rows acknowledged since the last checkpoint.
    acked: RowCount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) place: u64,
    pub(super) batch: Batch,
    request: RequestNumber,
    sent_at: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Connection {
    Closed,
    OpenAt(Micros),
    Live { generation: Generation, flow: Flow },
}

/// How requests go out on a live connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flow {
    /// As many as there are.
    Free,
    /// One, until it is acknowledged: it carries the schema, or something failed just now.
    Alone,
    /// None before this time and before every answer is in, then one.
    Paused(Micros),
}

impl Lane {
    pub(super) fn new(salt: u64, destination: Destination, stream: StreamName) -> Self {
        Self {
            salt,
            destination,
            stream,
            next_place: 0,
            waiting: BTreeMap::new(),
            under_way: VecDeque::new(),
            removing: BTreeMap::new(),
            splitting: BTreeMap::new(),
            connection: Connection::Closed,
            last_answer: Micros(0),
            patience: Patience::default(),
            acked: RowCount(0),
        }
    }

    // What it holds.

    pub(super) fn takes(&self, destination: Destination) -> bool {
        self.destination == destination
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued().map(|batch| batch.bytes).sum()
    }

    pub(super) fn queued_requests(&self) -> usize {
        self.queued().count()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.queued().next().is_none()
    }

    fn queued(&self) -> impl Iterator<Item = &Batch> {
        let sent = self.under_way.iter().map(|sent| &sent.batch);
        let changing = self.removing.values().chain(self.splitting.values());
        self.waiting.values().chain(sent).chain(changing)
    }

    pub(super) fn is_live(&self, connection: Generation) -> bool {
        self.generation() == Some(connection)
    }

    fn generation(&self) -> Option<Generation> {
        match self.connection {
            Connection::Live { generation, .. } => Some(generation),
            Connection::Closed | Connection::OpenAt(_) => None,
        }
    }

    /// When this lane wants to be told the time again.
    pub(super) fn next_wake(&self, limits: &Limits) -> Option<Micros> {
        match self.connection {
            // Without rows there is nothing to connect for.
            _ if self.waiting.is_empty() && self.under_way.is_empty() => None,
            Connection::Closed => None,
            Connection::OpenAt(at) => Some(at),
            Connection::Live {
                flow: Flow::Paused(until),
                ..
            } if self.under_way.is_empty() => Some(until),
            Connection::Live { .. } => self.answer_deadline(limits),
        }
    }

    fn answer_deadline(&self, limits: &Limits) -> Option<Micros> {
        let sent = self.under_way.front()?.sent_at;
        Some(sent.max(self.last_answer).after(answer_timeout(limits)))
    }

    /// Rows acknowledged since this was asked last.
    pub(super) fn take_acked(&mut self) -> RowCount {
        std::mem::take(&mut self.acked)
    }

    // Rows and time.

    pub(super) fn push(&mut self, batch: Batch, shared: &mut Shared) {
        self.waiting.insert(self.next_place, batch);
        self.next_place += batch.rows.0;
        self.pump(shared);
    }

    /// Connects when there are rows, and sends what may go out.
    pub(super) fn pump(&mut self, shared: &mut Shared) {
        match self.connection {
            _ if self.waiting.is_empty() => return,
            Connection::OpenAt(at) if at > shared.now => return,
            Connection::Closed | Connection::OpenAt(_) => self.connect(shared),
            Connection::Live { .. } => {}
        }
        let Connection::Live { generation, flow } = &mut self.connection else {
            return;
        };
        if let Flow::Paused(until) = *flow {
            if until > shared.now || !self.under_way.is_empty() {
                return;
            }
            *flow = Flow::Alone;
        }
        let most = if *flow == Flow::Free { usize::MAX } else { 1 };
        while self.under_way.len() < most
            && let Some((place, batch)) = self.waiting.pop_first()
        {
            let request = shared.request();
            self.under_way.push_back(Sent {
                place,
                batch,
                request,
                sent_at: shared.now,
            });
            shared.emit(Command::Append {
                connection: *generation,
                request,
                offset: None,
                batch: batch.id,
            });
        }
    }

    fn connect(&mut self, shared: &mut Shared) {
        let generation = shared.connection();
        self.last_answer = shared.now;
        self.connection = Connection::Live {
            generation,
            flow: Flow::Alone,
        };
        shared.emit(Command::Connect {
            connection: generation,
            stream: self.stream.clone(),
        });
    }

    pub(super) fn tick(&mut self, shared: &mut Shared) -> Outcome {
        let overdue = self
            .answer_deadline(&shared.limits)
            .is_some_and(|deadline| deadline <= shared.now);
        if overdue {
            let fault = Fault {
                code: Code::DeadlineExceeded,
                storage_code: None,
                place: Place::RpcEnd,
                expected_offset: None,
                row_errors: Vec::new(),
                message: format!("no answer for {} s", answer_timeout(&shared.limits).as_secs()),
            };
            return self.reconnect(&fault, shared);
        }
        self.pump(shared);
        Ok(())
    }

    // Answers.

    pub(super) fn acked(&mut self, request: RequestNumber, shared: &mut Shared) -> Outcome {
        let sent = self.answered(request, shared.now)?;
        self.acked.0 += sent.batch.rows.0;
        shared.emit(Command::Release { batch: sent.batch.id });
        self.patience.progress();
        if let Connection::Live { flow, .. } = &mut self.connection
            && *flow == Flow::Alone
        {
            *flow = Flow::Free;
        }
        self.pump(shared);
        Ok(())
    }

    pub(super) fn append_failed(
        &mut self,
        request: RequestNumber,
        fault: &Fault,
        shared: &mut Shared,
    ) -> Outcome {
        let sent = self.answered(request, shared.now)?;
        let reaction = classify(Phase::DefaultAppend, fault).reaction;
        match reaction {
            Reaction::RejectRows => return self.rows_refused(sent, fault, shared),
            Reaction::Split => return self.too_large(sent, fault, shared),
            _ => {}
        }
        self.waiting.insert(sent.place, sent.batch);
        match reaction {
            Reaction::BackOff => self.pause(fault, shared),
            // The first of several under way has paused for all of them.
            Reaction::Resend if self.is_paused() || !self.patience.has_passing() => self.pause(fault, shared),
            // What a new connection may mend: its routing, its schema, its token, its server.
            _ => self.reconnect(fault, shared),
        }
    }

    /// The request whose answer is due.
    fn answered(&mut self, request: RequestNumber, now: Micros) -> Result<Sent, Failure> {
        self.last_answer = now;
        let due = self.under_way.pop_front_if(|sent| sent.request == request);
        due.ok_or_else(|| out_of_order(&self.stream))
    }

    fn is_paused(&self) -> bool {
        matches!(
            self.connection,
            Connection::Live {
                flow: Flow::Paused(_),
                ..
            }
        )
    }

    /// Sends what was refused again, on the same connection, after a pause.
    fn pause(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        if !self.is_paused() {
            let pause = self.next(fault, shared)?;
            shared.notice(Notice::Retry {
                fault: fault.clone(),
                pause,
            });
            if let Connection::Live { flow, .. } = &mut self.connection {
                *flow = Flow::Paused(shared.now.after(pause));
            }
        }
        self.pump(shared);
        Ok(())
    }

    // Losses.

    fn reconnect(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        if let Some(connection) = self.generation() {
            shared.emit(Command::Disconnect { connection });
        }
        self.connection_lost(fault, shared)
    }

    /// Everything unanswered goes out again: some of it may be stored already.
    pub(super) fn connection_lost(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let not_before = match self.connection {
            Connection::Live {
                flow: Flow::Paused(until),
                ..
            } => until,
            _ => Micros(0),
        };
        self.connection = Connection::Closed;
        let reaction = classify(Phase::DefaultAppend, fault).reaction;
        // Of several requests nothing tells which one it is about.
        if let (1, Reaction::RejectRows | Reaction::Split) = (self.under_way.len(), reaction)
            && let Some(sent) = self.under_way.pop_front()
        {
            return match reaction {
                Reaction::Split => self.too_large(sent, fault, shared),
                _ => self.rows_refused(sent, fault, shared),
            };
        }
        let unanswered = self.under_way.drain(..);
        self.waiting
            .extend(unanswered.map(|sent| (sent.place, sent.batch)));
        if self.waiting.is_empty() {
            // An idle close is normal life, and the next rows will meet what is really wrong.
            shared.notice(Notice::Reconnect { fault: fault.clone() });
            return Ok(());
        }
        let pause = self.next(fault, shared)?;
        shared.notice(Notice::Reconnect { fault: fault.clone() });
        self.connection = Connection::OpenAt(shared.now.after(pause).max(not_before));
        Ok(())
    }

    /// The pause before the next try.
    fn next(&mut self, fault: &Fault, shared: &mut Shared) -> Result<Duration, Failure> {
        let salt = shared.salt.wrapping_add(self.salt);
        let reaction = match classify(Phase::DefaultAppend, fault).reaction {
            // It came as the end of a call with several requests; alone, the one with these rows will show.
            Reaction::RejectRows if shared.row_errors == RowErrorPolicy::DeadLetter => Reaction::Reconnect,
            reaction => reaction,
        };
        let over = |over: Over| failure(over, "appending", Phase::DefaultAppend, fault);
        match self
            .patience
            .next(Phase::DefaultAppend, reaction, &shared.limits, shared.now, salt)
        {
            Next::Retry(pause) => Ok(pause),
            Next::Refresh => {
                shared.emit(Command::RefreshCredentials);
                Ok(Duration::ZERO)
            }
            Next::Over(how) => Err(over(how)),
        }
    }

    // Rows that BigQuery refuses.

    pub(super) fn rows_refused(&mut self, sent: Sent, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Sent { place, batch, .. } = sent;
        if shared.row_errors == RowErrorPolicy::Fail {
            return Err(failure(Over::User, "appending", Phase::DefaultAppend, fault));
        }
        if self.destination == Destination::DeadLetters {
            return Err(dead_letter_refused(fault));
        }
        let rows = fault.rows_within(batch.rows);
        if rows.is_empty() {
            // Each round takes out one row at least, so that a request cannot go round for ever.
            return Err(names_no_row(fault, batch.rows, &self.stream));
        }
        self.removing.insert(place, batch);
        shared.notice(Notice::RowsRejected {
            stream: self.stream.clone(),
            rows: RowCount(rows.len() as u64),
        });
        shared.emit(Command::RemoveRows {
            batch: batch.id,
            rows,
        });
        self.pump(shared);
        Ok(())
    }

    /// Whether the driver is taking rows out of this payload.
    pub(super) fn is_removing_from(&self, batch: BatchId) -> bool {
        self.removing.values().any(|removing| removing.id == batch)
    }

    /// A request has its good rows only.
    pub(super) fn rows_removed(
        &mut self,
        id: BatchId,
        left: RowCount,
        bytes: u64,
        dead_letters: RowCount,
        shared: &mut Shared,
    ) -> Outcome {
        let mut removing = self.removing.iter();
        let Some((&place, &batch)) = removing.find(|(_, batch)| batch.id == id) else {
            return Ok(());
        };
        check_removal(batch.rows, left, dead_letters)?;
        self.removing.remove(&place);
        if left.0 == 0 {
            shared.emit(Command::Release { batch: id });
        } else {
            let rows = left;
            self.waiting.insert(place, Batch { id, rows, bytes });
        }
        self.pump(shared);
        Ok(())
    }
}
