//! The two IPC messages of `arrow_rows`, and their size before they exist.

use std::io::Read as _;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{ArrowError, DataType, Schema};
use bytes::Bytes;

use super::EncodeError;

/// Padding of buffers; the least the format allows, and what pyarrow and Java send.
const ALIGNMENT: usize = 8;

/// Room for the fixed part of a message's header.
const HEADER: usize = 192;

/// Bytes of the header per array, and again per buffer.
const DESCRIPTOR: usize = 16;

/// One encapsulated Schema message.
pub(super) fn schema_message(schema: &Schema) -> Bytes {
    let options = write_options();
    let mut dictionaries = DictionaryTracker::new(true);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut dictionaries,
        &options,
    );
    encapsulated(encoded, &options).expect("a schema message has no body and is written to memory")
}

/// One encapsulated RecordBatch message. Buffers are cut to what the batch's slice covers.
pub(super) fn batch_message(batch: &RecordBatch) -> Result<Bytes, EncodeError> {
    let options = write_options();
    let mut dictionaries = DictionaryTracker::new(true);
    let (_, encoded) = IpcDataGenerator::default().encoded_batch(batch, &mut dictionaries, &options)?;
    Ok(encapsulated(encoded, &options)?)
}

/// The batch of such a message, under the schema of the other.
pub(super) fn read_batch(schema: &Bytes, message: &Bytes) -> Result<RecordBatch, EncodeError> {
    let mut reader = StreamReader::try_new(schema.as_ref().chain(message.as_ref()), None)?;
    let batch = reader.next().transpose()?;
    batch.ok_or_else(|| ArrowError::IpcError("the message holds no record batch".to_owned()).into())
}

fn write_options() -> IpcWriteOptions {
    IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5).expect("8 bytes and version 5 are valid")
}

fn encapsulated(encoded: EncodedData, options: &IpcWriteOptions) -> Result<Bytes, ArrowError> {
    let mut message =
        Vec::with_capacity(encoded.ipc_message.len() + encoded.arrow_data.len() + 2 * ALIGNMENT);
    write_message(&mut message, encoded, options)?;
    Ok(message.into())
}

/// Size in bytes of a converted batch's message, never less and a few hundred bytes more at most. Costs a few steps per column
/// whatever the number of rows, and of a slice counts the slice only.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    HEADER
        + batch
            .columns()
            .iter()
            .map(|column| array_bytes(column.as_ref()))
            .sum::<usize>()
}

fn array_bytes(array: &dyn Array) -> usize {
    let len = array.len();
    let (buffers, bytes) = match array.data_type() {
        DataType::Boolean => (1, padded(len.div_ceil(8))),
        DataType::Utf8 => offsets_bytes(array.as_string::<i32>().value_offsets(), true),
        DataType::Binary => offsets_bytes(array.as_binary::<i32>().value_offsets(), true),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (buffers, bytes) = offsets_bytes(list.value_offsets(), false);
            let (first, elements) = covered(list.value_offsets());
            (
                buffers,
                bytes + array_bytes(list.values().slice(first, elements).as_ref()),
            )
        }
        DataType::Struct(_) => (
            0,
            array
                .as_struct()
                .columns()
                .iter()
                .map(|child| array_bytes(child.as_ref()))
                .sum(),
        ),
        plain => match plain.primitive_width() {
            Some(width) => (1, padded(width * len)),
            // Not a wire type; encode() would refuse it.
            None => (2, array.get_array_memory_size()),
        },
    };
    // Validity is always written.
    bytes + padded(len.div_ceil(8)) + DESCRIPTOR * (2 + buffers)
}

fn offsets_bytes(offsets: &[i32], with_values: bool) -> (usize, usize) {
    let bytes = padded(size_of_val(offsets));
    if with_values {
        (2, bytes + padded(covered(offsets).1))
    } else {
        (1, bytes)
    }
}

fn covered(offsets: &[i32]) -> (usize, usize) {
    let first = offsets.first().copied().unwrap_or(0) as usize;
    let last = offsets.last().copied().unwrap_or(0) as usize;
    (first, last - first)
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}
