//! Whatever comes in, an answer goes out: no panic, and the next good request works.

use std::sync::Arc;

use arrow_array::types::{Int64Type, IntervalMonthDayNano};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Int64Array, IntervalMonthDayNanoArray, ListArray,
    RecordBatch, StringArray, StringViewArray, StructArray, TimestampNanosecondArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::Switches;
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement};
use prost::Message;
use prost_types::DescriptorProto;
use prost_types::field_descriptor_proto::Type;

use crate::message::{
    bytes, message, optional, packed, raw_proto_request, repeated, typed, varint, with_default,
};
use crate::world::{World, messages, raw_request, request};

const STREAM: &str = "projects/p/datasets/d/tables/m/_default";

/// A small generator with a fixed seed: failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn columns() -> Vec<Column> {
    let inner = vec![Column::new("x", Kind::Int64, Mode::Required)];
    vec![
        Column::new("i", Kind::Int64, Mode::Nullable),
        Column::new("b", Kind::Bool, Mode::Nullable),
        Column::new(
            "s",
            Kind::String {
                max_length: Some(100),
            },
            Mode::Nullable,
        ),
        Column::new("l", Kind::Int64, Mode::Repeated),
        Column::new("o", Kind::Struct(inner), Mode::Nullable),
        Column::new("n", Kind::Interval, Mode::Nullable),
        Column::new("r", Kind::Range(RangeElement::Date), Mode::Nullable),
        Column::new("p", Kind::TimestampPicoseconds, Mode::Nullable),
    ]
}

