//! BigQuery as far as the core sees it: streams with an end and a flush cursor (write-api.md 2.1, 2.2).

use std::collections::{BTreeMap, BTreeSet};

use bigquery_sink_state::{Code, Destination, Fault, Place, RowFault};

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) streams: BTreeMap<String, Stream>,
    created: u64,
    /// Rows that a reader saw, and dead letters.
    seen: BTreeSet<u64>,
    dead_letters: BTreeSet<u64>,
    /// Rows that are refused, and whether that is seen before a wrong offset, which is not known of BigQuery.
    pub(crate) bad: BTreeSet<u64>,
    pub(crate) rows_first: bool,
    /// More rows than this in a request are too many, where there is such a limit.
    pub(crate) most_rows: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) destination: Destination,
    pub(crate) rows: Vec<u64>,
    pub(crate) flushed: usize,
    pub(crate) gone: bool,
}

impl Server {
    pub(crate) fn create(&mut self, destination: Destination) -> String {
        self.created += 1;
        let name = format!("t/streams/{}", self.created);
        let stream = Stream {
            destination,
            rows: Vec::new(),
            flushed: 0,
            gone: false,
        };
        self.streams.insert(name.clone(), stream);
        name
    }

    pub(crate) fn append(&mut self, stream: &str, offset: u64, rows: &[u64]) -> Result<u64, Fault> {
        let (refusal, rows_first) = (self.row_errors(stream, offset, rows), self.rows_first);
        let too_large = self.most_rows.is_some_and(|most| rows.len() > most);
        let stream = self.stream(stream)?;
        if too_large {
            return Err(too_large_fault());
        }
        if rows_first && let Some(refusal) = refusal {
            return Err(refusal);
        }
        let end = stream.rows.len() as u64;
        if offset < end {
            return Err(offset_fault(Code::AlreadyExists, end, offset));
        }
        if offset > end {
            return Err(offset_fault(Code::OutOfRange, end, offset));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        stream.rows.extend_from_slice(rows);
        Ok(end)
    }

    /// Bad rows for the table: the whole request is refused. The list may be cut short, and may name what is not there.
    fn row_errors(&self, stream: &str, offset: u64, rows: &[u64]) -> Option<Fault> {
        let table = self.streams[stream].destination == Destination::Table;
        let bad = rows
            .iter()
            .zip(0..)
            .filter(|(row, _)| table && self.bad.contains(row));
        let named = bad.map(|(_, index)| index).take(1 + offset as usize % 3);
        let beyond = offset.is_multiple_of(2).then_some(rows.len() as u64 + offset);
        let named: Vec<u64> = named.collect();
        (!named.is_empty()).then(|| Fault {
            row_errors: beyond.into_iter().chain(named).map(row_fault).collect(),
            ..fault(Code::InvalidArgument, Place::InBand)
        })
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
        let seen = match stream.destination {
            Destination::Table => &mut self.seen,
            Destination::DeadLetters => &mut self.dead_letters,
        };
        for row in new {
            assert!(
                seen.insert(row),
                "row {row} became visible twice (invariants 1 to 5)"
            );
        }
        Ok(moved)
    }

    pub(crate) fn visible_rows(&self) -> Vec<u64> {
        self.seen.iter().copied().collect()
    }

    pub(crate) fn dead_letters(&self) -> Vec<u64> {
        self.dead_letters.iter().copied().collect()
    }

    fn stream(&mut self, name: &str) -> Result<&mut Stream, Fault> {
        match self.streams.get_mut(name) {
            Some(stream) if !stream.gone => Ok(stream),
            _ => Err(fault(Code::NotFound, Place::RpcEnd)),
        }
    }
}

fn row_fault(index: u64) -> RowFault {
    RowFault {
        index,
        message: "model".into(),
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

pub(crate) fn too_large_fault() -> Fault {
    Fault {
        message: "AppendRows request too large".into(),
        ..fault(Code::InvalidArgument, Place::InBand)
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
