//! What a step does.

use std::collections::BTreeMap;

use bigquery_sink_state::{
    BatchId, Code, Destination, Epoch, FailureKind, Fault, Generation, Input, Place, RowCount, StorageCode,
    StreamName, SubtaskIndex,
};

use crate::commands::drop_connection;
use crate::part::Part;
use crate::scope::{Ending, Scope};
use crate::server::{FOREIGN, fault, offset_fault};
use crate::steps::{Failing, Fate, Step};
use crate::world::{Answer, Case, Checkpoint, Life, Orphan, Payload, Phase, Subtask, World};

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
                let number = self.lives[life].number;
                let open = self.store.last().filter(|newest| !newest.committed);
                if let Some(open) = open.map(|open| open.life) {
                    self.meet(if open == number {
                        Case::EndBeforeCommit
                    } else {
                        Case::EndBeforeReplay
                    });
                }
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
            Step::Remove { life, who } => self.remove_rows(scope, life, who),
            Step::DeadLetters { life, who } => self.dead_letters(scope, life, who),
            Step::Create {
                life,
                who,
                call,
                fails,
            } => self.create(scope, life, who, call, fails),
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
        let who = index % self.lives[life].subtasks.len();
        self.subtask(life, who)
            .edit(|subtask| subtask.handed.extend(&rows));
        let (refused, rows): (Vec<u8>, Vec<u8>) =
            rows.into_iter().partition(|row| scope.unencodable.contains(row));
        if !refused.is_empty() {
            let rows = RowCount(refused.len() as u64);
            self.subtask(life, who)
                .edit(|subtask| subtask.dead_letters.extend(refused));
            self.tell(scope, life, who, Input::RowsRefused { rows });
        }
        if !rows.is_empty() {
            self.hand_over(
                scope,
                (life, who),
                Destination::Table,
                BatchId(index as u64),
                rows,
            );
        }
    }

    fn hand_over(
        &mut self,
        scope: &Scope,
        (life, who): (usize, usize),
        destination: Destination,
        id: BatchId,
        rows: Vec<u8>,
    ) {
        let count = rows.len() as u64;
        self.subtask(life, who)
            .edit(|subtask| subtask.payloads.insert(id, Payload { rows, place: None }));
        let input = Input::Batch {
            destination,
            id,
            rows: RowCount(count),
            bytes: count,
        };
        self.tell(scope, life, who, input);
    }

    fn remove_rows(&mut self, scope: &Scope, life: usize, who: usize) {
        let (batch, left, dead_letters) = self.subtask(life, who).edit(|subtask| {
            let (batch, indexes) = subtask.removing.take().unwrap();
            let payload = subtask.payloads.get_mut(&batch).unwrap();
            let before = payload.rows.len();
            let (mut index, dead_letters) = (0, &mut subtask.dead_letters);
            payload.rows.retain(|row| {
                let bad = indexes.contains(&index);
                index += 1;
                if bad {
                    dead_letters.push(*row);
                }
                !bad
            });
            let left = payload.rows.len();
            (batch, left as u64, (before - left) as u64)
        });
        if left == 0 {
            self.meet(Case::RequestEmptied);
        }
        let input = Input::RowsRemoved {
            batch,
            rows: RowCount(left),
            bytes: left,
            dead_letters: RowCount(dead_letters),
        };
        self.tell(scope, life, who, input);
    }

    fn dead_letters(&mut self, scope: &Scope, life: usize, who: usize) {
        let rows = self
            .subtask(life, who)
            .edit(|subtask| std::mem::take(&mut subtask.dead_letters));
        self.meet(if self.lives[life].subtasks[who].core.wants_dead_letters() {
            Case::DeadLettersWanted
        } else {
            Case::DeadLettersBeforeBarrier
        });
        // A row becomes a dead letter once in a life.
        let id = BatchId(100 + u64::from(rows[0]));
        self.hand_over(scope, (life, who), Destination::DeadLetters, id, rows);
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
            self.meet(Case::ZombieFoundOut);
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
            if self.is_newest(life) {
                self.meet(Case::ClaimLost);
            }
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
        if !self.is_newest(life) {
            self.meet(Case::ZombieClaimed);
        }
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
        let number = self.lives[life].number;
        if self.store[epoch.0 as usize - 1].life != number {
            self.meet(Case::CommitReplayed);
            let others = entries
                .iter()
                .filter(|(old, list)| old.0 as usize != who && !list.0.is_empty());
            let parallelism = self.lives[life].subtasks.len();
            if others
                .into_iter()
                .any(|(old, _)| old.0 as usize % parallelism == who)
            {
                self.meet(Case::CommitReplayedByAnother);
            }
        }
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
        if kinds.any(|kind| kind == FailureKind::Unprovable) && self.is_newest(life) {
            self.stopped = true;
            self.meet(Case::StoppedForAnOperator);
            return;
        }
        self.meet(Case::RestartAskedFor);
        if self.lives[life].host.phase == Phase::Ending {
            self.excused = true;
            return;
        }
        self.restart(scope, life);
    }

    // Network and server.

    fn create(&mut self, scope: &Scope, life: usize, who: usize, call: usize, fails: bool) {
        let number = self.lives[life].number;
        let ((lane, destination), nth) = self.subtask(life, who).edit(|subtask| {
            subtask.created += u8::from(!fails);
            (subtask.creating.remove(call), subtask.created)
        });
        if fails {
            // Whether it was made makes no difference: nobody knows its name.
            self.faults -= 1;
            let fault = fault(Code::Unavailable, Place::RpcEnd);
            return self.tell(scope, life, who, Input::CreateFailed { lane, fault });
        }
        let stream = StreamName(format!("{number}.{who}.{nth}"));
        self.server
            .edit(|server| server.create(&stream, (number, who), destination));
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
            Fate::Served => {
                let result = append(self);
                if result.is_ok() && !self.is_newest(life) {
                    self.meet(Case::ZombieAppended);
                }
                result
            }
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
        if subtask.removing.is_some() {
            self.meet(Case::LostWhileRowsAreRemoved);
        }
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
                Ok(false) if call.offset % 2 == 1 => Input::FlushFailed {
                    flush,
                    fault: fault(Code::AlreadyExists, Place::RpcEnd),
                },
                // What BigQuery says of a flush that changes nothing is not known; an answer may name an end beyond what was asked.
                Ok(moved) => {
                    if moved && !self.is_newest(life) {
                        self.meet(Case::ZombieFlushed);
                    }
                    let cursor = self.server.streams[&call.stream].flushed - 1;
                    Input::FlushDone {
                        flush,
                        offset: i64::try_from(cursor).unwrap(),
                    }
                }
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
                let landed = self.server.edit(|server| server.append(&stream, offset.0, &rows));
                if landed.is_ok() {
                    self.meet(Case::OrphanLanded);
                }
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
        let subtask = &self.lives[life].subtasks[who];
        assert!(
            subtask.core.next_wake().is_none_or(|at| at > subtask.clock),
            "what was due is done, or the driver would do nothing else (invariant 13)"
        );
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
