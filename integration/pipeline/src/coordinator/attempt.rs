//! One attempt: restore, start readers and subtasks, carry out the core's decisions until the job ends or something fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigquery_sink::{Barrier, CommitReplay, Epoch, Mutant, Prepared, Restored, SubtaskIndex, Task};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::core::{Action, Core, Input};
use super::totals::Counts;
use super::{HostError, Run, Step};
use crate::exec::{Command, EpochInput, Event, Item, Query, Subtask, TaskError};
use crate::sources::{self, Opening, Reader, SourceSnapshot};
use crate::store::{CommitPermit, Manifest, RestoredCheckpoint, SourcePosition, SubtaskCheckpoint};

/// Batches that may wait before a subtask; a barrier has to get past them.
const INPUT_BATCHES: usize = 2;
/// At most one commit and one close are ever on their way to a subtask.
const COMMANDS: usize = 2;
/// How long healthy subtasks get to end after another one failed.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(5);
const PROGRESS: Duration = Duration::from_millis(500);
/// The sink is the second node of the graph source -> sink.
const SINK_NODE: u32 = 1;

type TaskResult = Result<(), (SubtaskIndex, TaskError)>;
type Entries = Arc<BTreeMap<SubtaskIndex, Bytes>>;

/// What is running and what was collected.
pub(super) struct Attempt<'r, 'p> {
    run: &'r mut Run<'p>,
    core: Core,
    tasks: JoinSet<TaskResult>,
    commands: Vec<mpsc::Sender<Command>>,
    barriers: Vec<mpsc::Sender<Barrier>>,
    /// Kept where there are no readers, so that inputs stay open.
    _inputs: Vec<mpsc::Sender<Item>>,
    events: mpsc::Receiver<Event>,
    interrupted: CancellationToken,
    rows_read: Arc<AtomicU64>,
    /// Counts of the checkpoint this attempt goes on from.
    base: Counts,
    /// Since then, in completed checkpoints.
    dead_letters: u64,
    prepared: BTreeMap<SubtaskIndex, Prepared>,
    snapshots: BTreeMap<usize, SourceSnapshot>,
    /// The checkpoint whose commit is under way.
    commit: Option<(CommitPermit, Entries)>,
    interval_over: Option<Instant>,
    deadline: Option<Instant>,
}

impl<'r, 'p> Attempt<'r, 'p> {
    /// Runs to the end of the job; an error tells whether another attempt may help.
    pub(super) async fn run(run: &'r mut Run<'p>) -> Result<(), HostError> {
        let limits = run.limits.clone();
        let restored = limits
            .until_stopped("reading the state", run.lease.restore())
            .await?;
        run.totals.restored(restored.as_ref());
        if let Some(restored) = &restored {
            run.check_same(&restored.manifest)?;
            if restored.manifest.input_ended && restored.committed() {
                let epoch = restored.manifest.epoch;
                tracing::info!(%epoch, "the sources had ended and everything is committed");
                run.totals.had_ended(epoch.0);
                return Ok(());
            }
        }
        run.step(Step::Restored).await;
        let pending = restored.as_ref().and_then(|r| r.pending_commit.as_ref());
        let pending = pending.map(CommitPermit::epoch);
        let mut attempt = tokio::select! {
            biased;
            () = limits.shutdown.cancelled() => return stopped_early(pending),
            started = limits.within("opening the sources", Self::start(run, restored)) => started?,
        };
        let result = attempt.drive().await;
        attempt.interrupt().await;
        result
    }

