//! How an answer goes back: at once, unless faults have it otherwise.

use super::refusal::Refusal;

/// How the shell is to carry an answer. By default at once, and whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Milliseconds to hold it back, and everything behind it.
    pub delay_ms: u64,
    /// After that, it is held until it is released.
    pub stall: Option<Stall>,
    /// Whether it arrives.
    pub passage: Passage,
    /// The HTTP/2 connection gets GOAWAY, at once.
    pub go_away: bool,
}

/// An answer that waits until all that do are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Milliseconds after which it goes anyway.
    pub ms: Option<u64>,
}

/// What becomes of an answer on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// It arrives.
    #[default]
    Whole,
    /// The call is reset in its place.
    Reset,
    /// The HTTP/2 connection is cut in its place.
    Cut,
    /// Nothing ever comes.
    Never,
}

/// The answer to a unary call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<T> {
    /// How it goes back.
    pub delivery: Delivery,
    /// The answer; without meaning if it does not arrive.
    pub result: Result<T, Refusal>,
}

impl<T> Reply<T> {
    /// Goes back at once.
    pub(super) fn at_once(result: Result<T, Refusal>) -> Self {
        Self {
            delivery: Delivery::default(),
            result,
        }
    }
}
