//! What the gRPC and REST shells share: the machine behind a lock, and the clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::Millis;
use crate::machine::Machine;

/// The machine and its clock, cheap to clone.
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    machine: Mutex<Machine>,
    clock: Clock,
    advanced_ms: AtomicI64,
}

/// Tells the time, in milliseconds since 1970. A simulation gives its own.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

impl Shared {
    /// A machine under a clock.
    pub fn new(machine: Machine, clock: Clock) -> Self {
        let inner = Inner {
            machine: Mutex::new(machine),
            clock,
            advanced_ms: AtomicI64::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Does something with the machine, alone. Never held over an await, so the lock is short.
    pub fn with<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        // A panic under the lock is a bug, but later calls should still be answered.
        let mut machine = self.inner.machine.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut machine)
    }

    /// The emulator's time: the clock's, plus what it was advanced by.
    pub fn now(&self) -> Millis {
        (self.inner.clock)().saturating_add(self.inner.advanced_ms.load(Ordering::SeqCst))
    }

    /// Puts the emulator's clock forward so that it has not gone back since `last`, of an emulator before this one.
    pub(crate) fn not_before(&self, last: Millis) {
        let behind = last.saturating_sub(self.now());
        if behind > 0 {
            self.inner.advanced_ms.fetch_add(behind, Ordering::SeqCst);
            tracing::warn!(
                "the emulator's clock is put forward by {behind} ms, to the last change in its data directory"
            );
        }
    }

    /// Puts the emulator's clock forward; whoever does it lets the machine tick.
    pub(crate) fn advance(&self, ms: u32) {
        self.inner.advanced_ms.fetch_add(i64::from(ms), Ordering::SeqCst);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// The machine's own clock.
pub fn system_clock() -> Clock {
    Arc::new(|| chrono::Utc::now().timestamp_millis())
}
