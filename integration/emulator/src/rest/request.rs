//! What comes with a call: query parameters as clients spell them, and JSON bodies.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use serde_json::{Map, Value};

use crate::rest::error::ApiError;
use crate::rest::rows::TimestampFormat;

/// The query parameters of a call.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::invalid(error.body_text()))?;
        Ok(Self(pairs))
    }
}

impl Params {
    /// The parameter, unless it is empty; the last one counts.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let last = self.0.iter().rev().find(|(other, _)| other == name);
        last.map(|(_, value)| value.as_str())
            .filter(|text| !text.is_empty())
    }

    /// A parameter that can come several times.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(other, _)| other == name);
        values
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// A boolean; Python's client writes `True`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A number that is not negative.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let number = self.text(name).map(str::parse).transpose();
        number.map_err(|_| ApiError::invalid(format!("Invalid value for {name}: it must be a number >= 0")))
    }

    /// How to write TIMESTAMP values.
    pub(super) fn timestamps(&self) -> TimestampFormat {
        let output = self
            .text("formatOptions.timestampOutputFormat")
            .unwrap_or_default();
        timestamp_format(self.flag("formatOptions.useInt64Timestamp"), output)
    }
}

/// `formatOptions`, from a query string or a body.
pub(super) fn timestamp_format(int64: bool, output: &str) -> TimestampFormat {
    match output {
        "INT64" => TimestampFormat::Int64,
        "ISO8601_STRING" => TimestampFormat::Iso8601,
        _ if int64 => TimestampFormat::Int64,
        _ => TimestampFormat::Float64,
    }
}

/// A JSON object; an empty body is an empty one.
#[derive(Debug)]
pub(super) struct Body(pub(super) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Self).map_err(|error| {
            ApiError::new(
                400,
                "parseError",
                format!("Invalid JSON payload received. {error}"),
            )
        })
    }
}

pub(super) fn unread(error: BytesRejection) -> ApiError {
    match error.status().as_u16() {
        413 => ApiError::new(413, "uploadTooLarge", "Request payload size exceeds the limit"),
        _ => ApiError::invalid(error.body_text()),
    }
}

/// Removes a reference such as `tableReference` from a body and returns its `key`, after checking that its
/// other parts, where they are given, are those of the path.
pub(super) fn take_reference(
    body: &mut Map<String, Value>,
    reference: &str,
    key: &str,
    path: &[(&str, &str)],
) -> Result<String, ApiError> {
    let given = body.remove(reference).unwrap_or(Value::Null);
    for (part, expected) in path {
        match given.get(part).and_then(Value::as_str) {
            Some(other) if !other.is_empty() && other != *expected => {
                let text =
                    format!("Value '{other}' of {reference}.{part} is not that of the path: '{expected}'");
                return Err(ApiError::invalid(text));
            }
            _ => {}
        }
    }
    match given.get(key).and_then(Value::as_str) {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        _ => Err(ApiError::new(
            400,
            "required",
            "Required parameter is missing: ".to_owned() + key,
        )),
    }
}
