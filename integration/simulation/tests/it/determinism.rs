//! Without this no failing scenario could be replayed: the same run in two processes gives the same trace, to the byte.

use std::process::Command;

use bigquery_sink_simulation::{Scenario, enumerate, seed};

fn trace(scenario: &Scenario) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_bigquery-sink-simulation"))
        .args(["--trace", "--scenario", &scenario.to_json()])
        .output()
        .unwrap();
    assert!(ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn two_processes_see_the_same_to_the_byte() {
    let mut scenarios: Vec<_> = (0..12).map(seed::scenario).collect();
    // Of the engine's, some whose runs are long.
    scenarios.extend([4, 11, 17, 18, 21].map(seed::engine));
    scenarios.push(Scenario::calm(3));
    scenarios.push(enumerate::zombies(&Scenario::calm(2), 5_000).remove(150));
    for scenario in scenarios {
        let (first, second) = (trace(&scenario), trace(&scenario));
        assert!(first.lines().count() > 100, "{first}");
        let difference = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert_eq!(difference, None, "{}", scenario.to_json());
        assert_eq!(first, second, "{}", scenario.to_json());
    }
}
