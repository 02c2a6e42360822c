//! Rows as messages, written once and cut and joined from then on without a copy.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::output::varint_len;

/// Rows as messages, one behind the other, in buffers that may be shared.
#[derive(Clone, Debug, Default)]
pub struct ProtoBatch {
    pieces: Vec<Piece>,
}

/// Some of a buffer's rows.
#[derive(Clone, Debug)]
struct Piece {
    /// As a `ProtoRows` has them: before each row its tag and its length, which for small rows is much (reports.md 73).
    buffer: Bytes,
    /// Where each row of the buffer ends.
    ends: Arc<[usize]>,
    rows: Range<usize>,
}

/// Two are equal if their rows are, in whichever buffers they lie.
impl PartialEq for ProtoBatch {
    fn eq(&self, other: &Self) -> bool {
        self.rows().eq(other.rows())
    }
}

impl Eq for ProtoBatch {}

impl ProtoBatch {
    /// Each row's message; shares the buffer.
    pub fn rows(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.pieces.iter().flat_map(|piece| {
            let rows = piece.rows.clone();
            rows.map(|row| piece.buffer.slice(piece.message(row)))
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rows.len()).sum()
    }

    /// Bytes of the rows in a request, each with what says where it ends.
    pub(in crate::rows) fn bytes(&self) -> usize {
        self.pieces.iter().map(Piece::bytes).sum()
    }

    /// What each row alone takes in a request.
    pub(in crate::rows) fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().flat_map(|piece| {
            let rows = piece.rows.clone();
            rows.map(|row| piece.end(row + 1) - piece.end(row))
        })
    }

    /// How many of the first rows take at most `room` bytes in a request.
    pub(in crate::rows) fn fitting(&self, mut room: usize) -> usize {
        let mut fitting = 0;
        for piece in &self.pieces {
            let bytes = piece.bytes();
            if bytes > room {
                return fitting + piece.fitting(room);
            }
            room -= bytes;
            fitting += piece.rows.len();
        }
        fitting
    }

    /// The first `rows`, at most all of them, and the others.
    pub(in crate::rows) fn split_at(&self, rows: usize) -> (Self, Self) {
        let (mut first, mut second) = (Self::default(), Self::default());
        let mut left = rows;
        for piece in &self.pieces {
            let middle = piece.rows.start + left.min(piece.rows.len());
            left -= middle - piece.rows.start;
            first.push(piece.of(piece.rows.start..middle));
            second.push(piece.of(middle..piece.rows.end));
        }
        (first, second)
    }

    /// The rows without these, by ascending index; shares the buffers.
    pub(in crate::rows) fn without(&self, rows: &[usize]) -> Self {
        let mut left = Self::default();
        let (mut rest, mut begin) = (self.clone(), 0);
        for &row in rows {
            let (before, from) = rest.split_at(row - begin);
            left.pieces.extend(before.pieces);
            (rest, begin) = (from.split_at(1).1, row + 1);
        }
        left.pieces.extend(rest.pieces);
        left
    }

    /// The rows of several, in their order.
    pub(in crate::rows) fn joined(batches: impl Iterator<Item = Self>) -> Self {
        Self {
            pieces: batches.flat_map(|batch| batch.pieces).collect(),
        }
    }

    /// The same rows in a buffer of their own, which keeps no other rows alive.
    pub(in crate::rows) fn compact(&self) -> Self {
        let mut writer = Writer::new(self.bytes());
        for piece in &self.pieces {
            for row in piece.rows.clone() {
                writer.push(&piece.buffer[piece.end(row)..piece.end(row + 1)]);
            }
        }
        writer.finish()
    }

    /// Bytes of each buffer.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> Vec<usize> {
        self.pieces.iter().map(|piece| piece.buffer.len()).collect()
    }

    fn push(&mut self, piece: Piece) {
        if !piece.rows.is_empty() {
            self.pieces.push(piece);
        }
    }
}

impl Piece {
    /// Where the buffer's first `rows` end.
    fn end(&self, rows: usize) -> usize {
        rows.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    fn bytes(&self) -> usize {
        self.end(self.rows.end) - self.end(self.rows.start)
    }

    /// A row without what stands before it.
    fn message(&self, row: usize) -> Range<usize> {
        let (begin, end) = (self.end(row), self.end(row + 1));
        let length = &self.buffer[begin + 1..end];
        let goes_on = length.iter().take_while(|&&byte| byte >= 0x80).count();
        begin + 2 + goes_on..end
    }

    fn fitting(&self, room: usize) -> usize {
        let room = self.end(self.rows.start) + room;
        self.ends[self.rows.clone()].partition_point(|&end| end <= room)
    }

    fn of(&self, rows: Range<usize>) -> Self {
        Self {
            buffer: self.buffer.clone(),
            ends: Arc::clone(&self.ends),
            rows,
        }
    }
}

/// The most bytes of a buffer with more than one row: as long as one of them is under way, all are kept.
const PIECE: usize = 256 << 10;

/// Puts rows one behind the other.
#[derive(Debug)]
pub(super) struct Writer {
    batch: ProtoBatch,
    buffer: Vec<u8>,
    ends: Vec<usize>,
    room: usize,
}

impl Writer {
    /// For rows that take no more than so many bytes.
    pub(super) fn new(room: usize) -> Self {
        Self {
            batch: ProtoBatch::default(),
            buffer: Vec::new(),
            ends: Vec::new(),
            room: room.min(PIECE),
        }
    }

    /// Takes a row with its tag and its length.
    #[inline]
    pub(super) fn push(&mut self, row: &[u8]) {
        if self.buffer.capacity() - self.buffer.len() < row.len() {
            self.end_piece();
            self.buffer.reserve_exact(self.room.max(row.len()));
        }
        self.buffer.extend_from_slice(row);
        self.ends.push(self.buffer.len());
    }

    pub(super) fn finish(mut self) -> ProtoBatch {
        self.end_piece();
        self.batch
    }

    fn end_piece(&mut self) {
        // The room was for the longest numbers.
        self.buffer.shrink_to_fit();
        let rows = 0..self.ends.len();
        self.batch.push(Piece {
            buffer: std::mem::take(&mut self.buffer).into(),
            ends: self.ends.as_slice().into(),
            rows,
        });
        self.ends.clear();
    }
}

/// The tag of a row in a `ProtoRows`.
const ROW: u8 = 0x0a;

/// The most bytes of a row's tag and length.
pub(super) const HEAD: usize = 11;

/// Writes a row's tag and length before it; gives where they begin.
#[inline]
pub(super) fn head(bytes: &mut [u8], row: Range<usize>) -> usize {
    let mut len = row.len() as u64;
    let begin = row.start - varint_len(len) - 1;
    bytes[begin] = ROW;
    for byte in &mut bytes[begin + 1..row.start - 1] {
        *byte = len as u8 | 0x80;
        len >>= 7;
    }
    bytes[row.start - 1] = len as u8;
    begin
}
