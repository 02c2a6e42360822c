//! A batch's columns bound to their fields: which values, under which tag, each of them how long and how written.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::bit_chunk_iterator::BitChunks;
use arrow_buffer::{BooleanBuffer, NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit};

use super::layout::{Field, Kind, Label, Message};
use super::output::{Output, Tag, WireType};
use super::values::{self, INTERVAL, PICOSECONDS};

/// One field of all rows, or of all elements of their lists.
#[derive(Debug)]
pub(super) struct Column<'a> {
    pub(super) tag: Tag,
    /// None if nothing is null.
    pub(super) nulls: Option<NullBuffer>,
    pub(super) values: Values<'a>,
}

#[derive(Debug)]
pub(super) enum Values<'a> {
    Scalar(Scalars<'a>),
    Message(Vec<Column<'a>>),
    /// A field for each element.
    Repeated(&'a [i32], Box<Column<'a>>),
    /// One field that holds all elements, without tags.
    Packed(&'a [i32], Box<Column<'a>>),
}

/// Values that hold no others.
#[derive(Debug)]
pub(super) enum Scalars<'a> {
    Bool(&'a BooleanBuffer),
    Int64(&'a [i64]),
    Double(&'a [f64]),
    Date(&'a [i32]),
    Time(&'a [i64]),
    Datetime(&'a [i64]),
    /// With how many there are in a second.
    Picoseconds(&'a [i64], i64),
    Interval(&'a [IntervalMonthDayNano]),
    Numeric(&'a [i128]),
    Bignumeric(&'a [i256]),
    /// At scale 37.
    WideBignumeric(&'a [i256]),
    /// Text and bytes.
    Bytes(&'a [i32], &'a [u8]),
}

/// Fields of one type: what a loop over them is compiled for.
pub(super) trait Scalar {
    fn write(&self, at: usize, output: &mut Output<'_>);
}

/// Something that is done to all fields of a column; which type they are of is asked once.
pub(super) trait Visitor {
    fn visit(self, scalar: &impl Scalar);
}

/// Binds the fields of a message to the arrays of a batch or struct; the fields of a struct that is null are null.
pub(super) fn bind<'a>(
    message: &Message,
    arrays: &'a [ArrayRef],
    outer: Option<&NullBuffer>,
) -> Vec<Column<'a>> {
    let fields = message.fields.iter().zip(arrays);
    fields
        .map(|(field, array)| Column::new(field, array, outer))
        .collect()
}

impl<'a> Column<'a> {
    fn new(field: &Field, array: &'a ArrayRef, outer: Option<&NullBuffer>) -> Self {
        let tag = Tag::new(field.number, field.kind.wire_type());
        if field.label != Label::Repeated {
            return Self::single(tag, &field.kind, array, outer);
        }
        let list = array.as_list::<i32>();
        let (offsets, nulls) = (list.value_offsets(), nulls(list.nulls(), outer));
        let element = |tag| Box::new(Self::single(tag, &field.kind, list.values(), None));
        if field.kind.packs() {
            Self {
                tag: Tag::new(field.number, WireType::Delimited),
                nulls,
                values: Values::Packed(offsets, element(Tag::NONE)),
            }
        } else {
            Self {
                tag,
                nulls,
                values: Values::Repeated(offsets, element(tag)),
            }
        }
    }

    /// The values themselves, of a column that is not REPEATED or of one's elements.
    fn single(tag: Tag, kind: &Kind, array: &'a ArrayRef, outer: Option<&NullBuffer>) -> Self {
        let nulls = nulls(array.nulls(), outer);
        let values = match kind {
            Kind::Message(message) => {
                Values::Message(bind(message, array.as_struct().columns(), nulls.as_ref()))
            }
            _ => Values::Scalar(Scalars::new(kind, array)),
        };
        Self { tag, nulls, values }
    }

    #[inline(always)]
    pub(super) fn is_null(&self, at: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(at))
    }
}

impl<'a> Scalars<'a> {
    fn new(kind: &Kind, array: &'a ArrayRef) -> Self {
        match kind {
            Kind::Bool => Self::Bool(array.as_boolean().values()),
            Kind::Int64 if array.data_type() == &DataType::Int64 => {
                Self::Int64(array.as_primitive::<Int64Type>().values())
            }
            Kind::Int64 => Self::Int64(array.as_primitive::<TimestampMicrosecondType>().values()),
            Kind::Double => Self::Double(array.as_primitive::<Float64Type>().values()),
            Kind::Date => Self::Date(array.as_primitive::<Date32Type>().values()),
            Kind::Time => Self::Time(array.as_primitive::<Time64MicrosecondType>().values()),
            Kind::Datetime => Self::Datetime(array.as_primitive::<TimestampMicrosecondType>().values()),
            Kind::Picoseconds(TimeUnit::Nanosecond) => {
                let values = array.as_primitive::<TimestampNanosecondType>().values();
                Self::Picoseconds(values, 1_000_000_000)
            }
            Kind::Picoseconds(_) => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                Self::Picoseconds(values, 1_000_000)
            }
            Kind::Interval => Self::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values()),
            Kind::Numeric => Self::Numeric(array.as_primitive::<Decimal128Type>().values()),
            Kind::Bignumeric(37) => Self::WideBignumeric(array.as_primitive::<Decimal256Type>().values()),
            Kind::Bignumeric(_) => Self::Bignumeric(array.as_primitive::<Decimal256Type>().values()),
            Kind::Text => {
                let array = array.as_string::<i32>();
                Self::Bytes(array.value_offsets(), array.value_data())
            }
            Kind::Bytes => {
                let array = array.as_binary::<i32>();
                Self::Bytes(array.value_offsets(), array.value_data())
            }
            Kind::Message(_) => unreachable!("a message is bound by its fields"),
        }
    }

    /// The most bytes that a value takes behind its tag; of text and bytes, besides themselves.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Bool(_) => 1,
            Self::Double(_) => 8,
            Self::Int64(_) | Self::Date(_) | Self::Time(_) | Self::Datetime(_) => 10,
            Self::Numeric(_) => 1 + 16,
            Self::Bignumeric(_) | Self::WideBignumeric(_) => 1 + 32,
            Self::Picoseconds(..) => 1 + PICOSECONDS,
            Self::Interval(_) => 1 + INTERVAL,
            Self::Bytes(..) => 5,
        }
    }

    pub(super) fn visit(&self, tag: Tag, visitor: impl Visitor) {
        let tenfold = values::tenfold;
        match *self {
            Self::Bool(values) => visitor.visit(&Bools { tag, values }),
            Self::Double(values) => visitor.visit(&Doubles { tag, values }),
            Self::Int64(values) => visitor.visit(&Numbers {
                tag,
                values,
                number: |value| value as u64,
            }),
            Self::Date(values) => visitor.visit(&Numbers {
                tag,
                values,
                number: |days| i64::from(days) as u64,
            }),
            Self::Time(values) => visitor.visit(&Numbers {
                tag,
                values,
                number: values::time,
            }),
            Self::Datetime(values) => visitor.visit(&Numbers {
                tag,
                values,
                number: values::datetime,
            }),
            Self::Numeric(values) => visitor.visit(&Texts {
                tag,
                values,
                text: |value: i128| (value.to_le_bytes(), values::numeric_len(value)),
            }),
            Self::Bignumeric(values) => visitor.visit(&Texts {
                tag,
                values,
                text: |value: i256| (value.to_le_bytes(), values::bignumeric_len(value)),
            }),
            Self::WideBignumeric(values) => visitor.visit(&Texts {
                tag,
                values,
                text: |value| {
                    (
                        tenfold(value).to_le_bytes(),
                        values::bignumeric_len(tenfold(value)),
                    )
                },
            }),
            Self::Picoseconds(values, second) => visitor.visit(&Texts {
                tag,
                values,
                text: |value| (values::picoseconds(value, second), PICOSECONDS),
            }),
            Self::Interval(values) => visitor.visit(&Texts {
                tag,
                values,
                text: values::interval,
            }),
            Self::Bytes(offsets, data) => visitor.visit(&Slices { tag, offsets, data }),
        }
    }
}

struct Bools<'a> {
    tag: Tag,
    values: &'a BooleanBuffer,
}

struct Doubles<'a> {
    tag: Tag,
    values: &'a [f64],
}

/// Varints.
struct Numbers<'a, T, F> {
    tag: Tag,
    values: &'a [T],
    number: F,
}

/// Values that become bytes, the first so many of an array, fewer than 128.
struct Texts<'a, T, F> {
    tag: Tag,
    values: &'a [T],
    text: F,
}

/// Text and bytes.
struct Slices<'a> {
    tag: Tag,
    offsets: &'a [i32],
    data: &'a [u8],
}

