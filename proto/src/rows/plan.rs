//! A pipeline's columns against a table's: who goes where, and by which rule of the mapping table.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};

use super::MissingValues;
use super::mapping::{ARRAY_OF_ARRAYS, OTHER_ELEMENTS, PipelineType, Rule, TableType, rule};
use super::names::{fault, folded, join_path};
use super::problem::{ColumnProblem, ColumnProblemKind};
use super::types::{list_element, pipeline_type, table_type, unpacked};
use crate::wire::TableFieldSchema;
use crate::wire::table_field_schema::Mode;

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
    /// NULL stays NULL on the wire, whatever the column's mode: BigQuery puts the default value there.
    Defaulted,
}

/// What is done to a value: a rule with what the column says.
#[derive(Debug)]
pub(super) enum Step {
    /// There are only NULLs.
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
    /// An interval in these parts.
    Interval(IntervalUnit),
    /// An interval of time alone, in this unit.
    Duration(TimeUnit),
    /// Two bounds, `start` and `end`, each by its own plan.
    Range(Vec<ColumnPlan>),
    /// Every element by its own plan; NULL becomes the empty list.
    List(Box<ValuePlan>),
    /// Every field by its own plan.
    Struct(Vec<ColumnPlan>),
}

/// What a NUMERIC or BIGNUMERIC column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecimalBounds {
    /// Scale on the wire: 9, 37 or 38.
    pub(super) scale: u32,
    /// Digits before the point.
    pub(super) integer: u32,
    /// Digits behind the point, at most `scale`.
    pub(super) fraction: u32,
}

/// The step of a rule for values that have no parts; `None` for those that have, and for what is refused.
fn step(rule: Rule, input: &DataType, wire: &DataType, column: &TableFieldSchema) -> Option<Step> {
    let max_length = u64::try_from(column.max_length).ok().filter(|&max| max > 0);
    Some(match rule {
        Rule::Nulls => Step::Nulls,
        Rule::Cast => Step::Cast,
        Rule::Unsigned => Step::Unsigned,
        Rule::Text => Step::Text(max_length),
        Rule::Geography => Step::Text(None),
        Rule::Json => Step::Json,
        Rule::Bytes => Step::Bytes(max_length),
        Rule::Days => Step::Days,
        Rule::DayMillis => Step::DayMillis,
        Rule::Clock(unit) => Step::Clock(unit),
        Rule::Instant(unit) => Step::Instant(unit),
        Rule::Decimal => Step::Decimal {
            from_scale: decimal_scale(input),
            bounds: decimal_bounds(wire, column),
        },
        Rule::Interval(unit) => Step::Interval(unit),
        Rule::Duration(unit) => Step::Duration(unit),
        Rule::Range | Rule::Struct | Rule::List | Rule::Refused(_) => return None,
    })
}

