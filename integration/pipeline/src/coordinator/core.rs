//! The order of a checkpoint as pure decisions: barrier, all prepared, complete, commit, all committed, marked, and only then the next.

use std::collections::BTreeSet;

use bigquery_sink::{Barrier, Epoch};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A subtask's sink has started.
    Started(usize),
    /// A subtask has prepared its part.
    Prepared(usize, Epoch),
    /// A reader has reported its position.
    Snapshot(usize, Epoch),
    /// A reader has nothing left.
    SourceEnded(usize),
    /// The checkpoint interval is over.
    IntervalOver,
    /// Stop with a checkpoint.
    Shutdown,
    /// The checkpoint is durable and ours to commit.
    Completed,
    /// A subtask has published its share.
    Committed(usize, Epoch),
    /// The commit is recorded as confirmed.
    Marked,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send it into every reader.
    Barrier(Barrier),
    /// Make the collected checkpoint durable.
    Complete { epoch: Epoch, input_ended: bool },
    /// Let every subtask publish.
    Commit(Epoch),
    /// Record that everything is visible.
    Mark(Epoch),
    /// Let a checkpoint interval pass.
    Wait,
    /// End every subtask.
    Close,
}

/// A message that cannot come at this point; a mistake of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} came while {phase}")]
pub(crate) struct OutOfTurn {
    input: Input,
    phase: &'static str,
}

/// Where a job stands between start and end.
#[derive(Debug)]
pub(crate) struct Core {
    subtasks: usize,
    readers: usize,
    next: Epoch,
    replay: Option<Epoch>,
    phase: Phase,
    ended: BTreeSet<usize>,
    shutdown: bool,
}

#[derive(Debug)]
enum Phase {
    Starting {
        missing: BTreeSet<usize>,
    },
    Idle,
    Aligning {
        barrier: Barrier,
        input_ended: bool,
        unprepared: BTreeSet<usize>,
        unread: BTreeSet<usize>,
    },
    Completing {
        barrier: Barrier,
    },
    /// `then` tells whether this is a replay or the commit of a barrier.
    Committing {
        epoch: Epoch,
        then_stop: bool,
        missing: BTreeSet<usize>,
    },
    Marking {
        then_stop: bool,
    },
    Closing,
}

impl Core {
    /// A job of so many subtasks and readers (none: nothing is left to read) whose next checkpoint is `next`. `replay` names the restored checkpoint
    /// if its commit is not confirmed.
    pub(crate) fn new(subtasks: usize, readers: usize, next: Epoch, replay: Option<Epoch>) -> Self {
        let phase = Phase::Starting {
            missing: (0..subtasks).collect(),
        };
        Self {
            subtasks,
            readers,
            next,
            replay,
            phase,
            ended: BTreeSet::new(),
            shutdown: false,
        }
    }

