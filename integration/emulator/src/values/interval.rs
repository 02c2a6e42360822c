//! INTERVAL: three parts, each with a sign of its own; months, days and time never turn into each other.
//!
//! Its canonical Arrow form is a struct of these parts. Arrow's `MonthDayNano` will not do: its nanoseconds end at
//! 2,562,047 hours, BigQuery's INTERVAL at 87,840,000. No STRUCT column looks like it, for none has 32-bit fields.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, Int32Array, Int64Array, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};

/// A value within BigQuery's range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    months: i32,
    days: i32,
    micros: i64,
}

/// A part of an INTERVAL literal, as in `INTERVAL '1-2 3' YEAR TO DAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

/// 10,000 years.
const MOST_MONTHS: i64 = 120_000;
const MOST_DAYS: i64 = 3_660_000;
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const MOST_MICROS: i64 = 87_840_000 * HOUR;

impl Interval {
    /// `None` beyond ±(10000-0 3660000 87840000:0:0).
    pub(crate) fn new(months: i64, days: i64, micros: i64) -> Option<Self> {
        let within = |value: i64, most: i64| (-most..=most).contains(&value);
        let good = within(months, MOST_MONTHS) && within(days, MOST_DAYS) && within(micros, MOST_MICROS);
        Some(Self {
            months: i32::try_from(months).ok()?,
            days: i32::try_from(days).ok()?,
            micros,
        })
        .filter(|_| good)
    }

    /// Months, days and microseconds.
    pub(crate) fn parts(self) -> (i32, i32, i64) {
        (self.months, self.days, self.micros)
    }

    /// Reads the canonical format, `[sign]Y-M [sign]D [sign]H:M:S[.F]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::parse_parts(text, Part::Year, Part::Second)
    }

    /// Reads the parts from one to another: `Y-M D H:M:S[.F]` without those before and after. The sign of a year
    /// goes for the months too, that of the first part of the time for all of it.
    pub(crate) fn parse_parts(text: &str, from: Part, to: Part) -> Option<Self> {
        let mut words = text.split(' ');
        let mut value = (0_i64, 0_i64, 0_i64);
        if from <= Part::Month {
            let (negative, word) = signed(words.next()?)?;
            let (years, months) = match (from, to) {
                (Part::Year, Part::Year) => (number(word)?, 0),
                (Part::Year, _) => {
                    let (years, months) = word.split_once('-')?;
                    (number(years)?, number(months)?)
                }
                _ => (0, number(word)?),
            };
            value.0 = negate(years.checked_mul(12)?.checked_add(months)?, negative);
        }
        if from <= Part::Day && to >= Part::Day {
            let (negative, word) = signed(words.next()?)?;
            value.1 = negate(number(word)?, negative);
        }
        if to >= Part::Hour {
            let (negative, word) = signed(words.next()?)?;
            value.2 = negate(time(word, from.max(Part::Hour), to)?, negative);
        }
        match words.next() {
            None => Self::new(value.0, value.1, value.2),
            Some(_) => None,
        }
    }
}

impl Interval {
    /// Reads `P1Y2M3DT4H5M6.7S`, as rows of JSON have it: each part with a sign of its own, in this order, any left
    /// out.
    pub(crate) fn parse_iso(text: &str) -> Option<Self> {
        let (date, time) = text.strip_prefix('P')?.split_once('T')?;
        let mut rest = date;
        let mut whole =
            |unit| designated(&mut rest, unit).and_then(|(text, sign)| Some(sign * number(text)?));
        let (years, months, days) = (whole('Y')?, whole('M')?, whole('D')?);
        let mut rest_of_time = time;
        let mut part = |unit| designated(&mut rest_of_time, unit);
        let (hours, minutes, seconds) = (part('H')?, part('M')?, part('S')?);
        if !rest.is_empty() || !rest_of_time.is_empty() {
            return None;
        }
        let scaled =
            |(text, sign): (&str, i64), size: i64| number(text)?.checked_mul(size)?.checked_mul(sign);
        let (second, fraction) = seconds.0.split_once('.').unwrap_or((seconds.0, "0"));
        let micros = scaled((second, 1), SECOND)?.checked_add(fraction_micros(fraction)?)? * seconds.1;
        let micros = scaled(hours, HOUR)?
            .checked_add(scaled(minutes, HOUR / 60)?)?
            .checked_add(micros)?;
        Self::new(years.checked_mul(12)?.checked_add(months)?, days, micros)
    }
}

