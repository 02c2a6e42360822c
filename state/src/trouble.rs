//! Retry budgets: how long something may go without progress, and how long to pause between tries.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fault::{Phase, Reaction};
use crate::ids::Micros;
use crate::io::Limits;

/// After a reconnect the server's end may be stale for seconds (write-api.md 2.7); rows that are lost stay lost.
const STALE_END: Duration = Duration::from_secs(30);
/// NOT_FOUND may be stale routing; a stream that is gone stays gone.
const GONE_AFTER: Duration = Duration::from_secs(30);

/// Faults since the last progress, by class: each has a budget of its own, so that a long outage does not use up the patience
/// for what follows it. Progress clears all of them (the back-off starts anew only then).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Patience {
    spells: BTreeMap<Class, Spell>,
    last: Option<(Class, Micros)>,
    /// When the first stream since the last progress was left.
    left_since: Option<Micros>,
    refreshed: bool,
}

/// Time spent on faults of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spell {
    spent: Duration,
    tries: u32,
}

/// What kind of patience a fault takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Class {
    Passing,
    Quota,
    StaleEnd,
    MaybeGone,
    FailSoon,
    SchemaLag,
    LeftStream,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try again after this pause.
    Retry(Duration),
    /// Get a new token, and try again at once.
    Refresh,
    /// Nothing more to try.
    Over(Over),
}

/// How patience ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// A restart may help.
    Restart,
    /// A person has to change something.
    User,
    /// What was asked for is not there: rows are lost, or cannot be shown to be visible.
    Gone,
}

impl Patience {
    /// What to do about one more fault. Never pauses beyond the budget, so that the last try is not followed by a wait.
    pub(crate) fn next(
        &mut self,
        phase: Phase,
        reaction: Reaction,
        limits: &Limits,
        now: Micros,
        salt: u64,
    ) -> Next {
        if reaction == Reaction::RefreshCredentials && !self.refreshed {
            self.refreshed = true;
            return Next::Refresh;
        }
        match budget(phase, reaction, limits) {
            Ok((class, total, over)) => self
                .pause(class, total, now, salt)
                .map_or(Next::Over(over), Next::Retry),
            Err(over) => Next::Over(over),
        }
    }

    /// The pause before a left stream is replaced: none for the first since the last progress. `None` when the budget is over.
    pub(crate) fn left_stream(&mut self, limits: &Limits, now: Micros, salt: u64) -> Option<Duration> {
        let first = !self.spells.contains_key(&Class::LeftStream);
        let pause = self.pause(Class::LeftStream, limits.append_timeout, now, salt)?;
        Some(if first { Duration::ZERO } else { pause })
    }

    /// Rows were acknowledged.
    pub(crate) fn progress(&mut self) {
        *self = Self::default();
    }

    /// A stream was created, which is no progress for those that are left one after the other.
    pub(crate) fn created(&mut self) {
        self.spells.retain(|class, _| *class == Class::LeftStream);
        self.refreshed = false;
    }

    /// Whether the stream may be gone, by its latest answers.
    pub(crate) fn may_be_gone(&self) -> bool {
        self.spells.contains_key(&Class::MaybeGone)
    }

    /// Whether passing faults came since the last progress.
    pub(crate) fn has_passing(&self) -> bool {
        self.spells.contains_key(&Class::Passing)
    }

    fn pause(&mut self, class: Class, total: Duration, now: Micros, salt: u64) -> Option<Duration> {
        if let Some((class, at)) = self.last.replace((class, now)) {
            self.spells.entry(class).or_default().spent += now.since(at);
        }
        if class == Class::LeftStream {
            // Whatever happens to the streams in between, leaving them has gone on all the while.
            let since = *self.left_since.get_or_insert(now);
            self.spells.entry(class).or_default().spent = now.since(since);
        }
        let (first, longest) = pauses(class);
        let spell = self.spells.entry(class).or_default();
        let pause = jittered(
            first.saturating_mul(1 << spell.tries.min(16)).min(longest),
            salt.wrapping_add(spell.tries.into()),
        );
        spell.tries += 1;
        (spell.spent + pause <= total).then_some(pause)
    }
}

