//! One process of the engine: restores the operators, goes through its steps, keeps the engine's side of the contract.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink::{
    Barrier, CloseReason, CommitReplay, Epoch, Metrics, Mutation, Prepared, Restored, Retry, SinkError,
    SinkOperator, SubtaskIndex, Task,
};
use bigquery_sink_pipeline::SinkFactory as _;
use futures::future::try_join_all;
use tokio::time::sleep;

use super::ledger::Rows;
use super::plan::{Life, PlanClose, PlanStep, ReplayTold};
use super::rows::batch;
use super::store::{Begun, Checkpoint, CheckpointId, Status};
use super::{Engine, Memory};
use crate::point::{EngineStep, Point};
use crate::predicate::Predicate;
use crate::process::Sinks;
use crate::scenario::Incarnation;
use crate::supervisor::Last;
use crate::world::Site;

/// How often an operator is asked whether its own task failed.
const TICK: Duration = Duration::from_secs(1);

/// The operators and where they are.
pub(crate) struct Process {
    site: Arc<Site>,
    engine: Arc<Engine>,
    life: Life,
    parallelism: u32,
    sinks: Sinks,
    operators: Vec<Box<dyn SinkOperator>>,
    generation: u64,
    /// The newest complete checkpoint that this process knows of, and whether its commit is still to come.
    current: Option<CheckpointId>,
    is_pending: bool,
    restored: Option<CheckpointId>,
    next_epoch: Epoch,
    /// How far each key was read.
    given: Vec<u64>,
    /// How far in the current checkpoint.
    base: Vec<u64>,
    /// No checkpoint is taken any more: one came to nothing, or another process has the store.
    is_over: bool,
}

impl Process {
    pub(crate) fn new(
        site: &Arc<Site>,
        engine: &Arc<Engine>,
        incarnation: &Incarnation,
        mutation: Mutation,
    ) -> Self {
        let begin = vec![0; engine.plan.keys as usize];
        Self {
            site: Arc::clone(site),
            life: engine.life(site.index),
            parallelism: incarnation.parallelism,
            sinks: Sinks::new(site, &engine.pipeline, mutation),
            engine: Arc::clone(engine),
            operators: Vec::new(),
            generation: 0,
            current: None,
            is_pending: false,
            restored: None,
            next_epoch: Epoch(1),
            given: begin.clone(),
            base: begin,
            is_over: false,
        }
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        self.sinks.metrics()
    }

    /// Lives until it ends by itself. Dropping the future is the end of everything that the process does.
    pub(crate) async fn run(mut self) -> Last {
        self.live().await.unwrap_or_else(|error| Last::Failed {
            error: error.to_string(),
            restart_may_help: error.retry() == Retry::Restart,
            superseded: false,
        })
    }

    async fn live(&mut self) -> Result<Last, SinkError> {
        self.begin().await?;
        let pace = Duration::from_millis(self.engine.plan.pace_ms);
        for step in std::mem::take(&mut self.life.steps) {
            if let Some(last) = self.step(step).await? {
                return Ok(last);
            }
            self.pause(pace).await?;
        }
        if self.is_pending {
            self.commit(None, 1).await?;
        }
        self.give(None, u64::MAX).await?;
        self.checkpoint(true).await?;
        if self.is_pending {
            self.commit(None, 1).await?;
        }
        self.close(PlanClose::Stop).await
    }

    async fn step(&mut self, step: PlanStep) -> Result<Option<Last>, SinkError> {
        self.site.note(format_args!("{step:?}"));
        match step {
            PlanStep::Rows { key, count } => self.give(key, count).await?,
            PlanStep::Rest => self.give(None, u64::MAX).await?,
            PlanStep::Checkpoint { then_stop } => self.checkpoint(then_stop).await?,
            PlanStep::Prepare { subtasks, stored } => self.unfinished(subtasks, stored).await?,
            PlanStep::Commit { subtasks, times } => self.commit(subtasks, times).await?,
            PlanStep::Wait { ms } => self.pause(Duration::from_millis(ms)).await?,
            PlanStep::Overtaken { held_ms } => self.site.give_way(held_ms),
            PlanStep::Crash { loses_sent } => {
                self.site.kill(loses_sent);
                pending::<()>().await;
            }
            PlanStep::Close { reason } => return self.close(reason).await.map(Some),
        }
        Ok(None)
    }

    async fn at(&self, step: EngineStep, subtask: Option<u32>) {
        self.site.stop_at(Point::Engine(step), subtask).await;
    }

    // Start.

