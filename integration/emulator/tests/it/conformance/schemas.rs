//! Columns added while rows are appended (write-api.md 7.3).

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_proto::wire::{WriteStreamView, write_stream::Type};

use super::{DEFAULT, Fact};
use crate::world::{TABLE, World, request};

/// The default of `Switches::schema_lag_ms`.
const LAG_MS: i64 = 10_000;

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 7.3",
        says: "a connection goes on with its old writer schema; the new column is NULL",
        behaviour: Behaviour::OldWriterGoesOn,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            let first = w.append(c, &s, Some(0), 1);
            w.add_columns(&["m"]);
            let second = w.append(c, &s, Some(1), 1);
            w.now += LAG_MS;
            let third = w.append(c, &s, Some(2), 1);
            let fourth = w.append(c, &s, Some(3), 1);
            vec![first, second, third, fourth, format!("{:?}", w.visible())]
        },
        answers: &["at 0", "at 1", "at 2; now n,m", "at 3", "[0, 1, 2, 3]"],
    },
    Fact {
        source: "write-api.md 7.3",
        says: "a connection that outlives its table is told of the new table's changes",
        behaviour: Behaviour::UpdatedSchemaTold,
        script: || {
            let mut w = World::new();
            let c = w.open();
            w.add_columns(&["m"]);
            w.now += LAG_MS;
            let mut said = vec![w.append(c, DEFAULT, None, 1)];
            w.recreate();
            w.now += LAG_MS;
            said.push(w.append(c, DEFAULT, None, 1));
            w.add_columns(&["other"]);
            w.now += LAG_MS;
            said.push(w.append(c, DEFAULT, None, 1));
            said
        },
        answers: &["appended", "appended", "appended; now n,other"],
    },
    Fact {
        source: "write-api.md 7.3 [DOC D:write-api-best-practices, PROD JIT, GIT]; how often UNCONFIRMED, switch \
                 updated_schema_repeats",
        says: "a success on an older connection carries updated_schema, after a while, once or until it is left",
        behaviour: Behaviour::UpdatedSchemaTold,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 1);
            w.add_columns(&["m"]);
            w.now += LAG_MS - 1;
            let early = w.append(c, &s, None, 1);
            w.now += 1;
            let mut said = vec![early, w.append(c, &s, None, 1), w.append(c, &s, None, 1)];
            w.machine.switches_mut().updated_schema_repeats = true;
            w.add_columns(&["m", "o"]);
            w.now += LAG_MS;
            said.extend([w.append(c, &s, None, 1), w.append(c, &s, None, 1)]);
            let c = w.open();
            let last = w.append(c, &s, None, 1);
            said.push(last.rsplit("; ").next().unwrap_or_default().to_owned());
            said
        },
        answers: &[
            "at 1",
            "at 2; now n,m",
            "at 3",
            "at 4; now n,m,o",
            "at 5; now n,m,o",
            "at 6",
        ],
    },
    Fact {
        source: "write-api.md 7.3 [PROD GIT, internal b/211899346]",
        says: "a duplicate does not carry updated_schema",
        behaviour: Behaviour::UpdatedSchemaWithSuccessOnly,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 1);
            w.add_columns(&["m"]);
            w.now += LAG_MS;
            vec![w.append(c, &s, Some(0), 1), w.append(c, &s, Some(1), 1)]
        },
        answers: &[
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 1, received 0",
            "at 1; now n,m",
        ],
    },
    Fact {
        source: "write-api.md 7.3 (supabase/etl, snowplow-bigquery-loader PR #366, java #1465)",
        says: "a new column written too early is an extra field, though the table has it",
        behaviour: Behaviour::AppendersLearnLate,
        script: || {
            let mut w = World::new();
            let s = w.create(Type::Buffered);
            w.add_columns(&["m"]);
            [0, LAG_MS - 1, 1]
                .into_iter()
                .map(|wait| {
                    w.now += wait;
                    let c = w.open();
                    w.send(c, &request(&s, Some(0), &two_columns(7)))
                })
                .collect()
        },
        answers: &[
            "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(S1): Input schema has more fields than BigQuery schema, \
             extra fields: 'm' Entity: S1",
            "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(S1): Input schema has more fields than BigQuery schema, \
             extra fields: 'm' Entity: S1",
            "at 0",
        ],
    },
    Fact {
        source: "write-api.md 7.3 [PROD GIT testSchemaEvolution, JIT JsonStreamWriterSchemaUpdate]",
        says: "a new connection writes the new column on the same stream, and the offsets go on",
        behaviour: Behaviour::StreamsOutliveChanges,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 2);
            w.add_columns(&["m"]);
            w.now += LAG_MS;
            w.machine.lost(c);
            let c = w.open();
            vec![
                first,
                w.send(c, &request(&s, Some(2), &two_columns(7))),
                w.flush(&s, 2),
                format!("{:?}", w.visible()),
                format!("{:?}", w.rows().column(1)),
            ]
        },
        answers: &[
            "at 0",
            "at 2",
            "flushed 2",
            "[0, 1, 7]",
            "PrimitiveArray<Int64>\n[\n  null,\n  null,\n  70,\n]",
        ],
    },
    Fact {
        source: "write-api.md 1.2, 7.3 [PROD GIT comment]",
        says: "GetWriteStream may know a new column before those who append do",
        behaviour: Behaviour::ViewKnowsFirst,
        script: || {
            let mut w = World::new();
            let s = w.create(Type::Buffered);
            w.add_columns(&["m"]);
            let reply = w.get(&s, WriteStreamView::Full as i32);
            let view = w.unary(reply, |stream| {
                stream.table_schema.as_ref().unwrap().fields.len().to_string()
            });
            let c = w.open();
            let said = w.send(c, &request(&s, Some(0), &two_columns(7)));
            vec![view, said.split(':').next().unwrap_or_default().to_owned()]
        },
        answers: &["2", "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(S1)"],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]; whether and how long UNCONFIRMED, switch create_answer_lags",
        says: "CreateWriteStream answers the table's columns, or those of an earlier time",
        behaviour: Behaviour::CreateAnswersSchema,
        script: || {
            let mut w = World::new();
            let told = |w: &mut World| {
                let reply = w.try_create(TABLE, Type::Buffered);
                w.unary(reply, |stream| {
                    let schema = stream.table_schema.as_ref();
                    schema.map_or_else(String::new, |schema| schema.fields.len().to_string())
                })
            };
            w.add_columns(&["m"]);
            let mut said = vec![told(&mut w)];
            w.machine.switches_mut().create_answer_lags = true;
            for wait in [0, LAG_MS - 1, 1] {
                w.now += wait;
                said.push(told(&mut w));
            }
            said
        },
        answers: &["2", "1", "1", "2"],
    },
];

/// One row: `n` and ten times as much in `m`.
fn two_columns(n: i64) -> RecordBatch {
    let column = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    RecordBatch::try_from_iter([("n", column(n)), ("m", column(10 * n))]).unwrap()
}
