//! Fits a descriptor to a table: which field goes to which column, and what cannot go at all (write-api.md 5.1).

use std::collections::HashMap;

use super::descriptor::{CHANGE_TYPE, Descriptor, Enum, Field, FieldKind, Label};
use super::raw::{Raw, Scalar};
use crate::machine::{Behaviour, Switches};
use crate::rows::fit::Misfit;
use crate::schema::{Column, Kind, Mode, RangeElement};

/// Columns that only rows have, not tables: what to do with the row (write-api.md 6).
const PSEUDO_COLUMNS: [&str; 2] = [CHANGE_TYPE, "_change_sequence_number"];

/// How a message's fields go to the columns of a table, a STRUCT or a RANGE.
#[derive(Debug)]
pub(super) struct Level<'a> {
    /// In the order of their numbers.
    pub(super) fields: Vec<Source<'a>>,
    /// Of each column, its field's place among them; `None` if the writer lacks it.
    pub(super) columns: Vec<Option<usize>>,
    /// The same of `_CHANGE_TYPE` and `_CHANGE_SEQUENCE_NUMBER`, which only rows have.
    pub(super) pseudo: [Option<usize>; 2],
}

/// A field that has a column.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) number: u32,
    /// The column's name, dotted.
    pub(super) name: String,
    pub(super) label: Label,
    pub(super) default: Option<Raw<'a>>,
    pub(super) kind: &'a Kind,
    pub(super) mode: Mode,
    pub(super) shape: Shape<'a>,
}

/// What a value is made of.
#[derive(Debug)]
pub(super) enum Shape<'a> {
    /// One scalar; if it is an enum, with its names.
    Scalar(Scalar, Option<&'a Enum>),
    /// A message of one scalar, which stands for it: its number and type.
    Wrapper(u32, Scalar),
    /// A message of seconds and their fraction: numbers and types.
    Seconds([(u32, Scalar); 2]),
    Struct(&'a [Column], Level<'a>),
    /// Its element, and `start` and `end` as columns.
    Range(RangeElement, &'a [Column], Level<'a>),
}

/// Whose values a field has.
enum Place {
    /// By index among the columns.
    Column(usize),
    /// By index among the pseudo-columns.
    Pseudo(usize),
}

static STRING: Kind = Kind::String { max_length: None };

/// Fits fields to columns, by name without regard to case; an annotated column name goes before the field's own.
pub(super) fn fit<'a>(
    descriptor: &'a Descriptor,
    columns: &'a [Column],
    switches: &Switches,
) -> Result<Level<'a>, Misfit> {
    let mut fit = Fit {
        descriptor,
        listed: switches.keeps(Behaviour::ListedProtoTypesTaken),
        enums: switches.keeps(Behaviour::EnumsTaken),
        wrappers: switches.keeps(Behaviour::WrappersTaken),
        messages: switches.keeps(Behaviour::MessagesTaken),
        seconds: switches.keeps(Behaviour::SecondsMessagesTaken),
        unlisted: !switches.keeps(Behaviour::UnlistedProtoTypesRefused),
        signed: switches.keeps(Behaviour::SignedAndFixedIntegers),
        annotated: switches.keeps(Behaviour::ColumnNameAnnotation),
        any_case: switches.keeps(Behaviour::FieldNamesIgnoreCase),
        pseudo_any_case: switches.keeps(Behaviour::PseudoColumnsIgnoreCase),
        extra: Vec::new(),
        missing: Vec::new(),
    };
    let row = fit.level(0, columns, "", true)?;
    if !fit.extra.is_empty() && switches.keeps(Behaviour::ExtraFieldsRefused) {
        return Err(Misfit::Extra(fit.extra));
    }
    if !fit.missing.is_empty() && switches.keeps(Behaviour::MissingColumnsRefused) {
        return Err(Misfit::MissingInMessage(fit.missing));
    }
    Ok(row)
}

struct Fit<'a> {
    descriptor: &'a Descriptor,
    listed: bool,
    enums: bool,
    wrappers: bool,
    messages: bool,
    seconds: bool,
    unlisted: bool,
    signed: bool,
    annotated: bool,
    any_case: bool,
    pseudo_any_case: bool,
    extra: Vec<String>,
    missing: Vec<String>,
}

