//! Default expressions by what they give, and by what is said of those that give nothing.

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_cast::display::array_value_to_string;

use super::*;
use crate::schema::{Mode, RangeElement};

/// 2024-03-10 10:30:00.123 UTC.
const NOW: Millis = 1_710_066_600_123;

fn column(kind: Kind, mode: Mode, sql: &str) -> Column {
    Column {
        default_value_expression: Some(sql.to_owned()),
        ..Column::new("c", kind, mode)
    }
}

fn evaluate(column: &Column, rows: usize) -> Result<ArrayRef, String> {
    let default = DefaultValue::of(column).map_err(|error| error.to_string())?;
    let mut random = RandomBits::new(7);
    let mut moment = Moment {
        now_ms: NOW,
        random: &mut random,
    };
    let array = default.ok_or("NULL")?.evaluate(rows, &mut moment).unwrap();
    assert_eq!(array.data_type(), column.arrow().data_type());
    assert_eq!(array.len(), rows);
    Ok(array)
}

/// The default of one row, as arrow prints it.
fn value(kind: Kind, sql: &str) -> String {
    let array = evaluate(&column(kind, Mode::Nullable, sql), 1);
    array.map_or_else(|error| error, |array| array_value_to_string(&array, 0).unwrap())
}

fn refused(kind: Kind, mode: Mode, sql: &str) -> String {
    let error = DefaultValue::of(&column(kind, mode, sql))
        .unwrap_err()
        .to_string();
    let reason = error.strip_prefix("Invalid default value expression for column c: ");
    reason.unwrap_or_else(|| panic!("{error}")).to_owned()
}

fn numeric(precision: Option<u8>, scale: Option<u8>) -> Kind {
    Kind::Numeric { precision, scale }
}

fn big(precision: Option<u8>, scale: Option<u8>) -> Kind {
    Kind::BigNumeric { precision, scale }
}

const STRING: Kind = Kind::String { max_length: None };

#[test]
fn literals_of_every_type_are_values() {
    let range = |element| Kind::Range(element);
    for (kind, sql, want) in [
        (Kind::Bool, "true", "true"),
        (Kind::Int64, "-9223372036854775808", "-9223372036854775808"),
        (Kind::Int64, "0xff", "255"),
        (Kind::Int64, "- (-(5))", "5"),
        (Kind::Float64, "1.5e3", "1500.0"),
        (Kind::Float64, "-.5", "-0.5"),
        (numeric(None, None), "NUMERIC '-1.5'", "-1.500000000"),
        (numeric(None, None), "-DECIMAL '1e3'", "-1000.000000000"),
        (
            big(None, None),
            "BIGNUMERIC '1'",
            &format!("1.{}", "0".repeat(38)),
        ),
        (STRING, "'it\\'s'", "it's"),
        (STRING, "r'\\d' \"x\"", "\\dx"),
        (Kind::Bytes { max_length: None }, "b'\\xffA'", "ff41"),
        (Kind::Date, "DATE '2014-9-27'", "2014-09-27"),
        (Kind::Time, "TIME '12:30:00.45'", "12:30:00.450"),
        (
            Kind::Datetime,
            "DATETIME '2014-09-27 12:30:00.45'",
            "2014-09-27T12:30:00.450",
        ),
        (
            Kind::Timestamp,
            "TIMESTAMP '2014-09-27 12:30:00.45-08'",
            "2014-09-27T20:30:00.450Z",
        ),
        (
            Kind::TimestampPicoseconds,
            "TIMESTAMP '1970-01-01 00:00:01.123456789123'",
            "1.123456789123",
        ),
        (Kind::Json, "JSON '{\"a\": [1]}'", "{\"a\": [1]}"),
        (
            Kind::Interval,
            "INTERVAL -5 DAY",
            "{months: 0, days: -5, microseconds: 0}",
        ),
        (
            Kind::Interval,
            "INTERVAL '1-2 3 4:5:6.7' YEAR TO SECOND",
            "{months: 14, days: 3, microseconds: 14706700000}",
        ),
        (
            Kind::Interval,
            "INTERVAL 2 QUARTER",
            "{months: 6, days: 0, microseconds: 0}",
        ),
        (
            range(RangeElement::Date),
            "RANGE<DATE> '[2020-01-01, UNBOUNDED)'",
            "{start: 2020-01-01, end: }",
        ),
        (
            range(RangeElement::Timestamp),
            "RANGE<TIMESTAMP> '[NULL, 2020-10-01 12:00:00+08)'",
            "{start: , end: 2020-10-01T04:00:00Z}",
        ),
        (Kind::Geography, "ST_GEOGPOINT(-122.5, 37)", "POINT(-122.5 37)"),
        (Kind::Geography, "st_geogpoint(181, 0.5)", "POINT(-179 0.5)"),
    ] {
        assert_eq!(value(kind, sql), want, "{sql}");
    }
}

