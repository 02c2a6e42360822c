//! The writer schema of protobuf rows: one self-contained proto2 `DescriptorProto` (write-api.md 5.4).
//!
//! Written without `prost_types`, whose options have no place for the extension that names a field's column.

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message as _;

use super::layout::{Field, Kind, Label, Message};

/// Name of the message that is a row.
const ROW: &str = "Row";

#[derive(Clone, PartialEq, prost::Message)]
struct DescriptorProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<FieldDescriptorProto>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<Self>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FieldDescriptorProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    r#type: i32,
    #[prost(string, optional, tag = "6")]
    type_name: Option<String>,
    #[prost(message, optional, tag = "8")]
    options: Option<FieldOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FieldOptions {
    #[prost(bool, optional, tag = "2")]
    packed: Option<bool>,
    /// `google.cloud.bigquery.storage.v1.column_name` (write-api.md 1.2).
    #[prost(string, optional, tag = "454943157")]
    column_name: Option<String>,
}

/// Describes a row. All messages stand in the row's own, under names that no other message and no column has: two STRUCTs may have
/// fields of one name.
pub(super) fn describe(row: &Message) -> Bytes {
    let mut types = Types {
        taken: row.fields.iter().map(|field| folded(&field.name)).collect(),
        nested: Vec::new(),
    };
    // The columns that only rows of changes have (`_CHANGE_TYPE`) are further fields here, behind the table's (write-api.md 6).
    let field = types.fields(row);
    let row = DescriptorProto {
        name: ROW.to_owned(),
        field,
        nested_type: types.nested,
    };
    row.encode_to_vec().into()
}

/// The messages that stand in the row's.
struct Types {
    /// Names of the row's fields, folded: fields and messages of one message share their names.
    taken: HashSet<String>,
    nested: Vec<DescriptorProto>,
}

impl Types {
    fn fields(&mut self, message: &Message) -> Vec<FieldDescriptorProto> {
        let columns: HashSet<String> = message.fields.iter().map(|field| folded(&field.name)).collect();
        message
            .fields
            .iter()
            .map(|field| {
                let column_name = (!is_identifier(&field.name)).then(|| field.name.clone());
                let name = match column_name {
                    Some(_) => placeholder(field.number, &columns),
                    None => field.name.clone(),
                };
                self.field(field, name, column_name)
            })
            .collect()
    }

    fn field(&mut self, field: &Field, name: String, column_name: Option<String>) -> FieldDescriptorProto {
        let type_name = match &field.kind {
            Kind::Message(message) => Some(self.message(message)),
            _ => None,
        };
        let packed = (field.label == Label::Repeated && field.kind.packs()).then_some(true);
        let options = FieldOptions { packed, column_name };
        FieldDescriptorProto {
            name,
            number: i32::try_from(field.number).expect("a table has at most 10,000 columns"),
            label: match field.label {
                Label::Optional => 1,
                Label::Required => 2,
                Label::Repeated => 3,
            },
            r#type: type_number(&field.kind),
            type_name,
            options: (options != FieldOptions::default()).then_some(options),
        }
    }

    /// Describes a message; gives its name.
    fn message(&mut self, message: &Message) -> String {
        let field = self.fields(message);
        let name = free(&format!("Struct{}", self.nested.len() + 1), &self.taken);
        self.nested.push(DescriptorProto {
            name: name.clone(),
            field,
            nested_type: Vec::new(),
        });
        name
    }
}

/// A kind's type as protobuf spells it.
pub(super) fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Double => "double",
        Kind::Int64 | Kind::Time | Kind::Datetime => "int64",
        Kind::Date => "int32",
        Kind::Bool => "bool",
        Kind::Text | Kind::Picoseconds(_) | Kind::Interval => "string",
        Kind::Message(_) => "message",
        Kind::Bytes | Kind::Numeric | Kind::Bignumeric(_) => "bytes",
    }
}

/// `FieldDescriptorProto.Type`.
fn type_number(kind: &Kind) -> i32 {
    match kind {
        Kind::Double => 1,
        Kind::Int64 | Kind::Time | Kind::Datetime => 3,
        Kind::Date => 5,
        Kind::Bool => 8,
        Kind::Text | Kind::Picoseconds(_) | Kind::Interval => 9,
        Kind::Message(_) => 11,
        Kind::Bytes | Kind::Numeric | Kind::Bignumeric(_) => 12,
    }
}

/// Whether protobuf takes it as a name of a field.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Stands in for a name that protobuf does not take; the annotation says which column is meant (write-api.md 5.4). By number, not
/// by an encoding of the name as in Google's clients: names are matched without regard to case, which those encodings need.
fn placeholder(number: u32, columns: &HashSet<String>) -> String {
    free(&format!("col_{number}"), columns)
}

/// The name, or with underscores behind it the first that is not taken.
fn free(name: &str, taken: &HashSet<String>) -> String {
    let mut name = name.to_owned();
    while taken.contains(&folded(&name)) {
        name.push('_');
    }
    name
}

/// Names are matched without regard to case (write-api.md 5.1).
fn folded(name: &str) -> String {
    name.to_lowercase()
}
