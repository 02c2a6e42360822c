//! SQL's column types as Arrow's, the way Arroyo maps them (arroyo.md section 8), and which values may go into which column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, TimezoneInfo};

use super::casts::is_unchecked;

/// Key of the field metadata that marks a string as JSON.
pub const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Its value, the engine's.
pub const JSON_EXTENSION: &str = "arroyo.json";

/// A field of a declared column.
pub(super) fn field(name: &str, sql_type: &SqlType, nullable: bool) -> Result<Field, String> {
    let field = Field::new(name, data_type(sql_type)?, nullable);
    if matches!(sql_type, SqlType::JSON) {
        let marker = HashMap::from([(EXTENSION_NAME.to_owned(), JSON_EXTENSION.to_owned())]);
        return Ok(field.with_metadata(marker));
    }
    Ok(field)
}

/// Whether a field carries the JSON marker.
#[must_use]
pub fn is_json(field: &Field) -> bool {
    field
        .metadata()
        .get(EXTENSION_NAME)
        .is_some_and(|name| name == JSON_EXTENSION)
}

fn data_type(sql_type: &SqlType) -> Result<DataType, String> {
    Ok(match sql_type {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::TinyIntUnsigned(_) => DataType::UInt8,
        SqlType::SmallIntUnsigned(_) | SqlType::Int2Unsigned(_) => DataType::UInt16,
        SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) | SqlType::Int4Unsigned(_) => DataType::UInt32,
        SqlType::BigIntUnsigned(_) | SqlType::Int8Unsigned(_) => DataType::UInt64,
        SqlType::Float(_) | SqlType::Real | SqlType::Float4 => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float8 => DataType::Float64,
        SqlType::Text | SqlType::String(_) | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::JSON => {
            DataType::Utf8
        }
        SqlType::Bytea => DataType::Binary,
        SqlType::Timestamp(None, TimezoneInfo::None) | SqlType::Datetime(None) => timestamp(9)?,
        SqlType::Timestamp(Some(digits), TimezoneInfo::None) | SqlType::Datetime(Some(digits)) => {
            timestamp(*digits)?
        }
        SqlType::Timestamp(..) => {
            return Err("a TIMESTAMP column has no time zone here; leave it out, values are UTC".into());
        }
        SqlType::Date => DataType::Date32,
        SqlType::Time(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Nanosecond)
        }
        SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Numeric(digits) | SqlType::Decimal(digits) => decimal(*digits)?,
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            if matches!(**item, SqlType::Array(_)) {
                return Err("an array of arrays cannot be a column; wrap the inner one in a STRUCT".into());
            }
            DataType::List(Arc::new(Field::new("field", data_type(item)?, true)))
        }
        SqlType::Struct(fields, _) => {
            let fields = fields.iter().map(|field| {
                let name = field
                    .field_name
                    .as_ref()
                    .ok_or("every field of a STRUCT needs a name")?;
                Ok(Field::new(
                    name.value.clone(),
                    data_type(&field.field_type)?,
                    true,
                ))
            });
            DataType::Struct(fields.collect::<Result<Vec<_>, String>>()?.into())
        }
        other => {
            return Err(format!(
                "type {other} is not known; take one of BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, BYTEA, JSON, \
                 TIMESTAMP(n), DATE, TIME, STRUCT<...>, T[]"
            ));
        }
    })
}

fn timestamp(digits: u64) -> Result<DataType, String> {
    let unit = match digits {
        0 => TimeUnit::Second,
        3 => TimeUnit::Millisecond,
        6 => TimeUnit::Microsecond,
        9 => TimeUnit::Nanosecond,
        other => {
            return Err(format!(
                "TIMESTAMP({other}) is not known; the precision is 0, 3, 6 or 9"
            ));
        }
    };
    Ok(DataType::Timestamp(unit, None))
}

fn decimal(digits: ExactNumberInfo) -> Result<DataType, String> {
    let (precision, scale) = match digits {
        ExactNumberInfo::None => (38, 10),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p @ 1..=38), Ok(s)) if scale <= precision => Ok(DataType::Decimal128(p, s)),
        _ => Err(format!(
            "DECIMAL({precision}, {scale}) is out of range: 1 to 38 digits, of which the scale is a part"
        )),
    }
}

/// The SQL name of a type, for messages.
#[must_use]
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time64(_) | DataType::Time32(_) => "TIME".into(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => "TIMESTAMP".into(),
        DataType::Timestamp(unit, _) => format!("TIMESTAMP({})", unit_digits(*unit)),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Interval(_) => "INTERVAL".into(),
        DataType::List(item) => format!("{}[]", sql_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|f| format!("{} {}", f.name(), sql_name(f.data_type())))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        DataType::Null => "NULL".into(),
        other => other.to_string(),
    }
}

