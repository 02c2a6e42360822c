//! One subtask's protocol where rows go to the table's `_default` stream: at least once, visible as soon as they are acknowledged.
//!
//! ```text
//! rows ──> lanes (append, ack: visible) ──barrier N──> Prepared N, when every row is acknowledged; its commit list is empty
//!                                                          │  the host makes N durable, then says Commit N
//!                                                          ▼
//!                                                    Committed N, without a call
//! ```
//!
//! Nothing is created and nothing is flushed. A request whose answer is lost is sent again, and a crash has the rows since the last
//! checkpoint read again: both may store rows twice, and none is lost. The rule for the driver is that of [`crate::Core`].

mod lane;
mod split;

use std::collections::BTreeMap;

use crate::checkpoint::{BigQuerySinkState, CommitList, Mode, RestoredUnion, StreamState, SubtaskState};
use crate::contract::Stage;
use crate::failures::{cut_unasked, host, not_asked_for};
use crate::ids::{Epoch, Generation, Incarnation, Micros, NextOffset, RowCount, StreamName, SubtaskIndex};
use crate::io::{Command, CoreConfig, Destination, Input, Notice, Replay, RowErrorPolicy};
use crate::ledger::Batch;
use crate::open_stream::{Outcome, Shared};
use crate::owed::Owed;
use crate::rate::AckRate;

use self::lane::Lane;

/// The default streams that a subtask writes to, by their full names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DefaultStreams {
    /// That of the table.
    pub table: StreamName,
    /// That of the dead-letter table; with [`RowErrorPolicy::DeadLetter`], and only then.
    pub dead_letters: Option<StreamName>,
}

/// The protocol of one subtask in one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DefaultStreamCore {
    config: CoreConfig,
    streams: DefaultStreams,
    incarnation: Incarnation,
    shared: Shared,
    /// Those of the table, then that of the dead letters if there is one.
    lanes: Vec<Lane>,
    rate: AckRate,
    owed: Owed,
    restored: Option<RestoredEpoch>,
    /// Rows acknowledged for own checkpoints, up to and including the last committed one.
    prepared: BTreeMap<Epoch, RowCount>,
    last_committed: Option<Epoch>,
    barrier: Option<Epoch>,
    phase: LifePhase,
    /// Something was told: a restore comes before everything else.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LifePhase {
    Running,
    /// End of data: everything is drained.
    Draining,
    Closed,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RestoredEpoch {
    epoch: Epoch,
    commits: BTreeMap<SubtaskIndex, CommitList>,
    replay: Replay,
}

impl DefaultStreamCore {
    /// A core at its start. It opens no connection until rows come.
    ///
    /// # Panics
    /// If the configuration names no stream, no subtask, a subtask beyond the parallelism, or dead letters without their stream.
    #[must_use]
    pub fn new(config: CoreConfig, streams: DefaultStreams) -> Self {
        assert!(config.streams > 0, "a subtask writes on at least one connection");
        assert!(
            config.subtask.0 < config.parallelism,
            "a subtask's index is below the parallelism"
        );
        assert_eq!(
            config.row_errors == RowErrorPolicy::DeadLetter,
            streams.dead_letters.is_some(),
            "dead letters have a stream, and nothing else has"
        );
        let salt = config
            .started_at
            .0
            .wrapping_add(u64::from(config.subtask.0) << 32);
        Self {
            incarnation: Incarnation(config.started_at.0),
            shared: Shared::new(&config, salt),
            lanes: lanes(&config, &streams),
            rate: AckRate::default(),
            owed: Owed::default(),
            restored: None,
            prepared: BTreeMap::new(),
            last_committed: None,
            barrier: None,
            phase: LifePhase::Running,
            begun: false,
            config,
            streams,
        }
    }

    /// As [`crate::Core::handle`].
    pub fn handle(&mut self, now: Micros, input: Input) {
        self.shared.now = self.shared.now.max(now);
        if self.is_over() {
            return;
        }
        if let Err(failure) = self.take(input) {
            self.phase = LifePhase::Failed;
            self.shared.emit(Command::Fail(failure));
            return;
        }
        self.advance();
    }

    /// The next command, in order.
    #[must_use]
    pub fn poll(&mut self) -> Option<Command> {
        self.shared.commands.pop_front()
    }

    /// When [`Input::Tick`] is due at the latest, if nothing else comes.
    #[must_use]
    pub fn next_wake(&self) -> Option<Micros> {
        if self.is_over() {
            return None;
        }
        let lanes = self.lanes.iter();
        lanes.filter_map(|lane| lane.next_wake(&self.config.limits)).min()
    }

    /// Whether another payload may come: the window is bounded in bytes, requests and time (invariant 13).
    #[must_use]
    pub fn has_room(&self) -> bool {
        let limits = &self.config.limits;
        let requests: usize = self.lanes.iter().map(Lane::queued_requests).sum();
        requests < limits.inflight_requests && self.inflight_bytes() < self.rate.window(limits)
    }

