//! Rows on their way through the driver: from the host into requests, and refused ones into dead letters.

use std::collections::BTreeMap;

use bigquery_sink_state::{BatchId, Destination, Input, NextOffset, RowCount, RowFault, StreamName};
use bigquery_write_proto::rows::{EncodedRows, MeasuredRows};

use super::super::refused::{Reason, Refused, Sifted, only};
use super::Driver;
use crate::error::SinkError;

/// A request that was not acknowledged.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub(super) destination: Destination,
    pub(super) rows: RowCount,
    /// A resend shares the bytes.
    pub(super) encoded: EncodedRows,
    /// What was encoded, kept only where BigQuery may have rows taken out of it (`row_errors = 'dead_letter'`).
    pub(super) kept: Vec<MeasuredRows>,
    /// The stream it went out on last, and its first row's offset there, where that is known.
    pub(super) sent_to: Option<(StreamName, Option<NextOffset>)>,
}

/// Requests that were not acknowledged, by number.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    by_number: BTreeMap<BatchId, Unacknowledged>,
    /// Of all of them.
    bytes: u64,
    /// Of memory beside that.
    kept: u64,
}

impl Payloads {
    pub(super) fn insert(&mut self, number: BatchId, payload: Unacknowledged) {
        self.bytes += payload.bytes();
        self.kept += payload.kept_bytes();
        self.by_number.insert(number, payload);
    }

    pub(super) fn remove(&mut self, number: BatchId) -> Option<Unacknowledged> {
        let payload = self.by_number.remove(&number)?;
        self.bytes -= payload.bytes();
        self.kept -= payload.kept_bytes();
        Some(payload)
    }

    pub(super) fn get(&self, number: BatchId) -> Option<&Unacknowledged> {
        self.by_number.get(&number)
    }

    /// Takes note of where a request goes, and gives where it went before.
    pub(super) fn sent(
        &mut self,
        number: BatchId,
        to: (StreamName, Option<NextOffset>),
    ) -> Option<StreamName> {
        let payload = self.by_number.get_mut(&number)?;
        payload.sent_to.replace(to).map(|(stream, _)| stream)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is room in memory for one more, where so many bytes are allowed: what is kept of protobuf's rows may be many times
    /// what they are when written, which is what the core's window is about.
    pub(super) fn have_room(&self, allowed: usize) -> bool {
        self.bytes + self.kept < allowed as u64
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}

impl Unacknowledged {
    pub(super) fn bytes(&self) -> u64 {
        self.encoded.bytes() as u64
    }

    /// Of memory beside that.
    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|rows| rows.kept_bytes() as u64).sum()
    }
}

impl Driver {
    /// Takes a batch from the host.
    pub(super) fn take(&mut self, sifted: Sifted) -> Result<(), SinkError> {
        let good = sifted.good.as_ref().map_or(0, MeasuredRows::num_rows);
        if let Some(letters) = &mut self.dead_letters {
            let refused = sifted.refused.as_ref();
            let reasons = refused.map_or(&[][..], |refused| &refused.reasons);
            letters.count(good + reasons.len(), reasons)?;
        }
        if let Some(refused) = sifted.refused {
            let rows = RowCount(refused.reasons.len() as u64);
            self.bury(&refused)?;
            self.tell(Input::RowsRefused { rows });
        }
        match sifted.good {
            Some(good) => self.coalescer.push(good),
            None => Ok(()),
        }
    }

    /// Gives the core one request.
    pub(super) fn send(&mut self, to: Option<Destination>) -> Result<(), SinkError> {
        let payload = match (to, &mut self.dead_letters) {
            (Some(Destination::Table), _) => self.coalescer.take()?,
            (Some(Destination::DeadLetters), Some(letters)) => letters.coalescer.take()?,
            (Some(Destination::DeadLetters), None) | (None, _) => None,
        };
        let (Some(destination), Some(payload)) = (to, payload) else {
            return Ok(());
        };
        let may_shrink = destination == Destination::Table && self.dead_letters.is_some();
        self.next_batch += 1;
        let (id, rows) = (BatchId(self.next_batch), RowCount(payload.rows as u64));
        let unacknowledged = Unacknowledged {
            destination,
            rows,
            encoded: payload.encoded,
            kept: if may_shrink { payload.measured } else { Vec::new() },
            sent_to: None,
        };
        let bytes = unacknowledged.bytes();
        self.payloads.insert(id, unacknowledged);
        self.tell(Input::Batch {
            destination,
            id,
            rows,
            bytes,
        });
        Ok(())
    }

