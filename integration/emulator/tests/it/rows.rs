//! What the emulator accepts as rows and how it keeps them, and what it says about those it refuses.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    DictionaryArray, Float32Array, Int8Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    RecordBatch, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use bigquery_write_emulator::catalog::TableRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::machine::Switches;
use bigquery_write_emulator::schema::{Column, Kind, Mode, RangeElement, Schema};
use bigquery_write_proto::wire::TableFieldSchema;

use crate::world::{World, messages, raw_request, request};

const STREAM: &str = "projects/p/datasets/d/tables/w/_default";

/// Appends a batch to a new table of these columns; what was said, and what is visible then.
pub(crate) fn append(columns: Vec<Column>, batch: &RecordBatch) -> (String, RecordBatch) {
    append_with(Switches::default(), columns, batch)
}

fn append_with(switches: Switches, columns: Vec<Column>, batch: &RecordBatch) -> (String, RecordBatch) {
    let mut world = World::with(switches, FaultPlan::default());
    let table = world.table("w", "US", columns);
    let connection = world.open();
    let said = world
        .send(connection, &request(STREAM, None, batch))
        .replace("projects/p/datasets/d/tables/w/streams/_default", "W");
    (said, world.machine.catalog().table(&table).unwrap().all_rows())
}

pub(crate) fn column(name: &str, kind: Kind) -> Column {
    Column::new(name, kind, Mode::Nullable)
}

pub(crate) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

pub(crate) const GENERIC: &str = "InvalidArgument: Errors found while processing rows. Please refer to the row_errors field for \
                       details. The list may not be complete because of the size limitations. Entity: W; ";

#[test]
fn values_of_every_type_arrive_in_the_canonical_form() {
    let numeric = Kind::Numeric {
        precision: None,
        scale: None,
    };
    let big = Kind::BigNumeric {
        precision: None,
        scale: None,
    };
    let columns = vec![
        column("b", Kind::Bool),
        column("i", Kind::Int64),
        column("f", Kind::Float64),
        column("n", numeric),
        column("g", big),
        column("s", Kind::String { max_length: None }),
        column("y", Kind::Bytes { max_length: None }),
        column("d", Kind::Date),
        column("t", Kind::Time),
        column("dt", Kind::Datetime),
        column("ts", Kind::Timestamp),
        column("j", Kind::Json),
        column("geo", Kind::Geography),
    ];
    let canonical = Schema {
        columns: columns.clone(),
    }
    .arrow();
    let sent = batch(vec![
        ("B", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("i", Arc::new(Int8Array::from(vec![Some(-7), None]))),
        ("f", Arc::new(Float32Array::from(vec![Some(1.5), None]))),
        (
            "n",
            Arc::new(
                Decimal128Array::from(vec![Some(123), None])
                    .with_precision_and_scale(20, 2)
                    .unwrap(),
            ),
        ),
        (
            "g",
            Arc::new(
                Decimal256Array::from(vec![Some(i256::from(5)), None])
                    .with_precision_and_scale(40, 1)
                    .unwrap(),
            ),
        ),
        ("s", Arc::new(StringArray::from(vec![Some("ä"), None]))),
        ("y", Arc::new(BinaryArray::from(vec![Some(&b"\0\xff"[..]), None]))),
        ("d", Arc::new(StringArray::from(vec![Some("1970-01-02"), None]))),
        (
            "t",
            Arc::new(Time64MicrosecondArray::from(vec![Some(86_399_999_999), None])),
        ),
        (
            "dt",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(-62_135_596_800_000_000),
                None,
            ])),
        ),
        // Python's sample sends TIMESTAMP without a zone.
        (
            "ts",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(253_402_300_799_999_999),
                None,
            ])),
        ),
        ("j", Arc::new(StringArray::from(vec![Some("{\"a\":[1]}"), None]))),
        ("geo", Arc::new(StringArray::from(vec![Some("POINT(1 2)"), None]))),
    ]);
    let (said, rows) = append(columns, &sent);
    assert_eq!(said, "appended");
    let expected = RecordBatch::try_new(
        canonical,
        vec![
            Arc::new(BooleanArray::from(vec![Some(true), None])),
            Arc::new(Int64Array::from(vec![Some(-7), None])),
            Arc::new(arrow_array::Float64Array::from(vec![Some(1.5), None])),
            Arc::new(
                Decimal128Array::from(vec![Some(1_230_000_000), None])
                    .with_precision_and_scale(38, 9)
                    .unwrap(),
            ),
            Arc::new(
                Decimal256Array::from(vec![Some(i256::from_i128(5 * 10_i128.pow(37))), None])
                    .with_precision_and_scale(76, 38)
                    .unwrap(),
            ),
            Arc::clone(sent.column(5)),
            Arc::clone(sent.column(6)),
            Arc::new(Date32Array::from(vec![Some(1), None])),
            Arc::clone(sent.column(8)),
            Arc::clone(sent.column(9)),
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(253_402_300_799_999_999), None])
                    .with_timezone("UTC"),
            ),
            Arc::clone(sent.column(11)),
            Arc::clone(sent.column(12)),
        ],
    );
    assert_eq!(rows, expected.unwrap());
}

