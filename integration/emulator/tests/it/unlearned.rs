//! What is unlearned answers something else, and the emulator goes on.

use std::collections::BTreeSet;

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::write_stream::Type;
use prost_types::field_descriptor_proto::Type as T;

use crate::conformance::DEFAULT;
use crate::message::{STREAM, bytes, message, optional, proto_request, say, varint, visible};
use crate::world::World;

fn without(behaviour: Behaviour) -> World {
    let switches = Switches {
        unlearned: BTreeSet::from([behaviour]),
        ..Switches::default()
    };
    World::with(switches, FaultPlan::default())
}

#[test]
fn without_the_need_of_a_key_upserts_are_rows() {
    let mut w = without(Behaviour::UpsertNeedsPrimaryKey);
    let table = w.table("w", "US", vec![Column::new("k", Kind::Int64, Mode::Nullable)]);
    let fields = vec![optional("k", 1, T::Int64), optional("_CHANGE_TYPE", 2, T::String)];
    let row = |kind: &str, key| [varint(1, key), bytes(2, kind)].concat();
    let rows = vec![row("UPSERT", 1), row("DELETE", 1), row("UPSERT", 1)];
    let c = w.open();
    let request = proto_request(STREAM, None, Some(&message("Row", fields)), rows);
    assert_eq!(say(&mut w, c, &request), "appended");
    assert_eq!(visible(&w, &table), ["k: 1", "k: 1"]);
    assert_eq!(
        w.append(c, DEFAULT, None, 1),
        "ended InvalidArgument: The data format cannot change in a connection. \
                                               Entity: T/streams/_default"
    );
}

#[test]
fn a_stream_that_outlives_its_table_does_not_go_on_in_one_of_other_columns() {
    let mut w = without(Behaviour::StreamsDieWithTable);
    let (s, c) = (w.create(Type::Buffered), w.open());
    assert_eq!(w.append(c, &s, None, 2), "at 0");
    w.recreate();
    assert_eq!(w.append(c, &s, None, 1), "at 2");
    assert_eq!(w.flush(&s, 0), "flushed 0");
    w.add_columns(&["m"]);
    assert_eq!(w.flush(&s, 1), "Internal: The stream's rows are not of table T");
    let c = w.open();
    assert_eq!(w.append(c, DEFAULT, None, 1), "appended");
    assert_eq!(w.visible(), [0, 3]);
}
