//! The exactly-once BigQuery sink: options, transport, and the loop that carries out the protocol's commands.

mod clock;
pub mod credentials;
pub mod engine;
mod error;
mod host;
pub mod metrics;
pub mod options;
mod probe;
mod sink;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod transport;

pub use bigquery_sink_state::{Epoch, Mutant, Mutation, RowCount, SubtaskIndex};
pub use error::{Blame, Retry, SinkError};
pub use host::{Barrier, CloseReason, CommitReplay, Committed, Prepared, Restored, SinkOperator, Task};
pub use metrics::Metrics;
pub use probe::{CommandKind, Moment, Probe};
pub use sink::{BigQuerySink, Environment, TableLook, TableLooks};
