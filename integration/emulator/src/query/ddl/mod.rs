//! Statements other than SELECT: what they say. The parser of SELECT does not know BigQuery's PARTITION BY, CLUSTER BY,
//! OPTIONS and NOT ENFORCED, so these are read here, over its tokens.

use datafusion::sql::sqlparser::ast::{Expr, Query};

use crate::query::QueryError;
use crate::query::text::Text;
use crate::schema::Column;
use reader::Reader;

mod alter;
mod columns;
mod create;
pub(super) mod options;
pub(super) mod partition;
mod reader;

#[cfg(test)]
mod tests;

/// A name as it was written, in parts.
pub(super) type Name = Vec<String>;

/// `OPTIONS(name = expression, ...)`, names in lower case.
pub(super) type Options = Vec<(String, Expr)>;

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    CreateTable(Box<CreateTable>),
    AlterTable(AlterTable),
    DropTable {
        name: Name,
        if_exists: bool,
    },
    TruncateTable {
        name: Name,
    },
    CreateView(Box<CreateView>),
    AlterView {
        name: Name,
        if_exists: bool,
        options: Options,
    },
    DropView {
        name: Name,
        if_exists: bool,
    },
    CreateSchema {
        name: Name,
        if_not_exists: bool,
        options: Options,
    },
    AlterSchema {
        name: Name,
        if_exists: bool,
        options: Options,
    },
    DropSchema {
        name: Name,
        if_exists: bool,
        cascade: bool,
    },
    Insert(Insert),
}

/// What happens to a namesake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Create {
    /// It is an error.
    New,
    /// IF NOT EXISTS: nothing happens.
    IfNotExists,
    /// OR REPLACE: it goes.
    OrReplace,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CreateTable {
    pub(super) name: Name,
    pub(super) create: Create,
    /// `None`: those of the query.
    pub(super) columns: Option<Vec<Column>>,
    pub(super) primary_key: Option<Vec<String>>,
    pub(super) foreign_keys: Vec<ForeignKey>,
    pub(super) default_collation: Option<String>,
    pub(super) partition: Option<partition::Partition>,
    pub(super) cluster: Vec<String>,
    pub(super) options: Options,
    pub(super) query: Option<Box<Query>>,
}

/// `FOREIGN KEY (a) REFERENCES t(b) NOT ENFORCED`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForeignKey {
    pub(super) name: Option<String>,
    pub(super) columns: Vec<String>,
    pub(super) table: Name,
    pub(super) referenced: Vec<String>,
}

/// `ALTER TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AlterTable {
    pub(super) name: Name,
    pub(super) if_exists: bool,
    pub(super) actions: Vec<Action>,
}

/// One change of a table, in the order of the statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    AddColumn {
        column: Column,
        if_not_exists: bool,
    },
    DropNotNull {
        column: String,
        if_exists: bool,
    },
    SetDefault {
        column: String,
        if_exists: bool,
        expression: String,
    },
    DropDefault {
        column: String,
        if_exists: bool,
    },
    SetColumnOptions {
        column: String,
        if_exists: bool,
        options: Options,
    },
    SetOptions(Options),
    SetDefaultCollation(String),
    AddPrimaryKey {
        columns: Vec<String>,
        if_not_exists: bool,
    },
    AddForeignKey {
        key: ForeignKey,
        if_not_exists: bool,
    },
    DropPrimaryKey {
        if_exists: bool,
    },
    DropConstraint {
        name: String,
        if_exists: bool,
    },
}

/// `CREATE VIEW`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CreateView {
    pub(super) name: Name,
    pub(super) create: Create,
    /// Names and descriptions for the query's columns; empty: as they are.
    pub(super) columns: Vec<(String, Options)>,
    pub(super) options: Options,
    /// As it was written.
    pub(super) query: String,
}

/// `INSERT`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Insert {
    pub(super) name: Name,
    /// `None`: all, in their order.
    pub(super) columns: Option<Vec<String>>,
    pub(super) source: Source,
}

/// Where inserted rows come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// `VALUES (...), ...`; `None` is DEFAULT.
    Values(Vec<Vec<Option<Expr>>>),
    Query(Box<Query>),
}

/// Reads one statement that begins with one of [`WORDS`].
///
/// # Errors
/// `Syntax`; `Invalid` for what this emulator does not support.
pub(super) fn parse(text: &Text<'_>) -> Result<Statement, QueryError> {
    let mut reader = Reader::new(text);
    let statement = if reader.word("CREATE") {
        create::create(&mut reader)?
    } else if reader.word("ALTER") {
        alter::alter(&mut reader)?
    } else if reader.word("DROP") {
        create::drop(&mut reader)?
    } else if reader.words(&["TRUNCATE", "TABLE"]) {
        Statement::TruncateTable { name: reader.name()? }
    } else if reader.word("INSERT") {
        create::insert(&mut reader)?
    } else {
        return Err(reader.unexpected("a statement"));
    };
    reader.end()?;
    Ok(statement)
}

/// The words with which a statement other than a query begins.
pub(super) const WORDS: [&str; 5] = ["CREATE", "ALTER", "DROP", "TRUNCATE", "INSERT"];
