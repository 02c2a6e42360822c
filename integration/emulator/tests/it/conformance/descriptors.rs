//! What a protobuf writer's descriptor says: names, types, defaults, proto2 (write-api.md 5.1, 5.4).

use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::schema::Kind;
use prost_types::field_descriptor_proto::Type as T;

use super::Fact;
use crate::message::{
    append, bytes, column, enumeration, message, optional, required, typed, varint, with_default,
};

const STRING: Kind = Kind::String { max_length: None };
const BYTES: Kind = Kind::Bytes { max_length: None };

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 5.1 (J:BQTableSchemaToProtoDescriptor)",
        says: "fields go to columns by name, whatever its case; their numbers are free",
        behaviour: Behaviour::FieldNamesIgnoreCase,
        script: || {
            let columns = vec![column("First", Kind::Int64), column("second", Kind::Int64)];
            let row = message(
                "Row",
                vec![optional("SECOND", 100, T::Int64), optional("first", 9, T::Int64)],
            );
            append(columns, &row, vec![[varint(100, 2), varint(9, 1)].concat()])
        },
        answers: &["appended", "First: 1, second: 2"],
    },
    Fact {
        source: "write-api.md 1.2 [DOC D:loading-data-cloud-storage-parquet]",
        says: "an annotated column name goes before the field's own",
        behaviour: Behaviour::ColumnNameAnnotation,
        script: || {
            use prost::Message;
            let annotation = bytes(454_943_157, "größe in m²");
            let mut field = optional("col_Z3JvZXNzZQ", 1, T::Int64).encode_to_vec();
            field.extend(bytes(8, annotation));
            let row = [bytes(1, "Row"), bytes(2, field)].concat();
            let mut w = crate::world::World::new();
            let table = w.table("w", "US", vec![column("Größe in m²", Kind::Int64)]);
            let c = w.open();
            let request = crate::message::raw_proto_request(
                crate::message::STREAM,
                None,
                Some(row),
                vec![varint(1, 3)],
            );
            let mut said = vec![crate::message::say(&mut w, c, &request)];
            said.extend(crate::message::visible(&w, &table));
            said
        },
        answers: &["appended", "Größe in m²: 3"],
    },
    Fact {
        source: "write-api.md 5.4 [DOC P; PROD python-bigquery-storage #257, #519]",
        says: "a descriptor holds every type that it names",
        behaviour: Behaviour::DescriptorSelfContained,
        script: || {
            let row = message(
                "protoSchema",
                vec![
                    typed("timestamp", 1, T::Message, ".google.protobuf.Timestamp"),
                    typed("kind", 2, T::Enum, "Kind"),
                ],
            );
            append(
                vec![column("timestamp", BYTES), column("kind", BYTES)],
                &row,
                Vec::new(),
            )
        },
        answers: &[
            "ended InvalidArgument: Invalid proto schema: BqMessage.proto: protoSchema.timestamp: \
             \".google.protobuf.Timestamp\" is not defined.\nBqMessage.proto: protoSchema.kind: \"Kind\" is not \
             defined. Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 5.4 [PROD python-bigquery-storage #726, #818]",
        says: "proto3's marks in a descriptor are refused",
        behaviour: Behaviour::Proto3MarksRefused,
        script: || {
            let mut row = message("Row", vec![optional("a", 1, T::Int64)]);
            row.field[0].proto3_optional = Some(true);
            row.field[0].oneof_index = Some(0);
            row.oneof_decl.push(prost_types::OneofDescriptorProto {
                name: Some("_a".to_owned()),
                options: None,
            });
            append(vec![column("a", Kind::Int64)], &row, vec![varint(1, 1)])
        },
        answers: &[
            "ended InvalidArgument: Invalid proto schema: BqMessage.proto: Row: oneof_decl is set, but rows are read as \
             proto2: clear it.\nBqMessage.proto: Row.a: proto3_optional or oneof_index is set, but rows are read as \
             proto2: clear them. Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 5.4 [PROD GIT \"proto2 default values\"]",
        says: "an optional field that a row lacks has the descriptor's default value",
        behaviour: Behaviour::ProtoDefaultsApply,
        script: || {
            let mut row = message(
                "Row",
                vec![
                    with_default(optional("d", 1, T::Double), "1.11"),
                    with_default(optional("i", 2, T::Int32), "3"),
                    with_default(optional("b", 3, T::Bool), "true"),
                    with_default(optional("s", 4, T::String), "custom default"),
                    with_default(optional("y", 5, T::Bytes), "optional bytes\\000"),
                    with_default(typed("e", 6, T::Enum, "E"), "OTHER"),
                    optional("n", 7, T::Int64),
                ],
            );
            row.enum_type.push(enumeration("E", &[("NONE", 0), ("OTHER", 2)]));
            let columns = vec![
                column("d", Kind::Float64),
                column("i", Kind::Int64),
                column("b", Kind::Bool),
                column("s", STRING),
                column("y", BYTES),
                column("e", Kind::Int64),
                column("n", Kind::Int64),
            ];
            append(columns, &row, vec![Vec::new()])
        },
        answers: &[
            "appended",
            "d: 1.11, i: 3, b: true, s: custom default, y: 6f7074696f6e616c20627974657300, e: 2, n: NULL",
        ],
    },
    Fact {
        source: "write-api.md 5.4 [PROD python-bigquery-storage #918]",
        says: "without one, it is missing, and not zero as in proto3",
        behaviour: Behaviour::AbsentIsNotZero,
        script: || {
            let row = message(
                "Row",
                vec![optional("n", 1, T::Int64), optional("s", 2, T::String)],
            );
            let columns = vec![column("n", Kind::Int64), column("s", STRING)];
            append(columns, &row, vec![Vec::new(), varint(1, 0)])
        },
        answers: &["appended", "n: NULL, s: NULL", "n: 0, s: NULL"],
    },
    Fact {
        source: "write-api.md 5.4 (supabase/etl, beam #23291)",
        says: "a row without one of proto2's required fields is bad",
        behaviour: Behaviour::ProtoRequiredChecked,
        script: || {
            let row = message("Row", vec![required("n", 1, T::Int64)]);
            append(
                vec![column("n", Kind::Int64)],
                &row,
                vec![varint(1, 1), Vec::new()],
            )
        },
        answers: &[
            "InvalidArgument: ...; row 1 FIELDS_ERROR: The required field is missing in the proto message on field n.",
        ],
    },
];
