//! Rows of JSON, as `tabledata.insertAll` has them, into a table's canonical Arrow form.
//!
//! Scalars come as JSON's own or as strings, in the spellings that D:loading-data-cloud-storage-json lists; names
//! go without regard to case. A column that a row leaves out has its default value; one that is `null` has none.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_buffer::i256;
use arrow_schema::ArrowError;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use super::cell::Cell;
use super::civil;
use super::interval::Interval;
use super::{literal, picoseconds, range};
use crate::defaults::{DefaultValue, Moment};
use crate::rows::{Bad, Checks};
use crate::schema::{Column, Kind, Mode, RangeElement, Schema};

/// What became of some rows.
#[derive(Debug, PartialEq)]
pub(crate) struct JsonRows {
    /// The good ones, in their order.
    pub(crate) rows: RecordBatch,
    /// The bad ones, by index, with the first thing that is wrong with each.
    pub(crate) errors: Vec<(usize, JsonError)>,
}

/// Why a row cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// The field: `a.b[0].c`.
    pub(crate) location: String,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl JsonError {
    /// An `ErrorProto` of insertAll's answer.
    pub(crate) fn proto(&self) -> Value {
        json!({ "reason": "invalid", "location": self.location, "debugInfo": "", "message": self.message })
    }
}

/// Reads rows. Fields that the table lacks are errors, or left out if `ignore_unknown`.
///
/// # Errors
/// None that a checked schema brings about.
pub(crate) fn read_rows<'a>(
    rows: impl IntoIterator<Item = &'a Value>,
    schema: &Schema,
    ignore_unknown: bool,
    moment: &mut Moment<'_>,
) -> Result<JsonRows, ArrowError> {
    let defaults = schema
        .columns
        .iter()
        .map(DefaultValue::of)
        .collect::<Result<Vec<_>, _>>();
    let defaults = defaults.map_err(|error| ArrowError::SchemaError(error.to_string()))?;
    let reader = Reader { ignore_unknown };
    let (mut good, mut errors) = (Vec::new(), Vec::new());
    for (index, row) in rows.into_iter().enumerate() {
        let cells = match row {
            Value::Object(row) => reader.fields(row, &schema.columns, "", |at| {
                defaults[at].as_ref().map(|default| default.cell(moment))
            }),
            _ => Err(JsonError {
                location: String::new(),
                message: "The row is not a JSON object.".to_owned(),
            }),
        };
        match cells {
            Ok(cells) => good.push(cells),
            Err(error) => errors.push((index, error)),
        }
    }
    let rows = schema.batch(good)?;
    Ok(JsonRows { rows, errors })
}

struct Reader {
    ignore_unknown: bool,
}

impl Reader {
    /// The fields of a row or of a RECORD, one for each column.
    fn fields(
        &self,
        json: &Map<String, Value>,
        columns: &[Column],
        within: &str,
        mut default: impl FnMut(usize) -> Option<Cell>,
    ) -> Result<Vec<Cell>, JsonError> {
        let mut given: HashMap<String, (&str, &Value)> = HashMap::with_capacity(json.len());
        for (name, value) in json {
            if given.insert(name.to_lowercase(), (name, value)).is_some() {
                return fail(&path(within, name), "The field is there twice.");
            }
        }
        let mut cells = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            let path = path(within, &column.name);
            cells.push(match given.remove(&column.name.to_lowercase()) {
                Some((_, value)) => self.column(value, column, &path)?,
                None => match (default(at), column.mode) {
                    (Some(cell), _) => cell,
                    (None, Mode::Required) => return missing(&path),
                    (None, _) => column.nothing(),
                },
            });
        }
        let unknown = json.keys().find(|name| given.contains_key(&name.to_lowercase()));
        match unknown.filter(|_| !self.ignore_unknown) {
            Some(name) => {
                let path = path(within, name);
                fail(&path, format!("no such field: {path}."))
            }
            None => Ok(cells),
        }
    }

    fn column(&self, json: &Value, column: &Column, path: &str) -> Result<Cell, JsonError> {
        match (column.mode, json) {
            (Mode::Repeated, Value::Array(items)) => {
                let item = |(at, item): (usize, &Value)| {
                    let path = format!("{path}[{at}]");
                    match item {
                        Value::Null => fail(&path, "Only optional fields can be set to NULL."),
                        item => self.value(item, column, &path),
                    }
                };
                let items = items.iter().enumerate().map(item);
                Ok(Cell::List(items.collect::<Result<_, _>>()?))
            }
            (Mode::Repeated, Value::Null) => {
                fail(path, format!("Field value of {} cannot be empty.", column.name))
            }
            (Mode::Repeated, _) => fail(
                path,
                format!("The repeated field {} is not a JSON array.", column.name),
            ),
            (_, Value::Array(_)) => fail(
                path,
                format!("Array specified for non-repeated field: {}.", column.name),
            ),
            (Mode::Required, Value::Null) => missing(path),
            (Mode::Nullable, Value::Null) => Ok(Cell::Null),
            _ => self.value(json, column, path),
        }
    }

    /// One value, or one element of an array: neither null nor an array.
    fn value(&self, json: &Value, column: &Column, path: &str) -> Result<Cell, JsonError> {
        let name = &column.name;
        match (&column.kind, json) {
            (Kind::Struct(columns), Value::Object(json)) => {
                let fields = self.fields(json, columns, path, |_| None)?;
                Ok(Cell::Struct(fields))
            }
            (Kind::Struct(_), _) => fail(
                path,
                format!("Cannot convert {} to a record field: {name}.", type_of(json)),
            ),
            (Kind::Range(element), Value::Object(json)) => range_of(json, *element, path),
            (_, Value::Object(_)) => fail(path, format!("This field: {name} is not a record.")),
            (_, Value::Array(_)) => fail(path, format!("Array specified for non-repeated field: {name}.")),
            (kind, json) => scalar(json, kind, path),
        }
    }
}