fn decimal_scale(input: &DataType) -> i8 {
    match input {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// BIGNUMERIC has 39 digits before the point, of which only scale 37 reaches the last.
fn decimal_bounds(wire: &DataType, column: &TableFieldSchema) -> DecimalBounds {
    let (scale, integer) = match wire {
        DataType::Decimal128(_, _) => (9, 29),
        DataType::Decimal256(_, 37) => (37, 39),
        _ => (38, 38),
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
    missing_values: MissingValues,
) -> Result<Vec<ColumnPlan>, Vec<ColumnProblem>> {
    let mut planner = Planner {
        problems: Vec::new(),
        missing_values,
    };
    let plans = planner.fields(inputs, columns, "");
    if planner.problems.is_empty() {
        Ok(plans)
    } else {
        Err(planner.problems)
    }
}

/// Walks two schemas side by side and goes on after a problem, so that all are told at once.
struct Planner {
    problems: Vec<ColumnProblem>,
    missing_values: MissingValues,
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
                // No table can have the column, so it is no use to add it.
                let kind = match fault(field.name()) {
                    Some(reason) => ColumnProblemKind::Name { reason },
                    None => ColumnProblemKind::Unknown {
                        pipeline: pipeline_type(field.data_type()),
                    },
                };
                self.problem(path, kind);
                continue;
            };
            let Some(mut value) = self.column(field.data_type(), column, path) else {
                continue;
            };
            // Only top-level columns have default values.
            if self.missing_values == MissingValues::Default
                && parent.is_empty()
                && !column.default_value_expression.is_empty()
            {
                value.presence = Presence::Defaulted;
            }
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
        self.value(input, column, path, presence)
    }

    fn repeated(&mut self, input: &DataType, column: &TableFieldSchema, path: String) -> Option<ValuePlan> {
        let element_type = match rule(PipelineType::of(input), TableType::Array) {
            Rule::List => unpacked(list_element(input)?),
            Rule::Refused(remedy) => return self.mismatch(input, column, path, remedy),
            _ => input,
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
        let Some(kind) = TableType::of_value(column) else {
            return self.unsupported(input, column, path);
        };
        let pipeline = PipelineType::of(input);
        let (wire, step) = match (rule(pipeline, kind), input) {
            (Rule::Refused(_), _) if presence == Presence::Element => {
                let list = DataType::List(Arc::new(Field::new_list_field(input.clone(), true)));
                let nested = list_element(input).is_some();
                let remedy = if nested { ARRAY_OF_ARRAYS } else { OTHER_ELEMENTS };
                return self.mismatch(&list, column, path, remedy);
            }
            (Rule::Refused(remedy), _) => return self.mismatch(input, column, path, remedy),
            (Rule::Nulls, _) => match null_type(column, kind) {
                Some(wire) => (wire, Step::Nulls),
                None => return self.unsupported(input, column, path),
            },
            (Rule::Struct, DataType::Struct(inputs)) if inputs.is_empty() => {
                return self.mismatch(input, column, path, "give it fields of the table's STRUCT");
            }
            (Rule::Struct, DataType::Struct(inputs)) => {
                let fields = self.whole(inputs, &column.fields, &path)?;
                (struct_type(&fields), Step::Struct(fields))
            }
            (Rule::Range, DataType::Struct(inputs)) => {
                let bounds = self.bounds(inputs, column, kind, &path)?;
                (struct_type(&bounds), Step::Range(bounds))
            }
            (rule, input) => {
                let wire = kind.wire(pipeline, input);
                let step = step(rule, input, &wire, column)?;
                (wire, step)
            }
        };
        Some(ValuePlan {
            path,
            presence,
            wire,
            step,
        })
    }

    /// The fields of a struct, if all of them go.
    fn whole(
        &mut self,
        inputs: &Fields,
        columns: &[TableFieldSchema],
        path: &str,
    ) -> Option<Vec<ColumnPlan>> {
        let before = self.problems.len();
        let fields = self.fields(inputs, columns, path);
        (self.problems.len() == before).then_some(fields)
    }

    /// The bounds of a RANGE, `start` first. A field that is missing might be misspelled, so it is not taken for no bound.
    fn bounds(
        &mut self,
        inputs: &Fields,
        column: &TableFieldSchema,
        kind: TableType,
        path: &str,
    ) -> Option<Vec<ColumnPlan>> {
        const BOUNDS: [&str; 2] = ["start", "end"];
        let element = kind.range_element()?;
        let named = |bound: &str| inputs.iter().any(|input| folded(input.name()) == bound);
        if inputs.len() != BOUNDS.len() || !BOUNDS.into_iter().all(named) {
            let input = DataType::Struct(inputs.clone());
            let remedy = "name its two fields start and end";
            self.mismatch(&input, column, path.to_owned(), remedy);
            return None;
        }
        let columns = BOUNDS.map(|bound| element.column(bound));
        let mut bounds = self.whole(inputs, &columns, path)?;
        bounds.sort_by_key(|bound| BOUNDS.iter().position(|name| name == bound.field.name()));
        Some(bounds)
    }

    /// Two types that do not go together.
    fn mismatch(
        &mut self,
        input: &DataType,
        column: &TableFieldSchema,
        path: String,
        remedy: &str,
    ) -> Option<ValuePlan> {
        let name = path.rsplit('.').next().unwrap_or(&path);
        let remedy = remedy.replace("{name}", &in_sql(name));
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

    /// A type of the table that came after this version.
    fn unsupported(
        &mut self,
        input: &DataType,
        column: &TableFieldSchema,
        path: String,
    ) -> Option<ValuePlan> {
        let (pipeline, table) = (pipeline_type(input), table_type(column));
        self.problem(path, ColumnProblemKind::Unsupported { pipeline, table })
    }

    fn problem(&mut self, path: String, kind: ColumnProblemKind) -> Option<ValuePlan> {
        self.problems.push(ColumnProblem::new(path, kind));
        None
    }
}

fn struct_type(fields: &[ColumnPlan]) -> DataType {
    DataType::Struct(fields.iter().map(|plan| Arc::clone(&plan.field)).collect())
}

/// The wire type of a column for which there are only NULLs; `None` if a type in it is not known.
fn null_type(column: &TableFieldSchema, kind: TableType) -> Option<DataType> {
    if kind != TableType::Struct {
        return Some(kind.wire(PipelineType::Null, &DataType::Null));
    }
    let field = |column: &TableFieldSchema| {
        let value = null_type(column, TableType::of_value(column)?)?;
        let wire = match column.mode() {
            Mode::Repeated => DataType::List(Arc::new(Field::new_list_field(value, true))),
            _ => value,
        };
        Some(Field::new(&column.name, wire, true))
    };
    let fields: Option<Vec<Field>> = column.fields.iter().map(field).collect();
    Some(DataType::Struct(fields?.into()))
}

/// A name as SQL takes it, in quotes where it needs them.
fn in_sql(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}