    async fn begin(&mut self) -> Result<(), SinkError> {
        self.site.door.pass().await;
        let restored = self.restore();
        self.at(EngineStep::Restored, None).await;
        for subtask in 0..self.parallelism {
            let sink = &self.engine.pipeline.sink;
            let task = Task {
                subtask: SubtaskIndex(subtask),
                parallelism: self.parallelism,
                started_at_micros: u64::try_from(self.site.world.now_ms()).unwrap_or_default() * 1000,
                operator_name: sink.name.clone(),
                node_id: 1,
            };
            let columns = Arc::clone(&sink.columns);
            let operator = match self.life.replay {
                ReplayTold::Unknown if self.engine.commits => {
                    Box::new(self.sinks.connect(&self.engine.pipeline, task, columns))
                }
                _ => self.sinks.create(task, columns)?,
            };
            self.operators.push(operator);
        }
        let site = &self.site;
        let starts = (0..).zip(&mut self.operators).map(|(subtask, operator)| {
            let restored = restored.clone();
            async move {
                operator.on_start(restored).await?;
                site.stop_at(Point::Engine(EngineStep::Started), Some(subtask))
                    .await;
                Ok::<_, SinkError>(())
            }
        });
        try_join_all(starts).await?;
        Ok(())
    }

    /// Takes over the store, and what it says to go on from.
    fn restore(&mut self) -> Option<Restored> {
        let mut memory = self.engine.memory();
        self.look_back(&memory);
        let Begun {
            generation,
            from,
            adopted,
        } = memory.store.begin(self.life.restore);
        self.generation = generation;
        let id = from?;
        if adopted {
            self.declared(&mut memory, id);
        }
        let checkpoint = memory.store.get(id);
        self.site
            .note(format_args!("goes on from checkpoint {}", checkpoint.epoch));
        self.current = from;
        self.restored = from;
        self.is_pending = checkpoint.status == Status::Complete;
        self.next_epoch = Epoch(checkpoint.epoch.0 + 1);
        self.given.clone_from(&checkpoint.positions);
        self.base.clone_from(&checkpoint.positions);
        Some(Restored {
            epoch: checkpoint.epoch,
            states: checkpoint.states(),
            replay: match self.life.replay {
                ReplayTold::Unknown => CommitReplay::Unknown,
                ReplayTold::Truth if self.is_pending => CommitReplay::Expected,
                ReplayTold::Truth => CommitReplay::Confirmed,
            },
        })
    }

    /// What the processes before left behind.
    fn look_back(&self, memory: &Memory) {
        let Some(newest) = memory.store.newest() else {
            return;
        };
        let checkpoint = memory.store.get(newest);
        let visible = memory.ledger.visible_parts(newest);
        if checkpoint.status == Status::Complete && (1..checkpoint.parts.len()).contains(&visible) {
            self.site.world.saw(Predicate::CommitHeardBySome);
        }
    }

    // Rows.

    /// The next rows of a key, or of each.
    async fn give(&mut self, key: Option<u32>, count: u64) -> Result<(), SinkError> {
        let columns = &self.engine.pipeline.sink.columns;
        let mut batches = vec![Vec::new(); self.operators.len()];
        for (at, given) in (0..).zip(&mut self.given) {
            let end = given.saturating_add(count).min(self.engine.rows);
            if key.is_none_or(|key| key == at) && *given < end {
                batches[(at % self.parallelism) as usize].push(batch(columns, at, *given..end));
                *given = end;
            }
        }
        let feeds = self
            .operators
            .iter_mut()
            .zip(batches)
            .map(|(operator, batches)| async move {
                for batch in batches {
                    operator.process_batch(batch).await?;
                }
                Ok::<_, SinkError>(())
            });
        try_join_all(feeds).await?;
        Ok(())
    }

    /// Rows of a subtask since the current checkpoint.
    fn rows_of(&self, subtask: u32) -> Rows {
        rows_of(subtask, self.parallelism, &self.base, &self.given)
    }

    async fn pause(&mut self, mut rest: Duration) -> Result<(), SinkError> {
        while !rest.is_zero() {
            let turn = rest.min(TICK);
            sleep(turn).await;
            rest -= turn;
            for operator in &mut self.operators {
                operator.handle_tick().await?;
            }
        }
        Ok(())
    }

    // Checkpoints.

