//! The engine in small: it keeps what the sink gives it, calls in its order, and waits for acknowledgements as its two controllers do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bigquery_sink::engine::{COMMIT_TABLE, Controller, Declared, EngineSink, EngineTask, Form, options};
use bigquery_sink::options::SinkOptions;
use bigquery_sink::transport::Transport;
use bigquery_sink::{CloseReason, Environment, SinkError, SubtaskIndex, Task};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::schema::Schema as TableSchema;
use bigquery_write_emulator::{Config, Handle};
use bigquery_write_proto::rows::table_schema_for;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

/// BigQuery, and what outlives the engine's processes.
pub(crate) struct Engine {
    pub(crate) handle: Handle,
    options: Vec<(String, String)>,
    controller: Controller,
    attempts: AtomicU64,
}

/// A checkpoint as the engine keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) epoch: u32,
    pub(crate) states: HashMap<u32, Vec<u8>>,
    pub(crate) commits: HashMap<u32, Vec<u8>>,
}

/// The subtasks of one attempt.
pub(crate) struct Job {
    pub(crate) subtasks: Vec<EngineSink>,
    controller: Controller,
}

impl Engine {
    pub(crate) fn new(controller: Controller) -> Self {
        Self::with(controller, &[])
    }

    pub(crate) fn with(controller: Controller, more: &[(&str, &str)]) -> Self {
        let begin = Instant::now();
        let clock = Arc::new(move || 1_800_000_000_000 + i64::try_from(begin.elapsed().as_millis()).unwrap());
        let config = Config {
            clock: Some(clock),
            seed: Some(1),
            ..Config::default()
        };
        let handle = Handle::new(&config).unwrap();
        handle
            .create_dataset(&DatasetRef::new("shop", "sales"), "")
            .unwrap();
        let given = [
            ("project", "shop"),
            ("dataset", "sales"),
            ("table", "orders"),
            ("endpoint.grpc", "http://127.0.0.1:1"),
            ("endpoint.http", "http://127.0.0.1:1"),
        ];
        let is_given = |name: &str| more.iter().any(|(other, _)| *other == name);
        let given = given.iter().filter(|(name, _)| !is_given(name)).chain(more);
        let engine = Self {
            handle,
            options: given
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            controller,
            attempts: AtomicU64::new(0),
        };
        engine.make_table("orders", &columns(&[]));
        engine
    }

    /// Writes to another table, which is made.
    pub(crate) fn with_table(controller: Controller, name: &str, columns: &SchemaRef) -> Self {
        let engine = Self::with(controller, &[("table", name)]);
        engine.make_table(name, columns);
        engine
    }

    fn make_table(&self, name: &str, columns: &SchemaRef) {
        let schema = TableSchema::from_wire(&table_schema_for(columns).unwrap()).unwrap();
        let table = TableRef::new("shop", "sales", name);
        self.handle.create_table(&table, schema).unwrap();
    }

