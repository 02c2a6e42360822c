//! A local file as numbered records, with a position that tells whether it is still the file that was read.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use bigquery_sink_state::envelope::{self, EnvelopeError, Kind};
use bincode::{Decode, Encode};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::SourceError;
use super::packed::{Compression, Input};

const POSITION_VERSION: u16 = 2;
/// A record longer than this is refused rather than kept in memory.
const RECORD_BYTES: usize = 16 << 20;
/// So much before the position is compared with what was read there.
const TAIL_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
pub(super) const WAY_OUT: &str = "put the old file back, or start anew with --new-state";

/// The file, and where in it we are.
pub(super) struct Lines {
    pub(super) shown: String,
    file: Input,
    /// Of CSV what stands between fields: only there may a record go over lines.
    delimiter: Option<u8>,
    offset: u64,
    /// Lines before the offset; the last one counts even if it has no end.
    line: u64,
    header_crc: Option<u32>,
    /// The last bytes before the offset, up to twice as many as are compared.
    tail: Vec<u8>,
}

/// One record without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) bytes: Vec<u8>,
    /// The line it begins in, from 1.
    pub(super) line: u64,
}

/// Everything before `offset` was handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Position {
    offset: u64,
    line: u64,
    /// Checksum of the header with its line end; `None` without one, and where version 1 was read.
    header_crc: Option<u32>,
    /// Length and checksum of the bytes right before the offset.
    tail_len: u32,
    tail_crc: u32,
}

/// Position without the header; its tail reached back to the begin of the last record only.
#[derive(Decode)]
#[cfg_attr(test, derive(Encode))]
struct PositionV1 {
    offset: u64,
    line: u64,
    tail_len: u32,
    tail_crc: u32,
}

impl Position {
    /// Reads a position of this version or of one before.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let (version, _) = envelope::open(Kind::SourcePosition, POSITION_VERSION, bytes)?;
        if version == POSITION_VERSION {
            return envelope::decode(Kind::SourcePosition, version, bytes);
        }
        let old: PositionV1 = envelope::decode(Kind::SourcePosition, 1, bytes)?;
        Ok(Self {
            offset: old.offset,
            line: old.line,
            header_crc: None,
            tail_len: old.tail_len,
            tail_crc: old.tail_crc,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        envelope::encode(Kind::SourcePosition, POSITION_VERSION, self)
    }

    pub(super) fn describe(&self) -> String {
        format!("byte {}, after line {}", self.offset, self.line)
    }
}

impl Lines {
    /// Opens a regular file. `delimiter` is given for CSV.
    pub(super) async fn open(
        path: &Path,
        delimiter: Option<u8>,
        compression: Compression,
    ) -> Result<Self, SourceError> {
        let shown = path.display().to_string();
        let failed = |source| SourceError::Io {
            doing: "open",
            file: shown.clone(),
            source,
        };
        // Asked before opening: to open a pipe waits for its writer.
        let kind = tokio::fs::metadata(path).await.map_err(failed)?.file_type();
        if let Some(reason) = not_regular(kind) {
            return Err(SourceError::File { file: shown, reason });
        }
        let file = File::open(path).await.map_err(failed)?;
        Ok(Self {
            shown,
            file: Input::new(BufReader::with_capacity(BUFFER_BYTES, file), compression),
            delimiter,
            offset: 0,
            line: 0,
            header_crc: None,
            tail: Vec::new(),
        })
    }

    /// The first record, which names the columns.
    pub(super) async fn header(&mut self) -> Result<Option<Record>, SourceError> {
        let record = self.whole_record().await?;
        self.header_crc = Some(record.as_ref().map_or(0, |record| crc32c::crc32c(&record.bytes)));
        Ok(record.map(Record::trimmed))
    }

    /// The next record, `None` at the end of the file.
    pub(super) async fn record(&mut self) -> Result<Option<Record>, SourceError> {
        Ok(self.whole_record().await?.map(Record::trimmed))
    }

    pub(super) fn position(&self) -> Position {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        Position {
            offset: self.offset,
            line: self.line,
            header_crc: self.header_crc,
            tail_len: tail.len() as u32,
            tail_crc: crc32c::crc32c(tail),
        }
    }