    async fn start(run: &'r mut Run<'p>, restored: Option<RestoredCheckpoint>) -> Result<Self, HostError> {
        let parallelism = run.config.parallelism;
        let manifest = restored.as_ref().map(|restored| &restored.manifest);
        let opened = if manifest.is_some_and(|manifest| manifest.input_ended) {
            Vec::new()
        } else {
            let opening = Opening {
                parallelism,
                folder: run.folder(),
                replaced: run.config.data.clone(),
                rate: run.config.source_rate,
            };
            let stored = manifest.map_or(&[][..], |manifest| &manifest.sources);
            sources::open(&run.pipeline.source, &opening, stored).await?
        };
        let replay = restored
            .as_ref()
            .and_then(|r| r.pending_commit.as_ref())
            .map(CommitPermit::epoch);
        let core = Core::new(parallelism as usize, opened.len(), run.lease.next_epoch(), replay);
        let (event_sender, events) = mpsc::channel(2 * (parallelism as usize + opened.len()));
        let mut attempt = Self {
            base: manifest.map(Counts::of).unwrap_or_default(),
            dead_letters: 0,
            core,
            tasks: JoinSet::new(),
            commands: Vec::new(),
            barriers: Vec::new(),
            _inputs: Vec::new(),
            events,
            interrupted: CancellationToken::new(),
            rows_read: Arc::new(AtomicU64::new(0)),
            prepared: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            commit: None,
            interval_over: None,
            deadline: Instant::now().checked_add(run.config.stall_limit),
            run,
        };
        let for_sinks = manifest.map(|manifest| restored_state(manifest, replay.is_some()));
        let inputs = attempt.start_subtasks(for_sinks.as_ref(), &event_sender).await?;
        attempt.start_readers(opened, &inputs, &event_sender);
        attempt._inputs = inputs;
        attempt.commit = restored.and_then(|restored| {
            let RestoredCheckpoint {
                manifest,
                pending_commit,
            } = restored;
            let permit = pending_commit?;
            let rows = manifest.subtasks.iter().map(|subtask| subtask.rows).sum();
            let now = (attempt.run.config.wall_clock)();
            let history = &attempt.run.control.history;
            history.replays(manifest.epoch, now, rows, state_bytes(&manifest));
            Some((permit, entries(&manifest)))
        });
        Ok(attempt)
    }

    /// Starts every subtask; gives their inputs.
    async fn start_subtasks(
        &mut self,
        restored: Option<&Restored>,
        events: &mpsc::Sender<Event>,
    ) -> Result<Vec<mpsc::Sender<Item>>, HostError> {
        let started_at_micros = self.run.started_at();
        let sink = &self.run.pipeline.sink;
        let mut inputs = Vec::new();
        for subtask in 0..self.run.config.parallelism {
            let task = Task {
                subtask: SubtaskIndex(subtask),
                parallelism: self.run.config.parallelism,
                started_at_micros,
                operator_name: sink.name.clone(),
                node_id: SINK_NODE,
            };
            let index = task.subtask;
            let operator = self.run.sinks.create(task, Arc::clone(&sink.columns));
            let operator = operator.map_err(|error| HostError::Sink {
                subtask: index,
                error,
            })?;
            let (input_sender, items) = mpsc::channel(INPUT_BATCHES);
            let (command_sender, commands) = mpsc::channel(COMMANDS);
            let input = Arc::new(EpochInput::new(items));
            let query = Query::plan(
                &self.run.pipeline.plan,
                Arc::clone(&sink.columns),
                Arc::clone(&input),
            )
            .await?;
            let subtask = Subtask {
                index: subtask as usize,
                sink: operator,
                query,
                input,
                commands,
                events: events.clone(),
                interrupted: self.interrupted.clone(),
            };
            let restored = restored.cloned();
            self.tasks
                .spawn(async move { subtask.run(restored).await.map_err(|error| (index, error)) });
            self.commands.push(command_sender);
            inputs.push(input_sender);
        }
        Ok(inputs)
    }

