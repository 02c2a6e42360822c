//! Query parameters: REST's JSON as the tokens of a literal, so that a value stands wherever SQL takes an expression
//! and is never read as SQL itself.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use datafusion::sql::sqlparser::tokenizer::Token;
use serde_json::Value;

use crate::query::QueryError;

/// The parameters of one query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    /// By name in lower case.
    named: HashMap<String, Vec<Token>>,
    positional: Vec<Vec<Token>>,
}

impl Parameters {
    /// Reads `queryParameters`: those with a name are named, the others positional.
    ///
    /// # Errors
    /// What is wrong with which of them; never its value.
    pub(crate) fn read(json: &Value) -> Result<Self, String> {
        let list = match json {
            Value::Null => return Ok(Self::default()),
            Value::Array(list) => list,
            _ => return Err("Invalid value for queryParameters: it must be a list".to_owned()),
        };
        let mut parameters = Self::default();
        for (i, parameter) in list.iter().enumerate() {
            let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
            let shown = if name.is_empty() {
                (i + 1).to_string()
            } else {
                format!("'{name}'")
            };
            let kind = parameter.get("parameterType").unwrap_or(&Value::Null);
            let value = parameter.get("parameterValue").unwrap_or(&Value::Null);
            let mut tokens = Tokens::default();
            tokens
                .value(kind, value)
                .map_err(|reason| format!("Query parameter {shown} {reason}"))?;
            match name {
                "" => parameters.positional.push(tokens.0),
                name => drop(parameters.named.insert(name.to_lowercase(), tokens.0)),
            }
        }
        Ok(parameters)
    }

    pub(super) fn named(&self, name: &str) -> Result<&[Token], QueryError> {
        let value = self.named.get(&name.to_lowercase()).map(Vec::as_slice);
        value.ok_or_else(|| QueryError::Invalid(format!("Query parameter '@{name}' not found")))
    }

    /// `number` counts from 1.
    pub(super) fn positional(&self, number: usize) -> Result<&[Token], QueryError> {
        let value = self.positional.get(number - 1).map(Vec::as_slice);
        value.ok_or_else(|| {
            let given = self.positional.len();
            QueryError::Invalid(format!(
                "Query parameter number {number} is not defined ({given} provided)"
            ))
        })
    }
}

#[derive(Default)]
struct Tokens(Vec<Token>);

impl Tokens {
    fn value(&mut self, kind: &Value, value: &Value) -> Result<(), String> {
        match type_name(kind)? {
            "ARRAY" => self.array(kind, value),
            "STRUCT" => self.structure(kind, value),
            scalar => match value.get("value") {
                None | Some(Value::Null) => self.null(kind),
                Some(Value::String(text)) => self.scalar(scalar, text),
                Some(other) => self.scalar(scalar, &other.to_string()),
            },
        }
    }

