//! How fast converted rows become the bytes of a request, in both formats, beside what could be had otherwise.
//!
//! `cargo bench -p bigquery-write-proto --bench rows` prints, for each kind of rows and each way of writing them, millions of
//! rows and GB of request over a second of processor time of this thread (the scheduler's own count, so that other programs do
//! not matter so much), and how many times as long as protobuf's encoder it takes:
//!
//! * `proto`: written as the sink does it;
//! * `prost`: a message of `prost` filled from the columns for each row, and written; for the widest rows a list of fields in
//!   place of a struct, as messages made at run time have it;
//! * `copy`: a plain copy of the protobuf bytes, which nothing can beat;
//! * `request`: as `proto`, and the request's bytes made of it;
//! * `arrow`: the other format.
//!
//! glibc gives freed memory back to the system, and each measurement takes it anew: the pages that this costs can be more than
//! half of `request` and most of `arrow`. `MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000` before the
//! command keeps it.
//!
//! All of them take turns, in many short rounds: what else the machine does meanwhile meets each alike. A ratio is the middle one
//! of all rounds', in brackets what half of them lie between.
//!
//! `ROWS_ROUNDS` sets how many rounds (25), `ROWS_OF` the kind of rows by the begin of its name (all).

use std::hint::black_box;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field};
use bigquery_write_proto::rows::{
    EncodedRows, Format, MissingValues, RowEncoder, RowOptions, SubMicroseconds, Wire, table_schema_for,
};
use bigquery_write_proto::wire::AppendRowsRequest;
use prost::Message as _;
use prost::encoding;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rows of a batch.
const ROWS: usize = 4096;

/// Seconds of a round at least: the scheduler counts in ticks of some milliseconds.
const ROUND: f64 = 0.05;

fn main() -> Result<(), Failure> {
    let rounds: u32 = match std::env::var("ROWS_ROUNDS") {
        Ok(text) => text.parse()?,
        Err(_) => 25,
    };
    let only = std::env::var("ROWS_OF").unwrap_or_default();
    for (name, batch, prost) in [
        ("flat, 20 columns", flat(), write_flat as Prost),
        ("wide, 500 columns", wide(), write_wide),
        ("nested", nested(), write_nested),
    ] {
        if !name.starts_with(&only) {
            continue;
        }
        println!("{name:<24} M rows/s      GB/s  x proto");
        report(&batch, prost, rounds)?;
        println!();
    }
    Ok(())
}

/// Writes all rows as `prost` messages, one behind the other.
type Prost = fn(&RecordBatch, &mut Vec<u8>);

fn report(batch: &RecordBatch, prost: Prost, rounds: u32) -> Result<(), Failure> {
    let table = table_schema_for(&batch.schema()).map_err(|problems| format!("{problems:?}"))?;
    let options = RowOptions {
        sub_microseconds: SubMicroseconds::Truncate,
        missing_values: MissingValues::Null,
    };
    let encoder =
        RowEncoder::new(&batch.schema(), &table, options).map_err(|problems| format!("{problems:?}"))?;
    let batch = &encoder.convert(batch)?.batch;
    let wire = |format| Wire::new(format, &encoder, &table);
    let (arrow, proto) = (wire(Format::Arrow)?, wire(Format::Proto)?);
    let encode =
        |wire: &Wire| -> Result<EncodedRows, Failure> { Ok(wire.encode(&[wire.measure(batch.clone())?])?) };

    let EncodedRows::Proto(rows) = encode(&proto)? else {
        return Err("not protobuf".into());
    };
    let plain = rows.rows().collect::<Vec<_>>().concat();
    let mut expected = Vec::new();
    prost(batch, &mut expected);
    if plain != expected {
        return Err("prost writes other bytes".into());
    }

    let arrow_size = encode(&arrow)?.bytes();
    let contenders: [(&str, usize, Contender<'_>); 5] = [
        ("proto", plain.len(), Box::new(|| discard(encode(&proto)?))),
        (
            "prost",
            plain.len(),
            Box::new(|| {
                let mut into = Vec::with_capacity(plain.len());
                prost(batch, &mut into);
                discard(into)
            }),
        ),
        ("copy", plain.len(), Box::new(|| discard(plain.clone()))),
        (
            "request",
            plain.len(),
            Box::new(|| {
                let request = AppendRowsRequest {
                    rows: Some(encode(&proto)?.into_request(None)),
                    ..Default::default()
                };
                discard(request.encode_to_vec())
            }),
        ),
        ("arrow", arrow_size, Box::new(|| discard(encode(&arrow)?))),
    ];
    let mut seconds = vec![Vec::new(); contenders.len()];
    let mut times = vec![1; contenders.len()];
    for (times, (_, _, act)) in times.iter_mut().zip(&contenders) {
        act()?;
        while time(*times, act)? < ROUND {
            *times *= 2;
        }
    }
    for _ in 0..rounds {
        for ((seconds, times), (_, _, act)) in seconds.iter_mut().zip(&times).zip(&contenders) {
            seconds.push(time(*times, act)? / f64::from(*times));
        }
    }
    for ((name, size, _), own) in contenders.iter().zip(&seconds) {
        let ratios = own.iter().zip(&seconds[0]).map(|(own, proto)| own / proto);
        let (taken, ratios) = (spread(own.iter().copied()), spread(ratios));
        let rows = batch.num_rows() as f64 / taken[1] / 1e6;
        let gigabytes = *size as f64 / taken[1] / 1e9;
        let [low, middle, high] = ratios;
        println!("  {name:<20} {rows:>10.2} {gigabytes:>9.2} {middle:>8.2}  ({low:.2} to {high:.2})");
    }
    Ok(())
}

/// One way of making a batch into bytes.
type Contender<'a> = Box<dyn Fn() -> Result<(), Failure> + 'a>;

fn discard<T>(made: T) -> Result<(), Failure> {
    drop(black_box(made));
    Ok(())
}

/// A quarter of some figures is below the first of these, half below the second, a quarter above the third.
fn spread(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[figures.len() * quarter / 4])
}

