//! Random tables, descriptors and rows: what was encoded is what is decoded.

use arrow_array::Array;
use arrow_buffer::i256;
use chrono::{NaiveDate, TimeDelta};
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};

use super::encode::{Payload, enumeration, integer, message, optional, typed};
use super::read;
use crate::schema::{Column, Kind, Mode, RangeElement};
use crate::values::cell::Cell;
use crate::values::interval::Interval;

const DAY_US: i64 = 86_400_000_000;
const ENUM: [(&str, i32); 4] = [("NONE", 0), ("SOME", 1), ("LESS", -5), ("MOST", i32::MAX)];

/// Bits that follow from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit.max(1)
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Between the two, and often at the edge or near zero.
    fn between(&mut self, least: i64, most: i64) -> i64 {
        match self.below(6) {
            0 => least,
            1 => most,
            2 => 1.clamp(least, most),
            3 => (self.next() as i64 >> 40).clamp(least, most),
            _ => {
                let width = i128::from(most) - i128::from(least) + 1;
                (i128::from(least) + i128::from(self.next()) % width) as i64
            }
        }
    }

    fn text(&mut self) -> String {
        let len = self.below(6);
        (0..len)
            .map(|_| self.one_of(&['a', 'ß', '\0', '日', '💥', '"']))
            .collect()
    }
}

/// Columns and the fields that go to them.
pub(super) struct Table {
    fields: Vec<Sent>,
    /// Columns that the descriptor lacks.
    unsent: Vec<Column>,
}

struct Sent {
    column: Column,
    /// Of the field: the column's, in another case.
    name: String,
    number: u32,
    required: bool,
    form: Form,
    default: Option<(String, Cell)>,
}

/// What the field is to protobuf.
enum Form {
    Scalar(Type),
    Enum,
    Wrapper(&'static str, Type),
    /// Seconds and a fraction, in a message of that name.
    Seconds(&'static str, &'static str, Type),
    Message(Table),
}

impl Table {
    pub(super) fn new(random: &mut Random) -> Self {
        Self::nested(random, 2)
    }

    fn nested(random: &mut Random, depth: usize) -> Self {
        let mut number = 0;
        let count = 1 + random.below(6);
        let fields = (0..count).map(|at| {
            number += 1 + random.one_of(&[0, 0, 3, 100]);
            Sent::new(random, at, number, depth)
        });
        let fields = fields.collect();
        let unsent = (0..random.below(3)).map(|at| {
            let mode = random.one_of(&[Mode::Nullable, Mode::Repeated]);
            Column::new(format!("unsent_{at}"), Kind::Int64, mode)
        });
        Self {
            fields,
            unsent: unsent.collect(),
        }
    }

    /// `start` and `end` of a RANGE.
    fn bounds(random: &mut Random, element: RangeElement) -> Self {
        let form = match element {
            RangeElement::Date => random.one_of(&[Type::Int32, Type::Int64, Type::String]),
            RangeElement::Datetime | RangeElement::Timestamp => random.one_of(&[Type::Int64, Type::String]),
        };
        let bound = |name: &str, number| Sent {
            column: Column::new(name, element.into(), Mode::Nullable),
            name: name.to_owned(),
            number,
            required: false,
            form: Form::Scalar(form),
            default: None,
        };
        Self {
            fields: vec![bound("start", 2), bound("end", 1)],
            unsent: Vec::new(),
        }
    }

    pub(super) fn columns(&self) -> Vec<Column> {
        let sent = self.fields.iter().map(|field| &field.column);
        sent.chain(&self.unsent).cloned().collect()
    }

    pub(super) fn descriptor(&self) -> DescriptorProto {
        self.message("Row")
    }

    fn message(&self, name: &str) -> DescriptorProto {
        let mut row = message(name, self.fields.iter().map(Sent::field).collect());
        row.nested_type = self.fields.iter().filter_map(Sent::nested).collect();
        if self.fields.iter().any(|field| matches!(field.form, Form::Enum)) {
            row.enum_type.push(enumeration("E", &ENUM));
        }
        row
    }

    /// A row: its values, and the message.
    pub(super) fn row(&self, random: &mut Random) -> (Vec<Cell>, Vec<u8>) {
        let (cells, pieces) = self.pieces(random);
        (cells, pieces.concat())
    }

