//! A pipeline's columns against a table's: what is refused, with which words, and the table that fits by itself.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use bigquery_write_proto::rows::{ColumnProblem, ColumnProblemKind, RowEncoder, table_schema_for};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::{Mode, Type};
use common::{TRUNCATE, column, range, record, repeated, required, schema, table};

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("field", element, true)))
}

fn strukt(fields: Vec<(&str, DataType)>) -> DataType {
    DataType::Struct(
        fields
            .into_iter()
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .collect(),
    )
}

fn problems(fields: Vec<(&str, DataType)>, columns: Vec<TableFieldSchema>) -> Vec<String> {
    let fields = fields
        .into_iter()
        .map(|(name, data_type)| Field::new(name, data_type, true))
        .collect();
    match RowEncoder::new(&schema(fields), &table(columns), TRUNCATE) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ColumnProblem::to_string).collect(),
    }
}

#[test]
fn all_problems_are_told_at_once_with_types_and_what_to_do() {
    let told = problems(
        vec![
            ("id", DataType::Int64),
            ("extra", list(DataType::Utf8)),
            ("at", DataType::Int64),
            ("ID", DataType::Int32),
            (
                "place",
                strukt(vec![("lat", DataType::Utf8), ("alt", DataType::Float32)]),
            ),
            ("tags", DataType::Utf8),
            ("name", list(DataType::Utf8)),
            ("where", DataType::Utf8),
        ],
        vec![
            required(column("id", Type::Int64)),
            column("at", Type::Timestamp),
            record(
                "place",
                vec![column("lat", Type::Double), required(column("lon", Type::Double))],
            ),
            repeated(column("tags", Type::String)),
            column("name", Type::String),
            column("where", Type::Range),
            required(TableFieldSchema {
                max_length: 7,
                ..column("code", Type::String)
            }),
            column("note", Type::String),
        ],
    );
    assert_eq!(
        told,
        [
            "column `extra`: the pipeline writes TEXT[], the table has no such column; add it to the table, or rename or drop it in the query",
            "column `at`: the pipeline writes BIGINT, the table has TIMESTAMP; say the unit, for example to_timestamp_millis(at)",
            "column `ID`: BigQuery does not tell it from `id`, names differ in case only; rename one of them",
            "column `place.lat`: the pipeline writes TEXT, the table has FLOAT64; cast it, for example CAST(lat AS DOUBLE)",
            "column `place.alt`: the pipeline writes FLOAT, the table has no such column; add it to the table, or rename or drop it in the query",
            "column `place.lon`: the table requires FLOAT64 NOT NULL without default, the pipeline does not write it; add it to the query, or make it nullable",
            "column `tags`: the pipeline writes TEXT, the table has ARRAY<STRING>; write an array, for example make_array(tags)",
            "column `name`: the pipeline writes TEXT[], the table has STRING; write one value, or make the table's column REPEATED",
            "column `where`: the pipeline writes TEXT, the table has RANGE, which is not yet supported; drop it in the query",
            "column `code`: the table requires STRING(7) NOT NULL without default, the pipeline does not write it; add it to the query, or make it nullable",
        ]
    );
}

