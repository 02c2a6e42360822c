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
    /// Rows that are visible in the table once this checkpoint is committed, since the state began.
    pub rows_committed: u64,
    /// Rows left out by a source or refused into a dead-letter table since the state began.
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
    /// Rows that become visible in the table with this checkpoint; dead letters are none of it.
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

/// The create-if-absent record that makes a checkpoint complete: its epoch belongs to the manifest named here.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct EpochClaim {
    pub(super) lineage: u64,
    pub(super) epoch: Epoch,
    pub(super) generation: u64,
    pub(super) content: Claimed,
}

/// What a claim stands for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Claimed {
    /// A checkpoint that a host took; its commit is confirmed by a marker.
    Checkpoint(ManifestRef),
    /// The first of a lineage: a copy of a committed checkpoint, so there is nothing to commit.
    Copy { of_lineage: u64, manifest: ManifestRef },
    /// The first of a lineage that begins with nothing.
    Nothing,
}

/// A manifest by name and content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct ManifestRef {
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) crc32c: u32,
}

/// Says that everything of a checkpoint is visible. It holds no time or writer: a repeated one must be the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct CommitMarker {
    pub(super) lineage: u64,
    pub(super) epoch: Epoch,
    pub(super) manifest: ManifestRef,
}

/// One host's claim of a generation. The owner is random, so that no two hosts write the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct GenerationRecord {
    pub(super) generation: u64,
    pub(super) owner: [u8; 16],
    pub(super) process: u32,
    pub(super) started_at_micros: u64,
}

impl ManifestRef {
    pub(super) fn of(name: String, bytes: &[u8]) -> Self {
        Self {
            name,
            length: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        }
    }
}

impl EpochClaim {
    /// The manifest it names, if it stands for a checkpoint at all.
    pub(super) fn manifest(&self) -> Option<&ManifestRef> {
        match &self.content {
            Claimed::Checkpoint(manifest) | Claimed::Copy { manifest, .. } => Some(manifest),
            Claimed::Nothing => None,
        }
    }
}

/// A record with its kind.
pub(super) trait Record: Encode + Decode<()> {
    const KIND: Kind;

    fn to_bytes(&self) -> Vec<u8> {
        envelope::encode(Self::KIND, VERSION, self)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        envelope::decode(Self::KIND, VERSION, bytes)
    }
}

impl Record for Manifest {
    const KIND: Kind = Kind::Manifest;
}

impl Record for EpochClaim {
    const KIND: Kind = Kind::EpochClaim;
}

impl Record for CommitMarker {
    const KIND: Kind = Kind::CommitMarker;
}

impl Record for GenerationRecord {
    const KIND: Kind = Kind::Generation;
}
