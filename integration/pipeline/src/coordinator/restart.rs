//! How often and how soon a failed attempt is started again.

use std::time::Duration;

/// Restarts in a row before the host gives up.
const LIMIT: u32 = 20;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// An attempt that ran this long starts the count anew.
const HEALTHY: Duration = Duration::from_secs(120);

/// Counts restarts.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    pub(super) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// How long to wait before the next attempt, after one that ran for so long; `None` to give up.
    pub(super) fn after(&mut self, ran: Duration) -> Option<Duration> {
        if ran >= HEALTHY {
            self.in_a_row = 0;
        }
        if self.in_a_row == LIMIT {
            return None;
        }
        let delay = FIRST_DELAY
            .saturating_mul(1 << self.in_a_row.min(16))
            .min(LONGEST_DELAY);
        self.in_a_row += 1;
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_a_minute_and_end_after_twenty() {
        let mut restarts = Restarts::default();
        let delays: Vec<_> = std::iter::from_fn(|| restarts.after(Duration::ZERO))
            .map(|d| d.as_millis())
            .collect();
        let mut expected = vec![500, 1000, 2000, 4000, 8000, 16_000, 32_000];
        expected.resize(20, 60_000);
        assert_eq!(delays, expected);
        assert_eq!(restarts.after(HEALTHY), Some(FIRST_DELAY));
        assert_eq!(
            restarts.after(HEALTHY - Duration::from_millis(1)),
            Some(FIRST_DELAY * 2)
        );
    }
}
