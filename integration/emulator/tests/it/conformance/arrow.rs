//! Rows as Arrow: messages, and which Arrow types a column takes (write-api.md 5.5).

use std::sync::Arc;

use arrow_array::types::{IntervalDayTime, IntervalMonthDayNano};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal128Array,
    Decimal256Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeBinaryArray,
    LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray, StructArray,
    Time32MillisecondArray, Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_cast::display::array_value_to_string;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::{Behaviour, Switches};
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement};
use bigquery_write_proto::wire::write_stream::Type;

use super::{DEFAULT, Fact};
use crate::world::{World, ints, messages, raw_request, request};

/// Appends one column `v` to a new table that has it: the values kept, or what is said.
fn kept(kind: Kind, mode: Mode, values: ArrayRef) -> String {
    kept_with(Switches::default(), kind, mode, values)
}

fn kept_with(switches: Switches, kind: Kind, mode: Mode, values: ArrayRef) -> String {
    const STREAM: &str = "projects/p/datasets/d/tables/w/_default";
    let mut w = World::with(switches, FaultPlan::default());
    let table = w.table("w", "US", vec![Column::new("v", kind, mode)]);
    let c = w.open();
    let batch = RecordBatch::try_from_iter_with_nullable([("v", values, true)]).unwrap();
    let said = w.send(c, &request(STREAM, None, &batch));
    if said != "appended" {
        return said.replace("projects/p/datasets/d/tables/w/streams/_default", "W");
    }
    let rows = w.machine.catalog().table(&table).unwrap().all_rows();
    let column = rows.column(0);
    let value = |row| match column.is_null(row) {
        true => "NULL".to_owned(),
        false => array_value_to_string(column, row).unwrap(),
    };
    (0..rows.num_rows()).map(value).collect::<Vec<_>>().join(" ")
}

fn one(kind: Kind, values: impl Array + 'static) -> String {
    kept(kind, Mode::Nullable, Arc::new(values))
}

fn structs(parts: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = parts.iter().map(field).collect();
    StructArray::new(fields, parts.into_iter().map(|(_, array)| array).collect(), nulls)
}

fn range(start: impl Array + 'static, end: impl Array + 'static) -> StructArray {
    structs(vec![("start", Arc::new(start)), ("end", Arc::new(end))], None)
}

fn lists(nulls: Option<NullBuffer>) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let (offsets, values) = (OffsetBuffer::from_lengths([2, 0]), Int64Array::from(vec![1, 2]));
    Arc::new(ListArray::new(item, offsets, Arc::new(values), nulls))
}

fn numeric(precision: Option<u8>, scale: Option<u8>) -> Kind {
    Kind::Numeric { precision, scale }
}

