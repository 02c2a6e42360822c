//! `single_file`: the records of one local file, read by one reader, from a byte offset.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink_state::envelope::{self, EnvelopeError, Kind};
use bincode::{Decode, Encode};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, BufReader, SeekFrom};
use tokio::time::Instant;

use super::csv::CsvDecoder;
use super::json::JsonDecoder;
use super::{Opening, Source, SourceConfig, SourceError};
use crate::sql::OptionReader;
use crate::store::SourcePosition;

const OPTIONS: [&str; 8] = [
    "path",
    "format",
    "compression",
    "wait_for_control",
    "bad_data",
    "csv.header",
    "csv.delimiter",
    "csv.null",
];
const POSITION_VERSION: u16 = 1;
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// A record longer than this is refused rather than kept in memory.
const RECORD_BYTES: usize = 16 << 20;
/// So much before the position is compared with what was read there.
const TAIL_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 256 << 10;
/// With a limited rate a batch covers this part of a second.
const BATCHES_PER_SECOND: f64 = 20.0;

/// Options of a `single_file` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleFileConfig {
    /// The file as the SQL names it.
    pub path: String,
    /// How its records are written.
    pub format: Format,
    /// What happens to a record that is wrong.
    pub bad_data: BadData,
}

/// Format of a file's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// Comma separated values.
    Csv(CsvOptions),
}

/// How a CSV file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Whether its first record names the columns.
    pub header: bool,
    /// What stands between fields.
    pub delimiter: u8,
    /// Fields with this text are null, beside empty ones.
    pub null: String,
}

/// What happens to a record that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadData {
    /// The pipeline ends with an error.
    Fail,
    /// It is left out and counted.
    Drop,
}

/// The first wrong record of a batch.
#[derive(Debug)]
pub(super) struct BadRecord {
    pub(super) index: usize,
    pub(super) reason: String,
}

/// Everything before `offset` was handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Position {
    offset: u64,
    /// Lines before the offset.
    line: u64,
    /// Length and checksum of the bytes right before the offset, to see that it is still the same file.
    tail_len: u32,
    tail_crc: u32,
}

#[derive(Debug)]
enum Decoder {
    Json(JsonDecoder),
    Csv(CsvDecoder),
}

pub(super) struct SingleFile {
    lines: Lines,
    decoder: Decoder,
    bad_data: BadData,
    rejected: u64,
    pace: Option<Pace>,
}

/// The file, and where in it we are.
struct Lines {
    shown: String,
    file: BufReader<File>,
    position: Position,
}

/// A limited rate.
#[derive(Debug)]
struct Pace {
    rate: f64,
    start: Instant,
    rows: u64,
}

/// Records of one batch: their bytes, where each begins, and on which line.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    begins: Vec<(usize, usize, u64)>,
}

pub(super) fn configure(
    columns: Option<SchemaRef>,
    mut options: OptionReader<'_>,
) -> Option<(SourceConfig, SchemaRef)> {
    let path = options.required("path").map(|option| option.value.clone());
    let csv = CsvOptions {
        header: options
            .parsed("csv.header", "'true' or 'false'", parse_bool)
            .unwrap_or(true),
        delimiter: options
            .parsed("csv.delimiter", "one ASCII character", parse_delimiter)
            .unwrap_or(b','),
        null: options
            .take("csv.null")
            .map(|option| option.value.clone())
            .unwrap_or_default(),
    };
    let format = options
        .required("format")
        .and_then(|option| match option.value.as_str() {
            "json" => Some(Format::Json),
            "csv" => Some(Format::Csv(csv)),
            _ => {
                options.mistake(option, "'json' or 'csv'");
                None
            }
        });
    options.parsed(
        "compression",
        "'none'; compressed files are not yet supported",
        |text| (text == "none").then_some(()),
    );
    options.parsed("wait_for_control", "'true' or 'false'", parse_bool);
    let bad_data = options.parsed("bad_data", "'fail' or 'drop'", |text| match text {
        "fail" => Some(BadData::Fail),
        "drop" => Some(BadData::Drop),
        _ => None,
    });
    match (&columns, &format) {
        (None, _) => options.table_mistake("declares no columns; a file needs them"),
        (Some(columns), Some(Format::Json)) => {
            if let Err(reason) = JsonDecoder::new(Arc::clone(columns)) {
                options.table_mistake(&format!("cannot be read as JSON: {reason}"));
            }
        }
        (Some(columns), Some(Format::Csv(_))) => {
            if let Some(reason) = CsvDecoder::refuse(columns) {
                options.table_mistake(&format!("cannot be read as CSV: {reason}"));
            }
        }
        (Some(_), None) => {}
    }
    options.finish("single_file", &OPTIONS);
    let config = SingleFileConfig {
        path: path?,
        format: format?,
        bad_data: bad_data.unwrap_or(BadData::Fail),
    };
    Some((SourceConfig::SingleFile(config), columns?))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "yes" => Some(true),
        "false" | "no" => Some(false),
        _ => None,
    }
}

