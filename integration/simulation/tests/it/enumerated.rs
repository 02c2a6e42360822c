//! Every run of a kind. Each batch says how many there are, and runs them all.

use std::collections::BTreeSet;
use std::time::Instant;

use bigquery_sink_simulation::enumerate::{
    actions, call_faults, call_faults_of, connection_faults, connection_faults_of, crashes_in_recovery,
    crashes_of, each, early_zombies, killed_at_commit, late_calls, outages, reopening_faults, stops,
    store_faults, store_faults_of, with_crashes, zombies_of,
};
use bigquery_sink_simulation::{Called, Host, Outcome, Predicate, Scenario, Tally, run, seed};
use bigquery_write_emulator::faults::FaultPlan;

use super::{IDLE_IN_PAIRS, IDLE_IN_SEEDS, all, all_but, all_loud, conclude};

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

/// Every so many-th of a batch that is a sample.
pub(super) fn some(scenarios: Vec<Scenario>, step: usize) -> Vec<Scenario> {
    scenarios.into_iter().step_by(step).collect()
}

#[test]
fn every_point_every_fault_every_pair() {
    let began = Instant::now();
    let mut total = Tally::default();
    processes_that_end(&mut total);
    calls(&mut total);
    stores(&mut total);
    pairs(&mut total);
    let seeds: Vec<_> = (0..400).map(seed::scenario).collect();
    all_but(
        &mut total,
        "seeds with three faults and more",
        &seeds,
        IDLE_IN_SEEDS,
    );
    conclude(Host::Embedded, total, began);
}

/// Killed, cut off and back later, told to stop; and the next one has another parallelism.
fn processes_that_end(total: &mut Tally) {
    for (before, after, step) in [(1, 1, 1), (2, 2, 1), (1, 3, 1), (3, 1, 3)] {
        let calm = Scenario::rescaled(before, after);
        let subtasks = format!("{before} to {after} subtasks");
        let nth = |step: usize| match step {
            1 => "every point".to_owned(),
            3 => "every 3rd point".to_owned(),
            step => format!("every {step}th point"),
        };
        all(
            total,
            &format!("a kill at {}, {subtasks}", nth(step)),
            &crashes_of(&calm, 0, 0, step),
        );
        let step = if after == 1 && before == 1 { 1 } else { 3 };
        all(
            total,
            &format!("a zombie at {}, back late, {subtasks}", nth(step)),
            &zombies_of(&calm, 0, step, 5_000),
        );
        let step = if before == 1 { step } else { 9 };
        all(
            total,
            &format!(
                "a zombie at {}, back when the next is at work, {subtasks}",
                nth(step)
            ),
            &early_zombies(&calm, step / 2, step),
        );
        all(
            total,
            &format!("a stop at every 29th millisecond, {subtasks}"),
            &stops(&calm, 29),
        );
    }
}

fn calls(total: &mut Tally) {
    for (how, scenario) in [
        ("1 subtask", Scenario::calm(1)),
        ("2 subtasks", Scenario::calm(2)),
        ("several requests to a checkpoint", Scenario::sparse()),
        ("requests under way behind each", Scenario::latent()),
    ] {
        all_loud(
            total,
            &format!("every call and what can happen to it, {how}"),
            &call_faults(&scenario),
        );
    }
    for (how, scenario) in [
        ("1 subtask", Scenario::latent()),
        ("2 subtasks", Scenario::calm(2)),
    ] {
        all_loud(
            total,
            &format!("calls refused for minutes from every call on, {how}"),
            &outages(&scenario),
        );
    }
    for (before, after, step) in [(1, 1, 1), (2, 1, 2), (1, 3, 5)] {
        let killed = killed_at_commit(&Scenario::rescaled(before, after)).unwrap();
        let nth = match step {
            1 => "every".to_owned(),
            step => format!("1 in {step} of every"),
        };
        let subtasks = format!("{before} to {after} subtasks");
        all_loud(
            total,
            &format!("{nth} call of a recovery and what can happen to it, {subtasks}"),
            &some(call_faults_of(&killed, 1), step),
        );
        all(
            total,
            &format!("{nth} call of a recovery and what can happen to its connection, {subtasks}"),
            &some(connection_faults_of(&killed, 1), step),
        );
    }
    all_loud(
        total,
        "every 2nd of: each append's connection is cut, and what can happen to the next one's first request",
        &some(reopening_faults(&Scenario::latent()), 2),
    );
    for (before, after) in [(1, 1), (2, 1), (1, 3)] {
        all(
            total,
            &format!("every call carried out late, its process killed, {before} to {after} subtasks"),
            &late_calls(&Scenario::rescaled(before, after)),
        );
    }
}

