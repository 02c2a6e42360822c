//! Known mistakes, each made on purpose: an oracle that does not notice them proves nothing.

use std::collections::BTreeSet;

use bigquery_sink::{Mutant, Mutation};

use crate::batch::{Tally, run_until};
use crate::enumerate::{barrier_plans, call_faults, crashes, lone_bad_rows, zombies};
use crate::point::{Object, StoreOp};
use crate::results::{Tried, Verdict};
use crate::scenario::{End, Scenario, StoreFault, StoreFaultKind};
use crate::seed;

/// Each is noticed within so many runs.
pub const RUNS: usize = 800;

/// Those that no run here shows, and why. The model check of the core (`state/tests/exhaustive`, behind the same feature) notices the
/// ones that have a place in the core.
const ELSEWHERE: [(Mutant, &str); 3] = [
    (
        Mutant::CountLateAckAfterLeaving,
        "the driver hears nothing of a connection that was given up",
    ),
    (
        Mutant::NoGenerationCheck,
        "the driver hears nothing of a connection that was given up",
    ),
    (
        Mutant::MoveRowsUpWhileInDoubt,
        "BigQuery stores nothing behind a request that it refused, so that what was in doubt there is not stored",
    ),
];

/// Makes the mistake, and looks whether it is noticed.
///
/// # Panics
/// If a run panics outside the simulated processes.
#[must_use]
pub fn try_out(mutant: Mutant) -> Tried {
    Tried {
        mutant: format!("{mutant:?}"),
        verdict: verdict(mutant),
    }
}

fn verdict(mutant: Mutant) -> Verdict {
    if let Some((_, why)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == mutant) {
        return Verdict::Elsewhere {
            why: (*why).to_owned(),
        };
    }
    let mut scenarios = batch(mutant);
    for scenario in &mut scenarios {
        scenario.mutation = Mutation::of(mutant);
    }
    let shown = |tally: &Tally| {
        let violated = |property: &&str| tally.properties.get(*property).cloned();
        shows(mutant).iter().find_map(violated)
    };
    let tally = run_until(&scenarios, |tally| shown(tally).is_some());
    let runs = tally.runs;
    match shown(&tally) {
        Some(violation) => Verdict::Noticed { runs, violation },
        None => Verdict::Missed { runs },
    }
}

/// The properties of which one must be violated: those that the mistake is about, so that none passes for noticed by what it does besides.
fn shows(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::FinalizeInClose => &["P9"],
        Mutant::GoOnWithRestoredStream => &["P6"],
        Mutant::FlushAtBarrier
        | Mutant::AppendInCloseAfterSnapshot
        | Mutant::FlushNextOffset
        | Mutant::NoEpochClaim
        | Mutant::StepBackPastDamage => &["P5"],
        // BigQuery refuses what comes of it, or what is not there cannot be flushed: the job restarts where nothing asks for it, or ends.
        Mutant::SwallowAlreadyExists
        | Mutant::OutOfRangeAsSuccess
        | Mutant::KeepOffsetsAfterRowError
        | Mutant::SkipEmptyEpochs
        | Mutant::QueuePositionAcrossConnections
        | Mutant::LeaveGoneStreamThatOwesRows => &["P1", "P2", "P11"],
        _ => &["P1", "P2"],
    }
}

/// Every run in which some mistake is looked for, each once: without a mistake none may be broken, or its batch notices nothing.
#[must_use]
pub fn control() -> Vec<Scenario> {
    let mut seen = BTreeSet::new();
    let is_elsewhere = |mutant| ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == mutant);
    let sought = Mutant::ALL.into_iter().filter(|mutant| !is_elsewhere(*mutant));
    let mut scenarios: Vec<_> = sought.flat_map(batch).collect();
    scenarios.retain(|scenario| seen.insert(scenario.to_json()));
    scenarios
}

fn batch(mutant: Mutant) -> Vec<Scenario> {
    let (one, two) = (Scenario::calm(1), Scenario::calm(2));
    let mut scenarios = match mutant {
        Mutant::StepBackPastDamage => rotten(&one),
        Mutant::CommitOnlyOwnEntries => crashes(&Scenario::rescaled(2, 1)),
        // Only the engine ends its data without a checkpoint.
        Mutant::ForgetRestoredListAtEnd => barrier_plans().into_iter().map(|(_, plan)| plan).collect(),
        Mutant::NoEpochClaim => zombies(&one, 400),
        Mutant::AppendInCloseAfterSnapshot => call_faults(&two),
        // A stream expires that owes rows, and no commit is under way.
        Mutant::LeaveGoneStreamThatOwesRows => call_faults(&Scenario::sparse()),
        Mutant::NewestStateThoughNotComplete
        | Mutant::NextCompleteBeforeCommit
        | Mutant::GoOnWithRestoredStream => crashes(&one),
        // Several connections fail behind one another.
        Mutant::QueuePositionAcrossConnections => Vec::new(),
        Mutant::KeepOffsetsAfterRowError => lettered(),
        Mutant::PrepareWithDeadLettersOwed => lone_bad_rows(),
        _ => call_faults(&Scenario::latent()),
    };
    scenarios.extend(call_faults(&one));
    scenarios.extend((0..RUNS as u64).map(seed::scenario));
    scenarios.truncate(RUNS);
    scenarios
}

/// Bad rows, with a kill at every point and a fault of every call, in turns.
fn lettered() -> Vec<Scenario> {
    let calm = Scenario::lettered();
    let (kills, calls) = (crashes(&calm), call_faults(&calm));
    let each = kills.len().max(calls.len());
    (0..each)
        .flat_map(|at| [kills.get(at), calls.get(at)])
        .flatten()
        .cloned()
        .collect()
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
                    process: None,
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
