//! `INSERT`, and how a query's columns become those of a table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Fields};
use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr, TableFactor, Value, Values};

use super::refused;
use super::tables::check_kind;
use crate::catalog::TableRef;
use crate::machine::{Machine, Switches};
use crate::query::ddl::{Insert, Source};
use crate::query::parameters::Parameters;
use crate::query::text::{Text, syntax};
use crate::query::{Answer, Dml, QueryError, QueryOutput, Scope, internal, tables};
use crate::rows;
use crate::schema::{Column, Kind, Mode, Schema, conform};

pub(super) async fn insert(scope: &Scope, insert: Insert) -> Result<Answer, QueryError> {
    let name = scope.names.table(&insert.name)?;
    let schema = scope.shared.with(|machine| target(machine, &name))?;
    let mut columns = chosen(&name, &schema, insert.columns.as_deref())?;
    // Default values are literals too, and come last.
    let literals_from = match insert.source {
        Source::Values(_) => 0,
        Source::Query(_) => columns.len(),
    };
    let source = source(insert.source, &columns)?;
    let is_missing = |column: &&Column| !columns.iter().any(|other| other.name == column.name);
    let missing: Vec<&Column> = schema.columns.iter().filter(is_missing).collect();
    let defaults: Vec<&Column> = missing
        .into_iter()
        .filter(|column| column.default_value_expression.is_some())
        .collect();
    let query = with_defaults(source, &defaults)?;
    columns.extend(defaults.into_iter().cloned());
    let output = scope.select(query).await?;
    let rows = convert(&output, &columns, &schema, &scope.switches(), literals_from)?;
    let inserted = rows.num_rows() as u64;
    if !scope.dry_run && inserted > 0 {
        let now = scope.shared.now();
        scope
            .shared
            .with(|machine| machine.publish(&name, rows, now))
            .map_err(QueryError::Catalog)?;
    }
    Ok(Answer {
        output: None,
        statement: "INSERT",
        ddl: None,
        dml: Some(Dml { inserted, deleted: 0 }),
    })
}

/// The columns of the table that rows go into.
fn target(machine: &Machine, name: &TableRef) -> Result<Schema, QueryError> {
    match machine.catalog().table(name) {
        Ok(table) => {
            check_kind(name, table, "TABLE", "INSERT INTO")?;
            Ok(table.schema.clone())
        }
        Err(error) => Err(refused(machine.catalog(), error)),
    }
}

/// The columns that the statement names, in its order.
fn chosen(table: &TableRef, schema: &Schema, names: Option<&[String]>) -> Result<Vec<Column>, QueryError> {
    let Some(names) = names else {
        return Ok(schema.columns.clone());
    };
    let mut columns: Vec<Column> = Vec::with_capacity(names.len());
    for name in names {
        let Some(column) = schema.column(name) else {
            let table = &table.table;
            return Err(QueryError::Invalid(format!(
                "Column {name} is not present in table {table}"
            )));
        };
        if columns.iter().any(|other| other.name == column.name) {
            return Err(QueryError::Invalid(format!(
                "INSERT has columns with duplicate name: {name}"
            )));
        }
        columns.push(column.clone());
    }
    Ok(columns)
}

/// The source as a query; `DEFAULT` becomes the column's default value.
fn source(source: Source, columns: &[Column]) -> Result<Box<Query>, QueryError> {
    let rows = match source {
        Source::Query(query) => return Ok(query),
        Source::Values(rows) => rows,
    };
    let expected = columns.len();
    let row = |row: Vec<Option<Expr>>| -> Result<Vec<Expr>, QueryError> {
        if row.len() != expected {
            let has = row.len();
            return Err(QueryError::Invalid(format!(
                "Inserted row has wrong column count; Has {has}, expected {expected}"
            )));
        }
        let values = row.into_iter().zip(columns);
        values
            .map(|(value, column)| value.map_or_else(|| default(column), Ok))
            .collect()
    };
    let rows = rows.into_iter().map(row).collect::<Result<_, _>>()?;
    let mut query = tables::parse(&Text::read("SELECT 1", &Parameters::default())?)?;
    *query.body = SetExpr::Values(Values {
        explicit_row: false,
        rows,
    });
    Ok(query)
}

/// The query with the default values of columns that it does not give.
fn with_defaults(query: Box<Query>, columns: &[&Column]) -> Result<Box<Query>, QueryError> {
    if columns.is_empty() {
        return Ok(query);
    }
    let text = Text::read("SELECT * FROM (SELECT 1) AS source", &Parameters::default())?;
    let mut outer = tables::parse(&text)?;
    if let SetExpr::Select(select) = outer.body.as_mut() {
        for column in columns {
            select.projection.push(SelectItem::UnnamedExpr(default(column)?));
        }
        if let Some(from) = select.from.first_mut()
            && let TableFactor::Derived { subquery, .. } = &mut from.relation
        {
            *subquery = query;
        }
    }
    Ok(outer)
}

fn default(column: &Column) -> Result<Expr, QueryError> {
    let Some(sql) = &column.default_value_expression else {
        return Ok(Expr::value(Value::Null));
    };
    let text = Text::read(sql, &Parameters::default())?;
    text.parser().parse_expr().map_err(syntax)
}

