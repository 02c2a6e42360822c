//! Default expressions as they are written: literals, arrays and structs of them, and the functions that are allowed.

use arrow_array::timezone::Tz;
use arrow_buffer::i256;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::Function;
use super::tokens::{Quoted, Tokens};
use crate::rows::Checks;
use crate::schema::{Column, Kind, Mode, RangeElement};
use crate::values::cell::Cell;
use crate::values::civil::{self, Reading};
use crate::values::interval::{Interval, Part};
use crate::values::{literal, range};

/// What is written, before the column's type is known.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Null,
    /// A value of that type.
    Literal(Kind, Cell),
    /// Elements, of that type if it is named.
    Array(Option<Column>, Vec<Self>),
    /// Fields, of these types if they are named.
    Struct(Option<Vec<Column>>, Vec<Self>),
    Call(Function),
}

/// Nesting of arrays, structs and parentheses that is read.
const DEEPEST: usize = 50;
/// BigQuery's own words.
const ALLOWED: &str = "CURRENT_DATE, CURRENT_DATETIME, CURRENT_TIME, CURRENT_TIMESTAMP, GENERATE_UUID, RAND, \
                       SESSION_USER and ST_GEOGPOINT";

const NUMERIC: Kind = Kind::Numeric {
    precision: None,
    scale: None,
};
const BIG_NUMERIC: Kind = Kind::BigNumeric {
    precision: None,
    scale: None,
};
const STRING: Kind = Kind::String { max_length: None };
const BYTES: Kind = Kind::Bytes { max_length: None };

/// Reads an expression.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn expression(sql: &str) -> Result<Expression, String> {
    let mut parser = Parser {
        tokens: Tokens::new(sql)?,
        depth: 0,
    };
    let expression = parser.expression()?;
    parser.tokens.end()?;
    Ok(expression)
}

struct Parser {
    tokens: Tokens,
    depth: usize,
}