    /// Goes on at a stored position, if the file is still the one that was read.
    pub(super) async fn go_to(&mut self, position: &Position) -> Result<(), SourceError> {
        if position.tail_len as usize > TAIL_BYTES || u64::from(position.tail_len) > position.offset {
            return Err(SourceError::Position {
                name: self.shown.clone(),
                reason: "its numbers contradict each other".to_owned(),
            });
        }
        let begin = position.offset - u64::from(position.tail_len);
        let before = self.file.skip_to(begin).await;
        let before = before.map_err(|error| self.read_error(error))?;
        let mut tail = Vec::with_capacity(position.tail_len as usize);
        let read = (&mut self.file)
            .take(position.tail_len.into())
            .read_to_end(&mut tail)
            .await;
        read.map_err(|error| self.read_error(error))?;
        let length = before + tail.len() as u64;
        if length < position.offset {
            return Err(self.file_error(format!(
                "has {length} bytes, but {} were read from it before; put the whole file back, or start anew with --new-state",
                position.offset
            )));
        }
        if crc32c::crc32c(&tail) != position.tail_crc {
            return Err(self.file_error(format!(
                "has changed before byte {}, up to which it was read; {WAY_OUT}",
                position.offset
            )));
        }
        (self.offset, self.line, self.tail) = (position.offset, position.line, tail);
        if self.in_a_line() {
            let more = self.file.fill_buf().await.map(|more| !more.is_empty());
            if more.map_err(|error| self.read_error(error))? {
                return Err(self.grew());
            }
        }
        Ok(())
    }

    /// What the file seems to be compressed as, before anything of it was read.
    pub(super) async fn looks_packed(&mut self) -> Result<Option<Compression>, SourceError> {
        let begin = self.file.fill_buf().await.map(Compression::of);
        begin.map_err(|error| self.read_error(error))
    }

    /// Whether the header, if both are known, is the one of the stored position.
    pub(super) fn check_header(&self, position: &Position) -> Result<(), SourceError> {
        match (position.header_crc, self.header_crc) {
            (Some(stored), Some(found)) if stored != found => {
                Err(self.file_error(format!("its header has changed since it was read; {WAY_OUT}")))
            }
            _ => Ok(()),
        }
    }

    /// A record as it stands in the file, but for a byte-order mark.
    async fn whole_record(&mut self) -> Result<Option<Record>, SourceError> {
        let line = self.line + 1;
        let mark = if self.offset == 0 { BYTE_ORDER_MARK } else { &[] };
        let mut bytes = Vec::new();
        let mut quotes = self.delimiter.map(Quotes::new);
        loop {
            let before = bytes.len();
            let limit = (RECORD_BYTES + 1 - before) as u64;
            let read = (&mut self.file).take(limit).read_until(b'\n', &mut bytes).await;
            let read = read.map_err(|error| self.read_error(error))?;
            if bytes.len() > RECORD_BYTES {
                return Err(self.too_long(line, quotes.and_then(|quotes| quotes.open())));
            }
            if read > 0 && self.in_a_line() {
                return Err(self.grew());
            }
            self.offset += read as u64;
            self.line += u64::from(read > 0);
            self.remember(&bytes[before..]);
            if before == 0 && bytes.starts_with(mark) {
                bytes.drain(..mark.len());
            }
            let opened = quotes.as_mut().and_then(|quotes| {
                quotes.read(&bytes[before..], self.line);
                quotes.open()
            });
            match opened {
                None => break,
                Some(opened) if read == 0 || self.in_a_line() => {
                    return Err(self.file_error(format!(
                        "the quote that opens a field in line {opened} is never closed; close it, or write the field in quotes with \
                         each of its own quotes doubled"
                    )));
                }
                Some(_) => {}
            }
        }
        Ok((self.line >= line).then_some(Record { bytes, line }))
    }

