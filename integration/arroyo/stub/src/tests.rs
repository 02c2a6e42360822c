//! The connector as the engine uses it: from SQL to a JSON configuration to an operator, against an emulator on a port.

mod configuration;
mod operators;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::cast::AsArray as _;
use arrow::array::types::Int64Type;
use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::{Config, Emulator};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use tokio::sync::mpsc;

use crate::api_types::connections::{ConnectionSchema, FieldType, SourceField};
use crate::bigquery::BigQueryConnector;
use crate::connector::{Connection, Connector as _};
use crate::context::{ArroyoSchema, Collector, OperatorContext, TableManager};
use crate::operator::ArrowOperator;
use crate::options::{ConnectorOptions, OperatorConfig};
use crate::types::{CheckpointFilePathLayout, ControlResp, TaskInfo};

/// A sink's rows go nowhere.
struct Nowhere;

impl Collector for Nowhere {}

/// BigQuery with the dataset `shop.sales`.
struct World {
    emulator: Emulator,
}

/// A subtask and its side of the engine.
struct Subtask {
    operator: Box<dyn ArrowOperator>,
    context: OperatorContext,
    answers: mpsc::Receiver<ControlResp>,
}

impl World {
    async fn new() -> Self {
        let emulator = Emulator::start(Config::default()).await.unwrap();
        let handle = emulator.handle();
        handle
            .create_dataset(&DatasetRef::new("shop", "sales"), "")
            .unwrap();
        Self { emulator }
    }

    /// `WITH (...)`, and then these.
    fn options(&self, more: &[(&str, &str)]) -> ConnectorOptions {
        let grpc = format!("http://{}", self.emulator.grpc_addr());
        let http = format!("http://{}", self.emulator.http_addr());
        let given = [
            ("type", "sink"),
            ("project", "shop"),
            ("dataset", "sales"),
            ("table", "orders"),
            ("table.create", "if_missing"),
            ("endpoint.grpc", grpc.as_str()),
            ("endpoint.http", http.as_str()),
        ];
        with(&[&given, more].concat())
    }

    /// A pipeline's sink, planned.
    fn connection(&self, more: &[(&str, &str)]) -> Connection {
        let mut options = self.options(more);
        let connection = BigQueryConnector {}.from_options("orders", &mut options, Some(&schema()), None);
        connection.unwrap()
    }

    /// A subtask of it, made from what was kept and not started, with what is restored.
    fn subtask(
        &self,
        more: &[(&str, &str)],
        (index, parallelism): (u32, u32),
        layout: CheckpointFilePathLayout,
        states: &HashMap<u32, Vec<u8>>,
    ) -> Subtask {
        let config: OperatorConfig = serde_json::from_str(&self.connection(more).config).unwrap();
        let connector = BigQueryConnector {};
        let profile = serde_json::from_value(config.connection.clone()).unwrap();
        let table = serde_json::from_value(config.table.clone()).unwrap();
        let operator = connector.make_operator(profile, table, config).unwrap().0;
        let (control_tx, answers) = mpsc::channel(16);
        let mut table_manager = TableManager::default();
        table_manager.restore("s", states.clone());
        let context = OperatorContext {
            task_info: Arc::new(TaskInfo {
                operator_idx: 3,
                operator_name: "sink_orders".to_owned(),
                operator_id: "sink_orders_3".to_owned(),
                task_index: index,
                parallelism,
                checkpoint_file_path_layout: layout,
            }),
            control_tx,
            in_schemas: vec![Arc::new(ArroyoSchema { schema: edge() })],
            table_manager,
        };
        Subtask {
            operator,
            context,
            answers,
        }
    }

    /// Ids of the rows that a reader sees, sorted.
    fn visible(&self) -> Vec<i64> {
        let table = TableRef::new("shop", "sales", "orders");
        let rows = self.emulator.handle().rows(&table).unwrap();
        let mut ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        ids.sort_unstable();
        ids
    }
}

fn with(options: &[(&str, &str)]) -> ConnectorOptions {
    let text = |value: &str| Expr::value(Value::SingleQuotedString(value.to_owned()));
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), text(value)));
    ConnectorOptions::new(options.collect(), Vec::new())
}

/// The columns as the DDL declares them.
fn schema() -> ConnectionSchema {
    let column = |name: &str, field_type, required| SourceField {
        name: name.to_owned(),
        field_type,
        required,
    };
    ConnectionSchema {
        fields: vec![
            column("id", FieldType::Int64, true),
            column("note", FieldType::Json, false),
        ],
        ..ConnectionSchema::default()
    }
}

/// The columns as they come: nothing is required, nothing is JSON.
fn edge() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
        Field::new(
            "_timestamp",
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            false,
        ),
    ]))
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let notes = StringArray::from_iter_values(ids.clone().map(|id| format!(r#"{{"of":{id}}}"#)));
    let times = TimestampNanosecondArray::from_iter_values(ids.clone());
    let ids = Int64Array::from_iter_values(ids);
    RecordBatch::try_new(edge(), vec![Arc::new(ids), Arc::new(notes), Arc::new(times)]).unwrap()
}
