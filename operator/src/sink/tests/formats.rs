//! Rows that travel as protobuf: what holds for Arrow rows holds for them.

use std::time::Duration;

use arrow_array::builder::{BooleanBuilder, ListBuilder};
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, Float64Array, StructArray};
use arrow_schema::Fields;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use tokio::time::sleep;

use super::*;

const PROTO: (&str, &str) = ("write.format", "proto");

#[tokio::test(start_paused = true)]
async fn protobuf_rows_are_published_once_through_lost_answers() {
    // Invariants 4, 5 and 10.
    for rpc in ["CreateWriteStream", "AppendRowsOpen", "AppendRows", "FlushRows"] {
        let world = World::with(&[PROTO]);
        world.fault(&format!(
            r#"{{"rpc": "{rpc}", "occurrence": {{"every": 2, "times": 3}}, "action": {{"kind": "lose_answer", "code": "UNAVAILABLE"}}}}"#
        ));
        let mut sink = world.start(None).await;
        for epoch in 0..4 {
            for part in 0..3 {
                let first = (epoch * 3 + part) * 5;
                sink.process_batch(rows(first..first + 5)).await.unwrap();
                // Past the linger: a request of its own.
                sleep(Duration::from_millis(250)).await;
            }
            let taken = checkpoint(epoch as u64 + 1, &mut sink).await;
            assert_eq!(commit(epoch as u64 + 1, &taken, &mut sink).await, 15);
        }
        assert_eq!(world.visible(), (0..60).collect::<Vec<_>>(), "{rpc}");
        assert!(world.handle.faults()[0].fired > 0, "{rpc}");
        assert_eq!(
            world.handle.streams_created(),
            if rpc == "CreateWriteStream" { 2 } else { 1 },
            "{rpc}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_publishes_protobuf_rows_once_and_may_change_the_format() {
    // Invariants 2 and 10. A checkpoint names streams and offsets, not how rows travelled.
    for (before, after) in [("proto", "proto"), ("arrow", "proto"), ("proto", "arrow")] {
        let mut world = World::with(&[("write.format", before)]);
        let mut sinks = world.start_all(2, None).await;
        for (index, sink) in (0..).zip(&mut sinks) {
            sink.process_batch(rows(index * 10..index * 10 + 4))
                .await
                .unwrap();
        }
        let first = Checkpoint::take(1, &mut sinks).await;
        // Stored, but in no checkpoint: the source will bring them again.
        sinks[0].process_batch(rows(100..105)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        drop(sinks);

        world.options = Arc::new(options(&[("write.format", after)]));
        let restored = first.restored(1, CommitReplay::Expected);
        let mut sinks = world.start_all(3, Some(&restored)).await;
        assert_eq!(first.commit(1, &mut sinks).await, 8);
        for (index, sink) in (0..).zip(&mut sinks) {
            sink.process_batch(rows(100 + index * 10..105 + index * 10))
                .await
                .unwrap();
        }
        let second = Checkpoint::take(2, &mut sinks).await;
        assert_eq!(second.commit(2, &mut sinks).await, 15);
        let expected: Vec<_> = [0..4, 10..14, 100..105, 110..115, 120..125]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(world.visible_sorted(), expected, "{before} to {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn columns_that_do_not_fit_are_told_before_a_protobuf_row_goes_out() {
    let world = World::with(&[PROTO]);
    let mut sink = world.sink(0, 1);
    sink.columns = Arc::new(ArrowSchema::new(vec![Field::new("name", DataType::Int64, true)]));
    let error = sink.on_start(None).await.unwrap_err();
    let text = format!(
        "2 columns of the pipeline do not fit table {TABLE}:\n  column `name`: the pipeline writes BIGINT, the table has STRING; \
         cast it, for example CAST(name AS TEXT)\n  column `id`: the table requires INT64 NOT NULL without default, the pipeline does \
         not write it; add it to the query, or make it nullable"
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
    assert_eq!(world.calls(Rpc::CreateWriteStream), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_of_protobuf_rows_keep_to_the_size_asked_for() {
    // reports.md 73: small rows, each with a tag and a length that count.
    let world = World::with(&[PROTO, ("write.append.bytes", "64KiB")]);
    // Stream, offset, trace id and the descriptor come with the first.
    let limit = (64 << 10) + 512;
    world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().max_request_bytes = limit);
    world.count_appends();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..100_000)).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 100_000);
    // A row takes some 15 bytes of text and 8 of all else.
    assert!((22..=32).contains(&world.counted()), "{}", world.counted());
    assert_eq!(world.visible(), (0..100_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_protobuf_row_that_no_request_can_hold_is_said_with_its_size() {
    let world = World::with(&[PROTO]);
    let mut sink = world.start(None).await;
    let sized = |length: usize| {
        let name = StringArray::from(vec!["x".repeat(length)]);
        RecordBatch::try_new(
            columns(),
            vec![Arc::new(Int64Array::from(vec![1])), Arc::new(name)],
        )
        .unwrap()
    };
    sink.process_batch(sized(9_961_460)).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(
        commit(1, &taken, &mut sink).await,
        1,
        "12 bytes more are the limit"
    );
    let error = sink.process_batch(sized(9_961_461)).await.unwrap_err();
    let text = "row 1 of the batch takes 9961473 bytes, more than the 9961472 bytes of the largest request; shorten the values, or \
                let such rows become dead letters (option 'row_errors')";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_table_with_names_that_no_protobuf_field_can_have_takes_rows() {
    // reports.md 67, 76: zero, false and the empty text are values; names go through an annotation.
    let world = World::with(&[PROTO, ("table", "sizes")]);
    let inner = vec![Column::new("größe in m", Kind::Float64, Mode::Nullable)];
    let schema = Schema {
        columns: vec![
            Column::new("naïve-col", Kind::Int64, Mode::Required),
            Column::new("col_1", Kind::String { max_length: None }, Mode::Nullable),
            Column::new("Maße", Kind::Struct(inner), Mode::Nullable),
            Column::new("ja oder nein", Kind::Bool, Mode::Repeated),
        ],
    };
    let table = TableRef::new("shop", "sales", "sizes");
    world.handle.create_table(&table, schema).unwrap();

    let size = Fields::from(vec![Field::new("größe in m", DataType::Float64, true)]);
    let sizes = StructArray::new(
        size,
        vec![Arc::new(Float64Array::from(vec![0.0, 0.0]))],
        Some(vec![true, false].into()),
    );
    let mut flags = ListBuilder::new(BooleanBuilder::new());
    flags.append_value([Some(false)]);
    flags.append_value([]);
    let batch = RecordBatch::try_from_iter([
        ("naïve-col", Arc::new(Int64Array::from(vec![0, 7])) as ArrayRef),
        ("col_1", Arc::new(StringArray::from(vec![Some(""), None]))),
        ("Maße", Arc::new(sizes)),
        ("ja oder nein", Arc::new(flags.finish())),
    ])
    .unwrap();
    let columns = batch.schema();
    let mut sink = world.sink(0, 1);
    sink.columns = Arc::clone(&columns);
    sink.on_start(None).await.unwrap();
    publish(1, batch.clone(), &mut sink).await;
    let visible = world.handle.rows(&table).unwrap();
    assert_eq!(visible.column(0).as_primitive::<Int64Type>().values(), &[0, 7]);
    let names: Vec<_> = visible.column(1).as_string::<i32>().iter().collect();
    assert_eq!(names, [Some(""), None]);
    let sizes = visible.column(2).as_struct();
    assert_eq!((sizes.is_null(0), sizes.is_null(1)), (false, true));
    assert_eq!(
        sizes.column(0).as_primitive::<Float64Type>().iter().next(),
        Some(Some(0.0))
    );
    let flags: Vec<Vec<_>> = visible
        .column(3)
        .as_list::<i32>()
        .iter()
        .map(|flags| flags.unwrap().as_boolean().iter().collect())
        .collect();
    assert_eq!(flags, [vec![Some(false)], vec![]]);
}
