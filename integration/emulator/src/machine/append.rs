//! `AppendRows`: what one request does, and the offset rules (write-api.md 2.1).

use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, TableSchema,
    append_rows_response::{AppendResult, Response},
    storage_error::StorageErrorCode,
};
use prost::Message;

use super::Machine;
use super::behaviour::Behaviour;
use super::capture::Taken;
use super::connection::{Connection, ConnectionId};
use super::delivery::{Delivery, Passage};
use super::effect::Effect;
use super::history::Call;
use super::names::{self, Target};
use super::refusal::{Code, Refusal, known};
use super::stream::StreamKind;
use crate::catalog::Millis;
use crate::faults::{Delivered, Fate, Fired, Rpc, StaleEnd};
use crate::rows;

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
            updated_schema = table.map(|table| self.told(&table.schema));
        }
        Event::Answer(Box::new(respond(answered, name, updated_schema)))
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
        let traced = !request.trace_id.is_empty() && !self.keeps(Behaviour::FirstTraceIdCounts);
        if opening || traced {
            let mut call = Call::new(now, Rpc::AppendRows, &request.write_stream, &connection.meta);
            call.trace_id = names::shorten(&request.trace_id);
            self.calls.record(call);
            self.check_token(connection.meta.authorization.as_deref())?;
        }
        let target = connection.destination(request, &self.switches)?;
        connection.target.get_or_insert_with(|| target.clone());
        *fired = self.fire_append(now, id, opening, &target, request);
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
            Some(Fate::Refused(refusal)) => {
                // What is refused inside the stream has been heard: a client says stream and schema once.
                if refusal.in_band {
                    self.hear(now, Some(id), connection, request, &target, outputs)?;
                }
                Err(refusal)
            }
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
        self.hear(now, id, connection, request, target, outputs)?;
        // write-api.md 3.4: while the quota refills all appends are refused, whatever else is wrong with them.
        self.charge_bytes(now, &target.table, request.encoded_len() as u64)?;
        if target.default {
            self.append_default(now, connection, request, target)
        } else {
            self.append_offset(now, connection, request, target).map(Some)
        }
    }

    /// Opens the connection if the request is its first, and takes in what the request says of those that follow.
    fn hear(
        &mut self,
        now: Millis,
        id: Option<ConnectionId>,
        connection: &mut Connection,
        request: &AppendRowsRequest,
        target: &Target,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        let size = request.encoded_len() as u64;
        let most = self.switches.max_request_bytes;
        let most = if self.keeps(Behaviour::LargeRequestsTaken) {
            most
        } else {
            most.min(10 << 20)
        };
        if size > most && self.keeps(Behaviour::RequestSizeLimited) {
            return Err(known::too_large(size, most));
        }
        if !connection.opened {
            self.check_routing(connection.meta.routing.as_deref(), &target.table)?;
            self.table(&target.table)?;
            if let Some(id) = id {
                self.charge_connection(id, &target.table)?;
                self.attach(now, id, target, outputs)?;
                if self.switches.open_renews_life && !target.default {
                    let stream = target.name.clone();
                    self.apply(&Effect::StreamUsed { stream, at_ms: now })?;
                }
            }
            connection.opened = true;
        }
        self.check_destination(&target.name, &target.table, now)?;
        connection.agree(request, target.clone(), &self.switches)
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
        if taken.len() > 0 {
            connection.mode = Some(mode);
        }
        let from = self.table(&target.table)?.row_count();
        if !self.keeps(Behaviour::DefaultStreamVisibleAtOnce) {
            return Ok(None);
        }
        let table = target.table.clone();
        let (at_ms, revision) = (now, self.catalog().next_revision());
        let partition_ms = self.partition_of(&target.name, &target.table, now);
        let effect = match taken {
            Taken::Rows(rows) => Effect::RowsPublished {
                table,
                rows,
                partition_ms,
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
                partition_ms: self.partition_of(&target.name, &target.table, now),
                visible,
                at_ms: now,
                revision: self.catalog().next_revision(),
            },
            Err(_) => Effect::StreamUsed { stream, at_ms: now },
        };
        self.apply(&effect)?;
        let next = end + offered?.num_rows() as u64;
        if !self.keeps(Behaviour::AnswersWhereRowsAre) {
            let asked = request.offset.and_then(|offset| u64::try_from(offset).ok());
            return Ok(asked.unwrap_or_default());
        }
        let first = self.keeps(Behaviour::AnswersFirstRowOffset);
        Ok(if first { end } else { next })
    }

    /// write-api.md 2.1: only the first row's offset is compared, with the stream's end. A connection may believe in
    /// an earlier end than there is (2.7).
    pub(super) fn check_offset(
        &self,
        target: &Target,
        (end, believed): (u64, u64),
        request: &AppendRowsRequest,
    ) -> Result<(), Refusal> {
        let Some(received) = request.offset else {
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
                let count = request.rows.as_ref().map_or(0, rows::count);
                let straddles = offset.saturating_add(count) > end;
                self.within(&target.name, end, received, straddles)
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

    /// write-api.md 2.1: an append that begins before the end. What of one that reaches beyond it is INFERRED, a switch.
    fn within(&self, stream: &str, end: u64, received: i64, straddles: bool) -> Refusal {
        let refusal = known::offset_within(stream, end, received);
        let code = self.switches.straddling_resend;
        if !straddles || code == refusal.code {
            return refusal;
        }
        let out_of_range = (StorageErrorCode::OffsetOutOfRange, stream.to_owned());
        Refusal {
            code,
            storage: (code == Code::OutOfRange).then_some(out_of_range),
            ..refusal
        }
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
        // A table created again is another one: what was told of the one before says nothing of it.
        let told = connection.told.filter(|(id, _)| *id == table.id);
        let told = told.map_or(version, |(_, version)| version);
        connection.told = Some((table.id, told));
        let success_only = self.keeps(Behaviour::UpdatedSchemaWithSuccessOnly);
        let told_now =
            told < version && self.keeps(Behaviour::UpdatedSchemaTold) && (answered.is_ok() || !success_only);
        if told_now && !self.switches.updated_schema_repeats {
            connection.told = Some((table.id, version));
        }
        told_now.then(|| self.told(schema))
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
