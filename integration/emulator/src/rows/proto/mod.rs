//! Protobuf rows: a descriptor, and messages that follow it (write-api.md 5.1 to 5.4).

use arrow_schema::ArrowError;
use bytes::Bytes;

use super::fit::Misfit;
use super::{Memory, RowErrors};
use crate::machine::Switches;
use crate::schema::Column;

pub(super) use decode::Decoded;
pub(super) use descriptor::{Descriptor, DescriptorError};

mod civil;
mod decode;
mod descriptor;
mod fit;
mod raw;
mod source;
#[cfg(test)]
mod tests;
mod values;
mod wire;

/// Reads rows into a table's columns; in those to be `filled` a default value will take the place of NULL. Bad rows go
/// to `errors`, and there are no columns then.
///
/// # Errors
/// The outer one if the descriptor does not fit the table, the inner one if all rows together cannot be read.
pub(super) fn read(
    descriptor: &Descriptor,
    rows: &[Bytes],
    columns: &[Column],
    filled: &[bool],
    switches: &Switches,
    memory: &Memory,
    errors: &mut RowErrors,
) -> Result<Result<Decoded, ArrowError>, Misfit> {
    let level = fit::fit(descriptor, columns, switches)?;
    Ok(decode::decode(
        rows, &level, columns, filled, switches, memory, errors,
    ))
}
