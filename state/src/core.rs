//! One subtask's protocol: barrier, commit, restore and end of data over its lanes.
//!
//! ```text
//! rows ──> lanes (offset, append, ack) ──barrier N──> Prepared N: state + commit list
//!                                                          │  the host makes N durable, then says Commit N
//!                                                          ▼
//!                                        flushes, each with a budget ──> Committed N
//! ```
//!
//! Rule for the driver: after each [`Core::handle`], take every command with [`Core::poll`], then wait until
//! [`Core::next_wake`] at most. Time is told and never goes back.

mod dead_letters;

use std::collections::BTreeMap;

use crate::checkpoint::{
    BigQueryCommitInfo, BigQuerySinkState, CommitList, Mode, RestoredUnion, StreamState, SubtaskState,
};
use crate::commit::CommitRun;
use crate::contract::Stage;
use crate::failures::{cut_unasked, host};
use crate::ids::{
    BatchId, Epoch, Generation, Incarnation, Lane as LaneId, Micros, NextOffset, StreamName, SubtaskIndex,
};
use crate::io::{Command, CoreConfig, Destination, Failure, Input, Notice, Replay, RowErrorPolicy};
use crate::lane::{Lane, Snapshot};
use crate::ledger::Batch;
use crate::mutant::Mutant;
use crate::open_stream::Shared;
use crate::owed::Owed;
use crate::rate::AckRate;

/// The protocol of one subtask in one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    config: CoreConfig,
    incarnation: Incarnation,
    shared: Shared,
    /// Those of the table, then that of the dead letters if there is one.
    lanes: Vec<Lane>,
    rate: AckRate,
    dead_letters_owed: Owed,
    restored: Option<RestoredEpoch>,
    /// Commit lists of own epochs, up to and including the last committed one.
    prepared: BTreeMap<Epoch, CommitList>,
    last_epoch: Option<Epoch>,
    last_committed: Option<Epoch>,
    barrier: Option<Epoch>,
    run: Option<CommitRun>,
    next_flush: u64,
    phase: LifePhase,
    /// Something was told: a restore comes before everything else.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LifePhase {
    Running,
    /// End of data: everything is drained, then flushed.
    Draining,
    Flushing,
    Closed,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RestoredEpoch {
    epoch: Epoch,
    commits: BTreeMap<SubtaskIndex, CommitList>,
    replay: Replay,
}

impl Core {
    /// A core at its start. It holds no stream until rows come.
    ///
    /// # Panics
    /// If the configuration names no stream, no subtask, or a subtask beyond the parallelism.
    #[must_use]
    pub fn new(config: CoreConfig) -> Self {
        assert!(config.streams > 0, "a subtask writes at least one stream");
        assert!(
            config.subtask.0 < config.parallelism,
            "a subtask's index is below the parallelism"
        );
        let salt = config
            .started_at
            .0
            .wrapping_add(u64::from(config.subtask.0) << 32);
        Self {
            incarnation: Incarnation(config.started_at.0),
            shared: Shared::new(&config, salt),
            lanes: lanes(&config),
            rate: AckRate::default(),
            dead_letters_owed: Owed::default(),
            restored: None,
            prepared: BTreeMap::new(),
            last_epoch: None,
            last_committed: None,
            barrier: None,
            run: None,
            next_flush: 0,
            phase: LifePhase::Running,
            begun: false,
            config,
        }
    }

    /// Takes what happened at a time. Afterwards the commands are to be taken with [`Self::poll`].
    pub fn handle(&mut self, now: Micros, input: Input) {
        self.shared.now = self.shared.now.max(now);
        if matches!(self.phase, LifePhase::Failed | LifePhase::Closed) {
            return;
        }
        if let Err(failure) = self.take(input).and_then(|()| self.advance()) {
            self.phase = LifePhase::Failed;
            self.shared.emit(Command::Fail(failure));
        }
    }

    /// The next command, in order.
    #[must_use]
    pub fn poll(&mut self) -> Option<Command> {
        self.shared.commands.pop_front()
    }

