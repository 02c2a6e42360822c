//! A descriptor as its bytes have it: names as they stand there, nothing resolved, nothing believed.
//!
//! Read without `prost_types`, which drops the extension that says what column a field goes to (write-api.md 1.2),
//! and which makes hundreds of bytes out of each two of a hostile descriptor.

use super::wire::{Reader, Value, WireError};

/// Fields, types and enum values in one descriptor; a table has at most 10,000 columns (write-api.md 4).
const MAX_ELEMENTS: usize = 100_000;
/// Types within types, as protobuf itself limits them.
const MAX_NESTING: usize = 32;
/// Bytes of one name: the placeholder for the longest column name has some 1,600.
pub(super) const MAX_NAME: usize = 2_000;
/// `google.cloud.bigquery.storage.v1.column_name` in `FieldOptions` (write-api.md 1.2).
const COLUMN_NAME: u32 = 454_943_157;

/// All messages and enums, the root first, each behind the one it stands in.
#[derive(Debug, Default)]
pub(super) struct Source<'a> {
    pub(super) messages: Vec<MessageSource<'a>>,
    pub(super) enums: Vec<EnumSource<'a>>,
    elements: usize,
}

/// A `DescriptorProto`.
#[derive(Debug, Default)]
pub(super) struct MessageSource<'a> {
    pub(super) name: Option<&'a str>,
    /// The message it stands in.
    pub(super) parent: Option<usize>,
    pub(super) fields: Vec<FieldSource<'a>>,
    pub(super) has_extensions: bool,
    pub(super) has_oneofs: bool,
}

/// A `FieldDescriptorProto`.
#[derive(Debug, Default)]
pub(super) struct FieldSource<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) number: Option<i32>,
    pub(super) label: Option<i32>,
    pub(super) kind: Option<i32>,
    pub(super) type_name: Option<&'a str>,
    pub(super) default: Option<&'a str>,
    pub(super) column_name: Option<&'a str>,
    pub(super) is_extension: bool,
    pub(super) in_oneof: bool,
    pub(super) proto3_optional: bool,
}

/// An `EnumDescriptorProto`.
#[derive(Debug, Default)]
pub(super) struct EnumSource<'a> {
    pub(super) name: Option<&'a str>,
    /// The message it stands in.
    pub(super) parent: usize,
    pub(super) values: Vec<(Option<&'a str>, i32)>,
}

/// Why bytes are no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceError {
    #[error("the descriptor is no protobuf message: {0}")]
    Wire(#[from] WireError),
    #[error("the descriptor has text that is not UTF-8")]
    Text,
    #[error("the descriptor has more than {MAX_ELEMENTS} fields, types and enum values")]
    TooLarge,
    #[error("the descriptor has a name of more than {MAX_NAME} bytes")]
    Name,
    #[error("the descriptor has types nested more than {MAX_NESTING} deep")]
    TooDeep,
}

impl<'a> Source<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, SourceError> {
        let mut source = Self::default();
        source.message(bytes, None, 1)?;
        Ok(source)
    }

    fn message(&mut self, bytes: &'a [u8], parent: Option<usize>, depth: usize) -> Result<(), SourceError> {
        if depth > MAX_NESTING {
            return Err(SourceError::TooDeep);
        }
        self.count()?;
        let at = self.messages.len();
        self.messages.push(MessageSource {
            parent,
            ..MessageSource::default()
        });
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (1, Value::Bytes(name)) => self.messages[at].name = Some(name_of(name)?),
                (2, Value::Bytes(field)) => {
                    self.count()?;
                    let field = read_field(field)?;
                    self.messages[at].fields.push(field);
                }
                (3, Value::Bytes(nested)) => self.message(nested, Some(at), depth + 1)?,
                (4, Value::Bytes(nested)) => self.enumeration(nested, at)?,
                (6, Value::Bytes(_)) => self.messages[at].has_extensions = true,
                (8, Value::Bytes(_)) => self.messages[at].has_oneofs = true,
                // Options, extension ranges, reserved names: nothing that rows depend on.
                _ => {}
            }
        }
        Ok(())
    }

    fn enumeration(&mut self, bytes: &'a [u8], parent: usize) -> Result<(), SourceError> {
        self.count()?;
        let mut into = EnumSource {
            parent,
            ..EnumSource::default()
        };
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (1, Value::Bytes(name)) => into.name = Some(name_of(name)?),
                (2, Value::Bytes(value)) => {
                    self.count()?;
                    into.values.push(read_enum_value(value)?);
                }
                _ => {}
            }
        }
        self.enums.push(into);
        Ok(())
    }

    fn count(&mut self) -> Result<(), SourceError> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(SourceError::TooLarge);
        }
        Ok(())
    }
}

fn read_field(bytes: &[u8]) -> Result<FieldSource<'_>, SourceError> {
    let mut field = FieldSource::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Value::Bytes(name)) => field.name = Some(name_of(name)?),
            (2, Value::Bytes(_)) => field.is_extension = true,
            // An int32 is the lower half of its varint.
            (3, Value::Varint(number)) => field.number = Some(number as i32),
            (4, Value::Varint(label)) => field.label = Some(label as i32),
            (5, Value::Varint(kind)) => field.kind = Some(kind as i32),
            (6, Value::Bytes(name)) => field.type_name = Some(text(name)?),
            (7, Value::Bytes(default)) => field.default = Some(text(default)?),
            (8, Value::Bytes(options)) => {
                let mut options = Reader::new(options);
                while let Some((number, value)) = options.field()? {
                    if let (COLUMN_NAME, Value::Bytes(name)) = (number, value) {
                        field.column_name = Some(name_of(name)?);
                    }
                }
            }
            (9, Value::Varint(_)) => field.in_oneof = true,
            (17, Value::Varint(set)) => field.proto3_optional = set != 0,
            _ => {}
        }
    }
    Ok(field)
}

fn read_enum_value(bytes: &[u8]) -> Result<(Option<&str>, i32), SourceError> {
    let mut read = (None, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Value::Bytes(name)) => read.0 = Some(name_of(name)?),
            (2, Value::Varint(number)) => read.1 = number as i32,
            _ => {}
        }
    }
    Ok(read)
}

/// Long names are refused at once: dotted ones are made of many.
fn name_of(bytes: &[u8]) -> Result<&str, SourceError> {
    if bytes.len() > MAX_NAME {
        return Err(SourceError::Name);
    }
    text(bytes)
}

fn text(bytes: &[u8]) -> Result<&str, SourceError> {
    std::str::from_utf8(bytes).map_err(|_| SourceError::Text)
}
