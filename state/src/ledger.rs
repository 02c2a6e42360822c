//! The ledger of one stream: what was handed to it, what went out, and what was acknowledged, in order and without a gap.

use std::collections::VecDeque;

use crate::ids::{BatchId, Micros, NextOffset, RequestNumber, RowCount};

/// Rows handed to a stream, from offset 0 on: `acked` of them acknowledged, the rest in `entries`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    entries: VecDeque<Entry>,
    acked: NextOffset,
    assigned: NextOffset,
    bytes: u64,
    /// How many of `entries` went out on the live connection.
    sent: usize,
    /// Answers due on the live connection, in order.
    awaiting: VecDeque<RequestNumber>,
}

/// One unacknowledged request. Its offset, rows and bytes change only while nothing of the stream is in doubt (invariant 4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) batch: Batch,
    pub(crate) offset: NextOffset,
    /// It went out before, and what became of it is not known.
    pub(crate) in_doubt: bool,
    request: Option<RequestNumber>,
    sent_at: Micros,
}

/// A payload by its number and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub(crate) id: BatchId,
    pub(crate) rows: RowCount,
    pub(crate) bytes: u64,
}

impl Entry {
    /// Exclusive end of the rows.
    pub(crate) fn end(&self) -> NextOffset {
        self.offset.plus(self.batch.rows)
    }
}

impl Ledger {
    /// Of a stream that holds rows already.
    pub(crate) fn beginning_at(end: NextOffset) -> Self {
        Self {
            acked: end,
            assigned: end,
            ..Self::default()
        }
    }

    /// Gives the next offsets to a payload.
    pub(crate) fn push(&mut self, batch: Batch) {
        assert!(batch.rows.0 > 0, "a request without rows is never made");
        let offset = self.assigned;
        self.assigned = offset.plus(batch.rows);
        self.bytes += batch.bytes;
        self.entries.push_back(Entry {
            batch,
            offset,
            in_doubt: false,
            request: None,
            sent_at: Micros(0),
        });
    }

    /// The next request to go out on the live connection.
    pub(crate) fn next_unsent(&self) -> Option<&Entry> {
        self.entries.get(self.sent)
    }

    /// Notes that the next request went out under a number of its own.
    pub(crate) fn mark_sent(&mut self, request: RequestNumber, now: Micros) {
        let entry = self
            .entries
            .get_mut(self.sent)
            .expect("only a request that next_unsent gave is sent");
        entry.request = Some(request);
        entry.sent_at = now;
        self.sent += 1;
        self.awaiting.push_back(request);
    }

    /// Takes note of an answer; false if it is not the one that is due, which only a peer that breaks the order can cause.
    pub(crate) fn answered(&mut self, request: RequestNumber) -> bool {
        let due = self.awaiting.front() == Some(&request);
        if due {
            self.awaiting.pop_front();
        }
        due
    }

    /// Whether a request is the first unacknowledged one.
    pub(crate) fn is_head(&self, request: RequestNumber) -> bool {
        self.head().is_some_and(|head| head.request == Some(request))
    }

    /// The first unacknowledged request.
    pub(crate) fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// Counts the first unacknowledged request as stored (invariant 3: in order, from 0, without a gap).
    pub(crate) fn accept_head(&mut self) -> Entry {
        let entry = self
            .entries
            .pop_front()
            .expect("an answer was matched with a head");
        assert_eq!(
            entry.offset, self.acked,
            "acknowledgements leave no gap (invariant 3)"
        );
        self.acked = entry.end();
        self.bytes -= entry.batch.bytes;
        self.sent = self.sent.saturating_sub(1);
        if self.entries.is_empty() {
            assert_eq!(
                self.acked, self.assigned,
                "an empty ledger has every row acknowledged (invariant 3)"
            );
            assert_eq!(self.bytes, 0, "an empty ledger holds no bytes");
            assert!(self.awaiting.is_empty(), "an empty ledger has no answers due");
        }
        entry
    }

    /// The first request without its bad rows; one that has none left is dropped.
    pub(crate) fn shrink_head(&mut self, rows: RowCount, bytes: u64) {
        assert!(
            self.awaiting.is_empty(),
            "rows are taken out when every answer is in (invariant 4)"
        );
        let head = self.entries.front_mut().expect("rows of a request were refused");
        self.bytes = self.bytes - head.batch.bytes + bytes;
        (head.batch.rows, head.batch.bytes) = (rows, bytes);
        if rows.0 == 0 {
            self.bytes -= bytes;
            self.entries.pop_front();
        }
        self.sent = 0;
    }

    /// The first request in two parts, the rows of which keep their offsets.
    pub(crate) fn split_head(&mut self, first: Batch, rest: Batch) {
        let head = self.entries.pop_front().expect("a request was too large");
        assert_eq!(
            first.rows.0 + rest.rows.0,
            head.batch.rows.0,
            "a request is cut in two without loss (invariant 4)"
        );
        self.bytes = self.bytes - head.batch.bytes + first.bytes + rest.bytes;
        let part = |batch, offset| Entry {
            batch,
            offset,
            request: None,
            ..head
        };
        self.entries.push_front(part(rest, head.offset.plus(first.rows)));
        self.entries.push_front(part(first, head.offset));
        // Nothing goes out before every answer behind it is in.
        self.sent = 0;
    }

    /// Gives offsets anew, from the first request on: what stands behind it moves up.
    pub(crate) fn move_up(&mut self) {
        let mut end = self.acked;
        for entry in &mut self.entries {
            entry.offset = end;
            end = entry.end();
        }
        self.assigned = end;
    }

