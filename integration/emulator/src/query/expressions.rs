//! Types, literals and operators of BigQuery's dialect, in DataFusion's words.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr, Function,
    FunctionArgumentClause, FunctionArguments, OrderBy, OrderByExpr, OrderByKind, Query, Subscript,
    TimezoneInfo, UnaryOperator, Value, VisitMut, VisitorMut, WindowType,
};

use crate::catalog::Millis;
use crate::query::functions::{self, call, plain_args};

/// Rewrites what DataFusion spells differently. What is not known here goes on as it is. Functions of the time see
/// `now`.
pub(super) fn translate(query: &mut Query, now: Millis) {
    if let ControlFlow::Break(never) = query.visit(&mut Translator { now }) {
        match never {}
    }
}

struct Translator {
    now: Millis,
}

impl VisitorMut for Translator {
    type Break = std::convert::Infallible;

    fn pre_visit_value(&mut self, value: &mut Value) -> ControlFlow<Self::Break> {
        let taken = std::mem::replace(value, Value::Null);
        *value = match taken {
            Value::DoubleQuotedString(text)
            | Value::TripleSingleQuotedString(text)
            | Value::TripleDoubleQuotedString(text)
            | Value::SingleQuotedRawStringLiteral(text)
            | Value::DoubleQuotedRawStringLiteral(text)
            | Value::TripleSingleQuotedRawStringLiteral(text)
            | Value::TripleDoubleQuotedRawStringLiteral(text) => Value::SingleQuotedString(text),
            Value::SingleQuotedByteStringLiteral(text)
            | Value::DoubleQuotedByteStringLiteral(text)
            | Value::TripleSingleQuotedByteStringLiteral(text)
            | Value::TripleDoubleQuotedByteStringLiteral(text) => Value::HexStringLiteral(hex(&text)),
            other => other,
        };
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Some(OrderBy {
            kind: OrderByKind::Expressions(keys),
            ..
        }) = &mut query.order_by
        {
            order_nulls(keys);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::TypedString {
                data_type: DataType::JSON,
                value,
            } => *expr = call("parse_json", vec![Expr::value(value.clone())]),
            Expr::Cast { data_type, .. } | Expr::TypedString { data_type, .. } => translate_type(data_type),
            Expr::InUnnest {
                expr: value,
                array_expr,
                negated,
            } => *expr = in_unnest(value, array_expr, *negated),
            // DataFusion divides integers without a fraction.
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Divide,
                right,
            } => *expr = call("divide", vec![(**left).clone(), (**right).clone()]),
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter_mut().for_each(subscript),
            Expr::Function(function) => {
                order_nulls_within(function);
                if let Some(other) = functions::translate(function, self.now) {
                    *expr = other;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `a[OFFSET(n)]`, `a[SAFE_OFFSET(n)]` and `a[n]` count from 0, `a[ORDINAL(n)]` and DataFusion's `a[n]` from 1. Beyond the end
/// there is NULL here.
fn subscript(access: &mut AccessExpr) {
    let AccessExpr::Subscript(Subscript::Index { index }) = access else {
        return;
    };
    let from_zero = |index: &Expr| Expr::BinaryOp {
        left: Box::new(index.clone()),
        op: BinaryOperator::Plus,
        right: Box::new(Expr::value(Value::Number("1".to_owned(), false))),
    };
    if let Expr::Function(function) = &*index
        && let Some([position]) = plain_args(function).as_deref()
    {
        match function.name.to_string().to_ascii_lowercase().as_str() {
            "offset" | "safe_offset" => *index = from_zero(position),
            "ordinal" | "safe_ordinal" => *index = position.clone(),
            _ => {}
        }
    } else if matches!(index, Expr::Value(value) if matches!(value.value, Value::Number(..))) {
        *index = from_zero(index);
    }
}

/// `a IN UNNEST(b)` is `array_has(b, a)`.
fn in_unnest(value: &Expr, array: &Expr, negated: bool) -> Expr {
    let has = call("array_has", vec![array.clone(), value.clone()]);
    if negated {
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(has),
        }
    } else {
        has
    }
}

/// BigQuery takes NULL for the smallest value, DataFusion for the largest.
fn order_nulls(keys: &mut [OrderByExpr]) {
    for key in keys {
        let ascending = key.options.asc.unwrap_or(true);
        key.options.nulls_first.get_or_insert(ascending);
    }
}

fn order_nulls_within(function: &mut Function) {
    if let Some(WindowType::WindowSpec(window)) = &mut function.over {
        order_nulls(&mut window.order_by);
    }
    if let FunctionArguments::List(list) = &mut function.args {
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(keys) = clause {
                order_nulls(keys);
            }
        }
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn translate_type(data_type: &mut DataType) {
    let taken = std::mem::replace(data_type, DataType::Unspecified);
    *data_type = match taken {
        DataType::Int64 => DataType::BigInt(None),
        DataType::Float64 => DataType::DoublePrecision,
        DataType::Bytes(_) => DataType::Bytea,
        DataType::JSON => DataType::Text,
        DataType::String(_) => DataType::Text,
        DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 9))
        }
        DataType::BigNumeric(ExactNumberInfo::None) | DataType::BigDecimal(ExactNumberInfo::None) => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(76, 38))
        }
        DataType::BigNumeric(info) | DataType::BigDecimal(info) => DataType::Decimal(info),
        DataType::Datetime(_) => DataType::Timestamp(Some(6), TimezoneInfo::None),
        DataType::Timestamp(..) => timestamp(),
        DataType::Array(ArrayElemTypeDef::AngleBracket(mut element)) => {
            translate_type(&mut element);
            DataType::Array(ArrayElemTypeDef::AngleBracket(element))
        }
        DataType::Struct(mut fields, bracket) => {
            for field in &mut fields {
                translate_type(&mut field.field_type);
            }
            DataType::Struct(fields, bracket)
        }
        other => other,
    };
}

