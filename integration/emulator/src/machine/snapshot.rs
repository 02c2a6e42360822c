//! The state as effects: what a journal that has grown long is replaced by.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;

use super::effect::Effect;
use super::state::State;
use super::stream::Stream;
use crate::catalog::{DatasetRef, Table, TableRef};
use crate::changes::rows::Made;
use crate::changes::{Change, Changes};

/// Small batches are joined until they have so many rows or bytes.
const JOINED_ROWS: usize = 64 << 10;
const JOINED_BYTES: usize = 16 << 20;

impl State {
    /// Effects that make an empty state this one.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Effect> {
        let (tables, revisions) = self.catalog().counts();
        let streams = self.streams_ever();
        let counted = Effect::Counted {
            tables,
            revisions,
            streams,
        };
        let datasets = self.catalog().datasets.iter().flat_map(|(name, dataset)| {
            let set = Effect::DatasetSet {
                name: name.clone(),
                dataset: dataset.without_tables(),
            };
            let tables = dataset.tables.iter();
            std::iter::once(set).chain(tables.flat_map(|(table, of)| table_effects(name, table, of)))
        });
        let streams = self.streams().values();
        let streams = streams.flat_map(move |stream| stream_effects(stream, self.streams_ever()));
        std::iter::once(counted)
            .chain(datasets)
            .chain(self.collected_effects())
            .chain(streams)
    }

    /// Streams that were there and are not any more.
    fn collected_effects(&self) -> impl Iterator<Item = Effect> {
        let ever = self.streams_ever();
        let created = move |stream: &Stream| Effect::StreamCreated {
            stream: Box::new(stream.without_rows()),
            ever,
        };
        let all = self.collected();
        let names: Vec<String> = all.iter().map(|stream| stream.target.name.clone()).collect();
        let last = all.iter().map(|stream| stream.traffic_ms).max();
        let forgotten = last.map(|at_ms| Effect::StreamsForgotten {
            streams: names,
            at_ms,
        });
        all.iter().map(created).chain(forgotten)
    }
}

fn table_effects<'a>(
    dataset: &DatasetRef,
    name: &str,
    table: &'a Table,
) -> impl Iterator<Item = Effect> + use<'a> {
    let name = TableRef::new(&dataset.project, &dataset.dataset, name);
    let created = Effect::TableCreated {
        name: name.clone(),
        table: Box::new(table.without_rows()),
    };
    let rows = joined(table.made_of()).map(move |made| match made {
        Made::Added(rows, partition_ms) => Effect::RowsPublished {
            table: name.clone(),
            rows,
            partition_ms,
            at_ms: table.modified_ms,
            revision: table.revision,
        },
        Made::Changed(changes, at_ms) => Effect::RowsChanged {
            table: name.clone(),
            changes,
            at_ms: at_ms.unwrap_or(table.modified_ms),
            revision: table.revision,
        },
    });
    std::iter::once(created).chain(rows)
}

fn stream_effects(stream: &Stream, ever: u64) -> impl Iterator<Item = Effect> {
    let created = Effect::StreamCreated {
        stream: Box::new(stream.without_rows()),
        ever,
    };
    let held = stream.held().filter(|(rows, _)| rows.num_rows() > 0).cloned();
    let held = held.map(|(rows, partition)| Made::Added(rows, partition));
    let rows = joined(held.collect()).filter_map(|made| match made {
        Made::Added(rows, partition_ms) => Some(Effect::RowsAppended {
            stream: stream.target.name.clone(),
            rows,
            partition_ms,
            visible: false,
            at_ms: stream.traffic_ms,
            revision: 0,
        }),
        Made::Changed(..) => None,
    });
    std::iter::once(created).chain(rows)
}

/// The same in as few steps as is reasonable. They are put together one after the other, since that costs a copy.
fn joined(steps: Vec<Made>) -> impl Iterator<Item = Made> {
    let mut groups: Vec<Vec<Made>> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    for step in steps {
        let batch = step.rows();
        let (step_rows, step_bytes) = (batch.num_rows(), size(batch));
        match groups.last_mut() {
            Some(group) if rows < JOINED_ROWS && bytes < JOINED_BYTES && group[0].goes_with(&step) => {
                group.push(step);
                (rows, bytes) = (rows + step_rows, bytes + step_bytes);
            }
            _ => {
                groups.push(vec![step]);
                (rows, bytes) = (step_rows, step_bytes);
            }
        }
    }
    // Those that cannot be joined (more text than one array takes) stay as they are.
    groups.into_iter().flat_map(|group| match join(&group) {
        Ok(step) => vec![step],
        Err(_) => group,
    })
}

fn join(group: &[Made]) -> Result<Made, ArrowError> {
    let rows = concat_batches(&group[0].rows().schema(), group.iter().map(Made::rows))?;
    let (first, at_ms) = match &group[0] {
        Made::Changed(first, at_ms) => (first, at_ms),
        // All of them are in one partition.
        Made::Added(_, partition) => return Ok(Made::Added(rows, *partition)),
    };
    let mut order = Vec::with_capacity(rows.num_rows());
    let mut before = 0;
    for step in group {
        if let Made::Changed(changes, _) = step {
            order.extend(changes.order.iter().map(|change| Change {
                row: before + change.row,
                ..change.clone()
            }));
        }
        before += step.rows().num_rows();
    }
    let changes = Changes {
        upserts: rows,
        deletes: first.deletes.clone(),
        order,
    };
    Ok(Made::Changed(changes, *at_ms))
}

/// Bytes of a batch's values.
pub(crate) fn size(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}
