//! A host with its subtasks, driven by a schedule of choices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Command, CommitList, Core, CoreConfig, Destination, Epoch, Failure, FailureKind, Fault, FlushId,
    Generation, Input, Lane, Limits, Micros, Mutation, Notice, Replay, RequestNumber, RestoredUnion,
    RowCount, RowErrorPolicy, RowFault, SubtaskIndex, SubtaskState, Unprovable,
};

use crate::server::Server;

pub(crate) const ROWS: u64 = 60;
const STEPS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Calm,
    FaultsAndCrashes,
}

/// One checkpoint as a durable store keeps it: bytes.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) epoch: Epoch,
    pub(crate) states: Vec<Vec<u8>>,
    pub(crate) commits: Vec<Vec<u8>>,
    pub(crate) next_row: u64,
    pub(crate) committed: bool,
}

/// A call on its way, with who made it.
#[derive(Debug)]
pub(crate) enum Call {
    Create {
        lane: Lane,
        destination: Destination,
    },
    /// Of the driver to itself: bad rows are taken out of a payload.
    Remove {
        batch: BatchId,
        rows: Vec<RowFault>,
    },
    /// Likewise: a payload is cut in two.
    Split {
        batch: BatchId,
    },
    Flush {
        flush: FlushId,
        stream: String,
        offset: u64,
    },
}

/// An append call: requests in order on their way there, answers on their way back.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: Generation,
    pub(crate) stream: String,
    pub(crate) requests: VecDeque<(RequestNumber, u64, Vec<u64>)>,
    pub(crate) answers: VecDeque<(RequestNumber, Result<u64, Fault>)>,
}

#[derive(Debug)]
pub(crate) struct Subtask {
    pub(crate) core: Core,
    pub(crate) payloads: BTreeMap<BatchId, Vec<u64>>,
    /// Where payloads went last.
    pub(crate) places: BTreeMap<BatchId, (String, u64)>,
    /// Refused rows that are not handed over as dead letters yet.
    pub(crate) dead_letters: Vec<u64>,
    pub(crate) calls: Vec<Call>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) prepared: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) committed: bool,
    pub(crate) failed: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) choices: VecDeque<u16>,
    pub(crate) mode: Mode,
    pub(crate) server: Server,
    /// Rows that the sink refuses itself.
    pub(crate) unencodable: BTreeSet<u64>,
    pub(crate) trace: Vec<String>,
    pub(crate) met: BTreeMap<&'static str, u64>,
    pub(crate) now: Micros,
    pub(crate) subtasks: Vec<Subtask>,
    /// Appends of dead incarnations that may land at any time, in order per connection.
    pub(crate) zombies: Vec<Connection>,
    pub(crate) store: Option<Checkpoint>,
    pub(crate) next_row: u64,
    pub(crate) epoch: Epoch,
    pub(crate) barrier_open: bool,
    pub(crate) committing: bool,
    pub(crate) batches: u64,
    /// Who created a stream (invariant 2), and which are left for good (invariant 7).
    pub(crate) creators: BTreeMap<String, (u64, usize)>,
    pub(crate) left: BTreeSet<String>,
    /// What each (stream, offset) was ever asked to hold (invariant 4).
    pub(crate) assigned: BTreeMap<(String, u64), Vec<u64>>,
    pub(crate) life: u64,
    pub(crate) visible_before: BTreeSet<u64>,
    pub(crate) done: bool,
}

impl Host {
    pub(crate) fn new(choices: Vec<u16>, mode: Mode) -> Self {
        let mut host = Self {
            choices: choices.into(),
            mode,
            server: Server::default(),
            unencodable: BTreeSet::new(),
            trace: Vec::new(),
            met: BTreeMap::new(),
            now: Micros(1_000_000),
            subtasks: Vec::new(),
            zombies: Vec::new(),
            store: None,
            next_row: 0,
            epoch: Epoch(0),
            barrier_open: false,
            committing: false,
            batches: 0,
            creators: BTreeMap::new(),
            left: BTreeSet::new(),
            assigned: BTreeMap::new(),
            life: 0,
            visible_before: BTreeSet::new(),
            done: false,
        };
        host.choose_bad_rows();
        host.start();
        host
    }

    pub(crate) fn parallelism(&self) -> u32 {
        u32::try_from(self.subtasks.len()).unwrap()
    }

    pub(crate) fn run_to_the_end(&mut self) {
        for _ in 0..STEPS {
            if self.done {
                return;
            }
            self.step();
            self.check_visible();
        }
        panic!(
            "no end after {STEPS} steps (invariant 13)\n{}",
            self.trace.join("\n")
        );
    }

