//! Between BigQuery's types and DataFusion's: how tables look to the engine, and what its results are in
//! BigQuery.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, StructArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;

use crate::query::QueryError;
use crate::schema::{Column, Kind, Mode, Schema};
use crate::values::interval::{self, Interval};
use crate::values::{picoseconds, range};

/// Field metadata that carries what Arrow's type does not say. DataFusion hands it on with the column.
pub(super) const TAG: &str = "bigquery.type";

/// The Arrow schema in which the engine sees columns: canonical, with JSON and GEOGRAPHY marked.
pub(super) fn tagged(columns: &[Column]) -> SchemaRef {
    Arc::new(arrow_schema::Schema::new(tagged_fields(columns)))
}

/// A batch of a table under its tagged schema, which differs in names and marks only.
pub(super) fn retype(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns
        .map(|(array, field)| retype_array(array, field.data_type()))
        .collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// BigQuery's schema for a result.
///
/// # Errors
/// `Invalid`: a type that BigQuery does not have, or an ARRAY of ARRAYs.
pub(super) fn result_schema(schema: &arrow_schema::Schema) -> Result<Schema, QueryError> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| column(field))
        .collect::<Result<_, _>>()?;
    Ok(Schema { columns })
}

/// The rows of a result in the canonical types of its schema.
///
/// # Errors
/// `Invalid`: a value that does not fit, such as a NUMERIC of too many digits or a NULL in an ARRAY.
pub(super) fn result_rows(batches: &[RecordBatch], schema: &Schema) -> Result<RecordBatch, QueryError> {
    let target = schema.arrow();
    let Some(first) = batches.first() else {
        return Ok(RecordBatch::new_empty(target));
    };
    let all = concat_batches(&first.schema(), batches).map_err(invalid)?;
    let columns = all.columns().iter().zip(&schema.columns);
    let columns = columns
        .map(|(array, column)| conform(array, column))
        .collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(all.num_rows()));
    RecordBatch::try_new_with_options(target, columns, &options).map_err(invalid)
}

fn tagged_fields(columns: &[Column]) -> Fields {
    columns.iter().map(tagged_field).collect()
}

fn tagged_field(column: &Column) -> Field {
    let data_type = match &column.kind {
        Kind::Struct(fields) => DataType::Struct(tagged_fields(fields)),
        other => other.arrow(),
    };
    let mark = |field: Field| match &column.kind {
        Kind::Json | Kind::Geography => field.with_metadata(HashMap::from([(
            TAG.to_owned(),
            column.kind.sql_name().to_owned(),
        )])),
        _ => field,
    };
    match column.mode {
        Mode::Repeated => Field::new_list(&column.name, mark(Field::new("item", data_type, false)), false),
        mode => mark(Field::new(&column.name, data_type, mode == Mode::Nullable)),
    }
}

fn retype_array(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::Struct(fields) => {
            let array = array.as_struct();
            let columns = array.columns().iter().zip(fields);
            let columns = columns
                .map(|(array, field)| retype_array(array, field.data_type()))
                .collect::<Result<_, _>>()?;
            let array = StructArray::try_new(fields.clone(), columns, array.nulls().cloned())?;
            Ok(Arc::new(array))
        }
        DataType::List(item) => {
            let array = array.as_list::<i32>();
            let values = retype_array(array.values(), item.data_type())?;
            let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(item),
                offsets,
                values,
                nulls,
            )?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn column(field: &Field) -> Result<Column, QueryError> {
    let name = field.name();
    let (item, mode): (&Field, Mode) = match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            (item, Mode::Repeated)
        }
        _ => (field, Mode::Nullable),
    };
    let kind = kind(item).map_err(|what| {
        QueryError::Invalid(format!(
            "Column {name} has a type that BigQuery does not have: {what}"
        ))
    })?;
    Ok(Column::new(name, kind, mode))
}

fn kind(field: &Field) -> Result<Kind, String> {
    Ok(match field.data_type() {
        DataType::Dictionary(_, values) => {
            return kind(&field.clone().with_data_type(values.as_ref().clone()));
        }
        DataType::Boolean => Kind::Bool,
        // BigQuery takes a bare NULL for an INT64.
        DataType::Null => Kind::Int64,
        other if other.is_integer() => Kind::Int64,
        other if other.is_floating() => Kind::Float64,
        picoseconds if *picoseconds == picoseconds::DATA_TYPE => Kind::TimestampPicoseconds,
        DataType::Decimal128(..) => Kind::Numeric {
            precision: None,
            scale: None,
        },
        DataType::Decimal256(..) => Kind::BigNumeric {
            precision: None,
            scale: None,
        },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            match field.metadata().get(TAG).map(String::as_str) {
                Some("JSON") => Kind::Json,
                Some("GEOGRAPHY") => Kind::Geography,
                _ => Kind::String { max_length: None },
            }
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            Kind::Bytes { max_length: None }
        }
        DataType::Date32 | DataType::Date64 => Kind::Date,
        DataType::Time32(_) | DataType::Time64(_) => Kind::Time,
        DataType::Timestamp(_, None) => Kind::Datetime,
        DataType::Timestamp(_, Some(_)) => Kind::Timestamp,
        DataType::Interval(_) => Kind::Interval,
        DataType::Struct(fields) if interval::is(fields) => Kind::Interval,
        DataType::Struct(fields) => match range::element(fields) {
            Some(element) => Kind::Range(element),
            None => Kind::Struct(
                fields
                    .iter()
                    .map(|field| column(field).map_err(|error| error.to_string()))
                    .collect::<Result<_, _>>()?,
            ),
        },
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            return Err("ARRAY of ARRAY".to_owned());
        }
        other => return Err(other.to_string()),
    })
}

