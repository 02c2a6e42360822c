//! BigQuery's functions in DataFusion's words: under another name, as an expression, or as a function of our own.

use chrono::{DateTime, SecondsFormat};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, TimezoneInfo, UnaryOperator, Value,
};

use crate::catalog::Millis;
use crate::defaults::SESSION_USER;
use crate::query::ddl::options::literal;
use crate::query::expressions::timestamp;

/// Renames a function, or says by which expression it is replaced.
pub(super) fn translate(function: &mut Function, now: Millis) -> Option<Expr> {
    let name = match function.name.0.as_slice() {
        [only] => only.as_ident()?.value.to_lowercase(),
        _ => return None,
    };
    match name.as_str() {
        "any_value" => rename(function, "first_value"),
        "logical_and" => rename(function, "bool_and"),
        "logical_or" => rename(function, "bool_or"),
        "approx_count_distinct" => rename(function, "approx_distinct"),
        "string_agg" => separate(function),
        "countif" => count_if(function),
        "generate_array" => rename(function, "generate_series"),
        "regexp_contains" => rename(function, "regexp_like"),
        "split" => rename(function, "string_to_array"),
        "json_extract" => rename(function, "json_query"),
        "json_extract_scalar" => rename(function, "json_value"),
        "power" => rename(function, "pow"),
        "substring" => rename(function, "substr"),
        // BigQuery replaces all, DataFusion only with this flag.
        "regexp_replace" => match plain_args(function).as_deref() {
            Some([value, pattern, with]) => {
                let args = [value.clone(), pattern.clone(), with.clone(), text("g")];
                set_args(function, args.map(FunctionArgExpr::Expr).to_vec());
            }
            _ => return None,
        },
        _ => return replacement(&name, function, now),
    }
    None
}

