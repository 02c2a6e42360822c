//! `_CHANGE_SEQUENCE_NUMBER` (write-api.md 6).

use serde::{Deserialize, Serialize};

/// One to four sections, compared one after the other as unsigned numbers.
///
/// UNCONFIRMED: of two where one is the beginning of the other, the longer is greater, unless both are
/// [padded](Self::padded).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sequence(Vec<u64>);

impl Sequence {
    /// Reads sections of 1 to 16 hexadecimal digits, in either case, with `/` between them; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let section = |digits: &str| {
            let good =
                (1..=16).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            good.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let sections: Vec<u64> = text.split('/').map(section).collect::<Option<_>>()?;
        (sections.len() <= 4).then_some(Self(sections))
    }

    /// With zero for each section that it lacks.
    #[must_use]
    pub fn padded(mut self) -> Self {
        self.0.resize(4, 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_compared_one_after_the_other_as_unsigned_numbers() {
        let read = |text| Sequence::parse(text).unwrap();
        // The documented examples.
        assert!(read("FFF/ABC") > read("ABC"));
        assert!(read("ABC") > read("BA/FFFFFFFF"));
        assert!(read("FFF/ABC") > read("FFF/B"));
        assert!(read("FFFFFFFFFFFFFFFF") > read("7FFFFFFFFFFFFFFF"));
        assert_eq!(read("00fF/0"), read("FF/00"));
        assert!(read("A/0") > read("A"));
        assert!(
            read("0/0/0/0") < read("FFFFFFFFFFFFFFFF/FFFFFFFFFFFFFFFF/FFFFFFFFFFFFFFFF/FFFFFFFFFFFFFFFF")
        );
    }

    #[test]
    fn anything_else_is_no_sequence_number() {
        for bad in [
            "",
            "/",
            "A/",
            "/A",
            "A//B",
            "G",
            "-1",
            "+1",
            "0x1",
            " 1",
            "1/2/3/4/5",
            "12345678901234567",
        ] {
            assert_eq!(Sequence::parse(bad), None, "{bad:?}");
        }
    }
}
