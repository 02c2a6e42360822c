//! A table's schema in REST's JSON.

use serde_json::{Map, Value, json};

use crate::rest::error::ApiError;
use crate::schema::{Column, Kind, Mode, Schema};

/// Nesting that BigQuery allows for STRUCT columns.
const DEEPEST: usize = 15;
/// Columns and nested fields that BigQuery allows in one table.
const MOST_FIELDS: usize = 10_000;
/// Prefixes of names that BigQuery keeps for itself (reports.md 77).
const RESERVED: [&str; 6] = [
    "_PARTITION",
    "_TABLE_",
    "_FILE_",
    "_ROW_TIMESTAMP",
    "__ROOT__",
    "_COLIDENTIFIER",
];

/// Reads `{"fields": [...]}`; both spellings of each type are accepted.
///
/// # Errors
/// 400 `invalid` that names the field.
pub(crate) fn read_schema(json: &Value) -> Result<Schema, ApiError> {
    let mut left = MOST_FIELDS;
    let fields = json.get("fields").unwrap_or(&Value::Null);
    Ok(Schema {
        columns: read_fields(fields, "", DEEPEST, &mut left)?,
    })
}

/// Writes `{"fields": [...]}` with REST's type names (INTEGER, FLOAT, BOOLEAN, RECORD).
pub(crate) fn write_schema(schema: &Schema) -> Value {
    json!({ "fields": write_fields(&schema.columns) })
}

fn read_fields(json: &Value, within: &str, depth: usize, left: &mut usize) -> Result<Vec<Column>, ApiError> {
    let fields = match json {
        Value::Null => return Ok(Vec::new()),
        Value::Array(fields) => fields,
        _ => return Err(ApiError::invalid("Invalid schema: fields must be an array")),
    };
    let mut columns: Vec<Column> = Vec::with_capacity(fields.len().min(*left));
    for field in fields {
        *left = left.checked_sub(1).ok_or_else(|| {
            ApiError::invalid(format!("Too many total leaf fields: the most is {MOST_FIELDS}"))
        })?;
        let column = read_field(field, within, depth, left)?;
        if columns.iter().any(|other| other.is_named(&column.name)) {
            let path = path(within, &column.name);
            return Err(ApiError::invalid(format!("Duplicate field name: {path}")));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn read_field(json: &Value, within: &str, depth: usize, left: &mut usize) -> Result<Column, ApiError> {
    let name = text(json, "name").unwrap_or_default();
    check_name(name, within)?;
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
    let default = text(json, "defaultValueExpression").filter(|sql| !sql.is_empty());
    Ok(Column {
        name: name.to_owned(),
        kind: read_kind(json, &path, depth, left)?,
        mode,
        description: text(json, "description").unwrap_or_default().to_owned(),
        default_value_expression: default.map(str::to_owned),
    })
}

fn read_kind(json: &Value, path: &str, depth: usize, left: &mut usize) -> Result<Kind, ApiError> {
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
            check_digits(precision, scale, 29, 9, path)?;
            Kind::Numeric { precision, scale }
        }
        "BIGNUMERIC" => {
            let (precision, scale) = (digits("precision")?, digits("scale")?);
            check_digits(precision, scale, 38, 38, path)?;
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
        "TIMESTAMP" => Kind::Timestamp,
        "JSON" => Kind::Json,
        "GEOGRAPHY" => Kind::Geography,
        "STRUCT" | "RECORD" => Kind::Struct(read_struct(json, path, depth, left)?),
        "" => return Err(ApiError::invalid(format!("Field {path} has no type"))),
        _ => {
            let text = format!("Invalid value for type: {name} is not a valid value (field {path})");
            return Err(ApiError::invalid(text));
        }
    })
}

fn read_struct(json: &Value, path: &str, depth: usize, left: &mut usize) -> Result<Vec<Column>, ApiError> {
    let Some(depth) = depth.checked_sub(1) else {
        let text = format!("Field {path} is nested too deep: the most is {DEEPEST} levels");
        return Err(ApiError::invalid(text));
    };
    let columns = read_fields(json.get("fields").unwrap_or(&Value::Null), path, depth, left)?;
    if columns.is_empty() {
        let text = format!("Field {path} is type RECORD but has no schema");
        return Err(ApiError::invalid(text));
    }
    Ok(columns)
}

fn check_name(name: &str, within: &str) -> Result<(), ApiError> {
    let forbidden = |c: char| c.is_control() || "!\"$()*,./;?@[\\]^`{}~".contains(c);
    if name.is_empty() || name.chars().count() > 300 || name.chars().any(forbidden) {
        let path = path(within, name);
        let rule = "Fields must contain only letters, numbers, and underscores (or one of the characters \
                    that flexible column names allow), be at most 300 characters long, and not be empty";
        return Err(ApiError::invalid(format!(
            "Invalid field name \"{path}\". {rule}."
        )));
    }
    let upper = name.to_ascii_uppercase();
    if RESERVED.iter().any(|prefix| upper.starts_with(prefix)) {
        let path = path(within, name);
        let rule = "Field names are not allowed to start with the (case-insensitive) prefixes _PARTITION, _TABLE_, _FILE_, \
                    _ROW_TIMESTAMP, __ROOT__ and _COLIDENTIFIER";
        return Err(ApiError::invalid(format!(
            "Invalid field name \"{path}\". {rule}"
        )));
    }
    Ok(())
}

/// `NUMERIC(P, S)`: S up to `most_scale`, and at most `most_whole` digits before the point.
fn check_digits(
    precision: Option<u8>,
    scale: Option<u8>,
    most_whole: u8,
    most_scale: u8,
    path: &str,
) -> Result<(), ApiError> {
    let good = match (precision, scale.unwrap_or(0)) {
        (None, _) => scale.is_none(),
        (Some(p), s) => s <= most_scale && p >= s.max(1) && p - s <= most_whole,
    };
    let text = || format!("Invalid precision or scale for field {path}");
    good.then_some(()).ok_or_else(|| ApiError::invalid(text()))
}

fn write_fields(columns: &[Column]) -> Value {
    columns.iter().map(write_field).collect()
}

fn write_field(column: &Column) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), column.name.as_str().into());
    json.insert("type".into(), type_name(&column.kind).into());
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

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "BOOLEAN",
        Kind::Int64 => "INTEGER",
        Kind::Float64 => "FLOAT",
        Kind::Struct(_) => "RECORD",
        other => other.sql_name(),
    }
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
        ] {
            let error = read_schema(&json!({ "fields": [field] })).unwrap_err();
            assert_eq!((error.code, error.reason), (400, "invalid"), "{text}");
            assert!(error.message.contains(text), "{}", error.message);
        }
        let twice = json!({ "fields": [{ "name": "a", "type": "BOOL" }, { "name": "A", "type": "BOOL" }] });
        assert_eq!(
            read_schema(&twice).unwrap_err().message,
            "Duplicate field name: A"
        );
    }
}
