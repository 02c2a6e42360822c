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
    /// What subtasks may publish at the end of data beside that, by generation and subtask.
    ends: BTreeMap<(u64, u32), Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Of the process that wrote the rows.
    generation: u64,
    rows: Rows,
    /// The sink said that they are visible; before that they may be.
    visible: bool,
}

impl Ledger {
    /// A part of a checkpoint that is complete now. If it is adopted, its writer's data may have ended by now.
    pub(crate) fn complete(&mut self, id: CheckpointId, subtask: u32, generation: u64, rows: Rows) {
        let mut part = Entry {
            generation,
            rows,
            visible: false,
        };
        if let Some(end) = self.ends.get_mut(&(generation, subtask)) {
            leave_out(&mut end.rows, &part.rows);
            part.visible = end.visible;
        }
        self.parts.insert((id, subtask), part);
    }

    /// A subtask's commit covered this part.
    pub(crate) fn committed(&mut self, id: CheckpointId, subtask: u32) {
        if let Some(part) = self.parts.get_mut(&(id, subtask)) {
            part.visible = true;
        }
    }

    /// A subtask begins to publish the end of data.
    pub(crate) fn end_begins(&mut self, generation: u64, subtask: u32, mut rows: Rows) {
        for part in self.parts_of(generation, subtask) {
            leave_out(&mut rows, &part.rows);
        }
        let end = Entry {
            generation,
            rows,
            visible: false,
        };
        self.ends.insert((generation, subtask), end);
    }

    /// With it every checkpoint that the subtask ever prepared.
    pub(crate) fn end_is_visible(&mut self, generation: u64, subtask: u32) {
        if let Some(end) = self.ends.get_mut(&(generation, subtask)) {
            end.visible = true;
        }
        for part in self.parts_of(generation, subtask) {
            part.visible = true;
        }
    }

    fn parts_of(&mut self, generation: u64, subtask: u32) -> impl Iterator<Item = &mut Entry> {
        let parts = self.parts.iter_mut();
        parts
            .filter(move |((_, of), part)| *of == subtask && part.generation == generation)
            .map(|(_, part)| part)
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

/// Of what a checkpoint did not cover, what an adopted one covers all the same: the first rows of each key.
fn leave_out(rows: &mut Rows, covered: &Rows) {
    for (key, rows) in rows {
        let Some(covered) = covered.get(key) else { continue };
        if covered.contains(&rows.start) {
            rows.start = covered.end.min(rows.end);
        }
    }
}
