//! What must hold after each step; the numbers are those of the invariants (ARCHITECTURE.md).

use std::collections::BTreeSet;

use bigquery_sink_state::{BatchId, CommitList};

use crate::host::Host;

impl Host {
    /// Invariants 3 and 12: what a commit list names is on the stream, from its creator, and not empty.
    pub(crate) fn check_commit_list(&self, commit: &CommitList) {
        for info in &commit.0 {
            assert!(
                info.rows().0 > 0,
                "a commit list names only streams with new rows (invariant 12)"
            );
            let stored = self.server.streams[&info.stream.0].rows.len() as u64;
            assert!(
                info.flush_offset.0 < stored,
                "a flush target counts stored rows (invariant 3)"
            );
        }
    }

    /// Invariant 1: nothing is flushed that no complete checkpoint names.
    pub(crate) fn check_covered(&self, stream: &str, offset: u64) {
        let checkpoint = self
            .store
            .as_ref()
            .expect("no flush before the first complete checkpoint (invariant 1)");
        let named = checkpoint
            .commits
            .iter()
            .flat_map(|bytes| CommitList::decode(bytes).unwrap().0);
        let covered = named
            .into_iter()
            .any(|info| info.stream.0 == stream && info.flush_offset.0 == offset);
        assert!(
            covered,
            "{stream} is flushed to {offset}, which the complete checkpoint does not name (invariant 1)"
        );
    }

    /// Visible rows only grow, and lie before the position of the newest complete checkpoint (invariant 1).
    pub(crate) fn check_visible(&mut self) {
        let (rows, dead_letters) = self.visible_rows();
        let visible: BTreeSet<u64> = rows.into_iter().chain(dead_letters).collect();
        let covered = self.store.as_ref().map_or(0, |checkpoint| checkpoint.next_row);
        assert!(
            visible.iter().all(|row| *row < covered),
            "a row is visible before its checkpoint (invariant 1)"
        );
        assert!(self.visible_before.is_subset(&visible), "a row disappeared");
        self.visible_before = visible;
    }

    /// Invariant 4: the offsets of a stream are given anew only from where every request was answered and none can land any more.
    pub(crate) fn check_rows_move_up(&mut self, who: usize, batch: BatchId) {
        let subtask = &self.subtasks[who];
        let (stream, from) = subtask.places[&batch].clone();
        if self.left.contains(&stream) {
            return self.meet("stream left at a row error");
        }
        let mut connections = subtask.connections.iter().filter(|open| open.stream == stream);
        assert!(
            connections.all(|open| open.requests.is_empty() && open.answers.is_empty()),
            "rows move up while answers are due (invariant 4)"
        );
        let late = self.zombies.iter().filter(|open| open.stream == stream);
        let mut late = late.flat_map(|open| &open.requests);
        let stored = self.server.streams[&stream].rows.len() as u64;
        assert!(
            stored <= from && late.all(|(_, offset, rows)| offset + rows.len() as u64 <= from),
            "rows move up from offset {from} of {stream} while a request there is in doubt (invariant 4)"
        );
        let before = self.assigned.len();
        self.assigned
            .retain(|(other, offset), _| *other != stream || *offset < from);
        if before - self.assigned.len() > 1 {
            self.meet("rows moved up");
        }
    }
}