/// Processor time of this thread, in seconds.
fn time(times: u32, act: impl Fn() -> Result<(), Failure>) -> Result<f64, Failure> {
    let now = || -> Result<u64, Failure> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    };
    let before = now()?;
    for _ in 0..times {
        act()?;
    }
    Ok((now()? - before) as f64 / 1e9)
}

/// Numbers that follow from the row, of all lengths.
fn number(row: usize, column: usize) -> i64 {
    let mixed = (row as u64 * 31 + column as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (column * 7 % 60)) as i64
}

fn present(row: usize, column: usize) -> bool {
    !(row * 7 + column * 3).is_multiple_of(10)
}

fn ints(column: usize) -> ArrayRef {
    let value = |row| present(row, column).then(|| number(row, column));
    Arc::new(Int64Array::from_iter((0..ROWS).map(value)))
}

fn floats(column: usize) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(
        (0..ROWS).map(|row| number(row, column) as f64 / 7.0),
    ))
}

fn stamps(column: usize) -> ArrayRef {
    let value = |row: usize| 1_700_000_000_000_000 + (row * 1_234_567 + column) as i64;
    Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(value)).with_timezone("UTC"))
}

fn texts(column: usize) -> ArrayRef {
    let value = |row| {
        present(row, column).then(|| "a text of no great length, cut"[..8 + (row + column) % 22].to_owned())
    };
    Arc::new(StringArray::from_iter((0..ROWS).map(value)))
}

fn flags(column: usize) -> ArrayRef {
    Arc::new(BooleanArray::from_iter(
        (0..ROWS).map(|row| Some((row + column).is_multiple_of(3))),
    ))
}

fn batch(columns: impl IntoIterator<Item = ArrayRef>) -> RecordBatch {
    let named = columns
        .into_iter()
        .enumerate()
        .map(|(at, array)| (format!("c{at}"), array, true));
    RecordBatch::try_from_iter_with_nullable(named).expect("columns of one length")
}

/// Six numbers, three fractions, six texts, two instants, a flag, a day and a price: by and large what events have.
fn flat() -> RecordBatch {
    let days = Date32Array::from_iter_values((0..ROWS).map(|row| 19_000 + (row % 700) as i32));
    let prices =
        Decimal128Array::from_iter_values((0..ROWS).map(|row| i128::from(number(row, 3)) * 10_000_000));
    let prices = prices
        .with_precision_and_scale(38, 9)
        .expect("within the precision");
    let mut columns: Vec<ArrayRef> = (0..6).map(ints).collect();
    columns.extend((6..9).map(floats));
    columns.extend((9..15).map(texts));
    columns.extend([
        stamps(15),
        stamps(16),
        flags(17),
        Arc::new(days),
        Arc::new(prices),
    ]);
    batch(columns)
}

fn wide() -> RecordBatch {
    batch((0..500).map(|column| match column % 5 {
        0 => ints(column),
        1 => floats(column),
        2 => texts(column),
        3 => stamps(column),
        _ => flags(column),
    }))
}

