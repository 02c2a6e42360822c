//! Parts of strings and bytes as BigQuery counts them, and what is written in its literals.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, StringArray};
use arrow_schema::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{Signature, TypeSignature};

use crate::query::scalar::{Argument, Returns, Scalar, VOLATILE};

/// `substr(value, position[, length])`.
pub(super) fn functions() -> [Scalar; 1] {
    let exact = |kind: DataType, numbers: usize| {
        let numbers = std::iter::repeat_n(DataType::Int64, numbers);
        TypeSignature::Exact(std::iter::once(kind).chain(numbers).collect())
    };
    let all = [DataType::Utf8, DataType::Binary]
        .into_iter()
        .flat_map(|kind| [exact(kind.clone(), 1), exact(kind, 2)]);
    let signature = Signature::one_of(all.collect(), VOLATILE);
    [Scalar::new("substr", signature, Returns::Of(0), substr)]
}

fn substr(args: &[Argument]) -> Result<ArrayRef> {
    let (value, position, length) = match args {
        [value, position] => (value, position, None),
        [value, position, length] => (value, position, Some(length.array.as_primitive::<Int64Type>())),
        _ => return exec_err!("SUBSTR takes a value, a position, and perhaps a length"),
    };
    let positions = position.array.as_primitive::<Int64Type>();
    if length.is_some_and(|length| length.iter().flatten().any(|length| length < 0)) {
        return exec_err!("Third argument in SUBSTR() cannot be negative");
    }
    let array = &value.array;
    // Which of so many units: `None` if anything is NULL.
    let chosen = |row: usize, units: usize| {
        if array.is_null(row) || positions.is_null(row) || length.is_some_and(|length| length.is_null(row)) {
            return None;
        }
        let end = i64::try_from(units).unwrap_or(i64::MAX);
        let from = match positions.value(row) {
            0 => 0,
            position if position > 0 => (position - 1).min(end),
            position => end.saturating_add(position).max(0),
        };
        let most = length.map_or(i64::MAX, |length| length.value(row));
        let to = from.saturating_add(most).min(end);
        // Between 0 and the number of units.
        Some((from.unsigned_abs() as usize, to.unsigned_abs() as usize))
    };
    Ok(match array.data_type() {
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            let part = |row: usize| {
                let value = values.value(row);
                chosen(row, value.len()).map(|(from, to)| &value[from..to])
            };
            Arc::new((0..array.len()).map(part).collect::<BinaryArray>())
        }
        _ => {
            let values = array.as_string::<i32>();
            let part = |row: usize| -> Option<String> {
                let value = values.value(row);
                let (from, to) = chosen(row, value.chars().count())?;
                Some(value.chars().skip(from).take(to - from).collect())
            };
            Arc::new((0..array.len()).map(part).collect::<StringArray>())
        }
    })
}

/// What a literal's text means, whose escapes are still in it: characters, or of a byte literal bytes. `quote` is what
/// cannot stand in it alone.
///
/// # Errors
/// What is wrong.
pub(super) fn unescape(
    text: &str,
    of_bytes: bool,
    quote: Option<char>,
) -> std::result::Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if Some(c) == quote {
            return Err(
                "Concatenated string literals need to be separated by whitespace or comments".to_owned(),
            );
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let kind = chars.next().unwrap_or(' ');
        let wrong = || format!("Illegal escape sequence: \\{kind}");
        let (before, length, radix) = match kind {
            'a' => ("7", 0, 8),
            'b' => ("10", 0, 8),
            't' => ("11", 0, 8),
            'n' => ("12", 0, 8),
            'v' => ("13", 0, 8),
            'f' => ("14", 0, 8),
            'r' => ("15", 0, 8),
            '\\' => ("134", 0, 8),
            '?' => ("77", 0, 8),
            '"' => ("42", 0, 8),
            '\'' => ("47", 0, 8),
            '`' => ("140", 0, 8),
            '0' => ("0", 2, 8),
            '1' => ("1", 2, 8),
            '2' => ("2", 2, 8),
            '3' => ("3", 2, 8),
            'x' | 'X' => ("", 2, 16),
            'u' if !of_bytes => ("", 4, 16),
            'U' if !of_bytes => ("", 8, 16),
            _ => return Err(wrong()),
        };
        let mut digits = before.to_owned();
        digits.extend(chars.by_ref().take(length));
        let is_whole = digits.len() == before.len() + length && digits.chars().all(|c| c.is_digit(radix));
        let code = u32::from_str_radix(&digits, radix).ok().filter(|_| is_whole);
        let code = code.ok_or_else(wrong)?;
        match u8::try_from(code) {
            Ok(byte) if of_bytes => out.push(byte),
            _ => {
                let c = char::from_u32(code).ok_or_else(wrong)?;
                out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    Ok(out)
}
