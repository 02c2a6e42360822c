//! What must hold where rows go to the default stream: none is lost, none is wrong, and one is there twice only where something that went
//! wrong explains it.

use bigquery_write_emulator::faults::{FaultAction, FaultRule, Rpc};
use bigquery_write_emulator::machine::Code;

use crate::faults::CameTrue;
use crate::oracle::Expected;
use crate::point::{Point, StepKind};
use crate::scenario::{Scenario, WriteMode};

/// What the table must hold, in the scenario's mode.
pub(crate) fn expected(once: Expected, scenario: &Scenario, came_true: &CameTrue<'_>) -> Expected {
    match scenario.workload.mode {
        WriteMode::ExactlyOnce => once,
        WriteMode::AtLeastOnce => Expected::AtLeastOnce {
            due: Box::new(once),
            may_repeat: may_repeat(came_true),
        },
    }
}

/// Whether something that went wrong explains rows that are there more than once, or that nobody was told of.
pub(crate) fn may_repeat(came_true: &CameTrue<'_>) -> bool {
    reads_again(came_true) || sends_again(came_true)
}

/// Rows since the newest checkpoint are read again by each process after the first, and after each restart.
fn reads_again(came_true: &CameTrue<'_>) -> bool {
    let restored = Point::Step(StepKind::Restored);
    let starts = came_true
        .hits
        .iter()
        .flatten()
        .filter(|hit| hit.point == restored);
    came_true.hits.len() > 1 || starts.count() > 1
}

/// A request whose answer is not heard goes out again, whether it was stored or not.
fn sends_again(came_true: &CameTrue<'_>) -> bool {
    let calls = came_true.calls.iter();
    !came_true.connections.is_empty()
        || calls
            .filter(|fault| fault.fired > 0)
            .any(|fault| loses_answers(&fault.rule))
}

fn loses_answers(rule: &FaultRule) -> bool {
    match &rule.action {
        FaultAction::Delay { .. } | FaultAction::Slow { .. } | FaultAction::UpdatedSchema {} => false,
        // None of its rows were stored; those behind it are answered, unless another token, permission or route needs another call.
        FaultAction::Refuse {
            in_band: true, code, ..
        } => matches!(
            code,
            Code::Unauthenticated | Code::PermissionDenied | Code::NotFound
        ),
        // It goes away with the connection, and so do the appends on it.
        FaultAction::GoAway {} => true,
        _ => matches!(rule.rpc, Rpc::AppendRows | Rpc::AppendRowsOpen),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int64Builder, ListBuilder};
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};

    use super::*;
    use crate::oracle::{Checkpoints, Published, judge};

    /// Rows of subtask 0 as the pipeline makes them, with these numbers.
    fn rows(numbers: &[i64]) -> RecordBatch {
        let mut pairs = ListBuilder::new(Int64Builder::new());
        for number in numbers {
            pairs.append_value([Some(0), Some(*number)]);
        }
        let notes = numbers
            .iter()
            .map(|number| (number % 3 != 0).then(|| format!("row {number}")));
        let halves = numbers.iter().map(|number| *number as f64 / 2.0);
        let columns: [(&str, ArrayRef); 5] = [
            ("subtask", Arc::new(Int64Array::from(vec![0; numbers.len()]))),
            ("number", Arc::new(Int64Array::from(numbers.to_vec()))),
            ("note", Arc::new(StringArray::from_iter(notes))),
            ("half", Arc::new(Float64Array::from_iter_values(halves))),
            ("pair", Arc::new(pairs.finish())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    fn told(numbers: &[i64], may_repeat: bool) -> Vec<String> {
        let due = Expected::Everything {
            rows: 4,
            parallelism: 1,
        };
        let expected = Expected::AtLeastOnce {
            due: Box::new(due),
            may_repeat,
        };
        judge(
            (&rows(numbers), None),
            &Published::default(),
            &Checkpoints::default(),
            &expected,
        )
    }

    #[test]
    fn a_row_may_be_there_twice_where_that_is_explained_and_may_never_be_missing() {
        let twice = ["P2: row 1 of subtask 0 is visible twice"];
        assert_eq!(told(&[3, 0, 1, 2], false), [""; 0], "in any order");
        assert_eq!(told(&[0, 1, 1, 2, 3], true), [""; 0]);
        assert_eq!(told(&[0, 1, 1, 2, 3], false), twice);
        for may_repeat in [true, false] {
            let missing = ["P1: 3 of 4 rows of subtask 0 are visible"];
            assert_eq!(told(&[0, 2, 3], may_repeat), missing);
            let invented = ["P1: 5 of 4 rows of subtask 0 are visible"];
            assert_eq!(told(&[0, 1, 2, 3, 4], may_repeat), invented);
        }
    }
}
