//! The sink as a host sees it: each method hands over to the sink's own task and waits for its word.

mod coalesce;
mod driver;
mod start;
mod translate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink_state::{
    CommitList, Core, CoreConfig, Epoch, Input, Micros, RestoredUnion, SubtaskIndex, SubtaskState,
};
use bigquery_write_proto::rows::{ConvertError, RowEncoder};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::credentials::{TokenSource, token_source};
use crate::error::SinkError;
use crate::host::{Barrier, CloseReason, Committed, Prepared, Restored, SinkOperator, Task};
use crate::options::SinkOptions;
use crate::transport::Transport;
use driver::{Clock, Control, Driver, Feed};

/// What the subtasks of one process share: the connection, the tokens, the counters.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The Storage Write API.
    pub transport: Transport,
    /// Tokens for it and for table administration; none for plaintext endpoints.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// Counts over all subtasks.
    pub counters: Arc<Counters>,
}

impl Environment {
    /// What the options ask for. Opens no connection and looks no credential up.
    ///
    /// # Errors
    /// An endpoint or a CA file that cannot be used.
    pub fn new(options: &SinkOptions) -> Result<Self, SinkError> {
        let tokens = token_source(options);
        let quota_project = options.quota_project.as_ref().map(|project| project.as_str());
        let transport = Transport::connect(&options.endpoints, tokens.clone(), quota_project)
            .map_err(|error| SinkError::user(error.to_string()).with_source(error))?;
        Ok(Self {
            transport,
            tokens,
            counters: Arc::default(),
        })
    }
}

/// Counts since the process started; they never go down.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows BigQuery acknowledged.
    pub rows_appended: AtomicU64,
    /// Rows that did not fit the table.
    pub rows_rejected: AtomicU64,
    /// Streams created.
    pub streams_created: AtomicU64,
    /// Streams left in the middle of an epoch.
    pub streams_left: AtomicU64,
    /// Connections that ended and were opened again.
    pub reconnects: AtomicU64,
    /// Requests sent again.
    pub retries: AtomicU64,
    /// Own resends that met their own rows.
    pub own_resends_stored: AtomicU64,
    /// Values that lost digits below a microsecond (`write.sub_microseconds = 'truncate'`).
    pub values_truncated: AtomicU64,
    /// Flushes that had been done before.
    pub already_flushed: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// One subtask of the sink.
pub struct BigQuerySink {
    options: Arc<SinkOptions>,
    columns: SchemaRef,
    task: Task,
    environment: Environment,
    running: Option<Running>,
}

/// The sink after its start.
struct Running {
    encoder: Arc<RowEncoder>,
    feed: mpsc::Sender<Feed>,
    control: mpsc::Sender<Control>,
    failure: oneshot::Receiver<SinkError>,
    _task: AbortOnDropHandle<()>,
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

    /// Looks the table up, creates it if asked to, and checks the columns against it, as the start of a run does.
    ///
    /// # Errors
    /// A missing table, a missing permission, or every column that does not fit.
    pub async fn check(
        options: &SinkOptions,
        columns: &SchemaRef,
        environment: &Environment,
    ) -> Result<(), SinkError> {
        start::row_encoder(options, columns, environment, false)
            .await
            .map(drop)
    }

    fn core(&self, restored: Option<Restored>) -> Result<(Core, Clock), SinkError> {
        let clock = Clock {
            started_at: Micros(self.task.started_at_micros),
            started: Instant::now(),
        };
        let table = self.options.table.to_string();
        let mut core = Core::new(CoreConfig {
            table: table.clone(),
            subtask: self.task.subtask,
            parallelism: self.task.parallelism,
            streams: 1,
            started_at: clock.started_at,
            limits: translate::limits(&self.options),
        });
        if let Some(restored) = restored {
            let union = read_union(&table, &restored)?;
            core.handle(
                clock.now(),
                Input::Restored {
                    union,
                    replay: translate::replay(restored.replay),
                },
            );
        }
        Ok((core, clock))
    }

    /// The error of the sink's own task, once it has ended.
    async fn failed(&mut self) -> SinkError {
        let Some(running) = &mut self.running else {
            return SinkError::internal("the sink was called before its start or after its end");
        };
        (&mut running.failure)
            .await
            .unwrap_or_else(|_| SinkError::internal("the sink's task ended without saying why"))
    }

