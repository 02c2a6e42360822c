//! Columns of a table, their types, and its keys.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::reader::Reader;
use super::{ForeignKey, options};
use crate::query::QueryError;
use crate::schema::{Column, Kind, Mode, RangeElement};

/// What stands between the parentheses of `CREATE TABLE`.
#[derive(Debug, Default)]
pub(super) struct Elements {
    pub(super) columns: Vec<Column>,
    pub(super) primary_key: Option<Vec<String>>,
    pub(super) foreign_keys: Vec<ForeignKey>,
}

/// A key of `CREATE TABLE` or `ALTER TABLE ADD`.
pub(super) enum Key {
    Primary(Vec<String>),
    Foreign(ForeignKey),
}

/// `(column, ..., PRIMARY KEY (...) NOT ENFORCED, ...)`.
pub(super) fn elements(reader: &mut Reader<'_>) -> Result<Elements, QueryError> {
    let mut elements = Elements::default();
    let mut keys = Vec::new();
    let columns = reader.list(|reader| {
        if starts_key(reader) {
            keys.push(key(reader)?);
            return Ok(None);
        }
        let (column, of_column) = column(reader)?;
        keys.extend(of_column);
        Ok(Some(column))
    })?;
    elements.columns = columns.into_iter().flatten().collect();
    for key in keys {
        match key {
            Key::Primary(columns) if elements.primary_key.is_none() => elements.primary_key = Some(columns),
            Key::Primary(_) => {
                let text = "A table can have at most one primary key";
                return Err(QueryError::Invalid(text.to_owned()));
            }
            Key::Foreign(key) => elements.foreign_keys.push(key),
        }
    }
    Ok(elements)
}

/// A column of these names is `` `constraint` `` in backticks.
fn starts_key(reader: &Reader<'_>) -> bool {
    reader.sees(&["CONSTRAINT"]) || reader.sees(&["PRIMARY", "KEY"]) || reader.sees(&["FOREIGN", "KEY"])
}

/// `[CONSTRAINT name] PRIMARY KEY (a, b) NOT ENFORCED`, or a foreign key.
pub(super) fn key(reader: &mut Reader<'_>) -> Result<Key, QueryError> {
    let name = match reader.word("CONSTRAINT") {
        true => {
            reader.if_not_exists();
            Some(reader.identifier()?)
        }
        false => None,
    };
    if reader.words(&["PRIMARY", "KEY"]) {
        let columns = reader.identifiers()?;
        not_enforced(reader, "primary")?;
        return Ok(Key::Primary(columns));
    }
    reader.expect(&["FOREIGN", "KEY"])?;
    let columns = reader.identifiers()?;
    reader.expect(&["REFERENCES"])?;
    Ok(Key::Foreign(references(reader, name, columns)?))
}

/// `t (x) NOT ENFORCED`.
fn references(
    reader: &mut Reader<'_>,
    name: Option<String>,
    columns: Vec<String>,
) -> Result<ForeignKey, QueryError> {
    let key = ForeignKey {
        name,
        columns,
        table: reader.name()?,
        referenced: reader.identifiers()?,
    };
    not_enforced(reader, "foreign")?;
    Ok(key)
}

/// The text is not confirmed by a source.
fn not_enforced(reader: &mut Reader<'_>, key: &str) -> Result<(), QueryError> {
    if reader.words(&["NOT", "ENFORCED"]) {
        return Ok(());
    }
    Err(QueryError::Invalid(format!(
        "Enforced {key} keys are not supported. Add NOT ENFORCED to the {key} key."
    )))
}

/// `name type [NOT NULL] [DEFAULT expression] [OPTIONS(...)]`, and the keys that it declares.
pub(super) fn column(reader: &mut Reader<'_>) -> Result<(Column, Vec<Key>), QueryError> {
    let name = reader.identifier()?;
    let (kind, mode) = column_type(reader)?;
    let mut column = Column::new(name, kind, mode);
    let mut keys = Vec::new();
    loop {
        if reader.words(&["NOT", "NULL"]) {
            require(&mut column)?;
        } else if reader.words(&["PRIMARY", "KEY"]) {
            not_enforced(reader, "primary")?;
            keys.push(Key::Primary(vec![column.name.clone()]));
        } else if reader.word("REFERENCES") {
            let key = references(reader, None, vec![column.name.clone()])?;
            keys.push(Key::Foreign(key));
        } else if reader.word("DEFAULT") {
            column.default_value_expression = Some(reader.expression_text()?);
        } else if reader.word("COLLATE") {
            if !reader.string()?.is_empty() {
                let name = &column.name;
                let text = format!("This emulator does not support COLLATE (column {name})");
                return Err(QueryError::Invalid(text));
            }
        } else if reader.sees(&["OPTIONS"]) {
            options::column(&mut column, &reader.options()?)?;
        } else if reader.sees(&["GENERATED"]) {
            return Err(QueryError::Invalid(
                "Generated columns are not supported by this emulator".to_owned(),
            ));
        } else {
            return Ok((column, keys));
        }
    }
}

