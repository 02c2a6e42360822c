//! Messages of a block of rows, written side by side: column by column, each row's fields behind what the row has already.
//!
//! A loop over one column's values knows their type and asks nothing else, which a loop over one row's fields has to at each of
//! them. Each message has room of its own that no other's writes touch, so it is copied once more when it is complete; the block
//! is small enough to be in the processor's cache then.

use std::ops::Range;

use arrow_buffer::NullBuffer;

use super::batch::{HEAD, head};
use super::columns::{Column, Scalar, Scalars, Values, Visitor, WORD, words};
use super::output::{Output, SLACK, Tag};

/// The room that the rows of a block take together: most of a processor's nearest cache. A single row may take more.
const NEAR: usize = 24 << 10;

/// With fewer rows, going from column to column costs more than a cache that is farther.
const FEW: usize = 64;

/// The room that few rows take together: some of that cache.
const FAR: usize = 512 << 10;

/// The longest number.
const NUMBER: usize = 10;

/// Messages of one type under way, and blocks that are free for those within them.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// Where each message begins.
    begins: Vec<usize>,
    /// Where its next field goes.
    ends: Vec<usize>,
    /// Where the values of structs under way begin, of each that holds the next.
    opened: Vec<usize>,
    /// For the rooms of these messages, where they are in others.
    rooms: Vec<usize>,
    /// For the messages in these messages.
    inner: Option<Box<Self>>,
}

/// Cuts all rows into blocks; gives the rows and the room for each.
pub(super) struct Blocks {
    rooms: Vec<usize>,
    from: usize,
}

impl Blocks {
    pub(super) fn new(columns: &[Column<'_>], rows: usize) -> Self {
        let mut own = Vec::new();
        rooms(columns, &(0..rows), HEAD, &mut own);
        Self { rooms: own, from: 0 }
    }

    /// No less than all rows take, each with its tag and length.
    pub(super) fn room(&self) -> usize {
        self.rooms.iter().sum()
    }

    /// The next rows, at least one, written, each with its tag and length.
    pub(super) fn next<'b>(
        &mut self,
        columns: &[Column<'_>],
        block: &'b mut Block,
    ) -> Option<impl Iterator<Item = &'b [u8]>> {
        let mut room = 0;
        let fitting = self.rooms[self.from..].iter().zip(1..).take_while(|(own, rows)| {
            room += **own;
            room <= NEAR || (*rows <= FEW && room <= FAR)
        });
        let to = (self.from + fitting.count().max(1)).min(self.rooms.len());
        let range = std::mem::replace(&mut self.from, to)..to;
        if range.is_empty() {
            return None;
        }
        block.write(columns, &range, &self.rooms[range.clone()], HEAD);
        Some(block.framed())
    }
}

/// Room for messages: at least what each takes, `before` it and what a write may touch behind it.
fn rooms(columns: &[Column<'_>], range: &Range<usize>, before: usize, rooms: &mut Vec<usize>) {
    rooms.clear();
    rooms.resize(range.len(), 0);
    let begins: Vec<usize> = (range.start..=range.end).collect();
    let all: usize = columns.iter().map(|column| column.room(&begins, rooms)).sum();
    for room in rooms {
        *room += before + all + SLACK;
    }
}

impl Column<'_> {
    /// The most bytes that each of the column's values takes, besides what depends on the row: that is added to the rows' room. A
    /// row's values begin at `begins`, and end where the next row's begin.
    fn room(&self, begins: &[usize], rooms: &mut [usize]) -> usize {
        match &self.values {
            Values::Scalar(scalars) => {
                if let Scalars::Bytes(offsets, _) = scalars {
                    // Texts of one row lie one behind the other, however deep within it.
                    add(rooms, begins, |begin| offsets[begin] as usize);
                }
                self.tag.len() + scalars.most()
            }
            Values::Message(columns) => {
                let all: usize = columns.iter().map(|column| column.room(begins, rooms)).sum();
                self.tag.len() + NUMBER + all
            }
            Values::Repeated(offsets, element) | Values::Packed(offsets, element) => {
                let begins: Vec<usize> = begins.iter().map(|&begin| offsets[begin] as usize).collect();
                let each = element.room(&begins, rooms);
                add(rooms, &begins, |begin| begin * each);
                self.tag.len() + NUMBER
            }
        }
    }
}

/// Adds to each row what lies between where its values begin and where the next row's do.
#[inline(always)]
fn add(rooms: &mut [usize], begins: &[usize], place: impl Fn(usize) -> usize) {
    let mut from = begins.first().map_or(0, |&begin| place(begin));
    for (room, &next) in rooms.iter_mut().zip(&begins[1..]) {
        let to = place(next);
        *room += to - from;
        from = to;
    }
}