// Always inlined: a loop keeps tag and position in registers only if nothing in it is a call.

impl Scalar for Bools<'_> {
    #[inline(always)]
    fn write(&self, at: usize, output: &mut Output<'_>) {
        output.bool(self.tag, self.values.value(at));
    }
}

impl Scalar for Doubles<'_> {
    #[inline(always)]
    fn write(&self, at: usize, output: &mut Output<'_>) {
        output.double(self.tag, self.values[at]);
    }
}

impl<T: Copy, F: Fn(T) -> u64> Scalar for Numbers<'_, T, F> {
    #[inline(always)]
    fn write(&self, at: usize, output: &mut Output<'_>) {
        output.number(self.tag, (self.number)(self.values[at]));
    }
}

impl<T: Copy, const N: usize, F: Fn(T) -> ([u8; N], usize)> Scalar for Texts<'_, T, F> {
    #[inline(always)]
    fn write(&self, at: usize, output: &mut Output<'_>) {
        let (text, len) = (self.text)(self.values[at]);
        output.prefix(self.tag, &text, len);
    }
}

impl Slices<'_> {
    #[inline(always)]
    fn slice(&self, at: usize) -> (usize, usize) {
        let [start, end] = [self.offsets[at], self.offsets[at + 1]];
        (start as usize, (end - start) as usize)
    }
}

impl Scalar for Slices<'_> {
    #[inline(always)]
    fn write(&self, at: usize, output: &mut Output<'_>) {
        let (start, len) = self.slice(at);
        output.bytes(self.tag, self.data, start, len);
    }
}

impl Kind {
    fn wire_type(&self) -> WireType {
        match self {
            Self::Bool | Self::Int64 | Self::Date | Self::Time | Self::Datetime => WireType::Varint,
            Self::Double => WireType::Fixed64,
            Self::Text
            | Self::Bytes
            | Self::Picoseconds(_)
            | Self::Interval
            | Self::Numeric
            | Self::Bignumeric(_)
            | Self::Message(_) => WireType::Delimited,
        }
    }
}

/// Rows in a word of [`words`].
pub(super) const WORD: usize = 64;

/// Which rows of a range are not null, a bit each, the first in the lowest.
pub(super) fn words<'a>(nulls: &'a NullBuffer, range: &Range<usize>) -> impl Iterator<Item = u64> + 'a {
    BitChunks::new(nulls.validity(), nulls.offset() + range.start, range.len()).iter_padded()
}

/// What is null in itself or because what holds it is; None if nothing is.
fn nulls(own: Option<&NullBuffer>, outer: Option<&NullBuffer>) -> Option<NullBuffer> {
    NullBuffer::union(own, outer).filter(|nulls| nulls.null_count() > 0)
}
