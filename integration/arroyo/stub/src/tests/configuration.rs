//! SQL, profiles and forms.

use std::collections::{BTreeSet, HashSet};

use bigquery_sink::options::{OPTIONS, Step};
use datafusion::sql::sqlparser::ast::{DateTimeField, Ident, Interval};
use serde_json::{Value as Json, json};

use super::*;
use crate::api_types::connections::{ConnectionProfile, Format, TestSourceMessage};

fn refused(given: &mut ConnectorOptions, schema: &ConnectionSchema, profile: Option<Json>) -> String {
    let profile = profile.map(|config| ConnectionProfile { config });
    let connection = BigQueryConnector {}.from_options("orders", given, Some(schema), profile.as_ref());
    connection.unwrap_err().to_string()
}

#[test]
fn options_may_be_written_as_sql_lets_them_be() {
    let mut given = with(&[
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", "orders"),
        ("table.create", "if_missing"),
        ("table.labels", "team=sales,stage=test"),
    ]);
    let seconds = |length: &str, unit| {
        Expr::Interval(Interval {
            value: Box::new(Expr::value(Value::SingleQuotedString(length.to_owned()))),
            leading_field: unit,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        })
    };
    given.insert(
        "write.inflight.requests",
        Expr::value(Value::Number("12".to_owned(), false)),
    );
    given.insert("endpoint.insecure", Expr::value(Value::Boolean(true)));
    given.insert("append.timeout", seconds("20 seconds", None));
    given.insert("commit.timeout", seconds("3", Some(DateTimeField::Minute)));
    given.insert("table.cluster_by", Expr::Identifier(Ident::new("id")));
    // Left to the planner.
    given.put("event_time_field", "note");
    let connection = BigQueryConnector {}.from_options("orders", &mut given, Some(&schema()), None);
    let connection = connection.unwrap();
    assert_eq!(
        connection.description,
        "BigQuerySink<projects/shop/datasets/sales/tables/orders>"
    );
    assert_eq!(given.keys().collect::<Vec<_>>(), ["event_time_field"]);
    let config: Json = serde_json::from_str(&connection.config).unwrap();
    assert_eq!(
        config,
        json!({
            "connection": {"endpoint_insecure": "true", "project": "shop"},
            "table": {
                "dataset": "sales", "table": "orders", "table_create": "if_missing",
                "table_labels": "team=sales,stage=test", "table_cluster_by": "id",
                "write_inflight_requests": "12", "append_timeout": "20 seconds", "commit_timeout": "3 minute",
                "columns": [
                    {"name": "id", "field_type": "Int64", "required": true},
                    {"name": "note", "field_type": "Json", "required": false},
                ],
                "primary_key": [],
            },
        })
    );
}

#[test]
fn what_is_wrong_is_told_when_the_query_is_planned() {
    let good = [("project", "shop"), ("dataset", "sales"), ("table", "orders")];
    let mut given = with(&good);
    given.put("row_errors", "ignore");
    given.put("write.append.bytes", "1 GiB");
    assert_eq!(
        refused(&mut given, &schema(), None)
            .lines()
            .collect::<BTreeSet<_>>(),
        BTreeSet::from([
            "option 'row_errors': 'ignore' is not accepted; accepted is 'fail' or 'dead_letter'",
            "option 'write.append.bytes': '1 GiB' is not accepted; accepted is a size from 64 KiB to 9 MiB, such as '2 MiB'",
        ])
    );
    // Nor is an option called as the console's form has it.
    for unknown in ["write.mod", "write_mode"] {
        let mut given = with(&good);
        given.put(unknown, "exactly_once");
        assert_eq!(
            refused(&mut given, &schema(), None),
            format!("there is no option '{unknown}'; did you mean 'write.mode'?")
        );
    }
    let format = |debezium| ConnectionSchema {
        format: Some(Format::Json { debezium }),
        ..schema()
    };
    assert_eq!(
        refused(&mut with(&good), &format(false), None),
        "option 'format' has no use: rows go to BigQuery as they are, see 'write.format'"
    );
    let day = Expr::Identifier(Ident::new("day"));
    let mut partitioned = ConnectorOptions::new(HashMap::new(), vec![day.clone()]);
    assert_eq!(
        refused(&mut partitioned, &schema(), None),
        "PARTITIONED BY has no use here; 'table.partition_by' lays out a table that the sink creates"
    );
    let mut odd = with(&good);
    odd.insert("write.mode", Expr::Nested(Box::new(day)));
    assert_eq!(
        refused(&mut odd, &schema(), None),
        "option 'write.mode': write the value in quotes"
    );
}

#[test]
fn a_profile_gives_the_options_that_are_its_own() {
    let profile = json!({"project": "shop", "credentials": "{{ KEY }}"});
    let mut given = with(&[("dataset", "sales"), ("table", "orders")]);
    let connection = BigQueryConnector {}.from_options(
        "orders",
        &mut given,
        Some(&schema()),
        Some(&ConnectionProfile {
            config: profile.clone(),
        }),
    );
    let config: Json = serde_json::from_str(&connection.unwrap().config).unwrap();
    assert_eq!(
        config["connection"], profile,
        "an environment variable is read where the sink runs"
    );
    let mut twice = with(&[("project", "other"), ("dataset", "sales"), ("table", "orders")]);
    assert_eq!(
        refused(&mut twice, &schema(), Some(profile)),
        "option 'project' is given twice"
    );
}

