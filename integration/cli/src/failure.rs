//! Why a command ended early, and what its exit code says: 1 failed while running, 2 wrong usage or invalid pipeline.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// A message for stderr with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// It failed while running.
    pub(crate) fn running(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 1,
        }
    }

    /// Wrong usage, or a pipeline that cannot run.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 2,
        }
    }

    /// What is underneath, where it says more.
    pub(crate) fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !self.message.contains(&text) {
                self.message.push_str("\n  caused by: ");
                self.message.push_str(&text);
            }
            source = cause.source();
        }
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