#[test]
fn types_that_do_not_go_together_are_refused_by_the_mapping_table() {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let cases: Vec<(DataType, TableFieldSchema, &str)> = vec![
        (
            DataType::Int64,
            column("x", Type::Double),
            "BIGINT, the table has FLOAT64; cast it, for example CAST(x AS DOUBLE)",
        ),
        (
            DataType::Int64,
            column("x", Type::Datetime),
            "BIGINT, the table has DATETIME; say the unit, for example to_timestamp_millis(x)",
        ),
        (
            DataType::Utf8,
            column("x", Type::Int64),
            "TEXT, the table has INT64; cast it, for example CAST(x AS BIGINT)",
        ),
        (
            DataType::Float64,
            column("x", Type::Numeric),
            "DOUBLE, the table has NUMERIC; cast it, for example CAST(x AS DECIMAL(38, 9))",
        ),
        (
            DataType::Utf8,
            column("x", Type::Bytes),
            "TEXT, the table has BYTES; cast it, for example CAST(x AS BYTEA)",
        ),
        (
            DataType::Binary,
            column("x", Type::String),
            "BYTEA, the table has STRING; cast it, for example CAST(x AS TEXT)",
        ),
        (
            DataType::Date32,
            column("x", Type::Timestamp),
            "DATE, the table has TIMESTAMP; cast it, for example CAST(x AS TIMESTAMP)",
        ),
        (
            micros(None),
            column("x", Type::Date),
            "TIMESTAMP, the table has DATE; cast it, for example CAST(x AS DATE)",
        ),
        (
            micros(Some("America/New_York")),
            column("x", Type::Datetime),
            "TIMESTAMP WITH TIME ZONE 'America/New_York', the table has DATETIME; cast it to TIMESTAMP without time zone, in the zone that is meant",
        ),
        (
            DataType::Decimal128(38, 9),
            column("x", Type::Int64),
            "DECIMAL(38, 9), the table has INT64; cast it, for example CAST(x AS BIGINT)",
        ),
        (
            DataType::Utf8,
            TableFieldSchema {
                precision: 10,
                scale: 2,
                ..column("x", Type::Numeric)
            },
            "TEXT, the table has NUMERIC(10, 2); cast it, for example CAST(x AS DECIMAL(38, 9))",
        ),
        (
            list(DataType::Utf8),
            repeated(column("x", Type::Int64)),
            "TEXT[], the table has ARRAY<INT64>; write an array of the table's type",
        ),
        (
            list(list(DataType::Int64)),
            repeated(column("x", Type::Int64)),
            "BIGINT[][], the table has ARRAY<INT64>; BigQuery has no arrays of arrays; put the inner one into a STRUCT",
        ),
        (
            DataType::Utf8,
            record(
                "x",
                vec![column("a", Type::Int64), repeated(column("b", Type::Bool))],
            ),
            "TEXT, the table has STRUCT<a INT64, b ARRAY<BOOL>>; write a STRUCT with the fields of the table's",
        ),
        (
            strukt(vec![("a", DataType::UInt64)]),
            column("x", Type::Json),
            "STRUCT<a BIGINT UNSIGNED>, the table has JSON; write its fields one by one, or make the table's column a STRUCT",
        ),
        (
            DataType::Struct(Fields::empty()),
            record("x", vec![column("a", Type::Int64)]),
            "STRUCT<>, the table has STRUCT<a INT64>; give it fields of the table's STRUCT",
        ),
        (
            strukt(vec![("start", DataType::Date32), ("stop", DataType::Date32)]),
            range(Type::Date),
            "STRUCT<start DATE, stop DATE>, the table has RANGE<DATE>; name its two fields start and end",
        ),
        (
            strukt(vec![("start", DataType::Date32)]),
            range(Type::Date),
            "STRUCT<start DATE>, the table has RANGE<DATE>; name its two fields start and end",
        ),
        (
            DataType::Int64,
            TableFieldSchema {
                timestamp_precision: Some(12),
                ..column("x", Type::Timestamp)
            },
            "BIGINT, the table has TIMESTAMP(12); say the unit, for example to_timestamp_millis(x)",
        ),
        (
            DataType::Duration(TimeUnit::Second),
            column("x", Type::Time),
            "Duration(s), the table has TIME; no cast leads there; drop it in the query, or change the table's column",
        ),
    ];
    for (input, target, words) in cases {
        assert_eq!(
            problems(vec![("x", input)], vec![target]),
            [format!("column `x`: the pipeline writes {words}")]
        );
    }
}

#[test]
fn a_range_says_which_of_its_bounds_does_not_fit() {
    let input = strukt(vec![("END", DataType::Int64), ("Start", DataType::Date64)]);
    assert_eq!(
        problems(vec![("x", input)], vec![range(Type::Date)]),
        [
            "column `x.END`: the pipeline writes BIGINT, the table has DATE; say the unit, for example CAST(to_timestamp_millis(\"END\") AS DATE)"
        ]
    );
}

