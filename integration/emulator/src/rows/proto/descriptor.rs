//! A writer's schema: one self-contained proto2 `DescriptorProto`, checked (write-api.md 5.4).

use std::collections::{HashMap, HashSet};

use super::raw::{DefaultValue, Raw, Scalar};
use super::source::{EnumSource, FieldSource, MAX_NAME, MessageSource, Source};
use crate::machine::{Behaviour, Switches};

/// Says what a row does; in rows only, never in tables (write-api.md 6).
pub(super) const CHANGE_TYPE: &str = "_change_type";
/// STRUCTs in STRUCTs, as deep as BigQuery has them, and the row itself.
const MAX_DEPTH: usize = 16;
/// Faults told at once.
const MAX_FAULTS: usize = 20;

/// A descriptor whose every name is resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Descriptor {
    /// The root first.
    messages: Vec<Message>,
    enums: Vec<Enum>,
}

impl Descriptor {
    /// Whether it has a field `_CHANGE_TYPE`.
    pub(in crate::rows) fn says_changes(&self) -> bool {
        let fields = self.messages.first().into_iter().flat_map(|root| &root.fields);
        fields
            .map(|field| field.column_name.as_ref().unwrap_or(&field.name))
            .any(|name| name.eq_ignore_ascii_case(CHANGE_TYPE))
    }
}

/// A message type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    name: String,
    /// The message it stands in.
    parent: Option<usize>,
    pub(super) fields: Vec<Field>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// As the descriptor has it.
    pub(super) name: String,
    /// Of the column that it goes to, if that is not its own.
    pub(super) column_name: Option<String>,
    pub(super) number: u32,
    pub(super) label: Label,
    pub(super) kind: FieldKind,
    pub(super) default: Option<DefaultValue>,
}

/// How often a field may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Optional,
    Required,
    Repeated,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Any but an enum.
    Scalar(Scalar),
    /// By index; see [`Descriptor::enumeration`].
    Enum(usize),
    /// By index; see [`Descriptor::message`].
    Message(usize),
}

/// Names of an enum's numbers; where there are several, the first.
pub(super) type Enum = HashMap<i32, String>;

/// What is wrong with a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid proto schema: {}", self.0.join("\n"))]
pub(crate) struct DescriptorError(Vec<String>);

impl DescriptorError {
    /// Of a schema that is not there [PROD GIT].
    pub(crate) fn nameless() -> Self {
        Self(vec![fault("", "Missing name.")])
    }
}

impl Descriptor {
    /// Reads a serialized `DescriptorProto`.
    pub(crate) fn read(bytes: &[u8], switches: &Switches) -> Result<Self, DescriptorError> {
        let source =
            Source::read(bytes).map_err(|error| DescriptorError(vec![fault("", &format!("{error}."))]))?;
        let mut check = Check::new(&source, switches);
        let messages = (0..source.messages.len()).map(|at| check.message(at)).collect();
        let enums = source.enums.iter().map(|one| check.enumeration(one)).collect();
        let descriptor = Self { messages, enums };
        if check.faults.is_empty() {
            check.depths(&descriptor);
        }
        if check.faults.is_empty() {
            Ok(descriptor)
        } else {
            Err(DescriptorError(check.faults))
        }
    }

    /// Index 0 is the row.
    pub(super) fn message(&self, at: usize) -> &Message {
        // Indices come from this descriptor, and it has a root.
        &self.messages[at]
    }

    /// Its name from the root on, dotted.
    pub(super) fn name(&self, at: usize) -> String {
        dotted(at, |at| (&self.messages[at].name, self.messages[at].parent))
    }

    /// Whether the message's own name is that, or ends in it as hoisted types' names do (write-api.md 5.4).
    pub(super) fn is_named(&self, at: usize, name: &str) -> bool {
        let rest = self.messages[at].name.strip_suffix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    }

    pub(super) fn enumeration(&self, at: usize) -> &Enum {
        &self.enums[at]
    }
}

/// A line as BigQuery writes it: the descriptor is to it a file of that name [PROD python-bigquery-storage #257].
fn fault(name: &str, text: &str) -> String {
    format!("BqMessage.proto: {name}: {text}")
}

fn dotted<'a>(at: usize, of: impl Fn(usize) -> (&'a str, Option<usize>)) -> String {
    let mut names = Vec::new();
    let mut next = Some(at);
    while let Some(at) = next {
        let (name, parent) = of(at);
        names.push(name);
        next = parent;
    }
    names.reverse();
    names.join(".")
}

/// What a type's name stands for.
#[derive(Clone, Copy, Debug)]
enum Type {
    Message(usize),
    Enum(usize),
}

/// Where a fault is: a message, and what in it.
type At<'a> = (usize, Option<&'a str>);

