//! The wire as Google describes it, written without the code that reads it.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto};

/// A field's value, without its tag.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
}

impl Payload {
    pub(super) fn field(&self, number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, u64::from(number << 3 | self.wire_type()));
        match self {
            Self::Bytes(bytes) => put_varint(&mut out, bytes.len() as u64),
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32(_) => {}
        }
        self.put(&mut out);
        out
    }

    /// As a packed field has it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Varint(value) => put_varint(out, *value),
            Self::Fixed64(value) => out.extend(value.to_le_bytes()),
            Self::Fixed32(value) => out.extend(value.to_le_bytes()),
            Self::Bytes(bytes) => out.extend(bytes),
        }
    }

    fn wire_type(&self) -> u32 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32(_) => 5,
        }
    }
}

pub(super) fn varint(number: u32, value: i64) -> Vec<u8> {
    Payload::Varint(value as u64).field(number)
}

pub(super) fn bytes(number: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    Payload::Bytes(value.as_ref().to_vec()).field(number)
}

/// An integer as its type has it on the wire.
pub(super) fn integer(kind: Type, value: i64) -> Payload {
    match kind {
        Type::Sint32 | Type::Sint64 => Payload::Varint(((value << 1) ^ (value >> 63)) as u64),
        Type::Fixed32 | Type::Sfixed32 => Payload::Fixed32(value as u32),
        Type::Fixed64 | Type::Sfixed64 => Payload::Fixed64(value as u64),
        _ => Payload::Varint(value as u64),
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        ..DescriptorProto::default()
    }
}

pub(super) fn optional(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        ..FieldDescriptorProto::default()
    }
}

pub(super) fn repeated(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..optional(name, number, kind)
    }
}

pub(super) fn typed(name: &str, number: i32, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        type_name: Some(type_name.to_owned()),
        ..optional(name, number, kind)
    }
}

pub(super) fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(*number),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}
