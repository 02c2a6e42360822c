//! The sink as a host drives it, against the emulator: pipes in memory, simulated time, full rows read back.

mod at_least_once;
mod calls;
mod dead_letters;
mod defaults;
mod faults;
mod flow;
mod formats;
mod metrics;
mod replaced;
mod restore;
mod retyped;
mod sizes;
mod spans;
mod start;
mod tables;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use bigquery_sink_state::{NextOffset, RowCount};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::{FaultPlan, Rpc};
use bigquery_write_emulator::schema::Schema;
use bigquery_write_emulator::{Config, Handle};
use bigquery_write_proto::rows::{
    Format, MissingValues, RowOptions, SubMicroseconds, Wire, table_schema_for,
};
use tokio::io::DuplexStream;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::error::{Blame, Retry};
use crate::metrics::{Counter, Discarded, RejectedBy};
use crate::testing;

/// What a reader sees of nothing.
const NOTHING: [i64; 0] = [];

const TABLE: &str = "projects/shop/datasets/sales/tables/orders";

/// An emulator with one table behind pipes, and the options of a pipeline that writes to it.
struct World {
    handle: Handle,
    options: Arc<SinkOptions>,
    environment: Environment,
    attempts: AtomicU64,
}

impl World {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &[(&str, &str)]) -> Self {
        Self::around(Self::emulator(), options)
    }

    /// As [`World::with`], and the REST API answers on a port of this machine.
    async fn with_rest(options: &[(&str, &str)]) -> Self {
        let handle = Self::emulator();
        let address = testing::serve(handle.rest()).await;
        let http = format!("http://{address}");
        Self::around(handle, &[options, &[("endpoint.http", http.as_str())]].concat())
    }

    fn emulator() -> Handle {
        let begin = Instant::now();
        let clock = Arc::new(move || 1_800_000_000_000 + i64::try_from(begin.elapsed().as_millis()).unwrap());
        let config = Config {
            clock: Some(clock),
            seed: Some(1),
            ..Config::default()
        };
        let handle = Handle::new(&config).unwrap();
        make_table(&handle);
        handle
    }

    fn around(handle: Handle, options: &[(&str, &str)]) -> Self {
        let options = self::options(options);
        let environment = Environment {
            transport: pipes(&handle, &options),
            tokens: None,
            metrics: Arc::default(),
            asks_rest: true,
            probe: Probe::default(),
            mutation: Mutation::default(),
        };
        Self {
            handle,
            options: Arc::new(options),
            environment,
            attempts: AtomicU64::new(0),
        }
    }

    fn sink(&self, subtask: u32, parallelism: u32) -> BigQuerySink {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let task = Task {
            subtask: SubtaskIndex(subtask),
            parallelism,
            started_at_micros: 1_800_000_000_000_000 + attempt,
            operator_name: "orders".to_owned(),
            node_id: 1,
        };
        BigQuerySink::new(
            Arc::clone(&self.options),
            columns(),
            task,
            self.environment.clone(),
        )
    }

    /// A single subtask, started.
    async fn start(&self, restored: Option<Restored>) -> BigQuerySink {
        let mut sink = self.sink(0, 1);
        sink.on_start(restored).await.unwrap();
        sink
    }

    /// All subtasks, started.
    async fn start_all(&self, parallelism: u32, restored: Option<&Restored>) -> Vec<BigQuerySink> {
        let mut sinks = Vec::new();
        for subtask in 0..parallelism {
            let mut sink = self.sink(subtask, parallelism);
            sink.on_start(restored.cloned()).await.unwrap();
            sinks.push(sink);
        }
        sinks
    }

    fn fault(&self, rules: &str) {
        let plan = FaultPlan::parse(&format!(r#"{{"rules": [{rules}]}}"#)).unwrap();
        self.handle.set_faults(plan).unwrap();
    }

    /// Counts AppendRows requests from now on.
    fn count_appends(&self) {
        self.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 0}}"#);
    }

    /// Requests since [`World::count_appends`], or since the first of the rules was set.
    fn counted(&self) -> u64 {
        self.handle.faults()[0].seen
    }

    fn calls(&self, rpc: Rpc) -> usize {
        self.handle.calls().iter().filter(|call| call.rpc == rpc).count()
    }

    /// What a reader sees, in the order in which it became visible.
    fn visible(&self) -> Vec<i64> {
        let rows = self.handle.rows(&target()).unwrap();
        let ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        let names: Vec<_> = rows.column(1).as_string::<i32>().iter().collect();
        assert_eq!(
            names,
            ids.iter()
                .map(|id| name(*id))
                .collect::<Vec<_>>()
                .iter()
                .map(Option::as_deref)
                .collect::<Vec<_>>()
        );
        ids
    }

    fn visible_sorted(&self) -> Vec<i64> {
        let mut ids = self.visible();
        ids.sort_unstable();
        ids
    }

    /// Rows accepted and rows visible of every stream there is, in the order of their names.
    fn streams(&self) -> Vec<(u64, u64)> {
        let streams = self.handle.streams();
        streams
            .iter()
            .map(|stream| (stream.end, stream.flushed))
            .collect()
    }

    fn total(&self, counter: Counter) -> u64 {
        self.environment.metrics.total(counter)
    }

    /// Over all codes.
    fn reconnects(&self) -> u64 {
        let metrics = &self.environment.metrics;
        metrics.sum(|counter| matches!(counter, Counter::Reconnects(_)))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Invariant 9, in every test.
            assert_eq!(
                self.calls(Rpc::FinalizeWriteStream),
                0,
                "the sink never finalizes a stream"
            );
        }
    }
}

