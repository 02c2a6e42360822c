//! Where a folder goes on: the files that are left, and how much of the first was read.

use std::collections::VecDeque;

use bigquery_sink_state::envelope::{self, EnvelopeError, Kind};
use bincode::{Decode, Encode};

use super::super::lines;
use super::files::ListedFile;

/// Versions 1 and 2 are positions of other sources.
const POSITION_VERSION: u16 = 3;

/// Everything before it was handed out. Files that are read to their end are not in it any more.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct FilesPosition {
    /// How many files were read to their end.
    pub(super) finished: u64,
    left: Vec<Entry>,
    /// How much of the first file that is left was read.
    pub(super) within: Within,
}

/// A file by what its name does not share with the one before: names of a folder are much alike, and every checkpoint holds them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct Entry {
    /// Bytes that it begins with like the one before.
    shared: u32,
    rest: String,
    size: u64,
}

/// How much of a file was read.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Within {
    /// Nothing.
    Start,
    /// Of a file of lines.
    Lines(lines::Position),
    /// Of a Parquet file.
    Rows {
        /// Checksum of its footer, which says where everything else is.
        footer_crc: u32,
        /// Row groups before this one were read.
        row_group: u64,
        /// And so many rows of it.
        row: u64,
    },
}

impl FilesPosition {
    pub(super) fn new(finished: u64, left: &VecDeque<ListedFile>, within: Within) -> Self {
        let mut before = "";
        let mut entries = Vec::with_capacity(left.len());
        for file in left {
            let shared = shared(before, &file.name);
            entries.push(Entry {
                shared: u32::try_from(shared).expect("names of files have a few hundred bytes"),
                rest: file.name[shared..].to_owned(),
                size: file.size,
            });
            before = &file.name;
        }
        Self {
            finished,
            left: entries,
            within,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        envelope::encode(Kind::SourcePosition, POSITION_VERSION, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        envelope::decode(Kind::SourcePosition, POSITION_VERSION, bytes)
    }

    /// The files that are left; the reason if the entries are not a list of names.
    pub(super) fn files(&self) -> Result<Vec<ListedFile>, &'static str> {
        let mut files: Vec<ListedFile> = Vec::with_capacity(self.left.len());
        for entry in &self.left {
            let before = files.last().map_or("", |file| file.name.as_str());
            let shared = before.get(..entry.shared as usize);
            let shared = shared.ok_or("its list of files is damaged")?;
            files.push(ListedFile {
                name: format!("{shared}{}", entry.rest),
                size: entry.size,
            });
        }
        Ok(files)
    }
}

/// A stored position for people.
pub(in super::super) fn describe(bytes: &[u8]) -> Result<String, EnvelopeError> {
    let position = FilesPosition::decode(bytes)?;
    let (finished, left) = (position.finished, position.left.len() as u64);
    let Some(first) = position.left.first() else {
        return Ok(format!("all {finished} files"));
    };
    let name = if first.rest.is_empty() {
        "the file"
    } else {
        &first.rest
    };
    let within = match &position.within {
        Within::Start => "its begin".to_owned(),
        Within::Lines(lines) => lines.describe(),
        Within::Rows { row_group, row, .. } => format!("row group {row_group}, row {row}"),
    };
    Ok(format!(
        "{finished} of {} files, then {name}: {within}",
        finished + left
    ))
}

/// How many bytes two names have in common at their begin, cut between characters.
fn shared(before: &str, name: &str) -> usize {
    let same = before
        .bytes()
        .zip(name.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    (0..=same)
        .rev()
        .find(|at| name.is_char_boundary(*at))
        .unwrap_or(0)
}
