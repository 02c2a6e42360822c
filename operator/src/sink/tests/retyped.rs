//! Columns that get another type where no answer to rows tells of it: before a connection, and before the columns that BigQuery tells of.

use std::time::Duration;

use arrow_array::Decimal128Array;
use arrow_array::types::{Decimal128Type, Decimal256Type};
use bigquery_write_emulator::machine::Refusal;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use tokio::time::sleep;

use super::replaced::{id, published, replace_by, set_columns};
use super::*;

const PROTO: (&str, &str) = ("write.format", "proto");
const BILLION: i128 = 1_000_000_000;

fn numeric() -> Kind {
    Kind::Numeric {
        precision: None,
        scale: None,
    }
}

fn bignumeric() -> Kind {
    Kind::BigNumeric {
        precision: None,
        scale: None,
    }
}

fn price(kind: Kind) -> Column {
    Column::new("price", kind, Mode::Nullable)
}

/// Rows with a price of one for each ten.
fn priced(ids: std::ops::Range<i64>) -> RecordBatch {
    let prices = ids.clone().map(|id| i128::from(id) * BILLION / 10);
    let prices = Decimal128Array::from_iter_values(prices)
        .with_precision_and_scale(38, 9)
        .unwrap();
    let ids = Int64Array::from_iter_values(ids);
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("price", DataType::Decimal128(38, 9), true),
    ];
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(prices)];
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap()
}

/// A sink for such rows that has published the first three of them, each in a NUMERIC column.
async fn started(world: &World) -> BigQuerySink {
    replace_by(world, vec![id(), price(numeric())]);
    let mut sink = again(world).await;
    publish(1, priced(0..3), &mut sink).await;
    sink
}

async fn again(world: &World) -> BigQuerySink {
    let mut sink = world.sink(0, 1);
    sink.columns = priced(0..0).schema();
    sink.on_start(None).await.unwrap();
    sink
}

/// What a reader sees in a BIGNUMERIC column.
fn prices(world: &World) -> Vec<String> {
    let rows = world.handle.rows(&target()).unwrap();
    let prices = rows.column(1).as_primitive::<Decimal256Type>();
    let price = |row| prices.value_as_string(row).trim_end_matches('0').to_owned();
    (0..rows.num_rows()).map(price).collect()
}

/// The prices of such rows.
fn expected(ids: std::ops::Range<i64>) -> Vec<String> {
    ids.map(|id| format!("0.{id}").trim_end_matches('0').to_owned())
        .collect()
}

/// Someone widens the column, those who append learn of it, and the connection ends before an answer could tell.
async fn widened_between_connections(world: &World) {
    set_columns(world, vec![id(), price(bignumeric())]);
    sleep(Duration::from_secs(20)).await;
    world.handle.end_calls(&Refusal::restarted());
}

