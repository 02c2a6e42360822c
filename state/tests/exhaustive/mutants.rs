//! Every mistake of the core is found.

use bigquery_sink_state::{Mutant, Mutation};

use crate::MOST_STATES;
use crate::explorer::explore;
use crate::scope::Scope;

/// Mutants whose site is not in the core: the operator and the host make them.
const ELSEWHERE: [Mutant; 8] = [
    Mutant::FinalizeInClose,
    Mutant::AppendInCloseAfterSnapshot,
    Mutant::SkipEmptyEpochs,
    Mutant::NewestStateThoughNotComplete,
    Mutant::StepBackPastDamage,
    Mutant::NoEpochClaim,
    Mutant::NextCompleteBeforeCommit,
    Mutant::QueuePositionAcrossConnections,
];

#[test]
fn every_mutant_of_the_core_is_killed() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        if ELSEWHERE.contains(&mutant) {
            continue;
        }
        match killed_by(mutant) {
            Some(how) => println!("{mutant:?}: {how}"),
            None => survivors.push(mutant),
        }
    }
    assert_eq!(survivors, [], "mutants that no scope tells from the core");
}

/// The first scope that tells a mutant from the core, after how many states, and by what.
fn killed_by(mutant: Mutant) -> Option<String> {
    let mut before = 0;
    for scope in Scope::all() {
        let scope = Scope {
            mutation: Mutation::of(mutant),
            ..scope
        };
        let explored = explore(&scope, MOST_STATES);
        before += explored.states;
        if let Some(violation) = explored.violation {
            let steps = violation.steps();
            let what = violation.what.lines().next().unwrap_or_default();
            return Some(format!(
                "killed after {before} states, by {steps} steps of \"{scope}\": {what}"
            ));
        }
    }
    None
}
