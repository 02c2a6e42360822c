//! The message that a row becomes: its fields, in the order of the wire schema, each with a number, a label and a kind of value.

use std::collections::HashMap;

use arrow_schema::{DataType, Fields, IntervalUnit, TimeUnit};

use crate::rows::EncodeError;
use crate::wire::TableFieldSchema;
use crate::wire::table_field_schema::Mode;

/// A row, a STRUCT or a RANGE.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

/// A column, a STRUCT's field, or a bound of a RANGE.
#[derive(Debug)]
pub(super) struct Field {
    /// As the table spells it.
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) label: Label,
    pub(super) kind: Kind,
}

/// How often a field stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Optional,
    Required,
    Repeated,
}

/// What a value is on the wire (write-api.md 5.1: what Google's clients choose).
#[derive(Debug)]
pub(super) enum Kind {
    /// BOOL as bool.
    Bool,
    /// INT64, and TIMESTAMP as microseconds since 1970, as int64.
    Int64,
    /// FLOAT64 as double.
    Double,
    /// STRING, JSON and GEOGRAPHY as string.
    Text,
    /// BYTES as bytes.
    Bytes,
    /// DATE as int32, days since 1970.
    Date,
    /// TIME as int64, packed.
    Time,
    /// DATETIME as int64, packed.
    Datetime,
    /// TIMESTAMP(12), of microseconds or nanoseconds, as string with twelve digits of a second.
    Picoseconds(TimeUnit),
    /// INTERVAL as string.
    Interval,
    /// NUMERIC as bytes.
    Numeric,
    /// BIGNUMERIC as bytes; the wire schema's scale is 38, or 37 where there may be 39 digits before the point.
    Bignumeric(i8),
    /// STRUCT, and RANGE as `start` and `end`.
    Message(Message),
}

impl Message {
    /// The message of a row under a wire schema, for a table with these columns.
    ///
    /// # Errors
    /// A type that is none of the wire schema's.
    pub(super) fn new(fields: &Fields, columns: &[TableFieldSchema]) -> Result<Self, EncodeError> {
        let by_name: HashMap<&str, &TableFieldSchema> = columns
            .iter()
            .map(|column| (column.name.as_str(), column))
            .collect();
        let fields = fields.iter().zip(1..).map(|(field, position)| {
            // The bounds of a RANGE are no columns.
            let column = by_name.get(field.name().as_str()).copied();
            let (value, label) = match field.data_type() {
                DataType::List(element) => (element.data_type(), Label::Repeated),
                value if column.is_some_and(is_required) => (value, Label::Required),
                value => (value, Label::Optional),
            };
            let kind = Kind::new(value, column)?.ok_or_else(|| EncodeError::Type {
                column: field.name().clone(),
                data_type: value.clone(),
            })?;
            Ok(Field {
                name: field.name().clone(),
                number: number(position),
                label,
                kind,
            })
        });
        Ok(Self {
            fields: fields.collect::<Result<_, EncodeError>>()?,
        })
    }
}

impl Kind {
    /// `None`: a type of no wire schema.
    pub(super) fn new(
        wire: &DataType,
        column: Option<&TableFieldSchema>,
    ) -> Result<Option<Self>, EncodeError> {
        let picoseconds = column.is_some_and(|column| column.timestamp_precision == Some(12));
        Ok(Some(match wire {
            // int64 is no TIMESTAMP(12) (write-api.md 5.1).
            DataType::Timestamp(unit, Some(_)) if picoseconds => Self::Picoseconds(*unit),
            DataType::Boolean => Self::Bool,
            DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Int64,
            DataType::Float64 => Self::Double,
            DataType::Utf8 => Self::Text,
            DataType::Binary => Self::Bytes,
            DataType::Date32 => Self::Date,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time,
            DataType::Timestamp(TimeUnit::Microsecond, None) => Self::Datetime,
            DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => Self::Picoseconds(TimeUnit::Nanosecond),
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::Decimal128(_, 9) => Self::Numeric,
            DataType::Decimal256(_, scale @ (37 | 38)) => Self::Bignumeric(*scale),
            DataType::Struct(fields) => {
                let columns = column.map_or(&[][..], |column| &column.fields);
                Self::Message(Message::new(fields, columns)?)
            }
            _ => return Ok(None),
        }))
    }

    /// Whether a list of these is written as one field, the values one behind the other: numbers are.
    pub(super) fn packs(&self) -> bool {
        matches!(
            self,
            Self::Bool | Self::Int64 | Self::Double | Self::Date | Self::Time | Self::Datetime
        )
    }
}

/// A column that must be there is `required`, as in the descriptors of Google's Java client, which production is known to take
/// (write-api.md 5.4): a row without it is refused by that name, and never gets there, since the conversion refuses it before. A
/// REQUIRED column with a default is `optional`: what is missing gets the default (write-api.md 7.1).
fn is_required(column: &TableFieldSchema) -> bool {
    column.mode() == Mode::Required && column.default_value_expression.is_empty()
}

/// Numbers from 1 on, without those that protobuf keeps for itself.
fn number(position: u32) -> u32 {
    if position < 19_000 {
        position
    } else {
        position + 1_000
    }
}
