//! The types of a pipeline, as far as the mapping tells them apart.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit, UnionFields, UnionMode};

use super::super::types::pipeline_type;

/// A type of the pipeline: an Arrow type without parameters that change no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are Arrow's types by their names")]
pub enum PipelineType {
    Null,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    Decimal128,
    Decimal256,
    Utf8,
    LargeUtf8,
    Utf8View,
    Binary,
    LargeBinary,
    BinaryView,
    FixedSizeBinary,
    Date32,
    Date64,
    /// `Time32` in seconds and milliseconds, `Time64` in microseconds and nanoseconds.
    Time(TimeUnit),
    Timestamp(TimeUnit, Zone),
    Duration(TimeUnit),
    Interval(IntervalUnit),
    Struct,
    List,
    LargeList,
    FixedSizeList,
    ListView,
    LargeListView,
    Map,
    Union,
}

/// The zone of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// There is none.
    None,
    /// UTC, by one of its names.
    Utc,
    /// Any other.
    Other,
}

const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

impl PipelineType {
    /// All of them. Arrow 55 has no decimals of 32 and 64 bits.
    pub const ALL: &[Self] = &{
        use IntervalUnit::{DayTime, MonthDayNano, YearMonth};
        let [s, ms, us, ns] = UNITS;
        [
            Self::Null,
            Self::Boolean,
            Self::Int8,
            Self::Int16,
            Self::Int32,
            Self::Int64,
            Self::UInt8,
            Self::UInt16,
            Self::UInt32,
            Self::UInt64,
            Self::Float16,
            Self::Float32,
            Self::Float64,
            Self::Decimal128,
            Self::Decimal256,
            Self::Utf8,
            Self::LargeUtf8,
            Self::Utf8View,
            Self::Binary,
            Self::LargeBinary,
            Self::BinaryView,
            Self::FixedSizeBinary,
            Self::Date32,
            Self::Date64,
            Self::Time(s),
            Self::Time(ms),
            Self::Time(us),
            Self::Time(ns),
            Self::Timestamp(s, Zone::None),
            Self::Timestamp(ms, Zone::None),
            Self::Timestamp(us, Zone::None),
            Self::Timestamp(ns, Zone::None),
            Self::Timestamp(s, Zone::Utc),
            Self::Timestamp(ms, Zone::Utc),
            Self::Timestamp(us, Zone::Utc),
            Self::Timestamp(ns, Zone::Utc),
            Self::Timestamp(s, Zone::Other),
            Self::Timestamp(ms, Zone::Other),
            Self::Timestamp(us, Zone::Other),
            Self::Timestamp(ns, Zone::Other),
            Self::Duration(s),
            Self::Duration(ms),
            Self::Duration(us),
            Self::Duration(ns),
            Self::Interval(YearMonth),
            Self::Interval(DayTime),
            Self::Interval(MonthDayNano),
            Self::Struct,
            Self::List,
            Self::LargeList,
            Self::FixedSizeList,
            Self::ListView,
            Self::LargeListView,
            Self::Map,
            Self::Union,
        ]
    };

