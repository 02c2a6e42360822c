//! Reads a journal record by record, and tells a record that was never completed from one that was damaged.

use std::io::{self, BufReader, Read};
use std::path::Path;

use super::DataDirError;
use super::record::{self, HEAD, Head, PREFIX};

/// A journal that is being read.
pub(super) struct Reader<R> {
    source: BufReader<R>,
    /// Of the next record.
    offset: u64,
    /// Of the file.
    length: u64,
}

/// What stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole record's payload.
    Record(Vec<u8>),
    /// The file's end.
    End,
    /// The beginning of a record, or what a machine without power makes of one, and nothing behind it. Each record is
    /// on disk before the next is begun, so only the last can be like that.
    Torn,
    /// Something else, and whole records behind it.
    Damaged(&'static str),
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    pub(super) fn open(source: R, length: u64, path: &Path) -> Result<Self, DataDirError> {
        let mut source = BufReader::with_capacity(1 << 20, source);
        let path = path.to_owned();
        let mut head = [0; HEAD];
        // A head is never torn: a journal gets its name when it is on disk.
        match source.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(DataDirError::NotAJournal { path });
            }
            Err(source) => {
                let doing = "read";
                return Err(DataDirError::Io { doing, path, source });
            }
        }
        match record::read_head(head) {
            Head::Known => Ok(Self {
                source,
                offset: HEAD as u64,
                length,
            }),
            Head::Newer(version) => Err(DataDirError::Newer { path, version }),
            Head::Foreign => Err(DataDirError::NotAJournal { path }),
        }
    }

    /// Where the next record begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads on. Only behind a record can be read on again.
    pub(super) fn next(&mut self) -> io::Result<Found> {
        let left = self.length.saturating_sub(self.offset);
        if left == 0 {
            return Ok(Found::End);
        }
        if left < PREFIX as u64 {
            return Ok(Found::Torn);
        }
        let mut prefix = [0; PREFIX];
        self.source.read_exact(&mut prefix)?;
        let left = left - PREFIX as u64;
        let Some((length, crc)) = record::read_prefix(prefix, self.offset) else {
            return self.lost(&prefix);
        };
        if length > left {
            return Ok(Found::Torn);
        }
        let mut payload = Vec::new();
        self.source.by_ref().take(length).read_to_end(&mut payload)?;
        if payload.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if crc32c::crc32c(&payload) != crc {
            return Ok(if length == left {
                Found::Torn
            } else {
                Found::Damaged("its checksum is not that of its bytes")
            });
        }
        self.offset += PREFIX as u64 + length;
        Ok(Found::Record(payload))
    }

    /// No record begins here: is there another one behind?
    fn lost(&mut self, prefix: &[u8]) -> io::Result<Found> {
        let mut rest = prefix.to_vec();
        self.source.read_to_end(&mut rest)?;
        let whole = |at: usize| {
            let (prefix, behind) = rest.get(at..)?.split_first_chunk()?;
            let (length, crc) = record::read_prefix(*prefix, self.offset + at as u64)?;
            let payload = behind.get(..usize::try_from(length).ok()?)?;
            (crc32c::crc32c(payload) == crc).then_some(())
        };
        Ok(if (1..rest.len()).any(|at| whole(at).is_some()) {
            Found::Damaged("no record begins there")
        } else {
            Found::Torn
        })
    }
}
