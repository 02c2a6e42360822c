//! What a value must be to stand in a column: one set of checks for each BigQuery type, whatever format it came in.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use arrow_buffer::i256;

use crate::machine::{Behaviour, Switches};
use crate::values::interval::Interval;
use crate::values::literal::{self, ten};
use crate::values::picoseconds;

/// 0001-01-01 and 9999-12-31, in days since 1970 (write-api.md 5.1).
const DATES: RangeInclusive<i64> = -719_162..=2_932_896;
/// 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999, in µs since 1970.
const INSTANTS: RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;
const DAY_US: i64 = 86_400_000_000;
/// NUMERIC is ±(10^29 - 10^-9): 38 nines at scale 9.
const NUMERIC_MAX: u128 = 10_u128.pow(38) - 1;

/// Why a value cannot stand in its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    text: Cow<'static, str>,
    /// The text begins with the field's name too.
    named_first: bool,
}

impl Bad {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            named_first: false,
        }
    }

    /// A REQUIRED column without a value, or a REPEATED one's element.
    pub(crate) fn null() -> Self {
        Self::new("NULL value is not allowed")
    }

    /// Without a field's name.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The whole text, in Google's words (JIT testRowErrors).
    pub(crate) fn on(&self, field: &str) -> String {
        let text = &self.text;
        if self.named_first {
            format!("Field {field}: {text} on field {field}.")
        } else {
            format!("{text} on field {field}.")
        }
    }
}

/// The checks in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    ranges: bool,
    lengths: bool,
    texts: bool,
    lists: bool,
    unbounded: bool,
    civil: bool,
    /// NUMERIC's bytes begin with the lowest.
    pub(super) little_endian: bool,
    /// An enum goes into a STRING by name.
    pub(super) enum_names: bool,
}

impl Checks {
    /// All of them.
    pub(crate) const ALL: Self = Self {
        ranges: true,
        lengths: true,
        texts: true,
        lists: true,
        unbounded: true,
        civil: true,
        little_endian: true,
        enum_names: true,
    };

    pub(crate) fn of(switches: &Switches) -> Self {
        Self {
            ranges: switches.keeps(Behaviour::RangesChecked),
            lengths: switches.keeps(Behaviour::LengthsChecked),
            texts: switches.keeps(Behaviour::JsonAndGeographyChecked),
            lists: switches.keeps(Behaviour::NullListsRefused),
            unbounded: switches.keeps(Behaviour::NullBoundsUnbounded),
            civil: switches.keeps(Behaviour::PackedPartsChecked),
            little_endian: switches.keeps(Behaviour::NumericBytesLittleEndian),
            enum_names: switches.enum_name_into_string,
        }
    }

    /// Days since 1970.
    pub(crate) fn date(self, days: i64) -> Result<i32, Bad> {
        let good = DATES.contains(&days) || !self.ranges;
        let days32 = i32::try_from(days).ok().filter(|_| good);
        days32.ok_or_else(|| Bad::new(format!("Date field value is out of range: {days}")))
    }

    /// A DATE's literal.
    pub(crate) fn date_text(self, text: &str) -> Result<i32, Bad> {
        let days = literal::date(text).ok_or_else(|| Bad::new("Invalid date"))?;
        self.date(days)
    }

    /// µs since midnight.
    pub(crate) fn time(self, micros: i64) -> Result<i64, Bad> {
        self.in_range(micros, 0..=DAY_US - 1, "Time")
    }

    /// µs since 1970.
    pub(crate) fn datetime(self, micros: i64) -> Result<i64, Bad> {
        self.in_range(micros, INSTANTS, "Datetime")
    }

    /// µs since 1970 in UTC.
    pub(crate) fn timestamp(self, micros: i64) -> Result<i64, Bad> {
        self.in_range(micros, INSTANTS, "Timestamp")
    }

    /// A packed civil time that has been taken apart; `None` if a part is out of range (write-api.md 5.2).
    pub(crate) fn parts(self, micros: Option<i64>, packed: i64, what: &str) -> Result<i64, Bad> {
        let micros = micros.or_else(|| (!self.civil).then_some(0));
        micros.ok_or_else(|| Bad::new(format!("{what} field value is out of range: {packed}")))
    }

    /// A TIME's literal.
    pub(crate) fn time_text(self, text: &str) -> Result<i64, Bad> {
        let micros = literal::time(text).ok_or_else(|| Bad::new("Invalid time"))?;
        self.time(micros)
    }

    /// A DATETIME's literal.
    pub(crate) fn datetime_text(self, text: &str) -> Result<i64, Bad> {
        let micros = literal::datetime(text).ok_or_else(|| Bad::new("Invalid datetime"))?;
        self.datetime(micros)
    }

