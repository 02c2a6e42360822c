//! Every place where a process may die, declared once.

use std::fmt;

use bigquery_sink::{CommandKind, Moment};
use bigquery_sink_pipeline::Step;
use bigquery_write_emulator::faults::Rpc;
use serde::{Deserialize, Serialize};

/// A place that a run comes by; see [`Point::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before or after a command of the sink's core.
    Command(Moment),
    /// A step of the host.
    Step(StepKind),
    /// A step of the engine.
    Engine(EngineStep),
    /// Before or after an operation of the checkpoint store.
    Store(When, StoreOp),
    /// BigQuery has carried out a call, and its answer has not left.
    Applied(Called),
}

/// Before or after something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum When {
    /// Nothing of it is done.
    Before,
    /// It is done; its caller has not heard.
    After,
}

/// A step of the host, without its numbers ([`Step`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named and explained by `Step`")]
pub enum StepKind {
    Restored,
    Started,
    BarrierSent,
    Prepared,
    Collected,
    Completed,
    CommitSent,
    Committed,
    Published,
    Marked,
    Closing,
}

/// A step of the engine that hosts the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineStep {
    /// The process has the store, and has read what it goes on from.
    Restored,
    /// A subtask has started.
    Started,
    /// The barrier is on its way.
    BarrierSent,
    /// A subtask has prepared its part.
    Prepared,
    /// All parts are durable.
    Stored,
    /// The checkpoint is declared complete.
    Completed,
    /// The commit is on its way.
    CommitSent,
    /// A subtask has published its share.
    Committed,
    /// The commit is confirmed.
    Confirmed,
    /// The subtasks are about to be closed.
    Closing,
    /// A subtask is closed.
    Closed,
}

/// What drives the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The embedded host.
    Embedded,
    /// The engine's script.
    Engine,
}

/// An operation on the checkpoint store, by what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StoreOp {
    /// List a folder.
    List,
    /// Read an object.
    Read(Object),
    /// Create an object if it is absent.
    Put(Object),
    /// Delete objects.
    Delete,
}

/// A kind of object in the checkpoint store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Object {
    /// A host's claim of a generation.
    Generation,
    /// What a checkpoint holds.
    Manifest,
    /// That it is complete.
    Claim,
    /// That its commit is confirmed.
    Marker,
}

/// A call to BigQuery that the sink makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named as the calls are")]
pub enum Called {
    CreateWriteStream,
    GetWriteStream,
    AppendRows,
    FlushRows,
}

/// A point that was passed, in the order in which one incarnation came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Which.
    pub point: Point,
    /// Whose, where it is a subtask's.
    pub subtask: Option<u32>,
}

impl Point {
    /// The whole catalogue.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let commands = CommandKind::ALL.into_iter().flat_map(|kind| {
            // Nothing comes after the command that ends the task.
            let after = (kind != CommandKind::Fail).then_some(Moment::After(kind));
            [Some(Moment::Before(kind)), after].into_iter().flatten()
        });
        let both = |op| [When::Before, When::After].map(|when| Self::Store(when, op));
        let objects = Object::ALL.into_iter();
        let ops = [StoreOp::List, StoreOp::Delete]
            .into_iter()
            .chain(objects.clone().map(StoreOp::Read))
            .chain(objects.map(StoreOp::Put));
        commands
            .map(Self::Command)
            .chain(StepKind::ALL.map(Self::Step))
            .chain(EngineStep::ALL.map(Self::Engine))
            .chain(ops.flat_map(both))
            .chain(Called::ALL.map(Self::Applied))
            .collect()
    }

    /// The host that alone comes by it, if not both do.
    #[must_use]
    pub fn host(self) -> Option<Host> {
        match self {
            Self::Step(_) | Self::Store(..) => Some(Host::Embedded),
            // Only the engine ends its data without a last checkpoint.
            Self::Engine(_)
            | Self::Command(Moment::Before(CommandKind::Closed) | Moment::After(CommandKind::Closed)) => {
                Some(Host::Engine)
            }
            Self::Command(_) | Self::Applied(_) => None,
        }
    }
}