impl Parser {
    fn expression(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("it is nested too deep: the most is {DEEPEST} levels"));
        }
        let expression = self.any()?;
        self.depth -= 1;
        Ok(expression)
    }

    fn any(&mut self) -> Result<Expression, String> {
        match self.tokens.quoted()? {
            Some(Quoted::Text(text)) => return Ok(Expression::Literal(STRING, Cell::Text(text))),
            Some(Quoted::Bytes(bytes)) => return Ok(Expression::Literal(BYTES, Cell::Bytes(bytes))),
            None => {}
        }
        match self.tokens.peek() {
            Some(Token::Minus | Token::Plus) => self.signed(),
            Some(Token::Number(..) | Token::HexStringLiteral(_)) => self.number(false),
            Some(Token::LBracket) => self.array(None),
            Some(Token::LParen) => self.tuple(),
            Some(Token::Word(_)) => self.word(),
            _ => Err(self.tokens.unexpected("a literal or a function is expected")),
        }
    }

    fn signed(&mut self) -> Result<Expression, String> {
        let negative = self.tokens.next() == Some(Token::Minus);
        if matches!(
            self.tokens.peek(),
            Some(Token::Number(..) | Token::HexStringLiteral(_))
        ) {
            return self.number(negative);
        }
        let expression = self.expression()?;
        if !negative {
            return Ok(expression);
        }
        let wrong = || "the minus sign stands before something that is no number".to_owned();
        match expression {
            Expression::Literal(kind, cell) => {
                Ok(Expression::Literal(kind, negated(cell).ok_or_else(wrong)?))
            }
            _ => Err(wrong()),
        }
    }

    fn number(&mut self, negative: bool) -> Result<Expression, String> {
        let sign = if negative { "-" } else { "" };
        let too_large = || "an integer literal is out of range".to_owned();
        match self.tokens.next() {
            Some(Token::Number(digits, false)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let value = format!("{sign}{digits}").parse().map_err(|_| too_large())?;
                Ok(Expression::Literal(Kind::Int64, Cell::Int(value)))
            }
            Some(Token::Number(text, false)) => {
                let value: f64 = format!("{sign}{text}")
                    .parse()
                    .map_err(|_| "a number cannot be read")?;
                if value.is_infinite() {
                    return Err("a floating point literal is out of range".to_owned());
                }
                Ok(Expression::Literal(Kind::Float64, Cell::Float(value)))
            }
            Some(Token::HexStringLiteral(digits)) => {
                let value = i64::from_str_radix(&format!("{sign}{digits}"), 16).map_err(|_| too_large())?;
                Ok(Expression::Literal(Kind::Int64, Cell::Int(value)))
            }
            _ => Err("syntax error: a number cannot be read".to_owned()),
        }
    }

    /// `[a, b]`, with the type of its elements if it was named.
    fn array(&mut self, element: Option<Column>) -> Result<Expression, String> {
        self.tokens.expect(&Token::LBracket)?;
        let mut items = Vec::new();
        if !self.tokens.take(&Token::RBracket) {
            items = self.list()?;
            self.tokens.expect(&Token::RBracket)?;
        }
        Ok(Expression::Array(element, items))
    }

    /// `(a, b)` is a struct, `(a)` is `a`.
    fn tuple(&mut self) -> Result<Expression, String> {
        self.tokens.expect(&Token::LParen)?;
        let mut items = self.list()?;
        self.tokens.expect(&Token::RParen)?;
        Ok(match (items.len(), items.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                items.extend(last);
                Expression::Struct(None, items)
            }
        })
    }

    fn list(&mut self) -> Result<Vec<Expression>, String> {
        let mut items = vec![self.expression()?];
        while self.tokens.take(&Token::Comma) {
            items.push(self.expression()?);
        }
        Ok(items)
    }

    fn word(&mut self) -> Result<Expression, String> {
        let Some(word) = self.tokens.peek_word() else {
            return Err(self.tokens.unexpected("a literal or a function is expected"));
        };
        if word == "STRUCT" {
            return self.structure();
        }
        self.tokens.next();
        let bool = |value| Ok(Expression::Literal(Kind::Bool, Cell::Bool(value)));
        match word.as_str() {
            "NULL" => Ok(Expression::Null),
            "TRUE" => bool(true),
            "FALSE" => bool(false),
            "ARRAY" => {
                let element = if self.tokens.take(&Token::Lt) {
                    Some(self.last_type()?)
                } else {
                    None
                };
                self.array(element)
            }
            "RANGE" => self.range(),
            "INTERVAL" => self.interval(),
            "DATE" | "TIME" | "DATETIME" | "TIMESTAMP" | "NUMERIC" | "DECIMAL" | "BIGNUMERIC"
            | "BIGDECIMAL" | "JSON" => typed_literal(&word, &self.tokens.text()?),
            _ => self.call(&word),
        }
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        let clock = [
            "CURRENT_DATE",
            "CURRENT_DATETIME",
            "CURRENT_TIME",
            "CURRENT_TIMESTAMP",
        ]
        .contains(&name);
        let mut args = Vec::new();
        if self.tokens.take(&Token::LParen) {
            if !self.tokens.take(&Token::RParen) {
                args = self.list()?;
                self.tokens.expect(&Token::RParen)?;
            }
        } else if !clock {
            return Err(format!(
                "{name} is no literal, and no function that is allowed: {ALLOWED}"
            ));
        }
        let function = match (name, args.as_slice()) {
            ("CURRENT_DATE", args) => Function::CurrentDate(zone(args)?),
            ("CURRENT_DATETIME", args) => Function::CurrentDatetime(zone(args)?),
            ("CURRENT_TIME", args) => Function::CurrentTime(zone(args)?),
            ("CURRENT_TIMESTAMP", []) => Function::CurrentTimestamp,
            ("GENERATE_UUID", []) => Function::GenerateUuid,
            ("RAND", []) => Function::Rand,
            ("SESSION_USER", []) => Function::SessionUser,
            ("ST_GEOGPOINT", args) => return point(args),
            ("CURRENT_TIMESTAMP" | "GENERATE_UUID" | "RAND" | "SESSION_USER", _) => {
                return Err(format!("{name} takes no arguments"));
            }
            _ => return Err(format!("the function {name} is not allowed, only {ALLOWED} are")),
        };
        Ok(Expression::Call(function))
    }

    /// `STRUCT(a, b AS name)`, or `STRUCT<INT64, name STRING>(a, b)`.
    fn structure(&mut self) -> Result<Expression, String> {
        let types = match self.named_type()?.kind {
            Kind::Struct(columns) if !columns.is_empty() => Some(columns),
            _ => None,
        };
        self.tokens.expect(&Token::LParen)?;
        let mut fields = Vec::new();
        while !self.tokens.take(&Token::RParen) {
            if !fields.is_empty() {
                self.tokens.expect(&Token::Comma)?;
            }
            fields.push(self.expression()?);
            if self.tokens.take_word("AS") && !matches!(self.tokens.next(), Some(Token::Word(_))) {
                return Err("syntax error: a name is expected behind AS".to_owned());
            }
        }
        Ok(Expression::Struct(types, fields))
    }

    /// `RANGE<DATE> '[2020-01-01, UNBOUNDED)'`; `RANGE` is read.
    fn range(&mut self) -> Result<Expression, String> {
        self.tokens.expect(&Token::Lt)?;
        let element = self.range_element()?;
        let text = self.tokens.text()?;
        let (start, end) = range::parse(&text, element)?;
        let bad = Checks::ALL.range(start, end);
        bad.map_err(|bad| bad.text().to_owned())?;
        Ok(Expression::Literal(Kind::Range(element), Cell::Range(start, end)))
    }

    /// `DATE>`.
    fn range_element(&mut self) -> Result<RangeElement, String> {
        let element = self.last_type()?;
        let wrong = || "a RANGE is of DATE, DATETIME or TIMESTAMP".to_owned();
        RangeElement::try_from(&element.kind).map_err(|()| wrong())
    }

    /// `5 DAY`, or `'1-2 3' YEAR TO DAY`; `INTERVAL` is read.
    fn interval(&mut self) -> Result<Expression, String> {
        let wrong = || "an INTERVAL literal cannot be read, or is out of range".to_owned();
        let value = match self.expression()? {
            Expression::Literal(Kind::Int64, Cell::Int(count)) => {
                let unit = self.unit()?;
                interval_of(count, &unit).ok_or_else(wrong)?
            }
            Expression::Literal(Kind::String { .. }, Cell::Text(text)) => {
                let unit = self.unit()?;
                let from = part(&unit).ok_or_else(wrong)?;
                let to = if self.tokens.take_word("TO") {
                    part(&self.unit()?).ok_or_else(wrong)?
                } else {
                    from
                };
                Interval::parse_parts(&text, from, to)
                    .filter(|_| from <= to)
                    .ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        };
        Ok(Expression::Literal(Kind::Interval, Cell::Interval(value)))
    }

    fn unit(&mut self) -> Result<String, String> {
        let unit = self.tokens.peek_word();
        let unit = unit.ok_or_else(|| self.tokens.unexpected("a part such as DAY is expected"))?;
        self.tokens.next();
        Ok(unit)
    }

    /// A type and the `>` behind it.
    fn last_type(&mut self) -> Result<Column, String> {
        let column = self.named_type()?;
        self.tokens.expect(&Token::Gt)?;
        Ok(column)
    }

    /// A type as a column without a name. `STRUCT` alone has no fields.
    fn named_type(&mut self) -> Result<Column, String> {
        self.depth += 1;
        let word = self.tokens.peek_word().filter(|_| self.depth <= DEEPEST);
        let word = word.ok_or_else(|| self.tokens.unexpected("a type is expected"))?;
        self.tokens.next();
        let kind = match word.as_str() {
            "BOOL" | "BOOLEAN" => Kind::Bool,
            "INT64" | "INT" | "INTEGER" | "BIGINT" | "SMALLINT" | "TINYINT" | "BYTEINT" => Kind::Int64,
            "FLOAT64" => Kind::Float64,
            "NUMERIC" | "DECIMAL" => NUMERIC,
            "BIGNUMERIC" | "BIGDECIMAL" => BIG_NUMERIC,
            "STRING" => STRING,
            "BYTES" => BYTES,
            "DATE" => Kind::Date,
            "TIME" => Kind::Time,
            "DATETIME" => Kind::Datetime,
            "TIMESTAMP" => Kind::Timestamp,
            "JSON" => Kind::Json,
            "GEOGRAPHY" => Kind::Geography,
            "INTERVAL" => Kind::Interval,
            "RANGE" => {
                self.tokens.expect(&Token::Lt)?;
                Kind::Range(self.range_element()?)
            }
            "ARRAY" => {
                self.tokens.expect(&Token::Lt)?;
                let element = self.last_type()?;
                self.depth -= 1;
                return Ok(Column::new("", element.kind, Mode::Repeated));
            }
            "STRUCT" => Kind::Struct(self.struct_types()?),
            _ => return Err(format!("{word} is no type")),
        };
        self.depth -= 1;
        Ok(Column::new("", kind, Mode::Nullable))
    }

    /// `<INT64, name STRING>`, if it is there.
    fn struct_types(&mut self) -> Result<Vec<Column>, String> {
        let mut columns = Vec::new();
        if !self.tokens.take(&Token::Lt) {
            return Ok(columns);
        }
        loop {
            // A name stands before the type if there are two words.
            let named = self.tokens.two_words();
            if named {
                self.tokens.next();
            }
            columns.push(self.named_type()?);
            if !self.tokens.take(&Token::Comma) {
                break;
            }
        }
        self.tokens.expect(&Token::Gt)?;
        Ok(columns)
    }
}

