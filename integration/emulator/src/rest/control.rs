//! What is the emulator's own, under `/emulator`: its faults, its clock, what it holds, what it was asked.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::header;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Api;
use super::error::ApiError;
use super::request::unread;
use crate::faults::FaultPlan;

type Answer = Result<Json<Value>, ApiError>;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route(
            "/faults",
            get(faults).put(set_faults).post(set_faults).delete(no_faults),
        )
        .route("/release", post(release))
        .route("/latency", get(latency).put(set_latency).post(set_latency))
        .route("/clock", get(clock).post(advance))
        .route("/go_away", post(go_away))
        .route("/cut", post(cut))
        .route("/streams", get(streams))
        .route("/calls", get(calls))
}

/// The body of a call that changes something. It must say that it is JSON, which no page of another site can make a
/// browser say without asking first; nor can one make it DELETE.
struct Order(Bytes);

impl FromRequest<Api> for Order {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Api) -> Result<Self, ApiError> {
        let said = request.headers().get(header::CONTENT_TYPE);
        let said = said.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = said.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::invalid(
                "A call that changes the emulator must have the header Content-Type: application/json",
            ));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        Ok(Self(bytes))
    }
}

impl Order {
    fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let mut json = serde_json::Deserializer::from_slice(&self.0);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let (path, reason) = (error.path().to_string(), error.inner());
            match path.as_str() {
                "." => ApiError::invalid(format!("Invalid JSON payload received. {reason}")),
                path => ApiError::invalid(format!("Invalid JSON payload received. {path}: {reason}")),
            }
        })?;
        Ok(read)
    }

    /// Nothing, or an empty object.
    fn is_bare(&self) -> Result<(), ApiError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        if self.0.is_empty() {
            return Ok(());
        }
        self.read::<Nothing>().map(|Nothing {}| ())
    }
}

async fn faults(State(api): State<Api>) -> Json<Value> {
    let rules = api.shared.with(|machine| machine.faults());
    Json(json!({ "rules": rules }))
}

async fn set_faults(State(api): State<Api>, order: Order) -> Answer {
    let text = String::from_utf8_lossy(&order.0);
    let plan = FaultPlan::parse(&text).map_err(|error| ApiError::invalid(error.to_string()))?;
    api.shared.with(|machine| machine.set_faults(plan));
    Ok(faults(State(api)).await)
}

async fn no_faults(State(api): State<Api>) -> Json<Value> {
    api.shared
        .with(|machine| machine.set_faults(FaultPlan::default()));
    faults(State(api)).await
}

async fn release(State(api): State<Api>, order: Order) -> Answer {
    order.is_bare()?;
    api.service.release();
    Ok(Json(Value::Object(Map::new())))
}

async fn go_away(State(api): State<Api>, order: Order) -> Answer {
    order.is_bare()?;
    let connections = api.service.connections();
    api.service.go_away();
    Ok(Json(json!({ "connections": connections })))
}

async fn cut(State(api): State<Api>, order: Order) -> Answer {
    order.is_bare()?;
    let connections = api.service.connections();
    api.service.cut();
    Ok(Json(json!({ "connections": connections })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latency {
    ms: u32,
}

async fn latency(State(api): State<Api>) -> Json<Value> {
    Json(json!({ "ms": api.service.latency_ms() }))
}

async fn set_latency(State(api): State<Api>, order: Order) -> Answer {
    let Latency { ms } = order.read()?;
    api.service.set_latency_ms(u64::from(ms));
    Ok(latency(State(api)).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_ms: u32,
}

async fn clock(State(api): State<Api>) -> Json<Value> {
    Json(json!({ "now_ms": api.shared.now() }))
}

async fn advance(State(api): State<Api>, order: Order) -> Answer {
    let Advance { advance_ms } = order.read()?;
    api.service.advance(advance_ms);
    Ok(clock(State(api)).await)
}

async fn streams(State(api): State<Api>) -> Json<Value> {
    let (streams, ever) = api
        .shared
        .with(|machine| (machine.streams(), machine.streams_created()));
    Json(json!({ "streams": streams, "created": ever }))
}

/// Oldest first.
async fn calls(State(api): State<Api>) -> Json<Value> {
    let calls: Vec<_> = api
        .shared
        .with(|machine| machine.exchanges().map(|exchange| json!(exchange)).collect());
    Json(json!({ "calls": calls }))
}
