//! Protobuf rows against descriptors and messages written by hand.

use arrow_schema::ArrowError;
use bytes::Bytes;
use prost::Message;
use prost_types::DescriptorProto;

use super::decode::Decoded;
use super::descriptor::Descriptor;
use crate::machine::Switches;
use crate::rows::{Memory, RowErrors};
use crate::schema::Column;

mod descriptors;
mod encode;
mod hostile;
mod random;
mod rows;

/// What came of rows: columns, or bad rows with their texts.
type Outcome = Result<Decoded, Vec<(usize, String)>>;

/// Reads rows; descriptor and table fit.
fn read(descriptor: &DescriptorProto, columns: &[Column], rows: Vec<Vec<u8>>) -> Outcome {
    let descriptor = Descriptor::read(&descriptor.encode_to_vec(), &Switches::default()).unwrap();
    read_with(&descriptor, columns, rows, &Switches::default()).unwrap()
}

fn read_with(
    descriptor: &Descriptor,
    columns: &[Column],
    rows: Vec<Vec<u8>>,
    switches: &Switches,
) -> Result<Outcome, ArrowError> {
    let rows: Vec<Bytes> = rows.into_iter().map(Bytes::from).collect();
    let (memory, mut errors) = (Memory::of(switches), RowErrors::default());
    let read = super::read(descriptor, &rows, columns, &[], switches, &memory, &mut errors).unwrap()?;
    Ok(if errors.is_empty() {
        Ok(read)
    } else {
        Err(errors.errors.into_iter().collect())
    })
}
