//! Runs a pipeline: attempts, each from the newest completed checkpoint, until it ends, is stopped, or cannot go on.

mod attempt;
mod core;
mod history;
mod limits;
mod restart;
mod totals;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_schema::SchemaRef;
use bigquery_sink::{Epoch, Mutation, Retry, SinkError, SinkOperator, SubtaskIndex, Task};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::history::{CheckpointRecord, FailureRecord, History, HistoryRecord};
pub use self::totals::{Progress, Summary};

use crate::exec::QueryError;
use crate::sources::SourceError;
use crate::sql::Pipeline;
use crate::store::{Lease, Manifest, Store, StoreError, StoreLocation, TakeOver};
use attempt::Attempt;
use limits::Limits;
use restart::Restarts;
use totals::Totals;

/// How a pipeline is run.
#[derive(Clone)]
pub struct HostConfig {
    /// Parallel instances of the sink; at least 1.
    pub parallelism: u32,
    /// Time from the end of one checkpoint to the begin of the next.
    pub checkpoint_interval: Duration,
    /// Where checkpoints are kept.
    pub state: StoreLocation,
    /// The open store, where it is not to be opened at `state`: one in memory, or one that a test watches.
    pub store: Option<Store>,
    /// What to do about a host that still holds the state.
    pub take_over: TakeOver,
    /// Where to begin.
    pub start: Start,
    /// Files to read in place of others, by the path as the SQL names it.
    pub data: BTreeMap<String, PathBuf>,
    /// Limit in rows a second for sources that have no rate of their own (files).
    pub source_rate: Option<f64>,
    /// A checkpoint, a commit or a start that takes longer than this fails the attempt.
    pub stall_limit: Duration,
    /// The wall clock, µs since 1970.
    pub wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// For crash tests: called at each step; where it says true the host stands still for ever, as if killed there.
    pub freeze: Option<Arc<dyn Fn(Step) -> bool + Send + Sync>>,
    /// A mistake made on purpose, in builds for that.
    pub mutation: Mutation,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the newest completed checkpoint, or at the begin of the sources if there is none.
    #[default]
    Newest,
    /// At the begin of the sources, whatever the state says: rows read before are written again.
    Anew,
    /// At an older checkpoint: rows committed since become visible again.
    Checkpoint(Epoch),
}

/// Steps of the host between which it can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The state was read; nothing was started.
    Restored,
    /// A sink has started.
    Started(SubtaskIndex),
    /// A barrier was sent.
    BarrierSent(Epoch),
    /// A sink has prepared its part.
    Prepared(Epoch, SubtaskIndex),
    /// Everything of a checkpoint was collected; nothing of it is stored.
    Collected(Epoch),
    /// The checkpoint is complete; no commit was sent.
    Completed(Epoch),
    /// The commit was sent to this subtask, not to those after it.
    CommitSent(Epoch, SubtaskIndex),
    /// This subtask has published its share.
    Committed(Epoch, SubtaskIndex),
    /// Every subtask has; that is not recorded.
    Published(Epoch),
    /// It is recorded.
    Marked(Epoch),
    /// Every subtask was told to end.
    Closing,
}

/// The caller's handles on a run.
#[derive(Clone, Debug)]
pub struct Control {
    /// Cancel it to stop with a checkpoint.
    pub shutdown: CancellationToken,
    /// Told about the run a few times a second at most.
    pub progress: watch::Sender<Progress>,
    /// What the run remembers of its checkpoints and failures.
    pub history: History,
}

/// Makes the sink's instances.
pub trait SinkFactory: Send + Sync {
    /// One instance for rows of these columns.
    ///
    /// # Errors
    /// Options that are wrong.
    fn create(&self, task: Task, columns: SchemaRef) -> Result<Box<dyn SinkOperator>, SinkError>;

    /// Write streams created by all instances made here so far.
    fn streams_created(&self) -> u64 {
        0
    }
}

