//! TLS for both servers, from one certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A client gets this long to shake hands.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, the server's own first.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not readable.
    #[error("cannot read {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not PEM, or not a certificate or key.
    #[error("{path:?} is not a PEM {what}: {source}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not go together.
    #[error("cannot use the certificate and key for TLS: {0}")]
    Rejected(#[from] rustls::Error),
}

/// Both servers' settings.
pub(crate) struct Tls {
    grpc: TlsAcceptor,
    http: TlsAcceptor,
}

impl TlsFiles {
    pub(crate) fn read(&self) -> Result<Tls, TlsError> {
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        let pem = |path: &Path, what| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, what, source }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&cert)
            .collect::<Result<_, _>>()
            .map_err(pem(&self.cert, "certificate"))?;
        let private = PrivateKeyDer::from_pem_slice(&key).map_err(pem(&self.key, "private key"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsAcceptor::from(Arc::new(config))
        };
        Ok(Tls {
            grpc: speaking(b"h2"),
            http: speaking(b"http/1.1"),
        })
    }
}

impl Tls {
    pub(crate) fn grpc(&self) -> TlsAcceptor {
        self.grpc.clone()
    }

    pub(crate) fn http(&self) -> TlsAcceptor {
        self.http.clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}
