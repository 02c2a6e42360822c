//! BigQuery as a pure state machine: requests in, answers out, the clock an argument.

use arrow_array::RecordBatch;

use crate::catalog::{Catalog, CatalogError, Millis, TableRef};

pub use history::{Visibility, VisibilityLog};

mod history;

/// Everything the emulator knows. It does no I/O, reads no clock and draws no random number.
#[derive(Debug, Default)]
pub struct Machine {
    /// Datasets and tables.
    pub catalog: Catalog,
    visible: VisibilityLog,
}

impl Machine {
    /// Makes rows visible that did not come over a write stream (`insertAll`, a query's INSERT).
    ///
    /// # Errors
    /// `NotFound`.
    pub fn publish(&mut self, table: &TableRef, rows: RecordBatch, now: Millis) -> Result<(), CatalogError> {
        let from = self.catalog.table(table)?.row_count();
        let to = from + rows.num_rows() as u64;
        self.catalog.push_rows(table, rows, now)?;
        let table = table.clone();
        self.visible.record(Visibility {
            at_ms: now,
            table,
            stream: None,
            from,
            to,
        });
        Ok(())
    }

    /// What became visible, in order.
    pub fn visible(&self) -> &VisibilityLog {
        &self.visible
    }

    /// As [`Machine::visible`], to set an observer.
    pub fn visible_mut(&mut self) -> &mut VisibilityLog {
        &mut self.visible
    }
}
