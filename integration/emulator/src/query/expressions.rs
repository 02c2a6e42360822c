//! Types, literals and operators of BigQuery's dialect, in DataFusion's words.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function,
    FunctionArgumentClause, FunctionArguments, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, Subscript,
    TimezoneInfo, UnaryOperator, Value, VisitMut, VisitorMut, WindowType,
};

use crate::catalog::Millis;
use crate::query::QueryError;
use crate::query::functions::{self, call, plain_args};

/// Rewrites what DataFusion spells differently. What is not known here goes on as it is. Functions of the time see
/// `now`.
///
/// # Errors
/// `Invalid`: what DataFusion would leave out without a word.
pub(super) fn translate(query: &mut Query, now: Millis) -> Result<(), QueryError> {
    match query.visit(&mut Translator { now }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(what) => {
            let text = format!("{what} is not supported by this emulator");
            Err(QueryError::Invalid(text))
        }
    }
}

struct Translator {
    now: Millis,
}

impl VisitorMut for Translator {
    /// What is not supported.
    type Break = String;

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
        let mut bodies = vec![query.body.as_ref()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    if let Some(mode) = select.value_table_mode {
                        return ControlFlow::Break(format!("SELECT {mode}"));
                    }
                }
                SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_ref(), right.as_ref()]),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::TypedString {
                data_type: DataType::JSON,
                value,
            } => *expr = call("parse_json", vec![Expr::value(value.clone())]),
            Expr::Cast {
                data_type: data_type @ (DataType::String(Some(_)) | DataType::Bytes(Some(_))),
                ..
            } => return ControlFlow::Break(format!("CAST AS {data_type}")),
            Expr::Cast {
                kind,
                expr: value,
                data_type: DataType::String(None),
                format: None,
            } => {
                let function = match kind {
                    CastKind::Cast | CastKind::DoubleColon => "text_of",
                    CastKind::SafeCast | CastKind::TryCast => "safe_text_of",
                };
                *expr = call(function, vec![(**value).clone()]);
            }
            Expr::Cast {
                expr: value,
                data_type,
                ..
            } if is_integer(data_type) => {
                **value = call("rounded", vec![(**value).clone()]);
                *data_type = DataType::BigInt(None);
            }
            Expr::Cast { data_type, .. } | Expr::TypedString { data_type, .. } => translate_type(data_type),
            Expr::Extract {
                field, expr: value, ..
            } => {
                *expr = functions::extract(&field.to_string().to_ascii_uppercase(), value);
            }
            Expr::Substring {
                expr: value,
                substring_from: Some(from),
                substring_for,
                ..
            } => {
                let length = substring_for.iter().map(|length| (**length).clone());
                let args = [(**value).clone(), (**from).clone()];
                *expr = call("substr", args.into_iter().chain(length).collect());
            }
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

fn is_integer(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int64
            | DataType::Int(None)
            | DataType::Integer(None)
            | DataType::BigInt(None)
            | DataType::SmallInt(None)
            | DataType::TinyInt(None)
    )
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
            ("CAST(a AS INT64)", "CAST(rounded(a) AS BIGINT)"),
            ("SAFE_CAST(a AS FLOAT64)", "SAFE_CAST(a AS DOUBLE PRECISION)"),
            ("CAST(a AS STRING)", "text_of(a)"),
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
            (
                "TIMESTAMP_TRUNC(a, DAY)",
                "trunc_to('DAY', CAST(a AS TIMESTAMP(6) WITH TIME ZONE))",
            ),
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
            translate(&mut query, 0).unwrap();
            assert_eq!(query.to_string(), format!("SELECT {want}"), "{sql}");
        }
    }
}
