//! JSON lines to columns. The fast way takes a whole batch; if that fails, line by line finds which one is wrong and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bigquery_write_proto::rows::lone_surrogate;
use serde::de::{Deserialize as _, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, de};
use serde_json::value::RawValue;

use super::numbers;
use crate::sql::{is_json, sql_name};

const UNNAMED: &str = "a value does not have the type of its column";

/// Decodes lines against the declared columns.
#[derive(Debug)]
pub(super) struct JsonDecoder {
    declared: SchemaRef,
    /// The same columns, all nullable: a missing required one is then found with its line.
    lenient: SchemaRef,
    /// Columns that keep their JSON text.
    raw: BTreeSet<String>,
    /// The row as a type, if it has numbers in it, or times, which are whole numbers too.
    numbers: Option<DataType>,
}

impl JsonDecoder {
    /// Fails, with the reason, for a column type that JSON cannot hold.
    pub(super) fn new(declared: SchemaRef) -> Result<Self, String> {
        let nullable = declared
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true));
        let lenient: SchemaRef = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let raw = lenient
            .fields()
            .iter()
            .filter(|field| is_json(field))
            .map(|field| field.name().clone())
            .collect();
        let row = DataType::Struct(lenient.fields().clone());
        let numbers = has_numbers(&row).then_some(row);
        let decoder = Self {
            declared,
            lenient,
            raw,
            numbers,
        };
        decoder.builder(1).map_err(|error| match error {
            ArrowError::JsonError(text) | ArrowError::NotYetImplemented(text) => text,
            other => other.to_string(),
        })?;
        Ok(decoder)
    }

    /// One row a line, if none of them is wrong.
    pub(super) fn decode(&self, lines: &[&[u8]]) -> Option<RecordBatch> {
        self.check(lines).ok()
    }

    fn builder(&self, rows: usize) -> Result<Decoder, ArrowError> {
        ReaderBuilder::new(Arc::clone(&self.lenient))
            .with_batch_size(rows)
            .build_decoder()
    }

    fn check(&self, lines: &[&[u8]]) -> Result<RecordBatch, String> {
        for line in lines {
            // Arrow refuses it as well, but not in what a JSON column keeps, and without a word where it is.
            if let Some(at) = lone_surrogate(line) {
                let column = at + 1;
                return Err(format!(
                    "it is not JSON: half of a surrogate pair alone at column {column}"
                ));
            }
        }
        if let Some(row) = &self.numbers {
            for line in lines {
                check_numbers(row, line)?;
            }
        }
        let batch = self.columns(lines).map_err(|error| self.reason(&error))?;
        if batch.num_rows() != lines.len() {
            return Err("it does not hold exactly one object".into());
        }
        for (field, column) in self.declared.fields().iter().zip(batch.columns()) {
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(format!("column {} is NOT NULL but missing or null", field.name()));
            }
        }
        RecordBatch::try_new(Arc::clone(&self.declared), batch.columns().to_vec())
            .map_err(|_| "it does not fit the declared columns".to_owned())
    }

    fn columns(&self, lines: &[&[u8]]) -> Result<RecordBatch, ArrowError> {
        // One row more than there are lines, so that a line with two objects shows as a row too many.
        let mut decoder = self.builder(lines.len() + 1)?;
        for line in lines {
            if self.raw.is_empty() {
                feed(&mut decoder, line)?;
            } else {
                feed(&mut decoder, &self.with_raw_text(line)?)?;
            }
            feed(&mut decoder, b"\n")?;
        }
        let empty = || RecordBatch::new_empty(Arc::clone(&self.lenient));
        Ok(decoder.flush()?.unwrap_or_else(empty))
    }

    /// The line with the values of JSON columns turned into strings that hold their text.
    fn with_raw_text(&self, line: &[u8]) -> Result<Vec<u8>, ArrowError> {
        let wrong = |error: serde_json::Error| ArrowError::JsonError(error.to_string());
        let object: BTreeMap<String, &RawValue> = serde_json::from_slice(line).map_err(wrong)?;
        let mut text = BTreeMap::new();
        for (name, value) in object {
            let as_text = self.raw.contains(&name) && value.get() != "null";
            let value = if as_text {
                serde_json::value::to_raw_value(value.get()).map_err(wrong)?
            } else {
                value.to_owned()
            };
            text.insert(name, value);
        }
        serde_json::to_vec(&text).map_err(wrong)
    }

    /// What is wrong with a line.
    pub(super) fn bad_alone(&self, line: &[u8]) -> Option<String> {
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
            return Some(not_json(&error));
        }
        if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Some("it is JSON, but not an object".into());
        }
        let reason = self.check(&[line]).err()?;
        Some(if reason == UNNAMED {
            self.culprit(line).unwrap_or(reason)
        } else {
            reason
        })
    }

    /// The first column that fails on its own: of a decimal, Arrow's error names none.
    fn culprit(&self, line: &[u8]) -> Option<String> {
        let mut fields = self.lenient.fields().iter();
        let field = fields.find(|field| {
            let alone: SchemaRef = Arc::new(Schema::new(vec![Arc::clone(field)]));
            Self::new(alone).is_ok_and(|decoder| decoder.columns(&[line]).is_err())
        })?;
        Some(format!(
            "column {} is not {}",
            field.name(),
            sql_name(field.data_type())
        ))
    }

    /// Names the column an Arrow error is about; the rest of its text shows values and is left out.
    fn reason(&self, error: &ArrowError) -> String {
        let text = error.to_string();
        let path: Vec<_> = text
            .split("whilst decoding field '")
            .skip(1)
            .filter_map(|part| part.split('\'').next())
            .collect();
        let mut fields: Vec<&Field> = self.lenient.fields().iter().map(AsRef::as_ref).collect();
        let mut named = Vec::new();
        let mut wanted = None;
        for name in path {
            // List items are decoded under the list's own name.
            let Some(field) = fields.iter().find(|field| field.name() == name) else {
                break;
            };
            named.push(name);
            wanted = Some(field.data_type());
            fields = children(field.data_type());
        }
        match wanted {
            Some(wanted) => format!("column {} is not {}", named.join("."), sql_name(wanted)),
            None => UNNAMED.into(),
        }
    }
}