struct Check<'a> {
    source: &'a Source<'a>,
    /// Types by the message they stand in.
    types: HashMap<(Option<usize>, &'a str), Type>,
    /// Names of types and enum values, by the message they stand in.
    nested: HashMap<usize, Vec<&'a str>>,
    faults: Vec<String>,
    proto2_only: bool,
    self_contained: bool,
}

impl<'a> Check<'a> {
    fn new(source: &'a Source<'a>, switches: &Switches) -> Self {
        let mut types = HashMap::new();
        let mut nested: HashMap<usize, Vec<&str>> = HashMap::new();
        for (at, one) in source.messages.iter().enumerate() {
            let name = one.name.unwrap_or_default();
            types.insert((one.parent, name), Type::Message(at));
            if let Some(parent) = one.parent {
                nested.entry(parent).or_default().push(name);
            }
        }
        for (at, one) in source.enums.iter().enumerate() {
            let name = one.name.unwrap_or_default();
            types.insert((Some(one.parent), name), Type::Enum(at));
            let names = nested.entry(one.parent).or_default();
            names.push(name);
            names.extend(one.values.iter().map(|(value, _)| value.unwrap_or_default()));
        }
        Self {
            source,
            types,
            nested,
            faults: Vec::new(),
            proto2_only: switches.keeps(Behaviour::Proto3MarksRefused),
            self_contained: switches.keeps(Behaviour::DescriptorSelfContained),
        }
    }

    fn message(&mut self, at: usize) -> Message {
        let source: &'a MessageSource<'a> = &self.source.messages[at];
        let name = source.name.unwrap_or_default();
        self.identifier((at, None), name);
        if source.has_extensions {
            self.fault((at, None), "extensions are not supported.");
        }
        if source.has_oneofs && self.proto2_only {
            self.fault(
                (at, None),
                "oneof_decl is set, but rows are read as proto2: clear it.",
            );
        }
        let mut names = HashSet::new();
        let nested = self.nested.remove(&at).unwrap_or_default();
        let fields = source.fields.iter().map(|field| field.name.unwrap_or_default());
        for name in fields.chain(nested) {
            if !names.insert(name) {
                self.fault((at, Some(name)), "the name is taken.");
            }
        }
        let mut numbers = HashSet::new();
        let mut fields = Vec::with_capacity(source.fields.len());
        for field in &source.fields {
            if !numbers.insert(field.number) {
                let text = format!("the number {} is taken.", field.number.unwrap_or_default());
                self.fault((at, field.name), &text);
            }
            fields.extend(self.field(at, field));
        }
        Message {
            name: name.to_owned(),
            parent: source.parent,
            fields,
        }
    }

    /// A field; `None` if there is a fault, which is then told.
    fn field(&mut self, message: usize, source: &FieldSource<'a>) -> Option<Field> {
        let at = (message, source.name);
        self.identifier(at, source.name.unwrap_or_default());
        if source.is_extension {
            self.fault(at, "extensions are not supported.");
        }
        if (source.proto3_optional || source.in_oneof) && self.proto2_only {
            self.fault(
                at,
                "proto3_optional or oneof_index is set, but rows are read as proto2: clear them.",
            );
        }
        let number = u32::try_from(source.number.unwrap_or_default()).unwrap_or_default();
        if !(1..=536_870_911).contains(&number) || (19_000..=19_999).contains(&number) {
            self.fault(at, "the number is not one that a field may have.");
        }
        let label = match source.label {
            None | Some(1) => Label::Optional,
            Some(2) => Label::Required,
            Some(3) => Label::Repeated,
            Some(_) => {
                self.fault(at, "the label is unknown.");
                return None;
            }
        };
        let kind = self.kind(message, source)?;
        let default = match source.default {
            Some(text) => Some(self.default(text, label, kind, at)?),
            None => None,
        };
        Some(Field {
            name: source.name.unwrap_or_default().to_owned(),
            column_name: source.column_name.map(str::to_owned),
            number,
            label,
            kind,
            default,
        })
    }

    fn kind(&mut self, message: usize, source: &FieldSource<'a>) -> Option<FieldKind> {
        let at = (message, source.name);
        let type_name = source.type_name.filter(|name| !name.is_empty());
        let scalar = source.kind.and_then(Scalar::of);
        match (source.kind, scalar, type_name) {
            (Some(10), ..) => self.fault(at, "groups are not supported."),
            (None | Some(11 | 14), _, Some(type_name)) => {
                let found = self.resolve(message, type_name);
                match (found, source.kind) {
                    (Some(Type::Message(at)), None | Some(11)) => return Some(FieldKind::Message(at)),
                    (Some(Type::Enum(at)), None | Some(14)) => return Some(FieldKind::Enum(at)),
                    (Some(_), _) => self.fault(at, &format!("\"{type_name}\" is not of the field's type.")),
                    (None, _) if !self.self_contained => return Some(FieldKind::Scalar(Scalar::Bytes)),
                    // [PROD python-bigquery-storage #257, #519].
                    (None, _) => self.fault(at, &format!("\"{type_name}\" is not defined.")),
                }
            }
            (Some(_), Some(scalar), None) if scalar != Scalar::Enum => {
                return Some(FieldKind::Scalar(scalar));
            }
            (Some(_), Some(_), Some(_)) => self.fault(at, "a scalar has a type_name."),
            _ => self.fault(at, "the type is missing or unknown."),
        }
        None
    }

