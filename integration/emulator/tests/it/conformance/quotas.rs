//! Quotas (write-api.md 3.4, 4).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Event, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DAY_MS, DEFAULT, Fact};
use crate::world::{TABLE, World, ints, request};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 4 [DOC D:quotas], 3.4 (text)",
        says: "a project creates 10,000 streams an hour; what was used comes back bit by bit",
        behaviour: Behaviour::CreatesLimited,
        script: || {
            let mut w = World::new();
            let mut create = |wait| {
                w.now += wait;
                let reply = w.try_create(TABLE, Type::Buffered);
                w.unary(reply, |_| "created".to_owned())
            };
            let first = (0..10_000).filter(|_| create(0) == "created").count();
            vec![first.to_string(), create(0), create(360), create(0)]
        },
        answers: &[
            "10000",
            "ResourceExhausted: Exceeds 'CreateWriteStream requests' quota of project p (status: INSUFFICIENT_TOKENS)",
            "created",
            "ResourceExhausted: Exceeds 'CreateWriteStream requests' quota of project p (status: INSUFFICIENT_TOKENS)",
        ],
    },
    Fact {
        source: "write-api.md 4 [DOC D:quotas]; the text is UNCONFIRMED",
        says: "a project has so many connections; one that ends makes room",
        behaviour: Behaviour::ConnectionsLimited,
        script: || {
            let switches = Switches {
                connections_per_project: Some(2),
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let (one, two, three) = (w.open(), w.open(), w.open());
            let mut said: Vec<_> = [one, two, three]
                .into_iter()
                .map(|on| w.append(on, DEFAULT, None, 1))
                .collect();
            w.machine.lost(one);
            let four = w.open();
            said.push(w.append(four, DEFAULT, None, 1));
            said
        },
        answers: &[
            "appended",
            "appended",
            "ended ResourceExhausted: Exceeds 'concurrent connections' quota of project p (status: INSUFFICIENT_TOKENS)",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 4 [DOC D:quotas] (per project per region)",
        says: "connections in one location leave room for those in another",
        behaviour: Behaviour::ConnectionsCountedByLocation,
        script: || {
            let switches = Switches {
                connections_per_project: Some(1),
                routing_header_required: false,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let columns = || vec![Column::new("n", Kind::Int64, Mode::Nullable)];
            w.table("t", "europe-west3", columns());
            let there = DEFAULT.replace("/d/", "/europe_west3/");
            let (here, other) = (w.open(), w.open());
            vec![w.append(here, DEFAULT, None, 1), w.append(other, &there, None, 1)]
        },
        answers: &["appended", "appended"],
    },
    Fact {
        source: "write-api.md 3.4 [beam PR #31837], 4, switch append_bytes_per_second",
        says: "bytes over the quota are refused inside the stream until the bucket has refilled",
        behaviour: Behaviour::ThroughputLimited,
        script: || {
            let mut w = World::new();
            let size = prost::Message::encoded_len(&request(DEFAULT, None, &ints(0, 100))) as u64;
            // Ten seconds' worth is two such requests.
            w.machine.switches_mut().append_bytes_per_second = Some(size / 5);
            let c = w.open();
            let mut append = |wait| {
                w.now += wait;
                w.append(c, DEFAULT, None, 100)
            };
            vec![append(0), append(0), append(0), append(6000)]
        },
        answers: &[
            "appended",
            "appended",
            "ResourceExhausted: Exceeds 'AppendRows throughput' quota of project p (status: INSUFFICIENT_TOKENS)",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 3.4 [beam PR #31837]",
        says: "while the quota refills all appends are refused, also those that something else is wrong with",
        behaviour: Behaviour::ThroughputLimited,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 100);
            w.machine.switches_mut().append_bytes_per_second = Some(1);
            vec![
                first,
                w.append(c, &s, Some(0), 100),
                w.append(c, &s, Some(200), 100),
            ]
        },
        answers: &[
            "at 0",
            "ResourceExhausted: Exceeds 'AppendRows throughput' quota of project p (status: INSUFFICIENT_TOKENS)",
            "ResourceExhausted: Exceeds 'AppendRows throughput' quota of project p (status: INSUFFICIENT_TOKENS)",
        ],
    },
    Fact {
        source: "write-api.md 3.4 [beam PR #31837], switch long_term_append_bytes_per_second",
        says: "a long-term quota takes up to ten minutes to refill, and all appends are refused until then",
        behaviour: Behaviour::LongTermThroughputLimited,
        script: || {
            let mut w = World::new();
            let size = prost::Message::encoded_len(&request(DEFAULT, None, &ints(0, 300))) as u64;
            // Ten minutes' worth is two such requests.
            w.machine.switches_mut().long_term_append_bytes_per_second = Some(size / 300 + 1);
            let c = w.open();
            let mut append = |wait, rows| {
                w.now += wait;
                let said = w.append(c, DEFAULT, None, rows);
                said.split(':').next().unwrap_or_default().to_owned()
            };
            vec![
                append(0, 300),
                append(1000, 299),
                append(0, 300),
                append(400_000, 1),
                append(200_000, 1),
            ]
        },
        answers: &[
            "appended",
            "appended",
            "ResourceExhausted",
            "ResourceExhausted",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 4 [DOC D:quotas], switch connections_per_project; the text is UNCONFIRMED",
        says: "by default a project has 20,000 connections in US and EU, 5,000 elsewhere",
        behaviour: Behaviour::MultiRegionsTakeMoreConnections,
        script: || {
            let mut said = Vec::new();
            for location in ["EU", "europe-west3"] {
                let switches = Switches {
                    routing_header_required: false,
                    ..Switches::default()
                };
                let mut w = World::with(switches, FaultPlan::default());
                let columns = vec![Column::new("n", Kind::Int64, Mode::Nullable)];
                let table = w.table("t", location, columns);
                let stream = format!("{}/_default", table.path());
                // A request without rows opens the connection as well.
                let request = request(&stream, None, &ints(0, 0));
                let mut open = || {
                    let c = w.open();
                    w.machine.append(w.now, c, &request).remove(0).event
                };
                let mut opened = 0;
                let last = loop {
                    match open() {
                        Event::Answer(_) => opened += 1,
                        Event::End(refusal) => break refusal,
                    }
                };
                let last = last.map(|refusal| w.refusal(&refusal));
                said.extend([opened.to_string(), last.unwrap_or_default()]);
            }
            said
        },
        answers: &[
            "20000",
            "ResourceExhausted: Exceeds 'concurrent connections' quota of project p (status: INSUFFICIENT_TOKENS)",
            "5000",
            "ResourceExhausted: Exceeds 'concurrent connections' quota of project p (status: INSUFFICIENT_TOKENS)",
        ],
    },
    Fact {
        source: "write-api.md 2 UNCONFIRMED, switch live_streams_per_table; the text too",
        says: "there is no limit on a table's live streams; with one, those finalized or expired do not count",
        behaviour: Behaviour::LiveStreamsLimited,
        script: || {
            let mut w = World::new();
            w.table("u", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
            let create = |w: &mut World, parent: &str| {
                let reply = w.try_create(parent, Type::Buffered);
                w.unary(reply, |_| "created".to_owned())
            };
            let first = w.create(Type::Buffered);
            let mut said = vec![create(&mut w, TABLE), create(&mut w, TABLE)];
            w.machine.switches_mut().live_streams_per_table = Some(3);
            said.push(create(&mut w, TABLE));
            said.push(create(&mut w, &TABLE.replace("tables/t", "tables/u")));
            w.finalize(&first);
            said.extend([create(&mut w, TABLE), create(&mut w, TABLE)]);
            w.now += 8 * DAY_MS;
            said.push(create(&mut w, TABLE));
            said
        },
        answers: &[
            "created",
            "created",
            "ResourceExhausted: Exceeds 'active streams' quota of project p (status: INSUFFICIENT_TOKENS)",
            "created",
            "created",
            "ResourceExhausted: Exceeds 'active streams' quota of project p (status: INSUFFICIENT_TOKENS)",
            "created",
        ],
    },
];
