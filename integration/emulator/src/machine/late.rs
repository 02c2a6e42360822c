//! Calls that their clients have lost and that are done later (fault `apply_late`): zombies.

use std::collections::BTreeMap;
use std::fmt;

use bigquery_write_proto::wire::AppendRowsRequest;

use super::Machine;
use super::append::{Event, Output};
use super::connection::{Connection, ConnectionId};
use super::delivery::{Delivery, Passage};
use super::refusal::Refusal;
use crate::catalog::Millis;

/// So many wait at most; one more is done at once.
const WAITING: usize = 1000;

/// What is still to be done, by the time at which it is due and the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: BTreeMap<(Millis, u64), Work>,
    ever: u64,
}

/// A call to be done.
pub(super) enum Work {
    /// A request, and what its connection had said before.
    Append {
        connection: Box<Connection>,
        request: Box<AppendRowsRequest>,
    },
    /// Any other call.
    Call(Call),
}

/// Does a call; nobody hears the answer.
type Call = Box<dyn FnOnce(&mut Machine, Millis) + Send>;

impl Machine {
    /// When the next late call is due: time for a [`Machine::tick`].
    pub fn late_deadline(&self) -> Option<Millis> {
        self.late.waiting.keys().next().map(|(due, _)| *due)
    }

    /// A request that is put off leaves its call: the call ends with what is said, or hangs with nothing said.
    pub(super) fn hang_up(
        &mut self,
        id: ConnectionId,
        connection: &Connection,
        said: Option<Refusal>,
        delivery: Delivery,
    ) -> Option<Output> {
        let passage = match &said {
            Some(_) => {
                self.release(id, connection);
                Passage::Whole
            }
            None => {
                self.connections.insert(id, connection.stub());
                Passage::Never
            }
        };
        (said.is_some() || delivery.go_away).then_some(Output {
            connection: id,
            delivery: Delivery { passage, ..delivery },
            event: Event::End(said),
        })
    }

    pub(super) fn put_off_append(
        &mut self,
        now: Millis,
        ms: u64,
        connection: Connection,
        request: &AppendRowsRequest,
    ) {
        let work = Work::Append {
            connection: Box::new(connection),
            request: Box::new(request.clone()),
        };
        self.put_off(now, ms, work);
    }

    pub(super) fn put_off(&mut self, now: Millis, ms: u64, work: Work) {
        if self.late.waiting.len() == WAITING {
            return self.work(now, work);
        }
        let due = now.saturating_add(i64::try_from(ms).unwrap_or(Millis::MAX));
        self.late.ever += 1;
        self.late.waiting.insert((due, self.late.ever), work);
    }

    /// Does what is due by now, each at its own time: when it is looked at changes nothing.
    pub(crate) fn catch_up(&mut self, now: Millis) {
        while let Some(next) = self.late.waiting.first_entry().filter(|next| next.key().0 <= now) {
            let ((due, _), work) = next.remove_entry();
            self.work(due, work);
        }
    }

    fn work(&mut self, now: Millis, work: Work) {
        match work {
            Work::Call(call) => call(self, now),
            // It takes no stream from anybody.
            Work::Append {
                mut connection,
                request,
            } => {
                if let Ok(target) = connection.destination(&request, &self.switches) {
                    let mut ends = Vec::new();
                    drop(self.perform(now, None, &mut connection, &request, &target, &mut ends));
                }
            }
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { connection, .. } => f.debug_tuple("Append").field(connection).finish(),
            Self::Call(_) => f.write_str("Call"),
        }
    }
}
