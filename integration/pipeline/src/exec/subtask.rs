//! One parallel instance: rows from the plan into the sink, commits between batches, a checkpoint at each barrier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink::{Barrier, CloseReason, Epoch, Restored, SinkOperator, SubtaskIndex};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::input::EpochEnd;
use super::{EpochInput, Event, Query, QueryError, TaskError};

/// How often the sink is asked whether its own task failed.
const TICK: Duration = Duration::from_secs(1);

/// What the coordinator asks of a subtask.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Publish what a checkpoint covers.
    Commit {
        epoch: Epoch,
        entries: Arc<BTreeMap<SubtaskIndex, Bytes>>,
    },
    /// End, everything being committed.
    Close,
}

/// Everything one instance needs.
pub(crate) struct Subtask {
    pub(crate) index: usize,
    pub(crate) sink: Box<dyn SinkOperator>,
    pub(crate) query: Query,
    pub(crate) input: Arc<EpochInput>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Set when another task failed.
    pub(crate) interrupted: CancellationToken,
}

/// Why the loop between two barriers ended.
enum Turn {
    Barrier(Barrier),
    Close(CloseReason),
}

impl Subtask {
    /// Runs until it is closed, interrupted, or fails.
    pub(crate) async fn run(mut self, restored: Option<Restored>) -> Result<(), TaskError> {
        self.sink.on_start(restored).await.map_err(TaskError::Sink)?;
        self.tell(Event::Started { subtask: self.index }).await?;
        let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reason = loop {
            match self.epoch(&mut ticks).await? {
                Turn::Close(reason) => break reason,
                Turn::Barrier(barrier) => {
                    let prepared = self
                        .sink
                        .handle_checkpoint(barrier)
                        .await
                        .map_err(TaskError::Sink)?;
                    self.tell(Event::Prepared {
                        subtask: self.index,
                        epoch: barrier.epoch,
                        prepared,
                    })
                    .await?;
                    if barrier.then_stop {
                        break self.last_commit(&mut ticks).await?;
                    }
                }
            }
        };
        self.sink.on_close(reason).await.map_err(TaskError::Sink)
    }

    /// Rows of one epoch.
    async fn epoch(&mut self, ticks: &mut Interval) -> Result<Turn, TaskError> {
        let mut rows = self.query.execute().map_err(TaskError::Query)?;
        loop {
            tokio::select! {
                biased;
                () = self.interrupted.cancelled() => return Ok(Turn::Close(CloseReason::Interrupted)),
                command = self.commands.recv() => match command.ok_or(TaskError::Orphaned)? {
                    Command::Commit { epoch, entries } => self.commit(epoch, &entries).await?,
                    Command::Close => return Ok(Turn::Close(CloseReason::Stop)),
                },
                _ = ticks.tick() => self.sink.handle_tick().await.map_err(TaskError::Sink)?,
                batch = rows.next() => match batch {
                    Some(Ok(batch)) if batch.num_rows() == 0 => {}
                    Some(Ok(batch)) => self.sink.process_batch(batch).await.map_err(TaskError::Sink)?,
                    Some(Err(error)) => return Err(TaskError::Query(error)),
                    None => return match self.input.take_end() {
                        EpochEnd::Barrier(barrier) => Ok(Turn::Barrier(barrier)),
                        EpochEnd::Closed => Err(TaskError::Orphaned),
                        EpochEnd::NotRead => Err(TaskError::Query(QueryError::InputNotRead)),
                    },
                },
            }
        }
    }

    /// After the last barrier only its commit and the end still come.
    async fn last_commit(&mut self, ticks: &mut Interval) -> Result<CloseReason, TaskError> {
        loop {
            tokio::select! {
                biased;
                () = self.interrupted.cancelled() => return Ok(CloseReason::Interrupted),
                command = self.commands.recv() => match command.ok_or(TaskError::Orphaned)? {
                    Command::Commit { epoch, entries } => self.commit(epoch, &entries).await?,
                    Command::Close => return Ok(CloseReason::Stop),
                },
                _ = ticks.tick() => self.sink.handle_tick().await.map_err(TaskError::Sink)?,
            }
        }
    }

    async fn commit(
        &mut self,
        epoch: Epoch,
        entries: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<(), TaskError> {
        let committed = self
            .sink
            .handle_commit(epoch, entries)
            .await
            .map_err(TaskError::Sink)?;
        self.tell(Event::Committed {
            subtask: self.index,
            epoch,
            rows: committed.rows,
        })
        .await
    }

    async fn tell(&mut self, event: Event) -> Result<(), TaskError> {
        self.events.send(event).await.map_err(|_| TaskError::Orphaned)
    }
}
