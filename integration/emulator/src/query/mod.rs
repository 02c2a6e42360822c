//! SQL in BigQuery's dialect: SELECT over a snapshot of the visible rows, run by DataFusion, and the statements that
//! change tables.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use datafusion::sql::sqlparser::ast::Query;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::catalog::{Catalog, CatalogError, DatasetRef, Entity, TableRef};
use crate::machine::Switches;
use crate::schema::Schema;
use crate::shared::Shared;
use drawn::Draw;
use names::Names;
use snapshot::View;
use text::Text;

mod casts;
mod dates;
mod ddl;
mod drawn;
mod engine;
mod execute;
mod expressions;
mod functions;
mod identifiers;
mod information;
mod json_text;
mod names;
mod parameters;
mod partitions;
mod patience;
mod scalar;
mod snapshot;
mod strings;
mod tables;
mod text;
mod types;
mod unnest;

pub(crate) use parameters::Parameters;

/// How long a query may take, waiting for its turn included.
pub const QUERY_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Stack of a query's thread, in bytes: enough for the deepest query that is let through.
const STACK: usize = 64 << 20;

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
    /// The catalog refused what a statement asked for.
    #[error(transparent)]
    Catalog(CatalogError),
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

/// A statement, and how it is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// One statement.
    pub(crate) sql: String,
    /// For names without a project.
    pub(crate) project: String,
    /// For names without a dataset.
    pub(crate) default_dataset: Option<DatasetRef>,
    /// Values for `@name` and `?`.
    pub(crate) parameters: Parameters,
    /// Say what would come of it, and change nothing.
    pub(crate) dry_run: bool,
    /// Where it is to run; `None`: wherever its tables are.
    pub(crate) location: Option<String>,
}

/// What a statement did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The rows of a SELECT; of a dry run its columns alone. Other statements have none.
    pub(crate) output: Option<QueryOutput>,
    /// BigQuery's `statementType`.
    pub(crate) statement: &'static str,
    /// What was defined.
    pub(crate) ddl: Option<Ddl>,
    /// What was done with rows.
    pub(crate) dml: Option<Dml>,
}

/// What a statement did that defines something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ddl {
    /// CREATE, SKIP, REPLACE, ALTER or DROP.
    pub(crate) operation: &'static str,
    /// What is defined.
    pub(crate) target: Entity,
}

/// How many rows a statement put in and took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dml {
    /// Put in.
    pub(crate) inserted: u64,
    /// Taken away.
    pub(crate) deleted: u64,
}

/// Runs one statement: a SELECT over the rows that are visible now, or one that changes tables.
///
/// The machine is locked only while a snapshot is taken or a change is made, never while a query runs.
///
/// # Errors
/// See [`QueryError`].
pub(crate) async fn run(shared: &Shared, request: Request) -> Result<Answer, QueryError> {
    run_within(QUERY_TIME_LIMIT, shared, request).await
}

/// As [`run`], for the rows alone.
pub(crate) async fn query(
    shared: &Shared,
    project: &str,
    default_dataset: Option<&DatasetRef>,
    sql: &str,
) -> Result<QueryOutput, QueryError> {
    let request = Request {
        sql: sql.to_owned(),
        project: project.to_owned(),
        default_dataset: default_dataset.cloned(),
        parameters: Parameters::default(),
        dry_run: false,
        location: None,
    };
    let answer = run(shared, request).await?;
    Ok(answer.output.unwrap_or_else(QueryOutput::nothing))
}

/// The columns of a view that is to be defined by this query.
///
/// # Errors
/// See [`QueryError`].
pub(crate) async fn view_schema(shared: &Shared, name: &TableRef, sql: &str) -> Result<Schema, QueryError> {
    let (name, sql) = (name.clone(), sql.to_owned());
    let work = move |shared, draw| async move {
        let scope = Scope::of_view(shared, draw, &name);
        scope.view_schema(&name, &sql).await
    };
    within(QUERY_TIME_LIMIT, shared, work).await
}

async fn run_within(limit: Duration, shared: &Shared, request: Request) -> Result<Answer, QueryError> {
    within(limit, shared, move |shared, draw| request.run(shared, draw)).await
}

/// Runs a statement on a thread of its own: parsing and planning recurse deeply, and work for the processor must
/// not hold up those who serve. There it is one time, that at which its turn came. Dropping this future ends the
/// statement.
async fn within<T, F>(
    limit: Duration,
    shared: &Shared,
    work: impl FnOnce(Shared, Draw) -> F + Send + 'static,
) -> Result<T, QueryError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, QueryError>>,
{
    // In the order of the calls.
    let draw = Draw::new(shared.draw());
    let run = async {
        // The semaphore is never closed.
        let turn = Arc::clone(shared.turns()).acquire_owned().await.ok();
        let shared = shared.standing_still();
        on_own_thread(move || work(shared, draw), turn).await
    };
    timeout(limit, run).await.unwrap_or(Err(QueryError::TimedOut))
}

