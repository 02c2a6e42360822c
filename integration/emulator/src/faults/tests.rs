use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::machine::ConnectionId;

fn faults(rule: &str) -> Faults {
    Faults::new(FaultPlan::parse(&format!(r#"{{"rules":[{rule}]}}"#)).unwrap())
}

fn flush(stream: Option<&str>) -> Subject<'_> {
    Subject {
        rpc: Rpc::FlushRows,
        table: "projects/p/datasets/d/tables/t",
        stream,
        end: None,
        connection: None,
        opening: false,
        rows: None,
    }
}

fn fires(faults: &mut Faults, subject: &Subject<'_>) -> bool {
    let mut fired = Fired::default();
    faults.fire(0, subject, &mut fired);
    fired.delivery.delay_ms > 0
}

/// On which of ten calls a rule with this occurrence fires.
fn hits(occurrence: &str) -> Vec<u64> {
    let mut faults = faults(&format!(
        r#"{{"rpc":"FlushRows","occurrence":{occurrence},"action":{{"kind":"delay","ms":1}}}}"#
    ));
    (1..=10).filter(|_| fires(&mut faults, &flush(None))).collect()
}

#[test]
fn occurrences_are_counted_from_one() {
    assert_eq!(hits("{}").len(), 10);
    assert_eq!(hits(r#"{"nth": 3}"#), [3]);
    assert_eq!(hits(r#"{"from": 4, "every": 3}"#), [4, 7, 10]);
    assert_eq!(hits(r#"{"times": 2}"#), [1, 2]);
    assert_eq!(hits(r#"{"from": 2, "every": 2, "times": 2}"#), [2, 4]);
}

#[test]
fn a_rule_asks_for_its_table_and_stream_by_full_name_or_last_part() {
    let matches = |filter: &str, stream: Option<&str>| {
        let mut faults = faults(&format!(
            r#"{{"rpc":"FlushRows",{filter},"action":{{"kind":"delay","ms":1}}}}"#
        ));
        fires(&mut faults, &flush(stream))
    };
    let stream = Some("projects/p/datasets/d/tables/t/streams/s");
    assert!(matches(r#""table": "t""#, None));
    assert!(matches(r#""table": "projects/p/datasets/d/tables/t""#, None));
    assert!(!matches(r#""table": "tt""#, None));
    assert!(matches(r#""stream": "s""#, stream));
    assert!(!matches(r#""stream": "s""#, None));
}

#[test]
fn a_rule_asks_for_a_connection_and_for_rows() {
    let mut second =
        faults(r#"{"rpc":"AppendRows","table":"t","connection":2,"action":{"kind":"delay","ms":1}}"#);
    let append = |table, connection, opening| Subject {
        rpc: Rpc::AppendRows,
        table,
        connection: Some(ConnectionId(connection)),
        opening,
        ..flush(None)
    };
    let calls = [
        (append("t", 1, true), false),
        // Refused inside the stream, say, and tried again: still the first.
        (append("t", 1, true), false),
        (append("u", 2, true), false),
        (append("t", 3, true), true),
        (append("t", 1, false), false),
        (append("t", 3, false), true),
        (append("t", 4, true), false),
    ];
    for (call, expected) in &calls {
        assert_eq!(fires(&mut second, call), *expected, "{call:?}");
    }
    assert_eq!(second.report()[0].seen, 2);

    let rows = |rows| Subject {
        rows,
        ..append("t", 1, false)
    };
    let mut holds = faults(r#"{"rpc":"AppendRows","offset":10,"action":{"kind":"delay","ms":1}}"#);
    for (range, expected) in [
        (0..10, false),
        (10..10, false),
        (0..11, true),
        (10..11, true),
        (11..20, false),
    ] {
        assert_eq!(
            fires(&mut holds, &rows(Some(range.clone()))),
            expected,
            "{range:?}"
        );
    }
    assert!(!fires(&mut holds, &rows(None)));

    let mut late = faults(r#"{"rpc":"FlushRows","after_rows":10,"action":{"kind":"delay","ms":1}}"#);
    for (end, expected) in [(None, false), (Some(9), false), (Some(10), true)] {
        assert_eq!(
            fires(&mut late, &Subject { end, ..flush(None) }),
            expected,
            "{end:?}"
        );
    }
}

/// The manual's plans.
fn manual() -> Vec<FaultPlan> {
    let text = include_str!("../../../../docs/faults.md");
    let blocks = text.split("```json\n").skip(1);
    blocks
        .map(|rest| {
            let (block, _) = rest.split_once("```").unwrap();
            FaultPlan::parse(block).unwrap_or_else(|error| panic!("{error}:\n{block}"))
        })
        .collect()
}

#[test]
fn the_manual_has_a_plan_of_every_kind_and_plans_are_written_as_they_are_read() {
    let mut shown = BTreeSet::new();
    for plan in manual() {
        let written = serde_json::to_value(&plan).unwrap();
        for rule in written["rules"].as_array().unwrap() {
            shown.insert(rule["action"]["kind"].as_str().unwrap().to_owned());
        }
        assert_eq!(FaultPlan::from_value(written).unwrap(), plan);
    }
    // serde lists them all.
    let unknown = FaultPlan::parse(r#"{"rules":[{"rpc":"FlushRows","action":{"kind":"nonsense"}}]}"#);
    let unknown = unknown.unwrap_err().to_string();
    let (_, list) = unknown.split_once("expected one of ").unwrap();
    let all: BTreeSet<_> = list
        .split(", ")
        .map(|kind| kind.trim_matches('`').to_owned())
        .collect();
    assert_eq!(shown, all);
}

#[test]
fn what_is_wrong_with_a_plan_is_said_with_rule_and_field() {
    let good = json!({"rpc": "FlushRows", "action": {"kind": "go_away"}});
    let rule = |rpc: &str, more: Value, action: Value| {
        let mut rule = json!({"rpc": rpc, "action": action});
        for (name, value) in more.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let plan = json!({"rules": [good.clone(), rule]});
        FaultPlan::from_value(plan).unwrap_err().to_string()
    };
    let none = || json!({});
    let away = || json!({"kind": "go_away"});
    let cases = [
        (
            rule("FlushRows", none(), json!({"kind": "delay", "ms": "5"})),
            "action: ms: invalid type: string \"5\", expected u64",
        ),
        (
            rule("FlushRows", none(), json!({"kind": "delay"})),
            "action: missing field `ms`",
        ),
        (
            rule("FlushRows", none(), json!({"kind": "delay", "ms": 5, "s": 1})),
            "action: s: unknown field `s`, expected `ms`",
        ),
        (
            rule("FlushRows", none(), json!({"ms": 5})),
            "action: missing field `kind`",
        ),
        (
            rule("FlushRows", none(), json!({"kind": 5})),
            "action: kind: it must be a text",
        ),
        (
            rule("FlushRows", json!({"occurrence": {"nth": -1}}), away()),
            "occurrence.nth: invalid value: integer `-1`, expected u64",
        ),
        (
            rule("FlushRows", json!({"when": 1}), away()),
            "when: unknown field `when`, expected one of `rpc`, `table`, `stream`, `connection`, `after_rows`, \
             `offset`, `occurrence`, `action`",
        ),
        (
            rule("Flush", none(), away()),
            "rpc: unknown variant `Flush`, expected one of `CreateWriteStream`, `GetWriteStream`, `AppendRowsOpen`, \
             `AppendRows`, `FinalizeWriteStream`, `FlushRows`, `BatchCommitWriteStreams`",
        ),
        (
            rule("FlushRows", json!({"offset": 1}), away()),
            "offset: only AppendRows and AppendRowsOpen have one",
        ),
        (
            rule("AppendRows", json!({"connection": 0}), away()),
            "connection: calls are counted from 1",
        ),
        (
            rule("CreateWriteStream", json!({"after_rows": 1}), away()),
            "after_rows: CreateWriteStream names no stream",
        ),
        (
            rule(
                "FlushRows",
                none(),
                json!({"kind": "delay", "ms": 31_536_000_001_u64}),
            ),
            "action: ms: 31536000001 is more than a year (31536000000)",
        ),
        (
            rule(
                "FlushRows",
                none(),
                json!({"kind": "refuse", "code": "ABORTED", "in_band": true}),
            ),
            "action: in_band: only AppendRows answers inside a stream",
        ),
        (
            rule(
                "AppendRows",
                none(),
                json!({"kind": "row_errors", "rows": [], "message": ""}),
            ),
            "action: rows: name at least one row",
        ),
        (
            rule("FlushRows", none(), json!({"kind": "end", "code": "ABORTED"})),
            "action: only AppendRows and AppendRowsOpen can have it",
        ),
        (
            rule("FlushRows", none(), json!({"kind": "updated_schema"})),
            "action: only AppendRows and AppendRowsOpen can have it",
        ),
        (
            rule(
                "AppendRows",
                none(),
                json!({"kind": "end", "code": "ABORTED", "ok": true}),
            ),
            "action: `code` and `ok` exclude each other",
        ),
        (
            rule("AppendRows", none(), json!({"kind": "end", "message": "x"})),
            "action: message: it needs a `code`",
        ),
        (
            rule(
                "AppendRows",
                none(),
                json!({"kind": "slow", "bytes_per_second": 0}),
            ),
            "action: bytes_per_second: it cannot be 0; `stall` holds everything",
        ),
        (
            rule(
                "BatchCommitWriteStreams",
                none(),
                json!({"kind": "expire_stream"}),
            ),
            "action: BatchCommitWriteStreams names no stream",
        ),
        (
            rule("AppendRows", none(), json!({"kind": "stale_end", "ms": 5})),
            "action: only AppendRowsOpen can have it",
        ),
    ];
    for (said, expected) in cases {
        assert_eq!(said, format!("fault rule 1: {expected}"));
    }
    let form = FaultPlan::from_value(json!({"rulez": []})).unwrap_err();
    assert_eq!(
        form.to_string(),
        "cannot read the fault plan: unknown field `rulez`, expected `rules`"
    );
    let form = FaultPlan::from_value(json!({"rules": 5})).unwrap_err();
    assert_eq!(
        form.to_string(),
        "cannot read the fault plan: invalid type: integer `5`, expected a sequence"
    );
    let form = FaultPlan::parse("{").unwrap_err();
    assert_eq!(
        form.to_string(),
        "cannot read the fault plan: EOF while parsing an object at line 1 column 1"
    );
}
