//! The embedded host driven as a whole, with a fake sink, on a clock that does not wait.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod errors;
mod examples;
mod fake;
mod life;
mod queries;
mod state;

use std::path::Path;

use bigquery_sink_pipeline::Pipeline;

/// `impulse` with `count` rows a subtask at 100 rows a second over all, into (subtask, counter).
pub(crate) fn impulse(count: Option<u64>) -> Pipeline {
    let count = count.map_or(String::new(), |count| format!(", message_count = '{count}'"));
    let sql = format!(
        "CREATE TABLE numbers WITH (connector = 'impulse', event_rate = '100'{count});
         CREATE TABLE out (subtask BIGINT NOT NULL, counter BIGINT) WITH (connector = 'bigquery', project = 'p', dataset = 'd', 'table' = 't');
         INSERT INTO out SELECT subtask_index, counter FROM numbers"
    );
    Pipeline::parse(&sql, Path::new("p.sql")).unwrap()
}

/// The rows of `impulse` for so many subtasks, sorted as text.
pub(crate) fn numbers(subtasks: u64, count: u64) -> Vec<String> {
    let mut rows: Vec<_> = (0..subtasks)
        .flat_map(|s| (0..count).map(move |c| format!("{s}|{c}")))
        .collect();
    rows.sort();
    rows
}
