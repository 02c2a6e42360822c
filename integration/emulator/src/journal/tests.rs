//! Whatever happens to the machine or its disk, what was answered is there again, once.

use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, ArrowRecordBatch, ArrowSchema, BatchCommitWriteStreamsRequest,
    CreateWriteStreamRequest, FinalizeWriteStreamRequest, FlushRowsRequest, WriteStream,
    append_rows_request::{ArrowData, Rows},
    append_rows_response::Response,
    write_stream::Type,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::*;
use crate::catalog::{DatasetRef, TableRef};
use crate::changes::{Change, ChangeKind, Changes, Sequence};
use crate::faults::FaultPlan;
use crate::machine::{CallMeta, Event, Refusal, Switches};
use crate::schema::{Column, Kind, Mode, Schema};

const START: Millis = 1_700_000_000_000;
const DAY: Millis = 86_400_000;

/// A machine, its clock, and the table `p.d.t` (n INT64, name STRING) that most steps are about.
struct World {
    machine: Machine,
    now: Millis,
    table: TableRef,
}

impl World {
    fn new() -> Self {
        let switches = Switches {
            finalize_twice_refused: true,
            ..Switches::default()
        };
        Self {
            machine: Machine::new(switches, FaultPlan::default(), 7),
            now: START,
            table: TableRef::new("p", "d", "t"),
        }
    }

    fn open(directory: &Path) -> Result<Self, DataDirError> {
        let mut world = Self::new();
        let last = open(directory, &mut world.machine)?;
        world.now = last.unwrap_or(START);
        Ok(world)
    }

    /// Ten more milliseconds are over.
    fn now(&mut self) -> Millis {
        self.now += 10;
        self.now
    }

    fn dataset(&mut self) {
        let (name, now) = (self.table.dataset_ref(), self.now());
        let created = self.machine.create_dataset(&name, "EU", rest("a dataset"), now);
        created.unwrap();
    }

    fn create_table(&mut self) {
        let (name, now) = (self.table.clone(), self.now());
        let created = self
            .machine
            .create_table(&name, schema(false), rest("a table"), now);
        created.unwrap();
    }

    fn publish(&mut self, from: i64, count: usize) -> Result<(), crate::catalog::CatalogError> {
        let (table, now) = (self.table.clone(), self.now());
        self.machine.publish(&table, rows(from, count), now)
    }

    fn stream(&mut self, kind: Type) -> Result<String, Refusal> {
        let request = CreateWriteStreamRequest {
            parent: self.table.path(),
            write_stream: Some(WriteStream {
                r#type: kind as i32,
                ..WriteStream::default()
            }),
        };
        let now = self.now();
        let reply = self.machine.create_write_stream(now, &meta(), &request);
        reply.result.map(|stream| stream.name)
    }

    /// Appends on a connection of its own: the answer, or how the call ended.
    fn append(
        &mut self,
        stream: &str,
        offset: Option<i64>,
        from: i64,
        count: usize,
    ) -> Result<AppendRowsResponse, Refusal> {
        let now = self.now();
        let connection = self.machine.open_append(now, meta());
        let request = request(stream, offset, &rows(from, count));
        let event = self.machine.append(now, connection, &request).remove(0).event;
        self.machine.lost(connection);
        match event {
            Event::Answer(answer) => Ok(*answer),
            Event::End(refusal) => Err(refusal.unwrap()),
        }
    }

    fn flush(&mut self, stream: &str, offset: i64) -> Result<i64, Refusal> {
        let request = FlushRowsRequest {
            write_stream: stream.to_owned(),
            offset: Some(offset),
        };
        let now = self.now();
        let reply = self.machine.flush_rows(now, &meta(), &request);
        reply.result.map(|answer| answer.offset)
    }

    fn finalize(&mut self, stream: &str) -> Result<i64, Refusal> {
        let request = FinalizeWriteStreamRequest {
            name: stream.to_owned(),
        };
        let now = self.now();
        let reply = self.machine.finalize_write_stream(now, &meta(), &request);
        reply.result.map(|answer| answer.row_count)
    }

