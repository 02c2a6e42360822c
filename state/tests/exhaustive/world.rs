//! Everything there is at one moment: server, store, lives of the job, and what is on its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, CommitList, Core, CoreConfig, Destination, Epoch, FailureKind, Fault, FlushId, Generation,
    Input, Lane, Limits, Micros, NextOffset, Replay, RequestNumber, RestoredUnion, RowErrorPolicy,
    StreamName, SubtaskIndex, SubtaskState, Unprovable,
};

use crate::part::{Part, Print};
use crate::scope::{Ending, OldLife, Scope};
use crate::server::Server;

/// Lives that one job may need: the first, one more for each takeover, each claim lost to a zombie and each restart asked for.
const MOST_LIVES: u8 = 6;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) server: Part<Server>,
    pub(crate) store: Part<Vec<Checkpoint>>,
    /// Oldest first; the last one is the newest unless it has just died.
    pub(crate) lives: Vec<Life>,
    pub(crate) orphans: Part<Vec<Orphan>>,
    pub(crate) started: u8,
    pub(crate) takeovers: u8,
    pub(crate) faults: u8,
    /// The job stopped and asks for an operator (invariant 11).
    pub(crate) stopped: bool,
    /// The job failed after it began to publish its end of data: from here on it is at-least-once (invariant 1's exception).
    pub(crate) excused: bool,
    /// Hard cases that the last step met; no part of what a world is.
    pub(crate) met: BTreeSet<Case>,
    /// What happened, for people; no part of what a world is.
    pub(crate) log: Option<Vec<String>>,
}

/// What an exploration is there for: one that never meets it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Case {
    OwnResendStored,
    EchoDiscarded,
    StaleAnswerDropped,
    StreamLeft,
    StreamLeftWithRows,
    AlreadyFlushed,
    EmptyEpoch,
    RestartAskedFor,
    StoppedForAnOperator,
    /// Somebody who is gone, or does not wait any more, had rows stored.
    OrphanLanded,
    CommitReplayed,
    CommitReplayedByAnother,
    /// A superseded host claimed an epoch.
    ZombieClaimed,
    /// The newest host lost its claim to it.
    ClaimLost,
    /// A superseded life had rows stored.
    ZombieAppended,
    ZombiePrepared,
    ZombieFlushed,
    ZombieFoundOut,
    EndBeforeReplay,
    EndBeforeCommit,
    /// After a row error, requests behind moved up.
    RowsMovedUp,
    /// A stream was left at a row error.
    StreamLeftAtRowError,
    /// Every row of a request was bad.
    RequestEmptied,
    LostWhileRowsAreRemoved,
    /// A barrier, or the end of data, waited for dead letters.
    DeadLettersWanted,
    DeadLettersBeforeBarrier,
}

impl Case {
    pub(crate) const ALL: [Self; 26] = [
        Self::OwnResendStored,
        Self::EchoDiscarded,
        Self::StaleAnswerDropped,
        Self::StreamLeft,
        Self::StreamLeftWithRows,
        Self::AlreadyFlushed,
        Self::EmptyEpoch,
        Self::RestartAskedFor,
        Self::StoppedForAnOperator,
        Self::OrphanLanded,
        Self::CommitReplayed,
        Self::CommitReplayedByAnother,
        Self::ZombieClaimed,
        Self::ClaimLost,
        Self::ZombieAppended,
        Self::ZombiePrepared,
        Self::ZombieFlushed,
        Self::ZombieFoundOut,
        Self::EndBeforeReplay,
        Self::EndBeforeCommit,
        Self::RowsMovedUp,
        Self::StreamLeftAtRowError,
        Self::RequestEmptied,
        Self::LostWhileRowsAreRemoved,
        Self::DeadLettersWanted,
        Self::DeadLettersBeforeBarrier,
    ];
}

/// A complete checkpoint: its epoch is claimed for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Checkpoint {
    pub(crate) life: u8,
    pub(crate) states: BTreeMap<SubtaskIndex, SubtaskState>,
    pub(crate) commits: BTreeMap<SubtaskIndex, CommitList>,
    pub(crate) position: usize,
    pub(crate) committed: bool,
}

/// One incarnation of the job with its host.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Life {
    pub(crate) number: u8,
    pub(crate) host: Host,
    pub(crate) subtasks: Vec<Part<Subtask>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) phase: Phase,
    /// Number of the checkpoint under way, or of the last one.
    pub(crate) epoch: Epoch,
    /// Batches the source has handed out, and how many it had at the last barrier.
    pub(crate) position: usize,
    pub(crate) at_barrier: usize,
}

