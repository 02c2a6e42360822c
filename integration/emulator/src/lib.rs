//! An emulator of BigQuery's Storage Write API that tells the truth.
//!
//! A pure state machine ([`machine::Machine`]: requests in, answers out, the clock an argument) behind a gRPC shell
//! and a REST shell. In a test:
//!
//! ```
//! # use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
//! # use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
//! use bigquery_write_emulator::{Config, Emulator};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let emulator = Emulator::start(Config::default()).await?;
//! let (endpoint, handle) = (format!("http://{}", emulator.grpc_addr()), emulator.handle());
//! # let table = TableRef::new("p", "d", "t");
//! # handle.create_dataset(&table.dataset_ref(), "")?;
//! # handle.create_table(&table, Schema { columns: vec![Column::new("n", Kind::Int64, Mode::Nullable)] })?;
//! # assert!(endpoint.starts_with("http://127.0.0.1:"));
//!
//! // What the code under test did to it.
//! assert_eq!(handle.rows(&table)?.num_rows(), 0);
//! assert_eq!(handle.query("p", None, "SELECT COUNT(*) FROM d.t").await?.rows.num_rows(), 1);
//! for stream in handle.streams() {
//!     println!("{}: end {}, flushed {}, finalized {}", stream.name, stream.end, stream.flushed, stream.finalized);
//! }
//! // A week later its BUFFERED streams have expired.
//! handle.advance(7 * 86_400_000 + 1);
//! assert_eq!(handle.streams(), []);
//! # Ok(())
//! # }
//! ```
//!
//! `Config::data_dir` keeps everything for the next emulator, [`Handle::set_faults`] lets things go wrong,
//! [`Handle::observe`] tells of rows in the moment they become visible.

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
pub use rest::is_of_another_site;
pub use tls::{TlsError, TlsFiles};
