//! CSV records to columns, by the header's names or by position. Empty fields are nulls.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, RecordBatch};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Format;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use regex::Regex;

use super::lines::Quotes;
use super::numbers;
use super::single_file::CsvOptions;
use crate::sql::sql_name;

/// Decodes records against the declared columns.
#[derive(Debug)]
pub(super) struct CsvDecoder {
    declared: SchemaRef,
    /// The file's columns in its order, all nullable; those not declared are text that is not read.
    file: SchemaRef,
    /// The same columns as texts.
    texts: SchemaRef,
    /// For each declared column its place in the file.
    places: Vec<usize>,
    delimiter: u8,
    nulls: Regex,
}

impl CsvDecoder {
    /// A type that a field of text cannot hold, if a declared column has one.
    pub(super) fn refuse(declared: &Schema) -> Option<String> {
        let nested = declared.fields().iter().find(|field| {
            field.data_type().is_nested()
                || matches!(field.data_type(), DataType::Binary | DataType::Interval(_))
        })?;
        Some(format!(
            "column {} is {}, which CSV cannot hold",
            nested.name(),
            sql_name(nested.data_type())
        ))
    }

    /// `header` is the file's first record if it has one; the reason why not, otherwise.
    pub(super) fn new(
        declared: &SchemaRef,
        options: &CsvOptions,
        header: Option<&[u8]>,
    ) -> Result<Self, String> {
        let nullable = |field: &Field| field.clone().with_nullable(true);
        let (file, places) = match header {
            None => {
                let fields: Vec<_> = declared.fields().iter().map(|field| nullable(field)).collect();
                (fields, (0..declared.fields().len()).collect())
            }
            Some(header) => {
                let names = header_names(header, options.delimiter)?;
                let place = |field: &Arc<Field>| {
                    let place = names.iter().position(|name| name == field.name());
                    place.ok_or_else(|| {
                        format!(
                            "its header has no column {}; it has {}",
                            field.name(),
                            names.join(", ")
                        )
                    })
                };
                let places = declared
                    .fields()
                    .iter()
                    .map(place)
                    .collect::<Result<Vec<_>, String>>()?;
                let fields = names.iter().map(|name| match declared.field_with_name(name) {
                    Ok(field) => nullable(field),
                    Err(_) => Field::new(name, DataType::Utf8, true),
                });
                (fields.collect(), places)
            }
        };
        let nulls = format!("^({})?$", regex::escape(&options.null));
        let nulls = Regex::new(&nulls).map_err(|_| "its null marker is too long".to_owned())?;
        let texts: Vec<_> = file
            .iter()
            .map(|field| Field::new(field.name(), DataType::Utf8, true))
            .collect();
        let file = Arc::new(Schema::new(file));
        Ok(Self {
            declared: Arc::clone(declared),
            file,
            texts: Arc::new(Schema::new(texts)),
            places,
            delimiter: options.delimiter,
            nulls,
        })
    }

    /// One row a record, if none of them is wrong.
    pub(super) fn decode(&self, records: &[&[u8]]) -> Option<RecordBatch> {
        self.check(records).ok()
    }

    /// What is wrong with a record.
    pub(super) fn bad_alone(&self, record: &[u8]) -> Option<String> {
        let reason = self.check(&[record]).err()?;
        Some(match reason {
            Wrong::Told(reason) => reason,
            Wrong::Value => self
                .culprit(record)
                .unwrap_or_else(|| "a field does not have the type of its column".into()),
        })
    }

