//! BigQuery's literals of dates, times and decimals, as rows carry them in strings.

use arrow_buffer::i256;

use super::civil::{self, Reading};

/// `YYYY-[M]M-[D]D` as days since 1970.
pub(crate) fn date(text: &str) -> Option<i64> {
    civil::date(text).map(i64::from)
}

/// `[H]H:[M]M:[S]S[.fraction]` as µs since midnight.
pub(crate) fn time(text: &str) -> Option<i64> {
    civil::time(text).and_then(Reading::exact_micros)
}

/// A date, and after `T` or a space a time, as µs since 1970.
pub(crate) fn datetime(text: &str) -> Option<i64> {
    civil::datetime(text).and_then(Reading::exact_micros)
}

/// A datetime and a zone (UTC if left out), as µs since 1970 in UTC.
pub(crate) fn timestamp(text: &str) -> Option<i64> {
    civil::timestamp(text).and_then(Reading::exact_micros)
}

/// A datetime and a zone (UTC if left out), as picoseconds since 1970 in UTC.
pub(crate) fn picoseconds(text: &str) -> Option<i128> {
    civil::timestamp(text).map(Reading::picoseconds)
}

/// A decimal as an integer at `scale`, rounded half away from zero; `Some(None)` is one beyond 256 bits.
pub(crate) fn decimal(text: &str, scale: i32) -> Option<Option<i256>> {
    let mut read = Reader(text);
    let negative = read.sign();
    let (integer, fraction) = (read.digits(), read.fraction());
    let exponent = read.exponent();
    let given = !(integer.is_empty() && fraction.is_none_or(str::is_empty));
    let exponent = exponent.filter(|_| given && read.0.is_empty())?;
    let fraction = fraction.unwrap_or_default();
    let all = format!("{integer}{fraction}");
    let digits = all.trim_start_matches('0');
    let shift = exponent.saturating_add(scale) - fraction.len() as i32;
    Some(scaled(if negative { "-" } else { "" }, digits, shift))
}

/// A sign and `digits`, times 10^shift, rounded half away from zero.
fn scaled(sign: &str, digits: &str, shift: i32) -> Option<i256> {
    if shift >= 0 {
        if digits.is_empty() {
            return Some(i256::ZERO);
        }
        let shift = u32::try_from(shift).ok().filter(|shift| *shift <= 76)?;
        let value = integer(sign, digits)?;
        return value.checked_mul(ten(shift));
    }
    let cut = shift.unsigned_abs() as usize;
    let Some(kept) = digits.len().checked_sub(cut) else {
        return Some(i256::ZERO);
    };
    let (kept, rest) = digits.split_at(kept);
    let value = if kept.is_empty() {
        i256::ZERO
    } else {
        integer(sign, kept)?
    };
    let away = rest.as_bytes().first().is_some_and(|digit| *digit >= b'5');
    match sign {
        _ if !away => Some(value),
        "-" => value.checked_sub(i256::ONE),
        _ => value.checked_add(i256::ONE),
    }
}

/// The least number of 256 bits has no positive counterpart, so the sign belongs to the digits.
fn integer(sign: &str, digits: &str) -> Option<i256> {
    // 256 bits hold 77 digits at most.
    i256::from_string(&format!("{sign}{digits}")).filter(|_| digits.len() <= 77)
}

/// 10^digits, at most 10^76.
pub(crate) fn ten(digits: u32) -> i256 {
    i256::from_i128(10).wrapping_pow(digits.min(76))
}

