//! A host with its subtasks, driven by a schedule of choices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, Code, Command, CommitList, Core, CoreConfig, Epoch, Failure, FailureKind, Fault, FlushId,
    Generation, Input, Lane, Limits, Micros, Notice, Place, Replay, RequestNumber, RestoredUnion, RowCount,
    StreamName, SubtaskIndex, SubtaskState, Unprovable,
};

use crate::server::{Server, fault};

const ROWS: u64 = 60;
const STEPS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Calm,
    FaultsAndCrashes,
}

/// One checkpoint as a durable store keeps it: bytes.
#[derive(Clone, Debug)]
struct Checkpoint {
    epoch: Epoch,
    states: Vec<Vec<u8>>,
    commits: Vec<Vec<u8>>,
    next_row: u64,
    committed: bool,
}

/// A call on its way, with who made it.
#[derive(Debug)]
enum Call {
    Create {
        lane: Lane,
    },
    Flush {
        flush: FlushId,
        stream: String,
        offset: u64,
    },
}

/// An append call: requests in order on their way there, answers on their way back.
#[derive(Debug)]
struct Connection {
    generation: Generation,
    stream: String,
    requests: VecDeque<(RequestNumber, u64, Vec<u64>)>,
    answers: VecDeque<(RequestNumber, Result<u64, Fault>)>,
}

