//! The tables of a query as it sees them: their rows as they are now, and views as the rows of their queries.

use arrow_array::RecordBatch;
use datafusion::sql::sqlparser::ast::Query;

use crate::catalog::{Catalog, CatalogError, TableRef};
use crate::query::names::Names;
use crate::query::parameters::Parameters;
use crate::query::partitions::Partitions;
use crate::query::text::Text;
use crate::query::{QueryError, engine, information, missing, tables};
use crate::schema::Schema;

/// BigQuery's limit on views of views.
const DEEPEST: usize = 16;

/// A table or view with its rows.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) name: TableRef,
    pub(super) schema: Schema,
    pub(super) rows: Vec<RecordBatch>,
    /// Of a table that is partitioned by the time of ingestion.
    pub(super) partitions: Option<Partitions>,
}

/// A table with its rows, or a view whose query is still to be run.
#[derive(Debug)]
pub(super) enum Taken {
    Table(Snapshot),
    View(View),
}

/// A view, with all that its query reads.
#[derive(Debug)]
pub(super) struct View {
    name: TableRef,
    /// Names of its columns, if it gives them names of its own.
    columns: Vec<String>,
    query: Box<Query>,
    tables: Vec<Taken>,
}

/// Takes all tables at one time, those that views read too. `within` are the views around.
///
/// # Errors
/// `NotFound`; `Invalid`: a view that reads itself.
pub(super) fn take(
    catalog: &Catalog,
    names: Vec<TableRef>,
    within: &mut Vec<TableRef>,
) -> Result<Vec<Taken>, QueryError> {
    names
        .into_iter()
        .map(|name| take_one(catalog, name, within))
        .collect()
}

fn take_one(catalog: &Catalog, name: TableRef, within: &mut Vec<TableRef>) -> Result<Taken, QueryError> {
    if information::is(&name) {
        let (schema, rows) = information::read(catalog, &name)?;
        let rows = vec![rows];
        return Ok(Taken::Table(Snapshot {
            name,
            schema,
            rows,
            partitions: None,
        }));
    }
    let table = match catalog.table(&name) {
        Ok(table) => table,
        Err(CatalogError::NotFound(entity)) => return Err(missing(catalog, entity)),
        Err(other) => return Err(QueryError::Catalog(other)),
    };
    match table.view_query() {
        None => Ok(Taken::Table(Snapshot {
            schema: table.schema.clone(),
            rows: table.rows().to_vec(),
            partitions: Partitions::of(table),
            name,
        })),
        Some(sql) => {
            let mut view = View::new(name, sql)?;
            let columns = table.schema.columns.iter();
            view.columns = columns.map(|column| column.name.clone()).collect();
            view.complete(catalog, within)
        }
    }
}

impl View {
    /// A view that reads nothing yet.
    ///
    /// # Errors
    /// Its query is none.
    pub(super) fn new(name: TableRef, sql: &str) -> Result<Self, QueryError> {
        let query = tables::parse(&Text::read(sql, &Parameters::default())?)?;
        Ok(Self {
            name,
            columns: Vec::new(),
            query,
            tables: Vec::new(),
        })
    }

    /// Takes what its query reads. Names without a project are those of the view's own.
    pub(super) fn complete(
        mut self,
        catalog: &Catalog,
        within: &mut Vec<TableRef>,
    ) -> Result<Taken, QueryError> {
        if within.contains(&self.name) {
            let text = format!("View {} reads itself", self.name);
            return Err(QueryError::Invalid(text));
        }
        if within.len() == DEEPEST {
            let text = format!(
                "View {} is nested too deep: more than {DEEPEST} levels",
                self.name
            );
            return Err(QueryError::Invalid(text));
        }
        let names = Names {
            project: self.name.project.clone(),
            default_dataset: None,
        };
        let names = tables::resolve(&mut self.query, &names)?;
        within.push(self.name.clone());
        self.tables = take(catalog, names, within)?;
        within.pop();
        Ok(Taken::View(self))
    }

    async fn read(self, run: &engine::Run) -> Result<Snapshot, QueryError> {
        let tables = Box::pin(read(self.tables, run)).await?;
        let mut output = engine::run(self.query, tables, run).await?;
        if self.columns.len() == output.schema.columns.len() {
            for (column, name) in output.schema.columns.iter_mut().zip(self.columns) {
                column.name = name;
            }
        }
        Ok(Snapshot {
            name: self.name,
            schema: output.schema,
            rows: vec![output.rows],
            partitions: None,
        })
    }
}

/// Runs the queries of views.
///
/// # Errors
/// Those of the views' queries.
pub(super) async fn read(taken: Vec<Taken>, run: &engine::Run) -> Result<Vec<Snapshot>, QueryError> {
    let mut tables = Vec::with_capacity(taken.len());
    for taken in taken {
        tables.push(match taken {
            Taken::Table(table) => table,
            Taken::View(view) => view.read(run).await?,
        });
    }
    Ok(tables)
}
