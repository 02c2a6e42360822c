//! The engine as a host of the sink: a script that does what the embedded host never does.
//!
//! [`EnginePlan`] says what happens, [`Process`] does it to the real operators, [`Store`] is what it goes on from after a
//! crash, and [`Ledger`] knows which rows must be visible then.

mod connector;
mod ledger;
mod plan;
pub(crate) mod plans;
mod process;
mod rows;
mod store;

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bigquery_sink_pipeline::Pipeline;

use crate::scenario::{Scenario, WriteMode};
pub(crate) use connector::Connector;
use ledger::Ledger;
pub(crate) use ledger::Rows;
pub use plan::{EnginePlan, Life, PlanClose, PlanStep, ReplayTold, RestoreFrom};
pub(crate) use process::Process;
use store::Store;

/// What the engine's processes share, and what outlives them.
#[derive(Debug)]
pub(crate) struct Engine {
    plan: EnginePlan,
    /// Rows of each key.
    rows: u64,
    pipeline: Arc<Pipeline>,
    /// Rows become visible with a commit.
    commits: bool,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    store: Store,
    ledger: Ledger,
}

impl Engine {
    /// The engine of this scenario, if it has one.
    pub(crate) fn of(scenario: &Scenario, pipeline: &Arc<Pipeline>) -> Option<Arc<Self>> {
        let plan = scenario.engine.clone()?;
        Some(Arc::new(Self {
            plan,
            rows: scenario.workload.rows,
            pipeline: Arc::clone(pipeline),
            commits: scenario.workload.mode == WriteMode::ExactlyOnce,
            memory: Mutex::default(),
        }))
    }

    /// The least and the most times that each row of each key may be there at the end.
    pub(crate) fn counts(&self) -> Vec<Vec<RangeInclusive<u64>>> {
        self.memory().ledger.counts(self.plan.keys, self.rows)
    }

    /// Whether rows may rightly be there more than once: an older checkpoint was gone on from, or all input ended without one.
    pub(crate) fn may_publish_again(&self) -> bool {
        let end = PlanStep::Close {
            reason: PlanClose::EndOfData,
        };
        self.plan
            .lives
            .iter()
            .any(|life| matches!(life.restore, RestoreFrom::Older { .. }) || life.steps.contains(&end))
    }

    fn life(&self, process: usize) -> Life {
        self.plan.lives.get(process).cloned().unwrap_or_default()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
