//! Our tokens as the credentials of Google's generated clients.

use std::sync::Arc;

use google_cloud_auth::credentials::{
    CacheableResource, Credentials, CredentialsProvider, EntityTag, anonymous,
};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue, header};
use rustls::crypto::aws_lc_rs;

use super::{CredentialError, TokenSource};

/// Credentials for one of Google's clients; without a source, none are sent.
pub fn google_credentials(tokens: Option<Arc<dyn TokenSource>>, quota_project: Option<&str>) -> Credentials {
    // These clients bring no TLS provider. An error says that the process has one, which will do.
    drop(aws_lc_rs::default_provider().install_default());
    match tokens {
        Some(tokens) => Credentials::from(Adapter {
            tokens,
            quota_project: quota_project.map(str::to_owned),
        }),
        None => anonymous::Builder::new().build(),
    }
}

#[derive(Debug)]
struct Adapter {
    tokens: Arc<dyn TokenSource>,
    quota_project: Option<String>,
}

impl CredentialsProvider for Adapter {
    async fn headers(&self, _: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let failed = |error: CredentialError| CredentialsError::from_source(error.is_passing(), error);
        let mut data = HeaderMap::new();
        data.insert(
            header::AUTHORIZATION,
            self.tokens
                .token()
                .await
                .map_err(failed)?
                .header()
                .map_err(failed)?,
        );
        if let Some(project) = &self.quota_project {
            let value = HeaderValue::try_from(project)
                .map_err(|error| CredentialsError::from_source(false, error))?;
            data.insert("x-goog-user-project", value);
        }
        // The source keeps tokens; a tag that never matches means "ask every time".
        Ok(CacheableResource::New {
            entity_tag: EntityTag::new(),
            data,
        })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}