/// An order: its lines, each with tags and a place, and numbers.
fn nested() -> RecordBatch {
    let lines = ROWS * 3;
    let text = |row: usize| format!("line {row}");
    let mut tags = ListBuilder::new(StringBuilder::new());
    for line in 0..lines {
        tags.append_value((0..line % 3).map(|tag| Some(if tag == 0 { "new" } else { "reduced" })));
    }
    let place = StructArray::from(vec![
        (
            Arc::new(Field::new("latitude", DataType::Float64, true)),
            Arc::new(Float64Array::from_iter_values(
                (0..lines).map(|line| line as f64 / 3.0),
            )) as ArrayRef,
        ),
        (
            Arc::new(Field::new("floor", DataType::Int64, true)),
            Arc::new(Int64Array::from_iter(
                (0..lines).map(|line| (line % 4 > 0).then_some(line as i64 % 9)),
            )),
        ),
    ]);
    let tags = tags.finish();
    let line = StructArray::from(vec![
        (
            Arc::new(Field::new("name", DataType::Utf8, true)),
            Arc::new(StringArray::from_iter_values((0..lines).map(text))) as ArrayRef,
        ),
        (
            Arc::new(Field::new("tags", tags.data_type().clone(), true)),
            Arc::new(tags),
        ),
        (
            Arc::new(Field::new("place", place.data_type().clone(), true)),
            Arc::new(place),
        ),
    ]);
    let offsets = arrow_buffer::OffsetBuffer::from_lengths((0..ROWS).map(|row| [1, 5, 3][row % 3]));
    let count = *offsets.last().expect("one for the end") as usize;
    let item = Arc::new(Field::new_list_field(line.data_type().clone(), true));
    let line = ListArray::new(item, offsets, Arc::new(line.slice(0, count)), None);
    let mut numbers = ListBuilder::new(Int64Builder::new());
    let mut ratios = ListBuilder::new(Float64Builder::new());
    for row in 0..ROWS {
        numbers.append_value((0..row % 8).map(|at| Some(number(row, at))));
        ratios.append_value((0..row % 4).map(|at| Some(at as f64 / 3.0)));
    }
    batch([
        ints(0),
        Arc::new(line) as ArrayRef,
        Arc::new(numbers.finish()),
        Arc::new(ratios.finish()),
    ])
}

// What `prost` makes of the same rows.

#[derive(Clone, PartialEq, prost::Message)]
struct Flat {
    #[prost(int64, optional, tag = "1")]
    c0: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    c1: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    c2: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    c3: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    c4: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    c5: Option<i64>,
    #[prost(double, optional, tag = "7")]
    c6: Option<f64>,
    #[prost(double, optional, tag = "8")]
    c7: Option<f64>,
    #[prost(double, optional, tag = "9")]
    c8: Option<f64>,
    #[prost(string, optional, tag = "10")]
    c9: Option<String>,
    #[prost(string, optional, tag = "11")]
    c10: Option<String>,
    #[prost(string, optional, tag = "12")]
    c11: Option<String>,
    #[prost(string, optional, tag = "13")]
    c12: Option<String>,
    #[prost(string, optional, tag = "14")]
    c13: Option<String>,
    #[prost(string, optional, tag = "15")]
    c14: Option<String>,
    #[prost(int64, optional, tag = "16")]
    c15: Option<i64>,
    #[prost(int64, optional, tag = "17")]
    c16: Option<i64>,
    #[prost(bool, optional, tag = "18")]
    c17: Option<bool>,
    #[prost(int32, optional, tag = "19")]
    c18: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "20")]
    c19: Option<Vec<u8>>,
}

fn write_flat(batch: &RecordBatch, into: &mut Vec<u8>) {
    let array = |at: usize| batch.column(at).as_ref();
    let ints: Vec<_> = (0..6).map(|at| array(at).as_primitive::<Int64Type>()).collect();
    let floats: Vec<_> = (6..9).map(|at| array(at).as_primitive::<Float64Type>()).collect();
    let texts: Vec<_> = (9..15).map(|at| array(at).as_string::<i32>()).collect();
    let stamps: Vec<_> = (15..17)
        .map(|at| array(at).as_primitive::<TimestampMicrosecondType>())
        .collect();
    let (flags, days) = (array(17).as_boolean(), array(18).as_primitive::<Date32Type>());
    let prices = array(19).as_primitive::<Decimal128Type>();
    for row in 0..batch.num_rows() {
        let int = |at: usize| ints[at].is_valid(row).then(|| ints[at].value(row));
        let float = |at: usize| floats[at].is_valid(row).then(|| floats[at].value(row));
        let text = |at: usize| texts[at].is_valid(row).then(|| texts[at].value(row).to_owned());
        let message = Flat {
            c0: int(0),
            c1: int(1),
            c2: int(2),
            c3: int(3),
            c4: int(4),
            c5: int(5),
            c6: float(0),
            c7: float(1),
            c8: float(2),
            c9: text(0),
            c10: text(1),
            c11: text(2),
            c12: text(3),
            c13: text(4),
            c14: text(5),
            c15: Some(stamps[0].value(row)),
            c16: Some(stamps[1].value(row)),
            c17: Some(flags.value(row)),
            c18: Some(days.value(row)),
            c19: Some(shortest(prices.value(row))),
        };
        message.encode(into).expect("a Vec takes all bytes");
    }
}

