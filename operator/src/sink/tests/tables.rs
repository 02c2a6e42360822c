//! Tables that the sink creates or changes, and the minutes in which BigQuery does not know of it.

use std::time::Duration;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, Float64Array, StructArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::Fields;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use futures::future::join_all;
use serde_json::json;

use super::*;
use crate::tables::administers;

const CREATES: (&str, &str) = ("table.create", "if_missing");
const ADDS: (&str, &str) = ("schema.update", "add_columns");
const EXACTLY_ONCE: (&str, &str) = ("write.mode", "exactly_once");
const AT_LEAST_ONCE: (&str, &str) = ("write.mode", "at_least_once");
const FORMATS: [(&str, &str); 2] = [("write.format", "arrow"), ("write.format", "proto")];

fn returns() -> TableRef {
    TableRef::new("shop", "sales", "returns")
}

/// A sink of these columns.
fn sink_of(world: &World, columns: &SchemaRef, subtask: u32, parallelism: u32) -> BigQuerySink {
    let mut sink = world.sink(subtask, parallelism);
    sink.columns = Arc::clone(columns);
    sink
}

fn modes_and_formats() -> impl Iterator<Item = ((&'static str, &'static str), (&'static str, &'static str))> {
    [EXACTLY_ONCE, AT_LEAST_ONCE]
        .into_iter()
        .flat_map(|mode| FORMATS.map(|format| (mode, format)))
}

/// A refusal with this code, so many times.
fn refuse(rpc: &str, code: &str, times: u32) -> String {
    format!(
        r#"{{"rpc": "{rpc}", "occurrence": {{"times": {times}}}, "action": {{"kind": "refuse", "code": "{code}", "message": "not here"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn subtasks_that_start_at_once_create_one_table_as_asked_for() {
    let mut world = World::with_rest(&[
        CREATES,
        ("table", "returns"),
        ("table.partition_by", "id"),
        ("table.partition_range", "0, 100, 10"),
        ("table.cluster_by", "name"),
        ("table.description", "What came back"),
        ("table.labels", "team=sales"),
    ])
    .await;
    let mut options = SinkOptions::clone(&world.options);
    options.primary_key = vec!["id".to_owned()];
    world.options = Arc::new(options);
    let mut sinks: Vec<_> = (0..4).map(|subtask| world.sink(subtask, 4)).collect();
    for started in join_all(sinks.iter_mut().map(|sink| sink.on_start(None))).await {
        started.unwrap();
    }
    let (schema, rest, id) = world.handle.shared().with(|machine| {
        let table = machine.catalog().table(&returns()).unwrap();
        (table.schema.clone(), table.rest.clone(), table.id)
    });
    assert_eq!(
        schema.columns,
        [
            Column::new("id", Kind::Int64, Mode::Required),
            Column::new("name", Kind::String { max_length: None }, Mode::Nullable)
        ]
    );
    let expected = json!({
        "rangePartitioning": {"field": "id", "range": {"start": "0", "end": "100", "interval": "10"}},
        "clustering": {"fields": ["name"]},
        "description": "What came back",
        "labels": {"team": "sales"},
        "tableConstraints": {"primaryKey": {"columns": ["id"]}},
    });
    assert_eq!(serde_json::Value::Object(rest), expected);
    assert_eq!(id, 2, "made once, after the table of every test");
    for (subtask, sink) in (0..).zip(&mut sinks) {
        sink.process_batch(rows(subtask * 10..subtask * 10 + 2))
            .await
            .unwrap();
    }
    let taken = Checkpoint::take(1, &mut sinks).await;
    assert_eq!(taken.commit(1, &mut sinks).await, 8);
    let rows = world.handle.rows(&returns()).unwrap();
    let mut ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 10, 11, 20, 21, 30, 31]);
}

#[tokio::test(start_paused = true)]
async fn a_column_that_an_option_names_and_the_pipeline_does_not_write_fails_the_start() {
    let world = World::with_rest(&[CREATES, ("table", "returns"), ("table.partition_by", "at")]).await;
    let text = "option 'table.partition_by': the pipeline writes no column 'at' at the top level; it writes id, name";
    let error = world.sink(0, 1).on_start(None).await.unwrap_err();
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
    let error = BigQuerySink::check(&world.options, &columns(), &world.environment)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), text);
    assert!(world.handle.rows(&returns()).is_err(), "nothing was created");
}