    /// Whether all of them are committed now; the errors if not.
    fn commit(&mut self, streams: &[String]) -> Result<Vec<String>, Refusal> {
        let request = BatchCommitWriteStreamsRequest {
            parent: self.table.path(),
            write_streams: streams.to_vec(),
        };
        let now = self.now();
        let reply = self.machine.batch_commit_write_streams(now, &meta(), &request);
        let errors = reply.result?.stream_errors.into_iter();
        Ok(errors.map(|error| error.error_message).collect())
    }

    /// The numbers that a reader of the table sees.
    fn visible(&self) -> Vec<i64> {
        let rows = self.machine.catalog().table(&self.table).unwrap().all_rows();
        let column = rows.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        column.values().to_vec()
    }

    /// Everything that lasts.
    fn whole(&self) -> Vec<Effect> {
        self.machine.snapshot().collect()
    }
}

fn meta() -> CallMeta {
    CallMeta {
        routing: Some("write_location=projects/p/locations/EU".to_owned()),
        ..CallMeta::default()
    }
}

fn rest(description: &str) -> Map<String, Value> {
    Map::from_iter([("description".to_owned(), json!(description))])
}

fn schema(with_tags: bool) -> Schema {
    let mut columns = vec![
        Column::new("n", Kind::Int64, Mode::Nullable),
        Column::new("name", Kind::String { max_length: None }, Mode::Nullable),
    ];
    if with_tags {
        columns.push(Column::new("tags", Kind::Int64, Mode::Repeated));
    }
    Schema { columns }
}

fn rows(from: i64, count: usize) -> RecordBatch {
    let numbers = from..from + count as i64;
    let names: StringArray = numbers
        .clone()
        .map(|n| (n % 3 != 0).then(|| format!("row {n}")))
        .collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(numbers)), Arc::new(names)];
    RecordBatch::try_new(schema(false).arrow(), columns).unwrap()
}

fn request(stream: &str, offset: Option<i64>, rows: &RecordBatch) -> AppendRowsRequest {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).unwrap();
    let schema = writer.get_ref().clone();
    writer.write(rows).unwrap();
    let batch = writer.get_ref()[schema.len()..].to_vec();
    AppendRowsRequest {
        write_stream: stream.to_owned(),
        offset,
        rows: Some(Rows::ArrowRows(ArrowData {
            writer_schema: Some(ArrowSchema {
                serialized_schema: schema.into(),
            }),
            rows: Some(ArrowRecordBatch {
                serialized_record_batch: batch.into(),
                ..ArrowRecordBatch::default()
            }),
        })),
        ..AppendRowsRequest::default()
    }
}

fn offset(answer: Result<AppendRowsResponse, Refusal>) -> Option<i64> {
    match answer.unwrap().response.unwrap() {
        Response::AppendResult(result) => result.offset,
        Response::Error(error) => panic!("{}", error.message),
    }
}

/// Does something, and writes down what was said.
type Step = Box<dyn Fn(&mut World, &mut Vec<String>)>;

