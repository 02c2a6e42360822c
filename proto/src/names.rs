//! Names of projects, datasets, tables and write streams, checked where they enter and printed as the API spells them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// A project: `my-project`, or with a domain `example.com:my-project`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectId(String);

/// A dataset of a project.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatasetId(String);

/// A table of a dataset; may carry a daily partition decorator, `events$20240131`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(String);

/// A table's full name; prints and parses as `projects/{p}/datasets/{d}/tables/{t}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    project: ProjectId,
    dataset: DatasetId,
    table: TableId,
}

/// A write stream's full name. Prints as `{table}/streams/{id}`, the default stream as `{table}/streams/_default`; both that and
/// the short `{table}/_default` parse (write-api.md 1.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName {
    table: TableName,
    stream: Stream,
}

/// The last part of a stream's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stream {
    Default,
    /// Chosen by the server; opaque.
    Application(String),
}

/// A name that BigQuery would not take: which part of which text, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid {part} {text:?}: {reason}")]
pub struct NameError {
    /// Which part is wrong.
    pub part: NamePart,
    /// What stood there, cut after 200 characters.
    pub text: String,
    /// What is wrong with it.
    pub reason: NameReason,
}

/// The part of a name that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePart {
    /// The project.
    Project,
    /// The dataset.
    Dataset,
    /// The table, without decorator.
    Table,
    /// What follows `$` behind a table.
    Decorator,
    /// A table's full name as a whole.
    TableName,
    /// A stream's full name as a whole.
    StreamName,
    /// The stream's own id.
    StreamId,
}

/// What is wrong with a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameReason {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// Longer than the given number of bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// The character is not allowed there.
    #[error("{0:?} is not allowed; allowed are {1}")]
    Character(char, &'static str),
    /// The first character is not allowed there.
    #[error("it must begin with {0}")]
    Start(&'static str),
    /// The last character is not allowed there.
    #[error("it must not end with {0:?}")]
    End(char),
    /// It does not have the form it should have.
    #[error("it must have the form {0}")]
    Form(&'static str),
}

const TABLE_FORM: &str = "projects/PROJECT/datasets/DATASET/tables/TABLE";
const STREAM_FORM: &str = "projects/PROJECT/datasets/DATASET/tables/TABLE/streams/STREAM";
const DEFAULT_STREAM: &str = "_default";

impl ProjectId {
    /// Checks a project's id.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        check_project(&text).map_err(|reason| NameError::new(NamePart::Project, &text, reason))?;
        Ok(Self(text))
    }
}

impl DatasetId {
    /// Checks a dataset's id.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        check_dataset(&text).map_err(|reason| NameError::new(NamePart::Dataset, &text, reason))?;
        Ok(Self(text))
    }
}

impl TableId {
    /// Checks a table's id, with or without `$YYYYMMDD`.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        let (base, decorator) = split_decorator(&text);
        check_table(base).map_err(|reason| NameError::new(NamePart::Table, base, reason))?;
        if let Some(decorator) = decorator {
            check_decorator(decorator)
                .map_err(|reason| NameError::new(NamePart::Decorator, decorator, reason))?;
        }
        Ok(Self(text))
    }

    /// The table's id without decorator.
    pub fn base(&self) -> &str {
        split_decorator(&self.0).0
    }

    /// The daily partition addressed, as `YYYYMMDD`.
    pub fn decorator(&self) -> Option<&str> {
        split_decorator(&self.0).1
    }
}

impl TableName {
    /// Puts a full name together.
    pub fn new(project: ProjectId, dataset: DatasetId, table: TableId) -> Self {
        Self {
            project,
            dataset,
            table,
        }
    }

    fn parse(project: &str, dataset: &str, table: &str) -> Result<Self, NameError> {
        Ok(Self::new(
            ProjectId::new(project)?,
            DatasetId::new(dataset)?,
            TableId::new(table)?,
        ))
    }

