//! Rows that go to the default stream: none is lost, and one is there twice only where something that went wrong explains it.

use bigquery_sink_simulation::enumerate::{
    call_faults, connection_faults, crashes_of, store_faults, with_crashes, zombies_of,
};
use bigquery_sink_simulation::{Outcome, Scenario, Tally, WriteMode, run};

use super::{all, all_loud};

fn at_least_once(mut scenario: Scenario) -> Scenario {
    scenario.workload.mode = WriteMode::AtLeastOnce;
    scenario.workload.dead_letters = false;
    scenario
}

#[test]
fn a_run_that_nothing_disturbs_has_every_row_once() {
    for parallelism in 1..=3 {
        let report = run(&at_least_once(Scenario::calm(parallelism)));
        assert_eq!(report.violations, [""; 0], "{}", report.trace);
        assert_eq!(report.outcome, Outcome::Complete);
    }
}

#[test]
fn no_fault_and_no_crash_loses_a_row() {
    let mut total = Tally::default();
    // Never fewer: a key whose rows became visible before the first checkpoint is not read again by fewer subtasks.
    for (before, after) in [(1, 1), (1, 3), (2, 2)] {
        let calm = at_least_once(Scenario::rescaled(before, after));
        all(
            &mut total,
            &format!("at least once, a kill at every 3rd point, {before} to {after} subtasks"),
            &crashes_of(&calm, 0, 0, 3),
        );
        all(
            &mut total,
            &format!("at least once, a zombie at every 5th point, {before} to {after} subtasks"),
            &zombies_of(&calm, 0, 5, 5_000),
        );
    }
    let calm = at_least_once(Scenario::calm(1));
    let calls = call_faults(&calm);
    all_loud(&mut total, "at least once, every call", &calls);
    all_loud(
        &mut total,
        "at least once, with several requests to a checkpoint",
        &call_faults(&at_least_once(Scenario::sparse())),
    );
    all_loud(
        &mut total,
        "at least once, with requests under way behind each",
        &call_faults(&at_least_once(Scenario::latent())),
    );
    all(
        &mut total,
        "at least once, every call's connection",
        &connection_faults(&at_least_once(Scenario::latent())),
    );
    all_loud(
        &mut total,
        "at least once, every operation of the store",
        &store_faults(&calm),
    );
    all_loud(
        &mut total,
        "at least once, a kill besides a fault of a call, each 61st",
        &with_crashes(&calls, 61),
    );
}
