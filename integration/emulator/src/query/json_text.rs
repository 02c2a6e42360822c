//! Values of the engine as JSON, and places within JSON.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::query::types::TAG;

/// Integers beyond this are strings in BigQuery's JSON, since doubles do not hold them.
const EXACT: u64 = 1 << 53;

/// One value, as TO_JSON_STRING has it.
pub(super) fn value(array: &ArrayRef, field: &Field, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Float64 => {
            let number = array.as_primitive::<Float64Type>().value(row);
            // What JSON has no number for is a string.
            Number::from_f64(number)
                .map_or_else(|| shown(array, row).into(), |number| whole(number, array, row))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            let member = |(array, field): (&ArrayRef, &arrow_schema::FieldRef)| {
                (field.name().clone(), value(array, field, row))
            };
            Value::Object(columns.map(member).collect::<Map<_, _>>())
        }
        DataType::List(item) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|row| value(&items, item, row)).collect()
        }
        DataType::Utf8 => {
            let text = array.as_string::<i32>().value(row);
            let is_json = field.metadata().get(TAG).is_some_and(|mark| mark == "JSON");
            let json = is_json.then(|| serde_json::from_str(text).ok()).flatten();
            json.unwrap_or_else(|| text.into())
        }
        DataType::Binary => STANDARD.encode(array.as_binary::<i32>().value(row)).into(),
        kind if kind.is_integer() || matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..)) => {
            let text = shown(array, row);
            // An integer that a double holds is a number, all else a string.
            let exact = text
                .parse::<i64>()
                .ok()
                .filter(|number| number.unsigned_abs() <= EXACT);
            exact.map_or_else(|| text.into(), Value::from)
        }
        _ => shown(array, row).into(),
    }
}

/// A double without fraction is written as an integer.
fn whole(number: Number, array: &ArrayRef, row: usize) -> Value {
    let value = array.as_primitive::<Float64Type>().value(row);
    if value.fract() == 0.0 && value.abs() <= EXACT as f64 {
        // Within the bounds of i64, and without a fraction.
        return (value as i64).into();
    }
    Value::Number(number)
}

fn shown(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options);
    let text = formatter.map(|formatter| formatter.value(row).to_string());
    let text = text.unwrap_or_default();
    match array.data_type() {
        // Without the zeros that the scale adds.
        DataType::Decimal128(..) | DataType::Decimal256(..) if text.contains('.') => {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => text,
    }
}

/// JSONPath as far as BigQuery has it: `$.a.b[0]`, `$['a b']`.
pub(super) mod path {
    use serde_json::Value;

    /// One step into a value.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(in crate::query) enum Step {
        Member(String),
        Item(usize),
    }

    /// Reads a path.
    pub(in crate::query) fn read(text: &str) -> Option<Vec<Step>> {
        let mut rest = text.strip_prefix('$')?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (name, left) = after.split_at(end);
                let name = name.trim_matches('"');
                if name.is_empty() {
                    return None;
                }
                steps.push(Step::Member(name.to_owned()));
                rest = left;
            } else {
                let (inside, left) = rest.strip_prefix('[')?.split_once(']')?;
                let name = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
                steps.push(match name {
                    Some(name) => Step::Member(name.to_owned()),
                    None => Step::Item(inside.parse().ok()?),
                });
                rest = left;
            }
        }
        Some(steps)
    }

    /// What stands there.
    pub(in crate::query) fn find<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
        steps.iter().try_fold(value, |value, step| match step {
            Step::Member(name) => value.get(name),
            Step::Item(index) => value.get(index),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::path::{find, read};

    #[test]
    fn paths_lead_into_json() {
        let value = json!({ "a": { "b c": [1, { "d": null }] }, "": 2 });
        for (path, want) in [
            ("$", Some(&value)),
            ("$.a['b c'][0]", Some(&json!(1))),
            ("$['a'].\"b c\"[1].d", Some(&json!(null))),
            ("$.a.x", None),
            ("$.a[0]", None),
        ] {
            assert_eq!(find(&value, &read(path).unwrap()), want, "{path}");
        }
        for bad in ["", "a", "$.", "$a", "$[", "$[x]", "$..a"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
