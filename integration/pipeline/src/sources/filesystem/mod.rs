//! `filesystem`: the files of a folder one behind the other, by name, read by one reader.

mod columns;
mod files;
mod pages;
mod position;
mod row_groups;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use regex::Regex;
use tokio::time::Instant;

use self::columns::Columns;
use self::files::{FileList, ListedFile};
use self::position::{FilesPosition, Within};
use self::row_groups::ParquetFile;
use super::json::JsonDecoder;
use super::lines::{Lines, WAY_OUT};
use super::pace::Pace;
use super::records::{Decoder, RecordFile};
use super::{BadData, Compression, Opening, Source, SourceConfig, SourceError};
use crate::sql::OptionReader;
use crate::store::SourcePosition;

pub(super) use self::position::describe;

const OPTIONS: [&str; 5] = [
    "path",
    "format",
    "source.compression",
    "source.regex_pattern",
    "bad_data",
];

/// Options of a `filesystem` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemConfig {
    /// A folder or one file, as the SQL names it.
    pub path: String,
    /// How the files are written.
    pub format: FileFormat,
    /// Which files of the folder and of those in it are read; without one, all of the folder itself.
    pub pattern: Option<String>,
    /// How each file of JSON is compressed as a whole.
    pub compression: Compression,
    /// What happens to a record of JSON that is wrong.
    pub bad_data: BadData,
}

/// Format of all files of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// One JSON object a line.
    Json,
    /// Apache Parquet.
    Parquet,
}

pub(super) fn configure(
    columns: Option<SchemaRef>,
    mut options: OptionReader<'_>,
) -> Option<(SourceConfig, SchemaRef)> {
    let path = options.required("path").and_then(|option| {
        let path = local_path(&option.value);
        if path.is_none() {
            options.mistake(
                option,
                "a path of this machine; object stores are read by Arroyo, not by the embedded host",
            );
        }
        path
    });
    let format = options
        .required("format")
        .and_then(|option| match option.value.as_str() {
            "json" => Some(FileFormat::Json),
            "parquet" => Some(FileFormat::Parquet),
            _ => {
                options.mistake(option, "'json' or 'parquet'");
                None
            }
        });
    let parquet = format == Some(FileFormat::Parquet);
    let expected = if parquet {
        "'none' with format 'parquet', which is compressed within"
    } else {
        "'none', 'gzip' or 'zstd'"
    };
    let compression = options.parsed("source.compression", expected, |text| {
        Compression::parse(text).filter(|parsed| *parsed == Compression::None || !parquet)
    });
    let pattern = options.parsed("source.regex_pattern", "a regular expression", |text| {
        Regex::new(text).ok().map(|_| text.to_owned())
    });
    let expected = if parquet {
        "'fail' with format 'parquet', which has no records to leave out"
    } else {
        "'fail' or 'drop'"
    };
    let bad_data = options.parsed("bad_data", expected, |text| {
        let parsed = BadData::parse(text);
        parsed.filter(|parsed| *parsed == BadData::Fail || !parquet)
    });
    match (&columns, format) {
        (None, _) => options.table_mistake("declares no columns; files need them"),
        (Some(columns), Some(FileFormat::Json)) => {
            if let Err(reason) = JsonDecoder::new(Arc::clone(columns)) {
                options.table_mistake(&format!("cannot be read as JSON: {reason}"));
            }
        }
        (Some(_), Some(FileFormat::Parquet) | None) => {}
    }
    options.finish("filesystem", &OPTIONS);
    let config = FilesystemConfig {
        path: path?,
        format: format?,
        pattern,
        compression: compression.unwrap_or(Compression::None),
        bad_data: bad_data.unwrap_or(BadData::Fail),
    };
    Some((SourceConfig::Filesystem(config), columns?))
}

/// The path without `file:`, as Arroyo writes it too; `None` for a URL of another kind.
fn local_path(text: &str) -> Option<String> {
    let path = text
        .strip_prefix("file://")
        .or_else(|| text.strip_prefix("file:"));
    match path {
        Some(path) => Some(format!("/{}", path.trim_start_matches('/'))),
        None if text.contains("://") => None,
        None => Some(text.to_owned()),
    }
}

impl FilesystemConfig {
    pub(super) fn identity(&self) -> String {
        let format = match self.format {
            FileFormat::Json => "json",
            FileFormat::Parquet => "parquet",
        };
        let pattern = match &self.pattern {
            Some(pattern) => format!(", pattern = {pattern:?}"),
            None => String::new(),
        };
        let compression = match self.compression.name() {
            Some(name) => format!(", compression = {name}"),
            None => String::new(),
        };
        format!(
            "filesystem, path = {}, format = {format}{pattern}{compression}",
            self.path
        )
    }

    fn resolve(&self, opening: &Opening) -> PathBuf {
        let replaced = opening.replaced.get(&self.path).cloned();
        replaced.unwrap_or_else(|| opening.folder.join(&self.path))
    }
}

