//! Numbers as texts against the type that is to hold them: refused where Arrow's decoders would keep another number than is written.

use arrow_schema::DataType;

use crate::sql::sql_name;

/// From here on a float stands for several whole numbers.
const TWO_TO_53: f64 = 9_007_199_254_740_992.0;
/// From here on no whole number fits.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Types of which a decoder would take a number and keep another.
pub(super) fn is_judged(data_type: &DataType) -> bool {
    is_whole(data_type) || may_lose_digits(data_type)
}

/// Decimals, of which digits would be cut off, and floats, which would become infinite.
pub(super) fn may_lose_digits(data_type: &DataType) -> bool {
    data_type.is_floating() || matches!(data_type, DataType::Decimal128(..) | DataType::Decimal256(..))
}

/// Judges a number by its text: of its value as a float, digits are lost already. What is no number passes; the decoder knows.
///
/// # Errors
/// The reason, with the column's path and without the number.
pub(super) fn judge(data_type: &DataType, path: &str, text: &str) -> Result<(), String> {
    // Decimals and floats may stand in quotes.
    let bare = text.trim_matches('"').trim();
    let beyond = || {
        let name = sql_name(data_type);
        Err(format!(
            "column {path} is {name}, but its number is beyond that type's range"
        ))
    };
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)
            if is_number(bare) && fraction_digits(bare) > i64::from(*scale) =>
        {
            let name = sql_name(data_type);
            Err(format!(
                "column {path} is {name}, but its number has more than {scale} digits behind the point"
            ))
        }
        DataType::Float32 if is_number(bare) && bare.parse().is_ok_and(f32::is_infinite) => beyond(),
        DataType::Float64 if is_number(bare) && bare.parse().is_ok_and(f64::is_infinite) => beyond(),
        other if is_whole(other) && is_number(text) => whole(other, path, text),
        _ => Ok(()),
    }
}

fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_temporal()
}

fn whole(data_type: &DataType, path: &str, text: &str) -> Result<(), String> {
    let name = sql_name(data_type);
    let wrong = || Err(format!("column {path} is not {name}"));
    if !text.contains(['.', 'e', 'E']) {
        let unsigned = data_type.is_unsigned_integer() && text.parse::<u64>().is_ok();
        let fits = unsigned || text.parse::<i64>().is_ok();
        return if fits { Ok(()) } else { wrong() };
    }
    match text.parse::<f64>() {
        Ok(value) if value.abs() < TWO_TO_53 && fraction_digits(text) <= 0 => Ok(()),
        Ok(value) if (TWO_TO_53..TWO_TO_64).contains(&value.abs()) => Err(format!(
            "column {path} is {name}, but its number is written with a point or exponent and may lose digits beyond 2^53; write all its digits"
        )),
        _ => wrong(),
    }
}

fn is_number(text: &str) -> bool {
    text.strip_prefix(['-', '+'])
        .unwrap_or(text)
        .starts_with(|first: char| first.is_ascii_digit() || first == '.')
}

/// How many digits stand behind the point of a number, once its exponent has moved it and without zeros at the end; below one for a
/// whole number.
fn fraction_digits(number: &str) -> i64 {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let point = exponent
        .parse::<i64>()
        .unwrap_or(0)
        .saturating_add(whole.len() as i64);
    let last = [whole, fraction]
        .concat()
        .rfind(|digit| matches!(digit, '1'..='9'));
    last.map_or(0, |last| (last as i64 + 1).saturating_sub(point))
}