    /// The project.
    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    /// The dataset.
    pub fn dataset(&self) -> &DatasetId {
        &self.dataset
    }

    /// The table, with its decorator.
    pub fn table(&self) -> &TableId {
        &self.table
    }

    /// The same table without partition decorator.
    pub fn without_decorator(&self) -> Self {
        Self {
            table: TableId(self.table.base().to_owned()),
            ..self.clone()
        }
    }

    /// The table's default stream.
    pub fn default_stream(&self) -> StreamName {
        StreamName {
            table: self.clone(),
            stream: Stream::Default,
        }
    }

    /// The table's application stream of that id.
    pub fn stream(&self, id: impl Into<String>) -> Result<StreamName, NameError> {
        let id = id.into();
        let stream = Stream::new(id)?;
        Ok(StreamName {
            table: self.clone(),
            stream,
        })
    }
}

impl StreamName {
    /// The table the stream writes to.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// The stream's own id; `_default` for the default stream.
    pub fn id(&self) -> &str {
        match &self.stream {
            Stream::Default => DEFAULT_STREAM,
            Stream::Application(id) => id,
        }
    }

    /// Whether it is the table's default stream.
    pub fn is_default(&self) -> bool {
        self.stream == Stream::Default
    }

    /// The other spelling of the default stream, `{table}/_default`; an application stream has one spelling only.
    pub fn short(&self) -> String {
        match &self.stream {
            Stream::Default => format!("{}/{DEFAULT_STREAM}", self.table),
            Stream::Application(_) => self.to_string(),
        }
    }
}

impl Stream {
    fn new(id: String) -> Result<Self, NameError> {
        if id == DEFAULT_STREAM {
            return Ok(Self::Default);
        }
        check_stream(&id).map_err(|reason| NameError::new(NamePart::StreamId, &id, reason))?;
        Ok(Self::Application(id))
    }
}

impl NameError {
    fn new(part: NamePart, text: &str, reason: NameReason) -> Self {
        Self {
            part,
            text: text.chars().take(200).collect(),
            reason,
        }
    }
}

fn split_decorator(text: &str) -> (&str, Option<&str>) {
    match text.split_once('$') {
        Some((base, decorator)) => (base, Some(decorator)),
        None => (text, None),
    }
}

/// Resource Manager's rule: at most 30 lower-case letters, digits and hyphens; older projects carry `domain.tld:`. Its lower
/// limit of 6 is not kept, since emulators are used with projects such as `test`.
fn check_project(text: &str) -> Result<(), NameReason> {
    if text.is_empty() {
        return Err(NameReason::Empty);
    }
    let id = match text.rsplit_once(':') {
        Some((domain, id)) => {
            check_domain(domain)?;
            id
        }
        None => text,
    };
    allow(id, "lower-case letters, digits and hyphens", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
    })?;
    if id.is_empty() {
        return Err(NameReason::Form("PROJECT or DOMAIN:PROJECT"));
    }
    if !id.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(NameReason::Start("a lower-case letter"));
    }
    if id.ends_with('-') {
        return Err(NameReason::End('-'));
    }
    if id.len() > 30 {
        return Err(NameReason::TooLong(30));
    }
    Ok(())
}

fn check_domain(domain: &str) -> Result<(), NameReason> {
    allow(
        domain,
        "lower-case letters, digits, hyphens and dots before ':'",
        |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'),
    )?;
    if domain.split('.').any(str::is_empty) || domain.len() > 253 {
        return Err(NameReason::Form("PROJECT or DOMAIN:PROJECT"));
    }
    Ok(())
}

fn check_dataset(text: &str) -> Result<(), NameReason> {
    if text.is_empty() {
        return Err(NameReason::Empty);
    }
    if text.len() > 1024 {
        return Err(NameReason::TooLong(1024));
    }
    // Hyphens: linked and migrated datasets have them although new ones may not.
    allow(text, "letters, digits, underscores and hyphens", |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
    })
}

