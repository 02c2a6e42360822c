//! The envelope around every byte string that outlives a process: what it is, which version, and whether it is whole.
//!
//! Layout, little endian: magic `ABQS` · format version u8 · kind u8 · payload version u16 · payload length u32 ·
//! CRC-32C u32 over everything before it and the payload · payload.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};
use thiserror::Error;

const MAGIC: [u8; 4] = *b"ABQS";
const FORMAT_VERSION: u8 = 1;
const HEADER_LENGTH: usize = 16;
const CRC_AT: usize = 12;

/// Most bytes one payload may have: far above what 1,000 subtasks with 16 streams each need.
pub const PAYLOAD_LIMIT: usize = 64 << 20;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// State of one subtask.
    SubtaskState = 1,
    /// Commit list of one subtask.
    Commit = 2,
    /// The embedded host's manifest of a checkpoint.
    Manifest = 3,
    /// Claim of an epoch by one host generation.
    EpochClaim = 4,
    /// Marker of a confirmed commit.
    CommitMarker = 5,
    /// Claim of a host generation.
    Generation = 6,
    /// Position of a source.
    SourcePosition = 7,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::SubtaskState,
        Self::Commit,
        Self::Manifest,
        Self::EpochClaim,
        Self::CommitMarker,
        Self::Generation,
        Self::SourcePosition,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes were refused. Never a default, never a panic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// Shorter than a header, or than the header says.
    #[error("truncated: {found} bytes where {expected} were written")]
    Truncated {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// More bytes than the header says.
    #[error("{extra} bytes follow the end of the data")]
    TrailingBytes {
        /// Bytes too many.
        extra: usize,
    },
    /// Not written by this project.
    #[error("wrong magic: this is no file of arroyo-bigquery")]
    WrongMagic,
    /// Written by a later release.
    #[error(
        "written by a newer version (format {found}, this build reads up to {newest}); use the newer arroyo-bigquery"
    )]
    TooNew {
        /// Version found.
        found: u16,
        /// Newest version this build reads.
        newest: u16,
    },
    /// Another kind of data than asked for.
    #[error("holds {found} where {expected:?} was expected")]
    WrongKind {
        /// What was asked for.
        expected: Kind,
        /// What is there.
        found: String,
    },
    /// The checksum does not match: bits changed after writing.
    #[error("its CRC-32C is {found:08x}, {expected:08x} was written")]
    Corrupt {
        /// Checksum in the header.
        expected: u32,
        /// Checksum of the bytes.
        found: u32,
    },
    /// The checksum matches but the payload cannot be read.
    #[error("cannot be decoded: {0}")]
    Undecodable(String),
}

/// Wraps a payload of a version.
///
/// # Panics
/// On a payload beyond [`PAYLOAD_LIMIT`]: what is written here grows with subtasks and streams, never with rows.
#[must_use]
pub fn seal(kind: Kind, version: u16, payload: &[u8]) -> Vec<u8> {
    assert!(
        payload.len() <= PAYLOAD_LIMIT,
        "a payload of {} bytes is over the limit",
        payload.len()
    );
    let length = u32::try_from(payload.len()).expect("PAYLOAD_LIMIT is below u32::MAX");
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.push(FORMAT_VERSION);
    bytes.push(kind as u8);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    let crc = checksum(&bytes, payload);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Checks the envelope and returns the payload with its version, which is at most `newest_version`.
///
/// # Errors
/// Says which part is wrong.
pub fn open(kind: Kind, newest_version: u16, bytes: &[u8]) -> Result<(u16, &[u8]), EnvelopeError> {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
        return Err(EnvelopeError::Truncated {
            expected: HEADER_LENGTH,
            found: bytes.len(),
        });
    };
    if header[..4] != MAGIC {
        return Err(EnvelopeError::WrongMagic);
    }
    if header[4] > FORMAT_VERSION {
        return Err(EnvelopeError::TooNew {
            found: header[4].into(),
            newest: FORMAT_VERSION.into(),
        });
    }
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let expected_crc = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    if payload.len() < length {
        return Err(EnvelopeError::Truncated {
            expected: HEADER_LENGTH + length,
            found: bytes.len(),
        });
    }
    if payload.len() > length {
        return Err(EnvelopeError::TrailingBytes {
            extra: payload.len() - length,
        });
    }
    let found_crc = checksum(&header[..CRC_AT], payload);
    if found_crc != expected_crc {
        return Err(EnvelopeError::Corrupt {
            expected: expected_crc,
            found: found_crc,
        });
    }
    if header[5] != kind as u8 {
        let found =
            Kind::from_byte(header[5]).map_or_else(|| format!("kind {}", header[5]), |k| format!("{k:?}"));
        return Err(EnvelopeError::WrongKind {
            expected: kind,
            found,
        });
    }
    let version = u16::from_le_bytes([header[6], header[7]]);
    if version > newest_version {
        return Err(EnvelopeError::TooNew {
            found: version,
            newest: newest_version,
        });
    }
    Ok((version, payload))
}