fn stores(total: &mut Tally) {
    all_loud(
        total,
        "every operation of the store and what can happen to it",
        &store_faults(&Scenario::calm(1)),
    );
    for (before, after, step) in [(1, 1, 40), (2, 1, 100)] {
        let kills = some(crashes_of(&Scenario::rescaled(before, after), 0, 0, 1), step);
        all_loud(
            total,
            &format!(
                "every 3rd of the operations of the store in the recovery from every {step}th kill, {before} to {after} subtasks"
            ),
            &some(each(&kills, |_, killed| store_faults_of(killed, 1)), 3),
        );
    }
}

fn pairs(total: &mut Tally) {
    for (before, after, every, step) in [(1, 1, 1, 127), (2, 1, 11, 83), (1, 3, 5, 127)] {
        let calm = Scenario::rescaled(before, after);
        let (kills, calls, stores) = (
            some(crashes_of(&calm, 0, 0, 1), every),
            some(call_faults(&calm), every),
            some(of_any_process(store_faults(&calm)), every),
        );
        // One in so many of all pairs.
        let part = every * step;
        let subtasks = format!("{before} to {after} subtasks");
        all(
            total,
            &format!("a kill in the recovery from a kill, 1 in {part} of all, {subtasks}"),
            &crashes_in_recovery(&kills, step),
        );
        all_but(
            total,
            &format!("a kill besides a fault of a call, 1 in {part} of all, {subtasks}"),
            &with_crashes(&calls, step),
            IDLE_IN_PAIRS,
        );
        all_but(
            total,
            &format!("a kill besides a fault of the store, 1 in {part} of all, {subtasks}"),
            &with_crashes(&stores, step),
            IDLE_IN_PAIRS,
        );
    }
}

/// Operations are counted over all processes: where the first is dead before its fault, the next one comes to it.
fn of_any_process(mut scenarios: Vec<Scenario>) -> Vec<Scenario> {
    for fault in scenarios
        .iter_mut()
        .flat_map(|scenario| &mut scenario.store_faults)
    {
        fault.process = None;
    }
    scenarios
}

/// Bad rows become dead letters whatever happens: each row is in one of the two tables, once, and in the right one.
#[test]
fn bad_rows_at_points_and_calls() {
    let total = &mut Tally::default();
    let lettered = Scenario::lettered();
    all(
        total,
        "a kill at every 2nd point, with bad rows",
        &crashes_of(&lettered, 0, 0, 2),
    );
    all(
        total,
        "a zombie at every 3rd point, with bad rows",
        &zombies_of(&lettered, 0, 3, 5_000),
    );
    all_loud(
        total,
        "every 2nd call and what can happen to it, with bad rows",
        &some(call_faults(&lettered), 2),
    );
    all(
        total,
        "every 5th call and what can happen to its connection, with bad rows",
        &some(connection_faults(&lettered), 5),
    );
    all_loud(
        total,
        "every 3rd operation of the store and what can happen to it, with bad rows",
        &some(store_faults(&lettered), 3),
    );
    for (before, after) in [(2, 1), (1, 3)] {
        let mut calm = Scenario::rescaled(before, after);
        calm.workload.dead_letters = true;
        let subtasks = format!("{before} to {after} subtasks");
        all(
            total,
            &format!("a kill at every 11th point, with bad rows, {subtasks}"),
            &crashes_of(&calm, 0, 3, 11),
        );
        all(
            total,
            &format!("every 2nd call carried out late, its process killed, with bad rows, {subtasks}"),
            &some(late_calls(&calm), 2),
        );
        all_but(
            total,
            &format!("a kill besides a fault of a call, 1 in 12,319 of all, with bad rows, {subtasks}"),
            &with_crashes(&some(call_faults(&calm), 97), 127),
            IDLE_IN_PAIRS,
        );
    }
}

/// Every kind of fault that the emulator knows is made at some call.
#[test]
fn no_kind_of_fault_is_left_out() {
    let unknown = r#"{"rules":[{"rpc":"FlushRows","action":{"kind":"nonsense"}}]}"#;
    let unknown = FaultPlan::parse(unknown).unwrap_err().to_string();
    let (_, all) = unknown.split_once("expected one of ").unwrap();
    let all: BTreeSet<_> = all
        .split(", ")
        .map(|kind| kind.trim_matches('`').to_owned())
        .collect();
    let made = Called::ALL.into_iter().flat_map(actions);
    let made: BTreeSet<_> = made
        .map(|action| {
            let written = serde_json::to_value(action).unwrap();
            written["kind"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(made, all);
}
