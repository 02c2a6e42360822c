//! `single_file`: the records of one local file, read by one reader, from a byte offset.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink_state::envelope::EnvelopeError;
use tokio::time::Instant;

use super::csv::CsvDecoder;
use super::json::JsonDecoder;
use super::lines::{Lines, Position};
use super::pace::Pace;
use super::packed::Compression;
use super::records::{Decoder, RecordFile};
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

impl BadData {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "fail" => Some(Self::Fail),
            "drop" => Some(Self::Drop),
            _ => None,
        }
    }
}

pub(super) struct SingleFile {
    file: RecordFile,
    pace: Pace,
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
    let bad_data = options.parsed("bad_data", "'fail' or 'drop'", BadData::parse);
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
    let mut lines = Lines::open(&config.resolve(opening), delimiter, Compression::None).await?;
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
    Ok(SingleFile {
        file: RecordFile::new(lines, decoder, config.bad_data),
        pace: Pace::new(opening.rate),
    })
}

/// A stored position for people.
pub(super) fn describe(bytes: &[u8]) -> Result<String, EnvelopeError> {
    Position::decode(bytes).map(|position| position.describe())
}

#[async_trait]
impl Source for SingleFile {
    fn due(&self) -> Option<Instant> {
        self.pace.due()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let next = self.file.next(self.pace.batch_rows()).await?;
        Ok(next.map(|(batch, records)| {
            self.pace.count(records);
            batch
        }))
    }

    fn rejected(&self) -> u64 {
        self.file.rejected()
    }

    fn position(&self) -> Vec<u8> {
        self.file.position().encode()
    }
}