/// One column in its canonical type.
fn conform(array: &ArrayRef, column: &Column) -> Result<ArrayRef, QueryError> {
    if column.mode == Mode::Repeated {
        return conform_list(array, column);
    }
    match &column.kind {
        Kind::Struct(columns) => {
            let array = array.as_struct();
            let children = array.columns().iter().zip(columns);
            let children = children
                .map(|(array, column)| conform(array, column))
                .collect::<Result<_, _>>()?;
            let fields: Fields = columns.iter().map(Column::arrow).collect();
            let nulls = array.nulls().cloned();
            if fields.is_empty() {
                return Ok(Arc::new(StructArray::new_empty_fields(array.len(), nulls)));
            }
            Ok(Arc::new(
                StructArray::try_new(fields, children, nulls).map_err(invalid)?,
            ))
        }
        Kind::Interval if matches!(array.data_type(), DataType::Interval(_)) => conform_interval(array),
        kind => cast(array, &kind.arrow()),
    }
}

/// What the engine computes as an interval is one of Arrow's.
fn conform_interval(array: &ArrayRef) -> Result<ArrayRef, QueryError> {
    let array = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let value = |value: IntervalMonthDayNano| {
        let micros = value.nanoseconds / 1_000;
        Interval::new(value.months.into(), value.days.into(), micros)
            .ok_or_else(|| QueryError::Invalid("INTERVAL value is out of range".to_owned()))
    };
    let values = array.as_primitive::<IntervalMonthDayNanoType>().iter();
    let values = values
        .map(|given| given.map(value).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(interval::array(values)))
}

/// An ARRAY: NULL becomes empty, as in BigQuery's results, and a NULL element is an error.
fn conform_list(array: &ArrayRef, column: &Column) -> Result<ArrayRef, QueryError> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
        array.data_type()
    else {
        return Err(QueryError::Invalid(format!("Column {} is no ARRAY", column.name)));
    };
    let plain: FieldRef = Arc::new(Field::new("item", item.data_type().clone(), true));
    let list = cast(array, &DataType::List(plain))?;
    let list = without_nulls(list.as_list::<i32>())?;
    let element = Column::new("item", column.kind.clone(), Mode::Nullable);
    let values = conform(list.values(), &element)?;
    if values.null_count() > 0 {
        let name = &column.name;
        let text = format!("Array cannot have a null element; error in writing field {name}");
        return Err(QueryError::Invalid(text));
    }
    let item = Arc::new(Field::new("item", column.kind.arrow(), false));
    let list = ListArray::try_new(item, list.offsets().clone(), values, None).map_err(invalid)?;
    Ok(Arc::new(list))
}

/// The same lists with NULL ones empty, and with no values but those of the lists.
fn without_nulls(list: &ListArray) -> Result<ListArray, QueryError> {
    let mut indices = Vec::new();
    let mut lengths = Vec::with_capacity(list.len());
    for row in 0..list.len() {
        let offsets = list.value_offsets();
        let (from, to) = (
            offsets[row],
            if list.is_null(row) {
                offsets[row]
            } else {
                offsets[row + 1]
            },
        );
        // Offsets of a valid list are neither negative nor falling.
        indices.extend((from..to).map(i64::from).map(i64::unsigned_abs));
        lengths.push((to - from).unsigned_abs() as usize);
    }
    let values = take(list.values(), &UInt64Array::from(indices), None).map_err(invalid)?;
    let item = match list.data_type() {
        DataType::List(item) => Arc::clone(item),
        _ => Arc::new(Field::new("item", values.data_type().clone(), true)),
    };
    ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, None).map_err(invalid)
}

/// A cast that fails where a value does not fit.
fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, QueryError> {
    if array.data_type() == data_type {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, data_type, &options).map_err(invalid)
}

