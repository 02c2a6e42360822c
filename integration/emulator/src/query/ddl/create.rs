//! `CREATE`, `DROP` and `INSERT`.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::partition::Partition;
use super::reader::Reader;
use super::{Create, CreateTable, CreateView, Insert, Source, Statement, columns};
use crate::query::QueryError;

/// After `CREATE`.
pub(super) fn create(reader: &mut Reader<'_>) -> Result<Statement, QueryError> {
    let replace = reader.words(&["OR", "REPLACE"]);
    if reader.word("TABLE") {
        let create = how(reader, replace)?;
        return table(reader, create);
    }
    if reader.word("VIEW") {
        let create = how(reader, replace)?;
        return view(reader, create);
    }
    if reader.word("SCHEMA") && !replace {
        let if_not_exists = reader.if_not_exists();
        return Ok(Statement::CreateSchema {
            if_not_exists,
            name: reader.name()?,
            options: reader.options()?,
        });
    }
    Err(other(reader, "CREATE"))
}

/// After `DROP`.
pub(super) fn drop(reader: &mut Reader<'_>) -> Result<Statement, QueryError> {
    if reader.word("TABLE") {
        let if_exists = reader.if_exists();
        let name = reader.name()?;
        return Ok(Statement::DropTable { name, if_exists });
    }
    if reader.word("VIEW") {
        let if_exists = reader.if_exists();
        let name = reader.name()?;
        return Ok(Statement::DropView { name, if_exists });
    }
    if reader.word("SCHEMA") {
        let if_exists = reader.if_exists();
        let name = reader.name()?;
        let cascade = reader.word("CASCADE");
        // The default.
        reader.word("RESTRICT");
        return Ok(Statement::DropSchema {
            name,
            if_exists,
            cascade,
        });
    }
    Err(other(reader, "DROP"))
}

/// After `INSERT`.
pub(super) fn insert(reader: &mut Reader<'_>) -> Result<Statement, QueryError> {
    reader.word("INTO");
    let name = reader.name()?;
    let columns = match reader.sees_symbol(&Token::LParen) && !reader.sees_query_in_parentheses() {
        true => Some(reader.identifiers()?),
        false => None,
    };
    let source = match reader.word("VALUES") {
        true => Source::Values(rows(reader)?),
        false => Source::Query(reader.query()?),
    };
    Ok(Statement::Insert(Insert {
        name,
        columns,
        source,
    }))
}

fn rows(reader: &mut Reader<'_>) -> Result<Vec<Vec<Option<Expr>>>, QueryError> {
    let mut rows = Vec::new();
    loop {
        let mut row = Vec::new();
        reader.expect_symbol(&Token::LParen)?;
        loop {
            row.push(match reader.word("DEFAULT") {
                true => None,
                false => Some(reader.expression()?),
            });
            // Unlike after the last column of a table, no comma can stand after the last value.
            if !reader.symbol(&Token::Comma) {
                reader.expect_symbol(&Token::RParen)?;
                break;
            }
        }
        rows.push(row);
        if !reader.symbol(&Token::Comma) {
            return Ok(rows);
        }
    }
}

fn how(reader: &mut Reader<'_>, replace: bool) -> Result<Create, QueryError> {
    match (replace, reader.if_not_exists()) {
        (false, false) => Ok(Create::New),
        (false, true) => Ok(Create::IfNotExists),
        (true, false) => Ok(Create::OrReplace),
        (true, true) => Err(QueryError::Invalid(
            "CREATE cannot have both OR REPLACE and IF NOT EXISTS".to_owned(),
        )),
    }
}

fn table(reader: &mut Reader<'_>, create: Create) -> Result<Statement, QueryError> {
    let name = reader.name()?;
    if let Some(word) = ["LIKE", "COPY", "CLONE"]
        .into_iter()
        .find(|word| reader.sees(&[word]))
    {
        return Err(QueryError::unsupported(&format!("CREATE TABLE {word}")));
    }
    let elements = match reader.sees_symbol(&Token::LParen) {
        true => Some(columns::elements(reader)?),
        false => None,
    };
    let has_columns = elements.is_some();
    let elements = elements.unwrap_or_default();
    let default_collation = default_collation(reader)?;
    let partition = match reader.words(&["PARTITION", "BY"]) {
        true => Some(Partition::read(&reader.expression()?)?),
        false => None,
    };
    let cluster = match reader.words(&["CLUSTER", "BY"]) {
        true => reader.identifiers_without_parentheses()?,
        false => Vec::new(),
    };
    let options = reader.options()?;
    let query = match reader.word("AS") {
        true => Some(reader.query()?),
        false => None,
    };
    if !has_columns && query.is_none() {
        return Err(reader.unexpected("\"(\" or keyword AS"));
    }
    Ok(Statement::CreateTable(Box::new(CreateTable {
        name,
        create,
        columns: Some(elements.columns).filter(|columns| !columns.is_empty() || query.is_none()),
        primary_key: elements.primary_key,
        foreign_keys: elements.foreign_keys,
        default_collation,
        partition,
        cluster,
        options,
        query,
    })))
}

/// `DEFAULT COLLATE 'und:ci'`, if it comes next.
pub(super) fn default_collation(reader: &mut Reader<'_>) -> Result<Option<String>, QueryError> {
    match reader.words(&["DEFAULT", "COLLATE"]) {
        true => reader.string().map(Some),
        false => Ok(None),
    }
}

fn view(reader: &mut Reader<'_>, create: Create) -> Result<Statement, QueryError> {
    let name = reader.name()?;
    let columns = match reader.sees_symbol(&Token::LParen) {
        true => reader.list(|reader| Ok((reader.identifier()?, reader.options()?)))?,
        false => Vec::new(),
    };
    let options = reader.options()?;
    reader.expect(&["AS"])?;
    Ok(Statement::CreateView(Box::new(CreateView {
        name,
        create,
        columns,
        options,
        query: reader.query_text()?,
    })))
}

/// A statement that BigQuery may have, but this emulator has not.
pub(super) fn other(reader: &mut Reader<'_>, verb: &str) -> QueryError {
    match reader.identifier() {
        Ok(what) => QueryError::unsupported(&format!("{verb} {}", what.to_uppercase())),
        Err(error) => error,
    }
}
