//! Rows that were refused: what is owed as dead letters, and what waits for it.

use crate::failures::not_asked_for;
use crate::ids::{BatchId, RowCount};
use crate::io::Failure;
use crate::mutant::Mutant;

use super::{Core, LifePhase};

impl Core {
    /// Whether dead letters are due now: a barrier or the end of data waits for those that are owed.
    #[must_use]
    pub fn wants_dead_letters(&self) -> bool {
        let waits = self.barrier.is_some() || self.phase == LifePhase::Draining;
        waits && !self.dead_letters_owed.is_nothing()
    }

    /// The sink itself refused rows.
    pub(super) fn rows_refused(&mut self, rows: RowCount) -> Result<(), Failure> {
        self.dead_letters_owed.refused(rows, self.config.row_errors)?;
        self.stage().check_rows()
    }

    pub(super) fn rows_removed(
        &mut self,
        batch: BatchId,
        left: RowCount,
        bytes: u64,
        dead_letters: RowCount,
    ) -> Result<(), Failure> {
        let mut lanes = self.lanes.iter_mut();
        let Some(lane) = lanes.find(|lane| lane.is_removing_from(batch)) else {
            return Err(not_asked_for(batch));
        };
        lane.rows_removed(left, bytes, dead_letters, &mut self.shared)?;
        self.dead_letters_owed.add(dead_letters);
        Ok(())
    }

    /// Every refused row is a dead letter that was handed over: a checkpoint without one would lose it.
    pub(super) fn owes_no_dead_letters(&self) -> bool {
        self.dead_letters_owed.is_nothing() || self.config.mutation.is(Mutant::PrepareWithDeadLettersOwed)
    }
}
