//! How fast a file is read: as fast as rows are taken, or at a rate.

use std::time::Duration;

use tokio::time::Instant;

const BATCH_ROWS: usize = 1024;
/// With a limited rate a batch covers this part of a second.
const BATCHES_PER_SECOND: f64 = 20.0;

/// Rows handed out so far against the rate, if there is one.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<f64>,
    start: Instant,
    rows: u64,
}

impl Pace {
    /// `rate` is in rows a second.
    pub(super) fn new(rate: Option<f64>) -> Self {
        Self {
            rate,
            start: Instant::now(),
            rows: 0,
        }
    }

    /// When the next batch may be taken; `None` for at once.
    pub(super) fn due(&self) -> Option<Instant> {
        let rate = self.rate?;
        Some(self.start + Duration::from_secs_f64(self.rows as f64 / rate))
    }

    /// The most rows of a batch.
    pub(super) fn batch_rows(&self) -> usize {
        self.rate.map_or(BATCH_ROWS, |rate| {
            ((rate / BATCHES_PER_SECOND) as usize).clamp(1, BATCH_ROWS)
        })
    }

    pub(super) fn count(&mut self, rows: u64) {
        self.rows += rows;
    }
}
