//! The mapping table as a value: it agrees with itself, with what the encoder refuses, and with the page of the documentation.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use arrow_cast::can_cast_types;
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use bigquery_write_proto::rows::{
    ColumnProblemKind, Mapping, PipelineType, RowEncoder, TableType, Treatment, describe, mapping,
    mapping_lines,
};
use bigquery_write_proto::wire::TableFieldSchema;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::{TRUNCATE, column, range, record, repeated, schema, table};

/// A column `x` of the type; what it is of goes with the examples of structs, lists and maps.
fn target(table: TableType, pipeline: PipelineType) -> TableFieldSchema {
    let plain = |kind| column("x", kind);
    match table {
        TableType::Bool => plain(Type::Bool),
        TableType::Int64 => plain(Type::Int64),
        TableType::Float64 => plain(Type::Double),
        TableType::Numeric => plain(Type::Numeric),
        TableType::BigNumeric => plain(Type::Bignumeric),
        TableType::String => plain(Type::String),
        TableType::Bytes => plain(Type::Bytes),
        TableType::Date => plain(Type::Date),
        TableType::Time => plain(Type::Time),
        TableType::Datetime => plain(Type::Datetime),
        TableType::Timestamp => plain(Type::Timestamp),
        TableType::TimestampPicoseconds => TableFieldSchema {
            timestamp_precision: Some(12),
            ..plain(Type::Timestamp)
        },
        TableType::Interval => plain(Type::Interval),
        TableType::Json => plain(Type::Json),
        TableType::Geography => plain(Type::Geography),
        TableType::RangeOfDate => range(Type::Date),
        TableType::RangeOfDatetime => range(Type::Datetime),
        TableType::RangeOfTimestamp => range(Type::Timestamp),
        TableType::Struct => record("x", vec![column("a", Type::Int64)]),
        TableType::Array if pipeline == PipelineType::Map => repeated(record(
            "x",
            vec![column("key", Type::String), column("value", Type::Int64)],
        )),
        TableType::Array => repeated(plain(Type::Int64)),
    }
}

#[test]
fn the_encoder_takes_and_refuses_what_the_table_says() {
    let mut refused = 0;
    for Mapping {
        pipeline,
        table: kind,
        treatment,
        ..
    } in mapping()
    {
        let input = schema(vec![Field::new("x", pipeline.example(), true)]);
        let made = RowEncoder::new(&input, &table(vec![target(kind, pipeline)]), TRUNCATE);
        match (treatment, made) {
            (Treatment::Written { .. }, Ok(_)) => {}
            // The example's fields are not named so.
            (Treatment::Written { .. }, Err(problems))
                if pipeline == PipelineType::Struct && kind != TableType::Struct =>
            {
                assert!(
                    problems[0]
                        .to_string()
                        .ends_with("; name its two fields start and end")
                );
            }
            (Treatment::Refused { remedy }, Err(problems)) => {
                let ColumnProblemKind::Type { remedy: said, .. } = &problems[0].kind else {
                    panic!("{pipeline} into {kind}: {}", problems[0]);
                };
                assert_eq!(*said, remedy.replace("{name}", "x"), "{pipeline} into {kind}");
                refused += 1;
            }
            (treatment, made) => panic!("{pipeline} into {kind}: {treatment:?}, but {made:?}"),
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn every_example_is_of_its_type_and_every_cell_is_in_one_line() {
    for &pipeline in PipelineType::ALL {
        assert_eq!(PipelineType::of(&pipeline.example()), pipeline);
    }
    let cells = mapping().count();
    assert_eq!(cells, PipelineType::ALL.len() * TableType::ALL.len());
    let lines = mapping_lines();
    assert_eq!(
        lines
            .iter()
            .map(|line| line.pipeline.len() * line.table.len())
            .sum::<usize>(),
        cells
    );
}

#[test]
fn what_is_made_for_a_type_is_what_takes_it() {
    for cell in mapping().filter(|cell| cell.created) {
        assert!(matches!(cell.treatment, Treatment::Written { .. }), "{cell:?}");
    }
}

#[test]
fn the_documentation_is_the_table() {
    // UPDATE_EXPECT=1 writes it.
    expect_test::expect_file!["../../docs/types.md"].assert_eq(&describe());
}

/// The Arrow type that a cast of the pipeline's SQL makes.
fn cast_to(sql: &str) -> DataType {
    match sql {
        "BOOLEAN" => DataType::Boolean,
        "BIGINT" => DataType::Int64,
        "DOUBLE" => DataType::Float64,
        "TEXT" => DataType::Utf8,
        "BYTEA" => DataType::Binary,
        "DATE" => DataType::Date32,
        "TIME" => DataType::Time64(TimeUnit::Nanosecond),
        "TIMESTAMP" => DataType::Timestamp(TimeUnit::Nanosecond, None),
        "DECIMAL(38, 9)" => DataType::Decimal128(38, 9),
        "INTERVAL" => DataType::Interval(IntervalUnit::MonthDayNano),
        other => panic!("{other} is no type of a remedy"),
    }
}

#[test]
fn a_cast_that_is_the_remedy_can_be_made_and_its_type_is_taken() {
    let mut casts = 0;
    let mut wrong = Vec::new();
    for cell in mapping() {
        let Treatment::Refused { remedy } = cell.treatment else {
            continue;
        };
        let Some(sql) = remedy.strip_prefix("cast it, for example CAST({name} AS ") else {
            continue;
        };
        let to = cast_to(sql.strip_suffix(')').unwrap());
        let taken = mapping()
            .find(|other| other.table == cell.table && other.pipeline == PipelineType::of(&to))
            .is_some_and(|other| matches!(other.treatment, Treatment::Written { .. }));
        assert!(taken, "{to} into {}", cell.table);
        if !can_cast_types(&cell.pipeline.example(), &to) {
            wrong.push(format!("{} to {to} for {}", cell.pipeline, cell.table));
        }
        casts += 1;
    }
    assert!(casts > 100, "{casts}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
