//! A subtask's input as a DataFusion table: a scan yields rows until the barrier, which ends it. That is the aligned barrier.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bigquery_sink::Barrier;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::exec_datafusion_err;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use tokio::sync::mpsc;

/// What a reader sends.
#[derive(Debug)]
pub(crate) enum Item {
    /// Rows of the source's table.
    Rows(RecordBatch),
    /// Everything of the epoch was sent.
    Barrier(Barrier),
}

/// The input of one subtask; its scans find it in the session's extensions.
#[derive(Debug)]
pub(crate) struct EpochInput(Mutex<State>);

#[derive(Debug)]
struct State {
    items: mpsc::Receiver<Item>,
    barrier: Option<Barrier>,
    /// Whether the readers are gone.
    closed: bool,
}

/// How the execution of an epoch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EpochEnd {
    /// At its barrier.
    Barrier(Barrier),
    /// The readers are gone.
    Closed,
    /// Before its input did: the plan does not scan it.
    NotRead,
}

impl EpochInput {
    pub(crate) fn new(items: mpsc::Receiver<Item>) -> Self {
        Self(Mutex::new(State {
            items,
            barrier: None,
            closed: false,
        }))
    }

    /// What ended the last execution.
    pub(crate) fn take_end(&self) -> EpochEnd {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.barrier.take() {
            Some(barrier) => EpochEnd::Barrier(barrier),
            None if state.closed => EpochEnd::Closed,
            None => EpochEnd::NotRead,
        }
    }

    fn stream(self: Arc<Self>, schema: SchemaRef) -> SendableRecordBatchStream {
        let rows = futures::stream::poll_fn(move |context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.barrier.is_some() {
                return Poll::Ready(None);
            }
            state.items.poll_recv(context).map(|item| match item {
                Some(Item::Rows(batch)) => Some(Ok(batch)),
                Some(Item::Barrier(barrier)) => {
                    state.barrier = Some(barrier);
                    None
                }
                None => {
                    state.closed = true;
                    None
                }
            })
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// A source as a table of one partition. What it yields depends on the subtask that runs the plan.
pub(crate) fn input_table(schema: &SchemaRef) -> Arc<dyn TableProvider> {
    let partition = InputScan {
        schema: Arc::clone(schema),
    };
    let table = StreamingTable::try_new(Arc::clone(schema), vec![Arc::new(partition)]);
    Arc::new(table.expect("the only partition has the table's own schema"))
}

struct InputScan {
    schema: SchemaRef,
}

impl fmt::Debug for InputScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InputScan")
    }
}

impl PartitionStream for InputScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        match context.session_config().get_extension::<EpochInput>() {
            Some(input) => input.stream(schema),
            None => {
                let error = exec_datafusion_err!("the plan was run without an input");
                Box::pin(RecordBatchStreamAdapter::new(
                    schema,
                    futures::stream::iter([Err(error)]),
                ))
            }
        }
    }
}
