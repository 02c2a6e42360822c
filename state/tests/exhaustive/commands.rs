//! The core is told something; its commands are carried out and checked.

use bigquery_sink_state::{
    BatchId, Code, Command, CommitList, Destination, Epoch, FailureKind, Generation, Input, NextOffset,
    Notice, RequestNumber, RowFault, StreamName, SubtaskIndex, SubtaskState,
};

use crate::scope::{Ending, Scope};
use crate::server::{FOREIGN, Stream};
use crate::world::{Case, Checkpoint, Connection, Flush, Orphan, Phase, Request, Subtask, World};

impl World {
    /// Tells a core something, and does what it says.
    pub(crate) fn tell(&mut self, scope: &Scope, life: usize, who: usize, input: Input) {
        let number = self.lives[life].number;
        self.note(|| format!("    life {number} subtask {who} <- {input:?}"));
        let mut subtask = self.lives[life].subtasks[who].take();
        let told = Told::of(&input);
        subtask.core.handle(subtask.clock, input);
        while let Some(command) = subtask.core.poll() {
            self.note(|| format!("    life {number} subtask {who} -> {command:?}"));
            Carrier {
                scope,
                world: self,
                life,
                number,
                who,
                told,
                subtask: &mut subtask,
            }
            .carry_out(command);
        }
        self.lives[life].subtasks[who].put(subtask);
    }

    /// Invariant 8: what comes from an older connection changes nothing.
    pub(crate) fn tell_late(&mut self, life: usize, who: usize) {
        let mut subtask = self.lives[life].subtasks[who].take();
        let (connection, answer) = subtask.late.pop_front().unwrap();
        let number = self.lives[life].number;
        self.note(|| format!("    life {number} subtask {who} <- late, of {connection:?}: {answer:?}"));
        let before = subtask.core.clone();
        subtask.core.handle(subtask.clock, answer.input(connection));
        self.meet(Case::StaleAnswerDropped);
        let commands: Vec<Command> = std::iter::from_fn(|| subtask.core.poll()).collect();
        let dropped = commands == [Command::Notice(Notice::StaleAnswerDropped)];
        let over = commands.is_empty() && (subtask.closed || subtask.failed.is_some());
        assert!(
            (dropped || over) && subtask.core == before,
            "invariant 8: an answer of an older connection changed something; it led to {commands:?}"
        );
        self.lives[life].subtasks[who].put(subtask);
    }
}

/// What a core was told, as far as a check must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Acked,
    AlreadyExists,
    OutOfRange,
    /// Another end of an append call.
    End,
    Other,
}

impl Told {
    fn of(input: &Input) -> Self {
        match input {
            Input::AppendAcked { .. } => Self::Acked,
            Input::AppendFailed { fault, .. } | Input::ConnectionLost { fault, .. } => match fault.code {
                Code::AlreadyExists => Self::AlreadyExists,
                Code::OutOfRange => Self::OutOfRange,
                _ => Self::End,
            },
            _ => Self::Other,
        }
    }
}

struct Carrier<'a> {
    scope: &'a Scope,
    world: &'a mut World,
    life: usize,
    number: u8,
    who: usize,
    told: Told,
    subtask: &'a mut Subtask,
}