    fn check(&self, records: &[&[u8]]) -> Result<RecordBatch, Wrong> {
        let mut sorted = self.places.clone();
        sorted.sort_unstable();
        let batch = self.rows(&self.file, records, &sorted)?;
        self.judge_numbers(records)?;
        let at = |place: &usize| {
            sorted
                .binary_search(place)
                .expect("the places were sorted from this list")
        };
        let columns: Vec<_> = self
            .places
            .iter()
            .map(|place| Arc::clone(batch.column(at(place))))
            .collect();
        for (field, column) in self.declared.fields().iter().zip(&columns) {
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(Wrong::Told(format!(
                    "column {} is NOT NULL but empty",
                    field.name()
                )));
            }
        }
        RecordBatch::try_new(Arc::clone(&self.declared), columns).map_err(|_| Wrong::Value)
    }

    /// Refuses numbers of which the decoder would keep others than are written.
    fn judge_numbers(&self, records: &[&[u8]]) -> Result<(), Wrong> {
        let fields = self.declared.fields().iter().zip(&self.places);
        for (field, place) in fields.filter(|(field, _)| numbers::may_lose_digits(field.data_type())) {
            let texts = self.rows(&self.texts, records, &[*place])?;
            for text in texts.column(0).as_string::<i32>().iter().flatten() {
                numbers::judge(field.data_type(), field.name(), text).map_err(Wrong::Told)?;
            }
        }
        Ok(())
    }

    /// Exactly one row a record, of the file's columns at these places, in the types of this schema.
    fn rows(&self, schema: &SchemaRef, records: &[&[u8]], places: &[usize]) -> Result<RecordBatch, Wrong> {
        let mut decoder = ReaderBuilder::new(Arc::clone(schema))
            .with_header(false)
            .with_delimiter(self.delimiter)
            .with_null_regex(self.nulls.clone())
            .with_batch_size(records.len() + 1)
            .with_projection(places.to_vec())
            .build_decoder();
        // The line end before the first record keeps a byte-order mark that is a value's.
        for bytes in [&b"\n"[..]]
            .into_iter()
            .chain(records.iter().flat_map(|record| [*record, &b"\n"[..]]))
        {
            if decoder.decode(bytes).map_err(|error| self.wrong(&error))? != bytes.len() {
                return Err(Wrong::more_than_one());
            }
        }
        // An empty read tells the decoder that the last record is over.
        decoder.decode(&[]).map_err(|error| self.wrong(&error))?;
        let batch = decoder.flush().map_err(|error| self.wrong(&error))?;
        let batch = match batch {
            Some(batch) => batch,
            None => {
                let columns = schema.project(places).map_err(|error| self.wrong(&error))?;
                RecordBatch::new_empty(Arc::new(columns))
            }
        };
        match batch.num_rows().cmp(&records.len()) {
            Ordering::Less => Err(Wrong::Told("it holds no record".into())),
            Ordering::Equal => Ok(batch),
            Ordering::Greater => Err(Wrong::more_than_one()),
        }
    }

    /// The first column that fails on its own: which one the decoder means stands in its text behind a value.
    fn culprit(&self, record: &[u8]) -> Option<String> {
        let mut fields = self.declared.fields().iter().zip(&self.places);
        let (field, _) = fields.find(|(_, place)| self.rows(&self.file, &[record], &[**place]).is_err())?;
        Some(format!(
            "column {} is not {}",
            field.name(),
            sql_name(field.data_type())
        ))
    }

    /// The decoder's text shows values and is left out.
    fn wrong(&self, error: &ArrowError) -> Wrong {
        match error {
            // Errors about a value are of another kind, so these texts begin with no value.
            ArrowError::CsvError(text) if text.starts_with("incorrect number of fields") => {
                Wrong::Told(format!("it does not have {} fields", self.file.fields().len()))
            }
            ArrowError::CsvError(text) if text.starts_with("Encountered invalid UTF-8") => {
                Wrong::Told("it is not UTF-8".into())
            }
            _ => Wrong::Value,
        }
    }
}

/// Why records cannot be read.
enum Wrong {
    /// For this reason.
    Told(String),
    /// A field does not have the type of its column.
    Value,
}

impl Wrong {
    fn more_than_one() -> Self {
        Self::Told("it holds more than one record: a CR ends one too; end lines with LF or CR LF".into())
    }
}

