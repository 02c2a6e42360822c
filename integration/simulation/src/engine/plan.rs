//! What the engine does, as a value: one list of steps for each process.

use bigquery_sink::CloseReason;
use serde::{Deserialize, Serialize};

/// A run under the engine. Every step is possible in every place: what the engine would do before it is done before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnginePlan {
    /// Keys of the rows; the rows of each are numbered from 0. Those of key `k` go to subtask `k % parallelism`.
    pub keys: u32,
    /// Time between two steps.
    #[serde(default)]
    pub pace_ms: u64,
    /// What the processes do, one after the other; those beyond do as [`Life::default`] says.
    pub lives: Vec<Life>,
}

/// What one process does. When its steps are over it reads what is left, takes a last checkpoint, and stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// Where it goes on from.
    #[serde(default)]
    pub restore: RestoreFrom,
    /// What the sink is told about the commit of that checkpoint.
    #[serde(default)]
    pub replay: ReplayTold,
    /// In order.
    #[serde(default)]
    pub steps: Vec<PlanStep>,
}

/// The checkpoint that a process goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RestoreFrom {
    /// The newest that is complete.
    #[default]
    Newest,
    /// A confirmed one so many before the newest, if there is one; the newer ones are given up, and their rows read again.
    Older {
        /// How many.
        back: usize,
    },
    /// One that a dead process stored and did not declare complete, if there is one: it is declared so now
    /// (arroyo.md 4.5).
    Adopted,
}

/// What the sink is told about the commit of the restored checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayTold {
    /// Whether it will be replayed.
    #[default]
    Truth,
    /// Nothing, as Arroyo tells nothing: these lives are driven through what the connector for Arroyo uses.
    Unknown,
}

/// One thing that the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PlanStep {
    /// The next rows of a key, or of each.
    Rows {
        /// Whose.
        #[serde(default)]
        key: Option<u32>,
        /// How many.
        count: u64,
    },
    /// All rows that are left.
    Rest,
    /// A checkpoint, from the barrier until it is declared complete; the one before is committed first.
    Checkpoint {
        /// No rows follow.
        #[serde(default)]
        then_stop: bool,
    },
    /// A checkpoint that comes to nothing: after it no other is taken.
    Prepare {
        /// So many subtasks prepare it; all if it is not said.
        #[serde(default)]
        subtasks: Option<u32>,
        /// What they prepared is stored, and not declared complete.
        #[serde(default)]
        stored: bool,
    },
    /// The commit of the newest complete checkpoint, also if it was confirmed already.
    Commit {
        /// So many subtasks hear of it; all if it is not said, and then it is confirmed.
        #[serde(default)]
        subtasks: Option<u32>,
        /// It comes so often.
        #[serde(default = "once")]
        times: u32,
    },
    /// Nothing for so long.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// The next process begins, and this one goes on: it is a zombie from here.
    Overtaken {
        /// It is cut off for so long first.
        #[serde(default)]
        held_ms: u64,
    },
    /// The process dies.
    Crash {
        /// What it had sent and BigQuery had not read is lost.
        #[serde(default)]
        loses_sent: bool,
    },
    /// Every subtask is closed, and the process ends.
    Close {
        /// Why; before the end of data comes all that is left to read.
        reason: PlanClose,
    },
}

/// Why subtasks are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named and explained by `CloseReason`")]
pub enum PlanClose {
    EndOfData,
    Stop,
    Interrupted,
}

impl From<PlanClose> for CloseReason {
    fn from(reason: PlanClose) -> Self {
        match reason {
            PlanClose::EndOfData => Self::EndOfData,
            PlanClose::Stop => Self::Stop,
            PlanClose::Interrupted => Self::Interrupted,
        }
    }
}

fn once() -> u32 {
    1
}
