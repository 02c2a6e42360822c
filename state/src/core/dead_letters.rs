//! Rows that were refused: what is owed as dead letters, and what waits for it.

use crate::ids::{BatchId, RowCount};
use crate::io::{Failure, RowErrorPolicy};
use crate::mutant::Mutant;

use super::{Core, LifePhase, host};

impl Core {
    /// Whether dead letters are due now: a barrier or the end of data waits for those that are owed.
    #[must_use]
    pub fn wants_dead_letters(&self) -> bool {
        let waits = self.barrier.is_some() || self.phase == LifePhase::Draining;
        waits && self.dead_letters_owed.0 > 0
    }

    /// The sink itself refused rows.
    pub(super) fn rows_refused(&mut self, rows: RowCount) -> Result<(), Failure> {
        if self.config.row_errors == RowErrorPolicy::Fail {
            return Err(host(
                "the sink refused rows as dead letters, though row errors end the job",
            ));
        }
        self.check_rows_may_come()?;
        self.dead_letters_owed.0 += rows.0;
        Ok(())
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
            return Err(host(&format!(
                "rows were taken out of request {}, which was not asked for",
                batch.0
            )));
        };
        lane.rows_removed(left, bytes, dead_letters, &mut self.shared)?;
        self.dead_letters_owed.0 += dead_letters.0;
        Ok(())
    }

    pub(super) fn pay_dead_letters(&mut self, rows: RowCount) -> Result<(), Failure> {
        let owed = self.dead_letters_owed;
        let Some(rest) = owed.0.checked_sub(rows.0) else {
            return Err(host(&format!(
                "{rows} dead letters were handed over where {owed} are owed"
            )));
        };
        self.dead_letters_owed = RowCount(rest);
        Ok(())
    }

    /// Every refused row is a dead letter that was handed over: a checkpoint without one would lose it.
    pub(super) fn owes_no_dead_letters(&self) -> bool {
        self.dead_letters_owed.0 == 0 || self.config.mutation.is(Mutant::PrepareWithDeadLettersOwed)
    }
}
