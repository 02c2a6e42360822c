//! Columns of a Parquet file as the table declares them: found by name, turned into another type only where that keeps every value.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, Time64NanosecondType};
use arrow_array::{Array, ArrayRef, ListArray, PrimitiveArray, RecordBatch, StructArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Fields, Schema, SchemaRef, TimeUnit};
use parquet::basic::Type as PhysicalType;
use parquet::schema::types::SchemaDescriptor;

use crate::sql::{keeps_values, sql_name};

/// So many names of a file's columns are told.
const NAMES_SHOWN: usize = 20;
const NANOSECONDS_A_DAY: i64 = 86_400_000_000_000;

/// How the declared columns come out of a file's.
#[derive(Debug)]
pub(super) struct Columns {
    declared: SchemaRef,
    /// Places in the file of the columns that are read, ascending.
    pub(super) roots: Vec<usize>,
    /// For each declared column its place among those, and what is made of it.
    picks: Vec<(usize, Adapt)>,
}

/// What is made of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Adapt {
    Keep,
    /// Casts one behind the other.
    Casts(Vec<DataType>),
    /// Of a time of day the count of its units, and how many nanoseconds each has.
    Time(i64),
    /// Fields by their place in the file's struct.
    Struct(Vec<(usize, Self)>),
    /// Items; other kinds of lists become the usual one before.
    List(Option<DataType>, Box<Self>),
}

impl Columns {
    /// Finds the declared columns in a file; the reason why not, otherwise.
    pub(super) fn new(
        declared: &SchemaRef,
        file: &Schema,
        physical: &SchemaDescriptor,
    ) -> Result<Self, String> {
        let mut found = Vec::with_capacity(declared.fields().len());
        for field in declared.fields() {
            let place = find(field.name(), file.fields())?;
            refuse_physical(field.name(), place, physical)?;
            let column = file.field(place);
            found.push((place, adapt(field.name(), column.data_type(), field.data_type())?));
        }
        let mut roots: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        roots.sort_unstable();
        let picks = found.into_iter().map(|(place, adapt)| {
            let at = roots.binary_search(&place);
            (at.expect("the places were sorted from this list"), adapt)
        });
        let picks = picks.collect();
        Ok(Self {
            declared: Arc::clone(declared),
            roots,
            picks,
        })
    }

    /// The declared columns of a batch; the reason, without values, if one of them cannot be held.
    pub(super) fn batch(&self, read: &RecordBatch) -> Result<RecordBatch, String> {
        let fields = self.declared.fields();
        let mut columns = Vec::with_capacity(fields.len());
        for (field, (place, adapt)) in fields.iter().zip(&self.picks) {
            let column = adapt.apply(read.column(*place), field.data_type());
            let column = column.map_err(|_| {
                let (name, declared) = (field.name(), sql_name(field.data_type()));
                format!("column {name} has a value that is beyond the range of {declared}")
            })?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(format!("column {} is NOT NULL but has a null", field.name()));
            }
            columns.push(column);
        }
        RecordBatch::try_new(Arc::clone(&self.declared), columns)
            .map_err(|_| "its columns are not of the types that its footer tells".to_owned())
    }
}

/// The place of a name, which counts with its case.
fn find(name: &str, fields: &Fields) -> Result<usize, String> {
    let mut places = (0..fields.len()).filter(|place| fields[*place].name() == name);
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => Err(format!("has more than one column {name}")),
        (None, _) => {
            let mut names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
            let more = names.len().saturating_sub(NAMES_SHOWN);
            names.truncate(NAMES_SHOWN);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            Err(format!("has no column {name}; it has {}{more}", names.join(", ")))
        }
    }
}

/// The library gives another time for an INT96 that its type cannot hold, without an error (parquet 55.2, `Int96::to_nanos`).
fn refuse_physical(name: &str, place: usize, physical: &SchemaDescriptor) -> Result<(), String> {
    let leaves = 0..physical.num_columns();
    let mut leaves = leaves.filter(|leaf| physical.get_column_root_idx(*leaf) == place);
    if leaves.any(|leaf| physical.column(leaf).physical_type() == PhysicalType::INT96) {
        return Err(format!(
            "column {name} holds times as INT96, which may be out of range unseen; write them as TIMESTAMP_MICROS (in Spark \
             spark.sql.parquet.outputTimestampType)"
        ));
    }
    Ok(())
}

