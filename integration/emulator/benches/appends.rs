//! How many bytes of Arrow rows the emulator takes in for a second of one core, with rows thrown away after checks,
//! and what of it is the machine's and what the protocol's.
//!
//! `cargo bench -p bigquery-write-emulator --bench appends` prints, for each kind of rows:
//!
//! * `machine`: requests given to [`Machine::append`] in this process: reading, checking and counting, no protocol;
//! * `bare`: a gRPC server that reads the same requests over loopback TCP and answers them, and looks into none;
//! * `emulator`: the emulator over loopback TCP.
//!
//! A figure is bytes of request over processor time of the server's thread alone (the scheduler's own count, so that
//! the client and other programs do not matter). The last column is `emulator` as a share of `bare`: below one, the
//! emulator's own work limits; at one, the protocol does. `APPENDS_MB` sets how much is sent a measurement (2000).

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{CallMeta, Event, Machine, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_emulator::{Config, Emulator};
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BatchCommitWriteStreamsRequest,
    BatchCommitWriteStreamsResponse, BigQueryWrite, BigQueryWriteClient, BigQueryWriteServer,
    CreateWriteStreamRequest, FinalizeWriteStreamRequest, FinalizeWriteStreamResponse, FlushRowsRequest,
    FlushRowsResponse, GetWriteStreamRequest, ROUTING_HEADER, WriteStream,
    append_rows_request::{ArrowData, Rows},
    append_rows_response::Response as Arm,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TABLE: &str = "projects/p/datasets/d/tables/t";
const MAX_MESSAGE: usize = 64 << 20;
/// Size of a request, about.
const REQUEST_BYTES: usize = 1 << 20;
/// Requests under way.
const PIPELINE: usize = 8;

fn main() -> Result<(), Failure> {
    let megabytes: u64 = std::env::var("APPENDS_MB")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000);
    println!("GB/s of one core       machine      bare  emulator  emulator/bare");
    for (name, columns, rows) in kinds()? {
        let requests = requests(&rows)?;
        let count = (megabytes * 1_000_000 / requests.1.encoded_len() as u64).max(8);
        let machine = in_process(&columns, &requests, count)?;
        let bare = over_tcp(&columns, &requests, count, false)?;
        let emulator = over_tcp(&columns, &requests, count, true)?;
        println!(
            "{name:<20} {machine:>9.2} {bare:>9.2} {emulator:>9.2} {:>14.2}",
            emulator / bare
        );
    }
    Ok(())
}

/// What they are called, the table's columns, and rows of it.
type Case = (&'static str, Vec<Column>, RecordBatch);

/// Tables, and a batch of about [`REQUEST_BYTES`] for each.
fn kinds() -> Result<Vec<Case>, Failure> {
    let column = |name: &str, kind| Column::new(name, kind, Mode::Nullable);
    let text = Kind::String { max_length: None };
    let ints = |rows: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..rows)) };
    let stamps = |rows: i64| -> ArrayRef {
        let values = (0..rows).map(|row| 1_700_000_000_000_000 + row);
        Arc::new(TimestampMicrosecondArray::from_iter_values(values).with_timezone("UTC"))
    };
    let texts = |rows: i64, length: usize| -> ArrayRef {
        let text = |row: i64| format!("{row:0>length$}");
        Arc::new(StringArray::from_iter_values((0..rows).map(text)))
    };
    let numbers = {
        let rows = REQUEST_BYTES as i64 / 64;
        let floats: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|row| row as f64)));
        let columns: Vec<(String, ArrayRef)> = (0..8)
            .map(|at| {
                let array = match at % 3 {
                    0 => ints(rows),
                    1 => stamps(rows),
                    _ => Arc::clone(&floats),
                };
                (format!("c{at}"), array)
            })
            .collect();
        RecordBatch::try_from_iter(columns)?
    };
    let number_columns = (0..8).map(|at| {
        let kind = [Kind::Int64, Kind::Timestamp, Kind::Float64][at % 3].clone();
        column(&format!("c{at}"), kind)
    });
    let rows = REQUEST_BYTES as i64 / 220;
    let strings = RecordBatch::try_from_iter([("a", texts(rows, 100)), ("b", texts(rows, 100))])?;
    let string_columns = vec![column("a", text.clone()), column("b", text.clone())];

    let rows = REQUEST_BYTES as i64 / 96;
    let decimals =
        Decimal128Array::from_iter_values((0..rows).map(i128::from)).with_precision_and_scale(38, 9)?;
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter(
        (0..rows).map(|row| (row % 7 > 0).then_some(row % 2 > 0)),
    ));
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in 0..rows {
        tags.append_value((0..row % 3).map(|_| Some("tag")));
    }
    let mixed = RecordBatch::try_from_iter([
        ("id", ints(rows)),
        ("at", stamps(rows)),
        ("name", texts(rows, 24)),
        ("price", Arc::new(decimals) as ArrayRef),
        ("flag", flags),
        ("tags", Arc::new(tags.finish()) as ArrayRef),
    ])?;
    let mixed_columns = vec![
        Column::new("id", Kind::Int64, Mode::Required),
        column("at", Kind::Timestamp),
        column(
            "name",
            Kind::String {
                max_length: Some(100),
            },
        ),
        column(
            "price",
            Kind::Numeric {
                precision: None,
                scale: None,
            },
        ),
        column("flag", Kind::Bool),
        Column::new("tags", text, Mode::Repeated),
    ];
    Ok(vec![
        ("8 numbers", number_columns.collect(), numbers),
        ("2 strings", string_columns, strings),
        ("mixed", mixed_columns, mixed),
    ])
}

