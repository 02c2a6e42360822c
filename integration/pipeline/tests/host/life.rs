//! A run's life: end of input, stop, restarts, resuming, another host.

use std::sync::Arc;
use std::time::Duration;

use bigquery_sink::{CloseReason, CommitReplay, Epoch, SinkError};
use bigquery_sink_pipeline::store::StoreError;
use bigquery_sink_pipeline::{Control, HostError, Pipeline, Start, Step};
use tokio::time::Instant;

use crate::fake::{Call, World};
use crate::{impulse, numbers};

fn world(state: &tempfile::TempDir) -> World {
    World::new(state.path(), 2)
}

#[tokio::test(start_paused = true)]
async fn bounded_input_ends_with_a_last_checkpoint_and_a_summary() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    let control = Control::new();
    let summary = world.run(&impulse(Some(50)), control.clone()).await.unwrap();
    assert_eq!(world.visible(), numbers(2, 50));
    assert_eq!(
        (summary.rows_read, summary.rows_committed, summary.rows_rejected),
        (100, 100, 0)
    );
    assert_eq!((summary.restarts, summary.streams_created), (0, 2));
    let completed = world.table.lock().unwrap().completed.len() as u64;
    assert_eq!(summary.checkpoints, completed);
    assert!(
        (9..=12).contains(&completed),
        "{completed} checkpoints in a second at 100 ms"
    );
    let progress = *control.progress.borrow();
    assert_eq!(
        (progress.rows_read, progress.rows_committed, progress.epoch),
        (100, 100, completed)
    );
    assert_eq!(
        world.table.lock().unwrap().closes,
        [CloseReason::Stop, CloseReason::Stop]
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_state_has_nothing_to_read_and_starts_no_sink() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    let calls = world.table.lock().unwrap().calls.len();
    let summary = world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    assert_eq!(
        (summary.rows_read, summary.rows_committed, summary.checkpoints),
        (0, 0, 0)
    );
    assert_eq!(world.table.lock().unwrap().calls.len(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_finished_state_whose_commit_is_not_confirmed_replays_it_and_ends() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    let last = world
        .steps()
        .iter()
        .rposition(|step| matches!(step, Step::Published(_)))
        .unwrap();
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 2);
    assert!(!world.run_and_kill(&impulse(Some(5)), last).await);
    let summary = world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    assert_eq!(world.visible(), numbers(2, 5));
    assert_eq!((summary.rows_read, summary.checkpoints), (0, 0));
    let replays = world.table.lock().unwrap().replays.clone();
    assert!(
        replays
            .iter()
            .all(|(_, replay)| *replay == CommitReplay::Expected),
        "{replays:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_a_checkpoint_and_the_next_run_goes_on_behind_it() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    let mut read = 0;
    for millis in [1050, 330, 0] {
        let control = Control::new();
        let shutdown = control.shutdown.clone();
        let pipeline = impulse(None);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            shutdown.cancel();
            std::future::pending::<()>().await;
        };
        let summary = tokio::select! {
            summary = world.run(&pipeline, control) => summary.unwrap(),
            () = stop => unreachable!("it waits for ever"),
        };
        assert_eq!(summary.rows_read, summary.rows_committed);
        read += summary.rows_read;
    }
    assert!((100..150).contains(&read), "{read}");
    let visible = world.visible();
    assert_eq!(visible.len() as u64, read);
    let counters = |subtask: &str| visible.iter().filter(|row| row.starts_with(subtask)).count() as u64;
    let mut expected: Vec<_> = (0..counters("0|")).map(|c| format!("0|{c}")).collect();
    expected.extend((0..counters("1|")).map(|c| format!("1|{c}")));
    expected.sort();
    assert_eq!(visible, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_sink_restarts_from_the_checkpoint_and_counts_each_row_once() {
    for name in [
        "on_start",
        "process_batch",
        "handle_checkpoint",
        "handle_commit",
        "handle_tick",
    ] {
        let state = tempfile::tempdir().unwrap();
        let mut world = world(&state);
        let number = if name == "on_start" { 1 } else { 0 };
        world.fault = Some(Arc::new(move |call: &Call| {
            (call.name == name && call.number == number)
                .then(|| SinkError::external("the connection is lost"))
        }));
        let summary = world.run(&impulse(Some(80)), Control::new()).await.unwrap();
        assert_eq!(world.visible(), numbers(2, 80), "{name}");
        assert_eq!(
            (summary.restarts, summary.rows_read, summary.rows_committed),
            (1, 160, 160),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_no_rows_of_the_table_and_count_once_over_restarts_and_runs() {
    for name in ["process_batch", "handle_checkpoint", "handle_commit"] {
        let state = tempfile::tempdir().unwrap();
        let mut world = world(&state);
        world.refuses = |row| row.ends_with('7');
        world.fault = Some(Arc::new(move |call: &Call| {
            (call.name == name && call.number == 4).then(|| SinkError::external("the connection is lost"))
        }));
        let control = Control::new();
        let summary = world.run(&impulse(Some(80)), control.clone()).await.unwrap();
        assert_eq!(
            (
                summary.restarts,
                summary.rows_read,
                summary.rows_committed,
                summary.rows_rejected
            ),
            (1, 160, 144, 16),
            "{name}"
        );
        assert_eq!(control.progress.borrow().rows_committed, 144, "{name}");
    }

    // The next run counts its own.
    let state = tempfile::tempdir().unwrap();
    let mut world = world(&state);
    world.refuses = |row| row.ends_with('7');
    let control = Control::new();
    let shutdown = control.shutdown.clone();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(450)).await;
        shutdown.cancel();
    };
    let pipeline = impulse(Some(80));
    let (first, ()) = tokio::join!(world.run(&pipeline, control), stop);
    let runs = [
        first.unwrap(),
        world.run(&pipeline, Control::new()).await.unwrap(),
    ];
    for run in runs {
        assert!(run.rows_rejected > 0, "{run:?}");
        assert_eq!(run.rows_read, run.rows_committed + run.rows_rejected, "{run:?}");
    }
    assert_eq!(runs[0].rows_rejected + runs[1].rows_rejected, 16);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_no_restart_mends_ends_the_run_at_once() {
    let state = tempfile::tempdir().unwrap();
    let mut world = world(&state);
    world.fault = Some(Arc::new(|call: &Call| {
        (call.name == "on_start" && call.subtask == 1).then(|| SinkError::user("table p.d.t does not exist"))
    }));
    let error = world.run(&impulse(Some(5)), Control::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "subtask 1 of the sink: table p.d.t does not exist"
    );
}

#[tokio::test(start_paused = true)]
async fn twenty_restarts_in_a_row_are_the_last() {
    let state = tempfile::tempdir().unwrap();
    let mut world = world(&state);
    world.fault = Some(Arc::new(|call: &Call| {
        (call.name == "on_start").then(|| SinkError::external("unreachable"))
    }));
    let begun = Instant::now();
    let error = world.run(&impulse(Some(5)), Control::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("gave up after 20 restarts in a row; the last error was: subtask "),
        "{text}"
    );
    assert!(text.ends_with(" of the sink: unreachable"), "{text}");
    assert_eq!(begun.elapsed().as_secs(), 63 + 13 * 60);
    assert_eq!(world.table.lock().unwrap().streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_pipeline_on_the_state_is_refused_with_what_changed_unless_it_starts_anew() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    world.run(&impulse(Some(5)), Control::new()).await.unwrap();
    let error = world.run(&impulse(Some(6)), Control::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the state at {} was written by a pipeline that differs: the source was numbers (impulse, message_count = 5) and is numbers \
             (impulse, message_count = 6); go back to that pipeline, name another --state-dir, or start anew with --new-state (rows \
             written before are then written again)",
            state.path().display()
        )
    );
    let mut anew = world.clone();
    anew.table = Arc::default();
    anew.change = Arc::new(|config| config.start = Start::Anew);
    anew.run(&impulse(Some(6)), Control::new()).await.unwrap();
    assert_eq!(anew.visible(), numbers(2, 6));
}

#[tokio::test(start_paused = true)]
async fn going_back_to_an_older_checkpoint_repeats_the_rows_after_it() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    world.run(&impulse(Some(30)), Control::new()).await.unwrap();
    let mut back = world.clone();
    back.change = Arc::new(|config| config.start = Start::Checkpoint(Epoch(2)));
    let summary = back.run(&impulse(Some(30)), Control::new()).await.unwrap();
    let mut visible = back.visible();
    assert_eq!(visible.len() as u64, 60 + summary.rows_committed);
    assert!(summary.rows_committed > 0);
    visible.dedup();
    assert_eq!(visible, numbers(2, 30));
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_state_is_taken_over_stops_and_says_so_and_no_row_comes_twice() {
    let state = tempfile::tempdir().unwrap();
    let world = world(&state);
    let (old, pipeline) = (world.clone(), impulse(Some(200)));
    let first = tokio::spawn(async move { old.run(&pipeline, Control::new()).await });
    tokio::time::sleep(Duration::from_millis(550)).await;
    let in_use = world.run(&impulse(Some(200)), Control::new()).await.unwrap_err();
    assert!(
        matches!(in_use, HostError::Store(StoreError::InUse { .. })),
        "{in_use}"
    );
    world
        .taking_over()
        .run(&impulse(Some(200)), Control::new())
        .await
        .unwrap();
    let error = first.await.unwrap().unwrap_err();
    assert!(
        matches!(error, HostError::Store(StoreError::Superseded { .. })),
        "{error}"
    );
    assert_eq!(world.visible(), numbers(2, 200));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_never_answers_fails_the_attempt_after_the_stall_limit() {
    let state = tempfile::tempdir().unwrap();
    let mut world = world(&state);
    world.hangs = Some("handle_checkpoint");
    world.change = Arc::new(|config| config.stall_limit = Duration::from_secs(60));
    let begun = Instant::now();
    let error = world
        .run(&impulse(Some(5)), Control::new())
        .await
        .unwrap_err()
        .to_string();
    let expected = "gave up after 20 restarts in a row; the last error was: no answer for 60 s while collecting a checkpoint";
    assert_eq!(error, expected);
    assert!(begun.elapsed() >= Duration::from_secs(21 * 60));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_sinks_are_starting_ends_at_once_and_names_a_commit_left_unconfirmed() {
    let state = tempfile::tempdir().unwrap();
    let mut world = world(&state);
    world.hangs = Some("on_start");
    let control = Control::new();
    control.shutdown.cancel();
    let summary = world.run(&impulse(Some(5)), control.clone()).await.unwrap();
    assert_eq!((summary.rows_read, summary.rows_committed), (0, 0));

    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(folder.path(), 2);
    let whole = {
        let state = tempfile::tempdir().unwrap();
        let world = World::new(state.path(), 2);
        world.run(&impulse(Some(5)), Control::new()).await.unwrap();
        world.steps()
    };
    let completed = whole
        .iter()
        .position(|step| *step == Step::Completed(Epoch(1)))
        .unwrap();
    assert!(!world.run_and_kill(&impulse(Some(5)), completed).await);
    world.hangs = Some("on_start");
    let error = world.run(&impulse(Some(5)), control).await.unwrap_err();
    let expected = "stopped before the commit of checkpoint 1 was confirmed; run it again on the same state, without --new-state, to publish that \
         checkpoint";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_parallelism_of_zero_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let error = World::new(state.path(), 0)
        .run(&impulse(Some(5)), Control::new())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the parallelism must be 1 to 1024");
}

#[tokio::test(start_paused = true)]
async fn a_null_for_a_required_column_and_a_failing_expression_end_the_run_without_values() {
    let cases = [
        (
            "CASE WHEN counter < 3 THEN counter END",
            "column a of the sink is NOT NULL but the query gave a null; filter such rows out, or use coalesce()",
        ),
        (
            "1 / (3 - counter)",
            "column a: the query failed on a row: a division by zero; guard it with nullif(divisor, 0)",
        ),
        (
            "CAST(concat('x', CAST(counter AS TEXT)) AS BIGINT)",
            "column a: the query failed on a row: a value cannot be cast to the type asked for; TRY_CAST gives NULL for such values",
        ),
    ];
    for (expression, message) in cases {
        let sql = format!(
            "CREATE TABLE i WITH (connector = 'impulse', event_rate = '100', message_count = '9');
             CREATE TABLE o (a BIGINT NOT NULL) WITH (connector = 'bigquery');
             INSERT INTO o SELECT {expression} FROM i"
        );
        let pipeline = Pipeline::parse(&sql, std::path::Path::new("p.sql")).unwrap();
        let state = tempfile::tempdir().unwrap();
        let error = World::new(state.path(), 1)
            .run(&pipeline, Control::new())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), message, "{expression}");
    }
}
