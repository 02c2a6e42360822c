//! What can go wrong with a store, sorted by the reaction it asks for.

use std::fmt;

use bigquery_sink_state::Epoch;
use bigquery_sink_state::envelope::EnvelopeError;
use thiserror::Error;

/// Why the store refused or failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The location is neither a folder nor a URL the store can serve.
    #[error("state location {location:?} cannot be used: {reason}")]
    Location {
        /// The location as given, without secrets.
        location: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder cannot be created or written.
    #[error(
        "state dir {folder} is not writable: {source}; mend its permissions or name another with --state-dir"
    )]
    NotWritable {
        /// The folder.
        folder: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another host runs on this state.
    #[error(
        "state dir {folder} is in use by process {holder}; stop that process first, or take over from it if it hangs"
    )]
    InUse {
        /// The folder.
        folder: String,
        /// Process id of the holder as it wrote it, or "unknown".
        holder: String,
    },
    /// A newer host has taken this state over: stop, publish nothing more.
    #[error(
        "another host has taken over the state at {location} (generation {by}; this one is {ours}); this run stops"
    )]
    Superseded {
        /// The store.
        location: String,
        /// Our generation.
        ours: u64,
        /// The newest generation.
        by: u64,
    },
    /// The state this host wrote its generation into is not there any more: stop, publish nothing more.
    #[error(
        "the state at {location} was removed or replaced while this run (generation {ours}) used it; this run stops"
    )]
    Replaced {
        /// The store.
        location: String,
        /// Our generation.
        ours: u64,
    },
    /// The epoch was claimed by another attempt: restart from the newest checkpoint, which is that attempt's.
    #[error(
        "epoch {epoch} at {location} was already completed by generation {by}; going on from that checkpoint"
    )]
    ClaimLost {
        /// The store.
        location: String,
        /// The epoch.
        epoch: Epoch,
        /// Generation that completed it.
        by: u64,
    },
    /// A file is not what was written.
    #[error(
        "checkpoint file {file} is damaged: {damage}; put back a good copy of it, or start anew with --new-state"
    )]
    Damaged {
        /// Path or object name.
        file: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A caller's mistake, against the rules of the lease.
    #[error("checkpoint {epoch} cannot be completed: {rule}")]
    OutOfOrder {
        /// The epoch asked for.
        epoch: Epoch,
        /// The rule it breaks.
        rule: OrderRule,
    },
    /// There is no such checkpoint, or it cannot be gone back to.
    #[error("cannot go back to checkpoint {epoch} at {location}: {reason}")]
    NoSuchBase {
        /// The store.
        location: String,
        /// The epoch asked for.
        epoch: Epoch,
        /// Why not.
        reason: &'static str,
    },
    /// The storage failed; what was being written may or may not be there.
    #[error("cannot {doing} {file}: {source}")]
    Storage {
        /// What was tried.
        doing: &'static str,
        /// Path or object name.
        file: String,
        /// What the storage said.
        source: StorageFailure,
    },
}

/// A failure of a file system or of an object store.
pub type StorageFailure = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Rules of [`Lease::complete`](super::Lease::complete); breaking one is the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRule {
    /// `restore` comes first.
    NotRestored,
    /// The commit of this earlier epoch is not confirmed (design.md section 7).
    CommitPending(Epoch),
    /// Epochs are numbered without a gap; this is the next.
    NextIs(Epoch),
    /// The manifest names another generation or lineage than the lease holds.
    ForeignManifest,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// Its bytes are not what was written, or are of a newer version.
    #[error(transparent)]
    Bytes(#[from] EnvelopeError),
    /// It is not there though another file says it was.
    #[error("it is missing though {named_by} names it")]
    Missing {
        /// The file that names it.
        named_by: String,
    },
    /// It is whole but does not belong where it lies.
    #[error("it is whole but is not the file {named_by} names: {what} differs")]
    Mismatch {
        /// The file that names it.
        named_by: String,
        /// Which part differs.
        what: &'static str,
    },
}

impl StoreError {
    /// Whether a restart from the newest checkpoint, by the same host, can go on. Otherwise the run must stop.
    #[must_use]
    pub fn restart_may_help(&self) -> bool {
        matches!(self, Self::ClaimLost { .. } | Self::Storage { .. })
    }

    /// Whether another host has the state now.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        matches!(self, Self::Superseded { .. })
    }
}

impl fmt::Display for OrderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRestored => f.write_str("the lease has not been restored from"),
            Self::CommitPending(epoch) => write!(f, "the commit of epoch {epoch} is not confirmed yet"),
            Self::NextIs(epoch) => write!(f, "the next epoch is {epoch}"),
            Self::ForeignManifest => f.write_str("its generation or lineage is not this lease's"),
        }
    }
}
