//! The tool as a process: pipelines through kill -9, lost answers, bad input, and what it prints.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod emulator;
mod examples;
mod inspect;
mod kill;
mod lost_answers;
mod remedies;
mod support;
mod tables;
mod takeover;
mod types;
mod watch;
