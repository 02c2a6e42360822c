//! `types`: the mapping table as it is printed.

use serde_json::{Value, json};

use crate::support::tool;

fn printed(arguments: &[&str]) -> String {
    let output = tool().arg("types").args(arguments).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn types_prints_what_is_written_and_what_is_refused() {
    let printed = printed(&[]);
    // Cells are wrapped to what the terminal has; words stay.
    let words = |text: &str| {
        text.replace(['│', '┆'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let said = words(&printed);
    for line in [
        "Written:",
        "INT64 UInt64 Int64 the same number; above 9223372036854775807: a row error",
        "JSON all text Utf8 the same text; not one JSON value: a row error",
        "Refused, before the first row:",
        "DATETIME timestamps of another zone cast it to TIMESTAMP without time zone, in the zone that is meant",
        "DATETIME, TIMESTAMP, TIMESTAMP(12) all integers say the unit, for example to_timestamp_millis(x)",
    ] {
        assert!(said.contains(line), "{line}: {printed}");
    }
}

#[test]
fn types_as_json_is_one_object_a_cell() {
    let cells: Vec<Value> = printed(&["--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(cells.len(), 20 * 55);
    let cell = |column: &str, pipeline: &str| {
        let mut found = cells
            .iter()
            .filter(|cell| cell["column"] == column && cell["pipeline"] == pipeline);
        let cell = found.next().unwrap_or_else(|| panic!("{pipeline} into {column}"));
        assert!(found.next().is_none());
        cell.clone()
    };
    assert_eq!(
        cell("TIMESTAMP(12)", "Timestamp(ns)"),
        json!({
            "column": "TIMESTAMP(12)", "pipeline": "Timestamp(ns)", "sql": "TIMESTAMP", "created": false,
            "sent_as": "Timestamp(ns, UTC)", "arrives": "the same instant, without a zone in UTC",
        })
    );
    assert_eq!(
        cell("INT64", "UInt64"),
        json!({
            "column": "INT64", "pipeline": "UInt64", "sql": "BIGINT UNSIGNED", "created": true,
            "sent_as": "Int64", "arrives": "the same number; above 9223372036854775807: a row error",
        })
    );
    assert_eq!(
        cell("DATE", "Int64"),
        json!({
            "column": "DATE", "pipeline": "Int64", "sql": "BIGINT", "created": false,
            "remedy": "say the unit, for example CAST(to_timestamp_millis(x) AS DATE)",
        })
    );
}
