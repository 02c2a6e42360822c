//! Fits a writer's Arrow schema to a table: which field goes to which column, and what cannot go at all.

use std::collections::HashMap;

use arrow_schema::{DataType, Fields, TimeUnit};

use crate::machine::{Behaviour, Switches};
use crate::schema::{Column, Kind, Mode, RangeElement};

/// Which Arrow types a column takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Takes {
    /// Those of Google's table (write-api.md 5.5).
    listed: bool,
    /// Unsigned integers, which it leaves out, as those that follow.
    unsigned: bool,
    /// Texts and bytes in other layouts.
    layouts: bool,
    /// Times in other units.
    units: bool,
    /// TIMESTAMP without a zone.
    without_zone: bool,
    /// Columns that say what a row changes, only to pass over them.
    changes: bool,
}

impl Takes {
    /// What the table says.
    pub(crate) const LISTED: Self = Self {
        listed: true,
        unsigned: false,
        layouts: false,
        units: false,
        without_zone: true,
        changes: false,
    };

    pub(crate) fn of(switches: &Switches) -> Self {
        let all = !switches.keeps(Behaviour::UnlistedArrowTypesRefused);
        Self {
            listed: switches.keeps(Behaviour::ListedArrowTypesTaken),
            unsigned: switches.arrow_unsigned_integers || all,
            layouts: switches.arrow_other_layouts || all,
            units: switches.arrow_other_time_units || all,
            without_zone: switches.keeps(Behaviour::TimestampNeedsNoZone),
            changes: !switches.keeps(Behaviour::ArrowTakesNoChanges),
        }
    }
}

/// For each column of a table or STRUCT, where its values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The field's place in the writer's schema; `None` if the writer lacks it.
    pub(crate) source: Option<usize>,
    /// For a STRUCT, its own columns; for a RANGE, `start` and `end`.
    pub(crate) inner: Vec<Self>,
}

/// Why a writer schema does not fit; names are dotted paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// Fields that the table lacks.
    Extra(Vec<String>),
    /// Fields whose type no rule converts, each with both types.
    Incompatible(Vec<String>),
    /// REQUIRED columns that the writer lacks.
    Missing(Vec<String>),
    /// A protobuf field and a column that do not go together, by their types.
    Mismatched {
        /// Full name of the field.
        field: String,
        /// Its type.
        found: String,
        /// That of the column.
        column: String,
    },
    /// REQUIRED columns that the writer's protobuf message lacks.
    MissingInMessage(Vec<String>),
    /// A field twice.
    Twice(String),
}

/// Fits fields to columns, by name without regard to case.
pub(crate) fn fit(fields: &Fields, columns: &[Column], takes: Takes) -> Result<Vec<Fit>, Misfit> {
    let mut found = Found {
        takes,
        ..Found::default()
    };
    let fits = found.fit(fields, columns, "")?;
    if takes.changes {
        found
            .extra
            .retain(|name| !name.eq_ignore_ascii_case("_change_type"));
    }
    // Extra fields come first: it is the one that clients act on.
    if !found.extra.is_empty() {
        Err(Misfit::Extra(found.extra))
    } else if !found.incompatible.is_empty() {
        Err(Misfit::Incompatible(found.incompatible))
    } else if !found.missing.is_empty() {
        Err(Misfit::Missing(found.missing))
    } else {
        Ok(fits)
    }
}

#[derive(Default)]
struct Found {
    takes: Takes,
    extra: Vec<String>,
    incompatible: Vec<String>,
    missing: Vec<String>,
}

impl Found {
    fn fit(&mut self, fields: &Fields, columns: &[Column], path: &str) -> Result<Vec<Fit>, Misfit> {
        let mut sources = HashMap::new();
        for (at, field) in fields.iter().enumerate() {
            if sources.insert(field.name().to_lowercase(), at).is_some() {
                return Err(Misfit::Twice(format!("{path}{}", field.name())));
            }
        }
        let mut fits = Vec::with_capacity(columns.len());
        for column in columns {
            let name = format!("{path}{}", column.name);
            let source = sources.remove(&column.name.to_lowercase());
            let inner = match source.map(|at| fields[at].data_type()) {
                Some(source) => self.fit_column(source, column, &name)?,
                None => {
                    self.absent(column, name);
                    Vec::new()
                }
            };
            fits.push(Fit { source, inner });
        }
        let mut extra: Vec<usize> = sources.into_values().collect();
        extra.sort_unstable();
        self.extra
            .extend(extra.into_iter().map(|at| format!("{path}{}", fields[at].name())));
        Ok(fits)
    }

    fn absent(&mut self, column: &Column, name: String) {
        if column.mode == Mode::Required && column.default_value_expression.is_none() {
            self.missing.push(name);
        }
    }

