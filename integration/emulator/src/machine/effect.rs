//! The one door of lasting changes: the live path decides, and what it decided is an [`Effect`], applied here.

use std::fmt;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::Machine;
use super::refusal::{Code, Refusal};
use super::stream::Stream;
use crate::catalog::{Dataset, DatasetRef, Millis, Table, TableRef};
use crate::changes::{Changes, no_rows};
use crate::defaults::RandomBits;

/// One lasting change, with every decision in it: ids, times and revisions. Applied in order to an empty machine,
/// effects give the same state again. This is also the form in which the journal keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Effect {
    /// A dataset is there, without tables; or it is described anew and keeps its tables.
    DatasetSet {
        /// Which.
        name: DatasetRef,
        /// As it is now, but for its tables.
        dataset: Dataset,
    },
    /// A dataset is gone, with its tables.
    DatasetDeleted {
        /// Which.
        name: DatasetRef,
    },
    /// An empty table is there; a namesake is gone.
    TableCreated {
        /// Which.
        name: TableRef,
        /// As it is now.
        table: Box<Table>,
    },
    /// A table is there, with rows; a namesake is gone.
    TableFilled {
        /// Which.
        name: TableRef,
        /// As it is, but for its rows.
        table: Box<Table>,
        /// In the table's canonical Arrow schema.
        #[serde(skip, default = "no_rows")]
        rows: RecordBatch,
        /// When.
        at_ms: Millis,
        /// The table's from now on.
        revision: u64,
    },
    /// A table is described anew, and keeps its rows: those shown and those held on its streams take the new columns.
    TableChanged {
        /// Which.
        name: TableRef,
        /// As it is now, but for its rows.
        table: Box<Table>,
    },
    /// A table is gone, with its rows. Its streams are left, and know that their table is another one.
    TableDeleted {
        /// Which.
        name: TableRef,
    },
    /// Rows that came without an application's stream are visible: default stream, `insertAll`, DML.
    RowsPublished {
        /// Where.
        table: TableRef,
        /// In the table's canonical Arrow schema.
        #[serde(skip, default = "no_rows")]
        rows: RecordBatch,
        /// When the partition begins that they are in, of a table partitioned by the time of ingestion.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partition_ms: Option<Millis>,
        /// When.
        at_ms: Millis,
        /// The table's from now on.
        revision: u64,
    },
    /// Rows are changed by their table's primary key.
    RowsChanged {
        /// Where.
        table: TableRef,
        /// What.
        changes: Changes,
        /// When.
        at_ms: Millis,
        /// The table's from now on.
        revision: u64,
    },
    /// An application's stream is there.
    StreamCreated {
        /// As it is, but for its rows.
        stream: Box<Stream>,
        /// How many streams there have been, this one counted.
        ever: u64,
    },
    /// Rows stand at a stream's end.
    RowsAppended {
        /// Full name of the stream.
        stream: String,
        /// In the table's canonical Arrow schema.
        #[serde(skip, default = "no_rows")]
        rows: RecordBatch,
        /// When the partition begins that they are in, of a table partitioned by the time of ingestion.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partition_ms: Option<Millis>,
        /// They are visible at once, with all before them.
        visible: bool,
        /// When.
        at_ms: Millis,
        /// The table's from now on, if the rows are visible.
        revision: u64,
    },
    /// A stream had traffic that changed nothing but its life.
    StreamUsed {
        /// Full name.
        stream: String,
        /// When.
        at_ms: Millis,
    },
    /// A stream's rows before `to` are visible.
    StreamFlushed {
        /// Full name.
        stream: String,
        /// One past the last visible row.
        to: u64,
        /// When.
        at_ms: Millis,
        /// The table's from now on.
        revision: u64,
    },
    /// A stream takes no more rows.
    StreamFinalized {
        /// Full name.
        stream: String,
        /// When.
        at_ms: Millis,
    },
    /// Every row of some PENDING streams is visible, all at once.
    StreamsCommitted {
        /// Full names.
        streams: Vec<String>,
        /// When.
        at_ms: Millis,
        /// The table's from now on.
        revision: u64,
    },
    /// Streams are gone: their lives are over.
    StreamsForgotten {
        /// Full names.
        streams: Vec<String>,
        /// When.
        at_ms: Millis,
    },
    /// So many tables, revisions and streams there have been at least: none of their ids comes again.
    Counted {
        /// Tables.
        tables: u64,
        /// Revisions.
        revisions: u64,
        /// Streams.
        streams: u64,
    },
}

/// Is told of each effect before it happens, and may prevent it.
type Sink = Box<dyn FnMut(&Effect) -> Result<(), String> + Send>;

