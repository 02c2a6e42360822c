//! A host with its subtasks, driven by a schedule of choices, and the count of what may be there twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Code, Command, CommitList, CoreConfig, DefaultStreamCore, DefaultStreams, Destination, Epoch,
    Failure, FailureKind, Fault, Generation, Input, Limits, Micros, Mode, Mutation, Place, Protocol, Replay,
    RequestNumber, RestoredUnion, RowCount, RowErrorPolicy, RowFault, StreamName, SubtaskIndex, SubtaskState,
    Unprovable,
};

use crate::server::{DEAD_LETTERS, Server, TABLE, fault};

const ROWS: u64 = 60;
const STEPS: usize = 20_000;

/// One checkpoint as a durable store keeps it.
#[derive(Debug)]
struct Checkpoint {
    epoch: Epoch,
    states: Vec<Vec<u8>>,
    next_row: u64,
    committed: bool,
}

/// An append call: requests in order on their way there, answers on their way back, each with its rows.
#[derive(Debug)]
struct Connection {
    generation: Generation,
    stream: String,
    requests: VecDeque<(RequestNumber, Vec<u64>)>,
    answers: VecDeque<(RequestNumber, Vec<u64>, Result<(), Fault>)>,
}

#[derive(Debug)]
struct Subtask {
    core: Protocol,
    payloads: BTreeMap<BatchId, Vec<u64>>,
    /// Rows handed over since the last checkpoint that are to be acknowledged before the next, dead letters among them.
    handed_over: u64,
    dead_letters: Vec<u64>,
    removals: Vec<(BatchId, Vec<RowFault>)>,
    splits: Vec<BatchId>,
    connections: Vec<Connection>,
    prepared: Option<Vec<u8>>,
    committed: bool,
    failed: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Host {
    choices: VecDeque<u16>,
    faults: bool,
    pub(crate) server: Server,
    /// Rows that the sink refuses itself.
    unencodable: BTreeSet<u64>,
    pub(crate) met: BTreeMap<&'static str, u64>,
    /// How often more than once each row may be stored.
    explained: BTreeMap<u64, u64>,
    now: Micros,
    subtasks: Vec<Subtask>,
    /// Calls that ended for us; what is on its way there may land at any time.
    late: Vec<Connection>,
    store: Option<Checkpoint>,
    next_row: u64,
    epoch: Epoch,
    barrier_open: bool,
    committing: bool,
    batches: u64,
    done: bool,
}

impl Host {
    pub(crate) fn new(choices: Vec<u16>, faults: bool) -> Self {
        let mut host = Self {
            choices: choices.into(),
            faults,
            server: Server::default(),
            unencodable: BTreeSet::new(),
            met: BTreeMap::new(),
            explained: BTreeMap::new(),
            now: Micros(1_000_000),
            subtasks: Vec::new(),
            late: Vec::new(),
            store: None,
            next_row: 0,
            epoch: Epoch(0),
            barrier_open: false,
            committing: false,
            batches: 0,
            done: false,
        };
        let one_of = [u64::MAX, 11, 3][host.choose(3)];
        host.server.bad = (0..ROWS).filter(|row| row * 7 % one_of == 1).collect();
        let one_of = [u64::MAX, 13, 4][host.choose(3)];
        host.unencodable = (0..ROWS).filter(|row| row * 5 % one_of == 2).collect();
        host.server.most_rows = [None, Some(2), Some(1)][host.choose(3)];
        host.start();
        host
    }

    pub(crate) fn run_to_the_end(&mut self) {
        for _ in 0..STEPS {
            if self.done {
                return;
            }
            self.step();
        }
        panic!("no end after {STEPS} steps (invariant 13)");
    }

    /// No row is lost, none is where it should not be, and none is there more often than the faults explain.
    pub(crate) fn check_rows(&self) {
        let good = |row: &u64| !self.server.bad.contains(row) && !self.unencodable.contains(row);
        let (rows, dead_letters): (BTreeSet<u64>, BTreeSet<u64>) = (0..ROWS).partition(good);
        assert_eq!(self.server.rows.keys().copied().collect::<BTreeSet<_>>(), rows);
        assert_eq!(
            self.server.dead_letters.keys().copied().collect::<BTreeSet<_>>(),
            dead_letters
        );
        for (row, count) in self.server.rows.iter().chain(&self.server.dead_letters) {
            let most = 1 + self.explained.get(row).copied().unwrap_or(0);
            assert!(
                *count <= most,
                "row {row} is there {count} times, {most} are explained"
            );
        }
    }

