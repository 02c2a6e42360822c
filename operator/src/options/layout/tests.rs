//! Every rule of `table.*` and `schema.update`, with its text.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::*;

/// Options beside the required ones; the problems as texts.
fn parse(options: &[(&str, &str)]) -> Result<SinkOptions, Vec<String>> {
    let required = [("project", "shop"), ("dataset", "sales"), ("table", "orders")];
    let mut all: Vec<(String, String)> = required
        .iter()
        .filter(|(name, _)| options.iter().all(|(other, _)| other != name))
        .chain(options)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    all.dedup();
    SinkOptions::parse(&all).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// As [`parse`], of a table that may be created.
fn created(options: &[(&str, &str)]) -> Result<SinkOptions, Vec<String>> {
    parse(&[&[("table.create", "if_missing")], options].concat())
}

#[track_caller]
fn refusal(options: &[(&str, &str)]) -> String {
    let problems = created(options).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

#[test]
fn each_kind_of_partitioning_is_read() {
    let partitioning = |options: &[(&str, &str)]| created(options).unwrap().layout.partitioning;
    let time = |column: Option<&str>, unit, days: Option<u64>| {
        Some(Partitioning::Time {
            column: column.map(str::to_owned),
            unit,
            expiration: days.map(|days| Duration::from_secs(days * 86_400)),
        })
    };
    let by = ("table.partition_by", " at ");
    let unit = |word| ("table.partition_type", word);
    let age = ("table.partition_expiration", "90 days");
    assert_eq!(partitioning(&[]), None);
    assert_eq!(partitioning(&[by]), time(Some("at"), PartitionUnit::Day, None));
    assert_eq!(
        partitioning(&[by, unit("hour"), age]),
        time(Some("at"), PartitionUnit::Hour, Some(90))
    );
    assert_eq!(
        partitioning(&[unit("day"), age]),
        time(None, PartitionUnit::Day, Some(90))
    );
    assert_eq!(
        partitioning(&[unit("month")]),
        time(None, PartitionUnit::Month, None)
    );
    assert_eq!(
        partitioning(&[unit("year")]),
        time(None, PartitionUnit::Year, None)
    );
    let range = |text| partitioning(&[by, ("table.partition_range", text)]);
    let ranges = |start, end, interval| {
        let column = "at".to_owned();
        Some(Partitioning::Range {
            column,
            start,
            end,
            interval,
        })
    };
    assert_eq!(range("0, 100, 10"), ranges(0, 100, 10));
    assert_eq!(
        range("-9223372036854775808,9223372036854775807,9223372036854775807"),
        { ranges(i64::MIN, i64::MAX, i64::MAX) }
    );
    assert_eq!(range("0, 10000, 1"), ranges(0, 10_000, 1));
}

#[test]
fn clustering_description_and_labels_are_read() {
    let layout = created(&[
        ("table.cluster_by", "customer, Region,c, d"),
        ("table.description", " Orders, as they come "),
        ("table.labels", "team=sales, stage = , größe=x_1-2"),
    ]);
    let layout = layout.unwrap().layout;
    assert_eq!(layout.clustering, ["customer", "Region", "c", "d"]);
    assert_eq!(layout.description.as_deref(), Some(" Orders, as they come "));
    let labels: Vec<_> = layout
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(labels, [("größe", "x_1-2"), ("stage", ""), ("team", "sales")]);
}

#[test]
fn each_rule_between_the_options_has_its_text() {
    let (by, day) = (("table.partition_by", "at"), ("table.partition_type", "day"));
    let range = ("table.partition_range", "0, 100, 10");
    let age = ("table.partition_expiration", "90 days");
    let cases: [(&[(&str, &str)], &str); 5] = [
        (
            &[by, day, range],
            "options 'table.partition_range' and 'table.partition_type' do not go together: partitions are ranges of a number or lengths of \
             time",
        ),
        (
            &[range],
            "option 'table.partition_range' needs 'table.partition_by', the INT64 column",
        ),
        (
            &[age],
            "option 'table.partition_expiration' needs partitions of time: say 'table.partition_by', or 'table.partition_type' for the time \
             of ingestion",
        ),
        (
            &[by, range, age],
            "option 'table.partition_expiration' has no use beside 'table.partition_range': only partitions of time expire",
        ),
        (
            &[("table", "orders$20240131"), by],
            "option 'table': $20240131 is a day of a table that is partitioned by the day of ingestion; create it so, with \
             table.partition_type = 'day' and without 'table.partition_by' and 'table.partition_range', or leave out $20240131",
        ),
    ];
    for (options, text) in cases {
        assert_eq!(refusal(options), text);
    }
    created(&[("table", "orders$20240131"), day]).unwrap();
    for other in ["hour", "month", "year"] {
        let problem = refusal(&[("table", "orders$20240131"), ("table.partition_type", other)]);
        assert!(
            problem.starts_with("option 'table': $20240131 is a day"),
            "{problem}"
        );
    }
}

#[test]
fn an_option_of_a_created_table_needs_one() {
    for name in LAYOUT {
        let value = match name {
            "table.partition_type" => "day",
            "table.partition_range" => "0, 10, 1",
            "table.partition_expiration" => "3 days",
            _ => "a",
        };
        let text = format!(
            "option '{name}' has no use without table.create = 'if_missing': a table that exists keeps what it has"
        );
        assert_eq!(parse(&[(name, value)]).unwrap_err(), [text]);
    }
}

#[test]
fn wrong_values_are_refused_with_what_is_accepted() {
    let long = "x".repeat(64);
    let accepts = |name: &str| super::super::OptionSpec::find(name).unwrap().accepts.describe();
    for value in [
        "",
        "0, 100",
        "0, 100, 0",
        "100, 0, 1",
        "5, 5, 1",
        "0, 10001, 1",
        "a, b, c",
        "0, 1e3, 1",
        "0,9223372036854775808,1",
    ] {
        let text = format!(
            "option 'table.partition_range': '{value}' is not accepted; accepted is {}",
            accepts("table.partition_range")
        );
        assert_eq!(
            refusal(&[("table.partition_by", "a"), ("table.partition_range", value)]),
            text
        );
    }
    for value in ["", "a,", "a, b, c, d, e", "a, b, A"] {
        let text = format!(
            "option 'table.cluster_by': '{value}' is not accepted; accepted is {}",
            accepts("table.cluster_by")
        );
        assert_eq!(refusal(&[("table.cluster_by", value)]), text);
    }
    assert_eq!(
        refusal(&[("table.partition_by", " ")]),
        "option 'table.partition_by': ' ' is not accepted; accepted is a column"
    );
    for (value, fault) in [
        ("team", "'team' has no '='".to_owned()),
        ("=sales", "the value 'sales' has no key".to_owned()),
        (
            "Team=sales",
            "key 'Team' does not begin with a lower-case letter".to_owned(),
        ),
        (
            "1team=sales",
            "key '1team' does not begin with a lower-case letter".to_owned(),
        ),
        ("team=Sales", "'S' is not allowed in value 'Sales'".to_owned()),
        ("te.am=sales", "'.' is not allowed in key 'te.am'".to_owned()),
        ("team=a, team=b", "key 'team' is given twice".to_owned()),
        (
            &format!("team={long}"),
            format!("value '{long}' has more than 63 characters"),
        ),
    ] {
        let text = format!(
            "option 'table.labels': {fault}; accepted is {}",
            accepts("table.labels")
        );
        assert_eq!(refusal(&[("table.labels", value)]), text);
    }
    let many: Vec<_> = (0..65).map(|number| format!("k{number}=v")).collect();
    let text = refusal(&[("table.labels", &many.join(","))]);
    assert!(
        text.starts_with("option 'table.labels': there are 65 of them; BigQuery takes at most 64; "),
        "{text}"
    );
    assert_eq!(
        refusal(&[("table.description", &"d".repeat(16_385))]),
        "option 'table.description' has 16385 characters; BigQuery takes at most 16384"
    );
}

#[test]
fn what_may_be_changed_of_a_table_is_a_list_of_which_one_word_is_known() {
    let update =
        |text: &str| parse(&[("schema.update", text)]).map(|options| options.schema_update.add_columns);
    assert_eq!(update("none"), Ok(false));
    assert_eq!(update("add_columns"), Ok(true));
    assert_eq!(update(" add_columns , add_columns"), Ok(true));
    for later in ["relax_required", "max_staleness"] {
        let text =
            format!("option 'schema.update': '{later}' is not yet supported; use 'none' or 'add_columns'");
        assert_eq!(update(later), Err(vec![text.clone()]));
        assert_eq!(update(&format!("add_columns, {later}")), Err(vec![text]));
    }
    for wrong in ["", "none, add_columns", "all", "add_columns,"] {
        let text =
            format!("option 'schema.update': '{wrong}' is not accepted; accepted is `none` or `add_columns`");
        assert_eq!(update(wrong), Err(vec![text]));
    }
    let problem = "options 'endpoint.grpc' and 'endpoint.http' must be given together when 'schema.update' is 'add_columns': the table is \
                   changed at one and written at the other";
    let options = [
        ("schema.update", "add_columns"),
        ("endpoint.grpc", "http://127.0.0.1:9060"),
    ];
    assert_eq!(parse(&options).unwrap_err(), [problem]);
}

fn columns() -> SchemaRef {
    let json = HashMap::from([("ARROW:extension:name".to_owned(), "arroyo.json".to_owned())]);
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("Day", DataType::Date32, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("price", DataType::Float64, true),
        Field::new("doc", DataType::Utf8, true).with_metadata(json),
        Field::new("many", list, true),
    ]))
}

