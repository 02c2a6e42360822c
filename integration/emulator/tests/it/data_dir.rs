//! An emulator on a directory goes on where the one before it ended.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::machine::CallMeta;
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_emulator::{Config, Emulator, StartError};

use crate::world::{START, TABLE, ints, request};

fn config(directory: &Path, now: i64) -> Config {
    Config {
        data_dir: Some(directory.to_owned()),
        clock: Some(Arc::new(move || now)),
        ..Config::default()
    }
}

fn schema() -> Schema {
    Schema {
        columns: vec![Column::new("n", Kind::Int64, Mode::Nullable)],
    }
}

#[tokio::test]
async fn an_emulator_goes_on_with_the_directory_of_one_that_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("below").join("data");
    let table = TableRef::new("p", "d", "t");
    let first = Emulator::start(config(&directory, START)).await.unwrap();
    let before = first.handle();
    before.create_dataset(&table.dataset_ref(), "EU").unwrap();
    before.advance(5000);
    before.create_table(&table, schema()).unwrap();
    let refused = Emulator::start(config(&directory, START)).await.err().unwrap();
    assert!(matches!(refused, StartError::DataDir(_)), "{refused}");
    assert_eq!(
        refused.to_string(),
        format!(
            "{} is in use by another emulator: stop that one, or give this one a directory of its own",
            directory.display()
        )
    );
    first.shutdown().await;
    // The handle lives on, but the directory is no longer its own.
    let late = before
        .create_dataset(&DatasetRef::new("p", "late"), "")
        .unwrap_err();
    assert_eq!(
        late.to_string(),
        "the emulator can change nothing any more: it has been stopped"
    );
    let second = Emulator::start(config(&directory, START + 1)).await.unwrap();
    let after = second.handle();
    assert_eq!(after.rows(&table).unwrap().num_rows(), 0);
    let (location, datasets) = after.shared().with(|machine| {
        let datasets = &machine.catalog().datasets;
        (datasets[&table.dataset_ref()].location.clone(), datasets.len())
    });
    assert_eq!((location.as_str(), datasets), ("EU", 1));
    // Its time has not gone back, though the first one's was put forward.
    assert_eq!(after.shared().now(), START + 5000);
    // Dropping is enough.
    drop(second);
    Emulator::start(config(&directory, START)).await.unwrap();
}

#[tokio::test]
async fn the_same_seed_draws_other_values_when_a_directory_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let table = TableRef::new("p", "d", "t");
    let mut drawn = Vec::new();
    for again in 0..3 {
        let config = Config {
            seed: Some(1),
            ..config(directory.path(), START)
        };
        let emulator = Emulator::start(config).await.unwrap();
        let handle = emulator.handle();
        if again == 0 {
            let text = Kind::String { max_length: None };
            let mut id = Column::new("id", text, Mode::Nullable);
            id.default_value_expression = Some("GENERATE_UUID()".to_owned());
            let mut columns = schema().columns;
            columns.push(id);
            handle.create_dataset(&table.dataset_ref(), "").unwrap();
            handle.create_table(&table, Schema { columns }).unwrap();
        }
        handle.shared().with(|machine| {
            let c = machine.open_append(START, CallMeta::default());
            let rows = request(&format!("{TABLE}/_default"), None, &ints(again, 1));
            drop(machine.append(START, c, &rows));
        });
        drawn = handle
            .rows(&table)
            .unwrap()
            .column(1)
            .as_string::<i32>()
            .iter()
            .map(|id| id.unwrap().to_owned())
            .collect();
        emulator.shutdown().await;
    }
    assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 3, "{drawn:?}");
}
