//! A refused row as a JSON object, for people and for a query that mends it and writes it again.

use std::io::Write as _;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use bigquery_write_proto::rows::plain;
use serde_json::json;

use crate::error::SinkError;

/// A longer object would not fit into a request with the rest of its letter.
pub(super) const LONGEST: usize = 8 << 20;

/// The objects of a batch's rows.
///
/// Integers are numbers, since BigQuery's JSON keeps all of 64 bits; decimals are text, since it does not keep theirs. Bytes are text in
/// hexadecimal digits, dates and times as ISO 8601 has them, what is not a finite number is null.
#[derive(Debug)]
pub(super) struct Documents(RecordBatch);

impl Documents {
    /// A column of a type that has no JSON is told of by its type.
    pub(super) fn of(rows: &RecordBatch) -> Self {
        let fields = rows.schema_ref().fields().iter();
        let columns = fields.zip(rows.columns()).map(|(field, array)| {
            // Arrow's writer knows neither views nor runs.
            let array = plain(array).unwrap_or_else(|_| Arc::clone(array));
            let kind = array.data_type().clone();
            let plain: FieldRef = Arc::new(Field::new(field.name(), kind, true));
            let probe = RecordBatch::try_new(
                Arc::new(Schema::new(vec![Arc::clone(&plain)])),
                vec![array.slice(0, array.len().min(1))],
            );
            if probe.and_then(|probe| written(&probe)).is_ok() {
                return (plain, array);
            }
            let text = format!("a value of type {}, which has no JSON form", field.data_type());
            let field: FieldRef = Arc::new(Field::new(field.name(), DataType::Utf8, true));
            let told: Arc<dyn Array> = Arc::new(StringArray::from(vec![text; array.len()]));
            (field, told)
        });
        let (fields, arrays): (Vec<FieldRef>, Vec<_>) = columns.unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Self(batch.expect("columns of one batch, or as long as they are"))
    }

    /// The object of one row; one that says how long it is where it is longer than so many bytes.
    pub(super) fn row(&self, row: usize, longest: usize) -> Result<String, SinkError> {
        let internal =
            |error| SinkError::internal("a refused row could not be written as JSON").with_source(error);
        let bytes = written(&self.0.slice(row, 1)).map_err(internal)?;
        if bytes.len() > longest {
            let told =
                json!({ "omitted": "the row is too long for a dead letter", "json_bytes": bytes.len() });
            return Ok(told.to_string());
        }
        String::from_utf8(bytes)
            .map_err(|error| SinkError::internal("JSON that is not UTF-8").with_source(error))
    }
}

fn written(rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let builder = WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(DecimalsAsText));
    let mut writer = builder.build::<_, LineDelimited>(Vec::new());
    writer.write(rows)?;
    writer.finish()?;
    let mut bytes = writer.into_inner();
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(bytes)
}

/// BigQuery refuses a number in JSON that it cannot keep.
#[derive(Debug)]
struct DecimalsAsText;

impl EncoderFactory for DecimalsAsText {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if !matches!(
            array.data_type(),
            DataType::Decimal128(..) | DataType::Decimal256(..)
        ) {
            return Ok(None);
        }
        let options = FormatOptions::new().with_display_error(true);
        let formatter = ArrayFormatter::try_new(array, &options)?;
        let encoder = Box::new(Quoted(formatter));
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// Digits, a sign and a point need no escapes.
struct Quoted<'a>(ArrayFormatter<'a>);

impl Encoder for Quoted<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        write!(out, "\"{}\"", self.0.value(row)).expect("a Vec takes all bytes");
    }
}
