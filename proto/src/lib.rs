//! What goes over the connection to BigQuery's Storage Write API: message types, names, refusals and rows.

pub mod names;
pub mod rows;
pub mod status;
pub mod wire;
