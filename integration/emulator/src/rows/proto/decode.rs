//! Serialized rows, straight from the wire into columns: no message is made of a row.
//!
//! protobuf's rules: of a scalar the last occurrence counts, occurrences of a message are merged, those of a repeated
//! field are all kept, packed or not; what is not in the descriptor is passed over (write-api.md 7.2).

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, Field, Fields};
use bytes::Bytes;

use super::descriptor::{Enum, Label};
use super::fit::{Level, Shape, Source};
use super::raw::{Raw, Scalar};
use super::values::Values;
use super::wire::{Reader, Value, WireError};
use crate::machine::{Behaviour, Switches};
use crate::rows::checks::{Bad, Checks};
use crate::rows::values::absent;
use crate::rows::{Memory, RowErrors};
use crate::schema::{Column, Mode};
use crate::values::range;

/// What came of the rows.
#[derive(Debug)]
pub(in crate::rows) struct Decoded {
    /// By column; `None` for one that the writer lacks.
    pub(in crate::rows) columns: Vec<Option<ArrayRef>>,
    /// `_CHANGE_TYPE` and `_CHANGE_SEQUENCE_NUMBER`.
    pub(in crate::rows) pseudo: [Option<ArrayRef>; 2],
}

/// Reads rows; in columns to be `filled` NULL may stand. Bad ones go to `errors`, and there are no columns then.
pub(super) fn decode(
    rows: &[Bytes],
    level: &Level<'_>,
    columns: &[Column],
    filled: &[bool],
    switches: &Switches,
    memory: &Memory,
    errors: &mut RowErrors,
) -> Result<Decoded, ArrowError> {
    let checks = Checks::of(switches);
    let mut filling = Filling::new(level, checks);
    for (place, _) in level.columns.iter().zip(filled).filter(|(_, filled)| **filled) {
        if let Some(slot) = place.and_then(|at| filling.slots.get_mut(at)) {
            slot.filled = true;
        }
    }
    let mut reading = Reading {
        row: 0,
        checks,
        memory,
        defaults: switches.keeps(Behaviour::ProtoDefaultsApply),
        zeros: !switches.keeps(Behaviour::AbsentIsNotZero),
        required: switches.keeps(Behaviour::ProtoRequiredChecked),
        packed: switches.keeps(Behaviour::PackedAndUnpacked),
        unknown: switches.keeps(Behaviour::UnknownNumbersIgnored),
        errors,
    };
    for (at, row) in rows.iter().enumerate() {
        reading.row = at;
        let read = filling.read(row, &mut reading);
        match read.and_then(|()| filling.finish(true, &mut reading)) {
            Ok(()) => {}
            Err(Stop::TooLarge(error)) => return Err(error),
            Err(Stop::Wire(error)) => {
                reading
                    .errors
                    .add(at, || format!("The row is no protobuf message: {error}."));
                filling.clear();
            }
        }
    }
    if !reading.errors.is_empty() {
        return Ok(Decoded {
            columns: Vec::new(),
            pseudo: [None, None],
        });
    }
    filling.columns(columns)
}

/// What holds for all rows, and what is happening to this one.
struct Reading<'e> {
    row: usize,
    memory: &'e Memory,
    checks: Checks,
    errors: &'e mut RowErrors,
    defaults: bool,
    zeros: bool,
    required: bool,
    packed: bool,
    unknown: bool,
}

/// What ends a row, or all.
enum Stop {
    Wire(WireError),
    TooLarge(ArrowError),
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl Reading<'_> {
    fn bad(&mut self, field: &str, bad: &Bad) {
        self.errors.add(self.row, || bad.on(field));
    }

    fn spend(&self, bytes: u64) -> Result<(), Stop> {
        self.memory.spend(bytes).map_err(Stop::TooLarge)
    }
}

/// The columns of a table, a STRUCT or a RANGE, being filled.
#[derive(Debug)]
struct Filling<'a> {
    level: &'a Level<'a>,
    slots: Vec<Slot<'a>>,
    /// Where the next field probably is: writers keep to the order of numbers.
    next: usize,
}

