//! BigQuery as far as the core sees it: streams with an end and a flush cursor (write-api.md 2.1, 2.2).

use std::collections::{BTreeMap, BTreeSet};

use bigquery_sink_state::{Code, Fault, Place};

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) streams: BTreeMap<String, Stream>,
    created: u64,
    seen: BTreeSet<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) rows: Vec<u64>,
    pub(crate) flushed: usize,
    pub(crate) gone: bool,
}

impl Server {
    pub(crate) fn create(&mut self) -> String {
        self.created += 1;
        let name = format!("t/streams/{}", self.created);
        self.streams.insert(name.clone(), Stream::default());
        name
    }

    pub(crate) fn append(&mut self, stream: &str, offset: u64, rows: &[u64]) -> Result<u64, Fault> {
        let stream = self.stream(stream)?;
        let end = stream.rows.len() as u64;
        if offset < end {
            return Err(offset_fault(Code::AlreadyExists, end, offset));
        }
        if offset > end {
            return Err(offset_fault(Code::OutOfRange, end, offset));
        }
        stream.rows.extend_from_slice(rows);
        Ok(end)
    }

    /// Publishes; panics where a reader would see a row twice.
    pub(crate) fn flush(&mut self, name: &str, offset: u64) -> Result<bool, Fault> {
        let stream = self.stream(name)?;
        let end = usize::try_from(offset).unwrap() + 1;
        if end > stream.rows.len() {
            return Err(offset_fault(Code::OutOfRange, stream.rows.len() as u64, offset));
        }
        let new: Vec<u64> = stream.rows[stream.flushed.min(end)..end].to_vec();
        let moved = end > stream.flushed;
        stream.flushed = stream.flushed.max(end);
        for row in new {
            assert!(
                self.seen.insert(row),
                "row {row} became visible twice (invariants 1 to 5)"
            );
        }
        Ok(moved)
    }

    pub(crate) fn visible_rows(&self) -> Vec<u64> {
        self.seen.iter().copied().collect()
    }

    fn stream(&mut self, name: &str) -> Result<&mut Stream, Fault> {
        match self.streams.get_mut(name) {
            Some(stream) if !stream.gone => Ok(stream),
            _ => Err(fault(Code::NotFound, Place::RpcEnd)),
        }
    }
}

pub(crate) fn fault(code: Code, place: Place) -> Fault {
    Fault {
        code,
        storage_code: None,
        place,
        expected_offset: None,
        row_errors: Vec::new(),
        message: "model".into(),
    }
}

fn offset_fault(code: Code, expected: u64, received: u64) -> Fault {
    Fault {
        // The text does not always tell.
        expected_offset: received.is_multiple_of(2).then_some(expected),
        message: format!("expected offset {expected}, received {received}"),
        ..fault(code, Place::InBand)
    }
}
