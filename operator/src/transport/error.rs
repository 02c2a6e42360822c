//! Why a call failed: code, text and BigQuery's own code; and plain words for what the network did.

use std::error::Error;
use std::fmt;
use std::io;

use bigquery_write_proto::status::{OffsetMismatch, Refusal};
use bigquery_write_proto::wire::StorageError;
use tonic::{Code, ConnectError, Status};

use crate::credentials::CredentialError;
use crate::options::Endpoint;

/// A call that failed, by the server's word or on the way. Its text holds no credentials.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallError {
    /// The gRPC code; what to do about it is decided elsewhere.
    pub code: Code,
    /// The server's text, or ours where the call did not get to the server.
    pub message: String,
    /// BigQuery's own code and entity, if the server told them.
    pub storage_error: Option<StorageError>,
    needs_change: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl CallError {
    /// An error of our own.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            storage_error: None,
            needs_change: false,
            source: None,
        }
    }

    /// A wrong option, found before any call.
    pub(super) fn misconfigured(message: impl Into<String>) -> Self {
        Self {
            needs_change: true,
            ..Self::new(Code::InvalidArgument, message)
        }
    }

    /// Keeps the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the call's status says. If the network failed, the text names the endpoint and what happened to it.
    pub(super) fn from_status(status: Status, endpoint: &Endpoint) -> Self {
        let message = network_failure(&status, endpoint).unwrap_or_else(|| status.message().to_owned());
        let storage_error = Refusal::from_call(&status).storage;
        let needs_change = causes(&status).filter_map(tls_error).any(is_untrusted);
        Self {
            code: status.code(),
            message,
            storage_error,
            needs_change,
            source: Some(Box::new(status)),
        }
    }

    /// No token, so no call.
    pub(super) fn from_credentials(error: CredentialError) -> Self {
        let code = if error.is_passing() {
            Code::Unavailable
        } else {
            Code::Unauthenticated
        };
        let message = format!("no credentials: {error}");
        Self {
            needs_change: !error.is_passing(),
            ..Self::new(code, message).with_source(error)
        }
    }

    /// The offsets an offset error tells.
    #[must_use]
    pub fn offsets(&self) -> Option<OffsetMismatch> {
        offsets(self.code, &self.message, self.storage_error.as_ref())
    }

    /// Whether no attempt can succeed until someone changes an option, a certificate or a credential.
    #[must_use]
    pub fn needs_change(&self) -> bool {
        self.needs_change
    }

    /// Why no token could be had, if that is why the call failed.
    #[must_use]
    pub fn credentials(&self) -> Option<&CredentialError> {
        self.source.as_ref()?.downcast_ref()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.code)
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// The offsets an offset error tells, out of its text.
pub(super) fn offsets(code: Code, message: &str, storage: Option<&StorageError>) -> Option<OffsetMismatch> {
    Refusal {
        code,
        message: message.to_owned(),
        storage: storage.cloned(),
    }
    .offsets()
}

/// What the network did, in plain words; none if the server answered.
fn network_failure(status: &Status, endpoint: &Endpoint) -> Option<String> {
    if let Some(error) = causes(status).find_map(tls_error) {
        return Some(format!(
            "cannot reach {endpoint}: TLS failed: {}",
            tls_reason(error)
        ));
    }
    let what = if causes(status).any(|cause| cause.is::<ConnectError>()) {
        "cannot reach"
    } else {
        "lost the connection to"
    };
    causes(status)
        .last()
        .map(|cause| format!("{what} {endpoint}: {cause}"))
}

fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn tls_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let within = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    cause
        .downcast_ref()
        .or_else(|| within.and_then(|within| within.downcast_ref()))
}

fn is_untrusted(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_))
}

fn tls_reason(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error};
    match error {
        // A bad signature is what another authority of the same name leaves behind.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is signed by an authority that is not trusted; give the authority's PEM file as option 'endpoint.ca'".to_owned()
        }
        Error::InvalidMessage(_) => format!("{error}; if the server speaks plaintext there, its address begins with http://"),
        error => error.to_string(),
    }
}