/// A column being filled, and what the message at hand has said of it so far.
#[derive(Debug)]
struct Slot<'a> {
    source: &'a Source<'a>,
    target: Target<'a>,
    /// A default value will take the place of NULL.
    filled: bool,
    /// REPEATED: how many elements each row has, and this one so far.
    lengths: Vec<usize>,
    count: usize,
}

#[derive(Debug)]
enum Target<'a> {
    Scalar {
        scalar: Scalar,
        names: Option<&'a Enum>,
        pending: Option<Raw<'a>>,
        values: Values<'a>,
    },
    /// A message that stands for one value: a wrapper, or seconds and their fraction.
    Parts {
        parts: [(u32, Scalar); 2],
        is_wrapper: bool,
        pending: Option<[Option<Raw<'a>>; 2]>,
        values: Values<'a>,
    },
    Message {
        filling: Filling<'a>,
        fields: Fields,
        columns: &'a [Column],
        is_range: bool,
        seen: bool,
        valid: Vec<bool>,
    },
}

impl<'a> Filling<'a> {
    fn new(level: &'a Level<'a>, checks: Checks) -> Self {
        Self {
            level,
            slots: level
                .fields
                .iter()
                .filter_map(|source| Slot::new(source, checks))
                .collect(),
            next: 0,
        }
    }

    /// Takes in a message, or one more occurrence of it.
    fn read(&mut self, bytes: &'a [u8], reading: &mut Reading<'_>) -> Result<(), Stop> {
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match self.find(number) {
                Some(slot) => slot.take(value, reading)?,
                None if reading.unknown => {}
                None => {
                    let text = format!("field number {number} is unknown");
                    reading.errors.add(reading.row, || text);
                }
            }
        }
        Ok(())
    }

    fn find(&mut self, number: u32) -> Option<&mut Slot<'a>> {
        let fields = &self.level.fields;
        let is = |at: usize| fields.get(at).is_some_and(|source| source.number == number);
        let at = if is(self.next) {
            self.next
        } else {
            fields
                .binary_search_by_key(&number, |source| source.number)
                .ok()?
        };
        // A repeated field that is not packed comes again, any other but once.
        self.next = if fields.get(at)?.label == Label::Repeated {
            at
        } else {
            at + 1
        };
        self.slots.get_mut(at)
    }

    /// The message is over, or was not there at all: one more value for every column.
    fn finish(&mut self, there: bool, reading: &mut Reading<'_>) -> Result<(), Stop> {
        self.next = 0;
        for slot in &mut self.slots {
            slot.finish(there, reading)?;
        }
        Ok(())
    }

    /// Forgets what was said of the message at hand.
    fn clear(&mut self) {
        self.next = 0;
        for slot in &mut self.slots {
            slot.count = 0;
            match &mut slot.target {
                Target::Scalar { pending, .. } => *pending = None,
                Target::Parts { pending, .. } => *pending = None,
                Target::Message { filling, seen, .. } => {
                    *seen = false;
                    filling.clear();
                }
            }
        }
    }

    /// The bounds of the RANGE that has just ended; those that it lacks are none.
    fn bounds(&self) -> (Option<i64>, Option<i64>) {
        let bound = |at: usize| {
            let slot = self.slots.get((*self.level.columns.get(at)?)?)?;
            match &slot.target {
                Target::Scalar { values, .. } | Target::Parts { values, .. } => values.last(),
                Target::Message { .. } => None,
            }
        };
        (bound(0), bound(1))
    }

    fn columns(self, columns: &[Column]) -> Result<Decoded, ArrowError> {
        let arrays: Vec<ArrayRef> = self
            .slots
            .into_iter()
            .map(Slot::array)
            .collect::<Result<_, _>>()?;
        let at = |place: &Option<usize>| place.and_then(|at| arrays.get(at)).cloned();
        debug_assert_eq!(columns.len(), self.level.columns.len());
        Ok(Decoded {
            columns: self.level.columns.iter().map(at).collect(),
            pseudo: [at(&self.level.pseudo[0]), at(&self.level.pseudo[1])],
        })
    }
}

