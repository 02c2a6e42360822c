//! Folders as a whole: which rows their files give, in which order, where a run goes on, and what is refused.

use std::collections::BTreeMap;
use std::fs::File;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression as Codec};
use parquet::file::properties::WriterProperties;

use super::*;
use crate::sources::{describe_position, open as open_source};
use crate::sql::SourceTable;

/// A folder that is read, and the position of the run before.
pub(super) struct World {
    folder: tempfile::TempDir,
    pub(super) config: FilesystemConfig,
    pub(super) columns: SchemaRef,
    stored: Vec<SourcePosition>,
    /// Twenty times the rows of a batch.
    rate: Option<f64>,
}

impl World {
    pub(super) fn new(format: FileFormat, columns: &[(&str, DataType)]) -> Self {
        let column = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
        Self {
            folder: tempfile::tempdir().unwrap(),
            config: FilesystemConfig {
                path: "in".into(),
                format,
                pattern: None,
                compression: Compression::None,
                bad_data: BadData::Fail,
            },
            columns: Arc::new(Schema::new(columns.iter().map(column).collect::<Vec<_>>())),
            stored: Vec::new(),
            rate: None,
        }
    }

    fn json() -> Self {
        Self::new(FileFormat::Json, &[("id", DataType::Int64)])
    }

    fn parquet() -> Self {
        Self::new(
            FileFormat::Parquet,
            &[("id", DataType::Int64), ("name", DataType::Utf8)],
        )
    }

    fn dropping(mut self) -> Self {
        self.config.bad_data = BadData::Drop;
        self
    }

    fn with_pattern(mut self, pattern: &str) -> Self {
        self.config.pattern = Some(pattern.to_owned());
        self
    }

    /// With so many rows a batch.
    fn with_batches(mut self, rows: f64) -> Self {
        self.rate = Some(rows * 20.0);
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join("in").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A file of columns id and name, with so many rows in each row group.
    fn write_parquet(&self, name: &str, ids: std::ops::Range<i64>, row_group: usize) {
        write_batch(&self.path(name), &numbered(ids), row_group, Codec::SNAPPY);
    }

    async fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        let table = SourceTable {
            name: "t".into(),
            columns: Arc::clone(&self.columns),
            config: SourceConfig::Filesystem(self.config.clone()),
        };
        let opening = Opening {
            parallelism: 1,
            folder: self.folder.path().to_owned(),
            replaced: BTreeMap::new(),
            rate: self.rate,
        };
        let mut opened = open_source(&table, &opening, &self.stored).await?;
        Ok(opened.remove(0).source)
    }

    /// All rows from the stored position on; the position is stored.
    pub(super) async fn read(&mut self) -> Result<Vec<String>, String> {
        let mut source = self.open().await.map_err(|error| self.said(&error))?;
        self.read_on(source.as_mut()).await
    }

    async fn read_on(&mut self, source: &mut dyn Source) -> Result<Vec<String>, String> {
        let mut read = Vec::new();
        while let Some(batch) = source.next().await.map_err(|error| self.said(&error))? {
            read.extend(rows(&batch));
        }
        self.store(source);
        Ok(read)
    }

    /// The rows of so many batches; the position behind them is stored.
    async fn read_batches(&mut self, batches: usize) -> Vec<String> {
        let mut source = self.open().await.unwrap();
        let mut read = Vec::new();
        for _ in 0..batches {
            read.extend(rows(&source.next().await.unwrap().unwrap()));
        }
        self.store(source.as_ref());
        read
    }

    fn store(&mut self, source: &dyn Source) {
        self.stored = vec![SourcePosition {
            name: "t".into(),
            bytes: source.position(),
        }];
    }

    fn position(&self) -> String {
        describe_position(&self.stored[0]).1
    }

    fn said(&self, error: &SourceError) -> String {
        assert!(!error.restart_may_help());
        error
            .to_string()
            .replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }
}

