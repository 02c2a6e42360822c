//! What goes over the connection to BigQuery's Storage Write API: message types, names, and (later rooms) statuses and rows.

pub mod names;
pub mod wire;
