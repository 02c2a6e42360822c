//! The protocols as pure decisions: inputs in, commands out, no I/O, no clock, no randomness.
//!
//! [`Core`] decides for one subtask which stream takes which rows at which offset, what a checkpoint says, and what may
//! become visible when: exactly once. [`DefaultStreamCore`] does so for the table's default stream: at least once. A driver carries out its [`Command`]s and tells it what happened as [`Input`]s.

mod checkpoint;
mod commit;
mod contract;
mod core;
mod default_stream;
pub mod envelope;
mod failures;
mod fault;
mod ids;
mod io;
mod lane;
mod ledger;
mod mutant;
mod open_stream;
mod owed;
mod protocol;
mod rate;
mod server_text;
mod trouble;

pub use checkpoint::{
    BigQueryCommitInfo, BigQuerySinkState, CHECKPOINT_VERSION, CommitList, Mode, RestoreError, RestoredUnion,
    StreamState, SubtaskState,
};
pub use core::Core;
pub use default_stream::{DefaultStreamCore, DefaultStreams};
pub use fault::{Code, Fault, Phase, Place, RULES, Reaction, RowFault, Rule, StorageCode, Verdict, classify};
pub use ids::{
    BatchId, Epoch, FlushId, FlushOffset, Generation, Incarnation, Lane, Micros, NextOffset, RequestNumber,
    RowCount, StreamName, SubtaskIndex,
};
pub use io::{
    Command, CoreConfig, Destination, Failure, FailureKind, Input, LeaveReason, Limits, Notice, Replay,
    RowErrorPolicy, Unprovable,
};
pub use mutant::{Mutant, Mutation};
pub use protocol::Protocol;
