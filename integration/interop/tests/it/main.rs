//! Against an emulator in this process: Google's Rust client with Arrow rows, and every type of a pipeline into every type of a column.

#![allow(
    clippy::unwrap_used,
    reason = "clippy lets test functions unwrap, but not their helpers"
)]

mod connections;
mod scenario;
mod types;
mod world;
