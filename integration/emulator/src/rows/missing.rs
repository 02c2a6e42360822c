//! Values that rows leave out: NULL, or the column's default value (write-api.md 7.1).

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType};
use arrow_select::interleave::interleave;
use bigquery_write_proto::wire::append_rows_request::MissingValueInterpretation as Interpretation;

use super::values::absent;
use crate::defaults::{DefaultValue, Moment};
use crate::machine::{Behaviour, Refusal, Switches};
use crate::schema::{Column, Schema};

/// What a value that is missing means, by top-level column.
#[derive(Debug)]
pub(crate) struct Missing {
    /// The default value, where the column has one and it is what is meant.
    in_rows: Vec<Option<DefaultValue>>,
    /// The default value for a column that the writer's schema lacks.
    in_schema: Vec<Option<DefaultValue>>,
}

/// How a format shows that a value is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// As NULL.
    Null,
    /// As NULL, or as no elements: an empty array and no array are the same (write-api.md 5.1).
    NullOrEmpty,
}

impl Missing {
    /// What a request says of single columns, and what holds for all others.
    pub(crate) fn of(
        schema: &Schema,
        by_column: &HashMap<String, i32>,
        others: Interpretation,
        switches: &Switches,
        stream: &str,
    ) -> Result<Self, Refusal> {
        let mut meanings = vec![others; schema.columns.len()];
        // A map has no order; the answer must not depend on one.
        let mut by_column: Vec<_> = by_column.iter().collect();
        by_column.sort_unstable();
        for (name, meaning) in by_column {
            let refused = |text: &str| {
                let text = format!(
                    "Invalid missing_value_interpretations for column '{name}': {text}. Entity: {stream}"
                );
                Refusal::invalid(text).in_band(true)
            };
            let place = schema.columns.iter().position(|column| column.is_named(name));
            let place = place.and_then(|at| meanings.get_mut(at));
            let meaning = Interpretation::try_from(*meaning).unwrap_or(Interpretation::Unspecified);
            match (place, meaning) {
                _ if !switches.keeps(Behaviour::ColumnInterpretationsGoFirst) => {}
                (Some(place), Interpretation::NullValue | Interpretation::DefaultValue) => *place = meaning,
                _ if !switches.keeps(Behaviour::ColumnInterpretationsChecked) => {}
                (None, _) => return Err(refused("the table has no such top-level column")),
                (Some(_), _) => return Err(refused("it is neither NULL_VALUE nor DEFAULT_VALUE")),
            }
        }
        let default =
            |column: &Column| DefaultValue::of(column).map_err(|error| Refusal::invalid(error.to_string()));
        let defaults: Vec<_> = schema.columns.iter().map(default).collect::<Result<_, _>>()?;
        let null_alone = switches.keeps(Behaviour::MissingInRowsIsNull);
        let in_rows = defaults.iter().zip(meanings).map(|(default, meaning)| {
            let meant = meaning == Interpretation::DefaultValue || !null_alone;
            default.clone().filter(|_| meant)
        });
        let in_rows = in_rows.collect();
        let in_schema = if switches.keeps(Behaviour::MissingInSchemaIsDefault) {
            defaults
        } else {
            vec![None; schema.columns.len()]
        };
        Ok(Self { in_rows, in_schema })
    }

    /// Columns in which a default value takes the place of what rows lack.
    pub(super) fn filled(&self) -> Vec<bool> {
        self.in_rows.iter().map(Option::is_some).collect()
    }

    /// Puts in what is missing. `None` is a column that the writer lacks.
    pub(super) fn settle(
        &self,
        columns: &[Column],
        arrays: Vec<Option<ArrayRef>>,
        rows: usize,
        shown: Shown,
        moment: &mut Moment<'_>,
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        let defaults = self.in_rows.iter().zip(&self.in_schema);
        let mut settled = Vec::with_capacity(columns.len());
        for ((column, array), (in_rows, in_schema)) in columns.iter().zip(arrays).zip(defaults) {
            let array = match (array, in_rows, in_schema) {
                (None, _, Some(default)) => default.evaluate(rows, moment)?,
                (None, _, None) => absent(column, rows),
                (Some(array), Some(default), _) => filled(array, default, shown, moment)?,
                (Some(array), None, _) => array,
            };
            settled.push(array);
        }
        Ok(settled)
    }
}

/// The array with the default value where one is missing.
fn filled(
    array: ArrayRef,
    default: &DefaultValue,
    shown: Shown,
    moment: &mut Moment<'_>,
) -> Result<ArrayRef, ArrowError> {
    let lists = match array.data_type() {
        DataType::List(_) if shown == Shown::NullOrEmpty => array.as_list_opt::<i32>(),
        _ => None,
    };
    let empty = |row| lists.is_some_and(|lists| lists.value_length(row) == 0);
    let mut places = Vec::with_capacity(array.len());
    let mut missing = 0;
    for row in 0..array.len() {
        if array.is_null(row) || empty(row) {
            places.push((1, missing));
            missing += 1;
        } else {
            places.push((0, row));
        }
    }
    if missing == 0 {
        return Ok(array);
    }
    let defaults = default.evaluate(missing, moment)?;
    interleave(&[&array, &defaults], &places)
}
