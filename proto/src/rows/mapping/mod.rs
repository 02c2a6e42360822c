//! The mapping table: every type of a pipeline against every type of a column, and what happens to the values. Validation,
//! conversion, table creation and documentation all read it.

mod page;
mod pipeline;
mod remedy;
mod table;

use std::fmt;

use arrow_schema::{IntervalUnit, TimeUnit};

use super::protobuf::type_name;

pub(super) use remedy::{ARRAY_OF_ARRAYS, OTHER_ELEMENTS};

pub use page::{MappingLine, describe, mapping_lines};
pub use pipeline::{PipelineType, Zone};
pub use table::TableType;

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The pipeline's type. A dictionary or a run-end encoded array stands for its values.
    pub pipeline: PipelineType,
    /// The column's type.
    pub table: TableType,
    /// What happens.
    pub treatment: Treatment,
    /// Whether `table.create` makes such columns for the pipeline's type.
    pub created: bool,
}

/// What happens to values of one type on their way into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// They arrive as they were.
    Written {
        /// The Arrow type they travel in; of a nested column the type of the whole.
        wire: PipelineType,
        /// The protobuf type they travel in, if that is the format.
        proto: &'static str,
        /// What is kept, and which values are row errors.
        how: &'static str,
    },
    /// The pipeline does not start.
    Refused {
        /// What to do instead, in SQL; `{name}` stands for the column.
        remedy: &'static str,
    },
}

/// Every cell, by column type.
pub fn mapping() -> impl Iterator<Item = Mapping> {
    TableType::ALL.iter().flat_map(|&table| {
        PipelineType::ALL.iter().map(move |&pipeline| Mapping {
            pipeline,
            table,
            treatment: treatment(pipeline, table),
            created: created(pipeline).contains(&table),
        })
    })
}

fn treatment(pipeline: PipelineType, table: TableType) -> Treatment {
    let rule = match rule(pipeline, table) {
        Rule::Refused(remedy) => return Treatment::Refused { remedy },
        rule => rule,
    };
    let wire = table.wire(pipeline, &pipeline.example());
    let proto = match table {
        TableType::Array => "repeated",
        table => type_name(&wire, &table.column("x")).expect("every wire type has a protobuf type"),
    };
    Treatment::Written {
        wire: PipelineType::of(&wire),
        proto,
        how: rule.how(table),
    }
}

/// What is done to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There are only NULLs.
    Nulls,
    /// Arrow's cast, which loses nothing between these types; none if the type is the wire's.
    Cast,
    /// uint64 into INT64.
    Unsigned,
    /// Text, up to the column's length.
    Text,
    /// Text that must be JSON.
    Json,
    /// Text that BigQuery reads as a geography.
    Geography,
    /// Bytes, up to the column's length.
    Bytes,
    /// Days since 1970.
    Days,
    /// Milliseconds since 1970 that make whole days.
    DayMillis,
    /// A time of day in this unit.
    Clock(TimeUnit),
    /// An instant, or a civil time as if in UTC, in this unit.
    Instant(TimeUnit),
    /// A number by its digits.
    Decimal,
    /// An interval in these parts.
    Interval(IntervalUnit),
    /// An interval of time alone, in this unit.
    Duration(TimeUnit),
    /// A struct of two bounds.
    Range,
    /// Field by field.
    Struct,
    /// Element by element.
    List,
    /// Nothing: these types do not go together. With the remedy.
    Refused(&'static str),
}

/// The table itself.
pub(super) fn rule(pipeline: PipelineType, table: TableType) -> Rule {
    use PipelineType as P;
    use TableType as T;
    match (table, pipeline) {
        (_, P::Null) => Rule::Nulls,
        (T::Array, list) if list.is_list() => Rule::List,
        (T::Bool, P::Boolean) => Rule::Cast,
        (T::Int64, P::UInt64) => Rule::Unsigned,
        (T::Int64, integer) if integer.is_integer() => Rule::Cast,
        (T::Float64, P::Float16 | P::Float32 | P::Float64) => Rule::Cast,
        // A double holds every integer of 53 bits.
        (T::Float64, P::Int64 | P::UInt64) => Rule::Refused(remedy::of(pipeline, table)),
        (T::Float64, integer) if integer.is_integer() => Rule::Cast,
        (T::Numeric | T::BigNumeric, P::Decimal128 | P::Decimal256) => Rule::Decimal,
        (T::Numeric | T::BigNumeric, integer) if integer.is_integer() => Rule::Decimal,
        (T::String, text) if text.is_text() => Rule::Text,
        (T::Json, text) if text.is_text() => Rule::Json,
        (T::Geography, text) if text.is_text() => Rule::Geography,
        (T::Bytes, bytes) if bytes.is_bytes() => Rule::Bytes,
        (T::Date, P::Date32) => Rule::Days,
        (T::Date, P::Date64) => Rule::DayMillis,
        (T::Time, P::Time(unit)) => Rule::Clock(unit),
        (T::Timestamp | T::TimestampPicoseconds, P::Timestamp(unit, _)) => Rule::Instant(unit),
        // The civil time meant is plain only where there is no zone, or where it is UTC.
        (T::Datetime, P::Timestamp(unit, Zone::None | Zone::Utc)) => Rule::Instant(unit),
        (T::Interval, P::Interval(unit)) => Rule::Interval(unit),
        (T::Interval, P::Duration(unit)) => Rule::Duration(unit),
        (range, P::Struct) if range.range_element().is_some() => Rule::Range,
        (T::Struct, P::Struct) => Rule::Struct,
        _ => Rule::Refused(remedy::of(pipeline, table)),
    }
}

