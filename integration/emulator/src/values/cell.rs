//! One value of a column, on its way into an Arrow array.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, StringBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{ArrowError, Field, Fields};

use super::interval::{self, Interval};
use super::range;
use crate::schema::{Column, Kind, Mode, RangeElement, Schema};

/// A value as its column keeps it: in the units and at the scale of the canonical Arrow type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// NULL.
    Null,
    /// BOOL.
    Bool(bool),
    /// INT64.
    Int(i64),
    /// FLOAT64.
    Float(f64),
    /// NUMERIC, and TIMESTAMP(12) in picoseconds since 1970.
    Decimal(i128),
    /// BIGNUMERIC.
    BigDecimal(i256),
    /// STRING, JSON and GEOGRAPHY.
    Text(String),
    /// BYTES.
    Bytes(Vec<u8>),
    /// DATE, in days since 1970.
    Days(i32),
    /// TIME, DATETIME and TIMESTAMP.
    Micros(i64),
    /// INTERVAL.
    Interval(Interval),
    /// RANGE, its bounds in the units of its element.
    Range(Option<i64>, Option<i64>),
    /// The fields of a STRUCT, one for each.
    Struct(Vec<Self>),
    /// The elements of a REPEATED column.
    List(Vec<Self>),
}

impl Schema {
    /// Rows of one value a column, in the canonical Arrow form.
    ///
    /// # Errors
    /// As [`Column::array`].
    pub(crate) fn batch(&self, rows: Vec<Vec<Cell>>) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let mut columns: Vec<Vec<Cell>> = self
            .columns
            .iter()
            .map(|_| Vec::with_capacity(rows.len()))
            .collect();
        for row in rows {
            for (cells, cell) in columns.iter_mut().zip(row) {
                cells.push(cell);
            }
        }
        let arrays = self
            .columns
            .iter()
            .zip(columns)
            .map(|(column, cells)| column.array(cells));
        RecordBatch::try_new_with_options(self.arrow(), arrays.collect::<Result<_, _>>()?, &options)
    }
}

impl Column {
    /// What a row without a value has: NULL, or no elements.
    pub(crate) fn nothing(&self) -> Cell {
        match self.mode {
            Mode::Repeated => Cell::List(Vec::new()),
            Mode::Nullable | Mode::Required => Cell::Null,
        }
    }

    /// The column's canonical array of these values.
    ///
    /// # Errors
    /// A value of another type than the column's, or a NULL where there may be none.
    pub(crate) fn array(&self, cells: Vec<Cell>) -> Result<ArrayRef, ArrowError> {
        let Mode::Repeated = self.mode else {
            return self.kind.array(cells);
        };
        let (mut lengths, mut elements) = (Vec::with_capacity(cells.len()), Vec::new());
        for cell in cells {
            let Cell::List(list) = cell else {
                return Err(unexpected(&self.kind));
            };
            lengths.push(list.len());
            elements.extend(list);
        }
        let item = Arc::new(Field::new("item", self.kind.arrow(), false));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let list = ListArray::try_new(item, offsets, self.kind.array(elements)?, None)?;
        Ok(Arc::new(list))
    }
}

impl Kind {
    fn array(&self, cells: Vec<Cell>) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Bool => {
                let mut builder = BooleanBuilder::with_capacity(cells.len());
                for cell in cells {
                    match cell {
                        Cell::Null => builder.append_null(),
                        Cell::Bool(value) => builder.append_value(value),
                        _ => return Err(unexpected(self)),
                    }
                }
                Arc::new(builder.finish())
            }
            Self::String { .. } | Self::Json | Self::Geography => {
                let mut builder = StringBuilder::new();
                for cell in cells {
                    match cell {
                        Cell::Null => builder.append_null(),
                        Cell::Text(text) => builder.append_value(text),
                        _ => return Err(unexpected(self)),
                    }
                }
                Arc::new(builder.finish())
            }
            Self::Bytes { .. } => {
                let mut builder = BinaryBuilder::new();
                for cell in cells {
                    match cell {
                        Cell::Null => builder.append_null(),
                        Cell::Bytes(bytes) => builder.append_value(bytes),
                        _ => return Err(unexpected(self)),
                    }
                }
                Arc::new(builder.finish())
            }
            Self::Int64 => self.primitives::<Int64Type>(cells, |cell| match cell {
                Cell::Int(value) => Some(*value),
                _ => None,
            })?,
            Self::Float64 => self.primitives::<Float64Type>(cells, |cell| match cell {
                Cell::Float(value) => Some(*value),
                _ => None,
            })?,
            Self::Numeric { .. } | Self::TimestampPicoseconds => {
                self.primitives::<Decimal128Type>(cells, |cell| match cell {
                    Cell::Decimal(value) => Some(*value),
                    _ => None,
                })?
            }
            Self::BigNumeric { .. } => self.primitives::<Decimal256Type>(cells, |cell| match cell {
                Cell::BigDecimal(value) => Some(*value),
                _ => None,
            })?,
            Self::Date => self.primitives::<Date32Type>(cells, |cell| match cell {
                Cell::Days(days) => Some(*days),
                _ => None,
            })?,
            Self::Time => self.primitives::<Time64MicrosecondType>(cells, micros)?,
            Self::Datetime | Self::Timestamp => self.primitives::<TimestampMicrosecondType>(cells, micros)?,
            Self::Interval => {
                let interval = |cell| match cell {
                    Cell::Null => Ok(None),
                    Cell::Interval(interval) => Ok(Some(interval)),
                    _ => Err(unexpected(self)),
                };
                let values = cells.into_iter().map(interval).collect::<Result<Vec<_>, _>>()?;
                Arc::new(interval::array(values))
            }
            Self::Range(element) => {
                let bound = |bound: Option<i64>| match (bound, element) {
                    (None, _) => Cell::Null,
                    (Some(days), RangeElement::Date) => i32::try_from(days).map_or(Cell::Null, Cell::Days),
                    (Some(micros), _) => Cell::Micros(micros),
                };
                let bounds = |cell| match cell {
                    Cell::Range(start, end) => Cell::Struct(vec![bound(start), bound(end)]),
                    other => other,
                };
                let inner = Self::from(*element);
                let columns = ["start", "end"].map(|name| Column::new(name, inner.clone(), Mode::Nullable));
                let cells = cells.into_iter().map(bounds).collect();
                self.structs(cells, &columns, range::fields(*element))?
            }
            Self::Struct(columns) => {
                self.structs(cells, columns, columns.iter().map(Column::arrow).collect())?
            }
        })
    }

    fn primitives<T: ArrowPrimitiveType>(
        &self,
        cells: Vec<Cell>,
        value: impl Fn(&Cell) -> Option<T::Native>,
    ) -> Result<ArrayRef, ArrowError> {
        let read = |cell: &Cell| match cell {
            Cell::Null => Ok(None),
            cell => value(cell).map(Some).ok_or_else(|| unexpected(self)),
        };
        let values = cells.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let array = PrimitiveArray::<T>::from_iter(values).with_data_type(self.arrow());
        Ok(Arc::new(array))
    }

    fn structs(&self, cells: Vec<Cell>, columns: &[Column], fields: Fields) -> Result<ArrayRef, ArrowError> {
        let nulls = NullBuffer::from_iter(cells.iter().map(|cell| *cell != Cell::Null));
        let mut values: Vec<Vec<Cell>> = columns.iter().map(|_| Vec::with_capacity(cells.len())).collect();
        for cell in cells {
            let inner = match cell {
                Cell::Struct(inner) if inner.len() == columns.len() => inner,
                Cell::Null => columns.iter().map(Column::nothing).collect(),
                _ => return Err(unexpected(self)),
            };
            for (values, cell) in values.iter_mut().zip(inner) {
                values.push(cell);
            }
        }
        let arrays = columns
            .iter()
            .zip(values)
            .map(|(column, cells)| column.array(cells));
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        Ok(Arc::new(StructArray::try_new(fields, arrays, nulls)?))
    }
}

