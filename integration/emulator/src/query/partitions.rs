//! `_PARTITIONTIME` and `_PARTITIONDATE`: columns of tables that are partitioned by the time of ingestion, which `*` leaves out.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr, Visit, Visitor};

use crate::catalog::{Millis, Table};
use crate::description::IngestionUnit;
use crate::query::QueryError;
use crate::query::snapshot::Snapshot;
use crate::schema::{Column, Kind, Mode};

const TIME: &str = "_PARTITIONTIME";
const DATE: &str = "_PARTITIONDATE";

const DAY_MS: Millis = 86_400_000;

/// The partitions of a table's batches, in their order.
#[derive(Debug)]
pub(super) struct Partitions {
    unit: IngestionUnit,
    begins: Vec<Option<Millis>>,
}

impl Partitions {
    /// Of a table that is partitioned by the time of ingestion.
    pub(super) fn of(table: &Table) -> Option<Self> {
        Some(Self {
            unit: IngestionUnit::of(&table.rest)?,
            begins: table.partitions(),
        })
    }
}

/// Gives the tables these columns, if the query names them.
///
/// # Errors
/// `Invalid`: `*` beside them.
pub(super) fn add(query: &Query, tables: Vec<Snapshot>) -> Result<Vec<Snapshot>, QueryError> {
    let mut found = Found::default();
    if tables.iter().all(|table| table.partitions.is_none())
        || matches!(query.visit(&mut found), ControlFlow::Break(()))
        || !found.named
    {
        return Ok(tables);
    }
    if found.star {
        let text = format!("SELECT * beside {TIME} is not supported by this emulator: name the columns");
        return Err(QueryError::Invalid(text));
    }
    tables.into_iter().map(with_columns).collect()
}

/// What a query names.
#[derive(Default)]
struct Found {
    named: bool,
    star: bool,
}

impl Visitor for Found {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.star |= has_star(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let is = |ident: &Ident| {
            [TIME, DATE]
                .iter()
                .any(|name| ident.value.eq_ignore_ascii_case(name))
        };
        self.named |= match expr {
            Expr::Identifier(ident) => is(ident),
            Expr::CompoundIdentifier(path) => path.last().is_some_and(is),
            _ => false,
        };
        ControlFlow::Continue(())
    }
}

/// Whether a SELECT has `*` among its columns, or one of those that a UNION is made of. Queries within are visited by themselves.
fn has_star(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select
            .projection
            .iter()
            .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))),
        SetExpr::SetOperation { left, right, .. } => has_star(left) || has_star(right),
        _ => false,
    }
}

