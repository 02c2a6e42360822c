//! Parts of dates and times as BigQuery counts them: weeks begin on Sunday unless told, parts of a second are of the
//! second, and what is truncated keeps its type.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Time64MicrosecondType, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Weekday};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Signature;

use crate::query::scalar::{Argument, Returns, Scalar, VOLATILE};

const DAY: i64 = 86_400_000_000;

/// `extract_part(part, value)` and `trunc_to(part, value)`.
pub(super) fn functions() -> [Scalar; 2] {
    let signature = || Signature::any(2, VOLATILE);
    [
        Scalar::new("extract_part", signature(), Returns::Integer, extract),
        Scalar::new("trunc_to", signature(), Returns::Of(1), trunc),
    ]
}

/// What has parts, in order of size; a week is in none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    DayOfWeek,
    DayOfYear,
    Week(Weekday),
    IsoWeek,
    Month,
    Quarter,
    Year,
    IsoYear,
}

impl Part {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "MICROSECOND" => Self::Microsecond,
            "MILLISECOND" => Self::Millisecond,
            "SECOND" => Self::Second,
            "MINUTE" => Self::Minute,
            "HOUR" => Self::Hour,
            "DAY" => Self::Day,
            "DAYOFWEEK" => Self::DayOfWeek,
            "DAYOFYEAR" => Self::DayOfYear,
            "WEEK" => Self::Week(Weekday::Sun),
            "ISOWEEK" => Self::IsoWeek,
            "MONTH" => Self::Month,
            "QUARTER" => Self::Quarter,
            "YEAR" => Self::Year,
            "ISOYEAR" => Self::IsoYear,
            other => {
                let day = other.strip_prefix("WEEK(")?.strip_suffix(')')?;
                Self::Week(day.parse().ok()?)
            }
        })
    }

    fn is_of_time(self) -> bool {
        matches!(
            self,
            Self::Microsecond | Self::Millisecond | Self::Second | Self::Minute | Self::Hour
        )
    }

    fn extract(self, at: NaiveDateTime) -> i64 {
        let day = at.date();
        let micros = i64::from(at.nanosecond() / 1_000);
        let number = match self {
            Self::Microsecond => return micros,
            Self::Millisecond => return micros / 1_000,
            Self::Year => return day.year().into(),
            Self::IsoYear => return day.iso_week().year().into(),
            Self::Second => at.second(),
            Self::Minute => at.minute(),
            Self::Hour => at.hour(),
            Self::Day => day.day(),
            Self::DayOfWeek => day.weekday().number_from_sunday(),
            Self::DayOfYear => day.ordinal(),
            // Days before the year's first such weekday are in week 0.
            Self::Week(first) => (day.ordinal0() + 7 - day.weekday().days_since(first)) / 7,
            Self::IsoWeek => day.iso_week().week(),
            Self::Month => day.month(),
            Self::Quarter => day.month0() / 3 + 1,
        };
        number.into()
    }

    /// The part's beginning; `None` beyond the calendar, and of parts in which nothing begins.
    fn begin(self, at: NaiveDateTime) -> Option<NaiveDateTime> {
        let (day, micros) = (at.date(), at.nanosecond() / 1_000);
        let clock =
            |hour, minute, second, micros| NaiveTime::from_hms_micro_opt(hour, minute, second, micros);
        let within = |time: Option<NaiveTime>| Some(day.and_time(time?));
        let week = |first| day.checked_sub_days(Days::new(day.weekday().days_since(first).into()));
        let begins = match self {
            Self::Microsecond => return within(clock(at.hour(), at.minute(), at.second(), micros)),
            Self::Millisecond => {
                return within(clock(at.hour(), at.minute(), at.second(), micros / 1_000 * 1_000));
            }
            Self::Second => return within(clock(at.hour(), at.minute(), at.second(), 0)),
            Self::Minute => return within(clock(at.hour(), at.minute(), 0, 0)),
            Self::Hour => return within(clock(at.hour(), 0, 0, 0)),
            Self::Day => Some(day),
            Self::Week(first) => week(first),
            Self::IsoWeek => week(Weekday::Mon),
            Self::Month => day.with_day(1),
            Self::Quarter => NaiveDate::from_ymd_opt(day.year(), day.month0() / 3 * 3 + 1, 1),
            Self::Year => NaiveDate::from_ymd_opt(day.year(), 1, 1),
            Self::IsoYear => NaiveDate::from_isoywd_opt(day.iso_week().year(), 1, Weekday::Mon),
            Self::DayOfWeek | Self::DayOfYear => None,
        };
        begins.map(NaiveDate::into)
    }
}

