//! Rows that were refused and are not handed over as dead letters yet.

use crate::failures::host;
use crate::ids::RowCount;
use crate::io::{Failure, RowErrorPolicy};

/// How many dead letters are owed: a checkpoint without one of them would lose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Owed(u64);

impl Owed {
    /// The sink itself refused rows.
    pub(crate) fn refused(&mut self, rows: RowCount, policy: RowErrorPolicy) -> Result<(), Failure> {
        if policy == RowErrorPolicy::Fail {
            return Err(host(
                "the sink refused rows as dead letters, though row errors end the job",
            ));
        }
        self.add(rows);
        Ok(())
    }

    pub(crate) fn add(&mut self, rows: RowCount) {
        self.0 += rows.0;
    }

    pub(crate) fn pay(&mut self, rows: RowCount) -> Result<(), Failure> {
        let owed = self.0;
        self.0 = owed.checked_sub(rows.0).ok_or_else(|| {
            host(&format!(
                "{rows} dead letters were handed over where {owed} are owed"
            ))
        })?;
        Ok(())
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }
}
