//! Scenarios drawn from a seed: three faults and more, kills and zombies, rescales. The seed makes the value and nothing else.

use bigquery_write_emulator::faults::{FaultAction, FaultRule};
use bigquery_write_emulator::machine::Code;

use crate::engine::{EnginePlan, Life, PlanClose, PlanStep, ReplayTold, RestoreFrom};
use crate::enumerate::{actions, rules};
use crate::point::{Called, Object, StoreOp};
use crate::scenario::{
    ConnectionFault, ConnectionFaultKind, End, Incarnation, Scenario, StoreFault, StoreFaultKind, Workload,
};

/// The scenario of a seed, always the same.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut draw = Draw(seed);
    let workload = Workload {
        rows: 10 * draw.between(1, 6),
        rate: 100,
        checkpoint_ms: draw.pick(&[0, 40, 120, 300]),
        latency_ms: draw.pick(&[0, 0, 3, 50]),
        // Drawn by nothing, so that the other seeds stay what they are.
        dead_letters: seed % 5 == 4,
        protobuf: seed % 3 == 1,
        ..Workload::default()
    };
    let mut incarnations = Vec::new();
    for _ in 0..draw.between(1, 4) {
        let parallelism = draw.between(1, 3) as u32;
        incarnations.push(Incarnation::ending(parallelism, end(&mut draw, 200)));
    }
    let mut scenario = Scenario {
        workload,
        incarnations,
        ..Scenario::default()
    };
    for _ in 0..draw.between(1, 5) {
        let (called, action) = call_fault(&mut draw);
        let nth = nth(&mut draw, called);
        scenario.faults.rules.extend(rules(called, nth, action));
    }
    for _ in 0..draw.between(0, 2) {
        scenario.store_faults.push(store_fault(&mut draw));
    }
    for _ in 0..draw.between(0, 1) {
        scenario.connection_faults.push(connection_fault(&mut draw));
    }
    if seed % 8 == 7 {
        scenario.store_faults.push(StoreFault {
            kind: draw.pick(&[StoreFaultKind::Torn, StoreFaultKind::Rot]),
            op: StoreOp::Put(draw.pick(&Object::ALL)),
            ..store_fault(&mut draw)
        });
    }
    finish(&mut scenario, seed, &mut draw);
    scenario
}

/// Three faults at least; in some seeds one that may end the job.
fn finish(scenario: &mut Scenario, seed: u64, draw: &mut Draw) {
    if seed % 8 == 3 {
        let called = draw.pick(&[Called::AppendRows, Called::FlushRows]);
        let mut actions = actions(called);
        actions.retain(|action| {
            may_end_a_run(action) && !(scenario.workload.dead_letters && is_row_error(action))
        });
        let (nth, action) = (nth(draw, called), draw.pick(&actions));
        scenario.faults.rules.extend(rules(called, nth, action));
    }
    while faults(scenario) < 3 {
        let (called, action) = call_fault(draw);
        let nth = nth(draw, called);
        scenario.faults.rules.extend(rules(called, nth, action));
    }
}

/// How many it names; what only prepares another is none.
fn faults(scenario: &Scenario) -> usize {
    let prepares = |rule: &&FaultRule| matches!(rule.action, FaultAction::StaleEnd { .. });
    let rules = &scenario.faults.rules;
    let ends = scenario.incarnations.iter().map(|incarnation| incarnation.end);
    rules.len() - rules.iter().filter(prepares).count()
        + scenario.store_faults.len()
        + scenario.connection_faults.len()
        + ends
            .filter(|end| matches!(end, End::Kill { .. } | End::Zombie { .. }))
            .count()
}

/// The scenario of a seed under the engine, always the same.
#[must_use]
pub fn engine(seed: u64) -> Scenario {
    let mut draw = Draw(!seed);
    let mut incarnations = Vec::new();
    let mut lives = Vec::new();
    for _ in 0..draw.between(1, 4) {
        let parallelism = draw.between(1, 3) as u32;
        let end = match draw.between(0, 2) {
            0 => End::Natural,
            _ => end(&mut draw, 60),
        };
        // The engine's stops are steps.
        let end = match end {
            End::Stop { .. } => End::Natural,
            end => end,
        };
        incarnations.push(Incarnation::ending(parallelism, end));
        lives.push(life(&mut draw));
    }
    let mut scenario = Scenario {
        workload: Workload {
            rows: draw.between(4, 30),
            latency_ms: draw.pick(&[0, 0, 3, 50]),
            dead_letters: seed % 5 == 4,
            protobuf: seed % 3 == 1,
            ..Workload::default()
        },
        incarnations,
        engine: Some(EnginePlan {
            keys: draw.between(1, 4) as u32,
            pace_ms: draw.pick(&[0, 5, 25, 60]),
            lives,
        }),
        ..Scenario::default()
    };
    for _ in 0..draw.between(0, 3) {
        let (called, action) = call_fault(&mut draw);
        let nth = nth(&mut draw, called);
        scenario.faults.rules.extend(rules(called, nth, action));
    }
    for _ in 0..draw.between(0, 1) {
        scenario.connection_faults.push(connection_fault(&mut draw));
    }
    finish(&mut scenario, seed, &mut draw);
    scenario
}