fn good() -> RecordBatch {
    let list =
        ListArray::from_iter_primitive::<Int64Type, _, _>((0..20).map(|row| Some((0..row % 3).map(Some))));
    let x: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
    let object = StructArray::from(vec![(Arc::new(Field::new("x", DataType::Int64, true)), x)]);
    let dates = |from: i32| -> ArrayRef { Arc::new(Date32Array::from_iter_values(from..from + 20)) };
    let range = StructArray::from(vec![
        (Arc::new(Field::new("start", DataType::Date32, true)), dates(0)),
        (Arc::new(Field::new("end", DataType::Date32, true)), dates(1)),
    ]);
    let arrays: Vec<(&str, ArrayRef, bool)> = vec![
        (
            "i",
            Arc::new(
                (0..20)
                    .map(|row| (row % 4 > 0).then_some(row))
                    .collect::<Int64Array>(),
            ),
            true,
        ),
        (
            "b",
            Arc::new((0..20).map(|row| Some(row % 2 > 0)).collect::<BooleanArray>()),
            true,
        ),
        (
            "s",
            Arc::new(
                (0..20)
                    .map(|row| Some("ä".repeat(row % 5)))
                    .collect::<StringArray>(),
            ),
            true,
        ),
        ("l", Arc::new(list), true),
        ("o", Arc::new(object), true),
        (
            "n",
            Arc::new(
                (0..20)
                    .map(|row| Some(IntervalMonthDayNano::new(row, -row, 1_000)))
                    .collect::<IntervalMonthDayNanoArray>(),
            ),
            true,
        ),
        ("r", Arc::new(range), true),
        (
            "p",
            Arc::new(TimestampNanosecondArray::from_iter_values(0..20)),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(arrays).unwrap()
}

#[test]
fn ten_thousand_damaged_arrow_messages_are_errors_or_rows_and_never_a_panic() {
    let mut world = World::new();
    let table = world.table("m", "US", columns());
    let (schema, rows) = messages(&good());
    let mut random = Random(0x5eed);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..10_000 {
        let (mut schema, mut rows) = (schema.clone(), rows.clone());
        let target = if random.below(3) == 0 {
            &mut schema
        } else {
            &mut rows
        };
        match random.below(4) {
            0 => target.truncate(random.below(target.len())),
            1 => {
                let at = random.below(target.len());
                target[at] ^= 1 << random.below(8);
            }
            2 => {
                for _ in 0..1 + random.below(8) {
                    let at = random.below(target.len());
                    target[at] = random.next() as u8;
                }
            }
            _ => {
                // A whole word: lengths and offsets are words.
                let at = random.below(target.len() / 8) * 8;
                let word =
                    [i64::MIN, i64::MAX, -1, i64::from(i32::MAX), random.next() as i64][random.below(5)];
                target[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let connection = world.open();
        let said = world.send(connection, &raw_request(STREAM, None, Some(schema), rows));
        world.machine.lost(connection);
        if said == "appended" {
            taken += 1;
        } else {
            refused += 1;
        }
        assert!(!said.is_empty());
    }
    assert!(
        refused > 3000,
        "only {refused} of 10000 were refused, {taken} taken"
    );
    let connection = world.open();
    assert_eq!(
        world.send(connection, &request(STREAM, None, &good())),
        "appended"
    );
    let all = world.machine.catalog().table(&table).unwrap().all_rows();
    assert_eq!(
        all.slice(all.num_rows() - 20, 20).column(0).to_data(),
        good().column(0).to_data()
    );
}

/// The columns of [`columns`] as a protobuf message.
fn good_message() -> (DescriptorProto, Vec<Vec<u8>>) {
    let mut row = message(
        "Row",
        vec![
            optional("i", 1, Type::Int64),
            optional("b", 2, Type::Bool),
            with_default(optional("s", 3, Type::String), "ä"),
            repeated("l", 4, Type::Int64),
            typed("o", 5, Type::Message, "Row.O"),
        ],
    );
    row.nested_type
        .push(message("O", vec![optional("x", 1, Type::Int64)]));
    let rows = (0..20).map(|row| {
        let list: Vec<i64> = (0..row % 3).collect();
        let parts = [
            varint(1, row),
            varint(2, row % 2),
            bytes(3, "ä".repeat(row as usize % 5)),
            bytes(4, packed(&list)),
            bytes(5, varint(1, row)),
        ];
        parts.concat()
    });
    (row, rows.collect())
}

#[test]
fn ten_thousand_damaged_protobuf_requests_are_errors_or_rows_and_never_a_panic() {
    let mut world = World::new();
    let table = world.table("m", "US", columns());
    let (descriptor, rows) = good_message();
    let descriptor = descriptor.encode_to_vec();
    let mut random = Random(0x5eed);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..10_000 {
        let (mut descriptor, mut rows) = (descriptor.clone(), rows.clone());
        let row = random.below(rows.len());
        let target = if random.below(2) == 0 {
            &mut descriptor
        } else {
            &mut rows[row]
        };
        let at = random.below(target.len());
        match random.below(4) {
            0 => target.truncate(at),
            1 => target[at] ^= 1 << random.below(8),
            2 => target.insert(at, random.next() as u8),
            _ => {
                // A varint: lengths, tags and numbers are such.
                let number = packed(&[(random.next() >> random.below(64)) as i64]);
                target.splice(at..at, number);
            }
        }
        let connection = world.open();
        let request = raw_proto_request(STREAM, None, Some(descriptor), rows);
        let said = world.send(connection, &request);
        world.machine.lost(connection);
        if said == "appended" {
            taken += 1;
        } else {
            assert!(said.contains("InvalidArgument"), "{said}");
            refused += 1;
        }
    }
    assert!(
        refused > 3000 && taken > 500,
        "{refused} of 10000 were refused, {taken} taken"
    );
    assert_eq!(world.machine.connections(), 0);
    let connection = world.open();
    let request = raw_proto_request(STREAM, None, Some(descriptor), rows);
    assert_eq!(world.send(connection, &request), "appended");
    let all = world.machine.catalog().table(&table).unwrap().all_rows();
    assert_eq!(all.num_rows(), (taken + 1) * 20);
    let last = all.slice(all.num_rows() - 20, 20);
    assert_eq!(
        last.column(0).to_data(),
        Int64Array::from_iter_values(0..20).to_data()
    );
}

#[test]
fn columns_that_are_not_sent_take_no_memory_without_limit() {
    let switches = Switches {
        max_decoded_bytes: 10_000,
        ..Switches::default()
    };
    let mut world = World::with(switches, FaultPlan::default());
    let columns =
        |count: usize| (0..count).map(|at| Column::new(format!("c{at}"), Kind::Int64, Mode::Nullable));
    let inner = Kind::Struct(columns(100).collect());
    let mut table: Vec<Column> = columns(100).collect();
    table.push(Column::new("s", inner, Mode::Nullable));
    world.table("m", "US", table);
    let said = "InvalidArgument: the rows take more than 10000 bytes of memory when they are read; send fewer in one \
                request. Entity: projects/p/datasets/d/tables/m/streams/_default";
    let row = message("Row", vec![optional("c0", 1, Type::Int64)]);
    let connection = world.open();
    let few = raw_proto_request(STREAM, None, Some(row.encode_to_vec()), vec![Vec::new(); 2]);
    let many = raw_proto_request(STREAM, None, None, vec![Vec::new(); 100]);
    assert_eq!(world.send(connection, &few), "appended");
    assert_eq!(world.send(connection, &many), said);
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1; 100]));
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("c0", DataType::Int64, true)),
        Arc::clone(&ints),
    )]);
    let batches: [(&str, ArrayRef); 2] = [("c0", ints), ("s", Arc::new(nested))];
    for (name, array) in batches {
        let connection = world.open();
        let batch = RecordBatch::try_from_iter([(name, array)]).unwrap();
        assert_eq!(
            world.send(connection, &request(STREAM, None, &batch)),
            said,
            "{name}"
        );
    }
}

