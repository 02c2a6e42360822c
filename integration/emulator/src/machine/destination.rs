//! What rows can be written to: tables, and of those that are partitioned by the day of ingestion single days.

use super::Machine;
use super::behaviour::Behaviour;
use super::refusal::Refusal;
use crate::catalog::{Millis, TableRef};
use crate::description::{IngestionUnit, check_day};

impl Machine {
    /// Whether rows can be written to the table that `path` names: a table with its day, or a stream of it. The texts
    /// are UNCONFIRMED.
    pub(super) fn check_destination(&self, path: &str, name: &TableRef, now: Millis) -> Result<(), Refusal> {
        let table = self.table(name)?;
        if table.is_view() {
            let text = format!("Cannot write to {}: it is a view", name.path());
            return Err(Refusal::invalid(text));
        }
        let Some(day) = day(path, name).filter(|_| self.keeps(Behaviour::DayDecoratorsChecked)) else {
            return Ok(());
        };
        check_day(&table.rest, day, now).map_err(|error| Refusal::invalid(error.to_string()))
    }

    /// When the partition begins that rows come into which are written to `path`, a table with its day, or a stream of it; `None`
    /// for a table that is not partitioned by the time of ingestion. That it is the time of the append is UNCONFIRMED.
    pub(super) fn partition_of(&self, path: &str, name: &TableRef, now: Millis) -> Option<Millis> {
        let table = self.catalog().table(name).ok()?;
        let unit = IngestionUnit::of(&table.rest)?;
        let day = day(path, name).filter(|_| self.keeps(Behaviour::DayDecoratorsFollowed));
        Some(
            day.and_then(IngestionUnit::of_day)
                .unwrap_or_else(|| unit.begin(now)),
        )
    }
}

/// The day in the name of a table, or of a stream of it.
fn day<'p>(path: &'p str, name: &TableRef) -> Option<&'p str> {
    let rest = path.strip_prefix(&name.path())?.strip_prefix('$')?;
    rest.split('/').next()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use serde_json::json;

    use super::*;
    use crate::faults::FaultPlan;
    use crate::machine::Switches;
    use crate::schema::{Column, Kind, Mode, Schema};

    const DAY: Millis = 86_400_000;

    fn rows(schema: &Schema, ids: std::ops::Range<i64>) -> RecordBatch {
        RecordBatch::try_new(schema.arrow(), vec![Arc::new(Int64Array::from_iter_values(ids))]).unwrap()
    }

    /// Rows of a table, each with the day of its partition.
    fn days(machine: &Machine, table: &TableRef) -> Vec<Option<Millis>> {
        let table = machine.catalog().table(table).unwrap();
        let batches = table.rows().iter().zip(table.partitions());
        let each = batches.flat_map(|(rows, begin)| vec![begin.map(|begin| begin / DAY); rows.num_rows()]);
        each.collect()
    }

    #[test]
    fn partitions_are_the_same_in_a_state_that_is_made_again() {
        let schema = Schema {
            columns: vec![Column::new("id", Kind::Int64, Mode::Nullable)],
        };
        let mut machine = Machine::new(Switches::default(), FaultPlan::default(), 0);
        let table = TableRef::new("p", "d", "t");
        let dataset = table.dataset_ref();
        machine
            .create_dataset(&dataset, "US", serde_json::Map::new(), 0)
            .unwrap();
        let rest = json!({ "timePartitioning": { "type": "DAY" } });
        let rest = rest.as_object().cloned().unwrap();
        machine.create_table(&table, schema.clone(), rest, 0).unwrap();
        for (day, ids) in [(100, 0..2), (100, 2..3), (101, 3..4)] {
            machine
                .publish(&table, rows(&schema, ids), day * DAY + 5)
                .unwrap();
        }
        let path = format!("{}$19700402", table.path());
        machine
            .publish_to(&path, &table, rows(&schema, 4..5), 101 * DAY)
            .unwrap();
        let expected = [Some(100), Some(100), Some(100), Some(101), Some(91)];
        assert_eq!(days(&machine, &table), expected);
        let mut again = Machine::new(Switches::default(), FaultPlan::default(), 0);
        for effect in machine.snapshot() {
            again.replay(&effect).unwrap();
        }
        assert_eq!(days(&again, &table), expected);
    }
}