#[test]
fn columns_that_the_writer_leaves_out_are_null_or_empty() {
    let columns = vec![
        column("a", Kind::Int64),
        column("s", Kind::String { max_length: None }),
        Column::new("l", Kind::Int64, Mode::Repeated),
    ];
    let sent = batch(vec![("A", Arc::new(Int64Array::from(vec![1, 2])))]);
    let (said, rows) = append(columns, &sent);
    assert_eq!(said, "appended");
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(rows.column(1).null_count(), 2);
    let lists = rows.column(2).as_list::<i32>();
    assert_eq!(
        (lists.null_count(), lists.value_length(0), lists.value_length(1)),
        (0, 0, 0)
    );
}

#[test]
fn nested_values_keep_their_rows_and_what_lies_under_a_null_is_not_looked_at() {
    let inner = vec![
        Column::new("x", Kind::Int64, Mode::Required),
        Column::new("l", Kind::String { max_length: Some(2) }, Mode::Repeated),
    ];
    let columns = vec![Column::new("s", Kind::Struct(inner), Mode::Nullable)];
    let fields: Fields = vec![
        Field::new("x", DataType::Int64, true),
        Field::new_list("l", Field::new("item", DataType::Utf8, true), true),
    ]
    .into();
    let lists = |texts: [&str; 3]| {
        let values = StringArray::from(texts.to_vec());
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        ListArray::new(
            item,
            OffsetBuffer::from_lengths([1, 1, 1]),
            Arc::new(values),
            None,
        )
    };
    let send = |nulls: Option<NullBuffer>, texts| {
        let children: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(lists(texts)),
        ];
        let array = StructArray::new(fields.clone(), children, nulls);
        append(columns.clone(), &batch(vec![("s", Arc::new(array))]))
    };
    let second_null = Some(NullBuffer::from(vec![true, false, true]));
    let (said, rows) = send(second_null, ["a", "much too long", "c"]);
    assert_eq!(said, "appended");
    let s = rows.column(0).as_struct();
    assert_eq!(
        rows.schema(),
        Schema {
            columns: columns.clone()
        }
        .arrow()
    );
    assert_eq!(
        (s.is_null(1), s.column(0).as_primitive::<Int64Type>().value(2)),
        (true, 3)
    );
    let l = s.column(1).as_list::<i32>();
    assert_eq!(
        (0..3).map(|row| l.value_length(row)).collect::<Vec<_>>(),
        [1, 0, 1]
    );
    assert_eq!(l.value(2).as_string::<i32>().value(0), "c");

    let (said, rows) = send(None, ["a", "b", "much too long"]);
    assert_eq!(
        said,
        format!(
            "{GENERIC}row 1 FIELDS_ERROR: NULL value is not allowed on field s.x.; row 2 FIELDS_ERROR: Field s.l: STRING(2) has \
             maximum length 2 but got a value with length 13 on field s.l."
        )
    );
    assert_eq!(rows.num_rows(), 0);
}

/// One bad value among good ones: the text of its row error.
pub(crate) fn bad(kind: Kind, values: ArrayRef) -> String {
    let (said, rows) = append(vec![column("v", kind)], &batch(vec![("v", values)]));
    assert_eq!(rows.num_rows(), 0);
    said.strip_prefix(GENERIC).unwrap_or(&said).to_owned()
}

