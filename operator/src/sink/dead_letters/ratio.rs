//! How many of the newest rows were refused (`dead_letter.max_ratio`): a ring of counts by batches, whatever the number of rows.

use std::collections::{BTreeMap, VecDeque};

use super::super::refused::Reason;
use crate::error::SinkError;

/// So many rows are looked back at.
const NEWEST: u64 = 10_000;
/// Fewer refused rows say nothing yet.
const ENOUGH: u64 = 100;
/// Rows without a refused one that share an entry at most.
const JOINED: u64 = NEWEST / 100;
/// Reasons that are told apart in one batch.
const TOLD_APART: usize = 8;

/// The newest rows, and those of them that were refused.
#[derive(Debug)]
pub(super) struct Ratio {
    most: f64,
    batches: VecDeque<Counts>,
    rows: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct Counts {
    rows: u64,
    refused: u64,
    reasons: Vec<(Told, u64)>,
}

/// A reason as an error may show it: the column, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    column: Option<String>,
    text: String,
}

impl Ratio {
    pub(super) fn new(most: f64) -> Self {
        Self {
            most,
            batches: VecDeque::new(),
            rows: 0,
            refused: 0,
        }
    }

    /// Counts rows that came, and reasons for which some were refused; those that BigQuery refuses came before.
    ///
    /// # Errors
    /// More than the ratio allows were refused.
    pub(super) fn count(&mut self, rows: u64, reasons: &[Reason]) -> Result<(), SinkError> {
        let refused = reasons.len() as u64;
        self.rows += rows;
        self.refused += refused;
        match self.batches.back_mut() {
            Some(last) if refused == 0 && last.refused == 0 && last.rows + rows <= JOINED => {
                last.rows += rows;
            }
            _ => self.batches.push_back(Counts {
                rows,
                refused,
                reasons: told_apart(reasons),
            }),
        }
        while let Some(oldest) = self.batches.front()
            && self.rows - oldest.rows >= NEWEST
        {
            self.rows -= oldest.rows;
            self.refused -= oldest.refused;
            self.batches.pop_front();
        }
        let most = self.most * self.rows as f64;
        if self.refused >= ENOUGH && self.refused as f64 > most {
            return Err(self.too_many());
        }
        Ok(())
    }

    /// How many counts are kept.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.batches.len()
    }

    fn too_many(&self) -> SinkError {
        let mut counts: BTreeMap<&Told, u64> = BTreeMap::new();
        for (reason, count) in self.batches.iter().flat_map(|batch| &batch.reasons) {
            *counts.entry(reason).or_default() += count;
        }
        let commonest = counts.into_iter().max_by_key(|(_, count)| *count);
        let commonest = commonest.map_or_else(String::new, |(reason, count)| {
            let column = reason.column.as_ref();
            let column = column.map_or_else(String::new, |column| format!("column `{column}`: "));
            let text = reason.text.trim_end_matches('.');
            format!("; the commonest reason, {count} times: {column}{text}")
        });
        SinkError::user(format!(
            "{} of the last {} rows were refused, more than dead_letter.max_ratio = {} allows{commonest}. Mend the rows or the table, or \
             allow more; dead letters since the last checkpoint are not published",
            self.refused, self.rows, self.most
        ))
    }
}

/// How often each reason is there; of many different ones the first.
fn told_apart(reasons: &[Reason]) -> Vec<(Told, u64)> {
    let mut counts: Vec<(Told, u64)> = Vec::new();
    for reason in reasons {
        let same = |(known, _): &(Told, u64)| known.column == reason.column && known.text == reason.told();
        match counts.iter().position(same) {
            Some(known) => counts[known].1 += 1,
            None if counts.len() < TOLD_APART => {
                let (column, text) = (reason.column.clone(), reason.told().to_owned());
                counts.push((Told { column, text }, 1));
            }
            None => {}
        }
    }
    counts
}
