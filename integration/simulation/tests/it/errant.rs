//! What BigQuery gets wrong on purpose must be found.

use bigquery_sink_simulation::errant::{ALL, RUNS};

use super::say;

#[test]
fn a_bigquery_that_errs_is_noticed() {
    let mut missed = Vec::new();
    for errant in ALL {
        match errant.noticed() {
            Some(run) => say(&format!(
                "{}: noticed as {} in run {run}",
                errant.what, errant.property
            )),
            None => missed.push(errant.what),
        }
    }
    assert_eq!(missed, [""; 0], "not noticed within {RUNS} runs");
}
