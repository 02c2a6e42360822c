//! Where a store lives: a folder, or a URL of an object store.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::StoreError;

/// A parsed location. Prints without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// A local folder.
    Folder(PathBuf),
    /// An object store (`gs://`, `s3://`, `az://`, `abfss://`, `https://` of these) with a prefix.
    Url(Url),
}

impl StoreLocation {
    /// Reads a folder (absolute, or relative to the working directory), a `file://` URL, or an object store's URL.
    ///
    /// # Errors
    /// [`StoreError::Location`] for an empty text, a malformed URL, or one that carries a password.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let refuse = |location: &str, reason: String| StoreError::Location {
            location: location.to_owned(),
            reason,
        };
        if text.is_empty() {
            return Err(refuse(text, "it is empty".into()));
        }
        let Some((scheme, _)) = text.split_once("://") else {
            return Ok(Self::Folder(PathBuf::from(text)));
        };
        let url = Url::parse(text).map_err(|error| refuse(&format!("{scheme}://..."), error.to_string()))?;
        let shown = without_secrets(&url);
        if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            let reason = "a password, query or fragment does not belong into it; credentials come from the environment";
            return Err(refuse(&shown, reason.into()));
        }
        if scheme.eq_ignore_ascii_case("file") {
            let folder = url
                .to_file_path()
                .map_err(|()| refuse(&shown, "it names no local folder".into()))?;
            return Ok(Self::Folder(folder));
        }
        Ok(Self::Url(url))
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Url(url) => f.write_str(&without_secrets(url)),
        }
    }
}

/// `abfss://container@account` needs its user part; a password is never shown.
fn without_secrets(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    if url.password().is_some() && url.set_password(None).is_err() {
        return format!("{}://...", url.scheme());
    }
    url.into()
}
