//! Access tokens: where they come from, how long they are kept, and the adapter for Google's own clients.

mod cache;
mod gcp;
mod google;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::options::{Credentials, Endpoint, SinkOptions};

pub use self::google::google_credentials;

/// What the sink asks for: writing rows and creating tables.
const SCOPES: &[&str] = &[
    "https://www.googleapis.com/auth/bigquery",
    "https://www.googleapis.com/auth/bigquery.insertdata",
];

/// An access token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Wraps the bearer token's text.
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// The value of an `authorization` header, marked as sensitive.
    pub(crate) fn header(&self) -> Result<http::HeaderValue, CredentialError> {
        let mut value = http::HeaderValue::try_from(format!("Bearer {}", self.0)).map_err(|_| {
            CredentialError::new(
                "the access token holds characters that no header can carry",
                false,
            )
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Where access tokens come from. Callers ask before every call: keeping and renewing is the source's part.
#[async_trait]
pub trait TokenSource: Send + Sync + fmt::Debug {
    /// A token that is good for a while. Waits a bounded time.
    async fn token(&self) -> Result<Token, CredentialError>;

    /// Says that BigQuery answered UNAUTHENTICATED to this token: it is not handed out again.
    fn refused(&self, token: &Token);
}

/// No token could be had. The text names files and reasons, never keys or tokens.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct CredentialError {
    message: String,
    passing: bool,
}

impl CredentialError {
    pub(crate) fn new(message: impl Into<String>, passing: bool) -> Self {
        Self {
            message: message.into(),
            passing,
        }
    }

    /// Whether the same attempt may succeed later: the token server was away. Otherwise someone has to change something.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.passing
    }
}

/// The token source the options name; none if no endpoint asks for one (`http://` endpoints are never sent a credential).
/// Looks nothing up: that happens with the first token.
#[must_use]
pub fn token_source(options: &SinkOptions) -> Option<Arc<dyn TokenSource>> {
    let endpoints = &options.endpoints;
    let wanted = [&endpoints.grpc, &endpoints.http]
        .into_iter()
        .any(|endpoint| !Endpoint::is_plaintext(endpoint));
    wanted.then(|| tokens_of(&options.credentials))
}

/// The tokens of some credentials, for whom no sink's options apply. Never to be sent to an `http://` endpoint.
#[must_use]
pub fn tokens_of(credentials: &Credentials) -> Arc<dyn TokenSource> {
    Arc::new(cache::CachedTokens::new(gcp::GcpTokens::new(credentials)))
}
