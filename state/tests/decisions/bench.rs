//! A core with its commands collected, and short words for inputs.

use std::collections::BTreeMap;
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, BigQueryCommitInfo, Code, Command, CommitList, Core, CoreConfig, Destination, Epoch, Failure,
    Fault, FlushOffset, Generation, Incarnation, Input, Lane, Limits, Micros, Mutation, NextOffset, Notice,
    Place, Replay, RequestNumber, RestoredUnion, RowCount, RowErrorPolicy, StreamName, SubtaskIndex,
    SubtaskState, Unprovable,
};

pub(crate) const START: Micros = Micros(1_000_000_000);

/// Far more than any decision takes, so that a core which goes on for ever fails a test instead of holding it up.
const MOST_INPUTS: usize = 20_000;
const MOST_COMMANDS: usize = 1_000;

pub(crate) fn config() -> CoreConfig {
    CoreConfig {
        table: "t".into(),
        subtask: SubtaskIndex(0),
        parallelism: 1,
        streams: 1,
        row_errors: RowErrorPolicy::Fail,
        started_at: START,
        limits: Limits {
            append_bytes: 1_000,
            inflight_bytes: 100_000,
            inflight_requests: 100,
            inflight_time: Duration::from_secs(2),
            append_timeout: Duration::from_secs(300),
            commit_timeout: Duration::from_secs(600),
            quota_timeout: Duration::from_secs(900),
            unknown_table: Duration::from_secs(60),
            unprovable: Unprovable::Fail,
        },
        mutation: Mutation::default(),
    }
}

pub(crate) struct Bench {
    pub(crate) core: Core,
    pub(crate) now: Micros,
    told: usize,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        Self {
            core: Core::new(config),
            now: START,
            told: 0,
        }
    }

    /// A core with stream `s1` open on connection 1.
    pub(crate) fn open() -> Self {
        let mut bench = Self::new();
        bench.tell(batch(1));
        bench.tell(created("s1"));
        bench
    }

    /// A core whose stream `s1` has one row acknowledged, so that requests flow freely on connection 1.
    pub(crate) fn flowing() -> Self {
        let mut bench = Self::open();
        bench.tell(acked(1, 1, 0));
        bench
    }

    /// Answers every request with the fault, on whatever stream and connection, until the subtask fails.
    pub(crate) fn exhaust(&mut self, fault: &Fault) -> Failure {
        let mut latest = (1, 1);
        for round in 0..100_000 {
            let mut commands = self.tell(refused(latest.0, latest.1, fault.clone()));
            loop {
                if let Some(failure) = failure(&commands) {
                    return failure;
                }
                let sent = commands.iter().find_map(|command| match command {
                    Command::Append {
                        connection, request, ..
                    } => Some((connection.0, request.0)),
                    _ => None,
                });
                if let Some(sent) = sent {
                    latest = sent;
                    break;
                }
                let creates = commands
                    .iter()
                    .any(|command| matches!(command, Command::CreateStream { .. }));
                commands = if creates {
                    self.tell(created(&format!("new{round}")))
                } else {
                    self.wake()
                };
            }
            self.now = self.now.after(Duration::from_millis(10));
        }
        panic!("no end after {:?} (invariant 13)", self.now.since(START));
    }

    /// A core whose stream `s1` holds one row that epoch 1 prepared.
    pub(crate) fn prepared(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut bench = Self::with(change);
        bench.tell(batch(1));
        bench.tell(created("s1"));
        bench.tell(acked(1, 1, 0));
        bench.tell(Input::Barrier { epoch: Epoch(1) });
        bench
    }

    pub(crate) fn tell(&mut self, input: Input) -> Vec<Command> {
        self.told += 1;
        assert!(self.told <= MOST_INPUTS, "no end is in sight (invariant 13)");
        self.core.handle(self.now, input);
        let commands: Vec<Command> = std::iter::from_fn(|| self.core.poll())
            .take(MOST_COMMANDS)
            .collect();
        assert!(commands.len() < MOST_COMMANDS, "commands without end");
        commands
    }

    pub(crate) fn later(&mut self, duration: Duration, input: Input) -> Vec<Command> {
        self.now = self.now.after(duration);
        self.tell(input)
    }

    /// Moves on to when the core wants to be woken.
    pub(crate) fn wake(&mut self) -> Vec<Command> {
        self.now = self
            .core
            .next_wake()
            .expect("something is waited for")
            .max(self.now);
        self.tell(Input::Tick)
    }
}