fn replacement(name: &str, function: &Function, now: Millis) -> Option<Expr> {
    let arguments = match &function.args {
        FunctionArguments::None => Vec::new(),
        _ => plain_args(function)?,
    };
    match (name, arguments.as_slice()) {
        ("current_timestamp", []) => Some(cast(text(&instant(now)), timestamp())),
        ("current_datetime", []) => Some(cast(text(instant(now).trim_end_matches('Z')), datetime())),
        ("current_date", []) => Some(cast(text(instant(now).get(..10)?), DataType::Date)),
        ("current_time", []) => {
            let clock = instant(now).get(11..26)?.to_owned();
            Some(cast(text(&clock), DataType::Time(None, TimezoneInfo::None)))
        }
        ("date_trunc" | "datetime_trunc" | "timestamp_trunc", [value, part]) => {
            let part = text(&part_name(part)?);
            let value = match name {
                "datetime_trunc" => cast(value.clone(), datetime()),
                "timestamp_trunc" => cast(value.clone(), timestamp()),
                _ => value.clone(),
            };
            Some(call("trunc_to", vec![part, value]))
        }
        // DataFusion takes the base first, and 10 for it.
        ("log", [value]) => Some(call("ln", vec![value.clone()])),
        ("log", [value, base]) => Some(call("log", vec![base.clone(), value.clone()])),
        // DataFusion leaves NULLs out.
        ("concat" | "greatest" | "least", [_, ..]) => Some(null_if_any_is(name, arguments.clone())),
        ("session_user", []) => Some(text(SESSION_USER)),
        ("if", [condition, result, other]) => Some(case(condition, result.clone(), other.clone())),
        ("date", [value]) => Some(cast(value.clone(), DataType::Date)),
        ("datetime", [value]) => Some(cast(value.clone(), datetime())),
        ("timestamp", [value]) => Some(cast(value.clone(), timestamp())),
        ("timestamp_seconds", [value]) => Some(since_epoch("to_timestamp_seconds", value)),
        ("timestamp_millis", [value]) => Some(since_epoch("to_timestamp_millis", value)),
        ("timestamp_micros", [value]) => Some(since_epoch("to_timestamp_micros", value)),
        ("unix_micros", [value]) => Some(micros(value)),
        ("unix_millis", [value]) => Some(floor_divided(micros(value), 1_000)),
        ("unix_seconds", [value]) => Some(floor_divided(micros(value), 1_000_000)),
        ("unix_date", [value]) => Some(days(value)),
        ("timestamp_add" | "datetime_add" | "date_add", [value, interval @ Expr::Interval(_)]) => {
            Some(shifted(name, value, BinaryOperator::Plus, interval))
        }
        ("timestamp_sub" | "datetime_sub" | "date_sub", [value, interval @ Expr::Interval(_)]) => {
            Some(shifted(name, value, BinaryOperator::Minus, interval))
        }
        ("timestamp_diff", [later, earlier, Expr::Identifier(unit)]) => {
            let between = binary(micros(later), BinaryOperator::Minus, micros(earlier));
            Some(binary(
                between,
                BinaryOperator::Divide,
                number(micros_of(&unit.value)?),
            ))
        }
        ("date_diff", [later, earlier, Expr::Identifier(unit)]) if unit.value.eq_ignore_ascii_case("day") => {
            Some(binary(days(later), BinaryOperator::Minus, days(earlier)))
        }
        ("format_timestamp", [format, value]) => formatted(format, value, timestamp()),
        ("format_datetime", [format, value]) => formatted(format, value, datetime()),
        ("format_date", [format, value]) => formatted(format, value, DataType::Date),
        ("safe_divide", [_, divisor]) => {
            let zero = binary(divisor.clone(), BinaryOperator::Eq, number(0));
            let quotient = call("divide", arguments.clone());
            Some(case(&zero, Expr::value(Value::Null), quotient))
        }
        ("mod", [left, right]) => Some(binary(left.clone(), BinaryOperator::Modulo, right.clone())),
        ("div", [left, right]) => Some(binary(left.clone(), BinaryOperator::Divide, right.clone())),
        ("abs", [value]) => {
            let negative = binary(value.clone(), BinaryOperator::Lt, number(0));
            let minus = Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(value.clone()),
            };
            Some(case(&negative, minus, value.clone()))
        }
        _ => None,
    }
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(FunctionArgExpr::Expr);
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.map(FunctionArg::Unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
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

fn rename(function: &mut Function, name: &str) {
    function.name = ObjectName::from(vec![Ident::new(name)]);
}

fn set_args(function: &mut Function, args: Vec<FunctionArgExpr>) {
    if let FunctionArguments::List(list) = &mut function.args {
        list.args = args.into_iter().map(FunctionArg::Unnamed).collect();
    }
}

/// `COUNTIF(x)` is `COUNT(*) FILTER (WHERE x)`.
fn count_if(function: &mut Function) {
    if let Some([condition]) = plain_args(function).as_deref() {
        function.filter = Some(Box::new(condition.clone()));
        set_args(function, vec![FunctionArgExpr::Wildcard]);
        rename(function, "count");
    }
}

/// `STRING_AGG(x)` separates by commas.
fn separate(function: &mut Function) {
    if let Some([value]) = plain_args(function).as_deref() {
        let args = [value.clone(), text(",")].map(FunctionArgExpr::Expr);
        set_args(function, args.to_vec());
    }
}

/// `EXTRACT(part FROM value)`.
pub(super) fn extract(part: &str, value: &Expr) -> Expr {
    match part {
        "DATE" => cast(value.clone(), DataType::Date),
        "DATETIME" => cast(value.clone(), datetime()),
        "TIME" => cast(value.clone(), DataType::Time(None, TimezoneInfo::None)),
        part => call("extract_part", vec![text(part), value.clone()]),
    }
}

/// `DAY`, `WEEK(MONDAY)`.
fn part_name(part: &Expr) -> Option<String> {
    match part {
        Expr::Identifier(part) => Some(part.value.to_ascii_uppercase()),
        Expr::Function(_) => Some(part.to_string().to_ascii_uppercase()),
        _ => None,
    }
}

fn null_if_any_is(name: &str, arguments: Vec<Expr>) -> Expr {
    let is_null = |argument: &Expr| CaseWhen {
        condition: Expr::IsNull(Box::new(argument.clone())),
        result: Expr::value(Value::Null),
    };
    Expr::Case {
        operand: None,
        conditions: arguments.iter().map(is_null).collect(),
        else_result: Some(Box::new(call(name, arguments))),
    }
}

fn since_epoch(function: &str, value: &Expr) -> Expr {
    cast(call(function, vec![value.clone()]), timestamp())
}

fn micros(value: &Expr) -> Expr {
    cast(cast(value.clone(), timestamp()), DataType::BigInt(None))
}

/// Days since 1970.
fn days(value: &Expr) -> Expr {
    let days = cast(cast(value.clone(), DataType::Date), DataType::Int(None));
    cast(days, DataType::BigInt(None))
}

/// Downwards below zero too, where a plain division goes towards it.
fn floor_divided(value: Expr, by: i64) -> Expr {
    let rest = binary(value.clone(), BinaryOperator::Modulo, number(by));
    let positive = binary(
        nested(binary(rest, BinaryOperator::Plus, number(by))),
        BinaryOperator::Modulo,
        number(by),
    );
    binary(
        nested(binary(value, BinaryOperator::Minus, nested(positive))),
        BinaryOperator::Divide,
        number(by),
    )
}

fn shifted(name: &str, value: &Expr, op: BinaryOperator, interval: &Expr) -> Expr {
    let sum = nested(binary(value.clone(), op, interval.clone()));
    if name.starts_with("date_") {
        return cast(sum, DataType::Date);
    }
    sum
}

fn micros_of(unit: &str) -> Option<i64> {
    Some(match unit.to_ascii_uppercase().as_str() {
        "MICROSECOND" => 1,
        "MILLISECOND" => 1_000,
        "SECOND" => 1_000_000,
        "MINUTE" => 60_000_000,
        "HOUR" => 3_600_000_000,
        "DAY" => 86_400_000_000,
        _ => return None,
    })
}

/// `to_char` takes chrono's formats, which are BigQuery's but for some.
fn formatted(format: &Expr, value: &Expr, kind: DataType) -> Option<Expr> {
    let format = literal(format)?
        .replace("%E*S", "%S%.f")
        .replace("%E3S", "%S%.3f")
        .replace("%E6S", "%S%.6f")
        .replace("%E4Y", "%Y")
        .replace("%Ez", "%:z");
    Some(call("to_char", vec![cast(value.clone(), kind), text(&format)]))
}

fn instant(now: Millis) -> String {
    let at = DateTime::from_timestamp_millis(now).unwrap_or_default();
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn datetime() -> DataType {
    DataType::Timestamp(Some(6), TimezoneInfo::None)
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        format: None,
    }
}

fn case(condition: &Expr, result: Expr, other: Expr) -> Expr {
    Expr::Case {
        operand: None,
        conditions: vec![CaseWhen {
            condition: condition.clone(),
            result,
        }],
        else_result: Some(Box::new(other)),
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn text(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_owned()))
}

fn number(number: i64) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}