/// One of each kind of change, each with one effect.
fn steps() -> Vec<Step> {
    let stream =
        |kind| move |world: &mut World, streams: &mut Vec<String>| streams.push(world.stream(kind).unwrap());
    let other = || TableRef::new("p", "d", "other");
    let gone = || DatasetRef::new("p", "gone");
    vec![
        Box::new(|world, _| world.dataset()),
        Box::new(move |world, _| {
            world
                .machine
                .create_dataset(&gone(), "", Map::new(), START)
                .unwrap();
        }),
        Box::new(|world, _| world.create_table()),
        Box::new(move |world, _| {
            let now = world.now();
            world
                .machine
                .create_table(&other(), schema(true), Map::new(), now)
                .unwrap();
        }),
        Box::new(|world, _| world.publish(0, 3).unwrap()),
        Box::new(stream(Type::Buffered)),
        Box::new(stream(Type::Committed)),
        Box::new(stream(Type::Pending)),
        Box::new(stream(Type::Pending)),
        Box::new(|world, streams| assert_eq!(offset(world.append(&streams[0], Some(0), 10, 5)), Some(0))),
        Box::new(|world, streams| assert_eq!(offset(world.append(&streams[0], Some(5), 15, 5)), Some(5))),
        Box::new(|world, streams| assert_eq!(world.flush(&streams[0], 6), Ok(6))),
        Box::new(|world, streams| assert_eq!(offset(world.append(&streams[1], Some(0), 20, 2)), Some(0))),
        Box::new(|world, streams| assert_eq!(offset(world.append(&streams[2], None, 30, 2)), Some(0))),
        Box::new(|world, streams| assert_eq!(offset(world.append(&streams[3], None, 40, 2)), Some(0))),
        // Refused, which renews the stream's life.
        Box::new(|world, streams| {
            let answer = world.append(&streams[3], Some(9), 40, 2).unwrap();
            assert!(matches!(answer.response, Some(Response::Error(_))), "{answer:?}");
        }),
        Box::new(|world, streams| assert_eq!(world.finalize(&streams[2]), Ok(2))),
        Box::new(|world, streams| assert_eq!(world.finalize(&streams[3]), Ok(2))),
        Box::new(|world, streams| assert_eq!(world.commit(&streams[2..4]), Ok(Vec::new()))),
        Box::new(|world, _| {
            let (table, now) = (world.table.clone(), world.now());
            let changed = world
                .machine
                .update_table(&table, schema(true), rest("another"), now);
            assert_eq!(changed.unwrap().row_count(), 16);
        }),
        Box::new(|world, _| {
            let (name, now) = (world.table.dataset_ref(), world.now());
            world
                .machine
                .update_dataset(&name, rest("described anew"), now)
                .unwrap();
        }),
        Box::new(move |world, _| {
            let now = world.now();
            world
                .machine
                .replace_table(&other(), schema(false), Map::new(), now)
                .unwrap();
        }),
        Box::new(move |world, _| {
            world
                .machine
                .fill_table(&other(), schema(false), Map::new(), rows(50, 3), world.now)
                .unwrap();
        }),
        Box::new(move |world, _| world.machine.delete_table(&other()).unwrap()),
        Box::new(move |world, _| world.machine.delete_dataset(&gone(), false).unwrap()),
        Box::new(stream(Type::Buffered)),
        Box::new(|world, streams| assert_eq!(world.finalize(&streams[4]), Ok(0))),
        // The COMMITTED and PENDING streams are too old now; the BUFFERED ones are not.
        Box::new(|world, _| {
            world.now += 4 * DAY;
            world.machine.tick(world.now);
        }),
    ]
}

/// The whole history in a directory: after each step the journal's length, and everything that lasts.
fn history(directory: &Path) -> (Vec<(u64, Vec<Effect>)>, Vec<String>) {
    let mut world = World::open(directory).unwrap();
    let mut streams = Vec::new();
    let mut history = vec![(length(directory), world.whole())];
    for step in steps() {
        step(&mut world, &mut streams);
        history.push((length(directory), world.whole()));
    }
    (history, streams)
}

fn length(directory: &Path) -> u64 {
    fs::metadata(directory.join("journal")).unwrap().len()
}

fn copy(bytes: &[u8]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("journal"), bytes).unwrap();
    directory
}