/// The columns that `table.create` makes for a type; where there are several, the first that takes its values whole.
pub(super) fn created(pipeline: PipelineType) -> &'static [TableType] {
    use PipelineType as P;
    use TableType as T;
    match pipeline {
        P::Boolean => &[T::Bool],
        P::Float16 | P::Float32 | P::Float64 => &[T::Float64],
        P::Decimal128 | P::Decimal256 => &[T::Numeric, T::BigNumeric],
        P::Utf8 | P::LargeUtf8 | P::Utf8View => &[T::Json, T::String],
        P::Binary | P::LargeBinary | P::BinaryView | P::FixedSizeBinary => &[T::Bytes],
        P::Date32 | P::Date64 => &[T::Date],
        P::Time(_) => &[T::Time],
        // With or without a zone: to the pipeline they are instants.
        P::Timestamp(..) => &[T::Timestamp],
        P::Duration(_) | P::Interval(_) => &[T::Interval],
        P::Struct => &[T::Struct],
        list if list.is_list() => &[T::Array],
        integer if integer.is_integer() => &[T::Int64],
        _ => &[],
    }
}

impl Rule {
    /// What is kept, and which values are row errors.
    fn how(self, table: TableType) -> &'static str {
        use IntervalUnit::{DayTime, MonthDayNano, YearMonth};
        use TimeUnit::Nanosecond;
        let civil = table == TableType::Datetime;
        match self {
            Self::Nulls if table == TableType::Array => "the empty array",
            Self::Nulls => "NULL",
            Self::Cast => match table {
                TableType::Int64 => "the same number",
                TableType::Float64 => "the same number, NaN, infinities and -0.0 too",
                _ => "the same value",
            },
            Self::Unsigned => "the same number; above 9223372036854775807: a row error",
            Self::Text => "the same text; longer than STRING(n): a row error",
            Self::Json => "the same text; not one JSON value: a row error",
            Self::Geography => "the same text, WKT or GeoJSON; BigQuery judges it",
            Self::Bytes => "the same bytes; longer than BYTES(n): a row error",
            Self::Days => "the same day; beyond the years 1 to 9999: a row error",
            Self::DayMillis => "the same day; with a time of day, or beyond the years 1 to 9999: a row error",
            Self::Clock(Nanosecond) => {
                "the same time, digits below a microsecond by `write.sub_microseconds`; from 24:00 on or negative: a row error"
            }
            Self::Clock(_) => "the same time; from 24:00 on or negative: a row error",
            Self::Instant(Nanosecond) if table == TableType::TimestampPicoseconds => {
                "the same instant, without a zone in UTC"
            }
            Self::Instant(Nanosecond) if civil => {
                "the same civil time, digits below a microsecond by `write.sub_microseconds`"
            }
            Self::Instant(Nanosecond) => {
                "the same instant, without a zone in UTC, digits below a microsecond by `write.sub_microseconds`"
            }
            Self::Instant(_) if civil => "the same civil time; beyond the years 1 to 9999: a row error",
            Self::Instant(_) => {
                "the same instant, without a zone in UTC; beyond the years 1 to 9999: a row error"
            }
            Self::Decimal => {
                "the same number; more digits than the column takes, before or behind the point: a row error"
            }
            Self::Interval(YearMonth) => "the same months; beyond 10000 years: a row error",
            Self::Interval(DayTime) => "the same days and time; beyond 3660000 days: a row error",
            Self::Interval(MonthDayNano) => {
                "the same months, days and time, digits below a microsecond by `write.sub_microseconds`; beyond 10000 years or 3660000 days: a row error"
            }
            Self::Duration(Nanosecond) => {
                "the time, without months or days, digits below a microsecond by `write.sub_microseconds`"
            }
            Self::Duration(_) => "the time, without months or days; beyond 2562047 hours: a row error",
            Self::Range => {
                "`start` and `end` as the element's type takes them, NULL for no bound; a start not before its end: a row error"
            }
            Self::Struct => "field by field, by name",
            Self::List => "element by element; NULL becomes the empty array; a NULL element: a row error",
            Self::Refused(remedy) => remedy,
        }
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Written { how, .. } => how,
            Self::Refused { remedy } => remedy,
        })
    }
}
