//! Converted rows as protobuf messages: the descriptor is made once, a batch becomes one buffer, and no message is made of a row.
//!
//! Each column is written for a block of rows at once, and the complete rows go one behind the other into buffers. There each
//! stands as a request has it, so that where it ends is what it takes: requests are cut and joined by that, and nothing is copied.

mod batch;
mod block;
mod columns;
mod descriptor;
mod layout;
mod output;
#[cfg(test)]
mod tests;
mod values;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use bytes::Bytes;

use super::EncodeError;
use crate::wire::{TableFieldSchema, TableSchema};
pub use batch::ProtoBatch;
use batch::Writer;
use block::{Block, Blocks};
use layout::{Kind, Message};

/// The protobuf type that values of a wire type travel in; `None` for one of no wire schema.
pub(super) fn type_name(wire: &DataType, column: &TableFieldSchema) -> Option<&'static str> {
    let kind = Kind::new(wire, Some(column)).ok()??;
    Some(descriptor::type_name(&kind))
}

/// Writes rows under one wire schema as messages of one type.
#[derive(Debug)]
pub(super) struct Messages {
    row: Message,
    descriptor: Bytes,
}

impl Messages {
    /// For rows under the wire schema, on their way to that table.
    ///
    /// # Errors
    /// A type that is none of a wire schema's.
    pub(super) fn new(wire: &Schema, table: &TableSchema) -> Result<Self, EncodeError> {
        let row = Message::new(wire.fields(), &table.fields)?;
        let descriptor = descriptor::describe(&row);
        Ok(Self { row, descriptor })
    }

    /// The serialized `DescriptorProto` of a row.
    pub(super) fn descriptor(&self) -> &Bytes {
        &self.descriptor
    }

    /// The rows of a batch under the wire schema.
    pub(super) fn write(&self, batch: &RecordBatch) -> ProtoBatch {
        let columns = columns::bind(&self.row, batch.columns(), None);
        let mut blocks = Blocks::new(&columns, batch.num_rows());
        let mut writer = Writer::new(blocks.room());
        let mut block = Block::default();
        while let Some(rows) = blocks.next(&columns, &mut block) {
            rows.for_each(|row| writer.push(row));
        }
        writer.finish()
    }
}
