//! The mapping table, pipeline type x BigQuery type -> how values get there, and its use on whole schemas.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};

use super::problem::{ColumnProblem, ColumnProblemKind};
use super::types::{list_element, pipeline_type, table_type, unpacked};
use crate::wire::TableFieldSchema;
use crate::wire::table_field_schema::{Mode, Type};

/// How one column, or one field of a struct, is written.
#[derive(Debug)]
pub(super) struct ColumnPlan {
    /// Its index among the pipeline's columns, or the fields of the pipeline's struct.
    pub(super) index: usize,
    pub(super) value: ValuePlan,
    /// Its field in the wire schema.
    pub(super) field: FieldRef,
}

/// How the values of one array are written.
#[derive(Debug)]
pub(super) struct ValuePlan {
    /// Dotted path, as the pipeline spells it.
    pub(super) path: String,
    pub(super) presence: Presence,
    pub(super) wire: DataType,
    pub(super) step: Step,
}

/// Whether a value may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Nullable,
    Required,
    /// An element of a REPEATED column, which holds no NULL.
    Element,
}

/// What is done to a value.
#[derive(Debug)]
pub(super) enum Step {
    /// The pipeline's type is NULL.
    Nulls,
    /// Arrow's cast, which loses nothing between these types; none if the type is the wire's.
    Cast,
    /// uint64 into INT64.
    Unsigned,
    /// Text, with its greatest length in characters.
    Text(Option<u64>),
    /// Bytes, with their greatest length.
    Bytes(Option<u64>),
    /// JSON text.
    Json,
    /// Days since 1970.
    Days,
    /// Milliseconds since 1970 that make whole days.
    DayMillis,
    /// An instant, or a civil time as if in UTC, in this unit.
    Instant(TimeUnit),
    /// A time of day in this unit.
    Clock(TimeUnit),
    /// A number of this scale into NUMERIC or BIGNUMERIC.
    Decimal { from_scale: i8, bounds: DecimalBounds },
    /// Every element by its own plan; NULL becomes the empty list.
    List(Box<ValuePlan>),
    /// Every field by its own plan.
    Struct(Vec<ColumnPlan>),
}

/// What a NUMERIC or BIGNUMERIC column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecimalBounds {
    /// Scale on the wire: 9 or 38.
    pub(super) scale: u32,
    /// Digits before the point.
    pub(super) integer: u32,
    /// Digits behind the point, at most `scale`.
    pub(super) fraction: u32,
}

/// The mapping table. `None`: these types do not go together. Lists and structs are walked by [`Planner`].
fn step(input: &DataType, column: &TableFieldSchema) -> Option<Step> {
    use DataType as In;
    let max_length = u64::try_from(column.max_length).ok().filter(|&max| max > 0);
    Some(match (column.r#type(), input) {
        (_, In::Null) => Step::Nulls,
        (Type::Bool, In::Boolean) => Step::Cast,
        (Type::Int64, In::Int8 | In::Int16 | In::Int32 | In::Int64) => Step::Cast,
        (Type::Int64, In::UInt8 | In::UInt16 | In::UInt32) => Step::Cast,
        (Type::Int64, In::UInt64) => Step::Unsigned,
        (Type::Double, In::Float16 | In::Float32 | In::Float64) => Step::Cast,
        (Type::String, In::Utf8 | In::LargeUtf8 | In::Utf8View) => Step::Text(max_length),
        (Type::Json, In::Utf8 | In::LargeUtf8 | In::Utf8View) => Step::Json,
        (Type::Bytes, In::Binary | In::LargeBinary | In::BinaryView | In::FixedSizeBinary(_)) => {
            Step::Bytes(max_length)
        }
        (Type::Date, In::Date32) => Step::Days,
        (Type::Date, In::Date64) => Step::DayMillis,
        (Type::Timestamp, In::Timestamp(unit, _)) => Step::Instant(*unit),
        // The civil time meant is plain only where there is no zone, or where it is UTC.
        (Type::Datetime, In::Timestamp(unit, zone)) if zone.as_deref().is_none_or(is_utc) => {
            Step::Instant(*unit)
        }
        (Type::Time, In::Time32(unit) | In::Time64(unit)) => Step::Clock(*unit),
        (Type::Numeric | Type::Bignumeric, input) => Step::Decimal {
            from_scale: decimal_scale(input)?,
            bounds: decimal_bounds(column),
        },
        _ => return None,
    })
}

