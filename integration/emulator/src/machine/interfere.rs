//! Where faults act on calls: the plan's, and those that Google's fault tables bring by their names.

use std::ops::Range;

use bigquery_write_proto::wire::AppendRowsRequest;

use super::Machine;
use super::behaviour::Behaviour;
use super::connection::ConnectionId;
use super::delivery::{Delivery, Passage, Reply};
use super::effect::Effect;
use super::history::Call;
use super::late::Work;
use super::names::Target;
use super::refusal::{Code, Refusal};
use crate::catalog::{Millis, TableRef};
use crate::faults::{Delivered, Fate, Fired, Rpc, Subject, Upset};
use crate::rows;

/// A table of that name ends its calls now and then (testing.md 3.1).
const RECONNECTS: &str = "_reconnect_on_close";
/// A table of that name is hard to open calls on.
const HARD_TO_OPEN: &str = "_initial_connect_failure";

impl Machine {
    /// One unary call: asks for a token, lets faults interfere, then acts; and records all that.
    pub(super) fn call<T>(
        &mut self,
        call: Call,
        request: String,
        table: &TableRef,
        stream: Option<&Target>,
        act: impl Fn(&mut Self, Millis) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        self.catch_up(call.at_ms);
        let reply = self.act(&call, table, stream, act);
        self.record_exchange(&call, request, &reply.result.as_ref().map(|_| "OK".to_owned()));
        self.calls.record(call);
        reply
    }

    fn act<T>(
        &mut self,
        call: &Call,
        table: &TableRef,
        stream: Option<&Target>,
        act: impl Fn(&mut Self, Millis) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        let (now, rpc, routing) = (call.at_ms, call.rpc, call.routing.clone());
        if let Err(refusal) = self.check_token(call.authorization.as_deref()) {
            return Reply::at_once(Err(refusal));
        }
        let mut fired = Fired::default();
        self.fire(now, rpc, table, stream, None, &mut fired);
        self.upset(now, &fired.upsets, table, stream);
        let home = table.clone();
        let act = move |machine: &mut Self, now| {
            machine.check_routing(routing.as_deref(), &home)?;
            act(machine, now)
        };
        let (passage, result) = match fired.fate {
            None => (Passage::Whole, act(self, now)),
            Some(fate) => self.meet(now, fate, act),
        };
        let delivery = Delivery {
            passage,
            ..fired.delivery
        };
        Reply { delivery, result }
    }

    /// A unary call about which a fault decides.
    fn meet<T>(
        &mut self,
        now: Millis,
        fate: Fate,
        act: impl Fn(&mut Self, Millis) -> Result<T, Refusal> + Send + 'static,
    ) -> (Passage, Result<T, Refusal>) {
        match fate {
            Fate::Refused(refusal) => (Passage::Whole, Err(refusal)),
            Fate::Closed | Fate::Broken => (Passage::Reset, Err(unheard())),
            Fate::Cut { applied } => {
                if applied {
                    drop(act(self, now));
                }
                (Passage::Cut, Err(unheard()))
            }
            Fate::Lost(said) => {
                drop(act(self, now));
                (Passage::Whole, Err(said))
            }
            Fate::Late { ms, said } => {
                self.put_off(
                    now,
                    ms,
                    Work::Call(Box::new(move |machine, now| drop(act(machine, now)))),
                );
                match said {
                    Some(said) => (Passage::Whole, Err(said)),
                    None => (Passage::Never, Err(unheard())),
                }
            }
            Fate::Twice(answer) => {
                let (first, second) = (act(self, now), act(self, now));
                let seen = match answer {
                    Delivered::First => first,
                    Delivered::Second => second,
                };
                (Passage::Whole, seen)
            }
        }
    }

    /// What the plan has for an append.
    pub(super) fn fire_append(
        &mut self,
        now: Millis,
        id: ConnectionId,
        opening: bool,
        target: &Target,
        request: &AppendRowsRequest,
    ) -> Fired {
        let mut fired = Fired::default();
        let rows = self.brings(target, request);
        let append = Some((id, opening, rows));
        if opening {
            self.fire(
                now,
                Rpc::AppendRowsOpen,
                &target.table,
                Some(target),
                append.clone(),
                &mut fired,
            );
        }
        self.fire(
            now,
            Rpc::AppendRows,
            &target.table,
            Some(target),
            append,
            &mut fired,
        );
        fired
    }

