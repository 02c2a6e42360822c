//! Injected faults, and the record that tests look into (write-api.md 9, testing.md 7).

use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DEFAULT, Fact, plan};
use crate::world::{TABLE, World};

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
