//! Any order of appends, flushes, reconnects and finalizes agrees with a vector of rows and a cursor.

use bigquery_write_proto::wire::write_stream::Type;
use proptest::prelude::*;

use crate::world::World;

#[derive(Clone, Debug)]
enum Step {
    Append { offset: Option<i64>, rows: usize },
    Flush(i64),
    Reconnect,
    Finalize,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (proptest::option::of(-1..12_i64), 1..4_usize).prop_map(|(offset, rows)| Step::Append { offset, rows }),
        4 => (-1..12_i64).prop_map(Step::Flush),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Finalize),
    ]
}

/// What the stream should be.
#[derive(Default)]
struct Model {
    rows: Vec<i64>,
    cursor: usize,
    finalized: bool,
    next: i64,
}

impl Model {
    fn append(&mut self, offset: Option<i64>, rows: usize) -> &'static str {
        let new = self.next..self.next + rows as i64;
        self.next = new.end;
        let end = self.rows.len() as i64;
        match offset {
            _ if self.finalized => "InvalidArgument",
            Some(offset) if offset < 0 => "InvalidArgument",
            Some(offset) if offset < end => "AlreadyExists",
            Some(offset) if offset > end => "OutOfRange",
            _ => {
                self.rows.extend(new);
                "at"
            }
        }
    }

    fn flush(&mut self, offset: i64) -> &'static str {
        if self.finalized || offset < 0 {
            return "InvalidArgument";
        }
        if offset as usize >= self.rows.len() {
            return "OutOfRange";
        }
        self.cursor = self.cursor.max(offset as usize + 1);
        "flushed"
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_buffered_stream_is_a_vector_of_rows_and_a_cursor(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        let stream = world.create(Type::Buffered);
        let mut connection = world.open();
        let mut model = Model::default();
        for step in steps {
            let (said, expected) = match step {
                Step::Append { offset, rows } => {
                    let end = model.rows.len();
                    let expected = model.append(offset, rows);
                    let said = world.append(connection, &stream, offset, rows);
                    let own = said.rsplit("; ").next().unwrap_or_default();
                    if expected == "at" {
                        prop_assert_eq!(own, &format!("at {end}"));
                    }
                    (own.to_owned(), expected)
                }
                Step::Flush(offset) => (world.flush(&stream, offset), model.flush(offset)),
                Step::Reconnect => {
                    connection = world.open();
                    continue;
                }
                Step::Finalize => {
                    model.finalized = true;
                    (world.finalize(&stream), "finalized")
                }
            };
            let word = said.split([' ', ':']).next().unwrap_or_default();
            prop_assert_eq!(word, expected, "{}", said);
            prop_assert_eq!(world.visible(), &model.rows[..model.cursor]);
            let info = &world.machine.streams()[0];
            prop_assert_eq!((info.end, info.flushed), (model.rows.len() as u64, model.cursor as u64));
        }
    }
}
