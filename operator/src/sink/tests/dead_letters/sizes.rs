//! Rows that are too large, for the sink or for BigQuery alone.

use super::*;

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

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_rows_that_are_small_when_written_counts_towards_the_window() {
    // 63 of 64 columns are NULL, of which protobuf writes nothing and Arrow 8 bytes each.
    const COLUMNS: usize = 64;
    const ROWS: i64 = 1_000;
    let world = World::with_letters("proto");
    let columns: Vec<_> = (0..COLUMNS)
        .map(|column| Column::new(format!("c{column}"), Kind::Int64, Mode::Nullable))
        .collect();
    let table = TableRef::new("shop", "sales", "sparse");
    world.handle.create_table(&table, Schema { columns }).unwrap();
    let fields = (0..COLUMNS).map(|column| Field::new(format!("c{column}"), DataType::Int64, true));
    let fields = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let mut sink = world.sink(0, 1);
    sink.columns = Arc::clone(&fields);
    let more = [
        ("table", "sparse"),
        ("write.format", "proto"),
        ("write.append.bytes", "1MiB"),
        ("write.inflight.bytes", "4MiB"),
        ("write.inflight.time", "60s"),
    ];
    sink.options = Arc::new(options(&[&LETTERS[1..], &more].concat()));
    sink.on_start(None).await.unwrap();
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 60000}}"#);
    let batch = |first: i64| {
        let filled: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + ROWS));
        let empty: ArrayRef = Arc::new(Int64Array::new_null(ROWS as usize));
        let arrays = std::iter::once(filled).chain(vec![empty; COLUMNS - 1]);
        RecordBatch::try_new(Arc::clone(&fields), arrays.collect()).unwrap()
    };
    // Each of them takes half a mebibyte, and 7 kB when written.
    let mut taken = 0;
    let mut is_held_up = false;
    while !is_held_up && taken < 100 {
        let mut put = Box::pin(sink.process_batch(batch(taken * ROWS)));
        let at_once = tokio::time::timeout(Duration::from_secs(1), &mut put);
        match at_once.await {
            Ok(put) => put.unwrap(),
            Err(_) => {
                is_held_up = true;
                put.await.unwrap();
            }
        }
        taken += 1;
    }
    assert!((8..=14).contains(&taken), "{taken} batches were taken");
    let stored = checkpoint(1, &mut sink).await;
    let rows = taken * ROWS;
    assert_eq!(commit(1, &stored, &mut sink).await, rows as u64);
    let visible = world.handle.rows(&table).unwrap();
    let ids = visible.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(ids, (0..rows).collect::<Vec<_>>());
}