/// The Arrow type that BigQuery documents for a column's type, where this version writes it (write-api.md 5.5).
fn wire_type(column: &TableFieldSchema) -> Option<DataType> {
    Some(match column.r#type() {
        Type::Bool => DataType::Boolean,
        Type::Int64 => DataType::Int64,
        Type::Double => DataType::Float64,
        Type::String | Type::Json => DataType::Utf8,
        Type::Bytes => DataType::Binary,
        Type::Date => DataType::Date32,
        Type::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Time => DataType::Time64(TimeUnit::Microsecond),
        Type::Numeric => DataType::Decimal128(38, 9),
        Type::Bignumeric => DataType::Decimal256(76, 38),
        Type::Struct | Type::Geography | Type::Interval | Type::Range | Type::Unspecified => return None,
    })
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "utc" | "Etc/UTC" | "Z" | "+00:00" | "+00" | "+0000")
}

fn decimal_scale(input: &DataType) -> Option<i8> {
    match input {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        input if input.is_integer() => Some(0),
        _ => None,
    }
}

/// Of BIGNUMERIC's 39 digits before the point, Decimal256(76, 38) reaches 38.
fn decimal_bounds(column: &TableFieldSchema) -> DecimalBounds {
    let (scale, integer) = if column.r#type() == Type::Numeric {
        (9, 29)
    } else {
        (38, 38)
    };
    let declared = |digits: i64| u32::try_from(digits).unwrap_or(0);
    if column.precision <= 0 {
        return DecimalBounds {
            scale,
            integer,
            fraction: scale,
        };
    }
    let fraction = declared(column.scale).min(scale);
    DecimalBounds {
        scale,
        integer: declared(column.precision - column.scale).min(integer),
        fraction,
    }
}

/// Plans all columns of a table that the pipeline writes, or tells every problem.
pub(super) fn plan_columns(
    inputs: &Fields,
    columns: &[TableFieldSchema],
) -> Result<Vec<ColumnPlan>, Vec<ColumnProblem>> {
    let mut planner = Planner { problems: Vec::new() };
    let plans = planner.fields(inputs, columns, "");
    if planner.problems.is_empty() {
        Ok(plans)
    } else {
        Err(planner.problems)
    }
}

