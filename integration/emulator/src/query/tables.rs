//! Parsing, and the tables that a query names.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, TableAlias, TableFactor, VisitMut, VisitorMut, With,
};

use crate::catalog::TableRef;
use crate::query::QueryError;
use crate::query::names::Names;
#[cfg(test)]
use crate::query::parameters::Parameters;
use crate::query::text::{Text, syntax};

/// BigQuery's dialect never gives an identifier this quote, so it marks what has been resolved; and
/// DataFusion takes the spelling of an identifier so quoted as it is.
pub(super) const RESOLVED: char = '"';

/// Parses one SELECT.
///
/// # Errors
/// `Syntax`; `Invalid` for other statements, or several.
pub(super) fn parse(text: &Text<'_>) -> Result<Box<Query>, QueryError> {
    let mut statements = text.parser().parse_statements().map_err(syntax)?;
    match (statements.pop(), statements.is_empty()) {
        (None, _) => Err(QueryError::Syntax("Unexpected end of statement".to_owned())),
        (Some(Statement::Query(query)), true) => Ok(query),
        (Some(other), true) => {
            let text = other.to_string();
            let verb = text.split_whitespace().next().unwrap_or_default().to_uppercase();
            Err(QueryError::unsupported(&verb))
        }
        (Some(_), false) => {
            let text =
                "Scripts of several statements are not supported by this emulator. Send one statement.";
            Err(QueryError::Invalid(text.to_owned()))
        }
    }
}

/// Finds the tables of a query, and renames the i-th to [`internal_name`]`(i)` wherever it occurs, keeping
/// what it is called in expressions. Names of common table expressions stay.
///
/// # Errors
/// `Unqualified`, `Invalid`.
pub(super) fn resolve(query: &mut Query, names: &Names) -> Result<Vec<TableRef>, QueryError> {
    let mut tables = Tables {
        names,
        found: Vec::new(),
        scopes: Vec::new(),
    };
    match query.visit(&mut tables) {
        ControlFlow::Continue(()) => Ok(tables.found),
        ControlFlow::Break(error) => Err(error),
    }
}

/// What the i-th table is called inside the engine.
pub(super) fn internal_name(i: usize) -> String {
    format!("$table_{i}")
}

struct Tables<'a> {
    names: &'a Names,
    found: Vec<TableRef>,
    scopes: Vec<Scope>,
}

/// The common table expressions of one query, out of it while its body is visited.
struct Scope {
    with: Option<With>,
    names: Vec<String>,
}

impl VisitorMut for Tables<'_> {
    type Break = QueryError;

    /// Visits the WITH clause by hand: a common table expression is known to those after it, not to itself,
    /// so that `WITH t AS (SELECT * FROM t)` means the table.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<QueryError> {
        let mut with = query.with.take();
        self.scopes.push(Scope {
            with: None,
            names: Vec::new(),
        });
        let recursive = with.as_ref().is_some_and(|with| with.recursive);
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let name = cte.alias.name.value.to_lowercase();
            if recursive {
                self.add_name(name.clone());
            }
            cte.query.visit(self)?;
            self.add_name(name);
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.with = with;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<QueryError> {
        if let Some(scope) = self.scopes.pop() {
            query.with = scope.with;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<QueryError> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            version,
            sample,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        if version.is_some() {
            let text = "FOR SYSTEM_TIME AS OF is not supported by this emulator";
            return ControlFlow::Break(QueryError::Invalid(text.to_owned()));
        }
        if sample.is_some() {
            let text = "TABLESAMPLE is not supported by this emulator";
            return ControlFlow::Break(QueryError::Invalid(text.to_owned()));
        }
        match self.rename(name) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(table)) => {
                alias.get_or_insert_with(|| TableAlias {
                    name: Ident::new(table),
                    columns: Vec::new(),
                });
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Tables<'_> {
    fn add_name(&mut self, name: String) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.push(name);
        }
    }

    /// Renames a table and returns its own name; `None` for a common table expression.
    fn rename(&mut self, name: &mut ObjectName) -> Result<Option<String>, QueryError> {
        let parts = parts(name);
        if let [only] = parts.as_slice() {
            let lower = only.to_lowercase();
            if self.scopes.iter().any(|scope| scope.names.contains(&lower)) {
                return Ok(None);
            }
        }
        let table = self.names.table(&parts)?;
        let own = parts.last().cloned().unwrap_or_default();
        let known = self.found.iter().position(|other| *other == table);
        let i = known.unwrap_or_else(|| {
            self.found.push(table);
            self.found.len() - 1
        });
        *name = ObjectName::from(vec![Ident::with_quote(RESOLVED, internal_name(i))]);
        Ok(Some(own))
    }
}

/// The parts of a name; a backtick may hold several of them, as in `` `p.d.t` ``.
pub(super) fn parts(name: &ObjectName) -> Vec<String> {
    let idents = name.0.iter().filter_map(ObjectNamePart::as_ident);
    idents
        .flat_map(|ident| ident.value.split('.'))
        .map(str::to_owned)
        .collect()
}

