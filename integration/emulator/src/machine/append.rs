//! `AppendRows`: connections, what each has said so far, and the offset rules (write-api.md 2.1 and 2.6).

use std::mem::{Discriminant, discriminant};

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, TableSchema,
    append_rows_request::{MissingValueInterpretation as Interpretation, Rows},
    append_rows_response::{AppendResult, Response},
};
use prost::Message;

use super::behaviour::Behaviour;
use super::capture::{RowMode, Taken};
use super::decode::no_rows;
use super::delivery::{Delivery, Passage};
use super::effect::Effect;
use super::history::Call;
use super::names::{self, Target};
use super::refusal::{Code, Refusal, known};
use super::stream::StreamKind;
use super::switches::Switches;
use super::{CallMeta, Machine};
use crate::catalog::{Millis, TableRef};
use crate::faults::{Delivered, Fate, Fired, Rpc, StaleEnd};
use crate::rows::{Writer, format_changed};

/// One `AppendRows` call, numbered in the order of their opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Something to send on an `AppendRows` call.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The call.
    pub connection: ConnectionId,
    /// How it goes back.
    pub delivery: Delivery,
    /// What to send; an end without meaning if it does not arrive.
    pub event: Event,
}

/// An answer, or the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// One response, to the oldest request without one.
    Answer(Box<AppendRowsResponse>),
    /// The call is over; `None` is OK. The machine has forgotten the connection.
    End(Option<Refusal>),
}

/// What a connection has said so far.
#[derive(Debug)]
pub(super) struct Connection {
    meta: CallMeta,
    traffic_ms: Millis,
    /// Token, route and stream have been checked, and the stream is this connection's.
    opened: bool,
    /// Of the last request that named one.
    target: Option<Target>,
    pub(super) writer: Option<Writer>,
    /// Of its first rows: Arrow or protobuf.
    format: Option<Discriminant<Rows>>,
    /// What a missing value means, where a request does not say it of a column.
    pub(super) missing: Interpretation,
    /// What its rows do, once they have shown it.
    pub(super) mode: Option<RowMode>,
    /// It has named two destinations: each request must name its own from then on.
    switched: bool,
    /// Version of the table's columns that it has been told.
    pub(super) told: Option<u64>,
    /// Requests that were answered.
    answered: u64,
    /// A fault lets it believe in an earlier end of its stream, until then: so many rows behind, or all.
    stale: Option<(Millis, Option<u64>)>,
    /// A fault has requests come over a slow line, which is busy until then.
    busy_until_ms: Millis,
    /// A fault has taken it from its client, which does not know.
    hung: bool,
}

/// What becomes of a request.
enum Heard {
    /// Its rows are taken, the first of them at this offset; on the default stream there is none.
    At(Option<u64>),
    /// The call ends well, or does not even end so.
    End(Passage),
    /// It is put off, and this is said to the client.
    Late(u64, Option<Refusal>),
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

    /// A request on an open call. On a call that is over it does nothing.
    pub fn append(&mut self, now: Millis, id: ConnectionId, request: &AppendRowsRequest) -> Vec<Output> {
        self.catch_up(now);
        let Some(mut connection) = self.connections.remove(&id) else {
            return Vec::new();
        };
        connection.traffic_ms = now;
        if connection.hung {
            self.connections.insert(id, connection);
            return Vec::new();
        }
        let mut outputs = Vec::new();
        let mut fired = Fired::default();
        let heard = self.receive(now, id, &mut connection, request, &mut fired, &mut outputs);
        self.record_append(now, &connection, request, &heard);
        let mut delivery = fired.delivery;
        if let Some(bytes_per_second) = fired.bytes_per_second {
            let took_ms = connection.take_slowly(now, request.encoded_len() as u64, bytes_per_second);
            delivery.delay_ms = delivery.delay_ms.saturating_add(took_ms);
        }
        let event = match heard {
            Ok(Heard::Late(ms, said)) => {
                let output = self.hang_up(id, &connection, said, delivery);
                self.put_off_append(now, ms, connection, request);
                return output.into_iter().collect();
            }
            Ok(Heard::End(passage)) => {
                delivery.passage = passage;
                Event::End(None)
            }
            Err(refusal) if !refusal.in_band => Event::End(Some(refusal)),
            Ok(Heard::At(offset)) => self.answer(now, &mut connection, Ok(offset), fired.updated_schema),
            Err(refusal) => self.answer(now, &mut connection, Err(refusal), false),
        };
        let silent = !self.keeps(Behaviour::EveryRequestAnswered) && is_error(&event);
        connection.answered += 1;
        let end = match &event {
            Event::End(_) => None,
            Event::Answer(_) => self.reconnect(connection.answered, connection.target.as_ref()),
        };
        if end.is_some() || matches!(event, Event::End(_)) {
            self.release(id, &connection);
        } else {
            self.connections.insert(id, connection);
        }
        if !silent {
            outputs.push(Output {
                connection: id,
                delivery,
                event,
            });
        }
        outputs.extend(end.map(|refusal| Output::at_once(id, Event::End(Some(refusal)))));
        outputs
    }

