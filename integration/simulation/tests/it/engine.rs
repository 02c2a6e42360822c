//! Every order in which an engine may say barrier, commit, restore and close, with a kill at its points, zombies, and faults
//! of calls.

use std::time::Instant;

use bigquery_sink_simulation::enumerate::{
    barrier_plans, call_faults, connection_faults, crashes_of, each, zombies_of,
};
use bigquery_sink_simulation::{Host, Incarnation, Scenario, Tally, seed};

use super::{IDLE_IN_PLANS, all, all_but, conclude};

/// Plans of these subtasks, before and after.
fn plans(parallelisms: &[(u32, u32)]) -> Vec<Scenario> {
    let wanted = |scenario: &Scenario| match scenario.incarnations[..] {
        [
            Incarnation {
                parallelism: before, ..
            },
            Incarnation {
                parallelism: after, ..
            },
        ] => parallelisms.contains(&(before, after)),
        _ => false,
    };
    let scenarios = barrier_plans().into_iter().map(|(_, scenario)| scenario);
    scenarios.filter(wanted).collect()
}

/// Every so many-th of them, from one to the next with another recovery.
fn some(plans: Vec<Scenario>, step: usize) -> Vec<Scenario> {
    plans.into_iter().step_by(step).collect()
}

#[test]
fn every_barrier_plan() {
    let began = Instant::now();
    let mut total = Tally::default();
    let every: Vec<_> = barrier_plans()
        .into_iter()
        .map(|(_, scenario)| scenario)
        .collect();
    all(&mut total, "every plan as it is", &every);
    // 10 is no divisor of the number of recoveries, and neither are those below.
    let small = some(plans(&[(1, 1)]), 10);
    all(
        &mut total,
        "a kill at every point of small plans",
        &each(&small, |_, plan| crashes_of(plan, 0, 0, 1)),
    );
    let large = some(plans(&[(2, 2), (3, 3), (1, 3), (2, 3), (2, 1)]), 7);
    all(
        &mut total,
        "a kill at every 29th point of larger plans",
        &each(&large, |index, plan| crashes_of(plan, 0, index % 29, 29)),
    );
    all(
        &mut total,
        "a kill at every 23rd point of what comes after",
        &each(&large, |index, plan| crashes_of(plan, 1, index % 23, 23)),
    );
    let zombies = some(plans(&[(1, 1), (2, 2), (2, 1), (3, 1)]), 9);
    for (name, ms) in [("at once", 0), ("when the next is at work", 270), ("late", 5_000)] {
        all(
            &mut total,
            &format!("a zombie at every 37th point, back {name}"),
            &each(&zombies, |index, plan| zombies_of(plan, index % 37, 37, ms)),
        );
    }
    let mut few = some(plans(&[(1, 1), (1, 3)]), 83);
    // So that requests are under way behind the one that fails.
    few[0].workload.latency_ms = 60;
    all(
        &mut total,
        "every call of a few plans and what can happen to it",
        &each(&few, |_, plan| call_faults(plan)),
    );
    all(
        &mut total,
        "every call of a few plans and what can happen to its connection",
        &each(&few, |_, plan| connection_faults(plan)),
    );
    let seeds: Vec<_> = (0..150).map(seed::engine).collect();
    all_but(&mut total, "seeds", &seeds, IDLE_IN_PLANS);
    conclude(Host::Engine, total, began);
}
