//! Fields of protobuf, written one behind the other into bytes that were made before.
//!
//! A write stores a whole slot and moves on by what it needed of it; what is too much is overwritten by what follows. That is one
//! check of bounds and a few stores of fixed size for a value, in place of a loop over its bytes.

/// Bytes behind the last field that a write may touch.
pub(super) const SLACK: usize = 2 * SLOT;

/// The longest field header and number, and the texts that are copied at once.
const SLOT: usize = 32;

/// The top bit of a byte says that the number goes on.
const GOES_ON: u64 = 0x8080_8080_8080_8080;

/// What stands before a value: the field's number and wire type. Nothing, for the values of a packed list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    bytes: [u8; 8],
    /// At most 5.
    len: u8,
}

/// How a value is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
}

impl Tag {
    pub(super) const NONE: Self = Self {
        bytes: [0; 8],
        len: 0,
    };

    pub(super) fn new(number: u32, wire_type: WireType) -> Self {
        let mut slot = [0; SLOT];
        let len = varint(&mut slot, 0, u64::from(number) << 3 | wire_type as u64);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&slot[..8]);
        Self {
            bytes,
            len: len as u8,
        }
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        // The mask tells the compiler that a slot holds tag and number.
        usize::from(self.len & 7)
    }
}

/// Where fields go.
#[derive(Debug)]
pub(super) struct Output<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Output<'a> {
    /// From there on, in bytes that go on for as long as all fields and [`SLACK`] together.
    #[inline(always)]
    pub(super) fn new(bytes: &'a mut [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next field goes.
    #[inline(always)]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[inline(always)]
    pub(super) fn number(&mut self, tag: Tag, value: u64) {
        let slot = self.slot(tag);
        self.at += tag.len() + varint(slot, tag.len(), value);
    }

    #[inline(always)]
    pub(super) fn double(&mut self, tag: Tag, value: f64) {
        let slot = self.slot(tag);
        put(slot, tag.len(), value.to_bits());
        self.at += tag.len() + 8;
    }

    /// One byte, 0 or 1.
    #[inline(always)]
    pub(super) fn bool(&mut self, tag: Tag, value: bool) {
        let slot = self.slot(tag);
        slot[tag.len()] = value.into();
        self.at += tag.len() + 1;
    }

    /// The first `len` of some bytes.
    #[inline(always)]
    pub(super) fn prefix<const N: usize>(&mut self, tag: Tag, bytes: &[u8; N], len: usize) {
        self.length(tag, len);
        if N <= SLOT {
            self.free_slot()[..N].copy_from_slice(bytes);
        } else {
            self.bytes[self.at..][..len].copy_from_slice(&bytes[..len]);
        }
        self.at += len;
    }

    /// Some of the bytes in `data`.
    #[inline(always)]
    pub(super) fn bytes(&mut self, tag: Tag, data: &[u8], start: usize, len: usize) {
        self.length(tag, len);
        let data = &data[start..];
        match data.first_chunk::<SLOT>() {
            // Most texts and inner messages are short: a copy of fixed size is some stores, one of any length a call.
            Some(chunk) if len <= SLOT => *self.free_slot() = *chunk,
            Some(chunk) if len <= 2 * SLOT && data.len() >= 2 * SLOT => {
                let (near, far) = self.bytes[self.at..].split_at_mut(SLOT);
                near.copy_from_slice(chunk);
                far[..SLOT].copy_from_slice(&data[SLOT..2 * SLOT]);
            }
            _ => self.bytes[self.at..][..len].copy_from_slice(&data[..len]),
        }
        self.at += len;
    }

    /// A field whose length is known once it is [closed](Self::close).
    #[inline(always)]
    pub(super) fn open(&mut self, tag: Tag) {
        self.slot(tag);
        // Most lengths take one byte.
        self.at += tag.len() + 1;
    }

    /// Puts the length before a field that was opened, and whose value begins at `start`. Where the length takes more than
    /// the one byte before, the value moves up.
    #[inline(always)]
    pub(super) fn close(&mut self, start: usize) {
        let len = self.at - start;
        if len < 0x80 {
            self.bytes[start - 1] = len as u8;
        } else {
            self.close_long(start, len as u64);
        }
    }

    fn close_long(&mut self, start: usize, len: u64) {
        let more = varint_len(len) - 1;
        self.bytes.copy_within(start..self.at, start + more);
        for (byte, at) in self.bytes[start - 1..].iter_mut().zip(0..=more) {
            *byte = (len >> (7 * at)) as u8 & 0x7f | if at < more { 0x80 } else { 0 };
        }
        self.at += more;
    }

    /// Back to where a field began that is none after all.
    #[inline(always)]
    pub(super) fn back_to(&mut self, at: usize) {
        self.at = at;
    }

    /// What stands before texts and messages, most of which are short.
    #[inline(always)]
    fn length(&mut self, tag: Tag, len: usize) {
        if len < 0x80 {
            let slot = self.slot(tag);
            slot[tag.len()] = len as u8;
            self.at += tag.len() + 1;
        } else {
            self.number(tag, len as u64);
        }
    }

    /// What follows is written: a slot that begins with the tag.
    #[inline(always)]
    fn slot(&mut self, tag: Tag) -> &mut [u8; SLOT] {
        let slot = self.free_slot();
        slot[..8].copy_from_slice(&tag.bytes);
        slot
    }

    #[inline(always)]
    fn free_slot(&mut self) -> &mut [u8; SLOT] {
        self.bytes[self.at..]
            .first_chunk_mut()
            .expect("the bytes are as long as was measured, and a slot more")
    }
}

