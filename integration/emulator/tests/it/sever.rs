//! What the shell does to connections and answers, over pipes under simulated time: GOAWAY, cuts, and faults that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Handle};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::grpc::{Client, create, flush, open, prepare, visible};

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
