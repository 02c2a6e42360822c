//! Rows through the table's default stream: visible at once, none lost, and twice where a fault explains it.

use std::time::Duration;

use tokio::time::sleep;

use super::*;

const AT_LEAST_ONCE: (&str, &str) = ("write.mode", "at_least_once");

/// Past the linger: what came before is a request of its own.
async fn linger() {
    sleep(Duration::from_millis(250)).await;
}

/// Nothing but appends.
fn assert_appends_only(world: &World) {
    for rpc in [Rpc::CreateWriteStream, Rpc::FlushRows] {
        assert_eq!(world.calls(rpc), 0, "{rpc:?}");
    }
    assert_eq!(world.handle.streams_created(), 0);
}

#[tokio::test(start_paused = true)]
async fn rows_are_visible_before_their_checkpoint_and_counted_with_it() {
    for format in ["arrow", "proto"] {
        let world = World::with(&[AT_LEAST_ONCE, ("write.format", format)]);
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..5)).await.unwrap();
        linger().await;
        assert_eq!(world.visible(), (0..5).collect::<Vec<_>>(), "{format}");
        sink.process_batch(rows(5..8)).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(taken.rows, 8, "{format}");
        let list = CommitList::decode(&taken.commits[&SubtaskIndex(0)]).unwrap();
        assert_eq!(list, CommitList::default());
        assert_eq!(world.visible(), (0..8).collect::<Vec<_>>(), "{format}");
        assert_eq!(commit(1, &taken, &mut sink).await, 8);
        let empty = checkpoint(2, &mut sink).await;
        assert_eq!((empty.rows, commit(2, &empty, &mut sink).await), (0, 0));
        assert_eq!(world.visible(), (0..8).collect::<Vec<_>>(), "{format}");
        assert_appends_only(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_repeats_its_rows_and_loses_none() {
    for format in ["arrow", "proto"] {
        let world = World::with(&[AT_LEAST_ONCE, ("write.format", format)]);
        world.fault(
            r#"{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "lose_answer", "code": "UNAVAILABLE"}}"#,
        );
        let mut sink = world.start(None).await;
        for part in 0..4 {
            sink.process_batch(rows(part * 3..part * 3 + 3)).await.unwrap();
            linger().await;
        }
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(commit(1, &taken, &mut sink).await, 12);
        let expected: Vec<i64> = (0..6).chain(3..6).chain(6..12).collect();
        assert_eq!(
            world.visible(),
            expected,
            "{format}: rows 3 to 5 were stored before their answer was lost"
        );
        assert_appends_only(&world);
        assert_eq!(world.reconnects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_refused_goes_out_again_and_is_stored_once() {
    for in_band in [true, false] {
        let world = World::with(&[AT_LEAST_ONCE]);
        world.fault(&format!(
            r#"{{"rpc": "AppendRows", "occurrence": {{"every": 2, "times": 3}},
                "action": {{"kind": "refuse", "code": "UNAVAILABLE", "message": "not now", "in_band": {in_band}}}}}"#
        ));
        let mut sink = world.start(None).await;
        for part in 0..5 {
            sink.process_batch(rows(part * 2..part * 2 + 2)).await.unwrap();
            linger().await;
        }
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(commit(1, &taken, &mut sink).await, 10);
        assert_eq!(
            world.visible_sorted(),
            (0..10).collect::<Vec<_>>(),
            "in band: {in_band}"
        );
        assert_eq!(world.handle.faults()[0].fired, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_barrier_waits_for_every_acknowledgement() {
    let world = World::with(&[AT_LEAST_ONCE]);
    world
        .fault(r#"{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "delay", "ms": 5000}}"#);
    let mut sink = world.start(None).await;
    let began = Instant::now();
    sink.process_batch(rows(0..3)).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(taken.rows, 3);
    assert_eq!(world.visible(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_restore_writes_again_what_came_after_the_checkpoint() {
    let world = World::with(&[AT_LEAST_ONCE]);
    let mut sinks = world.start_all(2, None).await;
    for (index, sink) in (0..).zip(&mut sinks) {
        sink.process_batch(rows(index * 10..index * 10 + 4))
            .await
            .unwrap();
    }
    let first = Checkpoint::take(1, &mut sinks).await;
    assert_eq!(first.rows, 8);
    // Visible, and in no checkpoint: the source will bring them again.
    sinks[0].process_batch(rows(100..103)).await.unwrap();
    linger().await;
    drop(sinks);

    let restored = first.restored(1, CommitReplay::Expected);
    let mut sinks = world.start_all(3, Some(&restored)).await;
    assert_eq!(first.commit(1, &mut sinks).await, 0, "they were visible before");
    sinks[2].process_batch(rows(100..105)).await.unwrap();
    let second = Checkpoint::take(2, &mut sinks).await;
    assert_eq!((second.rows, second.commit(2, &mut sinks).await), (5, 5));
    let expected: Vec<i64> = [0..4, 10..14].into_iter().flatten().collect();
    let expected = [expected, vec![100, 100, 101, 101, 102, 102, 103, 104]].concat();
    assert_eq!(world.visible_sorted(), expected);
    assert_appends_only(&world);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_data_drains_and_flushes_nothing() {
    let world = World::with(&[AT_LEAST_ONCE]);
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sink.on_close(CloseReason::EndOfData).await.unwrap();
    assert_eq!(world.visible(), [0, 1, 2]);
    assert_appends_only(&world);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_the_other_mode_is_refused_until_its_commit_is_confirmed() {
    for (before, after) in [
        ("exactly_once", "at_least_once"),
        ("at_least_once", "exactly_once"),
    ] {
        let mut world = World::with(&[("write.mode", before)]);
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..3)).await.unwrap();
        let taken = checkpoint(7, &mut sink).await;
        drop(sink);

        world.options = Arc::new(options(&[("write.mode", after)]));
        let mut sink = world.start(Some(taken.restored(7, CommitReplay::Expected))).await;
        let error = sink.process_batch(rows(3..6)).await.err();
        let error = match error {
            Some(error) => error,
            None => sink.handle_checkpoint(barrier(8)).await.unwrap_err(),
        };
        let text = format!(
            "checkpoint 7 was taken with write.mode = '{before}', and its commit is not known to be confirmed; the mode can change only where \
             every commit is. Start with '{before}' again, stop with a checkpoint, and change to '{after}' then; where the host cannot tell \
             what was confirmed, start the new mode as a new pipeline"
        );
        assert_eq!(told(&error), (Blame::User, Retry::Never, text));

        world.options = Arc::new(options(&[("write.mode", before)]));
        let mut sink = world.start(Some(taken.restored(7, CommitReplay::Expected))).await;
        commit(7, &taken, &mut sink).await;
        drop(sink);
        world.options = Arc::new(options(&[("write.mode", after)]));
        let mut sink = world
            .start(Some(taken.restored(7, CommitReplay::Confirmed)))
            .await;
        publish(8, rows(3..6), &mut sink).await;
        assert_eq!(world.visible(), [0, 1, 2, 3, 4, 5], "{before} to {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_bigquery_refuses_ends_the_job_and_says_what_is_visible() {
    let world = World::with(&[AT_LEAST_ONCE]);
    world.fault(
        r#"{"rpc": "AppendRows", "occurrence": {"nth": 2},
            "action": {"kind": "row_errors", "rows": [1], "message": "Field name: STRING(3) has maximum length 3."}}"#,
    );
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    sink.process_batch(rows(3..6)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(text.starts_with("appending failed: InvalidArgument: "), "{text}");
    assert!(
        text.ends_with(
            "row 2 of the request: Field name: STRING(3) has maximum length 3. (rows of the request are bad). Rows up to checkpoint 1 \
             are visible; later ones may be, and are written again"
        ),
        "{text}"
    );
    assert_eq!(
        world.visible(),
        [0, 1, 2],
        "the good rows of the request were not taken either"
    );
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_dropped_ends_the_job_within_a_minute() {
    let world = World::with(&[AT_LEAST_ONCE]);
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    world
        .handle
        .shared()
        .with(|machine| machine.delete_table(&target()))
        .unwrap();
    let began = Instant::now();
    sink.process_batch(rows(3..6)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(text.starts_with("appending failed: NotFound"), "{text}");
    assert!(
        text.contains(
            "(the table is not there, or was made just now). Rows up to checkpoint 1 are visible; later ones may be, and \
             are written again"
        ),
        "{text}"
    );
    assert!(
        began.elapsed() <= Duration::from_secs(70),
        "{:?}",
        began.elapsed()
    );
}
