//! The drop-in connector, compiled without Arroyo. The engine's crates are this one, under their names, as far as the connector uses
//! them: names and shapes are the engine's, what is behind them is only what a test needs.

extern crate self as arroyo_operator;
extern crate self as arroyo_rpc;
extern crate self as arroyo_types;

pub mod api_types;
#[path = "../../bigquery/mod.rs"]
pub mod bigquery;
pub mod connector;
pub mod context;
pub mod errors;
pub mod grpc;
pub mod operator;
mod options;
#[cfg(test)]
mod tests;
mod types;

pub use options::{ConnectorOptions, OperatorConfig};
pub use types::{
    CheckpointBarrier, CheckpointEvent, CheckpointFilePathLayout, ControlResp, SignalMessage, TaskInfo,
};