#[test]
fn a_name_that_no_table_can_have_is_refused_for_what_it_is() {
    let told = problems(
        vec![
            ("_PARTITIONTIME", DataType::Int64),
            ("a.b", DataType::Int64),
            ("größe", DataType::Int64),
            ("s", strukt(vec![("_table_x", DataType::Int64)])),
        ],
        vec![
            column("GRÖSSE", Type::Int64),
            record("s", vec![column("a", Type::Int64)]),
        ],
    );
    assert_eq!(
        told,
        [
            "column `_PARTITIONTIME`: BigQuery does not take this name: the prefix _PARTITION is reserved; rename it in the query",
            "column `a.b`: BigQuery does not take this name: '.' is not allowed; rename it in the query",
            "column `größe`: the pipeline writes BIGINT, the table has no such column; add it to the table, or rename or drop it in the query",
            "column `s._table_x`: BigQuery does not take this name: the prefix _TABLE_ is reserved; rename it in the query",
        ]
    );
}

#[test]
fn columns_are_matched_without_regard_to_case_and_written_as_the_table_spells_them() {
    let input = schema(vec![
        Field::new("USER", DataType::Utf8View, false),
        Field::new("Place", strukt(vec![("LAT", DataType::Float32)]), true),
    ]);
    let columns = vec![
        TableFieldSchema {
            default_value_expression: "now()".to_owned(),
            ..required(column("made", Type::Timestamp))
        },
        record(
            "place",
            vec![
                column("Lat", Type::Double),
                repeated(column("tags", Type::String)),
            ],
        ),
        required(column("User", Type::String)),
    ];
    let encoder = RowEncoder::new(&input, &table(columns), TRUNCATE).unwrap();
    let place = DataType::Struct(Fields::from(vec![Field::new("Lat", DataType::Float64, true)]));
    let expected = schema(vec![
        Field::new("User", DataType::Utf8, true),
        Field::new("place", place, true),
    ]);
    assert_eq!(encoder.wire_schema(), &expected);
}

#[test]
fn a_table_is_made_for_a_pipeline_and_takes_its_rows() {
    let json = HashMap::from([("ARROW:extension:name".to_owned(), "arroyo.json".to_owned())]);
    let nanos = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
    let input = schema(vec![
        Field::new("id", DataType::UInt64, false),
        Field::new("raw", DataType::Utf8, true).with_metadata(json.clone()),
        Field::new("at", nanos(None), true),
        Field::new("seen", nanos(Some("+00:00")), true),
        Field::new("small", DataType::Decimal128(38, 9), true),
        Field::new("large", DataType::Decimal128(38, 10), true),
        Field::new("tags", list(DataType::Utf8View), false),
        Field::new(
            "naïve col",
            strukt(vec![
                ("a", DataType::Boolean),
                ("b", list(strukt(vec![("c", DataType::Date32)]))),
            ]),
            true,
        ),
        Field::new(
            "kind",
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Binary)),
            true,
        ),
        Field::new(
            "docs",
            DataType::List(Arc::new(
                Field::new("field", DataType::Utf8, true).with_metadata(json),
            )),
            true,
        ),
        Field::new("time", DataType::Time64(TimeUnit::Nanosecond), true),
        Field::new("score", DataType::Float16, true),
    ]);
    let made = table_schema_for(&input).unwrap();
    assert_eq!(
        made,
        table(vec![
            required(column("id", Type::Int64)),
            column("raw", Type::Json),
            column("at", Type::Timestamp),
            column("seen", Type::Timestamp),
            column("small", Type::Numeric),
            column("large", Type::Bignumeric),
            repeated(column("tags", Type::String)),
            record(
                "naïve col",
                vec![
                    column("a", Type::Bool),
                    repeated(record("b", vec![column("c", Type::Date)]))
                ]
            ),
            column("kind", Type::Bytes),
            repeated(column("docs", Type::Json)),
            column("time", Type::Time),
            column("score", Type::Double),
        ])
    );
    assert_eq!(made.fields[6].mode(), Mode::Repeated);
    RowEncoder::new(&input, &made, TRUNCATE).unwrap();
}

