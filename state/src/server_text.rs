//! What BigQuery says, as errors and logs may repeat it: no longer than a person reads, and without what may be a row's value.

use std::borrow::Cow;

/// What stands for something that was left out.
const LEFT_OUT: char = '…';
/// A number of so many digits may be a value; shorter ones are counts and places.
const DIGITS_OF_A_VALUE: usize = 5;

/// At most so many bytes of a text; then how long it is.
pub(crate) fn shortened(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return text.into();
    }
    let end = text.floor_char_boundary(longest);
    format!("{}{LEFT_OUT} ({} bytes in all)", &text[..end], text.len()).into()
}

/// What is wrong with a row, without what may be its value: what stands in quotes, what stands between a colon and the field that it
/// is `on`, and long numbers that are no length. Google does not say which of its texts quote values; some are known to
/// (kafka-connect-bigquery #346: `Timestamp out of range: 1690825888385999872`).
pub(crate) fn without_values(text: &str) -> String {
    let (head, rest) = match text.strip_prefix("Field ").and_then(|rest| rest.split_once(": ")) {
        Some((name, rest)) => (format!("Field {name}: "), rest),
        None => (String::new(), text),
    };
    let (said, on_field) = match rest.rfind(" on field ") {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let said = match said.split_once(": ") {
        Some((what, _)) => format!("{what}: {LEFT_OUT}"),
        None => said.to_owned(),
    };
    format!("{head}{}{on_field}", without_numbers(&without_quotes(&said)))
}

/// From the first quotation mark to the last of its kind; to the end where there is no other.
fn without_quotes(text: &str) -> String {
    let is_apostrophe = |at: usize| text[..at].ends_with(char::is_alphanumeric);
    let mut marks = text.char_indices();
    let Some((open, mark)) = marks.find(|&(at, c)| "'\"`".contains(c) && !is_apostrophe(at)) else {
        return text.to_owned();
    };
    let (before, quoted) = text.split_at(open + 1);
    let behind = quoted.rfind(mark).map_or("", |close| &quoted[close..]);
    format!("{before}{LEFT_OUT}{behind}")
}

fn without_numbers(text: &str) -> String {
    let is_of_number = |c: char| c.is_ascii_digit() || ".,:+-".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        out.push_str(before);
        let end = number.find(|c| !is_of_number(c)).unwrap_or(number.len());
        let (number, behind) = number.split_at(end);
        let digits = number.chars().filter(char::is_ascii_digit).count();
        let is_length = out.ends_with('(') || out.ends_with("length ");
        if digits < DIGITS_OF_A_VALUE || is_length {
            out.push_str(number);
        } else {
            out.push(LEFT_OUT);
        }
        rest = behind;
    }
    out + rest
}
