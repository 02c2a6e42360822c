//! One of the two protocols, for a driver that carries out either.

use crate::core::Core;
use crate::default_stream::DefaultStreamCore;
use crate::ids::Micros;
use crate::io::{Command, Input};

/// A subtask's protocol, by `write.mode`. Each call is that of the core it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Rows go to streams of the subtask's own and become visible at commits.
    ExactlyOnce(Box<Core>),
    /// Rows go to the table's default stream and are visible at once.
    AtLeastOnce(Box<DefaultStreamCore>),
}

impl Protocol {
    /// See [`Core::handle`].
    pub fn handle(&mut self, now: Micros, input: Input) {
        match self {
            Self::ExactlyOnce(core) => core.handle(now, input),
            Self::AtLeastOnce(core) => core.handle(now, input),
        }
    }

    /// See [`Core::poll`].
    #[must_use]
    pub fn poll(&mut self) -> Option<Command> {
        match self {
            Self::ExactlyOnce(core) => core.poll(),
            Self::AtLeastOnce(core) => core.poll(),
        }
    }

    /// See [`Core::next_wake`].
    #[must_use]
    pub fn next_wake(&self) -> Option<Micros> {
        match self {
            Self::ExactlyOnce(core) => core.next_wake(),
            Self::AtLeastOnce(core) => core.next_wake(),
        }
    }

    /// See [`Core::has_room`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        match self {
            Self::ExactlyOnce(core) => core.has_room(),
            Self::AtLeastOnce(core) => core.has_room(),
        }
    }

    /// See [`Core::wants_dead_letters`].
    #[must_use]
    pub fn wants_dead_letters(&self) -> bool {
        match self {
            Self::ExactlyOnce(core) => core.wants_dead_letters(),
            Self::AtLeastOnce(core) => core.wants_dead_letters(),
        }
    }
}
