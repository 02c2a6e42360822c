//! A machine with one table and a clock, and a way to write down what it answers.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{
    Behaviour, CallMeta, ConnectionId, Delivery, Event, Machine, Output, Passage, Refusal, Reply, Switches,
};
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BatchCommitWriteStreamsRequest,
    CreateWriteStreamRequest, FinalizeWriteStreamRequest, FlushRowsRequest, GetWriteStreamRequest, RpcStatus,
    StorageError, WriteStream,
    append_rows_request::{ArrowData, Rows},
    append_rows_response::Response,
    storage_error::StorageErrorCode,
    write_stream::Type,
};
use prost::Message;

pub(crate) const START: i64 = 1_700_000_000_000;
pub(crate) const TABLE: &str = "projects/p/datasets/d/tables/t";

thread_local! {
    /// What every [`World`] of this thread, has unlearned.
    pub(crate) static UNLEARNED: Cell<Option<Behaviour>> = const { Cell::new(None) };
}

/// The same switches, and what this thread has unlearned.
pub(crate) fn switches(switches: Switches) -> Switches {
    Switches {
        unlearned: UNLEARNED.get().into_iter().chain(switches.unlearned).collect(),
        ..switches
    }
}

/// A machine, its clock, and names for its streams.
pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) now: i64,
    names: HashMap<String, String>,
    next: i64,
}

impl World {
    /// Table `p.d.t` with one INT64 column `n`, in the US.
    pub(crate) fn new() -> Self {
        Self::with(Switches::default(), FaultPlan::default())
    }