impl<'a> Fit<'a> {
    fn level(
        &mut self,
        message: usize,
        columns: &'a [Column],
        path: &str,
        is_row: bool,
    ) -> Result<Level<'a>, Misfit> {
        let descriptor = self.descriptor;
        let mut by_name = HashMap::new();
        for field in &descriptor.message(message).fields {
            let name = self.column_name(field);
            if by_name.insert(self.key(name), field).is_some() {
                return Err(Misfit::Twice(format!("{path}{name}")));
            }
        }
        let mut found: Vec<(Place, Source<'a>)> = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let name = format!("{path}{}", column.name);
            match by_name.remove(&self.key(&column.name)) {
                Some(field) => {
                    let source = self.source(message, field, &column.kind, column.mode, name)?;
                    found.push((Place::Column(at), source));
                }
                None if column.mode == Mode::Required && column.default_value_expression.is_none() => {
                    self.missing.push(name);
                }
                None => {}
            }
        }
        for (at, name) in PSEUDO_COLUMNS.iter().enumerate().filter(|_| is_row) {
            let exactly = (!self.pseudo_any_case).then(|| name.to_uppercase());
            let named = |field: &&Field| {
                exactly
                    .as_deref()
                    .is_none_or(|exactly| self.column_name(field) == exactly)
            };
            if let Some(field) = by_name.get(*name).copied().filter(named) {
                by_name.remove(*name);
                let source = self.source(message, field, &STRING, Mode::Nullable, (*name).to_owned())?;
                found.push((Place::Pseudo(at), source));
            }
        }
        let mut extra: Vec<&Field> = by_name.into_values().collect();
        extra.sort_unstable_by_key(|field| field.number);
        let extra = extra
            .into_iter()
            .map(|field| format!("{path}{}", self.column_name(field)));
        self.extra.extend(extra.collect::<Vec<_>>());
        found.sort_unstable_by_key(|(_, source)| source.number);
        let mut level = Level {
            fields: Vec::with_capacity(found.len()),
            columns: vec![None; columns.len()],
            pseudo: [None; 2],
        };
        for (at, (place, source)) in found.into_iter().enumerate() {
            match place {
                Place::Column(column) => level.columns[column] = Some(at),
                Place::Pseudo(pseudo) => level.pseudo[pseudo] = Some(at),
            }
            level.fields.push(source);
        }
        Ok(level)
    }

    fn source(
        &mut self,
        message: usize,
        field: &'a Field,
        kind: &'a Kind,
        mode: Mode,
        name: String,
    ) -> Result<Source<'a>, Misfit> {
        let repeated = field.label == Label::Repeated;
        let shape = if repeated == (mode == Mode::Repeated) {
            self.shape(kind, field.kind, &name)?
        } else {
            None
        };
        let shape = shape.ok_or_else(|| {
            let found = match field.kind {
                FieldKind::Scalar(scalar) => scalar.name(),
                FieldKind::Enum(_) => "enum",
                FieldKind::Message(_) => "message",
            };
            Misfit::Mismatched {
                field: format!("{}.{}", self.descriptor.name(message), field.name),
                found: format!("{}{found}", if repeated { "repeated " } else { "" }),
                column: format!(
                    "{}{}",
                    if mode == Mode::Repeated { "repeated " } else { "" },
                    kind.legacy_name()
                ),
            }
        })?;
        Ok(Source {
            number: field.number,
            name,
            label: field.label,
            default: field.default.as_ref().map(|default| default.raw()),
            kind,
            mode,
            shape,
        })
    }

    /// What a value of the field is to the column; `None` if it is nothing.
    fn shape(&mut self, kind: &'a Kind, field: FieldKind, name: &str) -> Result<Option<Shape<'a>>, Misfit> {
        let descriptor = self.descriptor;
        Ok(match (kind, field) {
            (_, FieldKind::Scalar(scalar)) => self.takes(kind, scalar).then_some(Shape::Scalar(scalar, None)),
            // An enum goes by number, into a STRING by name (the latter INFERRED).
            (Kind::Int64 | Kind::String { .. }, FieldKind::Enum(at)) if self.enums => {
                Some(Shape::Scalar(Scalar::Enum, Some(descriptor.enumeration(at))))
            }
            (Kind::Struct(columns), FieldKind::Message(at)) if self.messages => {
                let level = self.level(at, columns, &format!("{name}."), false)?;
                Some(Shape::Struct(columns, level))
            }
            (Kind::Range(element), FieldKind::Message(at)) if self.messages => {
                let bounds = bounds(*element);
                let level = self.level(at, bounds, &format!("{name}."), false)?;
                Some(Shape::Range(*element, bounds, level))
            }
            (Kind::Timestamp, FieldKind::Message(at)) => {
                self.seconds(at, Some("Timestamp"), ("nanos", Scalar::Int32))
            }
            (Kind::Interval, FieldKind::Message(at)) => {
                self.seconds(at, Some("Duration"), ("nanos", Scalar::Int32))
            }
            // [PROD JIT]; the message's name is the client's own.
            (Kind::TimestampPicoseconds, FieldKind::Message(at)) => {
                self.seconds(at, None, ("picoseconds", Scalar::Int64))
            }
            (_, FieldKind::Message(at)) if self.wrappers => self.wrapper(kind, at),
            (_, FieldKind::Message(_) | FieldKind::Enum(_)) => None,
        })
    }

    /// Google's table of scalars (write-api.md 5.1).
    fn takes(&self, kind: &Kind, scalar: Scalar) -> bool {
        use Scalar as S;
        match (kind, scalar) {
            // What Google's clients choose.
            (Kind::Bool, S::Bool)
            | (Kind::Int64, S::Int64)
            | (Kind::Float64, S::Double)
            | (Kind::String { .. } | Kind::Json | Kind::Geography | Kind::Interval, S::String)
            | (Kind::TimestampPicoseconds, S::String)
            | (Kind::Bytes { .. } | Kind::Numeric { .. } | Kind::BigNumeric { .. }, S::Bytes)
            | (Kind::Date, S::Int32)
            | (Kind::Time | Kind::Datetime | Kind::Timestamp, S::Int64) => true,
            // What else the table lists.
            (Kind::Bool, S::Int32 | S::Int64 | S::Uint32 | S::Uint64)
            | (Kind::Int64, S::Int32 | S::Uint32)
            | (Kind::Float64, S::Float)
            | (Kind::Bytes { .. } | Kind::Time | Kind::Datetime, S::String)
            | (Kind::Date, S::Int64 | S::String)
            | (Kind::Timestamp, S::Int32 | S::Uint32 | S::String)
            | (
                Kind::Numeric { .. } | Kind::BigNumeric { .. },
                S::Int32 | S::Int64 | S::Uint32 | S::Uint64 | S::Double | S::Float | S::String,
            ) => self.listed,
            // Not in Google's table, but in its tests [PROD GIT validation].
            (Kind::Int64, S::Sint32 | S::Sint64 | S::Fixed32 | S::Sfixed32 | S::Sfixed64) => self.signed,
            (Kind::Int64, S::Uint64 | S::Fixed64) => self.unlisted,
            _ => false,
        }
    }

    /// A message that wraps a scalar, as `google.protobuf.Int64Value` does: by name and by form.
    fn wrapper(&self, kind: &Kind, at: usize) -> Option<Shape<'a>> {
        use Scalar as S;
        let wrapped: &[(&str, Scalar)] = match kind {
            Kind::Bool => &[("BoolValue", S::Bool)],
            Kind::Int64 => &[
                ("Int32Value", S::Int32),
                ("Int64Value", S::Int64),
                ("UInt32Value", S::Uint32),
            ],
            Kind::Float64 => &[("DoubleValue", S::Double), ("FloatValue", S::Float)],
            Kind::String { .. } => &[("StringValue", S::String)],
            Kind::Bytes { .. } | Kind::Numeric { .. } | Kind::BigNumeric { .. } => {
                &[("BytesValue", S::Bytes)]
            }
            _ => &[],
        };
        let [field] = self.descriptor.message(at).fields.as_slice() else {
            return None;
        };
        let found = wrapped
            .iter()
            .find(|(name, scalar)| self.descriptor.is_named(at, name) && is_part(field, "value", *scalar));
        found.map(|(_, scalar)| Shape::Wrapper(field.number, *scalar))
    }

    /// A message of seconds and a fraction of them.
    fn seconds(&self, at: usize, name: Option<&str>, fraction: (&str, Scalar)) -> Option<Shape<'a>> {
        let [one, other] = self.descriptor.message(at).fields.as_slice() else {
            return None;
        };
        let (first, second) = if one.name == "seconds" {
            (one, other)
        } else {
            (other, one)
        };
        let named = name.is_none_or(|name| self.descriptor.is_named(at, name));
        let good = self.seconds
            && named
            && is_part(first, "seconds", Scalar::Int64)
            && is_part(second, fraction.0, fraction.1);
        good.then_some(Shape::Seconds([
            (first.number, Scalar::Int64),
            (second.number, fraction.1),
        ]))
    }

    fn column_name(&self, field: &'a Field) -> &'a str {
        let annotated = field.column_name.as_deref().filter(|_| self.annotated);
        annotated.unwrap_or(&field.name)
    }

    fn key(&self, name: &str) -> String {
        if self.any_case {
            name.to_lowercase()
        } else {
            name.to_owned()
        }
    }
}

fn is_part(field: &Field, name: &str, scalar: Scalar) -> bool {
    field.name == name && field.kind == FieldKind::Scalar(scalar) && field.label != Label::Repeated
}

/// `start` and `end` as columns of their own.
fn bounds(element: RangeElement) -> &'static [Column] {
    static BOUNDS: std::sync::LazyLock<[[Column; 2]; 3]> = std::sync::LazyLock::new(|| {
        [
            RangeElement::Date,
            RangeElement::Datetime,
            RangeElement::Timestamp,
        ]
        .map(|element| ["start", "end"].map(|name| Column::new(name, element.into(), Mode::Nullable)))
    });
    match element {
        RangeElement::Date => &BOUNDS[0],
        RangeElement::Datetime => &BOUNDS[1],
        RangeElement::Timestamp => &BOUNDS[2],
    }
}
