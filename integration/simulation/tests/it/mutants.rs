//! Known mistakes, each made on purpose: an oracle that does not notice them proves nothing.
//!
//! `cargo test -p bigquery-sink-simulation --features mutants mutants`

use bigquery_sink::{Mutant, Mutation};
use bigquery_sink_simulation::mutants::{control, try_out};
use bigquery_sink_simulation::{Verdict, run, run_all};

use super::say;
use super::scenarios::incidents;

#[test]
fn mutants_are_noticed() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        match try_out(mutant).verdict {
            Verdict::Elsewhere { why } => say(&format!("{mutant:?}: not here, since {why}")),
            Verdict::Noticed { runs, violation } => {
                say(&format!("{mutant:?}: noticed after {runs} runs: {violation}"));
            }
            Verdict::Missed { runs } => {
                say(&format!("{mutant:?}: not noticed in {runs} runs"));
                survivors.push(mutant);
            }
        }
    }
    assert_eq!(survivors, []);
}

/// A batch with a run that is broken anyway would take any mistake for noticed.
#[test]
fn mutants_are_what_breaks_the_runs_that_notice_them() {
    let scenarios = control();
    let tally = run_all(&scenarios);
    if let Some(complaint) = tally.complaint() {
        panic!("broken without a mistake: {complaint}");
    }
    say(&format!(
        "without a mistake {} of {} runs are sound",
        tally.runs - tally.broken_runs,
        scenarios.len()
    ));
}

/// Which mistake each incident is the shortest schedule for.
const INCIDENTS: [(&str, Mutant); 6] = [
    ("checkpoint_that_comes_to_nothing.json", Mutant::FlushAtBarrier),
    ("commit_after_a_rescale.json", Mutant::CommitOnlyOwnEntries),
    (
        "conflict_in_the_middle_of_an_epoch.json",
        Mutant::NewStreamWithoutResend,
    ),
    (
        "end_of_data_before_the_replayed_commit.json",
        Mutant::ForgetRestoredListAtEnd,
    ),
    ("out_of_range_after_a_reconnect.json", Mutant::OutOfRangeAsSuccess),
    (
        "stream_gone_with_rows_owed.json",
        Mutant::LeaveGoneStreamThatOwesRows,
    ),
];

#[test]
fn mutants_are_noticed_in_their_incidents() {
    let incidents = incidents();
    for (name, mutant) in INCIDENTS {
        let (_, scenario) = incidents.iter().find(|(file, _)| file == name).unwrap();
        let mut scenario = scenario.clone();
        scenario.mutation = Mutation::of(mutant);
        let violations = run(&scenario).violations;
        assert_ne!(violations, [""; 0], "{name} does not notice {mutant:?}");
        say(&format!("{name} notices {mutant:?}: {}", violations[0]));
    }
}
