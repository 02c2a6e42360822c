//! Default values of columns: literals and a few functions (D:default-values).
//!
//! A column keeps the SQL. [`Schema::check`](crate::schema::Schema::check) has parsed it, so that a table whose
//! defaults are wrong is never created. Who writes rows asks each column that a row leaves out:
//!
//! ```text
//! let mut moment = Moment { now_ms, random: &mut random }; // one for a request; `random` is the machine's
//! let values = match DefaultValue::of(column)? {
//!     Some(default) => default.evaluate(rows, &mut moment)?, // `rows` values, in the column's canonical Arrow type
//!     None => ...                                            // NULL, or no elements
//! };
//! ```
//!
//! Nothing here reads a clock or draws a number by itself: functions of time all see `now_ms`, `RAND` and
//! `GENERATE_UUID` take their bits from `random`, anew for each row.

use arrow_array::ArrayRef;
use arrow_array::timezone::Tz;
use arrow_schema::ArrowError;

use crate::catalog::Millis;
use crate::schema::{Column, Kind};
use crate::values::cell::Cell;
use crate::values::civil;
use crate::values::picoseconds;

mod parse;
mod tokens;
mod types;

/// Who the emulator takes its callers for (`SESSION_USER()`).
pub(crate) const SESSION_USER: &str = "emulator@example.com";

/// A column's default expression, checked against the column's type.
#[derive(Clone, Debug)]
pub(crate) struct DefaultValue {
    /// For whom; without what evaluation does not need.
    column: Column,
    value: Value,
}

/// What functions need to know.
pub(crate) struct Moment<'a> {
    /// What the clock says.
    pub(crate) now_ms: Millis,
    /// Bits for `RAND` and `GENERATE_UUID`.
    pub(crate) random: &'a mut RandomBits,
}

/// Bits that look random and follow from the seed (splitmix64).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RandomBits(u64);

/// A default that BigQuery refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid default value expression for column {column}: {reason}")]
pub(crate) struct DefaultError {
    column: String,
    reason: String,
}

/// A typed expression: what it is when there is a moment.
#[derive(Clone, Debug)]
enum Value {
    Constant(Cell),
    /// A function's result as a value of that kind.
    Call(Function, Kind),
    List(Vec<Self>),
    Struct(Vec<Self>),
}

/// The functions that defaults may call; `ST_GEOGPOINT` of literals is a constant.
#[derive(Clone, Copy, Debug)]
enum Function {
    CurrentDate(Tz),
    CurrentDatetime(Tz),
    CurrentTime(Tz),
    CurrentTimestamp,
    GenerateUuid,
    Rand,
    SessionUser,
}

impl DefaultValue {
    /// The column's default; `None` if it has none, or `NULL`, which is the same.
    ///
    /// # Errors
    /// It is no literal and no function that is allowed, or of another type than the column.
    pub(crate) fn of(column: &Column) -> Result<Option<Self>, DefaultError> {
        let Some(sql) = &column.default_value_expression else {
            return Ok(None);
        };
        let value = parse::expression(sql).and_then(|expression| types::typed(&expression, column));
        let value = value.map_err(|reason| DefaultError {
            column: column.name.clone(),
            reason,
        })?;
        Ok(match value {
            Value::Constant(Cell::Null) => None,
            value => Some(Self {
                column: Column::new(&column.name, column.kind.clone(), column.mode),
                value,
            }),
        })
    }

    /// The value for each of so many rows, in the column's canonical Arrow type.
    ///
    /// # Errors
    /// None that a checked expression brings about.
    pub(crate) fn evaluate(&self, rows: usize, moment: &mut Moment<'_>) -> Result<ArrayRef, ArrowError> {
        let cells = (0..rows).map(|_| self.cell(moment)).collect();
        self.column.array(cells)
    }

    /// The value for one row.
    pub(crate) fn cell(&self, moment: &mut Moment<'_>) -> Cell {
        self.value.cell(moment)
    }
}

impl Value {
    fn cell(&self, moment: &mut Moment<'_>) -> Cell {
        match self {
            Self::Constant(cell) => cell.clone(),
            Self::Call(function, kind) => function.call(kind, moment),
            Self::List(items) => Cell::List(items.iter().map(|item| item.cell(moment)).collect()),
            Self::Struct(fields) => Cell::Struct(fields.iter().map(|field| field.cell(moment)).collect()),
        }
    }
}

impl Function {
    /// The type of its result, which may still widen to that of the column.
    fn kind(self) -> Kind {
        match self {
            Self::CurrentDate(_) => Kind::Date,
            Self::CurrentDatetime(_) => Kind::Datetime,
            Self::CurrentTime(_) => Kind::Time,
            Self::CurrentTimestamp => Kind::Timestamp,
            Self::GenerateUuid | Self::SessionUser => Kind::String { max_length: None },
            Self::Rand => Kind::Float64,
        }
    }

    fn call(self, kind: &Kind, moment: &mut Moment<'_>) -> Cell {
        const DAY: i64 = 86_400_000_000;
        let now = moment.now_ms.saturating_mul(1_000);
        let local = |zone| civil::local_micros(now, zone).unwrap_or(now);
        match (self, kind) {
            (Self::CurrentDate(zone), Kind::Datetime) => Cell::Micros(local(zone).div_euclid(DAY) * DAY),
            (Self::CurrentDate(zone), _) => {
                i32::try_from(local(zone).div_euclid(DAY)).map_or(Cell::Null, Cell::Days)
            }
            (Self::CurrentDatetime(zone), _) => Cell::Micros(local(zone)),
            (Self::CurrentTime(zone), _) => Cell::Micros(local(zone).rem_euclid(DAY)),
            (Self::CurrentTimestamp, Kind::TimestampPicoseconds) => {
                Cell::Decimal(i128::from(now) * picoseconds::MICROSECOND)
            }
            (Self::CurrentTimestamp, _) => Cell::Micros(now),
            (Self::GenerateUuid, _) => Cell::Text(moment.random.uuid()),
            (Self::Rand, _) => Cell::Float(moment.random.fraction()),
            (Self::SessionUser, _) => Cell::Text(SESSION_USER.to_owned()),
        }
    }
}

impl RandomBits {
    /// The same bits for the same seed.
    pub(crate) fn new(seed: u128) -> Self {
        // Truncation takes the two halves.
        Self((seed >> 64) as u64 ^ seed as u64)
    }

    /// Other bits, for another number.
    pub(crate) fn mixed(mut self, number: u64) -> Self {
        Self(self.next() ^ number)
    }

    /// Bits for someone else, which have nothing to do with those that come next here.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// 0 or more, less than 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Version 4.
    pub(crate) fn uuid(&mut self) -> String {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes())
            .into_uuid()
            .to_string()
    }
}

#[cfg(test)]
mod tests;
