//! A statement's text as tokens, with the values of its parameters in place.

use datafusion::sql::sqlparser::dialect::BigQueryDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::query::QueryError;
use crate::query::parameters::Parameters;
use crate::query::strings::unescape;

/// BigQuery's limit on the text of a query, in bytes.
const LONGEST: usize = 1 << 20;

static DIALECT: BigQueryDialect = BigQueryDialect;

/// The tokens of one or more statements.
#[derive(Debug)]
pub(super) struct Text<'a> {
    sql: &'a str,
    tokens: Vec<TokenWithSpan>,
}

impl<'a> Text<'a> {
    /// Splits it into tokens, and puts a parameter's value wherever it is named.
    ///
    /// # Errors
    /// `Syntax`; `Invalid`: too long, or a parameter without a value.
    pub(super) fn read(sql: &'a str, parameters: &Parameters) -> Result<Self, QueryError> {
        if sql.len() > LONGEST {
            let text = "The query is too large. The maximum standard SQL query length is 1024.00K characters";
            return Err(QueryError::Invalid(text.to_owned()));
        }
        // It knows other escapes than BigQuery.
        let tokens = Tokenizer::new(&DIALECT, sql)
            .with_unescape(false)
            .tokenize_with_location()
            .map_err(|error| syntax(error.into()))?;
        let mut text = Self {
            sql,
            tokens: Vec::with_capacity(tokens.len()),
        };
        let mut positional = 0;
        for mut token in tokens {
            token.token = literal(token.token)?;
            let value = match &token.token {
                Token::Placeholder(name) if name == "?" => {
                    positional += 1;
                    Some(parameters.positional(positional)?)
                }
                Token::Word(word) if word.quote_style.is_none() => match word.value.strip_prefix('@') {
                    Some(name) if !name.starts_with('@') => Some(parameters.named(name)?),
                    _ => None,
                },
                _ => None,
            };
            let span = token.span;
            match value {
                None => text.tokens.push(token),
                Some(value) => text
                    .tokens
                    .extend(value.iter().cloned().map(|token| TokenWithSpan { token, span })),
            }
        }
        Ok(text)
    }

    /// A parser before the first token.
    pub(super) fn parser(&self) -> Parser<'static> {
        Parser::new(&DIALECT).with_tokens_with_locations(self.tokens.clone())
    }

    /// The first word in upper case, which says what kind of statement it is.
    pub(super) fn first_word(&self) -> Option<String> {
        let mut tokens = self.tokens.iter();
        let first = tokens.find(|token| !matches!(token.token, Token::Whitespace(_)));
        match first.map(|token| &token.token) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// The text as it was written from one place to another.
    pub(super) fn between(&self, from: Location, to: Location) -> &'a str {
        self.sql.get(self.byte(from)..self.byte(to)).unwrap_or_default()
    }

    /// Where the last token that is no space, comment or semicolon ends.
    pub(super) fn end(&self) -> Location {
        let blank = |token: &Token| matches!(token, Token::Whitespace(_) | Token::SemiColon | Token::EOF);
        let last = self.tokens.iter().rev().find(|token| !blank(&token.token));
        last.map_or(Location { line: 1, column: 1 }, |token| token.span.end)
    }

    /// Lines and columns count from 1; columns are characters.
    fn byte(&self, at: Location) -> usize {
        let mut start = 0;
        for _ in 1..at.line {
            match self.sql[start..].find('\n') {
                Some(end) => start += end + 1,
                None => return self.sql.len(),
            }
        }
        let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let mut chars = self.sql[start..].char_indices();
        chars
            .nth(column)
            .map_or(self.sql.len(), |(offset, _)| start + offset)
    }
}

/// A string without its escapes, a byte string as its bytes.
fn literal(token: Token) -> Result<Token, QueryError> {
    let read = |text: &str, of_bytes, quote| unescape(text, of_bytes, quote).map_err(QueryError::Syntax);
    let string = |text: &str, quote| {
        let bytes = read(text, false, quote)?;
        // Whole characters have been put together.
        Ok::<_, QueryError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let bytes = |text: &str, quote| {
        let hex = read(text, true, quote)?
            .into_iter()
            .map(|byte| format!("{byte:02x}"));
        Ok::<_, QueryError>(Token::HexStringLiteral(hex.collect()))
    };
    Ok(match token {
        Token::SingleQuotedString(text) => Token::SingleQuotedString(string(&text, Some('\''))?),
        Token::DoubleQuotedString(text) => Token::DoubleQuotedString(string(&text, Some('"'))?),
        Token::TripleSingleQuotedString(text) => Token::TripleSingleQuotedString(string(&text, None)?),
        Token::TripleDoubleQuotedString(text) => Token::TripleDoubleQuotedString(string(&text, None)?),
        Token::SingleQuotedByteStringLiteral(text) => bytes(&text, Some('\''))?,
        Token::DoubleQuotedByteStringLiteral(text) => bytes(&text, Some('"'))?,
        Token::TripleSingleQuotedByteStringLiteral(text)
        | Token::TripleDoubleQuotedByteStringLiteral(text) => bytes(&text, None)?,
        other => other,
    })
}

/// The parser's error as BigQuery's.
pub(super) fn syntax(error: ParserError) -> QueryError {
    QueryError::Syntax(error.to_string().replace("sql parser error: ", ""))
}