    /// The same with the message in parts that keep their order.
    fn pieces(&self, random: &mut Random) -> (Vec<Cell>, Vec<Vec<u8>>) {
        let mut cells = Vec::new();
        let mut queues: Vec<Vec<Vec<u8>>> = Vec::new();
        for field in &self.fields {
            let (cell, mut pieces) = field.value(random);
            pieces.reverse();
            cells.push(cell);
            queues.push(pieces);
        }
        cells.extend(self.unsent.iter().map(Column::nothing));
        let mut pieces = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            if random.once_in(10) {
                pieces.push(unknown(random));
            }
            // In the order of numbers mostly, as writers do.
            let at = if random.once_in(3) {
                random.below(queues.len())
            } else {
                0
            };
            let ready = queues.iter_mut().skip(at).find(|queue| !queue.is_empty());
            pieces.extend(ready.and_then(Vec::pop));
        }
        (cells, pieces)
    }
}

/// A field that no descriptor here has.
fn unknown(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => Payload::Varint(random.next()).field(10_000),
        1 => Payload::Fixed32(random.next() as u32).field(10_001),
        2 => Payload::Bytes(random.text().into_bytes()).field(10_002),
        // A group, with a field in it.
        _ => b"\xa3\xf1\x04\x08\x01\xa4\xf1\x04".to_vec(),
    }
}

impl Sent {
    fn new(random: &mut Random, at: usize, number: u32, depth: usize) -> Self {
        let (kind, form) = kind(random, depth);
        let mode = random.one_of(&[Mode::Nullable, Mode::Nullable, Mode::Required, Mode::Repeated]);
        let name = format!("Column_{at}");
        let default = match (&kind, &form, mode) {
            _ if random.once_in(2) => None,
            (Kind::Int64, Form::Scalar(Type::Int64), Mode::Nullable) => {
                Some(("-7".to_owned(), Cell::Int(-7)))
            }
            (Kind::String { .. }, Form::Scalar(_), Mode::Nullable) => {
                Some(("dé\\n".to_owned(), Cell::Text("dé\\n".to_owned())))
            }
            (Kind::Bytes { .. }, Form::Scalar(Type::Bytes), Mode::Nullable) => {
                Some(("\\001\\n".to_owned(), Cell::Bytes(vec![1, b'\n'])))
            }
            _ => None,
        };
        Self {
            name: random.one_of(&[str::to_lowercase, str::to_uppercase, str::to_owned])(&name),
            column: Column::new(name, kind, mode),
            number,
            required: mode == Mode::Required && random.once_in(2),
            form,
            default,
        }
    }

    fn field(&self) -> FieldDescriptorProto {
        let number = self.number as i32;
        let field = match &self.form {
            Form::Scalar(kind) => optional(&self.name, number, *kind),
            Form::Enum => typed(&self.name, number, Type::Enum, "E"),
            _ => typed(&self.name, number, Type::Message, &self.type_name()),
        };
        let label = match self.column.mode {
            Mode::Repeated => Label::Repeated,
            _ if self.required => Label::Required,
            _ => Label::Optional,
        };
        FieldDescriptorProto {
            label: Some(label as i32),
            default_value: self.default.as_ref().map(|(text, _)| text.clone()),
            ..field
        }
    }

    fn type_name(&self) -> String {
        match &self.form {
            Form::Wrapper(name, _) | Form::Seconds(name, ..) => format!("M{}_{name}", self.number),
            _ => format!("M{}", self.number),
        }
    }

    fn nested(&self) -> Option<DescriptorProto> {
        let name = self.type_name();
        match &self.form {
            Form::Scalar(_) | Form::Enum => None,
            Form::Wrapper(_, kind) => Some(message(&name, vec![optional("value", 1, *kind)])),
            Form::Seconds(_, fraction, kind) => Some(message(
                &name,
                vec![optional("seconds", 1, Type::Int64), optional(fraction, 2, *kind)],
            )),
            Form::Message(table) => Some(table.message(&name)),
        }
    }

