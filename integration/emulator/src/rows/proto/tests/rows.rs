//! protobuf's own rules, in rows.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use prost_types::FieldDescriptorProto;
use prost_types::field_descriptor_proto::{Label, Type};

use super::encode::{bytes, enumeration, message, optional, repeated, typed, varint};
use super::{Outcome, read};
use crate::schema::{Column, Kind, Mode};
use crate::values::cell::Cell;

const STRING: Kind = Kind::String { max_length: None };

fn column(name: &str, kind: Kind) -> Column {
    Column::new(name, kind, Mode::Nullable)
}

/// Whether the columns hold these values, each list a column's.
fn holds(outcome: Outcome, columns: &[Column], cells: Vec<Vec<Cell>>) {
    let read = outcome.unwrap();
    for ((column, array), cells) in columns.iter().zip(read.columns).zip(cells) {
        assert_eq!(&array.unwrap(), &column.array(cells).unwrap(), "{}", column.name);
    }
}

#[test]
fn of_a_scalar_the_last_occurrence_counts_and_messages_are_merged() {
    let inner = vec![
        column("x", Kind::Int64),
        column("y", Kind::Int64),
        Column::new("l", Kind::Int64, Mode::Repeated),
    ];
    let columns = [column("n", Kind::Int64), column("s", Kind::Struct(inner))];
    let mut row = message(
        "Row",
        vec![optional("n", 1, Type::Int64), typed("s", 2, Type::Message, "S")],
    );
    row.nested_type.push(message(
        "S",
        vec![
            optional("x", 1, Type::Int64),
            optional("y", 2, Type::Int64),
            repeated("l", 3, Type::Int64),
        ],
    ));
    let sent = [
        varint(1, 1),
        bytes(2, [varint(1, 1), varint(2, 2), varint(3, 7)].concat()),
        varint(1, 2),
        bytes(2, [varint(2, 3), varint(3, 8)].concat()),
    ];
    // A message that is there but empty is not NULL.
    let rows = vec![sent.concat(), bytes(2, b""), Vec::new()];
    let list = |values: &[i64]| Cell::List(values.iter().map(|value| Cell::Int(*value)).collect());
    holds(
        read(&row, &columns, rows),
        &columns,
        vec![
            vec![Cell::Int(2), Cell::Null, Cell::Null],
            vec![
                Cell::Struct(vec![Cell::Int(1), Cell::Int(3), list(&[7, 8])]),
                Cell::Struct(vec![Cell::Null, Cell::Null, list(&[])]),
                Cell::Null,
            ],
        ],
    );
}

#[test]
fn repeated_messages_are_kept_apart() {
    let inner = vec![column("x", Kind::Int64), Column::new("l", STRING, Mode::Repeated)];
    let columns = [Column::new("s", Kind::Struct(inner), Mode::Repeated)];
    let field = FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..typed("s", 2, Type::Message, "S")
    };
    let mut row = message("Row", vec![field]);
    row.nested_type.push(message(
        "S",
        vec![
            FieldDescriptorProto {
                default_value: Some("-1".to_owned()),
                ..optional("x", 1, Type::Int64)
            },
            repeated("l", 2, Type::String),
        ],
    ));
    let first = [bytes(2, [varint(1, 1), bytes(2, "a")].concat()), bytes(2, b"")].concat();
    let last = bytes(2, [bytes(2, "b"), bytes(2, "c")].concat());
    let text = |texts: &[&str]| Cell::List(texts.iter().map(|text| Cell::Text((*text).to_owned())).collect());
    let element = |x: i64, texts: &[&str]| Cell::Struct(vec![Cell::Int(x), text(texts)]);
    holds(
        read(&row, &columns, vec![first, Vec::new(), last]),
        &columns,
        vec![vec![
            Cell::List(vec![element(1, &["a"]), element(-1, &[])]),
            Cell::List(Vec::new()),
            Cell::List(vec![element(-1, &["b", "c"])]),
        ]],
    );
}

#[test]
fn a_field_of_another_wire_type_is_an_unknown_one() {
    let columns = [column("n", Kind::Int64), column("s", STRING)];
    let mut row = message(
        "Row",
        vec![optional("n", 1, Type::Int64), optional("s", 2, Type::String)],
    );
    row.field[0].default_value = Some("5".to_owned());
    let group = b"\x0b\x08\x01\x0c".to_vec();
    let sent = [bytes(1, "x"), varint(2, 1), group].concat();
    holds(
        read(&row, &columns, vec![sent]),
        &columns,
        vec![vec![Cell::Int(5)], vec![Cell::Null]],
    );
}

