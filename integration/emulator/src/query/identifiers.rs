//! Names of columns: BigQuery ignores their case, DataFusion does not; and BigQuery names every column of a
//! result.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ExceptSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, Value, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::query::QueryError;
use crate::query::tables::RESOLVED;
use crate::schema::{Column, Kind, Schema};

/// Nested expressions, UNIONs and JOINs in one query; more would cost the planner's stack.
const DEEPEST: usize = 100;

/// One spelling for all spellings of a name: the first one met. Tables' columns come first.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    names: HashMap<String, String>,
    /// Aliases of tables, in lower case.
    relations: HashSet<String>,
}

/// How a column of the result is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutputName {
    /// As the query spells it, or BigQuery's name for a column without one.
    Written(String),
    /// Any number of columns with the names they have.
    Star,
}

impl OutputName {
    fn written(&self) -> Option<&str> {
        match self {
            Self::Written(name) => Some(name),
            Self::Star => None,
        }
    }
}

impl Spelling {
    /// A schema's columns under the one spelling.
    pub(super) fn columns(&mut self, columns: &[Column]) -> Vec<Column> {
        let mut columns = columns.to_vec();
        for column in &mut columns {
            column.name = self.of(&column.name);
            if let Kind::Struct(fields) = &column.kind {
                column.kind = Kind::Struct(self.columns(fields));
            }
        }
        columns
    }

    /// Gives every column name in the query the one spelling, and a name to fields of STRUCTs that are
    /// selected.
    ///
    /// # Errors
    /// `Invalid`: nested too deep, or with system variables.
    pub(super) fn apply(&mut self, query: &mut Query) -> Result<(), QueryError> {
        let mut relations = Relations(HashSet::new());
        if let ControlFlow::Break(never) = query.visit(&mut relations) {
            match never {}
        }
        self.relations = relations.0;
        let mut visitor = Identifiers {
            spelling: self,
            depth: 0,
        };
        match query.visit(&mut visitor) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn of(&mut self, name: &str) -> String {
        let spelling = self.names.entry(name.to_lowercase());
        spelling.or_insert_with(|| name.to_owned()).clone()
    }

    fn fix(&mut self, ident: &mut Ident) {
        if ident.quote_style != Some(RESOLVED) {
            *ident = Ident::with_quote(RESOLVED, self.of(&ident.value));
        }
    }

    fn fix_name(&mut self, name: &mut ObjectName) {
        for part in &mut name.0 {
            let ObjectNamePart::Identifier(ident) = part;
            self.fix(ident);
        }
    }

    fn fix_alias(&mut self, alias: &mut TableAlias) {
        self.fix(&mut alias.name);
        for column in &mut alias.columns {
            self.fix(&mut column.name);
        }
    }

    /// Whether a selected path ends in a field of a STRUCT; otherwise it is a column with its table.
    fn is_field(&self, path: &[Ident]) -> bool {
        let qualified = path
            .first()
            .is_some_and(|first| self.relations.contains(&first.value.to_lowercase()));
        path.len() > if qualified { 2 } else { 1 }
    }
}

/// Says what the result's columns are called, and calls those without a name `f0_`, `f1_`... as BigQuery
/// does.
///
/// # Errors
/// `Invalid`: two columns with one name.
pub(super) fn name_outputs(query: &mut Query) -> Result<Vec<OutputName>, QueryError> {
    let mut anonymous = 0;
    let Some(select) = first_select(query) else {
        return Ok(vec![OutputName::Star]);
    };
    let name = |item: &mut SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => OutputName::Written(alias.value.clone()),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => OutputName::Star,
        SelectItem::UnnamedExpr(expr) => {
            if let Some(name) = own_name(expr) {
                return OutputName::Written(name);
            }
            let name = format!("f{anonymous}_");
            anonymous += 1;
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::new(&name),
            };
            OutputName::Written(name)
        }
    };
    let names: Vec<OutputName> = select.projection.iter_mut().map(name).collect();
    check_unique(names.iter().filter_map(OutputName::written))?;
    Ok(names)
}

/// Gives a result's columns their names: those before the first star and after the last one.
///
/// # Errors
/// `Invalid`: two columns with one name.
pub(super) fn apply_outputs(names: &[OutputName], schema: &mut Schema) -> Result<(), QueryError> {
    let columns = &mut schema.columns;
    let head = names.iter().map_while(OutputName::written);
    for (column, name) in columns.iter_mut().zip(head) {
        name.clone_into(&mut column.name);
    }
    if names.contains(&OutputName::Star) {
        let tail = names.iter().rev().map_while(OutputName::written);
        for (column, name) in columns.iter_mut().rev().zip(tail) {
            name.clone_into(&mut column.name);
        }
    }
    check_unique(columns.iter().map(|column| column.name.as_str()))
}

