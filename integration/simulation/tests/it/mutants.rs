//! Known mistakes, each made on purpose: an oracle that does not notice them proves nothing.
//!
//! `cargo test -p bigquery-sink-simulation --features mutants mutants`

use bigquery_sink::{Mutant, Mutation};
use bigquery_sink_simulation::enumerate::{call_faults, crashes, store_faults, with_crashes, zombies};
use bigquery_sink_simulation::{
    End, Incarnation, Object, Scenario, StoreFault, StoreFaultKind, StoreOp, run_until, seed,
};

use super::say;

/// Each is noticed within so many runs.
const RUNS: usize = 1_500;

/// Those that only the core's own model check can reach: the loop around the core never lets it come to that.
const ELSEWHERE: [Mutant; 0] = [];

fn batch(mutant: Mutant) -> Vec<Scenario> {
    let one = Scenario::calm(1);
    let rescaled = Scenario {
        incarnations: vec![Incarnation::new(2), Incarnation::new(1)],
        ..Scenario::default()
    };
    let latent = |mut scenario: Scenario| {
        scenario.workload.latency_ms = 50;
        scenario.workload.rows = 60;
        scenario
    };
    let mut scenarios = match mutant {
        Mutant::StepBackPastDamage => rotten(&one),
        Mutant::CommitOnlyOwnEntries => crashes(&rescaled),
        Mutant::NoEpochClaim => zombies(&one, 400),
        Mutant::NewestStateThoughNotComplete | Mutant::NextCompleteBeforeCommit => crashes(&one),
        _ => Vec::new(),
    };
    scenarios.extend(call_faults(&latent(one.clone())));
    scenarios.extend(crashes(&one));
    scenarios.extend(with_crashes(&call_faults(&one), 17));
    scenarios.extend(store_faults(&one));
    scenarios.extend((0..400).map(seed::scenario));
    scenarios.truncate(RUNS);
    for scenario in &mut scenarios {
        scenario.mutation = Mutation::of(mutant);
    }
    scenarios
}

/// A checkpoint is committed, its bytes go bad, and the host is killed later.
fn rotten(calm: &Scenario) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for object in [Object::Manifest, Object::Claim, Object::Marker] {
        for kill in crashes(calm) {
            scenarios.push(Scenario {
                store_faults: vec![StoreFault {
                    op: StoreOp::Put(object),
                    nth: 2,
                    kind: StoreFaultKind::Rot,
                }],
                ..kill
            });
        }
    }
    // The last points of the run first: by then it is committed.
    scenarios.sort_by_key(|scenario| match scenario.incarnations[0].end {
        End::Kill { hit, .. } => std::cmp::Reverse(hit),
        _ => std::cmp::Reverse(0),
    });
    scenarios
}

#[test]
fn every_known_mistake_is_noticed() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        let scenarios = batch(mutant);
        let tally = run_until(&scenarios, |tally| tally.broken_runs > 0);
        match tally.broken.first() {
            Some(broken) => say(&format!(
                "{mutant:?}: noticed after {} runs: {}",
                tally.runs, broken.violations[0]
            )),
            None => {
                say(&format!("{mutant:?}: not noticed in {} runs", tally.runs));
                survivors.push(mutant);
            }
        }
    }
    survivors.retain(|survivor| !ELSEWHERE.contains(survivor));
    assert_eq!(survivors, []);
}
