//! Any order of operations agrees with a small model: for each stream a vector of rows, a cursor and two flags; for the
//! table a vector of what is visible.

use std::collections::BTreeSet;

use bigquery_write_emulator::machine::ConnectionId;
use bigquery_write_proto::wire::write_stream::Type;
use proptest::prelude::*;

use super::conformance::DEFAULT;
use crate::world::World;

/// Streams that a schedule has at most.
const STREAMS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Create(Type),
    Append {
        stream: usize,
        offset: Option<i64>,
        rows: usize,
    },
    /// To the default stream.
    AppendDefault {
        offset: Option<i64>,
        rows: usize,
    },
    Flush(usize, i64),
    Finalize(usize),
    Commit(BTreeSet<usize>),
    /// A new connection takes the stream over.
    Reconnect(usize),
    /// The table is deleted and created again.
    Recreate,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Type::Buffered), Just(Type::Committed), Just(Type::Pending)];
    let offset = || proptest::option::of(-1..12_i64);
    prop_oneof![
        3 => kind.prop_map(Step::Create),
        12 => (0..STREAMS, offset(), 1..4_usize)
            .prop_map(|(stream, offset, rows)| Step::Append { stream, offset, rows }),
        2 => (proptest::option::weighted(0.2, 0..2_i64), 1..4_usize)
            .prop_map(|(offset, rows)| Step::AppendDefault { offset, rows }),
        8 => (0..STREAMS, -1..12_i64).prop_map(|(stream, offset)| Step::Flush(stream, offset)),
        3 => (0..STREAMS).prop_map(Step::Finalize),
        3 => proptest::collection::btree_set(0..STREAMS, 1..3).prop_map(Step::Commit),
        2 => (0..STREAMS).prop_map(Step::Reconnect),
        1 => Just(Step::Recreate),
    ]
}

/// What the table and its streams should be.
#[derive(Default)]
struct Model {
    streams: Vec<ModelStream>,
    visible: Vec<i64>,
    next: i64,
}

struct ModelStream {
    kind: Type,
    rows: Vec<i64>,
    cursor: usize,
    finalized: bool,
    committed: bool,
    /// Its table is gone.
    dead: bool,
}

impl Model {
    fn values(&mut self, rows: usize) -> Vec<i64> {
        let new = self.next..self.next + rows as i64;
        self.next = new.end;
        new.collect()
    }

    fn create(&mut self, kind: Type) {
        self.streams.push(ModelStream {
            kind,
            rows: Vec::new(),
            cursor: 0,
            finalized: false,
            committed: false,
            dead: false,
        });
    }

    fn append(&mut self, stream: usize, offset: Option<i64>, rows: usize) -> String {
        let new = self.values(rows);
        let of = &mut self.streams[stream];
        let end = of.rows.len() as i64;
        match offset {
            _ if of.dead => "ended NotFound".to_owned(),
            _ if of.finalized => "InvalidArgument STREAM_FINALIZED".to_owned(),
            Some(offset) if offset < 0 => "InvalidArgument".to_owned(),
            Some(offset) if offset < end => "AlreadyExists OFFSET_ALREADY_EXISTS".to_owned(),
            Some(offset) if offset > end => "OutOfRange OFFSET_OUT_OF_RANGE".to_owned(),
            _ => {
                of.rows.extend(new);
                if of.kind == Type::Committed {
                    self.publish(stream, usize::MAX);
                }
                format!("at {end}")
            }
        }
    }

