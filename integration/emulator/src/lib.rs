//! An emulator of BigQuery's Storage Write API that tells the truth.
//!
//! A pure state machine ([`machine::Machine`]: requests in, answers out, the clock an argument) behind a gRPC shell
//! and a REST shell. In a test:
//!
//! ```no_run
//! # use bigquery_write_emulator::{Config, Emulator};
//! # async fn test() -> Result<(), bigquery_write_emulator::StartError> {
//! let emulator = Emulator::start(Config::default()).await?;
//! let (endpoint, handle) = (emulator.grpc_addr(), emulator.handle());
//! # Ok(())
//! # }
//! ```

pub mod catalog;
pub mod changes;
pub mod faults;
pub mod machine;
pub mod schema;
pub mod shared;

#[allow(dead_code, reason = "the writers of rows come next")]
mod defaults;
mod description;
mod emulator;
mod grpc;
mod journal;
mod query;
mod rest;
mod rows;
mod tls;
mod values;

pub use emulator::{Config, Emulator, Handle, StartError};
pub use journal::DataDirError;
pub use query::{QUERY_TIME_LIMIT, QueryError, QueryOutput};
pub use tls::{TlsError, TlsFiles};
