//! Files as a whole: which rows they give, on which line what is wrong, and what a stored position notices.

use std::collections::BTreeMap;

use arrow_schema::{DataType, Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use super::*;

struct World {
    folder: tempfile::TempDir,
    config: SingleFileConfig,
    columns: SchemaRef,
    stored: Vec<SourcePosition>,
    /// Rows a batch.
    rate: Option<f64>,
}

impl World {
    fn new(format: Format, columns: &[(&str, DataType)]) -> Self {
        let column = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
        Self {
            folder: tempfile::tempdir().unwrap(),
            config: SingleFileConfig {
                path: "in".into(),
                format,
                bad_data: BadData::Fail,
            },
            columns: Arc::new(Schema::new(columns.iter().map(column).collect::<Vec<_>>())),
            stored: Vec::new(),
            rate: None,
        }
    }

    /// Columns id and size behind a header.
    fn sizes() -> Self {
        Self::new(
            csv(b',', true),
            &[("id", DataType::Int64), ("size", DataType::Utf8)],
        )
    }

    fn json() -> Self {
        Self::new(Format::Json, &[("id", DataType::Int64)])
    }

    fn dropping(mut self) -> Self {
        self.config.bad_data = BadData::Drop;
        self
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        std::fs::write(self.folder.path().join("in"), text).unwrap();
    }

    async fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        let table = SourceTable {
            name: "t".into(),
            columns: Arc::clone(&self.columns),
            config: SourceConfig::SingleFile(self.config.clone()),
        };
        let opening = Opening {
            parallelism: 1,
            folder: self.folder.path().to_owned(),
            replaced: BTreeMap::new(),
            rate: self.rate,
        };
        let mut opened = open(&table, &opening, &self.stored).await?;
        Ok(opened.remove(0).source)
    }

    /// All rows from the stored position on; the position is stored.
    async fn read(&mut self) -> Result<Vec<String>, String> {
        let mut source = self.open().await.map_err(|error| self.said(&error))?;
        self.read_on(source.as_mut()).await
    }

    async fn read_on(&mut self, source: &mut dyn Source) -> Result<Vec<String>, String> {
        let mut read = Vec::new();
        while let Some(batch) = source.next().await.map_err(|error| self.said(&error))? {
            read.extend(rows(&batch));
        }
        self.store(source.position());
        Ok(read)
    }

    fn store(&mut self, bytes: Vec<u8>) {
        self.stored = vec![SourcePosition {
            name: "t".into(),
            bytes,
        }];
    }

    fn said(&self, error: &SourceError) -> String {
        error
            .to_string()
            .replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }
}

fn csv(delimiter: u8, header: bool) -> Format {
    Format::Csv(CsvOptions {
        header,
        delimiter,
        null: String::new(),
    })
}

fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let row = |at| {
        let values = columns.iter().map(|column| column.value(at).to_string());
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

#[tokio::test]
async fn a_quote_inside_a_field_is_a_character_like_any_other() {
    let file = "id,size\n1,small\n2,mid\n3,5\" pipe\n4,6\" pipe\n5,big\n6,\"a \"\"b\"\"\nc\"\n7,\"end\"";
    let rows = [
        "1|small",
        "2|mid",
        "3|5\" pipe",
        "4|6\" pipe",
        "5|big",
        "6|a \"b\"\nc",
        "7|end",
    ];
    for mut world in [World::sizes(), World::sizes().dropping()] {
        world.write(file);
        assert_eq!(world.read().await.unwrap(), rows);
    }
}

#[tokio::test]
async fn only_wrong_records_are_dropped_and_the_first_of_them_is_named() {
    let file = "id,size\n1,\"a\nb\"\nx,5\" pipe\n3,c,d\n4,\"\"\n";
    let mut world = World::sizes();
    world.write(file);
    let bad = "FOLDER/in, line 4: column id is not BIGINT; mend the line, or set bad_data = 'drop' to leave such lines out";
    assert_eq!(world.read().await.unwrap_err(), bad);
    let mut world = World::sizes().dropping();
    world.write(file);
    let mut source = world.open().await.unwrap();
    assert_eq!(
        world.read_on(source.as_mut()).await.unwrap(),
        ["1|a\nb", "4|NULL"]
    );
    assert_eq!(source.rejected(), 2);
}

#[tokio::test]
async fn a_quote_that_is_never_closed_is_named_by_its_line_even_if_wrong_lines_are_dropped() {
    let error = "FOLDER/in: the quote that opens a field in line 4 is never closed; close it, or write the field in quotes with each of its \
                 own quotes doubled";
    for text in [
        "id,size\n1,\"x\ny\"\n2,\"5\n3,big\n4,big\n",
        "id,size\n1,a\n2,b\n3,\"",
    ] {
        for mut world in [World::sizes(), World::sizes().dropping()] {
            world.write(text);
            assert_eq!(world.read().await.unwrap_err(), error);
        }
    }
}

#[tokio::test]
async fn a_record_that_a_cr_cuts_in_two_is_one_wrong_record() {
    let mut world = World::sizes().dropping();
    world.write("id,size\n1,a\n2,b\r3,c\n4,\"d\re\"\r\n");
    assert_eq!(world.read().await.unwrap(), ["1|a", "4|d\re"]);
    world.stored.clear();
    world.config.bad_data = BadData::Fail;
    let reason = "it holds more than one record: a CR ends one too; end lines with LF or CR LF";
    let error = format!(
        "FOLDER/in, line 3: {reason}; mend the line, or set bad_data = 'drop' to leave such lines out"
    );
    assert_eq!(world.read().await.unwrap_err(), error);
}

#[tokio::test]
async fn a_header_cut_by_a_cr_is_refused_without_its_text() {
    let mut world = World::sizes();
    world.write("id,size\r1,secret\r2,secret\r");
    let error = "FOLDER/in: its header has a CR in the middle; end lines with LF or CR LF, not with CR alone";
    assert_eq!(world.read().await.unwrap_err(), error);
}

#[tokio::test]
async fn a_header_is_a_csv_record_with_quotes_and_a_byte_order_mark() {
    let mut world = World::new(csv(b';', true), &[("a;b", DataType::Utf8), ("c", DataType::Utf8)]);
    world.write("\u{feff}\"x\r\ny\";\"a;b\"; c \r\n1;2;3\r\n");
    assert_eq!(world.read().await.unwrap(), ["2|3"]);
}

#[tokio::test]
async fn a_record_longer_than_the_limit_is_refused_with_the_line_of_its_open_quote() {
    let mut world = World::sizes().dropping();
    let long = "x\n".repeat((16 << 20) / 2);
    world.write(format!("id,size\n1,a\n2,\"{long}"));
    let error = "FOLDER/in: the record that begins in line 3 is longer than 16 MiB; is the quote that opens a field in line 3 closed?";
    assert_eq!(world.read().await.unwrap_err(), error);
}

#[test]
fn a_delimiter_that_is_a_quote_or_a_line_end_is_refused() {
    for delimiter in ["\"", "\n", "\r", ";;"] {
        let sql = format!(
            "CREATE TABLE t (a TEXT) WITH (connector = 'single_file', path = 'x', format = 'csv', 'csv.delimiter' = '{delimiter}');
             CREATE TABLE out (a TEXT) WITH (connector = 'bigquery');
             INSERT INTO out SELECT a FROM t"
        );
        let error = crate::Pipeline::parse(&sql, std::path::Path::new("p.sql")).unwrap_err();
        let expected = format!(
            "p.sql:1:86: option 'csv.delimiter' is '{delimiter}'; it must be one ASCII character, no quote or line end"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn white_space_is_a_value_in_csv_and_a_blank_line_in_json() {
    let mut world = World::new(csv(b'\t', false), &[("a", DataType::Utf8), ("b", DataType::Utf8)]);
    world.write("1\t2\n\t\n\n \t \n");
    assert_eq!(world.read().await.unwrap(), ["1|2", "NULL|NULL", " | "]);
    let mut world = World::new(csv(b',', true), &[("a", DataType::Utf8)]);
    world.write("a\r\n  \r\n\r\n\t\r\nx");
    assert_eq!(world.read().await.unwrap(), ["  ", "\t", "x"]);
    let mut world = World::json();
    world.write("{\"id\": 1}\n \t\r\n\n{\"id\": 2}");
    assert_eq!(world.read().await.unwrap(), ["1", "2"]);
}

#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_the_first_record() {
    let mut world = World::json();
    world.write("\u{feff}{\"id\": 1}\n{\"id\": 2}\n");
    assert_eq!(world.read().await.unwrap(), ["1", "2"]);
    assert_eq!(
        describe_position(&world.stored[0]),
        ("t", "byte 23, after line 2".into())
    );
    assert_eq!(world.read().await.unwrap(), [""; 0]);
    let mut world = World::new(csv(b',', false), &[("a", DataType::Utf8)]);
    world.write("\u{feff}\"x,\ny\"\n\u{feff}z\n");
    assert_eq!(world.read().await.unwrap(), ["x,\ny", "\u{feff}z"]);
}

#[tokio::test]
async fn a_number_that_would_lose_digits_is_named_by_line_and_column() {
    let mut world = World::new(
        Format::Json,
        &[
            ("id", DataType::Int64),
            (
                "at",
                DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, None),
            ),
        ],
    );
    let behind = "; mend the line, or set bad_data = 'drop' to leave such lines out";
    let lost = "BIGINT, but its number is written with a point or exponent and may lose digits beyond 2^53; write all its digits";
    let lost_time = lost.replace("BIGINT", "TIMESTAMP");
    for (line, reason) in [
        ("{\"id\": 9007199254740993.0}", format!("id is {lost}")),
        ("{\"id\": -1.2345678901234567e17}", format!("id is {lost}")),
        ("{\"id\": 9007199254740992.0}", format!("id is {lost}")),
        ("{\"id\": 1e30}", "id is not BIGINT".into()),
        ("{\"id\": 1e400}", "id is not BIGINT".into()),
        ("{\"id\": -9223372036854775809}", "id is not BIGINT".into()),
        ("{\"id\": 4503599627370497.1}", "id is not BIGINT".into()),
        ("{\"id\": 1.00000000000000000001}", "id is not BIGINT".into()),
        ("{\"id\": 1234.5e-1}", "id is not BIGINT".into()),
        ("{\"at\": 9223372036854775808}", "at is not TIMESTAMP".into()),
        ("{\"at\": 1700000000000000001.0}", format!("at is {lost_time}")),
        ("{\"at\": 1.5}", "at is not TIMESTAMP".into()),
    ] {
        world.write(format!("{{\"id\": 1}}\n{line}\n"));
        let error = format!("FOLDER/in, line 2: column {reason}{behind}");
        assert_eq!(world.read().await.unwrap_err(), error);
    }
    world.write("{\"id\": 9007199254740993}\n{\"id\": 9007199254740991.0}\n{\"id\": -1e3}\n{\"id\": 4503599627370495.00}\n{\"id\": 1.25e2}\n{\"id\": 100e-2}\n{\"id\": 0e9}\n{\"id\": 9223372036854775807}\n");
    let rows = [
        "9007199254740993|NULL",
        "9007199254740991|NULL",
        "-1000|NULL",
        "4503599627370495|NULL",
        "125|NULL",
        "1|NULL",
        "0|NULL",
        "9223372036854775807|NULL",
    ];
    assert_eq!(world.read().await.unwrap(), rows);
}

#[tokio::test]
async fn a_file_that_grew_in_the_middle_of_a_line_is_refused_and_one_that_grew_by_lines_goes_on() {
    let mut world = World::sizes();
    world.write("id,size\n1,a\n2,b");
    assert_eq!(world.read().await.unwrap(), ["1|a", "2|b"]);
    world.write("id,size\n1,a\n2,bcd\n3,c\n");
    let error = "FOLDER/in: grew in the middle of line 3, which was already read; put the old file back, or start anew with --new-state";
    assert_eq!(world.read().await.unwrap_err(), error);
    world.write("id,size\n1,a\n2,b");
    assert_eq!(world.read().await.unwrap(), [""; 0]);
    world.stored.clear();
    world.write("id,size\n1,a\n2,b\n");
    assert_eq!(world.read().await.unwrap(), ["1|a", "2|b"]);
    world.write("id,size\n1,a\n2,b\n3,c\n");
    assert_eq!(world.read().await.unwrap(), ["3|c"]);
    assert_eq!(
        describe_position(&world.stored[0]),
        ("t", "byte 20, after line 4".into())
    );
}

#[tokio::test]
async fn a_file_that_grows_in_the_middle_of_a_line_while_it_is_read_is_refused() {
    let mut world = World::json().dropping();
    // One row a batch.
    world.rate = Some(20.0);
    world.write("{\"id\": 1}\n{\"id\": 2}");
    let mut source = world.open().await.unwrap();
    for row in ["1", "2"] {
        assert_eq!(rows(&source.next().await.unwrap().unwrap()), [row]);
    }
    world.write("{\"id\": 1}\n{\"id\": 2}{\"id\": 3}\n");
    let error = "FOLDER/in: grew in the middle of line 2, which was already read; put the old file back, or start anew with --new-state";
    assert_eq!(world.read_on(source.as_mut()).await.unwrap_err(), error);
}

#[tokio::test]
async fn a_changed_header_or_earlier_record_is_seen_when_the_run_goes_on() {
    let long = "x".repeat(3000);
    let file = format!("id,size\n1,{long}\n2,b\n3,c\n");
    let mut world = World::sizes();
    world.write(&file);
    assert_eq!(world.read().await.unwrap().len(), 3);
    let header = "FOLDER/in: its header has changed since it was read; put the old file back, or start anew with --new-state";
    for changed in ["size,id", "id,sizes", "\"id\",size", "id,size,"] {
        world.write(file.replace("id,size", changed));
        assert_eq!(world.read().await.unwrap_err(), header, "{changed}");
    }
    let earlier = "FOLDER/in: has changed before byte 3019, up to which it was read; put the old file back, or start anew with --new-state";
    for (old, new) in [("1,x", "7,x"), ("2,b", "2,B"), ("3,c", "3,C")] {
        world.write(file.replace(old, new));
        assert_eq!(world.read().await.unwrap_err(), earlier, "{new}");
    }
    world.write(file + "4,d\n");
    assert_eq!(world.read().await.unwrap(), ["4|d"]);
}

#[tokio::test]
async fn a_position_of_version_1_goes_on_and_is_stored_with_the_header_from_then_on() {
    use bigquery_sink_state::envelope::{self, Kind};
    let file = "id,size\n1,a\n2,b\n";
    let mut world = World::sizes();
    // Offset, line, length and checksum of the last record alone.
    let old = (12_u64, 2_u64, 4_u32, crc32c::crc32c(b"1,a\n"));
    world.store(envelope::encode(Kind::SourcePosition, 1, &old));
    assert_eq!(
        describe_position(&world.stored[0]),
        ("t", "byte 12, after line 2".into())
    );
    world.write(file);
    assert_eq!(world.read().await.unwrap(), ["2|b"]);
    world.write(file.replace("size", "sice"));
    let error = "FOLDER/in: its header has changed since it was read; put the old file back, or start anew with --new-state";
    assert_eq!(world.read().await.unwrap_err(), error);
}

#[tokio::test]
async fn what_is_compared_is_bounded_however_much_was_read() {
    let mut world = World::json();
    let lines: String = (0..5000).map(|id| format!("{{\"id\": {id}}}\n")).collect();
    world.write(&lines);
    assert_eq!(world.read().await.unwrap().len(), 5000);
    // The last 4096 bytes hold 315 lines of 13 bytes and one byte more.
    let error = format!(
        "FOLDER/in: has changed before byte {}, up to which it was read; put the old file back, or start anew with --new-state",
        lines.len()
    );
    world.write(lines.replace("{\"id\": 4685}", "{\"id\": 9999}"));
    assert_eq!(world.read().await.unwrap_err(), error);
    world.write(lines + "{\"id\": 5000}\n");
    assert_eq!(world.read().await.unwrap(), ["5000"]);
}

#[tokio::test]
async fn a_path_to_something_else_than_a_file_is_refused_by_name() {
    let mut world = World::json();
    let path = world.folder.path().join("in");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(
        world.read().await.unwrap_err(),
        "FOLDER/in: is a folder, not a file"
    );
    std::fs::remove_dir(&path).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(
        world.read().await.unwrap_err(),
        "FOLDER/in: is a socket, not a file"
    );
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert_eq!(
        world.read().await.unwrap_err(),
        "FOLDER/in: is a named pipe, not a file"
    );
    world.config.path = "/dev/null".into();
    assert_eq!(
        world.read().await.unwrap_err(),
        "/dev/null: is a device, not a file"
    );
}

/// Every text of up to five of these characters.
#[tokio::test]
async fn records_are_split_as_the_decoder_splits_them() {
    let mut texts = vec![Vec::new()];
    let mut done = 0;
    for _ in 0..5 {
        let begin = std::mem::replace(&mut done, texts.len());
        for at in begin..done {
            let longer = b"a\",\n\r".map(|next| [texts[at].as_slice(), &[next]].concat());
            texts.extend(longer);
        }
    }
    assert_eq!(texts.len(), 3906);
    let world = World::sizes();
    let path = world.folder.path().join("in");
    for text in texts {
        world.write(&text);
        let mut lines = lines::Lines::open(&path, Some(b','), Compression::None)
            .await
            .unwrap();
        let mut split = Vec::new();
        let closed = loop {
            match lines.record().await {
                Ok(Some(record)) => split.extend(by_csv_core(&record.bytes)),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let shown = String::from_utf8_lossy(&text);
        // Behind closed quotes a further line is a record of its own.
        let further = by_csv_core(&[&text, &b"\nz"[..]].concat()).pop().unwrap();
        assert_eq!(closed, further == (b"z".to_vec(), vec![1]), "{shown:?}");
        if closed {
            assert_eq!(split, by_csv_core(&text), "{shown:?}");
        }
    }
}

/// The records of a text: their fields' bytes, and where each field ends.
fn by_csv_core(text: &[u8]) -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut reader = csv_core::Reader::new();
    let mut records = Vec::new();
    let (mut input, mut out, mut ends) = (text, [0; 64], [0; 64]);
    let (mut written, mut fields) = (0, 0);
    loop {
        let (result, read, more, more_fields) =
            reader.read_record(input, &mut out[written..], &mut ends[fields..]);
        input = &input[read..];
        (written, fields) = (written + more, fields + more_fields);
        match result {
            csv_core::ReadRecordResult::Record => {
                records.push((out[..written].to_vec(), ends[..fields].to_vec()));
                (written, fields) = (0, 0);
            }
            csv_core::ReadRecordResult::InputEmpty => {}
            csv_core::ReadRecordResult::End => return records,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_decimal_or_float_that_would_become_another_number_is_named() {
    let columns = [
        ("price", DataType::Decimal128(10, 2)),
        ("single", DataType::Float32),
        ("double", DataType::Float64),
    ];
    let mut world = World::new(Format::Json, &columns);
    let behind = "; mend the line, or set bad_data = 'drop' to leave such lines out";
    let digits = "price is DECIMAL(10, 2), but its number has more than 2 digits behind the point";
    for (line, reason) in [
        ("{\"price\": 1.239}", digits),
        ("{\"price\": \"1.239\"}", digits),
        ("{\"price\": 1e-3}", digits),
        (
            "{\"single\": 1e39}",
            "single is REAL, but its number is beyond that type's range",
        ),
        (
            "{\"double\": -1e400}",
            "double is DOUBLE, but its number is beyond that type's range",
        ),
    ] {
        world.write(format!("{{\"price\": 1}}\n{line}\n"));
        let error = format!("FOLDER/in, line 2: column {reason}{behind}");
        assert_eq!(world.read().await.unwrap_err(), error);
    }
    world.write("{\"price\": 1.2300, \"single\": 1.5, \"double\": 1e300}\n{\"price\": \"-12.5\"}\n{\"price\": 125e-1}\n");
    assert_eq!(
        world.read().await.unwrap(),
        ["1.23|1.5|1e300", "-12.50|NULL|NULL", "12.50|NULL|NULL"]
    );

    // The same of CSV.
    let mut world = World::new(csv(b',', true), &columns);
    for (line, reason) in [
        ("1.239,,", digits),
        (
            ",1e39,",
            "single is REAL, but its number is beyond that type's range",
        ),
        (
            ",,-1e400",
            "double is DOUBLE, but its number is beyond that type's range",
        ),
    ] {
        world.write(format!("price,single,double\n1,,\n{line}\n"));
        let error = format!("FOLDER/in, line 3: column {reason}{behind}");
        assert_eq!(world.read().await.unwrap_err(), error);
    }
    world.write("price,single,double\n1.2300,1.5,1e300\n-12.5,,\n");
    assert_eq!(
        world.read().await.unwrap(),
        ["1.23|1.5|1e300", "-12.50|NULL|NULL"]
    );
}