#[derive(Debug)]
struct Subtask {
    core: Core,
    payloads: BTreeMap<BatchId, Vec<u64>>,
    calls: Vec<Call>,
    connections: Vec<Connection>,
    prepared: Option<(Vec<u8>, Vec<u8>)>,
    committed: bool,
    failed: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Host {
    choices: VecDeque<u16>,
    mode: Mode,
    pub(crate) server: Server,
    pub(crate) trace: Vec<String>,
    pub(crate) met: BTreeMap<&'static str, u64>,
    now: Micros,
    subtasks: Vec<Subtask>,
    /// Appends of dead incarnations that may land at any time, in order per connection.
    zombies: Vec<Connection>,
    store: Option<Checkpoint>,
    next_row: u64,
    epoch: Epoch,
    barrier_open: bool,
    committing: bool,
    batches: u64,
    /// Who created a stream (invariant 2), and which are left for good (invariant 7).
    creators: BTreeMap<String, (u64, usize)>,
    left: BTreeSet<String>,
    /// What each (stream, offset) was ever asked to hold (invariant 4).
    assigned: BTreeMap<(String, u64), Vec<u64>>,
    life: u64,
    visible_before: BTreeSet<u64>,
    done: bool,
}

impl Host {
    pub(crate) fn new(choices: Vec<u16>, mode: Mode) -> Self {
        let mut host = Self {
            choices: choices.into(),
            mode,
            server: Server::default(),
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
        host.start();
        host
    }

    pub(crate) fn all_rows(&self) -> Vec<u64> {
        (0..ROWS).collect()
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
    fn choose(&mut self, of: usize) -> usize {
        self.choices
            .pop_front()
            .map_or(0, |choice| usize::from(choice) % of)
    }

    fn meet(&mut self, case: &'static str) {
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
            started_at: self.now,
            limits: limits(),
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
        self.batches += 1;
        let id = BatchId(self.batches);
        self.subtasks[who].payloads.insert(id, rows);
        self.tell(
            who,
            Input::Batch {
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
        if !self.subtasks[who].calls.is_empty() {
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

    // The network.

    fn finish_call(&mut self, who: usize, index: usize) {
        let call = self.subtasks[who].calls.remove(index);
        let fate = if self.mode == Mode::Calm {
            0
        } else {
            self.choose(12)
        };
        let code = [
            Code::Unavailable,
            Code::Internal,
            Code::DeadlineExceeded,
            Code::ResourceExhausted,
        ][self.choose(4)];
        match call {
            Call::Create { lane } => {
                if fate == 11 {
                    return self.tell(
                        who,
                        Input::CreateFailed {
                            lane,
                            fault: fault(code, Place::RpcEnd),
                        },
                    );
                }
                let stream = self.server.create();
                if fate == 10 {
                    // Created, but the answer is lost: an orphan that nobody ever writes.
                    return self.tell(
                        who,
                        Input::CreateFailed {
                            lane,
                            fault: fault(code, Place::RpcEnd),
                        },
                    );
                }
                self.creators.insert(stream.clone(), (self.life, who));
                self.tell(
                    who,
                    Input::StreamCreated {
                        lane,
                        stream: StreamName(stream),
                    },
                );
            }
            Call::Flush {
                flush,
                stream,
                offset,
            } => {
                self.check_covered(&stream, offset);
                if fate == 11 {
                    return self.tell(
                        who,
                        Input::FlushFailed {
                            flush,
                            fault: fault(code, Place::RpcEnd),
                        },
                    );
                }
                let result = self.server.flush(&stream, offset);
                let input = match result {
                    _ if fate == 10 => Input::FlushFailed {
                        flush,
                        fault: fault(code, Place::RpcEnd),
                    },
                    Ok(false) if fate == 9 => Input::FlushFailed {
                        flush,
                        fault: fault(Code::AlreadyExists, Place::RpcEnd),
                    },
                    Ok(_) => Input::FlushDone {
                        flush,
                        offset: i64::try_from(offset).unwrap(),
                    },
                    Err(fault) => Input::FlushFailed { flush, fault },
                };
                self.tell(who, input);
            }
        }
    }

    /// The server takes, or refuses, the next request of a connection.
    fn serve(&mut self, who: usize, index: usize) {
        let open = &mut self.subtasks[who].connections[index];
        let (request, offset, rows) = open.requests.pop_front().unwrap();
        let stream = open.stream.clone();
        let fate = if self.mode == Mode::Calm {
            0
        } else {
            self.choose(30)
        };
        let code = [
            Code::Internal,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ][self.choose(4)];
        let answer = match fate {
            29 => Err(fault(code, Place::InBand)),
            28 => {
                drop(self.server.append(&stream, offset, &rows));
                Err(fault(Code::Internal, Place::InBand))
            }
            27 if !self.server.streams[&stream].gone => Err(fault(Code::FailedPrecondition, Place::InBand)),
            25 if offset > 0 => {
                // The server's end is stale (write-api.md 2.7).
                Err(Fault {
                    expected_offset: Some(offset - 1),
                    ..fault(Code::OutOfRange, Place::InBand)
                })
            }
            26 => {
                let gone = &mut self.server.streams.get_mut(&stream).unwrap().gone;
                *gone = true;
                Err(fault(Code::NotFound, Place::InBand))
            }
            _ => self.server.append(&stream, offset, &rows),
        };
        // A stream that is gone with rows of a complete checkpoint would end the run for good (invariant 11).
        let answers = &self.subtasks[who].connections[index].answers;
        let unconfirmed = self
            .store
            .as_ref()
            .is_some_and(|checkpoint| !checkpoint.committed);
        let owed = unconfirmed || self.committing || answers.iter().any(|(_, answer)| answer.is_err());
        let state = self.server.streams.get_mut(&stream).unwrap();
        state.gone &= !owed || state.rows.is_empty();
        if state.gone {
            self.trace.push(format!("{stream} is gone"));
        }
        self.subtasks[who].connections[index]
            .answers
            .push_back((request, answer));
    }

    fn deliver(&mut self, who: usize, index: usize) {
        let ends = self.mode == Mode::FaultsAndCrashes && self.choose(3) == 1;
        let refused = matches!(
            self.subtasks[who].connections[index].answers.front(),
            Some((_, Err(_)))
        );
        if ends && refused {
            return self.end_with_the_answer(who, index);
        }
        let open = &mut self.subtasks[who].connections[index];
        let (request, answer) = open.answers.pop_front().unwrap();
        let connection = open.generation;
        self.tell(
            who,
            match answer {
                Ok(offset) => Input::AppendAcked {
                    connection,
                    request,
                    offset: Some(offset),
                },
                Err(fault) => Input::AppendFailed {
                    connection,
                    request,
                    fault,
                },
            },
        );
    }

    /// The refusal comes as the status of the call, which is no contract either way (write-api.md 3.1).
    fn end_with_the_answer(&mut self, who: usize, index: usize) {
        let open = self.subtasks[who].connections.remove(index);
        let connection = open.generation;
        let fault = Fault {
            place: Place::RpcEnd,
            ..open.answers[0].1.clone().unwrap_err()
        };
        if self.choose(2) == 1 {
            self.zombies.push(open);
        }
        self.meet("answered by the call's end");
        self.tell(who, Input::ConnectionLost { connection, fault });
    }

    /// The connection breaks; requests on their way are lost or land later, answers are lost.
    fn lose_connection(&mut self) {
        let who = self.choose(self.subtasks.len());
        if self.subtasks[who].connections.is_empty() {
            return;
        }
        let open = self.subtasks[who].connections.remove(0);
        let (connection, stream) = (open.generation, open.stream.clone());
        if self.choose(2) == 1 {
            self.zombies.push(open);
        }
        let fencing = if self.server.streams[&stream].gone {
            Code::Internal
        } else {
            Code::FailedPrecondition
        };
        let code = [Code::Unavailable, Code::Aborted, Code::Internal, fencing][self.choose(4)];
        self.tell(
            who,
            Input::ConnectionLost {
                connection,
                fault: fault(code, Place::RpcEnd),
            },
        );
    }

    /// A request of a dead connection lands after all.
    fn zombie(&mut self) {
        if self.zombies.is_empty() {
            return;
        }
        let index = self.choose(self.zombies.len());
        let Some((_, offset, rows)) = self.zombies[index].requests.pop_front() else {
            self.zombies.remove(index);
            return;
        };
        let stream = self.zombies[index].stream.clone();
        if self.server.append(&stream, offset, &rows).is_ok() {
            self.meet("zombie append landed");
        }
    }

    /// Invariant 8: an answer that belongs to no live connection changes nothing.
    fn stale_answer(&mut self) {
        let who = self.choose(self.subtasks.len());
        let connection = Generation(9_999);
        self.tell(
            who,
            Input::AppendAcked {
                connection,
                request: RequestNumber(1),
                offset: Some(0),
            },
        );
        self.tell(
            who,
            Input::ConnectionLost {
                connection,
                fault: fault(Code::Unavailable, Place::RpcEnd),
            },
        );
    }

    // Commands.

    fn tell(&mut self, who: usize, input: Input) {
        self.trace.push(format!("{} {who} <- {input:?}", self.now.0));
        self.subtasks[who].core.handle(self.now, input);
        while let Some(command) = self.subtasks[who].core.poll() {
            self.trace.push(format!("{} {who} -> {command:?}", self.now.0));
            self.carry_out(who, command);
        }
    }

    fn carry_out(&mut self, who: usize, command: Command) {
        let life = self.life;
        let subtask = &mut self.subtasks[who];
        match command {
            Command::CreateStream { lane } => subtask.calls.push(Call::Create { lane }),
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
                let rows = subtask.payloads[&batch].clone();
                let open = subtask
                    .connections
                    .iter_mut()
                    .find(|open| open.generation == connection)
                    .unwrap();
                let place = (open.stream.clone(), offset.0);
                let before = self.assigned.entry(place).or_insert_with(|| rows.clone());
                assert_eq!(
                    *before, rows,
                    "one offset belongs to the same rows for ever (invariant 4)"
                );
                open.requests.push_back((request, offset.0, rows));
            }
            Command::Release { batch } => {
                assert!(
                    subtask.payloads.remove(&batch).is_some(),
                    "a payload is released once"
                );
            }
            Command::Prepared { epoch, state, commit } => {
                assert_eq!(epoch, self.epoch);
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
            Notice::Reconnect { .. } | Notice::Retry { .. } => {}
            Notice::UnprovableAccepted { .. } => unreachable!("the default is to fail"),
        }
    }

    // Checks.

    /// Invariants 3 and 12: what a commit list names is on the stream, from its creator, and not empty.
    fn check_commit_list(&self, commit: &CommitList) {
        for info in &commit.0 {
            assert!(
                info.rows().0 > 0,
                "a commit list names only streams with new rows (invariant 12)"
            );
            let stored = self.server.streams[&info.stream.0].rows.len() as u64;
            assert!(
                info.flush_offset.0 < stored,
                "a flush target counts stored rows (invariant 3)"
            );
        }
    }

    /// Invariant 1: nothing is flushed that no complete checkpoint names.
    fn check_covered(&self, stream: &str, offset: u64) {
        let checkpoint = self
            .store
            .as_ref()
            .expect("no flush before the first complete checkpoint (invariant 1)");
        let named = checkpoint
            .commits
            .iter()
            .flat_map(|bytes| CommitList::decode(bytes).unwrap().0);
        let covered = named
            .into_iter()
            .any(|info| info.stream.0 == stream && info.flush_offset.0 == offset);
        assert!(
            covered,
            "{stream} is flushed to {offset}, which the complete checkpoint does not name (invariant 1)"
        );
    }

    /// Visible rows only grow, and lie before the position of the newest complete checkpoint (invariant 1).
    fn check_visible(&mut self) {
        let visible: BTreeSet<u64> = self.server.visible_rows().into_iter().collect();
        let covered = self.store.as_ref().map_or(0, |checkpoint| checkpoint.next_row);
        assert!(
            visible.iter().all(|row| *row < covered),
            "a row is visible before its checkpoint (invariant 1)"
        );
        assert!(self.visible_before.is_subset(&visible), "a row disappeared");
        self.visible_before = visible;
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
        unprovable: Unprovable::Fail,
    }
}
