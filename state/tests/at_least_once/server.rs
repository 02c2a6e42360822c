//! The default streams of a table and of its dead letters: what is stored is visible, as often as it came.

use std::collections::{BTreeMap, BTreeSet};

use bigquery_sink_state::{Code, Fault, Place, RowFault};

pub(crate) const TABLE: &str = "t/streams/_default";
pub(crate) const DEAD_LETTERS: &str = "dead/streams/_default";

#[derive(Debug, Default)]
pub(crate) struct Server {
    /// How often each row is in the table, and among the dead letters.
    pub(crate) rows: BTreeMap<u64, u64>,
    pub(crate) dead_letters: BTreeMap<u64, u64>,
    /// Rows that the table refuses.
    pub(crate) bad: BTreeSet<u64>,
    /// More rows than this in a request are too many, where there is such a limit.
    pub(crate) most_rows: Option<usize>,
}

impl Server {
    pub(crate) fn append(&mut self, stream: &str, rows: &[u64]) -> Result<(), Fault> {
        if self.most_rows.is_some_and(|most| rows.len() > most) {
            return Err(Fault {
                message: "AppendRows request too large".into(),
                ..fault(Code::InvalidArgument, Place::InBand)
            });
        }
        let stored = match stream {
            TABLE => {
                let named = rows.iter().zip(0..).filter(|(row, _)| self.bad.contains(row));
                // The list may be cut short.
                let row_errors: Vec<RowFault> = named.map(|(_, index)| row_fault(index)).take(2).collect();
                if !row_errors.is_empty() {
                    return Err(Fault {
                        row_errors,
                        ..fault(Code::InvalidArgument, Place::InBand)
                    });
                }
                &mut self.rows
            }
            DEAD_LETTERS => &mut self.dead_letters,
            other => panic!("{other} is no default stream"),
        };
        for row in rows {
            *stored.entry(*row).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Rows and dead letters that are there more than once.
    pub(crate) fn repeated(&self) -> usize {
        let stored = self.rows.values().chain(self.dead_letters.values());
        stored.filter(|count| **count > 1).count()
    }
}

fn row_fault(index: u64) -> RowFault {
    RowFault {
        index,
        message: "model".into(),
    }
}

pub(crate) fn fault(code: Code, place: Place) -> Fault {
    Fault {
        code,
        storage_code: None,
        place,
        expected_offset: None,
        row_errors: Vec::new(),
        message: "model".into(),
    }
}