/// The first request of a connection, and each one after it.
fn requests(batch: &RecordBatch) -> Result<(AppendRowsRequest, AppendRowsRequest), Failure> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    let schema = writer.get_ref().clone();
    writer.write(batch)?;
    let rows = writer.get_ref()[schema.len()..].to_vec();
    let later = AppendRowsRequest {
        rows: Some(Rows::ArrowRows(ArrowData {
            writer_schema: None,
            rows: Some(ArrowRecordBatch {
                serialized_record_batch: rows.into(),
                ..ArrowRecordBatch::default()
            }),
        })),
        ..AppendRowsRequest::default()
    };
    let mut first = later.clone();
    first.write_stream = format!("{TABLE}/_default");
    if let Some(Rows::ArrowRows(data)) = &mut first.rows {
        data.writer_schema = Some(ArrowSchema {
            serialized_schema: schema.into(),
        });
    }
    Ok((first, later))
}

/// GB/s of this thread's processor time.
fn in_process(
    columns: &[Column],
    (first, later): &(AppendRowsRequest, AppendRowsRequest),
    count: u64,
) -> Result<f64, Failure> {
    let mut machine = Machine::new(Switches::default(), FaultPlan::default(), 7);
    machine.discard_rows();
    let table = TableRef::new("p", "d", "t");
    machine.create_dataset(&table.dataset_ref(), "US", Default::default(), 0)?;
    let schema = Schema {
        columns: columns.to_vec(),
    };
    machine.create_table(&table, schema, Default::default(), 0)?;
    let connection = machine.open_append(0, CallMeta::default());
    // As they come off the wire: one buffer, in which rows stand wherever they stand.
    let wire =
        |request: &AppendRowsRequest| AppendRowsRequest::decode(bytes::Bytes::from(request.encode_to_vec()));
    let (first, later) = (wire(first)?, wire(later)?);
    let mut append = |request: &AppendRowsRequest| -> Result<(), Failure> {
        let outputs = machine.append(0, connection, request);
        match outputs.as_slice() {
            [output] if matches!(&output.event, Event::Answer(answer) if is_result(answer)) => Ok(()),
            other => Err(format!("refused: {other:?}").into()),
        }
    };
    append(&first)?;
    let before = Usage::of_this_thread()?;
    for _ in 0..count {
        append(&later)?;
    }
    let seconds = before.seconds_since()?;
    Ok(later.encoded_len() as f64 * count as f64 / seconds / 1e9)
}

/// GB/s of the server's thread's processor time.
fn over_tcp(
    columns: &[Column],
    requests: &(AppendRowsRequest, AppendRowsRequest),
    count: u64,
    emulator: bool,
) -> Result<f64, Failure> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (stop, stopped) = oneshot::channel();
    let columns = columns.to_vec();
    let server = thread::spawn(move || -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            if emulator {
                serve_emulator(columns, ready, stopped).await
            } else {
                serve_bare(ready, stopped).await
            }
        })
    });
    let (address, usage) = is_ready.recv()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let seconds = runtime.block_on(send(&format!("http://{address}"), requests, count, &usage))?;
    // The client's connection ends with its runtime, and the server waits for it.
    drop(runtime);
    stop.send(()).map_err(|()| "the server is gone")?;
    server.join().map_err(|_| "the server panicked")??;
    Ok(requests.1.encoded_len() as f64 * count as f64 / seconds / 1e9)
}

type Ready = mpsc::SyncSender<(std::net::SocketAddr, Usage)>;

