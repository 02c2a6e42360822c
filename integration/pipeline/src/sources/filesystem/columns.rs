//! Columns of a Parquet file as the table declares them: found by name, turned into another type only where that keeps every value.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, Time64NanosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, PrimitiveArray, RecordBatch, StructArray};
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
    /// Of these the ones that hold INT96; they are read twice.
    pub(super) int96: Vec<usize>,
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
    /// A time by its count of nanoseconds, wrapped, and its place among those that are read in milliseconds.
    Int96(usize),
}

impl Columns {
    /// Finds the declared columns in a file; the reason why not, otherwise.
    pub(super) fn new(
        declared: &SchemaRef,
        file: &Schema,
        physical: &SchemaDescriptor,
    ) -> Result<Self, String> {
        let (mut found, mut int96) = (Vec::with_capacity(declared.fields().len()), Vec::new());
        for field in declared.fields() {
            let place = find(field.name(), file.fields())?;
            let column = file.field(place);
            let adapt = match (
                holds_int96(place, physical),
                column.data_type(),
                field.data_type(),
            ) {
                (true, DataType::Timestamp(..), DataType::Timestamp(..)) => {
                    int96.push(place);
                    Adapt::Int96(place)
                }
                (true, from, _) if from.is_nested() => {
                    return Err(format!(
                        "column {} holds times as INT96 within, which is not read; write them as TIMESTAMP_MICROS",
                        field.name()
                    ));
                }
                (_, from, to) => adapt(field.name(), from, to)?,
            };
            found.push((place, adapt));
        }
        int96.sort_unstable();
        let mut roots: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        roots.sort_unstable();
        let picks = found.into_iter().map(|(place, adapt)| {
            let at = roots.binary_search(&place);
            let at = at.expect("the places were sorted from this list");
            let adapt = match adapt {
                Adapt::Int96(place) => Adapt::Int96(int96.partition_point(|other| *other < place)),
                other => other,
            };
            (at, adapt)
        });
        let picks = picks.collect();
        Ok(Self {
            declared: Arc::clone(declared),
            roots,
            int96,
            picks,
        })
    }

    /// The file's columns with those of INT96 as counts of this unit. Milliseconds hold each of its times.
    pub(super) fn int96_in(&self, unit: TimeUnit, file: &Schema) -> Schema {
        let fields = file.fields().iter().enumerate().map(|(place, field)| {
            if self.int96.contains(&place) {
                Arc::new(
                    field
                        .as_ref()
                        .clone()
                        .with_data_type(DataType::Timestamp(unit, None)),
                )
            } else {
                Arc::clone(field)
            }
        });
        Schema::new_with_metadata(fields.collect::<Fields>(), file.metadata().clone())
    }

    /// The declared columns of a batch; the reason, without values, if one of them cannot be held. `int96` has the columns of INT96 in
    /// milliseconds.
    pub(super) fn batch(
        &self,
        read: &RecordBatch,
        int96: Option<&RecordBatch>,
    ) -> Result<RecordBatch, String> {
        let fields = self.declared.fields();
        let mut columns = Vec::with_capacity(fields.len());
        for (field, (place, adapt)) in fields.iter().zip(&self.picks) {
            let column = match (adapt, int96) {
                (Adapt::Int96(at), Some(int96)) => {
                    times(read.column(*place), int96.column(*at), field.data_type())
                }
                _ => adapt.apply(read.column(*place), field.data_type()),
            };
            let column = column.map_err(|_| {
                let (name, declared) = (field.name(), sql_name(field.data_type()));
                format!("column {name} has a value that {declared} cannot hold")
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

/// Whether a column has INT96 in it.
fn holds_int96(place: usize, physical: &SchemaDescriptor) -> bool {
    let leaves = 0..physical.num_columns();
    let mut leaves = leaves.filter(|leaf| physical.get_column_root_idx(*leaf) == place);
    leaves.any(|leaf| physical.column(leaf).physical_type() == PhysicalType::INT96)
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
            (Self::Keep | Self::Struct(_) | Self::List(..) | Self::Int96(_), _) => Ok(Arc::clone(column)),
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

/// Times of INT96, which the library gives wrapped where a count of nanoseconds does not hold them (parquet 55.2, `Int96::to_nanos`). All of
/// them fit a count of milliseconds; what is missing there is the difference of the two counts, wrapped or not.
fn times(wrapped: &ArrayRef, milliseconds: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let beyond = || ArrowError::CastError("not to be held".into());
    let nanoseconds_a_unit: i128 = match to {
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1000,
        _ => 1,
    };
    let (wrapped, milliseconds) = (
        cast(wrapped, &DataType::Int64)?,
        cast(milliseconds, &DataType::Int64)?,
    );
    let (wrapped, milliseconds) = (
        wrapped.as_primitive::<Int64Type>(),
        milliseconds.as_primitive::<Int64Type>(),
    );
    let counts = wrapped.iter().zip(milliseconds).map(|counts| {
        let (Some(wrapped), Some(milliseconds)) = counts else {
            return Ok(None);
        };
        let rest = wrapped.wrapping_sub(milliseconds.wrapping_mul(1_000_000));
        let time = i128::from(milliseconds) * 1_000_000 + i128::from(rest);
        if !(0..1_000_000).contains(&rest) || time % nanoseconds_a_unit != 0 {
            return Err(beyond());
        }
        i64::try_from(time / nanoseconds_a_unit)
            .map(Some)
            .map_err(|_| beyond())
    });
    let counts: Int64Array = counts.collect::<Result<_, _>>()?;
    cast(&(Arc::new(counts) as ArrayRef), to)
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