/// As [`parse`], without parameters.
#[cfg(test)]
pub(super) fn parse_sql(sql: &str) -> Result<Box<Query>, QueryError> {
    parse(&Text::read(sql, &Parameters::default())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::DatasetRef;

    fn resolved(sql: &str, default: Option<&str>) -> Result<(String, Vec<String>), QueryError> {
        let mut query = parse_sql(sql)?;
        let names = Names {
            project: "p".to_owned(),
            default_dataset: default.map(|dataset| DatasetRef::new("p", dataset)),
        };
        let found = resolve(&mut query, &names)?;
        let found = found.iter().map(ToString::to_string).collect();
        Ok((query.to_string(), found))
    }

    #[test]
    fn every_spelling_of_a_table_is_found_and_keeps_its_last_part_as_its_name() {
        for name in [
            "`p.d.t`",
            "`p`.`d`.`t`",
            "p.d.t",
            "d.t",
            "`d.t`",
            "`p`.d.t",
            "`p.d`.t",
            "t",
            "`t`",
        ] {
            let got = resolved(&format!("SELECT t.a FROM {name}"), Some("d"));
            let want = r#"SELECT t.a FROM "$table_0" AS t"#.to_owned();
            assert_eq!(got, Ok((want, vec!["p:d.t".to_owned()])), "{name}");
        }
        let (_, found) = resolved("SELECT * FROM my-project-7.d.t", None).unwrap();
        assert_eq!(found, ["my-project-7:d.t"]);
        let (_, found) = resolved("SELECT * FROM `my-project-7.d.t`", None).unwrap();
        assert_eq!(found, ["my-project-7:d.t"]);
    }

    #[test]
    fn tables_are_renamed_wherever_they_occur_and_ctes_are_left_alone() {
        for (sql, want, tables) in [
            (
                "SELECT * FROM d.a AS x JOIN d.b USING (id) JOIN d.a y ON y.id = x.id",
                r#"SELECT * FROM "$table_0" AS x JOIN "$table_1" AS b USING(id) JOIN "$table_0" AS y ON y.id = x.id"#,
                vec!["p:d.a", "p:d.b"],
            ),
            (
                "WITH a AS (SELECT * FROM a), b AS (SELECT * FROM A) SELECT * FROM b, d.c",
                r#"WITH a AS (SELECT * FROM "$table_0" AS a), b AS (SELECT * FROM A) SELECT * FROM b, "$table_1" AS c"#,
                vec!["p:def.a", "p:d.c"],
            ),
            (
                "SELECT (SELECT max(x) FROM d.a) FROM d.b WHERE id IN (SELECT id FROM `d.c`)",
                r#"SELECT (SELECT max(x) FROM "$table_0" AS a) FROM "$table_1" AS b WHERE id IN (SELECT id FROM "$table_2" AS c)"#,
                vec!["p:d.a", "p:d.b", "p:d.c"],
            ),
            (
                "SELECT 1 FROM (WITH c AS (SELECT 1 AS x) SELECT * FROM c) UNION ALL SELECT 2 FROM c",
                r#"SELECT 1 FROM (WITH c AS (SELECT 1 AS x) SELECT * FROM c) UNION ALL SELECT 2 FROM "$table_0" AS c"#,
                vec!["p:def.c"],
            ),
            (
                "SELECT x FROM UNNEST([1, 2]) AS x",
                "SELECT x FROM UNNEST([1, 2]) AS x",
                vec![],
            ),
        ] {
            let (got, found) = resolved(sql, Some("def")).unwrap();
            assert_eq!(got, want);
            assert_eq!(found, tables, "{sql}");
        }
    }

    #[test]
    fn what_cannot_be_a_query_here_is_refused_with_its_reason() {
        for (sql, text) in [
            ("", "Syntax error: Unexpected end of statement"),
            ("SELECT FROM WHERE", "Syntax error: Expected"),
            (
                "SELECT * FROM t",
                "Table \"t\" must be qualified with a dataset (e.g. dataset.table).",
            ),
            (
                "SELECT * FROM a.b.c.d",
                "Invalid table name: `a.b.c.d`. Write project.dataset.table.",
            ),
            (
                "DELETE FROM d.t WHERE true",
                "Statement not supported by this emulator: DELETE",
            ),
            (
                "UPDATE d.t SET a = 1 WHERE true",
                "Statement not supported by this emulator: UPDATE",
            ),
            (
                "SELECT 1; SELECT 2",
                "Scripts of several statements are not supported by this emulator.",
            ),
            (
                "SELECT * FROM d.t FOR SYSTEM_TIME AS OF '2024-01-01'",
                "FOR SYSTEM_TIME AS OF is not supported by this emulator",
            ),
        ] {
            let error = resolved(sql, None).unwrap_err().to_string();
            assert!(error.starts_with(text), "{sql}: {error}");
        }
    }

    #[test]
    fn deep_nesting_costs_neither_the_stack_nor_exponential_time() {
        let mut nested = "SELECT 1".to_owned();
        for i in 0..40 {
            nested = format!("WITH c{i} AS ({nested}) SELECT * FROM c{i}");
        }
        assert_eq!(resolved(&nested, None).unwrap().1, Vec::<String>::new());
        let parens = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(matches!(resolved(&parens, None), Err(QueryError::Syntax(_))));
    }
}