/// Bytes that a number takes.
#[inline(always)]
pub(super) fn varint_len(value: u64) -> usize {
    // One byte for each 7 bits; 9/64 is close enough to 1/7 for 64 bits.
    ((value | 1).ilog2() as usize * 9 + 73) / 64
}

/// Writes eight bytes, the lowest first. Where their number is not plain to the compiler it calls a copy of any length.
#[inline(always)]
fn put(slot: &mut [u8; SLOT], at: usize, bytes: u64) {
    let into = slot[at..]
        .first_chunk_mut()
        .expect("a slot is longer than tag and number");
    *into = bytes.to_le_bytes();
}

/// Writes a number at most 22 bytes into the slot; gives its length.
#[inline(always)]
fn varint(slot: &mut [u8; SLOT], at: usize, value: u64) -> usize {
    let len = varint_len(value);
    if value < 1 << 56 {
        let goes_on = GOES_ON & !(u64::MAX << (8 * (len - 1)));
        put(slot, at, spread(value) | goes_on);
    } else {
        let (low, high) = (value & ((1 << 56) - 1), (value >> 56) as u8);
        put(slot, at, spread(low) | GOES_ON);
        slot[at + 8] = high;
        slot[at + 9] = 1;
    }
    len
}

/// Puts each 7 of 56 bits into a byte of its own: halves, quarters, eighths are moved apart.
#[inline(always)]
fn spread(value: u64) -> u64 {
    let value = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let value = (value & 0x0000_3fff_0000_3fff) | ((value & 0x0fff_c000_0fff_c000) << 2);
    (value & 0x007f_007f_007f_007f) | ((value & 0x3f80_3f80_3f80_3f80) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers around each power of two, and some more.
    fn numbers() -> impl Iterator<Item = u64> {
        let edges = (0..64).flat_map(|bits| {
            let edge = 1_u64 << bits;
            [
                edge - 1,
                edge,
                edge + 1,
                edge | 0x5555_5555_5555_5555 >> (63 - bits),
            ]
        });
        edges.chain([u64::MAX, u64::MAX - 1, i64::MIN as u64, 300])
    }

    #[test]
    fn numbers_are_written_as_protobuf_has_them() {
        for value in numbers() {
            let mut expected = Vec::new();
            prost::encoding::encode_varint(value, &mut expected);
            let mut bytes = [0xee; 64];
            let mut output = Output::new(&mut bytes, 0);
            output.number(Tag::NONE, value);
            let len = output.at();
            assert_eq!(bytes[..len], expected, "{value:x}");
            assert_eq!(varint_len(value), expected.len(), "{value:x}");
        }
    }

    #[test]
    fn a_tag_holds_the_number_and_how_the_value_ends() {
        for (number, wire_type, expected) in [
            (1, WireType::Varint, &[0x08][..]),
            (15, WireType::Delimited, &[0x7a]),
            (16, WireType::Fixed64, &[0x81, 0x01]),
            (10_000, WireType::Varint, &[0x80, 0xf1, 0x04]),
            (536_870_911, WireType::Delimited, &[0xfa, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let tag = Tag::new(number, wire_type);
            assert_eq!(&tag.bytes[..tag.len()], expected, "{number}");
        }
    }

    #[test]
    fn texts_of_any_length_are_copied_whole_wherever_they_lie() {
        let data: Vec<u8> = (0..200).collect();
        for len in (0..=70).chain([127, 128, 150]) {
            for start in [0, 1, 200 - len] {
                let mut bytes = [0xee; 300];
                let mut output = Output::new(&mut bytes, 0);
                output.bytes(Tag::new(1, WireType::Delimited), &data, start, len);
                output.bool(Tag::new(2, WireType::Varint), true);
                let written = output.at();
                let mut expected = vec![0x0a];
                prost::encoding::encode_varint(len as u64, &mut expected);
                expected.extend_from_slice(&data[start..start + len]);
                expected.extend([0x10, 1]);
                assert_eq!(bytes[..written], expected, "{start} {len}");
            }
        }
    }
}
