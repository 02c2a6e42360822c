//! An emulator with one dataset, and Google's clients on it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::{FaultPlan, Rpc};
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema as TableSchema};
use bigquery_write_emulator::{Config, Emulator, Handle};
use google_cloud_auth::credentials::anonymous;
use google_cloud_bigquery::client::{BigQuery, Write};
use google_cloud_bigquery::model::{ArrowRecordBatch, ArrowSchema};

const PROJECT: &str = "demo";
const DATASET: &str = "interop";
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// What a reader sees of a row: `id` and `name`.
pub(crate) type Row = (i64, Option<String>);

/// Everything that a test needs.
pub(crate) struct World {
    pub(crate) write: Write,
    queries: BigQuery,
    emulator: Emulator,
}

impl World {
    /// An emulator with tables of `id` and `name`.
    pub(crate) async fn start(tables: &[&str], faults: &str) -> Self {
        Self::start_unlearned(tables, faults, None).await
    }

    /// One that lacks a behaviour.
    pub(crate) async fn start_unlearned(tables: &[&str], faults: &str, unlearned: Option<Behaviour>) -> Self {
        let emulator = Emulator::start(Config {
            faults: FaultPlan::parse(faults).unwrap(),
            switches: Switches {
                unlearned: unlearned.into_iter().collect(),
                ..Switches::default()
            },
            ..Config::default()
        })
        .await
        .unwrap();
        let handle = emulator.handle();
        handle
            .create_dataset(&DatasetRef::new(PROJECT, DATASET), "US")
            .unwrap();
        for table in tables {
            let columns = vec![
                Column::new("id", Kind::Int64, Mode::Required),
                Column::new("name", Kind::String { max_length: None }, Mode::Nullable),
            ];
            let name = TableRef::new(PROJECT, DATASET, *table);
            handle.create_table(&name, TableSchema { columns }).unwrap();
        }
        let credentials = || anonymous::Builder::new().build();
        let write = Write::builder()
            .with_endpoint(format!("http://{}", emulator.grpc_addr()))
            .with_credentials(credentials())
            .with_pool_size_limit(1);
        let queries = BigQuery::builder()
            .with_endpoint(format!("http://{}", emulator.http_addr()))
            .with_credentials(credentials())
            .with_project_id(PROJECT);
        Self {
            write: write.build().await.unwrap(),
            queries: queries.build().await.unwrap(),
            emulator,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.emulator.handle()
    }

    /// The AppendRows calls so far: the routing header and the trace id of each.
    pub(crate) fn appends(&self) -> Vec<(String, String)> {
        let calls = self.handle().calls().into_iter();
        let appends = calls.filter(|call| call.rpc == Rpc::AppendRows);
        appends
            .map(|call| (call.routing.unwrap_or_default(), call.trace_id))
            .collect()
    }

    /// Every row of a table, as Google's query client reads it.
    pub(crate) async fn rows(&self, table: &str) -> Vec<Row> {
        self.query(&format!(
            "SELECT id, name FROM `{PROJECT}.{DATASET}.{table}` ORDER BY id"
        ))
        .await
    }

    /// The columns `id` and `name` of a query's rows; of a statement that changes a table there are none.
    pub(crate) async fn query(&self, sql: &str) -> Vec<Row> {
        let mut found = limited(self.queries.query(sql).until_done())
            .await
            .unwrap()
            .read();
        let mut rows = Vec::new();
        while let Some(row) = limited(found.next()).await.transpose().unwrap() {
            rows.push((row.get("id").unwrap(), row.get("name").unwrap()));
        }
        rows
    }
}

/// The full name of a table.
pub(crate) fn path(table: &str) -> String {
    format!("projects/{PROJECT}/datasets/{DATASET}/tables/{table}")
}

/// Waits, but not for ever.
pub(crate) async fn limited<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("an answer within a minute")
}

/// The writer's schema.
pub(crate) fn schema() -> ArrowSchema {
    ArrowSchema::new().set_serialized_schema(messages(&columns(&[])).0)
}

/// One with the column `note`.
pub(crate) fn schema_with_note() -> ArrowSchema {
    ArrowSchema::new().set_serialized_schema(messages(&with_note(&[], "")).0)
}

/// Rows `from` to `to`, the latter excluded.
pub(crate) fn numbered(from: i64, to: i64) -> Vec<Row> {
    (from..to).map(|id| (id, Some(format!("row {id}")))).collect()
}

/// The rows of one append.
pub(crate) fn batch(rows: &[Row]) -> ArrowRecordBatch {
    ArrowRecordBatch::new().set_serialized_record_batch(messages(&columns(rows)).1)
}

/// The same, with the same note in each row.
pub(crate) fn batch_with_note(rows: &[Row], note: &str) -> ArrowRecordBatch {
    ArrowRecordBatch::new().set_serialized_record_batch(messages(&with_note(rows, note)).1)
}

fn with_note(rows: &[Row], note: &str) -> Vec<(Field, ArrayRef)> {
    let notes = StringArray::from_iter_values(rows.iter().map(|_| note));
    let mut columns = columns(rows);
    columns.push((Field::new("note", DataType::Utf8, true), Arc::new(notes)));
    columns
}

fn columns(rows: &[Row]) -> Vec<(Field, ArrayRef)> {
    let ids = Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id));
    let names: StringArray = rows.iter().map(|(_, name)| name.as_deref()).collect();
    vec![
        (Field::new("id", DataType::Int64, false), Arc::new(ids)),
        (Field::new("name", DataType::Utf8, true), Arc::new(names)),
    ]
}

/// The schema message and the rows' message, apart as BigQuery wants them (write-api.md 5.5).
fn messages(columns: &[(Field, ArrayRef)]) -> (Vec<u8>, Vec<u8>) {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.iter().cloned().unzip();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let schema = writer.get_ref().clone();
    writer.write(&batch).unwrap();
    let rows = writer.get_ref()[schema.len()..].to_vec();
    (schema, rows)
}
