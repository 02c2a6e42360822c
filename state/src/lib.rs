//! The exactly-once protocol as pure decisions: inputs in, commands out, no I/O, no clock, no randomness.
//!
//! [`Core`] decides for one subtask which stream takes which rows at which offset, what a checkpoint says, and what may
//! become visible when. A driver carries out its [`Command`]s and tells it what happened as [`Input`]s.

mod checkpoint;
mod commit;
mod core;
pub mod envelope;
mod fault;
mod ids;
mod io;
mod lane;
mod ledger;
mod mutant;
mod open_stream;
mod rate;
mod trouble;

pub use checkpoint::{
    BigQueryCommitInfo, BigQuerySinkState, CHECKPOINT_VERSION, CommitList, RestoreError, RestoredUnion,
    StreamState, SubtaskState,
};
pub use core::Core;
pub use fault::{Code, Fault, Phase, Place, RULES, Reaction, RowFault, Rule, StorageCode, Verdict, classify};
pub use ids::{
    BatchId, Epoch, FlushId, FlushOffset, Generation, Incarnation, Lane, Micros, NextOffset, RequestNumber,
    RowCount, StreamName, SubtaskIndex,
};
pub use io::{
    Command, CoreConfig, Destination, Failure, FailureKind, Input, Limits, Notice, Replay, RowErrorPolicy,
    Unprovable,
};
pub use mutant::{Mutant, Mutation};
