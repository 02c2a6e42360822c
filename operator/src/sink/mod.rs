//! The sink as a host sees it: each method hands over to the sink's own task and waits for its word.

mod aftermath;
mod coalesce;
mod dead_letters;
mod driver;
#[cfg(feature = "mutants")]
mod mutants;
mod notice;
mod refused;
mod start;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink_state::{
    CommitList, Core, CoreConfig, DefaultStreamCore, DefaultStreams, Destination, Epoch, Input, Micros,
    Mutation, Protocol, RestoredUnion, RowErrorPolicy, StreamName, SubtaskIndex, SubtaskState,
};
use bigquery_write_proto::names::TableName;
use bigquery_write_proto::rows::{RowEncoder, Wire};
use bigquery_write_proto::wire::TableSchema;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::credentials::{TokenSource, token_source};
use crate::error::SinkError;
use crate::host::{Barrier, CloseReason, CommitReplay, Committed, Prepared, Restored, SinkOperator, Task};
use crate::metrics::{Metrics, Subtask, SubtaskMetrics};
use crate::options::{RowErrors, SinkOptions, WriteMode};
use crate::probe::Probe;
use crate::transport::Transport;
use aftermath::Aftermath;
use dead_letters::DeadLetters;
use driver::{Commit, Driver, Feed, Mark, Writers};
use refused::{Sieve, Sifted};

/// What the subtasks of one process share: the connection, the tokens, the metrics.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The Storage Write API.
    pub transport: Transport,
    /// Tokens for it and for table administration; none for plaintext endpoints.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// What happened, over all subtasks.
    pub metrics: Arc<Metrics>,
    /// Whether the REST API may be asked what became of the table when a failure makes one wonder, though no option needs that API; not
    /// where the network is a simulated one, which it is not part of.
    pub asks_rest: bool,
    /// Asked at every command of the core; for crash tests.
    pub probe: Probe,
    /// A mistake made on purpose, in builds for that.
    pub mutation: Mutation,
}

impl Environment {
    /// What the options ask for. Opens no connection and looks no credential up. The metrics are those of the host's registry
    /// ([`Metrics::of_default_registry`]), or `Arc::default()` where nobody gathers any.
    ///
    /// # Errors
    /// An endpoint or a CA file that cannot be used.
    pub fn new(options: &SinkOptions, metrics: Arc<Metrics>) -> Result<Self, SinkError> {
        let tokens = token_source(options);
        let quota_project = options.quota_project.as_ref().map(|project| project.as_str());
        let transport = Transport::connect(&options.endpoints, tokens.clone(), quota_project)
            .map_err(|error| SinkError::user(error.to_string()).with_source(error))?;
        Ok(Self {
            transport,
            tokens,
            metrics,
            asks_rest: true,
            probe: Probe::default(),
            mutation: Mutation::default(),
        })
    }
}

/// What [`BigQuerySink::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableLook {
    /// The table is there and takes the columns.
    Fits,
    /// It is there and lacks these columns, each a dotted path and a type, which `schema.update = 'add_columns'` will add.
    WillGain(Vec<String>),
    /// It is not there, and `table.create = 'if_missing'` will create it.
    WillBeCreated,
}

/// The tables that [`BigQuerySink::check`] looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLooks {
    /// That of the rows.
    pub table: TableLook,
    /// `dead_letter.table`, if there is one.
    pub dead_letters: Option<TableLook>,
}

/// One subtask of the sink.
///
/// The work is done by a task of its own, which lives from `on_start` to `on_close`, to the first error, or to the drop of the sink,
/// whichever is first. A call whose future is dropped before its end also ends it: what of the call happened is not known, so the
/// only way on is a new instance, restored from the newest completed checkpoint.
pub struct BigQuerySink {
    options: Arc<SinkOptions>,
    columns: SchemaRef,
    task: Task,
    environment: Environment,
    /// Taken out during a call, and put back when it went well.
    running: Option<Running>,
}

/// The sink between its start and its end.
struct Running {
    encoder: RowEncoder,
    wire: Arc<Wire>,
    metrics: Arc<Subtask>,
    clock: Clock,
    feed: mpsc::Sender<Feed>,
    commits: mpsc::Sender<Commit>,
    task: AbortOnDropHandle<Result<(), SinkError>>,
}

