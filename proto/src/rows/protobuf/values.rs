//! Values whose form on the wire is BigQuery's own: packed civil times, bytes of decimals, literals.

use std::io::Write as _;

use arrow_array::types::IntervalMonthDayNano;
use arrow_buffer::i256;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Length of a TIMESTAMP(12)'s literal, `2016-12-03T14:11:27.123456789012Z`.
pub(super) const PICOSECONDS: usize = 33;

/// No INTERVAL's literal is longer.
pub(super) const INTERVAL: usize = 64;

/// A time of day in microseconds as packed TIME (write-api.md 5.2).
#[inline]
pub(super) fn time(micros: i64) -> u64 {
    let (seconds, micros) = (micros / SECOND, micros % SECOND);
    let packed = ((seconds / 3_600) << 12) | ((seconds / 60 % 60) << 6) | (seconds % 60);
    ((packed << 20) | micros) as u64
}

/// Microseconds since 1970 as packed DATETIME (write-api.md 5.2), from year 1 to year 9999.
#[inline]
pub(super) fn datetime(micros: i64) -> u64 {
    let (year, month, day) = date(micros.div_euclid(DAY));
    let packed = (year as u64) << 26 | u64::from(month) << 22 | u64::from(day) << 17;
    packed << 20 | time(micros.rem_euclid(DAY))
}

/// Year, month and day of days since 1970, in the proleptic Gregorian calendar: counted in eras of 400 years that begin in March,
/// so that the leap day is a year's last.
#[inline]
fn date(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097) as u32);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = i64::from(year_of_era) + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// How many of an unscaled decimal's bytes, little endian in two's complement, tell it (write-api.md 5.3).
#[inline]
pub(super) fn numeric_len(value: i128) -> usize {
    let bits = 128 - (value ^ (value >> 127)).leading_zeros();
    (bits / 8 + 1) as usize
}

/// The same in 256 bits.
#[inline]
pub(super) fn bignumeric_len(value: i256) -> usize {
    let (low, high) = value.to_parts();
    let low = low as i128;
    if high == low >> 127 {
        numeric_len(low)
    } else {
        16 + numeric_len(high)
    }
}

/// A BIGNUMERIC of scale 37 at its own, 38. Conversion has seen to it that 256 bits hold it; what is null may be anything.
#[inline]
pub(super) fn tenfold(value: i256) -> i256 {
    value.wrapping_mul(i256::from_i128(10))
}

/// An instant since 1970, in units of which `second` are one, as text with twelve digits behind the second (write-api.md 5.1).
pub(super) fn picoseconds(instant: i64, second: i64) -> [u8; PICOSECONDS] {
    let seconds = instant.div_euclid(second);
    let nanos = instant.rem_euclid(second) * (1_000_000_000 / second);
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let mut text = *b"0000-00-00T00:00:00.000000000000Z";
    let parts = [
        (0, 4, year),
        (5, 2, i64::from(month)),
        (8, 2, i64::from(day)),
        (11, 2, of_day / 3_600),
        (14, 2, of_day / 60 % 60),
        (17, 2, of_day % 60),
        (20, 9, nanos),
    ];
    for (at, len, mut number) in parts {
        for digit in text.iter_mut().skip(at).take(len).rev() {
            // What is null may be anything, a year before 0 too.
            *digit = b'0' + number.rem_euclid(10) as u8;
            number /= 10;
        }
    }
    text
}