    /// Lets go of a request that was acknowledged, or has no rows left.
    pub(super) fn release(&mut self, batch: BatchId) {
        let Some(payload) = self.payloads.remove(batch) else {
            return;
        };
        let size = (payload.rows, payload.bytes());
        // One that has no rows left was not acknowledged.
        if let Some((stream, offset)) = payload.sent_to.filter(|_| payload.rows.0 > 0) {
            let end = offset.map(|offset| offset.plus(payload.rows));
            self.metrics.acknowledged(&stream, payload.destination, end, size);
        }
    }

    /// Takes rows that BigQuery refused out of a request, and makes dead letters of them.
    pub(super) fn remove_rows(&mut self, batch: BatchId, faults: &[RowFault]) -> Result<(), SinkError> {
        let payload = self.payloads.remove(batch);
        let Some(mut payload) = payload.filter(|payload| !payload.kept.is_empty()) else {
            return Err(SinkError::internal(
                "rows are to be taken out of a request that was not kept for that",
            ));
        };
        let internal = |error| SinkError::internal("a request could not be made anew").with_source(error);
        let whole = self.wire.join(&payload.kept).map_err(internal)?;
        let rows: Vec<usize> = faults
            .iter()
            .map(|fault| usize::try_from(fault.index).expect("the core names rows of the request only"))
            .collect();
        let Some(converted) = whole.batch() else {
            return Err(SinkError::internal(
                "rows are to become dead letters that were not kept for that",
            ));
        };
        let refused = Refused {
            rows: only(converted, &rows)?,
            reasons: faults
                .iter()
                .map(|fault| Reason::of_server(fault, converted))
                .collect(),
        };
        let good = whole.without(&rows).map_err(internal)?;
        payload.rows = RowCount(good.num_rows() as u64);
        payload.kept = vec![good];
        payload.encoded = self.wire.encode(&payload.kept).map_err(internal)?;
        // What goes out next is another request.
        payload.sent_to = None;
        let (left, bytes) = (payload.rows, payload.bytes());
        self.payloads.insert(batch, payload);
        if let Some(letters) = &mut self.dead_letters {
            // They came as rows before.
            letters.count(0, &refused.reasons)?;
        }
        self.bury(&refused)?;
        self.tell(Input::RowsRemoved {
            batch,
            rows: left,
            bytes: if left.0 == 0 { 0 } else { bytes },
            dead_letters: RowCount(refused.reasons.len() as u64),
        });
        Ok(())
    }

    /// Cuts a request in two that BigQuery refused as too large. Later ones become no larger than its larger half, which may be refused too.
    pub(super) fn split(&mut self, batch: BatchId) -> Result<(), SinkError> {
        let internal = |error| SinkError::internal("a request could not be cut in two").with_source(error);
        let Some(whole) = self.payloads.remove(batch) else {
            return Err(SinkError::internal(
                "a request is to be cut in two that is not there",
            ));
        };
        let letters = self.dead_letters.as_mut();
        let letters = letters.filter(|_| whole.destination == Destination::DeadLetters);
        let (wire, coalescer) = match letters {
            Some(letters) => (&letters.wire, &mut letters.coalescer),
            None => (&self.wire, &mut self.coalescer),
        };
        let (first, second) = wire.halve(&whole.encoded).map_err(internal)?;
        coalescer.lower_target(first.bytes().max(second.bytes()));
        let rows = whole.rows.0 / 2;
        let (mut kept, mut kept_behind) = (Vec::new(), Vec::new());
        if !whole.kept.is_empty() {
            let all = wire.join(&whole.kept).map_err(internal)?;
            let (front, behind) = all.split_at(usize::try_from(rows).expect("rows in memory"));
            (kept, kept_behind) = (vec![front], vec![behind]);
        }
        self.next_batch += 1;
        let rest = BatchId(self.next_batch);
        let part = |rows, encoded, kept| Unacknowledged {
            destination: whole.destination,
            rows: RowCount(rows),
            encoded,
            kept,
            sent_to: None,
        };
        let first = part(rows, first, kept);
        let second = part(whole.rows.0 - rows, second, kept_behind);
        let (bytes, rest_bytes) = (first.bytes(), second.bytes());
        self.payloads.insert(batch, first);
        self.payloads.insert(rest, second);
        self.tell(Input::BatchSplit {
            batch,
            rows: RowCount(rows),
            bytes,
            rest,
            rest_bytes,
        });
        Ok(())
    }

    fn bury(&mut self, refused: &Refused) -> Result<(), SinkError> {
        let now = self.clock.now();
        match &mut self.dead_letters {
            Some(letters) => letters.bury(refused, now),
            None => Err(SinkError::internal(
                "rows were refused without a place for dead letters",
            )),
        }
    }
}
