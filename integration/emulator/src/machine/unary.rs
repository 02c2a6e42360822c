//! The unary calls: create, get, finalize, flush, commit (write-api.md 2.2 to 2.4).

use std::collections::BTreeSet;

use bigquery_write_proto::wire::{
    BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse, CreateWriteStreamRequest,
    FinalizeWriteStreamRequest, FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse,
    GetWriteStreamRequest, StorageError, WriteStream, WriteStreamView,
    storage_error::StorageErrorCode,
    write_stream::{Type, WriteMode},
};

use super::behaviour::Behaviour;
use super::effect::Effect;
use super::history::Call;
use super::names::{self, Target};
use super::refusal::{Code, Refusal, known};
use super::stream::{Stream, StreamKind};
use super::switches::{FlushBelow, FlushUnset};
use super::{CallMeta, Machine, Reply};
use crate::catalog::{Millis, TableRef};
use crate::faults::Rpc;

/// Streams of one BatchCommit (write-api.md 4).
const MAX_COMMIT: usize = 10_000;

impl Machine {
    /// `CreateWriteStream`; answers the full projection, with the table's schema.
    pub fn create_write_stream(
        &mut self,
        now: Millis,
        meta: &CallMeta,
        request: &CreateWriteStreamRequest,
    ) -> Reply<WriteStream> {
        let call = Call::new(now, Rpc::CreateWriteStream, &request.parent, meta);
        let Some(table) = names::parse_table(&request.parent) else {
            let refusal =
                Refusal::invalid(format!("Invalid table name: {}", names::shorten(&request.parent)));
            return self.refused(call, refusal);
        };
        let kind = request
            .write_stream
            .as_ref()
            .and_then(|stream| StreamKind::from_wire(stream.r#type()));
        let asked = request.write_stream.as_ref().map(|stream| stream.name.clone());
        let asked = asked.filter(|_| !self.keeps(Behaviour::ServerChoosesName));
        let said = kind.map_or(String::new(), |kind| format!("{kind:?}"));
        let (parent, home) = (request.parent.clone(), table.clone());
        self.call(call, said, &table, None, move |machine, now| {
            machine.create(&parent, &home, kind, asked.as_deref(), now)
        })
    }

    /// `GetWriteStream`.
    pub fn get_write_stream(
        &mut self,
        now: Millis,
        meta: &CallMeta,
        request: &GetWriteStreamRequest,
    ) -> Reply<WriteStream> {
        let full = request.view() == WriteStreamView::Full;
        self.stream_call(
            now,
            Rpc::GetWriteStream,
            &request.name,
            format!("{:?}", request.view()),
            meta,
            move |machine, target, now| {
                let mut answer = if target.default {
                    machine.describe_default(target)?
                } else {
                    machine.describe(target, now)?
                };
                if full || !machine.keeps(Behaviour::BasicViewHasNoSchema) {
                    let table = machine.table(&target.table)?;
                    let known = if machine.keeps(Behaviour::ViewKnowsFirst) {
                        &table.schema
                    } else {
                        table.known_at(machine.knowledge_ms(now)).0
                    };
                    answer.table_schema = Some(machine.told(known));
                }
                Ok(answer)
            },
        )
    }

    /// `FinalizeWriteStream`.
    pub fn finalize_write_stream(
        &mut self,
        now: Millis,
        meta: &CallMeta,
        request: &FinalizeWriteStreamRequest,
    ) -> Reply<FinalizeWriteStreamResponse> {
        self.stream_call(
            now,
            Rpc::FinalizeWriteStream,
            &request.name,
            String::new(),
            meta,
            |machine, target, now| machine.finalize(target, now),
        )
    }

    /// `FlushRows`.
    pub fn flush_rows(
        &mut self,
        now: Millis,
        meta: &CallMeta,
        request: &FlushRowsRequest,
    ) -> Reply<FlushRowsResponse> {
        let offset = request.offset;
        self.stream_call(
            now,
            Rpc::FlushRows,
            &request.write_stream,
            request
                .offset
                .map_or("no offset".to_owned(), |offset| format!("offset {offset}")),
            meta,
            move |machine, target, now| {
                let details = machine.switches.flush_error_details;
                machine.flush(target, offset, now).map_err(|mut refusal| {
                    // UNCONFIRMED whether a refused flush carries a StorageError; an unknown stream always does.
                    if !details && refusal.code != Code::NotFound {
                        refusal.storage = None;
                    }
                    refusal
                })
            },
        )
    }

    /// `BatchCommitWriteStreams`: all or nothing; a refusal of single streams is an OK response that lists them.
    pub fn batch_commit_write_streams(
        &mut self,
        now: Millis,
        meta: &CallMeta,
        request: &BatchCommitWriteStreamsRequest,
    ) -> Reply<BatchCommitWriteStreamsResponse> {
        let call = Call::new(now, Rpc::BatchCommitWriteStreams, &request.parent, meta);
        let Some(table) = names::parse_table(&request.parent) else {
            let refusal =
                Refusal::invalid(format!("Invalid table name: {}", names::shorten(&request.parent)));
            return self.refused(call, refusal);
        };
        let said = format!("{} streams", request.write_streams.len());
        let (home, streams) = (table.clone(), request.write_streams.clone());
        self.call(call, said, &table, None, move |machine, now| {
            machine.commit(&home, &streams, now)
        })
    }

    fn stream_call<T>(
        &mut self,
        now: Millis,
        rpc: Rpc,
        name: &str,
        said: String,
        meta: &CallMeta,
        act: impl Fn(&mut Self, &Target, Millis) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        let call = Call::new(now, rpc, name, meta);
        match Target::parse(name) {
            Ok(target) => {
                let on = target.clone();
                self.call(call, said, &target.table, Some(&target), move |machine, now| {
                    act(machine, &on, now)
                })
            }
            Err(refusal) => self.refused(call, refusal),
        }
    }

    /// A call whose name cannot be read: the token is asked for all the same.
    fn refused<T>(&mut self, call: Call, refusal: Refusal) -> Reply<T> {
        self.catch_up(call.at_ms);
        let token = self.check_token(call.authorization.as_deref());
        let refusal = token.err().unwrap_or(refusal);
        self.record_exchange(&call, String::new(), &Err(&refusal));
        self.calls.record(call);
        Reply::at_once(Err(refusal))
    }

    fn create(
        &mut self,
        parent: &str,
        table: &TableRef,
        kind: Option<StreamKind>,
        asked: Option<&str>,
        now: Millis,
    ) -> Result<WriteStream, Refusal> {
        let table_id = self.table(table)?.id;
        let kind = kind.ok_or_else(|| {
            Refusal::invalid(format!(
                "The type of the write stream must be specified. Entity: {parent}"
            ))
        })?;
        self.check_destination(parent, table, now)?;
        self.charge_live(now, table, table_id)?;
        self.charge_create(now, table)?;
        let number = self.state.streams_ever();
        let name = format!("{parent}/streams/{}", names::stream_id(self.seed, number));
        let name = asked.map_or(name, str::to_owned);
        let target = Target {
            table: table.clone(),
            name,
            default: false,
        };
        let stream = Box::new(Stream::new(target.clone(), table_id, kind, now));
        let ever = number + 1;
        self.apply(&Effect::StreamCreated { stream, ever })?;
        let mut answer = self.describe(&target, now)?;
        if self.keeps(Behaviour::CreateAnswersSchema) {
            let table = self.table(table)?;
            let known = if self.switches.create_answer_lags {
                table.known_at(self.knowledge_ms(now)).0
            } else {
                &table.schema
            };
            answer.table_schema = Some(self.told(known));
        }
        Ok(answer)
    }

    fn describe(&self, target: &Target, now: Millis) -> Result<WriteStream, Refusal> {
        let location = self.location(&target.table);
        let stream = self.stream(target, now)?;
        let commit_ms = match stream.kind {
            _ if !self.keeps(Behaviour::CommitTimeAnswered) => None,
            StreamKind::Committed => Some(stream.created_ms),
            StreamKind::Buffered | StreamKind::Pending => stream.committed_ms,
        };
        Ok(WriteStream {
            name: target.name.clone(),
            r#type: stream.kind.to_wire() as i32,
            create_time: Some(timestamp(stream.created_ms)),
            commit_time: commit_ms.map(timestamp),
            write_mode: WriteMode::Insert as i32,
            location,
            ..WriteStream::default()
        })
    }

    /// write-api.md 1.2: COMMITTED, without times.
    fn describe_default(&self, target: &Target) -> Result<WriteStream, Refusal> {
        let created_ms = self.table(&target.table)?.created_ms;
        let created_ms = (!self.keeps(Behaviour::DefaultStreamHasNoTimes)).then_some(created_ms);
        Ok(WriteStream {
            create_time: created_ms.map(timestamp),
            name: target.name.clone(),
            r#type: Type::Committed as i32,
            write_mode: WriteMode::Insert as i32,
            location: self.location(&target.table),
            ..WriteStream::default()
        })
    }

    fn location(&self, table: &TableRef) -> String {
        if !self.keeps(Behaviour::LocationAnswered) {
            return String::new();
        }
        self.catalog()
            .dataset(&table.dataset_ref())
            .map(|dataset| dataset.location.clone())
            .unwrap_or_default()
    }

    fn finalize(&mut self, target: &Target, now: Millis) -> Result<FinalizeWriteStreamResponse, Refusal> {
        if target.default {
            let text = format!("The default stream cannot be finalized. Entity: {}", target.name);
            return if self.keeps(Behaviour::DefaultStreamGoesOn) {
                Err(known::wrong_kind(text, &target.name))
            } else {
                Ok(FinalizeWriteStreamResponse::default())
            };
        }
        let twice = self.switches.finalize_twice_refused;
        let all = self.switches.finalize_counts_unflushed;
        let counts = self.keeps(Behaviour::FinalizeCountsRows);
        let stream = self.stream(target, now)?;
        if stream.finalized && twice {
            return Err(known::finalized(&target.name));
        }
        let rows = if all || stream.kind == StreamKind::Pending {
            stream.end
        } else {
            stream.visible
        };
        if !stream.finalized {
            let stream = target.name.clone();
            self.apply(&Effect::StreamFinalized { stream, at_ms: now })?;
        }
        let everything = !self.keeps(Behaviour::FinalizeShowsNothing);
        if everything || !self.keeps(Behaviour::CommittedVisibleAtOnce) {
            self.apply(&Effect::StreamFlushed {
                stream: target.name.clone(),
                to: u64::MAX,
                at_ms: now,
                revision: self.catalog().next_revision(),
            })?;
        }
        Ok(FinalizeWriteStreamResponse {
            row_count: if counts { signed(rows) } else { 0 },
        })
    }

    fn flush(
        &mut self,
        target: &Target,
        offset: Option<i64>,
        now: Millis,
    ) -> Result<FlushRowsResponse, Refusal> {
        let code = self.switches.flush_other_kinds;
        let wrong_kind = |kind: &str| {
            let name = &target.name;
            let text = format!("FlushRows is not supported for {kind} streams. Entity: {name}");
            Refusal {
                code,
                ..known::wrong_kind(text, name)
            }
        };
        if target.default {
            self.table(&target.table)?;
            return if self.keeps(Behaviour::DefaultStreamGoesOn) {
                Err(wrong_kind("default"))
            } else {
                Ok(FlushRowsResponse {
                    offset: offset.unwrap_or_default(),
                })
            };
        }
        let switches = self.switches.clone();
        let keeps = |behaviour| switches.keeps(behaviour);
        let stream = self.stream(target, now)?;
        match stream.kind {
            StreamKind::Buffered => {}
            _ if !keeps(Behaviour::FlushesBufferedOnly) => {
                return Ok(FlushRowsResponse {
                    offset: offset.unwrap_or_default(),
                });
            }
            StreamKind::Committed => return Err(wrong_kind("COMMITTED")),
            StreamKind::Pending => return Err(wrong_kind("PENDING")),
        }
        if stream.finalized && keeps(Behaviour::FinalizedTakesNoFlush) {
            return Err(known::finalized(&target.name));
        }
        let unset = || {
            Refusal::invalid(format!(
                "The offset to flush must be set. Entity: {}",
                target.name
            ))
        };
        let offset = match (offset, switches.flush_unset) {
            (Some(offset), _) => offset,
            (None, FlushUnset::Refuse) if keeps(Behaviour::FlushNeedsOffset) => return Err(unset()),
            (None, FlushUnset::Zero) => 0,
            (None, FlushUnset::Everything | FlushUnset::Refuse) => signed(stream.end) - 1,
        };
        let Ok(last) = u64::try_from(offset) else {
            return Err(Refusal::invalid(format!(
                "Invalid offset {offset}. Entity: {}",
                target.name
            )));
        };
        if last >= stream.end && keeps(Behaviour::FlushBeyondEndRefused) {
            return Err(known::flush_beyond(&target.name, offset));
        }
        let visible = stream.visible;
        if switches.flush_renews_life {
            let stream = target.name.clone();
            self.apply(&Effect::StreamUsed { stream, at_ms: now })?;
        }
        if last < visible {
            let again = if last + 1 == visible {
                switches.flush_again
            } else {
                switches.flush_below
            };
            if again == FlushBelow::AlreadyExists {
                let text = format!("Offset {offset} was flushed already. Entity: {}", target.name);
                return Err(Refusal::new(Code::AlreadyExists, text));
            }
        }
        if !keeps(Behaviour::FlushShowsRowsOnce) {
            let again = self.table(&target.table)?.all_rows();
            self.publish(&target.table, again, now)
                .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
        }
        let to = if keeps(Behaviour::FlushStopsAtOffset) {
            last.saturating_add(u64::from(keeps(Behaviour::FlushIsInclusive)))
        } else {
            u64::MAX
        };
        if to > visible {
            self.apply(&Effect::StreamFlushed {
                stream: target.name.clone(),
                to,
                at_ms: now,
                revision: self.catalog().next_revision(),
            })?;
        }
        Ok(FlushRowsResponse { offset })
    }

    fn commit(
        &mut self,
        table: &TableRef,
        names: &[String],
        now: Millis,
    ) -> Result<BatchCommitWriteStreamsResponse, Refusal> {
        self.table(table)?;
        let too_many = names.len() > MAX_COMMIT && self.keeps(Behaviour::CommitSizeLimited);
        if names.is_empty() || too_many {
            let text = format!(
                "Between 1 and {MAX_COMMIT} streams can be committed, not {}.",
                names.len()
            );
            return Err(Refusal::invalid(text));
        }
        let mut targets = Vec::with_capacity(names.len());
        let mut named = BTreeSet::new();
        let mut stream_errors = Vec::new();
        for name in names {
            match self.committable(table, name, now) {
                Ok(target) if named.insert(name) => targets.push(target),
                Ok(_) => {}
                Err(error) => stream_errors.push(error),
            }
        }
        if !stream_errors.is_empty() && self.keeps(Behaviour::CommitIsAtomic) {
            if !self.keeps(Behaviour::CommitErrorsInOk) {
                return Err(Refusal::invalid("Some streams cannot be committed."));
            }
            return Ok(BatchCommitWriteStreamsResponse {
                commit_time: None,
                stream_errors,
            });
        }
        self.apply(&Effect::StreamsCommitted {
            streams: targets.into_iter().map(|target| target.name).collect(),
            at_ms: now,
            revision: self.catalog().next_revision(),
        })?;
        Ok(BatchCommitWriteStreamsResponse {
            commit_time: Some(timestamp(now)),
            stream_errors,
        })
    }

    /// It is a PENDING stream whose life is over (write-api.md 3.2).
    fn collected(&self, target: &Target, now: Millis) -> bool {
        let Ok(table) = self.table(&target.table) else {
            return false;
        };
        let dying = self
            .state
            .streams()
            .get(&target.name)
            .filter(|stream| stream.table_id == table.id && stream.expired(&self.switches, now));
        let gone = dying.or_else(|| self.state.collected().get(&target.name, table.id));
        gone.is_some_and(|stream| stream.kind == StreamKind::Pending)
            && self.keeps(Behaviour::CollectedStreamInvalid)
    }

    fn committable(&self, table: &TableRef, name: &str, now: Millis) -> Result<Target, StorageError> {
        let refuse = |code: StorageErrorCode, text: String| StorageError {
            code: code as i32,
            entity: names::shorten(name),
            error_message: text,
        };
        let not_found = || refuse(StorageErrorCode::StreamNotFound, "Stream not found".to_owned());
        let target = Target::parse(name).map_err(|_| not_found())?;
        if target.table != *table && self.keeps(Behaviour::CommitOfOneTable) {
            let text = format!("Stream does not belong to table {}", table.path());
            return Err(refuse(StorageErrorCode::StreamNotFound, text));
        }
        let wrong_kind = |actual: &str| {
            let text = format!("Stream must be created in pending mode, actual: {actual}");
            refuse(StorageErrorCode::InvalidStreamType, text)
        };
        if target.default {
            return Err(wrong_kind("WRITE_OPTIMIZED"));
        }
        let pending_only = self.keeps(Behaviour::CommitsPendingOnly);
        let once = self.keeps(Behaviour::CommitsOnce);
        let finalized = self.keeps(Behaviour::CommitNeedsFinalize);
        let collected = self.collected(&target, now);
        let stream = self.stream(&target, now).map_err(|_| {
            if collected {
                // The text is UNCONFIRMED.
                let text = "Stream has been garbage collected".to_owned();
                refuse(StorageErrorCode::InvalidStreamState, text)
            } else {
                not_found()
            }
        })?;
        match stream.kind {
            StreamKind::Committed | StreamKind::Buffered if !pending_only => Ok(target),
            StreamKind::Pending if stream.committed_ms.is_some() && once => Err(refuse(
                StorageErrorCode::StreamAlreadyCommitted,
                "Stream has already been committed".to_owned(),
            )),
            StreamKind::Pending if !stream.finalized && finalized => Err(refuse(
                StorageErrorCode::InvalidStreamState,
                "Stream is not finalized".to_owned(),
            )),
            StreamKind::Pending => Ok(target),
            // write-api.md 2.4, nodejs #413: what the service calls it there.
            StreamKind::Committed => Err(wrong_kind("WRITE_OPTIMIZED")),
            StreamKind::Buffered => Err(wrong_kind("BUFFERED")),
        }
    }
}

impl Call {
    pub(super) fn new(now: Millis, rpc: Rpc, target: &str, meta: &CallMeta) -> Self {
        Self {
            at_ms: now,
            rpc,
            target: names::shorten(target),
            authorization: meta.authorization.clone(),
            routing: meta.routing.clone(),
            trace_id: String::new(),
            transport: meta.transport,
        }
    }
}

fn timestamp(ms: Millis) -> prost_types::Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
    prost_types::Timestamp {
        seconds: ms.div_euclid(1000),
        nanos,
    }
}

fn signed(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
