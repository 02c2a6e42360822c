//! What can happen next, and what it does.

use std::collections::BTreeMap;

use bigquery_sink_state::{
    BatchId, Code, Epoch, FailureKind, Fault, Generation, Input, Place, RowCount, StorageCode, StreamName,
    SubtaskIndex,
};

use crate::commands::drop_connection;
use crate::part::Part;
use crate::scope::{Ending, Kind, OldLife, Scope};
use crate::server::{FOREIGN, fault, offset_fault};
use crate::world::{Answer, Checkpoint, Life, Orphan, Payload, Phase, Subtask, World};

/// One thing that happens. Lives, subtasks, connections and calls are named by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    // The host of a life.
    Batch {
        life: usize,
    },
    Barrier {
        life: usize,
    },
    Look {
        life: usize,
    },
    Claim {
        life: usize,
    },
    LookAgain {
        life: usize,
    },
    SayCommit {
        life: usize,
        who: usize,
    },
    Mark {
        life: usize,
    },
    EndOfData {
        life: usize,
    },
    Close {
        life: usize,
    },
    /// A core failed: the job starts again from its checkpoint.
    Restart {
        life: usize,
    },
    /// Another host starts.
    TakeOver,
    RepeatCommit {
        life: usize,
        who: usize,
    },
    // The network and the server.
    Create {
        life: usize,
        who: usize,
        fails: bool,
    },
    Serve {
        life: usize,
        who: usize,
        connection: usize,
        fate: Fate,
    },
    Deliver {
        life: usize,
        who: usize,
        connection: usize,
    },
    DeliverAsEnd {
        life: usize,
        who: usize,
        connection: usize,
    },
    Lose {
        life: usize,
        who: usize,
        connection: usize,
        fenced: bool,
    },
    Late {
        life: usize,
        who: usize,
    },
    Flush {
        life: usize,
        who: usize,
        call: usize,
        fails: Option<Failing>,
    },
    Land {
        orphan: usize,
    },
    Expire {
        stream: StreamName,
    },
    ForeignRow {
        stream: StreamName,
    },
    // Time.
    /// A pause is over.
    Tick {
        life: usize,
        who: usize,
    },
    /// No answer came for minutes.
    Overdue {
        life: usize,
        who: usize,
    },
}

/// What becomes of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Served,
    Refused,
    RefusedThoughTaken,
    StaleEnd,
}

/// A flush that fails was done or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    Undone,
    Done,
}

/// A pause is shorter, the wait for an answer longer.
const LONGEST_PAUSE_MICROS: u64 = 60_000_000;

