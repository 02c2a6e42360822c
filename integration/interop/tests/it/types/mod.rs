//! Every type of a pipeline into every type of a column: a batch in, JSON out, and what must come out written by hand.

mod names;
mod nested;
mod numbers;
mod symptoms;
mod texts;
mod times;
mod world;

use std::collections::HashSet;

use arrow_schema::Field;
use bigquery_write_proto::rows::{Format, Mapping, PipelineType, RowEncoder, TableType, Treatment, mapping};
use serde_json::{Value, json};

use world::{Case, World, array_of, column, struct_of, table_schema, truncating};

/// What is written where, by the columns' types.
fn cases() -> Vec<Case> {
    let mut cases = nulls();
    cases.extend(numbers::cases());
    cases.extend(texts::cases());
    cases.extend(times::cases());
    cases.extend(nested::cases());
    cases
}

/// A column that is nothing but NULL goes into all.
fn nulls() -> Vec<Case> {
    let into = |table: TableType| {
        let target = match table {
            TableType::Array => array_of(column(TableType::String)),
            TableType::Struct => {
                let inner = [column(TableType::Int64), array_of(column(TableType::Date))];
                struct_of(&["a", "b"], &inner)
            }
            plain => column(plain),
        };
        let nothing = if table == TableType::Array {
            json!([])
        } else {
            Value::Null
        };
        Case::new(target, arrow_array::NullArray::new(2), json!([nothing, nothing]))
    };
    TableType::ALL.iter().map(|&table| into(table)).collect()
}

/// Cells that have a case.
fn tested() -> HashSet<(PipelineType, TableType)> {
    cases().iter().map(Case::cell).collect()
}

#[tokio::test]
async fn every_value_arrives_as_it_was_in_both_formats() {
    let mut world = World::new();
    for case in cases() {
        for format in [Format::Arrow, Format::Proto] {
            let said = world.arrives(&case.column, &case.array, format).await;
            assert_eq!(said, case.expected, "{format:?} of {case}");
        }
    }
}

#[tokio::test]
async fn a_dictionary_and_runs_arrive_as_their_values() {
    let mut world = World::new();
    for case in cases() {
        for wrapped in [case.in_dictionary(), case.in_runs()].into_iter().flatten() {
            for format in [Format::Arrow, Format::Proto] {
                let said = world.arrives(&case.column, &wrapped, format).await;
                let kind = wrapped.data_type();
                assert_eq!(said, case.expected, "{format:?}: {kind} of {case}");
            }
        }
    }
}

#[test]
fn every_cell_that_is_written_has_a_case_and_every_case_its_cell() {
    let tested = tested();
    let written: HashSet<_> = mapping()
        .filter(|cell| matches!(cell.treatment, Treatment::Written { .. }))
        .map(|cell| (cell.pipeline, cell.table))
        .collect();
    let name = |(pipeline, table): &(PipelineType, TableType)| format!("{pipeline} into {table}");
    let untested: Vec<_> = written.difference(&tested).map(name).collect();
    assert!(untested.is_empty(), "cells without a case: {untested:#?}");
    let unwritten: Vec<_> = tested.difference(&written).map(name).collect();
    assert!(unwritten.is_empty(), "cases that are refused: {unwritten:#?}");
}

#[test]
fn every_other_cell_is_refused_with_both_types_and_a_remedy() {
    let tested = tested();
    let mut refused = 0;
    for Mapping { pipeline, table, .. } in mapping() {
        if tested.contains(&(pipeline, table)) {
            continue;
        }
        let target = match table {
            TableType::Array => array_of(column(TableType::Int64)),
            TableType::Struct => struct_of(&["a"], &[column(TableType::Int64)]),
            plain => column(plain),
        };
        let input = arrow_schema::Schema::new(vec![Field::new("x", pipeline.example(), true)]);
        let problems = RowEncoder::new(&input.into(), &table_schema(vec![target]), truncating()).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let [told] = told.as_slice() else {
            panic!("{pipeline} into {table}: {told:?}");
        };
        let begins = "column `x`: the pipeline writes ";
        assert!(told.starts_with(begins), "{pipeline} into {table}: {told}");
        let (types, remedy) = told[begins.len()..].split_once("; ").unwrap();
        let (_, into) = types.split_once(", the table has ").unwrap();
        let wanted = match table {
            TableType::Array => "ARRAY<INT64>".to_owned(),
            TableType::Struct => "STRUCT<a INT64>".to_owned(),
            plain => plain.to_string(),
        };
        assert_eq!(into, wanted, "{pipeline} into {table}");
        assert!(remedy.len() > 10, "{pipeline} into {table}: {told}");
        refused += 1;
    }
    assert_eq!(
        refused + tested.len(),
        PipelineType::ALL.len() * TableType::ALL.len()
    );
}