/// An INTERVAL in BigQuery's canonical format, `[sign]Y-M [sign]D [sign]H:M:S[.F]`, and its length.
pub(super) fn interval(value: IntervalMonthDayNano) -> ([u8; INTERVAL], usize) {
    let sign = |negative: bool| if negative { "-" } else { "" };
    let (months, days) = (value.months.unsigned_abs(), value.days);
    let nanos = value.nanoseconds.unsigned_abs();
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut text = [0; INTERVAL];
    let mut rest = text.as_mut_slice();
    let (years, months, time_sign) = (months / 12, months % 12, sign(value.nanoseconds < 0));
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let written = write!(
        rest,
        "{}{years}-{months} {days} {time_sign}{hours}:{minutes}:{seconds}",
        sign(value.months < 0)
    )
    .and_then(|()| match nanos {
        0 => Ok(()),
        _ if nanos % 1_000 == 0 => write!(rest, ".{:06}", nanos / 1_000),
        _ => write!(rest, ".{nanos:09}"),
    });
    written.expect("the longest has 52 bytes");
    let len = INTERVAL - rest.len();
    (text, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_END: i64 = DAY - 1;

    #[test]
    fn times_are_packed_from_the_hour_down() {
        // The vectors of write-api.md 5.2.
        assert_eq!(time(DAY_END), 102_806_536_767);
        assert_eq!(time(45_296_789_000), 53_880_818_184);
        assert_eq!(time(0), 0);
        assert_eq!(time(1), 1);
        assert_eq!(time(SECOND), 1 << 20);
    }

    #[test]
    fn datetimes_are_packed_from_the_year_down() {
        // The vectors of write-api.md 5.2.
        assert_eq!(datetime(1_480_774_287_123_456), 141_916_638_033_338_944);
        assert_eq!(datetime(-62_135_596_800_000_000), 74_904_229_642_240);
        assert_eq!(datetime(253_402_300_799_999_999), 703_674_213_004_689_983);
        // Fields from the top: 14 bits of year, 4, 5, 5, 6, 6, 20. 1969-12-31T23:59:59.999999, and the leap days.
        let packed = |parts: [u64; 7]| {
            let widths = [4, 5, 5, 6, 6, 20];
            parts[1..]
                .iter()
                .zip(widths)
                .fold(parts[0], |packed, (part, width)| packed << width | part)
        };
        assert_eq!(datetime(-1), packed([1969, 12, 31, 23, 59, 59, 999_999]));
        assert_eq!(datetime(0), packed([1970, 1, 1, 0, 0, 0, 0]));
        assert_eq!(datetime(951_782_400 * SECOND), packed([2000, 2, 29, 0, 0, 0, 0]));
        assert_eq!(datetime(951_868_800 * SECOND), packed([2000, 3, 1, 0, 0, 0, 0]));
        assert_eq!(
            datetime(-2_203_891_201 * SECOND),
            packed([1900, 2, 28, 23, 59, 59, 0])
        );
        assert_eq!(
            datetime(-2_203_891_200 * SECOND),
            packed([1900, 3, 1, 0, 0, 0, 0])
        );
    }

    #[test]
    fn every_day_of_two_eras_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1_i64, 1_u32, 1_u32);
        for days in -719_162..-719_162 + 2 * 146_097 {
            assert_eq!(date(days), (year, month, day), "{days}");
            let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            let last = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                (_, day) => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn decimals_take_the_fewest_bytes_that_keep_their_sign() {
        for (value, len) in [
            (0, 1),
            (1, 1),
            (-1, 1),
            (127, 1),
            (128, 2),
            (-128, 1),
            (-129, 2),
            (32_767, 2),
            (32_768, 3),
            (1_000_000_000, 4),
            (-1_000_000_000, 4),
            (i128::MAX, 16),
            (i128::MIN, 16),
            (i128::MAX >> 1, 16),
            (i128::MAX >> 8, 15),
        ] {
            assert_eq!(numeric_len(value), len, "{value}");
            assert_eq!(bignumeric_len(i256::from_i128(value)), len, "{value}");
        }
        let one = i256::from_i128(1);
        for (value, len) in [
            (i256::from_parts(1 << 127, 0), 17),
            (i256::from_parts(u128::MAX, 0), 17),
            (i256::from_parts(0, -1), 17),
            (i256::from_parts(1 << 127, -1), 16),
            (i256::from_parts((1 << 127) - 1, -1), 17),
            (i256::MAX, 32),
            (i256::MIN, 32),
            (i256::MIN.wrapping_add(one), 32),
        ] {
            assert_eq!(bignumeric_len(value), len, "{value}");
        }
    }

    #[test]
    fn literals_are_written_in_full() {
        let text = |nanos| String::from_utf8(picoseconds(nanos, 1_000_000_000).to_vec()).unwrap();
        assert_eq!(text(0), "1970-01-01T00:00:00.000000000000Z");
        assert_eq!(
            text(1_480_774_287_123_456_789),
            "2016-12-03T14:11:27.123456789000Z"
        );
        assert_eq!(text(-1), "1969-12-31T23:59:59.999999999000Z");
        assert_eq!(text(i64::MIN), "1677-09-21T00:12:43.145224192000Z");
        assert_eq!(text(i64::MAX), "2262-04-11T23:47:16.854775807000Z");

        let text = |micros| String::from_utf8(picoseconds(micros, 1_000_000).to_vec()).unwrap();
        assert_eq!(text(-62_135_596_800_000_000), "0001-01-01T00:00:00.000000000000Z");
        assert_eq!(text(253_402_300_799_999_999), "9999-12-31T23:59:59.999999000000Z");

        let text = |months, days, nanos| {
            let (text, len) = interval(IntervalMonthDayNano::new(months, days, nanos));
            String::from_utf8(text[..len].to_vec()).unwrap()
        };
        assert_eq!(text(0, 0, 0), "0-0 0 0:0:0");
        assert_eq!(text(14, -3, 3_723_000_000_000), "1-2 -3 1:2:3");
        assert_eq!(text(-14, 3, -500_000_000), "-1-2 3 -0:0:0.500000");
        assert_eq!(text(-1, 0, 1_000), "-0-1 0 0:0:0.000001");
        assert_eq!(
            text(i32::MIN, i32::MIN, i64::MIN),
            "-178956970-8 -2147483648 -2562047:47:16.854775808"
        );
    }
}
