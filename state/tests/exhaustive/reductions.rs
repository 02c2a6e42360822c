//! Where the order of what can happen makes no difference, one order is taken. In the words of partial-order reduction: what is
//! taken first is a persistent set; nothing outside of it that can happen before is told apart from it by a core or a check.

use crate::scope::{Kind, OldLife, Scope};
use crate::steps::{Fate, Step};
use crate::world::{Orphan, World};

impl World {
    /// What to look at alone, if there is such.
    pub(crate) fn reduced(&self, scope: &Scope) -> Option<Vec<Step>> {
        if !scope.reduced {
            return None;
        }
        self.served_first(scope)
            .map(|step| vec![step])
            .or_else(|| self.landings_first(scope))
            .or_else(|| self.one_life_first(scope))
    }

    /// A request is served at once where nothing can happen before that makes a difference: no fault is left for its life; nobody else
    /// sends to the stream; no refusal is on its way, for which the core might give the connection up; and no crash, which would make
    /// the request one that may land later. Then serving it commutes with everything else that can happen.
    fn served_first(&self, scope: &Scope) -> Option<Step> {
        if self.takeovers > 0 && scope.old_life == OldLife::Crashed {
            return None;
        }
        for (life, lived) in self.lives.iter().enumerate() {
            if self.faults > 0 && scope.faulty.contains(&lived.number) {
                continue;
            }
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

    /// What lands on a stream that nobody writes any more (invariant 2, which is checked with each append) lands first, in every
    /// order: it commutes with everything but other landings there.
    fn landings_first(&self, scope: &Scope) -> Option<Vec<Step>> {
        let over = |orphan: &Orphan| {
            let Orphan::Appends(stream, _) = orphan else {
                return false;
            };
            let (number, who) = self.server.streams[stream].creator;
            if self.may_change_by_itself(scope, number) {
                return false;
            }
            let mut creators = self.lives.iter().filter(|life| life.number == number);
            creators.all(|life| life.subtasks[who].left.contains_key(stream))
        };
        let stream = self.orphans.iter().find(|orphan| over(orphan))?.stream();
        Some(self.landings(|orphan| orphan.stream() == stream))
    }

    /// Whether something may still happen to the streams of a life by itself.
    fn may_change_by_itself(&self, scope: &Scope, life: u8) -> bool {
        [Kind::Expired, Kind::ForeignRow]
            .into_iter()
            .any(|kind| self.may(scope, life, kind))
    }

    fn landings(&self, of: impl Fn(&Orphan) -> bool) -> Vec<Step> {
        let appends = self.orphans.iter().enumerate();
        appends
            .filter(|(_, orphan)| matches!(orphan, Orphan::Appends(..)) && of(orphan))
            .map(|(orphan, _)| Step::Land { orphan })
            .collect()
    }

    /// A life goes first while all it can do concerns itself and its streams alone: what it does then commutes with everything
    /// that other lives can do.
    fn one_life_first(&self, scope: &Scope) -> Option<Vec<Step>> {
        if self.takeovers > 0 || self.lives.len() == 1 {
            return None;
        }
        let lives = 0..self.lives.len();
        lives
            .filter_map(|life| self.concerns_alone(scope, life))
            .find(|steps| !steps.is_empty())
    }

    /// All that a life can do and that can happen to it, if it concerns that life alone. Its claims, marks and flushes do not, nor
    /// the start of a next life, nor what happens to a stream by itself, nor a fault that could happen to another life just as well.
    fn concerns_alone(&self, scope: &Scope, life: usize) -> Option<Vec<Step>> {
        let (number, newest) = (self.lives[life].number, self.is_newest(life));
        let faulty = |number: u8| self.faults > 0 && scope.faulty.contains(&number);
        let mut others = self.lives.iter().filter(|other| other.number != number);
        if faulty(number) && (others.any(|other| faulty(other.number)) || !newest && faulty(number + 1)) {
            return None;
        }
        if self.may_change_by_itself(scope, number) || self.may(scope, number, Kind::CommitRepeated) {
            return None;
        }
        let mut steps = self.steps_of(scope, life);
        let seen_by_others = |step: &Step| match step {
            Step::Claim { .. } | Step::Mark { .. } | Step::Flush { .. } => true,
            Step::Look { .. } | Step::LookAgain { .. } | Step::Restart { .. } => newest,
            _ => false,
        };
        if steps.iter().any(seen_by_others) {
            return None;
        }
        steps.extend(self.landings(|orphan| self.server.streams[orphan.stream()].creator.0 == number));
        Some(steps)
    }
}
