//! Reads Arrow IPC messages: an encapsulated Schema, an encapsulated RecordBatch without one (write-api.md 5.5).
//!
//! Written over the flatbuffer verifier rather than arrow's own stream reader, which takes a trusted stream and
//! panics on some malformed ones; here every length is checked before it is used.

use std::io::Read;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_ipc::{self as ipc, MessageHeader};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use bytes::Bytes;
use lz4_flex::frame::FrameDecoder;

use super::Memory;

/// Nesting that BigQuery allows, and that our recursion is limited to: 15 STRUCTs, each an element of an array, and an array in the
/// last of them.
const MAX_DEPTH: usize = 2 * 15 + 1;

/// A message that is not what it should be; the text says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct IpcError(String);

/// Columns of a RecordBatch message, all of the same length.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) arrays: Vec<ArrayRef>,
    pub(crate) rows: usize,
}

/// Reads a schema message. The fields come back nullable, whatever they declare, and whatever they may declare: nulls
/// are judged by the table.
pub(crate) fn read_schema(bytes: &Bytes, non_nullable: bool) -> Result<Fields, IpcError> {
    let (meta, body) = split(bytes, "writer schema")?;
    let message = parse(&meta, "writer schema")?;
    let Some(schema) = message.header_as_schema() else {
        let found = message.header_type();
        return fail(format!(
            "the writer schema is not an Arrow Schema message but {}",
            name_of(found)
        ));
    };
    if !body.is_empty() {
        return fail(format!("{} bytes follow the Arrow schema message", body.len()));
    }
    if schema.endianness() != ipc::Endianness::Little {
        return fail("the Arrow schema is big-endian");
    }
    let fields = match schema.fields() {
        Some(fields) if !fields.is_empty() => fields,
        _ => return fail("the Arrow schema has no fields"),
    };
    if let Some(field) = fields.iter().find(|field| !field.nullable() && !non_nullable) {
        return fail(format!(
            "field {:?} is not nullable",
            field.name().unwrap_or_default()
        ));
    }
    fields.iter().map(|field| read_field(field, 0)).collect()
}

/// What follows a schema message; everything if there is none.
pub(crate) fn after_schema(bytes: &Bytes) -> Bytes {
    match split(bytes, "record batch") {
        Ok((meta, rest)) if parse(&meta, "record batch").is_ok_and(|it| it.header_as_schema().is_some()) => {
            rest
        }
        _ => bytes.clone(),
    }
}

/// How many rows a RecordBatch message says it has.
pub(crate) fn count_rows(bytes: &Bytes) -> Result<u64, IpcError> {
    let (meta, _) = split(bytes, "record batch")?;
    let message = parse(&meta, "record batch")?;
    let rows = message.header_as_record_batch().map_or(0, |batch| batch.length());
    Ok(length(rows)? as u64)
}

/// Reads a RecordBatch message under the schema given before; a compressed one if it `inflates`.
pub(crate) fn read_batch(
    bytes: &Bytes,
    fields: &Fields,
    inflates: bool,
    memory: &Memory,
) -> Result<Columns, IpcError> {
    let (meta, body) = split(bytes, "record batch")?;
    let message = parse(&meta, "record batch")?;
    let Some(batch) = message.header_as_record_batch() else {
        let found = name_of(message.header_type());
        return fail(format!(
            "the rows are not one Arrow RecordBatch message but begin with {found}; an IPC stream is not accepted"
        ));
    };
    if i64::try_from(body.len()) != Ok(message.bodyLength()) {
        return fail(format!(
            "the Arrow record batch declares a body of {} bytes, but {} follow",
            message.bodyLength(),
            body.len()
        ));
    }
    if let Some(compression) = batch.compression() {
        if !inflates {
            return fail("the Arrow record batch is compressed");
        }
        if compression.codec() != ipc::CompressionType::LZ4_FRAME {
            return fail("the Arrow record batch is compressed otherwise than by LZ4, which cannot be read");
        }
    }
    let rows = length(batch.length())?;
    let mut walk = Walk {
        nodes: batch.nodes().into_iter().flatten(),
        buffers: batch.buffers().into_iter().flatten(),
        variadic: batch.variadicBufferCounts().into_iter().flatten(),
        unread: body.len(),
        body: Buffer::from(body),
        compressed: batch.compression().is_some(),
        memory,
    };
    let mut arrays = Vec::with_capacity(fields.len());
    for field in fields {
        let array = walk.array(field)?;
        if array.len() != rows {
            return fail(format!(
                "field {:?} has {} values in {rows} rows",
                field.name(),
                array.len()
            ));
        }
        arrays.push(array);
    }
    let more = walk.nodes.next().is_some() || walk.buffers.next().is_some();
    if more || walk.variadic.next().is_some() {
        return fail("the Arrow record batch has more columns than its schema");
    }
    Ok(Columns { arrays, rows })
}

