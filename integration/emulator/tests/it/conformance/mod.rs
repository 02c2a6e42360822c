//! One row a fact: where it is written, what it says, a script, and what the emulator must answer to it.

use std::collections::BTreeSet;
use std::io::Write;
use std::panic::catch_unwind;

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::Behaviour;

use crate::world::UNLEARNED;

mod appends;
mod arrow;
mod changes;
mod connections;
mod descriptors;
mod faults;
mod lives;
mod missing;
mod protobuf;
mod quotas;
mod schemas;
mod shell;
mod streams;
mod values;
mod visibility;
mod writers;

/// A fact about the service.
struct Fact {
    /// Where it is written, and how well it is proven.
    source: &'static str,
    /// What it says.
    says: &'static str,
    /// What the emulator must have unlearned to get it wrong.
    behaviour: Behaviour,
    /// Tries it, and writes down the answers.
    script: fn() -> Vec<String>,
    /// What they must be.
    answers: &'static [&'static str],
}

pub(crate) const DEFAULT: &str = "projects/p/datasets/d/tables/t/streams/_default";
const DAY_MS: i64 = 86_400_000;

const FACTS: &[&[Fact]] = &[
    appends::FACTS,
    visibility::FACTS,
    streams::FACTS,
    lives::FACTS,
    connections::FACTS,
    faults::FACTS,
    quotas::FACTS,
    schemas::FACTS,
    shell::FACTS,
    values::FACTS,
    arrow::FACTS,
    protobuf::FACTS,
    descriptors::FACTS,
    missing::FACTS,
    writers::FACTS,
    changes::FACTS,
];

#[test]
fn every_fact_is_answered_as_it_is_written() {
    let mut wrong = Vec::new();
    let facts = FACTS.iter().copied().flatten();
    for fact in facts.clone() {
        let answers = (fact.script)();
        if answers != fact.answers {
            wrong.push(format!(
                "{} ({}):\n  expected {:#?}\n  found {answers:#?}",
                fact.says, fact.source, fact.answers
            ));
        }
    }
    say(&format!("{} facts", facts.clone().count()));
    assert!(
        wrong.is_empty(),
        "{} facts of {} are wrong:\n{}",
        wrong.len(),
        facts.count(),
        wrong.join("\n")
    );
}

/// A row that passes without the behaviour it is about tests nothing.
#[test]
fn every_row_fails_when_its_behaviour_is_unlearned() {
    let facts = || FACTS.iter().copied().flatten();
    let passing: Vec<_> = facts()
        .filter(|fact| {
            UNLEARNED.set(Some(fact.behaviour));
            // A script may stumble over an answer it does not expect.
            let answers = catch_unwind(fact.script);
            UNLEARNED.set(None);
            answers.is_ok_and(|answers| answers == fact.answers)
        })
        .map(|fact| format!("{} ({:?})", fact.says, fact.behaviour))
        .collect();
    say(&format!("{} facts unlearned", facts().count()));
    assert!(
        passing.is_empty(),
        "these rows pass without their behaviour:\n{}",
        passing.join("\n")
    );
    let checked: BTreeSet<_> = facts().map(|fact| fact.behaviour).collect();
    let unchecked: Vec<_> = Behaviour::ALL
        .iter()
        .filter(|one| !checked.contains(one))
        .collect();
    assert!(unchecked.is_empty(), "no row checks {unchecked:?}");
}

/// Past libtest, which keeps what passing tests print.
fn say(text: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn plan(json: &str) -> FaultPlan {
    FaultPlan::parse(json).unwrap()
}