/// Where effects are kept, if anywhere.
#[derive(Default)]
pub(super) struct Door {
    journal: Option<Sink>,
    /// Why nothing can change any more.
    shut: Option<String>,
}

/// A change could not be kept, and did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the emulator can change nothing any more: {0}")]
pub struct NotKept(String);

impl Machine {
    /// Gives every effect from now on to `journal`, whose effects have been replayed, before it happens. Once the journal fails, nothing changes any more.
    pub(crate) fn attach_journal(
        &mut self,
        journal: impl FnMut(&Effect) -> Result<(), String> + Send + 'static,
    ) {
        self.door.journal = Some(Box::new(journal));
        // The same seed drew for what the journal holds already.
        self.random = self
            .state
            .history()
            .into_iter()
            .fold(self.random.clone(), RandomBits::mixed);
    }

    /// Lets go of the journal, if there is one: it stays as it is, so nothing can change any more.
    pub(crate) fn detach_journal(&mut self) {
        if self.door.journal.take().is_some() {
            self.door.shut = Some("it has been stopped".to_owned());
        }
    }

    /// Lets an effect of the journal happen again.
    ///
    /// # Errors
    /// It does not fit what happened before.
    pub(crate) fn replay(&mut self, effect: &Effect) -> Result<(), String> {
        self.state.apply(effect).map(drop)
    }

    /// Effects that make an empty machine what this one is, as few as there can be.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = Effect> {
        self.state.snapshot()
    }

    /// Lets something that was decided happen. Nothing else changes what lasts.
    ///
    /// # Errors
    /// The journal cannot keep it: it has not happened.
    pub(crate) fn apply(&mut self, effect: &Effect) -> Result<(), NotKept> {
        self.door.pass(effect)?;
        match self.state.apply(effect) {
            Ok(changes) => changes.into_iter().for_each(|change| self.record_visible(change)),
            // A bug: what cannot happen was decided. Going on would make memory and journal differ.
            Err(reason) => return Err(self.door.shut(reason)),
        }
        Ok(())
    }
}

impl Effect {
    /// The rows that it brings; how many batches depends on its kind alone.
    pub(crate) fn batches(&self) -> Vec<&RecordBatch> {
        match self {
            Self::RowsPublished { rows, .. }
            | Self::RowsAppended { rows, .. }
            | Self::TableFilled { rows, .. } => vec![rows],
            Self::RowsChanged { changes, .. } => vec![&changes.upserts, &changes.deletes],
            _ => Vec::new(),
        }
    }

    /// As [`Effect::batches`], to fill them in.
    pub(crate) fn batches_mut(&mut self) -> Vec<&mut RecordBatch> {
        match self {
            Self::RowsPublished { rows, .. }
            | Self::RowsAppended { rows, .. }
            | Self::TableFilled { rows, .. } => vec![rows],
            Self::RowsChanged { changes, .. } => vec![&mut changes.upserts, &mut changes.deletes],
            _ => Vec::new(),
        }
    }

    /// When it happened, if it says so.
    pub(crate) fn at_ms(&self) -> Option<Millis> {
        match self {
            Self::DatasetSet { dataset, .. } => Some(dataset.modified_ms),
            Self::TableCreated { table, .. } | Self::TableChanged { table, .. } => Some(table.modified_ms),
            Self::StreamCreated { stream, .. } => Some(stream.traffic_ms),
            Self::RowsPublished { at_ms, .. }
            | Self::TableFilled { at_ms, .. }
            | Self::RowsChanged { at_ms, .. }
            | Self::RowsAppended { at_ms, .. }
            | Self::StreamUsed { at_ms, .. }
            | Self::StreamFlushed { at_ms, .. }
            | Self::StreamFinalized { at_ms, .. }
            | Self::StreamsCommitted { at_ms, .. }
            | Self::StreamsForgotten { at_ms, .. } => Some(*at_ms),
            Self::DatasetDeleted { .. } | Self::TableDeleted { .. } | Self::Counted { .. } => None,
        }
    }
}

impl Door {
    fn pass(&mut self, effect: &Effect) -> Result<(), NotKept> {
        if let Some(reason) = &self.shut {
            return Err(NotKept(reason.clone()));
        }
        match self.journal.as_mut().map_or(Ok(()), |journal| journal(effect)) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.shut(reason)),
        }
    }

    fn shut(&mut self, reason: String) -> NotKept {
        tracing::error!("the emulator can change nothing any more: {reason}");
        self.shut = Some(reason.clone());
        NotKept(reason)
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("shut", &self.shut)
            .finish_non_exhaustive()
    }
}

impl From<NotKept> for Refusal {
    fn from(error: NotKept) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}
