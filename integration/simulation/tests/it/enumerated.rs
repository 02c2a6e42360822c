//! Every run of a kind. Each batch says how many there are, and runs them all.

use std::time::Instant;

use bigquery_sink_simulation::enumerate::{
    call_faults, crashes, crashes_in_recovery, crashes_of, store_faults, with_crashes, zombies_of,
};
use bigquery_sink_simulation::{Host, Incarnation, Outcome, Predicate, Scenario, Tally, run, seed};
use bigquery_write_emulator::faults::{FaultAction, FaultRule};

use super::{IDLE_IN_SEEDS, all, all_but, conclude};

#[test]
fn a_run_that_nothing_disturbs_publishes_everything() {
    for parallelism in 1..=3 {
        let report = run(&Scenario::calm(parallelism));
        assert_eq!(report.violations, [""; 0], "{}", report.trace);
        assert_eq!(report.outcome, Outcome::Complete);
        let mut scenario = Scenario::calm(parallelism);
        scenario.workload.dead_letters = true;
        let report = run(&scenario);
        assert_eq!(report.violations, [""; 0], "{}", report.trace);
        assert_eq!(report.outcome, Outcome::Complete);
        assert!(
            report.predicates.contains_key(&Predicate::RowsMovedUp),
            "{}",
            report.trace
        );
    }
}

/// A calm run of one parallelism, gone on with another.
fn rescaled(before: u32, after: u32) -> Scenario {
    Scenario {
        incarnations: vec![Incarnation::new(before), Incarnation::new(after)],
        ..Scenario::default()
    }
}

pub(super) fn sparse() -> Scenario {
    let mut scenario = Scenario::calm(1);
    scenario.workload.checkpoint_ms = 350;
    scenario.workload.rows = 60;
    scenario
}

pub(super) fn latent() -> Scenario {
    let mut scenario = sparse();
    scenario.workload.latency_ms = 150;
    scenario
}

#[test]
fn every_point_every_fault_every_pair() {
    let began = Instant::now();
    let mut total = Tally::default();
    for (before, after, step) in [(1, 1, 1), (2, 2, 1), (1, 3, 1), (3, 1, 3)] {
        let calm = rescaled(before, after);
        let which = if step == 1 {
            "every point".to_owned()
        } else {
            format!("every {step}rd point")
        };
        all(
            &mut total,
            &format!("a kill at {which}, {before} to {after} subtasks"),
            &crashes_of(&calm, 0, 0, step),
        );
        all(
            &mut total,
            &format!("a zombie at {which}, {before} to {after} subtasks"),
            &zombies_of(&calm, 0, step, 5_000),
        );
    }
    let calm = Scenario::calm(1);
    let (kills, calls, stores) = (crashes(&calm), call_faults(&calm), store_faults(&calm));
    all(
        &mut total,
        "every call and what can happen to it, 1 subtask",
        &calls,
    );
    all(
        &mut total,
        "every call and what can happen to it, 2 subtasks",
        &call_faults(&Scenario::calm(2)),
    );
    all(
        &mut total,
        "the same with several requests to a checkpoint",
        &call_faults(&sparse()),
    );
    all(
        &mut total,
        "the same with requests under way behind each",
        &call_faults(&latent()),
    );
    all(
        &mut total,
        "every operation of the store and what can happen to it",
        &stores,
    );
    all(
        &mut total,
        "a kill in the recovery from every kill, each 61st",
        &crashes_in_recovery(&kills, 61),
    );
    all(
        &mut total,
        "a kill besides a fault of a call, each 67th",
        &with_crashes(&calls, 67),
    );
    all(
        &mut total,
        "a kill besides a fault of the store, each 67th",
        &with_crashes(&stores, 67),
    );
    let seeds: Vec<_> = (0..400).map(seed::scenario).collect();
    all_but(
        &mut total,
        "seeds with three faults and more",
        &seeds,
        IDLE_IN_SEEDS,
    );
    conclude(Host::Embedded, total, began);
}

/// Bad rows become dead letters whatever happens: each row is in one of the two tables, once, and in the right one.
#[test]
fn bad_rows_at_points_and_calls() {
    let mut total = Tally::default();
    let mut lettered = latent();
    lettered.workload.rows = 40;
    lettered.workload.dead_letters = true;
    all(
        &mut total,
        "a kill at every 2nd point, with bad rows",
        &crashes_of(&lettered, 0, 0, 2),
    );
    all(
        &mut total,
        "a zombie at every 3rd point, with bad rows",
        &zombies_of(&lettered, 0, 3, 5_000),
    );
    let mut faults = call_faults(&lettered);
    // Which rows are bad is the workload's to say.
    let row_errors = |rule: &FaultRule| matches!(rule.action, FaultAction::RowErrors { .. });
    faults.retain(|scenario| !scenario.faults.rules.iter().any(row_errors));
    let faults: Vec<_> = faults.into_iter().step_by(2).collect();
    all(
        &mut total,
        "every 2nd call and what can happen to it, with bad rows",
        &faults,
    );
}
