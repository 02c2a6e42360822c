//! Folders as a whole: a world to read them in.

mod damage;
mod folders;
mod resume;
mod types;

use std::collections::BTreeMap;
use std::fs::File;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression as Codec;
use parquet::file::properties::WriterProperties;

use super::*;
use crate::sources::{describe_position, open as open_source};
use crate::sql::SourceTable;

/// A folder that is read, and the position of the run before.
struct World {
    folder: tempfile::TempDir,
    config: FilesystemConfig,
    columns: SchemaRef,
    stored: Vec<SourcePosition>,
    /// Twenty times the rows of a batch.
    rate: Option<f64>,
}

impl World {
    fn new(format: FileFormat, columns: &[(&str, DataType)]) -> Self {
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

    fn path(&self, name: &str) -> PathBuf {
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
    async fn read(&mut self) -> Result<Vec<String>, String> {
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

fn write_batch(path: &std::path::Path, batch: &RecordBatch, row_group: usize, compression: Codec) {
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
