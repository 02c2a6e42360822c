//! What nobody means well: no panic, and no memory beyond the limit.

use prost::Message;
use prost_types::FieldDescriptorProto;
use prost_types::field_descriptor_proto::{Label, Type};

use super::encode::{Payload, bytes, enumeration, message, optional, repeated, typed};
use super::random::{Random, Table};
use super::read_with;
use crate::machine::Switches;
use crate::rows::proto::descriptor::Descriptor;
use crate::rows::{Memory, RowErrors};
use crate::schema::{Column, Kind, Mode};

const STRING: Kind = Kind::String { max_length: None };

/// Reads rows with a limit of 100,000 bytes, and says why they were not.
fn limited(descriptor: &prost_types::DescriptorProto, columns: &[Column], rows: Vec<Vec<u8>>) -> String {
    let switches = Switches {
        max_decoded_bytes: 100_000,
        ..Switches::default()
    };
    let descriptor = Descriptor::read(&descriptor.encode_to_vec(), &switches).unwrap();
    read_with(&descriptor, columns, rows, &switches)
        .unwrap_err()
        .to_string()
}

#[test]
fn few_bytes_do_not_become_many() {
    const TOO_LARGE: &str = "Memory error: the rows take more than 100000 bytes of memory when they are read; send fewer in one request";
    // A default value of 10,000 bytes in rows of none.
    let long = "x".repeat(10_000);
    let default = FieldDescriptorProto {
        default_value: Some(long),
        ..optional("s", 1, Type::String)
    };
    let text = [Column::new("s", STRING, Mode::Nullable)];
    assert_eq!(
        limited(&message("Row", vec![default]), &text, vec![Vec::new(); 20]),
        TOO_LARGE
    );
    // An enum's name of 2,000 bytes for each byte of a packed field.
    let mut names = message(
        "Row",
        vec![FieldDescriptorProto {
            label: Some(Label::Repeated as i32),
            ..typed("s", 1, Type::Enum, "E")
        }],
    );
    names.enum_type.push(enumeration("E", &[(&"X".repeat(2_000), 1)]));
    let many = [Column::new("s", STRING, Mode::Repeated)];
    assert_eq!(limited(&names, &many, vec![bytes(1, [1; 100])]), TOO_LARGE);
    // Empty messages of many columns.
    let inner: Vec<Column> = (0..100)
        .map(|at| Column::new(format!("c{at}"), Kind::Int64, Mode::Nullable))
        .collect();
    let fields = (0..100).map(|at| optional(&format!("c{at}"), at + 1, Type::Int64));
    let mut wide = message(
        "Row",
        vec![FieldDescriptorProto {
            label: Some(Label::Repeated as i32),
            ..typed("s", 1, Type::Message, "S")
        }],
    );
    wide.nested_type.push(message("S", fields.collect()));
    let structs = [Column::new("s", Kind::Struct(inner), Mode::Repeated)];
    assert_eq!(limited(&wide, &structs, vec![b"\x0a\x00".repeat(100)]), TOO_LARGE);
    // Small numbers, packed.
    let numbers = message("Row", vec![repeated("n", 1, Type::Int64)]);
    let ints = [Column::new("n", Kind::Int64, Mode::Repeated)];
    assert_eq!(
        limited(&numbers, &ints, vec![bytes(1, vec![1; 10_000])]),
        TOO_LARGE
    );
}

#[test]
fn thousands_of_damaged_descriptors_and_rows_are_refused_or_read_and_never_a_panic() {
    let switches = Switches {
        max_decoded_bytes: 10 << 20,
        ..Switches::default()
    };
    let (mut unread, mut unfit, mut bad, mut good) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let table = Table::new(&mut random);
        let columns = table.columns();
        let descriptor = table.descriptor().encode_to_vec();
        let rows: Vec<Vec<u8>> = (0..3).map(|_| table.row(&mut random).1).collect();
        for _ in 0..20 {
            let (mut descriptor, mut rows) = (descriptor.clone(), rows.clone());
            if random.below(2) == 0 {
                damage(&mut random, &mut descriptor);
            }
            let at = random.below(rows.len());
            damage(&mut random, &mut rows[at]);
            let Ok(read) = Descriptor::read(&descriptor, &switches) else {
                unread += 1;
                continue;
            };
            let rows: Vec<_> = rows.into_iter().map(Into::into).collect();
            let (memory, mut errors) = (Memory::of(&switches), RowErrors::default());
            match super::super::read(&read, &rows, &columns, &[], &switches, &memory, &mut errors) {
                Err(_) => unfit += 1,
                Ok(_) if !errors.is_empty() => bad += 1,
                Ok(_) => good += 1,
            }
        }
    }
    for (what, count) in [("unread", unread), ("unfit", unfit), ("bad", bad), ("good", good)] {
        assert!(
            count > 50,
            "{what}: {unread} unread, {unfit} unfit, {bad} bad, {good} good"
        );
    }
}

/// Flips, cuts, doubles and puts in bytes, and such as lengths and tags are made of.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(6) / 5 {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                let end = at + random.below(bytes.len() + 1 - at);
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => {
                let mut varint = Vec::new();
                Payload::Varint(random.next() >> random.below(64)).put(&mut varint);
                bytes.splice(at..at, varint);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
}
