//! STRUCT and ARRAY, in each other and by every layout of a list.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{Field, FieldRef};
use bigquery_write_proto::rows::TableType;
use serde_json::{Value, json};

use super::world::{Case, array_of, column, reasons, refused, required, struct_of};

fn item(array: &dyn Array) -> FieldRef {
    Arc::new(Field::new("item", array.data_type().clone(), true))
}

fn list(lengths: &[usize], values: impl Array + 'static, valid: Option<Vec<bool>>) -> ListArray {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    ListArray::new(
        item(&values),
        offsets,
        Arc::new(values),
        valid.map(NullBuffer::from),
    )
}

fn structs(fields: Vec<(&str, ArrayRef)>, valid: Option<Vec<bool>>) -> StructArray {
    let named = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    StructArray::new(
        fields.iter().map(named).collect(),
        fields.into_iter().map(|(_, array)| array).collect(),
        valid.map(NullBuffer::from),
    )
}

/// A STRUCT as REST writes it.
fn cells(values: impl IntoIterator<Item = Value>) -> Value {
    let cells: Value = values.into_iter().map(|value| json!({ "v": value })).collect();
    json!({ "f": cells })
}

/// An ARRAY as REST writes it.
fn elements(values: impl IntoIterator<Item = Value>) -> Value {
    values.into_iter().map(|value| json!({ "v": value })).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = lists();
    cases.extend(maps());
    cases.extend(records());
    cases.push(deep());
    cases
}

fn lists() -> Vec<Case> {
    let into = |array: ArrayRef| {
        let expected = json!([
            elements([json!("1"), json!("2")]),
            elements([]),
            elements([]),
            elements([json!("3")])
        ]);
        Case::of(array_of(column(TableType::Int64)), array, expected)
    };
    // [1, 2], NULL, [], [3]; under the NULL, and between lists, stand values that are nobody's.
    let valid = || Some(NullBuffer::from(vec![true, false, true, true]));
    let values = || Int64Array::from(vec![1, 2, 9, 9, 3]);
    let lengths = [2, 2, 0, 1];
    let large = LargeListArray::new(
        item(&values()),
        OffsetBuffer::from_lengths(lengths),
        Arc::new(values()),
        valid(),
    );
    let offsets = || [0, 2, 5, 4];
    let sizes = || [2, 1, 0, 1];
    let view = ListViewArray::new(
        item(&values()),
        ScalarBuffer::from(offsets().to_vec()),
        ScalarBuffer::from(sizes().to_vec()),
        Arc::new(values()),
        valid(),
    );
    let large_view = LargeListViewArray::new(
        item(&values()),
        ScalarBuffer::from(offsets().map(i64::from).to_vec()),
        ScalarBuffer::from(sizes().map(i64::from).to_vec()),
        Arc::new(values()),
        valid(),
    );
    let fixed = FixedSizeListArray::new(
        item(&values()),
        2,
        Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(9)])),
        Some(NullBuffer::from(vec![true, false])),
    );
    let texts = list(&[2, 0], StringArray::from(vec!["", "a\0"]), None);
    let decimals = Decimal128Array::from(vec![15])
        .with_precision_and_scale(3, 1)
        .unwrap();
    vec![
        into(Arc::new(list(
            &lengths,
            values(),
            Some(vec![true, false, true, true]),
        ))),
        into(Arc::new(large)),
        into(Arc::new(view)),
        into(Arc::new(large_view)),
        Case::new(
            array_of(column(TableType::Int64)),
            fixed,
            json!([elements([json!("1"), json!("2")]), elements([])]),
        ),
        Case::new(
            array_of(column(TableType::String)),
            texts,
            json!([elements([json!(""), json!("a\u{0}")]), elements([])]),
        ),
        Case::new(
            array_of(column(TableType::Numeric)),
            list(&[1], decimals, None),
            json!([elements([json!("1.5")])]),
        ),
        Case::new(
            array_of(column(TableType::Time)),
            list(&[1], Time64NanosecondArray::from(vec![1_000]), None),
            json!([elements([json!("00:00:00.000001")])]),
        ),
        Case::new(
            array_of(column(TableType::Datetime)),
            list(&[1], TimestampSecondArray::from(vec![0]), None),
            json!([elements([json!("1970-01-01T00:00:00")])]),
        ),
        Case::new(
            array_of(column(TableType::Interval)),
            list(&[1], DurationSecondArray::from(vec![-1]), None),
            json!([elements([json!("0-0 0 -0:0:1")])]),
        ),
        Case::new(
            array_of(column(TableType::RangeOfDate)),
            list(
                &[1, 1],
                structs(
                    vec![
                        ("start", Arc::new(Date32Array::from(vec![Some(0), None]))),
                        ("end", Arc::new(Date32Array::from(vec![None, Some(1)]))),
                    ],
                    None,
                ),
                None,
            ),
            json!([
                elements([json!("[1970-01-01, UNBOUNDED)")]),
                elements([json!("[UNBOUNDED, 1970-01-02)")])
            ]),
        ),
    ]
}

