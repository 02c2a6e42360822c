//! One row a fact: where it is written, what it says, a script, and what the emulator must answer to it.

use bigquery_write_emulator::faults::FaultPlan;

mod appends;
mod connections;
mod faults;
mod streams;
mod visibility;

/// A fact about the service.
struct Fact {
    /// Where it is written, and how well it is proven.
    source: &'static str,
    /// What it says.
    says: &'static str,
    /// Tries it, and writes down the answers.
    script: fn() -> Vec<String>,
    /// What they must be.
    answers: &'static [&'static str],
}

const DEFAULT: &str = "projects/p/datasets/d/tables/t/streams/_default";
const DAY_MS: i64 = 86_400_000;

const FACTS: [&[Fact]; 5] = [
    appends::FACTS,
    visibility::FACTS,
    streams::FACTS,
    connections::FACTS,
    faults::FACTS,
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
    println!("{} facts", facts.clone().count());
    assert!(
        wrong.is_empty(),
        "{} facts of {} are wrong:\n{}",
        wrong.len(),
        facts.count(),
        wrong.join("\n")
    );
}

fn plan(json: &str) -> FaultPlan {
    FaultPlan::parse(json).unwrap()
}
