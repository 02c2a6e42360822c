//! The real sink, the real host and the emulator in one process, on a clock that stands still unless all wait.
//!
//! A [`Scenario`] says what is read, which processes run one after the other, at which [`Point`] each is killed, and
//! what goes wrong at BigQuery and in the checkpoint store. [`run()`] runs it and looks whether every row is visible
//! exactly once, at every moment at which one becomes visible, or as its [`WriteMode`] promises. With an [`EnginePlan`] the host is not the embedded one but the
//! engine's script, which does what the embedded host never does.

mod at_least_once;
mod batch;
mod engine;
pub mod enumerate;
pub mod errant;
mod expect;
mod faults;
mod metrics;
#[cfg(feature = "mutants")]
pub mod mutants;
mod oracle;
mod point;
mod predicate;
mod process;
mod results;
mod run;
mod scenario;
pub mod seed;
pub mod shrink;
mod supervisor;
mod world;

pub use batch::{Broken, Tally, run_all, run_until};
pub use engine::{EnginePlan, Life, PlanClose, PlanStep, ReplayTold, RestoreFrom};
pub use expect::{Outcome, Settling};
pub use faults::{Fault, Faults, Kind};
pub use point::{Called, EngineStep, Hit, Host, Object, Point, StepKind, StoreOp, When};
pub use predicate::Predicate;
pub use results::{ENOUGH, Results, Tried, Verdict};
pub use run::{Report, run};
pub use scenario::{
    ConnectionFault, ConnectionFaultKind, End, Incarnation, Scenario, StoreFault, StoreFaultKind, Way,
    Workload, WriteMode,
};
