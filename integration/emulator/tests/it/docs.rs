//! What the documentation says of the emulator is so.

use std::collections::BTreeMap;

use bigquery_write_emulator::machine::Switches;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/emulator.md");

/// Names and defaults of the table under "Switches".
fn documented() -> BTreeMap<String, String> {
    let section = PAGE.split("## Switches").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned());
        let name = cells.nth(1).unwrap();
        (name, cells.next().unwrap())
    })
    .collect()
}

#[test]
fn the_documented_switches_are_those_there_are_with_their_defaults() {
    let Value::Object(defaults) = serde_json::to_value(Switches::default()).unwrap() else {
        panic!("switches are no object");
    };
    let defaults: BTreeMap<_, _> = defaults
        .into_iter()
        .map(|(name, value)| (name, value.to_string()))
        .collect();
    assert_eq!(documented(), defaults);
}