/// A query's rows as those of a table: its columns go into these, by position, in the table's canonical types.
/// Those from `literals_from` on may become what a literal may.
///
/// # Errors
/// Types or values that do not fit, with BigQuery's text.
pub(super) fn convert(
    output: &QueryOutput,
    columns: &[Column],
    schema: &Schema,
    switches: &Switches,
    literals_from: usize,
) -> Result<RecordBatch, QueryError> {
    if output.schema.columns.len() != columns.len() {
        let (has, expected) = (output.schema.columns.len(), columns.len());
        return Err(QueryError::Invalid(format!(
            "Inserted row has wrong column count; Has {has}, expected {expected}"
        )));
    }
    let pairs = output.schema.columns.iter().zip(columns);
    let mut arrays = Vec::with_capacity(columns.len());
    for (i, ((from, to), array)) in pairs.zip(output.rows.columns()).enumerate() {
        let literals = i >= literals_from;
        let array = assign(array, from, to, literals).ok_or_else(|| {
            let (has, name, wants) = (from.sql_type(), &to.name, to.sql_type());
            let value = match literals {
                true => "Value".to_owned(),
                false => format!("Query column {}", i + 1),
            };
            QueryError::Invalid(format!(
                "{value} has type {has} which cannot be inserted into column {name}, which has type {wants}"
            ))
        })??;
        if to.mode == Mode::Required && array.null_count() > 0 {
            return Err(required(to));
        }
        arrays.push(array);
    }
    let given = |column: &Column| columns.iter().any(|other| other.name == column.name);
    let absent = schema
        .columns
        .iter()
        .find(|column| column.mode == Mode::Required && !given(column));
    if let Some(column) = absent.filter(|_| output.rows.num_rows() > 0) {
        return Err(required(column));
    }
    let partial = Schema {
        columns: columns.to_vec(),
    };
    let options = RecordBatchOptions::new().with_row_count(Some(output.rows.num_rows()));
    let batch = RecordBatch::try_new_with_options(partial.arrow(), arrays, &options).map_err(internal)?;
    rows::check(&batch, columns, switches).map_err(QueryError::Invalid)?;
    conform(&batch, schema).map_err(internal)
}

fn required(column: &Column) -> QueryError {
    QueryError::Invalid(format!("Required field {} cannot be null", column.name))
}

/// `None`: a value of the one type is not one of the other.
fn assign(
    array: &ArrayRef,
    from: &Column,
    to: &Column,
    literals: bool,
) -> Option<Result<ArrayRef, QueryError>> {
    // A bare NULL has no type, and an empty ARRAY none for its elements.
    let empty = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values().is_empty(),
        _ => array.null_count() == array.len(),
    };
    if empty && (from.mode == to.mode || from.mode != Mode::Repeated) {
        return Some(nothing(array, to));
    }
    match (from.mode, to.mode) {
        (Mode::Repeated, Mode::Repeated) => {
            let list = array.as_list::<i32>();
            let values = match assign_kind(list.values(), &from.kind, &to.kind, literals)? {
                Ok(values) => values,
                Err(error) => return Some(Err(error)),
            };
            let item = Column::new("item", to.kind.clone(), Mode::Required).arrow();
            let list = ListArray::try_new(
                Arc::new(item),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            );
            Some(list.map(|list| Arc::new(list) as ArrayRef).map_err(invalid))
        }
        (Mode::Repeated, _) | (_, Mode::Repeated) => None,
        _ => assign_kind(array, &from.kind, &to.kind, literals),
    }
}

/// As many NULLs, or empty ARRAYs.
fn nothing(array: &ArrayRef, to: &Column) -> Result<ArrayRef, QueryError> {
    let schema = Schema {
        columns: vec![Column {
            mode: if to.mode == Mode::Required {
                Mode::Nullable
            } else {
                to.mode
            },
            ..to.clone()
        }],
    };
    let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
    let none = arrow_schema::Schema::empty();
    let rows = RecordBatch::try_new_with_options(Arc::new(none), Vec::new(), &options);
    let rows = rows.and_then(|rows| conform(&rows, &schema)).map_err(internal)?;
    Ok(Arc::clone(rows.column(0)))
}

fn assign_kind(
    array: &ArrayRef,
    from: &Kind,
    to: &Kind,
    literals: bool,
) -> Option<Result<ArrayRef, QueryError>> {
    if let (Kind::Struct(before), Kind::Struct(after)) = (from, to) {
        if before.len() != after.len() {
            return None;
        }
        let array = array.as_struct();
        let mut fields = Vec::with_capacity(after.len());
        for ((field, from), to) in array.columns().iter().zip(before).zip(after) {
            match assign(field, from, to, literals)? {
                Ok(field) => fields.push(field),
                Err(error) => return Some(Err(error)),
            }
        }
        let names: Fields = after.iter().map(Column::arrow).collect();
        let array = StructArray::try_new(names, fields, array.nulls().cloned());
        return Some(array.map(|array| Arc::new(array) as ArrayRef).map_err(invalid));
    }
    if !becomes(from, to, literals) {
        return None;
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    Some(cast_with_options(array, &to.arrow(), &options).map_err(invalid))
}

/// BigQuery's coercions: without loss always, and of literals some more. JSON and GEOGRAPHY are text to the engine.
fn becomes(from: &Kind, to: &Kind, literals: bool) -> bool {
    if from.sql_name() == to.sql_name() {
        return true;
    }
    match (from, to) {
        (Kind::Int64, Kind::Float64 | Kind::Numeric { .. } | Kind::BigNumeric { .. })
        | (Kind::Numeric { .. }, Kind::BigNumeric { .. } | Kind::Float64)
        | (Kind::BigNumeric { .. }, Kind::Float64)
        | (Kind::Date, Kind::Datetime | Kind::Timestamp)
        | (Kind::String { .. }, Kind::Json | Kind::Geography) => true,
        (Kind::String { .. }, Kind::Date | Kind::Time | Kind::Datetime | Kind::Timestamp)
        | (Kind::Float64, Kind::Numeric { .. } | Kind::BigNumeric { .. }) => literals,
        _ => false,
    }
}

fn invalid(error: impl std::fmt::Display) -> QueryError {
    QueryError::Invalid(error.to_string())
}
