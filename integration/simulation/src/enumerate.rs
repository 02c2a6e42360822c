//! Every run of a kind, from what a run that nothing disturbs comes by: each is listed, none is drawn.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use bigquery_write_emulator::faults::{Delivered, FaultAction, FaultRule, Occurrence, Rpc};
use bigquery_write_emulator::machine::Code;

use crate::batch::on_all_cores;
pub use crate::engine::plans::{barrier_plans, lone_bad_rows};
use crate::point::{Called, Hit, Point, StepKind, When};
use crate::run::run;
use crate::scenario::{
    ConnectionFault, ConnectionFaultKind, End, Incarnation, Scenario, StoreFault, StoreFaultKind,
};

/// One run for each point that the calm run comes by: killed there, then let run again. What the dead process had sent
/// arrives in one, and is lost in the next.
#[must_use]
pub fn crashes(calm: &Scenario) -> Vec<Scenario> {
    let hits = hits(calm, 0);
    let kill = |hit| [true, false].map(|loses_sent| with_end(calm, End::Kill { hit, loses_sent }));
    (0..hits.len()).flat_map(kill).collect()
}

/// As [`crashes`] for a later process of the calm run, at every `step`-th point from `first` on.
#[must_use]
pub fn crashes_of(calm: &Scenario, process: usize, first: usize, step: usize) -> Vec<Scenario> {
    let hits = (0..hits(calm, process).len()).skip(first).step_by(step);
    hits.map(|hit| {
        let loses_sent = (hit / step).is_multiple_of(2);
        with_end_of(calm, process, End::Kill { hit, loses_sent })
    })
    .collect()
}

/// As [`crashes`], but each is back after a while, when the next process has begun, and goes on where it was.
#[must_use]
pub fn zombies(calm: &Scenario, ms: u64) -> Vec<Scenario> {
    zombies_of(calm, 0, 1, ms)
}

/// As [`zombies`], at every `step`-th point from `first` on.
#[must_use]
pub fn zombies_of(calm: &Scenario, first: usize, step: usize, ms: u64) -> Vec<Scenario> {
    let hits = (0..hits(calm, 0).len()).skip(first).step_by(step);
    hits.map(|hit| {
        // Every third has lost its connections by then.
        let reconnects = hit % 3 == 2;
        with_end(calm, End::Zombie { hit, ms, reconnects })
    })
    .collect()
}

/// As [`zombies_of`], but back when the next process is at work, each at another time.
#[must_use]
pub fn early_zombies(calm: &Scenario, first: usize, step: usize) -> Vec<Scenario> {
    let mut zombies = zombies_of(calm, first, step, 0);
    for zombie in &mut zombies {
        if let End::Zombie { hit, ms, .. } = &mut zombie.incarnations[0].end {
            // The next one begins after 250 ms, and is at its end after some 600.
            *ms = 260 + (*hit as u64 * 37) % 340;
        }
    }
    zombies
}

/// Killed as the first commit is on its way: what comes after replays it.
#[must_use]
pub fn killed_at_commit(calm: &Scenario) -> Option<Scenario> {
    let is_it = |hit: &Hit| hit.point == Point::Step(StepKind::CommitSent);
    let hit = hits(calm, 0).iter().position(is_it)?;
    let loses_sent = true;
    Some(with_end(calm, End::Kill { hit, loses_sent }))
}

/// A second kill at each point of the recovery from each of these kills, every `step`-th of them.
#[must_use]
pub fn crashes_in_recovery(first: &[Scenario], step: usize) -> Vec<Scenario> {
    let mut pairs = Vec::new();
    let mut skipped = 0;
    for scenario in first {
        let recovery = hits(scenario, 1).len();
        for hit in 0..recovery {
            skipped += 1;
            if skipped % step != 0 {
                continue;
            }
            let mut pair = scenario.clone();
            let parallelism = pair.incarnations[pair.incarnations.len() - 1].parallelism;
            pair.incarnations.truncate(1);
            let loses_sent = skipped % 2 == 0;
            pair.incarnations
                .push(Incarnation::ending(parallelism, End::Kill { hit, loses_sent }));
            pair.incarnations.push(Incarnation::new(parallelism));
            pairs.push(pair);
        }
    }
    pairs
}

