//! Connections: `AppendRows` calls, their life, and what each has said so far (write-api.md 1.2, 2.6, 3.6).

use std::mem::{Discriminant, discriminant};

use bigquery_write_proto::wire::{
    AppendRowsRequest,
    append_rows_request::{MissingValueInterpretation as Interpretation, Rows},
};

use super::append::{Event, Output};
use super::behaviour::Behaviour;
use super::capture::RowMode;
use super::decode::no_rows;
use super::names::Target;
use super::refusal::{Code, Refusal, known};
use super::switches::Switches;
use super::{CallMeta, Machine};
use crate::catalog::{Millis, TableRef};
use crate::rows::{Writer, format_changed};

/// One `AppendRows` call, numbered in the order of their opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What a connection has said so far.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) meta: CallMeta,
    pub(super) traffic_ms: Millis,
    /// Token, route and stream have been checked, and the stream is this connection's.
    pub(super) opened: bool,
    /// Of the last request that named one.
    pub(super) target: Option<Target>,
    pub(super) writer: Option<Writer>,
    /// Of its first rows: Arrow or protobuf.
    format: Option<Discriminant<Rows>>,
    /// What a missing value means, where a request does not say it of a column.
    pub(super) missing: Interpretation,
    /// What its rows do, once they have shown it.
    pub(super) mode: Option<RowMode>,
    /// It has named two destinations: each request must name its own from then on.
    switched: bool,
    /// Version of the table's columns that it has been told, behind the table's id.
    pub(super) told: Option<(u64, u64)>,
    /// Requests that were answered.
    pub(super) answered: u64,
    /// A fault lets it believe in an earlier end of its stream, until then: so many rows behind, or all.
    pub(super) stale: Option<(Millis, Option<u64>)>,
    /// A fault has requests come over a slow line, which is busy until then.
    busy_until_ms: Millis,
    /// A fault has taken it from its client, which does not know.
    pub(super) hung: bool,
}

impl Machine {
    /// A client opens an `AppendRows` call.
    pub fn open_append(&mut self, now: Millis, meta: CallMeta) -> ConnectionId {
        self.connections_ever += 1;
        let id = ConnectionId(self.connections_ever);
        let connection = Connection {
            meta,
            traffic_ms: now,
            opened: false,
            target: None,
            writer: None,
            format: None,
            missing: Interpretation::Unspecified,
            mode: None,
            switched: false,
            told: None,
            answered: 0,
            stale: None,
            busy_until_ms: now,
            hung: false,
        };
        self.connections.insert(id, connection);
        id
    }

    /// The client has sent its last request: what it sent is answered, then the call ends well.
    pub fn half_close(&mut self, id: ConnectionId) -> Vec<Output> {
        let Some(connection) = self.connections.remove(&id) else {
            return Vec::new();
        };
        if connection.hung {
            self.connections.insert(id, connection);
            return Vec::new();
        }
        self.release(id, &connection);
        // write-api.md 2.1: an RPC that ends without any request.
        let empty = !connection.opened && connection.target.is_none();
        let refusal = if empty {
            self.keeps(Behaviour::EmptyCallNotRouted).then(known::no_route)
        } else {
            (!self.keeps(Behaviour::HalfCloseEndsWell)).then(|| Refusal::new(Code::Cancelled, "half-closed"))
        };
        vec![Output::at_once(id, Event::End(refusal))]
    }

