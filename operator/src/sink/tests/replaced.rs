//! Tables that are dropped, replaced or changed while the job runs: what the error says of the rows.

use std::time::Duration;

use bigquery_write_emulator::schema::{Column, Kind, Mode};
use tokio::time::sleep;

use super::*;

fn drop_table(world: &World) {
    world
        .handle
        .shared()
        .with(|machine| machine.delete_table(&target()))
        .unwrap();
}

fn replace_table(world: &World) {
    let schema = world
        .handle
        .shared()
        .with(|machine| machine.catalog().table(&target()).unwrap().schema.clone());
    replace_by(world, schema.columns);
}

/// Drops the table and creates one with these columns.
pub(super) fn replace_by(world: &World, columns: Vec<Column>) {
    let now = world.handle.shared().now();
    world.handle.shared().with(|machine| {
        let rest = serde_json::Map::new();
        machine
            .replace_table(&target(), Schema { columns }, rest, now)
            .unwrap();
    });
}

/// Gives the table other columns than BigQuery would let it have by a change.
pub(super) fn set_columns(world: &World, columns: Vec<Column>) {
    let now = world.handle.shared().now();
    world.handle.shared().with(|machine| {
        let rest = serde_json::Map::new();
        machine
            .update_table(&target(), Schema { columns }, rest, now)
            .unwrap();
    });
}

/// A sink that has published checkpoint 1 (rows 0 to 2) twenty minutes after the table was created.
pub(super) async fn published(world: &World) -> BigQuerySink {
    world.handle.advance(20 * 60_000);
    world.attempts.fetch_add(20 * 60_000_000, Ordering::Relaxed);
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    sink
}

const STAYS: &str = "; the job restarts from its checkpoint. Checkpoint 1 was published; rows after it are not visible and are read again";

fn stream(world: &World) -> String {
    world.handle.streams()[0].name.clone()
}