    /// 0 once the schedule is used up: everything goes on.
    fn choose(&mut self, of: usize) -> usize {
        let choice = self.choices.pop_front();
        choice.map_or(0, |choice| usize::from(choice) % of)
    }

    fn meet(&mut self, case: &'static str) {
        *self.met.entry(case).or_insert(0) += 1;
    }

    fn explain(&mut self, rows: impl IntoIterator<Item = u64>) {
        for row in rows {
            *self.explained.entry(row).or_insert(0) += 1;
        }
    }

    // Life of an incarnation.

    fn start(&mut self) {
        let parallelism = 1 + self.choose(3);
        let old = self.store.as_ref().map(|checkpoint| checkpoint.states.len());
        if old.is_some_and(|old| old != parallelism) {
            self.meet("rescaled");
        }
        self.now = self.now.after(Duration::from_millis(1));
        self.subtasks = (0..parallelism)
            .map(|index| self.subtask(index, parallelism))
            .collect();
        (self.barrier_open, self.committing) = (false, false);
        let newest = self.store.as_ref();
        self.next_row = newest.map_or(0, |checkpoint| checkpoint.next_row);
        self.epoch = newest.map_or(Epoch(0), |checkpoint| checkpoint.epoch);
        if newest.is_some_and(|checkpoint| !checkpoint.committed) {
            self.meet("commit replayed");
            self.say_commit();
        }
    }

    fn subtask(&mut self, index: usize, parallelism: usize) -> Subtask {
        let config = CoreConfig {
            table: "t".into(),
            subtask: SubtaskIndex(u32::try_from(index).unwrap()),
            parallelism: u32::try_from(parallelism).unwrap(),
            streams: 1 + self.choose(2),
            row_errors: RowErrorPolicy::DeadLetter,
            started_at: self.now,
            limits: limits(),
            mutation: Mutation::default(),
        };
        let streams = DefaultStreams {
            table: StreamName(TABLE.into()),
            dead_letters: Some(StreamName(DEAD_LETTERS.into())),
        };
        let mut core = Protocol::AtLeastOnce(Box::new(DefaultStreamCore::new(config, streams)));
        if let Some(checkpoint) = &self.store {
            let states = checkpoint.states.iter().zip(0..);
            let states = states.map(|(bytes, old)| (SubtaskIndex(old), SubtaskState::decode(bytes).unwrap()));
            let union = RestoredUnion::new("t", checkpoint.epoch, states.collect()).unwrap();
            let replay = if checkpoint.committed {
                Replay::Confirmed
            } else {
                Replay::Expected
            };
            core.handle(self.now, Input::Restored { union, replay });
        }
        assert_eq!(core.poll(), None, "a restore asks for nothing");
        Subtask {
            core,
            payloads: BTreeMap::new(),
            handed_over: 0,
            dead_letters: Vec::new(),
            removals: Vec::new(),
            splits: Vec::new(),
            connections: Vec::new(),
            prepared: None,
            committed: false,
            failed: None,
        }
    }

    /// All subtasks vanish; what they had sent may still land, and what came since the checkpoint is read again.
    fn crash(&mut self) {
        self.meet("crash");
        for subtask in std::mem::take(&mut self.subtasks) {
            self.late.extend(subtask.connections);
        }
        let from = self.store.as_ref().map_or(0, |checkpoint| checkpoint.next_row);
        self.explain(from..self.next_row);
        self.start();
    }

    // Steps.

    fn step(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        match self.choose(40) {
            1 if self.faults => return self.crash(),
            2 | 3 if self.faults => return self.land_late(),
            4 => {
                let pause = [10, 500, 20_000][self.choose(3)];
                self.now = self.now.after(Duration::from_millis(pause));
            }
            5 if self.faults => return self.lose_connection(),
            6 if self.faults => self.stale_answer(),
            _ => {}
        }
        self.step_host();
        let first = self.choose(self.subtasks.len());
        for offset in 0..self.subtasks.len() {
            let who = (first + offset) % self.subtasks.len();
            if let Some(failure) = self.subtasks[who].failed.take() {
                assert_eq!(failure.kind, FailureKind::Restart, "{failure}");
                self.meet("restart asked for");
                return self.crash();
            }
            self.step_subtask(who);
        }
    }

