//! BOOL, INT64, FLOAT64, NUMERIC and BIGNUMERIC.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::i256;
use arrow_cast::cast;
use arrow_schema::DataType;
use bigquery_write_proto::rows::TableType;
use serde_json::{Value, json};

use super::world::{Case, column, digits, reasons, refused};

/// Arrays of every kind of integer at both ends of their range, 0 and NULL, and what is read of them.
fn integers() -> Vec<(ArrayRef, Value)> {
    vec![
        (
            Arc::new(Int8Array::from(vec![Some(-128), Some(127), Some(0), None])),
            json!(["-128", "127", "0", null]),
        ),
        (
            Arc::new(Int16Array::from(vec![Some(-32_768), Some(32_767), Some(0), None])),
            json!(["-32768", "32767", "0", null]),
        ),
        (
            Arc::new(Int32Array::from(vec![
                Some(i32::MIN),
                Some(i32::MAX),
                Some(0),
                None,
            ])),
            json!(["-2147483648", "2147483647", "0", null]),
        ),
        (
            Arc::new(Int64Array::from(vec![
                Some(i64::MIN),
                Some(i64::MAX),
                Some(0),
                None,
            ])),
            json!(["-9223372036854775808", "9223372036854775807", "0", null]),
        ),
        (
            Arc::new(UInt8Array::from(vec![Some(255), Some(0), None])),
            json!(["255", "0", null]),
        ),
        (
            Arc::new(UInt16Array::from(vec![Some(65_535), Some(0), None])),
            json!(["65535", "0", null]),
        ),
        (
            Arc::new(UInt32Array::from(vec![Some(u32::MAX), Some(0), None])),
            json!(["4294967295", "0", null]),
        ),
    ]
}

fn decimal(values: Vec<Option<i128>>, precision: u8, scale: i8) -> Decimal128Array {
    Decimal128Array::from(values)
        .with_precision_and_scale(precision, scale)
        .unwrap()
}

fn wide(unscaled: &[&str], precision: u8, scale: i8) -> Decimal256Array {
    let values = unscaled.iter().map(|digits| i256::from_string(digits).unwrap());
    Decimal256Array::from_iter_values(values)
        .with_precision_and_scale(precision, scale)
        .unwrap()
}

const NINES_29: i128 = 10_i128.pow(29) - 1;
const NINES_38: i128 = 10_i128.pow(38) - 1;
const NINES_76: &str = "9999999999999999999999999999999999999999999999999999999999999999999999999999";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            column(TableType::Bool),
            BooleanArray::from(vec![Some(true), Some(false), None]),
            json!(["true", "false", null]),
        ),
        Case::new(
            column(TableType::Int64),
            UInt64Array::from(vec![Some(9_223_372_036_854_775_807), Some(0), None]),
            json!(["9223372036854775807", "0", null]),
        ),
    ];
    for (array, expected) in integers() {
        for table in [TableType::Int64, TableType::Numeric, TableType::BigNumeric] {
            cases.push(Case::of(column(table), Arc::clone(&array), expected.clone()));
        }
    }
    for table in [TableType::Numeric, TableType::BigNumeric] {
        cases.push(Case::new(
            column(table),
            UInt64Array::from(vec![Some(u64::MAX), Some(0), None]),
            json!(["18446744073709551615", "0", null]),
        ));
        cases.push(Case::new(
            digits(table, 7, 2),
            Int32Array::from(vec![Some(99_999), Some(-99_999), Some(0)]),
            json!(["99999", "-99999", "0"]),
        ));
        cases.push(Case::new(
            digits(table, 5, 2),
            decimal(vec![Some(99_999), Some(-1), Some(0), None], 10, 2),
            json!(["999.99", "-0.01", "0", null]),
        ));
    }
    cases.extend(floats());
    cases.extend(decimals());
    cases
}

fn floats() -> Vec<Case> {
    let into = |array: ArrayRef, expected| Case::of(column(TableType::Float64), array, expected);
    let singles = Float32Array::from(vec![
        Some(0.1),
        Some(-0.0),
        Some(f32::NAN),
        Some(f32::NEG_INFINITY),
        Some(f32::MAX),
        None,
    ]);
    let half: ArrayRef = Arc::new(Float32Array::from(vec![
        Some(65_504.0),
        Some(-0.0),
        Some(f32::NAN),
        Some(f32::INFINITY),
        None,
    ]));
    vec![
        into(
            Arc::new(Float64Array::from(vec![
                Some(0.0),
                Some(-0.0),
                Some(f64::NAN),
                Some(f64::INFINITY),
                Some(f64::NEG_INFINITY),
                Some(f64::MAX),
                Some(f64::MIN),
                Some(f64::MIN_POSITIVE),
                Some(0.1),
                None,
            ])),
            json!([
                "0.0",
                "-0.0",
                "NaN",
                "Infinity",
                "-Infinity",
                "1.7976931348623157E308",
                "-1.7976931348623157E308",
                "2.2250738585072014E-308",
                "0.1",
                null
            ]),
        ),
        into(
            Arc::new(singles),
            json!([
                "0.10000000149011612",
                "-0.0",
                "NaN",
                "-Infinity",
                "3.4028234663852886E38",
                null
            ]),
        ),
        into(
            cast(&half, &DataType::Float16).unwrap(),
            json!(["65504.0", "-0.0", "NaN", "Infinity", null]),
        ),
        into(
            Arc::new(Int8Array::from(vec![Some(-128), Some(127), None])),
            json!(["-128.0", "127.0", null]),
        ),
        into(
            Arc::new(Int16Array::from(vec![-32_768, 32_767])),
            json!(["-32768.0", "32767.0"]),
        ),
        into(
            Arc::new(Int32Array::from(vec![i32::MIN, i32::MAX, 0])),
            json!(["-2.147483648E9", "2.147483647E9", "0.0"]),
        ),
        into(Arc::new(UInt8Array::from(vec![255])), json!(["255.0"])),
        into(Arc::new(UInt16Array::from(vec![65_535])), json!(["65535.0"])),
        into(
            Arc::new(UInt32Array::from(vec![u32::MAX])),
            json!(["4.294967295E9"]),
        ),
    ]
}

