//! `ALTER`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::columns::{Key, column, key};
use super::create::{default_collation, other};
use super::reader::Reader;
use super::{Action, AlterTable, Statement};
use crate::query::QueryError;

/// After `ALTER`.
pub(super) fn alter(reader: &mut Reader<'_>) -> Result<Statement, QueryError> {
    if reader.word("TABLE") {
        return table(reader);
    }
    let what = ["VIEW", "SCHEMA"].into_iter().find(|what| reader.word(what));
    let Some(what) = what else {
        return Err(other(reader, "ALTER"));
    };
    let if_exists = reader.if_exists();
    let name = reader.name()?;
    if !reader.sees(&["SET", "OPTIONS"]) {
        return Err(QueryError::unsupported(&format!(
            "ALTER {what} other than SET OPTIONS"
        )));
    }
    reader.word("SET");
    let options = reader.options()?;
    Ok(if what == "VIEW" {
        Statement::AlterView {
            name,
            if_exists,
            options,
        }
    } else {
        Statement::AlterSchema {
            name,
            if_exists,
            options,
        }
    })
}

fn table(reader: &mut Reader<'_>) -> Result<Statement, QueryError> {
    let if_exists = reader.if_exists();
    let name = reader.name()?;
    let mut actions = vec![action(reader)?];
    while reader.symbol(&Token::Comma) {
        actions.push(action(reader)?);
    }
    Ok(Statement::AlterTable(AlterTable {
        name,
        if_exists,
        actions,
    }))
}

fn action(reader: &mut Reader<'_>) -> Result<Action, QueryError> {
    if reader.word("ADD") {
        return add(reader);
    }
    if reader.words(&["ALTER", "COLUMN"]) {
        return alter_column(reader);
    }
    if reader.words(&["DROP", "PRIMARY", "KEY"]) {
        let if_exists = reader.if_exists();
        return Ok(Action::DropPrimaryKey { if_exists });
    }
    if reader.words(&["DROP", "CONSTRAINT"]) {
        let if_exists = reader.if_exists();
        let name = reader.identifier()?;
        return Ok(Action::DropConstraint { name, if_exists });
    }
    if reader.sees(&["SET", "OPTIONS"]) {
        reader.word("SET");
        return Ok(Action::SetOptions(reader.options()?));
    }
    if reader.word("SET") {
        let collation = default_collation(reader)?;
        return collation
            .map(Action::SetDefaultCollation)
            .ok_or_else(|| reader.unexpected("keyword OPTIONS or DEFAULT COLLATE"));
    }
    // They would take rows and open streams along; a new table does as well in tests.
    for words in [&["DROP", "COLUMN"], &["RENAME", "COLUMN"], &["RENAME", "TO"]] {
        if reader.sees(words) {
            return Err(QueryError::unsupported(&format!(
                "ALTER TABLE {}",
                words.join(" ")
            )));
        }
    }
    Err(reader.unexpected("keyword ADD, ALTER, DROP or SET"))
}

fn add(reader: &mut Reader<'_>) -> Result<Action, QueryError> {
    if reader.word("COLUMN") {
        let if_not_exists = reader.if_not_exists();
        let (column, keys) = column(reader)?;
        if column.default_value_expression.is_some() || !keys.is_empty() {
            let text = "ADD COLUMN takes neither DEFAULT nor a key: set them in a statement of their own";
            return Err(QueryError::Invalid(text.to_owned()));
        }
        return Ok(Action::AddColumn {
            column,
            if_not_exists,
        });
    }
    let if_not_exists = reader.sees(&["CONSTRAINT", "IF", "NOT", "EXISTS"]);
    Ok(match key(reader)? {
        Key::Primary(columns) => Action::AddPrimaryKey {
            columns,
            if_not_exists,
        },
        Key::Foreign(key) => Action::AddForeignKey { key, if_not_exists },
    })
}

fn alter_column(reader: &mut Reader<'_>) -> Result<Action, QueryError> {
    let if_exists = reader.if_exists();
    let column = reader.identifier()?;
    if reader.words(&["DROP", "NOT", "NULL"]) {
        return Ok(Action::DropNotNull { column, if_exists });
    }
    if reader.words(&["DROP", "DEFAULT"]) {
        return Ok(Action::DropDefault { column, if_exists });
    }
    if reader.words(&["SET", "DEFAULT"]) {
        let expression = reader.expression_text()?;
        return Ok(Action::SetDefault {
            column,
            if_exists,
            expression,
        });
    }
    if reader.sees(&["SET", "DATA", "TYPE"]) {
        return Err(QueryError::unsupported("ALTER COLUMN SET DATA TYPE"));
    }
    if reader.sees(&["SET", "OPTIONS"]) {
        reader.word("SET");
        let options = reader.options()?;
        return Ok(Action::SetColumnOptions {
            column,
            if_exists,
            options,
        });
    }
    Err(reader.unexpected("DROP NOT NULL, DROP DEFAULT, SET DEFAULT or SET OPTIONS"))
}
