//! What a restored subtask goes on from. The engine brings the states of all old subtasks and does not say of which checkpoint they are.

use std::collections::{BTreeMap, HashMap};

use bigquery_sink_state::{Epoch, Mode, SubtaskIndex, SubtaskState};
use bytes::Bytes;

use crate::error::SinkError;
use crate::host::{CommitReplay, Restored};

/// The checkpoint that the states are of; none without states, which is a first start.
///
/// Whether its commit is to come the engine does not say either: after the one crash it comes, after the other it does not. Where rows
/// are written at least once, it has no commit to say.
pub(super) fn restored(states: &HashMap<u32, Vec<u8>>) -> Result<Option<Restored>, SinkError> {
    let mut epochs: BTreeMap<Epoch, Vec<SubtaskIndex>> = BTreeMap::new();
    let mut bytes = BTreeMap::new();
    let mut is_committed = true;
    let sorted: BTreeMap<_, _> = states.iter().collect();
    for (&subtask, state) in sorted {
        let subtask = SubtaskIndex(subtask);
        let read = SubtaskState::decode(state).map_err(|error| {
            SinkError::user(format!(
                "the restored state of subtask {subtask} cannot be read: {error}"
            ))
            .with_source(error)
        })?;
        epochs.entry(read.checkpoint_id).or_default().push(subtask);
        is_committed &= read.mode() == Mode::AtLeastOnce;
        bytes.insert(subtask, Bytes::copy_from_slice(state));
    }
    if epochs.len() > 1 {
        let of = |(epoch, subtasks): (&Epoch, &Vec<SubtaskIndex>)| {
            let subtasks: Vec<String> = subtasks.iter().map(ToString::to_string).collect();
            format!("checkpoint {epoch} (subtask {})", subtasks.join(", "))
        };
        let epochs: Vec<String> = epochs.iter().map(of).collect();
        return Err(SinkError::user(format!(
            "the restored states belong to different checkpoints, of which no job ever was in both: {}",
            epochs.join(", ")
        )));
    }
    Ok(epochs.into_keys().next().map(|epoch| Restored {
        epoch,
        states: bytes,
        replay: if is_committed {
            CommitReplay::Confirmed
        } else {
            CommitReplay::Unknown
        },
    }))
}
