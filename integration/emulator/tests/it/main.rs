//! The emulator's tests, in one binary: facts about the pure machine, then the same over a real connection.

mod conformance;
mod grpc;
mod malformed;
mod model;
mod rows;
mod world;
