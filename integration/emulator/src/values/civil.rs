//! DATE, TIME, DATETIME and TIMESTAMP as text: BigQuery's canonical formats, read.

use arrow_array::timezone::Tz;
use chrono::{
    DateTime, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Offset as _, TimeDelta, TimeZone as _,
};

/// A point on a clock: the start of the day, or 1970-01-01, is zero. It is finer than any type but TIMESTAMP(12), so
/// that who asked decides what becomes of the digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    seconds: i64,
    /// 0 to 10^12 - 1.
    picos: i64,
}

const PICOS_IN_MICRO: i64 = 1_000_000;

impl Reading {
    /// In microseconds; what is finer is cut off.
    pub(crate) fn micros(self) -> i64 {
        self.seconds * 1_000_000 + self.picos / PICOS_IN_MICRO
    }

    /// In microseconds; `None` if it is finer.
    pub(crate) fn exact_micros(self) -> Option<i64> {
        (self.picos % PICOS_IN_MICRO == 0).then(|| self.micros())
    }

    /// In picoseconds.
    pub(crate) fn picoseconds(self) -> i128 {
        i128::from(self.seconds) * super::picoseconds::SECOND + i128::from(self.picos)
    }
}

/// What a format lets pass.
#[derive(Clone, Copy)]
struct Rules {
    /// Slashes in dates, times without seconds, a space before an offset.
    loose: bool,
    /// 60 where leap seconds are read.
    last_second: i64,
}

const STRICT: Rules = Rules {
    loose: false,
    last_second: 60,
};

/// Reads `YYYY-[M]M-[D]D`, as days since 1970-01-01.
pub(crate) fn date(text: &str) -> Option<i32> {
    let (date, rest) = split_date(text, STRICT)?;
    let days = (date - NaiveDate::default()).num_days();
    i32::try_from(days).ok().filter(|_| rest.is_empty())
}

/// Reads `[H]H:[M]M:[S]S[.F]`.
pub(crate) fn time(text: &str) -> Option<Reading> {
    let rules = Rules {
        last_second: 59,
        ..STRICT
    };
    let (clock, rest) = split_clock(text, rules)?;
    rest.is_empty().then_some(clock)
}

/// Reads `YYYY-[M]M-[D]D[{ |T|t}[H]H:[M]M:[S]S[.F]]`.
pub(crate) fn datetime(text: &str) -> Option<Reading> {
    let (local, picos, rest) = split_datetime(text, STRICT)?;
    reading(local, picos).filter(|_| rest.is_empty())
}

/// Reads a DATETIME with a zone behind it: `Z`, an offset `{+|-}H[H][:M[M]]`, or a space and a name. UTC without.
pub(crate) fn timestamp(text: &str) -> Option<Reading> {
    instant(text, STRICT)
}

/// As [`timestamp`], and as rows of JSON may have it: `YYYY/MM/DD`, no seconds, a space before the offset.
pub(crate) fn timestamp_loose(text: &str) -> Option<Reading> {
    instant(
        text,
        Rules {
            loose: true,
            ..STRICT
        },
    )
}

fn instant(text: &str, rules: Rules) -> Option<Reading> {
    let (local, picos, rest) = split_datetime(text, rules)?;
    let utc = match rest {
        "" | "Z" | "z" => local,
        _ => match rest.strip_prefix(' ') {
            Some(name) if rules.loose || !name.starts_with(['+', '-']) => to_utc(local, zone(name)?)?,
            Some(_) => return None,
            None => local.checked_sub_signed(TimeDelta::seconds(offset(rest)?))?,
        },
    };
    reading(utc, picos)
}

/// A time zone by the name of the tz database, or by its offset.
pub(crate) fn zone(name: &str) -> Option<Tz> {
    if name.starts_with(['+', '-']) {
        let seconds = offset(name)?;
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.abs() / 60;
        return format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            .parse()
            .ok();
    }
    name.parse().ok()
}

/// The civil time in a zone, as microseconds since 1970-01-01 there.
pub(crate) fn local_micros(utc_micros: i64, zone: Tz) -> Option<i64> {
    let utc = DateTime::from_timestamp_micros(utc_micros)?.naive_utc();
    let offset = zone.offset_from_utc_datetime(&utc).fix().local_minus_utc();
    utc_micros.checked_add(i64::from(offset) * 1_000_000)
}

