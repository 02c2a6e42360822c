//! Refused rows as JSON, and the ratio.

use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, BinaryArray, BinaryViewArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array,
    Int32Array, ListArray, ListViewArray, RunArray, StructArray, TimestampNanosecondArray, UInt64Array,
    UnionArray,
};
use arrow_schema::{FieldRef, UnionFields};

use bigquery_sink_state::RowFault;

use super::json::Documents;
use super::ratio::Ratio;
use super::*;

#[test]
fn every_type_has_a_json_that_bigquery_takes() {
    let decimals = Decimal128Array::from(vec![Some(-12_345), None])
        .with_precision_and_scale(38, 3)
        .unwrap();
    let inner: ArrayRef = Arc::new(decimals);
    let instants = TimestampNanosecondArray::from(vec![Some(1_767_323_045_123_456_789), None]);
    let views = BinaryViewArray::from_iter([Some(b"ab".as_slice()), None]);
    let elements: ArrayRef = Arc::new(BinaryViewArray::from_iter([
        Some(b"y".as_slice()),
        Some(b"z"),
        None,
    ]));
    let item: FieldRef = Arc::new(Field::new("item", elements.data_type().clone(), true));
    let words = StringArray::from(vec![Some("yes"), None]);
    let fields = UnionFields::new([0], [Field::new("a", DataType::Int32, false)]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let union = UnionArray::try_new(fields, vec![0, 0].into(), None, vec![numbers]).unwrap();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("large", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
        (
            "text",
            Arc::new(StringArray::from(vec![Some("a \"b\"\n\u{1}ü"), None])),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from_opt_vec(vec![Some(&[0, 255, 16]), None])),
        ),
        ("decimal", Arc::clone(&inner)),
        ("naive", Arc::new(instants.clone())),
        ("instant", Arc::new(instants.with_timezone("+00:00"))),
        ("date", Arc::new(Date32Array::from(vec![Some(-1), None]))),
        (
            "float",
            Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(-0.1)])),
        ),
        ("list", Arc::new(lists)),
        (
            "word",
            Arc::new(DictionaryArray::<Int32Type>::from_iter([Some("yes"), None])),
        ),
        (
            "inside",
            Arc::new(StructArray::try_from(vec![("d", inner)]).unwrap()),
        ),
        ("view", Arc::new(views)),
        (
            "views",
            Arc::new(ListViewArray::new(
                item,
                vec![1, 0].into(),
                vec![2, 0].into(),
                elements,
                None,
            )),
        ),
        (
            "runs",
            Arc::new(RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &words).unwrap()),
        ),
        ("none", Arc::new(union)),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let documents = Documents::of(&rows);
    assert_eq!(
        documents.row(0, json::LONGEST).unwrap(),
        concat!(
            r#"{"large":18446744073709551615,"text":"a \"b\"\n\u0001ü","bytes":"00ff10","decimal":"-12.345","#,
            r#""naive":"2026-01-02T03:04:05.123456789","instant":"2026-01-02T03:04:05.123456789Z","date":"1969-12-31","#,
            r#""float":null,"list":[1,null],"word":"yes","inside":{"d":"-12.345"},"#,
            r#""view":"6162","views":["7a",null],"runs":"yes","none":"a value of type "#,
            r#"Union([(0, Field { name: \"a\", data_type: Int32, nullable: false, dict_id: 0, dict_is_ordered: false, metadata: {} })], Sparse), "#,
            r#"which has no JSON form"}"#
        )
    );
    let second = documents.row(1, json::LONGEST).unwrap();
    let (second, _) = second.split_once(r#","none":"#).unwrap();
    assert_eq!(
        second,
        concat!(
            r#"{"large":null,"text":null,"bytes":null,"decimal":null,"naive":null,"instant":null,"date":null,"float":-0.1,"#,
            r#""list":null,"word":null,"inside":{"d":null},"view":null,"views":[],"runs":null"#
        )
    );
}

#[test]
fn a_row_too_long_for_a_letter_leaves_its_size() {
    let long: ArrayRef = Arc::new(StringArray::from(vec![
        "x".repeat((8 << 20) - 8),
        "x".repeat((8 << 20) - 7),
    ]));
    let documents = Documents::of(&RecordBatch::try_from_iter([("a", long)]).unwrap());
    assert_eq!(documents.row(0, json::LONGEST).unwrap().len(), 8 << 20);
    assert_eq!(
        documents.row(1, json::LONGEST).unwrap(),
        r#"{"json_bytes":8388609,"omitted":"the row is too long for a dead letter"}"#
    );
}

fn reasons(text: &str, count: usize) -> Vec<Reason> {
    vec![Reason::of_sink(None, text.to_owned()); count]
}

#[test]
fn the_ratio_is_that_of_the_newest_rows_alone() {
    let mut ratio = Ratio::new(0.1);
    // 10 of 100 and more than 100 of them: as much as is allowed.
    for _ in 0..100 {
        ratio.count(100, &reasons("a", 10)).unwrap();
    }
    // 1,001 of 10,100: the oldest batch is forgotten when 10,000 are left without it.
    let error = ratio.count(100, &reasons("b", 11)).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "1001 of the last 10000 rows were refused, more than dead_letter.max_ratio = 0.1 allows; the commonest reason, 990 times: a. "
        ),
        "{error}"
    );

    let mut ratio = Ratio::new(0.1);
    ratio.count(1_000, &reasons("a", 99)).unwrap();
    // Good rows one by one, as many as make the bad ones old; however many come, few counts are kept.
    for _ in 0..100_000 {
        ratio.count(1, &[]).unwrap();
    }
    assert!(ratio.entries() <= 102, "{}", ratio.entries());
    ratio.count(0, &reasons("a", 1_000)).unwrap();
    assert!(
        ratio.count(0, &reasons("a", 1)).is_err(),
        "of 10,000 or a few more"
    );
}

/// What BigQuery says of the rows of a batch with a column `größe`.
fn of_server(message: String) -> Reason {
    let sizes: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let wire = RecordBatch::try_from_iter([("größe", sizes)]).unwrap();
    Reason::of_server(&RowFault { index: 0, message }, &wire)
}

#[test]
fn a_column_is_known_in_any_case_of_its_letters() {
    let column = |text: &str| of_server(text.to_owned()).column;
    assert_eq!(column("Bad on field GRÖßE."), Some("GRÖßE".to_owned()));
    assert_eq!(column("Bad on field Größe.x"), Some("Größe.x".to_owned()));
    assert_eq!(column("Bad on field length."), None);
}

#[test]
fn the_commonest_reason_is_told_without_the_values_that_bigquery_quotes() {
    let reasons: Vec<_> = (0..200)
        .map(|row| of_server(format!("Out of range: {row} on field größe.")))
        .collect();
    let error = Ratio::new(0.1).count(200, &reasons).unwrap_err();
    assert!(
        error.to_string().contains(
            "the commonest reason, 200 times: column `größe`: Out of range: … on field größe. Mend"
        ),
        "{error}"
    );
    assert_eq!(
        reasons[7].text, "Out of range: 7 on field größe.",
        "the letter has it whole"
    );
}

#[test]
fn a_ratio_of_one_lets_everything_pass_and_of_none_a_hundredth_bad_row_not() {
    let mut ratio = Ratio::new(1.0);
    for _ in 0..100 {
        ratio.count(1_000, &reasons("a", 1_000)).unwrap();
    }
    let mut ratio = Ratio::new(0.0);
    ratio.count(5_000, &reasons("a", 99)).unwrap();
    assert!(ratio.count(1, &reasons("a", 1)).is_err());
}
