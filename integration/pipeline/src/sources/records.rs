//! The records of one file as batches: a wrong one is named with file and line, or left out and counted.

use arrow_array::RecordBatch;

use super::csv::CsvDecoder;
use super::json::JsonDecoder;
use super::lines::{Lines, Position};
use super::{BadData, SourceError};

const BATCH_BYTES: usize = 1 << 20;

/// A file and what makes rows of its records.
pub(super) struct RecordFile {
    lines: Lines,
    decoder: Decoder,
    bad_data: BadData,
    rejected: u64,
}

#[derive(Debug)]
pub(super) enum Decoder {
    Json(JsonDecoder),
    Csv(CsvDecoder),
}

/// Records of one batch: their bytes, where each begins, and on which line.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    begins: Vec<(usize, usize, u64)>,
}

impl RecordFile {
    pub(super) fn new(lines: Lines, decoder: Decoder, bad_data: BadData) -> Self {
        Self {
            lines,
            decoder,
            bad_data,
            rejected: 0,
        }
    }

    /// Rows of up to `limit` records, with the number of those records; `None` at the end of the file.
    pub(super) async fn next(&mut self, limit: usize) -> Result<Option<(RecordBatch, u64)>, SourceError> {
        let records = self.records(limit).await?;
        if records.begins.is_empty() {
            return Ok(None);
        }
        let batch = self.decode(&records)?;
        Ok(Some((batch, records.begins.len() as u64)))
    }

    /// Records left out so far.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Where to go on.
    pub(super) fn position(&self) -> Position {
        self.lines.position()
    }

    async fn records(&mut self, limit: usize) -> Result<Records, SourceError> {
        let mut records = Records::default();
        while records.begins.len() < limit && records.bytes.len() < BATCH_BYTES {
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