    fn append_default(&mut self, offset: Option<i64>, rows: usize) -> &'static str {
        let new = self.values(rows);
        if offset.is_some() {
            return "InvalidArgument";
        }
        self.visible.extend(new);
        "appended"
    }

    fn publish(&mut self, stream: usize, to: usize) {
        let of = &mut self.streams[stream];
        let to = to.min(of.rows.len());
        if to > of.cursor {
            self.visible.extend(&of.rows[of.cursor..to]);
            of.cursor = to;
        }
    }

    fn flush(&mut self, stream: usize, offset: i64) -> String {
        let of = &self.streams[stream];
        if of.dead {
            return "NotFound STREAM_NOT_FOUND".to_owned();
        }
        if of.kind != Type::Buffered || of.finalized || offset < 0 {
            return "InvalidArgument".to_owned();
        }
        if offset as usize >= of.rows.len() {
            return "OutOfRange".to_owned();
        }
        self.publish(stream, offset as usize + 1);
        format!("flushed {offset}")
    }

    fn finalize(&mut self, stream: usize) -> String {
        let of = &mut self.streams[stream];
        if of.dead {
            return "NotFound STREAM_NOT_FOUND".to_owned();
        }
        of.finalized = true;
        format!("finalized at {}", of.rows.len())
    }

    fn commit(&mut self, streams: &BTreeSet<usize>) -> &'static str {
        let good = |stream: &usize| {
            let of = &self.streams[*stream];
            !of.dead && of.kind == Type::Pending && of.finalized && !of.committed
        };
        if !streams.iter().all(good) {
            return "not committed";
        }
        for stream in streams {
            self.publish(*stream, usize::MAX);
            self.streams[*stream].committed = true;
        }
        "committed"
    }
}

/// The machine under test, and the names and connections of its streams.
struct Tried {
    world: World,
    names: Vec<String>,
    connections: Vec<Option<ConnectionId>>,
}

impl Tried {
    /// Appends on the stream's connection, opening one if there is none.
    fn append(&mut self, stream: usize, offset: Option<i64>, rows: usize) -> String {
        let world = &mut self.world;
        let connection = *self.connections[stream].get_or_insert_with(|| world.open());
        let said = world.append(connection, &self.names[stream], offset, rows);
        if said.contains("ended") {
            self.connections[stream] = None;
        }
        said
    }
}

fn starts(said: &str, expected: &str) -> bool {
    said.strip_prefix(expected)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '(', ' ', ';']))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn streams_are_vectors_of_rows_with_a_cursor(steps in proptest::collection::vec(step(), 1..60)) {
        let mut tried = Tried { world: World::new(), names: Vec::new(), connections: Vec::new() };
        let mut model = Model::default();
        for step in steps {
            let there = model.streams.len();
            let (said, expected) = match step {
                Step::Create(_) if there == STREAMS => continue,
                Step::Append { stream, .. } | Step::Flush(stream, _) | Step::Finalize(stream) | Step::Reconnect(stream)
                    if stream >= there => continue,
                Step::Commit(streams) if streams.iter().any(|stream| *stream >= there) => continue,
                Step::Create(kind) => {
                    tried.names.push(tried.world.create(kind));
                    tried.connections.push(None);
                    model.create(kind);
                    continue;
                }
                Step::Append { stream, offset, rows } => {
                    (tried.append(stream, offset, rows), model.append(stream, offset, rows))
                }
                Step::AppendDefault { offset, rows } => {
                    let connection = tried.world.open();
                    let said = tried.world.append(connection, DEFAULT, offset, rows);
                    (said, model.append_default(offset, rows).to_owned())
                }
                Step::Flush(stream, offset) => {
                    (tried.world.flush(&tried.names[stream], offset), model.flush(stream, offset))
                }
                Step::Finalize(stream) => (tried.world.finalize(&tried.names[stream]), model.finalize(stream)),
                Step::Commit(streams) => {
                    let names: Vec<_> = streams.iter().map(|stream| tried.names[*stream].as_str()).collect();
                    (tried.world.commit(&names), model.commit(&streams).to_owned())
                }
                Step::Reconnect(stream) => {
                    // The old connection stays open until the new one fences it.
                    tried.connections[stream] = None;
                    continue;
                }
                Step::Recreate => {
                    tried.world.recreate();
                    model.visible.clear();
                    model.streams.iter_mut().for_each(|stream| stream.dead = true);
                    continue;
                }
            };
            let own = said.rsplit("; ").next().unwrap_or_default();
            let own = if expected == "not committed" { said.as_str() } else { own };
            prop_assert!(starts(own, &expected), "expected {expected:?}, got {said:?}");
            prop_assert_eq!(tried.world.visible(), &model.visible[..]);
            let streams = tried.world.machine.streams();
            for (name, of) in tried.names.iter().zip(&model.streams).filter(|(_, of)| !of.dead) {
                let info = streams.iter().find(|info| info.name == *name).unwrap();
                prop_assert_eq!(
                    (info.end, info.flushed, info.finalized, info.committed),
                    (of.rows.len() as u64, of.cursor as u64, of.finalized, of.committed)
                );
            }
        }
    }
}