fn invalid(error: ArrowError) -> QueryError {
    QueryError::Invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{
        Decimal128Array, Int64Array, IntervalMonthDayNanoArray, NullArray, StringViewArray,
        TimestampNanosecondArray,
    };

    use super::*;
    use crate::schema::RangeElement;

    fn result(arrays: Vec<(&str, ArrayRef)>) -> Result<(Schema, RecordBatch), QueryError> {
        let arrays = arrays.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(arrays).unwrap();
        let schema = result_schema(&batch.schema())?;
        let rows = result_rows(&[batch], &schema)?;
        Ok((schema, rows))
    }

    #[test]
    fn engine_types_become_canonical_ones() {
        let stamp = TimestampNanosecondArray::from(vec![1_500_999]);
        let (schema, rows) = result(vec![
            ("text", Arc::new(StringViewArray::from(vec!["a"]))),
            ("null", Arc::new(NullArray::new(1))),
            (
                "avg",
                Arc::new(
                    Decimal128Array::from(vec![12_345_678_901_235])
                        .with_precision_and_scale(38, 13)
                        .unwrap(),
                ),
            ),
            ("at", Arc::new(stamp.clone().with_timezone("+00:00"))),
            ("local", Arc::new(stamp)),
        ])
        .unwrap();
        let kinds: Vec<_> = schema
            .columns
            .iter()
            .map(|column| column.kind.sql_name())
            .collect();
        assert_eq!(kinds, ["STRING", "INT64", "NUMERIC", "TIMESTAMP", "DATETIME"]);
        assert_eq!(rows.schema(), schema.arrow());
        let numeric = rows
            .column(2)
            .as_primitive::<arrow_array::types::Decimal128Type>();
        assert_eq!(numeric.value(0), 1_234_567_890, "rounded to nine digits");
        let at = rows
            .column(3)
            .as_primitive::<arrow_array::types::TimestampMicrosecondType>();
        assert_eq!(at.value(0), 1_500);
    }

    #[test]
    fn a_null_array_is_empty_and_a_null_element_is_refused() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(3)]),
        ]);
        let (_, rows) = result(vec![("list", Arc::new(lists))]).unwrap();
        let list = rows.column(0).as_list::<i32>();
        assert_eq!(list.value_offsets(), [0, 2, 2, 3]);
        assert_eq!(
            list.values().as_ref(),
            &Int64Array::from(vec![1, 2, 3]) as &dyn Array
        );
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![None])]);
        let error = result(vec![("list", Arc::new(lists))]).unwrap_err().to_string();
        assert_eq!(
            error,
            "Array cannot have a null element; error in writing field list"
        );
    }

    #[test]
    fn the_three_youngest_types_come_back_as_they_are() {
        let columns = vec![
            Column::new("i", Kind::Interval, Mode::Repeated),
            Column::new("r", Kind::Range(RangeElement::Timestamp), Mode::Nullable),
            Column::new("p", Kind::TimestampPicoseconds, Mode::Nullable),
        ];
        let inner = Column::new("s", Kind::Struct(columns.clone()), Mode::Nullable);
        let columns = [columns, vec![inner]].concat();
        assert_eq!(result_schema(&tagged(&columns)), Ok(Schema { columns }));
    }

    #[test]
    fn an_interval_of_the_engine_becomes_bigquerys() {
        let value = |months, nanos| Some(IntervalMonthDayNano::new(months, -2, nanos));
        let array = IntervalMonthDayNanoArray::from(vec![value(14, 90_000_001_000), None]);
        let (schema, rows) = result(vec![("i", Arc::new(array))]).unwrap();
        assert_eq!(schema.columns, [Column::new("i", Kind::Interval, Mode::Nullable)]);
        let rows = rows.column(0).as_struct();
        assert_eq!(interval::at(rows, 0).to_string(), "1-2 -2 0:1:30.000001");
        assert!(rows.is_null(1));
        let array = IntervalMonthDayNanoArray::from(vec![value(120_001, 0)]);
        let error = result(vec![("i", Arc::new(array))]).unwrap_err().to_string();
        assert_eq!(error, "INTERVAL value is out of range");
    }

    #[test]
    fn marks_survive_renaming_and_lead_back_to_the_declared_type() {
        let fields = vec![
            Column::new("x", Kind::Json, Mode::Nullable),
            Column::new("g", Kind::Geography, Mode::Repeated),
        ];
        let columns = vec![
            Column::new("j", Kind::Json, Mode::Nullable),
            Column::new("s", Kind::Struct(fields), Mode::Repeated),
        ];
        let schema = Schema {
            columns: columns.clone(),
        };
        assert_eq!(result_schema(&tagged(&columns)), Ok(schema.clone()));
        let batch = RecordBatch::new_empty(schema.arrow());
        assert_eq!(
            retype(&batch, &tagged(&columns)).unwrap().schema(),
            tagged(&columns)
        );
    }
}
