//! The HTTP/2 connections under the service: accepted, served, told to go away, cut.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::Status;

use super::Service;
use super::hold::LONGEST_MS;
use crate::tls::HANDSHAKE;

/// Google's servers take 100 calls on a connection.
const CALLS_PER_CONNECTION: u32 = 100;

/// Every open connection of a service, cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    ever: u64,
    /// By their number, in the order in which they came.
    levers: BTreeMap<u64, Lever>,
}

/// Decides what becomes of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Lever(watch::Sender<Course>);

/// What becomes of a connection; it goes down this list only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    #[default]
    Stay,
    /// GOAWAY: the calls on it go on, new ones need another connection.
    Leave,
    /// Nothing more is read or written.
    Cut,
}

/// One connection's place among the open ones, given up when dropped.
struct Place {
    connections: Connections,
    number: u64,
    lever: Lever,
}

/// The way that one call came, and whether its answer breaks off. Each request has one among its extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    connection: Lever,
    /// The connection's, from 1; 0 without one.
    number: u64,
    broken: Arc<AtomicBool>,
}

/// The answer's body. It may break off where its status would come: the stream is reset.
struct Answer {
    body: tonic::body::Body,
    line: Line,
    /// It is about to break off.
    breaking: bool,
}

/// Ends a call without a status.
#[derive(Debug, thiserror::Error)]
#[error("the call broke off (injected fault)")]
struct BrokenOff;

impl Service {
    /// Serves the connections that come, until `stopped` or until no more will come; then waits for the calls on them.
    pub(crate) async fn serve<I, IO, E>(
        &self,
        tls: Option<TlsAcceptor>,
        incoming: I,
        stopped: impl Future<Output = ()>,
    ) where
        I: Stream<Item = Result<IO, E>>,
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        E: std::fmt::Display,
    {
        let (stop, stopping) = watch::channel(Course::Stay);
        let mut tasks = JoinSet::new();
        {
            let (mut incoming, mut stopped) = (pin!(incoming), pin!(stopped));
            loop {
                tokio::select! {
                    biased;
                    () = &mut stopped => break,
                    Some(done) = tasks.join_next() => report(done),
                    () = self.until_late() => self.tick(),
                    connection = incoming.next() => match connection {
                        Some(Ok(io)) => {
                            let (service, tls, stopping) = (self.clone(), tls.clone(), stopping.clone());
                            let place = self.connections.take_place();
                            tasks.spawn(async move { service.shake_hands(io, tls, place, stopping).await });
                        }
                        Some(Err(error)) => tracing::warn!("cannot accept a connection: {error}"),
                        None => break,
                    },
                }
            }
        }
        stop.send_replace(Course::Leave);
        while let Some(done) = tasks.join_next().await {
            report(done);
        }
    }

    /// Until the machine has late work to do.
    async fn until_late(&self) {
        let mut late = self.late.subscribe();
        loop {
            let due = *late.borrow_and_update();
            let left = due.map(|due| due.saturating_sub(self.shared.now()).max(0).unsigned_abs());
            let left = Duration::from_millis(left.unwrap_or(LONGEST_MS).min(LONGEST_MS));
            tokio::select! {
                biased;
                Ok(()) = late.changed() => {}
                () = tokio::time::sleep(left), if due.is_some() => return,
            }
        }
    }

    async fn shake_hands<IO>(
        &self,
        io: IO,
        tls: Option<TlsAcceptor>,
        place: Place,
        stopping: watch::Receiver<Course>,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = tls else {
            return self.drive(io, &place, stopping).await;
        };
        match tokio::time::timeout(HANDSHAKE, tls.accept(io)).await {
            Ok(Ok(io)) => self.drive(io, &place, stopping).await,
            Ok(Err(error)) => tracing::debug!("a client failed the TLS handshake: {error}"),
            Err(_) => tracing::debug!("a client did not end the TLS handshake"),
        }
    }

