//! Missing values and default values (write-api.md 7.1).

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::AppendRowsRequest;
use bigquery_write_proto::wire::append_rows_request::MissingValueInterpretation as Missing;
use prost_types::DescriptorProto;
use prost_types::field_descriptor_proto::Type as T;

use super::Fact;
use crate::message::{STREAM, column, message, optional, proto_request, repeated, say, varint, visible};
use crate::world::{World, request};

fn with_default(column: Column, sql: &str) -> Column {
    Column {
        default_value_expression: Some(sql.to_owned()),
        ..column
    }
}

/// `n INT64 DEFAULT 7, m INT64 DEFAULT 8, o INT64`.
fn columns() -> Vec<Column> {
    vec![
        with_default(column("n", Kind::Int64), "7"),
        with_default(column("m", Kind::Int64), "8"),
        column("o", Kind::Int64),
    ]
}

/// A message with all of them.
fn whole() -> DescriptorProto {
    message(
        "Row",
        vec![
            optional("n", 1, T::Int64),
            optional("m", 2, T::Int64),
            optional("o", 3, T::Int64),
        ],
    )
}

/// Sends requests one after the other on one connection; the answers, then the rows.
fn send(columns: Vec<Column>, requests: Vec<AppendRowsRequest>) -> Vec<String> {
    let mut w = World::new();
    let table = w.table("w", "US", columns);
    let c = w.open();
    let mut said: Vec<String> = requests.iter().map(|request| say(&mut w, c, request)).collect();
    said.extend(visible(&w, &table));
    said
}