    pub(crate) fn fault(&self, rules: &str) {
        let plan = FaultPlan::parse(&format!(r#"{{"rules": [{rules}]}}"#)).unwrap();
        self.handle.set_faults(plan).unwrap();
    }

    /// A subtask as `make_operator` makes it.
    pub(crate) fn sink(&self, declared: Declared) -> EngineSink {
        let (profile, table) = Form::split(self.options.clone()).unwrap();
        let environment = environment(&self.handle, &options(&profile, &table, &declared).unwrap());
        EngineSink::new(&profile, &table, declared).with_environment(environment)
    }

    pub(crate) fn task(&self, subtask: u32, parallelism: u32) -> EngineTask {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        EngineTask {
            task: Task {
                subtask: SubtaskIndex(subtask),
                parallelism,
                started_at_micros: 1_800_000_000_000_000 + attempt,
                operator_name: "sink_orders".to_owned(),
                node_id: 2,
            },
            controller: self.controller,
        }
    }

    pub(crate) async fn start(&self, parallelism: u32) -> Job {
        self.started(parallelism, &HashMap::new()).await
    }

    /// Every subtask gets the states of all old ones, and not a word of which checkpoint it is.
    pub(crate) async fn restore(&self, parallelism: u32, from: &Checkpoint) -> Job {
        self.started(parallelism, &from.states).await
    }

    async fn started(&self, parallelism: u32, states: &HashMap<u32, Vec<u8>>) -> Job {
        let mut subtasks = Vec::new();
        for subtask in 0..parallelism {
            let mut sink = self.sink(Declared::default());
            let task = self.task(subtask, parallelism);
            sink.on_start(task, &edge(&[]), states).await.unwrap();
            subtasks.push(sink);
        }
        Job {
            subtasks,
            controller: self.controller,
        }
    }

    /// Ids of the rows that a reader sees, sorted.
    pub(crate) fn visible(&self) -> Vec<i64> {
        let rows = self
            .handle
            .rows(&TableRef::new("shop", "sales", "orders"))
            .unwrap();
        let mut ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        ids.sort_unstable();
        ids
    }
}

impl Job {
    pub(crate) async fn give(&mut self, subtask: usize, ids: impl IntoIterator<Item = i64>) {
        self.subtasks[subtask].process_batch(&rows(ids)).await.unwrap();
    }

    /// The barrier to all, and what they put into the checkpoint.
    pub(crate) async fn checkpoint(&mut self, epoch: u32) -> Checkpoint {
        self.barrier(epoch, false).await
    }

    pub(crate) async fn barrier(&mut self, epoch: u32, then_stop: bool) -> Checkpoint {
        let mut checkpoint = Checkpoint {
            epoch,
            states: HashMap::new(),
            commits: HashMap::new(),
        };
        for (subtask, sink) in (0..).zip(&mut self.subtasks) {
            let part = sink.handle_checkpoint(epoch, then_stop).await.unwrap();
            assert_eq!(part.key, subtask, "T7: state is kept by subtask");
            checkpoint.states.insert(part.key, part.state);
            checkpoint
                .commits
                .extend(part.commit.map(|commit| (part.key, commit)));
        }
        checkpoint
    }

    /// The commit of a checkpoint of this attempt: every subtask that there is must acknowledge.
    pub(crate) async fn commit(&mut self, checkpoint: &Checkpoint) {
        let awaited = (0..).zip(&self.subtasks).map(|(subtask, _)| subtask).collect();
        self.say_commit(checkpoint, awaited).await;
    }

    /// The commit of the restored checkpoint. The controller waits for every subtask that there is now; a worker for those that wrote
    /// the entries.
    pub(crate) async fn replay(&mut self, checkpoint: &Checkpoint) {
        let awaited = match self.controller {
            Controller::Controller => (0..).zip(&self.subtasks).map(|(subtask, _)| subtask).collect(),
            Controller::Worker => checkpoint.commits.keys().copied().collect(),
        };
        self.say_commit(checkpoint, awaited).await;
    }

    async fn say_commit(&mut self, checkpoint: &Checkpoint, mut awaited: BTreeSet<u32>) {
        for subtask in 0..self.subtasks.len() {
            for acknowledged in self.say_commit_to(subtask, checkpoint).await.unwrap() {
                awaited.remove(&acknowledged);
            }
        }
        assert_eq!(
            awaited,
            BTreeSet::new(),
            "T4: the engine waits for these for ever"
        );
    }

    /// The commit to one subtask, and whom it acknowledges for.
    pub(crate) async fn say_commit_to(
        &mut self,
        subtask: usize,
        checkpoint: &Checkpoint,
    ) -> Result<Vec<u32>, SinkError> {
        let data = HashMap::from([(COMMIT_TABLE.to_owned(), checkpoint.commits.clone())]);
        self.subtasks[subtask]
            .handle_commit(checkpoint.epoch, &data)
            .await
    }

    pub(crate) async fn close(&mut self, reason: CloseReason) {
        for sink in &mut self.subtasks {
            sink.on_close(reason).await.unwrap();
        }
    }
}

/// Id and name, and then these.
pub(crate) fn columns(more: &[Field]) -> SchemaRef {
    let mut fields = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ];
    fields.extend_from_slice(more);
    Arc::new(Schema::new(fields))
}

/// As [`columns`], with the engine's own behind them.
pub(crate) fn edge(more: &[Field]) -> SchemaRef {
    columns(&[more, &[timestamp()]].concat())
}

pub(crate) fn timestamp() -> Field {
    Field::new(
        "_timestamp",
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        false,
    )
}

/// Rows with these ids, as they come along the edge.
pub(crate) fn rows(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let names = StringArray::from_iter_values(ids.iter().map(|id| format!("order {id}")));
    let times = TimestampNanosecondArray::from_iter_values(ids.iter().map(|id| id * 1_000));
    RecordBatch::try_new(
        edge(&[]),
        vec![Arc::new(Int64Array::from(ids)), Arc::new(names), Arc::new(times)],
    )
    .unwrap()
}

/// From here to there, without the last.
pub(crate) fn ids(from: i64, to: i64) -> Vec<i64> {
    (from..to).collect()
}

/// As told to a person: whose fault, whether a restart helps, what.
pub(crate) fn told(error: &SinkError) -> (bigquery_sink::Blame, bigquery_sink::Retry, String) {
    (error.blame(), error.retry(), error.to_string())
}

/// What the options ask for, over pipes in memory.
fn environment(handle: &Handle, options: &SinkOptions) -> Environment {
    let (accept, accepted) = mpsc::channel::<Result<DuplexStream, io::Error>>(8);
    let server = handle.clone();
    tokio::spawn(async move { server.serve(ReceiverStream::new(accepted), pending()).await });
    let connector = tower::service_fn(move |_: http::Uri| {
        let accept = accept.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            accept.send(Ok(theirs)).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(ours)
        }
    });
    let transport = Transport::with_connector(options.endpoints.grpc.clone(), connector, None, None).unwrap();
    Environment {
        transport,
        asks_rest: false,
        ..Environment::new(options, Arc::default()).unwrap()
    }
}

/// Both controllers, which wait for different subtasks.
pub(crate) const CONTROLLERS: [Controller; 2] = [Controller::Controller, Controller::Worker];

/// Every subtask's entry, by subtask.
pub(crate) fn sizes(parts: &HashMap<u32, Vec<u8>>) -> BTreeMap<u32, usize> {
    parts
        .iter()
        .map(|(subtask, part)| (*subtask, part.len()))
        .collect()
}
