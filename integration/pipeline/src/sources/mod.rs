//! Where rows come from: connectors, their options, and the position each goes on from after a checkpoint.

mod csv;
mod filesystem;
mod impulse;
mod json;
mod lines;
mod numbers;
mod pace;
mod packed;
mod reader;
mod records;
mod single_file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use thiserror::Error;
use tokio::time::Instant;

pub use filesystem::{FileFormat, FilesystemConfig};
pub use impulse::ImpulseConfig;
pub use packed::Compression;
pub(crate) use reader::{Reader, SourceSnapshot};
pub use single_file::{BadData, CsvOptions, Format, SingleFileConfig};

use crate::sql::{OptionReader, SourceTable};
use crate::store::SourcePosition;

/// Connectors that can be read from.
pub(crate) const CONNECTORS: [&str; 3] = ["filesystem", "impulse", "single_file"];

/// A source's connector and options.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// The files of a folder.
    Filesystem(FilesystemConfig),
    /// Numbered rows at a rate.
    Impulse(ImpulseConfig),
    /// One local file.
    SingleFile(SingleFileConfig),
}

/// Why a source cannot go on. The text holds no row values.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file cannot be opened or read.
    #[error("cannot {doing} {file}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A record of the input is not what the table declares.
    #[error("{file}, line {line}: {reason}; mend the line, or set bad_data = 'drop' to leave such lines out")]
    BadLine {
        /// The file.
        file: String,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, without values.
        reason: String,
    },
    /// The file as a whole does not serve.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A rate is set from outside for a source that has its own.
    #[error(
        "a source rate has no use: source {name} is no file and has its own, option 'event_rate'; run without --source-rate"
    )]
    OwnRate {
        /// The source.
        name: String,
    },
    /// The stored position cannot be used.
    #[error("the stored position of source {name} cannot be used: {reason}; start anew with --new-state")]
    Position {
        /// The source.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl SourceError {
    /// Whether a restart may outlive it: true for a failure to read, false for wrong data.
    #[must_use]
    pub fn restart_may_help(&self) -> bool {
        matches!(self, Self::Io { doing: "read", .. })
    }
}

/// Something that yields rows from a position. One reader task drives it.
#[async_trait]
pub(crate) trait Source: Send {
    /// When the next batch may be taken; `None` for at once.
    fn due(&self) -> Option<Instant>;

    /// The next rows, `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>, SourceError>;

    /// Rows left out so far because of `bad_data = 'drop'`.
    fn rejected(&self) -> u64 {
        0
    }

    /// Where to go on after the rows handed out so far.
    fn position(&self) -> Vec<u8>;
}

/// What a run says about its sources.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Instances of the sink; a source without a single reader runs in each.
    pub(crate) parallelism: u32,
    /// Folder that relative paths count from.
    pub(crate) folder: PathBuf,
    /// Files to read in place of others, by the path as the SQL has it.
    pub(crate) replaced: BTreeMap<String, PathBuf>,
    /// Limit for files, in rows a second.
    pub(crate) rate: Option<f64>,
}

/// One source to be driven, with the subtasks its batches go to, in turn.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) source: Box<dyn Source>,
    pub(crate) subtasks: Vec<usize>,
}

/// Reads a source's options; `None` after a mistake.
pub(crate) fn configure(
    connector: &str,
    columns: Option<SchemaRef>,
    options: OptionReader<'_>,
) -> Option<(SourceConfig, SchemaRef)> {
    match connector {
        "filesystem" => filesystem::configure(columns, options),
        "impulse" => impulse::configure(columns, options),
        _ => single_file::configure(columns, options),
    }
}

/// Name and position of a source, for people: `("clicks", "byte 1834, after line 20")`.
#[must_use]
pub fn describe_position(stored: &SourcePosition) -> (&str, String) {
    let name = stored.name.as_str();
    // In version 1 there are four numbers of a file, and an odd count of counters: neither reads as the other. Version 2 is a file's,
    // version 3 a folder's.
    let described = filesystem::describe(&stored.bytes)
        .or_else(|_| single_file::describe(&stored.bytes))
        .or_else(|_| impulse::describe(&stored.bytes));
    let position = described.unwrap_or_else(|error| format!("unreadable: {error}"));
    (name, position)
}

/// Opens a table's source at its stored positions, or at its begin.
pub(crate) async fn open(
    table: &SourceTable,
    opening: &Opening,
    stored: &[SourcePosition],
) -> Result<Vec<Opened>, SourceError> {
    let columns = Arc::clone(&table.columns);
    let source: Box<dyn Source> = match &table.config {
        SourceConfig::Impulse(config) => return impulse::open(&table.name, config, opening, stored),
        SourceConfig::Filesystem(config) => {
            Box::new(filesystem::open(&table.name, config, columns, opening, stored).await?)
        }
        SourceConfig::SingleFile(config) => {
            Box::new(single_file::open(&table.name, config, columns, opening, stored).await?)
        }
    };
    Ok(vec![Opened {
        name: table.name.clone(),
        source,
        subtasks: (0..opening.parallelism as usize).collect(),
    }])
}

impl SourceConfig {
    /// What must stay the same between runs on one state.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Filesystem(config) => config.identity(),
            Self::Impulse(config) => config.identity(),
            Self::SingleFile(config) => config.identity(),
        }
    }
}
