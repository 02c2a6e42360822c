//! Sizes in both formats: what is measured before a request exists is what the request takes.

#![allow(clippy::unwrap_used)] // helpers are tests too

mod common;

use std::sync::Arc;

use arrow_array::{Int64Array, ListArray, RecordBatch, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use bigquery_write_proto::rows::{
    EncodeError, EncodedRows, Format, MeasuredRows, RowEncoder, Wire, WriterSchema,
};
use bigquery_write_proto::wire::append_rows_request::Rows;
use bigquery_write_proto::wire::table_field_schema::Type;
use common::{TRUNCATE, column, repeated, required, schema, table};
use proptest::prelude::*;
use prost::Message as _;

/// An encoder for `id`, `name` and `tags`, and its rows in one format.
fn world(format: Format) -> (RowEncoder, Wire) {
    let columns = schema(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("tags", DataType::new_list(DataType::Int64, false), true),
    ]);
    let table = table(vec![
        required(column("id", Type::Int64)),
        column("name", Type::String),
        repeated(column("tags", Type::Int64)),
    ]);
    let encoder = RowEncoder::new(&columns, &table, TRUNCATE).unwrap();
    let wire = Wire::new(format, &encoder, &table).unwrap();
    (encoder, wire)
}

/// Rows of an id, a name's length, and tags.
fn rows(rows: &[(i64, Option<usize>, Vec<i64>)]) -> RecordBatch {
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let names = StringArray::from_iter(rows.iter().map(|row| row.1.map(|len| "n".repeat(len))));
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.2.len()));
    let tags = Int64Array::from_iter_values(rows.iter().flat_map(|row| row.2.iter().copied()));
    let item = Arc::new(Field::new_list_field(DataType::Int64, false));
    let tags = ListArray::new(item, offsets, Arc::new(tags), None);
    let columns = schema(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("tags", DataType::new_list(DataType::Int64, false), true),
    ]);
    RecordBatch::try_new(columns, vec![Arc::new(ids), Arc::new(names), Arc::new(tags)]).unwrap()
}

/// Bytes of the message that holds a request's rows.
fn in_request(rows: EncodedRows) -> usize {
    match rows.into_request(None) {
        Rows::ProtoRows(data) => data.rows.unwrap().encoded_len(),
        Rows::ArrowRows(data) => data.rows.unwrap().serialized_record_batch.len(),
    }
}

fn messages(rows: EncodedRows) -> Vec<Vec<u8>> {
    match rows.into_request(None) {
        Rows::ProtoRows(data) => {
            let rows = data.rows.unwrap().serialized_rows;
            rows.iter().map(|row| row.to_vec()).collect()
        }
        Rows::ArrowRows(_) => panic!("Arrow rows of a protobuf encoder"),
    }
}

fn any_rows() -> impl Strategy<Value = Vec<(i64, Option<usize>, Vec<i64>)>> {
    let name = prop_oneof![Just(None), (0_usize..300).prop_map(Some)];
    let tags = proptest::collection::vec(any::<i64>(), 0..4);
    proptest::collection::vec((any::<i64>(), name, tags), 0..40)
}

proptest! {
    #[test]
    fn what_was_measured_is_what_is_sent(all in any_rows(), cut in 0_usize..40, room in 0_usize..4_000) {
        for format in [Format::Arrow, Format::Proto] {
            let (encoder, wire) = world(format);
            let measured = wire.measure(encoder.convert(&rows(&all)).unwrap().batch).unwrap();
            let whole = wire.encode(std::slice::from_ref(&measured)).unwrap();
            prop_assert_eq!(whole.bytes(), in_request(whole.clone()));
            let (first, second) = measured.split_at(cut);
            prop_assert_eq!(first.num_rows(), cut.min(all.len()));
            prop_assert_eq!(first.num_rows() + second.num_rows(), all.len());
            prop_assert_eq!(wire.encode(&[first.clone(), second.clone()]).unwrap(), whole.clone());
            let joined = wire.join(&[first.clone(), second.clone()]).unwrap();
            prop_assert_eq!(joined.bytes(), measured.bytes());
            for part in [&measured, &first, &second] {
                let sent = wire.encode(std::slice::from_ref(part)).unwrap().bytes();
                let told = part.bytes() + wire.overhead();
                match format {
                    Format::Proto => prop_assert_eq!(sent, told),
                    Format::Arrow => prop_assert!(sent <= told && told <= sent + 400, "{} {}", sent, told),
                }
                let fitting = part.fitting(room);
                let upto = |rows: usize| part.split_at(rows).0.bytes();
                prop_assert!(fitting == 0 || upto(fitting) <= room);
                prop_assert!(fitting == part.num_rows() || upto(fitting + 1) > room);
            }
        }
    }
}

