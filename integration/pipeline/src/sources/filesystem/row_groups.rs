//! One Parquet file: row group by row group, in batches, from a row on.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{SchemaRef, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;

use super::super::SourceError;
use super::super::lines::{WAY_OUT, not_regular};
use super::files::{file_error, open_error};
use super::pages::Pages;
use super::{Columns, Within, blocking};

/// By the file's own average of a row, a batch holds about so much.
const BATCH_BYTES: u64 = 1 << 20;
/// At the end of every Parquet file: the length of the footer and this.
const MAGIC: &[u8] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8] = b"PARE";
const TAIL_BYTES: u64 = 8;

/// A file, and where in it we are.
pub(super) struct ParquetFile {
    footer_crc: u32,
    row_group: u64,
    row: u64,
    /// Away while a batch is being read; lost if that breaks down, which ends the run.
    reader: Option<Box<RowGroups>>,
}

/// What reading it needs; all of it waits for the disk.
struct RowGroups {
    shown: String,
    pages: Pages,
    metadata: ArrowReaderMetadata,
    /// The same with times of INT96 in milliseconds, if there are such.
    in_milliseconds: Option<ArrowReaderMetadata>,
    columns: Columns,
    /// Of the row group that is being read.
    current: Option<RowGroup>,
}

/// A row group being read, and once more its columns of INT96.
struct RowGroup {
    rows: ParquetRecordBatchReader,
    int96: Option<ParquetRecordBatchReader>,
}

impl ParquetFile {
    /// Opens a file and looks at its columns, blocking.
    pub(super) fn open(path: &Path, declared: &SchemaRef, begin: &Within) -> Result<Self, SourceError> {
        // Asked before opening: to open a pipe waits for its writer.
        let kind = std::fs::metadata(path)
            .map_err(|error| open_error(path, error))?
            .file_type();
        if let Some(reason) = not_regular(kind) {
            return Err(file_error(path, reason));
        }
        let mut file = File::open(path).map_err(|error| open_error(path, error))?;
        let (footer, size) = footer(path, &mut file)?;
        let footer_crc = crc32c::crc32c(&footer);
        let (row_group, row) = match begin {
            Within::Rows {
                footer_crc: stored, ..
            } if *stored != footer_crc => {
                let reason = format!("has changed since it was read in part; {WAY_OUT}");
                return Err(file_error(path, reason));
            }
            Within::Rows { row_group, row, .. } => (*row_group, *row),
            Within::Start | Within::Lines(_) => (0, 0),
        };
        let damaged = |error: ParquetError| {
            file_error(
                path,
                format!("its footer cannot be read ({error}): it is damaged; {WAY_OUT}"),
            )
        };
        let metadata = ParquetMetaDataReader::decode_metadata(&footer).map_err(damaged)?;
        let metadata =
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new()).map_err(damaged)?;
        let columns = Columns::new(declared, metadata.schema(), metadata.parquet_schema())
            .map_err(|reason| file_error(path, reason))?;
        // The schema that a writer left in the file may name another unit than the count of INT96 has.
        let in_units = |unit| {
            let schema = Arc::new(columns.int96_in(unit, metadata.schema()));
            let options = ArrowReaderOptions::new().with_schema(schema);
            ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).map_err(damaged)
        };
        let (metadata, in_milliseconds) = if columns.int96.is_empty() {
            (metadata, None)
        } else {
            (
                in_units(TimeUnit::Nanosecond)?,
                Some(in_units(TimeUnit::Millisecond)?),
            )
        };
        let reader = RowGroups {
            shown: path.display().to_string(),
            pages: Pages::new(file, size),
            metadata,
            in_milliseconds,
            columns,
            current: None,
        };
        if reader
            .metadata
            .metadata()
            .row_groups()
            .iter()
            .any(|row_group| row_group.num_rows() < 0)
        {
            return Err(file_error(
                path,
                format!("its footer tells of less than no rows: it is damaged; {WAY_OUT}"),
            ));
        }
        reader.refuse_compression()?;
        Ok(Self {
            footer_crc,
            row_group,
            row,
            reader: Some(Box::new(reader)),
        })
    }

    /// Up to `limit` rows and their number; `None` at the end of the file.
    pub(super) async fn next(&mut self, limit: usize) -> Result<Option<(RecordBatch, u64)>, SourceError> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(None);
        };
        let (mut row_group, mut row) = (self.row_group, self.row);
        let path = reader.shown.clone();
        let (reader, next, row_group, row) = blocking(path, move || {
            let next = reader.next(&mut row_group, &mut row, limit)?;
            Ok((reader, next, row_group, row))
        })
        .await?;
        (self.reader, self.row_group, self.row) = (Some(reader), row_group, row);
        Ok(next.map(|batch| {
            let rows = batch.num_rows() as u64;
            (batch, rows)
        }))
    }

    pub(super) fn position(&self) -> Within {
        Within::Rows {
            footer_crc: self.footer_crc,
            row_group: self.row_group,
            row: self.row,
        }
    }
}