    /// A value, and the occurrences that make it.
    fn value(&self, random: &mut Random) -> (Cell, Vec<Vec<u8>>) {
        match self.column.mode {
            Mode::Repeated => {
                let count = random.below(4);
                let elements: Vec<_> = (0..count).map(|_| self.element(random)).collect();
                let (cells, payloads): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
                (Cell::List(cells), self.occurrences(random, payloads))
            }
            Mode::Nullable if random.once_in(4) => {
                let default = self.default.as_ref().map(|(_, cell)| cell.clone());
                (default.unwrap_or(Cell::Null), Vec::new())
            }
            _ => match &self.form {
                // Merged, whatever it is cut into.
                Form::Message(table) => {
                    let (cell, pieces) = struct_or_range(table, &self.column.kind, random);
                    let (first, last) = pieces.split_at(random.below(pieces.len() + 1));
                    let parts = [first.concat(), last.concat()];
                    let parts = parts.map(|part| Payload::Bytes(part).field(self.number));
                    (cell, parts.to_vec())
                }
                _ => {
                    let (cell, payload) = self.element(random);
                    let mut pieces = vec![payload.field(self.number)];
                    if matches!(self.form, Form::Scalar(_) | Form::Enum) && random.once_in(3) {
                        // The last one counts.
                        pieces.insert(0, self.element(random).1.field(self.number));
                    }
                    (cell, pieces)
                }
            },
        }
    }

    fn element(&self, random: &mut Random) -> (Cell, Payload) {
        let kind = &self.column.kind;
        match &self.form {
            Form::Scalar(scalar) => scalar_value(random, kind, *scalar),
            Form::Enum => {
                let (name, number) = random.one_of(&ENUM);
                let cell = match kind {
                    Kind::Int64 => Cell::Int(number.into()),
                    _ => Cell::Text(name.to_owned()),
                };
                (cell, Payload::Varint(i64::from(number) as u64))
            }
            Form::Wrapper(_, scalar) => {
                let (cell, payload) = scalar_value(random, kind, *scalar);
                (cell, Payload::Bytes(payload.field(1)))
            }
            Form::Seconds(..) => {
                let (cell, seconds, fraction) = seconds_value(random, kind);
                let parts = [
                    Payload::Varint(fraction as u64).field(2),
                    Payload::Varint(seconds as u64).field(1),
                ];
                (cell, Payload::Bytes(parts.concat()))
            }
            Form::Message(table) => {
                let (cell, pieces) = struct_or_range(table, kind, random);
                (cell, Payload::Bytes(pieces.concat()))
            }
        }
    }

    /// Elements one by one, or several packed into one field.
    fn occurrences(&self, random: &mut Random, payloads: Vec<Payload>) -> Vec<Vec<u8>> {
        let packs = match self.form {
            Form::Scalar(scalar) => !matches!(scalar, Type::String | Type::Bytes),
            Form::Enum => true,
            _ => false,
        };
        let mut pieces = Vec::new();
        let mut rest = payloads.as_slice();
        while let Some((first, others)) = rest.split_first() {
            if packs && random.once_in(2) {
                let (now, later) = rest.split_at(1 + random.below(rest.len()));
                let mut packed = Vec::new();
                now.iter().for_each(|payload| payload.put(&mut packed));
                pieces.push(Payload::Bytes(packed).field(self.number));
                rest = later;
            } else {
                pieces.push(first.field(self.number));
                rest = others;
            }
        }
        pieces
    }
}

