//! What rows can be written to: tables, and of those that are partitioned by the day of ingestion single days.

use super::Machine;
use super::behaviour::Behaviour;
use super::refusal::Refusal;
use crate::catalog::{Millis, TableRef};
use crate::description::check_day;

impl Machine {
    /// Whether rows can be written to the table that `path` names: a table with its day, or a stream of it. The texts
    /// are UNCONFIRMED.
    pub(super) fn check_destination(&self, path: &str, name: &TableRef, now: Millis) -> Result<(), Refusal> {
        let table = self.table(name)?;
        if table.is_view() {
            let text = format!("Cannot write to {}: it is a view", name.path());
            return Err(Refusal::invalid(text));
        }
        let day = path
            .strip_prefix(&name.path())
            .and_then(|rest| rest.strip_prefix('$'));
        let Some(day) = day.filter(|_| self.keeps(Behaviour::DayDecoratorsChecked)) else {
            return Ok(());
        };
        let day = day.split('/').next().unwrap_or_default();
        check_day(&table.rest, day, now).map_err(|error| Refusal::invalid(error.to_string()))
    }
}
