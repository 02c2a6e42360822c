//! An emulator in this process, the tool in others, and files for both.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bigquery_sink_pipeline::store::{CheckpointInfo, Store, StoreLocation};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Emulator};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

/// Rows a test writes: `id` counts from 0, the other columns follow from it.
pub(crate) const COLUMNS: &str = "id BIGINT NOT NULL, name TEXT, amount DECIMAL(20, 4), happened_at TIMESTAMP(6), tags TEXT[], \
                                  place STRUCT<city TEXT, height DOUBLE>";

/// A folder with a pipeline from a file of rows to a table of an emulator.
pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) folder: TempDir,
    pub(crate) rows: u64,
}

impl World {
    /// `faults` is JSON of a fault plan.
    pub(crate) async fn new(rows: u64, faults: &str) -> Self {
        let config = Config {
            faults: FaultPlan::parse(faults).unwrap(),
            ..Config::default()
        };
        let emulator = Emulator::start(config).await.unwrap();
        emulator
            .handle()
            .create_dataset(&DatasetRef::new("p", "d"), "US")
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let input: String = (0..rows).fold(String::new(), |mut text, id| {
            writeln!(text, "{}", json_row(id)).unwrap();
            text
        });
        std::fs::write(folder.path().join("rows.ndjson"), input).unwrap();
        let world = Self {
            emulator,
            folder,
            rows,
        };
        world.read_from("connector = 'single_file', path = 'rows.ndjson', format = 'json'");
        world
    }

    /// The same rows from a folder of Parquet files.
    pub(crate) async fn of_parquet(rows: u64, faults: &str) -> Self {
        let world = Self::new(rows, faults).await;
        write_parquet(world.folder.path());
        world.read_from("connector = 'filesystem', path = 'rows', format = 'parquet'");
        world
    }

    pub(crate) fn pipeline(&self) -> PathBuf {
        self.folder.path().join("pipeline.sql")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("pipeline.state")
    }

    /// Writes the pipeline; the options say what it reads.
    fn read_from(&self, source: &str) {
        let endpoints = endpoints(&self.emulator);
        let sql = format!(
            "CREATE TABLE source ({COLUMNS}) WITH (type = 'source', {source});
             CREATE TABLE sink ({COLUMNS}) WITH (connector = 'bigquery', type = 'sink', project = 'p', dataset = 'd', 'table' = 't',
                 'table.create' = 'if_missing', 'write.append.linger' = interval '20 milliseconds', {endpoints});
             INSERT INTO sink SELECT id, name, amount, happened_at, tags, place FROM source;"
        );
        std::fs::write(self.pipeline(), sql).unwrap();
    }

    /// `run` of this pipeline, not started.
    pub(crate) fn run(&self, arguments: &[&str]) -> Command {
        let mut command = tool();
        command
            .arg("run")
            .arg(self.pipeline())
            .args(["--json", "--checkpoint-interval", "100ms"])
            .args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Ids a reader sees now, each once; empty before the table is there.
    pub(crate) fn visible_ids(&self) -> BTreeSet<i64> {
        let Ok(rows) = self.emulator.handle().rows(&TableRef::new("p", "d", "t")) else {
            return BTreeSet::new();
        };
        let ids = rows.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        let distinct: BTreeSet<i64> = ids.values().iter().copied().collect();
        assert_eq!(distinct.len(), ids.len(), "a reader sees a row twice");
        distinct
    }

    /// Checkpoints as they stand in the state directory, oldest first.
    pub(crate) async fn checkpoints(&self) -> Vec<CheckpointInfo> {
        checkpoints(&self.state()).await
    }

    /// Every row is there once, with every value equal to what was read.
    pub(crate) async fn assert_whole(&self) {
        let sql = "SELECT id, name, amount, happened_at, tags, place.city AS city, place.height AS height FROM `p.d.t` ORDER BY id";
        let output = self.emulator.handle().query("p", None, sql).await.unwrap();
        let rows = printed(&output.rows);
        assert_eq!(rows.len() as u64, self.rows);
        for (id, row) in rows.iter().enumerate() {
            assert_eq!(*row, printed_row(id as u64));
        }
    }
}

/// Writes `rows.ndjson` anew as files of 1,500 rows in `rows/`, row groups of 400 in each.
fn write_parquet(folder: &Path) {
    let text = |name| Field::new(name, DataType::Utf8, true);
    let tag = Field::new_list_field(DataType::Utf8, true);
    let place = vec![text("city"), Field::new("height", DataType::Float64, true)];
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        text("name"),
        Field::new("amount", DataType::Decimal128(20, 4), true),
        Field::new(
            "happened_at",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            true,
        ),
        Field::new("tags", DataType::List(Arc::new(tag)), true),
        Field::new("place", DataType::Struct(place.into()), true),
    ]));
    let input = BufReader::new(File::open(folder.join("rows.ndjson")).unwrap());
    let batches = arrow_json::ReaderBuilder::new(Arc::clone(&schema))
        .with_batch_size(1_500)
        .build(input)
        .unwrap();
    std::fs::create_dir(folder.join("rows")).unwrap();
    for (number, batch) in batches.enumerate() {
        let file = File::create(folder.join(format!("rows/part-{number:03}.parquet"))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_size(400).build();
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).unwrap();
        writer.write(&batch.unwrap()).unwrap();
        writer.close().unwrap();
    }
}