#[test]
fn everything_is_there_again_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (history, streams) = history(directory.path());
    let before = &history.last().unwrap().1;
    let mut world = World::open(directory.path()).unwrap();
    assert_eq!(&world.whole(), before);
    let table = world.machine.catalog().table(&world.table).unwrap();
    assert_eq!(
        (table.id, table.schema.clone(), table.rest.clone()),
        (1, schema(true), rest("another"))
    );
    let shown = |world: &World| {
        let infos = world.machine.streams().into_iter();
        let mut shown: Vec<_> = infos
            .map(|info| {
                let number = streams.iter().position(|name| *name == info.name).unwrap();
                (number, info.end, info.flushed, info.finalized, info.connected)
            })
            .collect();
        shown.sort_unstable();
        shown
    };
    assert_eq!(shown(&world), [(0, 10, 7, false, false), (4, 0, 0, true, false)]);
    let seen = [0, 1, 2, 10, 11, 12, 13, 14, 15, 16, 20, 21, 30, 31, 40, 41];
    assert_eq!(world.visible(), seen);
    // Rows held back are shown once, and offsets go on at the end.
    assert_eq!(world.flush(&streams[0], 6), Ok(6));
    assert_eq!(world.visible(), seen);
    assert_eq!(world.flush(&streams[0], 9), Ok(9));
    assert_eq!(world.visible()[seen.len()..], [17, 18, 19]);
    assert_eq!(offset(world.append(&streams[0], Some(10), 50, 1)), Some(10));
    // What is gone stays gone, and nothing takes its name or number.
    assert_eq!(world.machine.streams_created(), 5);
    let name = world.stream(Type::Buffered).unwrap();
    assert!(!streams.contains(&name));
    let (other, now) = (TableRef::new("p", "d", "other"), world.now());
    assert_eq!(
        world
            .machine
            .create_table(&other, schema(false), Map::new(), now)
            .unwrap()
            .id,
        5
    );
    let collected = world.commit(&streams[2..4]);
    assert_eq!(collected.unwrap(), ["Stream has been garbage collected"; 2]);
    let missing = world.flush(&streams[1], 0).unwrap_err().message;
    assert_eq!(
        missing,
        format!("Requested entity was not found. Entity: {}", streams[1])
    );
    // Lives go on too: that of the stream without a row began at its creation, and BUFFERED ones have seven days.
    world.now += 3 * DAY + DAY / 2;
    world.machine.tick(world.now);
    let left: Vec<_> = world
        .machine
        .streams()
        .into_iter()
        .map(|info| info.name)
        .collect();
    assert!(
        left.contains(&streams[0]) && !left.contains(&streams[4]),
        "{left:?}"
    );
}

#[test]
fn a_commit_of_streams_that_were_finalized_before_the_restart_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(directory.path()).unwrap();
    world.dataset();
    world.create_table();
    let streams = [
        world.stream(Type::Pending).unwrap(),
        world.stream(Type::Pending).unwrap(),
    ];
    for (from, stream) in [(0, &streams[0]), (10, &streams[1])] {
        offset(world.append(stream, Some(0), from, 2));
        assert_eq!(world.finalize(stream), Ok(2));
    }
    drop(world);
    let mut world = World::open(directory.path()).unwrap();
    assert_eq!(world.visible(), Vec::<i64>::new());
    assert_eq!(world.commit(&streams), Ok(Vec::new()));
    drop(world);
    let mut world = World::open(directory.path()).unwrap();
    assert_eq!(world.visible(), [0, 1, 10, 11]);
    let again = world.commit(&streams).unwrap();
    assert_eq!(
        again,
        [
            "Stream has already been committed",
            "Stream has already been committed"
        ]
    );
    assert_eq!(world.visible(), [0, 1, 10, 11]);
}

