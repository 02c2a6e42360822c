//! A batch's columns bound to their fields: measured column by column, then written row by row.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit};

use super::layout::{Field, Kind, Label, Message};
use super::output::{Output, Tag, WireType, varint_len};
use super::values::{self, PICOSECONDS};

/// One field of all rows, or of all elements that the lists of these rows hold.
#[derive(Debug)]
pub(super) struct Column<'a> {
    tag: Tag,
    /// None if nothing is null.
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

#[derive(Debug)]
enum Values<'a> {
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
    Message(Vec<Column<'a>>, Sizes),
    /// A field for each element.
    Repeated(&'a [i32], Box<Column<'a>>),
    /// One field that holds all elements, without tags.
    Packed(&'a [i32], Box<Column<'a>>, Sizes),
}

/// Lengths of messages, or of packed lists, whose first has an index of its own.
#[derive(Debug)]
struct Sizes {
    from: usize,
    sizes: Vec<usize>,
}

/// Binds the fields of a message to the arrays of a batch or struct, in that range, and adds their bytes to its rows' totals.
pub(super) fn bind<'a>(
    message: &Message,
    arrays: &'a [ArrayRef],
    range: &Range<usize>,
    totals: &mut [usize],
) -> Vec<Column<'a>> {
    let fields = message.fields.iter().zip(arrays);
    fields
        .map(|(field, array)| Column::new(field, array, range, totals))
        .collect()
}

impl<'a> Column<'a> {
    fn new(field: &Field, array: &'a ArrayRef, range: &Range<usize>, totals: &mut [usize]) -> Self {
        if field.label == Label::Repeated {
            return Self::list(field, array, range, totals);
        }
        let tag = Tag::new(field.number, field.kind.wire_type());
        Self::single(tag, &field.kind, array, range, totals)
    }

    /// The lists of a REPEATED column.
    fn list(field: &Field, array: &'a ArrayRef, range: &Range<usize>, totals: &mut [usize]) -> Self {
        let list = array.as_list::<i32>();
        let (offsets, nulls) = (list.value_offsets(), present(list.nulls()));
        let elements = offsets[range.start] as usize..offsets[range.end] as usize;
        let packs = field.kind.packs();
        let tag = if packs {
            Tag::NONE
        } else {
            Tag::new(field.number, field.kind.wire_type())
        };
        let mut sizes = vec![0; elements.len()];
        let element = Box::new(Self::single(
            tag,
            &field.kind,
            list.values(),
            &elements,
            &mut sizes,
        ));
        let of_lists = range.clone().map(|row| {
            // A list that is null may have elements, which are nobody's.
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                return 0;
            }
            let [begin, end] = [row, row + 1].map(|at| offsets[at] as usize - elements.start);
            sizes[begin..end].iter().sum::<usize>()
        });
        if !packs {
            for (total, size) in totals.iter_mut().zip(of_lists) {
                *total += size;
            }
            return Self {
                tag,
                nulls,
                values: Values::Repeated(offsets, element),
            };
        }
        let tag = Tag::new(field.number, WireType::Delimited);
        let sizes = Sizes {
            from: range.start,
            sizes: of_lists.collect(),
        };
        for (total, &size) in totals.iter_mut().zip(&sizes.sizes) {
            // A list without elements is no field.
            *total += if size > 0 { delimited(tag, size) } else { 0 };
        }
        Self {
            tag,
            nulls,
            values: Values::Packed(offsets, element, sizes),
        }
    }

    /// The values themselves, of a column that is not REPEATED or of one's elements.
    fn single(
        tag: Tag,
        kind: &Kind,
        array: &'a ArrayRef,
        range: &Range<usize>,
        totals: &mut [usize],
    ) -> Self {
        let nulls = present(array.nulls());
        let mut measure = Measure {
            tag,
            nulls,
            range,
            totals,
        };
        let values = match kind {
            Kind::Bool => {
                measure.alike(1);
                Values::Bool(array.as_boolean().values())
            }
            Kind::Int64 => Values::Int64(match array.data_type() {
                DataType::Int64 => measure.varints::<Int64Type>(array, |value| value as u64),
                _ => measure.varints::<TimestampMicrosecondType>(array, |value| value as u64),
            }),
            Kind::Double => {
                measure.alike(8);
                Values::Double(array.as_primitive::<Float64Type>().values())
            }
            Kind::Date => Values::Date(measure.varints::<Date32Type>(array, |days| i64::from(days) as u64)),
            Kind::Time => Values::Time(measure.varints::<Time64MicrosecondType>(array, values::time)),
            Kind::Datetime => {
                Values::Datetime(measure.varints::<TimestampMicrosecondType>(array, values::datetime))
            }
            Kind::Picoseconds(unit) => {
                measure.alike(1 + PICOSECONDS);
                match unit {
                    TimeUnit::Nanosecond => {
                        let values = array.as_primitive::<TimestampNanosecondType>().values();
                        Values::Picoseconds(values, 1_000_000_000)
                    }
                    _ => {
                        let values = array.as_primitive::<TimestampMicrosecondType>().values();
                        Values::Picoseconds(values, 1_000_000)
                    }
                }
            }
            Kind::Interval => {
                let len = |value| values::interval(value).1;
                Values::Interval(measure.texts::<IntervalMonthDayNanoType>(array, len))
            }
            Kind::Numeric => Values::Numeric(measure.texts::<Decimal128Type>(array, values::numeric_len)),
            Kind::Bignumeric(37) => {
                let len = |value| values::bignumeric_len(values::tenfold(value));
                Values::WideBignumeric(measure.texts::<Decimal256Type>(array, len))
            }
            Kind::Bignumeric(_) => {
                Values::Bignumeric(measure.texts::<Decimal256Type>(array, values::bignumeric_len))
            }
            Kind::Text => {
                let array = array.as_string::<i32>();
                measure.slices(array.value_offsets());
                Values::Bytes(array.value_offsets(), array.value_data())
            }
            Kind::Bytes => {
                let array = array.as_binary::<i32>();
                measure.slices(array.value_offsets());
                Values::Bytes(array.value_offsets(), array.value_data())
            }
            Kind::Message(message) => {
                let mut sizes = vec![0; range.len()];
                let columns = bind(message, array.as_struct().columns(), range, &mut sizes);
                measure.each(&sizes, |size| varint_len(size as u64) + size);
                Values::Message(
                    columns,
                    Sizes {
                        from: range.start,
                        sizes,
                    },
                )
            }
        };
        Self { tag, nulls, values }
    }

    /// Writes one row's field, or nothing if the value is null.
    #[inline]
    pub(super) fn write(&self, at: usize, output: &mut Output<'_>) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(at)) {
            return;
        }
        let tag = self.tag;
        match &self.values {
            Values::Int64(values) => output.number(tag, values[at] as u64),
            Values::Bytes(offsets, data) => {
                let (start, end) = (offsets[at] as usize, offsets[at + 1] as usize);
                output.bytes(tag, data, start, end - start);
            }
            Values::Double(values) => output.double(tag, values[at]),
            Values::Bool(values) => output.bool(tag, values.value(at)),
            Values::Date(values) => output.number(tag, i64::from(values[at]) as u64),
            Values::Time(values) => output.number(tag, values::time(values[at])),
            Values::Datetime(values) => output.number(tag, values::datetime(values[at])),
            Values::Numeric(values) => {
                output.prefix(tag, &values[at].to_le_bytes(), values::numeric_len(values[at]));
            }
            Values::Bignumeric(values) => {
                output.prefix(tag, &values[at].to_le_bytes(), values::bignumeric_len(values[at]));
            }
            Values::WideBignumeric(values) => {
                let value = values::tenfold(values[at]);
                output.prefix(tag, &value.to_le_bytes(), values::bignumeric_len(value));
            }
            Values::Picoseconds(values, second) => {
                output.prefix(tag, &values::picoseconds(values[at], *second), PICOSECONDS);
            }
            Values::Interval(values) => {
                let (text, len) = values::interval(values[at]);
                output.prefix(tag, &text, len);
            }
            Values::Message(columns, sizes) => {
                output.number(tag, sizes.of(at));
                for column in columns {
                    column.write(at, output);
                }
            }
            Values::Repeated(offsets, element) => {
                for at in offsets[at]..offsets[at + 1] {
                    element.write(at as usize, output);
                }
            }
            Values::Packed(offsets, element, sizes) => {
                let size = sizes.of(at);
                if size > 0 {
                    output.number(tag, size);
                    for at in offsets[at]..offsets[at + 1] {
                        element.write(at as usize, output);
                    }
                }
            }
        }
    }
}

