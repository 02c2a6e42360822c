//! `CREATE TABLE name (columns) WITH (options)`: the columns as an Arrow schema, the options as text with their places.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, DateTimeField, Expr, Ident, Interval, ObjectName,
    SqlOption as AstOption, UnaryOperator, Value,
};

use super::clauses::refuse_in_create;
use super::error::{Mistakes, Place, did_you_mean, start_of};
use super::statements::Statement;
use super::types;

/// One option of a table, as written: numbers, booleans and intervals are text too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlOption {
    /// Its name.
    pub name: String,
    /// Its value; an interval reads like `5 seconds`.
    pub value: String,
    /// Line of the name, from 1.
    pub line: u64,
    /// Column of the name, from 1.
    pub column: u64,
}

/// A declared table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) connector: String,
    /// `None` if no columns are declared.
    pub(super) columns: Option<SchemaRef>,
    /// Columns of the primary key, each with its place.
    pub(super) primary_key: Vec<(String, Place)>,
    pub(super) options: Vec<SqlOption>,
}

impl SqlOption {
    pub(crate) fn place(&self) -> Place {
        Place {
            line: self.line,
            column: self.column,
        }
    }
}

/// Reads one CREATE TABLE; `None` if it is of no use to what follows.
pub(super) fn read(create: &CreateTable, statement: &Statement, mistakes: &mut Mistakes) -> Option<Table> {
    let name = object_name(&create.name);
    let place = statement
        .find_word(last_ident(&create.name))
        .unwrap_or(statement.start());
    if create.name.0.len() > 1 {
        let message = format!(
            "table {name}: the name of a table has one part here; name the BigQuery dataset with the option 'dataset'"
        );
        mistakes.add(place, message);
    }
    refuse_in_create(create, place, statement, mistakes);
    let (columns, primary_key) = columns(&create.columns, place, mistakes);
    let options = options(&create.with_options, statement, mistakes);
    let Some(connector) = options.iter().find(|option| option.name == "connector") else {
        mistakes.add(
            place,
            format!("table {name} has no connector; add WITH (connector = '...')"),
        );
        return None;
    };
    let connector = connector.value.clone();
    Some(Table {
        name,
        place,
        connector,
        columns,
        primary_key,
        options,
    })
}

/// Unquoted names are folded to lower case, as the planner does.
pub(super) fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        ident.value.to_lowercase()
    }
}

pub(super) fn object_name(name: &ObjectName) -> String {
    let parts: Vec<_> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident().map(fold))
        .collect();
    parts.join(".")
}

fn last_ident(name: &ObjectName) -> &str {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .map_or("", |ident| ident.value.as_str())
}

/// Names of the columns of the primary key, with their places.
type PrimaryKey = Vec<(String, Place)>;

/// The columns, and those of the primary key: `PRIMARY KEY` behind a column is all that the engine reads of keys (arroyo.md 6).
fn columns(defs: &[ColumnDef], table: Place, mistakes: &mut Mistakes) -> (Option<SchemaRef>, PrimaryKey) {
    let mut primary_key = PrimaryKey::new();
    if defs.is_empty() {
        return (None, primary_key);
    }
    let mut names = HashSet::new();
    let mut fields = Vec::with_capacity(defs.len());
    for def in defs {
        let place = start_of(def.name.span).unwrap_or(table);
        // As written, like the engine: a file's keys have their case.
        let name = def.name.value.clone();
        if !names.insert(name.clone()) {
            mistakes.add(place, format!("column {name} is declared twice"));
            continue;
        }
        let mut nullable = true;
        for option in &def.options {
            match &option.option {
                ColumnOption::NotNull => nullable = false,
                ColumnOption::Null => {}
                ColumnOption::Unique {
                    is_primary: true,
                    characteristics,
                } if characteristics.is_none_or(|said| said.enforced != Some(true)) => {
                    primary_key.push((name.clone(), place));
                }
                other => {
                    let message = format!(
                        "column {name}: {other} is not yet supported; only NOT NULL and PRIMARY KEY are"
                    );
                    mistakes.add(place, message);
                }
            }
        }
        match types::field(&name, &def.data_type, nullable) {
            Ok(field) => fields.push(field),
            Err(reason) => mistakes.add(place, format!("column {name}: {reason}")),
        }
    }
    (Some(Arc::new(Schema::new(fields))), primary_key)
}

