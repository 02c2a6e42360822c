//! Single decisions of the core, one test each: errors, budgets, commits, restore, end of data, bytes on disk.

mod bench;
mod commits;
mod faults;
mod golden;
mod lanes;
