//! The orders in which an engine may say barrier, commit, restore and close: every opening with every way to go on after it.

use super::plan::{EnginePlan, Life, PlanClose, PlanStep, ReplayTold, RestoreFrom};
use crate::process::fault_of;
use crate::scenario::{Incarnation, Scenario, Workload};

/// Rows of each key.
const ROWS: u64 = 12;

/// Between two steps: longer than the sink's linger, so that rows are on their way before the next.
const PACE_MS: u64 = 25;

/// A zombie waits so long after it is overtaken: then the next process is at work.
const OVERTAKEN_MS: u64 = 260;

/// Subtasks of the first process, and of those after it.
const PARALLELISMS: [(u32, u32); 7] = [(1, 1), (2, 2), (3, 3), (1, 3), (3, 1), (2, 1), (2, 3)];

/// Every one, with what it is.
#[must_use]
pub fn barrier_plans() -> Vec<(String, Scenario)> {
    let mut plans = Vec::new();
    for (before, after) in PARALLELISMS {
        let mut add = |what: &str, steps: &[PlanStep], life: Life| {
            let name = format!("{what}, {before} to {after} subtasks");
            plans.push((name, scenario(before, after, steps, life)));
        };
        for (opening, steps) in openings(before) {
            for (recovery, life) in recoveries() {
                add(&format!("{opening}, then {recovery}"), &steps, life);
            }
        }
        // After these the job is over; only a kill makes another process of it.
        for ((ending, steps), (_, life)) in endings().into_iter().zip(recoveries()) {
            add(ending, &steps, life);
        }
    }
    plans
}

/// A row that is bad, and alone in its checkpoint: the process dies when that is complete, so that a letter which is not in it is lost.
#[must_use]
pub fn lone_bad_rows() -> Vec<Scenario> {
    let mut plans = Vec::new();
    for (before, after) in PARALLELISMS {
        for bad in (0..ROWS).filter(|number| fault_of(*number as i64).is_some()) {
            let mut plan = scenario(
                before,
                after,
                &[rows(bad), CHECKPOINT, COMMIT, rows(1), CHECKPOINT, CRASH],
                Life::default(),
            );
            plan.workload.dead_letters = true;
            // At once, so that the barrier is there before the letter is on its way.
            plan.engine.iter_mut().for_each(|engine| engine.pace_ms = 0);
            plans.push(plan);
        }
    }
    plans
}

fn scenario(before: u32, after: u32, steps: &[PlanStep], recovery: Life) -> Scenario {
    let first = Life {
        steps: steps.to_vec(),
        ..Life::default()
    };
    Scenario {
        workload: Workload {
            rows: ROWS,
            ..Workload::default()
        },
        incarnations: vec![Incarnation::new(before), Incarnation::new(after)],
        engine: Some(EnginePlan {
            // Of different subtasks one has a key more, where there are keys enough.
            keys: before.max(after) + u32::from(before != after),
            pace_ms: PACE_MS,
            lives: vec![first, recovery],
        }),
        ..Scenario::default()
    }
}

fn rows(count: u64) -> PlanStep {
    PlanStep::Rows { key: None, count }
}

fn rows_of(key: u32, count: u64) -> PlanStep {
    PlanStep::Rows {
        key: Some(key),
        count,
    }
}

fn close(reason: PlanClose) -> PlanStep {
    PlanStep::Close { reason }
}

const CHECKPOINT: PlanStep = PlanStep::Checkpoint { then_stop: false };
const LAST_CHECKPOINT: PlanStep = PlanStep::Checkpoint { then_stop: true };
const COMMIT: PlanStep = commit(None, 1);
const CRASH: PlanStep = PlanStep::Crash { loses_sent: false };
const OVERTAKEN: PlanStep = PlanStep::Overtaken { held_ms: 0 };
const WAIT: PlanStep = PlanStep::Wait { ms: OVERTAKEN_MS };

const fn commit(subtasks: Option<u32>, times: u32) -> PlanStep {
    PlanStep::Commit { subtasks, times }
}

const fn prepare(subtasks: Option<u32>, stored: bool) -> PlanStep {
    PlanStep::Prepare { subtasks, stored }
}

/// What the first process does until it is over, or is overtaken.
fn openings(subtasks: u32) -> Vec<(String, Vec<PlanStep>)> {
    let mut openings: Vec<(String, Vec<PlanStep>)> = Vec::new();
    let mut add = |name: String, then: &[PlanStep]| openings.push((name, then.to_vec()));
    add(
        "checkpoints".to_owned(),
        &[
            rows(1),
            rows(1),
            rows(1),
            CHECKPOINT,
            COMMIT,
            rows(2),
            CHECKPOINT,
            COMMIT,
            rows(2),
            PlanStep::Crash { loses_sent: true },
        ],
    );
    add(
        "checkpoints back to back".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            CHECKPOINT,
            COMMIT,
            CHECKPOINT,
            COMMIT,
            CRASH,
        ],
    );
    add(
        "epochs empty on some subtasks and on all".to_owned(),
        &[
            rows_of(0, 3),
            CHECKPOINT,
            COMMIT,
            CHECKPOINT,
            COMMIT,
            rows_of(subtasks - 1, 2),
            CHECKPOINT,
            COMMIT,
            CRASH,
        ],
    );
    add(
        "commits after rows of the next epoch".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            rows(2),
            COMMIT,
            rows(1),
            CHECKPOINT,
            rows(1),
            COMMIT,
            CRASH,
        ],
    );
    for prepared in 1..=subtasks {
        add(
            format!("a checkpoint given up when {prepared} of {subtasks} had prepared it"),
            &[
                rows(3),
                CHECKPOINT,
                COMMIT,
                rows(2),
                prepare(Some(prepared), false),
                close(PlanClose::Interrupted),
            ],
        );
    }
    add(
        "a crash when a checkpoint was stored and not complete".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            rows(2),
            prepare(None, true),
            rows(1),
            CRASH,
        ],
    );
    for heard in 0..subtasks {
        add(
            format!("a crash when {heard} of {subtasks} had heard of the commit"),
            &[rows(3), CHECKPOINT, rows(2), commit(Some(heard), 1), CRASH],
        );
    }
    add(
        "a stop with a checkpoint".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            rows(2),
            LAST_CHECKPOINT,
            COMMIT,
            close(PlanClose::Stop),
        ],
    );
    add(
        "a stop without a checkpoint".to_owned(),
        &[rows(3), CHECKPOINT, COMMIT, rows(2), close(PlanClose::Stop)],
    );
    zombies(&mut add);
    openings
}

