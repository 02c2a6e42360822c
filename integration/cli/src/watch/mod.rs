//! `run --metrics`: what whoever runs a pipeline watches, over HTTP: `/metrics` for Prometheus, `/status.json`, and a page at `/`.

mod host_metrics;
mod page;
mod samples;
mod snapshot;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bigquery_write_emulator::is_of_another_site;
use prometheus::{Encoder as _, TextEncoder};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::snapshot::{Described, Watched};
use crate::failure::Failure;
use host_metrics::HostMetrics;

/// Between two samples of a plot.
const SAMPLED: Duration = Duration::from_secs(1);
/// Seconds after which the page is asked for again, unless it is told otherwise.
const REFRESH: u16 = 2;

/// The server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _server: AbortOnDropHandle<()>,
    _sampler: AbortOnDropHandle<()>,
}

impl Watch {
    /// Listens, and takes samples from now on.
    pub(crate) async fn start(address: SocketAddr, watched: Watched) -> Result<Self, Failure> {
        let watched = Arc::new(watched);
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::running(format!(
                "--metrics {address}: cannot listen there: {error}; name another port, or 0 for any that is free"
            ))
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::running(format!("--metrics {address}: {error}")))?;
        HostMetrics::register(&watched)?;
        let sampler = tokio::spawn(sample(Arc::clone(&watched)));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router(watched)).await {
                tracing::error!(%error, "--metrics: the server ended");
            }
        });
        Ok(Self {
            address,
            _server: AbortOnDropHandle::new(server),
            _sampler: AbortOnDropHandle::new(sampler),
        })
    }
}

async fn sample(watched: Arc<Watched>) {
    let mut ticks = interval(SAMPLED);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        watched.sample();
    }
}

fn router(watched: Arc<Watched>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/status.json", get(status))
        .layer(from_fn(refuse_other_sites))
        .with_state(watched)
}

/// A page of another site may be open in the browser of whoever runs this, and must not read it.
async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if is_of_another_site(request.headers()) {
        return (
            StatusCode::FORBIDDEN,
            "A page of another site cannot read this.\n",
        )
            .into_response();
    }
    next.run(request).await
}

/// How the page is asked for.
#[derive(Debug, Deserialize)]
struct Asked {
    /// Seconds after which the browser asks again; 0 for never.
    refresh: Option<u16>,
}

async fn page(State(watched): State<Arc<Watched>>, Query(asked): Query<Asked>) -> Response {
    let refresh = asked.refresh.unwrap_or(REFRESH);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    let html = page::render(&watched.snapshot(), refresh);
    (headers, html.into_string()).into_response()
}

async fn status(State(watched): State<Arc<Watched>>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(watched.snapshot())).into_response()
}

async fn metrics() -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&prometheus::gather(), &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
