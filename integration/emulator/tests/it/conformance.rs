//! One row a fact: where it is written, what it says, a script, and what the emulator must answer to it.

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{CallMeta, FlushBelow, FlushUnset, MissingTable, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::{WriteStreamView, write_stream::Type};

use crate::world::{TABLE, World, ints, messages, raw_request, request};

/// A fact about the service.
struct Fact {
    /// Where it is written, and how well it is proven.
    source: &'static str,
    /// What it says.
    says: &'static str,
    /// Tries it, and writes down the answers.
    script: fn() -> Vec<String>,
    /// What they must be.
    answers: &'static [&'static str],
}

const DEFAULT: &str = "projects/p/datasets/d/tables/t/streams/_default";
const DAY_MS: i64 = 86_400_000;

const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 1.2 [PROD JIT, RIT]",
        says: "an append answers the offset of its first row",
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
        source: "write-api.md 2.1 rule 4",
        says: "an append without offset goes to the end",
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
        source: "issue 3: offsets at the edges of i64",
        says: "a negative offset is invalid, the greatest is out of range",
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
        source: "write-api.md 2.1 [PROD nodejs-bigquery-storage #348]",
        says: "a call that ends without any request cannot be routed",
        script: || {
            let mut w = World::new();
            let c = w.open();
            let outputs = w.machine.half_close(c);
            vec![w.outputs(c, &outputs)]
        },
        answers: &["ended InvalidArgument: Cannot route on empty project id ''"],
    },
    Fact {
        source: "write-api.md 3.6 [CLIENT]",
        says: "after a half-close the call ends well",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, None, 1);
            let outputs = w.machine.half_close(c);
            vec![first, w.outputs(c, &outputs), w.machine.connections().to_string()]
        },
        answers: &["at 0", "ended OK", "0"],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "the first request names the stream and the schema, later ones may leave out both",
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
        source: "write-api.md 1.2 [DOC P]",
        says: "a connection on an application stream cannot switch, one on default streams can",
        script: || {
            let mut w = World::new();
            w.table("u", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
            let (s, other, c) = (w.create(Type::Buffered), w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, None, 1), w.append(c, &other, None, 1)];
            let c = w.open();
            said.push(w.append(c, DEFAULT, None, 1));
            said.push(w.append(c, &DEFAULT.replace("/t/", "/u/"), None, 1));
            said.push(w.append(c, "", None, 1));
            said
        },
        answers: &[
            "at 0",
            "ended InvalidArgument: A connection can switch between default streams only. Entity: S1",
            "appended",
            "appended",
            "ended InvalidArgument: The write stream must be set on every request of a connection that has switched \
             streams.",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [CLIENT G:connection]",
        says: "a later writer schema on an application stream is ignored",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            let first = w.append(c, &s, None, 1);
            let (_, rows) = messages(&ints(8, 1));
            let later = raw_request(&s, None, Some(b"no schema".to_vec()), rows);
            vec![first, w.send(c, &later), format!("{:?}", w.visible())]
        },
        answers: &["at 0", "at 1", "[0, 8]"],
    },
    Fact {
        source: "write-api.md 2 [DOC P, PROD JIT]",
        says: "the default stream takes no offset and answers none; its rows are visible at once",
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
        source: "write-api.md 2",
        says: "rows of COMMITTED streams are visible when appended, of BUFFERED and PENDING ones not",
        script: || {
            let mut w = World::new();
            let mut said = Vec::new();
            for kind in [Type::Committed, Type::Buffered, Type::Pending] {
                let (s, c) = (w.create(kind), w.open());
                said.push(w.append(c, &s, Some(0), 2));
                said.push(format!("{:?}", w.visible()));
            }
            said
        },
        answers: &["at 0", "[0, 1]", "at 0", "[0, 1]", "at 0", "[0, 1]"],
    },
    Fact {
        source: "write-api.md 2.2 [DOC P, PROD GIT, RIT]",
        says: "a flush is inclusive, moves forward only, and shows each row once",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let mut said = vec![w.append(c, &s, Some(0), 2), w.append(c, &s, Some(2), 3)];
            for offset in [0, 2, 2, 1, 4] {
                said.push(w.flush(&s, offset));
                said.push(format!("{:?}", w.visible()));
            }
            said
        },
        answers: &[
            "at 0",
            "at 2",
            "flushed 0",
            "[0]",
            "flushed 2",
            "[0, 1, 2]",
            "flushed 2",
            "[0, 1, 2]",
            "flushed 1",
            "[0, 1, 2]",
            "flushed 4",
            "[0, 1, 2, 3, 4]",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [CLIENT BEAM-F], switches flush_again and flush_below",
        says: "or a flush that shows nothing new already exists",
        script: || {
            let switches = Switches {
                flush_again: FlushBelow::AlreadyExists,
                flush_below: FlushBelow::AlreadyExists,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 3);
            vec![
                w.flush(&s, 1),
                w.flush(&s, 1),
                w.flush(&s, 0),
                w.flush(&s, 2),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &[
            "flushed 1",
            "AlreadyExists: Offset 1 was flushed already. Entity: S1",
            "AlreadyExists: Offset 0 was flushed already. Entity: S1",
            "flushed 2",
            "[0, 1, 2]",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [PROD beam #30177]",
        says: "a flush beyond the end is out of range and shows nothing",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let empty = w.flush(&s, 0);
            w.append(c, &s, None, 2);
            let beyond = w.flush(&s, 2);
            w.machine.switches_mut().flush_error_details = true;
            vec![empty, beyond, w.flush(&s, i64::MAX), format!("{:?}", w.visible())]
        },
        answers: &[
            "OutOfRange: Offset 0 is beyond the end of the stream Entity: S1",
            "OutOfRange: Offset 2 is beyond the end of the stream Entity: S1",
            "OutOfRange OFFSET_OUT_OF_RANGE(S1): Offset 9223372036854775807 is beyond the end of the stream Entity: S1",
            "[]",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [PROD flink #235, PR #347]",
        says: "a finalized stream takes no flush, of its tail or of what was flushed long ago",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 3);
            vec![
                w.flush(&s, 1),
                w.finalize(&s),
                w.flush(&s, 2),
                w.flush(&s, 1),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &[
            "flushed 1",
            "finalized at 3",
            "InvalidArgument: Stream has been finalized and cannot be appended: S1 Entity: S1",
            "InvalidArgument: Stream has been finalized and cannot be appended: S1 Entity: S1",
            "[0, 1]",
        ],
    },
    Fact {
        source: "write-api.md 2.2 UNCONFIRMED, switch flush_unset",
        says: "a flush without offset is refused, or flushes one row, or all; a negative one is invalid",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 3);
            let mut said = vec![w.flush(&s, -1)];
            for unset in [FlushUnset::Refuse, FlushUnset::Zero, FlushUnset::Everything] {
                w.machine.switches_mut().flush_unset = unset;
                said.push(w.flush(&s, None));
                said.push(format!("{:?}", w.visible()));
            }
            said
        },
        answers: &[
            "InvalidArgument: Invalid offset -1. Entity: S1",
            "InvalidArgument: The offset to flush must be set. Entity: S1",
            "[]",
            "flushed 0",
            "[0]",
            "flushed 2",
            "[0, 1, 2]",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [DOC]; the code is UNCONFIRMED",
        says: "only BUFFERED streams are flushed",
        script: || {
            let mut w = World::new();
            let (committed, pending) = (w.create(Type::Committed), w.create(Type::Pending));
            vec![w.flush(&committed, 0), w.flush(&pending, 0), w.flush(DEFAULT, 0)]
        },
        answers: &[
            "InvalidArgument: FlushRows is not supported for COMMITTED streams. Entity: S1",
            "InvalidArgument: FlushRows is not supported for PENDING streams. Entity: S2",
            "InvalidArgument: FlushRows is not supported for default streams. Entity: T/streams/_default",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [CLIENT BEAM-F], 3.4",
        says: "an unknown stream is not found, by any call",
        script: || {
            let mut w = World::new();
            let (name, c) = (format!("{TABLE}/streams/gone"), w.open());
            let got = w.get(&name, 0);
            vec![
                w.flush(&name, 0),
                w.finalize(&name),
                w.append(c, &name, None, 1),
                w.unary(got, |_| String::new()),
            ]
        },
        answers: &[
            "NotFound STREAM_NOT_FOUND(T/streams/gone): Requested entity was not found. Entity: T/streams/gone",
            "NotFound STREAM_NOT_FOUND(T/streams/gone): Requested entity was not found. Entity: T/streams/gone",
            "ended NotFound STREAM_NOT_FOUND(T/streams/gone): Requested entity was not found. Entity: T/streams/gone",
            "NotFound STREAM_NOT_FOUND(T/streams/gone): Requested entity was not found. Entity: T/streams/gone",
        ],
    },
    Fact {
        source: "write-api.md 2.3 [DOC, PROD JIT/GIT]; the second call UNCONFIRMED",
        says: "finalize counts all rows, flushes none, and may be called again; the default stream has none",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 5);
            w.flush(&s, 1);
            let mut said = vec![
                w.finalize(&s),
                w.finalize(&s),
                format!("{:?}", w.visible()),
                w.finalize(DEFAULT),
            ];
            w.machine.switches_mut().finalize_counts_unflushed = false;
            said.push(w.finalize(&s));
            w.machine.switches_mut().finalize_twice_refused = true;
            said.push(w.finalize(&s));
            said
        },
        answers: &[
            "finalized at 5",
            "finalized at 5",
            "[0, 1]",
            "InvalidArgument INVALID_STREAM_TYPE(T/streams/_default): The default stream cannot be finalized. Entity: \
             T/streams/_default",
            "finalized at 2",
            "InvalidArgument STREAM_FINALIZED(S1): Stream has been finalized and cannot be appended: S1 Entity: S1",
        ],
    },
    Fact {
        source: "write-api.md 2.4 [DOC P, CLIENT BEAM-C]",
        says: "PENDING streams are committed together, once, all finalized or none",
        script: || {
            let mut w = World::new();
            let (one, two) = (w.create(Type::Pending), w.create(Type::Pending));
            for stream in [&one, &two] {
                let c = w.open();
                w.append(c, stream, Some(0), 2);
            }
            w.finalize(&one);
            let mut said = vec![
                w.commit(&[&one, &two]),
                format!("{:?}", w.visible()),
                w.finalize(&two),
            ];
            said.push(w.commit(&[&one, &two]));
            said.push(format!("{:?}", w.visible()));
            said.push(w.commit(&[&one]));
            said
        },
        answers: &[
            "not committed; S2 INVALID_STREAM_STATE: Stream is not finalized",
            "[]",
            "finalized at 2",
            "committed",
            "[0, 1, 2, 3]",
            "not committed; S1 STREAM_ALREADY_COMMITTED: Stream has already been committed",
        ],
    },
    Fact {
        source: "write-api.md 2.4 [PROD nodejs #413]",
        says: "other streams are refused inside an OK response",
        script: || {
            let mut w = World::new();
            let (s, gone) = (w.create(Type::Buffered), format!("{TABLE}/streams/gone"));
            vec![
                w.commit(&[&s]),
                w.commit(&[DEFAULT]),
                w.commit(&[&gone]),
                w.commit(&[]),
            ]
        },
        answers: &[
            "not committed; S1 INVALID_STREAM_TYPE: Stream must be created in pending mode, actual: BUFFERED",
            "not committed; projects/p/datasets/d/tables/t/streams/_default INVALID_STREAM_TYPE: Stream must be \
             created in pending mode, actual: WRITE_OPTIMIZED",
            "not committed; projects/p/datasets/d/tables/t/streams/gone STREAM_NOT_FOUND: Stream not found",
            "InvalidArgument: Between 1 and 10000 streams can be committed, not 0.",
        ],
    },
    Fact {
        source: "write-api.md 2.6 [java-bigquerystorage PR #2214]",
        says: "the newest connection on an application stream wins, and the older one ends",
        script: || {
            let mut w = World::new();
            let (s, old, new) = (w.create(Type::Buffered), w.open(), w.open());
            vec![
                w.append(old, &s, Some(0), 1),
                w.append(new, &s, Some(1), 1),
                w.append(old, &s, Some(2), 1),
                w.append(new, &s, Some(2), 1),
            ]
        },
        answers: &[
            "at 0",
            "connection 1 ended FailedPrecondition: Closing the stream because another connection was opened on it. \
             Entity: S1; at 1",
            "",
            "at 2",
        ],
    },
    Fact {
        source: "write-api.md 2 (connections: any number)",
        says: "connections on the default stream do not fence each other",
        script: || {
            let mut w = World::new();
            let (one, two) = (w.open(), w.open());
            vec![
                w.append(one, DEFAULT, None, 1),
                w.append(two, DEFAULT, None, 1),
                w.append(one, DEFAULT, None, 1),
            ]
        },
        answers: &["appended", "appended", "appended"],
    },
    Fact {
        source: "write-api.md 2.7 [PROD JIT testStreamReconnect]",
        says: "any process may go on with a stream at its end",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 2);
            w.machine.lost(c);
            let c = w.open();
            vec![first, w.append(c, &s, Some(2), 1)]
        },
        answers: &["at 0", "at 2"],
    },
    Fact {
        source: "write-api.md 3.6 [PROD python #593, nodejs #427]",
        says: "a call without traffic for 600 s is aborted, with the stream's name",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 1);
            w.now += 599_999;
            let early = w.machine.tick(w.now).len();
            w.now += 1;
            let outputs = w.machine.tick(w.now);
            vec![
                early.to_string(),
                w.outputs(c, &outputs),
                w.append(c, &s, None, 1),
            ]
        },
        answers: &[
            "0",
            "ended Aborted: Closing the stream because it has been inactive for 600 seconds. Entity: S1",
            "",
        ],
    },
    Fact {
        source: "write-api.md 2 (idle TTL) [DOC]; what renews it UNCONFIRMED, switch flush_renews_life",
        says: "a BUFFERED stream lives seven days after its last append, a COMMITTED one three, a PENDING one one",
        script: || {
            let mut w = World::new();
            let mut said = Vec::new();
            for (kind, days) in [(Type::Buffered, 7), (Type::Committed, 3), (Type::Pending, 1)] {
                let (s, c) = (w.create(kind), w.open());
                w.append(c, &s, None, 2);
                w.now += days * DAY_MS;
                let got = w.get(&s, 0);
                said.push(w.unary(got, |_| "lives".to_owned()));
                w.now += 1;
                let got = w.get(&s, 0);
                said.push(w.unary(got, |_| "lives".to_owned()));
            }
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 2);
            for renews in [true, false] {
                w.machine.switches_mut().flush_renews_life = renews;
                w.now += 5 * DAY_MS;
                said.push(w.flush(&s, 1));
            }
            w.now += 5 * DAY_MS;
            said.push(w.flush(&s, 1));
            said
        },
        answers: &[
            "lives",
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "lives",
            "NotFound STREAM_NOT_FOUND(S2): Requested entity was not found. Entity: S2",
            "lives",
            "NotFound STREAM_NOT_FOUND(S3): Requested entity was not found. Entity: S3",
            "flushed 1",
            "flushed 1",
            "NotFound STREAM_NOT_FOUND(S4): Requested entity was not found. Entity: S4",
        ],
    },
    Fact {
        source: "write-api.md 7.3, 3.4",
        says: "streams die with their table; a table of the same name does not revive them",
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 2);
            let table = TableRef::new("p", "d", "t");
            w.machine.catalog.delete_table(&table).unwrap();
            let mut said = vec![w.flush(&s, 1), w.append(c, &s, None, 1)];
            w.machine.switches_mut().missing_table = MissingTable::PermissionDenied;
            said.push(w.flush(&s, 1));
            w.table("t", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
            said.push(w.flush(&s, 1));
            said.push(format!("{:?}", w.visible()));
            said
        },
        answers: &[
            "NotFound TABLE_NOT_FOUND(T): Requested entity was not found. Entity: T",
            "ended NotFound TABLE_NOT_FOUND(T): Requested entity was not found. Entity: T",
            "PermissionDenied: Permission 'TABLES_UPDATE_DATA' denied on resource 'T' (or it may not exist).",
            "NotFound STREAM_NOT_FOUND(S1): Table T is re-created. Entity: S1",
            "[]",
        ],
    },
    Fact {
        source: "write-api.md 3.7 [DOC D:write-api-grpc]",
        says: "outside the US the routing header is needed",
        script: || {
            let mut w = World::new();
            w.table(
                "t",
                "europe-west3",
                vec![Column::new("n", Kind::Int64, Mode::Nullable)],
            );
            let path = TABLE.replace("/d/", "/europe_west3/");
            let stream = format!("{path}/streams/_default");
            let mut said = Vec::new();
            for routing in [
                None,
                Some(format!("write_stream={stream}")),
                Some("write_stream=x".to_owned()),
            ] {
                let meta = CallMeta {
                    routing,
                    authorization: None,
                };
                let c = w.machine.open_append(w.now, meta);
                said.push(w.append(c, &stream, None, 1));
            }
            said
        },
        answers: &[
            "ended PermissionDenied: Permission 'TABLES_UPDATE_DATA' denied on resource \
             'projects/p/datasets/europe_west3/tables/t' (or it may not exist).",
            "appended",
            "ended PermissionDenied: Permission 'TABLES_UPDATE_DATA' denied on resource \
             'projects/p/datasets/europe_west3/tables/t' (or it may not exist).",
        ],
    },
    Fact {
        source: "write-api.md 4 [P, D:quotas, JIT; PROD GIT testLargeInsertNoRetry]",
        says: "a request over the limit ends the call, with Google's text",
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
        source: "write-api.md 1.2 [DOC P]",
        says: "CreateWriteStream answers type, times, schema, location and a name that production could have chosen",
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
        source: "design.md 8, switch require_token",
        says: "with tokens required, calls without one are unauthenticated",
        script: || {
            let switches = Switches {
                require_token: Some(vec!["good".to_owned()]),
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let mut said = Vec::new();
            for token in [None, Some("good"), Some("Bearer bad"), Some("Bearer good")] {
                let authorization = token.map(str::to_owned);
                let c = w.machine.open_append(
                    w.now,
                    CallMeta {
                        authorization,
                        routing: None,
                    },
                );
                said.push(w.append(c, DEFAULT, None, 1));
            }
            let refused = w.try_create(TABLE, Type::Buffered);
            said.push(w.unary(refused, |_| "created".to_owned()));
            said
        },
        answers: &[
            "ended Unauthenticated: Request had invalid authentication credentials. Expected OAuth 2 access token.",
            "ended Unauthenticated: Request had invalid authentication credentials. Expected OAuth 2 access token.",
            "ended Unauthenticated: Request had invalid authentication credentials. Expected OAuth 2 access token.",
            "appended",
            "Unauthenticated: Request had invalid authentication credentials. Expected OAuth 2 access token.",
        ],
    },
    Fact {
        source: "write-api.md 9, fault refuse",
        says: "a refused call has done nothing; an append can be refused inside the stream",
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

#[test]
fn every_fact_is_answered_as_it_is_written() {
    let mut wrong = Vec::new();
    for fact in FACTS {
        let answers = (fact.script)();
        if answers != fact.answers {
            wrong.push(format!(
                "{} ({}):\n  expected {:#?}\n  found {answers:#?}",
                fact.says, fact.source, fact.answers
            ));
        }
    }
    println!("{} facts", FACTS.len());
    assert!(
        wrong.is_empty(),
        "{} facts of {} are wrong:\n{}",
        wrong.len(),
        FACTS.len(),
        wrong.join("\n")
    );
}

fn plan(json: &str) -> FaultPlan {
    FaultPlan::parse(json).unwrap()
}
