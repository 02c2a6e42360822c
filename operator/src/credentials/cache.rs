//! Keeps a token until shortly before it expires; one renewal at a time, however many ask.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};

use super::{CredentialError, Token, TokenSource};

/// Longest wait for a token, over a renewal of someone else and one of our own.
const WAIT: Duration = Duration::from_secs(30);

/// A token is renewed this long before it expires, or after nine tenths of its life if that is later. Google's own clients
/// take as much; the metadata server hands out the same token until five minutes before its end.
const MARGIN: Duration = Duration::from_secs(225);

/// After a failed renewal a token that is still good is used this long before the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// Gets one fresh token.
pub(super) trait FetchToken: Send + Sync + fmt::Debug {
    fn fetch(&self) -> impl Future<Output = Result<Fetched, CredentialError>> + Send;
}

/// A fresh token and how long it lives.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) token: Token,
    pub(super) lifetime: Duration,
}

/// The cache over a way to fetch.
#[derive(Debug)]
pub(super) struct CachedTokens<F> {
    source: F,
    cached: Mutex<Option<Cached>>,
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Cached {
    token: Token,
    renew_at: Instant,
    expires_at: Instant,
}

impl<F: FetchToken> CachedTokens<F> {
    pub(super) fn new(source: F) -> Self {
        Self {
            source,
            cached: Mutex::new(None),
            renewal: tokio::sync::Mutex::new(()),
        }
    }

    fn fresh(&self) -> Option<Token> {
        let cached = self.lock();
        cached
            .as_ref()
            .filter(|cached| Instant::now() < cached.renew_at)
            .map(|cached| cached.token.clone())
    }

    async fn renew(&self) -> Result<Token, CredentialError> {
        let _one_at_a_time = self.renewal.lock().await;
        // Someone may have renewed while we waited.
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        match self.source.fetch().await {
            Ok(Fetched { token, lifetime }) => {
                let now = Instant::now();
                let margin = MARGIN.min(lifetime / 10);
                let cached = Cached {
                    token: token.clone(),
                    renew_at: now + (lifetime - margin),
                    expires_at: now + lifetime,
                };
                *self.lock() = Some(cached);
                Ok(token)
            }
            Err(error) => self.still_good().ok_or(error),
        }
    }

    /// The old token, if it has not expired; the next renewal is put off.
    fn still_good(&self) -> Option<Token> {
        let now = Instant::now();
        let mut cached = self.lock();
        let cached = cached.as_mut().filter(|cached| now < cached.expires_at)?;
        cached.renew_at = (now + RETRY).min(cached.expires_at);
        Some(cached.token.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Cached>> {
        // Nothing panics while it is held, and the value is replaced as a whole.
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<F: FetchToken> TokenSource for CachedTokens<F> {
    async fn token(&self) -> Result<Token, CredentialError> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        match timeout(WAIT, self.renew()).await {
            Ok(result) => result,
            Err(_) => self.still_good().ok_or_else(|| {
                CredentialError::new(
                    format!(
                        "no access token within {} s: the token server does not answer",
                        WAIT.as_secs()
                    ),
                    true,
                )
            }),
        }
    }

    fn refused(&self, token: &Token) {
        let mut cached = self.lock();
        if cached.as_ref().is_some_and(|cached| cached.token == *token) {
            *cached = None;
        }
    }
}
