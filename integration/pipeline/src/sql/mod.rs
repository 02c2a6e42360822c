//! From the text of an SQL file to a pipeline that can be run: one source, a query of single rows, one sink.

mod casts;
mod clauses;
mod dialect;
mod error;
mod fingerprint;
mod query;
mod statements;
mod tables;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Ident, Insert, Query, Statement as Ast, TableObject};

pub use error::{PipelineError, PipelineErrors, Place};
pub(crate) use fingerprint::Fingerprint;
pub(crate) use query::session;
pub(crate) use tables::OptionReader;
pub use tables::SqlOption;
pub(crate) use types::keeps_values;
pub use types::{EXTENSION_NAME, JSON_EXTENSION, is_json, sql_name};

use crate::sources::{self, SourceConfig};
use error::{Mistakes, did_you_mean, start_of};
use statements::Statement;
use tables::Table;

/// The one sink connector.
const SINK: &str = "bigquery";
/// Options of the sink that say which pipeline this is; all others are tuning.
const IDENTITY: [&str; 4] = ["project", "dataset", "table", "write.mode"];

/// A pipeline as its SQL file declares it, checked as far as can be without opening anything.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The SQL file; relative paths of sources count from its folder.
    pub file: PathBuf,
    /// The table that is read.
    pub source: SourceTable,
    /// The table that is written.
    pub sink: SinkTable,
    pub(crate) plan: LogicalPlan,
    pub(crate) fingerprint: Fingerprint,
}

/// A table with a source connector.
#[derive(Clone, Debug)]
pub struct SourceTable {
    /// Its name in the pipeline.
    pub name: String,
    /// Its columns.
    pub columns: SchemaRef,
    /// Connector and options.
    pub config: SourceConfig,
}

/// The table with the sink's connector.
#[derive(Clone, Debug)]
pub struct SinkTable {
    /// Its name in the pipeline.
    pub name: String,
    /// Its options as written, without `connector`; reading them is the sink's business.
    pub options: Vec<SqlOption>,
    /// What every batch handed to the sink looks like. A NOT NULL column is not nullable, a JSON column carries
    /// [`EXTENSION_NAME`] = [`JSON_EXTENSION`]. Declared columns, or else those of the query.
    pub columns: SchemaRef,
    /// Columns declared as `PRIMARY KEY`, in the order of the columns.
    pub primary_key: Vec<String>,
    /// Where it is created.
    pub place: Place,
}

impl Pipeline {
    /// Reads and checks an SQL file.
    ///
    /// # Errors
    /// Every mistake in it; a file that cannot be read is one at 1:1.
    pub fn load(file: &Path) -> Result<Self, PipelineErrors> {
        let sql = std::fs::read_to_string(file).map_err(|error| {
            let mut mistakes = Mistakes::new(&file.display().to_string());
            mistakes.add(
                Place { line: 1, column: 1 },
                format!("cannot read the pipeline's file: {error}"),
            );
            mistakes.or::<()>(None).expect_err("a mistake was just added")
        })?;
        Self::parse(&sql, file)
    }

    /// Checks the text of an SQL file; `file` is its name in messages and gives the folder of relative paths.
    ///
    /// # Errors
    /// Every independent mistake with its place, in the file's order.
    pub fn parse(sql: &str, file: &Path) -> Result<Self, PipelineErrors> {
        let mut mistakes = Mistakes::new(&file.display().to_string());
        let statements = statements::parse(sql, &mut mistakes);
        let declared = Declared::collect(&statements, &mut mistakes);
        let pipeline = declared.pipeline(file, &mut mistakes);
        mistakes.or(pipeline)
    }

    /// What the query does, from the last step to the first, in one line.
    #[must_use]
    pub fn query(&self) -> String {
        let mut steps = Vec::new();
        let mut step = Some(&self.plan);
        while let Some(plan) = step {
            let inputs = plan.inputs();
            if !inputs.is_empty() {
                steps.push(plan.display().to_string());
            }
            step = inputs.into_iter().next();
        }
        steps.join(" ← ")
    }

    /// The value of one of the sink's options, if it is given.
    #[must_use]
    pub fn sink_option(&self, name: &str) -> Option<&SqlOption> {
        self.sink.options.iter().find(|option| option.name == name)
    }
}