fn numbered(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: StringArray = ids
        .clone()
        .map(|id| (id % 3 != 0).then(|| format!("n{id}")))
        .collect();
    let ids: Int64Array = ids.map(Some).collect();
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("name", Arc::new(names))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// What `numbered` reads as.
fn shown(ids: std::ops::Range<i64>) -> Vec<String> {
    let row = |id| {
        if id % 3 == 0 {
            format!("{id}|NULL")
        } else {
            format!("{id}|n{id}")
        }
    };
    ids.map(row).collect()
}

pub(super) fn write_batch(path: &std::path::Path, batch: &RecordBatch, row_group: usize, compression: Codec) {
    let properties = WriterProperties::builder()
        .set_max_row_group_size(row_group)
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(3)
        .set_compression(compression)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
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
async fn files_are_read_by_name_and_without_a_pattern_those_of_the_folder_alone() {
    let write = |world: &World| {
        for (name, id) in [
            ("b.json", 2),
            ("a.json", 1),
            ("a/x.json", 4),
            ("a/x.txt", 5),
            ("B.json", 3),
        ] {
            world.write(name, format!("{{\"id\": {id}}}"));
        }
    };
    let mut world = World::json();
    write(&world);
    assert_eq!(world.read().await.unwrap(), ["3", "1", "2"]);
    for (pattern, ids) in [
        (r"\.json$", &["3", "1", "4", "2"][..]),
        ("x", &["4", "5"]),
        ("^a/", &["4", "5"]),
        ("^a", &["1", "4", "5"]),
    ] {
        let mut world = World::json().with_pattern(pattern);
        write(&world);
        assert_eq!(world.read().await.unwrap(), ids, "{pattern}");
    }
}

#[tokio::test]
async fn one_file_is_read_like_a_folder_of_it() {
    let mut world = World::json();
    std::fs::write(world.folder.path().join("in"), "{\"id\": 1}\n{\"id\": 2}").unwrap();
    assert_eq!(world.read().await.unwrap(), ["1", "2"]);
    assert_eq!(world.position(), "all 1 files");
    std::fs::remove_file(world.folder.path().join("in")).unwrap();
    assert_eq!(world.read().await.unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_json() {
    let write = |world: &World| {
        world.write(
            "1",
            "{\"id\": 1}\n{\"id\": 2}\n\n{\"id\": 3}\n{\"id\": 4}\n{\"id\": 5}\n",
        );
        world.write("2", "");
        world.write("3", "{\"id\": 6}");
        world.write("4", "\n");
        world.write("5", "{\"id\": 7}\n{\"id\": 8}");
    };
    let all: Vec<_> = (1..=8).map(|id| id.to_string()).collect();
    // 1 2, 3 4, 5, 6, 7 8.
    for batches in 0..=5 {
        let mut world = World::json().with_batches(2.0);
        write(&world);
        let mut read = world.read_batches(batches).await;
        read.extend(world.read().await.unwrap());
        assert_eq!(read, all, "behind batch {batches}");
        assert_eq!(world.position(), "all 5 files");
        assert_eq!(world.read().await.unwrap(), [""; 0]);
    }
    let mut world = World::json().with_batches(2.0);
    write(&world);
    assert_eq!(world.read_batches(0).await, [""; 0]);
    assert_eq!(world.position(), "0 of 5 files, then 1: its begin");
    world.read_batches(2).await;
    assert_eq!(world.position(), "0 of 5 files, then 1: byte 41, after line 5");
    world.read_batches(1).await;
    assert_eq!(world.position(), "0 of 5 files, then 1: byte 51, after line 6");
    world.read_batches(1).await;
    assert_eq!(world.position(), "2 of 5 files, then 3: byte 9, after line 1");
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_parquet() {
    let write = |world: &World| {
        world.write_parquet("1", 0..10, 5);
        world.write_parquet("2", 0..0, 5);
        world.write_parquet("3", 10..11, 5);
        world.write_parquet("4", 11..40, 7);
    };
    for rows_of_a_batch in [1.0, 2.0, 3.0, 4.0, 7.0] {
        for batches in 0.. {
            let mut world = World::parquet().with_batches(rows_of_a_batch);
            write(&world);
            let mut read = world.read_batches(batches).await;
            // Another size of batches when it goes on.
            world.rate = Some(100.0);
            let more = world.read().await.unwrap();
            let ended = more.is_empty();
            read.extend(more);
            assert_eq!(read, shown(0..40), "behind batch {batches} of {rows_of_a_batch}");
            if ended {
                break;
            }
        }
    }
    let mut world = World::parquet().with_batches(3.0);
    write(&world);
    world.read_batches(3).await;
    assert_eq!(world.position(), "0 of 4 files, then 1: row group 1, row 3");
    world.read_batches(1).await;
    assert_eq!(world.position(), "0 of 4 files, then 1: row group 1, row 5");
}

#[tokio::test]
async fn files_that_are_done_may_go_and_new_ones_are_not_read() {
    let mut world = World::parquet().with_batches(1.0);
    for (name, ids) in [("b", 0..1), ("d", 1..3), ("f", 3..4)] {
        world.write_parquet(name, ids, 10);
    }
    assert_eq!(world.read_batches(2).await, shown(0..2));
    std::fs::remove_file(world.path("b")).unwrap();
    for name in ["a", "c", "e", "g"] {
        world.write_parquet(name, 90..99, 10);
    }
    assert_eq!(world.read().await.unwrap(), shown(2..4));
}

#[tokio::test]
async fn a_file_that_is_gone_or_changed_is_named_when_the_run_goes_on() {
    let out = "; put the old file back, or start anew with --new-state";
    let begun = || async {
        let mut world = World::parquet().with_batches(1.0);
        world.write_parquet("a", 0..3, 10);
        world.write_parquet("b", 3..6, 10);
        world.write_parquet("c", 6..9, 10);
        world.read_batches(1).await;
        world
    };
    let mut world = begun().await;
    std::fs::remove_file(world.path("b")).unwrap();
    let gone = "is gone since the job listed its files; put it back, or start anew with --new-state";
    assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/b: {gone}"));
    world.write_parquet("b", 3..6, 10);
    std::fs::remove_file(world.path("a")).unwrap();
    assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/a: {gone}"));

    let mut world = begun().await;
    let size = std::fs::metadata(world.path("c")).unwrap().len();
    world.write("c", "x");
    let changed = format!("FOLDER/in/c: has 1 bytes, but had {size} when the job listed its files{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);

    let mut world = begun().await;
    world.write_parquet("a", 0..4, 10);
    let changed = format!("FOLDER/in/a: has changed since it was read in part{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);

    // Of a file of which nothing was read, whatever it is now.
    let mut world = World::parquet();
    world.write("a", "x");
    let source = world.open().await.unwrap();
    world.store(source.as_ref());
    world.write_parquet("a", 0..4, 10);
    assert_eq!(world.read().await.unwrap(), shown(0..4));

    let mut world = World::json().with_batches(1.0);
    world.write("a", "{\"id\": 1}\n{\"id\": x}\n");
    world.read_batches(1).await;
    let bad = "FOLDER/in/a, line 2: it is not JSON: expected value at column 8; mend the line, or set bad_data = 'drop' to leave such \
               lines out";
    assert_eq!(world.read().await.unwrap_err(), bad);
    world.write("a", "{\"id\": 7}\n{\"id\": 2}\n");
    let changed = format!("FOLDER/in/a: has changed before byte 10, up to which it was read{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);
    world.write("a", "{\"id\": 1}\n{\"id\": 22}\n");
    assert_eq!(world.read().await.unwrap(), ["22"]);
}

#[tokio::test]
async fn wrong_records_are_dropped_and_counted_over_all_files() {
    let mut world = World::json().dropping();
    world.write("a", "{\"id\": 1}\n{\"id\": x}\n");
    world.write("b", "{\"id\": x}\n{\"id\": x}\n{\"id\": 2}\n");
    world.write("c", "{\"id\": 3}\n");
    let mut source = world.open().await.unwrap();
    assert_eq!(world.read_on(source.as_mut()).await.unwrap(), ["1", "2", "3"]);
    assert_eq!(source.rejected(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_small_files_are_read_in_order_and_their_position_is_small() {
    let mut world = World::json();
    for id in 0..1000 {
        world.write(&format!("part-{id:05}.json"), format!("{{\"id\": {id}}}\n"));
    }
    assert_eq!(world.read_batches(0).await, [""; 0]);
    assert!(
        world.stored[0].bytes.len() < 10_000,
        "{}",
        world.stored[0].bytes.len()
    );
    let mut read = world.read_batches(700).await;
    assert!(
        world.stored[0].bytes.len() < 3000,
        "{}",
        world.stored[0].bytes.len()
    );
    read.extend(world.read().await.unwrap());
    assert_eq!(read, (0..1000).map(|id| id.to_string()).collect::<Vec<_>>());
    assert!(world.stored[0].bytes.len() < 30);
}

#[tokio::test]
async fn what_is_no_folder_of_files_is_refused_by_name() {
    let mut world = World::json();
    let missing = world.read().await.unwrap_err();
    assert_eq!(
        missing,
        "cannot open FOLDER/in: No such file or directory (os error 2)"
    );
    std::fs::create_dir(world.folder.path().join("in")).unwrap();
    let empty = "FOLDER/in: has no file; put the files there before the job starts";
    assert_eq!(world.read().await.unwrap_err(), empty);
    world.write("sub/a.json", "{\"id\": 1}");
    assert_eq!(world.read().await.unwrap_err(), empty);
    let mut world = world.with_pattern("csv$");
    let empty = "FOLDER/in: has no file that matches 'csv$'; put the files there before the job starts";
    assert_eq!(world.read().await.unwrap_err(), empty);

    world.config.pattern = Some("sub".into());
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    assert_eq!(world.read().await.unwrap(), ["1"]);
    world.stored.clear();
    world.config.pattern = None;
    let socket =
        "FOLDER/in/socket: is a socket, not a file; leave it out by the option 'source.regex_pattern'";
    assert_eq!(world.read().await.unwrap_err(), socket);
    std::os::unix::fs::symlink("..", world.path("sub/up")).unwrap();
    world.config.pattern = Some("json".into());
    let circle = "FOLDER/in/sub/up: leads back to a folder that it is in; remove the link";
    assert_eq!(world.read().await.unwrap_err(), circle);
}

#[tokio::test]
async fn what_is_no_parquet_file_is_refused_by_name() {
    let behind = "; if it is none of the data, leave it out by the option 'source.regex_pattern'";
    let mut world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let whole = std::fs::read(world.path("a")).unwrap();
    let mut encrypted = whole.clone();
    encrypted.splice(whole.len() - 4.., *b"PARE");
    let mut long = whole.clone();
    long.splice(whole.len() - 8..whole.len() - 4, u32::MAX.to_le_bytes());
    for (bytes, reason) in [
        (&b""[..], "has 0 bytes, which is no Parquet file"),
        (b"{\"id\": 1}\n", "has 10 bytes, which is no Parquet file"),
        (
            b"{\"id\": 1, \"name\": \"x\"}\n",
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (
            &whole[..whole.len() - 1],
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (
            &long,
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (&encrypted, "is an encrypted Parquet file, which is not read"),
    ] {
        world.write("a", bytes);
        assert_eq!(
            world.read().await.unwrap_err(),
            format!("FOLDER/in/a: {reason}{behind}")
        );
    }
}

#[tokio::test]
async fn a_damaged_page_is_named_by_its_file_and_row_group() {
    let world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let mut bytes = std::fs::read(world.path("a")).unwrap();
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new();
    let metadata = metadata
        .parse_and_finish(&File::open(world.path("a")).unwrap())
        .unwrap();
    let (begin, length) = metadata.row_group(1).column(0).byte_range();
    bytes[begin as usize..(begin + length) as usize].fill(0xff);
    world.write("a", &bytes);
    let mut source = world.open().await.unwrap();
    assert_eq!(rows(&source.next().await.unwrap().unwrap()), shown(0..5));
    let error = world.said(&source.next().await.unwrap_err());
    let damaged = "FOLDER/in/a: row group 1 cannot be decoded: it is damaged; put the old file back, or start anew with --new-state";
    assert_eq!(error, damaged);
}

/// Not every change can be seen: where a page has no checksum, another value is as good as the one before.
#[tokio::test]
async fn whatever_byte_is_damaged_the_run_ends_with_the_files_name_or_reads_its_rows() {
    let mut world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let whole = std::fs::read(world.path("a")).unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        world.write("a", &bytes);
        world.stored.clear();
        match world.read().await {
            Ok(rows) => assert_eq!(rows.len(), 10, "byte {at}"),
            Err(error) => {
                assert!(error.starts_with("FOLDER/in/a: "), "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {}", whole.len());
}

#[tokio::test]
async fn every_compression_is_read_but_those_refused_by_name() {
    use parquet::basic::{GzipLevel, ZstdLevel};
    for compression in [
        Codec::UNCOMPRESSED,
        Codec::SNAPPY,
        Codec::ZSTD(ZstdLevel::default()),
        Codec::GZIP(GzipLevel::default()),
        Codec::LZ4,
        Codec::LZ4_RAW,
    ] {
        let mut world = World::parquet();
        write_batch(&world.path("a"), &numbered(0..50), 20, compression);
        assert_eq!(world.read().await.unwrap(), shown(0..50), "{compression}");
    }
    for (compression, name) in [
        (Codec::BROTLI(BrotliLevel::default()), "BROTLI"),
        (Codec::LZO, "LZO"),
    ] {
        let mut world = World::parquet();
        write_batch(&world.path("a"), &numbered(0..50), 20, Codec::SNAPPY);
        pretend(&world.path("a"), compression);
        let refused = format!(
            "column id is compressed as {name}, which is not read; write it as SNAPPY, ZSTD, GZIP or LZ4"
        );
        assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/a: {refused}"));
    }
}

/// Has the footer say that every column is compressed so.
fn pretend(path: &std::path::Path, compression: Codec) {
    use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
    let mut bytes = std::fs::read(path).unwrap();
    let tail = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let footer = bytes.split_off(tail - length);
    let mut metadata = ParquetMetaDataReader::decode_metadata(&footer[..length])
        .unwrap()
        .into_builder();
    for row_group in metadata.take_row_groups() {
        let mut row_group = row_group.into_builder();
        let columns = row_group.take_columns().into_iter();
        let columns = columns.map(|column| {
            column
                .into_builder()
                .set_compression(compression)
                .build()
                .unwrap()
        });
        let row_group = row_group.set_column_metadata(columns.collect()).build().unwrap();
        metadata = metadata.add_row_group(row_group);
    }
    ParquetMetaDataWriter::new(&mut bytes, &metadata.build())
        .finish()
        .unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// So compressed, in two members or frames of which the first ends within a line.
async fn packed(compression: Compression, text: &str) -> Vec<u8> {
    use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
    use tokio::io::AsyncWriteExt as _;
    let mut bytes = Vec::new();
    let (first, second) = text.as_bytes().split_at(text.len() / 2 + 3);
    for part in [first, second] {
        match compression {
            Compression::None => bytes.extend(part),
            Compression::Gzip => {
                let mut encoder = GzipEncoder::new(&mut bytes);
                encoder.write_all(part).await.unwrap();
                encoder.shutdown().await.unwrap();
            }
            Compression::Zstd => {
                let mut encoder = ZstdEncoder::new(&mut bytes);
                encoder.write_all(part).await.unwrap();
                encoder.shutdown().await.unwrap();
            }
        }
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_compressed_json() {
    let text: String = (0..9).map(|id| format!("{{\"id\": {id}}}\n")).collect();
    let all: Vec<_> = (0..9).map(|id| id.to_string()).collect();
    for compression in [Compression::Gzip, Compression::Zstd] {
        for batches in 0..=5 {
            let mut world = World::json().with_batches(2.0);
            world.config.compression = compression;
            world.write("a", packed(compression, &text).await);
            let mut read = world.read_batches(batches).await;
            read.extend(world.read().await.unwrap());
            assert_eq!(read, all, "behind batch {batches}, {compression:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn compressed_files_that_are_cut_damaged_changed_or_not_said_to_be_are_named() {
    let text = "{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3}\n";
    for (compression, name) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let whole = packed(compression, text).await;
        let mut world = World::json().dropping();
        world.write("a", &whole);
        let unsaid = format!(
            "FOLDER/in/a: begins like a file compressed by {name}; set 'source.compression' = '{name}'"
        );
        assert_eq!(world.read().await.unwrap_err(), unsaid);
        world.config.compression = compression;
        assert_eq!(world.read().await.unwrap(), ["1", "2", "3"]);
        for damaged in [&whole[..whole.len() - 3], text.as_bytes()] {
            world.stored.clear();
            world.write("a", damaged);
            let error = world.read().await.unwrap_err();
            let expected = format!("FOLDER/in/a: cannot be unpacked as {name} behind line ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let mut world = world.with_batches(1.0);
        world.stored.clear();
        world.write("a", &whole);
        world.read_batches(2).await;
        world.write("a", packed(compression, &text.replace('2', "4")).await);
        let changed = "FOLDER/in/a: has changed before byte 20, up to which it was read; put the old file back, or start anew with --new-state";
        assert_eq!(world.read().await.unwrap_err(), changed);
        world.write("a", packed(compression, "{\"id\": 1}\n").await);
        let short = "FOLDER/in/a: has 10 bytes, but 20 were read from it before; put the whole file back, or start anew with --new-state";
        assert_eq!(world.read().await.unwrap_err(), short);
    }
}

#[test]
fn positions_of_version_3_are_read() {
    let left = ["part-1.json", "part-2.json", "q"].map(|name| ListedFile {
        name: name.to_owned(),
        size: 100,
    });
    let within = Within::Rows {
        footer_crc: 0x0102_0304,
        row_group: 2,
        row: 1000,
    };
    let position = FilesPosition::new(7, &left.clone().into(), within);
    let hex: String = position
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "414251530107030027000000b686aa8c0703000b706172742d312e6a736f6e640506322e6a736f6e640001716402fc0403020102fbe803"
    );
    assert_eq!(FilesPosition::decode(&position.encode()), Ok(position.clone()));
    assert_eq!(position.files().unwrap(), left);
    let stored = SourcePosition {
        name: "t".into(),
        bytes: position.encode(),
    };
    let shown = "7 of 10 files, then part-1.json: row group 2, row 1000";
    assert_eq!(describe_position(&stored), ("t", shown.to_owned()));
}

#[test]
fn names_that_differ_within_a_character_are_put_together_again() {
    let names = ["é1", "è2", "è2", "è", ""];
    let left: VecDeque<_> = names
        .iter()
        .map(|name| ListedFile {
            name: (*name).to_owned(),
            size: 1,
        })
        .collect();
    let position = FilesPosition::new(0, &left, Within::Start);
    assert_eq!(VecDeque::from(position.files().unwrap()), left);
}

/// What is wrong with a table of these options.
fn refused(options: &str) -> String {
    let sql = format!(
        "CREATE TABLE t (a BIGINT) WITH (connector = 'filesystem', type = 'source', {options});
         CREATE TABLE out (a BIGINT) WITH (connector = 'bigquery');
         INSERT INTO out SELECT a FROM t"
    );
    match crate::Pipeline::parse(&sql, std::path::Path::new("p.sql")) {
        Ok(pipeline) => format!("{:?}", pipeline.source.config),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn options_are_arroyos_and_each_wrong_one_is_named() {
    let good = "path = 'x', format = 'json'";
    for (options, error) in [
        (
            "format = 'json'",
            "14: table t has no option 'path'; add it to WITH (...)",
        ),
        (
            "path = 'x'",
            "14: table t has no option 'format'; add it to WITH (...)",
        ),
        (
            "path = 'x', format = 'csv'",
            "88: option 'format' is 'csv'; it must be 'json' or 'parquet'",
        ),
        (
            "path = 's3://b/x', format = 'json'",
            "76: option 'path' is 's3://b/x'; it must be a path of this machine; object stores are read by Arroyo, not by the embedded host",
        ),
        (
            &format!("{good}, 'source.regex_pattern' = '('"),
            "105: option 'source.regex_pattern' is '('; it must be a regular expression",
        ),
        (
            &format!("{good}, 'source.regex-pattern' = 'x'"),
            "105: connector filesystem has no option 'source.regex-pattern'; did you mean 'source.regex_pattern'?",
        ),
        (
            &format!("{good}, 'source.compression' = 'lz4'"),
            "105: option 'source.compression' is 'lz4'; it must be 'none', 'gzip' or 'zstd'",
        ),
        (
            "path = 'x', format = 'parquet', 'source.compression' = 'gzip'",
            "108: option 'source.compression' is 'gzip'; it must be 'none' with format 'parquet', which is compressed within",
        ),
        (
            &format!("{good}, bad_data = 'skip'"),
            "105: option 'bad_data' is 'skip'; it must be 'fail' or 'drop'",
        ),
        (
            "path = 'x', format = 'parquet', bad_data = 'drop'",
            "108: option 'bad_data' is 'drop'; it must be 'fail' with format 'parquet', which has no records to leave out",
        ),
    ] {
        assert_eq!(refused(options), format!("p.sql:1:{error}"));
    }
    let read = |path, pattern| {
        format!(
            "Filesystem(FilesystemConfig {{ path: \"{path}\", format: Json, pattern: {pattern}, compression: None, bad_data: Drop }})"
        )
    };
    for (path, local) in [
        ("x/y", "x/y"),
        ("/x", "/x"),
        ("file:///x", "/x"),
        ("file:/x", "/x"),
        ("file://x", "/x"),
    ] {
        let options =
            format!("path = '{path}', format = 'json', bad_data = 'drop', 'source.compression' = 'none'");
        assert_eq!(refused(&options), read(local, "None"));
        let options = format!("{options}, 'source.regex_pattern' = 'a.*'");
        assert_eq!(refused(&options), read(local, "Some(\"a.*\")"));
    }
}
