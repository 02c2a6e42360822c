//! A table's schema in the Write API's own form, as `CreateWriteStream` and `GetWriteStream` answer it.

use bigquery_write_proto::wire::{
    TableFieldSchema, TableSchema,
    table_field_schema::{FieldElementType, Mode as WireMode, Type},
};

use super::{Column, Kind, Mode, RangeElement, Schema};

/// A field that the emulator cannot keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field:?}: {reason}")]
pub struct WireSchemaError {
    /// Name of the field.
    pub field: String,
    /// Why not.
    pub reason: &'static str,
}

impl Schema {
    /// As `TableSchema`.
    pub fn to_wire(&self) -> TableSchema {
        TableSchema {
            fields: self.columns.iter().map(Column::to_wire).collect(),
        }
    }

    /// From `TableSchema`.
    ///
    /// # Errors
    /// A type that the emulator does not know, or a parameter out of range.
    pub fn from_wire(wire: &TableSchema) -> Result<Self, WireSchemaError> {
        let columns = wire
            .fields
            .iter()
            .map(Column::from_wire)
            .collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }
}

impl Column {
    fn to_wire(&self) -> TableFieldSchema {
        let mut wire = TableFieldSchema {
            name: self.name.clone(),
            mode: match self.mode {
                Mode::Nullable => WireMode::Nullable,
                Mode::Required => WireMode::Required,
                Mode::Repeated => WireMode::Repeated,
            } as i32,
            description: self.description.clone(),
            default_value_expression: self.default_value_expression.clone().unwrap_or_default(),
            ..TableFieldSchema::default()
        };
        let kind = match &self.kind {
            Kind::Bool => Type::Bool,
            Kind::Int64 => Type::Int64,
            Kind::Float64 => Type::Double,
            Kind::Numeric { precision, scale } => {
                (wire.precision, wire.scale) = digits(*precision, *scale);
                Type::Numeric
            }
            Kind::BigNumeric { precision, scale } => {
                (wire.precision, wire.scale) = digits(*precision, *scale);
                Type::Bignumeric
            }
            Kind::String { max_length } => {
                wire.max_length = max_length.unwrap_or_default();
                Type::String
            }
            Kind::Bytes { max_length } => {
                wire.max_length = max_length.unwrap_or_default();
                Type::Bytes
            }
            Kind::Date => Type::Date,
            Kind::Time => Type::Time,
            Kind::Datetime => Type::Datetime,
            Kind::Timestamp => Type::Timestamp,
            Kind::TimestampPicoseconds => {
                wire.timestamp_precision = Some(12);
                Type::Timestamp
            }
            Kind::Interval => Type::Interval,
            Kind::Range(element) => {
                let element = match element {
                    RangeElement::Date => Type::Date,
                    RangeElement::Datetime => Type::Datetime,
                    RangeElement::Timestamp => Type::Timestamp,
                };
                wire.range_element_type = Some(FieldElementType {
                    r#type: element as i32,
                });
                Type::Range
            }
            Kind::Json => Type::Json,
            Kind::Geography => Type::Geography,
            Kind::Struct(columns) => {
                wire.fields = columns.iter().map(Self::to_wire).collect();
                Type::Struct
            }
        };
        wire.r#type = kind as i32;
        wire
    }

    fn from_wire(wire: &TableFieldSchema) -> Result<Self, WireSchemaError> {
        let refuse = |reason| WireSchemaError {
            field: wire.name.clone(),
            reason,
        };
        let max_length = (wire.max_length > 0).then_some(wire.max_length);
        let digit = |value: i64| u8::try_from(value).map_err(|_| refuse("precision or scale out of range"));
        let (precision, scale) = match (digit(wire.precision)?, digit(wire.scale)?) {
            (0, 0) => (None, None),
            (precision, scale) => (Some(precision), Some(scale)),
        };
        let kind = match wire.r#type() {
            Type::Bool => Kind::Bool,
            Type::Int64 => Kind::Int64,
            Type::Double => Kind::Float64,
            Type::Numeric => Kind::Numeric { precision, scale },
            Type::Bignumeric => Kind::BigNumeric { precision, scale },
            Type::String => Kind::String { max_length },
            Type::Bytes => Kind::Bytes { max_length },
            Type::Date => Kind::Date,
            Type::Time => Kind::Time,
            Type::Datetime => Kind::Datetime,
            Type::Timestamp if matches!(wire.timestamp_precision, None | Some(6)) => Kind::Timestamp,
            Type::Timestamp if wire.timestamp_precision == Some(12) => Kind::TimestampPicoseconds,
            Type::Timestamp => return Err(refuse("the timestamp precision is neither 6 nor 12")),
            Type::Json => Kind::Json,
            Type::Geography => Kind::Geography,
            Type::Struct => Kind::Struct(
                wire.fields
                    .iter()
                    .map(Self::from_wire)
                    .collect::<Result<_, _>>()?,
            ),
            Type::Interval => Kind::Interval,
            Type::Range => Kind::Range(match wire.range_element_type.map(|element| element.r#type()) {
                Some(Type::Date) => RangeElement::Date,
                Some(Type::Datetime) => RangeElement::Datetime,
                Some(Type::Timestamp) => RangeElement::Timestamp,
                _ => {
                    return Err(refuse(
                        "the range element type is none of DATE, DATETIME and TIMESTAMP",
                    ));
                }
            }),
            Type::Unspecified => return Err(refuse("the type is missing")),
        };
        let mode = match wire.mode() {
            WireMode::Unspecified | WireMode::Nullable => Mode::Nullable,
            WireMode::Required => Mode::Required,
            WireMode::Repeated => Mode::Repeated,
        };
        let default = Some(wire.default_value_expression.clone()).filter(|text| !text.is_empty());
        Ok(Self {
            name: wire.name.clone(),
            kind,
            mode,
            description: wire.description.clone(),
            default_value_expression: default,
        })
    }
}

fn digits(precision: Option<u8>, scale: Option<u8>) -> (i64, i64) {
    (
        precision.unwrap_or_default().into(),
        scale.unwrap_or_default().into(),
    )
}
