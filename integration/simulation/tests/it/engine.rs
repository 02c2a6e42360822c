//! Every order in which an engine may say barrier, commit, restore and close, with a kill at its points, zombies, and faults
//! of calls.

use std::time::Instant;

use bigquery_sink_simulation::enumerate::{
    barrier_plans, call_faults, connection_faults, crashes_of, each, late_calls, lone_bad_rows, zombies_of,
};
use bigquery_sink_simulation::{Host, Incarnation, Scenario, Tally, seed};

use super::enumerated::some;
use super::{IDLE_AT_THE_END, IDLE_IN_PLANS, all, all_but, all_loud, conclude};

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

/// The same plans, with bad rows among what they write.
fn lettered(mut plans: Vec<Scenario>) -> Vec<Scenario> {
    for plan in &mut plans {
        plan.workload.dead_letters = true;
    }
    plans
}

/// Of what `expand` makes of each plan every so many-th, of one plan another than of the next.
fn some_of_each(
    plans: &[Scenario],
    step: usize,
    expand: impl Fn(&Scenario) -> Vec<Scenario> + Sync,
) -> Vec<Scenario> {
    each(plans, |index, plan| {
        let expanded = expand(plan).into_iter();
        expanded.skip(index % step).step_by(step).collect()
    })
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
    all_loud(
        &mut total,
        "every call of a few plans and what can happen to it",
        &each(&few, |_, plan| call_faults(plan)),
    );
    all(
        &mut total,
        "every call of a few plans and what can happen to its connection",
        &each(&few, |_, plan| connection_faults(plan)),
    );
    // With zombies, ends of data, and fewer subtasks than before.
    let many = some(every.clone(), 61);
    all_but(
        &mut total,
        "every 23rd call of every 61st plan and what can happen to it",
        &some_of_each(&many, 23, call_faults),
        IDLE_AT_THE_END,
    );
    all(
        &mut total,
        "every 13th call of every 61st plan and what can happen to its connection",
        &some_of_each(&many, 13, connection_faults),
    );
    all_but(
        &mut total,
        "every 4th call of every 61st plan carried out late, its process killed",
        &some_of_each(&many, 4, late_calls),
        IDLE_AT_THE_END,
    );
    let bad = lettered(some(every, 6));
    all(&mut total, "every 6th plan with bad rows", &bad);
    let alone = lone_bad_rows();
    all(&mut total, "a bad row alone in its checkpoint", &alone);
    all(
        &mut total,
        "the same with a kill at every 31st point",
        &each(&alone, |index, plan| crashes_of(plan, 0, index % 31, 31)),
    );
    let bad = some(bad, 16);
    all(
        &mut total,
        "a kill at every 31st point of every 96th plan, with bad rows",
        &each(&bad, |index, plan| crashes_of(plan, 0, index % 31, 31)),
    );
    all_but(
        &mut total,
        "every 31st call of every 96th plan and what can happen to it, with bad rows",
        &some_of_each(&bad, 31, call_faults),
        IDLE_AT_THE_END,
    );
    let seeds: Vec<_> = (0..150).map(seed::engine).collect();
    all_but(
        &mut total,
        "seeds with three faults and more",
        &seeds,
        IDLE_IN_PLANS,
    );
    conclude(Host::Engine, total, began);
}
