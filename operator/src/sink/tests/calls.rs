//! The orders in which a host may call (arroyo.md 0), and what is visible after each.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn rows_become_visible_with_the_commit_of_their_checkpoint_and_not_before() {
    // Invariant 1.
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sink.process_batch(rows(3..5)).await.unwrap();
    let prepared = sink.handle_checkpoint(barrier(1)).await.unwrap();
    assert_eq!(prepared.rows, RowCount(5));
    assert_eq!(world.visible(), NOTHING);

    let state = SubtaskState::decode(&prepared.state).unwrap();
    let list = CommitList::decode(&prepared.commit).unwrap();
    let stream = world.handle.streams()[0].name.clone();
    assert_eq!(
        (state.checkpoint_id, state.subtask, state.parallelism),
        (Epoch(1), SubtaskIndex(0), 1)
    );
    assert_eq!(state.table, TABLE);
    let held = &state.streams[0].state;
    assert_eq!(
        (held.stream.0.as_str(), held.next_offset),
        (stream.as_str(), NextOffset(5))
    );
    assert_eq!(state.commit, list);
    let info = &list.0[0];
    assert_eq!(
        (info.stream.0.as_str(), info.from_offset.0, info.flush_offset.0),
        (stream.as_str(), 0, 4)
    );

    let commits = BTreeMap::from([(SubtaskIndex(0), prepared.commit)]);
    let committed = sink.handle_commit(Epoch(1), &commits).await.unwrap();
    assert_eq!(committed, Committed { rows: RowCount(5) });
    assert_eq!(world.visible(), [0, 1, 2, 3, 4]);
    assert_eq!(world.total(Counter::RowsAppended), 5);
}