fn feed(decoder: &mut Decoder, bytes: &[u8]) -> Result<(), ArrowError> {
    let read = decoder.decode(bytes)?;
    if read == bytes.len() {
        Ok(())
    } else {
        Err(ArrowError::JsonError("more than one object in a line".into()))
    }
}

fn children(data_type: &DataType) -> Vec<&Field> {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
        DataType::List(item) => children(item.data_type()),
        _ => Vec::new(),
    }
}

/// The parser's message names no value, only what it expected; its line number is always 1.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or("malformed").to_owned();
    format!("it is not JSON: {what} at column {}", error.column())
}

fn has_numbers(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| has_numbers(field.data_type())),
        DataType::List(item) => has_numbers(item.data_type()),
        other => numbers::is_judged(other),
    }
}

/// Refuses numbers of which the decoder would keep others than are written: fractions of whole numbers, digits behind the last of a
/// decimal, floats beyond their range.
fn check_numbers(row: &DataType, line: &[u8]) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let check = Numbers {
        data_type: row,
        path: "",
    };
    check.deserialize(&mut deserializer).map_err(|error| {
        if error.is_data() {
            error
                .to_string()
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned()
        } else {
            not_json(&error)
        }
    })
}

struct Numbers<'a> {
    data_type: &'a DataType,
    path: &'a str,
}

impl<'de> DeserializeSeed<'de> for Numbers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if numbers::is_judged(self.data_type) {
            let value = <&RawValue>::deserialize(deserializer)?;
            numbers::judge(self.data_type, self.path, value.get()).map_err(de::Error::custom)
        } else if has_numbers(self.data_type) {
            deserializer.deserialize_any(self)
        } else {
            deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ())
        }
    }
}

impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields: Vec<&Field> = match self.data_type {
            DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
            _ => Vec::new(),
        };
        while let Some(key) = map.next_key::<String>()? {
            match fields.iter().find(|field| *field.name() == key) {
                Some(field) => {
                    let path = if self.path.is_empty() {
                        key
                    } else {
                        format!("{}.{key}", self.path)
                    };
                    map.next_value_seed(Numbers {
                        data_type: field.data_type(),
                        path: &path,
                    })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let item = match self.data_type {
            DataType::List(item) => item.data_type(),
            _ => &DataType::Null,
        };
        while items
            .next_element_seed(Numbers {
                data_type: item,
                path: self.path,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{EXTENSION_NAME, JSON_EXTENSION};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, Time64NanosecondType, TimestampMicrosecondType};
    use arrow_schema::TimeUnit;

    fn decoder(fields: Vec<Field>) -> JsonDecoder {
        JsonDecoder::new(Arc::new(Schema::new(fields))).unwrap()
    }

    fn point() -> JsonDecoder {
        let inner = DataType::Struct(
            vec![
                Field::new("x", DataType::Int64, true),
                Field::new("y", DataType::Float64, true),
            ]
            .into(),
        );
        decoder(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("at", inner, true),
            Field::new("name", DataType::Utf8, true),
        ])
    }

    #[test]
    fn each_wrong_line_is_named_with_its_column_and_no_value() {
        let good: &[u8] = br#"{"id": 1, "at": {"x": 1, "y": 0.5}, "name": "a"}"#;
        let half = "it is not JSON: half of a surrogate pair alone at column";
        let (in_text, in_other, in_name) = (format!("{half} 20"), format!("{half} 28"), format!("{half} 12"));
        let cases: [(&[u8], &str); 14] = [
            (
                br#"{"id": 2"#,
                "it is not JSON: EOF while parsing an object at column 8",
            ),
            (
                br#"{"id": 2,, "name": 1}"#,
                "it is not JSON: key must be a string at column 10",
            ),
            (
                br#"{"id": 2} {"id": 3}"#,
                "it is not JSON: trailing characters at column 11",
            ),
            (b"[1, 2]", "it is JSON, but not an object"),
            (b"secret", "it is not JSON: expected value at column 1"),
            (br#"{"id": "secret"}"#, "column id is not BIGINT"),
            (
                br#"{"id": 2, "at": {"x": "secret"}}"#,
                "column at.x is not BIGINT",
            ),
            (br#"{"id": 2, "at": {"x": 1.5}}"#, "column at.x is not BIGINT"),
            (br#"{"id": 99999999999999999999}"#, "column id is not BIGINT"),
            (
                br#"{"name": "secret"}"#,
                "column id is NOT NULL but missing or null",
            ),
            (br#"{"id": 2, "name": {"secret": 1}}"#, "column name is not TEXT"),
            (br#"{"id": 2, "name": "\ud800"}"#, &in_text),
            (br#"{"id": 2, "other": ["\\", "\udc00"]}"#, &in_other),
            (br#"{"id": 2, "\ud800": 3}"#, &in_name),
        ];
        for (bad, reason) in cases {
            assert_eq!(point().decode(&[good, bad, good]), None);
            assert_eq!(point().bad_alone(good), None);
            let shown = String::from_utf8_lossy(bad);
            assert_eq!(point().bad_alone(bad).as_deref(), Some(reason), "{shown}");
        }
    }

    #[test]
    fn a_leap_second_is_the_first_of_the_next_minute() {
        let at = DataType::Timestamp(TimeUnit::Microsecond, None);
        let decoder = decoder(vec![
            Field::new("at", at, true),
            Field::new("clock", DataType::Time64(TimeUnit::Nanosecond), true),
        ]);
        let batch = decoder
            .decode(&[
                br#"{"at": "2016-12-31T23:59:60Z", "clock": "12:00:60"}"#,
                br#"{"at": "2016-12-31T23:59:60.5Z", "clock": "12:00:59.999999999"}"#,
            ])
            .unwrap();
        let at = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        // 2017-01-01T00:00:00Z.
        assert_eq!(at.values(), &[1_483_228_800_000_000, 1_483_228_800_500_000]);
        let clock = batch.column(1).as_primitive::<Time64NanosecondType>();
        assert_eq!(clock.values(), &[43_260_000_000_000, 43_259_999_999_999]);
        for wrong in ["12:00:61", "12:60:00"] {
            let line = format!(r#"{{"clock": "{wrong}"}}"#);
            assert_eq!(
                decoder.bad_alone(line.as_bytes()).as_deref(),
                Some("column clock is not TIME")
            );
        }
    }

    #[test]
    fn a_json_column_keeps_the_text_of_its_value() {
        let marker = [(EXTENSION_NAME.to_owned(), JSON_EXTENSION.to_owned())].into();
        let field = Field::new("j", DataType::Utf8, true).with_metadata(marker);
        let decoder = decoder(vec![field, Field::new("n", DataType::Int64, true)]);
        let lines: [&[u8]; 3] = [
            br#"{"n": 1, "j": {"b": 1.50, "a": [1]}}"#,
            br#"{"j": null}"#,
            br#"{"j": "text"}"#,
        ];
        let batch = decoder.decode(&lines).unwrap();
        let texts: Vec<_> = batch.column(0).as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some(r#"{"b": 1.50, "a": [1]}"#), None, Some(r#""text""#)]);
        let numbers: Vec<_> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(1), None, None]);
        let whole: &[u8] = br#"{"j": ["\ud83d\ude00", "\\ud800"]}"#;
        assert!(decoder.decode(&[whole]).is_some());
        let half: &[u8] = br#"{"j": ["\ude00\ud83d"]}"#;
        assert!(decoder.decode(&[half]).is_none());
        assert_eq!(
            decoder.bad_alone(half).as_deref(),
            Some("it is not JSON: half of a surrogate pair alone at column 9")
        );
    }
}