impl BigQuerySink {
    /// A sink for rows with these columns. Does nothing before its start: no connection, no file, no thread.
    #[must_use]
    pub fn new(options: Arc<SinkOptions>, columns: SchemaRef, task: Task, environment: Environment) -> Self {
        Self {
            options,
            columns,
            task,
            environment,
            running: None,
        }
    }

    /// Looks the table up, and that of dead letters, and checks the columns against them, as the start of a run does, but creates
    /// nothing: for a missing table that the start would create, looks whether it could.
    ///
    /// # Errors
    /// A missing table or dataset, a missing permission, or every column that does not fit.
    pub async fn check(
        options: &SinkOptions,
        columns: &SchemaRef,
        environment: &Environment,
    ) -> Result<TableLooks, SinkError> {
        let table = start::look(options, columns, environment).await?;
        let dead_letters = match options.for_dead_letters() {
            None => None,
            Some(options) => {
                let look = start::look(&options, &dead_letters::columns(), environment).await;
                Some(look.map_err(of_dead_letters)?)
            }
        };
        Ok(TableLooks { table, dead_letters })
    }

    /// The table's columns, as far as BigQuery knows the table yet: none where the options let the start create or change it and it
    /// is not found.
    ///
    /// # Errors
    /// A missing table, a missing permission, or no answer.
    pub async fn table_columns(
        options: &SinkOptions,
        environment: &Environment,
    ) -> Result<Option<TableSchema>, SinkError> {
        start::columns(options, environment).await
    }

    fn core(
        &self,
        clock: Clock,
        restored: Option<(RestoredUnion, CommitReplay)>,
        table_is_young: bool,
    ) -> Protocol {
        let config = CoreConfig {
            table: self.options.table.to_string(),
            subtask: self.task.subtask,
            parallelism: self.task.parallelism,
            streams: 1,
            row_errors: match self.options.row_errors {
                RowErrors::Fail => RowErrorPolicy::Fail,
                RowErrors::DeadLetter { .. } => RowErrorPolicy::DeadLetter,
            },
            started_at: clock.started_at,
            limits: translate::limits(&self.options, table_is_young),
            mutation: self.environment.mutation,
        };
        let mut core = match self.options.mode {
            WriteMode::ExactlyOnce => Protocol::ExactlyOnce(Box::new(Core::new(config))),
            WriteMode::AtLeastOnce => {
                let core = DefaultStreamCore::new(config, self.default_streams());
                Protocol::AtLeastOnce(Box::new(core))
            }
        };
        if let Some((union, replay)) = restored {
            let replay = translate::replay(replay);
            core.handle(clock.now(), Input::Restored { union, replay });
        }
        core
    }

    fn default_streams(&self) -> DefaultStreams {
        let of = |table: &TableName| StreamName(table.default_stream().to_string());
        DefaultStreams {
            table: of(&self.options.table),
            dead_letters: match &self.options.row_errors {
                RowErrors::Fail => None,
                RowErrors::DeadLetter { table, .. } => Some(of(table)),
            },
        }
    }

    /// Looks at the table and starts the sink's own task.
    async fn begin(
        &self,
        restored: Option<Restored>,
        clock: Clock,
        metrics: SubtaskMetrics,
    ) -> Result<Running, SinkError> {
        let restored = restored.map(|restored| {
            let union = read_union(&self.options.table.to_string(), &restored)?;
            Ok::<_, SinkError>((union, restored.replay))
        });
        let restored = restored.transpose()?;
        let now = self.task.started_at_micros;
        let started = start::start(&self.options, &self.columns, &self.environment, now).await?;
        let newest = restored.as_ref().map(|(union, _)| union.epoch());
        let last_append = restored.as_ref().and_then(|(union, _)| union.last_append());
        let aftermath = Aftermath::new(&clock, started.table_created_at, last_append);
        let dead_letters = self.dead_letters(newest).await?;
        let is_young = started.table_is_young || dead_letters.as_ref().is_some_and(|(_, is_young)| *is_young);
        if let Some((union, replay)) = &restored {
            self.tell_restored(&metrics, union, *replay);
        }
        let core = self.core(clock, restored, is_young);
        let (encoder, wire) = (started.encoder, Arc::new(started.wire));
        // The queues hold one entry: what is beyond waits in the host's call, which is its backpressure.
        let (feed, feeds) = mpsc::channel(1);
        let (commits, commits_out) = mpsc::channel(1);
        let counted = Arc::clone(metrics.subtask());
        let writers = Writers {
            wire: Arc::clone(&wire),
            dead_letters: dead_letters.map(|(letters, _)| letters),
        };
        let driver = Driver::new(
            core,
            self.task.subtask,
            metrics,
            writers,
            aftermath,
            &self.options,
            &self.environment,
        );
        let task = AbortOnDropHandle::new(tokio::spawn(driver.run(feeds, commits_out)));
        Ok(Running {
            encoder,
            wire,
            metrics: counted,
            clock,
            feed,
            commits,
            task,
        })
    }

