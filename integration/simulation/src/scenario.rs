//! One run as a value: what is read, who runs, who dies where, what goes wrong. A seed only makes one.

use std::collections::BTreeSet;

use bigquery_sink::Mutation;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Code};
use serde::{Deserialize, Serialize};

use crate::engine::EnginePlan;
use crate::point::{Called, StoreOp};

/// A run, written and read as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What happened, and what must not come of it again; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Rows and checkpoints.
    #[serde(default)]
    pub workload: Workload,
    /// Processes, one after the other; when all have ended too early, one more like the last is let run.
    pub incarnations: Vec<Incarnation>,
    /// What goes wrong at BigQuery.
    #[serde(default)]
    pub faults: FaultPlan,
    /// What goes wrong in the checkpoint store.
    #[serde(default)]
    pub store_faults: Vec<StoreFault>,
    /// What goes wrong on the way to BigQuery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connection_faults: Vec<ConnectionFault>,
    /// What BigQuery gets wrong on purpose: then the run must be found broken.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unlearned: BTreeSet<Behaviour>,
    /// At most so many restarts, where what goes wrong would excuse more (P11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<usize>,
    /// A mistake that the processes make on purpose, in builds for that.
    #[serde(skip)]
    pub mutation: Mutation,
    /// What the engine does; without it the embedded host runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EnginePlan>,
}

/// What is read, and when checkpoints are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Rows of each subtask of the source.
    pub rows: u64,
    /// Rows a second of each subtask; they come in batches of a tenth of a second.
    pub rate: u64,
    /// Time from the end of one checkpoint to the begin of the next; 0 takes them back to back.
    pub checkpoint_ms: u64,
    /// Added round trip of every call.
    #[serde(default)]
    pub latency_ms: u64,
    /// Some rows are bad, and become dead letters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead_letters: bool,
    /// Rows travel as protobuf messages and not as Arrow (`write.format`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protobuf: bool,
    /// What the sink promises.
    #[serde(default, skip_serializing_if = "WriteMode::is_exactly_once")]
    pub mode: WriteMode,
}

/// `write.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// Each row once, visible at commits.
    #[default]
    ExactlyOnce,
    /// Each row once at least, visible when it is acknowledged.
    AtLeastOnce,
}

impl WriteMode {
    /// As the option is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly_once",
            Self::AtLeastOnce => "at_least_once",
        }
    }

    fn is_exactly_once(&self) -> bool {
        *self == Self::ExactlyOnce
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incarnation {
    /// Subtasks.
    pub parallelism: u32,
    /// How it ends.
    #[serde(default)]
    pub end: End,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum End {
    /// When everything is read and published.
    #[default]
    Natural,
    /// It is killed as it comes by its so many-th point, from 0.
    Kill {
        /// The point.
        hit: usize,
        /// What it had sent and BigQuery had not read is lost; otherwise it arrives.
        #[serde(default)]
        loses_sent: bool,
    },
    /// At its so many-th point it is cut off from BigQuery and store, the next process begins, and later it is back.
    Zombie {
        /// The point.
        hit: usize,
        /// For so long.
        ms: u64,
        /// The connections that it had open are no more by then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reconnects: bool,
    },
    /// It is told to stop with a checkpoint.
    Stop {
        /// After so long.
        ms: u64,
    },
}

/// One operation of the store that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFault {
    /// Which operation.
    pub op: StoreOp,
    /// Which of those, from 1: of this process if one is named, else over all processes.
    pub nth: u64,
    /// What happens.
    pub kind: StoreFaultKind,
    /// The process, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
}

/// Something that happens to a connection as BigQuery has carried out a call on it, whose answer has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionFault {
    /// Which call.
    pub called: Called,
    /// Which of those, over all processes, from 1.
    pub nth: u64,
    /// What happens.
    pub kind: ConnectionFaultKind,
}

/// What happens to a connection. Who sends the other way goes on doing so, and does not hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConnectionFaultKind {
    /// One direction is at its end: what was sent arrives, and then its reader learns that nothing more will come.
    Closed {
        /// Which.
        way: Way,
    },
    /// Nothing arrives for a while, and then everything.
    Held {
        /// Which way.
        way: Way,
        /// For so long.
        ms: u64,
    },
    /// Nothing arrives any more, and nobody says so.
    Lost {
        /// Which way.
        way: Way,
    },
    /// Every open append call ends with this status, when what it has answered is on its way.
    CallsEnd {
        /// gRPC code.
        code: Code,
    },
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// What the process sends.
    ToServer,
    /// What BigQuery sends.
    ToClient,
    /// Both.
    Both,
}

