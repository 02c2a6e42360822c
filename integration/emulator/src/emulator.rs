//! The emulator as a program part: started on two ports, inspected through a handle, stopped.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

use crate::catalog::{CatalogError, DatasetRef, TableRef};
use crate::faults::{FaultPlan, FaultPlanError, FaultReport};
use crate::grpc::Service;
use crate::journal::{self, DataDirError};
use crate::machine::{Call, Exchange, Machine, Refusal, StreamInfo, Switches, Visibility};
use crate::query::{QueryError, QueryOutput, query};
use crate::rest;
use crate::schema::Schema;
use crate::shared::{Clock, Shared, system_clock};
use crate::tls::{Tls, TlsError, TlsFiles};

/// Calls that are still open at shutdown get this long to end.
const GRACE: Duration = Duration::from_secs(2);

/// How to start an emulator. The default listens on two free ports of the loopback interface.
#[derive(Clone)]
pub struct Config {
    /// Where the Storage Write API listens; port 0 takes a free one.
    pub grpc: SocketAddr,
    /// Where the REST API listens.
    pub http: SocketAddr,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// Round trip added to every answer of the Storage Write API, in milliseconds.
    pub latency_ms: u64,
    /// Answers that can be chosen.
    pub switches: Switches,
    /// Serve both over TLS.
    pub tls: Option<TlsFiles>,
    /// Whose time; `None` for the machine's.
    pub clock: Option<Clock>,
    /// Makes stream ids differ between runs; `None` draws one.
    pub seed: Option<u128>,
    /// Keeps datasets, tables, rows and streams in this directory, so that the next emulator on it goes on with them;
    /// `None` keeps them in memory. Every change is on disk before it is answered.
    pub data_dir: Option<PathBuf>,
    /// Drops rows once they are checked and counted ([`Machine::discard_rows`]).
    pub discard: bool,
}

/// A running emulator. Dropping it stops it at once, with its connections and its jobs; [`Emulator::shutdown`] waits.
#[derive(Debug)]
pub struct Emulator {
    handle: Handle,
    grpc_addr: SocketAddr,
    http_addr: SocketAddr,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
}

/// Looks into an emulator and prepares it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Shared,
    service: Service,
    api: rest::Api,
}

/// Why an emulator does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr} for {what}: {source}")]
    Bind {
        /// `gRPC` or `HTTP`.
        what: &'static str,
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The fault plan contradicts itself.
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Rows cannot both be kept and be dropped.
    #[error("rows cannot be discarded and kept in a data directory: give only one of the two")]
    DiscardKept,
}

impl Emulator {
    /// Starts listening.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let tls = config.tls.as_ref().map(TlsFiles::read).transpose()?;
        let handle = Handle::new(&config)?;
        let (grpc, grpc_addr) = listen("gRPC", config.grpc).await?;
        let (http, http_addr) = listen("HTTP", config.http).await?;
        let (stop, stopped) = watch::channel(false);
        let serve_grpc = {
            let (service, stopped) = (handle.service.clone(), wait(stopped.clone()));
            let tls = tls.as_ref().map(Tls::grpc);
            async move { service.serve(tls, tcp_connections(grpc), stopped).await }
        };
        let serve_http = {
            let (app, tls) = (handle.rest(), tls.as_ref().map(Tls::http));
            async move { rest::serve(app, tls, tcp_connections(http), wait(stopped)).await }
        };
        let servers = vec![tokio::spawn(serve_grpc), tokio::spawn(serve_http)];
        Ok(Self {
            handle,
            grpc_addr,
            http_addr,
            stop,
            servers,
        })
    }

    /// Where the Storage Write API listens.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Where the REST API listens.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// A handle, which outlives the servers.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends every open call as a restarting server does, and waits up to two seconds for connections to close.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        self.handle.service.close_all(&Refusal::restarted());
        for server in &mut self.servers {
            if tokio::time::timeout(GRACE, &mut *server).await.is_err() {
                server.abort();
                // With it go its connections.
                drop(server.await);
            }
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        for server in &self.servers {
            server.abort();
        }
        self.handle.api.stop();
        // Handles and open calls may live on; the data directory is the next emulator's.
        self.handle.shared.with(Machine::detach_journal);
    }
}