#[test]
fn values_that_do_not_fit_are_row_errors() {
    let string = |max| Kind::String {
        max_length: Some(max),
    };
    // JIT testRowErrors' two texts.
    assert_eq!(
        bad(
            string(10),
            Arc::new(StringArray::from(vec!["aaaaaaaaaa", "aaaaaaaaaaaa"]))
        ),
        "row 1 FIELDS_ERROR: Field v: STRING(10) has maximum length 10 but got a value with length 12 on field v."
    );
    assert_eq!(
        bad(
            Kind::Timestamp,
            Arc::new(TimestampMicrosecondArray::from(vec![0, i64::MIN]).with_timezone("UTC"))
        ),
        "row 1 FIELDS_ERROR: Timestamp field value is out of range: -9223372036854775808 on field v."
    );
    assert_eq!(
        bad(
            Kind::Bytes { max_length: Some(1) },
            Arc::new(BinaryArray::from(vec![&b"ab"[..]]))
        ),
        "row 0 FIELDS_ERROR: Field v: BYTES(1) has maximum length 1 but got a value with length 2 on field v."
    );
    assert_eq!(
        bad(
            Kind::Datetime,
            Arc::new(TimestampMicrosecondArray::from(vec![253_402_300_800_000_000]))
        ),
        "row 0 FIELDS_ERROR: Datetime field value is out of range: 253402300800000000 on field v."
    );
    assert_eq!(
        bad(
            Kind::Date,
            Arc::new(Date32Array::from(vec![-719_162, 2_932_896, 2_932_897]))
        ),
        "row 2 FIELDS_ERROR: Date field value is out of range: 2932897 on field v."
    );
    assert_eq!(
        bad(Kind::Date, Arc::new(Int32Array::from(vec![-719_163]))),
        "row 0 FIELDS_ERROR: Date field value is out of range: -719163 on field v."
    );
    assert_eq!(
        bad(Kind::Date, Arc::new(StringArray::from(vec!["2024-02-30"]))),
        "row 0 FIELDS_ERROR: Invalid date on field v."
    );
    assert_eq!(
        bad(
            Kind::Time,
            Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000]))
        ),
        "row 0 FIELDS_ERROR: Time field value is out of range: 86400000000 on field v."
    );
    assert_eq!(
        bad(Kind::Json, Arc::new(StringArray::from(vec!["{}", "{a:1}"]))),
        "row 1 FIELDS_ERROR: Invalid JSON on field v."
    );
    assert_eq!(
        bad(Kind::Geography, Arc::new(StringArray::from(vec!["here"]))),
        "row 0 FIELDS_ERROR: Invalid geography on field v."
    );
}

#[test]
fn numeric_ranges_are_exact() {
    let plain = Kind::Numeric {
        precision: None,
        scale: None,
    };
    let most = 10_i128.pow(38) - 1;
    let decimals = |values: Vec<i128>, precision, scale| -> ArrayRef {
        Arc::new(
            Decimal128Array::from(values)
                .with_precision_and_scale(precision, scale)
                .unwrap(),
        )
    };
    let (said, rows) = append(
        vec![column("v", plain.clone())],
        &batch(vec![("v", decimals(vec![most, -most], 38, 9))]),
    );
    assert_eq!((said.as_str(), rows.num_rows()), ("appended", 2));
    assert_eq!(
        bad(plain, decimals(vec![0, most + 1], 38, 9)),
        "row 1 FIELDS_ERROR: Invalid NUMERIC value: out of range on field v."
    );
    let (said, rows) = append(
        vec![column(
            "v",
            Kind::Numeric {
                precision: Some(4),
                scale: Some(1),
            },
        )],
        &batch(vec![("v", decimals(vec![12_345, -12_345, 99_994], 10, 2))]),
    );
    assert_eq!(said, "appended");
    let values = rows.column(0).as_primitive::<Decimal128Type>().values().to_vec();
    assert_eq!(values, [123_500_000_000, -123_500_000_000, 999_900_000_000]);
    assert_eq!(
        bad(
            Kind::Numeric {
                precision: Some(4),
                scale: Some(1)
            },
            decimals(vec![99_995], 10, 2)
        ),
        "row 0 FIELDS_ERROR: Invalid NUMERIC value: out of range on field v."
    );
    let big = Kind::BigNumeric {
        precision: None,
        scale: None,
    };
    let bigs = |values: Vec<i256>, scale| -> ArrayRef {
        Arc::new(
            Decimal256Array::from(values)
                .with_precision_and_scale(76, scale)
                .unwrap(),
        )
    };
    let edges = vec![i256::MIN, i256::MAX];
    let (said, rows) = append(
        vec![column("v", big.clone())],
        &batch(vec![("v", bigs(edges.clone(), 38))]),
    );
    assert_eq!(said, "appended");
    assert_eq!(
        rows.column(0).as_primitive::<Decimal256Type>().values().to_vec(),
        edges
    );
    assert_eq!(
        bad(big, bigs(vec![i256::MAX], 37)),
        "row 0 FIELDS_ERROR: Invalid BIGNUMERIC value: out of range on field v."
    );
}