impl World {
    /// Everything that can happen next.
    pub(crate) fn steps(&self, scope: &Scope) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.stopped {
            return steps;
        }
        if let Some(step) = self.alone(scope) {
            return vec![step];
        }
        for life in 0..self.lives.len() {
            self.steps_of_life(scope, life, &mut steps);
        }
        steps.extend((0..self.orphans.len()).map(|orphan| Step::Land { orphan }));
        let running = self
            .newest()
            .is_some_and(|life| !matches!(life.host.phase, Phase::Done | Phase::Ending));
        if self.takeovers > 0 && running {
            steps.push(Step::TakeOver);
        }
        if self.may(scope, Kind::Expired) {
            let streams = self.server.streams.iter();
            let live = streams.filter(|(_, stream)| !stream.gone);
            steps.extend(live.map(|(name, _)| Step::Expire { stream: name.clone() }));
        }
        if self.may(scope, Kind::ForeignRow) {
            let streams = self.server.streams.iter();
            let live = streams.filter(|(_, stream)| !stream.gone);
            steps.extend(live.map(|(name, _)| Step::ForeignRow { stream: name.clone() }));
        }
        steps
    }

    /// A request is served at once where nothing can happen before that makes a difference: no fault is left; nobody else
    /// sends to the stream; no refusal is on its way, for which the core might give the connection up; and no crash, which would make
    /// the request one that may land later. Then serving it commutes with everything else that can happen.
    pub(crate) fn alone(&self, scope: &Scope) -> Option<Step> {
        if self.faults > 0 || self.takeovers > 0 && scope.old_life == OldLife::Crashed {
            return None;
        }
        for (life, lived) in self.lives.iter().enumerate() {
            for (who, subtask) in lived.subtasks.iter().enumerate() {
                for (connection, open) in subtask.connections.iter().enumerate() {
                    let elsewhere = |orphan: &Orphan| orphan.stream() != &open.stream;
                    if !open.requests.is_empty()
                        && open.answers.iter().all(|answer| answer.result.is_ok())
                        && self.orphans.iter().all(elsewhere)
                    {
                        let fate = Fate::Served;
                        return Some(Step::Serve {
                            life,
                            who,
                            connection,
                            fate,
                        });
                    }
                }
            }
        }
        None
    }

    /// Whether a step belongs to the newest life and happens without a fault: the job must always have one until it is done.
    pub(crate) fn goes_on(&self, step: &Step) -> bool {
        let life = match step {
            Step::Batch { life }
            | Step::Barrier { life }
            | Step::Look { life }
            | Step::Claim { life }
            | Step::LookAgain { life }
            | Step::SayCommit { life, .. }
            | Step::Mark { life }
            | Step::EndOfData { life }
            | Step::Close { life }
            | Step::Restart { life }
            | Step::Create {
                life, fails: false, ..
            }
            | Step::Serve {
                life,
                fate: Fate::Served,
                ..
            }
            | Step::Deliver { life, .. }
            | Step::Flush {
                life, fails: None, ..
            }
            | Step::Tick { life, .. } => *life,
            _ => return false,
        };
        self.is_newest(life)
    }

    fn may(&self, scope: &Scope, kind: Kind) -> bool {
        self.faults > 0 && scope.kinds.contains(&kind)
    }

    fn steps_of_life(&self, scope: &Scope, life: usize, steps: &mut Vec<Step>) {
        let subtasks = &self.lives[life].subtasks;
        if subtasks.iter().any(|subtask| subtask.failed.is_some()) {
            steps.push(Step::Restart { life });
            return;
        }
        self.steps_of_host(scope, life, steps);
        for who in 0..subtasks.len() {
            self.steps_of_subtask(scope, life, who, steps);
        }
    }

    fn steps_of_host(&self, scope: &Scope, life: usize, steps: &mut Vec<Step>) {
        let (host, subtasks) = (&self.lives[life].host, &self.lives[life].subtasks);
        let ended = host.position == scope.batches.len();
        if !ended && !matches!(host.phase, Phase::Done | Phase::Ending) {
            let next = &subtasks[host.position % subtasks.len()];
            assert!(next.core.has_room(), "the windows of this model are wide enough");
            if !next.aligning {
                steps.push(Step::Batch { life });
            }
        }
        let all = |is: fn(&Subtask) -> bool| subtasks.iter().all(|subtask| is(subtask));
        match host.phase {
            Phase::Idle => {
                let last = host.epoch.0 + 1 == scope.epochs;
                if scope.ending == Ending::EndOfData && ended {
                    if self.is_newest(life) {
                        steps.push(Step::EndOfData { life });
                    }
                } else if ended || !last {
                    steps.push(Step::Barrier { life });
                }
            }
            Phase::Aligning if all(|subtask| subtask.prepared.is_some()) => steps.push(Step::Look { life }),
            Phase::Looked => steps.push(Step::Claim { life }),
            Phase::Claimed => steps.push(Step::LookAgain { life }),
            Phase::Committing => {
                let untold = (0..subtasks.len()).filter(|who| !subtasks[*who].told);
                steps.extend(untold.map(|who| Step::SayCommit { life, who }));
                if all(|subtask| subtask.committed) {
                    steps.push(Step::Mark { life });
                }
                // Arroyo's sources may end before the restored commit is replayed, which then never comes.
                let untold = all(|subtask| !subtask.told);
                let replay = self
                    .store
                    .last()
                    .is_some_and(|newest| newest.life != self.lives[life].number);
                if scope.ending == Ending::EndOfData && ended && untold && replay && self.is_newest(life) {
                    steps.push(Step::EndOfData { life });
                }
            }
            Phase::Ending if all(|subtask| subtask.closed) => steps.push(Step::Close { life }),
            Phase::Aligning | Phase::Ending | Phase::Done => {}
        }
    }

    fn steps_of_subtask(&self, scope: &Scope, life: usize, who: usize, steps: &mut Vec<Step>) {
        let subtask = &self.lives[life].subtasks[who];
        if !subtask.creating.is_empty() {
            steps.push(Step::Create {
                life,
                who,
                fails: false,
            });
            if self.may(scope, Kind::CreateFailed) {
                steps.push(Step::Create {
                    life,
                    who,
                    fails: true,
                });
            }
        }
        for connection in 0..subtask.connections.len() {
            self.steps_of_connection(scope, (life, who, connection), steps);
        }
        for call in 0..subtask.flushes.len() {
            steps.push(Step::Flush {
                life,
                who,
                call,
                fails: None,
            });
            if self.may(scope, Kind::FlushFailed) {
                for failing in [Failing::Undone, Failing::Done] {
                    steps.push(Step::Flush {
                        life,
                        who,
                        call,
                        fails: Some(failing),
                    });
                }
            }
        }
        if !subtask.late.is_empty() {
            steps.push(Step::Late { life, who });
        }
        if let Some(at) = subtask.core.next_wake() {
            if at.0 <= subtask.clock.0 + LONGEST_PAUSE_MICROS {
                steps.push(Step::Tick { life, who });
            } else if self.may(scope, Kind::Overdue) {
                steps.push(Step::Overdue { life, who });
            }
        }
        let host = &self.lives[life].host;
        let repeatable =
            host.phase == Phase::Idle && self.store.last().is_some_and(|newest| newest.committed);
        if self.may(scope, Kind::CommitRepeated) && repeatable && self.store.len() as u64 == host.epoch.0 {
            steps.push(Step::RepeatCommit { life, who });
        }
    }

    fn steps_of_connection(
        &self,
        scope: &Scope,
        (life, who, connection): (usize, usize, usize),
        steps: &mut Vec<Step>,
    ) {
        let open = &self.lives[life].subtasks[who].connections[connection];
        let gone = self.server.streams[&open.stream].gone;
        if let Some(request) = open.requests.front() {
            let fates = [
                (Fate::Served, true),
                (Fate::Refused, !gone && self.may(scope, Kind::Refused)),
                (
                    Fate::RefusedThoughTaken,
                    !gone && self.may(scope, Kind::RefusedThoughTaken),
                ),
                (
                    Fate::StaleEnd,
                    !gone && request.offset.0 > 0 && self.may(scope, Kind::StaleEnd),
                ),
            ];
            let fates = fates.into_iter().filter(|(_, can)| *can);
            steps.extend(fates.map(|(fate, _)| Step::Serve {
                life,
                who,
                connection,
                fate,
            }));
        }
        if let Some(answer) = open.answers.front() {
            steps.push(Step::Deliver {
                life,
                who,
                connection,
            });
            if answer.result.is_err() && self.may(scope, Kind::AnswerAsEnd) {
                steps.push(Step::DeliverAsEnd {
                    life,
                    who,
                    connection,
                });
            }
        }
        for (kind, fenced) in [(Kind::ConnectionLost, false), (Kind::Fenced, true)] {
            if self.may(scope, kind) {
                steps.push(Step::Lose {
                    life,
                    who,
                    connection,
                    fenced,
                });
            }
        }
    }
}

