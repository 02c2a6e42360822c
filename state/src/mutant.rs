//! Known mistakes, to be made on purpose: a proof that does not notice them proves nothing.
//!
//! A build without the feature `mutants` cannot make any of them: [`Mutation`] is empty there.

use crate::ids::{NextOffset, RequestNumber, StreamName};
use crate::ledger::Ledger;

/// A mistake that a sink has made, or that our own rules are there to prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// Every ALREADY_EXISTS counts as stored: Flink's `validateAppendResponse`, and the rows that Beam lost (beam#26515).
    SwallowAlreadyExists,
    /// OUT_OF_RANGE counts as stored: SeaTunnel took it and ALREADY_EXISTS alike (seatunnel PR#11561).
    OutOfRangeAsSuccess,
    /// A restored subtask appends to the stream it finds in its state: Flink, SeaTunnel and others do (invariant 2).
    GoOnWithRestoredStream,
    /// An acknowledgement that comes after its stream was left moves the frozen target: what "drop" in invariant 7 prevents.
    CountLateAckAfterLeaving,
    /// Answers are matched with the append queue by position, whichever connection they came on: the queue of Google's managed writers
    /// (java#1392) without their one connection per queue.
    QueuePositionAcrossConnections,
    /// An answer of an older connection is matched with the newer one's queue: no check of the generation (invariant 8).
    NoGenerationCheck,
    /// A stream that is gone with acknowledged, unflushed rows is replaced: Flink's `performFirstAppendOnRestoredStream` discards it,
    /// and Beam took NOT_FOUND of a flush as done.
    LeaveGoneStreamThatOwesRows,
    /// After a row error, rows move up though a request behind it may have been stored (invariant 4).
    MoveRowsUpWhileInDoubt,
    /// On a conflict a new stream takes the failed request only: Beam retried the current append alone (beam PR#26503).
    NewStreamWithoutResend,
    /// `close` finalizes the stream: a peer restarted for 14 hours (flink#235).
    FinalizeInClose,
    /// Rows become visible at the barrier, before the checkpoint is durable (invariant 1).
    FlushAtBarrier,
    /// `close` appends what is buffered after the snapshot, so that a restore knows an old offset: a review of seatunnel#10485.
    AppendInCloseAfterSnapshot,
    /// Epochs without rows are acknowledged and not persisted: RisingWave's silent deadlock (risingwave#26492).
    SkipEmptyEpochs,
    /// The exclusive end is taken as the inclusive flush target: one row too many.
    FlushNextOffset,
    /// After a rescale a subtask commits the entry of its own number only: the rows of the others are never published.
    CommitOnlyOwnEntries,
    /// When a stream was left in the middle of an epoch, only the newest one is committed (kcbq PR#333).
    ForgetFirstOfTwoStreams,
    /// The newest state is restored though its checkpoint never became complete.
    NewestStateThoughNotComplete,
    /// A damaged newest checkpoint is passed over for an older one, whose rows are visible already.
    StepBackPastDamage,
    /// A host publishes without claiming the epoch: the delayed commit of a dead incarnation (Jepsen's Bufstream 0.1.0).
    NoEpochClaim,
    /// Checkpoint N+1 is complete before the commit of N is confirmed, so that a restore of N+1 forgets N's rows.
    NextCompleteBeforeCommit,
    /// At the end of data the restored commit list is not published, though its replay never came: Flink's `prepareCommit` has nothing
    /// to say of a commit that was lost.
    ForgetRestoredListAtEnd,
    /// A checkpoint counts one acknowledged row too few.
    AckOffByOne,
    /// After a row error, what stands behind the request keeps its offsets, which are beyond the end for ever: Beam gives them anew.
    KeepOffsetsAfterRowError,
    /// A barrier is reported while dead letters are owed: a crash then loses them.
    PrepareWithDeadLettersOwed,
}

impl Mutant {
    /// Every mutant.
    pub const ALL: [Self; 24] = [
        Self::SwallowAlreadyExists,
        Self::OutOfRangeAsSuccess,
        Self::GoOnWithRestoredStream,
        Self::CountLateAckAfterLeaving,
        Self::QueuePositionAcrossConnections,
        Self::NoGenerationCheck,
        Self::LeaveGoneStreamThatOwesRows,
        Self::MoveRowsUpWhileInDoubt,
        Self::NewStreamWithoutResend,
        Self::FinalizeInClose,
        Self::FlushAtBarrier,
        Self::AppendInCloseAfterSnapshot,
        Self::SkipEmptyEpochs,
        Self::FlushNextOffset,
        Self::CommitOnlyOwnEntries,
        Self::ForgetFirstOfTwoStreams,
        Self::NewestStateThoughNotComplete,
        Self::StepBackPastDamage,
        Self::NoEpochClaim,
        Self::NextCompleteBeforeCommit,
        Self::ForgetRestoredListAtEnd,
        Self::AckOffByOne,
        Self::KeepOffsetsAfterRowError,
        Self::PrepareWithDeadLettersOwed,
    ];
}

/// The mistake a core makes on purpose; none by default, and none possible without the feature `mutants`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mutation {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Mutation {
    /// Makes this one.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn of(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Whether it is this one; never, without the feature.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether it is this one; never, without the feature.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}

/// What [`Mutant::CountLateAckAfterLeaving`] remembers of left streams; nothing otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LateAcks {
    due: Vec<(StreamName, RequestNumber, NextOffset)>,
}

impl LateAcks {
    pub(crate) fn left(&mut self, stream: &StreamName, ledger: &Ledger) {
        let sent = ledger.sent_requests();
        self.due
            .extend(sent.map(|(request, end)| (stream.clone(), request, end)));
    }

    /// The left stream that a late answer is about, with the end it speaks of.
    pub(crate) fn take(&mut self, request: RequestNumber) -> Option<(StreamName, NextOffset)> {
        let index = self.due.iter().position(|(_, due, _)| *due == request)?;
        let (stream, _, end) = self.due.remove(index);
        Some((stream, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_in_order() {
        for (index, mutant) in Mutant::ALL.into_iter().enumerate() {
            assert_eq!(mutant as usize, index, "{mutant:?}");
        }
        assert_eq!(
            Mutant::ALL.last(),
            Some(&Mutant::PrepareWithDeadLettersOwed),
            "the last one of the enum"
        );
    }
}