fn negated(cell: Cell) -> Option<Cell> {
    match cell {
        Cell::Int(value) => value.checked_neg().map(Cell::Int),
        Cell::Float(value) => Some(Cell::Float(-value)),
        Cell::Decimal(value) => Some(Cell::Decimal(-value)),
        Cell::BigDecimal(value) => value.checked_neg().map(Cell::BigDecimal),
        _ => None,
    }
}

fn typed_literal(word: &str, text: &str) -> Result<Expression, String> {
    let (kind, cell) = match word {
        "DATE" => (Kind::Date, civil::date(text).map(Cell::Days)),
        "TIME" => (Kind::Time, civil::time(text).and_then(micros)),
        "DATETIME" => (Kind::Datetime, civil::datetime(text).and_then(micros)),
        "TIMESTAMP" => match civil::timestamp(text) {
            // More than six digits make it one of twelve.
            Some(at) if at.exact_micros().is_none() => {
                (Kind::TimestampPicoseconds, Some(Cell::Decimal(at.picoseconds())))
            }
            at => (Kind::Timestamp, at.and_then(micros)),
        },
        "NUMERIC" | "DECIMAL" => {
            let value = literal::decimal(text, 9).flatten().and_then(i256::to_i128);
            let value = Checks::ALL.numeric(None, None).take(value);
            (NUMERIC, value.ok().map(Cell::Decimal))
        }
        "BIGNUMERIC" | "BIGDECIMAL" => (
            BIG_NUMERIC,
            literal::decimal(text, 38).flatten().map(Cell::BigDecimal),
        ),
        _ => {
            let good = Checks::ALL.json(text).is_ok();
            (Kind::Json, good.then(|| Cell::Text(text.to_owned())))
        }
    };
    let cell = cell.ok_or_else(|| format!("invalid {word} literal"))?;
    Ok(Expression::Literal(kind, cell))
}