/// One run for each call that the calm run makes and each thing that can happen to it.
#[must_use]
pub fn call_faults(calm: &Scenario) -> Vec<Scenario> {
    call_faults_of(calm, 0)
}

/// As [`call_faults`], for the calls of that process.
#[must_use]
pub fn call_faults_of(scenario: &Scenario, process: usize) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (called, nths) in calls_of(scenario, process) {
        for nth in nths {
            for action in actions(called) {
                // Where rows are bad, which are is the workload's to say. A stale end is one of the first process's stream.
                let is_left_out = match action {
                    FaultAction::RowErrors { .. } => scenario.workload.dead_letters,
                    FaultAction::StaleEnd { .. } => process > 0,
                    _ => false,
                };
                if !is_left_out {
                    scenarios.push(with_rules(scenario, rules(called, nth, action)));
                }
            }
        }
    }
    scenarios
}

/// One run for each call of the calm run from which on, for minutes, calls of its kind are refused.
#[must_use]
pub fn outages(calm: &Scenario) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (called, count) in calls(&hits(calm, 0)) {
        for nth in 1..=count {
            scenarios.extend(LASTING.map(|(code, times)| {
                let mut lasting = rule(called.rpc(), nth, refuse(code, false));
                lasting.occurrence = Occurrence {
                    from: Some(nth),
                    times: Some(times),
                    ..Occurrence::default()
                };
                with_rules(calm, vec![lasting])
            }));
        }
    }
    scenarios
}

/// What may be refused many times and then pass: a quota, a server that is away, a stream or a table that is not known everywhere yet.
const LASTING: [(Code, u64); 3] = [
    (Code::ResourceExhausted, 16),
    (Code::Unavailable, 8),
    (Code::NotFound, 3),
];

/// One run for each append of the calm run whose connection is cut with it, and each thing that can happen to the first request of the
/// connection that takes its place.
#[must_use]
pub fn reopening_faults(calm: &Scenario) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let calls = calls(&hits(calm, 0));
    let appends = calls.iter().find(|(called, _)| *called == Called::AppendRows);
    for nth in 1..=appends.map_or(0, |(_, count)| *count) {
        for action in actions(Called::AppendRows) {
            // Of a resend it would say that its rows are there, which are not.
            if matches!(
                action,
                FaultAction::Refuse {
                    code: Code::AlreadyExists,
                    ..
                }
            ) {
                continue;
            }
            let lost = FaultAction::Reset {
                applied: nth % 2 == 0,
            };
            let rules = vec![
                rule(Rpc::AppendRows, nth, lost),
                rule(Rpc::AppendRowsOpen, 2, action),
            ];
            scenarios.push(with_rules(calm, rules));
        }
    }
    scenarios
}

/// One run for each call of the calm run that is put off, with its process killed as it is: it is carried out when the next process is at
/// work, or has been.
#[must_use]
pub fn late_calls(calm: &Scenario) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (called, count) in calls(&hits(calm, 0)) {
        for nth in (1..=count).filter(|_| called != Called::GetWriteStream) {
            for ms in [400, 600, 5_000] {
                let late = FaultAction::ApplyLate { ms, code: None };
                let scenario = with_rules(calm, rules(called, nth, late));
                let is_it = |hit: &Hit| hit.point == Point::Applied(called);
                let hits = hits(&scenario, 0).into_iter().enumerate();
                let mut calls = hits.filter(|(_, hit)| is_it(hit));
                // It is made in this run as well, and only carried out later.
                let (hit, _) = calls.nth(nth as usize - 1).expect("the same calls until then");
                let loses_sent = false;
                scenarios.push(with_end(&scenario, End::Kill { hit, loses_sent }));
            }
        }
    }
    scenarios
}

/// One run for each `step`-th millisecond of the calm run at which it is told to stop with a checkpoint; another process follows.
#[must_use]
pub fn stops(calm: &Scenario, step: usize) -> Vec<Scenario> {
    let took = run(calm).simulated.as_millis();
    let took = u64::try_from(took).unwrap_or(u64::MAX);
    (0..=took)
        .step_by(step)
        .map(|ms| with_end(calm, End::Stop { ms }))
        .collect()
}