// What a step does.

impl World {
    pub(crate) fn take(&mut self, scope: &Scope, step: &Step) {
        self.note(|| format!("{step:?}"));
        match *step {
            Step::Batch { life } => self.batch(scope, life),
            Step::Barrier { life } => self.barrier(scope, life),
            Step::Look { life } | Step::LookAgain { life } => self.look(scope, life),
            Step::Claim { life } => self.claim(scope, life),
            Step::SayCommit { life, who } => self.say_commit(scope, life, who),
            Step::Mark { life } => self.mark(scope, life),
            Step::EndOfData { life } => {
                self.lives[life].host.phase = Phase::Ending;
                for who in 0..self.lives[life].subtasks.len() {
                    self.tell(scope, life, who, Input::EndOfData);
                }
            }
            Step::Close { life } => self.lives[life].host.phase = Phase::Done,
            Step::Restart { life } => self.failed(scope, life),
            Step::TakeOver => self.take_over(scope),
            Step::RepeatCommit { life, who } => {
                self.faults -= 1;
                self.lives[life].host.phase = Phase::Committing;
                for (index, subtask) in self.lives[life].subtasks.iter_mut().enumerate() {
                    subtask.edit(|subtask| {
                        subtask.told = true;
                        subtask.committed = index != who;
                    });
                }
                self.say(scope, life, who);
            }
            Step::Create { life, who, fails } => self.create(scope, life, who, fails),
            Step::Serve {
                life,
                who,
                connection,
                fate,
            } => self.serve(life, who, connection, fate),
            Step::Deliver {
                life,
                who,
                connection,
            } => self.deliver(scope, life, who, connection),
            Step::DeliverAsEnd {
                life,
                who,
                connection,
            } => self.deliver_as_end(scope, life, who, connection),
            Step::Lose {
                life,
                who,
                connection,
                fenced,
            } => {
                self.faults -= 1;
                let code = if fenced {
                    Code::FailedPrecondition
                } else {
                    Code::Unavailable
                };
                self.lose(scope, (life, who, connection), fault(code, Place::RpcEnd));
            }
            Step::Late { life, who } => self.tell_late(life, who),
            Step::Flush {
                life,
                who,
                call,
                fails,
            } => self.flush(scope, life, who, call, fails),
            Step::Land { orphan } => self.land(orphan),
            Step::Expire { ref stream } => {
                self.faults -= 1;
                self.server
                    .edit(|server| server.streams.get_mut(stream).unwrap().gone = true);
            }
            Step::ForeignRow { ref stream } => {
                self.faults -= 1;
                self.server
                    .edit(|server| server.streams.get_mut(stream).unwrap().rows.push(FOREIGN));
            }
            Step::Tick { life, who } => self.tick(scope, life, who),
            Step::Overdue { life, who } => {
                self.faults -= 1;
                self.tick(scope, life, who);
            }
        }
        self.check(scope);
        self.forget();
    }

