//! What to do about two types that do not go together.

use super::{PipelineType, TableType, Zone};

/// Where the elements of an array are arrays themselves.
pub(in super::super) const ARRAY_OF_ARRAYS: &str =
    "BigQuery has no arrays of arrays; put the inner one into a STRUCT";

/// Where the elements of an array are of another type.
pub(in super::super) const OTHER_ELEMENTS: &str = "write an array of the table's type";

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
        (T::Datetime, P::Timestamp(_, Zone::Other)) => {
            "cast it to TIMESTAMP without time zone, in the zone that is meant"
        }
        (T::Interval, text) if text.is_text() => "cast it, for example CAST({name} AS INTERVAL)",
        (T::Interval, _) => "write an INTERVAL",
        (T::Bool, _) => "cast it, for example CAST({name} AS BOOLEAN)",
        (T::Int64, _) => "cast it, for example CAST({name} AS BIGINT)",
        (T::Float64, _) => "cast it, for example CAST({name} AS DOUBLE)",
        (T::String | T::Json, _) => "cast it, for example CAST({name} AS TEXT)",
        (T::Bytes, _) => "cast it, for example CAST({name} AS BYTEA)",
        (T::Date, _) => "cast it, for example CAST({name} AS DATE)",
        (T::Time, _) => "cast it, for example CAST({name} AS TIME)",
        (T::Timestamp | T::TimestampPicoseconds | T::Datetime, _) => {
            "cast it, for example CAST({name} AS TIMESTAMP)"
        }
        (T::Numeric | T::BigNumeric, _) => "cast it, for example CAST({name} AS DECIMAL(38, 9))",
    }
}
