//! Rows that the server or the sink refuses, and what the driver does about them.

use std::collections::BTreeSet;

use bigquery_sink_state::{BatchId, Destination, Input, RowCount, RowFault};

use crate::host::{Host, Mode, ROWS, Subtask};

impl Host {
    pub(crate) fn choose_bad_rows(&mut self) {
        if self.mode == Mode::FaultsAndCrashes {
            self.server.bad = self.some_rows();
            self.unencodable = self.some_rows();
            self.server.rows_first = self.choose(2) == 1;
            self.server.most_rows = [None, Some(2), Some(1)][self.choose(3)];
        }
    }

    /// None, a few, or many.
    fn some_rows(&mut self) -> BTreeSet<u64> {
        let one_of = [u64::MAX, 20, 6, 2][self.choose(4)];
        let salt = self.choose(usize::from(u16::MAX)) as u64;
        let mixed = |row: u64| (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (salt << 17)) >> 33;
        (0..ROWS)
            .filter(|row| mixed(*row).is_multiple_of(one_of))
            .collect()
    }

    /// Rows that are to become visible in the table, and those that are to become dead letters.
    pub(crate) fn all_rows(&self) -> (Vec<u64>, Vec<u64>) {
        (0..ROWS).partition(|row| !self.server.bad.contains(row) && !self.unencodable.contains(row))
    }

    /// Rows that a reader sees in the table, and among the dead letters.
    pub(crate) fn visible_rows(&self) -> (Vec<u64>, Vec<u64>) {
        (self.server.visible_rows(), self.server.dead_letters())
    }

    /// The rows that the sink can encode.
    pub(crate) fn refuse_unencodable(&mut self, who: usize, rows: Vec<u64>) -> Vec<u64> {
        let (refused, rows): (Vec<u64>, Vec<u64>) =
            rows.into_iter().partition(|row| self.unencodable.contains(row));
        if !refused.is_empty() {
            let rows = RowCount(refused.len() as u64);
            self.subtasks[who].dead_letters.extend(refused);
            self.meet("rows refused by the sink");
            self.tell(who, Input::RowsRefused { rows });
        }
        rows
    }

    /// Some of the dead letters that are owed.
    pub(crate) fn hand_over_dead_letters(&mut self, who: usize) {
        if self.subtasks[who].core.wants_dead_letters() {
            self.meet("dead letters wanted");
        }
        let count = 1 + self.choose(self.subtasks[who].dead_letters.len());
        let rows = self.subtasks[who].dead_letters.drain(..count).collect();
        self.hand_over(who, Destination::DeadLetters, rows);
    }

    pub(crate) fn remove_rows(&mut self, who: usize, batch: BatchId, named: &[RowFault]) {
        let Subtask {
            payloads,
            dead_letters,
            ..
        } = &mut self.subtasks[who];
        let rows = payloads.get_mut(&batch).unwrap();
        for row in named.iter().rev() {
            let row = rows.remove(usize::try_from(row.index).unwrap());
            assert!(self.server.bad.contains(&row), "the good row {row} is taken out");
            dead_letters.push(row);
        }
        let left = rows.len() as u64;
        if left == 0 {
            self.meet("request emptied");
        }
        self.tell(
            who,
            Input::RowsRemoved {
                batch,
                rows: RowCount(left),
                bytes: left * 100,
                dead_letters: RowCount(named.len() as u64),
            },
        );
    }
    /// Invariant 4: a resend may be split, which gives each part the offsets that its rows had.
    pub(crate) fn split(&mut self, who: usize, batch: BatchId) {
        let most = self.subtasks[who].payloads[&batch].len() - 1;
        let keeps = 1 + self.choose(most);
        self.batches += 1;
        let rest = BatchId(self.batches);
        let subtask = &mut self.subtasks[who];
        let rows = subtask.payloads.get_mut(&batch).unwrap();
        let rest_rows = rows.split_off(keeps);
        let (stream, offset) = subtask.places[&batch].clone();
        self.assigned.insert((stream.clone(), offset), rows.clone());
        let place = (stream, offset + keeps as u64);
        self.assigned.insert(place, rest_rows.clone());
        let rest_bytes = rest_rows.len() as u64 * 100;
        subtask.payloads.insert(rest, rest_rows);
        self.meet("request split");
        let input = Input::BatchSplit {
            batch,
            rows: RowCount(keeps as u64),
            bytes: keeps as u64 * 100,
            rest,
            rest_bytes,
        };
        self.tell(who, input);
    }
}
