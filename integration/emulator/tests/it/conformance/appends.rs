//! Offsets, rows and schemas of appends (write-api.md 1.2, 2.1, 4).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Code, Event, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use prost_types::field_descriptor_proto::Type as T;

use super::{DEFAULT, Fact, plan};
use crate::message::{STREAM, bytes, message, optional, proto_request};
use crate::world::{TABLE, World, ints, messages, raw_request, request};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 1.2 [PROD JIT, RIT]",
        says: "an append answers the offset of its first row",
        behaviour: Behaviour::AnswersFirstRowOffset,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![
                w.append(c, &s, Some(0), 1),
                w.append(c, &s, Some(1), 2),
                w.append(c, &s, Some(3), 3),
            ]
        },
        answers: &["at 0", "at 1", "at 3"],
    },
    Fact {
        source: "write-api.md 1.2 [PROD JIT, RIT]",
        says: "also if it was asked for none",
        behaviour: Behaviour::AnswersWhereRowsAre,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![w.append(c, &s, None, 1), w.append(c, &s, None, 2)]
        },
        answers: &["at 0", "at 1"],
    },
    Fact {
        source: "write-api.md 2.1 rule 4",
        says: "an append without offset goes to the end",
        behaviour: Behaviour::AppendsWithoutOffset,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![w.append(c, &s, None, 4), w.append(c, &s, None, 1)]
        },
        answers: &["at 0", "at 4"],
    },
    Fact {
        source: "write-api.md 2.1 rule 2, 3.3 [PROD JIT, GIT]",
        says: "an offset below the end already exists, and the text tells the end",
        behaviour: Behaviour::OffsetBelowEndExists,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![w.append(c, &s, Some(0), 1), w.append(c, &s, Some(0), 1)]
        },
        answers: &[
            "at 0",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 1, received 0",
        ],
    },
    Fact {
        source: "write-api.md 2.1 rule 3, 3.3 [PROD JIT, GIT]",
        says: "an offset above the end is out of range, and the same connection carries on",
        behaviour: Behaviour::OffsetAboveEndOutOfRange,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 1);
            vec![first, w.append(c, &s, Some(100), 1), w.append(c, &s, None, 1)]
        },
        answers: &[
            "at 0",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 1, received 100 Entity: S1",
            "at 1",
        ],
    },
    Fact {
        source: "write-api.md 2.1 [CLIENT J:ConnectionWorker]",
        says: "what is pipelined behind a failed append is out of range until that is resent",
        behaviour: Behaviour::OffsetAboveEndOutOfRange,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let (schema, rows) = messages(&ints(0, 2));
            let torn = raw_request(&s, Some(0), Some(schema), rows[..40].to_vec());
            let first = w.send(c, &torn).split(':').next().unwrap_or_default().to_owned();
            let c = w.open();
            vec![
                first,
                w.append(c, &s, Some(2), 2),
                w.append(c, &s, Some(0), 2),
                w.append(c, &s, Some(2), 2),
            ]
        },
        answers: &[
            "ended InvalidArgument",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 0, received 2 Entity: S1",
            "at 0",
            "at 2",
        ],
    },
    Fact {
        source: "write-api.md 2.1 INFERRED",
        says: "a resend that straddles the end already exists, though its tail was never stored",
        behaviour: Behaviour::OffsetBelowEndExists,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![w.append(c, &s, Some(0), 3), w.append(c, &s, Some(1), 5)]
        },
        answers: &[
            "at 0",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 3, received 1",
        ],
    },
    Fact {
        source: "write-api.md 2.1 INFERRED, switch straddling_resend",
        says: "or such a resend has another code, and nothing of it is stored either",
        behaviour: Behaviour::OffsetBelowEndExists,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 3)];
            for code in [Code::OutOfRange, Code::InvalidArgument] {
                w.machine.switches_mut().straddling_resend = code;
                said.extend([w.append(c, &s, Some(1), 3), w.append(c, &s, Some(1), 2)]);
            }
            said.push(w.append(c, &s, None, 1));
            said
        },
        answers: &[
            "at 0",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is within stream, expected offset 3, received 1",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 3, received 1",
            "InvalidArgument: The offset is within stream, expected offset 3, received 1",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 3, received 1",
            "at 3",
        ],
    },
    Fact {
        source: "issue 3: offsets at the edges of i64",
        says: "a negative offset is invalid, the greatest is out of range",
        behaviour: Behaviour::NegativeOffsetInvalid,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![
                w.append(c, &s, Some(i64::MIN), 1),
                w.append(c, &s, Some(-1), 1),
                w.append(c, &s, Some(i64::MAX), 1),
            ]
        },
        answers: &[
            "InvalidArgument: Invalid offset -9223372036854775808. Entity: S1",
            "InvalidArgument: Invalid offset -1. Entity: S1",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 0, \
             received 9223372036854775807 Entity: S1",
        ],
    },
    Fact {
        source: "write-api.md 2.1 rule 1 [PROD JIT, GIT]; in-band UNCONFIRMED",
        says: "a finalized stream takes no appends",
        behaviour: Behaviour::FinalizedTakesNoAppends,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![
                w.append(c, &s, Some(0), 2),
                w.finalize(&s),
                w.append(c, &s, Some(2), 1),
            ]
        },
        answers: &[
            "at 0",
            "finalized at 2",
            "InvalidArgument STREAM_FINALIZED(S1): Stream has been finalized and cannot be appended: S1 Entity: S1",
        ],
    },
    Fact {
        source: "switch finalized_in_band",
        says: "or the call ends",
        behaviour: Behaviour::FinalizedTakesNoAppends,
        script: || {
            let switches = Switches {
                finalized_in_band: false,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.finalize(&s);
            vec![w.append(c, &s, Some(0), 1)]
        },
        answers: &[
            "ended InvalidArgument STREAM_FINALIZED(S1): Stream has been finalized and cannot be appended: S1 \
             Entity: S1",
        ],
    },
    Fact {
        source: "write-api.md 2.1 UNCONFIRMED, switch zero_rows_accepted",
        says: "an append without rows is refused, or answers the end",
        behaviour: Behaviour::EmptyAppendRefused,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let refused = w.append(c, &s, Some(0), 0);
            w.machine.switches_mut().zero_rows_accepted = true;
            vec![
                refused,
                w.append(c, &s, Some(0), 0),
                w.append(c, &s, Some(0), 1),
                w.append(c, &s, None, 0),
            ]
        },
        answers: &[
            "InvalidArgument: The request has no rows. Entity: S1",
            "at 0",
            "at 0",
            "at 1",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "the first request names the stream and the schema, later ones may leave out both",
        behaviour: Behaviour::LaterRequestsInherit,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let (_, rows) = messages(&ints(5, 2));
            let bare = raw_request("", Some(1), None, rows.clone());
            let mut said = vec![w.append(c, &s, Some(0), 1), w.send(c, &bare)];
            let c = w.open();
            said.push(w.send(c, &bare));
            let c = w.open();
            said.push(w.send(c, &raw_request(&s, None, None, rows)));
            said
        },
        answers: &[
            "at 0",
            "at 1",
            "ended InvalidArgument: Cannot route on empty project id ''",
            "connection 1 ended FailedPrecondition: Closing the stream because another connection was opened on it. \
             Entity: S1; ended InvalidArgument: The first request of a connection must have a writer schema. Entity: S1",
        ],
    },
    Fact {
        source: "write-api.md 3.1 [DOC], 1.2 [DOC P]; google-cloud-bigquery 0.19 for Rust says the schema once",
        says: "what a connection's first request says counts, though it was refused inside the stream",
        behaviour: Behaviour::LaterRequestsInherit,
        script: || {
            let refused = r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 1},
                "action": {"kind": "refuse", "code": "INTERNAL", "in_band": true}}]}"#;
            let mut w = World::with(Switches::default(), plan(refused));
            let (schema, rows) = messages(&ints(5, 2));
            let mut said = Vec::new();
            for reason in ["fault", "interpretation", "quota"] {
                let (s, c) = (w.create(Type::Buffered), w.open());
                let mut first = raw_request(&s, Some(0), Some(schema.clone()), rows.clone());
                if reason == "interpretation" {
                    first.default_missing_value_interpretation = 9;
                }
                let few = (reason == "quota").then_some(1);
                w.machine.switches_mut().append_bytes_per_second = few;
                said.push(w.send(c, &first));
                w.machine.switches_mut().append_bytes_per_second = None;
                said.push(w.send(c, &raw_request("", Some(0), None, rows.clone())));
            }
            said
        },
        answers: &[
            "Internal: ",
            "at 0",
            "InvalidArgument: Invalid default_missing_value_interpretation 9. Entity: S2",
            "at 0",
            "ResourceExhausted: Exceeds 'AppendRows throughput' quota of project p (status: INSUFFICIENT_TOKENS)",
            "at 0",
        ],
    },
    Fact {
        source: "write-api.md 2 [DOC P, PROD JIT]",
        says: "the default stream takes no offset and answers none; its rows are visible at once",
        behaviour: Behaviour::DefaultStreamTakesNoOffset,
        script: || {
            let mut w = World::new();
            let c = w.open();
            let short = format!("{TABLE}/_default");
            vec![
                w.append(c, &short, None, 2),
                w.append(c, DEFAULT, Some(2), 1),
                w.append(c, DEFAULT, None, 1),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &[
            "appended",
            "InvalidArgument: The offset cannot be set on the default stream. Entity: T/streams/_default",
            "appended",
            "[0, 1, 3]",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [PROD JIT hasOffset false]",
        says: "the default stream answers no offset",
        behaviour: Behaviour::DefaultStreamAnswersNoOffset,
        script: || {
            let mut w = World::new();
            let c = w.open();
            vec![w.append(c, DEFAULT, None, 2), w.append(c, DEFAULT, None, 1)]
        },
        answers: &["appended", "appended"],
    },
    Fact {
        source: "write-api.md 4 [P, D:quotas, JIT; PROD GIT testLargeInsertNoRetry]",
        says: "a request over the limit ends the call, with Google's text",
        behaviour: Behaviour::RequestSizeLimited,
        script: || {
            let switches = Switches {
                max_request_bytes: 1000,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let (s, c) = (w.create(Type::Buffered), w.open());
            let small = w.append(c, &s, None, 10);
            let large = request(&s, None, &ints(0, 1000));
            let size = prost::Message::encoded_len(&large);
            let said = w.send(c, &large).replace(&size.to_string(), "<size>");
            vec![small, said, Switches::default().max_request_bytes.to_string()]
        },
        answers: &[
            "at 0",
            "ended InvalidArgument: AppendRows request too large: <size> limit 1000",
            "20971520",
        ],
    },
    Fact {
        source: "write-api.md 4 [PROD JIT testLargeRequest]",
        says: "one row may be as large as the request: 15 MiB are accepted on the default stream",
        behaviour: Behaviour::LargeRequestsTaken,
        script: || {
            let mut w = World::new();
            let table = w.table(
                "w",
                "US",
                vec![Column::new(
                    "s",
                    Kind::String { max_length: None },
                    Mode::Nullable,
                )],
            );
            let c = w.open();
            let row = message("Row", vec![optional("s", 1, T::String)]);
            let text = vec![b'a'; 15 << 20];
            let request = proto_request(STREAM, None, Some(&row), vec![bytes(1, &text)]);
            let said = w.send(c, &request);
            vec![
                said,
                w.machine.catalog().table(&table).unwrap().row_count().to_string(),
            ]
        },
        answers: &["appended", "1"],
    },
    Fact {
        source: "write-api.md 1.2 (write_stream of a response)",
        says: "every answer names its stream, the default stream by its long name",
        behaviour: Behaviour::EchoesStream,
        script: || {
            let mut w = World::new();
            let (s, c, d) = (w.create(Type::Buffered), w.open(), w.open());
            let short = format!("{TABLE}/_default");
            [(c, s.as_str(), None), (c, "", Some(7)), (d, short.as_str(), None)]
                .into_iter()
                .map(|(on, stream, offset)| {
                    let request = request(stream, offset, &ints(0, 1));
                    let outputs = w.machine.append(w.now, on, &request);
                    match &outputs[0].event {
                        Event::Answer(answer) => answer.write_stream.replace(&s, "S1"),
                        Event::End(_) => "ended".to_owned(),
                    }
                })
                .collect()
        },
        answers: &["S1", "S1", DEFAULT],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "each request has one answer, in the order of the requests",
        behaviour: Behaviour::EveryRequestAnswered,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            [None, Some(5), Some(2), Some(0), None]
                .into_iter()
                .map(|offset| w.append(c, &s, offset, 2))
                .map(|said| said.split(' ').take(2).collect::<Vec<_>>().join(" "))
                .collect()
        },
        answers: &[
            "at 0",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1):",
            "at 2",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1):",
            "at 4",
        ],
    },
];
