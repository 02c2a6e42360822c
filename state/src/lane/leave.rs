//! Leaving a stream: its flush target is frozen for ever, and what was not acknowledged goes to a new one (invariant 7).

use crate::failures::failure;
use crate::fault::{Fault, Phase};
use crate::ids::{Micros, NextOffset, StreamName};
use crate::io::{Failure, FailureKind, LeaveReason, Notice};
use crate::mutant::Mutant;
use crate::open_stream::{Open, Outcome, Shared};
use crate::trouble::Over;

use super::{Lane, Stream};

/// A stream that is never appended to again; its flush target is frozen (invariant 7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeftStream {
    pub(super) name: StreamName,
    pub(super) prepared: NextOffset,
    pub(super) acked: NextOffset,
    pub(super) last_append: Micros,
}

impl Lane {
    /// Leaves the stream with its flush target frozen; what was not acknowledged goes to a new one (invariant 7).
    pub(super) fn leave(&mut self, reason: LeaveReason, shared: &mut Shared) {
        self.disconnect(shared);
        let Stream::Open(open) = std::mem::replace(&mut self.stream, Stream::None) else {
            return;
        };
        let Open {
            name,
            ledger,
            prepared,
            last_append,
            ..
        } = *open;
        let (acked, left) = (ledger.acked(), name.clone());
        shared.notice(Notice::StreamLeft {
            stream: name.clone(),
            flushable: acked,
            reason,
        });
        if shared.mutation.is(Mutant::CountLateAckAfterLeaving) {
            self.late.left(&name, &ledger);
        }
        if acked > prepared || shared.mutation.is(Mutant::CountLateAckAfterLeaving) {
            self.left.push(LeftStream {
                name,
                prepared,
                acked,
                last_append,
            });
        }
        let newer = std::mem::take(&mut self.waiting);
        let again = if shared.mutation.is(Mutant::NewStreamWithoutResend) {
            1
        } else {
            usize::MAX
        };
        self.waiting = ledger.into_unacknowledged().take(again).chain(newer).collect();
        self.ask_for_removal(left, shared);
    }

    /// Leaves the stream and has another made, at once the first time, then with pauses and a budget.
    pub(super) fn replace(&mut self, reason: LeaveReason, fault: &Fault, shared: &mut Shared) -> Outcome {
        self.leave(reason, shared);
        let salt = self.salt(shared);
        let Some(pause) = self.patience.left_stream(&shared.limits, shared.now, salt) else {
            return Err(failure(Over::Restart, "appending", Phase::Append, fault));
        };
        if !pause.is_zero() && !self.waiting.is_empty() {
            self.stream = Stream::CreateAt(shared.now.after(pause));
        }
        self.advance(shared);
        Ok(())
    }

    /// The stream is over: bearable only if it owes nothing (invariant 7).
    pub(super) fn gone(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let (acked, committed) = (open.ledger.acked(), open.committed);
        if acked > committed && !shared.mutation.is(Mutant::LeaveGoneStreamThatOwesRows) {
            return Err(Failure {
                kind: FailureKind::Restart,
                message: format!(
                    "stream {} is gone with rows {committed} to {} acknowledged but not visible ({fault}); the job restarts from its checkpoint",
                    open.name,
                    acked.0 - 1
                ),
            });
        }
        self.replace(LeaveReason::Gone(fault.clone()), fault, shared)
    }

    /// Nothing says that what it owes can be flushed (invariant 7).
    pub(super) fn owes_and_may_be_gone(&self) -> bool {
        let owes = matches!(&self.stream, Stream::Open(open) if open.ledger.acked() > open.committed);
        owes && self.patience.may_be_gone()
    }
}
