//! The default stream's protocol under random schedules: every row is there at least once, and twice only where a fault explains it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod host;
mod server;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use host::Host;

proptest! {
    #![proptest_config(Config { cases: 2_000, ..Config::default() })]

    #[test]
    fn every_row_is_there_and_twice_only_where_a_fault_explains_it(choices in choices()) {
        let mut host = Host::new(choices, true);
        host.run_to_the_end();
        host.check_rows();
    }

    #[test]
    fn without_faults_every_row_is_there_once(choices in choices()) {
        let mut host = Host::new(choices, false);
        host.run_to_the_end();
        host.check_rows();
        prop_assert_eq!(host.server.repeated(), 0);
    }
}

#[test]
fn the_schedules_meet_every_case() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]),
    );
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..500 {
        let choices = choices().new_tree(&mut runner).unwrap().current();
        let mut host = Host::new(choices, true);
        host.run_to_the_end();
        for (case, count) in host.met {
            *met.entry(case).or_insert(0) += count;
        }
        if host.server.repeated() > 0 {
            *met.entry("row twice").or_insert(0) += 1;
        }
    }
    for case in [
        "crash",
        "late request landed",
        "connection lost",
        "rescaled",
        "commit replayed",
        "request emptied",
        "rows refused by the sink",
        "request split",
        "dead letters wanted",
        "stored and refused all the same",
        "row twice",
    ] {
        assert!(met.get(case).is_some_and(|count| *count > 20), "{case}: {met:?}");
    }
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..600)
}