    fn fit_column(&mut self, source: &DataType, column: &Column, name: &str) -> Result<Vec<Fit>, Misfit> {
        let element = match (column.mode, source) {
            (Mode::Repeated, DataType::List(item)) => item.data_type(),
            (Mode::Repeated, _) => {
                self.incompatible.push(format!(
                    "'{name}' ({source} for REPEATED {})",
                    column.kind.sql_name()
                ));
                return Ok(Vec::new());
            }
            _ => source,
        };
        match (&column.kind, element) {
            (Kind::Struct(columns), DataType::Struct(fields)) if self.takes.listed => {
                self.fit(fields, columns, &format!("{name}."))
            }
            (Kind::Range(of), DataType::Struct(fields)) if self.takes.range(*of, fields) => {
                let bounds = [bound("start", *of), bound("end", *of)];
                self.fit(fields, &bounds, &format!("{name}."))
            }
            (kind, element) => {
                let good = self.takes.one(kind, element);
                if !good {
                    self.incompatible
                        .push(format!("'{name}' ({element} for {})", kind.sql_name()));
                }
                Ok(Vec::new())
            }
        }
    }
}

impl Takes {
    fn one(self, kind: &Kind, source: &DataType) -> bool {
        let listed = self.listed && takes(kind, source);
        let zoned =
            self.without_zone || *kind != Kind::Timestamp || !matches!(source, DataType::Timestamp(_, None));
        (listed && zoned) || self.unlisted(kind, source)
    }

    /// What Google's table leaves out and arrow can convert.
    fn unlisted(self, kind: &Kind, source: &DataType) -> bool {
        use DataType as Arrow;
        match (kind, source) {
            (Kind::Int64, Arrow::UInt8 | Arrow::UInt16 | Arrow::UInt32 | Arrow::UInt64) => self.unsigned,
            (Kind::String { .. } | Kind::Json | Kind::Geography, Arrow::LargeUtf8 | Arrow::Utf8View)
            | (Kind::Bytes { .. }, Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_)) => {
                self.layouts
            }
            (Kind::Date, Arrow::Date64)
            | (Kind::Time, Arrow::Time32(_) | Arrow::Time64(_))
            | (Kind::Datetime, Arrow::Timestamp(_, None)) => self.units,
            (Kind::Timestamp, Arrow::Timestamp(_, zone)) => self.units && is_utc(zone.as_deref()),
            _ => false,
        }
    }

    /// A struct of `start` and `end`, both of the one Arrow type that Google's table has for the element.
    fn range(self, element: RangeElement, fields: &Fields) -> bool {
        let good = |source: &DataType| match element {
            RangeElement::Date => *source == DataType::Date32,
            element => takes(&element.into(), source),
        };
        let named = |name: &str| fields.iter().any(|field| field.name().eq_ignore_ascii_case(name));
        let types = fields.iter().all(|field| good(field.data_type()));
        self.listed && fields.len() == 2 && named("start") && named("end") && types
    }
}

/// Google's table of Arrow types (write-api.md 5.5).
fn takes(kind: &Kind, source: &DataType) -> bool {
    use DataType as Arrow;
    match (kind, source) {
        (Kind::Bool, Arrow::Boolean)
        | (Kind::Int64, Arrow::Int8 | Arrow::Int16 | Arrow::Int32 | Arrow::Int64)
        | (Kind::Float64, Arrow::Float32 | Arrow::Float64)
        | (Kind::String { .. } | Kind::Json | Kind::Geography, Arrow::Utf8)
        | (Kind::Bytes { .. }, Arrow::Binary)
        | (Kind::Date, Arrow::Date32 | Arrow::Int32 | Arrow::Utf8)
        | (Kind::Time, Arrow::Time64(TimeUnit::Microsecond))
        | (Kind::Datetime, Arrow::Timestamp(TimeUnit::Microsecond, None)) => true,
        // Python's sample sends TIMESTAMP without a zone.
        (Kind::Timestamp, Arrow::Timestamp(TimeUnit::Microsecond, zone)) => is_utc(zone.as_deref()),
        // [PROD JIT timestamp_arrowWrite]; Google's table does not have it.
        (
            Kind::TimestampPicoseconds,
            Arrow::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, zone),
        ) => is_utc(zone.as_deref()),
        (Kind::Interval, Arrow::Interval(_) | Arrow::Utf8) => true,
        (Kind::Numeric { .. }, Arrow::Decimal128(precision, scale)) => within(*precision, *scale, 29, 9),
        (Kind::BigNumeric { .. }, Arrow::Decimal256(precision, scale)) => within(*precision, *scale, 39, 38),
        _ => false,
    }
}

fn bound(name: &str, element: RangeElement) -> Column {
    Column::new(name, element.into(), Mode::Nullable)
}

fn is_utc(zone: Option<&str>) -> bool {
    matches!(zone, None | Some("UTC" | "utc" | "+00:00" | "Z"))
}

fn within(precision: u8, scale: i8, integer_digits: i16, max_scale: i8) -> bool {
    (0..=max_scale).contains(&scale) && i16::from(precision) - i16::from(scale) <= integer_digits
}
