//! Carries out the plans on a batch's arrays: dictionaries and runs unpacked, NULLs judged, lists, structs and ranges walked.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Int16Type, Int32Type, Int64Type, RunEndIndexType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, RunArray, StructArray, UInt64Array, new_empty_array,
    new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef};
use arrow_select::nullif::nullif;
use arrow_select::take::take;

use super::RowOptions;
use super::plan::{ColumnPlan, Presence, Step, ValuePlan};
use super::refusal::{Place, Report, RowReason};
use super::values::Leaf;

/// The conversion of one batch.
#[derive(Debug)]
pub(super) struct Conversion<'a> {
    report: &'a mut Report,
    options: RowOptions,
}

/// A column that no plain Arrow array can hold.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) column: String,
    pub(super) source: ArrowError,
}

type Walked<T> = Result<T, ArrowError>;

impl<'a> Conversion<'a> {
    pub(super) fn new(report: &'a mut Report, options: RowOptions) -> Self {
        Self { report, options }
    }

    /// Converts one top-level column.
    pub(super) fn column(&mut self, plan: &ColumnPlan, array: &ArrayRef) -> Result<ArrayRef, Failed> {
        self.value(&plan.value, array, None, Place::Row)
            .map_err(|source| Failed {
                column: plan.value.path.clone(),
                source,
            })
    }

    /// Converts one array. Where `parent` is null the array's own value means nothing and is not judged.
    fn value(
        &mut self,
        plan: &ValuePlan,
        array: &ArrayRef,
        parent: Option<&NullBuffer>,
        place: Place<'_>,
    ) -> Walked<ArrayRef> {
        let array = masked(&unpacked(array)?, parent)?;
        self.judge_nulls(plan, array.as_ref(), parent, place);
        match &plan.step {
            Step::Nulls if plan.presence == Presence::Defaulted => {
                Ok(new_null_array(&plan.wire, array.len()))
            }
            Step::Nulls => nulls(&plan.wire, array.len()),
            Step::List(element) => {
                let kept = (plan.presence == Presence::Defaulted).then(|| array.logical_nulls());
                self.list(element, &plan.wire, array.as_ref(), kept.flatten(), place)
            }
            Step::Struct(fields) => {
                let converted = self.fields(fields, &plan.wire, array.as_struct(), place)?;
                Ok(Arc::new(converted))
            }
            Step::Range(bounds) => {
                let range = self.fields(bounds, &plan.wire, array.as_struct(), place)?;
                self.judge_bounds(&plan.path, &range, place);
                Ok(Arc::new(range))
            }
            step => {
                let Self { report, options } = self;
                Leaf {
                    path: &plan.path,
                    place,
                    wire: &plan.wire,
                    options: *options,
                    report,
                }
                .value(step, &array)
            }
        }
    }

    fn judge_nulls(
        &mut self,
        plan: &ValuePlan,
        array: &dyn Array,
        parent: Option<&NullBuffer>,
        place: Place<'_>,
    ) {
        let reason = match plan.presence {
            Presence::Nullable | Presence::Defaulted => return,
            Presence::Required => RowReason::NullInRequired,
            Presence::Element => RowReason::NullElement,
        };
        let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            return;
        };
        for position in (0..array.len()).filter(|&position| nulls.is_null(position)) {
            if parent.is_none_or(|parent| parent.is_valid(position)) {
                self.report.refuse(place.row(position), &plan.path, reason);
            }
        }
    }

    fn fields(
        &mut self,
        plans: &[ColumnPlan],
        wire: &DataType,
        array: &StructArray,
        place: Place<'_>,
    ) -> Walked<StructArray> {
        let DataType::Struct(fields) = wire else {
            return Err(unplanned(wire));
        };
        let mut children = Vec::with_capacity(plans.len());
        for plan in plans {
            children.push(self.value(&plan.value, array.column(plan.index), array.nulls(), place)?);
        }
        let nulls = array.nulls().cloned();
        StructArray::try_new_with_length(fields.clone(), children, nulls, array.len())
    }

    /// A RANGE begins before it ends; a bound that is NULL is none.
    fn judge_bounds(&mut self, path: &str, range: &StructArray, place: Place<'_>) {
        let [start, end] = [range.column(0), range.column(1)].map(bounds);
        for position in (0..range.len()).filter(|&position| range.is_valid(position)) {
            let row = place.row(position);
            if let (Some(start), Some(end)) = (start(position), end(position))
                && start >= end
                && !self.report.is_refused(row)
            {
                self.report.refuse(row, path, RowReason::EmptyRange);
            }
        }
    }

    /// BigQuery has no NULL array; it becomes an empty one (write-api.md 5.5), unless its NULL is `kept`.
    fn list(
        &mut self,
        element: &ValuePlan,
        wire: &DataType,
        array: &dyn Array,
        kept: Option<NullBuffer>,
        place: Place<'_>,
    ) -> Walked<ArrayRef> {
        let (offsets, elements) = flattened(array)?;
        let inside = Place::Element {
            offsets: &offsets,
            list: &place,
        };
        let elements = self.value(element, &elements, None, inside)?;
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(list_field(wire)?),
            offsets,
            elements,
            kept,
        )?))
    }
}

