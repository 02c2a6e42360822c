//! Tokens from `gcp_auth`: application default credentials or a service-account key.

use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gcp_auth::{CustomServiceAccount, TokenProvider};
use serde::Deserialize;

use super::cache::{FetchToken, Fetched};
use super::{CredentialError, SCOPES, Token};
use crate::options::{Credentials, Endpoint};

const ADC_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Fetches tokens as `credentials` says. A provider is built for every fetch (once an hour): `gcp_auth` keeps tokens of its own and
/// cannot be told that one was refused, and a key file that was replaced is read again.
#[derive(Debug)]
pub(super) struct GcpTokens {
    credentials: Credentials,
}

/// A key as read, checked and not yet used.
struct Key {
    /// Where it came from, for errors.
    origin: String,
    json: String,
}

/// What is looked at before `gcp_auth` gets the key; the secret part is not among it.
#[derive(Deserialize)]
struct KeyFields {
    #[serde(rename = "type")]
    kind: Option<String>,
    token_uri: Option<String>,
}

impl GcpTokens {
    pub(super) fn new(credentials: &Credentials) -> Self {
        Self {
            credentials: credentials.clone(),
        }
    }

    async fn key(&self) -> Result<Option<Key>, CredentialError> {
        match &self.credentials {
            Credentials::File(text) => Key::read(&substitute(text, |name| env::var(name).ok())?)
                .await
                .map(Some),
            // Read here and not by gcp_auth, so that the same checks hold for it.
            Credentials::Adc => match env::var(ADC_VARIABLE) {
                Ok(path) => Key::read(&path).await.map(Some),
                Err(_) => Ok(None),
            },
        }
    }
}

impl FetchToken for GcpTokens {
    async fn fetch(&self) -> Result<Fetched, CredentialError> {
        let provider: Arc<dyn TokenProvider> = match self.key().await? {
            Some(key) => Arc::new(key.account()?),
            None => gcp_auth::provider().await.map_err(|error| {
                let message = format!(
                    "no application default credentials: {}; set {ADC_VARIABLE}, run `gcloud auth application-default login`, or give \
                     option 'credentials'",
                    explain(&error)
                );
                CredentialError::new(message, is_passing(&error))
            })?,
        };
        let token = provider.token(SCOPES).await.map_err(|error| {
            CredentialError::new(
                format!("no access token: {}", explain(&error)),
                is_passing(&error),
            )
        })?;
        let expires_at = SystemTime::from(token.expires_at());
        let lifetime = expires_at
            .duration_since(SystemTime::now())
            .unwrap_or(Duration::ZERO);
        Ok(Fetched {
            token: Token::new(token.as_str()),
            lifetime,
        })
    }
}

impl Key {
    /// Reads a key: the value itself if it is JSON, the file of that path otherwise.
    async fn read(value: &str) -> Result<Self, CredentialError> {
        if value.trim_start().starts_with('{') {
            return Ok(Self {
                origin: "the key in option 'credentials'".to_owned(),
                json: value.to_owned(),
            });
        }
        let json = tokio::fs::read_to_string(Path::new(value))
            .await
            .map_err(|error| {
                CredentialError::new(format!("cannot read the key file '{value}': {error}"), false)
            })?;
        Ok(Self {
            origin: format!("the key file '{value}'"),
            json,
        })
    }

    fn account(self) -> Result<CustomServiceAccount, CredentialError> {
        let Self { origin, json } = self;
        let wrong = |what: String| CredentialError::new(format!("{origin} {what}"), false);
        // serde's own text may quote the file, which is secret.
        let fields: KeyFields = serde_json::from_str(&json).map_err(|error| {
            wrong(format!(
                "is no valid JSON key (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        if let Some(kind) = fields.kind.filter(|kind| kind != "service_account") {
            return Err(wrong(format!(
                "is of type '{kind}'; only 'service_account' can be read from a file"
            )));
        }
        let uri = fields
            .token_uri
            .ok_or_else(|| wrong("has no 'token_uri'".to_owned()))?;
        check_token_uri(&uri)
            .map_err(|reason| wrong(format!("has a 'token_uri' that cannot be used: {reason}")))?;
        CustomServiceAccount::from_json(&json)
            .map_err(|error| wrong(format!("cannot be used: {}", explain(&error))))
    }
}

/// The signed assertion goes there, which is as good as the key for an hour: TLS, or this machine. (gcp_auth would panic on a
/// text that is no address.)
pub(super) fn check_token_uri(uri: &str) -> Result<(), String> {
    let uri = url::Url::parse(uri).map_err(|error| error.to_string())?;
    uri.as_str()
        .parse::<http::Uri>()
        .map_err(|error| error.to_string())?;
    let origin = Endpoint::parse(&uri.origin().ascii_serialization())?;
    if origin.is_plaintext() && !origin.is_loopback() {
        return Err(
            "it is http:// on another machine, and the answer would be readable by everyone in between"
                .to_owned(),
        );
    }
    Ok(())
}

/// Puts environment variables in place of `{{ NAME }}`, as the engine does.
pub(super) fn substitute(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, CredentialError> {
    let wrong = |what: String| CredentialError::new(format!("option 'credentials': {what}"), false);
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after
            .split_once("}}")
            .ok_or_else(|| wrong("'{{' without '}}'".to_owned()))?;
        let name = name.trim();
        let value = variable(name).ok_or_else(|| {
            wrong(format!(
                "environment variable '{name}' is not set where the sink runs"
            ))
        })?;
        result.push_str(before);
        result.push_str(&value);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// The error's reasons on one line. JSON errors keep their place only, since their text quotes the document.
fn explain(error: &gcp_auth::Error) -> String {
    use gcp_auth::Error::{Http, Io, Json, NoAuthMethod, Other, Str};
    match error {
        NoAuthMethod(gcloud, metadata, user) => format!(
            "gcloud: {}; metadata server: {}; user: {}",
            explain(gcloud),
            explain(metadata),
            explain(user)
        ),
        Json(what, error) => format!("{what} (line {}, column {})", error.line(), error.column()),
        Http(what, error) => format!("{what}: {error}"),
        Io(what, error) => format!("{what}: {error}"),
        Other(what, error) => {
            let mut text = format!("{what}: {error}");
            let mut source = error.source();
            while let Some(error) = source {
                text = format!("{text}: {error}");
                source = error.source();
            }
            text
        }
        Str(what) => (*what).to_owned(),
    }
}

fn is_passing(error: &gcp_auth::Error) -> bool {
    matches!(
        error,
        gcp_auth::Error::Http(..)
            | gcp_auth::Error::Other("HTTP request failed", _)
            | gcp_auth::Error::Str("token request failed")
    )
}
