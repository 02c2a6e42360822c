//! Casts between times are made checked: the library's kernels multiply some of them without looking (arrow-cast 55.2).

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::types::sql_name;

/// A DATE becomes a TIMESTAMP by way of seconds, which always fit, and whose change of unit is checked. What has no such way is refused.
#[derive(Debug)]
pub(super) struct CheckedCasts;

impl AnalyzerRule for CheckedCasts {
    fn name(&self) -> &str {
        "checked_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let checked = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let checked = expr.transform_up(|expr| checked(expr, &schema))?;
                Ok(checked.update_data(|expr| name.restore(expr)))
            })
        });
        checked.map(|plan| plan.data)
    }
}

fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (Expr::Cast(Cast {
        expr: inner,
        data_type: to,
    })
    | Expr::TryCast(TryCast {
        expr: inner,
        data_type: to,
    })) = &expr
    else {
        return Ok(Transformed::no(expr));
    };
    let from = inner.get_type(schema)?;
    if !is_unchecked(&from, to) {
        return Ok(Transformed::no(expr));
    }
    if !matches!((&from, to), (DataType::Date32, DataType::Timestamp(..))) {
        let (from, to) = (sql_name(&from), sql_name(to));
        let message = format!(
            "a cast from {from} to {to} would not be checked for values out of range, and is not run; keep the type {from}"
        );
        return Err(DataFusionError::Plan(message));
    }
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    Ok(Transformed::yes(match expr {
        Expr::Cast(Cast { expr, data_type }) => {
            let in_seconds = Expr::Cast(Cast::new(expr, seconds));
            Expr::Cast(Cast::new(Box::new(in_seconds), data_type))
        }
        Expr::TryCast(TryCast { expr, data_type }) => {
            let in_seconds = Expr::Cast(Cast::new(expr, seconds));
            Expr::TryCast(TryCast::new(Box::new(in_seconds), data_type))
        }
        other => other,
    }))
}

/// Whether the kernel for this cast can give a wrong value without an error.
pub(super) fn is_unchecked(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, FixedSizeList, LargeList, List, Struct, Time32, Time64, Timestamp};
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    match (from, to) {
        // Days times units a day.
        (Date32 | Date64, Timestamp(Microsecond | Nanosecond, _)) => true,
        // Cut to 32 bits.
        (Date64, Date32) | (Time64(_), Time32(_)) => true,
        (Time32(Second), Time32(Millisecond)) | (Time64(Microsecond), Time64(Nanosecond)) => true,
        // Multiplied by an integer quotient that is 0.
        (Time32(Millisecond), Time64(Nanosecond)) => true,
        (
            List(from) | LargeList(from) | FixedSizeList(from, _),
            List(to) | LargeList(to) | FixedSizeList(to, _),
        ) => is_unchecked(from.data_type(), to.data_type()),
        (from, List(to) | LargeList(to) | FixedSizeList(to, _)) => is_unchecked(from, to.data_type()),
        (Struct(from), Struct(to)) => from
            .iter()
            .zip(to)
            .any(|(from, to)| is_unchecked(from.data_type(), to.data_type())),
        _ => false,
    }
}
