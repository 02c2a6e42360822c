//! Known mistakes, each made on purpose: an oracle that does not notice them proves nothing.

use bigquery_sink::{Mutant, Mutation};

use crate::batch::run_until;
use crate::enumerate::{barrier_plans, call_faults, crashes, zombies};
use crate::point::{Object, StoreOp};
use crate::results::{Tried, Verdict};
use crate::scenario::{End, Incarnation, Scenario, StoreFault, StoreFaultKind};
use crate::seed;

/// Each is noticed within so many runs.
pub const RUNS: usize = 800;

/// Those that no run here shows, and why. The model check of the core (`state/tests/exhaustive`, behind the same feature) notices the
/// ones that have a place in the core.
const ELSEWHERE: [(Mutant, &str); 7] = [
    (
        Mutant::QueuePositionAcrossConnections,
        "a connection is given up before the next one opens, and each answer must name the offset that is due",
    ),
    (
        Mutant::GoOnWithRestoredStream,
        "BigQuery refuses an offset that a zombie has filled; only rows batched in just another way at just that offset would pass",
    ),
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
        "its batch has no bad rows yet; the model check of the core notices it",
    ),
    (
        Mutant::KeepOffsetsAfterRowError,
        "its batch has no bad rows yet; the model check of the core notices it",
    ),
    (
        Mutant::PrepareWithDeadLettersOwed,
        "its batch has no bad rows yet; the model check of the core notices it",
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
    let tally = run_until(&batch(mutant), |tally| tally.broken_runs > 0);
    let runs = tally.runs;
    match tally.broken.into_iter().next() {
        Some(broken) => Verdict::Noticed {
            runs,
            violation: broken.violations.into_iter().next().unwrap_or_default(),
        },
        None => Verdict::Missed { runs },
    }
}

fn batch(mutant: Mutant) -> Vec<Scenario> {
    let (one, two) = (Scenario::calm(1), Scenario::calm(2));
    let rescaled = Scenario {
        incarnations: vec![Incarnation::new(2), Incarnation::new(1)],
        ..Scenario::default()
    };
    // Requests wait for their answers, so that some are under way whenever something happens.
    let mut latent = one.clone();
    latent.workload.latency_ms = 150;
    latent.workload.rows = 60;
    // Several requests to a checkpoint.
    let mut sparse = one.clone();
    sparse.workload.checkpoint_ms = 350;
    sparse.workload.rows = 60;
    let mut scenarios = match mutant {
        Mutant::StepBackPastDamage => rotten(&one),
        Mutant::CommitOnlyOwnEntries => crashes(&rescaled),
        // Only the engine ends its data without a checkpoint.
        Mutant::ForgetRestoredListAtEnd => barrier_plans().into_iter().map(|(_, plan)| plan).collect(),
        Mutant::NoEpochClaim => zombies(&one, 400),
        Mutant::AppendInCloseAfterSnapshot => call_faults(&two),
        // A stream expires that owes rows, and no commit is under way.
        Mutant::LeaveGoneStreamThatOwesRows => call_faults(&sparse),
        Mutant::NewestStateThoughNotComplete | Mutant::NextCompleteBeforeCommit => crashes(&one),
        _ => call_faults(&latent),
    };
    scenarios.extend(call_faults(&one));
    scenarios.extend((0..RUNS as u64).map(seed::scenario));
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
