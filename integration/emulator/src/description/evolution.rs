//! How the columns of a table may change: columns are added, REQUIRED ones become NULLABLE, and nothing else.

use super::Invalid;
use crate::catalog::TableRef;
use crate::schema::{Column, Kind, Mode, Schema};

/// The columns as they become: those that are there in their order and spelling, then the added ones.
///
/// # Errors
/// Google's text, with the path of the field.
pub(super) fn check(table: &TableRef, old: &Schema, new: Schema) -> Result<Schema, Invalid> {
    let columns = evolve(&old.columns, new.columns, "");
    columns
        .map(|columns| Schema { columns })
        .map_err(|reason| Invalid(format!("Provided Schema does not match Table {table}. {reason}")))
}

fn evolve(old: &[Column], mut new: Vec<Column>, within: &str) -> Result<Vec<Column>, String> {
    let mut columns = Vec::with_capacity(new.len());
    for column in old {
        let path = format!("{within}{}", column.name);
        let Some(i) = new.iter().position(|other| other.is_named(&column.name)) else {
            return Err(format!("Field {path} is missing in new schema"));
        };
        columns.push(change(column, new.remove(i), &path)?);
    }
    if let Some(required) = new.iter().find(|column| column.mode == Mode::Required) {
        let name = &required.name;
        return Err(format!(
            "Cannot add required fields to an existing schema. (field: {within}{name})"
        ));
    }
    columns.append(&mut new);
    Ok(columns)
}

fn change(old: &Column, new: Column, path: &str) -> Result<Column, String> {
    let kind = match (&old.kind, new.kind) {
        (Kind::Struct(before), Kind::Struct(after)) => {
            Kind::Struct(evolve(before, after, &format!("{path}."))?)
        }
        (before, after) if *before == after => after,
        (before, after) => {
            let (mut from, mut to) = (before.rest_name().to_owned(), after.rest_name().to_owned());
            if from == to {
                (from, to) = (before.sql_type(), after.sql_type());
            }
            return Err(format!("Field {path} has changed type from {from} to {to}"));
        }
    };
    match (old.mode, new.mode) {
        (before, after) if before == after => {}
        (Mode::Required, Mode::Nullable) => {}
        (before, after) => {
            let (before, after) = (before.rest_name(), after.rest_name());
            return Err(format!("Field {path} has changed mode from {before} to {after}"));
        }
    }
    Ok(Column {
        name: old.name.clone(),
        kind,
        ..new
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Kind {
        Kind::String { max_length: None }
    }

    fn run(old: Vec<Column>, new: Vec<Column>) -> Result<Vec<Column>, String> {
        let schema = |columns| Schema { columns };
        let changed = check(&TableRef::new("p", "d", "t"), &schema(old), schema(new));
        changed.map(|schema| schema.columns).map_err(|error| error.0)
    }

    #[test]
    fn columns_are_added_at_the_end_and_inside_structs_and_required_ones_become_nullable() {
        let place = |fields| Column::new("place", Kind::Struct(fields), Mode::Repeated);
        let city = |mode| Column::new("city", text(), mode);
        let id = |name: &str, mode| Column::new(name, Kind::Int64, mode);
        let old = vec![id("Id", Mode::Required), place(vec![city(Mode::Required)])];
        let tags = Column::new("tags", text(), Mode::Repeated);
        let height = Column::new("height", Kind::Float64, Mode::Nullable);
        // What is new may have REQUIRED fields of its own.
        let origin = Column::new("origin", Kind::Struct(vec![city(Mode::Required)]), Mode::Nullable);
        let new = vec![
            tags.clone(),
            place(vec![height.clone(), city(Mode::Nullable)]),
            origin.clone(),
            Column {
                description: "key".to_owned(),
                ..id("ID", Mode::Nullable)
            },
        ];
        let want = vec![
            Column {
                description: "key".to_owned(),
                ..id("Id", Mode::Nullable)
            },
            place(vec![city(Mode::Nullable), height]),
            tags,
            origin,
        ];
        assert_eq!(run(old, new), Ok(want));
    }

    #[test]
    fn every_other_change_is_refused_with_googles_text() {
        let a = |kind, mode| vec![Column::new("a", kind, mode)];
        let s = |fields| a(Kind::Struct(fields), Mode::Nullable);
        let null = Mode::Nullable;
        for (old, new, reason) in [
            (a(text(), null), vec![], "Field a is missing in new schema"),
            (
                s(a(text(), null)),
                s(vec![]),
                "Field a.a is missing in new schema",
            ),
            (
                a(text(), null),
                a(Kind::Int64, null),
                "Field a has changed type from STRING to INTEGER",
            ),
            (
                s(a(Kind::Float64, null)),
                s(s(vec![])),
                "Field a.a has changed type from FLOAT to RECORD",
            ),
            (
                a(text(), null),
                a(Kind::String { max_length: Some(3) }, null),
                "Field a has changed type from STRING to STRING(3)",
            ),
            (
                a(text(), null),
                a(text(), Mode::Required),
                "Field a has changed mode from NULLABLE to REQUIRED",
            ),
            (
                a(text(), Mode::Required),
                a(text(), Mode::Repeated),
                "Field a has changed mode from REQUIRED to REPEATED",
            ),
            (
                vec![],
                a(text(), Mode::Required),
                "Cannot add required fields to an existing schema. (field: a)",
            ),
            (
                s(vec![]),
                s(a(text(), Mode::Required)),
                "Cannot add required fields to an existing schema. (field: a.a)",
            ),
        ] {
            let want = format!("Provided Schema does not match Table p:d.t. {reason}");
            assert_eq!(run(old, new), Err(want));
        }
    }
}
