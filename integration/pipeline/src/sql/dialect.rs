//! Arroyo's SQL over the parser DataFusion brings: PostgreSQL's rules, with `STRUCT<a INT, b TEXT>` beside them.

use std::any::TypeId;

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The engine has a dialect of this name in its fork of the parser; here its rules are put together from two that the parser has.
#[derive(Debug)]
pub(super) struct ArroyoDialect {
    postgres: PostgreSqlDialect,
}

impl ArroyoDialect {
    pub(super) fn new() -> Self {
        Self {
            postgres: PostgreSqlDialect {},
        }
    }
}

impl Dialect for ArroyoDialect {
    /// The parser asks for the dialect's type before it takes angle brackets after STRUCT; of those that may have them the generic
    /// one adds the least.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.postgres.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.postgres.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        self.postgres.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        self.postgres.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        self.postgres.prec_value(precedence)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn allow_extract_single_quotes(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_string_escape_constant(&self) -> bool {
        true
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }
}
