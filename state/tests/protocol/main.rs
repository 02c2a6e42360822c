//! The core against a small model of BigQuery and a host: any order of answers, losses, refusals, crashes and zombies.
//!
//! Every row is a number. After each step the model checks what a reader would see; the numbers of the invariants (ARCHITECTURE.md)
//! stand at the checks. A schedule is a list of choices; where it ends, everything simply goes on to the end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod checks;
mod host;
mod network;
mod rows;
mod server;

use proptest::prelude::*;

use crate::host::{Host, Mode};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// Invariants 1 to 10 and 12.
    #[test]
    fn every_row_becomes_visible_or_a_dead_letter_exactly_once_whatever_happens(choices in prop::collection::vec(any::<u16>(), 0..400)) {
        let mut host = Host::new(choices, Mode::FaultsAndCrashes);
        host.run_to_the_end();
        prop_assert_eq!(host.visible_rows(), host.all_rows());
    }

    /// Invariant 14: nothing but inputs decides.
    #[test]
    fn the_same_inputs_give_the_same_commands(choices in prop::collection::vec(any::<u16>(), 0..200)) {
        let mut first = Host::new(choices.clone(), Mode::FaultsAndCrashes);
        let mut second = Host::new(choices, Mode::FaultsAndCrashes);
        first.run_to_the_end();
        second.run_to_the_end();
        prop_assert_eq!(first.trace, second.trace);
    }
}

#[test]
fn without_faults_one_stream_per_subtask_carries_everything() {
    let mut host = Host::new(vec![], Mode::Calm);
    host.run_to_the_end();
    assert_eq!(host.visible_rows(), host.all_rows());
    assert!(
        host.server.streams.len() <= 3 * host.parallelism() as usize,
        "a stream is kept across checkpoints"
    );
}

/// The schedules reach what they are there for: a property that never meets its hard cases proves nothing.
#[test]
fn the_schedules_meet_every_hard_case() {
    let mut met = std::collections::BTreeMap::new();
    let mut state = 1_u64;
    for _ in 0..600 {
        let choices = (0..400)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as u16
            })
            .collect();
        let mut host = Host::new(choices, Mode::FaultsAndCrashes);
        host.run_to_the_end();
        for (case, count) in host.met {
            *met.entry(case).or_insert(0) += count;
        }
    }
    for case in [
        "own resend stored",
        "echo discarded",
        "stale answer dropped",
        "stream left",
        "zombie append landed",
        "commit replayed",
        "commit repeated",
        "rescaled",
        "restart asked for",
        "empty epoch",
        "already flushed",
        "answered by the call's end",
        "rows rejected",
        "rows moved up",
        "stream left at a row error",
        "request emptied",
        "rows refused by the sink",
        "request split",
        "dead letters wanted",
    ] {
        assert!(
            met.get(case).copied().unwrap_or(0) > 0,
            "no schedule met: {case}; met {met:?}"
        );
    }
}