fn check_unique<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), QueryError> {
    let mut seen = HashSet::new();
    match names.find(|name| !seen.insert(name.to_lowercase())) {
        None => Ok(()),
        Some(twice) => Err(QueryError::Invalid(format!(
            "Duplicate column names in the result are not supported. Found duplicate(s): {twice}"
        ))),
    }
}

fn first_select(query: &mut Query) -> Option<&mut Select> {
    let mut body = query.body.as_mut();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(query) => query.body.as_mut(),
            SetExpr::SetOperation { left, .. } => left.as_mut(),
            _ => return None,
        };
    }
}

/// The name that a selected expression has without an alias: the last one of a path.
fn own_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::CompoundIdentifier(path) => path.last().map(|ident| ident.value.clone()),
        Expr::CompoundFieldAccess { access_chain, .. } => match access_chain.last() {
            Some(AccessExpr::Dot(field)) => own_name(field),
            _ => None,
        },
        Expr::Nested(expr) => own_name(expr),
        _ => None,
    }
}

/// Collects the aliases of tables.
struct Relations(HashSet<String>);

impl VisitorMut for Relations {
    type Break = std::convert::Infallible;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let Some(alias) = alias_of(factor) {
            self.0.insert(alias.name.value.to_lowercase());
        } else if let TableFactor::Table { name, .. } = factor {
            let last = name.0.last().and_then(ObjectNamePart::as_ident);
            self.0.extend(last.map(|ident| ident.value.to_lowercase()));
        }
        ControlFlow::Continue(())
    }
}

struct Identifiers<'a> {
    spelling: &'a mut Spelling,
    depth: usize,
}

impl VisitorMut for Identifiers<'_> {
    type Break = QueryError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<QueryError> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            self.spelling.fix_alias(&mut cte.alias);
        }
        let mut bodies = vec![query.body.as_mut()];
        let mut seen = 0;
        while let Some(body) = bodies.pop() {
            seen += 1;
            match body {
                SetExpr::Select(select) => self.select(select),
                SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_mut(), right.as_mut()]),
                // A query in parentheses is visited in its turn.
                _ => {}
            }
        }
        self.check(seen / 2)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<QueryError> {
        let is_unnest = matches!(factor, TableFactor::UNNEST { .. });
        if let TableFactor::Table { name, .. } = factor {
            self.spelling.fix_name(name);
        }
        if let Some(alias) = alias_of(factor) {
            // BigQuery's `UNNEST(...) AS x` names the element.
            if is_unnest && alias.columns.is_empty() {
                alias.columns.push(TableAliasColumnDef {
                    name: alias.name.clone(),
                    data_type: None,
                });
            }
            self.spelling.fix_alias(alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<QueryError> {
        self.depth += 1;
        match expr {
            Expr::Identifier(ident) if ident.value.starts_with('@') && ident.quote_style.is_none() => {
                let text = format!(
                    "System variables are not supported by this emulator: {}",
                    ident.value
                );
                return ControlFlow::Break(QueryError::Invalid(text));
            }
            Expr::Identifier(ident) => self.spelling.fix(ident),
            Expr::CompoundIdentifier(path) => path.iter_mut().for_each(|ident| self.spelling.fix(ident)),
            Expr::Named { name, .. } => self.spelling.fix(name),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                access_chain.iter_mut().for_each(|access| self.field(access));
            }
            Expr::QualifiedWildcard(name, _) => self.spelling.fix_name(name),
            _ => {}
        }
        self.check(self.depth)
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<QueryError> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }
}

impl Identifiers<'_> {
    fn check(&self, depth: usize) -> ControlFlow<QueryError> {
        if depth <= DEEPEST {
            return ControlFlow::Continue(());
        }
        let text = format!("The query is too complex: more than {DEEPEST} nested expressions or UNIONs");
        ControlFlow::Break(QueryError::Invalid(text))
    }

    fn select(&mut self, select: &mut Select) {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item {
                let is_field = match &*expr {
                    Expr::CompoundIdentifier(path) => self.spelling.is_field(path),
                    Expr::CompoundFieldAccess { .. } => true,
                    _ => false,
                };
                if let Some(name) = own_name(expr).filter(|_| is_field) {
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: Ident::new(name),
                    };
                }
            }
            match item {
                SelectItem::UnnamedExpr(_) => {}
                SelectItem::ExprWithAlias { alias, .. } => self.spelling.fix(alias),
                SelectItem::Wildcard(options) => self.wildcard(options),
                SelectItem::QualifiedWildcard(kind, options) => {
                    if let SelectItemQualifiedWildcardKind::ObjectName(name) = kind {
                        self.spelling.fix_name(name);
                    }
                    self.wildcard(options);
                }
            }
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            self.join(join);
        }
    }

    /// `.name` behind an expression: DataFusion takes it as text.
    fn field(&mut self, access: &mut AccessExpr) {
        if let AccessExpr::Dot(Expr::Identifier(ident)) = access {
            let name = self.spelling.of(&ident.value);
            *access = AccessExpr::Dot(Expr::value(Value::SingleQuotedString(name)));
        }
    }

    fn wildcard(&mut self, options: &mut WildcardAdditionalOptions) {
        if let Some(ExceptSelectItem {
            first_element,
            additional_elements,
        }) = &mut options.opt_except
        {
            self.spelling.fix(first_element);
            additional_elements
                .iter_mut()
                .for_each(|ident| self.spelling.fix(ident));
        }
        for replace in options
            .opt_replace
            .iter_mut()
            .flat_map(|replace| &mut replace.items)
        {
            self.spelling.fix(&mut replace.column_name);
        }
    }

    fn join(&mut self, join: &mut Join) {
        let (JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)) = &mut join.join_operator
        else {
            return;
        };
        if let JoinConstraint::Using(columns) = constraint {
            columns.iter_mut().for_each(|name| self.spelling.fix_name(name));
        }
    }
}

