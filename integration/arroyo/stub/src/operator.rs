//! Operators.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;

use crate::context::{Collector, OperatorContext};
use crate::errors::DataflowResult;
use crate::grpc::rpc::TableConfig;
use crate::types::{CheckpointBarrier, SignalMessage};

/// What an operator has to say and to do.
#[async_trait]
pub trait ArrowOperator: Send + 'static {
    /// Its name.
    fn name(&self) -> String;

    /// Its state tables.
    fn tables(&self) -> HashMap<String, TableConfig>;

    /// Whether a stop waits for the commit.
    fn is_committing(&self) -> bool;

    /// How often it is called without rows.
    fn tick_interval(&self) -> Option<Duration>;

    /// How it is shown.
    fn display(&self) -> DisplayableOperator<'_>;

    /// Before rows.
    async fn on_start(&mut self, ctx: &mut OperatorContext) -> DataflowResult<()>;

    /// Rows.
    async fn process_batch(
        &mut self,
        batch: RecordBatch,
        ctx: &mut OperatorContext,
        collector: &mut dyn Collector,
    ) -> DataflowResult<()>;

    /// A barrier.
    async fn handle_checkpoint(
        &mut self,
        barrier: CheckpointBarrier,
        ctx: &mut OperatorContext,
        collector: &mut dyn Collector,
    ) -> DataflowResult<()>;

    /// A commit, with the data of all subtasks by table.
    async fn handle_commit(
        &mut self,
        epoch: u32,
        commit_data: &HashMap<String, HashMap<u32, Vec<u8>>>,
        ctx: &mut OperatorContext,
    ) -> DataflowResult<()>;

    /// Time has passed.
    async fn handle_tick(
        &mut self,
        tick: u64,
        ctx: &mut OperatorContext,
        collector: &mut dyn Collector,
    ) -> DataflowResult<()>;

    /// The end.
    async fn on_close(
        &mut self,
        final_message: &Option<SignalMessage>,
        ctx: &mut OperatorContext,
        collector: &mut dyn Collector,
    ) -> DataflowResult<()>;
}

/// An operator that was made.
pub struct ConstructedOperator(
    /// It.
    pub Box<dyn ArrowOperator>,
);

impl ConstructedOperator {
    /// That one.
    #[must_use]
    pub fn from_operator(operator: Box<dyn ArrowOperator>) -> Self {
        Self(operator)
    }
}

impl fmt::Debug for ConstructedOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

/// How an operator is shown.
#[derive(Debug)]
pub struct DisplayableOperator<'a> {
    /// Its kind.
    pub name: Cow<'a, str>,
    /// More of it.
    pub fields: Vec<(&'static str, AsDisplayable)>,
}

/// A value that is shown.
#[derive(Debug, PartialEq, Eq)]
pub enum AsDisplayable {
    /// As text.
    String(String),
}