#[test]
fn nulls_stand_only_where_they_may() {
    let required = vec![Column::new("v", Kind::Int64, Mode::Required)];
    let (said, _) = append(
        required,
        &batch(vec![("v", Arc::new(Int64Array::from(vec![Some(1), None])))]),
    );
    assert_eq!(
        said,
        format!("{GENERIC}row 1 FIELDS_ERROR: NULL value is not allowed on field v.")
    );

    let repeated = vec![Column::new(
        "v",
        Kind::String { max_length: None },
        Mode::Repeated,
    )];
    let mut builder = ListBuilder::new(StringBuilder::new());
    builder.append_value([Some("a")]);
    builder.append_value([Some("b"), None]);
    builder.append_null();
    let (said, _) = append(repeated, &batch(vec![("v", Arc::new(builder.finish()))]));
    assert_eq!(
        said,
        format!(
            "{GENERIC}row 1 FIELDS_ERROR: NULL value is not allowed on field v.; row 2 FIELDS_ERROR: REPEATED field \
             cannot be NULL, an empty list is needed on field v."
        )
    );
}

#[test]
fn a_writer_schema_that_does_not_fit_ends_the_call() {
    let two = || {
        vec![
            column("a", Kind::Int64),
            Column::new("r", Kind::Int64, Mode::Required),
        ]
    };
    let ints = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let said = |columns: Vec<(&str, ArrayRef)>| append(two(), &batch(columns)).0;
    assert_eq!(
        said(vec![("a", ints()), ("x", ints()), ("r", ints()), ("y", ints())]),
        "ended InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(W): Input schema has more fields than BigQuery schema, \
         extra fields: 'x,y' Entity: W"
    );
    assert_eq!(
        said(vec![("a", texts), ("r", ints())]),
        "ended InvalidArgument: Found incompatible fields: 'a' (Utf8 for INT64) Entity: W"
    );
    assert_eq!(
        said(vec![("a", ints())]),
        "ended InvalidArgument: Input schema lacks required fields: 'r' Entity: W"
    );
    assert_eq!(
        said(vec![("a", ints()), ("A", ints()), ("r", ints())]),
        "ended InvalidArgument: Input schema has the field 'A' twice Entity: W"
    );
    let switches = Switches {
        schema_error_in_band: true,
        ..Switches::default()
    };
    let (said, _) = append_with(switches, two(), &batch(vec![("x", ints()), ("r", ints())]));
    assert!(
        said.starts_with("InvalidArgument SCHEMA_MISMATCH_EXTRA_FIELDS(W): "),
        "{said}"
    );
}

#[test]
fn a_row_error_leaves_the_end_where_it_was_and_the_connection_open() {
    let mut w = World::new();
    w.table("r", "US", vec![Column::new("n", Kind::Int64, Mode::Required)]);
    let reply = w.try_create(
        "projects/p/datasets/d/tables/r",
        bigquery_write_proto::wire::write_stream::Type::Buffered,
    );
    let (s, c) = (reply.result.unwrap().name, w.open());
    let rows = |values: Vec<Option<i64>>| batch(vec![("n", Arc::new(Int64Array::from(values)))]);
    assert_eq!(w.send(c, &request(&s, Some(0), &rows(vec![Some(1)]))), "at 0");
    let said = w.send(c, &request(&s, Some(1), &rows(vec![Some(2), None])));
    assert!(
        said.ends_with("; row 1 FIELDS_ERROR: NULL value is not allowed on field n."),
        "{said}"
    );
    assert_eq!(w.send(c, &request(&s, Some(1), &rows(vec![Some(2)]))), "at 1");
}

#[test]
fn arrow_types_that_google_does_not_list_are_a_switch() {
    let columns = || {
        vec![
            column("i", Kind::Int64),
            column("s", Kind::String { max_length: None }),
            column("t", Kind::Timestamp),
        ]
    };
    let sent = batch(vec![
        ("i", Arc::new(UInt64Array::from(vec![7]))),
        ("s", Arc::new(LargeStringArray::from(vec!["x"]))),
        (
            "t",
            Arc::new(TimestampNanosecondArray::from(vec![1_999]).with_timezone("UTC")),
        ),
    ]);
    assert_eq!(
        append(columns(), &sent).0,
        "ended InvalidArgument: Found incompatible fields: 'i' (UInt64 for INT64), 's' (LargeUtf8 for STRING), 't' \
         (Timestamp(Nanosecond, Some(\"UTC\")) for TIMESTAMP) Entity: W"
    );
    let switches = Switches {
        arrow_unsigned_integers: true,
        arrow_other_layouts: true,
        arrow_other_time_units: true,
        ..Switches::default()
    };
    let (said, rows) = append_with(switches, columns(), &sent);
    assert_eq!(said, "appended");
    let expected = RecordBatch::try_new(
        Schema { columns: columns() }.arrow(),
        vec![
            Arc::new(Int64Array::from(vec![7])),
            Arc::new(StringArray::from(vec!["x"])),
            Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")),
        ],
    );
    assert_eq!(rows, expected.unwrap());
}

