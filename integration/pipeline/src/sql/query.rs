//! Plans the query of an INSERT with DataFusion, refuses what a stream of rows cannot be asked for here, and casts to the sink's columns.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, ScalarValue, SchemaError, TableReference};
use datafusion::config::ConfigOptions;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Volatility, lit};
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DataFusionStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{Query, SelectItem, SetExpr, Spanned, Statement as Ast};
use futures::FutureExt;

use super::casts::CheckedCasts;
use super::error::{Mistakes, Place, did_you_mean, start_of};
use super::statements::Statement;
use super::types::{fits, is_json, sql_name};
use crate::exec::input_table;

const POINTER: &str = "the embedded host does not run it; run this file on Arroyo (arroyo.dev), which does";

const NO_SOURCE: &str = "the query reads no source; add FROM and a table created with a source connector";

const SAME_NAME: &str = "two expressions of the SELECT have the same name (a CAST has that of its column); name one of them with AS";

/// The sink's side of an INSERT.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) table: &'a str,
    pub(super) columns: Option<SchemaRef>,
    /// Columns named after the table, folded; empty means all.
    pub(super) named: Vec<(String, Place)>,
}

/// A query that can be run.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) source: String,
    pub(super) columns: SchemaRef,
    pub(super) plan: LogicalPlan,
}

/// A session without repartitioning or batch coalescing: rows leave the plan as they come, in order.
pub(crate) fn session() -> SessionState {
    let mut options = ConfigOptions::new();
    options.sql_parser.collect_spans = true;
    let config = SessionConfig::from(options)
        .with_target_partitions(1)
        .with_coalesce_batches(false);
    SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rule(Arc::new(CheckedCasts))
        .with_optimizer_rules(optimizer_rules())
        .build()
}

/// Only rules that keep the scan: others turn a query whose filter is never true into an empty relation, which has no barrier. They
/// are for joins, aggregates and limits, which are not run here.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Plans the query over the sources; notes every mistake it can find.
pub(super) fn plan(
    query: &Query,
    target: &Target<'_>,
    sources: &BTreeMap<String, SchemaRef>,
    statement: &Statement,
    mistakes: &mut Mistakes,
) -> Option<Planned> {
    let ast = Ast::Query(Box::new(query.clone()));
    let before = mistakes.count();
    check_tables(&ast, sources, statement, mistakes);
    if mistakes.count() > before {
        return None;
    }
    let context = SessionContext::new_with_state(session());
    for (name, schema) in sources {
        if let Err(error) = context.register_table(TableReference::bare(name.as_str()), input_table(schema)) {
            mistakes.add(
                statement.start(),
                format!("table {name}: {}", first_line(&error.strip_backtrace())),
            );
            return None;
        }
    }
    let state = context.state();
    let parsed = DataFusionStatement::Statement(Box::new(ast));
    let planned = state.statement_to_plan(parsed).now_or_never();
    let plan = match planned.expect("a catalog in memory never waits") {
        Ok(plan) => plan,
        Err(error) => {
            note_planning_errors(&error, statement, mistakes);
            return None;
        }
    };
    refuse_nodes(&plan, statement, mistakes);
    if mistakes.count() > before {
        return None;
    }
    if scans(&plan).is_empty() {
        mistakes.add(statement.start(), NO_SOURCE);
        return None;
    }
    let (plan, columns) = Casts {
        query,
        target,
        statement,
        mistakes,
    }
    .apply(plan)?;
    // Constants are computed here, and the kernels' own arithmetic panics on some.
    let optimized = catch_unwind(AssertUnwindSafe(|| state.optimize(&plan))).unwrap_or_else(|_| {
        let message = "a constant of the query is too far out of range to compute with; write a nearer one";
        Err(DataFusionError::Plan(message.to_owned()))
    });
    match optimized {
        Ok(plan) => match scans(&plan).as_slice() {
            [source] => Some(Planned {
                source: source.clone(),
                columns,
                plan,
            }),
            // Without a scan no barrier would end an epoch.
            _ => {
                mistakes.add(statement.start(), NO_SOURCE);
                None
            }
        },
        Err(error) => {
            note_planning_errors(&error, statement, mistakes);
            None
        }
    }
}

