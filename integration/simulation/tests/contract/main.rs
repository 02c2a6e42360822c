//! The engine's contract (Arroyo's), replayed in its call orders through what the drop-in connector uses, against the emulator. Tests are
//! named by the traps of the engine that they are about. T17 is checked where metrics are made; T20, and the translation itself (T4 to T8,
//! T13), among the stub's tests. Nothing is here of T21 (updating queries), T22 (the barrier's time, which is not used) and T23 (the state folder of the engine).
#![allow(clippy::unwrap_used, reason = "a test's own mistakes may panic")]

mod columns;
mod commits;
mod endings;
mod engine;
mod failures;
mod order;
