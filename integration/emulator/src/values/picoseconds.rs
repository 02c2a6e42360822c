//! TIMESTAMP(12). Its canonical Arrow form is a decimal of seconds since 1970-01-01 UTC: picoseconds of the years 1
//! to 9999 need 24 digits, where a 64-bit integer has 18 and Arrow's timestamps end at nanoseconds. A decimal sorts
//! and groups as the time does. No NUMERIC looks like it: those have 38 digits, 9 of them behind the point.

use arrow_schema::DataType;

/// The canonical Arrow type.
pub(crate) const DATA_TYPE: DataType = DataType::Decimal128(24, 12);

/// Picoseconds in a microsecond.
pub(crate) const MICROSECOND: i128 = 1_000_000;
/// Picoseconds in a second.
pub(crate) const SECOND: i128 = 1_000_000_000_000;