/// What happens to an operation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreFaultKind {
    /// Nothing is done, and an error said.
    Refused,
    /// It is done, and an error said.
    AppliedThenError,
    /// An error is said, and it is done ten seconds later.
    Late,
    /// The first half of the bytes is written, and an error said.
    Torn,
    /// It is done; fifty milliseconds later the bytes are others, and nobody says so.
    Rot,
    /// It is done after ten seconds.
    Slow,
}

impl Scenario {
    /// A run that nothing disturbs.
    #[must_use]
    pub fn calm(parallelism: u32) -> Self {
        Self {
            workload: Workload::default(),
            incarnations: vec![Incarnation::new(parallelism)],
            ..Self::default()
        }
    }

    /// As [`Scenario::calm`] with one subtask, and several requests to a checkpoint.
    #[must_use]
    pub fn sparse() -> Self {
        let mut scenario = Self::calm(1);
        scenario.workload.checkpoint_ms = 350;
        scenario.workload.rows = 60;
        scenario
    }

    /// As [`Scenario::sparse`], with requests under way behind each.
    #[must_use]
    pub fn latent() -> Self {
        let mut scenario = Self::sparse();
        scenario.workload.latency_ms = 150;
        scenario
    }

    /// As [`Scenario::latent`], with bad rows.
    #[must_use]
    pub fn lettered() -> Self {
        let mut scenario = Self::latent();
        scenario.workload.rows = 40;
        scenario.workload.dead_letters = true;
        scenario
    }

    /// As [`Scenario::calm`], gone on with another parallelism by whoever comes after the first process.
    #[must_use]
    pub fn rescaled(before: u32, after: u32) -> Self {
        Self {
            incarnations: vec![Incarnation::new(before), Incarnation::new(after)],
            ..Self::default()
        }
    }

    /// As JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a scenario has text keys only")
    }

    /// Reads what [`Scenario::to_json`] wrote.
    ///
    /// # Errors
    /// What serde says, or a fault plan that contradicts itself.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let scenario: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        scenario.faults.check().map_err(|error| error.to_string())?;
        if scenario.incarnations.is_empty() {
            return Err("incarnations: name at least one".to_owned());
        }
        Ok(scenario)
    }
}

impl Incarnation {
    /// One that runs to its end.
    #[must_use]
    pub fn new(parallelism: u32) -> Self {
        Self {
            parallelism,
            end: End::Natural,
        }
    }

    /// One that ends so.
    #[must_use]
    pub fn ending(parallelism: u32, end: End) -> Self {
        Self { parallelism, end }
    }
}

impl Default for Workload {
    /// Three batches and about as many checkpoints, an empty one at the end.
    fn default() -> Self {
        Self {
            rows: 30,
            rate: 100,
            checkpoint_ms: 120,
            latency_ms: 0,
            mode: WriteMode::default(),
            dead_letters: false,
            protobuf: false,
        }
    }
}

impl ConnectionFaultKind {
    /// One of each kind and direction. Five seconds are borne by every call; no call and no ping is borne for as long as
    /// a direction that is lost.
    pub const ALL: [Self; 9] = [
        Self::Closed { way: Way::ToServer },
        Self::Closed { way: Way::ToClient },
        Self::Held {
            way: Way::ToServer,
            ms: 5_000,
        },
        Self::Held {
            way: Way::ToClient,
            ms: 5_000,
        },
        Self::Held {
            way: Way::Both,
            ms: 100_000,
        },
        Self::Lost { way: Way::ToServer },
        Self::Lost { way: Way::ToClient },
        Self::CallsEnd { code: Code::Aborted },
        Self::CallsEnd {
            code: Code::FailedPrecondition,
        },
    ];
}

impl StoreFaultKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::AppliedThenError,
        Self::Late,
        Self::Torn,
        Self::Rot,
        Self::Slow,
    ];

    /// Whether the operation can go wrong so.
    #[must_use]
    pub fn suits(self, op: StoreOp) -> bool {
        matches!(op, StoreOp::Put(_)) || !matches!(self, Self::Late | Self::Torn | Self::Rot)
    }
}
