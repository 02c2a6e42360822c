//! The embedded host: SQL, sources, barriers, checkpoints.

pub mod store;