fn with_rules(calm: &Scenario, rules: Vec<FaultRule>) -> Scenario {
    let mut scenario = calm.clone();
    scenario.faults.rules = rules;
    scenario
}

fn refuse(code: Code, in_band: bool) -> FaultAction {
    FaultAction::Refuse {
        code,
        message: "simulated".to_owned(),
        storage_error: None,
        in_band,
    }
}

/// One run for each call that the calm run makes and each thing that can happen to the connection that it comes on.
#[must_use]
pub fn connection_faults(calm: &Scenario) -> Vec<Scenario> {
    connection_faults_of(calm, 0)
}

/// As [`connection_faults`], for the calls of that process.
#[must_use]
pub fn connection_faults_of(calm: &Scenario, process: usize) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (called, nths) in calls_of(calm, process) {
        for nth in nths {
            for kind in ConnectionFaultKind::ALL {
                let mut scenario = calm.clone();
                scenario
                    .connection_faults
                    .push(ConnectionFault { called, nth, kind });
                scenarios.push(scenario);
            }
        }
    }
    scenarios
}

/// One run for each operation of the store and each thing that can happen to it.
#[must_use]
pub fn store_faults(calm: &Scenario) -> Vec<Scenario> {
    store_faults_of(calm, 0)
}

/// As [`store_faults`], for what that process does with the store.
#[must_use]
pub fn store_faults_of(calm: &Scenario, process: usize) -> Vec<Scenario> {
    let mut seen = BTreeMap::new();
    let mut scenarios = Vec::new();
    for hit in hits(calm, process) {
        let Point::Store(When::Before, op) = hit.point else {
            continue;
        };
        let nth = seen.entry(op).or_insert(0);
        *nth += 1;
        for kind in StoreFaultKind::ALL.into_iter().filter(|kind| kind.suits(op)) {
            let mut scenario = calm.clone();
            scenario.store_faults.push(StoreFault {
                op,
                nth: *nth,
                kind,
                process: Some(process),
            });
            scenarios.push(scenario);
        }
    }
    scenarios
}

/// Each of these runs with a kill at every so many-th point besides.
#[must_use]
pub fn with_crashes(faulty: &[Scenario], step: usize) -> Vec<Scenario> {
    let mut at = 0;
    let mut scenarios = Vec::new();
    for scenario in faulty {
        for hit in 0..hits(scenario, 0).len() {
            at += 1;
            if at % step == 0 {
                let loses_sent = (at / step).is_multiple_of(2);
                scenarios.push(with_end(scenario, End::Kill { hit, loses_sent }));
            }
        }
    }
    scenarios
}

/// What `expand` makes of each of these, in order; on all cores, for it takes a run to know what a scenario comes by.
///
/// # Panics
/// If a run panics outside the simulated processes.
#[must_use]
pub fn each<T: Sync>(of: &[T], expand: impl Fn(usize, &T) -> Vec<Scenario> + Sync) -> Vec<Scenario> {
    let made = Mutex::new(BTreeMap::new());
    on_all_cores(of, |index, one| {
        let scenarios = expand(index, one);
        made.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(index, scenarios);
        ControlFlow::Continue(())
    });
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.into_values().flatten().collect()
}