#[tokio::test(start_paused = true)]
async fn a_dropped_table_is_named_and_so_are_the_rows_it_took_along() {
    for world in [World::new(), World::with_rest(&[]).await] {
        let mut sink = published(&world).await;
        let stream = stream(&world);
        sink.process_batch(rows(3..6)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        drop_table(&world);
        sink.process_batch(rows(6..9)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
        let text = format!(
            "stream {stream} is gone with rows 3 to 5 acknowledged but not visible (NotFound/TableNotFound: Requested entity was not found. \
             Entity: {TABLE}){STAYS}. Table {TABLE} does not exist any more; it was dropped with all its rows"
        );
        assert_eq!(told(&error), (Blame::External, Retry::Restart, text));
        // The restart that follows finds the same.
        let error = world.sink(0, 1).on_start(None).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("table {TABLE} does not exist; ")),
            "{error}"
        );
        assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_table_is_told_from_a_stream_that_expired() {
    // reports.md 42.
    for (replaced, ending) in [
        (
            true,
            " was created anew at 2027-01-15T08:20:00Z: rows that were written to the one before are lost with it, visible ones too",
        ),
        (
            false,
            " is there since 2027-01-15T08:00:00Z, this sink since 2027-01-15T08:20:00Z",
        ),
    ] {
        let world = World::with_rest(&[]).await;
        let mut sink = published(&world).await;
        sink.process_batch(rows(3..6)).await.unwrap();
        sleep(Duration::from_millis(400)).await;
        if replaced {
            replace_table(&world);
        } else {
            world.handle.advance(8 * 24 * 3_600_000);
        }
        sink.process_batch(rows(6..9)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
        assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
        let ending = format!("{STAYS}. Table {TABLE}{ending}");
        assert!(error.to_string().ends_with(&ending), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_rest_api_is_not_to_be_asked_nothing_is_said_of_a_table_that_is_there() {
    let mut world = World::with_rest(&[]).await;
    world.environment.asks_rest = false;
    let mut sink = published(&world).await;
    sink.process_batch(rows(3..6)).await.unwrap();
    sleep(Duration::from_millis(400)).await;
    replace_table(&world);
    sink.process_batch(rows(6..9)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    assert!(error.to_string().ends_with(STAYS), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_table_replaced_before_the_commit_leaves_the_decision_to_a_person_who_is_told_what_happened() {
    // Invariant 11.
    let world = World::with_rest(&[("commit.timeout", "60s")]).await;
    let mut sink = published(&world).await;
    sink.process_batch(rows(3..6)).await.unwrap();
    let second = checkpoint(2, &mut sink).await;
    let stream = stream(&world);
    sleep(Duration::from_secs(2)).await;
    replace_table(&world);
    let error = sink.handle_commit(Epoch(2), &second.commits).await.unwrap_err();
    let text = format!(
        "rows 3 to 5 of stream {stream} cannot be shown to be visible for checkpoint 2: NotFound/StreamNotFound: Table {TABLE} is \
         re-created. Entity: {stream} (the stream is gone, or the routing is stale). Look at the table: if the rows are there, run \
         once with commit.unprovable = 'assume_visible'; if they are not, with 'accept_loss'. Table {TABLE} was created anew at \
         2027-01-15T08:20:02Z: rows that were written to the one before are lost with it, visible ones too"
    );
    assert_eq!(told(&error), (Blame::External, Retry::Never, text));
    assert_eq!(world.visible(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_table_deleted_before_the_commit_is_never_counted_as_done() {
    // reports.md 5; invariant 11.
    for world in [
        World::with(&[("commit.timeout", "60s")]),
        World::with_rest(&[("commit.timeout", "60s")]).await,
    ] {
        let mut sink = published(&world).await;
        sink.process_batch(rows(3..6)).await.unwrap();
        let second = checkpoint(2, &mut sink).await;
        let stream = stream(&world);
        drop_table(&world);
        let error = sink.handle_commit(Epoch(2), &second.commits).await.unwrap_err();
        let text = format!(
            "rows 3 to 5 of stream {stream} cannot be shown to be visible for checkpoint 2: NotFound/TableNotFound: Requested entity was not \
             found. Entity: {TABLE} (the stream is gone, or the routing is stale). Look at the table: if the rows are there, run once with \
             commit.unprovable = 'assume_visible'; if they are not, with 'accept_loss'. Table {TABLE} does not exist any more; it was \
             dropped with all its rows"
        );
        assert_eq!(told(&error), (Blame::External, Retry::Never, text));
        assert_eq!(world.total(Counter::RowsAssumedVisible), 0);
        assert_eq!(world.total(Counter::RowsLost), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_replaced_between_a_checkpoint_and_the_next_start_is_said_to_be_another() {
    // reports.md 42.
    for replaced in [true, false] {
        let world = World::with_rest(&[("commit.timeout", "60s")]).await;
        let mut sink = published(&world).await;
        sink.process_batch(rows(3..6)).await.unwrap();
        let second = checkpoint(2, &mut sink).await;
        let stream = stream(&world);
        drop(sink);
        let later = if replaced { 60_000 } else { 8 * 24 * 3_600_000 };
        world.handle.advance(later);
        world
            .attempts
            .fetch_add(u64::from(later) * 1_000, Ordering::Relaxed);
        if replaced {
            replace_table(&world);
            world.handle.advance(60_000);
            world.attempts.fetch_add(60_000_000, Ordering::Relaxed);
        }
        let mut sink = world
            .start(Some(second.restored(2, CommitReplay::Expected)))
            .await;
        let error = sink.handle_commit(Epoch(2), &second.commits).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!(
                "rows 3 to 5 of stream {stream} cannot be shown to be visible for checkpoint 2: "
            )),
            "{text}"
        );
        let ending = if replaced {
            "created anew at 2027-01-15T08:21:00Z: rows that were written to the one before are lost with it, visible ones too"
        } else {
            "there since 2027-01-15T08:00:00Z, this sink since 2027-01-23T08:20:00Z"
        };
        assert!(text.ends_with(ending), "{text}");
        assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Never));
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_the_start_itself_created_is_no_other_one() {
    let create = ("table.create", "if_missing");
    let world = World::with_rest(&[create, ("table", "returns")]).await;
    // BigQuery's clock is ahead of ours.
    world.handle.advance(5_000);
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sleep(Duration::from_millis(400)).await;
    world.handle.advance(8 * 24 * 3_600_000);
    sink.process_batch(rows(3..6)).await.unwrap();
    let text = sink.handle_checkpoint(barrier(1)).await.unwrap_err().to_string();
    let ending = "/returns is there since 2027-01-15T08:00:05Z, this sink since 2027-01-15T08:00:00Z";
    assert!(text.ends_with(ending), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_table_replaced_while_nothing_was_owed_takes_the_rows_that_follow() {
    let world = World::new();
    let mut sink = published(&world).await;
    replace_table(&world);
    publish(2, rows(3..6), &mut sink).await;
    assert_eq!(world.visible(), [3, 4, 5]);
    assert_eq!(world.total(Counter::StreamsDiscarded(Discarded::Gone)), 1);

    // reports.md 42: for some seconds BigQuery knows neither.
    let world = World::new();
    let mut sink = published(&world).await;
    drop_table(&world);
    let begin = Instant::now();
    sink.process_batch(rows(3..6)).await.unwrap();
    let handle = world.handle.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(50)).await;
        make_target(&handle);
    });
    let taken = checkpoint(2, &mut sink).await;
    assert_eq!(commit(2, &taken, &mut sink).await, 3);
    assert!(
        begin.elapsed() >= Duration::from_secs(50),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(world.visible(), [3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_table_replaced_by_one_with_other_types_gets_no_row_that_it_would_misread() {
    // As protobuf INT64 would be days of a DATE, and nobody would object.
    let name = || Column::new("name", Kind::String { max_length: None }, Mode::Nullable);
    for format in ["arrow", "proto"] {
        let world = World::with(&[("write.format", format)]);
        let mut sink = published(&world).await;
        replace_by(
            &world,
            vec![Column::new("id", Kind::Date, Mode::Required), name()],
        );
        sink.process_batch(rows(3..6)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
        let text = format!(
            "table {TABLE} is another one than at the start, or was changed: its column id, which was INT64 and is DATE now; the job \
             restarts from its checkpoint and looks whether its columns fit. Checkpoint 1 was published; rows after it are not visible and \
             are read again"
        );
        assert_eq!(told(&error), (Blame::External, Retry::Restart, text), "{format}");
        assert_eq!(world.handle.rows(&target()).unwrap().num_rows(), 0);
        let error = world.sink(0, 1).on_start(None).await.unwrap_err();
        assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
        let start = format!("1 column of the pipeline does not fit table {TABLE}:\n  column `id`: ");
        assert!(error.to_string().starts_with(&start), "{error}");

        // What fits after all goes on.
        let world = World::with(&[("write.format", format)]);
        let mut sink = published(&world).await;
        let numeric = Kind::Numeric {
            precision: None,
            scale: None,
        };
        replace_by(&world, vec![Column::new("id", numeric, Mode::Required), name()]);
        sink.process_batch(rows(3..6)).await.unwrap();
        let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
        assert!(error.to_string().contains(" is NUMERIC now; "), "{error}");
        let mut sink = world.start(None).await;
        publish(2, rows(3..6), &mut sink).await;
        let visible = world.handle.rows(&target()).unwrap();
        let ids = visible
            .column(0)
            .as_primitive::<arrow_array::types::Decimal128Type>();
        let billion = 1_000_000_000;
        assert_eq!(ids.values(), &[3 * billion, 4 * billion, 5 * billion], "{format}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_tells_of_other_types_ends_the_job_too() {
    // A default stream is created by nobody, so that only answers can tell.
    let world = World::with(&[("write.mode", "at_least_once"), ("write.format", "proto")]);
    let mut sink = published(&world).await;
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "updated_schema"}}"#);
    let name = Column::new("name", Kind::String { max_length: None }, Mode::Nullable);
    replace_by(&world, vec![Column::new("id", Kind::Date, Mode::Required), name]);
    sink.process_batch(rows(3..6)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    let text = format!(
        "table {TABLE} is another one than at the start, or was changed: its column id, which was INT64 and is DATE now; the job \
         restarts from its checkpoint and looks whether its columns fit. Rows up to checkpoint 1 are visible; later ones may be, and are \
         written again"
    );
    assert_eq!(told(&error), (Blame::External, Retry::Restart, text));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_can_never_take_the_rows_ends_the_job_in_seconds_with_the_column() {
    // reports.md 24: replaced by one that requires another column, or has another type.
    let text = || Kind::String { max_length: None };
    let required = vec![
        id(),
        Column::new("name", text(), Mode::Nullable),
        Column::new("x", Kind::Bool, Mode::Required),
    ];
    let other = vec![
        Column::new("id", text(), Mode::Required),
        Column::new("name", text(), Mode::Nullable),
    ];
    let arrow = [
        "Input schema lacks required fields: 'x' ",
        "Found incompatible fields: 'id' (Int64 for STRING) ",
    ];
    let proto = [
        "The required field 'x' is missing in the proto message ",
        "The proto field mismatched with BigQuery field at Row.id, the proto field type int64, BigQuery field type STRING ",
    ];
    for mode in ["exactly_once", "at_least_once"] {
        for (format, texts) in [("arrow", arrow), ("proto", proto)] {
            for (columns, text) in [&required, &other].into_iter().zip(texts) {
                // Where a stream is created, its answer tells of other types.
                if mode == "exactly_once" && columns == &other {
                    continue;
                }
                let world = World::with(&[("write.mode", mode), ("write.format", format)]);
                let mut sink = published(&world).await;
                replace_by(&world, columns.clone());
                let begin = Instant::now();
                sink.process_batch(rows(3..6)).await.unwrap();
                let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
                // Until it is sure that the old stream is gone.
                let took = begin.elapsed().as_secs();
                assert!(took <= 26, "{mode} {format}: {took} s");
                assert_eq!(
                    (error.blame(), error.retry()),
                    (Blame::User, Retry::Never),
                    "{error}"
                );
                let text = format!("appending failed: InvalidArgument: {text}");
                assert!(error.to_string().starts_with(&text), "{error}");
            }
        }
    }
}

pub(super) fn id() -> Column {
    Column::new("id", Kind::Int64, Mode::Required)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_column_is_named_after_the_wait_for_a_new_one() {
    let world = World::new();
    let mut sink = published(&world).await;
    set_columns(&world, vec![id()]);
    // Those who append have not noticed yet; rows of this time go in, and are complete.
    sleep(Duration::from_secs(20)).await;
    world
        .handle
        .end_calls(&bigquery_write_emulator::machine::Refusal::restarted());
    sink.process_batch(rows(3..6)).await.unwrap();
    let begin = Instant::now();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    let took = begin.elapsed().as_secs();
    assert!((280..=300).contains(&took), "{took} s");
    let text = error.to_string();
    let start = "appending failed: InvalidArgument/SchemaMismatchExtraFields: Input schema has more fields than BigQuery schema, extra fields: \
                 'name'";
    let end = "(the table lacks a column, or BigQuery has not noticed it yet, which takes minutes). Checkpoint 1 was \
               published; rows after it are not visible and are read again";
    assert!(text.starts_with(start) && text.ends_with(end), "{text}");
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
}

#[tokio::test(start_paused = true)]
async fn a_narrowed_column_is_named_with_what_is_visible() {
    let world = World::new();
    let mut sink = published(&world).await;
    let narrow = Column::new("name", Kind::String { max_length: Some(3) }, Mode::Nullable);
    set_columns(&world, vec![id(), narrow]);
    sleep(Duration::from_secs(20)).await;
    // The names of 3 and 6 are NULL.
    sink.process_batch(rows([3, 4, 6])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    let text = error.to_string();
    let row = "row 2 of the request: Field name: STRING(3) has maximum length 3 but got a value with length 7 on field name.";
    let end = ". Checkpoint 1 was published; rows after it are not visible and are read again";
    assert!(text.contains(row) && text.ends_with(end), "{text}");
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_waits_for_its_commit_is_said_to_be_open() {
    let world = World::new();
    let mut sink = published(&world).await;
    sink.process_batch(rows(3..6)).await.unwrap();
    checkpoint(2, &mut sink).await;
    set_columns(&world, vec![id()]);
    sleep(Duration::from_secs(20)).await;
    world
        .handle
        .end_calls(&bigquery_write_emulator::machine::Refusal::restarted());
    sink.process_batch(rows(6..9)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(3)).await.unwrap_err();
    let end = ". Checkpoint 2 is not published: if the host has completed it, its commit is repeated at the next start, which tells whether its \
               rows become visible; rows after it are not visible and are read again";
    assert!(error.to_string().ends_with(end), "{error}");
}
