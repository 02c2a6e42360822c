//! What the gRPC and REST shells share: the machine behind a lock, and the clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::catalog::Millis;
use crate::defaults::RandomBits;
use crate::machine::Machine;

/// The machine and its clock, cheap to clone.
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Inner>,
    /// For whom time stands still: at what.
    still: Option<Millis>,
}

struct Inner {
    machine: Mutex<Machine>,
    clock: Clock,
    advanced_ms: AtomicI64,
    turns: Arc<Semaphore>,
}

/// Queries that run at a time; the others wait, within their time limit.
const QUERIES_AT_A_TIME: usize = 8;

/// Tells the time, in milliseconds since 1970. A simulation gives its own.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

impl Shared {
    /// A machine under a clock.
    pub fn new(machine: Machine, clock: Clock) -> Self {
        let inner = Inner {
            machine: Mutex::new(machine),
            clock,
            advanced_ms: AtomicI64::new(0),
            turns: Arc::new(Semaphore::new(QUERIES_AT_A_TIME)),
        };
        Self {
            inner: Arc::new(inner),
            still: None,
        }
    }

    /// Does something with the machine, alone, and before that what is late (fault `apply_late`): who looks sees what
    /// has happened by now. Never held over an await, so the lock is short.
    pub fn with<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        // A panic under the lock is a bug, but later calls should still be answered.
        let mut machine = self.inner.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.catch_up(self.now());
        act(&mut machine)
    }

    /// The emulator's time: the clock's, plus what it was advanced by.
    pub fn now(&self) -> Millis {
        let running = || (self.inner.clock)().saturating_add(self.inner.advanced_ms.load(Ordering::SeqCst));
        self.still.unwrap_or_else(running)
    }

    /// The same machine at this one time: for a statement, which sees one time only, and whose thread knows no other
    /// (a simulation's clock is that of the simulation's threads).
    pub(crate) fn standing_still(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            still: Some(self.now()),
        }
    }

    /// Whose turn it is to run a query.
    pub(crate) fn turns(&self) -> &Arc<Semaphore> {
        &self.inner.turns
    }

    /// Random bits of one's own, which follow from the emulator's seed and from what was drawn before.
    pub(crate) fn draw(&self) -> RandomBits {
        let now = self.now();
        self.with(|machine| machine.with_moment(now, |_, moment| moment.random.split()))
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

#[cfg(test)]
mod tests {
    use bigquery_write_proto::wire::{CreateWriteStreamRequest, WriteStream, write_stream::Type};

    use super::*;
    use crate::catalog::TableRef;
    use crate::faults::FaultPlan;
    use crate::machine::{CallMeta, Switches};
    use crate::schema::Schema;

    #[test]
    fn whoever_looks_sees_what_is_late_by_now() {
        let plan =
            r#"{"rules": [{"rpc": "CreateWriteStream", "action": {"kind": "apply_late", "ms": 1000}}]}"#;
        let mut machine = Machine::new(Switches::default(), FaultPlan::parse(plan).unwrap(), 7);
        let table = TableRef::new("p", "d", "t");
        machine
            .create_dataset(&table.dataset_ref(), "", Default::default(), 0)
            .unwrap();
        let schema = Schema { columns: Vec::new() };
        machine
            .create_table(&table, schema, Default::default(), 0)
            .unwrap();
        let time = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&time);
        let shared = Shared::new(machine, Arc::new(move || clock.load(Ordering::SeqCst)));
        let request = CreateWriteStreamRequest {
            parent: table.path(),
            write_stream: Some(WriteStream {
                r#type: Type::Buffered as i32,
                ..WriteStream::default()
            }),
        };
        shared.with(|machine| drop(machine.create_write_stream(0, &CallMeta::default(), &request)));
        let created = |at| {
            time.store(at, Ordering::SeqCst);
            shared.with(|machine| machine.streams_created())
        };
        assert_eq!([created(999), created(1000)], [0, 1]);
    }
}
