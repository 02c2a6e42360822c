//! Types, literals and functions of BigQuery's dialect, in DataFusion's words.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CaseWhen, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    OrderBy, OrderByExpr, OrderByKind, Query, TimezoneInfo, UnaryOperator, Value, VisitMut, VisitorMut,
    WindowType,
};

/// Rewrites what DataFusion spells differently. What is not known here goes on as it is.
pub(super) fn translate(query: &mut Query) {
    if let ControlFlow::Break(never) = query.visit(&mut Translator) {
        match never {}
    }
}

struct Translator;

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
            Expr::Cast { data_type, .. } | Expr::TypedString { data_type, .. } => translate_type(data_type),
            Expr::InUnnest {
                expr: value,
                array_expr,
                negated,
            } => *expr = in_unnest(value, array_expr, *negated),
            Expr::Function(function) => {
                order_nulls_within(function);
                if let Some(other) = translate_function(function) {
                    *expr = other;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
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
fn timestamp() -> DataType {
    DataType::Timestamp(Some(6), TimezoneInfo::WithTimeZone)
}

/// Renames a function, or says by which expression it is replaced.
fn translate_function(function: &mut Function) -> Option<Expr> {
    let name = match function.name.0.as_slice() {
        [only] => only.as_ident()?.value.to_lowercase(),
        _ => return None,
    };
    match name.as_str() {
        "any_value" => rename(function, "first_value"),
        "logical_and" => rename(function, "bool_and"),
        "logical_or" => rename(function, "bool_or"),
        "approx_count_distinct" => rename(function, "approx_distinct"),
        "timestamp_seconds" => rename(function, "to_timestamp_seconds"),
        "timestamp_millis" => rename(function, "to_timestamp_millis"),
        "timestamp_micros" => rename(function, "to_timestamp_micros"),
        "countif" => count_if(function),
        "if" => return if_expression(function),
        "unix_micros" => return unix_micros(function),
        "date" => return cast_only(function, DataType::Date),
        "datetime" => return cast_only(function, DataType::Timestamp(Some(6), TimezoneInfo::None)),
        "timestamp" => return cast_only(function, timestamp()),
        "datetime_trunc" | "date_trunc" | "timestamp_trunc" => trunc(function),
        _ => {}
    }
    None
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

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(FunctionArgExpr::Expr)
        .map(FunctionArg::Unnamed);
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn rename(function: &mut Function, name: &str) {
    function.name = ObjectName::from(vec![Ident::new(name)]);
}

/// `COUNTIF(x)` is `COUNT(*) FILTER (WHERE x)`.
fn count_if(function: &mut Function) {
    if let Some(args) = plain_args(function)
        && let [condition] = args.as_slice()
    {
        function.filter = Some(Box::new(condition.clone()));
        set_args(function, vec![FunctionArgExpr::Wildcard]);
        rename(function, "count");
    }
}

/// `IF(a, b, c)` is `CASE WHEN a THEN b ELSE c END`.
fn if_expression(function: &Function) -> Option<Expr> {
    let [condition, result, other] = plain_args(function)?.try_into().ok()?;
    Some(Expr::Case {
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(other)),
    })
}

fn unix_micros(function: &Function) -> Option<Expr> {
    Some(cast(cast_only(function, timestamp())?, DataType::BigInt(None)))
}

/// `DATE(x)` is `CAST(x AS DATE)`. With more arguments it is something else.
fn cast_only(function: &Function, data_type: DataType) -> Option<Expr> {
    let [value] = plain_args(function)?.try_into().ok()?;
    Some(cast(value, data_type))
}

/// `TIMESTAMP_TRUNC(x, DAY)` is `date_trunc('day', x)`.
fn trunc(function: &mut Function) {
    if let Some(args) = plain_args(function)
        && let [value, Expr::Identifier(part)] = args.as_slice()
    {
        let part = Expr::value(Value::SingleQuotedString(part.value.to_lowercase()));
        set_args(
            function,
            vec![FunctionArgExpr::Expr(part), FunctionArgExpr::Expr(value.clone())],
        );
        rename(function, "date_trunc");
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        format: None,
    }
}

/// The arguments, if they are expressions and nothing else.
pub(super) fn plain_args(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

fn set_args(function: &mut Function, args: Vec<FunctionArgExpr>) {
    if let FunctionArguments::List(list) = &mut function.args {
        list.args = args.into_iter().map(FunctionArg::Unnamed).collect();
    }
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
            translate(&mut query);
            assert_eq!(query.to_string(), format!("SELECT {want}"), "{sql}");
        }
    }
}
