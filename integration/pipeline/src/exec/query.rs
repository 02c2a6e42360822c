//! The planned query of one subtask: executed anew each epoch, its output shaped as the sink's columns say.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{FutureExt, StreamExt};

use super::column::{ColumnFailed, name_columns};
use super::{EpochInput, QueryError};
use crate::sql::session;

/// A physical plan with its input.
#[derive(Debug)]
pub(crate) struct Query {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    columns: SchemaRef,
}

/// The rows of one epoch.
pub(crate) struct EpochRows {
    rows: SendableRecordBatchStream,
    columns: SchemaRef,
}

impl Query {
    pub(crate) async fn plan(
        plan: &LogicalPlan,
        columns: SchemaRef,
        input: Arc<EpochInput>,
    ) -> Result<Self, QueryError> {
        let state = session();
        let plan = state
            .create_physical_plan(plan)
            .await
            .and_then(name_columns)
            .map_err(|error| without_values(&error))?;
        let config = state.config().clone().with_extension(input);
        let context = TaskContext::from(&state).with_session_config(config);
        Ok(Self {
            plan,
            context: Arc::new(context),
            columns,
        })
    }

    /// Starts the execution of an epoch; it ends at the input's next barrier.
    pub(crate) fn execute(&self) -> Result<EpochRows, QueryError> {
        // A plan counts every execution in its metrics for ever; one built anew starts at nothing, so that epochs cost the same.
        let plan = Arc::clone(&self.plan)
            .transform_up(|node| {
                let children = node.children().into_iter().map(Arc::clone).collect();
                node.with_new_children(children).map(Transformed::yes)
            })
            .map_err(|error| without_values(&error))?;
        let rows = plan
            .data
            .execute(0, Arc::clone(&self.context))
            .map_err(|error| without_values(&error))?;
        Ok(EpochRows {
            rows,
            columns: Arc::clone(&self.columns),
        })
    }
}

impl EpochRows {
    /// The next rows, `None` at the barrier. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch, QueryError>> {
        // The kernels' own arithmetic panics on some values; another attempt would meet the same ones.
        let polled = AssertUnwindSafe(self.rows.next()).catch_unwind().await;
        let Ok(rows) = polled else {
            return Some(Err(failed(PANICKED)));
        };
        let rows = rows?;
        Some(
            rows.map_err(|error| without_values(&error))
                .and_then(|batch| self.shape(&batch)),
        )
    }

    fn shape(&self, batch: &RecordBatch) -> Result<RecordBatch, QueryError> {
        for (field, column) in self.columns.fields().iter().zip(batch.columns()) {
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(QueryError::NullInRequired {
                    column: field.name().clone(),
                });
            }
        }
        RecordBatch::try_new(Arc::clone(&self.columns), batch.columns().to_vec())
            .map_err(|_| failed("its output does not have the sink's column types"))
    }
}

fn failed(reason: &str) -> QueryError {
    QueryError::Failed {
        reason: reason.to_owned(),
    }
}

/// Said of a panic, whose text may show values.
pub(super) const PANICKED: &str =
    "the engine's arithmetic broke down on a value, most likely one far out of range; filter such rows out";

/// The library's texts show the values of rows; only the kind of failure is kept, and the column if it is known.
fn without_values(error: &DataFusionError) -> QueryError {
    let root = error.find_root();
    if let DataFusionError::External(external) = root
        && let Some(failure) = external.downcast_ref::<ColumnFailed>()
    {
        return QueryError::FailedInColumn {
            column: failure.column.clone(),
            reason: failure.reason.to_owned(),
        };
    }
    failed(reason_without_values(root))
}

/// The kind of failure, and what to do.
pub(super) fn reason_without_values(error: &DataFusionError) -> &'static str {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => match error {
            ArrowError::DivideByZero => "a division by zero; guard it with nullif(divisor, 0)",
            ArrowError::ArithmeticOverflow(_) => "the result of an operation is out of its type's range",
            ArrowError::CastError(_) | ArrowError::ParseError(_) | ArrowError::InvalidArgumentError(_) => {
                "a value cannot be cast to the type asked for; TRY_CAST gives NULL for such values"
            }
            _ => "an expression cannot be computed",
        },
        DataFusionError::ResourcesExhausted(_) => "it needs more memory than there is",
        _ => "an expression cannot be computed",
    }
}
