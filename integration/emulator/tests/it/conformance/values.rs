//! Values of rows, whatever format they come in (write-api.md 3.5, 5.1 to 5.3).

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::schema::{Column, Kind, Mode};

use super::Fact;
use crate::world::{World, request};

/// Appends one column `foo` to a table that has it, then what is there.
fn append(kind: Kind, values: ArrayRef) -> Vec<String> {
    const STREAM: &str = "projects/p/datasets/d/tables/w/_default";
    let mut w = World::new();
    let table = w.table("w", "US", vec![Column::new("foo", kind, Mode::Nullable)]);
    let c = w.open();
    let batch = RecordBatch::try_from_iter([("foo", values)]).unwrap();
    let said = w.send(c, &request(STREAM, None, &batch));
    let rows = w.machine.catalog().table(&table).unwrap().row_count();
    vec![said, format!("{rows} rows")]
}

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 3.5 [PROD JIT testRowErrors, python-bigquery-storage #717]",
        says: "a string longer than its column allows is an error of its row, and no row is taken",
        behaviour: Behaviour::LengthsChecked,
        script: || {
            let kind = Kind::String { max_length: Some(10) };
            append(
                kind,
                Arc::new(StringArray::from(vec!["aaabbbcccddd", "bbb", "ääääääääää"])),
            )
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: \
             projects/p/datasets/d/tables/w/streams/_default; row 0 FIELDS_ERROR: Field foo: STRING(10) has maximum \
             length 10 but got a value with length 12 on field foo.",
            "0 rows",
        ],
    },
    Fact {
        source: "write-api.md 3.5 [PROD JIT testRowErrors]",
        says: "a timestamp out of range is an error of its row",
        behaviour: Behaviour::RangesChecked,
        script: || {
            append(
                Kind::Timestamp,
                Arc::new(TimestampMicrosecondArray::from(vec![0, i64::MIN])),
            )
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: \
             projects/p/datasets/d/tables/w/streams/_default; row 1 FIELDS_ERROR: Timestamp field value is out of \
             range: -9223372036854775808 on field foo.",
            "0 rows",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a JSON column takes JSON text only",
        behaviour: Behaviour::JsonAndGeographyChecked,
        script: || {
            append(
                Kind::Json,
                Arc::new(StringArray::from(vec!["{\"a\": [1]}", "{a}"])),
            )
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: \
             projects/p/datasets/d/tables/w/streams/_default; row 1 FIELDS_ERROR: Invalid JSON on field foo.",
            "0 rows",
        ],
    },
];