/// Where a host stands. The order is that of the real host (`store/lease.rs`): look at the generation, claim, look again, commit, mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Aligning,
    Looked,
    Claimed,
    Committing,
    /// End of data: everything is published without a checkpoint.
    Ending,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subtask {
    pub(crate) core: Core,
    pub(crate) clock: Micros,
    pub(crate) payloads: BTreeMap<BatchId, Payload>,
    /// Rows by their index that are to be taken out of a payload.
    pub(crate) removing: Option<(BatchId, Vec<u64>)>,
    /// Refused rows that are not handed over as dead letters yet.
    pub(crate) dead_letters: Vec<u8>,
    /// Rows since the last barrier, and how many of them were there at the barrier.
    pub(crate) handed: Vec<u8>,
    pub(crate) aligning: bool,
    pub(crate) creating: Vec<(Lane, Destination)>,
    pub(crate) created: u8,
    pub(crate) connections: Vec<Connection>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) prepared: Option<(SubtaskState, CommitList)>,
    /// Commit was said, and confirmed.
    pub(crate) told: bool,
    pub(crate) committed: bool,
    pub(crate) closed: bool,
    /// Streams it left, with their frozen ends (invariant 7).
    pub(crate) left: BTreeMap<StreamName, NextOffset>,
    /// Answers of connections it has no more.
    pub(crate) late: VecDeque<(Generation, Answer)>,
    pub(crate) failed: Option<FailureKind>,
}

/// Rows of a request, and where they went last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Payload {
    pub(crate) rows: Vec<u8>,
    pub(crate) place: Option<(StreamName, NextOffset)>,
}

/// An append call: requests in order on their way there, answers on their way back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) generation: Generation,
    pub(crate) stream: StreamName,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) answers: VecDeque<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) number: RequestNumber,
    pub(crate) offset: NextOffset,
    pub(crate) rows: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    pub(crate) number: RequestNumber,
    pub(crate) result: Result<u64, Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flush {
    pub(crate) id: FlushId,
    pub(crate) stream: StreamName,
    pub(crate) offset: u64,
}

