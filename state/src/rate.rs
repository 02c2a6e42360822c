//! The measured rate of acknowledgements, and the window it allows: a barrier must be able to drain in time.

use std::time::Duration;

use crate::ids::Micros;
use crate::io::Limits;

/// Shortest time over which a rate is taken.
const SAMPLE: Duration = Duration::from_millis(100);
/// Requests under way before anything is measured.
const FIRST_WINDOW_REQUESTS: u64 = 4;

/// Bytes acknowledged per second while there was something to acknowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AckRate {
    bytes_per_second: Option<u64>,
    sample_began: Option<Micros>,
    sample_bytes: u64,
}

impl AckRate {
    /// Something is handed over; a sample starts if nothing was under way.
    pub(crate) fn began(&mut self, now: Micros, inflight_before: u64) {
        if inflight_before == 0 || self.sample_began.is_none() {
            self.sample_began = Some(now);
            self.sample_bytes = 0;
        }
    }

    /// Bytes were acknowledged; `inflight` remain.
    pub(crate) fn note(&mut self, now: Micros, acked: u64, inflight: u64) {
        let Some(began) = self.sample_began else { return };
        self.sample_bytes += acked;
        let elapsed = now.since(began);
        if elapsed >= SAMPLE {
            let rate = per_second(self.sample_bytes, elapsed);
            // Half old, half new: follows a change within a few samples without jumping at each.
            self.bytes_per_second = Some(self.bytes_per_second.map_or(rate, |old| u64::midpoint(old, rate)));
            self.sample_began = (inflight > 0).then_some(now);
            self.sample_bytes = 0;
        }
    }

    /// Bytes that may be under way.
    pub(crate) fn window(&self, limits: &Limits) -> u64 {
        let Some(rate) = self.bytes_per_second else {
            return (limits.append_bytes * FIRST_WINDOW_REQUESTS).min(limits.inflight_bytes);
        };
        // One request always fits, so that the window can grow again after a slow spell.
        let smallest = limits.append_bytes.min(limits.inflight_bytes);
        let drained = u128::from(rate) * limits.inflight_time.as_micros() / 1_000_000;
        u64::try_from(drained)
            .unwrap_or(u64::MAX)
            .clamp(smallest, limits.inflight_bytes)
    }
}

/// Whole numbers, so that cores can be compared.
fn per_second(bytes: u64, elapsed: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / elapsed.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Unprovable;

    fn limits() -> Limits {
        Limits {
            append_bytes: 1_000,
            inflight_bytes: 1_000_000,
            inflight_requests: 100,
            inflight_time: Duration::from_secs(2),
            append_timeout: Duration::from_secs(300),
            commit_timeout: Duration::from_secs(600),
            quota_timeout: Duration::from_secs(900),
            unknown_table: Duration::from_secs(60),
            unprovable: Unprovable::Fail,
        }
    }

    #[test]
    fn the_next_sample_begins_where_one_ended_while_rows_are_under_way() {
        let mut rate = AckRate::default();
        rate.began(Micros(0), 0);
        // 1,000 bytes in 100 ms, then 3,000: half of 10,000 B/s and half of 30,000 B/s, for 2 s.
        rate.note(Micros(100_000), 1_000, 500);
        assert_eq!(rate.window(&limits()), 20_000);
        rate.note(Micros(200_000), 3_000, 0);
        assert_eq!(rate.window(&limits()), 40_000);
    }

    #[test]
    fn what_a_connection_says_while_nothing_is_under_way_is_no_sample() {
        let mut rate = AckRate::default();
        rate.began(Micros(0), 0);
        rate.note(Micros(100_000), 1_000, 0);
        rate.note(Micros(3_600_000_000), 0, 0);
        assert_eq!(rate.window(&limits()), 20_000);
    }
}