#[test]
fn a_journal_cut_anywhere_opens_to_what_was_true_at_some_time() {
    let directory = tempfile::tempdir().unwrap();
    let (history, _) = history(directory.path());
    let bytes = fs::read(directory.path().join("journal")).unwrap();
    assert!(
        history.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "each step is a record"
    );
    let bounds: Vec<u64> = [record::HEAD as u64]
        .into_iter()
        .chain(history.iter().map(|(end, _)| *end))
        .collect();
    for cut in 0..=bytes.len() {
        let whole = bounds.iter().rposition(|end| *end <= cut as u64);
        let Some((whole, end)) = whole.map(|at| (at, bounds[at])) else {
            let refused = Reader::open(&bytes[..cut], cut as u64, Path::new("journal")).err();
            assert!(
                matches!(refused, Some(DataDirError::NotAJournal { .. })),
                "cut at {cut}"
            );
            continue;
        };
        // All of them are read, and those at the ends of records and some others opened too.
        let mut reader = Reader::open(&bytes[..cut], cut as u64, Path::new("journal")).unwrap();
        let last = loop {
            match reader.next().unwrap() {
                Found::Record(_) => {}
                last => break last,
            }
        };
        let want = if end == cut as u64 {
            Found::End
        } else {
            Found::Torn
        };
        assert_eq!((reader.offset(), last), (end, want), "cut at {cut}");
        if bounds.contains(&(cut as u64)) || bounds.contains(&(cut as u64 + 1)) || cut % 211 == 0 {
            // Before the first step is what an emulator knows that was never told anything.
            let before = whole
                .checked_sub(1)
                .map_or_else(|| World::new().whole(), |step| history[step].1.clone());
            let copy = copy(&bytes[..cut]);
            let mut world = World::open(copy.path()).unwrap();
            assert_eq!(
                (length(copy.path()), world.whole()),
                (end, before),
                "cut at {cut}"
            );
            // New records go behind the whole ones.
            let name = DatasetRef::new("q", "new");
            world
                .machine
                .create_dataset(&name, "", Map::new(), START)
                .unwrap();
            let whole = world.whole();
            drop(world);
            assert_eq!(World::open(copy.path()).unwrap().whole(), whole, "cut at {cut}");
        }
    }
}

#[test]
fn a_byte_that_changed_is_found_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (history, _) = history(directory.path());
    let bytes = fs::read(directory.path().join("journal")).unwrap();
    let bounds: Vec<u64> = [record::HEAD as u64]
        .into_iter()
        .chain(history.iter().map(|(end, _)| *end))
        .collect();
    let [.., (last, before), (_, all)] = history.as_slice() else {
        panic!()
    };
    let opened = |changed: &[u8]| {
        let mut world = World::new();
        let name = Path::new("journal");
        replay(changed, changed.len() as u64, name, &mut world.machine)
            .map(|replayed| (replayed.end, world.whole()))
    };
    for at in (0..bytes.len()).step_by(11) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        match opened(&changed) {
            Err(DataDirError::NotAJournal { .. }) => assert!(at < record::HEAD, "{at}"),
            Err(DataDirError::Damaged { offset, .. }) => {
                assert_eq!(
                    Some(&offset),
                    bounds.iter().rfind(|end| **end <= at as u64),
                    "{at}"
                );
            }
            Err(error) => panic!("{at}: {error}"),
            // Nobody can tell the last record from one that was never completed.
            Ok((end, whole)) => {
                assert!(at as u64 >= *last, "{at}");
                assert_eq!((end, &whole), (*last, before), "{at}");
            }
        }
    }
    // Nor from pages that a machine without power never wrote.
    for from in *last..bytes.len() as u64 {
        let mut changed = bytes.clone();
        changed[from as usize..].fill(0);
        let (end, whole) = opened(&changed).unwrap();
        // The last byte is a zero of Arrow's, if not the record's.
        let same = changed == bytes;
        let want = if same {
            (bytes.len() as u64, all)
        } else {
            (*last, before)
        };
        assert_eq!((end, &whole), want, "{from}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let (_, _) = history(directory.path());
    let shown = directory.path().display();
    let bytes = fs::read(directory.path().join("journal")).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(directory.path().join("journal"), bytes).unwrap();
        World::open(directory.path()).err().unwrap().to_string()
    };
    let mut damaged = bytes.clone();
    damaged[record::HEAD + record::PREFIX] ^= 1;
    assert_eq!(
        refused(&damaged),
        format!(
            "{shown}/journal is damaged at byte 16: its checksum is not that of its bytes. Put back a copy of it; or, to lose \
             everything from there on, cut it there (truncate --size=16)"
        )
    );
    let mut head = bytes.clone();
    head[8] = 9;
    let crc = crc32c::crc32c(&head[..12]).to_le_bytes();
    head[12..16].copy_from_slice(&crc);
    assert_eq!(
        refused(&head),
        format!(
            "{shown}/journal was written by a newer emulator (format 9; this one reads format 1): use that one, or another \
             directory"
        )
    );
    let foreign = format!(
        "{shown}/journal is not the journal of an emulator: give the emulator a directory of its own"
    );
    assert_eq!(refused(b"-- Journal begins at Tue 2026-01-06"), foreign);
    assert_eq!(refused(b""), foreign);
    let mut records = record::head().to_vec();
    let lost = Effect::StreamFinalized {
        stream: "s".to_owned(),
        at_ms: START,
    };
    records.extend(record::encode(&lost, 16).unwrap());
    assert_eq!(
        refused(&records),
        format!(
            "{shown}/journal is damaged at byte 16: it does not fit what stands before it: there is no stream s. Put back a \
             copy of it; or, to lose everything from there on, cut it there (truncate --size=16)"
        )
    );
    fs::write(directory.path().join("journal"), &bytes).unwrap();
    let first = World::open(directory.path()).unwrap();
    let second = World::open(directory.path()).err().unwrap().to_string();
    assert_eq!(
        second,
        format!(
            "{shown} is in use by another emulator: stop that one, or give this one a directory of its own"
        )
    );
    drop(first);
    World::open(directory.path()).unwrap();
    let below = directory.path().join("journal").join("below");
    let refused = World::open(&below).err().unwrap().to_string();
    assert_eq!(
        refused,
        format!("cannot create {}: Not a directory (os error 20)", below.display())
    );
}

