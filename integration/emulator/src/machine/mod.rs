//! BigQuery as a pure state machine: requests in, answers out, the clock an argument.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use crate::catalog::{Catalog, CatalogError, Millis, Table, TableRef};
use crate::faults::{FaultPlan, FaultReport, Faults, Fired, Rpc};
use append::Connection;
use names::Target;
use quota::Quotas;
use refusal::known;
use stream::Stream;

pub use append::{ConnectionId, Event, Output};
pub use behaviour::Behaviour;
pub use history::{Call, CallLog, Visibility, VisibilityLog};
pub use refusal::{Code, Refusal};
pub use stream::{StreamInfo, StreamKind};
pub use switches::{FlushBelow, FlushUnset, MissingTable, Switches};

mod append;
mod behaviour;
mod history;
mod names;
mod quota;
mod refusal;
mod stream;
mod switches;
mod unary;

/// Everything the emulator knows. It does no I/O, reads no clock and draws no random number.
#[derive(Debug, Default)]
pub struct Machine {
    /// Datasets and tables.
    pub catalog: Catalog,
    switches: Switches,
    faults: Faults,
    /// By full name.
    streams: BTreeMap<String, Stream>,
    streams_ever: u64,
    /// Makes stream ids differ between runs.
    seed: u128,
    connections: BTreeMap<ConnectionId, Connection>,
    connections_ever: u64,
    quotas: Quotas,
    visible: VisibilityLog,
    calls: CallLog,
}

/// What came with a call beside its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMeta {
    /// `authorization`, as it came.
    pub authorization: Option<String>,
    /// `x-goog-request-params`, as it came.
    pub routing: Option<String>,
}

/// The answer to a unary call, and how long the shell is to hold it back.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<T> {
    /// Milliseconds to wait before answering.
    pub delay_ms: u64,
    /// The answer.
    pub result: Result<T, Refusal>,
}

impl Machine {
    /// A machine without datasets. `seed` makes its stream ids its own; everything else is determined by the calls.
    pub fn new(switches: Switches, faults: FaultPlan, seed: u128) -> Self {
        Self {
            switches,
            faults: Faults::new(faults),
            seed,
            ..Self::default()
        }
    }

    /// Makes rows visible that did not come over a write stream (`insertAll`, a query's INSERT). They have the
    /// table's canonical Arrow schema.
    ///
    /// # Errors
    /// `NotFound`, `WrongColumns`.
    pub fn publish(&mut self, table: &TableRef, rows: RecordBatch, now: Millis) -> Result<(), CatalogError> {
        let from = self.catalog.table(table)?.row_count();
        let to = from + rows.num_rows() as u64;
        self.catalog.push_rows(table, rows, now)?;
        let table = table.clone();
        self.record_visible(Visibility {
            at_ms: now,
            table,
            stream: None,
            from,
            to,
        });
        Ok(())
    }

    /// What became visible, in order.
    pub fn visible(&self) -> &VisibilityLog {
        &self.visible
    }

    /// As [`Machine::visible`], to set an observer.
    pub fn visible_mut(&mut self) -> &mut VisibilityLog {
        &mut self.visible
    }

    /// The calls received last.
    pub fn calls(&self) -> &CallLog {
        &self.calls
    }

    /// Every live stream, by name.
    pub fn streams(&self) -> Vec<StreamInfo> {
        self.streams.values().map(Stream::info).collect()
    }

    /// How many streams were ever created.
    pub fn streams_created(&self) -> u64 {
        self.streams_ever
    }

    /// How many `AppendRows` calls are open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Each fault rule with its counts.
    pub fn faults(&self) -> Vec<FaultReport> {
        self.faults.report()
    }

