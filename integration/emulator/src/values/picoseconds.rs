//! TIMESTAMP(12). Its canonical Arrow form is a decimal of seconds since 1970-01-01 UTC: picoseconds of the years 1
//! to 9999 need 24 digits, where a 64-bit integer has 18 and Arrow's timestamps end at nanoseconds. A decimal sorts
//! and groups as the time does. No NUMERIC looks like it: those have 38 digits, 9 of them behind the point.

use std::ops::RangeInclusive;

use arrow_schema::DataType;

/// The canonical Arrow type.
pub(crate) const DATA_TYPE: DataType = DataType::Decimal128(24, 12);

/// Picoseconds in a microsecond.
pub(crate) const MICROSECOND: i128 = 1_000_000;
/// Picoseconds in a second.
pub(crate) const SECOND: i128 = 1_000_000_000_000;

/// 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999999999.
pub(crate) const INSTANTS: RangeInclusive<i128> = -62_135_596_800 * SECOND..=253_402_300_800 * SECOND - 1;