/// Takes an encapsulated message apart: continuation marker, length of the metadata, metadata, body.
fn split(bytes: &Bytes, what: &str) -> Result<(Vec<u8>, Bytes), IpcError> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|word| <[u8; 4]>::try_from(word).ok())
    };
    let (Some(marker), Some(size)) = (word(0), word(4)) else {
        return fail(format!(
            "the {what} is no Arrow IPC message: it has {} bytes",
            bytes.len()
        ));
    };
    if marker != [0xff; 4] {
        return fail(format!("the {what} is no encapsulated Arrow IPC message"));
    }
    let end = usize::try_from(i32::from_le_bytes(size))
        .ok()
        .and_then(|size| size.checked_add(8));
    match end {
        // The metadata is copied, so that the flatbuffer is aligned wherever it stood in the request.
        Some(end) if end > 8 && end <= bytes.len() => Ok((bytes[8..end].to_vec(), bytes.slice(end..))),
        _ => fail(format!("the {what} is cut short, or an empty Arrow IPC message")),
    }
}

fn parse<'a>(meta: &'a [u8], what: &str) -> Result<ipc::Message<'a>, IpcError> {
    let message = ipc::root_as_message(meta)
        .map_err(|_| IpcError(format!("the {what} is no valid Arrow IPC message")))?;
    match message.version() {
        ipc::MetadataVersion::V4 | ipc::MetadataVersion::V5 => Ok(message),
        version => fail(format!("the {what} has Arrow metadata version {}", version.0)),
    }
}

fn read_field(field: ipc::Field<'_>, depth: usize) -> Result<FieldRef, IpcError> {
    let name = field.name().unwrap_or_default().to_owned();
    if field.dictionary().is_some() {
        return fail(format!(
            "field {name:?} is dictionary-encoded, which is not supported"
        ));
    }
    if depth > MAX_DEPTH {
        return fail(format!("field {name:?} is nested more than {MAX_DEPTH} deep"));
    }
    match read_type(field, depth)? {
        Some(kind) => Ok(Arc::new(Field::new(name, kind, true))),
        None => {
            let kind = field.type_type().variant_name().unwrap_or("unknown");
            fail(format!(
                "field {name:?} has an Arrow type that is not supported: {kind}"
            ))
        }
    }
}