impl<'a> Slot<'a> {
    fn new(source: &'a Source<'a>, checks: Checks) -> Option<Self> {
        let values = |names| Values::new(source.kind, checks, names);
        let target = match &source.shape {
            Shape::Scalar(scalar, names) => Target::Scalar {
                scalar: *scalar,
                names: *names,
                pending: None,
                values: values(*names)?,
            },
            Shape::Wrapper(number, scalar) => Target::Parts {
                parts: [(*number, *scalar), (0, *scalar)],
                is_wrapper: true,
                pending: None,
                values: values(None)?,
            },
            Shape::Seconds(parts) => Target::Parts {
                parts: *parts,
                is_wrapper: false,
                pending: None,
                values: values(None)?,
            },
            Shape::Struct(columns, level) => Target::Message {
                filling: Filling::new(level, checks),
                fields: columns.iter().map(Column::arrow).collect(),
                columns,
                is_range: false,
                seen: false,
                valid: Vec::new(),
            },
            Shape::Range(element, columns, level) => Target::Message {
                filling: Filling::new(level, checks),
                fields: range::fields(*element),
                columns,
                is_range: true,
                seen: false,
                valid: Vec::new(),
            },
        };
        Some(Self {
            source,
            target,
            filled: false,
            lengths: Vec::new(),
            count: 0,
        })
    }

    /// An occurrence of the field. One of another wire type is an unknown field.
    fn take(&mut self, value: Value<'a>, reading: &mut Reading<'_>) -> Result<(), Stop> {
        let repeated = self.source.label == Label::Repeated;
        match (&mut self.target, value) {
            (
                Target::Scalar {
                    scalar,
                    names,
                    pending,
                    values,
                },
                value,
            ) => {
                let known = |raw: &Raw<'_>| match (raw, &names) {
                    // proto2: a number that the enum lacks is an unknown field.
                    (Raw::Enum(number), Some(names)) => names.contains_key(number),
                    _ => true,
                };
                match value {
                    Value::Bytes(packed) if repeated && scalar.packs() && reading.packed => {
                        let (name, count) = (&self.source.name, &mut self.count);
                        return scalar.unpack(packed, |raw| {
                            if known(&raw) {
                                push(values, raw, name, reading)?;
                                *count += 1;
                            }
                            Ok(())
                        });
                    }
                    value => match scalar.read(value).filter(known) {
                        Some(raw) if repeated => {
                            push(values, raw, &self.source.name, reading)?;
                            self.count += 1;
                        }
                        Some(raw) => *pending = Some(raw),
                        None => {}
                    },
                }
            }
            (
                Target::Parts {
                    parts,
                    is_wrapper,
                    pending,
                    values,
                },
                Value::Bytes(bytes),
            ) => {
                let mut found = pending.take().unwrap_or_default();
                let mut reader = Reader::new(bytes);
                while let Some((number, value)) = reader.field()? {
                    for ((wanted, scalar), found) in parts.iter().zip(&mut found) {
                        if *wanted == number {
                            *found = scalar.read(value).or(*found);
                        }
                    }
                }
                if repeated {
                    push(
                        values,
                        joined(found, parts[0].1, *is_wrapper),
                        &self.source.name,
                        reading,
                    )?;
                    self.count += 1;
                } else {
                    *pending = Some(found);
                }
            }
            (
                Target::Message {
                    filling,
                    seen,
                    is_range,
                    valid,
                    ..
                },
                Value::Bytes(bytes),
            ) => {
                *seen = true;
                filling.read(bytes, reading)?;
                if repeated {
                    *seen = false;
                    self.count += 1;
                    finish_message(filling, true, *is_range, valid, &self.source.name, reading)?;
                }
            }
            (Target::Parts { .. } | Target::Message { .. }, _) => {}
        }
        Ok(())
    }

    fn finish(&mut self, there: bool, reading: &mut Reading<'_>) -> Result<(), Stop> {
        let source = self.source;
        if source.label == Label::Repeated {
            reading.spend(8)?;
            self.lengths.push(std::mem::take(&mut self.count));
            return Ok(());
        }
        let (raw, values) = match &mut self.target {
            Target::Message {
                filling,
                seen,
                is_range,
                valid,
                ..
            } => {
                let seen = std::mem::take(seen);
                if there && !seen {
                    lacking(source, self.filled, reading);
                }
                return finish_message(filling, there && seen, *is_range, valid, &source.name, reading);
            }
            Target::Scalar {
                scalar,
                pending,
                values,
                ..
            } => {
                let default = source.default.filter(|_| there && reading.defaults);
                let zero = (there && reading.zeros).then(|| scalar.zero());
                (pending.take().or(default).or(zero), values)
            }
            Target::Parts {
                parts,
                is_wrapper,
                pending,
                values,
            } => {
                let found = pending.take().map(|found| joined(found, parts[0].1, *is_wrapper));
                (found, values)
            }
        };
        match raw {
            Some(raw) => push(values, raw, &source.name, reading),
            None => {
                if there {
                    lacking(source, self.filled, reading);
                }
                reading.spend(values.width(None))?;
                values.push_null();
                Ok(())
            }
        }
    }

    fn array(self) -> Result<ArrayRef, ArrowError> {
        let values = match self.target {
            Target::Scalar { values, .. } | Target::Parts { values, .. } => values.finish(),
            Target::Message {
                filling,
                fields,
                columns,
                valid,
                ..
            } => {
                let len = valid.len();
                let decoded = filling.columns(columns)?;
                let arrays = decoded.columns.into_iter().zip(columns);
                let arrays = arrays.map(|(array, column)| array.unwrap_or_else(|| absent(column, len)));
                let nulls = NullBuffer::new(BooleanBuffer::from(valid));
                let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
                Arc::new(StructArray::try_new(fields, arrays.collect(), nulls)?)
            }
        };
        if self.source.label != Label::Repeated {
            return Ok(values);
        }
        let item = Arc::new(Field::new("item", self.source.kind.arrow(), false));
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(ListArray::try_new(item, offsets, values, None)?))
    }
}