/// A row with nothing in it, and what that means.
fn nothing(others: Missing, by_column: &[(&str, Missing)]) -> AppendRowsRequest {
    AppendRowsRequest {
        default_missing_value_interpretation: others as i32,
        missing_value_interpretations: by_column
            .iter()
            .map(|(name, meaning)| ((*name).to_owned(), *meaning as i32))
            .collect(),
        ..proto_request(STREAM, None, Some(&whole()), vec![Vec::new()])
    }
}

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 7.1 [DOC P, D:default-values]",
        says: "a column that the writer's schema lacks has its default value if it has one, else NULL, in each row",
        behaviour: Behaviour::MissingInSchemaIsDefault,
        script: || {
            let mut columns = columns();
            columns.push(with_default(Column::new("r", Kind::Int64, Mode::Required), "9"));
            columns.push(with_default(
                Column::new("l", Kind::Int64, Mode::Repeated),
                "[1, 2]",
            ));
            let row = message("Row", vec![optional("m", 2, T::Int64)]);
            let rows = vec![varint(2, 1), Vec::new()];
            let mut said = send(columns, vec![proto_request(STREAM, None, Some(&row), rows)]);
            let batch = RecordBatch::try_from_iter([("o", Arc::new(Int64Array::from(vec![3])) as ArrayRef)]);
            said.extend(send(
                self::columns(),
                vec![request(STREAM, None, &batch.unwrap())],
            ));
            said
        },
        answers: &[
            "appended",
            "n: 7, m: 1, o: NULL, r: 9, l: [1, 2]",
            "n: 7, m: NULL, o: NULL, r: 9, l: [1, 2]",
            "appended",
            "n: 7, m: 8, o: 3",
        ],
    },
    Fact {
        source: "write-api.md 7.1 [DOC P]",
        says: "a value that a row lacks is NULL, whatever the column's default value",
        behaviour: Behaviour::MissingInRowsIsNull,
        script: || {
            let mut said = send(columns(), vec![nothing(Missing::Unspecified, &[])]);
            let n: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
            let batch = RecordBatch::try_from_iter([("n", n)]).unwrap();
            said.extend(send(columns(), vec![request(STREAM, None, &batch)]));
            said
        },
        answers: &[
            "appended",
            "n: NULL, m: NULL, o: NULL",
            "appended",
            "n: NULL, m: 8, o: NULL",
            "n: 1, m: 8, o: NULL",
        ],
    },
    Fact {
        source: "write-api.md 1.2, 7.1 [DOC P]",
        says: "default_missing_value_interpretation holds from its request on, until another sets another",
        behaviour: Behaviour::DefaultInterpretationSticks,
        script: || {
            let ask = [
                Missing::Unspecified,
                Missing::DefaultValue,
                Missing::Unspecified,
                Missing::NullValue,
                Missing::Unspecified,
            ];
            send(columns(), ask.into_iter().map(|ask| nothing(ask, &[])).collect())
        },
        answers: &[
            "appended",
            "appended",
            "appended",
            "appended",
            "appended",
            "n: NULL, m: NULL, o: NULL",
            "n: 7, m: 8, o: NULL",
            "n: 7, m: 8, o: NULL",
            "n: NULL, m: NULL, o: NULL",
            "n: NULL, m: NULL, o: NULL",
        ],
    },
    Fact {
        source: "write-api.md 1.2, 7.1 [DOC P]",
        says: "what a request says of a column goes before that, in this request alone",
        behaviour: Behaviour::ColumnInterpretationsGoFirst,
        script: || {
            let requests = vec![
                nothing(Missing::Unspecified, &[("N", Missing::DefaultValue)]),
                nothing(Missing::DefaultValue, &[("m", Missing::NullValue)]),
                nothing(Missing::Unspecified, &[]),
            ];
            send(columns(), requests)
        },
        answers: &[
            "appended",
            "appended",
            "appended",
            "n: 7, m: NULL, o: NULL",
            "n: 7, m: NULL, o: NULL",
            "n: 7, m: 8, o: NULL",
        ],
    },
    Fact {
        source: "write-api.md 1.2, 7.1 [DOC P]",
        says: "it is said of top-level columns, and is one of two things; the connection goes on",
        behaviour: Behaviour::ColumnInterpretationsChecked,
        script: || {
            let requests = vec![
                nothing(Missing::Unspecified, &[("x", Missing::NullValue)]),
                nothing(Missing::Unspecified, &[("n.x", Missing::NullValue)]),
                nothing(Missing::Unspecified, &[("n", Missing::Unspecified)]),
                nothing(Missing::Unspecified, &[("n", Missing::NullValue)]),
            ];
            send(columns(), requests)
        },
        answers: &[
            "InvalidArgument: Invalid missing_value_interpretations for column 'x': the table has no such top-level \
             column. Entity: W",
            "InvalidArgument: Invalid missing_value_interpretations for column 'n.x': the table has no such top-level \
             column. Entity: W",
            "InvalidArgument: Invalid missing_value_interpretations for column 'n': it is neither NULL_VALUE nor \
             DEFAULT_VALUE. Entity: W",
            "appended",
            "n: NULL, m: NULL, o: NULL",
        ],
    },
    Fact {
        source: "write-api.md 7.1 [DOC P]; the text: supabase/etl",
        says: "a REQUIRED column that the writer's schema lacks is an error",
        behaviour: Behaviour::MissingColumnsRefused,
        script: || {
            let columns = vec![
                column("n", Kind::Int64),
                Column::new("r", Kind::Int64, Mode::Required),
            ];
            let row = message("Row", vec![optional("n", 1, T::Int64)]);
            send(
                columns,
                vec![proto_request(STREAM, None, Some(&row), vec![varint(1, 1)])],
            )
        },
        answers: &["ended InvalidArgument: The required field 'r' is missing in the proto message Entity: W"],
    },
    Fact {
        source: "write-api.md 7.1 [DOC P], python-bigquery-storage PR #269",
        says: "a REQUIRED column that a row lacks is an error, unless a default value takes its place",
        behaviour: Behaviour::DefaultInterpretationSticks,
        script: || {
            let columns = vec![
                with_default(Column::new("r", Kind::Int64, Mode::Required), "9"),
                with_default(Column::new("l", Kind::Int64, Mode::Repeated), "[1, 2]"),
            ];
            let row = message(
                "Row",
                vec![optional("r", 1, T::Int64), repeated("l", 2, T::Int64)],
            );
            let ask = |ask: Missing| AppendRowsRequest {
                default_missing_value_interpretation: ask as i32,
                ..proto_request(STREAM, None, Some(&row), vec![varint(1, 1), Vec::new()])
            };
            send(
                columns,
                vec![
                    ask(Missing::Unspecified),
                    ask(Missing::DefaultValue),
                    ask(Missing::Unspecified),
                ],
            )
        },
        answers: &[
            "InvalidArgument: ...; row 1 FIELDS_ERROR: NULL value is not allowed on field r.",
            "appended",
            "appended",
            "r: 1, l: [1, 2]",
            "r: 9, l: [1, 2]",
            "r: 1, l: [1, 2]",
            "r: 9, l: [1, 2]",
        ],
    },
];
