//! Converted rows as protobuf messages: the descriptor is made once, a batch becomes one buffer, and no message is made of a row.
//!
//! A pass over the columns adds up the rows' sizes, by which requests are cut. Then each column is written for a block of rows at
//! once, and the complete rows go one behind the other into a buffer that was made to measure.

mod block;
mod columns;
mod descriptor;
mod layout;
mod measure;
mod output;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use bytes::Bytes;

use super::EncodeError;
use crate::wire::{TableFieldSchema, TableSchema};
use block::{Block, Blocks};
use layout::{Kind, Message};
use output::varint_len;

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

/// Rows as messages, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtoBatch {
    buffer: Bytes,
    /// Where each message ends.
    ends: Arc<[usize]>,
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

    /// Bytes in a request of the batch's first row, its first two rows, and so on.
    pub(super) fn measure(&self, batch: &RecordBatch) -> Arc<[usize]> {
        let mut sizes = vec![0; batch.num_rows()];
        for column in columns::bind(&self.row, batch.columns()) {
            column.measure(&(0..batch.num_rows()), &mut sizes);
        }
        let mut end = 0;
        let ends = sizes.into_iter().map(|size| {
            end += in_request(size);
            end
        });
        ends.collect()
    }

    /// The rows of all batches, which take that many bytes in a request.
    pub(super) fn write<'a>(
        &self,
        batches: impl Iterator<Item = &'a RecordBatch>,
        bytes: usize,
    ) -> ProtoBatch {
        let mut buffer = Vec::with_capacity(bytes);
        let mut ends = Vec::new();
        let mut block = Block::default();
        for batch in batches {
            let columns = columns::bind(&self.row, batch.columns());
            let mut blocks = Blocks::new(&columns, batch.num_rows());
            while let Some(rows) = blocks.next(&columns, &mut block) {
                for row in rows {
                    buffer.extend_from_slice(row);
                    ends.push(buffer.len());
                }
            }
        }
        let written = ProtoBatch {
            buffer: buffer.into(),
            ends: ends.into(),
        };
        debug_assert_eq!(written.bytes(), bytes, "what is written is what was measured");
        written
    }
}

impl ProtoBatch {
    /// Each row's message; shares the buffer.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Bytes> + '_ {
        let mut begin = 0;
        self.ends
            .iter()
            .map(move |&end| self.buffer.slice(std::mem::replace(&mut begin, end)..end))
    }

    /// The first half of the rows, rounded down, and the others; both share the buffer.
    pub(super) fn halve(&self) -> (Self, Self) {
        let (first, second) = self.ends.split_at(self.ends.len() / 2);
        let middle = first.last().copied().unwrap_or(0);
        let part = |buffer, ends: Arc<[usize]>| Self { buffer, ends };
        (
            part(self.buffer.slice(..middle), first.into()),
            part(
                self.buffer.slice(middle..),
                second.iter().map(|end| end - middle).collect(),
            ),
        )
    }

    /// Bytes of the rows in a request, each with what says where it ends.
    pub(super) fn bytes(&self) -> usize {
        let begins = std::iter::once(&0).chain(self.ends.iter());
        begins
            .zip(self.ends.iter())
            .map(|(begin, end)| in_request(end - begin))
            .sum()
    }
}

/// A row of a `ProtoRows` has a tag and its length before it, which for small rows is much (reports.md 73).
fn in_request(size: usize) -> usize {
    1 + varint_len(size as u64) + size
}
