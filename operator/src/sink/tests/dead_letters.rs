//! Rows that do not fit, or that BigQuery refuses, with `row_errors = 'dead_letter'`: both tables, row by row.

mod at_least_once;

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
async fn rows_behind_a_refused_one_move_up_while_later_requests_are_in_flight() {
    // Invariant 4; reports.md 38.
    for format in FORMATS {
        for bad in [
            [Lost(100), Good(101), Good(102)],
            [Good(100), Lost(101), Good(102)],
            [Good(100), Good(101), Lost(102)],
        ] {
            let world = World::with_letters(format);
            world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 5000}}"#);
            let mut sink = world.start_parcels(None).await;
            // The first of a connection goes alone.
            sink.process_batch(batch(&[Good(0)])).await.unwrap();
            sleep(Duration::from_secs(6)).await;
            let requests: [&[Parcel]; 4] = [&bad, &[Good(103), Lost(104)], &[Lost(105)], &[Good(106)]];
            for request in requests {
                sink.process_batch(batch(request)).await.unwrap();
                // Past the linger: a request of its own.
                sleep(Duration::from_millis(250)).await;
            }
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!(commit(1, &taken, &mut sink).await, 8);
            let lost: Vec<Parcel> = bad
                .into_iter()
                .filter(|parcel| matches!(parcel, Lost(_)))
                .collect();
            let good = bad.iter().filter_map(|parcel| match parcel {
                Good(id) => Some(*id),
                _ => None,
            });
            let good: Vec<i64> = [0].into_iter().chain(good).chain([103, 106]).collect();
            assert_eq!(world.delivered(), good, "{format}");
            let letters = lost.into_iter().chain([Lost(104), Lost(105)]);
            assert_eq!(
                world.letters(),
                letters.map(|parcel| letter(parcel, 1)).collect::<Vec<_>>()
            );
            assert_eq!(world.handle.streams_created(), 2, "no stream is left for it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_good_row_is_not_sent_again() {
    let world = World::with_letters("arrow");
    world.fault(r#"{"rpc": "AppendRows", "table": "parcels", "action": {"kind": "delay", "ms": 0}}"#);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Lost(1), Lost(2)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (2, 2));
    assert_eq!(world.counted(), 1);
    assert_eq!(world.delivered(), NOTHING);
    assert_eq!(
        world.letters(),
        [Lost(1), Lost(2)].map(|parcel| letter(parcel, 1))
    );

    // Nor are there streams where every row is refused before it is sent.
    let world = World::with_letters("arrow");
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (1, 1));
    assert_eq!(world.letters(), [letter(Long(1), 1)]);
    assert_eq!(world.handle.streams_created(), 1, "that of the dead letters");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_bad_rows_that_is_cut_short_costs_another_round_and_no_row() {
    // write-api.md 3.5: the list may be truncated. BigQuery names one of three, then the others.
    for mode in ["exactly_once", "at_least_once"] {
        for format in FORMATS {
            let options = [("write.format", format), ("write.mode", mode)];
            let world = World::of_parcels(&[LETTERS, &options].concat());
            world.fault(
                r#"{"rpc": "AppendRows", "table": "parcels", "occurrence": {"nth": 1},
                    "action": {"kind": "row_errors", "rows": [2], "message": "Invalid geography on field place."}}"#,
            );
            let mut sink = world.start_parcels(None).await;
            let parcels = [Good(0), Lost(1), Lost(2), Good(3), Lost(4), Good(5)];
            sink.process_batch(batch(&parcels)).await.unwrap();
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!((taken.rows, taken.dead_letters), (6, 3), "{mode} {format}");
            assert_eq!(commit(1, &taken, &mut sink).await, 6);
            assert_eq!(world.delivered(), [0, 3, 5], "{mode} {format}");
            let expected = [Lost(2), Lost(1), Lost(4)];
            assert_eq!(
                world.letters(),
                expected.map(|parcel| letter(parcel, 1)),
                "{mode} {format}"
            );
            assert_eq!(world.counted(), 3, "refused, refused, taken");
        }
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

#[tokio::test(start_paused = true)]
async fn faults_of_the_table_or_the_wire_make_no_dead_letters() {
    // reports.md 92: a good row must not be taken for a bad one.
    for (code, in_band) in [
        ("NOT_FOUND", false),
        ("PERMISSION_DENIED", false),
        ("RESOURCE_EXHAUSTED", true),
        ("INTERNAL", true),
        ("ABORTED", false),
        ("ALREADY_EXISTS", true),
    ] {
        for table in ["parcels", "refused"] {
            let world = World::with_letters("arrow");
            world.fault(&format!(
                r#"{{"rpc": "AppendRows", "table": "{table}", "occurrence": {{"nth": 1}},
                    "action": {{"kind": "refuse", "code": "{code}", "message": "not now", "in_band": {in_band}}}}}"#
            ));
            let mut sink = world.start_parcels(None).await;
            sink.process_batch(batch(&[Good(0), Lost(1), Good(2)]))
                .await
                .unwrap();
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!(commit(1, &taken, &mut sink).await, 3);
            assert_eq!(world.delivered(), [0, 2], "{code} {table}");
            assert_eq!(world.letters(), [letter(Lost(1), 1)], "{code} {table}");
            assert_eq!(world.handle.faults()[0].fired, 1, "{code} {table}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_refused_rows_stop_the_job_with_the_commonest_reason() {
    let world = World::with_letters("arrow");
    let mut sink = world.start_parcels(None).await;
    let bad = |count: i64| (0..count).map(Long).collect::<Vec<_>>();
    sink.process_batch(batch(&bad(99))).await.unwrap();
    // 99 say nothing yet.
    let taken = checkpoint(1, &mut sink).await;
    commit(1, &taken, &mut sink).await;
    assert_eq!(world.letters().len(), 99);
    sink.process_batch(batch(&[Dear(100)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    let text = "100 of the last 100 rows were refused, more than dead_letter.max_ratio = 0.1 allows; the commonest reason, 99 times: \
                column `label`: longer than 10 characters. Mend the rows or the table, or allow more; dead letters since the last \
                checkpoint are not published";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
    assert_eq!(world.letters().len(), 99);

    // What BigQuery refuses counts too, once.
    let world = World::of_parcels(&[LETTERS, &[("dead_letter.max_ratio", "0.5")]].concat());
    let mut sink = world.start_parcels(None).await;
    let mixed: Vec<_> = (0..200)
        .map(|id| if id % 2 == 0 { Lost(id) } else { Good(id) })
        .collect();
    sink.process_batch(batch(&mixed)).await.unwrap();
    checkpoint(1, &mut sink).await;
    sink.process_batch(batch(&[Lost(200)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    assert!(
        error.to_string().starts_with(
            "101 of the last 201 rows were refused, more than dead_letter.max_ratio = 0.5 allows; the commonest reason, 101 times: \
             column `place`: Invalid geography on field place. Mend "
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_itself_stops_the_job_for_good() {
    let world = World::with_letters("arrow");
    world.fault(
        r#"{"rpc": "AppendRows", "table": "refused", "action": {"kind": "row_errors", "rows": [0], "message": "no"}}"#,
    );
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Long(1)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(
        text.starts_with("appending dead letters failed: InvalidArgument: "),
        "{text}"
    );
    assert!(
        text.contains(
            "; row 1 of the request: no; a dead letter that is refused itself can go nowhere. Change the dead-letter table so that it takes what the \
             sink writes there, or name another one, and start again"
        ),
        "{text}"
    );
    assert_eq!((world.delivered(), world.letters()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_the_error_names_row_column_and_reason_and_no_value() {
    // reports.md 38, 90 and 91.
    let world = World::of_parcels(&[("table", "parcels")]);
    let mut sink = world.start_parcels(None).await;
    let error = sink
        .process_batch(batch(&[Good(0), Long(1), Dear(2)]))
        .await
        .unwrap_err();
    let text = "2 rows do not fit the table: row 2 of the batch, column `label`: longer than 10 characters; row 3 of the batch, \
                column `price`: more than 3 digits before the decimal point";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));

    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(
        text.contains(
            "; row 2 of the request: Invalid geography on field place. (rows of the request are bad"
        ),
        "{text}"
    );
    assert!(!text.contains("nowhere"), "{text}");
    assert_eq!(world.letters(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn what_bigquery_quotes_of_a_row_is_in_its_dead_letter_and_in_no_error() {
    let said = r#"{"rpc": "AppendRows", "table": "parcels", "occurrence": {"nth": 1},
        "action": {"kind": "row_errors", "rows": [1], "message": "Invalid geography: nowhere on field place."}}"#;
    let world = World::of_parcels(&[("table", "parcels")]);
    world.fault(said);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let text = sink.handle_checkpoint(barrier(1)).await.unwrap_err().to_string();
    assert!(
        text.contains(
            "; row 2 of the request: Invalid geography: … on field place. (rows of the request are bad)"
        ),
        "{text}"
    );
    assert!(!text.contains("nowhere"), "{text}");

    let world = World::with_letters("arrow");
    world.fault(said);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    commit(1, &taken, &mut sink).await;
    let (row, _, epoch) = letter(Lost(1), 1);
    let reason = "place: Invalid geography: nowhere on field place.";
    assert_eq!(world.letters(), [(row, reason.to_owned(), epoch)]);
}

/// A table that takes long names, and a sink that writes there.
async fn wide(world: &World, format: &str) -> (TableRef, BigQuerySink) {
    let schema = Schema {
        columns: vec![
            Column::new("id", Kind::Int64, Mode::Required),
            Column::new("name", Kind::String { max_length: None }, Mode::Nullable),
        ],
    };
    let table = TableRef::new("shop", "sales", "wide");
    world.handle.create_table(&table, schema).unwrap();
    let mut sink = world.sink(0, 1);
    sink.options = Arc::new(options(
        &[&LETTERS[1..], &[("table", "wide"), ("write.format", format)]].concat(),
    ));
    sink.on_start(None).await.unwrap();
    (table, sink)
}

/// Rows whose names have these lengths.
fn sized(lengths: &[usize]) -> RecordBatch {
    let names = lengths.iter().map(|length| "x".repeat(*length));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..).take(lengths.len()))),
        Arc::new(StringArray::from_iter_values(names)),
    ];
    RecordBatch::try_new(columns(), arrays).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_giant_row_holds_up_none_of_the_others() {
    // reports.md 71 and 74.
    for format in FORMATS {
        let world = World::with_letters(format);
        let (table, mut sink) = wide(&world, format).await;
        let mut lengths = [10; 10];
        lengths[4] = 11_000_000;
        sink.process_batch(sized(&lengths)).await.unwrap();
        // These fit, each alone.
        sink.process_batch(sized(&[8_000_000; 3])).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (13, 13));
        let rows = world.handle.rows(&table).unwrap();
        let ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(ids, [0, 1, 2, 3, 5, 6, 7, 8, 9, 0, 1, 2], "{format}");
        let letters = world.handle.rows(&refused()).unwrap();
        let text = |column: usize| letters.column(column).as_string::<i32>().value(0).to_owned();
        assert_eq!(letters.num_rows(), 1);
        assert_eq!(
            text(0),
            r#"{"json_bytes":11000018,"omitted":"the row is too long for a dead letter"}"#
        );
        let bytes = if format == "arrow" { 11_000_336 } else { 11_000_012 };
        assert_eq!(
            text(1),
            format!("takes {bytes} bytes, more than the 9961472 bytes of the largest request")
        );
        assert!(letters.column(2).is_null(0), "no column is to blame");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_the_server_alone_finds_too_large_becomes_a_dead_letter() {
    // reports.md 72 and 74: halved until it stands alone.
    for format in FORMATS {
        let world = World::with_letters(format);
        world
            .handle
            .shared()
            .with(|machine| machine.switches_mut().max_request_bytes = 290_000);
        let (table, mut sink) = wide(&world, format).await;
        let mut lengths = [10_000; 40];
        lengths[13] = 240_000;
        lengths[14] = 300_000;
        sink.process_batch(sized(&lengths)).await.unwrap();
        sink.process_batch(sized(&[5; 3])).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(commit(1, &taken, &mut sink).await, 43);
        let rows = world.handle.rows(&table).unwrap();
        let ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        let expected: Vec<i64> = (0..14).chain(15..40).chain(0..3).collect();
        assert_eq!(ids, expected, "{format}");
        let letters = world.handle.rows(&refused()).unwrap();
        let text = |column: usize| letters.column(column).as_string::<i32>().value(0).to_owned();
        assert_eq!(letters.num_rows(), 1);
        // The whole row would be refused again.
        assert_eq!(
            text(0),
            r#"{"json_bytes":300019,"omitted":"the row is too long for a dead letter"}"#
        );
        assert!(
            text(1).starts_with("takes 300") && text(1).contains("AppendRows request too large: "),
            "{}",
            text(1)
        );
    }
}

/// The tables of a world where those of the parcels are there, and none of dead letters.
async fn without_letters_table(create: &str) -> World {
    let options = [LETTERS, &[("table.create", create)]].concat();
    let world = if create == "never" {
        World::with(&options)
    } else {
        World::with_rest(&options).await
    };
    world.handle.create_table(&parcels(), parcel_table()).unwrap();
    world
}

async fn look(world: &World) -> Result<TableLooks, SinkError> {
    BigQuerySink::check(&world.options, &parcel_columns(), &world.environment).await
}

#[tokio::test(start_paused = true)]
async fn a_missing_dead_letter_table_is_created_if_tables_are() {
    let world = without_letters_table("if_missing").await;
    let looks = look(&world).await.unwrap();
    let expected = TableLooks {
        table: TableLook::Fits,
        dead_letters: Some(TableLook::WillBeCreated),
    };
    assert_eq!(looks, expected);
    assert!(world.handle.rows(&refused()).is_err());
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1), Lost(2)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 2);
    assert_eq!(
        world.letters(),
        [Long(1), Lost(2)].map(|parcel| letter(parcel, 1))
    );
    let schema = world
        .handle
        .shared()
        .with(|machine| machine.catalog().table(&refused()).unwrap().schema.clone());
    let columns = schema.columns.iter();
    let columns: Vec<_> = columns
        .map(|column| format!("{} {:?} {:?}", column.name, column.kind, column.mode))
        .collect();
    assert_eq!(
        columns,
        [
            "row Json Required",
            "reason String { max_length: None } Required",
            "column String { max_length: None } Nullable",
            "epoch Int64 Required",
            "subtask Int64 Required",
            "rejected_at Timestamp Required",
            "table String { max_length: None } Required",
        ]
    );
    let looks = look(&world).await.unwrap();
    assert_eq!(looks.dead_letters, Some(TableLook::Fits));

    let world = without_letters_table("never").await;
    let begin = Instant::now();
    let mut sink = world.parcel_sink(0, 1);
    let text = sink.on_start(None).await.unwrap_err().to_string();
    assert!(
        text.starts_with(
            "option 'dead_letter.table', whose columns docs/dead_letters.md lists: table \
             projects/shop/datasets/sales/tables/refused does not exist; create it, or let the sink do so"
        ),
        "{text}"
    );
    assert_eq!(look(&world).await.unwrap_err().to_string(), text);
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_table_may_have_more_columns_and_not_others() {
    let own = Schema::from_wire(&table_schema_for(&crate::sink::dead_letters::columns()).unwrap()).unwrap();
    let more = |column: Column| {
        let mut schema = own.clone();
        schema.columns.insert(0, column);
        schema
    };
    let world = without_letters_table("never").await;
    let schema = more(Column::new("mended", Kind::Bool, Mode::Nullable));
    world.handle.create_table(&refused(), schema).unwrap();
    assert_eq!(look(&world).await.unwrap().dead_letters, Some(TableLook::Fits));
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 1);
    let rows = world.handle.rows(&refused()).unwrap();
    assert!(rows.column(0).is_null(0));
    assert_eq!(rows.column(1).as_string::<i32>().value(0), letter(Long(1), 1).0);

    let mut lacks = own.clone();
    lacks.columns.remove(4);
    let mut other = own.clone();
    other.columns[3].kind = Kind::Bool;
    let cases = [
        (
            lacks,
            "column `subtask`: the pipeline writes BIGINT, the table has no such column",
        ),
        (
            other,
            "column `epoch`: the pipeline writes BIGINT, the table has BOOL",
        ),
        (
            more(Column::new("mended", Kind::Bool, Mode::Required)),
            "column `mended`: the table requires BOOL NOT NULL without default",
        ),
    ];
    for (schema, expected) in cases {
        let world = without_letters_table("never").await;
        world.handle.create_table(&refused(), schema).unwrap();
        let text = world
            .parcel_sink(0, 1)
            .on_start(None)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with("option 'dead_letter.table', whose columns docs/dead_letters.md lists: "),
            "{text}"
        );
        assert!(text.contains(expected), "{text}");
        assert_eq!(look(&world).await.unwrap_err().to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_element_that_is_null_is_a_dead_letter_and_a_null_array_is_none() {
    // reports.md 69.
    let world = World::with_letters("arrow");
    let table = TableRef::new("shop", "sales", "lists");
    let schema = Schema {
        columns: vec![Column::new("numbers", Kind::Int64, Mode::Repeated)],
    };
    world.handle.create_table(&table, schema).unwrap();
    let lists = arrow_array::ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(2)]),
    ]);
    let rows =
        RecordBatch::try_from_iter_with_nullable([("numbers", Arc::new(lists) as ArrayRef, true)]).unwrap();
    let mut sink = world.sink(0, 1);
    sink.options = Arc::new(options(&[&LETTERS[1..], &[("table", "lists")]].concat()));
    sink.columns = rows.schema();
    sink.on_start(None).await.unwrap();
    sink.process_batch(rows).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 3);
    let rows = world.handle.rows(&table).unwrap();
    let lists: Vec<Vec<i64>> = (0..rows.num_rows())
        .map(|row| {
            rows.column(0)
                .as_list::<i32>()
                .value(row)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(lists, [vec![], vec![2]]);
    let letters = world.handle.rows(&refused()).unwrap();
    let text = |column: usize| letters.column(column).as_string::<i32>().value(0).to_owned();
    assert_eq!(
        (text(0), text(1), text(2)),
        (
            r#"{"numbers":[1,null]}"#.to_owned(),
            "NULL as an element of a REPEATED column".to_owned(),
            "numbers".to_owned()
        )
    );
}
