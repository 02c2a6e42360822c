//! The emulator's tests, in one binary: facts about the pure machine, then the same over a real connection.

#![allow(
    clippy::unwrap_used,
    reason = "clippy lets test functions unwrap, but not their helpers"
)]

mod conformance;
mod data_dir;
mod determinism;
mod discard;
mod docs;
mod grpc;
mod malformed;
mod message;
mod model;
mod rows;
mod sever;
mod spans;
mod unlearned;
mod world;
