//! Bytes written by hand for every type and its edges.

mod descriptors;

use std::sync::Arc;

use arrow_array::types::IntervalMonthDayNano;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FieldOptions};

use super::*;
use crate::wire::TableFieldSchema;
use crate::wire::table_field_schema::Mode;

/// A table in which only modes and nested fields matter: types are the wire schema's.
fn column(name: &str, mode: Mode, fields: Vec<TableFieldSchema>) -> TableFieldSchema {
    TableFieldSchema {
        name: name.to_owned(),
        mode: mode.into(),
        fields,
        ..Default::default()
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// The rows' messages; what they are told to take in a request is what they do.
fn written(batch: &RecordBatch) -> Vec<Vec<u8>> {
    let messages = Messages::new(batch.schema_ref(), &TableSchema::default()).unwrap();
    let written = messages.write(batch);
    let rows: Vec<Vec<u8>> = written.rows().map(|row| row.to_vec()).collect();
    let request = crate::wire::ProtoRows {
        serialized_rows: written.rows().collect(),
    };
    assert_eq!(
        request.encoded_len(),
        written.bytes(),
        "tags and lengths of rows are counted"
    );
    rows
}

/// The messages of rows with one column, `x`.
fn column_of(array: impl Array + 'static) -> Vec<Vec<u8>> {
    written(&batch(vec![("x", Arc::new(array))]))
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Bytes of messages in hexadecimal; blanks are for the eye.
fn hexes<const N: usize>(texts: [&str; N]) -> Vec<Vec<u8>> {
    texts.map(hex).to_vec()
}

#[test]
fn numbers_are_varints_and_zero_is_on_the_wire() {
    let rows = column_of(Int64Array::from(vec![
        Some(0),
        Some(1),
        Some(127),
        Some(128),
        Some(300),
        Some(i64::MAX),
        Some(-1),
        Some(i64::MIN),
        None,
    ]));
    let expected = hexes([
        "08 00",
        "08 01",
        "08 7f",
        "08 8001",
        "08 ac02",
        "08 ffffffffffffffff7f",
        "08 ffffffffffffffffff01",
        "08 80808080808080808001",
        "",
    ]);
    assert_eq!(rows, expected);
}

#[test]
fn truth_is_one_byte() {
    let rows = column_of(BooleanArray::from(vec![Some(false), Some(true), None]));
    assert_eq!(rows, hexes(["08 00", "08 01", ""]));
}

#[test]
fn floats_keep_their_bits() {
    let rows = column_of(Float64Array::from(vec![
        Some(0.0),
        Some(-0.0),
        Some(1.5),
        Some(f64::NEG_INFINITY),
        Some(f64::from_bits(0x7ff8_0000_0000_0001)),
        None,
    ]));
    let expected = hexes([
        "09 0000000000000000",
        "09 0000000000000080",
        "09 000000000000f83f",
        "09 000000000000f0ff",
        "09 010000000000f87f",
        "",
    ]);
    assert_eq!(rows, expected);
}

#[test]
fn texts_and_bytes_are_theirs_and_the_empty_one_is_on_the_wire() {
    let long = "é".repeat(100);
    let rows = column_of(StringArray::from(vec![
        Some(""),
        Some("a\0b"),
        Some("日"),
        Some(&long),
        None,
    ]));
    let mut expected = hexes(["0a 00", "0a 03 610062", "0a 03 e697a5", "0a c801", ""]);
    expected[3].extend(long.bytes());
    assert_eq!(rows, expected);

    let rows = column_of(BinaryArray::from(vec![Some(&b""[..]), Some(b"\0\xff"), None]));
    assert_eq!(rows, hexes(["0a 00", "0a 02 00ff", ""]));
}

#[test]
fn days_before_1970_take_ten_bytes_as_int32_has_it() {
    let rows = column_of(Date32Array::from(vec![
        Some(0),
        Some(2_932_896),
        Some(-1),
        Some(-719_162),
        None,
    ]));
    let expected = hexes([
        "08 00",
        "08 a081b301",
        "08 ffffffffffffffffff01",
        "08 c68dd4ffffffffffff01",
        "",
    ]);
    assert_eq!(rows, expected);
}

#[test]
fn civil_times_are_packed() {
    // write-api.md 5.2: 102806536767, 53880818184; 141916638033338944, 74904229642240, 703674213004689983.
    let rows = column_of(Time64MicrosecondArray::from(vec![
        Some(86_399_999_999),
        Some(45_296_789_000),
        Some(0),
        None,
    ]));
    let expected = hexes(["08 bf84fdfdfe02", "08 8894b0dcc801", "08 00", ""]);
    assert_eq!(rows, expected);

    let rows = column_of(TimestampMicrosecondArray::from(vec![
        Some(1_480_774_287_123_456),
        Some(-62_135_596_800_000_000),
        Some(253_402_300_799_999_999),
        None,
    ]));
    let expected = hexes([
        "08 c0c4c7ede28d8cfc01",
        "08 80808080808411",
        "08 bf84fdfdfefefce109",
        "",
    ]);
    assert_eq!(rows, expected);
}

#[test]
fn instants_are_microseconds() {
    let stamps = TimestampMicrosecondArray::from(vec![Some(1_480_774_287_123_456), Some(-1), Some(0), None]);
    let expected = hexes(["08 80c8818b9ad8d002", "08 ffffffffffffffffff01", "08 00", ""]);
    assert_eq!(column_of(stamps.with_timezone("UTC")), expected);
}

#[test]
fn picoseconds_are_text_with_twelve_digits() {
    let stamps = TimestampNanosecondArray::from(vec![Some(1_480_774_287_123_456_789), Some(-1), None]);
    let text = |text: &str| [&[0x0a, 33], text.as_bytes()].concat();
    let expected = [
        text("2016-12-03T14:11:27.123456789000Z"),
        text("1969-12-31T23:59:59.999999999000Z"),
        Vec::new(),
    ];
    assert_eq!(column_of(stamps.with_timezone("UTC")), expected);
}

#[test]
fn what_is_null_may_be_anything() {
    let nulls = || Some(NullBuffer::new_null(2));
    let interval = |months, days, nanoseconds| IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    };
    let least = interval(i32::MIN, i32::MIN, i64::MIN);
    let most = interval(i32::MAX, i32::MAX, i64::MAX);
    let (of_64, of_128, of_256) = (
        vec![i64::MIN, i64::MAX],
        vec![i128::MIN, i128::MAX],
        vec![i256::MIN, i256::MAX],
    );
    let decimal = Decimal256Array::new(of_256.into(), nulls());
    let wide = decimal.clone().with_precision_and_scale(76, 37).unwrap();
    let decimals = Decimal128Array::new(of_128.into(), nulls());
    let micros = TimestampMicrosecondArray::new(of_64.clone().into(), nulls());
    let nanos = TimestampNanosecondArray::new(of_64.clone().into(), nulls());
    let floats = vec![f64::NEG_INFINITY, f64::NAN].into();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("int64", Arc::new(Int64Array::new(of_64.clone().into(), nulls()))),
        ("double", Arc::new(Float64Array::new(floats, nulls()))),
        (
            "bool",
            Arc::new(BooleanArray::new(vec![true, false].into(), nulls())),
        ),
        (
            "date",
            Arc::new(Date32Array::new(vec![i32::MIN, i32::MAX].into(), nulls())),
        ),
        (
            "time",
            Arc::new(Time64MicrosecondArray::new(of_64.into(), nulls())),
        ),
        ("datetime", Arc::new(micros.clone())),
        ("timestamp", Arc::new(micros.clone().with_timezone("UTC"))),
        ("precise", Arc::new(micros.with_timezone("UTC"))),
        ("nanoseconds", Arc::new(nanos.with_timezone("UTC"))),
        (
            "interval",
            Arc::new(IntervalMonthDayNanoArray::new(vec![least, most].into(), nulls())),
        ),
        (
            "numeric",
            Arc::new(decimals.with_precision_and_scale(38, 9).unwrap()),
        ),
        (
            "bignumeric",
            Arc::new(decimal.with_precision_and_scale(76, 38).unwrap()),
        ),
        ("wide", Arc::new(wide)),
    ];
    let of_picoseconds = TableFieldSchema {
        timestamp_precision: Some(12),
        ..column("precise", Mode::Nullable, Vec::new())
    };
    let table = TableSchema {
        fields: vec![of_picoseconds],
    };
    let batch = batch(columns);
    let rows = Messages::new(batch.schema_ref(), &table).unwrap().write(&batch);
    assert_eq!(rows.rows().collect::<Vec<_>>(), [Bytes::new(), Bytes::new()]);
    // The same as elements that are null with their STRUCT.
    let outer = StructArray::new(
        batch.schema_ref().fields().clone(),
        batch.columns().to_vec(),
        nulls(),
    );
    assert_eq!(column_of(outer), hexes(["", ""]));
    crate::rows::ipc::batch_message(&batch).unwrap();
}

#[test]
fn intervals_are_canonical_text() {
    let interval = |months, days, nanos| Some(IntervalMonthDayNano::new(months, days, nanos));
    let rows = column_of(IntervalMonthDayNanoArray::from(vec![
        interval(0, 0, 0),
        interval(-14, 3, -3_723_000_001_000),
        None,
    ]));
    let expected = [
        b"\x0a\x0b0-0 0 0:0:0".to_vec(),
        b"\x0a\x14-1-2 3 -1:2:3.000001".to_vec(),
        Vec::new(),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn decimals_are_their_unscaled_bytes_from_the_lowest() {
    // The vectors of write-api.md 5.3, and the largest.
    let one = 1_000_000_000;
    let most = 10_i128.pow(38) - 1;
    let values = vec![
        Some(one),
        Some(one * 3 / 2),
        Some(-one),
        Some(0),
        Some(1),
        Some(128),
        Some(most),
        Some(-most),
        None,
    ];
    let array = Decimal128Array::from(values)
        .with_precision_and_scale(38, 9)
        .unwrap();
    let expected = hexes([
        "0a 04 00ca9a3b",
        "0a 04 002f6859",
        "0a 04 003665c4",
        "0a 01 00",
        "0a 01 01",
        "0a 02 8000",
        "0a 10 ffffffff3f228a097ac4865aa84c3b4b",
        "0a 10 01000000c0dd75f6853b79a557b3c4b4",
        "",
    ]);
    assert_eq!(column_of(array), expected);

    let one = i256::from_i128(10).checked_pow(38).unwrap();
    let values = vec![
        Some(one),
        Some(i256::ZERO),
        Some(i256::MINUS_ONE),
        Some(i256::MAX),
        Some(i256::MIN),
        None,
    ];
    let array = Decimal256Array::from(values)
        .with_precision_and_scale(76, 38)
        .unwrap();
    let mut expected = hexes([
        "0a 10 0000000040228a097ac4865aa84c3b4b",
        "0a 01 00",
        "0a 01 ff",
        "0a 20",
        "0a 20",
        "",
    ]);
    expected[3].extend([vec![0xff; 31], vec![0x7f]].concat());
    expected[4].extend([vec![0x00; 31], vec![0x80]].concat());
    assert_eq!(column_of(array), expected);

    // At scale 37: one, and 39 digits before the point.
    let one = i256::from_i128(10).checked_pow(37).unwrap();
    let ten = i256::from_i128(10);
    let values = vec![Some(one), Some(i256::MAX.wrapping_div(ten)), None];
    let array = Decimal256Array::from(values)
        .with_precision_and_scale(76, 37)
        .unwrap();
    let mut expected = hexes(["0a 10 0000000040228a097ac4865aa84c3b4b", "0a 20 f8", ""]);
    expected[1].extend([vec![0xff; 30], vec![0x7f]].concat());
    assert_eq!(column_of(array), expected);
}

#[test]
fn a_timestamp_of_picoseconds_is_text_whatever_its_unit() {
    let micros = TimestampMicrosecondArray::from(vec![Some(-1), None]).with_timezone("UTC");
    let rows = batch(vec![("x", Arc::new(micros))]);
    let columns = vec![TableFieldSchema {
        timestamp_precision: Some(12),
        ..column("x", Mode::Nullable, vec![])
    }];
    let (_, descriptor) = described(rows.schema_ref(), columns.clone());
    assert_eq!(
        descriptor.field,
        [described_field("x", 1, Label::Optional, Type::String)]
    );
    let messages = Messages::new(rows.schema_ref(), &TableSchema { fields: columns }).unwrap();
    let written = messages.write(&rows);
    let mut expected = hexes(["0a 21", ""]);
    expected[0].extend(b"1969-12-31T23:59:59.999999000000Z");
    assert_eq!(
        written.rows().map(|row| row.to_vec()).collect::<Vec<_>>(),
        expected
    );
}

fn list(offsets: Vec<i32>, nulls: Option<Vec<bool>>, values: impl Array + 'static) -> ListArray {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    ListArray::new(
        field,
        OffsetBuffer::new(offsets.into()),
        Arc::new(values),
        nulls.map(NullBuffer::from),
    )
}

#[test]
fn lists_of_numbers_are_packed_and_those_of_texts_are_not() {
    let numbers = list(vec![0, 2, 2, 3], None, Int64Array::from(vec![1, -1, 0]));
    assert_eq!(
        column_of(numbers),
        hexes(["0a 0b 01 ffffffffffffffffff01", "", "0a 01 00"])
    );

    let floats = list(
        vec![0, 0, 2],
        Some(vec![false, true]),
        Float64Array::from(vec![1.5, -0.0]),
    );
    assert_eq!(
        column_of(floats),
        hexes(["", "0a 10 000000000000f83f 0000000000000080"])
    );

    let flags = list(vec![0, 3], None, BooleanArray::from(vec![true, false, true]));
    assert_eq!(column_of(flags), hexes(["0a 03 010001"]));

    let texts = list(vec![0, 2, 2], None, StringArray::from(vec!["a", ""]));
    assert_eq!(column_of(texts), hexes(["0a 01 61 0a 00", ""]));

    let unseen = list(
        vec![0, 1, 2],
        Some(vec![false, true]),
        Int64Array::from(vec![9, 5]),
    );
    assert_eq!(column_of(unseen), hexes(["", "0a 01 05"]));
    let unseen = list(
        vec![0, 1, 2],
        Some(vec![false, true]),
        StringArray::from(vec!["no", "a"]),
    );
    assert_eq!(column_of(unseen), hexes(["", "0a 01 61"]));

    let decimals = Decimal128Array::from(vec![0, -1])
        .with_precision_and_scale(38, 9)
        .unwrap();
    assert_eq!(
        column_of(list(vec![0, 2], None, decimals)),
        hexes(["0a 01 00 0a 01 ff"])
    );
}

fn record(fields: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> StructArray {
    let names: Fields = fields
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = fields.into_iter().map(|(_, array)| array).collect();
    StructArray::new(names, arrays, nulls.map(NullBuffer::from))
}

#[test]
fn a_struct_is_a_message_that_is_there_even_when_it_is_empty() {
    let inner = record(
        vec![
            ("n", Arc::new(Int64Array::from(vec![Some(5), None, None]))),
            ("t", Arc::new(StringArray::from(vec![Some("ab"), None, None]))),
        ],
        Some(vec![true, true, false]),
    );
    assert_eq!(column_of(inner), hexes(["0a 06 0805 1202 6162", "0a 00", ""]));
}

#[test]
fn ranges_have_the_bounds_that_are_set() {
    let range = record(
        vec![
            (
                "start",
                Arc::new(Date32Array::from(vec![Some(1), None, None, None])),
            ),
            (
                "end",
                Arc::new(Date32Array::from(vec![Some(2), Some(0), None, None])),
            ),
        ],
        Some(vec![true, true, true, false]),
    );
    assert_eq!(
        column_of(range),
        hexes(["0a 04 0801 1002", "0a 02 1000", "0a 00", ""])
    );
}

#[test]
fn lists_of_structs_with_lists_hold_the_lengths_of_each_level() {
    let tags = list(vec![0, 1, 1, 3], None, StringArray::from(vec!["x", "y", "zz"]));
    let numbers = list(vec![0, 0, 2, 3], None, Int64Array::from(vec![1, 2, 300]));
    let inner = record(
        vec![("tags", Arc::new(tags)), ("numbers", Arc::new(numbers))],
        None,
    );
    let outer = list(vec![0, 1, 1, 3], None, inner);
    let expected = [
        "0a 03 0a0178",
        "",
        "0a 04 1202 0102  0a 0b 0a0179 0a027a7a 1202 ac02",
    ];
    assert_eq!(column_of(outer.clone()), hexes(expected));
    // A slice knows its own rows and elements only.
    for (from, len) in [(0, 3), (1, 2), (2, 1), (0, 2), (1, 0)] {
        let rows = written(&batch(vec![("x", Arc::new(outer.slice(from, len)))]));
        assert_eq!(rows, hexes(expected)[from..from + len], "{from} {len}");
    }
}

#[test]
fn fields_follow_the_columns_and_numbers_grow_with_them() {
    let columns: Vec<(String, ArrayRef)> = (0..20)
        .map(|at| (format!("c{at}"), Arc::new(Int64Array::from(vec![at])) as ArrayRef))
        .collect();
    let columns = columns
        .iter()
        .map(|(name, array)| (name.as_str(), Arc::clone(array)))
        .collect();
    let expected = "0800 1001 1802 2003 2804 3005 3806 4007 4808 5009 580a 600b 680c 700d 780e \
                    80010f 880110 900111 980112 a00113";
    assert_eq!(written(&batch(columns)), hexes([expected]));
}

#[test]
fn batches_are_joined_and_cut_as_if_they_had_been_one() {
    let of = |values: Vec<i64>| batch(vec![("x", Arc::new(Int64Array::from(values)))]);
    let batches = [of(vec![1, 300]), of(vec![]), of(vec![2])];
    let messages = Messages::new(batches[0].schema_ref(), &TableSchema::default()).unwrap();
    let joined = || ProtoBatch::joined(batches.iter().map(|batch| messages.write(batch)));
    let all = ["0801", "08ac02", "0802"];
    let rows = |batch: &ProtoBatch| batch.rows().map(|row| row.to_vec()).collect::<Vec<_>>();
    for whole in [joined(), joined().compact()] {
        assert_eq!(rows(&whole), hexes(all));
        assert_eq!(whole.sizes().collect::<Vec<_>>(), [4, 5, 4]);
        assert_eq!((whole.num_rows(), whole.bytes()), (3, 13));
        assert_eq!(
            [3, 4, 8, 9, 12, 13].map(|room| whole.fitting(room)),
            [0, 1, 1, 2, 2, 3]
        );
        for cut in 0..5 {
            let (first, second) = whole.split_at(cut);
            let of_first: Vec<_> = hexes(all).into_iter().take(cut).collect();
            assert_eq!(rows(&first), of_first, "{cut}");
            assert_eq!(
                (first.num_rows(), second.num_rows()),
                (cut.min(3), 3 - cut.min(3))
            );
            assert_eq!(ProtoBatch::joined([first, second].into_iter()), whole, "{cut}");
        }
    }
}

#[test]
fn rows_are_in_buffers_of_a_bounded_size_and_larger_ones_alone() {
    let lengths = [100_000, 100_000, 100_000, 700_000, 1, 1];
    let texts = StringArray::from_iter_values(lengths.iter().map(|&length| "x".repeat(length)));
    let rows = batch(vec![("x", Arc::new(texts))]);
    let messages = Messages::new(rows.schema_ref(), &TableSchema::default()).unwrap();
    let written = messages.write(&rows);
    assert_eq!(written.buffers(), [200_016, 100_008, 700_008, 10]);
    assert_eq!(
        written.sizes().collect::<Vec<_>>(),
        [100_008, 100_008, 100_008, 700_008, 5, 5]
    );
    assert_eq!(written.compact().sizes().sum::<usize>(), written.bytes());
    assert_eq!(written.compact(), written);
}

#[test]
fn structs_of_any_length_have_it_before_them() {
    // One byte, two, three of length, and structs in structs whose own lengths move.
    for length in [
        0, 1, 119, 120, 121, 122, 125, 126, 127, 128, 129, 16_370, 16_383, 16_384, 20_000,
    ] {
        let text = "t".repeat(length);
        let inner = record(
            vec![("b", Arc::new(StringArray::from(vec![text.as_str()])))],
            None,
        );
        let outer = record(
            vec![("a", Arc::new(inner)), ("n", Arc::new(Int64Array::from(vec![7])))],
            None,
        );
        let messages = written(&batch(vec![("x", Arc::new(outer))]));
        let field = |number: u32, value: Vec<u8>| {
            let mut bytes = Vec::new();
            prost::encoding::bytes::encode(number, &value, &mut bytes);
            bytes
        };
        let expected = field(1, [field(1, field(1, text.into_bytes())), hex("1007")].concat());
        assert_eq!(messages, [expected], "{length}");
    }
}

#[test]
fn many_rows_are_what_each_is_alone() {
    const ROWS: usize = 1_100;
    // Of all lengths, now and then null, and one row that is larger than any block.
    let number =
        |at: usize| (at % 7 != 3).then(|| (at as i64 + 1).wrapping_mul(0x1234_5678_9abc) >> (at % 60));
    let text = |at: usize| (at % 5 != 1).then(|| "long".repeat(if at == 700 { 200_000 } else { at % 40 }));
    let numbers = |count| Int64Array::from_iter((0..count).map(number));
    let texts = |count| StringArray::from_iter((0..count).map(text));
    let offsets = || OffsetBuffer::from_lengths((0..ROWS).map(|row| row % 4));
    let elements = offsets().last().copied().unwrap() as usize;
    let null_lists = NullBuffer::from_iter((0..ROWS).map(|row| row % 11 != 2));
    let list = |values: ArrayRef| {
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        ListArray::new(item, offsets(), values, Some(null_lists.clone()))
    };
    let structs = |count| {
        let fields = Fields::from(vec![
            Field::new("number", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
        ]);
        let nulls = NullBuffer::from_iter((0..count).map(|at| at % 9 != 4));
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers(count)), Arc::new(texts(count))];
        StructArray::new(fields, columns, Some(nulls))
    };
    let all = batch(vec![
        ("number", Arc::new(numbers(ROWS))),
        ("text", Arc::new(texts(ROWS))),
        ("struct", Arc::new(structs(ROWS))),
        ("numbers", Arc::new(list(Arc::new(numbers(elements))))),
        ("texts", Arc::new(list(Arc::new(texts(elements))))),
        ("structs", Arc::new(list(Arc::new(structs(elements))))),
        (
            "truth",
            Arc::new(BooleanArray::from_iter((0..ROWS).map(|row| Some(row % 3 == 0)))),
        ),
    ]);
    // Cut from within, so that bits of nulls begin within a byte.
    let cut = all.slice(13, ROWS - 20);
    let alone: Vec<Vec<u8>> = (13..ROWS - 7)
        .flat_map(|row| written(&all.slice(row, 1)))
        .collect();
    assert!(
        alone.iter().any(|row| row.len() > 800_000),
        "a row larger than any block"
    );
    let together = written(&cut);
    assert_eq!(together.len(), alone.len());
    for (row, (together, alone)) in together.iter().zip(&alone).enumerate() {
        assert!(together == alone, "row {row}");
    }
}

#[test]
fn a_batch_without_columns_has_empty_messages() {
    let options = RecordBatchOptions::new().with_row_count(Some(2));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    assert_eq!(written(&batch), hexes(["", ""]));
}

// Descriptors.

fn described(wire: &Schema, columns: Vec<TableFieldSchema>) -> (Bytes, DescriptorProto) {
    let messages = Messages::new(wire, &TableSchema { fields: columns }).unwrap();
    let bytes = messages.descriptor().clone();
    let descriptor = DescriptorProto::decode(bytes.clone()).unwrap();
    (bytes, descriptor)
}

fn described_field(name: &str, number: i32, label: Label, r#type: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(r#type.into()),
        ..Default::default()
    }
}
