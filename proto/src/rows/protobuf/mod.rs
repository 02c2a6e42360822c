//! Converted rows as protobuf messages: the descriptor is made once, a batch becomes one buffer, and no message is made of a row.
//!
//! Sizes come first, since protobuf writes them before what they measure: a pass over the columns adds them up by row, those of
//! inner messages are kept, and the buffer is made to measure. Then rows are written one behind the other.

mod columns;
mod descriptor;
mod layout;
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
use layout::{Kind, Message};
use output::{Output, SLACK, varint_len};

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
        columns::bind(&self.row, batch.columns(), &(0..batch.num_rows()), &mut sizes);
        let mut end = 0;
        let ends = sizes.into_iter().map(|size| {
            end += in_request(size);
            end
        });
        ends.collect()
    }

    /// The rows of all batches.
    pub(super) fn write<'a>(&self, batches: impl Iterator<Item = &'a RecordBatch> + Clone) -> ProtoBatch {
        let rows = batches.clone().map(RecordBatch::num_rows).sum();
        let mut ends = vec![0; rows];
        let mut bound = Vec::new();
        let mut sizes = ends.as_mut_slice();
        for batch in batches {
            let (own, rest) = sizes.split_at_mut(batch.num_rows());
            bound.push((
                batch.num_rows(),
                columns::bind(&self.row, batch.columns(), &(0..batch.num_rows()), own),
            ));
            sizes = rest;
        }
        let mut total = 0;
        for end in &mut ends {
            total += *end;
            *end = total;
        }
        let mut buffer = vec![0; total + SLACK];
        let mut output = Output::new(&mut buffer);
        for (rows, columns) in &bound {
            for row in 0..*rows {
                for column in columns {
                    column.write(row, &mut output);
                }
            }
        }
        debug_assert_eq!(output.at(), total, "what is written is what was measured");
        buffer.truncate(total);
        ProtoBatch {
            buffer: buffer.into(),
            ends: ends.into(),
        }
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