/// A type, and one that BigQuery takes for it.
fn kind(random: &mut Random, depth: usize) -> (Kind, Form) {
    use Type as T;
    const NUMBERS: [Type; 8] = [
        T::Int32,
        T::Int64,
        T::Uint32,
        T::Uint64,
        T::Double,
        T::Float,
        T::String,
        T::Bytes,
    ];
    let none = None;
    let scalar = |random: &mut Random, of: &[Type]| Form::Scalar(random.one_of(of));
    match random.below(if depth > 0 { 18 } else { 15 }) {
        0 if random.once_in(3) => (Kind::Bool, Form::Wrapper("BoolValue", T::Bool)),
        0 => (
            Kind::Bool,
            scalar(random, &[T::Bool, T::Int32, T::Int64, T::Uint32, T::Uint64]),
        ),
        1 => (Kind::Int64, Form::Enum),
        2 => {
            let (name, of) = random.one_of(&[
                ("Int32Value", T::Int32),
                ("Int64Value", T::Int64),
                ("UInt32Value", T::Uint32),
            ]);
            (Kind::Int64, Form::Wrapper(name, of))
        }
        3 | 4 => {
            let all = [
                T::Int64,
                T::Int32,
                T::Uint32,
                T::Sint32,
                T::Sint64,
                T::Fixed32,
                T::Sfixed32,
                T::Sfixed64,
            ];
            (Kind::Int64, scalar(random, &all))
        }
        5 => (Kind::Float64, scalar(random, &[T::Double, T::Float])),
        6 if random.once_in(3) => (Kind::String { max_length: None }, Form::Enum),
        6 => (Kind::String { max_length: None }, scalar(random, &[T::String])),
        7 => (
            Kind::Bytes { max_length: None },
            scalar(random, &[T::Bytes, T::String]),
        ),
        8 => (Kind::Date, scalar(random, &[T::Int32, T::Int64, T::String])),
        9 => (
            random.one_of(&[&Kind::Time, &Kind::Datetime]).clone(),
            scalar(random, &[T::Int64, T::String]),
        ),
        10 if random.once_in(3) => (Kind::Timestamp, Form::Seconds("Timestamp", "nanos", T::Int32)),
        10 => (
            Kind::Timestamp,
            scalar(random, &[T::Int64, T::Int32, T::Uint32, T::String]),
        ),
        11 => (
            Kind::Numeric {
                precision: none,
                scale: none,
            },
            scalar(random, &NUMBERS),
        ),
        12 => (
            Kind::BigNumeric {
                precision: none,
                scale: none,
            },
            scalar(random, &NUMBERS),
        ),
        13 if random.once_in(2) => (Kind::Interval, Form::Seconds("Duration", "nanos", T::Int32)),
        13 => (
            random
                .one_of(&[&Kind::Json, &Kind::Geography, &Kind::Interval])
                .clone(),
            Form::Scalar(T::String),
        ),
        14 if random.once_in(2) => (
            Kind::TimestampPicoseconds,
            Form::Seconds("Picos", "picoseconds", T::Int64),
        ),
        14 => (Kind::TimestampPicoseconds, Form::Scalar(T::String)),
        15 => {
            let element = random.one_of(&[
                RangeElement::Date,
                RangeElement::Datetime,
                RangeElement::Timestamp,
            ]);
            (
                Kind::Range(element),
                Form::Message(Table::bounds(random, element)),
            )
        }
        _ => {
            let table = Table::nested(random, depth - 1);
            (Kind::Struct(table.columns()), Form::Message(table))
        }
    }
}

/// A STRUCT's or RANGE's value, and the parts of its message.
fn struct_or_range(table: &Table, kind: &Kind, random: &mut Random) -> (Cell, Vec<Vec<u8>>) {
    loop {
        let (cells, pieces) = table.pieces(random);
        if !matches!(kind, Kind::Range(_)) {
            return (Cell::Struct(cells), pieces);
        }
        let bound = |cell: &Cell| match cell {
            Cell::Days(days) => Some(i64::from(*days)),
            Cell::Micros(micros) => Some(*micros),
            _ => None,
        };
        let (start, end) = (bound(&cells[0]), bound(&cells[1]));
        if start.is_none() || end.is_none() || start < end {
            return (Cell::Range(start, end), pieces);
        }
    }
}