/// Whether every value of `from` goes into a column of type `to` with its meaning kept, without a CAST written by a person.
pub(super) fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Decimal128, Float32, Float64, LargeBinary, LargeUtf8, List, Null, Struct,
        Timestamp, Utf8, Utf8View,
    };
    match (from, to) {
        (a, b) if a == b => true,
        (Null, _) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8) => true,
        (Binary | LargeBinary | BinaryView, Binary) => true,
        (a, Float64) if integer_bits(a).is_some() => true,
        (Float32, Float64) => true,
        (a, Float32) => integer_bits(a).is_some_and(|(_, bits)| bits <= 16),
        (Decimal128(p, s), Decimal128(to_p, to_s)) => {
            to_s >= s && i16::from(*to_p) - i16::from(*to_s) >= i16::from(*p) - i16::from(*s)
        }
        (a, Decimal128(p, s)) => {
            integer_digits(a).is_some_and(|digits| i16::from(*p) - i16::from(*s) >= digits)
        }
        (Date32, Timestamp(_, None)) => true,
        (Timestamp(unit, zone), Timestamp(to_unit, None)) => {
            unit_digits(*to_unit) >= unit_digits(*unit) && zone.as_deref().is_none_or(is_utc)
        }
        // Inside others the kernels do not check it (casts.rs).
        (List(_) | Struct(_), _) if is_unchecked(from, to) => false,
        (List(item), List(to_item)) => fits(item.data_type(), to_item.data_type()),
        (Struct(fields), Struct(to_fields)) => {
            fields.len() == to_fields.len()
                && fields
                    .iter()
                    .zip(to_fields)
                    .all(|(a, b)| a.name() == b.name() && fits(a.data_type(), b.data_type()))
        }
        (a, b) => match (integer_bits(a), integer_bits(b)) {
            (Some((signed, bits)), Some((to_signed, to_bits))) => {
                if signed == to_signed {
                    to_bits >= bits
                } else {
                    to_signed && to_bits > bits
                }
            }
            _ => false,
        },
    }
}

/// Whether a cast keeps every value as it is, to its last digit, or fails.
pub(crate) fn keeps_values(from: &DataType, to: &DataType) -> bool {
    let rounds = matches!(
        (from, to),
        (DataType::Int64 | DataType::UInt64, DataType::Float64)
    );
    fits(from, to) && !rounds && !is_unchecked(from, to)
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "Z")
}

fn integer_bits(data_type: &DataType) -> Option<(bool, u8)> {
    Some(match data_type {
        DataType::Int8 => (true, 8),
        DataType::Int16 => (true, 16),
        DataType::Int32 => (true, 32),
        DataType::Int64 => (true, 64),
        DataType::UInt8 => (false, 8),
        DataType::UInt16 => (false, 16),
        DataType::UInt32 => (false, 32),
        DataType::UInt64 => (false, 64),
        _ => return None,
    })
}

fn integer_digits(data_type: &DataType) -> Option<i16> {
    Some(match integer_bits(data_type)? {
        (_, 8) => 3,
        (_, 16) => 5,
        (_, 32) => 10,
        (true, _) => 19,
        (false, _) => 20,
    })
}

fn unit_digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_casts_that_keep_every_value_are_written_by_the_host() {
        use DataType::{
            Boolean, Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, Null, UInt32, UInt64,
            Utf8, Utf8View,
        };
        let time = |unit| DataType::Timestamp(unit, None);
        let (seconds, millis, nanos) = (
            time(TimeUnit::Second),
            time(TimeUnit::Millisecond),
            time(TimeUnit::Nanosecond),
        );
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        let cases = [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (UInt32, Int64, true),
            (UInt64, Int64, false),
            (Int32, UInt64, false),
            (Int64, Float64, true),
            (Int32, Float32, false),
            (Int16, Float32, true),
            (Float64, Float32, false),
            (Float64, Int64, false),
            (Int64, Decimal128(19, 0), true),
            (Int64, Decimal128(20, 2), false),
            (Int8, Decimal128(5, 2), true),
            (Decimal128(10, 2), Decimal128(12, 4), true),
            (Decimal128(10, 2), Decimal128(10, 4), false),
            (Decimal128(10, 2), Float64, false),
            (Utf8, Int64, false),
            (Int64, Utf8, false),
            (Utf8View, Utf8, true),
            (Boolean, Int64, false),
            (Null, Boolean, true),
            (millis.clone(), nanos.clone(), true),
            (nanos.clone(), millis.clone(), false),
            (Date32, millis, true),
            (seconds, Date32, false),
            (
                DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into())),
                nanos.clone(),
                true,
            ),
            (
                DataType::Timestamp(TimeUnit::Nanosecond, Some("+02:00".into())),
                nanos,
                false,
            ),
            (list(Date32), list(time(TimeUnit::Nanosecond)), false),
            (list(Date32), list(time(TimeUnit::Second)), true),
            (list(Int32), list(Int64), true),
            (list(Utf8), list(Int64), false),
        ];
        for (from, to, expected) in cases {
            assert_eq!(fits(&from, &to), expected, "{from} to {to}");
        }
    }
}
