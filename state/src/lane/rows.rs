//! Rows that BigQuery refuses: they leave their request; what stands behind it moves up, or goes to a new stream.
//!
//! ```text
//! row error for the first request ──> Named: every answer behind it is awaited
//!     nothing on the stream in doubt ──> Removing, where it stands ──> it and all behind it get their offsets anew
//!     something is in doubt          ──> the stream is left ──> Removing ──> a new stream takes what is unacknowledged
//! ```

use crate::failures::{check_removal, dead_letter_refused, failure, names_no_row};
use crate::fault::{Fault, Phase, Reaction};
use crate::ids::{BatchId, RowCount, StreamName};
use crate::io::{Command, Destination, LeaveReason, Limits, Notice, RowErrorPolicy};
use crate::ledger::Batch;
use crate::mutant::Mutant;
use crate::open_stream::{Connection, Flow, Outcome, Shared};
use crate::trouble::Over;

use super::{Lane, Stream};

/// Bad rows of a lane's first unacknowledged request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Refused {
    #[default]
    None,
    /// BigQuery named them; answers behind are due, one of which may have said that the stream is gone.
    Named {
        fault: Box<Fault>,
        gone: Option<Box<Fault>>,
    },
    /// The driver takes them out of this payload. Nothing goes out meanwhile.
    Removing(BatchId),
    /// The driver cuts this payload in two, which was too large. Nothing goes out meanwhile.
    Splitting(BatchId),
}

/// Requests that may be under way: one after a row error, since more are likely and each costs all behind it a round; then twice as many
/// with each that is acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Window {
    /// `None`: as many as the usual limits let in.
    most: Option<usize>,
}

impl Window {
    pub(super) fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    fn row_error(&mut self) {
        self.most = Some(1);
    }

    pub(super) fn acknowledged(&mut self, limits: &Limits) {
        let doubled = self.most.and_then(|most| most.checked_mul(2));
        self.most = doubled.filter(|most| *most < limits.inflight_requests);
    }
}

impl Lane {
    pub(super) fn is_named(&self) -> bool {
        matches!(self.refused, Refused::Named { .. })
    }

    pub(super) fn waits_for_driver(&self) -> bool {
        matches!(self.refused, Refused::Removing(_) | Refused::Splitting(_))
    }

    /// Whether the driver is taking rows out of this payload.
    pub(crate) fn is_removing_from(&self, batch: BatchId) -> bool {
        matches!(self.refused, Refused::Removing(removing) if removing == batch)
    }

    /// BigQuery refused rows of the first unacknowledged request.
    pub(super) fn rows_refused(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        if shared.row_errors == RowErrorPolicy::Fail {
            return Err(failure(Over::User, "appending", Phase::Append, fault));
        }
        if self.destination == Destination::DeadLetters {
            return Err(dead_letter_refused(fault));
        }
        let now = shared.now;
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let Some(head) = open.ledger.head() else {
            return Ok(());
        };
        if fault.rows_within(head.batch.rows).is_empty() {
            // Each round takes out one row at least, so that a request cannot go round for ever.
            return Err(names_no_row(fault, head.batch.rows, &open.name));
        }
        if let Connection::Live { flow, .. } = &mut open.connection {
            *flow = Flow::Draining { resend_at: now };
        }
        self.window.row_error();
        self.refused = Refused::Named {
            fault: Box::new(fault.clone()),
            gone: None,
        };
        self.drained(shared)
    }

    /// An answer behind the refused request: if the stream is gone, it is not left as one that can be flushed (invariant 7).
    pub(super) fn note_echo(&mut self, reaction: Reaction, echo: &Fault) {
        if let Refused::Named { gone, .. } = &mut self.refused
            && matches!(reaction, Reaction::Gone | Reaction::MaybeGone)
        {
            *gone = Some(Box::new(echo.clone()));
        }
    }

    /// No answer is due any more. Rows move up only if each was answered and nothing of the stream is in doubt (invariant 4).
    pub(super) fn settle(&mut self, shared: &mut Shared) -> Outcome {
        let (Refused::Named { fault, gone }, Stream::Open(open)) = (&self.refused, &self.stream) else {
            return Ok(());
        };
        let (fault, gone) = (fault.clone(), gone.clone());
        if !open.ledger.is_in_doubt() || shared.mutation.is(Mutant::MoveRowsUpWhileInDoubt) {
            let stream = open.name.clone();
            self.ask_for_removal(stream, shared);
            return Ok(());
        }
        if gone.is_some() || self.owes_and_may_be_gone() {
            return self.gone(&gone.unwrap_or(fault), shared);
        }
        self.leave(LeaveReason::InDoubt, shared);
        Ok(())
    }

    /// Has the bad rows taken out of the first unacknowledged request, wherever it stands now.
    pub(super) fn ask_for_removal(&mut self, stream: StreamName, shared: &mut Shared) {
        let (Refused::Named { fault, .. }, Some(batch)) = (&self.refused, self.first()) else {
            return;
        };
        let rows = fault.rows_within(batch.rows);
        self.refused = Refused::Removing(batch.id);
        shared.notice(Notice::RowsRejected {
            stream,
            rows: RowCount(rows.len() as u64),
        });
        shared.emit(Command::RemoveRows {
            batch: batch.id,
            rows,
        });
    }

    /// The first request has its good rows only.
    pub(crate) fn rows_removed(
        &mut self,
        left: RowCount,
        bytes: u64,
        dead_letters: RowCount,
        shared: &mut Shared,
    ) -> Outcome {
        let Some(batch) = self.first() else { return Ok(()) };
        check_removal(batch.rows, left, dead_letters)?;
        self.refused = Refused::None;
        match &mut self.stream {
            Stream::Open(open) => {
                open.ledger.shrink_head(left, bytes);
                if !shared.mutation.is(Mutant::KeepOffsetsAfterRowError) {
                    open.ledger.move_up();
                }
                if let Connection::Live { flow, .. } = &mut open.connection {
                    *flow = Flow::Alone;
                }
            }
            Stream::None | Stream::Creating | Stream::CreateAt(_) => {
                self.waiting.pop_front();
                if left.0 > 0 {
                    self.waiting.push_front(Batch {
                        rows: left,
                        bytes,
                        ..batch
                    });
                }
                if self.waiting.is_empty() {
                    // No rows, no stream (invariant 2).
                    self.stream = Stream::None;
                }
            }
        }
        if left.0 == 0 {
            shared.emit(Command::Release { batch: batch.id });
        }
        self.advance(shared);
        Ok(())
    }

    /// The first unacknowledged payload.
    pub(super) fn first(&self) -> Option<Batch> {
        let head = self.ledger().and_then(|ledger| ledger.head());
        head.map(|head| head.batch)
            .or_else(|| self.waiting.front().copied())
    }
}
