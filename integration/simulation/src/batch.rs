//! Many runs on all cores, and what came of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::expect::Outcome;
use crate::faults::Faults;
use crate::point::Point;
use crate::predicate::Predicate;
use crate::run::{Report, run};
use crate::scenario::Scenario;

/// What a batch showed.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub runs: usize,
    /// What went wrong, and what was to.
    pub faults: Faults,
    /// Runs that ended with a loud error, by what of their faults allows it.
    pub loud: BTreeMap<String, usize>,
    /// The longest way to the end of a run, by what went wrong last.
    pub settling: BTreeMap<String, Duration>,
    /// Points come by.
    pub points: BTreeSet<Point>,
    /// In how many runs each was true.
    pub predicates: BTreeMap<Predicate, u64>,
    /// Simulated time of all runs.
    pub simulated: Duration,
    /// Runs that showed what must not be, the first few whole.
    pub broken: Vec<Broken>,
    /// How many there were.
    pub broken_runs: usize,
    /// The first violation of each property that was violated, by its number.
    pub properties: BTreeMap<String, String>,
}

/// A run that showed what must not be.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its place in the batch.
    pub index: usize,
    /// The run.
    pub scenario: Scenario,
    /// What was wrong.
    pub violations: Vec<String>,
    /// Everything seen.
    pub trace: String,
}

/// The number of the property that a violation is of; what has none counts as one.
pub(crate) fn property(violation: &str) -> &str {
    violation.split_once(':').map_or(violation, |(number, _)| number)
}

/// Broken runs that are kept whole.
const KEPT: usize = 5;

/// Runs all of them.
///
/// # Panics
/// If a run panics outside the simulated processes.
#[must_use]
pub fn run_all(scenarios: &[Scenario]) -> Tally {
    run_until(scenarios, |_| false)
}

/// Runs them until `enough` says so; which of those under way then still count is not determined.
///
/// # Panics
/// If a run panics outside the simulated processes.
#[must_use]
pub fn run_until(scenarios: &[Scenario], enough: impl Fn(&Tally) -> bool + Sync) -> Tally {
    let tally = Mutex::new(Tally::default());
    on_all_cores(scenarios, |index, scenario| {
        let report = run(scenario);
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(index, scenario, report);
        if enough(&tally) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.broken.sort_by_key(|broken| broken.index);
    tally
}

/// Does `act` to each of these, some at a time; none is begun after a break.
pub(crate) fn on_all_cores<T: Sync>(of: &[T], act: impl Fn(usize, &T) -> ControlFlow<()> + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = of.get(index) else { return };
                    if act(index, one).is_break() {
                        next.store(of.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

impl Tally {
    fn add(&mut self, index: usize, scenario: &Scenario, report: Report) {
        self.runs += 1;
        self.simulated += report.simulated;
        self.faults.merge(report.faults);
        if let Outcome::Failed { .. } = report.outcome {
            let excuses: Vec<_> = report.excuses.into_iter().collect();
            *self.loud.entry(excuses.join(", ")).or_default() += 1;
        }
        self.settled(report.settling.after, report.settling.took);
        self.points
            .extend(report.hits.iter().flatten().map(|hit| hit.point));
        for predicate in report.predicates.keys() {
            *self.predicates.entry(*predicate).or_default() += 1;
        }
        if report.violations.is_empty() {
            return;
        }
        self.broken_runs += 1;
        for violation in &report.violations {
            let first = self.properties.entry(property(violation).to_owned());
            first.or_insert_with(|| violation.clone());
        }
        if self.broken.len() < KEPT {
            self.broken.push(Broken {
                index,
                scenario: scenario.clone(),
                violations: report.violations,
                trace: report.trace,
            });
        }
    }

    fn settled(&mut self, after: String, took: Duration) {
        let longest = self.settling.entry(after).or_default();
        *longest = took.max(*longest);
    }

    /// How many runs ended with a loud error.
    #[must_use]
    pub fn failed_loudly(&self) -> usize {
        self.loud.values().sum()
    }

    /// Takes another batch's in.
    pub fn merge(&mut self, other: Self) {
        self.runs += other.runs;
        self.faults.merge(other.faults);
        for (excuses, runs) in other.loud {
            *self.loud.entry(excuses).or_default() += runs;
        }
        for (after, took) in other.settling {
            self.settled(after, took);
        }
        self.points.extend(other.points);
        for (predicate, runs) in other.predicates {
            *self.predicates.entry(predicate).or_default() += runs;
        }
        self.simulated += other.simulated;
        self.broken.extend(other.broken);
        self.broken.truncate(KEPT);
        self.broken_runs += other.broken_runs;
        for (property, violation) in other.properties {
            self.properties.entry(property).or_insert(violation);
        }
    }

    /// How to see the first broken run again: a line, the scenario, the trace. `None` if all is well.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let first = self.broken.first()?;
        let scenario = first.scenario.to_json();
        let others: Vec<_> = self
            .properties
            .values()
            .map(|first| format!("\n  {first}"))
            .collect();
        Some(format!(
            "of each property that is violated, one:{}\n{} of {} runs are broken; the first shows:\n  {}\nto see it again: cargo run -p bigquery-sink-simulation -- \
             --scenario '{scenario}'\n{}",
            others.concat(),
            self.broken_runs,
            self.runs,
            first.violations.join("\n  "),
            first.trace
        ))
    }
}