    /// What became of this request is not known.
    pub(crate) fn doubt(&mut self, request: RequestNumber) {
        if let Some(entry) = self
            .entries
            .iter_mut()
            .find(|entry| entry.request == Some(request))
        {
            entry.in_doubt = true;
        }
    }

    /// The connection is gone: every request without an answer is in doubt, and all go out again from the first.
    pub(crate) fn lose_connection(&mut self) {
        for entry in &mut self.entries {
            entry.in_doubt |= entry
                .request
                .is_some_and(|request| self.awaiting.contains(&request));
        }
        self.awaiting.clear();
        self.sent = 0;
    }

    /// Every answer is in: what was refused goes out again from the first.
    pub(crate) fn rewind(&mut self) {
        assert!(
            self.awaiting.is_empty(),
            "a resend waits until every answer is in (invariant 4)"
        );
        self.sent = 0;
    }

    /// Whether what became of a request is not known.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.entries.iter().any(|entry| entry.in_doubt)
    }

    /// Gives up the stream: the unacknowledged payloads, in order, for another one.
    pub(crate) fn into_unacknowledged(self) -> impl Iterator<Item = Batch> {
        self.entries.into_iter().map(|entry| entry.batch)
    }

    /// Requests that went out and were not acknowledged, with their exclusive ends.
    pub(crate) fn sent_requests(&self) -> impl Iterator<Item = (RequestNumber, NextOffset)> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry.request?, entry.end())))
    }

    /// The request whose answer is due.
    pub(crate) fn due(&self) -> Option<RequestNumber> {
        self.awaiting.front().copied()
    }

    /// Exclusive end of what was acknowledged.
    pub(crate) fn acked(&self) -> NextOffset {
        self.acked
    }

    /// Requests not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes not acknowledged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether every row is acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many answers are due.
    pub(crate) fn under_way(&self) -> usize {
        self.awaiting.len()
    }

    /// Whether the first unacknowledged request is the one whose answer is due, and no other is.
    pub(crate) fn awaits_head_alone(&self) -> bool {
        self.awaiting.len() == 1 && self.is_head(self.awaiting[0])
    }

    /// Whether no answer is due.
    pub(crate) fn is_answered(&self) -> bool {
        self.awaiting.is_empty()
    }

    /// When the request whose answer is due next went out.
    pub(crate) fn oldest_sent_at(&self) -> Option<Micros> {
        let due = self.awaiting.front()?;
        self.entries
            .iter()
            .find(|entry| entry.request == Some(*due))
            .map(|entry| entry.sent_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(id: u64, rows: u64) -> Batch {
        Batch {
            id: BatchId(id),
            rows: RowCount(rows),
            bytes: rows * 10,
        }
    }

    #[test]
    fn offsets_are_dense_and_acknowledged_in_order() {
        let mut ledger = Ledger::default();
        ledger.push(batch(1, 3));
        ledger.push(batch(2, 2));
        ledger.mark_sent(RequestNumber(1), Micros(5));
        ledger.mark_sent(RequestNumber(2), Micros(6));
        assert!(
            !ledger.answered(RequestNumber(2)),
            "the second answer is not due first"
        );
        assert!(ledger.answered(RequestNumber(1)));
        assert_eq!(ledger.accept_head().offset, NextOffset(0));
        assert_eq!(ledger.oldest_sent_at(), Some(Micros(6)));
        assert!(ledger.answered(RequestNumber(2)));
        assert_eq!(ledger.accept_head().offset, NextOffset(3));
        assert_eq!((ledger.acked(), ledger.bytes()), (NextOffset(5), 0));
    }

    #[test]
    fn a_lost_connection_puts_only_unanswered_requests_in_doubt() {
        let mut ledger = Ledger::default();
        for id in 1..=3 {
            ledger.push(batch(id, 1));
        }
        ledger.mark_sent(RequestNumber(1), Micros(0));
        ledger.mark_sent(RequestNumber(2), Micros(0));
        assert!(ledger.answered(RequestNumber(1)), "refused, so it stays");
        ledger.lose_connection();
        let doubts: Vec<bool> = ledger.entries.iter().map(|entry| entry.in_doubt).collect();
        assert_eq!(doubts, [false, true, false]);
        assert_eq!(ledger.next_unsent().map(|entry| entry.batch.id), Some(BatchId(1)));
    }

    #[test]
    fn a_stream_that_holds_rows_gives_its_end_to_the_next() {
        let mut ledger = Ledger::beginning_at(NextOffset(7));
        ledger.push(batch(1, 2));
        assert_eq!(ledger.accept_head().offset, NextOffset(7));
        assert_eq!(ledger.acked(), NextOffset(9));
    }

    #[test]
    fn only_the_failed_request_is_in_doubt() {
        let mut ledger = Ledger::default();
        for id in 1..=3 {
            ledger.push(batch(id, 1));
            ledger.mark_sent(RequestNumber(id), Micros(0));
        }
        ledger.doubt(RequestNumber(2));
        let doubts: Vec<bool> = ledger.entries.iter().map(|entry| entry.in_doubt).collect();
        assert_eq!(doubts, [false, true, false]);
    }

    #[test]
    fn a_request_that_has_no_row_left_holds_no_bytes() {
        let mut ledger = Ledger::default();
        ledger.push(batch(1, 3));
        ledger.push(batch(2, 2));
        ledger.shrink_head(RowCount(0), 7);
        assert_eq!((ledger.len(), ledger.bytes()), (1, 20));
    }

    #[test]
    #[should_panic(expected = "waits until every answer is in")]
    fn a_rewind_with_answers_due_is_a_broken_promise_of_ours() {
        let mut ledger = Ledger::default();
        ledger.push(batch(1, 1));
        ledger.mark_sent(RequestNumber(1), Micros(0));
        ledger.rewind();
    }
}