fn life(draw: &mut Draw) -> Life {
    Life {
        restore: draw.pick(&[
            RestoreFrom::Newest,
            RestoreFrom::Newest,
            RestoreFrom::Newest,
            RestoreFrom::Adopted,
            RestoreFrom::Older { back: 1 },
        ]),
        replay: draw.pick(&[ReplayTold::Truth, ReplayTold::Unknown]),
        steps: (0..draw.between(1, 9)).map(|_| plan_step(draw)).collect(),
    }
}

fn plan_step(draw: &mut Draw) -> PlanStep {
    let some = |draw: &mut Draw| draw.pick(&[None, None, Some(1), Some(2)]);
    match draw.between(0, 19) {
        0..=6 => PlanStep::Rows {
            key: draw.pick(&[None, None, Some(0), Some(1)]),
            count: draw.between(1, 5),
        },
        7..=10 => PlanStep::Checkpoint { then_stop: false },
        11..=14 => PlanStep::Commit {
            subtasks: some(draw),
            times: draw.between(1, 2) as u32,
        },
        15 => PlanStep::Prepare {
            subtasks: some(draw),
            stored: draw.between(0, 1) == 1,
        },
        16 => PlanStep::Wait {
            ms: draw.between(1, 400),
        },
        17 => PlanStep::Overtaken {
            held_ms: draw.pick(&[0, 270, 5_000]),
        },
        18 => PlanStep::Crash {
            loses_sent: draw.between(0, 1) == 1,
        },
        _ => PlanStep::Close {
            reason: draw.pick(&[PlanClose::EndOfData, PlanClose::Stop, PlanClose::Interrupted]),
        },
    }
}

/// At one of the first so many points, if at any.
fn end(draw: &mut Draw, points: u64) -> End {
    let hit = draw.between(0, points) as usize;
    match draw.between(0, 9) {
        0..=4 => End::Kill {
            hit,
            loses_sent: draw.between(0, 1) == 1,
        },
        5..=7 => End::Zombie {
            hit,
            ms: draw.pick(&[100, 400, 5_000, 90_000]),
            reconnects: draw.between(0, 2) == 0,
        },
        8 => End::Stop {
            ms: draw.between(1, 800),
        },
        _ => End::Natural,
    }
}

/// Which call of its kind: there are few of the last two.
fn nth(draw: &mut Draw, called: Called) -> u64 {
    match called {
        Called::AppendRows | Called::FlushRows => draw.between(1, 8),
        Called::CreateWriteStream | Called::GetWriteStream => draw.between(1, 3),
    }
}

/// None that ends the job for good by itself: a run of a seed must reach its end, but for two bad tokens in a row.
fn call_fault(draw: &mut Draw) -> (Called, FaultAction) {
    let called = draw.pick(&[
        Called::AppendRows,
        Called::AppendRows,
        Called::AppendRows,
        Called::FlushRows,
        Called::FlushRows,
        Called::CreateWriteStream,
        Called::GetWriteStream,
    ]);
    let mut actions = actions(called);
    actions.retain(|action| {
        let meets_others = matches!(
            action,
            FaultAction::Refuse {
                code: Code::AlreadyExists,
                ..
            }
        );
        !may_end_a_run(action) && !meets_others
    });
    if called == Called::GetWriteStream {
        // A start does not wait for another token, a permission or a table.
        let refused = |action: &FaultAction| {
            matches!(
                action,
                FaultAction::Refuse {
                    code: Code::Unauthenticated | Code::PermissionDenied | Code::NotFound | Code::DataLoss,
                    ..
                }
            )
        };
        actions.retain(|action| !refused(action));
    }
    (called, draw.pick(&actions))
}

/// By itself.
fn may_end_a_run(action: &FaultAction) -> bool {
    matches!(
        action,
        FaultAction::ExpireStream {} | FaultAction::RecreateTable {}
    ) || is_row_error(action)
}

fn is_row_error(action: &FaultAction) -> bool {
    matches!(action, FaultAction::RowErrors { .. })
}

fn connection_fault(draw: &mut Draw) -> ConnectionFault {
    ConnectionFault {
        called: draw.pick(&[
            Called::AppendRows,
            Called::AppendRows,
            Called::FlushRows,
            Called::CreateWriteStream,
            Called::GetWriteStream,
        ]),
        nth: draw.between(1, 6),
        kind: draw.pick(&ConnectionFaultKind::ALL),
    }
}

fn store_fault(draw: &mut Draw) -> StoreFault {
    let object = draw.pick(&Object::ALL);
    let op = draw.pick(&[
        StoreOp::Put(object),
        StoreOp::Put(object),
        StoreOp::Read(object),
        StoreOp::List,
        StoreOp::Delete,
    ]);
    let kinds = StoreFaultKind::ALL
        .into_iter()
        .filter(|kind| kind.suits(op) && !matches!(kind, StoreFaultKind::Torn | StoreFaultKind::Rot));
    StoreFault {
        op,
        nth: draw.between(1, 6),
        kind: draw.pick(&kinds.collect::<Vec<_>>()),
        process: None,
    }
}

/// SplitMix64: a few lines, and the same numbers for ever, which a library's generator does not promise.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Both ends included.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as u64 - 1) as usize].clone()
    }
}