fn parse_delimiter(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Some(*byte),
        _ if text == "\\t" => Some(b'\t'),
        _ => None,
    }
}

impl SingleFileConfig {
    pub(super) fn identity(&self) -> String {
        let format = match &self.format {
            Format::Json => "json".to_owned(),
            Format::Csv(csv) => {
                let delimiter = char::from(csv.delimiter);
                format!(
                    "csv, header = {}, delimiter = {delimiter:?}, null = {:?}",
                    csv.header, csv.null
                )
            }
        };
        format!("single_file, path = {}, format = {format}", self.path)
    }

    fn resolve(&self, opening: &Opening) -> PathBuf {
        opening
            .replaced
            .get(&self.path)
            .cloned()
            .unwrap_or_else(|| opening.folder.join(&self.path))
    }
}

pub(super) async fn open(
    table: &str,
    config: &SingleFileConfig,
    columns: SchemaRef,
    opening: &Opening,
    stored: &[SourcePosition],
) -> Result<SingleFile, SourceError> {
    let path = config.resolve(opening);
    let shown = path.display().to_string();
    let stored = match stored.iter().find(|position| position.name == table) {
        None => Position::default(),
        Some(stored) => {
            envelope::decode(Kind::SourcePosition, POSITION_VERSION, &stored.bytes).map_err(|error| {
                SourceError::Position {
                    name: table.to_owned(),
                    reason: error.to_string(),
                }
            })?
        }
    };
    let mut lines = Lines {
        file: open_file(&path, &shown).await?,
        shown,
        position: Position::default(),
    };
    let decoder = match &config.format {
        Format::Json => JsonDecoder::new(columns).map(Decoder::Json),
        Format::Csv(options) => {
            let header = if options.header {
                lines.record(true).await?
            } else {
                None
            };
            let header = header.as_ref().map(|(bytes, _)| bytes.as_slice());
            CsvDecoder::new(&columns, options, header).map(Decoder::Csv)
        }
    };
    let decoder = decoder.map_err(|reason| file_error(&path, reason))?;
    if stored.offset > 0 {
        lines.go_to(stored).await?;
    }
    let pace = opening.rate.map(|rate| Pace {
        rate,
        start: Instant::now(),
        rows: 0,
    });
    Ok(SingleFile {
        lines,
        decoder,
        bad_data: config.bad_data,
        rejected: 0,
        pace,
    })
}

/// A stored position for people.
pub(super) fn describe(bytes: &[u8]) -> Result<String, EnvelopeError> {
    let position: Position = envelope::decode(Kind::SourcePosition, POSITION_VERSION, bytes)?;
    Ok(format!("byte {}, after line {}", position.offset, position.line))
}

fn file_error(path: &Path, reason: String) -> SourceError {
    SourceError::File {
        file: path.display().to_string(),
        reason,
    }
}

