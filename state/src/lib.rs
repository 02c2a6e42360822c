//! The exactly-once protocol as pure decisions: inputs in, commands out, no I/O, no clock, no randomness.

pub mod envelope;
mod ids;

pub use ids::{Epoch, FlushOffset, Incarnation, NextOffset, RowCount, SubtaskIndex};