/// Checkpoints as a host keeps them.
#[derive(Default)]
struct Checkpoint {
    states: BTreeMap<SubtaskIndex, Bytes>,
    commits: BTreeMap<SubtaskIndex, Bytes>,
    rows: u64,
    dead_letters: u64,
}

impl Checkpoint {
    async fn take(epoch: u64, sinks: &mut [BigQuerySink]) -> Self {
        let mut checkpoint = Self::default();
        for (subtask, sink) in sinks.iter_mut().enumerate() {
            let subtask = SubtaskIndex(u32::try_from(subtask).unwrap());
            let prepared = sink.handle_checkpoint(barrier(epoch)).await.unwrap();
            checkpoint.states.insert(subtask, prepared.state);
            checkpoint.commits.insert(subtask, prepared.commit);
            checkpoint.rows += prepared.rows.0;
            checkpoint.dead_letters += prepared.dead_letters.0;
        }
        checkpoint
    }

    async fn commit(&self, epoch: u64, sinks: &mut [BigQuerySink]) -> u64 {
        let mut rows = 0;
        for sink in sinks {
            rows += sink
                .handle_commit(Epoch(epoch), &self.commits)
                .await
                .unwrap()
                .rows
                .0;
        }
        rows
    }

    fn restored(&self, epoch: u64, replay: CommitReplay) -> Restored {
        Restored {
            epoch: Epoch(epoch),
            states: self.states.clone(),
            replay,
        }
    }
}

/// One subtask's checkpoint.
async fn checkpoint(epoch: u64, sink: &mut BigQuerySink) -> Checkpoint {
    Checkpoint::take(epoch, std::slice::from_mut(sink)).await
}

async fn commit(epoch: u64, checkpoint: &Checkpoint, sink: &mut BigQuerySink) -> u64 {
    checkpoint.commit(epoch, std::slice::from_mut(sink)).await
}

/// Rows, checkpoint, commit.
async fn publish(epoch: u64, rows: RecordBatch, sink: &mut BigQuerySink) {
    let count = rows.num_rows() as u64;
    sink.process_batch(rows).await.unwrap();
    let taken = checkpoint(epoch, sink).await;
    assert_eq!(commit(epoch, &taken, sink).await, count);
}

fn barrier(epoch: u64) -> Barrier {
    Barrier {
        epoch: Epoch(epoch),
        then_stop: false,
    }
}

fn columns() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn name(id: i64) -> Option<String> {
    (id % 3 != 0).then(|| format!("order {id}"))
}

fn encoder() -> RowEncoder {
    let options = RowOptions {
        sub_microseconds: SubMicroseconds::Truncate,
        missing_values: MissingValues::Null,
    };
    RowEncoder::new(&columns(), &table_schema_for(&columns()).unwrap(), options).unwrap()
}

fn wire(format: Format) -> Wire {
    Wire::new(format, &encoder(), &table_schema_for(&columns()).unwrap()).unwrap()
}

/// Rows with these ids.
fn rows(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let names = StringArray::from_iter(ids.iter().map(|id| name(*id)));
    RecordBatch::try_new(columns(), vec![Arc::new(Int64Array::from(ids)), Arc::new(names)]).unwrap()
}

fn target() -> TableRef {
    TableRef::new("shop", "sales", "orders")
}

fn make_table(handle: &Handle) {
    handle
        .create_dataset(&DatasetRef::new("shop", "sales"), "")
        .unwrap();
    make_target(handle);
}

fn make_target(handle: &Handle) {
    let schema = Schema::from_wire(&table_schema_for(&columns()).unwrap()).unwrap();
    handle.create_table(&target(), schema).unwrap();
}

fn options(more: &[(&str, &str)]) -> SinkOptions {
    let endpoint = "http://127.0.0.1:1";
    let mut pairs = vec![
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", "orders"),
        ("endpoint.grpc", endpoint),
        ("endpoint.http", endpoint),
    ];
    pairs.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    pairs.extend(more);
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    SinkOptions::parse(&pairs).unwrap()
}

/// A transport whose connections are pipes to the emulator.
fn pipes(handle: &Handle, options: &SinkOptions) -> Transport {
    let (accept, accepted) = mpsc::channel::<Result<DuplexStream, io::Error>>(8);
    let server = handle.clone();
    tokio::spawn(async move {
        server
            .serve(ReceiverStream::new(accepted), std::future::pending())
            .await;
    });
    let connector = tower::service_fn(move |_: http::Uri| {
        let accept = accept.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            accept.send(Ok(theirs)).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(ours)
        }
    });
    Transport::with_connector(options.endpoints.grpc.clone(), connector, None, None).unwrap()
}

/// Blame, whether a restart helps, and the text.
fn told(error: &SinkError) -> (Blame, Retry, String) {
    (error.blame(), error.retry(), error.to_string())
}
