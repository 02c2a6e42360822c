//! The exactly-once BigQuery sink: options, transport, and the loop that carries out the protocol's commands.

mod error;
mod host;

pub use bigquery_sink_state::{Epoch, RowCount, SubtaskIndex};
pub use error::{Blame, Retry, SinkError};
pub use host::{Barrier, CloseReason, Committed, CommitReplay, Prepared, Restored, SinkOperator, Task};
