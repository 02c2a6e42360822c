//! The proof: every crash point, every fault, every barrier, on real code under simulated time (testing.md 7).
#![allow(clippy::unwrap_used, reason = "a test's own mistakes may panic")]

mod connections;
mod determinism;
mod engine;
mod enumerated;
mod errant;
#[cfg(feature = "mutants")]
mod mutants;
mod scenarios;

use std::io::Write as _;

/// Prints past the test harness, which keeps what a test prints to itself: how much was run is part of the result.
fn say(text: &str) {
    std::io::stdout()
        .write_all(format!("{text}\n").as_bytes())
        .unwrap();
}