fn scalar(json: &Value, kind: &Kind, path: &str) -> Result<Cell, JsonError> {
    let checked = |result: Result<Cell, Bad>| {
        result.map_err(|bad| JsonError {
            location: path.to_owned(),
            message: bad.on(path),
        })
    };
    let text = match json {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let cell = match kind {
        Kind::Bool => bool_of(&text).map(Cell::Bool),
        Kind::Int64 => int_of(json, &text).map(Cell::Int),
        Kind::Float64 => float_of(&text).filter(|_| !json.is_boolean()).map(Cell::Float),
        Kind::Numeric { precision, scale } => match literal::decimal(&text, 9) {
            Some(value) => {
                let value = Checks::ALL
                    .numeric(*precision, *scale)
                    .take(value.and_then(i256::to_i128));
                return checked(value.map(Cell::Decimal));
            }
            None => None,
        },
        Kind::BigNumeric { precision, scale } => match literal::decimal(&text, 38) {
            Some(value) => {
                let value = Checks::ALL.big_numeric(*precision, *scale).take(value);
                return checked(value.map(Cell::BigDecimal));
            }
            None => None,
        },
        Kind::String { max_length } if !json.is_boolean() => {
            return checked(Checks::ALL.string(*max_length, &text).map(|()| Cell::Text(text)));
        }
        Kind::String { .. } => return fail(path, "Conversion from bool to string is unsupported."),
        Kind::Bytes { max_length } => match bytes_of(json) {
            Some(bytes) => {
                return checked(
                    Checks::ALL
                        .bytes(*max_length, &bytes)
                        .map(|()| Cell::Bytes(bytes)),
                );
            }
            None => None,
        },
        Kind::Json => return checked(Checks::ALL.json(&text).map(|()| Cell::Text(text))),
        Kind::Geography => return checked(Checks::ALL.geography(&text).map(|()| Cell::Text(text))),
        Kind::Date => civil::date(&text).map(Cell::Days),
        Kind::Time => civil::time(&text).map(|at| Cell::Micros(at.micros())),
        Kind::Datetime => civil::datetime(&text).map(|at| Cell::Micros(at.micros())),
        Kind::Timestamp => instant(&text).and_then(|picos| {
            i64::try_from(picos.div_euclid(picoseconds::MICROSECOND))
                .ok()
                .map(Cell::Micros)
        }),
        Kind::TimestampPicoseconds => instant(&text).map(Cell::Decimal),
        Kind::Interval => Interval::parse(&text)
            .or_else(|| Interval::parse_iso(&text))
            .map(Cell::Interval),
        Kind::Range(element) => match range::parse(&text, *element) {
            Ok((start, end)) => return bounds(start, end, path),
            Err(_) => None,
        },
        Kind::Struct(_) => None,
    };
    cell.ok_or_else(|| JsonError {
        location: path.to_owned(),
        message: unreadable(kind),
    })
}

/// Google's texts as far as they are known; without the value, which is the row's.
fn unreadable(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "Cannot convert value to boolean (bad value).".to_owned(),
        Kind::Int64 => "Cannot convert value to integer (bad value).".to_owned(),
        Kind::Float64 => "Cannot convert value to floating point (bad value).".to_owned(),
        Kind::Bytes { .. } => "Could not decode base64 string to bytes.".to_owned(),
        Kind::Timestamp | Kind::TimestampPicoseconds => {
            "Could not parse the value as a timestamp. Required format is YYYY-MM-DD HH:MM[:SS[.SSSSSS]] or YYYY/MM/DD \
             HH:MM[:SS[.SSSSSS]]"
                .to_owned()
        }
        kind => format!("Invalid {} value.", kind.sql_name()),
    }
}