#[tokio::test(start_paused = true)]
async fn a_numeric_that_became_a_bignumeric_before_a_reconnect_is_not_misread() {
    // As protobuf both are bytes: 1 would be 1e-29, flushed exactly once, and nobody would object.
    for mode in ["exactly_once", "at_least_once"] {
        let world = World::with(&[PROTO, ("write.mode", mode)]);
        let mut sink = started(&world).await;
        widened_between_connections(&world).await;
        sink.process_batch(priced(3..6)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
        let rows = match mode {
            "exactly_once" => "Checkpoint 1 was published; rows after it are not visible and are read again",
            _ => "Rows up to checkpoint 1 are visible; later ones may be, and are written again",
        };
        let text = format!(
            "table {TABLE} is another one than at the start, or was changed: its column price, which was NUMERIC and is BIGNUMERIC now; \
             the job restarts from its checkpoint and looks whether its columns fit. {rows}"
        );
        assert_eq!(told(&error), (Blame::External, Retry::Restart, text));
        assert_eq!(prices(&world), expected(0..3), "{mode}");
        let mut sink = again(&world).await;
        publish(2, priced(3..6), &mut sink).await;
        assert_eq!(prices(&world), expected(0..6), "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn arrow_says_what_it_is_and_asks_nothing() {
    let world = World::new();
    let mut sink = started(&world).await;
    let asked = world.calls(Rpc::GetWriteStream);
    world.handle.end_calls(&Refusal::restarted());
    publish(2, priced(3..6), &mut sink).await;
    assert_eq!(world.calls(Rpc::GetWriteStream), asked);
    let rows = world.handle.rows(&target()).unwrap();
    let prices = rows.column(1).as_primitive::<Decimal128Type>().values();
    assert_eq!(
        prices.to_vec(),
        (0..6).map(|id| id * BILLION / 10).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_about_the_table_that_fails_is_asked_again_and_loses_nothing() {
    for (code, action) in [
        ("UNAVAILABLE", "refuse"),
        ("RESOURCE_EXHAUSTED", "refuse"),
        ("UNAUTHENTICATED", "refuse"),
        ("INTERNAL", "refuse"),
        ("NOT_FOUND", "refuse"),
        ("", "delay"),
    ] {
        let world = World::with(&[PROTO]);
        let mut sink = published(&world).await;
        let action = match action {
            "delay" => r#"{"kind": "delay", "ms": 3600000}"#.to_owned(),
            _ => format!(r#"{{"kind": "refuse", "code": "{code}", "message": "not now"}}"#),
        };
        world.fault(&format!(
            r#"{{"rpc": "GetWriteStream", "occurrence": {{"times": 1}}, "action": {action}}}"#
        ));
        let asked = world.calls(Rpc::GetWriteStream);
        world.handle.end_calls(&Refusal::restarted());
        publish(2, rows(3..6), &mut sink).await;
        assert_eq!(world.visible(), (0..6).collect::<Vec<_>>(), "{code}");
        assert_eq!(world.calls(Rpc::GetWriteStream), asked + 2, "{code}");
        assert_eq!(world.handle.streams_created(), 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_when_its_table_is_asked_about_is_replaced() {
    let world = World::with(&[PROTO]);
    let mut sink = published(&world).await;
    world.handle.advance(8 * 24 * 3_600_000);
    publish(2, rows(3..6), &mut sink).await;
    assert_eq!(world.visible(), (0..6).collect::<Vec<_>>());
    assert_eq!(world.handle.streams_created(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_stream_that_tells_of_earlier_columns_is_no_change() {
    // write-api.md 1.2: the answer may lag behind the table, of which the start has read more.
    for asks_rest in [false, true] {
        for format in ["arrow", "proto"] {
            let mut world = World::with_rest(&[("write.format", format)]).await;
            world.environment.asks_rest = asks_rest;
            replace_by(&world, vec![id(), price(numeric())]);
            world
                .handle
                .shared()
                .with(|machine| machine.switches_mut().create_answer_lags = true);
            set_columns(&world, vec![id(), price(bignumeric())]);
            let mut sink = again(&world).await;
            let begin = Instant::now();
            publish(1, priced(0..3), &mut sink).await;
            let took = begin.elapsed().as_secs();
            assert!((9..=25).contains(&took), "{format}: {took} s");
            assert_eq!(prices(&world), expected(0..3), "{format}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_new_streams_columns_ends_with_the_budget() {
    let mut world = World::with(&[PROTO]);
    world.environment.asks_rest = false;
    replace_by(&world, vec![id(), price(numeric())]);
    world.handle.shared().with(|machine| {
        machine.switches_mut().create_answer_lags = true;
        machine.switches_mut().schema_lag_ms = 3_600_000;
    });
    set_columns(&world, vec![id(), price(bignumeric())]);
    let mut sink = again(&world).await;
    sink.process_batch(priced(0..3)).await.unwrap();
    let begin = Instant::now();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    let took = begin.elapsed().as_secs();
    assert!((280..=300).contains(&took), "{took} s");
    let text = format!(
        "creating a write stream failed: InvalidArgument/SchemaMismatchExtraFields: BigQuery told of earlier columns of table {TABLE}: \
         price, which was BIGNUMERIC and is NUMERIC now (the table lacks a column, or BigQuery has not noticed it yet, which takes \
         minutes). Nothing that came since the start is visible; it is read again"
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
}
