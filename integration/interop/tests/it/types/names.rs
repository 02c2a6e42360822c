//! Names of columns: matched without regard to case, written as the table spells them, whatever letters they have.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_schema::{Field, Schema};
use bigquery_write_proto::rows::{Format, RowEncoder, TableType, table_schema_for};
use bigquery_write_proto::wire::TableFieldSchema;
use serde_json::json;

use super::world::{World, column, named, struct_of, table_schema, truncating};

/// One row of numbers, 1 in the first column, 2 in the second and so on.
fn numbers(names: &[&str]) -> RecordBatch {
    let columns = (1..).zip(names).map(|(number, name)| {
        let array: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        (*name, array, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn integers(names: &[&str]) -> Vec<TableFieldSchema> {
    let integer = |name: &&str| named(name, column(TableType::Int64));
    names.iter().map(integer).collect()
}

/// What is said of a batch's columns for a table of these.
fn problems(batch: &RecordBatch, table: &[&str]) -> Vec<String> {
    let made = RowEncoder::new(&batch.schema(), &table_schema(integers(table)), truncating());
    let problems = made.map(drop).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn any_name_that_a_table_has_is_written_in_both_formats() {
    let long = "x".repeat(300);
    let table = [
        "naïve-col",
        "ID",
        "größe",
        "名前",
        "a b&c%=+:'<>#|",
        "1st",
        "Ключ",
        &long,
    ];
    let pipeline = [
        "NAÏVE-COL",
        "id",
        "GRÖßE",
        "名前",
        "A b&C%=+:'<>#|",
        "1ST",
        "кЛЮЧ",
        &long.to_uppercase(),
    ];
    let mut world = World::new();
    for format in [Format::Arrow, Format::Proto] {
        let name = world.table(integers(&table));
        world.append(&name, &numbers(&pipeline), format);
        assert_eq!(
            world.rows(&name).await,
            json!([["1", "2", "3", "4", "5", "6", "7", "8"]]),
            "{format:?}"
        );
        let told = world.told(&name).fields;
        let told: Vec<&str> = told.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(told, table, "names stay as the table spells them");
    }
}

#[tokio::test]
async fn two_structs_have_fields_of_the_same_name() {
    let inner = |numbers: Vec<i64>| {
        let array: ArrayRef = Arc::new(Int64Array::from(numbers));
        Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("V-1", array.data_type().clone(), true)),
            array,
        )])) as ArrayRef
    };
    let batch =
        RecordBatch::try_from_iter_with_nullable([("b", inner(vec![2]), true), ("a", inner(vec![1]), true)]);
    let field = |name: &str| named(name, struct_of(&["v-1"], &[column(TableType::Int64)]));
    let mut world = World::new();
    for format in [Format::Arrow, Format::Proto] {
        let name = world.table(vec![field("a"), field("b")]);
        world.append(&name, batch.as_ref().unwrap(), format);
        assert_eq!(
            world.rows(&name).await,
            json!([[{ "f": [{ "v": "1" }] }, { "f": [{ "v": "2" }] }]]),
            "{format:?}"
        );
    }
}

#[test]
fn names_of_which_case_makes_one_are_refused_before_the_first_row() {
    let one = |first: &str, second: &str| {
        [format!(
            "column `{second}`: BigQuery does not tell it from `{first}`, names differ in case only; rename one of them"
        )]
    };
    assert_eq!(problems(&numbers(&["Id", "id"]), &["id"]), one("Id", "id"));
    assert_eq!(problems(&numbers(&["Ä", "ä"]), &["ä"]), one("Ä", "ä"));
    // Final sigma is another letter in lower case, as it is in Unicode's mapping.
    assert_eq!(
        problems(&numbers(&["ΟΔΟΣ", "οδος"]), &["οδος"]),
        one("ΟΔΟΣ", "οδος")
    );
    let said = "the pipeline writes BIGINT, the table has no such column; add it to the table, or rename or drop it in the query";
    // Composed and decomposed are two names, and ß is no ss.
    for (name, other) in [("naïve", "nai\u{308}ve"), ("straße", "STRASSE")] {
        assert_eq!(
            problems(&numbers(&[name, other]), &[name]),
            [format!("column `{other}`: {said}")]
        );
    }
}

#[test]
fn names_that_bigquery_keeps_or_cannot_hold_make_no_table() {
    let long = "ä".repeat(301);
    for (name, reason) in [
        ("_PARTITIONTIME", "the prefix _PARTITION is reserved"),
        ("_Table_x", "the prefix _TABLE_ is reserved"),
        ("_file_name", "the prefix _FILE_ is reserved"),
        ("_ROW_TIMESTAMP", "the prefix _ROW_TIMESTAMP is reserved"),
        ("__root__", "the prefix __ROOT__ is reserved"),
        ("_ColIdentifier", "the prefix _COLIDENTIFIER is reserved"),
        ("_CHANGE_TYPE", "the prefix _CHANGE_ is reserved"),
        ("", "it is empty"),
        ("a.b", "'.' is not allowed"),
        ("count(*)", "'(' is not allowed"),
        ("a\nb", "'\\n' is not allowed"),
        (&long, "it is longer than 300 characters"),
    ] {
        let words =
            format!("column `{name}`: BigQuery does not take this name: {reason}; rename it in the query");
        let input = Arc::new(Schema::new(vec![Field::new(
            name,
            arrow_schema::DataType::Int64,
            true,
        )]));
        let made = table_schema_for(&input).unwrap_err();
        let made: Vec<String> = made.iter().map(ToString::to_string).collect();
        assert_eq!(made, std::slice::from_ref(&words));
        // Nor can a table that exists be given such a column.
        assert_eq!(problems(&numbers(&[name]), &["id"]), [words]);
    }
}