fn maps() -> Vec<Case> {
    let names = MapFieldNames {
        entry: "entries".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), Int32Builder::new());
    maps.keys().append_value("a");
    maps.values().append_value(1);
    maps.keys().append_value("b");
    maps.values().append_null();
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    maps.append(true).unwrap();
    let entry = struct_of(
        &["key", "value"],
        &[required(column(TableType::String)), column(TableType::Int64)],
    );
    vec![Case::new(
        array_of(entry),
        maps.finish(),
        json!([
            elements([cells([json!("a"), json!("1")]), cells([json!("b"), Value::Null])]),
            elements([]),
            elements([])
        ]),
    )]
}

/// STRUCT<a INT64 NOT NULL, b ARRAY<STRUCT<a STRING>>, c STRUCT<a DATE>>: the name `a` at three places.
fn records() -> Vec<Case> {
    let target = struct_of(
        &["a", "b", "c"],
        &[
            required(column(TableType::Int64)),
            array_of(struct_of(&["a"], &[column(TableType::String)])),
            struct_of(&["a"], &[column(TableType::Date)]),
        ],
    );
    let inner = structs(
        vec![(
            "a",
            Arc::new(StringArray::from(vec![Some("x"), None, Some("nobody's")])),
        )],
        None,
    );
    let array = structs(
        vec![
            (
                "C",
                Arc::new(structs(
                    vec![(
                        "A",
                        Arc::new(Date32Array::from(vec![Some(0), Some(1), None, Some(2)])),
                    )],
                    Some(vec![true, false, true, true]),
                )),
            ),
            // The last row is NULL as a whole, and has no `a` that is required.
            (
                "a",
                Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(3), None])),
            ),
            (
                "b",
                Arc::new(list(&[2, 0, 0, 1], inner, Some(vec![true, true, false, true]))),
            ),
        ],
        Some(vec![true, true, true, false]),
    );
    vec![Case::new(
        target,
        array,
        json!([
            cells([
                json!("1"),
                elements([cells([json!("x")]), cells([Value::Null])]),
                cells([json!("1970-01-01")])
            ]),
            cells([json!("2"), elements([]), Value::Null]),
            cells([json!("3"), elements([]), cells([Value::Null])]),
            null
        ]),
    )]
}

/// 15 STRUCTs in each other, each an element of an array: as deep as BigQuery goes.
fn deep() -> Case {
    let mut target = array_of(struct_of(&["s"], &[column(TableType::Int64)]));
    let mut array: ArrayRef = Arc::new(list(
        &[1],
        structs(vec![("s", Arc::new(Int64Array::from(vec![7])))], None),
        None,
    ));
    let mut value = elements([cells([json!("7")])]);
    for _ in 1..15 {
        target = array_of(struct_of(&["s"], &[target]));
        array = Arc::new(list(&[1], structs(vec![("s", array)], None), None));
        value = elements([cells([value])]);
    }
    Case::of(target, array, json!([value]))
}

#[test]
fn what_is_null_in_a_list_or_required_is_a_row_error() {
    let numbers = Int64Array::from(vec![Some(1), None, Some(2)]);
    assert_eq!(
        refused(
            array_of(column(TableType::Int64)),
            list(&[1, 1, 1], numbers, None)
        )
        .to_string(),
        "1 row does not fit the table: row 2 of the batch, column `x`: NULL as an element of a REPEATED column"
    );
    let inner = structs(vec![("a", Arc::new(Int64Array::from(vec![Some(1), None])))], None);
    let target = array_of(struct_of(&["a"], &[required(column(TableType::Int64))]));
    assert_eq!(
        refused(target, list(&[0, 2], inner, None)).to_string(),
        "1 row does not fit the table: row 2 of the batch, column `x.a`: NULL in a REQUIRED column"
    );
    let nothing = NullArray::new(2);
    assert_eq!(
        reasons(&refused(required(column(TableType::Geography)), nothing)),
        [
            (1, "NULL in a REQUIRED column".to_owned()),
            (2, "NULL in a REQUIRED column".to_owned())
        ]
    );
}
