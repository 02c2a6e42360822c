//! A stream that takes rows: its connection, and what may go out on it when.

use std::collections::VecDeque;
use std::time::Duration;

use crate::failures::out_of_order;
use crate::ids::{Generation, Micros, NextOffset, RequestNumber, StreamName};
use crate::io::{Command, CoreConfig, Failure, Limits, Notice, RowErrorPolicy};
use crate::ledger::Ledger;
use crate::mutant::Mutation;

pub(crate) type Outcome = Result<(), Failure>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    pub(crate) name: StreamName,
    pub(crate) ledger: Ledger,
    pub(crate) connection: Connection,
    pub(crate) prepared: NextOffset,
    pub(crate) committed: NextOffset,
    pub(crate) last_append: Micros,
    /// Last answer on the live connection, or when it was opened.
    pub(crate) last_answer: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Connection {
    Closed,
    OpenAt(Micros),
    Live { generation: Generation, flow: Flow },
}

/// How requests go out on a live connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Flow {
    /// As many as there are.
    Free,
    /// One, until it is acknowledged: the server's end may be stale, or something failed just now.
    Alone,
    /// None: the first unacknowledged one failed; the answers behind it are echoes. Then it goes out again after the pause, or without
    /// its bad rows.
    Draining { resend_at: Micros },
}

impl Open {
    pub(crate) fn generation(&self) -> Option<Generation> {
        match self.connection {
            Connection::Live { generation, .. } => Some(generation),
            Connection::Closed | Connection::OpenAt(_) => None,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        matches!(
            self.connection,
            Connection::Live {
                flow: Flow::Draining { .. },
                ..
            }
        )
    }

    /// When the failed request goes out again; the past if none has failed.
    pub(crate) fn resend_at(&self) -> Micros {
        match self.connection {
            Connection::Live {
                flow: Flow::Draining { resend_at },
                ..
            } => resend_at,
            _ => Micros(0),
        }
    }

    pub(crate) fn answer_deadline(&self, limits: &Limits) -> Option<Micros> {
        let sent = self
            .ledger
            .oldest_sent_at()
            .filter(|_| self.generation().is_some())?;
        Some(sent.max(self.last_answer).after(answer_timeout(limits)))
    }

    pub(crate) fn answer(&mut self, request: RequestNumber, now: Micros) -> Outcome {
        self.last_answer = now;
        if self.ledger.answered(request) {
            return Ok(());
        }
        Err(out_of_order(&self.name))
    }

    /// Connects when there are rows, and sends what may go out: so many requests at most are under way then.
    pub(crate) fn pump(&mut self, most: usize, shared: &mut Shared) {
        if self.ledger.is_empty() {
            return;
        }
        match self.connection {
            Connection::OpenAt(at) if at > shared.now => return,
            Connection::Closed | Connection::OpenAt(_) => self.connect(shared),
            Connection::Live { .. } => {}
        }
        let Connection::Live { generation, flow } = &mut self.connection else {
            return;
        };
        if let Flow::Draining { resend_at } = *flow {
            if !self.ledger.is_answered() || resend_at > shared.now {
                return;
            }
            self.ledger.rewind();
            *flow = Flow::Alone;
        }
        let most = if *flow == Flow::Free { most } else { 1 };
        while self.ledger.under_way() < most {
            let Some(entry) = self.ledger.next_unsent() else {
                break;
            };
            let (offset, batch) = (entry.offset, entry.batch.id);
            let request = shared.request();
            self.ledger.mark_sent(request, shared.now);
            shared.emit(Command::Append {
                connection: *generation,
                request,
                offset: Some(offset),
                batch,
            });
        }
    }

    fn connect(&mut self, shared: &mut Shared) {
        let generation = shared.connection();
        self.last_answer = shared.now;
        // The first request goes alone: the server's end may be stale (write-api.md 2.7), and it carries the schema, which the
        // requests behind it do without.
        self.connection = Connection::Live {
            generation,
            flow: Flow::Alone,
        };
        shared.emit(Command::Connect {
            connection: generation,
            stream: self.name.clone(),
        });
    }
}

/// BigQuery's backend gives up on a request after 2 min (write-api.md 3.6), which half the default budget is above.
pub(crate) fn answer_timeout(limits: &Limits) -> Duration {
    limits.append_timeout / 2
}

/// What lanes share: the way out, the numbers, the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shared {
    pub(crate) now: Micros,
    pub(crate) limits: Limits,
    pub(crate) row_errors: RowErrorPolicy,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) salt: u64,
    pub(crate) mutation: Mutation,
    next_connection: u64,
    next_request: u64,
}

impl Shared {
    pub(crate) fn new(config: &CoreConfig, salt: u64) -> Self {
        Self {
            mutation: config.mutation,
            now: config.started_at,
            limits: config.limits.clone(),
            row_errors: config.row_errors,
            commands: VecDeque::new(),
            salt,
            next_connection: 0,
            next_request: 0,
        }
    }

    pub(crate) fn emit(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.emit(Command::Notice(notice));
    }

    pub(crate) fn connection(&mut self) -> Generation {
        self.next_connection += 1;
        Generation(self.next_connection)
    }

    pub(crate) fn request(&mut self) -> RequestNumber {
        self.next_request += 1;
        RequestNumber(self.next_request)
    }
}