fn extract(args: &[Argument]) -> Result<ArrayRef> {
    let (part, value) = arguments("EXTRACT", args)?;
    let numbers: Int64Array = values(value)?.map(|at| Some(part.extract(at?))).collect();
    Ok(Arc::new(numbers))
}

fn trunc(args: &[Argument]) -> Result<ArrayRef> {
    let (part, value) = arguments("truncation", args)?;
    if matches!(part, Part::DayOfWeek | Part::DayOfYear) || !part.is_of_time() && is_time(value) {
        return exec_err!("The part is not one of those to which such a value can be truncated");
    }
    let begins = |at: NaiveDateTime| match part.begin(at) {
        Some(begins) => Ok(begins.and_utc().timestamp_micros()),
        None => exec_err!("The result is before the first day of the calendar"),
    };
    let micros = values(value)?.map(|at| at.map(begins).transpose());
    let micros = micros.collect::<Result<Vec<_>>>()?;
    if is_time(value) {
        return Ok(Arc::new(Time64MicrosecondArray::from(micros)));
    }
    Ok(cast(&TimestampMicrosecondArray::from(micros), value.data_type())?)
}

fn arguments<'a>(what: &str, args: &'a [Argument]) -> Result<(Part, &'a ArrayRef)> {
    let [part, value] = args else {
        return exec_err!("{what} takes a part and a value");
    };
    let parts = part.array.as_string::<i32>();
    // Of no rows there is no part either, and nobody asks.
    let name = if parts.is_empty() { "DAY" } else { parts.value(0) };
    let Some(read) = Part::read(name) else {
        return exec_err!("{what} of {name} is not supported by this emulator");
    };
    let fits = match value.array.data_type() {
        DataType::Null | DataType::Timestamp(_, None) => true,
        DataType::Date32 => !read.is_of_time(),
        DataType::Time64(_) => read.is_of_time(),
        DataType::Timestamp(_, Some(zone)) => {
            if !matches!(zone.as_ref(), "+00:00" | "UTC" | "Z") {
                return exec_err!("{what} in the time zone {zone} is not supported by this emulator");
            }
            true
        }
        _ => false,
    };
    if !fits {
        return exec_err!(
            "{what} of {name} takes another type than {}",
            value.array.data_type()
        );
    }
    Ok((read, &value.array))
}

fn is_time(value: &ArrayRef) -> bool {
    matches!(value.data_type(), DataType::Time64(_))
}

/// A time is one of the first day.
fn values(array: &ArrayRef) -> Result<impl Iterator<Item = Option<NaiveDateTime>>> {
    let micros: Vec<Option<i64>> = if is_time(array) {
        let array = cast(array, &DataType::Time64(TimeUnit::Microsecond))?;
        array
            .as_primitive::<Time64MicrosecondType>()
            .iter()
            .map(|micros| micros.map(|micros| micros.rem_euclid(DAY)))
            .collect()
    } else {
        let array = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        array.as_primitive::<TimestampMicrosecondType>().iter().collect()
    };
    let at = |micros: i64| DateTime::from_timestamp_micros(micros).map(|at| at.naive_utc());
    Ok(micros.into_iter().map(move |micros| at(micros?)))
}