    pub(crate) fn with(switches: Switches, faults: FaultPlan) -> Self {
        let machine = Machine::new(crate::world::switches(switches), faults, 7);
        let mut world = Self {
            machine,
            now: START,
            names: HashMap::new(),
            next: 0,
        };
        world.table("t", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
        world
    }

    /// Creates `p.{location}.{table}`; `d` for the US.
    pub(crate) fn table(&mut self, table: &str, location: &str, columns: Vec<Column>) -> TableRef {
        let dataset = if location == "US" {
            "d".to_owned()
        } else {
            location.replace('-', "_")
        };
        let name = TableRef::new("p", dataset, table);
        let (dataset, now) = (name.dataset_ref(), self.now);
        if self.machine.catalog().dataset(&dataset).is_err() {
            self.machine
                .create_dataset(&dataset, location, Default::default(), now)
                .unwrap();
        }
        let created = self
            .machine
            .create_table(&name, Schema { columns }, Default::default(), self.now);
        created.unwrap();
        name
    }

    /// Deletes `p.d.t` and creates it again.
    pub(crate) fn recreate(&mut self) {
        self.machine.delete_table(&TableRef::new("p", "d", "t")).unwrap();
        self.table("t", "US", vec![Column::new("n", Kind::Int64, Mode::Nullable)]);
    }

    /// Gives `p.d.t` these columns beside `n`.
    pub(crate) fn add_columns(&mut self, more: &[&str]) {
        let table = TableRef::new("p", "d", "t");
        let column = |name: &&str| Column::new(*name, Kind::Int64, Mode::Nullable);
        let columns = ["n"].iter().chain(more).map(column).collect();
        self.machine
            .update_table(&table, Schema { columns }, Default::default(), self.now)
            .unwrap();
    }

    /// Creates a stream on `p.d.t`; it is called `S1`, `S2`... in what is written down.
    pub(crate) fn create(&mut self, kind: Type) -> String {
        let reply = self.try_create(TABLE, kind);
        let name = reply.result.unwrap().name;
        self.names
            .insert(name.clone(), format!("S{}", self.names.len() + 1));
        name
    }

    pub(crate) fn try_create(&mut self, parent: &str, kind: Type) -> Reply<WriteStream> {
        let request = CreateWriteStreamRequest {
            parent: parent.to_owned(),
            write_stream: Some(WriteStream {
                r#type: kind as i32,
                ..WriteStream::default()
            }),
        };
        self.machine
            .create_write_stream(self.now, &CallMeta::default(), &request)
    }

    pub(crate) fn get(&mut self, name: &str, view: i32) -> Reply<WriteStream> {
        let request = GetWriteStreamRequest {
            name: name.to_owned(),
            view,
        };
        self.machine
            .get_write_stream(self.now, &CallMeta::default(), &request)
    }

    pub(crate) fn open(&mut self) -> ConnectionId {
        self.machine.open_append(self.now, CallMeta::default())
    }

    /// Appends `count` rows, counting on from the last ones, and says what came back.
    pub(crate) fn append(
        &mut self,
        on: ConnectionId,
        stream: &str,
        offset: Option<i64>,
        count: usize,
    ) -> String {
        let from = self.next;
        self.next += count as i64;
        let request = request(stream, offset, &ints(from, count));
        self.send(on, &request)
    }

    pub(crate) fn send(&mut self, on: ConnectionId, request: &AppendRowsRequest) -> String {
        let outputs = self.machine.append(self.now, on, request);
        self.outputs(on, &outputs)
    }

    pub(crate) fn flush(&mut self, stream: &str, offset: impl Into<Option<i64>>) -> String {
        let request = FlushRowsRequest {
            write_stream: stream.to_owned(),
            offset: offset.into(),
        };
        let reply = self.machine.flush_rows(self.now, &CallMeta::default(), &request);
        self.unary(reply, |answer| format!("flushed {}", answer.offset))
    }

    pub(crate) fn finalize(&mut self, stream: &str) -> String {
        let request = FinalizeWriteStreamRequest {
            name: stream.to_owned(),
        };
        let reply = self
            .machine
            .finalize_write_stream(self.now, &CallMeta::default(), &request);
        self.unary(reply, |answer| format!("finalized at {}", answer.row_count))
    }

    pub(crate) fn commit(&mut self, streams: &[&str]) -> String {
        let request = BatchCommitWriteStreamsRequest {
            parent: TABLE.to_owned(),
            write_streams: streams.iter().map(|name| (*name).to_owned()).collect(),
        };
        let reply = self
            .machine
            .batch_commit_write_streams(self.now, &CallMeta::default(), &request);
        let names = self.names.clone();
        self.unary(reply, |answer| {
            let errors = answer.stream_errors.iter().map(|error| {
                let entity = names.get(&error.entity).unwrap_or(&error.entity);
                format!("{entity} {}: {}", error.code().as_str_name(), error.error_message)
            });
            let mut said = vec![
                if answer.commit_time.is_some() {
                    "committed"
                } else {
                    "not committed"
                }
                .to_owned(),
            ];
            said.extend(errors);
            said.join("; ")
        })
    }

    pub(crate) fn unary<T>(&self, reply: Reply<T>, say: impl FnOnce(&T) -> String) -> String {
        let said = match &reply.result {
            Ok(answer) => say(answer),
            Err(refusal) => self.refusal(refusal),
        };
        carried(&reply.delivery, said)
    }

    /// What the outputs say, one after the other; those for another connection by its number.
    pub(crate) fn outputs(&self, on: ConnectionId, outputs: &[Output]) -> String {
        let said = outputs.iter().map(|output| {
            let mut said = match &output.event {
                Event::Answer(answer) => self.answer(answer),
                Event::End(None) => "ended OK".to_owned(),
                Event::End(Some(refusal)) => format!("ended {}", self.refusal(refusal)),
            };
            said = carried(&output.delivery, said);
            if output.connection == on {
                said
            } else {
                format!("connection {} {said}", output.connection.0)
            }
        });
        said.collect::<Vec<_>>().join("; ")
    }

    fn answer(&self, answer: &AppendRowsResponse) -> String {
        let mut said = match &answer.response {
            Some(Response::AppendResult(result)) => match result.offset {
                Some(offset) => format!("at {offset}"),
                None => "appended".to_owned(),
            },
            Some(Response::Error(status)) => self.status(status),
            None => "nothing".to_owned(),
        };
        if let Some(schema) = &answer.updated_schema {
            let names: Vec<_> = schema.fields.iter().map(|field| field.name.as_str()).collect();
            said.push_str(&format!("; now {}", names.join(",")));
        }
        for error in &answer.row_errors {
            said.push_str(&format!(
                "; row {} {}: {}",
                error.index,
                error.code().as_str_name(),
                error.message
            ));
        }
        said
    }

    pub(crate) fn refusal(&self, refusal: &Refusal) -> String {
        self.status(&refusal.status())
    }

    fn status(&self, status: &RpcStatus) -> String {
        let mut said = format!("{:?}", tonic::Code::from_i32(status.code));
        for detail in &status.details {
            assert_eq!(
                detail.type_url,
                "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError"
            );
            let error = StorageError::decode(detail.value.as_slice()).unwrap();
            assert_eq!(error.error_message, status.message);
            let code = StorageErrorCode::try_from(error.code).unwrap().as_str_name();
            said.push_str(&format!(" {code}({})", error.entity));
        }
        said.push_str(&format!(": {}", status.message));
        self.named(said)
    }

    /// Puts `S1` for a stream's name, and `T` for the table's.
    fn named(&self, mut text: String) -> String {
        for (name, short) in &self.names {
            text = text.replace(name, short);
        }
        text.replace(TABLE, "T")
    }

    /// Column `n` of `p.d.t`, in the order of visibility.
    pub(crate) fn visible(&self) -> Vec<i64> {
        self.rows()
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    }

    /// The rows of `p.d.t`.
    pub(crate) fn rows(&self) -> RecordBatch {
        let table = TableRef::new("p", "d", "t");
        self.machine.catalog().table(&table).unwrap().all_rows()
    }
}

/// What is said, and how it goes back.
fn carried(delivery: &Delivery, said: String) -> String {
    let mut said = match delivery.passage {
        Passage::Whole => said,
        Passage::Reset => "reset".to_owned(),
        Passage::Cut => "cut".to_owned(),
        Passage::Never => "nothing".to_owned(),
    };
    if let Some(stall) = delivery.stall {
        said = match stall.ms {
            Some(ms) => format!("stalled for {ms} ms: {said}"),
            None => format!("stalled: {said}"),
        };
    }
    if delivery.delay_ms > 0 {
        said = format!("after {} ms: {said}", delivery.delay_ms);
    }
    if delivery.go_away {
        said.insert_str(0, "go away; ");
    }
    said
}

/// `count` rows of column `n`, counting on from `from`.
pub(crate) fn ints(from: i64, count: usize) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count as i64));
    RecordBatch::try_from_iter([("n", values)]).unwrap()
}

/// A whole request: schema and rows.
pub(crate) fn request(stream: &str, offset: Option<i64>, batch: &RecordBatch) -> AppendRowsRequest {
    let (schema, rows) = messages(batch);
    raw_request(stream, offset, Some(schema), rows)
}

pub(crate) fn raw_request(
    stream: &str,
    offset: Option<i64>,
    schema: Option<Vec<u8>>,
    rows: Vec<u8>,
) -> AppendRowsRequest {
    let writer_schema = schema.map(|schema| ArrowSchema {
        serialized_schema: schema.into(),
    });
    let batch = ArrowRecordBatch {
        serialized_record_batch: rows.into(),
        ..ArrowRecordBatch::default()
    };
    AppendRowsRequest {
        write_stream: stream.to_owned(),
        offset,
        rows: Some(Rows::ArrowRows(ArrowData {
            writer_schema,
            rows: Some(batch),
        })),
        ..AppendRowsRequest::default()
    }
}

/// The schema message and the record batch message.
pub(crate) fn messages(batch: &RecordBatch) -> (Vec<u8>, Vec<u8>) {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let schema = writer.get_ref().clone();
    writer.write(batch).unwrap();
    let rows = writer.get_ref()[schema.len()..].to_vec();
    (schema, rows)
}
