//! How a run may end, by what went wrong in it.

use std::collections::BTreeSet;
use std::time::Duration;

use bigquery_write_emulator::faults::{FaultAction, FaultReport, FaultRule, Rpc};
use bigquery_write_emulator::machine::Code;

use crate::engine::Engine;
use crate::faults::{CameTrue, Fault};
use crate::oracle::{Checkpoints, Expected};
use crate::point::{Called, EngineStep, Hit, Point, StepKind};
use crate::scenario::{
    ConnectionFault, ConnectionFaultKind, End, Incarnation, Scenario, StoreFault, StoreFaultKind, WriteMode,
};
use crate::world::BEGIN_MS;

/// A start is given up after so long.
const START_MS: u64 = 15_000;

/// A call other than an append is given up, and made again, after so long.
const CALL_MS: u64 = 60_000;

/// Pings find a silent connection out within so long.
const PINGED_MS: u64 = 80_000;

/// A run that nothing disturbs is at its end within so long.
const WORK_MS: u64 = 5_000;

/// So long after a fault of the store, which may itself take ten seconds.
const STORE_MS: u64 = 30_000;

/// So long after a process was killed or cut off, or came back.
const PROCESS_MS: u64 = 20_000;

/// What passes is settled in so long: a few tries, or a restart.
const PASSING_MS: u64 = 20_000;

/// So long for a quota, of which it is not known when it is refilled.
const QUOTA_MS: u64 = 60_000;

/// So long until an answer that never comes is given up (half of `append.timeout`, or a call's own limit), and its call is made again.
const UNANSWERED_MS: u64 = 200_000;

