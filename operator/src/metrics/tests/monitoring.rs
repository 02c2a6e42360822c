//! The examples for Grafana and Prometheus use metrics that there are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::{Family, Kind, LABELS, PREFIX, families, values};

const DASHBOARD: &str = include_str!("../../../../examples/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../../../../examples/monitoring/alerts.yml");

/// A metric in an expression, and what of it is selected: label, operator, value.
#[derive(Debug)]
struct Used {
    family: Family,
    selectors: Vec<(String, String)>,
}

/// The metrics of an expression. Whatever is wrong with it is a panic that says so.
fn used(expr: &str) -> Vec<Used> {
    let parts = expr.split(PREFIX).skip(1);
    parts.map(|part| read(part, expr)).collect()
}

fn read(part: &str, expr: &str) -> Used {
    let end = part
        .find(|c: char| !c.is_ascii_lowercase() && c != '_')
        .unwrap_or(part.len());
    let (name, rest) = part.split_at(end);
    let known = families();
    let mut known = known.into_iter().filter(|family| {
        let bare = family.name()[PREFIX.len()..].to_owned();
        match family.kind {
            Kind::Counter | Kind::Gauge => bare == name,
            Kind::Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|part| name == format!("{bare}{part}")),
        }
    });
    let family = known
        .next()
        .unwrap_or_else(|| panic!("there is no metric {PREFIX}{name}: {expr}"));
    let selected = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let selected = selected.map_or("", |(selected, _)| selected);
    let selectors = selected
        .split(',')
        .filter(|selector| !selector.is_empty())
        .map(|selector| {
            let (label, value) = selector
                .split_once('"')
                .unwrap_or_else(|| panic!("{selector}: {expr}"));
            (
                label.trim_end_matches(['=', '~', '!']).to_owned(),
                value.trim_end_matches('"').to_owned(),
            )
        });
    Used {
        selectors: selectors.collect(),
        family,
    }
}

/// The labels that a sum is kept by.
fn grouped(expr: &str) -> BTreeSet<&str> {
    let groups = expr.split(" by (").skip(1);
    let groups = groups.map(|group| group.split_once(')').unwrap().0);
    groups.flat_map(|group| group.split(", ")).collect()
}

/// Every label is one that the metrics have, and every value one that it can have.
fn check(expr: &str) -> Vec<Used> {
    let found = used(expr);
    assert!(!found.is_empty(), "no metric of the sink: {expr}");
    // Prometheus' own beside ours.
    let mut labels: BTreeSet<&str> = LABELS.into_iter().chain(["job"]).collect();
    for one in &found {
        labels.extend(one.family.label);
        if one.family.kind == Kind::Histogram {
            labels.insert("le");
        }
        for (label, value) in &one.selectors {
            let own = one.family.labels();
            assert!(
                own.contains(&label.as_str()) || label == "job",
                "{label} is no label of it: {expr}"
            );
            if one.family.label == Some(label.as_str()) {
                let known = values(&one.family);
                for value in value.split('|') {
                    assert!(known.contains(&value), "{label} is never {value}: {expr}");
                }
            }
        }
    }
    for label in grouped(expr) {
        assert!(labels.contains(label), "nothing is told by {label}: {expr}");
    }
    found
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(
            panel["title"].as_str().is_some_and(|title| !title.is_empty()),
            "{panel}"
        );
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            shown.extend(check(expr).into_iter().map(|used| used.family.name()));
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1) {
                let label = label.split_once("}}").unwrap().0;
                assert!(grouped(expr).contains(label), "{legend}: {expr}");
            }
        }
    }
    let all: BTreeSet<String> = families().iter().map(Family::name).collect();
    assert_eq!(shown, all);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            assert_eq!(used(query).len(), 1, "{query}");
        }
    }
}

/// The rules' parts, by their keys. Of YAML it reads what the file has.
fn rules() -> Vec<BTreeMap<String, String>> {
    let rules = ALERTS.split("      - alert: ").skip(1);
    let read = |rule: &str| {
        let (name, rest) = rule.split_once('\n').unwrap();
        let mut parts = BTreeMap::from([("alert".to_owned(), name.to_owned())]);
        let mut key = String::new();
        for line in rest.lines().filter(|line| !line.trim().is_empty()) {
            let depth = line.len() - line.trim_start().len();
            let part = line
                .trim()
                .split_once(": ")
                .or_else(|| Some((line.trim().strip_suffix(':')?, "")));
            match part {
                Some((name, value))
                    if depth == 8
                        || depth == 10 && ["severity", "summary", "description"].contains(&name) =>
                {
                    key = name.to_owned();
                    parts.insert(key.clone(), value.trim_start_matches(">-").to_owned());
                }
                _ => {
                    let value = parts.get_mut(&key).unwrap();
                    value.push(' ');
                    value.push_str(line.trim());
                }
            }
        }
        parts
    };
    rules.map(read).collect()
}

#[test]
fn every_alert_is_about_metrics_that_there_are_and_says_what_to_do() {
    let rules = rules();
    let names: BTreeSet<&String> = rules.iter().map(|rule| &rule["alert"]).collect();
    assert_eq!(names.len(), rules.len(), "each name is there once");
    assert!(rules.len() >= 10, "{names:?}");
    for rule in &rules {
        let keys: Vec<&str> = rule.keys().map(String::as_str).collect();
        let expected = [
            "alert",
            "annotations",
            "description",
            "expr",
            "for",
            "labels",
            "severity",
            "summary",
        ];
        assert_eq!(keys, expected, "{rule:?}");
        let expr = &rule["expr"];
        check(expr);
        assert!(humantime::parse_duration(&rule["for"]).is_ok(), "{rule:?}");
        assert!(
            ["page", "ticket"].contains(&rule["severity"].as_str()),
            "{rule:?}"
        );
        assert!(rule["description"].len() > 50, "{rule:?}");
        for label in rule["summary"].split("$labels.").skip(1) {
            let label = label.split_once(' ').unwrap().0;
            assert!(grouped(expr).contains(label), "{rule:?}");
        }
    }
    for needed in [
        "BigQueryCommitStuck",
        "BigQueryStreamNearExpiry",
        "BigQueryRowsRejected",
    ] {
        assert!(names.iter().any(|name| *name == needed), "{needed}");
    }
}