/// Takes `-12Y` off the start: digits and sign of that unit. Zero if it is not there.
fn designated<'a>(rest: &mut &'a str, unit: char) -> Option<(&'a str, i64)> {
    let end = rest.find(|c: char| c.is_ascii_alphabetic());
    let Some(end) = end.filter(|end| rest[*end..].starts_with(unit)) else {
        return Some(("0", 1));
    };
    let (negative, digits) = signed(&rest[..end])?;
    *rest = &rest[end + 1..];
    Some((digits, negate(1, negative)))
}

/// A sign, if there is one, and what follows; digits must follow.
fn signed(word: &str) -> Option<(bool, &str)> {
    let (negative, rest) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    rest.starts_with(|c: char| c.is_ascii_digit())
        .then_some((negative, rest))
}

fn negate(value: i64, negative: bool) -> i64 {
    if negative { -value } else { value }
}

fn number(digits: &str) -> Option<i64> {
    let good = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| good)
}

/// `H:M:S[.F]`, or some parts of it in a row, in µs.
fn time(word: &str, from: Part, to: Part) -> Option<i64> {
    let mut parts = word.split(':');
    let mut micros = 0_i64;
    for (part, size) in [
        (Part::Hour, HOUR),
        (Part::Minute, HOUR / 60),
        (Part::Second, SECOND),
    ] {
        if part < from || part > to {
            continue;
        }
        let text = parts.next()?;
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) if part == Part::Second => (whole, fraction_micros(fraction)?),
            Some(_) => return None,
            None => (text, 0),
        };
        micros = micros
            .checked_add(number(whole)?.checked_mul(size)?)?
            .checked_add(fraction)?;
    }
    parts.next().is_none().then_some(micros)
}

/// One to six digits behind the point.
fn fraction_micros(digits: &str) -> Option<i64> {
    let scale = 6_u32.checked_sub(u32::try_from(digits.len()).ok()?)?;
    number(digits)?.checked_mul(10_i64.pow(scale))
}

impl fmt::Display for Interval {
    /// The canonical format; a fraction has three digits or six.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |negative: bool| if negative { "-" } else { "" };
        let (months, micros) = (self.months.unsigned_abs(), self.micros.unsigned_abs());
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let fraction = match fraction {
            0 => String::new(),
            _ if fraction % 1_000 == 0 => format!(".{:03}", fraction / 1_000),
            _ => format!(".{fraction:06}"),
        };
        write!(
            f,
            "{}{}-{} {} {}{}:{}:{}{fraction}",
            sign(self.months < 0),
            months / 12,
            months % 12,
            self.days,
            sign(self.micros < 0),
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60,
        )
    }
}

/// The canonical Arrow type.
pub(crate) fn data_type() -> DataType {
    DataType::Struct(fields())
}

/// Whether a struct of these fields is an INTERVAL.
pub(crate) fn is(fields: &Fields) -> bool {
    fields.len() == 3 && fields[0].name() == "months" && *fields[0].data_type() == DataType::Int32
}

/// Values in the canonical Arrow form.
pub(crate) fn array(values: impl IntoIterator<Item = Option<Interval>>) -> StructArray {
    let (mut months, mut days, mut micros, mut valid) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for value in values {
        valid.push(value.is_some());
        let value = value.unwrap_or_default();
        months.push(value.months);
        days.push(value.days);
        micros.push(value.micros);
    }
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    let arrays: Vec<Arc<dyn Array>> = vec![
        Arc::new(Int32Array::from(months)),
        Arc::new(Int32Array::from(days)),
        Arc::new(Int64Array::from(micros)),
    ];
    StructArray::new(fields(), arrays, nulls)
}

/// The value in a row of a canonical array that is not null there.
pub(crate) fn at(array: &StructArray, row: usize) -> Interval {
    Interval {
        months: array.column(0).as_primitive::<Int32Type>().value(row),
        days: array.column(1).as_primitive::<Int32Type>().value(row),
        micros: array.column(2).as_primitive::<Int64Type>().value(row),
    }
}

