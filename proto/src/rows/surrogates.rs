//! Halves of characters in JSON: `\ud800` without its other half, which the grammar allows and no text can hold.

/// Where JSON text first escapes one half of a surrogate pair without the other: the place of the backslash, in bytes. BigQuery refuses
/// such a text, and JSON parsers that only look for the end of a value let it pass.
#[must_use]
pub fn lone_surrogate(json: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(ahead) = json.get(at..)?.iter().position(|&byte| byte == b'\\') {
        at += ahead;
        at += match escaped_unit(json, at) {
            // Another escape, of one character.
            None => 2,
            Some(0xD800..=0xDBFF) if matches!(escaped_unit(json, at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => return Some(at),
            Some(_) => 6,
        };
    }
    None
}

fn escaped_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}