    /// Which one an Arrow type is; a dictionary or a run-end encoded array is that of its values.
    pub fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Boolean,
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 => Self::Float16,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal128(_, _) => Self::Decimal128,
            DataType::Decimal256(_, _) => Self::Decimal256,
            DataType::Utf8 => Self::Utf8,
            DataType::LargeUtf8 => Self::LargeUtf8,
            DataType::Utf8View => Self::Utf8View,
            DataType::Binary => Self::Binary,
            DataType::LargeBinary => Self::LargeBinary,
            DataType::BinaryView => Self::BinaryView,
            DataType::FixedSizeBinary(_) => Self::FixedSizeBinary,
            DataType::Date32 => Self::Date32,
            DataType::Date64 => Self::Date64,
            DataType::Time32(unit) | DataType::Time64(unit) => Self::Time(*unit),
            DataType::Timestamp(unit, zone) => Self::Timestamp(*unit, Zone::of(zone.as_deref())),
            DataType::Duration(unit) => Self::Duration(*unit),
            DataType::Interval(unit) => Self::Interval(*unit),
            DataType::Struct(_) => Self::Struct,
            DataType::List(_) => Self::List,
            DataType::LargeList(_) => Self::LargeList,
            DataType::FixedSizeList(_, _) => Self::FixedSizeList,
            DataType::ListView(_) => Self::ListView,
            DataType::LargeListView(_) => Self::LargeListView,
            DataType::Map(_, _) => Self::Map,
            DataType::Union(_, _) => Self::Union,
            DataType::Dictionary(_, values) => Self::of(values),
            DataType::RunEndEncoded(_, values) => Self::of(values.data_type()),
        }
    }

    /// One Arrow type of the kind.
    pub fn example(self) -> DataType {
        let item = || Arc::new(Field::new("item", DataType::Int64, true));
        match self {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float16 => DataType::Float16,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal128 => DataType::Decimal128(38, 9),
            Self::Decimal256 => DataType::Decimal256(76, 38),
            Self::Utf8 => DataType::Utf8,
            Self::LargeUtf8 => DataType::LargeUtf8,
            Self::Utf8View => DataType::Utf8View,
            Self::Binary => DataType::Binary,
            Self::LargeBinary => DataType::LargeBinary,
            Self::BinaryView => DataType::BinaryView,
            Self::FixedSizeBinary => DataType::FixedSizeBinary(16),
            Self::Date32 => DataType::Date32,
            Self::Date64 => DataType::Date64,
            Self::Time(unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => DataType::Time32(unit),
            Self::Time(unit) => DataType::Time64(unit),
            Self::Timestamp(unit, zone) => DataType::Timestamp(unit, zone.example().map(Into::into)),
            Self::Duration(unit) => DataType::Duration(unit),
            Self::Interval(unit) => DataType::Interval(unit),
            Self::Struct => DataType::Struct(Fields::from(vec![Field::new("a", DataType::Int64, true)])),
            Self::List => DataType::List(item()),
            Self::LargeList => DataType::LargeList(item()),
            Self::FixedSizeList => DataType::FixedSizeList(item(), 2),
            Self::ListView => DataType::ListView(item()),
            Self::LargeListView => DataType::LargeListView(item()),
            Self::Map => {
                let entry = vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", DataType::Int64, true),
                ];
                DataType::Map(
                    Arc::new(Field::new("entries", DataType::Struct(entry.into()), false)),
                    false,
                )
            }
            Self::Union => {
                let members = [(0, Arc::new(Field::new("a", DataType::Int64, true)))];
                DataType::Union(members.into_iter().collect::<UnionFields>(), UnionMode::Dense)
            }
        }
    }

    /// As the pipeline's SQL spells it; Arrow's name where SQL has none.
    pub fn sql(self) -> String {
        match self {
            Self::Decimal128 | Self::Decimal256 => "DECIMAL".to_owned(),
            Self::Timestamp(_, Zone::Utc | Zone::Other) => "TIMESTAMP WITH TIME ZONE".to_owned(),
            Self::Struct => "STRUCT".to_owned(),
            Self::Map => "MAP".to_owned(),
            list if list.is_list() => "ARRAY".to_owned(),
            Self::Duration(_) | Self::Union => self.to_string(),
            plain => pipeline_type(&plain.example()),
        }
    }

    /// Whether it holds whole numbers.
    pub(super) fn is_integer(self) -> bool {
        self.example().is_integer()
    }

    /// Whether it holds numbers.
    pub(super) fn is_number(self) -> bool {
        self.example().is_numeric()
    }

    /// Whether it holds text.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Utf8 | Self::LargeUtf8 | Self::Utf8View)
    }

    /// Whether it holds bytes.
    pub(super) fn is_bytes(self) -> bool {
        matches!(
            self,
            Self::Binary | Self::LargeBinary | Self::BinaryView | Self::FixedSizeBinary
        )
    }

    /// Whether it holds any number of elements; a map is a list of its entries.
    pub(super) fn is_list(self) -> bool {
        matches!(
            self,
            Self::List
                | Self::LargeList
                | Self::FixedSizeList
                | Self::ListView
                | Self::LargeListView
                | Self::Map
        )
    }
}

impl Zone {
    fn of(zone: Option<&str>) -> Self {
        match zone {
            None => Self::None,
            Some("UTC" | "utc" | "Etc/UTC" | "Z" | "+00:00" | "+00" | "+0000") => Self::Utc,
            Some(_) => Self::Other,
        }
    }

    fn example(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Utc => Some("UTC"),
            Self::Other => Some("America/New_York"),
        }
    }
}

/// Arrow's name: `Int64`, `Timestamp(ms, UTC)`.
impl fmt::Display for PipelineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => {
                write!(f, "Time32({})", unit_name(*unit))
            }
            Self::Time(unit) => write!(f, "Time64({})", unit_name(*unit)),
            Self::Timestamp(unit, Zone::None) => write!(f, "Timestamp({})", unit_name(*unit)),
            Self::Timestamp(unit, Zone::Utc) => write!(f, "Timestamp({}, UTC)", unit_name(*unit)),
            Self::Timestamp(unit, Zone::Other) => write!(f, "Timestamp({}, other zone)", unit_name(*unit)),
            Self::Duration(unit) => write!(f, "Duration({})", unit_name(*unit)),
            Self::Interval(unit) => write!(f, "Interval({unit:?})"),
            plain => write!(f, "{plain:?}"),
        }
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "µs",
        TimeUnit::Nanosecond => "ns",
    }
}