/// A disk that breaks.
#[derive(Clone, Default)]
struct FailingDisk(Arc<Mutex<Failing>>);

#[derive(Default)]
struct Failing {
    bytes: Vec<u8>,
    calls: usize,
    /// Which call fails, counting writes and syncs.
    at: usize,
    /// How much of a write that fails reaches the disk.
    share: f64,
}

impl Disk for FailingDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.calls += 1;
        let fails = disk.calls == disk.at;
        let share = if fails { disk.share } else { 1.0 };
        let reached = (bytes.len() as f64 * share) as usize;
        disk.bytes.extend_from_slice(&bytes[..reached]);
        if fails {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.calls += 1;
        if disk.calls == disk.at {
            Err(io::Error::other("input/output error"))
        } else {
            Ok(())
        }
    }
}

#[test]
fn what_a_broken_disk_does_not_keep_does_not_happen() {
    // Steps until the disk breaks, by what each answers.
    type Step = fn(&mut World, &mut String) -> Result<(), String>;
    let steps: [Step; 5] = [
        |world, stream| {
            let created = world
                .stream(Type::Buffered)
                .map_err(|refusal| format!("{:?}: {}", refusal.code, refusal.message))?;
            *stream = created;
            Ok(())
        },
        |world, stream| {
            let appended = world.append(stream, Some(0), 0, 4);
            appended
                .map(drop)
                .map_err(|refusal| format!("{:?}: {}", refusal.code, refusal.message))
        },
        |world, stream| {
            world
                .flush(stream, 1)
                .map(drop)
                .map_err(|refusal| format!("{:?}: {}", refusal.code, refusal.message))
        },
        |world, _| world.publish(10, 1).map_err(|error| format!("Internal: {error}")),
        |world, stream| {
            world
                .finalize(stream)
                .map(drop)
                .map_err(|refusal| format!("{:?}: {}", refusal.code, refusal.message))
        },
    ];
    for share in [0.0, 0.5, 1.0] {
        for at in 1..=2 * steps.len() {
            let disk = FailingDisk::default();
            let mut world = World::new();
            world.dataset();
            world.create_table();
            let mut journal = Journal {
                disk: disk.clone(),
                path: "/disk/journal".into(),
                end: record::HEAD as u64,
            };
            let mut bytes = record::head().to_vec();
            let effects: Vec<_> = world.whole();
            for effect in &effects {
                journal.keep(effect).unwrap();
            }
            {
                let mut disk = disk.0.lock().unwrap();
                (disk.calls, disk.at, disk.share) = (0, at, share);
            }
            world.machine.attach_journal(move |effect| journal.keep(effect));
            let reason = if at % 2 == 1 {
                "no storage space"
            } else {
                "input/output error"
            };
            let refused = format!(
                "Internal: the emulator can change nothing any more: cannot write /disk/journal: {reason}"
            );
            let (mut stream, mut before) = (String::new(), world.whole());
            for (number, step) in steps.iter().enumerate() {
                let answered = step(&mut world, &mut stream);
                if number < (at - 1) / 2 {
                    assert_eq!(answered, Ok(()));
                    before = world.whole();
                    continue;
                }
                assert_eq!(answered, Err(refused.clone()), "step {number}, call {at}");
                // A disk that works again changes nothing: nobody knows what it has of that record.
                assert_eq!(steps[0](&mut world, &mut stream), Err(refused.clone()));
                assert_eq!(steps[3](&mut world, &mut stream), Err(refused.clone()));
                assert_eq!(world.whole(), before);
                break;
            }
            // The next emulator knows all that was answered, and perhaps the change at which the disk broke.
            bytes.extend_from_slice(&disk.0.lock().unwrap().bytes);
            let next = World::open(copy(&bytes).path()).unwrap().whole();
            if next != before {
                let mut world = World::new();
                replay(
                    bytes.as_slice(),
                    bytes.len() as u64,
                    Path::new("whole"),
                    &mut world.machine,
                )
                .unwrap();
                assert!(share == 1.0 || at % 2 == 0, "call {at}, {share}");
                assert_eq!(next, world.whole());
            }
        }
    }
}

