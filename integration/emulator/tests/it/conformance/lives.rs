//! How long streams live, and what ends them (write-api.md 2, 2.7, 7.3).

use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::machine::{Behaviour, Code, MissingTable};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DAY_MS, Fact};
use crate::world::{TABLE, World, ints, messages, raw_request};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 2 (idle TTL) [DOC]; what renews it UNCONFIRMED, switch flush_renews_life",
        says: "a BUFFERED stream lives seven days after its last append, a COMMITTED one three, a PENDING one one",
        behaviour: Behaviour::StreamsExpire,
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
        source: "write-api.md 2 (idle TTL) [DOC D:write-api-batch-load], switch pending_finalized_ttl_ms",
        says: "a PENDING stream that is finalized waits four hours for its commit; once committed it lives on",
        behaviour: Behaviour::FinalizedPendingExpires,
        script: || {
            const HOURS: i64 = 3_600_000;
            let mut w = World::new();
            let lives = |w: &mut World, s: &str| {
                let got = w.get(s, 0);
                w.unary(got, |_| "lives".to_owned())
            };
            let (kept, late, done) = (
                w.create(Type::Pending),
                w.create(Type::Pending),
                w.create(Type::Pending),
            );
            for s in [&late, &done] {
                let c = w.open();
                w.append(c, s, None, 1);
                w.finalize(s);
            }
            w.now += 4 * HOURS;
            let mut said = vec![lives(&mut w, &late), w.commit(&[&done])];
            w.now += 1;
            said.extend([
                lives(&mut w, &late),
                lives(&mut w, &done),
                lives(&mut w, &kept),
                w.commit(&[&late]),
            ]);
            w.machine.switches_mut().pending_finalized_ttl_ms = 5 * HOURS;
            said.extend([w.commit(&[&late]), format!("{:?}", w.visible())]);
            said
        },
        answers: &[
            "lives",
            "committed",
            "NotFound STREAM_NOT_FOUND(S2): Requested entity was not found. Entity: S2",
            "lives",
            "lives",
            "not committed; S2 INVALID_STREAM_STATE: Stream has been garbage collected",
            "committed",
            "[1, 0]",
        ],
    },
    Fact {
        source: "write-api.md 2, UNCONFIRMED, switch open_renews_life",
        says: "an opening whose first request is refused renews no life, or does",
        behaviour: Behaviour::StreamsExpire,
        script: || {
            let mut w = World::new();
            let mut said = Vec::new();
            for renews in [false, true] {
                w.machine.switches_mut().open_renews_life = renews;
                let s = w.create(Type::Buffered);
                w.now += 5 * DAY_MS;
                let c = w.open();
                let (_, rows) = messages(&ints(0, 1));
                let refused = w.send(c, &raw_request(&s, None, Some(b"no schema".to_vec()), rows));
                said.push(refused.split(':').next().unwrap_or_default().to_owned());
                w.now += 5 * DAY_MS;
                let got = w.get(&s, 0);
                said.push(w.unary(got, |_| "lives".to_owned()));
            }
            said
        },
        answers: &[
            "ended InvalidArgument",
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "ended InvalidArgument",
            "lives",
        ],
    },
    Fact {
        source: "write-api.md 2, UNCONFIRMED, switch pending_ttl_from_creation",
        says: "a PENDING stream's day begins anew with its traffic, or with its creation once",
        behaviour: Behaviour::StreamsExpire,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Pending), w.open());
            w.now += DAY_MS;
            let mut said = vec![w.append(c, &s, None, 1)];
            w.now += DAY_MS;
            for from_creation in [false, true] {
                w.machine.switches_mut().pending_ttl_from_creation = from_creation;
                let got = w.get(&s, 0);
                said.push(w.unary(got, |_| "lives".to_owned()));
            }
            w.machine.switches_mut().pending_ttl_from_creation = false;
            w.now += 1;
            let got = w.get(&s, 0);
            said.push(w.unary(got, |_| "lives".to_owned()));
            said
        },
        answers: &[
            "at 0",
            "lives",
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
        ],
    },
    Fact {
        source: "write-api.md 2.7 INFERRED, switch expired_stream",
        says: "a stream whose life is over is not found, or has another code; one that never was is not found",
        behaviour: Behaviour::StreamsExpire,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 1);
            w.now += 8 * DAY_MS;
            let mut said = vec![w.flush(&s, 0)];
            w.machine.switches_mut().expired_stream = Code::FailedPrecondition;
            said.push(w.flush(&s, 0));
            w.machine.tick(w.now);
            let c = w.open();
            said.extend([
                w.append(c, &s, Some(1), 1),
                w.finalize(&s),
                w.flush(&format!("{TABLE}/streams/never"), 0),
            ]);
            said
        },
        answers: &[
            "NotFound STREAM_NOT_FOUND(S1): Requested entity was not found. Entity: S1",
            "FailedPrecondition: The stream has expired. Entity: S1",
            "ended FailedPrecondition STREAM_NOT_FOUND(S1): The stream has expired. Entity: S1",
            "FailedPrecondition STREAM_NOT_FOUND(S1): The stream has expired. Entity: S1",
            "NotFound STREAM_NOT_FOUND(T/streams/never): Requested entity was not found. Entity: T/streams/never",
        ],
    },
    Fact {
        source: "write-api.md 7.3, 3.4",
        says: "streams die with their table; a table of the same name does not revive them",
        behaviour: Behaviour::StreamsDieWithTable,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            w.append(c, &s, None, 2);
            let table = TableRef::new("p", "d", "t");
            w.machine.delete_table(&table).unwrap();
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
];
