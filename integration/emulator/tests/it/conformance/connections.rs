//! Connections: opening, routing, fencing, idling, ending (write-api.md 2.6, 2.7, 3.6, 3.7).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, CallMeta, Code, Refusal, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DEFAULT, Fact};
use crate::world::{TABLE, World, ints, messages, raw_request, request};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 2.1 [PROD nodejs-bigquery-storage #348]",
        says: "a call that ends without any request cannot be routed",
        behaviour: Behaviour::EmptyCallNotRouted,
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
        behaviour: Behaviour::HalfCloseEndsWell,
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
        says: "a connection on an application stream cannot switch, one on default streams can",
        behaviour: Behaviour::SwitchesDefaultStreamsOnly,
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
        behaviour: Behaviour::LaterSchemaIgnored,
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
        source: "write-api.md 2.6 [java-bigquerystorage PR #2214]",
        says: "the newest connection on an application stream wins, and the older one ends; its client can take it back",
        behaviour: Behaviour::NewestConnectionWins,
        script: || {
            let mut w = World::new();
            let (s, old, new, again) = (w.create(Type::Buffered), w.open(), w.open(), w.open());
            vec![
                w.append(old, &s, Some(0), 1),
                w.append(new, &s, Some(1), 1),
                w.append(old, &s, Some(2), 1),
                w.append(new, &s, Some(2), 1),
                w.append(again, &s, Some(0), 1),
                w.append(again, &s, Some(3), 1),
            ]
        },
        answers: &[
            "at 0",
            "connection 1 ended FailedPrecondition: Closing the stream because another connection was opened on it. \
             Entity: S1; at 1",
            "",
            "at 2",
            "connection 2 ended FailedPrecondition: Closing the stream because another connection was opened on it. \
             Entity: S1; AlreadyExists OFFSET_ALREADY_EXISTS(S1): The offset is within stream, expected offset 3, \
             received 0",
            "at 3",
        ],
    },
    Fact {
        source: "write-api.md 2.6: the text UNCONFIRMED, switches fenced_code and fenced_text",
        says: "or the older one ends with another code and text",
        behaviour: Behaviour::NewestConnectionWins,
        script: || {
            let switches = Switches {
                fenced_code: Code::Aborted,
                fenced_text: "Another writer came.".to_owned(),
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let (s, old, new) = (w.create(Type::Buffered), w.open(), w.open());
            vec![w.append(old, &s, Some(0), 1), w.append(new, &s, Some(1), 1)]
        },
        answers: &[
            "at 0",
            "connection 1 ended Aborted: Another writer came. Entity: S1; at 1",
        ],
    },
    Fact {
        source: "write-api.md 2 (connections: any number)",
        says: "connections on the default stream do not fence each other",
        behaviour: Behaviour::DefaultStreamNotFenced,
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
        behaviour: Behaviour::AnyProcessGoesOn,
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
        behaviour: Behaviour::IdleCallsClosed,
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
        source: "write-api.md 3.7 [DOC D:write-api-grpc]",
        says: "outside the US the routing header is needed",
        behaviour: Behaviour::RoutingHeaderNeeded,
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
                    ..CallMeta::default()
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
        source: "design.md 8, switch require_token",
        says: "with tokens required, calls without one are unauthenticated",
        behaviour: Behaviour::TokensChecked,
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
                        ..CallMeta::default()
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
        source: "write-api.md 3.6 [PROD python #315, google-cloud-rust #6355]",
        says: "a server that restarts aborts its calls and says so; another call goes on",
        behaviour: Behaviour::RestartSaysSo,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 1);
            let outputs = w.machine.close_all(&Refusal::restarted());
            let said = w.outputs(c, &outputs);
            let c = w.open();
            vec![first, said, w.append(c, &s, Some(1), 1)]
        },
        answers: &[
            "at 0",
            "ended Aborted: Closing the stream because server is restarted. This is expected and client is advised to \
             reconnect.",
            "at 1",
        ],
    },
    Fact {
        source: "write-api.md 3.6 [PROD go #6595]",
        says: "a server that drains its connections ends their calls as unavailable; another call goes on",
        behaviour: Behaviour::RestartSaysSo,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Buffered), w.open());
            let first = w.append(c, &s, Some(0), 1);
            let outputs = w.machine.close_all(&Refusal::draining());
            let said = w.outputs(c, &outputs);
            let c = w.open();
            vec![first, said, w.append(c, &s, Some(1), 1)]
        },
        answers: &["at 0", "ended Unavailable: the connection is draining", "at 1"],
    },
    Fact {
        source: "write-api.md 3.7 (J:ConnectionWorker; percent-encoding INFERRED)",
        says: "the routing header may be percent-encoded, and a connection that switches tables names the location",
        behaviour: Behaviour::RoutingHeaderForms,
        script: || {
            let mut w = World::new();
            for table in ["t", "u"] {
                let columns = vec![Column::new("n", Kind::Int64, Mode::Nullable)];
                w.table(table, "europe-west3", columns);
            }
            let path = TABLE.replace("/d/", "/europe_west3/");
            let streams =
                [path.clone(), path.replace("tables/t", "tables/u")].map(|path| format!("{path}/_default"));
            let mut said = Vec::new();
            for routing in [
                format!("write_stream={}", streams[0]),
                format!("write_stream={}", streams[0].replace('/', "%2F")),
                "write_location=projects/p/locations/europe-west3".to_owned(),
                "write_location=projects%2fp%2flocations%2feurope-west3".to_owned(),
                "write_location=projects/p/locations/us".to_owned(),
            ] {
                let meta = CallMeta {
                    routing: Some(routing),
                    ..CallMeta::default()
                };
                let c = w.machine.open_append(w.now, meta);
                for stream in &streams {
                    let answer = w.append(c, stream, None, 1);
                    said.push(answer.split(':').next().unwrap_or_default().to_owned());
                }
            }
            said
        },
        answers: &[
            "appended",
            "appended",
            "appended",
            "appended",
            "appended",
            "appended",
            "appended",
            "appended",
            "ended PermissionDenied",
            "",
        ],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "only the first trace_id of a connection counts",
        behaviour: Behaviour::FirstTraceIdCounts,
        script: || {
            let mut w = World::new();
            let c = w.open();
            for trace_id in ["sink:1", "sink:2"] {
                let mut request = request(DEFAULT, None, &ints(0, 1));
                request.trace_id = trace_id.to_owned();
                w.send(c, &request);
            }
            w.machine
                .calls()
                .iter()
                .map(|call| call.trace_id.clone())
                .collect()
        },
        answers: &["sink:1"],
    },
];
