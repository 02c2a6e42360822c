//! A cursor over a statement's tokens.

use datafusion::sql::sqlparser::ast::{Expr, Query};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Name, Options};
use crate::query::QueryError;
use crate::query::tables::parts;
use crate::query::text::{Text, syntax};

/// Reads forward; what begins with a word that is not there is left unread.
pub(super) struct Reader<'a> {
    text: &'a Text<'a>,
    parser: Parser<'static>,
    /// One `>` of a `>>` has been read.
    half: bool,
    /// STRUCTs around the type that is read.
    depth: usize,
}

/// More than any table may have, and less than the stack bears.
const DEEPEST: usize = 50;

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a Text<'a>) -> Self {
        Self {
            text,
            parser: text.parser(),
            half: false,
            depth: 0,
        }
    }

    /// Whether the next word is this one, which is then read.
    pub(super) fn word(&mut self, word: &str) -> bool {
        self.words(&[word])
    }

    /// Whether the next words are these, which are then read.
    pub(super) fn words(&mut self, words: &[&str]) -> bool {
        let found = self.sees(words);
        if found {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        found
    }

    /// Whether the next words are these.
    pub(super) fn sees(&self, words: &[&str]) -> bool {
        let mut ahead = words.iter().enumerate();
        ahead.all(|(n, word)| match &self.parser.peek_nth_token_ref(n).token {
            Token::Word(found) => found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word),
            _ => false,
        })
    }

    /// These words come next.
    pub(super) fn expect(&mut self, words: &[&str]) -> Result<(), QueryError> {
        for word in words {
            if !self.word(word) {
                return Err(self.unexpected(&format!("keyword {word}")));
            }
        }
        Ok(())
    }

    /// Reads what may contain itself.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if self.depth == DEEPEST {
            let text = format!("The type is nested too deep: more than {DEEPEST} levels");
            return Err(QueryError::Invalid(text));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Whether the next token is this one, which is then read.
    pub(super) fn symbol(&mut self, symbol: &Token) -> bool {
        self.parser.consume_token(symbol)
    }

    /// Whether the next token is this one.
    pub(super) fn sees_symbol(&self, symbol: &Token) -> bool {
        self.parser.peek_token_ref().token == *symbol
    }

    /// This token comes next.
    pub(super) fn expect_symbol(&mut self, symbol: &Token) -> Result<(), QueryError> {
        if self.symbol(symbol) {
            return Ok(());
        }
        Err(self.unexpected(&format!("\"{symbol}\"")))
    }

    /// `>`, which may be half of `>>`.
    pub(super) fn expect_greater(&mut self) -> Result<(), QueryError> {
        if self.half {
            self.half = false;
            self.parser.advance_token();
            return Ok(());
        }
        if self.sees_symbol(&Token::ShiftRight) {
            self.half = true;
            return Ok(());
        }
        self.expect_symbol(&Token::Gt)
    }

    /// `(a, b, ...)`; a comma may stand before the end.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        self.expect_symbol(&Token::LParen)?;
        let mut list = Vec::new();
        while !self.symbol(&Token::RParen) {
            list.push(read(self)?);
            if !self.symbol(&Token::Comma) {
                self.expect_symbol(&Token::RParen)?;
                break;
            }
        }
        Ok(list)
    }

    pub(super) fn identifier(&mut self) -> Result<String, QueryError> {
        match &self.parser.peek_token_ref().token {
            Token::Word(word) if !word.value.starts_with('@') => {
                let value = word.value.clone();
                self.parser.advance_token();
                Ok(value)
            }
            _ => Err(self.unexpected("an identifier")),
        }
    }

    /// `project.dataset.table`, in backticks or not.
    pub(super) fn name(&mut self) -> Result<Name, QueryError> {
        if !matches!(self.parser.peek_token_ref().token, Token::Word(_)) {
            return Err(self.unexpected("a name"));
        }
        let name = self.parser.parse_object_name(true).map_err(syntax)?;
        Ok(parts(&name))
    }

    /// `(a, b)`.
    pub(super) fn identifiers(&mut self) -> Result<Vec<String>, QueryError> {
        self.list(Self::identifier)
    }

    /// `a, b`.
    pub(super) fn identifiers_without_parentheses(&mut self) -> Result<Vec<String>, QueryError> {
        let mut names = vec![self.identifier()?];
        while self.symbol(&Token::Comma) {
            names.push(self.identifier()?);
        }
        Ok(names)
    }

    /// Whether `(SELECT` or the like comes next, not a list of columns.
    pub(super) fn sees_query_in_parentheses(&self) -> bool {
        let word = |word: &str| {
            ["SELECT", "WITH"]
                .iter()
                .any(|query| word.eq_ignore_ascii_case(query))
        };
        let [first, second] = self.parser.peek_tokens_ref();
        first.token == Token::LParen
            && match &second.token {
                Token::LParen => true,
                Token::Word(found) => found.quote_style.is_none() && word(&found.value),
                _ => false,
            }
    }

    pub(super) fn integer(&mut self) -> Result<i64, QueryError> {
        let negative = self.symbol(&Token::Minus);
        match &self.parser.peek_token_ref().token {
            Token::Number(digits, _) => {
                let sign = if negative { "-" } else { "" };
                let Ok(number) = format!("{sign}{digits}").parse() else {
                    return Err(self.unexpected("an integer"));
                };
                self.parser.advance_token();
                Ok(number)
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    pub(super) fn string(&mut self) -> Result<String, QueryError> {
        match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => {
                let text = text.clone();
                self.parser.advance_token();
                Ok(text)
            }
            _ => Err(self.unexpected("a string")),
        }
    }

    pub(super) fn expression(&mut self) -> Result<Expr, QueryError> {
        self.parser.parse_expr().map_err(syntax)
    }

    /// An expression, as it was written.
    pub(super) fn expression_text(&mut self) -> Result<String, QueryError> {
        let start = self.parser.peek_token_ref().span.start;
        self.expression()?;
        let end = self.parser.get_current_token().span.end;
        Ok(self.text.between(start, end).to_owned())
    }

    pub(super) fn query(&mut self) -> Result<Box<Query>, QueryError> {
        self.parser.parse_query().map_err(syntax)
    }

    /// A query that is the rest of the statement, as it was written.
    pub(super) fn query_text(&mut self) -> Result<String, QueryError> {
        let start = self.parser.peek_token_ref().span.start;
        self.query()?;
        Ok(self.text.between(start, self.text.end()).to_owned())
    }

    /// `OPTIONS(...)`, if it comes next.
    pub(super) fn options(&mut self) -> Result<Options, QueryError> {
        if !self.word("OPTIONS") {
            return Ok(Options::new());
        }
        self.list(|reader| {
            let name = reader.identifier()?.to_lowercase();
            reader.expect_symbol(&Token::Eq)?;
            Ok((name, reader.expression()?))
        })
    }

    pub(super) fn if_exists(&mut self) -> bool {
        self.words(&["IF", "EXISTS"])
    }

    pub(super) fn if_not_exists(&mut self) -> bool {
        self.words(&["IF", "NOT", "EXISTS"])
    }

    /// Nothing comes but semicolons.
    pub(super) fn end(&mut self) -> Result<(), QueryError> {
        let mut semicolons = false;
        while self.symbol(&Token::SemiColon) {
            semicolons = true;
        }
        if self.sees_symbol(&Token::EOF) {
            return Ok(());
        }
        if semicolons {
            let text =
                "Scripts of several statements are not supported by this emulator. Send one statement.";
            return Err(QueryError::Invalid(text.to_owned()));
        }
        Err(self.unexpected("end of statement"))
    }

    /// The error that something else comes next.
    pub(super) fn unexpected(&self, expected: &str) -> QueryError {
        let TokenWithSpan { token, span } = self.parser.peek_token_ref();
        let (line, column) = (span.start.line, span.start.column);
        let found = match token {
            Token::EOF => {
                return QueryError::Syntax(format!("Expected {expected} but got end of statement"));
            }
            Token::Word(word) if word.quote_style.is_some() => format!("identifier `{}`", word.value),
            Token::Word(word) => format!("identifier {}", word.value),
            Token::Number(digits, _) => format!("integer literal \"{digits}\""),
            Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => "a string literal".to_owned(),
            other => format!("\"{other}\""),
        };
        QueryError::Syntax(format!(
            "Expected {expected} but got {found} at [{line}:{column}]"
        ))
    }
}