fn options(parsed: &[AstOption], statement: &Statement, mistakes: &mut Mistakes) -> Vec<SqlOption> {
    let mut options: Vec<SqlOption> = Vec::with_capacity(parsed.len());
    for option in parsed {
        let AstOption::KeyValue { key, value } = option else {
            mistakes.add(
                statement.start(),
                format!("option {option} is not of the form name = 'value'"),
            );
            continue;
        };
        let name = key.value.clone();
        let again = options.iter().filter(|option| option.name == name).count();
        let place = start_of(key.span)
            .or_else(|| statement.find_option(&name, again))
            .unwrap_or(statement.start());
        if again > 0 {
            mistakes.add(place, format!("option '{name}' is given twice"));
            continue;
        }
        match option_text(value) {
            Some(value) => options.push(SqlOption { name, value, line: place.line, column: place.column }),
            None => mistakes.add(
                place,
                format!("the value of option '{name}' is neither text in single quotes, a number, true, false nor an interval"),
            ),
        }
    }
    options
}

fn option_text(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            Value::Number(text, _) => Some(text.clone()),
            Value::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => option_text(expr).map(|text| format!("-{text}")),
        Expr::Interval(interval) => interval_text(interval),
        _ => None,
    }
}

/// `INTERVAL '5 seconds'` and `INTERVAL '5' SECOND` both read `5 seconds`.
fn interval_text(interval: &Interval) -> Option<String> {
    let amount = option_text(&interval.value)?;
    let Some(unit) = &interval.leading_field else {
        return Some(amount);
    };
    let unit = match unit {
        DateTimeField::Second | DateTimeField::Seconds => "seconds",
        DateTimeField::Minute | DateTimeField::Minutes => "minutes",
        DateTimeField::Hour | DateTimeField::Hours => "hours",
        DateTimeField::Day | DateTimeField::Days => "days",
        DateTimeField::Millisecond | DateTimeField::Milliseconds => "milliseconds",
        _ => return None,
    };
    Some(format!("{amount} {unit}"))
}

/// Options of a source being read: what is asked for is taken out, what is left is unknown.
#[derive(Debug)]
pub(crate) struct OptionReader<'a> {
    table: &'a str,
    place: Place,
    left: Vec<&'a SqlOption>,
    mistakes: &'a mut Mistakes,
}

impl<'a> OptionReader<'a> {
    pub(super) fn new(table: &'a Table, mistakes: &'a mut Mistakes) -> Self {
        Self {
            table: &table.name,
            place: table.place,
            left: table.options.iter().collect(),
            mistakes,
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<&'a SqlOption> {
        let index = self.left.iter().position(|option| option.name == name)?;
        Some(self.left.remove(index))
    }

    pub(crate) fn required(&mut self, name: &str) -> Option<&'a SqlOption> {
        let option = self.take(name);
        if option.is_none() {
            self.table_mistake(&format!("has no option '{name}'; add it to WITH (...)"));
        }
        option
    }

    /// A value read by `parse`; `expected` says what would be right.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let option = self.take(name)?;
        let value = parse(&option.value);
        if value.is_none() {
            self.mistake(option, expected);
        }
        value
    }

    /// A wrong value of an option that was taken.
    pub(crate) fn mistake(&mut self, option: &SqlOption, expected: &str) {
        let message = format!(
            "option '{}' is '{}'; it must be {expected}",
            option.name, option.value
        );
        self.mistakes.add(option.place(), message);
    }

    /// A mistake of the table as a whole; `what` follows its name.
    pub(crate) fn table_mistake(&mut self, what: &str) {
        let message = format!("table {} {what}", self.table);
        self.mistakes.add(self.place, message);
    }

    /// Refuses what was not taken.
    pub(crate) fn finish(self, connector: &str, known: &[&str]) {
        for option in self.left {
            let near = did_you_mean(&option.name, known.iter().copied());
            let message = format!("connector {connector} has no option '{}'{near}", option.name);
            self.mistakes.add(option.place(), message);
        }
    }
}