#[test]
fn tiny_rows_are_counted_with_what_stands_before_each() {
    // reports.md 73: five million rows of six bytes each, two of which say where a row begins.
    let (encoder, wire) = world(Format::Proto);
    let batch = encoder
        .convert(&rows(&[(1, Some(0), vec![]), (1, None, vec![1; 200])]))
        .unwrap();
    let measured = wire.measure(batch.batch).unwrap();
    // 0801 1200, and 0801 1ac801 with 200 bytes; the second row's length takes two bytes.
    assert_eq!(measured.bytes(), (2 + 4) + (3 + 2 + 3 + 200));
    assert_eq!(measured.split_at(1).0.bytes(), 6);
    assert_eq!([5, 6, 213, 214].map(|room| measured.fitting(room)), [0, 1, 1, 2]);
    assert_eq!(wire.overhead(), 0);
}

#[test]
fn rows_are_messages_and_a_first_request_describes_them() {
    let (encoder, wire) = world(Format::Proto);
    let batch = encoder
        .convert(&rows(&[(0, Some(2), vec![1, 2]), (7, None, vec![])]))
        .unwrap();
    let encoded = wire.encode(&[wire.measure(batch.batch).unwrap()]).unwrap();
    let expected = [&b"\x08\x00\x12\x02nn\x1a\x02\x01\x02"[..], b"\x08\x07"];
    assert_eq!(messages(encoded.clone()), expected);
    let WriterSchema::Proto(descriptor) = wire.writer_schema() else {
        panic!("{:?}", wire.writer_schema())
    };
    let Rows::ProtoRows(data) = encoded.into_request(Some(wire.writer_schema())) else {
        panic!("not protobuf")
    };
    assert_eq!(data.writer_schema.unwrap().proto_descriptor, descriptor);

    let (encoder, wire) = world(Format::Arrow);
    let batch = encoder.convert(&rows(&[(0, Some(2), vec![])])).unwrap().batch;
    let encoded = wire.encode(&[wire.measure(batch.clone()).unwrap()]).unwrap();
    assert_eq!(
        wire.writer_schema(),
        WriterSchema::Arrow(encoder.writer_schema().clone())
    );
    assert_eq!(encoded, EncodedRows::Arrow(encoder.encode(&batch).unwrap()));
    let Rows::ArrowRows(data) = encoded.into_request(Some(wire.writer_schema())) else {
        panic!("not Arrow")
    };
    assert_eq!(
        &data.writer_schema.unwrap().serialized_schema,
        encoder.writer_schema()
    );
}

#[test]
fn rows_that_were_not_converted_are_not_measured() {
    for format in [Format::Arrow, Format::Proto] {
        let (_, wire) = world(format);
        let columns = schema(vec![Field::new("id", DataType::Int64, true)]);
        let other = RecordBatch::try_new(columns, vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
        let refused: Result<MeasuredRows, EncodeError> = wire.measure(other);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "the batch is not under the writer schema; convert it first"
        );
    }
}

#[test]
fn rows_that_are_too_large_for_any_request_are_found_wherever_they_stand() {
    for (format, alone) in [(Format::Arrow, 0), (Format::Proto, 1)] {
        let (encoder, wire) = world(format);
        let batch = rows(&[1, 5_000, 0, 6_000, 1].map(|length| (7, Some(length), vec![])));
        let measured = wire.measure(encoder.convert(&batch).unwrap().batch).unwrap();
        let over = |rows: &MeasuredRows, limit: usize| -> Vec<usize> {
            rows.rows_over(limit).into_iter().map(|(row, _)| row).collect()
        };
        assert_eq!(over(&measured, 5_000), [1, 3], "{format:?}");
        assert_eq!(over(&measured, 5_900), [3], "{format:?}");
        assert_eq!(over(&measured, 20_000), [0; 0], "{format:?}");
        assert_eq!(over(&measured.split_at(2).1, 5_000), [1], "of a part");
        // The limit itself fits.
        let (row, bytes) = measured.rows_over(5_900)[0];
        assert_eq!(
            (row, over(&measured, bytes).len(), over(&measured, bytes - 1)),
            (3, 0, vec![3])
        );
        let largest = wire
            .encode(&[measured.split_at(3).1.split_at(1).0])
            .unwrap()
            .bytes();
        assert!(
            largest <= bytes && (alone == 0 || largest == bytes),
            "{format:?}: {largest} of {bytes}"
        );
    }
}

