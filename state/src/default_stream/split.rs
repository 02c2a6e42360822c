//! Requests to a default stream that BigQuery refuses as too large: cut in two until they fit.

use crate::failures::{check_cut, row_too_large, too_large_text};
use crate::fault::{Fault, RowFault};
use crate::ids::{BatchId, RowCount};
use crate::io::{Command, Notice, RowErrorPolicy};
use crate::ledger::Batch;
use crate::open_stream::{Outcome, Shared};

use super::lane::{Lane, Sent};

impl Lane {
    /// BigQuery refused a request as too large; those behind it go their way. A single row is one that does not fit.
    pub(super) fn too_large(&mut self, sent: Sent, fault: &Fault, shared: &mut Shared) -> Outcome {
        let Batch { id, rows, bytes } = sent.batch;
        if rows == RowCount(1) {
            if shared.row_errors == RowErrorPolicy::Fail {
                let row = format!("a row for {}", self.stream);
                return Err(row_too_large(&row, bytes, fault));
            }
            let message = too_large_text(bytes, fault);
            let row_errors = vec![RowFault { index: 0, message }];
            let fault = Fault {
                row_errors,
                ..fault.clone()
            };
            return self.rows_refused(sent, &fault, shared);
        }
        self.splitting.insert(sent.place, sent.batch);
        shared.notice(Notice::RequestTooLarge {
            bytes,
            fault: fault.clone(),
        });
        shared.emit(Command::Split { batch: id });
        self.pump(shared);
        Ok(())
    }

    /// Whether the driver is cutting this payload in two.
    pub(super) fn is_splitting(&self, batch: BatchId) -> bool {
        self.splitting.values().any(|splitting| splitting.id == batch)
    }

    /// A request is two.
    pub(super) fn was_split(
        &mut self,
        first: Batch,
        rest: BatchId,
        rest_bytes: u64,
        shared: &mut Shared,
    ) -> Outcome {
        let mut splitting = self.splitting.iter();
        let Some((&place, whole)) = splitting.find(|(_, batch)| batch.id == first.id) else {
            return Ok(());
        };
        let rows = check_cut(whole.rows, first.rows)?;
        self.splitting.remove(&place);
        self.waiting.insert(place, first);
        let rest = Batch {
            id: rest,
            rows,
            bytes: rest_bytes,
        };
        self.waiting.insert(place + first.rows.0, rest);
        self.pump(shared);
        Ok(())
    }
}
