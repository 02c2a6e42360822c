//! The words of a default expression, by sqlparser's tokenizer; strings by BigQuery's own rules.

use std::collections::VecDeque;

use datafusion::sql::sqlparser::dialect::BigQueryDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// What is left to read.
pub(super) struct Tokens(VecDeque<Token>);

/// A string or bytes literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Quoted {
    Text(String),
    Bytes(Vec<u8>),
}

impl Tokens {
    pub(super) fn new(sql: &str) -> Result<Self, String> {
        let tokens = Tokenizer::new(&BigQueryDialect, sql)
            .with_unescape(false)
            .tokenize();
        let tokens = tokens.map_err(|error| format!("syntax error: {error}"))?;
        let mut kept = VecDeque::new();
        for token in tokens {
            match token {
                Token::Whitespace(_) => {}
                // The end of two nested types.
                Token::ShiftRight => kept.extend([Token::Gt, Token::Gt]),
                token => kept.push_back(token),
            }
        }
        Ok(Self(kept))
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        self.0.pop_front()
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.0.front()
    }

    /// Takes the token, if it is next.
    pub(super) fn take(&mut self, token: &Token) -> bool {
        let there = self.peek() == Some(token);
        if there {
            self.0.pop_front();
        }
        there
    }

    pub(super) fn expect(&mut self, token: &Token) -> Result<(), String> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("{token} is expected")))
        }
    }

    /// The next word in upper case; not if it is quoted.
    pub(super) fn peek_word(&self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Takes the word, if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let there = self.peek_word().is_some_and(|next| next == word);
        if there {
            self.0.pop_front();
        }
        there
    }

    /// Whether a name and another word are next.
    pub(super) fn two_words(&self) -> bool {
        matches!(
            (self.0.front(), self.0.get(1)),
            (Some(Token::Word(_)), Some(Token::Word(_)))
        )
    }

    pub(super) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.unexpected("the expression ends"))
        }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> String {
        match self.peek() {
            Some(token) => format!("syntax error: {wanted} before {token}"),
            None => format!("syntax error: {wanted} at the end"),
        }
    }

    /// A string or bytes literal, if one is next: all its chunks.
    pub(super) fn quoted(&mut self) -> Result<Option<Quoted>, String> {
        let Some(mut whole) = self.chunk()? else {
            return Ok(None);
        };
        while let Some(more) = self.chunk()? {
            match (&mut whole, more) {
                (Quoted::Text(text), Quoted::Text(more)) => text.push_str(&more),
                (Quoted::Bytes(bytes), Quoted::Bytes(more)) => bytes.extend(more),
                _ => return Err("syntax error: string and bytes literals cannot be concatenated".to_owned()),
            }
        }
        Ok(Some(whole))
    }

    /// A string literal; others are refused.
    pub(super) fn text(&mut self) -> Result<String, String> {
        match self.quoted()? {
            Some(Quoted::Text(text)) => Ok(text),
            Some(Quoted::Bytes(_)) => {
                Err("syntax error: a string literal is expected in place of bytes".to_owned())
            }
            None => Err(self.unexpected("a string literal is expected")),
        }
    }

    fn chunk(&mut self) -> Result<Option<Quoted>, String> {
        let raw_bytes = self.peek_word().is_some_and(|word| word == "BR" || word == "RB")
            && self.0.get(1).and_then(plain).is_some();
        if raw_bytes {
            self.next();
        }
        let Some(token) = self.peek() else { return Ok(None) };
        use Token as T;
        let quoted = match token {
            T::SingleQuotedByteStringLiteral(body)
            | T::DoubleQuotedByteStringLiteral(body)
            | T::TripleSingleQuotedByteStringLiteral(body)
            | T::TripleDoubleQuotedByteStringLiteral(body) => Quoted::Bytes(unescaped_bytes(body)?),
            T::SingleQuotedRawStringLiteral(body)
            | T::DoubleQuotedRawStringLiteral(body)
            | T::TripleSingleQuotedRawStringLiteral(body)
            | T::TripleDoubleQuotedRawStringLiteral(body) => Quoted::Text(body.clone()),
            token => match plain(token) {
                Some((body, _)) if raw_bytes => Quoted::Bytes(body.as_bytes().to_vec()),
                Some((body, quote)) => Quoted::Text(unescaped(body, quote)?),
                None => return Ok(None),
            },
        };
        self.next();
        Ok(Some(quoted))
    }
}

/// A string's body as it is written, and the quote that cannot stand in it by itself.
fn plain(token: &Token) -> Option<(&str, Option<char>)> {
    match token {
        Token::SingleQuotedString(body) => Some((body, Some('\''))),
        Token::DoubleQuotedString(body) => Some((body, Some('"'))),
        Token::TripleSingleQuotedString(body) | Token::TripleDoubleQuotedString(body) => Some((body, None)),
        _ => None,
    }
}

