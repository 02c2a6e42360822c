//! The types of a table's columns, and the Arrow types their values travel in.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};

use super::PipelineType;
use crate::wire::table_field_schema::{FieldElementType, Type};
use crate::wire::{TableFieldSchema, table_field_schema::Mode};

/// A type of the table, without parameters that only limit its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableType {
    /// BOOL.
    Bool,
    /// INT64.
    Int64,
    /// FLOAT64.
    Float64,
    /// NUMERIC.
    Numeric,
    /// BIGNUMERIC.
    BigNumeric,
    /// STRING.
    String,
    /// BYTES.
    Bytes,
    /// DATE.
    Date,
    /// TIME.
    Time,
    /// DATETIME.
    Datetime,
    /// TIMESTAMP, of microseconds.
    Timestamp,
    /// TIMESTAMP(12), of picoseconds.
    TimestampPicoseconds,
    /// INTERVAL.
    Interval,
    /// JSON.
    Json,
    /// GEOGRAPHY.
    Geography,
    /// `RANGE<DATE>`.
    RangeOfDate,
    /// `RANGE<DATETIME>`.
    RangeOfDatetime,
    /// `RANGE<TIMESTAMP>`.
    RangeOfTimestamp,
    /// STRUCT.
    Struct,
    /// ARRAY: a REPEATED column of any of the others.
    Array,
}