const TEXT: Kind = Kind::String { max_length: None };
const TABLE: &str = "write-api.md 5.5 [DOC D:supported-data-types]";

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: TABLE,
        says: "BOOL takes Boolean",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![one(
                Kind::Bool,
                BooleanArray::from(vec![Some(true), None, Some(false)]),
            )]
        },
        answers: &["true NULL false"],
    },
    Fact {
        source: "write-api.md 5.5 [DOC; PROD JIT, RIT for int64]",
        says: "INT64 takes signed integers of 8, 16, 32 and 64 bits",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![
                one(Kind::Int64, Int8Array::from(vec![i8::MIN])),
                one(Kind::Int64, Int16Array::from(vec![i16::MIN])),
                one(Kind::Int64, Int32Array::from(vec![i32::MIN])),
                one(Kind::Int64, Int64Array::from(vec![i64::MIN])),
            ]
        },
        answers: &["-128", "-32768", "-2147483648", "-9223372036854775808"],
    },
    Fact {
        source: TABLE,
        says: "FLOAT64 takes floating points of single and double precision",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![
                one(Kind::Float64, Float32Array::from(vec![1.5, f32::INFINITY])),
                one(Kind::Float64, Float64Array::from(vec![0.1])),
            ]
        },
        answers: &["1.5 inf", "0.1"],
    },
    Fact {
        source: TABLE,
        says: "NUMERIC takes Decimal128 of any precision and scale within its own, BIGNUMERIC Decimal256",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let decimal = |value, precision, scale| {
                let array = Decimal128Array::from(vec![value]);
                array.with_precision_and_scale(precision, scale).unwrap()
            };
            let big = Decimal256Array::from(vec![i256::from(15)]);
            let kind = Kind::BigNumeric {
                precision: None,
                scale: None,
            };
            vec![
                one(numeric(None, None), decimal(-15, 3, 1)),
                one(numeric(None, None), decimal(1, 38, 9)),
                one(numeric(None, None), decimal(1, 38, 10)),
                one(numeric(None, None), decimal(1, 38, 8)),
                one(kind, big.with_precision_and_scale(40, 1).unwrap()),
            ]
        },
        answers: &[
            "-1.500000000",
            "0.000000001",
            "ended InvalidArgument: Found incompatible fields: 'v' (Decimal128(38, 10) for NUMERIC) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Decimal128(38, 8) for NUMERIC) Entity: W",
            "1.50000000000000000000000000000000000000",
        ],
    },
    Fact {
        source: TABLE,
        says: "STRING, JSON and GEOGRAPHY take Utf8, BYTES Binary",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![
                one(TEXT, StringArray::from(vec!["ä", ""])),
                one(Kind::Json, StringArray::from(vec!["{\"a\": 1}"])),
                one(Kind::Geography, StringArray::from(vec!["POINT(1 2)"])),
                one(
                    Kind::Bytes { max_length: None },
                    BinaryArray::from(vec![&b"\0\xff"[..]]),
                ),
            ]
        },
        answers: &["ä ", "{\"a\": 1}", "POINT(1 2)", "00ff"],
    },
    Fact {
        source: TABLE,
        says: "DATE takes Date in days, int32 and Utf8",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![
                one(Kind::Date, Date32Array::from(vec![-719_162])),
                one(Kind::Date, Int32Array::from(vec![2_932_896])),
                one(Kind::Date, StringArray::from(vec!["2024-02-29"])),
            ]
        },
        answers: &["0001-01-01", "9999-12-31", "2024-02-29"],
    },
    Fact {
        source: "write-api.md 5.5 [DOC; PY for TIME]",
        says: "DATETIME takes Timestamp in µs without a zone, TIMESTAMP in UTC, TIME Time64 in µs",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let micros = || TimestampMicrosecondArray::from(vec![1]);
            vec![
                one(Kind::Datetime, micros()),
                one(Kind::Timestamp, micros().with_timezone("UTC")),
                one(Kind::Time, Time64MicrosecondArray::from(vec![1])),
                one(Kind::Datetime, micros().with_timezone("UTC")),
            ]
        },
        answers: &[
            "1970-01-01T00:00:00.000001",
            "1970-01-01T00:00:00.000001Z",
            "00:00:00.000001",
            "ended InvalidArgument: Found incompatible fields: 'v' (Timestamp(Microsecond, Some(\"UTC\")) for DATETIME) \
             Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 5.5 (PY sample)",
        says: "TIMESTAMP takes Timestamp in µs without a zone too",
        behaviour: Behaviour::TimestampNeedsNoZone,
        script: || vec![one(Kind::Timestamp, TimestampMicrosecondArray::from(vec![1]))],
        answers: &["1970-01-01T00:00:00.000001Z"],
    },
    Fact {
        source: "write-api.md 5.5 [PROD JIT timestamp_arrowWrite]",
        says: "TIMESTAMP(12) takes Timestamp in ns in UTC, and keeps all of it",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let nanos = TimestampNanosecondArray::from(vec![1_735_734_896_123_456_789, -1]);
            vec![one(Kind::TimestampPicoseconds, nanos.with_timezone("UTC"))]
        },
        answers: &["1735734896.123456789000 -0.000000001000"],
    },
    Fact {
        source: TABLE,
        says: "INTERVAL takes each of Arrow's three units, and Utf8",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            vec![
                one(Kind::Interval, IntervalYearMonthArray::from(vec![-14])),
                one(
                    Kind::Interval,
                    IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, -2)]),
                ),
                one(
                    Kind::Interval,
                    IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3_000)]),
                ),
                one(Kind::Interval, StringArray::from(vec!["1-2 3 4:5:6"])),
            ]
        },
        answers: &[
            "{months: -14, days: 0, microseconds: 0}",
            "{months: 0, days: 1, microseconds: -2000}",
            "{months: 1, days: 2, microseconds: 3}",
            "{months: 14, days: 3, microseconds: 14706000000}",
        ],
    },
    Fact {
        source: TABLE,
        says: "RANGE takes a struct of start and end, of Date in days or of Timestamp in µs without or with UTC",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let dates = |days| Date32Array::from(vec![days]);
            let micros = |micros| TimestampMicrosecondArray::from(vec![micros]);
            let utc = |value| micros(value).with_timezone("UTC");
            vec![
                one(Kind::Range(RangeElement::Date), range(dates(0), dates(1))),
                one(Kind::Range(RangeElement::Datetime), range(micros(0), micros(1))),
                one(Kind::Range(RangeElement::Timestamp), range(utc(0), utc(1))),
            ]
        },
        answers: &[
            "{start: 1970-01-01, end: 1970-01-02}",
            "{start: 1970-01-01T00:00:00, end: 1970-01-01T00:00:00.000001}",
            "{start: 1970-01-01T00:00:00Z, end: 1970-01-01T00:00:00.000001Z}",
        ],
    },
    Fact {
        source: TABLE,
        says: "a NULL bound of a RANGE is unbounded",
        behaviour: Behaviour::NullBoundsUnbounded,
        script: || {
            let start = Date32Array::from(vec![None, Some(0)]);
            let end = Date32Array::from(vec![Some(1), None]);
            vec![one(Kind::Range(RangeElement::Date), range(start, end))]
        },
        answers: &["{start: , end: 1970-01-02} {start: 1970-01-01, end: }"],
    },
    Fact {
        source: "write-api.md 5.5 (D:data-types: the lower bound is inclusive, the upper exclusive)",
        says: "a RANGE goes forward",
        behaviour: Behaviour::RangesChecked,
        script: || {
            let range = range(Date32Array::from(vec![0, 1]), Date32Array::from(vec![1, 1]));
            vec![one(Kind::Range(RangeElement::Date), range)]
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: W; row 1 FIELDS_ERROR: Range start \
             element must be smaller than range end element on field v.",
        ],
    },
    Fact {
        source: TABLE,
        says: "STRUCT takes Struct, REPEATED takes List",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let kind = Kind::Struct(vec![Column::new("a", Kind::Int64, Mode::Nullable)]);
            let ints: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
            let array = structs(vec![("a", ints)], Some(NullBuffer::from(vec![true, false])));
            let repeated_structs = one(kind, array);
            vec![repeated_structs, kept(Kind::Int64, Mode::Repeated, lists(None))]
        },
        answers: &["{a: 1} NULL", "[1, 2] []"],
    },
    Fact {
        source: "write-api.md 5.5 (D:schemas: STRUCTs are nested 15 deep at most)",
        says: "that many STRUCTs go in each other, though each be an element of an array",
        behaviour: Behaviour::ListedArrowTypesTaken,
        script: || {
            let mut array: ArrayRef = Arc::new(Int64Array::from(vec![7]));
            let mut kind = Kind::Int64;
            for _ in 0..15 {
                kind = Kind::Struct(vec![Column::new("s", kind, Mode::Repeated)]);
                let item = Arc::new(Field::new("item", array.data_type().clone(), true));
                let list = ListArray::new(item, OffsetBuffer::from_lengths([1]), array, None);
                array = Arc::new(structs(vec![("s", Arc::new(list))], None));
            }
            vec![kept(kind, Mode::Nullable, array)]
        },
        answers: &[
            "{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [{s: [7]}]}]}]}]}]}]}]}]}]}]}]}]}]}]}",
        ],
    },
    Fact {
        source: TABLE,
        says: "a REPEATED column refuses a NULL list: it must be sent as an empty one",
        behaviour: Behaviour::NullListsRefused,
        script: || {
            let nulls = NullBuffer::from(vec![true, false]);
            vec![kept(Kind::Int64, Mode::Repeated, lists(Some(nulls)))]
        },
        answers: &[
            "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for details. The \
             list may not be complete because of the size limitations. Entity: W; row 1 FIELDS_ERROR: REPEATED field \
             cannot be NULL, an empty list is needed on field v.",
        ],
    },
    Fact {
        source: "write-api.md 5.5, UNCONFIRMED, switches arrow_unsigned_integers, arrow_other_layouts and \
                 arrow_other_time_units",
        says: "Arrow types that Google's table does not list are refused",
        behaviour: Behaviour::UnlistedArrowTypesRefused,
        script: || {
            vec![
                one(Kind::Int64, UInt64Array::from(vec![1])),
                one(TEXT, LargeStringArray::from(vec!["a"])),
                one(
                    Kind::Bytes { max_length: None },
                    LargeBinaryArray::from(vec![&b"a"[..]]),
                ),
                one(Kind::Date, Date64Array::from(vec![0])),
                one(Kind::Time, Time32MillisecondArray::from(vec![0])),
                one(Kind::Time, Time64NanosecondArray::from(vec![0])),
                one(Kind::Datetime, TimestampMillisecondArray::from(vec![0])),
                one(Kind::Timestamp, TimestampNanosecondArray::from(vec![0])),
            ]
        },
        answers: &[
            "ended InvalidArgument: Found incompatible fields: 'v' (UInt64 for INT64) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (LargeUtf8 for STRING) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (LargeBinary for BYTES) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Date64 for DATE) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Time32(Millisecond) for TIME) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Time64(Nanosecond) for TIME) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Timestamp(Millisecond, None) for DATETIME) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Timestamp(Nanosecond, None) for TIMESTAMP) Entity: W",
        ],
    },
    Fact {
        source: "write-api.md 5.5, UNCONFIRMED, switch arrow_other_layouts",
        says: "so are views and bytes of a fixed size, or they are taken",
        behaviour: Behaviour::UnlistedArrowTypesRefused,
        script: || {
            let bytes = Kind::Bytes { max_length: Some(3) };
            let long = "longer than twelve bytes";
            let fixed = FixedSizeBinaryArray::try_from_iter([b"abc", b"def"].into_iter()).unwrap();
            let columns: [(Kind, ArrayRef); 3] = [
                (
                    TEXT,
                    Arc::new(StringViewArray::from(vec![Some("a"), None, Some(long)])),
                ),
                (
                    bytes.clone(),
                    Arc::new(BinaryViewArray::from(vec![&b"abc"[..], b""])),
                ),
                (bytes, Arc::new(fixed)),
            ];
            let mut said = Vec::new();
            for taken in [false, true] {
                for (kind, values) in columns.clone() {
                    let switches = Switches {
                        arrow_other_layouts: taken,
                        ..Switches::default()
                    };
                    said.push(kept_with(switches, kind, Mode::Nullable, values));
                }
            }
            said
        },
        answers: &[
            "ended InvalidArgument: Found incompatible fields: 'v' (Utf8View for STRING) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (BinaryView for BYTES) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (FixedSizeBinary(3) for BYTES) Entity: W",
            "a NULL longer than twelve bytes",
            "616263 ",
            "616263 646566",
        ],
    },
    Fact {
        source: "write-api.md 5.5, UNCONFIRMED, switches arrow_unsigned_integers and arrow_other_time_units",
        says: "or unsigned integers and other units of time are taken, each by a switch of its own",
        behaviour: Behaviour::RangesChecked,
        script: || {
            let columns: [(Kind, ArrayRef); 3] = [
                (Kind::Int64, Arc::new(UInt64Array::from(vec![i64::MAX as u64]))),
                (
                    Kind::Datetime,
                    Arc::new(TimestampMillisecondArray::from(vec![1_500])),
                ),
                (
                    Kind::Datetime,
                    Arc::new(TimestampMillisecondArray::from(vec![-99_999_999_999_999])),
                ),
            ];
            let mut said = Vec::new();
            for (integers, units) in [(true, false), (false, true)] {
                for (kind, values) in columns.clone() {
                    let switches = Switches {
                        arrow_unsigned_integers: integers,
                        arrow_other_time_units: units,
                        ..Switches::default()
                    };
                    let answer = kept_with(switches, kind, Mode::Nullable, values);
                    said.push(answer.split("; ").last().unwrap_or_default().to_owned());
                }
            }
            said
        },
        answers: &[
            "9223372036854775807",
            "ended InvalidArgument: Found incompatible fields: 'v' (Timestamp(Millisecond, None) for DATETIME) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (Timestamp(Millisecond, None) for DATETIME) Entity: W",
            "ended InvalidArgument: Found incompatible fields: 'v' (UInt64 for INT64) Entity: W",
            "1970-01-01T00:00:01.500",
            "row 0 FIELDS_ERROR: Datetime field value is out of range: -99999999999999000 on field v.",
        ],
    },
    Fact {
        source: "write-api.md 5.5, UNCONFIRMED, switch arrow_compression",
        says: "a compressed body is refused, or LZ4 is read; a damaged one is refused either way",
        behaviour: Behaviour::CompressedArrowRefused,
        script: || {
            let batch = ints(7, 1000);
            let options = IpcWriteOptions::default();
            let options = options
                .try_with_compression(Some(CompressionType::LZ4_FRAME))
                .unwrap();
            let mut writer =
                StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
            let schema = writer.get_ref().clone();
            writer.write(&batch).unwrap();
            let rows = writer.get_ref()[schema.len()..].to_vec();
            // How an LZ4 frame begins; before it stands the length of what is in it.
            let frame = rows
                .windows(4)
                .position(|word| word == [0x04, 0x22, 0x4d, 0x18])
                .unwrap();
            let damaged = |at: usize| {
                let mut rows = rows.clone();
                rows[at] ^= 1;
                rows
            };
            let sent = [
                (false, rows.clone()),
                (true, rows.clone()),
                (true, damaged(frame)),
                (true, damaged(frame - 8)),
            ];
            let mut said = vec![(rows.len() < 8000).to_string()];
            for (taken, rows) in sent {
                let mut w = World::new();
                w.machine.switches_mut().arrow_compression = taken;
                let c = w.open();
                said.push(w.send(c, &raw_request(DEFAULT, None, Some(schema.clone()), rows)));
                let kept = w.visible();
                said.push(format!("{} rows, the last {:?}", kept.len(), kept.last()));
            }
            said
        },
        answers: &[
            "true",
            "ended InvalidArgument: Invalid Arrow data: the Arrow record batch is compressed. Entity: T/streams/_default",
            "0 rows, the last None",
            "appended",
            "1000 rows, the last Some(1006)",
            "ended InvalidArgument: Invalid Arrow data: a buffer of field \"n\" is no LZ4 data of its length. Entity: \
             T/streams/_default",
            "0 rows, the last None",
            "ended InvalidArgument: Invalid Arrow data: a buffer of field \"n\" is no LZ4 data of its length. Entity: \
             T/streams/_default",
            "0 rows, the last None",
        ],
    },
    Fact {
        source: "write-api.md 5.5, 6 [DOC D:change-data-capture]; the text is UNCONFIRMED",
        says: "rows in Arrow change no others: what says so is an extra field",
        behaviour: Behaviour::ArrowTakesNoChanges,
        script: || {
            let mut w = World::new();
            let c = w.open();
            let kinds: ArrayRef = Arc::new(StringArray::from(vec!["UPSERT"]));
            let n: ArrayRef = Arc::new(Int64Array::from(vec![1]));
            let batch = RecordBatch::try_from_iter([("n", n), ("_CHANGE_TYPE", kinds)]).unwrap();
            vec![w.send(c, &request(DEFAULT, None, &batch))]
        },
        answers: &[
            "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(T/streams/_default): Input schema has more fields than \
             BigQuery schema, extra fields: '_CHANGE_TYPE' Entity: T/streams/_default",
        ],
    },
    Fact {
        source: "write-api.md 5.5 [PROD RIT]",
        says: "Arrow fields that are not nullable fit NULLABLE columns",
        behaviour: Behaviour::NonNullableFieldsTaken,
        script: || {
            let mut w = World::new();
            let c = w.open();
            let field = Field::new("n", DataType::Int64, false);
            let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1]))];
            let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![field])), columns).unwrap();
            vec![w.send(c, &request(DEFAULT, None, &batch))]
        },
        answers: &["appended"],
    },
    Fact {
        source: "write-api.md 5.5 [PROD apache/arrow-go #425, google-cloud-rust PR #6322]",
        says: "rows are one record batch message; a whole IPC stream is refused",
        behaviour: Behaviour::OneArrowMessageOnly,
        script: || {
            let mut w = World::new();
            let (schema, rows) = messages(&ints(1, 1));
            let mut send = |rows: Vec<u8>| {
                let c = w.open();
                w.send(c, &raw_request(DEFAULT, None, Some(schema.clone()), rows))
            };
            vec![send(rows.clone()), send([schema.clone(), rows].concat())]
        },
        answers: &[
            "appended",
            "ended InvalidArgument: Invalid Arrow data: the rows are not one Arrow RecordBatch message but begin with a \
             Schema message; an IPC stream is not accepted. Entity: T/streams/_default",
        ],
    },
    Fact {
        source: "write-api.md 5.5 [DOC]",
        says: "a request has one record batch, and offsets count its rows",
        behaviour: Behaviour::AnswersFirstRowOffset,
        script: || {
            let mut w = World::new();
            let (s, c) = (w.create(Type::Committed), w.open());
            vec![
                w.send(c, &request(&s, Some(0), &ints(1, 3))),
                w.send(c, &request(&s, Some(3), &ints(4, 1))),
            ]
        },
        answers: &["at 0", "at 3"],
    },
    Fact {
        source: "write-api.md 1.2 [DOC P]",
        says: "a stream's schema tells a RANGE's element and a TIMESTAMP's precision",
        behaviour: Behaviour::CreateAnswersSchema,
        script: || {
            let mut w = World::new();
            let columns = vec![
                Column::new("r", Kind::Range(RangeElement::Datetime), Mode::Repeated),
                Column::new("p", Kind::TimestampPicoseconds, Mode::Required),
                Column::new("t", Kind::Timestamp, Mode::Nullable),
                Column::new("i", Kind::Interval, Mode::Nullable),
            ];
            w.table("w", "US", columns);
            let reply = w.try_create("projects/p/datasets/d/tables/w", Type::Committed);
            let fields = reply.result.unwrap().table_schema.unwrap_or_default().fields;
            let element = |field: &bigquery_write_proto::wire::TableFieldSchema| {
                field
                    .range_element_type
                    .map(|element| format!("{:?}", element.r#type()))
            };
            let line = |field: &bigquery_write_proto::wire::TableFieldSchema| {
                let precision = field.timestamp_precision;
                format!(
                    "{} {:?} {:?} {:?}",
                    field.name,
                    field.r#type(),
                    element(field),
                    precision
                )
            };
            fields.iter().map(line).collect()
        },
        answers: &[
            "r Range Some(\"Datetime\") None",
            "p Timestamp None Some(12)",
            "t Timestamp None None",
            "i Interval None None",
        ],
    },
];