    fn fire(
        &mut self,
        now: Millis,
        rpc: Rpc,
        table: &TableRef,
        stream: Option<&Target>,
        append: Option<(ConnectionId, bool, Option<Range<u64>>)>,
        fired: &mut Fired,
    ) {
        if !self.keeps(Behaviour::FaultsFire) {
            return;
        }
        let end = stream.and_then(|target| self.end(target));
        let (connection, opening, rows) = match append {
            Some((connection, opening, rows)) => (Some(connection), opening, rows),
            None => (None, false, None),
        };
        let subject = Subject {
            rpc,
            table: &table.path(),
            stream: stream.map(|target| target.name.as_str()),
            end,
            connection,
            opening,
            rows,
        };
        self.faults.fire(now, &subject, fired);
    }

    /// Rows of a stream; of a default stream, of its table.
    fn end(&self, target: &Target) -> Option<u64> {
        if target.default {
            let table = self.catalog().table(&target.table);
            return table.ok().map(|table| table.row_count());
        }
        self.state.streams().get(&target.name).map(|stream| stream.end)
    }

    /// Offsets of an append's rows, if some rule asks for them.
    fn brings(&self, target: &Target, request: &AppendRowsRequest) -> Option<Range<u64>> {
        if target.default || !self.faults.ask_for_rows() {
            return None;
        }
        let from = match request.offset {
            Some(offset) => u64::try_from(offset).ok()?,
            None => self.end(target)?,
        };
        let count = request.rows.as_ref().map_or(0, rows::count);
        Some(from..from.saturating_add(count))
    }

    /// Lets the world change before a call.
    pub(super) fn upset(&mut self, now: Millis, upsets: &[Upset], table: &TableRef, stream: Option<&Target>) {
        for upset in upsets {
            match upset {
                Upset::ExpireStream => {
                    let name = stream.map(|target| &target.name);
                    let known = name.filter(|name| self.state.streams().contains_key(*name));
                    if let Some(name) = known.cloned() {
                        let streams = vec![name];
                        // What cannot be kept does not happen, and the call says so.
                        drop(self.apply(&Effect::StreamsForgotten { streams, at_ms: now }));
                    }
                }
                Upset::RecreateTable => {
                    if let Ok(old) = self.catalog().table(table) {
                        let (schema, rest) = (old.schema.clone(), old.rest.clone());
                        drop(self.replace_table(table, schema, rest, now));
                    }
                }
            }
        }
    }

    /// Google's fault tables: an opening fails some times before one is let in.
    pub(super) fn fail_opening(&mut self, target: &Target) -> Result<(), Refusal> {
        let hard = target.table.table.ends_with(HARD_TO_OPEN) && self.keeps(Behaviour::HardToOpenTables);
        if !hard || self.end(target).is_none() {
            return Ok(());
        }
        let failed = self.failed_openings.entry(target.name.clone()).or_default();
        if *failed < self.switches.failed_openings {
            *failed += 1;
            let text = format!("The service is currently unavailable. Entity: {}", target.name);
            return Err(Refusal::new(Code::Unavailable, text));
        }
        self.failed_openings.remove(&target.name);
        Ok(())
    }

    /// Google's fault tables: how a call ends that has answered so many requests.
    pub(super) fn reconnect(&self, answered: u64, target: Option<&Target>) -> Option<Refusal> {
        let target = target.filter(|target| target.table.table.ends_with(RECONNECTS))?;
        let over = answered >= self.switches.reconnect_after_requests;
        let over = over && self.keeps(Behaviour::ReconnectingTables);
        over.then(|| {
            let mut refusal = Refusal::restarted();
            refusal.message.push_str(" Entity: ");
            refusal.message.push_str(&target.name);
            refusal
        })
    }

    /// Forgets failed openings of streams that are gone.
    pub(super) fn forget_openings(&mut self) {
        let streams = self.state.streams();
        self.failed_openings
            .retain(|name, _| streams.contains_key(name) || name.ends_with("/_default"));
    }
}

/// Stands for an answer that does not arrive.
fn unheard() -> Refusal {
    Refusal::new(Code::Unknown, "No answer (injected fault).")
}