    /// When [`Input::Tick`] is due at the latest, if nothing else comes.
    #[must_use]
    pub fn next_wake(&self) -> Option<Micros> {
        if matches!(self.phase, LifePhase::Failed | LifePhase::Closed) {
            return None;
        }
        let lanes = self
            .lanes
            .iter()
            .filter_map(|lane| lane.next_wake(&self.config.limits));
        lanes
            .chain(self.run.as_ref().and_then(CommitRun::next_wake))
            .min()
    }

    /// Whether another payload may come: the window is bounded in bytes, requests and time (invariant 13).
    #[must_use]
    pub fn has_room(&self) -> bool {
        let limits = &self.config.limits;
        let bytes: u64 = self.lanes.iter().map(Lane::queued_bytes).sum();
        let requests: usize = self.lanes.iter().map(Lane::queued_requests).sum();
        requests < limits.inflight_requests && bytes < self.rate.window(limits)
    }

    /// Bytes handed over and not acknowledged.
    #[must_use]
    pub fn inflight_bytes(&self) -> u64 {
        self.lanes.iter().map(Lane::queued_bytes).sum()
    }

    /// The incarnation this core writes as.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn take(&mut self, input: Input) -> Result<(), Failure> {
        let begun = std::mem::replace(&mut self.begun, true);
        match input {
            Input::Restored { .. } if begun => Err(host("state was restored after the start")),
            Input::Restored { union, replay } => {
                union.check_mode(Mode::ExactlyOnce, replay)?;
                self.restore(&union, replay);
                Ok(())
            }
            Input::Batch {
                destination,
                id,
                rows,
                bytes,
            } => self.batch(destination, Batch { id, rows, bytes }),
            Input::RowsRefused { rows } => self.rows_refused(rows),
            Input::RowsRemoved {
                batch,
                rows,
                bytes,
                dead_letters,
            } => self.rows_removed(batch, rows, bytes, dead_letters),
            Input::BatchSplit {
                batch,
                rows,
                bytes,
                rest,
                rest_bytes,
            } => self.batch_split(
                Batch {
                    id: batch,
                    rows,
                    bytes,
                },
                rest,
                rest_bytes,
            ),
            Input::Barrier { epoch } => self.open_barrier(epoch),
            Input::StreamCreated { lane, stream } => {
                self.lanes[lane.0].created(stream, &mut self.shared);
                Ok(())
            }
            Input::CreateFailed { lane, fault } => self.lanes[lane.0].create_failed(&fault, &mut self.shared),
            Input::AppendAcked {
                connection,
                request,
                offset,
            } => {
                if self.config.mutation.is(Mutant::CountLateAckAfterLeaving) {
                    self.lanes.iter_mut().for_each(|lane| lane.late_ack(request));
                }
                self.on_connection(connection, |lane, shared| lane.acked(request, offset, shared))
            }
            Input::AppendFailed {
                connection,
                request,
                fault,
            } => self.on_connection(connection, |lane, shared| {
                lane.append_failed(request, &fault, shared)
            }),
            Input::ConnectionLost { connection, fault } => {
                self.on_connection(connection, |lane, shared| lane.connection_lost(&fault, shared))
            }
            Input::Tick => self
                .lanes
                .iter_mut()
                .try_for_each(|lane| lane.tick(&mut self.shared)),
            Input::Commit { epoch, entries } => self.commit(epoch, &entries),
            Input::FlushDone { flush, offset } => {
                let Some(run) = &mut self.run else { return Ok(()) };
                let visible = run.answered(flush, offset, &mut self.shared)?;
                self.note_visible(visible);
                Ok(())
            }
            Input::FlushFailed { flush, fault } => {
                let Some(run) = &mut self.run else { return Ok(()) };
                let visible = run.failed(flush, &fault, &mut self.shared)?;
                self.note_visible(visible);
                Ok(())
            }
            Input::EndOfData => {
                if self.barrier.is_some() || self.run.is_some() {
                    return Err(host("end of data came inside a checkpoint or a commit"));
                }
                self.phase = LifePhase::Draining;
                Ok(())
            }
        }
    }

    /// Does whatever has become possible.
    fn advance(&mut self) -> Result<(), Failure> {
        let drained = self.lanes.iter().all(Lane::is_drained) && self.owes_no_dead_letters();
        if drained && let Some(epoch) = self.barrier.take() {
            self.prepare(epoch);
        }
        if drained && self.run.is_none() && self.phase == LifePhase::Draining {
            self.flush_everything();
        }
        if let Some(run) = &mut self.run
            && run.advance(&mut self.next_flush, &mut self.shared)
        {
            self.finish_run();
        }
        Ok(())
    }

    /// Answers go to the lane whose live connection they came on; those of older ones are dropped (invariant 8).
    fn on_connection(
        &mut self,
        connection: Generation,
        act: impl FnOnce(&mut Lane, &mut Shared) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let before = self.inflight_bytes();
        let any = self.config.mutation.is(Mutant::NoGenerationCheck);
        let mut lanes = self.lanes.iter_mut();
        let Some(lane) = lanes.find(|lane| lane.is_live(connection) || any && lane.has_connection()) else {
            self.shared.notice(Notice::StaleAnswerDropped);
            return Ok(());
        };
        if self.phase == LifePhase::Flushing {
            // Every row is acknowledged and none follows: how the call ends says nothing that the flushes do not say better, and a restart
            // would repeat what other subtasks have published already.
            return Ok(());
        }
        act(lane, &mut self.shared)?;
        let after = self.inflight_bytes();
        self.rate
            .note(self.shared.now, before.saturating_sub(after), after);
        Ok(())
    }

    // Rows.

    fn batch(&mut self, destination: Destination, batch: Batch) -> Result<(), Failure> {
        if batch.rows.0 == 0 {
            return Err(host("a payload without rows was handed over"));
        }
        match destination {
            Destination::Table => self.stage().check_rows()?,
            Destination::DeadLetters => self.dead_letters_owed.pay(batch.rows)?,
        }
        self.rate.began(self.shared.now, self.inflight_bytes());
        let lanes = self.lanes.iter_mut().filter(|lane| lane.takes(destination));
        let lane = lanes.min_by_key(|lane| lane.queued_bytes());
        lane.expect("there is a lane for the table, and one for dead letters where they are owed")
            .push(batch, &mut self.shared);
        Ok(())
    }

    fn batch_split(&mut self, first: Batch, rest: BatchId, rest_bytes: u64) -> Result<(), Failure> {
        let mut lanes = self.lanes.iter_mut();
        let Some(lane) = lanes.find(|lane| lane.is_splitting(first.id)) else {
            return Err(cut_unasked(first.id));
        };
        lane.was_split(first, rest, rest_bytes, &mut self.shared)
    }

    fn stage(&self) -> Stage {
        Stage {
            is_running: self.phase == LifePhase::Running,
            in_barrier: self.barrier.is_some(),
        }
    }

    // Checkpoints.

    fn open_barrier(&mut self, epoch: Epoch) -> Result<(), Failure> {
        let newest = self
            .last_epoch
            .max(self.restored.as_ref().map(|restored| restored.epoch));
        self.stage()
            .check_barrier(epoch, newest, self.uncommitted().count())?;
        self.barrier = Some(epoch);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) {
        let snapshots: Vec<Snapshot> = self
            .lanes
            .iter_mut()
            .flat_map(|lane| lane.snapshot(&self.shared))
            .collect();
        let commit = commit_list(&snapshots);
        let state = SubtaskState {
            checkpoint_id: epoch,
            subtask: self.config.subtask,
            parallelism: self.config.parallelism,
            incarnation: self.incarnation,
            table: self.config.table.clone(),
            streams: snapshots
                .into_iter()
                .map(|snapshot| StreamState {
                    state: BigQuerySinkState {
                        stream: snapshot.stream,
                        next_offset: snapshot.next_offset,
                        checkpoint_id: epoch,
                    },
                    last_append_micros: snapshot.last_append.0,
                })
                .collect(),
            commit: commit.clone(),
        };
        self.last_epoch = Some(epoch);
        self.prepared.insert(epoch, commit.clone());
        if self.config.mutation.is(Mutant::FlushAtBarrier) {
            let mut run = CommitRun::new(None, vec![commit.0.clone()]);
            run.advance(&mut self.next_flush, &mut self.shared);
        }
        self.shared.emit(Command::Prepared {
            epoch,
            state,
            rows: commit.rows(),
            commit,
        });
    }

    // Commits.

    fn commit(&mut self, epoch: Epoch, entries: &BTreeMap<SubtaskIndex, CommitList>) -> Result<(), Failure> {
        if self.run.is_some() {
            return Err(host(&format!(
                "commit {epoch} came while another one is under way"
            )));
        }
        let flushes = self.flushes_of(epoch, entries)?;
        self.run = Some(CommitRun::new(Some(epoch), vec![flushes]));
        Ok(())
    }

    /// Nothing is flushed that is not what a checkpoint of ours, or the restored one, says (invariants 1 and 10).
    fn flushes_of(
        &self,
        epoch: Epoch,
        entries: &BTreeMap<SubtaskIndex, CommitList>,
    ) -> Result<Vec<BigQueryCommitInfo>, Failure> {
        let Some(own) = self.prepared.get(&epoch) else {
            return self.replayed(epoch, entries);
        };
        let subtask = self.config.subtask;
        if entries.get(&subtask).is_none_or(|entry| entry != own) {
            return Err(host(&format!(
                "commit {epoch} names other rows for subtask {subtask} than it prepared; another incarnation wrote one of them"
            )));
        }
        if let Some((older, _)) = self.uncommitted().find(|(older, _)| **older < epoch) {
            return Err(host(&format!(
                "commit {epoch} came before the commit of checkpoint {older}"
            )));
        }
        match &self.restored {
            Some(restored) if restored.replay == Replay::Expected => Err(host(&format!(
                "commit {epoch} came before the replayed commit of checkpoint {}",
                restored.epoch
            ))),
            _ => Ok(own.0.clone()),
        }
    }

    /// The restored checkpoint's commit: old entry `i` is flushed by subtask `i % parallelism`.
    fn replayed(
        &self,
        epoch: Epoch,
        entries: &BTreeMap<SubtaskIndex, CommitList>,
    ) -> Result<Vec<BigQueryCommitInfo>, Failure> {
        match &self.restored {
            Some(restored) if restored.epoch == epoch && restored.commits == *entries => {
                Ok(self.share_of(restored))
            }
            Some(restored) if restored.epoch == epoch => Err(host(&format!(
                "the replayed commit {epoch} differs from the restored state's copy for {}; another incarnation wrote one of them",
                differing(&restored.commits, entries)
            ))),
            _ => Err(host(&format!(
                "commit {epoch} belongs to no checkpoint this subtask prepared or restored"
            ))),
        }
    }

    fn share_of(&self, restored: &RestoredEpoch) -> Vec<BigQueryCommitInfo> {
        let (subtask, parallelism) = (self.config.subtask.0, self.config.parallelism);
        let ours = restored
            .commits
            .iter()
            .filter(|(old, _)| old.0 % parallelism == subtask)
            .filter(|(old, _)| self.takes_entry_of(**old));
        ours.flat_map(|(_, list)| list.0.iter().cloned()).collect()
    }

    /// Every one, but for a mistake that is made on purpose.
    fn takes_entry_of(&self, old: SubtaskIndex) -> bool {
        old == self.config.subtask || !self.config.mutation.is(Mutant::CommitOnlyOwnEntries)
    }

    /// Own checkpoints whose commit has not come.
    fn uncommitted(&self) -> impl Iterator<Item = (&Epoch, &CommitList)> {
        self.prepared
            .iter()
            .filter(|(epoch, _)| Some(**epoch) > self.last_committed)
    }

    fn note_visible(&mut self, visible: Option<(StreamName, NextOffset)>) {
        if let Some((stream, end)) = visible {
            for lane in &mut self.lanes {
                lane.flushed(&stream, end);
            }
        }
    }

    fn finish_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let Some(epoch) = run.epoch else {
            self.phase = LifePhase::Closed;
            self.shared.emit(Command::Closed);
            return;
        };
        if self.prepared.contains_key(&epoch) {
            self.last_committed = self.last_committed.max(Some(epoch));
            // Its list stays, since the host may replay it; older ones are behind it for ever.
            self.prepared.retain(|prepared, _| *prepared >= epoch);
        }
        if let Some(restored) = &mut self.restored {
            // This was the replay, or a commit of ours, which comes only after the restored one was confirmed.
            restored.replay = Replay::Confirmed;
        }
        self.shared.emit(Command::Committed {
            epoch,
            rows: run.rows(),
        });
    }

    // Restore and end.

    fn restore(&mut self, union: &RestoredUnion, replay: Replay) {
        // The old streams are never appended to again (invariant 2): nothing of them enters the lanes.
        let next = Incarnation(union.newest_incarnation().0.saturating_add(1));
        self.incarnation = self.incarnation.max(next);
        let commits = union
            .commits()
            .map(|(subtask, list)| (subtask, list.clone()))
            .collect();
        self.restored = Some(RestoredEpoch {
            epoch: union.epoch(),
            commits,
            replay,
        });
        if self.config.mutation.is(Mutant::GoOnWithRestoredStream) {
            let subtask = self.config.subtask.0;
            let old = union.states().filter(|state| state.subtask.0 == subtask);
            for (lane, stream) in self
                .lanes
                .iter_mut()
                .zip(old.flat_map(|state| state.streams.iter().rev()))
            {
                lane.adopt(&stream.state, &self.shared);
            }
        }
    }

    /// The named exception of invariant 1: the restored list if its replay has not come, own prepared epochs, the tail.
    fn flush_everything(&mut self) {
        let mut stages = Vec::new();
        if let Some(restored) = self
            .restored
            .as_ref()
            .filter(|restored| restored.replay != Replay::Confirmed)
            .filter(|_| !self.config.mutation.is(Mutant::ForgetRestoredListAtEnd))
        {
            stages.push(self.share_of(restored));
        }
        stages.extend(self.uncommitted().map(|(_, list)| list.0.clone()));
        let snapshots: Vec<Snapshot> = self
            .lanes
            .iter_mut()
            .flat_map(|lane| lane.snapshot(&self.shared))
            .collect();
        stages.push(commit_list(&snapshots).0);
        self.phase = LifePhase::Flushing;
        self.run = Some(CommitRun::new(None, stages));
    }
}