fn unescaped(body: &str, quote: Option<char>) -> Result<String, String> {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(next) = rest.chars().next() {
        let (value, length) = match next {
            '\\' => escape(rest, true)?,
            _ if Some(next) == quote => {
                return Err("syntax error: a quote stands within a literal".to_owned());
            }
            _ => (u32::from(next), next.len_utf8()),
        };
        let value = char::from_u32(value).ok_or("syntax error: an escape is no Unicode character")?;
        text.push(value);
        rest = &rest[length..];
    }
    Ok(text)
}

fn unescaped_bytes(body: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(next) = rest.chars().next() {
        let length = if next == '\\' {
            let (value, length) = escape(rest, false)?;
            bytes.push(u8::try_from(value).map_err(|_| "syntax error: an escape is more than a byte")?);
            length
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..next.len_utf8()]);
            next.len_utf8()
        };
        rest = &rest[length..];
    }
    Ok(bytes)
}

/// What an escape at the start of `text` stands for, and how long it is.
fn escape(text: &str, unicode: bool) -> Result<(u32, usize), String> {
    let wrong = || "syntax error: an escape sequence that does not exist in a literal".to_owned();
    let number = |from: usize, digits: usize, radix: u32| -> Result<(u32, usize), String> {
        let digits = text.get(from..from + digits).ok_or_else(wrong)?;
        if !digits.bytes().all(|byte| char::from(byte).is_digit(radix)) {
            return Err(wrong());
        }
        let value = u32::from_str_radix(digits, radix).map_err(|_| wrong())?;
        Ok((value, from + digits.len()))
    };
    let simple = |value: u32| Ok((value, 2));
    match text.chars().nth(1) {
        Some('a') => simple(0x07),
        Some('b') => simple(0x08),
        Some('f') => simple(0x0c),
        Some('n') => simple(0x0a),
        Some('r') => simple(0x0d),
        Some('t') => simple(0x09),
        Some('v') => simple(0x0b),
        Some(same @ ('\\' | '?' | '"' | '\'' | '`')) => simple(same.into()),
        Some('0'..='3') => number(1, 3, 8),
        Some('x' | 'X') => number(2, 2, 16),
        Some('u') if unicode => number(2, 4, 16),
        Some('U') if unicode => number(2, 8, 16),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(sql: &str) -> Result<Quoted, String> {
        let mut tokens = Tokens::new(sql)?;
        let quoted = tokens.quoted()?.ok_or("none")?;
        tokens.end()?;
        Ok(quoted)
    }

    #[test]
    fn literals_are_read_by_bigquerys_rules() {
        for (sql, text) in [
            ("'abc'", "abc"),
            ("\"it's\"", "it's"),
            (r"'it\'s'", "it's"),
            ("'''it's \"two\"\nlines'''", "it's \"two\"\nlines"),
            ("\"\"\"a\\\"b\"\"\"", "a\"b"),
            (r"r'a\n+'", r"a\n+"),
            (r"'\a\b\f\n\r\t\v\\\?\`'", "\x07\x08\x0c\n\r\t\x0b\\?`"),
            (r"'\x41\X42\103\u00e4\U0001F600'", "ABC\u{e4}\u{1F600}"),
            (r"'\XFF'", "\u{ff}"),
            ("'a' \"b\" r'\\' /* and */ '''c'''", "ab\\c"),
            ("''", ""),
        ] {
            assert_eq!(quoted(sql), Ok(Quoted::Text(text.to_owned())), "{sql}");
        }
        for (sql, bytes) in [
            ("b'abc'", b"abc".as_slice()),
            (r#"B"\x00\xff\377\n""#, b"\x00\xff\xff\n"),
            ("b'ä'", "ä".as_bytes()),
            (r"br'\x00'", br"\x00"),
            ("RB\"a\" b'b'", b"ab"),
        ] {
            assert_eq!(quoted(sql), Ok(Quoted::Bytes(bytes.to_vec())), "{sql}");
        }
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for sql in [
            r"'\q'",
            r"'\x4'",
            r"'\u12'",
            r"'\uD800'",
            r"'\400'",
            r"b'\u0041'",
            r"'\U00110000'",
            "'a''b'",
            r"'\x+1'",
        ] {
            let error = quoted(sql).unwrap_err();
            assert!(error.starts_with("syntax error: "), "{sql}: {error}");
        }
        assert_eq!(
            quoted("'a' b'b'").unwrap_err(),
            "syntax error: string and bytes literals cannot be concatenated"
        );
        assert!(quoted("'a").unwrap_err().starts_with("syntax error: "));
    }
}