#[test]
fn no_table_is_made_for_types_and_names_that_bigquery_lacks() {
    let long = "x".repeat(301);
    let cases: Vec<(&str, DataType, &str)> = vec![
        (
            "n",
            DataType::Null,
            "the pipeline writes NULL, which no BigQuery type holds; cast it to another type in the query",
        ),
        (
            "n",
            list(list(DataType::Int64)),
            "the pipeline writes BIGINT[][], which no BigQuery type holds; BigQuery has no arrays of arrays; put the inner one into a STRUCT",
        ),
        (
            "n",
            DataType::Struct(Fields::empty()),
            "the pipeline writes STRUCT<>, which no BigQuery type holds; cast it to another type in the query",
        ),
        (
            "n",
            DataType::Decimal256(76, 10),
            "the pipeline writes DECIMAL(76, 10), which no BigQuery type holds; cast it to another type in the query",
        ),
        (
            "",
            DataType::Int64,
            "BigQuery does not take this name: it is empty; rename it in the query",
        ),
        (
            "a.b",
            DataType::Int64,
            "BigQuery does not take this name: '.' is not allowed; rename it in the query",
        ),
        (
            "_Table_x",
            DataType::Int64,
            "BigQuery does not take this name: the prefix _TABLE_ is reserved; rename it in the query",
        ),
        (
            &long,
            DataType::Int64,
            "BigQuery does not take this name: it is longer than 300 characters; rename it in the query",
        ),
    ];
    for (name, data_type, words) in cases {
        let problems = table_schema_for(&schema(vec![Field::new(name, data_type, true)])).unwrap_err();
        let told: Vec<String> = problems.iter().map(ColumnProblem::to_string).collect();
        assert_eq!(told, [format!("column `{name}`: {words}")]);
    }
    let inner = strukt(vec![("a", DataType::Int64), ("A", DataType::Null)]);
    assert_eq!(
        table_schema_for(&schema(vec![Field::new("s", inner, true)])).unwrap_err(),
        [
            ColumnProblem {
                column: "s.A".to_owned(),
                kind: ColumnProblemKind::Collision {
                    other: "s.a".to_owned()
                }
            },
            ColumnProblem {
                column: "s.A".to_owned(),
                kind: ColumnProblemKind::NoColumnType {
                    pipeline: "NULL".to_owned(),
                    remedy: "cast it to another type in the query",
                }
            },
        ]
    );
}

#[test]
fn a_table_is_made_for_intervals_and_maps_and_for_structs_15_deep() {
    let entry = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ];
    let map = DataType::Map(
        Arc::new(Field::new("entries", DataType::Struct(entry.into()), false)),
        false,
    );
    let runs = DataType::RunEndEncoded(
        Arc::new(Field::new("run_ends", DataType::Int32, false)),
        Arc::new(Field::new("values", DataType::Date32, true)),
    );
    let input = schema(vec![
        Field::new("took", DataType::Interval(IntervalUnit::MonthDayNano), true),
        Field::new("waited", DataType::Duration(TimeUnit::Nanosecond), false),
        Field::new("counts", map, true),
        Field::new("day", runs, true),
    ]);
    let made = table_schema_for(&input).unwrap();
    assert_eq!(
        made,
        table(vec![
            column("took", Type::Interval),
            required(column("waited", Type::Interval)),
            repeated(record(
                "counts",
                vec![
                    required(column("key", Type::String)),
                    column("value", Type::Int64)
                ]
            )),
            column("day", Type::Date),
        ])
    );
    RowEncoder::new(&input, &made, TRUNCATE).unwrap();

    let nested = |levels: usize| {
        let inner = (1..levels).fold(strukt(vec![("s", DataType::Int64)]), |inner, _| {
            strukt(vec![("s", list(inner))])
        });
        schema(vec![Field::new("s", inner, true)])
    };
    let made = table_schema_for(&nested(15)).unwrap();
    RowEncoder::new(&nested(15), &made, TRUNCATE).unwrap();
    let told: Vec<String> = table_schema_for(&nested(16))
        .unwrap_err()
        .iter()
        .map(ColumnProblem::to_string)
        .collect();
    assert_eq!(
        told,
        [format!(
            "column `{}`: STRUCTs are nested more than 15 deep, BigQuery has no more; write fewer levels, or JSON",
            ["s"; 16].join(".")
        )]
    );
}
