//! A projection's expression that says in which column it failed.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use super::query::{PANICKED, reason_without_values};

/// Names that the optimizer makes up begin so; they would tell nobody anything.
const MADE_UP: &str = "__";

/// The plan with every computed column of its projections watched.
pub(super) fn name_columns(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let named = plan.transform_up(|node| {
        let Some(projection) = node.as_any().downcast_ref::<ProjectionExec>() else {
            return Ok(Transformed::no(node));
        };
        let exprs = projection.expr().iter().map(|(expr, name)| {
            let computed = expr.as_any().downcast_ref::<Column>().is_none();
            let expr = Arc::clone(expr);
            if !computed || name.starts_with(MADE_UP) {
                return (expr, name.clone());
            }
            let column = name.clone();
            let watched: Arc<dyn PhysicalExpr> = Arc::new(InColumn { column, expr });
            (watched, name.clone())
        });
        let watched = ProjectionExec::try_new(exprs.collect(), Arc::clone(projection.input()))?;
        Ok(Transformed::yes(Arc::new(watched) as Arc<dyn ExecutionPlan>))
    });
    named.map(|named| named.data)
}

/// The failure of one column, without values.
#[derive(Debug, thiserror::Error)]
#[error("column {column}: {reason}")]
pub(super) struct ColumnFailed {
    pub(super) column: String,
    pub(super) reason: &'static str,
}

#[derive(Debug)]
struct InColumn {
    column: String,
    expr: Arc<dyn PhysicalExpr>,
}

impl PartialEq for InColumn {
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column && self.expr.eq(&other.expr)
    }
}

impl Eq for InColumn {}

impl Hash for InColumn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
        self.expr.hash(state);
    }
}

impl fmt::Display for InColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}

impl PhysicalExpr for InColumn {
    fn as_any(&self) -> &dyn Any {
        self
    }

    // Each on its own: the field that `IS NULL` gives is that of its argument, its type is not (DataFusion 48).
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.expr.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.expr.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.expr.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let evaluated = catch_unwind(AssertUnwindSafe(|| self.expr.evaluate(batch)));
        let reason = match evaluated {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => reason_without_values(&error),
            Err(_) => PANICKED,
        };
        let column = self.column.clone();
        Err(DataFusionError::External(Box::new(ColumnFailed {
            column,
            reason,
        })))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let expr = children.pop().unwrap_or_else(|| Arc::clone(&self.expr));
        let column = self.column.clone();
        Ok(Arc::new(Self { column, expr }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt_sql(f)
    }
}