fn with_columns(mut table: Snapshot) -> Result<Snapshot, QueryError> {
    let Some(Partitions { unit, begins }) = table.partitions.take() else {
        return Ok(table);
    };
    let by_day = unit == IngestionUnit::Day;
    let columns = &mut table.schema.columns;
    columns.push(Column::new(TIME, Kind::Timestamp, Mode::Nullable));
    if by_day {
        columns.push(Column::new(DATE, Kind::Date, Mode::Nullable));
    }
    let schema = table.schema.arrow();
    for (batch, begin) in table.rows.iter_mut().zip(begins) {
        let rows = batch.num_rows();
        let time = TimestampMicrosecondArray::from(vec![begin.map(|begin| begin * 1_000); rows]);
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(time.with_timezone("UTC")) as ArrayRef);
        if by_day {
            let day = begin.and_then(|begin| i32::try_from(begin.div_euclid(DAY_MS)).ok());
            columns.push(Arc::new(Date32Array::from(vec![day; rows])));
        }
        *batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|error| QueryError::Internal(error.to_string()))?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray as _;
    use arrow_cast::display::{ArrayFormatter, FormatOptions};
    use serde_json::json;

    use super::*;
    use crate::catalog::{DatasetRef, TableRef};
    use crate::faults::FaultPlan;
    use crate::machine::{Machine, Switches};
    use crate::query::query;
    use crate::schema::Schema;
    use crate::shared::Shared;

    /// 2026-01-01T00:00:00Z.
    const NEW_YEAR: Millis = 1_767_225_600_000;

    /// Tables `day`, `hour`, `month`, `year` and `plain`, each with a row of the last hour of 2025, and one of half past one in 2026.
    fn shared() -> Shared {
        let mut machine = Machine::new(Switches::default(), FaultPlan::default(), 0);
        let dataset = DatasetRef::new("p", "d");
        machine
            .create_dataset(&dataset, "US", serde_json::Map::new(), 0)
            .unwrap();
        let schema = Schema {
            columns: vec![Column::new("id", Kind::Int64, Mode::Nullable)],
        };
        for name in ["hour", "day", "month", "year", "plain"] {
            let table = TableRef::new("p", "d", name);
            let mut rest = serde_json::Map::new();
            if name != "plain" {
                rest.insert(
                    "timePartitioning".to_owned(),
                    json!({ "type": name.to_uppercase() }),
                );
            }
            machine.create_table(&table, schema.clone(), rest, 0).unwrap();
            for (id, at) in [(1, NEW_YEAR - 1), (2, NEW_YEAR + 90 * 60_000)] {
                let ids: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![id]))];
                let rows = RecordBatch::try_new(schema.arrow(), ids).unwrap();
                machine.publish(&table, rows, at).unwrap();
            }
        }
        Shared::new(machine, Arc::new(|| NEW_YEAR))
    }

    /// The result's rows, columns joined by a blank.
    async fn rows(sql: &str) -> Result<Vec<String>, String> {
        let dataset = DatasetRef::new("p", "d");
        let output = query(&shared(), "p", Some(&dataset), sql).await;
        let rows = output.map_err(|error| error.to_string())?.rows;
        let options = FormatOptions::default();
        let columns = rows.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        let row = |row| {
            let values: Vec<_> = columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect();
            values.join(" ")
        };
        Ok((0..rows.num_rows()).map(row).collect())
    }

    #[tokio::test]
    async fn rows_tell_when_their_partition_begins() {
        for (table, first, second) in [
            ("hour", "2025-12-31T23:00:00Z", "2026-01-01T01:00:00Z"),
            ("day", "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("month", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("year", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ] {
            let found = rows(&format!(
                "SELECT id, _PARTITIONTIME AS at FROM {table} ORDER BY id"
            ))
            .await;
            assert_eq!(
                found,
                Ok(vec![format!("1 {first}"), format!("2 {second}")]),
                "{table}"
            );
        }
    }

    #[tokio::test]
    async fn a_day_can_be_asked_for() {
        for sql in [
            "SELECT id FROM day WHERE _PARTITIONDATE = DATE '2026-01-01'",
            "SELECT t.id FROM day AS t WHERE t._partitiontime = TIMESTAMP '2026-01-01'",
            "SELECT x.id FROM plain AS x JOIN day USING (id) WHERE _PARTITIONDATE > DATE '2025-12-31'",
        ] {
            assert_eq!(rows(sql).await, Ok(vec!["2".to_owned()]), "{sql}");
        }
        let counted = "SELECT _PARTITIONDATE AS day, COUNT(*) FROM day GROUP BY day ORDER BY day";
        let expected = ["2025-12-31 1", "2026-01-01 1"].map(str::to_owned);
        assert_eq!(rows(counted).await, Ok(expected.to_vec()));
    }

    #[tokio::test]
    async fn a_star_leaves_these_columns_out_and_other_tables_have_none() {
        let found = query(&shared(), "p", None, "SELECT * FROM d.day ORDER BY id")
            .await
            .unwrap();
        assert_eq!(found.schema.columns.len(), 1);
        assert_eq!(
            found
                .rows
                .column(0)
                .as_primitive::<arrow_array::types::Int64Type>()
                .values(),
            &[1, 2]
        );
        for (sql, text) in [
            (
                "SELECT id, _PARTITIONTIME FROM plain",
                "Unrecognized name: _PARTITIONTIME",
            ),
            (
                "SELECT id, _PARTITIONDATE FROM hour",
                "Unrecognized name: _PARTITIONDATE",
            ),
        ] {
            assert_eq!(rows(sql).await, Err(text.to_owned()), "{sql}");
        }
        let text = "SELECT * beside _PARTITIONTIME is not supported by this emulator: name the columns";
        for sql in [
            "SELECT *, _PARTITIONTIME AS at FROM day",
            "SELECT day.*, _PARTITIONTIME AS at FROM day",
            "SELECT * FROM day UNION ALL SELECT id FROM day WHERE _PARTITIONTIME IS NULL",
            "SELECT id FROM day UNION ALL (SELECT 1 UNION ALL SELECT * FROM day WHERE _PARTITIONTIME IS NULL)",
            "WITH found AS (SELECT * FROM day UNION ALL SELECT 1) SELECT id FROM day WHERE _PARTITIONTIME IS NULL",
            "SELECT id FROM day WHERE _PARTITIONTIME IS NULL AND id IN (SELECT 1 EXCEPT DISTINCT SELECT * FROM day)",
        ] {
            assert_eq!(rows(sql).await, Err(text.to_owned()), "{sql}");
        }
    }
}
