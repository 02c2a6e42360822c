//! Fits an expression to its column: types must match or coerce (D:conversion_rules), values must conform to the
//! parameters.

use arrow_buffer::i256;

use super::parse::Expression;
use super::{Function, SESSION_USER, Value};
use crate::rows::{Bad, Checks};
use crate::schema::{Column, Kind, Mode};
use crate::values::cell::Cell;
use crate::values::{civil, literal, picoseconds};

/// The expression as a value of the column.
///
/// # Errors
/// Says why it is none.
pub(super) fn typed(expression: &Expression, column: &Column) -> Result<Value, String> {
    match (expression, column.mode) {
        (Expression::Null, Mode::Nullable) => Ok(Value::Constant(Cell::Null)),
        (Expression::Null, Mode::Required) => Err("NULL where a value is REQUIRED".to_owned()),
        (Expression::Null, Mode::Repeated) => Err("NULL where an ARRAY is needed".to_owned()),
        (Expression::Array(element, items), Mode::Repeated) => {
            if element
                .as_ref()
                .is_some_and(|named| !same_type(named, &element_of(column)))
            {
                return Err(mismatch(expression, column));
            }
            let inner = Column::new(&column.name, column.kind.clone(), Mode::Required);
            let items = items.iter().map(|item| match item {
                Expression::Null => Err("an ARRAY cannot contain NULL".to_owned()),
                item => typed(item, &inner),
            });
            Ok(constant(
                items.collect::<Result<_, _>>()?,
                Cell::List,
                Value::List,
            ))
        }
        (_, Mode::Repeated) | (Expression::Array(..), _) => Err(mismatch(expression, column)),
        (Expression::Struct(types, fields), _) => {
            let Kind::Struct(columns) = &column.kind else {
                return Err(mismatch(expression, column));
            };
            let named = types.as_ref().is_none_or(|types| same_types(types, columns));
            if fields.len() != columns.len() || !named {
                return Err(mismatch(expression, column));
            }
            let fields = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| typed(field, column));
            Ok(constant(
                fields.collect::<Result<_, _>>()?,
                Cell::Struct,
                Value::Struct,
            ))
        }
        (Expression::Literal(kind, cell), _) => match coerced(kind, cell, &column.kind)? {
            Some(cell) => Ok(Value::Constant(cell)),
            None => Err(mismatch(expression, column)),
        },
        (Expression::Call(function), _) => {
            call(*function, column).ok_or_else(|| mismatch(expression, column))?
        }
    }
}

/// A list of constants is a constant.
fn constant(values: Vec<Value>, cell: fn(Vec<Cell>) -> Cell, other: fn(Vec<Value>) -> Value) -> Value {
    let cells: Option<Vec<Cell>> = values
        .iter()
        .map(|value| match value {
            Value::Constant(cell) => Some(cell.clone()),
            _ => None,
        })
        .collect();
    cells.map_or_else(|| other(values), |cells| Value::Constant(cell(cells)))
}

/// A function's result as the column's value; `None` if its type does not coerce.
fn call(function: Function, column: &Column) -> Option<Result<Value, String>> {
    let fits = match (function.kind(), &column.kind) {
        (Kind::String { .. }, Kind::String { max_length }) => {
            let example = match function {
                Function::SessionUser => SESSION_USER,
                _ => "00000000-0000-4000-8000-000000000000",
            };
            if let Err(bad) = Checks::ALL.string(*max_length, example) {
                return Some(Err(said(&bad)));
            }
            true
        }
        (Kind::Date, Kind::Datetime) | (Kind::Timestamp, Kind::TimestampPicoseconds) => true,
        (from, to) => from == *to,
    };
    fits.then(|| Ok(Value::Call(function, column.kind.clone())))
}

/// A literal as a value of another type; `Ok(None)` if it does not coerce to it.
fn coerced(from: &Kind, cell: &Cell, to: &Kind) -> Result<Option<Cell>, String> {
    let out_of_range = || format!("the value is out of the range of {}", type_of(to));
    Ok(Some(match (cell, to) {
        (Cell::Int(value), Kind::Float64) => Cell::Float(*value as f64),
        (Cell::Int(_) | Cell::Float(_) | Cell::Decimal(_), Kind::Numeric { precision, scale })
            if *from != Kind::TimestampPicoseconds =>
        {
            let value = decimal_of(cell, 9).and_then(i256::to_i128);
            let value = Checks::ALL.numeric(*precision, *scale).take(value);
            Cell::Decimal(value.map_err(|_| out_of_range())?)
        }
        (
            Cell::Int(_) | Cell::Float(_) | Cell::Decimal(_) | Cell::BigDecimal(_),
            Kind::BigNumeric { precision, scale },
        ) if *from != Kind::TimestampPicoseconds => {
            let value = Checks::ALL
                .big_numeric(*precision, *scale)
                .take(decimal_of(cell, 38));
            Cell::BigDecimal(value.map_err(|_| out_of_range())?)
        }
        (Cell::Decimal(value), Kind::Float64) if *from != Kind::TimestampPicoseconds => {
            Cell::Float(float_of(value, 9).ok_or_else(out_of_range)?)
        }
        (Cell::BigDecimal(value), Kind::Float64) => {
            Cell::Float(float_of(value, 38).ok_or_else(out_of_range)?)
        }
        (Cell::Text(text), Kind::String { max_length }) if matches!(from, Kind::String { .. }) => {
            Checks::ALL.string(*max_length, text).map_err(|bad| said(&bad))?;
            cell.clone()
        }
        (Cell::Bytes(bytes), Kind::Bytes { max_length }) => {
            Checks::ALL.bytes(*max_length, bytes).map_err(|bad| said(&bad))?;
            cell.clone()
        }
        (
            Cell::Text(text),
            Kind::Date | Kind::Time | Kind::Datetime | Kind::Timestamp | Kind::TimestampPicoseconds,
        ) if matches!(from, Kind::String { .. }) => {
            time_of(text, to).ok_or_else(|| format!("the string is no {}", to.sql_name()))?
        }
        (Cell::Days(days), Kind::Datetime) => Cell::Micros(i64::from(*days) * 86_400_000_000),
        (Cell::Micros(micros), Kind::TimestampPicoseconds) if *from == Kind::Timestamp => {
            Cell::Decimal(i128::from(*micros) * picoseconds::MICROSECOND)
        }
        _ if from == to => cell.clone(),
        _ => return Ok(None),
    }))
}

