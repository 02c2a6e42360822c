//! Tokens are kept, renewed, replaced and asked for as they should be; errors keep secrets.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use google_cloud_auth::credentials::CacheableResource;
use tokio::time::{Instant, advance, sleep};

use super::cache::{CachedTokens, FetchToken, Fetched};
use super::gcp::{GcpTokens, check_token_uri, substitute};
use super::*;
use crate::options::Credentials;
use crate::testing::TokenServer;

const HOUR: Duration = Duration::from_secs(3600);

/// Hands out `token-1`, `token-2`, ... after a while, or fails as told.
#[derive(Debug, Default)]
struct Script {
    fetches: AtomicUsize,
    delay: Duration,
    failure: Mutex<Option<CredentialError>>,
    lifetime: Duration,
}

impl FetchToken for &'static Script {
    async fn fetch(&self) -> Result<Fetched, CredentialError> {
        sleep(self.delay).await;
        let number = self.fetches.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(error) = self.failure.lock().unwrap().clone() {
            return Err(error);
        }
        Ok(Fetched {
            token: Token::new(format!("token-{number}")),
            lifetime: self.lifetime,
        })
    }
}

fn script(delay: Duration, lifetime: Duration) -> (&'static Script, CachedTokens<&'static Script>) {
    let script: &Script = Box::leak(Box::new(Script {
        delay,
        lifetime,
        ..Script::default()
    }));
    (script, CachedTokens::new(script))
}

fn away() -> CredentialError {
    CredentialError::new("no access token: the token server is away", true)
}

