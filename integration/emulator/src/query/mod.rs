//! SELECT in BigQuery's dialect over a snapshot of the visible rows, run by DataFusion.

use std::time::Duration;

use arrow_array::RecordBatch;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::catalog::{Catalog, CatalogError, DatasetRef, Entity, TableRef};
use crate::schema::Schema;
use crate::shared::Shared;

mod engine;
mod expressions;
mod identifiers;
mod tables;
mod types;

/// How long a query may take, waiting for its turn included.
pub const QUERY_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Queries that run at a time; the others wait, within their time limit.
const QUERIES_AT_A_TIME: usize = 8;
/// Stack of a query's thread, in bytes: enough for the deepest query that is let through.
const STACK: usize = 64 << 20;
static TURNS: Semaphore = Semaphore::const_new(QUERIES_AT_A_TIME);

/// What a query returns.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOutput {
    /// Names and types of the columns; never REQUIRED, as in BigQuery.
    pub schema: Schema,
    /// The rows, in the schema's canonical Arrow types ([`Schema::arrow`]).
    pub rows: RecordBatch,
}

/// Why a query failed; the texts are BigQuery's where they are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A table or dataset does not exist.
    #[error("Not found: {entity} was not found in location {location}")]
    NotFound {
        /// What is missing.
        entity: Entity,
        /// Where the query ran.
        location: String,
    },
    /// The text is not SQL.
    #[error("Syntax error: {0}")]
    Syntax(String),
    /// It is SQL, but not a query that can run here.
    #[error("{0}")]
    Invalid(String),
    /// A table name without dataset, and no default dataset.
    #[error("Table \"{0}\" must be qualified with a dataset (e.g. dataset.table).")]
    Unqualified(String),
    /// [`QUERY_TIME_LIMIT`] is over.
    #[error(
        "Job execution was cancelled: Job timed out after {}s",
        QUERY_TIME_LIMIT.as_secs()
    )]
    TimedOut,
    /// The result is larger than the emulator keeps.
    #[error("Response too large to return. Ask for fewer rows or columns.")]
    TooLarge,
    /// The query needs more memory than the emulator gives it.
    #[error("Resources exceeded during query execution: {0}")]
    Resources(String),
    /// A bug.
    #[error("An internal error occurred and the request could not be completed: {0}")]
    Internal(String),
}

/// Runs one SELECT over the rows that are visible now.
///
/// Names without a project are looked up in `project`, names without a dataset in `default_dataset`. The
/// machine is locked only while the snapshot is taken, never while the query runs.
///
/// # Errors
/// See [`QueryError`]; statements other than SELECT are `Invalid`.
pub(crate) async fn query(
    shared: &Shared,
    project: &str,
    default_dataset: Option<&DatasetRef>,
    sql: &str,
) -> Result<QueryOutput, QueryError> {
    query_within(QUERY_TIME_LIMIT, shared, project, default_dataset, sql).await
}

async fn query_within(
    limit: Duration,
    shared: &Shared,
    project: &str,
    default_dataset: Option<&DatasetRef>,
    sql: &str,
) -> Result<QueryOutput, QueryError> {
    let asked = Asked {
        shared: shared.clone(),
        project: project.to_owned(),
        default_dataset: default_dataset.cloned(),
        sql: sql.to_owned(),
    };
    let run = async {
        // The semaphore is never closed.
        let turn = TURNS.acquire().await.ok();
        on_own_thread(asked, turn).await
    };
    timeout(limit, run).await.unwrap_or(Err(QueryError::TimedOut))
}

/// Runs a query on a thread of its own: parsing and planning recurse deeply, and work for the processor must
/// not hold up those who serve. Dropping this future ends the query.
async fn on_own_thread(
    asked: Asked,
    turn: Option<SemaphorePermit<'static>>,
) -> Result<QueryOutput, QueryError> {
    let (_waiting, gone) = oneshot::channel::<()>();
    let work = move || {
        let _turn = turn;
        let runtime = Builder::new_current_thread().build().map_err(internal)?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = gone => Err(QueryError::TimedOut),
                result = Box::pin(asked.run()) => result,
            }
        })
    };
    // A blocking task holds a simulated clock still for as long as it runs; but its stack is the runtime's
    // choice.
    let task = spawn_blocking(move || {
        let thread = std::thread::Builder::new()
            .name("query".to_owned())
            .stack_size(STACK);
        let thread = thread.spawn(work).map_err(internal)?;
        thread.join().map_err(|_| internal("the query panicked"))?
    });
    task.await.map_err(internal)?
}

struct Asked {
    shared: Shared,
    project: String,
    default_dataset: Option<DatasetRef>,
    sql: String,
}

impl Asked {
    async fn run(self) -> Result<QueryOutput, QueryError> {
        let mut query = tables::parse(&self.sql)?;
        let names = tables::resolve(&mut query, &self.project, self.default_dataset.as_ref())?;
        let snapshot = self.shared.with(|machine| {
            let table = |name| Snapshot::take(&machine.catalog(), name);
            names.into_iter().map(table).collect::<Result<_, _>>()
        })?;
        engine::run(query, snapshot).await
    }
}

/// A table as a query sees it.
#[derive(Debug)]
struct Snapshot {
    name: TableRef,
    schema: Schema,
    rows: Vec<RecordBatch>,
}

impl Snapshot {
    fn take(catalog: &Catalog, name: TableRef) -> Result<Self, QueryError> {
        match catalog.table(&name) {
            Ok(table) => Ok(Self {
                schema: table.schema.clone(),
                rows: table.rows().to_vec(),
                name,
            }),
            Err(CatalogError::NotFound(entity)) => {
                let dataset = catalog.dataset(&name.dataset_ref());
                let location = dataset.map_or("US", |dataset| &dataset.location).to_owned();
                Err(QueryError::NotFound { entity, location })
            }
            Err(other) => Err(QueryError::Invalid(other.to_string())),
        }
    }
}

fn internal(error: impl std::fmt::Display) -> QueryError {
    QueryError::Internal(error.to_string())
}

#[cfg(test)]
mod tests;
