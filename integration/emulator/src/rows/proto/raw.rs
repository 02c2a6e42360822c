//! protobuf's scalars: read off the wire, or out of the text of a default value.

use super::wire::{Reader, Value, WireError};

/// A scalar type, or an enum. Messages are no scalars, and groups are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Double,
    Float,
    Int64,
    Uint64,
    Int32,
    Fixed64,
    Fixed32,
    Bool,
    String,
    Bytes,
    Uint32,
    Enum,
    Sfixed32,
    Sfixed64,
    Sint32,
    Sint64,
}

/// A value; 32-bit ones are widened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// By number.
    Enum(i32),
    /// Not yet known to be UTF-8.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// Seconds and a fraction of a second, of a message like `google.protobuf.Timestamp`.
    Seconds(i64, i64),
}

/// A [`Raw`] that owns its bytes: what a field is when a row lacks it (write-api.md 5.4).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DefaultValue {
    Number(Raw<'static>),
    Text(String),
    Bytes(Vec<u8>),
}

impl DefaultValue {
    pub(super) fn raw(&self) -> Raw<'_> {
        match self {
            Self::Number(raw) => *raw,
            Self::Text(text) => Raw::Text(text.as_bytes()),
            Self::Bytes(bytes) => Raw::Bytes(bytes),
        }
    }
}

impl Scalar {
    /// By its number in `FieldDescriptorProto.Type`.
    pub(super) fn of(kind: i32) -> Option<Self> {
        Some(match kind {
            1 => Self::Double,
            2 => Self::Float,
            3 => Self::Int64,
            4 => Self::Uint64,
            5 => Self::Int32,
            6 => Self::Fixed64,
            7 => Self::Fixed32,
            8 => Self::Bool,
            9 => Self::String,
            12 => Self::Bytes,
            13 => Self::Uint32,
            14 => Self::Enum,
            15 => Self::Sfixed32,
            16 => Self::Sfixed64,
            17 => Self::Sint32,
            18 => Self::Sint64,
            _ => return None,
        })
    }

    /// As a .proto file writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Int32 => "int32",
            Self::Fixed64 => "fixed64",
            Self::Fixed32 => "fixed32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Uint32 => "uint32",
            Self::Enum => "enum",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
        }
    }

    /// `None` if the wire has another type than this one's: then the field is an unknown one.
    pub(super) fn read(self, value: Value<'_>) -> Option<Raw<'_>> {
        Some(match (self, value) {
            (Self::String, Value::Bytes(bytes)) => Raw::Text(bytes),
            (Self::Bytes, Value::Bytes(bytes)) => Raw::Bytes(bytes),
            (_, Value::Varint(value)) => self.varint(value)?,
            (_, Value::Fixed64(value)) => self.fixed64(value)?,
            (_, Value::Fixed32(value)) => self.fixed32(value)?,
            _ => return None,
        })
    }

    /// Each value of a packed field; the type is one that packs.
    pub(super) fn unpack<'a, E: From<WireError>>(
        self,
        bytes: &'a [u8],
        mut each: impl FnMut(Raw<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = Reader::new(bytes);
        loop {
            let raw = match self {
                Self::Double | Self::Fixed64 | Self::Sfixed64 => {
                    let value = reader.packed_fixed()?.map(u64::from_le_bytes);
                    value.map(|value| self.fixed64(value))
                }
                Self::Float | Self::Fixed32 | Self::Sfixed32 => {
                    let value = reader.packed_fixed()?.map(u32::from_le_bytes);
                    value.map(|value| self.fixed32(value))
                }
                _ => reader.packed_varint()?.map(|value| self.varint(value)),
            };
            match raw {
                Some(raw) => raw.map_or(Ok(()), &mut each)?,
                None => return Ok(()),
            }
        }
    }

    /// Whether repeated values may stand in one field.
    pub(super) fn packs(self) -> bool {
        !matches!(self, Self::String | Self::Bytes)
    }

    /// 32-bit types take the lower half, as protobuf does.
    fn varint(self, value: u64) -> Option<Raw<'static>> {
        Some(match self {
            Self::Int64 => Raw::Int(value as i64),
            Self::Int32 => Raw::Int(i64::from(value as i32)),
            Self::Uint64 => Raw::Uint(value),
            Self::Uint32 => Raw::Uint(u64::from(value as u32)),
            Self::Sint64 => Raw::Int((value >> 1) as i64 ^ -((value & 1) as i64)),
            Self::Sint32 => {
                let value = value as u32;
                Raw::Int(i64::from((value >> 1) as i32 ^ -((value & 1) as i32)))
            }
            Self::Bool => Raw::Bool(value != 0),
            Self::Enum => Raw::Enum(value as i32),
            _ => return None,
        })
    }

    fn fixed64(self, value: u64) -> Option<Raw<'static>> {
        Some(match self {
            Self::Double => Raw::Double(f64::from_bits(value)),
            Self::Fixed64 => Raw::Uint(value),
            Self::Sfixed64 => Raw::Int(value as i64),
            _ => return None,
        })
    }

    fn fixed32(self, value: u32) -> Option<Raw<'static>> {
        Some(match self {
            Self::Float => Raw::Double(f64::from(f32::from_bits(value))),
            Self::Fixed32 => Raw::Uint(u64::from(value)),
            Self::Sfixed32 => Raw::Int(i64::from(value as i32)),
            _ => return None,
        })
    }

    /// What proto3 takes an absent value for.
    pub(super) fn zero(self) -> Raw<'static> {
        match self {
            Self::String => Raw::Text(b""),
            Self::Bytes => Raw::Bytes(b""),
            Self::Bool => Raw::Bool(false),
            Self::Double | Self::Float => Raw::Double(0.0),
            Self::Enum => Raw::Enum(0),
            Self::Uint32 | Self::Uint64 | Self::Fixed32 | Self::Fixed64 => Raw::Uint(0),
            _ => Raw::Int(0),
        }
    }

    /// A descriptor's `default_value`; an enum's is looked up elsewhere.
    pub(super) fn parse(self, text: &str) -> Option<DefaultValue> {
        let number = match self {
            Self::Double => Raw::Double(double(text)?),
            Self::Float => Raw::Double(f64::from(double(text)? as f32)),
            Self::Int64 | Self::Sint64 | Self::Sfixed64 => Raw::Int(text.parse().ok()?),
            Self::Int32 | Self::Sint32 | Self::Sfixed32 => Raw::Int(text.parse::<i32>().ok()?.into()),
            Self::Uint64 | Self::Fixed64 => Raw::Uint(text.parse().ok()?),
            Self::Uint32 | Self::Fixed32 => Raw::Uint(text.parse::<u32>().ok()?.into()),
            Self::Bool => Raw::Bool(text.parse().ok()?),
            Self::String => return Some(DefaultValue::Text(text.to_owned())),
            Self::Bytes => return unescape(text).map(DefaultValue::Bytes),
            Self::Enum => return None,
        };
        Some(DefaultValue::Number(number))
    }
}