fn lanes(config: &CoreConfig) -> Vec<Lane> {
    let table = std::iter::repeat_n(Destination::Table, config.streams);
    let dead_letters = (config.row_errors == RowErrorPolicy::DeadLetter).then_some(Destination::DeadLetters);
    table
        .chain(dead_letters)
        .enumerate()
        .map(|(index, destination)| Lane::new(LaneId(index), destination))
        .collect()
}

/// Only streams with new rows (invariant 12).
fn commit_list(snapshots: &[Snapshot]) -> CommitList {
    let new = snapshots
        .iter()
        .filter(|snapshot| snapshot.next_offset > snapshot.from);
    CommitList(
        new.filter_map(|snapshot| {
            Some(BigQueryCommitInfo {
                stream: snapshot.stream.clone(),
                from_offset: snapshot.from,
                flush_offset: snapshot.next_offset.flush_offset()?,
            })
        })
        .collect(),
    )
}

fn differing(
    ours: &BTreeMap<SubtaskIndex, CommitList>,
    theirs: &BTreeMap<SubtaskIndex, CommitList>,
) -> String {
    let keys: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let names: Vec<String> = keys
        .into_iter()
        .filter(|key| ours.get(key) != theirs.get(key))
        .map(|key| format!("subtask {key}"))
        .collect();
    names.join(", ")
}