/// `None` for a type that no column takes.
fn read_type(field: ipc::Field<'_>, depth: usize) -> Result<Option<DataType>, IpcError> {
    let unit = |unit: ipc::TimeUnit| match unit {
        ipc::TimeUnit::SECOND => Some(TimeUnit::Second),
        ipc::TimeUnit::MILLISECOND => Some(TimeUnit::Millisecond),
        ipc::TimeUnit::MICROSECOND => Some(TimeUnit::Microsecond),
        ipc::TimeUnit::NANOSECOND => Some(TimeUnit::Nanosecond),
        _ => None,
    };
    Ok(match field.type_type() {
        ipc::Type::Bool => Some(DataType::Boolean),
        ipc::Type::Int => field
            .type_as_int()
            .and_then(|int| match (int.bitWidth(), int.is_signed()) {
                (8, true) => Some(DataType::Int8),
                (16, true) => Some(DataType::Int16),
                (32, true) => Some(DataType::Int32),
                (64, true) => Some(DataType::Int64),
                (8, false) => Some(DataType::UInt8),
                (16, false) => Some(DataType::UInt16),
                (32, false) => Some(DataType::UInt32),
                (64, false) => Some(DataType::UInt64),
                _ => None,
            }),
        ipc::Type::FloatingPoint => {
            field
                .type_as_floating_point()
                .and_then(|float| match float.precision() {
                    ipc::Precision::SINGLE => Some(DataType::Float32),
                    ipc::Precision::DOUBLE => Some(DataType::Float64),
                    _ => None,
                })
        }
        ipc::Type::Decimal => field.type_as_decimal().and_then(|decimal| {
            let precision = u8::try_from(decimal.precision())
                .ok()
                .filter(|digits| *digits > 0)?;
            let scale = i8::try_from(decimal.scale()).ok()?;
            match decimal.bitWidth() {
                128 if precision <= 38 => Some(DataType::Decimal128(precision, scale)),
                256 if precision <= 76 => Some(DataType::Decimal256(precision, scale)),
                _ => None,
            }
        }),
        ipc::Type::Utf8 => Some(DataType::Utf8),
        ipc::Type::LargeUtf8 => Some(DataType::LargeUtf8),
        ipc::Type::Binary => Some(DataType::Binary),
        ipc::Type::LargeBinary => Some(DataType::LargeBinary),
        ipc::Type::Utf8View => Some(DataType::Utf8View),
        ipc::Type::BinaryView => Some(DataType::BinaryView),
        ipc::Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary().map(|binary| binary.byteWidth());
            width.filter(|width| *width > 0).map(DataType::FixedSizeBinary)
        }
        ipc::Type::Date => field.type_as_date().and_then(|date| match date.unit() {
            ipc::DateUnit::DAY => Some(DataType::Date32),
            ipc::DateUnit::MILLISECOND => Some(DataType::Date64),
            _ => None,
        }),
        ipc::Type::Time => {
            field
                .type_as_time()
                .and_then(|time| match (time.bitWidth(), unit(time.unit())?) {
                    (32, unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => Some(DataType::Time32(unit)),
                    (64, unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => {
                        Some(DataType::Time64(unit))
                    }
                    _ => None,
                })
        }
        ipc::Type::Timestamp => field.type_as_timestamp().and_then(|time| {
            Some(DataType::Timestamp(
                unit(time.unit())?,
                time.timezone().map(Into::into),
            ))
        }),
        ipc::Type::Interval => field
            .type_as_interval()
            .and_then(|interval| match interval.unit() {
                ipc::IntervalUnit::YEAR_MONTH => Some(DataType::Interval(IntervalUnit::YearMonth)),
                ipc::IntervalUnit::DAY_TIME => Some(DataType::Interval(IntervalUnit::DayTime)),
                ipc::IntervalUnit::MONTH_DAY_NANO => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
                _ => None,
            }),
        ipc::Type::List => {
            let children = field.children().filter(|children| children.len() == 1);
            match children {
                Some(children) => Some(DataType::List(read_field(children.get(0), depth + 1)?)),
                None => None,
            }
        }
        ipc::Type::Struct_ => {
            let children = field.children().filter(|children| !children.is_empty());
            let children = children
                .into_iter()
                .flatten()
                .map(|child| read_field(child, depth + 1));
            let children = children.collect::<Result<Fields, _>>()?;
            // A struct without fields would have a length that no buffer vouches for.
            (!children.is_empty()).then_some(DataType::Struct(children))
        }
        _ => None,
    })
}

/// Walks through the nodes and buffers of a batch in the order of its fields.
struct Walk<'m, N, B, V> {
    nodes: N,
    buffers: B,
    /// Of each array of views, how many buffers it has.
    variadic: V,
    body: Buffer,
    /// Bytes of the body that no buffer is made of yet, if none are in two.
    unread: usize,
    compressed: bool,
    memory: &'m Memory,
}

