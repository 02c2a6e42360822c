//! What makes rows visible: flush, finalize, commit (write-api.md 2.2 to 2.4).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Code, FlushBelow, FlushUnset, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DAY_MS, DEFAULT, Fact};
use crate::world::{TABLE, World};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 2",
        says: "rows of COMMITTED streams are visible when appended, of BUFFERED and PENDING ones not",
        behaviour: Behaviour::HeldUntilPublished,
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
        behaviour: Behaviour::FlushIsInclusive,
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
        source: "write-api.md 2.2 [DOC P]",
        says: "a flush shows no row behind its offset",
        behaviour: Behaviour::FlushStopsAtOffset,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            vec![
                w.append(c, &s, Some(0), 3),
                w.flush(&s, 1),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &["at 0", "flushed 1", "[0, 1]"],
    },
    Fact {
        source: "write-api.md 2.2 [CLIENT BEAM-F], switches flush_again and flush_below",
        says: "or a flush that shows nothing new already exists",
        behaviour: Behaviour::FlushShowsRowsOnce,
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
        behaviour: Behaviour::FlushBeyondEndRefused,
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
        behaviour: Behaviour::FinalizedTakesNoFlush,
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
        behaviour: Behaviour::FlushNeedsOffset,
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
        behaviour: Behaviour::FlushesBufferedOnly,
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
        source: "write-api.md 2.2 UNCONFIRMED, switch flush_other_kinds",
        says: "or a flush of another kind of stream has another code",
        behaviour: Behaviour::FlushesBufferedOnly,
        script: || {
            let mut w = World::new();
            w.machine.switches_mut().flush_other_kinds = Code::FailedPrecondition;
            let streams = [w.create(Type::Committed), w.create(Type::Pending)];
            streams.map(|stream| w.flush(&stream, 0)).to_vec()
        },
        answers: &[
            "FailedPrecondition: FlushRows is not supported for COMMITTED streams. Entity: S1",
            "FailedPrecondition: FlushRows is not supported for PENDING streams. Entity: S2",
        ],
    },
    Fact {
        source: "write-api.md 2.2 [CLIENT BEAM-F], 3.4",
        says: "an unknown stream is not found, by any call",
        behaviour: Behaviour::UnknownStreamNotFound,
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
        behaviour: Behaviour::FinalizeCountsRows,
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
        behaviour: Behaviour::CommitIsAtomic,
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
        behaviour: Behaviour::CommitsPendingOnly,
        script: || {
            let mut w = World::new();
            let (s, gone) = (w.create(Type::Buffered), format!("{TABLE}/streams/gone"));
            let committed = w.create(Type::Committed);
            vec![
                w.commit(&[&s]),
                w.commit(&[&committed]),
                w.commit(&[DEFAULT]),
                w.commit(&[&gone]),
                w.commit(&[]),
            ]
        },
        answers: &[
            "not committed; S1 INVALID_STREAM_TYPE: Stream must be created in pending mode, actual: BUFFERED",
            "not committed; S2 INVALID_STREAM_TYPE: Stream must be created in pending mode, actual: WRITE_OPTIMIZED",
            "not committed; projects/p/datasets/d/tables/t/streams/_default INVALID_STREAM_TYPE: Stream must be \
             created in pending mode, actual: WRITE_OPTIMIZED",
            "not committed; projects/p/datasets/d/tables/t/streams/gone STREAM_NOT_FOUND: Stream not found",
            "InvalidArgument: Between 1 and 10000 streams can be committed, not 0.",
        ],
    },
    Fact {
        source: "write-api.md 2 [DOC]",
        says: "rows of a COMMITTED stream are visible when they are acknowledged",
        behaviour: Behaviour::CommittedVisibleAtOnce,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            vec![
                w.append(c, &s, Some(0), 2),
                format!("{:?}", w.visible()),
                w.append(c, &s, Some(2), 1),
                format!("{:?}", w.visible()),
            ]
        },
        answers: &["at 0", "[0, 1]", "at 2", "[0, 1, 2]"],
    },
    Fact {
        source: "write-api.md 2 [DOC]",
        says: "rows of the default stream are visible when they are acknowledged",
        behaviour: Behaviour::DefaultStreamVisibleAtOnce,
        script: || {
            let mut w = World::new();
            let c = w.open();
            vec![w.append(c, DEFAULT, None, 2), format!("{:?}", w.visible())]
        },
        answers: &["appended", "[0, 1]"],
    },
    Fact {
        source: "write-api.md 2.3 [DOC G:managed_stream], [CLIENT BEAM-F]",
        says: "finalizing shows nothing of a BUFFERED or PENDING stream; the tail is never visible",
        behaviour: Behaviour::FinalizeShowsNothing,
        script: || {
            let mut w = World::new();
            let mut said = Vec::new();
            for kind in [Type::Buffered, Type::Pending] {
                let (s, c) = (w.create(kind), w.open());
                w.append(c, &s, None, 2);
                said.push(w.finalize(&s));
                said.push(format!("{:?}", w.visible()));
            }
            said
        },
        answers: &["finalized at 2", "[]", "finalized at 2", "[]"],
    },
    Fact {
        source: "write-api.md 2.4 [CLIENT BEAM-C]",
        says: "a second commit says that the first was done, and shows no row again",
        behaviour: Behaviour::CommitsOnce,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Pending), w.open());
            w.append(c, &s, Some(0), 2);
            w.finalize(&s);
            vec![w.commit(&[&s]), w.commit(&[&s]), format!("{:?}", w.visible())]
        },
        answers: &[
            "committed",
            "not committed; S1 STREAM_ALREADY_COMMITTED: Stream has already been committed",
            "[0, 1]",
        ],
    },
    Fact {
        source: "write-api.md 2.4 [DOC P]",
        says: "a PENDING stream is finalized before it is committed",
        behaviour: Behaviour::CommitNeedsFinalize,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Pending), w.open());
            w.append(c, &s, Some(0), 2);
            vec![w.commit(&[&s]), format!("{:?}", w.visible())]
        },
        answers: &[
            "not committed; S1 INVALID_STREAM_STATE: Stream is not finalized",
            "[]",
        ],
    },
    Fact {
        source: "write-api.md 2.4, 3.1 [DOC P, google-cloud-rust #6900]",
        says: "a commit that fails is an OK response with stream_errors for the bad streams alone, without commit_time",
        behaviour: Behaviour::CommitErrorsInOk,
        script: || {
            let mut w = World::new();
            let (good, bad) = (w.create(Type::Pending), w.create(Type::Pending));
            w.finalize(&good);
            vec![w.commit(&[&good, &bad])]
        },
        answers: &["not committed; S2 INVALID_STREAM_STATE: Stream is not finalized"],
    },
    Fact {
        source: "write-api.md 2.4 [DOC P]; code and text UNCONFIRMED",
        says: "the streams of a commit are of the one table that it names",
        behaviour: Behaviour::CommitOfOneTable,
        script: || {
            let mut w = World::new();
            w.table("u", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
            let here = w.create(Type::Pending);
            let there = w.try_create(&TABLE.replace("tables/t", "tables/u"), Type::Pending);
            let there = there.result.unwrap().name;
            for stream in [&here, &there] {
                let c = w.open();
                w.append(c, stream, None, 1);
                w.finalize(stream);
            }
            let said = w.commit(&[&here, &there]).replace(&there, "U1");
            vec![said, format!("{:?}", w.visible())]
        },
        answers: &[
            "not committed; U1 STREAM_NOT_FOUND: Stream does not belong to table projects/p/datasets/d/tables/t",
            "[]",
        ],
    },
    Fact {
        source: "write-api.md 2 (Finalize and FlushRows of `_default`), 2.3 [DOC]",
        says: "the default stream can be neither finalized nor flushed, and goes on",
        behaviour: Behaviour::DefaultStreamGoesOn,
        script: || {
            let mut w = World::new();
            let c = w.open();
            vec![
                w.append(c, DEFAULT, None, 1),
                w.finalize(DEFAULT),
                w.flush(DEFAULT, 0),
                w.append(c, DEFAULT, None, 1),
            ]
        },
        answers: &[
            "appended",
            "InvalidArgument INVALID_STREAM_TYPE(T/streams/_default): The default stream cannot be finalized. Entity: \
             T/streams/_default",
            "InvalidArgument: FlushRows is not supported for default streams. Entity: T/streams/_default",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 2.3 [PROD JIT/GIT]",
        says: "finalizing a PENDING or COMMITTED stream counts all of its rows, whatever is visible",
        behaviour: Behaviour::FinalizeCountsRows,
        script: || {
            let mut w = World::new();
            w.machine.switches_mut().finalize_counts_unflushed = false;
            let kinds = [Type::Pending, Type::Committed].into_iter();
            let mut said: Vec<String> = kinds
                .map(|kind| {
                    let (s, c) = (w.create(kind), w.open());
                    w.append(c, &s, Some(0), 3);
                    w.append(c, &s, Some(3), 4);
                    w.finalize(&s)
                })
                .collect();
            said.push(format!("{:?}", w.visible()));
            said
        },
        answers: &["finalized at 7", "finalized at 7", "[7, 8, 9, 10, 11, 12, 13]"],
    },
    Fact {
        source: "write-api.md 2.4, 3.2 [DOC P]; the text is UNCONFIRMED",
        says: "a commit of a PENDING stream that was garbage-collected names its state; other streams are not found",
        behaviour: Behaviour::CollectedStreamInvalid,
        script: || {
            let mut w = World::new();
            let (old, other) = (w.create(Type::Pending), w.create(Type::Buffered));
            w.finalize(&old);
            w.now += 8 * DAY_MS;
            let mut said = vec![w.commit(&[&old, &other])];
            w.machine.tick(w.now);
            said.push(w.commit(&[&old, &other]));
            let got = w.get(&old, 0);
            said.push(w.unary(got, |_| "lives".to_owned()));
            w.recreate();
            said.push(w.commit(&[&old]));
            said
        },
        answers: &[
            "not committed; S1 INVALID_STREAM_STATE: Stream has been garbage collected; S2 STREAM_NOT_FOUND: Stream not \
             found",
            "not committed; S1 INVALID_STREAM_STATE: Stream has been garbage collected; S2 STREAM_NOT_FOUND: Stream not \
             found",
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "not committed; S1 STREAM_NOT_FOUND: Stream not found",
        ],
    },
    Fact {
        source: "write-api.md 2.4, 4 [DOC P, D:quotas]",
        says: "a commit names at most 10,000 streams",
        behaviour: Behaviour::CommitSizeLimited,
        script: || {
            let mut w = World::new();
            let s = w.create(Type::Pending);
            w.finalize(&s);
            let names = vec![s.as_str(); 10_001];
            vec![w.commit(&names), w.commit(&names[1..])]
        },
        answers: &[
            "InvalidArgument: Between 1 and 10000 streams can be committed, not 10001.",
            "committed",
        ],
    },
];
