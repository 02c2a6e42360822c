//! BigQuery, exactly once. Everything but the translation between the engine's types and plain ones is in the crate `bigquery-sink`.

mod operator;

use std::collections::HashMap;

use anyhow::{Context, anyhow, bail};
use arrow::datatypes::Field;
use arroyo_operator::connector::{Connection, Connector};
use arroyo_operator::operator::ConstructedOperator;
use arroyo_rpc::api_types::connections::{
    ConnectionProfile, ConnectionSchema, ConnectionType, SourceField, TestSourceMessage,
};
use arroyo_rpc::{ConnectorOptions, OperatorConfig};
use bigquery_sink::engine::{
    Declared, EngineSink, Form, is_for_the_connector, look, options, profile_form, suggestions, table_form,
};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use operator::BigQueryOperator;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

const ICON: &str = include_str!("./bigquery.svg");

/// The connector: `connector = 'bigquery'`.
#[derive(Debug)]
pub struct BigQueryConnector {}

/// A table as the engine stores it: its options, and what only the DDL knows of its columns (T18).
#[derive(Debug, Serialize, Deserialize)]
pub struct BigQueryTable {
    #[serde(flatten)]
    options: Form,
    #[serde(default)]
    columns: Vec<SourceField>,
    #[serde(default)]
    primary_key: Vec<String>,
}

impl BigQueryTable {
    fn new(options: Form, schema: Option<&ConnectionSchema>) -> Self {
        let columns = schema.map(|schema| schema.fields.clone()).unwrap_or_default();
        let is_key = |name: &str| schema.is_some_and(|schema| schema.primary_keys.contains(name));
        // T20: the key's columns come unordered; they count in the order of the columns.
        let key = columns.iter().map(|column| column.name.clone());
        Self {
            options,
            primary_key: key.filter(|name| is_key(name)).collect(),
            columns,
        }
    }

    fn declared(&self) -> Declared {
        let columns = self.columns.iter().cloned();
        Declared {
            columns: columns.map(|column| Field::from(column).into()).collect(),
            primary_key: self.primary_key.clone(),
        }
    }
}

impl Connector for BigQueryConnector {
    type ProfileT = Form;
    type TableT = BigQueryTable;

