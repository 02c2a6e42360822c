//! Time as the sink tells it.

use bigquery_sink_state::Micros;
use tokio::time::Instant;

/// The host's wall clock at the start, moved on by a clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) started_at: Micros,
    pub(crate) started: Instant,
}

impl Clock {
    pub(crate) fn now(&self) -> Micros {
        self.started_at.after(self.started.elapsed())
    }

    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.started + at.since(self.started_at)
    }
}