    /// What the restored checkpoint may still owe belongs to the metrics of whoever is to publish it.
    fn tell_restored(&self, metrics: &SubtaskMetrics, union: &RestoredUnion, replay: CommitReplay) {
        if replay == CommitReplay::Confirmed {
            metrics.committed(union.epoch());
            return;
        }
        let (subtask, parallelism) = (self.task.subtask.0, self.task.parallelism);
        let ours = union
            .states()
            .filter(|state| state.subtask.0 % parallelism == subtask);
        let ours: Vec<&SubtaskState> = ours.collect();
        let letters = match &self.options.row_errors {
            RowErrors::Fail => None,
            RowErrors::DeadLetter { table, .. } => Some(format!("{table}/")),
        };
        let is_letters =
            |stream: &StreamName| letters.as_ref().is_some_and(|table| stream.0.starts_with(table));
        metrics.restored(
            &ours,
            replay == CommitReplay::Expected,
            |stream| match is_letters(stream) {
                true => Destination::DeadLetters,
                false => Destination::Table,
            },
        );
    }

    fn take_running(&mut self) -> Result<Running, SinkError> {
        self.running.take().ok_or_else(|| {
            SinkError::internal(
                "the sink was called before its start, after its end or an error, or after a call that was given up",
            )
        })
    }

    /// Converts a batch; rows that do not fit end the job, or are parted from the others.
    fn sift(&self, running: &Running, batch: &RecordBatch) -> Result<Sifted, SinkError> {
        let sieve = Sieve {
            encoder: &running.encoder,
            wire: &running.wire,
            limit: coalesce::largest(&running.wire),
            metrics: &running.metrics,
        };
        let sifted = match self.options.row_errors {
            RowErrors::Fail => sieve.all(batch),
            RowErrors::DeadLetter { .. } => sieve.part(batch),
        };
        if let Err(error) = &sifted {
            running.metrics.trouble(running.clock, &error.to_string());
        }
        sifted
    }

    /// What writes dead letters, if they are asked for.
    async fn dead_letters(&self, newest: Option<Epoch>) -> Result<Option<(DeadLetters, bool)>, SinkError> {
        let Some(options) = self.options.for_dead_letters() else {
            return Ok(None);
        };
        let (columns, now) = (dead_letters::columns(), self.task.started_at_micros);
        let started = start::start(&options, &columns, &self.environment, now).await;
        let started = started.map_err(of_dead_letters)?;
        let is_young = started.table_is_young;
        let writer = (started.encoder, started.wire);
        let letters = DeadLetters::new(&self.options, self.task.subtask, newest, writer);
        Ok(letters.map(|letters| (letters, is_young)))
    }
}

impl Running {
    async fn feed(&mut self, feed: Feed) -> Result<(), SinkError> {
        match self.feed.send(feed).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), SinkError> {
        match self.commits.send(commit).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    async fn answer<T>(&mut self, answer: oneshot::Receiver<T>) -> Result<T, SinkError> {
        match answer.await {
            Ok(value) => Ok(value),
            Err(_) => Err(self.failure().await),
        }
    }

    /// Why the task ended, which it has or is about to; asked for once, since `self` is not kept after an error.
    async fn failure(&mut self) -> SinkError {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => SinkError::internal("the sink's task ended before the sink"),
            Err(broken) => SinkError::internal("the sink's task broke off").with_source(broken),
        }
    }
}