    /// 0 once the schedule is used up: everything goes on.
    pub(crate) fn choose(&mut self, of: usize) -> usize {
        self.choices
            .pop_front()
            .map_or(0, |choice| usize::from(choice) % of)
    }

    pub(crate) fn meet(&mut self, case: &'static str) {
        *self.met.entry(case).or_insert(0) += 1;
    }

    // Life of an incarnation.

    fn start(&mut self) {
        self.life += 1;
        let parallelism = 1 + self.choose(3);
        let old = self
            .store
            .as_ref()
            .map_or(parallelism, |checkpoint| checkpoint.states.len());
        if old != parallelism {
            self.meet("rescaled");
        }
        self.now = self.now.after(Duration::from_millis(1));
        self.subtasks = (0..parallelism)
            .map(|index| self.subtask(index, parallelism))
            .collect();
        self.barrier_open = false;
        self.committing = false;
        self.next_row = self.store.as_ref().map_or(0, |checkpoint| checkpoint.next_row);
        self.epoch = self
            .store
            .as_ref()
            .map_or(Epoch(0), |checkpoint| checkpoint.epoch);
        if self
            .store
            .as_ref()
            .is_some_and(|checkpoint| !checkpoint.committed)
        {
            self.meet("commit replayed");
            self.say_commit();
        }
    }

    fn subtask(&self, index: usize, parallelism: usize) -> Subtask {
        let mut core = Core::new(CoreConfig {
            table: "t".into(),
            subtask: SubtaskIndex(u32::try_from(index).unwrap()),
            parallelism: u32::try_from(parallelism).unwrap(),
            streams: 1 + (self.life as usize) % 3,
            row_errors: match self.mode {
                Mode::Calm => RowErrorPolicy::Fail,
                Mode::FaultsAndCrashes => RowErrorPolicy::DeadLetter,
            },
            started_at: self.now,
            limits: limits(),
            mutation: Mutation::default(),
        });
        if let Some(checkpoint) = &self.store {
            let states = checkpoint.states.iter().enumerate().map(|(old, bytes)| {
                (
                    SubtaskIndex(u32::try_from(old).unwrap()),
                    SubtaskState::decode(bytes).unwrap(),
                )
            });
            let union = RestoredUnion::new("t", checkpoint.epoch, states.collect()).unwrap();
            let replay = if checkpoint.committed {
                Replay::Confirmed
            } else {
                Replay::Expected
            };
            core.handle(self.now, Input::Restored { union, replay });
        }
        assert_eq!(
            core.poll(),
            None,
            "a restore asks for nothing: no stream before the first rows (invariant 2)"
        );
        Subtask {
            core,
            payloads: BTreeMap::new(),
            places: BTreeMap::new(),
            dead_letters: Vec::new(),
            calls: Vec::new(),
            connections: Vec::new(),
            prepared: None,
            committed: false,
            failed: None,
        }
    }

    /// All subtasks vanish; what they had sent may still land.
    fn crash(&mut self) {
        self.trace.push("crash".into());
        for subtask in std::mem::take(&mut self.subtasks) {
            self.zombies.extend(subtask.connections);
        }
        self.start();
    }

    // Steps.

    fn step(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        let faults = self.mode == Mode::FaultsAndCrashes;
        match self.choose(40) {
            1 if faults => return self.crash(),
            2 | 3 if faults => return self.zombie(),
            4 => {
                let pause = Duration::from_millis([10, 500, 20_000][self.choose(3)]);
                self.now = self.now.after(pause);
            }
            5 if faults => return self.lose_connection(),
            6 if faults => return self.repeat_commit(),
            7 if faults => return self.stale_answer(),
            _ => {}
        }
        let who = self.choose(self.subtasks.len());
        self.step_host();
        for offset in 0..self.subtasks.len() {
            let who = (who + offset) % self.subtasks.len();
            if let Some(failure) = self.subtasks[who].failed.take() {
                assert_eq!(
                    failure.kind,
                    FailureKind::Restart,
                    "{failure}\n{}",
                    self.trace.join("\n")
                );
                self.meet("restart asked for");
                return self.crash();
            }
            if !self.done {
                self.step_subtask(who);
            }
        }
    }

