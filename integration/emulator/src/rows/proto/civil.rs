//! Civil time packed into an integer (write-api.md 5.2): from the top year 14 bits, month 4, day 5, hour 5, minute 6,
//! second 6, microseconds 20.

use chrono::NaiveDate;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// A packed TIME as µs since midnight; `None` if a part is out of range, or a bit is set above them.
pub(super) fn time(packed: i64) -> Option<i64> {
    let packed = u64::try_from(packed).ok().filter(|packed| packed >> 37 == 0)?;
    clock(packed)
}

/// A packed DATETIME as µs since 1970.
pub(super) fn datetime(packed: i64) -> Option<i64> {
    let packed = u64::try_from(packed).ok().filter(|packed| packed >> 60 == 0)?;
    let year = part(packed, 46, 14) as i32;
    let (month, day) = (part(packed, 42, 4) as u32, part(packed, 37, 5) as u32);
    let date = NaiveDate::from_ymd_opt(year, month, day).filter(|_| (1..=9999).contains(&year))?;
    let days = (date - NaiveDate::default()).num_days();
    Some(days * DAY_US + clock(packed)?)
}

fn clock(packed: u64) -> Option<i64> {
    let (hour, minute) = (part(packed, 32, 5), part(packed, 26, 6));
    let (second, micros) = (part(packed, 20, 6), part(packed, 0, 20));
    let good = hour < 24 && minute < 60 && second < 60 && micros < SECOND_US;
    good.then_some(((hour * 60 + minute) * 60 + second) * SECOND_US + micros)
}

/// `width` bits from `from` on; at most 20, so they fit.
fn part(packed: u64, from: u32, width: u32) -> i64 {
    ((packed >> from) & ((1 << width) - 1)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_specification_are_read() {
        assert_eq!(time(102_806_536_767), Some(DAY_US - 1));
        assert_eq!(time(53_880_818_184), Some(45_296_789_000));
        assert_eq!(time(0), Some(0));
        assert_eq!(datetime(141_916_638_033_338_944), Some(1_480_774_287_123_456));
        assert_eq!(datetime(74_904_229_642_240), Some(-62_135_596_800_000_000));
        assert_eq!(datetime(703_674_213_004_689_983), Some(253_402_300_799_999_999));
    }

    #[test]
    fn every_part_has_its_range() {
        let pack = |year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64, micros: i64| {
            (year << 46)
                | (month << 42)
                | (day << 37)
                | (hour << 32)
                | (minute << 26)
                | (second << 20)
                | micros
        };
        assert_eq!(
            datetime(pack(2024, 2, 29, 23, 59, 59, 999_999)),
            Some(1_709_251_199_999_999)
        );
        for bad in [
            pack(0, 1, 1, 0, 0, 0, 0),
            pack(10_000, 1, 1, 0, 0, 0, 0),
            pack(2024, 0, 1, 0, 0, 0, 0),
            pack(2024, 13, 1, 0, 0, 0, 0),
            pack(2024, 1, 0, 0, 0, 0, 0),
            pack(2023, 2, 29, 0, 0, 0, 0),
            pack(2024, 1, 1, 24, 0, 0, 0),
            pack(2024, 1, 1, 0, 60, 0, 0),
            pack(2024, 1, 1, 0, 0, 60, 0),
            pack(2024, 1, 1, 0, 0, 0, 1_000_000),
            pack(2024, 1, 1, 0, 0, 0, 0) | 1 << 60,
            -1,
        ] {
            assert_eq!(datetime(bad), None, "{bad:#x}");
        }
        for bad in [
            pack(0, 0, 0, 24, 0, 0, 0),
            pack(0, 0, 0, 0, 60, 0, 0),
            pack(0, 0, 0, 0, 0, 60, 0),
            pack(0, 0, 0, 0, 0, 0, 1_000_000),
            pack(0, 0, 1, 0, 0, 0, 0),
            i64::MIN,
        ] {
            assert_eq!(time(bad), None, "{bad:#x}");
        }
    }
}
