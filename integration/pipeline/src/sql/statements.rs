//! Cuts a file into statements and parses each on its own, so that a mistake in one hides none in the others.

use datafusion::sql::sqlparser::ast::Statement as Ast;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::dialect::ArroyoDialect;
use super::error::{Mistakes, Place};

/// A statement with the tokens it was made of; white space and comments are left out.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) ast: Ast,
    tokens: Vec<TokenWithSpan>,
}

/// Parses what can be parsed and notes the rest.
pub(super) fn parse(sql: &str, mistakes: &mut Mistakes) -> Vec<Statement> {
    let dialect = ArroyoDialect::new();
    let tokens = match Tokenizer::new(&dialect, sql).tokenize_with_location() {
        Ok(tokens) => tokens,
        Err(error) => {
            mistakes.add(error.location.into(), error.message);
            return Vec::new();
        }
    };
    let mut statements = Vec::new();
    for part in tokens.split(|token| token.token == Token::SemiColon) {
        let tokens: Vec<_> = part.iter().filter(|token| is_text(token)).cloned().collect();
        let tokens = with_single_brackets(tokens);
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            continue;
        };
        let (start, end) = (Place::from(first.span.start), Place::from(last.span.end));
        match parse_one(&dialect, &tokens) {
            Ok(ast) => statements.push(Statement { ast, tokens }),
            Err(error) => {
                let (place, message) = dotted_option(&tokens).unwrap_or_else(|| placed(&error, start, end));
                mistakes.add(place, message);
            }
        }
    }
    statements
}

impl Statement {
    /// Where it begins.
    pub(super) fn start(&self) -> Place {
        let first = self
            .tokens
            .first()
            .expect("a statement was parsed from at least one token");
        first.span.start.into()
    }

    /// Where a name or keyword stands first, whatever its case.
    pub(super) fn find_word(&self, word: &str) -> Option<Place> {
        self.tokens
            .iter()
            .find(
                |token| matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word)),
            )
            .map(|token| token.span.start.into())
    }

    /// Where an option's name stands for the `again`th time (from 0); the parser keeps no place for quoted ones.
    pub(super) fn find_option(&self, name: &str, again: usize) -> Option<Place> {
        self.tokens
            .windows(2)
            .filter(|pair| pair[1].token == Token::Eq)
            .filter(|pair| match &pair[0].token {
                Token::Word(word) => word.value == name,
                Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text == name,
                _ => false,
            })
            .nth(again)
            .map(|pair| pair[0].span.start.into())
    }

    /// Where one of these functions is called first.
    pub(super) fn find_call(&self, names: &[&str]) -> Option<Place> {
        self.tokens
            .windows(2)
            .find_map(|pair| match (&pair[0].token, &pair[1].token) {
                (Token::Word(word), Token::LParen)
                    if names.iter().any(|name| word.value.eq_ignore_ascii_case(name)) =>
                {
                    Some(pair[0].span.start.into())
                }
                _ => None,
            })
    }
}

fn is_text(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

/// In a CREATE TABLE `>>` closes two STRUCTs; the parser takes it for that only where no comma follows.
fn with_single_brackets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let creates = tokens.first().is_some_and(
        |token| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case("create")),
    );
    if !creates {
        return tokens;
    }
    let split = |token: TokenWithSpan| match token.token {
        Token::ShiftRight => vec![TokenWithSpan::new(Token::Gt, token.span); 2],
        _ => vec![token],
    };
    tokens.into_iter().flat_map(split).collect()
}

fn parse_one(dialect: &ArroyoDialect, tokens: &[TokenWithSpan]) -> Result<Ast, ParserError> {
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens.to_vec());
    let ast = parser.parse_statement()?;
    let next = parser.peek_token();
    if next.token == Token::EOF {
        Ok(ast)
    } else {
        parser.expected("end of statement, a semicolon", next)
    }
}

/// An option whose name has a dot but no quotes, which the parser would report as a missing `=`.
fn dotted_option(tokens: &[TokenWithSpan]) -> Option<(Place, String)> {
    let with = tokens
        .windows(2)
        .position(|pair| is_word(&pair[0], "with") && pair[1].token == Token::LParen)?;
    let creates = tokens.first().is_some_and(|token| is_word(token, "create"));
    let tokens = tokens.get(with + 2..).filter(|_| creates)?;
    let separated = |index: usize| index == 0 || tokens[index - 1].token == Token::Comma;
    let starts = (0..tokens.len()).filter(|index| separated(*index));
    starts.into_iter().find_map(|start| {
        let end = start
            + tokens[start..]
                .iter()
                .position(|token| token.token == Token::Eq)?;
        let name = &tokens[start..end];
        let of_name = |token: &TokenWithSpan| matches!(token.token, Token::Word(_) | Token::Period);
        let dotted = name.iter().any(|token| token.token == Token::Period);
        if !dotted || !name.iter().all(of_name) {
            return None;
        }
        let name: String = name.iter().map(|token| token.token.to_string()).collect();
        let message = format!("an option's name with a dot needs single quotes: write '{name}' = ...");
        Some((tokens[start].span.start.into(), message))
    })
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

/// The parser writes the place at the end of its message, and none where the statement ends too early.
fn placed(error: &ParserError, start: Place, end: Place) -> (Place, String) {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => {
            return (start, "this statement is nested too deeply; take it apart".into());
        }
    };
    let Some((message, place)) = text.rsplit_once(" at Line: ") else {
        return (
            end,
            text.trim_end_matches("EOF").to_owned() + if text.ends_with("EOF") { "the end" } else { "" },
        );
    };
    let mut numbers = place.split(", Column: ").map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(line)), Some(Ok(column))) => (Place { line, column }, message.to_owned()),
        _ => (start, text.to_owned()),
    }
}