    /// A TIMESTAMP's literal.
    pub(crate) fn timestamp_text(self, text: &str) -> Result<i64, Bad> {
        let micros = literal::timestamp(text).ok_or_else(|| Bad::new("Invalid timestamp"))?;
        self.timestamp(micros)
    }

    /// Picoseconds since 1970 in UTC.
    pub(crate) fn picoseconds(self, picos: i128) -> Result<i128, Bad> {
        let micros = picos.div_euclid(picoseconds::MICROSECOND);
        let good = i64::try_from(micros).is_ok_and(|micros| INSTANTS.contains(&micros)) || !self.ranges;
        good.then_some(picos)
            .ok_or_else(|| Bad::new(format!("Timestamp field value is out of range: {micros}")))
    }

    /// A TIMESTAMP(12)'s literal.
    pub(crate) fn picoseconds_text(self, text: &str) -> Result<i128, Bad> {
        let picos = literal::picoseconds(text).ok_or_else(|| Bad::new("Invalid timestamp"))?;
        self.picoseconds(picos)
    }

    /// The parts of an INTERVAL.
    pub(crate) fn interval(self, months: i64, days: i64, micros: i64) -> Result<Interval, Bad> {
        Interval::new(months, days, micros).ok_or_else(|| Bad::new("Interval field value is out of range"))
    }

    /// An INTERVAL's canonical text.
    pub(crate) fn interval_text(self, text: &str) -> Result<Interval, Bad> {
        Interval::parse(text).ok_or_else(|| Bad::new("Invalid interval"))
    }

    /// The bounds of a RANGE; `None` is unbounded.
    pub(crate) fn range(self, start: Option<i64>, end: Option<i64>) -> Result<(), Bad> {
        let (Some(start), Some(end)) = (start, end) else {
            return if self.unbounded { Ok(()) } else { Err(Bad::null()) };
        };
        let good = start < end || !self.ranges;
        good.then_some(())
            .ok_or_else(|| Bad::new("Range start element must be smaller than range end element"))
    }

    /// A REPEATED column's list that is NULL.
    pub(crate) fn null_list(self) -> Result<(), Bad> {
        let text = "REPEATED field cannot be NULL, an empty list is needed";
        if self.lists { Err(Bad::new(text)) } else { Ok(()) }
    }

    /// A STRING(max), counted in code points.
    pub(crate) fn string(self, max: Option<i64>, text: &str) -> Result<(), Bad> {
        // No text has more characters than bytes.
        let short = max.is_some_and(|max| i64::try_from(text.len()).is_ok_and(|length| length <= max));
        if short {
            return Ok(());
        }
        self.length("STRING", max, || text.chars().count())
    }

    /// A BYTES(max).
    pub(crate) fn bytes(self, max: Option<i64>, bytes: &[u8]) -> Result<(), Bad> {
        self.length("BYTES", max, || bytes.len())
    }

    /// One JSON value.
    pub(crate) fn json(self, text: &str) -> Result<(), Bad> {
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(text);
        let good = (parsed.is_ok() && is_unicode(text)) || !self.texts;
        good.then_some(()).ok_or_else(|| Bad::new("Invalid JSON"))
    }

    /// WKT or GeoJSON, checked coarsely: the emulator keeps the text and knows no geometry.
    pub(crate) fn geography(self, text: &str) -> Result<(), Bad> {
        const SHAPES: [&str; 8] = [
            "POINT",
            "LINESTRING",
            "POLYGON",
            "MULTIPOINT",
            "MULTILINESTRING",
            "MULTIPOLYGON",
            "GEOMETRYCOLLECTION",
            "FULLGLOBE",
        ];
        let text = text.trim_start();
        let word = text
            .split(|c: char| !c.is_ascii_alphabetic())
            .next()
            .unwrap_or_default();
        let geo_json = || {
            let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
            value.is_some_and(|value| value.get("type").is_some_and(serde_json::Value::is_string))
        };
        let shape = SHAPES.iter().any(|shape| shape.eq_ignore_ascii_case(word));
        let good = shape || geo_json() || !self.texts;
        good.then_some(()).ok_or_else(|| Bad::new("Invalid geography"))
    }

    /// What a NUMERIC(precision, scale) takes.
    pub(crate) fn numeric(self, precision: Option<u8>, scale: Option<u8>) -> Numeric {
        // NUMERIC(P, S) has P - S integer digits; without parameters 29.
        let max = precision.map_or(NUMERIC_MAX, |precision| {
            let digits = precision.saturating_sub(scale.unwrap_or(0)).min(29);
            10_u128.pow(u32::from(digits) + 9) - 1
        });
        Numeric {
            step: 10_i128.pow(u32::from(9 - places(precision, scale, 9))),
            max: if self.ranges { max } else { u128::MAX },
        }
    }

