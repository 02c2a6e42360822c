//! A query that computes for long lets others in: without it, one that is cancelled or out of time would go on to its
//! end, since a plan hands back no control before it has a row to show.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::Stream;

/// Batches between two pauses of one operator.
const BATCHES: usize = 16;

/// The plan, each operator of which pauses now and then.
pub(super) fn patient(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrap = |plan| {
        Ok(Transformed::yes(
            Arc::new(Patient { plan }) as Arc<dyn ExecutionPlan>
        ))
    };
    Ok(plan.transform_up(wrap)?.data)
}

#[derive(Debug)]
struct Patient {
    plan: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for Patient {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt_as(kind, f)
    }
}

impl ExecutionPlan for Patient {
    fn name(&self) -> &str {
        "Patient"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &PlanProperties {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(plan) => Arc::new(Self { plan }),
            None => self,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = self.plan.execute(partition, context)?;
        Ok(Box::pin(Pausing { stream, batches: 0 }))
    }
}

struct Pausing {
    stream: SendableRecordBatchStream,
    batches: usize,
}

impl Stream for Pausing {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.batches == BATCHES {
            self.batches = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.batches += 1;
        self.stream.as_mut().poll_next(context)
    }
}

impl RecordBatchStream for Pausing {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