async fn open_file(path: &Path, shown: &str) -> Result<BufReader<File>, SourceError> {
    let failed = |source| SourceError::Io {
        doing: "open",
        file: shown.to_owned(),
        source,
    };
    let file = File::open(path).await.map_err(failed)?;
    if file.metadata().await.map_err(failed)?.is_dir() {
        return Err(file_error(path, "is a folder, not a file".into()));
    }
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

impl Lines {
    /// Goes on at a stored position, if the file is still the one that was read.
    async fn go_to(&mut self, position: Position) -> Result<(), SourceError> {
        let length = self
            .file
            .get_ref()
            .metadata()
            .await
            .map_err(|error| self.read_error(error))?
            .len();
        if length < position.offset {
            let reason = format!(
                "has {length} bytes, but {} were read from it before; put the whole file back, or start anew with --new-state",
                position.offset
            );
            return Err(SourceError::File {
                file: self.shown.clone(),
                reason,
            });
        }
        let tail = u64::from(position.tail_len);
        if position.tail_len as usize > TAIL_BYTES || tail > position.offset {
            let reason = "its numbers contradict each other".to_owned();
            return Err(SourceError::Position {
                name: self.shown.clone(),
                reason,
            });
        }
        let mut bytes = vec![0; position.tail_len as usize];
        let start = SeekFrom::Start(position.offset - tail);
        self.file
            .seek(start)
            .await
            .map_err(|error| self.read_error(error))?;
        self.file
            .read_exact(&mut bytes)
            .await
            .map_err(|error| self.read_error(error))?;
        if crc32c::crc32c(&bytes) != position.tail_crc {
            let reason = format!(
                "has changed before byte {}, up to which it was read; put the old file back, or start anew with --new-state",
                position.offset
            );
            return Err(SourceError::File {
                file: self.shown.clone(),
                reason,
            });
        }
        self.position = position;
        Ok(())
    }

    fn read_error(&self, source: std::io::Error) -> SourceError {
        SourceError::Io {
            doing: "read",
            file: self.shown.clone(),
            source,
        }
    }

    /// The next record without its line end, and the line it begins on; `None` at the end of the file.
    /// A quoted CSV field may go over several lines.
    async fn record(&mut self, quoted: bool) -> Result<Option<(Vec<u8>, u64)>, SourceError> {
        let line = self.position.line + 1;
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            let limit = (RECORD_BYTES + 1 - before) as u64;
            let read = (&mut self.file).take(limit).read_until(b'\n', &mut bytes).await;
            let read = read.map_err(|source| SourceError::Io {
                doing: "read",
                file: self.shown.clone(),
                source,
            })?;
            if bytes.len() > RECORD_BYTES {
                let reason = format!("is longer than {} MiB", RECORD_BYTES >> 20);
                return Err(SourceError::BadLine {
                    file: self.shown.clone(),
                    line,
                    reason,
                });
            }
            self.position.offset += read as u64;
            self.position.line += u64::from(read > 0);
            let open_quote = quoted && bytes.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
            if read == 0 || !open_quote {
                break;
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        (self.position.tail_len, self.position.tail_crc) = (tail.len() as u32, crc32c::crc32c(tail));
        while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            bytes.pop();
        }
        Ok(Some((bytes, line)))
    }
}

impl SingleFile {
    async fn records(&mut self) -> Result<Records, SourceError> {
        let rows = self.pace.as_ref().map_or(BATCH_ROWS, Pace::batch_rows);
        let quoted = matches!(self.decoder, Decoder::Csv(_));
        let mut records = Records::default();
        while records.begins.len() < rows && records.bytes.len() < BATCH_BYTES {
            let Some((bytes, line)) = self.lines.record(quoted).await? else {
                break;
            };
            if !bytes.iter().all(u8::is_ascii_whitespace) {
                records.push(&bytes, line);
            }
        }
        Ok(records)
    }

    /// Decodes a batch; wrong records are left out if that is asked for.
    fn decode(&mut self, records: &Records) -> Result<RecordBatch, SourceError> {
        let file = &self.lines.shown;
        let mut lines: Vec<_> = records
            .begins
            .iter()
            .map(|(start, end, line)| (&records.bytes[*start..*end], *line))
            .collect();
        loop {
            let bytes: Vec<_> = lines.iter().map(|(bytes, _)| *bytes).collect();
            let decoded = match &self.decoder {
                Decoder::Json(decoder) => decoder.decode(&bytes),
                Decoder::Csv(decoder) if bytes.is_empty() => Ok(decoder.empty()),
                Decoder::Csv(decoder) => decoder.decode(&bytes),
            };
            let bad = match decoded {
                Ok(batch) => return Ok(batch),
                Err(bad) => bad,
            };
            let (_, line) = lines.remove(bad.index);
            if self.bad_data == BadData::Fail {
                return Err(SourceError::BadLine {
                    file: file.clone(),
                    line,
                    reason: bad.reason,
                });
            }
            tracing::warn!(%file, line, reason = %bad.reason, "left a line out (bad_data = 'drop')");
            self.rejected += 1;
        }
    }
}

impl Records {
    fn push(&mut self, record: &[u8], line: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.begins.push((start, self.bytes.len(), line));
    }
}

impl Pace {
    fn batch_rows(&self) -> usize {
        ((self.rate / BATCHES_PER_SECOND) as usize).clamp(1, BATCH_ROWS)
    }
}

#[async_trait]
impl Source for SingleFile {
    fn due(&self) -> Option<Instant> {
        let pace = self.pace.as_ref()?;
        Some(pace.start + Duration::from_secs_f64(pace.rows as f64 / pace.rate))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let records = self.records().await?;
        if records.begins.is_empty() {
            return Ok(None);
        }
        if let Some(pace) = &mut self.pace {
            pace.rows += records.begins.len() as u64;
        }
        self.decode(&records).map(Some)
    }

    fn rejected(&self) -> u64 {
        self.rejected
    }

    fn position(&self) -> Vec<u8> {
        envelope::encode(Kind::SourcePosition, POSITION_VERSION, &self.lines.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_version_1_are_read() {
        let position = Position {
            offset: 1000,
            line: 12,
            tail_len: 80,
            tail_crc: 0xdead_beef,
        };
        let stored = "41425153010701000a0000008778c5f2fbe8030c50fcefbeadde";
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(&envelope::encode(
                Kind::SourcePosition,
                POSITION_VERSION,
                &position
            )),
            stored
        );
    }
}