fn fields() -> Fields {
    Fields::from(vec![
        Field::new("months", DataType::Int32, false),
        Field::new("days", DataType::Int32, false),
        Field::new("microseconds", DataType::Int64, false),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Interval::parse(text).map(|value| value.to_string())
    }

    #[test]
    fn the_canonical_format_is_read_and_written() {
        for (text, canonical) in [
            ("0-0 0 0:0:0", "0-0 0 0:0:0"),
            ("1-2 3 4:5:6.789999", "1-2 3 4:5:6.789999"),
            // The documentation's own: months and seconds carry, days do not.
            ("0-13 370 48:61:61", "1-1 370 49:2:1"),
            ("-23-2 10 -12:30:0", "-23-2 10 -12:30:0"),
            ("+1-0 +2 +3:0:0", "1-0 2 3:0:0"),
            ("0-0 0 10:20:30.52", "0-0 0 10:20:30.520"),
            ("0-0 0 -0:0:0.000001", "0-0 0 -0:0:0.000001"),
            ("-0-1 -5 0:0:0", "-0-1 -5 0:0:0"),
            ("10000-0 3660000 87840000:0:0", "10000-0 3660000 87840000:0:0"),
            (
                "-10000-0 -3660000 -87840000:0:0",
                "-10000-0 -3660000 -87840000:0:0",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Some(canonical), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "1",
            "1-2",
            "1-2 3",
            "1-2 3 4",
            "1-2 3 4:5",
            "1-2 3 4:5:6 7",
            "1-2  3 4:5:6",
            "1-2 3 4:5:6.",
            "1-2 3 4:5:6.1234567",
            "1-2 3 4:5.5:6",
            "1--2 3 4:5:6",
            "1-2 3 4:-5:6",
            "--1-2 3 4:5:6",
            "-1-2 x 4:5:6",
            "1-2 3 4:5:6:7",
            "10000-1 0 0:0:0",
            "0-0 3660001 0:0:0",
            "0-0 0 87840000:0:0.000001",
            "0-0 0 -87840000:0:1",
            "99999999999999999999-0 0 0:0:0",
            "0-0 0 9223372036854775807:0:0",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_literal_has_the_parts_it_says() {
        use Part::{Day, Hour, Minute, Month, Second, Year};
        for (text, from, to, canonical) in [
            ("2-11", Year, Month, "2-11 0 0:0:0"),
            ("2-11 28 16:15", Year, Minute, "2-11 28 16:15:0"),
            ("8 -20 17", Month, Hour, "0-8 -20 17:0:0"),
            ("-2 10 0:30", Month, Minute, "-0-2 10 0:30:0"),
            ("1 -15", Month, Day, "0-1 -15 0:0:0"),
            ("28 16:15:14", Day, Second, "0-0 28 16:15:14"),
            ("10:20:30.52", Hour, Second, "0-0 0 10:20:30.520"),
            ("-30:10", Minute, Second, "0-0 0 -0:30:10"),
            ("3", Year, Year, "3-0 0 0:0:0"),
            ("-1.5", Second, Second, "0-0 0 -0:0:1.500"),
        ] {
            let value = Interval::parse_parts(text, from, to).map(|value| value.to_string());
            assert_eq!(value.as_deref(), Some(canonical), "{text}");
        }
        assert_eq!(Interval::parse_parts("0:-30", Hour, Minute), None);
        assert_eq!(Interval::parse_parts("1-2", Month, Day), None);
    }

    #[test]
    fn iso_8601_is_read_too() {
        let read = |text| Interval::parse_iso(text).map(|value| value.to_string());
        for (text, canonical) in [
            ("P1Y2M3DT4H5M6.7S", "1-2 3 4:5:6.700"),
            (
                "P-10000Y0M-3660000DT-87840000H0M0S",
                "-10000-0 -3660000 -87840000:0:0",
            ),
            ("P0Y0M0DT0H0M0.000001S", "0-0 0 0:0:0.000001"),
            ("P0Y0M0DT0H0M-0.5S", "0-0 0 -0:0:0.500"),
            ("P5DT", "0-0 5 0:0:0"),
            ("PT-90M", "0-0 0 -1:30:0"),
            ("P1Y-1MT1H-1M", "0-11 0 0:59:0"),
        ] {
            assert_eq!(read(text).as_deref(), Some(canonical), "{text}");
        }
        for text in [
            "",
            "P",
            "P1Y",
            "1Y2M",
            "P1WT",
            "P1D2MT",
            "PT1H2",
            "P1.5YT",
            "PT1.1234567S",
            "P10001YT",
            "PT1S1H",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn arrays_keep_values_and_nulls() {
        let values = [
            Interval::new(-1, 2, -3),
            None,
            Interval::new(120_000, -3_660_000, 316_224_000_000_000_000),
        ];
        let array = array(values);
        assert_eq!(*array.data_type(), data_type());
        assert!(matches!(array.data_type(), DataType::Struct(fields) if is(fields)));
        let back = (0..3).map(|row| array.is_valid(row).then(|| at(&array, row)));
        assert_eq!(back.collect::<Vec<_>>(), values);
    }
}