/// Everything is read, and the sink publishes what is pending.
fn endings() -> Vec<(&'static str, Vec<PlanStep>)> {
    let end = close(PlanClose::EndOfData);
    let (head, tail) = ([rows(3), CHECKPOINT, COMMIT], rows(2));
    let after_head = |then: &[PlanStep]| [&head[..], then].concat();
    vec![
        ("the end of data", after_head(&[tail, end])),
        (
            "the end of data after a last checkpoint",
            vec![PlanStep::Rest, CHECKPOINT, COMMIT, end],
        ),
        (
            "the end of data before a commit",
            vec![rows(3), CHECKPOINT, tail, end],
        ),
        (
            "the end of data when one subtask had prepared a checkpoint",
            after_head(&[tail, prepare(Some(1), false), end]),
        ),
        (
            "the end of data when all had prepared a checkpoint",
            after_head(&[tail, prepare(None, false), tail, end]),
        ),
    ]
}

/// The process goes on when the next has begun: two hosts on one store.
fn zombies(add: &mut impl FnMut(String, &[PlanStep])) {
    add(
        "a zombie that goes on with rows and a checkpoint".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            rows(2),
            OVERTAKEN,
            WAIT,
            rows(2),
            CHECKPOINT,
            rows(2),
        ],
    );
    add(
        "a zombie that was cut off".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            rows(2),
            PlanStep::Overtaken {
                held_ms: OVERTAKEN_MS,
            },
            rows(2),
            CHECKPOINT,
            rows(2),
        ],
    );
    add(
        "a zombie that commits".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            OVERTAKEN,
            WAIT,
            rows(1),
            commit(None, 2),
            rows(1),
        ],
    );
    add(
        "a zombie of whose subtasks one had heard of the commit".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            commit(Some(1), 1),
            OVERTAKEN,
            WAIT,
            COMMIT,
            rows(2),
        ],
    );
    add(
        "a zombie whose data ends".to_owned(),
        &[
            rows(3),
            CHECKPOINT,
            COMMIT,
            rows(2),
            OVERTAKEN,
            WAIT,
            close(PlanClose::EndOfData),
        ],
    );
}

/// What the second process does.
fn recoveries() -> Vec<(&'static str, Life)> {
    let newest = |steps: &[PlanStep]| Life {
        steps: steps.to_vec(),
        ..Life::default()
    };
    let untold = |steps: &[PlanStep]| Life {
        replay: ReplayTold::Unknown,
        ..newest(steps)
    };
    let from = |restore, steps: &[PlanStep]| Life {
        restore,
        ..newest(steps)
    };
    let end = close(PlanClose::EndOfData);
    vec![
        (
            "the commit again and again",
            newest(&[commit(None, 2), rows(1), COMMIT, CHECKPOINT, rows(1), COMMIT]),
        ),
        (
            "rows before the replayed commit",
            newest(&[rows(1), commit(None, 2), CHECKPOINT, COMMIT, rows(2)]),
        ),
        (
            "rows before a commit that may come",
            untold(&[rows(1), commit(Some(1), 1), rows(1), COMMIT, CHECKPOINT, COMMIT]),
        ),
        (
            "the end of data before the replayed commit",
            newest(&[rows(1), end]),
        ),
        (
            "the end of data before a commit that may come",
            untold(&[rows(1), end]),
        ),
        (
            "the end of data after a commit that might have come",
            untold(&[commit(None, 1), rows(1), end]),
        ),
        (
            "an older checkpoint",
            from(
                RestoreFrom::Older { back: 1 },
                &[rows(4), CHECKPOINT, COMMIT, rows(1)],
            ),
        ),
        (
            "an adopted checkpoint",
            from(RestoreFrom::Adopted, &[rows(1), commit(None, 2), CHECKPOINT]),
        ),
        (
            "a crash in the replayed commit",
            newest(&[rows(1), commit(Some(1), 1), CRASH]),
        ),
        (
            "a checkpoint that is given up again",
            newest(&[COMMIT, rows(1), prepare(Some(1), false), CRASH]),
        ),
        (
            "a third process beside it",
            newest(&[COMMIT, rows(1), OVERTAKEN, WAIT, COMMIT, rows(1), CHECKPOINT]),
        ),
    ]
}