impl EngineStep {
    /// Every step.
    pub const ALL: [Self; 11] = [
        Self::Restored,
        Self::Started,
        Self::BarrierSent,
        Self::Prepared,
        Self::Stored,
        Self::Completed,
        Self::CommitSent,
        Self::Committed,
        Self::Confirmed,
        Self::Closing,
        Self::Closed,
    ];
}

impl StepKind {
    /// Every step.
    pub const ALL: [Self; 11] = [
        Self::Restored,
        Self::Started,
        Self::BarrierSent,
        Self::Prepared,
        Self::Collected,
        Self::Completed,
        Self::CommitSent,
        Self::Committed,
        Self::Published,
        Self::Marked,
        Self::Closing,
    ];

    /// The kind, and the subtask if it is about one.
    #[must_use]
    pub fn of(step: Step) -> (Self, Option<u32>) {
        match step {
            Step::Restored => (Self::Restored, None),
            Step::Started(subtask) => (Self::Started, Some(subtask.0)),
            Step::BarrierSent(_) => (Self::BarrierSent, None),
            Step::Prepared(_, subtask) => (Self::Prepared, Some(subtask.0)),
            Step::Collected(_) => (Self::Collected, None),
            Step::Completed(_) => (Self::Completed, None),
            Step::CommitSent(_, subtask) => (Self::CommitSent, Some(subtask.0)),
            Step::Committed(_, subtask) => (Self::Committed, Some(subtask.0)),
            Step::Published(_) => (Self::Published, None),
            Step::Marked(_) => (Self::Marked, None),
            Step::Closing => (Self::Closing, None),
        }
    }
}

impl Object {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Generation, Self::Manifest, Self::Claim, Self::Marker];

    /// The kind that an object's name tells.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name.rsplit_once('.') {
            Some((_, "manifest")) => Self::Manifest,
            Some((_, "claim")) => Self::Claim,
            Some((_, "committed")) => Self::Marker,
            _ => Self::Generation,
        }
    }
}

impl Called {
    /// Every call.
    pub const ALL: [Self; 4] = [
        Self::CreateWriteStream,
        Self::GetWriteStream,
        Self::AppendRows,
        Self::FlushRows,
    ];

    /// The call, if the sink makes it.
    #[must_use]
    pub fn of(rpc: Rpc) -> Option<Self> {
        match rpc {
            Rpc::CreateWriteStream => Some(Self::CreateWriteStream),
            Rpc::GetWriteStream => Some(Self::GetWriteStream),
            Rpc::AppendRows => Some(Self::AppendRows),
            Rpc::FlushRows => Some(Self::FlushRows),
            Rpc::AppendRowsOpen | Rpc::FinalizeWriteStream | Rpc::BatchCommitWriteStreams => None,
        }
    }

    /// As fault rules name it.
    #[must_use]
    pub fn rpc(self) -> Rpc {
        match self {
            Self::CreateWriteStream => Rpc::CreateWriteStream,
            Self::GetWriteStream => Rpc::GetWriteStream,
            Self::AppendRows => Rpc::AppendRows,
            Self::FlushRows => Rpc::FlushRows,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(Moment::Before(kind)) => write!(f, "before {kind:?}"),
            Self::Command(Moment::After(kind)) => write!(f, "after {kind:?}"),
            Self::Step(step) => write!(f, "host {step:?}"),
            Self::Engine(step) => write!(f, "engine {step:?}"),
            Self::Store(When::Before, op) => write!(f, "before store {op:?}"),
            Self::Store(When::After, op) => write!(f, "after store {op:?}"),
            Self::Applied(call) => write!(f, "{call:?} applied"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "the embedded host",
            Self::Engine => "the engine",
        })
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subtask {
            Some(subtask) => write!(f, "{} of subtask {subtask}", self.point),
            None => self.point.fmt(f),
        }
    }
}
