//! Which protobuf types a column takes (write-api.md 5.1 to 5.3).

use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement};
use prost_types::DescriptorProto;
use prost_types::field_descriptor_proto::Type as T;

use super::Fact;
use crate::message::{
    STREAM, append, bytes, column, enumeration, fixed32, fixed64, message, optional, packed, proto_request,
    repeated, say, typed, varint, visible,
};
use crate::world::World;

const STRING: Kind = Kind::String { max_length: None };
const BYTES: Kind = Kind::Bytes { max_length: None };
const NUMERIC: Kind = Kind::Numeric {
    precision: None,
    scale: None,
};
const BIGNUMERIC: Kind = Kind::BigNumeric {
    precision: None,
    scale: None,
};

/// One row of a table whose columns are all of one type, each from a field of another.
fn one_row(kind: &Kind, fields: &[(&str, T, Vec<u8>)]) -> Vec<String> {
    let columns = fields.iter().map(|(name, ..)| column(name, kind.clone()));
    let descriptor = fields.iter().zip(1..);
    let descriptor = descriptor.map(|((name, kind, _), number)| optional(name, number, *kind));
    let row = fields.iter().flat_map(|(_, _, value)| value.clone()).collect();
    append(
        columns.collect(),
        &message("Row", descriptor.collect()),
        vec![row],
    )
}

