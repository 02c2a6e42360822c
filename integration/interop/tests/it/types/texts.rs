//! STRING, JSON, GEOGRAPHY and BYTES.

use std::sync::Arc;

use arrow_array::*;
use arrow_cast::cast;
use arrow_schema::DataType;
use bigquery_write_proto::rows::TableType;
use bigquery_write_proto::wire::TableFieldSchema;
use serde_json::{Value, json};

use super::world::{Case, at_most, column, reasons, refused};

/// The same text in each of Arrow's layouts.
fn layouts(texts: &[Option<&str>]) -> Vec<ArrayRef> {
    let text: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let types = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];
    types.iter().map(|layout| cast(&text, layout).unwrap()).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut into = |target: TableFieldSchema, texts: &[Option<&str>], expected: Value| {
        for array in layouts(texts) {
            cases.push(Case::of(
                TableFieldSchema::clone(&target),
                array,
                expected.clone(),
            ));
        }
    };
    let texts = [
        Some(""),
        Some("a"),
        Some("a text that no view holds inline"),
        Some("\u{1f600}\u{1f469}\u{200d}\u{1f52c}"),
        Some("a\0b"),
        Some("e\u{301} \u{e9}"),
        Some("\u{feff}\u{202e}\n\t\"\\"),
        None,
    ];
    let expected = json!([
        "",
        "a",
        "a text that no view holds inline",
        "\u{1f600}\u{1f469}\u{200d}\u{1f52c}",
        "a\u{0}b",
        "e\u{301} \u{e9}",
        "\u{feff}\u{202e}\n\t\"\\",
        null
    ]);
    into(column(TableType::String), &texts, expected);
    let large = "0123456789abcdef".repeat(1 << 16);
    into(
        column(TableType::String),
        &[Some(&large), Some("b")],
        json!([large, "b"]),
    );
    into(
        at_most(TableType::String, 3),
        &[
            Some("\u{e4}\u{f6}\u{fc}"),
            Some("\u{1f600}\u{1f600}\u{1f600}"),
            Some(""),
        ],
        json!(["\u{e4}\u{f6}\u{fc}", "\u{1f600}\u{1f600}\u{1f600}", ""]),
    );
    into(
        column(TableType::Json),
        &[
            Some(r#"{"a":[1,null,"\u0000"]}"#),
            Some(r#""text""#),
            Some("null"),
            Some("0"),
            Some("[]"),
            None,
        ],
        json!([r#"{"a":[1,null,"\u0000"]}"#, r#""text""#, "null", "0", "[]", null]),
    );
    into(
        column(TableType::Geography),
        &[Some("POINT(-122.35 47.62)"), Some("LINESTRING(0 0, 1 1)"), None],
        json!(["POINT(-122.35 47.62)", "LINESTRING(0 0, 1 1)", null]),
    );
    cases.extend(bytes());
    cases
}

fn bytes() -> Vec<Case> {
    let mut cases = Vec::new();
    let large = vec![0; 1 << 20];
    let encoded = format!("{}==", "A".repeat(1_398_102));
    let values: ArrayRef = Arc::new(BinaryArray::from(vec![
        Some(&b""[..]),
        Some(&[0, 255]),
        Some(b"bytes that no view holds inline"),
        Some(&large),
        None,
    ]));
    for layout in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
        cases.push(Case::of(
            column(TableType::Bytes),
            cast(&values, &layout).unwrap(),
            json!([
                "",
                "AP8=",
                "Ynl0ZXMgdGhhdCBubyB2aWV3IGhvbGRzIGlubGluZQ==",
                encoded,
                null
            ]),
        ));
    }
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some([1, 2]), None].into_iter(), 2);
    cases.push(Case::new(
        at_most(TableType::Bytes, 2),
        fixed.unwrap(),
        json!(["AQI=", null]),
    ));
    cases
}

#[test]
fn texts_and_bytes_beyond_their_column_are_row_errors() {
    let text = |texts: &[&str]| StringArray::from(texts.to_vec());
    assert_eq!(
        reasons(&refused(
            at_most(TableType::String, 3),
            text(&["\u{e4}\u{f6}\u{fc}", "\u{e4}\u{f6}\u{fc}\u{df}"])
        )),
        [(2, "longer than 3 characters".to_owned())]
    );
    assert_eq!(
        reasons(&refused(
            at_most(TableType::Bytes, 2),
            BinaryArray::from_vec(vec![b"ab", b"abc"])
        )),
        [(2, "longer than 2 bytes".to_owned())]
    );
    assert_eq!(
        reasons(&refused(
            column(TableType::Json),
            text(&[
                "{}",
                "",
                "{'a': 1}",
                "NaN",
                "{} {}",
                "\u{feff}{}",
                r#""\ud83d\ude00 \\ud800""#,
                r#""\ud800""#,
                "[1,\n  \"\\ude00\\ud83d\"]",
                r#"{"\ud83d\u0041": 1}"#,
            ])
        )),
        [
            (2, "not JSON (line 1, column 0)".to_owned()),
            (3, "not JSON (line 1, column 2)".to_owned()),
            (4, "not JSON (line 1, column 1)".to_owned()),
            (5, "not JSON (line 1, column 4)".to_owned()),
            (6, "not JSON (line 1, column 1)".to_owned()),
            // Halves of characters (a pair, and a backslash that is a character of its own, are none).
            (8, "not JSON (line 1, column 2)".to_owned()),
            (9, "not JSON (line 2, column 4)".to_owned()),
            (10, "not JSON (line 1, column 3)".to_owned()),
        ]
    );
}