    /// Until it is declared complete; never before the commit of the one before is confirmed.
    async fn checkpoint(&mut self, then_stop: bool) -> Result<(), SinkError> {
        if self.is_pending && !self.is_over {
            self.commit(None, 1).await?;
        }
        if self.is_over {
            return Ok(());
        }
        let epoch = self.next_epoch;
        let prepared = self.prepare(self.parallelism, then_stop).await?;
        let id = self.store(prepared).await;
        self.site.door.pass().await;
        let declared = {
            let mut memory = self.engine.memory();
            let declared = memory.store.declare_complete(id, self.generation);
            if declared.is_ok() {
                self.declared(&mut memory, id);
            }
            declared
        };
        if declared.is_err() {
            self.site.note(format_args!("checkpoint {epoch} is refused"));
            self.site.world.saw(Predicate::LateStateRefused);
            self.is_over = true;
            return Ok(());
        }
        self.current = Some(id);
        self.is_pending = true;
        self.next_epoch = Epoch(epoch.0 + 1);
        self.base.clone_from(&self.given);
        self.at(EngineStep::Completed, None).await;
        Ok(())
    }

    /// A checkpoint that some or all subtasks prepare, and that is never declared complete by this process.
    async fn unfinished(&mut self, subtasks: Option<u32>, stored: bool) -> Result<(), SinkError> {
        if self.is_pending && !self.is_over {
            self.commit(None, 1).await?;
        }
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        let subtasks = subtasks.unwrap_or(u32::MAX).min(self.parallelism);
        let prepared = self.prepare(subtasks, false).await?;
        if stored && subtasks == self.parallelism {
            self.store(prepared).await;
        }
        Ok(())
    }

    /// The barrier to the first subtasks, and what they prepare.
    async fn prepare(&mut self, subtasks: u32, then_stop: bool) -> Result<Vec<Prepared>, SinkError> {
        let epoch = self.next_epoch;
        self.at(EngineStep::BarrierSent, None).await;
        let (site, engine, generation) = (&self.site, &self.engine, self.generation);
        let due: Vec<u64> = (0..subtasks)
            .map(|subtask| count(&self.rows_of(subtask)))
            .collect();
        let parts =
            (0..subtasks)
                .zip(&mut self.operators)
                .zip(due)
                .map(|((subtask, operator), due)| async move {
                    let prepared = operator.handle_checkpoint(Barrier { epoch, then_stop }).await?;
                    if prepared.rows.0 != due {
                        site.world.violation(format_args!(
                        "P13: subtask {subtask} prepared {} rows in checkpoint {epoch} and was given {due}",
                        prepared.rows
                    ));
                    }
                    site.world.prepared(site, &prepared.state, &prepared.commit);
                    engine.memory().store.attempted(epoch, generation);
                    site.stop_at(Point::Engine(EngineStep::Prepared), Some(subtask))
                        .await;
                    Ok::<_, SinkError>(prepared)
                });
        try_join_all(parts).await
    }

    async fn store(&mut self, prepared: Vec<Prepared>) -> CheckpointId {
        self.site.door.pass().await;
        let id = self.engine.memory().store.store(Checkpoint {
            epoch: self.next_epoch,
            generation: self.generation,
            parent: self.current,
            parts: (0..).map(SubtaskIndex).zip(prepared).collect(),
            positions: self.given.clone(),
            status: Status::Stored,
        });
        self.at(EngineStep::Stored, None).await;
        id
    }

    /// Tells those who see everything.
    fn declared(&self, memory: &mut Memory, id: CheckpointId) {
        let Memory { store, ledger } = memory;
        let checkpoint = store.get(id);
        if store.was_attempted_before(checkpoint) {
            self.site.world.saw(Predicate::EpochReused);
        }
        let begin = vec![0; self.given.len()];
        let from = checkpoint
            .parent
            .map_or(&begin, |parent| &store.get(parent).positions);
        let parallelism = checkpoint.parallelism();
        for subtask in 0..parallelism {
            let rows = rows_of(subtask, parallelism, from, &checkpoint.positions);
            ledger.complete(id, subtask, checkpoint.generation, rows);
        }
        let parts = checkpoint.parts.values();
        self.site.world.declared(
            checkpoint.epoch.0,
            parts.map(|part| (&part.state[..], &part.commit[..])),
        );
    }

    // Commits.

