//! Holds answers back: the round trip that is asked for, delays and stalls that faults add.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::machine::{Delivery, Stall};

/// A year is as good as never, and tokio's timer takes no more than two.
pub(super) const LONGEST_MS: u64 = 365 * 86_400_000;

/// What every answer of a service goes through, cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    released: watch::Sender<()>,
    latency_ms: Arc<AtomicU64>,
}

/// One answer's turn; by default it has come.
#[derive(Debug, Default)]
pub(super) struct Turn {
    due: Option<Instant>,
    stall: Option<(Stall, watch::Receiver<()>)>,
}

impl Gate {
    /// Milliseconds between a request and its answer, at least.
    pub(super) fn latency_ms(&self) -> u64 {
        self.latency_ms.load(Ordering::SeqCst)
    }

    pub(super) fn set_latency_ms(&self, ms: u64) {
        self.latency_ms.store(ms, Ordering::SeqCst);
    }

    /// Lets go every answer that is stalled now.
    pub(super) fn release(&self) {
        self.released.send_replace(());
    }

    /// When an answer may go that is ready now. Turns are taken in order, so that what is behind waits too.
    pub(super) fn turn(&self, delivery: &Delivery) -> Turn {
        let ms = delivery
            .delay_ms
            .saturating_add(self.latency_ms())
            .min(LONGEST_MS);
        Turn {
            due: (ms > 0).then(|| Instant::now() + Duration::from_millis(ms)),
            stall: delivery.stall.map(|stall| (stall, self.released.subscribe())),
        }
    }
}

impl Turn {
    pub(super) async fn come(self) {
        if let Some(due) = self.due {
            sleep_until(due).await;
        }
        if let Some((stall, mut released)) = self.stall {
            let longest = Duration::from_millis(stall.ms.unwrap_or(LONGEST_MS).min(LONGEST_MS));
            // Released, or over, or the emulator is gone: it goes.
            drop(timeout(longest, released.changed()).await);
        }
    }
}
