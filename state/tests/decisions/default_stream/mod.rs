//! The default stream: no offsets, no flush, every answer by itself; what a restore across modes needs.

mod calls;
mod requests;
mod restore;
mod rows;
mod split;

use std::collections::BTreeMap;
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, BigQuerySinkState, Code, Command, CommitList, CoreConfig, DefaultStreamCore, DefaultStreams,
    Epoch, Failure, FailureKind, Fault, Generation, Incarnation, Input, Micros, NextOffset, Place, Replay,
    RequestNumber, RestoredUnion, RowCount, RowErrorPolicy, RowFault, StreamName, StreamState, SubtaskState,
};

use crate::bench::{
    START, acts, batch, commit, config, failure, fault, info, list, lost, notices, refused, state,
};

const TABLE: &str = "t/streams/_default";
const DEAD_LETTERS: &str = "dead/streams/_default";

/// A core on default streams.
struct Bench {
    core: DefaultStreamCore,
    now: Micros,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        let dead_letters = config.row_errors == RowErrorPolicy::DeadLetter;
        let streams = DefaultStreams {
            table: StreamName(TABLE.into()),
            dead_letters: dead_letters.then(|| StreamName(DEAD_LETTERS.into())),
        };
        Self {
            core: DefaultStreamCore::new(config, streams),
            now: START,
        }
    }

    /// Requests 1 to 4 of a row each; the first is acknowledged, the others are under way on connection 1.
    fn flowing() -> Self {
        Self::flowing_with(|_| {})
    }

    fn flowing_with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut bench = Self::with(change);
        for id in 1..=4 {
            bench.tell(batch(id));
        }
        assert_eq!(
            bench.tell(acked(1, 1)),
            [release(1), append(1, 2, 2), append(1, 3, 3), append(1, 4, 4)]
        );
        bench
    }

    fn tell(&mut self, input: Input) -> Vec<Command> {
        self.core.handle(self.now, input);
        std::iter::from_fn(|| self.core.poll()).collect()
    }

    /// Moves on to when the core wants to be woken.
    fn wake(&mut self) -> Vec<Command> {
        let at = self.core.next_wake().expect("something is waited for");
        self.now = self.now.max(at);
        self.tell(Input::Tick)
    }

    /// Answers every request with the fault until the subtask fails, which must be within a day.
    fn exhaust(&mut self, fault: &Fault) -> (Failure, Duration) {
        let mut commands = self.tell(batch(1));
        for _ in 0..10_000 {
            if let Some(failure) = failure(&commands) {
                return (failure, self.now.since(START));
            }
            let sent = commands.iter().find_map(|command| match command {
                Command::Append {
                    connection, request, ..
                } => Some((connection.0, request.0)),
                _ => None,
            });
            commands = match sent {
                Some((connection, request)) => self.tell(refused(connection, request, fault.clone())),
                None => self.wake(),
            };
        }
        panic!("no end after {:?} (invariant 13)", self.now.since(START));
    }
}

fn acked(connection: u64, request: u64) -> Input {
    Input::AppendAcked {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: None,
    }
}

fn append(connection: u64, request: u64, batch: u64) -> Command {
    Command::Append {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: None,
        batch: BatchId(batch),
    }
}

fn connect(connection: u64, stream: &str) -> Command {
    Command::Connect {
        connection: Generation(connection),
        stream: StreamName(stream.into()),
    }
}

fn disconnect(connection: u64) -> Command {
    Command::Disconnect {
        connection: Generation(connection),
    }
}

fn release(batch: u64) -> Command {
    Command::Release {
        batch: BatchId(batch),
    }
}

fn prepared(epoch: u64, rows: u64, now: Micros) -> Command {
    Command::Prepared {
        epoch: Epoch(epoch),
        state: at_least_once(epoch, 0, 1, Incarnation(START.0), now),
        commit: CommitList::default(),
        rows: RowCount(rows),
    }
}

/// A state as this mode writes it.
fn at_least_once(
    epoch: u64,
    subtask: u32,
    parallelism: u32,
    incarnation: Incarnation,
    now: Micros,
) -> SubtaskState {
    let stream = BigQuerySinkState {
        stream: StreamName(TABLE.into()),
        next_offset: NextOffset(0),
        checkpoint_id: Epoch(epoch),
    };
    SubtaskState {
        incarnation,
        streams: vec![StreamState {
            state: stream,
            last_append_micros: now.0,
        }],
        ..state(epoch, subtask, parallelism, list(&[]))
    }
}

fn restored(states: Vec<SubtaskState>, replay: Replay) -> Input {
    let epoch = states[0].checkpoint_id;
    let states: BTreeMap<_, _> = states.into_iter().map(|state| (state.subtask, state)).collect();
    Input::Restored {
        union: RestoredUnion::new("t", epoch, states).unwrap(),
        replay,
    }
}

fn bad_rows(indexes: &[u64]) -> Fault {
    let row = |&index: &u64| RowFault {
        index,
        message: format!("bad {index}"),
    };
    Fault {
        row_errors: indexes.iter().map(row).collect(),
        ..fault(Code::InvalidArgument, Place::InBand)
    }
}

fn host_failure(message: &str) -> Command {
    Command::Fail(Failure {
        kind: FailureKind::Host,
        message: message.into(),
    })
}
