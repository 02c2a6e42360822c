//! What the shell does to connections and answers, over pipes under simulated time: GOAWAY, cuts, and faults that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Emulator, Handle};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::grpc::{Call, Client, connect, create, flush, open, prepare, visible};

/// An emulator under simulated time, reached over pipes.
struct Simulation {
    handle: Handle,
    begin: Instant,
    accept: mpsc::Sender<std::io::Result<DuplexStream>>,
    pipes: Arc<AtomicUsize>,
}

impl Simulation {
    fn new(faults: &str) -> Self {
        let begin = Instant::now();
        let config = Config {
            faults: FaultPlan::parse(faults).unwrap(),
            clock: Some(Arc::new(move || begin.elapsed().as_millis() as i64)),
            seed: Some(1),
            ..Config::default()
        };
        let handle = Handle::new(&config).unwrap();
        prepare(&handle);
        let (accept, accepted) = mpsc::channel(8);
        let server = handle.clone();
        tokio::spawn(async move {
            server
                .serve(ReceiverStream::new(accepted), std::future::pending())
                .await;
        });
        Self {
            handle,
            begin,
            accept,
            pipes: Arc::default(),
        }
    }

    /// A client that makes a new pipe whenever it has no connection.
    fn client(&self) -> Client {
        let (accept, pipes) = (self.accept.clone(), Arc::clone(&self.pipes));
        let connector = tower::service_fn(move |_| {
            let accept = accept.clone();
            pipes.fetch_add(1, Ordering::SeqCst);
            async move {
                let (ours, theirs) = tokio::io::duplex(1 << 20);
                accept.send(Ok(theirs)).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(ours))
            }
        });
        let channel: Channel = Endpoint::from_static("http://pipe").connect_with_connector_lazy(connector);
        Client::new(channel)
    }

    /// How many pipes were made.
    fn pipes(&self) -> usize {
        self.pipes.load(Ordering::SeqCst)
    }

    fn elapsed_ms(&self) -> u128 {
        self.begin.elapsed().as_millis()
    }

    /// Lets everything that is on its way arrive.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_goaway_running_calls_go_on_and_new_ones_take_another_connection() {
    let sim = Simulation::new("{}");
    let mut client = sim.client();
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    assert_eq!((sim.pipes(), sim.handle.transports()), (1, 1));

    sim.handle.go_away();
    sim.settle().await;
    call.send(&stream, 1, 1, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(1));
    assert_eq!(sim.handle.connections(), 1);
    // tonic notices the GOAWAY with the next call, which it gives up without having sent it.
    let unsent = flush(&mut client, &stream, 1).await.unwrap_err();
    assert_eq!(
        (unsent.code(), unsent.message()),
        (Code::Cancelled, "operation was canceled")
    );
    assert_eq!(flush(&mut client, &stream, 1).await.unwrap(), 1);
    assert_eq!((sim.pipes(), sim.handle.transports()), (2, 2));

    drop(call.requests);
    assert_eq!(call.answers.message().await.unwrap(), None);
    sim.settle().await;
    assert_eq!(sim.handle.transports(), 1);
    assert_eq!(visible(&sim.handle), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_every_call_without_a_status_and_the_next_one_connects_anew() {
    let sim = Simulation::new("{}");
    let mut client = sim.client();
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));

    sim.handle.cut();
    let ended = call.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unknown, "{ended}");
    sim.settle().await;
    assert_eq!((sim.handle.connections(), sim.handle.transports()), (0, 0));
    assert_eq!(flush(&mut client, &stream, 0).await.unwrap(), 0);
    assert_eq!((sim.pipes(), sim.handle.transports()), (2, 1));
    assert_eq!(sim.elapsed_ms(), 1);
}

/// The client that the fault is for, its stream, and a call on it.
async fn begin(sim: &Simulation) -> (Client, String, Call) {
    let mut client = sim.client();
    let stream = create(&mut client).await;
    let call = open(&mut client).await;
    (client, stream, call)
}

