//! What SQL says of a table, and what is kept of it.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{Expr, Value, ValueWithSpan};
use serde::{Deserialize, Serialize};

/// What stands in `WITH (...)` and is not yet pulled.
#[derive(Clone, Debug)]
pub struct ConnectorOptions {
    options: HashMap<String, Expr>,
    partitions: Vec<Expr>,
}

impl ConnectorOptions {
    /// These, and `PARTITIONED BY`.
    #[must_use]
    pub fn new(options: HashMap<String, Expr>, partitions: Vec<Expr>) -> Self {
        Self { options, partitions }
    }

    /// Adds one, or puts it in another's place.
    pub fn insert(&mut self, name: &str, value: Expr) {
        self.options.insert(name.to_owned(), value);
    }

    /// As [`ConnectorOptions::insert`], of text.
    pub fn put(&mut self, name: &str, text: &str) {
        self.insert(name, Expr::value(Value::SingleQuotedString(text.to_owned())));
    }

    /// `PARTITIONED BY`.
    #[must_use]
    pub fn partitions(&self) -> &[Expr] {
        &self.partitions
    }

    /// The names.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.options.keys()
    }

    /// Takes one out: an array's elements, text cut at commas, or the value.
    pub fn pull_opt_array(&mut self, name: &str) -> Option<Vec<Expr>> {
        Some(match self.options.remove(name)? {
            Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(text),
                ..
            }) => {
                let parts = text.split(',');
                parts
                    .map(|part| Expr::value(Value::SingleQuotedString(part.to_owned())))
                    .collect()
            }
            Expr::Array(array) => array.elem,
            value => vec![value],
        })
    }
}

/// What an operator is made of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperatorConfig {
    /// The profile.
    pub connection: serde_json::Value,
    /// The table.
    pub table: serde_json::Value,
    /// Rows a second, of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
}
