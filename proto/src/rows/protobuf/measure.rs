//! Bytes of rows before they are written, added up column by column.

use std::ops::Range;

use arrow_buffer::NullBuffer;

use super::columns::{Column, Scalar, Values, Visitor, WORD, delimited, words};

impl Column<'_> {
    /// Adds the bytes of this column's fields, in that range of rows, to the rows' totals.
    pub(super) fn measure(&self, range: &Range<usize>, totals: &mut [usize]) {
        match &self.values {
            Values::Scalar(scalars) => scalars.visit(
                self.tag,
                Measure {
                    nulls: self.nulls,
                    range: range.clone(),
                    totals,
                },
            ),
            Values::Message(columns) => {
                let mut sizes = vec![0; range.len()];
                for column in columns {
                    column.measure(range, &mut sizes);
                }
                self.add(range, totals, |at| delimited(self.tag, sizes[at - range.start]));
            }
            Values::Repeated(offsets, element) => {
                let sizes = element.measure_elements(offsets, range);
                self.add(range, totals, |row| sizes.of(row));
            }
            Values::Packed(offsets, element) => {
                let sizes = element.measure_elements(offsets, range);
                self.add(range, totals, |row| match sizes.of(row) {
                    // A list without elements is no field.
                    0 => 0,
                    size => delimited(self.tag, size),
                });
            }
        }
    }

    fn measure_elements<'o>(&self, offsets: &'o [i32], range: &Range<usize>) -> Elements<'o> {
        let elements = offsets[range.start] as usize..offsets[range.end] as usize;
        let mut sizes = vec![0; elements.len()];
        self.measure(&elements, &mut sizes);
        Elements {
            offsets,
            from: elements.start,
            sizes,
        }
    }

    /// A list that is null may have elements, which are nobody's.
    fn add(&self, range: &Range<usize>, totals: &mut [usize], len: impl Fn(usize) -> usize) {
        for (row, total) in range.clone().zip(totals) {
            if !self.is_null(row) {
                *total += len(row);
            }
        }
    }
}

/// Bytes of the elements of some lists.
struct Elements<'o> {
    offsets: &'o [i32],
    from: usize,
    sizes: Vec<usize>,
}

impl Elements<'_> {
    fn of(&self, row: usize) -> usize {
        let [begin, end] = [row, row + 1].map(|at| self.offsets[at] as usize - self.from);
        self.sizes[begin..end].iter().sum()
    }
}

struct Measure<'a> {
    nulls: Option<&'a NullBuffer>,
    range: Range<usize>,
    totals: &'a mut [usize],
}

impl Visitor for Measure<'_> {
    fn visit(self, scalar: &impl Scalar) {
        let Self { nulls, range, totals } = self;
        match nulls {
            None => {
                for (at, total) in range.zip(totals) {
                    *total += scalar.len(at);
                }
            }
            Some(nulls) => {
                let mut at = range.start;
                for (totals, mut word) in totals.chunks_mut(WORD).zip(words(nulls, &range)) {
                    for total in totals {
                        *total += scalar.len(at) * (word & 1) as usize;
                        word >>= 1;
                        at += 1;
                    }
                }
            }
        }
    }
}