    /// Serves one connection to its end.
    async fn drive<IO>(&self, io: IO, place: &Place, mut stopping: watch::Receiver<Course>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut course = place.lever.0.subscribe();
        // What was decided during the handshake counts too.
        course.mark_changed();
        stopping.mark_changed();
        let calls = TowerToHyperService::new(self.server());
        let (lever, number) = (place.lever.clone(), place.number);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let line = Line {
                connection: lever.clone(),
                number,
                broken: Arc::default(),
            };
            request.extensions_mut().insert(line.clone());
            let answered = calls.call(request);
            async move { line.send(answered.await) }
        });
        let mut connection = pin!(settings().serve_connection(TokioIo::new(io), service));
        loop {
            // First what is ready to be written: what was answered before a cut still goes.
            let next = tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!("a connection failed: {error}");
                    }
                    return;
                }
                Ok(()) = course.changed() => *course.borrow_and_update(),
                Ok(()) = stopping.changed() => *stopping.borrow_and_update(),
            };
            match next {
                Course::Stay => {}
                Course::Leave => connection.as_mut().graceful_shutdown(),
                Course::Cut => return,
            }
        }
    }
}

/// Windows as large as requests, so that a client is held up by the machine and not by the protocol.
fn settings() -> http2::Builder<TokioExecutor> {
    let mut settings = http2::Builder::new(TokioExecutor::new());
    settings
        .timer(TokioTimer::new())
        // A simulation has its own time.
        .auto_date_header(false)
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(64 << 20)
        .max_frame_size(1 << 20)
        .max_concurrent_streams(CALLS_PER_CONNECTION);
    settings
}

fn report(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!("the emulator failed to serve a connection: {error}");
    }
}

impl Connections {
    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.lock().levers.len()
    }

    /// Sends GOAWAY on every connection.
    pub(super) fn go_away(&self) {
        self.lock().levers.values().for_each(Lever::go_away);
    }

    /// Cuts every connection.
    pub(super) fn cut(&self) {
        self.lock().levers.values().for_each(Lever::cut);
    }

    fn take_place(&self) -> Place {
        let lever = Lever::default();
        let mut open = self.lock();
        open.ever += 1;
        let number = open.ever;
        open.levers.insert(number, lever.clone());
        Place {
            connections: self.clone(),
            number,
            lever,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().levers.remove(&self.number);
    }
}

impl Lever {
    pub(super) fn go_away(&self) {
        self.turn(Course::Leave);
    }

    fn cut(&self) {
        self.turn(Course::Cut);
    }

    fn turn(&self, to: Course) {
        self.0.send_if_modified(|course| {
            let further = to > *course;
            *course = to.max(*course);
            further
        });
    }
}

impl Line {
    /// The connection that carries the call.
    pub(super) fn connection(&self) -> &Lever {
        &self.connection
    }

    /// The connection's number, in the order in which they came.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// From here on there is no answer any more: the status that is returned is not sent.
    pub(super) fn break_off(&self) -> Status {
        self.broken.store(true, Ordering::SeqCst);
        Status::unknown("The call broke off.")
    }

    /// Cuts the connection, and with it whoever waits for this.
    pub(super) async fn cut<T>(&self) -> T {
        self.connection.cut();
        std::future::pending().await
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    fn send(
        self,
        answered: Result<Response<tonic::body::Body>, Infallible>,
    ) -> Result<Response<Answer>, BrokenOff> {
        let Ok(response) = answered;
        if self.is_broken() {
            return Err(BrokenOff);
        }
        Ok(response.map(|body| Answer {
            body,
            line: self,
            breaking: false,
        }))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.breaking {
            return Poll::Ready(Some(Err(BrokenOff.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_data() => Some(Ok(frame)),
            _ if self.line.is_broken() => {
                // A stream that is reset drops what is not written yet: the connection gets its turn before.
                self.breaking = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(status)) => Some(Err(status.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
