//! Changes by primary key, as BigQuery's change data capture applies them (write-api.md 6): upserts and deletes, each
//! ranked by its sequence number.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

pub(crate) mod rows;
mod sequence;

pub use sequence::Sequence;

/// What one request changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The rows of the upserts, in the table's canonical Arrow schema.
    #[serde(skip, default = "no_rows")]
    pub upserts: RecordBatch,
    /// The keys of the deletes: the columns of the primary key in its order.
    #[serde(skip, default = "no_rows")]
    pub deletes: RecordBatch,
    /// Both in the order in which they came.
    pub order: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What.
    pub kind: ChangeKind,
    /// Its row among the upserts, or among the deletes.
    pub row: usize,
    /// Its rank; without one, the order of arrival decides.
    pub sequence: Option<Sequence>,
}

/// `_CHANGE_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeKind {
    /// The row takes the place of the one with its key.
    Upsert,
    /// The row with this key is gone.
    Delete,
}

/// What stands for rows that are kept apart from their description.
pub(crate) fn no_rows() -> RecordBatch {
    RecordBatch::new_empty(Arc::new(Schema::empty()))
}
