//! BigQuery's values: their text, and their canonical Arrow form where Arrow has none of its own. What takes rows
//! in, REST, default values and queries share it.

pub(crate) mod interval;
pub(crate) mod picoseconds;
pub(crate) mod range;