    fn remember(&mut self, bytes: &[u8]) {
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// Whether the last line that was read has no end.
    fn in_a_line(&self) -> bool {
        self.tail.last().is_some_and(|byte| *byte != b'\n')
    }

    fn grew(&self) -> SourceError {
        self.file_error(format!(
            "grew in the middle of line {}, which was already read; {WAY_OUT}",
            self.line
        ))
    }

    fn too_long(&self, line: u64, opened: Option<u64>) -> SourceError {
        let quote = opened.map_or(String::new(), |opened| {
            format!("; is the quote that opens a field in line {opened} closed?")
        });
        let limit = RECORD_BYTES >> 20;
        self.file_error(format!(
            "the record that begins in line {line} is longer than {limit} MiB{quote}"
        ))
    }

    pub(super) fn file_error(&self, reason: String) -> SourceError {
        SourceError::File {
            file: self.shown.clone(),
            reason,
        }
    }

    fn read_error(&self, source: std::io::Error) -> SourceError {
        // What is not the system's is the unpacking's.
        if let Some(name) = self.file.compression().name()
            && source.raw_os_error().is_none()
        {
            return self.file_error(format!(
                "cannot be unpacked as {name} behind line {}: it is damaged, or compressed in another way",
                self.line
            ));
        }
        SourceError::Io {
            doing: "read",
            file: self.shown.clone(),
            source,
        }
    }
}

impl Record {
    fn trimmed(mut self) -> Self {
        while self.bytes.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
        self
    }
}

/// What else a path leads to than a file: from there no position can be found again.
pub(super) fn not_regular(kind: std::fs::FileType) -> Option<String> {
    let what = if kind.is_file() {
        return None;
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Some(format!("is {what}, not a file"))
}

/// Where in a field a byte stands, by the rules of the decoder: a quote opens only as the first byte of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Begin,
    Plain,
    Quoted,
    /// Behind a quote in quotes: the end of them, or the first of two.
    Closing,
}

/// Follows the quotes of one record.
#[derive(Debug)]
pub(super) struct Quotes {
    delimiter: u8,
    place: Place,
    /// The line in which the last quotes opened.
    opened: u64,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        Self {
            delimiter,
            place: Place::Begin,
            opened: 0,
        }
    }

    /// Reads the record's next line.
    fn read(&mut self, bytes: &[u8], line: u64) {
        for byte in bytes {
            let before = self.place;
            self.step(*byte);
            if (before, self.place) == (Place::Begin, Place::Quoted) {
                self.opened = line;
            }
        }
    }

    /// The line in which quotes opened that are not closed yet.
    fn open(&self) -> Option<u64> {
        (self.place == Place::Quoted).then_some(self.opened)
    }

    fn step(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Quoted, b'"') => Place::Closing,
            (Place::Quoted, _) | (Place::Begin | Place::Closing, b'"') => Place::Quoted,
            (_, b'\n' | b'\r') => Place::Begin,
            (_, byte) if byte == self.delimiter => Place::Begin,
            _ => Place::Plain,
        };
    }

    /// Whether a CR outside quotes cuts a record in two.
    pub(super) fn cut_by_cr(record: &[u8], delimiter: u8) -> bool {
        let mut quotes = Self::new(delimiter);
        record.iter().any(|byte| {
            quotes.step(*byte);
            *byte == b'\r' && quotes.place == Place::Begin
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn unhex(text: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn positions_of_version_1_are_read() {
        let stored = "41425153010701000a0000008778c5f2fbe8030c50fcefbeadde";
        let position = PositionV1 {
            offset: 1000,
            line: 12,
            tail_len: 80,
            tail_crc: 0xdead_beef,
        };
        assert_eq!(hex(&envelope::encode(Kind::SourcePosition, 1, &position)), stored);
        let read = Position {
            offset: 1000,
            line: 12,
            header_crc: None,
            tail_len: 80,
            tail_crc: 0xdead_beef,
        };
        assert_eq!(Position::decode(&unhex(stored)), Ok(read));
    }

    #[test]
    fn positions_of_version_2_are_read() {
        let stored = "4142515301070200100000008d918d67fbe8030c01fc0403020150fcefbeadde";
        let position = Position {
            offset: 1000,
            line: 12,
            header_crc: Some(0x0102_0304),
            tail_len: 80,
            tail_crc: 0xdead_beef,
        };
        let bytes = envelope::encode(Kind::SourcePosition, POSITION_VERSION, &position);
        assert_eq!(hex(&bytes), stored);
        assert_eq!(Position::decode(&unhex(stored)), Ok(position));
    }

    #[test]
    fn a_position_of_a_later_version_is_refused() {
        let bytes = envelope::seal(Kind::SourcePosition, 3, b"");
        assert_eq!(
            Position::decode(&bytes),
            Err(EnvelopeError::TooNew { found: 3, newest: 2 })
        );
    }
}