/// The dotted path of a field.
pub(super) fn join_path(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// BigQuery's column names ignore case (reports.md 75).
pub(super) fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// Walks two schemas side by side and goes on after a problem, so that all are told at once.
struct Planner {
    problems: Vec<ColumnProblem>,
}

impl Planner {
    /// The columns of a table, or the fields of a struct.
    fn fields(&mut self, inputs: &Fields, columns: &[TableFieldSchema], parent: &str) -> Vec<ColumnPlan> {
        let by_name: HashMap<String, &TableFieldSchema> = columns
            .iter()
            .map(|column| (folded(&column.name), column))
            .collect();
        let mut written: HashMap<String, &str> = HashMap::new();
        let mut plans = Vec::with_capacity(inputs.len());
        for (index, field) in inputs.iter().enumerate() {
            let path = join_path(parent, field.name());
            let name = folded(field.name());
            if let Some(other) = written.insert(name.clone(), field.name()) {
                let other = join_path(parent, other);
                self.problem(path, ColumnProblemKind::Collision { other });
                continue;
            }
            let Some(column) = by_name.get(&name) else {
                let pipeline = pipeline_type(field.data_type());
                self.problem(path, ColumnProblemKind::Unknown { pipeline });
                continue;
            };
            let Some(value) = self.column(field.data_type(), column, path) else {
                continue;
            };
            let field = Arc::new(Field::new(&column.name, value.wire.clone(), true));
            plans.push(ColumnPlan { index, value, field });
        }
        for column in columns {
            let required = column.mode() == Mode::Required && column.default_value_expression.is_empty();
            if required && !written.contains_key(&folded(&column.name)) {
                let path = join_path(parent, &column.name);
                self.problem(
                    path,
                    ColumnProblemKind::MissingRequired {
                        table: table_type(column),
                    },
                );
            }
        }
        plans
    }

    fn column(&mut self, input: &DataType, column: &TableFieldSchema, path: String) -> Option<ValuePlan> {
        let input = unpacked(input);
        let presence = match column.mode() {
            Mode::Required => Presence::Required,
            Mode::Nullable | Mode::Unspecified => Presence::Nullable,
            Mode::Repeated => return self.repeated(input, column, path),
        };
        if list_element(input).is_some() {
            return self.mismatch(input, column, path);
        }
        self.value(input, column, path, presence)
    }

    fn repeated(&mut self, input: &DataType, column: &TableFieldSchema, path: String) -> Option<ValuePlan> {
        let element_type = match list_element(input) {
            Some(element) => unpacked(element),
            None if *input == DataType::Null => input,
            None => return self.mismatch(input, column, path),
        };
        let element = self.value(element_type, column, path.clone(), Presence::Element)?;
        let wire = DataType::List(Arc::new(Field::new_list_field(element.wire.clone(), true)));
        let step = if *input == DataType::Null {
            Step::Nulls
        } else {
            Step::List(Box::new(element))
        };
        Some(ValuePlan {
            path,
            presence: Presence::Nullable,
            wire,
            step,
        })
    }

    fn value(
        &mut self,
        input: &DataType,
        column: &TableFieldSchema,
        path: String,
        presence: Presence,
    ) -> Option<ValuePlan> {
        if let (Type::Struct, DataType::Struct(inputs)) = (column.r#type(), input) {
            let before = self.problems.len();
            let fields = self.fields(inputs, &column.fields, &path);
            let wire = DataType::Struct(fields.iter().map(|plan| Arc::clone(&plan.field)).collect());
            let plan = ValuePlan {
                path,
                presence,
                wire,
                step: Step::Struct(fields),
            };
            return (self.problems.len() == before).then_some(plan);
        }
        let planned = match (wire_type(column), step(input, column)) {
            (Some(wire), Some(step)) => Some(ValuePlan {
                path: path.clone(),
                presence,
                wire,
                step,
            }),
            (None, _) if column.r#type() != Type::Struct => {
                let (pipeline, table) = (pipeline_type(input), table_type(column));
                return self.problem(path, ColumnProblemKind::Unsupported { pipeline, table });
            }
            _ => None,
        };
        if planned.is_none() && presence == Presence::Element {
            let list = DataType::List(Arc::new(Field::new_list_field(input.clone(), true)));
            return self.mismatch(&list, column, path);
        }
        planned.or_else(|| self.mismatch(input, column, path))
    }

    fn mismatch(&mut self, input: &DataType, column: &TableFieldSchema, path: String) -> Option<ValuePlan> {
        let remedy = remedy(input, column, &path);
        let (pipeline, table) = (pipeline_type(input), table_type(column));
        self.problem(
            path,
            ColumnProblemKind::Type {
                pipeline,
                table,
                remedy,
            },
        )
    }

    fn problem(&mut self, path: String, kind: ColumnProblemKind) -> Option<ValuePlan> {
        self.problems.push(ColumnProblem::new(path, kind));
        None
    }
}

/// What to do about two types that do not go together.
fn remedy(input: &DataType, column: &TableFieldSchema, path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let repeated = column.mode() == Mode::Repeated;
    if repeated && list_element(input).is_none() {
        return format!("write an array, for example make_array({name})");
    }
    if !repeated && list_element(input).is_some() {
        return "write one value, or make the table's column REPEATED".to_owned();
    }
    let sql = match column.r#type() {
        // A number of what: read as the wrong unit it is a date in another century (reports.md 62).
        Type::Timestamp | Type::Datetime if input.is_integer() => {
            return format!("say the unit, for example to_timestamp_millis({name})");
        }
        Type::Datetime if matches!(input, DataType::Timestamp(..)) => {
            return "cast it to TIMESTAMP without time zone, in the zone that is meant".to_owned();
        }
        Type::Struct => return "write a STRUCT with the fields of the table's".to_owned(),
        _ if repeated => return "write an array of the table's type".to_owned(),
        Type::Bool => "BOOLEAN",
        Type::Int64 => "BIGINT",
        Type::Double => "DOUBLE",
        Type::String | Type::Json => "TEXT",
        Type::Bytes => "BYTEA",
        Type::Date => "DATE",
        Type::Time => "TIME",
        Type::Timestamp | Type::Datetime => "TIMESTAMP",
        Type::Numeric => "DECIMAL(38, 9)",
        _ => return "change the table's column or the query".to_owned(),
    };
    format!("cast it, for example CAST({name} AS {sql})")
}