    fn subtask(&mut self, life: usize, who: usize) -> &mut Part<Subtask> {
        &mut self.lives[life].subtasks[who]
    }

    // Host.

    fn batch(&mut self, scope: &Scope, life: usize) {
        let host = &mut self.lives[life].host;
        let index = host.position;
        host.position += 1;
        let first: u8 = scope.batches[..index].iter().sum();
        let rows: Vec<u8> = (first..first + scope.batches[index]).collect();
        let (id, count) = (BatchId(index as u64), rows.len() as u64);
        let who = index % self.lives[life].subtasks.len();
        self.subtask(life, who).edit(|subtask| {
            subtask.handed.extend(&rows);
            subtask.payloads.insert(id, Payload { rows, place: None });
        });
        let input = Input::Batch {
            id,
            rows: RowCount(count),
            bytes: count,
        };
        self.tell(scope, life, who, input);
    }

    fn barrier(&mut self, scope: &Scope, life: usize) {
        let host = &mut self.lives[life].host;
        host.epoch = Epoch(host.epoch.0 + 1);
        host.phase = Phase::Aligning;
        host.at_barrier = host.position;
        let epoch = host.epoch;
        for who in 0..self.lives[life].subtasks.len() {
            self.subtask(life, who).edit(|subtask| subtask.aligning = true);
            self.tell(scope, life, who, Input::Barrier { epoch });
        }
    }

    /// A host that finds a newer one stops.
    fn look(&mut self, scope: &Scope, life: usize) {
        if !self.is_newest(life) {
            return self.end(life);
        }
        let phase = &mut self.lives[life].host.phase;
        *phase = if *phase == Phase::Aligning {
            Phase::Looked
        } else {
            Phase::Committing
        };
        if self.takeovers == 0 && self.lives[life].host.phase == Phase::Looked {
            // Nobody can come between: what the second look finds is what this one found, and the claim alone is seen by others.
            self.claim(scope, life);
        }
    }

