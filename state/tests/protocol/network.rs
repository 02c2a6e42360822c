//! What happens to calls on their way there and back: lost, refused, answered late, landing after their sender died.

use bigquery_sink_state::{Code, Fault, Generation, Input, Place, RequestNumber, StreamName};

use crate::host::{Call, Host, Mode};
use crate::server::{fault, too_large_fault};

impl Host {
    pub(crate) fn finish_call(&mut self, who: usize, index: usize) {
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
            Call::Remove { batch, rows } => self.remove_rows(who, batch, &rows),
            Call::Split { batch } => self.split(who, batch),
            Call::Create { lane, destination } => {
                if fate == 11 {
                    return self.tell(
                        who,
                        Input::CreateFailed {
                            lane,
                            fault: fault(code, Place::RpcEnd),
                        },
                    );
                }
                let stream = self.server.create(destination);
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
    pub(crate) fn serve(&mut self, who: usize, index: usize) {
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
            24 if rows.len() > 1 => Err(too_large_fault()),
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

    pub(crate) fn deliver(&mut self, who: usize, index: usize) {
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
    pub(crate) fn end_with_the_answer(&mut self, who: usize, index: usize) {
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
    pub(crate) fn lose_connection(&mut self) {
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
    pub(crate) fn zombie(&mut self) {
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
    pub(crate) fn stale_answer(&mut self) {
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
}