#[test]
fn literals_coerce_as_bigquerys_do() {
    for (kind, sql, want) in [
        (Kind::Float64, "3", "3.0"),
        (Kind::Float64, "NUMERIC '0.1'", "0.1"),
        (Kind::Float64, "BIGNUMERIC '-2.5'", "-2.5"),
        (numeric(None, None), "3", "3.000000000"),
        (numeric(None, None), "1.1", "1.100000000"),
        // Rounded half away from zero, as rows are.
        (numeric(Some(3), Some(1)), "NUMERIC '-1.25'", "-1.300000000"),
        (
            big(None, None),
            "NUMERIC '1.5'",
            &format!("1.5{}", "0".repeat(37)),
        ),
        (Kind::Date, "'2014-09-27'", "2014-09-27"),
        (Kind::Time, "'1:2:3'", "01:02:03"),
        (Kind::Datetime, "DATE '2014-09-27'", "2014-09-27T00:00:00"),
        (Kind::Datetime, "'2014-09-27T01:02:03'", "2014-09-27T01:02:03"),
        (
            Kind::Timestamp,
            "'2014-09-27 12:30:00 America/Los_Angeles'",
            "2014-09-27T19:30:00Z",
        ),
        (
            Kind::TimestampPicoseconds,
            "TIMESTAMP '1970-01-01 00:00:01'",
            "1.000000000000",
        ),
        (
            Kind::TimestampPicoseconds,
            "'1969-12-31 23:59:59.999999999999'",
            "-0.000000000001",
        ),
    ] {
        assert_eq!(value(kind, sql), want, "{sql}");
    }
    let said = |kind: Kind, sql| refused(kind, Mode::Nullable, sql);
    for (kind, sql, from, to) in [
        (Kind::Int64, "1.0", "FLOAT64", "INT64"),
        (Kind::Int64, "'1'", "STRING", "INT64"),
        (Kind::Bool, "1", "INT64", "BOOL"),
        (STRING, "1", "INT64", "STRING"),
        (STRING, "b'a'", "BYTES", "STRING"),
        (Kind::Bytes { max_length: None }, "'a'", "STRING", "BYTES"),
        (numeric(None, None), "BIGNUMERIC '1'", "BIGNUMERIC", "NUMERIC"),
        (Kind::Date, "DATETIME '2020-01-01'", "DATETIME", "DATE"),
        (Kind::Timestamp, "DATE '2020-01-01'", "DATE", "TIMESTAMP"),
        (
            Kind::Timestamp,
            "TIMESTAMP '2020-01-01 00:00:00.0000001'",
            "TIMESTAMP(12)",
            "TIMESTAMP",
        ),
        (
            numeric(None, None),
            "TIMESTAMP '2020-01-01 00:00:00.0000001'",
            "TIMESTAMP(12)",
            "NUMERIC",
        ),
        (Kind::Json, "'{}'", "STRING", "JSON"),
        (Kind::Geography, "'POINT(1 2)'", "STRING", "GEOGRAPHY"),
        (Kind::Interval, "'0-0 1 0:0:0'", "STRING", "INTERVAL"),
        (
            Kind::Range(RangeElement::Date),
            "RANGE<DATETIME> '[2020-01-01, NULL)'",
            "RANGE<DATETIME>",
            "RANGE<DATE>",
        ),
        (numeric(Some(3), None), "RAND()", "FLOAT64", "NUMERIC(3)"),
        (Kind::Date, "CURRENT_TIMESTAMP()", "TIMESTAMP", "DATE"),
    ] {
        assert_eq!(
            said(kind, sql),
            format!("it has type {from}, the column has type {to}"),
            "{sql}"
        );
    }
}

