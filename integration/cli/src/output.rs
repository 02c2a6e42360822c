//! What goes to stdout.

use std::io::{ErrorKind, Write as _};

use crate::failure::Failure;

/// Writes text to stdout. Where the reader has gone (`| head`), the process ends: nobody is left to tell.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::running(format!("stdout cannot be written: {error}"))),
    }
}
