//! BigQuery's values: their text, and their canonical Arrow form where Arrow has none of its own. What takes rows
//! in, REST, default values and queries share it.

pub(crate) mod cell;
pub(crate) mod civil;
pub(crate) mod interval;
#[allow(dead_code, reason = "insertAll comes next")]
pub(crate) mod json;
pub(crate) mod literal;
pub(crate) mod picoseconds;
pub(crate) mod range;
