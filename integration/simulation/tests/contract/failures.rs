//! Errors, and what keeps the engine, which has no deadlines, from waiting for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink::engine::{Controller, Declared, EngineSink, Form};
use bigquery_sink::{Blame, Environment, Retry};
use tokio::time::{Instant, sleep};

use crate::engine::{Engine, edge, ids, rows, told};

#[tokio::test(start_paused = true)]
async fn t11_and_t25_a_sink_that_is_not_started_does_nothing() {
    let engine = Engine::new(Controller::Controller);
    let sinks: Vec<_> = (0..64).map(|_| engine.sink(Declared::default())).collect();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((engine.handle.transports(), engine.handle.calls().len()), (0, 0));
    assert_eq!(sinks[0].table(), "projects/shop/datasets/sales/tables/orders");
}

#[tokio::test(start_paused = true)]
async fn t11_options_that_are_wrong_are_an_error_of_the_start() {
    let given = [("project", "shop"), ("dataset", "sales"), ("write.mode", "never")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (profile, table) = Form::split(given.into()).unwrap();
    let mut sink = EngineSink::new(&profile, &table, Declared::default());
    let engine = Engine::new(Controller::Controller);
    let wrong = sink
        .on_start(engine.task(0, 1), &edge(&[]), &HashMap::new())
        .await
        .unwrap_err();
    let text = "option 'write.mode': 'never' is not accepted; accepted is 'exactly_once' or 'at_least_once'\noption 'table' is required";
    assert_eq!(told(&wrong), (Blame::User, Retry::Never, text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn t11_a_start_does_not_take_two_minutes_also_when_nobody_answers() {
    let engine = Engine::new(Controller::Controller);
    engine.fault(r#"{"rpc": "GetWriteStream", "action": {"kind": "delay", "ms": 3600000}}"#);
    let began = Instant::now();
    let mut sink = engine.sink(Declared::default());
    let silent = sink
        .on_start(engine.task(0, 1), &edge(&[]), &HashMap::new())
        .await
        .unwrap_err();
    assert_eq!(
        (silent.blame(), silent.retry()),
        (Blame::External, Retry::Restart),
        "{silent}"
    );
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn t13_a_missing_table_is_for_a_person_and_an_outage_for_a_restart() {
    let engine = Engine::with(
        Controller::Controller,
        &[("dead_letter.table", "missing"), ("row_errors", "dead_letter")],
    );
    let mut sink = engine.sink(Declared::default());
    let missing = sink
        .on_start(engine.task(0, 1), &edge(&[]), &HashMap::new())
        .await
        .unwrap_err();
    assert_eq!(
        (missing.blame(), missing.retry()),
        (Blame::User, Retry::Never),
        "{missing}"
    );

    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    engine.fault(r#"{"rpc": "AppendRows", "action": {"kind": "refuse", "code": "UNAVAILABLE"}}"#);
    job.give(0, 0..5).await;
    let outage = job.subtasks[0].handle_checkpoint(1, false).await.unwrap_err();
    assert_eq!(
        (outage.blame(), outage.retry()),
        (Blame::External, Retry::Restart),
        "{outage}"
    );
}

#[tokio::test(start_paused = true)]
async fn t14_a_commit_outlasts_an_outage_of_minutes() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    job.give(0, 0..5).await;
    let first = job.checkpoint(1).await;
    engine.fault(r#"{"rpc": "FlushRows", "occurrence": {"times": 8}, "action": {"kind": "refuse", "code": "UNAVAILABLE"}}"#);
    job.commit(&first).await;
    assert_eq!(engine.visible(), ids(0, 5));
}

#[tokio::test(start_paused = true)]
async fn t14_and_t4_a_commit_that_cannot_be_done_ends_in_an_error_and_is_not_acknowledged() {
    let engine = Engine::with(Controller::Controller, &[("commit.timeout", "2 min")]);
    let mut job = engine.start(1).await;
    job.give(0, 0..5).await;
    let first = job.checkpoint(1).await;
    engine.fault(r#"{"rpc": "FlushRows", "action": {"kind": "refuse", "code": "UNAVAILABLE"}}"#);
    let began = Instant::now();
    let outage = job.say_commit_to(0, &first).await.unwrap_err();
    assert_eq!(
        (outage.blame(), outage.retry()),
        (Blame::External, Retry::Restart),
        "{outage}"
    );
    let took = began.elapsed();
    assert!(
        (Duration::from_secs(100)..Duration::from_secs(200)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn t15_no_call_waits_for_ever_for_a_server_that_is_silent() {
    for rpc in ["CreateWriteStream", "AppendRows", "FlushRows"] {
        let engine = Engine::new(Controller::Controller);
        let mut job = engine.start(1).await;
        engine.fault(&format!(
            r#"{{"rpc": "{rpc}", "action": {{"kind": "delay", "ms": 100000000}}}}"#
        ));
        let began = Instant::now();
        job.give(0, 0..5).await;
        let silent = match job.subtasks[0].handle_checkpoint(1, false).await {
            Err(silent) => silent,
            Ok(part) => {
                let data = HashMap::from([("c".to_owned(), HashMap::from([(0, part.commit.unwrap())]))]);
                job.subtasks[0].handle_commit(1, &data).await.unwrap_err()
            }
        };
        assert_eq!(
            (silent.blame(), silent.retry()),
            (Blame::External, Retry::Restart),
            "{rpc}: {silent}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(20 * 60),
            "{rpc}: {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn t16_a_tick_tells_of_a_failure_without_rows() {
    let engine = Engine::new(Controller::Controller);
    let mut job = engine.start(1).await;
    job.subtasks[0].handle_tick().await.unwrap();
    engine.fault(r#"{"rpc": "AppendRows", "action": {"kind": "row_errors", "rows": [0], "message": "no"}}"#);
    job.subtasks[0].process_batch(&rows(0..5)).await.unwrap();
    let mut seconds = 0;
    let failure = loop {
        sleep(Duration::from_secs(1)).await;
        seconds += 1;
        if let Err(failure) = job.subtasks[0].handle_tick().await {
            break failure;
        }
        assert!(seconds < 60, "the tick is silent");
    };
    assert_eq!(
        (failure.blame(), failure.retry()),
        (Blame::User, Retry::Never),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn t24_tls_needs_no_provider_of_the_process() {
    let given = [("project", "shop"), ("dataset", "sales"), ("table", "orders")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (profile, table) = Form::split(given.into()).unwrap();
    let options = bigquery_sink::engine::options(&profile, &table, &Declared::default()).unwrap();
    assert_eq!(
        options.endpoints.grpc.as_str(),
        "https://bigquerystorage.googleapis.com"
    );
    Environment::new(&options, Arc::default()).unwrap();
}
