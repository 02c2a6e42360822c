//! What outlives a process: the state of a subtask and its commit list, and what a restore makes of them.

use std::collections::BTreeMap;
use std::fmt;

use bincode::{Decode, Encode};
use thiserror::Error;

use crate::envelope::{self, EnvelopeError, Kind};
use crate::ids::{Epoch, FlushOffset, Incarnation, Micros, NextOffset, RowCount, StreamName, SubtaskIndex};
use crate::io::{Failure, FailureKind, Replay};

/// Version of [`SubtaskState`] and [`CommitList`] this build writes.
pub const CHECKPOINT_VERSION: u16 = 1;

/// "What did this subtask have on which stream": its part of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SubtaskState {
    /// The checkpoint this is part of.
    pub checkpoint_id: Epoch,
    /// Who wrote it.
    pub subtask: SubtaskIndex,
    /// How many subtasks took part.
    pub parallelism: u32,
    /// The life that wrote it.
    pub incarnation: Incarnation,
    /// The table, as `projects/p/datasets/d/tables/t`. A stream's name tells its own: that of the dead letters is another one.
    pub table: String,
    /// Streams the subtask holds or has rows on, with their ends. One that writes at least once names the table's default stream, which has
    /// no end, and no other: that tells the mode, in a form that every build reads.
    pub streams: Vec<StreamState>,
    /// Copy of the commit list of the same checkpoint, to be compared with the one that is replayed.
    pub commit: CommitList,
}

/// One stream at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StreamState {
    /// Stream, end and checkpoint.
    pub state: BigQuerySinkState,
    /// When rows last went out on it, µs since 1970; BigQuery keeps an idle BUFFERED stream for seven days (write-api.md 2).
    pub last_append_micros: u64,
}

/// Stream, exclusive end of the acknowledged rows, and the checkpoint that says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BigQuerySinkState {
    /// The write stream.
    pub stream: StreamName,
    /// Rows acknowledged to its creator, in order, from 0.
    pub next_offset: NextOffset,
    /// The checkpoint.
    pub checkpoint_id: Epoch,
}

/// "What becomes visible": one stream's new rows in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BigQueryCommitInfo {
    /// The write stream.
    pub stream: StreamName,
    /// First new row.
    pub from_offset: NextOffset,
    /// Last new row, inclusive: the FlushRows target.
    pub flush_offset: FlushOffset,
}

impl BigQueryCommitInfo {
    /// Rows that become visible.
    #[must_use]
    pub fn rows(&self) -> RowCount {
        RowCount(self.flush_offset.next_offset().0 - self.from_offset.0)
    }
}

/// Streams with new rows in one epoch (invariant 12); empty for an epoch without rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CommitList(pub Vec<BigQueryCommitInfo>);

impl CommitList {
    /// Rows that become visible.
    #[must_use]
    pub fn rows(&self) -> RowCount {
        RowCount(
            self.0
                .iter()
                .fold(0, |rows, info| rows.saturating_add(info.rows().0)),
        )
    }

    /// The bytes a host keeps.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        envelope::encode(Kind::Commit, CHECKPOINT_VERSION, self)
    }

    /// Reads what [`Self::encode`] wrote, in this release or an earlier one.
    ///
    /// # Errors
    /// Bytes that are damaged, of another kind or from a newer release, and entries without rows.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let list: Self = envelope::decode(Kind::Commit, CHECKPOINT_VERSION, bytes)?;
        list.check()?;
        Ok(list)
    }

    fn check(&self) -> Result<(), EnvelopeError> {
        match self
            .0
            .iter()
            .find(|info| info.from_offset.0 > info.flush_offset.0 || info.flush_offset.0 >= i64::MAX as u64)
        {
            None => Ok(()),
            Some(info) => Err(EnvelopeError::Undecodable(format!(
                "commit of {} from row {} to {} names no rows",
                info.stream, info.from_offset, info.flush_offset
            ))),
        }
    }
}

impl SubtaskState {
    /// The bytes a host keeps.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        envelope::encode(Kind::SubtaskState, CHECKPOINT_VERSION, self)
    }

    /// Reads what [`Self::encode`] wrote, in this release or an earlier one.
    ///
    /// # Errors
    /// Bytes that are damaged, of another kind or from a newer release.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let state: Self = envelope::decode(Kind::SubtaskState, CHECKPOINT_VERSION, bytes)?;
        state.commit.check()?;
        Ok(state)
    }

    /// The mode it was written in.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.streams.iter().any(|stream| stream.state.stream.is_default()) {
            true => Mode::AtLeastOnce,
            false => Mode::ExactlyOnce,
        }
    }
}

/// What is promised of the rows (`write.mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Each row becomes visible once, at the commit of its checkpoint.
    ExactlyOnce,
    /// Each row becomes visible once at least, when it is acknowledged.
    AtLeastOnce,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExactlyOnce => "exactly_once",
            Self::AtLeastOnce => "at_least_once",
        })
    }
}