    fn step_host(&mut self) {
        if self.committing && self.subtasks.iter().all(|subtask| subtask.committed) {
            self.committing = false;
            let checkpoint = self.store.as_mut().unwrap();
            checkpoint.committed = true;
            self.done = checkpoint.next_row == ROWS;
        } else if self.barrier_open && self.subtasks.iter().all(|subtask| subtask.prepared.is_some()) {
            let states = self
                .subtasks
                .iter_mut()
                .filter_map(|subtask| subtask.prepared.take());
            self.barrier_open = false;
            self.store = Some(Checkpoint {
                epoch: self.epoch,
                states: states.collect(),
                next_row: self.next_row,
                committed: false,
            });
            self.say_commit();
        } else if !self.barrier_open && !self.committing && (self.next_row == ROWS || self.choose(6) == 5) {
            self.epoch = Epoch(self.epoch.0 + 1);
            self.barrier_open = true;
            for who in 0..self.subtasks.len() {
                self.tell(who, Input::Barrier { epoch: self.epoch });
            }
        } else if !self.barrier_open && self.next_row < ROWS {
            let who = self.choose(self.subtasks.len());
            if self.subtasks[who].core.has_room() {
                self.rows(who);
            }
        }
    }

    fn say_commit(&mut self) {
        self.committing = true;
        let states = self.store.as_ref().unwrap().states.len();
        let entries =
            (0..u32::try_from(states).unwrap()).map(|old| (SubtaskIndex(old), CommitList::default()));
        let commit = Input::Commit {
            epoch: self.epoch,
            entries: entries.collect(),
        };
        for who in 0..self.subtasks.len() {
            self.subtasks[who].committed = false;
            self.tell(who, commit.clone());
        }
    }

    fn rows(&mut self, who: usize) {
        let count = (1 + self.choose(4) as u64).min(ROWS - self.next_row);
        let rows = self.next_row..self.next_row + count;
        self.next_row += count;
        let (refused, rows): (Vec<u64>, Vec<u64>) = rows.partition(|row| self.unencodable.contains(row));
        if !refused.is_empty() {
            let rows = RowCount(refused.len() as u64);
            self.subtasks[who].dead_letters.extend(refused);
            self.meet("rows refused by the sink");
            self.tell(who, Input::RowsRefused { rows });
        }
        if !rows.is_empty() {
            self.hand_over(who, Destination::Table, rows);
        }
    }

    fn hand_over(&mut self, who: usize, destination: Destination, rows: Vec<u64>) {
        self.batches += 1;
        let (id, count) = (BatchId(self.batches), rows.len() as u64);
        self.subtasks[who].handed_over += count;
        self.subtasks[who].payloads.insert(id, rows);
        let input = Input::Batch {
            destination,
            id,
            rows: RowCount(count),
            bytes: count * 100,
        };
        self.tell(who, input);
    }

    /// One thing happens to a subtask: the server takes a request, an answer arrives, rows are taken out, a request is cut, dead letters
    /// are handed over.
    fn step_subtask(&mut self, who: usize) {
        let subtask = &self.subtasks[who];
        let connections = subtask.connections.len();
        let busy = (0..connections).find(|index| {
            let open = &subtask.connections[*index];
            !open.requests.is_empty() || !open.answers.is_empty()
        });
        let wanted = subtask.core.wants_dead_letters();
        let letters = !subtask.dead_letters.is_empty() && (wanted || self.choose(4) == 1);
        if letters && self.subtasks[who].core.has_room() {
            if wanted {
                self.meet("dead letters wanted");
            }
            let count = 1 + self.choose(self.subtasks[who].dead_letters.len());
            let rows = self.subtasks[who].dead_letters.drain(..count).collect();
            self.hand_over(who, Destination::DeadLetters, rows);
        } else if let Some((batch, rows)) = self.subtasks[who].removals.pop() {
            self.remove_rows(who, batch, &rows);
        } else if let Some(batch) = self.subtasks[who].splits.pop() {
            self.split(who, batch);
        } else if let Some(index) = busy {
            let open = &self.subtasks[who].connections[index];
            let answers = !open.answers.is_empty();
            if answers && (open.requests.is_empty() || self.choose(2) == 0) {
                self.deliver(who, index);
            } else {
                self.serve(who, index);
            }
        } else if let Some(wake) = self.subtasks[who].core.next_wake() {
            self.now = self.now.max(wake);
            self.tell(who, Input::Tick);
        }
    }