#[tokio::test(start_paused = true)]
async fn rows_wait_out_the_minutes_in_which_bigquery_does_not_know_a_new_table() {
    // reports.md 40, 41: the wait is the first append's, not the start's.
    // A stream whose appends are not found is left for a new one every half minute.
    for (mode, rpc, code, times) in [
        (EXACTLY_ONCE, "CreateWriteStream", "NOT_FOUND", 22),
        (EXACTLY_ONCE, "CreateWriteStream", "PERMISSION_DENIED", 22),
        (EXACTLY_ONCE, "AppendRowsOpen", "NOT_FOUND", 60),
        (AT_LEAST_ONCE, "AppendRowsOpen", "NOT_FOUND", 22),
        (AT_LEAST_ONCE, "AppendRowsOpen", "PERMISSION_DENIED", 22),
    ] {
        for format in FORMATS {
            let world = World::with_rest(&[CREATES, mode, format, ("table", "returns")]).await;
            world.fault(&format!(
                "{}, {}",
                refuse("GetWriteStream", code, 1),
                refuse(rpc, code, times)
            ));
            let begin = Instant::now();
            let mut sink = world.start(None).await;
            assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
            publish(1, rows(0..3), &mut sink).await;
            let took = begin.elapsed().as_secs();
            assert!(
                (100..=300).contains(&took),
                "{mode:?} {format:?} {rpc} {code}: {took} s"
            );
            assert_eq!(world.handle.rows(&returns()).unwrap().num_rows(), 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_new_table_ends_with_the_budget_and_that_for_an_old_one_sooner() {
    let text = "NotFound: not here (the table is not there, or was made just now)";
    let young = ("returns", 250..=300);
    let old = ("orders", 45..=60);
    for (mode, doing, rpc, (table, seconds)) in [
        (
            EXACTLY_ONCE,
            "creating a write stream",
            "CreateWriteStream",
            young.clone(),
        ),
        (
            EXACTLY_ONCE,
            "creating a write stream",
            "CreateWriteStream",
            old.clone(),
        ),
        (AT_LEAST_ONCE, "appending", "AppendRowsOpen", young),
        (AT_LEAST_ONCE, "appending", "AppendRowsOpen", old),
    ] {
        let world = World::with_rest(&[CREATES, mode, ("table", table)]).await;
        // The table of every test is old by the time of the start.
        world.handle.advance(20 * 60_000);
        world.attempts.fetch_add(20 * 60_000_000, Ordering::Relaxed);
        world.fault(&refuse(rpc, "NOT_FOUND", 1000));
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..3)).await.unwrap();
        let begin = Instant::now();
        let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
        assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
        let text = format!("{doing} failed: {text}");
        assert!(error.to_string().starts_with(&text), "{error}");
        let took = begin.elapsed().as_secs();
        assert!(seconds.contains(&took), "{mode:?} {table}: {took} s");
    }
}

/// `orders` with a price, and a place with a city and a street.
fn wider() -> SchemaRef {
    let place = Fields::from(vec![
        Field::new("city", DataType::Utf8, true),
        Field::new("street", DataType::Utf8, true),
    ]);
    Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("price", DataType::Float64, false),
        Field::new("place", DataType::Struct(place), true),
    ]))
}

fn wide_rows(ids: &[i64]) -> RecordBatch {
    let prices = Float64Array::from_iter_values(ids.iter().map(|id| *id as f64 + 0.5));
    let text = |what: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            ids.iter().map(|id| format!("{what} {id}")),
        ))
    };
    let DataType::Struct(fields) = wider().field(2).data_type().clone() else {
        unreachable!("a struct");
    };
    let place = StructArray::new(fields, vec![text("city"), text("street")], None);
    let id = Int64Array::from(ids.to_vec());
    RecordBatch::try_new(wider(), vec![Arc::new(id), Arc::new(prices), Arc::new(place)]).unwrap()
}

