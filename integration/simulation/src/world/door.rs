//! The one way out of a process: its connections to BigQuery and to the store go through here, and stop here.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// A process's door, cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    died: Notify,
}

#[derive(Debug, Default)]
struct State {
    passage: Passage,
    waiting: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passage {
    #[default]
    Open,
    /// Nothing passes until it is opened again.
    Held,
    /// Nothing passes any more, and nothing is said.
    Dead { loses_sent: bool },
    /// What is left of the process is told so, and goes.
    Buried { loses_sent: bool },
}

impl Door {
    /// Nothing passes any more: the process is dead, whatever its tasks still do.
    pub(crate) fn kill(&self, loses_sent: bool) {
        self.set(Passage::Dead { loses_sent });
        self.0.died.notify_one();
    }

    /// The process was dropped; connections that nobody holds any more end.
    pub(crate) fn bury(&self) {
        let loses_sent = self.passage().loses_sent();
        self.set(Passage::Buried { loses_sent });
    }

    /// Nothing passes for now.
    pub(crate) fn hold(&self) {
        self.set(Passage::Held);
        self.0.died.notify_one();
    }

    /// Everything passes on, and the next process may begin.
    pub(crate) fn give_way(&self) {
        self.0.died.notify_one();
    }

    /// Everything passes again.
    pub(crate) fn open(&self) {
        self.set(Passage::Open);
    }

    /// Waits until it is killed, is held, or gives way.
    pub(crate) async fn closed(&self) {
        self.0.died.notified().await;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.passage().is_over()
    }

    /// Waits while nothing passes; for ever behind a dead process's door.
    pub(crate) async fn pass(&self) {
        if std::future::poll_fn(|context| self.poll_open(context))
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    fn set(&self, passage: Passage) {
        let mut state = self.state();
        if state.passage.is_over() && !matches!(passage, Passage::Buried { .. }) {
            return;
        }
        state.passage = passage;
        for waker in state.waiting.drain(..) {
            waker.wake();
        }
    }

    /// What the process sent and BigQuery has not read is lost.
    pub(super) fn loses_sent(&self) -> bool {
        self.passage().loses_sent()
    }

    fn passage(&self) -> Passage {
        self.state().passage
    }

    pub(super) fn poll_open(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        match state.passage {
            Passage::Open => return Poll::Ready(Ok(())),
            Passage::Buried { .. } => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Passage::Held | Passage::Dead { .. } => {}
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passage {
    fn is_over(self) -> bool {
        matches!(self, Self::Dead { .. } | Self::Buried { .. })
    }

    fn loses_sent(self) -> bool {
        matches!(
            self,
            Self::Dead { loses_sent: true } | Self::Buried { loses_sent: true }
        )
    }
}
