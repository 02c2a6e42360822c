//! The form of a journal: a head, and records that each know their place.
//!
//! Head: eight bytes that say what the file is, the form's version, CRC-32C of both. Record: length of the payload
//! (u64), CRC-32C of the record's place and that length, CRC-32C of the payload, payload. Payload: length of a header
//! (u32), the header (the effect as JSON, without rows), and the rows that it brings, each batch an Arrow IPC stream.
//! All numbers are little-endian.

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;

use crate::machine::Effect;

/// Of this form. Whatever changes how effects are written changes it.
pub(super) const VERSION: u32 = 1;
/// Bytes of a head.
pub(super) const HEAD: usize = 16;
/// Bytes of a record before its payload.
pub(super) const PREFIX: usize = 16;

/// The line end shows copies that were made as text.
const MAGIC: [u8; 8] = *b"bqjrnl\r\n";

/// What a file begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    Known,
    Newer(u32),
    Foreign,
}

/// The head of a journal of this version.
pub(super) fn head() -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// What a head says.
pub(super) fn read_head(head: [u8; HEAD]) -> Head {
    let [.., a, b, c, d] = head;
    if head[..8] != MAGIC || crc32c::crc32c(&head[..12]) != u32::from_le_bytes([a, b, c, d]) {
        return Head::Foreign;
    }
    match u32::from_le_bytes([head[8], head[9], head[10], head[11]]) {
        VERSION => Head::Known,
        version => Head::Newer(version),
    }
}

/// An effect as the record at this place.
///
/// # Errors
/// It cannot be written, which is a bug.
pub(super) fn encode(effect: &Effect, offset: u64) -> Result<Vec<u8>, String> {
    let header = serde_json::to_vec(effect).map_err(|error| error.to_string())?;
    let header_len = u32::try_from(header.len()).map_err(|_| "a description of over 4 GiB".to_owned())?;
    let mut record = vec![0; PREFIX];
    record.extend_from_slice(&header_len.to_le_bytes());
    record.extend_from_slice(&header);
    for rows in effect.batches() {
        write_rows(rows, &mut record).map_err(|error| error.to_string())?;
    }
    let length = (record.len() - PREFIX) as u64;
    let crc = crc32c::crc32c(&record[PREFIX..]);
    record[..8].copy_from_slice(&length.to_le_bytes());
    record[8..12].copy_from_slice(&place_crc(offset, length).to_le_bytes());
    record[12..PREFIX].copy_from_slice(&crc.to_le_bytes());
    Ok(record)
}

/// The length of the payload and its checksum, if this is the beginning of a record at this place.
pub(super) fn read_prefix(prefix: [u8; PREFIX], offset: u64) -> Option<(u64, u32)> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = prefix;
    let length = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let whole = u32::from_le_bytes([i, j, k, l]) == place_crc(offset, length);
    whole.then_some((length, u32::from_le_bytes([m, n, o, p])))
}

/// The effect of a whole payload.
///
/// # Errors
/// It is not one.
pub(super) fn decode(payload: &[u8]) -> Result<Effect, String> {
    let (header, mut rest) = payload
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize))
        .ok_or("it is too short for its header")?;
    let mut effect: Effect =
        serde_json::from_slice(header).map_err(|error| format!("it is no effect that is known: {error}"))?;
    for rows in effect.batches_mut() {
        *rows = read_rows(&mut rest).map_err(|error| format!("its rows cannot be read: {error}"))?;
    }
    if rest.is_empty() {
        Ok(effect)
    } else {
        Err(format!("{} bytes are left over", rest.len()))
    }
}

fn place_crc(offset: u64, length: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), &length.to_le_bytes())
}

fn write_rows(rows: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let mut writer = StreamWriter::try_new(out, &rows.schema())?;
    writer.write(rows)?;
    writer.finish()
}

/// Reads a batch and the end of its stream.
fn read_rows(bytes: &mut &[u8]) -> Result<RecordBatch, ArrowError> {
    let mut batches = StreamReader::try_new(bytes, None)?;
    let unlike = || ArrowError::IpcError("there is not one batch".to_owned());
    let rows = batches.next().unwrap_or_else(|| Err(unlike()))?;
    match batches.next() {
        None => Ok(rows),
        Some(_) => Err(unlike()),
    }
}
