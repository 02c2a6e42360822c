//! What must happen in some run of a batch: if it never does, the batch did not look where it should.

use std::fmt;

/// Something rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Predicate {
    /// A resend of our own was answered ALREADY_EXISTS (invariant 5).
    OwnResendStored,
    /// A commit met an offset that was flushed before (invariant 10).
    FlushedAlready,
    /// A stream was left in the middle of an epoch (invariant 7).
    StreamLeft,
    /// A connection was given up that still owed answers, which then are not heard (invariants 7 and 8).
    StaleAnswerDropped,
    /// A request behind a failed one was answered OUT_OF_RANGE and sent again (invariant 6).
    EchoDiscarded,
    /// A process died while it recovered from the death of another.
    RecoveryCrashed,
    /// Rows that a zombie appended late are there and stayed invisible.
    ZombieRowsInvisible,
    /// A zombie found that the state is not its own any more.
    ZombieSuperseded,
    /// A commit was replayed under another parallelism.
    CommitAfterRescale,
    /// A store's put was applied and its answer lost, and the host found that out.
    PutFoundApplied,
}

impl Predicate {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::OwnResendStored,
        Self::FlushedAlready,
        Self::StreamLeft,
        Self::StaleAnswerDropped,
        Self::EchoDiscarded,
        Self::RecoveryCrashed,
        Self::ZombieRowsInvisible,
        Self::ZombieSuperseded,
        Self::CommitAfterRescale,
        Self::PutFoundApplied,
    ];
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnResendStored => "own resend answered ALREADY_EXISTS",
            Self::FlushedAlready => "commit met a flushed offset",
            Self::StreamLeft => "stream left in the middle of an epoch",
            Self::StaleAnswerDropped => "answer of an older connection dropped",
            Self::EchoDiscarded => "OUT_OF_RANGE echo resent",
            Self::RecoveryCrashed => "recovery crashed again",
            Self::ZombieRowsInvisible => "zombie's rows landed and stayed invisible",
            Self::ZombieSuperseded => "zombie lost the state",
            Self::CommitAfterRescale => "commit replayed under another parallelism",
            Self::PutFoundApplied => "lost answer of a put found applied",
        })
    }
}