/// Names of the tables that a plan scans; a table that only an unused WITH names is not among them.
fn scans(plan: &LogicalPlan) -> Vec<String> {
    let mut names = Vec::new();
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.push(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.expect("the closure above never fails");
    names
}

/// Notes every table that is read and is no source.
fn check_tables(
    ast: &Ast,
    sources: &BTreeMap<String, SchemaRef>,
    statement: &Statement,
    mistakes: &mut Mistakes,
) {
    let parsed = DataFusionStatement::Statement(Box::new(ast.clone()));
    let tables = match resolve_table_references(&parsed, true) {
        Ok((tables, _)) => tables,
        Err(error) => return mistakes.add(statement.start(), first_line(&error.strip_backtrace())),
    };
    for table in tables {
        let name = table.table();
        let place = statement.find_word(name).unwrap_or(statement.start());
        if table.schema().is_some() {
            mistakes.add(
                place,
                format!("table {table} is read, but the name of a table has one part"),
            );
        } else if !sources.contains_key(name) {
            let near = did_you_mean(name, sources.keys().map(String::as_str));
            mistakes.add(
                place,
                format!("table {name} is read but no source of that name is created{near}"),
            );
        }
    }
}

/// Notes each planning error once, with its place, and window functions of the engine by their own name.
fn note_planning_errors(error: &DataFusionError, statement: &Statement, mistakes: &mut Mistakes) {
    if let Some(place) = statement.find_call(&["tumble", "hop", "session"]) {
        mistakes.add(
            place,
            format!("a window (tumble, hop, session) keeps rows over time: {POINTER}"),
        );
        return;
    }
    for error in error.iter() {
        let root = error.find_root();
        let spanned = error
            .diagnostic()
            .and_then(|diagnostic| diagnostic.span)
            .map(|span| Place {
                line: span.start.line,
                column: span.start.column,
            });
        let (place, message) = match root {
            DataFusionError::SchemaError(SchemaError::FieldNotFound { field, valid_fields }, _) => {
                let same = valid_fields
                    .iter()
                    .find(|column| column.name.eq_ignore_ascii_case(&field.name));
                let near = match same {
                    Some(column) => format!("; write \"{}\" with quotes, which keep its case", column.name),
                    None => did_you_mean(
                        &field.name,
                        valid_fields.iter().map(|column| column.name.as_str()),
                    ),
                };
                let place = spanned
                    .or_else(|| column_place(field))
                    .or_else(|| statement.find_word(&field.name));
                let known: Vec<_> = valid_fields.iter().map(|column| column.name.as_str()).collect();
                (
                    place,
                    format!(
                        "there is no column {}{near}; known are: {}",
                        field.name,
                        known.join(", ")
                    ),
                )
            }
            other => {
                let text = first_line(&other.strip_backtrace());
                match text.split_once("Projections require unique expression names") {
                    Some(_) => (statement.find_word("SELECT"), SAME_NAME.to_owned()),
                    None => (spanned, text),
                }
            }
        };
        mistakes.add(place.unwrap_or(statement.start()), message);
    }
}

fn column_place(column: &Column) -> Option<Place> {
    let span = column.spans().first()?;
    Some(Place {
        line: span.start.line,
        column: span.start.column,
    })
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("Error during planning: ").unwrap_or(line);
    line.strip_prefix("This feature is not implemented: ")
        .unwrap_or(line)
        .to_owned()
}

/// Only row by row work is run: projection, filter, unnest, over one scan.
fn refuse_nodes(plan: &LogicalPlan, statement: &Statement, mistakes: &mut Mistakes) {
    let mut found = Vec::new();
    let mut called = None;
    let walked = plan.apply_with_subqueries(|node| {
        found.extend(match node {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Unnest(_) => None,
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => None,
            LogicalPlan::Aggregate(aggregate) => {
                if let Some(Expr::AggregateFunction(call)) = aggregate.aggr_expr.first() {
                    called = statement.find_call(&[call.func.name()]);
                }
                Some((&["GROUP", "HAVING"][..], "an aggregate keeps rows over time"))
            }
            LogicalPlan::Window(_) => Some((&["OVER"][..], "a window function keeps rows over time")),
            LogicalPlan::Distinct(_) => Some((&["DISTINCT", "UNION"][..], "DISTINCT keeps rows over time")),
            LogicalPlan::Sort(_) => Some((&["ORDER"][..], "ORDER BY needs an end of the input")),
            LogicalPlan::Limit(_) => Some((
                &["LIMIT", "OFFSET", "FETCH"][..],
                "LIMIT counts rows over checkpoints",
            )),
            LogicalPlan::Join(_) => Some((&["JOIN", "FROM"][..], "a join keeps rows over time")),
            LogicalPlan::Union(_) => Some((&["UNION"][..], "UNION reads several inputs")),
            LogicalPlan::Subquery(_) => Some((
                &["IN", "EXISTS"][..],
                "a subquery in an expression keeps rows over time",
            )),
            _ => Some((&["SELECT"][..], "this kind of query keeps rows over time")),
        });
        Ok(TreeNodeRecursion::Continue)
    });
    for name in frozen_functions(plan) {
        let place = statement.find_word(&name).unwrap_or(statement.start());
        let message =
            format!("{name}() would give the time this run began for every row; take the time from a column");
        mistakes.add(place, message);
    }
    if let Err(error) = walked {
        mistakes.add(statement.start(), first_line(&error.strip_backtrace()));
    }
    for (words, reason) in found {
        let place = words.iter().find_map(|word| statement.find_word(word)).or(called);
        mistakes.add(place.unwrap_or(statement.start()), format!("{reason}: {POINTER}"));
    }
}

/// Functions that DataFusion computes once, when it plans.
fn frozen_functions(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && call.func.signature().volatility == Volatility::Stable
                {
                    names.insert(call.name().to_owned());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    visited.expect("no closure above fails");
    names
}

/// Matches the query's expressions with the sink's columns.
struct Casts<'a> {
    query: &'a Query,
    target: &'a Target<'a>,
    statement: &'a Statement,
    mistakes: &'a mut Mistakes,
}

impl Casts<'_> {
    fn apply(mut self, plan: LogicalPlan) -> Option<(LogicalPlan, SchemaRef)> {
        let Some(columns) = self.target.columns.clone() else {
            return self.infer(plan);
        };
        let before = self.mistakes.count();
        let order = self.order(&columns)?;
        let given = plan.schema().fields().len();
        if given != order.iter().flatten().count() {
            let message = format!(
                "the query gives {given} columns, {} takes {}; give one expression for each",
                self.target.table,
                order.iter().flatten().count()
            );
            let place = self
                .statement
                .find_word("SELECT")
                .unwrap_or(self.statement.start());
            self.mistakes.add(place, message);
            return None;
        }
        let mut exprs = Vec::with_capacity(columns.fields().len());
        for (field, index) in columns.fields().iter().zip(order) {
            exprs.extend(match index {
                Some(index) => self.cast(&plan, index, field),
                None => self.absent(field),
            });
        }
        if self.mistakes.count() > before {
            return None;
        }
        let plan = self.project(plan, exprs)?;
        Some((plan, columns))
    }

    /// Sink columns come from the query: names, types, nullability and the JSON marker.
    fn infer(self, plan: LogicalPlan) -> Option<(LogicalPlan, SchemaRef)> {
        let fields = plan.schema().fields().iter().map(|field| {
            let data_type = match field.data_type() {
                DataType::Null => None,
                other => Some(other.clone()),
            };
            let kept = Field::new(field.name(), data_type?, field.is_nullable());
            Some(if is_json(field) {
                kept.with_metadata(field.metadata().clone())
            } else {
                kept
            })
        });
        let fields: Option<Vec<_>> = fields.collect();
        let Some(fields) = fields else {
            let message =
                "a column of the query is NULL without a type; cast it, or declare the sink's columns";
            self.mistakes.add(self.statement.start(), message);
            return None;
        };
        Some((plan, Arc::new(Schema::new(fields))))
    }

    /// For each sink column the index of the expression that feeds it.
    fn order(&mut self, columns: &Schema) -> Option<Vec<Option<usize>>> {
        if self.target.named.is_empty() {
            return Some((0..columns.fields().len()).map(Some).collect());
        }
        let before = self.mistakes.count();
        let mut order = vec![None; columns.fields().len()];
        for (index, (name, place)) in self.target.named.iter().enumerate() {
            match columns.index_of(name) {
                Ok(at) if order[at].is_none() => order[at] = Some(index),
                Ok(_) => self.mistakes.add(*place, format!("column {name} is named twice")),
                Err(_) => {
                    let near = did_you_mean(name, columns.fields().iter().map(|field| field.name().as_str()));
                    self.mistakes.add(
                        *place,
                        format!("{} has no column {name}{near}", self.target.table),
                    );
                }
            }
        }
        (self.mistakes.count() == before).then_some(order)
    }

    fn cast(&mut self, plan: &LogicalPlan, index: usize, field: &Field) -> Option<Expr> {
        let schema = plan.schema();
        let (qualifier, given) = schema.qualified_field(index);
        let from = given.data_type();
        if *from == DataType::Null && !field.is_nullable() {
            let message = format!("column {} is NOT NULL but is given NULL", field.name());
            self.mistakes.add(self.place_of(index), message);
            return None;
        }
        if !fits(from, field.data_type()) && !literal_fits(plan, index, field.data_type()) {
            let (is, wants) = (sql_name(from), sql_name(field.data_type()));
            let message = format!(
                "column {} is {wants} but is given {is}; write CAST(... AS {wants}) if that is meant, or change the column",
                field.name()
            );
            self.mistakes.add(self.place_of(index), message);
            return None;
        }
        let expr = Expr::Column(Column::from((qualifier, given)));
        match expr.cast_to(field.data_type(), schema.as_ref()) {
            Ok(expr) => Some(expr.alias(field.name())),
            Err(error) => {
                let message = format!(
                    "column {}: {}",
                    field.name(),
                    first_line(&error.strip_backtrace())
                );
                self.mistakes.add(self.place_of(index), message);
                None
            }
        }
    }

    /// A column the INSERT does not name is null.
    fn absent(&mut self, field: &Field) -> Option<Expr> {
        if !field.is_nullable() {
            let message = format!(
                "column {} of {} is NOT NULL but the INSERT does not name it",
                field.name(),
                self.target.table
            );
            self.mistakes.add(self.statement.start(), message);
            return None;
        }
        match ScalarValue::try_from(field.data_type()) {
            Ok(null) => Some(lit(null).alias(field.name())),
            Err(error) => {
                let message = format!(
                    "column {}: {}",
                    field.name(),
                    first_line(&error.strip_backtrace())
                );
                self.mistakes.add(self.statement.start(), message);
                None
            }
        }
    }

    fn project(self, plan: LogicalPlan, exprs: Vec<Expr>) -> Option<LogicalPlan> {
        match LogicalPlanBuilder::from(plan)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
        {
            Ok(plan) => Some(plan),
            Err(error) => {
                note_planning_errors(&error, self.statement, self.mistakes);
                None
            }
        }
    }

    /// Place of the `index`th expression, if the outermost SELECT lists them one by one.
    fn place_of(&self, index: usize) -> Place {
        let item = match &*self.query.body {
            SetExpr::Select(select) if !select.projection.iter().any(is_wildcard) => {
                select.projection.get(index)
            }
            _ => None,
        };
        let listed = item.and_then(|item| start_of(item.span()));
        listed
            .or_else(|| self.statement.find_word("SELECT"))
            .unwrap_or(self.statement.start())
    }
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// A constant fits if it comes back unchanged: `1` into a SMALLINT does, `1.5` does not.
fn literal_fits(plan: &LogicalPlan, index: usize, to: &DataType) -> bool {
    let LogicalPlan::Projection(projection) = plan else {
        return false;
    };
    let Some(expr) = projection.expr.get(index) else {
        return false;
    };
    let Expr::Literal(value, _) = expr.clone().unalias() else {
        return false;
    };
    let numeric = value.data_type().is_numeric() && to.is_numeric();
    let there_and_back = value
        .cast_to(to)
        .and_then(|cast| cast.cast_to(&value.data_type()));
    numeric && there_and_back.is_ok_and(|back| back == value)
}