/// A value of a scalar column.
fn scalar_value(random: &mut Random, kind: &Kind, scalar: Type) -> (Cell, Payload) {
    let text = |text: String| Payload::Bytes(text.into_bytes());
    match kind {
        Kind::Bool if scalar == Type::Bool => {
            let value = random.once_in(2);
            (Cell::Bool(value), Payload::Varint(value.into()))
        }
        Kind::Bool => {
            let value = random.one_of(&[0, 1, 2, 1 << 20]);
            (Cell::Bool(value != 0), integer(scalar, value))
        }
        Kind::Int64 => {
            let value = any_integer(random, scalar);
            (Cell::Int(value), integer(scalar, value))
        }
        Kind::Float64 => {
            let value = random.one_of(&[0.0, -0.0, f64::INFINITY, 0.125, -3e7]);
            (Cell::Float(value), float(scalar, value))
        }
        Kind::Numeric { .. } => {
            let (value, payload) = decimal(random, scalar, 9);
            (Cell::Decimal(value.to_i128().unwrap()), payload)
        }
        Kind::BigNumeric { .. } => {
            let (value, payload) = decimal(random, scalar, 38);
            (Cell::BigDecimal(value), payload)
        }
        Kind::String { .. } => {
            let value = random.text();
            (Cell::Text(value.clone()), text(value))
        }
        Kind::Json => {
            let value = serde_json::json!([random.text(), null, random.next()]).to_string();
            (Cell::Text(value.clone()), text(value))
        }
        Kind::Geography => {
            let value = format!("POINT({} {})", random.below(90), random.below(90));
            (Cell::Text(value.clone()), text(value))
        }
        Kind::Bytes { .. } if scalar == Type::String => {
            let value = random.text();
            (Cell::Bytes(value.clone().into_bytes()), text(value))
        }
        Kind::Bytes { .. } => {
            let value = random.next().to_le_bytes()[..random.below(8)].to_vec();
            (Cell::Bytes(value.clone()), Payload::Bytes(value))
        }
        Kind::Date => {
            let days = random.between(-719_162, 2_932_896);
            let payload = match scalar {
                Type::String => text(date_text(days)),
                _ => integer(scalar, days),
            };
            (Cell::Days(days as i32), payload)
        }
        Kind::Time => {
            let micros = random.between(0, DAY_US - 1);
            let payload = match scalar {
                Type::String => text(time_text(micros)),
                _ => integer(scalar, pack_time(micros)),
            };
            (Cell::Micros(micros), payload)
        }
        Kind::Datetime => {
            let micros = any_instant(random);
            let payload = match scalar {
                Type::String => text(datetime_text(micros, 'T')),
                _ => integer(scalar, pack_datetime(micros)),
            };
            (Cell::Micros(micros), payload)
        }
        Kind::Timestamp if scalar == Type::String => {
            let micros = any_instant(random);
            let zone = random.one_of(&["", "Z", " UTC", "+00:00"]);
            (Cell::Micros(micros), text(datetime_text(micros, ' ') + zone))
        }
        Kind::Timestamp => {
            let micros = match scalar {
                Type::Int64 => any_instant(random),
                scalar => any_integer(random, scalar),
            };
            (Cell::Micros(micros), integer(scalar, micros))
        }
        Kind::TimestampPicoseconds => {
            let (micros, picos) = (any_instant(random), random.between(0, 999_999));
            let value = i128::from(micros) * 1_000_000 + i128::from(picos);
            let literal = format!("{}{picos:06}Z", datetime_text(micros, 'T'));
            (Cell::Decimal(value), text(literal))
        }
        Kind::Interval => {
            let months = random.between(-120_000, 120_000);
            let days = random.between(-3_660_000, 3_660_000);
            let micros = random.between(-316_224_000_000_000_000, 316_224_000_000_000_000);
            let sign = |value: i64| if value < 0 { "-" } else { "" };
            let (month, micro) = (months.abs(), micros.abs());
            let literal = format!(
                "{}{}-{} {days} {}{}:{}:{}.{:06}",
                sign(months),
                month / 12,
                month % 12,
                sign(micros),
                micro / 3_600_000_000,
                micro / 60_000_000 % 60,
                micro / 1_000_000 % 60,
                micro % 1_000_000,
            );
            (
                Cell::Interval(Interval::new(months, days, micros).unwrap()),
                text(literal),
            )
        }
        Kind::Struct(_) | Kind::Range(_) => unreachable!("no scalar stands for these"),
    }
}

/// A value made of seconds and a fraction of a second, both given too.
fn seconds_value(random: &mut Random, kind: &Kind) -> (Cell, i64, i64) {
    match kind {
        Kind::Interval => {
            let micros = random.between(-316_224_000_000_000_000, 316_224_000_000_000_000);
            let cell = Cell::Interval(Interval::new(0, 0, micros).unwrap());
            (cell, micros / 1_000_000, micros % 1_000_000 * 1_000)
        }
        Kind::TimestampPicoseconds => {
            let seconds = any_instant(random).div_euclid(1_000_000);
            let picos = random.between(0, 999_999_999_999);
            let cell = Cell::Decimal(i128::from(seconds) * 1_000_000_000_000 + i128::from(picos));
            (cell, seconds, picos)
        }
        _ => {
            let micros = any_instant(random);
            // What is finer is cut off.
            let nanos = micros.rem_euclid(1_000_000) * 1_000 + random.between(0, 999);
            (Cell::Micros(micros), micros.div_euclid(1_000_000), nanos)
        }
    }
}

fn any_integer(random: &mut Random, scalar: Type) -> i64 {
    match scalar {
        Type::Int32 | Type::Sint32 | Type::Sfixed32 => random.between(i32::MIN.into(), i32::MAX.into()),
        Type::Uint32 | Type::Fixed32 => random.between(0, u32::MAX.into()),
        _ => random.between(i64::MIN, i64::MAX),
    }
}

fn any_instant(random: &mut Random) -> i64 {
    random.between(-62_135_596_800_000_000, 253_402_300_799_999_999)
}