#[tokio::test(start_paused = true)]
async fn a_rule_sends_goaway_and_the_call_it_fired_on_goes_on() {
    let sim = Simulation::new(
        r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "go_away"}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
        assert_eq!(call.answer().await.unwrap(), Some(at));
    }
    assert_eq!((sim.pipes(), sim.handle.transports()), (1, 1));
    let unsent = flush(&mut client, &stream, 1).await.unwrap_err();
    assert_eq!(unsent.code(), Code::Cancelled, "{unsent}");
    assert_eq!(flush(&mut client, &stream, 1).await.unwrap(), 1);
    assert_eq!((sim.pipes(), sim.handle.transports()), (2, 2));
    call.send(&stream, 3, 3, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_reset_cuts_every_call_on_its_connection_and_what_was_answered_before_still_arrives() {
    let sim = Simulation::new(
        r#"{"rules": [
            {"rpc": "AppendRows", "occurrence": {"nth": 3}, "action": {"kind": "reset", "applied": true}},
            {"rpc": "AppendRows", "occurrence": {"nth": 5}, "action": {"kind": "reset"}},
            {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "reset", "applied": true}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    let mut other = open(&mut client).await;
    let default = format!("{}/streams/_default", crate::world::TABLE);
    other
        .requests
        .send(crate::world::request(&default, None, &crate::world::ints(100, 1)))
        .await
        .unwrap();
    assert_eq!(other.answer().await.unwrap(), None);
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
    }
    assert_eq!(call.answer().await.unwrap(), Some(0));
    assert_eq!(call.answer().await.unwrap_err().code(), Code::Unknown);
    assert_eq!(other.answer().await.unwrap_err().code(), Code::Unknown);
    sim.settle().await;
    assert_eq!((sim.handle.connections(), sim.handle.transports()), (0, 0));
    // The request that was cut off had been applied.
    assert_eq!(sim.handle.streams()[0].end, 2);

    let mut call = open(&mut client).await;
    call.send(&stream, 2, 2, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(2));
    call.send(&stream, 3, 3, 1).await;
    assert_eq!(call.answer().await.unwrap_err().code(), Code::Unknown);
    assert_eq!(sim.handle.streams()[0].end, 3);
    let cut = flush(&mut client, &stream, 0).await.unwrap_err();
    assert_eq!(cut.code(), Code::Unknown, "{cut}");
    assert_eq!(visible(&sim.handle), [100, 0]);
    assert_eq!(flush(&mut client, &stream, 0).await.unwrap(), 0);
    assert_eq!(visible(&sim.handle), [100, 0]);
    assert_eq!((sim.pipes(), sim.handle.transports()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn calls_end_well_or_break_off_without_a_status_and_the_connection_lives() {
    let sim = Simulation::new(
        r#"{"rules": [
            {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "end"}},
            {"rpc": "AppendRows", "occurrence": {"nth": 3}, "action": {"kind": "end", "ok": true}},
            {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "end"}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    call.send(&stream, 0, 0, 1).await;
    call.send(&stream, 1, 1, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let broken = call.answer().await.unwrap_err();
    assert_eq!(broken.code(), Code::Internal, "{broken}");
    assert!(broken.metadata().is_empty(), "{broken:?}");

    let mut call = open(&mut client).await;
    call.send(&stream, 1, 1, 1).await;
    assert_eq!(call.answers.message().await.unwrap(), None);
    let broken = flush(&mut client, &stream, 0).await.unwrap_err();
    assert_eq!(broken.code(), Code::Internal, "{broken}");
    assert_eq!(visible(&sim.handle), Vec::<i64>::new());
    assert_eq!(flush(&mut client, &stream, 0).await.unwrap(), 0);
    assert_eq!((sim.pipes(), sim.handle.streams()[0].end), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_answer_holds_what_is_behind_it_until_it_is_released() {
    let sim = Simulation::new(
        r#"{"rules": [
            {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "stall"}},
            {"rpc": "AppendRows", "occurrence": {"nth": 4}, "action": {"kind": "stall"}},
            {"rpc": "FlushRows", "occurrence": {"nth": 2}, "action": {"kind": "stall", "ms": 30000}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
    }
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let waited = tokio::time::timeout(Duration::from_secs(60), call.answer()).await;
    assert!(waited.is_err());
    // It was done at once, and other calls are not held.
    assert_eq!(flush(&mut client, &stream, 2).await.unwrap(), 2);
    assert_eq!(visible(&sim.handle), [0, 1, 2]);
    sim.handle.release();
    assert_eq!(call.answer().await.unwrap(), Some(1));
    assert_eq!(call.answer().await.unwrap(), Some(2));
    assert_eq!(sim.elapsed_ms(), 60_000);

    // What stalls later is not released by that.
    call.send(&stream, 3, 3, 1).await;
    let waited = tokio::time::timeout(Duration::from_secs(60), call.answer()).await;
    assert!(waited.is_err());
    sim.handle.release();
    assert_eq!(call.answer().await.unwrap(), Some(3));
    assert_eq!(flush(&mut client, &stream, 3).await.unwrap(), 3);
    assert_eq!(sim.elapsed_ms(), 150_000);
}

#[tokio::test(start_paused = true)]
async fn latency_is_added_to_every_answer_and_pipelines_stay_full() {
    let sim = Simulation::new(r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "delay", "ms": 7}}]}"#);
    sim.handle.set_latency_ms(100);
    let (mut client, stream, mut call) = begin(&sim).await;
    assert_eq!(sim.elapsed_ms(), 100);
    for at in 0..20 {
        call.send(&stream, at, at, 1).await;
        if at == 9 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    for at in 0..20 {
        assert_eq!(call.answer().await.unwrap(), Some(at));
        assert_eq!(sim.elapsed_ms(), if at <= 9 { 200 } else { 230 }, "{at}");
    }
    for at in 20..23 {
        call.send(&stream, at, at, 1).await;
        assert_eq!(call.answer().await.unwrap(), Some(at));
    }
    assert_eq!(sim.elapsed_ms(), 530);
    flush(&mut client, &stream, 0).await.unwrap();
    assert_eq!(sim.elapsed_ms(), 637);
    sim.handle.set_latency_ms(0);
    assert_eq!(sim.handle.latency_ms(), 0);
    call.send(&stream, 23, 23, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(23));
    drop(call.requests);
    assert_eq!(call.answers.message().await.unwrap(), None);
    assert_eq!(sim.elapsed_ms(), 637);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_is_applied_at_its_time_though_nobody_calls_and_its_connection_is_gone() {
    let sim = Simulation::new(
        r#"{"rules": [
            {"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "apply_late", "ms": 60000}},
            {"rpc": "FlushRows", "occurrence": {"nth": 1},
             "action": {"kind": "apply_late", "ms": 300000, "code": "UNAVAILABLE"}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    for at in 0..3 {
        call.send(&stream, at, at, 1).await;
    }
    assert_eq!(call.answer().await.unwrap(), Some(0));
    let waited = tokio::time::timeout(Duration::from_secs(5), call.answer()).await;
    assert!(waited.is_err());
    let lost = flush(&mut client, &stream, 1).await.unwrap_err();
    assert_eq!((lost.code(), sim.elapsed_ms()), (Code::Unavailable, 5000));
    assert_eq!(sim.handle.connections(), 1);
    drop(call);
    sim.handle.cut();
    sim.settle().await;
    assert_eq!((sim.handle.connections(), sim.handle.transports()), (0, 0));

    let at = |ms: u64| tokio::time::sleep_until(sim.begin + Duration::from_millis(ms));
    at(59_999).await;
    assert_eq!(sim.handle.streams()[0].end, 1);
    at(60_001).await;
    // The third request came behind it, and was lost.
    assert_eq!(sim.handle.streams()[0].end, 2);
    at(304_999).await;
    assert_eq!(visible(&sim.handle), Vec::<i64>::new());
    at(305_001).await;
    assert_eq!(visible(&sim.handle), [0, 1]);
    assert_eq!(sim.handle.visible()[0].at_ms, 305_000);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_ends_when_it_has_been_idle_for_too_long() {
    let sim = Simulation::new(
        r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "apply_late", "ms": 1}},
                      {"rpc": "FlushRows", "action": {"kind": "apply_late", "ms": 1}}]}"#,
    );
    let (mut client, stream, mut call) = begin(&sim).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    call.send(&stream, 1, 1, 1).await;
    let unanswered = flush(&mut client, &stream, 0);
    assert!(
        tokio::time::timeout(Duration::from_secs(60), unanswered)
            .await
            .is_err()
    );
    assert_eq!(visible(&sim.handle), [0]);
    drop(call.requests);
    let ended = call.answers.message().await.unwrap_err();
    assert_eq!((ended.code(), sim.elapsed_ms()), (Code::Aborted, 600_001));
}

/// What a client sees of some faults, and when.
async fn conversation() -> Vec<String> {
    let sim = Simulation::new(
        r#"{"rules": [
            {"rpc": "AppendRows", "occurrence": {"nth": 3}, "action": {"kind": "reset", "applied": true}},
            {"rpc": "AppendRows", "occurrence": {"nth": 5}, "action": {"kind": "end"}},
            {"rpc": "AppendRows", "occurrence": {"nth": 6}, "action": {"kind": "apply_late", "ms": 50, "code": "ABORTED"}},
            {"rpc": "AppendRows", "occurrence": {"nth": 8}, "action": {"kind": "go_away"}},
            {"rpc": "AppendRows", "occurrence": {"nth": 9}, "action": {"kind": "stall", "ms": 500}},
            {"rpc": "FlushRows", "action": {"kind": "delay", "ms": 3}}]}"#,
    );
    sim.handle.set_latency_ms(20);
    let mut client = sim.client();
    let stream = create(&mut client).await;
    let mut said = vec![stream.clone()];
    let mut next = 0;
    for _ in 0..8 {
        let mut call = open(&mut client).await;
        for at in next..next + 2 {
            call.send(&stream, at, at, 1).await;
        }
        for _ in 0..2 {
            let answer = call.answer().await;
            said.push(format!("{} {answer:?} {}", sim.elapsed_ms(), sim.pipes()));
            next += i64::from(answer.is_ok());
        }
        let flushed = flush(&mut client, &stream, 0).await;
        said.push(format!("{} {flushed:?} {}", sim.elapsed_ms(), sim.pipes()));
    }
    said.push(format!("{:?} {:?}", sim.handle.streams(), sim.handle.visible()));
    said
}

#[test]
fn the_same_calls_meet_the_same_faults_at_the_same_time() {
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(conversation())
    };
    let first = run();
    assert_eq!(first.len(), 26);
    for _ in 0..10 {
        assert_eq!(run(), first);
    }
}

#[tokio::test]
async fn sockets_are_cut_too() {
    let emulator = Emulator::start(Config::default()).await.unwrap();
    let handle = emulator.handle();
    prepare(&handle);
    let mut client = connect(&emulator).await.unwrap();
    let stream = create(&mut client).await;
    let mut call = open(&mut client).await;
    call.send(&stream, 0, 0, 1).await;
    assert_eq!(call.answer().await.unwrap(), Some(0));
    assert_eq!(handle.transports(), 1);
    handle.cut();
    assert_eq!(call.answer().await.unwrap_err().code(), Code::Unknown);
    // The client finds out with its next call, or has found out.
    let flushed = match flush(&mut client, &stream, 0).await {
        Err(_) => flush(&mut client, &stream, 0).await,
        flushed => flushed,
    };
    assert_eq!(flushed.unwrap(), 0);
    emulator.shutdown().await;
    assert_eq!(handle.transports(), 0);
}