#[test]
fn buffers_that_share_their_bytes_take_no_memory_without_limit() {
    let switches = Switches {
        max_decoded_bytes: 5_000,
        ..Switches::default()
    };
    let mut world = World::with(switches, FaultPlan::default());
    let columns = ["a", "b"].map(|name| Column::new(name, Kind::Int64, Mode::Nullable));
    world.table("m", "US", columns.to_vec());
    let ints = |from: i64| Arc::new(Int64Array::from_iter_values(from..from + 100)) as ArrayRef;
    let (schema, rows) = messages(&RecordBatch::try_from_iter([("a", ints(0)), ("b", ints(7))]).unwrap());
    // The second column's values are all that is there, those of the first with them.
    let message = arrow_ipc::root_as_message(&rows[8..]).unwrap();
    let buffers = message.header_as_record_batch().unwrap().buffers().unwrap();
    let place = |offset: i64, length: i64| [offset.to_le_bytes(), length.to_le_bytes()].concat();
    let second = place(buffers.get(3).offset(), buffers.get(3).length());
    let at = rows.windows(16).position(|bytes| bytes == second).unwrap();
    let mut shared = rows.clone();
    shared[at..at + 16].copy_from_slice(&place(0, message.bodyLength()));
    let said = [rows, shared].map(|rows| {
        let connection = world.open();
        world.send(connection, &raw_request(STREAM, None, Some(schema.clone()), rows))
    });
    assert_eq!(
        said,
        [
            "appended",
            "ended InvalidArgument: Invalid Arrow data: the rows take more than 5000 bytes of memory when they are \
             read; send fewer in one request. Entity: projects/p/datasets/d/tables/m/streams/_default"
        ]
    );
}

