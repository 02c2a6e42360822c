//! The proof: every crash point, every fault, every barrier, on real code under simulated time (testing.md 7).
#![allow(clippy::unwrap_used, reason = "a test's own mistakes may panic")]

mod at_least_once;
mod connections;
mod determinism;
mod engine;
mod enumerated;
mod errant;
#[cfg(feature = "mutants")]
mod mutants;
mod scenarios;

use std::io::Write as _;
use std::time::Instant;

use bigquery_sink_simulation::{Host, Results, Scenario, Tally, run_all};

/// Prints past the test harness, which keeps what a test prints to itself: how much was run is part of the result.
fn say(text: &str) {
    std::io::stdout()
        .write_all(format!("{text}\n").as_bytes())
        .unwrap();
}

/// The part of the faults of seeds that may come to nothing: a seed draws which call of a kind it is that fails, and at which point a
/// process dies, before anybody knows how many there will be. A quarter does.
const IDLE_IN_SEEDS: f64 = 0.35;

/// The part of the faults beside a kill that may come to nothing: the process may be dead before the call that fails, and the next one, of
/// fewer subtasks, makes fewer.
const IDLE_IN_PAIRS: f64 = 0.2;

/// As [`IDLE_IN_SEEDS`], under the engine, whose plans may be over after a step: half of the faults come too late.
const IDLE_IN_PLANS: f64 = 0.6;

/// The part of the faults of calls in a sample of plans that may come to nothing: where a plan ends with the request that fails, no connection
/// is opened that could be wrong about the stream's end.
const IDLE_AT_THE_END: f64 = 0.05;

/// Runs a batch whole. Its faults are those that a run without them has a place for: each must come true. None is a reason to end the job.
fn all(total: &mut Tally, what: &str, scenarios: &[Scenario]) {
    let tally = all_but(total, what, scenarios, 0.0);
    assert_eq!(tally.loud, [].into(), "{what}: runs that ended loudly");
}

/// As [`all`], for a batch of which some runs end with a loud error, as their faults allow.
fn all_loud(total: &mut Tally, what: &str, scenarios: &[Scenario]) {
    all_but(total, what, scenarios, 0.0);
}

/// As [`all_loud`], for a batch of which some part of the faults may not come true, and any that may end a run ends it.
fn all_but(total: &mut Tally, what: &str, scenarios: &[Scenario], idle: f64) -> Tally {
    let began = Instant::now();
    assert!(!scenarios.is_empty(), "{what}: nothing to run");
    let tally = run_all(scenarios);
    let faults = &tally.faults;
    say(&format!(
        "{what}: {} of {} run, {} ended loudly as their faults allow, {} of {} faults came true, {:.1} s",
        tally.runs,
        scenarios.len(),
        tally.failed_loudly(),
        faults.planned - faults.idle,
        faults.planned,
        began.elapsed().as_secs_f64()
    ));
    assert_eq!(tally.runs, scenarios.len(), "{what}");
    if let Some(complaint) = tally.complaint() {
        panic!("{what}: {complaint}");
    }
    assert!(
        faults.idle_part() <= idle,
        "{what}: {} of {} faults never came true",
        faults.idle,
        faults.planned
    );
    total.merge(tally.clone());
    tally
}

/// The table of what was run under this host, all of whose points must have been come by, and all of whose predicates been true.
fn conclude(host: Host, tally: Tally, began: Instant) {
    let results = Results {
        hosts: vec![host],
        seeds: 0,
        tally,
        errant: Vec::new(),
        mutants: None,
        took: began.elapsed(),
    };
    say(&results.text());
    assert_eq!(
        (results.missed_points(), results.missed_predicates()),
        (vec![], vec![]),
        "never come by, never true"
    );
}
