//! HTTP/1.1 connections for the REST API: accepted, served, closed.

use std::future::Future;
use std::pin::pin;

use axum::Router;
use futures::{Stream, StreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::tls::HANDSHAKE;

/// Serves the connections that come, until `stopped` or until no more will come; then waits for the calls on them.
/// Dropping it cuts them.
pub(crate) async fn serve<I, IO, E>(
    app: Router,
    tls: Option<TlsAcceptor>,
    incoming: I,
    stopped: impl Future<Output = ()>,
) where
    I: Stream<Item = Result<IO, E>>,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: std::fmt::Display,
{
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    {
        let (mut incoming, mut stopped) = (pin!(incoming), pin!(stopped));
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(done) = tasks.join_next() => report(done),
                connection = incoming.next() => match connection {
                    Some(Ok(io)) => drop(tasks.spawn(shake_hands(io, tls.clone(), app.clone(), stopping.clone()))),
                    Some(Err(error)) => tracing::warn!("cannot accept a connection: {error}"),
                    None => break,
                },
            }
        }
    }
    stop.send_replace(true);
    while let Some(done) = tasks.join_next().await {
        report(done);
    }
}

async fn shake_hands<IO>(io: IO, tls: Option<TlsAcceptor>, app: Router, stopping: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else {
        return drive(io, app, stopping).await;
    };
    match timeout(HANDSHAKE, tls.accept(io)).await {
        Ok(Ok(io)) => drive(io, app, stopping).await,
        Ok(Err(error)) => tracing::debug!("a client failed the TLS handshake: {error}"),
        Err(_) => tracing::debug!("a client did not end the TLS handshake"),
    }
}

/// Serves one connection to its end.
async fn drive<IO>(io: IO, app: Router, mut stopping: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut settings = http1::Builder::new();
    settings
        .timer(TokioTimer::new())
        // A simulation has its own time.
        .auto_date_header(false);
    let mut connection = pin!(settings.serve_connection(TokioIo::new(io), TowerToHyperService::new(app)));
    // An error means that the server is gone, and with it this task.
    let mut stopped = pin!(async move { stopping.wait_for(|stopped| *stopped).await.is_ok() });
    let mut is_stopping = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            _ = stopped.as_mut(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection failed: {error}");
    }
}

fn report(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!("the emulator failed to serve a connection: {error}");
    }
}
