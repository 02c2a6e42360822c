//! A request's rows on their way into a stream: decoded as its connection has agreed, against the table as those who
//! append know it.

use arrow_array::RecordBatch;
use bigquery_write_proto::wire::AppendRowsRequest;

use super::Machine;
use super::behaviour::Behaviour;
use super::capture::{self, RowMode, Taken};
use super::connection::Connection;
use super::names::Target;
use super::refusal::Refusal;
use crate::catalog::Millis;
use crate::defaults::Moment;
use crate::rows::{Missing, Serialized};

impl Machine {
    /// Whether the stream takes these rows; where it ends, and where the connection believes that it does.
    pub(super) fn offer(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
        ends: (u64, u64),
    ) -> Result<RecordBatch, Refusal> {
        if self.switches.offset_before_schema {
            self.check_offset(target, ends, request)?;
            self.decode_rows(now, connection, request, target)
        } else {
            let decoded = self.decode_rows(now, connection, request, target)?;
            self.check_offset(target, ends, request)?;
            Ok(decoded)
        }
    }

    /// The same of an application's stream, whose rows only add to the table.
    fn decode_rows(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
    ) -> Result<RecordBatch, Refusal> {
        match self.decode(now, connection, request, target)?.0 {
            Taken::Rows(rows) => Ok(rows),
            Taken::Changes(changes) => Ok(changes.upserts),
        }
    }

    /// The rows in the form of the table as it is, and what they do to it.
    pub(super) fn decode(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
    ) -> Result<(Taken, RowMode), Refusal> {
        let mut random = self.random.clone();
        let mut moment = Moment {
            now_ms: now,
            random: &mut random,
        };
        let (taken, mode) = self.read(connection, request, target, &mut moment)?;
        self.random = random;
        let empty = taken.len() == 0 && !self.switches.zero_rows_accepted;
        if empty && self.keeps(Behaviour::EmptyAppendRefused) {
            return Err(no_rows(&target.name).in_band(true));
        }
        Ok((taken, mode))
    }

    fn read(
        &self,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
        moment: &mut Moment<'_>,
    ) -> Result<(Taken, RowMode), Refusal> {
        // The connection has seen to both.
        let (Some(writer), Some(rows)) = (&connection.writer, &request.rows) else {
            return Err(no_rows(&target.name));
        };
        let (stream, switches) = (target.name.as_str(), &self.switches);
        let table = self.table(&target.table)?;
        let (schema, version) = table.known_at(self.knowledge_ms(moment.now_ms));
        let old = connection
            .told
            .is_some_and(|told| told.0 == table.id && told.1 < version);
        if old && !self.keeps(Behaviour::OldWriterGoesOn) {
            return Err(Refusal::invalid("The table has changed."));
        }
        let by_column = &request.missing_value_interpretations;
        let missing = Missing::of(schema, by_column, connection.missing, switches, stream)?;
        let changes = writer.says_changes() && self.keeps(Behaviour::DeleteNeedsKeyOnly);
        let relaxed = (changes && target.default).then(|| capture::relaxed(schema, table));
        let schema = relaxed.as_ref().unwrap_or(schema);
        let decoded = writer.decode(Serialized::of(rows), schema, &missing, moment, switches, stream)?;
        capture::sort(&decoded, connection.mode, table, target, switches, moment.now_ms)
    }
}

/// A request that brings none.
pub(super) fn no_rows(stream: &str) -> Refusal {
    Refusal::invalid(format!("The request has no rows. Entity: {stream}"))
}