/// What the statements of a file declare.
struct Declared<'a> {
    sources: BTreeMap<String, SourceTable>,
    sinks: BTreeMap<String, Table>,
    /// Tables that exist but are of no use because of a mistake; they cause no second message.
    spoilt: BTreeSet<String>,
    inserts: Vec<(&'a Insert, &'a Statement)>,
    /// Whether a statement may have been lost to a syntax error.
    incomplete: bool,
}

impl<'a> Declared<'a> {
    fn collect(statements: &'a [Statement], mistakes: &mut Mistakes) -> Self {
        let mut declared = Self {
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            spoilt: BTreeSet::new(),
            inserts: Vec::new(),
            incomplete: !mistakes.is_empty(),
        };
        for statement in statements {
            match &statement.ast {
                Ast::CreateTable(create) => {
                    let name = tables::object_name(&create.name);
                    if declared.knows(&name) {
                        mistakes.add(statement.start(), format!("table {name} is created twice"));
                    } else {
                        match tables::read(create, statement, mistakes) {
                            Some(table) => declared.add(table, mistakes),
                            None => declared.spoil(name),
                        }
                    }
                }
                Ast::Insert(insert) => declared.inserts.push((insert, statement)),
                Ast::Query(_) => mistakes.add(
                    statement.start(),
                    "a SELECT alone writes nowhere; write INSERT INTO a table created with connector = 'bigquery'",
                ),
                Ast::CreateView { .. } => mistakes.add(
                    statement.start(),
                    "CREATE VIEW is not yet supported by the embedded host; put its query into the INSERT",
                ),
                _ => mistakes.add(statement.start(), "only CREATE TABLE and INSERT INTO ... SELECT are run"),
            }
        }
        declared
    }

    fn knows(&self, name: &str) -> bool {
        self.sources.contains_key(name) || self.sinks.contains_key(name) || self.spoilt.contains(name)
    }

    fn spoil(&mut self, name: String) {
        self.spoilt.insert(name);
    }

    fn add(&mut self, table: Table, mistakes: &mut Mistakes) {
        let kind = table.options.iter().find(|option| option.name == "type");
        let wanted = if table.connector == SINK { "sink" } else { "source" };
        let known = sources::CONNECTORS.contains(&table.connector.as_str()) || table.connector == SINK;
        if let Some(kind) = kind.filter(|kind| known && kind.value != wanted) {
            let message = format!(
                "connector {} is a {wanted} here, not a '{}'",
                table.connector, kind.value
            );
            mistakes.add(kind.place(), message);
        }
        if table.connector == SINK {
            self.sinks.insert(table.name.clone(), table);
        } else if known {
            match read_source(&table, mistakes) {
                Some(source) => drop(self.sources.insert(table.name.clone(), source)),
                None => self.spoil(table.name),
            }
        } else {
            let names = sources::CONNECTORS.iter().copied().chain([SINK]);
            let near = did_you_mean(&table.connector, names);
            let place = table
                .options
                .iter()
                .find(|option| option.name == "connector")
                .map(SqlOption::place);
            let message = format!(
                "connector '{}' is not known here{near}; known are filesystem, impulse and single_file to read, bigquery to write",
                table.connector
            );
            mistakes.add(place.unwrap_or(table.place), message);
            self.spoil(table.name);
        }
    }

    fn pipeline(self, file: &Path, mistakes: &mut Mistakes) -> Option<Pipeline> {
        let (insert, statement) = match self.inserts.as_slice() {
            [] if self.incomplete => return None,
            [] => {
                let message = "there is no INSERT INTO ... SELECT; add one, it is what runs";
                mistakes.add(Place { line: 1, column: 1 }, message);
                return None;
            }
            [(insert, statement)] => (*insert, *statement),
            [_, rest @ ..] => {
                for (_, statement) in rest {
                    let message = "several INSERTs in one file are not yet supported; keep one, move this one to its own file";
                    mistakes.add(statement.start(), message);
                }
                return None;
            }
        };
        let sink = self.sink_of(insert, statement, mistakes)?;
        let query = query_of(insert, statement, mistakes)?;
        let schemas = self
            .sources
            .iter()
            .map(|(name, source)| (name.clone(), Arc::clone(&source.columns)))
            .collect();
        if !mistakes.is_empty() && (self.incomplete || !self.spoilt.is_empty()) {
            // What the query could say wrong may come from the tables that could not be read.
            return None;
        }
        let named = insert
            .columns
            .iter()
            .map(|ident| named_column(ident, statement))
            .collect();
        let target = query::Target {
            table: &sink.name,
            columns: sink.columns.clone(),
            named,
        };
        let planned = query::plan(query, &target, &schemas, statement, mistakes)?;
        let source = self.sources.get(&planned.source)?.clone();
        let fingerprint = fingerprint(&source, sink, insert, query);
        let options = sink
            .options
            .iter()
            .filter(|option| option.name != "connector")
            .cloned()
            .collect();
        let sink = SinkTable {
            name: sink.name.clone(),
            options,
            columns: planned.columns,
            primary_key: sink.primary_key.iter().map(|(name, _)| name.clone()).collect(),
            place: sink.place,
        };
        Some(Pipeline {
            file: file.to_owned(),
            source,
            sink,
            plan: planned.plan,
            fingerprint,
        })
    }

