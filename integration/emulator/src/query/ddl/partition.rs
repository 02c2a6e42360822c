//! `PARTITION BY` as the fields of REST's resource.

use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value as SqlValue, ValueWithSpan};
use serde_json::{Value, json};

use crate::query::QueryError;
use crate::query::functions::plain_args;
use crate::schema::{Kind, Schema};

/// How a table is partitioned.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::query) enum Partition {
    /// By the time of ingestion.
    Ingestion { unit: String },
    /// By a column whose type the expression implies.
    Column { unit: String, field: String, by: By },
    /// By ranges of a column.
    Range {
        field: String,
        start: i64,
        end: i64,
        interval: i64,
    },
}

/// The expression around a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::query) enum By {
    /// The column itself, or `DATE_TRUNC`.
    Date,
    /// `DATE`.
    DateOf,
    /// `TIMESTAMP_TRUNC`.
    Timestamp,
    /// `DATETIME_TRUNC`.
    Datetime,
}

const RULE: &str = "PARTITION BY expression must be _PARTITIONDATE, DATE(_PARTITIONTIME), DATE(<timestamp_column>), \
    DATE(<datetime_column>), DATETIME_TRUNC(<datetime_column>, DAY/HOUR/MONTH/YEAR), a DATE column, \
    TIMESTAMP_TRUNC(<timestamp_column>, DAY/HOUR/MONTH/YEAR), DATE_TRUNC(<date_column>, MONTH/YEAR), or \
    RANGE_BUCKET(<int64_column>, GENERATE_ARRAY(<int64_value>, <int64_value>[, <int64_value>]))";

impl Partition {
    /// Reads the expression of `PARTITION BY`.
    pub(super) fn read(expr: &Expr) -> Result<Self, QueryError> {
        Self::of(expr).ok_or_else(rule)
    }

    fn of(expr: &Expr) -> Option<Self> {
        let day = || "DAY".to_owned();
        if let Expr::Identifier(ident) = expr {
            return Some(if ident.value.eq_ignore_ascii_case("_PARTITIONDATE") {
                Self::Ingestion { unit: day() }
            } else {
                let (field, by) = (ident.value.clone(), By::Date);
                Self::Column {
                    unit: day(),
                    field,
                    by,
                }
            });
        }
        let (function, arguments) = call(expr)?;
        if function == "RANGE_BUCKET" {
            return range(&arguments);
        }
        let field = identifier(arguments.first()?)?;
        let unit = match arguments.get(1) {
            None => day(),
            Some(unit) => identifier(unit)?.to_ascii_uppercase(),
        };
        let by = match (function.as_str(), arguments.len()) {
            ("DATE", 1) => By::DateOf,
            ("DATE_TRUNC", 2) => By::Date,
            ("TIMESTAMP_TRUNC", 2) => By::Timestamp,
            ("DATETIME_TRUNC", 2) => By::Datetime,
            _ => return None,
        };
        let pseudo = match by {
            By::Date => "_PARTITIONDATE",
            _ => "_PARTITIONTIME",
        };
        if field.eq_ignore_ascii_case(pseudo) {
            return Some(Self::Ingestion { unit });
        }
        Some(Self::Column { unit, field, by })
    }

    /// Whether the expression fits the column's type; whether there is such a column is checked with all else.
    pub(in crate::query) fn check(&self, schema: &Schema) -> Result<(), QueryError> {
        let Self::Column { field, by, .. } = self else {
            return Ok(());
        };
        let fits = match schema.column(field).map(|column| &column.kind) {
            None => true,
            Some(Kind::Date) => *by == By::Date,
            Some(Kind::Timestamp) => matches!(by, By::DateOf | By::Timestamp),
            Some(Kind::Datetime) => matches!(by, By::DateOf | By::Datetime),
            Some(_) => false,
        };
        if fits { Ok(()) } else { Err(rule()) }
    }

    /// The field of REST's resource, and its value.
    pub(in crate::query) fn json(&self) -> (&'static str, Value) {
        match self {
            Self::Ingestion { unit } => ("timePartitioning", json!({ "type": unit })),
            Self::Column { unit, field, .. } => ("timePartitioning", json!({ "type": unit, "field": field })),
            Self::Range {
                field,
                start,
                end,
                interval,
            } => {
                let range = json!({
                    "start": start.to_string(),
                    "end": end.to_string(),
                    "interval": interval.to_string(),
                });
                ("rangePartitioning", json!({ "field": field, "range": range }))
            }
        }
    }
}

fn rule() -> QueryError {
    QueryError::Invalid(RULE.to_owned())
}

fn range(arguments: &[Expr]) -> Option<Partition> {
    let [field, array] = arguments else {
        return None;
    };
    let (function, bounds) = call(array)?;
    let bounds: Vec<i64> = bounds.iter().map(integer).collect::<Option<_>>()?;
    let (start, end, interval) = match bounds.as_slice() {
        [start, end] => (*start, *end, 1),
        [start, end, interval] => (*start, *end, *interval),
        _ => return None,
    };
    let field = identifier(field)?;
    (function == "GENERATE_ARRAY").then_some(Partition::Range {
        field,
        start,
        end,
        interval,
    })
}

/// A call of a function: its name in upper case, and its arguments.
fn call(expr: &Expr) -> Option<(String, Vec<Expr>)> {
    match expr {
        Expr::Function(function) => Some((
            function.name.to_string().to_ascii_uppercase(),
            plain_args(function)?,
        )),
        _ => None,
    }
}

fn identifier(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        _ => None,
    }
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: SqlValue::Number(digits, _),
            ..
        }) => digits.parse().ok(),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => integer(expr)?.checked_neg(),
        _ => None,
    }
}
