//! `single_file`: the records of one local file, read by one reader, from a byte offset.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink_state::envelope::EnvelopeError;
use tokio::time::Instant;

use super::csv::CsvDecoder;
use super::json::JsonDecoder;
use super::lines::{Lines, Position};
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
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
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
            .parsed(
                "csv.delimiter",
                "one ASCII character, no quote or line end",
                parse_delimiter,
            )
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
        b"\"" | b"\n" | b"\r" => None,
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
    let stored = stored.iter().find(|position| position.name == table);
    let stored = stored.map(|stored| Position::decode(&stored.bytes)).transpose();
    let stored = stored.map_err(|error| SourceError::Position {
        name: table.to_owned(),
        reason: error.to_string(),
    })?;
    let delimiter = match &config.format {
        Format::Json => None,
        Format::Csv(options) => Some(options.delimiter),
    };
    let mut lines = Lines::open(&config.resolve(opening), delimiter).await?;
    let header = match &config.format {
        Format::Csv(options) if options.header => lines.header().await?,
        _ => None,
    };
    if let Some(stored) = &stored {
        lines.check_header(stored)?;
    }
    let decoder = match &config.format {
        Format::Json => JsonDecoder::new(columns).map(Decoder::Json),
        Format::Csv(options) => {
            let header = header.as_ref().map(|header| header.bytes.as_slice());
            CsvDecoder::new(&columns, options, header).map(Decoder::Csv)
        }
    };
    let decoder = decoder.map_err(|reason| lines.file_error(reason))?;
    if let Some(stored) = &stored {
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
    Position::decode(bytes).map(|position| position.describe())
}

impl SingleFile {
    async fn records(&mut self) -> Result<Records, SourceError> {
        let rows = self.pace.as_ref().map_or(BATCH_ROWS, Pace::batch_rows);
        let mut records = Records::default();
        while records.begins.len() < rows && records.bytes.len() < BATCH_BYTES {
            let Some(record) = self.lines.record().await? else {
                break;
            };
            if !self.decoder.is_blank(&record.bytes) {
                records.push(&record.bytes, record.line);
            }
        }
        Ok(records)
    }

    /// Decodes a batch; wrong records are left out if that is asked for.
    fn decode(&mut self, records: &Records) -> Result<RecordBatch, SourceError> {
        let all: Vec<_> = records.iter().map(|(record, _)| record).collect();
        if let Some(batch) = self.decoder.decode(&all) {
            return Ok(batch);
        }
        let file = &self.lines.shown;
        let mut good = Vec::new();
        for (record, line) in records.iter() {
            let Some(reason) = self.decoder.bad_alone(record) else {
                good.push(record);
                continue;
            };
            if self.bad_data == BadData::Fail {
                return Err(SourceError::BadLine {
                    file: file.clone(),
                    line,
                    reason,
                });
            }
            tracing::warn!(%file, line, %reason, "left a line out (bad_data = 'drop')");
            self.rejected += 1;
        }
        self.decoder.decode(&good).ok_or_else(|| {
            let line = records.begins.first().map_or(0, |(_, _, line)| *line);
            self.lines.file_error(format!(
                "the records from line {line} on can be read one by one but not together"
            ))
        })
    }
}

impl Decoder {
    /// Of CSV, white space is a value or what stands between values.
    fn is_blank(&self, record: &[u8]) -> bool {
        match self {
            Self::Json(_) => record.iter().all(u8::is_ascii_whitespace),
            Self::Csv(_) => record.is_empty(),
        }
    }

    fn decode(&self, records: &[&[u8]]) -> Option<RecordBatch> {
        match self {
            Self::Json(decoder) => decoder.decode(records),
            Self::Csv(decoder) => decoder.decode(records),
        }
    }

    fn bad_alone(&self, record: &[u8]) -> Option<String> {
        match self {
            Self::Json(decoder) => decoder.bad_alone(record),
            Self::Csv(decoder) => decoder.bad_alone(record),
        }
    }
}

impl Records {
    fn push(&mut self, record: &[u8], line: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.begins.push((start, self.bytes.len(), line));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let record = |(start, end, line): &(usize, usize, u64)| (&self.bytes[*start..*end], *line);
        self.begins.iter().map(record)
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
        self.lines.position()
    }
}