impl Carrier<'_> {
    /// Every command there is. None finalizes a stream (invariant 9).
    fn carry_out(&mut self, command: Command) {
        match command {
            Command::CreateStream { lane, destination } => self.subtask.creating.push((lane, destination)),
            Command::Connect { connection, stream } => {
                self.check_writer(&stream);
                self.subtask.connections.push(Connection {
                    generation: connection,
                    stream,
                    requests: Default::default(),
                    answers: Default::default(),
                });
            }
            Command::Disconnect { connection } => {
                let open = &self.subtask.connections;
                let index = open.iter().position(|open| open.generation == connection);
                let index = index.expect("invariant 8: a connection is ended that is not live");
                drop_connection(self.world, self.subtask, index);
            }
            Command::Append {
                connection,
                request,
                offset,
                batch,
            } => {
                let offset = offset.expect("a stream of one's own takes offsets");
                self.append(connection, request, offset, batch);
            }
            Command::Release { batch } => self.release(batch),
            Command::RemoveRows { batch, rows } => self.remove_rows(batch, &rows),
            Command::Split { .. } => unreachable!("no request is too large here"),
            Command::Prepared {
                epoch, state, commit, ..
            } => self.prepared(epoch, state, commit),
            Command::Flush {
                flush,
                stream,
                offset,
            } => {
                self.world.check_covered(self.life, &stream, offset.0);
                let flush = Flush {
                    id: flush,
                    stream,
                    offset: offset.0,
                };
                self.subtask.flushes.push(flush);
            }
            Command::Committed { epoch, .. } => self.committed(epoch),
            Command::Closed => {
                assert_eq!(
                    self.scope.ending,
                    Ending::EndOfData,
                    "only the end of data closes a core"
                );
                self.subtask.closed = true;
            }
            Command::RefreshCredentials => unreachable!("no token is refused here"),
            Command::Notice(notice) => self.notice(notice),
            Command::Fail(failure) => {
                assert!(
                    matches!(failure.kind, FailureKind::Restart | FailureKind::Unprovable),
                    "a job that does nothing wrong fails: {failure}"
                );
                let ending = self.world.lives[self.life].host.phase == Phase::Ending;
                let owes = !self.subtask.payloads.is_empty() || !self.subtask.dead_letters.is_empty();
                assert!(
                    !ending || owes || self.told != Told::End,
                    "invariant 1: at the end of data every row is acknowledged, and the end of an append call fails the job"
                );
                self.subtask.failed = Some(failure.kind);
            }
        }
    }

    fn append(&mut self, connection: Generation, number: RequestNumber, offset: NextOffset, batch: BatchId) {
        let payload = self.subtask.payloads.get_mut(&batch);
        let payload = payload.expect("invariant 4: a payload that was released is sent again");
        let mut connections = self.subtask.connections.iter_mut();
        let open = connections.find(|open| open.generation == connection);
        let open = open.expect("invariant 8: a request goes out on a connection that is not live");
        let (rows, stream) = (payload.rows.clone(), open.stream.clone());
        assert!(!rows.is_empty(), "a request without rows is sent");
        assert!(
            self.subtask
                .removing
                .as_ref()
                .is_none_or(|(removing, _)| *removing != batch),
            "a request is sent before its bad rows are taken out"
        );
        payload.place = Some((stream.clone(), offset));
        open.requests.push_back(Request {
            number,
            offset,
            rows: rows.clone(),
        });
        self.check_writer(&stream);
        let from = usize::try_from(offset.0).unwrap();
        self.world.server.edit(|server| {
            let promised = &mut server.streams.get_mut(&stream).unwrap().promised;
            assert!(
                from <= promised.len(),
                "invariant 3: rows go out at offset {from} of {stream} with a gap before them"
            );
            for (index, row) in rows.iter().enumerate() {
                match promised.get(from + index) {
                    Some(before) => assert_eq!(
                        before,
                        row,
                        "invariant 4: offset {} of {stream} is given to another row",
                        from + index
                    ),
                    None => promised.push(*row),
                }
            }
        });
    }

    /// Invariants 2 and 7: only its creator writes a stream, and only until it leaves it.
    fn check_writer(&self, stream: &StreamName) {
        let creator = self.world.server.streams[stream].creator;
        assert_eq!(
            creator,
            (self.number, self.who),
            "invariant 2: {stream} is written by another one than its creator"
        );
        assert!(
            !self.subtask.left.contains_key(stream),
            "invariant 7: {stream} was left and is written again"
        );
    }

    /// Only bad rows are taken out. Where they stood, others may stand from now on: invariant 4 says when.
    fn remove_rows(&mut self, batch: BatchId, named: &[RowFault]) {
        let payload = &self.subtask.payloads[&batch];
        let indexes: Vec<u64> = named.iter().map(|row| row.index).collect();
        for index in &indexes {
            let row = payload.rows[usize::try_from(*index).unwrap()];
            assert!(self.scope.bad.contains(&row), "the good row {row} is taken out");
        }
        let (stream, offset) = payload
            .place
            .clone()
            .expect("a request is refused that never went out");
        if self.subtask.left.contains_key(&stream) {
            self.world.meet(Case::StreamLeftAtRowError);
        } else {
            self.rows_move_up(&stream, usize::try_from(offset.0).unwrap(), payload.rows.len());
        }
        let before = self.subtask.removing.replace((batch, indexes));
        assert_eq!(before, None, "one request at a time has rows taken out");
    }

    /// Invariant 4: every request from an offset on was answered and none is stored or on its way; then the offsets can be given anew.
    fn rows_move_up(&mut self, stream: &StreamName, from: usize, rows: usize) {
        let mut connections = self.subtask.connections.iter();
        let answered = connections
            .all(|open| open.stream != *stream || open.requests.is_empty() && open.answers.is_empty());
        let landing = |orphan: &Orphan| match orphan {
            Orphan::Appends(other, requests) if other == stream => requests
                .iter()
                .any(|(offset, rows)| offset.0 as usize + rows.len() > from),
            Orphan::Appends(..) | Orphan::Flush(..) => false,
        };
        let stored = &self.world.server.streams[stream].rows;
        let stored = stored.iter().skip(from).any(|row| *row != FOREIGN);
        assert!(
            answered && !stored && !self.world.orphans.iter().any(landing),
            "invariant 4: rows move up from offset {from} of {stream} on while a request there is in doubt"
        );
        let behind = self.world.server.edit(|server| {
            let promised = &mut server.streams.get_mut(stream).unwrap().promised;
            let behind = promised.len() > from + rows;
            promised.truncate(from);
            behind
        });
        if behind {
            self.world.meet(Case::RowsMovedUp);
        }
    }

    /// A payload counts as stored: it stands where it was sent.
    fn release(&mut self, batch: BatchId) {
        let payload = self.subtask.payloads.remove(&batch);
        let payload = payload.expect("invariant 3: a payload is released twice");
        if payload.rows.is_empty() {
            // Each of them became a dead letter.
            return;
        }
        let (stream, offset) = payload
            .place
            .expect("invariant 3: a payload is released that never went out");
        let from = usize::try_from(offset.0).unwrap();
        let stored = &self.world.server.streams[&stream].rows;
        let number = match self.told {
            Told::Acked => 3,
            Told::AlreadyExists => 5,
            Told::OutOfRange => 6,
            Told::End | Told::Other => 3,
        };
        assert_eq!(
            stored.get(from..from + payload.rows.len()),
            Some(&payload.rows[..]),
            "invariant {number}: rows count as stored at offset {from} of {stream} and are not there"
        );
        assert_ne!(
            self.told,
            Told::OutOfRange,
            "invariant 6: OUT_OF_RANGE counts as success"
        );
    }

    fn prepared(&mut self, epoch: Epoch, mut state: SubtaskState, commit: CommitList) {
        assert!(
            self.subtask.aligning,
            "invariant 12: a checkpoint is reported without a barrier"
        );
        assert!(
            self.subtask.payloads.is_empty(),
            "invariant 3: a barrier is reported before every row is acknowledged"
        );
        assert!(
            self.subtask.dead_letters.is_empty(),
            "a barrier is reported while dead letters are owed"
        );
        assert_eq!((state.checkpoint_id, &state.commit), (epoch, &commit));
        let mut rows: Vec<u8> = Vec::new();
        for info in &commit.0 {
            let name = &info.stream;
            assert!(
                info.from_offset.0 <= info.flush_offset.0,
                "invariant 12: {name} is in the commit list without rows"
            );
            let stream = &self.world.server.streams[name];
            assert_eq!(
                stream.creator,
                (self.number, self.who),
                "invariant 2: {name} is in a commit list of another one than its creator"
            );
            if let Some(frozen) = self.subtask.left.get(name) {
                assert_eq!(
                    info.flush_offset.next_offset(),
                    *frozen,
                    "invariant 7: the target of {name} moved after it was left"
                );
            }
            let (from, end) = (info.from_offset.0, info.flush_offset.0 + 1);
            let new = stream.rows.get(from as usize..end as usize);
            rows.extend(new.expect("invariant 3: a flush target lies beyond the stored rows"));
            let described = state.streams.iter().find(|stream| stream.state.stream == *name);
            assert_eq!(
                described.map(|stream| stream.state.next_offset),
                Some(info.flush_offset.next_offset()),
                "invariant 3: state and commit list differ about {name}"
            );
        }
        if self.scope.lanes > 1 || self.scope.has_dead_letters() {
            // Each stream keeps the order, which is checked where rows become visible.
            rows.sort_unstable();
        }
        assert_eq!(
            rows, self.subtask.handed,
            "invariant 3: the commit list counts other rows than were handed over since the last barrier"
        );
        if rows.is_empty() {
            self.world.meet(Case::EmptyEpoch);
        }
        if !self.world.is_newest(self.life) {
            self.world.meet(Case::ZombiePrepared);
        }
        self.subtask.handed.clear();
        self.subtask.aligning = false;
        // Time is not what a checkpoint is about.
        for stream in &mut state.streams {
            stream.last_append_micros = 0;
        }
        self.subtask.prepared = Some((state, commit));
    }

    /// Invariant 11: what counts as done is visible.
    fn committed(&mut self, epoch: Epoch) {
        let checkpoint = &self.world.store[epoch.0 as usize - 1];
        let life = &self.world.lives[self.life];
        let parallelism = life.subtasks.len();
        let share: Vec<SubtaskIndex> = checkpoint
            .commits
            .keys()
            .copied()
            .filter(|old| old.0 as usize % parallelism == self.who)
            .collect();
        for old in share {
            assert!(
                self.world.is_visible(&checkpoint.commits[&old]),
                "invariant 11: the commit of {epoch} counts as done and the entry of subtask {old} is not visible"
            );
        }
        self.subtask.committed = true;
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::StreamLeft {
                stream, flushable, ..
            } => {
                let server = &self.world.server.streams[&stream];
                assert!(
                    !server.gone || flushable.0 as usize <= server.flushed,
                    "invariant 7: {stream} is gone and is left though it owes rows"
                );
                self.world.meet(Case::StreamLeft);
                if flushable.0 > 0 {
                    self.world.meet(Case::StreamLeftWithRows);
                }
                self.subtask.left.insert(stream, flushable);
            }
            Notice::StaleAnswerDropped => unreachable!("late answers are told apart"),
            Notice::UnprovableAccepted { .. } => unreachable!("the default is to fail"),
            Notice::AlreadyFlushed => self.world.meet(Case::AlreadyFlushed),
            Notice::EchoDiscarded => self.world.meet(Case::EchoDiscarded),
            Notice::OwnResendStored => self.world.meet(Case::OwnResendStored),
            Notice::Reconnect { .. } | Notice::Retry { .. } | Notice::RowsRejected { .. } => {}
            Notice::RequestTooLarge { .. } => unreachable!("no request is too large here"),
        }
    }
}