/// Encodes a value and wraps it.
///
/// # Panics
/// As [`seal`].
#[must_use]
pub fn encode<T: Encode>(kind: Kind, version: u16, value: &T) -> Vec<u8> {
    let payload = bincode::encode_to_vec(value, configuration())
        .expect("encoding plain data into a vector fails only above PAYLOAD_LIMIT");
    seal(kind, version, &payload)
}

/// Unwraps and decodes the only version there is of a kind.
///
/// # Errors
/// As [`open`], and for a payload that is not a whole `T`.
pub fn decode<T: Decode<()>>(kind: Kind, version: u16, bytes: &[u8]) -> Result<T, EnvelopeError> {
    let (found, payload) = open(kind, version, bytes)?;
    if found != version {
        return Err(EnvelopeError::Undecodable(format!(
            "version {found} was never released"
        )));
    }
    let (value, used) = bincode::decode_from_slice::<T, _>(payload, configuration())
        .map_err(|error| EnvelopeError::Undecodable(error.to_string()))?;
    if used != payload.len() {
        return Err(EnvelopeError::TrailingBytes {
            extra: payload.len() - used,
        });
    }
    Ok(value)
}

fn configuration() -> Configuration<LittleEndian, Varint, Limit<PAYLOAD_LIMIT>> {
    bincode::config::standard().with_limit::<PAYLOAD_LIMIT>()
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_payload_opens_to_itself() {
        let bytes = seal(Kind::Manifest, 3, b"payload");
        assert_eq!(open(Kind::Manifest, 3, &bytes), Ok((3, b"payload".as_slice())));
        assert_eq!(&bytes[..12], b"ABQS\x01\x03\x03\x00\x07\x00\x00\x00");
    }

    #[test]
    fn every_cut_is_named_truncated() {
        let bytes = seal(Kind::Commit, 1, b"some rows");
        for cut in 0..bytes.len() {
            let expected = if cut < HEADER_LENGTH {
                HEADER_LENGTH
            } else {
                bytes.len()
            };
            assert_eq!(
                open(Kind::Commit, 1, &bytes[..cut]),
                Err(EnvelopeError::Truncated { expected, found: cut })
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_an_error() {
        let bytes = seal(Kind::SubtaskState, 1, b"some state");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                open(Kind::SubtaskState, 1, &damaged).is_err(),
                "bit {bit} went unnoticed"
            );
        }
    }

    #[test]
    fn a_newer_version_is_named_with_both_numbers() {
        let bytes = seal(Kind::SubtaskState, 2, b"");
        assert_eq!(
            open(Kind::SubtaskState, 1, &bytes),
            Err(EnvelopeError::TooNew { found: 2, newest: 1 })
        );
    }

    #[test]
    fn a_newer_envelope_is_named_with_both_versions() {
        let mut bytes = seal(Kind::Commit, 1, b"x");
        bytes[4] = FORMAT_VERSION + 1;
        assert_eq!(
            open(Kind::Commit, 1, &bytes),
            Err(EnvelopeError::TooNew { found: 2, newest: 1 })
        );
    }

    #[test]
    fn bytes_behind_the_value_are_counted() {
        let bytes = seal(Kind::Commit, 1, &[5, 0, 0]);
        assert_eq!(
            decode::<u8>(Kind::Commit, 1, &bytes),
            Err(EnvelopeError::TrailingBytes { extra: 2 })
        );
    }

    #[test]
    fn another_kind_is_named() {
        let bytes = seal(Kind::Commit, 1, b"");
        assert_eq!(
            open(Kind::Manifest, 1, &bytes),
            Err(EnvelopeError::WrongKind {
                expected: Kind::Manifest,
                found: "Commit".into()
            })
        );
    }

    #[test]
    fn bytes_behind_the_end_are_refused() {
        let mut bytes = seal(Kind::Commit, 1, b"x");
        bytes.push(0);
        assert_eq!(
            open(Kind::Commit, 1, &bytes),
            Err(EnvelopeError::TrailingBytes { extra: 1 })
        );
    }
}
