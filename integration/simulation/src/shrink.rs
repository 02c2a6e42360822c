//! Makes a broken scenario smaller: the schedule, not the seed.

use crate::engine::Life;
use crate::run::run;
use crate::scenario::{End, Scenario};

/// The smallest scenario found that is broken as well; `scenario` itself if nothing can be left out.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Scenario {
    let mut smallest = scenario.clone();
    while let Some(smaller) = simpler(&smallest).into_iter().find(is_broken) {
        smallest = smaller;
    }
    smallest
}

fn is_broken(scenario: &Scenario) -> bool {
    !run(scenario).violations.is_empty()
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
    with(&|scenario| scenario.workload.rows = (scenario.workload.rows / 2).max(10));
    for at in 0..scenario.faults.rules.len() {
        with(&|scenario| {
            let occurrence = &mut scenario.faults.rules[at].occurrence;
            occurrence.nth = occurrence.nth.map(|nth| (nth / 2).max(1));
        });
    }
    simpler
}