#[test]
fn damaged_views_and_compressed_bodies_are_errors_or_rows_and_never_a_panic() {
    let switches = Switches {
        arrow_other_layouts: true,
        arrow_compression: true,
        max_decoded_bytes: 1 << 20,
        ..Switches::default()
    };
    let mut world = World::with(switches, FaultPlan::default());
    let text = Kind::String { max_length: None };
    world.table("m", "US", vec![Column::new("s", text, Mode::Nullable)]);
    let texts = (0..200).map(|row| (row % 7 > 0).then(|| "text ".repeat(row % 11)));
    let views: ArrayRef = Arc::new(texts.collect::<StringViewArray>());
    let batch = RecordBatch::try_from_iter([("s", views)]).unwrap();
    let mut random = Random(0xface);
    let (mut refused, mut taken) = (0, 0);
    for codec in [None, Some(CompressionType::LZ4_FRAME)] {
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        let schema = writer.get_ref().clone();
        writer.write(&batch).unwrap();
        let rows = writer.get_ref()[schema.len()..].to_vec();
        for round in 0..2_000 {
            let mut rows = rows.clone();
            for _ in 0..round.min(1 + random.below(4)) {
                let at = random.below(rows.len());
                rows[at] = random.next() as u8;
            }
            let connection = world.open();
            let said = world.send(connection, &raw_request(STREAM, None, Some(schema.clone()), rows));
            assert!(said == "appended" || said.contains("InvalidArgument"), "{said}");
            if said == "appended" {
                taken += 1;
            } else {
                refused += 1;
            }
            assert!(round > 0 || said == "appended", "{said}");
            world.machine.lost(connection);
        }
    }
    assert!(refused > 100 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn names_of_any_length_and_content_are_answered() {
    let mut world = World::new();
    let long = "x".repeat(1 << 20);
    let names = [
        String::new(),
        "\0".to_owned(),
        long.clone(),
        format!("projects/p/datasets/d/tables/t/streams/{long}"),
        "projects/p/datasets/d/tables/$/streams/_default".to_owned(),
        "projects/p/datasets/d/tables/t$99999999/streams/_default".to_owned(),
        "/streams//streams/".to_owned(),
        "projects/../datasets/ä/tables/💥/streams/_default".to_owned(),
    ];
    for name in &names {
        let connection = world.open();
        let mut said = vec![
            world.append(connection, name, None, 1),
            world.flush(name, 0),
            world.finalize(name),
        ];
        let got = world.get(name, 99);
        said.push(world.unary(got, |_| "found".to_owned()));
        for said in said {
            assert!(
                !said.is_empty() && said.len() < 20_000,
                "{}: {} bytes",
                name.len(),
                said.len()
            );
        }
    }
}

#[test]
fn a_fault_plan_that_cannot_be_meant_is_refused_by_name() {
    let refused = |json: &str| FaultPlan::parse(json).unwrap_err().to_string();
    let rule = |text: &str| format!(r#"{{"rules": [{{"rpc": "FlushRows", {text}}}]}}"#);
    assert_eq!(
        refused(&rule(r#""action": {"kind": "explode"}"#)),
        "fault rule 0: action: unknown variant `explode`, expected one of `refuse`, `row_errors`, `end`, `reset`, \
         `lose_answer`, `apply_late`, `apply_twice`, `go_away`, `delay`, `stall`, `slow`, `expire_stream`, \
         `recreate_table`, `stale_end`, `updated_schema`"
    );
    assert_eq!(
        refused(&rule(
            r#""occurrence": {"nth": 1, "every": 2}, "action": {"kind": "delay", "ms": 1}"#
        )),
        "fault rule 0: occurrence: `nth` stands alone, without `from`, `every` or `times`"
    );
    assert_eq!(
        refused(&rule(
            r#""occurrence": {"nth": 0}, "action": {"kind": "delay", "ms": 1}"#
        )),
        "fault rule 0: occurrence: calls are counted from 1: `nth`, `from` and `every` cannot be 0"
    );
    assert_eq!(
        refused(&rule(
            r#""action": {"kind": "refuse", "code": "ABORTED", "storage_error": "X"}"#
        )),
        "fault rule 0: action: storage_error: \"X\" is no StorageErrorCode"
    );
}