#[test]
fn values_conform_to_the_parameters_and_ranges() {
    let said = |kind: Kind, sql| refused(kind, Mode::Nullable, sql);
    let long = |max| Kind::String {
        max_length: Some(max),
    };
    assert_eq!(value(long(5), "'hellö'"), "hellö");
    assert_eq!(
        said(long(4), "'hello'"),
        "STRING(4) has maximum length 4 but got a value with length 5"
    );
    assert_eq!(
        said(long(35), "GENERATE_UUID()"),
        "STRING(35) has maximum length 35 but got a value with length 36"
    );
    assert_eq!(
        said(Kind::Bytes { max_length: Some(1) }, "b'ab'"),
        "BYTES(1) has maximum length 1 but got a value with length 2"
    );
    assert_eq!(
        said(numeric(Some(3), Some(1)), "100"),
        "the value is out of the range of NUMERIC(3, 1)"
    );
    assert_eq!(
        said(numeric(None, None), "1e29"),
        "the value is out of the range of NUMERIC"
    );
    assert_eq!(
        said(big(None, None), "1e39"),
        "the value is out of the range of BIGNUMERIC"
    );
    assert_eq!(
        said(Kind::Int64, "9223372036854775808"),
        "an integer literal is out of range"
    );
    assert_eq!(
        said(Kind::Float64, "1e999"),
        "a floating point literal is out of range"
    );
    assert_eq!(said(Kind::Date, "DATE '2023-02-29'"), "invalid DATE literal");
    assert_eq!(said(Kind::Date, "'tomorrow'"), "the string is no DATE");
    assert_eq!(said(Kind::Json, "JSON '{a}'"), "invalid JSON literal");
    assert_eq!(
        said(Kind::Interval, "INTERVAL 10001 YEAR"),
        "an INTERVAL literal cannot be read, or is out of range"
    );
    assert_eq!(
        said(
            Kind::Range(RangeElement::Date),
            "RANGE<DATE> '[2020-01-02, 2020-01-02)'"
        ),
        "Range start element must be smaller than range end element"
    );
    assert_eq!(
        said(
            Kind::Range(RangeElement::Date),
            "RANGE<DATE> '[2020-01-01,2020-01-02)'"
        ),
        "invalid RANGE<DATE> literal"
    );
    assert_eq!(
        said(Kind::Geography, "ST_GEOGPOINT(0, 91)"),
        "the latitude of ST_GEOGPOINT is not from -90 to 90"
    );
}

