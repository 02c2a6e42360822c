//! protobuf's wire format, field by field, out of bytes that nobody vouches for.

/// Groups are obsolete, but may stand in unknown fields; deeper ones than these are refused, as protobuf does.
const MAX_GROUPS: usize = 100;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("it is cut short")]
    Truncated,
    #[error("it has a malformed varint")]
    Varint,
    #[error("it has a malformed tag")]
    Tag,
    #[error("its groups do not match")]
    Group,
}

/// A field's value, as far as the wire tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field and its number; `None` at the end. Groups are passed over.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        while !self.0.is_empty() {
            let (number, wire_type) = self.tag()?;
            match wire_type {
                3 => self.skip_group(number)?,
                4 => return Err(WireError::Group),
                _ => return Ok(Some((number, self.value(wire_type)?))),
            }
        }
        Ok(None)
    }

    /// The next varint of a packed field; `None` at the end.
    pub(super) fn packed_varint(&mut self) -> Result<Option<u64>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.varint().map(Some)
    }

    /// The next value of `N` bytes of a packed field; `None` at the end.
    pub(super) fn packed_fixed<const N: usize>(&mut self) -> Result<Option<[u8; N]>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.fixed().map(Some)
    }

    fn value(&mut self, wire_type: u32) -> Result<Value<'a>, WireError> {
        Ok(match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
                let (value, rest) = self.0.split_at_checked(len).ok_or(WireError::Truncated)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(WireError::Tag),
        })
    }

    fn skip_group(&mut self, number: u32) -> Result<(), WireError> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let (number, wire_type) = self.tag()?;
            match wire_type {
                3 if open.len() < MAX_GROUPS => open.push(number),
                4 if number == *innermost => drop(open.pop()),
                3 | 4 => return Err(WireError::Group),
                _ => drop(self.value(wire_type)?),
            }
        }
        Ok(())
    }

    fn tag(&mut self) -> Result<(u32, u32), WireError> {
        if self.0.is_empty() {
            return Err(WireError::Truncated);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| WireError::Tag)?;
        if tag >> 3 == 0 {
            return Err(WireError::Tag);
        }
        Ok((tag >> 3, tag & 7))
    }

    /// Up to ten bytes; bits beyond 64 are dropped, as protobuf does.
    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.0.len() < 10 {
            WireError::Truncated
        } else {
            WireError::Varint
        })
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (value, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, WireError> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_all_wire_types_are_read() {
        let bytes = b"\x08\x96\x01\x11\x01\0\0\0\0\0\0\0\x1a\x02hi\x25\x02\0\0\0";
        let fields = [
            (1, Value::Varint(150)),
            (2, Value::Fixed64(1)),
            (3, Value::Bytes(b"hi")),
            (4, Value::Fixed32(2)),
        ];
        assert_eq!(all(bytes), Ok(fields.to_vec()));
        let minus_one = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(all(minus_one), Ok(vec![(1, Value::Varint(u64::MAX))]));
    }

    #[test]
    fn groups_are_passed_over() {
        // Group 1 with a field and group 2 in it, then field 3.
        assert_eq!(
            all(b"\x0b\x08\x01\x13\x14\x0c\x18\x07"),
            Ok(vec![(3, Value::Varint(7))])
        );
        assert_eq!(all(b"\x0b\x13\x0c"), Err(WireError::Group));
        assert_eq!(all(b"\x0c"), Err(WireError::Group));
        assert_eq!(all(b"\x0b"), Err(WireError::Truncated));
        assert_eq!(all(&[0x0b; 1 << 20]), Err(WireError::Group));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (bytes, error) in [
            (&b"\x08"[..], WireError::Truncated),
            (b"\x08\x80", WireError::Truncated),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                WireError::Varint,
            ),
            (b"\x00\x01", WireError::Tag),
            (b"\x0e", WireError::Tag),
            (b"\xff\xff\xff\xff\xff\x01\x01", WireError::Tag),
            (b"\x1a\x05abcd", WireError::Truncated),
            (
                b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                WireError::Truncated,
            ),
            (b"\x11\x01", WireError::Truncated),
            (b"\x25\x01", WireError::Truncated),
        ] {
            assert_eq!(all(bytes), Err(error), "{bytes:x?}");
        }
    }
}
