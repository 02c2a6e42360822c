//! Rows that do not fit, or that BigQuery refuses, with `row_errors = 'dead_letter'`: both tables, row by row.

mod at_least_once;
mod rows;
mod sizes;
mod stops;
mod tables;

use std::time::Duration;

use arrow_array::types::{Decimal128Type, TimestampMicrosecondType};
use arrow_array::{Array as _, ArrayRef, Decimal128Array};
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use tokio::time::sleep;

use super::*;

const LETTERS: &[(&str, &str)] = &[
    ("table", "parcels"),
    ("row_errors", "dead_letter"),
    ("dead_letter.table", "refused"),
];

fn parcels() -> TableRef {
    TableRef::new("shop", "sales", "parcels")
}

fn refused() -> TableRef {
    TableRef::new("shop", "sales", "refused")
}

/// A parcel, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
enum Parcel {
    Good(i64),
    /// Its label is too long: the sink finds out.
    Long(i64),
    /// So is its price.
    Dear(i64),
    /// Both.
    LongAndDear(i64),
    /// Its place is nowhere: BigQuery finds out.
    Lost(i64),
}

use Parcel::{Dear, Good, Long, LongAndDear, Lost};

fn parcel_columns() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("label", DataType::Utf8, true),
        Field::new("price", DataType::Decimal128(12, 2), true),
        Field::new("place", DataType::Utf8, true),
    ]))
}

fn parcel_table() -> Schema {
    let price = Kind::Numeric {
        precision: Some(5),
        scale: Some(2),
    };
    Schema {
        columns: vec![
            Column::new("id", Kind::Int64, Mode::Required),
            Column::new("label", Kind::String { max_length: Some(10) }, Mode::Nullable),
            Column::new("price", price, Mode::Nullable),
            Column::new("place", Kind::Geography, Mode::Nullable),
        ],
    }
}

fn batch(parcels: &[Parcel]) -> RecordBatch {
    let parts = parcels.iter().map(|parcel| match *parcel {
        Good(id) => (id, "fine", 199, "POINT(1 2)"),
        Long(id) => (id, "much too long", 199, "POINT(1 2)"),
        Dear(id) => (id, "fine", 123_456_789, "POINT(1 2)"),
        LongAndDear(id) => (id, "much too long", 123_456_789, "POINT(1 2)"),
        Lost(id) => (id, "fine", 199, "nowhere"),
    });
    let parts: Vec<_> = parts.collect();
    let prices = Decimal128Array::from_iter_values(parts.iter().map(|part| part.2));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(parts.iter().map(|part| part.0))),
        Arc::new(StringArray::from_iter_values(parts.iter().map(|part| part.1))),
        Arc::new(prices.with_precision_and_scale(12, 2).unwrap()),
        Arc::new(StringArray::from_iter_values(parts.iter().map(|part| part.3))),
    ];
    RecordBatch::try_new(parcel_columns(), arrays).unwrap()
}

impl World {
    fn with_letters(format: &str) -> Self {
        Self::of_parcels(&[LETTERS, &[("write.format", format)]].concat())
    }

    /// With the tables of parcels and of refused ones.
    fn of_parcels(options: &[(&str, &str)]) -> Self {
        let world = Self::with(options);
        world.handle.create_table(&parcels(), parcel_table()).unwrap();
        let schema = table_schema_for(&crate::sink::dead_letters::columns()).unwrap();
        let schema = Schema::from_wire(&schema).unwrap();
        world.handle.create_table(&refused(), schema).unwrap();
        world
    }

    fn parcel_sink(&self, subtask: u32, parallelism: u32) -> BigQuerySink {
        let mut sink = self.sink(subtask, parallelism);
        sink.columns = parcel_columns();
        sink
    }

    async fn start_parcels(&self, restored: Option<Restored>) -> BigQuerySink {
        let mut sink = self.parcel_sink(0, 1);
        sink.on_start(restored).await.unwrap();
        sink
    }

