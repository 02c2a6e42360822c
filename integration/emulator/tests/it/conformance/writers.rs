//! What a connection says of its rows, and rows that do not keep to it (write-api.md 1.2, 3.5, 6, 7.2).

use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::schema::Kind;
use bigquery_write_proto::wire::write_stream::Type;
use prost_types::field_descriptor_proto::Type as T;

use super::{DEFAULT, Fact};
use crate::message::{STREAM, append, bytes, column, message, optional, proto_request, say, varint, visible};
use crate::world::{World, ints, messages, raw_request, request};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 1.2 [DOC P]; the text: [PROD GIT]",
        says: "the first request of a connection needs a writer schema",
        behaviour: Behaviour::FirstRequestNeedsSchema,
        script: || {
            let mut w = World::new();
            let c = w.open();
            let mut said = vec![say(
                &mut w,
                c,
                &proto_request(DEFAULT, None, None, vec![varint(1, 1)]),
            )];
            let c = w.open();
            let (_, rows) = messages(&ints(1, 1));
            said.push(say(&mut w, c, &raw_request(DEFAULT, None, None, rows)));
            said
        },
        answers: &[
            "ended InvalidArgument: Invalid proto schema: BqMessage.proto: : Missing name. Entity: T/streams/_default",
            "ended InvalidArgument: The first request of a connection must have a writer schema. Entity: \
             T/streams/_default",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "all requests of a connection have the first one's data format",
        behaviour: Behaviour::FormatFixed,
        script: || {
            let mut w = World::new();
            let row = message("Row", vec![optional("n", 1, T::Int64)]);
            let proto = proto_request(DEFAULT, None, Some(&row), vec![varint(1, 1)]);
            let arrow = request(DEFAULT, None, &ints(2, 1));
            let mut said = Vec::new();
            for (first, second) in [(&proto, &arrow), (&arrow, &proto)] {
                let c = w.open();
                said.push(say(&mut w, c, first));
                said.push(say(&mut w, c, second));
            }
            said
        },
        answers: &[
            "appended",
            "ended InvalidArgument: The data format cannot change in a connection. Entity: T/streams/_default",
            "appended",
            "ended InvalidArgument: The data format cannot change in a connection. Entity: T/streams/_default",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "on the default stream a writer schema holds until another one comes, also for another table",
        behaviour: Behaviour::DefaultStreamTakesNewSchema,
        script: || {
            let mut w = World::new();
            let table = w.table(
                "w",
                "US",
                vec![column("n", Kind::Int64), column("m", Kind::Int64)],
            );
            let c = w.open();
            let one = message("Row", vec![optional("n", 1, T::Int64)]);
            let other = message("Row", vec![optional("m", 1, T::Int64)]);
            let mut said = vec![
                say(
                    &mut w,
                    c,
                    &proto_request(STREAM, None, Some(&one), vec![varint(1, 1)]),
                ),
                say(&mut w, c, &proto_request(STREAM, None, None, vec![varint(1, 2)])),
                say(
                    &mut w,
                    c,
                    &proto_request(STREAM, None, Some(&other), vec![varint(1, 3)]),
                ),
                say(
                    &mut w,
                    c,
                    &proto_request(DEFAULT, None, Some(&one), vec![varint(1, 4)]),
                ),
            ];
            said.extend(visible(&w, &table));
            said.push(format!("{:?}", w.visible()));
            said
        },
        answers: &[
            "appended",
            "appended",
            "appended",
            "appended",
            "n: 1, m: NULL",
            "n: 2, m: NULL",
            "n: NULL, m: 3",
            "[4]",
        ],
    },
    Fact {
        source: "write-api.md 3.5 [PROD python-bigquery-storage #717, flink #167]",
        says: "bad rows are listed by their index in the request",
        behaviour: Behaviour::RowErrorsListed,
        script: || {
            let row = message("Row", vec![optional("s", 1, T::String)]);
            let columns = vec![column("s", Kind::String { max_length: Some(2) })];
            let rows = ["abc", "ab", "äöü"].map(|text| bytes(1, text)).to_vec();
            append(columns, &row, rows)
        },
        answers: &[
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Field s: STRING(2) has maximum length 2 but got a value with \
             length 3 on field s.; row 2 FIELDS_ERROR: Field s: STRING(2) has maximum length 2 but got a value with \
             length 3 on field s.",
        ],
    },
    Fact {
        source: "write-api.md 3.5 [PROD JIT testRowErrors]",
        says: "after bad rows the connection goes on at the same offset",
        behaviour: Behaviour::RowErrorsInBand,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            let row = message("Row", vec![optional("n", 1, T::Int64)]);
            let good = |offset| proto_request(&s, Some(offset), Some(&row), vec![varint(1, 1), varint(1, 2)]);
            let bad = proto_request(&s, Some(2), Some(&row), vec![varint(1, 3), b"\x08".to_vec()]);
            let said = [good(0), bad, good(2)].map(|request| w.send(c, &request));
            said.into_iter().chain([format!("{:?}", w.visible())]).collect()
        },
        answers: &[
            "at 0",
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: S1; row 1 FIELDS_ERROR: The row is no \
             protobuf message: it is cut short.",
            "at 2",
            "[1, 2, 1, 2]",
        ],
    },
    Fact {
        source: "write-api.md 7.2 [PROD beam #27892]",
        says: "a field that the table lacks is refused by name, and the call ends",
        behaviour: Behaviour::ExtraFieldsRefused,
        script: || {
            let row = message(
                "Row",
                vec![
                    optional("n", 1, T::Int64),
                    optional("x", 3, T::Int64),
                    optional("Y", 2, T::String),
                ],
            );
            append(vec![column("n", Kind::Int64)], &row, vec![varint(1, 1)])
        },
        answers: &[
            "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(W): Input schema has more fields than BigQuery schema, \
             extra fields: 'Y,x' Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 7.2 [PROD nodejs-bigquery-storage #470]",
        says: "a number in a row that the descriptor lacks is ignored",
        behaviour: Behaviour::UnknownNumbersIgnored,
        script: || {
            let row = message("Row", vec![optional("n", 1, T::Int64)]);
            let sent = [bytes(9, "UPSERT"), varint(1, 1), varint(500, 2)].concat();
            append(vec![column("n", Kind::Int64)], &row, vec![sent])
        },
        answers: &["appended", "n: 1"],
    },
    Fact {
        source: "write-api.md 6 [PROD GIT]",
        says: "a row whose change type is INSERT, or not set, is appended as any other",
        behaviour: Behaviour::InsertIsNoChange,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            let row = message(
                "Row",
                vec![
                    optional("n", 1, T::Int64),
                    optional("_change_type", 2, T::String),
                    optional("_CHANGE_SEQUENCE_NUMBER", 3, T::String),
                ],
            );
            let rows = vec![
                [varint(1, 1), bytes(2, "INSERT"), bytes(3, "0/A")].concat(),
                varint(1, 2),
            ];
            vec![
                w.send(c, &proto_request(&s, None, Some(&row), rows)),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &["at 0", "[1, 2]"],
    },
];
