//! RANGE: from `start` on, to before `end`; a NULL bound is no bound.
//!
//! Its canonical Arrow form is a struct of the two, whose `start` carries a mark in its metadata: a STRUCT column
//! with fields of these names would else look the same. The mark is part of the type and stays with it wherever
//! values go.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields};

use super::civil;
use crate::schema::{Kind, RangeElement};

const MARK: &str = "bigquery.type";

/// The canonical Arrow type.
pub(crate) fn data_type(element: RangeElement) -> DataType {
    DataType::Struct(fields(element))
}

/// The fields of the canonical Arrow type.
pub(crate) fn fields(element: RangeElement) -> Fields {
    let data_type = Kind::from(element).arrow();
    let mark = HashMap::from([(MARK.to_owned(), "RANGE".to_owned())]);
    Fields::from(vec![
        Field::new("start", data_type.clone(), true).with_metadata(mark),
        Field::new("end", data_type, true),
    ])
}

/// What a struct of these fields is a RANGE of, if it is one.
pub(crate) fn element(fields: &Fields) -> Option<RangeElement> {
    let [start, _end] = &**fields else { return None };
    if !start.metadata().contains_key(MARK) {
        return None;
    }
    match start.data_type() {
        DataType::Date32 => Some(RangeElement::Date),
        DataType::Timestamp(_, None) => Some(RangeElement::Datetime),
        DataType::Timestamp(_, Some(_)) => Some(RangeElement::Timestamp),
        _ => None,
    }
}

/// Reads `[start, end)`, one space behind the comma; `UNBOUNDED` or `NULL` for a bound that there is not.
///
/// # Errors
/// Says what is wrong.
pub(crate) fn parse(text: &str, element: RangeElement) -> Result<(Option<i64>, Option<i64>), String> {
    let wrong = || format!("invalid RANGE<{}> literal", Kind::from(element).sql_name());
    let bounds = text.strip_prefix('[').and_then(|text| text.strip_suffix(')'));
    let (start, end) = bounds
        .and_then(|bounds| bounds.split_once(", "))
        .ok_or_else(wrong)?;
    let bound = |text: &str| match text {
        _ if text.eq_ignore_ascii_case("UNBOUNDED") || text.eq_ignore_ascii_case("NULL") => Ok(None),
        _ => bound(text, element).map(Some).ok_or_else(wrong),
    };
    Ok((bound(start)?, bound(end)?))
}

/// The text of a bound in the units of its element.
pub(crate) fn bound(text: &str, element: RangeElement) -> Option<i64> {
    match element {
        RangeElement::Date => civil::date(text).map(i64::from),
        RangeElement::Datetime => civil::datetime(text)?.exact_micros(),
        RangeElement::Timestamp => civil::timestamp(text)?.exact_micros(),
    }
}
