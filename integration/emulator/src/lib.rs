//! An emulator of BigQuery's Storage Write API that tells the truth.

pub mod catalog;
pub mod machine;
pub mod schema;
pub mod shared;