    fn record_append(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        heard: &Result<Heard, Refusal>,
    ) {
        let target = connection
            .target
            .as_ref()
            .map_or(request.write_stream.as_str(), |target| &target.name);
        let call = Call::new(now, Rpc::AppendRows, target, &connection.meta);
        let offset = request
            .offset
            .map_or("no offset".to_owned(), |offset| format!("offset {offset}"));
        let said = format!("{offset}, {} bytes", request.encoded_len());
        let answered = heard.as_ref().map(|heard| match heard {
            Heard::At(Some(at)) => format!("at {at}"),
            Heard::At(None) => "OK".to_owned(),
            Heard::End(_) => "ended (injected fault)".to_owned(),
            Heard::Late(ms, _) => format!("put off for {ms} ms (injected fault)"),
        });
        self.record_exchange(&call, said, &answered);
    }

    fn answer(
        &self,
        now: Millis,
        connection: &mut Connection,
        answered: Result<Option<u64>, Refusal>,
        with_schema: bool,
    ) -> Event {
        let name = connection.target.as_ref().map(|target| target.name.clone());
        let name = name.filter(|_| self.keeps(Behaviour::EchoesStream));
        let mut updated_schema = self.news(now, connection, &answered);
        if with_schema {
            let table = connection.table().and_then(|table| self.table(table).ok());
            updated_schema = table.map(|table| table.schema.to_wire());
        }
        Event::Answer(Box::new(respond(answered, name, updated_schema)))
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

    /// Everything that happens to one request.
    fn receive(
        &mut self,
        now: Millis,
        id: ConnectionId,
        connection: &mut Connection,
        request: &AppendRowsRequest,
        fired: &mut Fired,
        outputs: &mut Vec<Output>,
    ) -> Result<Heard, Refusal> {
        let opening = !connection.opened;
        if opening {
            let mut call = Call::new(now, Rpc::AppendRows, &request.write_stream, &connection.meta);
            call.trace_id = names::shorten(&request.trace_id);
            self.calls.record(call);
            self.check_token(connection.meta.authorization.as_deref())?;
        }
        let target = connection.destination(request, &self.switches)?;
        connection.target.get_or_insert_with(|| target.clone());
        *fired = self.fire_append(id, opening, &target, request);
        self.upset(now, &fired.upsets, &target.table, Some(&target));
        if let Some(StaleEnd { ms, rows }) = fired.stale_end {
            let until = now.saturating_add(i64::try_from(ms).unwrap_or(Millis::MAX));
            connection.stale = Some((until, rows));
        }
        let mut perform = |machine: &mut Self| {
            let offset = machine.perform(now, Some(id), connection, request, &target, outputs);
            offset.map(Heard::At)
        };
        match fired.fate.take() {
            None => {
                if opening {
                    self.fail_opening(&target)?;
                }
                perform(self)
            }
            Some(Fate::Refused(refusal)) => Err(refusal),
            Some(Fate::Closed) => Ok(Heard::End(Passage::Whole)),
            Some(Fate::Broken) => Ok(Heard::End(Passage::Reset)),
            Some(Fate::Cut { applied }) => {
                if applied {
                    drop(perform(self));
                }
                Ok(Heard::End(Passage::Cut))
            }
            Some(Fate::Lost(said)) => {
                drop(perform(self));
                Err(said)
            }
            Some(Fate::Late { ms, said }) => Ok(Heard::Late(ms, said)),
            Some(Fate::Twice(answer)) => {
                let first = perform(self);
                if first.as_ref().is_err_and(|refusal| !refusal.in_band) {
                    return first;
                }
                let second = perform(self);
                match answer {
                    Delivered::First => first,
                    Delivered::Second => second,
                }
            }
        }
    }

    /// What BigQuery does with a request: the offset of its first row, or `None` on the default stream. Without `id`
    /// the connection is no more, and takes no stream.
    pub(super) fn perform(
        &mut self,
        now: Millis,
        id: Option<ConnectionId>,
        connection: &mut Connection,
        request: &AppendRowsRequest,
        target: &Target,
        outputs: &mut Vec<Output>,
    ) -> Result<Option<u64>, Refusal> {
        let size = request.encoded_len() as u64;
        if size > self.switches.max_request_bytes && self.keeps(Behaviour::RequestSizeLimited) {
            return Err(known::too_large(size, self.switches.max_request_bytes));
        }
        if !connection.opened {
            self.check_routing(connection.meta.routing.as_deref(), &target.table)?;
            self.table(&target.table)?;
            if let Some(id) = id {
                self.charge_connection(id, &target.table)?;
                self.attach(now, id, target, outputs)?;
            }
            connection.opened = true;
        }
        self.check_destination(&target.name, &target.table, now)?;
        self.charge_bytes(now, &target.table, size)?;
        connection.agree(request, target.clone(), &self.switches)?;
        if target.default {
            self.append_default(now, connection, request, target)
        } else {
            self.append_offset(now, connection, request, target).map(Some)
        }
    }

    /// The newest connection on an application stream wins; the older one is closed (write-api.md 2.6).
    fn attach(
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
            let event = Event::End(Some(known::fenced(&target.name)));
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
            let fenced = !self.keeps(Behaviour::DefaultStreamNotFenced);
            let on_it = |connection: &&Connection| fenced && connection.target.as_ref() == Some(target);
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

    fn append_default(
        &mut self,
        now: Millis,
        connection: &mut Connection,
        request: &AppendRowsRequest,
        target: &Target,
    ) -> Result<Option<u64>, Refusal> {
        if request.offset.is_some() && self.keeps(Behaviour::DefaultStreamTakesNoOffset) {
            let text = format!(
                "The offset cannot be set on the default stream. Entity: {}",
                target.name
            );
            return Err(Refusal::invalid(text).in_band(true));
        }
        let (taken, mode) = self.decode(now, connection, request, target)?;
        connection.mode = Some(mode);
        let from = self.table(&target.table)?.row_count();
        if !self.keeps(Behaviour::DefaultStreamVisibleAtOnce) {
            return Ok(None);
        }
        let table = target.table.clone();
        let (at_ms, revision) = (now, self.catalog().next_revision());
        let effect = match taken {
            Taken::Rows(rows) => Effect::RowsPublished {
                table,
                rows,
                at_ms,
                revision,
            },
            Taken::Changes(changes) => Effect::RowsChanged {
                table,
                changes,
                at_ms,
                revision,
            },
        };
        self.apply(&effect)?;
        Ok((!self.keeps(Behaviour::DefaultStreamAnswersNoOffset)).then_some(from))
    }

    fn append_offset(
        &mut self,
        now: Millis,
        connection: &Connection,
        request: &AppendRowsRequest,
        target: &Target,
    ) -> Result<u64, Refusal> {
        let finalized_in_band = self.switches.finalized_in_band;
        let takes_none = self.keeps(Behaviour::FinalizedTakesNoAppends);
        let stream = self.stream(target, now)?;
        if stream.finalized && takes_none {
            return Err(known::finalized(&target.name).in_band(finalized_in_band));
        }
        let end = stream.end;
        let visible = match stream.kind {
            StreamKind::Committed => self.keeps(Behaviour::CommittedVisibleAtOnce),
            StreamKind::Buffered | StreamKind::Pending => !self.keeps(Behaviour::HeldUntilPublished),
        };
        let ends = (end, connection.believed_end(now, end));
        let offered = self.offer(now, connection, request, target, ends);
        let stream = target.name.clone();
        let effect = match &offered {
            Ok(rows) => Effect::RowsAppended {
                stream,
                rows: rows.clone(),
                visible,
                at_ms: now,
                revision: self.catalog().next_revision(),
            },
            Err(_) => Effect::StreamUsed { stream, at_ms: now },
        };
        self.apply(&effect)?;
        let next = end + offered?.num_rows() as u64;
        let first = self.keeps(Behaviour::AnswersFirstRowOffset);
        Ok(if first { end } else { next })
    }

    /// write-api.md 2.1: only the first row's offset is compared, with the stream's end. A connection may believe in
    /// an earlier end than there is (2.7).
    pub(super) fn check_offset(
        &self,
        target: &Target,
        (end, believed): (u64, u64),
        offset: Option<i64>,
    ) -> Result<(), Refusal> {
        let Some(received) = offset else {
            return if self.keeps(Behaviour::AppendsWithoutOffset) {
                Ok(())
            } else {
                Err(Refusal::invalid("The offset must be set.").in_band(true))
            };
        };
        let refusal = match u64::try_from(received) {
            Ok(offset) if offset > believed && self.keeps(Behaviour::OffsetAboveEndOutOfRange) => {
                known::offset_beyond(&target.name, believed, received)
            }
            Ok(offset) if offset < end && self.keeps(Behaviour::OffsetBelowEndExists) => {
                known::offset_within(&target.name, end, received)
            }
            Ok(_) => return Ok(()),
            Err(_) if self.keeps(Behaviour::NegativeOffsetInvalid) => {
                let text = format!("Invalid offset {received}. Entity: {}", target.name);
                Refusal::invalid(text).in_band(true)
            }
            Err(_) => known::offset_within(&target.name, end, received),
        };
        Err(refusal)
    }

    /// Of which time those who append know a table's columns.
    pub(super) fn knowledge_ms(&self, now: Millis) -> Millis {
        if self.keeps(Behaviour::AppendersLearnLate) {
            now.saturating_sub(self.switches.schema_lag_ms)
        } else {
            now
        }
    }

    /// The table's columns, if they are news to the connection.
    fn news(
        &self,
        now: Millis,
        connection: &mut Connection,
        answered: &Result<Option<u64>, Refusal>,
    ) -> Option<TableSchema> {
        let table = self.table(connection.table()?).ok()?;
        let (schema, version) = table.known_at(self.knowledge_ms(now));
        let told = *connection.told.get_or_insert(version);
        let success_only = self.keeps(Behaviour::UpdatedSchemaWithSuccessOnly);
        let told_now =
            told < version && self.keeps(Behaviour::UpdatedSchemaTold) && (answered.is_ok() || !success_only);
        if told_now && !self.switches.updated_schema_repeats {
            connection.told = Some(version);
        }
        told_now.then(|| schema.to_wire())
    }
}

impl Output {
    pub(super) fn at_once(connection: ConnectionId, event: Event) -> Self {
        Self {
            connection,
            delivery: Delivery::default(),
            event,
        }
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
    fn believed_end(&self, now: Millis, end: u64) -> u64 {
        match self.stale {
            Some((until, rows)) if now < until => end.saturating_sub(rows.unwrap_or(end)),
            _ => end,
        }
    }

    /// How long it takes until so many bytes have come over a slow line, behind what is on it already.
    fn take_slowly(&mut self, now: Millis, bytes: u64, bytes_per_second: u64) -> u64 {
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
    fn agree(
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
        self.interpret(request, &target, switches)?;
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
        self.target = Some(target);
        Ok(())
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

fn is_error(event: &Event) -> bool {
    match event {
        Event::Answer(answer) => matches!(answer.response, Some(Response::Error(_))),
        Event::End(_) => false,
    }
}

fn respond(
    answered: Result<Option<u64>, Refusal>,
    stream: Option<String>,
    updated_schema: Option<TableSchema>,
) -> AppendRowsResponse {
    let mut response = AppendRowsResponse {
        write_stream: stream.unwrap_or_default(),
        updated_schema,
        ..Default::default()
    };
    match answered {
        Ok(offset) => {
            let offset = offset.and_then(|offset| i64::try_from(offset).ok());
            response.response = Some(Response::AppendResult(AppendResult { offset }));
        }
        Err(refusal) => {
            response.response = Some(Response::Error(refusal.status()));
            response.row_errors = refusal.row_errors;
        }
    }
    response
}
