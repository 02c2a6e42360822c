//! Which descriptors are taken, and what is said of the others (write-api.md 5.4).

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto};

use super::encode::{bytes, enumeration, message, optional, repeated, typed};
use crate::machine::Switches;
use crate::rows::proto::descriptor::{Descriptor, FieldKind};

fn refused(descriptor: &DescriptorProto) -> String {
    let read = Descriptor::read(&descriptor.encode_to_vec(), &Switches::default());
    read.unwrap_err().to_string()
}

/// The text about the one field `a` of message `Row`.
fn refused_field(field: FieldDescriptorProto) -> String {
    let text = refused(&message("Row", vec![field]));
    let short = text.strip_prefix("Invalid proto schema: BqMessage.proto: Row.a: ");
    short.unwrap_or(&text).to_owned()
}

#[test]
fn names_are_resolved_from_the_inside_out() {
    // Row { In { In {}  x: In, y: .Row.In, z: Row.In.In, e: E }  E }
    let mut inner = message(
        "In",
        vec![
            typed("x", 1, Type::Message, "In"),
            typed("z", 3, Type::Message, "Row.In.In"),
            typed("e", 4, Type::Enum, "E"),
        ],
    );
    inner
        .nested_type
        .push(message("In", vec![optional("deep", 1, Type::Int64)]));
    // Without a type it is that of the name.
    let untyped = FieldDescriptorProto {
        r#type: None,
        ..typed("u", 3, Type::Message, "In.In")
    };
    let mut row = message(
        "Row",
        vec![
            typed("in", 1, Type::Message, "In"),
            typed("y", 2, Type::Message, ".Row.In"),
            untyped,
        ],
    );
    row.nested_type.push(inner);
    row.enum_type.push(enumeration("E", &[("ONE", 1)]));
    let read = Descriptor::read(&row.encode_to_vec(), &Switches::default()).unwrap();
    let kinds = |at: usize| {
        read.message(at)
            .fields
            .iter()
            .map(|field| field.kind)
            .collect::<Vec<_>>()
    };
    let (outer, deep) = (FieldKind::Message(1), FieldKind::Message(2));
    assert_eq!(kinds(0), [outer, outer, deep]);
    assert_eq!(kinds(1), [deep, deep, FieldKind::Enum(0)]);
    assert_eq!(read.name(2), "Row.In.In");
}

#[test]
fn faults_are_told_with_their_place() {
    let field = |kind| optional("a", 1, kind);
    for (field, text) in [
        (typed("a", 1, Type::Message, "X"), "\"X\" is not defined."),
        (typed("a", 1, Type::Enum, ".Row.X"), "\".Row.X\" is not defined."),
        (typed("a", 1, Type::Message, "Row.a"), "\"Row.a\" is not defined."),
        (
            typed("a", 1, Type::Enum, "Row"),
            "\"Row\" is not of the field's type.",
        ),
        (typed("a", 1, Type::Int64, "Row"), "a scalar has a type_name."),
        (field(Type::Message), "the type is missing or unknown."),
        (field(Type::Enum), "the type is missing or unknown."),
        (field(Type::Group), "groups are not supported."),
        (
            FieldDescriptorProto {
                r#type: Some(99),
                ..field(Type::Int64)
            },
            "the type is missing or unknown.",
        ),
        (
            FieldDescriptorProto {
                r#type: None,
                ..field(Type::Int64)
            },
            "the type is missing or unknown.",
        ),
        (
            FieldDescriptorProto {
                label: Some(4),
                ..field(Type::Int64)
            },
            "the label is unknown.",
        ),
        (
            optional("a", 0, Type::Int64),
            "the number is not one that a field may have.",
        ),
        (
            optional("a", -1, Type::Int64),
            "the number is not one that a field may have.",
        ),
        (
            optional("a", 19_500, Type::Int64),
            "the number is not one that a field may have.",
        ),
        (
            optional("a", 536_870_912, Type::Int64),
            "the number is not one that a field may have.",
        ),
        (
            FieldDescriptorProto {
                extendee: Some("X".to_owned()),
                ..field(Type::Int64)
            },
            "extensions are not supported.",
        ),
        (
            FieldDescriptorProto {
                oneof_index: Some(0),
                ..field(Type::Int64)
            },
            "proto3_optional or oneof_index is set, but rows are read as proto2: clear them.",
        ),
        (
            FieldDescriptorProto {
                default_value: Some("x".to_owned()),
                ..field(Type::Int64)
            },
            "the default_value is not one of the field's type.",
        ),
        (
            FieldDescriptorProto {
                default_value: Some("1".to_owned()),
                ..repeated("a", 1, Type::Int64)
            },
            "the default_value is not one of the field's type.",
        ),
        (
            FieldDescriptorProto {
                default_value: Some("1".to_owned()),
                ..typed("a", 1, Type::Message, "Row")
            },
            "the default_value is not one of the field's type.",
        ),
    ] {
        assert_eq!(refused_field(field), text);
    }
}

