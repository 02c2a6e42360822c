//! Counters of the protocol as types, so that an exclusive end and an inclusive target cannot be mixed up.

use std::fmt;
use std::time::Duration;

use bincode::{Decode, Encode};

/// Number of a checkpoint attempt, counted by the host. Numbers repeat after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Epoch(pub u64);

/// Position of a subtask among the parallel instances of the sink, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct SubtaskIndex(pub u32);

/// One life of a subtask: it grows with every attempt, also when two attempts die before their first checkpoint.
///
/// It is the larger of the largest persisted incarnation plus one and the wall clock (µs) the host read at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Incarnation(pub u64);

/// Count of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct RowCount(pub u64);

/// Offset of the next row of a stream: exclusive end of what the stream holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct NextOffset(pub u64);

/// Offset of the last row to publish: inclusive, as FlushRows takes it (write-api.md 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct FlushOffset(pub u64);

impl NextOffset {
    /// The one conversion between the two kinds of offset: `None` for a stream without rows, which is never flushed.
    #[must_use]
    pub fn flush_offset(self) -> Option<FlushOffset> {
        self.0.checked_sub(1).map(FlushOffset)
    }

    /// The end after `rows` more rows.
    ///
    /// # Panics
    /// Beyond `i64::MAX`, which BigQuery's offsets cannot name; no stream gets there.
    #[must_use]
    pub fn plus(self, rows: RowCount) -> Self {
        let end = self.0.checked_add(rows.0).filter(|end| *end <= i64::MAX as u64);
        Self(end.expect("a stream never holds more rows than an i64 can count"))
    }
}

impl FlushOffset {
    /// Rows published when a stream is flushed up to here.
    #[must_use]
    pub fn next_offset(self) -> NextOffset {
        NextOffset(self.0).plus(RowCount(1))
    }
}

/// Time as the host tells it: µs since 1970, never going back within one incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// This much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// Time since an earlier moment; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Full name of a write stream, opaque here but for the default stream's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct StreamName(pub String);

/// One of the streams a subtask writes side by side (`write.streams`), by position; the stream of dead letters comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub usize);

/// A payload the operator keeps; the core knows its size only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// One AppendRows call. Numbers are never used twice by one incarnation, so that a late answer cannot be taken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// One request on one connection: a resend has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// One FlushRows the core asked for, with all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlushId(pub u64);

impl StreamName {
    /// Whether it is a table's default stream; no other has that name (write-api.md 1.3).
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.ends_with("/_default")
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(
    Epoch,
    SubtaskIndex,
    Incarnation,
    RowCount,
    NextOffset,
    FlushOffset
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_offset_is_inclusive_and_absent_for_an_empty_stream() {
        assert_eq!(NextOffset(0).flush_offset(), None);
        assert_eq!(NextOffset(1).flush_offset(), Some(FlushOffset(0)));
        assert_eq!(NextOffset(10).flush_offset(), Some(FlushOffset(9)));
        assert_eq!(FlushOffset(9).next_offset(), NextOffset(10));
    }
}
