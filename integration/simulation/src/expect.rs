//! How a run may end, by what went wrong in it.

use bigquery_sink_pipeline::HostError;
use bigquery_write_emulator::faults::FaultAction;
use bigquery_write_emulator::machine::Code;

use crate::oracle::{Checkpoints, Expected};
use crate::scenario::{Scenario, StoreFaultKind};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was read and published.
    Complete,
    /// A process ended with an error that no restart mends.
    Failed {
        /// What it said.
        error: String,
    },
    /// It was not at its end when time was up.
    Stuck,
}

impl Outcome {
    pub(crate) fn failed(error: &HostError) -> Self {
        Self::Failed {
            error: error.to_string(),
        }
    }
}

/// What the table must hold; or why the run may not end so.
pub(crate) fn expected(
    scenario: &Scenario,
    outcome: &Outcome,
    checkpoints: &Checkpoints,
) -> Result<Expected, String> {
    let actions = || scenario.faults.rules.iter().map(|rule| &rule.action);
    let recreated = actions().any(|action| matches!(action, FaultAction::RecreateTable {}));
    match outcome {
        _ if recreated => Ok(Expected::NothingTwice),
        Outcome::Complete => match checkpoints.newest {
            Some(newest) if newest.input_ended && newest.committed => Ok(Expected::Everything {
                rows: scenario.workload.rows,
                parallelism: newest.parallelism,
            }),
            newest => Err(format!(
                "P1: the run is complete, and its newest checkpoint is {newest:?}"
            )),
        },
        Outcome::Failed { error } => {
            let torn = scenario
                .store_faults
                .iter()
                .any(|fault| matches!(fault.kind, StoreFaultKind::Torn | StoreFaultKind::Rot));
            if torn || actions().any(may_end_the_job) {
                Ok(Expected::WhatWasConfirmed)
            } else {
                Err(format!("P11: the run ended with an error: {error}"))
            }
        }
        Outcome::Stuck => Ok(Expected::WhatWasConfirmed),
    }
}

/// Faults that no retry and no restart mends, so that a loud end is right.
fn may_end_the_job(action: &FaultAction) -> bool {
    match action {
        // Rows that do not fit (`row_errors = 'fail'`); a commit that cannot be proven any more (invariant 11).
        FaultAction::RowErrors { .. } | FaultAction::ExpireStream {} => true,
        FaultAction::Refuse { code, .. } | FaultAction::LoseAnswer { code } => is_permanent(*code),
        FaultAction::End { code: Some(code), .. } | FaultAction::ApplyLate { code: Some(code), .. } => {
            is_permanent(*code)
        }
        _ => false,
    }
}

fn is_permanent(code: Code) -> bool {
    !matches!(
        code,
        Code::Aborted
            | Code::AlreadyExists
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::ResourceExhausted
            | Code::Unavailable
            | Code::Unknown
    )
}