/// Letters, marks, numbers, connectors, dashes and spaces of Unicode, in 1 to 1,024 bytes.
fn check_table(text: &str) -> Result<(), NameReason> {
    if text.is_empty() {
        return Err(NameReason::Empty);
    }
    if text.len() > 1024 {
        return Err(NameReason::TooLong(1024));
    }
    allow(
        text,
        "letters, marks, numbers, connectors, dashes and spaces",
        is_table_char,
    )
}

fn is_table_char(c: char) -> bool {
    use GeneralCategoryGroup::{Letter, Mark, Number};
    matches!(c.general_category_group(), Letter | Mark | Number)
        || matches!(
            c.general_category(),
            GeneralCategory::ConnectorPunctuation
                | GeneralCategory::DashPunctuation
                | GeneralCategory::SpaceSeparator
        )
}

/// Of the partitions of tables that are partitioned by the time of ingestion only days can be written to (write-api.md 1.3).
fn check_decorator(text: &str) -> Result<(), NameReason> {
    const FORM: NameReason = NameReason::Form("YYYYMMDD, a day of an ingestion-time partitioned table");
    if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(match text.len() {
            _ if !text.bytes().all(|b| b.is_ascii_digit()) => FORM,
            10 => NameReason::Form("YYYYMMDD; rows can be written to a day, not to an hour"),
            6 => NameReason::Form("YYYYMMDD; rows can be written to a day, not to a month"),
            4 => NameReason::Form("YYYYMMDD; rows can be written to a day, not to a year"),
            _ => FORM,
        });
    }
    let number =
        |range: std::ops::Range<usize>| text.get(range).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0);
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return Err(FORM),
    };
    if year == 0 || day == 0 || day > days {
        Err(FORM)
    } else {
        Ok(())
    }
}

fn check_stream(text: &str) -> Result<(), NameReason> {
    if text.is_empty() {
        return Err(NameReason::Empty);
    }
    if text.len() > 1024 {
        return Err(NameReason::TooLong(1024));
    }
    allow(text, "printable characters without '/' and spaces", |c| {
        !c.is_control() && !c.is_whitespace() && c != '/'
    })
}

fn allow(text: &str, allowed: &'static str, ok: impl Fn(char) -> bool) -> Result<(), NameReason> {
    match text.chars().find(|&c| !ok(c)) {
        Some(c) => Err(NameReason::Character(c, allowed)),
        None => Ok(()),
    }
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match *text.split('/').collect::<Vec<_>>() {
            ["projects", project, "datasets", dataset, "tables", table] => {
                Self::parse(project, dataset, table)
            }
            _ => Err(NameError::new(
                NamePart::TableName,
                text,
                NameReason::Form(TABLE_FORM),
            )),
        }
    }
}

impl FromStr for StreamName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match *text.split('/').collect::<Vec<_>>() {
            [
                "projects",
                project,
                "datasets",
                dataset,
                "tables",
                table,
                DEFAULT_STREAM,
            ] => Ok(TableName::parse(project, dataset, table)?.default_stream()),
            [
                "projects",
                project,
                "datasets",
                dataset,
                "tables",
                table,
                "streams",
                id,
            ] => TableName::parse(project, dataset, table)?.stream(id),
            _ => Err(NameError::new(
                NamePart::StreamName,
                text,
                NameReason::Form(STREAM_FORM),
            )),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            project,
            dataset,
            table,
        } = self;
        write!(f, "projects/{project}/datasets/{dataset}/tables/{table}")
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/streams/{}", self.table, self.id())
    }
}

impl fmt::Display for NamePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Project => "project",
            Self::Dataset => "dataset",
            Self::Table => "table",
            Self::Decorator => "partition decorator",
            Self::TableName => "table name",
            Self::StreamName => "stream name",
            Self::StreamId => "stream id",
        })
    }
}

macro_rules! text_newtype {
    ($($name:ident),*) => {$(
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    )*};
}

text_newtype!(ProjectId, DatasetId, TableId);