    fn remove_rows(&mut self, who: usize, batch: BatchId, named: &[RowFault]) {
        let Subtask {
            payloads,
            dead_letters,
            handed_over,
            ..
        } = &mut self.subtasks[who];
        let rows = payloads.get_mut(&batch).unwrap();
        for row in named.iter().rev() {
            let row = rows.remove(usize::try_from(row.index).unwrap());
            assert!(self.server.bad.contains(&row), "the good row {row} is taken out");
            dead_letters.push(row);
        }
        *handed_over -= named.len() as u64;
        let left = rows.len() as u64;
        if left == 0 {
            self.meet("request emptied");
        }
        let input = Input::RowsRemoved {
            batch,
            rows: RowCount(left),
            bytes: left * 100,
            dead_letters: RowCount(named.len() as u64),
        };
        self.tell(who, input);
    }

    fn split(&mut self, who: usize, batch: BatchId) {
        let most = self.subtasks[who].payloads[&batch].len() - 1;
        let keeps = 1 + self.choose(most);
        self.batches += 1;
        let rest = BatchId(self.batches);
        let payloads = &mut self.subtasks[who].payloads;
        let rows = payloads.get_mut(&batch).unwrap();
        let rest_rows = rows.split_off(keeps);
        let rest_bytes = rest_rows.len() as u64 * 100;
        payloads.insert(rest, rest_rows);
        self.meet("request split");
        let input = Input::BatchSplit {
            batch,
            rows: RowCount(keeps as u64),
            bytes: keeps as u64 * 100,
            rest,
            rest_bytes,
        };
        self.tell(who, input);
    }

    // The network.

    /// The server takes, or refuses, the next request of a connection.
    fn serve(&mut self, who: usize, index: usize) {
        let fate = if self.faults { self.choose(20) } else { 0 };
        let codes = [
            Code::Internal,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        let refusal = fault(codes[self.choose(4)], Place::InBand);
        let open = &mut self.subtasks[who].connections[index];
        let (request, rows) = open.requests.pop_front().unwrap();
        let answer = match fate {
            19 => Err(refusal),
            18 if self.server.append(&open.stream, &rows).is_ok() => Err(refusal),
            _ => self.server.append(&open.stream, &rows),
        };
        open.answers.push_back((request, rows.clone(), answer));
        if fate == 18 {
            self.meet("stored and refused all the same");
            self.explain(rows);
        }
    }

    fn deliver(&mut self, who: usize, index: usize) {
        let open = &mut self.subtasks[who].connections[index];
        let (request, _, answer) = open.answers.pop_front().unwrap();
        let connection = open.generation;
        self.tell(
            who,
            match answer {
                Ok(()) => Input::AppendAcked {
                    connection,
                    request,
                    offset: None,
                },
                Err(fault) => Input::AppendFailed {
                    connection,
                    request,
                    fault,
                },
            },
        );
    }

    /// The connection breaks; requests on their way are lost or land later, answers are lost.
    fn lose_connection(&mut self) {
        let who = self.choose(self.subtasks.len());
        if self.subtasks[who].connections.is_empty() {
            return;
        }
        self.meet("connection lost");
        let open = self.subtasks[who].connections.remove(0);
        let connection = open.generation;
        self.give_up(open);
        let code = [
            Code::Unavailable,
            Code::Internal,
            Code::Ok,
            Code::FailedPrecondition,
        ][self.choose(4)];
        let fault = fault(code, Place::RpcEnd);
        self.tell(who, Input::ConnectionLost { connection, fault });
    }

    /// Whatever had no answer may be stored, now or later.
    fn give_up(&mut self, open: Connection) {
        let unanswered = open.requests.iter().map(|(_, rows)| rows);
        let unheard = open.answers.iter().map(|(_, rows, _)| rows);
        let rows: Vec<u64> = unanswered.chain(unheard).flatten().copied().collect();
        self.explain(rows);
        self.late.push(open);
    }

    /// A request of an ended call lands after all.
    fn land_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let index = self.choose(self.late.len());
        let Some((_, rows)) = self.late[index].requests.pop_front() else {
            self.late.remove(index);
            return;
        };
        let stream = self.late[index].stream.clone();
        if self.server.append(&stream, &rows).is_ok() {
            self.meet("late request landed");
        }
    }