/// What makes the declared type of a file's.
fn adapt(path: &str, from: &DataType, to: &DataType) -> Result<Adapt, String> {
    use DataType::{
        Dictionary, FixedSizeBinary, FixedSizeList, LargeList, List, Struct, Time32, Time64, Timestamp,
    };
    Ok(match (from, to) {
        (from, to) if from == to => Adapt::Keep,
        (Dictionary(_, values), _) => adapt(path, values, to)?.after(vec![values.as_ref().clone()]),
        // The count is in UTC whatever the zone is, and the cast keeps it.
        (Timestamp(unit, Some(_)), Timestamp(..)) => {
            let plain = Timestamp(*unit, None);
            adapt(path, &plain, to)?.after(vec![plain])
        }
        (Time32(TimeUnit::Second), Time64(TimeUnit::Nanosecond)) => Adapt::Time(1_000_000_000),
        (Time32(TimeUnit::Millisecond), Time64(TimeUnit::Nanosecond)) => Adapt::Time(1_000_000),
        (Time64(TimeUnit::Microsecond), Time64(TimeUnit::Nanosecond)) => Adapt::Time(1000),
        (Struct(fields), Struct(declared)) => {
            let picks = declared.iter().map(|field| {
                let path = format!("{path}.{}", field.name());
                let place = find(field.name(), fields)
                    .map_err(|reason| format!("{path}: the file's STRUCT {reason}"))?;
                Ok((place, adapt(&path, fields[place].data_type(), field.data_type())?))
            });
            Adapt::Struct(picks.collect::<Result<_, String>>()?)
        }
        (List(item), List(declared)) => Adapt::List(
            None,
            Box::new(adapt(path, item.data_type(), declared.data_type())?),
        ),
        (LargeList(item) | FixedSizeList(item, _), List(declared)) => {
            let usual = List(Arc::clone(item));
            Adapt::List(
                Some(usual),
                Box::new(adapt(path, item.data_type(), declared.data_type())?),
            )
        }
        (FixedSizeBinary(_), DataType::Binary) => Adapt::Casts(vec![to.clone()]),
        (from, to) if keeps_values(from, to) => Adapt::Casts(vec![to.clone()]),
        (from, to) => {
            let (from, to) = (sql_name(from), sql_name(to));
            return Err(format!(
                "column {path} is {from} in the file, which does not go into the declared {to} with all its values; declare a type that \
                 holds them"
            ));
        }
    })
}

impl Adapt {
    /// The same behind other casts.
    fn after(self, mut casts: Vec<DataType>) -> Self {
        match self {
            Self::Keep => Self::Casts(casts),
            Self::Casts(more) => {
                casts.extend(more);
                Self::Casts(casts)
            }
            nested => nested,
        }
    }

    fn apply(&self, column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
        match (self, to) {
            (Self::Casts(types), _) => {
                let mut column = Arc::clone(column);
                for data_type in types {
                    column = cast(&column, data_type)?;
                }
                Ok(column)
            }
            (Self::Time(nanoseconds), _) => time(column, *nanoseconds),
            (Self::Struct(picks), DataType::Struct(fields)) => {
                let parts = column.as_struct();
                let columns = picks.iter().zip(fields);
                let columns = columns
                    .map(|((place, adapt), field)| adapt.apply(parts.column(*place), field.data_type()));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let parts = StructArray::try_new(fields.clone(), columns, parts.nulls().cloned())?;
                Ok(Arc::new(parts))
            }
            (Self::List(usual, adapt), DataType::List(field)) => {
                let list = usual.as_ref().map(|usual| cast(column, usual)).transpose()?;
                let list = list.as_ref().unwrap_or(column).as_list::<i32>().clone();
                let (_, offsets, items, nulls) = list.into_parts();
                let items = adapt.apply(&items, field.data_type())?;
                let list = ListArray::try_new(Arc::clone(field), offsets, items, nulls)?;
                Ok(Arc::new(list))
            }
            (Self::Keep | Self::Struct(_) | Self::List(..), _) => Ok(Arc::clone(column)),
        }
    }
}

/// Fails where a value does not fit, rather than leaving a null.
fn cast(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, to, &options)
}

/// Times of day in nanoseconds: the library multiplies some of them without looking (arrow-cast 55.2).
fn time(column: &ArrayRef, nanoseconds: i64) -> Result<ArrayRef, ArrowError> {
    let counts = match column.data_type() {
        DataType::Time32(_) => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(column, &DataType::Int64)?,
    };
    let beyond = || ArrowError::CastError("not within a day".into());
    let counts = counts.as_primitive::<Int64Type>();
    let times: PrimitiveArray<Time64NanosecondType> = counts.try_unary(|count| {
        let time = count.checked_mul(nanoseconds).ok_or_else(beyond)?;
        if (0..NANOSECONDS_A_DAY).contains(&time) {
            Ok(time)
        } else {
            Err(beyond())
        }
    })?;
    Ok(Arc::new(times))
}
