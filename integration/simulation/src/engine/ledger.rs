//! How often each row must be visible: known to who sees everything, not to the engine.
//!
//! Once, unless the engine went back to an older checkpoint, or the end of data was published without one and its process
//! then failed (invariant 1's exception): then exactly as often as it was published.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use super::store::CheckpointId;

/// Rows by key.
pub(crate) type Rows = BTreeMap<u32, Range<u64>>;

/// Everything that may be published.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Subtasks' parts of complete checkpoints.
    parts: BTreeMap<(CheckpointId, u32), Entry>,
    /// What subtasks may publish at the end of data, by process and subtask.
    ends: BTreeMap<(usize, u32), Entry>,
}

#[derive(Debug)]
struct Entry {
    rows: Rows,
    /// The sink said that they are visible; before that they may be.
    visible: bool,
}

impl Ledger {
    /// A part of a checkpoint that is complete now.
    pub(crate) fn complete(&mut self, id: CheckpointId, subtask: u32, rows: Rows) {
        let visible = false;
        self.parts.insert((id, subtask), Entry { rows, visible });
    }

    /// A subtask's commit covered this part.
    pub(crate) fn committed(&mut self, id: CheckpointId, subtask: u32) {
        if let Some(part) = self.parts.get_mut(&(id, subtask)) {
            part.visible = true;
        }
    }

    /// A subtask begins to publish the end of data.
    pub(crate) fn end_begins(&mut self, process: usize, subtask: u32, rows: Rows) {
        let visible = false;
        self.ends.insert((process, subtask), Entry { rows, visible });
    }

    pub(crate) fn end_is_visible(&mut self, process: usize, subtask: u32) {
        if let Some(end) = self.ends.get_mut(&(process, subtask)) {
            end.visible = true;
        }
    }

    /// How many parts of a checkpoint are visible.
    pub(crate) fn visible_parts(&self, id: CheckpointId) -> usize {
        let of = self.parts.iter().filter(|((of, _), _)| *of == id);
        of.filter(|(_, part)| part.visible).count()
    }

    /// The least and the most times that each row of each key may be there.
    pub(crate) fn counts(&self, keys: u32, rows: u64) -> Vec<Vec<RangeInclusive<u64>>> {
        let rows = usize::try_from(rows).expect("a run's rows fit into memory");
        let mut counts = vec![vec![0..=0; rows]; keys as usize];
        for entry in self.parts.values().chain(self.ends.values()) {
            for (&key, range) in &entry.rows {
                for number in range.clone() {
                    let count = &mut counts[key as usize][number as usize];
                    *count = count.start() + u64::from(entry.visible)..=count.end() + 1;
                }
            }
        }
        counts
    }
}