/// Class, budget and what follows it; or what follows at once.
fn budget(phase: Phase, reaction: Reaction, limits: &Limits) -> Result<(Class, Duration, Over), Over> {
    let commit = phase == Phase::Flush;
    let passing = if commit {
        limits.commit_timeout
    } else {
        limits.append_timeout
    };
    Ok(match reaction {
        Reaction::Resend | Reaction::Reconnect | Reaction::Split => (Class::Passing, passing, Over::Restart),
        Reaction::BackOff if commit => (
            Class::Quota,
            limits.quota_timeout.min(limits.commit_timeout),
            Over::Restart,
        ),
        Reaction::BackOff => (Class::Quota, limits.quota_timeout, Over::Restart),
        Reaction::OffsetBeyondEnd if commit => (Class::StaleEnd, STALE_END, Over::Gone),
        Reaction::OffsetBeyondEnd | Reaction::OffsetTaken => (Class::StaleEnd, STALE_END, Over::Restart),
        Reaction::MaybeGone if commit => (Class::MaybeGone, limits.commit_timeout, Over::Gone),
        Reaction::MaybeGone => (Class::MaybeGone, GONE_AFTER, Over::Gone),
        Reaction::FailSoon => (Class::FailSoon, limits.unknown_table, Over::User),
        Reaction::SchemaLag => (Class::SchemaLag, passing, Over::User),
        Reaction::Gone => return Err(Over::Gone),
        Reaction::Restart | Reaction::Success => return Err(Over::Restart),
        Reaction::RefreshCredentials | Reaction::FailForGood | Reaction::RejectRows => {
            return Err(Over::User);
        }
    })
}

/// First and longest pause. Quotas refill in 10 s to 10 min (write-api.md 3.4).
fn pauses(class: Class) -> (Duration, Duration) {
    match class {
        Class::Quota => (Duration::from_secs(1), Duration::from_secs(60)),
        _ => (Duration::from_millis(100), Duration::from_secs(10)),
    }
}

/// Between half and all of a pause, by a hash of the salt: subtasks spread out without drawing a random number (invariant 14).
fn jittered(pause: Duration, salt: u64) -> Duration {
    // SplitMix64's finalizer.
    let mut bits = salt.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    pause / 2 + (pause / 2).mul_f64((bits >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn spend(patience: &mut Patience, class: Class, now: &mut Micros) -> Vec<Duration> {
        let pauses = std::iter::from_fn(|| {
            let pause = patience.pause(class, MINUTE, *now, 7)?;
            *now = now.after(pause);
            Some(pause)
        });
        pauses.collect()
    }

    #[test]
    fn pauses_double_to_their_longest_and_end_with_the_budget() {
        let mut now = Micros(1_000_000);
        let pauses = spend(&mut Patience::default(), Class::Passing, &mut now);
        assert!(now.since(Micros(1_000_000)) <= MINUTE);
        assert!(pauses[0] >= Duration::from_millis(50) && pauses[0] <= Duration::from_millis(100));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(10)));
        assert!(
            pauses
                .last()
                .is_some_and(|pause| *pause >= Duration::from_secs(5))
        );
    }

    #[test]
    fn pauses_are_spread_by_the_published_values_of_splitmix64() {
        // 0xe220a8397b1dcdaf and 6457827717110365317, over 2^64, are 0.8833... and 0.3500...
        let two = Duration::from_secs(2);
        assert_eq!(jittered(two, 0), Duration::from_nanos(1_883_310_808));
        assert_eq!(jittered(two, 1_234_567), Duration::from_nanos(1_350_079_542));
    }

    #[test]
    fn a_quota_is_given_a_second_first_and_up_to_a_minute_later() {
        let mut patience = Patience::default();
        let pauses: Vec<Duration> = (0..8)
            .filter_map(|_| patience.pause(Class::Quota, 10 * MINUTE, Micros(0), 7))
            .collect();
        assert!(pauses[0] >= Duration::from_millis(500) && pauses[0] <= Duration::from_secs(1));
        assert!(pauses[7] >= MINUTE / 2 && pauses[7] <= MINUTE);
    }

    #[test]
    fn a_long_spell_of_one_class_leaves_the_budget_of_another_whole() {
        let mut patience = Patience::default();
        let mut now = Micros(0);
        assert!(patience.pause(Class::StaleEnd, MINUTE, now, 7).is_some());
        now = now.after(Duration::from_secs(1));
        spend(&mut patience, Class::Quota, &mut now);
        now = now.after(Duration::from_secs(600));
        assert!(patience.pause(Class::StaleEnd, MINUTE, now, 7).is_some());
        assert!(patience.pause(Class::Quota, MINUTE, now, 7).is_none());
        patience.progress();
        assert!(patience.pause(Class::Quota, MINUTE, now, 7).is_some());
    }
}