    /// Whether nothing is under way but the wait for the next checkpoint.
    pub(crate) fn idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether a sink has not started yet.
    pub(crate) fn starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    /// Whether every subtask was told to end.
    pub(crate) fn closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// What is under way, for messages.
    pub(crate) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Starting { .. } => "starting",
            Phase::Idle => "waiting for the next checkpoint",
            Phase::Aligning { .. } => "collecting a checkpoint",
            Phase::Completing { .. } => "completing a checkpoint",
            Phase::Committing { .. } => "committing",
            Phase::Marking { .. } => "recording a commit",
            Phase::Closing => "closing",
        }
    }

    /// Takes what happened; says what to do next.
    pub(crate) fn handle(&mut self, input: Input) -> Result<Option<Action>, OutOfTurn> {
        let out_of_turn = OutOfTurn {
            input,
            phase: self.phase(),
        };
        match (input, &mut self.phase) {
            (Input::Started(subtask), Phase::Starting { missing }) if missing.contains(&subtask) => {
                missing.remove(&subtask);
                let started = missing.is_empty();
                Ok(if started { Some(self.started()) } else { None })
            }
            (Input::SourceEnded(reader), phase) => {
                self.ended.insert(reader);
                let idle = matches!(phase, Phase::Idle);
                Ok(if idle && self.all_ended() {
                    Some(self.settle())
                } else {
                    None
                })
            }
            (Input::Shutdown, phase) => {
                self.shutdown = true;
                let idle = matches!(phase, Phase::Idle);
                Ok(if idle { Some(self.settle()) } else { None })
            }
            (Input::IntervalOver, Phase::Idle) => Ok(Some(self.barrier(false))),
            (
                Input::Prepared(subtask, epoch),
                Phase::Aligning {
                    barrier, unprepared, ..
                },
            ) if barrier.epoch == epoch && unprepared.contains(&subtask) => {
                unprepared.remove(&subtask);
                Ok(self.collected())
            }
            (Input::Snapshot(reader, epoch), Phase::Aligning { barrier, unread, .. })
                if barrier.epoch == epoch && unread.contains(&reader) =>
            {
                unread.remove(&reader);
                Ok(self.collected())
            }
            (Input::Completed, Phase::Completing { barrier }) => {
                let Barrier { epoch, then_stop } = *barrier;
                self.next = Epoch(epoch.0 + 1);
                Ok(Some(self.commit(epoch, then_stop)))
            }
            (
                Input::Committed(subtask, committed),
                Phase::Committing {
                    epoch,
                    then_stop,
                    missing,
                },
            ) if committed == *epoch && missing.contains(&subtask) => {
                missing.remove(&subtask);
                let (epoch, then_stop, done) = (*epoch, *then_stop, missing.is_empty());
                if done {
                    self.phase = Phase::Marking { then_stop };
                }
                Ok(done.then_some(Action::Mark(epoch)))
            }
            (Input::Marked, Phase::Marking { then_stop }) => {
                let action = if *then_stop { self.close() } else { self.settle() };
                Ok(Some(action))
            }
            _ => Err(out_of_turn),
        }
    }

    fn all_ended(&self) -> bool {
        self.ended.len() == self.readers
    }

    fn started(&mut self) -> Action {
        match self.replay.take() {
            Some(epoch) => self.commit(epoch, false),
            None => self.settle(),
        }
    }

    /// Nothing is under way: end, take the last checkpoint, or wait for the next.
    fn settle(&mut self) -> Action {
        if self.readers == 0 {
            return self.close();
        }
        if self.shutdown || self.all_ended() {
            return self.barrier(true);
        }
        self.phase = Phase::Idle;
        Action::Wait
    }

    fn barrier(&mut self, then_stop: bool) -> Action {
        let barrier = Barrier {
            epoch: self.next,
            then_stop,
        };
        self.phase = Phase::Aligning {
            barrier,
            input_ended: self.all_ended(),
            unprepared: (0..self.subtasks).collect(),
            unread: (0..self.readers).collect(),
        };
        Action::Barrier(barrier)
    }

    fn collected(&mut self) -> Option<Action> {
        let Phase::Aligning {
            barrier,
            input_ended,
            unprepared,
            unread,
        } = &self.phase
        else {
            return None;
        };
        if !unprepared.is_empty() || !unread.is_empty() {
            return None;
        }
        let (barrier, input_ended) = (*barrier, *input_ended);
        self.phase = Phase::Completing { barrier };
        Some(Action::Complete {
            epoch: barrier.epoch,
            input_ended,
        })
    }

    fn commit(&mut self, epoch: Epoch, then_stop: bool) -> Action {
        self.phase = Phase::Committing {
            epoch,
            then_stop,
            missing: (0..self.subtasks).collect(),
        };
        Action::Commit(epoch)
    }

    fn close(&mut self) -> Action {
        self.phase = Phase::Closing;
        Action::Close
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Input::{
        Committed, Completed, IntervalOver, Marked, Prepared, Shutdown, Snapshot, SourceEnded, Started,
    };

    fn run(core: &mut Core, inputs: &[Input]) -> Vec<Action> {
        inputs
            .iter()
            .filter_map(|input| core.handle(*input).unwrap())
            .collect()
    }

    fn barrier(epoch: u64, then_stop: bool) -> Action {
        Action::Barrier(Barrier {
            epoch: Epoch(epoch),
            then_stop,
        })
    }

    #[test]
    fn a_checkpoint_goes_from_barrier_to_mark_and_the_next_waits_for_it() {
        let (mut core, one) = (Core::new(2, 1, Epoch(1), None), Epoch(1));
        assert_eq!(run(&mut core, &[Started(1), Started(0)]), [Action::Wait]);
        let actions = run(
            &mut core,
            &[IntervalOver, Prepared(1, one), Snapshot(0, one), Prepared(0, one)],
        );
        assert_eq!(
            actions,
            [
                barrier(1, false),
                Action::Complete {
                    epoch: one,
                    input_ended: false
                }
            ]
        );
        assert_eq!(
            run(&mut core, &[Completed, Committed(0, one)]),
            [Action::Commit(one)]
        );
        let early = core.handle(IntervalOver).unwrap_err();
        assert_eq!(early.to_string(), "IntervalOver came while committing");
        assert_eq!(
            run(&mut core, &[Committed(1, one), Marked]),
            [Action::Mark(one), Action::Wait]
        );
        assert_eq!(run(&mut core, &[IntervalOver]), [barrier(2, false)]);
    }

    #[test]
    fn an_unconfirmed_commit_is_replayed_before_the_first_barrier() {
        let mut core = Core::new(1, 1, Epoch(5), Some(Epoch(4)));
        assert_eq!(
            run(&mut core, &[SourceEnded(0), Started(0)]),
            [Action::Commit(Epoch(4))]
        );
        let actions = run(&mut core, &[Committed(0, Epoch(4)), Marked]);
        assert_eq!(actions, [Action::Mark(Epoch(4)), barrier(5, true)]);
    }

    #[test]
    fn a_finished_job_replays_its_commit_and_closes_without_a_barrier() {
        let mut core = Core::new(1, 0, Epoch(5), Some(Epoch(4)));
        let actions = run(&mut core, &[Started(0), Committed(0, Epoch(4)), Marked]);
        assert_eq!(
            actions,
            [Action::Commit(Epoch(4)), Action::Mark(Epoch(4)), Action::Close]
        );
    }

    #[test]
    fn the_end_of_all_sources_or_a_shutdown_makes_the_next_barrier_the_last() {
        for (ending, input_ended) in [
            (vec![SourceEnded(0), SourceEnded(1)], true),
            (vec![Shutdown], false),
        ] {
            let (mut core, one) = (Core::new(1, 2, Epoch(1), None), Epoch(1));
            assert_eq!(run(&mut core, &[Started(0)]), [Action::Wait]);
            assert_eq!(run(&mut core, &ending), [barrier(1, true)]);
            let actions = run(
                &mut core,
                &[
                    Snapshot(0, one),
                    Snapshot(1, one),
                    Prepared(0, one),
                    Completed,
                    Committed(0, one),
                    Marked,
                ],
            );
            let complete = Action::Complete {
                epoch: one,
                input_ended,
            };
            assert_eq!(
                actions,
                [complete, Action::Commit(one), Action::Mark(one), Action::Close]
            );
        }
    }

    #[test]
    fn a_shutdown_during_a_checkpoint_takes_one_more_as_the_last() {
        let (mut core, one) = (Core::new(1, 1, Epoch(1), None), Epoch(1));
        run(
            &mut core,
            &[
                Started(0),
                IntervalOver,
                Shutdown,
                Snapshot(0, one),
                Prepared(0, one),
                Completed,
            ],
        );
        let actions = run(&mut core, &[Committed(0, one), Marked]);
        assert_eq!(actions, [Action::Mark(one), barrier(2, true)]);
    }

    #[test]
    fn a_second_or_foreign_answer_is_refused() {
        let (mut core, one) = (Core::new(2, 1, Epoch(1), None), Epoch(1));
        run(
            &mut core,
            &[Started(0), Started(1), IntervalOver, Prepared(0, one)],
        );
        assert!(core.handle(Prepared(0, one)).is_err());
        assert!(core.handle(Prepared(1, Epoch(2))).is_err());
        assert!(core.handle(Snapshot(1, one)).is_err());
        assert!(core.handle(Marked).is_err());
    }
}
