//! A table's schema as the emulator keeps it: one description that rows, REST and queries share.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::values::{interval, picoseconds, range};

mod check;
mod conform;
pub(crate) mod size;
mod sql;
mod wire;

pub use check::SchemaError;
pub(crate) use conform::conform;
pub use wire::WireSchemaError;

/// Columns in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The columns.
    pub columns: Vec<Column>,
}

/// A column, or a field of a STRUCT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name as declared; matched without regard to case.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// NULLABLE, REQUIRED or REPEATED.
    pub mode: Mode,
    /// Free text.
    pub description: String,
    /// SQL of the default value, if there is one.
    pub default_value_expression: Option<String>,
}

/// BigQuery's types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// BOOL.
    Bool,
    /// INT64.
    Int64,
    /// FLOAT64.
    Float64,
    /// NUMERIC(precision, scale); both `None` for the full range of 29 integer and 9 fraction digits.
    Numeric {
        /// Digits in all.
        precision: Option<u8>,
        /// Fraction digits.
        scale: Option<u8>,
    },
    /// BIGNUMERIC(precision, scale).
    BigNumeric {
        /// Digits in all.
        precision: Option<u8>,
        /// Fraction digits.
        scale: Option<u8>,
    },
    /// STRING, with its greatest length in code points.
    String {
        /// `None`: unlimited.
        max_length: Option<i64>,
    },
    /// BYTES, with its greatest length in bytes.
    Bytes {
        /// `None`: unlimited.
        max_length: Option<i64>,
    },
    /// DATE.
    Date,
    /// TIME.
    Time,
    /// DATETIME.
    Datetime,
    /// TIMESTAMP, µs.
    Timestamp,
    /// TIMESTAMP(12): picoseconds.
    TimestampPicoseconds,
    /// INTERVAL.
    Interval,
    /// RANGE.
    Range(RangeElement),
    /// JSON.
    Json,
    /// GEOGRAPHY, as WKT or GeoJSON text.
    Geography,
    /// STRUCT.
    Struct(Vec<Column>),
}

/// What a RANGE is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangeElement {
    /// `RANGE<DATE>`.
    Date,
    /// `RANGE<DATETIME>`.
    Datetime,
    /// `RANGE<TIMESTAMP>`.
    Timestamp,
}

/// Mode of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// NULL allowed.
    Nullable,
    /// NOT NULL.
    Required,
    /// ARRAY; never null, elements never null.
    Repeated,
}

impl Schema {
    /// The canonical Arrow form, in which visible rows are kept: one Arrow type for each BigQuery type.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(arrow_schema::Schema::new(fields(&self.columns)))
    }

    /// The column of that name, without regard to case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.is_named(name))
    }

    /// Where one of its columns is in another schema, if it is there and of the same type.
    pub(crate) fn place_in(&self, at: usize, other: &Self) -> Option<usize> {
        let column = self.columns.get(at)?;
        let same = |there: &Column| {
            there.is_named(&column.name) && there.arrow().data_type() == column.arrow().data_type()
        };
        other.columns.iter().position(same)
    }
}

impl Column {
    /// A column without description or default.
    pub fn new(name: impl Into<String>, kind: Kind, mode: Mode) -> Self {
        Self {
            name: name.into(),
            kind,
            mode,
            description: String::new(),
            default_value_expression: None,
        }
    }

    /// Whether it answers to that name; BigQuery ignores case.
    pub fn is_named(&self, name: &str) -> bool {
        same_name(&self.name, name)
    }

    /// The canonical Arrow field. A REPEATED column is a non-null list of non-null items.
    pub fn arrow(&self) -> Field {
        match self.mode {
            Mode::Nullable => Field::new(&self.name, self.kind.arrow(), true),
            Mode::Required => Field::new(&self.name, self.kind.arrow(), false),
            Mode::Repeated => {
                Field::new_list(&self.name, Field::new("item", self.kind.arrow(), false), false)
            }
        }
    }
}

impl Kind {
    /// The canonical Arrow type of one value (of one element, if the column is REPEATED).
    pub fn arrow(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Numeric { .. } => DataType::Decimal128(38, 9),
            Self::BigNumeric { .. } => DataType::Decimal256(76, 38),
            Self::String { .. } | Self::Json | Self::Geography => DataType::Utf8,
            Self::Bytes { .. } => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::TimestampPicoseconds => picoseconds::DATA_TYPE,
            Self::Interval => interval::data_type(),
            Self::Range(element) => range::data_type(*element),
            Self::Struct(columns) => DataType::Struct(fields(columns)),
        }
    }

    /// The name of BigQuery's older dialect, which REST and error texts have: INTEGER, RECORD.
    pub(crate) fn legacy_name(&self) -> &'static str {
        match self {
            Self::Bool => "BOOLEAN",
            Self::Int64 => "INTEGER",
            Self::Float64 => "FLOAT",
            Self::Struct(_) => "RECORD",
            other => other.sql_name(),
        }
    }

    /// BigQuery's SQL name, without parameters.
    pub fn sql_name(&self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Int64 => "INT64",
            Self::Float64 => "FLOAT64",
            Self::Numeric { .. } => "NUMERIC",
            Self::BigNumeric { .. } => "BIGNUMERIC",
            Self::String { .. } => "STRING",
            Self::Bytes { .. } => "BYTES",
            Self::Date => "DATE",
            Self::Time => "TIME",
            Self::Datetime => "DATETIME",
            Self::Timestamp | Self::TimestampPicoseconds => "TIMESTAMP",
            Self::Interval => "INTERVAL",
            Self::Range(_) => "RANGE",
            Self::Json => "JSON",
            Self::Geography => "GEOGRAPHY",
            Self::Struct(_) => "STRUCT",
        }
    }
}

impl From<RangeElement> for Kind {
    fn from(element: RangeElement) -> Self {
        match element {
            RangeElement::Date => Self::Date,
            RangeElement::Datetime => Self::Datetime,
            RangeElement::Timestamp => Self::Timestamp,
        }
    }
}

impl TryFrom<&Kind> for RangeElement {
    type Error = ();

    /// # Errors
    /// There is no RANGE of that type.
    fn try_from(kind: &Kind) -> Result<Self, ()> {
        match kind {
            Kind::Date => Ok(Self::Date),
            Kind::Datetime => Ok(Self::Datetime),
            Kind::Timestamp => Ok(Self::Timestamp),
            _ => Err(()),
        }
    }
}

fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(Column::arrow).collect()
}

/// Names are matched without regard to case.
fn same_name(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || a.to_lowercase() == b.to_lowercase()
}