impl Block {
    /// Writes the messages of a range of rows, in place of those that it held.
    fn write(&mut self, columns: &[Column<'_>], range: &Range<usize>, rooms: &[usize], before: usize) {
        self.begins.clear();
        let mut end = 0;
        self.begins.extend(rooms.iter().map(|room| {
            let begin = end + before;
            end += room;
            begin
        }));
        self.ends.clone_from(&self.begins);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        for column in columns {
            self.column(column, range);
        }
    }

    /// The messages, each with its tag and length before it.
    fn framed(&mut self) -> impl Iterator<Item = &[u8]> {
        for (begin, end) in self.begins.iter_mut().zip(&self.ends) {
            *begin = head(&mut self.bytes, *begin..*end);
        }
        (0..self.begins.len()).map(|at| &self.bytes[self.message(at)])
    }

    /// Where a message lies.
    fn message(&self, at: usize) -> Range<usize> {
        self.begins[at]..self.ends[at]
    }

    fn column(&mut self, column: &Column<'_>, range: &Range<usize>) {
        let (tag, nulls) = (column.tag, column.nulls.as_ref());
        match &column.values {
            Values::Scalar(scalars) => scalars.visit(
                tag,
                One {
                    nulls,
                    range: range.clone(),
                    block: self,
                },
            ),
            Values::Message(columns) => {
                self.each(range, nulls, |_, output| output.open(tag));
                let outer = self.opened.len();
                self.opened.extend_from_slice(&self.ends);
                for column in columns {
                    self.column(column, range);
                }
                let opened = std::mem::take(&mut self.opened);
                self.each(range, nulls, |row, output| {
                    output.close(opened[outer + row - range.start]);
                });
                self.opened = opened;
                self.opened.truncate(outer);
            }
            Values::Repeated(offsets, element) => match &element.values {
                Values::Message(columns) => {
                    let elements = offsets[range.start] as usize..offsets[range.end] as usize;
                    let inner = self.inner(columns, &elements);
                    self.each(range, nulls, |row, output| {
                        for at in offsets[row] as usize..offsets[row + 1] as usize {
                            if !element.is_null(at) {
                                inner.field(tag, at - elements.start, output);
                            }
                        }
                    });
                    self.inner = Some(inner);
                }
                Values::Scalar(scalars) => scalars.visit(
                    element.tag,
                    Many {
                        packed: None,
                        lists: column,
                        offsets,
                        element,
                        range: range.clone(),
                        block: self,
                    },
                ),
                Values::Repeated(..) | Values::Packed(..) => unreachable!("a list's element is no list"),
            },
            Values::Packed(offsets, element) => {
                let Values::Scalar(scalars) = &element.values else {
                    unreachable!("numbers are packed")
                };
                scalars.visit(
                    element.tag,
                    Many {
                        packed: Some(tag),
                        lists: column,
                        offsets,
                        element,
                        range: range.clone(),
                        block: self,
                    },
                );
            }
        }
    }

    /// Messages that are fields of these.
    fn inner(&mut self, columns: &[Column<'_>], range: &Range<usize>) -> Box<Self> {
        let mut inner = self.inner.take().unwrap_or_default();
        let mut own = std::mem::take(&mut inner.rooms);
        rooms(columns, range, 0, &mut own);
        inner.write(columns, range, &own, 0);
        inner.rooms = own;
        inner
    }

    /// One of these messages as a field.
    #[inline(always)]
    fn field(&self, tag: Tag, at: usize, output: &mut Output<'_>) {
        let message = self.message(at);
        output.bytes(tag, &self.bytes, message.start, message.len());
    }

    /// Writes something to each message whose value is not null.
    #[inline(always)]
    fn each(
        &mut self,
        range: &Range<usize>,
        nulls: Option<&NullBuffer>,
        write: impl Fn(usize, &mut Output<'_>),
    ) {
        for (row, end) in range.clone().zip(&mut self.ends) {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let mut output = Output::new(&mut self.bytes, *end);
                write(row, &mut output);
                *end = output.at();
            }
        }
    }
}

/// Writes one field a row.
struct One<'a> {
    nulls: Option<&'a NullBuffer>,
    range: Range<usize>,
    block: &'a mut Block,
}

impl Visitor for One<'_> {
    fn visit(self, scalar: &impl Scalar) {
        let Self { nulls, range, block } = self;
        let (bytes, ends) = (block.bytes.as_mut_slice(), block.ends.as_mut_slice());
        match nulls {
            None => {
                for (at, end) in range.zip(ends) {
                    let mut output = Output::new(bytes, *end);
                    scalar.write(at, &mut output);
                    *end = output.at();
                }
            }
            Some(nulls) => {
                let mut at = range.start;
                for (ends, mut word) in ends.chunks_mut(WORD).zip(words(nulls, &range)) {
                    for end in ends {
                        // A null's value is written too, and overwritten by what follows: no branch to mispredict.
                        let mut output = Output::new(bytes, *end);
                        scalar.write(at, &mut output);
                        *end = if word & 1 == 1 { output.at() } else { *end };
                        word >>= 1;
                        at += 1;
                    }
                }
            }
        }
    }
}

/// Writes the fields of a list's elements a row, or one field with all of them.
struct Many<'a> {
    /// The tag of that one field.
    packed: Option<Tag>,
    lists: &'a Column<'a>,
    offsets: &'a [i32],
    element: &'a Column<'a>,
    range: Range<usize>,
    block: &'a mut Block,
}

impl Visitor for Many<'_> {
    fn visit(self, scalar: &impl Scalar) {
        let Self {
            packed,
            lists,
            offsets,
            element,
            range,
            block,
        } = self;
        block.each(&range, lists.nulls.as_ref(), |row, output| {
            let elements = offsets[row] as usize..offsets[row + 1] as usize;
            if element.nulls.is_some() {
                fields(
                    scalar,
                    packed,
                    elements.filter(|at| !element.is_null(*at)),
                    output,
                );
            } else {
                fields(scalar, packed, elements, output);
            }
        });
    }
}

#[inline(always)]
fn fields(
    scalar: &impl Scalar,
    packed: Option<Tag>,
    elements: impl Iterator<Item = usize>,
    output: &mut Output<'_>,
) {
    let Some(tag) = packed else {
        for at in elements {
            scalar.write(at, output);
        }
        return;
    };
    let begin = output.at();
    output.open(tag);
    let start = output.at();
    for at in elements {
        scalar.write(at, output);
    }
    if output.at() == start {
        // A list without elements is no field.
        output.back_to(begin);
    } else {
        output.close(start);
    }
}