#[test]
fn t20_the_primary_key_is_in_the_order_of_the_columns() {
    let mut given = with(&[("project", "shop"), ("dataset", "sales"), ("table", "orders")]);
    let schema = ConnectionSchema {
        primary_keys: HashSet::from(["note".to_owned(), "id".to_owned()]),
        ..schema()
    };
    let connection = BigQueryConnector {}.from_options("orders", &mut given, Some(&schema), None);
    let config: Json = serde_json::from_str(&connection.unwrap().config).unwrap();
    assert_eq!(config["table"]["primary_key"], json!(["id", "note"]));
}

#[test]
fn forms_ask_for_every_option_and_hide_secrets() {
    let metadata = BigQueryConnector {}.metadata();
    assert!(metadata.icon.starts_with("<svg "));
    let profile: Json = serde_json::from_str(&metadata.connection_config.unwrap()).unwrap();
    let table: Json = serde_json::from_str(&metadata.table_config).unwrap();
    assert_eq!(profile["sensitive"], json!(["credentials"]));
    assert_eq!(table["sensitive"], json!([]));
    assert_eq!(table["required"], json!(["dataset", "table"]));
    let mut asked = BTreeSet::new();
    for form in [&profile, &table] {
        for (key, property) in form["properties"].as_object().unwrap() {
            let name = property["title"].as_str().unwrap();
            assert_eq!(*key, name.replace('.', "_"));
            asked.insert(name.to_owned());
        }
    }
    let usable = OPTIONS
        .iter()
        .filter(|spec| spec.step == Step::Now)
        .map(|spec| spec.name.to_owned());
    let mut usable: BTreeSet<String> = usable.collect();
    for name in ["connector", "type", "endpoint"] {
        usable.remove(name);
    }
    assert_eq!(asked, usable);
    assert_eq!(
        table["properties"]["write_mode"],
        json!({
            "type": "string",
            "enum": ["exactly_once", "at_least_once"],
            "title": "write.mode",
            "description": "What is promised: each row exactly once, visible at checkpoints; or at least once, visible as soon as BigQuery has it, and twice after a lost answer or a restart. Default: exactly_once",
        })
    );
}

#[tokio::test]
async fn t18_trying_a_table_tells_its_columns_which_were_made_as_the_ddl_declares_them() {
    let world = World::new().await;
    let table = "projects/shop/datasets/sales/tables/orders";
    let inferred = ConnectionSchema::default();
    let missing = TestSourceMessage::info(format!("table {table} does not exist; it will be created"));
    let writable = TestSourceMessage::done("The table can be written to");
    for schema in [&schema(), &inferred] {
        let told = tried(&world, &[], schema).await;
        assert_eq!(told, [missing.clone(), writable.clone()]);
    }

    let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
    subtask.operator.on_start(&mut subtask.context).await.unwrap();
    let found = TestSourceMessage::info(format!("table {table} has id INT64 NOT NULL, note JSON"));
    let fits = TestSourceMessage::info(format!("the columns fit table {table}"));
    assert_eq!(
        tried(&world, &[], &schema()).await,
        [found.clone(), fits, writable.clone()]
    );
    assert_eq!(tried(&world, &[], &inferred).await, [found, writable]);

    let elsewhere = [
        ("dead_letter.table", "nowhere"),
        ("row_errors", "dead_letter"),
        ("schema.update", "add_columns"),
    ];
    let told = tried(&world, &elsewhere, &schema()).await;
    let nowhere = "projects/shop/datasets/sales/tables/nowhere";
    assert_eq!(
        told[2],
        TestSourceMessage::info(format!("table {nowhere} does not exist; it will be created"))
    );
}

/// What trying a table tells.
async fn tried(world: &World, more: &[(&str, &str)], schema: &ConnectionSchema) -> Vec<TestSourceMessage> {
    let config: OperatorConfig = serde_json::from_str(&world.connection(more).config).unwrap();
    let (sender, mut receiver) = mpsc::channel(16);
    let profile = serde_json::from_value(config.connection).unwrap();
    let table = serde_json::from_value(config.table).unwrap();
    BigQueryConnector {}.test("orders", profile, table, Some(schema), sender);
    let mut messages = Vec::new();
    while let Some(message) = receiver.recv().await {
        messages.push(message);
    }
    messages
}

#[tokio::test]
async fn names_are_suggested_and_a_profile_is_tried_with_them() {
    let world = World::new().await;
    let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
    subtask.operator.on_start(&mut subtask.context).await.unwrap();
    let config: OperatorConfig = serde_json::from_str(&world.connection(&[]).config).unwrap();
    let profile = || serde_json::from_value(config.connection.clone()).unwrap();
    let connector = BigQueryConnector {};
    let names = connector.get_autocomplete(profile()).await.unwrap().unwrap();
    assert_eq!(
        names,
        HashMap::from([
            ("dataset".to_owned(), vec!["sales".to_owned()]),
            ("table".to_owned(), vec!["orders".to_owned()]),
        ])
    );
    let tried = connector.test_profile(profile()).unwrap().await.unwrap();
    assert_eq!(tried, TestSourceMessage::done("The project has 1 dataset"));
    let nobody = serde_json::from_value(json!({})).unwrap();
    let tried = connector.test_profile(nobody).unwrap().await.unwrap();
    assert_eq!(
        tried,
        TestSourceMessage::fail("the profile names no project; names are listed of one")
    );
}
