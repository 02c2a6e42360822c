//! Streams as things: creation, names, description (write-api.md 1.2, 1.3, 3.2, 4).

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::machine::{Behaviour, CallMeta};
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement, Schema};
use bigquery_write_proto::wire::{
    CreateWriteStreamRequest, TableFieldSchema, WriteStream, WriteStreamView, write_stream::Type,
};

use super::{DAY_MS, DEFAULT, Fact};
use crate::world::{TABLE, World};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "CreateWriteStream answers type, times, schema, location and a name that production could have chosen",
        behaviour: Behaviour::CreateAnswersSchema,
        script: || {
            let mut w = World::new();
            [Type::Buffered, Type::Committed, Type::Unspecified]
                .into_iter()
                .map(|kind| {
                    let reply = w.try_create(TABLE, kind);
                    w.unary(reply, |stream| {
                        let id = stream
                            .name
                            .strip_prefix(&format!("{TABLE}/streams/"))
                            .unwrap_or_default();
                        let fields = stream.table_schema.as_ref().map(|schema| schema.fields.len());
                        format!(
                            "{:?} {:?} {:?} {:?} {fields:?} {} {}",
                            stream.r#type(),
                            stream.write_mode(),
                            stream.create_time.map(|time| time.seconds),
                            stream.commit_time.map(|time| time.seconds),
                            stream.location,
                            id.len()
                        )
                    })
                })
                .collect()
        },
        answers: &[
            "Buffered Insert Some(1700000000) None Some(1) US 55",
            "Committed Insert Some(1700000000) Some(1700000000) Some(1) US 55",
            "InvalidArgument: The type of the write stream must be specified. Entity: T",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [PROD GIT TestIntegration_ClientGetWriteStream]",
        says: "GetWriteStream BASIC has no schema, FULL has; the default stream is COMMITTED and has no times",
        behaviour: Behaviour::BasicViewHasNoSchema,
        script: || {
            let mut w = World::new();
            let s = w.create(Type::Pending);
            let mut said = Vec::new();
            for name in [s.as_str(), DEFAULT] {
                for view in [
                    WriteStreamView::Unspecified,
                    WriteStreamView::Basic,
                    WriteStreamView::Full,
                ] {
                    let reply = w.get(name, view as i32);
                    said.push(w.unary(reply, |stream| {
                        let fields = stream
                            .table_schema
                            .as_ref()
                            .map(|schema| schema.fields[0].name.clone());
                        let times = (stream.create_time.is_some(), stream.commit_time.is_some());
                        format!("{:?} {times:?} {fields:?} {}", stream.r#type(), stream.location)
                    }));
                }
            }
            said
        },
        answers: &[
            "Pending (true, false) None US",
            "Pending (true, false) None US",
            "Pending (true, false) Some(\"n\") US",
            "Committed (false, false) None US",
            "Committed (false, false) None US",
            "Committed (false, false) Some(\"n\") US",
        ],
    },
    Fact {
        source: "write-api.md 3.2",
        says: "a missing table is not found, a malformed name invalid",
        behaviour: Behaviour::MissingTableNotFound,
        script: || {
            let mut w = World::new();
            let mut said = Vec::new();
            for parent in [
                "projects/p/datasets/d/tables/none",
                "projects/p/datasets/none/tables/t",
                "p.d.t",
            ] {
                let reply = w.try_create(parent, Type::Buffered);
                said.push(w.unary(reply, |_| "created".to_owned()));
            }
            let c = w.open();
            said.push(w.append(c, "nothing", None, 1));
            said
        },
        answers: &[
            "NotFound TABLE_NOT_FOUND(projects/p/datasets/d/tables/none): Requested entity was not found. Entity: \
             projects/p/datasets/d/tables/none",
            "NotFound TABLE_NOT_FOUND(projects/p/datasets/none/tables/t): Requested entity was not found. Entity: \
             projects/p/datasets/none/tables/t",
            "InvalidArgument: Invalid table name: p.d.t",
            "ended InvalidArgument: Invalid stream name: nothing",
        ],
    },
    Fact {
        source: "write-api.md 1.3 [PROD JIT, PY]",
        says: "the default stream has a short name, which appends take as well",
        behaviour: Behaviour::ShortDefaultName,
        script: || {
            let mut w = World::new();
            let c = w.open();
            let short = format!("{TABLE}/_default");
            vec![w.append(c, &short, None, 2), w.append(c, DEFAULT, None, 1)]
        },
        answers: &["appended", "appended"],
    },
    Fact {
        source: "write-api.md 1.3 [DOC D:write-api-grpc]",
        says: "a day behind the table's name is for daily ingestion-time tables, 31 days back to 16 days ahead",
        behaviour: Behaviour::DayDecoratorsChecked,
        script: || {
            let mut w = World::new();
            let table = TableRef::new("p", "d", "daily");
            let column = Column::new("n", Kind::Int64, Mode::Nullable);
            let schema = Schema {
                columns: vec![column],
            };
            let rest = serde_json::json!({ "timePartitioning": { "type": "DAY" } });
            let rest = rest.as_object().cloned().unwrap();
            w.machine.create_table(&table, schema, rest, w.now).unwrap();
            let mut said = Vec::new();
            // The clock says 2023-11-14.
            for day in ["20231013", "20231014", "20231130", "20231201", "20231131"] {
                let reply = w.try_create(&format!("{}${day}", table.path()), Type::Buffered);
                said.push(w.unary(reply, |_| "created".to_owned()));
                let c = w.open();
                let default = format!("{}${day}/streams/_default", table.path());
                said.push(w.append(c, &default, None, 1));
            }
            let reply = w.try_create(&format!("{TABLE}$20231114"), Type::Buffered);
            said.push(w.unary(reply, |_| "created".to_owned()));
            said
        },
        answers: &[
            "InvalidArgument: Partition decorator $20231013 is out of range: rows can be written 31 days back to 16 days \
             ahead",
            "ended InvalidArgument: Partition decorator $20231013 is out of range: rows can be written 31 days back to 16 \
             days ahead",
            "created",
            "appended",
            "created",
            "appended",
            "InvalidArgument: Partition decorator $20231201 is out of range: rows can be written 31 days back to 16 days \
             ahead",
            "ended InvalidArgument: Partition decorator $20231201 is out of range: rows can be written 31 days back to 16 \
             days ahead",
            "InvalidArgument: Invalid partition decorator $20231131: it is no day, such as $20240131",
            "ended InvalidArgument: Invalid partition decorator $20231131: it is no day, such as $20240131",
            "InvalidArgument: Partition decorator $20231114 cannot be used: the table is not partitioned by the day of \
             ingestion",
        ],
    },
    Fact {
        source: "write-api.md 1.3 [DOC D:write-api-grpc] (of rows without a day the time of the append is UNCONFIRMED)",
        says: "rows that are written to a day are in its partition, and others in that of the time at which they come",
        behaviour: Behaviour::DayDecoratorsFollowed,
        script: || {
            let mut w = World::new();
            let table = TableRef::new("p", "d", "daily");
            let column = Column::new("n", Kind::Int64, Mode::Nullable);
            let schema = Schema {
                columns: vec![column],
            };
            let rest = serde_json::json!({ "timePartitioning": { "type": "DAY" } });
            let rest = rest.as_object().cloned().unwrap();
            w.machine.create_table(&table, schema, rest, w.now).unwrap();
            let path = table.path();
            for path in [format!("{path}$20231020"), path] {
                let stream = w.try_create(&path, Type::Buffered).result.unwrap().name;
                let c = w.open();
                w.append(c, &stream, None, 2);
                // The next day.
                w.now += DAY_MS;
                w.flush(&stream, 1);
                let c = w.open();
                w.append(c, &format!("{path}/streams/_default"), None, 1);
            }
            let table = w.machine.catalog().table(&table).unwrap();
            let batches = table.rows().iter().zip(table.partitions());
            let said = batches.map(|(rows, begin)| {
                let day = begin.map(|begin| begin / DAY_MS);
                format!("{} rows of day {day:?}", rows.num_rows())
            });
            said.collect()
        },
        answers: &[
            "2 rows of day Some(19650)",
            "1 rows of day Some(19650)",
            "2 rows of day Some(19676)",
            "1 rows of day Some(19677)",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P] (output only)",
        says: "the name that the caller gives a new stream has no effect",
        behaviour: Behaviour::ServerChoosesName,
        script: || {
            let mut w = World::new();
            let request = CreateWriteStreamRequest {
                parent: TABLE.to_owned(),
                write_stream: Some(WriteStream {
                    name: format!("{TABLE}/streams/mine"),
                    r#type: Type::Buffered as i32,
                    ..WriteStream::default()
                }),
            };
            let reply = w
                .machine
                .create_write_stream(w.now, &CallMeta::default(), &request);
            vec![w.unary(reply, |stream| stream.name.ends_with("/mine").to_string())]
        },
        answers: &["false"],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P, PROD GIT]",
        says: "a COMMITTED stream's commit time is that of its creation; a PENDING one has one when it is committed",
        behaviour: Behaviour::CommitTimeAnswered,
        script: || {
            let mut w = World::new();
            let streams = [Type::Committed, Type::Pending, Type::Buffered].map(|kind| w.create(kind));
            w.now += 5000;
            w.finalize(&streams[1]);
            let mut said = Vec::new();
            for _ in 0..2 {
                for stream in &streams {
                    let reply = w.get(stream, WriteStreamView::Basic as i32);
                    said.push(w.unary(reply, |stream| {
                        let times = [&stream.create_time, &stream.commit_time];
                        format!("{:?}", times.map(|time| time.as_ref().map(|time| time.seconds)))
                    }));
                }
                w.commit(&[&streams[1]]);
            }
            said
        },
        answers: &[
            "[Some(1700000000), Some(1700000000)]",
            "[Some(1700000000), None]",
            "[Some(1700000000), None]",
            "[Some(1700000000), Some(1700000000)]",
            "[Some(1700000000), Some(1700000005)]",
            "[Some(1700000000), None]",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P] (fields of TableFieldSchema)",
        says: "the schema that is answered has lengths, precisions, default values, elements of ranges",
        behaviour: Behaviour::SchemaDetailsAnswered,
        script: || {
            let mut w = World::new();
            let numeric = Kind::Numeric {
                precision: Some(5),
                scale: Some(2),
            };
            let big = Kind::BigNumeric {
                precision: Some(40),
                scale: Some(7),
            };
            let text = Kind::String { max_length: Some(10) };
            let column = |name: &str, kind| Column::new(name, kind, Mode::Nullable);
            let columns = vec![
                Column {
                    default_value_expression: Some("'a'".to_owned()),
                    description: "a text".to_owned(),
                    ..column("s", text)
                },
                column("y", Kind::Bytes { max_length: Some(7) }),
                Column::new("n", numeric, Mode::Required),
                column("b", big),
                Column::new("r", Kind::Range(RangeElement::Date), Mode::Repeated),
                column("t", Kind::Timestamp),
                column("p", Kind::TimestampPicoseconds),
                column("c", Kind::Struct(vec![column("i", Kind::Int64)])),
            ];
            w.table("w", "US", columns);
            let created = w.try_create(&TABLE.replace("tables/t", "tables/w"), Type::Buffered);
            let created = created.result.unwrap();
            let got = w.get(&created.name, WriteStreamView::Full as i32).result.unwrap();
            let fields = |stream: WriteStream| stream.table_schema.unwrap_or_default().fields;
            let mut said: Vec<String> = fields(got.clone()).iter().map(field).collect();
            said.push((fields(created) == fields(got)).to_string());
            said
        },
        answers: &[
            "s String Nullable 'a text' length 10 default 'a'",
            "y Bytes Nullable '' length 7",
            "n Numeric Required '' digits 5, 2",
            "b Bignumeric Nullable '' digits 40, 7",
            "r Range Repeated '' of Date",
            "t Timestamp Nullable ''",
            "p Timestamp Nullable '' timestamp precision 12",
            "c Struct Nullable '' with i Int64 Nullable ''",
            "true",
        ],
    },
    Fact {
        source: "write-api.md 4 [DOC D:quotas]; the text is UNCONFIRMED",
        says: "a table has at most 10,000 columns, those of STRUCTs counted",
        behaviour: Behaviour::ColumnsLimited,
        script: || {
            let mut w = World::new();
            let column = |at: usize| Column::new(format!("c{at}"), Kind::Int64, Mode::Nullable);
            [10_000, 10_001]
                .into_iter()
                .map(|count| {
                    let within = Kind::Struct((0..count - 5).map(column).collect());
                    let mut columns: Vec<Column> = (0..4).map(column).collect();
                    columns.push(Column::new("within", within, Mode::Repeated));
                    let (name, schema) = (TableRef::new("p", "d", count.to_string()), Schema { columns });
                    let created = w.machine.create_table(&name, schema, Default::default(), w.now);
                    created.map_or_else(|error| error.to_string(), |_| "created".to_owned())
                })
                .collect()
        },
        answers: &[
            "created",
            "Too many total leaf fields: 10001, max allowed field count: 10000",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [PROD GIT]",
        says: "the default stream is COMMITTED, without the times of its table",
        behaviour: Behaviour::DefaultStreamHasNoTimes,
        script: || {
            let mut w = World::new();
            let reply = w.get(DEFAULT, WriteStreamView::Basic as i32);
            vec![w.unary(reply, |stream| {
                format!(
                    "{:?} {:?} {:?}",
                    stream.r#type(),
                    stream.create_time,
                    stream.commit_time
                )
            })]
        },
        answers: &["Committed None None"],
    },
    Fact {
        source: "write-api.md 1.2 [PROD GIT TestIntegration_ClientGetWriteStream]",
        says: "a stream's location is its dataset's, in either view",
        behaviour: Behaviour::LocationAnswered,
        script: || {
            let mut w = World::new();
            w.table(
                "u",
                "europe-west3",
                vec![Column::new("n", Kind::Int64, Mode::Nullable)],
            );
            w.machine.switches_mut().routing_header_required = false;
            let mut said = Vec::new();
            for name in [DEFAULT, "projects/p/datasets/europe_west3/tables/u/_default"] {
                for view in [WriteStreamView::Basic, WriteStreamView::Full] {
                    let reply = w.get(name, view as i32);
                    said.push(w.unary(reply, |stream| stream.location.clone()));
                }
            }
            said
        },
        answers: &["US", "US", "europe-west3", "europe-west3"],
    },
];

/// Everything that is answered of a column.
fn field(field: &TableFieldSchema) -> String {
    let mut said = format!(
        "{} {:?} {:?} '{}'",
        field.name,
        field.r#type(),
        field.mode(),
        field.description
    );
    if field.max_length != 0 {
        said.push_str(&format!(" length {}", field.max_length));
    }
    if (field.precision, field.scale) != (0, 0) {
        said.push_str(&format!(" digits {}, {}", field.precision, field.scale));
    }
    if !field.default_value_expression.is_empty() {
        said.push_str(&format!(" default {}", field.default_value_expression));
    }
    if let Some(element) = &field.range_element_type {
        said.push_str(&format!(" of {:?}", element.r#type()));
    }
    if let Some(precision) = field.timestamp_precision {
        said.push_str(&format!(" timestamp precision {precision}"));
    }
    for inner in &field.fields {
        said.push_str(&format!(" with {}", self::field(inner)));
    }
    said
}
