//! One value of a result, from REST's texts (`{"v": "1"}`) to its own type.

use chrono::{DateTime, SecondsFormat};
use google_cloud_bigquery_v2::model::TableFieldSchema;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A value. INT64 and FLOAT64 are numbers, exact to the last digit; NUMERIC, BIGNUMERIC, NaN and infinities are text, since readers
/// of JSON take numbers for doubles; JSON is what it is; all else is text as BigQuery writes it, TIMESTAMP as RFC 3339 in UTC.
#[derive(Debug)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Json(Box<RawValue>),
    List(Vec<Self>),
    Struct(Vec<(String, Self)>),
}

impl Cell {
    /// The cells of a row (`{"f": [...]}`), one for each column.
    pub(super) fn row(row: &Map<String, Value>, columns: &[TableFieldSchema]) -> Vec<Self> {
        let cells = row.get("f").and_then(Value::as_array);
        let value = |index| cells.and_then(|cells| cells.get(index)).map(value_of);
        columns
            .iter()
            .enumerate()
            .map(|(index, column)| Self::read(value(index).unwrap_or(&Value::Null), column))
            .collect()
    }

    fn read(value: &Value, column: &TableFieldSchema) -> Self {
        match value.as_array() {
            Some(items) if column.mode == "REPEATED" => Self::List(
                items
                    .iter()
                    .map(|item| Self::one(value_of(item), column))
                    .collect(),
            ),
            _ => Self::one(value, column),
        }
    }

    fn one(value: &Value, column: &TableFieldSchema) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Object(fields) => {
                let names = column.fields.iter().map(|field| field.name.clone());
                Self::Struct(names.zip(Self::row(fields, &column.fields)).collect())
            }
            Value::String(text) => Self::scalar(text, &column.r#type),
            other => Self::Text(other.to_string()),
        }
    }

    /// A text that is not of its type stays what it is: nothing is made up.
    fn scalar(text: &str, kind: &str) -> Self {
        let typed = match kind {
            "INTEGER" | "INT64" => text.parse().ok().map(Self::Integer),
            "FLOAT" | "FLOAT64" => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Self::Float),
            "BOOLEAN" | "BOOL" => text.to_ascii_lowercase().parse().ok().map(Self::Bool),
            "TIMESTAMP" => text.parse().ok().and_then(timestamp).map(Self::Text),
            "RANGE" => range_of_timestamps(text).map(Self::Text),
            "JSON" => RawValue::from_string(text.to_owned()).ok().map(Self::Json),
            _ => None,
        };
        typed.unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// Its JSON, on one line.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("keys are text and numbers are finite")
    }

    /// For people and CSV; `None` for NULL.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            other => Some(other.json()),
        }
    }
}

fn value_of(cell: &Value) -> &Value {
    cell.get("v").unwrap_or(&Value::Null)
}

fn timestamp(micros: i64) -> Option<String> {
    DateTime::from_timestamp_micros(micros).map(|time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// The bounds of a `RANGE<TIMESTAMP>` come as TIMESTAMPs do, in microseconds; `None` for other ranges, whose bounds are no numbers.
fn range_of_timestamps(text: &str) -> Option<String> {
    let (start, end) = text.strip_prefix('[')?.strip_suffix(')')?.split_once(", ")?;
    let bound = |text: &str| match text {
        "UNBOUNDED" => Some(text.to_owned()),
        micros => timestamp(micros.parse().ok()?),
    };
    Some(format!("[{}, {})", bound(start)?, bound(end)?))
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Json(raw) => raw.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Struct(fields) => serializer.collect_map(fields.iter().map(|(name, cell)| (name, cell))),
        }
    }
}

/// A record, quoted as RFC 4180 says, ended by a newline. NULL is nothing, an empty text is `""`.
pub(super) fn csv_line(fields: impl Iterator<Item = Option<String>>) -> String {
    let fields: Vec<String> = fields
        .map(|field| field.map_or_else(String::new, csv_field))
        .collect();
    let mut line = fields.join(",");
    line.push('\n');
    line
}

fn csv_field(text: String) -> String {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: &str, mode: &str) -> TableFieldSchema {
        TableFieldSchema::new()
            .set_name("c")
            .set_type(kind)
            .set_mode(mode)
    }

    fn read(value: Value, column: &TableFieldSchema) -> String {
        Cell::read(&value, column).json()
    }

    #[test]
    fn every_type_becomes_its_json() {
        let nullable = |kind, text: &str| read(text.into(), &column(kind, "NULLABLE"));
        assert_eq!(nullable("INTEGER", "9223372036854775807"), "9223372036854775807");
        assert_eq!(nullable("FLOAT", "0.1"), "0.1");
        assert_eq!(nullable("FLOAT64", "NaN"), "\"NaN\"");
        assert_eq!(nullable("BOOLEAN", "true"), "true");
        assert_eq!(nullable("NUMERIC", "1.50"), "\"1.50\"");
        assert_eq!(nullable("STRING", "1"), "\"1\"");
        assert_eq!(nullable("DATE", "2026-01-02"), "\"2026-01-02\"");
        assert_eq!(
            nullable("TIMESTAMP", "1400000000000001"),
            "\"2014-05-13T16:53:20.000001Z\""
        );
        assert_eq!(nullable("TIMESTAMP", "-1000000"), "\"1969-12-31T23:59:59Z\"");
        assert_eq!(
            nullable("RANGE", "[-1000000, 1400000000000001)"),
            "\"[1969-12-31T23:59:59Z, 2014-05-13T16:53:20.000001Z)\""
        );
        assert_eq!(
            nullable("RANGE", "[UNBOUNDED, 0)"),
            "\"[UNBOUNDED, 1970-01-01T00:00:00Z)\""
        );
        assert_eq!(
            nullable("RANGE", "[2026-01-02, UNBOUNDED)"),
            "\"[2026-01-02, UNBOUNDED)\""
        );
        assert_eq!(
            nullable("JSON", r#"{"b":1,"a":12345678901234567890.5}"#),
            r#"{"b":1,"a":12345678901234567890.5}"#
        );
        assert_eq!(nullable("INTEGER", "no number"), "\"no number\"");
        assert_eq!(read(Value::Null, &column("STRING", "NULLABLE")), "null");
    }

    #[test]
    fn lists_and_structs_keep_their_order_and_types() {
        let point = column("RECORD", "REPEATED").set_fields([
            column("INTEGER", "NULLABLE").set_name("y"),
            column("STRING", "REPEATED").set_name("a"),
        ]);
        let cells = serde_json::json!([
            { "v": { "f": [{ "v": "1" }, { "v": [{ "v": "p" }, { "v": "q" }] }] } },
            { "v": { "f": [{ "v": null }, { "v": [] }] } },
        ]);
        assert_eq!(
            read(cells, &point),
            r#"[{"y":1,"a":["p","q"]},{"y":null,"a":[]}]"#
        );
    }

    #[test]
    fn csv_quotes_what_it_must_and_tells_null_from_empty() {
        let fields = [
            Some("a,b"),
            Some("say \"hi\""),
            Some("two\nlines"),
            None,
            Some(""),
            Some("plain"),
        ];
        assert_eq!(
            csv_line(fields.into_iter().map(|field| field.map(str::to_owned))),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",,\"\",plain\n"
        );
    }
}