fn reading(when: NaiveDateTime, picos: i64) -> Option<Reading> {
    let years = NaiveDate::from_ymd_opt(1, 1, 1)?..=NaiveDate::from_ymd_opt(9999, 12, 31)?;
    let seconds = when.and_utc().timestamp();
    years.contains(&when.date()).then_some(Reading { seconds, picos })
}

/// The earlier of two times where clocks are set back; where they are set forward, as if they were not yet.
fn to_utc(local: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    let offset = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => offset,
        LocalResult::None => {
            let before = local.checked_sub_signed(TimeDelta::days(1))?;
            zone.offset_from_local_datetime(&before).earliest()?
        }
    };
    local.checked_sub_signed(TimeDelta::seconds(offset.fix().local_minus_utc().into()))
}

/// `{+|-}H[H][:M[M]]` in seconds.
fn offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = digits(&text[1..], 1, 2)?;
    let minutes = match rest.strip_prefix(':') {
        Some(rest) => digits(rest, 1, 2).filter(|(_, rest)| rest.is_empty())?.0,
        None => 0,
    };
    let good = (rest.is_empty() || rest.starts_with(':')) && minutes < 60 && hours * 60 + minutes <= 14 * 60;
    good.then_some(sign * (hours * 3_600 + minutes * 60))
}

fn split_datetime(text: &str, rules: Rules) -> Option<(NaiveDateTime, i64, &str)> {
    let (date, rest) = split_date(text, rules)?;
    let midnight = date.and_time(NaiveTime::MIN);
    let behind = rest.strip_prefix([' ', 'T', 't']);
    // Behind a space may come the name of a zone.
    match behind.filter(|behind| behind.starts_with(|c: char| c.is_ascii_digit())) {
        Some(behind) => {
            let (clock, rest) = split_clock(behind, rules)?;
            let when = midnight.checked_add_signed(TimeDelta::try_seconds(clock.seconds)?)?;
            Some((when, clock.picos, rest))
        }
        None => Some((midnight, 0, rest)),
    }
}

fn split_date(text: &str, rules: Rules) -> Option<(NaiveDate, &str)> {
    let (year, rest) = digits(text, 4, 4)?;
    let between = if rules.loose && rest.starts_with('/') {
        '/'
    } else {
        '-'
    };
    let (month, rest) = digits(rest.strip_prefix(between)?, 1, 2)?;
    let (day, rest) = digits(rest.strip_prefix(between)?, 1, 2)?;
    let part = |value| u32::try_from(value).ok();
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, part(month)?, part(day)?)?;
    (year > 0).then_some((date, rest))
}

fn split_clock(text: &str, rules: Rules) -> Option<(Reading, &str)> {
    let (hours, rest) = digits(text, 1, 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 1, 2)?;
    let (seconds, rest) = match rest.strip_prefix(':') {
        None if rules.loose => (0, rest),
        behind => digits(behind?, 1, 2)?,
    };
    let (picos, rest) = match rest.strip_prefix('.') {
        Some(rest) => fraction(rest)?,
        None => (0, rest),
    };
    let clock = Reading {
        seconds: hours * 3_600 + minutes * 60 + seconds,
        // A leap second is the next one's start.
        picos: if seconds == 60 { 0 } else { picos },
    };
    (hours < 24 && minutes < 60 && seconds <= rules.last_second).then_some((clock, rest))
}

/// One to twelve digits, as picoseconds.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let (value, rest) = digits(text, 1, 12)?;
    let length = text.len() - rest.len();
    Some((value * 10_i64.pow(12 - u32::try_from(length).ok()?), rest))
}

