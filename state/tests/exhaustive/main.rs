//! The core in every order of events: the real core against a small model of BigQuery, of the store and of the host, explored to the end.
//!
//! A scope bounds the job and what may go wrong in it; within it nothing is left out: every order of batches, barriers, answers,
//! pauses, commits, losses, crashes and takeovers. After each step the invariants of design.md section 3 are checked, and where the
//! job is done, that a reader sees every row once. `EXPLORE=deep` takes larger scopes too, for minutes; `EXPLORE=TEXT`
//! only those whose description contains the text.
//!
//! Reductions, none of which loses anything that a check could tell apart:
//!
//! - Barrier and end of data reach all subtasks in one step, as cores do not hear of each other.
//! - A stream is created, and a flush carried out, in one step with its answer: nobody else can see what lies between.
//! - A host's second look at its generation comes with its claim once no further takeover can come between.
//! - Where the order makes no difference one order is taken: a request is served at once, what a dead life sent lands at once, and
//!   a life goes first while all it can do concerns itself (`reductions.rs` says when).
//! - Streams that nobody can name any more are forgotten.
//! - A core's clock moves only when it wants to be woken; the clocks of two cores are independent.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod act;
mod commands;
mod explorer;
#[cfg(feature = "mutants")]
mod mutants;
mod part;
mod reductions;
mod scope;
mod server;
mod steps;
mod world;

use std::io::Write as _;

use crate::explorer::explore;
use crate::scope::Scope;
use crate::world::Case;

/// More states than this would not be explored to the end in the time a test may take.
const MOST_STATES: usize = 5_000_000;

#[test]
fn every_order_of_events_keeps_every_invariant() {
    let wanted = std::env::var("EXPLORE").unwrap_or_default();
    let mut scopes = Scope::all();
    if !wanted.is_empty() {
        scopes.extend(Scope::deep());
    }
    let some = !wanted.is_empty() && wanted != "deep";
    scopes.retain(|scope| !some || scope.to_string().contains(&wanted));
    let (mut states, mut transitions) = (0, 0);
    let mut unmet = Vec::from(Case::ALL);
    for scope in &scopes {
        let explored = explore(scope, MOST_STATES);
        println!("{scope}: {explored}");
        if let Some(violation) = explored.violation {
            panic!("{scope}: {violation}");
        }
        assert!(explored.done > 0, "{scope}: no way leads to the end of the job");
        unmet.retain(|case| !explored.met.contains(case));
        states += explored.states;
        transitions += explored.transitions;
    }
    // Past the test harness, which keeps what a test prints to itself: how much was looked at is part of the result.
    let told = format!(
        "model check: {} scopes, {states} states, {transitions} transitions, no violation\n",
        scopes.len()
    );
    std::io::stdout().write_all(told.as_bytes()).unwrap();
    assert!(
        some || unmet.is_empty(),
        "hard cases that no scope met: {unmet:?}"
    );
}

/// A reduction that took one order for another which ends elsewhere would lose ends.
#[test]
fn reductions_lose_no_end() {
    for scope in Scope::small() {
        let reduced = explore(&scope, MOST_STATES);
        let whole = explore(
            &Scope {
                reduced: false,
                ..scope.clone()
            },
            MOST_STATES,
        );
        println!(
            "{scope}: {} states of {}, {} ends",
            reduced.states,
            whole.states,
            whole.ends.len()
        );
        assert!(reduced.violation.is_none() && whole.violation.is_none());
        assert!(reduced.states < whole.states, "{scope}: nothing is reduced");
        assert_eq!(reduced.ends, whole.ends, "{scope}: ends");
    }
}
