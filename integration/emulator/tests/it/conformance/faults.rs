//! Injected faults, and the record that tests look into (write-api.md 9, testing.md 7).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use prost::Message;

use super::{DEFAULT, Fact, plan};
use crate::world::{START, TABLE, World, ints, request};

fn faulty(rules: &str) -> World {
    World::with(Switches::default(), plan(&format!(r#"{{"rules": [{rules}]}}"#)))
}

fn shown(w: &World) -> String {
    format!("{:?}", w.visible())
}

/// How many rows each stream has.
fn ends(w: &World) -> String {
    let streams = w.machine.streams();
    let ends = streams.iter().map(|stream| stream.end.to_string());
    ends.collect::<Vec<_>>().join(" ")
}

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 9, fault refuse",
        says: "a refused call has done nothing; an append can be refused inside the stream",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = World::with(
                Switches::default(),
                plan(
                    r#"{"rules": [
                    {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "refuse",
                     "code": "RESOURCE_EXHAUSTED", "message": "Exceeds 'AppendRows throughput' quota", "in_band": true}},
                    {"rpc": "FlushRows", "table": "t", "occurrence": {"times": 1},
                     "action": {"kind": "refuse", "code": "NOT_FOUND", "storage_error": "STREAM_NOT_FOUND"}},
                    {"rpc": "AppendRowsOpen", "occurrence": {"nth": 2},
                     "action": {"kind": "refuse", "code": "UNAVAILABLE", "message": "the connection is draining"}}]}"#,
                ),
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said: Vec<_> = (0..3).map(|_| w.append(c, &s, Some(0), 1)).collect();
            said.extend([w.flush(&s, 0), w.flush(&s, 0)]);
            let c = w.open();
            said.push(w.append(c, &s, Some(1), 1));
            said.push(
                w.machine
                    .faults()
                    .iter()
                    .map(|rule| format!("{}/{} ", rule.fired, rule.seen))
                    .collect(),
            );
            said
        },
        answers: &[
            "at 0",
            "ResourceExhausted: Exceeds 'AppendRows throughput' quota",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 1, received 0",
            "NotFound STREAM_NOT_FOUND(S1): ",
            "flushed 0",
            "ended Unavailable: the connection is draining",
            "1/4 1/2 1/2 ",
        ],
    },
    Fact {
        source: "write-api.md 9, fault lose_answer",
        says: "a lost answer was applied: the resend already exists, the flush shows its rows, the stream is there",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = World::with(
                Switches::default(),
                plan(
                    r#"{"rules": [
                    {"rpc": "AppendRows", "stream": "_default", "action": {"kind": "lose_answer"}},
                    {"rpc": "AppendRows", "occurrence": {"nth": 1},
                     "action": {"kind": "lose_answer", "code": "ABORTED"}},
                    {"rpc": "CreateWriteStream", "occurrence": {"nth": 2}, "action": {"kind": "lose_answer"}},
                    {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer"}}]}"#,
                ),
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 2), w.append(c, &s, Some(2), 1)];
            let c = w.open();
            said.extend([
                w.append(c, &s, Some(0), 2),
                w.flush(&s, 1),
                format!("{:?}", w.visible()),
                w.flush(&s, 1),
            ]);
            let lost = w.try_create(TABLE, Type::Buffered);
            said.push(w.unary(lost, |_| "created".to_owned()));
            said.push(format!(
                "{} streams, {:?}",
                w.machine.streams().len(),
                w.visible()
            ));
            let c = w.open();
            said.push(w.append(c, DEFAULT, None, 1));
            said
        },
        answers: &[
            "ended Aborted: The answer was lost (injected fault).",
            "",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 2, received 0",
            "Unavailable: The answer was lost (injected fault).",
            "[0, 1]",
            "flushed 1",
            "Unavailable: The answer was lost (injected fault).",
            "2 streams, [0, 1]",
            "ended Unavailable: The answer was lost (injected fault).",
        ],
    },
    Fact {
        source: "write-api.md 2.4 and 9, fault lose_answer",
        says: "a commit whose answer is lost was done: repeated, every stream has been committed already",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "BatchCommitWriteStreams", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer"}}"#,
            );
            let (one, two) = (w.create(Type::Pending), w.create(Type::Pending));
            for stream in [&one, &two] {
                let c = w.open();
                w.append(c, stream, None, 1);
                w.finalize(stream);
            }
            vec![
                w.commit(&[&one, &two]),
                shown(&w),
                w.commit(&[&one, &two]),
                shown(&w),
            ]
        },
        answers: &[
            "Unavailable: The answer was lost (injected fault).",
            "[0, 1]",
            "not committed; S1 STREAM_ALREADY_COMMITTED: Stream has already been committed; S2 \
             STREAM_ALREADY_COMMITTED: Stream has already been committed",
            "[0, 1]",
        ],
    },
    Fact {
        source: "design.md 8, fault delay",
        says: "a delayed answer was applied at once; delays add up",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = World::with(
                Switches::default(),
                plan(
                    r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "delay", "ms": 300}},
                                  {"rpc": "FlushRows", "action": {"kind": "delay", "ms": 50}},
                                  {"rpc": "AppendRows", "action": {"kind": "delay", "ms": 7}}]}"#,
                ),
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![
                w.append(c, &s, None, 1),
                w.flush(&s, 0),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &["after 7 ms: at 0", "after 350 ms: flushed 0", "[0]"],
    },
    Fact {
        source: "testing.md 7.2, fault row_errors; write-api.md 3.5",
        says: "rows are found wrong: the whole request is refused inside the stream, and the offset stands",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 2},
                    "action": {"kind": "row_errors", "rows": [2, 0], "message": "too long"}}"#,
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            (0..3).map(|_| w.append(c, &s, None, 3)).collect()
        },
        answers: &[
            "at 0",
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. \
             The list may not be complete because of the size limitations. Entity: S1; row 0 FIELDS_ERROR: too long; \
             row 2 FIELDS_ERROR: too long",
            "at 3",
        ],
    },
    Fact {
        source: "testing.md 7.2, fault end",
        says: "a call is ended with a status, well, or without any status; nothing is done",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 1},
                    "action": {"kind": "end", "code": "INTERNAL", "message": "broken"}},
                   {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "end", "ok": true}},
                   {"rpc": "AppendRows", "occurrence": {"nth": 3}, "action": {"kind": "end"}},
                   {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "end"}}"#,
            );
            let s = w.create(Type::Buffered);
            let mut said = Vec::new();
            for _ in 0..4 {
                let c = w.open();
                said.push(w.append(c, &s, Some(0), 1));
                said.push(w.append(c, &s, Some(1), 1));
            }
            said.extend([w.flush(&s, 0), shown(&w), w.flush(&s, 0)]);
            said
        },
        answers: &[
            "ended Internal: broken",
            "",
            "ended OK",
            "",
            "reset",
            "",
            "at 0",
            "at 1",
            "reset",
            "[]",
            "flushed 0",
        ],
    },
    Fact {
        source: "testing.md 7.2, fault reset",
        says: "the connection is cut before the call is done, or after",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "reset"}},
                   {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "reset", "applied": true}},
                   {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "reset"}},
                   {"rpc": "FlushRows", "occurrence": {"nth": 2}, "action": {"kind": "reset", "applied": true}}"#,
            );
            let s = w.create(Type::Buffered);
            let mut said = Vec::new();
            for _ in 0..3 {
                let c = w.open();
                said.push(w.append(c, &s, Some(0), 1));
            }
            for _ in 0..2 {
                said.extend([w.flush(&s, 0), shown(&w)]);
            }
            said
        },
        answers: &[
            "cut",
            "cut",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 1, received 0",
            "cut",
            "[]",
            "cut",
            "[1]",
        ],
    },
    Fact {
        source: "testing.md 7.2, fault apply_late (zombie); write-api.md 2.6",
        says: "a late append is done though its call has ended and a newer connection is at work: its offset decides",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 2},
                    "action": {"kind": "apply_late", "ms": 1000, "code": "UNAVAILABLE"}},
                   {"rpc": "AppendRowsOpen", "occurrence": {"nth": 2},
                    "action": {"kind": "apply_late", "ms": 1000, "code": "ABORTED"}}"#,
            );
            let (s, old) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(old, &s, Some(0), 1), w.append(old, &s, Some(1), 2)];
            w.now += 500;
            let zombie = w.open();
            said.push(w.append(zombie, &s, Some(1), 1));
            let new = w.open();
            said.push(w.append(new, &s, Some(3), 1));
            w.now += 499;
            w.machine.tick(w.now);
            said.push(ends(&w));
            w.now += 1;
            w.machine.tick(w.now);
            said.push(ends(&w));
            // The zombie that was to open the stream comes too late, and takes it from nobody.
            w.now += 500;
            said.extend([w.append(new, &s, Some(3), 1), ends(&w)]);
            said
        },
        answers: &[
            "at 0",
            "ended Unavailable: The answer was lost (injected fault).",
            "ended Aborted: The answer was lost (injected fault).",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 1, received 3 Entity: S1",
            "1",
            "3",
            "at 3",
            "4",
        ],
    },
    Fact {
        source: "testing.md 7.2, fault apply_late (unanswered)",
        says: "a call that is never answered is done late all the same; what comes behind it on the call is lost",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "apply_late", "ms": 1000}},
                   {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "apply_late", "ms": 5000}},
                   {"rpc": "CreateWriteStream", "occurrence": {"nth": 2},
                    "action": {"kind": "apply_late", "ms": 5000, "code": "UNAVAILABLE"}}"#,
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 3), w.append(c, &s, Some(3), 1)];
            let outputs = w.machine.half_close(c);
            said.extend([w.outputs(c, &outputs), w.machine.connections().to_string()]);
            let created = w.try_create(TABLE, Type::Buffered);
            said.push(w.unary(created, |_| "created".to_owned()));
            said.push(w.flush(&s, 1));
            w.machine.lost(c);
            // Nobody looks when it is done: each thing is done at its own time.
            w.now += 60_000;
            said.push(w.flush(&s, 2));
            let (streams, visible) = (w.machine.streams(), w.machine.visible().entries());
            said.push(format!("{} streams, {}", streams.len(), shown(&w)));
            said.extend(visible.map(|v| format!("{} {}..{}", v.at_ms - START, v.from, v.to)));
            said
        },
        answers: &[
            "",
            "",
            "",
            "1",
            "Unavailable: The answer was lost (injected fault).",
            "nothing",
            "flushed 2",
            "2 streams, [0, 1, 2]",
            "5000 0..2",
            "60000 2..3",
        ],
    },
    Fact {
        source: "testing.md 7.2, fault apply_twice",
        says: "a call that is delivered twice is done twice; either answer is seen",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"from": 1, "every": 2}, "action": {"kind": "apply_twice"}},
                   {"rpc": "AppendRows", "action": {"kind": "apply_twice", "answer": "second"}},
                   {"rpc": "CreateWriteStream", "occurrence": {"nth": 2}, "action": {"kind": "apply_twice"}},
                   {"rpc": "FinalizeWriteStream", "action": {"kind": "apply_twice", "answer": "second"}}"#,
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 1), w.append(c, &s, Some(1), 1)];
            let d = w.open();
            said.extend([w.append(d, DEFAULT, None, 1), shown(&w)]);
            let created = w.try_create(TABLE, Type::Buffered);
            said.push(w.unary(created, |_| "created".to_owned()));
            said.push(format!("{} streams", w.machine.streams().len()));
            said.push(w.finalize(&s));
            // An answer that ends the call ends it: there is no second delivery on it.
            let c = w.open();
            said.push(w.append(c, "nonsense", None, 1));
            said.push(w.append(c, &s, None, 1));
            said
        },
        answers: &[
            "at 0",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 2, received 1",
            "appended",
            "[2, 2]",
            "created",
            "3 streams",
            "finalized at 2",
            "ended InvalidArgument: Invalid stream name: nonsense",
            "",
        ],
    },
    Fact {
        source: "testing.md 7.2, faults go_away, stall and slow",
        says: "answers are held, go slowly, or come with GOAWAY; the calls are done at once",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "go_away"}},
                   {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "stall"}},
                   {"rpc": "FlushRows", "action": {"kind": "stall", "ms": 70}},
                   {"rpc": "FlushRows", "action": {"kind": "stall"}},
                   {"rpc": "FlushRows", "action": {"kind": "delay", "ms": 5}},
                   {"rpc": "AppendRows", "stream": "_default", "action": {"kind": "slow", "bytes_per_second": 100}},
                   {"rpc": "AppendRows", "stream": "_default", "action": {"kind": "slow", "bytes_per_second": 1000}}"#,
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, None, 1), w.append(c, &s, None, 1), w.flush(&s, 1)];
            let d = w.open();
            let one = request(DEFAULT, None, &ints(7, 1));
            let took_ms = one.encoded_len() as i64 * 10;
            let due = |said: String, expected: i64| said == format!("after {expected} ms: appended");
            // The second request waits on the line behind the first.
            said.push(due(w.send(d, &one), took_ms).to_string());
            w.now += 1000;
            said.push(due(w.send(d, &one), 2 * took_ms - 1000).to_string());
            w.now += 3 * took_ms;
            said.push(due(w.send(d, &one), took_ms).to_string());
            said.push(shown(&w));
            said
        },
        answers: &[
            "go away; at 0",
            "stalled: at 1",
            "after 5 ms: stalled for 70 ms: flushed 1",
            "true",
            "true",
            "true",
            "[0, 1, 7, 7, 7]",
        ],
    },
    Fact {
        source: "testing.md 7.2, faults expire_stream and recreate_table",
        says: "a stream expires, or its table is recreated, before a call",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "expire_stream"}},
                   {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "recreate_table"}},
                   {"rpc": "CreateWriteStream", "occurrence": {"nth": 3}, "action": {"kind": "recreate_table"}},
                   {"rpc": "GetWriteStream", "stream": "_default", "action": {"kind": "expire_stream"}}"#,
            );
            let (gone, s, c) = (w.create(Type::Buffered), w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &gone, None, 1), w.append(c, &gone, None, 1)];
            let (c, d) = (w.open(), w.open());
            said.extend([w.append(d, DEFAULT, None, 1), w.append(c, &s, None, 1), shown(&w)]);
            said.extend([w.flush(&s, 0), shown(&w), w.append(c, &s, None, 1)]);
            said.extend([w.append(d, DEFAULT, None, 1), shown(&w)]);
            let created = w.create(Type::Buffered);
            let c = w.open();
            said.extend([shown(&w), w.append(c, &created, None, 1)]);
            let got = w.get(DEFAULT, 0);
            said.push(w.unary(got, |_| "found".to_owned()));
            said
        },
        answers: &[
            "at 0",
            "ended NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "appended",
            "at 0",
            "[2]",
            "NotFound STREAM_NOT_FOUND(S2): Table T is re-created. Entity: S2",
            "[]",
            "ended NotFound STREAM_NOT_FOUND(S2): Table T is re-created. Entity: S2",
            "appended",
            "[5]",
            "[]",
            "at 0",
            "found",
        ],
    },
    Fact {
        source: "write-api.md 2.7, fault stale_end",
        says: "for some time a new connection takes the end for an earlier one; no row is taken twice",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRowsOpen", "occurrence": {"nth": 2}, "action": {"kind": "stale_end", "ms": 5000}},
                   {"rpc": "AppendRowsOpen", "occurrence": {"nth": 3},
                    "action": {"kind": "stale_end", "ms": 5000, "rows": 2}}"#,
            );
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 5)];
            w.machine.lost(c);
            let c = w.open();
            said.extend([w.append(c, &s, Some(5), 1), w.append(c, &s, Some(0), 1)]);
            w.now += 4999;
            said.push(w.append(c, &s, Some(5), 1));
            w.now += 1;
            said.push(w.append(c, &s, Some(5), 1));
            w.machine.lost(c);
            let c = w.open();
            said.extend([
                w.append(c, &s, Some(6), 1),
                w.append(c, &s, Some(4), 1),
                w.append(c, &s, None, 1),
            ]);
            said.push(ends(&w));
            said
        },
        answers: &[
            "at 0",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 0, received 5 Entity: S1",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 5, received 0",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 0, received 5 Entity: S1",
            "at 5",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): The offset is beyond stream, expected offset 4, received 6 Entity: S1",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 6, received 4",
            "at 6",
            "7",
        ],
    },
    Fact {
        source: "write-api.md 7.3, fault updated_schema",
        says: "the answer to an append that succeeds says what the schema is; one to a duplicate does not",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(r#"{"rpc": "AppendRows", "action": {"kind": "updated_schema"}}"#);
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![w.append(c, &s, Some(0), 1), w.append(c, &s, Some(0), 1)]
        },
        answers: &[
            "at 0; now n",
            "AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 1, received 0",
        ],
    },
    Fact {
        source: "testing.md 7.2, filters",
        says: "a rule can ask for the connection, for how long the stream is, and for a row",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "connection": 2, "action": {"kind": "delay", "ms": 1}},
                   {"rpc": "AppendRows", "offset": 4, "action": {"kind": "delay", "ms": 10}},
                   {"rpc": "AppendRows", "after_rows": 5, "action": {"kind": "delay", "ms": 100}},
                   {"rpc": "FlushRows", "after_rows": 8, "action": {"kind": "delay", "ms": 1000}}"#,
            );
            let (s, one) = (w.create(Type::Buffered), w.open());
            let mut said = vec![
                w.append(one, &s, Some(0), 3),
                w.append(one, &s, None, 2),
                w.append(one, &s, Some(4), 1),
                w.flush(&s, 1),
            ];
            w.machine.lost(one);
            let (two, three) = (w.open(), w.open());
            said.extend([
                w.append(two, &s, Some(5), 3),
                w.append(three, &s, Some(8), 1),
                w.flush(&s, 2),
            ]);
            said
        },
        answers: &[
            "at 0",
            "after 10 ms: at 3",
            "after 110 ms: AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 5, \
             received 4",
            "flushed 1",
            "after 101 ms: at 5",
            "connection 2 ended FailedPrecondition: Closing the stream because another connection was opened on it. \
             Entity: S1; after 100 ms: at 8",
            "after 1000 ms: flushed 2",
        ],
    },
    Fact {
        source: "testing.md 7.2, FaultPlan",
        says: "faults go together: the world changes, the first rule that decides does, the way back adds up",
        behaviour: Behaviour::FaultsFire,
        script: || {
            let mut w = faulty(
                r#"{"rpc": "AppendRows", "action": {"kind": "lose_answer", "code": "INTERNAL"}},
                   {"rpc": "AppendRowsOpen", "occurrence": {"nth": 2},
                    "action": {"kind": "refuse", "code": "UNAVAILABLE"}},
                   {"rpc": "AppendRowsOpen", "occurrence": {"nth": 2}, "action": {"kind": "end", "ok": true}},
                   {"rpc": "AppendRows", "action": {"kind": "delay", "ms": 3}},
                   {"rpc": "AppendRows", "action": {"kind": "go_away"}},
                   {"rpc": "AppendRowsOpen", "occurrence": {"nth": 2}, "action": {"kind": "delay", "ms": 4}},
                   {"rpc": "FlushRows", "action": {"kind": "refuse", "code": "ABORTED"}},
                   {"rpc": "FlushRows", "action": {"kind": "expire_stream"}},
                   {"rpc": "FlushRows", "action": {"kind": "stall"}},
                   {"rpc": "FlushRows", "action": {"kind": "reset"}}"#,
            );
            let (s, one, two) = (w.create(Type::Buffered), w.open(), w.open());
            let mut said = vec![
                w.append(one, &s, Some(0), 1),
                w.append(two, &s, Some(1), 1),
                ends(&w),
            ];
            said.extend([w.flush(&s, 0), ends(&w)]);
            let counts = w.machine.faults();
            let counts = counts.iter().map(|rule| format!("{}/{}", rule.fired, rule.seen));
            said.push(counts.collect::<Vec<_>>().join(" "));
            said
        },
        answers: &[
            "go away; after 3 ms: ended Internal: The answer was lost (injected fault).",
            "go away; after 7 ms: ended Unavailable: ",
            "1",
            "stalled: Aborted: ",
            "",
            "2/2 1/2 1/2 2/2 2/2 1/2 1/1 1/1 1/1 1/1",
        ],
    },
    Fact {
        source: "testing.md 3.1 [google-cloud-rust #6849, nodejs-bigquery-storage #443]",
        says: "on a table named *_reconnect_on_close each call ends after ten requests",
        behaviour: Behaviour::ReconnectingTables,
        script: || {
            let mut w = World::new();
            w.table(
                "t_reconnect_on_close",
                "US",
                vec![Column::new("n", Kind::Int64, Mode::Nullable)],
            );
            let stream = DEFAULT.replace("/t/", "/t_reconnect_on_close/");
            let (c, d) = (w.open(), w.open());
            let mut said: Vec<_> = (0..11).map(|_| w.append(c, &stream, None, 1)).collect();
            said.push(w.append(d, &stream, None, 1));
            said.split_off(8)
        },
        answers: &[
            "appended",
            "appended; ended Aborted: Closing the stream because server is restarted. This is expected and client is \
             advised to reconnect. Entity: T_reconnect_on_close/streams/_default",
            "",
            "appended",
        ],
    },
    Fact {
        source: "testing.md 3.1 [google-cloud-rust #6849, nodejs-bigquery-storage #443]; switch failed_openings",
        says: "on a table named *_initial_connect_failure opening a call fails before it succeeds, for each stream",
        behaviour: Behaviour::HardToOpenTables,
        script: || {
            let switches = Switches {
                failed_openings: 2,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            w.table(
                "t_initial_connect_failure",
                "US",
                vec![Column::new("n", Kind::Int64, Mode::Nullable)],
            );
            let table = TABLE.replace("/tables/t", "/tables/t_initial_connect_failure");
            let stream = w.try_create(&table, Type::Buffered);
            let stream = stream.result.unwrap().name;
            let id = stream.rsplit('/').next().unwrap().to_owned();
            let mut said = Vec::new();
            for _ in 0..4 {
                let c = w.open();
                said.push(w.append(c, &stream, None, 1).replace(&id, "it"));
            }
            let c = w.open();
            said.push(w.append(c, &format!("{table}/_default"), None, 1));
            let c = w.open();
            said.push(w.append(c, &format!("{table}/streams/none"), None, 1));
            said
        },
        answers: &[
            "ended Unavailable: The service is currently unavailable. Entity: T_initial_connect_failure/streams/it",
            "ended Unavailable: The service is currently unavailable. Entity: T_initial_connect_failure/streams/it",
            "at 0",
            "ended Unavailable: The service is currently unavailable. Entity: T_initial_connect_failure/streams/it",
            "ended Unavailable: The service is currently unavailable. Entity: T_initial_connect_failure/streams/_default",
            "ended NotFound STREAM_NOT_FOUND(T_initial_connect_failure/streams/none): Requested entity was not found. \
             Entity: T_initial_connect_failure/streams/none",
        ],
    },
    Fact {
        source: "testing.md 7.4 (P5)",
        says: "every change of what is visible is recorded: when, where, stream and offsets",
        behaviour: Behaviour::VisibilityRecorded,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 4);
            w.flush(&s, 1);
            w.flush(&s, 1);
            w.now += 5;
            w.flush(&s, 3);
            let d = w.open();
            w.append(d, DEFAULT, None, 2);
            let name = |stream: &Option<String>| stream.as_deref().map(|name| name == s);
            let said = w.machine.visible().entries();
            said.map(|v| {
                format!(
                    "{} {} {:?} {}..{}",
                    v.at_ms,
                    v.table,
                    name(&v.stream),
                    v.from,
                    v.to
                )
            })
            .collect()
        },
        answers: &[
            "1700000000000 p:d.t Some(true) 0..2",
            "1700000000005 p:d.t Some(true) 2..4",
            "1700000000005 p:d.t None 4..6",
        ],
    },
];