/// All digits at the start of a text, if there are as many as said.
fn digits(text: &str, least: usize, most: usize) -> Option<(i64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(length);
    let good = (least..=most).contains(&length);
    Some((number.parse().ok().filter(|_| good)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        timestamp(text)?.exact_micros()
    }

    #[test]
    fn dates_and_times_are_read() {
        assert_eq!(date("1970-01-02"), Some(1));
        assert_eq!(date("2014-9-7"), Some(16_320));
        assert_eq!(date("0001-01-01"), Some(-719_162));
        assert_eq!(date("9999-12-31"), Some(2_932_896));
        for bad in [
            "",
            "2014-09",
            "0000-01-01",
            "10000-01-01",
            "2023-02-29",
            "2014-09-27 ",
            "2014/09/27",
            "14-09-27",
        ] {
            assert_eq!(date(bad), None, "{bad}");
        }
        let micros = |text| time(text).and_then(Reading::exact_micros);
        assert_eq!(micros("12:34:56.5"), Some(45_296_500_000));
        assert_eq!(micros("1:2:3"), Some(3_723_000_000));
        assert_eq!(micros("23:59:59.999999"), Some(86_399_999_999));
        for bad in [
            "",
            "24:00:00",
            "12:60:00",
            "12:00:61",
            "23:59:60",
            "12:00",
            "12:00:00.",
            "12:00:00Z",
            "123:00:00",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
        assert_eq!(micros("00:00:00.0000001"), None);
        assert_eq!(time("00:00:00.0000019").map(Reading::micros), Some(1));
    }

    #[test]
    fn datetimes_have_no_zone_and_timestamps_may() {
        let at = |text| datetime(text).and_then(Reading::exact_micros);
        assert_eq!(at("1970-01-02"), Some(86_400_000_000));
        assert_eq!(at("1970-01-01T00:00:01.5"), Some(1_500_000));
        assert_eq!(at("1970-01-01t0:0:1"), Some(1_000_000));
        assert_eq!(at("1969-12-31 23:59:59.9"), Some(-100_000));
        for bad in [
            "1970-01-01T",
            "1970-01-01  00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-01-01 UTC",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
        for (text, want) in [
            ("2014-09-27 12:30:00.45", 1_411_821_000_450_000),
            ("2014-09-27T12:30:00.45Z", 1_411_821_000_450_000),
            ("2014-09-27 12:30:00.45 UTC", 1_411_821_000_450_000),
            ("2014-09-27 12:30:00.45-8:00", 1_411_849_800_450_000),
            ("2014-09-27 12:30:00.45+07:30", 1_411_794_000_450_000),
            ("2014-09-27 12:30:00.45-7", 1_411_846_200_450_000),
            ("2008-12-25 15:30:00 America/Los_Angeles", 1_230_247_800_000_000),
            ("2008-12-25 15:30:00-08:00", 1_230_247_800_000_000),
            ("2008-12-25 America/Los_Angeles", 1_230_192_000_000_000),
            ("2008-12-25", 1_230_163_200_000_000),
            // The documentation's examples: an hour that is skipped, and one that is repeated.
            ("2024-03-10 02:30:00 America/Los_Angeles", 1_710_066_600_000_000),
            ("2024-03-10 03:30:00 America/Los_Angeles", 1_710_066_600_000_000),
            ("2024-11-03 01:30:00 America/Los_Angeles", 1_730_622_600_000_000),
            ("2016-12-31 23:59:60.9", 1_483_228_800_000_000),
            ("0001-01-01 00:00:00", -62_135_596_800_000_000),
            ("9999-12-31 23:59:59.999999", 253_402_300_799_999_999),
        ] {
            assert_eq!(micros(text), Some(want), "{text}");
        }
        for bad in [
            "0001-01-01 00:00:00+01",
            "9999-12-31 23:59:59-01:00",
            "2014-09-27 12:30:00 Mars/Base",
            "2014-09-27 12:30:00+15",
            "2014-09-27 12:30:00+1:60",
            "2014-09-27 12:30:00X",
            "2014-09-27 12:30:00.1234567890123",
            "2014-09-27 12:30",
        ] {
            assert_eq!(timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn picoseconds_are_kept_for_who_wants_them() {
        let at = timestamp("2025-01-01T12:34:56.123456789123Z").unwrap();
        assert_eq!(at.picoseconds(), 1_735_734_896_123_456_789_123);
        assert_eq!((at.micros(), at.exact_micros()), (1_735_734_896_123_456, None));
        let before = timestamp("1969-12-31 23:59:59.999999999999").unwrap();
        assert_eq!((before.picoseconds(), before.micros()), (-1, -1));
    }

    #[test]
    fn a_clock_elsewhere_shows_another_time() {
        let at = |name| local_micros(1_710_066_600_000_000, zone(name).unwrap()).unwrap();
        assert_eq!(
            at("America/Los_Angeles"),
            1_710_066_600_000_000 - 7 * 3_600_000_000
        );
        assert_eq!(at("+5:30"), 1_710_066_600_000_000 + 19_800_000_000);
        assert!(zone("Mars/Base").is_none());
    }
}
