//! Single decisions of the core, one test each: errors, budgets, commits, restore, end of data, bytes on disk.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bench;
mod boundaries;
mod commits;
mod default_stream;
mod faults;
mod golden;
mod lanes;
mod rows;
mod split;