    fn default(&mut self, text: &str, label: Label, kind: FieldKind, at: At<'_>) -> Option<DefaultValue> {
        let value = match kind {
            _ if label == Label::Repeated => None,
            FieldKind::Message(_) => None,
            FieldKind::Scalar(scalar) => scalar.parse(text),
            FieldKind::Enum(at) => {
                let mut values = self.source.enums[at].values.iter();
                values
                    .find(|(name, _)| *name == Some(text))
                    .map(|(_, number)| DefaultValue::Number(Raw::Enum(*number)))
            }
        };
        if value.is_none() {
            self.fault(at, "the default_value is not one of the field's type.");
        }
        value
    }

    fn enumeration(&mut self, source: &EnumSource<'a>) -> Enum {
        self.identifier((source.parent, source.name), source.name.unwrap_or_default());
        if source.values.is_empty() {
            self.fault((source.parent, source.name), "an enum needs a value.");
        }
        let mut values = Enum::with_capacity(source.values.len());
        for (value, number) in &source.values {
            self.identifier((source.parent, *value), value.unwrap_or_default());
            let value = value.unwrap_or_default();
            values.entry(*number).or_insert_with(|| value.to_owned());
        }
        values
    }

    /// Finds a type as protobuf does: from the innermost message out, by the first part of the name.
    fn resolve(&self, from: usize, name: &str) -> Option<Type> {
        let (mut scope, absolute) = match name.strip_prefix('.') {
            Some(_) => (None, true),
            None => (Some(from), false),
        };
        let mut parts = name.trim_start_matches('.').split('.');
        let first = parts.next()?;
        let mut found = loop {
            match (self.types.get(&(scope, first)), scope) {
                (Some(found), _) => break *found,
                (None, Some(message)) if !absolute => scope = self.source.messages[message].parent,
                (None, _) => return None,
            }
        };
        for part in parts {
            let Type::Message(message) = found else {
                return None;
            };
            found = *self.types.get(&(Some(message), part))?;
        }
        Some(found)
    }

    /// Refuses types that hold themselves, and those nested deeper than STRUCTs are.
    fn depths(&mut self, descriptor: &Descriptor) {
        let mut depths = vec![None; descriptor.messages.len()];
        for at in 0..descriptor.messages.len() {
            let mut path = Vec::new();
            if let Err(text) = depth(descriptor, at, &mut path, &mut depths) {
                self.fault((at, None), text);
                return;
            }
        }
    }

    fn identifier(&mut self, at: At<'_>, name: &str) {
        if name.is_empty() {
            // [PROD GIT].
            self.fault(at, "Missing name.");
        } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.fault(at, "the name is not one of letters, digits and underscores.");
        }
    }

    fn fault(&mut self, at: At<'_>, text: &str) {
        if self.faults.len() >= MAX_FAULTS {
            return;
        }
        let messages = &self.source.messages;
        let mut name = dotted(at.0, |at| {
            (messages[at].name.unwrap_or_default(), messages[at].parent)
        });
        if let Some(member) = at.1 {
            name = format!("{name}.{member}");
        }
        let short = |text: &str| text.chars().take(MAX_NAME).collect::<String>();
        self.faults.push(fault(&short(&name), &short(text)));
    }
}

/// How many messages stand in each other below this one. Never deeper on the stack than [`MAX_DEPTH`].
fn depth(
    descriptor: &Descriptor,
    at: usize,
    path: &mut Vec<usize>,
    known: &mut [Option<usize>],
) -> Result<usize, &'static str> {
    const TOO_DEEP: &str = "messages are nested more than 15 deep.";
    if path.contains(&at) {
        return Err("the message holds itself, which no table can.");
    }
    if let Some(depth) = known[at] {
        return Ok(depth);
    }
    if path.len() >= MAX_DEPTH {
        return Err(TOO_DEEP);
    }
    path.push(at);
    let mut deepest = 0;
    for field in &descriptor.message(at).fields {
        if let FieldKind::Message(inner) = field.kind {
            deepest = deepest.max(depth(descriptor, inner, path, known)?);
        }
    }
    path.pop();
    let depth = deepest + 1;
    if depth > MAX_DEPTH {
        return Err(TOO_DEEP);
    }
    known[at] = Some(depth);
    Ok(depth)
}
