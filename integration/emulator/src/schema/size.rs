//! How many bytes rows have to BigQuery, which counts values and not what keeps them.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};

use super::{Column, Kind, Mode, Schema};

/// Logical bytes of rows in the schema's canonical Arrow types: NULL has none.
pub(crate) fn logical_bytes(rows: &[RecordBatch], schema: &Schema) -> u64 {
    let batch = |batch: &RecordBatch| -> u64 {
        let columns = batch.columns().iter().zip(&schema.columns);
        columns.map(|(array, column)| column_bytes(array, column)).sum()
    };
    rows.iter().map(batch).sum()
}

fn column_bytes(array: &ArrayRef, column: &Column) -> u64 {
    if column.mode != Mode::Repeated {
        return bytes(array, &column.kind);
    }
    let list = array.as_list::<i32>();
    let offsets = list.value_offsets();
    // Offsets of a valid list are neither negative nor falling.
    let at = |offset: &i32| offset.unsigned_abs() as usize;
    match (offsets.first().map(at), offsets.last().map(at)) {
        (Some(from), Some(to)) => bytes(&list.values().slice(from, to - from), &column.kind),
        _ => 0,
    }
}

fn bytes(array: &ArrayRef, kind: &Kind) -> u64 {
    let values = (array.len() - array.null_count()) as u64;
    match kind {
        Kind::Bool => values,
        Kind::Numeric { .. } | Kind::Interval | Kind::Range(_) => values * 16,
        Kind::BigNumeric { .. } => values * 32,
        Kind::String { .. } => values * 2 + text(array),
        Kind::Bytes { .. } => values * 2 + text(array),
        Kind::Json => text(array),
        Kind::Geography => values * 16 + vertices(array) * 24,
        Kind::Struct(columns) => {
            let fields = array.as_struct().columns().iter().zip(columns);
            fields.map(|(array, column)| column_bytes(array, column)).sum()
        }
        _ => values * 8,
    }
}

fn text(array: &ArrayRef) -> u64 {
    let offsets = match array.data_type() {
        arrow_schema::DataType::Binary => array.as_binary::<i32>().value_offsets(),
        _ => array.as_string::<i32>().value_offsets(),
    };
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => u64::from((last - first).unsigned_abs()),
        _ => 0,
    }
}

/// Pairs of numbers in WKT.
fn vertices(array: &ArrayRef) -> u64 {
    let pairs = |text: &str| {
        let parts = text.split(['(', ')', ',']);
        parts.filter(|part| part.split_whitespace().count() == 2).count() as u64
    };
    array.as_string::<i32>().iter().flatten().map(pairs).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_values() {
        let text = || Kind::String { max_length: None };
        let fields = vec![
            Column::new("n", Kind::Int64, Mode::Nullable),
            Column::new("t", text(), Mode::Nullable),
        ];
        let schema = Schema {
            columns: vec![
                Column::new("id", Kind::Int64, Mode::Required),
                Column::new("flag", Kind::Bool, Mode::Nullable),
                Column::new("text", text(), Mode::Nullable),
                Column::new("numbers", Kind::Float64, Mode::Repeated),
                Column::new("s", Kind::Struct(fields), Mode::Repeated),
            ],
        };
        let mut decoder = arrow_json::ReaderBuilder::new(schema.arrow())
            .build_decoder()
            .unwrap();
        let lines = r#"
            {"id": 1, "flag": true, "text": "ñ", "numbers": [1, 2, 3], "s": [{"n": 1, "t": "abc"}, {"n": null}]}
            {"id": 2, "flag": null, "text": null, "numbers": [], "s": []}
            {"id": 3, "flag": false, "text": "", "numbers": [4], "s": [{"t": ""}]}"#;
        decoder.decode(lines.as_bytes()).unwrap();
        let rows = decoder.flush().unwrap().unwrap();
        let first = 8 + 1 + (2 + 2) + 24 + (8 + 2 + 3);
        let third = 8 + 1 + 2 + 8 + 2;
        assert_eq!(
            logical_bytes(std::slice::from_ref(&rows), &schema),
            first + 8 + third
        );
        assert_eq!(logical_bytes(&[rows.slice(2, 1)], &schema), third);
        assert_eq!(
            logical_bytes(&[rows.slice(1, 1), rows.slice(0, 1)], &schema),
            8 + first
        );
    }
}