/// One row of one column `c`, from a field of a message type.
fn one_message(kind: Kind, nested: DescriptorProto, values: Vec<Vec<u8>>) -> Vec<String> {
    let type_name = nested.name.clone().unwrap();
    let mut row = message("Row", vec![typed("c", 1, T::Message, &type_name)]);
    row.nested_type.push(nested);
    append(vec![column("c", kind)], &row, values)
}

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a BOOL is a bool, or a 32-bit or 64-bit integer that is not zero",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Bool,
                &[
                    ("a", T::Bool, varint(1, 1)),
                    ("b", T::Int32, varint(2, 0)),
                    ("c", T::Int64, varint(3, -7)),
                    ("d", T::Uint32, varint(4, 2)),
                    ("e", T::Uint64, varint(5, -1)),
                ],
            )
        },
        answers: &["appended", "a: true, b: false, c: true, d: true, e: true"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "an INT64 is an int64, an int32 or a uint32",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Int64,
                &[
                    ("a", T::Int64, varint(1, i64::MIN)),
                    ("b", T::Int32, varint(2, -11)),
                    ("c", T::Uint32, varint(3, 4_294_967_295)),
                ],
            )
        },
        answers: &["appended", "a: -9223372036854775808, b: -11, c: 4294967295"],
    },
    Fact {
        source: "write-api.md 5.1 [PROD GIT validation]",
        says: "an INT64 is a sint32, sint64, fixed32, sfixed32 or sfixed64 too",
        behaviour: Behaviour::SignedAndFixedIntegers,
        script: || {
            one_row(
                &Kind::Int64,
                &[
                    ("a", T::Sint32, varint(1, 245)),
                    ("b", T::Sint64, varint(2, 90)),
                    ("c", T::Fixed32, fixed32(3, 1000)),
                    ("d", T::Sfixed32, fixed32(4, -999_i32 as u32)),
                    ("e", T::Sfixed64, fixed64(5, -33_i64 as u64)),
                ],
            )
        },
        answers: &["appended", "a: -123, b: 45, c: 1000, d: -999, e: -33"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]: uint64 is not listed; the text: [PROD beam #21247, google-cloud-go #5097]",
        says: "an INT64 is no uint64, and the field and both types are named",
        behaviour: Behaviour::UnlistedProtoTypesRefused,
        script: || one_row(&Kind::Int64, &[("a", T::Uint64, varint(1, 1))]),
        answers: &[
            "ended InvalidArgument: The proto field mismatched with BigQuery field at Row.a, the proto field type uint64, \
             BigQuery field type INTEGER Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [PROD GIT validation]",
        says: "an enum goes into an INT64 by number, into a STRING by name (the latter INFERRED)",
        behaviour: Behaviour::EnumsTaken,
        script: || {
            let mut row = message(
                "Row",
                vec![
                    typed("n", 1, T::Enum, "Row.Thing"),
                    typed("s", 2, T::Enum, ".Row.Thing"),
                ],
            );
            row.enum_type
                .push(enumeration("Thing", &[("P2_NONE", 0), ("P2_THING", -1)]));
            let columns = vec![column("n", Kind::Int64), column("s", STRING)];
            // proto2: a number that the enum lacks is as if it were not there.
            let rows = vec![
                [varint(1, -1), varint(2, -1)].concat(),
                [varint(1, 9), varint(2, 9)].concat(),
            ];
            append(columns, &row, rows)
        },
        answers: &["appended", "n: -1, s: P2_THING", "n: NULL, s: NULL"],
    },
    Fact {
        source: "write-api.md 5.1 INFERRED, switch enum_name_into_string",
        says: "or an enum goes into a STRING by its number",
        behaviour: Behaviour::EnumsTaken,
        script: || {
            let switches = Switches {
                enum_name_into_string: false,
                ..Switches::default()
            };
            let mut w = World::with(switches, FaultPlan::default());
            let table = w.table("w", "US", vec![column("s", STRING)]);
            let mut row = message("Row", vec![typed("s", 1, T::Enum, "Thing")]);
            row.enum_type
                .push(enumeration("Thing", &[("NONE", 0), ("THING", -1)]));
            let rows = vec![varint(1, -1), varint(1, 9)];
            let c = w.open();
            let mut said = vec![say(&mut w, c, &proto_request(STREAM, None, Some(&row), rows))];
            said.extend(visible(&w, &table));
            said
        },
        answers: &["appended", "s: -1", "s: NULL"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC; PROD GIT validation for the infinity]",
        says: "a FLOAT64 is a double or a float",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Float64,
                &[
                    ("a", T::Double, fixed64(1, f64::INFINITY.to_bits())),
                    ("b", T::Float, fixed32(2, 2.25_f32.to_bits())),
                ],
            )
        },
        answers: &["appended", "a: inf, b: 2.25"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "BYTES are bytes or a string",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &BYTES,
                &[
                    ("a", T::Bytes, bytes(1, b"\0\xff")),
                    ("b", T::String, bytes(2, "ä")),
                ],
            )
        },
        answers: &["appended", "a: 00ff, b: c3a4"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a DATE is an int32 or int64 of days, or its literal",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Date,
                &[
                    ("a", T::Int32, varint(1, -719_162)),
                    ("b", T::Int64, varint(2, 2_932_896)),
                    ("c", T::String, bytes(3, "2024-02-29")),
                ],
            )
        },
        answers: &["appended", "a: 0001-01-01, b: 9999-12-31, c: 2024-02-29"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a DATE has its range",
        behaviour: Behaviour::RangesChecked,
        script: || {
            one_row(
                &Kind::Date,
                &[
                    ("a", T::Int32, varint(1, -719_163)),
                    ("b", T::Int32, varint(2, 2_932_896)),
                ],
            )
        },
        answers: &[
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Date field value is out of range: -719163 on field a.",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC], 5.2",
        says: "a TIME is a packed int64 or its literal",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Time,
                &[
                    ("a", T::Int64, varint(1, 102_806_536_767)),
                    ("b", T::Int64, varint(2, 53_880_818_184)),
                    ("c", T::String, bytes(3, "1:2:3.5")),
                ],
            )
        },
        answers: &["appended", "a: 23:59:59.999999, b: 12:34:56.789, c: 01:02:03.500"],
    },
    Fact {
        source: "write-api.md 5.1 [DOC], 5.2",
        says: "a DATETIME is a packed int64 or its literal",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Datetime,
                &[
                    ("a", T::Int64, varint(1, 141_916_638_033_338_944)),
                    ("b", T::Int64, varint(2, 74_904_229_642_240)),
                    ("c", T::Int64, varint(3, 703_674_213_004_689_983)),
                    ("d", T::String, bytes(4, "2016-12-03 14:11:27")),
                ],
            )
        },
        answers: &[
            "appended",
            "a: 2016-12-03T14:11:27.123456, b: 0001-01-01T00:00:00, c: 9999-12-31T23:59:59.999999, d: \
             2016-12-03T14:11:27",
        ],
    },
    Fact {
        source: "write-api.md 5.2 (J:CivilTimeEncoder)",
        says: "each part of a packed time has its range, and no other bit is set",
        behaviour: Behaviour::PackedPartsChecked,
        script: || {
            let row = message(
                "Row",
                vec![optional("t", 1, T::Int64), optional("d", 2, T::Int64)],
            );
            let columns = vec![column("t", Kind::Time), column("d", Kind::Datetime)];
            let month_13 = (2024_i64 << 46) | (13 << 42) | (1 << 37);
            append(
                columns,
                &row,
                vec![varint(1, 60 << 20), varint(1, 1 << 37), varint(2, month_13)],
            )
        },
        answers: &[
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Time field value is out of range: 62914560 on field t.; row 1 \
             FIELDS_ERROR: Time field value is out of range: 137438953472 on field t.; row 2 FIELDS_ERROR: Datetime \
             field value is out of range: 142483650259189760 on field d.",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a TIMESTAMP is an int64, int32 or uint32 of microseconds, or its literal",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &Kind::Timestamp,
                &[
                    ("a", T::Int64, varint(1, -1)),
                    ("b", T::Int32, varint(2, 1_000_000)),
                    ("c", T::Uint32, varint(3, 4_000_000_000)),
                    ("d", T::String, bytes(4, "2024-01-02 03:04:05+01")),
                ],
            )
        },
        answers: &[
            "appended",
            "a: 1969-12-31T23:59:59.999999Z, b: 1970-01-01T00:00:01Z, c: 1970-01-01T01:06:40Z, d: \
             2024-01-02T02:04:05Z",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a TIMESTAMP is a google.protobuf.Timestamp, if the descriptor holds it",
        behaviour: Behaviour::SecondsMessagesTaken,
        script: || {
            let timestamp = message(
                "google_protobuf_Timestamp",
                vec![optional("seconds", 1, T::Int64), optional("nanos", 2, T::Int32)],
            );
            let value = [varint(1, -1), varint(2, 999_999_000)].concat();
            one_message(
                Kind::Timestamp,
                timestamp,
                vec![bytes(1, value), bytes(1, b""), Vec::new()],
            )
        },
        answers: &[
            "appended",
            "c: 1969-12-31T23:59:59.999999Z",
            "c: 1970-01-01T00:00:00Z",
            "c: NULL",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [PROD JIT]",
        says: "a TIMESTAMP(12) is its literal, or a message of seconds and picoseconds",
        behaviour: Behaviour::SecondsMessagesTaken,
        script: || {
            let picoseconds = message(
                "Picos",
                vec![
                    optional("seconds", 1, T::Int64),
                    optional("picoseconds", 2, T::Int64),
                ],
            );
            let value = [varint(1, 1_735_734_896), varint(2, 123_456_789_123)].concat();
            let kind = Kind::TimestampPicoseconds;
            let mut said = one_message(kind.clone(), picoseconds, vec![bytes(1, value)]);
            let text = bytes(1, "2025-01-01T12:34:56.123456789123Z");
            said.extend(one_row(&kind, &[("c", T::String, text)]));
            said
        },
        answers: &[
            "appended",
            "c: 1735734896.123456789123",
            "appended",
            "c: 1735734896.123456789123",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a NUMERIC is a number of any kind, a string, or bytes",
        behaviour: Behaviour::ListedProtoTypesTaken,
        script: || {
            one_row(
                &NUMERIC,
                &[
                    ("a", T::Int32, varint(1, -7)),
                    ("b", T::Int64, varint(2, i64::MAX)),
                    ("c", T::Uint32, varint(3, 4_294_967_295)),
                    ("d", T::Uint64, varint(4, -1)),
                    ("e", T::Double, fixed64(5, 0.1_f64.to_bits())),
                    ("f", T::Float, fixed32(6, 2.5_f32.to_bits())),
                    ("g", T::String, bytes(7, "-1.5e2")),
                    ("h", T::Bytes, bytes(8, b"\x00\x2f\x68\x59")),
                ],
            )
        },
        answers: &[
            "appended",
            "a: -7.000000000, b: 9223372036854775807.000000000, c: 4294967295.000000000, d: \
             18446744073709551615.000000000, e: 0.100000000, f: 2.500000000, g: -150.000000000, h: 1.500000000",
        ],
    },
    Fact {
        source: "write-api.md 5.3 (J:BigDecimalByteStringEncoder)",
        says: "NUMERIC and BIGNUMERIC bytes are an integer at scale 9 or 38, two's complement, little endian",
        behaviour: Behaviour::NumericBytesLittleEndian,
        script: || {
            let mut said = one_row(
                &NUMERIC,
                &[
                    ("a", T::Bytes, bytes(1, b"\x00\xca\x9a\x3b")),
                    ("b", T::Bytes, bytes(2, b"\x00\x2f\x68\x59")),
                    ("c", T::Bytes, bytes(3, b"\x00\x36\x65\xc4")),
                    ("d", T::Bytes, bytes(4, b"\x00")),
                    ("e", T::Bytes, bytes(5, b"\x01")),
                ],
            );
            let one = b"\0\0\0\0\x40\x22\x8a\x09\x7a\xc4\x86\x5a\xa8\x4c\x3b\x4b";
            said.extend(one_row(&BIGNUMERIC, &[("a", T::Bytes, bytes(1, one))]));
            said
        },
        answers: &[
            "appended",
            "a: 1.000000000, b: 1.500000000, c: -1.000000000, d: 0.000000000, e: 0.000000001",
            "appended",
            "a: 1.00000000000000000000000000000000000000",
        ],
    },
    Fact {
        source: "write-api.md 5.3",
        says: "NUMERIC ends at 38 nines, BIGNUMERIC where 256 bits do",
        behaviour: Behaviour::RangesChecked,
        script: || {
            let most = 10_i128.pow(38) - 1;
            let numeric = |value: i128| vec![("a", T::Bytes, bytes(1, value.to_le_bytes()))];
            let mut said = one_row(&NUMERIC, &numeric(most));
            said.extend(one_row(&NUMERIC, &numeric(-most)));
            said.extend(one_row(&NUMERIC, &numeric(most + 1)));
            let mut least = [0; 32];
            least[31] = 0x80;
            // Arrow writes 76 digits of it, where it has 77: its text is not compared.
            said.push(one_row(&BIGNUMERIC, &[("a", T::Bytes, bytes(1, least))]).remove(0));
            said
        },
        answers: &[
            "appended",
            "a: 99999999999999999999999999999.999999999",
            "appended",
            "a: -99999999999999999999999999999.999999999",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Invalid NUMERIC value: out of range on field a.",
            "appended",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "JSON and GEOGRAPHY are strings that hold such",
        behaviour: Behaviour::JsonAndGeographyChecked,
        script: || {
            let mut said = one_row(&Kind::Json, &[("a", T::String, bytes(1, "[1, {}]"))]);
            said.extend(one_row(
                &Kind::Geography,
                &[("a", T::String, bytes(1, "POINT(1 2)"))],
            ));
            said.extend(one_row(&Kind::Json, &[("a", T::String, bytes(1, "[1"))]));
            said.extend(one_row(&Kind::Geography, &[("a", T::String, bytes(1, "here"))]));
            said
        },
        answers: &[
            "appended",
            "a: [1, {}]",
            "appended",
            "a: POINT(1 2)",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Invalid JSON on field a.",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: Invalid geography on field a.",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "an INTERVAL is its literal or a google.protobuf.Duration",
        behaviour: Behaviour::SecondsMessagesTaken,
        script: || {
            let duration = message(
                "Duration",
                vec![optional("seconds", 1, T::Int64), optional("nanos", 2, T::Int32)],
            );
            let value = [varint(1, -3_600), varint(2, -1_000)].concat();
            let mut said = one_message(Kind::Interval, duration, vec![bytes(1, value)]);
            said.extend(one_row(
                &Kind::Interval,
                &[("c", T::String, bytes(1, "1-2 3 -4:5:6.5"))],
            ));
            said
        },
        answers: &[
            "appended",
            "c: {months: 0, days: 0, microseconds: -3600000001}",
            "appended",
            "c: {months: 14, days: 3, microseconds: -14706500000}",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a RANGE is a message of start and end, and a bound that is not set is no bound",
        behaviour: Behaviour::MessagesTaken,
        script: || {
            let range = message(
                "R",
                vec![optional("end", 1, T::String), optional("start", 2, T::Int32)],
            );
            let both = [bytes(1, "1970-01-03"), varint(2, 1)].concat();
            one_message(
                Kind::Range(RangeElement::Date),
                range,
                vec![bytes(1, both), bytes(1, b""), Vec::new()],
            )
        },
        answers: &[
            "appended",
            "c: {start: 1970-01-02, end: 1970-01-03}",
            "c: {start: NULL, end: NULL}",
            "c: NULL",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [DOC]",
        says: "a STRUCT is a message",
        behaviour: Behaviour::MessagesTaken,
        script: || {
            let inner = vec![
                Column::new("x", Kind::Int64, Mode::Required),
                Column::new("l", STRING, Mode::Repeated),
            ];
            let nested = message(
                "In",
                vec![optional("x", 1, T::Int64), repeated("l", 2, T::String)],
            );
            let value = [varint(1, 7), bytes(2, "a"), bytes(2, "b")].concat();
            let mut said = one_message(
                Kind::Struct(inner.clone()),
                nested.clone(),
                vec![bytes(1, value), Vec::new()],
            );
            said.extend(one_message(Kind::Struct(inner), nested, vec![bytes(1, b"")]));
            said
        },
        answers: &[
            "appended",
            "c: {x: 7, l: [a, b]}",
            "c: NULL",
            "InvalidArgument: ...; row 0 FIELDS_ERROR: NULL value is not allowed on field c.x.",
        ],
    },
    Fact {
        source: "write-api.md 5.1 [PROD GIT]",
        says: "a REPEATED column is a repeated field, packed or not; an empty array and no array are the same",
        behaviour: Behaviour::PackedAndUnpacked,
        script: || {
            let columns = vec![Column::new("l", Kind::Int64, Mode::Repeated)];
            let row = message("Row", vec![repeated("l", 1, T::Int64)]);
            let rows = vec![
                [varint(1, 1), bytes(1, packed(&[2, -3])), varint(1, 4)].concat(),
                bytes(1, b""),
                Vec::new(),
            ];
            append(columns, &row, rows)
        },
        answers: &["appended", "l: [1, 2, -3, 4]", "l: []", "l: []"],
    },
    Fact {
        source: "write-api.md 5.1, 5.4 [DOC]",
        says: "a wrapper message stands for the value that it wraps",
        behaviour: Behaviour::WrappersTaken,
        script: || {
            let wrapper = message("google_protobuf_Int64Value", vec![optional("value", 1, T::Int64)]);
            let values = vec![bytes(1, varint(1, 5)), bytes(1, b""), Vec::new()];
            one_message(Kind::Int64, wrapper, values)
        },
        answers: &["appended", "c: 5", "c: 0", "c: NULL"],
    },
];