    /// Replaces the fault plan; counts start again.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.faults = Faults::new(plan);
    }

    /// The switches in force.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Throws switches, in the middle of a run too.
    pub fn switches_mut(&mut self) -> &mut Switches {
        &mut self.switches
    }

    /// Lets time pass: closes idle `AppendRows` calls and forgets streams whose life is over.
    pub fn tick(&mut self, now: Millis) -> Vec<Output> {
        let switches = &self.switches;
        self.streams.retain(|_, stream| !stream.expired(switches, now));
        self.close_idle(now)
    }

    /// One unary call: records it, asks for a token, lets faults interfere, then acts.
    fn call<T>(
        &mut self,
        call: Call,
        table: &TableRef,
        stream: Option<&str>,
        act: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Reply<T> {
        let (rpc, token, routing) = (call.rpc, call.authorization.clone(), call.routing.clone());
        self.calls.record(call);
        if let Err(refusal) = self.check_token(token.as_deref()) {
            return Reply {
                delay_ms: 0,
                result: Err(refusal),
            };
        }
        let Fired {
            delay_ms,
            refuse,
            lose,
        } = self.fire(rpc, table, stream);
        if let Some(refusal) = refuse {
            return Reply {
                delay_ms,
                result: Err(refusal),
            };
        }
        let result = match self.check_routing(routing.as_deref(), table) {
            Ok(()) => act(self),
            Err(refusal) => Err(refusal),
        };
        Reply {
            delay_ms,
            result: lose.map_or(result, Err),
        }
    }

    /// Whether the emulator behaves so.
    fn keeps(&self, behaviour: Behaviour) -> bool {
        self.switches.keeps(behaviour)
    }

    fn fire(&mut self, rpc: Rpc, table: &TableRef, stream: Option<&str>) -> Fired {
        if self.keeps(Behaviour::FaultsFire) {
            self.faults.fire(rpc, &table.path(), stream)
        } else {
            Fired::default()
        }
    }

    fn record_visible(&mut self, change: Visibility) {
        if self.keeps(Behaviour::VisibilityRecorded) {
            self.visible.record(change);
        }
    }

    fn check_token(&self, authorization: Option<&str>) -> Result<(), Refusal> {
        let tokens = self.switches.require_token.as_ref();
        let Some(tokens) = tokens.filter(|_| self.keeps(Behaviour::TokensChecked)) else {
            return Ok(());
        };
        let given = authorization.and_then(|text| text.strip_prefix("Bearer "));
        if given.is_some_and(|given| tokens.iter().any(|token| token == given)) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Unauthenticated,
            "Request had invalid authentication credentials. Expected OAuth 2 access token.",
        ))
    }

    /// Without the routing header a request goes to the US, which knows no tables of other places.
    fn check_routing(&self, header: Option<&str>, table: &TableRef) -> Result<(), Refusal> {
        let Ok(dataset) = self.catalog.dataset(&table.dataset_ref()) else {
            return Ok(());
        };
        let needed = self.switches.routing_header_required && self.keeps(Behaviour::RoutingHeaderNeeded);
        let at_home = dataset.location.eq_ignore_ascii_case("us") || !needed;
        if at_home || names::routed(header, table, &dataset.location) {
            return Ok(());
        }
        Err(known::permission_denied(&table.path()))
    }

    fn table(&self, name: &TableRef) -> Result<&Table, Refusal> {
        self.catalog
            .table(name)
            .map_err(|error| match self.switches.missing_table {
                _ if !self.keeps(Behaviour::MissingTableNotFound) => {
                    Refusal::new(Code::Unknown, error.to_string())
                }
                MissingTable::NotFound => known::table_not_found(&name.path()),
                MissingTable::PermissionDenied => known::permission_denied(&name.path()),
            })
    }

    /// The live stream, of the table as it is now. A table created again has none of the old one's streams.
    fn stream(&mut self, target: &Target, now: Millis) -> Result<&mut Stream, Refusal> {
        let table_id = self.table(&target.table)?.id;
        let known = self.keeps(Behaviour::UnknownStreamNotFound);
        let not_found = || {
            if known {
                known::stream_not_found(&target.name)
            } else {
                Refusal::new(Code::Unknown, "unknown stream")
            }
        };
        let dies = self.keeps(Behaviour::StreamsDieWithTable);
        let stream = self.streams.get_mut(&target.name).ok_or_else(not_found)?;
        if stream.table_id != table_id && dies {
            return Err(known::table_recreated(&target.table.path(), &target.name));
        }
        if stream.expired(&self.switches, now) {
            return Err(not_found());
        }
        Ok(stream)
    }

    /// Makes a stream's rows up to `to` (exclusive) visible.
    fn publish_stream(&mut self, target: &Target, to: u64, now: Millis) -> Result<(), Refusal> {
        let stream = self.stream(target, now)?;
        let from = stream.visible;
        let batches = stream.publish(to);
        let to = stream.visible;
        for batch in batches {
            self.catalog
                .push_rows(&target.table, batch, now)
                .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
        }
        let (table, stream) = (target.table.clone(), Some(target.name.clone()));
        self.record_visible(Visibility {
            at_ms: now,
            table,
            stream,
            from,
            to,
        });
        Ok(())
    }
}