fn require(column: &mut Column) -> Result<(), QueryError> {
    if column.mode == Mode::Repeated {
        let name = &column.name;
        return Err(QueryError::Invalid(format!(
            "NOT NULL cannot be used with the ARRAY column {name}: an ARRAY is never NULL"
        )));
    }
    column.mode = Mode::Required;
    Ok(())
}

/// A column's type: an ARRAY is a mode.
pub(super) fn column_type(reader: &mut Reader<'_>) -> Result<(Kind, Mode), QueryError> {
    if !reader.word("ARRAY") {
        return Ok((kind(reader)?, Mode::Nullable));
    }
    reader.expect_symbol(&Token::Lt)?;
    if reader.sees(&["ARRAY"]) {
        let text = "Array of arrays is not supported; put a STRUCT between them";
        return Err(QueryError::Invalid(text.to_owned()));
    }
    let kind = kind(reader)?;
    reader.expect_greater()?;
    Ok((kind, Mode::Repeated))
}

fn kind(reader: &mut Reader<'_>) -> Result<Kind, QueryError> {
    let name = reader.identifier()?.to_ascii_uppercase();
    Ok(match name.as_str() {
        "BOOL" | "BOOLEAN" => Kind::Bool,
        "INT64" | "INT" | "SMALLINT" | "INTEGER" | "BIGINT" | "TINYINT" | "BYTEINT" => Kind::Int64,
        "FLOAT64" => Kind::Float64,
        "NUMERIC" | "DECIMAL" => {
            let (precision, scale) = digits(reader)?;
            Kind::Numeric { precision, scale }
        }
        "BIGNUMERIC" | "BIGDECIMAL" => {
            let (precision, scale) = digits(reader)?;
            Kind::BigNumeric { precision, scale }
        }
        "STRING" => Kind::String {
            max_length: length(reader)?,
        },
        "BYTES" => Kind::Bytes {
            max_length: length(reader)?,
        },
        "DATE" => Kind::Date,
        "TIME" => Kind::Time,
        "DATETIME" => Kind::Datetime,
        "TIMESTAMP" => match length(reader)? {
            None | Some(6) => Kind::Timestamp,
            Some(12) => Kind::TimestampPicoseconds,
            Some(other) => {
                let text = format!("Invalid precision of TIMESTAMP: {other}; it is 6 or 12");
                return Err(QueryError::Invalid(text));
            }
        },
        "INTERVAL" => Kind::Interval,
        "JSON" => Kind::Json,
        "GEOGRAPHY" => Kind::Geography,
        "RANGE" => {
            reader.expect_symbol(&Token::Lt)?;
            let element = reader.nested(kind)?;
            reader.expect_greater()?;
            let text = || format!("RANGE of {} is not supported", element.sql_name());
            let element = RangeElement::try_from(&element).map_err(|()| QueryError::Invalid(text()))?;
            Kind::Range(element)
        }
        "STRUCT" => reader.nested(structure)?,
        _ => return Err(QueryError::Invalid(format!("Type not found: {name}"))),
    })
}

/// `STRUCT<name type [NOT NULL] [OPTIONS(...)], ...>`.
fn structure(reader: &mut Reader<'_>) -> Result<Kind, QueryError> {
    reader.expect_symbol(&Token::Lt)?;
    let mut columns = Vec::new();
    loop {
        let name = reader.identifier()?;
        let (kind, mode) = column_type(reader)?;
        let mut column = Column::new(name, kind, mode);
        if reader.words(&["NOT", "NULL"]) {
            require(&mut column)?;
        }
        let options = reader.options()?;
        options::column(&mut column, &options)?;
        columns.push(column);
        if !reader.symbol(&Token::Comma) {
            break;
        }
    }
    reader.expect_greater()?;
    Ok(Kind::Struct(columns))
}

fn digits(reader: &mut Reader<'_>) -> Result<(Option<u8>, Option<u8>), QueryError> {
    let parameters = parameters(reader)?;
    let small = |i: usize| match parameters.get(i) {
        None => Ok(None),
        Some(number) => u8::try_from(*number)
            .map(Some)
            .map_err(|_| QueryError::Invalid(format!("Invalid precision or scale: {number}"))),
    };
    Ok((small(0)?, small(1)?))
}

fn length(reader: &mut Reader<'_>) -> Result<Option<i64>, QueryError> {
    match parameters(reader)?.as_slice() {
        [] => Ok(None),
        [length] if *length > 0 => Ok(Some(*length)),
        _ => Err(QueryError::Invalid(
            "A type's length must be one number above 0".to_owned(),
        )),
    }
}

/// `(10, 2)`, if it comes next.
fn parameters(reader: &mut Reader<'_>) -> Result<Vec<i64>, QueryError> {
    if reader.sees_symbol(&Token::LParen) {
        reader.list(Reader::integer)
    } else {
        Ok(Vec::new())
    }
}
