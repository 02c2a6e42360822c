//! What a request says of its messages.

use super::*;

#[test]
fn every_type_is_described_as_googles_clients_do() {
    let stamp = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
    let types = [
        (DataType::Boolean, Type::Bool),
        (DataType::Int64, Type::Int64),
        (DataType::Float64, Type::Double),
        (DataType::Utf8, Type::String),
        (DataType::Binary, Type::Bytes),
        (DataType::Date32, Type::Int32),
        (DataType::Time64(TimeUnit::Microsecond), Type::Int64),
        (stamp(TimeUnit::Microsecond, None), Type::Int64),
        (stamp(TimeUnit::Microsecond, Some("UTC")), Type::Int64),
        (stamp(TimeUnit::Nanosecond, Some("UTC")), Type::String),
        (
            DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano),
            Type::String,
        ),
        (DataType::Decimal128(38, 9), Type::Bytes),
        (DataType::Decimal256(76, 38), Type::Bytes),
    ];
    let fields: Fields = (0..)
        .zip(&types)
        .map(|(at, (wire, _))| Field::new(format!("c{at}"), wire.clone(), true))
        .collect();
    let (_, descriptor) = described(&Schema::new(fields), Vec::new());
    let expected = DescriptorProto {
        name: Some("Row".to_owned()),
        field: (0..)
            .zip(&types)
            .map(|(at, (_, r#type))| described_field(&format!("c{at}"), at + 1, Label::Optional, *r#type))
            .collect(),
        ..Default::default()
    };
    assert_eq!(descriptor, expected);
}

#[test]
fn a_required_column_is_required_unless_it_has_a_default() {
    let wire = Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Int64, true),
        Field::new("c", DataType::Int64, true),
        Field::new("d", DataType::new_list(DataType::Int64, true), true),
        Field::new("e", DataType::new_list(DataType::Utf8, true), true),
    ]);
    let defaulted = TableFieldSchema {
        default_value_expression: "7".to_owned(),
        ..column("c", Mode::Required, vec![])
    };
    let columns = vec![
        column("e", Mode::Repeated, vec![]),
        column("b", Mode::Required, vec![]),
        defaulted,
        column("a", Mode::Nullable, vec![]),
        column("unwritten", Mode::Nullable, vec![]),
    ];
    let (_, descriptor) = described(&wire, columns);
    let mut packed = described_field("d", 4, Label::Repeated, Type::Int64);
    packed.options = Some(FieldOptions {
        packed: Some(true),
        ..Default::default()
    });
    let expected = [
        described_field("a", 1, Label::Optional, Type::Int64),
        described_field("b", 2, Label::Required, Type::Int64),
        described_field("c", 3, Label::Optional, Type::Int64),
        packed,
        described_field("e", 5, Label::Repeated, Type::String),
    ];
    assert_eq!(descriptor.field, expected);
}

#[test]
fn structs_of_one_name_have_messages_of_their_own() {
    let nested = |inner: DataType| DataType::Struct(vec![Field::new("place", inner, true)].into());
    let wire = Schema::new(vec![
        Field::new("Struct1", nested(DataType::Int64), true),
        Field::new(
            "b",
            DataType::new_list(nested(nested(DataType::Utf8)), true),
            true,
        ),
        Field::new("struct2", DataType::Boolean, true),
    ]);
    let required = column(
        "Struct1",
        Mode::Nullable,
        vec![column("place", Mode::Required, vec![])],
    );
    let (_, descriptor) = described(&wire, vec![required]);
    let message = |name: &str, field: FieldDescriptorProto| DescriptorProto {
        name: Some(name.to_owned()),
        field: vec![field],
        ..Default::default()
    };
    let of_type = |field: FieldDescriptorProto, name: &str| FieldDescriptorProto {
        type_name: Some(name.to_owned()),
        ..field
    };
    let expected = DescriptorProto {
        name: Some("Row".to_owned()),
        field: vec![
            of_type(
                described_field("Struct1", 1, Label::Optional, Type::Message),
                "Struct1_",
            ),
            of_type(described_field("b", 2, Label::Repeated, Type::Message), "Struct3"),
            described_field("struct2", 3, Label::Optional, Type::Bool),
        ],
        nested_type: vec![
            message(
                "Struct1_",
                described_field("place", 1, Label::Required, Type::Int64),
            ),
            message(
                "Struct2_",
                described_field("place", 1, Label::Optional, Type::String),
            ),
            message(
                "Struct3",
                of_type(
                    described_field("place", 1, Label::Optional, Type::Message),
                    "Struct2_",
                ),
            ),
        ],
        ..Default::default()
    };
    assert_eq!(descriptor, expected);
}

#[test]
fn a_name_that_no_field_can_have_is_an_annotation() {
    // write-api.md 1.2, 5.4; reports.md 76.
    let wire = Schema::new(vec![
        Field::new("plain_1", DataType::Int64, true),
        Field::new("naïve-col", DataType::Int64, true),
        Field::new("COL_2", DataType::Int64, true),
        Field::new("1st", DataType::new_list(DataType::Int64, true), true),
    ]);
    let (bytes, descriptor) = described(&wire, Vec::new());
    let names: Vec<_> = descriptor.field.iter().map(|field| field.name()).collect();
    assert_eq!(names, ["plain_1", "col_2_", "COL_2", "col_4"]);
    // Extension 454943157 of FieldOptions, a string; packed is field 2.
    let annotation = |name: &str| {
        let mut bytes = hex("aa9bbcc70d");
        bytes.push(name.len() as u8);
        bytes.extend(name.bytes());
        bytes
    };
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let [naive, first] = ["naïve-col", "1st"].map(annotation);
    assert!(holds(&[&[0x42, naive.len() as u8], &naive[..]].concat()));
    assert!(holds(
        &[&[0x42, first.len() as u8 + 2, 0x10, 1], &first[..]].concat()
    ));
    assert!(!holds(&annotation("plain_1")) && !holds(&annotation("COL_2")));
}

#[test]
fn numbers_that_protobuf_keeps_are_left_out() {
    let fields: Fields = (0..19_001)
        .map(|at| Field::new(format!("c{at}"), DataType::Boolean, true))
        .collect();
    let (_, descriptor) = described(&Schema::new(fields), Vec::new());
    let numbers: Vec<_> = descriptor.field.iter().map(|field| field.number()).collect();
    assert_eq!(numbers[18_997..], [18_998, 18_999, 20_000, 20_001]);
}

#[test]
fn a_type_of_no_wire_schema_is_named() {
    let inner = DataType::Struct(vec![Field::new("b", DataType::LargeUtf8, true)].into());
    let wire = Schema::new(vec![Field::new("a", inner, true)]);
    let error = Messages::new(&wire, &TableSchema::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column b has the type LargeUtf8, which has no protobuf type"
    );
}
