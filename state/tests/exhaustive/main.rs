//! The core in every order of events: the real core against a small model of BigQuery, of the store and of the host, explored to the end.
//!
//! A scope bounds the job and what may go wrong in it; within it nothing is left out: every order of batches, barriers, answers,
//! pauses, commits, losses, crashes and takeovers. After each step the invariants of design.md section 3 are checked, and where the job is done, that
//! a reader sees every row once. Reductions, each without loss of a behaviour that a check could tell apart:
//!
//! - Barrier and end of data reach all subtasks in one step, as cores do not hear of each other.
//! - A stream is created, and a flush carried out, in one step with its answer: nobody else can see what lies between.
//! - A host's second look at its generation comes with its claim once no further takeover can come between.
//! - A request is served at once where nothing that can happen before makes a difference (`World::alone`).
//! - Streams that nobody can name any more are forgotten (`World::forget`).
//! - A core's clock moves only when it wants to be woken; the clocks of two cores are independent.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod commands;
mod explorer;
#[cfg(feature = "mutants")]
mod mutants;
mod part;
mod scope;
mod server;
mod steps;
mod world;

use crate::explorer::explore;
use crate::scope::Scope;

/// More states than this would not be explored to the end in the time a test may take.
const MOST_STATES: usize = 2_000_000;

#[test]
fn every_order_of_events_keeps_every_invariant() {
    let (mut states, mut transitions) = (0, 0);
    for scope in Scope::all() {
        let explored = explore(&scope, MOST_STATES);
        println!("{scope}: {explored}");
        if let Some(violation) = explored.violation {
            panic!("{scope}: {violation}");
        }
        assert!(explored.done > 0, "{scope}: no way leads to the end of the job");
        states += explored.states;
        transitions += explored.transitions;
    }
    println!("{states} states and {transitions} transitions in all");
}
