//! The leaves that become INTERVALs: months, days and time, none of which turns into another.

use std::cell::Cell;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, IntervalDayTimeType, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalYearMonthType,
};
use arrow_schema::{IntervalUnit, TimeUnit};

use super::SubMicroseconds;
use super::refusal::RowReason;
use super::values::{Leaf, Value};

/// BigQuery's INTERVAL reaches from -10000-0 -3660000 -87840000:0:0 to the same with other signs. Its time goes beyond the 2562047
/// hours that 64 bits of nanoseconds hold, so of the time the wire is the limit.
const MONTHS: i32 = 120_000;
const DAYS: i32 = 3_660_000;

const OUT_OF_RANGE: RowReason = RowReason::OutOfRange("INTERVAL");

type Wire = IntervalMonthDayNanoType;

impl Leaf<'_> {
    /// An interval in months, in days and milliseconds, or in all three.
    pub(super) fn interval(&mut self, array: &ArrayRef, unit: IntervalUnit) -> ArrayRef {
        match unit {
            IntervalUnit::YearMonth => self.map::<IntervalYearMonthType, Wire>(array, |months| {
                checked(IntervalMonthDayNano::new(months, 0, 0))
            }),
            IntervalUnit::DayTime => self.map::<IntervalDayTimeType, Wire>(array, |value| {
                let nanos = i64::from(value.milliseconds) * 1_000_000;
                checked(IntervalMonthDayNano::new(0, value.days, nanos))
            }),
            IntervalUnit::MonthDayNano => {
                let values = array.as_primitive::<Wire>().values();
                if values.iter().all(|value| value.nanoseconds % 1_000 == 0) {
                    return self.check::<Wire>(array, |value| checked(value).err());
                }
                self.cut::<Wire>(array, |value| Ok((checked(value)?, value.nanoseconds)))
            }
        }
    }

    /// Time alone.
    pub(super) fn duration(&mut self, array: &ArrayRef, unit: TimeUnit) -> ArrayRef {
        let time = |value: i64, factor: i64| {
            let nanos = value.checked_mul(factor).ok_or(OUT_OF_RANGE)?;
            Ok(IntervalMonthDayNano::new(0, 0, nanos))
        };
        match unit {
            TimeUnit::Second => self.map::<DurationSecondType, Wire>(array, |v| time(v, 1_000_000_000)),
            TimeUnit::Millisecond => self.map::<DurationMillisecondType, Wire>(array, |v| time(v, 1_000_000)),
            TimeUnit::Microsecond => self.map::<DurationMicrosecondType, Wire>(array, |v| time(v, 1_000)),
            TimeUnit::Nanosecond => self.cut::<DurationNanosecondType>(array, |nanos| {
                Ok((IntervalMonthDayNano::new(0, 0, nanos), nanos))
            }),
        }
    }

    /// Cuts the time's digits below a microsecond, as one cuts those of its text: towards zero.
    fn cut<I: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        parts: impl Fn(I::Native) -> Value<(IntervalMonthDayNano, i64)>,
    ) -> ArrayRef {
        let refuse = self.options.sub_microseconds == SubMicroseconds::Refuse;
        let truncated = Cell::new(0);
        let array = self.map::<I, Wire>(array, |value| {
            let (interval, nanos) = parts(value)?;
            let finer = nanos % 1_000;
            if finer != 0 && refuse {
                return Err(RowReason::SubMicroseconds);
            }
            truncated.set(truncated.get() + u64::from(finer != 0));
            Ok(IntervalMonthDayNano::new(
                interval.months,
                interval.days,
                nanos - finer,
            ))
        });
        self.report.count_truncated(truncated.get());
        array
    }
}

fn checked(value: IntervalMonthDayNano) -> Value<IntervalMonthDayNano> {
    let within = value.months.unsigned_abs() <= MONTHS.unsigned_abs()
        && value.days.unsigned_abs() <= DAYS.unsigned_abs();
    if within { Ok(value) } else { Err(OUT_OF_RANGE) }
}