/// Why a run ended without reaching its end.
#[derive(Debug, Error)]
pub enum HostError {
    /// The sink of a subtask failed.
    #[error("subtask {subtask} of the sink: {error}")]
    Sink {
        /// The subtask.
        subtask: SubtaskIndex,
        /// What it said.
        error: SinkError,
    },
    /// A source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The query failed on rows.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The checkpoint store failed, or another host has the state.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state belongs to another pipeline.
    #[error(
        "the state at {state} was written by a pipeline that differs: {difference}; go back to that pipeline, name another \
         --state-dir, or start anew with --new-state (rows written before are then written again)"
    )]
    Changed {
        /// The store.
        state: String,
        /// What changed.
        difference: String,
    },
    /// A stop was asked for while sinks were starting and a commit of an earlier run was still to be replayed.
    #[error(
        "stopped before the commit of checkpoint {epoch} was confirmed; run it again on the same state, without --new-state, to \
         publish that checkpoint"
    )]
    Unconfirmed {
        /// The checkpoint.
        epoch: Epoch,
    },
    /// A stop was asked for while the state was still being read.
    #[error(
        "stopped before the state at {state} was read: the storage gave no answer; whether a checkpoint is still to be published is \
         known once it does, so run it again on the same state, without --new-state"
    )]
    StoppedUnread {
        /// The store.
        state: String,
    },
    /// A value of the configuration is out of range.
    #[error("{0}")]
    Config(&'static str),
    /// Nothing moved for too long.
    #[error("no answer for {seconds} s while {phase}")]
    Stalled {
        /// What was under way.
        phase: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// A mistake of this project.
    #[error("internal error: {0}; please report it")]
    Internal(String),
    /// Too many restarts in a row.
    #[error("gave up after {restarts} restarts in a row; the last error was: {last}")]
    GaveUp {
        /// How many.
        restarts: u32,
        /// The error of the last attempt.
        last: Box<Self>,
    },
}

impl HostConfig {
    /// Defaults: one subtask, a checkpoint a second, from the newest checkpoint, the machine's clock.
    #[must_use]
    pub fn new(state: StoreLocation) -> Self {
        Self {
            parallelism: 1,
            checkpoint_interval: Duration::from_secs(1),
            state,
            store: None,
            take_over: TakeOver::Refuse,
            start: Start::default(),
            data: BTreeMap::new(),
            source_rate: None,
            stall_limit: Duration::from_secs(30 * 60),
            wall_clock: Arc::new(micros_since_1970),
            freeze: None,
            mutation: Mutation::default(),
        }
    }

    fn check(&self) -> Result<(), HostError> {
        if !(1..=1024).contains(&self.parallelism) {
            return Err(HostError::Config("the parallelism must be 1 to 1024"));
        }
        if self
            .source_rate
            .is_some_and(|rate| !(0.001..=1e12).contains(&rate))
        {
            return Err(HostError::Config(
                "the source rate must be 0.001 rows a second or more",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostConfig")
            .field("parallelism", &self.parallelism)
            .field("checkpoint_interval", &self.checkpoint_interval)
            .field("state", &self.state)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

fn micros_since_1970() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Control {
    /// Handles that nobody else holds yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shutdown: CancellationToken::new(),
            progress: watch::Sender::default(),
            history: History::default(),
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl HostError {
    /// Whether starting again from the newest completed checkpoint can help.
    #[must_use]
    pub fn restart_may_help(&self) -> bool {
        match self {
            Self::Sink { error, .. } => error.retry() == Retry::Restart,
            Self::Source(error) => error.restart_may_help(),
            Self::Store(error) => error.restart_may_help(),
            Self::Stalled { .. } | Self::Internal(_) => true,
            Self::Query(_)
            | Self::Changed { .. }
            | Self::Unconfirmed { .. }
            | Self::StoppedUnread { .. }
            | Self::Config(_)
            | Self::GaveUp { .. } => false,
        }
    }
}

/// Runs a pipeline until its sources end, it is told to stop, or it cannot go on.
///
/// Dropping the future ends everything at once, as a kill would: nothing is published that no completed checkpoint covers, and the next run
/// on the same state goes on.
///
/// # Errors
/// The error that no restart mends, or the last one after too many restarts.
pub async fn run(
    pipeline: &Pipeline,
    config: HostConfig,
    sinks: Arc<dyn SinkFactory>,
    control: Control,
) -> Result<Summary, HostError> {
    config.check()?;
    let begun = Instant::now();
    let limits = Limits {
        stall: config.stall_limit,
        shutdown: control.shutdown.clone(),
        state: config.state.to_string(),
    };
    let take_over = async {
        let store = match &config.store {
            Some(store) => store.clone(),
            None => Store::open(&config.state).await?,
        };
        store.take_over((config.wall_clock)(), config.take_over).await
    };
    let lease = limits.until_stopped("opening the state", take_over).await?;
    let mut run = Run {
        pipeline,
        config,
        sinks,
        control,
        limits: limits.clone(),
        lease,
        totals: Totals::default(),
        last_start: 0,
    };
    limits.until_stopped("opening a new lineage", run.begin()).await?;
    run.attempts().await?;
    let created = run.sinks.streams_created();
    Ok(run.totals.summary(created, begun.elapsed()))
}

/// One run, over all its attempts.
struct Run<'a> {
    pipeline: &'a Pipeline,
    config: HostConfig,
    sinks: Arc<dyn SinkFactory>,
    control: Control,
    limits: Limits,
    lease: Lease,
    totals: Totals,
    last_start: u64,
}

impl Run<'_> {
    /// Opens a new lineage where one is asked for; later attempts then find it as the newest.
    async fn begin(&mut self) -> Result<(), HostError> {
        match self.config.start {
            Start::Newest => {}
            Start::Anew => self.lease.begin_empty_lineage().await?,
            Start::Checkpoint(epoch) => {
                // Only that one is read: a damaged newer one is a reason to go back.
                let base = self.lease.base(epoch).await?;
                self.check_same(&base)?;
                self.lease.begin_lineage_from(epoch).await?;
            }
        }
        Ok(())
    }

    /// Refuses the state of another pipeline.
    fn check_same(&self, manifest: &Manifest) -> Result<(), HostError> {
        let Some(difference) = self.pipeline.fingerprint.difference(&manifest.fingerprint) else {
            return Ok(());
        };
        Err(HostError::Changed {
            state: self.config.state.to_string(),
            difference,
        })
    }

    async fn attempts(&mut self) -> Result<(), HostError> {
        let mut restarts = Restarts::default();
        loop {
            let begun = Instant::now();
            let Err(error) = Attempt::run(self).await else {
                return Ok(());
            };
            if !error.restart_may_help() || self.control.shutdown.is_cancelled() {
                self.remember_failure(&error, None);
                return Err(error);
            }
            let delay = restarts.after(begun.elapsed());
            self.remember_failure(&error, delay);
            let Some(delay) = delay else {
                return Err(HostError::GaveUp {
                    restarts: restarts.in_a_row(),
                    last: Box::new(error),
                });
            };
            tracing::warn!(%error, delay_ms = delay.as_millis() as u64, "restarting from the newest completed checkpoint");
            self.totals.restarted(&self.control.progress);
            tokio::select! {
                biased;
                () = self.control.shutdown.cancelled() => return Err(error),
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    fn remember_failure(&self, error: &HostError, restart_after: Option<Duration>) {
        let now = (self.config.wall_clock)();
        self.control.history.failed(now, error.to_string(), restart_after);
    }

    /// Start of an attempt in µs since 1970, larger for every attempt.
    fn started_at(&mut self) -> u64 {
        self.last_start = (self.config.wall_clock)().max(self.last_start + 1);
        self.last_start
    }

    fn folder(&self) -> PathBuf {
        self.pipeline.file.parent().unwrap_or(Path::new("")).to_owned()
    }

    /// Stands still where a crash test wants it.
    async fn step(&self, step: Step) {
        if self.config.freeze.as_ref().is_some_and(|freeze| freeze(step)) {
            std::future::pending::<()>().await;
        }
    }
}