#[tokio::test(start_paused = true)]
async fn a_commit_after_rows_of_the_next_epoch_publishes_the_rows_of_its_own() {
    // Invariants 1 and 10; trap T3.
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let first = checkpoint(1, &mut sink).await;
    sink.process_batch(rows(3..7)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.streams(),
        [(7, 0)],
        "the next epoch's rows are stored already"
    );
    for _ in 0..3 {
        assert_eq!(commit(1, &first, &mut sink).await, 3);
        assert_eq!(world.visible(), [0, 1, 2]);
    }
    let second = checkpoint(2, &mut sink).await;
    assert_eq!(second.rows, 4);
    assert_eq!(commit(2, &second, &mut sink).await, 4);
    assert_eq!(world.visible(), (0..7).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn empty_epochs_are_reported_and_cost_no_call() {
    // reports.md 44, 45, 46.
    // Invariant 12.
    let world = World::new();
    let mut sink = world.start(None).await;
    for epoch in 1..=3 {
        let empty = checkpoint(epoch, &mut sink).await;
        assert_eq!(empty.rows, 0);
        assert_eq!(
            CommitList::decode(&empty.commits[&SubtaskIndex(0)]).unwrap(),
            CommitList::default()
        );
        assert_eq!(commit(epoch, &empty, &mut sink).await, 0);
    }
    sink.process_batch(rows([])).await.unwrap();
    let rpcs: Vec<_> = world.handle.calls().iter().map(|call| call.rpc).collect();
    assert_eq!(rpcs, [Rpc::GetWriteStream]);

    publish(4, rows(0..2), &mut sink).await;
    let before = world.handle.calls();
    let empty = checkpoint(5, &mut sink).await;
    assert_eq!(commit(5, &empty, &mut sink).await, 0);
    assert_eq!(
        world.handle.calls(),
        before,
        "an empty epoch behind others costs none either"
    );
    let state = SubtaskState::decode(&empty.states[&SubtaskIndex(0)]).unwrap();
    assert_eq!(
        (state.checkpoint_id, state.streams[0].state.next_offset),
        (Epoch(5), NextOffset(2))
    );
}

#[tokio::test(start_paused = true)]
async fn epochs_of_one_life_share_a_stream_and_each_flushes_once() {
    let world = World::new();
    let mut sink = world.start(None).await;
    for epoch in 0..5 {
        let first = i64::try_from(epoch).unwrap() * 10;
        publish(epoch + 1, rows(first..first + 10), &mut sink).await;
    }
    assert_eq!(world.visible(), (0..50).collect::<Vec<_>>());
    assert_eq!(world.handle.streams_created(), 1);
    assert_eq!(world.calls(Rpc::FlushRows), 5);
    assert_eq!(world.calls(Rpc::AppendRows), 1, "one append call for all of them");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_data_publishes_prepared_epochs_and_then_the_tail() {
    // Invariant 1's exception; trap T1.
    let world = World::new();
    let mut sink = world.start(None).await;
    publish(1, rows(0..2), &mut sink).await;
    sink.process_batch(rows(2..5)).await.unwrap();
    checkpoint(2, &mut sink).await;
    sink.process_batch(rows(5..9)).await.unwrap();
    sink.on_close(CloseReason::EndOfData).await.unwrap();
    let order: Vec<_> = world
        .handle
        .visible()
        .iter()
        .map(|change| (change.from, change.to))
        .collect();
    assert_eq!(order, [(0, 2), (2, 5), (5, 9)]);
    assert_eq!(world.visible(), (0..9).collect::<Vec<_>>());
    let error = sink.on_close(CloseReason::EndOfData).await.unwrap_err();
    assert_eq!(
        error.blame(),
        Blame::Internal,
        "what is over publishes nothing, and says so"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_publishes_nothing_and_leaves_no_task_and_no_connection() {
    // Trap T2.
    let world = World::new();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut before = None;
    for reason in [CloseReason::Stop, CloseReason::Interrupted, CloseReason::Stop] {
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..2)).await.unwrap();
        checkpoint(1, &mut sink).await;
        sink.process_batch(rows(2..4)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.handle.connections(), 1);
        sink.on_close(reason).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.handle.connections(), 0);
        // After the first time, the transport's own connections stay.
        assert_eq!(*before.get_or_insert_with(tasks), tasks());
        drop(sink);
        assert_eq!(world.visible(), NOTHING);
    }
    assert_eq!(world.calls(Rpc::FlushRows), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_full_window() {
    let world = World::with(&[("write.append.bytes", "64KiB"), ("write.inflight.bytes", "64KiB")]);
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 60000}}"#);
    let mut sink = world.start(None).await;
    // The window, what is held beside it, and the queue.
    for _ in 0..2 {
        sink.process_batch(rows(0..20_000)).await.unwrap();
    }
    let begin = Instant::now();
    sink.on_close(CloseReason::Stop).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((world.handle.connections(), begin.elapsed().as_secs()), (0, 1));
    assert_eq!(world.visible(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_sink_ends_its_connection() {
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..2)).await.unwrap();
    checkpoint(1, &mut sink).await;
    assert_eq!(world.handle.connections(), 1);
    drop(sink);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.handle.connections(), 0);
    assert_eq!(world.visible(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn calls_before_the_start_or_after_the_end_are_errors() {
    let world = World::new();
    let mut sink = world.sink(0, 1);
    let text =
        "the sink was called before its start, after its end or an error, or after a call that was given up";
    let expected = (Blame::Internal, Retry::Restart, text.to_owned());
    assert_eq!(told(&sink.process_batch(rows(0..1)).await.unwrap_err()), expected);
    assert_eq!(told(&sink.handle_tick().await.unwrap_err()), expected);
    assert_eq!(
        told(&sink.on_close(CloseReason::EndOfData).await.unwrap_err()),
        expected
    );
    sink.on_start(None).await.unwrap();
    assert_eq!(
        sink.on_start(None).await.unwrap_err().to_string(),
        "the sink was started twice"
    );
    sink.handle_tick().await.unwrap();
    sink.on_close(CloseReason::Stop).await.unwrap();
    assert_eq!(
        told(&sink.handle_checkpoint(barrier(1)).await.unwrap_err()),
        expected
    );
    assert_eq!(
        told(&sink.handle_commit(Epoch(1), &BTreeMap::new()).await.unwrap_err()),
        expected
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_ends_the_sink_rather_than_lose_its_rows() {
    let world = World::new();
    world.fault(r#"{"rpc": "CreateWriteStream", "action": {"kind": "delay", "ms": 30000}}"#);
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..2)).await.unwrap();
    assert!(sink.handle_checkpoint(barrier(1)).now_or_never().is_none());
    let error = sink.process_batch(rows(2..3)).await.unwrap_err();
    assert!(
        error.to_string().ends_with("or after a call that was given up"),
        "{error}"
    );
    sink.on_close(CloseReason::Interrupted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_sink_says_why_once_and_what_follows_is_an_error_too() {
    let world = World::new();
    let mut sink = world.start(None).await;
    checkpoint(7, &mut sink).await;
    let error = sink.handle_checkpoint(barrier(7)).await.unwrap_err();
    assert!(
        error.to_string().contains("barrier 7 came out of order"),
        "{error}"
    );
    assert_eq!((error.blame(), error.retry()), (Blame::Internal, Retry::Never));
    assert!(sink.process_batch(rows(0..1)).await.is_err());
    assert!(sink.handle_tick().await.is_err());
    sink.on_close(CloseReason::Interrupted).await.unwrap();
}
