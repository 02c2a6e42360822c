//! BigQuery as a pure state machine: requests in, answers out, the clock an argument.

use std::collections::BTreeMap;

use bigquery_write_proto::wire::{TableFieldSchema, TableSchema};

use crate::catalog::{Catalog, Millis, Table, TableRef};
use crate::defaults::{Moment, RandomBits};
use crate::faults::{FaultPlan, FaultReport, Faults};
use crate::schema::Schema;
use connection::Connection;
use effect::Door;
use history::Exchanges;
use late::Late;
use names::Target;
use quota::Quotas;
use state::State;
use stream::Stream;

pub use append::{Event, Output};
pub use behaviour::Behaviour;
pub use connection::ConnectionId;
pub use delivery::{Delivery, Passage, Reply, Stall};
pub(crate) use effect::Effect;
pub use effect::NotKept;
pub use history::{Call, CallLog, Exchange, Visibility, VisibilityLog};
pub(crate) use refusal::known;
pub use refusal::{Code, Refusal};
pub(crate) use snapshot::size as size_of_rows;
pub use stream::{StreamInfo, StreamKind};
pub use switches::{FlushBelow, FlushUnset, MissingTable, Switches};

mod append;
mod behaviour;
mod capture;
mod changes;
mod collected;
mod connection;
mod decode;
mod delivery;
mod destination;
mod effect;
mod history;
mod interfere;
mod late;
mod names;
mod partition;
mod quota;
mod refusal;
mod snapshot;
mod state;
mod stream;
mod switches;
mod unary;

/// Everything the emulator knows. It does no I/O, reads no clock and draws no random number.
#[derive(Debug, Default)]
pub struct Machine {
    /// What lasts.
    state: State,
    door: Door,
    switches: Switches,
    faults: Faults,
    /// Makes stream ids differ between runs.
    seed: u128,
    /// For default values that are drawn.
    random: RandomBits,
    connections: BTreeMap<ConnectionId, Connection>,
    connections_ever: u64,
    quotas: Quotas,
    late: Late,
    /// Openings in a row that failed on one of Google's fault tables, by the stream's full name.
    failed_openings: BTreeMap<String, u64>,
    /// Whose application stream is whose, by full name.
    holders: BTreeMap<String, ConnectionId>,
    visible: VisibilityLog,
    calls: CallLog,
    exchanges: Exchanges,
}

/// What came with a call beside its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMeta {
    /// `authorization`, as it came.
    pub authorization: Option<String>,
    /// `x-goog-request-params`, as it came.
    pub routing: Option<String>,
    /// The HTTP/2 connection on which it came, counted from 1 in the order in which they were accepted; 0 if it came on none.
    pub transport: u64,
}

impl Machine {
    /// A machine without datasets. `seed` makes its stream ids its own; everything else is determined by the calls.
    pub fn new(switches: Switches, faults: FaultPlan, seed: u128) -> Self {
        Self {
            switches,
            faults: Faults::new(faults),
            seed,
            random: RandomBits::new(seed),
            ..Self::default()
        }
    }

    /// Datasets and tables.
    pub fn catalog(&self) -> &Catalog {
        self.state.catalog()
    }