    fn sink_of(&self, insert: &Insert, statement: &Statement, mistakes: &mut Mistakes) -> Option<&Table> {
        let TableObject::TableName(name) = &insert.table else {
            mistakes.add(statement.start(), "INSERT INTO takes the name of a table");
            return None;
        };
        let name = tables::object_name(name);
        if let Some(sink) = self.sinks.get(&name) {
            return Some(sink);
        }
        let place = statement.find_word(&name).unwrap_or(statement.start());
        if self.sources.contains_key(&name) {
            let message =
                format!("table {name} is a source; INSERT INTO takes a table with connector = 'bigquery'");
            mistakes.add(place, message);
        } else if !self.spoilt.contains(&name) && !self.incomplete {
            let near = did_you_mean(&name, self.sinks.keys().map(String::as_str));
            mistakes.add(place, format!("table {name} is written but not created{near}"));
        }
        None
    }
}

fn read_source(table: &Table, mistakes: &mut Mistakes) -> Option<SourceTable> {
    for (column, place) in &table.primary_key {
        let message = format!("column {column}: PRIMARY KEY has no use in a source; leave it out");
        mistakes.add(*place, message);
    }
    let mut options = OptionReader::new(table, mistakes);
    for ignored in ["connector", "type"] {
        options.take(ignored);
    }
    let (config, columns) = sources::configure(&table.connector, table.columns.clone(), options)?;
    Some(SourceTable {
        name: table.name.clone(),
        columns,
        config,
    })
}

fn query_of<'a>(insert: &'a Insert, statement: &Statement, mistakes: &mut Mistakes) -> Option<&'a Query> {
    let before = mistakes.count();
    clauses::refuse_in_insert(insert, statement, mistakes);
    match &insert.source {
        Some(query) => clauses::refuse_in_query(query, statement, mistakes),
        None if mistakes.count() == before => {
            let message = "only INSERT INTO table [(columns)] SELECT ... is run";
            mistakes.add(statement.start(), message);
        }
        None => {}
    }
    insert.source.as_deref().filter(|_| mistakes.count() == before)
}

fn named_column(ident: &Ident, statement: &Statement) -> (String, Place) {
    (
        tables::fold(ident),
        start_of(ident.span).unwrap_or(statement.start()),
    )
}

fn fingerprint(source: &SourceTable, sink: &Table, insert: &Insert, query: &Query) -> Fingerprint {
    let columns = |schema: &SchemaRef| {
        let fields = schema.fields().iter().map(|field| {
            let required = if field.is_nullable() { "" } else { " NOT NULL" };
            let name = if is_json(field) {
                "JSON".to_owned()
            } else {
                sql_name(field.data_type())
            };
            format!("{} {name}{required}", field.name())
        });
        fields.collect::<Vec<_>>().join(", ")
    };
    let mut fingerprint = Fingerprint::default()
        .with(
            "source",
            format!("{} ({})", source.name, source.config.identity()),
        )
        .with("source's columns", columns(&source.columns))
        .with("query", query.to_string());
    if !insert.columns.is_empty() {
        let named: Vec<_> = insert.columns.iter().map(tables::fold).collect();
        fingerprint = fingerprint.with("INSERT's columns", named.join(", "));
    }
    if let Some(declared) = &sink.columns {
        fingerprint = fingerprint.with("sink's columns", columns(declared));
    }
    let given = |name: &str| {
        sink.options
            .iter()
            .find(|option| option.name == name)
            .map(|option| option.value.as_str())
    };
    for name in IDENTITY {
        let default = if name == "write.mode" {
            "exactly_once"
        } else {
            "not set"
        };
        fingerprint = fingerprint.with(&format!("sink's {name}"), given(name).unwrap_or(default));
    }
    fingerprint
}