fn float(scalar: Type, value: f64) -> Payload {
    match scalar {
        Type::Float => Payload::Fixed32((value as f32).to_bits()),
        _ => Payload::Fixed64(value.to_bits()),
    }
}

/// A decimal at `scale`.
fn decimal(random: &mut Random, scalar: Type, scale: u32) -> (i256, Payload) {
    let ten = |digits: u32| i256::from_string(&format!("1{}", "0".repeat(digits as usize))).unwrap();
    let whole = |value: i128| i256::from_i128(value).checked_mul(ten(scale)).unwrap();
    match scalar {
        Type::Uint64 => {
            let value = random.next();
            (whole(value.into()), Payload::Varint(value))
        }
        Type::Double | Type::Float => {
            // Eighths are exact in both.
            let eighths = random.between(-(1 << 20), 1 << 20);
            let value = i256::from_i128((eighths * 125).into())
                .checked_mul(ten(scale - 3))
                .unwrap();
            (value, float(scalar, eighths as f64 / 8.0))
        }
        Type::String | Type::Bytes => {
            let most = 10_i128.pow(38) - 1;
            let bits = (u128::from(random.next()) << 64 | u128::from(random.next())) as i128;
            let value = (bits >> random.below(128)).clamp(-most, most);
            let payload = if scalar == Type::String {
                let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale as usize + 1);
                let (integer, fraction) = digits.split_at(digits.len() - scale as usize);
                let sign = if value < 0 { "-" } else { "" };
                Payload::Bytes(format!("{sign}{integer}.{fraction}").into_bytes())
            } else {
                let mut bytes = value.to_le_bytes().to_vec();
                let padding = if value < 0 { 0xff } else { 0 };
                let sign = |bytes: &[u8]| bytes.last().is_some_and(|byte| byte & 0x80 != 0) == (value < 0);
                // As short as it can be, mostly.
                while bytes.len() > 1
                    && bytes.last() == Some(&padding)
                    && sign(&bytes[..bytes.len() - 1])
                    && !random.once_in(10)
                {
                    bytes.pop();
                }
                Payload::Bytes(bytes)
            };
            (i256::from_i128(value), payload)
        }
        scalar => {
            let value = any_integer(random, scalar);
            (whole(value.into()), integer(scalar, value))
        }
    }
}

fn date_of(days: i64) -> NaiveDate {
    NaiveDate::from_ymd_opt(1970, 1, 1).unwrap() + TimeDelta::days(days)
}

fn date_text(days: i64) -> String {
    date_of(days).format("%Y-%m-%d").to_string()
}

fn time_text(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    format!(
        "{:02}:{:02}:{:02}.{:06}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        micros % 1_000_000
    )
}

fn datetime_text(micros: i64, between: char) -> String {
    let (days, time) = (micros.div_euclid(DAY_US), micros.rem_euclid(DAY_US));
    format!("{}{between}{}", date_text(days), time_text(time))
}

fn pack_time(micros: i64) -> i64 {
    let seconds = micros / 1_000_000;
    let packed = (seconds / 3600) << 12 | (seconds / 60 % 60) << 6 | (seconds % 60);
    packed << 20 | (micros % 1_000_000)
}

fn pack_datetime(micros: i64) -> i64 {
    use chrono::Datelike;
    let (date, time) = (date_of(micros.div_euclid(DAY_US)), micros.rem_euclid(DAY_US));
    let (year, month, day) = (
        i64::from(date.year()),
        i64::from(date.month()),
        i64::from(date.day()),
    );
    (year << 26 | month << 22 | day << 17) << 20 | pack_time(time)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_encoded_is_decoded(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = Table::new(&mut random);
        let columns = table.columns();
        let count = random.below(20);
        let (cells, rows): (Vec<_>, Vec<_>) = (0..count).map(|_| table.row(&mut random)).unzip();
        let decoded = read(&table.descriptor(), &columns, rows);
        prop_assert_eq!(decoded.as_ref().err(), None);
        for (at, (column, array)) in columns.iter().zip(decoded.unwrap().columns).enumerate() {
            let expected = column.array(cells.iter().map(|row| row[at].clone()).collect()).unwrap();
            match array {
                Some(array) => {
                    prop_assert_eq!(array.to_data().validate_full().err().map(|error| error.to_string()), None);
                    prop_assert_eq!(&array, &expected, "{:?}", column);
                }
                None => prop_assert_eq!(&column.name[..6], "unsent"),
            }
        }
    }
}