    /// Create-if-absent: an epoch is claimed once.
    fn claim(&mut self, scope: &Scope, life: usize) {
        let Life {
            number,
            host,
            subtasks,
        } = &self.lives[life];
        if self.store.len() as u64 >= host.epoch.0 {
            return self.restart(scope, life);
        }
        let (mut states, mut commits) = (BTreeMap::new(), BTreeMap::new());
        for (index, subtask) in (0..).zip(subtasks) {
            let (state, commit) = subtask.prepared.clone().unwrap();
            states.insert(SubtaskIndex(index), state);
            commits.insert(SubtaskIndex(index), commit);
        }
        let checkpoint = Checkpoint {
            life: *number,
            states,
            commits,
            position: host.at_barrier,
            committed: false,
        };
        self.store.edit(|store| store.push(checkpoint));
        self.lives[life].host.phase = match self.takeovers {
            0 if self.is_newest(life) => Phase::Committing,
            _ => Phase::Claimed,
        };
        for subtask in &mut self.lives[life].subtasks {
            subtask.edit(|subtask| {
                subtask.prepared = None;
                subtask.told = false;
                subtask.committed = false;
            });
        }
    }

    fn say_commit(&mut self, scope: &Scope, life: usize, who: usize) {
        self.subtask(life, who).edit(|subtask| subtask.told = true);
        self.say(scope, life, who);
    }

    fn say(&mut self, scope: &Scope, life: usize, who: usize) {
        let epoch = self.lives[life].host.epoch;
        let entries = self.store[epoch.0 as usize - 1].commits.clone();
        let before = self.lives[life].subtasks[who].flushes.len();
        let named: usize = entries.values().map(|list| list.0.len()).sum();
        self.tell(scope, life, who, Input::Commit { epoch, entries });
        let asked = self.lives[life].subtasks[who].flushes.len() - before;
        assert!(
            asked <= named,
            "invariant 12: a commit of {named} entries led to {asked} flushes"
        );
    }

    fn mark(&mut self, scope: &Scope, life: usize) {
        let host = &mut self.lives[life].host;
        let index = host.epoch.0 as usize - 1;
        let ended = host.at_barrier == scope.batches.len() && scope.ending == Ending::Checkpoint;
        host.phase = if ended { Phase::Done } else { Phase::Idle };
        self.store.edit(|store| store[index].committed = true);
    }

    fn failed(&mut self, scope: &Scope, life: usize) {
        let mut kinds = self.lives[life]
            .subtasks
            .iter()
            .filter_map(|subtask| subtask.failed);
        if kinds.any(|kind| kind == FailureKind::Unprovable) {
            self.stopped = true;
            return;
        }
        self.restart(scope, life);
    }

    // Network and server.

    fn create(&mut self, scope: &Scope, life: usize, who: usize, fails: bool) {
        let number = self.lives[life].number;
        let (lane, nth) = self.subtask(life, who).edit(|subtask| {
            subtask.created += u8::from(!fails);
            (subtask.creating.remove(0), subtask.created)
        });
        if fails {
            // Whether it was made makes no difference: nobody knows its name.
            self.faults -= 1;
            let fault = fault(Code::Unavailable, Place::RpcEnd);
            return self.tell(scope, life, who, Input::CreateFailed { lane, fault });
        }
        let stream = StreamName(format!("{number}.{who}.{nth}"));
        self.server.edit(|server| server.create(&stream, (number, who)));
        self.tell(scope, life, who, Input::StreamCreated { lane, stream });
    }

    fn serve(&mut self, life: usize, who: usize, connection: usize, fate: Fate) {
        self.faults -= u8::from(fate != Fate::Served);
        let mut subtask = self.lives[life].subtasks[who].take();
        let open = &mut subtask.connections[connection];
        let request = open.requests.pop_front().unwrap();
        let append = |world: &mut Self| {
            world
                .server
                .edit(|server| server.append(&open.stream, request.offset.0, &request.rows))
        };
        let result = match fate {
            Fate::Served => append(self),
            Fate::Refused => Err(fault(Code::Internal, Place::InBand)),
            Fate::RefusedThoughTaken => {
                // Whatever the server did, this is what it says.
                append(self).ok();
                Err(fault(Code::Internal, Place::InBand))
            }
            Fate::StaleEnd => Err(offset_fault(
                StorageCode::OffsetOutOfRange,
                request.offset.0 - 1,
                request.offset.0,
            )),
        };
        open.answers.push_back(Answer {
            number: request.number,
            result,
        });
        self.lives[life].subtasks[who].put(subtask);
    }

