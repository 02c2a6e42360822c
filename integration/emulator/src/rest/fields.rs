//! A table's schema in REST's JSON.

use serde_json::{Map, Value, json};

use crate::description::ROUNDING;
use crate::rest::error::ApiError;
use crate::schema::{Column, Kind, Mode, RangeElement, Schema};

/// Properties of a field that this emulator does not have.
const NOT_SUPPORTED: [&str; 6] = [
    "collation",
    "dataPolicies",
    "foreignTypeDefinition",
    "generatedColumn",
    "policyTags",
    "roundingMode",
];

/// Reads `{"fields": [...]}`; both spellings of each type are accepted.
///
/// # Errors
/// 400 `invalid` that names the field.
pub(crate) fn read_schema(json: &Value) -> Result<Schema, ApiError> {
    if !matches!(json, Value::Null | Value::Object(_)) {
        return Err(ApiError::invalid(
            "Invalid schema: it must be an object with the list fields",
        ));
    }
    let fields = json.get("fields").unwrap_or(&Value::Null);
    let columns = read_fields(fields, "")?;
    let schema = Schema { columns };
    schema.check()?;
    Ok(schema)
}

/// Writes `{"fields": [...]}` with REST's type names (INTEGER, FLOAT, BOOLEAN, RECORD).
pub(crate) fn write_schema(schema: &Schema) -> Value {
    json!({ "fields": write_fields(&schema.columns) })
}

fn read_fields(json: &Value, within: &str) -> Result<Vec<Column>, ApiError> {
    match json {
        Value::Null => Ok(Vec::new()),
        Value::Array(fields) => fields.iter().map(|field| read_field(field, within)).collect(),
        _ => Err(ApiError::invalid("Invalid schema: fields must be an array")),
    }
}

fn read_field(json: &Value, within: &str) -> Result<Column, ApiError> {
    let name = text(json, "name").unwrap_or_default();
    let path = path(within, name);
    let mode = match text(json, "mode").unwrap_or("").to_ascii_uppercase().as_str() {
        "" | "NULLABLE" => Mode::Nullable,
        "REQUIRED" => Mode::Required,
        "REPEATED" => Mode::Repeated,
        other => {
            return Err(ApiError::invalid(format!(
                "Invalid mode for field {path}: {other}"
            )));
        }
    };
    check_supported(json, &path)?;
    let default = text(json, "defaultValueExpression").filter(|sql| !sql.is_empty());
    Ok(Column {
        name: name.to_owned(),
        kind: read_kind(json, &path)?,
        mode,
        description: text(json, "description").unwrap_or_default().to_owned(),
        default_value_expression: default.map(str::to_owned),
    })
}

/// What would change values, and is not done here.
fn check_supported(json: &Value, path: &str) -> Result<(), ApiError> {
    let is_default = |key: &str, value: &Value| match value {
        Value::Null => true,
        Value::String(text) => match key {
            "roundingMode" => ROUNDING.contains(&text.as_str()),
            _ => text.is_empty(),
        },
        Value::Array(list) => list.is_empty(),
        // A policy of no tags.
        Value::Object(fields) => fields
            .values()
            .all(|value| value.as_array().is_some_and(Vec::is_empty)),
        _ => false,
    };
    let set = NOT_SUPPORTED
        .iter()
        .find(|key| json.get(**key).is_some_and(|value| !is_default(key, value)));
    match set {
        None => Ok(()),
        Some(key) => {
            let text = format!("This emulator does not support {key} (field {path})");
            Err(ApiError::new(501, "notImplemented", text))
        }
    }
}

fn read_kind(json: &Value, path: &str) -> Result<Kind, ApiError> {
    let name = text(json, "type").unwrap_or_default();
    let digits = |key| -> Result<Option<u8>, ApiError> {
        let number = number(json, key, path)?;
        let small = number.map(u8::try_from).transpose();
        small.map_err(|_| ApiError::invalid(format!("Invalid {key} for field {path}")))
    };
    Ok(match name.to_ascii_uppercase().as_str() {
        "BOOL" | "BOOLEAN" => Kind::Bool,
        "INT64" | "INTEGER" => Kind::Int64,
        "FLOAT64" | "FLOAT" => Kind::Float64,
        "NUMERIC" => {
            let (precision, scale) = (digits("precision")?, digits("scale")?);
            Kind::Numeric { precision, scale }
        }
        "BIGNUMERIC" => {
            let (precision, scale) = (digits("precision")?, digits("scale")?);
            Kind::BigNumeric { precision, scale }
        }
        "STRING" => Kind::String {
            max_length: number(json, "maxLength", path)?,
        },
        "BYTES" => Kind::Bytes {
            max_length: number(json, "maxLength", path)?,
        },
        "DATE" => Kind::Date,
        "TIME" => Kind::Time,
        "DATETIME" => Kind::Datetime,
        "TIMESTAMP" => match number(json, "timestampPrecision", path)? {
            None | Some(6) => Kind::Timestamp,
            Some(12) => Kind::TimestampPicoseconds,
            Some(_) => {
                let text = format!("Invalid timestampPrecision for field {path}: it must be 6 or 12");
                return Err(ApiError::invalid(text));
            }
        },
        "INTERVAL" => Kind::Interval,
        "RANGE" => Kind::Range(read_element(json, path)?),
        "JSON" => Kind::Json,
        "GEOGRAPHY" => Kind::Geography,
        "STRUCT" | "RECORD" => Kind::Struct(read_fields(json.get("fields").unwrap_or(&Value::Null), path)?),
        "" => return Err(ApiError::invalid(format!("Field {path} has no type"))),
        _ => {
            let text = format!("Invalid value for type: {name} is not a valid value (field {path})");
            return Err(ApiError::invalid(text));
        }
    })
}