#[test]
fn numbers_that_an_enum_lacks_are_passed_over() {
    let columns = [
        Column::new("n", Kind::Int64, Mode::Repeated),
        Column::new("s", STRING, Mode::Repeated),
    ];
    let many = |name: &str, number: i32| FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..typed(name, number, Type::Enum, "E")
    };
    let mut row = message("Row", vec![many("n", 1), many("s", 2)]);
    row.enum_type
        .push(enumeration("E", &[("A", 1), ("B", -2), ("ALIAS", 1)]));
    let sent = [bytes(1, b"\x01\x07"), varint(1, -2), varint(2, 7), varint(2, 1)].concat();
    holds(
        read(&row, &columns, vec![sent]),
        &columns,
        vec![
            vec![Cell::List(vec![Cell::Int(1), Cell::Int(-2)])],
            vec![Cell::List(vec![Cell::Text("A".to_owned())])],
        ],
    );
}

#[test]
fn bad_rows_are_named_with_their_fields_and_the_others_are_still_judged() {
    let inner = vec![
        Column::new("x", Kind::Int64, Mode::Required),
        column("t", Kind::String { max_length: Some(1) }),
    ];
    let columns = [
        column("n", Kind::Int64),
        Column::new("s", Kind::Struct(inner), Mode::Repeated),
        Column::new("r", STRING, Mode::Required),
    ];
    let field = FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..typed("s", 2, Type::Message, "S")
    };
    let mut row = message(
        "Row",
        vec![
            optional("n", 1, Type::Int64),
            field,
            optional("r", 3, Type::String),
        ],
    );
    row.nested_type.push(message(
        "S",
        vec![optional("x", 1, Type::Int64), optional("t", 2, Type::String)],
    ));
    let r = bytes(3, "r");
    let x = varint(1, 1);
    let rows = vec![
        r.clone(),
        // Cut short in the middle of the second element.
        [bytes(2, &x), b"\x12\x05\x08".to_vec()].concat(),
        [bytes(2, bytes(2, "a")), r.clone()].concat(),
        [
            bytes(2, &x),
            bytes(2, [x.clone(), bytes(2, "ab")].concat()),
            r.clone(),
        ]
        .concat(),
        Vec::new(),
        bytes(3, b"\xff"),
        [bytes(2, &x), r].concat(),
    ];
    let errors = read(&row, &columns, rows).unwrap_err();
    let said = |row: usize, text: &str| (row, text.to_owned());
    assert_eq!(
        errors,
        [
            said(1, "The row is no protobuf message: it is cut short."),
            said(2, "NULL value is not allowed on field s.x."),
            said(
                3,
                "Field s.t: STRING(1) has maximum length 1 but got a value with length 2 on field s.t."
            ),
            said(4, "NULL value is not allowed on field r."),
            said(5, "Invalid UTF-8 on field r."),
        ]
    );
}

#[test]
fn pseudo_columns_stand_beside_the_tables() {
    let columns = [column("n", Kind::Int64)];
    let row = message(
        "Row",
        vec![
            optional("_Change_Sequence_Number", 1, Type::String),
            optional("_CHANGE_TYPE", 2, Type::String),
            optional("n", 3, Type::Int64),
        ],
    );
    let rows = vec![
        [bytes(1, "A/0"), bytes(2, "UPSERT"), varint(3, 1)].concat(),
        varint(3, 2),
    ];
    let read = read(&row, &columns, rows).unwrap();
    assert_eq!(read.columns.len(), 1);
    let texts = |at: usize| -> Vec<Option<String>> {
        let array = read.pseudo[at].as_ref().unwrap();
        array
            .as_string::<i32>()
            .iter()
            .map(|text| text.map(str::to_owned))
            .collect()
    };
    assert_eq!(texts(0), [Some("UPSERT".to_owned()), None]);
    assert_eq!(texts(1), [Some("A/0".to_owned()), None]);
    // A table's own column of that name is one.
    let columns = [column("_CHANGE_TYPE", STRING)];
    let row = message("Row", vec![optional("_change_type", 2, Type::String)]);
    let own = super::read(&row, &columns, vec![bytes(2, "x")]).unwrap();
    assert_eq!(own.pseudo, [None, None]);
    assert_eq!(own.columns[0].as_ref().unwrap().len(), 1);
}
