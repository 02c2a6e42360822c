//! What the store keeps: manifests, claims, markers, generations. These bytes are an API: see `golden/`.

use bigquery_sink_state::Epoch;
use bigquery_sink_state::envelope::{self, EnvelopeError, Kind};
use bincode::{Decode, Encode};

/// Version of every payload written here; a change of a struct below needs a new one and a golden file.
const VERSION: u16 = 1;

/// Everything a host needs to go on from a checkpoint, written before the checkpoint is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Manifest {
    /// Number of the checkpoint: one more than the newest complete one, from 1.
    pub epoch: Epoch,
    /// Generation of the host that wrote it, as [`Lease::generation`](super::Lease::generation) says.
    pub generation: u64,
    /// Lineage it belongs to, as [`Lease::lineage`](super::Lease::lineage) says.
    pub lineage: u64,
    /// What the pipeline was.
    pub fingerprint: PipelineFingerprint,
    /// Count of subtasks that wrote it.
    pub parallelism: u32,
    /// State and commit list of each subtask, in the order of their indexes.
    pub subtasks: Vec<SubtaskCheckpoint>,
    /// Where each source goes on.
    pub sources: Vec<SourcePosition>,
    /// Rows read from the sources since the state began.
    pub rows_read: u64,
    /// Rows that are visible once this checkpoint is committed, since the state began.
    pub rows_committed: u64,
    /// Rows refused into a dead-letter table since the state began.
    pub rows_rejected: u64,
    /// Whether the sources have ended: nothing is left to read.
    pub input_ended: bool,
    /// When it was written, in microseconds since 1970.
    pub created_at_micros: u64,
}

/// What must not change between the runs on one state: source, query, table and mode, as one text or hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PipelineFingerprint(pub String);

/// One subtask's part of a checkpoint; the bytes are the sink's own, opaque here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SubtaskCheckpoint {
    /// What the subtask had on which stream.
    pub state: Vec<u8>,
    /// What becomes visible with this checkpoint.
    pub commit: Vec<u8>,
    /// Rows that become visible with this checkpoint.
    pub rows: u64,
}

/// Where a source goes on; the bytes are the source's own.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SourcePosition {
    /// Name of the source's table, with the reader's number where there are several.
    pub name: String,
    /// Its position.
    pub bytes: Vec<u8>,
}

impl Manifest {
    pub(super) fn encode(&self) -> Vec<u8> {
        envelope::encode(Kind::Manifest, VERSION, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        envelope::decode(Kind::Manifest, VERSION, bytes)
    }
}