/// A world whose table `returns` has an id and a place with a city.
async fn narrow_world(options: &[(&str, &str)]) -> World {
    let world = World::with_rest(&[&[("table", "returns")], options].concat()).await;
    let text = Kind::String { max_length: None };
    let place = vec![Column::new("city", text, Mode::Nullable)];
    let columns = vec![
        Column::new("id", Kind::Int64, Mode::Required),
        Column::new("place", Kind::Struct(place), Mode::Nullable),
    ];
    world.handle.create_table(&returns(), Schema { columns }).unwrap();
    world
}

/// Names and modes of a table's columns, nested ones by their path.
fn shape(world: &World) -> Vec<String> {
    fn walk(columns: &[Column], parent: &str, shape: &mut Vec<String>) {
        for column in columns {
            let path = format!("{parent}{}", column.name);
            shape.push(format!("{path} {:?}", column.mode));
            if let Kind::Struct(inner) = &column.kind {
                walk(inner, &format!("{path}."), shape);
            }
        }
    }
    let mut shape = Vec::new();
    world.handle.shared().with(|machine| {
        let table = machine.catalog().table(&returns()).unwrap();
        walk(&table.schema.columns, "", &mut shape);
    });
    shape
}

#[tokio::test(start_paused = true)]
async fn columns_added_at_the_start_are_written_once_bigquery_has_noticed_them() {
    // reports.md 51, 53, 55, 57: the server takes minutes; each try has a new connection, and no value is left out meanwhile.
    for (mode, format) in modes_and_formats() {
        let world = narrow_world(&[ADDS, mode, format]).await;
        world
            .handle
            .shared()
            .with(|machine| machine.switches_mut().schema_lag_ms = 150_000);
        let begin = Instant::now();
        let mut sinks: Vec<_> = (0..3)
            .map(|subtask| sink_of(&world, &wider(), subtask, 3))
            .collect();
        for started in join_all(sinks.iter_mut().map(|sink| sink.on_start(None))).await {
            started.unwrap();
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        let after = [
            "id Required",
            "place Nullable",
            "place.city Nullable",
            "place.street Nullable",
            "price Nullable",
        ];
        assert_eq!(shape(&world), after);
        for (subtask, sink) in (0..).zip(&mut sinks) {
            sink.process_batch(wide_rows(&[subtask])).await.unwrap();
        }
        let taken = Checkpoint::take(1, &mut sinks).await;
        let took = begin.elapsed().as_secs();
        assert!((140..=165).contains(&took), "{mode:?} {format:?}: {took} s");
        assert_eq!(taken.commit(1, &mut sinks).await, 3);
        assert!(world.reconnects() >= 3 * 10);
        let streams = if mode == EXACTLY_ONCE { 3 } else { 0 };
        assert_eq!(world.handle.streams_created(), streams, "the streams are kept");
        let rows = world.handle.rows(&returns()).unwrap();
        let streets = rows.column(1).as_struct().column(1);
        let prices = rows.column(2).as_primitive::<Float64Type>();
        let mut seen: Vec<_> = (0..3)
            .map(|row| {
                (
                    streets.as_string::<i32>().value(row).to_owned(),
                    prices.value(row),
                )
            })
            .collect();
        seen.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            seen,
            [
                ("street 0".to_owned(), 0.5),
                ("street 1".to_owned(), 1.5),
                ("street 2".to_owned(), 2.5)
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_column_ends_with_the_budget() {
    for (mode, format) in modes_and_formats() {
        let world = narrow_world(&[ADDS, mode, format]).await;
        world
            .handle
            .shared()
            .with(|machine| machine.switches_mut().schema_lag_ms = 3_600_000);
        let mut sink = sink_of(&world, &wider(), 0, 1);
        sink.on_start(None).await.unwrap();
        sink.process_batch(wide_rows(&[1])).await.unwrap();
        let begin = Instant::now();
        let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
        let took = begin.elapsed().as_secs();
        assert!((280..=300).contains(&took), "{mode:?} {format:?}: {took} s");
        assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
        let text = "appending failed: InvalidArgument/SchemaMismatchExtraFields: Input schema has more fields than BigQuery schema, extra fields: ";
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_option_a_column_the_table_lacks_fails_the_start() {
    for options in [&[] as &[(&str, &str)], &[CREATES]] {
        let world = narrow_world(options).await;
        let before = shape(&world);
        let error = sink_of(&world, &wider(), 0, 1).on_start(None).await.unwrap_err();
        let text = "2 columns of the pipeline do not fit table projects/shop/datasets/sales/tables/returns:\n  column `price`: the \
                    pipeline writes DOUBLE, the table has no such column; add it to the table, or rename or drop it in the query\n  column \
                    `place.street`: the pipeline writes TEXT, the table has no such column; add it to the table, or rename or drop it in the \
                    query";
        assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
        assert_eq!(shape(&world), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_says_what_would_be_added_and_adds_nothing() {
    let world = narrow_world(&[ADDS]).await;
    let before = shape(&world);
    let look = BigQuerySink::check(&world.options, &wider(), &world.environment)
        .await
        .unwrap();
    let added = ["price FLOAT64", "place.street STRING"].map(str::to_owned);
    assert_eq!(look.table, TableLook::WillGain(added.to_vec()));
    assert_eq!(shape(&world), before);
    let mut sink = sink_of(&world, &wider(), 0, 1);
    sink.on_start(None).await.unwrap();
    let look = BigQuerySink::check(&world.options, &wider(), &world.environment)
        .await
        .unwrap();
    assert_eq!(look.table, TableLook::Fits);

    let world = World::with_rest(&[CREATES, ("table", "returns")]).await;
    let look = BigQuerySink::check(&world.options, &wider(), &world.environment)
        .await
        .unwrap();
    assert_eq!(look.table, TableLook::WillBeCreated);
    assert!(world.handle.rows(&returns()).is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_to_a_table_whose_other_columns_do_not_fit() {
    let world = narrow_world(&[ADDS]).await;
    let before = shape(&world);
    let columns = Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Utf8, false),
        Field::new("price", DataType::Float64, false),
    ]));
    let error = sink_of(&world, &columns, 0, 1).on_start(None).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("1 column of the pipeline does not fit table "),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("column `id`: the pipeline writes TEXT, the table has INT64; "),
        "{error}"
    );
    assert_eq!(shape(&world), before);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_the_rest_api_unless_an_option_needs_it() {
    // reports.md 48: appending alone takes no more than the right to append.
    let world = World::new();
    assert!(!administers(&world.options));
    assert_eq!(
        world.options.endpoints.http.as_str(),
        "http://127.0.0.1:1",
        "where nobody answers"
    );
    let mut sink = world.start(None).await;
    publish(1, rows(0..2), &mut sink).await;
    assert_eq!(world.visible(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_rest_api_that_does_not_answer_ends_the_start_in_time() {
    // A listener that takes connections and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = format!("http://{}", listener.local_addr().unwrap());
    let world = World::with(&[CREATES, ("table", "returns"), ("endpoint.http", &http)]);
    let begin = Instant::now();
    let error = world.sink(0, 1).on_start(None).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
    assert!(error.to_string().contains(&http), "{error}");
    assert!(
        begin.elapsed() <= Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_dataset_outside_the_us_is_written_with_the_header_that_leads_there() {
    // reports.md 43: without it BigQuery says that a permission is missing.
    let world = World::with(&[("dataset", "tokyo")]);
    world
        .handle
        .create_dataset(&DatasetRef::new("shop", "tokyo"), "asia-northeast1")
        .unwrap();
    let table = TableRef::new("shop", "tokyo", "orders");
    let schema = Schema::from_wire(&table_schema_for(&columns()).unwrap()).unwrap();
    world.handle.create_table(&table, schema).unwrap();
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    assert_eq!(world.handle.rows(&table).unwrap().num_rows(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_column_that_someone_adds_while_the_job_runs_changes_nothing_for_its_rows() {
    // reports.md 52: old connections and new ones alike go on with the columns of the start.
    let world = World::new();
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    add_price(&world);
    publish(2, rows(3..6), &mut sink).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    publish(3, rows(6..9), &mut sink).await;
    world
        .handle
        .end_calls(&bigquery_write_emulator::machine::Refusal::restarted());
    publish(4, rows(9..12), &mut sink).await;
    assert_eq!(world.visible(), (0..12).collect::<Vec<_>>());
    assert_eq!(world.handle.streams_created(), 1);
    let mut restarted = world.start(None).await;
    publish(1, rows(12..15), &mut restarted).await;
    assert_eq!(world.visible(), (0..15).collect::<Vec<_>>());
}

/// Someone gives `orders` a price.
fn add_price(world: &World) {
    let now = world.handle.shared().now();
    world.handle.shared().with(|machine| {
        let table = machine.catalog().table(&target()).unwrap();
        let (mut schema, rest) = (table.schema.clone(), table.rest.clone());
        let price = Column::new("price", Kind::Float64, Mode::Nullable);
        schema.columns.push(price);
        machine.update_table(&target(), schema, rest, now).unwrap();
    });
}

/// Every row once, whole, without a price.
fn assert_complete(world: &World, ids: std::ops::Range<i64>) {
    assert_eq!(world.visible(), ids.collect::<Vec<_>>());
    let rows = world.handle.rows(&target()).unwrap();
    assert_eq!(rows.column(2).null_count(), rows.num_rows());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_made_after_someone_added_a_column_gets_the_columns_of_the_start() {
    // reports.md 54: the stream expired, or another connection took it.
    for format in FORMATS {
        for expires in [true, false] {
            let world = World::with(&[format]);
            let mut sink = world.start(None).await;
            publish(1, rows(0..3), &mut sink).await;
            add_price(&world);
            tokio::time::sleep(Duration::from_secs(20)).await;
            if expires {
                world.handle.advance(8 * 24 * 3_600_000);
            } else {
                world.fault(
                    r#"{"rpc": "AppendRows", "occurrence": {"nth": 1},
                        "action": {"kind": "end", "code": "FAILED_PRECONDITION", "message": "taken over"}}"#,
                );
            }
            publish(2, rows(3..6), &mut sink).await;
            publish(3, rows(6..9), &mut sink).await;
            assert_eq!(
                world.handle.streams_created(),
                2,
                "{format:?}, expired: {expires}"
            );
            assert_complete(&world, 0..9);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_tells_of_a_new_column_is_an_acknowledgement_like_others() {
    // reports.md 52, 56: there is one stream a connection.
    for (mode, format) in modes_and_formats() {
        let world = World::with(&[mode, format]);
        world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "updated_schema"}}"#);
        let mut sink = world.start(None).await;
        publish(1, rows(0..3), &mut sink).await;
        add_price(&world);
        tokio::time::sleep(Duration::from_secs(20)).await;
        for part in 1..4 {
            sink.process_batch(rows(part * 3..part * 3 + 3)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let taken = checkpoint(2, &mut sink).await;
        assert_eq!(commit(2, &taken, &mut sink).await, 9);
        assert_eq!(world.handle.faults()[0].fired, 4, "each answer had it");
        assert_complete(&world, 0..12);
        assert_eq!(world.reconnects(), 0);
        let left = |counter| matches!(counter, Counter::StreamsDiscarded(_));
        assert_eq!(world.environment.metrics.sum(left), 0);
    }
}

/// `id` and `place` of the table, a STRUCT with an array, and a map.
fn shaped_rows() -> RecordBatch {
    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.values().append_value("new");
    tags.values().append_value("");
    tags.append(true);
    tags.append(false);
    let tags: ArrayRef = Arc::new(tags.finish());
    let width: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
    let size = StructArray::from(vec![
        (Arc::new(Field::new("width", DataType::Int64, true)), width),
        (Arc::new(Field::new("tags", tags.data_type().clone(), true)), tags),
    ]);
    let names = MapFieldNames {
        entry: "entries".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    let mut counts = MapBuilder::new(Some(names), StringBuilder::new(), Int64Builder::new());
    counts.keys().append_value("a");
    counts.values().append_value(1);
    counts.keys().append_value("b");
    counts.values().append_null();
    counts.append(true).unwrap();
    counts.append(true).unwrap();
    let city: ArrayRef = Arc::new(StringArray::from(vec!["Rome", "Oslo"]));
    let place = StructArray::from(vec![(Arc::new(Field::new("city", DataType::Utf8, true)), city)]);
    let arrays: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("place", Arc::new(place)),
        ("size", Arc::new(size)),
        ("counts", Arc::new(counts.finish())),
    ];
    RecordBatch::try_from_iter(arrays).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_struct_and_a_map_that_are_added_as_columns_take_their_rows() {
    // reports.md 58: what is added is what is written.
    for (mode, format) in modes_and_formats() {
        let world = narrow_world(&[ADDS, mode, format]).await;
        let batch = shaped_rows();
        let mut sink = sink_of(&world, &batch.schema(), 0, 1);
        sink.on_start(None).await.unwrap();
        let added = [
            "size Nullable",
            "size.width Nullable",
            "size.tags Repeated",
            "counts Repeated",
            "counts.key Nullable",
            "counts.value Nullable",
        ];
        assert_eq!(shape(&world)[3..], added);
        publish(1, batch, &mut sink).await;
        let rows = world.handle.rows(&returns()).unwrap();
        let shown = |column: usize, row: usize| {
            let options = FormatOptions::new().with_null("NULL");
            let formatter = ArrayFormatter::try_new(rows.column(column), &options).unwrap();
            formatter.value(row).to_string()
        };
        let row = |row: usize| {
            (0..4)
                .map(|column| shown(column, row))
                .collect::<Vec<_>>()
                .join(" | ")
        };
        assert_eq!(
            [row(0), row(1)],
            [
                "1 | {city: Rome} | {width: 7, tags: [new, ]} | [{key: a, value: 1}, {key: b, value: NULL}]",
                "2 | {city: Oslo} | {width: NULL, tags: []} | []",
            ],
            "{mode:?} {format:?}"
        );
    }
}

/// A world with `returns` partitioned as said.
async fn partitioned(options: &[(&str, &str)], partitioning: serde_json::Value) -> World {
    let world = World::with_rest(options).await;
    let now = world.handle.shared().now();
    let schema = Schema::from_wire(&table_schema_for(&columns()).unwrap()).unwrap();
    let rest = partitioning.as_object().unwrap().clone();
    world.handle.shared().with(|machine| {
        machine.create_table(&returns(), schema, rest, now).unwrap();
    });
    world
}

#[tokio::test(start_paused = true)]
async fn rows_go_to_a_day_of_a_daily_ingestion_time_table() {
    let daily = || json!({"timePartitioning": {"type": "DAY"}});
    for options in [vec![], vec![CREATES, ("table.partition_type", "day")]] {
        // It is 2027-01-15.
        let options = [&[("table", "returns$20270114")], options.as_slice()].concat();
        let world = partitioned(&options, daily()).await;
        let mut sink = world.start(None).await;
        publish(1, rows(0..3), &mut sink).await;
        assert_eq!(world.handle.rows(&returns()).unwrap().num_rows(), 3);
        let stream = world.handle.streams()[0].name.clone();
        assert!(
            stream.starts_with("projects/shop/datasets/sales/tables/returns$20270114/streams/"),
            "{stream}"
        );
        let partitions = world.handle.shared().with(|machine| {
            let table = machine.catalog().table(&returns()).unwrap();
            table.partitions()
        });
        // The begin of the day before.
        assert_eq!(partitions, [Some(20_832 * 86_400_000)]);
    }

    // BigQuery takes 31 days back and 16 ahead.
    let world = partitioned(&[("table", "returns$20261201")], daily()).await;
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    let text = "creating a write stream failed: InvalidArgument: Partition decorator $20261201 is out of range: rows can be written 31 days \
                back to 16 days ahead (the request is wrong). Nothing that came since the start is visible; it is read again";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_day_of_a_table_without_daily_partitions_is_refused() {
    for (partitioning, there) in [
        (json!({}), "no partitions"),
        (
            json!({"timePartitioning": {"type": "HOUR"}}),
            "partitions of one HOUR by the time of ingestion",
        ),
    ] {
        // By BigQuery, with the first rows.
        let day = ("table", "returns$20270114");
        let world = partitioned(&[day], partitioning.clone()).await;
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..3)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
        let text = "creating a write stream failed: InvalidArgument: Partition decorator $20270114 cannot be used: the table is not \
                    partitioned by the day of ingestion (the request is wrong). Nothing that came since the start is visible; it is read again";
        assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));

        // By the start, where it looks at the table.
        let world = partitioned(&[day, CREATES, ("table.partition_type", "day")], partitioning).await;
        let error = world.sink(0, 1).on_start(None).await.unwrap_err();
        let text = format!(
            "option 'table': $20270114 is a day of a table that is partitioned by the day of ingestion, and table \
             projects/shop/datasets/sales/tables/returns has {there}; leave out $20270114"
        );
        assert_eq!(told(&error), (Blame::User, Retry::Never, text));
    }
}
