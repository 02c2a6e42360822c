//! The rows that the engine feeds, made as the simulation's query makes them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, SchemaRef};

/// The rows of a key with these numbers.
pub(crate) fn batch(columns: &SchemaRef, key: u32, numbers: Range<u64>) -> RecordBatch {
    let key = i64::from(key);
    let numbers: Vec<i64> = (numbers.start as i64..numbers.end as i64).collect();
    let notes = numbers
        .iter()
        .map(|number| (number % 3 != 0).then(|| format!("row {number}")));
    let notes: ArrayRef = match columns.field(2).data_type() {
        DataType::Utf8View => Arc::new(notes.collect::<StringViewArray>()),
        _ => Arc::new(notes.collect::<StringArray>()),
    };
    let DataType::List(item) = columns.field(4).data_type() else {
        panic!("the simulation's query makes a list");
    };
    let mut pairs = ListBuilder::new(Int64Builder::new()).with_field(Arc::clone(item));
    for number in &numbers {
        pairs.append_value([Some(key), Some(*number)]);
    }
    let made: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![key; numbers.len()])),
        Arc::new(Int64Array::from(numbers.clone())),
        notes,
        Arc::new(
            numbers
                .iter()
                .map(|number| Some(*number as f64 / 2.0))
                .collect::<Float64Array>(),
        ),
        Arc::new(pairs.finish()),
    ];
    RecordBatch::try_new(Arc::clone(columns), made).expect("the columns are those of the query")
}