    /// From now on rows are checked and counted as ever, and then dropped: for measurements of who sends them, which
    /// must not end in a full memory. Streams, offsets and row counts are those of a machine that keeps rows; queries
    /// and readers find none. Rows upserted by key are kept.
    pub fn discard_rows(&mut self) {
        self.state.discard_rows();
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

    /// The newest requests with their answers, oldest first.
    pub fn exchanges(&self) -> impl DoubleEndedIterator<Item = &Exchange> {
        self.exchanges.iter()
    }

    /// Calls `observer` with each request and its answer from now on, when the request has had its effect and before
    /// the answer leaves. It must be quick and must not call back into the emulator.
    pub fn observe_exchanges(&mut self, observer: impl FnMut(&Exchange) + Send + 'static) {
        self.exchanges.observe(observer);
    }

    /// Every live stream, by name.
    pub fn streams(&self) -> Vec<StreamInfo> {
        let streams = self.state.streams().iter();
        streams
            .map(|(name, stream)| stream.info(self.holders.contains_key(name)))
            .collect()
    }

    /// How many streams were ever created.
    pub fn streams_created(&self) -> u64 {
        self.state.streams_ever()
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

    /// Lets something be made of this moment: the time, and the machine's own random bits.
    pub(crate) fn with_moment<T>(&mut self, now: Millis, act: impl FnOnce(&Self, &mut Moment<'_>) -> T) -> T {
        let mut random = self.random.clone();
        let mut moment = Moment {
            now_ms: now,
            random: &mut random,
        };
        let made = act(self, &mut moment);
        self.random = random;
        made
    }

    /// The switches in force.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Throws switches, in the middle of a run too.
    pub fn switches_mut(&mut self) -> &mut Switches {
        &mut self.switches
    }

    /// Lets time pass: does what is late, closes idle `AppendRows` calls and forgets streams whose life is over.
    pub fn tick(&mut self, now: Millis) -> Vec<Output> {
        self.catch_up(now);
        let streams = self.state.streams().iter();
        let over = streams.filter(|(_, stream)| stream.expired(&self.switches, now));
        let streams: Vec<_> = over.map(|(name, _)| name.clone()).collect();
        if !streams.is_empty() {
            // What cannot be kept is not forgotten, which costs nothing: a stream whose life is over answers no more.
            drop(self.apply(&Effect::StreamsForgotten { streams, at_ms: now }));
        }
        self.forget_openings();
        self.close_idle(now)
    }

    fn record_exchange(&mut self, call: &Call, request: String, answered: &Result<String, &Refusal>) {
        self.exchanges.record(Exchange {
            at_ms: call.at_ms,
            rpc: call.rpc,
            target: call.target.clone(),
            transport: call.transport,
            request,
            refused: answered.is_err(),
            answer: match answered {
                Ok(answer) => answer.clone(),
                Err(refusal) => format!("{:?}: {}", refusal.code, names::shorten(&refusal.message)),
            },
        });
    }

    /// Whether the emulator behaves so.
    fn keeps(&self, behaviour: Behaviour) -> bool {
        self.switches.keeps(behaviour)
    }

    fn record_visible(&mut self, change: Visibility) {
        if self.keeps(Behaviour::VisibilityRecorded) {
            self.visible.record(change);
        }
    }

    /// A table's columns as clients are told of them (write-api.md 1.2).
    fn told(&self, schema: &Schema) -> TableSchema {
        let mut wire = schema.to_wire();
        if !self.keeps(Behaviour::SchemaDetailsAnswered) {
            for field in &mut wire.fields {
                *field = TableFieldSchema {
                    name: std::mem::take(&mut field.name),
                    r#type: field.r#type,
                    mode: field.mode,
                    ..TableFieldSchema::default()
                };
            }
        }
        wire
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
        let Ok(dataset) = self.catalog().dataset(&table.dataset_ref()) else {
            return Ok(());
        };
        let needed = self.switches.routing_header_required && self.keeps(Behaviour::RoutingHeaderNeeded);
        let at_home = dataset.location.eq_ignore_ascii_case("us") || !needed;
        let lenient = self.keeps(Behaviour::RoutingHeaderForms);
        if at_home || names::routed(header, table, &dataset.location, lenient) {
            return Ok(());
        }
        Err(known::permission_denied(&table.path()))
    }

    fn table(&self, name: &TableRef) -> Result<&Table, Refusal> {
        self.catalog()
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
    fn stream(&self, target: &Target, now: Millis) -> Result<&Stream, Refusal> {
        let table = self.table(&target.table)?;
        let known = self.keeps(Behaviour::UnknownStreamNotFound);
        let not_found = || {
            if known {
                known::stream_not_found(&target.name)
            } else {
                Refusal::new(Code::Unknown, "unknown stream")
            }
        };
        let dies = self.keeps(Behaviour::StreamsDieWithTable);
        let expired = || match self.switches.expired_stream {
            code if code == Code::NotFound || !known => not_found(),
            code => known::stream_expired(&target.name, code),
        };
        let gone = || match self.state.collected().get(&target.name, table.id) {
            Some(_) => expired(),
            None => not_found(),
        };
        let stream = self.state.streams().get(&target.name).ok_or_else(gone)?;
        if stream.table_id != table.id && dies {
            return Err(known::table_recreated(&target.table.path(), &target.name));
        }
        if stream.expired(&self.switches, now) {
            return Err(expired());
        }
        if stream.table_id != table.id && !stream.fits(&table.schema) {
            let text = format!("The stream's rows are not of table {}", target.table.path());
            return Err(Refusal::new(Code::Internal, text));
        }
        Ok(stream)
    }
}
