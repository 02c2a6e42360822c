//! The last minutes as the plots show them.

use std::collections::VecDeque;

/// Samples kept: five minutes of one a second.
const KEPT: usize = 300;

/// Numbers of a run at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Seconds since the run began.
    pub(super) at: f64,
    pub(super) rows_read: u64,
    pub(super) rows_visible: u64,
    /// Rows that BigQuery has acknowledged and no reader sees.
    pub(super) rows_waiting: u64,
}

/// The latest samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<Sample>);

/// What a plot shows, one number for each sample but the first.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct Rates {
    /// Seconds since the run began.
    pub(super) at: Vec<f64>,
    /// Rows read a second.
    pub(super) rows_read: Vec<f64>,
    /// Rows that became visible a second.
    pub(super) rows_visible: Vec<f64>,
    /// Rows acknowledged and not visible.
    pub(super) rows_waiting: Vec<f64>,
}

impl Samples {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    pub(super) fn rates(&self) -> Rates {
        let mut rates = Rates::default();
        for (before, now) in self.0.iter().zip(self.0.iter().skip(1)) {
            let seconds = (now.at - before.at).max(f64::EPSILON);
            // After a restart the count of rows read falls back to the checkpoint.
            let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
            rates.at.push(now.at);
            rates.rows_read.push(rate(before.rows_read, now.rows_read));
            rates
                .rows_visible
                .push(rate(before.rows_visible, now.rows_visible));
            rates.rows_waiting.push(now.rows_waiting as f64);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: f64, rows_read: u64, rows_visible: u64) -> Sample {
        Sample {
            at,
            rows_read,
            rows_visible,
            rows_waiting: rows_read.saturating_sub(rows_visible),
        }
    }

    #[test]
    fn rates_are_differences_over_time_and_never_negative() {
        let mut samples = Samples::default();
        assert_eq!(samples.rates(), Rates::default());
        for (at, read, visible) in [(0.0, 0, 0), (1.0, 100, 0), (3.0, 300, 260), (4.0, 250, 260)] {
            samples.push(sample(at, read, visible));
        }
        let expected = Rates {
            at: vec![1.0, 3.0, 4.0],
            rows_read: vec![100.0, 100.0, 0.0],
            rows_visible: vec![0.0, 130.0, 0.0],
            rows_waiting: vec![100.0, 40.0, 0.0],
        };
        assert_eq!(samples.rates(), expected);
    }

    #[test]
    fn five_minutes_are_kept() {
        let mut samples = Samples::default();
        for second in 0..1_000_u32 {
            samples.push(sample(f64::from(second), 0, 0));
        }
        let at = samples.rates().at;
        assert_eq!((at.len(), at[0], at[298]), (299, 701.0, 999.0));
    }
}
