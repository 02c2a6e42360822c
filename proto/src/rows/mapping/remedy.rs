//! What to do about two types that do not go together.

use arrow_cast::can_cast_types;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use super::{PipelineType, TableType, Zone};

/// Where the elements of an array are arrays themselves.
pub(in super::super) const ARRAY_OF_ARRAYS: &str =
    "BigQuery has no arrays of arrays; put the inner one into a STRUCT";

/// Where the elements of an array are of another type.
pub(in super::super) const OTHER_ELEMENTS: &str = "write an array of the table's type";

/// Where the pipeline's SQL has no way from one type to the other.
const NO_CAST: &str = "no cast leads there; drop it in the query, or change the table's column";

/// The remedy in the pipeline's SQL; `{name}` stands for the column.
pub(super) fn of(pipeline: PipelineType, table: TableType) -> &'static str {
    use PipelineType as P;
    use TableType as T;
    match (table, pipeline) {
        (_, P::Union) => "no column holds a union; write one of its members",
        (T::Array, _) => "write an array, for example make_array({name})",
        (_, list) if list.is_list() => "write one value, or make the table's column REPEATED",
        (T::Struct, _) => "write a STRUCT with the fields of the table's",
        (T::RangeOfDate | T::RangeOfDatetime | T::RangeOfTimestamp, _) => {
            "write a STRUCT of two bounds, for example named_struct('start', a, 'end', b)"
        }
        (T::Geography, _) => "write its text in WKT or GeoJSON",
        (_, P::Struct) => "write its fields one by one, or make the table's column a STRUCT",
        // A number of what: read as the wrong unit it is a date in another century (reports.md 62).
        (T::Timestamp | T::TimestampPicoseconds | T::Datetime, integer) if integer.is_integer() => {
            "say the unit, for example to_timestamp_millis({name})"
        }
        (T::Timestamp | T::TimestampPicoseconds | T::Datetime, number) if number.is_number() => {
            "say the unit; where it counts seconds, for example to_timestamp_micros(CAST(round({name} * 1000000) AS BIGINT))"
        }
        (T::Date, integer) if integer.is_integer() => {
            "say the unit, for example CAST(to_timestamp_millis({name}) AS DATE)"
        }
        (T::Time, integer) if integer.is_integer() => {
            "say the unit, for example CAST(to_timestamp_millis({name}) AS TIME)"
        }
        (T::Datetime, P::Timestamp(_, Zone::Other)) => {
            "cast it to TIMESTAMP without time zone, in the zone that is meant"
        }
        _ => by_cast(pipeline, table),
    }
}

/// A cast to the type that the pipeline's SQL has for the column, where there is one.
fn by_cast(pipeline: PipelineType, table: TableType) -> &'static str {
    use TableType as T;
    let (to, remedy) = match table {
        T::Bool => (DataType::Boolean, "cast it, for example CAST({name} AS BOOLEAN)"),
        T::Int64 => (DataType::Int64, "cast it, for example CAST({name} AS BIGINT)"),
        T::Float64 => (DataType::Float64, "cast it, for example CAST({name} AS DOUBLE)"),
        T::Numeric | T::BigNumeric => (
            DataType::Decimal128(38, 9),
            "cast it, for example CAST({name} AS DECIMAL(38, 9))",
        ),
        T::String | T::Json => (DataType::Utf8, "cast it, for example CAST({name} AS TEXT)"),
        T::Bytes => (DataType::Binary, "cast it, for example CAST({name} AS BYTEA)"),
        T::Date => (DataType::Date32, "cast it, for example CAST({name} AS DATE)"),
        T::Time => (
            DataType::Time64(TimeUnit::Nanosecond),
            "cast it, for example CAST({name} AS TIME)",
        ),
        T::Timestamp | T::TimestampPicoseconds | T::Datetime => (
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            "cast it, for example CAST({name} AS TIMESTAMP)",
        ),
        T::Interval => (
            DataType::Interval(IntervalUnit::MonthDayNano),
            "cast it, for example CAST({name} AS INTERVAL)",
        ),
        _ => (DataType::Null, NO_CAST),
    };
    if can_cast_types(&pipeline.example(), &to) {
        remedy
    } else {
        NO_CAST
    }
}