#[test]
fn rows_that_were_written_are_cut_in_two_as_if_they_had_been_written_so() {
    for format in [Format::Arrow, Format::Proto] {
        let (encoder, wire) = world(format);
        for count in [2, 3, 8] {
            let all: Vec<_> = (0..count)
                .map(|id| (id, (id % 3 > 0).then_some(7), vec![id; 2]))
                .collect();
            let measured = wire.measure(encoder.convert(&rows(&all)).unwrap().batch).unwrap();
            let (front, behind) = measured.split_at(all.len() / 2);
            let written = |rows: MeasuredRows| wire.encode(&[rows]).unwrap();
            let (first, second) = wire.halve(&written(measured)).unwrap();
            assert_eq!((first, second), (written(front), written(behind)), "{format:?}");
        }
    }
}

#[test]
fn rows_that_are_taken_out_leave_the_others_as_they_were() {
    let tags = |row: i64| (0..row).collect();
    let all: Vec<_> = (0..7).map(|row| (row, Some(10), tags(row))).collect();
    for format in [Format::Arrow, Format::Proto] {
        let (encoder, wire) = world(format);
        let measured = |rows_of: &[_]| {
            let converted = encoder.convert(&rows(rows_of)).unwrap().batch;
            wire.measure(converted).unwrap()
        };
        let whole = wire.join(&[measured(&all[..3]), measured(&all[3..])]).unwrap();
        for out in [
            &[][..],
            &[0],
            &[6],
            &[0, 1, 2],
            &[2, 3],
            &[1, 4, 6],
            &[0, 1, 2, 3, 4, 5, 6],
        ] {
            let left = (0..).zip(&all).filter(|(row, _)| !out.contains(row));
            let left = measured(&left.map(|(_, row)| row.clone()).collect::<Vec<_>>());
            let without = whole.without(out).unwrap();
            assert_eq!(without.num_rows(), 7 - out.len());
            assert_eq!(
                (without.batch(), without.bytes()),
                (left.batch(), left.bytes()),
                "{out:?}"
            );
            assert_eq!(
                wire.encode(&[without]).unwrap(),
                wire.encode(&[left]).unwrap(),
                "{out:?}"
            );
        }
        let error = whole.without(&[7]).unwrap_err().to_string();
        assert!(error.ends_with("there is no row 7"), "{error}");
    }
}

#[test]
fn rows_that_are_written_do_without_what_they_were_written_from() {
    let all: Vec<_> = (0..100).map(|row| (row, None, Vec::new())).collect();
    for format in [Format::Arrow, Format::Proto] {
        let (encoder, wire) = world(format);
        let converted = encoder.convert(&rows(&all)).unwrap().batch;
        let column = Arc::downgrade(converted.column(0));
        let measured = wire.measure(converted).unwrap();
        let request = wire.encode(std::slice::from_ref(&measured)).unwrap();
        if format == Format::Proto {
            // 100 integers and the offsets of 100 texts and lists at least, where two bytes are written of an integer.
            assert!(
                (1_600..3_200).contains(&measured.kept_bytes()),
                "{}",
                measured.kept_bytes()
            );
            assert!(measured.bytes() < 500);
        }
        let written = measured.without_batch();
        assert_eq!(written.kept_bytes(), 0);
        assert_eq!(column.upgrade().is_none(), format == Format::Proto);
        let (first, second) = written.split_at(40);
        assert_eq!((first.num_rows(), second.num_rows()), (40, 60));
        assert_eq!(wire.encode(&[first.clone(), second.clone()]).unwrap(), request);
        let joined = wire.join(&[first, second]).unwrap();
        assert_eq!(joined.num_rows(), 100);
        assert_eq!(wire.encode(&[joined]).unwrap(), request);
    }
}