    /// `[a, b]`; without elements there is no type to be seen, so it is said.
    fn array(&mut self, kind: &Value, value: &Value) -> Result<(), String> {
        let element = kind.get("arrayType").unwrap_or(&Value::Null);
        let Some(items) = value.get("arrayValues").and_then(Value::as_array) else {
            return self.null(kind);
        };
        let typed = items.is_empty();
        if typed {
            self.open_cast();
        }
        self.0.push(Token::LBracket);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.0.push(Token::Comma);
            }
            self.value(element, item)?;
        }
        self.0.push(Token::RBracket);
        if typed {
            self.close_cast(kind)?;
        }
        Ok(())
    }

    /// ``STRUCT(a AS `x`, b AS `y`)``.
    fn structure(&mut self, kind: &Value, value: &Value) -> Result<(), String> {
        let Some(values) = value.get("structValues").and_then(Value::as_object) else {
            return self.null(kind);
        };
        self.word("STRUCT");
        self.0.push(Token::LParen);
        for (i, field) in fields(kind).enumerate() {
            if i > 0 {
                self.0.push(Token::Comma);
            }
            let (name, kind) = named_field(field);
            self.value(kind, values.get(name).unwrap_or(&Value::Null))?;
            if !name.is_empty() {
                self.word("AS");
                self.0.push(Token::make_word(name, Some('`')));
            }
        }
        self.0.push(Token::RParen);
        Ok(())
    }

    fn null(&mut self, kind: &Value) -> Result<(), String> {
        self.open_cast();
        self.word("NULL");
        self.close_cast(kind)
    }

    fn scalar(&mut self, kind: &'static str, text: &str) -> Result<(), String> {
        let text = text.trim_matches(|c: char| kind != "STRING" && c.is_whitespace());
        let bad = || format!("is not a valid {kind} value");
        let canonical = match kind {
            "STRING" | "GEOGRAPHY" => {
                self.0.push(Token::SingleQuotedString(text.to_owned()));
                return Ok(());
            }
            "BYTES" => {
                let bytes = STANDARD.decode(text).map_err(|_| bad())?;
                let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.0.push(Token::HexStringLiteral(hex));
                return Ok(());
            }
            "JSON" => {
                serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|_| bad())?;
                self.word(kind);
                self.0.push(Token::SingleQuotedString(text.to_owned()));
                return Ok(());
            }
            "BOOL" => match text.to_ascii_lowercase().as_str() {
                word @ ("true" | "false") => {
                    self.word(word);
                    return Ok(());
                }
                _ => return Err(bad()),
            },
            // A plain number, because LIMIT takes nothing else.
            "INT64" => match text.parse::<i64>().map_err(|_| bad())? {
                number @ 0.. => {
                    self.0.push(Token::Number(number.to_string(), false));
                    return Ok(());
                }
                number => number.to_string(),
            },
            "FLOAT64" => text.parse::<f64>().map_err(|_| bad())?.to_string(),
            "NUMERIC" | "BIGNUMERIC" => plain(text).ok_or_else(bad)?,
            "DATE" => date(text).ok_or_else(bad)?.to_string(),
            "TIME" => time(text).ok_or_else(bad)?.format("%H:%M:%S%.6f").to_string(),
            "DATETIME" => {
                let civil = datetime(text).ok_or_else(bad)?;
                civil.format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
            }
            _ => {
                let instant = timestamp(text).ok_or_else(bad)?;
                instant.format("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
            }
        };
        self.open_cast();
        self.0.push(Token::SingleQuotedString(canonical));
        self.word("AS");
        self.word(kind);
        self.0.push(Token::RParen);
        Ok(())
    }

    fn open_cast(&mut self) {
        self.word("CAST");
        self.0.push(Token::LParen);
    }

    fn close_cast(&mut self, kind: &Value) -> Result<(), String> {
        self.word("AS");
        self.kind(kind)?;
        self.0.push(Token::RParen);
        Ok(())
    }

    fn kind(&mut self, kind: &Value) -> Result<(), String> {
        let name = type_name(kind)?;
        self.word(name);
        match name {
            "ARRAY" => {
                self.0.push(Token::Lt);
                self.kind(kind.get("arrayType").unwrap_or(&Value::Null))?;
                self.0.push(Token::Gt);
            }
            "STRUCT" => {
                self.0.push(Token::Lt);
                for (i, field) in fields(kind).enumerate() {
                    if i > 0 {
                        self.0.push(Token::Comma);
                    }
                    let (name, kind) = named_field(field);
                    if !name.is_empty() {
                        self.0.push(Token::make_word(name, Some('`')));
                    }
                    self.kind(kind)?;
                }
                self.0.push(Token::Gt);
            }
            _ => {}
        }
        Ok(())
    }

    fn word(&mut self, word: &str) {
        self.0.push(Token::make_keyword(word));
    }
}

fn fields(kind: &Value) -> impl Iterator<Item = &Value> {
    let fields = kind.get("structTypes").and_then(Value::as_array);
    fields.into_iter().flatten()
}

fn named_field(field: &Value) -> (&str, &Value) {
    let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
    (name, field.get("type").unwrap_or(&Value::Null))
}