    fn deliver(&mut self, scope: &Scope, life: usize, who: usize, connection: usize) {
        let (generation, answer) = self.subtask(life, who).edit(|subtask| {
            let open = &mut subtask.connections[connection];
            (open.generation, open.answers.pop_front().unwrap())
        });
        self.tell(scope, life, who, answer.input(generation));
    }

    fn deliver_as_end(&mut self, scope: &Scope, life: usize, who: usize, connection: usize) {
        self.faults -= 1;
        let answer = self
            .subtask(life, who)
            .edit(|subtask| subtask.connections[connection].answers.pop_front().unwrap());
        let fault = Fault {
            place: Place::RpcEnd,
            ..answer.result.unwrap_err()
        };
        self.lose(scope, (life, who, connection), fault);
    }

    fn lose(&mut self, scope: &Scope, (life, who, connection): (usize, usize, usize), fault: Fault) {
        let mut subtask = self.lives[life].subtasks[who].take();
        let generation = subtask.connections[connection].generation;
        drop_connection(self, &mut subtask, connection);
        self.lives[life].subtasks[who].put(subtask);
        let connection = generation;
        self.tell(scope, life, who, Input::ConnectionLost { connection, fault });
    }

    fn flush(&mut self, scope: &Scope, life: usize, who: usize, call: usize, fails: Option<Failing>) {
        self.faults -= u8::from(fails.is_some());
        let call = self
            .subtask(life, who)
            .edit(|subtask| subtask.flushes.remove(call));
        let failed = fault(Code::Unavailable, Place::RpcEnd);
        let flush = call.id;
        let input = match fails {
            Some(Failing::Undone) => Input::FlushFailed { flush, fault: failed },
            Some(Failing::Done) => {
                self.published(&call.stream, call.offset).ok();
                Input::FlushFailed { flush, fault: failed }
            }
            None => match self.published(&call.stream, call.offset) {
                Ok(true) => Input::FlushDone {
                    flush,
                    offset: i64::try_from(call.offset).unwrap(),
                },
                // What BigQuery says then is not known; OK is met by the randomized test.
                Ok(false) => Input::FlushFailed {
                    flush,
                    fault: fault(Code::AlreadyExists, Place::RpcEnd),
                },
                Err(fault) => Input::FlushFailed { flush, fault },
            },
        };
        self.tell(scope, life, who, input);
    }

    fn published(&mut self, stream: &StreamName, offset: u64) -> Result<bool, Fault> {
        self.server.edit(|server| server.flush(stream, offset))
    }

    /// Something lands whose sender is gone.
    fn land(&mut self, orphan: usize) {
        let landing = self.orphans.edit(|all| all.remove(orphan));
        match landing {
            Orphan::Flush(stream, offset) => {
                self.published(&stream, offset).ok();
            }
            Orphan::Appends(stream, mut requests) => {
                let (offset, rows) = requests.remove(0);
                // Nobody hears the answer.
                self.server
                    .edit(|server| server.append(&stream, offset.0, &rows))
                    .ok();
                if !requests.is_empty() {
                    self.orphans.edit(|all| {
                        all.push(Orphan::Appends(stream, requests));
                        all.sort();
                    });
                }
            }
        }
    }

    // Time.

    fn tick(&mut self, scope: &Scope, life: usize, who: usize) {
        self.subtask(life, who).edit(|subtask| {
            let wake = subtask.core.next_wake().unwrap();
            subtask.clock = subtask.clock.max(wake);
        });
        self.tell(scope, life, who, Input::Tick);
    }
}

impl Answer {
    pub(crate) fn input(self, connection: Generation) -> Input {
        let request = self.number;
        match self.result {
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
        }
    }
}
