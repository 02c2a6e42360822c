//! One query in DataFusion, with nothing but its snapshot.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use datafusion::common::SchemaError;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::TableReference;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement};
use futures::TryStreamExt as _;

use crate::catalog::Millis;
use crate::query::drawn::{self, Draw};
use crate::query::identifiers::{Spelling, apply_outputs, name_outputs};
use crate::query::snapshot::Snapshot;
use crate::query::{
    QueryError, QueryOutput, casts, dates, expressions, partitions, patience, scalar, strings, tables, types,
    unnest,
};

/// Memory for sorts, joins and aggregates of one query, in bytes.
const MEMORY: usize = 512 << 20;
/// Largest result, in bytes of Arrow.
const LARGEST_RESULT: usize = 512 << 20;

/// How a query runs, and those of the views that it reads.
pub(super) struct Run {
    /// The time that it sees.
    pub(super) now: Millis,
    /// What it draws.
    pub(super) draw: Draw,
    /// It is planned and gives no rows.
    pub(super) columns_only: bool,
}

/// Functions of the engine that are not determined by their arguments.
const OWN_CLOCK_AND_CHANCE: [&str; 7] = [
    "now",
    "current_timestamp",
    "current_date",
    "current_time",
    "today",
    "random",
    "uuid",
];

/// Runs a query whose tables are already read.
pub(super) async fn run(
    mut query: Box<Query>,
    tables: Vec<Snapshot>,
    run: &Run,
) -> Result<QueryOutput, QueryError> {
    let tables = partitions::add(&query, tables)?;
    let context = context(&run.draw).map_err(|error| explain(&error, &tables))?;
    let mut spelling = Spelling::default();
    for (i, table) in tables.iter().enumerate() {
        let provider = provider(table, &mut spelling).map_err(|error| explain(&error, &tables))?;
        let name = TableReference::bare(tables::internal_name(i));
        context
            .register_table(name, Arc::new(provider))
            .map_err(|error| explain(&error, &tables))?;
    }
    let outputs = name_outputs(&mut query)?;
    unnest::rewrite(&mut query);
    expressions::translate(&mut query, run.now)?;
    spelling.apply(&mut query)?;
    let plan = plan(&context, query, &tables).await?;
    let (result, batches) = if run.columns_only {
        (Arc::clone(plan.schema().inner()), Vec::new())
    } else {
        execute(&context, plan, &tables).await?
    };
    let mut schema = types::result_schema(&result)?;
    apply_outputs(&outputs, &mut schema)?;
    let rows = types::result_rows(&batches, &schema)?;
    Ok(QueryOutput { schema, rows })
}

/// One partition: rows without an ORDER BY come in the order in which they became visible.
fn context(draw: &Draw) -> Result<SessionContext, DataFusionError> {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(MEMORY, 1.0)
        .build_arc()?;
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config_rt(config, runtime);
    // They read the machine's clock and draw its random numbers; BigQuery has none of these names, or we our own.
    for name in OWN_CLOCK_AND_CHANCE {
        context.deregister_udf(name);
    }
    let own = casts::functions()
        .into_iter()
        .chain(dates::functions())
        .chain(strings::functions())
        .map(ScalarUDF::from);
    for function in scalar::functions()
        .into_iter()
        .chain(own)
        .chain(drawn::functions(draw))
    {
        context.register_udf(function);
    }
    Ok(context)
}

fn provider(table: &Snapshot, spelling: &mut Spelling) -> Result<MemTable, DataFusionError> {
    let schema = types::tagged(&spelling.columns(&table.schema.columns));
    let batches = table.rows.iter().map(|batch| types::retype(batch, &schema));
    MemTable::try_new(Arc::clone(&schema), vec![batches.collect::<Result<_, _>>()?])
}

async fn plan(
    context: &SessionContext,
    query: Box<Query>,
    snapshot: &[Snapshot],
) -> Result<LogicalPlan, QueryError> {
    let explain = |error: DataFusionError| explain(&error, snapshot);
    let statement = EngineStatement::Statement(Box::new(Statement::Query(query)));
    let plan = context
        .state()
        .statement_to_plan(statement)
        .await
        .map_err(explain)?;
    let read_only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    read_only.verify_plan(&plan).map_err(explain)?;
    Ok(plan)
}

async fn execute(
    context: &SessionContext,
    plan: LogicalPlan,
    snapshot: &[Snapshot],
) -> Result<(SchemaRef, Vec<RecordBatch>), QueryError> {
    let explain = |error: DataFusionError| explain(&error, snapshot);
    let frame = context.execute_logical_plan(plan).await.map_err(explain)?;
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.map_err(explain)?;
    let plan = patience::patient(plan).map_err(explain)?;
    let mut stream = execute_stream(plan, task).map_err(explain)?;
    let schema = stream.schema();
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = stream.try_next().await.map_err(explain)? {
        bytes += size(&batch);
        if bytes > LARGEST_RESULT {
            return Err(QueryError::TooLarge);
        }
        batches.push(batch);
    }
    Ok((schema, batches))
}

/// Bytes of a batch's own rows; what it shares with a larger one does not count.
fn size(batch: &RecordBatch) -> usize {
    let sizes = batch
        .columns()
        .iter()
        .map(|array| array.to_data().get_slice_memory_size());
    sizes.map(|size| size.unwrap_or(0)).sum()
}

/// An engine error in BigQuery's terms.
fn explain(error: &DataFusionError, snapshot: &[Snapshot]) -> QueryError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            explain(inner, snapshot)
        }
        DataFusionError::Shared(inner) => explain(inner, snapshot),
        DataFusionError::Collection(errors) if !errors.is_empty() => explain(&errors[0], snapshot),
        DataFusionError::SchemaError(SchemaError::FieldNotFound { field, .. }, _) => {
            QueryError::Invalid(format!("Unrecognized name: {}", field.name))
        }
        DataFusionError::SchemaError(SchemaError::AmbiguousReference { field }, _) => {
            QueryError::Invalid(format!("Column name {} is ambiguous", field.name))
        }
        DataFusionError::ResourcesExhausted(text) => QueryError::Resources(text.clone()),
        DataFusionError::Internal(text) => QueryError::Internal(text.clone()),
        DataFusionError::NotImplemented(text) if text.contains("does not support logical expression") => {
            let text = "Subqueries that refer to columns of the query around them, as in (SELECT ... FROM \
                        UNNEST(t.list)), are not supported by this emulator";
            QueryError::Invalid(text.to_owned())
        }
        DataFusionError::Plan(text) if text.starts_with("Invalid function '") => {
            let name = text.split('\'').nth(1).unwrap_or_default();
            QueryError::Invalid(format!("Function not found: {name}"))
        }
        other => {
            let mut text = other.strip_backtrace();
            for (i, table) in snapshot.iter().enumerate().rev() {
                text = text.replace(&tables::internal_name(i), &table.name.table);
            }
            QueryError::Invalid(text)
        }
    }
}