/// The built tool.
pub(crate) fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_arroyo-bigquery"))
}

/// Options that point a sink at an emulator.
pub(crate) fn endpoints(emulator: &Emulator) -> String {
    let (grpc, http) = (emulator.grpc_addr(), emulator.http_addr());
    format!("'endpoint.grpc' = 'http://{grpc}', 'endpoint.http' = 'http://{http}'")
}

pub(crate) async fn checkpoints(state: &Path) -> Vec<CheckpointInfo> {
    let location = StoreLocation::parse(state.to_str().unwrap()).unwrap();
    match Store::open_existing(&location) {
        Ok(store) => store.list().await.unwrap(),
        Err(_) => Vec::new(),
    }
}

/// Sends a signal by name; the shell's own `kill` does it.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Ends in time, or the test fails with what the tool said.
pub(crate) async fn finish(mut child: Child, limit: Duration) -> Output {
    let deadline = tokio::time::Instant::now() + limit;
    while child.try_wait().unwrap().is_none() {
        if tokio::time::Instant::now() > deadline {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!(
                "not done after {limit:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.wait_with_output().unwrap()
}

/// The summary of a run that must have ended well.
pub(crate) fn summary(output: &Output) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Nulls, an empty text, an empty list, digits on both sides: everything follows from the id.
fn json_row(id: u64) -> String {
    let name = match id % 5 {
        0 => "null".to_owned(),
        1 => "\"\"".to_owned(),
        _ => format!("\"name {id} \u{1f30d}\""),
    };
    let tags = match id % 3 {
        0 => "[]".to_owned(),
        1 => format!("[\"a{id}\"]"),
        _ => format!("[\"a{id}\", \"b\"]"),
    };
    let place = if id.is_multiple_of(7) {
        "null".to_owned()
    } else {
        format!("{{\"city\": \"c{}\", \"height\": {id}.5}}", id % 10)
    };
    let (minute, micros) = (id / 60 % 60, id % 1_000_000);
    format!(
        "{{\"id\": {id}, \"name\": {name}, \"amount\": {id}.25, \"happened_at\": \"2026-01-02T03:{minute:02}:{:02}.{micros:06}\", \
         \"tags\": {tags}, \"place\": {place}}}",
        id % 60
    )
}

fn printed_row(id: u64) -> String {
    let name = match id % 5 {
        0 => "NULL".to_owned(),
        1 => String::new(),
        _ => format!("name {id} \u{1f30d}"),
    };
    let tags = match id % 3 {
        0 => "[]".to_owned(),
        1 => format!("[a{id}]"),
        _ => format!("[a{id}, b]"),
    };
    let place = if id.is_multiple_of(7) {
        "NULL|NULL".to_owned()
    } else {
        format!("c{}|{id}.5", id % 10)
    };
    let (minute, micros) = (id / 60 % 60, id % 1_000_000);
    format!(
        "{id}|{name}|{id}.250000000|2026-01-02T03:{minute:02}:{:02}.{micros:06}Z|{tags}|{place}",
        id % 60
    )
}

/// Rows as text: columns joined by `|`, times with six digits.
pub(crate) fn printed(rows: &RecordBatch) -> Vec<String> {
    use arrow_cast::display::{ArrayFormatter, FormatOptions};
    let format = FormatOptions::default()
        .with_null("NULL")
        .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.6fZ"));
    let columns: Vec<_> = rows
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &format).unwrap())
        .collect();
    let row = |row| {
        columns
            .iter()
            .map(|column| column.value(row).to_string())
            .collect::<Vec<_>>()
            .join("|")
    };
    (0..rows.num_rows()).map(row).collect()
}