/// What can happen to a call, one of each kind (testing.md 7.2).
#[must_use]
pub fn actions(called: Called) -> Vec<FaultAction> {
    let codes = [
        Code::Aborted,
        Code::Cancelled,
        Code::DataLoss,
        Code::DeadlineExceeded,
        Code::FailedPrecondition,
        Code::Internal,
        Code::NotFound,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::Unauthenticated,
        Code::Unavailable,
        Code::Unknown,
    ];
    let mut actions = Vec::new();
    for code in codes {
        actions.push(refuse(code, false));
        if called == Called::AppendRows {
            actions.push(refuse(code, true));
        }
    }
    actions.extend([
        FaultAction::LoseAnswer {
            code: Code::Unavailable,
        },
        FaultAction::LoseAnswer { code: Code::Internal },
        FaultAction::ApplyLate {
            ms: 2_000,
            code: Some(Code::Unavailable),
        },
        FaultAction::ApplyLate {
            ms: 70_000,
            code: None,
        },
        FaultAction::ApplyTwice {
            answer: Delivered::First,
        },
        FaultAction::ApplyTwice {
            answer: Delivered::Second,
        },
        FaultAction::Reset { applied: false },
        FaultAction::Reset { applied: true },
        FaultAction::GoAway {},
        FaultAction::Delay { ms: 3_000 },
        FaultAction::Stall { ms: None },
        FaultAction::RecreateTable {},
    ]);
    if matches!(called, Called::AppendRows | Called::FlushRows) {
        actions.push(FaultAction::ExpireStream {});
    }
    if called == Called::AppendRows {
        actions.extend([
            FaultAction::RowErrors {
                rows: vec![0],
                message: "simulated".to_owned(),
            },
            FaultAction::End {
                code: Some(Code::Aborted),
                message: "Closing the stream because it has been inactive for 600 seconds".to_owned(),
                ok: false,
            },
            FaultAction::End {
                code: None,
                message: String::new(),
                ok: true,
            },
            FaultAction::End {
                code: None,
                message: String::new(),
                ok: false,
            },
            FaultAction::Slow {
                bytes_per_second: 200,
            },
            // As if another writer had been on the stream.
            FaultAction::Refuse {
                code: Code::AlreadyExists,
                message: "The offset is within stream, expected offset 1000, received 0".to_owned(),
                storage_error: Some("OFFSET_ALREADY_EXISTS".to_owned()),
                in_band: true,
            },
            FaultAction::StaleEnd {
                ms: 5_000,
                rows: None,
            },
            FaultAction::UpdatedSchema {},
        ]);
    }
    actions
}

/// What happens to a call, and what must happen before so that it can.
#[must_use]
pub fn rules(called: Called, nth: u64, action: FaultAction) -> Vec<FaultRule> {
    match action {
        // Only a connection that is opened anew can be wrong about the end.
        FaultAction::StaleEnd { .. } => {
            let lost = FaultAction::Reset { applied: true };
            vec![
                rule(called.rpc(), nth, lost),
                rule(Rpc::AppendRowsOpen, 2, action),
            ]
        }
        _ => vec![rule(called.rpc(), nth, action)],
    }
}

/// A rule for one occurrence.
#[must_use]
pub fn rule(rpc: Rpc, nth: u64, action: FaultAction) -> FaultRule {
    FaultRule {
        rpc,
        table: None,
        stream: None,
        connection: None,
        after_rows: None,
        offset: None,
        occurrence: Occurrence {
            nth: Some(nth),
            ..Occurrence::default()
        },
        action,
    }
}

fn with_end(calm: &Scenario, end: End) -> Scenario {
    with_end_of(calm, 0, end)
}

/// That process ends so, and another follows.
fn with_end_of(calm: &Scenario, process: usize, end: End) -> Scenario {
    let mut scenario = calm.clone();
    let last = scenario.incarnations[scenario.incarnations.len() - 1].parallelism;
    let wanted = scenario.incarnations.len().max(process + 2);
    scenario.incarnations.resize(wanted, Incarnation::new(last));
    scenario.incarnations[process].end = end;
    scenario
}

/// What the process comes by in this run.
fn hits(scenario: &Scenario, process: usize) -> Vec<Hit> {
    run(scenario).hits.get(process).cloned().unwrap_or_default()
}

/// The calls that the process makes, as they are numbered over all processes.
fn calls_of(scenario: &Scenario, process: usize) -> Vec<(Called, std::ops::RangeInclusive<u64>)> {
    let hits = run(scenario).hits;
    let (before, of) = hits.split_at(process.min(hits.len()));
    let before = calls(&before.concat());
    let of = calls(of.first().map_or(&[], Vec::as_slice));
    let both = before.into_iter().zip(of);
    both.map(|((called, before), (_, count))| (called, before + 1..=before + count))
        .collect()
}

fn calls(hits: &[Hit]) -> Vec<(Called, u64)> {
    let count = |called| {
        let of = hits
            .iter()
            .filter(|hit| hit.point == Point::Applied(called))
            .count();
        (called, of as u64)
    };
    Called::ALL.map(count).to_vec()
}