fn decimals() -> Vec<Case> {
    vec![
        Case::new(
            column(TableType::Numeric),
            decimal(
                vec![Some(NINES_38), Some(-NINES_38), Some(1), Some(0), None],
                38,
                9,
            ),
            json!([
                "99999999999999999999999999999.999999999",
                "-99999999999999999999999999999.999999999",
                "0.000000001",
                "0",
                null
            ]),
        ),
        Case::new(
            column(TableType::Numeric),
            decimal(vec![Some(NINES_29), Some(-NINES_29)], 29, 0),
            json!(["99999999999999999999999999999", "-99999999999999999999999999999"]),
        ),
        Case::new(
            column(TableType::Numeric),
            // More places than the column has, with nothing in them; and fewer than none.
            decimal(vec![Some(15_000_000_000), Some(-1_000)], 38, 12),
            json!(["0.015", "-0.000000001"]),
        ),
        Case::new(
            column(TableType::Numeric),
            decimal(vec![Some(123), Some(-1)], 3, -3),
            json!(["123000", "-1000"]),
        ),
        Case::new(
            column(TableType::Numeric),
            wide(&["99999999999999999999999999999999999999", "-15", "0"], 76, 9),
            json!(["99999999999999999999999999999.999999999", "-0.000000015", "0"]),
        ),
        Case::new(
            column(TableType::BigNumeric),
            decimal(vec![Some(NINES_38), Some(-1), Some(0), None], 38, 38),
            json!([
                "0.99999999999999999999999999999999999999",
                "-0.00000000000000000000000000000000000001",
                "0",
                null
            ]),
        ),
        Case::new(
            column(TableType::BigNumeric),
            decimal(vec![Some(NINES_38)], 38, 0),
            json!(["99999999999999999999999999999999999999"]),
        ),
        Case::new(
            column(TableType::BigNumeric),
            wide(&[NINES_76, "1", "0"], 76, 38),
            json!([
                "99999999999999999999999999999999999999.99999999999999999999999999999999999999",
                "0.00000000000000000000000000000000000001",
                "0"
            ]),
        ),
        Case::new(
            column(TableType::BigNumeric),
            wide(
                &[
                    "578960446186580977117854925043439539266",
                    "-578960446186580977117854925043439539266",
                ],
                76,
                0,
            ),
            json!([
                "578960446186580977117854925043439539266",
                "-578960446186580977117854925043439539266"
            ]),
        ),
        Case::new(
            column(TableType::BigNumeric),
            wide(
                &["5789604461865809771178549250434395392663499233282028201972879200395656481996"],
                76,
                37,
            ),
            json!(["578960446186580977117854925043439539266.3499233282028201972879200395656481996"]),
        ),
    ]
}

#[test]
fn numbers_beyond_their_column_are_row_errors() {
    let said = |table: TableType, array: ArrayRef| reasons(&refused(column(table), array));
    let beyond = |row: usize, what: &str| (row, what.to_owned());
    assert_eq!(
        said(TableType::Int64, Arc::new(UInt64Array::from(vec![1, u64::MAX]))),
        [beyond(2, "out of the range of INT64")]
    );
    assert_eq!(
        said(
            TableType::Numeric,
            Arc::new(decimal(vec![Some(NINES_29), Some(NINES_29 + 1)], 38, 0))
        ),
        [beyond(2, "more than 29 digits before the decimal point")]
    );
    assert_eq!(
        said(
            TableType::Numeric,
            Arc::new(decimal(vec![Some(1), Some(10)], 38, 10))
        ),
        [beyond(1, "more than 9 digits behind the decimal point")]
    );
    assert_eq!(
        said(
            TableType::BigNumeric,
            Arc::new(wide(
                &[
                    "578960446186580977117854925043439539266",
                    "578960446186580977117854925043439539267",
                    NINES_76
                ],
                76,
                0
            ))
        ),
        [
            beyond(2, "out of the range of BIGNUMERIC"),
            beyond(3, "more than 39 digits before the decimal point")
        ]
    );
    assert_eq!(
        reasons(&refused(
            digits(TableType::Numeric, 5, 2),
            Int64Array::from(vec![999, 1_000, i64::MIN])
        )),
        [
            beyond(2, "more than 3 digits before the decimal point"),
            beyond(3, "more than 3 digits before the decimal point")
        ]
    );
}