    /// The rows of the table, each whole, in the order in which they became visible: the ids, since the rest is the same.
    fn delivered(&self) -> Vec<i64> {
        let rows = self.handle.rows(&parcels()).unwrap();
        let labels: Vec<_> = rows.column(1).as_string::<i32>().iter().flatten().collect();
        let places: Vec<_> = rows.column(3).as_string::<i32>().iter().flatten().collect();
        let prices = rows.column(2).as_primitive::<Decimal128Type>();
        for row in 0..rows.num_rows() {
            assert_eq!((labels[row], places[row]), ("fine", "POINT(1 2)"));
            assert_eq!(prices.value_as_string(row).trim_end_matches('0'), "1.99");
        }
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    /// The dead letters of the one subtask: row, column and reason, epoch.
    fn letters(&self) -> Vec<(String, String, i64)> {
        let letters = self.letters_by_subtask().into_iter();
        let of_first = |(subtask, letter)| {
            assert_eq!(subtask, 0, "the subtask");
            letter
        };
        letters.map(of_first).collect()
    }

    /// Who wrote each dead letter, and the letter.
    fn letters_by_subtask(&self) -> Vec<(i64, (String, String, i64))> {
        let rows = self.handle.rows(&refused()).unwrap();
        let text = |column: usize, row: usize| {
            let column = rows.column(column).as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let numbers = |column: usize| rows.column(column).as_primitive::<Int64Type>().values().to_vec();
        let at = rows.column(5).as_primitive::<TimestampMicrosecondType>();
        let letter = |row: usize| {
            // Started at 1,800,000,000 s, and no test lasts for a day.
            assert_eq!(at.value(row) / 86_400_000_000, 20_833);
            assert_eq!(
                text(6, row).unwrap(),
                "projects/shop/datasets/sales/tables/parcels"
            );
            let column = text(2, row).unwrap_or_else(|| "-".to_owned());
            let reason = format!("{column}: {}", text(1, row).unwrap());
            (numbers(4)[row], (text(0, row).unwrap(), reason, numbers(3)[row]))
        };
        (0..rows.num_rows()).map(letter).collect()
    }
}

/// The dead letter of a parcel, in an epoch.
fn letter(parcel: Parcel, epoch: i64) -> (String, String, i64) {
    let row = |id: i64, label: &str, price: &str, place: &str| {
        format!(r#"{{"id":{id},"label":"{label}","price":"{price}","place":"{place}"}}"#)
    };
    let long = "label: longer than 10 characters";
    let digits = "more than 3 digits before the decimal point";
    let (row, reason) = match parcel {
        Good(id) => panic!("parcel {id} is good"),
        Long(id) => (row(id, "much too long", "1.99", "POINT(1 2)"), long.to_owned()),
        Dear(id) => (
            row(id, "fine", "1234567.89", "POINT(1 2)"),
            format!("price: {digits}"),
        ),
        LongAndDear(id) => (
            row(id, "much too long", "1234567.89", "POINT(1 2)"),
            format!("{long}; column `price`: {digits}"),
        ),
        // As it was converted.
        Lost(id) => (
            row(id, "fine", "1.990000000", "nowhere"),
            "place: Invalid geography on field place.".to_owned(),
        ),
    };
    (row, reason, epoch)
}

const FORMATS: [&str; 2] = ["arrow", "proto"];

#[tokio::test(start_paused = true)]
async fn bad_rows_become_dead_letters_in_the_checkpoint_of_their_neighbours() {
    // reports.md 89 and 91: whoever finds out.
    for format in FORMATS {
        let world = World::with_letters(format);
        let mut sink = world.start_parcels(None).await;
        let parcels = [
            Good(0),
            Long(1),
            Good(2),
            Lost(3),
            Good(4),
            LongAndDear(5),
            Dear(6),
            Good(7),
        ];
        sink.process_batch(batch(&parcels)).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(
            (taken.rows, taken.dead_letters),
            (8, 4),
            "dead letters are rows of the checkpoint too"
        );
        assert_eq!((world.delivered(), world.letters()), (vec![], vec![]), "{format}");
        assert_eq!(commit(1, &taken, &mut sink).await, 8);
        assert_eq!(world.delivered(), [0, 2, 4, 7], "{format}");
        let expected = [Long(1), LongAndDear(5), Dear(6), Lost(3)];
        assert_eq!(
            world.letters(),
            expected.map(|parcel| letter(parcel, 1)),
            "{format}"
        );
        let counters = [
            Counter::RowsAppended,
            Counter::RowsCommitted,
            Counter::RowsRejected(RejectedBy::Sink),
            Counter::RowsRejected(RejectedBy::BigQuery),
            Counter::DeadLettersWritten,
        ];
        assert_eq!(counters.map(|counter| world.total(counter)), [4, 4, 3, 1, 4]);

        // The epoch of the next ones.
        sink.process_batch(batch(&[Long(8), Lost(9)])).await.unwrap();
        let taken = checkpoint(4, &mut sink).await;
        assert_eq!(taken.dead_letters, 2, "of this checkpoint alone");
        assert_eq!(commit(4, &taken, &mut sink).await, 2);
        sink.process_batch(batch(&[Long(10)])).await.unwrap();
        sink.on_close(CloseReason::EndOfData).await.unwrap();
        assert_eq!(world.delivered(), [0, 2, 4, 7]);
        let expected = [(Long(8), 2), (Lost(9), 2), (Long(10), 5)];
        assert_eq!(
            world.letters()[4..],
            expected.map(|(parcel, epoch)| letter(parcel, epoch)),
            "{format}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn each_dead_letter_says_which_subtask_wrote_it_and_in_which_checkpoint() {
    for format in FORMATS {
        let world = World::with_letters(format);
        let mut sinks = vec![world.parcel_sink(0, 2), world.parcel_sink(1, 2)];
        for sink in &mut sinks {
            sink.on_start(None).await.unwrap();
        }
        sinks[0].process_batch(batch(&[Good(0), Long(1)])).await.unwrap();
        sinks[1]
            .process_batch(batch(&[Lost(10), Good(11)]))
            .await
            .unwrap();
        let first = Checkpoint::take(1, &mut sinks).await;
        assert_eq!(first.commit(1, &mut sinks).await, 4);
        sinks[1].process_batch(batch(&[Dear(12)])).await.unwrap();
        let second = Checkpoint::take(2, &mut sinks).await;
        assert_eq!(second.commit(2, &mut sinks).await, 1);
        drop(sinks);

        let restored = second.restored(2, CommitReplay::Confirmed);
        let mut sinks: Vec<_> = (0..3).map(|subtask| world.parcel_sink(subtask, 3)).collect();
        for sink in &mut sinks {
            sink.on_start(Some(restored.clone())).await.unwrap();
        }
        sinks[2].process_batch(batch(&[Lost(20)])).await.unwrap();
        let third = Checkpoint::take(3, &mut sinks).await;
        assert_eq!(third.commit(3, &mut sinks).await, 1);
        let mut letters = world.letters_by_subtask();
        letters.sort();
        let expected = [
            (0, letter(Long(1), 1)),
            (1, letter(Lost(10), 1)),
            (1, letter(Dear(12), 2)),
            (2, letter(Lost(20), 3)),
        ];
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(letters, expected, "{format}");
        assert_eq!(world.delivered(), [0, 11]);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_a_checkpoint_are_published_once_through_crashes() {
    // Invariants 1, 2 and 10, for the dead letters' stream.
    for (replayed_first, rest_is_sent) in [(true, false), (false, true)] {
        let world = World::with_letters("arrow");
        let mut sinks = vec![world.parcel_sink(0, 2), world.parcel_sink(1, 2)];
        for sink in &mut sinks {
            sink.on_start(None).await.unwrap();
        }
        sinks[0]
            .process_batch(batch(&[Good(0), Long(1), Lost(2)]))
            .await
            .unwrap();
        let first = Checkpoint::take(1, &mut sinks).await;
        assert_eq!(first.rows, 3);
        // Of no checkpoint: the source brings them again.
        let next = [Lost(10), Good(11), Long(12)];
        sinks[0].process_batch(batch(&next)).await.unwrap();
        if rest_is_sent {
            sleep(Duration::from_secs(2)).await;
        }
        drop(sinks);

        let mut sink = world
            .start_parcels(Some(first.restored(1, CommitReplay::Expected)))
            .await;
        if replayed_first {
            assert_eq!(commit(1, &first, &mut sink).await, 3);
            sink.process_batch(batch(&next)).await.unwrap();
        } else {
            sink.process_batch(batch(&next)).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            assert_eq!(commit(1, &first, &mut sink).await, 3);
        }
        let second = checkpoint(2, &mut sink).await;
        assert_eq!(commit(2, &second, &mut sink).await, 3);
        assert_eq!(commit(2, &second, &mut sink).await, 3, "again");
        assert_eq!(world.delivered(), [0, 11]);
        let mut letters = world.letters();
        letters.sort();
        let mut expected = [(Long(1), 1), (Lost(2), 1), (Lost(10), 2), (Long(12), 2)]
            .map(|(parcel, epoch)| letter(parcel, epoch));
        expected.sort();
        assert_eq!(letters, expected);
    }
}