    /// The commit of the current checkpoint to the first subtasks; to all of them it is confirmed then.
    async fn commit(&mut self, subtasks: Option<u32>, times: u32) -> Result<(), SinkError> {
        let Some(id) = self.current else {
            return Ok(());
        };
        let checkpoint = self.engine.memory().store.get(id).clone();
        if self.is_pending && self.given != self.base {
            self.site.world.saw(Predicate::CommitAfterNextRows);
        }
        let heard = subtasks.unwrap_or(u32::MAX).min(self.parallelism);
        for _ in 0..times {
            self.at(EngineStep::CommitSent, None).await;
            self.commit_once(id, &checkpoint, heard).await?;
        }
        if heard < self.parallelism {
            return Ok(());
        }
        self.site.door.pass().await;
        let confirmed = self.engine.memory().store.confirm(id, self.generation);
        if confirmed.is_err() {
            self.is_over = true;
            return Ok(());
        }
        self.is_pending = false;
        let entries = checkpoint.entries();
        self.site
            .world
            .confirmed(entries.values().map(|entry| &entry[..]));
        self.at(EngineStep::Confirmed, None).await;
        Ok(())
    }

    async fn commit_once(
        &mut self,
        id: CheckpointId,
        checkpoint: &Checkpoint,
        heard: u32,
    ) -> Result<(), SinkError> {
        let (site, engine, parallelism) = (&self.site, &self.engine, self.parallelism);
        let (epoch, entries) = (checkpoint.epoch, &checkpoint.entries());
        let commits = (0..heard)
            .zip(&mut self.operators)
            .map(|(subtask, operator)| async move {
                let committed = operator.handle_commit(epoch, entries).await?;
                let share = |(old, _): &(&SubtaskIndex, &Prepared)| old.0 % parallelism == subtask;
                let due: u64 = checkpoint
                    .parts
                    .iter()
                    .filter(share)
                    .map(|(_, part)| part.rows.0)
                    .sum();
                if committed.rows.0 != due {
                    site.world.violation(format_args!(
                        "P13: subtask {subtask} committed {} rows of checkpoint {epoch} and {due} were its share",
                        committed.rows
                    ));
                }
                engine.share_is_visible(id, subtask, parallelism);
                site.stop_at(Point::Engine(EngineStep::Committed), Some(subtask))
                    .await;
                Ok::<_, SinkError>(())
            });
        try_join_all(commits).await?;
        Ok(())
    }

    // End.

    async fn close(&mut self, reason: PlanClose) -> Result<Last, SinkError> {
        let ends = reason == PlanClose::EndOfData;
        if ends {
            self.give(None, u64::MAX).await?;
            if self.is_pending && self.current == self.restored {
                self.site.world.saw(Predicate::EndBeforeReplay);
            }
            for subtask in 0..self.parallelism {
                let (process, rows) = (self.site.index, self.rows_of(subtask));
                self.site.world.end_begins(process, subtask, rows.clone());
                self.engine
                    .memory()
                    .ledger
                    .end_begins(self.generation, subtask, rows);
            }
        }
        self.at(EngineStep::Closing, None).await;
        let (site, engine, parallelism) = (&self.site, &self.engine, self.parallelism);
        let (generation, pending) = (self.generation, self.current.filter(|_| self.is_pending));
        let closes = (0..)
            .zip(&mut self.operators)
            .map(|(subtask, operator)| async move {
                operator.on_close(CloseReason::from(reason)).await?;
                if ends {
                    site.world.end_is_over(site.index, subtask);
                    engine.memory().ledger.end_is_visible(generation, subtask);
                    if let Some(id) = pending {
                        engine.share_is_visible(id, subtask, parallelism);
                    }
                }
                site.stop_at(Point::Engine(EngineStep::Closed), Some(subtask))
                    .await;
                Ok::<_, SinkError>(())
            });
        try_join_all(closes).await?;
        let read = self.base.iter().all(|base| *base == self.engine.rows);
        let said = format!("closed, {reason:?}");
        Ok(if ends || read && !self.is_pending {
            Last::Finished(said)
        } else {
            Last::Stopped(said)
        })
    }
}

impl Engine {
    /// What a subtask flushes of a checkpoint is visible now.
    fn share_is_visible(&self, id: CheckpointId, subtask: u32, parallelism: u32) {
        let mut memory = self.memory();
        let old = memory.store.get(id).parallelism();
        for part in (0..old).filter(|old| old % parallelism == subtask) {
            memory.ledger.committed(id, part);
        }
    }
}

fn rows_of(subtask: u32, parallelism: u32, from: &[u64], to: &[u64]) -> Rows {
    (0..)
        .zip(from.iter().zip(to))
        .filter(|(key, _)| key % parallelism == subtask)
        .map(|(key, (from, to))| (key, *from..*to))
        .collect()
}

fn count(rows: &Rows) -> u64 {
    rows.values().map(|rows| rows.end - rows.start).sum()
}
