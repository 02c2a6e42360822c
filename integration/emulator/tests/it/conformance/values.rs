//! Values of rows, whatever format they come in (write-api.md 3.5, 5.1 to 5.3).

use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_proto::wire::AppendRowsRequest;
use prost_types::field_descriptor_proto::Type as T;

use super::Fact;
use crate::message::{STREAM, bytes, column, message, optional, proto_request, say, varint};
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

/// Appends to a new table that is partitioned by its one column `at`.
fn partitioned(kind: Kind, request: impl FnOnce(&str) -> AppendRowsRequest) -> Vec<String> {
    let mut w = World::new();
    let table = TableRef::new("p", "d", "w");
    let rest = serde_json::json!({ "timePartitioning": { "type": "MONTH", "field": "at" } });
    let rest = rest.as_object().cloned().unwrap();
    let schema = Schema {
        columns: vec![column("at", kind)],
    };
    w.machine.create_table(&table, schema, rest, w.now).unwrap();
    let c = w.open();
    let said = say(&mut w, c, &request(STREAM));
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
        source: "write-api.md 2.5 [DOC D:write-api-grpc]; the text is UNCONFIRMED",
        says: "values of a partitioning column lie within ten years before and one year after the append, in either format",
        behaviour: Behaviour::PartitionsBounded,
        script: || {
            // The clock says 2023-11-14.
            let days = |text: &str| {
                let date: chrono::NaiveDate = text.parse().unwrap();
                (date - chrono::NaiveDate::default()).num_days()
            };
            let mut said = Vec::new();
            let rows = [["2013-11-14", "2024-11-14"], ["2013-11-13", "2024-11-15"]];
            for [early, late] in rows.map(|row| row.map(days)) {
                let dates = Date32Array::from(vec![Some(early as i32), None, Some(late as i32)]);
                said.extend(partitioned(Kind::Date, |stream| {
                    let batch = RecordBatch::try_from_iter([("at", Arc::new(dates) as ArrayRef)]);
                    request(stream, None, &batch.unwrap())
                }));
                said.extend(partitioned(Kind::Datetime, |stream| {
                    let row = message("Row", vec![optional("AT", 1, T::String)]);
                    let day = |days: i64| chrono::NaiveDate::default() + chrono::Days::new(days as u64);
                    let rows = [
                        format!("{} 00:00:00", day(early)),
                        format!("{} 23:59:59", day(late)),
                    ];
                    proto_request(stream, None, Some(&row), rows.map(|text| bytes(1, text)).to_vec())
                }));
                said.extend(partitioned(Kind::Timestamp, |stream| {
                    let row = message("Row", vec![optional("at", 1, T::Int64)]);
                    let rows = [early, late].map(|days| varint(1, days * 86_400_000_000));
                    proto_request(stream, None, Some(&row), rows.to_vec())
                }));
            }
            said
        },
        answers: &[
            "appended",
            "3 rows",
            "appended",
            "2 rows",
            "appended",
            "2 rows",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The value of a partitioning column must lie within 10 years in the \
             past and 1 year in the future on field at.; row 2 FIELDS_ERROR: The value of a partitioning column must lie \
             within 10 years in the past and 1 year in the future on field at.",
            "0 rows",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The value of a partitioning column must lie within 10 years in the \
             past and 1 year in the future on field at.; row 1 FIELDS_ERROR: The value of a partitioning column must lie \
             within 10 years in the past and 1 year in the future on field at.",
            "0 rows",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The value of a partitioning column must lie within 10 years in the \
             past and 1 year in the future on field at.; row 1 FIELDS_ERROR: The value of a partitioning column must lie \
             within 10 years in the past and 1 year in the future on field at.",
            "0 rows",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a JSON column takes JSON text only",
        behaviour: Behaviour::JsonAndGeographyChecked,
        script: || {
            let texts = [
                r#"{"a": [1]}"#,
                "{a}",
                r#"["\ud83d\ude00", "\\ud800"]"#,
                r#"["\ude00\ud83d"]"#,
            ];
            append(Kind::Json, Arc::new(StringArray::from(texts.to_vec())))
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: \
             projects/p/datasets/d/tables/w/streams/_default; row 1 FIELDS_ERROR: Invalid JSON on field foo.; \
             row 3 FIELDS_ERROR: Invalid JSON on field foo.",
            "0 rows",
        ],
    },
];
