//! Errors of the sink: whose fault, whether a restart helps, and what to do next.

use std::error::Error;
use std::fmt;

/// Who can mend it. The engine's `ErrorDomain` has the same three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The pipeline, its options or the table: a person has to change something.
    User,
    /// BigQuery, the network or another writer.
    External,
    /// This project.
    Internal,
}

/// Whether starting again from the newest completed checkpoint can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same error would come again.
    Never,
    /// The host restarts from the newest completed checkpoint.
    Restart,
}

/// An error that reached the host. Its text never holds credentials or row values.
pub struct SinkError {
    blame: Blame,
    retry: Retry,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SinkError {
    /// An error of the given kind.
    pub fn new(blame: Blame, retry: Retry, message: impl Into<String>) -> Self {
        Self {
            blame,
            retry,
            message: message.into(),
            source: None,
        }
    }

    /// A mistake in the pipeline, its options or the table; no restart helps.
    pub fn user(message: impl Into<String>) -> Self {
        Self::new(Blame::User, Retry::Never, message)
    }

    /// A fault outside that a restart may outlive.
    pub fn external(message: impl Into<String>) -> Self {
        Self::new(Blame::External, Retry::Restart, message)
    }

    /// A broken promise of our own; the state on disk is good, so a restart may help.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Blame::Internal, Retry::Restart, message)
    }

    /// Keeps the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says first what it is about.
    #[must_use]
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.blame
    }

    /// Whether a restart from the newest completed checkpoint can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}: {}", self.blame, self.retry, self.message)?;
        let mut source: Option<&dyn Error> = Error::source(self);
        while let Some(error) = source {
            write!(f, "\n  caused by: {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
