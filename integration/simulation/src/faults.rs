//! What of a run's faults came true: a fault whose moment never comes shows nothing.

use std::collections::BTreeMap;
use std::fmt;

use bigquery_write_emulator::faults::{FaultReport, FaultRule};
use serde::Serialize;
use serde_json::Value;

use crate::point::Hit;
use crate::scenario::{ConnectionFault, End, Scenario, StoreFault};

/// What went wrong in runs, and what was to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How often each kind came true at each place.
    pub came_true: BTreeMap<Fault, u64>,
    /// Faults that the scenarios name.
    pub planned: usize,
    /// Those that never came true: the call that they wait for was not made, the point was not come by.
    pub idle: usize,
}

/// A kind of fault at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// What it happens to.
    pub of: Kind,
    /// What happens, as scenarios name it.
    pub what: String,
    /// The call, the operation of the store, or the process.
    pub place: String,
}

/// What faults happen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A call to BigQuery.
    Call,
    /// The connection that a call comes on.
    Connection,
    /// An operation of the checkpoint store.
    Store,
    /// A process.
    Process,
}

/// What came true of a run, by who knows it.
pub(crate) struct CameTrue<'a> {
    pub(crate) calls: &'a [FaultReport],
    pub(crate) connections: &'a [Fired<ConnectionFault>],
    pub(crate) store: &'a [Fired<StoreFault>],
    /// Points, by process.
    pub(crate) hits: &'a [Vec<Hit>],
    /// When processes were killed, cut off or overtaken, and when they came back.
    pub(crate) ends_ms: &'a [u64],
    /// When processes began.
    pub(crate) starts_ms: &'a [u64],
}

/// A fault that came true.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired<T> {
    /// When, since the run began.
    pub(crate) at_ms: u64,
    pub(crate) fault: T,
}

impl CameTrue<'_> {
    /// Rules that fired.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &FaultRule> {
        let fired = self.calls.iter().filter(|report| report.fired > 0);
        fired.map(|report| &report.rule)
    }
}

impl Fault {
    pub(crate) fn of_call(rule: &FaultRule) -> Self {
        Self {
            of: Kind::Call,
            what: named(&rule.action),
            place: format!("{:?}", rule.rpc),
        }
    }

    pub(crate) fn of_connection(fault: &ConnectionFault) -> Self {
        Self {
            of: Kind::Connection,
            what: named(&fault.kind),
            place: format!("{:?}", fault.called),
        }
    }

    pub(crate) fn of_store(fault: &StoreFault) -> Self {
        Self {
            of: Kind::Store,
            what: named(&fault.kind),
            place: format!("{:?}", fault.op),
        }
    }
}

impl Faults {
    pub(crate) fn of(scenario: &Scenario, came_true: &CameTrue<'_>) -> Self {
        let mut faults = Self::default();
        for report in came_true.calls {
            faults.add(Fault::of_call(&report.rule), report.fired);
        }
        for fault in &scenario.connection_faults {
            let times = came_true.connections.iter().filter(|other| other.fault == *fault);
            faults.add(Fault::of_connection(fault), times.count() as u64);
        }
        for fault in &scenario.store_faults {
            let times = came_true.store.iter().filter(|other| other.fault == *fault);
            faults.add(Fault::of_store(fault), times.count() as u64);
        }
        for (at, incarnation) in scenario.incarnations.iter().enumerate() {
            let (what, due) = match incarnation.end {
                End::Kill {
                    hit,
                    loses_sent: true,
                } => ("kill, what was sent is lost", hit),
                End::Kill { hit, .. } => ("kill", hit),
                End::Zombie { hit, .. } => ("zombie", hit),
                // They are no faults of anybody.
                End::Natural | End::Stop { .. } => continue,
            };
            let came_by = came_true.hits.get(at).is_some_and(|hits| hits.len() > due);
            let place = if at == 0 { "first process" } else { "later process" };
            let fault = Fault {
                of: Kind::Process,
                what: what.to_owned(),
                place: place.to_owned(),
            };
            faults.add(fault, u64::from(came_by));
        }
        faults
    }

    fn add(&mut self, fault: Fault, times: u64) {
        self.planned += 1;
        self.idle += usize::from(times == 0);
        *self.came_true.entry(fault).or_default() += times;
    }

    /// Takes others in.
    pub(crate) fn merge(&mut self, other: Self) {
        self.planned += other.planned;
        self.idle += other.idle;
        for (fault, times) in other.came_true {
            *self.came_true.entry(fault).or_default() += times;
        }
    }

    /// The part that never came true, from 0 to 1.
    #[must_use]
    pub fn idle_part(&self) -> f64 {
        self.idle as f64 / self.planned.max(1) as f64
    }
}

/// The kind's name as it is written, with its direction if it has one.
fn named(kind: &impl Serialize) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match serde_json::to_value(kind).expect("kinds are written as JSON") {
        Value::String(name) => name,
        // A fault of a call is flat, one of a connection has its name outside.
        Value::Object(fields) => text(fields.get("kind"))
            .map(|kind| match (&*kind, text(fields.get("code"))) {
                // Each code is a fault of its own; of the others it says how the answer is lost.
                ("refuse", Some(code)) => format!("{kind} {code}"),
                _ => kind,
            })
            .or_else(|| {
                let (name, fields) = fields.iter().next()?;
                let way = text(fields.get("way")).or_else(|| text(fields.get("code")));
                Some(way.map_or(name.clone(), |way| format!("{name} {way}")))
            })
            .unwrap_or_default(),
        other => other.to_string(),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.what, self.place)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "calls",
            Self::Connection => "connections, as a call is carried out on them",
            Self::Store => "operations of the store",
            Self::Process => "processes",
        })
    }
}