#[tokio::test(start_paused = true)]
async fn a_token_is_kept_until_shortly_before_it_expires() {
    let (script, tokens) = script(Duration::ZERO, HOUR);
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    advance(HOUR - Duration::from_secs(226)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    advance(Duration::from_secs(1)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-2")));
    assert_eq!(script.fetches.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_lived_token_is_used_for_nine_tenths_of_its_life() {
    let (_, tokens) = script(Duration::ZERO, Duration::from_secs(100));
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    advance(Duration::from_secs(89)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    advance(Duration::from_secs(1)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-2")));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_who_ask_at_once_cost_one_renewal() {
    let (script, tokens) = script(Duration::from_secs(2), HOUR);
    let all = futures::future::join_all((0..100).map(|_| tokens.token())).await;
    assert!(all.iter().all(|token| *token == Ok(Token::new("token-1"))));
    assert_eq!(script.fetches.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_still_lives_is_used_while_renewing_fails() {
    let (script, tokens) = script(Duration::ZERO, HOUR);
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    *script.failure.lock().unwrap() = Some(away());
    advance(HOUR - Duration::from_secs(100)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    // The next attempt is put off: asking again is no call.
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    assert_eq!(script.fetches.load(Ordering::Relaxed), 2);
    advance(Duration::from_secs(10)).await;
    assert_eq!(tokens.token().await, Ok(Token::new("token-1")));
    assert_eq!(script.fetches.load(Ordering::Relaxed), 3);
    advance(Duration::from_secs(90)).await;
    assert_eq!(tokens.token().await, Err(away()));
    *script.failure.lock().unwrap() = None;
    assert_eq!(tokens.token().await, Ok(Token::new("token-5")));
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_not_handed_out_again() {
    let (_, tokens) = script(Duration::ZERO, HOUR);
    let first = tokens.token().await.unwrap();
    tokens.refused(&first);
    assert_eq!(tokens.token().await, Ok(Token::new("token-2")));
    // Late news about the first says nothing about the second.
    tokens.refused(&first);
    assert_eq!(tokens.token().await, Ok(Token::new("token-2")));
}

#[tokio::test(start_paused = true)]
async fn a_token_server_that_never_answers_is_waited_for_half_a_minute() {
    let (_, tokens) = script(HOUR, HOUR);
    let start = Instant::now();
    let all = futures::future::join_all((0..3).map(|_| tokens.token())).await;
    let late = "no access token within 30 s: the token server does not answer";
    assert!(
        all.iter()
            .all(|token| token.as_ref().unwrap_err().to_string() == late)
    );
    assert!(all.iter().all(|token| token.as_ref().unwrap_err().is_passing()));
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[tokio::test]
async fn a_key_is_exchanged_at_its_token_uri_for_tokens_of_the_right_scopes() {
    let server = TokenServer::start(&["one", "two"]).await;
    let file = server.key_file();
    let tokens = CachedTokens::new(GcpTokens::new(&Credentials::File(
        file.path().to_str().unwrap().to_owned(),
    )));
    let first = tokens.token().await.unwrap();
    assert_eq!(first, Token::new("one"));
    assert_eq!(tokens.token().await, Ok(Token::new("one")));
    tokens.refused(&first);
    assert_eq!(tokens.token().await, Ok(Token::new("two")));

    let claims = server.claims();
    assert_eq!(claims.len(), 2);
    assert_eq!(claims[0]["iss"], "sink@shop.iam.gserviceaccount.com");
    assert_eq!(claims[0]["aud"], server.uri());
    assert_eq!(
        claims[0]["scope"],
        "https://www.googleapis.com/auth/bigquery https://www.googleapis.com/auth/bigquery.insertdata"
    );
}

#[tokio::test]
async fn a_token_server_that_refuses_is_told_without_the_key() {
    let server = TokenServer::start(&[]).await;
    let error = failure(&Credentials::File(server.key())).await;
    assert_eq!(error.to_string(), "no access token: token request failed");
    assert!(error.is_passing());
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_an_error_that_says_why_and_keeps_the_secret() {
    static SECRET: &str = "hunter2";
    let key = |kind: &str, uri: &str| {
        format!(
            r#"{{"type": "{kind}", "client_email": "a@b", "private_key": "{SECRET}", "token_uri": "{uri}"}}"#
        )
    };
    let of = "the key in option 'credentials'";
    for (json, expected) in [
        (
            key("authorized_user", "https://t"),
            format!("{of} is of type 'authorized_user'; only 'service_account' can be read from a file"),
        ),
        (
            key("service_account", "http://10.0.0.1/token"),
            format!(
                "{of} has a 'token_uri' that cannot be used: it is http:// on another machine, and the answer would be readable by \
                 everyone in between"
            ),
        ),
        (
            key("service_account", "not an address"),
            format!("{of} has a 'token_uri' that cannot be used: relative URL without a base"),
        ),
        (
            key("service_account", "https://t"),
            format!("{of} cannot be used: failed to parse PKCS#8 RSA key pair: no items found"),
        ),
        (
            format!(r#"{{"private_key": "{SECRET}"}}"#),
            format!("{of} has no 'token_uri'"),
        ),
        (
            format!(r#"{{"token_uri": {{"a": "{SECRET}"}}}}"#),
            format!("{of} is no valid JSON key (line 1, column 14)"),
        ),
        (
            format!(r#"{{"private_key": "{SECRET}"#),
            format!("{of} is no valid JSON key (line 1, column 24)"),
        ),
    ] {
        let error = failure(&Credentials::File(json)).await;
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_passing());
    }
    let missing = failure(&Credentials::File("/nowhere/key.json".to_owned())).await;
    assert_eq!(
        missing.to_string(),
        "cannot read the key file '/nowhere/key.json': No such file or directory (os error 2)"
    );
    let unset = failure(&Credentials::File(
        "{{ ARROYO_BIGQUERY_NO_SUCH_VARIABLE }}".to_owned(),
    ))
    .await;
    assert_eq!(
        unset.to_string(),
        "option 'credentials': environment variable 'ARROYO_BIGQUERY_NO_SUCH_VARIABLE' is not set where the sink runs"
    );
}

#[test]
fn a_plaintext_token_uri_is_for_this_machine_only() {
    for good in [
        "https://oauth2.googleapis.com/token",
        "http://127.0.0.1:8080/token",
        "http://localhost/t?x=1",
    ] {
        assert_eq!(check_token_uri(good), Ok(()), "{good}");
    }
    for bad in [
        "http://oauth2.googleapis.com/token",
        "file:///token",
        "https:///token path",
        "",
        "http://127.0.0.1.example.com/",
    ] {
        assert!(check_token_uri(bad).is_err(), "{bad}");
    }
}

#[test]
fn environment_variables_are_put_in_place_of_their_names() {
    let variable = |name: &str| (name == "KEY").then(|| "{{ x }}/key".to_owned());
    assert_eq!(substitute("/a", variable), Ok("/a".to_owned()));
    // What comes out of a variable is not looked at again.
    assert_eq!(
        substitute("/{{ KEY }}.json{{KEY}}", variable),
        Ok("/{{ x }}/key.json{{ x }}/key".to_owned())
    );
    assert_eq!(
        substitute("{{ KEY", variable).unwrap_err().to_string(),
        "option 'credentials': '{{' without '}}'"
    );
}

#[tokio::test(start_paused = true)]
async fn googles_clients_get_the_token_and_the_quota_project() {
    let (_, tokens) = script(Duration::ZERO, HOUR);
    let credentials = google_credentials(Some(Arc::new(tokens)), Some("billing"));
    let CacheableResource::New { data, .. } = credentials.headers(http::Extensions::new()).await.unwrap()
    else {
        panic!("no headers");
    };
    assert_eq!(data["authorization"], "Bearer token-1");
    assert!(data["authorization"].is_sensitive());
    assert_eq!(data["x-goog-user-project"], "billing");

    let CacheableResource::New { data, .. } = google_credentials(None, None)
        .headers(http::Extensions::new())
        .await
        .unwrap()
    else {
        panic!("no headers");
    };
    assert!(data.is_empty());
}

#[test]
fn tokens_are_not_printed() {
    let mut text = String::new();
    write!(text, "{:?}", Token::new("hunter2")).unwrap();
    assert_eq!(text, "Token(..)");
    assert_eq!(
        Token::new("line\nbreak").header().unwrap_err().to_string(),
        "the access token holds characters that no header can carry"
    );
}

#[test]
fn no_source_is_made_when_every_endpoint_is_plaintext() {
    let options = |grpc: &str| {
        let pairs = [
            ("project", "p"),
            ("dataset", "d"),
            ("table", "t"),
            ("endpoint.http", "http://127.0.0.1:1"),
            ("endpoint.grpc", grpc),
        ];
        let pairs: Vec<_> = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        SinkOptions::parse(&pairs).unwrap()
    };
    assert!(token_source(&options("http://127.0.0.1:2")).is_none());
    assert!(token_source(&options("https://127.0.0.1:2")).is_some());
}

async fn failure(credentials: &Credentials) -> CredentialError {
    match GcpTokens::new(credentials).fetch().await {
        Ok(_) => panic!("a token"),
        Err(error) => error,
    }
}
