//! The order in which a host may call, the same for both protocols (arroyo.md 4).

use crate::failures::host;
use crate::ids::Epoch;
use crate::io::Failure;

/// Checkpoints that may wait for their commit: a host completes N+1 only after N is confirmed, so two are already many.
const MOST_UNCOMMITTED: usize = 8;

/// How far a subtask is, as the host's next call finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    /// The end of data has not come.
    pub(crate) is_running: bool,
    /// A barrier is open, and not reported yet.
    pub(crate) in_barrier: bool,
}

impl Stage {
    /// Rows come before the barrier, and before the end of data.
    pub(crate) fn check_rows(self) -> Result<(), Failure> {
        if self.in_barrier || !self.is_running {
            return Err(host(
                "rows came behind a barrier that is not reported yet, or after the end of data",
            ));
        }
        Ok(())
    }

    /// Barriers come one at a time, in order, and not long before the commits of those before them.
    pub(crate) fn check_barrier(
        self,
        epoch: Epoch,
        newest: Option<Epoch>,
        uncommitted: usize,
    ) -> Result<(), Failure> {
        if self.in_barrier || newest.is_some_and(|newest| epoch <= newest) {
            return Err(host(&format!(
                "barrier {epoch} came out of order, after {newest:?}"
            )));
        }
        if !self.is_running {
            return Err(host(&format!("barrier {epoch} came after the end of data")));
        }
        if uncommitted >= MOST_UNCOMMITTED {
            return Err(host(&format!(
                "barrier {epoch} came while {MOST_UNCOMMITTED} older checkpoints wait for their commit"
            )));
        }
        Ok(())
    }
}