/// `"rangeElementType": {"type": "DATE"}`.
fn read_element(json: &Value, path: &str) -> Result<RangeElement, ApiError> {
    let element = json.get("rangeElementType").unwrap_or(&Value::Null);
    match text(element, "type")
        .unwrap_or_default()
        .to_ascii_uppercase()
        .as_str()
    {
        "DATE" => Ok(RangeElement::Date),
        "DATETIME" => Ok(RangeElement::Datetime),
        "TIMESTAMP" => Ok(RangeElement::Timestamp),
        _ => Err(ApiError::invalid(format!(
            "Invalid rangeElementType for field {path}: it must be DATE, DATETIME or TIMESTAMP"
        ))),
    }
}

fn write_fields(columns: &[Column]) -> Value {
    columns.iter().map(write_field).collect()
}

fn write_field(column: &Column) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), column.name.as_str().into());
    json.insert("type".into(), column.kind.legacy_name().into());
    json.insert("mode".into(), mode_name(column.mode).into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            json.insert(key.into(), value);
        }
    };
    let text = |number: i64| Value::String(number.to_string());
    match &column.kind {
        Kind::Numeric { precision, scale } | Kind::BigNumeric { precision, scale } => {
            put("precision", precision.map(|n| text(n.into())));
            put("scale", scale.map(|n| text(n.into())));
        }
        Kind::String { max_length } | Kind::Bytes { max_length } => put("maxLength", max_length.map(text)),
        Kind::Struct(columns) => put("fields", Some(write_fields(columns))),
        Kind::TimestampPicoseconds => put("timestampPrecision", Some(text(12))),
        Kind::Range(element) => {
            let element = Kind::from(*element).sql_name();
            put("rangeElementType", Some(json!({ "type": element })));
        }
        _ => {}
    }
    put(
        "description",
        Some(column.description.as_str())
            .filter(|text| !text.is_empty())
            .map(Value::from),
    );
    let default = column.default_value_expression.as_deref();
    put("defaultValueExpression", default.map(Value::from));
    Value::Object(json)
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Nullable => "NULLABLE",
        Mode::Required => "REQUIRED",
        Mode::Repeated => "REPEATED",
    }
}

fn path(within: &str, name: &str) -> String {
    if within.is_empty() {
        name.to_owned()
    } else {
        format!("{within}.{name}")
    }
}

fn text<'a>(json: &'a Value, key: &str) -> Option<&'a str> {
    json.get(key).and_then(Value::as_str)
}

