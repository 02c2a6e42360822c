//! Makes a broken scenario smaller: the schedule, not the seed.

use std::collections::BTreeSet;

use crate::batch::property;
use crate::engine::Life;
use crate::run::run;
use crate::scenario::{End, Scenario};

/// The smallest scenario found that breaks the same property as well; `scenario` itself if nothing can be left out, or nothing is broken.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Scenario {
    let broken = broken(scenario);
    smallest(scenario, |smaller| {
        broken.intersection(&self::broken(smaller)).next().is_some()
    })
}

/// As long as `shows` says that what is left is worth looking at.
fn smallest(scenario: &Scenario, shows: impl Fn(&Scenario) -> bool) -> Scenario {
    let mut smallest = scenario.clone();
    while let Some(smaller) = simpler(&smallest).into_iter().find(&shows) {
        smallest = smaller;
    }
    smallest
}

/// The properties that its run violates, by number; what has none counts as one.
fn broken(scenario: &Scenario) -> BTreeSet<String> {
    let violations = run(scenario).violations;
    violations
        .iter()
        .map(|violation| property(violation).to_owned())
        .collect()
}

/// One step simpler, the largest steps first.
fn simpler(scenario: &Scenario) -> Vec<Scenario> {
    let mut simpler = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = scenario.clone();
        change(&mut changed);
        if changed != *scenario {
            simpler.push(changed);
        }
    };
    if scenario.incarnations.len() > 1 {
        for at in 0..scenario.incarnations.len() {
            with(&|scenario| {
                scenario.incarnations.remove(at);
                // A process takes its part of the engine's plan along.
                if let Some(engine) = &mut scenario.engine
                    && at < engine.lives.len()
                {
                    engine.lives.remove(at);
                }
            });
        }
    }
    for at in 0..scenario.faults.rules.len() {
        with(&|scenario| {
            scenario.faults.rules.remove(at);
        });
    }
    for at in 0..scenario.store_faults.len() {
        with(&|scenario| {
            scenario.store_faults.remove(at);
        });
    }
    for at in 0..scenario.connection_faults.len() {
        with(&|scenario| {
            scenario.connection_faults.remove(at);
        });
    }
    for at in 0..scenario.incarnations.len() {
        with(&|scenario| scenario.incarnations[at].end = End::Natural);
        with(&|scenario| scenario.incarnations[at].parallelism = 1);
        if let End::Zombie { hit, .. } = scenario.incarnations[at].end {
            with(&|scenario| {
                scenario.incarnations[at].end = End::Kill {
                    hit,
                    loses_sent: false,
                };
            });
        }
    }
    let lives = scenario.engine.as_ref().map_or(&[][..], |engine| &engine.lives);
    for (at, life) in lives.iter().enumerate() {
        for step in 0..life.steps.len() {
            with(&|scenario| {
                if let Some(engine) = &mut scenario.engine {
                    engine.lives[at].steps.remove(step);
                }
            });
        }
        with(&|scenario| {
            if let Some(engine) = &mut scenario.engine {
                let steps = std::mem::take(&mut engine.lives[at].steps);
                engine.lives[at] = Life {
                    steps,
                    ..Life::default()
                };
            }
        });
    }
    with(&|scenario| scenario.workload.latency_ms = 0);
    with(&|scenario| scenario.workload.protobuf = false);
    with(&|scenario| scenario.workload.dead_letters = false);
    with(&|scenario| {
        let rows = &mut scenario.workload.rows;
        *rows = (*rows / 2).max(10).min(*rows);
    });
    for at in 0..scenario.faults.rules.len() {
        with(&|scenario| {
            let occurrence = &mut scenario.faults.rules[at].occurrence;
            occurrence.nth = occurrence.nth.map(|nth| (nth / 2).max(1));
        });
    }
    simpler
}

#[cfg(test)]
mod tests {
    use bigquery_write_emulator::faults::{FaultAction, FaultRule};
    use bigquery_write_emulator::machine::Behaviour;

    use super::*;
    use crate::engine::{EnginePlan, PlanStep};
    use crate::enumerate::rules;
    use crate::point::Called;
    use crate::scenario::{Incarnation, Workload};

    fn fault(nth: u64) -> Vec<FaultRule> {
        rules(Called::FlushRows, nth, FaultAction::Delay { ms: 10 })
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        let kill = End::Kill {
            hit: 40,
            loses_sent: true,
        };
        // Of a BigQuery that shows rows before the flush nothing else needs to go wrong.
        let scenario = Scenario {
            workload: Workload {
                latency_ms: 3,
                ..Workload::default()
            },
            incarnations: vec![
                Incarnation::ending(2, End::Stop { ms: 50 }),
                Incarnation::ending(3, kill),
                Incarnation::new(2),
            ],
            faults: bigquery_write_emulator::faults::FaultPlan {
                rules: [fault(4), fault(8)].concat(),
            },
            unlearned: [Behaviour::HeldUntilPublished].into(),
            ..Scenario::default()
        };
        let smallest = shrink(&scenario);
        let expected = Scenario {
            workload: Workload {
                rows: 10,
                ..Workload::default()
            },
            incarnations: vec![Incarnation::new(1)],
            unlearned: [Behaviour::HeldUntilPublished].into(),
            ..Scenario::default()
        };
        assert_eq!(smallest, expected);
    }

    #[test]
    fn what_matters_stays() {
        let scenario = Scenario {
            workload: Workload {
                rows: 4,
                ..Workload::default()
            },
            incarnations: vec![Incarnation::new(1), Incarnation::new(2), Incarnation::new(3)],
            faults: bigquery_write_emulator::faults::FaultPlan { rules: fault(9) },
            engine: Some(EnginePlan {
                keys: 2,
                pace_ms: 5,
                lives: vec![
                    Life {
                        steps: vec![PlanStep::Rest],
                        ..Life::default()
                    },
                    Life {
                        steps: vec![PlanStep::Wait { ms: 7 }],
                        ..Life::default()
                    },
                ],
            }),
            ..Scenario::default()
        };
        // Only that a process of two subtasks waits matters.
        let waits = |scenario: &Scenario| {
            let lives = &scenario.engine.as_ref().unwrap().lives;
            let mut processes = scenario.incarnations.iter().zip(lives);
            processes
                .any(|(process, life)| process.parallelism == 2 && life.steps == [PlanStep::Wait { ms: 7 }])
        };
        let smallest = smallest(&scenario, waits);
        assert_eq!(smallest.incarnations, [Incarnation::new(2)]);
        assert_eq!(smallest.engine.unwrap().lives.len(), 1);
        assert_eq!(smallest.faults.rules, []);
        assert_eq!(smallest.workload.rows, 4, "never more than there were");
    }
}