    fn start_readers(
        &mut self,
        opened: Vec<sources::Opened>,
        inputs: &[mpsc::Sender<Item>],
        events: &mpsc::Sender<Event>,
    ) {
        for (index, opened) in opened.into_iter().enumerate() {
            let (barrier_sender, barriers) = mpsc::channel(1);
            let reader = Reader {
                index,
                outputs: opened
                    .subtasks
                    .iter()
                    .map(|subtask| inputs[*subtask].clone())
                    .collect(),
                opened,
                barriers,
                events: events.clone(),
                rows_read: Arc::clone(&self.rows_read),
            };
            self.barriers.push(barrier_sender);
            let failed = |error| (SubtaskIndex(0), TaskError::Source(error));
            self.tasks
                .spawn(async move { reader.run().await.map_err(failed) });
        }
    }

    /// Until every task has ended.
    async fn drive(&mut self) -> Result<(), HostError> {
        let shutdown = self.run.control.shutdown.clone();
        let mut told = false;
        let mut progress = tokio::time::interval(PROGRESS);
        loop {
            let interval_over = self.interval_over;
            let deadline = self.deadline;
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !told => {
                    told = true;
                    if self.core.starting() {
                        return stopped_early(self.commit.as_ref().map(|(permit, _)| permit.epoch()));
                    }
                    self.take(Input::Shutdown).await?;
                }
                event = self.events.recv() => {
                    if let Some(event) = event {
                        self.event(event).await?;
                    } else if self.tasks.is_empty() {
                        return self.ended();
                    } else {
                        self.joined().await?;
                    }
                }
                joined = self.tasks.join_next(), if !self.tasks.is_empty() => check(joined)?,
                () = until(interval_over), if interval_over.is_some() => {
                    self.interval_over = None;
                    self.take(Input::IntervalOver).await?;
                }
                () = until(deadline), if deadline.is_some() => {
                    let seconds = self.run.config.stall_limit.as_secs();
                    return Err(HostError::Stalled { phase: self.core.phase(), seconds });
                }
                _ = progress.tick() => self.report(),
            }
        }
    }

    /// All senders of events are gone: what is left is to see how the tasks ended.
    async fn joined(&mut self) -> Result<(), HostError> {
        check(self.tasks.join_next().await)
    }

    fn ended(&mut self) -> Result<(), HostError> {
        self.report();
        if self.core.closing() {
            return Ok(());
        }
        Err(HostError::Internal(format!(
            "every task ended while {}",
            self.core.phase()
        )))
    }

    async fn event(&mut self, event: Event) -> Result<(), HostError> {
        match event {
            Event::Started { subtask } => {
                self.run.step(Step::Started(index(subtask))).await;
                self.take(Input::Started(subtask)).await
            }
            Event::Prepared {
                subtask,
                epoch,
                prepared,
            } => {
                self.run.step(Step::Prepared(epoch, index(subtask))).await;
                self.prepared.insert(index(subtask), prepared);
                self.take(Input::Prepared(subtask, epoch)).await
            }
            Event::Committed { subtask, epoch, rows } => {
                tracing::debug!(subtask, %epoch, %rows, "published");
                self.run.step(Step::Committed(epoch, index(subtask))).await;
                self.take(Input::Committed(subtask, epoch)).await
            }
            Event::Snapshot { reader, snapshot } => {
                let epoch = snapshot.epoch;
                self.snapshots.insert(reader, snapshot);
                self.take(Input::Snapshot(reader, epoch)).await
            }
            Event::SourceEnded { reader } => self.take(Input::SourceEnded(reader)).await,
        }
    }

    /// Hands an input to the core and carries out what it says, until it says nothing more.
    async fn take(&mut self, input: Input) -> Result<(), HostError> {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let action = self
                .core
                .handle(input)
                .map_err(|error| HostError::Internal(error.to_string()))?;
            let Some(action) = action else { break };
            self.interval_over = None;
            self.run.control.history.phase(self.core.phase());
            next = self.perform(action).await?;
            let limit = self.run.config.stall_limit;
            self.deadline = if self.core.idle() {
                None
            } else {
                Instant::now().checked_add(limit)
            };
        }
        Ok(())
    }

    async fn perform(&mut self, action: Action) -> Result<Option<Input>, HostError> {
        match action {
            Action::Wait => {
                self.interval_over = Instant::now().checked_add(self.run.config.checkpoint_interval);
            }
            Action::Barrier(barrier) => {
                let now = (self.run.config.wall_clock)();
                self.run.control.history.began(barrier.epoch, now);
                for reader in &self.barriers {
                    // A reader that is gone has failed, and its own error ends the attempt.
                    reader.try_send(barrier).ok();
                }
                self.run.step(Step::BarrierSent(barrier.epoch)).await;
            }
            Action::Complete { epoch, input_ended } => {
                self.run.step(Step::Collected(epoch)).await;
                self.complete(epoch, input_ended).await?;
                self.run.step(Step::Completed(epoch)).await;
                return Ok(Some(Input::Completed));
            }
            Action::Commit(epoch) => self.send_commits(epoch).await?,
            Action::Mark(epoch) => {
                self.run.step(Step::Published(epoch)).await;
                if self.commit.is_none() && self.run.config.mutation.is(Mutant::SkipEmptyEpochs) {
                    return Ok(Some(Input::Marked));
                }
                let (permit, _) = self
                    .commit
                    .take()
                    .ok_or_else(|| HostError::Internal("a commit without its permit".into()))?;
                let mark = self.run.lease.mark_committed(&permit);
                self.run.limits.within("recording a commit", mark).await?;
                self.run.totals.confirmed(epoch.0);
                self.run.control.history.committed(epoch);
                self.report();
                self.run.step(Step::Marked(epoch)).await;
                return Ok(Some(Input::Marked));
            }
            Action::Close => {
                for subtask in &self.commands {
                    subtask.try_send(Command::Close).ok();
                }
                self.barriers.clear();
                self._inputs.clear();
                self.run.step(Step::Closing).await;
            }
        }
        Ok(None)
    }

    /// Makes the collected checkpoint durable and claims its epoch.
    async fn complete(&mut self, epoch: Epoch, input_ended: bool) -> Result<(), HostError> {
        let snapshots = std::mem::take(&mut self.snapshots);
        let prepared = std::mem::take(&mut self.prepared);
        let all_rows: u64 = prepared.values().map(|prepared| prepared.rows.0).sum();
        let dead_letters: u64 = prepared.values().map(|prepared| prepared.dead_letters.0).sum();
        self.dead_letters += dead_letters;
        let left_out: u64 = snapshots.values().map(|snapshot| snapshot.rejected).sum();
        let counts = Counts {
            read: self.base.read + snapshots.values().map(|snapshot| snapshot.rows).sum::<u64>(),
            committed: self.run.totals.counts().committed + all_rows - dead_letters,
            rejected: self.base.rejected + left_out + self.dead_letters,
        };
        let manifest = Manifest {
            epoch,
            generation: self.run.lease.generation(),
            lineage: self.run.lease.lineage(),
            fingerprint: self.run.pipeline.fingerprint.to_stored(),
            parallelism: self.run.config.parallelism,
            subtasks: prepared.into_values().map(subtask_checkpoint).collect(),
            sources: snapshots
                .into_values()
                .map(|snapshot| snapshot.position)
                .collect::<Vec<SourcePosition>>(),
            rows_read: counts.read,
            rows_committed: counts.committed,
            rows_rejected: counts.rejected,
            input_ended,
            created_at_micros: (self.run.config.wall_clock)(),
        };
        let history = &self.run.control.history;
        history.prepared(epoch, all_rows, state_bytes(&manifest));
        if self.run.config.mutation.is(Mutant::SkipEmptyEpochs) && all_rows == 0 && !input_ended {
            return Ok(());
        }
        let complete = self.run.lease.complete(&manifest);
        let permit = self
            .run
            .limits
            .within("completing a checkpoint", complete)
            .await?;
        if self.run.config.mutation.is(Mutant::NextCompleteBeforeCommit) {
            self.run.lease.mark_committed(&permit).await?;
        }
        self.run.control.history.durable(epoch);
        self.run.totals.completed(counts);
        self.commit = Some((permit, entries(&manifest)));
        Ok(())
    }

    async fn send_commits(&mut self, epoch: Epoch) -> Result<(), HostError> {
        let still_ours = self.run.lease.still_ours();
        self.run
            .limits
            .within("making sure that no other host has the state", still_ours)
            .await?;
        let skipped = Entries::default();
        let entries = match &self.commit {
            Some((_, entries)) => entries,
            None if self.run.config.mutation.is(Mutant::SkipEmptyEpochs) => &skipped,
            None => return Err(HostError::Internal("a commit without entries".into())),
        };
        for (subtask, commands) in self.commands.iter().enumerate() {
            let command = Command::Commit {
                epoch,
                entries: Arc::clone(entries),
            };
            commands.try_send(command).ok();
            self.run.step(Step::CommitSent(epoch, index(subtask))).await;
        }
        Ok(())
    }

    fn report(&mut self) {
        let read = self.base.read + self.rows_read.load(Ordering::Relaxed);
        self.run.totals.report(read, &self.run.control.progress);
    }

    /// After a failure: healthy subtasks end without publishing, and what does not end soon is dropped.
    async fn interrupt(&mut self) {
        self.interrupted.cancel();
        self.barriers.clear();
        self._inputs.clear();
        self.events.close();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(INTERRUPT_LIMIT, all).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// What is starting may be waiting for a server or a disk; there is nothing to wait for, no row was read.
fn stopped_early(pending: Option<Epoch>) -> Result<(), HostError> {
    match pending {
        None => Ok(()),
        Some(epoch) => Err(HostError::Unconfirmed { epoch }),
    }
}

/// How a task ended, if that ends the attempt.
fn check(joined: Option<Result<TaskResult, JoinError>>) -> Result<(), HostError> {
    match joined {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err((subtask, error)))) => match error {
            TaskError::Sink(error) => Err(HostError::Sink { subtask, error }),
            TaskError::Source(error) => Err(error.into()),
            TaskError::Query(error) => Err(error.into()),
            TaskError::Orphaned => Ok(()),
        },
        // What a panic says may show values.
        Some(Err(error)) if error.is_panic() => Err(HostError::Internal("a task panicked".into())),
        Some(Err(_)) => Err(HostError::Internal("a task was aborted".into())),
    }
}

