//! Servers of the tests: certificates, a token server, and a Storage Write API that answers from a script.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_RSA_SHA256, RsaKeySize,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An authority and a server certificate of it for this machine.
pub(crate) struct Certificates {
    /// PEM file of the authority.
    pub(crate) ca: tempfile::NamedTempFile,
    /// The server's chain and key, PEM.
    pub(crate) server: (String, String),
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        Self {
            ca: file(&issuer.pem()),
            server: (server.pem(), key.serialize_pem()),
        }
    }
}

/// Exchanges assertions for the given tokens, one after the other, then refuses.
pub(crate) struct TokenServer {
    address: SocketAddr,
    shared: Arc<Exchange>,
}

struct Exchange {
    tokens: Mutex<Vec<String>>,
    claims: Mutex<Vec<Value>>,
}

impl TokenServer {
    pub(crate) async fn start(tokens: &[&str]) -> Self {
        let tokens = tokens.iter().rev().map(|token| (*token).to_owned()).collect();
        let shared = Arc::new(Exchange {
            tokens: Mutex::new(tokens),
            claims: Mutex::default(),
        });
        let router = Router::new()
            .route("/token", routing::post(exchange))
            .with_state(Arc::clone(&shared));
        let address = serve(router).await;
        Self { address, shared }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}/token", self.address)
    }

    /// A service-account key that is exchanged here.
    pub(crate) fn key(&self) -> String {
        // RSA keys are slow to make; all tests share one.
        static KEY: OnceLock<String> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
                .unwrap()
                .serialize_pem()
        });
        json!({
            "type": "service_account",
            "project_id": "shop",
            "client_email": "sink@shop.iam.gserviceaccount.com",
            "private_key": key,
            "token_uri": self.uri(),
        })
        .to_string()
    }

    pub(crate) fn key_file(&self) -> tempfile::NamedTempFile {
        file(&self.key())
    }

    /// What the assertions claimed.
    pub(crate) fn claims(&self) -> Vec<Value> {
        self.shared.claims.lock().unwrap().clone()
    }
}

async fn exchange(State(exchange): State<Arc<Exchange>>, body: String) -> (StatusCode, Json<Value>) {
    let (_, assertion) = body.split_once("assertion=").unwrap();
    let claims = assertion.split('.').nth(1).unwrap().replace("%3D", "=");
    let claims = serde_json::from_slice(&URL_SAFE.decode(claims).unwrap()).unwrap();
    exchange.claims.lock().unwrap().push(claims);
    match exchange.tokens.lock().unwrap().pop() {
        Some(token) => (
            StatusCode::OK,
            Json(json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})),
        ),
        None => (StatusCode::UNAUTHORIZED, Json(json!({"error": "invalid_grant"}))),
    }
}

/// Serves for the rest of the test.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

pub(crate) fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