impl TableType {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Bool,
        Self::Int64,
        Self::Float64,
        Self::Numeric,
        Self::BigNumeric,
        Self::String,
        Self::Bytes,
        Self::Date,
        Self::Time,
        Self::Datetime,
        Self::Timestamp,
        Self::TimestampPicoseconds,
        Self::Interval,
        Self::Json,
        Self::Geography,
        Self::RangeOfDate,
        Self::RangeOfDatetime,
        Self::RangeOfTimestamp,
        Self::Struct,
        Self::Array,
    ];

    /// The type of a column; `None` for a type that came after this version.
    pub fn of(column: &TableFieldSchema) -> Option<Self> {
        match column.mode() {
            Mode::Repeated => Some(Self::Array),
            _ => Self::of_value(column),
        }
    }

    /// The type of a column, or of its elements if it is REPEATED; `None` for a type that came after this version.
    pub(in super::super) fn of_value(column: &TableFieldSchema) -> Option<Self> {
        Some(match column.r#type() {
            Type::Bool => Self::Bool,
            Type::Int64 => Self::Int64,
            Type::Double => Self::Float64,
            Type::Numeric => Self::Numeric,
            Type::Bignumeric => Self::BigNumeric,
            Type::String => Self::String,
            Type::Bytes => Self::Bytes,
            Type::Date => Self::Date,
            Type::Time => Self::Time,
            Type::Datetime => Self::Datetime,
            Type::Timestamp => match column.timestamp_precision {
                None | Some(6) => Self::Timestamp,
                Some(12) => Self::TimestampPicoseconds,
                Some(_) => return None,
            },
            Type::Interval => Self::Interval,
            Type::Json => Self::Json,
            Type::Geography => Self::Geography,
            Type::Range => match column.range_element_type.as_ref().map(FieldElementType::r#type)? {
                Type::Date => Self::RangeOfDate,
                Type::Datetime => Self::RangeOfDatetime,
                Type::Timestamp => Self::RangeOfTimestamp,
                _ => return None,
            },
            Type::Struct => Self::Struct,
            Type::Unspecified => return None,
        })
    }

    /// A nullable column of the type; of an array or a STRUCT one with fields yet to be given.
    pub fn column(self, name: &str) -> TableFieldSchema {
        let element = |r#type: Type| {
            Some(FieldElementType {
                r#type: r#type.into(),
            })
        };
        let (r#type, range_element_type) = match self {
            Self::Bool => (Type::Bool, None),
            Self::Int64 => (Type::Int64, None),
            Self::Float64 => (Type::Double, None),
            Self::Numeric => (Type::Numeric, None),
            Self::BigNumeric => (Type::Bignumeric, None),
            Self::String => (Type::String, None),
            Self::Bytes => (Type::Bytes, None),
            Self::Date => (Type::Date, None),
            Self::Time => (Type::Time, None),
            Self::Datetime => (Type::Datetime, None),
            Self::Timestamp | Self::TimestampPicoseconds => (Type::Timestamp, None),
            Self::Interval => (Type::Interval, None),
            Self::Json => (Type::Json, None),
            Self::Geography => (Type::Geography, None),
            Self::RangeOfDate => (Type::Range, element(Type::Date)),
            Self::RangeOfDatetime => (Type::Range, element(Type::Datetime)),
            Self::RangeOfTimestamp => (Type::Range, element(Type::Timestamp)),
            Self::Struct | Self::Array => (Type::Struct, None),
        };
        TableFieldSchema {
            name: name.to_owned(),
            r#type: r#type.into(),
            mode: Mode::Nullable.into(),
            range_element_type,
            timestamp_precision: (self == Self::TimestampPicoseconds).then_some(12),
            ..TableFieldSchema::default()
        }
    }

    /// What a RANGE is of.
    pub(in super::super) fn range_element(self) -> Option<Self> {
        match self {
            Self::RangeOfDate => Some(Self::Date),
            Self::RangeOfDatetime => Some(Self::Datetime),
            Self::RangeOfTimestamp => Some(Self::Timestamp),
            _ => None,
        }
    }

    /// The Arrow type that BigQuery documents for a column, for values of `input` (write-api.md 5.5). Of a STRUCT or an array only
    /// the kind: their fields and elements have types of their own.
    pub(in super::super) fn wire(self, pipeline: PipelineType, input: &DataType) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Numeric => DataType::Decimal128(38, 9),
            // At scale 38 the 76 digits that Arrow declares end at 38 before the point, where BIGNUMERIC has 39.
            Self::BigNumeric if integer_digits(input) > 38 => DataType::Decimal256(76, 37),
            Self::BigNumeric => DataType::Decimal256(76, 38),
            Self::String | Self::Json | Self::Geography => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
            // Nanoseconds reach from 1677 to 2262 only, so other units go as to any TIMESTAMP.
            Self::TimestampPicoseconds
                if matches!(pipeline, PipelineType::Timestamp(TimeUnit::Nanosecond, _)) =>
            {
                DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
            }
            Self::Timestamp | Self::TimestampPicoseconds => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::RangeOfDate => range(Self::Date.wire(pipeline, input)),
            Self::RangeOfDatetime => range(Self::Datetime.wire(pipeline, input)),
            Self::RangeOfTimestamp => range(Self::Timestamp.wire(pipeline, input)),
            Self::Struct => DataType::Struct(Fields::empty()),
            Self::Array => DataType::List(Arc::new(Field::new_list_field(DataType::Null, true))),
        }
    }
}

/// Digits before the point that a type can have.
fn integer_digits(input: &DataType) -> i16 {
    match input {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            i16::from(*precision) - i16::from(*scale)
        }
        _ => 0,
    }
}

fn range(bound: DataType) -> DataType {
    DataType::Struct(Fields::from(vec![
        Field::new("start", bound.clone(), true),
        Field::new("end", bound, true),
    ]))
}

/// As BigQuery's SQL spells it.
impl fmt::Display for TableType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "BOOL",
            Self::Int64 => "INT64",
            Self::Float64 => "FLOAT64",
            Self::Numeric => "NUMERIC",
            Self::BigNumeric => "BIGNUMERIC",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Date => "DATE",
            Self::Time => "TIME",
            Self::Datetime => "DATETIME",
            Self::Timestamp => "TIMESTAMP",
            Self::TimestampPicoseconds => "TIMESTAMP(12)",
            Self::Interval => "INTERVAL",
            Self::Json => "JSON",
            Self::Geography => "GEOGRAPHY",
            Self::RangeOfDate => "RANGE<DATE>",
            Self::RangeOfDatetime => "RANGE<DATETIME>",
            Self::RangeOfTimestamp => "RANGE<TIMESTAMP>",
            Self::Struct => "STRUCT",
            Self::Array => "ARRAY",
        })
    }
}