/// What is said of the columns when the primary key has these.
fn checked(options: &[(&str, &str)], key: &[&str]) -> Vec<String> {
    let mut options = created(options).unwrap();
    options.primary_key = key.iter().map(|name| (*name).to_owned()).collect();
    let problems = options.check_columns(&columns()).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn columns_that_are_named_must_be_there_and_of_a_fitting_type() {
    const NONE: [&str; 0] = [];
    let by = |name| ("table.partition_by", name);
    let hour = ("table.partition_type", "hour");
    let range = ("table.partition_range", "0, 10, 1");
    for good in [
        &[by("day")] as &[(&str, &str)],
        &[by("AT"), hour],
        &[by("ID"), range],
        &[("table.cluster_by", "id, day, at")],
    ] {
        assert_eq!(checked(good, &["id", "at", "Day"]), NONE, "{good:?}");
    }
    let by_option = "option 'table.partition_by'";
    for (options, text) in [
        (
            &[by("when")] as &[(&str, &str)],
            format!("{by_option}: the pipeline writes no column 'when' at the top level; it writes id, Day, at, price, doc, many"),
        ),
        (
            &[by("day"), hour],
            format!("{by_option}: column 'day' is DATE; partitions of an hour are by TIMESTAMP, DATETIME"),
        ),
        (
            &[by("id")],
            format!("{by_option}: column 'id' is INT64; partitions of time are by DATE, TIMESTAMP, DATETIME"),
        ),
        (
            &[by("many"), range],
            format!("{by_option}: column 'many' is ARRAY<INT64>; partitions of ranges are by INT64"),
        ),
        (
            &[("table.cluster_by", "id, price")],
            "option 'table.cluster_by': column 'price' is FLOAT64; clustering is by INT64, NUMERIC, BIGNUMERIC, STRING, BOOL, DATE, DATETIME, \
             TIMESTAMP, GEOGRAPHY, RANGE"
                .to_owned(),
        ),
    ] {
        assert_eq!(checked(options, &[]), [text]);
    }
    assert_eq!(
        checked(&[], &["id", "doc"]),
        [
            "PRIMARY KEY: column 'doc' is JSON; a key is of INT64, NUMERIC, BIGNUMERIC, STRING, BOOL, DATE, DATETIME, TIMESTAMP"
        ]
    );
    assert_eq!(
        checked(&[], &["id"; 17]),
        ["the primary key has 17 columns; BigQuery takes at most 16"]
    );
    // Nothing of it concerns a table that exists.
    let mut options = parse(&[]).unwrap();
    options.primary_key = vec!["doc".to_owned()];
    assert_eq!(options.check_columns(&columns()), Ok(()));
}
