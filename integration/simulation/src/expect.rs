//! How a run may end, by what went wrong in it.

use bigquery_write_emulator::faults::{FaultAction, FaultRule, Rpc};
use bigquery_write_emulator::machine::Code;

use crate::engine::Engine;
use crate::faults::CameTrue;
use crate::oracle::{Checkpoints, Expected};
use crate::point::{Called, Hit, Point, StepKind};
use crate::scenario::{
    ConnectionFault, ConnectionFaultKind, End, Scenario, StoreFault, StoreFaultKind, WriteMode,
};

/// A start is given up after so long.
const START_MS: u64 = 15_000;

/// Pings find a silent connection out within so long.
const PINGED_MS: u64 = 80_000;

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

/// What the table must hold; or why the run may not end so.
pub(crate) fn expected(
    scenario: &Scenario,
    outcome: &Outcome,
    checkpoints: &Checkpoints,
    engine: Option<&Engine>,
) -> Result<Expected, String> {
    let rules = || scenario.faults.rules.iter();
    let actions = || rules().map(|rule| &rule.action);
    let recreated = actions().any(|action| matches!(action, FaultAction::RecreateTable {}));
    if let Outcome::Failed { error } = outcome {
        let torn = |fault: &StoreFault| matches!(fault.kind, StoreFaultKind::Torn | StoreFaultKind::Rot);
        if !recreated
            && !scenario.store_faults.iter().any(torn)
            && !rules().any(|rule| may_end_the_job(rule, scenario))
        {
            return Err(format!("P11: the run ended with an error: {error}"));
        }
    }
    if let Some(engine) = engine {
        return counted(engine, outcome, !recreated);
    }
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
        Outcome::Failed { .. } | Outcome::Stuck => Ok(Expected::WhatWasConfirmed),
    }
}

/// The engine knows of each row how often it was published.
fn counted(engine: &Engine, outcome: &Outcome, whole: bool) -> Result<Expected, String> {
    let counts = engine.counts();
    let twice = counts.iter().flatten().any(|due| *due.end() > 1);
    if twice && !engine.may_publish_again() {
        return Err("P2: two complete checkpoints cover the same rows".to_owned());
    }
    if *outcome == Outcome::Complete {
        for (key, counts) in counts.iter().enumerate() {
            if let Some(number) = counts.iter().position(|due| *due.start() == 0) {
                return Err(format!(
                    "P1: the run is complete, and row {number} of key {key} is in no confirmed checkpoint"
                ));
            }
        }
    }
    Ok(Expected::Counted { counts, whole })
}

/// P11: how often the host of these processes restarted, or whoever watches it, and that nothing asked for so many restarts.
pub(crate) fn restarts(
    scenario: &Scenario,
    came_true: &CameTrue<'_>,
    supervised: usize,
) -> Result<(), String> {
    let restored = |hit: &&Hit| hit.point == Point::Step(StepKind::Restored);
    let by_host = |hits: &Vec<Hit>| hits.iter().filter(restored).count().saturating_sub(1);
    let restarts = came_true.hits.iter().map(by_host).sum::<usize>() + supervised;
    let asked: u64 = came_true
        .calls
        .iter()
        .filter(|fault| may_restart(&fault.rule.action, scenario.workload.mode))
        .map(|fault| fault.fired)
        .sum();
    let connections: usize = came_true.connections.iter().map(restarts_for).sum();
    // A zombie comes back to connections and answers that are no more.
    let zombies = scenario
        .incarnations
        .iter()
        .filter(|incarnation| matches!(incarnation.end, End::Zombie { .. }))
        .count();
    let most = asked as usize + connections + scenario.store_faults.len() + 2 * zombies;
    let most = scenario.restarts.unwrap_or(most);
    if restarts > most {
        return Err(format!(
            "P11: {restarts} restarts, and what happened asks for {most} at most"
        ));
    }
    Ok(())
}

/// Whether a restart can be the answer. To all else the sink has one of its own.
fn may_restart(action: &FaultAction, mode: WriteMode) -> bool {
    match action {
        // A request without an offset can meet no other rows.
        FaultAction::Refuse {
            code: Code::AlreadyExists,
            ..
        } => mode == WriteMode::AtLeastOnce,
        FaultAction::Refuse { code, in_band, .. } => is_permanent(*code) && !in_band,
        FaultAction::RecreateTable {}
        | FaultAction::ExpireStream {}
        | FaultAction::Stall { .. }
        | FaultAction::RowErrors { .. }
        | FaultAction::ApplyLate { .. } => true,
        _ => false,
    }
}

/// How many restarts can be the answer to what happened to a connection. To one that is closed, none is: what is in doubt is sent again on
/// another. Neither to a silent one that carries appends: pings find it out before any budget is over.
fn restarts_for(fault: &ConnectionFault) -> usize {
    match fault.kind {
        ConnectionFaultKind::CallsEnd { code } => usize::from(is_permanent(code)),
        ConnectionFaultKind::Held { ms, .. } if ms < START_MS => 0,
        ConnectionFaultKind::Held { .. } | ConnectionFaultKind::Lost { .. } => match fault.called {
            Called::AppendRows => 0,
            // The connection is that of all other calls, the one at the start among them, which is given up and begun again.
            _ => PINGED_MS.div_ceil(START_MS) as usize,
        },
        ConnectionFaultKind::Closed { .. } => 0,
    }
}

/// Faults that no retry and no restart mends, so that a loud end is right.
fn may_end_the_job(rule: &FaultRule, scenario: &Scenario) -> bool {
    match &rule.action {
        // Rows that do not fit (`row_errors = 'fail'`).
        FaultAction::RowErrors { .. } => true,
        // A commit that cannot be proven any more (invariant 11). With an append it goes only if a commit can be under way then.
        FaultAction::ExpireStream {} => {
            rule.rpc == Rpc::FlushRows || scenario.workload.latency_ms > 0 || scenario.engine.is_some()
        }
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