    /// The client is gone.
    pub fn lost(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.release(id, &connection);
        }
    }

    pub(super) fn close_idle(&mut self, now: Millis) -> Vec<Output> {
        let limit = self.switches.idle_close_ms;
        if !self.keeps(Behaviour::IdleCallsClosed) {
            return Vec::new();
        }
        let idle = |connection: &Connection| now.saturating_sub(connection.traffic_ms) >= limit;
        let ids: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| idle(c))
            .map(|(id, _)| *id)
            .collect();
        ids.into_iter()
            .filter_map(|id| {
                let connection = self.connections.remove(&id)?;
                self.release(id, &connection);
                let name = connection.target.map(|target| target.name).unwrap_or_default();
                let event = Event::End(Some(known::idle(limit / 1000, &name)));
                Some(Output::at_once(id, event))
            })
            .collect()
    }

    /// Ends every call, as a server that restarts does.
    pub fn close_all(&mut self, refusal: &Refusal) -> Vec<Output> {
        let connections = std::mem::take(&mut self.connections);
        let says_so = self.keeps(Behaviour::RestartSaysSo);
        let end = |(id, connection): (ConnectionId, Connection)| {
            self.release(id, &connection);
            Output::at_once(id, Event::End(says_so.then(|| refusal.clone())))
        };
        connections.into_iter().map(end).collect()
    }

    /// When the call will be idle for too long, if nothing happens on it: time for a [`Machine::tick`].
    pub fn idle_deadline(&self, id: ConnectionId) -> Option<Millis> {
        let connection = self.connections.get(&id)?;
        Some(connection.traffic_ms.saturating_add(self.switches.idle_close_ms))
    }

    pub(super) fn release(&mut self, id: ConnectionId, connection: &Connection) {
        let Some(target) = &connection.target else { return };
        if self.holders.get(&target.name) == Some(&id) {
            self.holders.remove(&target.name);
        }
    }

    /// The newest connection on an application stream wins; the older one is closed (write-api.md 2.6).
    pub(super) fn attach(
        &mut self,
        now: Millis,
        id: ConnectionId,
        target: &Target,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        let older = self.rivals(now, id, target)?;
        for older in older {
            if self.connections.remove(&older).is_none() {
                continue;
            }
            let Switches {
                fenced_code,
                fenced_text,
                ..
            } = &self.switches;
            let event = Event::End(Some(known::fenced(&target.name, *fenced_code, fenced_text)));
            outputs.push(Output::at_once(older, event));
        }
        Ok(())
    }

    /// The connections that a new one on this stream ends.
    fn rivals(
        &mut self,
        now: Millis,
        id: ConnectionId,
        target: &Target,
    ) -> Result<Vec<ConnectionId>, Refusal> {
        if target.default {
            if self.keeps(Behaviour::DefaultStreamNotFenced) {
                return Ok(Vec::new());
            }
            let on_it = |connection: &&Connection| connection.target.as_ref() == Some(target);
            let on_it = |entry: &(&ConnectionId, &Connection)| on_it(&entry.1);
            return Ok(self.connections.iter().filter(on_it).map(|(id, _)| *id).collect());
        }
        let goes_on = self.keeps(Behaviour::AnyProcessGoesOn);
        let wins = self.keeps(Behaviour::NewestConnectionWins);
        let table = self.table(&target.table)?;
        if table.schema_version > 0 && !self.keeps(Behaviour::StreamsOutliveChanges) {
            return Err(known::table_recreated(&target.table.path(), &target.name));
        }
        let stream = self.stream(target, now)?;
        if stream.end > 0 && !self.holders.contains_key(&target.name) && !goes_on {
            return Err(known::stream_not_found(&target.name));
        }
        let older = self.holders.insert(target.name.clone(), id);
        Ok(older.filter(|_| wins).into_iter().collect())
    }
}

