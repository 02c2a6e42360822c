//! The task that drives one source: rows into the subtasks' inputs in turn, a position and a barrier into each when it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bigquery_sink::{Barrier, Epoch};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Opened, SourceError};
use crate::exec::{Event, Item};
use crate::store::SourcePosition;

/// A source at a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceSnapshot {
    pub(crate) epoch: Epoch,
    pub(crate) position: SourcePosition,
    /// Rows handed out since the reader started.
    pub(crate) rows: u64,
    /// Rows left out since the reader started.
    pub(crate) rejected: u64,
}

/// One source with its way out.
pub(crate) struct Reader {
    /// Its number among the readers.
    pub(crate) index: usize,
    pub(crate) opened: Opened,
    /// The inputs of the subtasks it feeds.
    pub(crate) outputs: Vec<mpsc::Sender<Item>>,
    pub(crate) barriers: mpsc::Receiver<Barrier>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Rows handed out by all readers of this attempt, for the progress line.
    pub(crate) rows_read: Arc<AtomicU64>,
}

impl Reader {
    /// Runs until a barrier says stop, or nobody listens any more.
    pub(crate) async fn run(mut self) -> Result<(), SourceError> {
        let (mut ended, mut rows, mut turn) = (false, 0, 0);
        loop {
            let due = self.opened.source.due().unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                barrier = self.barriers.recv() => {
                    let Some(barrier) = barrier else { return Ok(()) };
                    if !self.pass(barrier, rows).await || barrier.then_stop {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep_until(due), if !ended => match self.opened.source.next().await? {
                    Some(batch) => {
                        rows += batch.num_rows() as u64;
                        self.rows_read.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                        let output = &self.outputs[turn % self.outputs.len()];
                        turn += 1;
                        if output.send(Item::Rows(batch)).await.is_err() {
                            return Ok(());
                        }
                    }
                    None => {
                        ended = true;
                        if self.events.send(Event::SourceEnded { reader: self.index }).await.is_err() {
                            return Ok(());
                        }
                    }
                },
            }
        }
    }

    /// Reports the position and sends the barrier after the rows it covers; false if nobody listens.
    async fn pass(&mut self, barrier: Barrier, rows: u64) -> bool {
        let source = &self.opened.source;
        let position = SourcePosition {
            name: self.opened.name.clone(),
            bytes: source.position(),
        };
        let snapshot = SourceSnapshot {
            epoch: barrier.epoch,
            position,
            rows,
            rejected: source.rejected(),
        };
        if self
            .events
            .send(Event::Snapshot {
                reader: self.index,
                snapshot,
            })
            .await
            .is_err()
        {
            return false;
        }
        for output in &self.outputs {
            if output.send(Item::Barrier(barrier)).await.is_err() {
                return false;
            }
        }
        true
    }
}
