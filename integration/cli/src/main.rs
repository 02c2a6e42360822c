//! The command-line tool: runs, checks and inspects pipelines, and starts the emulator.

#![deny(
    clippy::print_stdout,
    reason = "a reader of stdout may have gone: output::print knows"
)]

mod args;
mod check;
mod checkpoint;
mod emulator;
mod failure;
mod output;
mod query;
mod run;
mod sink;
mod table;
mod types;
mod watch;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use args::{Arguments, Command, LogFormat};
use failure::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,gcp_auth=error"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match arguments.log {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    match start(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

/// How long threads that are still at work at the end may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

fn start(command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::running(format!("the runtime cannot be started: {error}")))?;
    let result = runtime.block_on(async {
        match command {
            Command::Run(arguments) => run::run(arguments).await,
            Command::Check(arguments) => check::check(arguments).await,
            Command::Emulator(arguments) => emulator::emulator(arguments).await,
            Command::Query(arguments) => query::query(arguments).await,
            Command::Checkpoint(arguments) => checkpoint::checkpoint(arguments).await,
            Command::Types(arguments) => types::types(&arguments),
        }
    });
    // A thread that hangs on a disk must not keep the process.
    runtime.shutdown_timeout(SHUTDOWN);
    result
}
