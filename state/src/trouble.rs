//! Retry budgets: how long something may go without progress, and how long to pause between tries.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::Micros;

/// Faults since the last progress, by class: each has a budget of its own, so that a long outage does not use up the patience
/// for what follows it. Progress clears all of them (the back-off starts anew only then).
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(BTreeMap<Class, Spell>);

#[derive(Clone, Copy, Debug)]
struct Spell {
    since: Micros,
    tries: u32,
}

/// What kind of patience a fault takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Passing,
    Quota,
    StaleEnd,
    MaybeGone,
    FailSoon,
    LeftStream,
}

/// How long and how fast to retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    class: Class,
    total: Duration,
}

impl Budget {
    pub(crate) const fn new(class: Class, total: Duration) -> Self {
        Self { class, total }
    }

    /// First and longest pause. Quotas refill in 10 s to 10 min (write-api.md 3.4).
    fn pauses(self) -> (Duration, Duration) {
        match self.class {
            Class::Quota => (Duration::from_secs(1), Duration::from_secs(60)),
            _ => (Duration::from_millis(100), Duration::from_secs(10)),
        }
    }
}

impl Trouble {
    /// The pause before the next try; `None` when the budget would be over by then.
    pub(crate) fn next_pause(&mut self, budget: Budget, now: Micros, salt: u64) -> Option<Duration> {
        let (first, longest) = budget.pauses();
        let spell = self
            .0
            .entry(budget.class)
            .or_insert(Spell { since: now, tries: 0 });
        let doubled = first.saturating_mul(1 << spell.tries.min(16));
        let pause = jittered(doubled.min(longest), salt.wrapping_add(spell.tries.into()));
        spell.tries += 1;
        (now.since(spell.since) + pause <= budget.total).then_some(pause)
    }

    /// Whether a fault of this class is among them.
    pub(crate) fn has(&self, class: Class) -> bool {
        self.0.contains_key(&class)
    }

    /// Something moved.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
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

    #[test]
    fn pauses_double_to_their_longest_and_end_with_the_budget() {
        let mut trouble = Trouble::default();
        let mut now = Micros(1_000_000);
        let mut pauses = Vec::new();
        while let Some(pause) =
            trouble.next_pause(Budget::new(Class::Passing, Duration::from_secs(60)), now, 7)
        {
            now = now.after(pause);
            pauses.push(pause);
        }
        assert!(now.since(Micros(1_000_000)) <= Duration::from_secs(60));
        assert!(pauses[0] >= Duration::from_millis(50) && pauses[0] <= Duration::from_millis(100));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(10)));
        assert!(
            pauses
                .last()
                .is_some_and(|pause| *pause >= Duration::from_secs(5))
        );
        let stale = Budget::new(Class::StaleEnd, Duration::from_secs(1));
        assert!(
            trouble.next_pause(stale, now, 7).is_some(),
            "another class has a budget of its own"
        );
        trouble.clear();
        assert_eq!(
            trouble.next_pause(Budget::new(Class::Passing, Duration::from_secs(60)), now, 7),
            Some(pauses[0])
        );
    }
}