/// What is left of a text.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn sign(&mut self) -> bool {
        let negative = self.0.starts_with('-');
        if negative || self.0.starts_with('+') {
            self.0 = &self.0[1..];
        }
        negative
    }

    fn exponent(&mut self) -> Option<i32> {
        if !self.0.starts_with(['e', 'E']) {
            return Some(0);
        }
        self.0 = &self.0[1..];
        let negative = self.sign();
        let digits = self.digits();
        // A larger exponent says no more than this.
        let exponent = digits.parse::<u32>().ok()?.min(100_000) as i32;
        Some(if negative { -exponent } else { exponent })
    }

    fn fraction(&mut self) -> Option<&'a str> {
        self.eat(".").map(|()| self.digits())
    }

    fn digits(&mut self) -> &'a str {
        let end = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
    }

    fn eat(&mut self, prefix: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    #[test]
    fn civil_literals_are_read_strictly() {
        assert_eq!(date("1970-01-02"), Some(1));
        assert_eq!(date("0001-1-1"), Some(-719_162));
        assert_eq!(date("9999-12-31"), Some(2_932_896));
        for bad in [
            "",
            "2024-02-30",
            "+2024-01-01",
            "24-01-01",
            "2024-1-001",
            "2024-01-01 ",
            "١٩٧٠-01-01",
        ] {
            assert_eq!(date(bad), None, "{bad}");
        }
        assert_eq!(time("23:59:59.999999"), Some(86_399_999_999));
        assert_eq!(time("1:2:3.5"), Some(3_723_500_000));
        for bad in [
            "24:00:00",
            "1:60:0",
            "1:2:60",
            "1:2",
            "1:2:3.",
            "1:2:3.1234567",
            "-1:2:3",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
        assert_eq!(datetime("1970-01-01T00:00:00.000001"), Some(1));
        assert_eq!(datetime("1970-01-01 0:0:1"), Some(SECOND_US));
        assert_eq!(datetime("1970-01-02"), Some(86_400 * SECOND_US));
        for bad in ["1970-01-01T", "1970-01-01 ", "1970-01-01T00:00:00Z", "T00:00:00"] {
            assert_eq!(datetime(bad), None, "{bad}");
        }
    }

    #[test]
    fn timestamps_have_zones() {
        for (text, micros) in [
            ("1970-01-01T00:00:01Z", SECOND_US),
            ("1970-01-01 00:00:01", SECOND_US),
            ("1970-01-01 00:00:01 UTC", SECOND_US),
            ("1970-01-01 01:00:00+01", 0),
            ("1970-01-01 01:30:00+1:30", 0),
            ("1970-01-01 00:00:00-00:01", 60 * SECOND_US),
            ("1970-01-01+00:01", -60 * SECOND_US),
        ] {
            assert_eq!(timestamp(text), Some(micros), "{text}");
        }
        for bad in [
            "1970-01-01T00:00:00X",
            "1970-01-01T00:00:00+15",
            "1970-01-01T00:00:00+01:60",
            "12",
        ] {
            assert_eq!(timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn decimals_are_scaled_and_rounded_half_away_from_zero() {
        let at = |text: &str, scale| decimal(text, scale).map(|value| value.map(|value| value.to_string()));
        for (text, scale, value) in [
            ("1", 9, "1000000000"),
            ("-1.5", 9, "-1500000000"),
            ("+.5", 1, "5"),
            ("5.", 1, "50"),
            ("0.0000000005", 9, "1"),
            ("-0.0000000005", 9, "-1"),
            ("0.00000000049", 9, "0"),
            ("1e3", 0, "1000"),
            ("12E-1", 0, "1"),
            ("15E-1", 0, "2"),
            ("1e-99999999", 9, "0"),
            ("000", 38, "0"),
        ] {
            assert_eq!(at(text, scale), Some(Some(value.to_owned())), "{text}");
        }
        let most = "578960446186580977117854925043439539266.34992332820282019728792003956564819967";
        assert_eq!(at(most, 38), Some(Some(i256::MAX.to_string())));
        let least = "-578960446186580977117854925043439539266.34992332820282019728792003956564819968";
        assert_eq!(at(least, 38), Some(Some(i256::MIN.to_string())));
        for beyond in [
            "1e99999999",
            "578960446186580977117854925043439539266.34992332820282019728792003956564819968",
        ] {
            assert_eq!(at(beyond, 38), Some(None), "{beyond}");
        }
        for bad in ["", ".", "-", "1e", "e1", "1 ", "0x1", "NaN", "--1", "1.2.3"] {
            assert_eq!(at(bad, 9), None, "{bad}");
        }
    }
}