    fn name(&self) -> &'static str {
        "bigquery"
    }

    fn metadata(&self) -> arroyo_rpc::api_types::connections::Connector {
        arroyo_rpc::api_types::connections::Connector {
            id: self.name().to_owned(),
            name: "BigQuery".to_owned(),
            icon: ICON.to_owned(),
            description: "Write rows to BigQuery, each exactly once".to_owned(),
            enabled: true,
            source: false,
            sink: true,
            testing: true,
            hidden: false,
            custom_schemas: true,
            connection_config: Some(profile_form()),
            table_config: table_form(),
        }
    }

    fn table_type(&self, _: Self::ProfileT, _: Self::TableT) -> ConnectionType {
        ConnectionType::Sink
    }

    fn get_autocomplete(
        &self,
        profile: Self::ProfileT,
    ) -> oneshot::Receiver<anyhow::Result<HashMap<String, Vec<String>>>> {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let names = suggestions(&profile).await;
            let names = names.map(|names| {
                HashMap::from([
                    ("dataset".to_owned(), names.datasets),
                    ("table".to_owned(), names.tables),
                ])
            });
            // Whoever asked may be gone.
            sender.send(names.map_err(Into::into)).ok();
        });
        receiver
    }

    fn test_profile(&self, profile: Self::ProfileT) -> Option<oneshot::Receiver<TestSourceMessage>> {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let message = match suggestions(&profile).await {
                Ok(names) => {
                    let count = names.datasets.len();
                    let plural = if count == 1 { "" } else { "s" };
                    TestSourceMessage::done(format!("The project has {count} dataset{plural}"))
                }
                Err(error) => TestSourceMessage::fail(error.to_string()),
            };
            sender.send(message).ok();
        });
        Some(receiver)
    }

    fn test(
        &self,
        _: &str,
        profile: Self::ProfileT,
        table: Self::TableT,
        schema: Option<&ConnectionSchema>,
        sender: mpsc::Sender<TestSourceMessage>,
    ) {
        let table = BigQueryTable::new(table.options, schema);
        tokio::spawn(async move {
            let mut messages = Vec::new();
            match look(&profile, &table.options, &table.declared()).await {
                Ok(lines) => {
                    messages.extend(lines.into_iter().map(TestSourceMessage::info));
                    messages.push(TestSourceMessage::done("The table can be written to"));
                }
                Err(error) => messages.push(TestSourceMessage::fail(error.to_string())),
            }
            for message in messages {
                sender.send(message).await.ok();
            }
        });
    }

    fn from_options(
        &self,
        name: &str,
        given: &mut ConnectorOptions,
        schema: Option<&ConnectionSchema>,
        profile: Option<&ConnectionProfile>,
    ) -> anyhow::Result<Connection> {
        if schema.is_some_and(|schema| schema.format.is_some()) {
            bail!("option 'format' has no use: rows go to BigQuery as they are, see 'write.format'");
        }
        if !given.partitions().is_empty() {
            bail!(
                "PARTITIONED BY has no use here; 'table.partition_by' lays out a table that the sink creates"
            );
        }
        let names: Vec<String> = given
            .keys()
            .filter(|name| is_for_the_connector(name))
            .cloned()
            .collect();
        let mut options = Vec::new();
        for name in names {
            options.push((name.clone(), pull(given, &name)?));
        }
        let (mut written, mut table) = Form::split(options).map_err(|unknown| anyhow!(unknown))?;
        if let Some(profile) = profile {
            // What stands here, too, is given twice, and told as that.
            table = table.with(written);
            written = serde_json::from_value(profile.config.clone()).context("the connection profile")?;
        }
        self.from_config(None, name, written, BigQueryTable::new(table, schema), schema)
    }

    fn from_config(
        &self,
        id: Option<i64>,
        name: &str,
        profile: Self::ProfileT,
        table: Self::TableT,
        schema: Option<&ConnectionSchema>,
    ) -> anyhow::Result<Connection> {
        let schema = schema.ok_or_else(|| anyhow!("a BigQuery table needs a schema"))?;
        if schema.format.as_ref().is_some_and(|format| format.is_updating()) {
            bail!("updating tables are not yet supported: format = 'debezium_json' has no use");
        }
        let table = BigQueryTable::new(table.options, Some(schema));
        let sink =
            options(&profile, &table.options, &table.declared()).map_err(|problems| anyhow!(problems))?;
        let config = OperatorConfig {
            connection: serde_json::to_value(profile)?,
            table: serde_json::to_value(table)?,
            ..OperatorConfig::default()
        };
        Ok(Connection::new(
            id,
            self.name(),
            name.to_owned(),
            ConnectionType::Sink,
            schema.clone(),
            &config,
            format!("BigQuerySink<{}>", sink.table),
        ))
    }

    fn make_operator(
        &self,
        profile: Self::ProfileT,
        table: Self::TableT,
        _: OperatorConfig,
    ) -> anyhow::Result<ConstructedOperator> {
        // T11, T25: nothing is done here.
        let sink = EngineSink::new(&profile, &table.options, table.declared());
        Ok(ConstructedOperator::from_operator(Box::new(
            BigQueryOperator::new(sink),
        )))
    }
}

/// The text of an option, however SQL lets it be written: in quotes, as a number, a truth value, an interval, a name, or several.
fn pull(given: &mut ConnectorOptions, name: &str) -> anyhow::Result<String> {
    // The one way to a value as it stands. It cuts text at commas; put together again it is the same.
    let parts = given.pull_opt_array(name).unwrap_or_default();
    let parts: Option<Vec<String>> = parts.into_iter().map(text).collect();
    let parts = parts.ok_or_else(|| anyhow!("option '{name}': write the value in quotes"))?;
    Ok(parts.join(","))
}

fn text(value: Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text),
            Value::Boolean(is_true) => Some(is_true.to_string()),
            _ => None,
        },
        Expr::Identifier(name) => Some(name.value),
        Expr::Interval(interval) => {
            let length = text(*interval.value)?;
            Some(
                interval
                    .leading_field
                    .map_or(length.clone(), |unit| format!("{length} {unit}").to_lowercase()),
            )
        }
        _ => None,
    }
}