/// So long is asked for what is not there, since BigQuery may have learned of it too late: `commit.timeout`, which may begin only when
/// an answer that never comes is given up.
const GONE_MS: u64 = 620_000 + UNANSWERED_MS;

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
    came_true: &CameTrue<'_>,
) -> Result<Expected, String> {
    let recreates = |rule: &FaultRule| matches!(rule.action, FaultAction::RecreateTable {});
    let recreated = came_true.rules().any(recreates);
    if let Outcome::Failed { error } = outcome
        && excuses(scenario, came_true).is_empty()
    {
        return Err(format!("P11: the run ended with an error: {error}"));
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

/// What came true that no retry and no restart mends, so that a loud end is right: each kind at its place.
pub(crate) fn excuses(scenario: &Scenario, came_true: &CameTrue<'_>) -> BTreeSet<String> {
    let torn = |fault: &&StoreFault| matches!(fault.kind, StoreFaultKind::Torn | StoreFaultKind::Rot);
    let stored = came_true.store.iter().map(|fired| &fired.fault).filter(torn);
    let called = came_true
        .rules()
        .filter(|rule| may_end_the_job(rule, scenario, came_true));
    called
        .map(Fault::of_call)
        .chain(stored.map(Fault::of_store))
        .map(|fault| fault.to_string())
        .collect()
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
        .filter(|fault| may_restart(&fault.rule.action, scenario.workload.mode) || lasts(fault))
        .map(|fault| fault.fired)
        .sum();
    let connections: usize = came_true
        .connections
        .iter()
        .map(|fired| restarts_for(&fired.fault))
        .sum();
    // A zombie comes back to connections and answers that are no more.
    let zombies = zombies(scenario, came_true);
    let most = asked as usize + connections + came_true.store.len() + 2 * zombies;
    let most = scenario.restarts.unwrap_or(most);
    if restarts > most {
        return Err(format!(
            "P11: {restarts} restarts, and what happened asks for {most} at most"
        ));
    }
    Ok(())
}

/// How often a call may be made again for this: on a silent connection more than once before pings find it out.
fn asks_again(fault: &ConnectionFault) -> u64 {
    match fault.kind {
        ConnectionFaultKind::Held { ms, .. } if ms < START_MS => 1,
        ConnectionFaultKind::Held { .. } | ConnectionFaultKind::Lost { .. } => PINGED_MS.div_ceil(CALL_MS),
        ConnectionFaultKind::Closed { .. } | ConnectionFaultKind::CallsEnd { .. } => 1,
    }
}

/// Processes that were cut off.
fn zombies(scenario: &Scenario, came_true: &CameTrue<'_>) -> usize {
    let is_zombie = |(incarnation, hits): &(&Incarnation, &Vec<Hit>)| match incarnation.end {
        End::Zombie { hit, .. } => hits.len() > hit,
        _ => false,
    };
    let processes = scenario.incarnations.iter().zip(came_true.hits);
    processes.filter(is_zombie).count()
}

/// P12: each start of a subtask makes one stream at most, or two with dead letters; each stream that is left, one more; and so does each
/// call whose answer may be lost.
pub(crate) fn streams(
    scenario: &Scenario,
    came_true: &CameTrue<'_>,
    created: u64,
    left: u64,
) -> Result<(), String> {
    let started = [Point::Step(StepKind::Started), Point::Engine(EngineStep::Started)];
    let hits = came_true.hits.iter().flatten();
    let starts = hits.filter(|hit| started.contains(&hit.point)).count() as u64;
    let of_each = 1 + u64::from(scenario.workload.dead_letters);
    let creates = came_true
        .calls
        .iter()
        .filter(|report| report.rule.rpc == Rpc::CreateWriteStream);
    let unheard: u64 = creates.map(|report| report.fired).sum();
    let subtasks = scenario
        .incarnations
        .iter()
        .map(|incarnation| incarnation.parallelism);
    let widest = u64::from(subtasks.max().unwrap_or(1));
    // Whoever is cut off from an answer asks again: each subtask once.
    let is_cut = |report: &&FaultReport| matches!(report.rule.action, FaultAction::Reset { .. });
    let cuts: u64 = came_true
        .calls
        .iter()
        .filter(is_cut)
        .map(|report| report.fired)
        .sum();
    let connections: u64 = came_true
        .connections
        .iter()
        .map(|fired| asks_again(&fired.fault))
        .sum();
    let cut_off = (cuts + connections + zombies(scenario, came_true) as u64) * widest;
    let is_disturbed = came_true.rules().next().is_some() || !came_true.connections.is_empty() || cut_off > 0;
    if left > 0 && !is_disturbed && !scenario.workload.dead_letters {
        return Err(format!(
            "P12: {left} streams were left, and nothing happened to any"
        ));
    }
    let most = starts * of_each + left + unheard + cut_off * of_each;
    if created > most {
        return Err(format!(
            "P12: {created} streams were created, and {starts} starts and {left} streams left ask for {most} at most"
        ));
    }
    Ok(())
}

/// Calls that were put off, and carried out when a process had begun after the one that made them.
pub(crate) fn came_late(came_true: &CameTrue<'_>, ended_ms: u64) -> bool {
    came_true.calls.iter().any(|report| {
        let FaultAction::ApplyLate { ms, .. } = report.rule.action else {
            return false;
        };
        report.last_fired_ms.is_some_and(|at| {
            let at = u64::try_from(at - BEGIN_MS).unwrap_or_default();
            let mut begun = came_true.starts_ms.iter();
            at + ms <= ended_ms && begun.any(|begun| (at..at + ms).contains(begun))
        })
    })
}

/// From what went wrong last to the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// What it was, if anything.
    pub after: String,
    /// How long it took.
    pub took: Duration,
    /// How long it may take.
    pub budget: Duration,
}

/// What went wrong last: of all that did, what leaves the most time.
pub(crate) fn settling(came_true: &CameTrue<'_>, ended_ms: u64) -> Settling {
    let mut troubles = vec![(0, String::new(), WORK_MS)];
    for report in came_true.calls {
        if let Some(at) = report.last_fired_ms {
            let at_ms = u64::try_from(at - BEGIN_MS).unwrap_or_default();
            troubles.push((
                at_ms,
                Fault::of_call(&report.rule).to_string(),
                of_call(&report.rule),
            ));
        }
    }
    for fired in came_true.connections {
        let fault = Fault::of_connection(&fired.fault).to_string();
        troubles.push((fired.at_ms, fault, of_connection(&fired.fault)));
    }
    for fired in came_true.store {
        troubles.push((fired.at_ms, Fault::of_store(&fired.fault).to_string(), STORE_MS));
    }
    // A process that comes after one that asks for what is not there has the same patience again.
    let is_gone = |report: &FaultReport| report.last_fired_ms.is_some() && of_call(&report.rule) == GONE_MS;
    let next = if came_true.calls.iter().any(is_gone) {
        GONE_MS
    } else {
        PROCESS_MS
    };
    let ends = came_true.ends_ms.iter();
    troubles.extend(ends.map(|at_ms| (*at_ms, "process".to_owned(), next)));
    let (at_ms, after, budget) = troubles
        .into_iter()
        .max_by_key(|(at_ms, _, budget)| at_ms + budget)
        .unwrap_or_default();
    Settling {
        after,
        took: Duration::from_millis(ended_ms.saturating_sub(at_ms)),
        budget: Duration::from_millis(budget + WORK_MS),
    }
}

/// P11: what went wrong is over, and everything is published within a time that is known.
pub(crate) fn in_time(settling: &Settling) -> Result<(), String> {
    let Settling { after, took, budget } = settling;
    if took > budget {
        return Err(format!(
            "P11: the run ended {} s after {after}, and {} s are enough",
            took.as_secs_f64(),
            budget.as_secs_f64()
        ));
    }
    Ok(())
}

/// How long after such a fault of a call it is settled.
fn of_call(rule: &FaultRule) -> u64 {
    match &rule.action {
        FaultAction::Stall { .. } | FaultAction::ApplyLate { code: None, .. } => UNANSWERED_MS,
        FaultAction::ApplyLate { ms, .. } => ms + PINGED_MS,
        FaultAction::Delay { ms } | FaultAction::StaleEnd { ms, .. } => ms + PASSING_MS,
        FaultAction::ExpireStream {} | FaultAction::RecreateTable {} => GONE_MS,
        FaultAction::Refuse {
            code: Code::NotFound | Code::PermissionDenied,
            ..
        } => GONE_MS,
        FaultAction::Refuse {
            code: Code::ResourceExhausted,
            ..
        } => QUOTA_MS,
        _ => PASSING_MS,
    }
}

/// How long after such a fault of a connection it is settled.
fn of_connection(fault: &ConnectionFault) -> u64 {
    match fault.kind {
        ConnectionFaultKind::Closed { .. } | ConnectionFaultKind::CallsEnd { .. } => PASSING_MS,
        ConnectionFaultKind::Held { ms, .. } if ms < START_MS => ms + PASSING_MS,
        // Found out by pings, also where the start is given up and begun again meanwhile.
        ConnectionFaultKind::Held { .. } | ConnectionFaultKind::Lost { .. } => 2 * PINGED_MS,
    }
}

/// A start is not waited for as long as BigQuery may refuse it.
fn lasts(fault: &FaultReport) -> bool {
    fault.rule.rpc == Rpc::GetWriteStream && fault.fired > 1
}

/// Whether a restart can be the answer. To all else the sink has one of its own.
fn may_restart(action: &FaultAction, mode: WriteMode) -> bool {
    match action {
        // A request without an offset can meet no other rows.
        FaultAction::Refuse {
            code: Code::AlreadyExists,
            ..
        } => mode == WriteMode::AtLeastOnce,
        // Another token is asked for on the call that lives on.
        FaultAction::Refuse {
            code: Code::Unauthenticated,
            in_band: true,
            ..
        } => false,
        FaultAction::Refuse { code, .. } => is_permanent(*code),
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
fn may_end_the_job(rule: &FaultRule, scenario: &Scenario, came_true: &CameTrue<'_>) -> bool {
    let is_restored = came_true.starts_ms.len() > 1;
    match &rule.action {
        // A table without rows, or known to nobody yet, is as good as the one before it.
        FaultAction::RecreateTable {} => {
            is_restored || matches!(rule.rpc, Rpc::AppendRows | Rpc::AppendRowsOpen | Rpc::FlushRows)
        }
        // Rows that do not fit (`row_errors = 'fail'`).
        FaultAction::RowErrors { .. } => !scenario.workload.dead_letters,
        // A commit that cannot be proven any more (invariant 11). With an append it goes only if a commit can be under way then.
        FaultAction::ExpireStream {} => {
            rule.rpc == Rpc::FlushRows
                || scenario.workload.latency_ms > 0
                || scenario.engine.is_some()
                || is_restored
        }
        // A start gives up at once, and whoever goes on at the second.
        FaultAction::Refuse { code, .. } if is_permanent(*code) => {
            rule.rpc == Rpc::GetWriteStream || refused_for_good(came_true) > 1
        }
        _ => false,
    }
}

/// How often a call was refused as if trying again were of no use.
fn refused_for_good(came_true: &CameTrue<'_>) -> u64 {
    let refused = came_true.calls.iter().filter(
        |report| matches!(&report.rule.action, FaultAction::Refuse { code, .. } if is_permanent(*code)),
    );
    refused.map(|report| report.fired).sum()
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