#[test]
fn a_journal_that_says_more_than_is_true_is_replaced_by_a_shorter_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(directory.path()).unwrap();
    world.dataset();
    world.create_table();
    let stream = world.stream(Type::Buffered).unwrap();
    for n in 0..600 {
        assert_eq!(offset(world.append(&stream, Some(n), n, 1)), Some(n));
        if n % 3 == 1 {
            assert_eq!(world.flush(&stream, n - 1), Ok(n - 1));
        }
        if n % 3 == 2 {
            world.publish(-n, 1).unwrap();
        }
    }
    let (long, whole) = (length(directory.path()), world.whole());
    drop(world);
    // One that was being written when its writer died is no journal yet.
    fs::write(directory.path().join("journal.new"), b"half").unwrap();
    let mut world = World::open(directory.path()).unwrap();
    let short = length(directory.path());
    assert!(short * 20 < long, "{short} bytes replace {long}");
    assert!(!directory.path().join("journal.new").exists());
    assert_eq!(world.whole(), whole);
    // It is written on, and opens again as it is.
    assert_eq!(world.flush(&stream, 599), Ok(599));
    let (grown, whole) = (length(directory.path()), world.whole());
    assert!(grown > short);
    drop(world);
    let world = World::open(directory.path()).unwrap();
    assert_eq!((length(directory.path()), world.whole()), (grown, whole));
    let mut seen = world.visible();
    seen.sort_unstable();
    let published = (0..600).filter(|n| n % 3 == 2).map(|n: i64| -n);
    let mut all: Vec<i64> = published.chain(0..600).collect();
    all.sort_unstable();
    assert_eq!(seen, all);
}

/// Upserts of one row each (key, rank), or a delete of it.
fn change(world: &mut World, key: i64, rank: &str, delete: bool) {
    let row = rows(key, 1);
    let (upserts, deletes) = if delete {
        (row.slice(0, 0), row)
    } else {
        (row.clone(), row.slice(0, 0))
    };
    let kind = if delete {
        ChangeKind::Delete
    } else {
        ChangeKind::Upsert
    };
    let at_ms = world.now();
    let effect = Effect::RowsChanged {
        table: world.table.clone(),
        changes: Changes {
            upserts,
            deletes: deletes.project(&[0]).unwrap(),
            order: vec![Change {
                kind,
                row: 0,
                sequence: Sequence::parse(rank),
            }],
        },
        at_ms,
        revision: world.machine.catalog().next_revision(),
    };
    world.machine.apply(&effect).unwrap();
}