/// REST writes 64-bit numbers as strings; clients also send plain ones.
fn number(json: &Value, key: &str, path: &str) -> Result<Option<i64>, ApiError> {
    let number = match json.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_i64(),
    };
    match number {
        Some(0) if key == "maxLength" || key == "precision" => Ok(None),
        Some(number) if number >= 0 => Ok(Some(number)),
        _ => Err(ApiError::invalid(format!("Invalid {key} for field {path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_all_types_survives_the_way_through_json() {
        let nested = vec![
            Column::new("x", Kind::Int64, Mode::Nullable),
            Column::new("y", Kind::Json, Mode::Repeated),
        ];
        let kinds = [
            Kind::Bool,
            Kind::Int64,
            Kind::Float64,
            Kind::Numeric {
                precision: None,
                scale: None,
            },
            Kind::Numeric {
                precision: Some(10),
                scale: Some(2),
            },
            Kind::BigNumeric {
                precision: Some(38),
                scale: None,
            },
            Kind::String { max_length: None },
            Kind::Bytes { max_length: Some(16) },
            Kind::Date,
            Kind::Time,
            Kind::Datetime,
            Kind::Timestamp,
            Kind::Json,
            Kind::Geography,
            Kind::TimestampPicoseconds,
            Kind::Interval,
            Kind::Range(RangeElement::Date),
            Kind::Range(RangeElement::Datetime),
            Kind::Range(RangeElement::Timestamp),
            Kind::Struct(nested),
        ];
        let modes = [Mode::Nullable, Mode::Required, Mode::Repeated];
        let column = |(i, kind)| Column {
            description: if i == 3 { "text".to_owned() } else { String::new() },
            default_value_expression: (i == 4).then(|| "1.5".to_owned()),
            ..Column::new(format!("c{i}"), kind, modes[i % 3])
        };
        let schema = Schema {
            columns: kinds.into_iter().enumerate().map(column).collect(),
        };
        assert_eq!(read_schema(&write_schema(&schema)), Ok(schema));
    }

    #[test]
    fn both_spellings_of_a_type_are_one_type_and_rest_writes_the_older() {
        for (new, old) in [
            ("INT64", "INTEGER"),
            ("FLOAT64", "FLOAT"),
            ("BOOL", "BOOLEAN"),
            ("STRUCT", "RECORD"),
            ("string", "STRING"),
        ] {
            let field = |name: &str| {
                let fields = json!([{ "name": "x", "type": "INTEGER", "mode": "NULLABLE" }]);
                let mut field = json!({ "name": "a", "type": name, "mode": "NULLABLE" });
                if old == "RECORD" {
                    field["fields"] = fields;
                }
                json!({ "fields": [field] })
            };
            assert_eq!(
                write_schema(&read_schema(&field(new)).unwrap()),
                field(old),
                "{new}"
            );
        }
    }

    #[test]
    fn a_bad_field_is_refused_by_name() {
        let mut deep = json!({ "name": "leaf", "type": "BOOL" });
        for _ in 0..16 {
            deep = json!({ "name": "s", "type": "STRUCT", "fields": [deep] });
        }
        for (field, text) in [
            (json!({ "type": "BOOL" }), "Invalid field name \"\". Fields must"),
            (
                json!({ "name": "a.b", "type": "BOOL" }),
                "Invalid field name \"a.b\"",
            ),
            (json!({ "name": "a" }), "Field a has no type"),
            (
                json!({ "name": "a", "type": "MONEY" }),
                "Invalid value for type: MONEY",
            ),
            (
                json!({ "name": "a", "type": "BOOL", "mode": "MAYBE" }),
                "Invalid mode for field a: MAYBE",
            ),
            (
                json!({ "name": "a", "type": "RECORD" }),
                "Field a is type RECORD but has no schema",
            ),
            (
                json!({ "name": "a", "type": "NUMERIC", "precision": "50" }),
                "Invalid precision or scale",
            ),
            (
                json!({ "name": "a", "type": "NUMERIC", "scale": 3 }),
                "Invalid precision or scale",
            ),
            (
                json!({ "name": "a", "type": "STRING", "maxLength": "-1" }),
                "Invalid maxLength for field a",
            ),
            (deep, "is nested too deep: the most is 15 levels"),
            (
                json!({ "name": "a", "type": "RANGE", "rangeElementType": { "type": "INTEGER" } }),
                "Invalid rangeElementType for field a: it must be DATE, DATETIME or TIMESTAMP",
            ),
            (
                json!({ "name": "a", "type": "RANGE" }),
                "Invalid rangeElementType for field a: it must be DATE, DATETIME or TIMESTAMP",
            ),
            (
                json!({ "name": "a", "type": "TIMESTAMP", "timestampPrecision": "9" }),
                "Invalid timestampPrecision for field a: it must be 6 or 12",
            ),
        ] {
            let error = read_schema(&json!({ "fields": [field] })).unwrap_err();
            assert_eq!((error.code, error.reason), (400, "invalid"), "{text}");
            assert!(error.message.contains(text), "{}", error.message);
        }
    }

    #[test]
    fn the_three_youngest_types_are_written_as_google_does() {
        let columns = vec![
            Column::new("i", Kind::Interval, Mode::Nullable),
            Column::new("r", Kind::Range(RangeElement::Datetime), Mode::Repeated),
            Column::new("p", Kind::TimestampPicoseconds, Mode::Required),
            Column::new("t", Kind::Timestamp, Mode::Nullable),
        ];
        assert_eq!(
            write_schema(&Schema { columns }),
            json!({ "fields": [
                { "name": "i", "type": "INTERVAL", "mode": "NULLABLE" },
                { "name": "r", "type": "RANGE", "mode": "REPEATED", "rangeElementType": { "type": "DATETIME" } },
                { "name": "p", "type": "TIMESTAMP", "mode": "REQUIRED", "timestampPrecision": "12" },
                { "name": "t", "type": "TIMESTAMP", "mode": "NULLABLE" },
            ] })
        );
        let micros = json!({ "fields": [{ "name": "t", "type": "TIMESTAMP", "timestampPrecision": 6 }] });
        assert_eq!(read_schema(&micros).unwrap().columns[0].kind, Kind::Timestamp);
    }
}
