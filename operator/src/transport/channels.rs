//! HTTP/2 connections: how they are made, and how many append calls share one.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint as TonicEndpoint};
use tower::{Service, ServiceExt};

use super::error::CallError;
use crate::options::Endpoint;

/// The server's limit is 100 calls on one connection, and the one above waits for ever (reports.md B, 50).
pub(super) const CALLS_PER_CONNECTION: usize = 50;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server may send ahead of our reading: answers, so little. (What *we* may send ahead is the server's choice.)
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Google's servers close connections that ping more often than once a minute.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The channels to one endpoint: one for unary calls, and as many as append calls need. All connect with their
/// first call.
pub(super) struct Channels {
    open: Box<dyn Fn() -> Channel + Send + Sync>,
    unary: Channel,
    appends: Mutex<Vec<Shared>>,
}

/// A channel and its free places.
struct Shared {
    channel: Channel,
    places: Arc<Semaphore>,
}

/// A place on a channel; free again when dropped.
pub(super) struct Place {
    pub(super) channel: Channel,
    _place: OwnedSemaphorePermit,
}

impl Channels {
    /// Channels over TCP, with TLS for https.
    pub(super) fn tcp(endpoint: &Endpoint, ca: Option<&Path>) -> Result<Self, CallError> {
        let mut tonic = configured(endpoint)?;
        if !endpoint.is_plaintext() {
            tonic = tonic
                .tls_config(tls(ca)?)
                .map_err(|error| unusable(endpoint, error))?;
        }
        Ok(Self::new(move || tonic.connect_lazy()))
    }

    /// Channels over whatever the connector connects to.
    pub(super) fn over<C>(endpoint: &Endpoint, connector: C) -> Result<Self, CallError>
    where
        C: Service<http::Uri> + Clone + Send + Sync + 'static,
        C::Response: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    {
        let tonic = configured(endpoint)?;
        Ok(Self::new(move || {
            let connector = connector
                .clone()
                .map_response(TokioIo::new)
                .map_err(Into::<Box<dyn Error + Send + Sync>>::into);
            tonic.connect_with_connector_lazy(connector)
        }))
    }

    fn new(open: impl Fn() -> Channel + Send + Sync + 'static) -> Self {
        Self {
            unary: open(),
            appends: Mutex::default(),
            open: Box::new(open),
        }
    }

    /// The channel of unary calls: not behind the appends' bytes, so that a flush is quick.
    pub(super) fn unary(&self) -> Channel {
        self.unary.clone()
    }

    /// A place for an append call, on a new channel if all are taken.
    pub(super) fn append(&self) -> Place {
        let mut shared = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        for Shared { channel, places } in shared.iter() {
            if let Ok(place) = Arc::clone(places).try_acquire_owned() {
                return Place {
                    channel: channel.clone(),
                    _place: place,
                };
            }
        }
        let channel = (self.open)();
        let places = Arc::new(Semaphore::new(CALLS_PER_CONNECTION));
        let place = Arc::clone(&places)
            .try_acquire_owned()
            .expect("a new channel has free places");
        shared.push(Shared {
            channel: channel.clone(),
            places,
        });
        Place {
            channel,
            _place: place,
        }
    }
}

fn configured(endpoint: &Endpoint) -> Result<TonicEndpoint, CallError> {
    TonicEndpoint::from_shared(endpoint.as_str().to_owned())
        .and_then(|tonic| tonic.user_agent(concat!("arroyo-bigquery/", env!("CARGO_PKG_VERSION"))))
        .map(|tonic| {
            tonic
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        })
        .map_err(|error| unusable(endpoint, error))
}

fn tls(ca: Option<&Path>) -> Result<ClientTlsConfig, CallError> {
    let config = ClientTlsConfig::new().timeout(CONNECT_TIMEOUT);
    let Some(path) = ca else {
        return Ok(config.with_native_roots());
    };
    let wrong =
        |what: String| CallError::misconfigured(format!("option 'endpoint.ca': '{}' {what}", path.display()));
    let pem = fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if !pem
        .windows(27)
        .any(|window| window == b"-----BEGIN CERTIFICATE-----")
    {
        return Err(wrong("holds no certificate in PEM form".to_owned()));
    }
    Ok(config.ca_certificate(Certificate::from_pem(pem)))
}

fn unusable(endpoint: &Endpoint, error: tonic::transport::Error) -> CallError {
    CallError::misconfigured(format!("endpoint {endpoint} cannot be used")).with_source(error)
}
