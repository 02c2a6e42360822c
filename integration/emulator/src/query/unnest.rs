//! Joins with an array of the same row, `FROM t, UNNEST(t.list) AS x`, which DataFusion does not plan: the element
//! becomes a column of its table, `FROM (SELECT t.*, UNNEST(t.list) AS x FROM t) AS t`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    VisitMut, VisitorMut,
};

use crate::query::functions::call;
use crate::query::parameters::Parameters;
use crate::query::tables;
use crate::query::text::Text;

/// Rewrites every such join in a query. What it does not understand stays as it is.
pub(super) fn rewrite(query: &mut Query) {
    if let ControlFlow::Break(never) = query.visit(&mut Rewriter) {
        match never {}
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let mut bodies = vec![query.body.as_mut()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => From::default().rewrite(&mut select.from),
                SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_mut(), right.as_mut()]),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// Where a table stands in FROM: which item, and which of its joins.
type Place = (usize, Option<usize>);

/// A FROM clause on its way.
#[derive(Default)]
struct From {
    /// By alias in lower case: of tables, and of elements the tables that have them.
    places: HashMap<String, Place>,
    /// How many tables there are.
    tables: usize,
}

/// An UNNEST that refers to a table before it.
struct Unnest {
    array: Expr,
    element: Ident,
    offset: Option<Ident>,
}

impl From {
    fn rewrite(&mut self, from: &mut Vec<TableWithJoins>) {
        let mut items: Vec<TableWithJoins> = Vec::with_capacity(from.len());
        for item in std::mem::take(from) {
            let TableWithJoins { relation, joins } = item;
            match self.place_of(&relation) {
                Some((place, unnest)) => {
                    self.add(&mut items, place, unnest);
                    let (at, _) = place;
                    for join in joins {
                        self.join(&mut items, at, join);
                    }
                }
                None => {
                    let at = items.len();
                    self.know(&relation, (at, None));
                    items.push(TableWithJoins {
                        relation,
                        joins: Vec::new(),
                    });
                    for join in joins {
                        self.join(&mut items, at, join);
                    }
                }
            }
        }
        *from = items;
    }

    fn join(&mut self, items: &mut [TableWithJoins], at: usize, join: datafusion::sql::sqlparser::ast::Join) {
        let is_cross = matches!(
            &join.join_operator,
            JoinOperator::CrossJoin
                | JoinOperator::Join(JoinConstraint::None)
                | JoinOperator::Inner(JoinConstraint::None)
        );
        match self.place_of(&join.relation).filter(|_| is_cross) {
            Some((place, unnest)) => self.add(items, place, unnest),
            None => {
                let joins = &mut items[at].joins;
                self.know(&join.relation, (at, Some(joins.len())));
                joins.push(join);
            }
        }
    }

    fn know(&mut self, factor: &TableFactor, place: Place) {
        self.tables += 1;
        if let Some(name) = name(factor) {
            self.places.insert(name.value.to_lowercase(), place);
        }
    }

    /// The table that an UNNEST refers to.
    fn place_of(&self, factor: &TableFactor) -> Option<(Place, Unnest)> {
        let TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs,
            with_offset,
            with_offset_alias,
            ..
        } = factor
        else {
            return None;
        };
        let [array] = array_exprs.as_slice() else {
            return None;
        };
        let place = match array {
            Expr::CompoundIdentifier(path) => self.places.get(&path.first()?.value.to_lowercase()).copied(),
            _ => None,
        };
        let only = matches!(array, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) && self.tables == 1;
        let place = place.or_else(|| only.then_some((0, None)))?;
        let offset = with_offset_alias.clone().unwrap_or_else(|| Ident::new("offset"));
        let unnest = Unnest {
            array: array.clone(),
            element: alias.name.clone(),
            offset: with_offset.then_some(offset),
        };
        Some((place, unnest))
    }

    fn add(&mut self, items: &mut [TableWithJoins], place: Place, unnest: Unnest) {
        let element = unnest.element.value.to_lowercase();
        let (at, join) = place;
        let Some(item) = items.get_mut(at) else { return };
        let factor = match join {
            None => &mut item.relation,
            Some(join) => &mut item.joins[join].relation,
        };
        if let Some(wrapped) = wrap(factor, unnest) {
            *factor = wrapped;
            self.places.insert(element, place);
        }
    }
}

/// What a table is called in expressions.
fn name(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        }
        | TableFactor::UNNEST {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => name.0.last().and_then(ObjectNamePart::as_ident).cloned(),
        _ => None,
    }
}

/// `(SELECT t.*, UNNEST(array) AS element FROM t) AS t`.
fn wrap(factor: &TableFactor, unnest: Unnest) -> Option<TableFactor> {
    let name = name(factor)?;
    let text = Text::read("SELECT a FROM b", &Parameters::default()).ok()?;
    let mut subquery = tables::parse(&text).ok()?;
    let SetExpr::Select(select) = subquery.body.as_mut() else {
        return None;
    };
    let all = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name.clone()]));
    select.projection = vec![SelectItem::QualifiedWildcard(all, Default::default())];
    let mut column = |array: Expr, alias: Ident| {
        let expr = call("unnest", vec![array]);
        select.projection.push(SelectItem::ExprWithAlias { expr, alias });
    };
    let length = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(call("array_length", vec![unnest.array.clone()])),
        data_type: DataType::BigInt(None),
        format: None,
    };
    column(unnest.array, unnest.element);
    if let Some(offset) = unnest.offset {
        let zero = Expr::value(Value::Number("0".to_owned(), false));
        column(call("range", vec![zero, length]), offset);
    }
    select.from = vec![TableWithJoins {
        relation: factor.clone(),
        joins: Vec::new(),
    }];
    Some(TableFactor::Derived {
        lateral: false,
        subquery,
        alias: Some(TableAlias {
            name,
            columns: Vec::new(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_become_columns_of_their_tables() {
        for (sql, want) in [
            (
                "SELECT x FROM d.t, UNNEST(t.list) AS x",
                "SELECT x FROM (SELECT t.*, unnest(t.list) AS x FROM d.t) AS t",
            ),
            (
                "SELECT x FROM d.t AS u CROSS JOIN UNNEST(list) AS x WITH OFFSET AS i JOIN v ON v.id = x",
                "SELECT x FROM (SELECT u.*, unnest(list) AS x, unnest(range(0, CAST(array_length(list) AS BIGINT))) AS i \
                 FROM d.t AS u) AS u JOIN v ON v.id = x",
            ),
            (
                "SELECT y FROM a, b, UNNEST(b.list) AS x, UNNEST(X.inner_list) AS y",
                "SELECT y FROM a, (SELECT b.*, unnest(X.inner_list) AS y FROM (SELECT b.*, unnest(b.list) AS x FROM b) AS b) \
                 AS b",
            ),
            (
                "SELECT x FROM UNNEST([1, 2]) AS x",
                "SELECT x FROM UNNEST([1, 2]) AS x",
            ),
            (
                "SELECT 1 FROM t LEFT JOIN UNNEST(t.list) AS x",
                "SELECT 1 FROM t LEFT JOIN UNNEST(t.list) AS x",
            ),
        ] {
            let mut query = tables::parse_sql(sql).unwrap();
            rewrite(&mut query);
            assert_eq!(query.to_string(), want);
        }
    }
}
