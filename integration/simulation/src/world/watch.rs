//! One process's place: its door, the points it comes by, and the one at which it ends.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::World;
use super::door::Door;
use crate::point::{Hit, Point};
use crate::scenario::{End, Incarnation};

/// A process in the world.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
    pub(crate) door: Door,
    pub(crate) end: End,
    pub(crate) parallelism: u32,
    /// Who opens its door again.
    returns: Mutex<Vec<AbortHandle>>,
}

impl Site {
    pub(super) fn new(world: Arc<World>, index: usize, incarnation: &Incarnation) -> Self {
        Self {
            world,
            index,
            door: Door::default(),
            end: incarnation.end,
            parallelism: incarnation.parallelism,
            returns: Mutex::default(),
        }
    }

    /// Whether no other process has begun since.
    pub(crate) fn is_newest(&self) -> bool {
        self.world.newest_site() == Some(self.index)
    }

    /// The process comes by a point; true if it is dead there.
    pub(crate) fn hit(&self, point: Point, subtask: Option<u32>) -> bool {
        if self.door.is_dead() {
            return true;
        }
        let hit = Hit { point, subtask };
        let at = self.world.record_hit(self.index, hit);
        self.note(format_args!("#{at} {hit}"));
        match self.end {
            End::Kill { hit, loses_sent } if hit == at => {
                self.kill(loses_sent);
                true
            }
            End::Zombie { hit, ms, reconnects } if hit == at => {
                self.note("is cut off");
                self.world.turns();
                self.door.hold();
                if reconnects {
                    self.world.lose_connections(self.index);
                }
                self.bring_back(ms);
                false
            }
            _ => false,
        }
    }

    /// As [`Site::hit`]; the dead stand still.
    pub(crate) async fn stop_at(&self, point: Point, subtask: Option<u32>) {
        if self.hit(point, subtask) {
            pending::<()>().await;
        }
    }

    /// It is dead from here on.
    pub(crate) fn kill(&self, loses_sent: bool) {
        self.note("is killed");
        self.world.turns();
        self.door.kill(loses_sent);
    }

    /// The next process begins, and this one goes on, after so long behind a held door.
    pub(crate) fn give_way(&self, held_ms: u64) {
        self.world.turns();
        if held_ms == 0 {
            self.door.give_way();
        } else {
            self.door.hold();
            self.bring_back(held_ms);
        }
    }

    /// Its door is opened again after so long.
    fn bring_back(&self, ms: u64) {
        let (world, door, process) = (Arc::clone(&self.world), self.door.clone(), self.index + 1);
        let returning = tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            world.note(format_args!("process {process}: is back"));
            world.turns();
            door.open();
        });
        self.returns().push(returning.abort_handle());
    }

    /// The process has ended by itself. If it is cut off, what it left open ends now and not only when it would be back.
    pub(crate) fn has_ended(&self) {
        self.world.ends(self.index);
        self.stay_away();
        self.door.open();
    }

    /// The process was killed and dropped.
    pub(crate) fn bury(&self) {
        self.stay_away();
        self.door.bury();
    }

    fn stay_away(&self) {
        for returning in self.returns().drain(..) {
            returning.abort();
        }
    }

    fn returns(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, what: impl fmt::Display) {
        self.world
            .note(format_args!("process {}: {what}", self.index + 1));
    }
}