fn alias_of(factor: &mut TableFactor) -> Option<&mut TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::names::Names;
    use crate::query::tables;
    use crate::schema::Mode;

    fn spelled(sql: &str) -> Result<(String, Vec<OutputName>), QueryError> {
        let mut query = tables::parse_sql(sql)?;
        let names = Names {
            project: "p".to_owned(),
            default_dataset: None,
        };
        tables::resolve(&mut query, &names)?;
        let mut spelling = Spelling::default();
        let inner = vec![Column::new("Inner", Kind::Int64, Mode::Nullable)];
        spelling.columns(&[
            Column::new("userId", Kind::Int64, Mode::Nullable),
            Column::new("s", Kind::Struct(inner), Mode::Nullable),
        ]);
        let names = name_outputs(&mut query)?;
        spelling.apply(&mut query)?;
        Ok((query.to_string(), names))
    }

    fn written(names: &[&str]) -> Vec<OutputName> {
        names
            .iter()
            .map(|name| OutputName::Written((*name).to_owned()))
            .collect()
    }

    #[test]
    fn columns_take_the_declared_spelling_and_outputs_the_written_one() {
        for (sql, want, names) in [
            (
                "SELECT T.UserId FROM d.t WHERE userid > 1 ORDER BY userID",
                r#"SELECT "T"."userId" FROM "$table_0" AS "T" WHERE "userId" > 1 ORDER BY "userId""#,
                vec!["UserId"],
            ),
            (
                "SELECT S.INNER, t.s.inner AS X, count(*), 1 FROM d.t",
                r#"SELECT "s"."Inner" AS "Inner", "t"."s"."Inner" AS "X", count(*) AS "f0_", 1 AS "f1_" FROM "$table_0" AS "t""#,
                vec!["INNER", "X", "f0_", "f1_"],
            ),
            (
                "WITH A AS (SELECT userid AS Uid FROM d.t) SELECT a.UID FROM A JOIN d.t USING (USERID)",
                r#"WITH "A" AS (SELECT "userId" AS "Uid" FROM "$table_0" AS "t") SELECT "A"."Uid" FROM "A" JOIN "$table_0" AS "t" USING("userId")"#,
                vec!["UID"],
            ),
            (
                "SELECT x FROM UNNEST([1, 2]) AS X",
                r#"SELECT "x" FROM UNNEST([1, 2]) AS "x" ("x")"#,
                vec!["x"],
            ),
        ] {
            let (got, outputs) = spelled(sql).unwrap();
            assert_eq!(got, want);
            assert_eq!(outputs, written(&names), "{sql}");
        }
    }

    #[test]
    fn outputs_around_stars_get_their_names() {
        let column = |name: &str| Column::new(name, Kind::Int64, Mode::Nullable);
        let run = |names: &[OutputName], columns: &[&str]| {
            let mut schema = Schema {
                columns: columns.iter().map(|name| column(name)).collect(),
            };
            apply_outputs(names, &mut schema)?;
            Ok::<_, QueryError>(
                schema
                    .columns
                    .into_iter()
                    .map(|column| column.name)
                    .collect::<Vec<_>>(),
            )
        };
        let mut names = written(&["A", "B"]);
        assert_eq!(run(&names, &["a", "b"]), Ok(vec!["A".to_owned(), "B".to_owned()]));
        names.insert(1, OutputName::Star);
        let around = run(&names, &["a", "x", "y", "b"]);
        assert_eq!(around, Ok(["A", "x", "y", "B"].map(str::to_owned).to_vec()));
        let twice = run(&[OutputName::Star], &["a", "A"]).unwrap_err().to_string();
        assert!(twice.ends_with("Found duplicate(s): A"), "{twice}");
    }

    #[test]
    fn parameters_and_system_variables_without_a_value_are_named() {
        for (sql, text) in [
            ("SELECT @x", "Query parameter '@x' not found"),
            (
                "SELECT @@x",
                "System variables are not supported by this emulator: @@x",
            ),
        ] {
            assert_eq!(spelled(sql).unwrap_err(), QueryError::Invalid(text.to_owned()));
        }
    }
}