impl Sizes {
    #[inline]
    fn of(&self, at: usize) -> u64 {
        self.sizes[at - self.from] as u64
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

/// Adds the bytes of one column's fields to the totals of the rows.
struct Measure<'a, 'm> {
    tag: Tag,
    nulls: Option<&'a NullBuffer>,
    range: &'m Range<usize>,
    totals: &'m mut [usize],
}

impl<'a> Measure<'a, '_> {
    /// All values take the same.
    fn alike(&mut self, len: usize) {
        let len = self.tag.len() + len;
        self.add(|_| len);
    }

    /// Numbers as varints.
    fn varints<T: ArrowPrimitiveType>(
        &mut self,
        array: &'a ArrayRef,
        number: impl Fn(T::Native) -> u64,
    ) -> &'a [T::Native] {
        let values: &'a [T::Native] = array.as_primitive::<T>().values();
        self.each(&values[self.range.clone()], |value| varint_len(number(value)));
        values
    }

    /// Values that become bytes of some length below 128.
    fn texts<T: ArrowPrimitiveType>(
        &mut self,
        array: &'a ArrayRef,
        len: impl Fn(T::Native) -> usize,
    ) -> &'a [T::Native] {
        let values: &'a [T::Native] = array.as_primitive::<T>().values();
        self.each(&values[self.range.clone()], |value| 1 + len(value));
        values
    }

    /// Texts or bytes between these offsets.
    fn slices(&mut self, offsets: &[i32]) {
        let tag = self.tag;
        let mut ends = offsets[self.range.start..=self.range.end].windows(2);
        self.add(|_| match ends.next() {
            Some(&[start, end]) => delimited(tag, (end - start) as usize),
            _ => 0,
        });
    }

    /// One value for each row.
    fn each<T: Copy>(&mut self, values: &[T], len: impl Fn(T) -> usize) {
        let tag = self.tag.len();
        let mut values = values.iter();
        self.add(|_| values.next().map_or(0, |&value| tag + len(value)));
    }

    /// `len` is asked in the order of the rows, of null values too.
    fn add(&mut self, mut len: impl FnMut(usize) -> usize) {
        match self.nulls {
            None => {
                for (row, total) in self.totals.iter_mut().enumerate() {
                    *total += len(row);
                }
            }
            Some(nulls) => {
                let nulls = nulls.slice(self.range.start, self.range.len());
                for ((row, total), valid) in self.totals.iter_mut().enumerate().zip(nulls.iter()) {
                    *total += len(row) * usize::from(valid);
                }
            }
        }
    }
}

/// Bytes of a field that says its length.
#[inline]
fn delimited(tag: Tag, len: usize) -> usize {
    tag.len() + varint_len(len as u64) + len
}

fn present(nulls: Option<&NullBuffer>) -> Option<&NullBuffer> {
    nulls.filter(|nulls| nulls.null_count() > 0)
}