impl Connection {
    /// What is left of it when a fault has taken it from its client.
    pub(super) fn stub(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            target: self.target.clone(),
            writer: None,
            hung: true,
            ..*self
        }
    }

    /// Where it takes its stream's end to be.
    pub(super) fn believed_end(&self, now: Millis, end: u64) -> u64 {
        match self.stale {
            Some((until, rows)) if now < until => end.saturating_sub(rows.unwrap_or(end)),
            _ => end,
        }
    }

    /// How long it takes until so many bytes have come over a slow line, behind what is on it already.
    pub(super) fn take_slowly(&mut self, now: Millis, bytes: u64, bytes_per_second: u64) -> u64 {
        let took_ms = bytes.saturating_mul(1000) / bytes_per_second.max(1);
        let took_ms = i64::try_from(took_ms).unwrap_or(Millis::MAX);
        self.busy_until_ms = self.busy_until_ms.max(now).saturating_add(took_ms);
        u64::try_from(self.busy_until_ms.saturating_sub(now)).unwrap_or(0)
    }

    /// The table it writes to, once it has named one.
    pub(super) fn table(&self) -> Option<&TableRef> {
        self.target.as_ref().map(|target| &target.table)
    }

    /// Where a request goes: the stream it names, or the one named before (write-api.md 1.2).
    pub(super) fn destination(
        &self,
        request: &AppendRowsRequest,
        switches: &Switches,
    ) -> Result<Target, Refusal> {
        match (&self.target, request.write_stream.as_str()) {
            (None, "") => Err(known::no_route()),
            (Some(_), "") if !switches.keeps(Behaviour::LaterRequestsInherit) => Err(known::no_route()),
            (Some(_), "") if self.switched => Err(Refusal::invalid(
                "The write stream must be set on every request of a connection that has switched streams.",
            )),
            (Some(target), "") => Ok(target.clone()),
            (before, name) => {
                let target = Target::parse(name)?;
                if target.name != name && !switches.keeps(Behaviour::ShortDefaultName) {
                    return Err(known::stream_not_found(name));
                }
                match before {
                    Some(before)
                        if *before != target
                            && !(before.default && target.default)
                            && switches.keeps(Behaviour::SwitchesDefaultStreamsOnly) =>
                    {
                        Err(Refusal::invalid(format!(
                            "A connection can switch between default streams only. Entity: {}",
                            before.name
                        )))
                    }
                    _ => Ok(target),
                }
            }
        }
    }

    /// Takes in the request's destination, writer schema and meaning of missing values.
    pub(super) fn agree(
        &mut self,
        request: &AppendRowsRequest,
        target: Target,
        switches: &Switches,
    ) -> Result<(), Refusal> {
        let Some(rows) = &request.rows else {
            return Err(no_rows(&target.name));
        };
        let format = discriminant(rows);
        if self.format.is_some_and(|before| before != format) {
            if switches.keeps(Behaviour::FormatFixed) {
                return Err(format_changed(&target.name));
            }
            self.writer = None;
        }
        self.format = Some(format);
        let moved = self.target.as_ref().is_some_and(|before| *before != target);
        self.switched |= moved;
        if moved {
            // Another destination brings its own schema.
            self.writer = None;
            self.told = None;
            self.mode = None;
        }
        // On an application stream only the connection's first schema counts.
        let first_counts = if target.default {
            !switches.keeps(Behaviour::DefaultStreamTakesNewSchema)
        } else {
            switches.keeps(Behaviour::LaterSchemaIgnored)
        };
        if self.writer.is_none() || !first_counts {
            match Writer::read(rows, switches, &target.name) {
                Some(writer) => self.writer = Some(writer?),
                None if self.writer.is_none() => return Err(Writer::none(rows, switches, &target.name)),
                None => {}
            }
        }
        let interpreted = self.interpret(request, &target, switches);
        self.target = Some(target);
        interpreted
    }

    /// write-api.md 1.2: what missing values mean, from this request on.
    fn interpret(
        &mut self,
        request: &AppendRowsRequest,
        target: &Target,
        switches: &Switches,
    ) -> Result<(), Refusal> {
        let given = request.default_missing_value_interpretation;
        self.missing = match Interpretation::try_from(given) {
            Ok(Interpretation::Unspecified) if switches.keeps(Behaviour::DefaultInterpretationSticks) => {
                self.missing
            }
            Ok(given) => given,
            Err(_) => {
                let text = format!(
                    "Invalid default_missing_value_interpretation {given}. Entity: {}",
                    target.name
                );
                return Err(Refusal::invalid(text).in_band(true));
            }
        };
        Ok(())
    }
}