    /// Bytes handed over and not acknowledged.
    #[must_use]
    pub fn inflight_bytes(&self) -> u64 {
        self.lanes.iter().map(Lane::queued_bytes).sum()
    }

    /// Whether dead letters are due now: a barrier or the end of data waits for those that are owed.
    #[must_use]
    pub fn wants_dead_letters(&self) -> bool {
        let waits = self.barrier.is_some() || self.phase == LifePhase::Draining;
        waits && !self.owed.is_nothing()
    }

    /// The incarnation this core writes as.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, LifePhase::Failed | LifePhase::Closed)
    }

    fn take(&mut self, input: Input) -> Outcome {
        let begun = std::mem::replace(&mut self.begun, true);
        match input {
            Input::Restored { .. } if begun => Err(host("state was restored after the start")),
            Input::Restored { union, replay } => self.restore(&union, replay),
            Input::Batch {
                destination,
                id,
                rows,
                bytes,
            } => self.batch(destination, Batch { id, rows, bytes }),
            Input::RowsRefused { rows } => {
                self.owed.refused(rows, self.config.row_errors)?;
                self.stage().check_rows()
            }
            Input::RowsRemoved {
                batch,
                rows,
                bytes,
                dead_letters,
            } => {
                let lanes = &mut self.lanes;
                let lane = lanes.iter_mut().find(|lane| lane.is_removing_from(batch));
                let lane = lane.ok_or_else(|| not_asked_for(batch))?;
                lane.rows_removed(batch, rows, bytes, dead_letters, &mut self.shared)?;
                self.owed.add(dead_letters);
                Ok(())
            }
            Input::Barrier { epoch } => self.open_barrier(epoch),
            Input::AppendAcked {
                connection, request, ..
            } => self.on_connection(connection, |lane, shared| lane.acked(request, shared)),
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
            Input::Tick => {
                let mut lanes = self.lanes.iter_mut();
                lanes.try_for_each(|lane| lane.tick(&mut self.shared))
            }
            Input::Commit { epoch, entries } => self.commit(epoch, &entries),
            Input::EndOfData if self.barrier.is_some() => Err(host("end of data came inside a checkpoint")),
            Input::EndOfData => {
                self.phase = LifePhase::Draining;
                Ok(())
            }
            Input::BatchSplit {
                batch,
                rows,
                bytes,
                rest,
                rest_bytes,
            } => {
                let first = Batch {
                    id: batch,
                    rows,
                    bytes,
                };
                let mut lanes = self.lanes.iter_mut();
                let lane = lanes.find(|lane| lane.is_splitting(batch));
                let lane = lane.ok_or_else(|| cut_unasked(batch))?;
                lane.was_split(first, rest, rest_bytes, &mut self.shared)
            }
            Input::StreamCreated { .. }
            | Input::CreateFailed { .. }
            | Input::FlushDone { .. }
            | Input::FlushFailed { .. } => Err(host(
                "a stream was created or flushed, which nothing asks for where rows go to the default stream",
            )),
        }
    }

    /// Does whatever has become possible.
    fn advance(&mut self) {
        if !self.owed.is_nothing() || !self.lanes.iter().all(Lane::is_drained) {
            return;
        }
        if let Some(epoch) = self.barrier.take() {
            self.prepare(epoch);
        }
        if self.phase == LifePhase::Draining {
            self.phase = LifePhase::Closed;
            self.shared.emit(Command::Closed);
        }
    }

    /// Answers go to the lane whose live connection they came on; those of older ones are dropped (invariant 8).
    fn on_connection(
        &mut self,
        connection: Generation,
        act: impl FnOnce(&mut Lane, &mut Shared) -> Outcome,
    ) -> Outcome {
        let before = self.inflight_bytes();
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.is_live(connection)) else {
            self.shared.notice(Notice::StaleAnswerDropped);
            return Ok(());
        };
        act(lane, &mut self.shared)?;
        let after = self.inflight_bytes();
        self.rate
            .note(self.shared.now, before.saturating_sub(after), after);
        Ok(())
    }

    // Rows.

    fn batch(&mut self, destination: Destination, batch: Batch) -> Outcome {
        if batch.rows.0 == 0 {
            return Err(host("a payload without rows was handed over"));
        }
        match destination {
            Destination::Table => self.stage().check_rows()?,
            Destination::DeadLetters => self.owed.pay(batch.rows)?,
        }
        self.rate.began(self.shared.now, self.inflight_bytes());
        let lanes = self.lanes.iter_mut().filter(|lane| lane.takes(destination));
        let lane = lanes.min_by_key(|lane| lane.queued_bytes());
        lane.expect("there is a lane for the table, and one for dead letters where they are owed")
            .push(batch, &mut self.shared);
        Ok(())
    }

    fn stage(&self) -> Stage {
        Stage {
            is_running: self.phase == LifePhase::Running,
            in_barrier: self.barrier.is_some(),
        }
    }

    // Checkpoints.

    fn open_barrier(&mut self, epoch: Epoch) -> Outcome {
        let restored = self.restored.as_ref().map(|restored| restored.epoch);
        let newest = restored.max(self.prepared.last_key_value().map(|(epoch, _)| *epoch));
        self.stage()
            .check_barrier(epoch, newest, self.uncommitted().count())?;
        self.barrier = Some(epoch);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) {
        let rows = self.lanes.iter_mut().map(|lane| lane.take_acked().0).sum();
        let state = SubtaskState {
            checkpoint_id: epoch,
            subtask: self.config.subtask,
            parallelism: self.config.parallelism,
            incarnation: self.incarnation,
            table: self.config.table.clone(),
            streams: vec![StreamState {
                state: BigQuerySinkState {
                    stream: self.streams.table.clone(),
                    next_offset: NextOffset(0),
                    checkpoint_id: epoch,
                },
                last_append_micros: self.shared.now.0,
            }],
            commit: CommitList::default(),
        };
        self.prepared.insert(epoch, RowCount(rows));
        self.shared.emit(Command::Prepared {
            epoch,
            state,
            commit: CommitList::default(),
            rows: RowCount(rows),
        });
    }

    /// Own checkpoints whose commit has not come.
    fn uncommitted(&self) -> impl Iterator<Item = Epoch> {
        let epochs = self.prepared.keys().copied();
        epochs.filter(|epoch| Some(*epoch) > self.last_committed)
    }

    /// Everything is visible already; what remains is that the host keeps its order.
    fn commit(&mut self, epoch: Epoch, entries: &BTreeMap<SubtaskIndex, CommitList>) -> Outcome {
        let rows = match self.prepared.get(&epoch) {
            Some(rows) => {
                self.check_own(epoch, entries)?;
                *rows
            }
            None => {
                self.check_replayed(epoch, entries)?;
                RowCount(0)
            }
        };
        if self.prepared.contains_key(&epoch) {
            self.last_committed = self.last_committed.max(Some(epoch));
            // It stays, since the host may replay it; older ones are behind it for ever.
            self.prepared.retain(|prepared, _| *prepared >= epoch);
        }
        if let Some(restored) = &mut self.restored {
            // This was the replay, or a commit of ours, which comes only after the restored one was confirmed.
            restored.replay = Replay::Confirmed;
        }
        self.shared.emit(Command::Committed { epoch, rows });
        Ok(())
    }

    fn check_own(&self, epoch: Epoch, entries: &BTreeMap<SubtaskIndex, CommitList>) -> Outcome {
        if let Some((subtask, _)) = entries.iter().find(|(_, list)| **list != CommitList::default()) {
            return Err(host(&format!(
                "commit {epoch} names rows of subtask {subtask} that are to be flushed, where rows go to the default stream"
            )));
        }
        if let Some(older) = self.uncommitted().find(|older| *older < epoch) {
            return Err(host(&format!(
                "commit {epoch} came before the commit of checkpoint {older}"
            )));
        }
        match &self.restored {
            Some(restored) if restored.replay == Replay::Expected => Err(host(&format!(
                "commit {epoch} came before the replayed commit of checkpoint {}",
                restored.epoch
            ))),
            _ => Ok(()),
        }
    }

    fn check_replayed(&self, epoch: Epoch, entries: &BTreeMap<SubtaskIndex, CommitList>) -> Outcome {
        match self.restored.as_ref().filter(|restored| restored.epoch == epoch) {
            Some(restored) if restored.commits == *entries => Ok(()),
            Some(_) => Err(host(&format!(
                "the replayed commit {epoch} differs from the restored state's copy; another incarnation wrote one of them"
            ))),
            None => Err(host(&format!(
                "commit {epoch} belongs to no checkpoint this subtask prepared or restored"
            ))),
        }
    }

    fn restore(&mut self, union: &RestoredUnion, replay: Replay) -> Outcome {
        union.check_mode(Mode::AtLeastOnce, replay)?;
        let next = Incarnation(union.newest_incarnation().0.saturating_add(1));
        self.incarnation = self.incarnation.max(next);
        let commits = union.commits();
        self.restored = Some(RestoredEpoch {
            epoch: union.epoch(),
            commits: commits.map(|(subtask, list)| (subtask, list.clone())).collect(),
            replay,
        });
        Ok(())
    }
}

fn lanes(config: &CoreConfig, streams: &DefaultStreams) -> Vec<Lane> {
    let table = std::iter::repeat_n((Destination::Table, &streams.table), config.streams);
    let dead_letters = streams.dead_letters.iter();
    table
        .chain(dead_letters.map(|stream| (Destination::DeadLetters, stream)))
        .enumerate()
        .map(|(index, (destination, stream))| Lane::new(index as u64, destination, stream.clone()))
        .collect()
}
