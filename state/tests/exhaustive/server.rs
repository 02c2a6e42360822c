//! BigQuery as far as the core sees it: streams with an end and a flush cursor (write-api.md 2.1, 2.2).

use std::collections::BTreeMap;

use bigquery_sink_state::{Code, Destination, Fault, Place, RowFault, StorageCode, StreamName};

/// A row of nobody in this pipeline.
pub(crate) const FOREIGN: u8 = 99;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) streams: BTreeMap<StreamName, Stream>,
    /// What a reader sees, in the table and among the dead letters.
    pub(crate) visible: Vec<u8>,
    pub(crate) dead_letters: Vec<u8>,
    /// Rows that are refused, and whether that is seen before a wrong offset.
    pub(crate) bad: &'static [u8],
    pub(crate) rows_first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    /// Life and subtask that made it (invariant 2).
    pub(crate) creator: (u8, usize),
    pub(crate) destination: Destination,
    pub(crate) rows: Vec<u8>,
    pub(crate) flushed: usize,
    /// It expired: nothing of it answers any more.
    pub(crate) gone: bool,
    /// Rows that each offset was ever asked to hold (invariant 4).
    pub(crate) promised: Vec<u8>,
}

impl Server {
    pub(crate) fn create(&mut self, name: &StreamName, creator: (u8, usize), destination: Destination) {
        let stream = Stream {
            creator,
            destination,
            rows: Vec::new(),
            flushed: 0,
            gone: false,
            promised: Vec::new(),
        };
        let before = self.streams.insert(name.clone(), stream);
        assert_eq!(before, None, "the model names each stream once");
    }

    pub(crate) fn append(&mut self, name: &StreamName, offset: u64, rows: &[u8]) -> Result<u64, Fault> {
        let (bad, rows_first) = (self.bad, self.rows_first);
        let stream = self.stream(name)?;
        let table = stream.destination == Destination::Table;
        let refused = rows.iter().position(|row| table && bad.contains(row));
        if rows_first && let Some(index) = refused {
            return Err(row_error(index));
        }
        let end = stream.rows.len() as u64;
        if offset < end {
            return Err(offset_fault(StorageCode::OffsetAlreadyExists, end, offset));
        }
        if offset > end {
            return Err(offset_fault(StorageCode::OffsetOutOfRange, end, offset));
        }
        if let Some(index) = refused {
            return Err(row_error(index));
        }
        stream.rows.extend_from_slice(rows);
        Ok(end)
    }

    /// Publishes up to an inclusive offset; whether that changed anything.
    pub(crate) fn flush(&mut self, name: &StreamName, offset: u64) -> Result<bool, Fault> {
        let stream = self.stream(name)?;
        let end = usize::try_from(offset).unwrap() + 1;
        if end > stream.rows.len() {
            return Err(offset_fault(
                StorageCode::OffsetOutOfRange,
                stream.rows.len() as u64,
                offset,
            ));
        }
        let new = stream.rows[stream.flushed.min(end)..end].to_vec();
        stream.flushed = stream.flushed.max(end);
        let destination = stream.destination;
        let visible = match destination {
            Destination::Table => &mut self.visible,
            Destination::DeadLetters => &mut self.dead_letters,
        };
        for row in &new {
            assert!(
                *row != FOREIGN,
                "invariant 5: a foreign row at {name} became visible"
            );
            assert!(
                !visible.contains(row),
                "invariant 1 to 5: row {row} became visible twice, now by {name}"
            );
            visible.push(*row);
        }
        visible.sort_unstable();
        Ok(!new.is_empty())
    }

    fn stream(&mut self, name: &StreamName) -> Result<&mut Stream, Fault> {
        match self.streams.get_mut(name) {
            Some(stream) if !stream.gone => Ok(stream),
            _ => Err(Fault {
                storage_code: Some(StorageCode::StreamNotFound),
                ..fault(Code::NotFound, Place::InBand)
            }),
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
        message: String::new(),
    }
}

/// The whole request is refused, and the list is cut short: one row at a time is named.
fn row_error(index: usize) -> Fault {
    Fault {
        row_errors: vec![RowFault {
            index: index as u64,
            message: String::new(),
        }],
        ..fault(Code::InvalidArgument, Place::InBand)
    }
}

pub(crate) fn offset_fault(storage_code: StorageCode, expected: u64, received: u64) -> Fault {
    let code = if storage_code == StorageCode::OffsetAlreadyExists {
        Code::AlreadyExists
    } else {
        Code::OutOfRange
    };
    Fault {
        storage_code: Some(storage_code),
        // The text does not always tell.
        expected_offset: received.is_multiple_of(2).then_some(expected),
        ..fault(code, Place::InBand)
    }
}