impl<'a, N, B, V> Walk<'_, N, B, V>
where
    N: Iterator<Item = &'a ipc::FieldNode>,
    B: Iterator<Item = &'a ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    fn array(&mut self, field: &Field) -> Result<ArrayRef, IpcError> {
        let node = self
            .nodes
            .next()
            .ok_or_else(|| IpcError(format!("field {:?} is missing", field.name())))?;
        let len = length(node.length())?;
        let validity = self.buffer(field)?;
        let nulls = match node.null_count() {
            0 => None,
            count if count < 0 || validity.len() < len.div_ceil(8) => {
                return fail(format!(
                    "the null bitmap of field {:?} is cut short",
                    field.name()
                ));
            }
            _ => Some(NullBuffer::new(BooleanBuffer::new(validity, 0, len))),
        };
        let damaged = |error: ArrowError| IpcError(format!("field {:?} is damaged: {error}", field.name()));
        let builder = match field.data_type() {
            DataType::Struct(fields) => {
                let children = fields
                    .iter()
                    .map(|child| self.array(child))
                    .collect::<Result<_, _>>()?;
                let array = StructArray::try_new(fields.clone(), children, nulls).map_err(damaged)?;
                return if array.len() == len {
                    Ok(Arc::new(array))
                } else {
                    fail(format!(
                        "field {:?} is damaged: its fields differ in length",
                        field.name()
                    ))
                };
            }
            DataType::List(item) => {
                let offsets = self.offsets(field, len, 4)?;
                arrow_data::ArrayData::builder(field.data_type().clone())
                    .add_buffer(offsets)
                    .add_child_data(self.array(item)?.to_data())
            }
            kind @ (DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary) => {
                let width = if matches!(kind, DataType::Utf8 | DataType::Binary) {
                    4
                } else {
                    8
                };
                let offsets = self.offsets(field, len, width)?;
                arrow_data::ArrayData::builder(kind.clone())
                    .add_buffer(offsets)
                    .add_buffer(self.buffer(field)?)
            }
            kind @ (DataType::Utf8View | DataType::BinaryView) => {
                let mut builder =
                    arrow_data::ArrayData::builder(kind.clone()).add_buffer(self.buffer(field)?);
                for _ in 0..self.variadic.next().unwrap_or(0) {
                    builder = builder.add_buffer(self.buffer(field)?);
                }
                builder
            }
            kind => arrow_data::ArrayData::builder(kind.clone()).add_buffer(self.buffer(field)?),
        };
        // `build` validates lengths, offsets and UTF-8; buffers out of alignment are copied.
        let data = builder
            .len(len)
            .nulls(nulls)
            .align_buffers(true)
            .build()
            .map_err(damaged)?;
        Ok(make_array(data))
    }

    /// The offsets of `len` values, cut to what belongs to them: arrow panics on a broken word at the end.
    fn offsets(&mut self, field: &Field, len: usize, width: usize) -> Result<Buffer, IpcError> {
        let buffer = self.buffer(field)?;
        let needed = (len + 1) * width;
        match buffer.len() {
            given if given >= needed => Ok(buffer.slice_with_length(0, needed)),
            // Writers may leave out the one offset of no values.
            _ if len == 0 => Ok(Buffer::from(vec![0_u8; width])),
            _ => fail(format!("the offsets of field {:?} are cut short", field.name())),
        }
    }

    fn buffer(&mut self, field: &Field) -> Result<Buffer, IpcError> {
        let place = self.buffers.next().and_then(|buffer| {
            let from = usize::try_from(buffer.offset()).ok()?;
            let len = usize::try_from(buffer.length()).ok()?;
            (from.checked_add(len)? <= self.body.len()).then_some((from, len))
        });
        let Some((from, len)) = place else {
            return fail(format!(
                "a buffer of field {:?} is missing or out of bounds",
                field.name()
            ));
        };
        // Buffers may be made of the same bytes: those of the body come once for free, and can become eight times as
        // many when they are converted.
        let again = len.saturating_sub(self.unread);
        self.unread = self.unread.saturating_sub(len);
        self.spend((again as u64).saturating_mul(8))?;
        let buffer = self.body.slice_with_length(from, len);
        if self.compressed && len > 0 {
            self.inflate(&buffer, field)
        } else {
            Ok(buffer)
        }
    }

    /// A compressed buffer begins with its length; with -1 if it is not compressed after all.
    fn inflate(&self, buffer: &Buffer, field: &Field) -> Result<Buffer, IpcError> {
        let damaged = || {
            IpcError(format!(
                "a buffer of field {:?} is no LZ4 data of its length",
                field.name()
            ))
        };
        let (length, frame) = buffer.split_first_chunk().ok_or_else(damaged)?;
        let length = i64::from_le_bytes(*length);
        if length == -1 {
            return Ok(buffer.slice(8));
        }
        let length = u64::try_from(length).map_err(|_| damaged())?;
        self.spend(length)?;
        let mut bytes = Vec::new();
        let read = FrameDecoder::new(frame)
            .take(length.saturating_add(1))
            .read_to_end(&mut bytes);
        match read {
            Ok(read) if read as u64 == length => Ok(Buffer::from(bytes)),
            _ => Err(damaged()),
        }
    }

    fn spend(&self, bytes: u64) -> Result<(), IpcError> {
        self.memory.spend(bytes).map_err(|error| match error {
            ArrowError::MemoryError(text) => IpcError(text),
            error => IpcError(error.to_string()),
        })
    }
}

/// A length that fits arrow's 32-bit offsets; more rows than that come in no request.
fn length(length: i64) -> Result<usize, IpcError> {
    i32::try_from(length)
        .ok()
        .and_then(|length| usize::try_from(length).ok())
        .ok_or_else(|| IpcError(format!("the Arrow record batch declares a length of {length}")))
}

fn name_of(header: MessageHeader) -> &'static str {
    match header {
        MessageHeader::Schema => "a Schema message",
        MessageHeader::DictionaryBatch => "a DictionaryBatch message",
        MessageHeader::RecordBatch => "a RecordBatch message",
        _ => "another message",
    }
}

fn fail<T>(text: impl Into<String>) -> Result<T, IpcError> {
    Err(IpcError(text.into()))
}