#[test]
fn arrays_and_structs_are_typed_by_their_columns() {
    let repeated = |kind: Kind, sql| {
        let array = evaluate(&column(kind, Mode::Repeated, sql), 1);
        array.map_or_else(|error| error, |array| array_value_to_string(&array, 0).unwrap())
    };
    assert_eq!(repeated(Kind::Float64, "[1, 2.5]"), "[1.0, 2.5]");
    assert_eq!(repeated(Kind::Int64, "ARRAY<INT64>[]"), "[]");
    assert_eq!(repeated(STRING, "ARRAY['a']"), "[a]");
    assert_eq!(
        repeated(Kind::Date, "[CURRENT_DATE(), DATE '2020-01-01']"),
        "[2024-03-10, 2020-01-01]"
    );

    // The documentation's own.
    let inner = Kind::Struct(vec![
        Column::new("x1", Kind::Timestamp, Mode::Nullable),
        Column::new("x2", numeric(None, None), Mode::Nullable),
    ]);
    let kind = Kind::Struct(vec![
        Column::new("x", inner, Mode::Nullable),
        Column::new("y", Kind::Date, Mode::Repeated),
    ]);
    assert_eq!(
        value(
            kind.clone(),
            "((CURRENT_TIMESTAMP(), NULL), [DATE '2022-01-01', CURRENT_DATE()])"
        ),
        "{x: {x1: 2024-03-10T10:30:00.123Z, x2: }, y: [2022-01-01, 2024-03-10]}"
    );
    assert_eq!(
        value(
            kind.clone(),
            "STRUCT<x STRUCT<x1 TIMESTAMP, NUMERIC>, ARRAY<DATE>>(STRUCT('2020-01-01' AS a, 1), [])"
        ),
        "{x: {x1: 2020-01-01T00:00:00Z, x2: 1.000000000}, y: []}"
    );
    assert_eq!(value(kind.clone(), "(NULL, [])"), "{x: , y: []}");
    let lists = Kind::Struct(vec![Column::new("a", Kind::Int64, Mode::Nullable)]);
    assert_eq!(
        repeated(lists, "ARRAY<STRUCT<a INT64>>[STRUCT(1), STRUCT<INT64>(2)]"),
        "[{a: 1}, {a: 2}]"
    );

    let shape = "STRUCT<x STRUCT<x1 TIMESTAMP, x2 NUMERIC>, y ARRAY<DATE>>";
    let said = |sql| refused(kind.clone(), Mode::Nullable, sql);
    assert_eq!(
        said("(1, 'a', NULL)"),
        format!("it has type STRUCT<INT64, STRING, NULL>, the column has type {shape}")
    );
    assert_eq!(
        said("STRUCT<STRING, DATE>('a', '2020-01-01')"),
        format!("it has type STRUCT<STRING, DATE>, the column has type {shape}")
    );
    assert_eq!(said("(NULL, NULL)"), "NULL where an ARRAY is needed");
    let said = |kind, sql| refused(kind, Mode::Repeated, sql);
    assert_eq!(said(Kind::Int64, "[1, NULL]"), "an ARRAY cannot contain NULL");
    assert_eq!(said(Kind::Int64, "NULL"), "NULL where an ARRAY is needed");
    assert_eq!(
        said(Kind::Int64, "1"),
        "it has type INT64, the column has type ARRAY<INT64>"
    );
    assert_eq!(
        said(Kind::Int64, "['a']"),
        "it has type STRING, the column has type INT64"
    );
    assert_eq!(
        said(Kind::Int64, "ARRAY<STRING>[]"),
        "it has type ARRAY<STRING>, the column has type ARRAY<INT64>"
    );
    assert_eq!(
        refused(Kind::Int64, Mode::Nullable, "[1]"),
        "it has type ARRAY<INT64>, the column has type INT64"
    );
    assert_eq!(
        refused(Kind::Int64, Mode::Required, "NULL"),
        "NULL where a value is REQUIRED"
    );
}