/// What somebody sent who does not wait for the answer any more; it may land at any time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Orphan {
    Appends(StreamName, Vec<(NextOffset, Vec<u8>)>),
    Flush(StreamName, u64),
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            server,
            store,
            lives,
            orphans,
            started,
            takeovers,
            faults,
            stopped,
            excused,
            met: _,
            log: _,
        } = self;
        (server, store, lives, orphans).hash(hasher);
        (started, takeovers, faults, stopped, excused).hash(hasher);
    }
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let mut world = Self {
            server: Part::new(Server {
                bad: scope.bad,
                rows_first: scope.rows_first,
                ..Server::default()
            }),
            store: Part::new(Vec::new()),
            lives: Vec::new(),
            orphans: Part::new(Vec::new()),
            started: 0,
            takeovers: scope.takeovers,
            faults: scope.faults,
            stopped: false,
            excused: false,
            met: BTreeSet::new(),
            log: None,
        };
        world.start(scope);
        world
    }

    pub(crate) fn print(&self) -> Print {
        Print::of(self)
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(text());
        }
    }

    pub(crate) fn meet(&mut self, case: Case) {
        self.met.insert(case);
    }

    /// Whether the newest life has come to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.newest().is_some_and(|life| life.host.phase == Phase::Done)
    }

    pub(crate) fn newest(&self) -> Option<&Life> {
        self.lives.last().filter(|life| life.number == self.started)
    }

    pub(crate) fn is_newest(&self, life: usize) -> bool {
        self.lives[life].number == self.started
    }

    // Lives.

    /// A new life from the newest complete checkpoint.
    pub(crate) fn start(&mut self, scope: &Scope) {
        self.started += 1;
        assert!(
            self.started <= MOST_LIVES,
            "the bound of {MOST_LIVES} lives is reached"
        );
        let parallelism = scope.parallelism(self.started);
        let restored = self.store.last();
        let subtasks = (0..parallelism).map(|index| self.new_subtask(scope, index, parallelism));
        let mut host = Host {
            phase: Phase::Idle,
            epoch: Epoch(self.store.len() as u64),
            position: restored.map_or(0, |checkpoint| checkpoint.position),
            at_barrier: 0,
        };
        host.at_barrier = host.position;
        if let Some(checkpoint) = restored {
            let ended = checkpoint.position == scope.batches.len() && scope.ending == Ending::Checkpoint;
            host.phase = match checkpoint.committed {
                false => Phase::Committing,
                true if ended => Phase::Done,
                true => Phase::Idle,
            };
        }
        let life = Life {
            number: self.started,
            host,
            subtasks: subtasks.map(Part::new).collect(),
        };
        self.lives.push(life);
    }

    fn new_subtask(&self, scope: &Scope, index: usize, parallelism: usize) -> Subtask {
        let clock = Micros(1_000_000_000 + u64::from(self.started));
        let mut core = Core::new(CoreConfig {
            table: "t".into(),
            subtask: SubtaskIndex(u32::try_from(index).unwrap()),
            parallelism: u32::try_from(parallelism).unwrap(),
            streams: scope.lanes,
            row_errors: if scope.has_dead_letters() {
                RowErrorPolicy::DeadLetter
            } else {
                RowErrorPolicy::Fail
            },
            started_at: clock,
            limits: limits(),
            mutation: scope.mutation,
        });
        if let Some(checkpoint) = self.store.last() {
            let epoch = Epoch(self.store.len() as u64);
            let union = RestoredUnion::new("t", epoch, checkpoint.states.clone()).unwrap();
            let replay = match (checkpoint.committed, scope.ending) {
                (true, _) => Replay::Confirmed,
                (false, Ending::Checkpoint) => Replay::Expected,
                (false, Ending::EndOfData) => Replay::Unknown,
            };
            core.handle(clock, Input::Restored { union, replay });
            assert_eq!(
                core.poll(),
                None,
                "invariant 2: a restore asks for nothing, and for no stream before the first rows"
            );
        }
        Subtask {
            core,
            clock,
            payloads: BTreeMap::new(),
            removing: None,
            dead_letters: Vec::new(),
            handed: Vec::new(),
            aligning: false,
            creating: Vec::new(),
            created: 0,
            connections: Vec::new(),
            flushes: Vec::new(),
            prepared: None,
            told: false,
            committed: false,
            closed: false,
            left: BTreeMap::new(),
            late: VecDeque::new(),
            failed: None,
        }
    }

    /// Another host starts; the old one crashed, or has not noticed yet.
    pub(crate) fn take_over(&mut self, scope: &Scope) {
        self.takeovers -= 1;
        if scope.old_life == OldLife::Crashed {
            self.end(self.lives.len() - 1);
        }
        self.start(scope);
    }

    /// A life ends; what it had sent may still land.
    pub(crate) fn end(&mut self, life: usize) {
        let ended = self.lives.remove(life);
        for subtask in &ended.subtasks {
            let flushes = subtask.flushes.iter();
            let flushes = flushes.map(|flush| Orphan::Flush(flush.stream.clone(), flush.offset));
            let appends = subtask.connections.iter().filter_map(Connection::orphan);
            let orphans: Vec<Orphan> = flushes.chain(appends).collect();
            self.orphans.edit(|all| all.extend(orphans));
        }
        self.orphans.edit(|all| all.sort());
    }

    /// Drops streams, and what may land on them, that nobody can name any more: their creator is dead and no complete checkpoint
    /// names them.
    pub(crate) fn forget(&mut self) {
        let living: Vec<u8> = self.lives.iter().map(|life| life.number).collect();
        let named = |name: &StreamName| {
            self.store.iter().any(|checkpoint| {
                let states = checkpoint.states.values();
                let mut streams = states.flat_map(|state| &state.streams);
                streams.any(|stream| stream.state.stream == *name)
            })
        };
        let streams = self.server.streams.iter();
        let forgotten: Vec<StreamName> = streams
            .filter(|(name, stream)| !living.contains(&stream.creator.0) && !named(name))
            .map(|(name, _)| name.clone())
            .collect();
        if forgotten.is_empty() {
            return;
        }
        self.server
            .edit(|server| server.streams.retain(|name, _| !forgotten.contains(name)));
        self.orphans
            .edit(|all| all.retain(|orphan| !forgotten.contains(orphan.stream())));
    }

    /// The job starts again from its newest checkpoint, unless a newer life runs already.
    pub(crate) fn restart(&mut self, scope: &Scope, life: usize) {
        let newest = self.is_newest(life);
        self.end(life);
        if newest {
            self.start(scope);
        }
    }
}

impl Orphan {
    pub(crate) fn stream(&self) -> &StreamName {
        match self {
            Self::Appends(stream, _) | Self::Flush(stream, _) => stream,
        }
    }
}

impl Connection {
    /// What is left of a connection that nobody holds any more.
    pub(crate) fn orphan(&self) -> Option<Orphan> {
        let requests = self.requests.iter();
        let requests: Vec<_> = requests
            .map(|request| (request.offset, request.rows.clone()))
            .collect();
        (!requests.is_empty()).then(|| Orphan::Appends(self.stream.clone(), requests))
    }
}

/// Windows wide enough for every batch; a commit that is patient for two tries.
fn limits() -> Limits {
    Limits {
        append_bytes: 1_000_000,
        inflight_bytes: 10_000_000,
        inflight_requests: 100,
        inflight_time: Duration::from_secs(2),
        append_timeout: Duration::from_secs(300),
        commit_timeout: Duration::from_millis(300),
        quota_timeout: Duration::from_secs(900),
        unknown_table: Duration::from_secs(60),
        unprovable: Unprovable::Fail,
    }
}
