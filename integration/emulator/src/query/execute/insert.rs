//! `INSERT`, and how a query's columns become those of a table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Fields};
use arrow_select::zip::zip;
use datafusion::sql::sqlparser::ast::{
    DataType as DataTypeName, ExactNumberInfo, Expr, Query, SetExpr, Value, Values,
};

use super::refused;
use super::tables::check_kind;
use crate::catalog::TableRef;
use crate::defaults::{DefaultValue, Moment};
use crate::machine::{Machine, Switches};
use crate::query::casts::round_decimals;
use crate::query::ddl::{Insert, Source, options};
use crate::query::parameters::Parameters;
use crate::query::text::Text;
use crate::query::{Answer, Dml, QueryError, QueryOutput, Scope, internal, tables};
use crate::rows;
use crate::schema::{Column, Kind, Mode, Schema, conform};

pub(super) async fn insert(scope: &Scope, insert: Insert) -> Result<Answer, QueryError> {
    let name = scope.table(&insert.name)?;
    let schema = scope.shared.with(|machine| target(machine, &name))?;
    let mut columns = chosen(&name, &schema, insert.columns.as_deref())?;
    let literals = matches!(insert.source, Source::Values(_));
    let (query, defaulted) = source(insert.source, &columns)?;
    let output = scope.select(query).await?;
    let mut arrays = assign_all(&output, &columns, literals)?;
    let rows = output.rows.num_rows();
    let now = scope.shared.now();
    scope.draw.with(|random| {
        let moment = &mut Moment { now_ms: now, random };
        fill(&mut arrays, &columns, &defaulted, moment)?;
        add_defaults(&mut arrays, &mut columns, &schema, rows, moment)
    })?;
    let rows = complete(arrays, &columns, rows, &schema, &scope.switches())?;
    let inserted = rows.num_rows() as u64;
    if !scope.dry_run && inserted > 0 {
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

/// Where a row says `DEFAULT`: the column, and for each row whether it does.
type Defaulted = Vec<(usize, BooleanArray)>;

/// The source as a query, with NULL for `DEFAULT`.
fn source(source: Source, columns: &[Column]) -> Result<(Box<Query>, Defaulted), QueryError> {
    let rows = match source {
        Source::Query(query) => return Ok((query, Vec::new())),
        Source::Values(rows) => rows,
    };
    let expected = columns.len();
    if let Some(row) = rows.iter().find(|row| row.len() != expected) {
        let has = row.len();
        return Err(QueryError::Invalid(format!(
            "Inserted row has wrong column count; Has {has}, expected {expected}"
        )));
    }
    let in_column = |at: usize| -> BooleanArray { rows.iter().map(|row| Some(row[at].is_none())).collect() };
    let defaulted = (0..expected).map(|at| (at, in_column(at)));
    let defaulted = defaulted.filter(|(_, rows)| rows.true_count() > 0).collect();
    let value = |(value, column): (Option<Expr>, &Column)| match value {
        Some(value) => exact(value, &column.kind),
        None => Expr::value(Value::Null),
    };
    let row = |row: Vec<Option<Expr>>| row.into_iter().zip(columns).map(value).collect();
    let mut query = tables::parse(&Text::read("SELECT 1", &Parameters::default())?)?;
    *query.body = SetExpr::Values(Values {
        explicit_row: false,
        rows: rows.into_iter().map(row).collect(),
    });
    Ok((query, defaulted))
}

/// A number goes into NUMERIC and BIGNUMERIC as it is written, and not by way of FLOAT64.
fn exact(value: Expr, kind: &Kind) -> Expr {
    let data_type = match kind {
        Kind::Numeric { .. } => DataTypeName::Numeric(ExactNumberInfo::None),
        Kind::BigNumeric { .. } => DataTypeName::BigNumeric(ExactNumberInfo::None),
        _ => return value,
    };
    let digits = options::digits(&value);
    match digits.filter(|digits| digits.contains('.') && !digits.contains(['e', 'E'])) {
        Some(digits) => Expr::TypedString {
            data_type,
            value: Value::SingleQuotedString(digits),
        },
        None => value,
    }
}

/// Puts default values where rows say `DEFAULT`.
fn fill(
    arrays: &mut [ArrayRef],
    columns: &[Column],
    defaulted: &Defaulted,
    moment: &mut Moment<'_>,
) -> Result<(), QueryError> {
    for (at, rows) in defaulted {
        if let Some(values) = defaults(&columns[*at], rows.len(), moment)? {
            arrays[*at] = zip(rows, &values, &arrays[*at]).map_err(internal)?;
        }
    }
    Ok(())
}

/// Adds the columns that the statement does not give and that have a default value.
fn add_defaults(
    arrays: &mut Vec<ArrayRef>,
    columns: &mut Vec<Column>,
    schema: &Schema,
    rows: usize,
    moment: &mut Moment<'_>,
) -> Result<(), QueryError> {
    for column in &schema.columns {
        if columns.iter().any(|other| other.name == column.name) {
            continue;
        }
        if let Some(values) = defaults(column, rows, moment)? {
            arrays.push(values);
            columns.push(column.clone());
        }
    }
    Ok(())
}

fn defaults(column: &Column, rows: usize, moment: &mut Moment<'_>) -> Result<Option<ArrayRef>, QueryError> {
    let default = DefaultValue::of(column).map_err(invalid)?;
    let values = default.map(|default| default.evaluate(rows, moment));
    values.transpose().map_err(internal)
}

/// A query's rows as those of a table: its columns go into these, by position, in the table's canonical types.
///
/// # Errors
/// Types or values that do not fit, with BigQuery's text.
pub(super) fn convert(
    output: &QueryOutput,
    schema: &Schema,
    switches: &Switches,
) -> Result<RecordBatch, QueryError> {
    let arrays = assign_all(output, &schema.columns, false)?;
    complete(arrays, &schema.columns, output.rows.num_rows(), schema, switches)
}

/// Each column in the type of that into which it goes; literals may become more than others.
fn assign_all(output: &QueryOutput, columns: &[Column], literals: bool) -> Result<Vec<ArrayRef>, QueryError> {
    if output.schema.columns.len() != columns.len() {
        let (has, expected) = (output.schema.columns.len(), columns.len());
        return Err(QueryError::Invalid(format!(
            "Inserted row has wrong column count; Has {has}, expected {expected}"
        )));
    }
    let pairs = output.schema.columns.iter().zip(columns);
    let one = |(i, ((from, to), array)): (usize, ((&Column, &Column), &ArrayRef))| {
        assign(array, from, to, literals).unwrap_or_else(|| {
            let (has, name, wants) = (from.sql_type(), &to.name, to.sql_type());
            let value = match literals {
                true => "Value".to_owned(),
                false => format!("Query column {}", i + 1),
            };
            Err(QueryError::Invalid(format!(
                "{value} has type {has} which cannot be inserted into column {name}, which has type {wants}"
            )))
        })
    };
    pairs.zip(output.rows.columns()).enumerate().map(one).collect()
}

/// The rows of the table, with NULL in columns that are not given, after a look at every value.
fn complete(
    arrays: Vec<ArrayRef>,
    columns: &[Column],
    rows: usize,
    schema: &Schema,
    switches: &Switches,
) -> Result<RecordBatch, QueryError> {
    let is_null = |column: &Column| {
        let at = columns.iter().position(|other| other.name == column.name);
        at.is_none_or(|at| arrays[at].null_count() > 0)
    };
    let mut needed = schema
        .columns
        .iter()
        .filter(|column| column.mode == Mode::Required);
    if let Some(column) = needed.find(|column| rows > 0 && is_null(column)) {
        let name = &column.name;
        return Err(QueryError::Invalid(format!(
            "Required field {name} cannot be null"
        )));
    }
    let partial = Schema {
        columns: columns.to_vec(),
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(partial.arrow(), arrays, &options).map_err(internal)?;
    rows::check(&batch, columns, switches).map_err(QueryError::Invalid)?;
    conform(&batch, schema).map_err(internal)
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
    let cast = cast_with_options(array, &to.arrow(), &options).map_err(invalid);
    Some(cast.map(|array| match declared_scale(to) {
        Some(scale) => round_decimals(&array, scale),
        None => array,
    }))
}

/// Digits after the point of a NUMERIC or BIGNUMERIC with declared ones.
fn declared_scale(kind: &Kind) -> Option<i8> {
    match kind {
        Kind::Numeric { precision, scale } | Kind::BigNumeric { precision, scale } => {
            precision.and(i8::try_from(scale.unwrap_or(0)).ok())
        }
        _ => None,
    }
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
