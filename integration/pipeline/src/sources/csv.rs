//! CSV records to columns, by the header's names or by position. Empty fields are nulls.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_csv::ReaderBuilder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use regex::Regex;

use super::single_file::{BadRecord, CsvOptions};
use crate::sql::sql_name;

/// Decodes records against the declared columns.
#[derive(Debug)]
pub(super) struct CsvDecoder {
    declared: SchemaRef,
    /// The file's columns in its order, all nullable; those not declared are text that is not read.
    file: SchemaRef,
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
        let file = Arc::new(Schema::new(file));
        Ok(Self {
            declared: Arc::clone(declared),
            file,
            places,
            delimiter: options.delimiter,
            nulls,
        })
    }

    /// One row a record, or the first record that is wrong.
    pub(super) fn decode(&self, records: &[&[u8]]) -> Result<RecordBatch, BadRecord> {
        if let Some(batch) = self
            .check(records)
            .ok()
            .filter(|batch| batch.num_rows() == records.len())
        {
            return Ok(batch);
        }
        let bad = records.iter().enumerate().find_map(|(index, record)| {
            self.check(&[record])
                .err()
                .map(|reason| BadRecord { index, reason })
        });
        Err(bad.unwrap_or(BadRecord {
            index: 0,
            reason: "it does not fit the declared columns".into(),
        }))
    }

    pub(super) fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(Arc::clone(&self.declared))
    }

    fn check(&self, records: &[&[u8]]) -> Result<RecordBatch, String> {
        let mut sorted = self.places.clone();
        sorted.sort_unstable();
        let mut decoder = ReaderBuilder::new(Arc::clone(&self.file))
            .with_header(false)
            .with_delimiter(self.delimiter)
            .with_null_regex(self.nulls.clone())
            .with_batch_size(records.len() + 1)
            .with_projection(sorted.clone())
            .build_decoder();
        for record in records {
            for bytes in [record, &b"\n"[..]] {
                let read = decoder
                    .decode(bytes)
                    .map_err(|error| self.reason(&error.to_string()))?;
                if read != bytes.len() {
                    return Err("it holds more than one record".into());
                }
            }
        }
        // An empty read tells the decoder that the last record is over.
        decoder
            .decode(&[])
            .map_err(|error| self.reason(&error.to_string()))?;
        let batch = decoder.flush().map_err(|error| self.reason(&error.to_string()))?;
        let batch = batch.ok_or("it holds no record")?;
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
                return Err(format!("column {} is NOT NULL but empty", field.name()));
            }
        }
        RecordBatch::try_new(Arc::clone(&self.declared), columns)
            .map_err(|_| "it does not fit the declared columns".to_owned())
    }

    /// Names the column; the rest of the decoder's text shows values and is left out.
    fn reason(&self, text: &str) -> String {
        if text.contains("unequal lengths") || text.contains("incorrect number of fields") {
            return format!("it does not have {} fields", self.file.fields().len());
        }
        let number = text.split("column ").nth(1).and_then(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<usize>().ok()
        });
        match number.and_then(|number| self.file.fields().get(number)) {
            Some(field) => format!("column {} is not {}", field.name(), sql_name(field.data_type())),
            None => "a field does not have the type of its column".into(),
        }
    }
}

/// Names of a header, with quotes taken off.
fn header_names(header: &[u8], delimiter: u8) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(header).map_err(|_| "its header is not UTF-8".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
    let names = text
        .split(char::from(delimiter))
        .map(|name| name.trim().trim_matches('"').to_owned());
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
        let cases: [(&[u8], &str); 5] = [
            (b"a,x,secret,", "column n is not BIGINT"),
            (b"a,x,1.5,", "column n is not BIGINT"),
            (b"a,x,1,secret", "column at is not TIMESTAMP"),
            (b",x,1,", "column name is NOT NULL but empty"),
            (b"a,x,1", "it does not have 4 fields"),
        ];
        for (bad, reason) in cases {
            let error = decoder().decode(&[b"a,x,1,", bad]).unwrap_err();
            assert_eq!((error.index, error.reason.as_str()), (1, reason));
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