#[test]
fn only_one_plain_record_batch_message_is_taken() {
    let mut world = World::new();
    let table = TableRef::new("p", "d", "t");
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let (schema, rows) = messages(&batch(vec![("n", Arc::clone(&ints))]));
    let mut try_rows = |schema: &[u8], rows: Vec<u8>| {
        let connection = world.open();
        let request = raw_request(
            "projects/p/datasets/d/tables/t/_default",
            None,
            Some(schema.to_vec()),
            rows,
        );
        world.send(connection, &request)
    };
    let wrong =
        |text: &str| format!("ended InvalidArgument: Invalid Arrow data: {text}. Entity: T/streams/_default");

    let stream = [schema.clone(), rows.clone()].concat();
    assert_eq!(
        try_rows(&schema, stream.clone()),
        wrong(
            "the rows are not one Arrow RecordBatch message but begin with a Schema message; an IPC stream is not \
             accepted"
        )
    );
    let said = try_rows(&stream, rows.clone());
    assert!(said.contains("bytes follow the Arrow schema message"), "{said}");
    let mut trailing = rows.clone();
    trailing.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let said = try_rows(&schema, trailing);
    assert!(
        said.contains("declares a body of") && said.contains("follow"),
        "{said}"
    );
    assert_eq!(
        try_rows(&schema, rows[..6].to_vec()),
        wrong("the record batch is no Arrow IPC message: it has 6 bytes")
    );
    assert!(
        try_rows(&schema, rows[..rows.len() / 2].to_vec()).contains("Invalid Arrow data"),
        "cut in half"
    );

    let words: DictionaryArray<arrow_array::types::Int32Type> = vec!["a", "b"].into_iter().collect();
    let words: ArrayRef = Arc::new(words);
    let field = Field::new("n", words.data_type().clone(), true);
    let with_words = RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![field])), vec![words]).unwrap();
    let (dictionary, _) = messages(&with_words);
    assert_eq!(
        try_rows(&dictionary, rows),
        wrong("field \"n\" is dictionary-encoded, which is not supported")
    );
    assert_eq!(world.machine.catalog().table(&table).unwrap().row_count(), 0);
}

#[test]
fn the_write_apis_schema_and_the_tables_turn_into_each_other() {
    let columns = vec![
        Column::new(
            "a",
            Kind::Numeric {
                precision: Some(10),
                scale: Some(2),
            },
            Mode::Required,
        ),
        Column::new("b", Kind::String { max_length: Some(5) }, Mode::Repeated),
        Column {
            description: "text".to_owned(),
            default_value_expression: Some("1".to_owned()),
            ..column("c", Kind::Int64)
        },
        column("d", Kind::Struct(vec![column("e", Kind::Json)])),
        column("p", Kind::TimestampPicoseconds),
        column("i", Kind::Interval),
        column("r", Kind::Range(RangeElement::Date)),
        column("rd", Kind::Range(RangeElement::Datetime)),
        column("rt", Kind::Range(RangeElement::Timestamp)),
    ];
    let schema = Schema { columns };
    assert_eq!(Schema::from_wire(&schema.to_wire()).unwrap(), schema);
    let said = |change: fn(&mut TableFieldSchema)| {
        let mut wire = schema.to_wire();
        change(&mut wire.fields[0]);
        Schema::from_wire(&wire).unwrap_err().to_string()
    };
    assert_eq!(said(|field| field.r#type = 0), "field \"a\": the type is missing");
    assert_eq!(
        said(|field| field.r#type = 16),
        "field \"a\": the range element type is none of DATE, DATETIME and TIMESTAMP"
    );
    assert_eq!(
        said(|field| {
            field.r#type = 7;
            field.timestamp_precision = Some(9);
        }),
        "field \"a\": the timestamp precision is neither 6 nor 12"
    );
    assert_eq!(
        said(|field| field.precision = 300),
        "field \"a\": precision or scale out of range"
    );
}