    /// Invariant 8: an answer that belongs to no live connection changes nothing.
    fn stale_answer(&mut self) {
        let who = self.choose(self.subtasks.len());
        let stale = Input::AppendAcked {
            connection: Generation(9_999),
            request: RequestNumber(1),
            offset: None,
        };
        self.tell(who, stale);
    }

    // Commands.

    fn tell(&mut self, who: usize, input: Input) {
        let ticked = input == Input::Tick;
        self.subtasks[who].core.handle(self.now, input);
        if ticked {
            let wake = self.subtasks[who].core.next_wake();
            assert!(
                wake.is_none_or(|at| at > self.now),
                "what was due is done, or the driver would do nothing else (invariant 13)"
            );
        }
        while let Some(command) = self.subtasks[who].core.poll() {
            self.carry_out(who, command);
        }
    }

    fn carry_out(&mut self, who: usize, command: Command) {
        let subtask = &mut self.subtasks[who];
        match command {
            Command::Split { batch } => subtask.splits.push(batch),
            Command::Connect { connection, stream } => subtask.connections.push(Connection {
                generation: connection,
                stream: stream.0,
                requests: VecDeque::new(),
                answers: VecDeque::new(),
            }),
            Command::Disconnect { connection } => {
                let mut open = subtask.connections.iter();
                let index = open.position(|open| open.generation == connection).unwrap();
                let open = subtask.connections.remove(index);
                self.give_up(open);
            }
            Command::Append {
                connection,
                request,
                offset,
                batch,
            } => {
                assert_eq!(offset, None, "a default stream takes no offset");
                let rows = subtask.payloads[&batch].clone();
                let mut open = subtask.connections.iter_mut();
                let open = open.find(|open| open.generation == connection).unwrap();
                open.requests.push_back((request, rows));
            }
            Command::Release { batch } => {
                assert!(subtask.payloads.remove(&batch).is_some(), "released once");
            }
            Command::RemoveRows { batch, rows } => subtask.removals.push((batch, rows)),
            Command::Prepared {
                epoch,
                state,
                commit,
                rows,
            } => {
                assert_eq!(epoch, self.epoch);
                assert_eq!(commit, CommitList::default(), "there is nothing to flush");
                assert_eq!(state.mode(), Mode::AtLeastOnce);
                assert!(
                    subtask.payloads.is_empty() && subtask.dead_letters.is_empty(),
                    "a barrier waits for every acknowledgement, and for the dead letters"
                );
                assert_eq!(rows.0, std::mem::take(&mut subtask.handed_over));
                subtask.prepared = Some(state.encode());
            }
            Command::Committed { epoch, .. } => {
                assert_eq!(epoch, self.epoch);
                subtask.committed = true;
            }
            Command::Fail(failure) => subtask.failed = Some(failure),
            Command::Notice(_) | Command::RefreshCredentials => {}
            Command::CreateStream { .. } | Command::Flush { .. } | Command::Closed => {
                panic!("{command:?} is not asked for")
            }
        }
    }
}

fn limits() -> Limits {
    Limits {
        append_bytes: 400,
        inflight_bytes: 4_000,
        inflight_requests: 6,
        inflight_time: Duration::from_secs(2),
        append_timeout: Duration::from_secs(60),
        commit_timeout: Duration::from_secs(60),
        quota_timeout: Duration::from_secs(60),
        unknown_table: Duration::from_secs(60),
        unprovable: Unprovable::Fail,
    }
}
