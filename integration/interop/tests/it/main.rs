//! Google's Rust client, with Arrow rows, against an emulator in this process.

#![allow(
    clippy::unwrap_used,
    reason = "clippy lets test functions unwrap, but not their helpers"
)]

mod connections;
mod scenario;
mod world;