fn micros(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Micros(micros) => Some(*micros),
        _ => None,
    }
}

fn unexpected(kind: &Kind) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("a value that is no {}", kind.sql_name()))
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;

    use super::*;

    #[test]
    fn values_of_every_kind_make_the_canonical_array() {
        let inner = vec![
            Column::new("x", Kind::Int64, Mode::Required),
            Column::new("l", Kind::Date, Mode::Repeated),
        ];
        let one = Cell::Struct(vec![Cell::Int(1), Cell::List(vec![Cell::Days(2), Cell::Days(3)])]);
        let (precision, scale) = (None, None);
        for (kind, cell, text) in [
            (Kind::Bool, Cell::Bool(true), "true"),
            (Kind::Int64, Cell::Int(i64::MIN), "-9223372036854775808"),
            (Kind::Float64, Cell::Float(1.5), "1.5"),
            (
                Kind::Numeric { precision, scale },
                Cell::Decimal(1),
                "0.000000001",
            ),
            (
                Kind::BigNumeric { precision, scale },
                Cell::BigDecimal(i256::ONE),
                "0.00000000000000000000000000000000000001",
            ),
            (Kind::TimestampPicoseconds, Cell::Decimal(1), "0.000000000001"),
            (Kind::String { max_length: None }, Cell::Text("a".to_owned()), "a"),
            (Kind::Bytes { max_length: None }, Cell::Bytes(vec![0xff]), "ff"),
            (Kind::Date, Cell::Days(1), "1970-01-02"),
            (Kind::Time, Cell::Micros(1), "00:00:00.000001"),
            (Kind::Datetime, Cell::Micros(1), "1970-01-01T00:00:00.000001"),
            (Kind::Timestamp, Cell::Micros(1), "1970-01-01T00:00:00.000001Z"),
            (
                Kind::Interval,
                Cell::Interval(Interval::new(1, 2, 3).unwrap()),
                "{months: 1, days: 2, microseconds: 3}",
            ),
            (
                Kind::Range(RangeElement::Date),
                Cell::Range(Some(1), None),
                "{start: 1970-01-02, end: }",
            ),
            (Kind::Struct(inner), one, "{x: 1, l: [1970-01-03, 1970-01-04]}"),
        ] {
            let column = Column::new("v", kind.clone(), Mode::Nullable);
            let array = column.array(vec![Cell::Null, cell.clone()]).unwrap();
            assert_eq!((array.data_type(), array.is_null(0)), (&kind.arrow(), true));
            assert_eq!(
                arrow_cast::display::array_value_to_string(&array, 1).unwrap(),
                text
            );
            let column = Column::new("v", kind.clone(), Mode::Repeated);
            let array = column
                .array(vec![Cell::List(vec![cell.clone(), cell]), column.nothing()])
                .unwrap();
            assert_eq!(*array.data_type(), *column.arrow().data_type());
            assert_eq!(array.as_list::<i32>().value_offsets(), [0, 2, 2]);
            let wrong = Column::new("v", kind.clone(), Mode::Nullable).array(vec![Cell::List(Vec::new())]);
            assert_eq!(
                wrong.unwrap_err().to_string(),
                format!("Invalid argument error: a value that is no {}", kind.sql_name())
            );
        }
    }
}
