//! The engine's contract (Arroyo's), replayed in its call orders through what the drop-in connector uses, against the emulator. Tests are
//! named by the traps of the engine that they are about, T1 to T26; those that are not here do not concern the sink (T23), or are about what it does not do: T16, T20,
//! T21 and T22. T17 is checked where metrics are made, and the translation itself (also T5 to T7, T13) in the stub's tests.
#![allow(clippy::unwrap_used, reason = "a test's own mistakes may panic")]

mod columns;
mod commits;
mod endings;
mod engine;
mod failures;
mod order;
