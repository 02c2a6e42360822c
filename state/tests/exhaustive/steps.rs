//! What can happen next.

use bigquery_sink_state::StreamName;

use crate::scope::{Ending, Kind, Scope};
use crate::world::{Phase, Subtask, World};

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
    /// Bad rows are taken out of a payload.
    Remove {
        life: usize,
        who: usize,
    },
    /// All dead letters that are owed are handed over.
    DeadLetters {
        life: usize,
        who: usize,
    },
    // The network and the server.
    Create {
        life: usize,
        who: usize,
        call: usize,
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
        if self.stopped || self.excused {
            return Vec::new();
        }
        if let Some(first) = self.reduced(scope) {
            return first;
        }
        let mut steps = Vec::new();
        for life in 0..self.lives.len() {
            steps.extend(self.steps_of(scope, life));
        }
        self.steps_of_streams(scope, &mut steps);
        steps.extend((0..self.orphans.len()).map(|orphan| Step::Land { orphan }));
        let running = self
            .newest()
            .is_some_and(|life| !matches!(life.host.phase, Phase::Done | Phase::Ending));
        if self.takeovers > 0 && running {
            steps.push(Step::TakeOver);
        }
        steps
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
            | Step::Remove { life, .. }
            | Step::DeadLetters { life, .. }
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

    pub(crate) fn may(&self, scope: &Scope, life: u8, kind: Kind) -> bool {
        self.faults > 0 && scope.kinds.contains(&kind) && scope.faulty.contains(&life)
    }

    /// What a life can do, and what can happen to it and its streams.
    pub(crate) fn steps_of(&self, scope: &Scope, life: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        self.steps_of_life(scope, life, &mut steps);
        steps
    }

    fn steps_of_streams(&self, scope: &Scope, steps: &mut Vec<Step>) {
        for (name, stream) in self.server.streams.iter().filter(|(_, stream)| !stream.gone) {
            if self.may(scope, stream.creator.0, Kind::Expired) {
                steps.push(Step::Expire { stream: name.clone() });
            }
            if self.may(scope, stream.creator.0, Kind::ForeignRow) {
                steps.push(Step::ForeignRow { stream: name.clone() });
            }
        }
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
                let closes = ended && scope.ending == Ending::EndOfData;
                if !closes && (ended || !last) {
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
            }
            Phase::Ending if all(|subtask| subtask.closed) => steps.push(Step::Close { life }),
            Phase::Aligning | Phase::Ending | Phase::Done => {}
        }
        // Arroyo's sources may end at any time between barriers and commits, of which those that are under way then never come. A life
        // that is superseded publishes no end of data in this model: README says what a failure after it may do.
        let running = !matches!(host.phase, Phase::Ending | Phase::Done);
        let settled = all(|subtask| !subtask.aligning && (!subtask.told || subtask.committed));
        if scope.ending == Ending::EndOfData && running && ended && settled && self.is_newest(life) {
            steps.push(Step::EndOfData { life });
        }
    }

    fn steps_of_subtask(&self, scope: &Scope, life: usize, who: usize, steps: &mut Vec<Step>) {
        let number = self.lives[life].number;
        let subtask = &self.lives[life].subtasks[who];
        if subtask.removing.is_some() {
            steps.push(Step::Remove { life, who });
        }
        if !subtask.dead_letters.is_empty() {
            steps.push(Step::DeadLetters { life, who });
        }
        for call in 0..subtask.creating.len() {
            let fates = [false, true].into_iter();
            let fates = fates.filter(|fails| !fails || self.may(scope, number, Kind::CreateFailed));
            steps.extend(fates.map(|fails| Step::Create {
                life,
                who,
                call,
                fails,
            }));
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
            if self.may(scope, number, Kind::FlushFailed) {
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
            } else if self.may(scope, number, Kind::Overdue) {
                steps.push(Step::Overdue { life, who });
            }
        }
        let host = &self.lives[life].host;
        let repeatable =
            host.phase == Phase::Idle && self.store.last().is_some_and(|newest| newest.committed);
        if self.may(scope, number, Kind::CommitRepeated)
            && repeatable
            && self.store.len() as u64 == host.epoch.0
        {
            steps.push(Step::RepeatCommit { life, who });
        }
    }

    fn steps_of_connection(
        &self,
        scope: &Scope,
        (life, who, connection): (usize, usize, usize),
        steps: &mut Vec<Step>,
    ) {
        let number = self.lives[life].number;
        let open = &self.lives[life].subtasks[who].connections[connection];
        let gone = self.server.streams[&open.stream].gone;
        if let Some(request) = open.requests.front() {
            let fates = [
                (Fate::Served, true),
                (Fate::Refused, !gone && self.may(scope, number, Kind::Refused)),
                (
                    Fate::RefusedThoughTaken,
                    !gone && self.may(scope, number, Kind::RefusedThoughTaken),
                ),
                (
                    Fate::StaleEnd,
                    !gone && request.offset.0 > 0 && self.may(scope, number, Kind::StaleEnd),
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
            if answer.result.is_err() && self.may(scope, number, Kind::AnswerAsEnd) {
                steps.push(Step::DeliverAsEnd {
                    life,
                    who,
                    connection,
                });
            }
        }
        for (kind, fenced) in [(Kind::ConnectionLost, false), (Kind::Fenced, true)] {
            if self.may(scope, number, kind) {
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