#[test]
fn functions_take_the_clock_and_the_bits_they_are_given() {
    for (kind, sql, want) in [
        (Kind::Date, "CURRENT_DATE", "2024-03-10"),
        (Kind::Date, "current_date()", "2024-03-10"),
        (Kind::Date, "CURRENT_DATE('Pacific/Kiritimati')", "2024-03-11"),
        (Kind::Datetime, "CURRENT_DATE()", "2024-03-10T00:00:00"),
        (
            Kind::Datetime,
            "CURRENT_DATETIME('America/Los_Angeles')",
            "2024-03-10T03:30:00.123",
        ),
        (Kind::Time, "CURRENT_TIME('+01:00')", "11:30:00.123"),
        (Kind::Timestamp, "CURRENT_TIMESTAMP", "2024-03-10T10:30:00.123Z"),
        (
            Kind::TimestampPicoseconds,
            "CURRENT_TIMESTAMP()",
            "1710066600.123000000000",
        ),
        (STRING, "SESSION_USER()", SESSION_USER),
    ] {
        assert_eq!(value(kind, sql), want, "{sql}");
    }
    // The same bits for the same seed, others for each row.
    let uuids = || evaluate(&column(STRING, Mode::Nullable, "GENERATE_UUID()"), 100).unwrap();
    assert_eq!(&uuids(), &uuids());
    let distinct: std::collections::BTreeSet<String> = uuids()
        .as_string::<i32>()
        .iter()
        .map(|uuid| uuid.unwrap().to_owned())
        .collect();
    assert_eq!(distinct.len(), 100);
    for uuid in &distinct {
        let parsed = uuid::Uuid::parse_str(uuid).unwrap();
        assert_eq!((parsed.get_version_num(), parsed.to_string()), (4, uuid.clone()));
    }
    let numbers = evaluate(&column(Kind::Float64, Mode::Nullable, "RAND()"), 1_000).unwrap();
    let numbers = numbers
        .as_primitive::<arrow_array::types::Float64Type>()
        .values()
        .to_vec();
    assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    let mean = numbers.iter().sum::<f64>() / 1_000.0;
    assert!((0.45..0.55).contains(&mean), "{mean}");
    assert_ne!(RandomBits::new(1).next(), RandomBits::new(2).next());
}

#[test]
fn what_is_no_literal_and_no_allowed_function_is_refused() {
    let said = |sql: &str| refused(STRING, Mode::Nullable, sql);
    let allowed = "CURRENT_DATE, CURRENT_DATETIME, CURRENT_TIME, CURRENT_TIMESTAMP, GENERATE_UUID, RAND, SESSION_USER \
                   and ST_GEOGPOINT";
    assert_eq!(
        said("UPPER('a')"),
        format!("the function UPPER is not allowed, only {allowed} are")
    );
    assert_eq!(
        said("other_column"),
        format!("OTHER_COLUMN is no literal, and no function that is allowed: {allowed}")
    );
    assert_eq!(said("GENERATE_UUID(1)"), "GENERATE_UUID takes no arguments");
    assert_eq!(said("CURRENT_DATE('Mars/Base')"), "there is no such time zone");
    assert_eq!(said("'a' || 'b'"), "syntax error: the expression ends before ||");
    assert_eq!(said("1 + 1"), "syntax error: the expression ends before +");
    assert_eq!(
        said(""),
        "syntax error: a literal or a function is expected at the end"
    );
    assert_eq!(
        said("(SELECT 'a')"),
        format!("SELECT is no literal, and no function that is allowed: {allowed}")
    );
    assert_eq!(
        said("`a`"),
        "syntax error: a literal or a function is expected before `a`"
    );
    assert_eq!(said("[1, 2"), "syntax error: ] is expected at the end");
    assert_eq!(
        said("-'a'"),
        "the minus sign stands before something that is no number"
    );
    assert_eq!(said("ARRAY<FOO>[]"), "FOO is no type");
    assert_eq!(
        said(&"(".repeat(60)),
        "it is nested too deep: the most is 50 levels"
    );
    assert_eq!(
        said(&"- ".repeat(60)),
        "it is nested too deep: the most is 50 levels"
    );
    assert_eq!(
        said(&"ARRAY<".repeat(60)),
        "syntax error: a type is expected before ARRAY"
    );
    assert!(said("CAST(1 AS STRING)").starts_with("syntax error: "));
}

#[test]
fn no_default_and_null_are_the_same() {
    let none = Column::new("c", Kind::Int64, Mode::Nullable);
    assert!(DefaultValue::of(&none).unwrap().is_none());
    assert!(
        DefaultValue::of(&column(Kind::Int64, Mode::Nullable, "NULL"))
            .unwrap()
            .is_none()
    );
    assert!(
        DefaultValue::of(&column(Kind::Int64, Mode::Nullable, "(null)"))
            .unwrap()
            .is_none()
    );
}
