//! Rows under a table's changed columns: what was not there is NULL or empty, what is gone goes, and
//! numbers widen.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, StructArray, new_null_array};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::{Schema, same_name};

/// The rows in the schema's canonical Arrow types.
///
/// # Errors
/// A column is of another type, or there are rows without a value for a REQUIRED column.
pub(crate) fn conform(rows: &RecordBatch, schema: &Schema) -> Result<RecordBatch, ArrowError> {
    let arrow = schema.arrow();
    if rows.schema() == arrow {
        return Ok(rows.clone());
    }
    let before = rows.schema();
    let columns = columns(before.fields(), rows.columns(), arrow.fields(), rows.num_rows())?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(arrow, columns, &options)
}

fn columns(
    before: &Fields,
    arrays: &[ArrayRef],
    fields: &Fields,
    rows: usize,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let one = |field: &Arc<Field>| {
        let named = |old: &&Arc<Field>| same_name(old.name(), field.name());
        match before.iter().zip(arrays).find(|(old, _)| named(old)) {
            Some((_, array)) => column(array, field),
            None => missing(field, rows),
        }
    };
    fields.iter().map(one).collect()
}

fn column(array: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), field.data_type()) {
        (before, after) if before == after => Ok(Arc::clone(array)),
        (DataType::Struct(before), DataType::Struct(after)) => {
            let array = array.as_struct();
            let fields = columns(before, array.columns(), after, array.len())?;
            let nulls = array.nulls().cloned();
            Ok(Arc::new(StructArray::try_new(after.clone(), fields, nulls)?))
        }
        (DataType::List(_), DataType::List(item)) => {
            let array = array.as_list::<i32>();
            let values = column(array.values(), item)?;
            let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(item),
                offsets,
                values,
                nulls,
            )?))
        }
        (before, after) if widens(before, after) => cast(array, after),
        (before, after) => {
            let text = format!("column {:?} is {before}, not {after}", field.name());
            Err(ArrowError::SchemaError(text))
        }
    }
}

/// The changes of a column's type that BigQuery makes in place: ALTER COLUMN SET DATA TYPE.
fn widens(before: &DataType, after: &DataType) -> bool {
    use DataType::{Decimal128, Decimal256, Float64, Int64};
    matches!(
        (before, after),
        (Int64, Decimal128(..)) | (Int64 | Decimal128(..), Decimal256(..) | Float64)
    )
}

fn missing(field: &Field, rows: usize) -> Result<ArrayRef, ArrowError> {
    match field.data_type() {
        DataType::List(item) => {
            let offsets = OffsetBuffer::new_zeroed(rows);
            let values = new_null_array(item.data_type(), 0);
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(item),
                offsets,
                values,
                None,
            )?))
        }
        _ if !field.is_nullable() && rows > 0 => {
            let text = format!("there are rows without a value for column {:?}", field.name());
            Err(ArrowError::SchemaError(text))
        }
        kind => Ok(new_null_array(kind, rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Kind, Mode};
    use super::*;

    fn schema(columns: Vec<Column>) -> Schema {
        Schema { columns }
    }

    fn parse(schema: &Schema, json: &str) -> RecordBatch {
        let reader = arrow_json::ReaderBuilder::new(schema.arrow());
        let mut decoder = reader.build_decoder().unwrap();
        decoder.decode(json.as_bytes()).unwrap();
        decoder.flush().unwrap().unwrap()
    }

    fn place(fields: Vec<Column>, mode: Mode) -> Column {
        Column::new("place", Kind::Struct(fields), mode)
    }

    #[test]
    fn rows_take_columns_that_were_added_at_any_depth_and_lose_those_dropped() {
        let city = || Column::new("city", Kind::String { max_length: None }, Mode::Nullable);
        let height = || Column::new("height", Kind::Float64, Mode::Nullable);
        let tags = || Column::new("tags", Kind::Int64, Mode::Repeated);
        let before = schema(vec![
            Column::new("Id", Kind::Int64, Mode::Required),
            Column::new("gone", Kind::Bool, Mode::Nullable),
            place(vec![city()], Mode::Repeated),
        ]);
        let after = schema(vec![
            Column::new("id", Kind::Int64, Mode::Nullable),
            place(vec![city(), height()], Mode::Repeated),
            tags(),
        ]);
        let rows = parse(
            &before,
            r#"{"Id": 1, "gone": true, "place": [{"city": "a"}, {"city": null}]} {"Id": 2, "place": []}"#,
        );
        let want = parse(
            &after,
            r#"{"id": 1, "place": [{"city": "a", "height": null}, {"city": null, "height": null}], "tags": []}
               {"id": 2, "place": [], "tags": []}"#,
        );
        assert_eq!(conform(&rows, &after).unwrap(), want);
        assert_eq!(conform(&rows.slice(1, 1), &after).unwrap(), want.slice(1, 1));
    }

    #[test]
    fn numbers_widen() {
        let numeric = || Kind::Numeric {
            precision: None,
            scale: None,
        };
        let bignumeric = || Kind::BigNumeric {
            precision: None,
            scale: None,
        };
        let table = |kind| schema(vec![Column::new("x", kind, Mode::Nullable)]);
        let whole = r#"{"x": -9223372036854775808} {"x": null} {"x": 9223372036854775807}"#;
        for (before, after, json) in [
            (Kind::Int64, numeric(), whole),
            (Kind::Int64, bignumeric(), whole),
            (Kind::Int64, Kind::Float64, r#"{"x": -1024} {"x": null}"#),
            (
                numeric(),
                bignumeric(),
                r#"{"x": "-99999999999999999999999999999.999999999"} {"x": "0.000000001"}"#,
            ),
            (numeric(), Kind::Float64, r#"{"x": 0.5} {"x": -1024.25}"#),
        ] {
            let (before, after) = (table(before), table(after));
            let conformed = conform(&parse(&before, json), &after).unwrap();
            assert_eq!(conformed, parse(&after, json), "{json}");
            conform(&conformed, &before).unwrap_err();
        }
    }

    #[test]
    fn rows_that_cannot_take_a_column_say_which() {
        let before = schema(vec![Column::new("id", Kind::Int64, Mode::Nullable)]);
        let rows = parse(&before, r#"{"id": 1}"#);
        let text = schema(vec![Column::new("id", Kind::Bool, Mode::Nullable)]);
        let error = conform(&rows, &text).unwrap_err().to_string();
        assert_eq!(error, "Schema error: column \"id\" is Int64, not Boolean");
        let required = schema(vec![Column::new("n", Kind::Int64, Mode::Required)]);
        let error = conform(&rows, &required).unwrap_err().to_string();
        assert_eq!(
            error,
            "Schema error: there are rows without a value for column \"n\""
        );
        assert_eq!(conform(&rows.slice(0, 0), &required).unwrap().num_rows(), 0);
    }
}