async fn until(time: Option<Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
    }
}

fn index(subtask: usize) -> SubtaskIndex {
    SubtaskIndex(u32::try_from(subtask).expect("the parallelism is a u32"))
}

fn subtask_checkpoint(prepared: Prepared) -> SubtaskCheckpoint {
    SubtaskCheckpoint {
        state: prepared.state.into(),
        commit: prepared.commit.into(),
        rows: prepared.rows.0 - prepared.dead_letters.0,
    }
}

fn state_bytes(manifest: &Manifest) -> u64 {
    let subtasks = manifest.subtasks.iter();
    subtasks
        .map(|subtask| (subtask.state.len() + subtask.commit.len()) as u64)
        .sum()
}

fn entries(manifest: &Manifest) -> Entries {
    let entry = |(at, subtask): (usize, &SubtaskCheckpoint)| (index(at), Bytes::from(subtask.commit.clone()));
    Arc::new(manifest.subtasks.iter().enumerate().map(entry).collect())
}

/// Every new subtask gets the states of all old ones.
fn restored_state(manifest: &Manifest, replay: bool) -> Restored {
    let state = |(at, subtask): (usize, &SubtaskCheckpoint)| (index(at), Bytes::from(subtask.state.clone()));
    Restored {
        epoch: manifest.epoch,
        states: manifest.subtasks.iter().enumerate().map(state).collect(),
        replay: if replay {
            CommitReplay::Expected
        } else {
            CommitReplay::Confirmed
        },
    }
}