/// Names of a header.
fn header_names(header: &[u8], delimiter: u8) -> Result<Vec<String>, String> {
    let ends = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let length = header
        .iter()
        .rposition(|byte| !ends(byte))
        .map_or(0, |last| last + 1);
    let header = &header[..length];
    if Quotes::cut_by_cr(header, delimiter) {
        return Err(
            "its header has a CR in the middle; end lines with LF or CR LF, not with CR alone".into(),
        );
    }
    std::str::from_utf8(header).map_err(|_| "its header is not UTF-8".to_owned())?;
    let format = Format::default().with_header(true).with_delimiter(delimiter);
    let (names, _) = format
        .infer_schema(header, Some(0))
        .map_err(|_| "its header is no CSV record".to_owned())?;
    let names = names.fields().iter().map(|field| field.name().trim().to_owned());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampNanosecondType};
    use arrow_schema::TimeUnit;

    fn declared() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("at", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
            Field::new("n", DataType::Int64, true),
            Field::new("name", DataType::Utf8, false),
        ]))
    }

    fn decoder() -> CsvDecoder {
        let options = CsvOptions {
            header: true,
            delimiter: b',',
            null: "NA".into(),
        };
        CsvDecoder::new(&declared(), &options, Some(b"name,unused,n,at\n")).unwrap()
    }

    #[test]
    fn columns_are_found_by_the_headers_names_and_empty_or_marked_fields_are_null() {
        let records: [&[u8]; 3] = [
            b"a,x,1,2013-01-01T10:00:00Z",
            b"\"b, c\",,NA,",
            b"\"d \"\"e\"\"\",x,,1970-01-01T00:00:00.000001Z",
        ];
        let batch = decoder().decode(&records).unwrap();
        assert_eq!(batch.schema(), declared());
        let at: Vec<_> = batch
            .column(0)
            .as_primitive::<TimestampNanosecondType>()
            .iter()
            .collect();
        assert_eq!(at, [Some(1_357_034_400_000_000_000), None, Some(1000)]);
        let n: Vec<_> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(n, [Some(1), None, None]);
        let name: Vec<_> = batch.column(2).as_string::<i32>().iter().collect();
        assert_eq!(name, [Some("a"), Some("b, c"), Some("d \"e\"")]);
    }

    #[test]
    fn each_wrong_record_is_named_with_its_column_and_no_value() {
        let cases: [(&[u8], &str); 10] = [
            (b"a,x,secret,", "column n is not BIGINT"),
            (b"a,x,column 3 of secret,", "column n is not BIGINT"),
            (b"a,x,1,column 0 of secret", "column at is not TIMESTAMP"),
            (b"a,x,incorrect number of fields,", "column n is not BIGINT"),
            (b"\xff,x,1,", "it is not UTF-8"),
            (
                b"a,x,1,\rb,x,2,",
                "it holds more than one record: a CR ends one too; end lines with LF or CR LF",
            ),
            (b"a,x,1.5,", "column n is not BIGINT"),
            (b"a,x,1,secret", "column at is not TIMESTAMP"),
            (b",x,1,", "column name is NOT NULL but empty"),
            (b"a,x,1", "it does not have 4 fields"),
        ];
        for (bad, reason) in cases {
            assert_eq!(decoder().decode(&[b"a,x,1,", bad]), None);
            assert_eq!(decoder().bad_alone(b"a,x,1,"), None);
            assert_eq!(decoder().bad_alone(bad).as_deref(), Some(reason));
        }
    }

    #[test]
    fn a_declared_column_that_the_header_lacks_is_refused() {
        let options = CsvOptions {
            header: true,
            delimiter: b';',
            null: String::new(),
        };
        let error = CsvDecoder::new(&declared(), &options, Some(b"at;name\r\n")).unwrap_err();
        assert_eq!(error, "its header has no column n; it has at, name");
    }
}