/// SQL's name for a type by either of its spellings.
fn type_name(kind: &Value) -> Result<&'static str, String> {
    let name = kind.get("type").and_then(Value::as_str).unwrap_or_default();
    Ok(match name.to_ascii_uppercase().as_str() {
        "BOOL" | "BOOLEAN" => "BOOL",
        "INT64" | "INTEGER" => "INT64",
        "FLOAT64" | "FLOAT" => "FLOAT64",
        "NUMERIC" => "NUMERIC",
        "BIGNUMERIC" => "BIGNUMERIC",
        "STRING" => "STRING",
        "BYTES" => "BYTES",
        "DATE" => "DATE",
        "TIME" => "TIME",
        "DATETIME" => "DATETIME",
        "TIMESTAMP" => "TIMESTAMP",
        "JSON" => "JSON",
        "GEOGRAPHY" => "GEOGRAPHY",
        "ARRAY" => "ARRAY",
        "STRUCT" | "RECORD" => "STRUCT",
        "" => return Err("has no type".to_owned()),
        "INTERVAL" | "RANGE" => {
            return Err(format!(
                "has type {name}, which this emulator does not support for parameters"
            ));
        }
        _ => return Err(format!("has the unknown type {name}")),
    })
}

/// A decimal without an exponent.
fn plain(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok().filter(|n: &i32| n.abs() <= 100)?;
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let mantissa = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // A query's text is far shorter than an i32 counts.
    let point = i32::try_from(whole.len()).ok()? + exponent;
    let before = usize::try_from(point.max(0)).ok()?;
    let zeros = "0".repeat(usize::try_from((-point).max(0)).ok()?);
    let digits = format!("{digits:0<before$}");
    let (whole, fraction) = digits.split_at(before);
    let whole = if whole.is_empty() { "0" } else { whole };
    match format!("{zeros}{fraction}").as_str() {
        "" => Some(format!("{sign}{whole}")),
        fraction => Some(format!("{sign}{whole}.{fraction}")),
    }
}

fn date(text: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()
}

fn time(text: &str) -> Option<NaiveTime> {
    NaiveTime::parse_from_str(text, "%H:%M:%S%.f").ok()
}

fn datetime(text: &str) -> Option<NaiveDateTime> {
    let (day, clock) = match text.split_once(['T', 't', ' ']) {
        Some((day, clock)) => (day, time(clock)?),
        None => (text, NaiveTime::MIN),
    };
    Some(date(day)?.and_time(clock))
}