/// The union of all old subtasks' states of one completed checkpoint, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RestoredUnion {
    epoch: Epoch,
    mode: Mode,
    states: BTreeMap<SubtaskIndex, SubtaskState>,
}

/// Why a union of states cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// States of different checkpoints: a mixture that no job ever was in.
    #[error(
        "the restored states belong to different checkpoints: checkpoint {expected} was asked for, subtask {subtask} brings {found}"
    )]
    MixedCheckpoints {
        /// The checkpoint asked for.
        expected: Epoch,
        /// The subtask whose state differs.
        subtask: SubtaskIndex,
        /// Its checkpoint.
        found: Epoch,
    },
    /// The number or the indexes of the states do not fit what they say themselves.
    #[error("the restored states do not fit together: {0}")]
    Incomplete(String),
    /// State of a sink for another table.
    #[error("the restored state belongs to table {found}, this pipeline writes {expected}")]
    OtherTable {
        /// The pipeline's table.
        expected: String,
        /// The state's table.
        found: String,
    },
}

impl RestoredUnion {
    /// Checks that the states are those of all subtasks of one checkpoint of this table.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn new(
        table: &str,
        epoch: Epoch,
        states: BTreeMap<SubtaskIndex, SubtaskState>,
    ) -> Result<Self, RestoreError> {
        let Some(parallelism) = states.values().next().map(|state| state.parallelism) else {
            return Err(RestoreError::Incomplete(format!(
                "checkpoint {epoch} has no subtask states"
            )));
        };
        if states.len() != parallelism as usize {
            return Err(RestoreError::Incomplete(format!(
                "checkpoint {epoch} was taken by {parallelism} subtasks, {} states are here",
                states.len()
            )));
        }
        for (index, (&subtask, state)) in states.iter().enumerate() {
            if state.checkpoint_id != epoch {
                return Err(RestoreError::MixedCheckpoints {
                    expected: epoch,
                    subtask,
                    found: state.checkpoint_id,
                });
            }
            if state.table != table {
                return Err(RestoreError::OtherTable {
                    expected: table.into(),
                    found: state.table.clone(),
                });
            }
            if state.parallelism != parallelism || state.subtask != subtask || subtask.0 as usize != index {
                return Err(RestoreError::Incomplete(format!(
                    "the state kept for subtask {subtask} says it is subtask {} of {}",
                    state.subtask, state.parallelism
                )));
            }
        }
        Ok(Self {
            epoch,
            mode: common_mode(&states)?,
            states,
        })
    }

    /// The mode can change only where every commit is confirmed: the one mode's pending rows the other knows nothing of, and what is
    /// appended at least once is visible before any checkpoint says so.
    pub(crate) fn check_mode(&self, ours: Mode, replay: Replay) -> Result<(), Failure> {
        let (theirs, epoch) = (self.mode, self.epoch);
        if theirs == ours || replay == Replay::Confirmed {
            return Ok(());
        }
        Err(Failure {
            kind: FailureKind::User,
            message: format!(
                "checkpoint {epoch} was taken with write.mode = '{theirs}', and its commit is not known to be confirmed; the mode can change only \
                 where every commit is. Start with '{theirs}' again, stop with a checkpoint, and change to '{ours}' then; where the host cannot \
                 tell what was confirmed, start the new mode as a new pipeline"
            ),
        })
    }

    /// The checkpoint restored from.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Largest incarnation any old subtask had.
    #[must_use]
    pub fn newest_incarnation(&self) -> Incarnation {
        self.states
            .values()
            .map(|state| state.incarnation)
            .max()
            .expect("a checked union is not empty")
    }

    /// When rows last went out on a stream that the checkpoint names; none if it names no stream.
    #[must_use]
    pub fn last_append(&self) -> Option<Micros> {
        let streams = self.states.values().flat_map(|state| &state.streams);
        streams.map(|stream| Micros(stream.last_append_micros)).max()
    }

    /// The states, by old subtask.
    pub fn states(&self) -> impl Iterator<Item = &SubtaskState> {
        self.states.values()
    }

    /// The commit lists the states carry, by old subtask.
    pub fn commits(&self) -> impl Iterator<Item = (SubtaskIndex, &CommitList)> {
        self.states
            .iter()
            .map(|(&subtask, state)| (subtask, &state.commit))
    }
}

fn common_mode(states: &BTreeMap<SubtaskIndex, SubtaskState>) -> Result<Mode, RestoreError> {
    let mut modes = states.values().map(|state| (state.subtask, state.mode()));
    let Some((first, mode)) = modes.next() else {
        return Ok(Mode::ExactlyOnce);
    };
    match modes.find(|(_, other)| *other != mode) {
        None => Ok(mode),
        Some((subtask, other)) => Err(RestoreError::Incomplete(format!(
            "subtask {first} wrote with write.mode = '{mode}', subtask {subtask} with '{other}'"
        ))),
    }
}