fn decimal_of(cell: &Cell, scale: i32) -> Option<i256> {
    let text = match cell {
        Cell::Int(value) => value.to_string(),
        Cell::Float(value) => value.to_string(),
        Cell::Decimal(value) => format!("{value}e-9"),
        Cell::BigDecimal(value) => format!("{value}e-38"),
        _ => return None,
    };
    literal::decimal(&text, scale).flatten()
}

fn float_of(unscaled: &impl std::fmt::Display, scale: u8) -> Option<f64> {
    format!("{unscaled}e-{scale}").parse().ok()
}

fn time_of(text: &str, kind: &Kind) -> Option<Cell> {
    let micros = |at: civil::Reading| at.exact_micros().map(Cell::Micros);
    match kind {
        Kind::Date => civil::date(text).map(Cell::Days),
        Kind::Time => civil::time(text).and_then(micros),
        Kind::Datetime => civil::datetime(text).and_then(micros),
        Kind::Timestamp => civil::timestamp(text).and_then(micros),
        _ => civil::timestamp(text).map(|at| Cell::Decimal(at.picoseconds())),
    }
}

fn said(bad: &Bad) -> String {
    bad.text().to_owned()
}

fn same_types(named: &[Column], columns: &[Column]) -> bool {
    named.len() == columns.len()
        && named
            .iter()
            .zip(columns)
            .all(|(named, column)| same_type(named, column))
}

/// Names, modes other than REPEATED and parameters are not compared.
fn same_type(named: &Column, column: &Column) -> bool {
    let lists = (named.mode == Mode::Repeated) == (column.mode == Mode::Repeated);
    lists
        && match (&named.kind, &column.kind) {
            (Kind::Struct(named), Kind::Struct(columns)) => same_types(named, columns),
            (Kind::Range(named), Kind::Range(element)) => named == element,
            (named, kind) => std::mem::discriminant(named) == std::mem::discriminant(kind),
        }
}

fn element_of(column: &Column) -> Column {
    Column::new("", column.kind.clone(), Mode::Nullable)
}

fn mismatch(expression: &Expression, column: &Column) -> String {
    format!(
        "it has type {}, the column has type {}",
        written(expression),
        declared(column)
    )
}

/// The type of an expression, as far as it says.
fn written(expression: &Expression) -> String {
    let list = |items: &[Expression]| items.iter().map(written).collect::<Vec<_>>().join(", ");
    match expression {
        Expression::Null => "NULL".to_owned(),
        Expression::Literal(kind, _) => type_of(kind),
        Expression::Array(Some(element), _) => format!("ARRAY<{}>", declared(element)),
        Expression::Array(None, items) => {
            format!(
                "ARRAY<{}>",
                items.first().map_or_else(|| "INT64".to_owned(), written)
            )
        }
        Expression::Struct(Some(types), _) => type_of(&Kind::Struct(types.clone())),
        Expression::Struct(None, fields) => format!("STRUCT<{}>", list(fields)),
        Expression::Call(function) => type_of(&function.kind()),
    }
}

fn declared(column: &Column) -> String {
    let name = type_of(&column.kind);
    if column.mode == Mode::Repeated {
        format!("ARRAY<{name}>")
    } else {
        name
    }
}

fn type_of(kind: &Kind) -> String {
    let parameters = |name: &str, precision: Option<u8>, scale: Option<u8>| match (precision, scale) {
        (Some(precision), Some(scale)) => format!("{name}({precision}, {scale})"),
        (Some(precision), None) => format!("{name}({precision})"),
        _ => name.to_owned(),
    };
    match kind {
        Kind::Numeric { precision, scale } => parameters("NUMERIC", *precision, *scale),
        Kind::BigNumeric { precision, scale } => parameters("BIGNUMERIC", *precision, *scale),
        Kind::TimestampPicoseconds => "TIMESTAMP(12)".to_owned(),
        Kind::Range(element) => format!("RANGE<{}>", Kind::from(*element).sql_name()),
        Kind::Struct(columns) => {
            let fields = columns.iter().map(|column| match column.name.as_str() {
                "" => declared(column),
                name => format!("{name} {}", declared(column)),
            });
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.sql_name().to_owned(),
    }
}