impl Handle {
    /// An emulator that listens nowhere: for a simulation, which gives it connections by [`Handle::serve`].
    ///
    /// # Errors
    /// [`StartError::Faults`], [`StartError::DataDir`], [`StartError::DiscardKept`].
    pub fn new(config: &Config) -> Result<Self, StartError> {
        config.faults.check()?;
        let seed = config.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128());
        let mut machine = Machine::new(config.switches.clone(), config.faults.clone(), seed);
        if config.discard {
            machine.discard_rows();
        }
        let directory = config.data_dir.as_deref();
        if config.discard && directory.is_some() {
            return Err(StartError::DiscardKept);
        }
        let last = directory
            .map(|directory| journal::open(directory, &mut machine))
            .transpose()?;
        let clock = config.clock.clone().unwrap_or_else(system_clock);
        let shared = Shared::new(machine, clock);
        if let Some(last) = last.flatten() {
            shared.not_before(last);
        }
        let service = Service::new(shared.clone());
        service.set_latency_ms(config.latency_ms);
        let api = rest::Api::new(service.clone());
        Ok(Self { shared, service, api })
    }

    /// Serves the Storage Write API on connections of any kind (plaintext), until `stopped` or until no more will
    /// come; then waits for the calls on them. Dropping it cuts them.
    pub async fn serve<I, IO, E>(&self, incoming: I, stopped: impl Future<Output = ()> + Send)
    where
        I: Stream<Item = Result<IO, E>> + Send,
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        E: fmt::Display + Send,
    {
        self.service.serve(None, incoming, stopped).await;
    }

    /// As [`Handle::serve`], for the REST API over HTTP/1.1.
    pub async fn serve_rest<I, IO, E>(&self, incoming: I, stopped: impl Future<Output = ()> + Send)
    where
        I: Stream<Item = Result<IO, E>> + Send,
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        E: fmt::Display + Send,
    {
        rest::serve(self.rest(), None, incoming, stopped).await;
    }

    /// The REST API, to be served elsewhere. Every router of one emulator knows the same jobs.
    pub fn rest(&self) -> axum::Router {
        rest::router(self.api.clone())
    }

    /// Creates a dataset; an empty location means `US`.
    ///
    /// # Errors
    /// As [`Machine::create_dataset`].
    pub fn create_dataset(&self, name: &DatasetRef, location: &str) -> Result<(), CatalogError> {
        let now = self.shared.now();
        let rest = serde_json::Map::new();
        self.shared
            .with(|machine| machine.create_dataset(name, location, rest, now).map(|_| ()))
    }

    /// Creates an empty table.
    ///
    /// # Errors
    /// As [`Machine::create_table`].
    pub fn create_table(&self, name: &TableRef, schema: Schema) -> Result<(), CatalogError> {
        let now = self.shared.now();
        let rest = serde_json::Map::new();
        self.shared
            .with(|machine| machine.create_table(name, schema, rest, now).map(|_| ()))
    }

    /// The rows that a reader of the table sees, in the order in which they became visible.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rows(&self, table: &TableRef) -> Result<RecordBatch, CatalogError> {
        self.shared
            .with(|machine| machine.catalog().table(table).map(|table| table.all_rows()))
    }

    /// As [`Handle::rows`], without the first `from`, and without copying any: for a reader that has seen those. Rows
    /// that are upserted by a primary key, or truncated, do not stay where they are.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rows_after(&self, table: &TableRef, from: usize) -> Result<Vec<RecordBatch>, CatalogError> {
        self.shared.with(|machine| {
            let mut skip = from;
            let mut after = Vec::new();
            for batch in machine.catalog().table(table)?.rows() {
                let seen = skip.min(batch.num_rows());
                skip -= seen;
                if seen < batch.num_rows() {
                    after.push(batch.slice(seen, batch.num_rows() - seen));
                }
            }
            Ok(after)
        })
    }

    /// Runs a SELECT in BigQuery's dialect over the rows that are visible now. Names without a project are those of
    /// `project`, names without a dataset those of `default_dataset`.
    ///
    /// Nothing but SQL runs on a thread of its own: a simulation reads with [`Handle::rows`], at once and on none.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query(
        &self,
        project: &str,
        default_dataset: Option<&DatasetRef>,
        sql: &str,
    ) -> Result<QueryOutput, QueryError> {
        query(&self.shared, project, default_dataset, sql).await
    }

    /// Every live stream, by name.
    pub fn streams(&self) -> Vec<StreamInfo> {
        self.shared.with(|machine| machine.streams())
    }

    /// How many streams were ever created.
    pub fn streams_created(&self) -> u64 {
        self.shared.with(|machine| machine.streams_created())
    }

    /// How many `AppendRows` calls are open.
    pub fn connections(&self) -> usize {
        self.shared.with(|machine| machine.connections())
    }

    /// Each fault rule, how many calls it matched, and on how many it fired.
    pub fn faults(&self) -> Vec<FaultReport> {
        self.shared.with(|machine| machine.faults())
    }

    /// Replaces the fault plan; counts start again.
    ///
    /// # Errors
    /// [`FaultPlanError::Rule`].
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), FaultPlanError> {
        plan.check()?;
        self.shared.with(|machine| machine.set_faults(plan));
        Ok(())
    }

    /// What became visible, oldest first (see [`crate::machine::VisibilityLog`] for how much is kept).
    pub fn visible(&self) -> Vec<Visibility> {
        self.shared
            .with(|machine| machine.visible().entries().cloned().collect())
    }

    /// As [`Handle::visible`], without the first `seen` that there ever were.
    ///
    /// Those that are no longer kept are left out: who looks often enough misses none.
    pub fn visible_after(&self, seen: u64) -> Vec<Visibility> {
        self.shared.with(|machine| {
            let log = machine.visible();
            let skip = usize::try_from(seen.saturating_sub(log.dropped())).unwrap_or(usize::MAX);
            log.entries().skip(skip).cloned().collect()
        })
    }

    /// Calls `observer` whenever rows become visible, before the answer leaves. It must be quick and must not call
    /// back into the emulator.
    pub fn observe(&self, observer: impl FnMut(&Visibility) + Send + 'static) {
        self.shared
            .with(|machine| machine.visible_mut().observe(observer));
    }

    /// Calls `observer` with each request and its answer, when the request has had its effect and before the answer
    /// leaves. It must be quick and must not call back into the emulator.
    pub fn observe_exchanges(&self, observer: impl FnMut(&Exchange) + Send + 'static) {
        self.shared.with(|machine| machine.observe_exchanges(observer));
    }

    /// The calls received last, with the headers that came with them.
    pub fn calls(&self) -> Vec<Call> {
        self.shared
            .with(|machine| machine.calls().iter().cloned().collect())
    }

    /// Puts the emulator's clock forward; what becomes too old by it ends.
    pub fn advance(&self, ms: u32) {
        self.service.advance(ms);
    }

    /// Ends every open `AppendRows` call with this status.
    pub fn end_calls(&self, refusal: &Refusal) {
        self.service.close_all(refusal);
    }

    /// Lets go every answer that a fault holds until it is released.
    pub fn release(&self) {
        self.service.release();
    }

    /// The round trip that is added to every answer of the Storage Write API, in milliseconds.
    pub fn latency_ms(&self) -> u64 {
        self.service.latency_ms()
    }

    /// Sets the round trip from now on. Pipelined appends stay pipelined: each answer is due so much after its
    /// request, in order.
    pub fn set_latency_ms(&self, ms: u64) {
        self.service.set_latency_ms(ms);
    }

    /// Sends GOAWAY on every open HTTP/2 connection: the calls on it go on, new ones need another connection.
    pub fn go_away(&self) {
        self.service.go_away();
    }

    /// Cuts every open HTTP/2 connection, as a failing network does.
    pub fn cut(&self) {
        self.service.cut();
    }

    /// How many HTTP/2 connections are open; each may carry many calls.
    pub fn transports(&self) -> usize {
        self.service.connections()
    }

    /// The machine and the clock themselves.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Default for Config {
    fn default() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            grpc: loopback,
            http: loopback,
            faults: FaultPlan::default(),
            latency_ms: 0,
            switches: Switches::default(),
            tls: None,
            clock: None,
            seed: None,
            data_dir: None,
            discard: false,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("grpc", &self.grpc)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

async fn listen(what: &'static str, addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let bind = |source| StartError::Bind { what, addr, source };
    let listener = TcpListener::bind(addr).await.map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    Ok((listener, bound))
}

/// The connections that come to a listener.
fn tcp_connections(listener: TcpListener) -> impl Stream<Item = io::Result<TcpStream>> {
    TcpListenerStream::new(listener).then(|accepted| async move {
        match accepted {
            Ok(connection) => connection.set_nodelay(true).map(|()| connection),
            Err(error) => {
                // Out of file descriptors, most likely: do not spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(error)
            }
        }
    })
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // An error means that the emulator is gone, which is as good as stopped.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
