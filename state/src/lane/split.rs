//! Requests that BigQuery refuses as too large: cut in two until they fit. Their rows keep their offsets (invariant 4).

use crate::failures::{check_cut, dead_letter_refused, row_too_large, too_large_text};
use crate::fault::{Fault, RowFault};
use crate::ids::{BatchId, RowCount};
use crate::io::{Command, Destination, Notice, RowErrorPolicy};
use crate::ledger::Batch;
use crate::open_stream::{Connection, Flow, Outcome, Shared};

use super::rows::Refused;
use super::{Lane, Stream};

impl Lane {
    /// BigQuery refused the first unacknowledged request as too large. A single row is one that does not fit.
    pub(super) fn too_large(&mut self, fault: &Fault, shared: &mut Shared) -> Outcome {
        let (now, destination) = (shared.now, self.destination);
        let Some(open) = self.open_mut() else {
            return Ok(());
        };
        let Some(head) = open.ledger.head() else {
            return Ok(());
        };
        let Batch { id, rows, bytes } = head.batch;
        if rows == RowCount(1) {
            return match (shared.row_errors, destination) {
                (RowErrorPolicy::Fail, _) => {
                    let row = format!("the row at offset {} of {}", head.offset, open.name);
                    Err(row_too_large(&row, bytes, fault))
                }
                (RowErrorPolicy::DeadLetter, Destination::DeadLetters) => Err(dead_letter_refused(fault)),
                (RowErrorPolicy::DeadLetter, Destination::Table) => {
                    let message = too_large_text(bytes, fault);
                    let row_errors = vec![RowFault { index: 0, message }];
                    let fault = Fault {
                        row_errors,
                        ..fault.clone()
                    };
                    self.rows_refused(&fault, shared)
                }
            };
        }
        if let Connection::Live { flow, .. } = &mut open.connection {
            *flow = Flow::Draining { resend_at: now };
        }
        self.refused = Refused::Splitting(id);
        shared.notice(Notice::RequestTooLarge {
            bytes,
            fault: fault.clone(),
        });
        shared.emit(Command::Split { batch: id });
        Ok(())
    }

    /// Whether the driver is cutting this payload in two.
    pub(crate) fn is_splitting(&self, batch: BatchId) -> bool {
        matches!(self.refused, Refused::Splitting(splitting) if splitting == batch)
    }

    /// The first request is two.
    pub(crate) fn was_split(
        &mut self,
        first: Batch,
        rest: BatchId,
        rest_bytes: u64,
        shared: &mut Shared,
    ) -> Outcome {
        let Some(whole) = self.first() else { return Ok(()) };
        let rows = check_cut(whole.rows, first.rows)?;
        let rest = Batch {
            id: rest,
            rows,
            bytes: rest_bytes,
        };
        match &mut self.stream {
            Stream::Open(open) => open.ledger.split_head(first, rest),
            // The stream was left meanwhile; no part has an offset.
            Stream::None | Stream::Creating | Stream::CreateAt(_) => {
                self.waiting.pop_front();
                self.waiting.push_front(rest);
                self.waiting.push_front(first);
            }
        }
        self.refused = Refused::None;
        self.advance(shared);
        Ok(())
    }
}