#[async_trait]
impl SinkOperator for BigQuerySink {
    async fn on_start(&mut self, restored: Option<Restored>) -> Result<(), SinkError> {
        if self.running.is_some() {
            return Err(SinkError::internal("the sink was started twice"));
        }
        let clock = Clock {
            started_at: Micros(self.task.started_at_micros),
            started: Instant::now(),
        };
        let metrics = self.environment.metrics.start(&self.task, clock);
        let told = Arc::clone(metrics.subtask());
        match self.begin(restored, clock, metrics).await {
            Ok(running) => {
                self.running = Some(running);
                Ok(())
            }
            Err(error) => {
                told.trouble(clock, &error.to_string());
                Err(error)
            }
        }
    }

    async fn process_batch(&mut self, batch: RecordBatch) -> Result<(), SinkError> {
        let mut running = self.take_running()?;
        if batch.num_rows() > 0 {
            let sifted = self.sift(&running, &batch)?;
            running.feed(Feed::Rows(sifted)).await?;
        }
        self.running = Some(running);
        Ok(())
    }

    async fn handle_checkpoint(&mut self, barrier: Barrier) -> Result<Prepared, SinkError> {
        let mut running = self.take_running()?;
        let (reply, prepared) = oneshot::channel();
        let epoch = barrier.epoch;
        let since = Instant::now();
        let mark = Mark::Barrier { epoch, since, reply };
        running.feed(Feed::Mark(mark)).await?;
        let prepared = running.answer(prepared).await?;
        self.running = Some(running);
        Ok(Prepared {
            state: prepared.state.encode().into(),
            commit: prepared.commit.encode().into(),
            rows: prepared.rows,
            dead_letters: prepared.dead_letters,
        })
    }

    async fn handle_commit(
        &mut self,
        epoch: Epoch,
        commits: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<Committed, SinkError> {
        let mut running = self.take_running()?;
        let entries = read_commits(epoch, commits)?;
        let (reply, committed) = oneshot::channel();
        running
            .commit(Commit {
                epoch,
                entries,
                since: Instant::now(),
                reply,
            })
            .await?;
        let rows = running.answer(committed).await?;
        self.running = Some(running);
        Ok(Committed { rows })
    }

    async fn handle_tick(&mut self) -> Result<(), SinkError> {
        let mut running = self.take_running()?;
        if running.task.is_finished() {
            return Err(running.failure().await);
        }
        self.running = Some(running);
        Ok(())
    }

    async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError> {
        #[cfg(feature = "mutants")]
        let reason = self.mistaken_close(reason).await;
        if reason == CloseReason::EndOfData {
            let mut running = self.take_running()?;
            let (reply, closed) = oneshot::channel();
            running.feed(Feed::Mark(Mark::EndOfData { reply })).await?;
            running.answer(closed).await?;
            self.running = Some(running);
        }
        if let Some(running) = self.running.take() {
            // The end of the task is the end of its connections. Nothing is finalized (invariant 9) and nothing more is published.
            running.task.abort();
            drop(running.task.await);
        }
        Ok(())
    }
}

impl fmt::Debug for BigQuerySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BigQuerySink")
            .field("table", &self.options.table.to_string())
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

/// Says which table it is about.
fn of_dead_letters(error: SinkError) -> SinkError {
    error.about("option 'dead_letter.table', whose columns docs/dead_letters.md lists")
}

fn read_union(table: &str, restored: &Restored) -> Result<RestoredUnion, SinkError> {
    let mut states = BTreeMap::new();
    for (&subtask, bytes) in &restored.states {
        let state = SubtaskState::decode(bytes).map_err(|error| {
            let epoch = restored.epoch;
            SinkError::user(format!(
                "the state of subtask {subtask} in checkpoint {epoch} cannot be read: {error}"
            ))
            .with_source(error)
        })?;
        states.insert(subtask, state);
    }
    RestoredUnion::new(table, restored.epoch, states)
        .map_err(|error| SinkError::user(error.to_string()).with_source(error))
}

fn read_commits(
    epoch: Epoch,
    commits: &BTreeMap<SubtaskIndex, Bytes>,
) -> Result<BTreeMap<SubtaskIndex, CommitList>, SinkError> {
    let read = |(&subtask, bytes): (&SubtaskIndex, &Bytes)| match CommitList::decode(bytes) {
        Ok(list) => Ok((subtask, list)),
        Err(error) => Err(SinkError::user(format!(
            "the commit entry of checkpoint {epoch} for subtask {subtask} cannot be read: {error}"
        ))
        .with_source(error)),
    };
    commits.iter().map(read).collect()
}
