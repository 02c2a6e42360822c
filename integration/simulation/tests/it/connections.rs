//! Connections that are half-closed, held or lost in one direction or in both, at every call.

use bigquery_sink_simulation::enumerate::{connection_faults, with_crashes};
use bigquery_sink_simulation::{Scenario, Tally};

use super::all;

#[test]
fn every_connection_that_fails() {
    let mut total = Tally::default();
    let one = connection_faults(&Scenario::calm(1));
    all(
        &mut total,
        "every call and what can happen to its connection, 1 subtask",
        &one,
    );
    all(
        &mut total,
        "every call and what can happen to its connection, 2 subtasks",
        &connection_faults(&Scenario::calm(2)),
    );
    all(
        &mut total,
        "the same with several requests to a checkpoint",
        &connection_faults(&Scenario::sparse()),
    );
    all(
        &mut total,
        "the same with requests under way behind each",
        &connection_faults(&Scenario::latent()),
    );
    all(
        &mut total,
        "a kill besides a fault of a connection, each 67th",
        &with_crashes(&one, 67),
    );
}