/// A message is over, or was not there: its columns have one more value each.
fn finish_message(
    filling: &mut Filling<'_>,
    there: bool,
    is_range: bool,
    valid: &mut Vec<bool>,
    name: &str,
    reading: &mut Reading<'_>,
) -> Result<(), Stop> {
    let unsent = filling
        .level
        .columns
        .iter()
        .filter(|place| place.is_none())
        .count();
    reading.spend(1 + 8 * unsent as u64)?;
    filling.finish(there, reading)?;
    valid.push(there);
    if is_range && there {
        let (start, end) = filling.bounds();
        if let Err(bad) = reading.checks.range(start, end) {
            reading.bad(name, &bad);
        }
    }
    Ok(())
}

fn push(values: &mut Values<'_>, raw: Raw<'_>, name: &str, reading: &mut Reading<'_>) -> Result<(), Stop> {
    reading.spend(values.width(Some(raw)))?;
    if let Err(bad) = values.push(raw) {
        reading.bad(name, &bad);
    }
    Ok(())
}

/// A message that is there lacks a field.
fn lacking(source: &Source<'_>, filled: bool, reading: &mut Reading<'_>) {
    if source.label == Label::Required && reading.required {
        reading.bad(
            &source.name,
            &Bad::new("The required field is missing in the proto message"),
        );
    } else if source.mode == Mode::Required && !filled {
        reading.bad(&source.name, &Bad::null());
    }
}

/// The one value that a message stands for. What it lacks is zero, as these messages' types have it.
fn joined<'a>(parts: [Option<Raw<'a>>; 2], scalar: Scalar, is_wrapper: bool) -> Raw<'a> {
    if is_wrapper {
        return parts[0].unwrap_or(scalar.zero());
    }
    let number = |part| match part {
        Some(Raw::Int(value)) => value,
        _ => 0,
    };
    Raw::Seconds(number(parts[0]), number(parts[1]))
}