#[test]
fn what_is_known_of_keys_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(directory.path()).unwrap();
    world.dataset();
    let key = json!({ "primaryKey": { "columns": ["n"] } });
    let rest = Map::from_iter([("tableConstraints".to_owned(), key)]);
    let (table, now) = (world.table.clone(), world.now());
    world
        .machine
        .create_table(&table, schema(false), rest, now)
        .unwrap();
    world.publish(0, 4).unwrap();
    change(&mut world, 1, "5", false);
    change(&mut world, 2, "5", true);
    change(&mut world, 9, "5", false);
    let whole = world.whole();
    drop(world);
    let mut world = World::open(directory.path()).unwrap();
    assert_eq!(world.whole(), whole);
    // So many changes that the journal is replaced, and replaced again.
    for _ in 0..2 {
        for _ in 0..600 {
            change(&mut world, 9, "5", false);
            change(&mut world, 3, "", false);
        }
        let (long, whole) = (length(directory.path()), world.whole());
        drop(world);
        world = World::open(directory.path()).unwrap();
        assert!(length(directory.path()) * 100 < long);
        assert_eq!(world.whole(), whole);
        // What was put in its place says the same.
        drop(world);
        world = World::open(directory.path()).unwrap();
        assert_eq!(world.whole(), whole);
    }
    assert_eq!(world.visible(), [0, 1, 9, 3]);
    // A lower rank changes nothing, an equal one takes the row to the end.
    for (rank, want) in [("4", [0, 1, 9, 3]), ("5", [0, 9, 3, 1])] {
        change(&mut world, 1, rank, false);
        change(&mut world, 2, "4", false);
        assert_eq!(world.visible(), want);
    }
    change(&mut world, 2, "5", false);
    assert_eq!(world.visible(), [0, 9, 3, 1, 2]);
}

#[test]
fn rows_of_a_table_that_is_gone_are_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(directory.path()).unwrap();
    world.dataset();
    world.create_table();
    let name = world.table.clone();
    let big: StringArray = (0..256).map(|_| Some("x".repeat(100_000))).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1; 256])), Arc::new(big)];
    let rows = RecordBatch::try_new(schema(false).arrow(), columns).unwrap();
    world.machine.publish(&name, rows, START).unwrap();
    world.machine.delete_table(&name).unwrap();
    assert!(length(directory.path()) > 25_000_000);
    let whole = world.whole();
    drop(world);
    let world = World::open(directory.path()).unwrap();
    assert_eq!(world.whole(), whole);
    assert!(length(directory.path()) < 1000);
}

/// The form on disk: a change here makes journals of before unreadable, and needs a new [`record::VERSION`].
#[test]
fn effects_are_written_in_this_form() {
    assert_eq!(record::head(), *b"bqjrnl\r\n\x01\0\0\0\x0c\x78\xf8\x57");
    let directory = tempfile::tempdir().unwrap();
    let (_, streams) = history(directory.path());
    let bytes = fs::read(directory.path().join("journal")).unwrap();
    let mut reader = Reader::open(bytes.as_slice(), bytes.len() as u64, Path::new("journal")).unwrap();
    let mut written = String::new();
    while let Found::Record(payload) = reader.next().unwrap() {
        let (length, rest) = payload.split_first_chunk().unwrap();
        let (header, rows) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let mut header = String::from_utf8(header.to_vec()).unwrap();
        for (number, stream) in streams.iter().enumerate() {
            header = header.replace(stream.as_str(), &format!("S{number}"));
        }
        let rows = if rows.is_empty() { "" } else { " + rows" };
        written.push_str(&format!("{header}{rows}\n"));
    }
    assert!(
        written == include_str!("form-1.txt"),
        "the form on disk is not that of form-1.txt any more, but:\n{written}"
    );
}