/// The files that are left, the first of them perhaps read in part.
pub(super) struct Filesystem {
    format: FileFormat,
    compression: Compression,
    bad_data: BadData,
    columns: SchemaRef,
    root: PathBuf,
    left: VecDeque<ListedFile>,
    /// Files read to their end, over all runs.
    finished: u64,
    current: Option<Current>,
    /// Where to begin in the first file that is left, until it is open.
    begin: Within,
    pace: Pace,
    /// Records left out of the files that are done.
    rejected: u64,
}

/// The file that is being read.
enum Current {
    Records(Box<RecordFile>),
    Parquet(ParquetFile),
}

/// Opens the files of the stored position, or lists them anew.
pub(super) async fn open(
    table: &str,
    config: &FilesystemConfig,
    columns: SchemaRef,
    opening: &Opening,
    stored: &[SourcePosition],
) -> Result<Filesystem, SourceError> {
    let unusable = |reason: String| SourceError::Position {
        name: table.to_owned(),
        reason,
    };
    let root = config.resolve(opening);
    let shown = root.display().to_string();
    let stored = stored.iter().find(|position| position.name == table);
    let position = match stored {
        Some(stored) => {
            let position =
                FilesPosition::decode(&stored.bytes).map_err(|error| unusable(error.to_string()))?;
            let files = position.files().map_err(|reason| unusable(reason.to_owned()))?;
            let list = FileList { root, files };
            let list = blocking(shown, move || list.check().map(|()| list)).await?;
            (list, position.finished, position.within)
        }
        None => {
            let pattern = config.pattern.clone();
            let list = blocking(shown, move || FileList::list(root, pattern.as_deref())).await?;
            (list, 0, Within::Start)
        }
    };
    let (list, finished, begin) = position;
    Ok(Filesystem {
        format: config.format,
        compression: config.compression,
        bad_data: config.bad_data,
        columns,
        root: list.root,
        left: list.files.into(),
        finished,
        current: None,
        begin,
        pace: Pace::new(opening.rate),
        rejected: 0,
    })
}

/// Work on a file that waits for the disk. The Parquet library panics on some damage; what it says then may show values.
async fn blocking<T: Send + 'static>(
    shown: String,
    work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        let reason = format!("reading it broke down, most likely because it is damaged; {WAY_OUT}");
        Err(SourceError::File { file: shown, reason })
    })
}

impl Filesystem {
    /// Exclusive, since the Parquet library's readers are not to be shared.
    async fn open_next(&mut self, path: PathBuf) -> Result<Current, SourceError> {
        match self.format {
            FileFormat::Json => {
                let mut lines = Lines::open(&path, None, self.compression).await?;
                if self.compression == Compression::None
                    && let Some(name) = lines.looks_packed().await?.and_then(Compression::name)
                {
                    let reason = format!(
                        "begins like a file compressed by {name}; set 'source.compression' = '{name}'"
                    );
                    return Err(lines.file_error(reason));
                }
                let decoder = JsonDecoder::new(Arc::clone(&self.columns));
                let decoder = decoder.map_err(|reason| lines.file_error(reason))?;
                if let Within::Lines(position) = &self.begin {
                    lines.go_to(position).await?;
                }
                let file = RecordFile::new(lines, Decoder::Json(decoder), self.bad_data);
                Ok(Current::Records(Box::new(file)))
            }
            FileFormat::Parquet => {
                let (columns, begin) = (Arc::clone(&self.columns), self.begin.clone());
                let shown = path.display().to_string();
                let file = blocking(shown, move || ParquetFile::open(&path, &columns, &begin)).await?;
                Ok(Current::Parquet(file))
            }
        }
    }
}

#[async_trait]
impl Source for Filesystem {
    fn due(&self) -> Option<Instant> {
        self.pace.due()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let limit = self.pace.batch_rows();
        while let Some(file) = self.left.front() {
            if self.current.is_none() {
                let path = file.path(&self.root);
                let opened = self.open_next(path).await?;
                self.current = Some(opened);
                self.begin = Within::Start;
            }
            let next = match &mut self.current {
                Some(Current::Records(file)) => file.next(limit).await?,
                Some(Current::Parquet(file)) => file.next(limit).await?,
                None => None,
            };
            if let Some((batch, rows)) = next {
                self.pace.count(rows);
                return Ok(Some(batch));
            }
            self.rejected = self.rejected();
            self.current = None;
            self.left.pop_front();
            self.finished += 1;
        }
        Ok(None)
    }

    fn rejected(&self) -> u64 {
        match &self.current {
            Some(Current::Records(file)) => self.rejected + file.rejected(),
            _ => self.rejected,
        }
    }

    fn position(&self) -> Vec<u8> {
        let within = match &self.current {
            Some(Current::Records(file)) => Within::Lines(file.position()),
            Some(Current::Parquet(file)) => file.position(),
            None => self.begin.clone(),
        };
        FilesPosition::new(self.finished, &self.left, within).encode()
    }
}
