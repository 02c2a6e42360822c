//! Faults of every kind: what was lost is sent again, what passes is waited for, what does not is said.

use std::time::Duration;

use bigquery_write_emulator::machine::Refusal;
use tokio::time::sleep;

use super::*;
use crate::transport::{AppendEvent, AppendRequest};

/// Four epochs of three batches, published in spite of what the world does; every row once and in order.
async fn four_epochs(world: &World) -> BigQuerySink {
    let mut sink = world.start(None).await;
    let mut next = 0;
    for epoch in 1..=4 {
        for _ in 0..3 {
            sink.process_batch(rows(next..next + 5)).await.unwrap();
            next += 5;
            // Past the linger: a request of its own.
            sleep(Duration::from_millis(250)).await;
        }
        let taken = checkpoint(epoch, &mut sink).await;
        assert_eq!(taken.rows, 15);
        assert_eq!(commit(epoch, &taken, &mut sink).await, 15);
        assert_eq!(world.visible(), (0..next).collect::<Vec<_>>());
        sink.handle_tick().await.unwrap();
    }
    sink
}

#[tokio::test(start_paused = true)]
async fn lost_answers_cost_neither_rows_nor_duplicates() {
    // Invariants 4, 5 and 10.
    for rpc in ["CreateWriteStream", "AppendRowsOpen", "AppendRows", "FlushRows"] {
        for code in ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED"] {
            let world = World::new();
            let rule = format!(
                r#"{{"rpc": "{rpc}", "occurrence": {{"every": 2, "times": 3}}, "action": {{"kind": "lose_answer", "code": "{code}"}}}}"#
            );
            world.fault(&rule);
            four_epochs(&world).await;
            let fired = world.handle.faults()[0].fired;
            assert!(fired > 0, "{rpc} {code}");
            if rpc.starts_with("AppendRows") {
                assert_eq!(world.total(Counter::OwnResendsStored), fired, "{rpc} {code}");
                assert_eq!(world.handle.streams_created(), 1, "the stream is kept");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_that_pass_are_outlived() {
    let passing = [
        ("CreateWriteStream", "UNAVAILABLE", false),
        ("CreateWriteStream", "RESOURCE_EXHAUSTED", false),
        ("CreateWriteStream", "PERMISSION_DENIED", false),
        ("AppendRowsOpen", "UNAVAILABLE", false),
        ("AppendRowsOpen", "RESOURCE_EXHAUSTED", false),
        ("AppendRows", "ABORTED", false),
        ("AppendRows", "ABORTED", true),
        ("AppendRows", "INTERNAL", true),
        ("AppendRows", "RESOURCE_EXHAUSTED", true),
        ("AppendRows", "UNAVAILABLE", true),
        ("AppendRows", "NOT_FOUND", false),
        ("FlushRows", "UNAVAILABLE", false),
        ("FlushRows", "RESOURCE_EXHAUSTED", false),
        ("FlushRows", "NOT_FOUND", false),
        ("FlushRows", "PERMISSION_DENIED", false),
    ];
    for (rpc, code, in_band) in passing {
        let world = World::new();
        world.fault(&format!(
            r#"{{"rpc": "{rpc}", "occurrence": {{"every": 3, "times": 2}},
                "action": {{"kind": "refuse", "code": "{code}", "message": "not now", "in_band": {in_band}}}}}"#
        ));
        let mut sink = four_epochs(&world).await;
        assert!(world.handle.faults()[0].fired > 0, "{rpc} {code}");
        sink.on_close(CloseReason::EndOfData).await.unwrap();
        assert_eq!(
            world.visible(),
            (0..60).collect::<Vec<_>>(),
            "{rpc} {code} {in_band}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn slow_answers_change_nothing() {
    let world = World::new();
    world.fault(
        r#"{"rpc": "AppendRows", "occurrence": {"every": 2}, "action": {"kind": "delay", "ms": 40000}},
           {"rpc": "FlushRows", "action": {"kind": "delay", "ms": 20000}},
           {"rpc": "CreateWriteStream", "action": {"kind": "delay", "ms": 50000}}"#,
    );
    four_epochs(&world).await;
    assert_eq!(world.handle.streams_created(), 1);
    assert_eq!(world.reconnects(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_costs_a_reconnect() {
    // Invariant 13: a part of append.timeout.
    let world = World::with(&[("append.timeout", "60s")]);
    world.fault(
        r#"{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "delay", "ms": 86400000}}"#,
    );
    let begin = Instant::now();
    four_epochs(&world).await;
    assert!(begin.elapsed() < Duration::from_secs(45), "{:?}", begin.elapsed());
    assert_eq!(world.reconnects(), 1);
    // Its own answer, and the one behind it.
    assert_eq!(world.total(Counter::OwnResendsStored), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_close_is_normal_life_and_costs_a_reconnect() {
    let world = World::new();
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    assert_eq!(world.handle.connections(), 1);
    sleep(Duration::from_secs(601)).await;
    assert_eq!(
        world.handle.connections(),
        0,
        "it is not opened again before there are rows"
    );
    sink.handle_tick().await.unwrap();
    publish(2, rows(3..6), &mut sink).await;
    assert_eq!(world.visible(), (0..6).collect::<Vec<_>>());
    assert_eq!(world.handle.streams_created(), 1);
    assert_eq!(world.calls(Rpc::AppendRows), 2);
    assert_eq!(world.reconnects(), 1);
    assert_eq!(world.total(Counter::RequestsResent), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_ends_no_epoch() {
    let world = World::new();
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 500}}"#);
    let mut sink = world.start(None).await;
    for first in [0, 5, 10] {
        sink.process_batch(rows(first..first + 5)).await.unwrap();
        sleep(Duration::from_millis(300)).await;
        world.handle.end_calls(&Refusal::restarted());
    }
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 15);
    assert_eq!(world.visible(), (0..15).collect::<Vec<_>>());
    assert_eq!(world.handle.streams_created(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_another_connection_took_is_left_for_a_new_one() {
    // Invariants 2, 4 and 7.
    let world = World::new();
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    let stream = world.handle.streams()[0].name.parse().unwrap();

    let (transport, wire) = (&world.environment.transport, wire(Format::Arrow));
    let mut zombie = transport.open_append(&stream, wire.writer_schema(), "zombie", 1);
    let late = encoder().convert(&rows([100])).unwrap().batch;
    let late = wire.encode(&[wire.measure(late).unwrap()]).unwrap();
    zombie
        .send(AppendRequest {
            offset: Some(3),
            rows: late,
        })
        .await
        .unwrap();
    let AppendEvent::Answer(answer) = zombie.next_event().await else {
        panic!("the zombie's call ended")
    };
    assert_eq!(answer.result, Ok(Some(3)));

    sink.process_batch(rows(3..6)).await.unwrap();
    let taken = checkpoint(2, &mut sink).await;
    let list = CommitList::decode(&taken.commits[&SubtaskIndex(0)]).unwrap();
    let ranges: Vec<_> = list
        .0
        .iter()
        .map(|info| (info.from_offset.0, info.flush_offset.0))
        .collect();
    assert_eq!(ranges, [(0, 2)], "all of them on a new stream");
    assert_ne!(list.0[0].stream.0, stream.to_string());
    assert_eq!(commit(2, &taken, &mut sink).await, 3);
    publish(3, rows(6..8), &mut sink).await;
    assert_eq!(
        world.visible(),
        (0..8).collect::<Vec<_>>(),
        "the zombie's row never shows"
    );
    assert_eq!(world.total(Counter::StreamsDiscarded(Discarded::Gone)), 1);
    assert_eq!(world.handle.streams_created(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_with_acknowledged_rows_fails_before_the_barrier() {
    // Invariant 7.
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let stream = world.handle.streams()[0].name.clone();
    world.handle.advance(8 * 24 * 3_600_000);
    sleep(Duration::from_secs(1)).await;
    sink.process_batch(rows(3..6)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
    let text = format!("stream {stream} is gone with rows 0 to 2 acknowledged but not visible (");
    assert!(error.to_string().starts_with(&text), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_cannot_be_shown_to_be_visible_is_the_operators_decision() {
    // Invariant 11.
    for (decision, counted) in [
        ("fail", (0, 0)),
        ("assume_visible", (5, 0)),
        ("accept_loss", (0, 5)),
    ] {
        let world = World::with(&[("commit.unprovable", decision), ("commit.timeout", "60s")]);
        let mut sink = world.start(None).await;
        sink.process_batch(rows(0..5)).await.unwrap();
        let first = checkpoint(1, &mut sink).await;
        let stream = world.handle.streams()[0].name.clone();
        world.handle.advance(8 * 24 * 3_600_000);
        let begin = Instant::now();
        let result = sink.handle_commit(Epoch(1), &first.commits).await;
        assert!(
            (30..=60).contains(&begin.elapsed().as_secs()),
            "{:?}",
            begin.elapsed()
        );
        match (decision, result) {
            ("fail", Err(error)) => {
                let text =
                    format!("rows 0 to 4 of stream {stream} cannot be shown to be visible for checkpoint 1");
                assert!(error.to_string().starts_with(&text), "{error}");
                assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Never));
            }
            ("assume_visible" | "accept_loss", Ok(_)) => {}
            (_, result) => panic!("{decision}: {result:?}"),
        }
        let counts = (
            world.total(Counter::RowsAssumedVisible),
            world.total(Counter::RowsLost),
        );
        assert_eq!(counts, counted, "{decision}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_sinks_task_shows_at_the_next_tick() {
    let world = World::new();
    world.fault(r#"{"rpc": "CreateWriteStream", "action": {"kind": "refuse", "code": "INVALID_ARGUMENT", "message": "no such thing"}}"#);
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sink.handle_tick().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let error = sink.handle_tick().await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    assert!(
        error
            .to_string()
            .starts_with("creating a write stream failed: InvalidArgument: no such thing"),
        "{error}"
    );
    sink.on_close(CloseReason::Interrupted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_when_the_task_fails_is_told_why() {
    // A barrier, a commit, rows in front of a full window, and the end of data.
    let refuse = |rpc: &str| {
        format!(
            r#"{{"rpc": "{rpc}", "action": {{"kind": "refuse", "code": "UNIMPLEMENTED", "message": "not here"}}}}"#
        )
    };
    let world = World::with(&[("write.append.bytes", "64KiB"), ("write.inflight.bytes", "64KiB")]);
    world.fault(&refuse("AppendRows"));
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert!(error.to_string().contains("not here"), "{error}");

    let mut sink = world.start(None).await;
    let mut result = Ok(());
    for _ in 0..10 {
        if result.is_ok() {
            result = sink.process_batch(rows(0..10_000)).await;
        }
    }
    let error = result.unwrap_err();
    assert!(error.to_string().contains("not here"), "{error}");

    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let error = sink.on_close(CloseReason::EndOfData).await.unwrap_err();
    assert!(error.to_string().contains("not here"), "{error}");

    world.fault(&refuse("FlushRows"));
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    let error = sink.handle_commit(Epoch(1), &taken.commits).await.unwrap_err();
    assert!(error.to_string().contains("not here"), "{error}");
    assert_eq!(world.visible(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_takes_ten_minutes_to_refill_is_waited_out() {
    // reports.md 47.
    for rpc in ["CreateWriteStream", "AppendRows"] {
        let world = World::new();
        let in_band = rpc == "AppendRows";
        world.fault(&format!(
            r#"{{"rpc": "{rpc}", "occurrence": {{"times": 16}}, "action": {{"kind": "refuse", "code": "RESOURCE_EXHAUSTED",
                "message": "Exceeds 'AppendRows throughput' quota (status: INSUFFICIENT_TOKENS)", "in_band": {in_band}}}}}"#
        ));
        let mut sink = world.start(None).await;
        let begin = Instant::now();
        publish(1, rows(0..3), &mut sink).await;
        let took = begin.elapsed().as_secs();
        assert!((400..=900).contains(&took), "{rpc}: {took} s");
        assert_eq!(world.visible(), [0, 1, 2]);
        assert_eq!(world.handle.streams_created(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_has_a_budget_and_then_the_job_restarts() {
    // Invariant 13.
    let world = World::with(&[("append.timeout", "60s")]);
    world.fault(
        r#"{"rpc": "AppendRows", "action": {"kind": "refuse", "code": "UNAVAILABLE", "message": "away"}}"#,
    );
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let begin = Instant::now();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert!(
        (40..=61).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!((error.blame(), error.retry()), (Blame::External, Retry::Restart));
    assert!(
        error
            .to_string()
            .starts_with("appending failed: Unavailable: away"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("the job restarts from its checkpoint"),
        "{error}"
    );
}
