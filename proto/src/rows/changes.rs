//! Columns of a table that are of another type than when their rows began to be written.

use std::collections::HashMap;

use arrow_schema::{DataType, Fields};

use super::types::{list_element, table_type};
use crate::wire::table_field_schema::{Mode, Type};
use crate::wire::{TableFieldSchema, TableSchema};

/// The columns that rows under a wire schema have values for, and of a STRUCT the fields.
pub(super) fn written(fields: &Fields, columns: &[TableFieldSchema]) -> Vec<TableFieldSchema> {
    let by_name: HashMap<&str, &DataType> = fields
        .iter()
        .map(|field| (field.name().as_str(), field.data_type()))
        .collect();
    let known = columns
        .iter()
        .filter_map(|column| Some((column, *by_name.get(column.name.as_str())?)));
    known
        .map(|(column, data_type)| TableFieldSchema {
            fields: match list_element(data_type).unwrap_or(data_type) {
                DataType::Struct(fields) => written(fields, &column.fields),
                _ => Vec::new(),
            },
            ..column.clone()
        })
        .collect()
}

/// Columns that are written and have another type now, each with both: `id, which was INT64 and is DATE now`. What only one of the two
/// tells is no change: BigQuery may tell of a table late, and less than all.
pub(super) fn retyped(written: &[TableFieldSchema], table: &TableSchema) -> Vec<String> {
    let mut found = Vec::new();
    compare("", written, &table.fields, &mut found);
    found
}

fn compare(path: &str, before: &[TableFieldSchema], now: &[TableFieldSchema], found: &mut Vec<String>) {
    let now: HashMap<String, &TableFieldSchema> = now
        .iter()
        .map(|column| (column.name.to_lowercase(), column))
        .collect();
    for before in before {
        let Some(now) = now.get(&before.name.to_lowercase()) else {
            continue;
        };
        let path = format!("{path}{}", before.name);
        if is_another(before, now) {
            let (before, now) = (table_type(before), table_type(now));
            found.push(format!("{path}, which was {before} and is {now} now"));
        } else {
            compare(&format!("{path}."), &before.fields, &now.fields, found);
        }
    }
}

fn is_another(before: &TableFieldSchema, now: &TableFieldSchema) -> bool {
    let is_repeated = |column: &TableFieldSchema| column.mode() == Mode::Repeated;
    let of_range =
        |column: &TableFieldSchema| column.range_element_type.as_ref().map(|element| element.r#type);
    now.r#type() != Type::Unspecified
        && (before.r#type() != now.r#type()
            || is_repeated(before) != is_repeated(now)
            || (of_range(now).is_some() && of_range(before) != of_range(now)))
}

#[cfg(test)]
mod tests {
    use arrow_schema::Field;

    use super::*;
    use crate::rows::TableType;

    fn schema(fields: Vec<TableFieldSchema>) -> TableSchema {
        TableSchema { fields }
    }

    fn array(mut column: TableFieldSchema) -> TableFieldSchema {
        column.mode = Mode::Repeated.into();
        column
    }

    fn record(name: &str, fields: Vec<TableFieldSchema>) -> TableFieldSchema {
        let mut column = TableType::Struct.column(name);
        column.fields = fields;
        column
    }

    #[test]
    fn other_types_are_named_with_their_path() {
        let before = [
            TableType::Int64.column("id"),
            TableType::Numeric.column("price"),
            TableType::String.column("tags"),
            TableType::RangeOfDate.column("valid"),
            record(
                "place",
                vec![
                    TableType::Datetime.column("since"),
                    TableType::Int64.column("floor"),
                ],
            ),
        ];
        let now = schema(vec![
            TableType::Date.column("ID"),
            TableType::BigNumeric.column("price"),
            array(TableType::String.column("tags")),
            TableType::RangeOfDatetime.column("valid"),
            record(
                "place",
                vec![TableType::Int64.column("since"), TableType::Int64.column("floor")],
            ),
        ]);
        let expected = [
            "id, which was INT64 and is DATE now",
            "price, which was NUMERIC and is BIGNUMERIC now",
            "tags, which was STRING and is ARRAY<STRING> now",
            "valid, which was RANGE<DATE> and is RANGE<DATETIME> now",
            "place.since, which was DATETIME and is INT64 now",
        ];
        assert_eq!(retyped(&before, &now), expected);
    }

    #[test]
    fn fields_that_are_not_written_may_be_of_any_type() {
        let city = Fields::from(vec![Field::new("city", DataType::Utf8, true)]);
        let places = Field::new("item", DataType::Struct(city.clone()), true);
        let wire = Fields::from(vec![
            Field::new("place", DataType::Struct(city), true),
            Field::new("places", DataType::List(places.into()), true),
        ]);
        let table = |city: TableType, floor: TableType| {
            let fields = || vec![city.column("city"), floor.column("floor")];
            vec![
                record("place", fields()),
                array(record("places", fields())),
                floor.column("another"),
            ]
        };
        let before = written(&wire, &table(TableType::String, TableType::Int64));
        let names = before.iter().map(|column| column.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["place", "places"]);
        let now = schema(table(TableType::String, TableType::String));
        assert_eq!(retyped(&before, &now), [""; 0]);
        let now = schema(table(TableType::Bytes, TableType::Int64));
        let expected = [
            "place.city, which was STRING and is BYTES now",
            "places.city, which was STRING and is BYTES now",
        ];
        assert_eq!(retyped(&before, &now), expected);
    }

    #[test]
    fn what_only_one_of_them_tells_is_no_change() {
        let mut picoseconds = TableType::TimestampPicoseconds.column("at");
        picoseconds.mode = Mode::Required.into();
        let before = [
            picoseconds,
            TableType::String.column("name"),
            TableType::RangeOfDate.column("valid"),
            record("place", vec![TableType::Int64.column("floor")]),
            TableType::Int64.column("late"),
        ];
        let mut name = TableType::String.column("name");
        name.max_length = 3;
        let mut valid = TableType::RangeOfDate.column("valid");
        valid.range_element_type = None;
        let now = schema(vec![
            TableType::Timestamp.column("at"),
            name,
            valid,
            record("place", vec![]),
            TableType::Bool.column("another"),
        ]);
        assert_eq!(retyped(&before, &now), [""; 0]);
    }
}