    fn step_host(&mut self) {
        let all = |subtasks: &[Subtask], is: fn(&Subtask) -> bool| subtasks.iter().all(is);
        if self.committing && all(&self.subtasks, |subtask| subtask.committed) {
            self.committing = false;
            let checkpoint = self.store.as_mut().unwrap();
            checkpoint.committed = true;
            self.done = checkpoint.next_row == ROWS && self.next_row == ROWS && !self.barrier_open;
            return;
        }
        if self.barrier_open && all(&self.subtasks, |subtask| subtask.prepared.is_some()) {
            let prepared = self
                .subtasks
                .iter_mut()
                .map(|subtask| subtask.prepared.take().unwrap());
            let (states, commits) = prepared.unzip();
            self.barrier_open = false;
            self.store = Some(Checkpoint {
                epoch: self.epoch,
                states,
                commits,
                next_row: self.next_row,
                committed: false,
            });
            self.say_commit();
            return;
        }
        let idle = !self.barrier_open && !self.committing;
        if idle && (self.next_row == ROWS || self.choose(6) == 5) {
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

    fn rows(&mut self, who: usize) {
        let count = (1 + self.choose(4) as u64).min(ROWS - self.next_row);
        let rows: Vec<u64> = (self.next_row..self.next_row + count).collect();
        self.next_row += count;
        let rows = self.refuse_unencodable(who, rows);
        if !rows.is_empty() {
            self.hand_over(who, Destination::Table, rows);
        }
    }

    pub(crate) fn hand_over(&mut self, who: usize, destination: Destination, rows: Vec<u64>) {
        self.batches += 1;
        let (id, count) = (BatchId(self.batches), rows.len() as u64);
        self.subtasks[who].payloads.insert(id, rows);
        self.tell(
            who,
            Input::Batch {
                destination,
                id,
                rows: RowCount(count),
                bytes: count * 100,
            },
        );
    }

    fn say_commit(&mut self) {
        let checkpoint = self.store.clone().unwrap();
        self.committing = true;
        for who in 0..self.subtasks.len() {
            self.subtasks[who].committed = false;
            self.tell(
                who,
                Input::Commit {
                    epoch: checkpoint.epoch,
                    entries: entries(&checkpoint),
                },
            );
        }
    }

    /// Invariant 10: a host may say commit again.
    fn repeat_commit(&mut self) {
        let Some(checkpoint) = self.store.clone() else {
            return;
        };
        // Repeating is harmless as long as BigQuery keeps the streams.
        let gone = self.server.streams.values().any(|stream| stream.gone);
        if !checkpoint.committed || self.barrier_open || self.committing || gone {
            return;
        }
        let who = self.choose(self.subtasks.len());
        self.meet("commit repeated");
        self.committing = true;
        for (index, subtask) in self.subtasks.iter_mut().enumerate() {
            subtask.committed = index != who;
        }
        self.tell(
            who,
            Input::Commit {
                epoch: checkpoint.epoch,
                entries: entries(&checkpoint),
            },
        );
    }

    fn step_subtask(&mut self, who: usize) {
        let Subtask {
            core, dead_letters, ..
        } = &self.subtasks[who];
        if !dead_letters.is_empty() && core.has_room() && self.choose(3) == 0 {
            self.hand_over_dead_letters(who);
        } else if !self.subtasks[who].calls.is_empty() {
            let call = self.choose(self.subtasks[who].calls.len());
            self.finish_call(who, call);
        } else if let Some(index) = self.subtasks[who]
            .connections
            .iter()
            .position(|open| !open.requests.is_empty())
        {
            self.serve(who, index);
        } else if let Some(index) = self.subtasks[who]
            .connections
            .iter()
            .position(|open| !open.answers.is_empty())
        {
            self.deliver(who, index);
        } else if self.subtasks[who]
            .core
            .next_wake()
            .is_some_and(|at| at <= self.now)
        {
            self.tell(who, Input::Tick);
        } else if let Some(at) = self.subtasks[who].core.next_wake()
            && self.choices.is_empty()
        {
            self.now = self.now.max(at);
            self.tell(who, Input::Tick);
        }
    }

    // Commands.

    pub(crate) fn tell(&mut self, who: usize, input: Input) {
        self.trace.push(format!("{} {who} <- {input:?}", self.now.0));
        let ticked = input == Input::Tick;
        self.subtasks[who].core.handle(self.now, input);
        if ticked {
            let wake = self.subtasks[who].core.next_wake();
            assert!(
                wake.is_none_or(|at| at > self.now),
                "what was due is done, or the driver would do nothing else (invariant 13)\n{}",
                self.trace.join("\n")
            );
        }
        while let Some(command) = self.subtasks[who].core.poll() {
            self.trace.push(format!("{} {who} -> {command:?}", self.now.0));
            self.carry_out(who, command);
        }
    }

    fn carry_out(&mut self, who: usize, command: Command) {
        let life = self.life;
        let subtask = &mut self.subtasks[who];
        match command {
            Command::CreateStream { lane, destination } => {
                subtask.calls.push(Call::Create { lane, destination });
            }
            Command::Connect { connection, stream } => {
                assert_eq!(
                    self.creators.get(&stream.0),
                    Some(&(life, who)),
                    "only its creator writes a stream (invariant 2)"
                );
                assert!(
                    !self.left.contains(&stream.0),
                    "a stream that was left is never written again (invariant 7)"
                );
                let (requests, answers) = Default::default();
                subtask.connections.push(Connection {
                    generation: connection,
                    stream: stream.0,
                    requests,
                    answers,
                });
            }
            Command::Disconnect { connection } => {
                let index = subtask
                    .connections
                    .iter()
                    .position(|open| open.generation == connection);
                self.zombies.push(
                    subtask
                        .connections
                        .remove(index.expect("only a live connection is ended")),
                );
            }
            Command::Append {
                connection,
                request,
                offset,
                batch,
            } => {
                let offset = offset.expect("a stream of one's own takes offsets").0;
                let rows = subtask.payloads[&batch].clone();
                let open = subtask
                    .connections
                    .iter_mut()
                    .find(|open| open.generation == connection)
                    .unwrap();
                let place = (open.stream.clone(), offset);
                subtask.places.insert(batch, place.clone());
                let before = self.assigned.entry(place).or_insert_with(|| rows.clone());
                assert_eq!(
                    *before, rows,
                    "one offset belongs to the same rows for ever (invariant 4)"
                );
                open.requests.push_back((request, offset, rows));
            }
            Command::Release { batch } => {
                assert!(
                    subtask.payloads.remove(&batch).is_some(),
                    "a payload is released once"
                );
            }
            Command::RemoveRows { batch, rows } => {
                subtask.calls.push(Call::Remove { batch, rows });
                self.check_rows_move_up(who, batch);
            }
            Command::Split { batch } => subtask.calls.push(Call::Split { batch }),
            Command::Prepared {
                epoch, state, commit, ..
            } => {
                assert_eq!(epoch, self.epoch);
                assert!(
                    subtask.dead_letters.is_empty(),
                    "a barrier is reported while dead letters are owed"
                );
                assert!(
                    subtask.payloads.is_empty(),
                    "a barrier waits for every acknowledgement (invariant 3)"
                );
                self.check_commit_list(&commit);
                if commit.0.is_empty() {
                    self.meet("empty epoch");
                }
                self.subtasks[who].prepared = Some((state.encode(), commit.encode()));
            }
            Command::Flush {
                flush,
                stream,
                offset,
            } => {
                subtask.calls.push(Call::Flush {
                    flush,
                    stream: stream.0,
                    offset: offset.0,
                });
            }
            Command::Committed { .. } => subtask.committed = true,
            Command::Closed => unreachable!("this host takes a final checkpoint"),
            Command::RefreshCredentials => {}
            Command::Notice(notice) => self.note(notice),
            Command::Fail(failure) => subtask.failed = Some(failure),
        }
    }

    fn note(&mut self, notice: Notice) {
        match notice {
            Notice::OwnResendStored => self.meet("own resend stored"),
            Notice::EchoDiscarded => self.meet("echo discarded"),
            Notice::StaleAnswerDropped => self.meet("stale answer dropped"),
            Notice::AlreadyFlushed => self.meet("already flushed"),
            Notice::StreamLeft { stream, .. } => {
                self.left.insert(stream.0);
                self.meet("stream left");
            }
            Notice::RowsRejected { .. } => self.meet("rows rejected"),
            Notice::RequestTooLarge { .. } | Notice::Reconnect { .. } | Notice::Retry { .. } => {}
            Notice::UnprovableAccepted { .. } => unreachable!("the default is to fail"),
        }
    }
}

fn entries(checkpoint: &Checkpoint) -> BTreeMap<SubtaskIndex, CommitList> {
    let lists = checkpoint.commits.iter().enumerate();
    lists
        .map(|(index, bytes)| {
            (
                SubtaskIndex(u32::try_from(index).unwrap()),
                CommitList::decode(bytes).unwrap(),
            )
        })
        .collect()
}

fn limits() -> Limits {
    Limits {
        append_bytes: 400,
        inflight_bytes: 2_000,
        inflight_requests: 8,
        inflight_time: Duration::from_secs(2),
        append_timeout: Duration::from_secs(300),
        commit_timeout: Duration::from_secs(600),
        quota_timeout: Duration::from_secs(900),
        unknown_table: Duration::from_secs(60),
        unprovable: Unprovable::Fail,
    }
}
