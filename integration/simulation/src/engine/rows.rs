//! The rows that the engine feeds, made as the simulation's query makes them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, SchemaRef};

use crate::process::{BAD_PLACE, GOOD_PLACE, LONG_NOTE, fault_of};

/// The rows of a key with these numbers.
pub(crate) fn batch(columns: &SchemaRef, key: u32, numbers: Range<u64>) -> RecordBatch {
    let key = i64::from(key);
    let numbers: Vec<i64> = (numbers.start as i64..numbers.end as i64).collect();
    // With a place, rows may be bad.
    let fault = |number: i64| fault_of(number).filter(|_| columns.fields().len() > 5);
    let notes = numbers.iter().map(|&number| match fault(number) {
        Some("note") => Some(LONG_NOTE.to_owned()),
        _ => (number % 3 != 0).then(|| format!("row {number}")),
    });
    let places = numbers.iter().map(|&number| match fault(number) {
        Some("place") => Some(BAD_PLACE.to_owned()),
        _ => Some(GOOD_PLACE.to_owned()),
    });
    let DataType::List(item) = columns.field(4).data_type() else {
        panic!("the simulation's query makes a list");
    };
    let mut pairs = ListBuilder::new(Int64Builder::new()).with_field(Arc::clone(item));
    for number in &numbers {
        pairs.append_value([Some(key), Some(*number)]);
    }
    let mut made: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![key; numbers.len()])),
        Arc::new(Int64Array::from(numbers.clone())),
        texts(columns, 2, notes),
        Arc::new(
            numbers
                .iter()
                .map(|number| Some(*number as f64 / 2.0))
                .collect::<Float64Array>(),
        ),
        Arc::new(pairs.finish()),
    ];
    if columns.fields().len() > 5 {
        made.push(texts(columns, 5, places));
    }
    RecordBatch::try_new(Arc::clone(columns), made).expect("the columns are those of the query")
}

/// As the query's column has them.
fn texts(columns: &SchemaRef, column: usize, texts: impl Iterator<Item = Option<String>>) -> ArrayRef {
    match columns.field(column).data_type() {
        DataType::Utf8View => Arc::new(texts.collect::<StringViewArray>()),
        _ => Arc::new(texts.collect::<StringArray>()),
    }
}