#[test]
fn faults_of_messages_and_enums_are_told_too() {
    let line = |text: &str| format!("Invalid proto schema: {text}");
    assert_eq!(
        refused(&message("", Vec::new())),
        line("BqMessage.proto: : Missing name.")
    );
    assert_eq!(
        refused(&message("Row.X", Vec::new())),
        line("BqMessage.proto: Row.X: the name is not one of letters, digits and underscores.")
    );
    let twice = message(
        "Row",
        vec![optional("a", 1, Type::Int64), optional("a", 1, Type::Bool)],
    );
    assert_eq!(
        refused(&twice),
        line("BqMessage.proto: Row.a: the name is taken.\nBqMessage.proto: Row.a: the number 1 is taken.")
    );
    let mut clash = message(
        "Row",
        vec![optional("E", 1, Type::Int64), optional("A", 2, Type::Int64)],
    );
    clash.enum_type.push(enumeration("E", &[("A", 0)]));
    assert_eq!(
        refused(&clash),
        line("BqMessage.proto: Row.E: the name is taken.\nBqMessage.proto: Row.A: the name is taken.")
    );
    let mut empty = message("Row", Vec::new());
    empty.enum_type.push(enumeration("E", &[]));
    assert_eq!(
        refused(&empty),
        line("BqMessage.proto: Row.E: an enum needs a value.")
    );
    let mut extended = message("Row", Vec::new());
    extended.extension.push(optional("x", 1, Type::Int64));
    assert_eq!(
        refused(&extended),
        line("BqMessage.proto: Row: extensions are not supported.")
    );
    let many = (1..=100).map(|number| typed(&format!("f{number}"), number, Type::Message, "X"));
    assert_eq!(refused(&message("Row", many.collect())).lines().count(), 20);
}

#[test]
fn a_message_that_holds_itself_is_refused() {
    let direct = message("Row", vec![typed("a", 1, Type::Message, "Row")]);
    assert_eq!(
        refused(&direct),
        "Invalid proto schema: BqMessage.proto: Row: the message holds itself, which no table can."
    );
    let mut indirect = message("Row", vec![typed("a", 1, Type::Message, "A")]);
    indirect.nested_type = vec![
        message("A", vec![typed("b", 1, Type::Message, "B")]),
        message("B", vec![typed("a", 1, Type::Message, "A")]),
    ];
    assert_eq!(
        refused(&indirect),
        "Invalid proto schema: BqMessage.proto: Row: the message holds itself, which no table can."
    );
}

/// Messages M0 to M`last`, each of which holds the next, twice.
fn chain(last: usize) -> DescriptorProto {
    let fields = |at: usize| match at {
        at if at == last => vec![optional("x", 1, Type::Int64)],
        at => {
            let next = format!("M{}", at + 1);
            vec![
                typed("a", 1, Type::Message, &next),
                typed("b", 2, Type::Message, &next),
            ]
        }
    };
    let mut row = message("M0", fields(0));
    row.nested_type = (1..=last)
        .map(|at| message(&format!("M{at}"), fields(at)))
        .collect();
    row
}

#[test]
fn messages_nest_as_deep_as_structs_do() {
    Descriptor::read(&chain(15).encode_to_vec(), &Switches::default()).unwrap();
    for last in [16, 40, 5000] {
        let text = refused(&chain(last));
        assert!(
            text.ends_with(": messages are nested more than 15 deep."),
            "{text}"
        );
    }
}

#[test]
fn types_nest_as_deep_as_protobuf_has_them() {
    let nested = |depth: usize| {
        let mut row = message("M", Vec::new());
        for _ in 1..depth {
            let inner = std::mem::replace(&mut row, message("M", Vec::new()));
            row.nested_type.push(inner);
        }
        row
    };
    Descriptor::read(&nested(32).encode_to_vec(), &Switches::default()).unwrap();
    assert_eq!(
        refused(&nested(33)),
        "Invalid proto schema: BqMessage.proto: : the descriptor has types nested more than 32 deep."
    );
}

#[test]
fn what_is_no_descriptor_is_refused() {
    let refused = |bytes: &[u8]| {
        Descriptor::read(bytes, &Switches::default())
            .unwrap_err()
            .to_string()
    };
    let said = |text: &str| format!("Invalid proto schema: BqMessage.proto: : the descriptor {text}.");
    assert_eq!(refused(b"\x0a"), said("is no protobuf message: it is cut short"));
    assert_eq!(refused(b"\x0a\x01\xff"), said("has text that is not UTF-8"));
    assert_eq!(
        refused(&bytes(1, [b'a'; 2001])),
        said("has a name of more than 2000 bytes")
    );
    // Two bytes each.
    let many = b"\x1a\x00".repeat(200_000);
    assert_eq!(
        refused(&many),
        said("has more than 100000 fields, types and enum values")
    );
    let deep = (0..100_000).fold(Vec::new(), |inner, _| {
        if inner.len() < 60_000 {
            bytes(3, inner)
        } else {
            inner
        }
    });
    assert_eq!(refused(&deep), said("has types nested more than 32 deep"));
}
