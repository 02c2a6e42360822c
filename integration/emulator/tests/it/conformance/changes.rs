//! Changes by primary key on the default stream (write-api.md 6).

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_proto::wire::{AppendRowsRequest, write_stream::Type};
use prost_types::DescriptorProto;
use prost_types::field_descriptor_proto::Type as T;
use serde_json::json;

use super::{DAY_MS, DEFAULT, Fact};
use crate::message::{STREAM, bytes, message, optional, proto_request, say, varint, visible};
use crate::world::World;

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "an upsert takes the place of the row with its key, a delete takes it away",
        behaviour: Behaviour::UpsertsTaken,
        script: || {
            tried(&[
                &[("UPSERT", 1, "a", ""), ("UPSERT", 2, "b", "")],
                &[
                    ("UPSERT", 1, "c", ""),
                    ("DELETE", 2, "", ""),
                    ("UPSERT", 3, "d", ""),
                ],
            ])
        },
        answers: &["appended", "appended", "k: 1, v: c", "k: 3, v: d"],
    },
    Fact {
        source: "write-api.md 6 [DOC]; the text: debezium-server-bigquery #268; its place UNCONFIRMED, switch \
                 upsert_without_key_is_extra_field",
        says: "a table without a primary key takes no changes",
        behaviour: Behaviour::UpsertNeedsPrimaryKey,
        script: || {
            let mut said = Vec::new();
            for extra_field in [false, true] {
                let mut w = World::new();
                w.machine.switches_mut().upsert_without_key_is_extra_field = extra_field;
                w.table("w", "US", columns());
                let c = w.open();
                said.push(say(&mut w, c, &changes(STREAM, &[("UPSERT", 1, "a", "")])));
            }
            said
        },
        answers: &[
            "ended InvalidArgument: Create UPSERT stream is not supported for primary key disabled table: p:d.w. Entity: W",
            "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(W): Input schema has more fields than BigQuery schema, \
             extra fields: '_change_type' Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 6 [PROD google-cloud-dotnet #11527, nodejs #470]",
        says: "an application's stream takes no changes",
        behaviour: Behaviour::ChangesOnDefaultStreamOnly,
        script: || {
            let mut w = World::new();
            keyed(&mut w);
            let (table, c) = (STREAM.replace("/streams/_default", ""), w.open());
            let stream = w.try_create(&table, Type::Committed).result.unwrap().name;
            let request = changes(&stream, &[("UPSERT", 1, "a", "")]);
            let said = w.send(c, &request);
            vec![said.split("; ").last().unwrap_or_default().to_owned()]
        },
        answers: &[
            "row 0 FIELDS_ERROR: The given value is not a valid CHANGE_TYPE in insert mode: UPSERT on field _CHANGE_TYPE.",
        ],
    },
    Fact {
        source: "write-api.md 6 [PROD google-cloud-dotnet #11527, nodejs #470]",
        says: "a connection inserts rows or changes rows: which, its first rows decide",
        behaviour: Behaviour::OneModePerConnection,
        script: || {
            let mut w = World::new();
            let table = keyed(&mut w);
            let (insert, upsert) = (("INSERT", 1, "a", ""), ("UPSERT", 2, "b", ""));
            let mut said = Vec::new();
            for order in [[insert, upsert], [upsert, insert]] {
                let c = w.open();
                for change in order {
                    said.push(say(&mut w, c, &changes(STREAM, &[change])));
                }
            }
            said.extend(visible(&w, &table));
            said
        },
        answers: &[
            "appended",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The given value is not a valid CHANGE_TYPE in insert mode: UPSERT on \
             field _CHANGE_TYPE.",
            "appended",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The given value is not a valid CHANGE_TYPE: INSERT on field \
             _CHANGE_TYPE.",
            "k: 1, v: a",
            "k: 2, v: b",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "a change type is UPSERT or DELETE, and nothing of a request with another is taken",
        behaviour: Behaviour::ChangeTypesChecked,
        script: || tried(&[&[("UPSERT", 1, "a", ""), ("upsert", 2, "b", "")]]),
        answers: &[
            "InvalidArgument: ...; row 1 FIELDS_ERROR: The given value is not a valid CHANGE_TYPE: upsert on field \
             _CHANGE_TYPE.",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "the higher sequence number wins, section by section; between equals the later arrival",
        behaviour: Behaviour::SequenceDecides,
        script: || {
            tried(&[
                &[("UPSERT", 1, "high", "FFF/ABC"), ("UPSERT", 2, "first", "1")],
                &[("UPSERT", 1, "low", "ABC"), ("UPSERT", 2, "second", "01")],
                &[("DELETE", 1, "", "FFF/B")],
            ])
        },
        answers: &[
            "appended",
            "appended",
            "appended",
            "k: 1, v: high",
            "k: 2, v: second",
        ],
    },
    Fact {
        source: "write-api.md 6 UNCONFIRMED, switch short_sequence_padded",
        says: "of two sequence numbers where one begins the other the longer wins, or its sections are as many zeros",
        behaviour: Behaviour::SequenceDecides,
        script: || {
            let mut said = Vec::new();
            for padded in [false, true] {
                let mut w = World::new();
                w.machine.switches_mut().short_sequence_padded = padded;
                let table = keyed(&mut w);
                let c = w.open();
                let rows = [
                    ("UPSERT", 1, "longer", "A/0"),
                    ("UPSERT", 1, "shorter", "A"),
                    ("UPSERT", 2, "longer", "A/0/1"),
                    ("UPSERT", 2, "shorter", "A"),
                ];
                said.push(say(&mut w, c, &changes(STREAM, &rows)));
                said.extend(visible(&w, &table));
            }
            said
        },
        answers: &[
            "appended",
            "k: 1, v: longer",
            "k: 2, v: longer",
            "appended",
            "k: 1, v: shorter",
            "k: 2, v: longer",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "without sequence numbers the order of arrival decides, within a request too",
        behaviour: Behaviour::ArrivalDecides,
        script: || {
            tried(&[
                &[
                    ("UPSERT", 1, "a", ""),
                    ("UPSERT", 2, "b", ""),
                    ("UPSERT", 1, "c", ""),
                    ("DELETE", 2, "", ""),
                ],
                &[("UPSERT", 2, "d", "")],
            ])
        },
        answers: &["appended", "appended", "k: 1, v: c", "k: 2, v: d"],
    },
    Fact {
        source: "write-api.md 6 (Google's Java sample)",
        says: "the names of the pseudo-columns ignore case",
        behaviour: Behaviour::PseudoColumnsIgnoreCase,
        script: || {
            let mut w = World::new();
            let table = keyed(&mut w);
            let c = w.open();
            let fields = vec![
                optional("k", 1, T::Int64),
                optional("v", 2, T::String),
                optional("_change_type", 3, T::String),
                optional("_Change_Sequence_Number", 4, T::String),
            ];
            let row = |text: &str, rank: &str| {
                [varint(1, 1), bytes(2, text), bytes(3, "UPSERT"), bytes(4, rank)].concat()
            };
            let rows = vec![row("a", "2"), row("b", "1")];
            let request = proto_request(STREAM, None, Some(&message("Row", fields)), rows);
            let mut said = vec![say(&mut w, c, &request)];
            said.extend(visible(&w, &table));
            said
        },
        answers: &["appended", "k: 1, v: a"],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]; the text is UNCONFIRMED",
        says: "a primary key has at most 16 columns",
        behaviour: Behaviour::KeyColumnsLimited,
        script: || {
            [16, 17]
                .into_iter()
                .map(|count| {
                    let mut w = World::new();
                    let key = |at: i64| Column::new(format!("k{at}"), Kind::Int64, Mode::Required);
                    let columns: Vec<Column> = (0..count).map(key).collect();
                    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                    let rest = json!({"tableConstraints": {"primaryKey": {"columns": names}}});
                    let rest = rest.as_object().unwrap().clone();
                    let table = TableRef::new("p", "d", "w");
                    let schema = Schema {
                        columns: columns.clone(),
                    };
                    w.machine.create_table(&table, schema, rest, w.now).unwrap();
                    let mut fields: Vec<_> = columns
                        .iter()
                        .zip(1..)
                        .map(|(column, number)| optional(&column.name, number, T::Int64))
                        .collect();
                    fields.push(optional("_CHANGE_TYPE", 100, T::String));
                    let mut row: Vec<u8> = (1..=count as u32).flat_map(|number| varint(number, 1)).collect();
                    row.extend(bytes(100, "UPSERT"));
                    let c = w.open();
                    let request = proto_request(STREAM, None, Some(&message("Row", fields)), vec![row]);
                    say(&mut w, c, &request)
                })
                .collect()
        },
        answers: &[
            "appended",
            "ended InvalidArgument: A primary key has at most 16 columns; this one has 17. Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]; the text is UNCONFIRMED",
        says: "a sequence number has one to four sections of one to sixteen hexadecimal digits",
        behaviour: Behaviour::SequenceNumbersChecked,
        script: || tried(&[&[("UPSERT", 1, "a", "1/2/3/4"), ("UPSERT", 2, "b", "1/2/3/4/5")]]),
        answers: &[
            "InvalidArgument: ...; row 1 FIELDS_ERROR: The given value is not a valid CHANGE_SEQUENCE_NUMBER: 1/2/3/4/5 on \
             field _CHANGE_SEQUENCE_NUMBER.",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "a delete needs the columns of the key alone, an upsert every REQUIRED one",
        behaviour: Behaviour::DeleteNeedsKeyOnly,
        script: || {
            let mut w = World::new();
            let table = keyed(&mut w);
            let c = w.open();
            let bare = |kind: &str| {
                let row = [varint(1, 1), bytes(3, kind)].concat();
                proto_request(STREAM, None, Some(&descriptor()), vec![row])
            };
            let mut said = vec![say(&mut w, c, &changes(STREAM, &[("UPSERT", 1, "a", "")]))];
            said.push(say(&mut w, c, &bare("UPSERT")));
            said.push(say(&mut w, c, &bare("DELETE")));
            said.extend(visible(&w, &table));
            said
        },
        answers: &[
            "appended",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: NULL value is not allowed on field v.",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]",
        says: "a delete is remembered for two days, so that a late upsert of lower rank does not bring the row back",
        behaviour: Behaviour::DeletesRemembered,
        script: || {
            let mut w = World::new();
            let table = keyed(&mut w);
            let mut said = Vec::new();
            for (wait, change) in [
                (0, ("DELETE", 1, "", "5")),
                (2 * DAY_MS, ("UPSERT", 1, "late", "4")),
                (1, ("UPSERT", 1, "very late", "3")),
            ] {
                w.now += wait;
                let c = w.open();
                w.send(c, &changes(STREAM, &[change]));
                said.push(format!("{:?}", visible(&w, &table)));
            }
            said
        },
        answers: &["[]", "[]", "[\"k: 1, v: very late\"]"],
    },
    Fact {
        source: "write-api.md 6 [DOC D:change-data-capture]; the text is UNCONFIRMED",
        says: "a table with more than 2,000 top-level columns takes no changes",
        behaviour: Behaviour::WideTablesTakeNoChanges,
        script: || {
            let mut w = World::new();
            let mut columns = columns();
            let more = |at| Column::new(format!("c{at}"), Kind::Int64, Mode::Nullable);
            columns.extend((0..1999).map(more));
            keyed_with(&mut w, columns);
            let c = w.open();
            vec![say(&mut w, c, &changes(STREAM, &[("UPSERT", 1, "a", "")]))]
        },
        answers: &[
            "ended InvalidArgument: Tables with more than 2000 top-level columns take no UPSERT or DELETE. Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 1.2, 6 (offset absent, rows visible at once)",
        says: "changes are answered as other rows of the default stream are, and a plain row may have any key",
        behaviour: Behaviour::DefaultStreamAnswersNoOffset,
        script: || {
            let mut w = World::with(Switches::default(), Default::default());
            let table = keyed(&mut w);
            let (insert, upsert) = (w.open(), w.open());
            let mut said: Vec<_> = [
                (insert, "INSERT", "a"),
                (insert, "INSERT", "b"),
                (upsert, "UPSERT", "c"),
            ]
            .into_iter()
            .map(|(on, kind, text)| {
                let said = say(&mut w, on, &changes(STREAM, &[(kind, 1, text, "")]));
                format!("{said} {:?}", visible(&w, &table))
            })
            .collect();
            said.push(
                w.append(insert, DEFAULT, Some(0), 1)
                    .split(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
            said
        },
        answers: &[
            "appended [\"k: 1, v: a\"]",
            "appended [\"k: 1, v: a\", \"k: 1, v: b\"]",
            "appended [\"k: 1, v: c\"]",
            "ended InvalidArgument",
        ],
    },
    Fact {
        source: "write-api.md 6 [PROD google-cloud-dotnet #11527]; rows decide, so a request without any does not; switch \
                 zero_rows_accepted",
        says: "a request without rows does not decide what a connection does",
        behaviour: Behaviour::OneModePerConnection,
        script: || {
            let mut w = World::new();
            w.machine.switches_mut().zero_rows_accepted = true;
            keyed(&mut w);
            let c = w.open();
            let requests: [&[Row<'_>]; 3] = [&[], &[("UPSERT", 1, "a", "")], &[("INSERT", 1, "a", "")]];
            requests
                .map(|rows| say(&mut w, c, &changes(STREAM, rows)))
                .to_vec()
        },
        answers: &[
            "appended",
            "appended",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: The given value is not a valid CHANGE_TYPE: INSERT on field \
             _CHANGE_TYPE.",
        ],
    },
    Fact {
        source: "write-api.md 7.3 (metadata lag)",
        says: "those who append may still write a column that was dropped; what is REQUIRED is judged by name",
        behaviour: Behaviour::AppendersLearnLate,
        script: || {
            let mut w = World::new();
            let mut before = columns();
            before.insert(0, Column::new("gone", Kind::Int64, Mode::Nullable));
            let table = w.table("w", "US", before);
            let schema = Schema { columns: columns() };
            w.machine
                .update_table(&table, schema, Default::default(), w.now)
                .unwrap();
            let fields = vec![
                optional("gone", 1, T::Int64),
                optional("k", 2, T::Int64),
                optional("v", 3, T::String),
            ];
            let row = [varint(2, 5), bytes(3, "a")].concat();
            let c = w.open();
            let request = proto_request(STREAM, None, Some(&message("Row", fields)), vec![row]);
            let mut said = vec![say(&mut w, c, &request)];
            said.extend(visible(&w, &table));
            said
        },
        answers: &["appended", "k: 5, v: a"],
    },
    Fact {
        source: "design.md 8 (history of visibility)",
        says: "changes are recorded as such, counted as they came",
        behaviour: Behaviour::VisibilityRecorded,
        script: || {
            let mut w = World::new();
            keyed(&mut w);
            let c = w.open();
            let requests: [&[Row<'_>]; 2] = [
                &[("UPSERT", 1, "a", ""), ("DELETE", 1, "", "")],
                &[("UPSERT", 2, "b", "")],
            ];
            for rows in requests {
                w.send(c, &changes(STREAM, rows));
            }
            let entries = w.machine.visible().entries();
            entries
                .map(|entry| {
                    format!(
                        "{:?} {} {}..{}",
                        entry.stream, entry.changes, entry.from, entry.to
                    )
                })
                .collect()
        },
        answers: &["None true 0..2", "None true 2..3"],
    },
];

/// Kind, key, value, sequence number; an empty text is left out of the row.
type Row<'a> = (&'a str, i64, &'a str, &'a str);

fn columns() -> Vec<Column> {
    let text = Kind::String { max_length: None };
    vec![
        Column::new("k", Kind::Int64, Mode::Required),
        Column::new("v", text, Mode::Required),
    ]
}

fn keyed(w: &mut World) -> TableRef {
    keyed_with(w, columns())
}

fn keyed_with(w: &mut World, columns: Vec<Column>) -> TableRef {
    let table = w.table("w", "US", columns.clone());
    let rest = json!({"tableConstraints": {"primaryKey": {"columns": ["k"]}}});
    let rest = rest.as_object().unwrap().clone();
    w.machine
        .update_table(&table, Schema { columns }, rest, w.now)
        .unwrap();
    table
}

fn descriptor() -> DescriptorProto {
    message(
        "Row",
        vec![
            optional("k", 1, T::Int64),
            optional("v", 2, T::String),
            optional("_CHANGE_TYPE", 3, T::String),
            optional("_CHANGE_SEQUENCE_NUMBER", 4, T::String),
        ],
    )
}

fn changes(stream: &str, rows: &[Row<'_>]) -> AppendRowsRequest {
    let rows = rows.iter().map(|(kind, key, value, sequence)| {
        let text = |number, text: &str| {
            if text.is_empty() {
                Vec::new()
            } else {
                bytes(number, text)
            }
        };
        [varint(1, *key), text(2, value), bytes(3, kind), text(4, sequence)].concat()
    });
    proto_request(stream, None, Some(&descriptor()), rows.collect())
}

/// What is said to these requests on one connection, and what is visible then.
fn tried(requests: &[&[Row<'_>]]) -> Vec<String> {
    let mut w = World::new();
    let table = keyed(&mut w);
    let c = w.open();
    let mut said: Vec<_> = requests
        .iter()
        .map(|rows| say(&mut w, c, &changes(STREAM, rows)))
        .collect();
    said.extend(visible(&w, &table));
    said
}
