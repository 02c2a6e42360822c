//! Restores: the same, a larger and a smaller parallelism, replays before and after rows, and state that cannot be.

use bigquery_sink_state::BigQueryCommitInfo;
use bigquery_sink_state::{FlushOffset, StreamName};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ReplayComes {
    BeforeRows,
    AfterRows,
}

#[tokio::test(start_paused = true)]
async fn a_restore_with_any_parallelism_publishes_every_row_once() {
    // Invariants 2 and 10; arroyo.md 0.4, trap T8.
    for (old, new) in [(1, 1), (2, 2), (2, 3), (3, 2), (3, 1), (1, 3)] {
        for comes in [ReplayComes::BeforeRows, ReplayComes::AfterRows] {
            let world = World::new();
            let mut sinks = world.start_all(old, None).await;
            for (index, sink) in (0..).zip(&mut sinks) {
                sink.process_batch(rows(index * 10..index * 10 + 4))
                    .await
                    .unwrap();
            }
            let first = Checkpoint::take(1, &mut sinks).await;
            // Stored, but in no checkpoint: the source will bring them again.
            sinks[0].process_batch(rows(100..105)).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            drop(sinks);
            assert_eq!(world.visible(), NOTHING);

            let created = world.handle.streams_created();
            let restored = first.restored(1, CommitReplay::Expected);
            let mut sinks = world.start_all(new, Some(&restored)).await;
            if comes == ReplayComes::BeforeRows {
                assert_eq!(first.commit(1, &mut sinks).await, u64::from(old) * 4);
                assert_eq!(
                    world.handle.streams_created(),
                    created,
                    "neither start nor replay makes a stream"
                );
            }
            for (index, sink) in (0..).zip(&mut sinks) {
                sink.process_batch(rows(100 + index * 10..105 + index * 10))
                    .await
                    .unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            if comes == ReplayComes::AfterRows {
                assert_eq!(first.commit(1, &mut sinks).await, u64::from(old) * 4);
            }
            let mut expected: Vec<_> = (0..i64::from(old))
                .flat_map(|index| index * 10..index * 10 + 4)
                .collect();
            assert_eq!(
                world.visible_sorted(),
                expected,
                "{old} to {new}, replay {comes:?}"
            );

            let second = Checkpoint::take(2, &mut sinks).await;
            assert_eq!(second.commit(2, &mut sinks).await, u64::from(new) * 5);
            expected.extend((0..i64::from(new)).flat_map(|index| 100 + index * 10..105 + index * 10));
            assert_eq!(
                world.visible_sorted(),
                expected,
                "{old} to {new}, replay {comes:?}"
            );
            assert_eq!(
                world.handle.streams_created(),
                u64::from(old + new),
                "each life has streams of its own"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_stream_is_never_appended_to_again() {
    // Invariant 2.
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let first = checkpoint(1, &mut sink).await;
    commit(1, &first, &mut sink).await;
    let old = world.handle.streams()[0].clone();
    drop(sink);
    let mut sink = world
        .start(Some(first.restored(1, CommitReplay::Confirmed)))
        .await;
    publish(2, rows(3..6), &mut sink).await;
    let streams = world.handle.streams();
    assert_eq!(
        streams
            .iter()
            .find(|stream| stream.name == old.name)
            .map(|stream| stream.end),
        Some(3)
    );
    assert_eq!(streams.len(), 2);
    assert_eq!(world.visible(), (0..6).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_what_is_visible_already_changes_nothing() {
    // Invariant 10.
    for again in [r#"{"flush_again": "ok"}"#, r#"{"flush_again": "already_exists"}"#] {
        let world = World::new();
        let switches = serde_json::from_str(again).unwrap();
        world
            .handle
            .shared()
            .with(|machine| *machine.switches_mut() = switches);
        let mut sinks = world.start_all(2, None).await;
        for (index, sink) in (0..).zip(&mut sinks) {
            sink.process_batch(rows(index * 10..index * 10 + 4))
                .await
                .unwrap();
        }
        let first = Checkpoint::take(1, &mut sinks).await;
        // One of the two got to it before the crash.
        sinks[1].handle_commit(Epoch(1), &first.commits).await.unwrap();
        assert_eq!(world.visible(), [10, 11, 12, 13]);
        drop(sinks);
        let restored = first.restored(1, CommitReplay::Expected);
        let mut sinks = world.start_all(3, Some(&restored)).await;
        for _ in 0..2 {
            assert_eq!(first.commit(1, &mut sinks).await, 8);
            assert_eq!(world.visible_sorted(), [0, 1, 2, 3, 10, 11, 12, 13]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_data_publishes_the_restored_commit_unless_it_is_confirmed() {
    // Invariant 1's exception. (replay, flushes of the restored list)
    for (replay, expected) in [
        (CommitReplay::Unknown, true),
        (CommitReplay::Expected, true),
        (CommitReplay::Confirmed, false),
    ] {
        let world = World::new();
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..3)).await.unwrap();
        let first = checkpoint(1, &mut sink).await;
        drop(sink);
        let mut sink = world.start(Some(first.restored(1, replay))).await;
        sink.process_batch(rows(3..5)).await.unwrap();
        sink.on_close(CloseReason::EndOfData).await.unwrap();
        let visible: Vec<i64> = if expected {
            (0..5).collect()
        } else {
            (3..5).collect()
        };
        assert_eq!(world.visible(), visible, "{replay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_names_other_rows_than_the_state_is_refused_and_publishes_nothing() {
    // Invariants 1 and 10: a zombie wrote one of the two.
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..5)).await.unwrap();
    let first = checkpoint(1, &mut sink).await;
    let other = CommitList(vec![BigQueryCommitInfo {
        stream: StreamName(world.handle.streams()[0].name.clone()),
        from_offset: NextOffset(0),
        flush_offset: FlushOffset(3),
    }]);
    let commits = BTreeMap::from([(SubtaskIndex(0), Bytes::from(other.encode()))]);
    let error = sink.handle_commit(Epoch(1), &commits).await.unwrap_err();
    let text =
        "commit 1 names other rows for subtask 0 than it prepared; another incarnation wrote one of them";
    assert_eq!(told(&error), (Blame::Internal, Retry::Never, text.to_owned()));

    let mut sink = world.start(Some(first.restored(1, CommitReplay::Expected))).await;
    let error = sink.handle_commit(Epoch(1), &commits).await.unwrap_err();
    let text = "the replayed commit 1 differs from the restored state's copy for subtask 0; another incarnation wrote one of them";
    assert_eq!(told(&error), (Blame::Internal, Retry::Never, text.to_owned()));

    let mut sink = world.start(Some(first.restored(1, CommitReplay::Expected))).await;
    let error = sink.handle_commit(Epoch(9), &first.commits).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "commit 9 belongs to no checkpoint this subtask prepared or restored"
    );
    assert_eq!((world.calls(Rpc::FlushRows), world.visible()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn damaged_bytes_are_named_and_never_read_as_something_else() {
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..5)).await.unwrap();
    let first = checkpoint(1, &mut sink).await;
    let state = &first.states[&SubtaskIndex(0)];
    let cut = Bytes::copy_from_slice(&state[..state.len() / 2]);
    let mut flipped = state.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let damaged = [
        (cut, "truncated: "),
        (flipped.into(), "its CRC-32C is "),
        (
            Bytes::from_static(b"{\"epoch\": 1, \"x\": 2}"),
            "wrong magic: this is no file of arroyo-bigquery",
        ),
        (
            first.commits[&SubtaskIndex(0)].clone(),
            "holds Commit where SubtaskState was expected",
        ),
        (Bytes::new(), "truncated: "),
    ];
    for (bytes, reason) in damaged {
        let mut restored = first.restored(1, CommitReplay::Expected);
        restored.states.insert(SubtaskIndex(0), bytes);
        let error = world.sink(0, 1).on_start(Some(restored)).await.unwrap_err();
        let text = format!("the state of subtask 0 in checkpoint 1 cannot be read: {reason}");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    }

    let mut bytes = first.commits[&SubtaskIndex(0)].to_vec();
    bytes[20] ^= 4;
    let commits = BTreeMap::from([(SubtaskIndex(0), Bytes::from(bytes))]);
    let error = sink.handle_commit(Epoch(1), &commits).await.unwrap_err();
    let text = "the commit entry of checkpoint 1 for subtask 0 cannot be read: its CRC-32C is ";
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    assert_eq!(world.visible(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn states_that_do_not_belong_together_are_refused() {
    let world = World::new();
    let mut sinks = world.start_all(2, None).await;
    let first = Checkpoint::take(1, &mut sinks).await;
    first.commit(1, &mut sinks).await;
    let second = Checkpoint::take(2, &mut sinks).await;
    let (a, b) = (SubtaskIndex(0), SubtaskIndex(1));
    let mut mixed = second.restored(2, CommitReplay::Confirmed);
    mixed.states.insert(b, first.states[&b].clone());
    let mut lacking = second.restored(2, CommitReplay::Confirmed);
    lacking.states.remove(&b);
    let mut swapped = second.restored(2, CommitReplay::Confirmed);
    swapped.states = BTreeMap::from([(a, second.states[&b].clone()), (b, second.states[&a].clone())]);
    for (restored, text) in [
        (
            mixed,
            "the restored states belong to different checkpoints: checkpoint 2 was asked for, subtask 1 brings 1",
        ),
        (
            lacking,
            "the restored states do not fit together: checkpoint 2 was taken by 2 subtasks, 1 states are here",
        ),
        (
            swapped,
            "the restored states do not fit together: the state kept for subtask 0 says it is subtask 1 of 2",
        ),
    ] {
        let error = world.sink(0, 2).on_start(Some(restored)).await.unwrap_err();
        assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
    }

    let elsewhere = World::with(&[("table", "returns")]);
    let error = elsewhere
        .sink(0, 2)
        .on_start(Some(second.restored(2, CommitReplay::Confirmed)))
        .await
        .unwrap_err();
    let text = format!(
        "the restored state belongs to table {TABLE}, this pipeline writes projects/shop/datasets/sales/tables/returns"
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
}