/// A core has a connection no more: what it sent may land, what was answered may reach it late.
pub(crate) fn drop_connection(world: &mut World, subtask: &mut Subtask, index: usize) {
    let open = subtask.connections.remove(index);
    if let Some(orphan) = open.orphan() {
        world.orphans.edit(|all| {
            all.push(orphan);
            all.sort();
        });
    }
    let answers = open.answers.into_iter();
    subtask
        .late
        .extend(answers.map(|answer| (open.generation, answer)));
}

impl World {
    /// Invariant 1: nothing is flushed that no complete checkpoint names, but at the end of data.
    pub(crate) fn check_covered(&self, life: usize, stream: &StreamName, offset: u64) {
        let ending = self.lives[life].host.phase == Phase::Ending;
        let named = |checkpoint: &Checkpoint| {
            let infos = checkpoint.commits.values().flat_map(|list| &list.0);
            let mut infos = infos.filter(|info| info.stream == *stream);
            infos.any(|info| info.flush_offset.0 == offset)
        };
        assert!(
            ending || self.store.iter().any(named),
            "invariant 1: {stream} is flushed to {offset}, which no complete checkpoint names"
        );
    }

    /// Whether everything a list names is visible.
    pub(crate) fn is_visible(&self, list: &CommitList) -> bool {
        let mut infos = list.0.iter();
        infos.all(|info| self.server.streams[&info.stream].flushed as u64 > info.flush_offset.0)
    }

    /// What holds in every state.
    pub(crate) fn check(&self, scope: &Scope) {
        for (index, checkpoint) in self.store.iter().enumerate() {
            let visible = checkpoint.commits.values().all(|list| self.is_visible(list));
            assert!(
                !checkpoint.committed || visible,
                "invariant 10 and 11: checkpoint {} is confirmed, and saying its commit again would change something",
                index + 1
            );
        }
        let in_order = |stream: &Stream| stream.destination == Destination::Table;
        for (name, stream) in self.server.streams.iter().filter(|(_, stream)| in_order(stream)) {
            let visible = &stream.rows[..stream.flushed];
            assert!(
                visible.is_sorted(),
                "invariant 3: rows of {name} are out of order: {visible:?}"
            );
        }
        if self.is_done() {
            assert_eq!(
                (self.server.visible.clone(), self.server.dead_letters.clone()),
                scope.rows(),
                "the job is done and a reader does not see every row once"
            );
        }
        if self.stopped {
            assert!(
                self.server.streams.values().any(|stream| stream.gone),
                "invariant 11: a commit is given up though every stream is there"
            );
        }
    }
}