/// Commands without notices.
pub(crate) fn acts(commands: Vec<Command>) -> Vec<Command> {
    commands
        .into_iter()
        .filter(|command| !matches!(command, Command::Notice(_)))
        .collect()
}

pub(crate) fn notices(commands: &[Command]) -> Vec<Notice> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Notice(notice) => Some(notice.clone()),
            _ => None,
        })
        .collect()
}

pub(crate) fn failure(commands: &[Command]) -> Option<Failure> {
    commands.iter().find_map(|command| match command {
        Command::Fail(failure) => Some(failure.clone()),
        _ => None,
    })
}

pub(crate) fn batch(id: u64) -> Input {
    Input::Batch {
        destination: Destination::Table,
        id: BatchId(id),
        rows: RowCount(1),
        bytes: 100,
    }
}

pub(crate) fn created(stream: &str) -> Input {
    Input::StreamCreated {
        lane: Lane(0),
        stream: StreamName(stream.into()),
    }
}

pub(crate) fn acked(connection: u64, request: u64, offset: u64) -> Input {
    Input::AppendAcked {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: Some(offset),
    }
}

pub(crate) fn refused(connection: u64, request: u64, fault: Fault) -> Input {
    Input::AppendFailed {
        connection: Generation(connection),
        request: RequestNumber(request),
        fault,
    }
}

pub(crate) fn lost(connection: u64, code: Code) -> Input {
    Input::ConnectionLost {
        connection: Generation(connection),
        fault: fault(code, Place::RpcEnd),
    }
}

pub(crate) fn append(connection: u64, request: u64, offset: u64, batch: u64) -> Command {
    Command::Append {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: Some(NextOffset(offset)),
        batch: BatchId(batch),
    }
}

pub(crate) fn create(lane: usize) -> Command {
    Command::CreateStream {
        lane: Lane(lane),
        destination: Destination::Table,
    }
}

pub(crate) fn connect(connection: u64, stream: &str) -> Command {
    Command::Connect {
        connection: Generation(connection),
        stream: StreamName(stream.into()),
    }
}

pub(crate) fn fault(code: Code, place: Place) -> Fault {
    Fault {
        code,
        storage_code: None,
        place,
        expected_offset: None,
        row_errors: Vec::new(),
        message: "text".into(),
    }
}

pub(crate) fn offset_fault(code: Code, expected: u64) -> Fault {
    Fault {
        expected_offset: Some(expected),
        ..fault(code, Place::InBand)
    }
}

pub(crate) fn info(stream: &str, from: u64, to: u64) -> BigQueryCommitInfo {
    BigQueryCommitInfo {
        stream: StreamName(stream.into()),
        from_offset: NextOffset(from),
        flush_offset: FlushOffset(to),
    }
}

pub(crate) fn list(infos: &[BigQueryCommitInfo]) -> CommitList {
    CommitList(infos.to_vec())
}

pub(crate) fn commit(epoch: u64, entries: &[(u32, CommitList)]) -> Input {
    Input::Commit {
        epoch: Epoch(epoch),
        entries: entries
            .iter()
            .map(|(i, l)| (SubtaskIndex(*i), l.clone()))
            .collect(),
    }
}

pub(crate) fn state(epoch: u64, subtask: u32, parallelism: u32, commit: CommitList) -> SubtaskState {
    SubtaskState {
        checkpoint_id: Epoch(epoch),
        subtask: SubtaskIndex(subtask),
        parallelism,
        incarnation: Incarnation(7),
        table: "t".into(),
        streams: vec![],
        commit,
    }
}

pub(crate) fn restored(epoch: u64, states: Vec<SubtaskState>, replay: Replay) -> Input {
    let states: BTreeMap<_, _> = states.into_iter().map(|state| (state.subtask, state)).collect();
    Input::Restored {
        union: RestoredUnion::new("t", Epoch(epoch), states).unwrap(),
        replay,
    }
}