    async fn feed(&mut self, feed: Feed) -> Result<(), SinkError> {
        match &self.running {
            Some(running) if running.feed.send(feed).await.is_ok() => Ok(()),
            _ => Err(self.failed().await),
        }
    }

    async fn reply<T>(&mut self, reply: oneshot::Receiver<T>) -> Result<T, SinkError> {
        match reply.await {
            Ok(value) => Ok(value),
            Err(_) => Err(self.failed().await),
        }
    }
}

#[async_trait]
impl SinkOperator for BigQuerySink {
    async fn on_start(&mut self, restored: Option<Restored>) -> Result<(), SinkError> {
        let (core, clock) = self.core(restored)?;
        let encoder =
            Arc::new(start::row_encoder(&self.options, &self.columns, &self.environment, true).await?);
        let (feed, feeds) = mpsc::channel(1);
        let (control, controls) = mpsc::channel(1);
        let (report, failure) = oneshot::channel();
        let driver = Driver::new(
            core,
            clock,
            Arc::clone(&encoder),
            &self.options,
            &self.environment,
        );
        let task = tokio::spawn(async move {
            if let Err(error) = driver.run(feeds, controls).await {
                // A host that has gone away does not need the reason.
                drop(report.send(error));
            }
        });
        self.running = Some(Running {
            encoder,
            feed,
            control,
            failure,
            _task: AbortOnDropHandle::new(task),
        });
        Ok(())
    }

    async fn process_batch(&mut self, batch: RecordBatch) -> Result<(), SinkError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let Some(running) = &self.running else {
            return Err(self.failed().await);
        };
        let converted = match running.encoder.convert(&batch) {
            Ok(converted) => converted,
            Err(error) => {
                if let ConvertError::Rows(rows) = &error {
                    Counters::add(&self.environment.counters.rows_rejected, rows.rows.len() as u64);
                }
                return Err(translate::convert_error(error));
            }
        };
        Counters::add(&self.environment.counters.values_truncated, converted.truncated);
        self.feed(Feed::Rows(converted.batch)).await
    }

    async fn handle_checkpoint(&mut self, barrier: Barrier) -> Result<Prepared, SinkError> {
        let (reply, prepared) = oneshot::channel();
        self.feed(Feed::Barrier {
            epoch: barrier.epoch,
            reply,
        })
        .await?;
        let (state, commit): (SubtaskState, CommitList) = self.reply(prepared).await?;
        Ok(Prepared {
            state: state.encode().into(),
            commit: commit.encode().into(),
            rows: commit.rows(),
        })
    }

    async fn handle_commit(
        &mut self,
        epoch: Epoch,
        commits: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<Committed, SinkError> {
        let mut entries = BTreeMap::new();
        for (&subtask, bytes) in commits {
            let list = CommitList::decode(bytes).map_err(|error| {
                SinkError::user(format!(
                    "the commit entry of checkpoint {epoch} for subtask {subtask} cannot be read: {error}"
                ))
                .with_source(error)
            })?;
            entries.insert(subtask, list);
        }
        let (reply, committed) = oneshot::channel();
        let control = Control::Commit {
            epoch,
            entries,
            reply,
        };
        match &self.running {
            Some(running) if running.control.send(control).await.is_ok() => {}
            _ => return Err(self.failed().await),
        }
        let rows = self.reply(committed).await?;
        Ok(Committed { rows })
    }

    async fn handle_tick(&mut self) -> Result<(), SinkError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        match running.failure.try_recv() {
            Ok(error) => Err(error),
            Err(oneshot::error::TryRecvError::Empty) => Ok(()),
            Err(oneshot::error::TryRecvError::Closed) => {
                Err(SinkError::internal("the sink's task ended without saying why"))
            }
        }
    }

    async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError> {
        if reason == CloseReason::EndOfData && self.running.is_some() {
            let (reply, closed) = oneshot::channel();
            self.feed(Feed::EndOfData { reply }).await?;
            self.reply(closed).await?;
        }
        // Dropping the task drops its connections. Nothing is finalized (invariant 9) and nothing is published.
        self.running = None;
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

/// Longest wait for the table at the start: an engine allows two minutes for all of it (arroyo.md 2.2).
const START_BUDGET: Duration = Duration::from_secs(15);
