//! A request's rows on their way into a stream: decoded as its connection has agreed, against the table as those who
//! append know it.

use arrow_array::RecordBatch;
use bigquery_write_proto::wire::AppendRowsRequest;

use super::Machine;
use super::append::Connection;
use super::behaviour::Behaviour;
use super::names::Target;
use super::refusal::{Code, Refusal};
use crate::catalog::Millis;
use crate::defaults::Moment;
use crate::rows::{Missing, Serialized, change_refused};
use crate::schema::conform;

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
            self.check_offset(target, ends, request.offset)?;
            self.decode(now, connection, request, target)
        } else {
            let decoded = self.decode(now, connection, request, target)?;
            self.check_offset(target, ends, request.offset)?;
            Ok(decoded)
        }
    }

    /// The rows in the form of the table as it is.
    pub(super) fn decode(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
    ) -> Result<RecordBatch, Refusal> {
        let mut random = self.random.clone();
        let mut moment = Moment {
            now_ms: now,
            random: &mut random,
        };
        let rows = self.read(connection, request, target, &mut moment)?;
        self.random = random;
        let empty = rows.num_rows() == 0 && !self.switches.zero_rows_accepted;
        if empty && self.keeps(Behaviour::EmptyAppendRefused) {
            return Err(no_rows(&target.name).in_band(true));
        }
        Ok(rows)
    }

    fn read(
        &self,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
        moment: &mut Moment<'_>,
    ) -> Result<RecordBatch, Refusal> {
        // The connection has seen to both.
        let (Some(writer), Some(rows)) = (&connection.writer, &request.rows) else {
            return Err(no_rows(&target.name));
        };
        let (stream, switches) = (target.name.as_str(), &self.switches);
        let table = self.table(&target.table)?;
        let (schema, version) = table.known_at(self.knowledge_ms(moment.now_ms));
        let old = connection.told.is_some_and(|told| told < version);
        if old && !self.keeps(Behaviour::OldWriterGoesOn) {
            return Err(Refusal::invalid("The table has changed."));
        }
        let by_column = &request.missing_value_interpretations;
        let missing = Missing::of(schema, by_column, connection.missing, switches, stream)?;
        let decoded = writer.decode(Serialized::of(rows), schema, &missing, moment, switches, stream)?;
        // write-api.md 6: INSERT is what every row is; anything else needs a connection that changes rows by key.
        let known = self.keeps(Behaviour::InsertIsNoChange);
        let inserts = |kind: Option<&str>| kind.is_none_or(|kind| kind == "INSERT" && known);
        let all_inserts = decoded.change_types.iter().flatten().all(inserts);
        if !all_inserts {
            return Err(change_refused(stream).in_band(switches.schema_error_in_band));
        }
        conform(&decoded.rows, &table.schema).map_err(|error| Refusal::new(Code::Internal, error.to_string()))
    }
}

/// A request that brings none.
pub(super) fn no_rows(stream: &str) -> Refusal {
    Refusal::invalid(format!("The request has no rows. Entity: {stream}"))
}