fn shortest(value: i128) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    while let [.., before, last] = bytes.as_slice()
        && ((*last == 0 && before & 0x80 == 0) || (*last == 0xff && before & 0x80 != 0))
    {
        bytes.pop();
    }
    bytes
}

#[derive(Clone, PartialEq, prost::Message)]
struct Place {
    #[prost(double, optional, tag = "1")]
    latitude: Option<f64>,
    #[prost(int64, optional, tag = "2")]
    floor: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Line {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, repeated, tag = "2")]
    tags: Vec<String>,
    #[prost(message, optional, tag = "3")]
    place: Option<Place>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nested {
    #[prost(int64, optional, tag = "1")]
    id: Option<i64>,
    #[prost(message, repeated, tag = "2")]
    lines: Vec<Line>,
    #[prost(int64, repeated, tag = "3")]
    numbers: Vec<i64>,
    #[prost(double, repeated, tag = "4")]
    ratios: Vec<f64>,
}

fn write_nested(batch: &RecordBatch, into: &mut Vec<u8>) {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let lists: Vec<_> = (1..4).map(|at| batch.column(at).as_list::<i32>()).collect();
    let elements = |list: usize, row: usize| {
        let offsets = lists[list].value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    };
    let lines = lists[0].values().as_struct();
    let (names, tags) = (
        lines.column(0).as_string::<i32>(),
        lines.column(1).as_list::<i32>(),
    );
    let places = lines.column(2).as_struct();
    let latitudes = places.column(0).as_primitive::<Float64Type>();
    let floors = places.column(1).as_primitive::<Int64Type>();
    let numbers = lists[1].values().as_primitive::<Int64Type>();
    let ratios = lists[2].values().as_primitive::<Float64Type>();
    let line = |at: usize| {
        let (begin, end) = (
            tags.value_offsets()[at] as usize,
            tags.value_offsets()[at + 1] as usize,
        );
        let tags = tags.values().as_string::<i32>();
        Line {
            name: Some(names.value(at).to_owned()),
            tags: (begin..end).map(|tag| tags.value(tag).to_owned()).collect(),
            place: Some(Place {
                latitude: Some(latitudes.value(at)),
                floor: floors.is_valid(at).then(|| floors.value(at)),
            }),
        }
    };
    for row in 0..batch.num_rows() {
        let message = Nested {
            id: ids.is_valid(row).then(|| ids.value(row)),
            lines: elements(0, row).map(line).collect(),
            numbers: numbers.values()[elements(1, row)].to_vec(),
            ratios: ratios.values()[elements(2, row)].to_vec(),
        };
        message.encode(into).expect("a Vec takes all bytes");
    }
}

/// A field of a message that is made at run time.
enum Dynamic {
    Int(i64),
    Double(f64),
    Text(String),
    Bool(bool),
}

fn write_wide(batch: &RecordBatch, into: &mut Vec<u8>) {
    for row in 0..batch.num_rows() {
        let mut message = Vec::with_capacity(batch.num_columns());
        for (number, array) in (1..).zip(batch.columns()) {
            if array.is_null(row) {
                continue;
            }
            let value = match array.data_type() {
                DataType::Int64 => Dynamic::Int(array.as_primitive::<Int64Type>().value(row)),
                DataType::Float64 => Dynamic::Double(array.as_primitive::<Float64Type>().value(row)),
                DataType::Utf8 => Dynamic::Text(array.as_string::<i32>().value(row).to_owned()),
                DataType::Boolean => Dynamic::Bool(array.as_boolean().value(row)),
                _ => Dynamic::Int(array.as_primitive::<TimestampMicrosecondType>().value(row)),
            };
            message.push((number, value));
        }
        let len = |(number, value): &(u32, Dynamic)| match value {
            Dynamic::Int(value) => encoding::int64::encoded_len(*number, value),
            Dynamic::Double(value) => encoding::double::encoded_len(*number, value),
            Dynamic::Text(value) => encoding::string::encoded_len(*number, value),
            Dynamic::Bool(value) => encoding::bool::encoded_len(*number, value),
        };
        into.reserve(message.iter().map(len).sum());
        for (number, value) in &message {
            match value {
                Dynamic::Int(value) => encoding::int64::encode(*number, value, into),
                Dynamic::Double(value) => encoding::double::encode(*number, value, into),
                Dynamic::Text(value) => encoding::string::encode(*number, value, into),
                Dynamic::Bool(value) => encoding::bool::encode(*number, value, into),
            }
        }
    }
}