/// A TIMESTAMP as it is written; without a zone it is UTC.
pub(super) fn timestamp(text: &str) -> Option<DateTime<Utc>> {
    for format in ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"] {
        if let Ok(instant) = DateTime::parse_from_str(text, format) {
            return Some(instant.to_utc());
        }
    }
    let civil = text
        .strip_suffix('Z')
        .or_else(|| text.strip_suffix("UTC"))
        .unwrap_or(text);
    Some(datetime(civil.trim_end())?.and_utc())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::query::text::Text;

    fn parameter(kind: Value, value: Value) -> Result<Parameters, String> {
        Parameters::read(&json!([{ "name": "X", "parameterType": kind, "parameterValue": value }]))
    }

    fn expression(parameters: &Parameters) -> String {
        let text = Text::read("@x", parameters).unwrap();
        text.parser().parse_expr().unwrap().to_string()
    }

    #[test]
    fn a_value_becomes_a_literal_of_its_type() {
        for (kind, value, want) in [
            ("INT64", "7", "7"),
            (
                "INTEGER",
                "-9223372036854775808",
                "CAST('-9223372036854775808' AS INT64)",
            ),
            ("FLOAT64", "1.5", "CAST('1.5' AS FLOAT64)"),
            ("FLOAT", "-Infinity", "CAST('-inf' AS FLOAT64)"),
            ("BOOL", "True", "true"),
            ("STRING", "it's '@x' ", "'it''s ''@x'' '"),
            ("BYTES", "AP8=", "X'00ff'"),
            ("NUMERIC", "12.5", "CAST('12.5' AS NUMERIC)"),
            (
                "BIGNUMERIC",
                "-1E-38",
                "CAST('-0.00000000000000000000000000000000000001' AS BIGNUMERIC)",
            ),
            ("NUMERIC", "1.25e3", "CAST('1250' AS NUMERIC)"),
            ("NUMERIC", "-.5", "CAST('-0.5' AS NUMERIC)"),
            ("DATE", "2024-02-29", "CAST('2024-02-29' AS DATE)"),
            ("TIME", "01:02:03.5", "CAST('01:02:03.500000' AS TIME)"),
            (
                "DATETIME",
                "2024-02-29 01:02:03",
                "CAST('2024-02-29T01:02:03.000000' AS DATETIME)",
            ),
            (
                "TIMESTAMP",
                "2024-02-29 01:02:03.000004+01:00",
                "CAST('2024-02-29T00:02:03.000004+00:00' AS TIMESTAMP)",
            ),
            (
                "TIMESTAMP",
                "2024-02-29T01:02:03Z",
                "CAST('2024-02-29T01:02:03.000000+00:00' AS TIMESTAMP)",
            ),
            (
                "TIMESTAMP",
                "2024-02-29 01:02:03 UTC",
                "CAST('2024-02-29T01:02:03.000000+00:00' AS TIMESTAMP)",
            ),
            ("JSON", "{\"a\": 1}", "JSON '{\"a\": 1}'"),
        ] {
            let parameters = parameter(json!({ "type": kind }), json!({ "value": value })).unwrap();
            assert_eq!(expression(&parameters), want, "{kind}");
        }
    }

    #[test]
    fn null_arrays_and_structs_keep_their_types() {
        let int = json!({ "type": "INT64" });
        let ints = json!({ "type": "ARRAY", "arrayType": int });
        let pair = json!({ "type": "STRUCT", "structTypes": [
            { "name": "a", "type": int },
            { "name": "list", "type": ints },
        ] });
        for (kind, value, want) in [
            (int, json!({}), "CAST(NULL AS INT64)"),
            (
                ints.clone(),
                json!({ "arrayValues": [] }),
                "CAST([] AS ARRAY<INT64>)",
            ),
            (
                ints,
                json!({ "arrayValues": [{ "value": "1" }, { "value": null }] }),
                "[1, CAST(NULL AS INT64)]",
            ),
            (
                pair.clone(),
                json!({ "structValues": { "a": { "value": "1" }, "list": { "arrayValues": [] } } }),
                "STRUCT(1 AS `a`, CAST([] AS ARRAY<INT64>) AS `list`)",
            ),
            (
                pair,
                Value::Null,
                "CAST(NULL AS STRUCT<`a` INT64, `list` ARRAY<INT64>>)",
            ),
        ] {
            let parameters = parameter(kind, value).unwrap();
            assert_eq!(expression(&parameters), want);
        }
    }

    #[test]
    fn a_value_that_is_not_of_its_type_is_refused_without_being_shown() {
        for (kind, value, want) in [
            (
                json!({ "type": "INT64" }),
                json!({ "value": "secret" }),
                "is not a valid INT64 value",
            ),
            (
                json!({ "type": "DATE" }),
                json!({ "value": "secret" }),
                "is not a valid DATE value",
            ),
            (
                json!({ "type": "BYTES" }),
                json!({ "value": "secret!" }),
                "is not a valid BYTES value",
            ),
            (
                json!({ "type": "JSON" }),
                json!({ "value": "secret" }),
                "is not a valid JSON value",
            ),
            (json!({}), json!({ "value": "1" }), "has no type"),
            (
                json!({ "type": "MONEY" }),
                json!({ "value": "1" }),
                "has the unknown type MONEY",
            ),
        ] {
            let error = parameter(kind, value).unwrap_err();
            assert_eq!(error, format!("Query parameter 'X' {want}"));
        }
    }

    #[test]
    fn positional_parameters_stand_in_the_order_of_the_text() {
        let one = |n: &str| json!({ "parameterType": { "type": "INT64" }, "parameterValue": { "value": n } });
        let parameters = Parameters::read(&json!([one("1"), one("2"), one("3")])).unwrap();
        let text = Text::read("SELECT ? FROM UNNEST([?]) AS x WHERE x > ?", &parameters).unwrap();
        let query = text.parser().parse_query().unwrap();
        assert_eq!(query.to_string(), "SELECT 1 FROM UNNEST([2]) AS x WHERE x > 3");
        let error = Text::read("SELECT ?, ?, ?, ?", &parameters).unwrap_err();
        let want = "Query parameter number 4 is not defined (3 provided)";
        assert_eq!(error, QueryError::Invalid(want.to_owned()));
        let error = Text::read("SELECT @y", &parameters).unwrap_err();
        assert_eq!(
            error,
            QueryError::Invalid("Query parameter '@y' not found".to_owned())
        );
    }
}