fn micros(at: Reading) -> Option<Cell> {
    at.exact_micros().map(Cell::Micros)
}

fn interval_of(count: i64, unit: &str) -> Option<Interval> {
    let times = |factor: i64| count.checked_mul(factor);
    match unit {
        "YEAR" => Interval::new(times(12)?, 0, 0),
        "QUARTER" => Interval::new(times(3)?, 0, 0),
        "MONTH" => Interval::new(count, 0, 0),
        "WEEK" => Interval::new(0, times(7)?, 0),
        "DAY" => Interval::new(0, count, 0),
        "HOUR" => Interval::new(0, 0, times(3_600_000_000)?),
        "MINUTE" => Interval::new(0, 0, times(60_000_000)?),
        "SECOND" => Interval::new(0, 0, times(1_000_000)?),
        "MILLISECOND" => Interval::new(0, 0, times(1_000)?),
        "MICROSECOND" => Interval::new(0, 0, count),
        _ => None,
    }
}

fn part(unit: &str) -> Option<Part> {
    Some(match unit {
        "YEAR" => Part::Year,
        "MONTH" => Part::Month,
        "DAY" => Part::Day,
        "HOUR" => Part::Hour,
        "MINUTE" => Part::Minute,
        "SECOND" => Part::Second,
        _ => return None,
    })
}

/// The zone that a function of the clock is asked for; UTC without.
fn zone(args: &[Expression]) -> Result<Tz, String> {
    let name = match args {
        [] => "UTC",
        [Expression::Literal(Kind::String { .. }, Cell::Text(name))] => name,
        _ => return Err("a function of the clock takes the name of a time zone, or nothing".to_owned()),
    };
    civil::zone(name).ok_or_else(|| "there is no such time zone".to_owned())
}

/// `ST_GEOGPOINT(longitude, latitude)` of two numbers, as WKT.
fn point(args: &[Expression]) -> Result<Expression, String> {
    let number = |arg: &Expression| match arg {
        Expression::Literal(_, Cell::Float(value)) => Some(*value),
        // Degrees are small.
        Expression::Literal(Kind::Int64, Cell::Int(value)) => Some(*value as f64),
        _ => None,
    };
    let wrong = || "ST_GEOGPOINT takes a longitude and a latitude".to_owned();
    let [longitude, latitude] = args else {
        return Err(wrong());
    };
    let (longitude, latitude) = (
        number(longitude).ok_or_else(wrong)?,
        number(latitude).ok_or_else(wrong)?,
    );
    if !(-90.0..=90.0).contains(&latitude) {
        return Err("the latitude of ST_GEOGPOINT is not from -90 to 90".to_owned());
    }
    // Longitudes are taken modulo 360.
    let longitude = match longitude.rem_euclid(360.0) {
        east if east <= 180.0 => east,
        west => west - 360.0,
    };
    let text = format!("POINT({longitude} {latitude})");
    Ok(Expression::Literal(Kind::Geography, Cell::Text(text)))
}
