//! An emulator that drops rows once they are checked and counted.

use std::sync::Arc;

use arrow_array::Int64Array;
use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_emulator::{Config, Handle, StartError};
use bigquery_write_proto::wire::write_stream::Type;

use crate::rows::batch;
use crate::world::{World, ints, request};

const REQUIRED: &str = "projects/p/datasets/d/tables/r/_default";

#[test]
fn offsets_flushes_and_counts_are_those_of_rows_that_are_kept() {
    let script = |discard: bool| {
        let mut w = World::new();
        if discard {
            w.machine.discard_rows();
        }
        let table = w.table("r", "US", vec![Column::new("n", Kind::Int64, Mode::Required)]);
        let (buffered, pending) = (w.create(Type::Buffered), w.create(Type::Pending));
        let committed = w.create(Type::Committed);
        let (b, p, c, d, r) = (w.open(), w.open(), w.open(), w.open(), w.open());
        let mut said = vec![
            w.append(b, &buffered, Some(0), 3),
            w.append(b, &buffered, Some(3), 2),
            w.append(b, &buffered, Some(0), 3),
            w.flush(&buffered, Some(3)),
            w.flush(&buffered, Some(3)),
            w.append(b, &buffered, Some(5), 1),
            w.flush(&buffered, Some(5)),
            w.flush(&buffered, Some(6)),
            w.append(p, &pending, None, 4),
            w.append(c, &committed, None, 2),
            w.append(d, "projects/p/datasets/d/tables/t/_default", None, 7),
        ];
        let nulls = batch(vec![("n", Arc::new(Int64Array::from(vec![None])))]);
        said.push(w.send(r, &request(REQUIRED, None, &nulls)));
        said.push(w.send(r, &request(REQUIRED, None, &ints(0, 5))));
        let catalog = w.machine.catalog();
        let t = TableRef::new("p", "d", "t");
        let counts = [&t, &table].map(|name| catalog.table(name).unwrap().row_count());
        let kept = [&t, &table].map(|name| catalog.table(name).unwrap().all_rows().num_rows());
        let seen: Vec<_> = w
            .machine
            .visible()
            .entries()
            .map(|seen| (seen.from, seen.to))
            .collect();
        let streams = w.machine.streams();
        (said, counts, seen, streams, kept)
    };
    let (said, counts, seen, streams, kept) = script(false);
    assert_eq!((counts, kept), ([15, 5], [15, 5]));
    assert_eq!(script(true), (said, counts, seen, streams, [0, 0]));
}

#[test]
fn a_data_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = Handle::new(&Config {
        discard: true,
        data_dir: Some(directory.path().to_owned()),
        ..Config::default()
    });
    let error = refused.unwrap_err();
    assert!(matches!(error, StartError::DiscardKept));
    assert_eq!(
        error.to_string(),
        "rows cannot be discarded and kept in a data directory: give only one of the two"
    );
}
