//! The sink as an operator: each method is one call of `EngineSink` and back. T1 to T26 are the traps that its tests are numbered by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arroyo_operator::context::{Collector, OperatorContext};
use arroyo_operator::operator::{ArrowOperator, AsDisplayable, DisplayableOperator};
use arroyo_rpc::errors::{DataflowError, DataflowResult, ErrorDomain, RetryHint};
use arroyo_rpc::grpc::rpc::{GlobalKeyedTableConfig, TableConfig, TableEnum, TaskCheckpointEventType};
use arroyo_rpc::{CheckpointEvent, ControlResp};
use arroyo_types::{CheckpointBarrier, CheckpointFilePathLayout, SignalMessage, TaskInfo};
use async_trait::async_trait;
use bigquery_sink::engine::{COMMIT_TABLE, Controller, EngineSink, EngineTask, STATE_TABLE};
use bigquery_sink::{Blame, CloseReason, Retry, SinkError, SubtaskIndex, Task};
use prost::Message;

/// How often the sink's own task is asked whether it failed.
const TICK: Duration = Duration::from_secs(1);

pub(crate) struct BigQueryOperator {
    sink: EngineSink,
}

impl BigQueryOperator {
    pub(crate) fn new(sink: EngineSink) -> Self {
        Self { sink }
    }
}

#[async_trait]
impl ArrowOperator for BigQueryOperator {
    fn name(&self) -> String {
        "bigquery_sink".to_owned()
    }

    fn display(&self) -> DisplayableOperator<'_> {
        DisplayableOperator {
            name: "BigQuerySink".into(),
            fields: vec![("table", AsDisplayable::String(self.sink.table()))],
        }
    }

    fn tables(&self) -> HashMap<String, TableConfig> {
        let tables = self.sink.tables().into_iter();
        let config = |table: bigquery_sink::engine::StateTable| {
            let config = GlobalKeyedTableConfig {
                table_name: table.name.to_owned(),
                description: table.description.to_owned(),
                // T5: as is_committing.
                uses_two_phase_commit: table.is_committed,
            };
            let config = TableConfig {
                table_type: TableEnum::GlobalKeyValue.into(),
                config: config.encode_to_vec(),
                state_version: 0,
            };
            (table.name.to_owned(), config)
        };
        tables.map(config).collect()
    }

    fn is_committing(&self) -> bool {
        self.sink.is_committing()
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    async fn on_start(&mut self, ctx: &mut OperatorContext) -> DataflowResult<()> {
        let states = ctx
            .table_manager
            .get_global_keyed_state::<u32, Vec<u8>>(STATE_TABLE);
        let states = states.await?.take();
        let input = Arc::clone(&ctx.in_schemas[0].schema);
        let task = task(&ctx.task_info);
        self.sink.on_start(task, &input, &states).await.map_err(error)
    }

    async fn process_batch(
        &mut self,
        batch: RecordBatch,
        _: &mut OperatorContext,
        _: &mut dyn Collector,
    ) -> DataflowResult<()> {
        self.sink.process_batch(&batch).await.map_err(error)
    }

    async fn handle_checkpoint(
        &mut self,
        barrier: CheckpointBarrier,
        ctx: &mut OperatorContext,
        _: &mut dyn Collector,
    ) -> DataflowResult<()> {
        let part = self.sink.handle_checkpoint(barrier.epoch, barrier.then_stop);
        let part = part.await.map_err(error)?;
        // T7: anew in every epoch, under a key of its own.
        let states = ctx
            .table_manager
            .get_global_keyed_state::<u32, Vec<u8>>(STATE_TABLE);
        states.await?.insert(part.key, part.state).await;
        // T6: once in every epoch, without rows too.
        if let Some(commit) = part.commit {
            ctx.table_manager
                .insert_committing_data(COMMIT_TABLE, commit)
                .await;
        }
        Ok(())
    }

    async fn handle_commit(
        &mut self,
        epoch: u32,
        data: &HashMap<String, HashMap<u32, Vec<u8>>>,
        ctx: &mut OperatorContext,
    ) -> DataflowResult<()> {
        let subtasks = self.sink.handle_commit(epoch, data).await.map_err(error)?;
        // T4: here, now that all is visible, and nowhere else.
        for subtask_idx in subtasks {
            let committed = CheckpointEvent {
                checkpoint_epoch: epoch.into(),
                operator_idx: ctx.task_info.operator_idx,
                operator_id: ctx.task_info.operator_id.clone(),
                subtask_idx,
                time: SystemTime::now(),
                event_type: TaskCheckpointEventType::FinishedCommit,
            };
            let sent = ctx.control_tx.send(ControlResp::CheckpointEvent(committed)).await;
            sent.map_err(|_| error(SinkError::internal("the engine is gone")))?;
        }
        Ok(())
    }

    async fn handle_tick(
        &mut self,
        _: u64,
        _: &mut OperatorContext,
        _: &mut dyn Collector,
    ) -> DataflowResult<()> {
        self.sink.handle_tick().await.map_err(error)
    }

    async fn on_close(
        &mut self,
        last: &Option<SignalMessage>,
        _: &mut OperatorContext,
        _: &mut dyn Collector,
    ) -> DataflowResult<()> {
        // T1 and T2: the end of data alone publishes anything.
        let reason = match last {
            Some(SignalMessage::EndOfData) => CloseReason::EndOfData,
            Some(SignalMessage::Stop) => CloseReason::Stop,
            _ => CloseReason::Interrupted,
        };
        self.sink.on_close(reason).await.map_err(error)
    }
}

fn task(info: &TaskInfo) -> EngineTask {
    // T10: the engine counts its attempts in one mode only; the time tells them apart in both.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EngineTask {
        task: Task {
            subtask: SubtaskIndex(info.task_index),
            parallelism: info.parallelism,
            started_at_micros: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            operator_name: info.operator_name.clone(),
            node_id: info.operator_idx,
        },
        controller: match info.checkpoint_file_path_layout {
            CheckpointFilePathLayout::Legacy => Controller::Controller,
            CheckpointFilePathLayout::Protocol { .. } => Controller::Worker,
        },
    }
}

/// T13: whose fault, and whether a restart helps.
fn error(error: SinkError) -> DataflowError {
    DataflowError::ConnectorError {
        domain: match error.blame() {
            Blame::User => ErrorDomain::User,
            Blame::External => ErrorDomain::External,
            Blame::Internal => ErrorDomain::Internal,
        },
        retry: match error.retry() {
            Retry::Never => RetryHint::NoRetry,
            Retry::Restart => RetryHint::WithBackoff,
        },
        error: error.to_string(),
        source: Some(error.into()),
    }
}