async fn on_own_thread<T, F>(
    work: impl FnOnce() -> F + Send + 'static,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<T, QueryError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, QueryError>>,
{
    let (_waiting, gone) = oneshot::channel::<()>();
    let work = move || {
        let _turn = turn;
        let runtime = Builder::new_current_thread().build().map_err(internal)?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = gone => Err(QueryError::TimedOut),
                result = Box::pin(work()) => result,
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

impl Request {
    async fn run(self, shared: Shared, draw: Draw) -> Result<Answer, QueryError> {
        let scope = Scope {
            shared,
            names: Names {
                project: self.project,
                default_dataset: self.default_dataset,
            },
            dry_run: self.dry_run,
            location: self.location,
            draw,
        };
        let text = Text::read(&self.sql, &self.parameters)?;
        let word = text.first_word().unwrap_or_default();
        if ddl::WORDS.contains(&word.as_str()) {
            let statement = ddl::parse(&text)?;
            return Box::pin(execute::execute(&scope, statement)).await;
        }
        let output = Box::pin(scope.select(tables::parse(&text)?)).await?;
        Ok(Answer {
            output: Some(output),
            statement: "SELECT",
            ddl: None,
            dml: None,
        })
    }
}

impl QueryOutput {
    fn nothing() -> Self {
        let schema = Schema { columns: Vec::new() };
        let rows = RecordBatch::new_empty(schema.arrow());
        Self { schema, rows }
    }
}

impl QueryError {
    /// What BigQuery has and this emulator has not.
    fn unsupported(what: &str) -> Self {
        Self::Invalid(format!("Statement not supported by this emulator: {what}"))
    }
}

/// Where and how a statement runs.
struct Scope {
    /// At the one time that the statement sees.
    shared: Shared,
    names: Names,
    dry_run: bool,
    location: Option<String>,
    draw: Draw,
}

impl Scope {
    /// Where the query of a view runs: names without a project are those of its own.
    fn of_view(shared: Shared, draw: Draw, name: &TableRef) -> Self {
        Self {
            shared,
            names: Names {
                project: name.project.clone(),
                default_dataset: None,
            },
            dry_run: true,
            location: None,
            draw,
        }
    }

    /// The table of that name, where the statement runs.
    ///
    /// # Errors
    /// `Unqualified`, `Invalid`; `NotFound`: its dataset is elsewhere.
    fn table(&self, name: &[String]) -> Result<TableRef, QueryError> {
        let table = self.names.table(name)?;
        self.check_location(&table.dataset_ref())?;
        Ok(table)
    }

    /// As [`Scope::table`].
    fn dataset(&self, name: &[String]) -> Result<DatasetRef, QueryError> {
        let dataset = self.names.dataset(name)?;
        self.check_location(&dataset)?;
        Ok(dataset)
    }

    /// A query sees the datasets of one place only.
    fn check_location(&self, name: &DatasetRef) -> Result<(), QueryError> {
        let Some(location) = &self.location else {
            return Ok(());
        };
        let is_elsewhere = self.shared.with(|machine| {
            let dataset = machine.catalog().dataset(name);
            dataset.is_ok_and(|dataset| !dataset.location.eq_ignore_ascii_case(location))
        });
        if is_elsewhere {
            let (entity, location) = (Entity::Dataset(name.clone()), location.clone());
            return Err(QueryError::NotFound { entity, location });
        }
        Ok(())
    }

    fn switches(&self) -> Switches {
        self.shared.with(|machine| machine.switches().clone())
    }

    fn run(&self) -> engine::Run {
        engine::Run {
            now: self.shared.now(),
            draw: self.draw.clone(),
            columns_only: self.dry_run,
        }
    }

    /// The rows of a SELECT; in a dry run none.
    async fn select(&self, mut query: Box<Query>) -> Result<QueryOutput, QueryError> {
        let names = tables::resolve(&mut query, &self.names)?;
        names
            .iter()
            .try_for_each(|name| self.check_location(&name.dataset_ref()))?;
        let taken = self
            .shared
            .with(|machine| snapshot::take(machine.catalog(), names, &mut Vec::new()))?;
        let run = self.run();
        let tables = snapshot::read(taken, &run).await?;
        engine::run(query, tables, &run).await
    }

    /// The columns of a view's query, which must not read the view itself.
    async fn view_schema(&self, name: &TableRef, sql: &str) -> Result<Schema, QueryError> {
        let view = View::new(name.clone(), sql)?;
        let taken = self
            .shared
            .with(|machine| view.complete(machine.catalog(), &mut Vec::new()))?;
        let output = snapshot::read(vec![taken], &self.run()).await?.pop();
        output
            .map(|snapshot| snapshot.schema)
            .ok_or_else(|| internal("the view is gone"))
    }
}

/// The error that something does not exist, with the place where it was looked for.
fn missing(catalog: &Catalog, entity: Entity) -> QueryError {
    let dataset = match &entity {
        Entity::Dataset(dataset) => dataset.clone(),
        Entity::Table(table) => table.dataset_ref(),
    };
    let location = catalog
        .dataset(&dataset)
        .map_or("US", |dataset| &dataset.location)
        .to_owned();
    QueryError::NotFound { entity, location }
}

fn internal(error: impl std::fmt::Display) -> QueryError {
    QueryError::Internal(error.to_string())
}

#[cfg(test)]
mod tests;
