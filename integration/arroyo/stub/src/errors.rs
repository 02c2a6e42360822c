//! Errors as the engine wants them.

/// The result of a handler.
pub type DataflowResult<T> = Result<T, DataflowError>;

/// What went wrong.
#[derive(Debug)]
pub enum DataflowError {
    /// Of a state table.
    StateError(StateError),
    /// Of a connector.
    ConnectorError {
        /// Whose fault.
        domain: ErrorDomain,
        /// Whether a restart may help.
        retry: RetryHint,
        /// What is shown.
        error: String,
        /// What is behind it.
        source: Option<anyhow::Error>,
    },
}

/// No such state table.
#[derive(Debug)]
pub struct StateError;

impl From<StateError> for DataflowError {
    fn from(error: StateError) -> Self {
        Self::StateError(error)
    }
}

/// Whose fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorDomain {
    /// The pipeline's.
    User,
    /// Somebody else's.
    External,
    /// The engine's.
    Internal,
}

/// Whether a restart may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryHint {
    /// No.
    NoRetry,
    /// Yes, after a pause.
    WithBackoff,
}