async fn serve_emulator(
    columns: Vec<Column>,
    ready: Ready,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let emulator = Emulator::start(Config {
        discard: true,
        ..Config::default()
    })
    .await?;
    let (handle, table) = (emulator.handle(), TableRef::new("p", "d", "t"));
    handle.create_dataset(&DatasetRef::new("p", "d"), "US")?;
    handle.create_table(&table, Schema { columns })?;
    ready.send((emulator.grpc_addr(), Usage::of_this_thread()?))?;
    drop(stopped.await);
    emulator.shutdown().await;
    Ok(())
}

async fn serve_bare(ready: Ready, stopped: oneshot::Receiver<()>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready.send((listener.local_addr()?, Usage::of_this_thread()?))?;
    let service = BigQueryWriteServer::new(Bare).max_decoding_message_size(MAX_MESSAGE);
    Server::builder()
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(64 << 20)
        .max_frame_size(1 << 20)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async { drop(stopped.await) })
        .await?;
    Ok(())
}

/// Sends all requests, some under way at a time; the server's processor time of all but the first.
async fn send(
    endpoint: &str,
    (first, later): &(AppendRowsRequest, AppendRowsRequest),
    count: u64,
    usage: &Usage,
) -> Result<f64, Failure> {
    let channel = Endpoint::new(endpoint.to_owned())?.connect().await?;
    let mut client = BigQueryWriteClient::new(channel).max_encoding_message_size(MAX_MESSAGE);
    let (requests, outgoing) = tokio::sync::mpsc::channel(PIPELINE);
    let mut call = Request::new(tokio_stream::wrappers::ReceiverStream::new(outgoing));
    call.metadata_mut()
        .insert(ROUTING_HEADER, format!("write_stream={TABLE}/_default").parse()?);
    requests.send(first.clone()).await?;
    let mut answers = client.append_rows(call).await?.into_inner();
    let mut receive = async || -> Result<(), Failure> {
        match answers.message().await? {
            Some(answer) if is_result(&answer) => Ok(()),
            other => Err(format!("refused: {other:?}").into()),
        }
    };
    receive().await?;
    let before = usage.again()?;
    let sender = async {
        for _ in 0..count {
            requests.send(later.clone()).await?;
        }
        Ok::<_, Failure>(())
    };
    let receiver = async {
        for _ in 0..count {
            receive().await?;
        }
        Ok::<_, Failure>(())
    };
    tokio::try_join!(sender, receiver)?;
    before.seconds_since()
}

fn is_result(answer: &AppendRowsResponse) -> bool {
    matches!(answer.response, Some(Arm::AppendResult(_)))
}

/// A thread's processor time.
struct Usage {
    file: String,
    nanos: u64,
}

impl Usage {
    fn of_this_thread() -> Result<Self, Failure> {
        // The link leads to `<process>/task/<thread>`.
        let thread = std::fs::read_link("/proc/thread-self")?;
        Self::read(format!("/proc/{}/schedstat", thread.display()))
    }

    /// Of the same thread, now.
    fn again(&self) -> Result<Self, Failure> {
        Self::read(self.file.clone())
    }

    fn read(file: String) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(&file)?;
        let nanos = text.split(' ').next().unwrap_or_default().parse()?;
        Ok(Self { file, nanos })
    }

    fn seconds_since(&self) -> Result<f64, Failure> {
        let now = self.again()?;
        Ok((now.nanos - self.nanos) as f64 / 1e9)
    }
}

/// Answers appends, looks into none of them.
struct Bare;

#[tonic::async_trait]
impl BigQueryWrite for Bare {
    type AppendRowsStream = BoxStream<'static, Result<AppendRowsResponse, Status>>;

    async fn append_rows(
        &self,
        request: Request<Streaming<AppendRowsRequest>>,
    ) -> Result<Response<Self::AppendRowsStream>, Status> {
        let answers = request.into_inner().map(|request| {
            request.map(|_| AppendRowsResponse {
                response: Some(Arm::AppendResult(Default::default())),
                ..AppendRowsResponse::default()
            })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn create_write_stream(
        &self,
        _: Request<CreateWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_write_stream(
        &self,
        _: Request<GetWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn finalize_write_stream(
        &self,
        _: Request<FinalizeWriteStreamRequest>,
    ) -> Result<Response<FinalizeWriteStreamResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn batch_commit_write_streams(
        &self,
        _: Request<BatchCommitWriteStreamsRequest>,
    ) -> Result<Response<BatchCommitWriteStreamsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn flush_rows(&self, _: Request<FlushRowsRequest>) -> Result<Response<FlushRowsResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}