impl RowGroups {
    fn next(
        &mut self,
        row_group: &mut u64,
        row: &mut u64,
        limit: usize,
    ) -> Result<Option<RecordBatch>, SourceError> {
        while let Some(rows) = self.rows(*row_group) {
            if *row == rows {
                self.current = None;
                (*row_group, *row) = (*row_group + 1, 0);
                continue;
            }
            let mut current = match self.current.take() {
                Some(current) => current,
                None => self.open_row_group(*row_group, *row, limit)?,
            };
            let read = self.read(*row_group, &mut current.rows)?;
            let int96 = match &mut current.int96 {
                Some(reader) => self.read(*row_group, reader)?,
                None => None,
            };
            let read = read
                .filter(|read| read.num_rows() > 0)
                .ok_or_else(|| self.damaged(*row_group, &format!("ends after {row} of its {rows} rows")))?;
            if int96
                .as_ref()
                .is_some_and(|int96| int96.num_rows() != read.num_rows())
            {
                return Err(self.damaged(*row_group, "has columns of different lengths"));
            }
            let batch = self.columns.batch(&read, int96.as_ref());
            let batch = batch.map_err(|reason| {
                let reason = format!("row group {row_group}: {reason}");
                SourceError::File {
                    file: self.shown.clone(),
                    reason,
                }
            })?;
            *row += batch.num_rows() as u64;
            self.current = Some(current);
            return Ok(Some(batch));
        }
        Ok(None)
    }

    /// Rows of a row group by the footer; `None` behind the last.
    fn rows(&self, row_group: u64) -> Option<u64> {
        let row_groups = self.metadata.metadata().row_groups();
        let row_group = row_groups.get(usize::try_from(row_group).ok()?)?;
        Some(u64::try_from(row_group.num_rows()).unwrap_or(0))
    }

    fn read(
        &self,
        row_group: u64,
        reader: &mut ParquetRecordBatchReader,
    ) -> Result<Option<RecordBatch>, SourceError> {
        reader.next().transpose().map_err(|_| self.failed(row_group))
    }

    fn open_row_group(&self, row_group: u64, row: u64, limit: usize) -> Result<RowGroup, SourceError> {
        let at = usize::try_from(row_group).expect("it is the index of a row group in memory");
        let open = |metadata: &ArrowReaderMetadata, roots: &[usize]| {
            let mask = ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied());
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.pages.clone(), metadata.clone())
                .with_row_groups(vec![at])
                .with_projection(mask)
                .with_offset(usize::try_from(row).unwrap_or(usize::MAX))
                .with_batch_size(self.batch_rows(at, limit))
                .build()
                .map_err(|_| self.failed(row_group))
        };
        let int96 = self.in_milliseconds.as_ref();
        Ok(RowGroup {
            rows: open(&self.metadata, &self.columns.roots)?,
            int96: int96
                .map(|metadata| open(metadata, &self.columns.int96))
                .transpose()?,
        })
    }

    /// Rows of a batch: fewer than `limit` where rows are large.
    fn batch_rows(&self, row_group: usize, limit: usize) -> usize {
        let row_group = self.metadata.metadata().row_group(row_group);
        let bytes = u64::try_from(row_group.total_byte_size()).unwrap_or(0);
        let rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
        let of_a_row = bytes.checked_div(rows).unwrap_or(0).max(1);
        usize::try_from(BATCH_BYTES / of_a_row)
            .unwrap_or(limit)
            .clamp(1, limit)
    }

    /// Refuses before the first row what could only fail at a later one.
    fn refuse_compression(&self) -> Result<(), SourceError> {
        let schema = self.metadata.parquet_schema();
        for row_group in self.metadata.metadata().row_groups() {
            for (leaf, column) in row_group.columns().iter().enumerate() {
                let name = match column.compression() {
                    Compression::BROTLI(_) => "BROTLI",
                    Compression::LZO => "LZO",
                    _ => continue,
                };
                if self.columns.roots.contains(&schema.get_column_root_idx(leaf)) {
                    let reason = format!(
                        "column {} is compressed as {name}, which is not read; write it as SNAPPY, ZSTD, GZIP or LZ4",
                        column.column_path().string()
                    );
                    return Err(SourceError::File {
                        file: self.shown.clone(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    /// The library's texts on pages may show values and are left out.
    fn failed(&self, row_group: u64) -> SourceError {
        match self.pages.take_failure() {
            Some(source) => SourceError::Io {
                doing: "read",
                file: self.shown.clone(),
                source,
            },
            None => self.damaged(row_group, "cannot be decoded"),
        }
    }

    fn damaged(&self, row_group: u64, what: &str) -> SourceError {
        SourceError::File {
            file: self.shown.clone(),
            reason: format!("row group {row_group} {what}: it is damaged; {WAY_OUT}"),
        }
    }
}

/// The footer, which is found from the file's end, and the size of the file.
fn footer(path: &Path, file: &mut File) -> Result<(Vec<u8>, u64), SourceError> {
    let failed = |source| SourceError::Io {
        doing: "read",
        file: path.display().to_string(),
        source,
    };
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let not_parquet = |what: &str| {
        let reason =
            format!("{what}; if it is none of the data, leave it out by the option 'source.regex_pattern'");
        file_error(path, reason)
    };
    // The same four bytes stand at its begin.
    if size < TAIL_BYTES + MAGIC.len() as u64 {
        return Err(not_parquet(&format!(
            "has {size} bytes, which is no Parquet file"
        )));
    }
    let mut tail = [0; TAIL_BYTES as usize];
    file.seek(SeekFrom::Start(size - TAIL_BYTES)).map_err(failed)?;
    file.read_exact(&mut tail).map_err(failed)?;
    let (length, magic) = tail.split_at(4);
    if magic == MAGIC_ENCRYPTED {
        return Err(not_parquet("is an encrypted Parquet file, which is not read"));
    }
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    let begin = (size - TAIL_BYTES).checked_sub(length.into());
    let (Some(begin), MAGIC) = (begin, magic) else {
        return Err(not_parquet(
            "does not end like a Parquet file: it is something else, or was cut",
        ));
    };
    let mut footer = vec![0; length as usize];
    file.seek(SeekFrom::Start(begin)).map_err(failed)?;
    file.read_exact(&mut footer).map_err(failed)?;
    Ok((footer, size))
}
