//! What lasts: the catalog and the streams. Everybody reads it; only effects change it.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use super::collected::Collected;
use super::effect::Effect;
use super::history::Visibility;
use super::stream::Stream;
use crate::catalog::{Catalog, Millis, Table, TableRef};

/// What a restarted emulator has again.
#[derive(Debug, Default)]
pub(crate) struct State {
    catalog: Catalog,
    /// By full name.
    streams: BTreeMap<String, Stream>,
    collected: Collected,
    streams_ever: u64,
    /// Rows are counted and dropped.
    discards: bool,
}

/// What became visible; or what about an effect contradicts the state.
type Applied = Result<Vec<Visibility>, String>;

impl State {
    /// Datasets and tables.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Every stream, by full name.
    pub(super) fn streams(&self) -> &BTreeMap<String, Stream> {
        &self.streams
    }

    /// Streams that are gone.
    pub(super) fn collected(&self) -> &Collected {
        &self.collected
    }

    /// How many streams were ever created.
    pub(crate) fn streams_ever(&self) -> u64 {
        self.streams_ever
    }

    /// Numbers that differ from those of any state before this one; none if nothing has happened yet.
    pub(super) fn history(&self) -> Vec<u64> {
        let (tables, revisions) = self.catalog.counts();
        let appended = self.streams.values().map(|stream| stream.end).sum();
        let history = vec![tables, revisions, self.streams_ever, appended];
        history.into_iter().filter(|_| tables + revisions > 0).collect()
    }

    /// From now on rows that are appended or published are counted and dropped.
    pub(super) fn discard_rows(&mut self) {
        self.discards = true;
    }

    /// Lets an effect happen.
    ///
    /// # Errors
    /// It contradicts the state: it was not decided on this one.
    pub(super) fn apply(&mut self, effect: &Effect) -> Applied {
        match effect {
            Effect::DatasetSet { name, dataset } => self.catalog.set_dataset(name, dataset.clone()),
            Effect::DatasetDeleted { name } => self.catalog.remove_dataset(name),
            Effect::TableCreated { name, table } => self
                .catalog
                .put_table(name, Table::clone(table))
                .map_err(|error| error.to_string())?,
            Effect::TableFilled {
                name,
                table,
                rows,
                at_ms,
                revision,
            } => {
                self.catalog
                    .put_table(name, Table::clone(table))
                    .map_err(|error| error.to_string())?;
                return self.publish(name, (rows, None), *at_ms, *revision);
            }
            Effect::TableChanged { name, table } => self.change_table(name, table)?,
            Effect::TableDeleted { name } => self
                .catalog
                .remove_table(name)
                .map_err(|error| error.to_string())?,
            Effect::RowsPublished {
                table,
                rows,
                partition_ms,
                at_ms,
                revision,
            } => return self.publish(table, (rows, *partition_ms), *at_ms, *revision),
            Effect::RowsChanged {
                table,
                changes,
                at_ms,
                revision,
            } => {
                let from = self
                    .catalog
                    .change_rows(table, changes, *at_ms, *revision)
                    .map_err(|error| error.to_string())?;
                return Ok(vec![Visibility {
                    at_ms: *at_ms,
                    table: table.clone(),
                    stream: None,
                    changes: true,
                    from,
                    to: from + changes.order.len() as u64,
                }]);
            }
            Effect::StreamCreated { stream, ever } => {
                self.streams
                    .insert(stream.target.name.clone(), Stream::clone(stream));
                self.streams_ever = self.streams_ever.max(*ever);
            }
            Effect::RowsAppended {
                stream,
                rows,
                partition_ms,
                visible,
                at_ms,
                revision,
            } => {
                let discards = self.discards;
                let stands = self.stream_mut(stream)?;
                stands.traffic_ms = *at_ms;
                if discards {
                    stands.pass(rows.num_rows() as u64);
                } else {
                    stands.hold(rows.clone(), *partition_ms);
                }
                if *visible {
                    return self.flush(stream, u64::MAX, *at_ms, *revision);
                }
            }
            Effect::StreamUsed { stream, at_ms } => self.stream_mut(stream)?.traffic_ms = *at_ms,
            Effect::StreamFlushed {
                stream,
                to,
                at_ms,
                revision,
            } => return self.flush(stream, *to, *at_ms, *revision),
            Effect::StreamFinalized { stream, at_ms } => self.stream_mut(stream)?.finalize(*at_ms),
            Effect::StreamsCommitted {
                streams,
                at_ms,
                revision,
            } => {
                let mut changes = Vec::new();
                for stream in streams {
                    changes.extend(self.flush(stream, u64::MAX, *at_ms, *revision)?);
                    self.stream_mut(stream)?.committed_ms = Some(*at_ms);
                }
                return Ok(changes);
            }
            Effect::StreamsForgotten { streams, .. } => {
                let gone = streams.iter().filter_map(|name| self.streams.remove(name));
                gone.for_each(|stream| self.collected.add(&stream));
            }
            Effect::Counted {
                tables,
                revisions,
                streams,
            } => {
                self.catalog.count(*tables, *revisions);
                self.streams_ever = self.streams_ever.max(*streams);
            }
        }
        Ok(Vec::new())
    }

    fn change_table(&mut self, name: &TableRef, table: &Table) -> Result<(), String> {
        let held = self.streams.values_mut();
        for stream in held.filter(|stream| stream.table_id == table.id) {
            stream.conform(&table.schema)?;
        }
        self.catalog
            .change_table(name, table.clone())
            .map_err(|error| error.to_string())
    }

    fn publish(
        &mut self,
        table: &TableRef,
        (rows, partition): (&RecordBatch, Option<Millis>),
        at_ms: Millis,
        revision: u64,
    ) -> Applied {
        let count = rows.num_rows() as u64;
        let from = if self.discards {
            self.catalog.pass_rows(table, count, at_ms, revision)
        } else {
            self.catalog
                .push_rows(table, (rows.clone(), partition), at_ms, revision)
        };
        let from = from.map_err(|error| error.to_string())?;
        Ok(vec![Visibility {
            at_ms,
            table: table.clone(),
            stream: None,
            changes: false,
            from,
            to: from + count,
        }])
    }

    fn flush(&mut self, name: &str, to: u64, at_ms: Millis, revision: u64) -> Applied {
        let stream = self
            .streams
            .get_mut(name)
            .ok_or_else(|| format!("there is no stream {name}"))?;
        let table = stream.target.table.clone();
        let from = stream.visible;
        for held in stream.publish(to) {
            self.catalog
                .push_rows(&table, held, at_ms, revision)
                .map_err(|error| error.to_string())?;
        }
        if self.discards {
            self.catalog
                .pass_rows(&table, stream.visible - from, at_ms, revision)
                .map_err(|error| error.to_string())?;
        }
        Ok(vec![Visibility {
            at_ms,
            table,
            stream: Some(name.to_owned()),
            changes: false,
            from,
            to: stream.visible,
        }])
    }

    fn stream_mut(&mut self, name: &str) -> Result<&mut Stream, String> {
        self.streams
            .get_mut(name)
            .ok_or_else(|| format!("there is no stream {name}"))
    }
}