/// BigQuery's TIMESTAMP: a point in time, in microseconds.
pub(super) fn timestamp() -> DataType {
    DataType::Timestamp(Some(6), TimezoneInfo::WithTimeZone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::tables;

    #[test]
    fn bigquerys_words_become_datafusions() {
        for (sql, want) in [
            ("CAST(a AS INT64)", "CAST(a AS BIGINT)"),
            ("SAFE_CAST(a AS FLOAT64)", "SAFE_CAST(a AS DOUBLE PRECISION)"),
            ("CAST(a AS STRING)", "CAST(a AS TEXT)"),
            ("CAST(a AS BYTES)", "CAST(a AS BYTEA)"),
            ("CAST(a AS NUMERIC)", "CAST(a AS DECIMAL(38,9))"),
            ("CAST(a AS NUMERIC(5, 2))", "CAST(a AS NUMERIC(5,2))"),
            ("CAST(a AS BIGNUMERIC)", "CAST(a AS DECIMAL(76,38))"),
            ("CAST(a AS DATETIME)", "CAST(a AS TIMESTAMP(6))"),
            ("CAST(a AS TIMESTAMP)", "CAST(a AS TIMESTAMP(6) WITH TIME ZONE)"),
            (
                "TIMESTAMP '2024-01-01'",
                "TIMESTAMP(6) WITH TIME ZONE '2024-01-01'",
            ),
            ("CAST(a AS ARRAY<INT64>)", "CAST(a AS ARRAY<BIGINT>)"),
            ("\"text\"", "'text'"),
            ("r'a\\d'", "'a\\d'"),
            ("b'ab'", "X'6162'"),
            ("COUNTIF(a > 1)", "count(*) FILTER (WHERE a > 1)"),
            (
                "IF(a, b, IF(c, d, e))",
                "CASE WHEN a THEN b ELSE CASE WHEN c THEN d ELSE e END END",
            ),
            ("ANY_VALUE(a)", "first_value(a)"),
            ("TIMESTAMP_TRUNC(a, DAY)", "date_trunc('day', a)"),
            (
                "UNIX_MICROS(a)",
                "CAST(CAST(a AS TIMESTAMP(6) WITH TIME ZONE) AS BIGINT)",
            ),
            ("DATE(a)", "CAST(a AS DATE)"),
            ("TIMESTAMP(a)", "CAST(a AS TIMESTAMP(6) WITH TIME ZONE)"),
            ("LOWER(a)", "LOWER(a)"),
            ("a IN UNNEST([1, 2])", "array_has([1, 2], a)"),
            ("a NOT IN UNNEST([1, 2])", "NOT array_has([1, 2], a)"),
            (
                "ARRAY_AGG(a ORDER BY b DESC)",
                "ARRAY_AGG(a ORDER BY b DESC NULLS LAST)",
            ),
            (
                "a FROM UNNEST([1]) AS a ORDER BY a",
                "a FROM UNNEST([1]) AS a ORDER BY a NULLS FIRST",
            ),
        ] {
            let mut query = tables::parse_sql(&format!("SELECT {sql}")).unwrap();
            translate(&mut query, 0);
            assert_eq!(query.to_string(), format!("SELECT {want}"), "{sql}");
        }
    }
}