fn bool_of(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

fn int_of(json: &Value, text: &str) -> Option<i64> {
    match json {
        // A number without a fraction, however it is written.
        Value::Number(number) => number.as_i64().or_else(|| {
            let whole = literal::decimal(text, 0).flatten()?;
            let exact = literal::decimal(text, 20).flatten()? == whole.checked_mul(literal::ten(20))?;
            whole
                .to_i128()
                .filter(|_| exact)
                .and_then(|value| i64::try_from(value).ok())
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn float_of(text: &str) -> Option<f64> {
    match text.to_ascii_lowercase().as_str() {
        "nan" => Some(f64::NAN),
        "inf" | "+inf" | "infinity" | "+infinity" => Some(f64::INFINITY),
        "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
        // Rust reads more words than these.
        lower if lower.bytes().all(|byte| b"0123456789+-.e".contains(&byte)) => {
            lower.parse().ok().filter(|value: &f64| value.is_finite())
        }
        _ => None,
    }
}

/// Base64 in either alphabet, with or without padding.
fn bytes_of(json: &Value) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    let text = json.as_str()?;
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// A TIMESTAMP in picoseconds: a date with a time, or seconds since 1970. Milliseconds where seconds would be beyond
/// the year 9999, as in the documentation's `1.534680695e12`.
fn instant(text: &str) -> Option<i128> {
    if let Some(at) = civil::timestamp_loose(text) {
        return Some(at.picoseconds());
    }
    let picos = |scale| literal::decimal(text, scale).flatten().and_then(i256::to_i128);
    let within = |picos: &i128| picoseconds::INSTANTS.contains(picos);
    picos(12).filter(within).or_else(|| picos(9).filter(within))
}

/// `{"start": ..., "end": ...}`; a bound that is null or not there is none.
fn range_of(json: &Map<String, Value>, element: RangeElement, path: &str) -> Result<Cell, JsonError> {
    if let Some(unknown) = json.keys().find(|name| *name != "start" && *name != "end") {
        let path = format!("{path}.{unknown}");
        return fail(&path, format!("no such field: {path}."));
    }
    let bound = |name: &str| {
        let path = format!("{path}.{name}");
        match json.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match scalar(value, &Kind::from(element), &path)? {
                Cell::Days(days) => Ok(Some(i64::from(days))),
                Cell::Micros(micros) => Ok(Some(micros)),
                _ => fail(&path, unreadable(&Kind::Range(element))),
            },
        }
    };
    bounds(bound("start")?, bound("end")?, path)
}

fn bounds(start: Option<i64>, end: Option<i64>, path: &str) -> Result<Cell, JsonError> {
    match Checks::ALL.range(start, end) {
        Ok(()) => Ok(Cell::Range(start, end)),
        Err(bad) => fail(path, bad.on(path)),
    }
}

fn type_of(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn missing<T>(path: &str) -> Result<T, JsonError> {
    fail(path, format!("Missing required field: {path}."))
}

fn fail<T>(path: &str, message: impl Into<String>) -> Result<T, JsonError> {
    Err(JsonError {
        location: path.to_owned(),
        message: message.into(),
    })
}

fn path(within: &str, name: &str) -> String {
    if within.is_empty() {
        name.to_owned()
    } else {
        format!("{within}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_cast::display::array_value_to_string;

    use super::*;
    use crate::defaults::RandomBits;

    fn read(columns: Vec<Column>, rows: Value, ignore_unknown: bool) -> JsonRows {
        let mut random = RandomBits::new(7);
        let mut moment = Moment {
            now_ms: 1_500,
            random: &mut random,
        };
        let schema = Schema { columns };
        let rows = read_rows(rows.as_array().unwrap(), &schema, ignore_unknown, &mut moment).unwrap();
        assert_eq!(rows.rows.schema(), schema.arrow());
        rows
    }

    /// One value of one column `v`, as arrow prints it; or what is wrong.
    fn value(kind: &Kind, json: &Value) -> String {
        let columns = vec![Column::new("v", kind.clone(), Mode::Nullable)];
        let rows = read(columns, json!([{ "v": json }]), false);
        match rows.errors.as_slice() {
            [] => {
                let column = rows.rows.column(0);
                if column.is_null(0) {
                    "NULL".to_owned()
                } else {
                    array_value_to_string(column, 0).unwrap()
                }
            }
            [(0, error)] => {
                assert!(
                    error.location == "v" || error.location.starts_with("v."),
                    "{error:?}"
                );
                error.message.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    const NUMERIC: Kind = Kind::Numeric {
        precision: None,
        scale: None,
    };
    const TEXT: Kind = Kind::String { max_length: None };

    #[test]
    fn every_type_is_read_in_each_of_its_spellings() {
        let bytes = Kind::Bytes { max_length: None };
        let big = Kind::BigNumeric {
            precision: None,
            scale: None,
        };
        for (kind, json, want) in [
            (Kind::Bool, json!(true), "true"),
            (Kind::Bool, json!("FALSE"), "false"),
            (Kind::Bool, json!("y"), "true"),
            (Kind::Bool, json!(0), "false"),
            (Kind::Int64, json!(-5), "-5"),
            (Kind::Int64, json!("-9223372036854775808"), "-9223372036854775808"),
            (Kind::Int64, json!(1e3), "1000"),
            (Kind::Float64, json!(1.5), "1.5"),
            (Kind::Float64, json!(3), "3.0"),
            (Kind::Float64, json!("-2.5e3"), "-2500.0"),
            (Kind::Float64, json!("NaN"), "NaN"),
            (Kind::Float64, json!("-Infinity"), "-inf"),
            (NUMERIC, json!(1.1), "1.100000000"),
            (NUMERIC, json!("-0.0000000005"), "-0.000000001"),
            (big, json!("1e-38"), "0.00000000000000000000000000000000000001"),
            (TEXT, json!("a\"b"), "a\"b"),
            (TEXT, json!(12), "12"),
            (bytes.clone(), json!("AP+A"), "00ff80"),
            (bytes.clone(), json!("AP-A"), "00ff80"),
            (bytes, json!("AA"), "00"),
            (Kind::Date, json!("2020-02-29"), "2020-02-29"),
            (Kind::Time, json!("12:34:56.5"), "12:34:56.500"),
            (
                Kind::Datetime,
                json!("2020-01-02T03:04:05"),
                "2020-01-02T03:04:05",
            ),
            (
                Kind::Datetime,
                json!("2020-01-02 03:04:05.000001"),
                "2020-01-02T03:04:05.000001",
            ),
            // The documentation's own.
            (Kind::Timestamp, json!("2018-08-19T12:11"), "2018-08-19T12:11:00Z"),
            (Kind::Timestamp, json!("2018/08/19T12:11"), "2018-08-19T12:11:00Z"),
            (
                Kind::Timestamp,
                json!("2018-08-19T12:11:35.22"),
                "2018-08-19T12:11:35.220Z",
            ),
            (
                Kind::Timestamp,
                json!("2018-07-05T12:54:00 UTC"),
                "2018-07-05T12:54:00Z",
            ),
            (
                Kind::Timestamp,
                json!("2018-08-19T07:11:35.220 -05:00"),
                "2018-08-19T12:11:35.220Z",
            ),
            (
                Kind::Timestamp,
                json!("2018-08-19T12:11:35.220Z"),
                "2018-08-19T12:11:35.220Z",
            ),
            (Kind::Timestamp, json!(1_534_680_695), "2018-08-19T12:11:35Z"),
            (Kind::Timestamp, json!(1.534680695e12), "2018-08-19T12:11:35Z"),
            (
                Kind::Timestamp,
                json!("1534680695.000001"),
                "2018-08-19T12:11:35.000001Z",
            ),
            // Google's Node tests: what is finer is cut off.
            (
                Kind::Timestamp,
                json!("2023-01-01T12:00:00.123456789123Z"),
                "2023-01-01T12:00:00.123456Z",
            ),
            (
                Kind::Timestamp,
                json!("1969-12-31T23:59:59.9999999Z"),
                "1969-12-31T23:59:59.999999Z",
            ),
            (
                Kind::TimestampPicoseconds,
                json!("1970-01-01T00:00:01.123456789123Z"),
                "1.123456789123",
            ),
            (Kind::TimestampPicoseconds, json!(-1), "-1.000000000000"),
            (Kind::Json, json!("{\"a\": [1]}"), "{\"a\": [1]}"),
            (Kind::Json, json!(1.5), "1.5"),
            (Kind::Geography, json!("POINT(1 2)"), "POINT(1 2)"),
            (
                Kind::Interval,
                json!("1-2 3 4:5:6.7"),
                "{months: 14, days: 3, microseconds: 14706700000}",
            ),
            (
                Kind::Interval,
                json!("P-10000Y0M-3660000DT-87840000H0M0S"),
                "{months: -120000, days: -3660000, microseconds: -316224000000000000}",
            ),
            (
                Kind::Range(RangeElement::Date),
                json!({ "start": "2020-01-01", "end": null }),
                "{start: 2020-01-01, end: }",
            ),
            (
                Kind::Range(RangeElement::Timestamp),
                json!("[UNBOUNDED, 2020-01-01 00:00:00)"),
                "{start: , end: 2020-01-01T00:00:00Z}",
            ),
            (Kind::Range(RangeElement::Datetime), json!({}), "{start: , end: }"),
            (Kind::Interval, Value::Null, "NULL"),
        ] {
            assert_eq!(value(&kind, &json), want, "{json}");
        }
    }

    #[test]
    fn what_a_type_cannot_be_is_said() {
        let integer = "Cannot convert value to integer (bad value).";
        let stamp = "Could not parse the value as a timestamp. Required format is YYYY-MM-DD HH:MM[:SS[.SSSSSS]] or \
                     YYYY/MM/DD HH:MM[:SS[.SSSSSS]]";
        let range = || Kind::Range(RangeElement::Date);
        for (kind, json, want) in [
            (
                Kind::Bool,
                json!("maybe"),
                "Cannot convert value to boolean (bad value).",
            ),
            (Kind::Int64, json!("abc"), integer),
            (Kind::Int64, json!(1.5), integer),
            (Kind::Int64, json!(true), integer),
            (Kind::Int64, json!(9_223_372_036_854_775_808_u64), integer),
            (Kind::Int64, json!("1.0"), integer),
            (
                Kind::Float64,
                json!("much"),
                "Cannot convert value to floating point (bad value).",
            ),
            (
                Kind::Float64,
                json!(true),
                "Cannot convert value to floating point (bad value).",
            ),
            (NUMERIC, json!("x"), "Invalid NUMERIC value."),
            (
                NUMERIC,
                json!("1e29"),
                "Invalid NUMERIC value: out of range on field v.",
            ),
            (
                TEXT,
                json!(true),
                "Conversion from bool to string is unsupported.",
            ),
            (
                Kind::String { max_length: Some(1) },
                json!("ab"),
                "Field v: STRING(1) has maximum length 1 but got a value with length 2 on field v.",
            ),
            (
                Kind::Bytes { max_length: None },
                json!("*"),
                "Could not decode base64 string to bytes.",
            ),
            (Kind::Date, json!("2020-02-30"), "Invalid DATE value."),
            (Kind::Time, json!("25:00:00"), "Invalid TIME value."),
            (
                Kind::Datetime,
                json!("2020-01-01 00:00:00Z"),
                "Invalid DATETIME value.",
            ),
            (Kind::Timestamp, json!("yesterday"), stamp),
            (Kind::Timestamp, json!("9999-12-31 23:59:59-01:00"), stamp),
            (Kind::Timestamp, json!(1e30), stamp),
            (Kind::Json, json!("{a}"), "Invalid JSON on field v."),
            (Kind::Json, json!({ "a": 1 }), "This field: v is not a record."),
            (Kind::Interval, json!("1 day"), "Invalid INTERVAL value."),
            (range(), json!("[2020-01-01)"), "Invalid RANGE value."),
            (
                range(),
                json!({ "start": "2020-01-02", "end": "2020-01-01" }),
                "Range start element must be smaller than range end element on field v.",
            ),
            (range(), json!({ "start": "x" }), "Invalid DATE value."),
            (range(), json!({ "begin": null }), "no such field: v.begin."),
            (
                Kind::Int64,
                json!([1]),
                "Array specified for non-repeated field: v.",
            ),
            (
                Kind::Struct(vec![Column::new("a", Kind::Int64, Mode::Nullable)]),
                json!("a"),
                "Cannot convert string to a record field: v.",
            ),
        ] {
            assert_eq!(value(&kind, &json), want, "{json}");
        }
    }

    #[test]
    fn rows_are_judged_one_by_one() {
        let inner = vec![
            Column::new("n", Kind::Int64, Mode::Required),
            Column::new("t", TEXT, Mode::Repeated),
        ];
        let columns = || {
            vec![
                Column::new("Id", Kind::Int64, Mode::Required),
                Column::new("r", Kind::Struct(inner.clone()), Mode::Repeated),
                Column {
                    default_value_expression: Some("CURRENT_TIMESTAMP()".to_owned()),
                    ..Column::new("at", Kind::Timestamp, Mode::Nullable)
                },
            ]
        };
        let rows = json!([
            { "id": 1, "r": [{ "N": 1, "t": ["a", "b"] }, { "n": "2" }] },
            { "ID": 2, "at": null },
            { "r": [] },
            { "id": 4, "r": [{ "n": 1 }, { "t": [] }] },
            { "id": 5, "x": 1 },
            { "id": 6, "r": [{ "n": 1, "y": 1 }] },
            { "id": 7, "r": null },
            { "id": 8, "r": [null] },
            { "id": 9, "Id": 9 },
            { "id": null },
            [10],
            { "id": 11, "r": { "n": 1 } },
            { "id": 12, "at": "1970-01-01 00:00:02" },
        ]);
        let read_all = |ignore| {
            let rows = read(columns(), rows.clone(), ignore);
            let lines: Vec<String> = (0..rows.rows.num_rows())
                .map(|row| {
                    let cells = rows
                        .rows
                        .columns()
                        .iter()
                        .map(|column| array_value_to_string(column, row).unwrap());
                    cells.collect::<Vec<_>>().join(" | ")
                })
                .collect();
            let errors: Vec<(usize, String, String)> = rows
                .errors
                .into_iter()
                .map(|(at, error)| (at, error.location, error.message))
                .collect();
            (lines, errors)
        };
        let (lines, errors) = read_all(false);
        assert_eq!(
            lines,
            [
                "1 | [{n: 1, t: [a, b]}, {n: 2, t: []}] | 1970-01-01T00:00:01.500Z",
                "2 | [] | ",
                "12 | [] | 1970-01-01T00:00:02Z",
            ]
        );
        let error = |at: usize, location: &str, message: &str| (at, location.to_owned(), message.to_owned());
        assert_eq!(
            errors,
            [
                error(2, "Id", "Missing required field: Id."),
                error(3, "r[1].n", "Missing required field: r[1].n."),
                error(4, "x", "no such field: x."),
                error(5, "r[0].y", "no such field: r[0].y."),
                error(6, "r", "Field value of r cannot be empty."),
                error(7, "r[0]", "Only optional fields can be set to NULL."),
                error(8, "id", "The field is there twice."),
                error(9, "Id", "Missing required field: Id."),
                error(10, "", "The row is not a JSON object."),
                error(11, "r", "The repeated field r is not a JSON array."),
            ]
        );
        let (lines, errors) = read_all(true);
        let ids: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(ids, ["1", "2", "5", "6", "12"]);
        assert_eq!(
            errors.iter().map(|error| error.0).collect::<Vec<_>>(),
            [2, 3, 6, 7, 8, 9, 10, 11]
        );
    }

    #[test]
    fn an_error_has_insert_alls_shape() {
        let error = JsonError {
            location: "a".to_owned(),
            message: "no such field: a.".to_owned(),
        };
        assert_eq!(
            error.proto(),
            json!({ "reason": "invalid", "location": "a", "debugInfo": "", "message": "no such field: a." })
        );
    }
}