/// The bounds of ranges as numbers that compare as they do.
fn bounds(array: &ArrayRef) -> impl Fn(usize) -> Option<i64> {
    let dates = array.as_primitive_opt::<Date32Type>();
    let instants = array.as_primitive_opt::<TimestampMicrosecondType>();
    move |position| {
        let date = dates.map(|dates| i64::from(dates.value(position)));
        let bound = date.or_else(|| instants.map(|instants| instants.value(position)));
        bound.filter(|_| array.is_valid(position))
    }
}

/// The array behind its dictionaries and run ends; the array itself if it has none.
pub(super) fn unpacked(array: &ArrayRef) -> Walked<ArrayRef> {
    let mut array = Arc::clone(array);
    loop {
        array = if let Some(dictionary) = array.as_any_dictionary_opt() {
            take(dictionary.values(), dictionary.keys(), None)?
        } else if let DataType::RunEndEncoded(run_ends, _) = array.data_type() {
            match run_ends.data_type() {
                DataType::Int16 => run_values::<Int16Type>(&array)?,
                DataType::Int32 => run_values::<Int32Type>(&array)?,
                _ => run_values::<Int64Type>(&array)?,
            }
        } else {
            return Ok(array);
        };
    }
}

/// One value for each place of the runs.
fn run_values<R: RunEndIndexType>(array: &ArrayRef) -> Walked<ArrayRef> {
    let runs = array.as_any().downcast_ref::<RunArray<R>>();
    let runs = runs.ok_or_else(|| unplanned(array.data_type()))?;
    let indices = (0..runs.len()).map(|place| runs.get_physical_index(place) as u64);
    take(runs.values(), &UInt64Array::from_iter_values(indices), None)
}

/// The array with a null wherever its parent is null. Its values are shared.
fn masked(array: &ArrayRef, parent: Option<&NullBuffer>) -> Walked<ArrayRef> {
    match parent.filter(|parent| parent.null_count() > 0) {
        Some(parent) => nullif(array, &BooleanArray::new(!parent.inner(), None)),
        None => Ok(Arc::clone(array)),
    }
}

/// NULLs, and for a list empty ones.
fn nulls(wire: &DataType, len: usize) -> Walked<ArrayRef> {
    match wire {
        DataType::List(field) => {
            let (offsets, elements) = (OffsetBuffer::new_zeroed(len), new_empty_array(field.data_type()));
            let field = Arc::clone(field);
            Ok(Arc::new(ListArray::try_new(field, offsets, elements, None)?))
        }
        DataType::Struct(fields) => {
            let children = fields.iter().map(|field| nulls(field.data_type(), len));
            Ok(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                children.collect::<Walked<_>>()?,
                Some(NullBuffer::new_null(len)),
                len,
            )?))
        }
        plain => Ok(new_null_array(plain, len)),
    }
}

fn list_field(wire: &DataType) -> Walked<&FieldRef> {
    match wire {
        DataType::List(field) => Ok(field),
        other => Err(unplanned(other)),
    }
}

fn unplanned(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("{data_type} is not what was planned for"))
}

/// Offsets from 0 and the elements of exactly the lists that are not NULL, of any kind of list.
pub(super) fn flattened(array: &dyn Array) -> Walked<(OffsetBuffer<i32>, ArrayRef)> {
    let range = |start: usize, end: usize| (start, end - start);
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            if list.null_count() == 0 && list.value_offsets().first() == Some(&0) {
                let elements = list.values().slice(0, list.value_offsets()[list.len()] as usize);
                return Ok((list.offsets().clone(), elements));
            }
            let offsets = list.value_offsets();
            gathered(array, list.values(), |i| {
                range(offsets[i] as usize, offsets[i + 1] as usize)
            })
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            gathered(array, list.values(), |i| {
                range(offsets[i] as usize, offsets[i + 1] as usize)
            })
        }
        DataType::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list();
            let size = list.value_length() as usize;
            gathered(array, list.values(), |i| (list.value_offset(i) as usize, size))
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            gathered(array, list.values(), |i| {
                (list.value_offset(i) as usize, list.value_size(i) as usize)
            })
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            gathered(array, list.values(), |i| {
                (list.value_offset(i) as usize, list.value_size(i) as usize)
            })
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (offsets, entries) = (map.value_offsets(), Arc::new(map.entries().clone()) as ArrayRef);
            gathered(array, &entries, |i| {
                range(offsets[i] as usize, offsets[i + 1] as usize)
            })
        }
        other => Err(unplanned(other)),
    }
}

/// Puts the elements of lists one behind another: a slice where they lie so already, a copy otherwise.
fn gathered(
    lists: &dyn Array,
    values: &ArrayRef,
    range: impl Fn(usize) -> (usize, usize),
) -> Walked<(OffsetBuffer<i32>, ArrayRef)> {
    let mut offsets = Vec::with_capacity(lists.len() + 1);
    offsets.push(0_i32);
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut end = 0_usize;
    for position in 0..lists.len() {
        let (start, len) = if lists.is_null(position) {
            (0, 0)
        } else {
            range(position)
        };
        end += len;
        offsets
            .push(i32::try_from(end).map_err(|_| ArrowError::ComputeError(format!("{end} list elements")))?);
        match ranges.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.0 + last.1 == start => last.1 += len,
            _ => ranges.push((start, len)),
        }
    }
    let elements = match *ranges.as_slice() {
        [] => values.slice(0, 0),
        [(start, len)] => values.slice(start, len),
        _ => {
            let indices = ranges
                .iter()
                .flat_map(|&(start, len)| start as u64..(start + len) as u64);
            take(values, &UInt64Array::from_iter_values(indices), None)?
        }
    };
    Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), elements))
}