fn double(text: &str) -> Option<f64> {
    match text {
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        "nan" | "-nan" => Some(f64::NAN),
        _ if text.contains(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// Undoes the C escapes in which a descriptor holds bytes.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes().peekable();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let escape = bytes.next()?;
        let (base, most) = match escape {
            b'x' | b'X' => (16, 2),
            b'0'..=b'7' => (8, 2),
            _ => {
                out.push(match escape {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'f' => 0x0c,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 0x0b,
                    b'\\' | b'\'' | b'"' | b'?' => escape,
                    _ => return None,
                });
                continue;
            }
        };
        let mut value = if base == 8 { u32::from(escape - b'0') } else { 0 };
        let mut digits = 0;
        while digits < most
            && let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(base))
        {
            value = value * base + digit;
            digits += 1;
            bytes.next();
        }
        if base == 16 && digits == 0 {
            return None;
        }
        out.push(u8::try_from(value).ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_read_as_protobuf_writes_them() {
        let read = |scalar: Scalar, value| scalar.read(value);
        assert_eq!(read(Scalar::Int32, Value::Varint(u64::MAX)), Some(Raw::Int(-1)));
        assert_eq!(
            read(Scalar::Int32, Value::Varint(0x1_0000_0001)),
            Some(Raw::Int(1))
        );
        assert_eq!(
            read(Scalar::Uint32, Value::Varint(u64::MAX)),
            Some(Raw::Uint(u32::MAX.into()))
        );
        assert_eq!(read(Scalar::Sint32, Value::Varint(1)), Some(Raw::Int(-1)));
        assert_eq!(
            read(Scalar::Sint64, Value::Varint(u64::MAX)),
            Some(Raw::Int(i64::MIN))
        );
        assert_eq!(read(Scalar::Bool, Value::Varint(2)), Some(Raw::Bool(true)));
        assert_eq!(
            read(Scalar::Float, Value::Fixed32(0x4010_0000)),
            Some(Raw::Double(2.25))
        );
        assert_eq!(
            read(Scalar::Sfixed64, Value::Fixed64(u64::MAX)),
            Some(Raw::Int(-1))
        );
        assert_eq!(read(Scalar::String, Value::Varint(1)), None);
        assert_eq!(read(Scalar::Int64, Value::Bytes(b"\x01")), None);
        assert_eq!(read(Scalar::Int64, Value::Fixed64(1)), None);
    }

    #[test]
    fn default_values_are_read_by_type() {
        let number = |raw| Some(DefaultValue::Number(raw));
        assert_eq!(Scalar::Int32.parse("-3"), number(Raw::Int(-3)));
        assert_eq!(Scalar::Int32.parse("3000000000"), None);
        assert_eq!(
            Scalar::Uint64.parse("18446744073709551615"),
            number(Raw::Uint(u64::MAX))
        );
        assert_eq!(
            Scalar::Double.parse("-inf"),
            number(Raw::Double(f64::NEG_INFINITY))
        );
        assert_eq!(Scalar::Double.parse("1.11"), number(Raw::Double(1.11)));
        assert_eq!(Scalar::Float.parse("2.22"), number(Raw::Double(2.22_f32.into())));
        assert_eq!(Scalar::Double.parse("infinity"), None);
        assert_eq!(Scalar::Bool.parse("true"), number(Raw::Bool(true)));
        assert_eq!(Scalar::Bool.parse("1"), None);
        assert_eq!(
            Scalar::Bytes.parse(r#"a\000\x41\377\n\"\\"#),
            Some(DefaultValue::Bytes(b"a\0A\xff\n\"\\".to_vec()))
        );
        for bad in [r"\", r"\x", r"\q", r"\777"] {
            assert_eq!(Scalar::Bytes.parse(bad), None, "{bad}");
        }
    }
}
