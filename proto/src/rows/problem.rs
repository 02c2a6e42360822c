//! Why a pipeline's columns do not fit a table, each with what to do about it.

use std::error::Error;
use std::fmt;

/// One column that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnProblem {
    /// Dotted path of the column, as the pipeline spells it (as the table does where the pipeline lacks it).
    pub column: String,
    /// What is wrong.
    pub kind: ColumnProblemKind,
}

/// What is wrong with a column. Types are spelled as their SQL dialect does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnProblemKind {
    /// The table has no such column.
    Unknown {
        /// The pipeline's type.
        pipeline: String,
    },
    /// The table requires a column that the pipeline does not write.
    MissingRequired {
        /// The table's type.
        table: String,
    },
    /// The types do not go together.
    Type {
        /// The pipeline's type.
        pipeline: String,
        /// The table's type.
        table: String,
        /// What to do.
        remedy: String,
    },
    /// Another column's name differs in case only, which BigQuery does not tell apart.
    Collision {
        /// The other column's dotted path.
        other: String,
    },
    /// The table's type is not written by this version.
    Unsupported {
        /// The pipeline's type.
        pipeline: String,
        /// The table's type.
        table: String,
    },
    /// BigQuery has no type for the pipeline's, so no table can be created for it.
    NoColumnType {
        /// The pipeline's type.
        pipeline: String,
        /// What to do.
        remedy: &'static str,
    },
    /// STRUCTs are nested deeper than BigQuery has them.
    TooDeep {
        /// The most levels there may be.
        most: usize,
    },
    /// BigQuery does not take the column's name.
    Name {
        /// Why.
        reason: String,
    },
}

impl ColumnProblem {
    pub(super) fn new(column: impl Into<String>, kind: ColumnProblemKind) -> Self {
        Self {
            column: column.into(),
            kind,
        }
    }
}

impl fmt::Display for ColumnProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ColumnProblemKind as Kind;
        write!(f, "column `{}`: ", self.column)?;
        match &self.kind {
            Kind::Unknown { pipeline } => write!(
                f,
                "the pipeline writes {pipeline}, the table has no such column; \
                 add it to the table, or rename or drop it in the query"
            ),
            Kind::MissingRequired { table } => write!(
                f,
                "the table requires {table} NOT NULL without default, the pipeline does not write it; \
                 add it to the query, or make it nullable"
            ),
            Kind::Type {
                pipeline,
                table,
                remedy,
            } => {
                write!(
                    f,
                    "the pipeline writes {pipeline}, the table has {table}; {remedy}"
                )
            }
            Kind::Collision { other } => {
                write!(
                    f,
                    "BigQuery does not tell it from `{other}`, names differ in case only; rename one of them"
                )
            }
            Kind::Unsupported { pipeline, table } => write!(
                f,
                "the pipeline writes {pipeline}, the table has {table}, which is not yet supported; \
                 drop it in the query"
            ),
            Kind::NoColumnType { pipeline, remedy } => write!(
                f,
                "the pipeline writes {pipeline}, which no BigQuery type holds; {remedy}"
            ),
            Kind::TooDeep { most } => write!(
                f,
                "STRUCTs are nested more than {most} deep, BigQuery has no more; write fewer levels, or JSON"
            ),
            Kind::Name { reason } => write!(
                f,
                "BigQuery does not take this name: {reason}; rename it in the query"
            ),
        }
    }
}

impl Error for ColumnProblem {}