    /// What a BIGNUMERIC(precision, scale) takes.
    pub(crate) fn big_numeric(self, precision: Option<u8>, scale: Option<u8>) -> BigNumeric {
        // BIGNUMERIC's whole range is that of 256 bits at scale 38 (write-api.md 5.3).
        let limit = precision
            .map(|precision| precision.saturating_sub(scale.unwrap_or(0)).min(38))
            .filter(|_| self.ranges)
            .map(|digits| ten(u32::from(digits) + 38));
        BigNumeric {
            step: ten(u32::from(38 - places(precision, scale, 38))),
            limit,
        }
    }

    fn in_range(self, value: i64, range: RangeInclusive<i64>, what: &str) -> Result<i64, Bad> {
        let good = range.contains(&value) || !self.ranges;
        good.then_some(value)
            .ok_or_else(|| Bad::new(format!("{what} field value is out of range: {value}")))
    }

    fn length(self, kind: &str, max: Option<i64>, length: impl Fn() -> usize) -> Result<(), Bad> {
        let Some(max) = max.filter(|_| self.lengths) else {
            return Ok(());
        };
        let length = length();
        if i64::try_from(length).is_ok_and(|length| length <= max) {
            return Ok(());
        }
        let text = format!("{kind}({max}) has maximum length {max} but got a value with length {length}");
        Err(Bad {
            text: text.into(),
            named_first: true,
        })
    }
}

/// Whether the escapes of a JSON text make whole characters: as UTF-16, with each escape one unit of it.
fn is_unicode(json: &str) -> bool {
    if !json.contains("\\u") {
        return true;
    }
    let mut units = Vec::with_capacity(json.len());
    let mut chars = json.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            units.extend_from_slice(next.encode_utf16(&mut [0; 2]));
        } else if chars.next() == Some('u') {
            let digits: String = chars.by_ref().take(4).collect();
            units.push(u16::from_str_radix(&digits, 16).unwrap_or_default());
        }
    }
    char::decode_utf16(units).all(|unit| unit.is_ok())
}

/// Fraction digits: with a precision alone there are none.
fn places(precision: Option<u8>, scale: Option<u8>, most: u8) -> u8 {
    let without = if precision.is_some() { 0 } else { most };
    scale.unwrap_or(without).min(most)
}

/// Rounds into a NUMERIC(precision, scale) and bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numeric {
    step: i128,
    max: u128,
}

impl Numeric {
    /// A value at scale 9; `None` is one beyond 128 bits.
    pub(crate) fn take(&self, value: Option<i128>) -> Result<i128, Bad> {
        value
            .map(|value| self.round(value))
            .filter(|value| value.unsigned_abs() <= self.max)
            .ok_or_else(|| Bad::new("Invalid NUMERIC value: out of range"))
    }

    /// Half away from zero, as BigQuery rounds into NUMERIC(P, S). UNCONFIRMED for the Write API.
    fn round(&self, value: i128) -> i128 {
        let step = self.step;
        if step == 1 {
            return value;
        }
        let rest = value % step;
        let down = value - rest;
        if rest.unsigned_abs() * 2 >= step.unsigned_abs() {
            down.saturating_add(step * rest.signum())
        } else {
            down
        }
    }
}

/// Rounds into a BIGNUMERIC(precision, scale) and bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BigNumeric {
    step: i256,
    /// The least magnitude that is too large; `None` for all that 256 bits hold.
    limit: Option<i256>,
}

impl BigNumeric {
    /// A value at scale 38; `None` is one beyond 256 bits.
    pub(crate) fn take(&self, value: Option<i256>) -> Result<i256, Bad> {
        let within = |value: &i256| {
            self.limit
                .is_none_or(|limit| *value < limit && limit.checked_neg().is_some_and(|least| *value > least))
        };
        value
            .and_then(|value| self.round(value))
            .filter(within)
            .ok_or_else(|| Bad::new("Invalid BIGNUMERIC value: out of range"))
    }

    fn round(&self, value: i256) -> Option<i256> {
        let step = self.step;
        if step == i256::ONE {
            return Some(value);
        }
        let rest = value.checked_rem(step)?;
        let down = value.checked_sub(rest)?;
        let twice = rest.checked_mul(i256::from_i128(2))?;
        if twice >= step {
            down.checked_add(step)
        } else if twice <= step.checked_neg()? {
            down.checked_sub(step)
        } else {
            Some(down)
        }
    }
}
