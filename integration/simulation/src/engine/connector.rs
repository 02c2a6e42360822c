//! A subtask driven through what the connector for Arroyo uses, for the lives that are told as little as Arroyo tells.

use std::collections::{BTreeMap, HashMap};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink::engine::{COMMIT_TABLE, Controller, EngineSink, EngineTask, acknowledged};
use bigquery_sink::{
    Barrier, CloseReason, Committed, Epoch, Prepared, Restored, RowCount, SinkError, SinkOperator,
    SubtaskIndex, Task,
};
use bigquery_sink_state::CommitList;
use bytes::Bytes;

/// The engine's words on one side, and the simulation's on the other.
pub(crate) struct Connector {
    sink: EngineSink,
    task: Task,
    columns: SchemaRef,
}

impl Connector {
    pub(crate) fn new(sink: EngineSink, task: Task, columns: SchemaRef) -> Self {
        Self { sink, task, columns }
    }
}

#[async_trait]
impl SinkOperator for Connector {
    async fn on_start(&mut self, restored: Option<Restored>) -> Result<(), SinkError> {
        let states = restored.map(|restored| restored.states).unwrap_or_default();
        let task = EngineTask {
            task: self.task.clone(),
            controller: Controller::Worker,
        };
        self.sink.on_start(task, &self.columns, &table(&states)).await
    }

    async fn process_batch(&mut self, batch: RecordBatch) -> Result<(), SinkError> {
        self.sink.process_batch(&batch).await
    }

    async fn handle_checkpoint(&mut self, barrier: Barrier) -> Result<Prepared, SinkError> {
        let Barrier { epoch, then_stop } = barrier;
        let part = self.sink.handle_checkpoint(number(epoch), then_stop).await?;
        let commit = part.commit.ok_or_else(|| SinkError::internal("no commit data"))?;
        Ok(Prepared {
            state: part.state.into(),
            rows: rows(&commit)?,
            // Neither the engine nor its simulation asks.
            dead_letters: RowCount(0),
            commit: commit.into(),
        })
    }

    async fn handle_commit(
        &mut self,
        epoch: Epoch,
        commits: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<Committed, SinkError> {
        let data = HashMap::from([(COMMIT_TABLE.to_owned(), table(commits))]);
        let subtasks = self.sink.handle_commit(number(epoch), &data).await?;
        let Task {
            subtask, parallelism, ..
        } = self.task;
        let entries = commits.keys().map(|old| old.0);
        if subtasks != acknowledged(subtask.0, parallelism, Controller::Worker, entries) {
            return Err(SinkError::internal(format!(
                "subtask {subtask} answered for {subtasks:?}"
            )));
        }
        let mut committed = RowCount(0);
        for (_, entry) in commits.iter().filter(|(old, _)| old.0 % parallelism == subtask.0) {
            committed.0 += rows(entry)?.0;
        }
        Ok(Committed { rows: committed })
    }

    async fn handle_tick(&mut self) -> Result<(), SinkError> {
        self.sink.handle_tick().await
    }

    async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError> {
        self.sink.on_close(reason).await
    }
}

/// As a state table holds it.
fn table(parts: &BTreeMap<SubtaskIndex, Bytes>) -> HashMap<u32, Vec<u8>> {
    parts
        .iter()
        .map(|(subtask, part)| (subtask.0, part.to_vec()))
        .collect()
}

fn number(epoch: Epoch) -> u32 {
    u32::try_from(epoch.0).expect("a simulated run has few epochs")
}

fn rows(commit: &[u8]) -> Result<RowCount, SinkError> {
    let list = CommitList::decode(commit);
    list.map(|list| list.rows())
        .map_err(|error| SinkError::internal("commit data that cannot be read").with_source(error))
}
