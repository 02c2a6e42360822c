//! What must happen in some run of a batch: if it never does, the batch did not look where it should.

use std::fmt;

use crate::point::Host;

/// Something rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Predicate {
    /// A resend of our own was answered ALREADY_EXISTS (invariant 5).
    OwnResendStored,
    /// A process replayed another's commit, and met an offset that was flushed before (invariant 10).
    FlushedAlready,
    /// A stream was left in the middle of an epoch (invariant 7).
    StreamLeft,
    /// A connection was given up that still owed answers (invariants 7 and 8): whatever is answered on it is not heard.
    AnswersGivenUp,
    /// A request behind a failed one was refused for its sake, and sent again (invariant 6).
    EchoDiscarded,
    /// Rows that BigQuery refused left their request, and what stood behind them moved up (invariant 4).
    RowsMovedUp,
    /// A process died while it recovered from the death of another.
    RecoveryCrashed,
    /// Rows that a zombie appended when the next process had begun are there and stayed invisible.
    ZombieRowsInvisible,
    /// A call was carried out late, when another process had begun.
    CallCameLate,
    /// A zombie connected anew when the next process had begun.
    ZombieReconnected,
    /// A zombie found that the state is not its own any more.
    ZombieSuperseded,
    /// A zombie wanted to complete a checkpoint, and another process had claimed that epoch.
    ZombieLostClaim,
    /// The other way round: the zombie was the first to claim it.
    ClaimLostToZombie,
    /// A process replayed the commit of one that had another parallelism.
    CommitAfterRescale,
    /// A store's put was applied and its answer lost, and the host found that out.
    PutFoundApplied,
    /// All input ended before the commit of the restored checkpoint was replayed (invariant 1's exception).
    EndBeforeReplay,
    /// A commit came after rows of the next epoch.
    CommitAfterNextRows,
    /// A checkpoint got the number of one that came to nothing.
    EpochReused,
    /// A zombie prepared a checkpoint, and the engine's store refused it.
    LateStateRefused,
    /// Only some subtasks had heard of a commit when their process died.
    CommitHeardBySome,
}

impl Predicate {
    /// Every one.
    pub const ALL: [Self; 20] = [
        Self::OwnResendStored,
        Self::FlushedAlready,
        Self::StreamLeft,
        Self::AnswersGivenUp,
        Self::EchoDiscarded,
        Self::RowsMovedUp,
        Self::RecoveryCrashed,
        Self::ZombieRowsInvisible,
        Self::CallCameLate,
        Self::ZombieReconnected,
        Self::ZombieSuperseded,
        Self::ZombieLostClaim,
        Self::ClaimLostToZombie,
        Self::CommitAfterRescale,
        Self::PutFoundApplied,
        Self::EndBeforeReplay,
        Self::CommitAfterNextRows,
        Self::EpochReused,
        Self::LateStateRefused,
        Self::CommitHeardBySome,
    ];

    /// The host under which alone it is looked for, if not under both.
    #[must_use]
    pub fn host(self) -> Option<Host> {
        match self {
            Self::ZombieSuperseded
            | Self::ZombieLostClaim
            | Self::ClaimLostToZombie
            | Self::PutFoundApplied => Some(Host::Embedded),
            Self::EndBeforeReplay
            | Self::CommitAfterNextRows
            | Self::EpochReused
            | Self::LateStateRefused
            | Self::CommitHeardBySome => Some(Host::Engine),
            _ => None,
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnResendStored => "own resend answered ALREADY_EXISTS",
            Self::FlushedAlready => "replayed commit met a flushed offset",
            Self::StreamLeft => "stream left in the middle of an epoch",
            Self::AnswersGivenUp => "connection given up that owed answers",
            Self::EchoDiscarded => "request resent whose refusal echoed another",
            Self::RowsMovedUp => "rows moved up after a row error",
            Self::RecoveryCrashed => "recovery crashed again",
            Self::ZombieRowsInvisible => "zombie's rows landed and stayed invisible",
            Self::CallCameLate => "call carried out after the next process began",
            Self::ZombieReconnected => "zombie connected anew",
            Self::ZombieLostClaim => "zombie lost the claim of an epoch",
            Self::ClaimLostToZombie => "claim of an epoch lost to a zombie",
            Self::ZombieSuperseded => "zombie lost the generation",
            Self::CommitAfterRescale => "commit replayed under another parallelism",
            Self::PutFoundApplied => "lost answer of a put found applied",
            Self::EndBeforeReplay => "end of data before the replayed commit",
            Self::CommitAfterNextRows => "commit after rows of the next epoch",
            Self::EpochReused => "epoch number reused after an abort",
            Self::LateStateRefused => "zombie's late state refused",
            Self::CommitHeardBySome => "commit heard by some before a crash",
        })
    }
}
