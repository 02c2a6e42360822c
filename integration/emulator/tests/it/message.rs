//! Protobuf descriptors and messages, made by hand: by Google's description of the wire, not by the emulator's code.

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::schema::{Column, Kind, Mode};
use bigquery_write_proto::wire::append_rows_request::{ProtoData, Rows};
use bigquery_write_proto::wire::{AppendRowsRequest, ProtoRows, ProtoSchema};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto};

use crate::world::World;

/// The default stream of [`append`]'s table.
pub(crate) const STREAM: &str = "projects/p/datasets/d/tables/w/streams/_default";

pub(crate) fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        ..DescriptorProto::default()
    }
}

pub(crate) fn optional(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        ..FieldDescriptorProto::default()
    }
}

pub(crate) fn repeated(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..optional(name, number, kind)
    }
}

pub(crate) fn required(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Required as i32),
        ..optional(name, number, kind)
    }
}

pub(crate) fn with_default(field: FieldDescriptorProto, text: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        default_value: Some(text.to_owned()),
        ..field
    }
}

/// A field of a message or enum type.
pub(crate) fn typed(name: &str, number: i32, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        type_name: Some(type_name.to_owned()),
        ..optional(name, number, kind)
    }
}

pub(crate) fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values
            .iter()
            .map(|(name, number)| EnumValueDescriptorProto {
                name: Some((*name).to_owned()),
                number: Some(*number),
                options: None,
            })
            .collect(),
        ..EnumDescriptorProto::default()
    }
}

/// A varint field.
pub(crate) fn varint(number: u32, value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, u64::from(number << 3));
    put_varint(&mut bytes, value as u64);
    bytes
}

/// A field of eight bytes.
pub(crate) fn fixed64(number: u32, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, u64::from(number << 3 | 1));
    bytes.extend(value.to_le_bytes());
    bytes
}

/// A field of four bytes.
pub(crate) fn fixed32(number: u32, value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, u64::from(number << 3 | 5));
    bytes.extend(value.to_le_bytes());
    bytes
}

/// A field with a length: text, bytes, a message, a packed list.
pub(crate) fn bytes(number: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let mut bytes = Vec::new();
    put_varint(&mut bytes, u64::from(number << 3 | 2));
    put_varint(&mut bytes, value.len() as u64);
    bytes.extend(value);
    bytes
}

/// Varints in a row, as a packed field holds them.
pub(crate) fn packed(values: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        put_varint(&mut bytes, *value as u64);
    }
    bytes
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A whole request.
pub(crate) fn proto_request(
    stream: &str,
    offset: Option<i64>,
    descriptor: Option<&DescriptorProto>,
    rows: Vec<Vec<u8>>,
) -> AppendRowsRequest {
    raw_proto_request(stream, offset, descriptor.map(Message::encode_to_vec), rows)
}

pub(crate) fn raw_proto_request(
    stream: &str,
    offset: Option<i64>,
    descriptor: Option<Vec<u8>>,
    rows: Vec<Vec<u8>>,
) -> AppendRowsRequest {
    AppendRowsRequest {
        write_stream: stream.to_owned(),
        offset,
        rows: Some(Rows::ProtoRows(ProtoData {
            writer_schema: descriptor.map(|descriptor| ProtoSchema {
                proto_descriptor: descriptor.into(),
            }),
            rows: Some(ProtoRows {
                serialized_rows: rows.into_iter().map(Into::into).collect(),
            }),
        })),
        ..AppendRowsRequest::default()
    }
}

pub(crate) fn column(name: &str, kind: Kind) -> Column {
    Column::new(name, kind, Mode::Nullable)
}

/// Appends rows to a new table; what was said, then each visible row.
pub(crate) fn append(columns: Vec<Column>, descriptor: &DescriptorProto, rows: Vec<Vec<u8>>) -> Vec<String> {
    let mut w = World::new();
    let table = w.table("w", "US", columns);
    let c = w.open();
    let mut said = vec![say(
        &mut w,
        c,
        &proto_request(STREAM, None, Some(descriptor), rows),
    )];
    said.extend(visible(&w, &table));
    said
}

/// What is said to a request, `W` for the stream of [`STREAM`] and `...` for the general text of row errors.
pub(crate) fn say(
    w: &mut World,
    on: bigquery_write_emulator::machine::ConnectionId,
    request: &AppendRowsRequest,
) -> String {
    const GENERAL: &str = "Errors found while processing rows. Please refer to the row_errors field for details. The \
                           list may not be complete because of the size limitations. Entity: W";
    w.send(on, request).replace(STREAM, "W").replace(GENERAL, "...")
}

/// Each visible row of a table.
pub(crate) fn visible(w: &World, table: &TableRef) -> Vec<String> {
    shown(&w.machine.catalog().table(table).unwrap().all_rows())
}

fn shown(rows: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let schema = rows.schema();
    let columns: Vec<_> = rows
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let cell = |row: usize, at: usize| format!("{}: {}", schema.field(at).name(), columns[at].value(row));
    let row = |row| {
        (0..columns.len())
            .map(|at| cell(row, at))
            .collect::<Vec<_>>()
            .join(", ")
    };
    (0..rows.num_rows()).map(row).collect()
}
